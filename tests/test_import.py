"""Outputs of tools as a topology: shape from one, rates from others, each figure with its line, nothing made up."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload import cli
from offload.documents import load_topology, parse_document, shipped_topologies
from offload.documents.topology_file import read_topology
from offload.errors import OffloadError
from offload.importing import import_outputs
from offload.importing.gpus import nvlink_of, part_of
from offload.readers.tools import recognise
from offload.readers.tools.finding import (
    Delay,
    Device,
    Finding,
    Joint,
    Machine,
    Measured,
    Near,
    Numa,
    PciePort,
    Peer,
)
from offload.topology import Interval, Topology

GIB = 2**30


def port(generation: int | None = 4, lanes: int | None = 16, **more: object) -> PciePort:
    return PciePort(generation, lanes, **more)


DESKTOP = Finding(
    "hwloc XML 2.0",
    Machine(
        numas=(Numa(0, 96 * GIB, 32, 0, line=3),),
        devices=(
            Device("0000:01:00.0", "gpu", 0, "Some GPU 24 GB", None, 0, 24 * GIB, port(), line=10),
            Device("0000:02:00.0", "nvme", 0, "Fast Drive", None, 0, 2 * 10**12, port(4, 4), line=14),
        ),
    ),
    file="box.xml",
)
RATES = Finding(
    "nvbandwidth 0.8",
    rates=(
        Measured("host", "gpu0", 26.0e9, "pinned", line=21),
        Measured("gpu0", "host", 27.0e9, "pinned", line=31),
    ),
    file="rates.txt",
)


def again(imported: object) -> Topology:
    topology = imported.topology
    same = read_topology(parse_document(imported.text, "again.yaml"), name=topology.name)
    assert same == topology
    return same


def rates_of(*measured: Measured, tool: str = "nvbandwidth 0.8", file: str = "rates.txt") -> Finding:
    return Finding(tool, rates=measured, file=file)


def eight(**more: object) -> Machine:
    """Eight GPUs, four to a socket."""
    devices = tuple(Device(f"gpu{n}", "gpu", n, "NVIDIA H100 80GB HBM3", None, n // 4, 80 * GIB, port(5), line=n + 1)
                    for n in range(8))  # fmt: skip
    return Machine((Numa(0, 512 * GIB, 56, 0), Numa(1, 512 * GIB, 56, 1)), devices, **more)


# --- shape ---


def test_shape_from_one_and_rates_from_another():
    imported = import_outputs([RATES, DESKTOP])
    topology = again(imported)
    assert topology.memories["dram0"].capacity == 96 * GIB and topology.memories["dram0"].rate.unknown
    assert topology.memories["hbm0"].capacity == 24 * GIB and topology.memories["hbm0"].rate.unknown
    assert topology.memories["ssd0"].capacity == 2 * 10**12 and topology.memories["ssd0"].read.unknown
    pcie = topology.links["pcie0"]
    assert (pcie.a, pcie.b, pcie.generation, pcie.lanes) == ("socket0", "hbm0", 4, 16)
    assert pcie.forward.peak == pytest.approx(31.508e9, rel=1e-4)
    assert pcie.forward.sustained == {"pinned": Interval.exact(26e9)}
    assert pcie.backward.sustained == {"pinned": Interval.exact(27e9)}
    assert "nvbandwidth 0.8" in pcie.forward.source and "rates.txt" not in imported.text
    assert (topology.links["nvme0"].generation, topology.links["nvme0"].lanes) == (4, 4)
    written = {one.what: (one.value, one.origin) for one in imported.written}
    assert written["pcie0.hbm0 sustained pinned"] == ("26 GB/s", "rates.txt:21")
    assert written["pcie0.socket0 sustained pinned"] == ("27 GB/s", "rates.txt:31")
    assert written["gpu0"][1] == "box.xml:10" and written["dram0"][1] == "box.xml:3"
    assert all(any(text.startswith(f"{name}: rate unknown") for text in imported.unknown) for name in ("dram0", "hbm0"))
    assert not imported.contradicts


def test_no_shape_is_refused_with_the_way_out():
    with pytest.raises(OffloadError, match="--onto"):
        import_outputs([RATES])


def test_nothing_known_is_written_as_unknown():
    machine = Machine(devices=(Device("gpu0", "gpu", 0),))
    imported = import_outputs([Finding("nvidia-smi topo -m", machine, file="t")])
    topology = again(imported)
    assert topology.memories["hbm0"].capacity is None and topology.memories["hbm0"].rate.unknown
    assert topology.links["pcie0"].forward.unknown and not topology.resources
    assert any("one socket with one host memory" in text for text in imported.assumed)


def test_switches_keep_their_uplinks_and_empty_ones_go():
    machine = Machine(
        numas=(Numa(0, GIB, 8, 0), Numa(1, GIB, 8, 1)),
        devices=(
            Device("a", "pcie_switch", numa=1, port=port(3)),
            Device("b", "pcie_switch", parent="a", port=port(3)),
            Device("empty", "pcie_switch", numa=0, port=port(3)),
            Device("x", "gpu", 0, parent="b", port=port(3)),
            Device("y", "gpu", 1, parent="b", port=port(3)),
            Device("z", "nic", 0, parent="a", port=port(3, 8)),
        ),
    )
    topology = again(import_outputs([Finding("lspci", machine)]))
    ends = {name: (one.a, one.b) for name, one in topology.links.items()}
    assert ends["up0"] == ("socket1", "sw0") and ends["up1"] == ("sw0", "sw1")
    assert ends["pcie0"] == ("sw1", "hbm0") and ends["pcie1"] == ("sw1", "hbm1") and ends["slot0"] == ("sw0", "nic0")
    assert "sw2" not in topology.switches and topology.switches["sw0"].kind == "pcie_switch"


def test_relations_imply_switches():
    nears = (Near("gpu0", "gpu1", "PIX"), Near("gpu2", "gpu3", "PIX"), Near("gpu0", "gpu2", "PXB"),
             Near("gpu1", "gpu3", "PXB"))  # fmt: skip
    devices = tuple(Device(f"gpu{n}", "gpu", n, numa=0) for n in range(4))
    topology = again(import_outputs([Finding("topo", Machine((Numa(0, GIB, 8, 0),), devices, nears=nears))]))
    ends = {name: (one.a, one.b) for name, one in topology.links.items()}
    assert ends["up0"] == ("socket0", "sw0") and ends["up1"] == ("sw0", "sw1") and ends["up2"] == ("sw0", "sw2")
    assert [ends[f"pcie{n}"][0] for n in range(4)] == ["sw1", "sw1", "sw2", "sw2"]
    assert all(topology.links[name].forward.unknown for name in ("up0", "up1", "up2"))


def pairs(count: int, links: int) -> tuple[Joint, ...]:
    ends = [(f"gpu{a}", f"gpu{b}") for a in range(count) for b in range(a + 1, count)]
    return tuple(Joint(first, second, "nvlink", links, line=9) for first, second in ends)


def test_all_pairs_with_more_links_than_a_gpu_has_are_one_switch():
    imported = import_outputs([Finding("topo", eight(joints=pairs(8, 18)))])
    topology = again(imported)
    assert topology.switches["nvswitch0"].kind == "nvswitch"
    links = [one for one in topology.links.values() if one.technology == "nvlink"]
    assert len(links) == 8 and {one.b for one in links} == {"nvswitch0"}
    assert {one.forward.peak for one in links} == {450e9}
    assert any("one NVSwitch" in text for text in imported.assumed)


def test_pairs_that_a_gpu_can_have_are_links_of_their_own():
    devices = tuple(replace(one, model="NVIDIA A100-SXM4-40GB") for one in eight().devices[:4])
    machine = replace(eight(), devices=devices, joints=pairs(4, 4))
    topology = again(import_outputs([Finding("topo", machine)]))
    links = [one for one in topology.links.values() if one.technology == "nvlink"]
    assert len(links) == 6 and {one.forward.peak for one in links} == {100e9} and not any(
        one.kind == "nvswitch" for one in topology.switches.values())  # fmt: skip


def test_a_gpu_of_no_known_model_has_nvlink_of_no_known_rate():
    machine = replace(eight(), devices=tuple(replace(one, model="") for one in eight().devices), joints=pairs(8, 18))
    imported = import_outputs([Finding("topo", machine)])
    assert again(imported).links["nvlink0"].forward.unknown
    assert any("nvlink0..7: rate unknown" in text for text in imported.unknown)


def test_raw_nvlink_is_told_and_payload_written():
    joint = Joint("gpu0", "nvswitch", "nvlink", 18, 18 * 26.562e9, line=4)
    imported = import_outputs([Finding("nvidia-smi nvlink -s", eight(joints=(joint,)))])
    assert again(imported).links["nvlink0"].forward.peak == 450e9
    assert any("478.1 GB/s" in text for text in imported.assumed)


def test_models():
    assert nvlink_of("NVIDIA H100 80GB HBM3") == (4, 25e9) and nvlink_of("NVIDIA B200") == (5, 50e9)
    assert nvlink_of("NVIDIA GeForce RTX 3090")[1] == 14.0625e9 and nvlink_of("whatever") == (None, None)
    assert nvlink_of("", 53.125e9) == (5, 50e9)


def test_a_part_is_used_only_where_every_word_fits(monkeypatch):
    names = ("h100-sxm", "h100-pcie", "rtx-4090", "rtx-4070", "a100-sxm-40gb", "a100-sxm-80gb", "v100", "l40")
    monkeypatch.setattr("offload.importing.gpus.shipped_parts", lambda section: names)
    assert part_of("NVIDIA H100 80GB HBM3") == "h100-sxm" and part_of("NVIDIA H100 PCIe") == "h100-pcie"
    assert part_of("NVIDIA A100-SXM4-80GB") == "a100-sxm-80gb" and part_of("NVIDIA A100-SXM4-40GB") == "a100-sxm-40gb"
    assert part_of("NVIDIA GeForce RTX 4090") == "rtx-4090"
    for model in ("NVIDIA GeForce RTX 4070 Ti", "NVIDIA GeForce RTX 4090 D", "NVIDIA L40S", "NVIDIA H200", "", "GPU",
                  "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA A100-PCIE-40GB"):  # fmt: skip
        assert part_of(model) is None, model


def test_peer_access():
    peers = tuple(Peer(f"gpu{a}", f"gpu{b}", a + b != 3) for a in range(3) for b in range(3) if a != b)
    devices = tuple(Device(f"gpu{n}", "gpu", n) for n in range(3))
    imported = import_outputs([Finding("topo -p2p", Machine(devices=devices, peers=peers))])
    processors = again(imported).processors
    assert processors["gpu0"].peer_to_peer is True and processors["gpu1"].peer_to_peer is None
    assert any("gpu1 exchanges bytes directly with" in text for text in imported.unknown)


def test_gpus_that_only_relations_name():
    peers = (Peer("gpu0", "gpu1", True, line=3), Peer("gpu1", "gpu0", True, line=4))
    imported = import_outputs([Finding("p2p test", Machine(peers=peers), (Measured("gpu0", "gpu1", 9e9, "copy"),))])
    assert list(again(imported).processors) == ["cpu0", "gpu0", "gpu1"]
    assert any("copies from and to the host measure" in text for text in imported.not_used)


def test_two_shapes_fill_each_other_in_and_tell_where_they_differ():
    other = Finding("nvidia-smi topo -m", Machine(devices=(
        Device("GPU0", "gpu", 0, size=40 * GIB, numa=0, line=5), Device("NIC0", "nic", 0, numa=0, line=6))),
        file="topo.txt")  # fmt: skip
    bare = Finding("numactl", Machine(numas=(Numa(0, 64 * GIB, 32), Numa(1, GIB, 0))), file="numactl.txt")
    imported = import_outputs([other, DESKTOP, bare])
    topology = again(imported)
    assert topology.memories["hbm0"].capacity == 24 * GIB and topology.memories["dram0"].capacity == 96 * GIB
    assert "nic0" in topology.switches
    told = "\n".join(imported.contradicts)
    assert "box.xml:10" in told and "topo.txt:5" in told and "NUMA node 1 is told by numactl.txt alone" in told
    assert "memory of NUMA node 0" in told


def test_a_rounded_rate_is_that_of_its_encoding_and_an_idle_link_is_told():
    devices = (Device("gpu0", "gpu", 0, port=PciePort(rate=15.753846e9)),
               Device("gpu1", "gpu", 1, port=port(4, 16, now=(1, 16))))  # fmt: skip
    imported = import_outputs([Finding("hwloc", Machine(devices=devices))])
    links = again(imported).links
    assert links["pcie0"].forward.peak == pytest.approx(15.7538461538e9, rel=1e-10)
    assert links["pcie0"].generation is None
    assert links["pcie1"].forward.peak == pytest.approx(31.508e9, rel=1e-4)
    assert any("it ran at 1 x16" in text for text in imported.assumed)


def test_a_gpu_that_was_idle_has_no_peak_from_it():
    devices = (Device("gpu0", "gpu", 0, port=PciePort(rate=4.0e9), line=2),)
    imported = import_outputs([Finding("hwloc", Machine(devices=devices))])
    assert again(imported).links["pcie0"].forward.unknown
    assert any(text.startswith("gpu0: its link ran at 4 GB/s") for text in imported.unknown)


def test_nothing_personal_is_written():
    told = replace(DESKTOP, machine=replace(DESKTOP.machine, devices=tuple(
        replace(one, name=f"secret-{number}") for number, one in enumerate(DESKTOP.machine.devices))),
        file="/home/somebody/box.xml")  # fmt: skip
    text = import_outputs([told, replace(RATES, file="host-of-somebody.txt")]).text
    assert "secret" not in text and "somebody" not in text


# --- rates ---


def test_a_rate_above_the_peak_is_named_and_not_written():
    imported = import_outputs([DESKTOP, rates_of(Measured("host", "gpu0", 52e9, "pinned", line=7))])
    assert not again(imported).links["pcie0"].forward.sustained
    assert any("rates.txt:7" in text and "31.51 GB/s" in text for text in imported.contradicts)


def test_an_uplink_sustains_what_went_through_it():
    machine = Machine((Numa(0, GIB, 8, 0),), (Device("s", "pcie_switch", numa=0, port=port()),
                                              Device("g", "gpu", 0, parent="s", port=port())))  # fmt: skip
    imported = import_outputs([Finding("lspci", machine), rates_of(Measured("host", "gpu0", 27e9, "pinned"))])
    topology = again(imported)
    assert topology.resources["up0.sw0"].sustained_at("pinned").value == 27e9
    assert topology.route("dram0", "hbm0")


def test_best_conditions_and_their_spread():
    runs = [Measured("host", "gpu0", rate, "pinned", size=size) for size, rate in
            ((4096, 1e9), (2**26, 25e9), (2**26, 26e9), (2**26, 26.5e9))]  # fmt: skip
    low = rates_of(Measured("host", "gpu0", 20e9, "pinned", line=2), tool="bandwidthTest", file="old.txt")
    imported = import_outputs([DESKTOP, rates_of(*runs), low])
    assert again(imported).links["pcie0"].forward.sustained["pinned"] == Interval(25e9, 26e9, 26.5e9)
    assert any("old.txt:2" in text and "the higher is taken" in text for text in imported.contradicts)


def both_ways(rate: float, when: str = "together", **more: object) -> list[Measured]:
    return [Measured("host", f"gpu{n}", rate, "pinned", when, streams=8, line=n, **more) for n in range(8)]


def test_all_together_is_a_limit_for_each_socket():
    alone = [Measured("host", f"gpu{n}", 55e9, "pinned") for n in range(8)]
    together = [replace(one, rate=44.6e9 if n < 4 else 25.4e9) for n, one in enumerate(both_ways(1e9))]
    topology = again(import_outputs([Finding("topo", eight()), rates_of(*alone, *together)]))
    limits = {name: (one.over, one.rate.sustained["pinned"].value) for name, one in topology.limits.items()}
    assert limits["all_in_socket0"][1] == pytest.approx(178.4e9)
    assert limits["all_in_socket1"] == (tuple(f"pcie{n}.hbm{n}" for n in range(4, 8)), pytest.approx(101.6e9))


def test_together_that_is_no_slower_limits_nothing():
    alone = [Measured("host", f"gpu{n}", 55e9, "pinned") for n in range(8)]
    imported = import_outputs([Finding("topo", eight()), rates_of(*alone, *both_ways(54.9e9))])
    assert not again(imported).limits and any("no limit" in text for text in imported.not_used)


def test_a_sum_over_all_is_one_limit_and_of_some_none():
    whole = Measured("gpus", "host", 200e9, "pinned", "together", streams=8)
    topology = again(import_outputs([Finding("topo", eight()), rates_of(whole)]))
    limit = topology.limits["all_out"]
    assert limit.rate.sustained["pinned"].value == 200e9 and len(limit.over) == 8
    imported = import_outputs([Finding("topo", eight()), rates_of(replace(whole, streams=4))])
    assert not again(imported).limits and any("which of 8" in text for text in imported.not_used)
    imported = import_outputs([Finding("topo", eight()), rates_of(replace(whole, rate=600e9))])
    assert not again(imported).limits and any("in sum" in text for text in imported.contradicts)


def test_both_directions_at_once():
    rates = rates_of(Measured("host", "gpu0", 14.4e9, "pinned", "both directions"),
                     Measured("gpu0", "host", 27.1e9, "pinned", "both directions"))  # fmt: skip
    limit = again(import_outputs([DESKTOP, rates])).limits["pcie0_both"]
    assert limit.over == ("pcie0",) and limit.rate.sustained["pinned"].value == pytest.approx(41.5e9)
    half = import_outputs([DESKTOP, rates_of(rates.rates[0])])
    assert not again(half).limits and any("meanwhile" in text for text in half.not_used)


def test_both_directions_by_access_and_as_a_sum():
    added = "both directions added"
    rates = rates_of(Measured("host", "gpu0", 40e9, "pinned", "both directions", streams=2, note=added),
                     Measured("host", "gpu0", 30e9, "zero_copy", "both directions", streams=2, note=added))  # fmt: skip
    limit = again(import_outputs([DESKTOP, rates])).limits["pcie0_both"]
    assert limit.rate.sustained == {"pinned": Interval.exact(40e9), "zero_copy": Interval.exact(30e9)}


def test_what_was_staged_is_not_the_rate_of_a_link():
    note = "P2P disabled, staged in host memory"
    rates = Finding("p2p", rates=tuple(Measured(f"gpu{a}", f"gpu{b}", 37e9, "copy", note=note) for a in range(8)
                                       for b in range(8) if a != b),
                    delays=(Delay("gpu0", "gpu1", 20e-6, note=note), Delay("gpu0", "gpu1", 2e-6)))  # fmt: skip
    imported = import_outputs([Finding("topo", eight(joints=pairs(8, 18))), rates])
    links = again(imported).links
    assert not links["nvlink0"].forward.sustained and links["nvlink0"].latency == (0.0, 1e-6)
    assert any("(and 55 more like it)" in text for text in imported.not_used)


def test_pairs_of_gpus_measure_both_ports():
    rates = rates_of(*(Measured(f"gpu{a}", f"gpu{b}", 390e9 + a * 1e9, "copy") for a in range(8) for b in range(8)
                       if a != b))  # fmt: skip
    topology = again(import_outputs([Finding("topo", eight(joints=pairs(8, 18))), rates]))
    out = topology.links["nvlink3"].forward.sustained["copy"]
    assert out == Interval.exact(393e9)
    into = topology.links["nvlink0"].backward.sustained["copy"]
    assert (into.low, into.high) == (391e9, 397e9)


def test_drives_memories_and_latencies():
    rates = Finding(
        "fio 3", rates=(Measured("drive", "host", 7e9, "read", depth=32, line=3),
                        Measured("host", "drive", 5e9, "write"),
                        Measured("numa0", "numa0", 80e9, "read", line=8), Measured("gpu0", "gpu0", 900e9, "read")),
        delays=(Delay("drive", "host", 80e-6, line=4), Delay("host", "gpu0", 7e-6),
                Delay("numa0", "numa0", 90e-9)), file="fio.json")  # fmt: skip
    imported = import_outputs([DESKTOP, rates])
    topology = again(imported)
    assert topology.memories["ssd0"].read.sustained == {"": Interval.exact(7e9)}
    assert topology.memories["ssd0"].write.sustained == {"": Interval.exact(5e9)}
    assert topology.memories["dram0"].rate.sustained == {"read": Interval.exact(80e9)}
    assert topology.memories["dram0"].rate.peak is None
    assert topology.links["nvme0"].latency == (0.0, 80e-6) and topology.links["pcie0"].latency == (0.0, 7e-6)
    assert any("latency numa0" in text for text in imported.not_used)


@pytest.mark.parametrize("measured", [
    Measured("gpu0", "gpu0", 1e9, operation="all_reduce", ranks=8),
    Measured("host", "gpu9", 1e9), Measured("numa7", "gpu0", 1e9), Measured("drive3", "host", 1e9),
    Measured("gpu0", "gpu0", 1e9, when="together", streams=2), Measured("nvswitch", "gpu0", 1e9),
])  # fmt: skip
def test_what_is_about_no_part_is_left_out_and_told(measured):
    imported = import_outputs([DESKTOP, rates_of(measured)])
    assert len(imported.not_used) == 1
    assert again(imported) == again(import_outputs([DESKTOP]))


NAMES = [f"d{number}" for number in range(6)]
PORTS = st.builds(PciePort, st.sampled_from([None, 1, 3, 5, 9]), st.sampled_from([None, 4, 16, 3]),
                  st.sampled_from([None, 4e9, 15.753846e9, 1e9]))  # fmt: skip
DEVICES = st.lists(
    st.builds(Device, st.sampled_from(NAMES),
              st.sampled_from(["gpu", "nvme", "disk", "nic", "pcie_switch", "nvswitch"]),
              st.sampled_from([None, 0, 1, 7]), st.text(max_size=8), st.sampled_from([None, "gone", *NAMES]),
              st.sampled_from([None, 0, 1, 5]), st.sampled_from([None, 1, 2**36]), st.none() | PORTS),
    max_size=6, unique_by=lambda one: one.name,
)  # fmt: skip
ENDS = st.sampled_from(["gpu0", "gpu1", "numa0", "numa1", "host", "hosts", "gpus", "drive", "drives", "drive1",
                        "nvswitch", "odd", *NAMES])  # fmt: skip
MEASURED = st.builds(
    Measured, ENDS, ENDS, st.floats(1e3, 1e13), st.sampled_from(["", "pinned", "zero_copy", "read", "copy"]),
    st.sampled_from(["alone", "together", "both directions"]), st.sampled_from([None, 4096]), st.none(),
    st.integers(1, 3),
)  # fmt: skip
MACHINES = st.builds(
    Machine,
    st.lists(st.builds(Numa, st.integers(0, 3), st.sampled_from([None, 2**36]), st.sampled_from([None, 0, 8]),
                       st.sampled_from([None, 0, 1]), st.sampled_from(["dram", "hbm", "cxl", "gpu"])),
             max_size=3, unique_by=lambda one: one.number).map(tuple),
    DEVICES.map(tuple),
    st.lists(st.builds(Joint, ENDS, ENDS, st.sampled_from(["nvlink", "xgmi", "c2c", "upi"]),
                       st.sampled_from([None, 2, 18]), st.sampled_from([None, 5e10])), max_size=4).map(tuple),
    st.lists(st.builds(Near, ENDS, ENDS, st.sampled_from(["PIX", "PXB", "SYS"])), max_size=4).map(tuple),
    st.lists(st.builds(Peer, ENDS, ENDS, st.booleans()), max_size=2).map(tuple),
    st.sampled_from([None, 1, 2]),
)  # fmt: skip


@pytest.mark.slow
@given(st.lists(MACHINES, min_size=1, max_size=2), st.lists(MEASURED, max_size=6))
@settings(max_examples=150)
def test_whatever_readers_tell_ends_in_a_topology_or_a_refusal(machines, measured):
    found = [Finding(f"tool {number}", machine) for number, machine in enumerate(machines)]
    try:
        imported = import_outputs([*found, rates_of(*measured)])
    except OffloadError:
        return
    again(imported)


# --- onto a server ---


@pytest.mark.few
@pytest.mark.parametrize("name", shipped_topologies())
def test_onto_with_nothing_measured_is_the_server(name):
    imported = import_outputs([], onto=load_topology(name))
    assert imported.topology == load_topology(name)
    again(imported)


def test_onto_replaces_what_was_measured_and_nothing_else():
    server = load_topology("dgx-h100")
    imported = import_outputs([rates_of(Measured("host", "gpu2", 50e9, "pinned", line=5))], onto=server)
    topology = again(imported)
    changed = topology.links["pcie2"]
    assert changed.forward.sustained == {**server.links["pcie2"].forward.sustained, "pinned": Interval.exact(50e9)}
    assert changed.forward.peak == server.links["pcie2"].forward.peak
    assert changed.backward == server.links["pcie2"].backward
    assert {name: one for name, one in topology.links.items() if name != "pcie2"} == {
        name: one for name, one in server.links.items() if name != "pcie2"}  # fmt: skip
    for group in ("memories", "processors", "switches", "limits"):
        assert getattr(topology, group) == getattr(server, group)


def test_onto_a_server_of_another_shape_is_told():
    imported = import_outputs([DESKTOP], onto=load_topology("dgx-h100"))
    assert any("box.xml:10: 1 GPUs" in text for text in imported.contradicts)
    imported = import_outputs([DESKTOP], onto=load_topology("gh200"))
    assert any("gpu0 has" in text for text in imported.contradicts)


def test_onto_measured_limits_take_the_place_of_the_servers():
    rates = rates_of(Measured("host", "gpu0", 13e9, "pinned", "both directions"),
                     Measured("gpu0", "host", 26e9, "pinned", "both directions"))  # fmt: skip
    topology = again(import_outputs([rates], onto=load_topology("desktop-4090")))
    assert list(topology.limits) == ["pcie0_both"]
    assert topology.limits["pcie0_both"].rate.sustained["pinned"].value == 39e9


# --- the command ---


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two outputs that made-up readers read."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shape.txt").write_text("a shape\n", encoding="utf-8")
    (tmp_path / "rates.txt").write_text("rates\n", encoding="utf-8")
    kinds = {"a shape": DESKTOP, "rates": RATES}
    modules = tuple(SimpleNamespace(LOOKS_LIKE=word, is_it=lambda text, word=word: word in text.whole,
                                    read=lambda text, found=found: found) for word, found in kinds.items())  # fmt: skip
    monkeypatch.setattr(recognise, "readers", lambda names=(): modules)
    return tmp_path


def test_import_and_evaluate(box, capsys):
    assert cli.main(["topology", "import", "shape.txt", "rates.txt", "-o", "my-box.yaml"]) == 0
    out = capsys.readouterr().out
    assert "pcie0.hbm0 sustained pinned" in out and "rates.txt:21" in out and "Written to my-box.yaml" in out
    text = (box / "my-box.yaml").read_text(encoding="utf-8")
    assert "memories:" in text and "memories:" not in out
    assert cli.main(["topology", "show", "./my-box.yaml"]) == 0
    capsys.readouterr()
    assert cli.main(["step", "llama-3.1-8b:q8_0", "--on", "./my-box.yaml"]) == 0
    out = capsys.readouterr().out
    assert "pcie0.hbm0" in out and "hbm0: rate unknown, so it is not counted" in " ".join(out.split())


def test_without_a_file_the_topology_follows(box, capsys):
    assert cli.main(["topology", "import", "shape.txt", "rates.txt"]) == 0
    out = capsys.readouterr().out
    text = out[out.index("# Written by offload") :]
    assert read_topology(parse_document(text, "x.yaml")).links["pcie0"].forward.sustained["pinned"].value == 26e9


def test_json(box, capsys):
    assert cli.main(["topology", "import", "shape.txt", "rates.txt", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["format", "offload_version", "tools", "facts", "written", "assumed", "contradicts",
                           "unknown", "not_used", "topology"]  # fmt: skip
    assert {"what": "host to gpu0, pinned", "value": 26e9, "unit": "B/s", "from": "rates.txt:21"} in found["facts"]
    assert all(set(one) == {"what", "value", "unit", "from"} for one in found["facts"])
    read_topology(parse_document(found["topology"], "x.yaml"))


def test_onto_by_name_and_an_unknown_one(box, capsys):
    assert cli.main(["topology", "import", "rates.txt", "--onto", "desktop-4090", "-o", "out.yaml"]) == 0
    assert load_topology(box / "out.yaml").links["pcie0"].forward.sustained["pinned"].value == 26e9
    capsys.readouterr()
    assert cli.main(["topology", "import", "rates.txt", "--onto", "desktop-4091"]) == 2
    assert "desktop-4090" in capsys.readouterr().err


@pytest.mark.parametrize("words", [
    ["shape.txt", "-o", "shape.txt"], ["shape.txt", "-o", "./shape.txt"],
    ["rates.txt", "--onto", "./server.yaml", "-o", "server.yaml"],
])  # fmt: skip
def test_an_input_is_never_overwritten(box, capsys, words):
    (box / "server.yaml").write_text(import_outputs([DESKTOP]).text, encoding="utf-8")
    before = {path.name: path.read_bytes() for path in box.iterdir()}
    assert cli.main(["topology", "import", *words]) == 2
    assert "would be overwritten" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in box.iterdir()} == before


def test_where_no_file_can_be_written(box, capsys):
    assert cli.main(["topology", "import", "shape.txt", "-o", "no/such/folder.yaml"]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_a_file_of_no_tool_is_refused(box, capsys):
    (box / "other.txt").write_text("hello", encoding="utf-8")
    assert cli.main(["topology", "import", "other.txt"]) == 2
    assert "other.txt: is the output of no tool" in capsys.readouterr().err


def test_a_figure_is_from_the_line_that_says_it():
    """The size of a NUMA node is told by numactl's line, whichever output tells that the node is there."""
    shape = Finding("nvidia-smi topo -m", Machine(numas=(Numa(0, line=2),), devices=(
        Device("gpu0", "gpu", 0, numa=0, line=2),)), file="box.txt")  # fmt: skip
    sizes = Finding("numactl --hardware", Machine(numas=(Numa(0, 64 * GIB, 8, line=22),)), file="box.txt")
    found = import_outputs((shape, sizes))
    assert [one.origin for one in found.written if one.what == "dram0"] == ["box.txt:22"]
    assert [one.origin for one in found.written if one.what == "gpu0"] == ["box.txt:2"]


@pytest.mark.parametrize(("model", "part"), [
    ("NVIDIA H100 80GB HBM3", "h100-sxm"), ("NVIDIA H100 96GB HBM3", None), ("NVIDIA H100 SXM5 64GB", None),
    ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None), ("NVIDIA H100 NVL", None), ("NVIDIA H200", "h200-sxm"),
    ("NVIDIA A100-SXM4-80GB", "a100-80-sxm"), ("NVIDIA A100-SXM4-40GB", "a100-40-sxm"),
    ("NVIDIA A100 80GB PCIe", "a100-80-pcie"), ("NVIDIA A100-PCIE-40GB", None),
    ("Tesla V100-SXM2-32GB", "v100-sxm2-32"), ("Tesla V100-SXM2-16GB", "v100-sxm2-16"), ("Tesla V100-PCIE-16GB", None),
    ("NVIDIA GH200 480GB", None),
    ("Tesla T4", "t4"), ("NVIDIA GeForce RTX 4090", "rtx-4090"), ("NVIDIA GeForce RTX 4090 D", None),
    ("NVIDIA GeForce RTX 3090 Ti", None), ("NVIDIA L40S", "l40s"), ("NVIDIA L40", None),
    ("AMD Instinct MI300X", "mi300x"),
])  # fmt: skip
def test_a_model_is_the_shipped_part_of_its_name_and_size_and_no_other(model: str, part: str | None):
    assert part_of(model) == part


def test_nothing_numbered_by_gpu_is_taken_from_a_machine_with_other_gpus():
    four = Finding("lstopo", Machine(numas=(Numa(0, 64 * GIB, 8),), devices=tuple(
        Device(f"0000:0{number}:00.0", "gpu", number, numa=0, port=port()) for number in range(4))), file="four.xml")
    two = Finding("nvidia-smi topo -m", Machine(
        devices=(Device("gpu0", "gpu", 0), Device("gpu1", "gpu", 1)),
        joints=(Joint("gpu0", "gpu1", "nvlink", 2),)), file="two.txt")  # fmt: skip
    found = import_outputs((four, two))
    assert not any(link.technology == "nvlink" for link in found.topology.links.values())
    assert any("4 of gpu" in text and "2 by" in text for text in found.contradicts)


def test_a_told_rate_of_links_that_no_generation_has_is_kept_and_told():
    found = import_outputs((Finding("lstopo", Machine(numas=(Numa(0, 64 * GIB, 8),), devices=tuple(
        Device(f"0000:0{number}:00.0", "gpu", number, "NVIDIA A100-SXM4-80GB", numa=0, port=port()) for number in (0, 1)
    ), joints=(Joint("0000:00:00.0", "0000:01:00.0", "nvlink", 6, 60e9),)), file="box.xml"),))  # fmt: skip
    (link,) = [link for link in found.topology.links.values() if link.technology == "nvlink"]
    assert link.forward.peak == 60e9 and any("what is told is kept" in text for text in found.contradicts)


@pytest.mark.slow
def test_many_empty_lines_are_passed_over():
    """Where a reader looked from each of them to the last, this would take minutes."""
    with pytest.raises(OffloadError, match="no tool that is read here"):
        recognise.read_content("x\n" + "\n" * 45_000 + "y")
