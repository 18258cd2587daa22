"""Topologies: what parts compile to, where bytes go, what they load there, and what is refused."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload.errors import RouteError, TopologyError
from offload.topology import (
    Interval,
    Limit,
    Link,
    Memory,
    Processor,
    Rate,
    Resource,
    Switch,
    Topology,
    describe_route,
)
from offload.topology.shares import SHARES

GB = 1e9


def rate(peak: float | None = None, sustained: float | None = None, **accesses: float) -> Rate:
    figures = {access: Interval.exact(figure * GB) for access, figure in accesses.items()}
    if sustained is not None:
        figures[""] = Interval.exact(sustained * GB)
    return Rate(peak=None if peak is None else peak * GB, sustained=figures)


def link(name: str, a: str, b: str, peak: float = 32.0, technology: str = "pcie", **more) -> Link:
    return Link(name, a, b, rate(peak), rate(peak), technology, **more)


def hbm(number: int, **more) -> Memory:
    return Memory(f"hbm{number}", "hbm", 24 * 2**30, rate(1000.0), **more)


def dram(number: int, peak: float = 100.0) -> Memory:
    return Memory(f"dram{number}", "dram", 96 * 2**30, rate(peak), at=f"socket{number}")


def ssd(number: int) -> Memory:
    return Memory(f"ssd{number}", "nvme", 2 * 10**12, read=Rate(rated=7.0 * GB), write=Rate(rated=6.0 * GB))


def gpu(number: int, **more) -> Processor:
    return Processor(f"gpu{number}", "gpu", f"hbm{number}", **more)


def cpu(number: int, **more) -> Processor:
    return Processor(f"cpu{number}", "cpu", f"dram{number}", **more)


def desktop(**more) -> dict[str, list]:
    return {
        "memories": [hbm(0), dram(0), ssd(0)],
        "processors": [gpu(0, **more), cpu(0)],
        "switches": [Switch("socket0")],
        "links": [
            link("pcie0", "socket0", "hbm0", 31.5, latency=(3e-6, 6e-6)),
            link("m2", "ssd0", "socket0", 7.9, latency=(1e-6, 2e-6)),
        ],
    }


def switched_pair(**more) -> dict[str, list]:
    """Two GPUs under one PCIe switch, with one uplink to the socket."""
    return {
        "memories": [hbm(0), hbm(1), dram(0)],
        "processors": [gpu(0, **more), gpu(1, **more), cpu(0)],
        "switches": [Switch("socket0"), Switch("plx", "pcie_switch")],
        "links": [link("uplink", "socket0", "plx"), link("p0", "plx", "hbm0"), link("p1", "plx", "hbm1")],
    }


def two_sockets() -> dict[str, list]:
    return {
        "memories": [hbm(0), dram(0), dram(1), ssd(0)],
        "processors": [gpu(0), cpu(0), cpu(1)],
        "switches": [Switch("socket0"), Switch("socket1")],
        "links": [
            link("pcie0", "socket0", "hbm0"),
            link("upi", "socket0", "socket1", 62.4, "upi"),
            link("m2", "ssd0", "socket0", 7.9),
        ],
    }


def uses(route) -> list[dict[str, tuple[float, float]]]:
    return [{name: (least, expected) for name, least, expected in stage.uses} for stage in route.stages]


ONE, STAGED = (1.0, 1.0), (0.0, 1.0)


# Where bytes go


def test_two_gpus_under_one_switch_share_the_uplink():
    topology = Topology.build(**switched_pair())
    for number in (0, 1):
        route = topology.route("dram0", f"hbm{number}")
        assert uses(route) == [{"dram0": ONE, "uplink.plx": ONE, f"p{number}.hbm{number}": ONE, f"hbm{number}": ONE}]
    assert describe_route(route) == "dram0 -> socket0 -> uplink -> plx -> p1 -> hbm1"


def test_far_socket_crosses_the_socket_link_and_loads_no_near_memory():
    topology = Topology.build(**two_sockets())
    assert uses(topology.route("dram1", "hbm0")) == [{"dram1": ONE, "upi.socket0": ONE, "pcie0.hbm0": ONE, "hbm0": ONE}]
    assert uses(topology.read_route("dram1", "cpu0")) == [{"dram1": ONE, "upi.socket0": ONE}]
    assert topology.route("dram1", "hbm0").staged_in == ()


def test_pair_without_peer_to_peer_stages_and_crosses_the_uplink_both_ways():
    route = Topology.build(**switched_pair()).route("hbm0", "hbm1")
    assert uses(route) == [
        {"hbm0": ONE, "p0.plx": ONE, "uplink.socket0": ONE, "dram0": STAGED},
        {"dram0": STAGED, "uplink.plx": ONE, "p1.hbm1": ONE, "hbm1": ONE},
    ]
    assert route.staged_in == ("dram0",)
    assert route.links == ("p0", "uplink", "uplink", "p1")
    way = "hbm0 -> p0 -> plx -> uplink -> socket0 -> dram0 (staged) -> uplink -> plx -> p1 -> hbm1"
    assert describe_route(route) == way


def test_pair_with_peer_to_peer_stays_below_the_switch():
    route = Topology.build(**switched_pair(peer_to_peer=True)).route("hbm0", "hbm1")
    assert uses(route) == [{"hbm0": ONE, "p0.plx": ONE, "p1.hbm1": ONE, "hbm1": ONE}]


def test_peer_to_peer_needs_both_ends():
    parts = switched_pair()
    parts["processors"][0] = gpu(0, peer_to_peer=True)
    assert Topology.build(**parts).route("hbm0", "hbm1").staged_in == ("dram0",)


@pytest.mark.parametrize("technology", ["nvlink", "xgmi", "c2c"])
@pytest.mark.parametrize("peer", [None, False, True])
def test_other_links_than_pcie_are_direct_whatever_the_devices(technology, peer):
    parts = switched_pair(peer_to_peer=peer)
    parts["links"].append(link("bridge", "hbm0", "hbm1", 56.0, technology))
    route = Topology.build(**parts).route("hbm0", "hbm1")
    assert uses(route) == [{"hbm0": ONE, "bridge.hbm1": ONE, "hbm1": ONE}]


def test_nvswitch_is_cut_through_and_a_detour_over_it_beats_a_stage():
    parts = switched_pair()
    parts["switches"].append(Switch("nvswitch", "nvswitch"))
    parts["links"] += [link(f"nv{n}", f"hbm{n}", "nvswitch", 450.0, "nvlink") for n in (0, 1)]
    assert Topology.build(**parts).route("hbm0", "hbm1").links == ("nv0", "nv1")


def test_no_copy_passes_through_the_memory_of_another_gpu():
    """A mesh of three with one bridge missing: the pair without it goes through host memory."""
    parts = switched_pair()
    parts["memories"].append(hbm(2))
    parts["processors"].append(gpu(2))
    parts["links"] += [
        link("p2", "plx", "hbm2"),
        link("b0", "hbm0", "hbm1", 50.0, "nvlink"),
        link("b1", "hbm1", "hbm2", 50.0, "nvlink"),
    ]
    topology = Topology.build(**parts)
    assert topology.route("hbm0", "hbm2").staged_in == ("dram0",)
    assert topology.route("hbm0", "hbm1").links == ("b0",)


def test_drive_to_gpu_bounces_in_host_memory():
    route = Topology.build(**desktop()).route("ssd0", "hbm0")
    assert uses(route) == [
        {"ssd0.read": ONE, "m2.socket0": ONE, "dram0": STAGED},
        {"dram0": STAGED, "pcie0.hbm0": ONE, "hbm0": ONE},
    ]
    assert describe_route(route) == "ssd0 -> m2 -> socket0 -> dram0 (staged) -> pcie0 -> hbm0"
    assert [stage.latency for stage in route.stages] == [(1e-6, 2e-6), (3e-6, 6e-6)]


def test_gpu_to_drive_bounces_and_is_written_there():
    assert uses(Topology.build(**desktop()).route("hbm0", "ssd0")) == [
        {"hbm0": ONE, "pcie0.socket0": ONE, "dram0": STAGED},
        {"dram0": STAGED, "m2.ssd0": ONE, "ssd0.write": ONE},
    ]


def test_direct_storage_skips_the_bounce():
    route = Topology.build(**desktop(direct_storage=True)).route("ssd0", "hbm0")
    assert uses(route) == [{"ssd0.read": ONE, "m2.socket0": ONE, "pcie0.hbm0": ONE, "hbm0": ONE}]
    assert route.stages[0].latency == (pytest.approx(4e-6), pytest.approx(8e-6))


def test_peer_to_peer_alone_does_not_reach_drives():
    assert Topology.build(**desktop(peer_to_peer=True)).route("ssd0", "hbm0").staged_in == ("dram0",)


def test_drives_exchange_bytes_through_host_memory():
    parts = desktop(direct_storage=True)
    parts["memories"].append(ssd(1))
    parts["links"].append(link("m2b", "ssd1", "socket0", 7.9))
    assert uses(Topology.build(**parts).route("ssd0", "ssd1")) == [
        {"ssd0.read": ONE, "m2.socket0": ONE, "dram0": STAGED},
        {"dram0": STAGED, "m2b.ssd1": ONE, "ssd1.write": ONE},
    ]


def test_host_memories_joined_without_a_switch_stage():
    """Links may end at memories: what passes through a host memory is copied there."""
    topology = Topology.build(
        memories=[replace(dram(0), at=None), replace(dram(1), at=None), hbm(0)],
        processors=[gpu(0), cpu(0), cpu(1)],
        links=[link("upi", "dram0", "dram1", 60.0, "upi"), link("pcie0", "dram0", "hbm0")],
    )
    assert uses(topology.route("dram1", "hbm0")) == [
        {"dram1": ONE, "upi.dram0": ONE, "dram0": STAGED},
        {"dram0": STAGED, "pcie0.hbm0": ONE, "hbm0": ONE},
    ]


def test_staging_memory_is_the_one_with_the_shortest_whole_way():
    route = Topology.build(**two_sockets()).route("ssd0", "hbm0")
    assert route.staged_in == ("dram0",)
    assert route.links == ("m2", "pcie0")


def test_staging_over_the_wider_of_two_equally_long_ways():
    """Two host memories, equally near; the way through b is wider."""
    topology = Topology.build(
        memories=[hbm(0), hbm(1), *(Memory(name, "dram", rate=rate(100.0)) for name in ("a", "b"))],
        processors=[gpu(0), gpu(1)],
        links=[
            *(link(f"a{n}", "a", f"hbm{n}", 16.0) for n in (0, 1)),
            *(link(f"b{n}", "b", f"hbm{n}", 32.0) for n in (0, 1)),
        ],
    )
    assert topology.route("hbm0", "hbm1").staged_in == ("b",)


def test_via_pins_the_way():
    parts = two_sockets()
    topology = Topology.build(**parts)
    assert topology.route("ssd0", "hbm0", via=("dram1",)).links == ("m2", "upi", "upi", "pcie0")
    assert topology.route("dram0", "hbm0", via=("dram1",)).staged_in == ("dram1",)
    assert topology.route("dram0", "hbm0", via=("socket1",)).links == ("upi", "upi", "pcie0")
    with pytest.raises(RouteError, match="only host DRAM may stage"):
        topology.route("dram0", "hbm0", via=("ssd0",))
    with pytest.raises(RouteError, match="pcie0 is the link between socket0 and hbm0"):
        topology.route("dram0", "hbm0", via=("pcie0",))
    with pytest.raises(RouteError, match='no node "sockt1".*Did you mean "socket1"'):
        topology.route("dram0", "hbm0", via=("sockt1",))


def test_via_makes_a_peer_way_a_staged_one():
    parts = switched_pair(peer_to_peer=True)
    assert Topology.build(**parts).route("hbm0", "hbm1", via=("dram0",)).staged_in == ("dram0",)


def test_parallel_links_widest_then_name():
    parts = switched_pair()
    parts["links"] += [
        link("z", "hbm0", "hbm1", 25.0, "nvlink"),
        link("narrow", "hbm0", "hbm1", 20.0, "nvlink"),
        link("a", "hbm0", "hbm1", 25.0, "nvlink"),
    ]
    topology = Topology.build(**parts)
    assert topology.route("hbm0", "hbm1").links == ("a",)
    assert topology.graph.number_of_edges("hbm0", "hbm1") == 3


def test_width_is_that_of_the_narrowest_hop():
    """Names would choose the way through a; its second hop is narrower than the other's narrowest."""
    topology = Topology.build(
        memories=[Memory("m", "dram", rate=rate(100.0)), hbm(0)],
        switches=[Switch("a"), Switch("b")],
        links=[link("1", "m", "a", 64.0), link("2", "a", "hbm0", 10.0), link("3", "m", "b", 12.0),
               link("4", "b", "hbm0", 64.0)],
    )  # fmt: skip
    assert topology.route("m", "hbm0").links == ("3", "4")


def test_names_decide_only_among_ways_that_are_equally_wide_in_all():
    """The first hop of a is wider, but the shared last hop makes both ways equal: the name decides."""
    topology = Topology.build(
        memories=[Memory("m", "dram", rate=rate(100.0)), hbm(0)],
        switches=[Switch("a"), Switch("b"), Switch("c")],
        links=[link("w", "m", "a", 64.0), link("x", "a", "c", 64.0), link("u", "m", "b", 20.0),
               link("v", "b", "c", 20.0), link("last", "c", "hbm0", 20.0)],
    )  # fmt: skip
    assert topology.route("m", "hbm0").links == ("u", "v", "last")


# What processors read and write where it lives


def test_reads_in_place():
    parts = desktop(reads=rate(None, 900.0))
    parts["processors"][1] = cpu(0, reads=rate(None, 60.0), writes=rate(None, 40.0))
    topology = Topology.build(**parts)
    assert uses(topology.read_route("dram0", "cpu0")) == [{"dram0": ONE, "cpu0.reads": ONE}]
    assert uses(topology.write_route("cpu0", "dram0")) == [{"dram0": ONE, "cpu0.writes": ONE}]
    assert uses(topology.read_route("dram0", "gpu0")) == [{"dram0": ONE, "pcie0.hbm0": ONE}]
    assert uses(topology.write_route("gpu0", "dram0")) == [{"pcie0.socket0": ONE, "dram0": ONE}]
    assert uses(topology.write_route("gpu0", "hbm0")) == [{"hbm0": ONE}]
    assert topology.read_route("dram0", "cpu0").links == ()
    assert describe_route(topology.read_route("dram0", "gpu0")) == "dram0 -> socket0 -> pcie0 -> gpu0"


@pytest.mark.parametrize("processor", ["gpu0", "cpu0"])
def test_a_drive_is_not_read_in_place(processor):
    with pytest.raises(RouteError, match="Move it first, to"):
        Topology.build(**desktop(direct_storage=True)).read_route("ssd0", processor)


def test_the_memory_of_another_gpu_is_read_only_over_peer_links():
    parts = switched_pair()
    with pytest.raises(RouteError, match="gpu1 cannot read hbm0 in place.*Move it first, to hbm1"):
        Topology.build(**parts).read_route("hbm0", "gpu1")
    parts["links"].append(link("bridge", "hbm0", "hbm1", 56.0, "nvlink"))
    assert Topology.build(**parts).read_route("hbm0", "gpu1").links == ("bridge",)


def test_unified_memory_is_one_memory_with_two_processors():
    topology = Topology.build(
        memories=[Memory("pool", "unified", 128 * 10**9, rate(273.0)), ssd(0)],
        processors=[Processor("gpu0", "gpu", "pool"), Processor("cpu0", "cpu", "pool")],
        links=[link("m2", "ssd0", "pool", 7.9)],
    )
    assert topology.processors_of("pool") == ["cpu0", "gpu0"]
    assert topology.memory_of("gpu0") == topology.memory_of("cpu0") == "pool"
    for processor in ("gpu0", "cpu0"):
        assert uses(topology.read_route("pool", processor)) == [{"pool": ONE}]
    assert uses(topology.route("ssd0", "pool")) == [{"ssd0.read": ONE, "m2.pool": ONE, "pool": ONE}]


def test_nearest_processor():
    topology = Topology.build(**two_sockets())
    assert topology.nearest_processor("ssd0") == "cpu0"
    assert topology.nearest_processor("hbm0") == "gpu0"
    assert topology.nearest_processor("dram1") == "cpu1"
    lonely = Topology.build(memories=[hbm(0), hbm(1)], processors=[gpu(0)])
    with pytest.raises(RouteError, match="no processor can be reached from hbm1"):
        lonely.nearest_processor("hbm1")


# No route


def test_disconnected_parts_say_what_is_reachable():
    parts = desktop()
    parts["memories"].append(hbm(9))
    topology = Topology.build(name="box", **parts)
    with pytest.raises(RouteError) as error:
        topology.route("ssd0", "hbm9")
    assert str(error.value) == "topology box: no route from ssd0 to hbm9. Reachable from ssd0: dram0, hbm0."
    with pytest.raises(RouteError, match="Reachable from hbm9: nothing"):
        topology.route("hbm9", "ssd0")


def test_links_without_peer_to_peer_and_without_host_memory_are_no_route():
    parts = switched_pair()
    parts["memories"] = parts["memories"][:2]
    parts["processors"] = parts["processors"][:2]
    topology = Topology.build(**parts)
    with pytest.raises(RouteError, match="none can be reached"):
        topology.route("hbm0", "hbm1")
    assert topology.reachable("hbm0") == ()
    with_peers = [replace(processor, peer_to_peer=True) for processor in parts["processors"]]
    assert Topology.build(**parts | {"processors": with_peers}).reachable("hbm0") == ("hbm1",)


def test_unknown_names_get_the_nearest():
    topology = Topology.build(name="box", **desktop())
    with pytest.raises(TopologyError, match='no memory "hmb0".*Did you mean "hbm0"'):
        topology.route("dram0", "hmb0")
    with pytest.raises(TopologyError, match='gpu0 is a processor; its memory is "hbm0"'):
        topology.route("dram0", "gpu0")
    with pytest.raises(TopologyError, match='no processor "gpu1".*Did you mean "gpu0"'):
        topology.read_route("dram0", "gpu1")
    with pytest.raises(RouteError, match="nothing moves"):
        topology.route("dram0", "dram0")


def test_reachable_agrees_with_route():
    for parts in (desktop(), switched_pair(), switched_pair(peer_to_peer=True), two_sockets()):
        topology = Topology.build(**parts)
        for source in topology.memories:
            found = set()
            for destination in topology.memories:
                try:
                    if topology.route(source, destination):
                        found.add(destination)
                except RouteError:
                    pass
            assert topology.reachable(source) == tuple(sorted(found))
    assert topology.reachable("socket1") == ("dram0", "dram1", "hbm0", "ssd0")
    assert topology.reachable("gpu0") == topology.reachable("hbm0")


# Resources


def test_names_kinds_and_units():
    parts = desktop(flops={"bf16": Rate(rated=165e12)})
    parts["limits"] = [Limit("root", ("pcie0",), rate(None, 40.0))]
    resources = Topology.build(**parts).resources
    assert {name: (row.kind, row.unit) for name, row in resources.items()} == {
        "hbm0": ("memory", "B"),
        "dram0": ("memory", "B"),
        "ssd0.read": ("memory", "B"),
        "ssd0.write": ("memory", "B"),
        "gpu0.flops": ("processor", "FLOP"),
        "pcie0.hbm0": ("link", "B"),
        "pcie0.socket0": ("link", "B"),
        "m2.socket0": ("link", "B"),
        "m2.ssd0": ("link", "B"),
        "root": ("limit", "B"),
    }
    with pytest.raises(TypeError):
        resources["hbm0"] = None


def resource(name: str, **parts) -> Resource:
    return Topology.build(**parts).resources[name]


def test_half_duplex_is_one_resource():
    bus = Link("bus", "a", "b", rate(25.0), rate(25.0), "pcie", half_duplex=True)
    parts = {"memories": [Memory("a", "dram", rate=rate(90.0)), Memory("b", "hbm", rate=rate(900.0))], "links": [bus]}
    topology = Topology.build(**parts)
    assert "bus" in topology.resources and "bus.a" not in topology.resources
    assert uses(topology.route("a", "b")) == [{"a": ONE, "bus": ONE, "b": ONE}]
    assert uses(topology.route("b", "a")) == [{"b": ONE, "bus": ONE, "a": ONE}]


def test_asymmetric_c2c():
    parts = {
        "memories": [Memory("lpddr", "dram", rate=rate(384.0)), hbm(0)],
        "processors": [gpu(0), Processor("cpu0", "cpu", "lpddr")],
        "links": [Link("c2c", "lpddr", "hbm0", rate(450.0, 377.0), rate(450.0, 297.0), "c2c")],
    }
    resources = Topology.build(**parts).resources
    assert resources["c2c.hbm0"].sustained_at("pinned") == Interval.exact(377 * GB)
    assert resources["c2c.lpddr"].sustained_at("pinned") == Interval.exact(297 * GB)
    assert "pageable" not in resources["c2c.hbm0"].sustained
    assumed = Topology.build(**parts | {"links": [link("c2c", "lpddr", "hbm0", 450.0, "c2c")]})
    assert assumed.resources["c2c.hbm0"].sustained_at("").value == pytest.approx(0.84 * 450 * GB)
    assert assumed.resources["c2c.lpddr"].sustained_at("").value == pytest.approx(0.66 * 450 * GB)
    assert "c2c.hbm0: sustained rate assumed at 84 % of peak (76 to 94 %: C2C, host to device)" in assumed.assumptions


def test_limits_over_links_and_directions():
    parts = switched_pair()
    parts["limits"] = [
        Limit("both", ("uplink",), rate(40.0, 30.0)),
        Limit("down", ("p0.hbm0", "p1.hbm1"), rate(None, 28.0)),
    ]
    topology = Topology.build(**parts)
    assert uses(topology.route("dram0", "hbm0"))[0] == {
        "dram0": ONE, "uplink.plx": ONE, "both": ONE, "p0.hbm0": ONE, "down": ONE, "hbm0": ONE,
    }  # fmt: skip
    assert uses(topology.route("hbm0", "dram0"))[0] == {
        "hbm0": ONE, "p0.plx": ONE, "uplink.socket0": ONE, "both": ONE, "dram0": ONE,
    }  # fmt: skip
    assert topology.resources["down"].peak is None, "a measured limit certifies nothing"
    assert topology.resources["down"].sustained_at("pinned") == Interval.exact(28 * GB)


def test_a_limit_that_a_byte_meets_twice_counts_twice():
    parts = switched_pair(peer_to_peer=True)
    parts["limits"] = [Limit("switch", ("p0", "p1"), rate(40.0))]
    assert uses(Topology.build(**parts).route("hbm0", "hbm1"))[0]["switch"] == (2.0, 2.0)


def test_count_multiplies_rates_and_cache_and_leaves_the_stated_values():
    drives = Memory("raid", "nvme", 10**12, read=Rate(rated=7.0 * GB), write=rate(None, 5.0), count=4)
    topology = Topology.build(memories=[drives])
    assert topology.resources["raid.read"].sustained_at("").value == pytest.approx(4 * 7.0 * GB * 0.85)
    assert topology.resources["raid.write"].sustained_at("") == Interval.exact(20 * GB)
    assert (topology.memories["raid"].capacity, topology.memories["raid"].count) == (10**12, 4)
    stacks = Memory("hbm", "hbm", rate=rate(500.0), cache=36 * 10**6, count=2)
    row = resource("hbm", memories=[stacks])
    assert (row.peak, row.cache) == (1000 * GB, 72 * 10**6)


@pytest.mark.parametrize(
    ("memory", "name", "share"),
    [
        (Memory("m", "hbm", rate=rate(1000.0)), "m", "hbm"),
        (Memory("m", "dram", rate=rate(96.0)), "m", "dram_desktop"),
        (Memory("m", "dram", rate=rate(460.8)), "m", "dram_server"),
        (Memory("m", "unified", rate=rate(273.0)), "m", "dram_server"),
        (Memory("m", "cxl", rate=rate(64.0)), "m", "dram_desktop"),
    ],
)
def test_memories_without_a_measurement_get_the_documented_share(memory, name, share):
    row, known = resource(name, memories=[memory]), SHARES[share]
    assert row.sustained_at("read") == Interval(*(row.peak * part for part in (known.low, known.value, known.high)))
    assert "" in row.assumed


@pytest.mark.parametrize(
    ("technology", "generation", "share"),
    [
        ("pcie", 1, "pcie3"), ("pcie", 3, "pcie3"), ("pcie", 4, "pcie4"), ("pcie", 5, "pcie5"), ("pcie", 6, "pcie5"),
        ("pcie", None, "pcie"), ("", None, "pcie"), ("nvlink", None, "nvlink"), ("upi", None, "socket"),
        ("xgmi", None, "socket"), ("infiniband", None, "network"),
    ],
)  # fmt: skip
def test_links_without_a_measurement_get_the_documented_share(technology, generation, share):
    one = replace(link("l", "m", "s", 10.0, technology), generation=generation)
    row = resource("l.s", memories=[Memory("m", "dram", rate=rate(96.0))], switches=[Switch("s")], links=[one])
    known = SHARES[share]
    assert row.sustained_at("pinned") == Interval(*(10 * GB * part for part in (known.low, known.value, known.high)))
    assert "" in row.assumed


def test_pinned_serves_any_access_and_pageable_is_assumed_of_peak():
    parts = desktop()
    pinned = rate(31.5, pinned=26.0)
    parts["links"][0] = Link("pcie0", "socket0", "hbm0", pinned, pinned, "pcie", 4, 16)
    row = resource("pcie0.hbm0", **parts)
    assert row.sustained_at("zero_copy") == row.sustained_at("pinned") == Interval.exact(26 * GB)
    assert row.sustained_at("pageable").value == pytest.approx(0.20 * 31.5 * GB)
    assert row.assumed == {"pageable"}
    given_both = rate(31.5, pinned=26.0, pageable=6.0)
    parts["links"][0] = Link("pcie0", "socket0", "hbm0", given_both, given_both, "pcie", 4, 16)
    assert resource("pcie0.hbm0", **parts).assumed == frozenset()


def test_drives_get_their_share_of_the_rated_figure_and_no_peak():
    topology = Topology.build(**desktop())
    read, write = topology.resources["ssd0.read"], topology.resources["ssd0.write"]
    assert (read.peak, write.peak) == (None, None)
    assert read.sustained_at("").value == pytest.approx(0.95 * 7.0 * GB)
    assert write.sustained_at("").value == pytest.approx(0.90 * 6.0 * GB)
    assert "ssd0.read: sustained rate assumed at 95 % of the rated figure" in " ".join(topology.assumptions)


def test_an_assumed_link_is_no_slower_than_the_drive_behind_it():
    topology = Topology.build(**desktop())
    drive, way = topology.resources["ssd0.read"].sustained_at(""), topology.resources["m2.socket0"].sustained_at("")
    assert way.value == drive.value and way.high <= 7.9 * GB
    parts = desktop()
    parts["memories"][2] = replace(ssd(0), read=Rate(rated=14.0 * GB))
    faster = Topology.build(**parts).resources["m2.socket0"]
    assert faster.sustained_at("").value == pytest.approx(0.83 * 7.9 * GB), "measured through another slot"


def test_notes_begin_with_the_row_they_are_about_and_do_not_contradict():
    """A plan that never writes can leave out what is assumed of writes."""
    topology = Topology.build(**desktop())
    notes = topology.assumptions
    rows = [note.partition(":")[0] for note in notes]
    assert set(rows) <= set(topology.resources) and {"m2.socket0", "m2.ssd0", "ssd0.read", "ssd0.write"} <= set(rows)
    assert len([row for row in rows if row == "m2.socket0"]) == 1
    assert "m2.socket0: assumed to sustain what ssd0.read does through it" in notes
    assert any(note.startswith("m2.ssd0: sustained rate assumed at 83 % of peak") for note in notes)


def test_a_link_measured_slower_than_what_is_behind_it_is_told():
    parts = desktop()
    parts["memories"][2] = replace(ssd(0), read=rate(None, 7.0))
    parts["links"][1] = Link("m2", "ssd0", "socket0", rate(7.9, 6.0), rate(7.9, 6.0), "pcie", 4, 4)
    told = [text for text in Topology.build(**parts).assumptions if "contradiction" in text]
    assert told == ["m2.socket0: contradiction: sustains 6 GB/s, yet ssd0.read is given as 7 GB/s through it"]


def test_flops_by_format():
    known = {"bf16": Rate(rated=165e12), "fp8": Rate(rated=330e12, sustained={"": Interval.exact(250e12)})}
    row = resource("gpu0.flops", memories=[hbm(0)], processors=[gpu(0, flops=known)])
    assert row.sustained_at("bf16").value == pytest.approx(0.75 * 165e12)
    assert row.sustained_at("fp8") == Interval.exact(250e12)
    assert row.assumed == {"bf16"} and row.peak is None
    peaks = {"bf16": Rate(peak=180e12, rated=165e12), "fp8": Rate(peak=360e12)}
    assert resource("gpu0.flops", memories=[hbm(0)], processors=[gpu(0, flops=peaks)]).peak == 360e12
    mixed = {"bf16": Rate(peak=180e12), "fp8": Rate(rated=330e12)}
    row = resource("gpu0.flops", memories=[hbm(0)], processors=[gpu(0, flops=mixed)])
    assert row.peak is None, "the fastest format has no peak: bf16's would be too low for it"
    avx = [Processor("c", "cpu", "hbm0", {"bf16": Rate(rated=1e12)})]
    on_cpu = resource("c.flops", memories=[hbm(0)], processors=avx)
    assert on_cpu.sustained_at("bf16").value == pytest.approx(0.30 * 1e12)


def test_a_processor_s_own_rate_of_a_desktop_and_of_a_server():
    for peak, share in ((96.0, 0.72), (460.8, 0.45)):
        parts = {"memories": [dram(0, peak)], "processors": [cpu(0, reads=rate(peak))], "switches": [Switch("socket0")]}
        assert resource("cpu0.reads", **parts).sustained_at("").value == pytest.approx(share * peak * GB)


def test_unknown_rates_have_no_row_and_are_told():
    parts = desktop()
    unknown = Rate(unknown=True)
    parts["links"][1] = Link("m2", "ssd0", "socket0", unknown, unknown, "pcie")
    parts["memories"][0] = Memory("hbm0", "hbm", rate=unknown)
    topology = Topology.build(**parts)
    assert not {"m2.socket0", "m2.ssd0", "hbm0"} & set(topology.resources)
    assert uses(topology.route("ssd0", "hbm0")) == [
        {"ssd0.read": ONE, "dram0": STAGED},
        {"dram0": STAGED, "pcie0.hbm0": ONE},
    ]
    assert "m2.socket0: rate unknown, so it is not counted" in topology.assumptions
    assert "m2.ssd0: rate unknown, so it is not counted" in topology.assumptions
    assert "hbm0: rate unknown, so it is not counted" in topology.assumptions


def test_what_is_not_stated_is_told():
    parts = desktop()
    parts["links"][0] = replace(parts["links"][0], assumed_symmetric=True)
    parts["memories"][2] = replace(ssd(0), write=None)
    topology = Topology.build(**parts, assumptions=["from a guess"])
    assert topology.assumptions[0] == "from a guess"
    for direction in ("pcie0.hbm0", "pcie0.socket0"):
        assert f"{direction}: one direction's rate is stated; the other is assumed equal" in topology.assumptions
    assert "ssd0.write: rate not stated, so writes are not counted there" in topology.assumptions


# What is refused


def refused(**parts) -> str:
    with pytest.raises(TopologyError) as error:
        Topology.build(name="box", **parts)
    return str(error.value)


def test_all_mistakes_at_once():
    parts = desktop()
    parts["memories"].append(Memory("dram0", "drm", -5, rate(0.0), at="soket0", count=0, cache=-1))
    parts["processors"].append(Processor("gpu1", "tpu", "hbm1"))
    parts["links"] += [link("loop", "hbm0", "hbm0"), link("lost", "socket0", "gpu0"), link("far", "soket0", "hbm0")]
    parts["limits"] = [Limit("root", ("pcie0.hbm1", "pci0"), rate(None, 30.0)), Limit("none", (), rate(1.0))]
    text = refused(**parts)
    assert text.splitlines()[0] == "topology box: 15 mistakes"
    for line in (
        "dram0: two memories have this name. Rename one of them.",
        'dram0: no kind of memory "drm". Kinds: cxl, disk, dram, hbm, nvme, unified. Did you mean "dram"?',
        "dram0: capacity is -5 bytes.",
        "dram0: cache is -1 bytes.",
        "dram0: count is 0.",
        'dram0: at "soket0": it is no switch. Switches: socket0. Did you mean "socket0"?',
        "dram0: rate is peak 0.0: a rate is finite, above zero",
        'gpu1: no kind of processor "tpu".',
        'gpu1: no memory "hbm1". Memories: dram0, hbm0, ssd0. Did you mean "hbm0"?',
        "loop: both ends are hbm0. A link is between two different nodes.",
        'lost: gpu0 is a processor, and links end at memories or switches. Name the memory it is attached to, "hbm0".',
        'far: no node "soket0".',
        'root: over "pcie0.hbm1": no such link or direction. Directions: pcie0.hbm0, pcie0.socket0.',
        'root: over "pci0": no such link or direction.',
        "none: it is over nothing.",
    ):
        assert f"  {line}" in text
    assert len(text.splitlines()) == 16


@pytest.mark.parametrize("figure", [0.0, -1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("grade", ["peak", "rated", "sustained"])
def test_rates_that_are_none(figure, grade):
    wrong = Rate(sustained={"": Interval.exact(figure)}) if grade == "sustained" else Rate(**{grade: figure})
    for parts in (
        {"memories": [Memory("m", "hbm", rate=wrong)]},
        {"memories": [hbm(0)], "processors": [gpu(0, flops={"bf16": wrong})]},
        {"memories": [hbm(0), Memory("d", "dram")], "links": [Link("l", "d", "hbm0", wrong, rate(1.0))]},
    ):
        assert f"{grade} {figure}" in refused(**parts)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (rate(10.0, 11.0), "m: rate: sustained 11 GB/s is above the peak 10 GB/s"),
        (rate(10.0, pinned=11.0), "m: rate: sustained pinned 11 GB/s is above the peak 10 GB/s"),
        (Rate(peak=10.0 * GB, sustained={"": Interval(8 * GB, 9 * GB, 11 * GB)}), "11 GB/s is above the peak"),
        (Rate(peak=10.0 * GB, rated=12.0 * GB), "rated 12 GB/s is above the peak 10 GB/s"),
        (Rate(sustained={"": Interval(9.0, 8.0, 10.0)}), "its low end first"),
        (Rate(), "m: rate has no figure"),
        (Rate(peak=1.0, unknown=True), "said to be unknown and yet has a figure"),
    ],
)
def test_figures_that_contradict(wrong, why):
    assert why in refused(memories=[Memory("m", "hbm", rate=wrong)])


def test_more_that_is_refused():
    ends = [Memory("a", "dram", rate=rate(90.0)), Memory("b", "hbm", rate=rate(900.0))]
    bus = Link("bus", "a", "b", rate(25.0), rate(20.0), half_duplex=True)
    assert "bus: half duplex is one rate that both directions share" in refused(memories=ends, links=[bus])
    late = link("l", "a", "b", latency=(2e-6, 1e-6))
    assert "l: latency is [2e-06, 1e-06] s." in refused(memories=ends, links=[late])
    slow = link("l", "a", "b", latency=(1e-6, 3600.0))
    assert "l: latency 60 min is longer than any link's, 1 s." in refused(memories=ends, links=[slow])
    large = Memory("c", "hbm", capacity=2**30, rate=rate(900.0), cache=2**31)
    assert "c: cache 2.15 GB (2.00 GiB) is more than the memory holds" in refused(memories=[large])
    assert "a: a switch and a memory share this name" in refused(memories=ends, switches=[Switch("a")])
    assert "the topology has no memory" in refused()
    assert 'at "b": it is a memory' in refused(memories=[ends[1], replace(ends[0], at="b")])
    twins = [link("l", "a", "b.x"), link("l.b", "a", "x")]
    nodes = [ends[0], Memory("b.x", "hbm", rate=rate(900.0)), Memory("x", "hbm", rate=rate(900.0))]
    assert "l.b.x: two resources would have this name" in refused(memories=nodes, links=twins)


def test_a_link_of_a_range_may_hold_a_point():
    parts = desktop()
    parts["links"][0] = link("pcie.0", "socket0", "hbm0")
    parts["limits"] = [Limit("root", ("pcie.0",), rate(None, 40.0)), Limit("down", ("pcie.0.hbm0",), rate(30.0))]
    assert {"root", "down"} < set(uses(Topology.build(**parts).route("dram0", "hbm0"))[0])


# The graph, and values that stay as they are


def test_graph_is_frozen_and_whole():
    import networkx

    topology = Topology.build(**two_sockets())
    graph = topology.graph
    assert isinstance(graph, networkx.MultiDiGraph) and networkx.is_frozen(graph)
    assert graph is topology.graph
    assert set(graph) == {"hbm0", "dram0", "dram1", "ssd0", "socket0", "socket1"}
    assert graph.nodes["hbm0"]["node"] == topology.memories["hbm0"]
    assert graph.edges["socket0", "hbm0", "pcie0"]["direction"] == "pcie0.hbm0"
    assert graph.edges["hbm0", "socket0", "pcie0"]["link"] is topology.links["pcie0"]
    assert graph.edges["dram1", "socket1", "at"]["link"] is None
    assert networkx.is_strongly_connected(graph)


def test_networkx_loads_only_for_the_graph():
    code = """
import sys
from offload.topology import Memory, Topology
topology = Topology.build(memories=[Memory("m", "dram")])
topology.reachable("m"), topology.resources
assert not {"networkx", "numpy"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_topologies_are_values():
    topology = Topology.build(name="box", **switched_pair())
    assert topology == Topology.build(name="box", **switched_pair())
    again = pickle.loads(pickle.dumps(topology))
    assert again == topology and again.route("hbm0", "hbm1") == topology.route("hbm0", "hbm1")
    with pytest.raises(AttributeError):
        topology.name = "other"
    with pytest.raises(TypeError):
        topology.memories["x"] = hbm(9)


# Laws


@st.composite
def servers(draw) -> dict[str, list]:
    """Small servers of every sort: sockets, switches, GPUs with and without peers, drives, parallel links."""
    switches = [Switch(f"socket{n}") for n in range(draw(st.integers(1, 3)))]
    memories = [dram(n) for n in range(draw(st.integers(0, len(switches))))]
    gpus = range(draw(st.integers(1, 3)))
    memories += [hbm(n) for n in gpus] + [ssd(n) for n in range(draw(st.integers(0, 2)))]
    options = st.fixed_dictionaries(
        {"peer_to_peer": st.sampled_from([None, True, False]), "direct_storage": st.booleans()}
    )
    processors = [gpu(n, **draw(options)) for n in gpus]
    nodes = [part.name for part in (*memories, *switches)]
    pairs = st.tuples(st.sampled_from(nodes), st.sampled_from(nodes)).filter(lambda pair: pair[0] != pair[1])
    ends = draw(st.lists(pairs, min_size=1, max_size=9))
    links = [
        link(f"l{n}", *pair, draw(st.sampled_from([8.0, 16.0, 32.0])), draw(st.sampled_from(["pcie", "nvlink"])))
        for n, pair in enumerate(ends)
    ]
    limits = [Limit("cap", ("l0", f"l{len(links) - 1}"), rate(20.0))]
    return {"memories": memories, "processors": processors, "switches": switches, "links": links, "limits": limits}


def routes(topology: Topology) -> dict[tuple[str, str], object]:
    found = {}
    for source in topology.memories:
        for destination in topology.memories:
            if source != destination:
                try:
                    found[source, destination] = topology.route(source, destination)
                except RouteError:
                    pass
    return found


@settings(max_examples=150, deadline=None)
@given(servers(), st.randoms(use_true_random=False))
def test_the_order_of_the_parts_changes_nothing(parts, order: random.Random):
    shuffled = {key: order.sample(values, len(values)) for key, values in parts.items()}
    one, other = Topology.build(**parts), Topology.build(**shuffled)
    assert one == other
    assert routes(one) == routes(other)
    assert dict(one.resources) == dict(other.resources)


@settings(max_examples=150, deadline=None)
@given(servers())
def test_routes_keep_the_rules(parts):
    topology = Topology.build(**parts)
    found = routes(topology)
    for source in topology.memories:
        assert topology.reachable(source) == tuple(sorted(to for start, to in found if start == source))
    for (source, destination), route in found.items():
        assert (route.stages[0].source, route.stages[-1].destination) == (source, destination)
        for stage, after in zip(route.stages, route.stages[1:], strict=False):
            assert stage.destination == after.source
        for name in route.staged_in:
            assert topology.memories[name].kind == "dram"
        for stage in route.stages:
            assert not set(stage.way) & set(topology.memories), "memories are never cut through"
            assert all(name in topology.resources and 0 <= least <= expected for name, least, expected in stage.uses)
            kinds = {topology.memories[end].kind for end in (stage.source, stage.destination)}
            used = {topology.links[name].technology for name in stage.links}
            if "dram" not in kinds and "pcie" in used:
                pairs = [p for p in topology.processors.values() if p.memory in (stage.source, stage.destination)]
                assert all(p.direct_storage if "nvme" in kinds else p.peer_to_peer for p in pairs)
                assert kinds != {"nvme"}


@settings(max_examples=150, deadline=None)
@given(servers())
def test_best_of_all_ways(parts):
    """Against every simple path: fewest links, then the widest, then the names along it; staged ones over each host."""
    import networkx

    topology = Topology.build(**parts)

    def ways(source: str, destination: str) -> list[tuple]:
        others = [name for name in topology.memories if name not in (source, destination)]
        graph = networkx.MultiDiGraph(topology.graph)
        graph.remove_nodes_from(others)
        found = []
        for path in networkx.all_simple_edge_paths(graph, source, destination):
            links = [(graph.edges[edge]["link"], edge[1]) for edge in path]
            widths = [link.forward.peak for link, _ in links if link is not None]
            names = [(link.name if link else "", end) for link, end in links]
            found.append((len(widths), len(path) - len(widths), min(widths, default=float("inf")), names))
        return found

    for (source, destination), route in routes(topology).items():
        if topology.memories[source].kind == "dram" and not route.staged_in:
            length, _, _, names = min(ways(source, destination), key=lambda way: (*way[:2], -way[2], way[3]))
            assert [name for name, _ in names if name] == list(route.links) and length == len(route.links)
        elif len(route.staged_in) == 1:
            hosts = [name for name, memory in topology.memories.items() if memory.kind == "dram"]
            both = [(one[0] + two[0], one[1] + two[1], min(one[2], two[2]), one[3] + two[3])
                    for host in hosts if host not in (source, destination)
                    for one in ways(source, host) for two in ways(host, destination)]  # fmt: skip
            names = min(both, key=lambda way: (*way[:2], -way[2], way[3]))[3]
            assert [name for name, _ in names if name] == list(route.links)


def test_ten_thousand_nodes():
    """A tree of switches with a GPU at every leaf, two sockets' memory at the root; no search visits all pairs."""
    count = 5000
    memories, processors, switches, links = [dram(0)], [cpu(0)], [Switch("socket0")], []
    for n in range(count):
        parent = "socket0" if n == 0 else f"s{(n - 1) // 2}"
        switches.append(Switch(f"s{n}", "pcie_switch"))
        links += [link(f"up{n}", parent, f"s{n}"), link(f"p{n}", f"s{n}", f"hbm{n}")]
        memories.append(hbm(n))
        processors.append(gpu(n))
    started = time.process_time()
    topology = Topology.build(memories=memories, processors=processors, switches=switches, links=links)
    route = topology.route("hbm4999", "hbm4000")
    assert route.staged_in == ("dram0",)
    assert topology.nearest_processor("dram0") == "cpu0"
    assert len(topology.reachable("hbm0")) == count
    assert time.process_time() - started < 5


def test_a_chain_of_ten_thousand_switches():
    count = 10_000
    topology = Topology.build(
        memories=[Memory("a", "dram", rate=rate(90.0)), Memory("b", "hbm", rate=rate(900.0))],
        switches=[Switch(f"s{n}") for n in range(count)],
        links=[link("first", "a", "s0"), *(link(f"l{n}", f"s{n}", f"s{n + 1}") for n in range(count - 1)),
               link("last", f"s{count - 1}", "b")],
    )  # fmt: skip
    assert len(topology.route("a", "b").links) == count + 1
