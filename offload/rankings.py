"""Whether cases come in the order that was measured: Kendall's tau where one value varies, and within mixed groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from offload.validation import Outcome

AGREES = 0.9  # a tau from which on two orders are said to agree where one value varies


@dataclass(frozen=True, slots=True)
class Ranking:
    """Whether expected and measured times of some cases come in the same order: Kendall's tau, -1 to 1.

    name : the file, with what its cases share, or the group. varies : the one value that differs, "" for several.
    tau, informed : with the server's file alone, and with the rates that the sources state; None where no two differ.
    unresolved : pairs not compared, as their measured times are within the stated resolution.
    order : why the order is another one, as the cases say.
    """

    name: str
    varies: str
    cases: int
    tau: float | None
    informed: float | None
    unresolved: int = 0
    order: str = ""


def rankings(outcomes: Sequence[Outcome]) -> tuple[Ranking, ...]:
    """The order within each file as one value varies, and within each group of files; traps left out.

    What varies is what the file says, else each value that some of its variants have alone: they agree in the others.
    """
    real = [one for one in outcomes if not one.case.trap]
    found: dict[tuple[str, str], list[Outcome]] = {}
    files: dict[str, list[Outcome]] = {}
    for one in real:
        files.setdefault(one.case.file, []).append(one)
        if one.case.group:
            found.setdefault((one.case.group, ""), []).append(one)
    for some in files.values():
        if varies := some[0].case.varies:
            found[some[0].case.id.partition("/")[0], varies] = some
        else:
            found |= _slices(some)
    return tuple(_ranking(name, varies, some) for (name, varies), some in sorted(found.items()) if len(some) > 1)


def _slices(outcomes: Sequence[Outcome]) -> dict[tuple[str, str], list[Outcome]]:
    """The cases of a file that differ in one value alone, by what they share and that value."""
    values = [dict(one.case.set) | {"server": one.case.topology.title} for one in outcomes]
    paths = [path for path in dict.fromkeys(path for some in values for path in some)
             if len({some.get(path) for some in values}) > 1]  # fmt: skip
    file = outcomes[0].case.id.partition("/")[0]
    found: dict[tuple[str, str], list[tuple[str | None, Outcome]]] = {}
    for path in paths:
        for own, one in zip(values, outcomes, strict=True):
            shared = ", ".join(f"{key} {own[key]}" for key in paths if key != path and key in own)
            found.setdefault((f"{file} ({shared})" if shared else file, path), []).append((own.get(path), one))
    return {key: [one for _, one in some] for key, some in found.items() if len({value for value, _ in some}) > 1}


def _ranking(name: str, varies: str, outcomes: Sequence[Outcome]) -> Ranking:
    resolution = [one.case.resolution for one in outcomes]
    measured = [one.measured for one in outcomes]
    taus = [kendall(list(zip(times, measured, strict=True)), resolution)
            for times in ([one.schedule for one in outcomes], [one.informed for one in outcomes])]  # fmt: skip
    unresolved = sum(_same(measured[i], measured[j], max(resolution[i], resolution[j]))
                     for i in range(len(measured)) for j in range(i))  # fmt: skip
    poor = any(tau is None or tau < AGREES for tau in taus)
    order = " ".join(dict.fromkeys(one.case.order for one in outcomes if one.case.order)) if varies and poor else ""
    return Ranking(name, varies, len(outcomes), taus[0], taus[1], unresolved, order)


def _same(a: float, b: float, resolution: float) -> bool:
    """Whether a resolution is stated and two times are within it."""
    return resolution > 0 and abs(a - b) <= resolution * max(abs(a), abs(b))


def kendall(pairs: Sequence[tuple[float, float]], resolution: Sequence[float] = ()) -> float | None:
    """Kendall's tau-b of pairs: (concordant - discordant) / sqrt of the pairs that differ in each; None without any.

    Source: M. Kendall, Rank Correlation Methods. Times within a millionth of each other are one. resolution : of each
    pair, the share within which second values are not told apart; what two such are in is not compared at all.
    """
    def sign(a: float, b: float) -> int:
        return 0 if abs(a - b) <= 1e-6 * max(abs(a), abs(b)) else (1 if a > b else -1)

    told = resolution or [0.0] * len(pairs)
    signs = [(sign(a, c), sign(b, d)) for i, (a, b) in enumerate(pairs) for j, (c, d) in enumerate(pairs[:i])
             if not _same(b, d, max(told[i], told[j]))]  # fmt: skip
    first, second = (sum(abs(one[place]) for one in signs) for place in (0, 1))
    return sum(a * b for a, b in signs) / sqrt(first * second) if first and second else None
