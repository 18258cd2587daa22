"""Prefill beside decode, named costs, and how copies pass host memory: what each step counts, by hand."""

from __future__ import annotations

import json
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload.bounds import floor
from offload.compiler import compile_step
from offload.designs import Cost, Placement, Portion, Workload, plan_model
from offload.models import weigh
from offload.plan import GivenTime, Overlap
from offload.readers.huggingface import model_of
from offload.schedules import schedule, serial, solo_seconds
from offload.step import loads
from offload.study import evaluate
from tests.boxes import GB, MB, box, plan_of

# Four layers; a layer has 9,437,184 weights in matrices and 2,048 in norms, the head 1,024,000 and a norm of 1,024.
SHAPE = {
    "model_type": "llama", "num_hidden_layers": 4, "hidden_size": 1024, "intermediate_size": 2048,
    "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 1000, "tie_word_embeddings": False,
}  # fmt: skip
MODEL = model_of(SHAPE, "small")
WEIGHTS = 2 * 1024 * 1024 + 2 * 512 * 1024 + 3 * 2048 * 1024
LAYER = 2 * (WEIGHTS + 2 * 1024)
HEAD = 2 * (1000 * 1024 + 1024)
POSITION = 2 * 4 * 128 * 2  # key and value, KV heads, head size, bytes
ROW = 2 * 1024
PAIR = 4 * 8 * 128  # FLOP of a new position and one that it attends to
REST = Portion("rest")


def step_of(workload, weights=None, compute="local", kv="with layer", topology=None, overlap=None, **more):
    given = {"hbm0": REST} if weights is None else weights
    plan = plan_model(MODEL, topology or box(1), workload, Placement(tuple(given.items()), compute, kv, 0, **more),
                      weights="bf16", overlap=overlap)  # fmt: skip
    return compile_step(topology or box(1), plan)


def loaded(step, least=False) -> dict[str, float]:
    return {name: load for name, load in loads(step, least=least).items() if load}


def prefill(prompt, past=0, batch=1, **more):
    return Workload("prefill", batch, past, prompt=prompt, **more)


# --- prefill ---


@pytest.mark.parametrize(
    ("batch", "prompt", "past", "pairs"),
    [(1, 1, 0, 1), (1, 2, 0, 3), (1, 64, 0, 2080), (2, 64, 36, 64 * 36 + 2080), (3, 1, 99, 100), (1, 5, 1000, 5015)],
)
def test_what_a_prefill_counts(batch, prompt, past, pairs):
    step = step_of(prefill(prompt, past, batch))
    new = batch * prompt
    assert loaded(step) == {
        "gpu0.flops": 4 * (new * 2 * WEIGHTS + batch * pairs * PAIR) + batch * 2 * 1024 * 1000,
        "hbm0": 4 * (LAYER + batch * past * POSITION + new * POSITION) + HEAD + new * ROW,
        "pcie0.hbm0": new * ROW, "dram0": new * ROW,
    }  # fmt: skip
    assert step.plan.tokens == new and step.plan.sequences == batch and not step.plan.data_cycle
    assert step.occupied["hbm0"]["KV cache"] == 4 * batch * (past + prompt) * POSITION
    assert ("KV cache" in {part.what for row in step.rows for part in row.moved}) == (past > 0)


def test_no_token_waits_for_the_one_before():
    step = step_of(prefill(64))
    assert floor(step).cycle_seconds == 0 and floor(step).rule == "load"
    assert floor(step_of(Workload("decode", 1, 64))).cycle_seconds > 0


def test_a_prefill_of_one_is_a_decode_step():
    """But for the new position's own key and value, which decode counts as read."""
    one, decode = loaded(step_of(prefill(1, 99))), loaded(step_of(Workload("decode", 1, 100)))
    assert one["gpu0.flops"] == decode["gpu0.flops"]
    assert decode["hbm0"] - one["hbm0"] == 4 * POSITION


def test_decode():
    assert loaded(step_of(Workload("decode", 3, 100))) == {
        "gpu0.flops": 3 * (4 * (2 * WEIGHTS + 100 * PAIR) + 2 * 1024 * 1000),
        "hbm0": 4 * (LAYER + 3 * 101 * POSITION) + HEAD + 3 * ROW, "pcie0.hbm0": 3 * ROW, "dram0": 3 * ROW,
    }  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 200), min_size=1, max_size=5), st.integers(0, 50), st.integers(1, 3))
def test_chunks_add_up_to_the_prompt(chunks, past, batch):
    """FLOP of layers and keys written are those of the whole; the head and the weights come with each chunk."""
    starts = [past, *accumulate(chunks, initial=past)][1:-1]
    parts = [step_of(prefill(chunk, start, batch)) for chunk, start in zip(chunks, starts, strict=True)]
    whole = step_of(prefill(sum(chunks), past, batch))
    further = len(chunks) - 1
    heads = further * batch * 2 * 1024 * 1000
    assert sum(loaded(part)["gpu0.flops"] for part in parts) == loaded(whole)["gpu0.flops"] + heads
    again = sum(start - past for start in starts)  # positions of earlier chunks that are read again
    assert sum(loaded(part)["hbm0"] for part in parts) == loaded(whole)["hbm0"] + further * (4 * LAYER + HEAD) + 4 * (
        batch * (again + further * past) * POSITION)  # fmt: skip
    assert parts[-1].occupied["hbm0"]["KV cache"] == whole.occupied["hbm0"]["KV cache"]


def test_rows_of_all_positions_pass_from_the_cpu_to_the_gpu_and_one_to_the_head():
    step = step_of(prefill(10, batch=2), {"hbm0": Portion("layers", 3), "dram0": REST})
    assert loaded(step)["pcie0.hbm0"] == 20 * ROW
    step = step_of(prefill(10, batch=2), {"dram0": Portion("layers", 0), "hbm0": REST})
    assert loaded(step)["pcie0.hbm0"] == 20 * ROW and loaded(step)["pcie0.socket0"] == 2 * ROW, "the head's rows"


def test_weights_are_streamed_once_a_chunk():
    step = step_of(prefill(50, 20, 2), {"dram0": REST}, "gpu0")
    assert loaded(step)["pcie0.hbm0"] == 4 * LAYER + HEAD + 100 * ROW


def test_keys_in_host_memory_are_fetched_and_new_ones_written_there():
    found = loaded(step_of(prefill(50, 20, 2), kv="dram0"))
    assert found["pcie0.hbm0"] == 4 * 2 * 20 * POSITION + 100 * ROW
    assert found["pcie0.socket0"] == 4 * 2 * 50 * POSITION
    first = step_of(prefill(50, 0, 2), kv="dram0")
    assert loaded(first)["pcie0.hbm0"] == 100 * ROW, "none is there yet"
    assert not any(row.name.startswith("fetch") for row in first.rows)


def test_steps_in_flight_keep_caches_of_their_own():
    step = step_of(prefill(50, 20, 2, in_flight=3))
    assert step.occupied["hbm0"]["KV cache"] == 3 * 4 * 2 * 70 * POSITION
    assert step.plan.tokens == 100 and step.plan.sequences == 6


def test_a_long_prompt_is_bound_by_arithmetic():
    """100,000 positions: 77 TFLOP of weights and 8 x 10^13 of pairs at 100 TFLOP/s, by hand."""
    study = evaluate(box(1), step_of(prefill(100_000)).plan)
    pairs = 100_000 * 100_001 // 2
    # Of the last layer floors count one position's, as its output alone is needed.
    flops = (3 + 1e-5) * (100_000 * 2 * WEIGHTS + pairs * PAIR) + 2 * 1024 * 1000
    assert study.floor.seconds == pytest.approx(flops / 100e12, rel=1e-12)
    assert study.floor.bottleneck == ("gpu0.flops",)
    assert study.tokens_per_s.floor == pytest.approx(100_000 / (flops / 100e12))


PLACED = """\
model: {config: ./config.json, weights: bf16}
workload: {phase: prefill, batch: 2, prompt: 64, context: 36}
placement: {weights: {hbm0: rest}, reserve: 0 B}
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(SHAPE))
    return tmp_path


def test_a_chunk_from_a_file(folder):
    plan = plan_of(folder, PLACED, box(1))
    assert loaded(compile_step(box(1), plan)) == loaded(step_of(prefill(64, 36, 2)))
    assert plan.title.endswith("prefill, batch 2, prompt 64, context 36")
    assert {"phase": "prefill", "batch": 2, "prompt": 64, "context": 36}.items() <= plan.workload.items()
    whole = plan_of(folder, PLACED.replace(", context: 36", ""), box(1))
    assert "context" not in whole.workload and whole.tokens == 128
    assert any(note.startswith("prefill: attention reads keys") for note in plan.not_modelled)


# --- named costs ---


def cost(name: str, each: str, milliseconds: float, least: float = 0.0) -> Cost:
    value = milliseconds * 1e-3
    return Cost(name, each, GivenTime(value, value, value, least * 1e-3, "measured"))


def names_in_order(step) -> list[str]:
    return [step.rows[row].name for row in step.instances]


def test_costs_of_layers_and_of_steps():
    bare, asked = step_of(Workload("decode", 1, 100)), (cost("sync", "layer", 2, 0.5), cost("sample", "step", 7, 3))
    step = step_of(Workload("decode", 1, 100), costs=asked)
    assert names_in_order(step)[1:] == ["layer", "sync"] * 4 + ["head", "sample"]
    more = 4 * 2e-3 + 7e-3
    assert schedule(step).seconds == pytest.approx(schedule(bare).seconds + more, rel=1e-12)
    assert serial(step).seconds == pytest.approx(serial(bare).seconds + more, rel=1e-12)
    assert floor(step).seconds == pytest.approx(floor(bare).cycle_seconds + 4 * 0.5e-3 + 3e-3, rel=1e-12)
    assert floor(step, "value").seconds == pytest.approx(floor(bare, "value").cycle_seconds + more, rel=1e-12)
    assert "gpu0.given" in floor(step).bottleneck
    assert 'the time of "sync" on gpu0 is given, not counted (measured)' in step.assumptions


def test_without_a_peak_a_cost_is_in_no_floor():
    bare, step = (step_of(Workload("decode", 1, 100), costs=costs) for costs in ((), (cost("sync", "layer", 2),)))
    assert floor(step).seconds == floor(bare).seconds and step.resources["gpu0.given"].peak is None


def test_costs_stand_one_after_another():
    asked = (cost("a", "layer", 1), cost("b", "step", 1), cost("c", "layer", 1), cost("d", "step", 1))
    step = step_of(Workload("decode", 1, 100), costs=asked)
    assert names_in_order(step)[1:] == ["layer", "a", "c"] * 4 + ["head", "b", "d"]
    for i, name in enumerate(names_in_order(step)):
        before = [names_in_order(step)[wait.on] for wait in step.waits[i] if not wait.streams]
        expected = {"a": "layer", "c": "a", "b": "head", "d": "b", "head": "c"}
        if name in expected:
            assert expected[name] in before, name
        if name == "layer" and i > 1:
            assert "c" in before
    assert step.last_compute == len(step.instances) - 1, "the next token waits for the last cost"


def test_costs_hide_behind_streamed_weights():
    """A layer's 18.9 MB take 0.94 ms over the link; 0.5 ms a layer cost nothing, 2 ms a layer do."""
    streamed = {"weights": {"dram0": REST}, "compute": "gpu0", "overlap": Overlap("buffers", 2)}
    bare, little, much = (
        schedule(step_of(Workload("decode", 1, 100), costs=costs, **streamed)).seconds
        for costs in ((), (cost("sync", "layer", 0.5),), (cost("sync", "layer", 2),))
    )
    assert little == pytest.approx(bare, rel=1e-9)
    assert much > bare * 1.5


def test_costs_on_cpu_layers_are_the_cpu_s():
    step = step_of(Workload("decode", 1, 100), {"hbm0": Portion("layers", 1), "dram0": REST},
                   costs=(cost("sync", "layer", 2), cost("sample", "step", 7)))  # fmt: skip
    busy = loads(step, least=False)
    assert busy["cpu0.given"] == pytest.approx(3 * 2e-3) and busy["gpu0.given"] == pytest.approx(2e-3 + 7e-3)


def test_costs_with_ranks_come_after_the_sum():
    server = box(2, nvlink=100e9)
    step = step_of(Workload("decode", 1, 100), {"hbm0..1": REST}, topology=server, costs=(cost("sync", "layer", 2),))
    assert names_in_order(step)[1:] == ["layer", "all-reduce", "sync"] * 4 + ["head"]
    bare = step_of(Workload("decode", 1, 100), {"hbm0..1": REST}, topology=server)
    assert schedule(step).seconds == pytest.approx(schedule(bare).seconds + 8e-3, rel=1e-9)
    assert loads(step, least=False)["gpu0.given"] == pytest.approx(8e-3) and "gpu1.given" not in step.resources


def test_costs_from_a_file(folder):
    text = PLACED + ("costs:\n  sync: {each: layer, time: 1..3 ms}\n"
                     "  sample: {each: step, time: {sustained: 2 ms, peak: 1 ms, source: a run}}\n")  # fmt: skip
    step = compile_step(box(1), plan_of(folder, text, box(1)))
    bare = compile_step(box(1), plan_of(folder, PLACED, box(1)))
    found, plain = schedule(step), schedule(bare)
    assert [found.low - plain.low, found.seconds - plain.seconds, found.high - plain.high] == pytest.approx(
        [4e-3 + 2e-3, 8e-3 + 2e-3, 12e-3 + 2e-3])  # fmt: skip
    assert any("beyond the named costs" in text for text in step.plan.not_modelled)
    assert 'the time of "sample" on gpu0 is given, not counted (a run)' in step.assumptions


def test_a_given_time_by_hand(tmp_path):
    text = """\
tensors: {w: {bytes: 500 MB, home: hbm0}}
repeat: 4
tasks:
  layer: {compute: gpu0, reads: w, time: TIME}
"""
    for time, seconds, least in (("2 ms", 2e-3, 0.5e-3), ("0.1 ms", 0.5e-3, 0.5e-3),
                                 ("{sustained: 2 ms, peak: 1 ms}", 2e-3, 1e-3)):  # fmt: skip
        step = compile_step(box(1), plan_of(tmp_path, text.replace("TIME", time), box(1)))
        assert schedule(step).seconds == pytest.approx(4 * seconds), "no less than it says, nor than its bytes take"
        assert floor(step).seconds == pytest.approx(4 * least)


# --- host memory ---

MOVE = """\
tensors: {w: {bytes: 200 MB, home: dram0}}
repeat: 10
tasks: {fetch: {move: w, to: hbm0, host_memory: HOST}}
"""


@pytest.mark.parametrize(
    ("host_memory", "home", "passes", "seconds"),
    [
        ("pinned", "dram0", 1, [10e-3]),
        ("pageable", "dram0", 3, [40e-3]),
        ("page cache", "dram0", 3, [10e-3]),
        ("pinned", "ssd0", 2, [40e-3, 10e-3]),
        ("pageable", "ssd0", 4, [40e-3, 40e-3]),
        ("page cache", "ssd0", 4, [40e-3, 10e-3]),
    ],
)
def test_passes_of_host_memory(tmp_path, host_memory, home, passes, seconds):
    def step(how):
        text = MOVE.replace("HOST", how).replace("dram0", home)
        return compile_step(box(1), plan_of(tmp_path, text, box(1)))

    found, pinned = step(host_memory), step("pinned")
    assert loaded(found)["dram0"] == pytest.approx(passes * 2 * GB)
    assert loaded(found)["pcie0.hbm0"] == 2 * GB
    assert solo_seconds(found) == pytest.approx(seconds)
    assert loaded(found, least=True) == loaded(pinned, least=True) and floor(found) == floor(pinned)
    assert any("pass dram0 three times" in note for note in found.assumptions) == (host_memory != "pinned")


def test_back_to_host_memory_it_is_as_many(tmp_path):
    text = MOVE.replace("home: dram0", "home: hbm0").replace("to: hbm0", "to: dram0")
    for how, passes in (("pinned", 1), ("pageable", 3), ("page cache", 3)):
        step = compile_step(box(1), plan_of(tmp_path, text.replace("HOST", how), box(1)))
        assert loaded(step)["dram0"] == passes * 2 * GB


def test_between_host_memories_there_is_no_device_to_pin_for(tmp_path):
    text = MOVE.replace("home: dram0", "home: dram1").replace("to: hbm0", "to: dram0")
    for how in ("pinned", "pageable", "page cache"):
        step = compile_step(box(2, 2), plan_of(tmp_path, text.replace("HOST", how), box(2, 2)))
        assert loaded(step) == {"dram0": 2 * GB, "dram1": 2 * GB, "upi.socket0": 2 * GB}


def test_from_a_drive_into_host_memory_nothing_is_added(tmp_path):
    text = MOVE.replace("home: dram0", "home: ssd0").replace("to: hbm0", "to: dram0").replace("HOST", "page cache")
    assert loaded(compile_step(box(1), plan_of(tmp_path, text, box(1))))["dram0"] == 2 * GB


def test_three_passes_may_bind(tmp_path):
    """Four links at 20 GB/s carry 80; three passes ask 240 GB/s of 100: DRAM binds, in the schedule alone."""
    text = MOVE.replace("hbm0", "hbm0..3").replace("HOST", "page cache")
    step = compile_step(box(4), plan_of(tmp_path, text, box(4)))
    assert schedule(step).seconds == pytest.approx(6 * GB / 100e9)
    assert floor(step).seconds == pytest.approx(2 * GB / 80e9), "four links"


@pytest.mark.parametrize("where", ["weights", "KV"])
def test_fetches_of_a_placement(where):
    def dram(host_memory):
        more = {"weights": {"dram0": REST}, "compute": "gpu0"} if where == "weights" else {"kv": "dram0"}
        return loaded(step_of(Workload("decode", 1, 100), host_memory=host_memory, **more))

    fetched = 4 * LAYER + HEAD if where == "weights" else 4 * 100 * POSITION
    for how in ("pageable", "page cache"):
        assert dram(how)["dram0"] - dram("pinned")["dram0"] == 2 * fetched, "the hidden row stays pinned"
        assert dram(how)["pcie0.hbm0"] == dram("pinned")["pcie0.hbm0"]


def test_via_forbids_the_straight_way(tmp_path):
    server = box(1, direct=(0,))
    text = MOVE.replace("HOST", "pinned").replace("home: dram0", "home: ssd0")
    straight = compile_step(server, plan_of(tmp_path, text, server))
    staged = compile_step(server, plan_of(tmp_path, text.replace("to: hbm0", "to: hbm0, via: dram0"), server))
    assert "dram0" not in loaded(straight) and "dram0" not in straight.occupied
    assert loaded(staged)["dram0"] == 4 * GB and staged.occupied["dram0"]["buffers"] == 400 * MB
    assert [schedule(one).seconds for one in (straight, staged)] == pytest.approx([2 * GB / 5e9] * 2)


def test_via_of_a_placement(folder):
    server = box(1, direct=(0,))
    for how, passes in (("pinned", 2), ("page cache", 4)):
        step = step_of(Workload("decode", 1, 100), {"ssd0": REST}, "gpu0", topology=server, via=("dram0",),
                       host_memory=how)  # fmt: skip
        assert loaded(step)["dram0"] == passes * (4 * LAYER + HEAD) + ROW
    straight = step_of(Workload("decode", 1, 100), {"ssd0": REST}, "gpu0", topology=server, host_memory="page cache")
    assert loaded(straight)["dram0"] == ROW
    text = ("model: {config: ./config.json, weights: bf16}\n"
            "placement: {weights: {ssd0: rest}, compute: gpu0, reserve: 0 B, via: dram0, host_memory: page cache}\n"
            "workload: {context: 100}\n")  # fmt: skip
    from_file = compile_step(server, plan_of(folder, text, server))
    assert loaded(from_file) == loaded(step) and weigh(MODEL, "bf16").layers == (LAYER,) * 4
