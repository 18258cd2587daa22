"""GGUF keys that their tensors contradict, and keys of architectures that are not known."""

from __future__ import annotations

import pytest

from offload.errors import ModelError
from offload.readers.gguf_model import model_of_gguf
from tests.test_model_files import OUTER, SIZES, dense, gguf_of

LAYERS = [*OUTER, *dense(0), *dense(1)]
KEYS = {"block_count": 2, **SIZES}


def read(architecture: str = "llama", *, like: str | None = None, give: dict | None = None, **keys):
    return model_of_gguf(gguf_of(architecture, LAYERS, **{**KEYS, **keys}), like=like, give=give)


@pytest.mark.parametrize("keys, note", [
    ({"vocab_size": 999}, "llama.vocab_size is 999, and token_embd.weight has 320 rows: the tensors count"),
    ({"feed_forward_length": [256, 128]},
     "llama.feed_forward_length is 128 for layer 1, whose tensors have 256 rows: the tensors count"),
])  # fmt: skip
def test_keys_that_tensors_contradict_are_told(keys, note):
    assert note in read(**keys).notes
    sound = read(vocab_size=320, feed_forward_length=[256, 256])
    assert not any("the tensors count" in one for one in sound.notes)
    name, value = next(iter(keys.items()))
    with pytest.raises(ModelError, match=f"{name} is .*: drop what is given"):
        read(give={name: value})


def test_gate_and_up_may_be_one_matrix_or_be_said_together():
    fused = [one for one in LAYERS if "ffn_gate" not in one[0]]
    fused = [(name, (512, 128) if "ffn_up" in name else shape, kind) for name, shape, kind in fused]
    assert not any("tensors count" in one for one in model_of_gguf(gguf_of("phi3", fused, **KEYS)).notes)
    assert not any("tensors count" in one for one in read("qwen", feed_forward_length=512).notes)
    assert any("tensors count" in one for one in read("qwen2", feed_forward_length=512).notes)


@pytest.mark.parametrize("keys, said", [
    ({"attention__head_count_kv": [2, 2, 2]}, "head_count_kv is a list of 3; .* each of the 2 layers"),
    ({"feed_forward_length": [256]}, "feed_forward_length is a list of 1"),
    ({"expert_count": 8, "expert_used_count": 2}, "llama.expert_count is 8, and no layer holds experts"),
    ({"attention__head_count": 0}, "layer 0 holds attn_k, and the keys say that it has no heads"),
])  # fmt: skip
def test_contradictions_are_refused(keys, said):
    with pytest.raises(ModelError, match=said):
        read(**keys)


def test_a_window_that_an_architecture_does_not_use_is_told_and_is_not_to_be_given():
    said = "attention.sliding_window is given and not used: every layer sees all positions"
    for name in ("llama", "exaone4"):  # EXAONE 4 has windows in models of 64 layers alone
        assert any(f"{name}.{said}" in note for note in read(name, attention__sliding_window=16).notes)
    with pytest.raises(ModelError, match="sliding_window is given, and GGUF files of llama have no such key"):
        read(give={"attention.sliding_window": 16})


def test_keys_of_an_architecture_that_is_not_known_are_read_or_refused():
    for key, value in {"attention__sliding_window": 16, "attention__kv_lora_rank": 64, "ssm__state_size": 16,
                       "attention__shared_kv_layers": 1, "attention__chunk_size": 8}.items():  # fmt: skip
        name = key.replace("__", ".")
        with pytest.raises(ModelError, match=f"newcomer.{name} is .*: files of llama .*--give {name}=ignore"):
            read("newcomer", like="llama", **{key: value})
        model = read("newcomer", like="llama", give={name: "ignore"}, **{key: value})
        assert f"ignored, as asked: {name}, which is {value}" in model.notes
    harmless = {"rope__freq_base": 1e6, "attention__layer_norm_rms_epsilon": 1e-5, "attention__sliding_window": 0,
                "expert_feed_forward_length": 7, "final_logit_softcapping": 30.0, "logit_scale": 2.0}  # fmt: skip
    assert read("newcomer", like="llama", **harmless).notes[-1].endswith("attend as those of llama, as asked")
    with pytest.raises(ModelError, match="newcomer.ssm.state_size is to be ignored, and the file has no such key"):
        read("newcomer", like="llama", give={"ssm.state_size": "ignore"})
    with pytest.raises(ModelError, match="key_length is read of GGUF files of newcomer, so it is not ignored"):
        read("newcomer", like="llama", give={"attention.key_length": "ignore"}, attention__key_length=32)


def test_a_window_is_not_taken_from_the_architecture_that_is_named():
    with pytest.raises(ModelError, match='"newcomer.attention.sliding_window" is missing'):
        read("newcomer", like="gemma2")
    assert [one.cache.window for one in read("newcomer", like="gemma2", attention__sliding_window=16).stack] == [16, 0]


def test_layers_that_attend_are_not_like_ones_with_a_state():
    with pytest.raises(ModelError, match="like names mamba, whose layers keep a state, and no layer of this file"):
        read("newcomer", like="mamba")
