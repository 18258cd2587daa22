"""A schedule as a trace that Perfetto and chrome://tracing open (Chrome's trace event format).

One step alone, by queue (the moves of a name, the computes of a processor; arrows from what a task waits for in another
queue) and again by resource (a lane each, and more where tasks share it); then some steps back to back, by queue.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, cast

from offload import __version__
from offload.errors import PlotError
from offload.files import write_whole
from offload.schedules import Timeline, cold_timeline, schedule, steady_timeline
from offload.step import Step, distinct

COLD, RESOURCES, STEADY = 1, 2, 3  # processes of the trace


def trace(step: Step, buffers: int | None = None, rounds: int = 3) -> dict[str, Any]:
    """The schedule of a step as trace events, ready for JSON.

    Times `ts` and `dur` are microseconds, rounded to whole nanoseconds, as viewers do; `args` hold seconds in full.
    otherData.cold_seconds is `schedule(step, buffers).cold_seconds`, at which the first processes end. rounds : of
    steps back to back, 0 for none. Raises PlanError as `schedule`.
    """
    step, _ = distinct(step)
    found = schedule(step, buffers, ends=False)
    cold = cold_timeline(step, buffers)
    events = [*_queues(COLD, "one step alone, by queue", step, cold),
              *_resources(RESOURCES, "one step alone, by resource", step, cold)]  # fmt: skip
    steady = steady_timeline(step, buffers, rounds) if rounds else None
    if steady is not None:
        events += _queues(STEADY, f"{steady.steps} steps back to back, from empty buffers", step, steady)
    return _ready(step, events, cold_seconds=found.cold_seconds, seconds=found.seconds, policy=found.policy)


def timelines(step: Step, predicted: Timeline, measured: Timeline | None) -> dict[str, Any]:
    """A predicted and a measured timeline of a step, both from their begin, as trace events, ready for JSON.

    Each by queue, then each by resource. measured : None where nothing was. Times as of `trace`.
    """
    found = [(f"predicted, {predicted.steps} steps from empty buffers", predicted)]
    if measured is not None:
        found.append((f"measured, the first {measured.steps} steps", measured))
    events: list[dict[str, Any]] = []
    for number, (name, one) in enumerate(found, 1):
        events += _queues(number, f"{name}, by queue", step, one)
    for number, (name, one) in enumerate(found, len(found) + 1):
        events += _resources(number, f"{name}, by resource", step, one)
    return _ready(step, events, predicted_seconds=predicted.seconds,
                  measured_seconds=None if measured is None else measured.seconds)  # fmt: skip


def _ready(step: Step, events: list[dict[str, Any]], **figures: Any) -> dict[str, Any]:
    """Events ready for JSON, with what they are of."""
    of = {"title": step.title, "topology": step.topology.name, "offload_version": __version__}
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": of | figures}


def write_timelines(step: Step, both: tuple[Timeline, Timeline | None], path: str) -> None:
    """Write `timelines` to a file. Raises as `write_trace`."""
    _write(timelines(step, *both), path)


def write_trace(step: Step, path: str, buffers: int | None = None) -> None:
    """Write the trace of a step to a file, which is replaced whole or not at all.

    Raises PlotError where it cannot be written.
    """
    _write(trace(step, buffers), path)


def _write(data: dict[str, Any], path: str) -> None:
    text = json.dumps(data, allow_nan=False, separators=(",", ":")) + "\n"
    if not path or path == "-":
        raise PlotError(f'"{path}" is no file: name one for the trace, as step.json.')
    if os.path.exists(path) and not os.path.isfile(path):
        raise PlotError(f"{path} is no file: name one that may be written for the trace.")
    write_whole(path, text.encode(), lambda why: PlotError(f"the trace cannot be written to {path}: {why}."))


def _queues(pid: int, name: str, step: Step, timeline: Timeline) -> Iterator[dict[str, Any]]:
    """A thread for each queue with its tasks, and arrows between queues."""
    rows = [None if number is None else step.rows[number] for number in timeline.rows]
    threads = {lane: tid for tid, lane in enumerate(dict.fromkeys(row.lane for row in rows if row is not None), 1)}
    yield from _named(pid, name, threads)
    for i, row in enumerate(rows):
        if row is not None:
            yield _slice(pid, threads[row.lane], step, timeline, i)
    for i, waits in enumerate(timeline.waits):
        for on in waits:
            first, then = rows[on], rows[i]
            if first is None or then is None or first.lane == then.lane:
                continue  # the order within a thread is plain to see
            for phase, at, lane in (("s", on, first.lane), ("f", i, then.lane)):
                # A flow is bound to the task that is at work at its time: the middle is inside it for certain.
                middle = (_nanoseconds(timeline.starts[at]) + _nanoseconds(timeline.ends[at])) / 2e3
                bound = {"bp": "e"} if phase == "f" else {}
                yield {"ph": phase, "name": "waits", "cat": "waits", "id": f"{pid}.{on}.{i}", "pid": pid,
                       "tid": threads[lane], "ts": middle, **bound}  # fmt: skip


def _resources(pid: int, name: str, step: Step, timeline: Timeline) -> Iterator[dict[str, Any]]:
    """A thread for each resource with the tasks that use it, and further ones for those that run at the same time."""
    users: dict[str, list[int]] = {name: [] for name in step.resources}
    order = sorted(range(len(timeline.rows)), key=lambda i: (timeline.starts[i], i))
    for i in order:
        if (row := timeline.rows[i]) is not None:
            for use in step.rows[row].uses:
                users[use.resource].append(i)
    threads: dict[str, int] = {}
    slices = []
    for resource, tasks in users.items():
        free: list[int] = []  # when each of its threads is free again [ns]
        for i in tasks:
            begin, end = _nanoseconds(timeline.starts[i]), _nanoseconds(timeline.ends[i])
            line = next((line for line, at in enumerate(free) if at <= begin), len(free))
            free[line:line + 1] = [end]  # fmt: skip
            lane = resource if not line else f"{resource}, beside ({line + 1})"
            slices.append((threads.setdefault(lane, len(threads) + 1), i))
    yield from _named(pid, name, threads)
    for tid, i in slices:
        yield _slice(pid, tid, step, timeline, i)


def _slice(pid: int, tid: int, step: Step, timeline: Timeline, i: int) -> dict[str, Any]:
    """One task as a complete event."""
    row = step.rows[cast(int, timeline.rows[i])]  # what does not happen has no slice
    begin, end = _nanoseconds(timeline.starts[i]), _nanoseconds(timeline.ends[i])
    uses = {use.resource: f"{use.load:g} {step.resources[use.resource].unit}" for use in row.uses}
    return {
        "ph": "X", "name": row.name, "cat": "transfer" if row.transfer else "compute", "pid": pid, "tid": tid,
        "ts": begin / 1e3, "dur": (end - begin) / 1e3,
        "args": {"start_s": timeline.starts[i], "end_s": timeline.ends[i], "uses": uses},
    }  # fmt: skip


def _named(pid: int, name: str, threads: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    """The names of a process and its threads, and their order."""
    yield _told(pid, 0, "process_name", name=name)
    yield _told(pid, 0, "process_sort_index", sort_index=pid)
    for lane, tid in threads.items():
        yield _told(pid, tid, "thread_name", name=lane)
        yield _told(pid, tid, "thread_sort_index", sort_index=tid)


def _told(pid: int, tid: int, what: str, **args: Any) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": args}


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
