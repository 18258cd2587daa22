"""NCCL's and RCCL's topology XML read: NUMA nodes, the PCIe tree, joints, network rates, what stays unknown."""

from __future__ import annotations

import pytest
from hypothesis import given

from offload.errors import ReadingError
from offload.readers.tools import hwloc, nccl_topology, recognise
from offload.readers.tools.finding import Device, Finding, Joint, Numa, PciePort, facts_of
from offload.readers.tools.text import clean
from tests.xml_outputs import SAMPLES, assert_reads_or_refuses, dirty, finding_of, output, spoiled

DUMP, AMD = "nccl_dump.xml", "rccl_three_gpus.xml"


def read(content: str) -> Finding:
    return finding_of(nccl_topology, content)


def device(finding: Finding, name: str) -> Device:
    return next(device for device in finding.machine.devices if device.name == name)


def test_numa_nodes_count_threads_and_an_empty_mask_is_unknown():
    assert read(output(DUMP)).machine.numas == (Numa(0, None, 24, line=3), Numa(1, None, None, line=26))
    amd = read(output(AMD))
    assert amd.machine.numas == ()
    assert {each.numa for each in amd.machine.devices} == {None}
    assert any("numaid -1" in word for word in amd.unknown)


def test_tree_of_devices_with_generation_and_lanes():
    finding = read(output(DUMP))
    assert finding.tool == "NCCL topology XML"
    assert finding.machine.devices == (
        Device("0000:15:00.0", "pcie_switch", None, "PCI id 1000:c030", None, 0, port=PciePort(5, 16), line=4),
        Device("0000:17:00.0", "gpu", 0, "PCI id 10de:2330", "0000:15:00.0", 0, port=PciePort(5, 16), line=5),
        Device("0000:18:00.0", "gpu", 1, "PCI id 10de:2330", "0000:15:00.0", 0, port=None, line=10),
        Device("0000:19:00.0", "nic", 0, "PCI id 15b3:1021", "0000:15:00.0", 0, port=PciePort(4, 8), line=16),
        Device("eth0", "nic", 1, "", None, 0, line=23),
        Device("0009:01:00.0", "gpu", 2, "PCI id 10de:2342", None, 1, port=None, line=27),
    )


def test_an_unknown_speed_is_not_generation_3_and_a_width_of_0_not_16_lanes():
    finding = read(output(DUMP).replace('link_speed="" link_width="0"', 'link_speed="Unknown" link_width="16"'))
    assert device(finding, "0000:18:00.0").port == PciePort(None, 16)
    assert any("generation or lanes of 2 (0000:18:00.0, 0009:01:00.0)" in word for word in finding.unknown)
    assert any("'7 GT/s' of 0009:01:00.0 is no PCIe speed" in odd for odd in finding.odd)
    assert any("link_width '3'" in odd for odd in finding.odd)


@pytest.mark.parametrize(
    ("speed", "generation"),
    [("2.5 GT/s", 1), ("5.0 GT/s PCIe", 2), ("8 GT/s", 3), ("16.0 GT/s PCIe", 4), ("32 GT/s", 5), ("64 GT/s", 6)],
)
def test_spellings_of_speeds(speed, generation):
    finding = read(output(DUMP).replace('link_speed="" link_width="0"', f'link_speed="{speed}" link_width="4"'))
    assert device(finding, "0000:18:00.0").port == PciePort(generation, 4)


def test_joints_to_switches_to_the_processor_and_c2c():
    finding = read(output(DUMP))
    assert set(finding.machine.joints) == {
        Joint("0000:17:00.0", "nvswitch", "nvlink", 18, None, 7),
        Joint("0000:18:00.0", "nvswitch", "nvlink", 18, None, 12),
        Joint("0009:01:00.0", "numa1", "nvlink", 2, None, 31),
        Joint("0009:01:00.0", "numa1", "c2c", 10, 447.12e9, 32),
    }
    assert any(word.startswith("line 29: nvlink of 0009:01:00.0 leads to itself") for word in finding.odd)
    assert any("'0000:99:00.0', which the file lacks" in word for word in finding.odd)
    assert any("rate of an NVLink" in word for word in finding.unknown)


def test_both_ends_make_one_joint_and_counts_that_differ_none():
    finding = read(output(AMD))
    assert finding.tool == "RCCL topology XML"
    assert finding.machine.joints == (
        Joint("0000:c1:00.0", "0000:c2:00.0", "xgmi", 4, None, 6),
        Joint("0000:c1:00.0", "0000:c3:00.0", "xgmi", None, None, 7),
    )
    assert any("tell 1 and 2 links" in odd for odd in finding.odd)
    assert any("line 13: xgmi of 0000:c2:00.0: count '0'" in odd for odd in finding.odd)


def test_network_rates_are_mbit_and_minus_1_is_unknown():
    finding = read(output(DUMP))
    rates = [(fact.what, fact.value, fact.unit, fact.line) for fact in finding.facts if "network" in fact.what]
    assert rates == [("network rate of nic 0000:19:00.0, port 1, one way", 50e9, "B/s", 18)]
    assert any("network rate of eth0 (speed '-1')" in word for word in finding.unknown)


def test_invented_switches_are_told():
    finding = read(output(AMD))
    assert device(finding, "ffff:ff:01.0").kind == "pcie_switch"
    assert any("invented" in word and "ffff:ff:01.0" in word for word in finding.assumed)


def test_nothing_personal_is_kept():
    told = repr(read(output(DUMP))).lower()
    assert "feedface" not in told
    assert "abcdef012345" not in told


@pytest.mark.parametrize("name", [DUMP, AMD])
def test_dirty_text_reads_the_same_with_its_lines(name):
    plain, pasted = read(output(name)), read(dirty(output(name)))
    assert [(fact.what, fact.value) for fact in facts_of(plain)] == [
        (fact.what, fact.value) for fact in facts_of(pasted)
    ]
    assert [fact.line + 1 for fact in facts_of(plain) if fact.line] == [
        fact.line for fact in facts_of(pasted) if fact.line
    ]


def test_two_parts_of_one_gpu_are_one_device_and_their_links_one_joint():
    link = '<nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/>'
    part = f'<gpu dev="0" sm="90" mlopart="1" rank="9">{link}</gpu>'
    finding = read(output(DUMP).replace("</gpu>", f"</gpu>{part}", 1))
    assert finding.machine.joints == read(output(DUMP)).machine.joints
    assert any("0000:17:00.0 has 2 <gpu> elements" in odd for odd in finding.odd)


def test_several_hosts_the_first_is_read_and_the_others_told():
    content = output(DUMP)
    inside = content[content.index("  <cpu") : content.rindex("</system>")]
    second = inside.replace("0xfeedfacecafebeef", "0x0123456789abcdef")
    finding = read(content.replace("</system>", second + "</system>"))
    assert finding.machine == read(content).machine
    assert any("2 hosts" in word and "line 36" in word for word in finding.assumed)


def test_the_same_file_pasted_twice_is_read_once_and_two_machines_are_refused():
    content = output(DUMP)
    assert read(f"{content}\n{content}").machine == read(content).machine
    with pytest.raises(ReadingError, match="Give one machine"):
        read(f"{content}\n{output(AMD)}")


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("</system>", "", "never closed, the file is cut"),
        ('busid="0000:18:00.0"', 'busid="0000:17:00.0"', "busid 0000:17:00.0 stands twice, first at line 5"),
        ('busid="0000:18:00.0"', "", "needs a busid"),
        ('numaid="1"', 'numaid="0"', "NUMA node 0 stands twice"),
        ("</gpu>", "", "the XML is broken"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(before, after, said):
    content = output(DUMP)
    assert before in content
    with pytest.raises(ReadingError, match="line ") as refused:
        read(content.replace(before, after, 1))
    assert said in str(refused.value)


def test_a_system_without_anything_is_refused():
    with pytest.raises(ReadingError, match="no <cpu> with a number"):
        read('<system version="1"><other><cpu numaid="0"/></other></system>')


def test_entities_are_refused():
    with pytest.raises(ReadingError, match="line 1: <!DOCTYPE is refused"):
        read('<!DOCTYPE system [<!ENTITY a "ha">]>\n' + output(DUMP))


GRAPH = '<graphs version="1">\n  <graph id="0" nchannels="2"><channel><gpu dev="0"/></channel></graph>\n</graphs>\n'


def test_a_graph_file_is_refused_by_name(monkeypatch):
    assert not nccl_topology.is_it(clean(GRAPH))
    monkeypatch.setattr(recognise, "readers", lambda: (hwloc, nccl_topology))
    with pytest.raises(ReadingError, match="an NCCL graph file .* Give the topology, NCCL_TOPO_DUMP_FILE"):
        recognise.read_content(GRAPH)
    assert [finding.tool for finding in recognise.read_content(output(DUMP))] == ["NCCL topology XML"]


def test_a_file_with_a_graph_and_a_topology_gives_the_topology():
    assert read(GRAPH + output(DUMP)).machine == read("\n" * 3 + output(DUMP)).machine


@given(spoiled((output(DUMP), output(AMD))))
def test_spoiled_files_are_read_or_refused(content):
    assert_reads_or_refuses(nccl_topology, content)


# Facts of larger samples, worked out from the files by eye: (NUMA nodes' threads, number of devices of each kind, links
# of GPUs as (generation, lanes) or None, number of joints, network rates in 10^9 B/s).
EXPECTED = {
    "aws_g5_minimal.xml": ([None, None], {"other": 9}, set(), 0, []),
    "aws_p4d.xml": ([48, 48], {"pcie_switch": 4, "gpu": 8, "nic": 4}, {(3, 16)}, 0, []),
    "azure_ncv4_a100.xml": ([24] * 4, {"gpu": 4, "nic": 1}, {None}, 0, [12.5]),
    "azure_ndv2_v100.xml": ([20, 20], {"gpu": 8, "nic": 1}, {(4, 16)}, 0, []),
    "azure_ndv4_a100.xml": ([24] * 4, {"pcie_switch": 4, "gpu": 8, "nic": 8}, {(4, 16)}, 0, []),
    "rccl_mi300x_8gpu.xml": ([112, 112], {"pcie_switch": 24, "gpu": 8, "nic": 8}, {(5, 16)}, 28, [50.0] * 8),
    "rccl_mi50_4gpu_comment_first.xml": ([28], {"pcie_switch": 5, "gpu": 4, "nic": 1}, {(4, 16)}, 4, [12.5]),
}
larger = pytest.mark.skipif(not (SAMPLES / "nccl_topo").is_dir(), reason="the larger collection of samples is not here")


def sample(name: str) -> Finding:
    return read((SAMPLES / "nccl_topo" / name).read_text())


@larger
def test_every_sample_has_its_facts_but_the_graph_which_is_none():
    graphs = {path.name for path in (SAMPLES / "nccl_topo").iterdir()} - set(EXPECTED)
    assert graphs == {"azure_ncv4_GRAPH_not_topo.xml"}
    assert not nccl_topology.is_it(clean((SAMPLES / "nccl_topo" / graphs.pop()).read_text()))


@larger
@pytest.mark.parametrize("name", EXPECTED)
def test_facts_of_samples(name):
    threads, kinds, links, joints, rates = EXPECTED[name]
    finding = sample(name)
    machine = finding.machine
    assert [node.threads for node in machine.numas] == threads
    assert [node.number for node in machine.numas] == list(range(len(threads)))
    assert {kind: len(machine.of_kind(kind)) for kind in {device.kind for device in machine.devices}} == kinds
    assert {gpu.port and (gpu.port.generation, gpu.port.lanes) for gpu in machine.of_kind("gpu")} == links
    assert len(machine.joints) == joints
    assert [fact.value / 1e9 for fact in finding.facts if "network rate" in fact.what] == rates


@larger
def test_samples_trees_and_joints():
    p4d = sample("aws_p4d.xml")
    assert [(gpu.parent, gpu.numa, gpu.model) for gpu in p4d.machine.of_kind("gpu")] == [
        (f"ffff:ff:0{1 + place // 2}.0", place // 4, "PCI id 10de:20b0") for place in range(8)
    ]
    assert [nic.parent for nic in p4d.machine.of_kind("nic")] == [f"ffff:ff:0{place}.0" for place in (1, 2, 3, 4)]
    assert any("without <gpu> elements" in word for word in p4d.unknown)
    assert sum("leads to itself (count 12)" in odd for odd in sample("azure_ncv4_a100.xml").odd) == 4
    big = sample("rccl_mi300x_8gpu.xml")
    assert [gpu.index for gpu in big.machine.of_kind("gpu")] == list(range(8))
    assert [gpu.numa for gpu in big.machine.of_kind("gpu")] == [0] * 4 + [1] * 4
    assert {(joint.technology, joint.count) for joint in big.machine.joints} == {("xgmi", 1)}
    assert len({frozenset((joint.first, joint.second)) for joint in big.machine.joints}) == 8 * 7 // 2
    chain = [device(big, "0000:0c:00.0")]
    while chain[-1].parent:
        chain.append(device(big, chain[-1].parent))
    assert [each.name for each in chain] == ["0000:0c:00.0", "0000:0a:00.0", "0000:08:00.0", "0000:05:00.0"]
    small = sample("rccl_mi50_4gpu_comment_first.xml")
    assert {(joint.first, joint.second) for joint in small.machine.joints} == {
        ("0000:1d:00.0", "0000:20:00.0"), ("0000:1d:00.0", "0000:23:00.0"), ("0000:20:00.0", "0000:26:00.0"),
        ("0000:23:00.0", "0000:26:00.0"),
    }  # fmt: skip
    assert device(small, "0000:1b:00.0").port == PciePort(3, 16)
