"""Rates of GPUs as nvbandwidth, p2pBandwidthLatencyTest, bandwidthTest, rocm_bandwidth_test and hipBusBandwidth say."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings

from offload.errors import ReadingError
from tests.rate_outputs import damaged, dirty, find, holds, own, sample, values, where_samples_lie

FILES = {
    "nvbandwidth": ("nvbandwidth.txt", "nvbandwidth.json"),
    "p2p_test": ("p2p_test.txt",),
    "bandwidth_test": ("bandwidth_test.txt",),
    "rocm_bandwidth": ("rocm_bandwidth.txt", "hip_bus_bandwidth.txt"),
}
EACH = [(reader, name) for reader, names in FILES.items() for name in names]
MIB = 2**20


# --- nvbandwidth ---


def test_nvbandwidth_takes_the_direction_from_the_arrow_and_the_conditions_from_the_test():
    found = find("nvbandwidth", own("nvbandwidth.txt"))
    assert found.tool == "nvbandwidth v0.8"
    assert values(found, "host", "gpu0", when="alone", access="pinned") == [55.10]
    assert values(found, "gpu0", "host", when="both directions", streams=1) == [47.00]
    assert values(found, "gpu1", "host", when="together", streams=2) == [30.00]
    assert values(found, "gpu1", "gpu0", when="alone", access="copy") == [390.25]  # (0, 1) of a table with <-
    assert values(found, "gpu0", "gpu1", when="alone", access="copy") == [391.50]
    assert values(found, "gpus", "gpu1", when="together", streams=1, access="copy") == [389.00]  # one other GPU
    assert values(found, "gpus", "gpu0", access="read") == [401.00]  # column <- all
    assert values(found, "gpu0", "host", access="zero_copy") == []
    assert {rate.line for rate in found.rates if rate.source == "host"} == {15}
    assert found.odd == ()


def test_nvbandwidth_both_directions_of_a_pair_are_apart_and_their_sum_is_marked():
    found = find("nvbandwidth", own("nvbandwidth.txt"))
    assert values(found, "gpu1", "gpu0", when="both directions", streams=1) == [370.00]  # Read1: the row reads
    assert values(found, "gpu0", "gpu1", when="both directions", streams=2, note="both directions added") == [742.00]


def test_nvbandwidth_latency_is_nanoseconds_and_a_local_copy_is_no_rate_of_memory():
    found = find("nvbandwidth", own("nvbandwidth.txt"))
    assert [(one.source, one.destination, one.seconds) for one in found.delays] == [
        ("host", "gpu0", pytest.approx(801.5e-9)), ("host", "gpu1", pytest.approx(803.5e-9)),
    ]  # fmt: skip
    assert values(found, "gpu0", "gpu0") == []
    assert [fact.value for fact in found.facts if "copy within gpu0" in fact.what] == [1350e9]
    assert any("cannot run on this machine: 1." in said for said in found.unknown)


def test_nvbandwidth_json_has_the_same_meaning():
    found = find("nvbandwidth", own("nvbandwidth.json"))
    assert found.tool == "nvbandwidth v0.7"
    assert values(found, "host", "gpu1") == [25.25]
    assert values(found, "gpu0", "gpu1") == [21.5]
    assert values(found, "gpu1", "gpu0") == [21.25]
    assert len(found.rates) == 4
    assert "all_to_one_read_ce" in found.unknown[0]
    assert "device_to_device_latency_sm did not pass" in found.odd[0]
    assert [fact.value for fact in found.facts] == ["NVIDIA L40S", "NVIDIA L40S"]


def test_nvbandwidth_rows_at_the_first_column_and_an_old_name_against_its_arrow():
    """0.2 wrote <- over host_to_all_bidirectional: what the name and the arrow do not agree on is left out."""
    old = (
        "Running host_to_all_memcpy_ce.\nmemcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n"
        "          0         1\n0     55.21     55.26\n\nSUM host_to_all_memcpy_ce 110.47\n\n"
        "Running host_to_all_bidirectional_memcpy_ce.\nmemcpy CE CPU(row) <- GPU(column) bandwidth (GB/s)\n"
        "          0         1\n0     33.49     24.64\n\nSUM host_to_all_bidirectional_memcpy_ce 58.13\n"
    )
    found = find("nvbandwidth", old)
    assert values(found, "host", "gpu1", when="together", streams=2) == [55.26]
    assert len(found.rates) == 2
    assert "line 9" in found.unknown[0]


def test_nvbandwidth_tables_that_are_cut_are_told():
    content = own("nvbandwidth.txt").replace(" 1    391.50       N/A\n", "")
    assert any("its SUM says 781.75" in said for said in find("nvbandwidth", content).odd)
    content = own("nvbandwidth.txt").replace(" 0     31.00     30.00\n", " 0     31.00\n")
    assert any("1 figures in a row of 2 columns" in said for said in find("nvbandwidth", content).odd)
    with pytest.raises(ReadingError, match="no figure in it"):
        find("nvbandwidth", "nvbandwidth Version: v0.8\nRunning host_to_device_memcpy_ce.\n")


# --- p2pBandwidthLatencyTest ---


def test_p2p_keeps_staged_and_direct_apart():
    found = find("p2p_test", own("p2p_test.txt"))
    assert values(found, "gpu0", "gpu1", when="alone", note="P2P disabled, staged") == [11.25]
    assert values(found, "gpu0", "gpu1", when="alone", note="P2P enabled") == [9.75]  # slower: both are kept
    assert values(found, "gpu1", "gpu0", when="alone", note="no peer access: staged") == [11.25]
    assert values(found, "gpu0", "gpu1", when="both directions", streams=2, note="P2P enabled") == [19.0]
    assert values(found, "gpu0", "gpu1", when="both directions", note="P2P disabled") == [14.0]
    assert values(found, "gpu1", "gpu1") == [481.5]
    assert found.machine
    assert [(one.first, one.works) for one in found.machine.peers] == [("gpu0", True), ("gpu1", False)]


def test_p2p_latency_is_of_the_gpu_and_of_the_cpu():
    found = find("p2p_test", own("p2p_test.txt"))
    one_way = [one for one in found.delays if one.source == "gpu0"]
    assert [round(one.seconds * 1e6, 6) for one in one_way] == [15.5, 6.5, 1.5, 2.0]
    assert ["CPU" in one.note for one in one_way] == [False, True, False, True]
    assert all(one.source != one.destination for one in found.delays)


def test_p2p_that_is_cut_says_what_is_missing():
    lines = own("p2p_test.txt").splitlines()
    found = find("p2p_test", "\n".join(lines[:17]))  # within the second table
    assert any("no row 1" in said for said in found.odd)
    assert any("Latencies" in said for said in found.unknown)
    with pytest.raises(ReadingError, match="without a table"):
        find("p2p_test", "\n".join(lines[:8]))


def test_p2p_of_one_gpu_is_its_own_copy():
    one = "Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)\n   D\\D     0\n     0 197.5\n"
    found = find("p2p_test", one + "P2P=Enabled Latency (P2P Writes) Matrix (us)\n   GPU     0\n     0   1.38\n")
    assert values(found, "gpu0", "gpu0", access="mixed") == [197.5]
    assert len(found.rates) == 1
    assert found.delays == ()


# --- bandwidthTest ---


def test_bandwidth_test_reads_the_unit_of_each_heading():
    found = find("bandwidth_test", own("bandwidth_test.txt"))
    assert values(found, "host", "gpu1", access="pageable", size=MIB) == [round(5000 * MIB / 1e9, 6)]
    assert values(found, "host", "gpu1", size=2 * MIB) == [round(6000.5 * MIB / 1e9, 6)]
    assert values(found, "gpu1", "gpu1", access="mixed", size=32_000_000) == [400.5]
    assert values(found, "gpus", "host", streams=2, when="alone", access="pinned") == [26.2]
    assert values(found, "host", "gpu0", access="pageable", size=1_000_000) == [6.5]
    assert len(found.rates) == 5
    assert "printed as 0.0" in found.unknown[0]


def test_bandwidth_test_of_an_unknown_unit_is_refused():
    content = own("bandwidth_test.txt").replace("MB/s", "Mb/s").replace("GB/s", "Gb/s")
    with pytest.raises(ReadingError, match="without a rate"):
        find("bandwidth_test", content)


# --- rocm_bandwidth_test, hipBusBandwidth ---


def test_rocm_bandwidth_numbers_processors_and_gpus_apart():
    found = find("rocm_bandwidth", own("rocm_bandwidth.txt"))
    assert found.tool == "rocm_bandwidth_test 2.6.0"
    assert values(found, "numa0", "gpu1", when="alone") == [55.5]
    assert values(found, "gpu0", "numa1", when="alone", access="pinned") == [55.75]
    assert values(found, "gpu0", "gpu1", when="alone", access="copy") == [48.25]
    assert values(found, "gpu1", "gpu0", when="alone") == []  # N/A
    assert values(found, "gpu1", "gpu0", when="both directions", streams=2) == [96.25]
    assert values(found, "gpu1", "gpu1", access="mixed") == [2101.5]
    assert found.machine
    assert [(one.first, one.second, one.works) for one in found.machine.peers] == [
        ("gpu0", "gpu1", True), ("gpu1", "gpu0", False),
    ]  # fmt: skip


def test_rocm_bandwidth_without_its_list_of_devices_says_what_it_takes():
    lines = own("rocm_bandwidth.txt").splitlines()
    start = next(at for at, line in enumerate(lines) if "Unidirectional" in line)
    found = find("rocm_bandwidth", "\n".join(lines[start:]))
    assert values(found, "numa0", "gpu1", when="alone") == [55.5]
    assert any("no copy to itself is a processor" in said for said in found.assumed)
    assert any("list is not in this output" in said for said in found.unknown)


def test_rocm_bandwidth_ids_need_not_start_at_0():
    found = find(
        "rocm_bandwidth",
        "RocmBandwidthTest Version: 2.6.0\nDevice: 1,  AMD Radeon RX 9070 XT\nDevice: 2,  AMD Radeon RX 9070 XT\n"
        "Unidirectional copy peak bandwidth GB/s\nD/D       1           2\n1         540.5     14.25\n"
        "2         14.5      540.25\n",
    )
    assert values(found, "gpu0", "gpu1") == [14.25]
    assert values(found, "gpu1", "gpu0") == [14.5]
    assert values(found, "gpu1", "gpu1", access="mixed") == [540.25]


def test_hip_bus_bandwidth_is_another_tool():
    found = find("rocm_bandwidth", own("hip_bus_bandwidth.txt"))
    assert found.tool == "hipBusBandwidth"
    (rate,) = found.rates
    assert (rate.source, rate.destination, rate.access, rate.size) == ("gpu0", "host", "pageable", MIB)
    assert (rate.rate, rate.low, rate.high) == pytest.approx((4.1943e9, 3.9e9, 4.3e9))
    assert [(one.source, one.seconds) for one in found.delays] == [("gpu0", pytest.approx(20e-6))]
    assert "1 rates" in found.unknown[0]


# --- all of them ---


@pytest.mark.parametrize(("reader", "name"), EACH)
def test_dirt_changes_nothing(reader: str, name: str):
    clean, pasted = find(reader, own(name)), find(reader, dirty(own(name)))
    assert [(one.source, one.destination, one.rate, one.note, one.line + 3) for one in clean.rates] == [
        (one.source, one.destination, one.rate, one.note, one.line) for one in pasted.rates
    ]
    assert [one.seconds for one in clean.delays] == [one.seconds for one in pasted.delays]


@pytest.mark.parametrize(("reader", "name"), EACH)
def test_two_runs_in_one_file_are_both_read(reader: str, name: str):
    once, twice = find(reader, own(name)), find(reader, own(name) + "\n\n" + own(name))
    assert len(twice.rates) == 2 * len(once.rates) - (2 if reader == "p2p_test" else 0)  # a GPU's own copy, once
    assert len({one.line for one in twice.rates}) == 2 * len({one.line for one in once.rates})


@pytest.mark.parametrize(("reader", "name"), EACH)
def test_nothing_personal_is_kept(reader: str, name: str):
    said = str(find(reader, own(name)))
    for word in ("somehost", "0123456789abcdef", "00000000:18:00", "570.10"):
        assert word not in said


def test_outputs_of_two_tools_in_one_file_are_each_read_by_their_own():
    both = own("nvbandwidth.txt") + own("bandwidth_test.txt") + own("p2p_test.txt")
    nvbandwidth, bandwidth, p2p = (find(reader, both) for reader in ("nvbandwidth", "bandwidth_test", "p2p_test"))
    assert nvbandwidth.rates == find("nvbandwidth", own("nvbandwidth.txt")).rates
    assert len(bandwidth.rates) == 5
    assert [fact.value for fact in bandwidth.facts] == ["NVIDIA A10"] * 2
    assert [fact.value for fact in nvbandwidth.facts][:2] == ["NVIDIA H100 80GB HBM3"] * 2
    assert nvbandwidth.odd == p2p.odd == ()
    assert len(p2p.rates) == 10


@pytest.mark.few
@pytest.mark.parametrize("reader", FILES)
def test_damaged_outputs_end_in_a_finding_or_an_error(reader: str):
    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(damaged(FILES[reader]))
    def damage(content: str) -> None:
        holds(reader, content)

    damage()


LONG = ("0 ", " ", "Running ", "1 2 3 ", "Device 0: x ", "{", "memcpy ", "D2H_Bandwidth ", "Device: 0, ")


@pytest.mark.parametrize("reader", FILES)
@pytest.mark.parametrize("word", LONG)
def test_long_lines_take_no_time(reader: str, word: str):
    holds(reader, "# begin\n" + word * (300_000 // len(word)) + "x\n" + own(FILES[reader][0]))


@pytest.mark.parametrize("cell", ["1e400", "-5", "nan", "inf", "", "9" * 400, None, [], {}, True, 1e308, -1, 0])
def test_cells_of_json_that_are_no_rates_are_left_out(cell):
    value = json.loads(own("nvbandwidth.json").split("\n", 1)[1].rsplit("done", 1)[0])
    value["nvbandwidth"]["testcases"][0]["bandwidth_matrix"] = [[cell, "25.25"]]
    found = find("nvbandwidth", json.dumps(value))
    assert values(found, "host", "gpu1") == [25.25]
    assert len(values(found, "host", "gpu0")) == 0
    holds("nvbandwidth", json.dumps(value))


# --- the larger collection ---


@where_samples_lie
def test_sample_a6000_two_islands():
    found = find("nvbandwidth", sample("nvbandwidth/a6000_6gpu_d2d_v0.8.txt"))
    assert len(found.rates) == 30
    assert values(found, "gpu0", "gpu1") == [26.34]
    assert values(found, "gpu0", "gpu5") == [21.80]
    assert values(found, "gpu5", "gpu0") == [21.86]
    assert values(found, "gpu4", "gpu3") == [26.35]
    assert found.odd == ()
    assert sum(rate.rate for rate in found.rates) / 1e9 == pytest.approx(715.53, abs=0.2)


@where_samples_lie
def test_sample_gh200():
    """Its first two tables were widened by hand: the second row and the GPUs without a device are told."""
    found = find("nvbandwidth", sample("nvbandwidth/gh200_v0.6.log"))
    assert values(found, "host", "gpu0", access="pinned", when="alone") == [369.36, 370.13]
    assert values(found, "gpu0", "host", access="pinned", when="alone") == [295.15, 295.15]
    assert values(found, "host", "gpu0", access="pinned", when="both directions") == [176.92, 176.86]
    assert values(found, "gpu0", "host", access="pinned", when="both directions") == [187.26, 187.0]
    assert values(found, "host", "gpu0", access="zero_copy", when="alone") == [372.33, 360.93]
    assert values(found, "gpu0", "host", access="zero_copy", when="alone") == [351.93, 352.98]
    assert [one.seconds for one in found.delays] == [pytest.approx(772.58e-9)]
    assert found.facts[0].value == "NVIDIA GH200 480GB"
    assert any("more than one host row" in said for said in found.odd)
    assert any("GPU 1, which the list of devices does not have" in said for said in found.odd)
    assert "cannot run on this machine: 17." in found.unknown[0]
    assert values(found, "host", "gpu0", when="alone", access="pinned").count(323.36) == 0


@where_samples_lie
def test_sample_h100_of_several_runs():
    found = find("nvbandwidth", sample("nvbandwidth/h100_8gpu_v0.10_concatenated.txt"))
    assert found.tool == "nvbandwidth v0.10.0"
    assert len(found.rates) == 56 + 8 + 8
    assert values(found, "gpu6", "host", when="alone") == [55.26]
    assert values(found, "host", "gpu7", when="alone") == [55.33]
    assert values(found, "gpu3", "gpu2") == [395.23]
    delays = {(one.source, one.destination): one.seconds for one in found.delays}
    assert len(delays) == 56
    assert delays["gpu7", "gpu3"] == pytest.approx(821.94e-9)
    assert found.odd == found.unknown == ()


@where_samples_lie
def test_sample_h20_local_copy_is_no_rate():
    found = find("nvbandwidth", sample("nvbandwidth/h20_device_local_copy_v0.8.txt"))
    assert found.rates == found.delays == ()
    assert [fact.value / 1e9 for fact in found.facts if fact.unit == "B/s"] == pytest.approx(
        [1116.30, 1116.30, 1115.72, 1116.16, 1116.16, 1116.88, 1117.17, 1116.30]
    )
    assert "host0" not in str(found)


@where_samples_lie
def test_sample_json_of_one_gpu():
    found = find("nvbandwidth", sample("nvbandwidth/single_gpu_v0.5.json"))
    assert found.tool == "nvbandwidth v0.5"
    assert values(found, "host", "gpu0", access="pinned", when="alone") == [12.3964, 12.3963]
    assert values(found, "gpu0", "host", access="pinned", when="alone") == [13.2001, 13.1998]
    assert values(found, "host", "gpu0", access="pinned", when="both directions") == [11.5031, 11.5035]
    assert values(found, "gpu0", "host", access="zero_copy", when="both directions") == [9.83679]
    assert [one.seconds for one in found.delays] == [pytest.approx(649.879e-9)]
    assert found.unknown[0].count(",") == 17  # as many tests waived
    assert found.odd == ()


@where_samples_lie
def test_sample_p2p_of_8_h100():
    found = find("p2p_test", sample("cuda_samples/p2p_h100_8gpu.txt"))
    assert len(found.rates) == 8 + 4 * 56
    assert len(found.delays) == 3 * 56
    assert values(found, "gpu0", "gpu1") == [37.53, 365.30, 45.75, 739.22]
    assert values(found, "gpu7", "gpu3", note="P2P enabled", when="alone") == [393.15]
    assert values(found, "gpu4", "gpu0", note="P2P disabled", when="both directions") == [52.48]
    assert values(found, "gpu7", "gpu7") == [2884.50]
    delays = [one for one in found.delays if (one.source, one.destination) == ("gpu6", "gpu0")]
    assert [round(one.seconds * 1e6, 2) for one in delays] == [18.05, 6.68, 2.33]
    assert found.machine
    assert len(found.machine.peers) == 56
    assert all(peer.works for peer in found.machine.peers)
    assert "CPU's latency" in found.odd[0]


@where_samples_lie
def test_sample_p2p_behind_slow_pcie():
    found = find("p2p_test", sample("cuda_samples/p2p_2gpu_slow_pcie.txt"))
    assert values(found, "gpu0", "gpu1") == [6.34, 6.60, 8.66]
    assert values(found, "gpu1", "gpu0") == [6.34, 6.60, 8.67]
    assert values(found, "gpu0", "gpu0") == [1008.06]
    assert [fact.value for fact in found.facts] == ["NVIDIA GeForce RTX 4090"] * 2
    assert any("both directions, with peer access on" in said for said in found.unknown)
    assert found.delays == ()


@where_samples_lie
def test_samples_of_bandwidth_test():
    quick = find("bandwidth_test", sample("cuda_samples/bandwidthTest_k80.txt"))
    assert values(quick, "host", "gpus", streams=2, size=2**25, access="pinned") == [round(9254.7 * MIB / 1e9, 6)]
    assert values(quick, "gpus", "host", streams=2) == [round(9686.1 * MIB / 1e9, 6)]
    assert values(quick, "gpus", "gpus", streams=2, access="mixed") == [round(155985.8 * MIB / 1e9, 6)]
    ranged = find("bandwidth_test", sample("cuda_samples/bandwidthTest_range_k80.txt"))
    assert len(ranged.rates) == 9
    assert values(ranged, "host", "gpu0", size=201326592) == [round(8747.1 * MIB / 1e9, 6)]
    assert values(ranged, "gpu0", "host", size=67108864) == [round(10571.0 * MIB / 1e9, 6)]
    assert values(ranged, "gpu0", "gpu0", size=134217728) == [round(157676.4 * MIB / 1e9, 6)]
    shmoo = find("bandwidth_test", sample("cuda_samples/superbench_d2h_bw.log"))
    assert len(shmoo.rates) == 81
    assert values(shmoo, "gpu0", "host", size=1000, access="pinned") == [0.4]
    assert values(shmoo, "gpu0", "host", size=9_000_000) == [12.5]
    assert values(shmoo, "gpu0", "host", size=68_000_000) == [13.1]
    assert shmoo.facts[0].value == "Tesla V100-PCIE-32GB"


@where_samples_lie
def test_samples_of_rocm_bandwidth():
    pair = find("rocm_bandwidth", sample("rocm_bandwidth/vega_pair_v2.0.1.txt"))
    assert pair.tool == "rocm_bandwidth_test 2.0.1"
    assert values(pair, "host", "gpu0") == [13.691481, 18.476459]
    assert values(pair, "gpu0", "host") == [14.285625, 17.803980]
    assert values(pair, "gpu1", "gpu0") == [10.261898, 18.907250]
    assert values(pair, "gpu1", "gpu1") == [389.485083]
    assert [fact.value for fact in pair.facts][1:] == ["Vega 10 [Radeon PRO WX 8100]"] * 2
    halo = find("rocm_bandwidth", sample("rocm_bandwidth/strix_halo_v2.6.0_tables.txt"))
    assert values(halo, "host", "gpu0") == [84.364, 83.489]
    assert values(halo, "gpu0", "host") == [84.147, 83.489]
    assert values(halo, "gpu0", "gpu0") == [212.419]
    bus = find("rocm_bandwidth", sample("rocm_bandwidth/hipBusBandwidth_h2d.log"))
    assert bus.tool == "hipBusBandwidth"
    assert len(bus.rates) == 20
    assert values(bus, "host", "gpu0", size=262144 * 1024, access="pinned") == [25.3280]
    assert values(bus, "host", "gpu0", size=1024) == [0.0414]
    assert [one.seconds for one in bus.delays] == [pytest.approx(24.5e-6)]
    assert "3 rates" in bus.unknown[0]
