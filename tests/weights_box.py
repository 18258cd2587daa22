"""A small server whose every rate is a figure of a test, and a model of alike blocks, for plans of weights."""

from __future__ import annotations

from typing import Any

from offload.compiler import compile_step
from offload.designs import Placement, Portion, Workload, plan_model
from offload.models import Model
from offload.models.stated import Blocks, stated_model
from offload.plan import Overlap, Plan
from offload.step import Step
from offload.topology import Interval, Link, Memory, Processor, Rate, Switch, Topology
from tests.boxes import rate

REST = Portion("rest")
FAST = 1e15  # [B/s]: of no account


def server(
    *, hbm: float = FAST, dram: float = FAST, link: float = FAST, drive: float = 1e12, m2: float = FAST,
    reads: float | None = None, flops: float = 1e12, room: int = 10**15, host: int = 10**15, count: int = 1,
    cxl: float = 0.0, peak: float | None = None, pageable: float | None = None,
) -> Topology:  # fmt: skip
    """One GPU, one CPU, a drive (or a stripe of them), and maybe a CXL memory; peak and sustained alike [B/s].

    peak : of the GPU's link, where that is more than it sustains; pageable : what it sustains of such copies.
    """
    known = {"": Interval.exact(link)} | ({} if pageable is None else {"pageable": Interval.exact(pageable)})
    to_gpu = Rate(peak=float(link if peak is None else peak), sustained=known, source="example")
    memories = [
        Memory("hbm0", "hbm", room, rate(hbm)),
        Memory("dram0", "dram", host, rate(dram), at="socket0"),
        Memory("ssd0", "nvme", 10**15, read=rate(drive), write=rate(drive), count=count),
    ]
    links = [Link("pcie0", "socket0", "hbm0", to_gpu, to_gpu, "pcie"),
             Link("m2", "ssd0", "socket0", rate(m2), rate(m2))]  # fmt: skip
    if cxl:
        memories.append(Memory("cxl0", "cxl", 10**15, rate(cxl)))
        links.append(Link("x8", "cxl0", "socket0", rate(FAST), rate(FAST)))
    processors = [
        Processor("gpu0", "gpu", "hbm0", {"bf16": rate(flops)}),
        Processor("cpu0", "cpu", "dram0", {"bf16": rate(1e18)}, reads=None if reads is None else rate(reads)),
    ]
    return Topology.build(name="box", title="box", memories=memories, processors=processors,
                          switches=[Switch("socket0")], links=links)  # fmt: skip


def planned(
    topology: Topology, model: Model, weights: dict[str, Portion], *, workload: Workload | None = None,
    overlap: Overlap | None = None, **placed: Any,
) -> Plan:  # fmt: skip
    """A step of a stated model; the other arguments are the placement's."""
    placement = Placement(tuple(weights.items()), reserve=0, **placed)
    return plan_model(model, topology, workload or Workload(context=1), placement, weights="stated", overlap=overlap)


def compiled(topology: Topology, model: Model, weights: dict[str, Portion], **placed: Any) -> Step:
    """The same, compiled."""
    return compile_step(topology, planned(topology, model, weights, **placed))


def blocks(count: int, size: int, flops: float = 0.0, row: int = 0) -> Model:
    """A model of alike blocks of so many bytes and FLOP."""
    return stated_model("blocks", [Blocks(count, size, flops)], row)
