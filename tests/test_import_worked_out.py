"""Import: what is worked out from families of figures and from collectives: latency, n_half, what links carry."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offload.collectives import algorithm_bandwidth, bus_bandwidth
from offload.documents import load_topology, parse_document
from offload.documents.topology_file import read_topology
from offload.importing import import_outputs
from offload.importing.collective_rates import prove
from offload.readers.tools.finding import Delay, Device, Fact, Finding, Joint, Machine, Measured, Numa, PciePort

SIZES = [2**power for power in range(12, 29, 2)]
ALPHA, RATE = 10e-6, 25e9


def family(**more: object) -> tuple[Measured, ...]:
    """Rates of time = ALPHA + size / RATE, over the sizes, on lines 10 and on."""
    return tuple(Measured("host", "gpu0", size / (ALPHA + size / RATE), "pinned", size=size, line=10 + number, **more)
                 for number, size in enumerate(SIZES))  # fmt: skip


def shape(count: int = 1, **more: object) -> Finding:
    devices = tuple(Device(f"gpu{n}", "gpu", n, port=PciePort(4, 16)) for n in range(count))
    return Finding("lspci", Machine((Numa(0, 2**30, 8, 0),), devices, **more), file="shape.txt")


def rates(*measured: Measured, facts: tuple[Fact, ...] = (), tool: str = "some test") -> Finding:
    return Finding(tool, rates=measured, facts=facts, file="rates.txt")


def worked_out(imported, word: str) -> list[Fact]:
    return [fact for fact in imported.derived if word in fact.what]


# Families


def test_a_family_gives_latency_rate_and_n_half_with_its_lines():
    imported = import_outputs([shape(), rates(*family())])
    told = {fact.what.split(" of ")[0]: fact for fact in imported.derived}
    assert told["latency"].value == pytest.approx(ALPHA) and told["latency"].unit == "s"
    assert told["rate"].value == pytest.approx(RATE) and told["n_half"].value == pytest.approx(ALPHA * RATE)
    facts = [one for one in imported.to_json()["facts"] if one["what"].startswith("n_half")]
    assert [one["from"] for one in facts] == [f"rates.txt:10..{9 + len(SIZES)}"] and facts[0]["unit"] == "B"


def test_a_fitted_latency_is_an_estimate_of_the_link():
    imported = import_outputs([shape(), rates(*family())])
    link = imported.topology.links["pcie0"]
    assert link.latency == (0.0, pytest.approx(ALPHA)) and "latency: an estimate, fitted" in link.source
    assert [one.origin for one in imported.written if "an estimate" in one.what] == ["rates.txt:10"]
    again = read_topology(parse_document(imported.text, "again.yaml"), name=imported.topology.name)
    assert again == imported.topology


def test_a_measured_latency_and_a_stated_one_are_kept():
    measured = Finding("some test", rates=family(), delays=(Delay("host", "gpu0", 3e-6),), file="rates.txt")
    imported = import_outputs([shape(), measured])
    assert imported.topology.links["pcie0"].latency == (0.0, 3e-6)
    assert any("whose own, 3 us, is kept" in text for text in imported.not_used)
    first = import_outputs([shape(), rates(*family())]).topology
    slower = tuple(replace(one, rate=one.size / (2 * ALPHA + one.size / RATE)) for one in family())
    again = import_outputs([rates(*slower)], first)
    assert again.topology.links["pcie0"].latency[1] == pytest.approx(ALPHA)


@pytest.mark.parametrize("more", [{"depth": 4}, {"streams": 2, "when": "together"}])
def test_several_at_once_against_size_are_not_fitted(more):
    imported = import_outputs([shape(), rates(*family(**more))])
    assert not imported.derived and imported.topology.links["pcie0"].latency == (0.0, 0.0)


def test_one_request_in_flight_is_fitted():
    assert worked_out(import_outputs([shape(), rates(*family(depth=1))]), "latency")


def test_against_requests_in_flight():
    drive = Finding("lsblk", Machine(devices=(Device("nvme0", "nvme", 0, size=10**12),)))
    size, most, alone = 2**17, 6e9, 80e-6
    request = alone + size / most
    told = [Measured("drive0", "host", min(most, depth * size / request), "read", size=size, depth=depth, line=depth)
            for depth in (1, 2, 4, 8, 16, 32)]  # fmt: skip
    imported = import_outputs([drive, rates(*told)])
    (latency,) = worked_out(imported, "latency of")
    assert latency.value == pytest.approx(alone) and "over depth" in latency.what
    assert imported.topology.links["nvme0"].latency[1] == pytest.approx(alone)


def test_why_a_family_is_not_fitted_is_told():
    flat = tuple(replace(one, rate=RATE * (1 + 0.5 * (number % 2))) for number, one in enumerate(family()))
    imported = import_outputs([shape(), rates(*flat)])
    assert not imported.derived and any("no latency is fitted: " in text for text in imported.not_used)


# Collectives


def collective(operation: str, ranks: int, bus: float, note: str = "out of place") -> Measured:
    return Measured("gpus", "gpus", bus, "mixed", size=2**33, operation=operation, ranks=ranks, note=note, line=50)


def test_what_a_bus_bandwidth_proves():
    assert prove("all_reduce", 8, 400e9, False).out == 400e9
    adds = prove("all_reduce", 8, 480e9, True)  # with sums in the switch a rank sends D once: 480 x 8 / 14
    assert adds.out == adds.into == pytest.approx(480e9 * 8 / 14)
    gather = prove("all_gather", 8, 350e9, True)  # each receives seven eighths; its own part is sent once
    assert gather.into == pytest.approx(350e9) and gather.out == pytest.approx(50e9)
    scatter = prove("reduce_scatter", 8, 350e9, True)
    assert scatter.out == pytest.approx(350e9) and scatter.into == pytest.approx(50e9)
    assert prove("all_to_all", 8, 300e9, True).out == pytest.approx(300e9)
    either = prove("all_gather or all_to_all", 8, 300e9, True)
    assert either.out == pytest.approx(300e9 / 7) and either.into == pytest.approx(300e9)
    assert prove("broadcast", 8, 1e9, True) is None and prove("collective", 8, 1e9, True) is None
    assert prove("all_reduce", 1, 1e9, True) is None and prove("all_reduce or collective", 8, 1e9, True) is None


def test_collectives_are_facts_in_json():
    imported = import_outputs([rates(collective("all_reduce", 8, 235e9))], load_topology("aws-p4d-24xlarge"))
    told = {one["what"]: (one["value"], one["from"]) for one in imported.to_json()["facts"]}
    of = "all_reduce of 8 ranks"
    assert told[f"bus bandwidth of {of}, out of place, the most over sizes"] == (235e9, "rates.txt:50")
    algorithm = told[f"algorithm bandwidth of {of}, out of place, the most over sizes"][0]
    assert algorithm == pytest.approx(235e9 * 8 / 14)
    assert told[f"links out of each GPU carry at least, proven by {of}"][0] == 235e9  # second NVSwitches add nothing
    assert imported.topology == load_topology("aws-p4d-24xlarge")  # it sustains more already
    assert any("it stands" in text for text in imported.not_used)


def test_a_collective_raises_what_is_stated_lower():
    onto = load_topology("aws-p4d-24xlarge")
    imported = import_outputs([rates(collective("all_reduce", 8, 290e9))], onto)
    link = imported.topology.links["nvlink0"]
    assert max(one.value for one in link.forward.sustained.values()) == 290e9
    assert link.forward.peak == onto.links["nvlink0"].forward.peak and "proven by all_reduce" in link.forward.source
    assert any("raised" in text and "and 7 more" in text for text in imported.contradicts)


def test_a_collective_fills_in_what_is_not_stated():
    joints = tuple(Joint(f"gpu{n}", "nvswitch", "nvlink", 12, 300e9) for n in range(8))
    imported = import_outputs([shape(8, joints=joints), rates(collective("all_to_all", 8, 226e9))])
    link = imported.topology.links["nvlink3"]
    assert [one.value for one in link.forward.sustained.values()] == [226e9]
    assert [one.value for one in link.backward.sustained.values()] == [226e9] and not imported.contradicts


def test_a_collective_above_the_links_is_a_contradiction():
    onto = load_topology("aws-p4d-24xlarge")
    imported = import_outputs([rates(collective("all_reduce", 8, 400e9))], onto)
    assert imported.topology == onto and any("whose links carry at most" in text for text in imported.contradicts)
    within = import_outputs([rates(collective("all_reduce", 8, 480e9))], load_topology("dgx-h100"))
    assert not within.contradicts  # sums in the switch: 480 GB/s of bus bandwidth are 274 over each link


@pytest.mark.parametrize(
    ("measured", "why"),
    [
        (collective("all_reduce", 4, 100e9), "which of the 8 GPUs"), (collective("broadcast", 8, 100e9), "not known"),
        (collective("all_reduce", 8, 100e9, "in place, over 2 hosts"), "network between hosts"),
    ],
)  # fmt: skip
def test_collectives_that_prove_nothing_of_this_server(measured, why):
    onto = load_topology("aws-p4d-24xlarge")
    imported = import_outputs([rates(measured)], onto)
    assert imported.topology == onto and any(why in text for text in imported.not_used)
    assert worked_out(imported, "bus bandwidth")


def test_bus_and_algorithm_bandwidth_are_those_of_the_collectives():
    imported = import_outputs([rates(collective("all_gather", 8, 226e9))], load_topology("aws-p4d-24xlarge"))
    (algorithm,) = worked_out(imported, "algorithm bandwidth")
    seconds = 2**33 / algorithm.value
    assert algorithm_bandwidth(2**33, seconds) == pytest.approx(algorithm.value)
    assert bus_bandwidth("all_gather", 8, 2**33, seconds) == pytest.approx(226e9)
