"""Shipped servers: GB200 tray, AWS g5 and g6e, Frontier, Gaudi 3, M2 Ultra. Counts, host links and what is shared."""

from __future__ import annotations

from itertools import permutations

import pytest

from offload.bounds import load_bound
from offload.documents import load_topology, parse_document
from offload.documents.shipped import shipped_folder
from offload.documents.topology_file import read_topology
from offload.errors import PlanError
from offload.topology import Route, Topology
from offload.words import plan_from_words

GIB, MIB = 2**30, 2**20
GPUS = {
    "gb200-nvl72-tray": 4,
    "aws-g5-48xlarge": 8,
    "aws-g6e-48xlarge": 8,
    "frontier-mi250x-node": 8,
    "gaudi3-hls3": 8,
    "mac-studio-m2-ultra": 1,
}
EIGHT = list(permutations(range(8), 2))


def pcie(generation: int, lanes: int) -> float:
    """Bytes per second each way after encoding, from the standard's constants."""
    return {4: 16e9, 5: 32e9}[generation] * lanes * 128 / 130 / 8


def loads(route: Route) -> dict[str, float]:
    """Expected load of each resource for a byte, over all stages."""
    found: dict[str, float] = {}
    for stage in route.stages:
        for resource, _, expected in stage.uses:
            found[resource] = found.get(resource, 0.0) + expected
    return found


def stops(route: Route) -> list[tuple[str, str]]:
    return [(stage.source, stage.destination) for stage in route.stages]


def at_once(topology: Topology, *pairs: tuple[str, str], sustained: bool = False) -> float:
    """The load bound where each of `pairs` (from, to) moves 1 GB at once [s], at peak or at sustained rates."""
    rates = {
        name: one.sustained_at("pinned").value if sustained else one.peak
        for name, one in topology.resources.items()
        if not name.endswith(".flops") and (sustained or one.peak is not None)
    }
    moves = []
    for source, destination in pairs:
        uses = loads(topology.route(source, destination))
        moves.append((1e9, {name: use for name, use in uses.items() if name in rates}))
    return load_bound(rates, moves).seconds


def sustained(topology: Topology, resource: str, access: str = "pinned") -> tuple[float, float, float]:
    found = topology.resources[resource].sustained_at(access)
    return found.low, found.value, found.high


def changed(name: str, old: str, new: str) -> Topology:
    """A shipped server with one line written otherwise."""
    text = (shipped_folder() / f"{name}.yaml").read_text(encoding="utf-8")
    assert text.count(old) == 1
    return read_topology(parse_document(text.replace(old, new), "own.yaml"), name="own")


@pytest.mark.parametrize("name", list(GPUS))
def test_gpus_and_their_host_memory(name: str) -> None:
    server = load_topology(name)
    assert [one.name for one in server.processors.values() if one.kind == "gpu"] == [
        f"gpu{n}" for n in range(GPUS[name])
    ]
    host = [one.name for one in server.memories.values() if one.kind in ("dram", "unified")]
    for gpu in range(GPUS[name]):
        memory = server.processors[f"gpu{gpu}"].memory
        for source in host:
            if source != memory:
                assert len(server.route(source, memory).stages) == len(server.route(memory, source).stages) == 1


@pytest.mark.parametrize("name", list(GPUS))
def test_every_part_names_a_source_with_its_confidence(name: str) -> None:
    """Of what a floor counts: (found), (derived) or (memory) stands in the source of each peak."""
    for resource in load_topology(name).resources.values():
        if resource.peak is not None:
            assert any(word in resource.source for word in ("(found", "(derived", "(memory", "derived)")), resource.name


# A tray of GB200 NVL72


def test_a_gb200_tray() -> None:
    server = load_topology("gb200-nvl72-tray")
    assert [server.memories[f"hbm{n}"].capacity for n in range(4)] == [184 * GIB] * 4
    assert [server.memories[f"dram{n}"].capacity for n in range(2)] == [447 * GIB] * 2
    for n in range(4):
        # Half of the headlines that add both directions: 900 of C2C, 1800 of NVLink 5.
        assert server.resources[f"c2c{n}.hbm{n}"].peak == server.resources[f"c2c{n}.grace{n // 2}"].peak == 450e9
        assert server.resources[f"nvlink{n}.nvswitch0"].peak == server.resources[f"nvlink{n}.hbm{n}"].peak == 900e9
        assert sustained(server, f"c2c{n}.hbm{n}") == (211e9, 211e9, 359e9)
        assert sustained(server, f"c2c{n}.grace{n // 2}") == (193e9, 193e9, 377e9)
        assert server.resources[f"hbm{n}"].peak == 8184e9
    assert server.resources["graces.grace0"].peak == server.resources["graces.grace1"].peak == 150e9
    assert server.memories["ssd0"].capacity is None and server.resources["ssd0.read"].sustained_at("").value == 24e9


def test_two_gb200_share_the_memory_of_their_grace() -> None:
    server = load_topology("gb200-nvl72-tray")
    assert loads(server.route("dram0", "hbm0")) == {"dram0": 1.0, "c2c0.hbm0": 1.0, "hbm0": 1.0}
    assert at_once(server, ("dram0", "hbm0")) == pytest.approx(1e9 / 450e9)
    assert at_once(server, ("dram0", "hbm0"), ("dram0", "hbm1")) == pytest.approx(2e9 / 512e9)
    four = [(f"dram{n // 2}", f"hbm{n}") for n in range(4)]
    assert at_once(server, *four) == pytest.approx(2e9 / 512e9)
    # At sustained rates 174 each, where a GB300 has 169 to 175 with all GPUs at once; both ways 174 + 174, where one
    # with a single GPU has 175 + 172.
    assert at_once(server, ("dram0", "hbm0"), sustained=True) == pytest.approx(1e9 / 211e9)
    assert 1e9 / at_once(server, *four, sustained=True) == pytest.approx(174e9)
    both = at_once(server, ("dram0", "hbm0"), ("hbm0", "dram0"), sustained=True)
    assert 1e9 / both == pytest.approx(174e9)


def test_gb200_pairs_do_not_share_their_nvlink() -> None:
    server = load_topology("gb200-nvl72-tray")
    for one, other in permutations(range(4), 2):
        assert loads(server.route(f"hbm{one}", f"hbm{other}")) == {
            f"hbm{one}": 1.0, f"nvlink{one}.nvswitch0": 1.0, f"nvlink{other}.hbm{other}": 1.0, f"hbm{other}": 1.0,
        }  # fmt: skip
    pairs = [("hbm0", "hbm1"), ("hbm1", "hbm0"), ("hbm2", "hbm3"), ("hbm3", "hbm2")]
    assert at_once(server, *pairs) == at_once(server, pairs[0]) == pytest.approx(1e9 / 900e9)


def test_the_other_grace_is_behind_the_link_between_them() -> None:
    server = load_topology("gb200-nvl72-tray")
    assert loads(server.route("dram1", "hbm0")) == {"dram1": 1.0, "graces.grace0": 1.0, "c2c0.hbm0": 1.0, "hbm0": 1.0}
    assert at_once(server, ("dram1", "hbm0")) == pytest.approx(1e9 / 150e9)
    assert at_once(server, ("dram1", "hbm0"), ("dram1", "hbm1")) == pytest.approx(2e9 / 150e9)


# AWS g5 and g6e


def test_eight_a10g() -> None:
    server = load_topology("aws-g5-48xlarge")
    assert [server.memories[f"hbm{n}"].capacity for n in range(8)] == [22630 * MIB] * 8
    assert sum(server.memories[f"dram{n}"].capacity for n in range(2)) == 768 * GIB
    assert (server.memories["ssd0"].count, server.memories["ssd0"].capacity) == (2, 3.8e12)
    assert [server.resources[f"ssd0.{way}"].sustained_at("").value for way in ("read", "write")] == [6e9, 3e9]
    assert [server.resources[f"dram{n}"].peak for n in range(2)] == [8 * 3200e6 * 8] * 2
    assert server.resources["xgmi0.socket1"].peak == 4 * 18e9 * 16 / 8
    for n in range(8):
        assert server.resources[f"hbm{n}"].peak == 600e9
        # x8 is expected, x16 cannot be excluded: what is expected fits x8, the floor has the peak of x16.
        assert server.resources[f"pcie{n}.hbm{n}"].peak == pytest.approx(pcie(4, 16))
        assert sustained(server, f"pcie{n}.hbm{n}") == (12.5e9,) * 3
        assert sustained(server, f"pcie{n}.socket{n // 4}") == (13e9,) * 3
        assert 13e9 < pcie(4, 8)
    narrow = changed("aws-g5-48xlarge", "pcie0..3: {use: a10g,", "pcie0..3: {use: a10g, pcie: 4 x8,")
    assert narrow.resources["pcie0.hbm0"].peak == pytest.approx(pcie(4, 8))
    assert sustained(narrow, "pcie0.hbm0") == (12.5e9,) * 3


def test_a10g_pairs_are_staged_in_host_memory() -> None:
    server = load_topology("aws-g5-48xlarge")
    for one, other in EIGHT:
        route = server.route(f"hbm{one}", f"hbm{other}")
        near, far = f"dram{one // 4}", f"dram{other // 4}"
        found = loads(route)
        assert len(route.stages) == 2 and found.get(near, 0.0) + (found.get(far, 0.0) if far != near else 0.0) == 2.0
        assert (found.get("xgmi0.socket0", 0.0) + found.get("xgmi0.socket1", 0.0)) == float(one // 4 != other // 4)
    assert loads(server.route("hbm0", "hbm1")) == {
        "hbm0": 1.0, "pcie0.socket0": 1.0, "dram0": 2.0, "pcie1.hbm1": 1.0, "hbm1": 1.0,
    }  # fmt: skip


def test_eight_l40s_at_aws() -> None:
    server = load_topology("aws-g6e-48xlarge")
    assert [server.memories[f"hbm{n}"].capacity for n in range(8)] == [46068 * MIB] * 8
    assert sum(server.memories[f"dram{n}"].capacity for n in range(2)) == 1536 * GIB
    assert (server.memories["ssd0"].count, server.memories["ssd0"].capacity) == (4, 1.9e12)
    assert server.resources["ssd0.read"].sustained_at("").value == 8e9 and server.resources.get("ssd0.write") is None
    for n in range(8):
        assert server.resources[f"hbm{n}"].peak == 864e9
        assert server.resources[f"pcie{n}.hbm{n}"].peak == pytest.approx(pcie(4, 16))
    # The card can do peer-to-peer; where a guest may not, copies stage in host memory.
    assert loads(server.route("hbm0", "hbm1")) == {"hbm0": 1.0, "pcie0.socket0": 1.0, "pcie1.hbm1": 1.0, "hbm1": 1.0}
    without = changed("aws-g6e-48xlarge", "{use: l40s, memory:", "{use: l40s, peer_to_peer: false, memory:")
    assert loads(without.route("hbm0", "hbm1"))["dram0"] == 2.0


@pytest.mark.parametrize("name", ["aws-g5-48xlarge", "aws-g6e-48xlarge"])
def test_four_gpus_of_a_socket_share_its_memory_only(name: str) -> None:
    server = load_topology(name)
    one = at_once(server, ("dram0", "hbm0"))
    four = at_once(server, *(("dram0", f"hbm{n}") for n in range(4)))
    assert one == four == pytest.approx(1e9 / pcie(4, 16), rel=1e-3)  # 4 x 31.5 are below 204.8
    every = at_once(server, *(("dram0", f"hbm{n}") for n in range(8)))
    assert every == pytest.approx(8e9 / 204.8e9)  # all from one socket: its DRAM binds, then xGMI


# A node of Frontier

NEAR = [(0, 1), (2, 3), (4, 5), (6, 7)]
FAR = [(0, 2), (0, 6), (1, 3), (1, 5), (2, 4), (3, 7), (4, 6), (5, 7)]


def test_eight_dies_of_mi250x() -> None:
    server = load_topology("frontier-mi250x-node")
    assert [server.memories[f"hbm{n}"].capacity for n in range(8)] == [65484 * MIB] * 8
    assert server.memories["dram0"].capacity == 512 * GIB
    assert (server.memories["ssd0"].count, server.memories["ssd0"].capacity) == (2, 1.92e12)
    assert sustained(server, "ssd0.read", "") == (5.5e9, 8.25e9, 11e9)  # 5.5 of both, or of each
    for n in range(8):
        # Of a module 3276.8 and 383: two dies.
        assert server.resources[f"hbm{n}"].peak * 2 == 3276.8e9
        assert server.processors[f"gpu{n}"].flops["bf16"].rated * 2 == 383e12
        assert server.resources[f"host{n}.hbm{n}"].peak == server.resources[f"host{n}.socket0"].peak == 36e9
        assert sustained(server, f"host{n}.hbm{n}") == (25.5e9,) * 3
        assert sustained(server, f"host{n}.hbm{n}", "zero_copy") == (28e9, 31.5e9, 35e9)
    assert [server.links[f"slot{n}"].a for n in range(4)] == ["hbm1", "hbm3", "hbm5", "hbm7"]


def test_the_dram_of_frontier_binds_before_its_eight_host_links() -> None:
    server = load_topology("frontier-mi250x-node")
    assert sum(server.resources[f"host{n}.hbm{n}"].peak for n in range(8)) == 288e9
    assert server.resources["dram0"].peak == 204.8e9
    five, eight = ([("dram0", f"hbm{n}") for n in range(count)] for count in (5, 8))
    assert at_once(server, *five) == pytest.approx(1e9 / 36e9)
    assert at_once(server, *eight) == pytest.approx(8e9 / 204.8e9)


def test_dies_of_frontier_have_the_links_of_their_pair() -> None:
    server = load_topology("frontier-mi250x-node")
    joined = {}
    for one, other in EIGHT:
        found = loads(server.route(f"hbm{one}", f"hbm{other}"))
        link = f"xgmi{min(one, other)}_{max(one, other)}.hbm{other}"
        if link in server.resources:
            assert found == {f"hbm{one}": 1.0, link: 1.0, f"hbm{other}": 1.0}
            joined[one, other] = server.resources[link].peak
        else:  # by the CPU, without its DRAM
            assert found == {f"hbm{one}": 1.0, f"host{one}.socket0": 1.0, f"host{other}.hbm{other}": 1.0,
                             f"hbm{other}": 1.0}  # fmt: skip
    both = [(pairs, peak) for pairs, peak in ((NEAR, 200e9), (FAR, 100e9))]
    assert joined == {pair: peak for pairs, peak in both for a, b in pairs for pair in ((a, b), (b, a))}
    assert sustained(server, "xgmi0_1.hbm1") == (50e9, 150e9, 150e9)
    assert sustained(server, "xgmi0_2.hbm2") == (38e9, 38e9, 50e9)
    pairs = [(f"hbm{a}", f"hbm{b}") for a, b in joined]
    assert at_once(server, *pairs) == at_once(server, ("hbm0", "hbm2")) == pytest.approx(1e9 / 100e9)


# HLS-3


def test_eight_gaudi3() -> None:
    server = load_topology("gaudi3-hls3")
    assert [server.memories[f"hbm{n}"].capacity for n in range(8)] == [128 * GIB] * 8
    assert [server.memories[f"dram{n}"].capacity for n in range(2)] == [512 * GIB] * 2
    assert not [one for one in server.memories.values() if one.kind == "nvme"]
    for n in range(8):
        assert server.resources[f"hbm{n}"].peak == 3700e9
        assert server.resources[f"pcie{n}.hbm{n}"].peak == pytest.approx(pcie(5, 16))
        flops = server.processors[f"gpu{n}"].flops
        assert (flops["bf16"].rated, flops["fp8"].rated, flops["fp16"].rated) == (1677e12, 1677e12, 459e12)
        # 21 ports to peers and three to other servers, 25 GB/s each.
        out = [one for one in server.links.values() if one.technology == "ethernet" and f"hbm{n}" in (one.a, one.b)]
        assert len(out) == 8 and sum(one.forward.peak for one in out) == 24 * 25e9
        assert sum(one.forward.peak for one in out if not {one.a, one.b} & set(server.switches)) == 525e9


def test_a_pair_of_gaudi3_has_three_ports_of_its_own() -> None:
    server = load_topology("gaudi3-hls3")
    used = set()
    for one, other in EIGHT:
        link = f"eth{min(one, other)}_{max(one, other)}.hbm{other}"
        assert loads(server.route(f"hbm{one}", f"hbm{other}")) == {f"hbm{one}": 1.0, link: 1.0, f"hbm{other}": 1.0}
        assert server.resources[link].peak == 75e9
        used.add(link)
    assert len(used) == len(EIGHT)
    one = at_once(server, ("hbm0", "hbm1"))
    assert one == at_once(server, *((f"hbm{a}", f"hbm{b}") for a, b in EIGHT)) == pytest.approx(1e9 / 75e9)


def test_two_gaudi3_halve_their_uplink_as_expected() -> None:
    """One x16 for both is inferred: expected rates halve, the floor does not rest on it."""
    server = load_topology("gaudi3-hls3")
    pair = [("dram0", "hbm0"), ("dram0", "hbm1")]
    for n in range(4):
        uplink = loads(server.route(f"dram{n // 2}", f"hbm{2 * n}")).keys() & loads(
            server.route(f"dram{n // 2}", f"hbm{2 * n + 1}")
        ).keys() - {f"dram{n // 2}"}  # fmt: skip
        assert uplink == {f"up{n}.sw{n}"}
    assert at_once(server, *pair) == at_once(server, pair[0]) == pytest.approx(1e9 / pcie(5, 16), rel=1e-4)
    assert at_once(server, *pair, sustained=True) == pytest.approx(2e9 / 55.5e9)
    assert at_once(server, ("dram0", "hbm0"), ("dram0", "hbm2"), sustained=True) == pytest.approx(
        1e9 / (0.88 * pcie(5, 16))
    )


# M2 Ultra


def test_a_mac_studio_with_m2_ultra() -> None:
    server = load_topology("mac-studio-m2-ultra")
    held = [one for one in server.memories.values() if one.kind in ("hbm", "dram", "unified")]
    assert [(one.name, one.capacity, one.rate.peak) for one in held] == [("unified0", 192 * GIB, 819.2e9)]
    assert sustained(server, "unified0", "") == (650e9, 700e9, 720e9)
    assert {one.memory for one in server.processors.values()} == {"unified0"}
    # What GPU and CPU read at once adds up in the one memory, and nothing is copied between them.
    reads = [loads(server.read_route("unified0", processor)) for processor in ("gpu0", "cpu0")]
    assert set(reads[0]) == {"unified0"} and set(reads[1]) == {"unified0", "cpu0.reads"}
    peak = {"unified0": server.resources["unified0"].peak}
    both = load_bound(peak, [(1e9, {"unified0": found["unified0"]}) for found in reads]).seconds
    assert both == pytest.approx(2e9 / 819.2e9)
    with pytest.raises(PlanError):
        plan_from_words("llama-3.1-70b:q8_0", "mac-studio-m2-ultra", gpu_layers=10)
