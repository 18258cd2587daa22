"""Values of a server that are changed without editing its file: `pcie0.rate=30 GB/s`, `dram0.capacity=192 GiB`.

They change the parts of a built topology, which is then built anew, so that all its checks run. A rate keeps the share
of it that is sustained: to what a part does in practice a faster part stands as the present one.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from offload import units
from offload.documents.settings import PLAN_KEYS, Setting, refuse_twice
from offload.documents.shapes import in_place_of_a_range
from offload.documents.topology_shape import Format
from offload.errors import DocumentError, Mistake, OffloadError, TopologyError, UnitError, did_you_mean
from offload.ranges import expand
from offload.topology import Interval, Limit, Link, Memory, Processor, Rate, Switch, Topology
from offload.topology.resources import UNLESS_SET, directions
from offload.topology.shares import DRIVES
from offload.tracing import NotFollowed, plain

Part = Memory | Processor | Switch | Link | Limit
SLACK = 1 + 1e-9  # figures are written with a few digits
OVER_LINKS = ("pinned", "pageable", "zero_copy")  # the kinds of access that tasks ask of links and limits by name
AT_MEMORY = ("read", "write")  # and of memories and of what processors read and write
FORMATS = typing.get_args(Format)
GROUPS = ("memories", "processors", "switches", "links", "limits")


def change_topology(topology: Topology, settings: Sequence[Setting]) -> Topology:
    """The server with other values, and a note on each among its assumptions. Raises DocumentError with every mistake.

    Peak rates are set before sustained ones, and what is said of several parts before what is said of one, so that
    their order does not matter.
    """
    if not settings:
        return topology
    refuse_twice(settings)
    server = _Server(topology)
    found: list[Mistake] = []
    for one in sorted(settings, key=_order):
        try:
            server.change(one)
        except OffloadError as error:
            found.append(Mistake(0, 0, "", str(error), one.origin))
    if not found:
        try:
            return server.built()
        except TopologyError as error:
            found = [Mistake(0, 0, "", line.strip(), server.origin_of(line)) for line in str(error).splitlines()[1:]]
    raise DocumentError(topology.name or topology.title or "topology", found)


def _order(one: Setting) -> tuple[bool, int, int]:
    """Where a setting comes: `pcie0.rate` before `pcie0.hbm0.rate`, `pcie0..3.rate` before `pcie2.rate`."""
    try:
        several = len(expand(".".join(one.path)))
    except ValueError:
        several = 0
    return "sustained" in one.path, len(one.path), -several


class _Numbered(str):
    """A text with the number that is gone on with in place of the equal one that it is read as.

    taken : whether it was; what reads the text in another way leaves the number behind.
    """

    number: Any
    taken: bool

    def __new__(cls, text: str, number: Any) -> _Numbered:
        made = super().__new__(cls, text)
        made.number, made.taken = number, False
        return made


class _Server:
    """The parts of a topology while they change."""

    def __init__(self, topology: Topology):
        self.topology = topology
        self.parts: dict[str, Part] = {}
        for group in GROUPS:
            self.parts |= getattr(topology, group)
        self.notes: list[str] = []
        self.origins: dict[str, str] = {}  # by part, the last setting of it
        self.beside: list[tuple[str, str]] = []  # a setting, and what does not follow it

    def built(self) -> Topology:
        """Raises TopologyError with every contradiction."""
        old = self.topology
        kept = [f"{origin}: {one} {UNLESS_SET}" for origin, one in self.beside
                if one.removesuffix(".reads") not in self.origins]  # fmt: skip
        stated = (*old.stated, *self.notes, *dict.fromkeys(kept))
        groups: dict[str, Any] = {
            group: [self._proven(self.parts[name]) for name in getattr(old, group)] for group in GROUPS
        }
        return Topology.build(
            name=old.name, title=old.title, source=old.source, assumptions=stated,
            price=old.price, power=old.power, **groups,
        )

    def _proven(self, part: Part) -> Part:
        """A link that is as it was, with what its drive did through it: a faster drive takes nothing of that away."""
        if not isinstance(part, Link) or part is not self.topology.links[part.name]:
            return part
        rows = [self.topology.resources.get(name) for name, _, _ in directions(part)]
        rates = [replace(rate, proven=row.sustained[""]) if row is not None and row.follows else rate
                 for row, rate in zip(rows, (part.forward, part.backward), strict=True)]  # fmt: skip
        return replace(part, forward=rates[0], backward=rates[1])

    def origin_of(self, line: str) -> str:
        """The setting of the part that a contradiction is about."""
        own = [name for name in self.origins if line.strip().startswith(f"{name}:")]
        return self.origins[max(own, key=len)] if own else ", ".join(dict.fromkeys(self.origins.values()))

    def change(self, setting: Setting) -> None:
        """Set one value, of each part of a range. Raises OffloadError."""
        before: list[str] = []
        try:
            paths = expand(".".join(setting.path))
        except ValueError as error:
            raise OffloadError(str(error)) from None
        for text in paths:
            name, rest = self.find(text)
            text = setting.text if setting.number is None else _Numbered(setting.text, setting.number)
            part, old = _changed(self.parts[name], rest, text, self.topology)
            if isinstance(text, _Numbered) and not text.taken:
                raise NotFollowed(setting.number, setting.text)
            if isinstance(part, Link | Limit | Memory | Processor):
                self.parts[name] = part
            self.origins[name] = setting.origin
            before += old
        scaled = before[0].startswith(("peak ", "rated ")) and setting.text != "unknown"
        kept = "; sustained rates keep their share of it" if scaled else ""
        self.notes.append(f"{setting.origin}: instead of {' and '.join(dict.fromkeys(before))}{kept}")
        self.beside += [(setting.origin, one) for text in paths for one in self.not_following(*self.find(text))]

    def not_following(self, name: str, path: tuple[str, ...]) -> list[str]:
        """What is easily taken to change with a memory: its drive's link, its processors' own reads."""
        part = self.parts[name]
        if not isinstance(part, Memory) or path[:1] not in (("rate",), ("count",)):
            return []
        if part.kind in DRIVES:
            own = [one.name for one in self.topology.links_at(name)]
        else:
            own = [f"{one.name}.reads" for one in self.topology.processors.values() if one.memory == name and one.reads]
        return own

    def find(self, text: str) -> tuple[str, tuple[str, ...]]:
        """The part that a path starts with, and the rest of the path."""
        names = [name for name in self.parts if text == name or text.startswith(f"{name}.")]
        if not names:
            first = text.split(".")[0]
            near = [name for name in self.parts if name.startswith(f"{first}.")]  # nvlink.0, nvlink.1, ...
            allowed, what = (near, "Parts") if near else ([*PLAN_KEYS, *self.parts], "Keys of a plan and parts")
            hint = did_you_mean(first, allowed, what)
            raise OffloadError(f'no key of a plan and no part of {self.topology.name} is called "{first}". {hint}')
        name = max(names, key=len)
        rest = text[len(name) + 1 :]
        return name, tuple(rest.split(".")) if rest else ()


def _changed(part: Part, path: tuple[str, ...], text: str, topology: Topology) -> tuple[Part, list[str]]:
    """A part with one other value, and in words what it had."""
    key, rest = (path[0], path[1:]) if path else ("", ())
    if isinstance(part, Switch):
        raise OffloadError(f"{part.name} is a switch, which has no figures. Set a link's rate, or a limit's.")
    if isinstance(part, Memory):
        return _memory(part, key, rest, text, topology)
    if isinstance(part, Processor):
        return _processor(part, key, rest, text)
    if isinstance(part, Limit) and key == "rate":
        rate, old = _rate(part.rate, rest, text, "peak", f"{part.name}.rate")
        return replace(part, rate=rate), [old]
    if isinstance(part, Link):
        return _link(part, key, rest, text)
    raise _no_key(part, key, ("rate", "rate.sustained"))


def _memory(part: Memory, key: str, rest: tuple[str, ...], text: str, topology: Topology) -> tuple[Memory, list[str]]:
    if key in ("capacity", "cache", "count") and not rest:
        if key == "count":
            value: Any = _count(text)
        else:
            value = None if key == "capacity" and text == "unknown" else _one_figure(key, units.parse_bytes, text)
        old = getattr(part, key)
        shown = "unknown" if old is None else str(old) if key == "count" else units.format_bytes_both(old)
        return replace(part, **{key: value}), [shown]
    if key in ("rate", "read", "write"):
        apart = key == "rate" and part.rate is None and (part.read or part.write)
        keys = ("read", "write") if apart else (key,)  # a drive's reads and writes
        grade = "rated" if part.kind in DRIVES else "peak"
        name = f"{part.name}.{key}" if key == "rate" else f"{part.name}.{key}.rate"
        rest = rest[1:] if key != "rate" and rest[:1] == ("rate",) else rest
        found = {one: _rate(getattr(part, one), rest, text, grade, name, asked=AT_MEMORY) for one in keys}
        rates: dict[str, Any] = {one: rate for one, (rate, _) in found.items()}
        return replace(part, **rates), [old for _, old in found.values()]
    also = ""
    if key in ("flops", "reads", "writes"):
        also = f" {part.name} is a memory; processors that work in it: {', '.join(topology.processors_of(part.name))}."
    if key == "channels":
        also = f" Channels are told in the rate: {part.name}.rate=6000 MT/s x 4 is four of 8 bytes."
    raise _no_key(part, key, ("rate", "rate.sustained", "read.rate", "write.rate", "capacity", "cache", "count"), also)


def _processor(part: Processor, key: str, rest: tuple[str, ...], text: str) -> tuple[Processor, list[str]]:
    if key in ("reads", "writes"):
        rest = rest[1:] if rest[:1] == ("rate",) else rest
        name = f"{part.name}.{key}.rate"
        rate, old = _rate(getattr(part, key), rest, text, "sustained", name, asked=AT_MEMORY)
        change: dict[str, Any] = {key: rate}
        return replace(part, **change), [old]
    own = list(part.flops)
    if key == "flops" and rest[:1] and rest[0] in FORMATS:
        form, rest = rest[0], rest[1:]
        rest = rest[1:] if rest[:1] == ("rate",) else rest
        rate, old = _rate(part.flops.get(form), rest, text, "rated", f"{part.name}.flops.{form}.rate", flops=True)
        return replace(part, flops={**part.flops, form: rate}), [old]
    if key == "flops":
        given = rest[0] if rest and rest[0] not in ("rate", "sustained") else ""
        wrong = f'"{given}" is no number format.' if given else "each number format has a rate of its own: which one?"
        allowed = [f"{part.name}.flops.{form}.rate" for form in own or FORMATS]
        raise OffloadError(f"{wrong} {did_you_mean(f'{part.name}.flops.{given}.rate', allowed, 'Write')}")
    also = f" The rate of its memory is {part.memory}.rate." if key in ("rate", "capacity", "cache") else ""
    known = [f"flops.{form}.rate" for form in own] or ["flops.bf16.rate"]
    raise _no_key(part, key, (*known, "reads.rate", "writes.rate"), also)


def _link(part: Link, key: str, rest: tuple[str, ...], text: str) -> tuple[Link, list[str]]:
    if key == "latency" and not rest:
        several = text.startswith("[") or "," in text
        given = [one.strip() for one in text.removeprefix("[").removesuffix("]").split(",")] if several else [text]
        times = [_one_figure("latency", units.parse_seconds, one) for one in given]
        if len(times) > 2:
            raise OffloadError(f'"{text}" is one typical time, or [least, typical]: [1 us, 6 us].')
        old = "[{}, {}]".format(*map(units.format_seconds, part.latency))
        return replace(part, latency=(0.0, times[0]) if len(times) == 1 else tuple(times)), [old]
    if key == "rate":
        forward, there = _rate(part.forward, rest, text, "peak", f"{part.name}.rate")
        backward, back = _rate(part.backward, rest, text, "peak", f"{part.name}.rate")
        return replace(part, forward=forward, backward=backward), [there, back]
    if key in (part.a, part.b) and rest[:1] == ("rate",):
        if part.half_duplex:
            raise OffloadError(f"{part.name} is half duplex: its directions share one rate. Set {part.name}.rate.")
        side = "forward" if key == part.b else "backward"
        rate, old = _rate(getattr(part, side), rest[1:], text, "peak", f"{part.name}.{key}.rate")
        change: dict[str, Any] = {side: rate}
        return replace(part, **change, assumed_symmetric=False), [old]
    also = " The rate of a link is that of all its links side by side." if key == "count" else ""
    ends = (f"{part.b}.rate", f"{part.a}.rate")
    raise _no_key(part, key, ("rate", "rate.sustained", *ends, "latency"), also)


def _no_key(part: Part, key: str, known: Sequence[str], also: str = "") -> OffloadError:
    """Raised for what a part does not have."""
    kind = type(part).__name__.lower()
    wrong = f'a {kind} has no "{key}" that can be set.' if key else f"what of this {kind}?"
    paths = [f"{part.name}.{one}" for one in known]
    asked = "" if also else f"{part.name}.{key}"  # where the right way is told, a name that is spelled alike misleads
    return OffloadError(f"{wrong}{also} {did_you_mean(asked, paths, 'Write')}")


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 7) or int(text) < 1:
        raise OffloadError(f'"{text}" is not a whole number from 1 to 999999.')
    return int(text)


def _one_figure(key: str, parse: Callable[[str], Any], text: str) -> Any:
    """A text read as the one figure that a key takes; of a range the error says what to write instead."""
    try:
        return _gone_on_with(text, parse(text))
    except UnitError as error:
        raise UnitError(in_place_of_a_range(key, str(error))) from None


def _gone_on_with(text: str, figure: Any) -> Any:
    """The figure of a text, or the number that stands for it."""
    if not isinstance(text, _Numbered):
        return figure
    if plain(text.number) != figure:
        raise NotFollowed(text.number, figure)
    text.taken = True
    return text.number


# Rates.


def _rate(
    rate: Rate | None,
    path: tuple[str, ...],
    text: str,
    grade: str,
    name: str,
    *,
    asked: tuple[str, ...] = OVER_LINKS,
    flops: bool = False,
) -> tuple[Rate, str]:
    """A rate with another figure, and in words what it had.

    path : below the rate: nothing, "sustained" or "sustained", ACCESS. grade : of the figure where there was none.
    asked : the kinds of access that it may have.
    """
    show = units.format_flops if flops else units.format_rate
    if path and (path[0] != "sustained" or len(path) > 2):
        one = "" if flops else f", or of one kind of access {name}.sustained.{asked[0]}"
        raise OffloadError(f'a rate has no "{".".join(path)}". Write {name}, {name}.sustained{one}.')
    rate = Rate() if rate is None else rate
    if path:
        return _with_sustained(rate, path[1] if len(path) > 1 else "", text, name, () if flops else asked)
    if text == "unknown":
        return Rate(source=rate.source, unknown=True), _told(rate, show)
    figure = _one_figure("peak" if grade == "peak" else "rated", units.parse_flops if flops else units.parse_rate, text)
    if not figure > 0:
        raise OffloadError(f'"{text}" is not above zero. A rate that is not known is written "unknown".')
    return _with_figure(rate, figure, grade), _told(rate, show)


def _with_figure(rate: Rate, figure: float, grade: str) -> Rate:
    """The rate with its leading figure replaced, the others in proportion; `grade` where it has none."""
    leading = _leading(rate)
    if leading is None:
        if grade == "sustained":
            return Rate(sustained={"": Interval.exact(figure)}, source=rate.source)
        given: dict[str, Any] = {grade: figure}
        return Rate(**given, source=rate.source)
    factor = figure / leading[1]
    rated = figure if leading[0] == "rated" else None if rate.rated is None else rate.rated * factor
    sustained = {access: interval.scaled(factor) for access, interval in rate.sustained.items()}
    return replace(rate, peak=None if rate.peak is None else figure, rated=rated, sustained=sustained)


def _leading(rate: Rate) -> tuple[str, float] | None:
    """The figure that stands for a rate, with its grade: the peak, else the rated one, else a sustained one."""
    if rate.peak is not None:
        return "peak", rate.peak
    if rate.rated is not None:
        return "rated", rate.rated
    if not rate.sustained:
        return None
    usual = rate.sustained.get("", rate.sustained.get("pinned"))
    usual = usual or max(rate.sustained.values(), key=lambda interval: interval.value)
    return "sustained", usual.value


def _with_sustained(
    rate: Rate, access: str, text: str, name: str, asked: tuple[str, ...]
) -> tuple[Rate, str]:
    """The rate with another sustained figure: of one kind of access, or with "" in place of all.

    asked : the kinds of access that it may have; none for arithmetic.
    """
    flops, show = not asked, units.format_rate if asked else units.format_flops
    if access and access not in asked:
        hint = did_you_mean(access, asked, "Kinds of access here") if asked else f"Write {name}.sustained."
        raise OffloadError(f'no task asks here for a kind of access "{access}". {hint}')
    base = rate.peak if rate.peak is not None else rate.rated
    if "%" in text:
        if base is None:
            raise OffloadError(f'"{text}" of what? {name} has no peak or rated figure. Give the rate itself.')
        interval = _interval(text, units.parse_share_interval).scaled(base)
    else:
        interval = _interval(text, units.parse_flops_interval if flops else units.parse_rate_interval)
    if not interval.low > 0:
        raise OffloadError(f'"{text}" is not above zero.')
    if rate.peak is not None and interval.high > rate.peak * SLACK:
        peak = units.format_apart(rate.peak, interval.high, show)
        raise OffloadError(f'"{text}" is above the peak, {peak}, which nothing exceeds. Set {name} as well where it is '
                           "another part.")  # fmt: skip
    before = rate.sustained.get(access)
    if access:
        old = "none of its own" if before is None else _ends(before, show)
        return replace(rate, sustained={**rate.sustained, access: interval}, unknown=False), old
    told = [f"{of} {_ends(one, show)}".strip() for of, one in rate.sustained.items()]
    return replace(rate, sustained={"": interval}, unknown=False), ", ".join(told) or "an assumed share"


def _interval(text: str, parse: Callable[[str], Sequence[float]]) -> Interval:
    low, value, high = parse(text)
    if isinstance(text, _Numbered) and low == high:
        return Interval.exact(_gone_on_with(text, value))
    return Interval(low, value, high)


def _ends(interval: Interval, show: Callable[..., str]) -> str:
    if interval.low == interval.high:
        return show(interval.value, 4)
    return f"{show(interval.low, 4)}..{show(interval.high, 4)}"


def _told(rate: Rate, show: Callable[..., str]) -> str:
    leading = _leading(rate)
    if leading is None:
        return "unknown" if rate.unknown else "none"
    return f"{leading[0]} {show(leading[1], 4)}"
