"""Small servers in round figures, for what is worked out by hand: some GPUs, one or two sockets, a drive.

Rates in GB/s, peak and sustained alike: HBM 1000, DRAM 100, a GPU's PCIe link 20 (pageable 5, zero copy 10), a switch's
uplink 20, the link between sockets 40, the drive 5 read and 4 written. FLOP/s: 100 T a GPU, 1 T a
CPU. No caches and no latencies.
"""

from __future__ import annotations

from pathlib import Path

from offload.bounds import floor
from offload.documents.plan_file import load_plan
from offload.plan import Plan
from offload.schedules import schedule, serial
from offload.step import Step
from offload.topology import Interval, Link, Memory, Processor, Rate, Switch, Topology

GB, MB = 10**9, 10**6


def rate(value: float, **by_access: float) -> Rate:
    """A rate whose peak is what is sustained, but for the accesses named."""
    sustained = {"": Interval.exact(value)} | {key: Interval.exact(one) for key, one in by_access.items()}
    return Rate(peak=float(value), sustained=sustained, source="example")

# ten layers streamed over a link with two buffers
STREAM = """\
topology: box
tensors:
  w: {bytes: 2 GB, home: dram0}
repeat: 10
tasks:
  fetch: {move: w, to: hbm0}
  layer: {compute: gpu0, flops: 0.1 TFLOP, reads: w, after: fetch}
overlap: {buffers: 2}
"""


def box(gpus: int = 2, sockets: int = 1, *, uplink: bool = False, nvlink: float = 0, peers: bool | None = None,
        direct: tuple[int, ...] = (), capacity: int | None = 100 * GB, host: int | None = 200 * GB, pcie: float = 20e9,
        upi: float = 40e9) -> Topology:
    """A server. uplink : the GPUs of a socket share a switch, and its link. nvlink : [B/s], all meet in an NVSwitch.

    peers : whether GPUs exchange bytes over PCIe. direct : GPUs that the drive reaches without host memory.
    """
    of = [number * sockets // gpus for number in range(gpus)]  # the socket of each GPU
    memories = [Memory(f"hbm{n}", "hbm", capacity, rate(1000e9)) for n in range(gpus)]
    memories += [Memory(f"dram{s}", "dram", host, rate(100e9), at=f"socket{s}") for s in range(sockets)]
    memories.append(Memory("ssd0", "nvme", 1000 * GB, read=rate(5e9), write=rate(4e9)))
    processors = [Processor(f"gpu{n}", "gpu", f"hbm{n}", {"bf16": rate(100e12)}, peer_to_peer=peers,
                            direct_storage=n in direct) for n in range(gpus)]  # fmt: skip
    processors += [Processor(f"cpu{s}", "cpu", f"dram{s}", {"bf16": rate(1e12)}) for s in range(sockets)]
    switches = [Switch(f"socket{s}") for s in range(sockets)]
    links = [Link("m2", "ssd0", "socket0", rate(8e9), rate(8e9))]
    if sockets == 2:
        links.append(Link("upi", "socket0", "socket1", rate(upi), rate(upi)))
    if uplink:
        switches += [Switch(f"sw{s}", "pcie_switch") for s in range(sockets)]
        links += [Link(f"up{s}", f"socket{s}", f"sw{s}", rate(20e9), rate(20e9), "pcie") for s in range(sockets)]
    to_gpu = rate(pcie, pageable=pcie / 4, zero_copy=pcie / 2)
    links += [Link(f"pcie{n}", f"{'sw' if uplink else 'socket'}{of[n]}", f"hbm{n}", to_gpu, to_gpu, "pcie")
              for n in range(gpus)]
    if nvlink:
        switches.append(Switch("nvsw", "nvswitch"))
        links += [Link(f"nv{n}", f"hbm{n}", "nvsw", rate(nvlink), rate(nvlink), "nvlink") for n in range(gpus)]
    return Topology.build(name="box", title="box", memories=memories, processors=processors, switches=switches,
                          links=links)


def plan_of(folder: Path, text: str, topology: Topology) -> Plan:
    """The plan that a file's text says, on a server."""
    path = folder / "plan.yaml"
    path.write_text(f"topology: {topology.name}\n{text}", encoding="utf-8")
    return load_plan(path, topology=topology)[0]


def check_ladder(step: Step) -> None:
    """Floor, floor at sustained rates, expected and serial times rise in this order."""
    low, point = floor(step).seconds, floor(step, "value").seconds
    expected, most = schedule(step), serial(step)
    assert low <= point * (1 + 1e-12)
    assert point <= expected.seconds * (1 + 1e-12)
    assert expected.seconds <= most.seconds * (1 + 1e-12)
    assert low <= expected.cold_seconds * (1 + 1e-12)
