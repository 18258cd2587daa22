"""Dense decoders: attention with grouped KV heads and a gated feed-forward in every layer.

Llama, Mistral, Qwen 2 and 3, Gemma 1 to 3, Phi-3, Granite, GLM and Molmo. A class adds biases, norms, windows, or
stores projections fused; what is plain keeps no stack of layers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from offload.errors import ModelError
from offload.models.architecture import Layer, Model, dense_layer
from offload.models.families.fields import Fields
from offload.models.families.parts import (
    POSITIONS,
    Sizes,
    attention,
    attention_layer,
    build,
    gated,
    kinds,
    norm,
    sizes,
    tied,
)


@dataclass(frozen=True, slots=True)
class Plain:
    """What a class of plain decoders adds or takes for granted where the file does not say."""

    tied: bool = False
    qkv_bias: bool = False  # biases on Q, K and V whatever the file says
    bias_key: bool = False  # `attention_bias` gives Q, K, V and output a bias
    mlp_bias_key: bool = False  # `mlp_bias` gives the feed-forward's projections one
    qk_norm: bool = False
    head_dim: int | None = None
    kv_heads: int | None = None
    window: int | None = None  # the sliding window where the key is missing; None is a class without windows
    window_on: bool = False  # whether the window counts where `use_sliding_window` does not say
    by_layer: bool = False  # `layer_types` or `max_window_layers` say which layers have it; else all


PLAIN = {
    "llama": Plain(bias_key=True, mlp_bias_key=True),
    "granite": Plain(bias_key=True, mlp_bias_key=True),
    "mistral": Plain(kv_heads=8, window=4096, window_on=True),
    "qwen2": Plain(qkv_bias=True, kv_heads=32, window=4096, by_layer=True),
    "qwen3": Plain(bias_key=True, qk_norm=True, head_dim=128, kv_heads=32, window=4096, by_layer=True),
    "gemma": Plain(tied=True, bias_key=True, head_dim=256, kv_heads=16),
}


def plain_decoder(fields: Fields, name: str, family: str) -> Model:
    """A decoder of one of the PLAIN classes."""
    known = PLAIN[family]
    size = sizes(fields, kv_heads=known.kv_heads, head_dim=known.head_dim)
    bias = known.bias_key and fields.flag("attention_bias")
    model = Model(
        name=name, family=family, layers=size.layers, hidden=size.hidden, heads=size.heads, kv_heads=size.kv_heads,
        head_dim=size.head_dim, ffn=size.ffn, vocab=size.vocab, tied=tied(fields, known.tied),
        qkv_bias=known.qkv_bias or bias, out_bias=bias, mlp_bias=known.mlp_bias_key and fields.flag("mlp_bias"),
        qk_norm=known.qk_norm, max_positions=fields.whole(*POSITIONS, default=None),
    )  # fmt: skip
    windows = sliding_windows(fields, size.layers, known)
    if not any(windows):
        return model
    full = dense_layer(model)
    return replace(model, stack=tuple(with_window(full, window) for window in windows))


def with_window(layer: Layer, window: int) -> Layer:
    """The same layer with attention to the last `window` positions (0: to all)."""
    if not window:
        return layer
    return replace(layer, cache=replace(layer.cache, kind="window", window=window), attention="window")


def sliding_windows(fields: Fields, layers: int, known: Plain) -> list[int]:
    """Each layer's window; 0 where it attends to all positions."""
    if known.window is None:
        if fields.has("layer_types"):
            kinds(fields, layers, ("full",), tuple)
        return [0] * layers
    on = fields.flag("use_sliding_window", known.window_on)
    window = fields.whole("sliding_window", default=known.window if on and not fields.has("sliding_window") else None)
    if not on:
        window = None
    if not known.by_layer:
        fields.has("layer_types")  # these classes do not look at it
        return [window or 0] * layers
    fields.has("max_window_layers")

    def behind_the_first() -> list[str]:
        after = fields.whole("max_window_layers", default=28, least=0) if window else layers
        return ["window" if layer >= after else "full" for layer in range(layers)]

    found = kinds(fields, layers, ("full", "window"), behind_the_first)
    if "window" in found and window is None:
        raise ModelError("layer_types holds sliding_attention, and no window is on: sliding_window is "
                         f"{fields.raw('sliding_window')}, use_sliding_window {str(on).lower()}. Drop the wrong one.")
    return [window if kind == "window" else 0 for kind in found]


def same_window(fields: Fields, *, key_on: bool = False) -> int:
    """The window of classes where all layers have it or none; 0 for none. key_on : `use_sliding_window` turns it on."""
    on = fields.flag("use_sliding_window") if key_on else True
    fields.has("sliding_window", "max_window_layers")  # the second these classes do not look at
    return fields.whole("sliding_window", default=0) if on else 0


def phi3(fields: Fields, name: str, family: str) -> Model:
    """Phi-3: query, key and value in one projection, gate and up in one."""
    size = sizes(fields)
    window = same_window(fields)
    matrices = [
        *attention(size.hidden, size.heads, size.kv_heads, size.head_dim, fused=True),
        *gated(size.hidden, size.ffn, fused=True),
        *norm(size.hidden), *norm(size.hidden),
    ]  # fmt: skip
    layer = attention_layer(matrices, size.heads, size.kv_heads, size.head_dim)
    return build(fields, name, family, size, [with_window(layer, window)] * size.layers, is_tied=tied(fields, False))


def gemma2(fields: Fields, name: str, family: str) -> Model:
    """Gemma 2: every other layer with a window, norms before and after both parts."""
    size = sizes(fields, kv_heads=4, head_dim=256)
    alternate = ["window" if layer % 2 == 0 else "full" for layer in range(size.layers)]
    return _gemma(fields, name, family, size, lambda: alternate, window=4096)


# What the class takes where a file leaves it out, as published files of Gemma 3 do.
GEMMA3 = {"layers": 26, "hidden": 2304, "heads": 8, "ffn": 9216, "vocab": 262208}


def gemma3(fields: Fields, name: str, family: str, outer: Fields | None = None) -> Model:
    """Gemma 3: five layers with a window to one without, norms on queries and keys; a vision tower beside it."""
    size = sizes(fields, kv_heads=4, head_dim=256, defaults=GEMMA3)
    fields.has("sliding_window_pattern", "_sliding_window_pattern")

    def pattern() -> list[str]:
        every = fields.whole("sliding_window_pattern", "_sliding_window_pattern", default=6)
        return ["window" if (layer + 1) % every else "full" for layer in range(size.layers)]

    model = _gemma(fields, name, family, size, pattern, window=4096, qk_norm=True)
    if outer is None or not outer.has("vision_config"):
        return model
    from offload.models.families.vision import siglip_layers

    tower = siglip_layers(outer.map("vision_config"), size.hidden)
    note = "its vision tower is stored and not run for text, and is not counted in the bytes of the weights"
    return replace(model, further=tower, notes=(*model.notes, note))


def _gemma(
    fields: Fields, name: str, family: str, size: Sizes, pattern: Callable[[], list[str]], *, window: int,
    qk_norm: bool = False,
) -> Model:  # fmt: skip
    found = kinds(fields, size.layers, ("full", "window"), pattern)
    taken = window if "window" in found and not fields.has("sliding_window") else None
    window = fields.whole("sliding_window", default=taken)
    if window is None and "window" in found:
        raise ModelError(f"{fields.name('sliding_window')} is null, and its layer kinds name sliding layers.")
    bias = fields.flag("attention_bias")
    matrices = [
        *attention(size.hidden, size.heads, size.kv_heads, size.head_dim, bias=bias, out_bias=bias),
        *gated(size.hidden, size.ffn),
        *norm(size.hidden) * 4,
        *(norm(size.head_dim) * 2 if qk_norm else []),
    ]
    full = attention_layer(matrices, size.heads, size.kv_heads, size.head_dim)
    stack = [with_window(full, window if kind == "window" else 0) for kind in found]
    return build(fields, name, family, size, stack, is_tied=tied(fields, True))


def glm(fields: Fields, name: str, family: str) -> Model:
    """GLM-4 of 2024 ("glm": two norms a layer) and of 2025 ("glm4": four); gate and up in one projection."""
    size = sizes(fields, kv_heads=2, head_dim=128)
    matrices = [
        *attention(size.hidden, size.heads, size.kv_heads, size.head_dim, bias=fields.flag("attention_bias", True)),
        *gated(size.hidden, size.ffn, fused=True),
        *norm(size.hidden) * (4 if family == "glm4" else 2),
    ]
    layer = attention_layer(matrices, size.heads, size.kv_heads, size.head_dim)
    return build(fields, name, family, size, [layer] * size.layers, is_tied=tied(fields, False))


def molmo(fields: Fields, name: str, family: str) -> Model:
    """Molmo's decoder: fused projections; `intermediate_size` is gate and up together."""
    size = sizes(fields)
    if size.ffn % 2:
        raise ModelError(f"{fields.name('intermediate_size')} is {size.ffn}: gate and up share it, so it must be even.")
    for key, only in (("attention_layer_norm", False), ("norm_after", False)):
        if fields.flag(key, only) is not only:
            raise ModelError(f"{fields.name(key)} is true: norms in those places are not counted for molmo.")
    if fields.flag("weight_tying", None) not in (None, fields.flag("tie_word_embeddings", None)):
        if fields.flag("tie_word_embeddings", None) is not None:
            raise ModelError("weight_tying and tie_word_embeddings differ: drop the wrong one.")
    kind = fields.text("layer_norm_type", "rms")
    if kind != "rms":
        raise ModelError(f"{fields.name('layer_norm_type')} is {kind[:60]!r}: only rms is counted for molmo.")
    matrices = [
        *attention(size.hidden, size.heads, size.kv_heads, size.head_dim, bias=fields.flag("qkv_bias"), fused=True),
        *gated(size.hidden, size.ffn // 2, fused=True),
        *norm(size.hidden) * 2,
    ]
    layer = attention_layer(matrices, size.heads, size.kv_heads, size.head_dim)
    is_tied = fields.flag("weight_tying", tied(fields, False))
    rows = fields.whole("embedding_size", default=size.vocab)
    if rows != size.vocab:
        raise ModelError(f"{fields.name('embedding_size')} is {rows} and vocab_size {size.vocab}: an embedding of "
                         "another size than the head is not counted.")
    note = "the file describes only the decoder: a vision tower and its embedding rows are stored beside it"
    return build(fields, name, family, replace(size, ffn=size.ffn // 2), [layer] * size.layers, is_tied=is_tied,
                 notes=[note])  # fmt: skip
