"""Every term of an answer as text: task by task, resource by resource, then the formulas with their numbers.

What is alike (ranks that work alike) is printed once, with a range for its name. Amounts have four digits, so that a
reader can add them up again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.console import Console

from offload.bounds import Floor, Term
from offload.explain import Buffers, Explanation, GivenTerm, Sum, TaskTerms, Waiting, Work
from offload.given import surely
from offload.printing import and_text, fold_rows, write_heading, write_line
from offload.ranges import fold, folded, runs
from offload.report import DIGITS, formats
from offload.units import format_bytes, format_seconds


def write_explanation(explanation: Explanation, console: Console) -> None:
    """Print all terms: tasks, loads, the floor, the schedule and the estimates."""
    write_heading(console, "Every term: the tasks of one step, each by itself")
    for task in explanation.tasks:
        _write_task(task, console)
    if any(work.assumed for task in explanation.tasks for work in task.work):
        write_line(console, "* assumed: a usual share of the rated or peak figure, not measured.", style="dim")
    if any(not _once(work) for task in explanation.tasks for work in task.work):
        write_line(console, '"x 0.5": how often a byte that is moved loads it; across ranks, its share of them.',
                   style="dim")  # fmt: skip
    write_heading(console, "Every term: the load L of each resource, and L / B")
    for names, one in _alike(explanation.sums):
        _write_sum(names, one, console)
    write_heading(console, "Every term: the floor")
    _write_floor(explanation, console)
    write_heading(console, "Every term: the schedule")
    _write_schedule(explanation, console)
    write_heading(console, "Every term: times that are given, not counted")
    if not explanation.estimates:
        write_line(console, "None: every time comes from an amount and a rate.")
    for given in explanation.estimates:
        write_line(console, _given(given), indent=2)


# Tasks.


def _write_task(task: TaskTerms, console: Console) -> None:
    often = f"{task.count}" if task.every == 1 else f"{task.count}/{task.every}"
    write_line(console, f"{often} x {task.label}: {_what(task)}", style="bold")
    cells = fold_rows([_name(work, task), _quotients(work)] for work in task.work)
    wide = max((cell_len(row[0]) for row in cells), default=0)
    for name, text in cells:
        write_line(console, f"{name:<{wide}}  {text}", indent=2, hang=4)
    if task.latency[1] > 0:
        least = f" (at least {format_seconds(task.latency[0])})" if task.latency[0] else ""
        write_line(console, f"latency {format_seconds(task.latency[1])}{least}", indent=2)
    on = f", on {fold(task.longest)}" if task.longest and len(task.work) > 1 else ""
    write_line(console, f"alone it takes {format_seconds(task.seconds, DIGITS)}{on}", indent=2)


def _what(task: TaskTerms) -> str:
    """What is moved and how, or what is read and written."""
    parts = []
    for moved in task.moved:
        amount = f"{format_bytes(moved.bytes, DIGITS)} of {moved.what}"
        if task.transfer:
            over = f" over {and_text([folded(run) for run in runs(task.links)])}" if task.links else ""
            parts.append(f"{amount}, {moved.source} to {moved.destination}{over}")
        else:
            parts.append(f"{amount} {'in' if moved.destination is None else 'to'} {moved.destination or moved.source}")
    return "; ".join(parts) or "nothing is read or moved"


def _name(work: Work, task: TaskTerms) -> str:
    """The resource, the kind of access where there are several, and " x 2" where a moved byte loads it twice."""
    several = sum(other.resource == work.resource for other in task.work) > 1
    text = f"{work.resource} ({work.access})" if several else work.resource
    return text if _once(work) else f"{text} x {work.coefficient:.4g}"


def _once(work: Work) -> bool:
    return work.coefficient is None or abs(work.coefficient - 1) < 1e-9


def _quotients(work: Work) -> str:
    """ "855.6 MB / 31.51 GB/s = 27.2 ms at peak; / 26.3 GB/s = 32.5 ms sustained"."""
    amount, rate = formats(work.unit)
    if work.unit == "s":
        return f"{format_seconds(work.load, DIGITS)} given" + ("" if work.least else ", in no floor")
    load = amount(work.load, DIGITS)
    if work.fewest < work.most:
        load += f" ({amount(work.fewest, DIGITS)} to {amount(work.most, DIGITS)})"
    slow = f"/ {rate(work.sustained, DIGITS)}{'*' if work.assumed else ''} = {format_seconds(work.seconds)} sustained"
    if work.peak is None:
        return f"{load} {slow}; no peak rate is known"
    if work.least == 0 < work.load:
        return f"0 in floors, as a cache may hold it; {load} {slow}"
    seconds = format_seconds(surely(work.peak_seconds))
    fast = f"{amount(work.least, DIGITS)} / {rate(work.peak, DIGITS)} = {seconds} at peak"
    return f"{fast}; {'' if work.least == work.load else f'{load} '}{slow}"


# Loads.


def _alike(sums: Sequence[Sum]) -> Iterable[tuple[list[str], Sum]]:
    """Each sum, or run of resources with the same sum, once."""
    groups: dict[object, dict[str, Sum]] = {}
    for one in sums:
        key = (one.unit, one.terms, one.cache, one.peak, one.parts, one.seconds)
        groups.setdefault(key, {})[one.resource] = one
    for group in groups.values():
        for run in runs(group):
            yield run, group[run[0]]


def _write_sum(names: list[str], one: Sum, console: Console) -> None:
    name = folded(names)
    each = " each" if len(names) > 1 else ""
    amount, rate = formats(one.unit)
    style = "bold" if one.binding else ""
    write_line(console, f"L_{name}{each} = {_summands(one, least=True)}", style=style)
    if one.load != one.least:
        write_line(console, f"expected: L_{name}{each} = {_summands(one, least=False)}", indent=2)
    if one.unit == "s":
        return
    if one.peak is None:
        write_line(console, "no peak rate is known: not in the floor", indent=2)
    else:
        load = amount(one.least, DIGITS)
        if one.cache and one.least:
            kept = amount(min(one.cache, one.least), DIGITS)
            load = f"({load} - {kept} that its cache may keep)"
        seconds = format_seconds(surely(one.peak_seconds), DIGITS)
        write_line(console, f"{load} / {rate(one.peak, DIGITS)} = {seconds} at peak",
                   indent=2)  # fmt: skip
    served: dict[str, float] = {}
    for part in one.parts:
        if part.load > 0:
            speed = rate(part.rate, DIGITS) + ("*" if part.assumed else "")
            served[speed] = served.get(speed, 0.0) + part.load
    parts = [f"{amount(load, DIGITS)} / {speed}" for speed, load in served.items()]
    if parts:
        write_line(console, f"{' + '.join(parts)} = {format_seconds(one.seconds, DIGITS)} sustained", indent=2)


def _summands(one: Sum, least: bool) -> str:
    """ "42 x 511.7 MB + 1 x 16.38 kB = 21.49 GB"; equal amounts together, none where it is 0."""
    amount = formats(one.unit)[0]
    counts: dict[tuple[str, int], int] = {}
    for term in one.terms:
        size = term.least if least else term.load
        if size:
            key = (amount(size, DIGITS), term.every)
            counts[key] = counts.get(key, 0) + term.count
    total = amount(one.least if least else one.load, DIGITS)
    texts = [f"{count if every == 1 else f'{count}/{every}'} x {size}" for (size, every), count in counts.items()]
    return f"{' + '.join(texts)} = {total}" if texts else total


# The floor.


def _write_floor(explanation: Explanation, console: Console) -> None:
    floor = explanation.floor
    times = [(one.resource, format_seconds(one.peak_seconds, DIGITS)) for one in explanation.sums if one.peak_seconds]
    if not times:
        write_line(console, "Nothing is proved: no resource that this step loads has a known peak rate.")
        return
    texts = [f"{seconds} ({names})" for names, seconds in fold_rows(times)]
    write_line(console, "Every resource serves its load each step, in any order: T >= max over resources of L / B")
    write_line(console, f"T >= max({', '.join(texts)}) = {format_seconds(floor.load_seconds, DIGITS)}", indent=2)
    if floor.rule == "cycle":
        write_line(console, "A token passes its tasks one after another, so along that chain times add:")
        write_line(console, f"T >= {_chain(floor)} = {format_seconds(floor.seconds, DIGITS)}", indent=2)
    write_line(console, f"T >= {format_seconds(floor.seconds, DIGITS)}", style="bold")


def _chain(floor: Floor) -> str:
    """The sum along the chain: "22.2 GB / 96 GB/s (dram0) + 6.5 us (latency) - 75.5 MB / 1.008 TB/s (cache ...)"."""
    text = " + ".join(f"{_ratio(term)} ({fold((term.resource, *term.also))})" for term in floor.terms)
    for term in floor.spared:
        text += f" - {_ratio(term)} (the cache of {fold((term.resource, *term.also))} may keep)"
    return f"({text}) / {floor.in_flight} steps in flight" if floor.in_flight > 1 else text


def _ratio(term: Term) -> str:
    if not term.rate:
        return format_seconds(term.seconds, DIGITS)
    if term.unit == "s":
        return format_seconds(term.amount, DIGITS)
    amount, rate = formats(term.unit)
    return f"{amount(term.amount, DIGITS)} / {rate(term.rate, DIGITS)}"


# The schedule.


def _write_schedule(explanation: Explanation, console: Console) -> None:
    serial = " + ".join(
        f"{task.count if task.every == 1 else f'{task.count}/{task.every}'} x {format_seconds(task.seconds, DIGITS)}"
        for task in explanation.tasks
        if task.seconds > 0
    )
    write_line(console, "Serial: every task alone, one after another.")
    write_line(console, f"{serial or '0 s'} = {format_seconds(explanation.serial.seconds, DIGITS)}", indent=2)
    overlapped = explanation.overlapped
    expected = format_seconds(overlapped.seconds, DIGITS)
    if overlapped.policy == "serial":
        write_line(console, f"Expected (no overlap): the same, {expected}.")
        return
    write_line(console, f"Expected ({overlapped.policy}): {expected}, the longest cycle of these waits, or serial "
               "where that is shorter. Where queues want more of a resource than it has, they share it in the way "
               "that is shortest.")  # fmt: skip
    queues = [f"{name} ({count})" for name, count in explanation.queues]
    write_line(console, f"Queues, each one task at a time, in the order of the plan: {', '.join(queues)}.")
    for waiting in explanation.waits:
        write_line(console, _waiting(waiting), indent=2)
    for slots in explanation.buffers:
        write_line(console, _slots(slots), indent=2)


def _waiting(waiting: Waiting) -> str:
    names = [f"{name} (its first tile, in floors)" if name in waiting.streams else name for name in waiting.on]
    for name, steps in waiting.before:
        earlier = "the step before" if steps == 1 else f"{steps} steps before"
        names.append(f"{name} of {earlier}")
    return f"{waiting.task} waits for {and_text(names)}."


def _slots(slots: Buffers) -> str:
    size = f"{format_bytes(slots.size, DIGITS)} in {fold(slots.places)}"
    if not slots.count:
        return f"{slots.move}: a buffer for each, of {size}; it never waits for one."
    until = f", until {and_text(slots.until)} has ended" if slots.until else ""
    return f"{slots.move}: {slots.count} buffer{'s' if slots.count > 1 else ''} of {size}; each takes one{until}."


def _given(given: GivenTerm) -> str:
    ends = "" if given.low == given.high else f" ({format_seconds(given.low)} to {format_seconds(given.high)})"
    proved = f"floors count {format_seconds(given.least)}" if given.least else "in no floor"
    source = f". Source: {given.source}" if given.source else ""
    return f"{given.task} on {given.processor}: {format_seconds(given.value, DIGITS)}{ends}, {proved}{source}"
