"""What a reader of engine logs has found so far of one run, and how it reads names, numbers and settings.

Names of models lose their folders (a path tells who owns the machine); numbers are finite and above 0, or not known.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from offload.errors import ReadingError
from offload.readers.engines.run import Buffer, Processor, Run, Said, Timing
from offload.readers.tools.figures import GIB, positive
from offload.readers.tools.text import Line, Text

NUMBER = r"(\d[\d,]*(?:\.\d+)?(?:[eE][+-]?\d{1,3})?)"
LONGEST_NAME = 120  # characters of a model's name
MOST = 10**15  # of anything that is counted
HUB_FOLDER = re.compile(r"(?:^|[/\\])models--([\w.+-]+?)--([\w.+-]+)(?:[/\\]|$)")
# A setting in "key=value" or "'key': value" form; quoted values may hold blanks and commas.
SETTING = r"(?<![\w.-])['\"]?{key}['\"]?\s*[=:]\s*('[^']*'|\"[^\"]*\"|[^\s,'\"()\[\]{{}}]+)"
FLOAT_BITS = {"float32": 32, "float16": 16, "bfloat16": 16, "half": 16}
SHORT_TYPES = {"half": "float16", "float": "float32", "fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}


class LineReader(Protocol):
    """Reads the lines of one run, one after another."""

    def begins_another(self, line: Line) -> bool:
        """Whether a line is of another run."""

    def take(self, line: Line) -> None:
        """Read one line."""

    def finished(self) -> list[Run]:
        """What the lines said: one run, or none."""


def runs_of(text: Text, make: Callable[[], LineReader], looks_like: str) -> tuple[Run, ...]:
    """The runs of a log, each read by a reader of its own. Raises ReadingError where no line can be used."""
    runs: list[Run] = []
    reader = make()
    for line in text:
        if reader.begins_another(line):
            runs += reader.finished()
            reader = make()
        reader.take(line)
    runs += reader.finished()
    if not runs:
        raise ReadingError(f"looks like {looks_like}, but no line of it says a size, a setting or a time.")
    return tuple(runs)


def number(printed: str | None) -> float | None:
    """A printed number, with or without commas between thousands; None where it is no finite number above 0."""
    return None if printed is None else positive(printed.replace(",", ""))


def count(printed: str | None) -> int | None:
    """A printed whole number above 0, or None."""
    value = number(printed)
    return int(value) if value is not None and value == int(value) and value < MOST else None


def gib(printed: str | None) -> int | None:
    """Bytes of a printed number of GiB (2^30), or None."""
    value = number(printed)
    size = None if value is None or value >= MOST / GIB else round(value * GIB)
    return size or None


def model_name(printed: str | None) -> str | None:
    """A model's name without the folders that it lies in: "org/name" stays, of a path the last part; None if empty."""
    if printed is None:
        return None
    printed = printed.strip().strip("'\"").strip()
    if printed in ("", "None", "auto"):
        return None
    if cached := HUB_FOLDER.search(printed):
        return f"{cached[1]}/{cached[2]}"[:LONGEST_NAME]
    parts = [part for part in re.split(r"[/\\]+", printed) if part]
    is_path = printed[0] in "/\\.~$" or ":" in printed or "\\" in printed or len(parts) > 2 or printed[-1] in "/\\"
    name = parts[-1] if is_path and parts else printed
    if not re.fullmatch(r"[\w.+/-]+(?:[ \w.+/-]*)", name) or not re.search(r"\w", name):
        return None
    return name[:LONGEST_NAME]


def number_type(printed: str | None) -> str | None:
    """A tensor's type without its library: "bfloat16" of "torch.bfloat16"; None for "auto" and for nothing."""
    if printed is None:
        return None
    name = printed.strip("'\"").removeprefix("torch.").lower()
    return SHORT_TYPES.get(name, name) if re.fullmatch(r"[a-z][\w.-]{1,30}", name) and name not in (
        "auto", "none") else None  # fmt: skip


def setting(text: str, key: str) -> str | None:
    """The value of a key, as printed and without quotes; None where it is absent or None."""
    found = re.search(SETTING.format(key=re.escape(key)), text)
    value = None if found is None else found[1].strip("'\"")
    return None if value in (None, "", "None") else value


def plain(value: str) -> str | int | bool:
    """A setting's value as a flag or a number where it is one."""
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    if re.fullmatch(r"\d{1,12}", value, re.ASCII):
        return int(value)
    return value


@dataclass(slots=True)
class Gathered:
    """A run that is being read. said : Run's plain fields; buffers by device, content and a word of the reader's."""

    engine: str
    line: int = 0
    said: dict[str, Said[Any]] = field(default_factory=dict)
    processors: dict[str, Processor] = field(default_factory=dict)
    buffers: dict[tuple[str, str, str], Buffer] = field(default_factory=dict)
    timings: list[Timing] = field(default_factory=list)
    settings: dict[str, tuple[str | int | bool, int]] = field(default_factory=dict)
    facts: list[tuple[str, str | int | float | bool, int]] = field(default_factory=list)
    unknown: dict[str, None] = field(default_factory=dict)
    odd: dict[str, None] = field(default_factory=dict)
    assumed: dict[str, None] = field(default_factory=dict)

    def say(self, name: str, value: Any, line: int) -> None:
        """Take a value of Run's field `name`; the first that is said stays, another one later is told as odd."""
        if value is None:
            return
        first = self.said.setdefault(name, Said(value, line))
        self.line = self.line or line
        if first.value != value:
            self.odd[f"line {line} says {name} {value}, line {first.line} {first.value}: the first is taken."] = None

    def value(self, name: str) -> Any:
        """What is said of Run's field `name`, or None."""
        return self.said[name].value if name in self.said else None

    def put(self, buffer: Buffer, kind: str = "") -> None:
        """Take a buffer; of the same device, content and kind the first stays (logs repeat themselves, rounded)."""
        self.buffers.setdefault((buffer.device, buffer.holds, kind), buffer)
        self.line = self.line or buffer.line

    def set(self, key: str, value: str | int | bool | None, line: int) -> None:
        """Take a setting by the engine's own key; the first stays."""
        if value is not None:
            self.settings.setdefault(key, (value, line))
            self.line = self.line or line

    def fact(self, what: str, value: str | float | bool | None, line: int) -> None:
        """Take a plain saying."""
        if value is not None:
            self.facts.append((what, value, line))
            self.line = self.line or line

    def time(self, timing: Timing | None) -> None:
        """Take a measured time."""
        if timing is not None:
            self.timings.append(timing)
            self.line = self.line or timing.line

    @property
    def says_something(self) -> bool:
        """Whether anything was read that a Run can hold."""
        return bool(self.said or self.buffers or self.timings or self.facts or self.settings or self.processors)

    def run(self) -> Run:
        """The run, as far as it was read."""
        said: dict[str, Any] = dict(self.said)
        return Run(
            self.engine, self.line, processors=tuple(self.processors.values()), buffers=tuple(self.buffers.values()),
            timings=tuple(self.timings), settings=tuple((key, *value) for key, value in self.settings.items()),
            facts=tuple(self.facts), unknown=tuple(self.unknown), odd=tuple(self.odd), assumed=tuple(self.assumed),
            **said,
        )  # fmt: skip


FLAG = re.compile(r"(?<!\S)--([A-Za-z][\w-]{1,60})(?:[= ]\s*(?!--)(\"[^\"]*\"|'[^']*'|\d+(?: +\d+){5}|[^\s\\]+))?")


def flags(command: str) -> dict[str, str]:
    """The options of a command line, by their names with underscores; one without a value is "True"."""
    return {name.replace("-", "_"): value.strip("'\"") or "True" for name, value in FLAG.findall(command)}


class Commands:
    """Puts together the command lines of a log, which go on after a backslash at the end of a line."""

    def __init__(self, program: str) -> None:
        self.program = re.compile(program)
        self.parts: list[str] = []
        self.line = 0

    def take(self, text: str, line: int) -> tuple[dict[str, str], int] | None:
        """The options and the first line of a command that ends in this line; None where none does."""
        if not self.parts:
            if not self.program.search(text) or "--" not in text and not text.rstrip().endswith("\\"):
                return None
            self.line = line
        self.parts.append(text.rstrip().removesuffix("\\"))
        if text.rstrip().endswith("\\") and len(self.parts) < 100:
            return None
        found, self.parts = flags(" ".join(self.parts)), []
        return found, self.line
