"""Models from the files that hold their tensors: shapes and bytes are those of the file, what differs is told."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from offload import cli
from offload.describe_model import summarise, summary_of
from offload.errors import ModelError
from offload.models import layers_of, weigh
from offload.models.cache import growing_bytes
from offload.models.ranks import layer_bytes
from offload.readers import load_model
from offload.readers.ggml import BLOCKS
from offload.readers.gguf_model import ARCHITECTURES, FILE_TYPES, model_of_gguf
from offload.readers.stored import StoredTensor, StoredWeights
from tests.weight_bytes import laid_out, safetensors_bytes

DATA = Path(__file__).parent / "data" / "weights"
TINY = DATA / "tiny_llama_mixed.header.gguf"


def gguf_of(architecture: str, tensors: Iterable[tuple[str, tuple[int, ...], str]], **keys) -> StoredWeights:
    """A GGUF file as it is read: (name, shape outermost first, type); keys with __ for a dot."""
    found = []
    for name, shape, kind in tensors:
        count = 1
        for size in shape:
            count *= size
        blocks = BLOCKS[kind]
        found.append(StoredTensor(name, shape, kind, count // blocks.size * blocks.bytes, "m.gguf", 0))
    metadata = {f"{architecture}.{key.replace('__', '.')}": value for key, value in keys.items()}
    return StoredWeights("m.gguf", "gguf", tuple(found), {"general.architecture": architecture, **metadata})


def dense(layer: int, heads: int = 4, kv_heads: int = 2, head: int = 32, hidden: int = 128, ffn: int = 256,
          down: str = "q8_0") -> list[tuple]:  # fmt: skip
    named = {
        "attn_norm": (hidden,), "attn_q": (heads * head, hidden), "attn_k": (kv_heads * head, hidden),
        "attn_v": (kv_heads * head, hidden), "attn_output": (hidden, heads * head), "ffn_norm": (hidden,),
        "ffn_gate": (ffn, hidden), "ffn_up": (ffn, hidden), "ffn_down": (hidden, ffn),
    }  # fmt: skip
    return [(f"blk.{layer}.{name}.weight", shape, "f32" if "norm" in name else down if name == "ffn_down" else "q4_0")
            for name, shape in named.items()]  # fmt: skip


OUTER = [("token_embd.weight", (320, 128), "q8_0"), ("output_norm.weight", (128,), "f32")]
SIZES = {"embedding_length": 128, "attention__head_count": 4, "attention__head_count_kv": 2, "feed_forward_length": 256}


def test_the_tiny_sample_from_end_to_end(capsys):
    """Mixed types in a layer; no rule of Q4_K_M gives these bytes, the file's own tensors do."""
    model = load_model(TINY)
    weights = weigh(model, "stored")
    assert weights is model.stored is weigh(model, "Q4_K_M as stored")
    assert (model.family, model.layers, model.hidden, model.vocab, model.tied) == ("llama", 1, 256, 64, False)
    assert weights.layers == (36864 + 18432 + 26880 + 36864 + 73728 + 90112 + 107520 + 1024,)
    assert (weights.embedding, weights.embedding_row, weights.head) == (17408, 272, 32768)
    assert weights.norm == 0, "the sample has none"
    assert weights.total == 441_600 != weigh(model, "q4_k_m").total
    assert growing_bytes([layers_of(model)[0].cache], "f16") == 2 * 2 * 64 * 2
    assert cli.main(["model", str(TINY), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {key: told[key] for key in ("family", "layers", "parameters", "weight_bytes", "kv_bytes_per_token",
                                       "state_bytes_per_sequence", "layer_bytes")} == {
        "family": "llama", "layers": 1, "parameters": 622_848, "weight_bytes": 441_600, "kv_bytes_per_token": 512,
        "state_bytes_per_sequence": 0, "layer_bytes": [391_424],
    }  # fmt: skip
    assert sum(one["bytes"] for one in told["classes"].values()) == 441_600
    assert cli.main(["step", str(TINY), "--on", "desktop-4090", "--gpu-layers", "1"]) == 0
    told = capsys.readouterr().out
    assert "391.4 kB" in told and "sizes of the file's own tensors" in " ".join(told.split())


def test_a_plan_file_names_a_gguf_file(tmp_path, capsys):
    (tmp_path / "m.gguf").write_bytes(TINY.read_bytes())
    plan = tmp_path / "p.yaml"
    plan.write_text("topology: desktop-4090\nmodel: {gguf: m.gguf}\nplacement:\n  weights: {hbm0: rest}\n")
    assert cli.main(["step", str(plan), "--json"]) == 0
    assert "Q4_K_M as stored" in capsys.readouterr().out


def test_gemma_270m_averages_7_36_bits():
    """Rows of 640 divide into no block of 256, and most of the model is a Q8_0 embedding: Q4_K_M is 7.36 bits here."""
    told = json.loads((DATA / "gemma3_270m_Q4_K_M_tensors.json").read_text())
    tensors = [StoredTensor(one["name"], tuple(reversed(one["ne"])), one["type"].lower(), one["n_bytes"], "g", 0)
               for one in told["tensors"]]  # fmt: skip
    model = model_of_gguf(StoredWeights("g.gguf", "gguf", tuple(tensors), told["metadata"]))
    weights = weigh(model, "stored")
    assert (model.parameters, weights.total) == (268_098_176, 246_587_904)
    assert weights.format == "Q4_K_M as stored" and round(weights.bits_per_weight, 2) == 7.36
    assert len(set(weights.layers)) == 2, "layers that keep more bits are larger"
    assert weights.tied and weights.head == weights.embedding == 178_257_920
    assert [layer.cache.window for layer in model.stack] == [512 if (i + 1) % 6 else 0 for i in range(18)]
    assert summarise(model, "stored").kv_bytes_per_token == 3 * 2 * 256 * 2, "three layers see all positions"


def test_unequal_layers_and_heads_by_layer():
    """`head_count_kv` as a list; each layer has its own bytes."""
    tensors = [*OUTER, *dense(0), *dense(1, kv_heads=1, down="f16")]
    model = model_of_gguf(gguf_of("llama", tensors, block_count=2, **{**SIZES, "attention__head_count_kv": [2, 1]}))
    assert [layer.cache.heads for layer in model.stack] == [2, 1]
    plain = lambda size: size // 32 * 18  # noqa: E731
    narrow, matrices = 32 * 128, 2 * 128 * 128 + 2 * 256 * 128
    assert weigh(model, "stored").layers == (
        plain(matrices + 4 * narrow) + 256 * 128 // 32 * 34 + 1024, plain(matrices + 2 * narrow) + 2 * 256 * 128 + 1024)
    with pytest.raises(ModelError, match="attn_k of a layer has 32 rows, .* say 64"):
        model_of_gguf(gguf_of("llama", tensors, block_count=2, **SIZES))


def experts(layer: int, count: int = 8, width: int = 64) -> list[tuple]:
    kept = [one for one in dense(layer) if ".ffn_" not in one[0] or "norm" in one[0]]
    shapes = {"ffn_gate_exps": (count, width, 128), "ffn_up_exps": (count, width, 128),
              "ffn_down_exps": (count, 128, width)}  # fmt: skip
    return [*kept, (f"blk.{layer}.ffn_gate_inp.weight", (count, 128), "f32"),
            *((f"blk.{layer}.{name}.weight", shape, "q4_0") for name, shape in shapes.items())]  # fmt: skip


def test_experts_and_a_layer_of_multi_token_prediction():
    """One expert's bytes are its share of three tensors; a layer that predicts further tokens is no decoder layer."""
    tensors = [*OUTER, ("output.weight", (320, 128), "f16"), *dense(0), *experts(1), *experts(2),
               ("blk.2.nextn.eh_proj.weight", (128, 256), "f16")]  # fmt: skip
    stored = gguf_of("qwen3moe", tensors, block_count=3, expert_count=8, expert_used_count=2, **SIZES)
    model = model_of_gguf(stored)
    weights = weigh(model, "stored")
    one = 3 * 64 * 128 // 32 * 18
    assert model.layers == 2 and [layer.experts for layer in model.stack] == [None, (8, 2)]
    assert weights.experts == (0, one)
    router, rest = 4 * 8 * 128, 2 * (128 + 64) * 128 // 32 * 18 + 2 * 4 * 128
    assert weights.layers[1] == 8 * one + router + rest
    assert weights.total + weights.besides == stored.bytes and weights.besides > 8 * one
    assert any("multi-token prediction" in note for note in weights.notes)
    by_rank = layer_bytes(model, "stored")[1]
    assert (by_rank.experts, by_rank.expert_bytes, by_rank.split + by_rank.whole) == (8, one, router + rest)
    told = summarise(model, "stored")
    assert told.classes["routed experts"].read == 2 * one
    assert model.parameters_active == 2 * (2 * 128 + 2 * (128 + 64) * 128) + 3 * 256 * 128 + 8 * 128 + (
        2 * 3 * 64 * 128) + 128 + 320 * 128 + 128  # norms, attention; dense; router; two experts; norm, head, row
    with pytest.raises(ModelError, match="token goes through 9 of 8"):
        model_of_gguf(gguf_of("qwen3moe", tensors, block_count=3, expert_count=8, expert_used_count=9, **SIZES))


def test_latent_attention_keeps_the_latent():
    shapes = {"attn_q": (4 * 48, 128), "attn_kv_a_mqa": (64 + 16, 128), "attn_kv_a_norm": (64,),
              "attn_k_b": (4, 64, 32), "attn_v_b": (4, 32, 64), "attn_output": (128, 128)}  # fmt: skip
    tensors = [*OUTER, *((f"blk.0.{name}.weight", shape, "f16") for name, shape in shapes.items()),
               *(one for one in dense(0) if ".ffn" in one[0])]  # fmt: skip
    model = model_of_gguf(gguf_of("deepseek2", tensors, block_count=1, attention__kv_lora_rank=64,
                                  rope__dimension_count=16, **SIZES))  # fmt: skip
    layer = model.stack[0]
    assert (layer.attention, layer.cache.latent, layer.cache.rope) == ("latent", 64, 16)
    assert layer.attend == 2 * 4 * (64 + 16 + 64)
    assert (layer.expanded, layer.expand) == (2 * 4 * (48 + 32), 2 * 4 * (32 + 32) * 64), "keys of 48, values of 32"
    assert summarise(model, "stored").kv_bytes_per_token == 2 * 80
    assert sum(one.parameters for one in layer.matrices if one.role in ("attn_k_b", "attn_v_b")) == 2 * 4 * 64 * 32


@pytest.mark.parametrize("architecture, windows", [
    ("gemma2", [16, 0, 16, 0]), ("gpt-oss", [16, 0, 16, 0]), ("gemma3", [16] * 4), ("phi3", [16] * 4),
    ("llama", [0] * 4),
])  # fmt: skip
def test_windows_are_a_fact_about_the_architecture(architecture, windows):
    tensors = [*OUTER, *(one for layer in range(4) for one in dense(layer))]
    stored = gguf_of(architecture, tensors, block_count=4, attention__sliding_window=16, **SIZES)
    assert [layer.cache.window for layer in model_of_gguf(stored).stack] == windows
    if architecture == "gemma3":
        marked = replace(stored, metadata={**stored.metadata, "gemma3.attention.sliding_window_pattern":
                                           [True, False, False, True]})  # fmt: skip
        assert [layer.cache.window for layer in model_of_gguf(marked).stack] == [16, 0, 0, 16]


def test_a_window_that_is_needed_or_not_used():
    tensors = [*OUTER, *dense(0)]
    with pytest.raises(ModelError, match="gpt-oss.attention.sliding_window.* is missing"):
        model_of_gguf(gguf_of("gpt-oss", tensors, block_count=1, **SIZES))
    model = model_of_gguf(gguf_of("llama", tensors, block_count=1, attention__sliding_window=16, **SIZES))
    assert any("sliding_window is given and not used" in note for note in model.notes)


@pytest.mark.parametrize("change, said", [
    ({"block_count": 10**9}, "block_count is 1000000000, and the layers 0 are stored"),
    ({"block_count": 2}, "block_count is 2, and the layers 0 are stored"),
    ({"embedding_length": 64}, "token_embd.weight has rows of 128"),
    ({"block_count": "1"}, 'block_count is the text "1"'),
    ({"attention__head_count": 3}, "do not divide among 3 heads"),
    ({"attention__head_count_kv": [1.5]}, "must be a whole number for each"),
    ({"attention__head_count": 10**12}, "whole number from 0"),
])  # fmt: skip
def test_keys_that_contradict_the_tensors(change, said):
    with pytest.raises(ModelError) as error:
        model_of_gguf(gguf_of("llama", [*OUTER, *dense(0)], **{"block_count": 1, **SIZES, **change}))
    assert said in str(error.value) and str(error.value).startswith("m.gguf: ")


def test_the_docs_name_every_architecture():
    page = (Path(__file__).parent.parent / "docs" / "model-files.md").read_text()
    assert [name for name in ARCHITECTURES if f"`{name}`" not in page] == []


def test_file_types_are_those_of_the_gguf_library():
    gguf = pytest.importorskip("gguf")
    names = {int(one): one.name for one in gguf.LlamaFileType}
    for number, name in FILE_TYPES.items():
        assert names[number].removeprefix("MOSTLY_").removeprefix("ALL_") == name
    known = set(gguf.MODEL_ARCH_NAMES.values())
    assert set(ARCHITECTURES) <= known


def test_a_file_that_the_gguf_library_writes(tmp_path, capsys):
    gguf, numpy = pytest.importorskip("gguf"), pytest.importorskip("numpy")
    for architecture in ("qwen2", "nosuch"):
        path = tmp_path / f"{architecture}.gguf"
        writer = gguf.GGUFWriter(str(path), architecture)
        writer.add_block_count(1)
        writer.add_embedding_length(128)
        writer.add_head_count(4)
        writer.add_head_count_kv(2)
        for name, shape, _ in [*OUTER, *dense(0), ("blk.0.attn_q.bias", (128,), "f32")]:
            writer.add_tensor(name, numpy.zeros(shape, dtype=numpy.float16))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    model, reader = load_model(tmp_path / "qwen2.gguf"), gguf.GGUFReader(str(tmp_path / "qwen2.gguf"))
    assert weigh(model, "stored").total == sum(int(one.n_bytes) for one in reader.tensors)
    assert model.parameters == sum(int(one.n_elements) for one in reader.tensors)
    with pytest.raises(ModelError, match="architecture 'nosuch' are not counted"):
        load_model(tmp_path / "nosuch.gguf")
    assert cli.main(["model", str(tmp_path / "nosuch.gguf"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["family"], told["layers"], told["kv_bytes_per_token"]) == ("nosuch", 1, None)
    assert told["weight_bytes"] == weigh(model, "stored").total
    assert cli.main(["step", str(tmp_path / "nosuch.gguf"), "--on", "desktop-4090"]) == 2
    capsys.readouterr()
    like = ["--like", "gemma2", "--give", "attention.sliding_window=64"]
    assert cli.main(["model", str(tmp_path / "nosuch.gguf"), *like, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["family"], told["kv_bytes_per_token"], told["kv_window_bytes_per_token"]) == ("nosuch", 0, 256)
    plan = tmp_path / "p.yaml"
    plan.write_text("topology: desktop-4090\nplacement: {weights: {hbm0: rest}}\n"
                    "model: {gguf: nosuch.gguf, like: gemma2, give: {attention.sliding_window: 64}}\n")  # fmt: skip
    assert cli.main(["step", str(plan), "--json"]) == 0
    assumed = json.loads(capsys.readouterr().out)["assumptions"]
    assert "given, which the file lacks: attention.sliding_window is 64" in assumed


# --- safetensors ---

CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, "hidden_size": 64,
          "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 100,
          "tie_word_embeddings": False, "torch_dtype": "bfloat16"}  # fmt: skip


def shards(vocab: int = 100, layers: int = 2, head: bool = True, wide: int = 96) -> list[list[tuple]]:
    """Names and shapes as transformers stores a Llama, a list for each file."""
    files = []
    for layer in range(layers):
        at = f"model.layers.{layer}."
        files.append([
            (f"{at}self_attn.q_proj.weight", [64, 64]), (f"{at}self_attn.k_proj.weight", [32, 64]),
            (f"{at}self_attn.v_proj.weight", [32, 64]), (f"{at}self_attn.o_proj.weight", [64, 64]),
            (f"{at}mlp.gate_proj.weight", [wide, 64]), (f"{at}mlp.up_proj.weight", [wide, 64]),
            (f"{at}mlp.down_proj.weight", [64, wide]), (f"{at}input_layernorm.weight", [64]),
            (f"{at}post_attention_layernorm.weight", [64]),
        ])  # fmt: skip
    last = [("model.embed_tokens.weight", [vocab, 64]), ("model.norm.weight", [64])]
    return [*files, [*last, ("lm_head.weight", [vocab, 64])] if head else last]


def folder(path: Path, files: list[list[tuple]], config: dict | None = CONFIG) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    names = {}
    for number, tensors in enumerate(files, 1):
        name = f"model-{number:05}-of-{len(files):05}.safetensors"
        sized = []
        for tensor, shape in tensors:
            wide = tensor.endswith("e_score_correction_bias")  # in 32 bits, as published checkpoints have it
            size = 4 if wide else 2
            for one in shape:
                size *= one
            sized.append((tensor, "F32" if wide else "BF16", shape, size))
            names[tensor] = name
        (path / name).write_bytes(safetensors_bytes(laid_out(sized), bytes(sum(one[3] for one in sized))))
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    if config is not None:
        (path / "config.json").write_text(json.dumps(config))
    return path


def test_a_folder_whose_config_and_headers_agree(tmp_path):
    path = folder(tmp_path / "m", shards())
    model = load_model(path)
    weights, plain = weigh(model, "stored"), weigh(model, "bf16")
    assert weights.format == "bf16 as stored" and weights.notes == ("sizes of the file's own tensors",)
    for key in ("layers", "head", "embedding", "embedding_row", "norm", "outside", "total", "parameters", "experts"):
        assert getattr(weights, key) == getattr(plain, key), key
    assert summarise(model, "stored").classes == summarise(model, "bf16").classes
    for tp in (1, 2):
        assert layer_bytes(model, "stored", tp) == layer_bytes(model, "bf16", tp)
    assert load_model(path / "model.safetensors.index.json").stored == weights
    assert load_model(path / "config.json").stored is None


def test_a_folder_whose_config_and_headers_differ(tmp_path):
    """A vocabulary that was padded when it was stored, a feed-forward of another width: told, and bytes are real."""
    padded = load_model(folder(tmp_path / "padded", shards(vocab=128)))
    assert weigh(padded, "stored").embedding == 128 * 64 * 2
    assert weigh(padded, "stored").embedding_row == 128
    assert any("first in outside of layers" in note for note in padded.stored.notes)
    wider = load_model(folder(tmp_path / "wider", shards(wide=112)))
    described, held = layers_of(wider)[0].parameters, layers_of(wider)[0].parameters + 3 * 16 * 64
    assert any(f"layer 0: {described:,} described, {held:,} stored" in note for note in wider.stored.notes)
    assert weigh(wider, "stored").layers == (2 * held,) * 2
    for count, said in ((1, "it lacks layer 1"), (3, "it has a layer 2 too")):
        with pytest.raises(ModelError, match=said):
            load_model(folder(tmp_path / f"of{count}", shards(layers=count)))


def test_a_head_that_is_stored_or_not(tmp_path):
    without = load_model(folder(tmp_path / "without", shards(head=False)))
    assert without.tied and any("no head is stored" in note for note in without.stored.notes)
    twice = load_model(folder(tmp_path / "twice", shards(), {**CONFIG, "tie_word_embeddings": True}))
    assert twice.tied and twice.stored.besides == 100 * 64 * 2
    assert twice.stored.total == without.stored.total


def test_a_part_of_a_model_and_files_without_a_config(tmp_path, capsys):
    path = folder(tmp_path / "m", shards())
    with pytest.raises(ModelError, match="1 layers are stored, and the model has 2"):
        load_model(path / "model-00001-of-00003.safetensors")
    shard = (path / "model-00002-of-00003.safetensors")
    kept = shard.read_bytes()
    shard.unlink()
    with pytest.raises(ModelError, match="For the shape alone give .*config.json"):
        load_model(path)
    shard.write_bytes(kept)
    (path / "config.json").unlink()
    with pytest.raises(ModelError, match="no config.json lies beside"):
        load_model(path)
    told = summary_of(str(path), None)
    assert (told.layers, told.layer_bytes[1], told.roles["head"]) == (2, told.layer_bytes[0], 12_800)
    assert cli.main(["model", str(path)]) == 0
    assert "what is stored" in capsys.readouterr().out
    assert cli.main(["model", str(path), "--weights", "q8_0"]) == 2


def test_experts_of_a_tensor_each(tmp_path):
    """Mixtral as transformers stores it."""
    torch_like = pytest.importorskip("safetensors.numpy")
    numpy = pytest.importorskip("numpy")
    config = {**CONFIG, "model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "num_local_experts": 4,
              "num_experts_per_tok": 2, "torch_dtype": "float16", "num_hidden_layers": 1}  # fmt: skip
    tensors = {}
    for name, shape in [one for file in shards(layers=1) for one in file if ".mlp." not in one[0]]:
        tensors[name] = numpy.zeros(shape, numpy.float16)
    at = "model.layers.0.block_sparse_moe."
    tensors[f"{at}gate.weight"] = numpy.zeros((4, 64), numpy.float16)
    for number in range(4):
        for part, shape in (("w1", (96, 64)), ("w2", (64, 96)), ("w3", (96, 64))):
            tensors[f"{at}experts.{number}.{part}.weight"] = numpy.zeros(shape, numpy.float16)
    torch_like.save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = load_model(tmp_path)
    assert weigh(model, "stored").experts == (3 * 96 * 64 * 2,) == weigh(model, "fp16").experts
    assert weigh(model, "stored").layers == weigh(model, "fp16").layers
    assert weigh(model, "stored").compute_format == "fp16"
    assert model.stored.notes == ("sizes of the file's own tensors",)


def test_a_quantised_checkpoint_needs_no_format(tmp_path):
    """GPTQ: a projection is packed numbers, scales and zero points, and its bytes are those of all three."""
    path = tmp_path / "m"
    path.mkdir()
    sized = []
    for name, shape in [one for file in shards() for one in file]:
        out, into = shape[0], shape[-1]
        if len(shape) == 2 and ".layers." in name:
            stem = name.removesuffix("weight")
            groups = into // 32
            sized += [(f"{stem}qweight", "I32", [into // 8, out], into * out // 2),
                      (f"{stem}qzeros", "I32", [groups, out // 8], groups * out // 2),
                      (f"{stem}scales", "F16", [groups, out], 2 * groups * out)]  # fmt: skip
        else:
            sized.append((name, "F16", shape, 2 * out * (into if len(shape) == 2 else 1)))
    data = sum(one[3] for one in sized)
    (path / "model.safetensors").write_bytes(safetensors_bytes(laid_out(sized), bytes(data)))
    config = {**CONFIG, "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32}}
    (path / "config.json").write_text(json.dumps(config))
    alone = load_model(path / "config.json")
    assert (alone.stored, alone.quantised.format) == (None, "int4-g32-act")
    model = load_model(path)
    assert model.stored.total == data and model.stored.notes == ("sizes of the file's own tensors",)
    matrices = 2 * 64 * 64 + 2 * 32 * 64 + 3 * 96 * 64
    assert model.stored.layers == (matrices * (4 + (4 + 16) / 32) / 8 + 2 * 2 * 64,) * 2


def test_a_checkpoint_of_deepseeks_kind(tmp_path):
    """Latent attention, experts of a tensor each, a router's bias, and a layer behind the last, as DeepSeek has.

    All but that layer is what the family's table counts.
    """
    config = {
        "model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "num_hidden_layers": 2,
        "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 96,
        "moe_intermediate_size": 32, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1,
        "first_k_dense_replace": 1, "kv_lora_rank": 16, "q_lora_rank": 24, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4,
        "v_head_dim": 8, "vocab_size": 100, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
        "num_nextn_predict_layers": 1, "topk_method": "noaux_tc",
    }  # fmt: skip

    def ffn(at: str, width: int) -> list[tuple]:
        return [(f"{at}gate_proj.weight", [width, 64]), (f"{at}up_proj.weight", [width, 64]),
                (f"{at}down_proj.weight", [64, width])]  # fmt: skip

    def layer(number: int) -> list[tuple]:
        at = f"model.layers.{number}."
        found = [
            (f"{at}self_attn.q_a_proj.weight", [24, 64]), (f"{at}self_attn.q_a_layernorm.weight", [24]),
            (f"{at}self_attn.q_b_proj.weight", [48, 24]), (f"{at}self_attn.kv_a_proj_with_mqa.weight", [20, 64]),
            (f"{at}self_attn.kv_a_layernorm.weight", [16]), (f"{at}self_attn.kv_b_proj.weight", [64, 16]),
            (f"{at}self_attn.o_proj.weight", [64, 32]), (f"{at}input_layernorm.weight", [64]),
            (f"{at}post_attention_layernorm.weight", [64]),
        ]  # fmt: skip
        if number == 0:
            return found + ffn(f"{at}mlp.", 96)
        found += [(f"{at}mlp.gate.weight", [4, 64]), (f"{at}mlp.gate.e_score_correction_bias", [4])]
        return found + ffn(f"{at}mlp.shared_experts.", 32) + [
            one for expert in range(4) for one in ffn(f"{at}mlp.experts.{expert}.", 32)]

    further = [*layer(2), ("model.layers.2.eh_proj.weight", [64, 128]), ("model.layers.2.enorm.weight", [64]),
               ("model.layers.2.hnorm.weight", [64]), ("model.layers.2.shared_head.norm.weight", [64]),
               ("model.layers.2.shared_head.head.weight", [100, 64]), ("model.layers.2.embed_tokens.weight", [100, 64])]
    outer = [("model.embed_tokens.weight", [100, 64]), ("model.norm.weight", [64]), ("lm_head.weight", [100, 64])]
    model = load_model(folder(tmp_path / "m", [layer(0), layer(1), further, outer], config))
    stored, plain = model.stored, weigh(model, "bf16")
    assert (stored.layers, stored.experts, stored.total) == (plain.layers, plain.experts, plain.total)
    assert stored.experts == (0, 2 * 3 * 32 * 64)
    assert stored.besides == 2 * sum(one.parameters for one in model.further) + 2 * 4  # four corrections in 32 bits
    assert summarise(model, "stored").classes == summarise(model, "bf16").classes
    assert layer_bytes(model, "stored", 2) == layer_bytes(model, "bf16", 2)


def test_damaged_headers_are_refused_or_read(tmp_path):
    """Every byte of the small header in turn, changed: a model or a ModelError, never another error."""
    raw, path = TINY.read_bytes(), tmp_path / "m.gguf"
    read = 0
    for at in range(0, len(raw), 3):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ (1 << at % 8)]) + raw[at + 1 :])
        try:
            model = load_model(path)
        except ModelError:
            continue
        summarise(model, "stored")
        read += 1
    assert read > 0


def test_a_model_whose_file_states_no_format_is_shown_in_sixteen_bits(tmp_path, capsys):
    config = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128,
              "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100}  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    assert cli.main(["model", str(path), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["format"] == "bf16" and data["weight_bytes"] == 2 * data["parameters"]
    assert any("states no number format" in note for note in data["notes"])
    assert cli.main(["model", str(path), "--weights", "fp32", "--json"]) == 0
    assert not any("states no" in note for note in json.loads(capsys.readouterr().out)["notes"])
    assert cli.main(["step", str(path), "--on", "gh200"]) == 2, "where bytes decide, the format is asked for"
