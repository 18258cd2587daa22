"""What a sweep is of: a plan file, read once, or a model and a server in words; each with other values many times."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from offload.documents.kinds import refuse_other_kind
from offload.documents.marks import Document
from offload.documents.plan_file import read_plan
from offload.documents.plan_shape import read_overlap
from offload.documents.settings import Setting, refuse_twice, settings_of
from offload.documents.syntax import read_text
from offload.documents.topology_file import load_topology
from offload.errors import OffloadError, did_you_mean
from offload.files import named, path_of
from offload.plan import Overlap, Plan
from offload.topology import Topology
from offload.tracing import NotFollowed, plain
from offload.units import parse_bytes
from offload.words import SETTINGS, plan_from_words


class Source(Protocol):
    """What gives a plan and its server with other values. name : for a person."""

    name: str

    def load(self, swept: Sequence[Setting]) -> tuple[Plan, Topology]:
        """The plan and its server. Raises OffloadError for values that cannot be."""


class PlanFile:
    """A plan file; its text and each server that it names are read once.

    topology, settings : as `load_plan` takes them. overlap : instead of its own.

    Raises as `load_plan` where the file cannot be read.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        topology: str | Path | Topology | None = None,
        settings: Sequence[Setting | str] = (),
        overlap: Overlap | None = None,
    ):
        self._path = path_of(path, "a file")
        self.name = named(path)
        self._document = Document(self.name, read_text(self._path, self.name), self._path)
        self._topology, self._settings, self._overlap = topology, settings_of(settings), overlap
        self._servers: dict[str, Topology] = {}
        refuse_other_kind(self._document, "plan")

    def _server(self, name: str, folder: Path) -> Topology:
        if name not in self._servers:
            self._servers[name] = load_topology(name, folder)
        return self._servers[name]

    def load(self, swept: Sequence[Setting]) -> tuple[Plan, Topology]:
        """The plan and its server with the settings and what is swept."""
        if self._overlap is not None and (twice := [one for one in swept if one.path[0] == "overlap"]):
            raise OffloadError(f"--buffers and {twice[0].origin} say the same. Keep one.")
        settings = [*self._settings, *swept]
        refuse_twice(settings)
        plan, server = read_plan(self._document.copy(), self._path.parent, topology=self._topology, settings=settings,
                                 servers=self._server)  # fmt: skip
        return (plan if self._overlap is None else replace(plan, overlap=self._overlap)), server


class Words:
    """A model and a server in words, as `plan_from_words` takes them; given : its further arguments.

    Swept are its words, by their option's name (`gpu-layers`, `batch`) or by the path of a plan that says the same
    (`workload.batch`, `model.weights`), and values of the server.
    """

    def __init__(self, target: str, topology: str, *, settings: Sequence[Setting | str] = (), **given: Any):
        self._target, self._topology, self._settings, self._given = target, topology, settings_of(settings), given
        self.name = f"{target} on {topology}"

    def load(self, swept: Sequence[Setting]) -> tuple[Plan, Topology]:
        """The plan and its server with what is swept."""
        words: dict[str, Any] = {"target": self._target, "topology": self._topology, **self._given}
        settings = [*self._settings]
        said: dict[str, str] = {}
        for one in swept:
            option = _option_of(one)
            if option is None:
                settings.append(one)
                continue
            word, read = WORDS[option]
            if option in said or word in self._given:
                other = said.get(option, option)
                raise OffloadError(f"{other} and {one.origin} say the same. Keep one.")
            said[option] = one.origin
            words[word] = _as_number(one, read(one))
        if "--weights" in said:  # in place of what the first word says
            words["target"] = _without_format(words["target"])
        refuse_twice(settings)
        return plan_from_words(words.pop("target"), words.pop("topology"), settings=settings, **words)


def _option_of(one: Setting) -> str | None:
    """The option that a setting is about, None where it is about the server."""
    if len(one.path) == 1 and f"--{one.path[0]}" in WORDS:
        return f"--{one.path[0]}"
    if one.path == ("overlap", "buffers"):
        return "--buffers"
    word = one.path[0].replace("_", "-")
    if len(one.path) == 1 and f"--{word}" in WORDS:
        raise OffloadError(f'{one.origin}: a word is written as its option is. Did you mean "{word}"?')
    if not one.is_of_plan:
        return None
    option = SETTINGS.get(one.path)
    if option == "the first word":
        return "--model"
    if option in WORDS and option != "--gpu-layers":
        return option
    path = ".".join(one.path)
    if one.path[:2] == ("placement", "weights"):
        raise OffloadError(f"{one.origin}: without a plan file write --over gpu-layers=0:40, or write a plan file.")
    known = [*(name[2:] for name in WORDS), *(".".join(path) for path, option in SETTINGS.items() if option in WORDS)]
    raise OffloadError(f'{one.origin}: without a plan file there is no "{path}". {did_you_mean(path, known)}')


def _whole(least: int) -> Callable[[Setting], int]:
    def read(one: Setting) -> int:
        if not (one.text.isascii() and one.text.isdigit() and len(one.text) < 16) or int(one.text) < least:
            raise OffloadError(f'{one.origin}: "{one.text}" is not a whole number of at least {least}.')
        return int(one.text)

    return read


def _text(one: Setting) -> str:
    text = one.text
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        text = text[1:-1]
    if not text:
        raise OffloadError(f"{one.origin}: the value is empty.")
    return text


def _size(one: Setting) -> int:
    try:
        return parse_bytes(one.text)
    except OffloadError as error:
        raise OffloadError(f"{one.origin}: {error}") from None


def _overlap(one: Setting) -> Overlap:
    try:
        return read_overlap(one.text)
    except ValueError as error:
        raise OffloadError(f"{one.origin}: {error}") from None


def _layers(one: Setting) -> int:
    return _whole(0)(replace(one, text=one.text.removesuffix("s").removesuffix("layer").strip()))


WORDS: Mapping[str, tuple[str, Callable[[Setting], Any]]] = {  # by option: the argument, and how its text is read
    "--model": ("target", _text), "--on": ("topology", _text), "--gpu-layers": ("gpu_layers", _layers),
    "--cpu-experts": ("cpu_experts", _layers), "--compute": ("compute", _text), "--kv": ("kv", _text),
    "--batch": ("batch", _whole(1)), "--context": ("context", _whole(0)), "--prompt": ("prompt", _whole(1)),
    "--generate": ("generate", _whole(1)), "--weights": ("weights", _text), "--kv-format": ("kv_format", _text),
    "--reserve": ("reserve", _size), "--buffers": ("overlap", _overlap),
}  # fmt: skip


def _as_number(one: Setting, read: Any) -> Any:
    """The value that was read, or the number that is gone on with in its place. Raises NotFollowed."""
    if one.number is None:
        return read
    structural = isinstance(read, str | Overlap) or _option_of(one) in ("--gpu-layers", "--cpu-experts")
    if structural or plain(one.number) != read:
        raise NotFollowed(one.number, read)
    return one.number


def _without_format(target: str) -> str:
    before, colon, _ = target.rpartition(":")
    return before if colon and not os.path.exists(target) else target
