"""What ktransformers' logs say: facts worked out from each fixture by hand, dirt, several runs, damage."""

from __future__ import annotations

import pytest

from offload.errors import ReadingError
from offload.readers.engines import ktransformers
from offload.readers.tools.text import clean
from tests.server_logs import bare, damage_test, dirty, facts, log, runs, said, settings

NAMES = ("ktransformers_chat.txt", "ktransformers_served.log")

test_damaged_logs = damage_test(ktransformers, NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_dirt_changes_nothing(name):
    plain = bare(runs(ktransformers, log(name)))
    for number, content in enumerate(dirty(log(name))):
        assert bare(runs(ktransformers, content)) == plain, number


@pytest.mark.parametrize("name", NAMES)
def test_nothing_personal_is_kept(name):
    found = repr(runs(ktransformers, log(name)))
    assert not any(word in found for word in ("somebody", "/home", "/srv", "/opt", "business", "user@"))


@pytest.mark.parametrize("name", NAMES)
def test_each_start_is_a_run(name):
    content = log(name)
    twice = runs(ktransformers, content + "\n" + content)
    assert len(twice) == 2 and bare(twice[:1]) == bare(twice[1:]) == bare(runs(ktransformers, content))


def test_starts_without_a_command_are_runs_too():
    content = log("ktransformers_chat.txt")
    content = content[content.index("Injecting") :]
    assert len(runs(ktransformers, content + content)) == 2


def test_local_chat():
    (run,) = runs(ktransformers, log("ktransformers_chat.txt"))
    assert said(run) == {
        "model": ("Example-671B", 1), "architecture": ("DeepseekV3ForCausalLM", 5), "weights_format": ("Q4_K_M", 1),
        "threads": (62, 1), "layers": (3, 9),
    }  # fmt: skip
    assert settings(run) == {"gguf_path": "Example-671B-Q4_K_M", "max_new_tokens": 300,
                             "optimize_config_path": "Example-multi-gpu.yaml"}  # fmt: skip
    assert facts(run) == {
        "layers whose experts are KTransformersExperts": 2, "small tensors loaded to cpu": 1,
        "small tensors loaded to cuda:0": 2, "small tensors loaded to cuda:1": 1,
    }  # fmt: skip
    prompt, answer = run.timings
    assert (prompt.phase, prompt.seconds, prompt.tokens, prompt.line) == ("prefill", 3.272608757019043, 14, 25)
    # 300 tokens, the first of which the prompt's pass made
    assert (answer.phase, answer.seconds, answer.tokens, answer.steps, answer.sequences, answer.context,
            answer.line) == ("decode", 104.77625703811646, 299, 299, 1, 14, 28)  # fmt: skip
    assert not run.buffers and any("bytes" in one for one in run.unknown)
    assert any("one fewer" in one for one in run.assumed)


def test_the_server_that_runs_several_at_once():
    (run,) = runs(ktransformers, log("ktransformers_served.log"))
    assert said(run) == {
        "model": ("example/Example-30B-A3B", 1), "weights_format": ("Q8_0", 1), "threads": (30, 1), "chunk": (256, 1),
        "batch": (4, 1), "kv_tokens": (32_768, 1), "layers": (2, 3),
    }  # fmt: skip
    assert settings(run)["backend_type"] == "balance_serve"
    first, alone, second, shared = run.timings
    assert (first.phase, first.seconds, first.tokens, first.line) == ("prefill", 1.0, 64, 10)
    assert (alone.phase, alone.seconds, alone.tokens, alone.steps, alone.includes) == ("decode", 16.0, 200, 200, "")
    assert (second.tokens, shared.tokens, shared.includes) == (64, 100, "other requests' steps")
    assert any("at once" in one for one in run.unknown)


def test_the_older_server_timed_one_request_at_a_time():
    line = ("2025-02-21 11:57:02,966 INFO base.py[64]: Performance(T/s): prefill 11.5, decode 5.0. Time(s): tokenize "
            "0.0117, prefill 2.0, decode 40.0")  # fmt: skip
    (run,) = runs(ktransformers, line)
    assert [(one.tokens, one.includes) for one in run.timings] == [(23, ""), (200, "")]


def test_a_cut_chat_gives_the_prompt():
    content = log("ktransformers_chat.txt")
    (run,) = runs(ktransformers, content[: content.index("eval duration:        1")])
    assert [one.phase for one in run.timings] == ["prefill"]


@pytest.mark.parametrize("content", [
    "total duration: 18.2s\nprompt eval rate:     15.60 tokens/s\neval rate:            9.54 tokens/s\n",
    "I run ktransformers at home.", "loading model tensors, this can take a while",
])  # fmt: skip
def test_other_logs_are_left_alone(content):
    assert not ktransformers.is_it(clean(content))


def test_a_rate_without_its_time_is_refused():
    with pytest.raises(ReadingError, match="no line of it"):
        runs(ktransformers, "eval rate:            2.863244102057046 tokens/s\n")
