"""What lspci, numactl, lsblk and nvme list tell of a host: PCI devices and links, NUMA nodes, drives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload.readers.tools import drives, lspci, numactl
from offload.readers.tools.finding import PciePort
from offload.readers.tools.text import clean
from tests.shape_outputs import SAMPLES, damage, dirty, facts, finding, fixture, refusal, sample, survives

needs_samples = pytest.mark.skipif(not SAMPLES.is_dir(), reason="the larger collection of outputs is not here")
FIXTURES = {
    lspci: ("lspci_switch.txt",),
    numactl: ("numactl_gaps.txt",),
    drives: ("lsblk_raid.json", "nvme_old_spelling.json", "nvme_nested.json"),
}
ALL = [(module, name) for module, names in FIXTURES.items() for name in names]
MIB = 2**20


@needs_samples
def test_every_sample_of_these_tools_has_its_expectations():
    named = {path.name for folder in ("lspci", "numactl", "lsblk_nvme") for path in (SAMPLES / folder).iterdir()}
    assert named == {
        "cx7_gen5_vvv_cut.txt", "gpu_link_downgraded_cut.txt", "lspci_mmv_vm.txt", "mi350_grep_lnksta.txt",
        "aurora_spr_hbm_4node.txt", "small_vm.txt", "two_node.txt", "lsblk_small_vm.json", "lsblk_ubuntu18_table.txt",
        "nvme_list_v1_two_drives.json", "nvme_list_v2_nested_negative_size.json",
    }  # fmt: skip


# --- lspci ---


@needs_samples
def test_a_nic_of_lspci_vvv():
    found = finding(lspci, sample("lspci/cx7_gen5_vvv_cut.txt"))
    (nic,) = found.machine.devices
    assert (nic.name, nic.kind, nic.numa, nic.port, nic.parent) == ("0000:03:00.0", "nic", 0, PciePort(5, 16), None)
    assert nic.model == "Mellanox Technologies MT2910 Family [ConnectX-7]"
    assert facts(found)["MaxPayload of 0000:03:00.0"] == 256  # not the 512 of DevCap
    assert facts(found)["MaxReadReq of 0000:03:00.0"] == 512
    assert not found.odd and "0000000000000" not in str(found)


@needs_samples
def test_link_lines_without_their_devices_are_facts():
    idle = finding(lspci, sample("lspci/gpu_link_downgraded_cut.txt"))
    assert [(fact.what, fact.value, fact.line) for fact in idle.facts] == [
        ("a PCIe link, at most", "PCIe 3 x16", 1), ("a PCIe link, now", "PCIe 1 x16", 5),
    ]  # fmt: skip
    grep = finding(lspci, sample("lspci/mi350_grep_lnksta.txt"))
    assert [(fact.what, fact.value, fact.line) for fact in grep.facts] == [
        ("a PCIe link, now", "PCIe 5 x16", 2), ("a PCIe link, now", "PCIe 5 x16", 5),
    ]  # fmt: skip
    for found in (idle, grep):
        assert found.machine is None and any("sudo lspci -vvv" in told for told in found.unknown)


@needs_samples
def test_lspci_mmv_names_devices_and_asks_for_the_links():
    found = finding(lspci, sample("lspci/lspci_mmv_vm.txt"))
    (nic,) = found.machine.devices
    assert (nic.name, nic.kind, nic.numa, nic.port) == ("0000:02:01.0", "nic", None, None)
    assert nic.model == "Intel Corporation 82545EM Gigabit Ethernet Controller (Copper)"
    assert any("sudo lspci -vvv" in told for told in found.unknown)


def devices():
    return {device.name: device for device in finding(lspci, fixture("lspci_switch.txt")).machine.devices}


def test_a_link_is_the_lesser_of_its_two_ends_and_idling_is_kept_apart():
    switch, gpu, drive, nic = devices().values()
    assert (switch.kind, switch.port, switch.parent) == ("pcie_switch", PciePort(4, 16), None)  # the root port is Gen4
    assert (gpu.kind, gpu.port) == ("gpu", PciePort(5, 16, now=(1, 16)))
    assert (drive.kind, drive.port) == ("nvme", PciePort(4, 2, now=(4, 2)))
    assert nic.port is None


def test_devices_below_a_switch_name_its_upstream_port():
    found = devices()
    assert list(found) == ["0000:01:00.0", "0000:03:00.0", "0000:04:00.0", "0001:21:00.0"]
    assert found["0000:03:00.0"].parent == found["0000:04:00.0"].parent == "0000:01:00.0"
    assert [found[name].numa for name in found] == [0, 0, None, 1]
    assert found["0000:03:00.0"].model == "NVIDIA Corporation GH100 [H100 PCIe]"


def test_lspci_says_what_is_odd_and_unknown():
    found = finding(lspci, fixture("lspci_switch.txt"))
    assert any("0000:04:00.0 runs x2 of x4: a narrow width is real" in told for told in found.odd)
    assert any("0000:03:00.0 runs PCIe 1 of 5 now" in told for told in found.odd)
    assert any("link of 0001:21:00.0: line 48 says it is down" in told for told in found.unknown)
    assert "NUMA node of 0000:04:00.0." in found.unknown
    assert facts(found)["largest BAR of 0000:03:00.0"] == 128 * 2**30


def test_graphics_of_the_board_and_of_the_processor_are_no_gpus_to_offload_to():
    content = (
        "00:02.0 VGA compatible controller: Intel Corporation UHD Graphics 770 (rev 0c)\n"
        "03:00.0 VGA compatible controller: Intel Corporation DG2 [Arc A770] (rev 08)\n"
        "05:00.0 VGA compatible controller: ASPEED Technology, Inc. ASPEED Graphics Family (rev 52)\n"
        "06:00.0 Processing accelerators: Advanced Micro Devices, Inc. [AMD/ATI] Aqua Vanjaram [Instinct MI300X]\n"
        "41:00.0 Ethernet controller: Example NIC\n41:00.1 Ethernet controller: Example NIC\n"
    )
    found = finding(lspci, content)
    assert [(device.name[5:], device.kind) for device in found.machine.devices] == [
        ("03:00.0", "gpu"), ("06:00.0", "gpu"), ("41:00.0", "nic"), ("41:00.1", "nic"),
    ]  # fmt: skip
    assert found.assumed == ("functions of one card share its link: 0000:41:00.0, 0000:41:00.1.",)


def test_without_root_there_are_no_links():
    content = "01:00.0 VGA compatible controller: NVIDIA Corporation AD102 [GeForce RTX 4090] (rev a1)\n"
    found = finding(lspci, content + "\tNUMA node: 1\n\tCapabilities: <access denied>\n")
    assert found.machine.devices[0].port is None and found.machine.devices[0].numa == 1
    assert any("without root" in told for told in found.unknown)


def test_speeds_and_widths_that_pcie_does_not_have_are_unknown():
    content = fixture("lspci_switch.txt").replace("Speed 32GT/s, Width x16", "Speed 31GT/s, Width x17")
    found = finding(lspci, content)
    gpu = next(device for device in found.machine.devices if device.kind == "gpu")
    assert gpu.port.generation is None
    assert any("31GT/s is of no PCIe generation" in told for told in found.odd)
    assert any("x17 is no width" in told for told in found.odd)


def test_the_tree_and_two_runs_are_refused_with_the_right_command():
    assert "sudo lspci -vvv" in refusal(lspci, "-[0000:00]-+-00.0\n           \\-01.0-[01]----00.0\n")
    content = fixture("lspci_switch.txt")
    assert "both begin 0000:00:01.0" in refusal(lspci, content + content)
    assert "names no GPU" in refusal(lspci, "00:00.0 Host bridge: Intel Corporation Device 09a2\n")


# --- numactl ---

NODES = {  # bytes in MB and hardware threads of each node; distances row by row
    "aurora_spr_hbm_4node": (
        {0: (515524, 104), 1: (514994, 104), 2: (65536, 0), 3: (65536, 0)},
        [[10, 21, 13, 23], [21, 10, 23, 13], [13, 23, 10, 23], [23, 13, 23, 10]],
    ),
    "small_vm": ({0: (5850, 2)}, [[10]]),
    "two_node": ({0: (120889, 30), 1: (120931, 30)}, [[10, 20], [20, 10]]),
}


@needs_samples
@pytest.mark.parametrize("name", NODES)
def test_samples_of_numactl_read_to_what_they_show(name):
    nodes, rows = NODES[name]
    found = finding(numactl, sample(f"numactl/{name}.txt"))
    assert {node.number: (node.size, node.threads) for node in found.machine.numas} == {
        number: (size * MIB, threads) for number, (size, threads) in nodes.items()
    }
    assert found.machine.distances == {(a, b): cell for a, row in enumerate(rows) for b, cell in enumerate(row)}
    assert [node.line for node in found.machine.numas] == [2 + 3 * number for number in nodes]
    assert not found.odd


def test_numbers_with_gaps_no_memory_and_distances_of_two_ways():
    found = finding(numactl, fixture("numactl_gaps.txt"))
    assert [(node.number, node.size, node.threads) for node in found.machine.numas] == [
        (0, 1000 * MIB, 4), (2, None, 0), (8, 2000 * MIB, 0),
    ]  # fmt: skip
    assert found.machine.distances[0, 8] == 80 and found.machine.distances[8, 0] == 70
    assert "node 2 has no memory (0 MB)." in found.odd
    assert "distance from node 0 to 8 is 80, and 70 back." in found.odd
    assert any("kind of node 8" in told for told in found.unknown)


def test_a_cut_numactl_says_what_is_missing():
    content = fixture("numactl_gaps.txt")
    found = finding(numactl, content[: content.index("node 8 size")])
    assert found.machine.numas[-1].size is None and found.machine.numas[-1].threads is None
    assert any("memory of node 8" in told for told in found.unknown)
    assert any("distances" in told for told in found.unknown)
    early = finding(numactl, content[: content.index("node 2 cpus")])
    assert "line 1 says 3 nodes, but 1 are told. Is the output cut?" in early.odd


def test_one_machine_in_a_file():
    content = fixture("numactl_gaps.txt")
    assert finding(numactl, content + content).machine == finding(numactl, content).machine
    assert "told twice" in refusal(numactl, content + content.replace("1000 MB", "1001 MB"))
    assert "no NUMA support" in refusal(numactl, "No NUMA available on this system\n")
    assert "numactl --hardware" in refusal(numactl, "available: 2 nodes (0-1)\n")


# --- drives ---


@needs_samples
def test_samples_of_drives_read_to_what_they_show():
    machine = finding(drives, sample("lsblk_nvme/lsblk_small_vm.json")).machine
    assert [(one.name, one.kind, one.size, one.line) for one in machine.devices] == [("vda", "disk", 256 * 2**30, 14)]
    machine = finding(drives, sample("lsblk_nvme/nvme_list_v1_two_drives.json")).machine
    assert [(one.name, one.kind, one.index, one.model, one.size) for one in machine.devices] == [
        (f"nvme{n}n1", "nvme", n, "KXG60ZNV256G TOSHIBA", 256060514304) for n in (0, 1)
    ]
    found = finding(drives, sample("lsblk_nvme/nvme_list_v2_nested_negative_size.json"))
    (drive,) = found.machine.devices
    assert (drive.name, drive.model, drive.size) == ("nvme0n1", "LENSE20512GMSP34MEAT2TA", 1000215216 * 512)
    assert facts(found)["PCI address of nvme0n1"] == "0000:3e:00.0"
    assert any("-2147483648" in told for told in found.assumed)
    assert "S00000" not in str(found) and "nqn" not in str(found)


@needs_samples
def test_the_table_of_lsblk_is_refused_with_advice():
    assert "lsblk -b -J -o NAME,TYPE,TRAN" in refusal(drives, sample("lsblk_nvme/lsblk_ubuntu18_table.txt"))


def test_lsblk_with_sizes_as_text_and_a_raid():
    found = finding(drives, fixture("lsblk_raid.json"))
    assert [(one.name, one.kind, one.size, one.model) for one in found.machine.devices] == [
        ("nvme0n1", "nvme", 3 * 2**39, "Example Drive 1"), ("nvme1n1", "nvme", 1500000000000, "Example Drive 1"),
        ("sda", "disk", None, ""),
    ]  # fmt: skip
    assert facts(found)["raid0 md0"] == "of nvme0n1, nvme1n1"
    assert any("nvme0n1: '1.5T' is rounded" in told for told in found.assumed)
    assert found.odd == ("line 7: the size of sda is 0, no number of bytes above 0.",)
    assert "/home" not in str(found)
    assert finding(drives, fixture("lsblk_raid.json").replace("1.5T", "1,5T")).machine == found.machine


def test_nvme_list_of_older_versions():
    found = finding(drives, fixture("nvme_old_spelling.json"))
    assert [(one.name, one.size) for one in found.machine.devices] == [
        ("nvme0n1", 4096000), ("nvme1n1", None), ("nvme2n1", None),
    ]  # fmt: skip
    assert "size of nvme1n1: not told." in found.unknown
    assert "PhysicalSize of nvme2n1 is 999999" in found.odd[0]


def test_namespaces_of_a_subsystem_and_drives_of_other_hosts():
    found = finding(drives, fixture("nvme_nested.json"))
    assert [(one.name, one.size) for one in found.machine.devices] == [("nvme0n1", 4096000)]
    assert facts(found)["PCI address of nvme0n1"] == "0000:3e:00.0"
    assert "nvme1 is reached over 'tcp', not PCIe: left out." in found.unknown
    assert "10.0.0.1" not in str(found)


def test_two_lists_in_one_file_are_merged():
    both = finding(drives, fixture("lsblk_raid.json") + "\n$ nvme list -o json\n" + fixture("nvme_nested.json"))
    assert len(both.machine.devices) == 3
    assert "nvme0n1 has 1649267441664 and 4096000 bytes" in both.odd[-1]


def test_cut_json_and_tables_are_refused():
    content = fixture("nvme_nested.json")
    assert "cut" in refusal(drives, content[:-20])
    assert "nvme list -o json" in refusal(drives, "Node             SN      Model     Namespace Usage\n")
    assert "names no drive" in refusal(drives, '{"blockdevices": [{"name": "loop0", "type": "loop", "size": 4}]}')


# --- all ---


@pytest.mark.parametrize(("module", "name"), ALL)
def test_dirty_text_reads_alike(module, name):
    content = fixture(name)
    forms = dirty(content)
    if name.endswith("json"):
        forms.pop("log")
    for form, changed in forms.items():
        assert facts(finding(module, changed)) == facts(finding(module, content)), form


@pytest.mark.parametrize(("module", "name"), ALL)
def test_no_other_reader_takes_it(module, name):
    text = clean(fixture(name))
    assert [other for other in FIXTURES if other.is_it(text)] == [module]


@pytest.mark.few
@pytest.mark.parametrize(("module", "name"), ALL)
@given(data=st.data())
def test_damage_ends_in_a_finding_or_a_refusal(module, name, data):
    survives(module, data.draw(damage(fixture(name))))
