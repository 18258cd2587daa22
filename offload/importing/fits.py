"""Latency, rate and n_half of families of results, as facts; a fitted latency is an estimate for its link.

Families with several requests in flight, or several transfers at once, against size are not fitted: their time is not
latency + size / rate of one transfer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from offload.importing.notes import Notes, where
from offload.readers.tools.finding import Delay, Fact, Finding, Measured, describe_rate
from offload.readers.tools.fit import BY_SIZE, FEWEST, Fit, NoFit, families_of, fit_depths, fit_sizes

FITTED = "fitted"  # in the note of a latency that nobody measured by itself


def fitted(findings: Sequence[Finding], notes: Notes) -> tuple[tuple[Fact, ...], tuple[Finding, ...]]:
    """Facts of every family that can be fitted, and findings whose latencies are the fitted ones; why others cannot is
    told."""
    facts: list[Fact] = []
    found: list[Finding] = []
    for finding in findings:
        delays = []
        for over, members in families_of(finding.rates):
            points = {one.size if over == "size" else one.depth for one in members}
            if len(points) < FEWEST or not _is_one_transfer(over, members):
                continue
            said = _words(over, members)
            result = _fit(over, members)
            lines = sorted({one.line for one in members})
            if isinstance(result, NoFit):
                notes.gather((id(finding), "fit", over, result.why),
                             f"{where(finding, lines[0])}: {said}: no latency is fitted: {result.why}")  # fmt: skip
                continue
            how = f"fitted over {over}, {result.points} figures within {result.residual:.1%}"
            for what, value, unit in (("latency", result.latency, "s"), ("rate", result.rate, "B/s"),
                                      ("n_half", result.half, "B")):  # fmt: skip
                facts.append(Fact(f"{what} of {said}, {how}", value, unit, lines[0], finding.file, lines[-1]))
            first = members[0]
            if not first.operation and first.when == "alone" and result.latency > 0:
                note = f"{FITTED}: {how}"
                delays.append(Delay(first.source, first.destination, result.latency, "alone", note, lines[0]))
        if delays:
            found.append(replace(finding, rates=(), delays=tuple(delays)))
    return tuple(facts), tuple(found)


def _is_one_transfer(over: str, members: Sequence[Measured]) -> bool:
    first = members[0]
    if first.streams > 1 or first.source != "gpus" and first.destination in ("gpus", "hosts", "drives"):
        return False
    if first.source == first.destination and not first.operation:
        return False  # a memory's own rate against size tells of caches
    return over == "depth" or first.depth in (None, 1)


def _words(over: str, members: Sequence[Measured]) -> str:
    first = members[0]
    said = describe_rate(replace(first, size=None) if over == "size" else replace(first, depth=None))
    return ", ".join(filter(None, [said, BY_SIZE.sub("", first.note) if first.operation else ""]))


def _fit(over: str, members: Sequence[Measured]) -> Fit | NoFit:
    if over == "size":
        return fit_sizes([(one.size or 0, one.rate) for one in members])
    return fit_depths(members[0].size or 0, [(one.depth or 0, one.rate) for one in members])
