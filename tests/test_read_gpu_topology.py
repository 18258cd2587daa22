"""What nvidia-smi (topo -m, topo -p2p, nvlink -s), rocm-smi and amd-smi tell of GPUs, their links and NUMA nodes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload.readers.tools import nvidia_nvlink, nvidia_p2p, nvidia_topology, rocm_smi
from offload.readers.tools.finding import Finding
from offload.readers.tools.text import clean
from tests.shape_outputs import SAMPLES, damage, dirty, facts, finding, fixture, refusal, sample, survives

needs_samples = pytest.mark.skipif(not SAMPLES.is_dir(), reason="the larger collection of outputs is not here")
FIXTURES = {
    nvidia_topology: ("topo_old_driver.txt", "topo_grace.txt"),
    nvidia_p2p: ("p2p_three.txt",),
    nvidia_nvlink: ("nvlink_two.txt",),
    rocm_smi: ("rocm_four.txt", "rocm_two.json", "amd_smi_three.json"),
}
ALL = [(module, name) for module, names in FIXTURES.items() for name in names]


def numas(found: Finding) -> list[int | None]:
    return [device.numa for device in found.machine.devices if device.kind == "gpu"]


def relations(found: Finding) -> dict[tuple[str, str], str]:
    return {(near.first, near.second): near.relation for near in found.machine.nears}


def joints(found: Finding) -> dict[tuple[str, str], int | None]:
    return {(joint.first, joint.second): joint.count for joint in found.machine.joints}


def eight(a: str, b: str, *, among: int = 8) -> dict[str, str]:
    """The processors near eight GPUs, the first four and the others."""
    return {f"processors near gpu{n}": a if n < among // 2 else b for n in range(among)}


# --- nvidia-smi topo -m: larger samples, each read by eye ---

SWITCH8 = {(f"gpu{n}", "nvswitch"): 18 for n in range(8)}
SWITCH4 = {(f"gpu{n}", "nvswitch"): 18 for n in range(4)}
ALL_SYS = {(f"gpu{a}", f"gpu{b}"): "SYS" for a in range(8) for b in range(a + 1, 8)}
NODE6 = {(f"gpu{g}", f"nic{n}"): "NODE" for g in range(4) for n in range(6)}
NODE6 |= {(f"nic{a}", f"nic{b}"): "NODE" for a in range(6) for b in range(a + 1, 6)}
TO_NICS = {(f"gpu{g}", f"nic{n}"): "PHB" if g == 6 else "SYS" for g in range(8) for n in range(2)}
TOPOLOGIES = {
    "gb200_4gpu_6nic_ansi": (
        [0, 0, 1, 1], NODE6, SWITCH4,
        eight("0-35", "0-35", among=2) | {f"name of nic{n}": f"mlx5_{n}" for n in range(6)},
    ),
    "h100_8gpu_nv18_spaces": ([0] * 4 + [1] * 4, {}, SWITCH8, eight("0-47,96-143", "48-95,144-191")),
    "pcie_8gpu_all_sys_tabs": ([0] * 4 + [1] * 4, ALL_SYS, {}, eight("0-15,32-47", "16-31,48-63")),
    "rtx4090_8gpu_2nic_tabs": (
        [0] * 4 + [1] * 4, ALL_SYS | TO_NICS | {("nic0", "nic1"): "PIX"}, {}, eight("0-55,112-167", "56-111,168-223"),
    ),
    "two_gpu_nv2_no_gpu_numa_col": ([None, None], {}, {("gpu0", "gpu1"): 2}, eight("0-23", "0-23", among=2)),
    "two_gpu_phb": ([None, None], {("gpu0", "gpu1"): "PHB"}, {}, eight("0-11", "0-11", among=2)),
}  # fmt: skip


@needs_samples
@pytest.mark.parametrize("name", TOPOLOGIES)
def test_samples_of_topo_read_to_what_they_show(name):
    nodes, near, joined, told = TOPOLOGIES[name]
    found = finding(nvidia_topology, sample(f"nvidia_smi_topo/{name}.txt"))
    assert numas(found) == nodes
    assert relations(found) == near
    assert joints(found) == joined
    assert {fact.what: fact.value for fact in found.facts} == told
    assert [device.line for device in found.machine.devices] == list(range(2, 2 + len(found.machine.devices)))
    assert all(joint.rate is None and joint.technology == "nvlink" for joint in found.machine.joints)
    assert not found.odd and not found.rates


@needs_samples
def test_every_sample_of_these_tools_has_its_expectations():
    assert {path.stem for path in (SAMPLES / "nvidia_smi_topo").iterdir()} == set(TOPOLOGIES)
    assert {path.stem for path in (SAMPLES / "nvidia_smi_p2p").iterdir()} == set(PEERS)
    assert [path.stem for path in (SAMPLES / "nvidia_smi_nvlink").iterdir()] == ["h100_status_gpu0"]
    assert {path.stem for path in (SAMPLES / "rocm_smi").iterdir()} == {"mi300_8gpu_showtopo", "showtoponuma_8gpu"}


# --- nvidia-smi topo -m: forms ---


def test_old_drivers_write_soc_for_sys_and_name_nics_by_themselves():
    found = finding(nvidia_topology, fixture("topo_old_driver.txt"))
    assert relations(found) == {
        ("gpu0", "gpu3"): "SYS", ("gpu1", "gpu2"): "SYS", ("gpu0", "nic0"): "PIX", ("gpu1", "nic0"): "PXB",
        ("gpu2", "nic0"): "SYS", ("gpu3", "nic0"): "SYS",
    }  # fmt: skip
    two, one = {("gpu0", "gpu1"): 2, ("gpu2", "gpu3"): 2}, {("gpu0", "gpu2"): 1, ("gpu1", "gpu3"): 1}
    assert joints(found) == two | one
    assert facts(found)["name of nic0"] == "mlx5_0"
    assert numas(found) == [None] * 4
    assert not found.odd


def test_a_grace_machine_tells_the_gpus_own_numa_nodes():
    found = finding(nvidia_topology, fixture("topo_grace.txt"))
    assert [(node.number, node.kind) for node in found.machine.numas] == [
        (0, "dram"),
        (1, "dram"),
        (4, "gpu"),
        (12, "gpu"),
    ]
    assert facts(found)["NUMA node of gpu1's own memory"] == 12
    assert facts(found)["name of nic0"] == "mlx5_bond_0"
    assert joints(found) == {("gpu0", "gpu1"): 18}  # 18 links fit two GPUs without a switch: said as assumed
    assert any("NVSwitch would look the same" in told for told in found.assumed)


MARKDOWN = """
|      | GPU0 | GPU1 | CPU Affinity | NUMA Affinity |
|------|------|------|--------------|---------------|
| GPU0 | X    | PXB  | 0-3          | 0             |
| GPU1 | PXB  | X    |              | 1             |
"""
BLANKS = """        GPU0  GPU1  CPU Affinity  NUMA Affinity
GPU0    X     PXB   0-3           0
GPU1    PXB   X                   1
"""


@pytest.mark.parametrize("content", [MARKDOWN, BLANKS])
def test_tables_aligned_by_hand_keep_empty_cells_apart(content):
    found = finding(nvidia_topology, content)
    assert numas(found) == [0, 1]
    assert relations(found) == {("gpu0", "gpu1"): "PXB"}
    assert [fact.what for fact in found.facts] == ["processors near gpu0"]


def test_a_matrix_that_is_not_symmetric_loses_the_pair_and_says_so():
    found = finding(nvidia_topology, BLANKS.replace("GPU1    PXB", "GPU1    NV4"))
    assert not relations(found) and not joints(found)
    assert "line 2: GPU0 to GPU1 is 'PXB', but line 3 has 'NV4'" in found.odd[0]


@pytest.mark.parametrize("cell", ["N/A", "NV0", "-1", "0", "PIXX"])
def test_unknown_cells_are_no_relation(cell):
    found = finding(nvidia_topology, BLANKS.replace("PXB", cell))
    assert not relations(found) and not joints(found)
    assert f"GPU0 to GPU1 is '{cell}'" in found.odd[0]


def test_a_list_of_numa_nodes_is_not_one():
    found = finding(nvidia_topology, BLANKS.replace("  0\n", "  0-1\n"))
    assert numas(found) == [None, 1]
    assert "NUMA node of gpu0: line 2 says '0-1'." in found.unknown


def test_what_is_cut_off_is_known_from_the_other_half_and_named():
    content = fixture("topo_old_driver.txt")
    found = finding(nvidia_topology, content[: content.index("GPU2\tNV1") + 9])
    assert joints(found) == {("gpu0", "gpu1"): 2, ("gpu0", "gpu2"): 1, ("gpu1", "gpu3"): 1}
    assert found.odd == ("line 4: the row of GPU2 is cut.",)
    assert "gpu2 to gpu3: both rows are missing or cut." in found.unknown
    assert "no whole row" in refusal(nvidia_topology, "\tGPU0\tGPU1\tCPU Affinity\nGPU0\tX")


def test_the_same_run_twice_is_one_and_two_machines_are_refused():
    content = fixture("topo_old_driver.txt")
    assert finding(nvidia_topology, content + content).machine == finding(nvidia_topology, content).machine
    assert "differ" in refusal(nvidia_topology, content + "\n" + fixture("topo_grace.txt"))


# --- nvidia-smi topo -p2p ---

PEERS = {  # GPUs, pairs that work, pairs that do not, why
    "h100_8gpu_ok": (8, {(a, b) for a in range(8) for b in range(8) if a != b}, set(), ""),
    "k80_4gpu": (
        4, {(0, 1), (1, 0), (2, 3), (3, 2)}, {(a, b) for a in range(4) for b in range(4) if a // 2 != b // 2},
        "not supported",
    ),
    "l4_2gpu_cns": (2, set(), {(0, 1), (1, 0)}, "the chipset does not support it"),
    "rtx5090_2gpu_gns": (2, set(), {(0, 1), (1, 0)}, "the GPU does not support it"),
    "single_gpu_ansi": (1, set(), set(), ""),
}  # fmt: skip


@needs_samples
@pytest.mark.parametrize("name", PEERS)
def test_samples_of_p2p_read_to_what_they_show(name):
    gpus, works, fails, why = PEERS[name]
    found = finding(nvidia_p2p, sample(f"nvidia_smi_p2p/{name}.txt"))
    told = {(int(peer.first[3:]), int(peer.second[3:])): peer for peer in found.machine.peers}
    assert [device.name for device in found.machine.devices] == [f"gpu{n}" for n in range(gpus)]
    assert {ends for ends, peer in told.items() if peer.works} == works
    assert {ends for ends, peer in told.items() if not peer.works} == fails
    assert {peer.why for peer in told.values() if not peer.works} == ({why} if fails else set())
    assert all(peer.line == first + 2 for (first, _), peer in told.items())
    assert not found.odd and not found.machine.joints


def test_directions_stay_apart_and_unknown_pairs_stay_unknown():
    found = finding(nvidia_p2p, fixture("p2p_three.txt"))
    assert {(peer.first, peer.second): peer.works for peer in found.machine.peers} == {
        ("gpu0", "gpu1"): True, ("gpu0", "gpu2"): False, ("gpu1", "gpu0"): True, ("gpu2", "gpu0"): False,
        ("gpu2", "gpu1"): False,
    }  # fmt: skip
    assert "gpu1 to gpu2: line 3 says U, unknown." in found.unknown
    assert any("copies through host memory" in told for told in found.assumed)
    assert any("which was asked for is not in the output" in told for told in found.assumed)


def test_the_command_line_above_tells_what_was_asked_for():
    content = " \tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n"
    reads = "$ nvidia-smi topo -p2p r\n" + content
    writes = "$ nvidia-smi topo -p2p w\n" + content.replace("X\tOK", "X\tNS")
    found = finding(nvidia_p2p, reads + writes)
    assert {(peer.first, peer.second): peer.works for peer in found.machine.peers} == {
        ("gpu0", "gpu1"): False, ("gpu1", "gpu0"): True,
    }  # fmt: skip
    assert not found.assumed[0].startswith("the matrix is of peer reads")
    assert "differ" in refusal(nvidia_p2p, content + content.replace("OK", "NS"))
    assert "NVLink alone" in refusal(nvidia_p2p, "nvidia-smi topo -p2p n\n" + content)


def test_unknown_words_of_p2p_are_no_answer():
    found = finding(nvidia_p2p, fixture("p2p_three.txt").replace("DR", "0"))
    assert ("gpu0", "gpu2") not in {(peer.first, peer.second) for peer in found.machine.peers}
    assert "line 2: GPU0 to GPU2 is '0'" in found.odd[0]


# --- nvidia-smi nvlink -s ---


@needs_samples
def test_the_sample_of_nvlink_reads_to_what_it_shows():
    found = finding(nvidia_nvlink, sample("nvidia_smi_nvlink/h100_status_gpu0.txt"))
    told = facts(found)
    assert told["gpu gpu0"] == "NVIDIA H100 80GB HBM3"
    assert told["NVLinks of gpu0"] == 18
    assert told["NVLinks of gpu0, one way, raw"] == pytest.approx(18 * 26.562e9)
    assert told["NVLinks of gpu0, one way, payload"] == 450e9
    assert len(told) == 4 and "GPU-0000" not in str(found)


def test_inactive_links_carry_nothing():
    told = facts(finding(nvidia_nvlink, fixture("nvlink_two.txt")))
    assert (told["NVLinks of gpu0"], told["NVLinks of gpu0 that are inactive"]) == (2, 1)
    assert (told["NVLinks of gpu1"], told["NVLinks of gpu1 that are inactive"]) == (1, 2)
    assert told["NVLinks of gpu0, one way, raw"] == 106.25e9
    assert told["NVLinks of gpu1, one way, payload"] == 50e9


def test_a_payload_that_is_not_known_is_not_guessed():
    found = finding(nvidia_nvlink, fixture("nvlink_two.txt").replace("53.125", "25.781"))
    assert not any("payload" in what for what in facts(found))
    assert any("payload of gpu0" in told for told in found.unknown)


def test_capabilities_and_errors_are_other_outputs():
    for line in ("Link 0, P2P is supported: true", "Link 0: Replay Errors: 0", "Link 0: CRC Errors: 0"):
        assert not nvidia_nvlink.is_it(clean(f"GPU 0: NVIDIA A100 (UUID: GPU-0)\n\t {line}\n"))


def test_links_need_their_gpu_and_one_machine():
    content = fixture("nvlink_two.txt")
    assert "no line" in refusal(nvidia_nvlink, "\t Link 0: 25 GB/s\n")
    assert "Link 2 of GPU 0 differs" in refusal(nvidia_nvlink, content + content.replace("<inactive>", "53.125 GB/s"))
    assert facts(finding(nvidia_nvlink, content + content)) == facts(finding(nvidia_nvlink, content))
    assert "no rate above 0" in finding(nvidia_nvlink, content.replace("53.125", "0.000")).odd[0]


# --- rocm-smi, amd-smi ---


@needs_samples
def test_samples_of_rocm_smi_read_to_what_they_show():
    found = finding(rocm_smi, sample("rocm_smi/mi300_8gpu_showtopo.txt"))
    assert numas(found) == [0] * 4 + [1] * 4
    assert joints(found) == {(f"gpu{a}", f"gpu{b}"): None for a in range(8) for b in range(a + 1, 8)}
    assert {joint.technology for joint in found.machine.joints} == {"xgmi"}
    assert found.machine.joints[0].line == 28 and found.machine.devices[0].line == 38
    assert not found.odd and not found.machine.nears
    assert any("how many xGMI links" in told for told in found.unknown)
    alone = finding(rocm_smi, sample("rocm_smi/showtoponuma_8gpu.txt"))
    assert numas(alone) == [0] * 4 + [1] * 4
    assert not alone.machine.joints and not alone.odd


def test_pcie_pairs_steps_of_xgmi_and_missing_nodes():
    found = finding(rocm_smi, fixture("rocm_four.txt"))
    assert joints(found) == {("gpu0", "gpu1"): None}
    assert "gpu2 to gpu3: xGMI of weight 30, more than one step (15): not a direct link." in found.unknown
    assert relations(found) == {("gpu0", "gpu3"): "SYS", ("gpu1", "gpu3"): "SYS"}
    assert "how far gpu0 and gpu2 are apart on PCIe." in found.unknown
    assert numas(found) == [0, 1, 0, None]
    assert "NUMA node of gpu3." in found.unknown
    assert found.odd == ("gpu2: NUMA node 0 but NUMA affinity 2; the node is taken.",)


def test_xgmi_of_several_hops_is_no_direct_link():
    found = finding(rocm_smi, fixture("rocm_two.json").replace('1": "1"', '1": "2"'))
    assert not found.machine.joints
    assert "gpu0 to gpu1: xGMI of '2' hops: not a direct link." in found.unknown


def test_rocm_smi_json():
    found = finding(rocm_smi, fixture("rocm_two.json"))
    assert joints(found) == {("gpu0", "gpu1"): None}
    assert numas(found) == [0, 1]
    assert found.machine.joints[0].line == 4


def test_amd_smi_json_tells_rates():
    found = finding(rocm_smi, fixture("amd_smi_three.json"))
    (joint,) = found.machine.joints
    assert (joint.first, joint.second, joint.count, joint.rate) == ("gpu0", "gpu1", 2, 100e9)
    assert relations(found) == {("gpu0", "gpu2"): "SYS"}
    assert "gpu1 to gpu2: the link is 'DISABLED'." in found.unknown
    assert facts(found)["PCI address of gpu2"] == "0000:45:00.0"
    odd = finding(rocm_smi, fixture("amd_smi_three.json").replace("50000-100000", "100000-5"))
    assert odd.machine.joints[0].rate is None and "no MIN-MAX" in odd.odd[0]


def test_amd_smi_text_and_two_machines_are_refused():
    assert "amd-smi topology --json" in refusal(rocm_smi, "ACCESS TABLE:\n             0000:05:00.0\n")
    content = fixture("rocm_four.txt")
    assert "line" in refusal(rocm_smi, content + content.replace("XGMI", "PCIE"))


# --- all ---


@pytest.mark.parametrize(("module", "name"), ALL)
def test_dirty_text_reads_alike(module, name):
    content = fixture(name)
    wanted, forms = finding(module, content), dirty(content)
    if name.endswith("json"):
        forms.pop("log")
    for form, changed in forms.items():
        assert facts(finding(module, changed)) == facts(wanted), form


@pytest.mark.parametrize(("module", "name"), ALL)
def test_no_other_reader_takes_it(module, name):
    text = clean(fixture(name))
    assert [other for other in FIXTURES if other.is_it(text)] == [module]


@pytest.mark.few
@pytest.mark.parametrize(("module", "name"), ALL)
@given(data=st.data())
def test_damage_ends_in_a_finding_or_a_refusal(module, name, data):
    survives(module, data.draw(damage(fixture(name))))
