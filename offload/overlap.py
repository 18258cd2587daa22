"""How component times add up to a step: none, full and partial overlap, and published forms over max and + as data.

A form is an expression tree over named times, read from text such as "max(ctog + dtoc, gtoc + ctod, comp)", so that
models that assume different overlap can be evaluated on the same inputs and compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from offload.bounds import TIE, load_bound
from offload.errors import FormulaError, did_you_mean, shown
from offload.events import maximum
from offload.forms import Max, Node, Sum, Term, parse, terms_of, tree_of
from offload.given import (
    all_positive,
    each_not_negative,
    finite,
    finite_arrays,
    mapping,
    not_negative,
    pairs,
    plain,
    positive,
    share,
)
from offload.plan import Amount


@dataclass(frozen=True, slots=True)
class Combined:
    """Component times [s] at full overlap (longest), at none (total), and in between (seconds)."""

    longest: Amount
    total: Amount
    seconds: Amount


@finite_arrays
def combine(times: Sequence[Amount], omega: Amount) -> Combined:
    """Partial overlap: T = omega max + (1 - omega) sum, an estimate, in [max, sum].

    times : loads of resources over their rates [s], what they share counted in, not times of tasks alone. omega :
    share of overlap, 0 (none) to 1 (perfect), a fitted figure. Two products and no difference of times, so T never
    falls, to the last bit, when a time grows; rounding is kept within [max, sum]. Arrays broadcast. Raises
    FormulaError.
    """
    each_not_negative("times", times, arrays=True)
    share("omega", omega, arrays=True)
    longest, total = times[0], times[0]
    for time in times[1:]:
        longest, total = maximum(longest, time), total + time
    between = omega * longest + (1 - omega) * total
    return Combined(longest, total, _minimum(maximum(between, longest), total))


def _minimum(a: Amount, b: Amount) -> Amount:
    if hasattr(a, "shape") or hasattr(b, "shape"):
        import numpy

        return numpy.minimum(a, b)
    return min(a, b)


@finite
def omega_of(times: Sequence[Amount], measured: Amount) -> Amount:
    """The share of overlap that a measured time shows: (sum - T) / (sum - max).

    Raises FormulaError where T is outside [max, sum] (a component is wrong or missing) and where one component alone
    takes any time, since nothing can overlap then.
    """
    each_not_negative("times", times)
    not_negative("measured", measured)
    longest, total = max(times), sum(times)
    if not total > longest:
        raise FormulaError("times: only one component takes any time, so no overlap can be told.")
    if measured < longest:
        raise FormulaError(f"measured: {shown(measured)} s is less than the longest component, {shown(longest)} s; "
                           "that component's time is too long, or it is no part of what was measured.")
    if measured > total:
        raise FormulaError(f"measured: {shown(measured)} s is more than all components one after another, "
                           f"{shown(total)} s; something that takes time is missing among them.")
    return (total - measured) / (total - longest)


# Forms.


@finite_arrays
def evaluate(form: Node | str, times: Mapping[str, Amount]) -> Amount:
    """A form's value [s] at the times of its terms; exact for Fractions, arrays broadcast.

    Raises FormulaError where a term has no time, or one that is negative or not finite; times of other terms are
    ignored.
    """
    tree = tree_of(form)
    mapping("times", times, "{term: seconds}")
    for name in terms_of(tree):
        if name not in times:
            raise FormulaError(f'no time is given for "{name}" in {tree}. {did_you_mean(name, times, "Given")}')
        not_negative(name, times[name], arrays=True)
    return _value(tree, times)


def _value(tree: Node, times: Mapping[str, Amount]) -> Amount:
    if isinstance(tree, Term):
        return times[tree.name]
    value = _value(tree.parts[0], times)
    for part in tree.parts[1:]:
        value = value + _value(part, times) if isinstance(tree, Sum) else maximum(value, _value(part, times))
    return value


def binds(form: Node | str, times: Mapping[str, Amount]) -> tuple[str, ...]:
    """The terms that a form's value is made of, sorted: of a max those of its largest parts (ties all), of a sum all.

    Terms that take no time bind nothing. Raises FormulaError as `evaluate` does, and on arrays.
    """
    times = plain(times, arrays=True)
    if getattr(evaluate(form, times), "shape", ()):
        raise FormulaError("what binds may differ from one entry of an array to the next; give numbers.")
    return tuple(sorted(_binding(tree_of(form), times)))


def _binding(tree: Node, times: Mapping[str, Amount]) -> set[str]:
    if isinstance(tree, Term):
        return {tree.name} if times[tree.name] > 0 else set()
    parts = tree.parts
    if isinstance(tree, Max):
        largest = _value(tree, times)
        near = largest * (1 - TIE) if isinstance(largest, float) else largest
        parts = tuple(part for part in parts if _value(part, times) >= near)
    return set().union(*(_binding(part, times) for part in parts))


@finite_arrays
def limits(form: Node | str, times: Mapping[str, Amount]) -> tuple[Amount, Amount]:
    """What a form lies between [s]: the largest of its terms and the sum of its terms, each as often as it stands."""
    evaluate(form, times)
    return _value(Max(tuple(Term(name) for name in _standing(tree_of(form)))), times), _value(
        Sum(tuple(Term(name) for name in _standing(tree_of(form)))), times)  # fmt: skip


def _standing(tree: Node) -> list[str]:
    if isinstance(tree, Term):
        return [tree.name]
    return [name for part in tree.parts for name in _standing(part)]


@dataclass(frozen=True, slots=True)
class Published:
    """A published form: its tree, where it stands, and what its terms are."""

    form: Node
    source: str
    terms: str


_FIVE = ("per layer: comp computing, ctog host to GPU, gtoc GPU to host, dtoc disk to host, ctod host to disk")
_LAYER = "per layer: flop arithmetic, mem its memory traffic, offload what moves between memories"
_FLEXGEN = "Sheng et al., FlexGen (2023)"
_RELEASED = "FlexGen's released cost_model.py, which fits its constants"
_CALCULON = "Calculon (Isaev et al. 2023)"
_ZERO = "Rajbhandari et al., ZeRO-Infinity (2021)"
FORMS: Mapping[str, Published] = MappingProxyType({
    "flexgen paper": Published(parse("max(ctog, gtoc, dtoc, ctod, comp)"), f"{_FLEXGEN}, cost model", _FIVE),
    "flexgen prefill": Published(parse("max(ctog + dtoc, gtoc + ctod, comp)"), f"{_RELEASED}, Tpre", _FIVE),
    "flexgen decode": Published(parse("ctog + max(gtoc, dtoc, ctod, comp)"), f"{_RELEASED}, Tgen", _FIVE),
    "calculon roofline": Published(parse("max(flop, mem)"), f"{_CALCULON}, processing mode roofline", _LAYER),
    "calculon no_overlap": Published(parse("flop + mem"), f"{_CALCULON}, processing mode no_overlap", _LAYER),
    "calculon offload": Published(parse("max(max(flop, mem), offload + mem)"), f"{_CALCULON}, llm.py: a layer's time "
                                  "and its offload overhead; no memory traffic while it offloads", _LAYER),
    "zero-infinity": Published(parse("compute + transfer"), f"{_ZERO}: efficiency as compute / (compute + transfer)",
                               "compute, transfer: per iteration"),
    "zero-infinity overlapped": Published(parse("max(compute, transfer)"), f"{_ZERO}: the same inputs, if all of the "
                                          "transfer were overlapped", "compute, transfer: per iteration"),
    "moe-lightning": Published(parse("max(link, max(cpu_flop, cpu_mem), max(gpu_flop, gpu_mem))"), "Cao et al., "
                               "MoE-Lightning (2025): hierarchical roofline", "per layer: link host to GPU, arithmetic "
                               "and memory traffic of CPU and GPU"),
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class FormRow:
    """One form at given times: seconds, what binds, and the overlap that it stands for.

    overlap : (sum - T) / (sum - max) over its own terms, 1 for a max of all of them and 0 for their sum; None where
    one of them alone takes any time.
    """

    name: str
    form: Node
    seconds: Amount
    binds: tuple[str, ...]
    overlap: Amount | None
    source: str


@dataclass(frozen=True, slots=True)
class FormTable:
    """Forms compared: rows, shortest first; missing: forms left out, with the terms that have no time."""

    rows: tuple[FormRow, ...]
    missing: Mapping[str, tuple[str, ...]]


@finite_arrays
def compare_forms(times: Mapping[str, Amount], forms: Mapping[str, Published | Node | str] = FORMS) -> FormTable:
    """All forms at the same times, with the max and the sum of all times given ("max", "sum") beside them.

    forms : name -> published form, tree or text; those with a term that has no time are listed as missing. To hold
    models against each other, state each in the same terms: `substitute(form, {"transfer": "ctog + gtoc"})`. Raises
    FormulaError where no time is given, one is an array, or a text cannot be read.
    """
    mapping("forms", forms, "{name: form}")
    if not mapping("times", times, "{term: seconds}"):
        raise FormulaError('times: none is given; give each term\'s, as {"comp": 5, "ctog": 4}.')
    every = tuple(Term(name) for name in times)
    known: dict[str, Any] = {"max": Max(every), "sum": Sum(every), **forms}
    rows: list[FormRow] = []
    missing: dict[str, tuple[str, ...]] = {}
    for name, one in known.items():
        tree = one.form if isinstance(one, Published) else tree_of(one)
        lacking = tuple(term for term in terms_of(tree) if term not in times)
        if lacking:
            missing[name] = lacking
            continue
        bind = binds(tree, times)
        seconds = evaluate(tree, times)
        longest, total = limits(tree, times)
        overlap = (total - seconds) / (total - longest) if total > longest else None
        source = one.source if isinstance(one, Published) else ""
        rows.append(FormRow(name, tree, seconds, bind, overlap, source))
    return FormTable(tuple(sorted(rows, key=lambda row: row.seconds)), MappingProxyType(missing))


# Rooflines and what they leave out.


@dataclass(frozen=True, slots=True)
class Rooflines:
    """Times of operations [s].

    per_op : max(F / P, M / B) of each. serial : their sum, each overlapping within itself only. aggregate :
    max(sum F / P, sum M / B), a lower bound if operations may fuse or overlap. no_overlap : sum of both.
    """

    per_op: tuple[Amount, ...]
    serial: Amount
    aggregate: Amount
    no_overlap: Amount


@finite_arrays
def rooflines(ops: Sequence[tuple[Amount, Amount]], flops: Amount, bandwidth: Amount) -> Rooflines:
    """Rooflines of operations of (FLOP, bytes) at `flops` [FLOP/s] and `bandwidth` [B/s] (Williams et al. 2009).

    aggregate <= serial <= no_overlap, since a sum of maxima is at least the maximum of the sums. Exact for Fractions,
    arrays broadcast. Raises FormulaError.
    """
    all_positive(flops=flops, bandwidth=bandwidth, arrays=True)
    ops = pairs("ops", ops, "(FLOP, bytes)")
    if not ops:
        raise FormulaError("ops: none is given; give (FLOP, bytes) of each operation.")
    arithmetic, memory, both = [], [], []
    for index, (work, traffic) in enumerate(ops):
        arithmetic.append(not_negative(f"ops[{index}] FLOP", work, arrays=True) / flops)
        memory.append(not_negative(f"ops[{index}] bytes", traffic, arrays=True) / bandwidth)
        both.append(maximum(arithmetic[-1], memory[-1]))
    spent, moved = sum(arithmetic), sum(memory)
    return Rooflines(tuple(both), sum(both), maximum(spent, moved), spent + moved)


@dataclass(frozen=True, slots=True)
class CopyIn:
    """A layer that computes while bytes are copied into its memory [s].

    resource_seconds : of "flop", "hbm", "link". seconds : the load bound with the copies on HBM, bottleneck its tie
    set. ignoring : without them there, lower and still a bound. exclusive_port : if memory traffic stops while copying
    (Calculon's form), an estimate from above.
    """

    resource_seconds: Mapping[str, Amount]
    seconds: Amount
    bottleneck: tuple[str, ...]
    ignoring: Amount
    exclusive_port: Amount


@finite
def copy_in(
    work: Amount, traffic: Amount, copied: Amount, *, flops: Amount, hbm: Amount, link: Amount, copied_out: Amount = 0
) -> CopyIn:
    """HBM contention of copies and compute: T >= max(F / P, (M + D_in + D_out) / B_hbm, D / B_link).

    work : FLOP. traffic : bytes that computing reads and writes in HBM. copied, copied_out : bytes over the link into
    and out of it, each direction at `link` [B/s]; each is written or read in HBM once more. flops [FLOP/s], hbm [B/s].
    Exact for Fractions.
    """
    for name, value in (("work", work), ("traffic", traffic), ("copied", copied), ("copied_out", copied_out)):
        not_negative(name, value)
    rates = {"flop": positive("flops", flops), "link": positive("link", link), "hbm": positive("hbm", hbm)}
    apart = [(work, ("flop",)), (traffic, ("hbm",)), (copied, ("link",))]
    if copied_out:
        rates["link_out"] = link
        apart.append((copied_out, ("link_out",)))
    together = [(amount, (*use, "hbm") if use[0].startswith("link") else use) for amount, use in apart]
    bound, alone = (
        load_bound(rates, [(amount, dict.fromkeys(use, 1)) for amount, use in transfers])
        for transfers in (together, apart)
    )
    times = {"flop": work / flops, "mem": traffic / hbm, "offload": maximum(copied, copied_out) / link}
    exclusive = evaluate(FORMS["calculon offload"].form, times)
    return CopyIn(bound.resource_seconds, bound.seconds, bound.bottleneck, alone.seconds, exclusive)


@dataclass(frozen=True, slots=True)
class Intensities:
    """Arithmetic intensity of training [FLOP/B]: parameters and gradients, optimizer states, activation checkpoints."""

    params_grads: Amount
    optimizer: Amount
    activations: Amount


@finite
def intensities(seq: Amount, batch: Amount, hidden: Amount, ckpt_interval: Amount) -> Intensities:
    """FLOP per byte of each kind of state in an iteration with recomputing (Rajbhandari et al., ZeRO-Infinity, 2021).

    seq : positions of a sequence. batch : sequences per GPU. hidden : width. ckpt_interval : layers per activation
    checkpoint. Parameters and gradients seq x batch, optimizer states seq x batch / 4, checkpoints
    24 x hidden x ckpt_interval.
    """
    for name, value in (("seq", seq), ("batch", batch), ("hidden", hidden), ("ckpt_interval", ckpt_interval)):
        positive(name, value)
    return Intensities(seq * batch, seq * batch / 4, 24 * hidden * ckpt_interval)


@finite
def efficiency(
    intensity: Amount, bandwidth: Amount, flops: Amount, form: Node | str = FORMS["zero-infinity"].form
) -> Amount:
    """The share of `flops` [FLOP/s] that is reached at an arithmetic intensity [FLOP/B] over `bandwidth` [B/s].

    Compute time over that of a form in "compute" and "transfer": intensity x bandwidth / (intensity x bandwidth +
    flops) without overlap (ZeRO-Infinity's), min(1, intensity x bandwidth / flops) for "max(compute, transfer)".
    """
    compute = positive("intensity", intensity) / positive("flops", flops)
    return compute / evaluate(form, {"compute": compute, "transfer": 1 / positive("bandwidth", bandwidth)})
