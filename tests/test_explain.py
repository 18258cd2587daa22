"""Every term of an answer: the terms add up to it again, as values and as text, in every example too."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from dataclasses import fields
from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from rich.console import Console

from offload import cli, compile_step, evaluate, load_plan
from offload.answer import explanation_to_json
from offload.bounds import floor, load_seconds
from offload.errors import PlanError, RouteError
from offload.explain import Explanation, explain
from offload.report_explain import write_explanation
from offload.schedules import Schedule, serial
from offload.step import loads
from offload.study import Study
from offload.units import parse_bytes, parse_flop, parse_seconds
from tests.strategies import plans, topologies

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
LONG = {"experts-on-two-sockets", "phases-chunked-prefill", "phases-speculation", "phases-speculation-run",
        "replicas-that-fetch-whole-layers", "replicas-that-share-the-fetch", "train-8b-zero-infinity",
        "train-twin-flow", "weights-page-cache", "weights-split-rows"}  # they take many seconds each
MANY = """\
topology: desktop-4090
tensors:
  w: {bytes: 528 MB, home: dram0}
  state: {bytes: 100 MB, home: hbm0, shared: true}
repeat: 8
in_flight: 2
tasks:
  fetch: {move: w, to: hbm0, host_memory: pageable}
  layer: {compute: gpu0, flops: 1.76 GFLOP, reads: [w], after: fetch}
  sync: {compute: cpu0, time: {sustained: 0.8..1..1.3 ms, peak: 0.5 ms, source: a stopwatch}, after: layer}
  save: {move: state, to: dram0, after: layer, every: 3 steps}
"""
RANKS = """\
topology: dgx-h100
model: {name: llama-3.1-8b, weights: bf16}
workload: {context: 100}
placement: {weights: {hbm0..7: 8 layers, dram0..1: rest}, compute: gpu0..7}
"""


@pytest.fixture(scope="module")
def known(tmp_path_factory) -> Callable[[str], Explanation]:
    """The terms of an example, of a plan with a bit of everything or of ranks that work alike; found when asked for."""
    folder = tmp_path_factory.mktemp("plans")
    paths = {path.stem: path for path in EXAMPLES}
    for name, text in (("many", MANY), ("ranks", RANKS)):
        paths[name] = folder / f"{name}.yaml"
        paths[name].write_text(text, encoding="utf-8")

    @cache
    def found(name: str) -> Explanation:
        plan, topology = load_plan(paths[name])
        return explain(compile_step(topology, plan), evaluate(topology, plan))

    return found


def printed(explanation: Explanation, width: int = 10_000) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    write_explanation(explanation, console)
    return console.file.getvalue()


# --- values ---


def adds_up(explanation: Explanation) -> None:
    """The loads from their terms, the times from the loads, the floor from the times, serial from the tasks."""
    for one in explanation.sums:
        least = sum(term.count / term.every * term.least for term in one.terms)
        load = sum(term.count / term.every * term.load for term in one.terms)
        assert least == pytest.approx(one.least, rel=1e-12) and load == pytest.approx(one.load, rel=1e-12)
        assert sum(part.load for part in one.parts) == pytest.approx(one.load, rel=1e-12)
        assert sum(part.load / part.rate for part in one.parts) == pytest.approx(one.seconds, rel=1e-12)
        if one.peak is not None:
            assert max(0.0, least - one.cache) / one.peak == pytest.approx(one.peak_seconds, rel=1e-12)
        for term in one.terms:
            work = [work for work in explanation.tasks[term.task].work if work.resource == one.resource]
            assert sum(one.least for one in work) == term.least and sum(one.load for one in work) == term.load
    largest = max((one.peak_seconds for one in explanation.sums if one.peak is not None), default=0.0)
    bound = explanation.floor
    assert largest == pytest.approx(bound.load_seconds, rel=1e-12)
    if bound.rule == "cycle":
        chain = sum(term.seconds for term in bound.terms) - sum(term.seconds for term in bound.spared)
        assert chain / bound.in_flight == pytest.approx(bound.seconds, rel=1e-9)
        for term in (*bound.terms, *bound.spared):
            assert not term.rate or term.amount / term.rate == pytest.approx(term.seconds, rel=1e-9)
    one_by_one = sum(task.count / task.every * task.seconds for task in explanation.tasks)
    assert one_by_one == pytest.approx(explanation.serial.seconds, rel=1e-12)
    for task in explanation.tasks:
        for work in task.work:
            assert work.load / work.sustained == work.seconds
            assert (work.peak is None) == (work.peak_seconds is None)
            if work.coefficient is not None:
                moved = sum(part.bytes for part in task.moved)
                assert moved * work.coefficient == pytest.approx(work.load)
                assert moved * work.least_coefficient == pytest.approx(work.least)


@pytest.mark.slow
@settings(max_examples=60)
@given(topologies(), plans())
def test_values_of_random_steps_add_up(topology, plan):
    try:
        step = compile_step(topology, plan)
    except (RouteError, PlanError):
        assume(False)
    nothing = dict.fromkeys(field.name for field in fields(Study))
    # The search for a schedule takes long, and nothing here reads what it finds.
    schedule = Schedule(**dict.fromkeys((field.name for field in fields(Schedule)), 0.0) | {"policy": "2 buffers"})
    study = Study(**nothing | {"floor": floor(step), "floor_sustained": floor(step, "value"), "serial": serial(step),
                               "overlapped": schedule})  # fmt: skip
    explanation = explain(step, study)
    adds_up(explanation)
    assert {one.resource: one.least for one in explanation.sums} == loads(step, least=True)
    assert {one.resource: one.seconds for one in explanation.sums} == load_seconds(step, "value").resource_seconds
    assert sum(task.count for task in explanation.tasks) == len(step.instances)
    assert sum(count for _, count in explanation.queues) == len(step.instances)
    text = printed(explanation)
    for task in explanation.tasks:
        assert f"x {task.label}: " in text


def test_tasks_of_an_example(known):
    (fetch, layer) = known("by-hand").tasks
    assert (fetch.label, fetch.count, fetch.links) == ("fetch", 80, ("pcie0.hbm0",))
    assert (layer.label, layer.count, layer.longest) == ("layer on gpu0", 80, ("hbm0",))
    link = next(work for work in fetch.work if work.resource == "pcie0.hbm0")
    assert (link.least, link.load, link.coefficient, link.least_coefficient) == (528e6, 528e6, 1, 1)
    # A slot is written again and again, and the cache may keep its size of it; what was fetched may be read from it.
    hbm = next(work for work in fetch.work if work.resource == "hbm0")
    assert hbm.least == pytest.approx(528e6 - 72 * 2**20) and hbm.load == 528e6
    assert next(work for work in layer.work if work.resource == "hbm0").least == 16.8e6


def test_a_copy_through_host_memory_loads_it_more_than_once(known):
    fetch = known("many").tasks[0]
    found = {(work.resource, work.access): (work.least_coefficient, work.coefficient) for work in fetch.work}
    assert found["dram0", "read"] == (1, 1) and found["dram0", "copy"] == (0, 2)
    staged = next(task for task in known("three-tiers").tasks if task.moved[0].source == "ssd0")
    assert {work.resource: work.least_coefficient for work in staged.work} == {
        "ssd0.read": 1, "m2.socket0": 1, "dram0": 0}  # fmt: skip


def test_waits_buffers_and_given_times(known):
    many = known("many")
    waits = {waiting.task: waiting for waiting in many.waits}
    assert waits["layer on gpu0"].on == ("fetch", "sync on cpu0", "layer on gpu0")
    assert waits["layer on gpu0"].streams == ("fetch",)
    assert waits["layer on gpu0"].before == (("sync on cpu0", 2),)
    assert "fetch" not in waits
    fetch = many.buffers[0]
    assert (fetch.move, fetch.count, fetch.size, fetch.places, fetch.until) == (
        "fetch", 2, 528e6, ("hbm0",), ("layer on gpu0",))  # fmt: skip
    (given_time,) = many.estimates
    assert (given_time.task, given_time.value, given_time.least, given_time.source) == (
        "sync", 1e-3, 0.5e-3, "a stopwatch")  # fmt: skip
    assert known("by-hand").estimates == ()


# --- text ---


def amount_of(text: str) -> float:
    """An amount as it is printed, in bytes, FLOP or seconds."""
    unit = text.split()[-1]
    parse = parse_flop if unit.endswith("FLOP") else parse_bytes if unit.endswith("B") else parse_seconds
    return float(parse(text))


def sum_of(text: str) -> float:
    """ "20 x 560.9 MB + 8/3 x 100 MB" added up."""
    return sum(float(Fraction(count)) * amount_of(size) for count, size in
               (part.split(" x ") for part in text.split(" + ")))  # fmt: skip


def quotient_of(text: str) -> float:
    """ "(21 GB - 75.5 MB that its cache may keep) / 1 TB/s" or "21 GB / 921 GB/s* + 1 MB / 9 GB/s" in seconds."""
    seconds = 0.0
    for part in text.split(" + "):
        load, rate = re.fullmatch(r"(.*) / (\S+ \S+)/s", part.replace("*", "")).groups()
        whole, _, kept = load.strip("()").removesuffix(" that its cache may keep").partition(" - ")
        seconds += (amount_of(whole) - (amount_of(kept) if kept else 0.0)) / amount_of(rate)
    return seconds


DIGITS = 1.6e-3  # four digits round a figure by up to 5e-4; at most three figures stand against each other


def text_adds_up(explanation: Explanation) -> None:
    """The figures of the text, each as it is printed."""
    text = printed(explanation)
    of_loads = text.partition("the load L of each resource")[2].partition("Every term: the floor")[0]
    totals = []
    for line in of_loads.splitlines():
        if found := re.fullmatch(r"(?:  expected: )?L_\S+(?: each)? = (.* x .*) = ([^=]+)", line):
            totals.append(amount_of(found[2]))
            assert sum_of(found[1]) == pytest.approx(totals[-1], rel=DIGITS), line
        elif found := re.fullmatch(r"  (.*) = ([^=]+) (at peak|sustained)", line):
            assert quotient_of(found[1]) == pytest.approx(amount_of(found[2]), rel=DIGITS), line
    loaded = {one.least for one in explanation.sums if one.least}
    assert len(totals) >= len({round(least) for least in loaded}) > 0
    if explanation.floor.seconds:
        largest, result = re.search(r"T >= max\((.*)\) = (.*)", text).groups()
        times = [amount_of(part) for part in re.findall(r"([\d.]+ \w+) \(", largest)]
        assert max(times) == amount_of(result) == pytest.approx(explanation.floor.load_seconds, rel=DIGITS)
        final = amount_of(re.findall(r"^T >= ([^=\n]+)$", text, re.M)[-1])
        assert final == pytest.approx(explanation.floor.seconds, rel=DIGITS)
    else:  # no peak of a resource that is loaded is known
        assert "T >= " not in text
    summands, result = re.search(r"one after another\.\n  (.*) = (.*)", text).groups()
    assert sum_of(summands) == pytest.approx(amount_of(result), rel=DIGITS)
    assert amount_of(result) == pytest.approx(explanation.serial.seconds, rel=DIGITS)


@pytest.mark.few
@pytest.mark.parametrize("name", ["many", "ranks"])
def test_values_and_text_add_up(name, known):
    adds_up(known(name))
    text_adds_up(known(name))


@pytest.mark.few
@pytest.mark.parametrize("path", [pytest.param(path, id=path.name, marks=[pytest.mark.slow] * (path.stem in LONG))
                                  for path in EXAMPLES])  # fmt: skip
def test_every_example_runs_and_its_terms_add_up(path, capsys, monkeypatch):
    """By one command each, of whose terms the values are kept."""
    explained = []

    def kept(*asked: object) -> Explanation:
        explained.append(explain(*asked))
        return explained[-1]

    monkeypatch.setattr("offload.explain.explain", kept)
    assert cli.main(["step", str(path), "--explain"]) == 0
    captured = capsys.readouterr()
    assert "Floor" in captured.out and "Every term: the floor" in captured.out and captured.err == ""
    (explanation,) = explained
    adds_up(explanation)
    text_adds_up(explanation)


def test_the_text_of_a_chain_adds_up(known):
    text = printed(known("llama-3.1-70b-desktop"))
    chain, result = re.search(r"times add:\n  T >= (.*) = (.*)", text).groups()
    terms = re.findall(r"(^|\+ |- )([\d.]+ \w+) / ([\d.]+ \w+)/s \(", chain)
    assert [sign.strip() for sign, _, _ in terms] == ["", "+", "-", "-"]
    seconds = sum((-1 if sign == "- " else 1) * amount_of(load) / amount_of(rate) for sign, load, rate in terms)
    assert seconds == pytest.approx(amount_of(result), rel=DIGITS)
    assert "(dram0)" in chain and "(hbm0)" in chain
    assert all(f"(the cache of {memory} may keep)" in chain for memory in ("dram0", "hbm0"))


def test_how_a_task_reads(known):
    text = printed(known("by-hand"))
    assert "80 x fetch: 528 MB of w, dram0 to hbm0 over pcie0.hbm0\n" in text
    assert "pcie0.hbm0  528 MB / 31.51 GB/s = 16.8 ms at peak; / 26.3 GB/s = 20.1 ms sustained\n" in text
    assert "fetch: 2 buffers of 528 MB in hbm0; each takes one, until layer on gpu0 has ended.\n" in text
    assert "layer on gpu0 waits for fetch (its first tile, in floors), layer on gpu0 and layer on gpu0 of the" in text
    assert "None: every time comes from an amount and a rate." in text and "0 in floors" not in text
    many = printed(known("many"))
    assert re.search(r"dram0 \(copy\) x 2 +0 in floors, as a cache may hold it; 1.056 GB / 70 GB/s", many)
    assert "8/3 x save: 100 MB of state, hbm0 to dram0 over pcie0.socket0\n" in many
    assert "sync on cpu0: 1 ms (800 us to 1.3 ms), floors count 500 us. Source: a stopwatch\n" in many
    assert "layer on gpu0 and sync on cpu0 of 2 steps before." in many


def test_ranks_that_work_alike_are_printed_once(known):
    text = printed(known("ranks"))
    assert re.search(r"^L_hbm0\.\.7 each = ", text, re.M) and "L_hbm3" not in text
    assert re.search(r"pcie0\.\.7\.hbm0\.\.7 x 0\.125 +\S+ MB / 63\.02 GB/s", text)
    assert "layer on gpu0..7: " in text


@pytest.mark.parametrize("width", [24, 40, 100])
def test_the_width_is_kept(width, known):
    lines = printed(known("three-tiers"), width).splitlines()
    assert max(map(len, lines)) <= width and all(line.isascii() for line in lines)


# --- the command ---


def test_the_report_comes_first_then_the_terms(capsys, tmp_path):
    path = tmp_path / "many.yaml"
    path.write_text(MANY, encoding="utf-8")
    assert cli.main(["step", str(path)]) == 0
    report = capsys.readouterr().out
    assert cli.main(["step", str(path), "--explain"]) == 0
    explained = capsys.readouterr().out
    assert explained.startswith(report) and "Every term: the floor" in explained[len(report) :]


def test_terms_as_data(capsys, tmp_path, known):
    path = tmp_path / "many.yaml"
    path.write_text(MANY, encoding="utf-8")
    assert cli.main(["step", str(path), "--explain", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    terms = answer["explain"]
    assert terms == json.loads(json.dumps(explanation_to_json(known("many"))))
    for one in terms["sums"]:
        least = sum(part["count"] / part["every"] * part["least"] for part in one["terms"])
        assert least == pytest.approx(one["least"])
        assert {terms["tasks"][part["task"]]["name"] for part in one["terms"]} <= {"fetch", "layer", "sync", "save"}
    told = (ROOT / "docs" / "reading-a-report.md").read_text(encoding="utf-8").partition("## As data")[2]
    names: set[str] = set()

    def collect(value: object) -> None:
        if isinstance(value, dict):
            names.update(value)
        for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            collect(part)

    collect(terms)
    assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", told)] == []


def test_what_does_not_fit_has_no_terms(capsys):
    words = ["step", "llama-3.1-70b:bf16", "--on", "desktop-4090", "--gpu-layers", "70", "--explain"]
    assert cli.main(words) == 1
    assert "Every term" not in capsys.readouterr().out
    assert cli.main([*words, "--json"]) == 1
    assert "explain" not in json.loads(capsys.readouterr().out)
