"""Values that are changed without editing a file: `workload.batch=8`, `pcie0.rate=30 GB/s`.

A path starts with a key of a plan, and then replaces what the plan file says, or with the name of a part of the server
(`server_settings`). Names with dots, spaces or = in them are quoted: `tensors."kv.0".bytes=1 GB`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from offload.documents.marks import Document, Location
from offload.documents.nodes import as_written
from offload.errors import OffloadError, did_you_mean

PLAN_KEYS = (
    "topology", "title", "model", "workload", "placement", "tensors", "repeat", "blocks", "tasks", "tokens",
    "in_flight", "overlap", "costs", "training", "speculation",
)  # fmt: skip
BY_PLACEMENT = ("model", "workload", "placement", "training")
BY_HAND = ("tensors", "tasks", "blocks", "repeat", "tokens")
EXAMPLE = "workload.batch=8 or pcie0.rate=30GB/s"
LONGEST_SHOWN = 100  # characters of a setting in a message
_PIECE = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|((?:[^."'=\[\]]|\.\.(?=[0-9]))+)|\[([0-9]{1,6})\])\s*""")


@dataclass(frozen=True, slots=True)
class Setting:
    """A value by its path. text : as a file would say it; origin : what gave it, as "--set workload.batch=8".

    number : what is gone on with in place of the equal number that the text is read as (a traced one).
    """

    path: tuple[str, ...]
    text: str
    origin: str
    number: Any = None

    @property
    def is_of_plan(self) -> bool:
        """Whether it changes the plan; else it changes the server."""
        return self.path[0] in PLAN_KEYS


def read_setting(text: str, origin: str | None = None) -> Setting:
    """The setting that PATH=VALUE says. origin : as "--set PATH=VALUE", the default. Raises OffloadError."""
    origin = f"--set {_short(text)}" if origin is None else origin
    path: list[str] = []
    place = 0
    while match := _PIECE.match(text, place):
        path.append(next(piece for piece in match.groups() if piece is not None).strip())
        place = match.end()
        if text[place : place + 1] == ".":
            place += 1
        elif text[place : place + 1] != "[":
            break
    if "=" not in text:
        raise OffloadError(f'{origin}: there is no "=". Write PATH=VALUE, as {EXAMPLE}.')
    if text[place : place + 1] != "=" or not path or not all(path) or text[place - 1] == ".":
        raise OffloadError(
            f"{origin}: what stands before the = is no path. Write keys or a part's name with dots between them, as "
            f"{EXAMPLE}; quote a name that holds a dot, a space or =."
        )
    return Setting(tuple(path), text[place + 1 :].strip(), origin)


def settings_of(given: Sequence[Setting | str]) -> tuple[Setting, ...]:
    """Settings from those and from texts, PATH=VALUE. Raises OffloadError."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise OffloadError(f'settings are a list, as ["{EXAMPLE}"], and {given!r} is none.')
    found = []
    for one in given:
        if not isinstance(one, Setting | str):
            raise OffloadError(f'{one!r} is no setting. Write PATH=VALUE, as "{EXAMPLE}".')
        found.append(one if isinstance(one, Setting) else read_setting(one, f"settings {_short(one)}"))
    return tuple(found)


def _short(text: str) -> str:
    plain = " ".join("".join(one if one.isprintable() else " " for one in text).split())
    return plain if len(plain) <= LONGEST_SHOWN else f"{plain[:LONGEST_SHOWN]}..."


def refuse_twice(settings: Sequence[Setting]) -> None:
    """Raises OffloadError where one path is set twice."""
    seen: dict[tuple[str, ...], Setting] = {}
    for one in settings:
        if one.path in seen:
            raise OffloadError(f"{seen[one.path].origin} and {one.origin} set the same value. Keep one.")
        seen[one.path] = one


def change_plan(document: Document, settings: Sequence[Setting]) -> list[str]:
    """Set values of a plan in its document, and say of each what it replaced. Mistakes are noted in the document."""
    refuse_twice(settings)
    notes = []
    done: dict[Location, Setting] = {}
    for one in sorted(settings, key=lambda one: len(one.path)):  # a map before what it holds
        place = location(document, one.path)
        over = next((done[place[:depth]] for depth in range(1, len(place) + 1) if place[:depth] in done), None)
        if over is not None and (place in done or document.get(place) is not None):
            raise OffloadError(f"{over.origin} and {one.origin} set the same value. Keep one.")
        done[place] = one
        wrong = _unknown(document, place)
        if wrong:
            document.note(place, (0, 0), wrong, one.origin)
            continue
        before = document.get(place)
        if place != ("topology",):
            notes.append(f"{one.origin}: {_told(before, one.text)}")
        document.set(place, one.text, one.origin)
    return notes


def _told(before: object, text: str) -> str:
    if before is None:
        return "the plan's file does not say it"
    if isinstance(before, dict | list):
        return "the plan's file says otherwise"
    if as_written(before) == text:
        return "the plan's file says so too"
    return f'the plan\'s file says "{as_written(before)}"'


def location(document: Document, path: tuple[str, ...]) -> Location:
    """Where a path leads: a number is an entry of a list where a list stands."""
    if path == ("overlap", "buffers"):
        return ("overlap",)  # all that it holds, however it is written
    found: Location = ()
    for piece in path:
        listed = isinstance(document.get(found), list) and piece.isascii() and piece.isdigit()
        found = (*found, int(piece) if listed else piece)
    return found


def _unknown(document: Document, location: Location) -> str:
    """What is wrong with a path before any value is set: another kind of plan, a tensor or task that is not there."""
    hand = [key for key in ("tensors", "tasks", "blocks") if key in document.value]
    placed = [key for key in BY_PLACEMENT if key in document.value]
    if location[0] in (*BY_PLACEMENT, "costs", "speculation") and hand and not placed:
        return f'"{location[0]}" belongs to a plan by placement, and {document.name} is one by hand ({hand[0]}).'
    if location[0] in BY_HAND and placed and not hand:
        return f'"{location[0]}" belongs to a plan by hand, and {document.name} is one by placement ({placed[0]}).'
    for depth, key in enumerate(location[:-2]):
        if key in ("tensors", "tasks") and isinstance(names := document.get(location[: depth + 1]), dict):
            name = location[depth + 1]
            if name not in names:
                return f'no {key[:-1]} "{name}". {did_you_mean(name, names, key.capitalize())}'
            break
    return ""
