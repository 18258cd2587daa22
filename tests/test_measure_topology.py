"""A measurement as a topology and as data that an import reads; the copies between processes; FLOP/s."""

from __future__ import annotations

import datetime
import json
from dataclasses import replace

import pytest

from offload.documents import parse_document
from offload.documents.topology_file import read_topology
from offload.errors import ReadingError
from offload.importing import import_outputs
from offload.measure import Measurement, measure, passing, processors
from offload.measure.figures import Budget, Collected, Figure
from offload.measure.machine import find
from offload.measure.run import PARTS
from offload.measure.topology import topology_of
from offload.readers.tools.own_measurement import finding_of
from offload.readers.tools.recognise import read_content
from tests.measuring import small, system, tree, two_sockets

DAY = "2026-01-31"
GB = 1e9
ALPHA, RATE = 20e-6, 7.5e9  # of the made-up drive


def figure(source, destination, access, *gigabytes, about="memory", **more) -> Figure:
    return Figure(about, source, destination, tuple(one * GB for one in gigabytes), access, **more)


FIGURES = [
    figure("numa0", "numa0", "read", 90, 100, 95, threads=4, size=2**28, note="read"),
    figure("numa0", "numa0", "read", 40, 41, 42, threads=1, size=2**28, note="read"),
    figure("numa0", "numa0", "gemv", 80, 82, 81, threads=4, size=2**28, note="matrix-vector"),
    figure("numa1", "numa1", "read", 91, 101, 96, threads=4, size=2**28, note="read"),
    figure("numa1", "numa0", "read", 30, 31, 32, threads=4, size=2**28, note="read"),
    figure("numa0", "numa1", "write", 20, 21, 22, threads=4, size=2**28, note="write"),
    *(figure("drive0", "host", "read", *(size / (ALPHA + size / RATE) / GB * one for one in (0.99, 1.0, 1.01)),
             about="drive", size=size, depth=1, note="O_DIRECT") for size in (2**16, 2**18, 2**20)),
    figure("drive0", "host", "read", 9, about="drive", size=2**22, depth=1, note="from the page cache", rate=False),
    figure("host", "drive1", "write", 0.5, about="drive", size=2**22, depth=1, note="O_DIRECT"),
    figure("host", "gpu0", "pinned", 25, about="gpu", size=2**26, note="fake"),
    Figure("processor", "cpus", "cpus", (2e12, 2.2e12, 2.1e12), unit="FLOP/s", format="fp32", note="NumPy"),
    Figure("processor", "cpus", "cpus", (1e12,), unit="FLOP/s", format="fp32", note="NumPy, smaller"),
    Figure("processor", "cpus", "cpus", (4e12,), unit="FLOP/s", format="fp32", note="a loop", threads=8, rate=False),
]


def data_of(figures, **more):
    return {"offload_measure": 1, "date": DAY, "mode": "quick", "warnings": ["it was busy"], "gpus": [],
            "figures": [one.to_json() for one in figures], **more}  # fmt: skip


@pytest.fixture
def box(tmp_path):
    return find(system(two_sockets(tmp_path)), Collected(), allowed=range(8))


def told_of(here, figures=FIGURES, peaks=None, collected=None):
    collected = collected or Collected()
    collected.figures = list(figures)
    return topology_of(here, data_of(figures), peaks or {}, collected)


def test_what_was_measured_is_sustained_with_the_ends_of_its_runs(box):
    topology = told_of(box).topology
    read = topology.memories["dram0"].rate.sustained["read"]
    assert (read.low, read.value, read.high) == (90 * GB, 95 * GB, 100 * GB)
    source = topology.memories["dram0"].rate.source
    assert f"offload measure of {DAY} (quick, 1 to 3 runs)" in source and "4 threads" in source
    assert topology.memories["dram1"].rate.sustained["read"].value == 96 * GB
    most = float(f"{2**20 / (ALPHA + 2**20 / RATE):.4g}")
    assert topology.memories["ssd0"].read.sustained[""].value == most
    assert topology.memories["disk0"].write.sustained[""].value == 0.5 * GB
    assert topology.memories["dram0"].rate.peak is None


def test_other_nodes_measure_the_link_between_sockets(box):
    link = next(one for one in told_of(box).topology.links.values() if {one.a, one.b} == {"socket0", "socket1"})
    ways = {(link.a, link.b): link.forward, (link.b, link.a): link.backward}
    assert ways["socket1", "socket0"].sustained[""].value == 31 * GB  # read from node 1 by node 0
    assert ways["socket0", "socket1"].sustained[""].value == 21 * GB


def test_processors_read_as_matrix_vector_work_and_share_what_all_compute(box):
    topology = told_of(box).topology
    cpu = topology.processors["cpu0"]
    assert cpu.reads.sustained[""].value == 81 * GB and DAY in cpu.reads.source
    assert topology.processors["cpu1"].reads is None  # not measured there
    for name in ("cpu0", "cpu1"):
        flops = topology.processors[name].flops["fp32"]
        assert flops.sustained[""].value == 1.05e12 and flops.peak is None and "NumPy" in flops.source


def test_drives_have_a_latency_that_is_fitted_with_its_error(box):
    told = told_of(box)
    link = next(one for one in told.topology.links.values() if "ssd0" in (one.a, one.b))
    assert link.latency == (0.0, pytest.approx(ALPHA, rel=1e-2))
    assert "latency: an estimate, fitted over size, 3 figures within 0.0% (derived)" in link.source
    assert any(one.what.startswith("rate of drive0 to host") and one.value == pytest.approx(RATE, rel=1e-2)
               for one in told.derived)  # fmt: skip


def test_copies_between_processes_are_fitted_over_their_sizes_or_say_why_not(box):
    def passed(note, rate_of):
        return [Figure("host", "process", "process", (rate_of(size),), "copy", size=size, note=note, rate=False)
                for size in (2**16, 2**20, 2**24)]  # fmt: skip

    told = told_of(box, [*passed("by a pipe", lambda size: size / (ALPHA + size / RATE)),
                         *passed("by shared memory", lambda size: 2e9 - size)])  # fmt: skip
    found = {one.what.split(",")[0]: one.value for one in told.derived}
    assert found["latency of copies from process to process by a pipe"] == pytest.approx(ALPHA, rel=1e-2)
    assert found["rate of copies from process to process by a pipe"] == pytest.approx(RATE, rel=1e-2)
    assert any("by shared memory: no latency is fitted" in one for one in told.not_used)


def test_peaks_are_those_of_encodings_and_of_the_description(box):
    told = told_of(box, peaks={0: (300 * GB, "peak: dmidecode, 8 channels (derived)")})
    assert told.topology.memories["dram0"].rate.peak == 300 * GB and told.topology.memories["dram1"].rate.peak is None
    assert told.topology.memories["dram0"].cache == (2 * 2 + 32) * 2**20
    link = next(one for one in told.topology.links.values() if "ssd0" in (one.a, one.b))
    assert (link.generation, link.lanes) == (4, 4) and link.forward.peak == pytest.approx(7.877e9, rel=1e-3)


def test_a_rate_above_a_peak_is_a_contradiction_and_is_not_written(box):
    told = told_of(box, peaks={0: (94 * GB, "peak: dmidecode, 8 channels (derived)")})
    assert any("above the peak of dram0" in one for one in told.contradicts)
    assert told.topology.memories["dram0"].rate.sustained["read"].value == 41 * GB  # by one thread


def test_the_file_reads_back_as_the_same_topology(box):
    told = told_of(box)
    assert read_topology(parse_document(told.text, "box.yaml"), name=told.topology.name) == told.topology
    assert "# Doubtful: it was busy" in told.text and "Example 9000" in told.topology.title
    assert f"measured {DAY}" in told.topology.title


def test_nothing_measured_leaves_the_shape(box):
    told = told_of(box, [])
    assert told.topology.memories["dram0"].rate.unknown and told.topology.processors["cpu0"].flops == {}
    assert any("flops unknown" in one for one in told.unknown)


def test_drives_that_two_tools_count_otherwise_are_not_taken_for_each_other(box):
    collected = Collected()
    told = told_of(replace(box, drives=("nvme0n1",)), collected=collected)
    assert told.topology.memories["ssd0"].read.unknown
    assert any("which is which is not certain" in one for one in collected.missing)


# As data


def test_an_import_reads_the_data_with_its_lines():
    text = "some log\n" + json.dumps(data_of(FIGURES), indent=2)
    (found,) = read_content(text)
    assert found.tool == f"offload measure of {DAY} (quick, 1 to 3 runs)"
    rates = [one for one in FIGURES if one.rate and one.unit == "B/s"]
    assert [one.rate for one in found.rates] == [one.value for one in rates]
    lines = text.splitlines()
    for rate, one in zip(found.rates, rates, strict=True):
        assert '"about"' in lines[rate.line - 1] and (rate.low, rate.high) == (one.low, one.high)
    facts = {one.what: one.value for one in found.facts}
    assert any("page cache" in what for what in facts) and any(what.startswith("FLOP/s in fp32") for what in facts)
    assert found.odd == ("it was busy",)


def test_an_import_sets_the_sustained_rates_of_a_topology(box):
    before = told_of(box).topology
    faster = [replace(one, repeats=tuple(2 * each for each in one.repeats)) for one in FIGURES if "numa" in one.source]
    after = import_outputs([finding_of(data_of(faster))], onto=before).topology
    assert after.memories["dram0"].rate.sustained["read"].value == 190 * GB
    assert after.memories["ssd0"] == before.memories["ssd0"]
    assert after.memories["dram0"].rate.source.count("measured read:") == 1


@pytest.mark.parametrize(("change", "words"), [
    ({"value": -1}, "has no value above 0"),
    ({"value": float("nan")}, "has no value above 0"),
    ({"value": 1e12}, "ends that are not around its value"),
    ({"source": "../../etc"}, "an end that is not known"),
    ({"unit": "GB/s"}, "not known"),
    ({"threads": 0}, "a threads that is no whole number"),
    ({"size": True}, "a size that is no whole number"),
])  # fmt: skip
def test_figures_that_cannot_be_are_told_and_left_out(change, words):
    data = data_of(FIGURES[:2])
    data["figures"][0] |= change
    found = finding_of(data)
    assert len(found.rates) == 1 and any(words in one for one in found.odd)


@pytest.mark.parametrize(("text", "words"), [
    ('{"offload_measure": 1, "figures": [', "not whole"),
    ('{"offload_measure": 2, "figures": []}', "measure again"),
    ('{"offload_measure": 1, "figures": []}', "without a figure"),
    ('{"offload_measure": 1, "figures": [3]}', "is no map"),
    ('{"offload_measure": 1}\n{"offload_measure": 1}', "2 measurements"),
])  # fmt: skip
def test_data_that_is_none_is_refused(text, words):
    with pytest.raises(ReadingError, match=words):
        read_content(text)


# Between processes


def test_copies_between_processes_and_within_memory_are_measured():
    told = Collected()
    passing.measure_passing(2**33, small(), told, Budget(None), lambda text: None)
    notes = [one.note for one in told.figures]
    assert [note.split(",")[0].split(":")[0] for note in notes] == ["memcpy", "by a pipe", "by shared memory"]
    assert not any(one.rate for one in told.figures) and all(len(one.repeats) == 2 for one in told.figures)


def test_a_copy_through_a_buffer_is_a_copy():
    import numpy as np

    source = np.random.default_rng(1).integers(0, 255, 1000, np.uint8)
    into, between = np.zeros(1000, np.uint8), np.zeros(96, np.uint8)
    passing.bounce(source, into, between)
    assert (source == into).all()


def test_a_process_that_does_not_begin_is_told(monkeypatch):
    monkeypatch.setattr(passing, "PIPE_CHILD", "raise SystemExit")
    told = Collected()
    passing.measure_passing(2**33, small(), told, Budget(None), lambda text: None)
    assert any("by pipe: the other process did not begin" in one for one in told.missing)
    assert any("shared memory" in one.note for one in told.figures)


def test_a_large_copy_goes_straight_and_through_a_bounce_buffer():
    told = Collected()
    passing.measure_passing(2**33, small(array=6 * 16 * 2**20), told, Budget(None), lambda text: None)
    large = [one for one in told.figures if one.size == 16 * 2**20]
    assert [one.note for one in large] == ["memcpy, one large copy", "memcpy through a bounce buffer of 4.19 MB"]


def test_too_little_memory_for_a_bounce_buffer():
    told = Collected()
    passing.measure_passing(2**20, small(), told, Budget(None), lambda text: None)
    assert any("a copy through a bounce buffer" in one for one in told.missing)


# FLOP/s


class Torch:
    """torch that computes in bfloat16 alone."""

    bfloat16 = "bf16"

    def rand(self, shape):
        return self

    def to(self, kind):
        return self

    def matmul(self, a, b):
        return a


def test_formats_that_really_run_are_measured_and_others_are_told():
    told = Collected()
    processors.measure_processors([0], small(), told, Budget(None), lambda text: None, Torch())
    assert {one.format for one in told.figures} == {"fp32", "fp64", "bf16"}
    assert {one.note for one in told.figures if not one.rate} == {"a compiled loop of multiply-adds, 1 processor"}
    assert any(one.startswith("FLOP/s in fp16: torch does not compute it here") for one in told.missing)
    assert any("int8" in one for one in told.missing)
    assert all(one.unit == "FLOP/s" and one.value > 0 for one in told.figures)


def test_without_torch_16_bit_formats_are_told(monkeypatch):
    monkeypatch.setattr(processors, "find_spec", lambda name: None)
    monkeypatch.delitem(processors.sys.modules, "torch", raising=False)
    told = Collected()
    processors.measure_processors([0], small(), told, Budget(None), lambda text: None)
    assert {one.format for one in told.figures} == {"fp32", "fp64"}
    assert sum("install torch" in one for one in told.missing) == 2


def test_flop_of_a_matrix_product_are_counted(monkeypatch):
    ticks = iter([0.0, 1.0, 1.0, 1.0, 3.0, 3.0])
    monkeypatch.setattr(processors.time, "perf_counter", lambda: next(ticks))
    assert processors._repeat(lambda: None, 6.0, 1, Budget(None)) == [3.0]


def test_one_run_is_counted_also_where_the_time_is_over(monkeypatch):
    monkeypatch.setattr(processors, "SHORTEST", 0.0)
    assert len(processors._repeat(lambda: None, 6.0, 5, Budget(0.0))) == 1


# All of it


def test_a_machine_that_tells_nothing_is_measured_all_the_same(tmp_path):
    """No /sys, no /proc, no programs: what can be measured is, and what is not known is told."""
    data = tmp_path / "data"
    data.mkdir()
    found = measure([str(data)], small(), ("memory", "drive"), system(tmp_path), allowed=[0],
                    today=datetime.date(2026, 1, 31))  # fmt: skip
    assert isinstance(found, Measurement) and found.told is not None
    assert found.told.topology.memories["dram0"].rate.sustained["read"].value > 0
    missing = " ".join(found.collected.missing)
    for words in ("NUMA nodes", "/proc/meminfo", "on which drive", "no load average",
                  "FLOP/s, copies within host memory, GPUs: not asked for",
                  "peak of host memory"):  # fmt: skip
        assert words in missing
    assert found.data["date"] == DAY and not list(data.iterdir())


def test_an_error_in_one_part_loses_no_other(tmp_path, monkeypatch):
    def broken(*given):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("offload.measure.run.measure_memory", broken)
    found = measure([str(tmp_path / "none")], small(), PARTS, system(two_sockets(tmp_path)), gpus=lambda told: None,
                    allowed=[0])  # fmt: skip
    missing = " ".join(found.collected.missing)
    assert "host memory: [Errno 5] Input/output error" in missing and "No such file or directory" in missing
    assert "none of torch, cupy and nvbandwidth" in missing
    assert "drive nvme0n1: no folder on it that can be measured is given" in missing
    assert {one.about for one in found.collected.figures} == {"processor", "host"}


def test_two_folders_on_one_drive_are_measured_once(tmp_path):
    import os

    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    number = os.stat(tmp_path).st_dev
    root = tree(two_sockets(tmp_path / "root"), {}, {
        f"/sys/dev/block/{os.major(number)}:{os.minor(number)}": "/sys/block/sda"})  # fmt: skip
    found = measure([str(tmp_path / "a"), str(tmp_path / "b")], small(), ("drive",), system(root), allowed=[0])
    rated = [one for one in found.collected.figures if one.rate]
    if "is memory" in " ".join(found.collected.missing) or not rated:
        pytest.skip("temporary files are kept in memory here, or take no O_DIRECT")
    assert {one.source for one in rated} == {"drive1", "host"}
    assert any("measured once" in one for one in found.collected.missing)


def test_a_folder_that_cannot_be_measured_does_not_stand_for_its_drive(tmp_path):
    import os

    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "data").mkdir()
    number = os.stat(tmp_path).st_dev
    root = tree(two_sockets(tmp_path / "root"), {}, {
        f"/sys/dev/block/{os.major(number)}:{os.minor(number)}": "/sys/block/sda"})  # fmt: skip
    found = measure([str(tmp_path / "pipe"), str(tmp_path / "data")], small(), ("drive",), system(root), allowed=[0])
    missing = " ".join(found.collected.missing)
    if "is memory" in missing:
        pytest.skip("temporary files are kept in memory here")
    assert "neither a folder nor a file" in missing and "measured once" not in missing
    assert any(one.about == "drive" for one in found.collected.figures)


def test_16_bit_formats_that_nothing_computes_in_are_widened_and_that_is_told(box):
    told = told_of(box)
    for one in (told.topology.processors[name] for name in ("cpu0", "cpu1")):
        assert one.flops["bf16"].sustained == one.flops["fp16"].sustained == one.flops["fp32"].sustained
        assert "widened to fp32 (assumed)" in one.flops["fp16"].source and "widened" not in one.flops["fp32"].source
    assert "cpu0: bf16 is widened to fp32 and computed at its rate" in told.assumed
    own = Figure("processor", "cpus", "cpus", (9e12,), unit="FLOP/s", format="bf16", note="torch")
    measured = told_of(box, [*FIGURES, own]).topology.processors["cpu0"].flops["bf16"]
    assert measured.sustained[""].value == 4.5e12 and "widened" not in measured.source
