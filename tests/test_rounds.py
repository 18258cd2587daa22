"""Runs of tokens in rounds of speculation: how many rounds, and their times against every round by itself."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from offload.answer import to_json
from offload.bounds import floor, load_seconds
from offload.compiler import compile_step
from offload.designs import Placement, Portion, Workload, plan_model
from offload.designs.speculation import Speculation
from offload.documents.plan_file import load_plan
from offload.errors import DocumentError, PlanError
from offload.models import weigh
from offload.models.experts import tokens_per_step
from offload.plan import Overlap
from offload.readers.huggingface import model_of
from offload.report import write_text
from offload.requests import generation
from offload.rounds import MOST_TOKENS, Weights, least_starts, start_chances
from offload.schedules import schedule
from offload.study import evaluate
from tests.boxes import box
from tests.test_phases_plans import DRAFT
from tests.test_requests import HEAD, LAYER, MODEL, POSITION, SHAPE

CLOSE = 1 + 1e-12
REST = Portion("rest")
HALF, FOURFIFTHS = Fraction(1, 2), Fraction(4, 5)
WINDOWED = model_of(SHAPE | {"model_type": "mistral", "sliding_window": 64, "num_hidden_layers": 2}, "windowed")


def run(generate, draft=4, accept=0.8, *, prompt=1000, drafting=None, batch=1, weights=None, compute="local",
        chunk=0, model=MODEL, overlap=None, topology=None):  # fmt: skip
    asked = Speculation(draft, accept, drafting, "bf16" if drafting else "", "f16", "hbm0" if drafting else "")
    workload = Workload("generate", batch, prompt=prompt, generate=generate, chunk=chunk, speculation=asked)
    placement = Placement(tuple((weights or {"hbm0": REST}).items()), compute, reserve=0)
    return plan_model(model, topology or box(1), workload, placement, weights="bf16", overlap=overlap)


# --- how many rounds ---


def by_recursion(tokens, accept, draft):
    """Rounds until `tokens` are there, on average: one, and those that are left after what it yields."""
    if tokens <= 0:
        return 0
    chances = [accept**(j - 1) * (1 - accept) for j in range(1, draft + 1)] + [accept**draft]
    return 1 + sum(p * by_recursion(tokens - j, accept, draft) for j, p in enumerate(chances, start=1) if p)


def test_chances_by_hand():
    """One guess that is kept half the time: a round yields one or two. u = 1, 1/2, 3/4: 9/4 rounds for three tokens."""
    assert start_chances(3, HALF, 1) == [1, HALF, Fraction(3, 4)]
    assert start_chances(4, HALF, 1)[3] == HALF * Fraction(3, 4) + HALF * HALF
    assert start_chances(5, Fraction(1), 1) == [1, 0, 1, 0, 1], "all kept: every other token"
    assert start_chances(3, Fraction(0), 4) == [1, 1, 1], "none kept: a round for each"
    assert start_chances(3, FOURFIFTHS, 0) == [1, 1, 1], "nothing guessed"


@pytest.mark.parametrize("accept", [Fraction(0), Fraction(1, 3), FOURFIFTHS, Fraction(1)])
@pytest.mark.parametrize("draft", [1, 2, 4])
def test_the_sum_of_chances_is_the_mean_number_of_rounds(accept, draft):
    for tokens in range(1, 10):
        assert sum(start_chances(tokens, accept, draft)) == by_recursion(tokens, accept, draft)


def test_in_the_long_run_a_round_for_the_tokens_that_one_yields():
    chances = start_chances(4000, 0.8, 4)
    assert chances[-1] == pytest.approx(1 / tokens_per_step(0.8, 4), rel=1e-12)
    assert sum(chances) == pytest.approx(4000 / tokens_per_step(0.8, 4), abs=1)
    assert sum(chances) > 4000 / tokens_per_step(0.8, 4), "the last may yield more than is wanted"


def test_what_is_surely_there():
    assert least_starts(10, 4) == [0, 5] and least_starts(11, 4) == [0, 1, 6] and least_starts(3, 4) == [0]
    for yields in product(range(1, 4), repeat=4):  # any rounds of up to three tokens that yield seven
        starts = [sum(yields[:i]) for i in range(4) if sum(yields[:i]) < 7]
        if sum(yields) >= 7:
            surely = least_starts(7, 2)
            assert all(a >= b for a, b in zip(reversed(starts), reversed(surely), strict=False))
            assert len(starts) >= len(surely)


def test_weights_sum_what_grows_evenly():
    weights = [3.0, 0.0, 2.0, 5.0]
    of_start, of_end = Weights(weights).ends(1, 3)
    line = [10.0, 14.0, 18.0]  # from 1 to 3
    assert of_start * 10 + of_end * 18 == sum(w * v for w, v in zip(weights[1:], line, strict=True))
    assert Weights(weights).ends(2, 2) == (2.0, 0.0)


# --- a run by hand ---


def test_a_run_by_hand():
    """12 tokens after 1000: the prompt yields one, 11 are left. Each pass of five positions reads all weights and the
    KV of 1000 + what is there, and writes five; at best it starts at 0, 1 and 6, the last for a single token.
    """
    found = generation(box(1), plan := run(12))
    assert (found.prompt, found.steps, found.first_context, found.last_context) == (1000, 11, 1001, 1011)
    assert found.least_rounds == 3 and found.rounds == pytest.approx(float(by_recursion(11, FOURFIFTHS, 4)), rel=1e-12)
    assert found.tokens == 12 and found.drafted is None

    # Of the rounds at 0 and 1 the mean is rounded down: 1000 positions before each, and five written. The last is a
    # plain step, which reads 1007 and writes one.
    moved = 2 * (4 * LAYER + 1005 * POSITION * 4 + HEAD) + 4 * LAYER + 1008 * POSITION * 4 + HEAD
    assert found.decode.floor == pytest.approx(moved / 1e12, rel=1e-12)
    assert found.total.floor == pytest.approx(found.prefill.floor + found.decode.floor, rel=1e-12)
    # Expected: every start by its chance.
    chances = start_chances(11, 0.8, 4)
    each = [schedule(compile_step(box(1), plan.request.at(1001 + i))).seconds for i in range(11)]
    assert found.decode.expected == pytest.approx(sum(w * t for w, t in zip(chances, each, strict=True)), rel=1e-9)
    assert found.time_per_token == found.decode.expected / 11
    assert found.total.expected == found.prefill.expected + found.decode.expected


def test_two_tokens_are_the_prompt_and_one_plain_step_at_least():
    """One token is left: nothing need be guessed. Expected times guess all the same."""
    plan = run(2)
    plain = plan_model(MODEL, box(1), Workload("generate", prompt=1000, generate=2),
                       Placement((("hbm0", REST),), reserve=0), weights="bf16")  # fmt: skip
    found, without = generation(box(1), plan), generation(box(1), plain)
    assert found.least_rounds == 1 and found.rounds == 1
    assert found.decode.floor == without.decode.floor
    assert found.decode.expected > without.decode.expected


def test_one_token_guesses_nothing():
    plan = run(1, drafting=DRAFT)
    found = generation(box(1), plan)
    assert found.decode is None and found.rounds is None
    assert any("nothing is guessed" in note for note in plan.assumptions)


def test_streamed_weights_come_once_a_round():
    """Four layers over 25 GB/s a round: ceil(40 / 5) = 8 rounds at least, whatever is kept; the prompt is one more."""
    plan = run(41, weights={"dram0": REST}, compute="gpu0", accept=0.0)
    found = generation(box(1), plan)
    link = load_seconds(compile_step(box(1), plan.request.at(1001))).resource_seconds
    name, each = max(link.items(), key=lambda one: one[1])
    assert found.bottleneck == (name,) and found.rule == "load"
    assert found.total.floor == pytest.approx(9 * each, rel=1e-3)
    assert found.rounds == 40, "none is kept: as many rounds as tokens"
    assert found.total.expected > 40 * each


def test_the_draft_model_takes_in_the_prompt():
    alone, both = generation(box(1), run(12)), generation(box(1), run(12, drafting=DRAFT))
    assert both.prefill == alone.prefill, "the first token does not wait for it"
    prefill = plan_model(DRAFT, box(1), Workload("prefill", context=0, prompt=1000, outputs=0),
                         Placement((("hbm0", REST),), reserve=0), weights="bf16")  # fmt: skip
    step = compile_step(box(1), replace(prefill, data_cycle=True))
    assert both.drafted.expected == schedule(step).cold_seconds and both.drafted.floor == floor(step).cold_seconds
    assert both.total.expected == pytest.approx(
        both.prefill.expected + both.drafted.expected + both.decode.expected, rel=1e-12)
    chunked = generation(box(1), run(12, drafting=DRAFT, chunk=300))
    passes = [schedule(compile_step(box(1), replace(plan_model(
        DRAFT, box(1), Workload("prefill", context=300 * i, prompt=min(300, 1000 - 300 * i), outputs=0),
        Placement((("hbm0", REST),), reserve=0), weights="bf16"), data_cycle=True))) for i in range(4)]  # fmt: skip
    assert chunked.chunks == 4 and chunked.drafted.expected == pytest.approx(
        passes[0].cold_seconds + sum(one.seconds for one in passes[1:]), rel=1e-12)


def test_memory_has_room_for_the_last_guesses():
    step = compile_step(box(1), run(12, drafting=DRAFT, batch=3))
    assert step.occupied["hbm0"]["KV cache"] == 4 * 3 * (1000 + 11 + 4) * POSITION
    assert step.occupied["hbm0"]["draft's layer weights"] == sum(weigh(DRAFT, "bf16").layers)


# --- against every round by itself ---


def exact(topology, plan, yields, prompts):
    """The floor of rounds that yield so many tokens each, the last guessing no more than is wanted."""
    tokens, there, steps = plan.request.steps, 0, []
    model, workload, placement, weights, kv = plan.origin
    for one in yields:
        if there >= tokens:
            break
        guesses = min(workload.speculation.draft, tokens - there - 1)
        asked = replace(workload.speculation, draft=guesses) if guesses else None
        round_ = plan_model(model, topology, Workload("decode", workload.batch, plan.request.first + there,
                                                      speculation=asked), placement, weights=weights, kv=kv,
                            overlap=plan.overlap)  # fmt: skip
        steps.append(compile_step(topology, round_))
        there += one
    if there < tokens:
        return None
    each = [load_seconds(step, alone=True).resource_seconds for step in prompts]
    each += [load_seconds(step).resource_seconds for step in steps]
    load = max(sum(one.get(name, 0.0) for one in each) for name in {name for one in each for name in one})
    chain = floor(prompts[0]).cold_seconds + sum(floor(step).cycle_seconds for step in steps)
    return max(load, chain)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.integers(2, 14), st.integers(1, 4), st.booleans(), st.sampled_from([1, 60, 500]), st.booleans(),
       st.sampled_from([MODEL, WINDOWED]), st.integers(1, 3), st.data())  # fmt: skip
def test_no_rounds_are_below_the_floor(generate, draft, draws, prompt, streamed, model, batch, data):
    """Whatever guesses are kept, round by round, the floor of the run is no more than that of these rounds."""
    weights = {"hbm0": Portion("layers", 1), "dram0": REST} if streamed else None
    plan = run(generate, draft, prompt=prompt, drafting=DRAFT if draws else None, weights=weights, model=model,
               compute="gpu0" if streamed else "local", batch=batch)  # fmt: skip
    found = generation(box(1), plan)
    prompts = [compile_step(box(1), replace(plan.request.prefill, data_cycle=True))]
    if draws:
        prompts.append(compile_step(box(1), replace(plan.request.rounds.drafted.prefill, data_cycle=True)))
    best = [draft + 1] * generate
    drawn = data.draw(st.lists(st.integers(1, draft + 1), min_size=generate, max_size=generate))
    for yields in (best, best[:-1] + [1], [1, *best], drawn, sorted(drawn)):
        time = exact(box(1), plan, yields, prompts)
        assert time is None or found.total.floor <= time * CLOSE
    if (generate - 1) % (draft + 1) == 0 and model is MODEL:
        assert found.total.floor == pytest.approx(exact(box(1), plan, best, prompts), rel=1e-3)
    assert found.total.floor <= found.total.expected * CLOSE
    assert found.least_rounds <= found.rounds * CLOSE <= (generate - 1) * CLOSE**2


@pytest.mark.few
@pytest.mark.parametrize("overlap", [Overlap("none"), Overlap()])
def test_expected_times_weigh_every_round(overlap):
    plan = run(120, 3, 0.7, drafting=DRAFT, weights={"hbm0": Portion("layers", 2), "dram0": REST}, compute="gpu0",
               overlap=overlap)  # fmt: skip
    found = generation(box(1), plan)
    chances = start_chances(119, 0.7, 3)
    each = [schedule(compile_step(box(1), plan.request.at(1001 + i))).seconds for i in range(119)]
    assert found.decode.expected == pytest.approx(sum(w * t for w, t in zip(chances, each, strict=True)), rel=2e-3)


def test_speculation_that_keeps_nothing_takes_no_less_than_none():
    plain = plan_model(MODEL, box(1), Workload("generate", prompt=1000, generate=12),
                       Placement((("hbm0", REST),), reserve=0), weights="bf16")  # fmt: skip
    assert generation(box(1), run(12, accept=0.0)).decode.expected >= generation(box(1), plain).decode.expected


# --- files and reports ---

FILE = """topology: desktop-4090
model: {name: llama-3.1-8b, weights: q8_0}
workload: {phase: generate, prompt: 512, generate: 64}
placement: {weights: {hbm0: rest}}
speculation: {draft: 4, accept: 80%, model: {name: llama-3.2-1b, weights: q8_0}, home: hbm0}
"""


def written(tmp_path, text):
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    return load_plan(path)


def test_a_run_from_a_file(tmp_path):
    plan, topology = written(tmp_path, FILE)
    study = evaluate(topology, plan)
    console = Console(file=io.StringIO(), width=120)
    write_text(study, console)
    text = " ".join(console.file.getvalue().split())
    assert "generate with 4 drafted" in text and "(13 at least)" in text, "ceil(63 / 5)"
    assert "draft's prefill" in text and "Below: the round at the mean context" in text
    said = json.loads(json.dumps(to_json(study)))["request"]
    assert said["least_rounds"] == 13 and said["rounds"] == pytest.approx(study.request.rounds)
    assert said["steps"] == 63 and said["tokens"] == 64 and said["drafted"]["expected"] > 0
    assert said["time_per_token"] == pytest.approx(said["decode"]["expected"] / 63)


def test_what_does_not_go_with_a_run_is_refused(tmp_path):
    with pytest.raises(DocumentError, match="llama-3.2-1b has its own keys and values"):
        written(tmp_path, FILE.replace("generate: 64", "generate: 64, cached: 50%").replace(
            "hbm0: rest}", "hbm0: rest}, cache: {dram0: rest}"))
    with pytest.raises(DocumentError, match="`phase: generate`"):
        written(tmp_path, FILE.replace("generate, prompt: 512, generate: 64", "prefill, prompt: 512"))
    with pytest.raises(PlanError, match="1,000,000 tokens at most"):
        run(MOST_TOKENS + 1)
