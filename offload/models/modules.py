"""Which tensors a checkpoint leaves in 16 bits, by the names of modules that its quantisation config lists.

A config names modules of its own implementation ("model.layers.*.self_attn", "lm_head", "re:.*gate$"); a tensor here
has a role and a layer. The names that such a tensor has in usual implementations stand for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fnmatch import translate
from functools import lru_cache

from offload.errors import ModelError
from offload.models.architecture import Matrix

# Names of a role's module below "model.layers.N."; others are "self_attn." or "mlp." and the role itself.
LAYER_MODULES = {
    "attn_q": ("self_attn.q_proj", "attention.wq"),
    "attn_k": ("self_attn.k_proj", "attention.wk"),
    "attn_v": ("self_attn.v_proj", "attention.wv"),
    "attn_qkv": ("self_attn.qkv_proj", "self_attn.query_key_value", "self_attention.query_key_value"),
    "attn_q_a": ("self_attn.q_a_proj",),
    "attn_q_b": ("self_attn.q_b_proj",),
    "attn_kv_a": ("self_attn.kv_a_proj_with_mqa",),
    "attn_kv_b": ("self_attn.kv_b_proj",),
    "attn_output": ("self_attn.o_proj", "self_attention.dense", "attention.wo"),
    "ffn_gate": ("mlp.gate_proj", "feed_forward.w1"),
    "ffn_up": ("mlp.up_proj", "feed_forward.w3"),
    "ffn_down": ("mlp.down_proj", "feed_forward.w2"),
    "router": ("mlp.gate", "mlp.router", "block_sparse_moe.gate", "feed_forward.router"),
}
OUTER_MODULES = {"head": ("lm_head", "output_layer"), "embedding": ("model.embed_tokens", "embed_tokens")}
FAMILIES = (("attn", "self_attn"), ("ssm", "mamba"), ("linear", "linear_attn"), ("", "mlp"))
LONGEST = 300  # of a pattern
MOST = 100_000  # names
MOST_COMPILED = 1_000  # of them with * or "re:"
MOST_REPEATS = 5  # in a regular expression: with more, a hostile one could take for ever


def module_names(one: Matrix) -> Iterator[str]:
    """The names that a tensor's module has in usual implementations."""
    if one.layer is None:
        yield from OUTER_MODULES.get(one.role, (one.role,))
        return
    own = LAYER_MODULES.get(one.role) if one.used is None else None
    if own is None:
        home = next(module for start, module in FAMILIES if one.role.startswith(start))
        part = next((part for part in ("gate_up", "gate", "up", "down") if f"ffn_{part}" in one.role), "")
        if one.used is not None:
            own = (f"mlp.experts.0.{part}_proj", f"block_sparse_moe.experts.0.{part}_proj")
        elif one.role.endswith("_shared"):
            own = (f"mlp.shared_expert.{part}_proj", f"mlp.shared_experts.{part}_proj")
        else:
            own = (f"{home}.{one.role}", f"{home}.{one.role.partition('_')[2]}_proj")
    for name in own:
        yield f"model.layers.{one.layer}.{name}"


def is_listed(one: Matrix, patterns: Sequence[str]) -> bool:
    """Whether a list of modules names a tensor: its module, one that holds it, or the end of its name.

    A pattern is a name ("lm_head", "model.layers.0.mlp.gate"), one with * for anything, or a regular expression after
    "re:". Raises ModelError for a pattern that cannot be read, or that could take for ever.
    """
    plain, others = _sorted_out(tuple(patterns))
    for name in module_names(one):
        steps = name.split(".")
        parts = (".".join(steps[i:j]) for i in range(len(steps)) for j in range(i + 1, len(steps) + 1))
        if any(part in plain for part in parts) or any(pattern.match(name) for pattern in others):
            return True
    return False


def check_patterns(patterns: Sequence[str]) -> None:
    """Raises ModelError as `is_listed`."""
    _sorted_out(tuple(patterns))


@lru_cache(maxsize=16)
def _sorted_out(patterns: tuple[str, ...]) -> tuple[frozenset[str], tuple[re.Pattern[str], ...]]:
    """Plain names, which are looked up, and the others as regular expressions; a list may have many thousand names."""
    plain, others = set(), []
    for pattern in patterns:
        if not isinstance(pattern, str) or not pattern.strip() or len(pattern) > LONGEST:
            raise ModelError(f"the list of modules has {str(pattern)[:60]!r}: give names of modules, as lm_head.")
        if pattern.startswith("re:") or set(pattern) & set("*?["):
            others.append(pattern)
        else:
            plain.add(pattern.strip().rstrip("."))
    if len(others) > MOST_COMPILED:
        raise ModelError(f"the list of modules has {len(others):,} patterns with * or re:, of which {MOST_COMPILED:,} "
                         "are tried. Write fewer, of more each.")
    return frozenset(plain), tuple(_compiled(pattern) for pattern in others)


def _compiled(pattern: str) -> re.Pattern[str]:
    """A pattern of a module list as a regular expression that fits from the start of a module's name."""
    if not pattern.startswith("re:"):
        inner = translate(pattern.strip().rstrip("."))  # ends in \Z
        return re.compile(rf"(?:.*\.)?(?:{inner[:-2]})(?:\.|\Z)", re.DOTALL)
    text = pattern[3:]
    repeats = len(re.findall(r"[*+{]", text))
    if repeats > MOST_REPEATS or re.search(r"\)\s*[*+{]", text):
        raise ModelError(f"the list of modules has the pattern {pattern[:60]!r}, which repeats too much to be tried.")
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError):
        raise ModelError(f"the list of modules has {pattern[:60]!r}, which is no regular expression.") from None
