"""What contradicts itself in the parts of a server, all of it at once, each with the fix."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from offload.errors import did_you_mean
from offload.topology.parts import Interval, Limit, Link, Memory, Processor, Rate, Switch
from offload.topology.resources import directions
from offload.units import format_apart, format_bytes_both, format_flops, format_rate, format_seconds

MEMORY_KINDS = ("hbm", "dram", "nvme", "disk", "cxl", "unified")
PROCESSOR_KINDS = ("gpu", "cpu")
SLACK = 1 + 1e-9  # figures that round apart are no contradiction
LONGEST_LATENCY = 1.0  # s; a slow drive behind its link has milliseconds

Format = Callable[..., str]


def mistakes(
    memories: Sequence[Memory],
    processors: Sequence[Processor],
    switches: Sequence[Switch],
    links: Sequence[Link],
    limits: Sequence[Limit],
) -> list[str]:
    """Every contradiction, one line each; each line starts with the name of its part."""
    by_memory = {memory.name: memory for memory in memories}
    by_switch = {switch.name: switch for switch in switches}
    by_processor = {processor.name: processor for processor in processors}
    found = list(_names([*memories, *processors, *switches, *links, *limits]))
    if not memories:
        found.append("the topology has no memory: give at least one.")
    for memory in memories:
        found += _memory(memory, by_switch, by_memory)
    for processor in processors:
        found += _processor(processor, by_memory)
    found += [f"{switch.name}: only an nvswitch reduces, and its kind is {switch.kind}. Drop `reduces`."
              for switch in switches if switch.reduces and switch.kind != "nvswitch"]  # fmt: skip
    for link in links:
        found += _link(link, by_memory, by_switch, by_processor)
    for limit in limits:
        found += _limit(limit, links)
    return found


def _names(parts: list[Memory | Processor | Switch | Link | Limit]) -> Iterator[str]:
    """A name means one part: resources are named after parts, and routes tell nodes and links in one line."""
    seen: dict[str, str] = {}
    for part in parts:
        kind = type(part).__name__.lower()
        if not part.name or part.name != part.name.strip():
            yield f'"{part.name}": a {kind} needs a name that neither is empty nor starts or ends with a space.'
        elif part.name in seen:
            yield (
                f"{part.name}: a {kind} and a {seen[part.name]} share this name. Rename one of them."
                if (seen[part.name] != kind)
                else f"{part.name}: two {_plural(kind)} have this name. Rename one of them."
            )
        seen.setdefault(part.name, kind)


def _plural(kind: str) -> str:
    return {"memory": "memories", "switch": "switches"}.get(kind, f"{kind}s")


def _memory(memory: Memory, switches: Mapping[str, Switch], memories: Mapping[str, Memory]) -> Iterator[str]:
    name = memory.name
    if memory.kind not in MEMORY_KINDS:
        yield f'{name}: no kind of memory "{memory.kind}". {did_you_mean(memory.kind, MEMORY_KINDS, "Kinds")}'
    if memory.capacity is not None and memory.capacity <= 0:
        yield f"{name}: capacity is {memory.capacity} bytes. It is above zero, or left out where it is not known."
    if memory.cache < 0:
        yield f"{name}: cache is {memory.cache} bytes. It is zero or more."
    elif memory.capacity is not None and 0 < memory.capacity < memory.cache:
        yield (
            f"{name}: cache {format_bytes_both(memory.cache)} is more than the memory holds, "
            f"{format_bytes_both(memory.capacity)}. It is what lies in front of the memory."
        )
    if memory.count < 1:
        yield f"{name}: count is {memory.count}. It is at least 1."
    if memory.at is not None and memory.at not in switches:
        what = "is a memory, and a memory attaches at a switch" if memory.at in memories else "is no switch"
        yield f'{name}: at "{memory.at}": it {what}. {did_you_mean(memory.at, switches, "Switches")}'
    for key in ("rate", "read", "write"):
        yield from _rate(getattr(memory, key), f"{name}: {key}", format_rate)


def _processor(processor: Processor, memories: Mapping[str, Memory]) -> Iterator[str]:
    name = processor.name
    if processor.kind not in PROCESSOR_KINDS:
        hint = did_you_mean(processor.kind, PROCESSOR_KINDS, "Kinds")
        yield f'{name}: no kind of processor "{processor.kind}". {hint}'
    if processor.memory not in memories:
        yield f'{name}: no memory "{processor.memory}". {did_you_mean(processor.memory, memories, "Memories")}'
    for key, rate in processor.flops.items():
        yield from _rate(rate, f"{name}: flops {key}", format_flops)
    for key in ("reads", "writes"):
        yield from _rate(getattr(processor, key), f"{name}: {key}", format_rate)


def _link(
    link: Link,
    memories: Mapping[str, Memory],
    switches: Mapping[str, Switch],
    processors: Mapping[str, Processor],
) -> Iterator[str]:
    name = link.name
    for end in dict.fromkeys((link.a, link.b)):
        if end in processors:
            yield (
                f"{name}: {end} is a processor, and links end at memories or switches. "
                f'Name the memory it is attached to, "{processors[end].memory}".'
            )
        elif end not in memories and end not in switches:
            yield f'{name}: no node "{end}". {did_you_mean(end, [*memories, *switches], "Memories and switches")}'
    if link.a == link.b:
        yield f"{name}: both ends are {link.a}. A link is between two different nodes."
    yield from _rate(link.forward, f"{name}: rate to {link.b}", format_rate)
    if link.backward != link.forward:
        yield from _rate(link.backward, f"{name}: rate to {link.a}", format_rate)
        if link.half_duplex:
            yield f"{name}: half duplex is one rate that both directions share, but two are given. Give one."
    least, typical = link.latency
    if not (0 <= least <= typical < math.inf):
        yield f"{name}: latency is [{least}, {typical}] s. It is [least, typical] with 0 <= least <= typical."
    elif typical > LONGEST_LATENCY:
        yield f"{name}: latency {format_seconds(typical)} is longer than any link's, 1 s. Check the unit."


def _limit(limit: Limit, links: Sequence[Link]) -> Iterator[str]:
    if not limit.over:
        yield f"{limit.name}: it is over nothing. Name links or directions: over: [pcie0, pcie1.hbm1]."
    names = {link.name: [way for way, _, _ in directions(link)] for link in links}
    allowed = [*names, *(way for ways in names.values() for way in ways)]
    known = set(allowed)
    for text in limit.over:
        if text in known:
            continue
        # The directions of the link that is meant come first, where it is known.
        near = max((name for name in names if text.startswith(f"{name}.")), key=len, default=None)
        hint = did_you_mean(text, names[near] if near else allowed, "Directions" if near else "Links and directions")
        yield f'{limit.name}: over "{text}": no such link or direction. {hint}'
    yield from _rate(limit.rate, f"{limit.name}: rate", format_rate)


def _rate(rate: Rate | None, where: str, shown: Format) -> Iterator[str]:
    if rate is None:
        return
    figures = {key: figure for key, figure in (("peak", rate.peak), ("rated", rate.rated)) if figure is not None}
    if rate.unknown:
        if figures or rate.sustained:
            yield f"{where} is said to be unknown and yet has a figure. Keep one of the two."
        return
    if not figures and not rate.sustained:
        yield f'{where} has no figure. Give peak, rated or sustained, or write "unknown".'
    wrong = [f"{key} {figure}" for key, figure in figures.items() if not _is_positive(figure)]
    wrong += [
        f"sustained{f' {access}' if access else ''} {interval.low}..{interval.value}..{interval.high}"
        for access, interval in rate.sustained.items()
        if not _is_interval(interval)
    ]
    if wrong:
        yield f"{where} is {', '.join(wrong)}: a rate is finite, above zero, its low end first. Zero: drop the part."
        return
    if rate.peak is None:
        return
    if rate.rated is not None and rate.rated > rate.peak * SLACK:
        peak = format_apart(rate.peak, rate.rated, shown)
        yield f"{where}: rated {shown(rate.rated, 4)} is above the peak {peak}, which nothing can exceed."
    for access, interval in rate.sustained.items():
        if interval.high > rate.peak * SLACK:
            what = f"sustained {access}".strip()
            peak = format_apart(rate.peak, interval.high, shown)
            yield f"{where}: {what} {shown(interval.high, 4)} is above the peak {peak}. One is wrong."


def _is_positive(figure: float) -> bool:
    return 0 < figure < math.inf


def _is_interval(interval: Interval) -> bool:
    return 0 < interval.low <= interval.value <= interval.high < math.inf
