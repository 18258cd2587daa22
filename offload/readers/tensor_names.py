"""What a tensor's name says: its layer, its role, and the tensor that it belongs to (as scales to their weights).

Names of Hugging Face checkpoints, of Mistral's and DeepSeek's own, and of GGUF files. A role is a fact about a name,
read by rules in order; a name that no rule knows has the role "other", and is counted like any other.
"""

from __future__ import annotations

import re
from functools import lru_cache

# A model has a few dozen names but for the numbers of layers and experts; what names say is found once for each.
NUMBER = re.compile(r"(?<=\.)(\d+)(?=\.)")  # in a group, so that `split` keeps it


def _plain(name: str) -> str:
    return NUMBER.sub("0", name)


# --- quantised weights: packed numbers take the tensor's name, companions belong to it ---

PACKED = (
    (re.compile(r"\.(?:qweight|q_weight|W_q|trellis|codes)$"), ".weight"),
    (re.compile(r"(?:_packed|_blocks)$"), ""),
)
COMPANIONS = (
    # GPTQ, AWQ, EXL2 and EXL3, AQLM, HQQ, MLX; scales of activations; DeepSeek's own files.
    (re.compile(r"\.(?:qzeros|scales|biases|g_idx|perm|q_scale|q_scale_max|q_groups|q_invperm|q_perm|suh|svh|mcg|mul1"
                r"|codebooks|zero|SCB|weight_format|scale|(?:in|out)put_(?:global_)?scale|input_zero_point"
                r"|(?:in|out)put_amax)$"), ".weight"),
    # bitsandbytes
    (re.compile(r"(?<=\.weight)\.(?:absmax|quant_map|nested_absmax|nested_quant_map|quant_state\.\w+)$"), ""),
    # compressed-tensors, ModelOpt, FP8 in blocks, MXFP4 as gpt-oss stores it
    (re.compile(r"_(?:scales?|scale_inv|scale_2|scale_ub|global_scale|zero_point|shape|g_idx|amax)$"), ""),
)  # fmt: skip


def main_of(name: str) -> str:
    """The name that a tensor would have unquantised: "x.qweight" is "x.weight"."""
    return _unquantised(name, PACKED) or name


def companion_of(name: str) -> str | None:
    """The unquantised name of the tensor that this one would belong to, if it is there; None for a tensor by itself."""
    return _unquantised(name, COMPANIONS)


def _unquantised(name: str, kinds: tuple[tuple[re.Pattern[str], str], ...]) -> str | None:
    ending = _ending(_plain(name), kinds)
    return None if ending is None else name[: -ending[0]] + ending[1]


@lru_cache(maxsize=1 << 12)
def _ending(name: str, kinds: tuple[tuple[re.Pattern[str], str], ...]) -> tuple[int, str] | None:
    """How many letters at a name's end one of the kinds takes away, and what takes their place."""
    for pattern, end in kinds:
        if (match := pattern.search(name)) is not None and match.start():
            return len(name) - match.start(), end
    return None


# --- layers ---

LONGEST_LAYER = 6  # digits
LAYER = re.compile(rf"(?:^|\.)(?:layers|layer|h|blocks|block|blk|decoder_layer)\.(\d{{1,{LONGEST_LAYER}}})(?:\.|$)")


def layer_of(name: str) -> int | None:
    """The decoder layer of a tensor, from 0; None outside of layers and in vision, audio and separate MTP parts."""
    if _tower(_plain(name)) is not None:
        return None
    match = LAYER.search(name)
    return int(match[1]) if match else None


# --- roles ---

# Parts of a model beside its decoder, by what stands anywhere in a name.
TOWERS = (
    ("mtp", r"(?:^|\.)mtp(?:[._]|\d)"),
    ("projector", r"(?:^|\.)(?:\w*projector|visual\.(?:merger|deepstack_merger_list)|mm|resampler|aligner|connector"
                  r"|embed_(?:vision|audio)|\w*(?:patch_merger|img_projection|audio_projection)|mlp1"
                  r"|vision_(?:language_)?adapter|merger|linear_proj|mlp_AR|v\.deepstack|a\.proj_\w+)\."),
    ("vision", r"(?:^|\.)(?:vision|visual|vit|vpm|vision_\w+|image_\w+|img_processor|siglip\w*|sam_model"
               r"|view_seperator|vis_\w+)(?:\.|$)|^v\."),
    ("audio", r"(?:^|\.)(?:audio|audio_\w+|speech_\w+|conformer)\.|^a\."),
)  # fmt: skip
PARTS = (  # of a feed-forward, dense or an expert's, by the last names; the first that matches
    ("gate_up", r"gate_up_proj|gate_up|ffn_gate_up\w*|ff_proj|w13|input_linear|gate_and_up"),
    ("down", r"down_proj|ffn_down\w*|w2|fc2|c_proj|dense_4h_to_h|fc_out|ff_out|output_linear|wo|lin2"
             r"|mlp\.Wo|experts\.down|down_layer|mlp\.linear_fc2|mlp\.output\.dense|output\.dense"
             r"|DenseReluDense\.wo|proj_2|mlp\.dense_2"),
    ("gate", r"gate_proj|ffn_gate\w*|w1|wi_0|linear_1|gate|c_fc_0"),
    ("up", r"up_proj|ffn_up\w*|w3|v1|fc1|c_fc|dense_h_to_4h|fc_in|wi|wi_1|linear_v|lin1|intermediate\.dense|proj_1"
           r"|c_fc_1|mlp\.Wi|experts\.up|mlp\.linear_fc1"),
)  # fmt: skip
PART = tuple((part, re.compile(rf"(?:^|\.)(?:{names})(?:\.\d+)?(?:\.(?:weight|bias|linear))*$"))
             for part, names in PARTS)
KV_SCALE = r"\.(?:[kqv]|kv|[kv]_cache|prob)_scale$"  # of the KV cache; it belongs to no weight
RULES = tuple((role, re.compile(pattern)) for role, pattern in (
    ("mtp", r"\.nextn\.|(?:^|\.)(?:eh_proj|enorm|hnorm|shared_head)(?:\.|$)"),
    ("rope", r"inv_freq|rope[._]freqs|rope_factors|rotary_emb|rot_embd"),
    ("kv_scale", KV_SCALE),
    ("attn_indexer", r"(?:\.|_)indexer[._]|(?:\.|_)indexer$"),
    ("attn_sinks", r"(?:^|[._])sinks?(?:_bias)?(?:\.|$)"),
    ("ssm", r"(?:^|\.)(?:ssm_?\w*|time_mix\w*|channel_mix\w*|linear_attn|mamba|mamba_\w+|delta_net|rg_lru|short_?conv"
            r"|conv|feed_forward\.(?:key|receptance|value)|attention\.(?:time_\w+|receptance|gate|ln_x)"
            r"|temporal_block\.(?:linear_[xy]|conv_1d|rg_lru)|attention\.(?:w0|a0))(?:\.|$)"
            r"|(?:^|[._])(?:A_log|dt_bias|dt_proj|conv1d|x_proj|f_[ab]_proj|g_[ab]_proj|[qkv]_conv1d)(?:\.|$)"
            r"|\.b_proj(?:\.|$)"
            r"|\.mixer\.(?:in_proj|out_proj|norm|D|A_log|dt|bcdt_proj|(?:[bBcC]|dt)_norm)(?:\.|$)|\.D$"
            r"|\.(?:self_attn|attention)\.(?:time_\w+|[avwg]\d|[krx]_\w)(?:\.|$)"
            r"|\.feed_forward\.(?:time_\w+|x_k)(?:\.|$)"),
    ("router", r"(?:^|\.)(?:ffn_gate_inp\w*|exp_probs_b|\w*_router|router|router_bias|shared_expert_gate"
               r"|e_score_correction|e_score_correction_bias|expert_bias|moe_statics)(?:\.|$)"
               r"|(?:mlp|block_sparse_moe|feed_forward|moe|ffn|mixer)\.gate(?:\.wg)?\.(?:weight|bias|tid2eid)$"),
    ("norm", r"(?i:norm)[^.]*(?:\.(?:weight|bias))*$|(?:^|\.)(?:ln_?\w*|\w+_ln)(?:\.|$)"),
    ("bias", r"(?:[._]bias|\.b)$"),
    ("shared", r"shared?_experts?\.|_shexp\b|shared_mlp\."),
    ("expert", r"(?:^|\.)(?:experts?|\w+_experts)\.|_(?:ch)?exps\b|ffn_(?:gate|up|down)\.\d+\."
               r"|block_sparse_moe\.(?:in|out)put_linear|\.moe\.(?:gate_proj|up_proj|down_proj|linear\w*)\."),
    ("positions", r"(?:^|[._])(?:wpe|position_embd|embed_positions|position_embeddings?|wpe)(?:\.|$)"),
    ("embedding", r"(?:^|[._])(?:embed_tokens\w*|token_embd|per_layer_token_embd|tok_embeddings|word_embeddings|wte"
                  r"|embed_in|embeddings?|new_embedding|token_embeddings|token_types|token_type_embeddings|shared"
                  r"|in_out_embed|embed)(?:\.|$)"),
    ("head", r"(?:^|\.)(?:lm_head|embed_out|output_layer|unembed|head)(?:\.|$)|^output\.weight$"
             r"|^(?!.*\.\d+\.).*\.ff_out\."),
    ("ffn_down", r"(?:mlp|ffn|DenseReluDense)\.[wW]o(?:\.|$)"),
    ("attn_q_a", r"(?:attn_q_a|q_a_proj|wq_a)(?:\.|$)"),
    ("attn_q_b", r"(?:attn_q_b|q_b_proj|wq_b)(?:\.|$)"),
    ("attn_kv_a", r"(?:attn_kv_a_mqa|kv_a_proj_with_mqa|kv_a_proj|wkv_a|wkv_a_with_mqa)(?:\.|$)"),
    ("attn_kv_b", r"(?:attn_kv_b|kv_b_proj|wkv_b)(?:\.|$)"),
    ("attn_k_b", r"(?:attn_k_b|k_b_proj)(?:\.|$)"),
    ("attn_v_b", r"(?:attn_v_b|v_b_proj)(?:\.|$)"),
    ("attn_qkv", r"(?:attn_qkv|qkv_proj|query_key_value|c_attn|Wqkv|wqkv|W_pack|att_proj|in_proj_weight|attn\.in_proj"
                 r"|qkv_a_proj_with_mqa|qkv|kv_proj|c_attn_qkv|language_expert_query_key_value)(?:\.|$)"),
    ("attn_gate", r"(?:attn_gate|self_attn\.g(?:ate)?_proj)(?:\.|$)"),
    ("attn_q", r"(?:attn_q|q_proj|wq|query|q_lin|to_q|[aA]tt(?:n|ention)\.q|q_proj_no_perm)(?:\.|$)"),
    ("attn_k", r"(?:attn_k|k_proj|wk|\bkey|k_lin|to_k|[aA]tt(?:n|ention)\.k|k_proj_no_perm)(?:\.|$)"),
    ("attn_v", r"(?:attn_v|v_proj|wv|\bvalue|v_lin|to_v|[aA]tt(?:n|ention)\.v|v_proj_no_perm)(?:\.|$)"),
    ("attn_output", r"(?:attn_out|attn_output|o_proj|(?:attn|attention|mixer|self_attention)\.(?:c_proj|out_proj|dense"
                    r"|wo|Wo|o|out_lin|linear|output\.dense)|out_proj|to_out|wo|language_expert_dense"
                    r"|self_attn\.linear_attn|multi_head_attention\.linear)(?:\.|$)"),
))  # fmt: skip
TOWER = tuple((role, re.compile(pattern)) for role, pattern in TOWERS)


@lru_cache(maxsize=1 << 12)
def _tower(name: str) -> str | None:
    """The part beside the decoder that a tensor belongs to (mtp, projector, vision, audio), by its name alone."""
    return next((role for role, pattern in TOWER if pattern.search(name)), None)


def role_of(name: str) -> str:
    """What a tensor does, by its name: one of

    attn_q, attn_k, attn_v, attn_qkv (fused), attn_output, attn_gate, attn_sinks; attn_q_a, attn_q_b, attn_kv_a,
    attn_kv_b, attn_k_b, attn_v_b (latent attention), attn_indexer; ffn_gate, ffn_up, ffn_gate_up (fused), ffn_down;
    the same with expert_ and shared_; router; norm, bias; embedding, positions, head; ssm (and linear attention, short
    convolutions); rope, kv_scale; mtp, vision, audio, projector; other. A companion has its tensor's role.
    """
    return _role(_plain(name))


@lru_cache(maxsize=1 << 12)
def _role(name: str) -> str:
    tower = _tower(name)
    if tower is not None:
        return tower
    if not re.search(KV_SCALE, name):
        name = main_of(companion_of(name) or name)
    for role, pattern in RULES:
        if pattern.search(name):
            return f"{role}_{_part(name) or 'other'}" if role in ("expert", "shared") else role
    part = _part(name)
    return f"ffn_{part}" if part else "other"


def _part(name: str) -> str | None:
    return next((part for part, pattern in PART if pattern.search(name)), None)


# --- all at once, for files of hundreds of thousands of names ---


def said_by(name: str) -> tuple[int | None, str, str, str | None]:
    """All that a tensor's name says: what `layer_of`, `role_of`, `main_of` and `companion_of` find."""
    pieces = NUMBER.split(name)  # what stands between numbers, and the numbers
    place, role, main, companion = _said("0".join(pieces[::2]))
    if place is None:
        layer = None
    elif place < len(pieces) and len(pieces[place]) <= LONGEST_LAYER:
        layer = int(pieces[place])
    else:
        layer = layer_of(name)
    return (layer, role, name if main is None else name[: -main[0]] + main[1],
            None if companion is None else name[: -companion[0]] + companion[1])  # fmt: skip


@lru_cache(maxsize=1 << 12)
def _said(plain: str) -> tuple[int | None, str, tuple[int, str] | None, tuple[int, str] | None]:
    """Of a name without its numbers: which piece of it is its layer, its role, and what its endings stand for."""
    match = None if _tower(plain) is not None else LAYER.search(plain)
    place = None if match is None else 2 * sum(one.end() <= match.start(1) for one in NUMBER.finditer(plain)) + 1
    return place, _role(plain), _ending(plain, PACKED), _ending(plain, COMPANIONS)
