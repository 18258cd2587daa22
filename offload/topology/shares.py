"""The share of a stated rate that good software gets, where nobody has measured the part itself.

Used only where a topology gives no sustained rate, and shown as assumed wherever it is used. Each value is the middle
of published measurements of such parts, its ends the range that was seen; the share is of the rated figure where there
is one, else of the peak.
"""

from __future__ import annotations

from dataclasses import dataclass

from offload.topology.parts import Link, Memory, Processor

DRIVES = ("nvme", "disk")
# A memory that is faster than two channels of the fastest desktop DIMMs (2 x 8 B x 8800 MT/s = 141 GB/s) is a server's.
SERVER_DRAM_RATE = 150e9


@dataclass(frozen=True, slots=True)
class Share:
    """A share [1] with the range that was seen, what was measured, and who published it."""

    low: float
    value: float
    high: float
    what: str
    source: str

    def describe(self, of: str) -> str:
        """The share in words; of is what it is a share of, "peak" or "the rated figure"."""
        low, value, high = (f"{100 * share:.3g}" for share in (self.low, self.value, self.high))
        return f"{value} % of {of} ({low} to {high} %: {self.what})"


_COPIES = "NVIDIA/nvbandwidth issues 11, 15 and 53, NVIDIA/cuda-samples issue 357, te42kyfo/gpu-benches"
_MLC = "Intel Memory Latency Checker and STREAM on Skylake to Sapphire Rapids servers: gjbex/Code-optimization"

SHARES = {
    "pcie3": Share(0.64, 0.78, 0.80, "PCIe 3, pinned, large copies, one way", _COPIES),
    "pcie4": Share(0.80, 0.83, 0.85, "PCIe 4, pinned, large copies, one way", _COPIES),
    "pcie5": Share(0.80, 0.88, 0.91, "PCIe 5, pinned, large copies, one way", _COPIES),
    "pcie": Share(0.64, 0.83, 0.91, "PCIe of any generation, pinned, large copies, one way", _COPIES),
    "pageable": Share(0.04, 0.20, 0.40, "PCIe, pageable host memory", "1.4 to 10 GB/s in users' reports of x16 links"),
    "both": Share(0.60, 0.70, 0.80, "PCIe, both directions at once, of the sum", _COPIES),
    "nvlink": Share(0.80, 0.84, 0.92, "NVLink, copy engine", "p2pBandwidthLatencyTest: NVIDIA/nccl issue 1264"),
    "c2c_in": Share(0.76, 0.84, 0.94, "C2C, host to device", "GH200: dnhkng.github.io, NVIDIA/nvbandwidth issue 23"),
    "c2c_out": Share(0.38, 0.66, 0.66, "C2C, device to host", "GH200: dnhkng.github.io, NVIDIA/nvbandwidth issue 23"),
    "hbm": Share(0.66, 0.86, 0.92, "HBM and GDDR in decode", "stas00/ml-engineering, te42kyfo/gpu-benches"),
    "dram_desktop": Share(0.66, 0.79, 0.86, "desktop DRAM read by DMA or a good kernel", _MLC),
    "dram_server": Share(0.66, 0.80, 0.86, "server DRAM read by DMA or a good kernel", _MLC),
    "dram_mixed": Share(0.65, 0.68, 0.72, "DRAM, reads and writes mixed 1:1", _MLC),
    "cpu_desktop": Share(0.66, 0.72, 0.79, "matrix-vector kernels on a desktop CPU", "llama.cpp users' reports"),
    "cpu_server": Share(0.35, 0.45, 0.60, "matrix-vector kernels on a server CPU", "llama.cpp, ktransformers reports"),
    "socket": Share(0.55, 0.75, 0.85, "UPI or xGMI", "remote reads of two-socket servers; ROCm/rccl issue 1210"),
    "drive_read": Share(0.85, 0.95, 1.0, "drive, large sequential reads", "fio: stas00/ml-engineering, DeepNVMe"),
    "drive_write": Share(0.85, 0.90, 1.0, "drive, large sequential writes", "fio: stas00/ml-engineering, DeepNVMe"),
    "striped": Share(0.77, 0.85, 0.95, "striped drives, of their sum", "DeepNVMe on four and eight drives"),
    "network": Share(0.85, 0.92, 0.97, "Ethernet or InfiniBand", "line rate less headers: stas00/ml-engineering"),
    "gpu_flops": Share(0.55, 0.75, 0.80, "dense matrix FLOP/s on a GPU", "mamf-finder: stas00/ml-engineering"),
    "cpu_flops": Share(0.10, 0.30, 0.50, "dense matrix FLOP/s on a CPU", "AMX and AVX-512: kvcache-ai/ktransformers"),
}


def is_server_dram(memory: Memory) -> bool:
    """Whether a memory has more channels than a desktop: its peak is above 150 GB/s."""
    rate = memory.rate or memory.read
    peak = rate.peak if rate is not None else None
    return peak is not None and peak * memory.count > SERVER_DRAM_RATE


def memory_share(memory: Memory, access: str) -> Share:
    """The share for a memory's port; access is "", "read" or "write". CXL and unified memory count as DRAM."""
    if memory.kind in DRIVES:
        if memory.count > 1:
            return SHARES["striped"]
        return SHARES["drive_write" if access == "write" else "drive_read"]
    if memory.kind == "hbm":
        return SHARES["hbm"]
    return SHARES["dram_server" if is_server_dram(memory) else "dram_desktop"]


def reads_share(processor: Processor, memory: Memory) -> Share:
    """The share for a processor's own rate from its memory."""
    if processor.kind == "gpu":
        return SHARES["hbm"]
    return SHARES["cpu_server" if is_server_dram(memory) else "cpu_desktop"]


def flops_share(processor: Processor) -> Share:
    """The share for a processor's arithmetic."""
    return SHARES["gpu_flops" if processor.kind == "gpu" else "cpu_flops"]


def link_share(link: Link, to_device: bool) -> Share:
    """The share for one direction of a link; to_device tells the two directions of a C2C link apart.

    A link of no named technology counts as PCIe of any generation.
    """
    if link.technology == "nvlink":
        return SHARES["nvlink"]
    if link.technology == "c2c":
        return SHARES["c2c_in" if to_device else "c2c_out"]
    if link.technology in ("upi", "xgmi"):
        return SHARES["socket"]
    if link.technology in ("ethernet", "infiniband", "network"):
        return SHARES["network"]
    if link.technology in ("pcie", "cxl") and link.generation is not None:
        return SHARES[f"pcie{min(5, max(3, link.generation))}"]
    return SHARES["pcie"]
