"""A small model and plans over several that work alike."""

from __future__ import annotations

from offload.bounds import floor
from offload.compiler import compile_step
from offload.designs import Placement, Portion, Workload, plan_model
from offload.models import attention_flops, kv_bytes, layer_flops, weigh
from offload.readers.huggingface import model_of
from offload.schedules import schedule, serial
from offload.step import loads
from tests.boxes import plan_of

CLOSE = 1 + 1e-12
REST = Portion("rest")
SHAPE = {
    "model_type": "llama", "num_hidden_layers": 4, "hidden_size": 1024, "intermediate_size": 2048,
    "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 1000, "tie_word_embeddings": False,
}  # fmt: skip
MODEL = model_of(SHAPE, "small")
LAYER = weigh(MODEL, "bf16").layers[0]
HEAD = weigh(MODEL, "bf16").head + weigh(MODEL, "bf16").norm
POSITION = kv_bytes(MODEL, "f16")
ROW = 2 * 1024
WORK = layer_flops(MODEL) + 100 * attention_flops(MODEL)


def loaded(step, least: bool = False) -> dict[str, float]:
    return {name: load for name, load in loads(step, least=least).items() if load}


def by_hand(folder, text, topology):
    return compile_step(topology, plan_of(folder, text, topology))


def placed(topology, compute="local", kv="with layer", model=MODEL, workload=None, reserve=0, **more):
    """Step of a placement; hbm_0_1 is hbm0..1, a number so many layers."""
    options = {key: more.pop(key) for key in ("costs", "via", "host_memory") if key in more}
    weights = tuple((_name(key), REST if value == "rest" else Portion("layers", value)) for key, value in more.items())
    asked = Workload("decode", 1, 100) if workload is None else workload
    plan = plan_model(model, topology, asked, Placement(weights, compute, kv, reserve, **options), weights="bf16")
    return compile_step(topology, plan)


def _name(key: str) -> str:
    stem = key.rstrip("0123456789_")
    return stem + key[len(stem) :].strip("_").replace("_", "..")


def times(step) -> tuple[float, ...]:
    found, alone, bounds = schedule(step), serial(step), [floor(step, grade) for grade in ("peak", "value")]
    return (*(one for bound in bounds for one in (bound.load_seconds, bound.cycle_seconds, bound.cold_seconds)),
            found.seconds, found.cold_seconds, found.low, found.high, alone.seconds, alone.cold_seconds)  # fmt: skip


HAND = """\
tensors:
  w: {bytes: 200 MB, home: dram0}
  kv: {bytes: 100 MB, home: hbm0..1}
repeat: 10
tasks:
  fetch: {move: w, to: hbm0..1}
  layer: {compute: gpu0..1, flops: 20 GFLOP, reads: [w, kv], after: fetch}
"""
ALL_REDUCE = """\
tensors:
  x: {bytes: 100 MB, home: hbm0, shared: true}
tasks:
  sum: {collective: all_reduce, of: x, over: OVER}
"""
