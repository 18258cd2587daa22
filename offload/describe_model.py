"""A model in a few figures: its layers by kind, bytes by class, what moves for a token and what grows with context."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from offload.models import Layer, Matrix, Model, head_flops, layer_flops_of, layers_of, tensors, weigh
from offload.models.architecture import outside_flops
from offload.models.attention import decode_flops, prefill_flops
from offload.models.budget import kv_format_of, kv_notes
from offload.models.cache import (
    constant_bytes,
    growing_bytes,
    position_bytes,
    read_bytes,
    sequence_bytes,
    states_bytes,
)
from offload.models.families.said import KnownModel
from offload.models.weights import PREDICTION, Beside, Weights, tensor_bytes
from offload.readers.model_files import Unshaped, holds_weights
from offload.readers.stored import StoredWeights
from offload.units import many
from offload.words import model_and_format

UNSTATED = "bf16"  # what a model is shown in where nothing says how its weights are stored
CONTEXTS = (1024, 8192, 131_072)
CLASSES = ("attention", "indexer", "recurrent", "feed-forward", "shared experts", "routed experts", "router",
           "norms and biases", "embedding", "positions", "per-layer inputs", "head", "other")  # fmt: skip


@dataclass(frozen=True, slots=True)
class ClassBytes:
    """Parameters and bytes of one class of tensors, and those that one decoded token reads at batch 1."""

    parameters: int
    active: int
    bytes: int
    read: int


@dataclass(frozen=True, slots=True)
class AtContext:
    """One sequence at `context` positions. FLOP; bytes [B] in the formats of the summary.

    decode_flops : of a token as its last position, head included. prefill_flops : of all of its positions as a prompt,
    at least, with the head for its last alone. decode_read_bytes : what that token reads at batch 1: weights, cache and
    state. kept_bytes : cache and state.
    """

    context: int
    decode_flops: int
    prefill_flops: int
    decode_read_bytes: int
    kept_bytes: int


@dataclass(frozen=True, slots=True)
class ModelSummary:
    """What `offload model` prints. Bytes [B], FLOP; kv_format, format : as counted.

    kinds : (what such a layer is, how many). kv_bytes_per_token : of layers whose cache grows, in 16 bits;
    kv_format_bytes_per_token : the same in kv_format, as all other bytes of the cache are. kv_constant_bytes : of full
    windows and chunks. read_bytes_per_token : weights that one decoded token reads alone (the embedding's row, one
    token's experts). decode_flops : per token, without attention to positions, the head included; prefill_flops : the
    same without the head, which runs for sampled positions alone (head_flops). attend_flops : for each position that a
    decoded token attends to; index_flops : for each, attended to or not, of an indexer; prefill_attend_flops : of a
    pair of positions of a prompt (less where latents have a cheaper form). at : at a few contexts. limited : whether
    some layer attends to no more than a window, a chunk or an indexer's picks. layer_bytes : of each layer.
    besides_bytes : in the model's files, and not run in a plain decode. kv_window_bytes_per_token : of layers with a
    window or a chunk, until it is full. mtp_layers : of multi-token prediction; stored_besides : those and whatever
    else is stored and not run, by kind.
    """

    name: str
    family: str
    layers: int
    hidden: int
    vocab: int
    kinds: tuple[tuple[str, int], ...]
    parameters: int
    parameters_active: int
    parameters_stored: int
    format: str
    weight_bytes: int
    bits_per_weight: float
    classes: Mapping[str, ClassBytes]
    kv_format: str
    kv_bytes_per_token: int
    kv_format_bytes_per_token: int
    kv_constant_bytes: int
    state_bytes_per_sequence: int
    read_bytes_per_token: int
    decode_flops: float
    prefill_flops: float
    head_flops: int
    attend_flops: int
    index_flops: int
    prefill_attend_flops: int
    at: tuple[AtContext, ...]
    max_positions: int | None
    tied: bool
    notes: tuple[str, ...]
    limited: bool = False
    layer_bytes: tuple[int, ...] = ()
    besides_bytes: int = 0
    kv_window_bytes_per_token: int = 0
    mtp_layers: int = 0
    stored_besides: tuple[Beside, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredSummary:
    """What `offload model` prints of files that are not read as a model. Bytes [B]; None is what they do not say.

    family : a GGUF's architecture. roles, types : name -> bytes, the largest first. layer_bytes : by layer, those that
    are numbered. reason : why they are no model here.
    """

    name: str
    family: str | None
    layers: int
    parameters: int | None
    weight_bytes: int | None
    bits_per_weight: float | None
    roles: Mapping[str, int]
    types: Mapping[str, int]
    layer_bytes: Mapping[int, int]
    reason: str
    notes: tuple[str, ...]
    parameters_active: None = None
    kv_bytes_per_token: None = None
    state_bytes_per_sequence: None = None


def summary_of(
    target: str, weights: str | None, kv_format: str | None = None, *, like: str | None = None,
    give: Sequence[str] | None = None,
) -> ModelSummary | StoredSummary:  # fmt: skip
    """The figures of a model in words or by its files; of files that are not read as a model, what they store.

    like, give : as of `model_and_format`. Raises OffloadError for what is neither, OSError for what cannot be read.
    """
    try:
        model, format = model_and_format(target, weights, UNSTATED, like=like, give=give)
        stated = weights is not None or model.dtype or model.quantised or model.stored or ":" in target
        found = summarise(model, format, kv_format)
        note = f"its file states no number format: counted in {UNSTATED}; --weights names another"
        return found if stated else replace(found, notes=(*found.notes, note))
    except Unshaped as error:
        if weights is not None or like is not None or give or not holds_weights(target):
            raise
        return summarise_stored(error.stored, error.reason)


def summaries_of(
    targets: Sequence[str], weights: str | None, kv_format: str | None = None, *, like: str | None = None,
    give: Sequence[str] | None = None,
) -> list[ModelSummary | StoredSummary]:  # fmt: skip
    """The same of several models; like and give are for those that are not known, and a note of the others says so.

    Raises as `summary_of`, and where all of them are known.
    """
    found: list[ModelSummary | StoredSummary] = []
    refused: list[KnownModel] = []
    for target in targets:
        try:
            found.append(summary_of(target, weights, kv_format, like=like, give=give))
        except KnownModel as error:
            refused.append(error)
            one = summary_of(target, weights, kv_format) if len(targets) > 1 else None
            if one is not None:
                note = "it is known, so --like and --give are not used for it"
                found.append(replace(one, notes=(*one.notes, note)))
    if len(refused) == len(targets):
        raise refused[0]
    return found


def summarise_stored(stored: StoredWeights, reason: str) -> StoredSummary:
    """What files store, by role, type and layer."""
    family = stored.metadata.get("general.architecture")
    return StoredSummary(
        name=stored.path, family=family if isinstance(family, str) else None, layers=stored.numbered_layers,
        parameters=stored.elements, weight_bytes=stored.bytes, bits_per_weight=stored.bits_per_weight,
        roles={role: share.bytes for role, share in stored.by_role().items()},
        types={kind: share.bytes for kind, share in stored.types().items()},
        layer_bytes={layer: share.bytes for layer, share in stored.by_layer().items() if layer is not None},
        reason=reason, notes=stored.notes,
    )  # fmt: skip


def summarise(model: Model, format: str, kv_format: str | None = None) -> ModelSummary:
    """A model's figures with its weights in a format, and its KV cache (default: as its checkpoint states, or f16).

    Raises ModelError for unknown formats.
    """
    weighed = weigh(model, format)
    notes, kv_format = kv_notes(model, kv_format), kv_format_of(model, kv_format)[0]
    layers = layers_of(model)
    sums: dict[str, list[int]] = {}
    for one, size in tensor_bytes(model, format):
        total = sums.setdefault(class_of(one), [0, 0, 0, 0])
        share = one.active / one.parameters if one.parameters else 1
        row = one.role == "embedding" and not model.tied
        total[2] += size
        total[3] += weighed.embedding_row if row else round(size * share)
    for one in tensors(model):  # stored tensors may be packed: the shape says what they stand for
        total = sums.setdefault(class_of(one), [0, 0, 0, 0])
        total[0] += one.parameters
        total[1] += one.row if one.role == "embedding" and not model.tied else one.active
    classes = {name: ClassBytes(*sums[name]) for name in CLASSES if name in sums}
    besides = _besides(model, weighed)
    caches, states = [layer.cache for layer in layers], [layer.state for layer in layers]
    read = sum(one.read for one in classes.values())
    matrices, head = sum(layer_flops_of(layer) for layer in layers) + outside_flops(model), head_flops(model)
    at = tuple(
        AtContext(
            context, matrices + head + sum(decode_flops(layer, context) for layer in layers),
            context * matrices + head + sum(prefill_flops(layer, 0, context) for layer in layers),
            read + read_bytes(caches, context, kv_format, states=states),
            sequence_bytes(caches, context, kv_format, states=states).total,
        )
        for context in _contexts(model.max_positions)
    )  # fmt: skip
    return ModelSummary(
        name=model.name, family=model.family, layers=model.layers, hidden=model.hidden, vocab=model.vocab,
        kinds=tuple(Counter(describe_layer(layer) for layer in layers).items()),
        parameters=model.parameters, parameters_active=model.parameters_active,
        parameters_stored=model.parameters_stored, format=weighed.format, weight_bytes=weighed.total,
        bits_per_weight=weighed.bits_per_weight, classes=classes, kv_format=kv_format,
        kv_bytes_per_token=growing_bytes(caches),
        kv_format_bytes_per_token=growing_bytes(caches, kv_format), kv_constant_bytes=constant_bytes(caches, kv_format),
        state_bytes_per_sequence=states_bytes(states),
        read_bytes_per_token=read, decode_flops=matrices + head, prefill_flops=matrices, head_flops=head,
        attend_flops=sum(layer.attend for layer in layers), index_flops=sum(layer.index for layer in layers),
        prefill_attend_flops=sum(layer.expanded or layer.attend for layer in layers), at=at,
        max_positions=model.max_positions, tied=model.tied, notes=(*model.notes, *weighed.notes, *notes),
        limited=any(one.window or one.picks for one in caches), layer_bytes=weighed.layers,
        besides_bytes=weighed.besides,
        kv_window_bytes_per_token=sum(position_bytes(one, kv_format) for one in caches
                                      if one.kind in ("window", "chunk")),
        mtp_layers=sum(one.layers for one in besides if one.kind == PREDICTION), stored_besides=besides,
    )  # fmt: skip


def _besides(model: Model, weighed: Weights) -> tuple[Beside, ...]:
    """What is stored besides: as the files have it, or as the config describes it."""
    if weighed.besides_of:
        return weighed.besides_of
    tower = [any(one.role == "vision" for one in layer.matrices) for layer in model.further]
    kinds = (("vision tower", [layer for layer, seen in zip(model.further, tower, strict=True) if seen]),
             (PREDICTION, [layer for layer, seen in zip(model.further, tower, strict=True) if not seen]))  # fmt: skip
    return tuple(Beside(kind, len(layers) if kind == PREDICTION else 0, sum(one.parameters for one in layers), None)
                 for kind, layers in kinds if layers)  # fmt: skip


def _contexts(longest: int | None) -> tuple[int, ...]:
    """The contexts that a model is shown at, none longer than it states."""
    return tuple(sorted({min(one, longest or one) for one in CONTEXTS}))


def class_of(one: Matrix) -> str:
    """The class of tensors that one belongs to, by its role."""
    role = one.role
    if not one.is_matrix:
        return "norms and biases"
    if one.used is not None and role.startswith("ffn"):
        return "routed experts"
    if role.endswith("_shared"):
        return "shared experts"
    for start, name in (("router", "router"), ("attn", "attention"), ("index", "indexer"), ("ssm", "recurrent"),
                        ("conv", "recurrent"),
                        ("linear", "recurrent"), ("ffn", "feed-forward"), ("embedding", "embedding"),
                        ("positions", "positions"), ("per_layer", "per-layer inputs"), ("head", "head")):  # fmt: skip
        if role.startswith(start):
            return name
    return "other"


def describe_layer(layer: Layer) -> str:
    """One layer in words: "full attention, 64 heads, 8 KV heads of 128; dense feed-forward"."""
    cache = layer.cache
    shared = ", reads another layer's cache" if cache.shared else ""
    if layer.attention == "none":
        first = "no attention"
    elif cache.kind == "none":
        kind = {"ssm": "state space layer"}.get(layer.attention, f"{layer.attention} attention")
        first = f"{kind} with a state of {states_bytes((layer.state,)):,} B for each sequence"
    elif cache.kind == "latent":
        index = f", indexer of {cache.index_dim}" if cache.index_dim else ""
        picks = f", to {cache.picks:,} positions at most" if cache.picks else ""
        first = f"latent attention{picks}, {many(layer.heads, 'head')}, latent {cache.latent} + {cache.rope}{index}"
    else:
        size = f"{cache.key_dim}" if cache.value_dim in (0, cache.key_dim) else f"{cache.key_dim} and {cache.value_dim}"
        window = {"window": f"sliding window of {cache.window:,}", "chunk": f"chunks of {cache.window:,}"}
        kind = window.get(cache.kind, "full attention")
        once = ", keys and values stored once" if cache.one_side else ""
        first = f"{kind}, {many(layer.heads, 'head')}, {many(cache.heads, 'KV head')} of {size}{once}"
    if cache.kind != "none" and (kept := states_bytes((layer.state,))):
        first += f", beside a state of {kept:,} B for each sequence"
    if layer.experts is not None:
        count, used = layer.experts
        return f"{first}{shared}; {used} of {many(count, 'expert')}{_shared(layer)}"
    second = {"none": "no feed-forward"}.get(layer.feed_forward, "dense feed-forward")
    return f"{first}{shared}; {second}"


def _shared(layer: Layer) -> str:
    """The experts of a layer that every token goes through, by their width: several are stored as one."""
    rows = {one.role: one.row for one in layer.matrices if one.role in ("ffn_down", "ffn_down_shared")}
    if "ffn_down_shared" not in rows:
        return ""
    times = rows["ffn_down_shared"] / rows.get("ffn_down", rows["ffn_down_shared"])
    return " and a shared one" if times == 1 else f" and a shared part as wide as {times:g} of them"
