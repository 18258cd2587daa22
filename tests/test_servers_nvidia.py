"""Shipped servers with NVIDIA GPUs of data centres: what they hold, how fast it is, and what their ways share."""

from __future__ import annotations

import pytest

from offload.bounds import load_bound
from offload.documents import load_topology
from offload.topology import Route, Topology

GEN3, GEN4, GEN5 = (gigatransfers * 1e9 * 16 * 128 / 130 / 8 for gigatransfers in (8, 16, 32))
GIB, MIB, TB = 2**30, 2**20, 10**12


def loads(route: Route) -> dict[str, float]:
    """Expected load of each resource for a byte, over all stages."""
    found: dict[str, float] = {}
    for stage in route.stages:
        for resource, _, expected in stage.uses:
            found[resource] = found.get(resource, 0.0) + expected
    return found


def seconds(topology: Topology, *pairs: tuple[str, str], size: int = 10**10, grade: str = "peak") -> float:
    """The load bound where each of `pairs` (from, to) moves `size` bytes at once [s], by peaks or sustained rates."""
    rates = {}
    for name, resource in topology.resources.items():
        rate = resource.peak if grade == "peak" else resource.sustained_at("pinned").value
        if rate is not None:
            rates[name] = rate
    uses = [loads(topology.route(source, destination)) for source, destination in pairs]
    return load_bound(rates, [(size, {name: use for name, use in one.items() if name in rates}) for one in uses]).seconds


def gpus(topology: Topology) -> list[str]:
    return [name for name, processor in topology.processors.items() if processor.kind == "gpu"]


def uplinks(topology: Topology, gpu: int) -> set[str]:
    """Uplinks of PCIe switches on the way from the memory of socket 0 to a GPU."""
    return {name for name in loads(topology.route("dram0", f"hbm{gpu}")) if name.startswith("up") and name[2].isdigit()}


# Server, GPUs, GPU memory [B], sockets, DRAM of each [B], its peak [B/s], the GPU's host link [B/s], drives of data
# by name prefix and in number, capacity of one [B].
COUNTS = [
    ("dgx-a100", 8, 81203 * MIB, 2, 1024 * GIB, 8 * 3200e6 * 8, GEN4, 8, 3.84 * TB),
]


@pytest.mark.parametrize(("name", "number", "hbm", "sockets", "dram", "rate", "link", "drives", "drive"), COUNTS)
def test_what_a_server_holds(name, number, hbm, sockets, dram, rate, link, drives, drive):
    server = load_topology(name)
    assert len(gpus(server)) == number
    assert len([one for one in server.switches.values() if one.kind == "socket"]) == sockets
    for gpu in range(number):
        assert server.memories[f"hbm{gpu}"].capacity == hbm
        assert server.resources[f"pcie{gpu}.hbm{gpu}"].peak == pytest.approx(link)
        assert loads(server.route("dram0", f"hbm{gpu}"))[f"pcie{gpu}.hbm{gpu}"] == 1.0
    for socket in range(sockets):
        assert server.memories[f"dram{socket}"].capacity == dram
        assert server.resources[f"dram{socket}"].peak == rate
    sets = [memory for memory in server.memories.values() if memory.name.startswith("ssd")]
    assert sum(memory.count for memory in sets) == drives
    assert all(memory.capacity == drive for memory in sets)


@pytest.mark.parametrize(("name", "port"), [("dgx-a100", 12 * 25e9)])
def test_pairs_on_nvswitch_share_nothing(name, port):
    """Each pair has all the links of its GPUs, and two pairs at once take as long as one."""
    server = load_topology(name)
    first, second = server.route("hbm0", "hbm1"), server.route("hbm2", "hbm3")
    assert loads(first) == {"hbm0": 1.0, "nvlink0.nvswitch0": 1.0, "nvlink1.hbm1": 1.0, "hbm1": 1.0}
    assert not loads(first).keys() & loads(second).keys()
    assert server.resources["nvlink0.nvswitch0"].peak == port
    one = seconds(server, ("hbm0", "hbm1"))
    assert one == pytest.approx(1e10 / port)
    assert seconds(server, *((f"hbm{gpu}", f"hbm{gpu + 1}") for gpu in (0, 2, 4, 6))) == pytest.approx(one)
    # Only a GPU's own port is shared.
    assert seconds(server, ("hbm0", "hbm1"), ("hbm2", "hbm1")) == pytest.approx(2 * one)


@pytest.mark.parametrize("name", ["dgx-a100"])
def test_uplinks_in_dispute(name):
    """The floor has one x16 uplink for each GPU, which cannot be exceeded; what is expected is one for two."""
    server = load_topology(name)
    assert uplinks(server, 0) == uplinks(server, 1) == {"up0.sw0"} and uplinks(server, 2) == {"up1.sw1"}
    one, both = (("dram0", "hbm0"),), (("dram0", "hbm0"), ("dram0", "hbm1"))
    assert seconds(server, *both) == pytest.approx(seconds(server, *one), rel=2e-4)
    expected = seconds(server, *one, grade="sustained")
    assert seconds(server, *both, grade="sustained") == pytest.approx(2 * expected)
