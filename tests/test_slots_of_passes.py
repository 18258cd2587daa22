"""Memory of requests of several passes: slots of the prompt, of the last chunk, of the longest context, and heads."""

from __future__ import annotations

import pytest

from offload import load_topology
from offload.capacity import missing
from offload.compiler import compile_step
from offload.designs import Experts, Parallel, Placement, Portion, Workload, plan_model
from offload.designs.speculation import Speculation
from offload.models import catalogue, weigh

REST = Portion("rest")
HBM = (("hbm0", REST),)
ON_DEMAND = Experts((("dram0", REST),), "gpu0", "on_demand")


def compiled(server, model, workload, **placed):
    topology = load_topology(server)
    plan = plan_model(catalogue[model], topology, workload, Placement(**placed), weights="bf16")
    return compile_step(topology, plan)


def buffers(step, memory="hbm0"):
    return step.occupied[memory].get("buffers", 0)


# --- runs with speculation ---


@pytest.mark.parametrize(("model", "prompt", "by_hand"), [
    ("mixtral-8x7b", 1000, 2 * 8 * 3 * 4096 * 14336 * 2), ("qwen3-30b-a3b", 200_000, 2 * 128 * 3 * 2048 * 768 * 2),
])  # fmt: skip
def test_a_run_with_guesses_has_slots_for_its_prompt(model, prompt, by_hand):
    """The prompt's tokens choose every expert: two slots, each of all experts of a layer."""
    guessing = Speculation(1, 0.8)
    placed = {"weights": HBM, "experts": ON_DEMAND}
    run = compiled("desktop-4090", model, Workload("generate", 1, prompt=prompt, generate=20, speculation=guessing),
                   **placed)
    plain = compiled("desktop-4090", model, Workload("generate", 1, prompt=prompt, generate=20), **placed)
    assert buffers(run) == buffers(plain) == by_hand
    round_ = compiled("desktop-4090", model, Workload(batch=1, context=prompt, speculation=guessing), **placed)
    assert buffers(round_) < by_hand, "two positions choose fewer"
    if model == "qwen3-30b-a3b":
        position = 48 * 2 * 4 * 128 * 2
        assert missing(plain)["hbm0"] > 268e6
        assert missing(run)["hbm0"] - missing(plain)["hbm0"] == position, "the last round guesses beyond the run"


def test_a_run_with_guesses_has_slots_for_the_kv_of_its_last_round():
    """Two slots of a layer's KV at the longest context: the last round starts with one token to come."""
    guessing = Speculation(3, 0.8)
    prompt, tokens = 1000, 500
    run = compiled("desktop-4090", "llama-3.2-1b", Workload("generate", 1, prompt=prompt, generate=tokens,
                                                            speculation=guessing), weights=HBM, kv="dram0")
    last = compiled("desktop-4090", "llama-3.2-1b", Workload(batch=1, context=prompt + tokens - 1,
                                                             speculation=guessing), weights=HBM, kv="dram0")
    assert buffers(run) == buffers(last) > 0
    layer = 2 * 8 * 64 * 2
    assert buffers(run) == 2 * (prompt + tokens - 2) * layer


# --- prompts in chunks ---


@pytest.mark.parametrize("home", ["dram0", "ssd0"])
def test_the_last_chunk_of_a_prompt_has_a_slot_for_the_head(home):
    """1000 tokens in chunks of 300: the plan is of a full chunk, which streams no head, and the last one does."""
    asked = Workload("prefill", 1, 0, prompt=1000, chunk=300)
    step = compiled("desktop-4090", "llama-3.1-8b", asked, weights=((home, REST),), compute="gpu0")
    weighed = weigh(catalogue["llama-3.1-8b"], "bf16")
    head = 128_256 * 4096 * 2 + 4096 * 2
    assert head == weighed.head + weighed.norm
    assert buffers(step) == 2 * max(weighed.layers) + head == 1_923_129_344
    run = compiled("desktop-4090", "llama-3.1-8b", Workload("generate", 1, prompt=1000, generate=20),
                   weights=((home, REST),), compute="gpu0")
    assert buffers(step) == buffers(run) and buffers(step, "dram0") == buffers(run, "dram0")
    run = compiled("desktop-4090", "llama-3.1-8b", Workload("generate", 1, prompt=1000, generate=20, chunk=300),
                   weights=((home, REST),), compute="gpu0")
    assert buffers(step) == buffers(run) and buffers(step, "dram0") == buffers(run, "dram0")
    assert (buffers(step, "dram0") >= head) == (home == "ssd0"), "what comes from a drive stops there"
    even = compiled("desktop-4090", "llama-3.1-8b", Workload("prefill", 1, 0, prompt=900, chunk=300),
                    weights=((home, REST),), compute="gpu0")
    assert buffers(even) == buffers(step) and not even.plan.passes, "the last full chunk is the last one"


def test_a_prompt_whose_cached_kv_is_loaded_has_slots_for_it():
    """Decode loads nothing, and the prefill of the same run does: memory holds the most of either."""
    placed = {"weights": HBM, "cache": (("dram0", REST),)}
    half = Portion("share", 0.5)
    prefill = compiled("desktop-4090", "llama-3.2-1b", Workload("prefill", 1, 0, prompt=8000, cached=half), **placed)
    run = compiled("desktop-4090", "llama-3.2-1b", Workload("generate", 1, prompt=8000, generate=2, cached=half),
                   **placed)
    assert buffers(run) == buffers(prefill) == 2 * 4000 * 2 * 8 * 64 * 2


# --- heads of replicas ---


@pytest.mark.parametrize(("model", "parallel", "share"), [
    ("llama-3.1-70b", Parallel("data", tensor=2), 2), ("llama-3.1-70b", Parallel("data", tensor=4), 4),
    ("llama-3.1-8b", Parallel("data"), 1), ("mixtral-8x7b", Parallel("expert"), 1),
    ("mixtral-8x7b", Parallel("expert", attention="tensor"), 8), ("llama-3.1-8b", None, 8),
])  # fmt: skip
def test_each_replica_holds_a_head_in_chunks_without_an_output(model, parallel, share):
    """The full chunk of 100 tokens in chunks of 64 yields nothing, and the head is in memory all the same."""
    def head(**more):
        step = compiled("dgx-h100", model, Workload("prefill", 8, 0, prompt=100, **more),
                        weights=(("hbm0..7", REST),), parallel=parallel)
        (found,) = {step.occupied[f"hbm{i}"]["output head"] for i in range(8)}
        return found

    weighed = weigh(catalogue[model], "bf16")
    assert head(chunk=64) == head() == (weighed.head + weighed.norm) / share
    if share == 2:
        assert head(chunk=64) == (128_256 * 8192 * 2 + 8192 * 2) / 2


def test_a_head_on_the_host_is_held_once_for_all_replicas():
    step = compiled("dgx-h100", "llama-3.1-8b", Workload("prefill", 8, 0, prompt=100, chunk=64),
                    weights=(("dram0", REST),), compute="gpu0..7", parallel=Parallel("data"))
    assert step.occupied["dram0"]["output head"] == 128_256 * 4096 * 2 + 4096 * 2
