"""How many requests fit: a model's memory budget and the lengths of its requests, put together into one answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil
from typing import Any, cast

from offload import __version__
from offload.errors import ModelError
from offload.memory_behind import Behind, Host, Preemption, Tier, Way, host_of, preemption_of, tiers_of
from offload.memory_requests import Admission, admit, most_by_risk
from offload.models import Model, weigh
from offload.models.budget import kv_format_of, kv_notes
from offload.models.concurrency import mean_stored, steady_mean
from offload.models.lengths import Lengths
from offload.models.levers import (
    Lever,
    Reach,
    changes,
    lever,
    lighter_format,
    logical_positions,
    longest_context,
    most_requests,
    reaches,
)
from offload.models.overflow import Risk
from offload.models.ranks import layer_bytes, sizes_of
from offload.models.serving import LayerBytes, RankBudget, Serving, ServingBudget, gpus_of, serving_budget
from offload.models.weights import is_stored
from offload.models.whole import ceil_div

FORMAT = 1  # version of the keys; raised when one changes its meaning or goes away
SHARE = 0.99  # the quantile at which each request is held at worst
FEW = 20  # requests of a list beyond which they are a distribution too


@dataclass(frozen=True, slots=True)
class Memory:
    """The answer. Counts of requests are None where the question does not arise.

    weights : their format; None where the KV memory itself was given. now : requests of a list that fit in order;
    asked : how many it has; used : bytes that all of them take on the tightest rank, that which overflows first;
    stored : their positions in blocks. at_share, at_largest : that fit with each at its 99th percentile, at its
    longest. by_risk : the most at the risk that was asked for, of a distribution or drawn from a list; beyond : one
    more. mean_used : bytes of those at their mean on the rank that they overflow first; mean_base : what it has for KV.
    at_mean, at_steady : that fit with each of the mean length, of `steady`. steady : mean positions of a request at a
    random moment; prompt : the mean prompt that was given, None where all of a length but a shared prefix is output.
    preemption : of a request of mean length.
    kv_from : "asked", "checkpoint" (its config states the KV format) or "default". host : host memory, None where
    nothing is said to be there. tiers : slower memories for KV. gpus : that the server has, None where not known.
    """

    model: Model
    weights: str | None
    serving: Serving
    budget: ServingBudget
    lengths: Lengths
    risk: float
    asked: int | None
    now: int | None
    used: int | None
    stored: int | None
    at_share: int | None
    at_largest: int | None
    by_risk: Risk | None
    beyond: Risk | None
    curve: tuple[Risk, ...]
    mean_used: float | None
    mean_base: int | None
    at_mean: int | None
    at_steady: int | None
    steady: float
    prompt: float | None
    longest: int | None
    reaches: tuple[Reach, ...]
    levers: tuple[Lever, ...]
    preemption: Preemption
    warnings: tuple[str, ...]
    kv_from: str
    host: Host | None
    tiers: tuple[Tier, ...]
    gpus: int | None

    @property
    def fits(self) -> bool:
        """Whether the requests fit, and in host memory what is to be there."""
        return self.requests_fit and not (self.host is not None and self.host.missing)

    @property
    def requests_fit(self) -> bool:
        """Whether all requests of a list fit on the GPUs; without a list, whether one request does."""
        if self.asked is not None:
            return self.now == self.asked
        return all(rank.left >= 0 for rank in self.budget.ranks) and (self.at_share is None or self.at_share > 0)

    @property
    def alike(self) -> bool:
        """Whether all requests have one length."""
        return self.lengths.largest is not None and self.lengths.quantile(1e-9) == self.lengths.largest

    @property
    def growing_everywhere(self) -> int:
        """Bytes of one position on the ranks of all stages together, copies of heads and latents included."""
        return self.serving.tp * sum(rank.growing for rank in self.budget.ranks)

    @property
    def shortcut(self) -> float | None:
        """Positions as count x length says: of a list count x longest, of what risk admits count x mean."""
        if self.asked is not None:
            return self.asked * cast(int, self.lengths.largest)  # a list has one
        return None if self.by_risk is None else self.by_risk.requests * self.lengths.mean

    @property
    def mean_left_share(self) -> float | None:
        """What of the KV memory the requests admitted by risk leave at their mean; None where there is none."""
        if self.mean_used is None or self.mean_base is None or self.mean_base <= 0:
            return None
        return 1 - self.mean_used / self.mean_base

    @property
    def left(self) -> int | None:
        """Bytes of the tightest rank's KV memory that a list of requests leaves."""
        return None if self.used is None else self.budget.tightest.left - self.used


def serving_of(
    model: Model, weights: str | None, capacity: int, *, tp: int = 1, gpu_layers: int | None = None, **values: Any
) -> Serving:
    """A GPU's memory with a model; without a format of weights the memory is for KV alone.

    capacity : of one rank [B]. gpu_layers : how many of the first layers have their weights there (default: all).
    values : of a `Serving`. Raises ModelError for what is not known or impossible.
    """
    if weights is None:
        kept = tuple(LayerBytes(0, cache=one.cache, state=one.state) for one in layer_bytes(model, "bf16"))
        return Serving(capacity, kept, tp=tp, **values)
    return Serving(capacity, tp=tp, sizes=sizes_of(model), **_weight_values(model, weights, tp, gpu_layers), **values)


def _weight_values(model: Model, weights: str, tp: int, gpu_layers: int | None) -> dict[str, Any]:
    """The values of a `Serving` that the weights' format sets."""
    weighed, layers = weigh(model, weights), layer_bytes(model, weights, tp)
    if gpu_layers is not None:
        layers = (*layers[:gpu_layers], *(replace(layer, hosted=True) for layer in layers[gpu_layers:]))
    return {"layers": layers, "embedding": weighed.embedding, "head": None if model.tied else weighed.head,
            "other": weighed.norm + weighed.outside}  # fmt: skip


def answer_memory(
    model: Model, weights: str | None, capacity: int, lengths: Lengths, *, risk: float = 0.01,
    link: Way | float | None = None, flops: float | None = None, behind: Behind | None = None,
    warnings: tuple[str, ...] = (), gpus: int | None = None, drawn: bool | None = None,
    prompt: int | Sequence[int] | None = None, **values: Any,
) -> Memory:
    """How many requests of these lengths fit on the GPU, and what would change it.

    weights, capacity, values : as `serving_of`; its context and requests follow from the lengths, and the KV format
    from the model's checkpoint where none is given. risk : of overflow, that is accepted. link : rate of swapping
    [B/s], flops : rate of computing again [FLOP/s]. behind : memories behind the GPUs. warnings : to be told besides.
    gpus : that there are, None where not known. drawn : of a list, answer by risk too, with requests drawn from it
    (default: where it has more than 20). prompt : positions of each request, or of each one of a list, that are there
    from the start; the rest is output. Raises ModelError as `serving_of`, and for a prompt that is all of a request.
    """
    behind = behind or Behind()
    asked = values.pop("format", None)
    values["format"], origin = kv_format_of(model, asked)
    gpu_layers = None if behind.hosting is None else behind.hosting.gpu_layers
    listed = lengths.values if lengths.kind == "list" else None
    largest = lengths.largest
    context = lengths.quantile(SHARE) if largest is None else largest
    shortest = min(listed) if listed else lengths.quantile(1 - SHARE)
    if values.get("shared_prefix", 0) >= shortest:
        raise ModelError(f"a shared prefix of {values['shared_prefix']:,} positions leaves nothing to requests of "
                         f"{shortest:,}; lengths include the prefix.")  # fmt: skip
    serving = serving_of(model, weights, capacity, **values, context=context, requests=len(listed or (0,)),
                         gpu_layers=gpu_layers)  # fmt: skip
    drawn = len(listed or ()) > FEW if drawn is None else drawn
    found = admit(serving, lengths, risk, drawn and largest is not None and min(listed or (0,)) < largest)
    serving = found.serving
    length = max(1, round(lengths.mean))
    mean = serving_budget(replace(serving, context=max(length, serving.shared_prefix + 1)))
    preemption = preemption_of(model, serving, mean, length, link, flops, behind.ways)
    host = host_of(model, weights, serving, behind)
    steady, given = _steady(lengths, serving.shared_prefix, prompt)
    return Memory(
        model, weights, serving, found.budget, lengths, risk, None if listed is None else len(listed), found.now,
        found.used, found.stored, _worst(serving, lengths, SHARE), _worst(serving, lengths, None), found.by_risk,
        found.beyond, found.curve, found.mean_used, found.mean_base,
        most_requests(serving, max(ceil(lengths.mean), serving.shared_prefix + 1)),
        most_requests(serving, max(ceil(steady), serving.shared_prefix + 1)),
        steady, given, longest_context(serving),
        _reaches(serving, lengths, weights),
        _levers(model, weights, found, lengths, risk, shortest // 2, gpu_layers, gpus), preemption,
        (*_warnings(model, weights, serving, context), *kv_notes(model, asked), *warnings), origin, host,
        tiers_of(behind, host, mean, serving, length, preemption.recompute), gpus,
    )  # fmt: skip


def _steady(lengths: Lengths, prefix: int, prompt: int | Sequence[int] | None) -> tuple[float, float | None]:
    """Mean positions of a request at a random moment, and the mean prompt that was given."""
    if prompt is None:
        return steady_mean(lengths, prefix), None
    least = prompt if isinstance(prompt, int) else min(prompt)
    if least < prefix:
        raise ModelError(f"a prompt of {least:,} positions is shorter than the shared prefix of {prefix:,}, which is "
                         "part of it. Lower the prefix.")  # fmt: skip
    listed = lengths.values
    prompts = [prompt] * len(listed) if isinstance(prompt, int) else prompt
    for own, length in zip(prompts, listed, strict=False):
        if own >= length:
            raise ModelError(f"a prompt of {own:,} positions leaves no output to a request of {length:,}; lengths "
                             "include the prompt.")  # fmt: skip
    if not listed:
        alike = cast(int, prompt)  # several are of a list
        return steady_mean(lengths, alike), float(alike)
    outputs = [length - own for own, length in zip(prompts, listed, strict=True)]
    return mean_stored(prompts, outputs), sum(prompts) / len(prompts)


def _worst(serving: Serving, lengths: Lengths, share: float | None) -> int | None:
    """Requests that fit with each at its longest, or at a quantile: with its windows, states and the shared prefix."""
    longest = lengths.largest if share is None else lengths.quantile(share)
    return None if longest is None else most_requests(serving, longest)


def _reaches(serving: Serving, lengths: Lengths, weights: str | None) -> tuple[Reach, ...]:
    """How far the memory reaches for requests that are all of the mean length."""
    alike = replace(serving, context=max(ceil(lengths.mean), serving.shared_prefix + 1))
    return tuple(one for one in reaches(alike) if weights or one.what != "chunk")


def _levers(
    model: Model, weights: str | None, found: Admission, lengths: Lengths, risk: float, prefix: int,
    gpu_layers: int | None, gpus: int | None,
) -> tuple[Lever, ...]:
    """Single changes; of a distribution, requests are those at the same risk."""
    serving = found.serving
    lighter, words = (None, "") if weights is None else _lighter(model, weights)
    less = _weight_values(model, lighter, serving.tp, gpu_layers) if lighter else None
    tried = []
    for what, values in changes(serving, lighter=less, lighter_words=words, prefix=prefix, gpus=gpus):
        if "tp" in values and weights is not None:  # key and value projections go with their heads
            values |= _weight_values(model, weights, 2 * serving.tp, gpu_layers)
        one = lever(serving, what, **values)
        if found.by_risk is not None and not one.reason:
            setting: dict[str, Any] = values
            now, then = found.by_risk.requests, replace(serving, **setting)
            most = most_by_risk(then, lengths, risk)
            before, after = logical_positions(serving, now), logical_positions(then, most)
            one = Lever(what, after, None if after is None or before is None else after - before, most, most - now)
        tried.append(one)
    return tuple(tried)


def _lighter(model: Model, weights: str) -> tuple[str | None, str]:
    """The weight format one down that makes the model smaller, and its words; None where there is none.

    Of a file's own tensors it is the table's: the same tensors, stored in another format.
    """
    if not is_stored(model, weights):
        lighter = lighter_format(weights)
        return lighter, lighter or ""
    named = model.stored.format.removesuffix(" as stored")
    if model.quantised is not None:
        lighter = lighter_format(model.quantised.format)
    elif named in ("F32", "F16", "BF16"):  # a GGUF's, whose names are written large
        lighter = "q8_0"
    else:
        lighter = lighter_format(STORED_TYPES.get(named, named))
    if lighter is None or weigh(model, lighter).total >= model.stored.total:
        return None, ""
    return lighter, f"{lighter}, by the format's table (now {model.stored.format})"


STORED_TYPES = {"f8_e4m3": "fp8", "f8_e5m2": "fp8"}  # of safetensors


def _warnings(model: Model, weights: str | None, serving: Serving, longest: int) -> tuple[str, ...]:
    found = list(model.notes)
    if model.heads % serving.tp:
        found.append(f"{serving.tp} tensor-parallel ranks do not share {model.heads} attention heads evenly: a rank "
                     f"with {ceil_div(model.heads, serving.tp)} was counted, and most engines refuse it")
    if model.max_positions is not None and longest > model.max_positions:
        found.append(f"requests of {longest:,} positions exceed the {model.max_positions:,} that {model.name} states")
    if weights is not None and not (serving.communication or serving.graphs or serving.allocator):
        found.append("not counted: communication buffers, captured graphs, the allocator's reservation "
                     "(--communication, --graphs, --allocator)")  # fmt: skip
    if weights is None:
        found.append("the KV memory was given: weights and activations were not counted")
    return tuple(found)


def _blocks(rank: RankBudget) -> int | None:
    return None if rank.alone is None else rank.alone // rank.block


def memory_to_json(answer: Memory) -> dict[str, Any]:
    """The answer as plain data. Bytes, positions, seconds and shares; what is not known is null."""
    rank, shown = answer.budget.tightest, answer.preemption
    return {
        "format": FORMAT,
        "offload_version": __version__,
        "model": answer.model.name,
        "weights": answer.weights,
        "kv": answer.serving.format,
        "kv_from": answer.kv_from,
        "capacity": answer.serving.capacity,
        "ranks": [
            {"stage": one.stage, "layers": list(one.layers), "lines": [asdict(line) for line in one.lines],
             "kv_bytes": one.left, "positions": one.alone, "blocks": _blocks(one)}
            for one in answer.budget.ranks
        ],
        "gpus": gpus_of(answer.serving.tp, answer.serving.pp, answer.serving.ep),
        "tightest": rank.stage,
        "kv_bytes_per_token": rank.growing,
        "kv_bytes_per_token_all_ranks": answer.growing_everywhere,
        "kv_bytes_per_request": rank.full,
        "block": answer.serving.block,
        "positions": rank.alone,
        "blocks": _blocks(rank),
        "lengths": {"text": answer.lengths.text, "mean": answer.lengths.mean, "largest": answer.lengths.largest,
                    "p99": answer.lengths.quantile(SHARE), "steady_mean": answer.steady,
                    "prompt_mean": answer.prompt},
        "requests": {"asked": answer.asked, "now": answer.now, "each_at_p99": answer.at_share,
                     "each_at_largest": answer.at_largest, "each_at_mean": answer.at_mean,
                     "each_at_steady_mean": answer.at_steady,
                     "by_risk": None if answer.by_risk is None else answer.by_risk.requests},
        "stored": answer.stored,
        "shortcut": answer.shortcut,
        "used": answer.used,
        "left": answer.left,
        "left_share": None if answer.left is None or rank.left <= 0 else answer.left / rank.left,
        "risk": {"accepted": answer.risk,
                 "admitted": None if answer.by_risk is None else asdict(answer.by_risk),
                 "one_more": None if answer.beyond is None else asdict(answer.beyond),
                 "mean_used": answer.mean_used, "kv_bytes": answer.mean_base,
                 "mean_left_share": answer.mean_left_share,
                 "curve": [asdict(one) for one in answer.curve]},
        "longest_context": answer.longest,
        "model_context": answer.model.max_positions,
        "reaches": [asdict(one) for one in answer.reaches],
        "levers": [asdict(one) for one in answer.levers],
        "preemption": {"swap": shown.swap, "recompute": shown.recompute, "link": shown.link,
                       "link_rate": shown.link_rate, "flops": shown.flops},
        "host": None if answer.host is None else {
            "lines": [asdict(line) for line in answer.host.lines], "total": answer.host.total,
            "capacity": answer.host.capacity, "missing": answer.host.missing, "step_bytes": answer.host.step_bytes,
            "step_seconds": answer.host.step_seconds,
        },
        "tiers": [
            {"name": one.name, "capacity": one.capacity, "request_bytes": one.request_bytes, "bound": one.bound,
             **asdict(one.kv)}
            for one in answer.tiers
        ],
        "warnings": list(answer.warnings),
        "fits": answer.fits,
    }  # fmt: skip
