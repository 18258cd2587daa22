"""What tensors' names say, quantised tensors with what belongs to them, and sums by layer and role."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from offload.readers.ggml import BLOCKS, NOT_STORED, TYPES
from offload.readers.stored import StoredTensor, StoredWeights
from offload.readers.tensor_names import companion_of, layer_of, main_of, role_of

DATA = Path(__file__).parent / "data" / "weights"
LAYER = "model.layers.3."


def weights(*tensors: tuple[str, str, tuple[int, ...], int]) -> StoredWeights:
    """From (name, type, shape, bytes)."""
    return StoredWeights("m", "safetensors", tuple(StoredTensor(name, shape, kind, size, "f", 0)
                                                   for name, kind, shape, size in tensors))  # fmt: skip


# --- names ---

# Role: names that have it, of several families; where none says otherwise, in layer 3 of the decoder.
ROLES = {
    "attn_q": "self_attn.q_proj.weight self_attn.q_proj.qweight attn.attention.q_proj.weight mixer.q_proj.weight",
    "attn_k": "self_attn.k_proj.weight self_attn.k_proj.scales attention.wk.weight",
    "attn_v": "self_attn.v_proj.weight self_attn.v_proj.weight.absmax",
    "attn_qkv": "self_attn.qkv_proj.weight self_attention.query_key_value.weight attn.c_attn.weight att_proj.weight "
                "self_attn.W_pack.qweight attention.wqkv.weight attn.Wqkv.weight",
    "attn_output": "self_attn.o_proj.weight self_attention.dense.weight attn.c_proj.weight attention.wo.weight "
                   "self_attn.out_proj.weight attn_out.weight",
    "attn_sinks": "self_attn.sinks",
    "attn_q_a": "self_attn.q_a_proj.weight attn.wq_a.weight",
    "attn_q_b": "self_attn.q_b_proj.weight_scale_inv self_attn.q_b_proj.weight",
    "attn_kv_a": "self_attn.kv_a_proj_with_mqa.weight attn.wkv_a.weight",
    "attn_kv_b": "self_attn.kv_b_proj.weight",
    "attn_indexer": "self_attn.indexer.wq_b.weight self_attn.indexer.k_norm.weight",
    "ffn_gate": "mlp.gate_proj.weight feed_forward.w1.weight mlp.gate_proj.weight_packed",
    "ffn_up": "mlp.up_proj.weight feed_forward.w3.weight mlp.dense_h_to_4h.weight mlp.c_fc.weight fc1.weight "
              "mixer.up_proj.weight",
    "ffn_down": "mlp.down_proj.weight feed_forward.w2.weight mlp.dense_4h_to_h.weight mlp.c_proj.weight fc2.weight "
                "ff_out.weight.quant_map",
    "ffn_gate_up": "mlp.gate_up_proj.weight ff_proj.weight",
    "expert_gate": "mlp.experts.0.gate_proj.weight_packed block_sparse_moe.experts.1.w1.weight "
                   "feed_forward.experts.3.gate_proj.weight",
    "expert_up": "mlp.experts.127.up_proj.weight_scale ffn.experts.4.w3.weight",
    "expert_down": "mlp.experts.down_proj_scales mlp.experts.7.w2.weight",
    "expert_gate_up": "mlp.experts.gate_up_proj_blocks block_sparse_moe.input_linear.weight",
    "shared_gate": "mlp.shared_experts.gate_proj.weight mlp.shared_expert.gate_proj.weight "
                   "ffn.shared_experts.w1.weight",
    "shared_down": "mlp.shared_experts.down_proj.weight shared_mlp.output_linear.weight",
    "router": "mlp.gate.weight block_sparse_moe.gate.weight mlp.router.weight mlp.gate.e_score_correction_bias "
              "mlp.shared_expert_gate.weight feed_forward.router.weight block_sparse_moe.router.layer.weight",
    "norm": "input_layernorm.weight self_attn.q_norm.weight self_attn.kv_a_layernorm.weight ln_attn.bias ln_1.weight "
            "post_feedforward_layernorm.weight",
    "bias": "self_attn.q_proj.bias mlp.experts.gate_up_proj_bias",
    "ssm": "linear_attn.A_log linear_attn.conv1d.weight linear_attn.norm.weight mamba.in_proj.weight mixer.dt_bias "
           "mixer.out_proj.weight mamba.D conv.in_proj.weight",
    "kv_scale": "self_attn.k_scale self_attn.k_proj.k_scale",
    "rope": "self_attn.rotary_emb.inv_freq",
    "mtp": "eh_proj.weight shared_head.head.weight enorm.weight",
    "other": "layer_scalar self_attn.novelty.weight",
}  # fmt: skip
OUTSIDE = {
    "embedding": "model.embed_tokens.weight transformer.wte.weight tok_embeddings.weight token_embd.weight "
                 "transformer.word_embeddings.weight language_model.model.embed_tokens.weight embed.weight "
                 "backbone.embeddings.weight",
    "positions": "transformer.wpe.weight model.decoder.embed_positions.weight",
    "head": "lm_head.weight output.weight head.weight model.transformer.ff_out.weight embed_out.weight",
    "norm": "model.norm.weight output_norm.weight transformer.ln_f.bias model.embedding_norm.weight",
    "mtp": "mtp.layers.0.self_attn.q_proj.weight mtp.fc.weight",
    "vision": "vision_tower.vision_model.encoder.layers.3.mlp.fc1.weight visual.blocks.3.attn.qkv.weight "
              "v.blk.3.attn_q.weight v.patch_embd.weight",
    "projector": "multi_modal_projector.linear_1.weight model.visual.merger.mlp.0.weight mm.0.weight",
    "audio": "audio_tower.layers.3.self_attn.q_proj.weight a.blk.3.ffn_up.weight",
    "rope": "rope_freqs.weight",
}  # fmt: skip
GGUF = {
    "attn_q": "attn_q.weight", "attn_kv_a": "attn_kv_a_mqa.weight", "attn_k_b": "attn_k_b.weight",
    "attn_v_b": "attn_v_b.weight", "ffn_up": "ffn_up.weight", "router": "ffn_gate_inp.weight exp_probs_b.bias",
    "expert_gate": "ffn_gate_exps.weight ffn_gate.7.weight", "expert_down": "ffn_down_exps.weight ffn_down.0.weight",
    "expert_gate_up": "ffn_gate_up_exps.weight", "shared_up": "ffn_up_shexp.weight",
    "norm": "attn_norm.weight attn_q_norm.weight post_ffw_norm.weight", "bias": "attn_q.bias",
    "ssm": "ssm_in.weight ssm_a ssm_conv1d.bias ssm_norm.weight time_mix_key.weight shortconv.in_proj.weight",
    "mtp": "nextn.eh_proj.weight", "attn_output": "attn_output.weight", "attn_sinks": "attn_sinks.weight",
}  # fmt: skip


@pytest.mark.parametrize("role", ROLES)
def test_roles_in_layers(role):
    for name in ROLES[role].split():
        assert (role_of(LAYER + name), layer_of(LAYER + name)) == (role, 3), name


@pytest.mark.parametrize("role", OUTSIDE)
def test_roles_outside_of_the_decoders_layers(role):
    for name in OUTSIDE[role].split():
        assert (role_of(name), layer_of(name)) == (role, None), name


@pytest.mark.parametrize("role", GGUF)
def test_roles_of_gguf_names(role):
    for name in GGUF[role].split():
        assert (role_of("blk.12." + name), layer_of("blk.12." + name)) == (role, 12), name


@pytest.mark.parametrize(
    "name, layer",
    [
        ("transformer.h.11.mlp.c_fc.weight", 11),
        ("layers.0.attention.wq.weight", 0),
        ("model.language_model.layers.47.mlp.experts.3.up_proj.weight", 47),
        ("model.transformer.blocks.27.ff_norm.weight", 27),
        ("model.layers.0.mlp.experts.12.layers.weight", 0),
        ("model.norm.weight", None),
        ("layers.weight", None),
        ("layers.99999999999999999999.weight", None),
        ("", None),
    ],
)
def test_layers(name, layer):
    assert layer_of(name) == layer


def test_names_of_converters_have_the_role_of_the_name_that_they_become():
    """gguf's own table pairs Hugging Face names with GGUF names; both must mean the same, but for the names below."""
    constants = pytest.importorskip("gguf.constants")
    mapping = pytest.importorskip("gguf.tensor_mapping").TensorNameMap
    # In these the fused or moved tensor has another role than the name that holds it in a GGUF file, or families
    # disagree (RWKV calls its state's projections k_proj and v_proj; Qwen 1 and EXAONE number theirs otherwise).
    apart = {"attn_gate", "attn_qkv", "ffn_up", "ffn_gate", "nextn.embed_tokens", "post_ffw_norm"}
    checked, differ = 0, []
    for tensor, gguf_name in constants.TENSOR_NAMES.items():
        if not gguf_name.startswith("blk.") or "time_mix" in gguf_name or gguf_name.removeprefix("blk.{bid}.") in apart:
            continue
        for name in mapping.block_mappings_cfg.get(tensor, ()):
            if name.startswith(("model.layers.{bid}.", "transformer.h.{bid}.", "layers.{bid}.")):
                pair = [one.format(bid=3, xid=2) + ".weight" for one in (gguf_name, name)]
                checked += 1
                if role_of(pair[0]) != role_of(pair[1]):
                    differ.append(pair[1])
    assert checked > 250
    assert set(differ) <= {
        "model.layers.3.self_attn.linear_attn.weight",  # MiniMax's output, under a linear attention's name
        "transformer.h.3.mixer.out_proj.weight",  # Phi's attention, under Mamba's name
        "model.layers.3.block_sparse_moe.down.weight",
        "layers.3.gate.weight",
        "model.layers.3.D.weight",
        "model.layers.3.in_proj.weight",
        "model.layers.3.out_proj.weight",
        "model.layers.3.self_attn.o_norm.weight",  # Kimi's linear attention
        "model.layers.3.feed_forward.down_proj.weight",  # listed for a shared expert's up projection
    }


@pytest.mark.parametrize(
    "index, count",
    [("gemma-2b", {"norm": 37, "embedding": 1}), ("falcon-180B", {"norm": 322, "embedding": 1, "head": 1}),
     ("Devstral-Small-2507", {"norm": 81, "embedding": 1, "head": 1}), ("Phi-3-mini-variant", {"norm": 65})],
)  # fmt: skip
def test_every_tensor_of_published_models_has_a_role(index, count):
    names = json.loads((DATA / f"{index}.model.safetensors.index.json").read_text())["weight_map"]
    roles = [role_of(name) for name in names]
    assert "other" not in roles
    assert {role: roles.count(role) for role in count} == count


# --- quantised weights ---

P = LAYER + "mlp.down_proj"
IN, OUT = 512, 256  # of the matrix that each format below stores
FORMATS = {
    "gptq": ([(f"{P}.qweight", "i32", (IN // 8, OUT), IN * OUT // 2), (f"{P}.qzeros", "i32", (4, OUT // 8), 512),
              (f"{P}.scales", "f16", (4, OUT), 2048), (f"{P}.g_idx", "i32", (IN,), 4 * IN)], IN * OUT),
    "gptq 3 bits": ([(f"{P}.qweight", "i32", (IN * 3 // 32, OUT), IN * OUT * 3 // 8),
                     (f"{P}.qzeros", "i32", (4, OUT * 3 // 32), 384),
                     (f"{P}.scales", "f16", (4, OUT), 2048)], IN * OUT),
    "gptq 8 bits": ([(f"{P}.qweight", "i32", (IN // 4, OUT), IN * OUT), (f"{P}.qzeros", "i32", (4, OUT // 4), 1024),
                     (f"{P}.scales", "f16", (4, OUT), 2048)], IN * OUT),
    "gptq by its rows alone": ([(f"{P}.qweight", "i32", (IN // 8, OUT), IN * OUT // 2),
                                (f"{P}.scales", "f16", (4, OUT), 2048),
                                (f"{P}.g_idx", "i32", (IN,), 4 * IN)], IN * OUT),
    "awq": ([(f"{P}.qweight", "i32", (IN, OUT // 8), IN * OUT // 2), (f"{P}.qzeros", "i32", (4, OUT // 8), 512),
             (f"{P}.scales", "f16", (4, OUT), 2048)], IN * OUT),
    "compressed-tensors": ([(f"{P}.weight_packed", "i32", (OUT, IN // 8), IN * OUT // 2),
                            (f"{P}.weight_scale", "bf16", (OUT, 4), 2048),
                            (f"{P}.weight_zero_point", "i32", (OUT // 8, 4), 512),
                            (f"{P}.weight_shape", "i64", (2,), 16)], IN * OUT),
    "compressed-tensors in another order": ([(f"{P}.weight_packed", "i32", (OUT, IN // 8), IN * OUT // 2),
                                             (f"{P}.weight_scale", "bf16", (OUT, 4), 2048),
                                             (f"{P}.weight_g_idx", "i32", (IN,), 4 * IN)], IN * OUT),
    "compressed-tensors symmetric": ([(f"{P}.weight_packed", "i32", (OUT, IN // 8), IN * OUT // 2),
                                      (f"{P}.weight_scale", "bf16", (OUT, 4), 2048),
                                      (f"{P}.weight_shape", "i64", (2,), 16)], None),
    "nvfp4": ([(f"{P}.weight_packed", "u8", (OUT, IN // 2), IN * OUT // 2),
               (f"{P}.weight_scale", "f8_e4m3", (OUT, IN // 16), IN * OUT // 16),
               (f"{P}.weight_global_scale", "f32", (1,), 4), (f"{P}.input_global_scale", "f32", (1,), 4)], IN * OUT),
    "nvfp4 of modelopt": ([(f"{P}.weight", "u8", (OUT, IN // 2), IN * OUT // 2),
                           (f"{P}.weight_scale", "f8_e4m3", (OUT, IN // 16), IN * OUT // 16),
                           (f"{P}.weight_scale_2", "f32", (), 4), (f"{P}.input_scale", "f32", (), 4)], IN * OUT),
    "mxfp4": ([(f"{P}_blocks", "u8", (4, 64, IN // 32, 16), IN * OUT // 2),
               (f"{P}_scales", "u8", (4, 64, IN // 32), IN * OUT // 32)], IN * OUT),
    "fp8 in blocks": ([(f"{P}.weight", "f8_e4m3", (OUT, IN), IN * OUT),
                       (f"{P}.weight_scale_inv", "f32", (OUT // 128, IN // 128), 32)], IN * OUT),
    "nf4": ([(f"{P}.weight", "u8", (IN * OUT // 2, 1), IN * OUT // 2), (f"{P}.weight.absmax", "f32", (2048,), 8192),
             (f"{P}.weight.quant_map", "f32", (16,), 64),
             (f"{P}.weight.quant_state.bitsandbytes__nf4", "u8", (80,), 80)], IN * OUT),
    "nf4 twice": ([(f"{P}.weight", "u8", (IN * OUT // 2, 1), IN * OUT // 2),
                   (f"{P}.weight.absmax", "u8", (2048,), 2048),
                   (f"{P}.weight.nested_absmax", "f32", (8,), 32),
                   (f"{P}.weight.nested_quant_map", "f32", (256,), 1024),
                   (f"{P}.weight.quant_map", "f32", (16,), 64),
                   (f"{P}.weight.quant_state.bitsandbytes__nf4", "u8", (80,), 80)], IN * OUT),
    "int8": ([(f"{P}.weight", "i8", (OUT, IN), IN * OUT), (f"{P}.SCB", "f32", (OUT,), 4 * OUT),
              (f"{P}.weight_format", "u8", (), 1)], IN * OUT),
    "mlx": ([(f"{P}.weight", "u32", (OUT, IN // 8), IN * OUT // 2), (f"{P}.scales", "f16", (OUT, 8), 4096),
             (f"{P}.biases", "f16", (OUT, 8), 4096)], None),
}  # fmt: skip


@pytest.mark.parametrize("format", FORMATS)
def test_a_quantised_matrix_is_one_group(format):
    tensors, elements = FORMATS[format]
    read = weights(*tensors)
    (group,) = read.groups
    assert (group.role, group.layer, group.elements) == ("ffn_down", 3, elements)
    assert group.bytes == read.bytes == sum(tensor[3] for tensor in tensors)
    assert len(group.companions) == len(tensors) - 1
    assert read.elements == elements
    share = read.by_role()["ffn_down"]
    assert (share.tensors, share.bytes, share.elements) == (len(tensors), group.bytes, elements)
    if elements is None:
        assert read.bits_per_weight is None and group.bits_per_weight is None and share.bits_per_weight is None
        (told,) = read.grouped(packed_bits=4)
        assert told.elements == IN * OUT
    else:
        assert read.bits_per_weight == 8 * read.bytes / (IN * OUT)


def test_bits_per_weight_of_known_formats():
    bits = {name: weights(*tensors).bits_per_weight for name, (tensors, _) in FORMATS.items()}
    assert bits["awq"] == 4 + 16 / 128 + 4 / 128
    assert bits["mxfp4"] == 4.25
    assert bits["nvfp4"] == 4.5 + 8 * 8 / (IN * OUT)  # two numbers for the whole tensor
    assert bits["fp8 in blocks"] == 8 + 32 / 128**2


def test_what_only_looks_like_a_companion_stands_by_itself():
    """Without a tensor to belong to, a scale is a tensor like any other."""
    read = weights(("logit_scale", "f32", (), 4), (LAYER + "layer_scale", "f32", (8,), 32),
                   ("x.scales", "f16", (2,), 4))  # fmt: skip
    assert [(group.name, group.elements) for group in read.groups] == [
        ("logit_scale", 1), (LAYER + "layer_scale", 8), ("x.scales", 2),
    ]  # fmt: skip
    assert read.bytes == sum(group.bytes for group in read.groups) == 40


def test_two_tensors_that_would_have_one_name_are_both_counted():
    read = weights((f"{P}.weight", "bf16", (4, 4), 32), (f"{P}.qweight", "i32", (2, 4), 32))
    assert sum(group.bytes for group in read.groups) == 64
    assert len(read.groups) == 2


def test_bytes_of_groups_roles_layers_and_types_add_up_to_all_bytes():
    tensors = [tensor for found, _ in FORMATS.values() for tensor in found]
    named = [(f"{number}.{name}", *rest) for number, (name, *rest) in enumerate(tensors)]
    unique = [(f"model.layers.{number}.{name}", *rest) for number, (name, *rest) in enumerate(named)]
    read = weights(*unique, ("lm_head.weight", "bf16", (10, 10), 200))
    for shares in (read.by_role(), read.by_layer(), read.by_layer_and_role(), read.types()):
        assert sum(share.bytes for share in shares.values()) == read.bytes
        assert sum(share.tensors for share in shares.values()) == len(read.tensors)
    assert list(read.by_layer())[-1] is None
    assert list(read.by_layer())[:-1] == sorted(range(len(unique)))


def test_layers_that_predict_further_tokens_are_apart():
    """DeepSeek stores its MTP layer as one more decoder layer; a projection that no decoder layer has gives it away."""
    q = "self_attn.q_proj.weight"
    read = weights((f"model.layers.0.{q}", "bf16", (2, 2), 8), (f"model.layers.1.{q}", "bf16", (2, 2), 8),
                   ("model.layers.1.eh_proj.weight", "bf16", (2, 4), 16))  # fmt: skip
    assert read.mtp_layers == {1}
    assert {role: share.bytes for role, share in read.by_role().items()} == {"mtp": 24, "attn_q": 8}
    assert read.by_layer()[1].bytes == 24


def test_names_of_companions():
    assert main_of("a.qweight") == "a.weight" == companion_of("a.qzeros") == companion_of("a.weight_scale_inv")
    assert companion_of("a.weight") is None and companion_of("a.bias") is None and companion_of("_scale") is None
    assert companion_of("e.gate_up_proj_scales") == main_of("e.gate_up_proj_blocks") == "e.gate_up_proj"


# --- ggml's types ---


def test_sizes_of_types_are_those_of_the_gguf_library():
    gguf = pytest.importorskip("gguf")
    known = {int(kind): (kind.name.lower(), sizes) for kind, sizes in gguf.GGML_QUANT_SIZES.items()}
    q8_1 = known.pop(9)  # in ggml's own source its block has 36 bytes, here 40; it is never stored
    assert q8_1[0] == "q8_1" and 9 in NOT_STORED and 9 not in TYPES
    ours = {number: (name, (BLOCKS[name].size, BLOCKS[name].bytes)) for number, name in TYPES.items()}
    newer = {number for number in known if number > max(TYPES)}  # of a later version of the library
    assert {number: sizes for number, sizes in known.items() if number not in newer} == {
        number: ours.get(number) for number in known if number not in newer
    }
    assert {name for number, (name, _) in ours.items() if number not in known} == {
        "q4_0_4_4", "q4_0_4_8", "q4_0_8_8", "iq4_nl_4_4",
    }  # fmt: skip


@pytest.mark.parametrize(
    "name, bits",
    [("q4_0", 4.5), ("q4_1", 5.0), ("q5_0", 5.5), ("q5_1", 6.0), ("q8_0", 8.5), ("q2_k", 2.625), ("q3_k", 3.4375),
     ("q4_k", 4.5), ("q5_k", 5.5), ("q6_k", 6.5625), ("q8_k", 9.125), ("f16", 16), ("bf16", 16), ("iq1_s", 1.5625),
     ("iq1_m", 1.75), ("iq2_xxs", 2.0625), ("iq2_xs", 2.3125), ("iq2_s", 2.5625), ("iq3_xxs", 3.0625),
     ("iq3_s", 3.4375), ("iq4_nl", 4.5), ("iq4_xs", 4.25), ("tq1_0", 1.6875), ("tq2_0", 2.0625), ("mxfp4", 4.25),
     ("nvfp4", 4.5), ("q1_0", 1.125)],
)  # fmt: skip
def test_bits_of_types_as_published(name, bits):
    assert 8 * BLOCKS[name].bytes / BLOCKS[name].size == bits
