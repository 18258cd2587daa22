"""What collectives that were measured prove of the links of GPUs: nccl-tests' bus bandwidths on a topology.

A collective of n ranks with algorithm bandwidth A moved, over every GPU's links, at least A times the share of its
bytes that a rank must send and receive (offload.collectives: `bus_factor` where nothing but ranks adds up, `across`
whoever does). So these links carry at least that: a rate that proves more than their peaks is a contradiction, and a
sustained rate that is stated lower, or not at all, is raised to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from offload.collectives import across, bus_factor
from offload.importing.ends import Ends
from offload.importing.hardware import families
from offload.importing.notes import Notes, Told
from offload.importing.rates import SAME, rated, with_side
from offload.readers.tools.finding import Fact, Finding
from offload.topology import Interval, Link, Topology
from offload.topology.checks import SLACK
from offload.units import format_rate

PROVING = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")  # every rank sends and receives alike
NO_SUMS = frozenset(("v100", "a100", "a800", "a30"))  # GPUs whose NVSwitches add nothing up and copy nothing


@dataclass(frozen=True, slots=True)
class Proof:
    """Rates [B/s] that each GPU's links carry at least, out of it and into it."""

    out: float
    into: float


def prove(operation: str, ranks: int, bus: float, switches_add: bool) -> Proof | None:
    """What a bus bandwidth [B/s] proves; None for a collective with a root or of an unknown kind.

    switches_add : switches may add up and copy, so that a GPU sends less than in a ring. Without, GPUs alike are meant:
    their mean is proven.
    """
    if " or " in operation:  # which of them it was is not told: what each proves
        each = [prove(one, ranks, bus, switches_add) for one in operation.split(" or ")]
        if None in each:
            return None
        return Proof(min(one.out for one in each if one), min(one.into for one in each if one))
    if operation not in PROVING or ranks < 2:
        return None
    if not switches_add:
        return Proof(bus, bus)
    algorithm = bus / float(bus_factor(operation, ranks))
    return Proof(algorithm * float(across(operation, ranks, 1)), algorithm * float(across(operation, ranks, ranks - 1)))


def with_collectives(
    topology: Topology, findings: Sequence[Finding], notes: Notes
) -> tuple[Topology, tuple[Fact, ...]]:
    """The topology with what collectives prove of it, and as facts their best bus bandwidths and these proofs."""
    best: dict[tuple[str, int, str], Told] = {}
    for finding in findings:
        for one in finding.rates:
            if one.operation:
                place = one.note.split(";")[0]
                key = (one.operation, one.ranks, place)
                if key not in best or best[key].measured.rate < one.rate:
                    best[key] = Told(one, finding)
    facts: list[Fact] = []
    strongest: dict[tuple[str, int], Told] = {}
    for (operation, ranks, place), told in best.items():
        of = f"{operation} of {ranks} ranks" if ranks else operation
        facts.append(_fact(f"bus bandwidth of {of}, {place}, the most over sizes", told.measured.rate, told))
        if ranks and bus_factor_of(operation, ranks):
            rate = told.measured.rate / bus_factor_of(operation, ranks)
            facts.append(_fact(f"algorithm bandwidth of {of}, {place}, the most over sizes", rate, told))
        before = strongest.get((operation, ranks))
        if before is None or before.measured.rate < told.measured.rate:
            strongest[operation, ranks] = told
    for told in strongest.values():
        topology = _applied(topology, told, facts, notes)
    return topology, tuple(facts)


def bus_factor_of(operation: str, ranks: int) -> float:
    """busbw / algbw, 0 for a collective that is not known."""
    known = (*PROVING, "broadcast", "reduce")
    return float(bus_factor(operation, ranks)) if operation in known else 0.0


def _fact(what: str, rate: float, told: Told) -> Fact:
    return Fact(what, rate, "B/s", told.measured.line, told.finding.file)


def _applied(topology: Topology, told: Told, facts: list[Fact], notes: Notes) -> Topology:
    measured, gpus = told.measured, Ends(topology).gpus
    switches = [one for one in topology.switches.values() if one.kind == "nvswitch"]
    old = families(f"{topology.title} {topology.name}")
    adds = any(one.reduces for one in switches) or bool(switches) and not (old and old <= NO_SUMS)
    proof = prove(measured.operation, measured.ranks, measured.rate, adds)
    if proof is None:
        notes.leave_out(f"{told.words}: what it proves of a single link is not known")
        return topology
    if "over" in measured.note:
        notes.leave_out(f"{told.words}: it went over the network between hosts, of which this topology tells nothing")
        return topology
    if measured.ranks != len(gpus):
        notes.leave_out(f"{told.words}: which of the {len(gpus)} GPUs here its {measured.ranks} ranks are is not told")
        return topology
    of = f"{measured.operation} of {measured.ranks} ranks"
    links = dict(topology.links)
    for word, least in (("out of", proof.out), ("into", proof.into)):
        facts.append(_fact(f"links {word} each GPU carry at least, proven by {of}", least, told))
        for gpu in gpus:
            _carry(links, gpu, word == "out of", least, told, notes)
    return Topology.build(
        name=topology.name, title=topology.title, memories=topology.memories.values(),
        processors=topology.processors.values(), switches=topology.switches.values(), links=links.values(),
        limits=topology.limits.values(), source=topology.source, assumptions=topology.stated,
    )  # fmt: skip


def _carry(links: dict[str, Link], gpu: str, out: bool, least: float, told: Told, notes: Notes) -> None:
    """Hold a proven rate [B/s] against one GPU's links in one direction."""
    own = [link for link in links.values() if gpu in (link.a, link.b)]
    sides = {link.name: "forward" if (link.a == gpu) == out else "backward" for link in own}
    peaks = [getattr(link, sides[link.name]).peak for link in own]
    way = "out of" if out else "into"
    kind = (id(told.finding), told.measured.operation, way)
    if own and None not in peaks and least > sum(peaks) * SLACK:
        text = (f"{told.words}: that proves at least {format_rate(least)} {way} {gpu}, whose links carry at most "
                f"{format_rate(sum(peaks), 4)}: it is not written")  # fmt: skip
        return notes.gather((*kind, "peak"), text, contradicts=True)
    direct = [link for link in own if link.technology in ("nvlink", "xgmi")] or own
    if len(direct) != 1:
        return notes.gather((*kind, "several"), f"{told.words}: {gpu} has {len(direct)} links, which share what it "
                                                f"proves, {format_rate(least)} {way} it")  # fmt: skip
    link = links[direct[0].name]
    side = sides[link.name]
    rate = getattr(link, side)
    name = f"{link.name}.{link.b if side == 'forward' else link.a}"
    stated = max((figure.value for figure in rate.sustained.values()), default=None)
    if stated is not None and stated >= least * (1 - SAME):
        return notes.gather((*kind, "held"), f"{told.words}: that proves at least {format_rate(least)} over {name}, "
                                             f"which sustains {format_rate(stated)}: it stands")  # fmt: skip
    if rate.peak is not None and least > rate.peak * SLACK:
        return notes.gather((*kind, "one"), f"{told.words}: {name} alone carries at most {format_rate(rate.peak, 4)}")
    if stated is not None:
        text = f"{name}: sustains {format_rate(stated)}, yet {told.words} proves at least {format_rate(least)}: raised"
        notes.gather((*kind, "raised"), text, contradicts=True)
    by = f"{told.measured.operation} of {told.measured.ranks} ranks"
    source = f"at least, proven by {by}, GPUs taken alike: {told.finding.tool} (derived)"
    kept = replace(rate, sustained={}) if stated is not None else rate
    links[link.name] = with_side(link, side, rated(kept, "", Interval.exact(least), source))
    notes.wrote(f"{name} sustained, at least", format_rate(least), told.origin)
    return None
