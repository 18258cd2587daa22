"""Parts to resources: one row for everything finite, with the rate that certifies and the rate that is sustained.

A link has a row for each direction (one in all where it is half duplex), a memory one for its port and for reads or
writes of their own, a processor one for its arithmetic and for its own rates from its memory, a limit one. What had to
be assumed on the way is told in words, each note behind the name of the row that it is about.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from offload.topology.parts import Interval, Limit, Link, Memory, Processor, Rate, Resource
from offload.topology.shares import DRIVES, SHARES, Share, flops_share, link_share, memory_share, reads_share
from offload.units import format_rate

Rows = dict[str, Resource]
Notes = dict[str, None]  # an ordered set
UNLESS_SET = "stays as it is, unless it is set too"  # the end of the note on what a setting leaves as it is
NOT_COUNTED = ": rate unknown, so it is not counted"  # the end of the note on a resource without a row


def compile_resources(
    memories: Mapping[str, Memory],
    processors: Mapping[str, Processor],
    links: Mapping[str, Link],
    limits: Mapping[str, Limit],
) -> tuple[Mapping[str, Resource], tuple[str, ...]]:
    """The resources by name, and what was assumed. Rates in [B/s] and [FLOP/s].

    Names: LINK.DESTINATION (half duplex: LINK); MEMORY, MEMORY.read, MEMORY.write; PROCESSOR.flops, PROCESSOR.reads,
    PROCESSOR.writes; LIMIT. A rate that is unknown has no row.
    """
    rows: Rows = {}
    notes: Notes = {}
    for memory in memories.values():
        _memory_rows(memory, rows, notes)
    for processor in processors.values():
        _processor_rows(processor, memories[processor.memory], rows, notes)
    only_link = _only_links(memories, links)
    for link in links.values():
        _link_rows(link, memories, only_link, rows, notes)
    for limit in limits.values():
        _limit_row(limit, links, rows, notes)
    return MappingProxyType(rows), tuple(notes)


def directions(link: Link) -> tuple[tuple[str, str, Rate], tuple[str, str, Rate]]:
    """(name of the direction, where it leads, its rate) for the two directions: forward, backward."""
    return (f"{link.name}.{link.b}", link.b, link.forward), (f"{link.name}.{link.a}", link.a, link.backward)


def directions_over(limit: Limit, links: Mapping[str, Link]) -> tuple[str, ...]:
    """The link directions that a limit caps: a bare link is both of its directions."""
    found: Notes = {}
    for text in limit.over:
        names = [name for name, _, _ in directions(links[text])] if text in links else [text]
        found |= dict.fromkeys(names)
    return tuple(found)


def _memory_rows(memory: Memory, rows: Rows, notes: Notes) -> None:
    stated = {"": memory.rate, "read": memory.read, "write": memory.write}
    if all(rate is None for rate in stated.values()):
        notes[f"{memory.name}: rate not stated, so its port is not counted"] = None
    for access, rate in stated.items():
        if rate is None:
            other = {"read": "write", "write": "read"}.get(access)
            if other and memory.rate is None and stated[other] is not None:
                notes[f"{memory.name}.{access}: rate not stated, so {access}s are not counted there"] = None
            continue
        name = f"{memory.name}.{access}" if access else memory.name
        share = memory_share(memory, access)
        mixed = SHARES["dram_mixed"] if memory.kind in ("dram", "unified") and not access else None
        count, cache = memory.count, memory.cache
        _add(rows, notes, name, "memory", rate, share, memory.source, count=count, cache=cache, mixed=mixed)


def _processor_rows(processor: Processor, memory: Memory, rows: Rows, notes: Notes) -> None:
    _flops_row(processor, rows, notes)
    for access, rate in (("reads", processor.reads), ("writes", processor.writes)):
        if rate is not None:
            share = reads_share(processor, memory)
            _add(rows, notes, f"{processor.name}.{access}", "processor", rate, share, processor.source)


def _flops_row(processor: Processor, rows: Rows, notes: Notes) -> None:
    """One row for all number formats: its peak is that of the fastest format that the engine may use."""
    name, share = f"{processor.name}.flops", flops_share(processor)
    sustained: dict[str, Interval] = {}
    assumed = set()
    known = {form: rate for form, rate in processor.flops.items() if not rate.unknown}
    for form in processor.flops:
        if form not in known:
            notes[f"{name}: {form} rate unknown, so it is not counted"] = None
    for form, rate in known.items():
        found, guessed = _sustained(rate, share)
        sustained[form] = found[""]
        if guessed:
            assumed.add(form)
            notes[_assumed(name, rate, share)] = None
    if not known:
        return
    # A format without a peak may be the fastest: then nothing certifies.
    fastest = max(known.values(), key=_largest)
    peaks = [rate.peak for rate in known.values() if rate.peak is not None]
    peak = max(peaks) if fastest.peak is not None else None
    source = next((rate.source for rate in known.values() if rate.source), processor.source)
    rows[name] = Resource(
        name, "processor", "FLOP", peak, MappingProxyType(sustained), frozenset(assumed), source=source
    )


def _link_rows(
    link: Link, memories: Mapping[str, Memory], only_link: Mapping[str, str], rows: Rows, notes: Notes
) -> None:
    ends = (link.a, link.b)
    drive = next((end for end in ends if end in memories and memories[end].kind in DRIVES), None)
    for name, destination, rate in directions(link)[: 1 if link.half_duplex else 2]:
        name = link.name if link.half_duplex else name
        if link.assumed_symmetric and not link.half_duplex:
            notes[f"{name}: one direction's rate is stated; the other is assumed equal"] = None
        share = link_share(link, destination in memories and memories[destination].kind == "hbm")
        # A drive is measured through its link, so that link sustains at least what the drive does.
        through = None
        if drive is not None and only_link.get(drive) == link.name and not link.half_duplex:
            through = rows.get(f"{drive}.{'write' if destination == drive else 'read'}", rows.get(drive))
            _contradiction(name, rate, through, notes)
        # One core copies for each device at the end of a link; what several devices share carries several such copies.
        end = any(one in memories for one in ends) and drive is None
        pageable = SHARES["pageable"] if link.technology == "pcie" and end else None
        _add(rows, notes, name, "link", rate, share, link.source, through=through, pageable=pageable)


def _only_links(memories: Mapping[str, Memory], links: Mapping[str, Link]) -> dict[str, str]:
    """Memory -> its link, for memories that hang on a single one."""
    found: dict[str, list[str]] = {}
    for link in links.values():
        for end in (link.a, link.b):
            found.setdefault(end, []).append(link.name)
    alone = {end: names[0] for end, names in found.items() if len(names) == 1}
    return {end: name for end, name in alone.items() if end in memories and memories[end].at is None}


def _contradiction(name: str, rate: Rate, drive: Resource | None, notes: Notes) -> None:
    """Both measured, and the drive faster than the link that it was measured through: one of the two is wrong."""
    if drive is None or drive.assumed or not rate.sustained:
        return
    ours, theirs = _sustained(rate, SHARES["pcie"])[0][""], drive.sustained[""]
    if theirs.low > ours.high * (1 + 1e-9):
        notes[
            f"{name}: contradiction: sustains {format_rate(ours.value)}, "
            f"yet {drive.name} is given as {format_rate(theirs.value)} through it"
        ] = None


def _limit_row(limit: Limit, links: Mapping[str, Link], rows: Rows, notes: Notes) -> None:
    covered = set(directions_over(limit, links))
    crossed = [link for link in links.values() if {name for name, _, _ in directions(link)} & covered]
    both = any({name for name, _, _ in directions(link)} <= covered for link in crossed)
    shares = {link_share(link, True) for link in crossed}
    share = SHARES["both"] if both else shares.pop() if len(shares) == 1 else SHARES["pcie"]
    _add(rows, notes, limit.name, "limit", limit.rate, share, limit.source)


def _add(
    rows: Rows,
    notes: Notes,
    name: str,
    kind: str,
    rate: Rate,
    share: Share,
    source: str,
    *,
    count: int = 1,
    cache: int = 0,
    mixed: Share | None = None,
    pageable: Share | None = None,
    through: Resource | None = None,
) -> None:
    """Add the row of a rate in bytes, with what is assumed where it states no sustained figure."""
    if rate.unknown:
        notes[f"{name}{NOT_COUNTED}"] = None
        return
    peak = None if rate.peak is None else rate.peak * count
    sustained, assumed = _sustained(rate, share, count)
    follows, alone = "", None
    if "" in assumed:
        behind, drive = ("", None) if through is None else (through.name, through.sustained[""])
        # A drive faster than the link was measured through another one.
        if drive is not None and peak is not None and sustained[""].value < drive.value <= peak:
            follows, alone = behind, sustained[""]
            sustained[""] = at_least(alone, drive, peak)
            notes[f"{name}: assumed to sustain what {behind} does through it"] = None
        elif rate.proven is not None and drive is not None and peak is not None and drive.value > peak:
            sustained[""] = at_least(sustained[""], rate.proven, peak)
            notes[f"{name}: assumed to sustain what {behind} did through it before; now it is faster than the "
                  "link"] = None  # fmt: skip
        else:
            notes[_assumed(name, rate, share)] = None
        if mixed is not None and peak is not None and rate.rated is None:
            sustained.setdefault("mixed", _part(peak, mixed, peak))
            assumed.add("mixed")
    if pageable is not None and peak is not None and "pageable" not in sustained:
        sustained["pageable"] = _at_most(_part(peak, pageable, peak), sustained[""])
        assumed.add("pageable")
    rows[name] = Resource(
        name, kind, "B", peak, MappingProxyType(sustained), frozenset(assumed), cache * count, rate.source or source,
        follows, alone,
    )


def _sustained(rate: Rate, share: Share, count: int = 1) -> tuple[dict[str, Interval], set[str]]:
    """Sustained rates by kind of access, with one for any ("") in every case; and the accesses that are assumed."""
    found = {access: interval.scaled(count) for access, interval in rate.sustained.items()}
    if "" in found:
        return found, set()
    if "pinned" in found:
        return found | {"": found["pinned"]}, set()
    base = rate.peak if rate.rated is None else rate.rated
    if base is None:
        return found | {"": min(found.values(), key=lambda interval: interval.value)}, {""}
    return found | {"": _part(base * count, share, None if rate.peak is None else rate.peak * count)}, {""}


def _part(base: float, share: Share, peak: float | None) -> Interval:
    ends = [base * part for part in (share.low, share.value, share.high)]
    return Interval(*(ends if peak is None else (min(end, peak) for end in ends)))


def at_least(one: Interval, other: Interval, peak: float) -> Interval:
    """A rate that is no less than another, and no more than a peak; both at the same end."""
    ends = (max(one.low, other.low), max(one.value, other.value), max(one.high, other.high))
    return Interval(*(min(end, peak) for end in ends))


def _at_most(one: Interval, other: Interval) -> Interval:
    return Interval(min(one.low, other.low), min(one.value, other.value), min(one.high, other.high))


def _assumed(name: str, rate: Rate, share: Share) -> str:
    if rate.rated is None and rate.peak is None:
        return f"{name}: sustained rate for any access assumed to be the least of those given"
    of = "peak" if rate.rated is None else "the rated figure"
    return f"{name}: sustained rate assumed at {share.describe(of)}"


def _largest(rate: Rate) -> float:
    figures = [figure for figure in (rate.peak, rate.rated) if figure is not None]
    return max([*figures, *(interval.high for interval in rate.sustained.values())])


def widest(rate: Rate) -> float:
    """How wide a way is, to choose among equally long ones [B/s]: peak, else rated, else sustained; 0 where unknown."""
    if rate.unknown:
        return 0.0
    figure = rate.peak if rate.peak is not None else rate.rated
    return _largest(rate) if figure is None else figure
