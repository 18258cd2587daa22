"""Tensors outside of layers: what every step reads of them, and tables of which a token takes a row.

`model` and `step` say the same of what a decoded token reads.
"""

from __future__ import annotations

import pytest

from offload import evaluate
from offload.describe_model import summarise
from offload.designs.forward import plan_model
from offload.designs.placement import Placement, Portion, Workload
from offload.documents import load_topology
from offload.models import catalogue, weigh
from offload.models.architecture import head_flops, outside_flops
from offload.readers.gguf_model import model_of_gguf
from tests.test_model_files import OUTER, SIZES, dense, gguf_of

LAYERS, INPUT, ROWS = 2, 32, 320
TABLE = ROWS * LAYERS * INPUT * 2  # f16
EACH = {"per_layer_model_proj.weight": (LAYERS * INPUT, 128), "altup_proj.weight": (3, 128, 128),
        "altup_unembd_proj.weight": (3, 128, 128)}  # fmt: skip


def gemma3n():
    """Gemma 3n in small: a table by layer, and projections before and after the layers."""
    tensors = [*OUTER, *(one for layer in range(LAYERS) for one in dense(layer)),
               ("per_layer_token_embd.weight", (ROWS, LAYERS * INPUT), "f16"),
               ("per_layer_proj_norm.weight", (INPUT,), "f32"),
               *((name, shape, "f16") for name, shape in EACH.items())]  # fmt: skip
    return model_of_gguf(gguf_of("gemma3n", tensors, block_count=LAYERS, **SIZES, attention__sliding_window=16,
                                 attention__sliding_window_pattern=[True, False],
                                 attention__shared_kv_layers=0, embedding_length_per_layer_input=INPUT))  # fmt: skip


def test_a_table_is_one_class_and_read_by_the_row():
    model = gemma3n()
    weights = weigh(model, "stored")
    each = 2 * (LAYERS * INPUT * 128 + 6 * 128 * 128) + 4 * INPUT
    # The norm of the inputs is a norm as the final one: read with the head.
    assert (weights.outside, weights.each_step, weights.rows) == (TABLE + each - 4 * INPUT, each - 4 * INPUT, 128)
    classes = summarise(model, "stored").classes
    table = classes["per-layer inputs"]
    assert (table.parameters, table.active, table.bytes, table.read) == (TABLE // 2, LAYERS * INPUT, TABLE, 128)
    assert "routed experts" not in classes
    assert classes["other"].bytes == classes["other"].read == each - 4 * INPUT
    assert sum(one.bytes for one in classes.values()) == weights.total


def test_arithmetic_of_what_runs_outside_of_layers():
    """Two for each weight; what makes the head's input runs as the head does, for sampled positions."""
    model = gemma3n()
    assert outside_flops(model) == 2 * (LAYERS * INPUT * 128 + 3 * 128 * 128)
    assert head_flops(model) == 2 * (128 * ROWS + 3 * 128 * 128)
    found = summarise(model, "stored")
    assert found.decode_flops - found.prefill_flops == head_flops(model)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("memory", ["hbm0", "dram0"])
def test_a_step_reads_what_the_model_says(memory, batch):
    model, topology = gemma3n(), load_topology("desktop-4090")
    placement = Placement(((memory, Portion("rest")),))
    plan = plan_model(model, topology, Workload("decode", batch, 8), placement, weights="stored")
    read = sum(block.repeat * plan.tensors[name].bytes for block in plan.blocks for task in block.tasks
               for name in getattr(task, "reads", ()) if "KV" not in plan.tensors[name].what)  # fmt: skip
    assert read == summarise(model, "stored").read_bytes_per_token + (batch - 1) * 128
    assert plan.tensors["rows"].least == 128, "tokens that are alike take the same row"
    assert ("dram0", "other tables", TABLE) in plan.held
    moved = [task.name for block in plan.blocks for task in block.tasks if task.name.startswith("rows to")]
    assert moved == (["rows to hbm0"] if memory == "hbm0" else [])
    # So small a model may stay in the caches, which leaves no floor; at sustained rates it is read.
    assert evaluate(topology, plan).overlapped.seconds > 0


def test_positions_are_a_table_too():
    """OPT's 2,050 rows: one is read; the final norm and its shift are read whole."""
    model = catalogue["opt-6.7b"]
    weights = weigh(model, "fp16")
    assert (weights.rows, weights.each_step) == (4096 * 2, 2 * 4096 * 2)
    assert weights.outside == 2050 * 4096 * 2 + 2 * 4096 * 2
    table = summarise(model, "fp16").classes["positions"]
    assert (table.bytes, table.read) == (2050 * 4096 * 2, 4096 * 2)
