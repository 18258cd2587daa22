"""What a file is, what is wrong in it, and what in it is probably not meant: one answer for each file.

A mistake is what the readers refuse; a warning is a `Doubt`. One file's mistakes never hide another's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from offload import __version__
from offload.compiler import compile_step
from offload.documents import Document, read_document, read_plan
from offload.documents.case_file import load_cases
from offload.documents.kinds import CONFIG, PLACES, is_config, keys_of, kind_of
from offload.documents.marks import Location, as_written, path_text
from offload.documents.parts_file import read_parts
from offload.documents.shipped import find_topology, shipped_folder, shipped_topologies
from offload.documents.topology_file import read_topology
from offload.doubts import (
    CODES,
    Doubt,
    doubts_of_channels,
    doubts_of_plan,
    doubts_of_server,
    doubts_of_texts,
    doubts_of_topology,
)
from offload.errors import DocumentError, Mistake, OffloadError, did_you_mean
from offload.ranges import expand, fold

FORMAT = 1  # version of the keys of the data; raised when one changes its meaning or goes away


@dataclass(frozen=True, slots=True)
class Warned:
    """A doubt in a file: about which parts, as `hbm0..7`, and on which line (0 where it is about no line).

    key : the keys from the top to the doubted value, as they stand in the file, and `value` as it is written there;
    "" where it is about no key, or a whole part.
    """

    file: str
    line: int
    code: str
    part: str
    says: str
    meant: str
    key: str = ""
    value: str = ""


@dataclass(frozen=True, slots=True)
class Told:
    """A mistake and the file that it stands in, which is another one where a plan names a topology."""

    file: str
    line: int
    column: int
    key: str
    message: str


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found in a file.

    kind : "plan", "topology", "parts", "case", or "" where it is none or could not be read.
    """

    file: str
    kind: str
    mistakes: tuple[Told, ...] = ()
    warnings: tuple[Warned, ...] = ()


def check_file(path: str, allowed: Collection[str] = ()) -> Checked:
    """What is wrong in a file, or in the shipped server of that name, and what is probably not meant; nothing that a
    file holds is raised.

    allowed : codes of doubts that are meant, and not told. Raises OffloadError for a code that there is not.
    """
    for code in allowed:
        if code not in CODES:
            raise OffloadError(f'no warning has the code "{code}". {did_you_mean(code, CODES, "Codes")}')
    kind = ""
    if path in shipped_topologies() and not Path(path).exists():
        path = str(find_topology(path))
    try:
        document = read_document(path)
        kind = kind_of(document)
        if kind == "plan":
            warnings = _check_plan(document, Path(path).parent)
        elif kind == "topology":
            warnings = _check_topology(document, Path(path).stem)
        elif kind == "parts":
            warnings = _check_parts(document)
        elif kind == "case":
            load_cases(path)
            warnings = []  # what was measured and published is no plan to warn of
        else:
            return Checked(path, "", (Told(path, 0, 0, "", _neither(document)),))
    except DocumentError as error:
        return Checked(path, kind, tuple(_told(error.file, one) for one in error.mistakes))
    except OffloadError as error:
        return Checked(path, kind, (Told(path, 0, 0, "", str(error).removeprefix(f"{path}: ")),))
    except OSError as error:  # a file that this one names
        return Checked(path, kind, (Told(path, 0, 0, "", f"{error.filename}: {error.strerror}."),))
    told = sorted((one for one in warnings if one.code not in allowed), key=lambda one: (one.file != path, one.line))
    return Checked(path, kind, (), tuple(told))


def _neither(document: Document) -> str:
    if is_config(document):
        return f"this is {CONFIG}. {PLACES[CONFIG]}"
    keys = ", ".join(list(document.value)[:6]) or "none"
    known = keys_of("topology") | keys_of("plan") | {"topology"}
    hint = did_you_mean(next(iter(document.value), ""), known, "Keys of them")
    kinds = "neither a plan (topology, and model or tensors) nor a topology (memories) nor a case (plan, measured)"
    return f"{kinds}: its keys are {keys}. {hint}"


def _told(file: str, mistake: Mistake) -> Told:
    return Told(file, mistake.line, mistake.column, mistake.key, mistake.message)


def _check_topology(document: Document, name: str) -> list[Warned]:
    topology = read_topology(document, name=name)
    return _warned(document, [*doubts_of_channels(_channels(document)), *doubts_of_server(topology, document.value)])


def _check_parts(document: Document) -> list[Warned]:
    doubts = [doubt for topology in read_parts(document) for doubt in doubts_of_topology(topology)]
    return _warned(document, [*doubts_of_channels(_channels(document)), *doubts, *doubts_of_texts(document.value)])


def _check_plan(document: Document, folder: Path) -> list[Warned]:
    plan, topology = read_plan(document, folder)
    doubts = doubts_of_plan(compile_step(topology, plan))
    if plan.request is not None:  # what only its prefill lacks
        known = {doubt.place for doubt in doubts}
        doubts += [doubt for doubt in doubts_of_plan(compile_step(topology, plan.request.prefill))
                   if doubt.code == "does-not-fit" and doubt.place not in known]  # fmt: skip
    found = _warned(document, [*doubts, *doubts_of_texts(document.value)])
    server = find_topology(document.get(("topology",)), folder)
    if server.parent != shipped_folder():  # one of the person's own: its figures decide as well
        found += _check_topology(read_document(server), server.stem)
    return found


def _channels(document: Document) -> Mapping[str, str]:
    """The rates of host memories as they are written."""
    memories = document.get(("memories",), {})
    written = {}
    for name, memory in memories.items():
        if memory.get("kind") == "dram":
            rate = memory.get("rate")
            text = rate.get("peak") if isinstance(rate, dict) else rate
            written[name] = as_written(text)
    return written


def _warned(document: Document, doubts: Iterable[Doubt]) -> list[Warned]:
    """Doubts at their lines; what is said of several parts alike is said once."""
    groups: dict[tuple[str, tuple[str, ...], str, str], list[Doubt]] = {}
    for doubt in doubts:
        groups.setdefault((doubt.code, doubt.place[:-1], doubt.says, doubt.meant), []).append(doubt)
    found = []
    for (code, _, says, meant), group in groups.items():
        at = _location(document, group[0])
        value = document.get(at)
        text = as_written(value) if at and not isinstance(value, dict | list) and value is not None else ""
        line = document.mark(at, key=True)[0] if at else 0
        parts = fold(one.part for one in group)
        found.append(Warned(document.name, line, code, parts, says, meant, path_text(at) if at else "", text))
    return found


def _location(document: Document, doubt: Doubt) -> Location:
    """Where a doubt's value stands, or the nearest above it; its part is found through ranges and blocks."""
    section, name = doubt.place[:-1], doubt.place[-1]
    for key in document.get(section, {}) if section else ():
        if name == key or name in _names(key) or name.rpartition(".")[0] == key:
            return document.known((*section, key, *doubt.key))
    if section == ("tasks",):
        for index, block in enumerate(document.get(("blocks",), ())):
            if isinstance(block, dict) and name in block.get("tasks", {}):
                return ("blocks", index, "tasks", name)
    return document.known(doubt.place)


def _names(key: str) -> list[str]:
    try:
        return expand(key)
    except ValueError:
        return [key]


def checked_to_json(files: Iterable[Checked]) -> dict[str, Any]:
    """Checked files as plain data."""
    files = list(files)
    return {
        "format": FORMAT,
        "offload_version": __version__,
        "sound": not any(one.mistakes for one in files),
        "files": [asdict(one) for one in files],
    }
