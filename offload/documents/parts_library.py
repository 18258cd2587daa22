"""Parts of servers by name: `use: h100-sxm` in an entry of a topology stands for what is known of that part.

    memories:
      hbm0..7: {use: h100-sxm}                    # its kind, capacity, cache and rates, with their sources
      hbm8: {use: h100-sxm, capacity: 96 GB}      # what the entry says itself replaces the part's key

Parts are shipped in topologies/parts/*.yaml, and a topology may bring its own under `parts:`; each has the sections of
a topology file, so one name may stand for a memory, a processor and a link. One level deep: a part uses no part. In a
section a name stands once over all shipped files; a topology's own part may take its place, which is remarked.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from offload.documents.marks import Document, Location, read_document
from offload.documents.part_keys import left_of
from offload.documents.shipped import shipped_folder
from offload.errors import OffloadError, did_you_mean, one_line
from offload.units.remarks import remark

SECTIONS = ("switches", "memories", "processors", "links", "limits")


def part_files() -> tuple[Path, ...]:
    """The files of the shipped parts, sorted."""
    return tuple(sorted((shipped_folder() / "parts").glob("*.yaml")))


def shipped_parts(section: str) -> tuple[str, ...]:
    """Names of the shipped parts of a section ("memories", "processors", ...), sorted."""
    return tuple(sorted(name for path in part_files() for name in _read(path).get(section, {})))


def part(section: str, name: str) -> dict[str, Any] | None:
    """The keys of a shipped part of a section, None where there is none of that name.

    Raises OffloadError where two shipped files hold it.
    """
    found: dict[str, Any] | None = _find(section, name)
    return found


def with_part(document: Document, section: str, value: Any, place: Location, own: Any) -> Any:
    """An entry with the keys of the part it uses below its own; the entry as it is where it uses none.

    document, place : the topology file and where the entry stands in it; own : the map under `parts:`, if any.
    None where the part is refused, which is noted as a mistake of the document at `use`.
    """
    if not isinstance(value, dict) or "use" not in value:
        return value
    name, said = value["use"], {key: given for key, given in value.items() if key != "use"}
    at = (*place, "use")
    if not isinstance(name, str):
        document.mistake(at, "is the name of one part, such as h100-sxm.")
        return None
    inside = own.get(section) if isinstance(own, dict) else None
    inside = inside if isinstance(inside, dict) else {}
    try:
        shipped = _find(section, name)
    except OffloadError as error:
        document.mistake(at, str(error))
        return None
    part = inside.get(name, shipped)
    if name in inside and shipped is not None:
        remark(f"{document.name}: its own part {section}.{one_line(name)} takes the place of the shipped one.")
    if part is None:
        document.mistake(at, _unknown(section, name, (*inside, *shipped_parts(section))))
        return None
    if not isinstance(part, dict):
        document.mistake((*place[:-2], "parts", section, name), "is a map of the keys that the part has.")
        return None
    if "use" in part:
        document.mistake(at, f'"{one_line(name)}" uses a part itself. Parts are one level deep: name that part here.')
        return None
    left, without = left_of(section, part, said)
    for told in without:
        remark(f"{document.name}: {'.'.join(map(str, place))}: of the part {one_line(name)}, {told}.")
    return left | said


def _unknown(section: str, name: str, allowed: tuple[str, ...]) -> str:
    kinds = {"memories": "memory", "switches": "switch"}
    one = kinds.get(section, section.removesuffix("s"))
    for other in SECTIONS:
        if other != section and name in shipped_parts(other):
            return f'"{one_line(name)}" is a part of {other}, not of {section}. {did_you_mean(name, allowed, "Parts")}'
    return f'no {one} "{one_line(name)}" among the parts. {did_you_mean(name, allowed, "Parts")}'


def _find(section: str, name: str) -> Any:
    """A shipped part; only files that hold the name as a key are read in full, which keeps a start quick."""
    key = re.compile(rf"^  {re.escape(name)}:", re.MULTILINE)
    holding = [path for path in part_files() if key.search(_text(path)) and name in _read(path).get(section, {})]
    if len(holding) > 1:
        files = " and ".join(path.name for path in holding)
        raise OffloadError(f'the shipped part {section}.{one_line(name)} stands in {files}: rename one of them.')
    return _read(holding[0])[section][name] if holding else None


@cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def _read(path: Path) -> dict[str, Any]:
    return read_document(path).value
