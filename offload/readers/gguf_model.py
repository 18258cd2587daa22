"""A GGUF file as a model: its tensors say every shape, its keys what attention does with them.

A file names its architecture; what is not in the tensors (which layers have a window, what a latent is) is a fact about
that architecture as llama.cpp runs it (src/llama-model.cpp). One that is not known is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from offload.errors import ModelError, did_you_mean
from offload.errors import one_line as shown
from offload.models import Matrix, Model
from offload.models.architecture import TABLES
from offload.models.families.likeness import IGNORE, told_ignored
from offload.models.families.said import LIKE, KnownModel, not_read, told
from offload.readers.file_sizes import BESIDE, matrix_role, same_layers, with_stored
from offload.readers.gguf_architectures import ARCHITECTURES, REFUSED, Attention
from offload.readers.gguf_checks import contradictions, refuse_other_kinds, refuse_others, without_ignored
from offload.readers.gguf_layers import Keys, Place, head_dim, is_idle, layer_of, rows_of, shared_from, windows_of
from offload.readers.stored import Group, StoredWeights

FILE_TYPES = {  # `general.file_type`: llama.cpp's llama_ftype
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M",
    13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS",
    21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S",
    29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4_MOE",
}  # fmt: skip


def model_of_gguf(stored: StoredWeights, *, like: str | None = None, give: Mapping[str, Any] | None = None) -> Model:
    """The model of a GGUF file, with the sizes of its tensors.

    like : an architecture that is known, whose attention one that is not known has. give : keys below the
    architecture's name with values that count instead of the file's; "ignore" is for a key that nothing reads. Raises
    ModelError, with the file's name, for an architecture that is not known, a key that is missing or wrong, and tensors
    that contradict the keys.
    """
    try:
        return _model(stored, like, give or {})
    except ModelError as error:
        text = str(error)
        raise type(error)(text if text.startswith(shown(stored.path, 300)) else f"{shown(stored.path, 300)}: {text}") \
            from None


def file_format(stored: StoredWeights) -> str:
    """The name of a file's format: a GGUF's file type, else the type that most of its bytes have."""
    named = stored.metadata.get("general.file_type")
    known = FILE_TYPES.get(named) if type(named) is int else None
    return known or next(iter(stored.types()), "?").upper()


def _model(stored: StoredWeights, like: str | None, give: Mapping[str, Any]) -> Model:
    architecture = stored.metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise ModelError('the key "general.architecture" is missing, so what its layers do is not known.')
    known = _known(architecture, like)
    metadata, counted = without_ignored(give, stored.metadata, architecture)
    keys = Keys(metadata, architecture)
    count = _layers(keys, stored)
    windows = windows_of(keys, known, count)
    first_shared = shared_from(keys, known, count, windows)
    idle = frozenset(one.name for one in stored.groups if is_idle(one, first_shared))
    by_layer: dict[int | None, list[Group]] = {}
    for one in stored.groups:
        if one.role not in BESIDE and one.name not in idle:
            by_layer.setdefault(one.layer, []).append(one)
    outer = by_layer.get(None, [])
    table = next((one for one in outer if matrix_role(one) == "embedding"), None)
    if table is None or len(table.main.dimensions) != 2:
        raise ModelError("it holds no token_embd.weight of two dimensions.")
    hidden, vocab = keys.whole("embedding_length"), table.main.dimensions[0]
    if table.main.dimensions[1] != hidden:
        raise ModelError(f"{architecture}.embedding_length is {hidden}, and token_embd.weight has rows of "
                         f"{table.main.dimensions[1]}.")
    experts = (keys.whole("expert_count", 0, least=0), keys.whole("expert_used_count", 0, least=0))
    heads = keys.each("attention.head_count", count, (0,) * count if known.state else None, least=0)
    kv_heads = keys.each("attention.head_count_kv", count, heads, least=0)
    stack = [
        layer_of(keys, known, by_layer[index], hidden, experts,
                 Place(index, heads[index], kv_heads[index], windows[index], index >= first_shared))
        for index in range(count)
    ]  # fmt: skip
    ffn = keys.each("feed_forward_length", count, (0,) * count, least=0)
    context = keys.whole("context_length") if keys.has("context_length") else None
    sizes = [one.cache.key_dim for one in stack if one.cache.heads]
    said = contradictions(keys, counted, stack, ffn, vocab)
    _refuse_unread(keys, counted)
    if like is not None:
        refuse_other_kinds(known.state, stack, like)
        refuse_others(keys, like)
    notes = (*stored.notes, *said, *_notes(keys, windows, architecture, like),
             *_told(stored.metadata, architecture, give, keys.read))  # fmt: skip
    model = Model(
        name=_name(stored), family=architecture, layers=count, hidden=hidden, heads=max(heads), kv_heads=max(kv_heads),
        head_dim=max(sizes) if sizes else head_dim(keys, hidden, max(heads)) if max(heads) else 0, ffn=max(ffn),
        vocab=vocab, tied=not any(one.role == "head" for one in outer), max_positions=context, stack=same_layers(stack),
        outside=_outside(outer, hidden), notes=notes,
    )  # fmt: skip
    return with_stored(model, stored, file_format(stored), compute_format="fp16", idle=idle)


def _known(architecture: str, like: str | None) -> Attention:
    known = ARCHITECTURES.get(architecture)
    if like is not None:
        if known is not None:
            raise KnownModel(f"its architecture {architecture!r} is known. Drop like ({shown(like)}).")
        if like not in ARCHITECTURES:
            raise ModelError(f"like names {shown(like)!r}, which is no architecture here. "
                             f"{did_you_mean(like[:60], ARCHITECTURES, 'Known')}")
        named = ARCHITECTURES[like]
        return replace(named, window=None) if named.window else named  # its window's size is no fact about this file
    if known is not None:
        return known
    why = REFUSED.get(architecture)
    hint = f"{why[0].upper()}{why[1:]}." if why else did_you_mean(architecture[:60], ARCHITECTURES, "Known")
    same = "" if why else f" If its layers attend as those of a known one do, say so: {LIKE}."
    raise ModelError(f"GGUF files of architecture {shown(architecture)!r} are not counted yet. {hint}{same} "
                     "`offload model` prints what is stored.")


def _layers(keys: Keys, stored: StoredWeights) -> int:
    """How many layers there are. Raises ModelError where not all are stored."""
    numbers = tuple(sorted({one.layer for one in stored.groups
                            if one.role not in BESIDE and one.layer is not None}))  # fmt: skip
    blocks = keys.whole("block_count")
    count = blocks - len(stored.mtp_layers)
    if not numbers or len(numbers) != count or numbers[-1] != count - 1:
        raise ModelError(f"{keys.start}.block_count is {blocks}, and the layers {_some(numbers)} are stored. Give "
                         "all of the model's files.")
    return count


def _outside(outer: list[Group], hidden: int) -> tuple[Matrix, ...]:
    """Tensors besides layers, embedding and head; of tables a token takes one row."""
    found = []
    for one in outer:
        role, (rows, row) = matrix_role(one), rows_of(one)
        if role in TABLES:
            found.append(Matrix(role, None, 1, row, rows, 1))
        elif role not in ("embedding", "head"):
            found.append(Matrix(role, None, rows, row))
    if not any(one.role == "norm" for one in found):
        found.append(Matrix("norm", None, 0, hidden))  # none is stored, so none is counted
    return tuple(found)


def _notes(keys: Keys, windows: list[int], architecture: str, like: str | None) -> list[str]:
    notes = []
    if like is not None:
        notes.append(f"its architecture {shown(architecture)!r} is not known: its layers attend as those of {like}, as "
                     "asked")
    if not any(windows) and keys.metadata.get(f"{architecture}.attention.sliding_window"):
        notes.append(f"{architecture}.attention.sliding_window is given and not used: every layer sees all positions, "
                     "as llama.cpp runs this architecture")
    return notes


def _told(metadata: Mapping[str, Any], architecture: str, give: Mapping[str, Any], read: set[str]) -> list[str]:
    """What was given instead of the file's keys, and what is ignored, in words."""
    before = {key: metadata.get(f"{architecture}.{key}") for key in give}
    counted = {key: value for key, value in give.items() if value != IGNORE}
    return [*told(counted, before), *told_ignored(give, before, read, f"GGUF files of {shown(architecture)}")]


def _refuse_unread(keys: Keys, give: Mapping[str, Any]) -> None:
    unread = sorted(set(give) - keys.read)
    if unread:
        raise ModelError(not_read(unread[0], keys.read, f"GGUF files of {shown(keys.start)}"))


def _name(stored: StoredWeights) -> str:
    named = stored.metadata.get("general.name")
    if isinstance(named, str) and named.strip() and named.isprintable() and len(named) < 200:
        return named.strip()
    return shown(Path(stored.path).stem) or "model"


def _some(numbers: tuple[int, ...]) -> str:
    text = ", ".join(str(one) for one in numbers[:6])
    return f"{text}{', ...' if len(numbers) > 6 else ''}" if numbers else "(none)"
