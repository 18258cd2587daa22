"""Files as large as real ones: only the header is read, whatever lies behind it."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from offload.describe_model import summary_of
from tests.weight_bytes import F16, TEXT, U32, GgufBytes, entry

LARGE = 40 * 1024**3
COUNTED = Path("/proc/self/io")
LAYERS, HIDDEN, FFN, VOCAB = 4, 512, 2048, 1000
TENSORS = {
    "token_embd.weight": (VOCAB, HIDDEN), "output.weight": (VOCAB, HIDDEN), "output_norm.weight": (HIDDEN,),
    **{f"blk.{n}.{name}.weight": shape for n in range(LAYERS) for name, shape in {
        "attn_norm": (HIDDEN,), "attn_q": (HIDDEN, HIDDEN), "attn_k": (HIDDEN // 4, HIDDEN),
        "attn_v": (HIDDEN // 4, HIDDEN), "attn_output": (HIDDEN, HIDDEN), "ffn_norm": (HIDDEN,),
        "ffn_gate": (FFN, HIDDEN), "ffn_up": (FFN, HIDDEN), "ffn_down": (HIDDEN, FFN)}.items()},
}  # fmt: skip
KEYS = {"block_count": LAYERS, "embedding_length": HIDDEN, "feed_forward_length": FFN, "context_length": 4096,
        "attention.head_count": 8, "attention.head_count_kv": 2, "vocab_size": VOCAB}  # fmt: skip


def elements(shape: tuple[int, ...]) -> int:
    return shape[0] * (shape[1] if len(shape) > 1 else 1)


def gguf(folder: Path, size: int | None) -> Path:
    one = GgufBytes()
    head = b"GGUF" + one.pack("IQQ", 3, len(TENSORS), len(KEYS) + 1)
    head += one.pair("general.architecture", TEXT, "llama")
    head += b"".join(one.pair(f"llama.{key}", U32, value) for key, value in KEYS.items())
    at = 0
    for name, shape in TENSORS.items():
        head += one.text(name) + one.pack("I", len(shape)) + one.pack(f"{len(shape)}Q", *reversed(shape))
        head += one.pack("IQ", F16, at)
        at += -(-2 * elements(shape) // 32) * 32
    path = folder / "model.gguf"
    path.write_bytes(head)
    return lengthened(path, -(-len(head) // 32) * 32 + at if size is None else size)


def safetensors(folder: Path, size: int | None) -> Path:
    (folder / "config.json").write_text(json.dumps({
        "model_type": "llama", "num_hidden_layers": LAYERS, "hidden_size": HIDDEN, "intermediate_size": FFN,
        "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": VOCAB, "tie_word_embeddings": False,
        "torch_dtype": "float16",
    }))  # fmt: skip
    names = {"token_embd": "model.embed_tokens", "output": "lm_head", "output_norm": "model.norm"}
    parts = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
             "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
             "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}  # fmt: skip
    entries, at = {}, 0
    for name, shape in TENSORS.items():
        words = name.split(".")
        full = names.get(words[0]) or f"model.layers.{words[1]}.{parts[words[2]]}"
        entries[f"{full}.weight"] = entry("F16", list(shape), at, at + 2 * elements(shape))
        at += 2 * elements(shape)
    if size is not None:  # one more tensor fills the file
        header = 8 + len(json.dumps(entries))
        entries["vision_tower.patch.weight"] = entry("U8", [size - header - 200 - at], at, size - header - 200)
        at = size - header - 200
    header = json.dumps(entries).encode()
    path = folder / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    lengthened(path, 8 + len(header) + at)
    return folder


def lengthened(path: Path, size: int) -> Path:
    with path.open("r+b") as file:
        file.truncate(size)
    return path


def bytes_read() -> int:
    return int(next(line for line in COUNTED.read_text().splitlines() if line.startswith("rchar")).split()[1])


@pytest.mark.skipif(not COUNTED.exists(), reason="the system does not count what is read")
@pytest.mark.parametrize("make", [gguf, safetensors])
def test_a_file_of_40_gib_is_read_as_a_small_one(tmp_path, make: Callable):
    found, read = [], []
    for name, size in (("small", None), ("large", LARGE)):
        folder = tmp_path / name
        folder.mkdir()
        path = make(folder, size)
        summary_of(str(path), None)  # what is imported and looked up is not counted
        before = bytes_read()
        found.append(summary_of(str(path), None))
        read.append(bytes_read() - before)
    assert max(file.stat().st_size for file in (tmp_path / "large").iterdir()) >= LARGE * 0.999
    small, large = found
    assert (large.parameters, large.weight_bytes) == (small.parameters, small.weight_bytes)
    assert large.parameters == sum(elements(shape) for shape in TENSORS.values())
    assert large.kv_bytes_per_token == LAYERS * 2 * 2 * 64 * 2
    assert max(read) < 2 * 1024**2, "a header of some kilobytes, whatever lies behind it"
