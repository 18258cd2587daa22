"""Decode by placement: where layers live and run, what is read and moved each token, and that no byte is lost."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload import load_topology
from offload.bounds import floor
from offload.capacity import missing
from offload.compiler import compile_step
from offload.designs import Placement, Portion, Workload, check_kv, plan_model, portions_in_layers, runs
from offload.designs.placement import place_layers
from offload.errors import ModelError, PlanError
from offload.models import attention_flops, head_flops, kv_bytes, layer_flops, weigh
from offload.plan import Compute, Overlap, Transfer
from offload.readers.huggingface import model_of
from offload.schedules import schedule, serial
from offload.step import loads
from offload.study import evaluate
from offload.topology import Memory, Processor, Rate, Topology
from tests.runs import examples

SHAPE = {
    "model_type": "llama", "num_hidden_layers": 10, "hidden_size": 512, "intermediate_size": 1024,
    "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 3000, "tie_word_embeddings": False,
}  # fmt: skip
MODEL = model_of(SHAPE, "small")
TIED = model_of(SHAPE | {"tie_word_embeddings": True}, "tied")
EACH = weigh(MODEL, "bf16").layers[0]
HEAD = weigh(MODEL, "bf16").head + weigh(MODEL, "bf16").norm
CACHE = 100 * kv_bytes(MODEL, "f16")
ROW = 2 * 512


@pytest.fixture(scope="module")
def desktop():
    return load_topology("desktop-4090")


def portions(**given: object) -> tuple[tuple[str, Portion], ...]:
    """hbm0=4 is four layers, 0.5 a share, "rest" the rest."""
    kinds = {int: "layers", float: "share"}
    return tuple(
        (memory, Portion("rest") if value == "rest" else Portion(kinds[type(value)], value))
        for memory, value in given.items()
    )


def decode(topology, compute="local", kv="with layer", batch=1, reserve=0, model=MODEL, overlap=None, **weights):
    placement = Placement(portions(**weights), compute, kv, reserve)
    return plan_model(model, topology, Workload("decode", batch, 100), placement, weights="bf16", overlap=overlap)


def expected(topology, plan) -> dict[str, float]:
    return {name: load for name, load in loads(compile_step(topology, plan), least=False).items() if load}


def layout(topology, compute="local", **weights) -> list[tuple[str, str]]:
    homes = place_layers(topology, Placement(portions(**weights), compute), [EACH] * 10)
    return [(home.memory, home.processor) for home in homes]


# --- how much ---


@pytest.mark.parametrize(
    ("given", "layers"),
    [
        ((Portion("layers", 4), Portion("rest")), [4, 6]),
        ((Portion("share", 0.59), Portion("rest")), [5, 5]),
        ((Portion("share", 0.3), Portion("share", 0.7)), [3, 7]),
        ((Portion("share", 0.29), Portion("share", 0.71)), [2, 8]),  # all of it: the last takes what rounding leaves
        ((Portion("share", 1.0), Portion("share", 0.0)), [10, 0]),
        ((Portion("share", 0.29), Portion("share", 0.70)), "9 of 10 layers"),
        ((Portion("share", 0.29), Portion("layers", 7)), "9 of 10 layers"),
        ((Portion("bytes", 399), Portion("rest")), [3, 7]),
        ((Portion("bytes", 400), Portion("rest")), [4, 6]),
        ((Portion("bytes", 10**18), Portion("rest")), [10, 0]),
        ((Portion("bytes", 0), Portion("rest")), [0, 10]),
        ((Portion("layers", 6), Portion("layers", 6)), "6 in a and 6 in b are more than the model's 10 layers"),
        ((Portion("rest"), Portion("rest")), "a and b both take the rest"),
        ((Portion("layers", 6), Portion("layers", 3)), "place 1 more"),
    ],
)
def test_portions_round_down_to_whole_layers(given, layers):
    placement = Placement(tuple(zip("ab", given, strict=True)))
    if isinstance(layers, str):
        with pytest.raises(PlanError, match=layers):
            portions_in_layers(placement, [100] * 10)
    else:
        assert portions_in_layers(placement, [100] * 10) == list(zip("ab", layers, strict=True))


def test_bytes_hold_whichever_layers_they_are():
    """Layers differ in size: as many as fit even if they are the largest, and all where all fit."""
    sizes = [100, 300, 100, 300]
    placed = [portions_in_layers(Placement((("a", Portion("bytes", size)), ("b", Portion("rest")))), sizes)[0][1]
              for size in (299, 300, 599, 600, 699, 700, 799, 800)]  # fmt: skip
    assert placed == [0, 1, 1, 2, 2, 3, 3, 4]


# --- where ---


def test_in_place_the_first_memory_named_takes_the_last_layers(desktop):
    found = layout(desktop, hbm0=4, dram0="rest")
    assert found == [("dram0", "cpu0")] * 6 + [("hbm0", "gpu0")] * 4
    assert layout(desktop, dram0=6, hbm0="rest") == [("hbm0", "gpu0")] * 4 + [("dram0", "cpu0")] * 6


def test_streamed_layers_lie_evenly_among_resident_ones(desktop):
    found = [memory for memory, processor in layout(desktop, "gpu0", hbm0=5, dram0=5) if processor == "gpu0"]
    assert found == ["hbm0", "dram0"] * 5
    found = [memory for memory, _ in layout(desktop, "gpu0", hbm0=7, dram0="rest")]
    assert found == ["hbm0", "hbm0", "hbm0", "dram0", "hbm0", "hbm0", "dram0", "hbm0", "hbm0", "dram0"]
    assert layout(desktop, "gpu0", dram0="rest") == [("dram0", "gpu0")] * 10


def test_three_memories(desktop):
    found = layout(desktop, hbm0=4, dram0=3, ssd0="rest")
    assert found[6:] == [("hbm0", "gpu0")] * 4
    assert [home for home in found[:6]] == [("dram0", "cpu0"), ("ssd0", "cpu0")] * 3, "a drive streams to the nearest"
    found = layout(desktop, "gpu0", hbm0=4, dram0=4, ssd0="rest")
    assert {processor for _, processor in found} == {"gpu0"} and found[0][0] == "hbm0"
    assert [sum(memory == name for memory, _ in found) for name in ("hbm0", "dram0", "ssd0")] == [4, 4, 2]


@given(resident=st.integers(0, 60), streamed=st.integers(0, 60))
def test_spread_is_even(resident, streamed):
    topology = load_topology("desktop-4090")
    placement = Placement(portions(hbm0=resident, dram0=streamed), "gpu0")
    found = [home.memory for home in place_layers(topology, placement, [1] * (resident + streamed))]
    assert (found.count("hbm0"), found.count("dram0")) == (resident, streamed)
    if resident and streamed:
        assert found[0] == "hbm0"
        places = [n for n, memory in enumerate(found) if memory == "dram0"]
        gaps = {later - earlier for earlier, later in pairwise(places)}
        assert not gaps or max(gaps) - min(gaps) <= 1


def test_runs_says_what_to_choose(desktop):
    assert runs(desktop, Placement(portions(hbm0="rest")), "hbm0") == "gpu0"
    assert runs(desktop, Placement(portions(hbm0="rest"), "cpu0"), "hbm0") == "cpu0"
    with pytest.raises(PlanError, match='placement.weights: no memory "hbm1".*Did you mean "hbm0"'):
        runs(desktop, Placement(portions(hbm1="rest")), "hbm1")
    with pytest.raises(PlanError, match='placement.compute: no processor "gpu1".*Did you mean "gpu0"'):
        runs(desktop, Placement(portions(hbm0="rest"), "gpu1"), "hbm0")
    rate = Rate(peak=1e11)
    apu = Topology.build(name="apu", title="apu", memories=[Memory("mem", "unified", capacity=10**11, rate=rate)],
                         processors=[Processor("gpu", "gpu", "mem"), Processor("cpu", "cpu", "mem")])  # fmt: skip
    with pytest.raises(PlanError, match="mem has 2 processors .* write `compute: gpu` or `compute: cpu`"):
        runs(apu, Placement(portions(mem="rest")), "mem")
    plan = decode(apu, "gpu", mem="rest")
    assert [part for _, part, _ in plan.held] == ["input embedding"]
    assert set(expected(apu, plan)) == {"mem"}, "one memory: nothing moves"


def test_kv_only_where_it_may_be(desktop):
    assert check_kv(desktop, "with layer") and check_kv(desktop, "dram0")
    for kv, said in (("dram", "Did you mean"), ("gpu0", "its memory is hbm0")):
        with pytest.raises(PlanError, match=f"placement.kv: .*{said}"):
            decode(desktop, kv=kv, hbm0="rest")
    with pytest.raises(ModelError, match="q9"):
        plan_model(MODEL, desktop, Workload(), Placement(portions(hbm0="rest")), weights="q9")


# --- what a token reads and moves ---


def test_in_place(desktop):
    plan = decode(desktop, hbm0=4, dram0="rest")
    new = kv_bytes(MODEL, "f16")
    found = expected(desktop, plan)
    assert found["dram0"] == 6 * (EACH + CACHE + new) + ROW
    assert found["hbm0"] == 4 * (EACH + CACHE + new) + HEAD + ROW
    assert found["pcie0.hbm0"] == ROW, "the hidden row, once"
    work = layer_flops(MODEL) + 100 * attention_flops(MODEL)
    assert found["cpu0.flops"] == 6 * work and found["gpu0.flops"] == 4 * work + head_flops(MODEL)
    assert "the last 4 layers and the head are on the GPU: llama.cpp -ngl 5" in plan.assumptions


def test_the_row_follows_the_layers(desktop):
    """GPU layers first and the head on the CPU: the embedding row goes up, the hidden row comes down."""
    plan = decode(desktop, dram0=6, hbm0="rest")
    moves = [task.name for block in plan.blocks for task in block.tasks if isinstance(task, Transfer)]
    assert moves == ["embedding row to hbm0", "hidden row to dram0"]
    assert [task.processor for block in plan.blocks for task in block.tasks if task.name == "head"] == ["cpu0"]
    found = expected(desktop, plan)
    assert found["pcie0.hbm0"] == found["pcie0.socket0"] == ROW
    assert not any("-ngl" in note for note in plan.assumptions), "llama.cpp puts the last layers on the GPU"


def test_notes_on_the_head_are_true(desktop):
    """The head goes to the first memory named, and -ngl is said only where llama.cpp would do the same."""
    notes = " ".join(decode(desktop, dram0="rest", hbm0=4).assumptions)
    assert "-ngl" not in notes and "the head goes to the first memory named (dram0) and runs on cpu0" in notes
    notes = " ".join(decode(desktop, hbm0=4, dram0="rest").assumptions)
    assert "-ngl 5" in notes and "the head goes to the first memory named (hbm0) and runs on gpu0" in notes
    assert "-ngl" not in " ".join(decode(desktop, "cpu0", hbm0=4, dram0="rest").assumptions)


def test_a_reserve_that_nothing_takes_is_said(desktop):
    assert "the reserve is not used: no GPU runs anything here" in decode(desktop, reserve=7, dram0="rest").assumptions
    for plan in (decode(desktop, reserve=0, dram0="rest"), decode(desktop, reserve=None, dram0="rest"),
                 decode(desktop, reserve=7, hbm0=0, dram0="rest")):  # fmt: skip
        assert not any("reserve" in note for note in plan.assumptions)


def test_a_context_beyond_what_the_model_states_is_said(desktop):
    stated = replace(MODEL, max_positions=99)
    assert "context 100 is beyond the 99 positions that the model states" in decode(
        desktop, model=stated, hbm0="rest").assumptions  # fmt: skip
    for most in (100, None):
        notes = decode(desktop, model=replace(MODEL, max_positions=most), hbm0="rest").assumptions
        assert not any("beyond" in note for note in notes)


def test_everything_on_the_cpu(desktop):
    found = expected(desktop, decode(desktop, dram0="rest"))
    assert set(found) == {"dram0", "cpu0.reads", "cpu0.flops"}
    assert found["dram0"] == 10 * (EACH + CACHE + kv_bytes(MODEL, "f16")) + HEAD


def test_only_the_head_on_the_gpu(desktop):
    plan = decode(desktop, hbm0=0, dram0="rest", reserve=7)
    assert ("hbm0", "runtime reserve", 7) in plan.held, "the GPU that runs it keeps its reserve"
    assert expected(desktop, plan)["hbm0"] == HEAD + ROW
    assert "only the head is on the GPU: llama.cpp -ngl 1" in plan.assumptions


def test_everything_streamed(desktop):
    plan = decode(desktop, "gpu0", dram0="rest")
    found = expected(desktop, plan)
    assert found["pcie0.hbm0"] == 10 * EACH + HEAD + ROW
    step = compile_step(desktop, plan)
    assert step.occupied["hbm0"]["buffers"] == 2 * EACH + HEAD, "two layers and the head"
    assert step.occupied["hbm0"]["KV cache"] == 10 * CACHE, "beside the processor that runs the layers"


def test_kv_in_host_memory_is_fetched(desktop):
    plan = decode(desktop, kv="dram0", hbm0="rest", batch=3)
    found = expected(desktop, plan)
    assert found["pcie0.hbm0"] == 10 * 3 * CACHE + 3 * ROW
    assert found["pcie0.socket0"] == 10 * 3 * kv_bytes(MODEL, "f16")
    waits = [task.after for block in plan.blocks for task in block.tasks if task.name == "layer"]
    assert all("fetch KV to hbm0" in after for after in waits)


def test_the_cpu_runs_what_the_gpu_holds(desktop):
    found = expected(desktop, decode(desktop, "cpu0", hbm0=4, dram0="rest"))
    assert found["pcie0.socket0"] == 4 * EACH + HEAD and "gpu0.flops" not in found


def test_layers_of_two_sizes_are_blocks_of_their_own(desktop):
    plan = plan_model(model_of(SHAPE | {"hidden_size": 1024, "num_hidden_layers": 16}, "mixed"), desktop, Workload(),
                       Placement(portions(hbm0=8, dram0="rest")), weights="q4_k_m")  # fmt: skip
    assert plan.repetitions == 16 + 1
    sizes = [plan.tensors[task.reads[0]].bytes for block in plan.blocks for task in block.tasks
             if isinstance(task, Compute) for _ in range(block.repeat)]  # fmt: skip
    assert tuple(sizes[:-1]) == weigh(plan.origin[0], "q4_k_m").layers
    assert len(set(sizes[:-1])) > 1


def test_batch_reads_weights_once_and_every_cache(desktop):
    one, eight = (expected(desktop, decode(desktop, batch=batch, hbm0="rest")) for batch in (1, 8))
    assert eight["hbm0"] - one["hbm0"] == 7 * (10 * (CACHE + kv_bytes(MODEL, "f16")) + ROW)
    assert eight["gpu0.flops"] == 8 * one["gpu0.flops"]


# --- what is kept ---


def kept(topology, plan, part: str) -> int:
    return sum(parts.get(part, 0) for parts in compile_step(topology, plan).occupied.values())


@pytest.mark.parametrize("compute", ["local", "gpu0", "cpu0"])
@pytest.mark.parametrize("kv", ["with layer", "dram0", "hbm0"])
@pytest.mark.parametrize("model", [MODEL, TIED], ids=["head", "tied head"])
def test_no_byte_of_the_model_is_lost(desktop, compute, kv, model):
    for weights in ({"hbm0": 4, "dram0": "rest"}, {"dram0": "rest"}, {"hbm0": 1, "dram0": 0.5, "ssd0": "rest"}):
        plan = decode(desktop, compute, kv, model=model, batch=2, **weights)
        total = sum(kept(desktop, plan, part) for part in ("layer weights", "output head", "input embedding"))
        apart = model.tied and next(iter(weights)) != "dram0"  # the GPU has a copy of a tied head
        assert total == weigh(model, "bf16").total + (weigh(model, "bf16").embedding if apart else 0)
        assert kept(desktop, plan, "KV cache") == 2 * 10 * CACHE


def test_reserve_once_for_each_gpu_that_works(desktop):
    for compute, weights, count in (
        ("local", {"hbm0": 4, "dram0": "rest"}, 1), ("local", {"dram0": "rest"}, 0), ("gpu0", {"dram0": "rest"}, 1),
        ("cpu0", {"hbm0": 4, "dram0": "rest"}, 0),
    ):  # fmt: skip
        plan = decode(desktop, compute, reserve=5, **weights)
        assert kept(desktop, plan, "runtime reserve") == 5 * count


@pytest.mark.slow
@examples(30, 100)
@given(
    resident=st.integers(0, 10), compute=st.sampled_from(["local", "gpu0", "cpu0"]),
    kv=st.sampled_from(["with layer", "dram0", "hbm0"]), batch=st.integers(1, 4), first=st.booleans(),
    overlap=st.sampled_from([Overlap("none"), Overlap(), Overlap("buffers", 1), Overlap("buffers", 0)]),
)  # fmt: skip
def test_every_placement_keeps_the_ladder(resident, compute, kv, batch, first, overlap):
    desktop = load_topology("desktop-4090")
    # The whole model would lie in the CPU's cache, and no floor is above zero then.
    memories = [replace(one, cache=0) if one.name == "dram0" else one for one in desktop.memories.values()]
    groups = {key: getattr(desktop, key).values() for key in ("processors", "switches", "links", "limits")}
    topology = Topology.build(name=desktop.name, memories=memories, **groups)
    weights = {"hbm0": resident, "dram0": 10 - resident}
    plan = decode(topology, compute, kv, batch, overlap=overlap, **dict(sorted(weights.items(), reverse=first)))
    step = compile_step(topology, plan)
    least, sustained, expected = floor(step).seconds, floor(step, "value").seconds, schedule(step)
    assert not missing(step) and plan.tokens / expected.seconds > 0
    assert 0 < least <= sustained * (1 + 1e-9)
    assert sustained <= expected.seconds * (1 + 1e-9)
    assert expected.seconds <= serial(step).seconds * (1 + 1e-9)
    assert expected.low <= expected.seconds <= expected.high
    if resident % 5 == batch % 5:  # of some the whole answer, which has those figures
        study = evaluate(topology, plan)
        assert study.fits and study.tokens_per_s.overlapped == plan.tokens / expected.seconds
        assert (study.floor.seconds, study.floor_sustained.seconds) == (least, sustained)
        assert (study.overlapped, study.serial) == (expected, serial(step))
