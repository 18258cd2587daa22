"""A run explained, as text and as data: its plan, the terms of its time, the verdict, and what it proves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from offload import __version__
from offload.given import surely
from offload.measured import BETTER, EXPECTED, FAR, FAR_BELOW, SLOWER
from offload.printing import and_text, fold_rows, number_text, write_heading, write_line, write_list, write_table
from offload.readers.engines.run import Timing
from offload.units import format_bytes, format_flop, format_flops, format_rate, format_seconds, format_share
from offload.why import Proven, Why
from offload.why.plan import plan_text
from offload.why.proven import ABOVE_PEAK, ABOVE_SUSTAINED

FORMAT = 1  # of the JSON
WHAT = {"step": "a step", "pass": "the prompt", "prompt": "all chunks of the prompt", "request": "the request"}
MEANS = {  # of terms, short: the table has room in 80 columns
    "load floor": "what moves, peak rates",
    "order": "one after another",
    "sustained": "real rates and loads",
    "contention": "queues, no overlap",
    "hand-overs": "latencies, given times",
    "unexplained": "beyond bandwidth",
}
GAINS = 1.005  # a change that gains less buys nothing
MOST_CHANGES = 3
UNTOLD = "launches, waits, dequantisation, threads, or what the log does not tell"  # causes of what is unexplained


def write_why(found: Why, console: Console) -> None:
    """Print a run explained, from what was taken from the log to what would change it."""
    run, timing = found.run, found.timing
    write_line(console, f"{run.engine}: {found.plan.title}, on {found.study.topology_title}", style="bold")
    write_line(console, f"Measured: {_timing_text(timing)}. {_others(found)}")
    write_taken(found, console)
    write_heading(console, "The plan that was made of it")
    for line in plan_text(found.keys).rstrip().split("\n"):
        write_line(console, line, indent=2)
    _write_terms(found, console)
    _write_verdict(found, console)
    _write_proven(found, console)
    _write_changes(found, console)
    write_list("Assumed", list(found.notes.assumed), console)
    write_list("Contradicts", list(found.notes.contradicts), console)
    write_list("Unknown", list(found.notes.unknown), console)


def write_taken(found: Why, console: Console) -> None:
    """Print what the log says that went into the plan, each with its line."""
    rows = [[what, value, str(line) if line else "-"] for what, value, line in found.notes.taken]
    if rows:
        write_heading(console, "Taken from the log")
        write_table(console, ["what", "value", "line"], rows, right={2})


def _timing_text(timing: Timing) -> str:
    test = f" {timing.test}" if timing.test else ""
    parts = [f"{timing.phase}{test}, {format_seconds(timing.seconds, 4)}"]
    if timing.tokens is not None:
        parts.append(f"{number_text(timing.tokens)} tokens, {number_text(timing.tokens / timing.seconds)} tokens/s")
    if timing.sequences is not None and timing.sequences != 1:
        parts.append(f"{number_text(timing.sequences)} sequences together")
    if timing.includes:
        parts.append(f"with {timing.includes} in it")
    return "; ".join(parts) + (f" (line {timing.line})" if timing.line else "")


def _others(found: Why) -> str:
    others = [f"--timing {number}: {one.test or one.phase}, {format_seconds(one.seconds)}"
              for number, one in enumerate(found.run.timings, 1) if one is not found.timing and one.phase != "load"]
    return f"Other timings: {'; '.join(others)}." if others else ""


def _write_terms(found: Why, console: Console) -> None:
    fall = found.waterfall
    write_heading(console, f"Where the time of {WHAT[fall.of]} goes")
    unit = "s" if fall.measured >= 1 else "ms"
    rows = [[term.name, _number(term.seconds, unit), _share(term.share), _number(term.until, unit), term.grade,
             MEANS[term.name]] for term in fall.terms]  # fmt: skip
    rows.append(["measured", _number(fall.measured, unit), "100 %", "", "", ""])
    write_table(console, ["term", unit, "share", "so far", "grade", "what it is"], rows, right={1, 2, 3},
                bold={len(rows) - 1})  # fmt: skip
    for term in fall.terms:
        if term.why and abs(term.share) >= 0.0005:
            write_line(console, f"{term.name} is below zero: {term.why}.")
    if fall.floor is None:
        write_line(console, "No floor is proved: no resource that this loads has a known peak rate.")


def _number(seconds: float, unit: str) -> str:
    return f"{(1e3 if unit == 'ms' else 1) * seconds:,.3f}".replace("-0.000", "0.000")


def _share(share: float) -> str:
    return format_share(share) if abs(share) >= 0.001 else "0 %" if abs(share) < 1e-9 else "<0.1 %"


def _write_verdict(found: Why, console: Console) -> None:
    write_heading(console, "Verdict")
    write_line(console, verdict_text(found), style="bold red" if found.contradicts else "bold")
    for cause in found.causes:
        write_line(console, f"- {cause}")


def verdict_text(found: Why) -> str:
    """The verdict in words."""
    fall = found.waterfall
    if fall.contradicts:
        times = number_text(surely(fall.floor) / fall.measured)
        return (f"Input contradicts physics: {times} times as fast as any schedule of this plan on this machine can "
                "be. Something is other than said, usually:")  # fmt: skip
    share = "" if fall.floor is None else format_share(fall.floor / fall.measured)
    reached = f"{share} of the floor's speed is reached; " if share else ""
    if found.not_counted and fall.verdict in (SLOWER, FAR_BELOW):
        return (f"{reached}no verdict on the rest: what passes {and_text(found.not_counted)} is not counted, as "
                "nothing tells its rate. Say --on SERVER, or --set dram0.rate=60GB/s and --set pcie0.rate=25GB/s.")
    if fall.verdict == BETTER:
        return (f"{reached}faster than the expected time: sustained rates of the server's file may be low, or less was "
                "moved than said.")  # fmt: skip
    if fall.verdict == EXPECTED:
        ends = format_seconds(fall.low), format_seconds(fall.high)
        within = f", which is {ends[0]}" + (f" to {ends[1]}" if ends[1] != ends[0] else "")
        return f"{reached}as expected{within}: {_largest(found)}"
    if fall.verdict == FAR_BELOW:
        return (f"{reached}bandwidth cannot explain this. It takes {number_text(fall.measured / fall.slow)} times as "
                "long as everything one after another at the slow ends of the sustained rates, and more than "
                f"{number_text(FAR)} times is taken as unexplained. Usual causes:")  # fmt: skip
    rest = next(term for term in fall.terms if term.name == "unexplained")
    beside = "" if rest is fall.largest else (f" What is slower than expected is unexplained, "
                                              f"{format_seconds(rest.seconds)} ({format_share(rest.share)}): {UNTOLD}.")
    return f"{reached}{number_text(fall.measured / fall.expected)} times the expected time: {_largest(found)}{beside}"


def _largest(found: Why) -> str:
    """What the most of the time beyond the load floor is, and where to look for it."""
    term = found.waterfall.largest
    if term.share < 0.0005:
        return "the load floor is all of it: fewer bytes, or faster memory, and nothing else."
    look = {
        "order": "parts work one after another; what ran side by side would take it off",
        "sustained": "what real software reaches of the peak rates, and loads that are only expected",
        "contention": "parts wait for each other or share what they need",
        "hand-overs": "latencies and stated costs; fewer hand-overs take it off",
        "unexplained": UNTOLD,
    }
    return (f"beyond the load floor the most is {term.name}, {format_seconds(term.seconds)} "
            f"({format_share(term.share)}): {look[term.name]}.")  # fmt: skip


def _write_proven(found: Why, console: Console) -> None:
    rows = found.proven
    if not rows:
        return
    write_heading(console, "Rates that this run proves")
    table = [[one.resource, _amount(one, one.least), _rate(one, one.rate), _rate(one, one.peak),
              _rate(one, one.sustained), "-" if one.share is None else _share(one.share), one.stands]
             for one in rows]  # fmt: skip
    write_table(console, ["resource", "at least", "proved rate", "peak", "sustained", "of peak", ""],
                fold_rows(table), right={1, 2, 3, 4, 5})  # fmt: skip
    sure = "What this plan surely moves, over the measured time: as sure as what is assumed."
    if found.notes.contradicts:
        sure = ("What this plan surely moves, over the measured time. The log contradicts the plan (below): the rates "
                "are proved only if the plan is right.")  # fmt: skip
    write_line(console, sure, style="dim")
    for one in rows:
        if one.stands == ABOVE_PEAK:
            write_line(console, f"{one.resource}: the run proves {_rate(one, one.rate)} or more, and the server's peak "
                                f"is {_rate(one, one.peak)}. One of them is wrong.", style="bold red")  # fmt: skip
        elif one.stands == ABOVE_SUSTAINED:
            write_line(console, f"{one.resource}: the run proves more than the server's sustained rate, "
                                f"{_rate(one, one.sustained)}: that is too low.")  # fmt: skip


def _amount(one: Proven, value: float) -> str:
    return format_flop(value) if one.unit == "FLOP" else format_bytes(value)


def _rate(one: Proven, value: float | None) -> str:
    if value is None:
        return "-"
    return format_flops(value) if one.unit == "FLOP" else format_rate(value)


def _changes(found: Why) -> list[Any]:
    gains = [one for one in found.study.changes if one.gain > GAINS]
    return sorted(gains, key=lambda one: -one.gain)[:MOST_CHANGES]


def _write_changes(found: Why, console: Console) -> None:
    rows = [[one.what, format_seconds(one.seconds), f"{number_text(one.gain)} x"] for one in _changes(found)]
    if not rows:
        return
    write_heading(console, "What would change the expected time most")
    write_table(console, ["change", "expected", "tokens/s"], rows, right={1, 2})


# As data


def why_to_json(found: Why) -> dict[str, Any]:
    """Plain data: seconds, bytes, FLOP; null for what is not known."""
    run, fall, place = found.run, found.waterfall, found.place
    return {
        "format": FORMAT,
        "offload_version": __version__,
        "engine": run.engine,
        "line": run.line,
        "model": found.known.model.name,
        "weights": found.known.weights,
        "topology": found.study.topology,
        "topology_from_log": bool(place.text),
        "plan": found.keys,
        "taken": [{"what": what, "value": value, "line": line} for what, value, line in found.notes.taken],
        "timing": timing_to_json(found.timing),
        "other_timings": [timing_to_json(one) for one in run.timings if one is not found.timing],
        "of": fall.of,
        "measured_seconds": fall.measured,
        "terms": [{"name": term.name, "seconds": term.seconds, "share": term.share, "until_seconds": term.until,
                   "grade": term.grade, "why": term.why} for term in fall.terms],
        "floor_seconds": fall.floor,
        "bottleneck": list(fall.binding),
        "expected": {"low": fall.low, "value": fall.expected, "high": fall.high},
        "serial_slow_seconds": fall.slow,
        "verdict": fall.verdict,
        "not_counted": list(found.not_counted),
        "largest": fall.largest.name,
        "causes": list(found.causes),
        "proven": [proven_to_json(one) for one in found.proven],
        "contradicts_server": found.contradicts,
        "changes": [{"what": one.what, "seconds": one.seconds, "gain": one.gain} for one in _changes(found)],
        "assumed": list(found.notes.assumed),
        "contradicts": list(found.notes.contradicts),
        "unknown": list(found.notes.unknown),
        "not_modelled": list(found.study.not_modelled),
        "assumptions": list(found.study.assumptions),
    }  # fmt: skip


def timing_to_json(timing: Timing) -> Mapping[str, Any]:
    """A timing as the log says it."""
    keys = ("phase", "seconds", "tokens", "steps", "sequences", "context", "prompt", "samples", "spread", "test",
            "includes", "line")  # fmt: skip
    return {key: getattr(timing, key) for key in keys} | {"tokens_per_s": timing.tokens_per_s}


def proven_to_json(one: Proven) -> Mapping[str, Any]:
    """A rate that a run proves."""
    return {"resource": one.resource, "kind": one.kind, "unit": one.unit, "least": one.least, "rate": one.rate,
            "peak": one.peak, "sustained": one.sustained, "of_peak": one.share, "stands": one.stands}  # fmt: skip
