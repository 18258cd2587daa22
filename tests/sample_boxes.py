"""What each sample of a machine's shape is as a topology, and which rates each sample of a benchmark holds.

Worked out by hand from the files: sizes and rates are what the lines say, times the unit that the tool means.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MIB, GIB = 2**20, 2**30
GEN1_X1, GEN3_X8, GEN3, GEN4, GEN5 = 0.25, 7.8769, 15.7538, 31.5077, 63.0154  # GB/s one way; x16 where not said
ANY: Any = object()  # known or not, by what the program knows of a PCI id or a model: not what the file says

# What a link is: its two ends, and the rate [GB/s] of each direction or None where no line tells it.
Ends = tuple[str, str, Any]


@dataclass(frozen=True)
class Box:
    """An imported machine: how many sockets, GPUs, NICs and links that are no drive's; bytes of host memories, of each
    GPU and of drives (None: unknown); some links; whether GPUs reach each other; words that must be told."""

    sockets: int
    host: Mapping[str, int | None]
    gpus: int = 0
    hbm: Any = None
    links: Mapping[str, Ends] = field(default_factory=dict)
    count: int = 0
    nics: int = 0
    drives: tuple[int | None, ...] = ()
    peers: bool | None = None
    says: tuple[str, ...] = ()


def unknown(*names: str) -> dict[str, None]:
    return dict.fromkeys(names)


TWO, ONE = unknown("dram0", "dram1"), unknown("dram0")
UPI: dict[str, Ends] = {"upi0": ("socket0", "socket1", None)}
TOPO = "nvidia_smi_topo/"
BOXES = {
    # hwloc: bytes of local_memory; Size of a block device counts KiB
    "hwloc/small_vm_v2.xml": Box(
        1, {"dram0": 6134386688}, links={"slot0": ("socket0", "nic0", None)}, count=1, nics=1,
        drives=(268435456 * 1024,), says=("the rate of the PCIe link of 1 (0000:00:03.0)",),
    ),
    "hwloc/24core_2numa_pci_v2.xml": Box(
        2, {"dram0": 19316633600, "dram1": 19327348736}, 3, ANY, UPI | {  # three GPUs at 2.5 GT/s x16: idle
            "pcie0": ("socket0", "hbm0", None), "pcie1": ("socket1", "hbm1", None), "pcie2": ("socket1", "hbm2", None),
            "slot0": ("socket0", "nic0", 0.2), "slot2": ("socket0", "nic2", 2.0),
        }, count=7, nics=3, drives=(None,), peers=ANY,
        says=("0000:06:00.0's link: 4 GB/s is PCIe 1 x16, as an idle GPU shows", "(1002:515e) computes"),
    ),
    "hwloc/cxl_dax_v2.xml": Box(
        1, {"dram0": 3061719040}, links={"slot0": ("socket0", "nic0", GEN1_X1)}, count=1, nics=1,
        drives=(10485760 * 1024,), says=("CXL memory of 0000:11:00.0, volatile",),
    ),
    "hwloc/dgx2_16gpu_v2.xml": Box(
        2, {"dram0": 810234351616, "dram1": 811737923584}, 16, None, UPI | {
            "up0": ("socket0", "sw0", GEN3), "up1": ("sw0", "sw1", GEN3), "up2": ("sw0", "sw2", GEN3),
            "up3": ("socket0", "sw3", GEN3), "up7": ("socket1", "sw7", GEN3), "up11": ("socket1", "sw11", GEN3),
            "pcie0": ("sw1", "hbm0", GEN3), "pcie1": ("sw1", "hbm1", GEN3), "pcie2": ("sw2", "hbm2", GEN3),
            "pcie8": ("sw8", "hbm8", GEN3), "pcie15": ("sw13", "hbm15", GEN3),
            "nvlink0": ("hbm0", "nvswitch0", 6 * 25.0), "nvlink15": ("hbm15", "nvswitch0", 6 * 25.0),
        }, count=1 + 12 + 16 + 16,  # two switches without devices are left out
        says=("the memory of GPUs: 16", "how NVSwitches are joined", "called like the GPU Tesla V100-SXM3-32GB-H"),
    ),
    "hwloc/heteromem_v3.xml": Box(
        1, {f"dram{n}": GIB for n in range(4)} | {f"mem{n}": 2 * GIB for n in (4, 5, 6, 7)},
        says=("PCIe devices: the file has none",),
    ),
    "hwloc/power8_4gpu_nvlink_v2.xml": Box(
        2, {"dram0": 68556816384, "dram1": 68450713600}, 4, 16671616 * 1024, UPI | {
            "pcie0": ("socket0", "hbm0", GEN3_X8), "pcie3": ("socket1", "hbm3", GEN3_X8),
            "nvlink0_1": ("hbm0", "hbm1", 40.0), "nvlink2_3": ("hbm2", "hbm3", 40.0),
            "nvlink0": ("hbm0", "socket0", 40.0), "nvlink1": ("hbm1", "socket0", 40.0),
            "nvlink2": ("hbm2", "socket1", 40.0), "nvlink3": ("hbm3", "socket1", 40.0),
        }, count=1 + 4 + 6, says=("tells 15.7538 GB/s, the port above it 7.87692: the lower is taken",),
    ),
    # NCCL and RCCL: generations and lanes; no memory sizes
    "nccl_topo/aws_g5_minimal.xml": Box(
        2, TWO, links=UPI, count=1, says=("what these devices are, no class is given: 9", "memory sizes"),
    ),
    "nccl_topo/aws_p4d.xml": Box(
        2, TWO, 8, ANY, UPI | {
            "up0": ("socket0", "sw0", GEN3), "up1": ("socket0", "sw1", GEN3), "up3": ("socket1", "sw3", GEN3),
            "pcie0": ("sw0", "hbm0", GEN3), "pcie1": ("sw0", "hbm1", GEN3), "pcie7": ("sw3", "hbm7", GEN3),
            "slot0": ("sw0", "nic0", GEN3), "slot3": ("sw3", "nic3", GEN3),
        }, count=1 + 4 + 8 + 4, nics=4, peers=ANY, says=("invented devices", "without <gpu> elements"),
    ),
    "nccl_topo/azure_ncv4_a100.xml": Box(
        4, unknown("dram0", "dram1", "dram2", "dram3"), 4, ANY,
        {"pcie0": ("socket0", "hbm0", None), "pcie3": ("socket3", "hbm3", None), "slot0": ("socket0", "nic0", None)},
        count=6 + 4 + 1, nics=1, peers=ANY, says=("leads to itself (count 12)", "the PCIe generation or lanes of 4"),
    ),
    "nccl_topo/azure_ndv2_v100.xml": Box(
        2, TWO, 8, None, UPI | {
            "pcie0": ("socket0", "hbm0", GEN4), "pcie4": ("socket1", "hbm4", GEN4), "slot0": ("socket0", "nic0", GEN4),
        }, count=1 + 8 + 1, nics=1, says=("without <gpu> elements",),
    ),
    "nccl_topo/azure_ndv4_a100.xml": Box(  # domains 1, 2: node 1; 3, 4: node 0; b, c: node 3; d, e: node 2
        4, unknown("dram0", "dram1", "dram2", "dram3"), 8, None, {
            "up0": ("socket0", "sw0", GEN4), "up3": ("socket3", "sw3", GEN4), "pcie0": ("sw1", "hbm0", GEN4),
            "pcie2": ("sw0", "hbm2", GEN4), "pcie4": ("sw3", "hbm4", GEN4), "pcie6": ("sw2", "hbm6", GEN4),
        }, count=6 + 4 + 8 + 8, nics=8, says=("invented devices", "GPUs are numbered in the order of their PCI"),
    ),
    "nccl_topo/rccl_mi300x_8gpu.xml": Box(
        2, TWO, 8, ANY, UPI | {
            "up0": ("socket0", "sw0", GEN5), "up1": ("sw0", "sw1", GEN5), "up2": ("sw1", "sw2", GEN5),
            "up12": ("socket1", "sw12", GEN5), "pcie0": ("sw2", "hbm0", GEN5), "pcie7": ("sw23", "hbm7", GEN5),
            "xgmi0_1": ("hbm0", "hbm1", ANY), "xgmi6_7": ("hbm6", "hbm7", ANY), "slot0": ("sw0", "nic0", GEN5),
            "slot7": ("sw21", "nic7", GEN5),
        }, count=1 + 24 + 8 + 28 + 8, nics=8, peers=ANY, says=("memory sizes",),
    ),
    "nccl_topo/rccl_mi50_4gpu_comment_first.xml": Box(
        1, ONE, 4, ANY, {
            "up0": ("socket0", "sw0", GEN3), "up1": ("sw0", "sw1", GEN3), "pcie0": ("sw1", "hbm0", GEN4),
            "pcie3": ("sw4", "hbm3", GEN4), "xgmi0_1": ("hbm0", "hbm1", ANY), "xgmi0_2": ("hbm0", "hbm2", ANY),
            "xgmi1_3": ("hbm1", "hbm3", ANY), "xgmi2_3": ("hbm2", "hbm3", ANY), "slot0": ("sw0", "nic0", GEN3),
        }, count=5 + 4 + 4 + 1, nics=1, peers=ANY, says=("memory sizes",),
    ),
    # nvidia-smi topo -m: relations alone
    TOPO + "gb200_4gpu_6nic_ansi.txt": Box(
        2, TWO, 4, None, UPI | {
            "pcie1": ("socket0", "hbm1", None), "pcie2": ("socket1", "hbm2", None),
            "nvlink0": ("hbm0", "nvswitch0", None), "nvlink3": ("hbm3", "nvswitch0", None),
        }, count=1 + 4 + 4 + 6, nics=6, says=("rate of NV18: it takes the GPU's model", "nic0: taken to hang at"),
    ),
    TOPO + "h100_8gpu_nv18_spaces.txt": Box(
        2, TWO, 8, None, UPI | {
            "pcie3": ("socket0", "hbm3", None), "pcie4": ("socket1", "hbm4", None),
            "nvlink7": ("hbm7", "nvswitch0", None),
        }, count=1 + 8 + 8, says=("rate of NV18: it takes the GPU's model",),
    ),
    TOPO + "pcie_8gpu_all_sys_tabs.txt": Box(
        2, TWO, 8, None, UPI | {"pcie3": ("socket0", "hbm3", None), "pcie4": ("socket1", "hbm4", None)}, count=9,
    ),
    TOPO + "rtx4090_8gpu_2nic_tabs.txt": Box(  # the NICs are PIX to each other and PHB to GPU6, of node 1
        2, TWO, 8, None, UPI | {
            "up0": ("socket1", "sw0", None), "slot0": ("sw0", "nic0", None), "slot1": ("sw0", "nic1", None),
            "pcie3": ("socket0", "hbm3", None), "pcie6": ("socket1", "hbm6", None),
        }, count=1 + 8 + 1 + 2, nics=2, says=("nic0 hangs at NUMA node 1: it is PHB or nearer",),
    ),
    TOPO + "two_gpu_nv2_no_gpu_numa_col.txt": Box(
        1, ONE, 2, None, {"nvlink0_1": ("hbm0", "hbm1", None), "pcie1": ("socket0", "hbm1", None)}, count=3,
        says=("NUMA node of gpu0: line 2 says 'N/A'", "rate of NV2: it takes the GPU's model"),
    ),
    TOPO + "two_gpu_phb.txt": Box(1, ONE, 2, None, {"pcie0": ("socket0", "hbm0", None)}, count=2),
    # nvidia-smi topo -p2p, nvlink -s
    "nvidia_smi_p2p/h100_8gpu_ok.txt": Box(1, ONE, 8, count=8, peers=True),
    "nvidia_smi_p2p/k80_4gpu.txt": Box(1, ONE, 4, count=4, says=("gpu0 exchanges bytes directly with",)),
    "nvidia_smi_p2p/l4_2gpu_cns.txt": Box(1, ONE, 2, count=2, peers=False, says=("copies through host memory",)),
    "nvidia_smi_p2p/rtx5090_2gpu_gns.txt": Box(1, ONE, 2, count=2, peers=False),
    "nvidia_smi_p2p/single_gpu_ansi.txt": Box(1, ONE, 1, count=1),
    "nvidia_smi_nvlink/h100_status_gpu0.txt": Box(  # 80 GB as nvidia-smi shows them: 81,559 MiB
        1, ONE, 1, 81559 * MIB, {"pcie0": ("socket0", "hbm0", None)}, count=1, peers=ANY,
        says=("is the shipped part h100-sxm", "where the NVLinks lead"),
    ),
    # rocm-smi
    "rocm_smi/mi300_8gpu_showtopo.txt": Box(
        2, TWO, 8, None, UPI | {
            "pcie3": ("socket0", "hbm3", None), "pcie4": ("socket1", "hbm4", None), "xgmi0_1": ("hbm0", "hbm1", None),
            "xgmi0_7": ("hbm0", "hbm7", None), "xgmi6_7": ("hbm6", "hbm7", None),
        }, count=1 + 8 + 28, says=("how many xGMI links join two GPUs",),
    ),
    "rocm_smi/showtoponuma_8gpu.txt": Box(
        2, TWO, 8, None, UPI | {"pcie3": ("socket0", "hbm3", None), "pcie4": ("socket1", "hbm4", None)}, count=9,
    ),
    # lspci, numactl (MB are 2^20), drives
    "lspci/cx7_gen5_vvv_cut.txt": Box(1, ONE, links={"slot0": ("socket0", "nic0", GEN5)}, count=1, nics=1),
    "lspci/lspci_mmv_vm.txt": Box(
        1, ONE, links={"slot0": ("socket0", "nic0", None)}, count=1, nics=1, says=("sudo lspci -vvv",),
    ),
    "numactl/aurora_spr_hbm_4node.txt": Box(
        2, {"dram0": 515524 * MIB, "dram1": 514994 * MIB, "dram2": 65536 * MIB, "dram3": 65536 * MIB}, links=UPI,
        count=1, says=("kind of node 2, memory without processors: HBM, CXL or a GPU's memory. Taken for DRAM",),
    ),
    "numactl/small_vm.txt": Box(1, {"dram0": 5850 * MIB}),
    "numactl/two_node.txt": Box(2, {"dram0": 120889 * MIB, "dram1": 120931 * MIB}, links=UPI, count=1),
    "lsblk_nvme/lsblk_small_vm.json": Box(1, ONE, drives=(274877906944,)),
    "lsblk_nvme/nvme_list_v1_two_drives.json": Box(1, ONE, drives=(256060514304, 256060514304)),
    "lsblk_nvme/nvme_list_v2_nested_negative_size.json": Box(
        1, ONE, drives=(1000215216 * 512,), says=("PhysicalSize of nvme0n1 is -2147483648",),
    ),
    # benchmarks that tell GPUs and whether they reach each other
    "cuda_samples/p2p_2gpu_slow_pcie.txt": Box(1, ONE, 2, ANY, count=2, peers=True),
    "cuda_samples/p2p_h100_8gpu.txt": Box(1, ONE, 8, ANY, count=8, peers=True, says=("line 140",)),
    "rocm_bandwidth/vega_pair_v2.0.1.txt": Box(1, ONE, 2, ANY, count=2, peers=True),
}  # fmt: skip

NO_SHAPE, NO_TOOL = "tells the machine's shape", "is the output of no tool"
REFUSED = {
    "nccl_topo/azure_ncv4_GRAPH_not_topo.xml": "looks like an NCCL graph file",
    "lsblk_nvme/lsblk_ubuntu18_table.txt": "lsblk -b -J -o NAME",
    "lspci/gpu_link_downgraded_cut.txt": NO_SHAPE,
    "lspci/mi350_grep_lnksta.txt": NO_SHAPE,
    "hardware_presets/aiconfigurator_gb200.yaml": NO_TOOL,
    "hardware_presets/aiconfigurator_h100_sxm.yaml": NO_TOOL,
    "hardware_presets/inference_sim_hardware_config.json": NO_TOOL,
}

# Benchmarks: how many rates, and some as (source, destination, access, when, bytes/s); None: not looked at.
HOST, ALONE, BOTH, TOGETHER = "host", "alone", "both directions", "together"
Row = tuple[str | None, str | None, str | None, str | None, float]
RATES: dict[str, tuple[int, tuple[Row, ...]]] = {
    "babelstream/v2_k40_cuda.txt": (4, (
        ("gpu", "gpu", "copy", ALONE, 194135.310e6), (None, None, "mixed", ALONE, 190956.372e6),
        (None, None, "mixed", ALONE, 190822.844e6),
    )),
    "babelstream/v5_openmp.csv": (0, ()),  # whose memory is not told: facts
    "babelstream/v5_openmp.txt": (5, (
        (HOST, HOST, "copy", ALONE, 19402.916e6), (HOST, HOST, "mixed", ALONE, 25256.454e6),
        (HOST, HOST, "read", ALONE, 14815.340e6),
    )),
    "cuda_samples/bandwidthTest_k80.txt": (3, (  # MB/s of an old heading are 2^20
        (HOST, "gpus", "pinned", None, 9254.7 * MIB), ("gpus", HOST, "pinned", None, 9686.1 * MIB),
        ("gpus", "gpus", "mixed", None, 155985.8 * MIB),
    )),
    "cuda_samples/bandwidthTest_range_k80.txt": (9, (
        (HOST, "gpu0", "pinned", ALONE, 7755.5 * MIB), ("gpu0", HOST, "pinned", ALONE, 10455.8 * MIB),
        ("gpu0", "gpu0", "mixed", ALONE, 157845.9 * MIB),
    )),
    "cuda_samples/p2p_2gpu_slow_pcie.txt": (8, (
        ("gpu0", "gpu1", None, ALONE, 6.34e9), ("gpu0", "gpu1", None, ALONE, 6.60e9),
        ("gpu1", "gpu0", None, BOTH, 8.67e9),
    )),
    "cuda_samples/p2p_h100_8gpu.txt": (8 + 4 * 56, (
        ("gpu1", "gpu0", None, ALONE, 37.11e9), ("gpu3", "gpu0", None, ALONE, 375.74e9),
        ("gpu0", "gpu4", None, BOTH, 52.37e9),
    )),
    "cuda_samples/superbench_d2h_bw.log": (81, (
        ("gpu0", HOST, "pinned", ALONE, 0.5e9), ("gpu0", HOST, "pinned", ALONE, 1.4e9),
        ("gpu0", HOST, "pinned", ALONE, 13.1e9),
    )),
    "deepspeed/ds_aio_log.txt": (1, ((None, HOST, "read", None, 12.323337169333062 * GIB),)),  # GB here are 2^30
    "deepspeed/ds_nvme_tune.txt": (2, (
        (None, HOST, "read", None, 3.69 * GIB), (HOST, None, "write", None, 3.18 * GIB),
    )),
    "fio/mixed_fio3.33_normal_then_json.txt": (0, ()),  # direct=0: of the page cache
    "fio/nvme_fio3.16_randrw.json": (2, (
        ("drive0", HOST, "read", BOTH, 348743777), (HOST, "drive0", "write", BOTH, 348450387),
    )),
    "fio/old_multi_job.json": (5, (  # fio 2: bw counts KiB/s
        (HOST, None, "write", ALONE, 68118 * 1024), (None, HOST, "read", ALONE, 129836 * 1024),
        (HOST, None, "write", ALONE, 6443 * 1024), (None, HOST, "read", ALONE, 1292 * 1024),
    )),
    "fio/seqread_fio3.33.json": (1, ((None, HOST, "read", ALONE, 1529580569),)),
    "gdsio/consumer_nvme_6runs.txt": (6, (
        (HOST, "drive", "write", None, 0.940200 * GIB), ("gpu", "drive", "write", None, 0.976612 * GIB),
        ("drive", "gpu", "read", None, 1.833908 * GIB),
    )),
    "mlc/mlc_v3.11b_full_2socket_cut.txt": (9, (  # row: who reads; column: whose memory
        ("numa1", "numa0", "read", None, 34393.4e6), ("numa0", "numa1", "read", None, 34385.7e6),
        ("hosts", "hosts", "read", TOGETHER, 158844.5e6),
    )),
    "mlc/mlc_v3.9a_bandwidth_matrix.txt": (4, (
        ("numa0", "numa0", "read", None, 82542.2e6), ("numa1", "numa0", "read", None, 76679.9e6),
        ("numa0", "numa1", "read", None, 76536.0e6),
    )),
    "mlc/mlc_v3.9a_latency_matrix.txt": (0, ()),  # latencies alone
    "nccl_tests/allreduce_8gpu.log": (64, (  # bus bandwidth
        (None, None, None, None, 235.26e9), (None, None, None, None, 235.03e9), (None, None, None, None, 91.77e9),
    )),
    "nccl_tests/allreduce_gh200_2node_v2.17.txt": (22, (
        (None, None, None, None, 122.57e9), (None, None, None, None, 123.11e9), (None, None, None, None, 63.59e9),
    )),
    "nccl_tests/allreduce_k80_2node_old.txt": (22, (  # 0.44 is all that is printed: from size and time, x 1 of 2 ranks
        (None, None, None, None, 1048576 / 2410.0e-6), (None, None, None, None, 1073741824 / 1763386e-6),
        (None, None, None, None, 16777216 / 28317e-6),
    )),
    "nccl_tests/alltoall_8gpu.log": (58, (
        (None, None, None, None, 226.16e9), (None, None, None, None, 224.31e9), (None, None, None, None, 185.35e9),
    )),
    "nvbandwidth/a6000_6gpu_d2d_v0.8.txt": (30, (
        ("gpu0", "gpu4", "copy", ALONE, 22.64e9), ("gpu3", "gpu0", "copy", ALONE, 21.82e9),
        ("gpu5", "gpu1", "copy", ALONE, 22.67e9),
    )),
    "nvbandwidth/gh200_v0.6.log": (17, (  # 3 + 2 of the tables that were widened, 12 of one cell
        (HOST, "gpu0", "pinned", ALONE, 369.36e9), ("gpu0", HOST, "pinned", ALONE, 295.15e9),
        ("gpu0", HOST, "zero_copy", ALONE, 351.93e9),
    )),
    "nvbandwidth/h100_8gpu_v0.10_concatenated.txt": (72, (
        (HOST, "gpu1", "pinned", ALONE, 55.36e9), ("gpu2", HOST, "pinned", ALONE, 55.18e9),
        ("gpu4", "gpu6", "copy", ALONE, 395.25e9), ("gpu6", "gpu4", "copy", ALONE, 395.08e9),
    )),
    "nvbandwidth/h20_device_local_copy_v0.8.txt": (0, ()),  # a copy engine's rate, not the memory's
    "nvbandwidth/single_gpu_v0.5.json": (14, (
        (HOST, "gpu0", "pinned", ALONE, 12.3964e9), ("gpu0", HOST, "pinned", ALONE, 13.2001e9),
        (HOST, "gpu0", "pinned", BOTH, 11.5031e9),
    )),
    "osu/osu_bw.txt": (2, ((None, None, None, None, 0.60e6), (None, None, None, None, 1.19e6))),
    "osu/osu_mbw_mr.txt": (2, ((None, None, None, TOGETHER, 126.43e6), (None, None, None, TOGETHER, 252.65e6))),
    "rocm_bandwidth/hipBusBandwidth_h2d.log": (20, (
        (HOST, "gpu0", "pinned", ALONE, 0.0414e9), (HOST, "gpu0", "pinned", ALONE, 25.3280e9),
        (HOST, "gpu0", "pinned", ALONE, 16.3342e9),
    )),
    "rocm_bandwidth/strix_halo_v2.6.0_tables.txt": (5, (
        (HOST, "gpu0", "pinned", ALONE, 84.364e9), ("gpu0", HOST, "pinned", ALONE, 84.147e9),
        ("gpu0", "gpu0", "mixed", ALONE, 212.419e9),
    )),
    "rocm_bandwidth/vega_pair_v2.0.1.txt": (14, (
        (HOST, "gpu1", "pinned", ALONE, 13.668804e9), ("gpu1", HOST, "pinned", ALONE, 14.286586e9),
        ("gpu1", HOST, "pinned", BOTH, 17.743369e9),
    )),
    "stream/epyc_stream.log": (4, (
        (HOST, HOST, "copy", ALONE, 108180.5e6), (HOST, HOST, "mixed", ALONE, 104571.7e6),
        (HOST, HOST, "mixed", ALONE, 105256.0e6),
    )),
    "stream/gpu_stream_superbench.log": (32, (
        ("gpu0", "gpu0", "copy", ALONE, 6549.50e9), ("gpu1", "gpu1", "copy", ALONE, 5725.07e9),
        ("gpu1", "gpu1", "mixed", ALONE, 7414.04e9),
    )),
}  # fmt: skip
