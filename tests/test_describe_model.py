"""What `offload model` says of models of many kinds, against arithmetic from the keys of their configs alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from offload.cli import main
from offload.describe_model import AtContext, summarise, summary_of
from offload.models import Model, catalogue

SAMPLES = Path(__file__).parent / "data" / "hf_config"


def pairs(context: int, most: int = 0) -> int:
    """Pairs of a position and one that it sees, counted one by one."""
    return sum(min(one, most or one) for one in range(1, context + 1))


def at(name: str, context: int) -> tuple[int, int, int, int]:
    """FLOP of a token and of a prompt; bytes of cache and state that a token reads, and that are kept."""
    found = summary_of(str(SAMPLES / name), "bf16")
    one = next(one for one in found.at if one.context == context)
    return one.decode_flops, one.prefill_flops, one.decode_read_bytes - found.read_bytes_per_token, one.kept_bytes


L = 8192


def by_hand(matrices: int, head: int, decode: int, prefill: int, read: int, kept: int) -> tuple[int, int, int, int]:
    """matrices, head : parameters that a token goes through. decode, prefill : FLOP of attention and mixing."""
    return 2 * (matrices + head) + decode, 2 * (L * matrices + head) + prefill, read, kept


def llama():
    h, n = 4096, 32
    matrices = n * (2 * h * 4096 + 2 * h * 1024 + 3 * h * 14336)
    flop, kv = n * 4 * 32 * 128, n * 2 * 8 * 128 * 2 * L
    return by_hand(matrices, h * 128_256, flop * L, flop * L * (L + 1) // 2, kv, kv)


def mixtral():
    h, n = 4096, 32
    matrices = n * (2 * h * 4096 + 2 * h * 1024 + 2 * 3 * h * 14336 + 8 * h)
    flop, kv = n * 4 * 32 * 128, n * 2 * 8 * 128 * 2 * L
    return by_hand(matrices, h * 32_000, flop * L, flop * pairs(L), kv, kv)


def gemma():
    h, flop, kv = 5376, 4 * 32 * 128, 2 * 16 * 128 * 2
    matrices = 62 * (2 * h * 4096 + 2 * h * 2048 + 3 * h * 21504)
    read = kv * (10 * L + 52 * 1024)
    return by_hand(matrices, h * 262_208, flop * (10 * L + 52 * 1024), flop * (10 * pairs(L) + 52 * pairs(L, 1024)),
                   read, read)  # fmt: skip


def gpt_oss():
    h, flop, kv = 2880, 4 * 64 * 64, 2 * 8 * 64 * 2
    matrices = 24 * (2 * h * 4096 + 2 * h * 512 + 4 * 3 * h * 2880 + 32 * h)
    read = 12 * kv * (L + 128)
    return by_hand(matrices, h * 201_088, 12 * flop * (L + 128), 12 * flop * (pairs(L) + pairs(L, 128)), read, read)


def deepseek(index: bool):
    h, n, heads = 7168, 61, 128
    attention = h * 1536 + 1536 * heads * 192 + h * 576 + 512 * heads * 256 + heads * 128 * h
    attention += (1536 * 64 * 128 + h * 128 + h * 64) if index else 0
    matrices = n * attention + 3 * 3 * h * 18432 + 58 * (9 * 3 * h * 2048 + 256 * h)
    seen, key, score = (2048, 256, 2 * 64 * 128) if index else (L, 0, 0)
    decode = n * (seen * 2 * heads * (576 + 512) + L * score)
    prefill = n * (pairs(L, seen) * 2 * heads * (192 + 128) + (pairs(L) - pairs(seen)) * score)
    return by_hand(matrices, h * 129_280, decode, prefill, n * (seen * 1152 + L * key), n * L * (1152 + key))


def mimo():
    h, heads, matrices, decode, prefill, read = 4096, 64, 0, 0, 0, 0
    for layer in range(48):
        full = layer == 0 or (layer + 1) % 6 == 0
        kv_heads = 4 if full else 8
        matrices += h * (heads * 192 + kv_heads * (192 + 128)) + heads * 128 * h
        matrices += 3 * h * 16384 if layer == 0 else 8 * 3 * h * 2048 + 256 * h
        flop, most = 2 * heads * (192 + 128), 0 if full else 128
        decode, prefill = decode + flop * min(L, most or L), prefill + flop * pairs(L, most)
        read += kv_heads * (192 + 128) * 2 * min(L, most or L)
    return by_hand(matrices, h * 152_576, decode, prefill, read, read)


def scout():
    h, flop, kv = 5120, 48 * 4 * 40 * 128, 48 * 2 * 8 * 128 * 2 * L
    matrices = 48 * (2 * h * h + 2 * h * 1024 + 2 * 3 * h * 8192 + 16 * h)
    return by_hand(matrices, h * 202_048, flop * L, flop * pairs(L), kv, kv)  # a chunk is all of it at 8192


def jamba():
    h, inner = 4096, 8192
    mamba = h * 2 * inner + inner * 4 + inner * (256 + 32) + 256 * inner + inner * h
    matrices = 28 * mamba + 4 * (2 * h * h + 2 * h * 1024) + 16 * (2 * 3 * h * 14336 + 16 * h) + 16 * 3 * h * 14336
    mix, flop, state = 28 * 4 * inner * 16, 4 * 4 * 4096, 28 * (inner * 16 * 4 + inner * 3 * 2)
    kept = 4 * 4096 * L + state
    return by_hand(matrices, h * 65_536, mix + flop * L, L * mix + flop * pairs(L), kept, kept)


def qwen_next():
    h, keys, values = 2048, 16 * 128, 32 * 128
    full = 2 * h * 16 * 256 + 2 * h * 2 * 256 + 16 * 256 * h
    linear = h * 2 * (keys + values) + h * 64 + 4 * (2 * keys + values) + values * h
    matrices = 12 * full + 36 * linear + 48 * (10 * 3 * h * 512 + 512 * h + 3 * h * 512 + h)
    mix, flop = 36 * 7 * 32 * 128 * 128, 12 * 4 * 16 * 256
    kept = 12 * 2048 * L + 36 * (32 * 128 * 128 * 4 + (2 * keys + values) * 3 * 2)
    return by_hand(matrices, h * 151_936, mix + flop * L, L * mix + flop * pairs(L), kept, kept)


def mamba():
    h, inner, state = 4096, 8192, 128
    conv = inner + 2 * 8 * state
    matrices = 64 * (h * (inner + conv + 128) + 4 * conv + inner * h)
    mix, kept = 64 * 4 * inner * state, 64 * (inner * state * 4 + conv * 3 * 2)
    return by_hand(matrices, h * 32_768, mix, L * mix, kept, kept)


@pytest.mark.parametrize(
    "name, expected",
    [
        ("Llama-3.1-8B", llama), ("Mixtral-8x7B", mixtral), ("gemma-3-27b", gemma), ("gpt-oss-20b", gpt_oss),
        ("DeepSeek-V3", lambda: deepseek(False)), ("DeepSeek-V3.2", lambda: deepseek(True)), ("MiMo-V2-Flash", mimo),
        ("Llama-4-Scout", scout), ("Jamba-1.5-Mini", jamba), ("Qwen3-Next-80B-defaults", qwen_next),
        ("Mamba2-defaults", mamba),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_model_at_8192_positions(name, expected):
    assert at(name, L) == expected()


def test_a_prompt_is_two_flop_a_parameter_and_position_and_pairs_of_heads():
    """2 N t, and about 2 n d t^2 in each layer (each pair once: 2 n d t (t + 1)); the head for one position."""
    found, t = summarise(catalogue["llama-3.1-8b"], "bf16"), 1024
    matrices, head = 6_979_321_856, 4096 * 128_256
    assert (found.prefill_flops, found.head_flops) == (2 * matrices, 2 * head)
    assert found.decode_flops == found.prefill_flops + found.head_flops
    assert found.at[0].prefill_flops == 2 * matrices * t + 2 * head + 32 * 2 * 32 * 128 * t * (t + 1)
    assert found.at[0].decode_flops == 2 * matrices + 2 * head + 32 * 4 * 32 * 128 * t


def test_contexts_are_no_longer_than_a_model_states():
    short = Model("m", "llama", 2, 32, 4, 2, 8, 64, 100, max_positions=2048)
    assert [one.context for one in summarise(short, "bf16").at] == [1024, 2048]
    unstated = Model("m", "llama", 2, 32, 4, 2, 8, 64, 100)
    assert [one.context for one in summarise(unstated, "bf16").at] == [1024, 8192, 131_072]
    tiny = Model("m", "llama", 2, 32, 4, 2, 8, 64, 100, max_positions=1)
    kv, matrices = 2 * 2 * 2 * 8 * 2, 2 * (2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 64)
    read = 2 * (matrices + 32 * 100 + 32 + 2 * 2 * 32 + 32)  # head, one row, norms
    work = 2 * (matrices + 32 * 100) + 2 * 4 * 32
    assert summarise(tiny, "bf16").at == (AtContext(1, work, work, read + kv, kv),)


def told(capsys, *words: str) -> str:
    assert main(["model", *words]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_arithmetic_in_words(capsys):
    text = told(capsys, "deepseek-v3.2")
    assert "Decode: 74.95 GFLOP a token, and 16.99 MFLOP for each position that it attends to; windows, chunks and "\
        "picks: at most their size." in text
    assert "Prefill: 73.1 GFLOP a token, and 4.997 MFLOP for each pair of positions; the head's 1.853 GFLOP for "\
        "sampled positions alone." in text
    assert "Indexers: 999.4 kFLOP for each position besides" in text
    assert "58 x latent attention, to 2,048 positions at most, 128 heads, latent 512 + 64, indexer of 128" in text
    assert "decode: multi-token prediction of 1 layer, 13,477,385,728 parameters." in text
    text = told(capsys, str(SAMPLES / "Mamba2-defaults"))
    assert "Decode: 14.57 GFLOP a token. Prefill: 14.3 GFLOP a token; the head's" in text and "Indexers" not in text


def test_parameters_do_not_say_how_large_the_cache_is(capsys):
    text = told(capsys, "llama-2-7b", "llama-3.1-8b", "deepseek-v3")
    assert "The number of parameters does not say how large the cache is: deepseek-v3 has 99.6 times the parameters "\
        "of llama-2-7b, and at a context of 1,024 a sequence keeps 0.134 of its bytes." in text
    assert "One sequence at a context of 1,024" in text  # llama-2's 4,096 positions
    text = told(capsys, str(SAMPLES / "Mamba2-defaults"), "llama-2-7b")
    assert "1.08 times the parameters of llama-2-7b, and at a context of 1,024 a sequence keeps 0.507 of" in text
    text = told(capsys, "phi-3-mini", "llama-3.1-8b")  # 402.7 MB against 134.2 MB
    assert "llama-3.1-8b has 2.1 times the parameters of phi-3-mini, and at a context of 1,024 a sequence keeps 0.333 "\
        "of its bytes." in text
    text = told(capsys, "llama-3.1-8b", "llama-3.1-70b")
    assert "does not say" not in text and "One sequence at a context of 131,072" in text


def test_a_step_stores_latents_in_the_formats_of_latents(capsys):
    words = ["step", "deepseek-v3.2", "--on", "dgx-h100", "--compute", "gpu0..7", "--context", "5000", "--kv-format"]
    assert main([*words, "fp8-latent", "--json"]) in (0, 1)
    assert main([*words, "int8"]) == 2
    assert "a scale for each head, and a latent has no heads. Use fp8-latent" in capsys.readouterr().err
    assert main(["step", "llama-3.1-8b", "--on", "dgx-h100", "--compute", "gpu0", "--kv-format", "fp8-latent"]) == 2
    assert "heads have none. Use fp8 or fp8-head" in capsys.readouterr().err


def test_as_data(capsys):
    assert main(["model", "gemma-3-27b", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kv_bytes_per_token"] == 10 * 8192 and found["limited"] is True
    assert found["decode_flops"] - found["prefill_flops"] == found["head_flops"] == 2 * 5376 * 262_208
    assert found["attend_flops"] == found["prefill_attend_flops"] == 62 * 4 * 32 * 128 and found["index_flops"] == 0
    assert [one["context"] for one in found["at"]] == [1024, 8192, 131_072]
    assert found["at"][1]["kept_bytes"] == 8192 * (10 * L + 52 * 1024)
    assert len(found["layer_bytes"]) == 62
    assert sum(found["layer_bytes"]) < found["weight_bytes"] == 2 * found["parameters"]
    assert found["bits_per_weight"] == 16
    assert found["mtp_layers"] == 0 and [one["kind"] for one in found["stored_besides"]] == ["vision tower"]


def test_what_is_stored_besides_is_told_by_kind(capsys):
    assert main(["model", "deepseek-v3.2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["mtp_layers"] == 1 and found["stored_besides"] == [
        {"kind": "multi-token prediction", "layers": 1, "parameters": 13_477_385_728, "bytes": None}]
    one = 64 * 128 * 1536 + 128 * 7168 + 64 * 7168  # queries from the latent, a key, a weight for each head
    assert found["classes"]["indexer"]["parameters"] == 61 * one and "other" not in found["classes"]
    assert found["parameters_stored"] == found["parameters"] + 13_477_385_728
    assert main(["model", str(SAMPLES / "gemma-3-27b"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (tower,) = found["stored_besides"]
    assert (tower["kind"], tower["layers"], found["mtp_layers"]) == ("vision tower", 0, 0)
    assert tower["parameters"] == found["parameters_stored"] - found["parameters"]


def test_kv_for_a_token_is_in_16_bits_whatever_format_is_asked_for(capsys):
    assert main(["model", "llama-3.1-8b", "--kv-format", "fp8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["kv_bytes_per_token"], found["kv_format_bytes_per_token"]) == (131_072, 65_536)
    assert "65,536 B for each token" in told(capsys, "llama-3.1-8b", "--kv-format", "fp8")
