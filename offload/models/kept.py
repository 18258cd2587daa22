"""What one request keeps on a rank, as a function of its length: layers that grow, windows that fill, and states.

It only rises with the length, so the distribution of lengths says that of the bytes: P(bytes <= x) is P(length <= the
longest that keeps no more than x). Nothing is charged to a request that it has not.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from offload.models.cache import allocated_positions, blocks_of, position_bytes, states_bytes
from offload.models.concurrency import Stored
from offload.models.serving import RankBudget, Serving

if TYPE_CHECKING:
    import numpy as np

_MOST = 2**62  # of a whole number in an array
_FAR = 1e280  # blocks, where nothing bounds their number


@dataclass(frozen=True, slots=True)
class Kept:
    """Bytes of one request of L positions on a rank, besides a prefix that is held once. With n = ceil(L / block):

    constant + growing x max(0, n - prefix) + sum over limited of bytes x min(n, blocks).

    growing : of a block in the layers that grow [B]. limited : (bytes of a block, blocks) of layers that stop growing.
    constant : states, and what windows take for beginning inside a block [B]. prefix : blocks. block : positions.
    """

    growing: int
    limited: tuple[tuple[int, int], ...]
    constant: int
    prefix: int
    block: int

    def bytes(self, length: int) -> int:
        """Of a request of so many positions."""
        blocks = blocks_of(length, self.block)
        windows = sum(size * min(blocks, most) for size, most in self.limited)
        return self.constant + self.growing * max(0, blocks - self.prefix) + windows

    def mean(self, lengths: Stored) -> float:
        """The mean of what requests of these lengths keep in layers that stop growing, and the constant. [B]"""
        import numpy as np

        ends = np.array([float(most) for _, most in self.limited])
        means = lengths.blocks_up_to(ends, self.block) if self.limited else ends
        return self.constant + sum(size * float(mean) for (size, _), mean in zip(self.limited, means, strict=True))

    def mean_bytes(self, lengths: Stored) -> float:
        """The mean of all that requests of these lengths keep. [B]"""
        import numpy as np

        if not self.growing:
            return self.mean(lengths)
        shared, all_of_them = lengths.blocks_up_to(np.array([float(self.prefix), _FAR]), self.block)
        return self.growing * float(all_of_them - shared) + self.mean(lengths)

    @property
    def unit(self) -> int:
        """The largest size [B] that all amounts besides the constant are multiples of; 0 where there are none."""
        return math.gcd(self.growing, *(size for size, _ in self.limited))

    def amount(self, lengths: Stored) -> KeptAmount | None:
        """What requests of these lengths keep besides the constant, in units; None where that is nothing."""
        unit = self.unit
        limited = tuple((size // unit, most) for size, most in self.limited) if unit else ()
        return KeptAmount(lengths, self.growing // unit, limited, self.prefix, self.block) if unit else None


def kept_on(serving: Serving, rank: RankBudget) -> Kept:
    """What a request keeps on a rank. Raises ModelError as `position_bytes`."""
    own = serving.layers[rank.layers[0] : rank.layers[1] + 1]
    batched = serving.chunk if serving.widened else 1
    growing, constant = 0, states_bytes((one.state for one in own if one.state is not None), serving.tp)
    limited: dict[int, int] = {}
    for cache, layers in Counter(layer.cache for layer in own).items():
        each = layers * position_bytes(cache, serving.format, tp=serving.tp, index_format=serving.index_format)
        if cache.grows:
            growing += each * serving.block
        elif each:
            most = cache.window + batched - (cache.kind == "window")
            begun = allocated_positions(cache, 1, block=serving.block, batched=batched) // serving.block - 1
            blocks = blocks_of(most, serving.block)
            limited[blocks] = limited.get(blocks, 0) + each * serving.block
            constant += begun * each * serving.block
    shared = serving.shared_prefix // serving.block if growing else 0
    return Kept(growing, tuple((size, blocks) for blocks, size in sorted(limited.items())), constant, shared,
                serving.block)  # fmt: skip


@dataclass(frozen=True, slots=True)
class KeptAmount:
    """What a request keeps on a rank besides the constant, in units: an amount of `overflow`.

    growing, limited : as of `Kept`, in units.
    """

    lengths: Stored
    growing: int
    limited: tuple[tuple[int, int], ...]
    prefix: int
    block: int

    @property
    def shape(self) -> tuple[int, tuple[tuple[int, int], ...], int]:
        """Equal for ranks whose amounts are the same."""
        return self.growing, self.limited, self.prefix

    def _corners(self) -> tuple[list[int], list[int], list[int]]:
        """Blocks between which the amount is straight, the amounts there, and the slopes after them."""
        blocks = sorted({0, self.prefix, *(most for _, most in self.limited)})
        values = [self.growing * max(0, n - self.prefix) + sum(size * min(n, most) for size, most in self.limited)
                  for n in blocks]  # fmt: skip
        slopes = [self.growing * (n >= self.prefix) + sum(size for size, most in self.limited if n < most)
                  for n in blocks]  # fmt: skip
        return blocks, values, slopes

    def _blocks(self, ends: np.ndarray, whole: bool) -> np.ndarray:
        """The most blocks that keep no more than each end, in whole ones or not; `_FAR` where any number does."""
        import numpy as np

        blocks, values, slopes = (np.array([min(one, _MOST) for one in ones]) for ones in self._corners())
        ends = ends.astype(np.int64) if whole else ends
        at = np.searchsorted(values, ends, side="right") - 1
        over, slope = ends - values[at], slopes[at]
        steps = over // np.maximum(slope, 1) if whole else over / np.maximum(slope, 1)
        return np.where(slope > 0, (blocks[at] + steps).astype(np.float64), _FAR)

    def at_most(self, ends: np.ndarray) -> np.ndarray:
        """P(amount <= end) for each whole end."""
        import numpy as np

        blocks = self._blocks(ends, True)
        new = np.diff(blocks, prepend=-1.0) > 0  # several ends may have the same blocks
        chances: np.ndarray = self.lengths.below(blocks[new] * self.block)[np.cumsum(new) - 1]
        return chances

    def mean_up_to(self, ends: np.ndarray) -> np.ndarray:
        """E[the smaller of amount and end] for each end: the amount of the fewer of the blocks and the end's."""
        import numpy as np

        blocks = self._blocks(ends, False)
        blocks[blocks == _FAR] = self._corners()[0][-1]  # more blocks keep no more

        corners = [float(most) for most in {_FAR, self.prefix} if self.growing]
        corners += [float(most) for _, most in self.limited]
        means = self.lengths.blocks_up_to(np.append(blocks, corners), self.block)
        at = dict(zip(corners, means[len(blocks) :], strict=True))

        def up_to(most: float) -> np.ndarray:
            return np.where(blocks <= most, means[: len(blocks)], at[float(most)])

        grown: Any = up_to(_FAR) - up_to(self.prefix) if self.growing else 0.0
        mean: np.ndarray = self.growing * grown + sum(size * up_to(most) for size, most in self.limited)
        return mean
