"""A server and a plan with any number of GPUs, each of which fetches its part of every layer from one host memory."""

from __future__ import annotations

from pathlib import Path


def write_rack(folder: Path, gpus: int) -> str:
    """Write both as files; the path of the plan."""
    last = gpus - 1
    (folder / "rack.yaml").write_text(f"""\
title: Rack of {gpus} GPUs
switches: {{socket0: {{kind: socket}}}}
memories:
  hbm0..{last}: {{kind: hbm, capacity: 186 GB, rate: {{peak: 8000 GB/s, sustained: 7000 GB/s, source: made up}}}}
  dram0: {{kind: dram, at: socket0, capacity: 4 TB, rate: {{peak: 2 TB/s, sustained: 1.6 TB/s, source: made up}}}}
processors:
  gpu0..{last}: {{kind: gpu, memory: hbm0..{last}, flops: {{bf16: 2500 TFLOP/s}}, source: made up}}
links:
  c0..{last}: {{between: [socket0, hbm0..{last}], pcie: 5 x16, sustained: 50 GB/s, source: made up}}
""", encoding="utf-8")  # fmt: skip
    each = range(gpus)
    lines = ["topology: rack.yaml", f"title: Each of {gpus} GPUs fetches its part of every layer", "tensors:"]
    lines += [f"  w{number}: {{bytes: 50 MB, home: dram0}}" for number in each]
    lines += ["repeat: 4", f"tokens: {gpus}", "tasks:"]
    lines += [f"  f{number}: {{move: w{number}, to: hbm{number}}}\n"
              f"  c{number}: {{compute: gpu{number}, flops: 3 GFLOP, reads: w{number}, after: f{number}}}"
              for number in each]  # fmt: skip
    path = folder / "rack-plan.yaml"
    path.write_text("\n".join([*lines, "overlap: {buffers: 2}", ""]), encoding="utf-8")
    return str(path)


def write_racks(folder: Path, sockets: int = 36, each: int = 2) -> str:
    """A server of many sockets with some GPUs at each, and a switch between all GPUs; the path of its file."""
    gpus = sockets * each
    lines = [f"title: {gpus} GPUs at {sockets} sockets, one switch", "switches:",
             f"  socket0..{sockets - 1}: {{kind: socket}}", "  nvswitch0: {kind: nvswitch}", "memories:",
             f"  hbm0..{gpus - 1}: {{kind: hbm, capacity: 186 GB, rate: {{peak: 8000 GB/s, source: made up}}}}",
             f"  dram0..{sockets - 1}: {{kind: dram, at: socket0..{sockets - 1}, capacity: 480 GB, "
             "rate: {peak: 512 GB/s, source: made up}}", "processors:",
             f"  gpu0..{gpus - 1}: {{kind: gpu, memory: hbm0..{gpus - 1}, flops: {{bf16: 2500 TFLOP/s}}, source: m}}",
             f"  cpu0..{sockets - 1}: {{kind: cpu, memory: dram0..{sockets - 1}, source: made up}}", "links:",
             f"  nvlink0..{gpus - 1}: {{between: [hbm0..{gpus - 1}, nvswitch0], nvlink: 5 x18, source: made up}}"]
    lines += [f"  c2c{gpu}: {{between: [socket{gpu // each}, hbm{gpu}], kind: c2c, forward: {{peak: 450 GB/s}}, "
              "backward: {peak: 450 GB/s}, source: made up}" for gpu in range(gpus)]  # fmt: skip
    path = folder / "racks.yaml"
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return str(path)
