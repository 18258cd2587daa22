"""A study as text for a person.

The text is read from the top: what is read or moved each step comes before any speed, because a wrong plan shows
there first. A floor is printed as formula, numbers and result. Only ASCII is used for our own words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rich.cells import cell_len
from rich.console import Console

from offload.bounds import Floor, Term
from offload.capacity import Room
from offload.intervals import Open, in_words
from offload.printing import (
    and_text,
    fold_notes,
    fold_rows,
    number_text,
    write_heading,
    write_line,
    write_list,
    write_table,
)
from offload.ranges import fold, folded, runs
from offload.report_kv import write_hand_over, write_hit
from offload.report_passed import write_passed
from offload.report_request import write_request
from offload.report_training import write_training
from offload.sensitivity import Change, binding
from offload.study import MemoryRow, Moved, ResourceRow, Study
from offload.topology.resources import NOT_COUNTED, UNLESS_SET
from offload.units import (
    format_bytes,
    format_bytes_both,
    format_flop,
    format_flops,
    format_rate,
    format_seconds,
    format_share,
)

BUYS_NOTHING = 0.005  # relative change of the expected tokens/s below which a change is said to buy nothing
NEARLY_ALL = 0.95  # share of a step for which one resource is busy, so that nothing else matters
DIGITS = 4  # of amounts and rates, so that a reader can check the times by hand


def write_text(study: Study, console: Console) -> None:
    """Print the whole report of a study. The console's width is kept, whatever it is."""
    _write_title(study, console)
    if study.request is not None:
        write_request(study.request, console)
        if study.uncounted:
            write_line(console, f"No time of it counts {fold(study.uncounted)}, whose rate is unknown: it may take far "
                                "longer.")
    if study.training is not None:
        write_training(study.training, console)
    _write_moves(study.moves, console)
    _write_resources(study.resources, console)
    _write_floor(study, console)
    _write_times(study, console)
    write_passed(study.passed, console)
    if study.hit is not None:
        write_hit(study.hit, console)
    if study.hand_over is not None:
        write_hand_over(study.hand_over, console)
    _write_overlap(study, console)
    _write_memory(study, console)
    _write_changes(study, console)
    write_list("Not modelled", study.not_modelled, console)
    write_list("Assumptions", fold_notes(study.assumptions), console)


def write_refusal(study: Study, console: Console) -> None:
    """Print why a plan cannot run: the memories with what is missing, and no time at all."""
    _write_title(study, console)
    _write_moves(study.moves, console)
    _write_memory(study, console)
    write_line(console, "No time is given for a plan that does not fit; --ignore-capacity computes on.")
    write_list("Assumptions", fold_notes(study.assumptions), console)


def _write_title(study: Study, console: Console) -> None:
    write_line(console, study.title, style="bold")
    on = study.topology_title or study.topology
    named = f" ({study.topology})" if study.topology and study.topology != on else ""
    write_line(console, f"on {on}{named}")
    words = [str(study.workload["phase"])] if "phase" in study.workload else []
    words += [
        f"{key.replace('_', ' ')} {value}"
        for key, value in study.workload.items()
        if key != "phase" and value is not None
    ]
    if words:
        write_line(console, "workload: " + ", ".join(words))
    for line in _missing(study.memory):
        write_line(console, f"DOES NOT FIT: {line}", style="bold red")


def _write_moves(moves: Sequence[Moved], console: Console) -> None:
    write_heading(console, "Read or moved each step")
    if not moves:
        write_line(console, "Nothing is read or moved.")
        return
    rows = []
    for move in moves:
        every = f"{move.every} x {move.count}" if move.count != 1 else move.every
        where = move.destination or "-"
        rows.append([move.what, format_bytes(move.bytes, DIGITS), move.source, where, move.runs_on or "-", every])
    write_table(console, ["what", "each step", "from", "to", "runs on", "every"], rows, right={1})
    if any(move.destination is None for move in moves):
        write_line(console, '"to" is "-" where it is read where it lives.', style="dim")


def _write_resources(resources: Sequence[ResourceRow], console: Console) -> None:
    write_heading(console, "Resources")
    rows = []
    for row in resources:
        amount, rate = formats(row.unit)
        sustained = "-" if row.sustained is None else rate(row.sustained, DIGITS) + ("*" if row.assumed else "")
        rows.append(
            [
                row.name,
                amount(row.load, DIGITS),
                "-" if row.peak is None else rate(row.peak, DIGITS),
                _seconds(row.peak_seconds),
                sustained,
                _seconds(row.sustained_seconds),
                _share(row.share),
                "binds" if row.binding else "",
            ]
        )
    headings = ["resource", "load", "peak", "at peak", "sustained", "at sust.", "share", ""]
    shown = fold_rows(rows)
    bold = {index for index, row in enumerate(shown) if row[-1]}
    folded_some, rows = len(shown) < len(rows), shown
    write_table(console, headings, rows, right={1, 2, 3, 4, 5, 6}, bold=bold)
    if folded_some:
        write_line(console, "A range of names: the figures of each one.", style="dim")
    if any(row.assumed for row in resources):
        write_line(console, "* assumed: a usual share of the rated or peak figure, not measured.", style="dim")
    if any(row.peak and row.least / row.peak > (row.peak_seconds or 0) * (1 + 1e-9) for row in resources):
        write_line(console, "At peak: less what a cache in front of a memory may spare.", style="dim")
    if any(row.peak is None for row in resources):
        write_line(console, 'peak "-": not known, so this resource stays out of the floor.', style="dim")
    least: dict[str, list[str]] = {}
    for row in resources:
        if row.peak is not None and abs(row.least - row.load) > 0.005 * row.load:
            least.setdefault(formats(row.unit)[0](row.least, DIGITS), []).append(row.name)
    for counted, names in least.items():
        line = f"The floor counts {counted} on {fold(names)}: the least that may reach it."
        write_line(console, line, style="dim")


def _write_floor(study: Study, console: Console) -> None:
    write_heading(console, "Floor: no schedule on this machine is faster")
    floor = study.floor
    if floor.seconds <= 0:
        write_line(console, "Nothing is proved: no resource that this step loads has a known peak rate.")
    else:
        _write_bound(floor, "load / peak", console)
        if floor.rule == "cycle":
            alone = format_seconds(floor.load_seconds)
            write_line(console, f"The load floor alone, for any order of the tasks: {alone}.")
        elif floor.cycle_seconds > 0:
            write_line(console, f"The chain through one token alone: {format_seconds(floor.cycle_seconds)}.")
        write_line(console, f"One step alone, from empty buffers: at least {format_seconds(floor.cold_seconds)}.")
        if study.next_bottleneck is not None:
            then = study.next_bottleneck
            gone = [fold(run) for run in runs(binding(floor))]
            if then.gain < 1000:
                faster = f"the floor be {_factor(then.gain)} as fast"
                text = f"Were {and_text(gone)} no limit, {then.name} would bind and {faster}."
            else:
                text = f"Were {and_text(gone)} no limit, no other known peak rate would come near."
            write_line(console, text)
    mean = ", in the mean over steps" if study.of_mean else ""
    write_heading(console, f"The same at sustained rates: no schedule of this model is faster{mean}")
    if study.of_mean:
        write_line(console, "How many experts are read is a mean over steps: a single step may be below this.")
    if study.floor_sustained.seconds <= 0:
        write_line(console, "Nothing is known: no resource that this step loads has a known sustained rate.")
        return
    _write_bound(study.floor_sustained, "load / sustained", console)
    write_line(console, f"One step alone: {format_seconds(study.floor_sustained.cold_seconds)}.")


def _write_bound(floor: Floor, ratio: str, console: Console) -> None:
    """A bound as formula, numbers and result, with its reason."""
    several = len(runs(floor.bottleneck)) > 1
    if floor.rule == "cycle":
        over = f", over {floor.in_flight} steps in flight" if floor.in_flight > 1 else ""
        if several:
            write_line(console, "A token passes these one after another: times add.")
        else:
            write_line(console, "Each token waits for the one before it: the chain through one token binds.")
        write_line(console, f"T >= sum along the chain of {ratio}{over}")
    else:
        if several:
            write_line(console, "These bind together: a faster one of them alone changes nothing.")
        write_line(console, f"T >= max over resources of {ratio}")
    for index, line in enumerate(_terms(floor.terms)):
        sign = ("+ " if index else "  ") if floor.rule == "cycle" else "  "
        write_line(console, f"{sign}{line}", indent=2, hang=4)
    if floor.spared_seconds > 0:
        write_line(console, f"- {format_seconds(floor.spared_seconds)} that caches may spare", indent=2)
    if floor.rule == "cycle" and floor.in_flight > 1:
        write_line(console, f"/ {floor.in_flight} steps in flight", indent=2)
    write_line(console, f"= {format_seconds(floor.seconds)}", style="bold", indent=2)


def _terms(terms: Sequence[Term]) -> list[str]:
    """Each term as "dram0  22.2 GB / 96 GB/s = 231 ms", in columns."""
    cells: list[Sequence[str]] = []
    for term in terms:
        name = fold((term.resource, *term.also))
        if not term.rate:
            cells.append((name, "", "", format_seconds(term.seconds)))
            continue
        amount, rate = formats(term.unit)
        seconds = term.amount / term.rate  # before caches, whose share is a line of its own
        cells.append(
            (name, amount(term.amount, DIGITS), rate(term.rate, DIGITS), format_seconds(seconds))
        )
    folded_cells = fold_rows(cells)
    wide, load, speed = (max((cell_len(row[column]) for row in folded_cells), default=0) for column in range(3))
    lines = []
    for row in folded_cells:
        quotient = f"{row[1]:>{load}} / {row[2]:<{speed}} = " if row[1] else " " * (load + speed + 6)
        lines.append(f"{row[0]:<{wide}}  {quotient}{row[3]}")
    return lines


def _write_times(study: Study, console: Console) -> None:
    write_heading(console, "Times")
    expected, tokens = study.overlapped, study.tokens_per_s
    rows = [
        ("floor", study.floor.seconds, tokens.floor, study.floor.cold_seconds),
        ("same, sustained rates", study.floor_sustained.seconds, None, study.floor_sustained.cold_seconds),
        (f"expected ({expected.policy})", expected.seconds, tokens.overlapped, expected.cold_seconds),
        ("serial", study.serial.seconds, tokens.serial, study.serial.cold_seconds),
    ]
    sign = ">= " if study.uncounted else ""
    signs = ("", "", sign, sign)  # the first two are bounds in any case
    shown = [[what, _at_least(sign, seconds), number_text(rate), _at_least(sign, cold)]
             for sign, (what, seconds, rate, cold) in zip(signs, rows, strict=True)]  # fmt: skip
    unit = _unit(study)
    write_table(console, ["", "back to back", unit, "one step alone"], shown, right={1, 2, 3}, bold={2})
    left_out = [note.removesuffix(NOT_COUNTED) for note in fold_notes(study.assumptions) if note.endswith(NOT_COUNTED)]
    if left_out:
        names = ", ".join(left_out)
        write_line(console, f"No time here counts {names}, whose rate is unknown: a step may take far longer.")
    if study.uncounted:
        has = "they have rates" if len(study.uncounted) > 1 else "it has a rate"
        write_line(console, f"How long it takes depends on {fold(study.uncounted)}: what to expect is not known before "
                            f"{has}.")
    for note in study.assumptions:
        if note.endswith(UNLESS_SET):
            write_line(console, f"{note}.")
    if unit == "it/s":
        count = study.workload["steps"]
        whole = expected.cold_seconds + (count - 1) * expected.seconds
        text = f"Expected {expected.seconds:.4g} s/it"
        write_line(console, f"{text}; {count} iterations: {format_seconds(whole)}." if count > 1 else f"{text}.")
    if expected.low < expected.high and not study.uncounted:
        ends = f"Expected between {format_seconds(expected.low)} and {format_seconds(expected.high)}"
        if tokens.overlapped is not None and expected.low > 0:
            per_step = tokens.overlapped * expected.seconds
            ends += f" ({number_text(per_step / expected.high)} to {number_text(per_step / expected.low)} {unit})"
        loads = {one.load for one in study.open.figures} if study.open is not None else {False}
        of = " and of the loads" if len(loads) > 1 else ""
        write_line(console, f"{ends}, from the ends of the {'loads' if loads == {True} else 'sustained rates' + of}.")
        if study.open is not None:
            _write_open(study.open, study, console)
    elif expected.seconds > 0 and not study.uncounted:
        write_line(console, "No interval: every sustained rate and load that matters here is a single figure.")
    if tokens.per_sequence != tokens.overlapped:
        write_line(console, f"Expected per sequence: {number_text(tokens.per_sequence)} tokens/s.")
    write_line(console, "Serial adds up every task's own time; it is no upper bound on a real machine.")


def _unit(study: Study) -> str:
    """What a step yields, per second: tokens, or itself, an iteration of a diffusion model."""
    return "it/s" if study.workload.get("phase") == "denoise" else "tokens/s"


def _write_open(found: Open, study: Study, console: Console) -> None:
    """What uncertain figures leave open, and which of them to measure."""
    if len(found.may_bind) > 1:
        write_line(console, f"Within them what binds is open: {in_words(found.may_bind)}.")
    if found.measure is None:
        return
    figure, left = found.measure.figure, found.measure
    low, high = figure.interval.low, figure.interval.high
    if figure.unit == "s":
        what = f"the time of {figure.accesses[0].rpartition(' ')[0]} on {fold(figure.names).replace('.given', '')}"
        ends = f"{number_text(1 / high)} to {number_text(1 / low)} of what is stated"
    elif figure.load:
        show: Callable[..., str] = format_flop if figure.unit == "FLOP" else format_bytes
        what = f"how {'much FLOP' if figure.unit == 'FLOP' else 'many bytes'} {figure.names[0]} has"
        ends = f"{show(low)} to {show(high)}"
    else:
        show = format_flops if figure.unit == "FLOP" else format_rate
        what, ends = fold(figure.names), f"{show(low)} to {show(high)}"
    if left.high <= left.low * (1 + 1e-9):
        write_line(console, f"Measure {what} first ({ends}): it alone settles the expected time.")
        return
    after = f"{format_seconds(left.low, DIGITS)} to {format_seconds(left.high, DIGITS)}"
    if format_seconds(left.low, DIGITS) == format_seconds(left.high, DIGITS):
        write_line(console, f"Measure {what} first ({ends}): it alone settles the expected time, to "
                            f"{format_seconds(left.high - left.low)}.")
        return
    decides = ", and what binds is known" if left.binding and len(found.may_bind) > 1 else ""
    write_line(console, f"Measure {what} first ({ends}): at either end of it at most {after} is left{decides}.")


def _write_overlap(study: Study, console: Console) -> None:
    write_heading(console, "What overlap can hide")
    if study.overlapped.seconds <= 0:
        write_line(console, "No time of this step is known, so nothing can be said of what overlap hides.")
        return
    if study.hideable_share is None:
        write_line(console, "Nothing is transferred, so there is nothing to hide behind compute.")
    else:
        share = format_share(study.hideable_share)
        write_line(console, f"Behind compute: {share} of the time that the transfers take by themselves.")
    if study.hideable_among_transfers is None:
        write_line(console, "Among transfers: none, as nothing is transferred.")
    elif study.hideable_among_transfers <= 0:
        write_line(console, "Among transfers: nothing; no two of them can run beside each other.")
    else:
        share = format_share(study.hideable_among_transfers)
        text = f"Among transfers (one beside another, as disk and PCIe): {share} of the sum of their times."
        write_line(console, text)
    if (help_ := _only_help(study)) is not None:
        write_line(console, help_)


def _only_help(study: Study) -> str | None:
    """What alone can make a step shorter, where what is busiest at sustained rates is busy for nearly all of it."""
    bound, seconds = study.floor_sustained, study.overlapped.seconds
    if bound.rule != "load" or seconds <= 0 or bound.seconds < NEARLY_ALL * seconds:
        return None
    busy = [row for row in study.resources if row.name in bound.bottleneck]
    names = and_text([fold(run) for run in runs(bound.bottleneck)])
    share = f"{names} {'is' if len(busy) == 1 else 'are'} busy for {format_share(bound.seconds / seconds)} of the step"
    less = "FLOP" if any(row.unit == "FLOP" for row in busy) else "bytes"
    return f"{share}: a shorter one needs fewer {less} there, or more or faster of it; overlap does not help."


def _write_memory(study: Study, console: Console) -> None:
    write_heading(console, "Memory")
    rows: list[list[str]] = []
    bold: set[int] = set()
    for name, row in _alike(study.memory):
        bold.add(len(rows))
        left = "" if row.capacity is None else format_bytes_both(max(0, row.capacity - row.used)) + " free"
        if row.missing:
            left = f"MISSING {format_bytes_both(row.missing)}"
        capacity = "not known" if row.capacity is None else format_bytes_both(row.capacity)
        rows.append([name, format_bytes_both(row.used), capacity, left])
        rows += [[f"  {part}", format_bytes_both(size), "", ""] for part, size in row.parts.items()]
    write_table(console, ["memory", "used", "capacity", ""], rows, right={1, 2, 3}, bold=bold)
    for line in _missing(study.memory):
        write_line(console, f"DOES NOT FIT: {line}", style="bold red")
    if study.room:
        write_line(console, f"The most that fits, all else as it is: {'; '.join(map(_room_text, study.room))}.")
    elif study.first_limit and study.fits:
        write_line(console, f"{study.first_limit}.")


def _alike(memory: Sequence[MemoryRow]) -> list[tuple[str, MemoryRow]]:
    """Each memory, or run of memories in which the same lies, under one name."""
    groups: dict[object, list[MemoryRow]] = {}
    for row in memory:
        groups.setdefault((row.capacity, row.missing, tuple(row.parts.items())), []).append(row)
    by_name = {row.name: row for row in memory}
    return [(folded(run), by_name[run[0]]) for group in groups.values() for run in runs(row.name for row in group)]


def _missing(memory: Sequence[MemoryRow]) -> list[str]:
    """What lacks how much, a line for each memory or run of memories."""
    lines = []
    for name, row in _alike(memory):
        if row.missing:
            each = " each" if name != row.name else ""
            lines.append(f"{name} lacks {format_bytes_both(row.missing)}{each}.")
            if not row.missing_at_mean:
                lines[-1] += (" Buffers have to hold the most that a step may fetch at once; with what one fetches on "
                              "average it would fit.")
    return lines


def _room_text(room: Room) -> str:
    if room.what == "layers":
        return f"{room.most} layers in {room.memory} (now {room.now})"
    if room.most is None:
        return f"no {room.what}, not even 1 ({room.memory} is full)"
    then = f"{room.memory} is full" if room.memory else "no plan can be made"
    return f"{room.what} {room.most:,} (now {room.now:,}; then {then})"


def _write_changes(study: Study, console: Console) -> None:
    if not study.changes:
        return
    write_heading(console, "What would change it (one change at a time)")
    rows = [[change.what, format_seconds(change.seconds), _gain(change)] for change in study.changes]
    write_table(console, ["change", "expected", "items/s" if _unit(study) == "it/s" else "tokens/s"], rows, right={1})
    if study.overlapped.low < study.overlapped.high or any(row.assumed for row in study.resources):
        write_line(console, "Each at the rates as shown above: at their ends a change may be worth less or more.")


def _gain(change: Change) -> str:
    if change.gain < 1 - BUYS_NOTHING:
        return f"{_factor(change.gain)}, slower"
    return "buys nothing" if change.gain < 1 + BUYS_NOTHING else _factor(change.gain)


# --- pieces of text --------------------------------------------------------------------------------------------------


def _seconds(value: float | None) -> str:
    return "-" if value is None or not math.isfinite(value) else format_seconds(value)


def _at_least(sign: str, seconds: float) -> str:
    return f"{sign}{_seconds(seconds)}" if seconds > 0 else "-"


def formats(unit: str) -> tuple[Callable[..., str], Callable[..., str]]:
    """How amounts and rates in a resource's unit are printed; a given time is seconds, one of them each second."""
    if unit == "FLOP":
        return format_flop, format_flops
    if unit == "s":
        return format_seconds, lambda value, digits: f"{number_text(value)} s/s"
    return format_bytes, format_rate


def _share(value: float | None) -> str:
    """A share of the step; below a tenth of a per cent its digits say nothing."""
    if value is None:
        return "-"
    return "<0.1 %" if 0 < value < 0.001 else format_share(value)


def _factor(value: float) -> str:
    return f"{number_text(value)} x"
