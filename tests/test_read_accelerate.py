"""What accelerate's device maps, memory tables and benchmark say: facts worked out by hand, dirt, damage."""

from __future__ import annotations

import pytest

from offload.errors import ReadingError
from offload.readers.engines import accelerate
from offload.readers.tools.text import clean
from tests.server_logs import GIB, bare, buffers, damage_test, dirty, facts, log, runs, said, settings

NAMES = ("accelerate_device_map.txt", "accelerate_estimate.txt", "accelerate_results.md", "accelerate_script.txt")

test_damaged_logs = damage_test(accelerate, NAMES)


def the_run(name):
    (run,) = runs(accelerate, log(name))
    return run


@pytest.mark.parametrize("name", NAMES)
def test_dirt_changes_nothing(name):
    plain = bare(runs(accelerate, log(name)))
    for number, content in enumerate(dirty(log(name))):
        assert bare(runs(accelerate, content)) == plain, number


@pytest.mark.parametrize("name", NAMES)
def test_nothing_personal_is_kept(name):
    found = repr(runs(accelerate, log(name)))
    assert not any(word in found for word in ("somebody", "/home", "business", "question"))


@pytest.mark.parametrize("name", NAMES)
def test_twice_the_text_is_twice_the_runs(name):
    content = log(name)
    once, twice = runs(accelerate, content), runs(accelerate, content + "\n" + content)
    assert len(twice) == 2 * len(once)
    if name != "accelerate_device_map.txt":  # there the second warning stands before the second map
        assert bare(twice) == 2 * bare(once)


def test_a_device_map_gives_layers_and_no_bytes():
    run = the_run("accelerate_device_map.txt")
    assert said(run) == {"layers": (8, 5), "layers_on_gpus": (4, 5)}
    assert facts(run) == {
        "layers on cuda:0": 3, "layers on cuda:1": 1, "layers on cpu": 3, "layers on disk": 1,
        "most that may lie on cuda:0 (max_memory), bytes": 6 * GIB,
        "most that may lie on cpu (max_memory), bytes": 30 * 10**9,
    }  # fmt: skip
    assert settings(run) == {
        "offloaded to": "cpu and disk", "device_map cuda:0": "layers 0-2, model.embed_tokens",
        "device_map cuda:1": "layers 3", "device_map disk": "layers 6",
        "device_map cpu": "layers 4-5, 7, lm_head, model.norm, model.rotary_emb",
    }  # fmt: skip
    assert [one.name for one in run.processors] == ["cuda:0", "cuda:1"]
    assert not run.buffers and any("bytes" in one for one in run.unknown)


@pytest.mark.parametrize("content", [
    "OrderedDict([('model.layers.0', 0), ('model.layers.1', 'cpu'), ('lm_head', 0)])",
    '{"model.layers.0": 0,\n  "model.layers.1": "cpu",\n "lm_head": "cuda:0"}',
    "{'model.layers.0': device(type='cuda:0'), 'model.layers.1': device(type='cpu'), 'lm_head': 0}",
])  # fmt: skip
def test_spellings_of_device_maps(content):
    (run,) = runs(accelerate, content)
    assert said(run) == {"layers": (2, 1), "layers_on_gpus": (2, 1)}  # a layer and the output
    assert facts(run) == {"layers on cuda:0": 1, "layers on cpu": 1}


def test_a_layer_in_parts_is_told():
    content = "{'model.layers.0': 0, 'model.layers.1.self_attn': 0, 'model.layers.1.mlp': 'cpu'}"
    assert any("split" in one for one in runs(accelerate, content)[0].unknown)


def test_layers_that_a_cut_map_lacks_are_odd():
    content = "{'model.layers.5': 0, 'model.layers.6': 'cpu'}"
    assert any("the device map places 2" in one for one in runs(accelerate, content)[0].odd)


def test_all_layers_away_from_gpus():
    (run,) = runs(accelerate, "{'model.layers.0': 'cpu', 'model.layers.1': 'disk', 'lm_head': 'cpu'}")
    assert run.layers_on_gpus.value == 0 and not run.processors


@pytest.mark.parametrize(("where", "places"), [
    ("cpu", "cpu"), ("disk", "disk"), ("cpu and disk", "cpu and disk"), ("disk and cpu", "cpu and disk"),
])  # fmt: skip
def test_the_warning_alone(where, places):
    line = f"WARNING:root:Some parameters are on the meta device device because they were offloaded to the {where}."
    assert settings(runs(accelerate, line)[0]) == {"offloaded to": places}


def test_each_type_of_the_memory_table_is_a_run():
    found = runs(accelerate, log("accelerate_estimate.txt"))
    assert [(run.weights_format.value, run.bits.value, run.size.value, run.line) for run in found] == [
        ("float32", 32, 24.5 * GIB, 7), ("float16", 16, 12.25 * GIB, 8), ("int8", 8, round(6.12 * GIB), 9),
        ("int4", 4, round(3.06 * GIB), 10)]  # fmt: skip
    assert {run.model.value for run in found} == {"example/Example-7B-chat"}
    assert facts(found[1]) == {"largest layer, bytes": 386 * 2**20, "memory for training with Adam, bytes": 49 * GIB}
    assert facts(found[2]) == {"largest layer, bytes": 193 * 2**20}


def test_the_memory_table_in_markdown():
    found = runs(accelerate, "Memory Usage for loading `bert-base-cased`:\n\n| dtype   | Largest Layer | Total Size |\n"
                 "|---|---|---|\n| float32 | 84.95 MB      | 418.18 MB  | 1.61 GB             |\n")  # fmt: skip
    assert [(run.model.value, run.size.value) for run in found] == [("bert-base-cased", round(418.18 * 2**20))]


def test_each_row_of_the_results_is_a_run():
    small, large = runs(accelerate, log("accelerate_results.md"))
    assert said(small) == {"model": ("Example-6B", 3), "weights_format": ("float16", 3), "bits": (16.0, 3)}
    assert buffers(small) == [("cuda:0", "weights", 11.5, 3)]
    assert [one.name for one in small.processors] == ["cuda:0", "cuda:1"]
    assert buffers(large) == [("cuda:0", "weights", 20.25, 4), ("cuda:1", "weights", 22.5, 4),
                              ("cpu", "weights", 24.5, 4)]  # fmt: skip
    load, token = large.timings
    assert (load.phase, load.seconds) == ("load", 78.0)
    assert (token.phase, token.seconds, token.tokens, token.steps, token.sequences) == ("decode", 10.75, 1, 1, 1)
    assert settings(small) == {"disk offload": False} and settings(large) == {"disk offload": True}
    assert large.unknown == ("bytes on the disk",)


def test_the_benchmark_script():
    run = the_run("accelerate_script.txt")
    assert buffers(run) == [("cuda:0", "weights", 20.0, 3), ("cuda:1", "weights", 22.0, 5),
                            ("cpu", "weights", 14000 / 1024, 13)]  # fmt: skip
    assert [(one.phase, one.seconds, one.tokens, one.line) for one in run.timings] == [
        ("load", 34.5, None, 2), ("request", 50.0, 20, 16), ("request", 47.5, 20, 20), ("decode", 2.44, 1, 26),
        ("decode", 2.38, 1, 28)]  # fmt: skip
    assert facts(run)["model loading: allocated on cpu, bytes"] == 14 * GIB
    assert facts(run)["model generation: peak on cuda:0, bytes"] == 1500 * 2**20


@pytest.mark.parametrize("content", [
    "| model | size | t/s |\n|---|---|---|\n| llama 7B | 3.5 GiB | 12.0 |", "I use accelerate.",
    '{"weight_map": {"model.layers.0.mlp.weight": "model-00001-of-00002.safetensors"}}',
    '{"model.layers.0.mlp.weight": {"dtype": "F16"}}',
])  # fmt: skip
def test_other_files_are_left_alone(content):
    assert not accelerate.is_it(clean(content))


def test_a_table_without_figures_is_refused():
    with pytest.raises(ReadingError, match="no line of it"):
        runs(accelerate, "Memory Usage for loading `a/b`\n| float32 | 0 MB | 0 MB | N/A |\n")
