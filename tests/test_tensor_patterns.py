"""Tensors by pattern, as engines take them: what matches, what is refused, and plans of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload import load_topology
from offload.bounds import floor
from offload.compiler import compile_step
from offload.designs import Cost, Experts, Placement, Portion, Workload, plan_model
from offload.errors import ModelError, PlanError
from offload.models import catalogue, layers_of
from offload.models.architecture import Matrix
from offload.models.gguf_names import first_match, gguf_names, tensor_pattern
from offload.models.weights import layer_tensors
from offload.plan import Compute, GivenTime
from offload.schedules import schedule
from offload.step import loads
from tests.boxes import check_ladder

REST = Portion("rest")
GPU = Placement((("hbm0", REST),))


def tasks(plan):
    return [(block, task) for block in plan.blocks for task in block.tasks]


def on_demand(**more):
    return Experts((("dram0", REST),), "gpu0", "on_demand", **more)


# --- tensors by pattern ---


def names_of(model):
    return {name for layer in layer_tensors(catalogue[model], "bf16") for one, _ in layer for way in gguf_names(one)
            for name in way}  # fmt: skip


@pytest.mark.parametrize(
    ("model", "some"),
    [
        ("llama-3.1-8b", {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"}),
        ("qwen3-30b-a3b", {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate_inp", "ffn_gate_exps",
                           "ffn_up_exps", "ffn_down_exps"}),
        ("deepseek-v3", {"attn_q_a", "attn_q_b", "attn_kv_a_mqa", "attn_kv_b", "attn_k_b", "attn_v_b", "attn_output",
                         "ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps", "ffn_gate_shexp",
                         "ffn_up_shexp", "ffn_down_shexp"}),
        ("gpt-oss-20b", {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate_inp", "ffn_gate_up_exps",
                         "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"}),
        ("phi-3-mini", {"attn_qkv", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate_up", "ffn_up", "ffn_down"}),
        ("jamba-1.5-mini", {"ssm_in", "ssm_conv1d", "ssm_x", "ssm_dt", "ssm_out", "ffn_gate_inp", "ffn_gate_exps",
                            "ffn_up_exps", "ffn_down_exps"}),
    ],
)  # fmt: skip
def test_names_of_gguf_files(model, some):
    found = {name.removeprefix("blk.5.").removesuffix(".weight") for name in names_of(model)
             if name.startswith("blk.5.") and name.endswith(".weight")}  # fmt: skip
    assert found == some


def test_every_matrix_of_every_model_has_a_name():
    for name, model in catalogue.items():
        for layer in set(layers_of(model)):
            for one in layer.matrices:
                assert bool(gguf_names(replace(one, layer=3))) == (one.is_matrix or "correction" in one.role), name


def test_the_first_pattern_that_matches_counts():
    one = Matrix("ffn_up", 12, 8, 8, 4, 2)
    read = [tensor_pattern(text) for text in (r"blk\.(2|3)\.", "ffn_(up|gate)_exps", "exps")]
    assert first_match(one, read) == 1 and first_match(replace(one, role="ffn_down"), read) == 2
    assert first_match(replace(one, layer=3), read) == 0 and first_match(Matrix("norm", 3, 1, 8), read) is None
    fused = Matrix("ffn_gate_up", 12, 8, 8, 4, 2)
    texts = ("ffn_up_exps", "ffn_(up|gate)_exps", "gate_up")
    assert [first_match(fused, [tensor_pattern(text)]) for text in texts] == [None, 0, 0]


@pytest.mark.parametrize("text", ["", " ", "*exps", "(a+)+$", "(a|b)*", "a*b*c*d*e*f*", "blk(", "[",
                                  "a{99999999}b" * 30, "a{9999999999999}", "x" * 301, "(.|.)" * 20, ".?" * 20])
def test_unsafe_patterns_are_refused(text):
    with pytest.raises(ModelError):
        tensor_pattern(text)


@pytest.mark.parametrize("text", [
    r"blk\.(1[0-9]|2[0-9]|3[0-9])\.ffn_.*_exps.*", r"blk\..*\.ffn_.*_exps\..*", "(?:up|gate)_exps", r"\.[*+]x",
    "(" + "|".join(map(str, range(60))) + r")\.ffn_(up|gate|down)_(ch|)exps\..*",
])  # fmt: skip
def test_patterns_that_people_write_are_taken(text):
    assert tensor_pattern(text).pattern == text


@given(st.text(st.sampled_from("abk.*+?{}()|[]^$\\0_9,:"), max_size=40))
@settings(max_examples=300, deadline=2000)
def test_any_text_is_a_pattern_or_refused_in_words(text):
    try:
        found = first_match(Matrix("ffn_gate_up", 10, 8, 8, 4, 2), [tensor_pattern(text)])
    except ModelError as error:
        assert len(str(error)) < 300
        return
    assert found in (None, 0)


def test_a_pattern_of_experts_is_the_experts_elsewhere():
    """-ot exps=CPU for ten layers is the plan of experts whose home is host memory."""
    topology = load_topology("desktop-4090")
    model = catalogue["qwen3-30b-a3b"]

    def of(**placed):
        plan = plan_model(model, topology, Workload(batch=3, context=500), replace(GPU, **placed), weights="q4_k_m")
        step = compile_step(topology, plan)
        return schedule(step).seconds, floor(step).seconds, loads(step, least=False), step.occupied

    patterns = of(tensors=((r"blk\.[0-9]\.ffn_.*_exps", "dram0"),))
    experts = of(experts=Experts((("hbm0", REST), ("dram0", Portion("layers", 10)))))
    assert patterns[:2] == pytest.approx(experts[:2], rel=1e-12)
    for i in (2, 3):
        assert {key: pytest.approx(value) for key, value in patterns[i].items()} == experts[i]


PATTERNS = st.lists(st.tuples(
    st.sampled_from(["exps", "ffn_up", "ffn_(gate|down)_exps", "attn_q", "attn", r"blk\.[0-4]\.", "gate_inp", "shexp",
                     "attn_(k|v|kv)", r"blk\.1.*down"]),
    st.sampled_from(["dram0", "hbm0"])), min_size=1, max_size=4, unique_by=lambda one: one[0])  # fmt: skip


@pytest.mark.slow
@given(PATTERNS, st.sampled_from(["deepseek-v2-lite", "qwen3-30b-a3b"]), st.sampled_from(["local", "gpu0"]),
       st.integers(0, 24), st.integers(1, 9), st.sampled_from(["copy", "on_demand", "in_place"]))  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_parts_by_pattern_add_up_and_their_ladders_hold(patterns, name, compute, layers, batch, access):
    topology, model = load_topology("desktop-4090"), catalogue[name]
    placement = Placement((("hbm0", Portion("layers", layers)), ("dram0", REST)), compute)
    sync = Cost("sync", "hand-over", GivenTime(1e-5, 2e-5, 3e-5))
    split = replace(placement, tensors=tuple(patterns), experts=Experts(access=access), costs=(sync,))
    try:
        plans = [plan_model(model, topology, Workload(batch=batch, context=700), one, weights="q4_k_m")
                 for one in (placement, split)]  # fmt: skip
    except PlanError as error:
        assert "matches no tensor" in str(error)
        return
    sums = []
    for plan in plans:
        computes = [(block, task) for block, task in tasks(plan) if isinstance(task, Compute)]
        sums.append((
            sum(block.repeat * task.flops for block, task in computes),
            *(sum(block.repeat * getattr(plan.tensors[name], key) for block, task in computes for name in task.reads
                  if plan.tensors[name].what in ("layer weights", "experts")) for key in ("bytes", "least", "stored")),
        ))  # fmt: skip
    assert sums[1] == pytest.approx(sums[0], rel=1e-12)
    check_ladder(compile_step(topology, plans[1]))
