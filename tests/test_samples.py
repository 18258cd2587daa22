"""Every file of the larger collection of samples: read to what it says, or refused; as a topology, alone and together.

What is expected stands in sample_boxes.py, worked out by hand. Names, serial numbers and addresses in the files are
neutral already, so here they are replaced by words that can be looked for in everything that is written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload import cli
from offload.documents import load_topology, parse_document
from offload.documents.topology_file import read_topology
from offload.documents.topology_text import topology_text
from offload.errors import OffloadError
from offload.importing import Imported, import_outputs
from offload.readers.model_files import read_weights
from offload.readers.tools.finding import Finding, Measured
from offload.readers.tools.recognise import decoded, read_content
from offload.topology import Topology
from tests.pace import within
from tests.sample_boxes import ANY, BOXES, MIB, NO_TOOL, RATES, REFUSED, Box
from tests.shape_outputs import damage
from tests.test_families import COUNTED
from tests.test_safetensors import TOTALS

SAMPLES = Path(__file__).parents[2] / "shared" / "samples"  # where a larger collection lies
pytestmark = pytest.mark.skipif(not SAMPLES.is_dir(), reason="the larger collection of samples is not here")

OF_TOOLS = {*BOXES, *RATES, *REFUSED}
WEIGHTS = {  # bytes of all tensors, and how many they are
    "gguf/tiny_llama_mixed.gguf": (441_600, 10),
    "safetensors/tiny_mixed.safetensors": (8448, 6),  # 128 + 128 + 4096 + 2048 + 2048 and an empty one
} | {f"safetensors_index/{name}.model.safetensors.index.json": (total, count)
     for name, (count, total, _) in TOTALS.items()}  # fmt: skip
CONFIGS = {f"hf_config/{folder}/config.json" for folder in COUNTED}
SIDE_FILES = {f"hf_config/{folder}/hf_quant_config.json": algorithm for folder, algorithm in (
    ("Llama-3.1-70B-FP8", "FP8"), ("Qwen3-235B-A22B-NVFP4", "NVFP4"))}  # fmt: skip
AS_TEXT = {  # dumps of headers, that other tests build files from: a line of each
    "gguf/gemma3_270m_Q4_K_M_tensors.json": '"GGUF.tensor_count": 236',
    "gguf/granite4_h_tiny_Q4_0_dump_cut.txt": "GGUF.tensor_count = 666",
    "safetensors/tiny_mixed.header.json": '"model.embed_tokens.weight"',
}


def content_of(name: str) -> str:
    return decoded((SAMPLES / name).read_bytes())


def found_in(name: str, content: str | None = None) -> list[Finding]:
    content = content_of(name) if content is None else content
    return [replace(one, file=Path(name).name) for one in read_content(content)]


def imported(*names: str) -> Imported:
    return import_outputs([one for name in names for one in found_in(name)], name="box")


def words_of(result: Imported) -> str:
    return "\n".join((*result.assumed, *result.contradicts, *result.unknown, *result.not_used))


def test_every_sample_is_in_a_table():
    there = {str(path.relative_to(SAMPLES)) for path in SAMPLES.rglob("*") if path.is_file()} - {"SOURCES.md"}
    assert there == OF_TOOLS | set(WEIGHTS) | CONFIGS | set(SIDE_FILES) | set(AS_TEXT)


# --- machines ---


def check(topology: Topology, box: Box) -> None:
    sockets = [one for one in topology.switches.values() if one.kind == "socket"]
    assert len(sockets) == box.sockets
    gpus = {one.memory for one in topology.processors.values() if one.kind == "gpu"}
    assert gpus == {f"hbm{number}" for number in range(box.gpus)}
    drives = {name: one for name, one in topology.memories.items() if one.kind in ("nvme", "disk")}
    assert tuple(one.capacity for one in drives.values()) == box.drives
    host = {name: one.capacity for name, one in topology.memories.items() if name not in {*gpus, *drives}}
    assert host == dict(box.host)
    if box.hbm is not ANY:
        assert {topology.memories[name].capacity for name in gpus} <= {box.hbm}
    assert sum(one.kind == "nic" for one in topology.switches.values()) == box.nics
    links = {name: one for name, one in topology.links.items() if not {one.a, one.b} & set(drives)}
    assert len(links) == box.count
    for name, (one, other, rate) in box.links.items():
        link = links[name]
        assert (link.a, link.b) == (one, other), name
        if rate is not ANY:
            for side in (link.forward, link.backward):
                assert side.peak == (None if rate is None else pytest.approx(rate * 1e9, rel=1e-5)), name
                assert side.unknown == (rate is None and not side.sustained), name
    if box.peers is not ANY:
        told = {one.peer_to_peer for one in topology.processors.values() if one.kind == "gpu"}
        assert told <= {box.peers}


@pytest.mark.parametrize("name", BOXES)
def test_a_sample_as_a_topology(name):
    result = imported(name)
    check(result.topology, BOXES[name])
    said = words_of(result)
    for words in BOXES[name].says:
        assert words in said


@pytest.mark.parametrize("name", [*REFUSED, *(name for name in RATES if name not in BOXES)])
def test_what_is_no_machine_is_refused(name):
    with pytest.raises(OffloadError) as refused:
        imported(name)
    assert REFUSED.get(name, "tells the machine's shape") in str(refused.value)


@pytest.mark.parametrize("name", [*sorted(CONFIGS), *WEIGHTS, *SIDE_FILES, *AS_TEXT])
def test_files_of_models_are_no_tools_output(name):
    with pytest.raises(OffloadError, match=f"{NO_TOOL}|looks like (?:a GGUF model|a model's config|safetensors)"):
        read_content(content_of(name))


# Files that one machine prints, or could: the same GPUs and NUMA nodes.
NODES = "numactl/two_node.txt"
P2P = ("nvidia_smi_p2p/h100_8gpu_ok.txt", "cuda_samples/p2p_h100_8gpu.txt")
TOGETHER = {
    ("hwloc/small_vm_v2.xml", "numactl/small_vm.txt", "lsblk_nvme/lsblk_small_vm.json"): BOXES["hwloc/small_vm_v2.xml"],
    ("rocm_smi/showtoponuma_8gpu.txt", "rocm_smi/mi300_8gpu_showtopo.txt"): BOXES["rocm_smi/mi300_8gpu_showtopo.txt"],
    ("rocm_smi/mi300_8gpu_showtopo.txt", "nccl_topo/rccl_mi300x_8gpu.xml", "rocm_smi/showtoponuma_8gpu.txt"):
        BOXES["nccl_topo/rccl_mi300x_8gpu.xml"],
    ("nvidia_smi_topo/h100_8gpu_nv18_spaces.txt", *P2P, NODES): replace(
        BOXES["nvidia_smi_topo/h100_8gpu_nv18_spaces.txt"], host=BOXES[NODES].host, peers=True,
        hbm=81559 * 2**20, links=BOXES["nvidia_smi_topo/h100_8gpu_nv18_spaces.txt"].links | {
            "nvlink7": ("hbm7", "nvswitch0", 450)},  # 18 x 25 GB/s of Hopper
        says=("the 8 GPUs here are those that it names: NVIDIA H100 80GB HBM3",)),
    ("nccl_topo/aws_p4d.xml", NODES): replace(BOXES["nccl_topo/aws_p4d.xml"], host=BOXES[NODES].host),
    ("nvidia_smi_topo/two_gpu_phb.txt", "nvidia_smi_p2p/rtx5090_2gpu_gns.txt"): replace(
        BOXES["nvidia_smi_topo/two_gpu_phb.txt"], peers=False),
}  # fmt: skip


@pytest.mark.parametrize("names", TOGETHER, ids=lambda names: names[0])
@pytest.mark.parametrize("turn", [1, -1])
def test_samples_of_one_machine_together(names, turn):
    result = imported(*names[::turn])
    check(result.topology, TOGETHER[names])
    assert not [one for one in result.contradicts if "line 140" not in one]


def test_samples_of_two_machines_together_say_where_they_differ():
    result = imported("nccl_topo/aws_p4d.xml", "lspci/cx7_gen5_vvv_cut.txt")
    assert any("4 of nic" in one for one in result.contradicts)
    check(result.topology, BOXES["nccl_topo/aws_p4d.xml"])
    result = imported("nvidia_smi_topo/h100_8gpu_nv18_spaces.txt", "nvidia_smi_p2p/k80_4gpu.txt")
    assert any("8 of gpu" in one for one in result.contradicts)
    check(result.topology, BOXES["nvidia_smi_topo/h100_8gpu_nv18_spaces.txt"])


def eight_h100s() -> Imported:
    """topo -m, nvlink -s as of all eight GPUs, nvbandwidth and p2pBandwidthLatencyTest of servers with eight H100s."""
    one = content_of("nvidia_smi_nvlink/h100_status_gpu0.txt")
    links = "\n".join(one.replace("GPU 0:", f"GPU {number}:") for number in range(8))
    names = ("nvidia_smi_topo/h100_8gpu_nv18_spaces.txt", "nvbandwidth/h100_8gpu_v0.10_concatenated.txt", *P2P)
    found = [one for name in names for one in found_in(name)]
    return import_outputs([*found, *found_in("nvlink.txt", links)], name="box")


def test_shape_models_and_rates_of_four_tools():
    topology = eight_h100s().topology
    links = {f"nvlink{number}": (f"hbm{number}", "nvswitch0", 18 * 25.0) for number in range(8)}
    check(topology, Box(2, {"dram0": None, "dram1": None}, 8, 81559 * MIB, links, count=17, peers=True))
    assert topology.memories["hbm7"].rate.peak == pytest.approx(3352.4e9)
    pcie = topology.links["pcie7"]
    assert pcie.forward.sustained["pinned"].value == 55.33e9 and pcie.backward.sustained["pinned"].value == 55.20e9
    copies = topology.links["nvlink2"].forward.sustained["copy"]  # the row of GPU 2
    assert (copies.low, copies.high) == (395.07e9, 395.19e9)


# --- rates ---


def matches(measured: Measured, row: tuple[object, ...]) -> bool:
    told = (measured.source, measured.destination, measured.access, measured.when)
    return all(wanted in (None, one) for wanted, one in zip(row, told, strict=False)) and (
        measured.rate == pytest.approx(row[-1]))  # fmt: skip


@pytest.mark.parametrize("name", RATES)
def test_rates_of_samples(name):
    (found,) = found_in(name)
    count, rows = RATES[name]
    for row in rows:
        assert any(matches(one, row) for one in found.rates), row
    assert len(found.rates) == count
    assert rows or found.facts or found.delays
    assert all(0 < one.line <= content_of(name).count("\n") + 1 for one in found.rates)


# --- models ---


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_of_samples(name):
    weights = read_weights(SAMPLES / name)
    assert (weights.bytes, len(weights.tensors)) == WEIGHTS[name]


def test_the_header_of_a_sample_is_that_of_its_file():
    """Offsets are counted from the end of the header; what they say is what is read from the file."""
    told = json.loads(content_of("safetensors/tiny_mixed.header.json"))
    assert told.pop("__metadata__") == {"format": "pt"}
    tensors = read_weights(SAMPLES / "safetensors" / "tiny_mixed.safetensors").tensors
    assert {one.name: (one.type, list(one.shape or ()), one.bytes) for one in tensors} == {
        name: (entry["dtype"].lower(), entry["shape"], entry["data_offsets"][1] - entry["data_offsets"][0])
        for name, entry in told.items()
    }


@pytest.mark.parametrize("name", [*SIDE_FILES, *AS_TEXT])
def test_what_other_samples_of_models_say(name):
    content = content_of(name)
    if name in AS_TEXT:
        assert AS_TEXT[name] in content
    else:
        assert json.loads(content)["quantization"]["quant_algo"] == SIDE_FILES[name]
    kept = Path(__file__).parent / "data" / ("weights" if name in AS_TEXT else "hf_config")
    twin = kept / (Path(name).name if name in AS_TEXT else Path(name).relative_to("hf_config"))
    assert not twin.exists() or twin.read_text() == content


# --- hardware presets of others: beside our parts ---


def test_presets_of_others_agree_with_the_shipped_servers():
    """What others count for H100 and GB200, bytes/s and bytes: within 5 % of ours."""
    for file, server in (("aiconfigurator_h100_sxm", "dgx-h100"), ("aiconfigurator_gb200", "gb200-nvl72-tray")):
        text = content_of(f"hardware_presets/{file}.yaml")
        told = {key: float(re.search(rf"^ +{key}: (\d+)", text, re.MULTILINE)[1])
                for key in ("mem_bw", "mem_capacity", "intra_node_bw", "num_gpus_per_node", "bfloat16_tc_flops")}
        ours = load_topology(server)
        hbm = ours.memories["hbm0"]
        assert hbm.rate.peak == pytest.approx(told["mem_bw"], rel=0.05)
        assert hbm.capacity == pytest.approx(told["mem_capacity"], rel=0.05)
        assert ours.links["nvlink0"].forward.peak == pytest.approx(told["intra_node_bw"])
        assert sum(one.kind == "gpu" for one in ours.processors.values()) == told["num_gpus_per_node"]
        assert ours.processors["gpu0"].flops["bf16"].rated == pytest.approx(told["bfloat16_tc_flops"], rel=0.05)
    presets = json.loads(content_of("hardware_presets/inference_sim_hardware_config.json"))
    assert presets["H100"]["BwPeakTBs"] * 1e12 == pytest.approx(load_topology("dgx-h100").memories["hbm0"].rate.peak,
                                                                rel=0.002)  # fmt: skip


# --- the way round, and evaluated ---


def again(result: Imported) -> None:
    topology = result.topology
    same = read_topology(parse_document(result.text, "again.yaml"), name=topology.name)
    assert same == topology and topology_text(same) == topology_text(topology)


@pytest.mark.parametrize("name", BOXES)
def test_an_import_reads_back_equal(name):
    again(imported(name))


@pytest.mark.parametrize("names", TOGETHER, ids=lambda names: names[0])
def test_imports_of_several_read_back_equal(names):
    again(imported(*names))


@pytest.mark.parametrize("name", RATES)
def test_rates_on_a_server_read_back_equal(name):
    again(import_outputs(found_in(name), onto=load_topology("dgx-h100")))


def ran(words: Iterable[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = cli.main(list(words))
    told = capsys.readouterr()
    return code, " ".join(f"{told.out}\n{told.err}".split())


@pytest.mark.parametrize("name", BOXES)
def test_an_import_is_evaluated_or_says_what_is_missing(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert ran(["topology", "import", str(SAMPLES / name), "-o", "box.yaml"], capsys)[0] == 0
    box = BOXES[name]
    if not box.gpus:
        code, told = ran(["step", "llama-3.1-8b:q8_0", "--on", "./box.yaml"], capsys)
        assert code == 2 and "has no GPU" in told
        return
    code, told = ran(["step", "llama-3.1-8b:q8_0", "--on", "./box.yaml", "--compute", "gpu0"], capsys)
    assert code == 0
    if load_topology(tmp_path / "box.yaml").memories["hbm0"].rate.unknown:
        assert re.search(r"hbm0: rate unknown, so it is not counted|hbm0[^:]*: rate unknown", told)
    else:
        assert re.search(r"hbm0 [\d.]+ GB", told)


PLAN = """
topology: ./box.yaml
model: {name: llama-3.1-8b, weights: q8_0}
workload: {phase: decode, batch: 1, context: 4096}
placement: {weights: {dram0: rest}, kv: {hbm0: rest}, compute: gpu0}
"""
# 32 layers of 218,112,000 weights and a head of 128,256 x 4,096, at 8.5 bits; norms in 4 bytes; the embedding's row.
STREAMED = 7_416_578_048 + 558_186_496 + 8_192


@pytest.mark.parametrize(("box", "resource", "rate"), [
    ("power8", "nvlink0.hbm0", 40e9), ("h100", "pcie0.hbm0", None), ("p4d", "up0.sw0", 8e9 * 16 / 8 * 128 / 130),
])  # fmt: skip
def test_weights_from_host_memory_over_the_link_that_was_imported(box, resource, rate, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    result = eight_h100s() if box == "h100" else imported(
        {"power8": "hwloc/power8_4gpu_nvlink_v2.xml", "p4d": "nccl_topo/aws_p4d.xml"}[box])  # fmt: skip
    Path("box.yaml").write_text(result.text)
    Path("plan.yaml").write_text(PLAN)
    assert cli.main(["step", "plan.yaml", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (one,) = [one for one in found["resources"] if one["name"] == resource]
    assert one["load"] == STREAMED
    if rate is None:  # what was measured, and no peak
        assert (one["peak"], one["sustained"]) == (None, 55.37e9)
    else:
        assert found["floor"]["seconds"] == pytest.approx(STREAMED / rate)


# --- nothing personal ---

MARK, HEX = "zqsecret", "deadbeef"
PERSONAL = (  # what stands before a name or number, and the name or number
    (r'(name="(?:HostName|NVIDIASerial|SerialNumber|DMI\w*(?:Serial|AssetTag|UUID))" value=")[^"]+', MARK),
    (r"(GPU-)[0-9a-f]{8}", HEX), (r"()(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b", "de:ad:be:ef:00:01"),
    (r'((?:guid|host_hash)="0x)[0-9a-f]{12,16}', HEX), (r'("(?:SerialNumber|HostID)" ?: ?")[^"]+', MARK),
    (r'("(?:HostNQN|SubsystemNQN)" ?: ?"nqn[^"]*:)[^":]+', MARK), (r"(\[SN\] Serial number: )\w+", MARK),
    (r"(Pid +\d+ on +)\w+", MARK), (r"((?:MPI startup\(\): )\d+ +\d+ +)\w+", MARK), (r"()\bnode[01]\b(?= +\{)", MARK),
    (r'("filename" ?: ?"/data/)\w+', MARK), (r"(\['/)\w+", MARK), (r"(^)host0$", MARK), (r"(^)hostname(?=:\d+:)", MARK),
    (r'("mountpoints": \[\s+")/(?=")', f"/{MARK}"), (r"(HYDRA_UUID=)[0-9a-f]{8}", HEX),
)  # fmt: skip
HIDDEN = (MARK, HEX, "de:ad:be:ef")


def marked(content: str) -> str:
    for sign, word in PERSONAL:
        content = re.sub(sign, rf"\g<1>{word}", content, flags=re.MULTILINE)
    return content


def test_the_signs_of_what_is_personal_are_in_the_samples():
    everything = [content_of(name) for name in OF_TOOLS]
    for sign, _ in PERSONAL:
        assert any(re.search(sign, content, re.MULTILINE) for content in everything), sign


WITH_NAMES = [name for name in sorted(OF_TOOLS) if SAMPLES.is_dir() and marked(content_of(name)) != content_of(name)]


@pytest.mark.parametrize("name", WITH_NAMES)
def test_nothing_personal_is_written_or_told(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("given.txt").write_text(marked(content_of(name)))
    onto = [] if name in BOXES else ["--onto", "dgx-h100"]
    for more in ([], ["--json"], ["-o", "box.yaml"]):
        cli.main(["topology", "import", "given.txt", *onto, *more])
        told = capsys.readouterr()
        for hidden in HIDDEN:
            assert hidden not in (told.out + told.err).lower()
    written = Path("box.yaml").read_text().lower() if Path("box.yaml").exists() else ""
    assert not any(hidden in written for hidden in HIDDEN) and (bool(written) == (name not in REFUSED))


# --- damaged ---


@pytest.mark.parametrize("name", [*BOXES, *RATES, *REFUSED])
@settings(max_examples=6)
@given(data=st.data())
def test_damaged_samples_are_imported_or_refused(name, data):
    content = data.draw(damage(content_of(name)))
    try:
        with within(1):
            found = read_content(content)
        result = import_outputs(found, onto=None if name in BOXES else load_topology("dgx-h100"))
    except OffloadError:
        return
    again(result)
