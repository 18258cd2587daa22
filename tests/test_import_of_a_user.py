"""What someone who has printed what the tools say finds in the imported server: nothing measured is lost unsaid."""

from __future__ import annotations

import pytest

from offload.importing import import_outputs
from offload.readers.tools.finding import Device, Finding, Machine, Measured, Numa, PciePort
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
    assert asked.endswith("Add forward and backward")


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
