"""Rates of collectives and messages as nccl-tests (text of every age, JSON) and the OSU micro-benchmarks say them."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings

from offload.errors import ReadingError
from offload.readers.tools.finding import Finding
from offload.readers.tools.nccl_tests import factor_of
from tests.rate_outputs import damaged, dirty, find, holds, own, sample, where_samples_lie

FILES = {"nccl_tests": ("nccl_tests.txt", "nccl_tests.json"), "osu": ("osu.txt",)}
EACH = [(reader, name) for reader, names in FILES.items() for name in names]


def bus(finding: Finding, size: int, place: str, operation: str = "") -> list[float]:
    """The bus bandwidths [GB/s] of a size, out of place or in place."""
    return [
        round(rate.rate / 1e9, 6)
        for rate in finding.rates
        if rate.size == size and rate.note.startswith(place) and operation in ("", rate.operation)
    ]


# --- nccl-tests ---


@pytest.mark.parametrize(
    ("operation", "ranks", "factor"),
    [("all_reduce", 8, 1.75), ("all_reduce", 2, 1), ("all_gather", 8, 0.875), ("reduce_scatter", 4, 0.75),
     ("all_to_all", 8, 0.875), ("broadcast", 8, 1), ("reduce", 8, 1), ("sendrecv", 2, 1), ("hypercube", 8, None)],
)  # fmt: skip
def test_factors_of_the_bus_bandwidth(operation: str, ranks: int, factor: float | None):
    assert factor_of(operation, ranks) == factor


def test_nccl_of_two_hosts_with_a_group_column():
    found = find("nccl_tests", own("nccl_tests.txt"))
    rates = [rate for rate in found.rates if rate.operation == "reduce_scatter"]
    assert {rate.ranks for rate in rates} == {4}
    assert all("over 2 hosts" in rate.note for rate in rates)
    assert bus(found, 2**30, "out of place") == [80.53]
    assert bus(found, 2**30, "in place") == [80.94]
    assert len(rates) == 4  # a size of 0 has no rate
    assert [fact.value for fact in found.facts if fact.what == "hosts of reduce_scatter"] == [2]


def test_nccl_works_out_small_rates_from_time():
    """1024 B in 20 us are 51.2 MB/s, x 3/4; printed is 0.04."""
    found = find("nccl_tests", own("nccl_tests.txt"))
    assert bus(found, 1024, "out of place") == [0.0384]
    assert bus(found, 1024, "in place") == [round(1024 / 25e-6 * 0.75 / 1e9, 6)]
    assert "from size and time" in found.rates[0].note
    assert [(one.seconds, one.note) for one in found.delays][0] == (
        pytest.approx(20e-6), "reduce_scatter of 1024 bytes, over 2 hosts",
    )  # fmt: skip


def test_nccl_tells_wrong_results():
    odd = " ".join(find("nccl_tests", own("nccl_tests.txt")).odd)
    assert "2 wrong results at 1073741824 bytes, in place" in odd
    assert "2 values out of bounds" in odd


def test_nccl_old_table_without_a_name_is_known_by_its_factor():
    found = find("nccl_tests", own("nccl_tests.txt"))
    assert bus(found, 2**27, "out of place", "all_reduce") == [15.0]
    assert any("is all_reduce" in said for said in found.assumed)


def test_nccl_without_its_ranks_leaves_them_unknown():
    lines = own("nccl_tests.txt").splitlines()
    found = find("nccl_tests", "\n".join(line for line in lines if "Rank " not in line))
    assert {rate.ranks for rate in found.rates} == {0}
    assert {rate.operation for rate in found.rates} == {"reduce_scatter", "collective"}
    assert any("how many ranks" in said for said in found.unknown)
    assert bus(found, 1024, "out of place") == [0.04]  # as printed


def test_nccl_a_bus_bandwidth_that_is_not_its_time_is_told():
    content = own("nccl_tests.txt").replace("107.37   80.53", "107.37   88.53")
    assert any("is not size / time x 0.75" in said for said in find("nccl_tests", content).odd)


def test_nccl_cut_rows_are_told_and_headings_alone_are_refused():
    content = own("nccl_tests.txt").replace("  107.37   80.53      0     9950  107.91   80.94      2", "  107.37")
    found = find("nccl_tests", content)
    assert any("cut" in said for said in found.odd)
    assert bus(found, 2**30, "out of place") == []
    lines = own("nccl_tests.txt").splitlines()
    with pytest.raises(ReadingError, match="without a row"):
        find("nccl_tests", "\n".join(lines[:12]))


def test_nccl_lines_that_mpirun_tags():
    tagged = "\n".join(f"[1,0]<stdout>:{line}" for line in own("nccl_tests.txt").splitlines())
    assert find("nccl_tests", tagged).rates == find("nccl_tests", own("nccl_tests.txt")).rates


def test_nccl_json():
    found = find("nccl_tests", own("nccl_tests.json"))
    assert {(rate.operation, rate.ranks) for rate in found.rates} == {("all_gather", 2)}
    assert bus(found, 2**20, "out of place") == [26.2144]
    assert bus(found, 2**20, "in place") == []  # nan
    assert bus(found, 2**21, "in place") == [43.690665]
    assert ("model of the GPUs", "NVIDIA B200") in [(fact.what, fact.value) for fact in found.facts]
    assert "1 rates" in found.unknown[0]


@pytest.mark.parametrize("size", ["nan", -1, 1.5, 10**400, None, True, [], "1e9"])
def test_nccl_json_sizes_that_are_none(size):
    value = json.loads(own("nccl_tests.json"))
    value["results"][0]["size"] = size
    found = find("nccl_tests", json.dumps(value))
    assert {rate.size for rate in found.rates} == {2**21}
    assert any("without a size" in said for said in found.odd)


def test_nccl_named_by_its_command():
    lines = own("nccl_tests.txt").splitlines()
    found = find("nccl_tests", "\n".join(["$ ./build/alltoall_perf -b 1K -e 1K -g 4", *lines[17:]]))
    assert {rate.operation for rate in found.rates} == {"all_to_all"}


# --- OSU ---


def test_osu_tests_are_kept_apart():
    found = find("osu", own("osu.txt"))
    assert found.tool == "osu_bw 5.9 and osu_bibw 7.3 and osu_mbw_mr 5.7.1"
    told = [(one.source, one.destination, one.rate, one.when, one.size, one.streams, one.depth) for one in found.rates]
    assert told == [
        ("gpus", "hosts", 0.5e6, "alone", 1, 1, None),
        ("gpus", "hosts", pytest.approx(12000.25e6), "alone", 4194304, 1, None),
        ("hosts", "hosts", pytest.approx(22000.5e6), "both directions", 1048576, 2, None),
        ("hosts", "hosts", pytest.approx(252.5e6), "together", 8, 4, 64),
    ]
    assert found.rates[2].note == "both directions added"
    assert any("line 17" in said for said in found.unknown)  # latency


def test_osu_without_rows_or_in_other_units_is_refused():
    with pytest.raises(ReadingError, match="without a rate"):
        find("osu", "# OSU MPI Bandwidth Test v5.7.1\n# Size      Bandwidth (MB/s)\n")
    with pytest.raises(ReadingError, match="without a rate"):
        find("osu", own("osu.txt").replace("MB/s", "GB/s"))


# --- all of them ---


@pytest.mark.parametrize(("reader", "name"), EACH)
def test_dirt_changes_nothing(reader: str, name: str):
    clean, pasted = find(reader, own(name)), find(reader, dirty(own(name)))
    assert [(one.size, one.rate, one.note, one.ranks) for one in clean.rates] == [
        (one.size, one.rate, one.note, one.ranks) for one in pasted.rates
    ]


@pytest.mark.parametrize(("reader", "name"), EACH)
def test_two_runs_in_one_file_are_both_read(reader: str, name: str):
    once, twice = find(reader, own(name)), find(reader, own(name) + "\n\n" + own(name))
    assert [one.rate for one in twice.rates] == 2 * [one.rate for one in once.rates]
    assert [one.ranks for one in twice.rates] == 2 * [one.ranks for one in once.rates]


@pytest.mark.parametrize(("reader", "name"), EACH)
def test_nothing_personal_is_kept(reader: str, name: str):
    said = str(find(reader, own(name)))
    for word in ("node-", "SECRET", "someone", "3001", "0000:18", "2025-11"):
        assert word not in said


@pytest.mark.parametrize("reader", FILES)
def test_damaged_outputs_end_in_a_finding_or_an_error(reader: str):
    @settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
    @given(damaged(FILES[reader]))
    def damage(content: str) -> None:
        holds(reader, content)

    damage()


LONG = ("0 ", "# Rank ", "#", "1 2 3 ", "{", "# OSU MPI Bandwidth ", "# OSU MPI", " ")


@pytest.mark.parametrize("reader", FILES)
@pytest.mark.parametrize("word", LONG)
def test_long_lines_take_no_time(reader: str, word: str):
    content = f"# OSU MPI Bandwidth{word * (300_000 // len(word))}x\n{word * (300_000 // len(word))}x\n"
    holds(reader, content + own(FILES[reader][0]))


# --- the larger collection ---


@where_samples_lie
def test_sample_all_reduce_of_8_a100():
    found = find("nccl_tests", sample("nccl_tests/allreduce_8gpu.log"))
    assert {(rate.operation, rate.ranks) for rate in found.rates} == {("all_reduce", 8)}
    assert len(found.rates) == 2 * 32  # 34 rows, two of them of no bytes
    assert bus(found, 8589934592, "out of place") == [235.26]
    assert bus(found, 8589934592, "in place") == [235.03]
    assert bus(found, 16777216, "in place") == [130.49]
    assert [one.seconds for one in found.delays] == [pytest.approx(34.73e-6)]
    assert found.odd == ()


@where_samples_lie
def test_sample_all_reduce_of_two_hosts():
    found = find("nccl_tests", sample("nccl_tests/allreduce_gh200_2node_v2.17.txt"))
    assert len(found.rates) == 22
    assert {(rate.operation, rate.ranks) for rate in found.rates} == {("all_reduce", 8)}
    assert all("over 2 hosts" in rate.note for rate in found.rates)
    assert bus(found, 134217728, "out of place") == [122.57]
    assert bus(found, 134217728, "in place") == [123.11]
    assert [one.seconds for one in found.delays] == [pytest.approx(17.93e-6)]
    assert "node0" not in str(found)
    assert found.odd == ()


@where_samples_lie
def test_sample_all_reduce_of_two_k80():
    """Rates of two decimals, 0.61 GB/s: from the times they are known better."""
    found = find("nccl_tests", sample("nccl_tests/allreduce_k80_2node_old.txt"))
    assert len(found.rates) == 22
    assert {(rate.operation, rate.ranks) for rate in found.rates} == {("all_reduce", 2)}
    assert bus(found, 1073741824, "out of place") == [round(1073741824 / 1.752724 / 1e9, 6)]
    assert [fact.value for fact in found.facts] == [2, 2, "Tesla K80"]
    assert found.odd == ()


@where_samples_lie
def test_sample_alltoall_has_the_factor_of_all_gather_too():
    found = find("nccl_tests", sample("nccl_tests/alltoall_8gpu.log"))
    assert {rate.operation for rate in found.rates} == {"all_gather or all_to_all"}
    assert len(found.rates) == 2 * 29  # 34 rows, five of them of no bytes
    assert bus(found, 8589934592, "out of place") == [224.31]
    assert bus(found, 8589934592, "in place") == [226.16]
    assert any("the factor fits each" in said for said in found.unknown)
    assert found.odd == ()


@where_samples_lie
def test_samples_of_osu():
    one = find("osu", sample("osu/osu_bw.txt"))
    assert [(rate.size, rate.rate, rate.streams) for rate in one.rates] == [
        (4, pytest.approx(0.60e6), 1), (8, pytest.approx(1.19e6), 1),
    ]  # fmt: skip
    many = find("osu", sample("osu/osu_mbw_mr.txt"))
    assert [(rate.size, rate.rate, rate.streams) for rate in many.rates] == [
        (4, pytest.approx(126.43e6), 4), (8, pytest.approx(252.65e6), 4),
    ]  # fmt: skip
    assert {rate.depth for rate in many.rates} == {64}
    assert "node0" not in str(one)
