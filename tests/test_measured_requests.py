"""What a measurement of a request is compared with: the whole, the first token, a token after it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from offload import load_plan
from offload.cli import main
from offload.compiler import compile_step
from offload.designs import Workload, plan_model
from offload.documents import read_setting
from offload.errors import OffloadError
from offload.measured import ABOVE, compare, read_measurement
from offload.measured_requests import part_of, standing_of
from offload.schedules import serial
from offload.study import evaluate

DESKTOP = "examples/llama-3.1-70b-desktop.yaml"
CHUNKS = "workload={phase: prefill, prompt: 600, chunk: 250}"
GENERATE = "workload={phase: generate, batch: 2, prompt: 100, generate: 20}"


def asked(*settings):
    plan, topology = load_plan(DESKTOP, settings=[read_setting(one) for one in settings])
    return evaluate(topology, plan), compile_step(topology, plan)


@pytest.fixture(scope="module")
def chunks():
    return asked(CHUNKS)


@pytest.fixture(scope="module")
def generate():
    return asked(GENERATE)


def test_a_prompt_in_chunks_is_compared_as_a_whole(chunks):
    study, step = chunks
    one = standing_of(study, step, read_measurement("35 s"))
    times = study.request.prefill
    assert (one.of, one.seconds, one.tokens) == ("first-token", 35.0, 600.0)
    assert (one.floor, one.expected) == (times.floor, (times.low, times.expected, times.high))
    assert one.floor > 2 * study.floor.seconds, "of three chunks, not of the one that is shown"
    rate = standing_of(study, step, read_measurement(f"{600 / times.expected:.9g} tok/s"))
    assert rate.seconds == pytest.approx(times.expected) and rate.verdict == "as expected"
    assert standing_of(study, step, read_measurement(f"{0.9 * times.floor:.6g} s")).verdict == ABOVE
    assert not standing_of(study, step, read_measurement(f"{1.1 * times.floor:.6g} s")).contradicts


def test_slow_serial_times_are_those_of_all_chunks(chunks):
    study, step = chunks
    plan = step.plan
    steps = [compile_step(step.topology, replace(plan.request.chunk(number), data_cycle=True)) for number in range(3)]
    total = sum(serial(one, "low").cold_seconds if not number else serial(one, "low").seconds
                for number, one in enumerate(steps))  # fmt: skip
    assert standing_of(study, step, read_measurement("35 s")).slow == pytest.approx(total)
    assert study.request.prefill.serial < total


def test_of_a_request_a_plain_time_is_of_the_whole_and_other_figures_of_a_step(generate):
    study, step = generate
    whole = standing_of(study, step, read_measurement("35 s"))
    assert (whole.of, whole.floor, whole.tokens) == ("request", study.request.total.floor, 40.0)
    for text in ("5 tok/s", "300 ms/step"):
        one = standing_of(study, step, read_measurement(text))
        assert one == replace(compare(study, step, read_measurement(text)), of="token")
    first = standing_of(study, step, read_measurement("35 s"), "first-token")
    assert (first.floor, first.tokens) == (study.request.prefill.floor, 200.0)
    rate = standing_of(study, step, read_measurement("8 tok/s"), "request")
    assert rate.seconds == 5.0 and rate.per_sequence == 4.0
    assert standing_of(study, step, read_measurement("300 ms"), "token").expected[1] == study.overlapped.seconds


@pytest.mark.parametrize("text, of, error", [
    ("9 ms/step", "request", "a time per step, and the whole request has one time"),
    ("9 ms/token", "first-token", "a time per token, and the first token has one time"),
])
def test_a_time_per_step_is_of_no_whole(generate, text, of, error):
    with pytest.raises(OffloadError, match=error):
        standing_of(*generate, read_measurement(text), of)


def test_what_there_is_none_of_is_refused(chunks):
    with pytest.raises(OffloadError, match="no token follows the first"):
        standing_of(*chunks, read_measurement("9 s"), "token")
    with pytest.raises(OffloadError, match="a time per step"):
        standing_of(*chunks, read_measurement("9 ms/step"))
    study, _ = asked("workload.batch=1")
    assert part_of(study, read_measurement("1 s"), None) is None
    with pytest.raises(OffloadError, match="this plan is one step"):
        part_of(study, read_measurement("1 s"), "request")


@pytest.mark.slow
def test_the_command_names_it(capsys):
    words = ["step", DESKTOP, "--set", GENERATE]
    assert main([*words, "--measured", "100 s"]) == 0
    assert "100 s for the whole request" in (text := capsys.readouterr().out) and "--measured-of first-token" in text
    assert main([*words, "--measured", "100 s", "--measured-of", "first-token", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["measured"]["of"] == "first-token"
    assert main([*words, "--measured-of", "token"]) == 2
    assert "add --measured" in capsys.readouterr().err
    assert main(["step", DESKTOP, "--measured", "3 tok/s", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["measured"]["of"] is None


def test_a_request_of_one_token_is_its_prompt():
    plan, topology = load_plan(DESKTOP)
    model, _, placement, weights, kv = plan.origin
    asked = Workload("generate", 1, prompt=50, generate=1)
    plan = plan_model(model, topology, asked, placement, weights=weights, kv=kv)
    study = evaluate(topology, plan)
    assert part_of(study, read_measurement("3 tok/s"), None) == "first-token"
