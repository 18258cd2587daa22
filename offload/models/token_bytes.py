"""KV bytes of one position by plain numbers: any bits for an element, any scale, equal layers."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from offload.errors import ModelError
from offload.models.cache import LARGEST, MOST_RANKS
from offload.models.whole import ceil_div, check_whole


@dataclass(frozen=True, slots=True)
class TokenBytes:
    """Bytes of one position [B].

    layer : in one layer, all heads. model : in all layers. rank : on each tensor-parallel rank. all_ranks : on all of
    them, copies included.
    """

    layer: int
    model: int
    rank: int
    all_ranks: int


def token_bytes_of_heads(
    layers: int, kv_heads: int, head_dim: int, *, bits: int = 16, scale_bytes: int = 0, tp: int = 1
) -> TokenBytes:
    """Keys and values of MHA, GQA or MQA: 2 x kv_heads x (head_dim x bits / 8 + scale_bytes) in each layer.

    scale_bytes : of the scale that each head has for each position, keys and values one each. A rank holds
    ceil(kv_heads / tp) heads, at least one, so that more ranks than heads keep copies. Raises ModelError unless all
    are whole, and a head whole bytes.
    """
    check_whole("kv_heads", kv_heads, 1, LARGEST)
    check_whole("head_dim", head_dim, 1, LARGEST)
    check_whole("scale_bytes", scale_bytes, 0, LARGEST)
    check_whole("ranks (tp)", tp, 1, MOST_RANKS)
    head = 2 * (_whole_bytes("a head", head_dim, bits) + scale_bytes)
    return _of_layers(layers, kv_heads * head, ceil_div(kv_heads, tp) * head, tp)


def token_bytes_of_latents(layers: int, latent: int, rope: int, *, bits: int = 16, tp: int = 1) -> TokenBytes:
    """A latent and its rotary part (MLA), one row for all heads: (latent + rope) x bits / 8, on every rank in full.

    Raises ModelError unless all are whole, and a row whole bytes.
    """
    check_whole("latent", latent, 1, LARGEST)
    check_whole("rope", rope, 0, LARGEST)
    check_whole("ranks (tp)", tp, 1, MOST_RANKS)
    row = _whole_bytes("a row", latent + rope, bits)
    return _of_layers(layers, row, row, tp)


def _of_layers(layers: int, layer: int, rank: int, tp: int) -> TokenBytes:
    check_whole("layers", layers, 1, LARGEST)
    return TokenBytes(layer, layers * layer, layers * rank, tp * layers * rank)


def _whole_bytes(what: str, elements: int, bits: int) -> int:
    check_whole("bits of an element", bits, 1, 64)
    size = Fraction(elements * bits, 8)
    if size.denominator != 1:
        raise ModelError(f"{what} of {elements} elements of {bits} bits is {float(size):g} bytes; it must be whole.")
    return int(size)
