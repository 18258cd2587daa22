"""Rows of each layer split between a GPU and a CPU that work on the same layer at the same time.

Each processor has a share of every matrix's rows and reads it where it lives: what is in its own memory in place, the
rest of its share is brought to it. The hidden row is handed over and partial rows are gathered each time (HeteGen,
PowerInfer). Attention and what a layer keeps are with the processor named first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from offload.breakeven import cpu_gpu_split
from offload.designs.amounts import Amounts
from offload.designs.homes import home_names, reads_in_place, shares_of_home
from offload.errors import PlanError, did_you_mean
from offload.topology import Topology
from offload.units import format_rate, format_seconds, percent

KEY = "placement.split"


@dataclass(frozen=True, slots=True)
class Share:
    """A processor's part of a layer's rows: `of` all of them [1], and where it lies, (memory, share of the layer)."""

    processor: str
    of: float
    homes: tuple[tuple[str, float], ...]


def shares_by_processor(split: Sequence[tuple[str, float | None]]) -> dict[str, float]:
    """The share of each processor [1]; one of them may take the rest (None). Raises PlanError where they do not fit."""
    given = sum(share for _, share in split if share is not None)
    rests = [name for name, share in split if share is None]
    if len(rests) > 1:
        raise PlanError(f"{KEY}: {' and '.join(rests)} both take the rest; one processor may.")
    if len(split) < 2:
        raise PlanError(f"{KEY}: rows are split between two processors or more, as {{gpu0: 20%, cpu0: rest}}.")
    if given > 1 + 1e-9 or (not rests and given < 1 - 1e-9):
        raise PlanError(f"{KEY}: the shares add up to {100 * given:g}%. They are of each layer: write `rest` for one.")
    found = {name: 1 - given if share is None else share for name, share in split}
    if idle := next((name for name, share in found.items() if share < 1e-9), ""):
        raise PlanError(f"{KEY}: nothing is left for {idle}. Give it a share, or write `compute:` with the other one.")
    return found


def check_split(topology: Topology, split: Sequence[tuple[str, float | None]]) -> None:
    """Raises PlanError where the processors of a split are not known, or two of them work in one memory."""
    shares_by_processor(split)
    own: dict[str, str] = {}
    for name, _ in split:
        if name not in topology.processors:
            hint = did_you_mean(name, topology.processors, "Processors")
            raise PlanError(f'{KEY}: no processor "{name}" in topology {topology.name}. {hint}')
        memory = topology.memory_of(name)
        if memory in own:
            raise PlanError(f"{KEY}: {own[memory]} and {name} share {memory}, whose rate is all that there is: name "
                            "processors with memories of their own.")
        own[memory] = name


def is_split(topology: Topology, split: Sequence[tuple[str, float | None]], home: str) -> bool:
    """Whether a layer with this home is shared: not where all of it is in the own memory of a GPU of the split."""
    names = home_names(home)
    gpus = [topology.memory_of(name) for name, _ in split if topology.processors[name].kind == "gpu"]
    return not (len(names) == 1 and names[0] in gpus)


def shares_of_layer(topology: Topology, split: Sequence[tuple[str, float | None]], home: str) -> tuple[Share, ...]:
    """Which part of a layer each processor reads: first what is in its own memory, then an equal part of what is left.

    A CPU also counts other memories of its host as its own.
    """
    wanted = shares_by_processor(split)
    lead = next(iter(wanted))
    left = dict(shares_of_home(topology, home, lead))
    due = dict(wanted)
    taken: dict[str, dict[str, float]] = {name: {} for name in wanted}
    ordered = sorted(wanted, key=lambda name: topology.processors[name].kind != "gpu")
    for name in ordered:
        own = topology.memory_of(name)
        near = [memory for memory in left if memory == own or reads_in_place(topology, name, [memory])]
        there = sum(left[memory] for memory in near)
        part = min(due[name], there)
        for memory in near:
            amount = part * left[memory] / there if there else 0.0
            taken[name][memory] = amount
            left[memory] -= amount
        due[name] -= part
    rest = sum(left.values())
    for name in ordered:
        for memory, amount in left.items():
            if due[name] > 1e-12 and rest > 1e-12:
                taken[name][memory] = taken[name].get(memory, 0.0) + due[name] * amount / rest
    return tuple(
        Share(name, wanted[name], tuple((memory, amount / wanted[name]) for memory, amount in taken[name].items()
                                        if amount > 1e-12))
        for name in wanted)  # fmt: skip


def amounts_of_share(whole: Amounts, share: float, matrices: Any, leads: bool) -> Amounts:
    """What a processor does of a layer: its share of weights and of their FLOP; what the layer keeps where it leads.

    matrices : FLOP of the layer's matrices, the others are attention's.
    """
    flops = share * matrices + (whole.flops - matrices if leads else 0)
    own = replace(whole, size=whole.size * share, touched=whole.touched * share, surely=whole.surely * share,
                  flops=flops)
    return own if leads else replace(own, read=0, surely_read=0, written=0, stored=0, state=0)


def split_note(topology: Topology, split: Sequence[tuple[str, float | None]], homes: Mapping[str, int]) -> list[str]:
    """What is shared, and for weights in host memory the CPU's share that takes least time, the rest streamed.

    homes : bytes of layers by home [B].
    """
    wanted = shares_by_processor(split)
    shown = ", ".join(f"{percent(share)} on {name}" for name, share in wanted.items())
    lead = next(iter(wanted))
    whole = {home: f"layers in {home} {_as_a_whole(topology, lead, home)}" for home in homes
             if not is_split(topology, split, home)}  # fmt: skip
    if set(whole) == set(homes):
        return [f"{KEY}: {shown} changes nothing here: {' and '.join(whole.values())}. Rows are split of layers that "
                "live in none of the memories of its GPUs"]  # fmt: skip
    notes = [f"the rows of each layer are split: {shown}; attention and the KV cache are with {lead}. The hidden row "
             "goes out and partial rows come back after attention and after the feed-forward (counted together)"]
    notes += whole.values()
    shared = {home: size for home, size in homes.items() if home not in whole}
    for home, size in shared.items():
        found = _best(topology, wanted, home, size)
        if found:
            notes.append(found)
    return notes


def _as_a_whole(topology: Topology, lead: str, home: str) -> str:
    near = home == topology.memory_of(lead)
    return "run there as a whole" if near else f"come to {lead} and run there as a whole"


def _best(topology: Topology, wanted: Mapping[str, float], home: str, size: int) -> str:
    """The best share of a CPU whose memory holds the layers, against one GPU that they stream to; "" elsewhere."""
    kinds = {topology.processors[name].kind: name for name in wanted}
    if len(wanted) != 2 or set(kinds) != {"cpu", "gpu"} or home != topology.memory_of(kinds["cpu"]) or not size:
        return ""
    cpu, gpu = kinds["cpu"], kinds["gpu"]

    def rate(rows: list[tuple[str, str]]) -> float | None:
        known = [topology.resources[row].sustained_at(access) for row, access in rows if row in topology.resources]
        return min((one.value for one in known if one is not None), default=None)

    dram = rate([(row, "read") for row in topology.ways.port(home, "read")])
    own = rate([(f"{cpu}.reads", "read")]) or dram
    stage = topology.route(home, topology.memory_of(gpu)).stages[0]
    link = rate([(row, "pinned") for row, _, times in stage.uses if topology.resources[row].kind in ("link", "limit")])
    if dram is None or own is None or link is None:
        return ""
    best = cpu_gpu_split(size, dram, own, link)
    least, most = 100 * best.share_least, 100 * best.share_most
    part = f"{least:.1f}%" if most - least < 0.05 else f"{least:.1f}% to {most:.1f}%"
    alone = format_seconds(best.cpu_seconds) if best.cpu_seconds is not None else "never"
    return (f"best split of what is in {home}: {part} on {cpu}, {format_seconds(best.seconds)} at "
            f"{format_rate(best.rate)}, against {alone} all on {cpu} (sustained rates of {home}, {cpu} and the link); "
            f"here {cpu} has {percent(wanted[cpu])}")
