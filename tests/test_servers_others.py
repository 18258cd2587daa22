"""Shipped servers with PCIe cards, MI300X and one memory: counts, host links, and what is shared, in exact numbers."""

from __future__ import annotations

import pytest

from offload.bounds import load_bound
from offload.documents import load_topology, parse_document
from offload.documents.shipped import shipped_folder
from offload.documents.topology_file import read_topology
from offload.errors import PlanError
from offload.topology import Route, Topology
from offload.words import plan_from_words

GEN = {3: 8e9, 4: 16e9, 5: 32e9}


def pcie(generation: int, lanes: int) -> float:
    """Bytes per second each way after encoding, from the standard's constants."""
    return GEN[generation] * lanes * 128 / 130 / 8


def loads(route: Route) -> dict[str, float]:
    """Expected load of each resource for a byte, over all stages."""
    found: dict[str, float] = {}
    for stage in route.stages:
        for resource, _, expected in stage.uses:
            found[resource] = found.get(resource, 0.0) + expected
    return found


def stops(route: Route) -> list[tuple[str, str]]:
    return [(stage.source, stage.destination) for stage in route.stages]


def at_once(topology: Topology, *pairs: tuple[str, str], size: float = 1e9) -> float:
    """The load bound where each of `pairs` (from, to) moves `size` bytes at once [s]."""
    peaks = {name: resource.peak for name, resource in topology.resources.items() if resource.peak is not None}
    moves = []
    for source, destination in pairs:
        uses = loads(topology.route(source, destination))
        moves.append((size, {name: use for name, use in uses.items() if name in peaks}))
    return load_bound(peaks, moves).seconds


def gpus(topology: Topology) -> list[str]:
    return [name for name, one in topology.processors.items() if one.kind == "gpu"]


# Eight RTX 4090


def test_eight_rtx_4090() -> None:
    server = load_topology("rtx4090-8gpu")
    assert gpus(server) == [f"gpu{n}" for n in range(8)]
    assert sum(server.memories[f"hbm{n}"].capacity for n in range(8)) == 8 * 24 * 2**30
    assert sum(server.memories[f"dram{n}"].capacity for n in range(2)) == 1024 * 2**30
    for n in range(8):
        assert server.resources[f"hbm{n}"].peak == 1008.1e9
        assert server.resources[f"pcie{n}.hbm{n}"].peak == pytest.approx(pcie(4, 16))
        assert server.resources[f"pcie{n}.hbm{n}"].sustained_at("pinned").value == 26e9
        assert not server.processors[f"gpu{n}"].peer_to_peer
    for n in range(2):
        assert server.resources[f"dram{n}"].peak == 8 * 4800e6 * 8


def test_a_geforce_pair_is_staged_in_host_memory() -> None:
    server = load_topology("rtx4090-8gpu")
    near = server.route("hbm0", "hbm1")
    assert stops(near) == [("hbm0", "dram0"), ("dram0", "hbm1")]
    assert loads(near) == {
        "hbm0": 1.0, "pcie0.socket0": 1.0, "pcie0_both": 1.0, "dram0": 2.0,
        "pcie1.hbm1": 1.0, "pcie1_both": 1.0, "hbm1": 1.0,
    }  # fmt: skip
    far = server.route("hbm0", "hbm4")
    assert stops(far) == [("hbm0", "dram0"), ("dram0", "hbm4")]
    assert loads(far)["dram0"] == 2.0 and loads(far)["upi0.socket1"] == 1.0
    for one in range(8):
        for other in set(range(8)) - {one}:
            route = server.route(f"hbm{one}", f"hbm{other}")
            assert len(route.stages) == 2 and loads(route)[f"dram{one // 4}"] == 2.0


def test_a_geforce_pair_under_one_switch_goes_up_and_down_its_uplink() -> None:
    """Servers that put two cards on a switch, as the head of the file says them."""
    text = (shipped_folder() / "rtx4090-8gpu.yaml").read_text(encoding="utf-8")
    direct = "pcie0..3: {use: rtx-4090, between: [socket0, hbm0..3]}"
    assert direct in text
    text = text.replace("  nic0:\n", "  sw0..1: {kind: pcie switch}\n  nic0:\n", 1)
    text = text.replace(
        direct,
        "up0..1: {between: [socket0, sw0..1], pcie: 4 x16}\n"
        "  pcie0..1: {use: rtx-4090, between: [sw0, hbm0..1]}\n  pcie2..3: {use: rtx-4090, between: [sw1, hbm2..3]}",
    )
    server = read_topology(parse_document(text, "own.yaml"), name="own")
    found = loads(server.route("hbm0", "hbm1"))
    assert found["up0.socket0"] == 1.0 and found["up0.sw0"] == 1.0 and found["dram0"] == 2.0
    # With peer-to-peer the two meet below the uplink.
    text = text.replace("{use: rtx-4090, memory:", "{use: rtx-4090, peer_to_peer: true, memory:")
    opened = loads(read_topology(parse_document(text, "own.yaml"), name="own").route("hbm0", "hbm1"))
    assert opened == {
        "hbm0": 1.0, "pcie0.sw0": 1.0, "pcie0_both": 1.0, "pcie1.hbm1": 1.0, "pcie1_both": 1.0, "hbm1": 1.0,
    }  # fmt: skip


def test_each_rtx_4090_has_lanes_of_its_own() -> None:
    server = load_topology("rtx4090-8gpu")
    one = at_once(server, ("dram0", "hbm0"))
    assert one == pytest.approx(1e9 / pcie(4, 16))
    assert at_once(server, *((f"dram{n // 4}", f"hbm{n}") for n in range(8))) == pytest.approx(one)


# Eight MI300X

PAIRS = [(one, other) for one in range(8) for other in range(8) if one != other]


def test_eight_mi300x() -> None:
    server = load_topology("mi300x-8gpu")
    assert gpus(server) == [f"gpu{n}" for n in range(8)]
    assert [round(server.memories[f"hbm{n}"].capacity / 2**30, 2) for n in range(8)] == [191.98] * 8
    assert len([link for link in server.links.values() if link.name.startswith("xgmi")]) == 8 * 7 // 2
    for n in range(8):
        assert server.resources[f"hbm{n}"].peak == pytest.approx(8192 / 8 * 5.2e9)
        for port in (f"pcie{n}.hbm{n}", f"pcie{n}.sw{n}", f"up{n}.sw{n}", f"up{n}.socket{n // 4}"):
            assert server.resources[port].peak == pytest.approx(pcie(5, 16))
        assert set(loads(server.route(f"dram{n // 4}", f"hbm{n}"))) == {
            f"dram{n // 4}", f"up{n}.sw{n}", f"pcie{n}.hbm{n}", f"pcie{n}_both", f"hbm{n}",
        }  # fmt: skip


def test_a_pair_of_mi300x_has_one_link_of_its_own() -> None:
    server = load_topology("mi300x-8gpu")
    used = set()
    for one, other in PAIRS:
        link = f"xgmi{min(one, other)}_{max(one, other)}.hbm{other}"
        assert loads(server.route(f"hbm{one}", f"hbm{other}")) == {f"hbm{one}": 1.0, link: 1.0, f"hbm{other}": 1.0}
        assert server.resources[link].peak == 64e9
        assert server.resources[link].sustained_at("pinned").value == 48e9
        used.add(link)
    assert len(used) == len(PAIRS)  # each direction of each pair by itself


def test_all_pairs_of_mi300x_at_once_are_as_fast_as_one() -> None:
    server = load_topology("mi300x-8gpu")
    one = at_once(server, ("hbm0", "hbm1"))
    assert one == pytest.approx(1e9 / 64e9)
    assert at_once(server, *((f"hbm{a}", f"hbm{b}") for a, b in PAIRS)) == pytest.approx(one)
    assert at_once(server, ("hbm0", "hbm1"), ("hbm0", "hbm1")) == pytest.approx(2 * one)


# Two RTX 3090 with a bridge


def test_two_rtx_3090() -> None:
    server = load_topology("ws-2x3090-nvlink")
    assert gpus(server) == ["gpu0", "gpu1"]
    assert [server.memories[f"hbm{n}"].capacity for n in range(2)] == [24 * 2**30] * 2
    assert server.memories["dram0"].capacity == 128 * 2**30 and server.resources["dram0"].peak == 96e9
    for n in range(2):
        assert server.resources[f"hbm{n}"].peak == 936.2e9
        assert server.resources[f"pcie{n}.hbm{n}"].peak == pytest.approx(pcie(4, 8))
        assert server.resources[f"pcie{n}.hbm{n}"].sustained_at("pinned").value == 13e9
    assert server.resources["m2.socket0"].peak == pytest.approx(pcie(4, 4))


def test_two_rtx_3090_meet_over_the_bridge() -> None:
    server = load_topology("ws-2x3090-nvlink")
    assert not any(server.processors[f"gpu{n}"].peer_to_peer for n in range(2))
    for one, other in ((0, 1), (1, 0)):
        link = f"nvlink0.hbm{other}"
        assert loads(server.route(f"hbm{one}", f"hbm{other}")) == {f"hbm{one}": 1.0, link: 1.0, f"hbm{other}": 1.0}
        assert server.resources[link].peak == 56.25e9  # each way: half of the 112.5 that adds both
        assert server.resources[link].sustained_at("pinned").value == 52e9
    assert at_once(server, ("hbm0", "hbm1"), ("hbm1", "hbm0")) == pytest.approx(1e9 / 56.25e9)


def test_two_rtx_3090_without_the_bridge_are_staged() -> None:
    text = (shipped_folder() / "ws-2x3090-nvlink.yaml").read_text(encoding="utf-8")
    bridge = "  nvlink0: {use: rtx-3090-nvlink, between: [hbm0, hbm1]}\n"
    assert bridge in text
    server = read_topology(parse_document(text.replace(bridge, ""), "own.yaml"), name="own")
    assert stops(server.route("hbm0", "hbm1")) == [("hbm0", "dram0"), ("dram0", "hbm1")]


# Eight L40S


def test_eight_l40s() -> None:
    server = load_topology("l40s-8gpu-pcie")
    assert gpus(server) == [f"gpu{n}" for n in range(8)]
    assert [server.memories[f"hbm{n}"].capacity for n in range(8)] == [46068 * 2**20] * 8
    for n in range(8):
        assert server.resources[f"hbm{n}"].peak == 864e9
        assert server.resources[f"pcie{n}.hbm{n}"].peak == pytest.approx(pcie(4, 16))
        assert server.processors[f"gpu{n}"].peer_to_peer
    for n in range(4):
        assert server.resources[f"up{n}.sw{n}"].peak == pytest.approx(pcie(5, 16))
    assert [server.resources[f"dram{n}"].peak for n in range(2)] == [12 * 4800e6 * 8] * 2
    assert server.resources["xgmi0.socket1"].peak == 4 * 32e9 * 16 / 8


def test_l40s_pairs_meet_below_the_uplink_or_share_it() -> None:
    server = load_topology("l40s-8gpu-pcie")
    below = server.route("hbm0", "hbm1")
    assert loads(below) == {"hbm0": 1.0, "pcie0.sw0": 1.0, "pcie1.hbm1": 1.0, "hbm1": 1.0}
    across = loads(server.route("hbm0", "hbm2"))
    assert across == {
        "hbm0": 1.0, "pcie0.sw0": 1.0, "up0.socket0": 1.0, "up1.sw1": 1.0, "pcie2.hbm2": 1.0, "hbm2": 1.0,
    }  # fmt: skip
    assert loads(server.route("hbm0", "hbm7"))["xgmi0.socket1"] == 1.0
    # Without peer-to-peer, both halves of the way lead over the uplink and through DRAM.
    text = (shipped_folder() / "l40s-8gpu-pcie.yaml").read_text(encoding="utf-8")
    text = text.replace("{use: l40s, memory:", "{use: l40s, peer_to_peer: false, memory:")
    staged = loads(read_topology(parse_document(text, "own.yaml"), name="own").route("hbm0", "hbm1"))
    assert staged["up0.socket0"] == staged["up0.sw0"] == 1.0 and staged["dram0"] == 2.0


def test_two_l40s_fill_their_uplink_and_do_not_halve() -> None:
    server = load_topology("l40s-8gpu-pcie")
    one = at_once(server, ("dram0", "hbm0"))
    assert one == pytest.approx(1e9 / pcie(4, 16))
    assert at_once(server, ("dram0", "hbm0"), ("dram0", "hbm1")) == pytest.approx(one)
    # At sustained rates too: 88 % of PCIe 5, assumed, is more than 2 x 26.3.
    uplink, port = server.resources["up0.sw0"], server.resources["pcie0.hbm0"]
    assert uplink.assumed and uplink.sustained_at("pinned").value == pytest.approx(0.88 * pcie(5, 16))
    assert uplink.sustained_at("pinned").value > 2 * port.sustained_at("pinned").value == 52.6e9


# One memory for GPU and CPU

BOXES = {"mac-studio-m3-ultra": (512 * 2**30, 819.2e9, 700e9), "strix-halo-mini-pc": (120 * 2**30, 256e9, 212e9)}


@pytest.mark.parametrize("name", list(BOXES))
def test_unified_memory_is_one_memory(name: str) -> None:
    capacity, peak, sustained = BOXES[name]
    server = load_topology(name)
    held = [one for one in server.memories.values() if one.kind in ("hbm", "dram", "unified")]
    assert [(one.name, one.capacity, one.rate.peak) for one in held] == [("unified0", capacity, peak)]
    assert server.resources["unified0"].sustained_at("").value == sustained
    assert {one.memory for one in server.processors.values()} == {"unified0"} and gpus(server) == ["gpu0"]
    # Both read it where it lies, and no link stands between them.
    for processor in ("gpu0", "cpu0"):
        assert set(loads(server.read_route("unified0", processor))) <= {"unified0", f"{processor}.reads"}
    # One pool: what GPU and CPU read at once adds up there.
    both = [loads(server.read_route("unified0", processor))["unified0"] for processor in ("gpu0", "cpu0")]
    rate = {"unified0": server.resources["unified0"].peak}
    assert load_bound(rate, [(1e9, {"unified0": use}) for use in both]).seconds == pytest.approx(2e9 / peak)
    # A drive reaches the GPU's memory without a second hop.
    assert stops(server.route("ssd0", "unified0")) == [("ssd0", "unified0")]


@pytest.mark.parametrize("name", list(BOXES))
def test_unified_memory_has_no_layers_elsewhere(name: str) -> None:
    with pytest.raises(PlanError):
        plan_from_words("llama-3.1-70b:q8_0", name, gpu_layers=10)


# The ktransformers box


def test_the_ktransformers_box() -> None:
    server = load_topology("dual-xeon-4090")
    assert gpus(server) == ["gpu0"] and server.memories["hbm0"].capacity == 24 * 2**30
    assert [server.memories[f"dram{n}"].capacity for n in range(2)] == [512 * 2**30] * 2
    assert sum(server.resources[f"dram{n}"].peak for n in range(2)) == 614.4e9
    assert server.resources["pcie0.hbm0"].peak == pytest.approx(pcie(4, 16))
    assert server.resources["m2.socket0"].peak == pytest.approx(pcie(4, 4))
    assert server.processors["cpu1"].flops["bf16"].rated == 118e12


def test_the_far_socket_is_read_over_upi() -> None:
    server = load_topology("dual-xeon-4090")
    assert loads(server.read_route("dram1", "cpu0")) == {"dram1": 1.0, "upi0.socket0": 1.0}
    assert loads(server.route("dram1", "hbm0")) == {
        "dram1": 1.0, "upi0.socket0": 1.0, "pcie0.hbm0": 1.0, "pcie0_both": 1.0, "hbm0": 1.0,
    }  # fmt: skip
    # Both CPUs on one socket's weights halve; on weights of their own they do not.
    peaks = {name: one.peak for name, one in server.resources.items() if one.peak is not None}

    def both(first: str, second: str) -> float:
        uses = [loads(server.read_route(first, "cpu0")), loads(server.read_route(second, "cpu1"))]
        known = [{name: use for name, use in one.items() if name in peaks} for one in uses]
        return load_bound(peaks, [(1e9, one) for one in known]).seconds

    assert both("dram0", "dram1") == pytest.approx(1e9 / 307.2e9)
    assert both("dram0", "dram0") == pytest.approx(2e9 / 307.2e9)


# FlexGen's testbed


def test_the_testbed_of_flexgen() -> None:
    server = load_topology("gcp-n1-t4-flexgen")
    assert gpus(server) == ["gpu0"]
    sizes = [server.memories[name].capacity for name in ("hbm0", "dram0", "ssd0")]
    assert sizes == [15 * 2**30, 208 * 2**30, 1500 * 2**30]
    assert server.resources["hbm0"].peak == 320e9 and server.resources["dram0"].peak == 6 * 2933e6 * 8
    assert server.resources["pcie0.hbm0"].peak == pytest.approx(pcie(3, 16))
    assert server.resources["ssd0.read"].sustained_at("").value == 2e9
    assert server.resources["ssd0.write"].sustained_at("").value == 1e9
    # A grant of the vendor certifies nothing, and the way below it is not known: drives stay out of the floor.
    assert server.resources["ssd0.read"].peak is None and "local0.socket0" not in server.resources
    assert stops(server.route("ssd0", "hbm0")) == [("ssd0", "dram0"), ("dram0", "hbm0")]
    assert loads(server.route("ssd0", "hbm0"))["dram0"] == 2.0
