"""Figures by what they contain: numbers of the results, units, names, sources; no text on another; the same bytes."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload import compile_step, evaluate, floor, load_plan, plots, schedule
from offload.curves import floor_curve
from offload.drive_counts import drive_counts
from offload.errors import OffloadError, PlotError
from offload.memory import answer_memory
from offload.memory_curve import concurrency_of
from offload.models import catalogue
from offload.models.lengths import parse_lengths
from offload.plots import style
from offload.plots.labels import DISTANCES, Room, around, corners, overlap
from offload.plots.page import Page, balanced, wrapped
from offload.rooflines import roofline
from offload.step import loads
from offload.sweeps import FIGURES, Words, sweep
from offload.sweeps.reading import read_grid
from offload.words import plan_from_words
from tests.figures import assert_clear, assert_draws_on_given_axes, assert_page, assert_same_bytes, written
from tests.rack import write_rack
from tests.runs import examples

DRIVES = "examples/llama-3-70b-from-two-drives.yaml"
DESKTOP = "examples/llama-3.1-70b-desktop.yaml"
SMALL = {"gpu_layers": 8, "compute": "gpu0"}
SOURCE = "who measured it, and where"


def line(axes, label: str):
    return next(one for one in axes.get_lines() if one.get_label() == label)


def lines(axes, label: str) -> list:
    return [one for one in axes.get_lines() if one.get_label() == label]


@pytest.fixture(scope="module")
def drive_step():
    plan, topology = load_plan(DRIVES)
    return compile_step(topology, plan)


@pytest.fixture(scope="module")
def desktop():
    plan, topology = load_plan(DESKTOP)
    return floor_curve(compile_step(topology, plan)), evaluate(topology, plan)


@pytest.fixture(scope="module")
def map_grid():
    return sweep(Words("llama-3.1-70b:q4_k_m", "desktop-4090", **SMALL),
                 ["batch=1:256:12log", "context=512:131072:12log"], figures=FIGURES)  # fmt: skip


@pytest.fixture(scope="module")
def layers():
    return sweep(Words("llama-3.1-70b:q4_k_m", "desktop-4090"), ["gpu-layers=0:80:9"], figures=FIGURES)


@pytest.fixture(scope="module")
def choices():
    return sweep(Words("llama-3.1-70b:q4_k_m", "desktop-4090"), ["gpu-layers=0:38:6", "batch=1,2,4,8"])


@pytest.fixture(scope="module")
def roofs():
    steps = []
    for batch in (1, 8, 64, 512):
        plan, topology = plan_from_words("llama-3.1-70b:q4_k_m", "desktop-4090", batch=batch, context=16_384, **SMALL)
        steps.append((batch, compile_step(topology, plan)))
    return steps, roofline(steps)


@pytest.fixture(scope="module")
def fitting():
    answer = answer_memory(catalogue["llama-3.1-70b"], None, 14 * 10**9, parse_lengths("18x2000"), block=1)
    return concurrency_of(answer), answer


KINDS = ("latency", "heat", "roofline", "residency", "drives", "concurrency", "pareto")


@pytest.fixture
def draw(request, desktop, map_grid, layers, choices, roofs, fitting, drive_step):
    dot = plots.Dot(38, 0.37, "llama.cpp", SOURCE)

    def make(kind: str, ax=None):
        return {
            "latency": lambda: plots.latency_floor(desktop[0], study=desktop[1], ax=ax,
                                                   measured=[plots.Dot(96e9, 0.37, "llama.cpp", SOURCE)]),
            "heat": lambda: plots.heat_map(map_grid, ax=ax, subject="a plan, on a server"),
            "roofline": lambda: plots.roofline_chart(roofs[1], ax=ax, subject="a plan, on a server"),
            "residency": lambda: plots.residency(layers, ax=ax, subject="a plan, on a server", measured=[dot]),
            "drives": lambda: plots.drives(drive_counts(drive_step, counts=(1, 2, 4, 8)), ax=ax,
                                           measured=[plots.Dot(2, 12.0, "a run", SOURCE)]),
            "concurrency": lambda: plots.concurrency(fitting[0], answer=fitting[1], ax=ax),
            "pareto": lambda: plots.pareto_front(choices, ax=ax, subject="a plan, on a server"),
        }[kind]()  # fmt: skip

    return make


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
    # Only a scale of colours takes room off them.
    assert_draws_on_given_axes(partial(draw, kind), keeps_place=kind != "heat")


@pytest.mark.few
@pytest.mark.parametrize("kind", [one if one in ("latency", "heat") else pytest.param(one, marks=pytest.mark.slow)
                                  for one in KINDS])  # fmt: skip
def test_the_same_values_are_the_same_bytes(kind, draw, tmp_path):
    svg = assert_same_bytes(partial(draw, kind))
    path = tmp_path / "figure.svg"
    plots.save(draw(kind), str(path))
    assert path.read_text(encoding="utf-8") == svg, "saved as rendered"


@pytest.mark.few
@pytest.mark.parametrize("kind", ["latency", "residency", "drives"])
def test_what_was_measured_has_its_source(kind, draw):
    figure = draw(kind).get_figure()
    found = written(figure)
    assert SOURCE in " ".join(found) and "measured" in found


def test_measured_marks_are_where_they_were_measured(draw):
    assert line(draw("latency"), "measured: llama.cpp").get_xydata().tolist() == [[96, 370]]
    assert line(draw("residency"), "measured: llama.cpp").get_xydata().tolist() == [[38, 370]]
    assert line(draw("drives"), "measured: a run").get_xydata().tolist() == [[2, 12]]


# Colours.


def test_colours_are_those_that_the_colour_blind_tell_apart_and_are_seen():
    okabe_ito = {"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00"}
    assert set(style.LIGHT.colours) == okabe_ito
    for name, theme in style.THEMES.items():
        assert style.contrast(theme.ink, theme.paper) > 15
        assert style.contrast(theme.grey, theme.paper) > style.READABLE
        with plots.theme(name):
            for colour in theme.colours:
                assert style.contrast(style.readable(colour), theme.paper) >= style.READABLE
        least = 2.2 if name == "light" else 5  # sky blue and orange on white, which is why lines differ in style too
        assert min(style.contrast(colour, theme.paper) for colour in theme.colours) >= least
    assert len(set(style.STYLES)) == len(style.LIGHT.colours)
    with pytest.raises(PlotError, match='no theme "drak"'), plots.theme("drak"):
        pass


def test_contrast_is_that_of_wcag():
    assert style.contrast("#000000", "#FFFFFF") == pytest.approx(21)
    assert style.contrast("#777777", "#FFFFFF") == pytest.approx(4.478, abs=1e-3)


# Each figure.


def test_the_floor_is_the_curve(desktop):
    curve, study = desktop
    axes = plots.latency_floor(curve, study=study)
    assert axes.get_xlabel() == "peak rate of dram0 (GB/s)" and axes.get_ylabel() == "time per step (ms)"
    drawn = line(axes, curve.pieces[0].name).get_xydata()
    assert drawn.tolist() == [[point.rate / 1e9, point.floor / 1e-3] for point in curve.points]
    serial = line(axes, "serial").get_xydata()
    assert serial.tolist() == [[point.rate / 1e9, point.serial / 1e-3] for point in curve.points]
    expected = line(axes, "expected")
    known = {index: point.expected for index, point in enumerate(curve.points) if point.expected is not None}
    assert list(expected.get_markevery()) == list(known)
    for index, seconds in known.items():
        assert expected.get_ydata()[index] * 1e-3 == pytest.approx(seconds, rel=1e-12)
    right = next(one for one in axes.get_figure().axes if one.get_ylabel() == "tokens per second")
    for place, label in zip(right.get_yticks(), right.get_yticklabels(), strict=True):
        assert curve.tokens / (place * 1e-3) == pytest.approx(float(label.get_text()), rel=1e-9)
    assert line(axes, "present").get_xdata()[0] == curve.rate / 1e9
    low, high = study.overlapped.low, study.overlapped.high
    assert sorted(line(axes, "interval").get_ydata() * 1e-3) == pytest.approx([low, high])
    found = written(axes.get_figure())
    assert "DDR5-6000\nx2" in found and "dram0 + hbm0" in found, "products, and what binds along the curve"
    filled = axes.collections[0]
    assert filled.get_hatch() and filled.get_paths()[0].contains_point((96, curve.present.floor / 1e-3 * 0.9))
    assert not filled.get_paths()[0].contains_point((96, curve.present.floor / 1e-3 * 1.1))


def test_the_map_is_the_grid(map_grid):
    axes = plots.heat_map(map_grid)
    unit, name = style.time_unit(map_grid.floor.min())
    mesh = axes.collections[0]
    assert mesh.get_array().reshape(map_grid.shape[::-1]).T.tolist() == (map_grid.floor / unit).tolist()
    assert axes.get_xlabel() == "batch (sequences)" and axes.get_ylabel() == "context (positions)"
    found = written(axes.get_figure())
    assert f"floor of a step ({name})" in found and "does not fit" in found
    binds = set(map_grid.binding_name.ravel())
    assert binds == {"pcie0.hbm0", "hbm0"} and {f"{one} binds" for one in binds} <= set(found)
    region = next(patch for patch in axes.patches if patch.get_label() == "does not fit")
    for i, batch in enumerate(map_grid.axes[0].numbers):
        for j, context in enumerate(map_grid.axes[1].numbers):
            inside = region.get_path().contains_point((batch, context))
            assert inside == (not map_grid.fits[i, j]), "hatched where it does not fit, and nowhere else"


def test_the_line_between_regions_parts_what_binds(map_grid):
    axes = plots.heat_map(map_grid)
    parted = axes.collections[1].get_segments()
    binding = map_grid.binding
    changes = (binding[1:] != binding[:-1]).sum() + (binding[:, 1:] != binding[:, :-1]).sum()
    assert len(parted) == changes > 0


def test_a_map_needs_two_axes_of_numbers(layers, map_grid):
    with pytest.raises(PlotError, match="two axes of at least two numbers each, and this grid has gpu-layers"):
        plots.heat_map(layers)
    with pytest.raises(PlotError, match='no heat map of "speed"'):
        plots.heat_map(map_grid, figure="speed")
    with pytest.raises(PlotError, match="residency is drawn over one axis .* has batch x context"):
        plots.residency(map_grid)


def test_a_step_stands_below_every_certain_roof_and_touches_the_one_that_binds(roofs):
    steps, found = roofs
    rates = {level.name: level for level in found.levels}
    for (value, step), stand in zip(steps, found.stands, strict=True):
        bound = floor(step)
        assert (stand.value, stand.seconds, stand.expected) == (value, bound.seconds, schedule(step).seconds)
        least = loads(step, least=True)
        flop = sum(amount for name, amount in least.items() if name.endswith(".flops"))
        assert stand.flop == flop
        for name, amount in stand.amounts.items():
            cache = step.resources[name].cache if rates[name].certain else 0
            assert amount == pytest.approx(least[name] - cache, rel=1e-12)
            if rates[name].certain:
                assert stand.flop / stand.seconds <= rates[name].rate * stand.intensity(name) * (1 + 1e-9)
        assert set(stand.binding) == set(bound.bottleneck)
        touched = stand.flop / stand.seconds / (rates[stand.binding[0]].rate * stand.intensity(stand.binding[0]))
        assert touched == pytest.approx(1, rel=1e-12)
    assert [stand.binding for stand in found.stands][0] == ("pcie0.hbm0",)
    assert found.stands[-1].binding == ("hbm0",) and [one.value for one in found.turns] == [512]
    assert found.covered == {"dram0": "pcie0.hbm0"}, "the same bytes at three times the rate: it never binds"


def test_the_roofline_is_drawn_as_it_is(roofs):
    found = roofs[1]
    axes = plots.roofline_chart(found)
    for level in found.levels:
        xs, ys = line(axes, f"roof: {level.name}").get_data()
        if level.kind != "processor":
            assert [y * 1e12 / x for x, y in zip(xs, ys, strict=True)] == pytest.approx([level.rate] * 2)
            path = line(axes, f"path: {level.name}").get_xydata()
            wanted = [[stand.intensity(level.name), stand.flop / stand.seconds / 1e12] for stand in found.stands]
            assert path.tolist() == wanted
    assert len(lines(axes, "turn")) == 1
    said = written(axes.get_figure())
    assert "FLOP per byte that crosses the level" in said and "TFLOP/s of the step" in said
    assert "gpu0.flops: sustained, no certain bound" in said and "batch 512: hbm0 binds" in said


def test_no_roofline_of_what_computes_nothing(tmp_path):
    path = tmp_path / "moves.yaml"
    path.write_text("topology: desktop-4090\ntensors: {w: {bytes: 1 GB, home: dram0}}\ntokens: 1\n"
                    "tasks: {fetch: {move: w, to: hbm0}}\n", encoding="utf-8")  # fmt: skip
    plan, topology = load_plan(path)
    with pytest.raises(PlotError, match="computes something"):
        roofline([(1, compile_step(topology, plan))])


def test_each_number_of_drives_is_evaluated_with_their_links(drive_step):
    found = drive_counts(drive_step, counts=(1, 4))
    assert [one.drives for one in found.counts] == [1, 2, 4] and found.present == 2 and found.drive == "ssd0"
    plan, topology = load_plan(DRIVES)
    present = next(one for one in found.counts if one.drives == 2)
    there = schedule(drive_step)
    assert (present.floor, present.expected, present.low, present.high) == (
        floor(drive_step).seconds, there.seconds, there.low, there.high)  # fmt: skip
    from offload.documents import read_setting

    rate = topology.resources["m2.socket0"].peak
    for one in found.counts:
        text = f"m2.rate={rate * one.drives / 2!r} B/s"
        plan, server = load_plan(DRIVES, settings=[read_setting(text)])
        assert floor(compile_step(server, plan)).seconds == pytest.approx(one.floor, rel=1e-12)


@pytest.mark.slow
def test_from_how_many_drives_on_another_thing_binds(drive_step):
    found = drive_counts(drive_step, counts=range(1, 13))
    assert found.enough == 8 and {one.binding for one in found.counts if one.drives >= 8} == {"pcie0.hbm0"}
    axes = plots.drives(found)
    assert "With 8 drives pcie0.hbm0 binds" in axes.get_figure().get_label()
    steps = lines(axes, "floor")
    assert [one.get_ydata()[0] for one in steps] == [one.floor for one in found.counts]
    assert axes.get_xlabel() == "drives of ssd0" and axes.get_ylabel() == "time per step (s)"
    with pytest.raises(PlotError, match='no drive "ssd1".*ssd0'):
        drive_counts(drive_step, "ssd1")
    plan, topology = load_plan("examples/by-hand.yaml")
    with pytest.raises(PlotError, match="reads and writes no drive"):
        drive_counts(compile_step(topology, plan))


def test_residency_has_times_that_add_and_their_reciprocals(layers):
    axes = plots.residency(layers)
    beside = next(one for one in axes.get_figure().axes if one is not axes)
    assert (axes.get_ylabel(), beside.get_ylabel()) == ("time per token (ms)", "tokens per second")
    assert axes.get_xlabel() == beside.get_xlabel() == "layers whose weights live at the GPU"
    assert axes.get_yscale() == "linear"
    for name, values in (("floor", layers.floor), ("expected", layers.overlapped), ("serial", layers.serial)):
        xs, ys = line(axes, name).get_data()
        assert list(xs) == list(layers.axes[0].numbers)
        assert ys * 1e-3 == pytest.approx(values / layers.tokens, rel=1e-12)
        assert line(beside, name).get_ydata() == pytest.approx(layers.tokens / values, rel=1e-12)
    assert "from 50 on" in written(axes.get_figure()), "where it does not fit"
    assert not layers.fits[5] and layers.fits[4] and layers.axes[0].numbers[5] == 50


def test_concurrency_is_that_of_the_answer(fitting):
    found, answer = fitting
    axes = plots.concurrency(found, answer=answer)
    for curve in found.curves:
        drawn = line(axes, curve.format).get_xydata().tolist()
        assert drawn[: len(curve.points)] == [[fit.length, fit.requests] for fit in curve.points]
    assert line(axes, "asked").get_xydata().tolist() == [[2000, 18]]


@pytest.mark.parametrize(
    ("x", "y"), [("spare", "floor"), ("floor", "tokens"), ("-batch", "serial"), ("batch", "floor")]
)
def test_the_front_is_that_of_the_grid(choices, x, y):
    axes = plots.pareto_front(choices, x, y)
    front = choices.pareto(x, y)
    assert len(line(axes, "front").get_xdata()) == len(front)
    scales = {"spare": 1e9, "floor": 1e-3, "serial": 1e-3, "tokens": 1, "batch": 1}

    def value(point, name):
        bare = name.removeprefix("-")
        known = {"tokens": "tokens_per_s"}.get(bare, bare)
        return (point.values[bare] if bare == "batch" else getattr(point, known)) / scales[bare]

    wanted = sorted((value(point, x), value(point, y)) for point in front)
    assert numpy.array(sorted(map(tuple, line(axes, "front").get_xydata()))) == pytest.approx(numpy.array(wanted))
    region = next(patch for patch in axes.patches if patch.get_label() == "not reached")
    every = line(axes, "points").get_xydata()
    assert len(every) == choices.fits.sum()
    path = region.get_path()
    better = {"spare": 1, "tokens": 1, "-batch": 1}
    nudge = [-1e-6 * better.get(name, -1) * (high - low) for name, (low, high) in
             ((x, axes.get_xlim()), (y, axes.get_ylim()))]  # fmt: skip
    assert not any(path.contains_point(point + nudge) for point in every), "no point is where none reaches"
    outer = axes.transAxes.transform([(0.001, 0.001), (0.001, 0.999), (0.999, 0.001), (0.999, 0.999)])
    hit = [path.contains_point(axes.transData.inverted().transform(one)) for one in outer]
    assert hit[2 * (better.get(x, -1) > 0) + (better.get(y, -1) > 0)], "the corner that is best in both"


def test_no_front_of_nothing(choices):
    with pytest.raises(PlotError, match="both are floor"):
        plots.pareto_front(choices, "floor", "floor")
    grid = sweep(Words("llama-3.1-70b:bf16", "desktop-4090"), ["gpu-layers=40:60:3"])
    with pytest.raises(PlotError, match="no point fits"):
        plots.pareto_front(grid)


@pytest.fixture(scope="module")
def one_line():
    return sweep(Words("llama-3.1-70b:q4_k_m", "desktop-4090", context=16_384, **SMALL), ["batch=1:512:25log"])


def test_a_sweep_over_one_axis_is_drawn_with_what_binds(one_line):
    axes = plots.swept(one_line, subject="a plan")
    beside = next(one for one in axes.get_figure().axes if one is not axes)
    unit, name = style.time_unit(one_line.floor.min())
    assert (axes.get_ylabel(), beside.get_ylabel()) == (f"time per step ({name})", "tokens per second")
    names = one_line.binding_name
    for binds in ("pcie0.hbm0", "hbm0"):
        part = line(axes, f"floor: {binds}").get_xydata()
        wanted = [[batch, floor / unit] for batch, floor, one in
                  zip(one_line.axes[0].numbers, one_line.floor, names, strict=True) if one == binds]  # fmt: skip
        assert part[: len(wanted)].tolist() == wanted and len(part) - len(wanted) in (0, 1), "and on to the next"
    assert line(beside, "serial").get_ydata() == pytest.approx(one_line.tokens / one_line.serial, rel=1e-12)
    assert assert_clear(axes.get_figure()) > 12
    pale = [patch for patch in axes.patches if patch.get_label() == "does not fit"]
    first = int(one_line.axes[0].numbers[~one_line.fits][0])
    assert len(pale) == 1 and pale[0].get_x() == first and f"from {first} on" in written(axes.get_figure())


def test_what_fits_only_further_on_is_said(tmp_path):
    grid = sweep(Words("llama-3.1-70b:q4_k_m", "desktop-4090", gpu_layers=20), ["hbm0.capacity=4 GB:32 GB:8"])
    assert not grid.fits[0] and grid.fits[-1]
    last = grid.axes[0].shown(int(numpy.flatnonzero(~grid.fits)[-1]))
    path = tmp_path / "plan.yaml"
    plan = Path(DESKTOP).read_text(encoding="utf-8")
    path.write_text(plan.replace("{hbm0: 38 layers, dram0: rest}", "{dram0: 42 layers, hbm0: rest}"), encoding="utf-8")
    host = sweep(str(path), ["placement.weights.dram0=0 layers:80 layers:17"])
    assert not host.fits[0] and host.fits[-1]
    much = host.axes[0].shown(int(numpy.flatnonzero(~host.fits)[-1]))
    for axes, ends in ((plots.over_axis(grid), last), (plots.residency(host), much)):
        assert f"up to {ends}" in written(axes.get_figure())
        assert_clear(axes.get_figure())


def test_a_sweep_over_three_axes_has_no_figure(choices):
    grid = sweep(Words("llama-3.1-70b:q4_k_m", "desktop-4090"), ["gpu-layers=0,8", "batch=1,2", "context=512,1024"])
    with pytest.raises(PlotError, match="over 3 axes: sweep one or two"):
        plots.swept(grid)
    assert plots.swept(choices).get_xlabel() == "gpu-layers (layers at the GPU)"


# Seventy-two GPUs.


@pytest.mark.slow
def test_many_gpus_are_one_name(tmp_path):
    plan, topology = load_plan(write_rack(tmp_path, 72))
    step = compile_step(topology, plan)
    found = roofline([(1, step)])
    assert {level.name for level in found.levels} == {"dram0"} | {
        level.name for level in found.levels if level.kind == "processor"}  # fmt: skip
    assert found.covered == {"c0..71.hbm0..71": "dram0"} and found.stands[0].binding == ("dram0",)
    assert found.stands[0].flop == 72 * 4 * 3e9
    figure = plots.roofline_chart(found).get_figure()
    assert_clear(figure)
    assert "c0..71.hbm0..71" in " ".join(written(figure))


# Labels.


@pytest.mark.slow
@examples(15, 40)
@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.text("abcWg 0", min_size=1, max_size=24)), max_size=25))
def test_labels_never_lie_on_each_other(points):
    page = Page()
    page.axes.set_xlim(0, 1)
    page.axes.set_ylim(0, 1)
    for x, y, text in points:
        page.beside(x, y, text.strip() or "a")
    page.finish("A title")
    assert_clear(page.figure)
    shown = [text.get_text() for text in page.axes.texts]
    for _, _, text in points:
        name = text.strip() or "a"
        assert name in shown or " ".join(name.split()) in " ".join(" ".join(shown).split()) or name in page.dropped


def test_what_has_no_room_is_told_under_the_figure():
    page = Page()
    page.axes.set_xlim(0, 1)
    page.axes.set_ylim(0, 1)
    page.label("a name", ())
    page.finish("A title")
    assert any("Without room for its name: a name." in text for text in written(page.figure))


def test_shapes_that_touch_overlap():
    one = corners(0, 0, 2, 2)
    assert overlap(one, corners(1, 1, 3, 3)) and overlap(one, corners(0.5, 0.5, 1, 1))
    assert not overlap(one, corners(2.1, 0, 3, 2))
    turned = numpy.array([(3, 1), (4, 2), (3, 3), (2, 2)]) + (0.1, 0.1)
    assert not overlap(one, turned), "boxes round them overlap, and they do not"


def test_a_label_takes_its_first_place_where_that_is_free():
    page = Page()
    page.axes.set_xlim(0, 1)
    page.axes.set_ylim(0, 1)
    page.beside(0.5, 0.5, "here", [(-1, -1)])
    page.finish("A title")
    text = next(one for one in page.axes.texts if one.get_text() == "here")
    assert text.xy[0] < 0.5 and text.xy[1] < 0.5
    assert Room(page.axes).axes is page.axes and around(0, 0)[0].gap == DISTANCES[0]


def test_lines_of_text_keep_units_and_leave_no_word_alone():
    text = "No step takes less than 1.34 s at 31.5 GB/s and more of it is told behind"
    for width in range(30, 120, 3):
        for lines_ in (wrapped(text, width), balanced(text, width, style.LETTERS)):
            assert " ".join(lines_) == text or lines_[-1].endswith("...")
            assert not any(one.startswith(("s ", "GB/s")) for one in lines_), "a figure and its unit stay together"
    assert len(balanced(text, 60, style.LETTERS)) == len(wrapped(text, 60))


@given(st.floats(1e-6, 1e9), st.floats(1.0001, 1e7))
def test_ticks_are_round_and_inside(low, ratio):
    high = low * ratio
    for ticks in (style.round_ticks(low, high), style.even_ticks(low, high)):
        assert all(low * (1 - 1e-6) - 1e-12 <= tick <= high * (1 + 1e-6) for tick in ticks)
        assert ticks == sorted(set(ticks)) and len(ticks) <= style.MOST_TICKS + 1


# Grids from files.


def test_a_grid_comes_back_from_its_file(map_grid, tmp_path):
    path = tmp_path / "grid.npz"
    map_grid.to_npz(path)
    back = read_grid(path)
    for name in ("floor", "serial", "overlapped", "binding", "spare", "tokens"):
        assert numpy.array_equal(getattr(back, name), getattr(map_grid, name), equal_nan=True)
    assert back.names == map_grid.names and back.summary() == map_grid.summary()
    assert [(one.path, one.unit, one.numbers.tolist()) for one in back.axes] == [
        (one.path, one.unit, one.numbers.tolist()) for one in map_grid.axes]  # fmt: skip
    assert style.render(plots.heat_map(back), "svg") == style.render(plots.heat_map(map_grid), "svg")


def test_units_and_words_of_axes_come_back(tmp_path):
    path = tmp_path / "grid.npz"
    grid = sweep(Words("llama-3.1-70b", "desktop-4090", gpu_layers=8),
                 ["pcie0.rate=16GB/s:64GB/s:3", "weights=q4_k_m,q8_0"])  # fmt: skip
    grid.to_npz(path)
    back = read_grid(path)
    assert [(one.path, one.unit, one.given) for one in back.axes] == [
        ("pcie0.rate", "B/s", None), ("weights", "", ("q4_k_m", "q8_0"))]  # fmt: skip


def test_what_is_no_grid_is_said(tmp_path):
    for name, content in (("text.npz", b"no grid"), ("empty.npz", b"")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(OffloadError, match="is no grid .*offload sweep"):
            read_grid(tmp_path / name)
    numpy.savez(tmp_path / "other.npz", a=numpy.arange(3))
    with pytest.raises(OffloadError, match="it has no axes and no binding"):
        read_grid(tmp_path / "other.npz")
    with pytest.raises(OffloadError, match="No such file"):
        read_grid(tmp_path / "none.npz")
