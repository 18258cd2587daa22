"""Shipped servers that clouds rent out, and two GH200 in one box: what they hold, how fast it is, what ways share."""

from __future__ import annotations

import pytest

from offload.bounds import load_bound
from offload.documents import load_topology, read_document
from offload.documents.parts_library import part_files, shipped_parts
from offload.topology import Route, Topology

GEN3, GEN4 = (gigatransfers * 1e9 * 16 * 128 / 130 / 8 for gigatransfers in (8, 16))
GIB, MIB, GB = 2**30, 2**20, 10**9


def loads(route: Route) -> dict[str, float]:
    """Expected load of each resource for a byte, over all stages."""
    found: dict[str, float] = {}
    for stage in route.stages:
        for resource, _, expected in stage.uses:
            found[resource] = found.get(resource, 0.0) + expected
    return found


def way(server: Topology, source: str, destination: str) -> dict[str, float]:
    return loads(server.route(source, destination))


def seconds(server: Topology, *pairs: tuple[str, str], size: int = 10**10, grade: str = "peak") -> float:
    """The load bound where each of `pairs` (from, to) moves `size` bytes at once [s], by peaks or sustained rates."""
    rates = {}
    for name, resource in server.resources.items():
        sustained = resource.sustained_at("pinned")
        rate = resource.peak if grade == "peak" else sustained and sustained.value
        if rate is not None:
            rates[name] = rate
    uses = [way(server, *pair) for pair in pairs]
    known = [{name: use for name, use in one.items() if name in rates} for one in uses]
    return load_bound(rates, [(size, one) for one in known]).seconds


def gpus(server: Topology) -> list[str]:
    return [name for name, processor in server.processors.items() if processor.kind == "gpu"]


def socket_of(server: Topology, gpu: int) -> int:
    """The socket whose memory reaches the GPU past no other socket."""
    near = [s for s in (0, 1) if not [n for n in way(server, f"dram{s}", f"hbm{gpu}") if n.startswith(BETWEEN)]]
    assert len(near) == 1
    return near[0]


BETWEEN = ("upi0", "qpi0", "xgmi0", "cpus0")  # links between the two sockets of a server


# Server, GPUs, GPU memory [B], its peak [B/s], DRAM of each of two sockets [B], its peak [B/s], the GPU's host link and
# that link's peak [B/s], capacity of all local drives [B].
COUNTS = [
    ("aws-p3-16xlarge", 8, 16179 * MIB, 900e9, 244 * GIB, 4 * 2400e6 * 8, "pcie", GEN3, None),
    ("azure-nd96-v4", 8, 40550 * MIB, 1555.2e9, 450 * GIB, 8 * 3200e6 * 8, "pcie", GEN4, 6000 * GIB),
    ("azure-nc96ads-a100-v4", 4, 81203 * MIB, 1935.4e9, 440 * GIB, 8 * 3200e6 * 8, "pcie", GEN4, 4 * 960 * GB),
    ("gcp-a2-highgpu-8g", 8, 40550 * MIB, 1555.2e9, 340 * GIB, 6 * 2933e6 * 8, "pcie", GEN3, 3000 * GIB),
    ("gh200-dual", 2, 97894 * MIB, 4022.8e9, 447 * GIB, 384e9, "c2c", 450e9, None),
]


@pytest.mark.parametrize(("name", "number", "hbm", "peak", "dram", "rate", "host", "link", "drives"), COUNTS)
def test_what_a_server_holds(name, number, hbm, peak, dram, rate, host, link, drives):
    server = load_topology(name)
    assert gpus(server) == [f"gpu{gpu}" for gpu in range(number)]
    assert len([one for one in server.switches.values() if one.kind == "socket"]) == 2
    for gpu in range(number):
        assert server.memories[f"hbm{gpu}"].capacity == hbm
        assert server.resources[f"hbm{gpu}"].peak == peak
        assert server.resources[f"{host}{gpu}.hbm{gpu}"].peak == pytest.approx(link)
        assert socket_of(server, gpu) == gpu // (number // 2)
        for socket in (0, 1):
            assert way(server, f"dram{socket}", f"hbm{gpu}")[f"{host}{gpu}.hbm{gpu}"] == 1.0
    for socket in (0, 1):
        assert server.memories[f"dram{socket}"].capacity == dram
        assert server.resources[f"dram{socket}"].peak == rate
    local = [memory for memory in server.memories.values() if memory.kind == "nvme"]
    assert (sum(memory.count * memory.capacity for memory in local) if local else None) == drives
    told = "\n".join(server.assumptions)
    assert "contradiction" not in told and "assumed equal" not in told


# Sustained rates of large pinned copies over a host link [B/s]: to the GPU, back.
MEASURED = [
    ("aws-p3-16xlarge", "pcie0", 12.35e9, 12.9e9),
    ("azure-nd96-v4", "pcie0", 26e9, 25.5e9),
    ("azure-nc96ads-a100-v4", "pcie0", 26e9, 25.5e9),
    ("gcp-a2-highgpu-8g", "pcie0", 12.3e9, 12.3e9),
    ("gh200-dual", "c2c0", 377e9, 297e9),
]


@pytest.mark.parametrize(("name", "link", "down", "back"), MEASURED)
def test_sustained_rates_of_the_host_link(name, link, down, back):
    server = load_topology(name)
    up = server.links[link].a
    assert server.resources[f"{link}.hbm0"].sustained_at("pinned").value == down
    assert server.resources[f"{link}.{up}"].sustained_at("pinned").value == back


@pytest.mark.parametrize(
    ("name", "link", "peak"),
    [
        ("aws-p3-16xlarge", "qpi0", 2 * 9.6e9 * 16 / 8),
        ("azure-nd96-v4", "xgmi0", 4 * 18e9 * 16 / 8),
        ("azure-nc96ads-a100-v4", "xgmi0", 4 * 18e9 * 16 / 8),
        ("gcp-a2-highgpu-8g", "upi0", 3 * 10.4e9 * 16 / 8),
    ],
)
def test_the_far_socket(name, link, peak):
    """A GPU of the second socket reads the first one's memory over the link between them, past its own DRAM."""
    server = load_topology(name)
    far = way(server, "dram0", f"hbm{len(gpus(server)) - 1}")
    assert far[f"{link}.socket1"] == 1.0 and far["dram0"] == 1.0 and "dram1" not in far
    assert server.resources[f"{link}.socket1"].peak == pytest.approx(peak)


# Links between the GPUs of the hybrid cube mesh, rows and columns by GPU.
MESH = ["X1122000", "1X210200", "12X20010", "212X0001", "2000X112", "02001X21", "001012X2", "0001212X"]


def test_the_mesh_of_a_p3():
    server = load_topology("aws-p3-16xlarge")
    assert sum(link.name.startswith("nv") for link in server.links.values()) == 16
    for one in range(8):
        for other in range(8):
            if MESH[one][other] not in "X0":
                low, high = sorted((one, other))
                link = f"nv{low}{high}.hbm{other}"
                assert way(server, f"hbm{one}", f"hbm{other}") == {f"hbm{one}": 1.0, link: 1.0, f"hbm{other}": 1.0}
                assert server.resources[link].peak == int(MESH[one][other]) * 25e9


def test_pairs_of_a_p3_without_nvlink_go_over_pcie():
    far = way(load_topology("aws-p3-16xlarge"), "hbm0", "hbm7")
    for name in ("pcie0.sw0", "up0.socket0", "qpi0.socket1", "up3.sw3", "pcie7.hbm7"):
        assert far[name] == 1.0
    assert not [name for name in far if name.startswith("nv")]


def test_remote_disks_reach_a_gpu_by_host_memory_only():
    disk = way(load_topology("aws-p3-16xlarge"), "ebs0", "hbm0")
    assert disk["dram0"] == 2.0, "written once and read once"


# Server, the lanes of PCIe 3 of a socket, and what one x16 port sustains to the device [B/s].
@pytest.mark.parametrize(
    ("name", "lanes", "port"), [("aws-p3-16xlarge", 40, 12.35e9), ("gcp-a2-highgpu-8g", 48, 12.3e9)]
)
def test_switches_that_no_guest_sees(name, lanes, port):
    """The floor has an x16 for each GPU within a socket's lanes; what is expected is one x16 for two GPUs."""
    server = load_topology(name)
    one = seconds(server, ("dram0", "hbm0"))
    assert one == pytest.approx(1e10 / GEN3)
    for pairs in ((("dram0", "hbm0"), ("dram0", "hbm1")), (("hbm0", "dram0"), ("hbm1", "dram0"))):
        assert seconds(server, *pairs) == pytest.approx(one, rel=2e-4)
    expected = seconds(server, ("dram0", "hbm0"), grade="sustained")
    assert expected == pytest.approx(1e10 / port)
    for gpu in range(0, 8, 2):
        dram = f"dram{gpu // 4}"
        both = (dram, f"hbm{gpu}"), (dram, f"hbm{gpu + 1}")
        assert seconds(server, *both, grade="sustained") == pytest.approx(2 * expected)
    apart = ("dram0", "hbm0"), ("dram0", "hbm2")
    assert seconds(server, *apart, grade="sustained") == pytest.approx(expected)
    # All four of a socket: no more than the socket's lanes, either way, and two ports of what is expected.
    four = [("dram0", f"hbm{gpu}") for gpu in range(4)]
    back = [(gpu, dram) for dram, gpu in four]
    for pairs in (four, back):
        assert 4 * 1e10 / seconds(server, *pairs) == pytest.approx(lanes * 8e9 * 128 / 130 / 8, rel=2e-4)
    assert 4 * 1e10 / seconds(server, *four, grade="sustained") == pytest.approx(2 * port)
    # All eight, each from its own socket: the two sockets do not share.
    everyone = [(f"dram{gpu // 4}", f"hbm{gpu}") for gpu in range(8)]
    assert seconds(server, *everyone) == pytest.approx(seconds(server, *four))


def test_two_gpus_of_the_nd96_share_an_uplink():
    """GPUs 2 and 3 at the first switch, 0 and 1 at the second, 6 and 7 at the third, 4 and 5 at the fourth."""
    server = load_topology("azure-nd96-v4")
    one = seconds(server, ("dram0", "hbm0"))
    assert one == pytest.approx(1e10 / GEN4)
    for gpu, switch in enumerate((1, 1, 0, 0, 3, 3, 2, 2)):
        dram = f"dram{gpu // 4}"
        assert {name for name in way(server, dram, f"hbm{gpu}") if name.startswith("up")} == {f"up{switch}.sw{switch}"}
        slot = server.links[f"slot{gpu}"]
        assert (slot.a, slot.b) == (f"sw{switch}", f"nic{gpu}")
        partner = f"hbm{gpu ^ 1}"
        assert seconds(server, (dram, f"hbm{gpu}"), (dram, partner)) == pytest.approx(2 * one)
        assert seconds(server, (f"hbm{gpu}", dram), (partner, dram)) == pytest.approx(2 * one)
    assert seconds(server, ("dram0", "hbm0"), ("dram0", "hbm2")) == pytest.approx(one)
    everyone = [(f"dram{gpu // 4}", f"hbm{gpu}") for gpu in range(8)]
    assert 8 * 1e10 / seconds(server, *everyone) == pytest.approx(4 * GEN4)


@pytest.mark.parametrize("name", ["azure-nd96-v4", "gcp-a2-highgpu-8g"])
def test_pairs_on_nvswitch_share_nothing(name):
    server = load_topology(name)
    first, second = way(server, "hbm0", "hbm1"), way(server, "hbm2", "hbm7")
    assert first == {"hbm0": 1.0, "nvlink0.nvswitch0": 1.0, "nvlink1.hbm1": 1.0, "hbm1": 1.0}
    assert not first.keys() & second.keys()
    one = seconds(server, ("hbm0", "hbm1"))
    assert one == pytest.approx(1e10 / (12 * 25e9))
    assert seconds(server, ("hbm0", "hbm1"), ("hbm2", "hbm7")) == pytest.approx(one)
    assert seconds(server, ("hbm0", "hbm1"), ("hbm2", "hbm1")) == pytest.approx(2 * one), "a GPU's own port is shared"


def test_cards_of_the_nc96_have_bridges_in_pairs_and_a_slot_each():
    server = load_topology("azure-nc96ads-a100-v4")
    for one, other in ((0, 1), (2, 3)):
        assert way(server, f"hbm{one}", f"hbm{other}") == {
            f"hbm{one}": 1.0, f"nv{one}{other}.hbm{other}": 1.0, f"hbm{other}": 1.0,
        }  # fmt: skip
        assert server.resources[f"nv{one}{other}.hbm{other}"].peak == 12 * 25e9
    # Without a bridge: over both slots and, from socket to socket, xGMI.
    across = way(server, "hbm1", "hbm2")
    assert {"pcie1.socket0", "xgmi0.socket1", "pcie2.hbm2"} <= across.keys() and "dram0" not in across
    one = seconds(server, ("dram0", "hbm0"))
    assert one == pytest.approx(1e10 / GEN4)
    assert seconds(server, ("dram0", "hbm0"), ("dram0", "hbm1")) == pytest.approx(one)
    assert seconds(server, *((f"dram{gpu // 2}", f"hbm{gpu}") for gpu in range(4))) == pytest.approx(one)


def test_four_drives_of_the_nc96_give_what_they_gave():
    server = load_topology("azure-nc96ads-a100-v4")
    assert server.memories["ssd0"].count * server.memories["ssd0"].read.rated == 13e9
    read, write = server.resources["ssd0.read"], server.resources["ssd0.write"]
    assert (read.sustained_at("").value, write.sustained_at("").value) == (10e9, 5e9)
    direct = way(server, "ssd0", "hbm0")
    assert direct["ssd0.read"] == direct["pcie0.hbm0"] == 1.0 and "dram0" not in direct


def test_two_gh200_share_the_link_between_their_cpus_and_no_more():
    server = load_topology("gh200-dual")
    own = seconds(server, ("dram0", "hbm0"), grade="sustained")
    assert own == pytest.approx(1e10 / 348e9), "LPDDR5X, slower than C2C"
    assert seconds(server, ("dram0", "hbm0"), ("dram1", "hbm1"), grade="sustained") == pytest.approx(own)
    far = way(server, "dram0", "hbm1")
    assert far["cpus0.grace1"] == far["c2c1.hbm1"] == far["dram0"] == 1.0 and "dram1" not in far
    assert seconds(server, ("dram0", "hbm1"), grade="sustained") == pytest.approx(1e10 / 133e9)
    # Its peak is not known, so floors leave it out: they claim no more than the memory that is read.
    assert server.resources["cpus0.grace1"].peak is None
    assert seconds(server, ("dram0", "hbm1")) == pytest.approx(1e10 / 384e9)


def test_copies_between_two_gh200_are_staged_in_host_memory():
    server = load_topology("gh200-dual")
    assert not [one for one in server.links.values() if {one.a, one.b} == {"hbm0", "hbm1"}]
    between = server.route("hbm0", "hbm1")
    assert len(between.stages) == 2
    assert loads(between)["dram0"] == 2.0, "written once and read once"


def test_parts_of_rented_machines_have_a_name_and_say_how_sure_they_are():
    """No other file of parts has one of that name in the same section."""
    (ours,) = [read_document(path).value for path in part_files() if path.name == "cloud-a.yaml"]
    for section, parts in ours.items():
        for name, keys in parts.items():
            assert shipped_parts(section).count(name) == 1, name
            assert any(sure in keys["source"] for sure in ("(found", "(derived", "(memory")), name
