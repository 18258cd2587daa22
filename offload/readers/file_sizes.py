"""The real sizes of a file's tensors as a model's weights: what is stored beats what a format's rule would count."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import replace
from typing import cast

from offload.errors import ModelError
from offload.errors import one_line as shown
from offload.models import Layer, Matrix, Model, Weights, layers_of
from offload.models.architecture import TABLES, UNEMBED
from offload.models.weights import PREDICTION, Beside
from offload.readers.stored import MTP, Group, StoredWeights

NOTE = "sizes of the file's own tensors"
BESIDE = (MTP, "vision", "audio", "projector")  # stored with a decoder, and not run in a plain decode of text
BUFFERS = ("rope", "kv_scale")  # no parameters of a model: made anew, or of its cache
COMPUTE = {"f16": "fp16", "f32": "fp32"}  # by the type of most of a file; others compute in bf16, GGUF's in fp16
# Of recurrent layers what is no projection, by name; decay rates and skips are "scalar".
RECURRENT = (
    (re.compile(r"norm|time_mix_ln|ln_x"), "norm"),
    (re.compile(r"[._]bias$"), "bias"),
    (re.compile(r"(?:^|[._])(?:A_log|ssm_a|ssm_d|D)(?:\.weight)?$"), "scalar"),
    (re.compile(r"conv1d|(?:^|\.)(?:short_?conv\.conv|conv\.conv)\b"), "conv"),
)
EXPERT_PART = re.compile(r"(?:^|[._])(?:experts|\w+_exps)[._]")


def matrix_role(group: Group) -> str:
    """A tensor's role as models name it: of an expert's part and a dense one alike, of a shared one with its mark."""
    role = group.role
    if role == "ssm":
        return next((named for pattern, named in RECURRENT if pattern.search(group.name)), role)
    if role == "other" and group.main.shape is not None and max(group.main.shape, default=1) == group.main.elements:
        return "scalar"  # a vector that no rule knows
    if role == "embedding" and "per_layer" in group.name:  # a table beside the embedding (Gemma 3n and 4)
        return "per_layer_embedding"
    if role == "other" and "unembd" in group.name:
        return UNEMBED
    if role.startswith("expert_"):
        return f"ffn_{role.removeprefix('expert_')}"
    if role.startswith("shared_"):
        return f"ffn_{role.removeprefix('shared_')}_shared"
    if role in ("attn_sinks", *BUFFERS):
        return "scalar"
    if role == "router" and re.search(r"bias|exp_probs_b", group.name):
        return "bias"
    if role == "attn_indexer":
        return "bias" if group.name.endswith(".bias") else "norm" if "norm" in group.name else "index_q"
    return role


def is_expert(group: Group) -> bool:
    """Whether a tensor is a part of experts that tokens choose; their biases are too."""
    return group.role.startswith("expert_") or group.role == "bias" and EXPERT_PART.search(group.name) is not None


def with_stored(
    model: Model, stored: StoredWeights, format: str, *, packed_bits: int | None = None,
    compute_format: str | None = None, described: str | None = None, idle: Container[str] = (),
) -> Model:  # fmt: skip
    """The model with the sizes of these files as its weights.

    format : the files' own ("Q4_K_M"). Layers of multi-token prediction lie behind the others. packed_bits : of
    `StoredWeights.grouped`. described : what describes the shape where it is not the files themselves ("config.json");
    where it differs from them, a note tells by how much. idle : names of tensors that are stored and not run.
    Raises ModelError where the files have other layers than the model, no embedding, or sizes that are not known.
    """
    if not stored.sized:
        raise ModelError(f"{shown(stored.path, 300)}: an index names tensors and not their sizes.")
    groups = stored.grouped(packed_bits)
    run = [one for one in groups if one.role not in BESIDE and one.name not in idle]
    _check_layers(model, stored, {one.layer for one in run if one.layer is not None})
    table = next((one for one in run if matrix_role(one) == "embedding" and one.layer is None), None)
    if table is None:
        raise ModelError(f"{shown(stored.path, 300)}: its tensors hold no embedding, so this is a part of a model. "
                         "Give the folder that holds all of its files.")
    heads = [one for one in run if one.role == "head" and one.layer is None]
    notes = [NOTE]
    if heads and model.tied:
        notes.append(f"a head is stored too ({sum(one.size for one in heads):,} B), and {described or 'the model'} "
                     "says that the head is the embedding: it is not run")
    if not heads and not model.tied:
        notes.append("no head is stored, so the head is taken to be the embedding")
        model = replace(model, tied=True)
    besides = sum(one.size for one in groups if one.role in BESIDE)
    unused = sum(one.size for one in groups if one.name in idle)
    if unused:
        notes.append(f"stored and not run: {unused:,} B of keys and values of layers that read another's cache")
    kinds = _besides(groups)
    if besides:
        notes.append(f"stored and not run in a plain decode: {besides:,} B of "
                     f"{' and '.join(one.kind for one in kinds)}")
    besides += unused
    if model.tied:
        run = [one for one in run if one not in heads]
        besides += sum(one.size for one in heads)
    if described and (told := _difference(model, run, described)):
        notes.append(told)
    parts = _parts(model, run)
    layer_sizes, expert_sizes = [0] * model.layers, [0] * model.layers
    for one, size in parts:
        if one.layer is not None:
            layer_sizes[one.layer] += size
            if one.used is not None:
                expert_sizes[one.layer] += -(-size // one.copies)
    outside: Counter[str] = Counter()
    for one, size in parts:
        if one.layer is None:
            outside[one.role if one.role in ("embedding", "head", "norm") else ""] += size
    main = next(iter(stored.types()))  # the largest
    compute = compute_format or COMPUTE.get(main, "bf16")
    rows = table.main.shape[0] if table.main.shape else 1
    others = [(one, size) for one, size in parts if one.layer is None and one.role not in ("embedding", "head", "norm")]
    weights = Weights(
        f"{format} as stored", tuple(layer_sizes), outside["embedding"] if model.tied else outside["head"],
        outside["embedding"], table.size // max(1, rows), outside["norm"], model.parameters, model.tied, compute,
        tuple(expert_sizes), outside[""], tuple(notes), besides, tuple(parts),
        sum(size for one, size in others if one.role not in TABLES),
        sum(-(-size // one.copies) for one, size in others if one.role in TABLES), kinds,
    )  # fmt: skip
    return replace(model, stored=weights)


def _besides(groups: Sequence[Group]) -> tuple[Beside, ...]:
    """What is stored with a decoder and not run in a plain decode, by kind."""
    found = []
    for role in sorted({one.role for one in groups if one.role in BESIDE}):
        of = [one for one in groups if one.role == role]
        layers = len({one.layer for one in of} - {None}) if role == MTP else 0
        known = [one.elements for one in of if one.elements is not None]
        found.append(Beside(PREDICTION if role == MTP else role, layers, sum(known) if len(known) == len(of) else None,
                            sum(one.size for one in of)))  # fmt: skip
    return tuple(found)


def _check_layers(model: Model, stored: StoredWeights, found: set[int]) -> None:
    wanted = set(range(model.layers))
    if found == wanted:
        return
    lacking, further = sorted(wanted - found), sorted(found - wanted)
    some = f"it lacks layer {lacking[0]}" if lacking else f"it has a layer {further[0]} too"
    fix = "Give all of its files." if lacking else "Shape and files do not belong together."
    raise ModelError(f"{shown(stored.path, 300)}: {len(found)} layers are stored, and the model has {model.layers}: "
                     f"{some} (counted from 0). {fix}")


def _parts(model: Model, run: list[Group]) -> list[tuple[Matrix, int]]:
    """Tensors with their bytes; the experts of a layer, which may be a tensor each, by role as one with copies."""
    layers = layers_of(model)
    found: list[tuple[Matrix, int]] = []
    experts: dict[tuple[int, str], list[int]] = {}
    for one in run:
        layer, role = one.layer, matrix_role(one)
        if layer is not None and is_expert(one) and layers[layer].experts is not None:
            total = experts.setdefault((layer, role), [0, 0])
            total[0] += one.elements or 0
            total[1] += one.size
            continue
        row = one.main.shape[-1] if one.elements and one.main.shape and one.main.elements == one.elements else 0
        rows = (one.elements or 0) // row if row else 1
        if role in TABLES and layer is None:
            found.append((Matrix(role, None, 1, row, rows, 1), one.size))
        else:
            found.append((Matrix(role, layer, rows, row or one.elements or 0), one.size))
    for (place, role), (elements, size) in experts.items():
        count, used = cast("tuple[int, int]", layers[place].experts)
        found.append((Matrix(role, place, 1, -(-elements // count), count, used), size))
    return found


def _difference(model: Model, run: list[Group], described: str) -> str | None:
    """What a config describes and what is stored, where the numbers of parameters differ; None where they agree, or
    where packed numbers do not tell how many they are.
    """
    counted = [one for one in run if one.role not in BUFFERS]
    elements = [one.elements for one in counted if one.elements is not None]
    if len(elements) < len(counted):
        return None
    held = sum(elements)
    if held == model.parameters:
        return None
    sums: Counter[int] = Counter()
    for one, own in zip(counted, elements, strict=True):
        if one.layer is not None:
            sums[one.layer] += own
    where = next((f"layer {index}: {layer.parameters:,} described, {sums[index]:,} stored"
                  for index, layer in enumerate(layers_of(model)) if layer.parameters != sums[index]),
                 "outside of layers")  # fmt: skip
    return (f"{described} describes {model.parameters:,} parameters, the files hold {held:,} (first in {where}): bytes "
            "are those of the files, FLOP and KV those of the shape")


def same_layers(stack: list[Layer]) -> tuple[Layer, ...]:
    """Layers, with equal ones as one object, which then are counted once."""
    known: dict[Layer, Layer] = {}
    return tuple(known.setdefault(layer, layer) for layer in stack)
