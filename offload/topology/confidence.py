"""How sure the figures of a server are, by the words that their sources hold.

A source says in brackets where a figure is from: (found: ...) in a public document, (derived) by arithmetic, (memory)
from memory and unverified, (announced) of what is not for sale yet, (what if) of what nobody announced. One source may
tell several figures, each behind its label: "peak: ... (derived); sustained: ... (found: ...)".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from offload.topology.parts import Cost, Rate
from offload.topology.resources import directions

if TYPE_CHECKING:
    from offload.topology.server import Topology

WHAT_IF = ("what if", "announced")  # of what cannot be bought
WORDS = (*WHAT_IF, "memory", "derived", "found")  # the weakest first
UNTOLD, ASSUMED = "untold", "assumed"
SAYS = {
    "announced": "announced: rests on a figure of what is not for sale yet",
    "what if": "what if: rests on a figure of what is neither for sale nor announced",
}
_BRACKETS = re.compile(r"\(([^()]*)\)")
_WORD = re.compile(rf"\b({'|'.join(WORDS)})\b")
_LAST = re.compile(r"\(([^()]*)\)[\s.]*$")
_LABELS = {"peak", "rated", "sustained", "read", "reads", "write", "writes", "copy", "mixed", "pinned", "pageable",
           "zero copy", "gemv", "capacity", "cache", "latency", "low", "high", "price", "power", "fp64", "fp32", "tf32",
           "bf16", "fp16", "fp8", "fp6", "fp4", "int8", "int4"}  # fmt: skip
_JOINED = re.compile(r",? and |, ?|\bits ")
_LABEL = re.compile(r"(?:^|[;.] +)([a-z][a-z0-9 ,]*): ")


@dataclass(frozen=True, slots=True)
class Sure:
    """One figure that a server states. name : its part, or the row of its rate; what : "peak", "sustained read", ...

    word : one of WORDS, or UNTOLD where its source says none.
    """

    name: str
    what: str
    value: Any
    word: str


def words_of(text: str) -> list[str]:
    """The words of confidence in a text, in its order: those in brackets, before what a bracket refers to."""
    parts = [part.partition(":")[0] for inside in _BRACKETS.findall(text) for part in inside.split(";")]
    return [word for part in parts for word in _WORD.findall(part)]


def ends_in_confidence(source: str) -> bool:
    """Whether the last thing that a source says, in brackets, is how sure it is."""
    last = _LAST.search(source)
    return last is not None and bool(words_of(last[0]))


def word_for(labels: Iterable[str], *sources: str) -> str:
    """The weakest word that sources hold for a figure: behind its first label that one has, else before any label.

    labels : names of the figure, the nearest first; sources : the figure's own first, then its part's.
    """
    return _word_for(tuple(labels), sources)


@lru_cache(maxsize=4096)  # parts that differ by their number alone have the same sources, and all are asked often
def _word_for(labels: tuple[str, ...], sources: tuple[str, ...]) -> str:
    for label in labels:
        for source in sources:
            words = [word for names, text in _clauses(source) if label in names for word in words_of(text)]
            if words:
                return min(words, key=WORDS.index)
    for source in sources:
        for names, text in _clauses(source):
            words = words_of(_first_clause(text)) or words_of(text)
            if not names and words:
                return min(words, key=WORDS.index)
    return UNTOLD


def _clauses(source: str) -> Iterator[tuple[frozenset[str], str]]:
    """(labels, text) of what a source says; what follows a labelled clause without a label of its own is part of it."""
    found: list[tuple[frozenset[str], int, int]] = [(frozenset(), 0, 0)]
    for match in _LABEL.finditer(source):
        if _depth(source, match.start(1)):
            continue
        names = frozenset(name for name in _JOINED.split(match[1]) if name)
        if names and names <= _LABELS and not names <= {"low", "high"}:
            found.append((names, match.start(1), match.end()))
    ends = [start for _, start, _ in found[1:]] + [len(source)]
    for (names, _, start), end in zip(found, ends, strict=True):
        if source[start:end].strip():
            yield names, source[start:end]


def _depth(text: str, place: int) -> int:
    return text.count("(", 0, place) - text.count(")", 0, place)


def _first_clause(text: str) -> str:
    """What stands before the first semicolon that is in no brackets."""
    for match in re.finditer(";", text):
        if not _depth(text, match.start()):
            return text[: match.start()]
    return text


# The figures of a server.


def figures(topology: Topology) -> Iterator[Sure]:
    """Every figure that a server states, in the order of its parts, with how sure it is."""
    for memory in topology.memories.values():
        sizes = {"capacity": memory.capacity, "cache": memory.cache or None}
        for what, size in sizes.items():
            if size is not None:
                yield Sure(memory.name, what, size, word_for((what,), memory.source))
        for access in ("", "read", "write"):
            rate = memory.rate if not access else getattr(memory, access)
            name = f"{memory.name}.{access}" if access else memory.name
            yield from _of_rate(name, rate, memory.source)
    for processor in topology.processors.values():
        for form, rate in processor.flops.items():
            yield from _of_rate(f"{processor.name}.flops", rate, processor.source, form)
        for access in ("reads", "writes"):
            yield from _of_rate(f"{processor.name}.{access}", getattr(processor, access), processor.source)
    for link in topology.links.values():
        if link.half_duplex:
            yield from _of_rate(link.name, link.forward, link.source)
        else:
            for name, _, rate in directions(link):
                yield from _of_rate(name, rate, link.source)
        if link.latency != (0.0, 0.0):
            yield Sure(link.name, "latency", link.latency, word_for(("latency",), link.source))
    for limit in topology.limits.values():
        yield from _of_rate(limit.name, limit.rate, limit.source)
    whole: Mapping[str, Any] = {topology.name or "server": topology}
    for group in (whole, topology.memories, topology.processors, topology.switches, topology.links):
        for name, part in group.items():
            yield from (Sure(name, what, cost.figure, word_for((what,), cost.source))
                        for what, cost in costs_of(part) if not cost.included)  # fmt: skip


def costs_of(part: Any) -> list[tuple[str, Cost]]:
    """("price", its price) and ("power", its power) of a server or of a part, where it says them."""
    return [(what, cost) for what in ("price", "power") if (cost := getattr(part, what)) is not None]


def _of_rate(name: str, rate: Rate | None, source: str, form: str = "") -> Iterator[Sure]:
    if rate is None:
        return
    labels, before = ((form,), f"{form} ") if form else ((), "")
    for what, figure in (("peak", rate.peak), ("rated", rate.rated)):
        if figure is not None:
            yield Sure(name, before + what, figure, word_for((what, *labels), rate.source, source))
    for access, interval in rate.sustained.items():
        near = (access.replace("_", " "),) if access else ()
        what = f"{before}sustained {access}".rstrip()
        yield Sure(name, what, interval, word_for((*near, "sustained", *labels), rate.source, source))


def counts(topology: Topology) -> dict[str, int]:
    """How many figures are found, derived, from memory, announced, what if, untold; and assumed: a usual share.

    Parts that differ by their number alone count once where they state the same.
    """
    kept = {(_unnumbered(one.name), one.what, one.value): one.word for one in figures(topology)}
    found = dict.fromkeys((*reversed(WORDS), UNTOLD, ASSUMED), 0)
    for word in kept.values():
        found[word] += 1
    guessed = {(_unnumbered(name), access) for name, row in topology.resources.items()
               for access in row.assumed - {"mixed", "pageable"}}  # fmt: skip
    found[ASSUMED] = len(guessed)
    return found


def _unnumbered(name: str) -> str:
    return re.sub("[0-9]+", "0", name)


def what_ifs(topology: Topology) -> tuple[str, ...]:
    """Notes "NAME: ..." on every part or rate with a figure of what cannot be bought, each once; prices aside."""
    found = [one for one in figures(topology) if one.word in WHAT_IF and one.what not in ("price", "power")]
    return tuple(dict.fromkeys(f"{one.name}: {SAYS[one.word]}" for one in found))
