"""Files that people write: strict YAML with a place for every mistake, and the values that it stands for.

`syntax` reads text to YAML nodes, `marks` nodes to plain values with their places, `shapes` values to typed ones.
"""

from __future__ import annotations

from offload.documents.marks import Document, parse_document, read_document

__all__ = ["Document", "load_plan", "load_topology", "parse_document", "read_document", "shipped_topologies"]


def __getattr__(name: str) -> object:
    """Import what needs pydantic only when it is asked for."""
    if name in {"load_topology", "shipped_topologies"}:
        from offload.documents import topology_file

        return getattr(topology_file, name)
    if name == "load_plan":
        from offload.documents.plan_file import load_plan

        return load_plan
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
