"""What kind of file a document is, by the keys at its top; and what is said of another kind than the one that is due.

A file of another kind has not one key right: that is told once, not once for each key.
"""

from __future__ import annotations

from functools import cache

from offload.documents.marks import Document
from offload.documents.plan_shape import PlanShape
from offload.documents.topology_shape import TopologyShape
from offload.errors import DocumentError, Mistake, did_you_mean

SHARED = {"title", "source", "$schema", "topology"}  # keys of several kinds of file
KINDS = ("topology", "plan", "case")
CONFIG = "a model's config.json"
MARKS = {"topology": "memories", "plan": "model and placement, or tensors and tasks", "case": "plan and measured"}
PLACES = {
    "plan": "Plans are read by offload step.",
    "topology": "A topology is named with -t or --on, or by the key topology of a plan.",
    "case": "Cases are read by offload validate.",
    CONFIG: "It is named in a plan (model: {config: ...}) or in offload step.",
}


@cache
def keys_of(kind: str) -> frozenset[str]:
    """The keys at the top of a kind of file, and of no other."""
    if kind == "case":  # its shape takes time to import, and few plans are taken for one
        from offload.documents.case_shape import CaseShape as Shape
    else:
        Shape = TopologyShape if kind == "topology" else PlanShape
    return frozenset(field.alias or name for name, field in Shape.model_fields.items()) - SHARED


def kind_of(document: Document) -> str:
    """What a document is by the keys at its top: "plan", "topology", "case", or "" for none of them."""
    found = {kind: sum(key in keys_of(kind) for key in document.value) for kind in KINDS}
    best = max(found, key=lambda kind: found[kind])
    return best if found[best] else "plan" if "topology" in document.value else ""


def is_config(document: Document) -> bool:
    """Whether a document is a model's config.json."""
    return "model_type" in document.value or "architectures" in document.value


def refuse_other_kind(document: Document, due: str) -> None:
    """Raise DocumentError where a document has no key of the kind that is due, and is no misspelt one of it either."""
    if any(key in keys_of(due) for key in document.value):
        return
    kind = kind_of(document) or (CONFIG if is_config(document) else "")
    if kind == due:
        return
    if kind:
        article = "" if kind == CONFIG else "a "
        message = f"this is {article}{kind}; due is a {due}, a file with {MARKS[due]}. {PLACES[kind]}"
    else:
        hints = [did_you_mean(key, keys_of(due)) for key in document.value]
        if any("Did you mean" in hint for hint in hints) or len(hints) < 3:
            return  # told key by key
        keys = ", ".join(list(document.value)[:6])
        message = f"this is no {due}, a file with {MARKS[due]}: its keys are {keys}."
    raise DocumentError(document.name, [Mistake(1, 1, "", message)])
