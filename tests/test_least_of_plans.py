"""Floors of plans take what is sure: of a prompt's last layer, the embedding, spread experts. Idle keys are told."""

from __future__ import annotations

import pytest

from offload import load_topology
from offload.bounds import floor
from offload.compiler import compile_step
from offload.designs import Placement, Portion, Workload, plan_model
from offload.documents import load_plan
from offload.errors import DocumentError
from offload.models import catalogue, layer_flops_of, layers_of
from offload.plan import Compute
from offload.schedules import schedule

REST = Portion("rest")


def step_of(folder, text, *settings):
    path = folder / "plan.yaml"
    path.write_text(text, encoding="utf-8")
    plan, topology = load_plan(path)
    return compile_step(topology, plan)


def test_of_a_prompts_last_layer_only_what_its_output_needs():
    """Keys and values of all positions, everything else of one: floors count one position's FLOP, schedules all."""
    topology = load_topology("desktop-4090")
    plan = plan_model(catalogue["llama-3.2-1b"], topology, Workload("prefill", 1, 0, prompt=512),
                      Placement((("hbm0", REST),)), weights="bf16")
    tasks = [task for block in plan.blocks for task in block.tasks if task.name == "layer"]
    last, before = tasks[-1], tasks[0]
    assert last.flops == before.flops and before.least is None and last.least == pytest.approx(last.flops / 512)
    assert plan.blocks[-2].repeat == 1
    keys = layers_of(catalogue["llama-3.2-1b"])[-1]
    assert last.least <= last.flops - 511 * (layer_flops_of(keys) * 0.5)
    decode = plan_model(catalogue["llama-3.2-1b"], topology, Workload(context=512), Placement((("hbm0", REST),)),
                        weights="bf16")
    assert all(task.least is None for block in decode.blocks for task in block.tasks if isinstance(task, Compute))


def test_alike_tokens_take_one_row_of_the_embedding(tmp_path):
    step = step_of(tmp_path, """\
topology: desktop-4090
model: {name: llama-3.2-1b, weights: q4_k_m}
workload: {phase: prefill, prompt: 8192}
placement: {weights: {hbm0: rest}}
""")
    uses = [use for row in step.rows if row.name.startswith("embedding") for use in row.uses
            if use.resource == "pcie0.hbm0"]  # fmt: skip
    assert [use.least for use in uses] == [2 * 2048] and [use.load for use in uses] == [8192 * 2 * 2048]
    assert floor(step).bottleneck == ("hbm0",)


def test_where_a_cache_holds_all_nothing_is_fetched(tmp_path):
    text = """\
topology: desktop-4090
model: {name: qwen3-30b-a3b, weights: q4_k_m}
placement:
  weights: {hbm0: rest}
  experts: {home: dram0, compute: gpu0, cache: {memory: hbm0, experts: 100, hit: 100%}}
"""
    cached = step_of(tmp_path, text)
    resident = step_of(tmp_path, text.partition("  experts")[0])
    assert schedule(cached).seconds == pytest.approx(schedule(resident).seconds, rel=1e-3)
    stored = sum(cached.occupied["dram0"].values()) - sum(resident.occupied["dram0"].values())
    held = sum(resident.occupied["hbm0"].values()) - sum(cached.occupied["hbm0"].values())
    assert stored == pytest.approx(128 / 28 * held, rel=1e-6)  # all in host memory, 100 of 128 beside it


def test_spread_experts_that_are_read_in_place_may_be_any_ranks(tmp_path):
    (tmp_path / "two.yaml").write_text("""\
switches: {socket0: {kind: socket}}
memories:
  hbm0..1: {kind: hbm, capacity: 80 GiB, rate: 1000 GB/s}
  dram0: {kind: dram, at: socket0, capacity: 512 GiB, rate: 300 GB/s}
processors:
  gpu0..1: {kind: gpu, memory: "hbm0..1", flops: {bf16: {peak: 500 TFLOP/s}}, peer_to_peer: true}
links:
  pcie0: {between: [socket0, hbm0], pcie: 4 x16}
  pcie1: {between: [socket0, hbm1], pcie: 4 x4}
  nv: {between: [hbm0, hbm1], nvlink: 4 x4}
""", encoding="utf-8")
    step = step_of(tmp_path, """\
topology: ./two.yaml
model: {name: qwen3-30b-a3b, weights: bf16}
workload: {batch: 2}
placement: {weights: {dram0: rest}, compute: gpu0..1, access: in_place, parallel: expert}
""")
    sure = {use.resource: use.least for row in step.rows if row.name == "experts" for use in row.uses}
    assert sure["pcie0.hbm0"] == sure["pcie1.hbm1"] == 0


@pytest.mark.parametrize(("keys", "told"), [
    ("access: in_place, host_memory: pageable, via: [dram0]",
     ["placement.access: in_place", "placement.host_memory: pageable", "placement.via: dram0"]),
    ("experts: {home: dram0, access: on_demand}", ["placement.experts.access: on_demand"]),
    ("experts: {home: dram0, compute: gpu0, access: on_demand}", []),
])  # fmt: skip
def test_keys_that_change_nothing_are_told(tmp_path, keys, told):
    step = step_of(tmp_path, f"""\
topology: desktop-4090
model: {{name: qwen3-30b-a3b, weights: q4_k_m}}
placement: {{weights: {{hbm0: rest}}, {keys}}}
""")
    found = [note for note in step.plan.assumptions if "changes nothing here" in note]
    assert [note.partition(" changes")[0] for note in found] == told


@pytest.mark.parametrize(("text", "said"), [
    ("model: {blocks: {count: 4, bytes: 0 GB}}\nworkload: {phase: denoise}\nplacement: {weights: {hbm0: rest}}",
     "at least 1 B"),
    ("model: {name: llama-3.2-3b}\nworkload: {phase: train, batch: 4, context: 64}\n"
     "training: {parameters: hbm0, optimizer: dram0}\ncosts: {a: {each: hand-over, time: 1 ms}}", "no hidden row"),
    ("model: {name: llama-3.2-3b}\nplacement: {weights: {hbm0: rest}, kv: dram0, attention: gpu0}",
     "runs the layers itself"),
    ("model: {name: qwen3-30b-a3b, weights: q4_k_m}\nplacement: {weights: {hbm0: rest}, "
     "experts: {home: dram0, compute: gpu0, cache: {memory: dram0, experts: 32}}}", "is where the experts live"),
    ("model: {name: llama-3.2-3b}\nplacement: {weights: {hbm0: rest}, tensors: {}}", "is empty"),
    ("model: {name: llama-3.2-3b}\nplacement: {weights: {hbm0: rest}}\ncosts: {}", "is empty"),
])  # fmt: skip
def test_what_is_refused(tmp_path, text, said):
    with pytest.raises(DocumentError, match=said):
        step_of(tmp_path, f"topology: desktop-4090\n{text}\n")


def test_a_numa_policy_is_of_sockets(tmp_path):
    with pytest.raises(DocumentError, match="memories of several sockets"):
        step_of(tmp_path, """\
topology: dgx-h100
model: {name: llama-3.1-8b}
placement: {weights: {hbm0..7: rest}, numa: interleave}
""")
