"""Grids of sweeps: figures by hand, points, fronts, crossovers, files; and structural axes equal to single steps."""

from __future__ import annotations

import csv
import json
import math
import os
import sys
from pathlib import Path

import numpy
import pytest

from offload import OffloadError, compile_step, floor, load_plan
from offload.documents import read_setting
from offload.pareto import pareto
from offload.schedules import serial
from offload.sweeps import Words, sweep
from offload.sweeps.points import least, undominated
from offload.sweeps.writing import needed, writer_of

SERVER = """\
title: A server for sums by hand
switches: {socket0: {kind: socket}}
memories:
  hbm0: {kind: hbm, capacity: 100 GB, rate: 1000 GB/s}
  dram0: {kind: dram, at: socket0, capacity: 6 GB, rate: 100 GB/s}
processors:
  gpu0: {kind: gpu, memory: hbm0, flops: {bf16: 100 TFLOP/s}}
links:
  pcie0: {between: [socket0, hbm0], rate: 10 GB/s}
"""
PLAN = """\
topology: ./server.yaml
title: four fetches
tensors:
  w: {bytes: 1 GB, home: dram0}
repeat: 4
tokens: 2
tasks:
  fetch: {move: w, to: hbm0}
  layer: {compute: gpu0, flops: 1 GFLOP, reads: [w], after: fetch}
"""
RATES = "pcie0.rate=50GB/s,80GB/s,125GB/s,200GB/s"
SIZES = "tensors.w.bytes=1GB,1.5GB,2GB"
DESKTOP = "examples/llama-3.1-70b-desktop.yaml"


@pytest.fixture(scope="module")
def plan(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sums")
    (folder / "server.yaml").write_text(SERVER, encoding="utf-8")
    (folder / "plan.yaml").write_text(PLAN, encoding="utf-8")
    return folder / "plan.yaml"


@pytest.fixture(scope="module")
def grid(plan):
    return sweep(plan, [SIZES, RATES])


def test_figures_by_hand(grid):
    """4 x w bytes over the slower of bus and DRAM (100 GB/s); 4 x w lie in 6 GB of DRAM; 2 tokens a step."""
    assert grid.shape == (3, 4) and grid.size == 12
    due = [[4 * size / min(rate, 100) for rate in (50, 80, 125, 200)] for size in (1, 1.5, 2)]
    numpy.testing.assert_allclose(grid.floor, due, rtol=1e-12)
    numpy.testing.assert_allclose(grid.tokens_per_s, 2 / numpy.array(due), rtol=1e-12)
    assert (grid.spare == numpy.array([[2e9], [0.0], [-2e9]])).all()
    assert grid.fits.tolist() == [[True] * 4, [True] * 4, [False] * 4]
    assert grid.binding_name.tolist() == [["pcie0.hbm0", "pcie0.hbm0", "dram0", "dram0"]] * 3
    assert (grid.tokens == 2).all() and not grid.wrong


def test_a_point_and_smaller_grids(grid):
    point = grid.at({"tensors.w.bytes": "1GB"}, rate="80GB/s")
    assert point.place == (0, 1) and math.isclose(point.floor, 0.05) and point.binding == "pcie0.hbm0"
    assert point.fits and point.spare == 2e9 and point.tokens_per_s == 2 / point.floor
    assert point.values == {"tensors.w.bytes": 10**9, "pcie0.rate": 80e9} and point.texts["pcie0.rate"] == "80GB/s"
    line = grid.at(bytes=1_500_000_000)
    assert line.shape == (4,) and line.fixed == {"tensors.w.bytes": "1.5GB"}
    assert line.floor.tolist() == grid.floor[1].tolist()
    assert line.at(rate=200e9).texts == {"tensors.w.bytes": "1.5GB", "pcie0.rate": "200GB/s"}
    part = grid.at(rate=slice("60GB/s", 125e9), bytes=["2GB", "1GB"])
    assert part.shape == (2, 2) and part.floor.tolist() == grid.floor[[2, 0]][:, [1, 2]].tolist()
    assert grid.at(rate=slice(None, "80GB/s")).shape == (3, 2) and grid.at().floor is not None
    assert grid.at(bytes=[numpy.int64(10**9)]).shape == (1, 4)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"rate": "90GB/s"}, 'Nearest are "80GB/s" and "125GB/s"'),
        ({"rates": 1}, "no axis"),
        ({"rate": "5 s"}, "B/s"),
        ({"rate": []}, "at least one value"),
        ({"rate": slice("300GB/s", None)}, "no value from"),
        ({"rate": slice(1, 2, 3)}, "without a step"),
        ({"rate": 80e9, "pcie0.rate": 80e9}, "given twice"),
    ],
)
def test_no_nearest_value_is_taken(grid, values, said):
    with pytest.raises(OffloadError) as caught:
        grid.at(values)
    assert said in str(caught.value)


def test_the_end_of_a_path_is_one_axis(plan):
    two = sweep(plan, ["pcie0.rate=50GB/s,80GB/s", "dram0.rate=100GB/s,40GB/s"])
    with pytest.raises(OffloadError, match="may be pcie0.rate or dram0.rate"):
        two.at(rate=80e9)
    assert math.isclose(two.at({"pcie0.rate": 80e9, "dram0.rate": "40GB/s"}).floor, 0.1)


def test_best_points(grid):
    assert [point.place for point in grid.best(3)] == [(0, 2), (0, 3), (0, 1)]  # of equal ones the first
    assert [point.place for point in grid.best(2, by="tokens")] == [(0, 2), (0, 3)]
    assert [point.place for point in grid.best(1, by="spare")] == [(0, 0)]
    assert len(grid.best(99)) == 8 and len(grid.best(99, fitting=False)) == 12  # 2 GB does not fit
    with pytest.raises(OffloadError, match="Figures: floor, "):
        grid.best(3, by="speed")
    with pytest.raises(OffloadError, match="whole number"):
        grid.best(0)


def test_what_no_other_point_beats(grid):
    """Less time against more bytes each: of each size the fastest, at the slowest bus that allows it."""
    front = grid.pareto("floor", "-tensors.w.bytes", "pcie0.rate", fitting=False)
    assert {point.place for point in front} == {(size, rate) for size in range(3) for rate in range(3)}
    assert [point.place for point in grid.pareto("floor", "pcie0.rate")] == [(0, 2), (0, 1), (0, 0)]
    assert [point.place for point in grid.pareto("floor")] == [(0, 2), (0, 3)]
    with pytest.raises(OffloadError, match="pareto of what"):
        grid.pareto()


def test_fronts_are_those_of_the_plain_function():
    random = numpy.random.default_rng(7)
    for count, width in ((0, 2), (1, 3), (40, 1), (200, 2), (200, 3), (150, 4)):
        columns = [random.integers(0, 9, count).astype(float) for _ in range(width)]
        assert undominated(columns).tolist() == pareto(list(zip(*columns, strict=True)))
    values = random.integers(0, 20, 300).astype(float)
    values[::7] = numpy.nan
    order = sorted((at for at in range(300) if values[at] == values[at]), key=lambda at: (values[at], at))
    for count in (1, 5, 100, 300):
        assert least(values, count).tolist() == order[:count]


def test_crossovers_by_hand(grid):
    (one,) = grid.crossovers()
    assert (one.path, one.low, one.high) == ("pcie0.rate", "80GB/s", "125GB/s")
    assert (one.before, one.after) == ("pcie0.hbm0", "dram0")
    assert (one.lines, one.of) == (3, 3) and grid.crossovers("bytes") == []


def test_crossovers_are_those_of_a_walk(plan):
    found = sweep(plan, ["pcie0.rate=20GB/s:200GB/s:13", "dram0.rate=30GB/s:300GB/s:11"])
    names, counts = found.binding_name, {}
    for row in range(12):
        for column in range(11):
            if names[row, column] != names[row + 1, column]:
                key = (row, names[row, column], names[row + 1, column])
                counts[key] = counts.get(key, 0) + 1
    told = {(one.place, one.before, one.after): one.lines for one in found.crossovers("pcie0.rate")}
    assert counts and told == counts


def test_where_no_step_can_be_made(plan):
    found = sweep(plan, ["tokens=0:2", "pcie0.rate=50GB/s,80GB/s"])
    assert numpy.isnan(found.floor[0]).all() and not numpy.isnan(found.floor[1:]).any()
    assert list(found.wrong.values()) == [2] and "at least 1" in found.at(tokens=0, rate="50GB/s").wrong
    assert found.at(tokens=1).wrong == {} and list(found.at(tokens=[0, 2]).wrong.values()) == [2]
    assert not found.fits[0].any() and found.summary().made == 4 and found.at(tokens=0, rate="50GB/s").floor is None
    assert found.binding_name[0].tolist() == ["", ""]


def test_a_grid_says_what_it_is(grid, plan):
    assert repr(grid) == ("<Grid tensors.w.bytes (3) x pcie0.rate (4): 12 points, 8 fit, floor 40 ms to 160 ms, binds: "
                          "dram0 50 %, pcie0.hbm0 50 %>")  # fmt: skip
    told = grid.summary()
    assert (told.points, told.made, told.fit) == (12, 12, 8) and told.nearest.place == (2, 0)
    single = sweep(plan, [])
    assert single.shape == () and math.isclose(single.at().floor, 0.4) and "one point" in repr(single)


@pytest.mark.few
@pytest.mark.parametrize(
    ("file", "axes"),
    [
        (DESKTOP, ["topology=desktop-4090,gh200", "workload.batch=1,3"]),
        (DESKTOP, ["overlap.buffers=1,2,full", "dram0.rate=40GB/s,90GB/s"]),
        (DESKTOP, ["placement.weights={hbm0: 10 layers, dram0: rest},{hbm0: 38 layers, dram0: rest}",
                   "workload.batch=1:3"]),
        (DESKTOP, ["placement.weights.hbm0=10%,40 %", "workload.context=100,5000"]),
        (DESKTOP, ["placement.weights.hbm0=0 layers:40 layers:3", "pcie0.rate=20GB/s,40GB/s"]),
        (DESKTOP, ["placement.compute=local,gpu0", "model.kv=f16,fp8"]),
        (DESKTOP, ["model.name=llama-3.1-70b,llama-3-70b", "model.weights=q4_k_m,q8_0"]),
        (DESKTOP, ["workload.phase=decode,prefill", "workload.batch=2,5"]),
        (DESKTOP, ["hbm0.count=1,2", "hbm0.capacity=24 GiB,48 GB", "dram0.count=1:3"]),
        ("examples/by-hand.yaml", ["repeat=1,40", "in_flight=1:3", "tokens=1,2"]),
        ("examples/by-hand.yaml", ["tasks.fetch.buffers=1:3", "tasks.layer.flops=1 GFLOP,9 TFLOP",
                                   "pcie0.latency=1 us,1 ms"]),
        ("examples/by-hand.yaml", ["tensors.w.home={dram0: 50%, hbm0: rest},dram0", "tensors.w.bytes=100 MB,200 MB",
                                   "overlap=none,full", "dram0.rate=50GB/s,60GB/s", "tokens=1,2", "repeat=2,3"]),
        ("examples/experts-on-the-cpu.yaml", ["workload.batch=1,2,9",
                                               "placement.experts.home.dram0=0 layers,9 layers"]),
    ],
)  # fmt: skip
def test_every_point_equals_a_single_step(file, axes):
    """Values that are words, that change the structure, that are plain numbers but go where no trace follows."""
    found = sweep(file, axes)
    assert found.size and not numpy.isnan(found.floor).all()
    for place in numpy.ndindex(*found.shape):
        settings = [axis.setting(at) for axis, at in zip(found.axes, place, strict=True)]
        try:
            plan, server = load_plan(file, settings=settings)
        except OffloadError:
            assert numpy.isnan(found.floor[place]) and found.point(place).wrong
            continue
        step = compile_step(server, plan)
        bound = floor(step)
        assert found.floor[place] == bound.seconds and found.serial[place] == serial(step).seconds
        if bound.rule != "cycle":
            assert found.names[found.binding[place]] == bound.bottleneck[0]


def test_a_model_in_words():
    words = Words("llama-3.1-70b:q4_k_m", "desktop-4090", gpu_layers=38)
    found = sweep(words, ["batch=1:4", "workload.context=100:5000:3", "dram0.rate=40GB/s,90GB/s"])
    for place in ((0, 0, 0), (3, 2, 1), (1, 1, 0)):
        axes = found.axes
        plan, server = load_plan(DESKTOP, settings=[
            axes[1].setting(place[1]), axes[2].setting(place[2]),
            read_setting(f"workload.batch={axes[0].text(place[0])}")])  # fmt: skip
        assert found.floor[place] == floor(compile_step(server, plan)).seconds
    layers = sweep(Words("llama-3.1-70b:q4_k_m", "desktop-4090"), ["gpu-layers=37:39", "model.weights=q4_k_m,q8_0"])
    plan, server = load_plan(DESKTOP)  # 38 layers in q4_k_m
    assert layers.shape == (3, 2)
    assert layers.at({"gpu-layers": 38, "weights": "q4_k_m"}).floor == floor(compile_step(server, plan)).seconds
    servers = sweep(Words("llama-3.1-8b:bf16", "desktop-4090"), ["on=desktop-4090,gh200", "kv-format=f16,fp8"])
    assert servers.floor[0, 0] > servers.floor[1, 0]


@pytest.mark.parametrize(
    ("given", "axis", "said"),
    [
        ({"gpu_layers": 38}, "gpu-layers=1:3", "say the same"),
        ({}, "placement.weights.hbm0=1 layers:3 layers", "gpu-layers"),
        ({}, "workload.bach=1:3", "workload.batch"),
        ({}, "batch=0:0.5:2", "not a whole number"),
        ({}, "overlap.buffers=0,many", "buffers"),
        ({}, "model.name=nix,nux", "no model"),
    ],
)
def test_words_that_cannot_be_swept(given, axis, said):
    with pytest.raises(OffloadError) as caught:
        sweep(Words("llama-3.1-8b:q4_k_m", "desktop-4090", **given), [axis])
    assert said in str(caught.value)


# Files.


def test_csv_has_every_digit(plan, tmp_path):
    found = sweep(plan, ["tokens=0:2", RATES])
    found.to_csv(tmp_path / "a.csv")
    with open(tmp_path / "a.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["tokens", "pcie0.rate_bytes_per_s", "floor_seconds", "serial_seconds", "tokens_per_step",
                             "tokens_per_s", "spare_bytes", "binding", "fits", "wrong"]  # fmt: skip
    assert len(rows) == 12 and rows[0]["floor_seconds"] == "" and "at least 1" in rows[0]["wrong"]
    assert [float(row["floor_seconds"]) for row in rows[4:]] == found.floor[1:].ravel().tolist()
    assert [float(row["pcie0.rate_bytes_per_s"]) for row in rows[:4]] == [50e9, 80e9, 125e9, 200e9]
    assert rows[5]["fits"] == "true" and rows[5]["binding"] == "pcie0.hbm0" and rows[5]["wrong"] == ""
    assert sorted(os.listdir(tmp_path)) == ["a.csv"]


def test_npz_and_json(grid, tmp_path):
    grid.to_npz(tmp_path / "a.npz")
    with numpy.load(tmp_path / "a.npz") as found:
        assert found["floor_seconds"].tolist() == grid.floor.tolist()
        assert found["axes"].tolist() == ["tensors.w.bytes", "pcie0.rate_bytes_per_s"]
        assert found["binding_names"][found["binding"]].tolist() == grid.binding_name.tolist()
    writer_of(tmp_path / "a.json")(grid)
    told = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    assert told["shape"] == [3, 4] and told["floor_seconds"] == grid.floor.ravel().tolist()
    assert told["axes"][1] == {"path": "pcie0.rate", "unit": "B/s", "values": [50e9, 80e9, 125e9, 200e9]}


def test_parquet(plan, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    found = sweep(plan, ["tokens=0:2", RATES])
    found.to_parquet(tmp_path / "a.parquet")
    table = parquet.read_table(tmp_path / "a.parquet")
    assert table.num_rows == 12 and table.column("floor_seconds").to_pylist()[4:] == found.floor[1:].ravel().tolist()
    assert table.column("floor_seconds").to_pylist()[0] is None
    assert table.schema.field("floor_seconds").metadata == {b"unit": b"s"}


def test_xarray_netcdf_and_zarr(plan, tmp_path):
    xarray = pytest.importorskip("xarray")
    found = sweep(plan, ["overlap=none,full", RATES])
    data = found.to_xarray()
    assert data.floor_seconds.attrs == {"units": "s"} and data.sizes == {"overlap": 2, "pcie0.rate_bytes_per_s": 4}
    assert float(data.floor_seconds.sel({"overlap": "none", "pcie0.rate_bytes_per_s": 80e9})) == found.floor[0, 1]
    pytest.importorskip("netCDF4")
    found.to_netcdf(tmp_path / "a.nc")
    with xarray.open_dataset(tmp_path / "a.nc") as again:
        assert again.floor_seconds.values.tolist() == found.floor.tolist()
    pytest.importorskip("zarr")
    for _ in range(2):  # the second takes the place of the first
        found.to_zarr(tmp_path / "a.zarr")
    with xarray.open_zarr(tmp_path / "a.zarr", consolidated=False) as again:
        assert again.floor_seconds.values.tolist() == found.floor.tolist()
        assert again.overlap.values.tolist() == ["none", "full"]


def test_a_missing_extra_is_told_with_its_command(grid, tmp_path, monkeypatch):
    for module in ("pyarrow", "pyarrow.parquet", "xarray", "zarr", "netCDF4"):
        monkeypatch.setitem(sys.modules, module, None)
    for suffix, extra in ((".parquet", "parquet"), (".nc", "xarray"), (".zarr", "zarr")):
        with pytest.raises(OffloadError, match=rf"pip install 'offload\[{extra}\]'"):
            writer_of(tmp_path / f"a{suffix}")
    with pytest.raises(OffloadError, match=r"offload\[parquet\]"):
        grid.to_parquet(tmp_path / "a.parquet")
    with pytest.raises(OffloadError, match="needs nothing.of.this"):
        needed("nothing.of.this", "none")


def test_what_cannot_be_written(grid, tmp_path, monkeypatch):
    for path, said in ((tmp_path / "no" / "a.csv", "No such file"), (tmp_path, "it is a folder"),
                       ("a\0.csv", "no file can have such a name")):  # fmt: skip
        with pytest.raises(OffloadError, match=said):
            grid.to_csv(path)
    with pytest.raises(OffloadError, match="Suffixes: .csv"):
        writer_of(tmp_path / "a.xls")
    if os.path.exists("/dev/full"):
        with pytest.raises(OffloadError, match="No space left on device. Make room"):
            grid.to_csv("/dev/full")
    (tmp_path / "a.csv").write_text("before", encoding="utf-8")

    def broken(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("offload.sweeps.writing._cells", broken)
    with pytest.raises(OffloadError, match="No space left"):
        grid.to_csv(tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text(encoding="utf-8") == "before" and os.listdir(tmp_path) == ["a.csv"]
