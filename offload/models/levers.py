"""How far a memory reaches, and what would change it: the most of each thing that fits, and single changes tried.

Nothing is differentiated or scaled: each answer is the budget, evaluated again with one value changed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from offload.errors import ModelError
from offload.models.serving import Serving, gpus_of, serving_budget
from offload.models.weights import weight_format

NO_LIMIT = 10**12  # nothing stops it
# Each weight format, and the one that is commonly taken where it is too large; the smallest of a kind have none.
LIGHTER = {
    "fp32": "bf16", "bf16": "fp8", "fp16": "fp8",
    "fp8": "int4-g128", "fp8-channel": "int4-g128", "fp8-128x128": "int4-g128", "fp8-128x128-ue8m0": "int4-g128",
    "int8": "int4-g128", "int8-g128": "int4-g128", "bnb-int8": "nf4", "mxfp8": "mxfp4-all",
    "int4-g32": "int4-g128", "int4-g64": "int4-g128", "nf4": "nf4-double", "mlx-8bit-g64": "mlx-4bit-g64",
    "q8_0": "q4_k_m", "q6_k": "q4_k_m", "q5_k_m": "q4_k_m", "q5_k_s": "q4_k_s", "q5_1": "q4_1", "q5_0": "q4_0",
    "q4_1": "q4_0", "q4_k_m": "q3_k_m", "q4_k_s": "q3_k_s", "q4_0": "q3_k_m", "q3_k_l": "q3_k_m", "q3_k_m": "q2_k",
    "q3_k_s": "q2_k_s", "q2_k": "q2_k_s", "q2_k_s": "iq2_xs", "iq4_nl": "iq4_xs", "iq4_xs": "iq3_m", "iq3_m": "iq3_s",
    "iq3_s": "iq3_xs", "iq3_xs": "iq3_xxs", "iq3_xxs": "iq2_m", "iq2_m": "iq2_s", "iq2_s": "iq2_xs",
    "iq2_xs": "iq2_xxs", "iq2_xxs": "iq1_m", "iq1_m": "iq1_s", "tq2_0": "tq1_0",
}  # fmt: skip
_OTHERS = (  # of names with parameters
    (re.compile(r"int[5-8]-.*|fp8-.*"), "int4-g128"), (re.compile(r"mlx-[568]bit-g(\d+)"), r"mlx-4bit-g\1"),
)  # fmt: skip


def lighter_format(format: str) -> str | None:
    """The weight format one down, by any name of a format; None where no lower one is common, or none has that name."""
    try:
        name, _ = weight_format(format)
    except ModelError:
        return None
    if name in LIGHTER:
        return LIGHTER[name]
    return next((found.expand(lower) for kind, lower in _OTHERS if (found := kind.fullmatch(name))), None)


@dataclass(frozen=True, slots=True)
class Reach:
    """The most of one thing that fits, all else as asked.

    what : "context", "requests" or "chunk". most : None where nothing stops it, 0 where not even one fits.
    """

    what: str
    now: int
    most: int | None

    @property
    def ratio(self) -> float | None:
        """How many times what is asked for would fit; None where nothing stops it."""
        return None if self.most is None else self.most / self.now


def reaches(serving: Serving) -> tuple[Reach, ...]:
    """The largest context, number of requests and prefill chunk that fit; the nearest to what is asked for first.

    The first is what breaks the fit first as things grow in proportion. Where it does not fit as it is, the first is
    the one of which the least must be given up for it to fit; what cannot make it fit is last.
    """
    found = [Reach(what, getattr(serving, what), _most(serving, what)) for what in ("context", "requests", "chunk")]
    nearest = sorted(found, key=lambda one: float("inf") if one.ratio is None else one.ratio)
    return tuple(nearest if serving_budget(serving).fits else reversed(nearest))


def longest_context(serving: Serving) -> int | None:
    """The longest context for one request alone; None where nothing stops it, 0 where not even one position fits."""
    return _most(replace(serving, requests=1), "context")


def most_requests(serving: Serving, length: int | None = None) -> int | None:
    """The most requests of `length` positions (by default of the context) that fit on all ranks; None where they keep
    nothing.

    Activations grow with the batch, so the number is looked for and not divided.
    """
    asked = serving if length is None else replace(serving, context=length)
    counts = [one.requests for one in serving_budget(replace(asked, requests=1)).ranks if one.requests is not None]
    if not counts:
        return None
    low, high = 0, min(counts)
    while low < high:
        middle = (low + high + 1) // 2
        fits = serving_budget(replace(asked, requests=middle)).fits
        low, high = (middle, high) if fits else (low, middle - 1)
    return low


def _most(serving: Serving, what: str) -> int | None:
    least = serving.shared_prefix + 1 if what == "context" else 1

    def fits(count: int) -> bool:
        change: dict[str, Any] = {what: count}
        return serving_budget(replace(serving, **change)).fits

    if not fits(least):
        return 0
    low, high = least, least + 1
    while fits(high):
        if high >= NO_LIMIT:
            return None
        low, high = high, min(2 * high, NO_LIMIT)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


# --- what would change it ---


@dataclass(frozen=True, slots=True)
class Lever:
    """One change, evaluated again: positions and requests that fit with it on the tightest rank, and those gained.

    reason : why it cannot be made or gains nothing, "" where it can. Counts are None where it cannot be made.
    """

    what: str
    positions: int | None = None
    positions_gained: int | None = None
    requests: int | None = None
    requests_gained: int | None = None
    reason: str = ""


def lever(serving: Serving, what: str, **changes: Any) -> Lever:
    """What a change of some of a `Serving`'s values gains; one that is refused says why."""
    try:
        then = replace(serving, **changes)
        positions, requests = logical_positions(then), most_requests(then)
    except ModelError as error:
        return Lever(what, reason=str(error))
    now, before = logical_positions(serving), most_requests(serving)
    return Lever(what, positions, _gained(now, positions), requests, _gained(before, requests))


def _gained(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


def logical_positions(serving: Serving, fitting: int | None = None) -> int | None:
    """Positions that fit on the rank with the fewest, each request's prefix counted as its own: one request's windows
    and states are taken off (`RankBudget.alone`), and a prefix that is held once is there again for each further one
    of the requests asked for, as far as they fit. fitting : how many do, where that is known. None where nothing grows.
    """
    found = [rank.alone for rank in serving_budget(serving).ranks if rank.alone is not None]
    if not found:
        return None
    shared = serving.shared_prefix // serving.block * serving.block
    if not shared:
        return min(found)
    fitting = most_requests(serving) if fitting is None else fitting
    count = serving.requests if fitting is None else min(serving.requests, fitting)
    return min(found) + max(0, count - 1) * shared


def changes(
    serving: Serving, *, lighter: Mapping[str, object] | None = None, lighter_words: str = "",
    prefix: int | None = None, gpus: int | None = None,
) -> list[tuple[str, dict[str, object]]]:
    """Single changes with the values of a `Serving` that they set: KV in 8 bits, weights one format down, a shared
    prefix, and twice the tensor-parallel ranks.

    lighter : the values of a `Serving` (layers, embedding, head, other) with weights one format down, in words
    `lighter_words`. prefix : positions of the prefix (default: half of the context). gpus : that there are, None where
    not known; ranks that need more are left out. More KV heads to a query are no lever: a model is trained with its
    own.
    """
    found: list[tuple[str, dict[str, Any]]] = []
    if serving.format in ("f16", "bf16", "f32"):
        found.append(("KV cache in fp8", {"format": "fp8"}))
    if lighter is not None:
        found.append((f"weights in {lighter_words}".rstrip(), dict(lighter)))
    shared = serving.context // 2 if prefix is None else prefix
    if serving.requests > 1 and shared > serving.shared_prefix:
        found.append((f"a prefix of {shared:,} positions held once", {"shared_prefix": shared}))
    ranks = {"tp": 2 * serving.tp} | ({"ep": 2 * serving.ep} if serving.ep > 1 else {})
    need = gpus_of(ranks["tp"], serving.pp, ranks.get("ep", 1))
    words = f"tensor-parallel over {ranks['tp']} "
    words += "GPUs" if need == ranks["tp"] else f"ranks ({need} GPUs in all)"
    if gpus is None or need <= gpus:
        found.append((words, ranks))
    return found


def levers(
    serving: Serving, *, lighter: Mapping[str, object] | None = None, lighter_words: str = "",
    prefix: int | None = None,
) -> tuple[Lever, ...]:
    """The `changes`, each evaluated."""
    found = changes(serving, lighter=lighter, lighter_words=lighter_words, prefix=prefix)
    return tuple(lever(serving, what, **values) for what, values in found)
