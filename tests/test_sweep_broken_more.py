"""What sweeps got wrong: ranges of whole numbers, figures not asked for, settings of one value, damaged chunks."""

import hashlib
import io
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from offload import compile_step, load_plan, plots
from offload.documents import read_setting
from offload.errors import OffloadError
from offload.schedules import serial
from offload.sweeps import FIGURES, Axis, Words, read_axis, sweep
from offload.sweeps.kept import Kept
from offload.sweeps.reductions import read_reductions
from offload.tracing import NotFollowed, Trace, traced
from tests.commands import run

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
DESKTOP = EXAMPLES / "llama-3.1-70b-desktop.yaml"
HAND = EXAMPLES / "by-hand.yaml"
LARGE = 10**18


@pytest.mark.parametrize(("text", "values"), [
    ("workload.batch=1:1e3:4log", [1, 10, 100, 1000]),
    ("workload.batch=1e0:1e1", list(range(1, 11))),
    (f"hbm0.capacity={LARGE} B:{LARGE + 1} B:2", [LARGE, LARGE + 1]),
    (f"hbm0.capacity={LARGE} B:{LARGE + 1000} B:5", [LARGE + 250 * place for place in range(5)]),
    (f"hbm0.capacity={LARGE} B:{LARGE + 7} B:3log", [LARGE, LARGE + 7]),  # floats have no whole number between
])  # fmt: skip
def test_whole_ends_give_exact_whole_numbers(text, values):
    axis = read_axis(text)
    assert axis.numbers.dtype == np.int64 and axis.numbers.tolist() == values
    assert [int(axis.text(place).removesuffix(" B")) for place in range(len(axis))] == values


def test_a_batch_up_to_a_power_of_ten_is_swept():
    grid = sweep(DESKTOP, ["workload.batch=1:1e3:4log"])
    assert not grid.wrong and np.isfinite(grid.floor).all()


@pytest.mark.parametrize(("text", "told"), [
    ("speculation.accept=0:1:11", r"there are 2 whole numbers, and 11 are asked\. .* speculation\.accept=0:1\.0:11\.$"),
    ("hbm0.capacity=0 B:3 B:9", r"4 whole bytes, and 9 are asked\. Write hbm0\.capacity=0 B:3 B:4\.$"),
    ("placement.weights.hbm0=0 layers:3 layers:9", "4 whole layers, and 9 are asked"),
    ("a.b=1.0:1.0000000000000002:5", "no 5 different numbers"),
])  # fmt: skip
def test_a_range_without_so_many_values_is_refused(text, told):
    with pytest.raises(OffloadError, match=told):
        read_axis(text)


def test_a_share_from_0_to_1_has_parts():
    grid = sweep(EXAMPLES / "phases-speculation.yaml", ["speculation.accept=0:1.0:11"])
    assert grid.shape == (11,) and np.isfinite(grid.floor[1:]).all()  # of 0 there is no step


@pytest.mark.parametrize("given", [
    ("a.b", None, np.array([]), ""), ("a.b", (), None, ""), ("a.b", None, None, ""), ("a b", None, np.arange(3), ""),
    ("a.b", None, np.array([[1, 2]]), ""), ("a.b", None, np.array([1, np.nan]), ""), ("a.b", None, [1, 2], ""),
    ("a.b", None, np.array([1, 2], dtype=object), ""), ("a.b", None, np.array([1.0, 2.0]), "GB/s"),
    ("a.b", ("1", "2"), np.arange(3), ""), ("a.b", None, np.array([1.0, 2.0**62]), ""),
])  # fmt: skip
def test_what_is_no_axis_is_refused(given):
    if given[0] == "a b":
        given = ("a..b", *given[1:])
    with pytest.raises(OffloadError):
        Axis(*given)


@pytest.mark.parametrize("two", [
    ("workload.batch=2", "workload={batch: 3}"), ("workload={batch: 3}", "workload.batch=2"),
    ("overlap=none", "overlap.buffers=2"), ("overlap.buffers=2", "overlap=none"),
    ("placement.weights.hbm0=3 layers", "placement={weights: {hbm0: 9 layers, dram0: rest}}"),
])  # fmt: skip
def test_a_map_and_a_value_in_it_are_not_both_set(two):
    with pytest.raises(OffloadError, match="set the same value"):
        load_plan(DESKTOP, settings=[read_setting(one) for one in two])
    with pytest.raises(OffloadError, match="set the same value"):
        sweep(DESKTOP, list(two))


@pytest.mark.parametrize("turn", [1, -1])
def test_the_order_of_settings_does_not_matter(turn):
    plans = ["workload={batch: 3}", "workload.context=2000"][::turn]
    plan, _ = load_plan(DESKTOP, settings=[read_setting(one) for one in plans])
    assert "batch 3, context 2000" in plan.title
    rates = ["pcie0.rate=32GB/s", "pcie0.hbm0.rate=16GB/s"][::turn]
    _, server = load_plan(DESKTOP, settings=[read_setting(one) for one in rates])
    assert sorted(server.resources[name].peak for name in ("pcie0.hbm0", "pcie0.socket0")) == [16e9, 32e9]


@pytest.mark.parametrize("figures", [["floor"], ["serial"], ["tokens"], ["spare"], ["binding"], ["floor", "tokens"]])
def test_a_grid_of_some_figures_tells_what_it_has(figures, tmp_path):
    all_of_them = sweep(HAND, ["tensors.w.bytes=100 MB:90 GB:9"])
    grid = sweep(HAND, ["tensors.w.bytes=100 MB:90 GB:9"], figures=figures)
    assert "9 points" in repr(grid)
    assert (grid.tokens_per_s is None) == (set(figures) != {"floor", "tokens"})
    assert grid.fits is None if "spare" not in figures else np.array_equal(grid.fits, all_of_them.fits)
    assert (grid.binding_name is None) == ("binding" not in figures)
    point, its = grid.point((4,)), all_of_them.point((4,))
    for name in figures:
        assert getattr(point, name) == getattr(its, name)
    assert point.fits is (its.fits if "spare" in figures else None)
    grid.to_csv(tmp_path / "a.csv")
    grid.to_npz(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as held:
        for name, column in (("floor", "floor_seconds"), ("serial", "serial_seconds"), ("spare", "spare_bytes")):
            assert (column in held) == (name in figures)
            assert column not in held or np.array_equal(held[column], getattr(all_of_them, name))
    if "spare" not in figures:
        with pytest.raises(OffloadError, match="takes spare, which the sweep was not asked for"):
            grid.pareto("tensors.w.bytes")
    if "binding" not in figures:
        with pytest.raises(OffloadError, match="takes binding"):
            grid.crossovers()
    with pytest.raises(OffloadError, match="not asked for"):
        grid.summary()


@pytest.mark.parametrize(("draw", "of", "axis"), [
    (plots.over_axis, HAND, "tensors.w.bytes=100 MB:90 GB:9"),
    (plots.residency, Words("llama-3.1-8b:bf16", "desktop-4090"), "gpu-layers=0:32:9"),
])  # fmt: skip
@pytest.mark.parametrize("figures", [["floor"], ["serial"], ["floor", "tokens"], ["floor", "tokens", "binding"]])
def test_a_figure_of_a_grid_says_what_the_sweep_was_not_asked_for(draw, of, axis, figures):
    grid = sweep(of, [axis], figures=figures)
    with pytest.raises(OffloadError, match="which the sweep was not asked for: add it to figures"):
        draw(grid)


def test_an_array_by_name_is_the_grids_own_or_told():
    grid = sweep(HAND, ["tensors.w.bytes=100 MB:90 GB:9"], figures=["floor", "binding"])
    assert grid.array("floor") is grid.floor
    assert list(grid.array("binding_name")) == list(grid.binding_name)
    for name, made_of in (("fits", "spare"), ("tokens_per_s", "tokens"), ("serial", "serial")):
        with pytest.raises(OffloadError, match=f"takes {made_of}, which"):
            grid.array(name)


@pytest.mark.parametrize(("given", "told"), [
    ({"threads": 1.5}, "threads"), ({"threads": "2"}, "threads"), ({"chunk": 1.5}, "chunk"), ({"by": "foo"}, "by"),
    ({"by": "serial"}, "grid.best"), ({"resume": True}, "keep=FILE"), ({"keep": ""}, "keep"),
    ({"executor": 3}, "executor"), ({"reduce": "best"}, "list"), ({"reduce": [3]}, "no reduction"),
    ({"figures": []}, "list of at least one"), ({"figures": "floor"}, "list of at least one"),
])  # fmt: skip
def test_an_argument_that_means_nothing_is_refused(given, told):
    with pytest.raises(OffloadError, match=told):
        sweep(HAND, ["tensors.w.bytes=100 MB:900 MB:3"], **given)


@pytest.mark.parametrize(("plan", "axes"), [(HAND, "repeat=1:3"), (HAND, [3]), (HAND, [None]), (HAND, 3), (3, []),
                                            (None, ["repeat=1:3"])])  # fmt: skip
def test_what_is_no_plan_and_no_axes_is_refused(plan, axes):
    with pytest.raises(OffloadError):
        sweep(plan, axes)


def test_odd_arguments_of_a_grid_are_told():
    grid = sweep(HAND, ["tensors.w.bytes=100 MB:900 MB:9", "overlap.buffers=1,2"])
    assert grid.at(bytes=np.array(100_000_000)).shape == (2,)
    for ask in (lambda: grid.at({1: 2}), lambda: grid.at([1]), lambda: grid.at("repeat"), lambda: grid.axis(0),
                lambda: grid.at(bytes=10**400), lambda: grid.crossovers(3), lambda: grid.pareto(None),
                lambda: grid.best(by=["floor"]), lambda: grid.point((9, 0)), lambda: grid.point((0,)),
                lambda: grid.point("ab")):  # fmt: skip
        with pytest.raises(OffloadError):
            ask()


def test_how_overlapped_times_were_found_is_told_by_chunks_too():
    axes = ["pcie0.rate=16GB/s:128GB/s:5log"]
    whole = sweep(EXAMPLES / "weights-flexgen.yaml", axes, figures=FIGURES)
    with ThreadPoolExecutor(2) as pool:
        parts = sweep(EXAMPLES / "weights-flexgen.yaml", axes, figures=FIGURES, chunk=2, executor=pool)
    told = [one.told for one in (whole, parts)]
    assert [one.formula + one.replayed + one.single for one in told] == [5, 5]
    assert np.array_equal(whole.overlapped, parts.overlapped)


def _kept(folder):
    axes = ["tensors.w.bytes=100 MB:900 MB:40"]
    grid = sweep(HAND, axes, chunk=10, keep=folder / "a.csv")
    return axes, grid, folder / "a.csv.partial"


def _signed(number, body):
    line = {"chunk": number, "bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}
    return json.dumps(line).encode() + b"\n" + body


@pytest.mark.parametrize("what", ["empty", "no archive", "other names", "other sizes", "deep"])
def test_a_chunk_that_is_signed_but_is_none_is_worked_out_again(tmp_path, what):
    axes, grid, folder = _kept(tmp_path)
    held = Kept(tmp_path / "a.csv").load(2)
    file = io.BytesIO()
    if what == "other names":
        np.savez(file, floor=np.zeros(10))
    if what == "other sizes":
        np.savez(file, **(held | {"floor": np.zeros(9)}))
    body = {"empty": b"", "no archive": b"PK\x03\x04nothing"}.get(what, file.getvalue())
    (folder / "chunk-0000002").write_bytes(b"[" * 4096 if what == "deep" else _signed(2, body))
    again = sweep(HAND, axes, chunk=10, keep=tmp_path / "a.csv", resume=True)
    assert np.array_equal(grid.floor, again.floor) and np.array_equal(grid.binding, again.binding)


def test_a_manifest_that_cannot_be_read_is_told_once(tmp_path):
    axes, _, folder = _kept(tmp_path)
    (folder / "manifest.json").write_text("[" * 100_000)
    found = run("sweep", str(HAND), "--over", axes[0], "--resume", "-o", str(tmp_path / "a.csv"))
    assert found.returncode == 2 and "to start anew" in found.stderr and "goes on" not in found.stderr


def test_what_differs_from_a_kept_sweep_is_told_of_its_axis(tmp_path):
    _kept(tmp_path)
    with pytest.raises(OffloadError, match=r"axis 1 was tensors\.w\.bytes, 40 values from 100 MB to 900 MB .* and is "
                                           r"tensors\.w\.bytes, 40 values from 100 MB to 900 MB"):
        sweep(HAND, ["tensors.w.bytes=100 MB:900 MB:40log"], chunk=10, keep=tmp_path / "a.csv", resume=True)


@pytest.mark.few
@pytest.mark.parametrize("address", ["foo", "", "tcp://:x"])
def test_what_is_no_address_of_a_scheduler_is_told_and_no_more(address):
    pytest.importorskip("distributed")
    found = run("sweep", str(HAND), "--over", "overlap.buffers=1,2", "--dask", address)
    assert found.returncode == 2 and found.stderr.count("\n") == 1 and "no address of a scheduler" in found.stderr


@pytest.mark.parametrize("text", ["min=x", "pareto=foo:spare", "best=" + "9" * 5000])
def test_a_reduction_that_is_none_is_told_with_its_option(text):
    with pytest.raises(OffloadError, match="^--reduce "):
        read_reductions([text], [read_axis("repeat=1:3")])


def test_a_list_in_place_of_a_table_names_the_value_of_its_first_column():
    found = run("sweep", str(HAND), "--over", "tensors.w.bytes=100 MB:900 MB:9", COLUMNS="40")
    assert "\ntensors.w.bytes: 100 MB\n" in found.stdout


def test_more_points_than_can_be_gone_through_are_refused_at_once():
    axes = ["tensors.w.bytes=1 B:10000000 B:10000000", "gpu0.flops.bf16.rate=1 TFLOP/s:2 TFLOP/s:10000000"]
    with pytest.raises(OffloadError, match="100,000,000,000,000 points are more than"):
        sweep(HAND, axes, reduce=["binding"])


def test_two_words_that_say_the_same_are_told():
    with pytest.raises(OffloadError, match="say the same"):
        sweep(Words("llama-3.1-8b:q4_k_m", "desktop-4090"), ["batch=1:3", "workload.batch=1:3"])


@pytest.mark.parametrize("suffix", ["json", "csv", "npz"])
def test_a_floor_of_nothing_says_nothing_of_tokens(tmp_path, suffix):
    plan = tmp_path / "plan.yaml"
    plan.write_text("topology: desktop-4090\ntensors:\n  w: {bytes: 1 GB, home: hbm0}\ntasks:\n"
                    "  layer: {compute: gpu0, reads: [w], flops: 1 GFLOP}\n", encoding="utf-8")  # fmt: skip
    path = tmp_path / f"a.{suffix}"
    found = run("sweep", str(plan), "--over", "hbm0.rate=unknown,1 TB/s", "--by", "tokens", "-o", str(path))
    assert found.returncode == 0 and found.stderr == ""
    grid = sweep(plan, ["hbm0.rate=unknown,1 TB/s"])
    assert grid.floor[0] == 0 and np.isnan(grid.tokens_per_s[0]) and grid.tokens_per_s[1] > 0
    assert [point.place for point in grid.best(by="tokens")] == [(1,)]
    if suffix == "json":
        assert json.loads(path.read_text())["tokens_per_s"][0] is None
    elif suffix == "csv":
        assert path.read_text().splitlines()[1].split(",")[4] == ""


@pytest.mark.parametrize("path", ["dram0.count=1:4", "pcie0_both.rate=5 GB/s:60 GB/s:4", "pcie0.latency=0 us:900 us:4",
                                  "dram0.rate.sustained=20%:90%:4"])  # fmt: skip
def test_a_number_that_is_not_gone_on_with_is_told(path):
    """Of a count beside two rates a trace held everywhere, as no point that was compared showed the difference."""
    axis = read_axis(path)
    trace = Trace()
    number = trace.number("a", axis.numbers[1].item())
    try:
        _, server = load_plan(DESKTOP, settings=[axis.setting(1, number)])
    except NotFollowed:
        return
    part = {**server.links, **server.limits}[axis.path.split(".")[0]]
    held = part.latency[1] if axis.path.endswith("latency") else part.rate.sustained[""].value
    assert traced(held)


def test_a_count_beside_rates_that_seldom_bind_is_its_own_evaluation():
    path = EXAMPLES / "llama-3-70b-from-two-drives.yaml"
    axes = ["dram0.rate.sustained=5 GB/s:80 GB/s:4", "hbm0.rate.sustained=5 GB/s:80 GB/s:4", "dram0.count=1:4"]
    grid = sweep(path, axes)
    for at in np.ndindex(*grid.shape):
        settings = [axis.setting(place) for axis, place in zip(grid.axes, at, strict=True)]
        plan, server = load_plan(path, settings=settings)
        assert grid.serial[at] == serial(compile_step(server, plan)).seconds, at


def test_settings_are_texts_or_settings():
    plain = sweep(EXAMPLES / "by-hand.yaml", ["pcie0.rate=16GB/s,32GB/s"], settings=["overlap.buffers=3"])
    assert plain.shape == (2,)
    plan, _ = load_plan(EXAMPLES / "by-hand.yaml", settings=["overlap.buffers=3"])
    assert plan.overlap.buffers == 3
    for wrong in ("overlap.buffers=3", [3], 5, ["overlap.buffers"], [None]):
        with pytest.raises(OffloadError, match=r"overlap\.buffers|workload|setting"):
            load_plan(EXAMPLES / "by-hand.yaml", settings=wrong)


@pytest.mark.parametrize(("text", "told"), [
    ("workload.batch=1:8:1000000000", "there are 8 whole numbers, and 1,000,000,000 are asked"),
    ("pcie0.rate=1GB/s:8GB/s:99999999999999999999log", "are more than the 10,000,000 that an axis may have"),
    ("workload.batch=1:2:3:4", "a range is FIRST:LAST or FIRST:LAST:COUNT, .* and this has 4 parts"),
    ("pcie0.rate=1GB/s:2GB/s:3:log", "and this has 4 parts"),
    ("workload.batch=1:8:٣", "is no count of at least 2"),
])  # fmt: skip
def test_what_is_wrong_with_a_count_is_said(text, told):
    with pytest.raises(OffloadError, match=told):
        read_axis(text)


def test_an_axis_on_which_nothing_depends_is_told():
    told = "No figure here depends on ssd0.count."
    asked = ("sweep", str(DESKTOP), "--over", "workload.batch=1:2", "--over")
    text = run(*asked, "ssd0.count=1:4").stdout
    assert told in text and "depends on workload.batch" not in text
    assert "No figure here depends" not in run(*asked, "dram0.rate=40GB/s:60GB/s:3").stdout
    grid = sweep(DESKTOP, ["workload.batch=0:2", "ssd0.count=1:4"])  # of a batch of 0 there is no step
    assert grid.depends_on("batch") and not grid.depends_on("count")


def test_chunks_that_another_run_took_away_are_told(tmp_path):
    kept = Kept(tmp_path / "a.npz")
    kept.start({})
    Kept(tmp_path / "a.npz").remove()
    with pytest.raises(OffloadError, match=r"a\.npz\.partial is gone: another run with the same output ended"):
        kept.save(0, {"floor": np.zeros(3)})
    with pytest.raises(OffloadError, match="cannot be written: No such file"):
        Kept(tmp_path / "none" / "a.npz").start({})
