"""Topologies: where bytes go, what they load there, what processors read in place, and where no route is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offload.errors import RouteError, TopologyError
from offload.topology import (
    Memory,
    Processor,
    Switch,
    Topology,
    describe_route,
)
from tests.topology_parts import (
    ONE,
    STAGED,
    cpu,
    desktop,
    dram,
    gpu,
    hbm,
    link,
    rate,
    ssd,
    switched_pair,
    two_sockets,
    uses,
)

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
