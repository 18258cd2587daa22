"""A layer in parts: experts apart from the rest, with hand-overs, and that no byte and no FLOP is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload import load_topology
from offload.bounds import floor
from offload.compiler import compile_step
from offload.designs import Experts, Placement, Portion, Workload, plan_model
from offload.errors import PlanError
from offload.models import catalogue
from offload.plan import Collective, Compute, Transfer
from offload.schedules import schedule, serial
from offload.step import loads
from tests.runs import examples

REST = Portion("rest")
MODELS = ("qwen3-30b-a3b", "mixtral-8x7b", "deepseek-v3", "gpt-oss-20b")


@pytest.fixture(scope="module")
def desktop():
    return load_topology("desktop-4090")


def planned(topology, experts, name="qwen3-30b-a3b", weights="q8_0", workload=None, **placed):
    placement = Placement((("hbm0", REST),), experts=experts, **placed)
    return plan_model(catalogue[name], topology, workload or Workload(context=4096), placement, weights=weights)


def tasks(plan):
    return [(block, task) for block in plan.blocks for task in block.tasks]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("weights", ["bf16", "q4_k_m"])
@pytest.mark.parametrize("workload", [Workload(batch=3, context=100), Workload("prefill", 2, 0, prompt=64)])
def test_parts_add_up(desktop, name, weights, workload):
    """With experts apart a step reads the same bytes and does the same FLOP, and stores the same."""
    whole = planned(desktop, None, name, weights, workload)
    apart = planned(desktop, Experts((("dram0", REST),)), name, weights, workload)
    for count in (
        lambda plan: sum(block.repeat * task.flops for block, task in tasks(plan) if isinstance(task, Compute)),
        lambda plan: sum(block.repeat * plan.tensors[tensor].bytes for block, task in tasks(plan)
                         if isinstance(task, Compute) for tensor in task.reads),
        lambda plan: sum(block.repeat * plan.tensors[tensor].least for block, task in tasks(plan)
                         if isinstance(task, Compute) for tensor in task.reads
                         if plan.tensors[tensor].what in ("layer weights", "experts")),
        lambda plan: sum(sum(one.values()) for one in compile_step(desktop, plan).occupied.values()),
    ):  # fmt: skip
        assert count(apart) == pytest.approx(count(whole), rel=1e-12)


def test_experts_on_the_cpu(desktop):
    """8 of 128 experts of 24 of 48 layers, each of 3 x 768 x 2048 weights at 34 bytes for 32."""
    step = compile_step(desktop, planned(desktop, Experts((("hbm0", REST), ("dram0", Portion("layers", 24))))))
    read = 24 * 8 * 3 * 768 * 2048 * 34 // 32
    there = loads(step, least=False)
    assert there["cpu0.reads"] == read
    rows = 2 * 24 * 2 * 2048  # there and back, 16-bit
    assert there["pcie0.hbm0"] + there["pcie0.socket0"] == rows + 2 * 2048
    # GPU and CPU take turns: times add.
    expected = schedule(step)
    assert expected.seconds == pytest.approx(serial(step).seconds, rel=1e-9)
    assert read / desktop.resources["cpu0.reads"].sustained_at("read").value < expected.seconds
    names = [task.name for _, task in tasks(step.plan) if isinstance(task, Transfer)]
    assert names.count("hidden row to dram0") and names.count("hidden row to hbm0")


def test_on_demand_waits_for_the_router(desktop):
    """What is fetched after the router adds to the time; what is brought whole may be brought ahead."""
    chosen = compile_step(desktop, planned(desktop, Experts((("dram0", REST),), "gpu0", "on_demand")))
    everything = compile_step(desktop, planned(desktop, Experts((("dram0", REST),), "gpu0", "copy")))
    there, all_of_it = (loads(step, least=False)["pcie0.hbm0"] for step in (chosen, everything))
    assert (all_of_it - 4096) == pytest.approx(16 * (there - 4096), rel=1e-12)  # 8 of 128
    solo = serial(chosen).seconds
    assert schedule(chosen).seconds > 0.9 * solo
    link = desktop.resources["pcie0.hbm0"].sustained_at("pinned").value
    assert schedule(everything).seconds == pytest.approx(all_of_it / link, rel=0.05)
    in_place = planned(desktop, Experts((("dram0", REST),), "gpu0", "in_place"))
    assert not [task for _, task in tasks(in_place) if isinstance(task, Transfer) and task.tensor.startswith("experts")]
    assert loads(compile_step(desktop, in_place), least=False)["pcie0.hbm0"] == there


def test_ranks_add_up_after_each_part():
    """Attention on eight GPUs, experts of the host on its CPU: the rows are summed once, after attention."""
    topology = load_topology("dgx-h100")
    placement = Placement((("hbm0..7", REST),), experts=Experts((("dram0", REST),)))
    plan = plan_model(catalogue["qwen3-235b-a22b"] if "qwen3-235b-a22b" in catalogue else catalogue["mixtral-8x7b"],
                      topology, Workload(), placement, weights="bf16")
    sums = {task.name: task.times for _, task in tasks(plan) if isinstance(task, Collective)}
    assert list(sums.values()) == [2] or set(sums) == {"all-reduce of attention"}
    assert floor(compile_step(topology, plan)).seconds > 0


@pytest.mark.parametrize(
    ("experts", "said"),
    [
        (Experts((("dram0", Portion("layers", 3)),)), "placement.experts.home: 3 of 48 layers are placed"),
        (Experts((("dram9", REST),)), 'placement.experts.home: no memory "dram9"'),
        (Experts((("dram0", REST),), "gpu9"), 'no processor "gpu9"'),
    ],
)
def test_what_is_refused(desktop, experts, said):
    with pytest.raises(PlanError, match=said):
        planned(desktop, experts)


@given(st.integers(0, 48), st.integers(0, 48), st.sampled_from(["copy", "on_demand", "in_place"]),
       st.sampled_from(["local", "gpu0"]), st.integers(1, 64))  # fmt: skip
@examples(10, 30)
def test_ladders_of_parts(layers, experts, access, compute, batch):
    topology = load_topology("desktop-4090")
    placement = Placement((("hbm0", Portion("layers", layers)), ("dram0", REST)), compute,
                          experts=Experts((("hbm0", Portion("layers", experts)), ("dram0", REST)), "", access))
    plan = plan_model(catalogue["qwen3-30b-a3b"], topology, Workload(batch=batch, context=1000), placement,
                      weights="q4_k_m")
    step = compile_step(topology, plan)
    low, point, expected, most = floor(step).seconds, floor(step, "value").seconds, schedule(step), serial(step)
    assert low <= point * (1 + 1e-12)
    assert point <= expected.seconds * (1 + 1e-12)
    assert expected.seconds <= most.seconds * (1 + 1e-12)
