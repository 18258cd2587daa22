"""A prefill's KV is handed over to ranks that work as those that send it."""

from __future__ import annotations

import pytest

from offload import load_topology
from offload.capacity import room
from offload.compiler import compile_step
from offload.designs import Parallel, Placement, Portion, Workload, plan_model
from offload.designs.parallel import batch_unit
from offload.errors import PlanError
from offload.models import catalogue
from offload.step import loads

REST = Portion("rest")
LITE = 27 * 576 * 2  # bytes of a position of deepseek-v2-lite: 27 layers, a latent of 512 and 64 of RoPE
QWEN = 48 * 2 * 4 * 128 * 2  # qwen3-30b-a3b: 48 layers, 4 KV heads of 128


@pytest.fixture(scope="module")
def dgx():
    return load_topology("dgx-h100")


def sent(topology, model, to, parallel, batch=4, at="hbm0..3"):
    placed = Placement(((at, REST),), hand_over=to, parallel=parallel)
    plan = plan_model(catalogue[model], topology, Workload("prefill", batch, 0, prompt=8192), placed, weights="bf16")
    return compile_step(topology, plan)


def handed(step):
    return {name: parts["KV handed over"] for name, parts in step.occupied.items() if "KV handed over" in parts}


@pytest.mark.parametrize(("parallel", "to", "copies"), [
    (None, "hbm4..7", 4), (Parallel("data", tensor=2), "hbm4..7", 2), (Parallel("data"), "hbm4..7", 1),
    (Parallel("expert"), "hbm4..7", 1), (Parallel("expert", attention="tensor"), "hbm4..7", 4),
    (None, "hbm4", 1), (Parallel("data", tensor=2), "hbm4", 1), (Parallel("data", tensor=2), "hbm4..5", 2),
    (Parallel("data", tensor=2), "dram0..1", 1), (None, "dram0..1", 1),
])  # fmt: skip
def test_each_rank_of_a_team_gets_all_latents_of_its_sequences(dgx, parallel, to, copies):
    once = 4 * 8192 * LITE
    assert once == 1_019_215_872
    step = sent(dgx, "deepseek-v2-lite", to, parallel)
    there = handed(step)
    assert sum(there.values()) == copies * once and len(set(there.values())) == 1
    for least in (True, False) if to.startswith("hbm") else ():
        for name, size in there.items():
            assert loads(step, least=least)[f"nvlink{name[-1]}.{name}"] == size, "all of it is sent"


def test_heads_go_to_the_ranks_that_have_them(dgx):
    """Four KV heads over four ranks or fewer: each has its own, so that nothing goes twice."""
    once = 4 * 8192 * QWEN
    for parallel, copies in ((None, 1), (Parallel("data", tensor=2), 1), (Parallel("data"), 1)):
        there = handed(sent(dgx, "qwen3-30b-a3b", "hbm4..7", parallel))
        assert sum(there.values()) == copies * once


def test_ranks_that_make_no_teams_are_refused(dgx):
    with pytest.raises(PlanError, match=r"hbm4\.\.6 are 3 ranks, which make no whole teams of 2 .*Name 2 or 4"):
        sent(dgx, "deepseek-v2-lite", "hbm4..6", Parallel("data", tensor=2))
    with pytest.raises(PlanError, match=r"hand_over: 4 sequences do not split evenly over the 3 ranks of hbm4\.\.6"):
        sent(dgx, "deepseek-v2-lite", "hbm4..6", Parallel("data"))


def test_a_batch_grows_by_what_both_sides_share(dgx):
    step = sent(dgx, "deepseek-v2-lite", "hbm4..6", Parallel("data"), batch=12)
    assert batch_unit(dgx, step.plan.origin[2]) == 12
    assert sum(handed(step).values()) == 12 * 8192 * LITE
    (batch,) = (one for one in room(step, ()) if one.what == "batch")
    assert batch.most is not None and batch.most % 12 == 0 and batch.fits
