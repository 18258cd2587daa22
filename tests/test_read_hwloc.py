"""hwloc's topology XML read: NUMA nodes, the PCIe tree, GPUs under several names, joints, what stays unknown."""

from __future__ import annotations

import pytest
from hypothesis import given

from offload.errors import ReadingError
from offload.readers.tools import hwloc, hwloc_matrices
from offload.readers.tools.finding import Device, Finding, Joint, Numa, PciePort, facts_of
from offload.readers.tools.text import clean
from tests.xml_outputs import SAMPLES, assert_reads_or_refuses, dirty, finding_of, output, spoiled

SECOND, THIRD = "hwloc_two_gpus_v2.xml", "hwloc_amd_v3.xml"
SWITCH, GPU, IDLE, NVSWITCH = "0000:11:00.0", "0000:13:00.0", "0000:81:00.0", "0000:82:00.0"


def read(content: str) -> Finding:
    return finding_of(hwloc, content)


def device(finding: Finding, name: str) -> Device:
    return next(device for device in finding.machine.devices if device.name == name)


def test_numa_nodes_packages_and_distances():
    machine = read(output(SECOND)).machine
    assert machine.numas == (
        Numa(0, 64 * 2**30, 2, 0, "dram", 10),
        Numa(1, 64 * 2**30, 2, 1, "dram", 44),
        Numa(2, 128 * 2**30, 0, 1, "cxl", 45),
    )
    assert machine.packages == 2
    assert machine.distances == {(0, 0): 10, (0, 1): 21, (1, 0): 21, (1, 1): 10}


def test_a_switch_is_its_upstream_port_and_a_link_the_lower_of_its_two_ends():
    finding = read(output(SECOND))
    assert device(finding, SWITCH) == Device(
        SWITCH, "pcie_switch", None, "PCI id 10b5:0002", None, 0, port=PciePort(rate=15.753846e9), line=16
    )
    assert device(finding, GPU) == Device(
        GPU, "gpu", 0, "Example GPU", SWITCH, 0, 80 * 2**30, PciePort(rate=31.507692e9), 18
    )
    assert any("0000:11:00.0 tells 31.5077 GB/s, the port above it 15.7538" in odd for odd in finding.odd)
    assert any("cuda1, nvml0" in odd for odd in finding.odd)


def test_an_unknown_port_leaves_the_other_end_to_tell():
    drive = device(read(output(SECOND)), "0000:14:00.0")
    assert (drive.kind, drive.index, drive.parent, drive.model) == ("nvme", 3, SWITCH, "Example Drive")
    assert drive.size == 3750738264 * 1024
    assert drive.port == PciePort(rate=7.876923e9)


def test_an_idle_gpus_link_is_unknown_and_its_rate_at_the_dump_a_fact():
    finding = read(output(SECOND))
    assert device(finding, IDLE).port is None
    fact = next(fact for fact in finding.facts if fact.what == f"host link of gpu {IDLE} at the dump, one way")
    assert (fact.value, fact.unit, fact.line) == (4e9, "B/s", 49)
    assert any("PCIe 1 x16" in word for word in finding.unknown)


def test_joints_to_switches_and_packages_one_for_each_pair():
    finding = read(output(SECOND))
    assert finding.machine.joints == (
        Joint(GPU, NVSWITCH, "nvlink", None, 150e9, 71),
        Joint(GPU, "numa0", "nvlink", None, 50e9, 71),
        Joint(IDLE, NVSWITCH, "nvlink", None, None, 71),
    )
    assert any("75000 and 100000 MB/s" in odd for odd in finding.odd)


def test_kinds_of_devices():
    kinds = {device.name: device.kind for device in read(output(SECOND)).machine.devices}
    assert kinds == {
        SWITCH: "pcie_switch", GPU: "gpu", "0000:14:00.0": "nvme", IDLE: "gpu", NVSWITCH: "nvswitch",
        "0000:83:00.0": "nic", "0000:84:00.0": "other",
    }  # fmt: skip


def test_version_3_types_are_bits_domains_are_long_and_sizes_have_units():
    finding = read(output(THIRD))
    assert finding.tool == "hwloc XML 3.0"
    assert finding.machine.numas == (
        Numa(0, 16 * 2**30, 6, 0, "dram", 6),
        Numa(1, 32 * 2**30, 0, 0, "hbm", 7),
    )
    first = device(finding, "10000:01:00.0")
    assert (first.kind, first.index, first.size, first.numa) == ("gpu", 0, 64 * 2**30, 0)
    disk = device(finding, "sda")
    assert (disk.kind, disk.parent, disk.size) == ("disk", "10000:04:00.0", 976762584 * 1024)
    assert any(fact.value == "Example Server 3" for fact in finding.facts)


def test_xgmi_over_another_gpu_is_no_joint():
    joints = read(output(THIRD)).machine.joints
    assert [(joint.first, joint.second, joint.technology, joint.rate) for joint in joints] == [
        ("10000:01:00.0", "10000:02:00.0", "xgmi", 100e9),
        ("10000:02:00.0", "10000:03:00.0", "xgmi", 100e9),
    ]


def test_firmwares_figures_of_memories_are_facts_and_0_is_none():
    facts = [(fact.what, fact.value, fact.unit) for fact in read(output(THIRD)).facts if "firmware" in fact.what]
    assert facts == [
        ("rate of NUMA node 0 by its firmware", 100000 * 2**20, "B/s"),
        ("rate of NUMA node 1 by its firmware", 400000 * 2**20, "B/s"),
        ("latency of NUMA node 0 by its firmware, from other processors", 90e-9, "s"),
    ]


@pytest.mark.parametrize("name", [SECOND, THIRD])
def test_nothing_personal_is_kept(name):
    told = repr(read(output(name))).lower()
    assert "secret" not in told
    assert "aa:bb:cc" not in told


@pytest.mark.parametrize("name", [SECOND, THIRD])
def test_dirty_text_reads_the_same_with_its_lines(name):
    plain, pasted = read(output(name)), read(dirty(output(name)))
    assert [(fact.what, fact.value) for fact in facts_of(plain)] == [
        (fact.what, fact.value) for fact in facts_of(pasted)
    ]
    assert [fact.line + 1 for fact in facts_of(plain) if fact.line] == [
        fact.line for fact in facts_of(pasted) if fact.line
    ]


def test_the_same_file_pasted_twice_is_read_once_and_two_machines_are_refused():
    content = output(SECOND)
    finding = read(f"{content}\n{content}")
    assert finding.machine == read(content).machine
    assert any("2 times" in word for word in finding.assumed)
    with pytest.raises(ReadingError, match="differ. Give one machine"):
        read(f"{content}\n{output(THIRD)}")


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("</topology>", "", "never closed, the file is cut"),
        ('version="2.0"', "", "no version: hwloc 1"),
        ('version="2.0"', 'version="4.0"', "version 4.0"),
        ('pci_busid="0000:81:00.0"', 'pci_busid="0000:13:00.0"', "line 49: 0000:13:00.0 stands twice, first at"),
        ('pci_busid="0000:81:00.0"', 'pci_busid="x"', "needs a pci_busid"),
        ('type="NUMANode" os_index="1"', 'type="NUMANode" os_index="0"', "NUMANode 0 stands twice"),
        ("</object>", "", "the XML is broken"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(before, after, said):
    content = output(SECOND)
    assert before in content
    with pytest.raises(ReadingError, match="line ") as refused:
        read(content.replace(before, after, 1))
    assert said in str(refused.value)


LAUGHS = '<!DOCTYPE topology [<!ENTITY a "ha">' + "".join(
    f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">' for n in range(9)
)


@pytest.mark.parametrize(
    "kind",
    [
        LAUGHS + "]>",
        '<!DOCTYPE topology [<!ENTITY x SYSTEM "file:///etc/passwd">]>',
        '<!DOCTYPE topology SYSTEM "http://example.org/hwloc2.dtd">',
        '<!DOCTYPE topology SYSTEM "../../hwloc2.dtd">',
        '<!DOCTYPE topology PUBLIC "x" "hwloc2.dtd">',
        '<!DOCTYPE topology [<!ATTLIST object type CDATA "PCIDev">]>',
    ],
)
def test_entities_and_references_to_files_are_refused(kind):
    content = output(SECOND).replace('<!DOCTYPE topology SYSTEM "hwloc2.dtd">', kind)
    with pytest.raises(ReadingError, match="line 2: .* is refused"):
        read(content)


def test_an_entity_without_a_definition_and_an_include_are_refused():
    with pytest.raises(ReadingError, match="undefined entity"):
        read(output(SECOND).replace('value="Example CPU 9000"', 'value="&b;"'))
    include = '<xi:include href="file:///etc/passwd"/>'
    with pytest.raises(ReadingError, match="is refused"):
        read(output(SECOND).replace("</topology>", f"{include}</topology>"))


def test_elements_too_deep_or_too_many_are_refused():
    deep = '<topology version="2.0">' + '<object type="Group">' * 5000 + "</object>" * 5000 + "</topology>"
    with pytest.raises(ReadingError, match="200 elements in one another"):
        read(deep)
    many = '<topology version="2.0">' + '<object a=""/>' * 100_001 + "</topology>"
    with pytest.raises(ReadingError, match="100,000 elements"):
        read(many)
    with pytest.raises(ReadingError, match="more than 50 <topology>"):
        read('<topology version="2.0"/>' * 50_000 + "<object/>")
    assert_reads_or_refuses(hwloc, '<topology version="2.0"><object>' + "<!--" * 500_000)
    assert_reads_or_refuses(hwloc, "<topology " * 100_000 + "<object")


@pytest.mark.parametrize("values", ["10 21 21", "10 x 21 10", "10 21 21 -1", "0 21 21 0", "nan 21 21 10"])
def test_a_matrix_that_does_not_fit_is_left_out_and_told(values):
    content = output(SECOND).replace("10 21 </u64values>", f"{values} </u64values>").replace(
        '<u64values length="6">21 10 </u64values>', ""
    )  # fmt: skip
    finding = read(content)
    assert finding.machine.distances == {}
    assert any("left out" in odd for odd in finding.odd)


def test_memory_of_an_unknown_kind_is_no_numa_node():
    finding = read(output(SECOND).replace("CXL-DRAM", "NVM"))
    assert [node.number for node in finding.machine.numas] == [0, 1]
    assert any("NUMA node 2 is left out" in word for word in finding.unknown)
    assert any(fact.value == 128 * 2**30 for fact in finding.facts)


def test_a_package_of_several_numa_nodes_is_no_single_end_of_a_joint():
    finding = read(output(SECOND).replace("Package:2 ", "Package:30 "))
    assert [joint.second for joint in finding.machine.joints] == [NVSWITCH, NVSWITCH]
    assert any("Package:30" in word for word in finding.unknown)


def test_other_xml_is_not_taken_for_it():
    assert not hwloc.is_it(clean("<capabilities><topology><cells num='1'/></topology></capabilities>"))
    assert not hwloc.is_it(clean(output("nccl_dump.xml")))


@given(spoiled((output(SECOND), output(THIRD))))
def test_spoiled_files_are_read_or_refused(content):
    assert_reads_or_refuses(hwloc, content)


def test_technologies_are_those_of_the_units_table():
    assert set(hwloc_matrices.TECHNOLOGIES.values()) == {"nvlink", "xgmi", "xelink"}


# Facts of larger samples, worked out from the files by eye: (packages, NUMA nodes as (number, bytes, threads, package,
# kind), number of devices of each kind, joints).
EXPECTED = {
    "small_vm_v2.xml": (1, [(0, 6134386688, 2, 0, "dram")], {"other": 1, "disk": 1, "nic": 1}, 0),
    "24core_2numa_pci_v2.xml": (
        2,
        [(0, 19316633600, 12, 0, "dram"), (1, 19327348736, 12, 1, "dram")],
        {"gpu": 3, "nic": 3, "disk": 1, "other": 3},
        0,
    ),
    "cxl_dax_v2.xml": (
        1,
        [(0, 3061719040, 4, 0, "dram")],
        {"pcie_switch": 3, "nic": 1, "disk": 1, "other": 6},
        0,
    ),
    "dgx2_16gpu_v2.xml": (
        2,
        [(0, 810234351616, 2, 0, "dram"), (1, 811737923584, 2, 1, "dram")],
        {"gpu": 16, "nvswitch": 12, "pcie_switch": 14},
        96,
    ),
    "heteromem_v3.xml": (
        1,
        [
            (0, 2**30, 16, 0, "dram"), (7, 2**31, 0, 0, "hbm"), (1, 2**30, 16, 0, "dram"), (4, 2**31, 0, 0, "hbm"),
            (2, 2**30, 16, 0, "dram"), (5, 2**31, 0, 0, "hbm"), (3, 2**30, 16, 0, "dram"), (6, 2**31, 0, 0, "hbm"),
        ],
        {},
        0,
    ),
    "power8_4gpu_nvlink_v2.xml": (
        2,
        [(0, 68556816384, 8, 0, "dram"), (1, 68450713600, 8, 1, "dram")],
        {"gpu": 4},
        6,
    ),
}  # fmt: skip
larger = pytest.mark.skipif(not (SAMPLES / "hwloc").is_dir(), reason="the larger collection of samples is not here")


def sample(name: str) -> Finding:
    return read((SAMPLES / "hwloc" / name).read_text())


@larger
def test_every_sample_has_its_facts():
    assert {path.name for path in (SAMPLES / "hwloc").iterdir()} == set(EXPECTED)


@larger
@pytest.mark.parametrize("name", EXPECTED)
def test_facts_of_samples(name):
    packages, numas, kinds, joints = EXPECTED[name]
    machine = sample(name).machine
    told = [(node.number, node.size, node.threads, node.package, node.kind) for node in machine.numas]
    assert told == numas
    assert machine.packages == packages
    assert {kind: len(machine.of_kind(kind)) for kind in {device.kind for device in machine.devices}} == kinds
    assert len(machine.joints) == joints


@larger
def test_dgx2_each_gpu_has_six_links_of_25_gb_s_to_the_switches_of_its_board():
    finding = sample("dgx2_16gpu_v2.xml")
    gpus = finding.machine.of_kind("gpu")
    assert [gpu.index for gpu in gpus] == list(range(16))
    assert {gpu.model for gpu in gpus} == {"Tesla V100-SXM3-32GB-H"}
    assert [gpu.numa for gpu in gpus] == [0] * 8 + [1] * 8
    assert {gpu.port.rate for gpu in gpus} == {15.753846e9}
    boards = [{f"0000:{bus}:00.0" for bus in buses.split()} for buses in ("61 62 63 65 66 67", "c1 c2 c3 c5 c6 c7")]
    for gpu in gpus:
        joints = [joint for joint in finding.machine.joints if joint.first == gpu.name]
        assert {joint.second for joint in joints} == boards[gpu.index // 8]
        assert {joint.rate for joint in joints} == {25e9}
        assert len(joints) == 6
    parents = {gpu.index: gpu.parent for gpu in gpus}
    assert (parents[0], parents[1], parents[2]) == ("0000:32:00.0", "0000:32:00.0", "0000:37:00.0")
    assert device(finding, "0000:32:00.0").parent == device(finding, "0000:37:00.0").parent == "0000:2c:00.0"
    assert device(finding, "0000:2c:00.0").parent is None
    assert finding.machine.distances[0, 1] == 21


@larger
def test_power8_nvlink_to_the_processor_and_the_lower_end_of_the_pcie_link():
    finding = sample("power8_4gpu_nvlink_v2.xml")
    gpus = ["0002:01:00.0", "0003:01:00.0", "000a:01:00.0", "000b:01:00.0"]
    assert [(gpu.name, gpu.index, gpu.size, gpu.numa, gpu.port.rate) for gpu in finding.machine.devices] == [
        (name, index, 16671616 * 1024, index // 2, 7.876923e9) for index, name in enumerate(gpus)
    ]
    assert {(joint.first, joint.second, joint.rate) for joint in finding.machine.joints} == {
        (gpus[0], gpus[1], 40e9), (gpus[2], gpus[3], 40e9), (gpus[0], "numa0", 40e9), (gpus[1], "numa0", 40e9),
        (gpus[2], "numa1", 40e9), (gpus[3], "numa1", 40e9),
    }  # fmt: skip
    assert finding.machine.distances == {(0, 0): 10, (0, 1): 40, (1, 0): 40, (1, 1): 10}


@larger
def test_other_samples_rates_sizes_and_parents():
    vm = sample("small_vm_v2.xml")
    assert device(vm, "vda").size == 268435456 * 1024
    assert all(each.port is None for each in vm.machine.devices)
    old = sample("24core_2numa_pci_v2.xml")
    assert [(gpu.name, gpu.numa, gpu.port) for gpu in old.machine.of_kind("gpu")] == [
        ("0000:06:00.0", 0, None), ("0000:14:00.0", 1, None), ("0000:11:00.0", 1, None),
    ]  # fmt: skip
    assert sum("PCIe 1 x16" in word for word in old.unknown) == 3
    assert device(old, "0000:05:00.0").port == PciePort(rate=2e9)
    assert device(old, "0000:04:00.0").port == PciePort(rate=0.2e9)  # the port above it tells 0.4
    cxl = sample("cxl_dax_v2.xml")
    assert {fact.what: fact.value for fact in cxl.facts if fact.unit == "B"} == {
        "memory set apart as dax0.0": 2**30,
        "CXL memory of 0000:11:00.0, volatile": 2**28,
        "CXL memory of 0000:12:00.0, persistent": 2**28,
        "CXL memory of 0000:15:00.0, volatile": 2**28,
        "CXL memory of 0000:16:00.0, volatile": 2**28,
        "CXL memory of 0000:16:00.0, persistent": 2**28,
    }
    assert [each.parent for each in cxl.machine.of_kind("pcie_switch")] == [None, "0000:0d:00.0", "0000:0d:00.0"]
    memories = [fact for fact in sample("heteromem_v3.xml").facts if "firmware" in fact.what]
    assert [fact.value for fact in memories] == [22500 * 2**20, 90000 * 2**20] * 4
