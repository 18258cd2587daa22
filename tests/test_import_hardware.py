"""Import: rates of other hardware, models behind PCI numbers, drives and relations that are not what they seem."""

from __future__ import annotations

import json

import pytest

from offload.documents import load_topology, parse_document
from offload.documents.topology_file import read_topology
from offload.importing import import_outputs
from offload.importing.gpus import part_of
from offload.importing.hardware import board, families, other_model
from offload.readers.tools import drives, fio, numactl
from offload.readers.tools.drive_names import model_of, transport_of
from offload.readers.tools.finding import (
    Device,
    Fact,
    Finding,
    Joint,
    Machine,
    Measured,
    Near,
    Numa,
    PciePort,
    facts_of,
)
from offload.readers.tools.fio_files import place_of
from offload.readers.tools.pci_ids import MODELS
from offload.readers.tools.pci_ids import model_of as gpu_of
from offload.readers.tools.text import clean

GIB = 2**30


def measured(model: str, *rates: Measured, count: int = 1) -> Finding:
    facts = tuple(Fact(f"model of gpu{number}", model, "", number + 1) for number in range(count))
    return Finding("some test", rates=rates, facts=facts, file="rates.txt")


def pinned(rate: float, source: str = "host", destination: str = "gpu0") -> Measured:
    return Measured(source, destination, rate, "pinned", line=9)


# Other hardware


@pytest.mark.parametrize(
    ("model", "server", "same"),
    [
        ("Tesla K80", "dgx-h100", False), ("NVIDIA H100 80GB HBM3", "dgx-h100", True),
        ("NVIDIA H100 PCIe", "dgx-h100", False), ("NVIDIA H100 NVL", "dgx-h100", False),
        ("NVIDIA H200", "dgx-h100", False), ("NVIDIA H20-3e", "dgx-h100", False),
        ("Vega 10 [Radeon PRO WX 8100]", "mi300x-8gpu", False), ("AMD Instinct MI300X", "mi300x-8gpu", True),
        ("AMD Instinct MI300A", "mi300x-8gpu", False), ("NVIDIA A100-SXM4-40GB", "dgx-a100", False),
        ("NVIDIA A100-SXM4-80GB", "dgx-a100", True), ("NVIDIA A100-SXM4-40GB", "aws-p4d-24xlarge", True),
        ("Tesla V100-PCIE-32GB", "dgx1-v100", False), ("Tesla V100-SXM2-32GB", "dgx1-v100", True),
        ("NVIDIA GeForce RTX 4090", "desktop-4090", True), ("NVIDIA GeForce RTX 4090 D", "desktop-4090", False),
        ("NVIDIA GeForce RTX 4070 Ti", "desktop-4090", False), ("Tesla T4", "gcp-n1-t4-flexgen", True),
        ("NVIDIA L40S", "l40s-8gpu-pcie", True), ("NVIDIA L40", "l40s-8gpu-pcie", False),
        ("NVIDIA GH200 480GB", "gh200", True), ("NVIDIA Graphics Device", "dgx-h100", True),
        ("NVIDIA B200", "dgx-b200", True), ("NVIDIA A10G", "aws-g5-48xlarge", True),
        ("NVIDIA A100 80GB PCIe", "azure-nc96ads-a100-v4", True), ("NVIDIA GB200", "gb200-nvl72-tray", True),
        ("AMD Instinct MI250X", "frontier-mi250x-node", True), ("Tesla V100-SXM2-16GB", "aws-p3-16xlarge", True),
        ("Tesla V100-SXM2-32GB", "aws-p3-16xlarge", False), ("NVIDIA A2", "gcp-a2-highgpu-8g", False),
        ("NVIDIA A100 80GB PCIe", "dgx-a100", False), ("NVIDIA GeForce RTX 3090", "ws-2x3090-nvlink", True),
    ],
)  # fmt: skip
def test_which_models_a_server_has(model, server, same):
    assert (other_model(model, load_topology(server)) is None) is same


def test_words_of_models():
    assert families("DGX H100, 8 x H100 SXM 80 GB, 2 x Xeon Platinum 8480C, AWS p4d") == {"h100"}
    assert families("Tesla K40m") == {"k40"} and families("8 x CPU, E5-2698 v4, DDR5-4800") == frozenset()
    assert families("Google Cloud a2-highgpu-8g, 8 x A100 SXM 40 GB, AWS g5, p3") == {"a100"}
    assert families("RTX 4070 Ti SUPER") == {"rtx4070tisuper"}
    assert board("NVIDIA H100 80GB HBM3") == "sxm" and board("8 x L40S, two for each PCIe 5 switch") == ""


def test_rates_of_other_gpus_are_told_and_not_written():
    onto = load_topology("dgx-h100")
    imported = import_outputs([measured("Tesla K80", pinned(10.3e9))], onto)
    assert imported.topology == onto and not imported.written
    assert any("rates.txt:1" in text and "Tesla K80" in text and "H100" in text for text in imported.contradicts)
    same = import_outputs([measured("NVIDIA H100 80GB HBM3", pinned(55e9), count=8)], onto)
    assert same.topology.links["pcie0"].forward.sustained["pinned"].value == 55e9 and not same.contradicts


def test_more_gpus_than_the_server_has_are_another_machine():
    onto = load_topology("desktop-4090")
    model = "NVIDIA GeForce RTX 4090"
    imported = import_outputs([measured(model, pinned(24e9), count=2)], onto)
    assert imported.topology == onto and any("measured on 2 GPUs" in text for text in imported.contradicts)
    fewer = import_outputs([measured("NVIDIA H100 80GB HBM3", pinned(55e9), count=2)], load_topology("dgx-h100"))
    assert any("the 2 GPUs that it names are gpu0, gpu1 of the 8 here" in text for text in fewer.assumed)


def test_a_topology_that_names_no_model_takes_any_rates():
    gpu = Device("gpu0", "gpu", 0, "", None, 0, 24 * GIB, PciePort(4, 16))
    shape = Finding("lspci", Machine((Numa(0, GIB, 8, 0),), (gpu,)))
    imported = import_outputs([shape, measured("Tesla K80", pinned(25e9))])
    assert imported.topology.links["pcie0"].forward.sustained["pinned"].value == 25e9


@pytest.mark.parametrize(("part", "model", "same"), [
    ("l40s", "NVIDIA L40S", True), ("l40s", "NVIDIA L40", False), ("h100-sxm", "NVIDIA H100 80GB HBM3", True),
    ("h100-sxm", "NVIDIA H100 PCIe", False), ("rtx-3090", "NVIDIA GeForce RTX 4090", False),
    ("rtx-4090", "NVIDIA GeForce RTX 4090", True), ("a100-80-sxm", "NVIDIA A100-SXM4-80GB", True),
    ("mi300x", "AMD Instinct MI300X", True),
])  # fmt: skip
def test_a_topology_without_a_model_in_its_title_is_known_by_its_parts(part, model, same):
    text = f"""
title: mine
switches: {{socket0: {{kind: socket}}}}
memories: {{dram0: {{kind: dram, at: socket0, capacity: 1 TB, rate: unknown}}, hbm0: {{use: {part}}}}}
processors: {{cpu0: {{kind: cpu, memory: dram0}}, gpu0: {{use: {part}, memory: hbm0}}}}
links: {{pcie0: {{between: [socket0, hbm0], pcie: 5 x16}}}}
"""
    topology = read_topology(parse_document(text, "mine.yaml"), name="mine")
    assert (other_model(model, topology) is None) is same


def test_a_shape_of_other_gpus_is_told():
    devices = tuple(Device(f"gpu{n}", "gpu", n, "PCI id 10de:102d", line=n + 1) for n in range(8))
    imported = import_outputs([Finding("lspci", Machine(devices=devices), file="x")], load_topology("dgx-h100"))
    assert any(text.startswith("x:1: NVIDIA Tesla K80") for text in imported.contradicts)


def test_a_rate_far_below_its_peak_is_told():
    onto = load_topology("dgx-h100")
    host = import_outputs([measured("", pinned(12e9))], onto)
    assert host.topology.links["pcie0"].forward.sustained["pinned"].value == 12e9
    assert any("less than a quarter of the peak of pcie0" in text for text in host.contradicts)
    pageable = Measured("host", "gpu0", 9e9, "pageable")
    assert not import_outputs([measured("", pageable)], onto).contradicts


def test_a_rate_over_pcie_is_not_put_onto_nvlink():
    onto = load_topology("dgx-h100")
    imported = import_outputs([measured("", Measured("gpu0", "gpu1", 50e9, "copy"))], onto)
    assert imported.topology == onto and not imported.written
    assert any("went another way" in text for text in imported.contradicts)


def test_a_rate_above_the_peak_is_a_contradiction():
    imported = import_outputs([measured("", Measured("gpu0", "gpu1", 500e9, "copy"))], load_topology("dgx-h100"))
    assert not imported.written and any("above the peak" in text for text in imported.contradicts)


# Models by PCI numbers


def test_models_behind_pci_numbers():
    assert gpu_of("PCI id 10de:2330") == "NVIDIA H100 SXM5 80GB" and gpu_of("PCI id 1002:74a1") == "AMD Instinct MI300X"
    assert gpu_of("NVIDIA Corporation Device 2330") == "NVIDIA H100 SXM5 80GB"
    assert gpu_of("Advanced Micro Devices, Inc. [AMD/ATI] Device 74a1") == "AMD Instinct MI300X"
    assert gpu_of("Device 738c") == "AMD Instinct MI100"
    assert gpu_of("PCI id 10de:0001") is None and gpu_of("NVIDIA H100 80GB HBM3") is None and gpu_of("") is None
    assert gpu_of("PCI id 1002:2330") is None


def test_parts_by_pci_numbers_and_by_the_names_of_lspci():
    assert part_of(gpu_of("PCI id 10de:2330") or "") == "h100-sxm"
    assert part_of(gpu_of("PCI id 10de:20b0") or "") == "a100-40-sxm"
    assert part_of(gpu_of("PCI id 10de:1eb8") or "") == "t4" and part_of(gpu_of("PCI id 1002:74a1") or "") == "mi300x"
    assert part_of("NVIDIA Corporation GH100 [H100 SXM5 80GB]") == "h100-sxm"
    assert part_of(gpu_of("PCI id 10de:2331") or "") is None and part_of("AMD Instinct MI300X HF") is None
    for models in MODELS.values():
        assert all(part_of(model) is None for model in models.values() if " or " in model)


def test_gpus_by_pci_number_have_their_part():
    devices = tuple(Device(f"0000:{n}0:00.0", "gpu", n, "PCI id 10de:2330", line=n) for n in range(1, 3))
    imported = import_outputs([Finding("NCCL topology XML", Machine(devices=devices), file="x")])
    assert imported.topology.memories["hbm0"].rate.peak == pytest.approx(3352.4e9)
    assert any("x:1: PCI id 10de:2330 is NVIDIA H100 SXM5 80GB" in text and "(2 of them)" in text
               for text in imported.assumed)  # fmt: skip
    assert imported.topology.title == "Imported server: 2 x NVIDIA H100 SXM5 80GB"


# Drives


LSBLK = [
    {"name": "sda", "type": "disk", "tran": "usb", "size": 64 * 10**9, "model": "Ultra_4C530001234567",
     "serial": "4C530001234567"},
    {"name": "sdb", "type": "disk", "tran": "sata", "size": 4 * 10**12, "model": "Samsung SSD 870 EVO 4TB"},
    {"name": "vda", "type": "disk", "tran": None, "size": 4 * 10**12, "model": None},
    {"name": "sdc", "type": "disk", "tran": "iscsi", "size": 4 * 10**12, "model": "LUN"},
    {"name": "nvme0n1", "type": "disk", "tran": "nvme", "size": 4 * 10**12, "model": "SAMSUNG MZQL23T8 S64HNE0T123456"},
]  # fmt: skip


def test_drives_are_attached_as_lsblk_says():
    finding = drives.read(clean(json.dumps({"blockdevices": LSBLK})))
    assert finding.tool == "lsblk -J"
    imported = import_outputs([finding])
    kinds = {name: link.technology for name, link in imported.topology.links.items()}
    assert kinds == {"nvme0": "pcie", "usb0": "", "sata1": "sata", "virtio2": ""}
    assert any("sdc is reached over iscsi" in text for text in imported.unknown)
    assert any("disk2 is attached over virtio" in text for text in imported.unknown)
    for secret in ("4C530001234567", "S64HNE0T123456"):
        assert secret not in imported.text and secret not in json.dumps(imported.to_json())


def test_models_of_drives_without_serial_numbers():
    keep = ("KXG60ZNV256G TOSHIBA", "LENSE20512GMSP34MEAT2TA", "SAMSUNG MZQL23T8HCLS-00A07", "ST16000NM001G-2KK103",
            "INTEL SSDPE2KX040T8", "WDS100T1X0E-00AFY0", "Micron_7450_MTFDKCC3T8TFR", "CT1000P3PSSD8")  # fmt: skip
    for model in keep:
        assert model_of(model, {}) == model.replace("_", " ")
    drop = ("S4EWNX0M123456", "PHLJ123456789ABC", "WD-WCC4N1234567", "QM00001", "0x5000c500a1b2c3d4", "eui.0025385a",
            "S/N: ABC12", "Serial No. XYZ1")  # fmt: skip
    for serial in drop:
        assert model_of(f"Example Drive {serial}", {}) == "Example Drive", serial
    assert model_of("Example AB12CD", {"SerialNumber": " AB12CD "}) == "Example" and model_of(None, {}) == ""
    assert transport_of("vda", None) == "virtio" and transport_of("sda", None) == transport_of("sda", "pcie") == ""


@pytest.mark.parametrize(
    ("file", "disks", "place"),
    [
        ("/dev/nvme2n1", None, ("drive2", 1)), ("/dev/nvme0n1:/dev/nvme1n1", None, ("drives", 2)),
        ("/dev/nvme0n1p1:/dev/nvme0n1p2", None, ("drive0", 1)), ("/dev/sda1", None, ("drive", 1)),
        ("/data/file", ("nvme3n1",), ("drive3", 1)), ("/data/file", ("dm-0", "nvme3n1"), ("drive3", 1)),
        ("/data/file", ("vda",), ("drive", 1)), ("/data/a", ("nvme0n1", "nvme1n1"), ("drives", 2)),
    ],
)  # fmt: skip
def test_fio_on_drives(file, disks, place):
    assert place_of([{"filename": file}], disks) == place


@pytest.mark.parametrize(
    ("file", "disks", "why"),
    [
        ("/dev/md0", ("md0", "nvme0n1", "nvme1n1"), "a RAID"),
        ("/data/file", ("md127", "nvme0n1", "nvme1n1"), "a RAID"),
        ("/dev/zram0", None, "memory"), ("/dev/shm/file", None, "memory"), ("/tmp/file", None, "no disk below"),
        ("/data/file", ("dm-0", "nvme0n1", "nvme1n1"), "a volume of 2 disks"), ("/dev/nbd0", None, "another host"),
        ("/dev/loop0", None, "no drive of its own"), ("/data/x", ("zram0",), "memory"),
    ],
)  # fmt: skip
def test_fio_on_what_is_no_drive(file, disks, why):
    place = place_of([{"filename": file}], disks)
    assert isinstance(place, str) and why in place


def test_fio_on_a_raid_gives_a_fact_and_no_rate():
    run = {
        "fio version": "fio-3.35", "disk_util": [{"name": "md0"}, {"name": "nvme0n1"}, {"name": "nvme1n1"}],
        "jobs": [{"jobname": "x", "groupid": 0, "error": 0, "read": {"bw_bytes": 10**10, "io_bytes": 10**11},
                  "job options": {"filename": "/data/file", "direct": "1", "bs": "1m"}}],
    }  # fmt: skip
    finding = fio.read(clean(json.dumps(run)))
    assert not finding.rates and any(fact.value == 10**10 for fact in finding.facts)
    assert any("md0, a RAID" in text for text in finding.odd)
    assert place_of([{"filename": "/data/file", "disk_util": "0"}], None) is None and place_of([], None) is None


# Relations, lines, names


def nears(relation: str, first: int, second: int) -> list[str]:
    devices = (Device("gpu0", "gpu", 0, numa=first), Device("gpu1", "gpu", 1, numa=second))
    near = Near("gpu0", "gpu1", relation, line=3)  # type: ignore[arg-type]
    machine = Machine((Numa(0, GIB, 8, 0), Numa(1, GIB, 8, 1)), devices, nears=(near,))
    return [text for text in import_outputs([Finding("topo", machine, file="t")]).contradicts if text.startswith("t:3")]


def test_relations_against_numa_nodes_are_told():
    for relation in ("PIX", "PXB", "PHB", "NODE"):
        assert not nears(relation, 0, 0)
        (text,) = nears(relation, 0, 1)
        assert relation in text and "NUMA nodes 0 and 1" in text
    assert not nears("SYS", 0, 1) and not nears("SYS", 1, 1)  # real machines print SYS within a node


def test_staged_copies_are_said_to_be_linked_only_where_they_are():
    rate = Measured("gpu0", "gpu1", 9e9, "copy", note="P2P disabled, staged through host memory")
    devices = tuple(Device(f"gpu{n}", "gpu", n, port=PciePort(4, 16)) for n in range(2))
    apart = import_outputs([Finding("t", Machine(devices=devices), (rate,))])
    assert any(text.endswith("staged in host memory") for text in apart.not_used)
    linked = import_outputs([Finding("t", Machine(devices=devices, joints=(Joint("gpu0", "gpu1", "nvlink", 4, 1e11),)),
                                     (rate,))])  # fmt: skip
    assert any("though the GPUs are linked here" in text for text in linked.not_used)


@pytest.mark.parametrize(("rate", "told"), [(25.05e9, False), (25.4e9, False), (26e9, True)])
def test_small_rises_of_a_link_above_are_no_contradiction(rate, told):
    machine = Machine((Numa(0, GIB, 8, 0),), (Device("s", "pcie_switch", numa=0, port=PciePort(4, 16)),
                                              Device("g", "gpu", 0, parent="s", port=PciePort(4, 16))))  # fmt: skip
    first = import_outputs([Finding("lspci", machine), measured("", pinned(25e9))]).topology
    again = import_outputs([measured("", pinned(rate))], first)
    assert any("raised to that" in text for text in again.contradicts) is told
    assert again.topology.links["up0"].forward.sustained["pinned"].value == rate


def test_ends_that_print_alike_are_not_told():
    shape = Finding("t", Machine(devices=(Device("gpu0", "gpu", 0, port=PciePort(5, 16)),)))
    rates = [Measured("host", "gpu0", rate, "pinned", size=2**20, line=1) for rate in (55.31e9, 55.32e9, 55.33e9)]
    imported = import_outputs([shape, measured("", *rates)])
    assert {one.value for one in imported.written if "sustained" in one.what} == {"55.3 GB/s"}


def test_one_gpu_is_no_plural():
    imported = import_outputs([Finding("t", Machine(devices=(Device("gpu0", "gpu", 0),)))])
    assert imported.topology.title == "Imported server: 1 GPU"


def test_the_line_of_a_size_is_its_own():
    text = "available: 1 nodes (0)\nnode 0 cpus: 0 1\nnode 0 size: 1000 MB\nnode 0 free: 1 MB\n"
    finding = numactl.read(clean(text))
    assert {fact.what: fact.line for fact in facts_of(finding)}["memory of NUMA node 0"] == 3
    (written,) = [one for one in import_outputs([finding]).written if one.what == "dram0"]
    assert written.origin.endswith(":3")
