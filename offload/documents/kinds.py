"""What kind of file a document is, by the keys at its top; and what is said of another kind than the one that is due.

A file of another kind has not one key right: that is told once, not once for each key.
"""

from __future__ import annotations

from functools import cache

from offload.documents.marks import Document
from offload.documents.plan_shape import PlanShape
from offload.documents.shapes import Shape
from offload.documents.topology_shape import TopologyShape
from offload.errors import DocumentError, Mistake, did_you_mean

SHARED = {"title", "source", "$schema", "topology"}  # keys of several kinds of file
KINDS = ("topology", "plan", "case")
PARTS = "parts"
CONFIG = "a model's config.json"
MARKS = {"topology": "memories", "plan": "model and placement, or tensors and tasks", "case": "plan and measured"}
PLACES = {
    "plan": "Plans are read by offload step.",
    "topology": "A topology is named with -t or --on, or by the key topology of a plan.",
    "case": "Cases are read by offload validate.",
    PARTS: "A topology that uses them names each (use: h100-sxm); those of its own stand under its key parts.",
    CONFIG: "It is named in a plan (model: {config: ...}) or in offload step.",
}


@cache
def keys_of(kind: str) -> frozenset[str]:
    """The keys at the top of a kind of file, and of no other."""
    shape: type[Shape]
    if kind == "case":  # its shape takes time to import, and few plans are taken for one
        from offload.documents.case_shape import CaseShape

        shape = CaseShape
    else:
        shape = TopologyShape if kind == "topology" else PlanShape
    return frozenset(field.alias or name for name, field in shape.model_fields.items()) - SHARED


def kind_of(document: Document) -> str:
    """What a document is by the keys at its top: "plan", "topology", "case", "parts", or "" for none of them."""
    if is_parts(document):
        return PARTS
    found = {kind: sum(key in keys_of(kind) for key in document.value) for kind in KINDS}
    best = max(found, key=lambda kind: found[kind])
    return best if found[best] else "plan" if "topology" in document.value else ""


def is_parts(document: Document) -> bool:
    """Whether a document holds parts of servers and no server: it has no title, and no part in it refers to another.

    Its processors say no memory, its links no ends, its memories no switch, and there is one of the first two.
    """
    value = document.value
    sections = {key: value.get(key, {}) for key in ("memories", "switches", "processors", "links", "limits")}
    if value.keys() & {"title", "parts", "topology", "model", "plan"}:
        return False
    if not (sections["processors"] or sections["links"]):
        return False
    refers = {"processors": "memory", "links": "between", "memories": "at", "limits": "over", "switches": ""}
    return all(isinstance(entries, dict) and not any(
        isinstance(entry, dict) and (refers[key] in entry or "use" in entry) for entry in entries.values()
    ) for key, entries in sections.items())  # fmt: skip


def is_config(document: Document) -> bool:
    """Whether a document is a model's config.json."""
    return "model_type" in document.value or "architectures" in document.value


def refuse_other_kind(document: Document, due: str) -> None:
    """Raise DocumentError where a document has no key of the kind that is due, and is no misspelt one of it either."""
    parts = due == "topology" and is_parts(document)
    if any(key in keys_of(due) for key in document.value) and not parts:
        return
    kind = kind_of(document) or (CONFIG if is_config(document) else "")
    if kind == due:
        return
    if kind:
        article = {CONFIG: "", PARTS: "a file of "}.get(kind, "a ")
        message = f"this is {article}{kind}; due is a {due}, a file with {MARKS[due]}. {PLACES[kind]}"
    else:
        hints = [did_you_mean(key, keys_of(due)) for key in document.value]
        if any("Did you mean" in hint for hint in hints) or len(hints) < 3:
            return  # told key by key
        keys = ", ".join(list(document.value)[:6])
        message = f"this is no {due}, a file with {MARKS[due]}: its keys are {keys}."
    raise DocumentError(document.name, [Mistake(1, 1, "", message)])
