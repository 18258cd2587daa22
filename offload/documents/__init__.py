"""Files that people write: strict YAML with a place for every mistake, and the values that it stands for.

`syntax` reads text to YAML nodes, `nodes` and `marks` nodes to plain values with their places, `shapes` values to
typed ones; `settings` change them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.documents.marks import Document, parse_document, read_document

if TYPE_CHECKING:
    from offload.documents.plan_file import load_plan, plan_kind, read_plan
    from offload.documents.settings import read_setting
    from offload.documents.topology_file import load_topology, shipped_topologies

__all__ = [
    "Document",
    "load_plan",
    "load_topology",
    "parse_document",
    "plan_kind",
    "read_document",
    "read_plan",
    "read_setting",
    "shipped_topologies",
]


def __getattr__(name: str) -> Any:
    """Import what needs pydantic only when it is asked for."""
    if name in {"load_topology", "shipped_topologies"}:
        from offload.documents import topology_file

        return getattr(topology_file, name)
    if name in {"load_plan", "plan_kind", "read_plan"}:
        from offload.documents import plan_file

        return getattr(plan_file, name)
    if name == "read_setting":
        from offload.documents.settings import read_setting

        return read_setting
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
