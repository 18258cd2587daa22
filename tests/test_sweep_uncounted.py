"""Points whose time depends on parts without a rate: marked in every answer, and among no best ones."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest

from offload import compile_step, evaluate, load_plan, plots
from offload.documents import read_setting
from offload.errors import OffloadError, PlotError
from offload.sweeps import FIGURES, sweep
from offload.sweeps.reading import read_grid
from offload.uncounted import uncounted
from offload.words import plan_from_words
from tests.commands import run

ROOT = Path(__file__).resolve().parent.parent
HAND = ROOT / "examples" / "by-hand.yaml"
AXES = ["dram0.rate=unknown,40GB/s", "pcie0.rate=unknown,20GB/s,40GB/s"]
PARTS = [["dram0, pcie0.hbm0", "", ""], ["pcie0.hbm0", "", ""]]
DRIVE = """
topology: {topology}
model: {{name: llama-3.1-8b, weights: bf16}}
placement:
  weights: {{hbm0: 6 layers, {drive}: rest}}
  compute: gpu0
"""


def the_step(path, *settings, topology=None):
    plan, server = load_plan(path, topology=topology, settings=[read_setting(one) for one in settings])
    return compile_step(server, plan)


@pytest.fixture(scope="module")
def grid():
    return sweep(HAND, AXES, figures=FIGURES)


def test_a_point_is_marked_as_its_step_is(grid):
    for place in np.ndindex(grid.shape):
        point = grid.point(place)
        plan, server = load_plan(HAND, settings=[axis.setting(at) for axis, at in zip(grid.axes, place, strict=True)])
        study = evaluate(server, plan)
        assert point.uncounted == ", ".join(study.uncounted) == PARTS[place[0]][place[1]]
        assert (point.floor, point.serial, point.overlapped) == (
            study.floor.seconds, study.serial.seconds, study.overlapped.seconds)  # fmt: skip
    assert grid.known.tolist() == [[not one for one in line] for line in PARTS]


@pytest.mark.parametrize("by", ["floor", "serial", "overlapped", "tokens"])
def test_what_is_not_known_is_not_best(grid, by):
    assert len(grid.best(10, by=by)) == len(grid.best(10, by=by, fitting=False)) == 4
    assert not any(one.uncounted for one in (*grid.best(10, by=by), *grid.pareto(by, "spare")))


def test_what_memory_is_left_is_known_all_the_same(grid):
    assert len(grid.best(10, by="spare")) == 6 and len(grid.pareto("spare")) == 6


@pytest.mark.parametrize("chunk", [1, 4, None])
def test_reductions_leave_it_out_and_count_it(chunk):
    found = sweep(HAND, AXES, reduce=["best=9", "min", "pareto", "binding"], chunk=chunk)
    assert all(not point.uncounted for points in found.answers.values() for point in points)
    assert found.uncounted == {"dram0, pcie0.hbm0": 1, "pcie0.hbm0": 1} and found.fit == 6
    best, = (points for one, points in found.answers.items() if one.kind == "best")
    assert [point.place for point in best] == [point.place for point in sweep(HAND, AXES).best(9)]
    spare = sweep(HAND, AXES, reduce=["best=9"], by="spare", chunk=chunk)
    points, = spare.answers.values()
    assert sorted((point.place, point.uncounted) for point in points) == [
        ((one, two), PARTS[one][two]) for one in range(2) for two in range(3)]  # fmt: skip


def test_a_grid_in_chunks_is_marked_alike(grid, tmp_path):
    chunked = sweep(HAND, AXES, figures=FIGURES, chunk=1, keep=tmp_path / "a.npz")
    assert np.array_equal(chunked.uncounted, grid.uncounted) and chunked.parts == grid.parts


def test_a_part_of_a_grid_keeps_its_marks(grid):
    assert grid.at({"dram0.rate": "40GB/s"}).known.tolist() == [
        False, True, True]  # fmt: skip
    assert grid.at({"dram0.rate": "40GB/s", "pcie0.rate": "unknown"}).uncounted == "pcie0.hbm0"


def test_files_are_marked(grid, tmp_path):
    flat = [one for line in PARTS for one in line]
    grid.to_csv(tmp_path / "a.csv")
    with open(tmp_path / "a.csv", encoding="utf-8", newline="") as file:
        assert [line["uncounted"] for line in csv.DictReader(file)] == flat
    grid.to_npz(tmp_path / "a.npz")
    read = read_grid(tmp_path / "a.npz")
    assert [read.point(place).uncounted for place in np.ndindex(grid.shape)] == flat
    assert read.best(9) == grid.best(9)
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    grid.to_parquet(tmp_path / "a.parquet")
    assert pandas.read_parquet(tmp_path / "a.parquet")["uncounted"].tolist() == flat
    pytest.importorskip("xarray")
    held = grid.to_xarray()
    texts = held["uncounted_texts"].values.tolist()
    assert [texts[at] if at >= 0 else "" for at in held["uncounted"].values.ravel()] == flat


def test_a_grid_whose_times_are_all_known_has_no_such_column(tmp_path):
    grid = sweep(HAND, ["tensors.w.bytes=100 MB,200 MB"])
    assert grid.uncounted is None and "uncounted" not in grid.to_xarray()
    grid.to_csv(tmp_path / "a.csv")
    assert "uncounted" not in (tmp_path / "a.csv").read_text(encoding="utf-8")


def test_a_damaged_grid_file_is_refused(grid, tmp_path):
    grid.to_npz(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as held:
        arrays = {name: held[name] for name in held.files}
    for change in ({"uncounted": arrays["uncounted"] + 9}, {"uncounted": arrays["uncounted"][0]},
                   {"uncounted_texts": np.array([1.0])}):  # fmt: skip
        np.savez(tmp_path / "b.npz", **(arrays | change))
        with pytest.raises(OffloadError, match="the file is damaged"):
            read_grid(tmp_path / "b.npz")


def test_the_report_and_the_data_say_it(tmp_path):
    asked = ("sweep", str(HAND), *(word for axis in AXES for word in ("--over", axis)))
    text = run(*asked).stdout
    assert "Times are not known at 2 points" in text
    assert "- 1: no rate is known of dram0, pcie0.hbm0, on which the time depends" in text
    table = text.partition("\nFloor over ")[2].partition("\n\n")[0]
    assert re.search(r"^unknown +\S+ ms\? ", table, re.MULTILINE) and "? times are not known." in table
    answer = json.loads(run(*asked, "--json").stdout)
    assert answer["uncounted"] == [{"parts": "dram0, pcie0.hbm0", "points": 1}, {"parts": "pcie0.hbm0", "points": 1}]
    assert answer["smallest"]["uncounted"] == "dram0, pcie0.hbm0" and len(answer["best"]) == 4
    run(*asked, "-o", str(tmp_path / "a.json"))
    written = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    assert written["uncounted"] == [one for line in PARTS for one in line]
    reduced = run(*asked, "--reduce", "best")
    assert "Times are not known at 2 points" in reduced.stdout
    spare = run(*asked, "--by", "spare").stdout.partition("\nBest ")[2].partition("\n\n")[0]
    assert spare.count(">= ") == spare.count("?") == 2


def test_where_nothing_is_known_it_is_said():
    asked = ("sweep", str(HAND), "--over", "dram0.rate=unknown", "--over", "pcie0.rate=unknown")
    found = run(*asked)
    assert found.returncode == 0 and "\nBest" not in found.stdout and "Times are not known at any point" in found.stdout
    assert "Of no point that fits the times are known." in run(*asked, "--reduce", "best").stdout


def test_figures_draw_no_time_that_is_not_known():
    pytest.importorskip("matplotlib")
    hidden = ["tensors.w.bytes=100 MB:400 MB:4", "dram0.rate=40GB/s:60GB/s:3"]
    grid = sweep(HAND, hidden, settings=["pcie0.rate=unknown"], figures=FIGURES)
    with pytest.raises(PlotError, match=r"no expected time of a step is known .* no rate is of pcie0\.hbm0"):
        plots.heat_map(grid, figure="overlapped")
    axes = plots.over_axis(grid.at({"dram0.rate": "40GB/s"}))
    labels = {line.get_label() for line in axes.get_lines()}
    assert not labels & {"expected", "serial"} and any(one.startswith("floor") for one in labels)
    told = " ".join(text.get_text() for text in axes.figure.findobj(lambda one: hasattr(one, "get_text")))
    assert "the floor alone is drawn" in " ".join(told.split())
    with pytest.raises(PlotError, match="of no point that fits the times are known"):
        plots.pareto_front(grid)


@pytest.mark.parametrize(("server", "drive", "settings", "parts"), [
    # Neither the drive nor its link has a rate; the link to the GPU that has one says nothing of the drive.
    ("azure-nd96-v4", "ssd0", (), ("ssd0.read",)),
    ("dgx-h100", "boot0", (), ("boot0.read",)),
    ("dgx-h100", "ssd0", (), ()),
    # A drive may be far slower than its link, and is measured through it.
    ("desktop-4090", "ssd0", ("ssd0.rate=unknown",), ("ssd0.read",)),
    ("desktop-4090", "ssd0", ("m2.rate=unknown",), ()),
    # What a drive or host memory delivers is no rate of the link to the GPU, but where both are one move.
    ("desktop-4090", "dram0", ("pcie0.rate=unknown",), ("pcie0.hbm0",)),
    ("desktop-4090", "dram0", ("dram0.rate=unknown",), ()),
    ("desktop-4090", "dram0", ("dram0.rate=unknown", "pcie0.rate=unknown"), ("dram0", "pcie0.hbm0")),
    ("desktop-4090", "dram0", (), ()),
])  # fmt: skip
def test_what_tells_the_time_of_a_move(tmp_path, server, drive, settings, parts):
    plan = tmp_path / "plan.yaml"
    plan.write_text(DRIVE.format(topology=server, drive=drive), encoding="utf-8")
    assert set(uncounted(the_step(plan, *settings))) == set(parts)


def test_a_drive_without_a_rate_is_not_ranked_as_fast_as_its_link(tmp_path):
    (tmp_path / "plan.yaml").write_text(DRIVE.format(topology="azure-nd96-v4", drive="ssd0"), encoding="utf-8")
    found = run("compare", "plan.yaml", "--on", "azure-nd96-v4,dgx-h100", cwd=tmp_path).stdout
    assert "1 dgx-h100" in found
    assert "azure-nd96-v4: takes a time that is not known: no rate is known of ssd0.read" in " ".join(found.split())


@pytest.mark.parametrize(("more", "parts"), [
    ({}, ()), ({"batch": 4}, ()), ({"prompt": 512}, ("cpu0.flops",)), ({"batch": 64}, ("cpu0.flops",)),
])  # fmt: skip
def test_much_arithmetic_without_flops_takes_a_time_that_is_not_known(more, parts):
    """A prompt of 8192 tokens took a CPU without FLOP/s as long as one token: 67,000 tokens/s."""
    plan, server = plan_from_words("llama-3.1-8b:bf16", "dgx-spark", compute="cpu0", **more)
    study = evaluate(server, plan)
    assert study.uncounted == parts and (study.tokens_per_s.overlapped is None) == bool(parts)


def test_no_crossover_is_told_to_a_processor_without_flops():
    asked = ("step", "llama-3.1-8b:bf16", "--prompt", "512", "--compute", "cpu0")
    assert "Run in place or stream" not in run(*asked, "--on", "gcp-n1-t4-flexgen").stdout
    assert "Run in place or stream" in run(*asked, "--on", "desktop-4090").stdout
