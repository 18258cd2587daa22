"""Plan files that work, with the server and the model that they name: round figures, worked out in the head."""

from __future__ import annotations

import json
from pathlib import Path

from offload.compiler import compile_step
from offload.documents import load_plan
from offload.step import loads
from offload.study import evaluate

MB, GB = 10**6, 10**9

# Round figures, sustained as fast as the peak: times are worked out in the head.
BOX = """\
title: a box of round figures
switches: {socket0: {kind: socket}, switch0: {kind: pcie_switch}}
memories:
  hbm0: {kind: hbm, capacity: 100 GB, rate: {peak: 1000 GB/s, sustained: 1000 GB/s}}
  dram0: {kind: dram, at: socket0, capacity: 200 GB, rate: {peak: 100 GB/s, sustained: 100 GB/s}}
  ssd0:
    kind: nvme
    capacity: 1 TB
    read: {rated: 5 GB/s, sustained: 5 GB/s}
    write: {rated: 4 GB/s, sustained: 4 GB/s}
processors:
  gpu0:
    kind: gpu
    memory: hbm0
    flops:
      bf16: {peak: 100 TFLOP/s, sustained: 100 TFLOP/s}
      fp8: {peak: 200 TFLOP/s, sustained: 200 TFLOP/s}
  cpu0: {kind: cpu, memory: dram0, flops: {fp16: {peak: 1 TFLOP/s, sustained: 1 TFLOP/s}}}
links:
  pcie0: {between: [socket0, hbm0], rate: {peak: 20 GB/s, sustained: {pinned: 20 GB/s, pageable: 5 GB/s}}}
  up0: {between: [socket0, switch0], rate: {peak: 10 GB/s, sustained: 10 GB/s}}
  down0: {between: [switch0, hbm0], rate: {peak: 10 GB/s, sustained: 10 GB/s}}
  m2: {between: [ssd0, socket0], rate: {peak: 8 GB/s, sustained: 8 GB/s}}
"""

HAND = """\
topology: ./box.yaml
tensors:
  w: {bytes: 200 MB, home: dram0}
  kv: {bytes: 100 MB, home: hbm0}
repeat: 10
tasks:
  fetch: {move: w, to: hbm0}
  layer: {compute: gpu0, flops: 20 GFLOP, reads: [w, kv], after: fetch}
overlap: {buffers: 2}
"""

# Four layers of 9,439,232 parameters; the head has 1,024,000 and the final norm 1,024.
MODEL = {
    "model_type": "llama", "num_hidden_layers": 4, "hidden_size": 1024, "intermediate_size": 2048,
    "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 1000, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}  # fmt: skip
LAYER = 2 * (2 * 1024 * 1024 + 2 * 512 * 1024 + 3 * 2048 * 1024 + 2 * 1024)
HEAD = 2 * (1000 * 1024 + 1024)
POSITION = 2 * 4 * 128 * 2  # key and value, KV heads, head size, bytes
ROW = 2 * 1024

PLACED = """\
topology: ./box.yaml
model: {config: ./config.json, weights: bf16, kv: f16}
workload: {phase: decode, batch: 1, context: 1000}
placement:
  weights: {hbm0: 2 layers, dram0: rest}
  compute: local
  kv: with layer
  reserve: 1 GB
overlap: {buffers: 2}
"""

BLOCKS = """\
topology: ./box.yaml
tensors:
  w: {bytes: 200 MB, home: dram0}
  x: {bytes: 50 MB, home: dram0}
blocks:
  - tasks:
      first: {compute: cpu0, reads: x}
  - repeat: 3
    tasks:
      fetch: {move: w, to: hbm0}
      layer: {compute: gpu0, reads: w, after: [fetch, first]}
"""

CHAIN = """\
topology: ./box.yaml
tensors:
  a: {bytes: 100 MB, home: dram0}
  b: {bytes: 1 GB, home: hbm0}
tasks:
  low: {compute: cpu0, reads: a}
  high: {compute: gpu0, reads: b, after: low}
tokens: 4
"""


def write_box(folder: Path) -> Path:
    """Write the server and the config that the plans name; the folder."""
    (folder / "box.yaml").write_text(BOX)
    (folder / "config.json").write_text(json.dumps(MODEL))
    return folder


def changed(text: str, *edits: tuple[str, str]) -> str:
    for old, new in edits:
        assert text.count(old) >= 1, old
        text = text.replace(old, new, 1)
    return text


def compiled(folder: Path, text: str, *edits: tuple[str, str]):
    path = folder / "plan.yaml"
    path.write_text(changed(text, *edits), encoding="utf-8")
    plan, topology = load_plan(path)
    return compile_step(topology, plan)


def expected(step) -> dict[str, float]:
    return {name: load for name, load in loads(step, least=False).items() if load}


def study_of(folder: Path, text: str, *edits: tuple[str, str]):
    step = compiled(folder, text, *edits)
    return evaluate(step.topology, step.plan)
