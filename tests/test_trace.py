"""Traces: the schedule of the report as events that viewers of Chrome's format open."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings

from offload import cli, compile_step, load_plan, schedule
from offload.plan import Overlap
from offload.schedules import cold_timeline, serial, steady_timeline
from offload.trace import trace
from tests.strategies import plans, topologies
from tests.test_ladders import compiled, scheduled

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
QUICK = (Phase.explicit, Phase.reuse, Phase.generate)  # shrinking a plan takes minutes
BY_HAND = ROOT / "examples" / "by-hand.yaml"


def step_of(path):
    plan, topology = load_plan(path)
    return compile_step(topology, plan)


def check(step, made):
    """Events are sound, threads do not overlap, arrows lead from the end of a task to no earlier start."""
    events = made["traceEvents"]
    names = {(one["pid"], one["tid"]): one["args"]["name"] for one in events if one["name"] == "thread_name"}
    threads, slices = defaultdict(list), [one for one in events if one["ph"] == "X"]
    for one in slices:
        assert one["ts"] >= 0 and one["dur"] >= 0 and (one["pid"], one["tid"]) in names
        assert one["ts"] / 1e6 == pytest.approx(one["args"]["start_s"], abs=1e-9)
        threads[one["pid"], one["tid"]].append((round(one["ts"] * 1e3), round((one["ts"] + one["dur"]) * 1e3)))
    for spans in threads.values():
        spans.sort()
        assert all(one[1] <= two[0] for one, two in zip(spans, spans[1:], strict=False))
    flows = defaultdict(dict)
    for one in events:
        if one["ph"] in "sf":
            flows[one["id"]][one["ph"]] = one
    for flow in flows.values():
        assert set(flow) == {"s", "f"}
        ends = []
        for one in flow.values():
            inside = [task for task in slices if (task["pid"], task["tid"]) == (one["pid"], one["tid"])
                      and task["ts"] <= one["ts"] <= task["ts"] + task["dur"]]  # fmt: skip
            ends.append(inside)
        assert any(a["args"]["end_s"] <= b["args"]["start_s"] for a in ends[0] for b in ends[1])
    for pid in (1, 2):
        last = max((one["args"]["end_s"] for one in slices if one["pid"] == pid), default=0.0)
        if pid == 1:
            assert last == pytest.approx(made["otherData"]["cold_seconds"], rel=1e-12)
        assert last <= made["otherData"]["cold_seconds"] * (1 + 1e-12)
    used = {use.resource for row in step.rows for use in row.uses}
    assert {name.partition(", beside")[0] for (pid, _), name in names.items() if pid == 2} <= used


@pytest.mark.slow
@settings(max_examples=30, deadline=None, phases=QUICK, derandomize=True)
@given(topologies(), plans())
def test_the_timeline_is_the_schedule_of_the_report(topology, plan):
    step = compiled(topology, plan)
    found = scheduled(step)
    timeline = cold_timeline(step)
    assert timeline.seconds == pytest.approx(found.cold_seconds, rel=1e-12, abs=0)
    for i, waits in enumerate(timeline.waits):
        assert timeline.starts[i] == max((timeline.ends[on] for on in waits), default=0.0)
    for i, waits in enumerate(step.waits):
        assert all(timeline.ends[wait.on] <= timeline.starts[i] for wait in waits), "what a task needs is done"
    check(step, trace(step))


@pytest.mark.slow
@settings(max_examples=30, deadline=None, phases=QUICK, derandomize=True)
@given(topologies(), plans())
def test_steps_back_to_back_take_their_period_in_the_long_run(topology, plan):
    step = compiled(topology, plan)
    found = scheduled(step)
    # These examples have settled after 12 rounds, and 12 more are a whole number of their cycles.
    few, many = (steady_timeline(step, rounds=n) for n in (12, 24))
    if few is not None and many is not None:
        growth = (many.seconds - few.seconds) / (many.steps - few.steps)
        assert growth == pytest.approx(found.seconds, rel=1e-9, abs=1e-12)


@pytest.mark.few
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_have_a_trace(path):
    step = step_of(path)
    small = replace(step.plan, blocks=tuple(replace(one, repeat=min(one.repeat, 4)) for one in step.plan.blocks))
    step = compile_step(step.topology, small)
    check(step, trace(step))


def test_without_overlap_tasks_follow_each_other():
    step = step_of(BY_HAND)
    step = compile_step(step.topology, replace(step.plan, overlap=Overlap("none", 1)))
    timeline = cold_timeline(step)
    assert list(timeline.starts[1:]) == list(timeline.ends[:-1])
    assert timeline.seconds == pytest.approx(serial(step).cold_seconds, rel=1e-12)
    assert timeline.seconds == pytest.approx(schedule(step).cold_seconds, rel=1e-12)
    assert steady_timeline(step, rounds=3).seconds == pytest.approx(3 * serial(step).seconds, rel=1e-12)


def test_the_command_writes_what_the_report_says(tmp_path, capsys):
    path = tmp_path / "out.json"
    path.write_text("old", encoding="utf-8")
    assert cli.main(["step", str(BY_HAND), "--json", "--trace", str(path)]) == 0
    answer, made = json.loads(capsys.readouterr().out), json.loads(path.read_text(encoding="utf-8"))
    assert made["otherData"]["cold_seconds"] == answer["overlapped"]["cold_seconds"]
    assert made["otherData"]["seconds"] == answer["overlapped"]["seconds"]
    cold = [one for one in made["traceEvents"] if one["ph"] == "X" and one["pid"] == 1]
    assert max(one["args"]["end_s"] for one in cold) == answer["overlapped"]["cold_seconds"]
    threads = [one["args"]["name"] for one in made["traceEvents"] if one["name"] == "thread_name"]
    assert {"fetch", "gpu0", "dram0", "pcie0.hbm0", "hbm0"} <= set(threads)
    assert os.listdir(tmp_path) == ["out.json"], "nothing else is left"


def test_a_trace_that_cannot_be_written_loses_no_report(tmp_path, capsys):
    for path in (tmp_path / "not there" / "out.json", tmp_path):
        assert cli.main(["step", str(BY_HAND), "--trace", str(path)]) == 2
        captured = capsys.readouterr()
        assert "Times" in captured.out and str(path) in captured.err
    full = ["step", "llama-3.1-70b:bf16", "--on", "desktop-4090", "--gpu-layers", "80"]
    assert cli.main([*full, "--trace", str(tmp_path / "out.json")]) == 2
    assert "does not fit" in capsys.readouterr().err and os.listdir(tmp_path) == []
