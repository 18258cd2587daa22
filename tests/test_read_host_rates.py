"""Readers of what memories were measured at: STREAM, gpu-stream, BabelStream, Intel MLC."""

from __future__ import annotations

import pytest

from offload.errors import ReadingError
from offload.readers.tools import babelstream, mlc, stream
from offload.readers.tools.text import clean
from tests.measured_outputs import damage_test, dirty, facts, found, output, rates, same_but_lines, sample

STREAM, BABEL = ("stream.txt", "gpu_stream.txt"), ("babelstream.txt", "babelstream.csv")
ALL = [*((stream, name) for name in STREAM), *((babelstream, name) for name in BABEL), (mlc, "mlc.txt")]
MIB = 2**20

test_damaged_stream = damage_test(stream, STREAM)
test_damaged_babelstream = damage_test(babelstream, BABEL)
test_damaged_mlc = damage_test(mlc, ("mlc.txt",))


@pytest.mark.parametrize(("reader", "name"), ALL)
def test_dirt_changes_nothing(reader, name):
    clean_one = found(reader, output(name))
    for number, content in enumerate(dirty(output(name))):
        assert same_but_lines(found(reader, content), clean_one), number


@pytest.mark.parametrize(("reader", "name"), ALL)
def test_two_runs_pasted_are_both_read(reader, name):
    content = output(name)
    once, twice = found(reader, content), found(reader, content + "\n" + content)
    assert sorted(one.rate for one in twice.rates) == sorted(2 * [one.rate for one in once.rates])
    assert len(twice.facts) == 2 * len(once.facts) and len(twice.delays) == 2 * len(once.delays)


@pytest.mark.parametrize(("reader", "name"), ALL)
def test_no_reader_takes_anothers_output(reader, name):
    assert [one for one in (stream, babelstream, mlc) if one.is_it(clean(output(name)))] == [reader]


# STREAM


def test_stream():
    finding = found(stream, output("stream.txt"))
    assert [(one.source, one.destination, one.rate, one.access, one.note.split(",")[0], one.line)
            for one in finding.rates] == [
        ("host", "host", 160e9, "copy", "Copy", 7), ("host", "host", 158e9, "copy", "Scale", 8),
        ("host", "host", 171e9, "mixed", "Add", 9), ("host", "host", 172e9, "mixed", "Triad", 10)]  # fmt: skip
    assert facts(finding, "B") == [("bytes of an array of STREAM", 800_000_000, 3)]
    assert any("write-allocate" in one for one in finding.unknown) and not finding.odd


def test_stream_contradictions_are_told():
    assert "is not its arrays'" in found(stream, output("stream.txt").replace("160000.0", "260000.0")).odd[0]
    finding = found(stream, output("stream.txt").replace("160000.0", "inf     "))
    assert "Copy has no rate" in finding.odd[0] and len(finding.rates) == 3
    assert "results are wrong" in found(stream, output("stream.txt") + "\nFailed Validation on array a[]\n").odd[0]
    with pytest.raises(ReadingError, match="no row with a rate"):
        found(stream, "\n".join(output("stream.txt").splitlines()[:6]))


def test_gpu_stream():
    finding = found(stream, output("gpu_stream.txt"))
    assert [one[:6] for one in rates(finding)] == [
        ("gpu0", "gpu0", 2849.2e9, "copy", "alone", 2**32),
        ("gpu0", "gpu0", 3016.8e9, "mixed", "alone", 2**32),
    ]
    assert facts(finding, "B/s") == [("nominal memory rate of gpu0", 3352e9, 4)] and not finding.odd
    assert "not 85.00 % of the peak" in found(stream, output("gpu_stream.txt").replace("2849.20", "1849.20")).odd[0]


# BabelStream


def test_babelstream_text_in_mib():
    finding = found(babelstream, output("babelstream.txt"))
    assert finding.tool == "BabelStream 4.0"
    assert [(one.source, one.rate, one.access, one.line) for one in finding.rates] == [
        ("gpu", 4_000_000 * MIB, "copy", 11),
        ("gpu", 3_500_000 * MIB, "read", 12),
    ]
    assert "which GPU it was" in finding.unknown


@pytest.mark.parametrize(("heading", "unit"), [("MBytes/sec ", 1e6), ("MB/s       ", 1e6), ("MiB/s      ", MIB)])
def test_babelstream_units_of_the_text(heading, unit):
    finding = found(babelstream, output("babelstream.txt").replace("MiBytes/sec", heading))
    assert finding.rates[0].rate == 4_000_000 * unit


@pytest.mark.parametrize(("heading", "unit"), [("max_mbytes_per_sec", 1e6), ("max_MB_per_sec", 1e6),
                                               ("max_mibytes_per_sec", MIB), ("max_MiB_per_sec", MIB)])  # fmt: skip
def test_babelstream_units_of_the_csv(heading, unit):
    finding = found(babelstream, output("babelstream.csv").replace("max_MiB_per_sec", heading))
    assert [fact[1:] for fact in facts(finding, "B/s")] == [(50_000 * unit, 2), (40_000 * unit, 3)]
    assert bool(finding.odd) == (unit == 1e6), "elements x size / time are 2^20 x 50,000 B/s"


def test_babelstream_memory_that_is_not_named_stays_unknown():
    finding = found(babelstream, output("babelstream.csv"))
    assert not finding.rates and any("whose memory" in one for one in finding.unknown)
    finding = found(babelstream, output("babelstream.txt").replace("HIP\n", "OpenCL\n"))
    assert not finding.rates and any("OpenCL may run on a GPU or on the host" in one for one in finding.unknown)
    pasted = found(babelstream, output("babelstream.txt") + output("babelstream.csv"))
    assert [one.source for one in pasted.rates] == ["gpu", "gpu"], "a CSV below is another run"


def test_babelstream_without_a_known_unit_is_refused():
    with pytest.raises(ReadingError, match="a rate in Furlongs is not known"):
        found(babelstream, output("babelstream.txt").replace("MiBytes/sec", "Furlongs   "))


# Intel MLC


def test_mlc_matrices_are_not_square():
    finding = found(mlc, output("mlc.txt"))
    assert finding.tool == "Intel MLC 3.10"
    matrix = [
        (one.source, one.destination, one.rate / 1e9, one.access) for one in finding.rates if "numa" in one.source
    ]
    assert matrix == [
        ("numa0", "numa0", 250.0, "read"),
        ("numa1", "numa0", 120.0, "read"),
        ("numa2", "numa0", 30.0, "read"),
        ("numa0", "numa1", 121.0, "read"),
        ("numa1", "numa1", 251.0, "read"),
        ("numa2", "numa1", 20.0, "read"),
    ]
    idle = [(one.source, one.destination, pytest.approx(one.seconds * 1e9), one.line)
            for one in finding.delays if one.when == "alone"]  # fmt: skip
    assert idle == [("numa0", "numa0", 100.0, 10), ("numa1", "numa0", 150.0, 10), ("numa2", "numa0", 260.5, 10),
                    ("numa0", "numa1", 151.0, 11), ("numa1", "numa1", 101.0, 11)]  # fmt: skip
    assert "line 11: numa2 to numa1 is -" in finding.unknown
    assert "prefetchers" in finding.odd[0]


def test_mlc_peaks_and_loaded_latencies_are_apart():
    finding = found(mlc, output("mlc.txt"))
    assert [one for one in rates(finding) if one[0] == "hosts"] == [
        ("hosts", "hosts", 500e9, "read", "together", None, None, 2, 17),
        ("hosts", "hosts", 450.0005e9, "mixed", "together", None, None, 2, 18)]  # fmt: skip
    loaded = [
        (one.source, pytest.approx(one.seconds * 1e9), one.line) for one in finding.delays if one.when == "together"
    ]
    assert loaded == [("host", 350.0, 35), ("host", 101.0, 36)]
    assert facts(finding, "B/s") == [("rate of the whole system at inject delay 0", 495e9, 35),
                                     ("rate of the whole system at inject delay 20000", 3e9, 36)]  # fmt: skip
    assert "line 38: a measurement that is not read here" in finding.unknown
    assert not any(one.seconds == pytest.approx(130e-9) for one in finding.delays), "cache to cache is no memory"


def test_mlc_rows_that_are_cut_or_of_another_unit_are_left_out():
    content = output("mlc.txt").replace("121000.0        251000.0        20000.0", "121000.0        2510")
    finding = found(mlc, content)
    assert sum("numa" in one.source for one in finding.rates) == 3
    assert "2 figures for 3 columns" in finding.odd[0]
    finding = found(mlc, output("mlc.txt").replace("1,000,000 Bytes/sec", "1,048,576 Bytes/sec"))
    assert not finding.rates and "not known here" in finding.odd[0]
    with pytest.raises(ReadingError, match="no figure of it is whole"):
        found(mlc, "\n".join(output("mlc.txt").splitlines()[:7]))


# What the larger collection says, worked out from the files


def test_sample_stream():
    finding = sample(stream, "stream/epyc_stream.log")
    assert [(one.note.split(",")[0], one.rate, one.line) for one in finding.rates] == [
        ("Copy", 108180.5e6, 27),
        ("Scale", 108572.8e6, 28),
        ("Add", 104571.7e6, 29),
        ("Triad", 105256.0e6, 30),
    ]
    assert facts(finding, "B")[0][1] == 960_000_000 and not finding.odd


def test_sample_gpu_stream():
    finding = sample(stream, "stream/gpu_stream_superbench.log")
    assert len(finding.rates) == 32 and not finding.odd
    first, last = finding.rates[0], finding.rates[-1]
    assert (first.source, first.rate, first.size, first.line) == ("gpu0", pytest.approx(6711.67e9), 2**32, 8)
    assert (last.source, last.rate, last.line) == ("gpu1", pytest.approx(6732.15e9), 41)
    assert max(one.rate for one in finding.rates if one.access == "copy") == pytest.approx(6711.67e9)
    assert [fact[1:] for fact in facts(finding, "B/s")] == [(8192e9, 7), (8192e9, 25)]


@pytest.mark.parametrize(("name", "tool", "end", "expected", "first"), [
    ("v2_k40_cuda.txt", "BabelStream 2.0", "gpu", [194135.310, 194049.073, 190956.372, 190822.844], 11),
    ("v5_openmp.txt", "BabelStream 5.0", "host", [19402.916, 17780.942, 25203.601, 25256.454, 14815.340], 10),
])  # fmt: skip
def test_sample_babelstream(name, tool, end, expected, first):
    finding = sample(babelstream, f"babelstream/{name}")
    assert finding.tool == tool and {one.source for one in finding.rates} == {end}
    assert [one.rate for one in finding.rates] == [pytest.approx(rate * 1e6) for rate in expected]
    assert [one.line for one in finding.rates] == list(range(first, first + len(expected))) and not finding.odd


def test_sample_babelstream_csv():
    finding = sample(babelstream, "babelstream/v5_openmp.csv")
    assert [fact[1:] for fact in facts(finding, "B/s")] == [
        (pytest.approx(rate * 1e6), line) for line, rate in enumerate([18605.4, 19374.3, 25423.5, 25184.1, 14319.3], 2)
    ]
    assert not finding.rates and not finding.odd


def test_sample_mlc_full():
    finding = sample(mlc, "mlc/mlc_v3.11b_full_2socket_cut.txt")
    matrix = {(one.source, one.destination): one.rate for one in finding.rates if "numa" in one.source}
    assert matrix == {("numa0", "numa0"): pytest.approx(79670.3e6), ("numa1", "numa0"): pytest.approx(34393.4e6),
                      ("numa0", "numa1"): pytest.approx(34385.7e6),
                      ("numa1", "numa1"): pytest.approx(79678.3e6)}  # fmt: skip
    peaks = [one.rate / 1e6 for one in finding.rates if one.source == "hosts"]
    assert peaks == [pytest.approx(one) for one in (158844.5, 150658.6, 149341.2, 143355.4, 128158.7)]
    idle = [
        (one.source, one.destination, pytest.approx(one.seconds * 1e9)) for one in finding.delays if one.when == "alone"
    ]
    assert idle == [
        ("numa0", "numa0", 82.1),
        ("numa1", "numa0", 141.0),
        ("numa0", "numa1", 141.5),
        ("numa1", "numa1", 81.5),
    ]
    loaded = [one for one in finding.delays if one.when == "together"]
    assert len(loaded) == 15 and loaded[0].seconds == pytest.approx(329.26e-9)
    assert loaded[-1].seconds == pytest.approx(86.39e-9) and facts(finding, "B/s")[-1][1] == pytest.approx(17829.5e6)
    assert not finding.odd


def test_sample_mlc_matrices():
    finding = sample(mlc, "mlc/mlc_v3.9a_bandwidth_matrix.txt")
    assert [(one.source, one.destination, one.rate / 1e6, one.line) for one in finding.rates] == [
        ("numa0", "numa0", 82542.2, 13), ("numa1", "numa0", 76679.9, 13),
        ("numa0", "numa1", 76536.0, 14), ("numa1", "numa1", 82986.5, 14)]  # fmt: skip
    finding = sample(mlc, "mlc/mlc_v3.9a_latency_matrix.txt")
    assert [(one.source, one.destination, pytest.approx(one.seconds * 1e9), one.line) for one in finding.delays] == [
        ("numa0", "numa0", 87.0, 10),
        ("numa1", "numa0", 101.0, 10),
        ("numa0", "numa1", 101.9, 11),
        ("numa1", "numa1", 86.9, 11),
    ]
    assert not finding.rates and "random access" in finding.odd[0]
