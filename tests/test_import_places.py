"""Where an import puts devices: each under its own number, at its own node, whatever the order in the outputs."""

from __future__ import annotations

import json
from itertools import permutations

import pytest

from offload import cli
from offload.importing import import_outputs
from offload.importing.gpus import part_of
from offload.readers.tools.finding import Device, Finding, Joint, Machine, Measured, Near, Numa, PciePort
from offload.topology import Topology

GIB = 2**30
NODES = (Numa(0, GIB, 8, 0), Numa(1, GIB, 8, 1))


def shape(*devices: Device, **more: object) -> Finding:
    return Finding("tool", Machine(NODES, devices, **more), file="box.txt")


def ends(topology: Topology, link: str) -> tuple[str, str]:
    return topology.links[link].a, topology.links[link].b


GPUS = [Device(f"0000:0{number}:00.0", "gpu", number, numa=number // 2, size=(number + 1) * GIB) for number in range(3)]


@pytest.mark.parametrize("order", [*permutations(range(3))])
@pytest.mark.parametrize("told", [True, False])
def test_gpus_keep_their_numbers_whatever_the_order_of_the_file(order, told):
    gpus = [GPUS[place] if told else Device(GPUS[place].name, "gpu", None, numa=place // 2, size=(place + 1) * GIB)
            for place in order]  # fmt: skip
    joint = Joint(GPUS[0].name, GPUS[2].name, "nvlink", None, 20e9)
    rates = Finding("nvbandwidth", rates=(Measured("host", "gpu2", 7e9, "pinned"),), file="rates.txt")
    topology = import_outputs([shape(*gpus, joints=(joint,)), rates]).topology
    assert [topology.memories[f"hbm{number}"].capacity for number in range(3)] == [GIB, 2 * GIB, 3 * GIB]
    assert [ends(topology, f"pcie{number}")[0] for number in range(3)] == ["socket0", "socket0", "socket1"]
    assert ends(topology, "nvlink0_2") == ("hbm0", "hbm2")
    assert topology.links["pcie2"].forward.sustained["pinned"].value == 7e9


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_drives_and_nics_keep_their_numbers(order):
    drives = [Device(f"nvme{number}n1", "nvme", number, numa=number, size=number + 1) for number in order]
    nics = [Device(f"mlx5_{number}", "nic", number, numa=number) for number in order]
    topology = import_outputs([shape(*drives, *nics)]).topology
    assert [topology.memories[f"ssd{number}"].capacity for number in (0, 1)] == [1, 2]
    assert [ends(topology, f"nvme{number}") for number in (0, 1)] == [("ssd0", "socket0"), ("ssd1", "socket1")]
    assert [ends(topology, f"slot{number}") for number in (0, 1)] == [("socket0", "nic0"), ("socket1", "nic1")]


def near(relation: str, *pairs: tuple[str, str]) -> tuple[Near, ...]:
    return tuple(Near(first, second, relation) for first, second in pairs)


TWO = tuple(Device(f"gpu{number}", "gpu", number, numa=number) for number in (0, 1))
NIC = Device("nic0", "nic", 0)


@pytest.mark.parametrize(("nears", "socket"), [
    (near("PHB", ("gpu1", "nic0")) + near("SYS", ("gpu0", "nic0")), "socket1"),
    (near("NODE", ("nic0", "gpu1")) + near("SYS", ("gpu0", "nic0")), "socket1"),
    (near("PHB", ("gpu1", "nic0")) + near("NODE", ("gpu0", "nic0")), "socket1"),  # the host bridge tells more
    (near("NODE", ("gpu0", "nic0"), ("gpu1", "nic0")), None), (near("SYS", ("gpu0", "nic0"), ("gpu1", "nic0")), None),
])  # fmt: skip
def test_a_nic_of_no_told_node_is_where_its_relations_say(nears, socket):
    imported = import_outputs([shape(*TWO, NIC, nears=nears)])
    assert ends(imported.topology, "slot0")[0] == (socket or "socket0")
    said = [one for one in imported.assumed if one.startswith("nic0")]
    assert len(said) == 1 and ("hangs at NUMA node 1" if socket else "taken to hang at socket0") in said[0]


def test_a_told_node_is_kept_against_a_relation():
    nic = Device("nic0", "nic", 0, numa=0)
    imported = import_outputs([shape(*TWO, nic, nears=near("PHB", ("gpu1", "nic0")))])
    assert ends(imported.topology, "slot0")[0] == "socket0"


def test_links_to_processors_have_the_numbers_of_their_gpus():
    joints = tuple(Joint(gpu.name, f"numa{gpu.numa}", "nvlink", None, 40e9) for gpu in GPUS)
    topology = import_outputs([shape(*GPUS, joints=joints)]).topology
    assert {name: ends(topology, name) for name in topology.links if name.startswith("nvlink")} == {
        "nvlink0": ("hbm0", "socket0"), "nvlink1": ("hbm1", "socket0"), "nvlink2": ("hbm2", "socket1")}  # fmt: skip


def test_a_board_of_another_version_is_no_shipped_part():
    """The memory of a V100-SXM3 is faster than that of the SXM2 boards: their peak would be no floor of it."""
    assert part_of("Tesla V100-SXM2-32GB") == "v100-sxm2-32"
    assert part_of("Tesla V100-SXM3-32GB-H") is None and part_of("Tesla V100-SXM3-32GB") is None


@pytest.mark.parametrize("turn", [1, -1])
def test_a_kind_of_memory_that_one_output_tells_is_kept(turn):
    bare = Finding("numactl --hardware", Machine((Numa(0, GIB, 8), Numa(1, GIB, 0))), file="numactl.txt")
    kinds = Finding("hwloc", Machine((Numa(0, GIB, 8, 0), Numa(1, GIB, 0, 0, "hbm"))), file="box.xml")
    topology = import_outputs([bare, kinds][::turn]).topology
    assert {name: one.kind for name, one in topology.memories.items()} == {"dram0": "dram", "mem1": "hbm"}


def test_the_memory_of_a_gpu_is_no_host_memory():
    bare = Finding("numactl --hardware", Machine((Numa(0, GIB, 8), Numa(1, GIB, 0))), file="numactl.txt")
    gpu = Device("gpu0", "gpu", 0, numa=0, port=PciePort(5, 16))
    grace = Finding("topo -m", Machine((Numa(0), Numa(1, kind="gpu")), (gpu,)), file="t")
    assert list(import_outputs([bare, grace]).topology.memories) == ["dram0", "hbm0"]


def test_where_no_rate_is_known_no_time_is_told(tmp_path, monkeypatch, capsys):
    """Unknown never becomes a number: two GPUs of which a matrix of relations is all that is known."""
    monkeypatch.chdir(tmp_path)
    shape = Machine(devices=TWO, nears=near("PHB", ("gpu0", "gpu1")))
    imported = import_outputs([Finding("nvidia-smi topo -m", shape)])
    (tmp_path / "box.yaml").write_text(imported.text)
    words = ["step", "llama-3.1-8b:q8_0", "--on", "./box.yaml", "--compute", "gpu0"]
    assert cli.main(words) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "Nothing is proved" in told and "Nothing is known: no resource that this step loads" in told
    assert "nothing can be said of what overlap hides" in told and " = 0 s" not in told and ": 0 s" not in told
    assert cli.main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    for name in ("floor", "floor_sustained", "serial", "overlapped"):
        assert found[name]["seconds"] is None and found[name]["cold_seconds"] is None
    assert (found["overlapped"]["low"], found["overlapped"]["policy"]) == (None, "2 buffers")
