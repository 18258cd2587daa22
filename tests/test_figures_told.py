"""What figures and pages say in words: figures of sentences, long names, and what no rate is known of."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from offload import cli, compile_step, evaluate, load_plan, plots
from offload.curves import floor_curve
from offload.errors import PlotError
from offload.plots import style
from offload.plots.bars import NAME, fitted
from offload.plots.page import Page, in_the_middle, line_height, text_width
from offload.rooflines import Level, Roofline, Stand, roofline
from offload.sweeps import FIGURES, Words, sweep
from offload.why.waterfall import Passes, waterfall
from tests.figures import assert_clear, line, written
from tests.report_pages import data_of, write_page

# A step of which much goes by a memory without a rate, and of which some is known.
SERVER = """\
switches: {socket0: {kind: socket}}
memories:
  hbm0: {kind: hbm, capacity: 24 GB, rate: unknown}
  dram0: {kind: dram, at: socket0, capacity: 100 GB, rate: {peak: 40 GB/s, source: made up}}
processors:
  gpu0: {kind: gpu, memory: hbm0, flops: {bf16: 2500 TFLOP/s}, source: made up}
links:
  c0: {between: [socket0, hbm0], kind: c2c, rate: unknown}
"""
PLAN = """\
title: streamed through what has no rate
topology: server.yaml
tensors:
  w: {bytes: 800 MB, home: dram0}
  kv: {bytes: 300 MB, home: hbm0}
repeat: 8
tasks:
  fetch: {move: w, to: hbm0}
  layer: {compute: gpu0, flops: 4 TFLOP, reads: [w, kv], after: fetch}
overlap: {buffers: 2}
"""


@pytest.fixture
def unknown(tmp_path: Path) -> str:
    (tmp_path / "server.yaml").write_text(SERVER, encoding="utf-8")
    (tmp_path / "plan.yaml").write_text(PLAN, encoding="utf-8")
    return str(tmp_path / "plan.yaml")


def texts(axes) -> str:
    return " ".join(" ".join(written(axes.get_figure())).split())


# Numbers.


@pytest.mark.parametrize(("value", "told"), [(6149.2, "6,150"), (2.346, "2.35"), (0.0916, "0.0916"), (1.2e7, "12 M")])
def test_sentences_have_no_powers_of_ten(value, told):
    assert style.three(value) == told


def test_a_front_of_one_point_and_a_map_of_an_expected_time():
    asked = Words("llama-3.1-8b:bf16", "gh200")
    front = plots.pareto_front(sweep(asked, ["batch=1:256:9log"]), "tokens", "floor")
    assert "from 6,150 tok/s with" in front.get_figure().get_label()
    alone = plots.pareto_front(sweep(asked, ["batch=2,4"]), "spare", "floor")
    assert "all" not in written(alone.get_figure()) and "batch 2" in written(alone.get_figure())
    level = sweep(asked, ["batch=1,2", "context=1,2"], figures=FIGURES)
    assert plots.heat_map(level, figure="overlapped").get_figure().get_label().startswith("An expected time of")


def test_an_axis_of_tokens_shows_what_fits():
    """Of a model that fits only in part the tokens per second of what fits do not lie on the zero of the axis."""
    grid = sweep(Words("deepseek-v3:fp8", "dgx-h100", compute="gpu0"), ["gpu-layers=0:61"], figures=FIGURES)
    axes = plots.residency(grid)
    right = axes.get_figure().axes[1]
    assert 0.1 < right.get_ylim()[1] < 0.3 < max(line(right, "floor").get_ydata())
    assert "go on to 88.5, above the axis" in texts(axes)
    assert line(right, "expected").get_ydata()[6] > right.get_ylim()[1] / 3, "what fits is seen"


def test_residency_is_of_what_lives_in_a_memory():
    grid = sweep(Words("llama-3.1-70b:q4_k_m", "desktop-4090", gpu_layers=8), ["dram0.rate=50GB/s:100GB/s:3"])
    with pytest.raises(PlotError, match="residency is drawn over how much of a model lives in a memory"):
        plots.residency(grid)


# Names.


def test_long_names_of_rows_stay_whole_or_apart():
    high = 2 * line_height(style.LETTERS - 2) + 1
    long = "nvlink0..7.hbm0..7 and nvlink0..7.nvswitch0"
    shown, sizes = fitted([long, "hbm0..7"], NAME, high)
    assert shown == [long.replace("and ", "and\n"), "hbm0..7"] and sizes == [style.LETTERS - 2, style.LETTERS]
    alike = [f"a folder with a name that is much too long for a row of a figure, plan-{letter}" for letter in "abc"]
    shown, sizes = fitted(alike, NAME, 4.0)
    assert len(set(shown)) == 3 and [one[-6:] for one in shown] == ["plan-a", "plan-b", "plan-c"]
    assert all(text_width(one, size) <= NAME for one, size in zip(shown, sizes, strict=True))


@pytest.mark.parametrize("text", ["short", "x" * 5000, "ab" * 80])
def test_a_name_is_cut_in_its_middle(text):
    found = in_the_middle(text, 30.0)
    begin, end = found.split("...")[0], found.split("...")[-1]
    assert text_width(found) <= 30.0 and text.startswith(begin) and text.endswith(end)
    assert found == text or "..." in found


def test_plans_of_a_ranking_are_told_apart(tmp_path, capsys):
    path = tmp_path / "order.svg"
    names = [f"examples/replicas-that-{what}.yaml" for what in ("fetch-whole-layers", "share-the-fetch")]
    assert cli.main(["plot", "ranking", *names, "-o", str(path)]) == 0
    assert "replicas-that-share-the-fetch comes first" in capsys.readouterr().out
    svg = path.read_text(encoding="utf-8")
    assert "1 replicas-that-share-the-fetch<" in svg and "2 replicas-that-fetch-whole-layers<" in svg
    assert "nvswitch0 bind on" in " ".join(svg.split()) or "nvswitch0 bind<" in svg or ">bind on" in svg


def test_what_has_no_room_is_named_in_full():
    page = Page()
    page.limits("x", 0.0, 1.0)
    page.limits("y", 0.0, 1.0)
    name = "a name of many words that is wider than half of the page, and so is cut where it stands, but not below"
    page.label(name, [])
    assert name in texts(page.finish("nothing at all is seen here", "a subject"))


# Roofs.


def test_a_roof_says_what_share_of_the_work_it_stands_for():
    """A processor that does half of the work has its roof at twice its rate, and the notes say why."""
    levels = (Level("dram0", "memory", 1e11, True), Level("dram1", "memory", 1e11, True),
              Level("cpu0.flops", "processor", 7e11, False))  # fmt: skip
    amounts = {"dram0": 1e10, "dram1": 5e9, "cpu0.flops": 5e10}
    stands = tuple(Stand(batch, 1e11, 0.1, 0.2, amounts, ("dram0",), False) for batch in (1, 2))
    axes = plots.roofline_chart(Roofline("batch", levels, stands, {}))
    assert "cpu0.flops takes 50 % of the work: its roof stands at 1.4 TFLOP/s of the step" in texts(axes)
    assert list(line(axes, "roof: cpu0.flops").get_ydata()) == [pytest.approx(1.4)] * 2
    wide = [line(axes, f"roof: {name}").get_linewidth() for name in ("dram0", "dram1")]
    assert wide[0] > wide[1] + 1, "roofs that lie on each other are both seen"


def test_the_title_of_a_roofline_is_a_sentence():
    plan, topology = load_plan("examples/llama-3.1-70b-desktop.yaml")
    axes = plots.roofline_chart(roofline([(1, compile_step(topology, plan)), (2, compile_step(topology, plan))]))
    assert axes.get_figure().get_label().startswith("Times add on hbm0 and dram0")


# What no rate is known of.


def test_no_figure_tells_a_time_that_is_not_known(unknown, tmp_path):
    """Where much of a step goes by parts without a rate, times are told as least ones, and shares not at all."""
    plan, topology = load_plan(unknown)
    step, study = compile_step(topology, plan), evaluate(topology, plan)
    assert study.uncounted == ("hbm0", "c0.hbm0")
    figures = {
        "loads": plots.load_bars(study), "server": plots.server(topology, study=study),
        "timeline": plots.timeline(step), "rounds": plots.timeline(step, steps=2),
        "floor": plots.latency_floor(floor_curve(step), study=study),
        "waterfall": plots.waterfall(waterfall(Passes("step", (step,)), 1.0), tokens=1),
    }  # fmt: skip
    for name, axes in figures.items():
        assert "hbm0, c0.hbm0, whose rate is unknown: a step may take far longer" in texts(axes), name
        assert_clear(axes.get_figure())
        if name != "floor":  # which is proved whatever the others take
            assert "no rate is known of hbm0, c0.hbm0" in axes.get_figure().get_label(), name
    assert "expected >= 203 ms" in texts(figures["floor"]) and "floor 160 ms" in texts(figures["floor"])
    falls = texts(figures["waterfall"])
    assert "at least 203 ms" in falls and "slower than expected" not in falls
    path = tmp_path / "map.svg"
    words = ["--over", "dram0.rate=20GB/s:40GB/s:3", "--over", "c0.rate=20GB/s:40GB/s:3", "-o", str(path)]
    assert cli.main(["plot", "heat", unknown, *words]) == 0
    told = " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", path.read_text(encoding="utf-8")))
    assert "no time counts hbm0, whose rate is unknown: steps may take far longer" in told


def test_a_known_rate_is_told_as_before():
    plan, topology = load_plan("examples/by-hand.yaml")
    study = evaluate(topology, plan)
    timeline = plots.timeline(compile_step(topology, plan))
    for axes in (plots.load_bars(study), plots.server(topology, study=study), timeline):
        assert "unknown" not in texts(axes) and ">=" not in texts(axes)


def test_a_page_says_that_its_times_are_least_ones(unknown, tmp_path):
    path = write_page(tmp_path, unknown)
    html = path.read_text(encoding="utf-8")
    assert 'id="expected-time">&gt;= 203 ms<' in html and 'id="serial-time">&gt;= 220 ms<' in html
    assert 'id="floor-time">160 ms<' in html and 'id="expected-rate"><' in html
    assert "Expected is at least 203 ms." in html
    assert [one["open"] for one in data_of(path)["points"]] == [True]


def test_a_comparison_of_loads_counts_in_words(capsys):
    names = [f"examples/replicas-that-{what}.yaml" for what in ("fetch-whole-layers", "share-the-fetch")]
    assert cli.main(["compare", *names]) == 0
    assert re.search(r"\n\d+ more differ less and \d+ loads stay as they are\.", capsys.readouterr().out)


def test_a_page_without_a_floor_says_why(tmp_path):
    (tmp_path / "server.yaml").write_text(SERVER.replace("peak: 40 GB/s", "sustained: 40 GB/s"), encoding="utf-8")
    (tmp_path / "plan.yaml").write_text(PLAN, encoding="utf-8")
    html = write_page(tmp_path, str(tmp_path / "plan.yaml")).read_text(encoding="utf-8")
    assert 'id="floor-time">-<' in html and 'id="floor-what">no peak rate that the step needs is known' in html
    plan, topology = load_plan(str(tmp_path / "plan.yaml"))
    found = plots.waterfall(waterfall(Passes("step", (compile_step(topology, plan),)), 1.0))
    assert found.get_figure().get_label().startswith("No floor of the measured 1 s is proved")


# Maps.


def test_a_map_names_what_times_add_on_where_it_is_the_same(tmp_path, capsys):
    """As the floor of single steps has it, at places that are asked; where they differ, those that all have."""
    asked = Words("llama-3.1-70b:q4_k_m", "desktop-4090", gpu_layers=38)
    grid = sweep(asked, ["batch=1,2,4", "context=512,1024,2048"])
    names, places = ("dram0", "hbm0"), []

    def chain(place):
        places.append(tuple(place))
        return names

    axes = plots.heat_map(grid, chain=chain)
    assert "times add on dram0 and hbm0 everywhere" in axes.get_figure().get_label()
    assert "dram0 and hbm0: times add" in texts(axes) and len(set(places)) == 9
    axes = plots.heat_map(grid, chain=lambda place: names[: 1 + place[0]])
    assert "times add on dram0 and others everywhere" in axes.get_figure().get_label()
    axes = plots.heat_map(grid, chain=lambda place: names[place[0] % 2 :][:1])
    assert "times add everywhere" in axes.get_figure().get_label() and "dram0" not in texts(axes)
    path = tmp_path / "map.svg"
    words = ["plot", "heat", "llama-3.1-70b:q4_k_m", "--on", "desktop-4090", "--gpu-layers", "38", "-o", str(path)]
    assert cli.main([*words, "--over", "batch=1,2", "--over", "context=512,1024"]) == 0
    assert "times add on dram0 and hbm0 everywhere" in capsys.readouterr().out


@pytest.mark.parametrize("suffix", ["csv", "nc"])
def test_a_grid_in_another_format_is_told_from_a_model(suffix, tmp_path, capsys):
    path = tmp_path / f"grid.{suffix}"
    path.write_text("batch,floor_seconds\n1,0.1\n", encoding="utf-8")
    assert cli.main(["plot", "heat", str(path), "-o", str(tmp_path / "map.svg")]) == 2
    assert f"grid.{suffix}: figures are drawn of grids in .npz files" in capsys.readouterr().err


def test_marks_of_several_measurements_have_numbers_and_sources(tmp_path):
    path = tmp_path / "drives.svg"
    marks = ["--measured", "4: 3 tok/s; one who measured", "--measured", "2: 1.6 tok/s; another"]
    assert cli.main(["plot", "drives", "examples/405b-from-drives.yaml", *marks, "-o", str(path)]) == 0
    told = " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", path.read_text(encoding="utf-8")))
    assert "Measured 1: one who measured." in told and "Measured 2: another." in told
    assert "measured 1 21.3 s" in told and "measured 2 40 s" in told


def test_money_of_a_token_is_told_of_a_million(tmp_path, capsys):
    words = ["plot", "ranking", "llama-3.1-8b:bf16", "--on", "gh200,dgx-spark", "--meter", "money: 12 USD/h", "--by",
             "money", "-o", str(tmp_path / "order.svg")]  # fmt: skip
    assert cli.main(words) == 0
    assert "gh200 comes first with 13.9 USD per million tokens" in capsys.readouterr().out


def test_a_slider_without_a_step_is_refused(tmp_path, capsys):
    words = ["report", "examples/by-hand.yaml", "-o", str(tmp_path / "page.html"), "--over"]
    assert cli.main([*words, "nothing=1,2"]) == 2
    told = capsys.readouterr().err
    assert "no stop of this slider is a step" in told and 'is called "nothing"' in told
    assert not list(tmp_path.iterdir())
