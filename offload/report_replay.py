"""A replay for a person: what was run, times beside the model's, bytes beside loads, what was checked; and as data."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from offload import __version__
from offload.plan import UNLIMITED
from offload.printing import fold_rows, number_text, write_heading, write_line, write_list, write_table
from offload.replaying.results import Replay, Spread
from offload.units import format_bytes, format_flop, format_flops, format_rate, format_seconds, format_share, many

FORMAT = 1
AMOUNTS = {"B": format_bytes, "FLOP": format_flop, "s": format_seconds}
RATES = {"B": format_rate, "FLOP": format_flops}


def write_replay(run: Replay, console: Console) -> None:
    """Print a replay."""
    topology = run.step.topology
    write_line(console, f"{run.step.title}, run on this machine ({topology.title or topology.name})", style="bold")
    if run.interrupted:
        write_line(console, f"Ended early: {many(run.steps, 'step')} of it counted.", style="bold red")
    _write_part(run, console)
    write_list("Doubtful", list(run.warnings), console)
    _write_times(run, console)
    _write_tasks(run, console)
    _write_resources(run, console)
    _write_checks(run, console)
    _write_rates(run, console)
    write_list("How it was run", [*(f"{memory}: {what}" for memory, what in run.stands.items()), *run.how], console)
    write_list("Not measured", list(run.missing), console)


def _write_part(run: Replay, console: Console) -> None:
    if run.factor == 1.0:
        write_line(console, "All bytes and FLOP of the plan.")
        return
    why = f" ({'; '.join(run.because)})" if run.because else ""
    write_line(console, f"Scaled down: 1/{number_text(1 / run.factor)} of the plan's bytes and FLOP{why}. All times "
                        "are of that step, with the same latencies: they are no times of the plan itself.")  # fmt: skip


def _spread(times: Spread | None) -> list[str]:
    if times is None:
        return ["-", ""]
    ends = f"{format_seconds(times.least)} to {format_seconds(times.most)}" if times.count > 1 else "one"
    return [format_seconds(times.median), ends]


def _ratio(measured: float | None, planned: float | None) -> str:
    return f"{measured / planned:.2f}" if measured and planned else ""


def _write_times(run: Replay, console: Console) -> None:
    plan, measured = run.predicted, run.measured
    write_heading(console, f"A step, back to back ({many(run.steps, 'step')} counted)")
    ends = "" if plan.low == plan.high else f"{format_seconds(plan.low)} to {format_seconds(plan.high)}"
    middle = measured.median if measured else None
    floor = ["-", "no resource has a known peak"] if plan.floor is None else [format_seconds(plan.floor), ""]
    rows = [
        ["floor", *floor, _ratio(middle, plan.floor)],
        [f"schedule ({plan.policy})", format_seconds(plan.seconds), ends, _ratio(middle, plan.seconds)],
        ["serial", format_seconds(plan.serial), "", _ratio(middle, plan.serial)],
        ["measured", *_spread(measured), ""],
    ]
    if run.first is not None:
        cold = _ratio(run.first, plan.cold)
        rows += [["schedule of one step from empty buffers", format_seconds(plan.cold), "", cold],
                 ["measured, the first step", format_seconds(run.first), "one", ""]]  # fmt: skip
    write_table(console, ["", "time", "least to most", "measured / it"], rows, right={1, 3}, bold={3})
    if run.below_floor:
        asked, told = run.storage.get("read", (0.0, 0.0))
        why = ("the page cache served reads that the plan has from a drive." if told < 0.99 * asked else
               "which contradicts physics: a peak in the topology is lower than what this machine can do.")  # fmt: skip
        write_line(console, f"Faster than the floor: {why}", style="bold red")


def _write_tasks(run: Replay, console: Console) -> None:
    write_heading(console, "Tasks")
    rows = [
        [one.name, number_text(one.count), format_seconds(one.alone),
         "-" if one.planned is None else format_seconds(one.planned), *_spread(one.measured),
         _ratio(one.measured.median if one.measured else None, one.planned)]
        for one in run.tasks
    ]  # fmt: skip
    write_table(console, ["task", "a step", "alone", "in schedule", "measured", "least to most", "measured / schedule"],
                fold_rows(rows), right={1, 2, 3, 4, 6})  # fmt: skip


def _write_resources(run: Replay, console: Console) -> None:
    write_heading(console, "Resources, in a mean step")
    period = sum(run.periods) / len(run.periods) if run.periods else None  # spans are summed over all steps, too
    rows = []
    for one in run.resources:
        show = AMOUNTS[one.unit]
        moved = "not counted" if one.moved is None else "equal" if not one.why else show(one.moved)
        rate = "" if one.unit == "s" or not one.in_use or one.moved is None else RATES[one.unit](one.moved / one.in_use)
        rows.append([one.name, show(one.load), moved, format_seconds(one.busy), format_seconds(one.in_use),
                     "" if not period else format_share(one.in_use / period), rate])  # fmt: skip
    write_table(console, ["resource", "plan's load", "moved", "busy in model", "in use", "of the step", "rate in use"],
                rows, right={1, 2, 3, 4, 5, 6})  # fmt: skip
    write_line(console, "Busy: at the sustained rate. In use: while any task that uses it ran, however fast.")
    for one in run.resources:
        if one.why and one.moved is not None:
            write_line(console, f"- {one.name}: {one.why} ({one.moved - one.load:+.4g} {one.unit}).")
    for way, (asked, told) in run.storage.items():
        verb = "read from" if way == "read" else "written to"
        gap = "" if told >= 0.99 * asked else (
            f": the page cache served {format_bytes(asked - told)}, so that this says nothing of the drive's rate"
            if way == "read" else ": the rest was still in the page cache")  # fmt: skip
        write_line(console, f"By the system, {format_bytes(told)} were {verb} drives of {format_bytes(asked)} that all "
                            f"steps asked for{gap}.")  # fmt: skip


def _write_checks(run: Replay, console: Console) -> None:
    write_heading(console, "Kept to the plan, by the times that were recorded")
    if run.slots:
        rows = [[one.name, "no limit" if one.buffers == UNLIMITED else str(one.buffers), str(one.most)]
                for one in run.slots]  # fmt: skip
        write_table(console, ["buffers of", "in the plan", "in use at most"], fold_rows(rows), right={1, 2})
    looked = run.checked
    write_line(console, f"Looked at: {looked['waits']} waits, {looked['turns']} turns in queues, {looked['buffers']} "
                        "takings of a buffer, and the first bytes of each buffer around each use.")  # fmt: skip
    if not run.wrong:
        write_line(console, "All were kept.")
    for one in run.wrong[:20]:
        write_line(console, f"- {one}", style="bold red")
    if len(run.wrong) > 20:
        write_line(console, f"- and {len(run.wrong) - 20} more", style="bold red")


def _write_rates(run: Replay, console: Console) -> None:
    write_heading(console, "Rates of the prediction")
    write_line(console, "Nothing was fitted to this plan: the topology has these, by the sources named.")
    for one in run.rates:
        show = RATES[one.unit]
        ends = "" if one.low == one.high else f" ({show(one.low)} to {show(one.high)})"
        what = f"{one.resource}{f', {one.access}' if one.access else ''}"
        source = "assumed, as nobody has measured it" if one.assumed else one.source or "no source is told"
        write_line(console, f"- {what}: {show(one.value)}{ends}: {source}")


def replay_to_json(run: Replay) -> dict[str, Any]:
    """The same as plain data: seconds, bytes, FLOP; null where there is none."""

    def spread(times: Spread | None) -> dict[str, Any] | None:
        return None if times is None else {"median": times.median, "least": times.least, "most": times.most,
                                           "count": times.count}  # fmt: skip

    plan = run.predicted
    return {
        "offload_replay": FORMAT, "offload_version": __version__, "title": run.step.title,
        "topology": run.step.topology.name, **run.conditions, "interrupted": run.interrupted,
        "factor": run.factor, "because": list(run.because), "steps": run.steps, "warm_up": run.warm,
        "predicted": {"floor": plan.floor, "seconds": plan.seconds, "low": plan.low, "high": plan.high,
                      "cold_seconds": plan.cold, "serial": plan.serial, "policy": plan.policy},
        "measured": spread(run.measured), "periods": list(run.periods), "first_step": run.first, "ratio": run.ratio,
        "below_floor": run.below_floor,
        "tasks": [{"name": one.name, "transfer": one.transfer, "count": one.count, "alone": one.alone,
                   "planned": one.planned, "measured": spread(one.measured)} for one in run.tasks],
        "resources": [{"name": one.name, "unit": one.unit, "load": one.load, "moved": one.moved, "busy": one.busy,
                       "in_use": one.in_use, "why": one.why} for one in run.resources],
        "storage": {way: {"asked": asked, "told": told} for way, (asked, told) in run.storage.items()},
        "buffers": [{"name": one.name, "plan": one.buffers, "most": one.most} for one in run.slots],
        "checked": dict(run.checked), "wrong": list(run.wrong),
        "rates": [{"resource": one.resource, "access": one.access, "unit": one.unit, "low": one.low,
                   "value": one.value, "high": one.high, "source": one.source, "assumed": one.assumed}
                  for one in run.rates],
        "stands": dict(run.stands), "how": list(run.how), "warnings": list(run.warnings),
        "missing": list(run.missing),
    }  # fmt: skip
