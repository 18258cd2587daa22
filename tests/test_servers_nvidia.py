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
        sustained = resource.sustained_at("pinned")
        rate = resource.peak if grade == "peak" else sustained and sustained.value
        if rate is not None:
            rates[name] = rate
    uses = [loads(topology.route(source, destination)) for source, destination in pairs]
    known = [{name: use for name, use in one.items() if name in rates} for one in uses]
    return load_bound(rates, [(size, one) for one in known]).seconds


def gpus(topology: Topology) -> list[str]:
    return [name for name, processor in topology.processors.items() if processor.kind == "gpu"]


def uplinks(topology: Topology, gpu: int) -> set[str]:
    """Uplinks of PCIe switches on the way from the memory of socket 0 to a GPU."""
    return {name for name in loads(topology.route("dram0", f"hbm{gpu}")) if name.startswith("up") and name[2].isdigit()}


# Server, GPUs, GPU memory [B], sockets, DRAM of each [B], its peak [B/s], the GPU's host link [B/s], drives of data
# by name prefix and in number, capacity of one [B].
COUNTS = [
    ("dgx-a100", 8, 81203 * MIB, 2, 1024 * GIB, 8 * 3200e6 * 8, GEN4, 8, 3.84 * TB),
    ("aws-p4d-24xlarge", 8, 40550 * MIB, 2, 576 * GIB, 6 * 2933e6 * 8, GEN3, 8, TB),
    ("dgx-h200", 8, 143771 * MIB, 2, 1024 * GIB, 8 * 4400e6 * 8, GEN5, 8, 3.84 * TB),
    ("dgx1-v100", 8, 32461 * MIB, 2, 256 * GIB, 4 * 2400e6 * 8, GEN3, 4, 1.92 * TB),
    ("dgx-b200", 8, 182630 * MIB, 2, 1024 * GIB, 8 * 5600e6 * 8, GEN5, 8, 3.84 * TB),
    ("hgx-a100-4gpu", 4, 40550 * MIB, 1, 512 * GIB, 8 * 3200e6 * 8, GEN4, 2, 1.6 * TB),
    ("azure-nd-h100-v5", 8, 81559 * MIB, 2, 950 * GIB, 8 * 4800e6 * 8, GEN5, 8, 3.5 * TB),
    ("aws-p5-48xlarge", 8, 81559 * MIB, 2, 1024 * GIB, 8 * 3200e6 * 8, GEN4, 8, 3.84 * TB),
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


SWITCHED = [
    ("dgx-a100", 12 * 25e9), ("aws-p4d-24xlarge", 12 * 25e9), ("dgx-h200", 18 * 25e9),
    ("dgx-b200", 18 * 50e9), ("azure-nd-h100-v5", 18 * 25e9), ("aws-p5-48xlarge", 18 * 25e9),
]  # fmt: skip


@pytest.mark.parametrize(("name", "port"), SWITCHED)
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


@pytest.mark.parametrize("name", ["dgx-a100", "dgx-b200", "aws-p5-48xlarge"])
def test_uplinks_in_dispute(name):
    """The floor has one x16 uplink for each GPU, which cannot be exceeded; what is expected is one for two."""
    server = load_topology(name)
    assert uplinks(server, 0) == uplinks(server, 1) == {"up0.sw0"} and uplinks(server, 2) == {"up1.sw1"}
    one, both = (("dram0", "hbm0"),), (("dram0", "hbm0"), ("dram0", "hbm1"))
    assert seconds(server, *both) == pytest.approx(seconds(server, *one), rel=2e-4)
    expected = seconds(server, *one, grade="sustained")
    assert seconds(server, *both, grade="sustained") == pytest.approx(2 * expected)


@pytest.mark.parametrize("name", ["dgx1-v100", "aws-p4d-24xlarge"])
def test_two_gpus_behind_one_uplink_halve(name):
    server = load_topology(name)
    one = seconds(server, ("dram0", "hbm0"))
    assert one == pytest.approx(1e10 / GEN3)
    for gpu in range(8):
        switch = gpu // 2
        assert uplinks(server, gpu) == {f"up{switch}.sw{switch}"}
        assert server.resources[f"up{switch}.sw{switch}"].peak == pytest.approx(GEN3)
    assert seconds(server, ("dram0", "hbm0"), ("dram0", "hbm1")) == pytest.approx(2 * one)
    assert seconds(server, ("hbm0", "dram0"), ("hbm1", "dram0")) == pytest.approx(2 * one)
    assert seconds(server, ("dram0", "hbm0"), ("dram0", "hbm2")) == pytest.approx(one)
    expected = seconds(server, ("dram0", "hbm0"), grade="sustained")
    assert seconds(server, ("dram0", "hbm0"), ("dram0", "hbm1"), grade="sustained") == pytest.approx(2 * expected)
    # All eight, each from its own socket: four uplinks carry what eight links could.
    everyone = [(f"dram{gpu // 4}", f"hbm{gpu}") for gpu in range(8)]
    assert 8 * 1e10 / seconds(server, *everyone) == pytest.approx(4 * GEN3)


def test_pairs_of_the_p4d_leave_their_uplinks_alone():
    server = load_topology("aws-p4d-24xlarge")
    for one, other in ((0, 1), (0, 2), (0, 7)):
        assert not [name for name in loads(server.route(f"hbm{one}", f"hbm{other}")) if name.startswith(("up", "pcie"))]
    # A drive below the same switch reaches the GPU past the uplink too.
    way = loads(server.route("ssd0", "hbm0"))
    assert way == {"ssd0.read": 1.0, "nvme0.sw0": 1.0, "pcie0.hbm0": 1.0, "hbm0": 1.0}


# Links between the GPUs of a DGX-1, rows and columns by GPU, as its matrix shows them.
MESH = ["X1122000", "1X210200", "12X20010", "212X0001", "2000X112", "02001X21", "001012X2", "0001212X"]


def test_the_mesh_of_a_dgx1():
    server = load_topology("dgx1-v100")
    assert sum(link.name.startswith("nv") for link in server.links.values()) == 16
    for one in range(8):
        assert sum(int(links) for links in MESH[one] if links != "X") == 6
        for other in range(8):
            assert MESH[one][other] == MESH[other][one]
            if MESH[one][other] not in "X0":
                low, high = sorted((one, other))
                way = loads(server.route(f"hbm{one}", f"hbm{other}"))
                link = f"nv{low}{high}.hbm{other}"
                assert way == {f"hbm{one}": 1.0, link: 1.0, f"hbm{other}": 1.0}
                assert server.resources[link].peak == int(MESH[one][other]) * 25e9


def test_pairs_of_a_dgx1_without_nvlink_go_over_pcie():
    """GPUs 0 and 7 are joined by no link: up to one socket, over QPI, down from the other."""
    way = loads(load_topology("dgx1-v100").route("hbm0", "hbm7"))
    for name in ("pcie0.sw0", "up0.socket0", "qpi0.socket1", "up3.sw3", "pcie7.hbm7"):
        assert way[name] == 1.0
    assert not [name for name in way if name.startswith("nv")]


@pytest.mark.parametrize(("name", "dram"), [("dgx-h200", 281.6e9), ("azure-nd-h100-v5", 307.2e9)])
def test_gpus_with_an_uplink_each(name, dram):
    server = load_topology(name)
    one = seconds(server, ("dram0", "hbm0"))
    assert one == pytest.approx(1e10 / GEN5)
    assert seconds(server, ("dram0", "hbm0"), ("dram0", "hbm1")) == pytest.approx(one)
    # All eight from one socket: its DRAM is the bound.
    assert seconds(server, *(("dram0", f"hbm{gpu}") for gpu in range(8))) == pytest.approx(8 * 1e10 / dram)


def test_four_a100_share_a_link_by_pair_and_nothing_else():
    server = load_topology("hgx-a100-4gpu")
    pairs = [(one, other) for one in range(4) for other in range(one + 1, 4)]
    for one, other in pairs:
        assert loads(server.route(f"hbm{one}", f"hbm{other}")) == {
            f"hbm{one}": 1.0, f"nv{one}{other}.hbm{other}": 1.0, f"hbm{other}": 1.0,
        }  # fmt: skip
    one = seconds(server, ("hbm0", "hbm1"))
    assert one == pytest.approx(1e10 / 100e9)
    assert seconds(server, *((f"hbm{one}", f"hbm{other}") for one, other in pairs)) == pytest.approx(one)
    # Each GPU has a host link of its own; the four of them are 126 GB/s, less than the DRAM.
    everyone = seconds(server, *(("dram0", f"hbm{gpu}") for gpu in range(4)))
    assert everyone == pytest.approx(seconds(server, ("dram0", "hbm0"))) == pytest.approx(1e10 / GEN4)


# Sustained rates of large pinned copies to a GPU and back [B/s], and of its NVLink to the switch.
MEASURED = [
    ("dgx1-v100", 12.35e9, 12.9e9, None),
    ("dgx-a100", 26e9, 25.5e9, 276.3e9),
    ("aws-p4d-24xlarge", 12.3e9, 12.3e9, 276.3e9),
    ("hgx-a100-4gpu", 26e9, 25.5e9, None),
    ("azure-nd-h100-v5", 56.2e9, 57e9, 376e9),
    ("aws-p5-48xlarge", 26e9, 26e9, 376e9),
    ("dgx-h200", 55.43e9, 55.06e9, 376e9),
    ("dgx-b200", 55.5e9, 55.5e9, 770e9),
]


@pytest.mark.parametrize(("name", "down", "back", "nvlink"), MEASURED)
def test_sustained_rates(name, down, back, nvlink):
    server = load_topology(name)
    link = server.links["pcie0"]
    assert link.forward.sustained["pinned"].value == down and link.backward.sustained["pinned"].value == back
    if nvlink is not None:
        assert server.resources["nvlink0.nvswitch0"].sustained_at("").value == nvlink
    told = "\n".join(server.assumptions)
    assert "contradiction" not in told and "assumed equal" not in told


@pytest.mark.parametrize(
    ("name", "link", "peak"),
    [
        ("dgx1-v100", "qpi0", 2 * 9.6e9 * 16 / 8),
        ("dgx-a100", "xgmi0", 4 * 18e9 * 16 / 8),
        ("aws-p4d-24xlarge", "upi0", 3 * 10.4e9 * 16 / 8),
        ("azure-nd-h100-v5", "upi0", 4 * 16e9 * 24 / 8),
        ("aws-p5-48xlarge", "xgmi0", 4 * 18e9 * 16 / 8),
        ("dgx-h200", "upi0", 4 * 16e9 * 24 / 8),
        ("dgx-b200", "upi0", 4 * 20e9 * 24 / 8),
    ],
)
def test_the_far_socket(name, link, peak):
    """A GPU of the second socket reads the first one's memory over the link between them, past its own DRAM."""
    server = load_topology(name)
    way = loads(server.route("dram0", "hbm7"))
    assert way[f"{link}.socket1"] == 1.0 and "dram1" not in way
    assert server.resources[f"{link}.socket1"].peak == pytest.approx(peak)
