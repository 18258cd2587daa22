"""What someone who has printed what the tools say finds in the imported server: nothing measured is lost unsaid."""

from __future__ import annotations

import pytest

from offload.importing import import_outputs
from offload.readers.tools.finding import Device, Finding, Machine, Measured, Numa, PciePort, facts_of
from offload.readers.tools.recognise import read_content

GIB = 2**30


def two_sockets(gpus_of: tuple[int, ...] = (0, 1)) -> Finding:
    port = PciePort(4, 16)
    gpus = tuple(Device(f"g{n}", "gpu", n, numa=node, port=port) for n, node in enumerate(gpus_of))
    return Finding("topo", Machine((Numa(0, GIB, 8, 0), Numa(1, GIB, 8, 1)), gpus))


def copies(rates: tuple[float, ...], when: str) -> list[Measured]:
    streams = len(rates) if when == "together" else 1
    return [Measured("host", f"gpu{n}", rate, "pinned", when, streams=streams, line=n + 1)
            for n, rate in enumerate(rates)]  # fmt: skip


def imported(machine: Finding, *rates: Measured):
    return import_outputs([machine, Finding("nvbandwidth", rates=rates, file="rates.txt")])


def test_one_gpu_on_each_socket_together_is_a_limit_over_both():
    found = imported(two_sockets(), *copies((25e9, 24e9), "alone"), *copies((20e9, 19e9), "together"))
    limit = found.topology.limits["all_in"]
    assert limit.over == ("pcie0.hbm0", "pcie1.hbm1")
    assert limit.rate.sustained["pinned"].value == pytest.approx(39e9)


def test_one_gpu_on_each_socket_no_slower_together_is_told():
    found = imported(two_sockets(), *copies((25e9, 24e9), "alone"), *copies((25e9, 24e9), "together"))
    assert not found.topology.limits and any("no limit" in text for text in found.not_used)


def test_the_only_gpu_of_a_socket_beside_others_is_told():
    found = imported(two_sockets((0, 0, 1)), *copies((25e9,) * 3, "alone"), *copies((12e9, 12e9, 20e9), "together"))
    (limit,) = found.topology.limits.values()
    assert limit.over == ("pcie0.hbm0", "pcie1.hbm1") and limit.rate.sustained["pinned"].value == 24e9
    assert any("pcie2.hbm2 carries 20 GB/s of 3 at once" in text for text in found.not_used)


def test_how_sockets_are_joined_is_asked_for_as_what_it_is():
    (asked,) = [text for text in imported(two_sockets()).unknown if text.startswith("upi0: ")]
    assert asked.endswith("Add it, as forward: 60 GB/s and backward: 60 GB/s")


STREAM = """STREAM version $Revision: 5.10 $
Function    Best Rate MB/s  Avg time     Min time     Max time
Copy:          {0}.0     0.041001     0.040201     0.042178
Triad:         {0}.5     0.058402     0.057680     0.060002
"""


@pytest.mark.parametrize(("command", "end"), [
    ("$ numactl -N 0 -m 0 ./stream_c.exe\n", "numa0"), ("+ numactl --cpunodebind=1 --membind=1 ./stream\n", "numa1"),
    ("root@box:~# numactl -N1 -m1 ./stream\n", "numa1"), ("", "host"), ("$ numactl -N 0 -m 1 ./stream\n", "host"),
    ("$ numactl -N 0-1 -m 0-1 ./stream\n", "host"), ("$ numactl --interleave=all ./stream\n", "host"),
    ("$ numactl -m 0 ./stream\n", "host"),
])  # fmt: skip
def test_stream_says_its_node_by_the_command_before_it(command: str, end: str):
    (found,) = read_content(command + STREAM.format(150000))
    assert {(one.source, one.destination) for one in found.rates} == {(end, end)}
    assert any("on which NUMA nodes" in text for text in found.unknown) == (end == "host")


def test_a_command_is_of_the_run_after_it_alone():
    runs = "$ numactl -N 0 -m 0 ./stream\n", STREAM.format(150000), STREAM.format(300000), (
        "$ numactl -N 1 -m 1 ./stream\n"), STREAM.format(140000)  # fmt: skip
    (found,) = read_content("".join(runs))
    assert [one.source for one in found.rates] == ["numa0"] * 2 + ["host"] * 2 + ["numa1"] * 2


def test_memories_of_two_sockets_have_their_rates_and_not_both_the_whole():
    runs = ((0, 150000), (1, 140000))
    bound = "".join(f"$ numactl -N {n} -m {n} ./stream\n{STREAM.format(rate)}" for n, rate in runs)
    memories = import_outputs([two_sockets(), *read_content(bound)]).topology.memories
    assert [memories[f"dram{n}"].rate.sustained["copy"].value for n in (0, 1)] == [150e9, 140e9]
    whole = import_outputs([two_sockets(), *read_content(STREAM.format(290000))])
    assert whole.topology.memories["dram0"].rate.unknown
    assert any("a run bound to each tells them" in text for text in whole.not_used)


PEERS = """[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]
Device: 0, Some GPU, pciBusID: 1, pciDeviceID: 0, pciDomainID:0
Device: 1, Some GPU, pciBusID: 2, pciDeviceID: 0, pciDomainID:0
P2P Connectivity Matrix
     D\\D     0     1
     0       1     1
     1       1     1
Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)
   D\\D     0      1
     0 900.00  11.00
     1  11.10 900.00
Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)
   D\\D     0      1
     0 900.00  26.00
     1  26.10 900.00
Bidirectional P2P=Enabled Bandwidth Matrix (GB/s)
   D\\D     0      1
     0 900.00  51.00
     1  51.10 900.00
P2P=Disabled Latency Matrix (us)
   GPU     0      1
     0   1.50  12.00
     1  12.10   1.50
P2P=Enabled Latency (P2P Writes) Matrix (us)
   GPU     0      1
     0   1.50   1.90
     1   1.95   1.50
"""
LOADED = """Intel(R) Memory Latency Checker - v3.11b
Measuring idle latencies for sequential access (in ns)...
\t\tNuma node
Numa node\t     0
       0\t  82.1

Measuring Peak Injection Memory Bandwidths for the system
Bandwidths are in MB/sec (1 MB/sec = 1,000,000 Bytes/sec)
ALL Reads        :\t158844.5
3:1 Reads-Writes :\t150658.6
2:1 Reads-Writes :\t149341.2

Measuring Loaded Latencies for the system
Using Read-only traffic type
Inject\tLatency\tBandwidth
Delay\t(ns)\tMB/sec
==========================
 00000\t329.26\t 159154.0
 02500\t 86.39\t  17829.5
"""


def facts(text: str) -> dict[str, float]:
    """Facts by what they say; two that say the same are a mistake."""
    told = [fact for finding in read_content(text) for fact in facts_of(finding)]
    named = {fact.what: fact.value for fact in told}
    assert len(named) == len(told)
    return named


def test_facts_say_by_which_way_and_that_a_sum_is_one():
    told = facts(PEERS)
    assert told["gpu0 to gpu1, copy, P2P disabled, staged through host memory"] == 11e9
    assert told["gpu0 to gpu1, write, P2P enabled"] == 26e9
    assert told["gpu0 to gpu1, copy, both directions added, P2P enabled"] == 51e9
    assert told["latency gpu0 to gpu1, P2P enabled"] == pytest.approx(1.9e-6)
    assert told["latency gpu0 to gpu1, P2P disabled, staged through host memory"] == pytest.approx(12e-6)


def test_facts_keep_idle_and_loaded_apart_and_each_mix():
    told = facts(LOADED)
    assert told["latency numa0 to numa0, idle"] == pytest.approx(82.1e-9)
    assert [value for what, value in told.items() if what.startswith("latency host to host, loaded, ")] == (
        pytest.approx([329.26e-9, 86.39e-9]))  # fmt: skip
    assert [what for what in told if "Reads" in what] == [
        f"host to host, {access}, whole system, {kind}" for access, kind in
        (("read", "ALL Reads"), ("mixed", "3:1 Reads-Writes"), ("mixed", "2:1 Reads-Writes"))]  # fmt: skip
