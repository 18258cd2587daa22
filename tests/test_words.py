"""A question in words: a model, a server and options, without a file."""

from __future__ import annotations

import json

import pytest

from offload import cli, load_topology
from offload.capacity import missing
from offload.compiler import compile_step
from offload.designs.placement import portions_in_layers
from offload.documents import load_plan
from offload.errors import OffloadError, PlanError
from offload.models import weigh
from offload.plan import Overlap
from offload.sweeps import Words, sweep
from offload.words import plan_from_words

MODEL = "llama-3.1-70b:q4_k_m"
SMALL = {
    "model_type": "llama", "num_hidden_layers": 6, "hidden_size": 512, "intermediate_size": 1024,
    "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 3000, "tie_word_embeddings": False,
}  # fmt: skip
APU = """\
title: one memory for both
memories: {mem0: {kind: unified, capacity: 100 GB, rate: 200 GB/s}}
processors: {gpu0: {kind: gpu, memory: mem0}, cpu0: {kind: cpu, memory: mem0}}
"""


def placed(plan) -> dict[str, int]:
    model, _, placement, weights, _ = plan.origin
    return dict(portions_in_layers(placement, weigh(model, weights).layers))


def answer(capsys, *words: str) -> dict:
    assert cli.main(["step", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def said(capsys, *words: str) -> str:
    assert cli.main(["step", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and "Traceback" not in captured.err and "internal" not in captured.err
    return captured.err


def test_without_gpu_layers_as_many_as_fit():
    plan, server = plan_from_words(MODEL, "desktop-4090")
    assert placed(plan) == {"hbm0": 44, "dram0": 36}
    assert not missing(compile_step(server, plan))
    one_more, _ = plan_from_words(MODEL, "desktop-4090", gpu_layers=45)
    assert set(missing(compile_step(server, one_more))) == {"hbm0"}


def test_what_takes_memory_leaves_fewer_layers():
    layers = {
        name: placed(plan_from_words(MODEL, "desktop-4090", **options)[0])["hbm0"]
        for name, options in {
            "plain": {}, "long": {"context": 32768}, "many": {"batch": 8}, "thin cache": {"kv_format": "q8_0"},
            "cache in dram": {"kv": "dram0"}, "no reserve": {"reserve": 0}, "fat": {"reserve": 10 * 10**9},
            "streamed": {"compute": "gpu0"},
        }.items()
    }  # fmt: skip
    assert layers["long"] < layers["plain"] == 44 < layers["no reserve"]
    assert layers["many"] < 44 <= layers["thin cache"] and layers["fat"] < 44 < layers["cache in dram"]
    assert layers["streamed"] < 44, "all of the cache and the buffers are there"


def test_the_same_as_a_file(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(
        "topology: desktop-4090\nmodel: {name: llama-3.1-70b, weights: q4_k_m, kv: f16}\n"
        "workload: {batch: 2, context: 1000}\noverlap: {buffers: 3}\n"
        "placement: {weights: {hbm0: 30 layers, dram0: rest}, compute: gpu0, kv: dram0, reserve: 2 GB}\n"
    )
    written, _ = load_plan(path)
    plan, _ = plan_from_words(MODEL, "desktop-4090", gpu_layers=30, batch=2, context=1000, compute="gpu0", kv="dram0",
                              reserve=2 * 10**9, overlap=Overlap("buffers", 3))  # fmt: skip
    assert (plan.blocks, plan.held, plan.overlap, dict(plan.tensors)) == (
        written.blocks, written.held, written.overlap, dict(written.tensors),
    )  # fmt: skip


def test_every_option_from_the_command_line(capsys):
    found = answer(capsys, "llama-3.1-8b", "--on", "desktop-4090", "--gpu-layers", "20", "--compute", "gpu0", "--kv",
                   "dram0", "--batch", "2", "--context", "1000", "--weights", "q8_0", "--kv-format", "q8_0",
                   "--reserve", "3 GB", "--buffers", "3")  # fmt: skip
    work = found["workload"]
    assert (work["batch"], work["context"], work["weights"], work["kv"]) == (2, 1000, "q8_0", "q8_0")
    used = {row["name"]: row["parts"] for row in found["memory"]}
    assert used["hbm0"]["runtime reserve"] == 3 * 10**9
    assert used["dram0"]["KV cache"] == 32 * 2 * 1000 * 2 * 8 * (128 // 32 * 34)
    assert used["hbm0"]["buffers"] > 0 and "3" in str(work["overlap"])


def test_all_on_the_cpu(capsys):
    plan, server = plan_from_words(MODEL, "desktop-4090", compute="cpu0")
    assert placed(plan) == {"dram0": 80}, "nothing is kept at a GPU that does not work"
    assert "hbm0" not in compile_step(server, plan).occupied
    asked, _ = plan_from_words(MODEL, "desktop-4090", compute="cpu0", gpu_layers=5)
    assert placed(asked) == {"hbm0": 5, "dram0": 75}, "but where it is asked for"


def test_one_memory_for_both(tmp_path):
    (tmp_path / "apu.yaml").write_text(APU)
    apu = str(tmp_path / "apu.yaml")
    plan, server = plan_from_words("llama-3.1-8b:q4_k_m", apu)
    assert placed(plan) == {"mem0": 32} and plan.origin[2].compute == "gpu0"
    assert plan_from_words("llama-3.1-8b:q4_k_m", apu, gpu_layers=32)[0].blocks == plan.blocks
    with pytest.raises(PlanError, match="one memory for its GPU and CPU .*Drop --gpu-layers"):
        plan_from_words("llama-3.1-8b:q4_k_m", apu, gpu_layers=20)
    assert plan_from_words("llama-3.1-8b:q4_k_m", apu, compute="cpu0")[0].origin[2].compute == "cpu0"


@pytest.mark.parametrize(("kind", "count"), [("cpu", "no GPU;.*--compute p0..1.*or write a plan file"),
                                            ("gpu", "2 GPUs. Say which: --compute p0, or .*--compute p0..1")])
def test_a_server_without_exactly_one_gpu(tmp_path, kind, count):
    more = f"  d0: {{kind: dram, capacity: 100 GB, rate: 50 GB/s}}\nprocessors: {{p0: {{kind: {kind}, memory: d0}}, "
    (tmp_path / "box.yaml").write_text(f"title: box\nmemories:\n{more}p1: {{kind: {kind}, memory: d0}}}}\n")
    with pytest.raises(PlanError, match=count):
        plan_from_words(MODEL, str(tmp_path / "box.yaml"))


def test_a_config_json(tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    path = str(tmp_path / "config.json")
    assert "--weights bf16" in said(capsys, path, "--on", "gh200"), "it states no format"
    for target in (path, str(tmp_path)):
        plan, _ = plan_from_words(target, "gh200", weights="q8_0")
        assert placed(plan) == {"hbm0": 6, "dram0": 0} and plan.workload["weights"] == "q8_0"
    (tmp_path / "config.json").write_text(json.dumps(SMALL | {"torch_dtype": "float16"}))
    assert plan_from_words(path, "gh200")[0].workload["weights"] == "fp16"


def test_weights_may_be_said_twice_but_not_in_two_ways(capsys):
    assert plan_from_words(MODEL, "gh200", weights="Q4_K_M")[0].workload["weights"] == "q4_k_m"
    text = said(capsys, MODEL, "--on", "gh200", "--weights", "q8_0")
    assert "already says q4_k_m" in text and '"q8_0"' in text and "drop one" in text


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["llama-3.1-71b", "--on", "gh200"], ['"llama-3.1-71b"', 'Did you mean "llama-3.1-70b"?']),
        (["llama-3.1-70b:q5", "--on", "gh200"], ["q5", "q4_k_m"]),
        (["", "--on", "gh200"], ['no model ""']),
        ([MODEL], ["--on is missing", "desktop-4090", "gh200"]),
        ([MODEL, "--on", "desktop-409"], ['"desktop-409"', 'Did you mean "desktop-4090"?']),
        ([MODEL, "--on", "./none.yaml"], ["none.yaml", "no such file"]),
        ([MODEL, "--on", "gh200", "--gpu-layers", "81"], ["--gpu-layers 81", "80 layers"]),
        ([MODEL, "--on", "gh200", "--gpu-layers", "-1"], ["--gpu-layers", "-1"]),
        ([MODEL, "--on", "gh200", "--compute", "hbm0"], ["--compute", '"hbm0"', "cpu0, gpu0, local"]),
        ([MODEL, "--on", "gh200", "--compute", "GPU0"], ["--compute", 'Did you mean "gpu0"?']),
        ([MODEL, "--on", "gh200", "--kv", "hbm"], ["--kv", 'Did you mean "hbm0"?']),
        ([MODEL, "--on", "gh200", "--kv", "gpu0"], ["--kv", "its memory is hbm0"]),
        ([MODEL, "--on", "gh200", "--batch", "0"], ["--batch", "at least 1"]),
        ([MODEL, "--on", "gh200", "--batch", "1e3"], ["--batch", "whole number"]),
        ([MODEL, "--on", "gh200", "--context", "4k"], ["--context", "whole number"]),
        (["llama-3.1-70b", "--on", "gh200", "--weights", "q4"], ['"q4"', "q4_k_m"]),
        ([MODEL, "--on", "gh200", "--kv-format", "f15"], ['"f15"', "f16"]),
        ([MODEL, "--on", "gh200", "--reserve", "2"], ['"2" has no unit', '"2 GB"']),
        ([MODEL, "--on", "gh200", "--reserve", "1e30 GB"], ["too large"]),
        ([MODEL, "--on", "gh200", "--buffers", "0"], ["--buffers", "none or full"]),
        (["none/config.json", "--on", "gh200"], ["none/config.json", "No such file"]),
        (["m.gguf/x", "--on", "gh200"], ["m.gguf/x"]),
    ],
)
def test_wrong_words(capsys, words, parts):
    text = said(capsys, *words)
    for part in parts:
        assert part in text


def test_a_batch_beyond_all_does_not_fit(capsys):
    assert cli.main(["step", MODEL, "--on", "gh200", "--batch", "999999999999999"]) == 1
    assert "hbm0" in capsys.readouterr().out


def test_unknown_names_raise_one_kind_of_error():
    for words in (("none", "gh200"), (MODEL, "none"), (MODEL, "./none.yaml")):
        with pytest.raises(OffloadError):
            plan_from_words(*words)
    assert load_topology("gh200").name == plan_from_words(MODEL, "gh200", gpu_layers=3)[1].name


def test_one_memory_runs_on_the_gpu_and_says_so(capsys):
    plan, _ = plan_from_words("llama-3.1-8b:q8_0", "dgx-spark")
    assert any("all layers run on gpu0, which shares unified0 with cpu0" in note for note in plan.assumptions)
    chosen, _ = plan_from_words("llama-3.1-8b:q8_0", "dgx-spark", compute="cpu0")
    assert not any("all layers run on" in note for note in chosen.assumptions)
    words = ("llama-3.1-8b:q8_0", "--on", "dgx-spark", "--compute", "local")
    assert "write `--compute gpu0` or `--compute cpu0`" in said(capsys, *words)


@pytest.mark.parametrize(
    "words, parts",
    [
        (["--gpu-layers", "81"], ["--gpu-layers 81", "has 80 layers", "--gpu-layers 80"]),
        (["--compute", "gpu1"], ["--compute: ", '"gpu0"']),
        (["--reserve", "1.5"], ["--reserve: ", '"1.5 GB"']),
        (["--kv-format", "f17"], ["--kv-format: ", '"f16"']),
        (["--weights", "f17"], ["--weights: ", "Common ones: bf16"]),
        (["--batch", "1e9"], ["--batch", "Write 1000000000"]),
        (["--batch", "1,000"], ["--batch", "Write 1000"]),
        (["--context", "4k"], ["--context", "Write 4000"]),
        (["--kv", ""], ["--kv is empty"]),
        (["--compute", " "], ["--compute is empty"]),
        (["--weights", ""], ["--weights is empty"]),
        (["--kv-format", ""], ["--kv-format is empty"]),
    ],
)
def test_a_mistake_names_the_option_that_was_written(capsys, words, parts):
    found = said(capsys, MODEL, "--on", "desktop-4090", *words)
    assert all(part in found for part in parts), found


def test_a_target_is_looked_at_without_a_server_too(capsys):
    found = said(capsys, "llama-3.1-70c:q4_k_m")
    assert 'Did you mean "llama-3.1-70b"' in found and "--on is missing" in found
    assert said(capsys, MODEL).count("offload: ") == 1


def test_a_config_by_any_name_and_with_a_format(tmp_path, monkeypatch, capsys):
    (tmp_path / "d").mkdir()
    for name in ("d/config.json", "mine.cfg", "my.json"):
        (tmp_path / name).write_text(json.dumps(SMALL | {"torch_dtype": "bfloat16"}))
    monkeypatch.chdir(tmp_path)
    for target, format_ in (("d/config.json:q8_0", "q8_0"), ("d:q8_0", "q8_0"), ("mine.cfg:q8_0", "q8_0"),
                            ("./mine.cfg", "bf16"), ("./my.json", "bf16"), ("./d/config.json", "bf16")):  # fmt: skip
        assert answer(capsys, target, "--on", "desktop-4090")["workload"]["weights"] == format_
    assert '"d/config.json:q9": no weight format' in said(capsys, "d/config.json:q9", "--on", "desktop-4090")
    (tmp_path / "hf_quant_config.json").write_text('{"producer": {}}')
    for target in ("hf_quant_config.json", "./hf_quant_config.json"):
        assert "Give the config.json beside it" in said(capsys, target, "--on", "desktop-4090")


def test_a_number_format_that_is_no_weight_format_is_shown(tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps(SMALL | {"torch_dtype": "float64"}))
    found = said(capsys, str(tmp_path), "--on", "desktop-4090")
    assert 'states "float64"' in found and "`weights: bf16`" in found and "--weights bf16" in found


@pytest.mark.few
@pytest.mark.parametrize(
    "compute, memory", [("cpu0", "dram0"), ("cpu1", "dram1"), ("cpu0..1", "dram0..1"), ("cpu0,cpu1", "dram0..1")]
)
def test_cpus_of_a_server_with_several_gpus_work_where_they_are(compute, memory, capsys):
    """No GPU need be named for them: none takes part."""
    told = answer(capsys, "llama-3.1-8b", "--on", "dgx-h100", "--compute", compute)
    layers = [one for one in told["moves"] if one["what"] == "layer weights"]
    assert [(one["from"], one["to"]) for one in layers] == [(memory, None)]
    assert layers[0]["bytes"] == 32 * 436_224_000
    assert answer(capsys, "llama-3.1-8b", "--on", "dgx-h100", "--compute", compute, "--gpu-layers", "0") == told


def test_a_chosen_cpu_of_two_sockets_reads_its_own_memory(capsys, tmp_path):
    path = tmp_path / "two.yaml"
    path.write_text("""\
switches: {s0..1: {kind: socket}}
memories: {hbm0: {kind: hbm, capacity: 24 GB, rate: 900 GB/s}, dram0..1: {kind: dram, at: s0..1, rate: 100 GB/s}}
processors: {gpu0: {kind: gpu, memory: hbm0}, cpu0..1: {kind: cpu, memory: dram0..1}}
links: {pcie0: {between: [s0, hbm0], pcie: 4 x16}, upi: {between: [s0, s1], kind: upi, rate: 20 GB/s}}
""", encoding="utf-8")  # fmt: skip
    told = answer(capsys, "llama-3.1-8b", "--on", str(path), "--compute", "cpu1")
    assert {one["from"] for one in told["moves"] if one["what"] == "layer weights"} == {"dram1"}


def test_layers_at_a_gpu_that_nobody_named(capsys):
    text = said(capsys, "llama-3.1-8b", "--on", "dgx-h100", "--compute", "cpu0", "--gpu-layers", "3")
    assert "--gpu-layers 3: in which GPU's memory?" in text and "8 GPUs" in text
    text = said(capsys, "llama-3.1-8b", "--on", "dgx-h100", "--compute", "gpu0,cpu0")
    assert "--compute: gpu0,cpu0 are GPUs and CPUs" in text


@pytest.mark.parametrize("memory", ["hbm0", "hbm0..3"])
def test_a_kv_cache_with_some_of_the_ranks_only(memory, capsys):
    text = said(capsys, "llama-3.1-8b", "--on", "dgx-h100", "--compute", "gpu0..7", "--kv", memory)
    assert f"--kv: {memory} is a part of the memory of gpu0..7" in text and "Write hbm0..7" in text
    assert "fetch" not in text


def test_weights_with_some_of_the_ranks_only(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text("""\
topology: dgx-h100
model: {name: llama-3.1-8b}
workload: {phase: decode}
placement: {weights: {hbm0: 20 layers, dram0: rest}, compute: gpu0..7}
""", encoding="utf-8")  # fmt: skip
    with pytest.raises(OffloadError, match="line 4.*hbm0 is a part of the memory of gpu0..7"):
        load_plan(path)


def test_no_context_before_a_prompt_may_be_said(capsys):
    first = answer(capsys, "llama-3.1-8b", "--on", "desktop-4090", "--prompt", "20", "--context", "0")
    assert first == answer(capsys, "llama-3.1-8b", "--on", "desktop-4090", "--prompt", "20")
    assert "at least 1" in said(capsys, "llama-3.1-8b", "--on", "desktop-4090", "--context", "0")


def test_settings_of_words_may_be_texts():
    _, server = plan_from_words("llama-3.1-8b:q4_k_m", "desktop-4090", settings=["pcie0.rate=10 GB/s"])
    assert server.links["pcie0"].forward.peak == 10e9
    for wrong in ("pcie0.rate=10 GB/s", [3], ["batch"]):
        with pytest.raises(OffloadError, match="PATH=VALUE|are a list"):
            plan_from_words("llama-3.1-8b:q4_k_m", "desktop-4090", settings=wrong)


@pytest.mark.parametrize("option", ["gpu-layers", "kv-format", "cpu-experts"])
def test_a_swept_word_in_the_manner_of_python_is_told_as_its_option(option):
    with pytest.raises(OffloadError, match=f'Did you mean "{option}"'):
        sweep(Words("llama-3.1-8b:q4_k_m", "desktop-4090"), [f"{option.replace('-', '_')}=1,2"])
