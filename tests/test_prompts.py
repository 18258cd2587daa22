"""A prompt in chunks as one thing: its floor, its expected time, and what `need` says of it."""

from __future__ import annotations

import json

import pytest

from offload import load_plan
from offload.cli import main
from offload.compiler import compile_step
from offload.documents import read_setting
from offload.errors import UnitError
from offload.need import need
from offload.need_rates import read_target
from offload.prompts import busy, expected, in_chunks, least, tokens_of, with_all_resources
from offload.requests import generation
from offload.sensitivity import scaled

PLAN = "examples/phases-chunked-prefill.yaml"


def compiled(*settings):
    plan, topology = load_plan(PLAN, settings=[read_setting(one) for one in settings])
    return compile_step(topology, plan), generation(topology, plan)


@pytest.mark.few
@pytest.mark.parametrize("settings", [
    ("workload={phase: prefill, prompt: 1000, chunk: 300}",),
    ("workload={phase: prefill, prompt: 1000, chunk: 300}", "placement.compute=local"),
    ("workload={phase: prefill, prompt: 300, chunk: 300}", "placement.compute=local"),
    ("workload={phase: prefill, prompt: 1000, chunk: 300, batch: 2}", "overlap=none"),
    ("workload={phase: prefill, prompt: 64, chunk: 60}", "placement={weights: {dram0: all}, compute: cpu0}"),
])
def test_times_of_all_chunks_are_those_of_the_request(settings):
    step, found = compiled(*settings)
    assert in_chunks(step) == found.chunks and tokens_of(step) == found.prompt_tokens
    assert least(step).seconds == pytest.approx(found.prefill.floor, rel=1e-12)
    assert least(step, "value").seconds == pytest.approx(found.prefill.floor_sustained, rel=1e-12)
    assert expected(step) == pytest.approx(found.prefill.expected, rel=1e-12)
    assert set(least(step).bottleneck) == set(found.bottleneck)


def test_rates_of_the_step_are_those_of_all_chunks():
    step, _ = compiled("workload={phase: prefill, prompt: 1000, chunk: 300}")
    fast = scaled(step, list(step.resources), 2.0)
    assert busy(fast, "value") == pytest.approx({name: time / 2 for name, time in busy(step, "value").items()})
    assert least(fast, "value").seconds < least(step, "value").seconds and expected(fast) < expected(step)
    assert busy(step, "value")["pcie0.hbm0"] > 3.9 * busy(scaled(step, ["pcie0.hbm0"], 4.0), "value")["pcie0.hbm0"]


def test_what_only_the_head_uses_can_be_made_faster():
    step, _ = compiled("workload={phase: prefill, prompt: 1000, chunk: 300}",
                       "placement={weights: {hbm0: 0 layers, dram0: rest}, compute: local}")
    full = with_all_resources(step)
    more = set(full.resources) - set(step.resources)
    assert more and least(full) == least(step)
    assert expected(scaled(full, more, 2.0)) < expected(step)


@pytest.mark.slow
def test_a_target_is_compared_with_the_whole_prompt():
    step, found = compiled("workload={phase: prefill, prompt: 1000, chunk: 500}")
    between = (found.prefill.floor + found.prefill.expected) / 2
    one = need(step, read_target(f"{between:.9g} s", step))
    assert one.allowed and not one.met and one.chunks == 2
    assert (one.floor, one.expected) == pytest.approx((found.prefill.floor, found.prefill.expected))
    assert not need(step, read_target(f"{0.99 * found.prefill.floor:.9g} s", step)).allowed
    assert need(step, read_target(f"{1.01 * found.prefill.expected:.9g} s", step)).met
    rate = read_target(f"{0.99 * found.prompt_tokens_per_s:.9g} tok/s", step)
    assert rate.due(step) == pytest.approx(found.prefill.expected / 0.99)
    for lever in one.levers:
        if lever.kind == "rate" and lever.expected is not None:
            assert expected(scaled(step, lever.names, lever.expected)) <= one.due * (1 + 1e-9)


def test_a_time_per_step_is_refused():
    step, _ = compiled("workload={phase: prefill, prompt: 1000, chunk: 500}")
    for text in ("90 ms/step", "9 ms/token"):
        with pytest.raises(UnitError, match="one target, the time to its first token"):
            read_target(text, step)


def test_the_command_says_so(capsys):
    words = ["need", PLAN, "--set", "workload.prompt=1000", "--set", "workload.chunk=500", "--target", "60 s"]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert "Target: 60 s: all 2 chunks, to the first token, in at most 60 s" in text and "reached as it is" in text
    assert main([*words, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["chunks"], answer["tokens"]) == (2, 1000.0)
