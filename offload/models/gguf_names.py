"""Names of GGUF files for the tensors of a model, and regular expressions on them (llama.cpp's -ot).

A tensor here has a role and a layer; `blk.12.ffn_up_exps.weight` is what a GGUF file calls it (gguf-py's
MODEL_TENSOR names). What is one tensor here and two there, or the reverse, has the names of both.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence

from offload.errors import ModelError
from offload.models.architecture import CORRECTION, STATED, Matrix, Model
from offload.models.modules import LONGEST

LONG = 32  # characters of a tensor's name
MOST_TRIES = 100_000

NAMES = {  # of matrices below "blk.N.", where that is not the role itself
    "router": "ffn_gate_inp",
    "attn_kv_a": "attn_kv_a_mqa",
    "index_q": "indexer.attn_q_b",
    "index_k": "indexer.attn_k",
    "index_weights": "indexer.proj",
    "conv": "ssm_conv1d",
    "per_layer_gate": "inp_gate",
    "per_layer_output": "proj",
    "ssm_gate": "attn_gate",
}
# A tensor here -> the two that a file may have instead; a pattern has to match both.
FUSED: dict[str, tuple[str, ...]] = {
    "ffn_gate_up_exps": ("ffn_gate_exps", "ffn_up_exps"),
    "ffn_gate_up_shexp": ("ffn_gate_shexp", "ffn_up_shexp"),
    "attn_kv_b": ("attn_k_b", "attn_v_b"),
    "attn_qkv": ("attn_q", "attn_k", "attn_v"),
}
# Of layers: what a GGUF file and what a Hugging Face checkpoint calls them.
OUTSIDE: dict[str, tuple[tuple[str, ...], ...]] = {
    "embedding": (("token_embd.weight",), ("model.embed_tokens.weight",)),
    "head": (("output.weight",), ("lm_head.weight",)),
    "norm": (("output_norm.weight",), ("model.norm.weight",)),
}
ALSO = {"ffn_gate_up": ("ffn_up",)}  # a fused tensor that a file calls by one of its halves


def gguf_names(one: Matrix) -> tuple[tuple[str, ...], ...]:
    """What a GGUF file may call a matrix of a layer: alternatives, each of one or more names.

    `blk.N.ffn_up.weight` for a dense feed-forward, `ffn_up_exps` for experts, `ffn_up_shexp` for shared ones,
    `attn_kv_a_mqa` for a latent. Vectors (norms, biases) have no name here, but for the router's correction.
    """
    if one.role == CORRECTION:
        return ((f"blk.{one.layer}.exp_probs_b.bias",),)
    if not one.is_matrix or one.layer is None:
        return ()
    name = NAMES.get(one.role, one.role)
    if one.used is not None:
        name += "_exps"
    elif name.endswith("_shared"):
        name = name.removesuffix("_shared") + "_shexp"
    ways: list[tuple[str, ...]] = [(name,), *((other,) for other in ALSO.get(name, ()))]
    if name in FUSED:
        ways.append(FUSED[name])
    return tuple(tuple(f"blk.{one.layer}.{part}.weight" for part in way) for way in ways)


def tensor_pattern(text: str) -> re.Pattern[str]:
    """A regular expression that is searched for in names, as llama.cpp does.

    Raises ModelError for one that cannot be read, or that could take for ever (repeats of repeats, or repeats and
    choices that multiply to more than MOST_TRIES).
    """
    if not text.strip() or len(text) > LONGEST:
        raise ModelError(f'a pattern of tensors\' names is 1 to {LONGEST} characters, as "ffn_.*_exps".')
    if text.startswith("*"):
        raise ModelError(f'"{text}" begins with *, which repeats nothing: a regular expression is due. '
                         f'Write ".{text}".')
    if re.search(r"(?<!\\)\)\s*[*+{]", text) or _tries(text) > MOST_TRIES:
        raise ModelError(f'"{text}" repeats too much to be tried: write fewer of * + {{}} ? and |, and no * + {{}} '
                         "after a bracket ( ).")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of sets in sets, which it may mean one day
            return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise ModelError(f'"{text}" is no regular expression: {error}. A dot of a name is written \\. and any text is '
                         ".*") from None


def _tries(text: str) -> float:
    """How many ways a pattern may be tried on a name of LONG characters: what repeats and choices multiply to.

    Choices count double: a pattern with many of them is tried in more ways than it is long.
    """
    plain = re.sub(r"\\.|\[\^?\]?[^]]*\]", "x", text).replace("(?", "(")  # a class is one character
    tries, open_groups = 1.0, [1]
    for one in plain:
        if one == "(":
            open_groups.append(1)
        elif one == "|":
            open_groups[-1] += 1
        elif one == ")" and len(open_groups) > 1:
            ways = open_groups.pop()
            tries *= 2 * ways if ways > 1 else 1
        elif one in "*+{":
            tries *= LONG
        elif one == "?":
            tries *= 4
    return tries * open_groups[0]


def first_match(one: Matrix, patterns: Sequence[re.Pattern[str]]) -> int | None:
    """The place of the first pattern that matches a matrix of a layer; None where none does."""
    return first_of(gguf_names(one), patterns)


def outside_names(model: Model) -> dict[str, tuple[tuple[str, ...], ...]]:
    """What files call a model's input embedding, output head and final norm, as `gguf_names` for layers.

    A tied head is the embedding itself: a GGUF file has no output.weight then.
    """
    if model.family == STATED:
        return {}
    tied = {"head": (*OUTSIDE["embedding"], OUTSIDE["head"][1])} if model.tied else {}
    return OUTSIDE | tied


def first_of(ways: Sequence[tuple[str, ...]], patterns: Sequence[re.Pattern[str]]) -> int | None:
    """The place of the first pattern that matches all names of one of some alternatives; None where none does."""
    for place, pattern in enumerate(patterns):
        if any(all(pattern.search(name) for name in way) for way in ways):
            return place
    return None
