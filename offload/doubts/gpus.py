"""Doubts about GPUs: links and memories faster than the card that is named, slices of a GPU, ports, pageable copies."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping

from offload.doubts.cards import Card, cards_of, shared_memory_word
from offload.doubts.doubt import KEPT, Doubt, unlike
from offload.doubts.written import Written
from offload.ranges import fold
from offload.topology import Link, Memory, Processor, Rate, Topology
from offload.units import format_bytes, format_rate, pcie_rate

SLACK = 1 + 1e-3  # figures are written with a few digits
SHARED_RATE = 844.8e9  # of memories that GPU and CPU share: LPDDR5X of 1024 bit has up to 820
OVERCLOCK = 1.1  # memory runs up to a tenth faster than its data sheet where a user sets it
# All NVLinks of a GPU together, one way, by the memory rate up to which cards have that: V100, A100, H100 and H200,
# B200, and what is announced after it.
PORTS = ((1.2e12, 150e9), (2.1e12, 300e9), (5.1e12, 450e9), (10e12, 900e9), (math.inf, 1.8e12))
XGMI = (448e9, 896e9)  # all links of an MI300X: one way, and its headline of both directions
BRIDGES = ("The bridge of an RTX 3090 has 56.25 GB/s one way (both_directions: 112.5 GB/s), that of an A30 100; 600 "
           "and 900 GB/s are both directions of an A100 and an H100")  # fmt: skip
# No card reads its memory more than 57 times a second at 1.3 TB/s and more (RTX 5090: 1792 GB/s, 32 GB); a slice with
# the rate of its whole card does.
SLICE_RATE, SLICE_TURNS = 1.3e12, 57.5
_MIG = re.compile(r"\bmig\b|(?<![a-z0-9])[1-6]g[.-]\d+gb(?![a-z0-9])", re.IGNORECASE)
PAGEABLE = 0.5  # of the peak: pinned copies have 0.64 and more, pageable ones 0.4 and less (published measurements)
SLIP = 0.01  # of the peak: what is below is a wrong unit, or a share with a percent sign
COPIED = 0.5  # of the peak: memories are read at 0.65 and more


def doubts_of_gpus(topology: Topology, written: Written) -> Iterator[Doubt]:
    """What of GPUs, their links and memories is probably not meant. written : what the file says in words."""
    near = dict.fromkeys(one.memory for one in topology.processors.values() if one.kind == "gpu")
    cards = cards_of(topology, written.used)
    slices = _slices(topology, near)
    for link in topology.links.values():
        yield from _card_link(link, cards)
        yield from _pageable(topology, link, near)
    for name in near:
        yield from _ports(topology, name, cards.get(name), written.each_way)
        if name in cards and name not in slices:
            yield from _card_memory(topology.memories[name], cards[name])
    yield from _mig(topology, slices)
    for memory in topology.memories.values():
        yield from _counted_once(memory)
    yield from _one_memory(topology, near)
    yield from _parallel(topology)
    for link in topology.links.values():
        yield from _both_ways(link)


def _peak(link: Link) -> float | None:
    peaks = [rate.peak for rate in (link.forward, link.backward) if rate.peak is not None]
    return max(peaks, default=None)


def _card_link(link: Link, cards: Mapping[str, Card]) -> Iterator[Doubt]:
    """A PCIe link of a newer generation than the card at its end."""
    card = next((cards[end] for end in (link.a, link.b) if end in cards), None)
    if card is None or link.technology not in ("pcie", ""):
        return
    peak = _peak(link)
    if link.generation is not None and link.generation > card.pcie:
        says = f"PCIe {link.generation} x{link.lanes}, and a {card.name} is of PCIe {card.pcie}"
        works = f"pcie: {card.pcie} x{link.lanes}"
    elif link.technology == "pcie" and link.generation is None and peak and peak > pcie_rate(card.pcie, 16) * SLACK:
        carries = format_rate(pcie_rate(card.pcie, 16), 4)
        says = f"{format_rate(peak, 4)} one way, and a {card.name} is of PCIe {card.pcie}: x16 carries {carries}"
        works = f"pcie: {card.pcie} x16"
    else:
        return
    yield Doubt(
        "above-card", ("links", link.name),
        f"{says}. A link runs at the lower generation of slot and card. Write {works}.",
        KEPT, ("pcie",) if link.generation is not None else (),
    )  # fmt: skip


def _card_memory(memory: Memory, card: Card) -> Iterator[Doubt]:
    peak = memory.rate.peak if memory.rate else None
    if peak and peak > card.memory * OVERCLOCK:
        yield Doubt(
            "above-card", ("memories", memory.name),
            f"{format_rate(peak, 4)}, and the memory of a {card.name} has {format_rate(card.memory, 4)}. Is it another "
            "card's figure, one of reads and writes added up, or of a cache?",
            KEPT, ("rate",),
        )  # fmt: skip


def _ports(topology: Topology, name: str, card: Card | None, each_way: Collection[str]) -> Iterator[Doubt]:
    """NVLinks of a GPU that are faster together than all of its ports. each_way : links that say both directions."""
    links = [link for link in topology.links_at(name) if _peak(link)]
    nvlinks = [link for link in links if link.technology == "nvlink"]
    total = sum(_peak(link) or 0.0 for link in nvlinks)
    if card is not None and nvlinks:
        if total > card.nvlink * SLACK:
            sums = f"the {len(nvlinks)} NVLinks of a GPU have" if len(nvlinks) > 1 else "it has"
            has = f"has {format_rate(card.nvlink, 4)}" if card.nvlink else "has no NVLink"
            works = f"Write both_directions: {format_rate(2 * card.nvlink, 4)}" if card.nvlink else "Remove it"
            works += ", shared among its links" if len(nvlinks) > 1 and card.nvlink else ""
            yield Doubt(
                "above-card", ("links", nvlinks[0].name),
                f"{sums} {format_rate(total, 4)} one way, and a {card.name} {has}. Figures of other cards of its "
                f"generation do not hold for it (600 and 900 GB/s are both directions of an A100 and an H100). "
                f"{works}.",
                KEPT,
            )  # fmt: skip
        return
    said = [link for link in nvlinks if link.name not in each_way]
    most = next(one for rate, one in PORTS if _memory_rate(topology.memories[name]) <= rate)
    if len(said) == len(nvlinks) and total > most * SLACK:
        many = len(nvlinks) > 1
        yield Doubt(
            "gpu-ports" if many else "above-card", ("links", nvlinks[0].name),
            f"{f'the {len(nvlinks)} NVLinks of a GPU have' if many else 'it has'} {format_rate(total, 4)} one way, and "
            f"no GPU of such a memory ({_memory_text(topology.memories[name])}) has more than {format_rate(most, 4)} "
            f"in all its NVLinks. {'Its neighbours share them' if many else BRIDGES}. Write for "
            f"{'each link' if many else 'it'} what it has of them, one way.",
            KEPT,
        )  # fmt: skip
    meshed = {other: link for link in links if link.technology == "xgmi" and _is_whole(link)
              for other in {link.a, link.b} - {name} if other in topology.memories}  # fmt: skip
    if len(meshed) > 1:
        first = next(iter(meshed.values()))
        yield Doubt(
            "gpu-ports", ("links", first.name),
            f"each of the {len(meshed)} links of a GPU has {format_rate(_peak(first) or 0.0, 4)}, which is what all "
            "seven of an MI300X have together. Write what one has: 64 GB/s one way.",
            KEPT,
        )  # fmt: skip


def _is_whole(link: Link) -> bool:
    """Whether it has the rate of all the xGMI links of a GPU."""
    return any(math.isclose(_peak(link) or 0.0, one, rel_tol=1e-3) for one in XGMI)


def _memory_rate(memory: Memory) -> float:
    peak = memory.rate.peak if memory.rate else None
    return math.inf if peak is None else peak


def _memory_text(memory: Memory) -> str:
    rate = memory.rate.peak if memory.rate else None
    return "rate not known" if rate is None else format_rate(rate, 4)


def _pageable(topology: Topology, link: Link, near: Mapping[str, None]) -> Iterator[Doubt]:
    """A GPU's link whose copies, of no named access or pinned, are as slow as pageable ones."""
    if link.technology not in ("pcie", "") or not {link.a, link.b} & near.keys():
        return
    for rate in (link.forward, link.backward):
        access = next((one for one in ("pinned", "") if one in rate.sustained), None)
        if access is None or rate.peak is None:
            continue
        value = rate.sustained[access].value
        if access == "pinned" and "pageable" in rate.sustained and rate.sustained["pageable"].value < value:
            continue  # the two are told apart
        if SLIP * rate.peak <= value < PAGEABLE * rate.peak:
            usual = format_rate(0.8 * rate.peak, 2)
            yield Doubt(
                "pageable", ("links", link.name),
                f"sustained {format_rate(value)} is {100 * value / rate.peak:.2g} % of {format_rate(rate.peak, 4)}: "
                f"pinned copies have about {usual}, pageable ones, small ones and those of an idle link so little. "
                f"Write sustained: {{pageable: {format_rate(value)}}}, and measure with pinned memory (nvbandwidth).",
                KEPT, ("sustained",),
            )  # fmt: skip
            return


def _counted_once(memory: Memory) -> Iterator[Doubt]:
    """A memory that sustains less than half of its peak: a copy's bytes counted once, or a single thread."""
    rate: Rate | None = memory.rate
    if memory.kind not in ("dram", "hbm", "unified") or rate is None or not rate.peak or not rate.sustained:
        return
    best = max(one.value for one in rate.sustained.values())
    if not SLIP * rate.peak <= best < COPIED * rate.peak:
        return
    share = f"sustained {format_rate(best)} is {100 * best / rate.peak:.2g} % of the peak {format_rate(rate.peak, 4)}"
    once = "A copy reads and writes: where its bytes are counted once (memcpy, mbw, nvbandwidth), twice as many move"
    one = "; one thread of a CPU reads far less than all" if memory.kind != "hbm" else ""
    yield Doubt(
        "counted-once", ("memories", memory.name),
        f"{share}. {once}{one}. Memories are read at 65 to 90 %.",
        KEPT, ("rate",),
    )  # fmt: skip


def _slices(topology: Topology, near: Mapping[str, None]) -> dict[str, str]:
    """Memories of GPUs that are slices, and by what: their name, the title, or a rate that such a size has nowhere."""
    found = {}
    words = _MIG.search(topology.title)
    of: dict[str, list[Processor]] = {}
    for one in topology.processors.values():
        of.setdefault(one.memory, []).append(one)
    for name in near:
        memory = topology.memories[name]
        peak = memory.rate.peak if memory.rate else None
        named = of.get(name, ())
        texts = [name, memory.source, *(text for one in named for text in (one.name, one.source))]
        word = next((match for text in texts if (match := _MIG.search(text))), words)
        if word:
            found[name] = f'"{word[0]}" is a slice of a GPU'
        elif memory.kind == "hbm" and peak and memory.capacity and peak >= SLICE_RATE \
                and peak / memory.capacity > SLICE_TURNS:  # fmt: skip
            found[name] = f"no card has that with {format_bytes(memory.capacity)}; a slice of a larger one (MIG) would"
    return found


def _mig(topology: Topology, slices: Mapping[str, str]) -> Iterator[Doubt]:
    for name, why in slices.items():
        memory = topology.memories[name]
        peak = memory.rate.peak if memory.rate else None
        if peak and peak >= SLICE_RATE:
            yield Doubt(
                "mig-slices", ("memories", name),
                f"{format_rate(peak, 4)}: {why}. A slice has its share of the card's memory rate, as 1g.10gb an eighth "
                "of it, and all slices together no more than the card. Write that share.",
                KEPT, ("rate",),
            )  # fmt: skip
    links = [link for link in topology.links.values() if {link.a, link.b} & slices.keys()
             and link.technology in ("pcie", "") and link.lanes == 16
             and any(topology.switches[end].kind == "socket" for end in (link.a, link.b) if end in topology.switches)]
    capped = {text.partition(".")[0] for limit in topology.limits.values() for text in limit.over}
    links = [link for link in links if link.name not in capped]
    if len(links) > 1:
        yield Doubt(
            "mig-slices", ("links", links[0].name),
            f"each of {len(links)} slices has a link of x16 ({fold(link.name for link in links)}), and a card has one "
            "for all. Write a switch for the card with one link to the socket, and let the slices hang from it.",
            "keep it, where each is on a card of its own.", ("pcie",),
        )  # fmt: skip


def _one_memory(topology: Topology, near: Mapping[str, None]) -> Iterator[Doubt]:
    """Two memories of a machine that has one for GPU and CPU: by its name, by its rate, or both said to be unified."""
    word = shared_memory_word(topology)
    host = unlike(one for one in topology.memories.values() if one.name not in near and one.kind in ("dram", "unified"))
    for memory in unlike(topology.memories[name] for name in near):
        name, peak = memory.name, memory.rate.peak if memory.rate else None
        for other in host:
            theirs = other.rate.peak if other.rate else None
            one, its = memory.capacity, other.capacity
            # Told by their sizes already.
            same_size = one is not None and its is not None and math.isclose(one, its, rel_tol=0.02)
            if word:
                why = f'"{word}" has one memory for GPU and CPU, and {name} and {other.name} are two'
            elif "unified" in (memory.kind, other.kind):
                kind = name if memory.kind == "unified" else other.name
                why = f"{kind} is unified, which GPU and CPU share, and {name} and {other.name} are two"
            elif peak and theirs and peak <= SHARED_RATE and math.isclose(peak, theirs, rel_tol=1e-3) and not same_size:
                why = f"{name} and {other.name} have the same {format_rate(peak, 4)}: are they parts of one memory?"
            else:
                continue
            yield Doubt(
                "unified-twice", ("memories", name),
                f"{why}{'' if why.endswith('?') else '.'} A share that firmware sets aside for the GPU is of the same "
                "chips. Its bytes and its rate count once, and nothing is copied: write one memory of kind "
                "unified with both processors in it.",
                KEPT,
            )  # fmt: skip
            return


def _parallel(topology: Topology) -> Iterator[Doubt]:
    """Links of one kind side by side: a copy takes one."""
    groups: dict[tuple[frozenset[str], str], list[Link]] = {}
    for link in topology.links.values():
        groups.setdefault((frozenset((link.a, link.b)), link.technology), []).append(link)
    for (ends, _), links in groups.items():
        if len(links) > 1:
            yield Doubt(
                "parallel-links", ("links", links[0].name),
                f"{fold(link.name for link in links)} join the same two, {' and '.join(sorted(ends))}, and a copy "
                f"takes one of them. Links that act as one, as those of NVLink do, are one link: count: {len(links)}, "
                "with the rate of one.",
                "keep it, where plans choose one by via.",
            )  # fmt: skip


def _both_ways(link: Link) -> Iterator[Doubt]:
    """A coherent link with one sustained figure: its directions differ widely on every part that was measured."""
    sustained = link.forward.sustained
    if link.technology == "c2c" and sustained and sustained == link.backward.sustained:
        yield Doubt(
            "one-rate", ("links", link.name),
            f"sustained {format_rate(max(one.value for one in sustained.values()))} in both directions: a GH200 was "
            "measured at 342 to 421 GB/s from the CPU to the GPU and at 170 to 297 back, of 450. Write forward and "
            "backward, each with what was measured.",
            KEPT, ("sustained",),
        )  # fmt: skip
