"""What a topology file says in words that its values do not keep: rates as they are written, parts that are used.

By name, ranges written out: `dram0..1: {rate: 4800 MT/s x 8}` is of dram0 and of dram1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from offload.documents.marks import as_written
from offload.ranges import expand
from offload.units import CHANNELS


@dataclass(frozen=True, slots=True)
class Written:
    """channels : (MT/s, channels) of host memories that are so written. used : the part of `use`. counts : of `count`.

    All by the name of a memory, a processor or a link. each_way : links that say forward and backward.
    """

    channels: Mapping[str, tuple[float, int]] = field(default_factory=dict)
    used: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    each_way: Collection[str] = ()

    @classmethod
    def read(cls, value: Mapping[str, Any]) -> Written:
        """What a sound topology's plain values say. value : of the whole file."""
        channels: dict[str, tuple[float, int]] = {}
        used: dict[str, str] = {}
        counts: dict[str, int] = {}
        each_way: set[str] = set()
        for section in ("memories", "processors", "links"):
            for name, entry in _entries(value, section):
                if isinstance(entry.get("use"), str):
                    used[name] = entry["use"]
                if isinstance(entry.get("count"), int):
                    counts[name] = entry["count"]
                if "forward" in entry and "backward" in entry:
                    each_way.add(name)
                rate = entry.get("rate")
                text = as_written(rate.get("peak") if isinstance(rate, dict) else rate)
                if entry.get("kind") == "dram" and (match := CHANNELS.fullmatch(text.strip())):
                    channels[name] = (float(match[1]), int(match[2]))
        return cls(channels, used, counts, each_way)


def _entries(value: Mapping[str, Any], section: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Entries of a section, each under every name that it declares; of a link with ranges at its ends, its own."""
    entries = value.get(section)
    for key, entry in (entries.items() if isinstance(entries, dict) else ()):
        if isinstance(entry, dict):
            for name in names_of(key):
                yield name, entry


def names_of(key: str) -> list[str]:
    """The names that a key declares; the key itself where it is no range."""
    try:
        return expand(key)
    except ValueError:
        return [key]
