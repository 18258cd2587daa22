"""Whole requests: the sums over a prompt and every token, against evaluating each of them."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from rich.console import Console

from offload import cli
from offload.answer import to_json
from offload.bounds import floor
from offload.compiler import compile_step
from offload.designs import Cost, Placement, Portion, Workload, plan_model
from offload.models import attention_flops, kv_bytes, layer_flops, weigh
from offload.plan import GivenTime, Overlap
from offload.readers.huggingface import model_of
from offload.report import write_text
from offload.requests import generation
from offload.schedules import schedule, serial
from offload.step import loads
from offload.study import evaluate
from tests.boxes import box, plan_of
from tests.strategies import placed_ranks

CLOSE = 1 + 1e-12
SHAPE = {
    "model_type": "llama", "num_hidden_layers": 4, "hidden_size": 1024, "intermediate_size": 2048,
    "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 1000, "tie_word_embeddings": False,
    "max_position_embeddings": 4096,
}  # fmt: skip
MODEL = model_of(SHAPE, "small")
LAYER = weigh(MODEL, "bf16").layers[0]
HEAD = weigh(MODEL, "bf16").head + weigh(MODEL, "bf16").norm
POSITION = kv_bytes(MODEL, "f16")
ROW = 2 * 1024
REST = Portion("rest")


def request(prompt, generate, weights=None, compute="local", batch=1, kv="with layer", topology=None, overlap=None,
            **more):  # fmt: skip
    placement = Placement(tuple((weights or {"hbm0": REST}).items()), compute, kv, 0, **more)
    return plan_model(MODEL, topology or box(1), Workload("generate", batch, prompt=prompt, generate=generate),
                      placement, weights="bf16", overlap=overlap)  # fmt: skip


def every_step(topology, plan):
    """The prefill and each decode step, compiled one by one."""
    asked = plan.request
    prefill = compile_step(topology, replace(asked.prefill, data_cycle=True, overlap=plan.overlap))
    steps = [compile_step(topology, replace(asked.at(context), overlap=plan.overlap))
             for context in range(asked.first, asked.first + asked.steps)]  # fmt: skip
    return prefill, steps


def exact_floor(prefill, steps, grade="peak"):
    """The larger of the loads over all steps and of the chain through them, after a prefill from empty buffers."""
    from offload.bounds import load_seconds

    each = [load_seconds(prefill, grade, alone=True).resource_seconds]
    each += [load_seconds(step, grade).resource_seconds for step in steps]
    load = max(sum(one.get(name, 0.0) for one in each) for name in {name for one in each for name in one})
    return max(load, floor(prefill, grade).cold_seconds + sum(floor(step, grade).cycle_seconds for step in steps))


# --- by hand ---


def test_a_request_on_one_gpu_by_hand():
    """The prompt is bound by arithmetic or weights; each token reads all weights and one more position."""
    prompt, tokens = 1000, 11
    found = generation(box(1), request(prompt, tokens))
    assert (found.prompt, found.steps, found.first_context, found.last_context) == (1000, 10, 1001, 1010)
    assert found.tokens == 11
    contexts = sum(range(1001, 1011))
    head = HEAD / 1e12
    decode = 10 * (4 * (LAYER + POSITION) / 1e12 + head) + 4 * contexts * POSITION / 1e12
    row = 10 * ROW / 20e9  # from host memory to the GPU, once a token
    assert found.decode.serial == pytest.approx(decode + row, rel=1e-12)
    beside = 10 * 5 * ROW / 1e12  # the row may arrive beside any of four layers and the head, and each makes way for it
    assert found.decode.expected == pytest.approx(decode + beside, rel=1e-12)
    flops = 1000 * layer_flops(MODEL) + 1000 * 1001 // 2 * attention_flops(MODEL)
    assert flops / 100e12 > LAYER / 1e12, "a layer of the prompt is bound by its arithmetic"
    prefill = 1000 * ROW / 20e9 + 4 * flops / 100e12 + HEAD / 1e12
    assert found.prefill.expected == pytest.approx(prefill, rel=1e-12)
    assert found.total.expected == pytest.approx(prefill + decode + beside, rel=1e-12)
    # A row's first tile may be enough to start on. Of the last layer one position's output is needed, and it is read.
    chain = 3 * flops / 100e12 + (LAYER + 1000 * POSITION) / 1e12 + head + decode
    assert found.total.floor == pytest.approx(chain, rel=1e-12) and found.rule == "cycle"
    assert found.bottleneck == ("hbm0", "gpu0.flops")
    sustained = 4 * flops / 100e12 + head + decode
    assert found.total.floor_sustained == pytest.approx(sustained, rel=1e-12)
    assert found.tokens_per_s == pytest.approx(11 / (prefill + decode + beside))


def test_streamed_weights_bind_by_load():
    found = generation(box(1), request(100, 21, {"dram0": REST}, "gpu0"))
    over_link = 21 * (4 * LAYER + HEAD) + (1 + 20) * ROW  # of the prompt's embedding rows one is certain
    assert found.total.floor == pytest.approx(over_link / 20e9, rel=1e-12)
    assert found.rule == "load" and found.bottleneck == ("pcie0.hbm0",)
    assert found.decode.expected == pytest.approx(20 * ((4 * LAYER + HEAD) + ROW) / 20e9, rel=2e-4)


def test_one_token_is_the_prefill():
    plan = request(64, 1, batch=3)
    found = generation(box(1), plan)
    assert found.decode is None and found.steps == 0 and found.tokens == 3
    assert found.total == found.prefill and found.first_context == found.last_context == 64
    prefill, steps = every_step(box(1), plan)
    assert steps == [] and found.total.expected == schedule(prefill).cold_seconds
    assert found.total.floor == floor(prefill).cold_seconds
    assert plan.title == "small bf16, generate, batch 3, prompt 64, 1 token"
    assert compile_step(box(1), plan).occupied["hbm0"]["KV cache"] == 4 * 3 * 64 * POSITION


def test_two_tokens_are_a_prefill_and_a_step():
    plan = request(64, 2)
    found = generation(box(1), plan)
    _, (step,) = every_step(box(1), plan)
    assert found.decode.expected == schedule(step).seconds and found.decode.floor == floor(step).seconds
    assert plan.workload["context"] == 65 and isinstance(plan.workload["context"], int)


def test_memory_has_room_for_the_longest_context():
    plan = request(100, 50, batch=2)
    assert plan.workload["context"] == 125
    last = 100 + 50 - 1  # the last token's own key is never needed
    for one in (plan, plan.request.prefill, plan.request.at(101), plan.request.at(149)):
        assert compile_step(box(1), one).occupied["hbm0"]["KV cache"] == 4 * 2 * last * POSITION
    assert loads(compile_step(box(1), plan.request.at(101)), least=False)["hbm0"] == (
        4 * (LAYER + 2 * 102 * POSITION) + HEAD + 2 * ROW)  # fmt: skip


def test_a_context_beyond_the_model_s_is_told_of_the_longest():
    assert "context 4,146 is beyond the 4,096 positions that the model states" in request(4047, 100).assumptions
    for plan in (request(3000, 1097), request(4096, 1)):
        assert not any("beyond" in note for note in plan.assumptions), "the last token is read by none"


def test_costs_come_with_each_step():
    sync = Cost("sync", "layer", GivenTime(1e-3, 1e-3, 1e-3, 1e-3))
    bare, found = (generation(box(1), request(100, 5, costs=costs)) for costs in ((), (sync,)))
    assert found.total.expected == pytest.approx(bare.total.expected + 5 * 4e-3)
    assert found.total.floor == pytest.approx(bare.total.floor + 5 * 4e-3)


def test_the_overlap_may_be_changed_in_the_plan_alone():
    plan = request(100, 5, {"dram0": REST}, "gpu0", overlap=Overlap("buffers", 2))
    one = replace(plan, overlap=Overlap("none"))
    again = request(100, 5, {"dram0": REST}, "gpu0", overlap=Overlap("none"))
    assert generation(box(1), one) == generation(box(1), again) != generation(box(1), plan)
    assert generation(box(1), one).decode.expected == generation(box(1), one).decode.serial


# --- against every step ---

TWO = box(2, nvlink=100e9)
SOME = {"hbm0": Portion("layers", 2), "dram0": REST}
CASES = {
    "resident": request(50, 80, topology=TWO),
    "streamed": request(50, 80, SOME, "gpu0", topology=TWO),
    "in place": request(50, 80, SOME, topology=TWO),
    "cache away": request(50, 40, kv="dram0", batch=8, topology=TWO),
    "ranks": request(50, 40, {"hbm0..1": REST}, topology=TWO),
}


@pytest.mark.few
@pytest.mark.parametrize("name", list(CASES))
def test_the_sums_are_those_of_every_step(name):
    plan, server = CASES[name], TWO
    prefill, steps = every_step(server, plan)
    found = generation(server, plan)
    for grade, total in (("peak", found.total.floor), ("value", found.total.floor_sustained)):
        exact = exact_floor(prefill, steps, grade)
        assert total <= exact * CLOSE, "a mean of convex times is no longer than their sum"
        assert total == pytest.approx(exact, rel=1e-12), "and as long where nothing kinks"
    slow = [schedule(step) for step in steps]
    for part, exact in (("expected", sum(one.seconds for one in slow)), ("low", sum(one.low for one in slow)),
                        ("high", sum(one.high for one in slow)),
                        ("serial", sum(serial(step).seconds for step in steps))):  # fmt: skip
        assert getattr(found.decode, part) == pytest.approx(exact, rel=1e-3), part


@pytest.mark.slow
def test_where_times_kink_the_floor_stays_below_and_the_sum_close():
    """Batch 1,100: the cache outgrows the streamed weights on the way, so another resource binds."""
    server = box(1)
    plan = request(100, 200, SOME, "gpu0", batch=1100)
    found = generation(server, plan)
    prefill, steps = every_step(server, plan)
    assert {floor(step).bottleneck for step in steps} == {("pcie0.hbm0",), ("hbm0",)}
    for grade, total in (("peak", found.total.floor), ("value", found.total.floor_sustained)):
        assert total <= exact_floor(prefill, steps, grade) * CLOSE
    assert found.decode.floor < sum(floor(step).seconds for step in steps) * 0.99, "the mean step hides the kink"
    assert found.decode.expected == pytest.approx(sum(schedule(step).seconds for step in steps), rel=1e-3)


# --- whatever is asked ---


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(placed_ranks(phases=("generate",)))
def test_ladder_and_sums_of_any_request(drawn):
    topology, plan = drawn
    found = generation(topology, plan)
    prefill, steps = every_step(topology, plan)
    for times in filter(None, (found.prefill, found.decode, found.total)):
        assert times.floor <= times.floor_sustained * CLOSE and times.floor_sustained <= times.expected * CLOSE
        assert times.expected <= times.serial * CLOSE
        assert times.low <= times.expected * CLOSE and times.expected <= times.high * CLOSE
    assert found.steps == len(steps)
    if steps:
        assert found.total.floor <= exact_floor(prefill, steps) * CLOSE
        assert found.total.floor_sustained <= exact_floor(prefill, steps, "value") * CLOSE
        exact = sum(schedule(step, ends=False).seconds for step in steps)
        assert found.decode.expected == pytest.approx(exact, rel=1e-3)


# --- what is shown ---


def test_the_report_tells_the_request_first():
    study = evaluate(box(1), request(1000, 11))
    out = io.StringIO()
    write_text(study, Console(file=out, width=140))
    text = out.getvalue()
    assert text.index("The whole request") < text.index("Read or moved each step")
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line.split()}
    assert rows["prefill"][1:3] == ["1000", "1"]
    assert rows["decode"][1:5] == ["1001", "to", "1010", "10"] and rows["whole"][1] == "11"
    assert "First token after" in text and "11 tokens over the whole request:" in text
    assert "What binds the floor of the whole: the chain through the tokens, on" in text
    assert "the decode step at the mean context" in text
    one = io.StringIO()
    write_text(evaluate(box(1), request(1000, 1)), Console(file=one, width=140))
    assert "decode step at the mean" not in one.getvalue() and "1 tokens" not in one.getvalue().split("request:")[-1]


def test_the_request_as_data():
    study = evaluate(box(1), request(1000, 11))
    data = json.loads(json.dumps(to_json(study)))["request"]
    assert set(data) == {"prompt", "steps", "first_context", "last_context", "tokens", "tokens_per_s", "rule",
                         "bottleneck", "prefill", "decode", "total", "chunks", "prompt_tokens",
                         "prompt_tokens_per_s", "time_per_token", "regimes", "rounds", "least_rounds",
                         "drafted", "without_speculation"}  # fmt: skip
    for part in ("prefill", "decode", "total"):
        assert set(data[part]) == {"floor", "floor_sustained", "expected", "low", "high", "serial", "serial_slow"}
    assert data["total"]["expected"] == data["prefill"]["expected"] + data["decode"]["expected"]
    assert data["tokens"] == 11 and data["tokens_per_s"] == 11 / data["total"]["expected"]
    assert to_json(evaluate(box(1), request(1000, 1)))["request"]["decode"] is None
    decode = plan_model(MODEL, box(1), Workload(), Placement((("hbm0", REST),)), weights="bf16")
    assert to_json(evaluate(box(1), decode))["request"] is None


def test_a_request_from_a_file_and_in_words(tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps(SHAPE))
    text = ("model: {config: ./config.json, weights: bf16}\n"
            "workload: {phase: generate, batch: 2, prompt: 30, generate: 12}\n"
            "placement: {weights: {hbm0: rest}, reserve: 0 B}\n")  # fmt: skip
    plan = plan_of(tmp_path, text, box(1))
    assert generation(box(1), plan) == generation(box(1), request(30, 12, batch=2))
    path = tmp_path / "plan.yaml"
    path.write_text("topology: desktop-4090\n" + text.replace("hbm0: rest", "hbm0: 0 layers, dram0: rest").replace(
        "reserve", "compute: gpu0, reserve"), encoding="utf-8")  # fmt: skip
    assert cli.main(["step", str(path), "--json"]) == 0
    two = json.loads(capsys.readouterr().out)
    assert cli.main(["step", str(path), "--json", "--buffers", "none"]) == 0
    none = json.loads(capsys.readouterr().out)
    assert none["request"]["decode"]["expected"] == pytest.approx(two["request"]["decode"]["serial"], rel=1e-12)
    assert none["request"]["decode"]["expected"] > two["request"]["decode"]["expected"]
    words = ["step", str(tmp_path / "config.json"), "--on", "desktop-4090", "--prompt", "30", "--generate", "12",
             "--batch", "2", "--weights", "bf16", "--gpu-layers", "0", "--compute", "gpu0", "--reserve", "0 B",
             "--json"]  # fmt: skip
    assert cli.main(words) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["request"] == two["request"] and said["workload"]["phase"] == "generate"
