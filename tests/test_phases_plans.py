"""Chunked prefill, speculation and the crossover of streaming and running in place: what plans count, by hand."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from offload import cli, load_topology
from offload.bounds import floor, load_seconds
from offload.compiler import compile_step
from offload.crossover import crossover, of_placements, streaming
from offload.designs import Experts, Placement, Portion, Workload, plan_model
from offload.designs.speculation import Speculation, draft_placement
from offload.documents.plan_file import load_plan
from offload.errors import DocumentError, PlanError
from offload.measured import ABOVE, compare, read_measurement
from offload.models import catalogue, layer_flops, weigh
from offload.need_rates import read_target
from offload.plan import Overlap
from offload.readers.huggingface import model_of
from offload.report import write_text
from offload.report_crossover import write_crossover
from offload.requests import MOST_CHUNKS, generation
from offload.schedules import schedule, serial
from offload.step import loads
from offload.study import evaluate
from tests.boxes import box, plan_of
from tests.test_requests import HEAD, LAYER, MODEL, POSITION, ROW, SHAPE
from tests.weights_box import blocks, server

CLOSE = 1 + 1e-12
OVERLAPS = (Overlap("none"), Overlap(), Overlap("buffers", 1))
REST = Portion("rest")
DRAFT = model_of(SHAPE | {"num_hidden_layers": 2, "hidden_size": 512, "num_key_value_heads": 2,
                          "num_attention_heads": 4, "intermediate_size": 1024}, "draft")  # fmt: skip


def planned(workload, weights=None, compute="local", topology=None, model=MODEL, overlap=None, **more):
    placement = Placement(tuple((weights or {"hbm0": REST}).items()), compute, reserve=0, **more)
    return plan_model(model, topology or box(1), workload, placement, weights="bf16", overlap=overlap)


def prefill(prompt, chunk=0, batch=1, past=0, **more):
    return planned(Workload("prefill", batch, past, prompt=prompt, chunk=chunk), **more)


def loaded(plan, topology=None, least=False):
    return {name: load for name, load in loads(compile_step(topology or box(1), plan), least=least).items() if load}


def text_of(study):
    out = io.StringIO()
    write_text(study, Console(file=out, width=140))
    return " ".join(out.getvalue().split())


# --- a prompt in chunks ---


def test_chunks_of_a_prompt_by_hand():
    """1,000 positions in chunks of 300: 300, 300, 300 and 100, each of which finds what those before it kept."""
    plan = prefill(1000, 300, batch=2)
    parts = [plan.request.chunk(number) for number in range(plan.request.chunks)]
    assert [(one.workload["prompt"], one.workload.get("context", 0)) for one in parts] == [
        (300, 0), (300, 300), (300, 600), (100, 900)]  # fmt: skip
    for number, one in enumerate(parts):
        past, new, last = 300 * number, one.workload["prompt"], number == 3
        assert loaded(one)["hbm0"] == (
            4 * (LAYER + 2 * past * POSITION // 1 + 2 * new * POSITION) + last * HEAD + 2 * new * ROW)  # fmt: skip
        assert compile_step(box(1), one).occupied["hbm0"]["output head"] == HEAD, "held, whether it runs or not"
        assert compile_step(box(1), one).occupied["hbm0"]["KV cache"] == 4 * 2 * 1000 * POSITION
    assert sum(loaded(one)["gpu0.flops"] for one in parts) == loaded(prefill(1000, batch=2))["gpu0.flops"]
    assert plan.workload["prompt"] == 300 and plan.workload["context"] == 600, "the last chunk that is full is shown"


def test_each_chunk_streams_the_weights_again():
    plan = prefill(1024, 256, weights={"dram0": REST}, compute="gpu0")
    found = generation(box(1), plan)
    moved = 4 * (4 * LAYER + 256 * ROW) + HEAD
    kept = 2 * MODEL.kv_heads * MODEL.head_dim * MODEL.hidden * 2  # what makes keys and values, of 2 B each
    # One row of the embedding in each chunk; of the last layer the three without outputs need keys and values alone.
    least = moved - 4 * 255 * ROW - 3 * (LAYER - kept)
    assert found.prefill.floor == pytest.approx(least / 20e9, rel=1e-12)
    assert found.prefill.floor <= found.prefill.floor_sustained <= found.prefill.expected
    assert found.prefill.expected == pytest.approx(moved / 20e9, rel=0.03)
    assert found.decode is None and found.total == found.prefill and found.chunks == 4
    assert found.prompt_tokens == 1024
    assert found.prompt_tokens_per_s == pytest.approx(1024 / found.prefill.expected)
    whole = generation(box(1), replace(prefill(1024, 4096, weights={"dram0": REST}, compute="gpu0")))
    assert whole.prefill.floor == pytest.approx((4 * LAYER + HEAD + 1024 * ROW) / 20e9, rel=0.05)


@pytest.mark.parametrize("weights", [{"dram0": REST}, {"hbm0": Portion("layers", 2), "dram0": REST}])
@pytest.mark.parametrize("compute", ["gpu0", "local"])
def test_times_are_those_of_every_chunk(weights, compute):
    plan = prefill(1000, 128, weights=weights, compute=compute)
    steps = [compile_step(box(1), replace(plan.request.chunk(number), data_cycle=True)) for number in range(8)]
    found = generation(box(1), plan).prefill
    first, later = schedule(steps[0]), [schedule(step) for step in steps[1:]]
    assert found.expected == pytest.approx(first.cold_seconds + sum(one.seconds for one in later), rel=1e-12)
    assert found.serial == pytest.approx(serial(steps[0]).cold_seconds + sum(serial(one).seconds for one in steps[1:]))
    sums = [load_seconds(step, "peak", alone=not number).resource_seconds for number, step in enumerate(steps)]
    load = max(sum(one.get(name, 0.0) for one in sums) for name in sums[0])
    assert found.floor == pytest.approx(max(load, floor(steps[0]).cold_seconds, *(
        floor(step).cycle_seconds for step in steps)), rel=1e-12)  # fmt: skip
    assert found.floor <= sum(floor(step).seconds for step in steps[1:]) + floor(steps[0]).cold_seconds


@pytest.mark.slow
def test_regimes_of_chunks_by_hand():
    """A chunk of 256 computes less than its weights take to come, until the context's pairs outweigh them."""
    plan = prefill(256 * 400, 256, weights={"dram0": REST}, compute="gpu0")
    found = generation(box(1), plan)
    streams = (4 * LAYER + 256 * ROW) / 20e9
    pairs = 4 * 8 * 128

    def computes(number):
        past = 256 * number
        return (256 * layer_flops(MODEL) + pairs * (256 * past + 256 * 257 // 2)) * 4 / 100e12

    turn = next((number for number in range(400) if computes(number) > streams), 400)
    assert 100 < turn < 399
    assert [(one.kind, one.first, one.last) for one in found.regimes] == [
        ("streaming", 1, turn), ("compute", turn + 1, 400)]
    assert [(one.start, one.end) for one in found.regimes] == [(1, 256 * turn), (256 * turn + 1, 102_400)]
    assert found.regimes[0].resources == ("pcie0.hbm0",) and found.regimes[1].resources == ("gpu0.flops",)
    assert sum(one.seconds for one in found.regimes) == pytest.approx(found.prefill.expected, rel=1e-9)
    text = text_of(evaluate(box(1), plan))
    assert f"chunks 1 to {turn} (positions 1 to {256 * turn:,}): streaming-bound on pcie0.hbm0" in text
    assert "compute-bound on gpu0.flops" in text and "First token after" in text
    assert "102,400 tokens of prompt:" in text and "Below: the last chunk that is full." in text


def test_regimes_start_after_what_is_there():
    plan = prefill(100, 50, past=30)
    assert [(one.start, one.end) for one in generation(box(1), plan).regimes] == [(31, 130)]
    assert compile_step(box(1), plan).occupied["hbm0"]["KV cache"] == 4 * 130 * POSITION


def test_a_request_whose_prompt_comes_in_chunks():
    streamed = {"weights": {"dram0": REST}, "compute": "gpu0"}
    asked = Workload("generate", 2, prompt=1000, generate=21)
    whole = generation(box(1), planned(asked, **streamed))
    plan = planned(replace(asked, chunk=250), **streamed)
    found = generation(box(1), plan)
    assert found.decode == whole.decode and found.steps == 20 and found.chunks == 4
    alone = generation(box(1), prefill(1000, 250, batch=2, **streamed))
    assert found.prefill.expected == pytest.approx(alone.prefill.expected, rel=1e-12)
    assert found.total.expected == found.prefill.expected + found.decode.expected
    kept = 2 * MODEL.kv_heads * MODEL.head_dim * MODEL.hidden * 2  # all that three chunks need of the last layer
    least = 24 * 4 * LAYER + 21 * HEAD + 24 * ROW - 3 * (LAYER - kept)
    assert found.total.floor == pytest.approx(least / 20e9, rel=1e-12)
    # Averages are of times: 20 steps of two sequences, over the time that all of them take.
    assert found.time_per_token == found.decode.expected / 20
    assert found.tokens == 42 and found.tokens_per_s == 42 / found.total.expected
    one = generation(box(1), planned(replace(asked, chunk=250, generate=1), **streamed))
    assert one.decode is None and one.prefill.expected == pytest.approx(alone.prefill.expected, rel=1e-12)
    assert one.time_per_token is None
    assert "Time per token after the first, on average over the contexts:" in text_of(evaluate(box(1), plan))


def test_a_chunk_as_long_as_the_prompt_is_one_pass():
    plan, bare = prefill(100, 100), prefill(100)
    assert loaded(plan) == loaded(bare) and plan.request.chunks == 1
    assert "chunk: 100 is no less than the prompt of 100: it comes in one pass" in plan.assumptions


def test_more_chunks_than_are_laid_out():
    plan = prefill(MOST_CHUNKS + 1, 1)
    with pytest.raises(PlanError, match=r"workload.chunk: the prompt comes in 513 chunks, .* Take larger chunks."):
        generation(box(1), plan)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 300), st.integers(20, 120), st.integers(1, 3), st.integers(0, 4),
       st.sampled_from(["gpu0", "local"]), st.sampled_from(OVERLAPS))  # fmt: skip
def test_ladders_of_chunks(prompt, chunk, batch, layers, compute, overlap):
    weights = {"hbm0": Portion("layers", layers), "dram0": REST}
    found = generation(box(1), prefill(prompt, chunk, batch, weights=weights, compute=compute, overlap=overlap)).prefill
    assert found.floor <= found.floor_sustained * CLOSE and found.floor_sustained <= found.expected * CLOSE
    assert found.low <= found.expected * CLOSE <= found.high * CLOSE**2 and found.expected <= found.serial * CLOSE


# --- speculation ---


def guessing(draft=4, accept=0.8, model=None, home="", **more):
    return Speculation(draft, accept, model, "bf16" if model else "", "f16", home, **more)


def decode(speculation, context=100, batch=1, **more):
    return planned(Workload("decode", batch, context, speculation=speculation), **more)


def test_w56_streamed_weights_are_amortised():
    """50 GB over 25 GB/s: 2 s a step, which yields 2101/625 tokens: 0.595 s a token, and never less than 0.4."""
    topology = server(link=25e9)
    plan = plan_model(blocks(50, 10**9), topology, Workload(context=1, speculation=guessing()),
                      Placement((("dram0", REST),), "gpu0", reserve=0), weights="stated")  # fmt: skip
    study = evaluate(topology, plan)
    assert study.floor.seconds == 2 and study.overlapped.seconds == pytest.approx(2, rel=1e-12)
    assert plan.tokens == pytest.approx(2101 / 625, rel=1e-12) and plan.most_tokens == 5
    assert 1 / study.tokens_per_s.overlapped == pytest.approx(1250 / 2101, rel=1e-12)
    assert 1 / study.tokens_per_s.floor == 0.4


def test_what_a_step_with_a_draft_model_counts():
    """Four passes of the draft model over 100 to 103 positions, and one of the model over five new ones after 99."""
    plan = decode(guessing(model=DRAFT, home="hbm0"), batch=3)
    weighed = weigh(DRAFT, "bf16")
    draft, position = weighed.layers[0], 2 * 2 * 128 * 2
    small = sum(2 * (draft + 3 * (100 + number + 1) * position) + weighed.head + weighed.norm + 3 * 1024
                for number in range(4))  # fmt: skip
    large = 4 * (LAYER + 3 * (99 + 5) * POSITION) + HEAD + 15 * ROW
    assert loaded(plan)["hbm0"] == small + large
    alone = planned(Workload("prefill", 3, 99, prompt=5))
    guess = [planned(Workload("decode", 3, 100 + number), model=DRAFT) for number in range(4)]
    heads = 4 * 3 * 2 * 1024 * 1000  # of the other positions that are checked
    assert loaded(plan)["gpu0.flops"] == loaded(alone)["gpu0.flops"] + heads + sum(
        loaded(one)["gpu0.flops"] for one in guess)  # fmt: skip
    step = compile_step(box(1), plan)
    assert step.occupied["hbm0"]["draft's layer weights"] == 2 * draft, "once, however many passes"
    assert step.occupied["hbm0"]["draft's KV cache"] == 2 * 3 * 104 * position
    assert step.occupied["hbm0"]["KV cache"] == 4 * 3 * 104 * POSITION
    assert step.occupied["dram0"]["draft's input embedding"] == weighed.embedding
    names = [step.rows[row].name for row in step.instances if not step.rows[row].transfer]
    assert names == ["draft layer", "draft layer", "draft head"] * 4 + ["layer"] * 4 + ["head"]
    assert serial(step).seconds == pytest.approx(
        serial(compile_step(box(1), alone)).seconds + sum(serial(compile_step(box(1), one)).seconds for one in guess),
        rel=1e-3)  # fmt: skip
    chain = small - 4 * 3 * 1024 + large - 15 * ROW  # rows of embeddings may lie in a cache
    assert floor(step).cycle_seconds == pytest.approx(chain / 1e12, rel=1e-12), "each guess waits for the one before it"
    assert plan.tokens == pytest.approx(3 * 3.3616) and plan.most_tokens == 15 and plan.sequences == 3


def test_guesses_wait_for_each_other():
    """The rows of embeddings of a pass are known once the pass before has said which."""
    step = compile_step(box(1), decode(guessing(2, model=DRAFT, home="hbm0")))
    names = [step.rows[row].name for row in step.instances]
    rows = [place for place, name in enumerate(names) if "embedding row" in name]
    assert [names[rows[0]], names[rows[2]]] == ["draft embedding row to hbm0", "embedding row to hbm0"]
    for place in rows[1:]:
        assert [names[wait.on] for wait in step.waits[place]] == ["draft head"] and not step.waits[place][0].streams


def test_without_a_draft_model_guesses_cost_nothing():
    plan = decode(guessing(3, 0.5))
    assert any("guessing costs nothing" in note for note in plan.assumptions)
    assert not any(name.startswith("draft") for name in plan.tensors)
    assert plan.tokens == pytest.approx(1.875) and plan.title.endswith("decode with 3 drafted, batch 1, context 100")
    assert any("1.875 tokens of each sequence on average" in note and "at most 4:" in note for note in plan.assumptions)
    assert plan.workload["phase"] == "decode" and plan.workload["context"] == 100


def test_a_verify_pass_touches_the_experts_of_all_its_tokens():
    """Uniform routing, 128 experts of which a token goes through 8: 3 x 5 tokens touch 128 (1 - (120/128)^15)."""
    model, topology = catalogue["qwen3-30b-a3b"], load_topology("desktop-4090")
    placement = Placement((("hbm0", REST),), experts=Experts((("dram0", REST),)), reserve=0)
    asked = Workload(batch=3, context=100, speculation=guessing())
    plan = plan_model(model, topology, asked, placement, weights="q8_0")
    one = plan_model(model, topology, Workload(batch=15, context=100), placement, weights="q8_0")

    def experts(plan):
        return sum(move.bytes for move in evaluate(topology, plan).moves if move.what.startswith("experts"))

    expert = weigh(model, "q8_0").experts[0]
    assert experts(plan) == pytest.approx(48 * expert * 128 * (1 - (120 / 128) ** 15), rel=1e-9)
    assert experts(plan) == pytest.approx(experts(one), rel=1e-12), "as a batch of as many tokens"


def test_caches_may_keep_a_small_draft_model():
    """The passes after the first may find as much of the draft model in a cache as it holds: floors do not count it."""
    topology = box(1)
    cached = {name: replace(one, cache=10**9) if name == "hbm0" else one for name, one in topology.memories.items()}
    big = type(topology).build(name="box", title="", memories=cached.values(), processors=topology.processors.values(),
                               switches=topology.switches.values(), links=topology.links.values())  # fmt: skip
    plan = decode(guessing(model=DRAFT, home="hbm0"), topology=big)
    without = decode(guessing(model=DRAFT, home="hbm0"))
    weighed = weigh(DRAFT, "bf16")
    again = 3 * (sum(weighed.layers) + weighed.head + weighed.norm)
    assert loaded(without, least=True)["hbm0"] - loaded(plan, big, least=True)["hbm0"] >= again
    assert loaded(plan, big)["hbm0"] == loaded(without)["hbm0"], "expected as without"


def test_a_measurement_may_have_kept_every_guess():
    """W56's step at 2.5 tokens/s is what five of five yield; 2.6 no machine reaches. 1.68 is expected."""
    topology = server(link=25e9)
    plan = plan_model(blocks(50, 10**9), topology, Workload(context=1, speculation=guessing()),
                      Placement((("dram0", REST),), "gpu0", reserve=0), weights="stated")  # fmt: skip
    step, study = compile_step(topology, plan), evaluate(topology, plan)
    assert not compare(study, step, read_measurement("2.49 tok/s")).contradicts
    assert compare(study, step, read_measurement("2.6 tok/s")).verdict == ABOVE
    assert compare(study, step, read_measurement("1.99 s/step")).contradicts
    target = read_target("2.5 tok/s", step)
    assert target.due(step) == pytest.approx(3.3616 / 2.5), "a target is of the average"


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 5), st.sampled_from([0.0, 0.3, 0.8, 1.0]), st.booleans(), st.integers(0, 4), st.integers(1, 3),
       st.sampled_from(["gpu0", "local"]), st.sampled_from(OVERLAPS))  # fmt: skip
def test_ladders_of_speculation(count, accept, draws, layers, batch, compute, overlap):
    topology = load_topology("desktop-4090")
    asked = guessing(count, accept, DRAFT if draws else None, "hbm0" if draws else "")
    weights = {"hbm0": Portion("layers", layers), "dram0": REST}
    plan = decode(asked, batch=batch, weights=weights, compute=compute, topology=topology, overlap=overlap)
    step = compile_step(topology, plan)
    low, point, expected, most = floor(step).seconds, floor(step, "value").seconds, schedule(step), serial(step)
    assert low <= point * CLOSE and point <= expected.seconds * CLOSE
    assert expected.low <= expected.seconds * CLOSE and expected.seconds <= expected.high * CLOSE
    assert expected.seconds <= most.seconds * CLOSE
    assert batch <= plan.tokens <= plan.most_tokens == batch * (count + 1)


def test_a_draft_model_lives_where_it_runs():
    with pytest.raises(PlanError, match="speculation.home: a draft model lives where it runs, and gpu0 works in hbm0"):
        draft_placement(box(1), guessing(model=DRAFT, home="dram0", compute="gpu0"), 0)


def test_a_draft_model_on_two_gpus_and_one_on_the_cpu():
    two = box(2, nvlink=100e9)
    plan = decode(guessing(2, model=DRAFT, home="hbm0..1"), weights={"hbm0..1": REST}, topology=two)
    assert loaded(plan, two)["hbm0"] == loaded(plan, two)["hbm1"]
    cpu = decode(guessing(2, model=DRAFT, home="dram0"))
    step = compile_step(box(1), cpu)
    assert "cpu0.flops" in step.resources and step.occupied["dram0"]["draft's layer weights"]


def test_room_is_that_of_both_models():
    plan = decode(guessing(model=DRAFT, home="hbm0"), topology=box(1, capacity=200 * 10**6))
    study = evaluate(box(1, capacity=200 * 10**6), plan)
    most = next(one.most for one in study.room if one.what == "batch")
    fits = decode(guessing(model=DRAFT, home="hbm0"), batch=most, topology=box(1, capacity=200 * 10**6))
    over = decode(guessing(model=DRAFT, home="hbm0"), batch=most + 1, topology=box(1, capacity=200 * 10**6))
    for plan, room in ((fits, True), (over, False)):
        assert evaluate(box(1, capacity=200 * 10**6), plan).fits == room


# --- several steps for one transfer ---


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_what_comes_every_few_steps_is_spread_over_them(tmp_path, steps):
    """2 GB over 20 GB/s every n steps: 100 / n ms a step, whatever yields the tokens between."""
    text = ("tensors: {w: {bytes: 2 GB, home: dram0}}\n"
            f"tasks: {{fetch: {{move: w, to: hbm0, every: {steps} steps}}}}\n")  # fmt: skip
    step = compile_step(box(1), plan_of(tmp_path, text, box(1)))
    assert floor(step).seconds == pytest.approx(0.1 / steps) == schedule(step).seconds


# --- the crossover ---

EXPERTS = model_of({
    "model_type": "qwen3_moe", "num_hidden_layers": 2, "hidden_size": 1024, "moe_intermediate_size": 512,
    "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 1000, "num_experts": 32, "intermediate_size": 512,
    "num_experts_per_tok": 2, "tie_word_embeddings": False, "head_dim": 128, "max_position_embeddings": 4096,
    "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [],
}, "mixture")  # fmt: skip


def test_where_streaming_a_dense_model_gets_faster():
    """By arithmetic: W / 20 GB/s over the link against 2 x W/2 FLOP a token at 1 TFLOP/s: 50 tokens."""
    plan = planned(Workload("decode", 1, 100), {"hbm0": Portion("layers", 1), "dram0": REST})
    found = streaming(box(1), plan)
    assert 49 <= found.tokens <= 53 and (found.first, found.second) == ("cpu0", "gpu0")

    def at(tokens, compute):
        one = planned(Workload("prefill", 1, 0, prompt=tokens), {"hbm0": Portion("layers", 1), "dram0": REST}, compute)
        return schedule(compile_step(box(1), one)).seconds

    place, stream = (at(found.tokens, compute) for compute in ("local", "gpu0"))
    assert stream <= place and found.seconds == pytest.approx((place, stream))
    place, stream = (at(found.tokens - 1, compute) for compute in ("local", "gpu0"))
    assert stream > place and found.before == pytest.approx((place, stream))


def test_a_mixture_turns_later_by_what_it_leaves_idle():
    """ik_llama.cpp PR 520: a dense model's tokens x all experts / those of a token."""
    placement = Placement((("hbm0", REST),), experts=Experts((("dram0", REST),)), reserve=0)
    moved = replace(placement, experts=Experts((("dram0", REST),), "gpu0"))
    plan = plan_model(EXPERTS, box(1), Workload("decode", 1, 100), placement, weights="bf16")
    found = of_placements(box(1), plan, placement, moved)
    assert found == replace(streaming(box(1), plan), first="", second="")
    assert found.tokens == pytest.approx(50 * 32 / 2, rel=0.06)


def test_a_crossover_is_exact_and_bounded():
    plans = {rate: (lambda tokens, rate=rate: planned(Workload("decode", tokens, 100), {rate: REST}))
             for rate in ("hbm0", "dram0")}  # fmt: skip
    first = crossover(box(1), plans["dram0"], plans["hbm0"])
    assert first.tokens == 1 and first.before is None, "at once"
    never = crossover(box(1), plans["hbm0"], plans["dram0"], most=100)
    assert never.tokens is None and never.most == 100 and never.seconds[1] > never.seconds[0]
    out = io.StringIO()
    write_crossover(replace(never, first="gpu0", second="cpu0"), Console(file=out, width=200))
    assert "What runs on gpu0: up to 100 tokens in a pass that is faster than streaming it to cpu0" in out.getvalue()


def test_no_crossover_where_nothing_runs_on_a_cpu():
    assert streaming(box(1), planned(Workload())) is None
    assert streaming(box(1), planned(Workload(), {"dram0": REST}, "gpu0")) is None
    assert streaming(box(1), planned(Workload(), {"hbm0": REST}, split=(("gpu0", 0.5), ("cpu0", None)))) is None


def test_the_report_tells_of_the_crossover(tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps(SHAPE))
    path = tmp_path / "plan.yaml"
    path.write_text("topology: desktop-4090\nmodel: {config: ./config.json, weights: bf16}\n"
                    "placement: {weights: {hbm0: 1 layers, dram0: rest}}\n", encoding="utf-8")  # fmt: skip
    assert cli.main(["step", str(path)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert cli.main(["step", str(path), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)["crossover"]
    assert f"What runs on cpu0: from {data['tokens']:,} tokens in a pass streaming it to gpu0 is faster: " in text
    assert data["seconds"]["streamed"] <= data["seconds"]["in_place"]
    assert data["before"]["streamed"] > data["before"]["in_place"]
    assert cli.main(["step", str(path), "--json", "--set", "placement.weights={hbm0: rest}"]) == 0
    assert json.loads(capsys.readouterr().out)["crossover"] is None


# --- in a file ---

HEADER = "topology: desktop-4090\nmodel: {name: llama-3.1-8b, weights: q8_0}\nplacement: {weights: {hbm0: rest}}\n"
PROMPT = "workload: {phase: prefill, prompt: 1000, chunk: 300}\n"
GUESS = "speculation: {draft: 4, accept: 80%}\n"


def from_file(folder, text):
    path = folder / "plan.yaml"
    path.write_text(HEADER + text, encoding="utf-8")
    return load_plan(path)[0]


def test_both_from_a_file(tmp_path):
    assert from_file(tmp_path, PROMPT).request.chunks == 4
    asked = Speculation(4, 0.8, catalogue["llama-3.2-1b"], "q8_0", "f16", "hbm0")
    text = "speculation: {draft: 4, accept: 80%, model: {name: llama-3.2-1b, weights: q8_0}, home: hbm0}\n"
    plan = from_file(tmp_path, text)
    assert plan.origin[1].speculation == asked
    study = evaluate(load_topology("desktop-4090"), plan)
    assert study.tokens_per_s.floor == 5 / study.floor.seconds
    shown = text_of(study)
    assert "draft model llama-3.2-1b" in shown and "floors per token divide by 5" in shown


DRAFTED = GUESS.replace("}", ", model: {name: llama-3.2-1b, weights: q8_0}, home: hbm0}")


@pytest.mark.parametrize(
    ("text", "at", "told"),
    [
        (PROMPT.replace("300", "1"), "1}", "1,000 positions in chunks of 1 are 1,000 chunks, and each is laid out"),
        (PROMPT.replace("300", "300, in_flight: 2"), "chunk", "they do not go with in_flight"),
        (PROMPT.replace("300", "300, cached: 80%"), "cached", "goes with a prompt in one pass, and this one comes in"),
        ("workload: {phase: decode, chunk: 300}\n", "chunk", '"chunk" belongs to phase prefill and generate'),
        (GUESS + PROMPT, "speculation", "tokens are guessed in decode steps, and this is prefill"),
        (GUESS.replace("}", ", home: hbm0}"), "home", '"home" is of a draft model, and none is named'),
        (GUESS.replace("80%", "80"), "80", 'Did you mean 0.8, that is "80 %"?'),
        (GUESS.replace("80%", "120%"), "120%", "120%"),
        (GUESS.replace("draft: 4", "draft: 0"), "0", "must be at least 1"),
        (GUESS.replace("draft: 4", "draft: 65"), "65", "64"),
        (DRAFTED.replace(", home: hbm0", ""), "model", "Add `home: hbm0`"),
        (DRAFTED.replace("hbm0", "hbm7"), "hbm7", 'no memory "hbm7"'),
        (DRAFTED.replace("hbm0", "ssd0"), "ssd0", "lives where it runs, and cpu0 works in dram0. Write `home: dram0`"),
        (DRAFTED.replace("hbm0}", "hbm0, compute: gpu7}"), "gpu7", 'no processor "gpu7"'),
        (DRAFTED.replace("hbm0}", "hbm0, compute: cpu0}"), "hbm0", "cpu0 works in dram0. Write `home: dram0`"),
        (DRAFTED.replace("1b", "1x"), "llama-3.2-1x", 'Did you mean "llama-3.2-1b"?'),
        (DRAFTED.replace("q8_0", "q9"), "weights", 'no weight format "q9"'),
        (GUESS.replace("}", ", guess: 3}"), "guess", 'unknown key "guess"'),
    ],
)
def test_mistakes_are_told_at_their_place(tmp_path, text, at, told):
    with pytest.raises(DocumentError) as error:
        from_file(tmp_path, text)
    assert f"line 4, column {text.index(at) + 1}, " in str(error.value) and told in str(error.value), str(error.value)


def test_speculation_by_hand_is_refused(tmp_path):
    text = "tensors: {w: {bytes: 2 GB, home: dram0}}\ntasks: {fetch: {move: w, to: hbm0}}\n" + GUESS
    with pytest.raises(DocumentError, match="speculation belongs to a plan by placement"):
        plan_of(tmp_path, text, box(1))


@pytest.mark.slow
def test_values_of_both_may_be_set(capsys):
    path = str(Path(__file__).resolve().parent.parent / "examples" / "phases-speculation.yaml")
    words = ["step", path, "--json", "--set", "speculation.draft=2", "--set", "speculation.accept=50%"]
    assert cli.main(words) == 0
    assert json.loads(capsys.readouterr().out)["workload"]["draft"] == 2
    stated = "speculation={draft: 2, accept: 70%, model: {blocks: {count: 4, bytes: 100 MB}}, home: hbm0}"
    assert cli.main(["step", path, "--json", "--set", stated]) == 0
    moves = json.loads(capsys.readouterr().out)["moves"]
    assert sum(move["bytes"] for move in moves if move["what"] == "draft's layer weights") == 2 * 4 * 100 * 10**6
