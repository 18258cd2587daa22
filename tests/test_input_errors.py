"""Input that is wrong in ways that people meet: what is said, that it is said at once, and in one line."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from offload.cli import main
from offload.describe_model import class_of, describe_layer, summary_of
from offload.documents import load_plan, load_topology
from offload.errors import FileError, MissingFileError, ModelError, OffloadError
from offload.files import read_bytes
from offload.models import Matrix, catalogue, layers_of, weigh
from offload.models.architecture import CORRECTION
from offload.models.catalogue import near_names
from offload.models.families import model_of
from offload.models.lengths import parse_lengths, read_lengths
from offload.models.popularity import MOST_PAIRED, pair_inclusion, uniform_pairs
from offload.models.weights import tensor_bytes
from offload.readers import load_model
from offload.readers.model_files import Unshaped
from offload.readers.stored import StoredTensor, StoredWeights
from offload.readers.tensor_names import companion_of, layer_of, main_of, role_of, said_by
from offload.readers.weight_files import read_weights
from offload.units import many, parse_bytes
from offload.units.remarks import remarks
from tests.weight_bytes import entry, laid_out, safetensors_bytes

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT.parent / "shared" / "samples"
LLAMA = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
         "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 100, "torch_dtype": "bfloat16"}  # fmt: skip


def run(capsys, *words: str) -> tuple[int, str, str]:
    status = main(list(words))
    out, error = capsys.readouterr()
    return status, out, error


def config(path: Path, **changes) -> Path:
    path.write_text(json.dumps(LLAMA | changes))
    return path


# --- pipes, errors of reading ---


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_pipes_that_nothing_writes_to(tmp_path):
    """Each would be waited for without end: a child process with a deadline reads them all."""
    os.mkfifo(tmp_path / "config.json")
    os.mkfifo(tmp_path / "p.yaml")
    pipe, script = str(tmp_path / "p.yaml"), """
import sys
from offload.cli import main
folder, pipe = sys.argv[1:]
for words in (["model", folder], ["model", folder + "/config.json"], ["step", pipe], ["check", pipe],
              ["validate", pipe], ["step", "llama-3.1-8b", "--on", pipe],
              ["memory", "llama-3.1-8b", "--kv-budget", "10GB", "--requests", pipe]):
    print(main(words))
"""
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path), pipe], capture_output=True, text=True,
                          timeout=60, env=os.environ | {"PYTHONPATH": str(ROOT)})  # fmt: skip
    assert [line for line in done.stdout.split("\n") if line.isdigit()] == ["2"] * 7
    assert (done.stderr + done.stdout).count("a pipe that nothing writes to") == 7


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_with_a_writer_is_read(tmp_path):
    os.mkfifo(tmp_path / "lengths.txt")
    with pytest.raises(FileError, match="nothing writes to"):
        read_lengths(tmp_path / "lengths.txt")
    for late in (False, True):  # what is written before it is opened, and while it is waited for
        number, other = os.pipe()

        def write(to: int = other) -> None:
            os.write(to, b"900\n")
            os.write(to, b"4000\n")
            os.close(to)

        writer = threading.Timer(0.05 if late else 0, write)
        writer.start()
        if not late:
            writer.join()
        try:
            assert read_lengths(f"/dev/fd/{number}").values == (900, 4000)
        finally:
            writer.join()
            os.close(number)


def test_what_a_read_gives_back(tmp_path):
    (tmp_path / "a").write_bytes(b"12345")
    assert read_bytes(tmp_path / "a", 3) == b"123" and read_bytes(str(tmp_path / "a"), 9) == b"12345"
    with pytest.raises(IsADirectoryError):
        read_bytes(tmp_path, 3)


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="Linux has it")
def test_an_error_of_reading_names_the_file(capsys):
    status, _, error = run(capsys, "model", "/proc/self/mem")
    assert status == 2 and error == "offload: /proc/self/mem cannot be read: Input/output error.\n"


@pytest.mark.parametrize(
    ("make", "missing"),
    [(lambda: load_model("/nosuch"), True), (lambda: read_lengths("nosuch"), True),
     (lambda: read_weights("nosuch"), True), (lambda: load_plan("nosuch.yaml"), True),
     (lambda: load_topology("./nosuch.yaml"), True), (lambda: load_model(Path("nosuch")), True),
     (lambda: load_model(""), False), (lambda: read_weights(""), False), (lambda: load_plan(""), False),
     (lambda: read_lengths(""), False), (lambda: load_model(None), False),
     (lambda: read_weights(5), False), (lambda: load_plan(None), False), (lambda: load_topology(None), False),
     (lambda: load_model("a\0b/config.json"), False)],
)  # fmt: skip
def test_files_that_python_callers_name(make, missing):
    """An OffloadError and an OSError in one, whichever of them a caller catches."""
    with pytest.raises(FileError) as error:
        make()
    assert isinstance(error.value, OSError) and isinstance(error.value, OffloadError)
    assert isinstance(error.value, MissingFileError) is isinstance(error.value, FileNotFoundError) is missing
    assert str(error.value).isprintable() and "Errno" not in str(error.value)
    assert not missing or (error.value.errno == 2 and "nosuch" in error.value.filename)


def test_arguments_of_another_kind():
    for make in (lambda: parse_lengths([1, 2]), lambda: weigh(None, "bf16"), lambda: weigh(catalogue["opt-30b"], None)):
        with pytest.raises(ModelError):
            make()


# --- files by their first bytes ---


def gguf(path: Path) -> Path:
    from tests.weight_bytes import TEXT, GgufBytes

    write = GgufBytes()
    path.write_bytes(b"GGUF" + write.pack("IQQ", 3, 0, 1) + write.pair("general.architecture", TEXT, "llama"))
    return path


def test_blobs_without_a_name(tmp_path, capsys):
    """Ollama keeps models as sha256-...; what they are is in their first bytes."""
    blob = gguf(tmp_path / "sha256-abc")
    for words in (("model", str(blob)), ("model", f"{blob}:q8_0"), ("step", str(blob), "--on", "gh200")):
        status, _, error = run(capsys, *words)
        assert status == 2 and "holds no tensors" in error, words
    tensors = tmp_path / "sha256-def"
    tensors.write_bytes(safetensors_bytes(laid_out([("a.weight", "BF16", [2, 2], 8)]), bytes(8)))
    status, out, _ = run(capsys, "model", str(tensors))
    assert status == 0 and "no config.json lies beside the tensors" in out
    assert "prints what is stored" not in out
    assert "prints what is stored" in run(capsys, "model", str(tensors), "--weights", "bf16")[2]
    (tmp_path / "pt.bin").write_bytes(b"\x80\x02}q\x00.")
    assert "this is no config.json. It looks like a pickle" in run(capsys, "model", str(tmp_path / "pt.bin"))[2]


def plan(path: Path, model: str) -> Path:
    path.write_text(f"topology: gh200\nmodel: {model}\nplacement: {{weights: {{hbm0: rest}}, compute: local}}\n")
    return path


@pytest.mark.parametrize(
    ("model", "said"),
    [("{gguf: sha256-abc}", "holds no tensors"), ("{gguf: other}", "does not begin with GGUF"),
     ('{config: ""}', "the path is empty"), ('{gguf: ""}', "the path is empty"),
     ("{name: llama-3.1-8b, config: x}", "name and config are both given"), ("{}", 'give one of "name"'),
     ("{config: nosuch.json}", "A relative path starts from this file"),
     ("{name: llama-3.1-8b, weights: fp32}", "weights in fp32 are computed in fp32, for which gpu0 states no FLOP/s")],
)  # fmt: skip
def test_models_of_plans(tmp_path, model, said):
    gguf(tmp_path / "sha256-abc")
    (tmp_path / "other").write_text("{}")
    with pytest.raises(OffloadError) as error:
        load_plan(plan(tmp_path / "plan.yaml", model))
    assert said in str(error.value) and "line 2" in str(error.value)


def test_sound_files_are_read_once_and_bad_options_are_errors(tmp_path, capsys, monkeypatch):
    path = tmp_path / "x.safetensors"
    path.write_bytes(safetensors_bytes(laid_out([("a.weight", "BF16", [2, 2], 8)]), bytes(8)))
    reads = []
    import offload.readers.model_files as files

    monkeypatch.setattr(files, "read_weights", lambda one: reads.append(one) or read_weights(one))
    assert summary_of(str(path), None).weight_bytes == 8 and len(reads) == 1
    with pytest.raises(Unshaped) as error:
        load_model(path)
    assert error.value.stored.bytes == 8
    config(tmp_path / "config.json")
    names = ["model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"]
    shapes = {names[0]: [100, 64], names[1]: [100, 64], names[2]: [64]}
    for layer in (0, 1):
        shapes[f"model.layers.{layer}.self_attn.q_proj.weight"] = [64, 64]
    sized = [(name, "BF16", shape, 2 * math.prod(shape)) for name, shape in shapes.items()]
    path.write_bytes(safetensors_bytes(laid_out(sized), bytes(sum(one[3] for one in sized))))
    assert run(capsys, "model", str(path))[0] == 0
    status, out, error = run(capsys, "model", str(path), "--kv-format", "fp8-latent")
    assert status == 2 and out == "" and "KV format" in error


# --- headers of many tensors ---


@pytest.mark.parametrize("spelled", [(",", ":"), (", ", ": "), (" ,\n", " :\t")])
def test_usual_headers_are_read_as_walked_ones(tmp_path, spelled):
    """The same whether an entry is matched as one piece or, with its keys in another order, walked."""
    entries = {f"model.layers.{i}.mlp.up_proj.weight": entry("BF16", [i, 2], 2 * i * (i - 1), 2 * i * (i + 1))
               for i in range(1, 6)}  # fmt: skip
    entries["scalar"] = entry("F32", [], 60, 64)
    other = {name: dict(reversed(one.items())) for name, one in entries.items()}
    found = []
    for written in (entries, other):
        raw = json.dumps(written, separators=spelled).encode()
        (tmp_path / "x.safetensors").write_bytes(len(raw).to_bytes(8, "little") + raw + bytes(64))
        found.append(read_weights(tmp_path / "x.safetensors").tensors)
    assert found[0] == found[1] and len(found[0]) == 6
    assert [one.bytes for one in found[0]] == [4, 8, 12, 16, 20, 4]


@pytest.mark.parametrize(
    ("second", "said"),
    [({"a": entry("BF16", [2], 4, 9)}, "takes 4 bytes, its offsets give 5"),
     ({"a": entry("BF16", [2**40, 2**40], 4, 8)}, "more elements than any file holds"),
     ({"a": entry("BF16", [2], 8, 4)}, "ends"), ({"__metadata__": entry("BF16", [2], 4, 8)}, "in quotes"),
     ({"a": {"dtype": "BF16", "shape": [2], "data_offsets": [4, 8, 9]}}, "two whole numbers")],
)  # fmt: skip
def test_what_is_wrong_with_a_further_entry(tmp_path, second, said):
    raw = safetensors_bytes({"first": entry("BF16", [2], 0, 4)} | second, bytes(8))
    (tmp_path / "x.safetensors").write_bytes(raw)
    with pytest.raises(ModelError, match=said):
        read_weights(tmp_path / "x.safetensors")


def test_a_tensor_that_is_described_twice(tmp_path):
    one = json.dumps(entry("BF16", [2], 0, 4))
    raw = f'{{"a": {one}, "b": {one}, "b": {one}}}'.encode()
    (tmp_path / "x.safetensors").write_bytes(len(raw).to_bytes(8, "little") + raw + bytes(8))
    with pytest.raises(ModelError, match='"b" is described twice'):
        read_weights(tmp_path / "x.safetensors")
    (tmp_path / "x.safetensors.index.json").write_text('{"weight_map": {"a": "x", "b": "x", "b": "x"}}')
    with pytest.raises(ModelError, match='"b" is named twice'):
        read_weights(tmp_path / "x.safetensors.index.json")


@pytest.mark.parametrize(
    "name",
    ["model.layers.12.mlp.experts.7.up_proj.qweight", "model.layers.3.self_attn.k_proj.weight_scale_inv",
     "blk.4.ffn_down_exps.weight", "model.vision_tower.encoder.layers.3.mlp.fc1.weight", "h.5", "model.layers.7",
     "model.layers.1234567.x.weight", "transformer.h.0.attn.c_attn.bias", "model.mtp.layers.0.x.weight", "x", "",
     "model.layers.2.mlp.gate.e_score_correction_bias", "layers.3.0.layers.5.w1.weight", "0.layers.1.a.2.b",
     "model.layers.9.self_attn.q_proj.weight.quant_state.bitsandbytes__nf4"],
)  # fmt: skip
def test_what_a_name_says_at_once_and_piece_by_piece(name):
    assert said_by(name) == (layer_of(name), role_of(name), main_of(name), companion_of(name))


# --- classes, words, sizes of a report ---


def test_classes_go_by_role():
    opt = summary_of("opt-6.7b", None)
    assert "routed experts" not in opt.classes and opt.classes["positions"].parameters == 2050 * 4096
    assert opt.classes["positions"].active == 4096 and opt.classes["positions"].read == 2 * 4096
    assert class_of(Matrix("per_layer_embedding", None, 1, 8, copies=9, used=1)) == "per-layer inputs"
    assert class_of(Matrix("per_layer_gate", 0, 8, 8)) == "per-layer inputs"
    assert class_of(Matrix("ffn_up", 0, 8, 8, copies=4, used=1)) == "routed experts"


def test_corrections_of_routers_are_kept_in_32_bits():
    """Kimi K2: 60 layers of 384 experts; 46,080 bytes more than in 16 bits, in whatever format the matrices are."""
    model = catalogue["kimi-k2"]
    for format in ("bf16", "fp8-128x128", "int4-g128", "q4_k_m"):
        sizes = [size for one, size in tensor_bytes(model, format) if one.role == CORRECTION]
        assert len(sizes) == 60 and set(sizes) == {4 * 384}
    assert weigh(model, "bf16").total == 2 * model.parameters + 46_080
    assert class_of(Matrix(CORRECTION, 0, 1, 8)) == "norms and biases"
    assert sum(size for one, size in tensor_bytes(model, "bf16")) == weigh(model, "bf16").total


def test_layers_in_words():
    said = {name: {describe_layer(one) for one in layers_of(catalogue[name])}
            for name in ("deepseek-v2-lite", "deepseek-v3", "falcon-7b", "jamba-1.5-mini")}  # fmt: skip
    assert any("6 of 64 experts and a shared part as wide as 2 of them" in one for one in said["deepseek-v2-lite"])
    assert any("8 of 256 experts and a shared one" in one for one in said["deepseek-v3"])
    assert said["falcon-7b"] == {"full attention, 71 heads, 1 KV head of 64; dense feed-forward"}
    assert any(one.startswith("state space layer with a state") for one in said["jamba-1.5-mini"])
    assert not any("ssm attention" in one for one in said["jamba-1.5-mini"])
    assert (many(1, "layer"), many(0, "layer"), many(4096, "layer")) == ("1 layer", "0 layers", "4,096 layers")


def test_what_is_stored_besides_is_named(capsys):
    out = " ".join(run(capsys, "model", "gemma-3-4b")[1].split())
    assert "not run in a plain decode: vision tower, 419,816,304 parameters" in out


def test_an_index_that_counts_more_than_its_config_describes(tmp_path):
    """100 parameters more in 16 bits, and a total 20 bytes beyond."""
    config(tmp_path / "config.json")
    model = load_model(tmp_path / "config.json")
    size = weigh(model, "bf16").total
    metadata = {"total_size": size + 220, "total_parameters": model.parameters + 100}
    names = {"model.embed_tokens.weight": "a.safetensors", "vision_tower.x.weight": "a.safetensors"}
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": metadata, "weight_map": names}))
    note = load_model(tmp_path).notes[-1]
    assert f"counts {model.parameters + 100:,} parameters, 100 more than config.json describes (vision by" in note
    assert f"200 B in 16 bits, with the {size:,} B in bf16 that are counted {size + 200:,} B" in note
    assert f"{20 / (size + 220):.2g} of the index's total off" in note


@pytest.mark.skipif(not (SAMPLES / "hf_config").is_dir(), reason="only the samples in tests/data are here")
def test_molmos_total_is_added_up(tmp_path):
    """Its vision tower, 405,408,768 parameters in 16 bits, makes up the index's total to 10 kB."""
    shutil.copy(SAMPLES / "hf_config" / "Molmo7B-NF4" / "config.json", tmp_path / "config.json")
    shutil.copy(SAMPLES / "safetensors_index" / "Molmo7B-NF4.model.safetensors.index.json",
                tmp_path / "model.safetensors.index.json")  # fmt: skip
    note = load_model(tmp_path).notes[-1]
    assert "405,408,768 more than config.json describes: 810,817,536 B in 16 bits" in note
    assert "6,661,955,584 B, 1.4e-06 of the index's total off" in note


# --- options and names ---


@pytest.mark.parametrize(
    ("words", "said"),
    [(["memory", "llama-3.1-8b", "--requests", "2x9", "--blok", "16"], 'no option --blok. Did you mean "--block"?'),
     (["model", "llama-3.1-8b", "--kvformat", "f16"], 'no option --kvformat. Did you mean "--kv-format"?'),
     (["model", "llama-3.1-8b", "--zzz=1"], "no option --zzz. --help lists all"),
     (["step", "llama-3.1-8b", "more", "--on", "gh200"], "not understood: more"),
     (["step", "llama-3.1-8b", "--context", "1" + "0" * 21], "is too large; at most 999,999,999,999,999 is taken"),
     (["step", "llama-3.1-8b", "--context", "9" * 300], '"999999999999999999999999..." is too large'),
     (["memory", "llama-3.1-8b", "--kv-budget", "10GB", "--requests", "2x9", "--block", "0"], "at least 1"),
     (["model", "meta-llama/Llama-3.1-8B"], 'Did you mean "llama-3.1-8b"?'),
     (["model", "meta-llama/Llama-3.1-8B:bf16"], 'Did you mean "llama-3.1-8b"?'),
     (["model", "someone/else"], "download its files"), (["model", "-"], "/dev/stdin"),
     (["model", "llama"], 'no model "llama". Did you mean "llama-2-13b", '),
     (["memory", "llama-3.1-8b", "--kv-budget", "10GB", "--requests", "-"], "/dev/stdin"),
     (["step", "llama-3.1-8b", "--on", "."], '"." is a folder'),
     (["step", "llama-3.1-405b:fp32", "--on", "desktop-4090"], "llama-3.1-405b:fp32: weights in fp32 are computed"),
     (["model", "llama-3.1-8b:fp8-latent"], "is a format of the KV cache"), (["model", ""], 'no model ""')],
)  # fmt: skip
def test_words_that_are_wrong(capsys, words, said):
    status, out, error = run(capsys, *words)
    assert status == 2 and out == "" and said in error


@pytest.mark.parametrize("name", ["a\nb", "a\nb/config.json", "a\nb.gguf", "a\nb:q8_0"])
def test_names_with_a_line_end_stay_in_one_line(capsys, name):
    for words in (["model", name], ["step", name, "--on", "gh200"], ["step", "llama-3.1-8b", "--on", name]):
        status, _, error = run(capsys, *words)
        assert status == 2 and error.count("\n") == 1 and "a\\nb" in error, words


def test_a_plan_with_a_line_end_in_its_name(tmp_path, capsys):
    path = tmp_path / "a\nb.yaml"
    path.write_text("topology: 3\n")
    _, _, error = run(capsys, "step", str(path))
    assert "a\\nb.yaml: " in error.split("\n")[0]


def test_help_keeps_to_a_narrow_terminal(capsys, monkeypatch):
    for columns in ("40", "60"):
        monkeypatch.setenv("COLUMNS", columns)
        for verb in ([], ["step"], ["model"], ["memory"], ["topology"], ["check"], ["validate"], ["schema"]):
            status, out, _ = run(capsys, *verb, "--help")
            assert status == 0 and max(map(len, out.split("\n"))) <= int(columns)


def test_names_near_to_one_that_is_not_known():
    assert near_names("meta-llama/Meta-Llama-3.1-70B") == ["llama-3.1-70b"]
    assert near_names("Qwen/Qwen2.5-7B-Instruct") == ["qwen2.5-7b"]
    assert near_names("mixtral") == ["mixtral-8x22b", "mixtral-8x7b"] and near_names("llama-3.1-8c") == ["llama-3.1-8b"]
    assert near_names("zzzz") == [] and near_names("") == []


# --- configs ---


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"dtype": "float32"}, 'dtype is the text "float32" and torch_dtype is the text "bfloat16": drop the wrong one'),
     ({"quantization_config": []}, "quantization_config is a list; it must be a map"),
     ({"quantization_config": 0}, "it must be a map"),
     ({"compression_config": ""}, "it must be a map"), ({"text_config": []}, "text_config is a list; it must be a map"),
     ({"text_config": ""}, "text_config is the text"),
     ({"hidden_size": None, "hiden_size": 64}, 'The file has "hiden_size": is that it, misspelt?'),
     ({"model_type": None, "model-type": "llama"}, 'The file has "model-type"')],
)  # fmt: skip
def test_configs_that_contradict_themselves(changes, said):
    with pytest.raises(ModelError) as error:
        model_of(LLAMA | changes, "x")
    assert said in str(error.value)


def test_configs_that_do_not():
    plain = model_of(LLAMA, "x")
    for changes in ({"dtype": "bfloat16"}, {"dtype": "torch.bfloat16"}, {"dtype": None}, {"quantization_config": {}},
                    {"quantization_config": None}, {"text_config": {}}, {"text_config": None}):  # fmt: skip
        assert dataclasses.replace(model_of(LLAMA | changes, "x")) == plain
    nested = model_of({"model_type": "other", "dtype": "float32", "text_config": LLAMA}, "x")
    assert nested.dtype == "bfloat16"  # a decoder may differ from what surrounds it


# --- sizes in bits, pairs of experts ---


@pytest.mark.parametrize(
    ("text", "remark"),
    [("14Gb", "1.75 GB. For bytes write GB"), ("14 Gbit", "1.75 GB"), ("8 b", "1 B"), ("14GB", None), ("14 GiB", None),
     ("64 bytes", None)],
)  # fmt: skip
def test_sizes_in_bits_are_remarked_on(text, remark):
    with remarks() as heard:
        parse_bytes(text)
        parse_bytes(text)
    assert len(heard) == (remark is not None) and all(remark in one for one in heard)


def test_a_remark_goes_beside_the_answer(tmp_path, capsys):
    words = ["memory", "llama-3.1-70b", "--kv-budget", "14Gb", "--requests", "2x2000", "--json"]
    status, out, error = run(capsys, *words)
    assert status == 0 and json.loads(out) and error.startswith('offload: note: "14Gb" is read in bits')
    path = plan(tmp_path / "plan.yaml", "{name: llama-3.1-8b}")
    path.write_text(path.read_text().replace("hbm0: rest", "hbm0: 200 Gb, dram0: rest"))
    assert '"200 Gb" is read in bits, 8 to a byte: 25 GB' in run(capsys, "step", str(path))[2]


@pytest.mark.slow
def test_pairs_of_experts_that_are_alike():
    pairs = pair_inclusion([3] * 500, 8)
    assert pairs == pytest.approx(uniform_pairs(500, 8), rel=1e-12)
    assert pair_inclusion([1, 1, 1, 1.0000001], 3) == pytest.approx(uniform_pairs(4, 3), rel=1e-6)
    for make in (lambda: pair_inclusion([1] * (MOST_PAIRED + 1), 8), lambda: uniform_pairs(MOST_PAIRED + 1, 2)):
        with pytest.raises(ModelError, match="up to 1,024 experts"):
            make()


def test_tensors_that_a_token_looks_up(tmp_path):
    """Of a stored table of positions a token reads one row, as where a format's rule counts it."""
    stored = StoredWeights("x", "safetensors", (
        StoredTensor("wte.weight", (10, 4), "bf16", 80, "x", 0),
        StoredTensor("wpe.weight", (8, 4), "bf16", 64, "x", 80),
    ))  # fmt: skip
    from offload.readers.file_sizes import _parts

    model = model_of(LLAMA, "x")
    table = next(one for one, _ in _parts(model, list(stored.grouped())) if one.role == "positions")
    assert (table.parameters, table.active) == (32, 4)
