"""Weights as they are stored: every tensor's shape, type and exact bytes, and their sums by layer and role.

A quantised matrix is stored as several tensors (packed numbers, scales, zero points); `groups` puts them together, so
that bits per weight need no table.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, TypeVar, cast

from offload.readers.headers import product
from offload.readers.tensor_names import said_by

Key = TypeVar("Key", bound=Hashable)
MTP = "mtp"
WHOLE_BITS = (2, 3, 4, 5, 6, 8)  # of packed whole numbers


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a file.

    shape : outermost dimension first; None where only an index names it. type : in small letters ("bf16", "q4_k").
    bytes : what it takes in the file. offset : of its first byte in the file. Each None where only an index names it.
    """

    name: str
    shape: tuple[int, ...] | None
    type: str
    bytes: int | None
    file: str
    offset: int | None

    @property
    def elements(self) -> int | None:
        """Elements of the shape; of packed numbers these are the words that hold them."""
        return None if self.shape is None else product(self.shape)

    @property
    def size(self) -> int:
        """`bytes` of a tensor that is not from an index alone."""
        return cast(int, self.bytes)

    @property
    def dimensions(self) -> tuple[int, ...]:
        """`shape` of a tensor that is not from an index alone."""
        return cast("tuple[int, ...]", self.shape)


@dataclass(frozen=True, slots=True)
class Omitted:
    """A value of a file's metadata that is too long to be kept: `count` items (or bytes of a text) of a `kind`."""

    kind: str
    count: int


@dataclass(frozen=True, slots=True)
class Group:
    """A tensor with the tensors that belong to it (scales, zero points, code books).

    name : as it is called unquantised ("...q_proj.weight"). layer : None outside of layers. bytes : of all of them;
    None where only an index names them. elements : weights that they stand for; None where their packing does not say.
    """

    name: str
    layer: int | None
    role: str
    bytes: int | None
    elements: int | None
    main: StoredTensor
    companions: tuple[StoredTensor, ...]

    @property
    def size(self) -> int:
        """`bytes` of what is not from an index alone."""
        return cast(int, self.bytes)

    @property
    def bits_per_weight(self) -> float | None:
        return 8 * self.bytes / self.elements if self.bytes is not None and self.elements else None


@dataclass(frozen=True, slots=True)
class Share:
    """What the tensors of one role take. elements : None where they are not known of all; then so are the bits."""

    tensors: int
    bytes: int
    elements: int | None

    @property
    def bits_per_weight(self) -> float | None:
        return 8 * self.bytes / self.elements if self.elements else None


@dataclass(frozen=True)
class StoredWeights:
    """All tensors of a model's files, in the files' order.

    path : what was read. metadata : what the files say besides (a GGUF's keys, `__metadata__`, an index's totals); long
    lists as `Omitted`. notes : what a person should know about the files, in whole words. files : their names.
    """

    path: str
    format: Literal["gguf", "safetensors"]
    tensors: tuple[StoredTensor, ...]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "metadata", MappingProxyType(dict(self.metadata)))

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(tensor.file for tensor in self.tensors))

    @cached_property
    def sized(self) -> bool:
        """Whether each tensor's bytes are known (not from an index alone)."""
        return all(tensor.bytes is not None for tensor in self.tensors)

    @cached_property
    def bytes(self) -> int | None:
        """Bytes of all tensors, headers and padding left out; from an index alone its total_size, if it has one."""
        if self.sized:
            return sum(tensor.size for tensor in self.tensors)
        total: int | None = self.metadata.get("total_size")
        return total

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """Tensors with their companions, in the files' order; last, companions of what is not there."""
        return self.grouped()

    @cached_property
    def mtp_layers(self) -> frozenset[int]:
        """Layers that predict further tokens: stored with the others, left out of the decoder's own."""
        return frozenset(layer for layer, role, _, _ in self.said if role == MTP and layer is not None)

    @cached_property
    def said(self) -> tuple[tuple[int | None, str, str, str | None], ...]:
        """What each tensor's name says, as of `said_by`."""
        return tuple(said_by(tensor.name) for tensor in self.tensors)

    @property
    def numbered_layers(self) -> int:
        """Layers that the tensors' names number, those that predict further tokens too."""
        return len({layer for layer, _, _, _ in self.said} - {None})

    def grouped(self, packed_bits: int | None = None) -> tuple[Group, ...]:
        """`groups`, with the bits of packed whole numbers given where the files alone do not tell them (a config's
        `bits`: MLX, and symmetric compressed-tensors, store none that would say).
        """
        mains: dict[str, tuple[StoredTensor, int | None, str]] = {}  # with layer and role
        beside: dict[str, list[StoredTensor]] = {}
        alone: list[tuple[str, StoredTensor, int | None, str]] = []
        for tensor, (layer, role, name, of) in zip(self.tensors, self.said, strict=True):
            if of is not None:
                beside.setdefault(of, []).append(tensor)
            elif name in mains:
                alone.append((tensor.name, tensor, layer, role))
            else:
                if name != tensor.name:
                    layer, role, _, _ = said_by(name)
                mains[name] = tensor, layer, role
        for name, companions in beside.items():
            if name not in mains:
                alone += [(tensor.name, tensor, *said_by(tensor.name)[:2]) for tensor in companions]
        found, mtp = [], self.mtp_layers
        every = [(name, *one, tuple(beside.get(name, ()))) for name, one in mains.items()]
        for name, tensor, layer, role, of_it in [*every, *((*one, ()) for one in alone)]:
            sizes = [one.bytes for one in (tensor, *of_it)]
            found.append(Group(
                name=name,
                layer=layer,
                role=MTP if layer in mtp else role,
                bytes=_sum(sizes),
                elements=_elements(tensor, of_it, packed_bits),
                main=tensor,
                companions=of_it,
            ))  # fmt: skip
        return tuple(found)

    @property
    def elements(self) -> int | None:
        """Weights that the tensors stand for; None where they are not known of all."""
        return _sum([group.elements for group in self.groups])

    @property
    def bits_per_weight(self) -> float | None:
        """All bytes, scales included, over all weights; None where either is not known."""
        return 8 * cast(int, self.bytes) / self.elements if self.sized and self.elements else None

    def by_role(self) -> dict[str, Share]:
        """What each role takes, the largest first; empty from an index alone."""
        return self._shares(lambda group: group.role)

    def by_layer(self) -> dict[int | None, Share]:
        """What each layer takes, in their order; under None what is in no layer. Empty from an index alone."""
        found = self._shares(lambda group: group.layer)
        return {layer: found[layer] for layer in sorted(found, key=lambda one: (one is None, one))}

    def by_layer_and_role(self) -> dict[tuple[int | None, str], Share]:
        """What each role takes in each layer. Empty from an index alone."""
        return self._shares(lambda group: (group.layer, group.role))

    def types(self) -> dict[str, Share]:
        """What the tensors of each type take, companions by themselves, the largest first."""
        kinds: dict[str, list[StoredTensor]] = {}
        for tensor in self.tensors if self.sized else ():
            kinds.setdefault(tensor.type, []).append(tensor)
        shares = {kind: Share(len(of), sum(one.size for one in of), _sum([one.elements for one in of]))
                  for kind, of in kinds.items()}  # fmt: skip
        return dict(sorted(shares.items(), key=lambda item: -item[1].bytes))

    def _shares(self, key_of: Callable[[Group], Key]) -> dict[Key, Share]:
        kinds: dict[Key, list[Group]] = {}
        for group in self.groups if self.sized else ():
            kinds.setdefault(key_of(group), []).append(group)
        shares = {}
        for key, groups in kinds.items():
            tensors = sum(1 + len(group.companions) for group in groups)
            shares[key] = Share(tensors, sum(group.size for group in groups), _sum([one.elements for one in groups]))
        return dict(sorted(shares.items(), key=lambda item: -item[1].bytes))


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _elements(main: StoredTensor, companions: tuple[StoredTensor, ...], packed_bits: int | None) -> int | None:
    """Weights that a tensor stands for: its own elements, or the numbers that are packed in them.

    What says how many are packed, in this order: two fields of the same group sizes (a zero point is packed as the
    weights are, a scale is not), the rows that GPTQ's `g_idx` lists, and block formats of 4 bits with a fixed number of
    elements to a scale (MXFP4 32, NVFP4 16, bitsandbytes' quant_state).
    """
    words = main.elements
    if words is None or not companions and main.name.endswith((".codes", ".trellis", ".q_weight", ".W_q")):
        return None
    if not companions:
        return words
    ends = {companion.name.removeprefix(main.name).rpartition(".")[2]: companion for companion in companions}
    if any(name.endswith(("__nf4", "__fp4")) for name in ends):
        return 2 * words
    scale = next((one for one in companions if one.name.endswith(("scales", "_scale"))
                  and not one.name.endswith(("_global_scale", "input_scale"))), None)  # fmt: skip
    if main.type in ("i32", "u32"):
        zeros = next((one for one in companions if one.name.endswith(("qzeros", "_zero_point"))
                      and one.type == main.type), None)  # fmt: skip
        if zeros is not None and zeros.elements is not None and scale is not None and scale.elements:
            bits, rest = divmod(32 * zeros.elements, scale.elements)
            if not rest and bits in WHOLE_BITS:
                return 32 * words // bits
        rows = next((one for one in companions if one.name.endswith("g_idx") and len(one.dimensions) == 1), None)
        if rows is not None and len(main.dimensions) == 2:  # GPTQ packs along its columns
            return rows.dimensions[0] * main.dimensions[1 if main.name.endswith("qweight") else 0]
        return 32 * words // packed_bits if packed_bits else None
    if main.type == "u8":
        if scale is not None and scale.elements is not None and (scale.type, words) in (
            ("u8", 16 * scale.elements), ("f8_e8m0", 16 * scale.elements), ("f8_e4m3", 8 * scale.elements),
        ):  # fmt: skip
            return 2 * words
        return None
    return None if main.name.endswith((".codes", ".trellis", ".q_weight", ".W_q")) else words
