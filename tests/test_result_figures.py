"""Figures of results: waterfall, loads, timeline, memory, ranking, predicted; by what they contain."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy
import pytest

from offload import cli, evaluate, plots, schedule
from offload.comparison import Candidate, compare
from offload.documents.case_file import load_cases
from offload.documents.shipped import shipped_cases
from offload.errors import PlotError
from offload.plots import style
from offload.plots.against import numbered, source_of
from offload.plots.gantt import lanes_of
from offload.schedules import cold_timeline, steady_timeline
from offload.step import distinct, loads
from offload.trace import trace
from offload.validation import run_case
from offload.why.waterfall import Passes, waterfall
from offload.words import plan_from_words
from tests.figures import (
    assert_clear,
    assert_draws_on_given_axes,
    assert_page,
    assert_same_bytes,
    compiled,
    line,
    written,
)
from tests.rack import write_rack

DRIVES = "examples/llama-3-70b-from-two-drives.yaml"
DESKTOP = "examples/llama-3.1-70b-desktop.yaml"
WORDS = "llama-3.1-70b:q4_k_m"
SOURCE = "who measured it, and where"
KINDS = ("waterfall", "loads", "timeline", "server", "memory", "ranking", "predicted")


@pytest.fixture(scope="module")
def desktop():
    return compiled(DESKTOP)


@pytest.fixture(scope="module")
def drives():
    return compiled(DRIVES)


@pytest.fixture(scope="module")
def rack(tmp_path_factory):
    return compiled(write_rack(tmp_path_factory.mktemp("rack"), 72))


@pytest.fixture(scope="module")
def order():
    found = [Candidate(WORDS, name, plan_from_words(WORDS, name, first_gpu=True))
             for name in ("gh200", "dgx-h100", "desktop-4090", "ws-2x3090-nvlink", "gaudi3-hls3")]  # fmt: skip
    return compare([*found, Candidate(WORDS, "nowhere", None, "it has no GPU")])


@pytest.fixture(scope="module")
def published():
    names = ("zinf22-opt175b-cpu", "ds1635-3090", "ovl-4090-gemv", "co-8xa100")
    return [run_case(case) for path in shipped_cases() if path.stem in names for case in load_cases(path)]


@pytest.fixture(scope="module")
def falls(desktop):
    return {seconds: waterfall(Passes("step", (desktop[0],)), seconds) for seconds in (0.2, 0.3, 0.37, 3.0)}


@pytest.fixture
def draw(desktop, drives, order, published, falls):
    def make(kind: str, ax=None):
        return {
            "waterfall": lambda: plots.waterfall(falls[0.37], ax=ax, subject="a plan", tokens=1.0, source=SOURCE),
            "loads": lambda: plots.load_bars(desktop[1], ax=ax),
            "timeline": lambda: plots.timeline(drives[0], ax=ax, subject="a plan"),
            "server": lambda: plots.server(desktop[0].topology, study=desktop[1], ax=ax),
            "memory": lambda: plots.memory_stack(desktop[1], ax=ax),
            "ranking": lambda: plots.ranking(order, ax=ax),
            "predicted": lambda: plots.predicted(published, ax=ax),
        }[kind]()

    return make


def container(axes, label: str):
    """The only bar of a name."""
    found = [bar for bars in axes.containers if bars.get_label() == label for bar in bars]
    assert len(found) == 1, label
    return found[0]


# What all of them keep to.


@pytest.mark.few
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_text_lies_on_another_or_off_the_page(kind, theme, draw):
    with plots.theme(theme):
        figure = draw(kind).get_figure()
    assert_page(figure, theme)


@pytest.mark.few
@pytest.mark.parametrize("kind", KINDS)
def test_on_axes_that_are_given(kind, draw):
    assert_draws_on_given_axes(partial(draw, kind))


@pytest.mark.few
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_values_are_the_same_bytes(kind, draw, tmp_path):
    svg = assert_same_bytes(partial(draw, kind))
    path = tmp_path / "figure.svg"
    plots.save(draw(kind), str(path))
    assert path.read_text(encoding="utf-8") == svg, "saved as rendered"


# Waterfall.


@pytest.mark.few
@pytest.mark.parametrize("seconds", [0.2, 0.3, 0.37, 3.0])
def test_terms_stand_where_they_add_up_to(falls, seconds):
    found = falls[seconds]
    axes = plots.waterfall(found, tokens=1.0)
    unit = {"time of a step (ms)": 1e-3, "time of a step (s)": 1.0}[axes.get_xlabel()]
    before = 0.0
    for row, term in enumerate(found.terms):
        bar = container(axes, term.name)
        ends = sorted((bar.get_x(), bar.get_x() + bar.get_width()))
        assert ends == pytest.approx(sorted((before / unit, term.until / unit)))
        assert bar.get_y() + bar.get_height() / 2 == row
        before = term.until
    whole = container(axes, "measured")
    assert (whole.get_x(), whole.get_width()) == (0, pytest.approx(seconds / unit))
    assert [text.get_text() for text in axes.get_yticklabels()] == [*(term.name for term in found.terms), "measured"]
    region = next(one for one in axes.patches if one.get_label() == "impossible")
    assert region.get_hatch() and region.get_width() == pytest.approx(found.floor / unit)
    said = written(axes.get_figure())
    rate = float(f"{1 / seconds:.3g}")
    assert f"measured\n{rate:g} tok/s" in said and "unexplained" in said


@pytest.mark.few
@pytest.mark.parametrize("seconds", [0.2, 0.3, 0.37, 3.0])
def test_what_is_unexplained_is_never_hidden(falls, seconds):
    found = falls[seconds]
    axes = plots.waterfall(found)
    last = found.terms[-1]
    bar = container(axes, "unexplained")
    assert bar.get_hatch() and bar.get_visible() and abs(bar.get_width()) > 0
    said = written(axes.get_figure())
    assert said.count("unexplained") == 2, "its row, and the legend"
    sign = "-" if last.seconds < 0 else "+"
    assert any(re.match(rf"\{sign}[\d.]+ m?s \(-?\d", text) for text in said)
    title = axes.get_figure().get_label()
    wanted = {0.2: "contradicts physics", 0.3: "15 % faster than expected", 0.37: "7 % of it stays unexplained",
              3.0: "89 % of it stays unexplained"}[seconds]  # fmt: skip
    assert wanted in title
    if last.seconds < 0:
        assert last.why.split(":")[0] in " ".join(said)


def test_a_term_that_rounding_leaves_is_none(falls):
    found = falls[0.37]
    terms = list(found.terms)
    terms[3] = replace(terms[3], seconds=-1e-16, share=-1e-16, why="noise")
    said = written(plots.waterfall(replace(found, terms=tuple(terms))).get_figure())
    assert "0 s" in said and not any("noise" in text for text in said)


def test_who_measured_it_is_told(falls):
    said = " ".join(written(plots.waterfall(falls[0.37], source=SOURCE).get_figure()))
    assert f"Measured: {SOURCE}" in said and "certain: at peak rates" in said


# Loads.


@pytest.mark.few
@pytest.mark.parametrize("which", ["desktop", "drives", "rack"])
def test_bars_are_the_loads(which, request):
    study = request.getfixturevalue(which)[1]
    axes = plots.load_bars(study)
    unit, name = style.time_unit(max(study.overlapped.seconds, study.floor.seconds))
    assert axes.get_xlabel() == f"busy in each step ({name})"
    drawn = set()
    for row in study.resources:
        for kind, seconds in (("peak", row.peak_seconds), ("sustained", row.sustained_seconds)):
            found = [bar for one in axes.containers if one.get_label() == f"{kind}: {row.name}" for bar in one]
            if found:
                assert found[0].get_width() * unit == pytest.approx(seconds)
                drawn.add(row.name)
    groups = [text.get_text() for text in axes.get_yticklabels()]
    assert drawn <= {row.name for row in study.resources} and len(drawn) == len(groups)
    floor = next(one for one in axes.patches if one.get_label() == "impossible")
    assert floor.get_width() * unit == pytest.approx(study.floor.seconds)


def test_what_is_alike_is_one_row(rack):
    axes = plots.load_bars(rack[1])
    assert [text.get_text() for text in axes.get_yticklabels()] == [
        "dram0", "c0..71.hbm0..71", "hbm0..71", "gpu0..71.flops"]  # fmt: skip
    assert_clear(axes.get_figure())
    assert "dram0 is busy for 100 % of the expected step, c0..71.hbm0..71 for 44 %" in axes.get_figure().get_label()


def test_no_bars_of_what_loads_nothing(desktop):
    with pytest.raises(PlotError, match="loads nothing"):
        plots.load_bars(replace(desktop[1], resources=()))


# Timeline.


@pytest.mark.few
@pytest.mark.parametrize("which", ["desktop", "drives", "rack"])
def test_lanes_are_those_of_the_trace(which, request):
    step = request.getfixturevalue(which)[0]
    small, others = distinct(step)
    alone = cold_timeline(small)
    found = lanes_of(step, small, others, alone)
    events = [one for one in trace(step)["traceEvents"] if one["pid"] == 2]
    threads = {one["tid"]: one["args"]["name"].split(", beside")[0] for one in events if one["name"] == "thread_name"}
    slices: dict[str, list] = {}
    for one in events:
        if one["ph"] == "X":
            slices.setdefault(threads[one["tid"]], []).append(
                (one["args"]["start_s"], one["args"]["end_s"], one["name"]))  # fmt: skip
    for lane in found:
        wanted = {one for one in slices[lane.names[0]] if one[1] > one[0]}  # twice where it is read and written
        same = {block[:3] for block in lane.blocks} == wanted and len(lane.blocks) >= len(wanted)
        assert same, lane.names
    amounts = loads(step, least=False, alone=True)
    assert {name for lane in found for name in lane.names} == {name for name, load in amounts.items() if load}
    assert all(lane.busy <= alone.seconds * (1 + 1e-9) for lane in found)


def test_blocks_are_drawn_when_they_happen(drives):
    step = drives[0]
    axes = plots.timeline(step)
    small, _ = distinct(step)
    found = cold_timeline(small)
    assert axes.get_xlabel() == "time (s)" and axes.get_xlim() == (0, pytest.approx(schedule(step).cold_seconds))
    lanes = [text.get_text() for text in axes.get_yticklabels()]
    assert lanes == ["ssd0.read", "m2.socket0", "pcie0.hbm0", "hbm0", "gpu0.flops"], "in the order of a byte's way"
    path = next(one for one in axes.patches if one.get_label() == "fetch weights to hbm#: limited").get_path()
    starts = sorted(start for row, start, end in zip(found.rows, found.starts, found.ends, strict=True)
                    if small.rows[row].name == "fetch weights to hbm0" and end > start)  # fmt: skip
    drawn = sorted(path.vertices[:, 0].reshape(-1, 5)[:, 0])
    assert drawn == pytest.approx(starts) and len(starts) == 80
    rows = {round(float(y), 6) for y in path.vertices[:, 1]}
    assert all(abs(y - 2) < 0.5 for y in rows), "on its own lane"
    said = written(axes.get_figure())
    assert "busy 23 %" in said and "passes at less than the resource's rate" in said


def test_part_of_a_timeline_and_steps_back_to_back(drives):
    step = drives[0]
    axes = plots.timeline(step, until=0.5)
    assert axes.get_xlim() == (0, pytest.approx(500)) and axes.get_xlabel() == "time (ms)"
    assert all(one.get_path().vertices[:, 0].max() <= 500 * (1 + 1e-9) for one in axes.patches)
    assert "The first 500 ms of 10.7 s" in " ".join(written(axes.get_figure()))
    axes = plots.timeline(step, steps=2)
    assert axes.get_xlim()[1] == pytest.approx(steady_timeline(distinct(step)[0], rounds=2).seconds)
    assert "2 steps back to back" in axes.get_figure().get_label()
    with pytest.raises(PlotError, match="not above 0"):
        plots.timeline(step, until=0.0)
    with pytest.raises(PlotError, match="too long"):
        plots.timeline(step, steps=10**7)


@pytest.mark.slow
def test_a_timeline_of_many_gpus(rack):
    axes = plots.timeline(rack[0])
    assert_clear(axes.get_figure())
    lanes = [text.get_text() for text in axes.get_yticklabels()]
    assert lanes[:4] == ["dram0", "c0.hbm0", "c36.hbm36", "c71.hbm71"] and len(lanes) == 10
    said = " ".join(written(axes.get_figure()))
    assert "f0..71" in said and "Not drawn: c1..35.hbm1..35" in said


# Memory.


@pytest.mark.parametrize("which", ["desktop", "drives", "rack"])
def test_parts_are_stacked_up_to_what_is_used(which, request):
    study = request.getfixturevalue(which)[1]
    axes = plots.memory_stack(study)
    rows = {row.name: row for row in study.memory}
    ends: dict[str, float] = {}
    for one in axes.containers:
        name, _, part = one.get_label().partition(": ")
        bar = one[0]
        if part == "capacity":
            assert (bar.get_x(), bar.get_width()) == (0, 100)
            continue
        assert bar.get_x() == pytest.approx(ends.get(name, 0.0)), "each begins where the one before it ends"
        ends[name] = bar.get_x() + bar.get_width()
    assert ends
    for name, end in ends.items():
        whole = rows[name].capacity or rows[name].used
        assert end == pytest.approx(100 * rows[name].used / whole)
    assert axes.get_xlabel() == "share of the memory's capacity (%)"
    assert_clear(axes.get_figure())


def test_what_does_not_fit_reaches_out():
    plan, topology = plan_from_words("llama-3.1-70b:bf16", "desktop-4090", gpu_layers=30)
    study = evaluate(topology, plan)
    assert not study.fits
    axes = plots.memory_stack(study)
    assert "It does not fit: " in axes.get_figure().get_label() and "lacks" in axes.get_figure().get_label()
    assert axes.get_xlim()[1] > 100
    beyond = next(one for one in axes.patches if one.get_label() == "beyond")
    assert beyond.get_hatch() and beyond.get_x() == 100
    assert_clear(axes.get_figure())


def test_memories_and_parts_that_are_alike_are_one(rack):
    axes = plots.memory_stack(rack[1])
    assert [text.get_text() for text in axes.get_yticklabels()] == ["dram0", "hbm0..71"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["w0..71", "buffers", "capacity"]
    with pytest.raises(PlotError, match="of no memory"):
        plots.memory_stack(replace(rack[1], memory=()))


# Ranking.


def test_ranks_are_those_of_the_comparison(order):
    axes = plots.ranking(order)
    assert axes.get_xlabel() == "expected time of a step (ms)"
    values = [one.get_xdata()[0] for one in axes.get_lines() if one.get_label() == "value"]
    assert values == pytest.approx([cost[1] * 1e3 for cost in order.costs])
    spans = [tuple(one.get_xdata()) for one in axes.get_lines() if one.get_label() == "interval"]
    assert spans == [pytest.approx((low * 1e3, high * 1e3)) for low, _, high in order.costs if high > low]
    floors = [one.get_xdata()[0] for one in axes.get_lines() if one.get_label() == "floor"]
    assert floors == pytest.approx([entry.floor.seconds * 1e3 for entry in order.ranked])
    names = [text.get_text() for text in axes.get_yticklabels()]
    assert names == [f"{place}  {entry.server}" for place, entry in enumerate(order.ranked, 1)]
    brackets = [one.get_ydata() for one in axes.get_lines() if one.get_label() == "open"]
    assert len(brackets) == sum(pair.order == "open" for pair in order.pairs) > 0
    said = " ".join(written(axes.get_figure()))
    assert "nowhere cannot be laid out: it has no GPU" in said and "order is open between these two" in said


@pytest.mark.parametrize("by", ["floor", "tokens"])
def test_a_ranking_by_other_figures(by):
    names = ("gh200", "desktop-4090")
    found = compare([Candidate(WORDS, name, plan_from_words(WORDS, name)) for name in names], by=by)
    axes = plots.ranking(found)
    values = [one.get_xdata()[0] for one in axes.get_lines() if one.get_label() == "value"]
    assert values == pytest.approx([cost[1] * 1e3 for cost in found.costs])
    assert axes.get_xlabel() == {"floor": "floor of a step (ms)", "tokens": "expected time of a token (ms)"}[by]
    assert "gh200 comes first" in axes.get_figure().get_label() and "times that" in axes.get_figure().get_label()


def test_a_ranking_by_a_meter_and_of_nothing():
    from offload.meters import read_meter

    made = [Candidate(WORDS, name, plan_from_words(WORDS, name)) for name in ("gh200", "desktop-4090")]
    found = compare(made, by="energy", meters=[read_meter("energy: 350 W")])
    axes = plots.ranking(found)
    values = [one.get_xdata()[0] for one in axes.get_lines() if one.get_label() == "value"]
    assert values == pytest.approx([cost[1] for cost in found.costs]) and "energy of a token" in axes.get_xlabel()
    assert not [one for one in axes.get_lines() if one.get_label() == "floor"], "a floor says nothing of energy"
    assert_clear(axes.get_figure())
    with pytest.raises(PlotError, match="nothing fits. there cannot be laid out: too small"):
        plots.ranking(compare([Candidate("a", "there", None, "too small")]))


# Published cases.


def test_marks_are_the_outcomes(published):
    axes = plots.predicted(published)
    assert axes.get_xscale() == axes.get_yscale() == "log"
    drawn = sorted(tuple(point) for many in axes.collections if not many.get_hatch() for point in many.get_offsets())
    wanted = sorted((one.measured, one.informed) for one in published)
    assert numpy.array(drawn) == pytest.approx(numpy.array(wanted))
    floors = line(axes, "floors").get_xydata()
    wanted = numpy.array(sorted((one.measured, one.floor) for one in published if one.floor > 0))
    assert numpy.array(sorted(map(tuple, floors))) == pytest.approx(wanted)
    region = next(many for many in axes.collections if many.get_hatch()).get_paths()[0]
    for one in published:
        if one.floor > 0 and one.holds and not one.case.trap:
            assert not region.contains_point((one.measured, one.floor * (1 - 1e-6))), "below the diagonal"
    assert region.contains_point((1.0, 1.5)) and not region.contains_point((1.0, 0.7))


def test_each_mark_has_its_source(published):
    axes = plots.predicted(published)
    sources = numbered(published)
    said = written(axes.get_figure())
    for one in published:
        number = sources[source_of(one)]
        assert str(number) in said and f"({number}) {source_of(one)}" in " ".join(said)
    svg = style.render(axes, "svg").decode()
    assert {one.case.source.url for one in published} <= set(re.findall(r'xlink:href="(https?://[^"]+)"', svg))
    assert_clear(axes.get_figure())


@pytest.mark.slow
def test_all_published_cases_in_one_figure():
    outcomes = [run_case(case) for path in shipped_cases() for case in load_cases(path)]
    axes = plots.predicted(outcomes)
    assert_clear(axes.get_figure())
    said = " ".join(written(axes.get_figure()))
    for source, number in numbered(outcomes).items():
        assert f"({number}) {source}" in said
    assert f"{len(outcomes)} published measurements" in said
    assert "no floor is above its measurement" in axes.get_figure().get_label()


def test_a_floor_above_its_measurement_is_the_finding(published):
    wrong = [replace(one, floor=2 * one.measured) if one.id == "zinf22-opt175b-cpu" else one for one in published]
    assert "1 of" in plots.predicted(wrong).get_figure().get_label()
    assert "an input is wrong" in plots.predicted(wrong).get_figure().get_label()
    with pytest.raises(PlotError, match="no case"):
        plots.predicted([])


# Words.

ASKED = {
    "waterfall": [DESKTOP, "--measured", f"2.7 tok/s; {SOURCE}"],
    "loads": [DESKTOP],
    "timeline": [DRIVES, "--until", "400 ms"],
    "server": [WORDS, "--on", "desktop-4090"],
    "memory": [WORDS, "--on", "desktop-4090"],
    "ranking": [WORDS, "--on", "gh200,desktop-4090"],
    "predicted": ["zinf22-opt175b-cpu", "ds1635-3090"],
}


@pytest.mark.few
@pytest.mark.parametrize("kind", ASKED)
def test_a_figure_of_every_kind(kind, tmp_path, capsys):
    path = tmp_path / "figure.svg"
    assert cli.main(["plot", kind, *ASKED[kind], "-o", str(path)]) == 0
    title, told = capsys.readouterr().out.splitlines()
    assert told == f"Figure: {path}"
    light = path.read_text(encoding="utf-8")
    assert title in " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", light))
    assert cli.main(["plot", kind, *ASKED[kind], "-o", str(path), "--theme", "dark"]) == 0
    assert "#14181c" in path.read_text(encoding="utf-8") and "#14181c" not in light


@pytest.mark.few
@pytest.mark.parametrize("case", ["zinf22-opt175b-cpu", "ovl-h100-kv100k/3", "lia-lia-66b/1"])
def test_a_waterfall_of_a_published_case(case, tmp_path, capsys):
    path = tmp_path / "figure.svg"
    assert cli.main(["plot", "waterfall", case, "-o", str(path)]) == 0
    assert f"Measured: {case}" in " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", path.read_text(encoding="utf-8")))


def test_a_server_by_its_name_and_by_its_file(tmp_path, capsys):
    path = tmp_path / "figure.svg"
    for target in ("dgx-h100", "topologies/dgx-h100.yaml"):
        assert cli.main(["plot", "server", target, "-o", str(path)]) == 0
        assert "DGX H100" in path.read_text(encoding="utf-8")


@pytest.mark.few
@pytest.mark.parametrize(("part", "of"), [("first-token", "prompt"), ("request", "request"), ("token", "step")])
def test_the_parts_of_a_request(part, of, tmp_path, capsys):
    path = tmp_path / "figure.svg"
    words = ["plot", "waterfall", "llama-3.1-8b:q4_k_m", "--on", "desktop-4090", "--prompt", "2000", "--generate", "20",
             "--measured", "9 s", "--measured-of", part, "-o", str(path)]  # fmt: skip
    assert cli.main(words) == 0
    assert f"time of a {of} (s)" in path.read_text(encoding="utf-8")


@pytest.mark.few
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["compare", WORDS, "--on", "gh200,desktop-4090"], "gh200 comes first"),
        (["validate", "ds1635-3090"], "The floor is not above what was measured"),
        (["why", "tests/data/logs/why_llama2.md"], "The load floor is"),
    ],
)
def test_figures_beside_reports(words, said, tmp_path, capsys):
    path = tmp_path / "figure.svg"
    assert cli.main([*words, "--plot", str(path)]) == 0
    assert capsys.readouterr().out.endswith(f"\nFigure: {path}\n")
    assert said in path.read_text(encoding="utf-8")
    assert cli.main([*words, "--json", "--plot", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)
    assert cli.main([*words, "--plot", str(tmp_path / "figure.gif")]) == 2
    captured = capsys.readouterr()
    assert "End it in .svg, .png or .pdf" in captured.err and captured.out, "the report is not lost"


@pytest.mark.few
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["waterfall", DESKTOP], "--measured is missing"),
        (["waterfall", DESKTOP, "--measured", "fast"], "--measured fast: "),
        (["waterfall", "zinf22-opt175b-cpu", "--measured", "3 tok/s"], "is a published case: drop --measured"),
        (["waterfall", DESKTOP, "--measured", "2 tok/s", "--measured-of", "token"], "this plan is one step"),
        (["timeline", DESKTOP, "--until", "soon"], "--until: "),
        (["timeline", DESKTOP, "--until", "0 s"], "no time to draw"),
        (["server", "dgx-h100", "--batch", "3"], "is a server: drop --batch"),
        (["server", "dgx-h1000"], "dgx-h1000"),
        (["memory", "none.yaml"], "none.yaml"),
        (["ranking", WORDS], "on which servers"),
        (["predicted", "no-such-case"], "no shipped case"),
    ],
)
def test_what_is_wrong_is_said(words, said, tmp_path, monkeypatch, capsys):
    path = tmp_path / "figure.svg"
    assert cli.main(["plot", *words, "-o", str(path)]) == 2
    captured = capsys.readouterr()
    assert said in captured.err and not captured.out and not path.exists()


def test_no_figure_replaces_what_is_read(tmp_path, capsys):
    log = tmp_path / "log.svg"
    log.write_bytes(Path("tests/data/logs/why_llama2.md").read_bytes())
    before = log.read_bytes()
    assert cli.main(["why", str(log), "--plot", str(log)]) == 2
    assert log.read_bytes() == before
