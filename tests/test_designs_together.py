"""Keys of a placement in any combination: an answer whose bounds are in order, or a refusal at a line of the file."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from offload.bounds import floor
from offload.compiler import compile_step
from offload.errors import DocumentError
from offload.models import kv_bytes, weigh
from offload.plan import Transfer
from offload.readers.huggingface import model_of
from offload.schedules import schedule, serial
from offload.step import loads
from tests.boxes import MB, box, plan_of
from tests.rank_plans import SHAPE
from tests.runs import examples
from tests.test_parallel import MIXTURE_SHAPE

KEYS = {
    "weights": [
        {"hbm0": "rest"}, {"hbm0..1": "rest"}, {"dram0": "rest"}, {"hbm0": "2 layers", "dram0": "rest"},
        {"dram0 + dram1": "rest"}, {"ssd0": "rest"}, {"dram0..1": "rest"}, {"hbm0": "1 layer", "hbm1": "rest"},
        {"50% hbm0 + 50% dram0": "rest"}, {"dram0": "2 layers", "ssd0": "rest"},
    ],
    "compute": ["local", "gpu0", "gpu0..1", "cpu0", "cpu0..1"],
    "parallel": ["data", "expert", "tensor", {"by": "data", "fetch": "sharded"}, {"by": "tensor", "algorithm": "ring"},
                 {"by": "expert", "attention": "tensor"}],
    "experts": [
        {"home": "dram0"}, {"home": "dram0", "compute": "cpu0"}, {"home": "dram0..1", "numa": "interleave"},
        {"home": "dram0", "compute": "gpu0", "access": "on_demand"}, {"routing": {"zipf": 1}}, {"home": "ssd0"},
        {"home": "dram1", "compute": "gpu0", "cache": {"memory": "hbm0", "experts": 3}},
        {"home": "dram0", "compute": "gpu0", "cache": {"memory": "dram1", "experts": 3},
         "prefetch": {"accuracy": "80%"}},
        {"home": "dram0 + dram1", "compute": "cpu0"}, {"home": "dram0", "access": "in_place", "compute": "gpu1"},
        {"home": "ssd0", "compute": "gpu0", "access": "on_demand"}, {"home": "dram0", "compute": "gpu0..1"},
    ],
    "tensors": [{"attn_.*": "dram0"}, {"ffn_up.*": "dram0", "attn_k": "hbm1"}, {".*_exps": "ssd0"},
                {"ffn_.*": "dram0 + dram1"}],
    "numa": ["local", "interleave", "duplicate"],
    "page_cache": ["dram0", {"memory": "dram0", "free": "20 MB"}, {"memory": "dram0", "free": "20 MB", "pinned": True}],
    "split": [{"gpu0": "20%", "cpu0": "rest"}, {"cpu1": "50%", "gpu0": "20%", "gpu1": "rest"}],
    "layout": ["streamed_first", "streamed_last"],
    "access": ["in_place", "copy"],
    "host_memory": ["pageable", "page cache"],
    "kv": ["dram0", "hbm0..1", "dram0..1", "ssd0", {"hbm0": "60%", "dram0": "rest"},
           {"dram0": "2 layers", "hbm0": "rest"}, {"with layer": "50%", "dram0": "rest"}],
    "attention": ["cpu0", "cpu0..1", "gpu1"],
    "kv_block": ["16 tokens", {"tokens": 16, "each": "layer", "per_copy": "2 us"}],
    "cache": ["dram0", {"dram0": "10 KB", "ssd0": "rest"}, {"hbm0..1": "50%", "dram0": "rest"}],
    "hand_over": ["dram1", "hbm1"],
}  # fmt: skip
COSTS = [{}, {"sync": {"each": "hand-over", "time": "10 us"}}, {"launch": {"each": "layer", "time": "5 us"}},
         {"sync": {"each": "hand-over", "time": "10 us"}, "launch": {"each": "step", "time": "5 us"}}]  # fmt: skip
WORKLOADS = [
    {"phase": "decode", "batch": 2, "context": 100}, {"phase": "decode", "batch": 1, "context": 100},
    {"phase": "prefill", "batch": 2, "prompt": 50}, {"phase": "prefill", "batch": 2, "prompt": 50, "cached": "80%"},
    {"phase": "generate", "batch": 2, "prompt": 20, "generate": 3},
]  # fmt: skip


@st.composite
def files(draw):
    """A plan file as a value: the weights, and some of the other keys."""
    placement = {"weights": draw(st.sampled_from(KEYS["weights"]))}
    for key in draw(st.lists(st.sampled_from(list(KEYS)[1:]), max_size=4, unique=True)):
        placement[key] = draw(st.sampled_from(KEYS[key]))
    model = {"config": draw(st.sampled_from(("mixture.json", "mixture.json", "plain.json"))), "weights": "bf16"}
    costs = draw(st.sampled_from(COSTS))
    return {
        "model": model, "workload": draw(st.sampled_from(WORKLOADS)), "placement": placement,
        **({"costs": costs} if costs else {}), "overlap": {"buffers": draw(st.integers(1, 3))},
    }  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    there = tmp_path_factory.mktemp("together")
    for name, shape in (("mixture", MIXTURE_SHAPE), ("plain", SHAPE)):
        (there / f"{name}.json").write_text(json.dumps(shape), encoding="utf-8")
    return there


def plan_in(folder, value):
    """The plan of a file, or None where it is refused, which is at a line and in words."""
    server = box(2, 2, nvlink=100e9, host=400 * MB)
    try:
        return plan_of(folder, yaml.safe_dump(value, sort_keys=False), server), server
    except DocumentError as error:
        assert "line " in str(error) and len(str(error)) > 40
        return None, server


@examples(60, 150)
@given(files())
def test_any_keys_are_answered_or_refused(folder, value):
    plan, server = plan_in(folder, value)
    if plan is None:
        return
    step = compile_step(server, plan)
    close = 1 + 1e-12
    peak, sustained, found, alone = floor(step), floor(step, "value"), schedule(step), serial(step)
    for name in ("seconds", "cold_seconds"):
        low, middle, expected, most = (getattr(one, name) for one in (peak, sustained, found, alone))
        assert 0 < low <= middle * close and middle <= expected * close and expected <= most * close
    assert all(0 <= use.least <= use.load * close for row in step.rows for use in row.uses)


# What combinations come to.


def moves(plan, start):
    """Bytes of a step's moves whose names begin so."""
    return sum(block.repeat * (plan.tensors[task.tensor].bytes if task.bytes is None else task.bytes)
               for block in plan.blocks for task in block.tasks if isinstance(task, Transfer)
               and task.name.startswith(start))  # fmt: skip


def value(placement, batch=2, **more):
    return {"model": {"config": "mixture.json", "weights": "bf16"}, "workload": {"batch": batch, "context": 100},
            "placement": {"reserve": "0 B", **placement}, **more}  # fmt: skip


def test_ranks_attend_while_the_cpu_has_the_experts(folder):
    plan, server = plan_in(folder, value(
        {"weights": {"hbm0..1": "rest"}, "parallel": {"by": "tensor", "algorithm": "ring"},
         "experts": {"home": "dram0", "compute": "cpu0"}}))  # fmt: skip
    names = [task.name for block in plan.blocks for task in block.tasks]
    assert {"all-reduce of attention", "hidden row to dram0", "experts", "hidden row to hbm0..1"} <= set(names)
    found = loads(compile_step(server, plan), False)
    experts = sum(block.repeat * plan.tensors[name].bytes for block in plan.blocks for task in block.tasks
                  if task.name == "experts" for name in task.reads)  # fmt: skip
    assert found["dram0"] == pytest.approx(experts, rel=1e-2)
    assert found["hbm0"] == pytest.approx(found["hbm1"], rel=1e-2)


def test_pages_are_kept_of_what_no_router_chooses(folder):
    """Experts in host memory, the rest on a drive and larger than its cache: each step reads that rest, no expert."""
    asked = {"weights": {"ssd0": "rest"}, "compute": "gpu0", "page_cache": {"memory": "dram1", "free": "1 MB"}}
    with pytest.raises(DocumentError, match="Write `experts: {access: on_demand}`"):
        plan_of(folder, yaml.safe_dump(value(asked | {"compute": "cpu1"})), box(2, 2, nvlink=100e9))
    whole, _ = plan_in(folder, value(asked))
    plan, _ = plan_in(folder, value(asked | {"experts": {"home": "dram0", "compute": "cpu0"}}))
    apart = weigh(model_of(MIXTURE_SHAPE, "mixture"), "bf16")
    assert moves(whole, "read ") == sum(apart.layers) + apart.head + apart.norm, "a GPU fetches all experts"
    rest = sum(size - 8 * expert for size, expert in zip(apart.layers, apart.experts, strict=True))
    assert moves(plan, "read ") == rest + apart.head + apart.norm
    assert moves(plan, "fetch experts") == 0


def test_routing_is_of_spread_experts_too(folder):
    asked = {"weights": {"hbm0..1": "rest"}, "parallel": "expert"}
    even, _ = plan_in(folder, value(asked, 16))
    skewed, _ = plan_in(folder, value(asked | {"experts": {"routing": {"zipf": 2}}}, 16))
    assert skewed.tensors["experts 1"].bytes < even.tensors["experts 1"].bytes
    assert skewed.tensors["experts 1"].least == even.tensors["experts 1"].least


def test_patterns_may_name_several_memories(folder):
    """Experts over both sockets' memories by their rates, read by one CPU where they are."""
    plan, server = plan_in(folder, value(
        {"weights": {"dram0": "rest"}, "compute": "cpu0", "tensors": {"_exps": "dram0 + dram1"}}))  # fmt: skip
    (shares,) = {plan.tensors[name].home for name in plan.tensors if name.startswith("experts")}
    assert [name for name, _ in shares] == ["dram0", "dram1"] and moves(plan, "fetch") == 0
    assert dict(shares)["dram0"] == pytest.approx(100 / 140)


def test_replicas_load_a_prefix_each_for_its_own_sequences(folder):
    asked = {"weights": {"hbm0..1": "rest"}, "parallel": "data", "cache": "dram0"}
    work = {"phase": "prefill", "batch": 4, "prompt": 100, "cached": 80}
    plan, server = plan_in(folder, value(asked) | {"workload": work})
    model = model_of(MIXTURE_SHAPE, "mixture")
    assert moves(plan, "load cached KV") == 4 * 80 * model.layers * kv_bytes(model, "f16")
    found = loads(compile_step(server, plan), False)
    assert found["pcie0.hbm0"] == pytest.approx(found["pcie1.hbm1"], rel=1e-3)


def test_attention_elsewhere_goes_with_experts_elsewhere(folder):
    """One CPU attends and the other has the experts; of the GPU's weights and work nothing is lost or counted twice."""
    asked = {"weights": {"hbm0": "rest"}, "kv": "dram1", "attention": "cpu1",
             "experts": {"home": "dram0", "compute": "cpu0"}}  # fmt: skip
    plain, _ = plan_in(folder, value({"weights": {"hbm0": "rest"}}))
    plan, _ = plan_in(folder, value(asked))

    def work(of):
        return sum(block.repeat * task.flops for block in of.blocks for task in block.tasks
                   if hasattr(task, "flops"))  # fmt: skip

    def read(of):
        return sum(block.repeat * of.tensors[name].bytes for block in of.blocks for task in block.tasks
                   for name in getattr(task, "reads", ()) if of.tensors[name].what in ("layer weights", "experts"))

    assert work(plan) == pytest.approx(work(plain)) and read(plan) == pytest.approx(read(plain))
    names = {task.name for block in plan.blocks for task in block.tasks}
    assert {"projections", "attention on cpu1", "attention", "experts", "hidden row to dram0"} <= names


def test_a_reserve_is_kept_on_every_gpu_that_runs_anything(folder):
    """On one that attends to what others keep, and on one that has a share of rows though a CPU leads."""
    for asked in (
        {"weights": {"hbm0": "rest"}, "kv": "hbm1", "attention": "gpu1"},
        {"weights": {"dram0": "rest"}, "split": {"cpu0": "50%", "gpu0": "25%", "gpu1": "rest"}},
    ):
        plan, _ = plan_in(folder, value(asked | {"reserve": "1 MB"}))
        assert [memory for memory, what, _ in plan.held if what == "runtime reserve"] == ["hbm0", "hbm1"]


def test_hand_overs_to_attention_elsewhere_are_charged(folder):
    """Twice a layer: what the CPU has attended to, and what follows on the GPU; nothing where no row leaves."""
    cost = {"costs": {"sync": {"each": "hand-over", "time": "10 us"}}}
    plan, server = plan_in(folder, value({"weights": {"hbm0": "rest"}, "kv": "dram0", "attention": "cpu0"}, **cost))
    charged = [task.name for block in plan.blocks for _ in range(block.repeat) for task in block.tasks
               if task.name.startswith("sync")]  # fmt: skip
    assert charged.count("sync, cpu0") == charged.count("sync, gpu0") == 4
    free, _ = plan_in(folder, value({"weights": {"hbm0": "rest"}, "kv": "dram0", "attention": "cpu0"}))
    more = serial(compile_step(server, plan)).seconds - serial(compile_step(server, free)).seconds
    assert more == pytest.approx(8 * 10e-6, rel=1e-6)
    near, _ = plan_in(folder, value({"weights": {"hbm0": "rest"}}, **cost))
    assert any('"sync" is charged nowhere' in note for note in near.assumptions)


def test_rows_may_be_split_while_the_cache_is_elsewhere(folder):
    asked = {"weights": {"dram0": "rest"}, "split": {"gpu0": "40%", "cpu0": "rest"}, "kv": "dram1"}
    plan, _ = plan_in(folder, value(asked))
    model = model_of(MIXTURE_SHAPE, "mixture")
    assert moves(plan, "fetch KV") == 2 * 100 * model.layers * kv_bytes(model, "f16")
    plan, _ = plan_in(folder, value(asked | {"kv": "ssd0"}))
    assert moves(plan, "write KV") == 2 * model.layers * kv_bytes(model, "f16")


@pytest.mark.parametrize(("keys", "said"), [
    ({"workload": {"phase": "train", "batch": 8, "cached": "80%"}}, '"cached" does not belong to phase train'),
    ({"workload": {"phase": "train", "batch": 8, "steps": 20}}, '"steps" does not belong to phase train'),
    ({"placement": {"weights": {"hbm0": "rest"}, "parallel": "data"}}, 'phase train has "training" instead'),
    ({"model": {"blocks": {"count": 4, "bytes": "7 MB", "flops": "1 TFLOP"}}}, "blocks state neither"),
])  # fmt: skip
def test_a_training_step_has_keys_of_its_own(folder, keys, said):
    asked = {"model": {"config": "plain.json", "weights": "bf16"}, "workload": {"phase": "train", "batch": 8},
             "training": {"parameters": "hbm0", "optimizer": "dram0", "compute": "gpu0"}}  # fmt: skip
    assert plan_of(folder, yaml.safe_dump(asked), box(2, 2, nvlink=100e9)).training is not None
    with pytest.raises(DocumentError, match=said):
        plan_of(folder, yaml.safe_dump(asked | keys), box(2, 2, nvlink=100e9))


@pytest.mark.parametrize(("weights", "kv", "attention"), [
    ("dram0", "dram0..1", "cpu0..1"), ("dram0..1", "ssd0", "cpu0"),
])  # fmt: skip
def test_attention_on_processors_of_which_some_run_the_layers_is_refused(folder, weights, kv, attention):
    """Queries or outputs would be moved to where they are."""
    asked = {"weights": {weights: "rest"}, "kv": kv, "attention": attention}
    there = attention.replace("cpu", "dram")
    with pytest.raises(DocumentError, match=rf"line \d+.*{attention} works in {there}, and in dram0 the layer runs"):
        plan_of(folder, yaml.safe_dump(value(asked)), box(2, 2, nvlink=100e9, host=400 * MB))
    plan, server = plan_in(folder, value(asked | {"compute": "gpu0"}))
    assert compile_step(server, plan)
