"""Writes docs/api.md, the reference of the public names, from their docstrings: `python docs/api.py`."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from pathlib import Path
from typing import Any

PAGE = Path(__file__).with_suffix(".md")
sys.path.insert(0, str(PAGE.parent.parent))

import offload  # noqa: E402

HEAD = """\
# API reference

The names that `import offload` gives, from their docstrings (written by `python docs/api.py`; a test keeps it so). Each
loads on first use. They are used in this order: `load_plan` or `load_model` and `load_topology`, then `evaluate` for
everything at once, or `compile_step`, `floor` and `schedule` one by one. In brackets stand units: [B] bytes, [s]
seconds. How the numbers differ: [numbers](numbers.md).

| name | what |
| --- | --- |
"""


def signature_of(thing: Any) -> str:
    """Arguments by name and default; types are left to an editor."""
    bare = [one.replace(annotation=inspect.Parameter.empty) for one in inspect.signature(thing).parameters.values()]
    return str(inspect.Signature(bare))


def in_markdown(docstring: str) -> str:
    """A docstring with its sessions as blocks of code."""
    parts = re.split(r"\n\n(?=>>> )", docstring, maxsplit=1)
    text = parts[0].replace("<", "&lt;")
    return text if len(parts) == 1 else f"{text}\n\n```python\n{parts[1]}\n\n```"


def members_of(thing: type) -> list[str]:
    """Public methods and properties with a docstring of their own, one line each."""
    lines = []
    for name, member in vars(thing).items():
        inner = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if name.startswith("_") or not (callable(inner) or isinstance(inner, property)) or not inspect.getdoc(inner):
            continue
        called = "" if isinstance(inner, property) else "()"
        lines.append(f"- `.{name}{called}`: {inspect.getdoc(inner).splitlines()[0]}")
    return lines


def first_sentence(thing: Any) -> str:
    paragraph = (inspect.getdoc(thing) or "").partition("\n\n")[0]
    return " ".join(paragraph.split()).partition(". ")[0].removesuffix(".") + "."


def section_of(name: str) -> str:
    thing = getattr(offload, name)
    kind = "class" if isinstance(thing, type) else "function"
    parts = [f"## {name}", f"*{kind}*, from `{thing.__module__}`"]
    if kind == "function":
        parts.append(f"```text\n{name}{signature_of(thing)}\n```")
    parts.append(in_markdown(inspect.getdoc(thing) or ""))
    if kind == "class":
        if dataclasses.is_dataclass(thing):
            parts.append("Fields: " + ", ".join(f"`{field.name}`" for field in dataclasses.fields(thing)) + ".")
        if members := members_of(thing):
            parts.append("\n".join(members))
    return "\n\n".join(parts)


def page() -> str:
    names = [name for name in offload.__all__ if not name.startswith("_")]
    rows = [f"| [`{name}`](#{name.lower()}) | {first_sentence(getattr(offload, name))} |" for name in names]
    return HEAD + "\n".join(rows) + "\n\n" + "\n\n".join(section_of(name) for name in names) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
