"""What a target needs, as text for a person and as plain data for a program."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from rich.console import Console

from offload import __version__
from offload.given import surely
from offload.need import Need
from offload.need_pairs import Two, WithPart
from offload.need_rates import CLOSE, Lever, Limit, Pair, Part
from offload.printing import number_text, write_heading, write_line, write_list, write_table
from offload.ranges import fold, runs
from offload.units import format_bytes, format_flops, format_rate, format_seconds

FORMAT = 1  # version of the keys; raised when one changes its meaning or goes away
NOTHING = 0.005  # relative change of the floor below which a faster part is said to gain nothing by itself
LESS = 0.9  # of the factor in the row above, for a further value of the same change to be shown


def write_need(found: Need, console: Console) -> None:
    """Print the target, what it takes now, each change, the pairs, and what forbids it where nothing is enough."""
    write_line(console, found.title, style="bold")
    write_line(console, f"on {found.topology}", indent=0)
    mean = "" if float(found.tokens).is_integer() else ", on average"
    per = "" if found.target.tokens_per_s is None or found.tokens == 1 else f" ({found.tokens:g} tokens in each{mean})"
    asked = f"all {found.chunks:,} chunks, to the first token, in" if found.chunks else "a step of"
    write_line(console, f"Target: {found.target.text}: {asked} at most {format_seconds(found.due)}{per}.")
    if found.phase == "generate":
        write_line(console, "The step is the decode step at the mean context of the request.")
    write_line(console, f"Now: floor {_speed(found, found.floor)}; expected {_speed(found, found.expected)}.")
    write_line(console, _verdict(found))
    if not found.levers:
        return
    idle = [lever for lever in found.levers if _idle(lever, found)]
    shown = [lever for lever in found.levers if lever not in idle]
    if shown:
        write_heading(console, "One change at a time")
        rows = [[_what(one), _now(one), _floor_text(one), _expected_text(one)] for one in shown]
        write_table(console, ["change", "now", "floor allows it from", "expected reaches it from"], rows)
        if any(one.kind == "rate" for one in shown):
            write_line(console, "Rates: peak (in floors); sustained (in expected times); a factor is of both.",
                       style="dim")  # fmt: skip
    for what in found.full:
        write_line(console, f"No more fits: {what}.")
    if idle:
        write_line(console, f"By themselves nothing or next to nothing: {', '.join(_what(one) for one in idle)}.")
    for pair, what in ((found.floor_pair, "floor allows it"), (found.expected_pair, "expected time reaches it")):
        if pair is not None:
            least = f", no pair does it with less than {_factor_needed(pair.at_least)}" if pair.at_least > 1 else ""
            sure = "; the least there is, to 1 %" if pair.proved else f"; found{least}"
            sure = "" if pair is found.floor_pair else sure
            write_line(console, f"Cheapest pair of faster parts with which the {what}: {_pair_text(pair)} "
                                f"({number_text(pair.product)} x in all), {format_seconds(pair.seconds)}{sure}.")
    parts = list(_told(found))
    if parts:
        write_heading(console, "A change of the plan and one faster part")
        write_table(console, ["change", "floor allows it with", "expected reaches it with"],
                    [[_setting(one), _part_text(one.floor), _part_text(one.expected, True)] for one in parts])
        if any(one.expected is not None for one in parts):
            write_line(console, "least: proved; else what no part does it below.", style="dim")
    both = [one for one in found.two if one.expected is not None or _both_change(one)]
    if both:
        write_heading(console, "Two changes of the plan")
        write_table(console, ["changes", "now", "floor allows it from", "expected reaches it from"],
                    [[_kinds(one), _values(one.now), _two_floor(one), _two_expected(one)] for one in both])
    write_list("What forbids it", list(_forbidding(found)), console)
    write_list("What stands in the way of the schedule", list(_unreached(found)), console)


def _speed(found: Need, seconds: float) -> str:
    return format_seconds(seconds) + (f" ({number_text(found.tokens / seconds)} tok/s)" if seconds > 0 else "")


def _verdict(found: Need) -> str:
    if found.met:
        return "It is reached as it is."
    in_time = found.expected <= found.due * (1 + CLOSE)  # then the plan does not fit
    if in_time:
        said = "The schedule would reach it."
    elif found.allowed:
        said = "The floor allows it, and the schedule does not reach it."
    else:
        said = f"The floor forbids it, whatever the schedule: {fold(found.forbidden_by)}."
    if found.lacks:
        lacks = ", ".join(f"{name} lacks {format_bytes(size)}" for name, size in found.lacks.items())
        rest = "" if found.reachable else ", and no change that was tried makes it fit and reaches the target"
        return f"{said} The plan does not fit ({lacks}){rest}" + (
            "." if in_time else ": faster parts alone are told as if it did.")
    return said if found.reachable else f"{said} No change that was tried reaches it by itself, nor do two."


def _idle(lever: Lever, found: Need) -> bool:
    """Whether something changed by itself neither reaches the target nor moves the floor; a batch moves tokens/s."""
    if lever.kind == "batch" and found.target.tokens_per_s is not None:
        return False
    helps = lever.expected is not None or lever.floor not in (None, lever.now)
    return not helps and min(lever.end_floor, surely(lever.least_floor)) >= found.floor * (1 - NOTHING)


def _parts(names: tuple[str, ...]) -> str:
    """The names that are like the first, and the limits and drives that have to be faster with them."""
    first, *others = sorted(runs(names), key=lambda run: names[0] not in run)
    return f"{fold(first)} (with {', '.join(fold(run) for run in others)})" if others else fold(first)


def _main(names: tuple[str, ...]) -> str:
    """The names that are like the first, in short."""
    return fold(next(run for run in runs(names) if names[0] in run))


def _what(lever: Lever) -> str:
    return f"faster {_parts(lever.names)}" if lever.kind == "rate" else _kind(lever.kind, lever.names)


def _kind(kind: str, names: tuple[str, ...]) -> str:
    return {
        "batch": "batch", "context": "context", "layers": f"layers in {fold(names)}" if names else "layers",
        "buffers": "buffers", "weights": "weight format", "kv": "KV format",
    }[kind]  # fmt: skip


def _setting(one: WithPart) -> str:
    kind, names, value = one.setting.kind, one.setting.names, _value(one.setting.value)
    return {
        "layers": f"{value} layers in {fold(names)}" if names else f"{value} layers", "buffers": f"{value} buffers",
        "weights": f"{value} weights", "kv": f"{value} KV",
    }.get(kind, f"{kind} {value}")  # fmt: skip


def _told(found: Need) -> Iterator[WithPart]:
    """The changes with a part that are worth a row: fewer than without the change, and than in the row above."""
    rates = [lever for lever in found.levers if lever.kind == "rate" and not found.lacks]
    single = (min((float(one.expected) for one in rates if one.expected), default=math.inf),
              min((float(one.floor) for one in rates if one.floor), default=math.inf))  # fmt: skip
    above: dict[tuple[str, tuple[str, ...]], tuple[float, float]] = {}
    told: dict[tuple[Any, ...], WithPart] = {}
    for one in found.with_parts:
        if one.expected is None and (one.floor is None or not one.floor.names):
            continue  # what the floor allows with the change alone stands above
        expected, floor = (math.inf if part is None else part.factor for part in (one.expected, one.floor))
        factors = expected, floor
        key = (one.setting.kind, one.setting.names)
        if _lower(factors, single, 1 - NOTHING) and _lower(factors, above.get(key, (math.inf, math.inf)), LESS):
            above[key] = factors
            told[(*key, one.setting.value if one.expected else None)] = one  # without a time only the furthest
    yield from sorted(told.values(), key=found.with_parts.index)


def _both_change(one: Two) -> bool:
    """Whether the floor allows the target with both, and with neither by itself."""
    return one.floor is not None and one.floor[0] != one.now[0] and one.floor[1] != one.now[1]


def _lower(factors: tuple[float, float], than: tuple[float, float], share: float) -> bool:
    """Whether the expected factor is lower, or where there is none on either side that of the floor."""
    place = 0 if min(factors[0], than[0]) < math.inf else 1
    return factors[place] < share * than[place]


def _part_text(part: Part | None, expected: bool = False) -> str:
    if part is None:
        return "-" if expected else "never"
    if not part.names:
        return "no part"
    if not expected:
        return f"{_main(part.names)} {_factor_needed(part.factor)}"
    bound = f", {_factor_needed(part.at_least)} at least" if part.at_least > 1 else ", found"
    return f"{_main(part.names)} {_factor(part.factor)}{', least' if part.proved else bound}"


def _kinds(one: Two) -> str:
    return " and ".join(_kind(*which) for which in (one.first, one.second))


def _values(values: tuple[Any, Any]) -> str:
    return ", ".join(_value(value) for value in values)


def _two_floor(one: Two) -> str:
    if one.floor is None:
        return "none found"
    return "as it is" if one.floor == one.now else _values(one.floor)


def _two_expected(one: Two) -> str:
    return "-" if one.expected is None else f"{_values(one.expected)} ({format_seconds(surely(one.seconds))})"


def _now(lever: Lever) -> str:
    if lever.kind != "rate":
        return f"{lever.now:,}" if isinstance(lever.now, int) else str(lever.now)
    peak, sustained = lever.rates
    return _rate(sustained, lever) if peak is None else f"{_rate(peak, lever)}; {_rate(sustained, lever)}"


def _rate(rate: float | None, lever: Lever) -> str:
    if rate is None:
        return "-"
    return format_flops(rate) if lever.unit == "FLOP" else format_rate(rate)


def _floor_text(lever: Lever) -> str:
    if lever.floor is None:
        return _never(lever, lever.sure[0])
    if lever.floor == lever.now:
        return "as it is"
    if lever.kind != "rate":
        return _value(lever.floor) + ("" if lever.sure[0] else ", found")
    rate, factor = lever.rates[0], _factor_needed(float(lever.floor))
    return factor if rate is None else f"{_rate(_down(rate * float(lever.floor)), lever)} ({factor})"


def _expected_text(lever: Lever) -> str:
    if lever.expected is None:
        return "-" if lever.floor is None else _never(lever, lever.sure[1])
    if lever.kind != "rate":
        return f"{_value(lever.expected)} ({format_seconds(surely(lever.seconds))})"
    return _times(lever.rates[1], float(lever.expected), lever)


def _never(lever: Lever, sure: bool) -> str:
    if lever.kind == "rate" or lever.end == "full":
        return "never" if sure else "none found"
    until = f"up to {_value(lever.end)}" if _grows(lever) else f"down to {_value(lever.end)}"
    return f"not {until}" if sure else f"none found {until}"


def _grows(lever: Lever) -> bool:
    return isinstance(lever.end, int) and isinstance(lever.now, int) and lever.end > lever.now


def _value(value: float | int | str) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _times(rate: float | None, factor: float, lever: Lever) -> str:
    return f"{_factor(factor)}" if rate is None else f"{_rate(_up(rate * factor), lever)} ({_factor(factor)})"


def _up(rate: float) -> float:
    """A rate rounded up to the three digits in which it is told: what is told is enough."""
    unit = 10.0 ** (math.floor(math.log10(rate)) - 2)
    return math.ceil(rate / unit * (1 - 1e-9)) * unit


def _down(rate: float) -> float:
    """A rate rounded down to the three digits in which it is told: less than what is told is not enough."""
    unit = 10.0 ** (math.floor(math.log10(rate)) - 2)
    return math.floor(rate / unit * (1 + 1e-9)) * unit


def _factor(factor: float) -> str:
    """A factor in three digits, rounded up: what is told is enough."""
    digits = max(0, 2 - math.floor(math.log10(factor)))
    return f"{math.ceil(factor * 10**digits * (1 - 1e-9)) / 10**digits:g} x"


def _factor_needed(factor: float) -> str:
    """A factor in three digits, or in as many as tell it from 1, rounded down: with less it is not enough."""
    digits = max(0, 2 - math.floor(math.log10(factor)))
    while digits < 9 and math.floor(factor * 10**digits * (1 + 1e-9)) == 10**digits and factor > 1 + 1e-9:
        digits += 1
    return f"{math.floor(factor * 10**digits * (1 + 1e-9)) / 10**digits:.12g} x"


def _pair_text(pair: Pair) -> str:
    return " and ".join(f"{_main(names)} {_factor(one)}" for names, one in zip(pair.names, pair.factors, strict=True))


def _forbidding(found: Need) -> Iterator[str]:
    """For each part what takes too long however fast it is, and what is left if all are."""
    if found.allowed:
        return
    told: dict[tuple[float, str], list[str]] = {}
    for lever in found.levers:
        if lever.kind == "rate" and lever.floor is None and not _idle(lever, found):
            told.setdefault((lever.end_floor, _binding(lever.end_bottleneck)), []).append(_main(lever.names))
    for (seconds, binding), names in told.items():
        yield (f"{', '.join(names)} infinitely fast: {binding} still "
               f"{_takes(binding)} {format_seconds(seconds)}.")
    if found.best_pair is not None:
        yield f"of all pairs {_left_text(found.best_pair)}."
    lefts = [(one, one.left) for one in found.with_parts if one.left is not None]
    if lefts and len(lefts) == len(found.with_parts) and found.floor_pair is None:
        least, left = min(lefts, key=lambda pair: pair[1].floor / pair[0].due)
        yield f"of all changes with a part, {_setting(least)} with {_left_text(left)}{_of(least.due, found)}."
    fitting = [one for one in found.two if one.end_fits]
    if fitting and all(one.floor is None for one in found.two) and not found.reachable:
        two = min(fitting, key=lambda one: one.end_floor / one.end_due)
        yield (f"of two changes of the plan, {_kinds(two)} ({_values(two.end)}) leave least: "
               f"{_binding(two.end_bottleneck)} still {_takes(_binding(two.end_bottleneck))} "
               f"{format_seconds(two.end_floor)}{_of(two.end_due, found)}.")
    if found.everything.floor > found.due:
        binding = _binding(found.everything.bottleneck)
        yield (f"every part infinitely fast: {binding} still {_takes(binding)} "
               f"{format_seconds(found.everything.floor)}.")


def _left_text(limit: Limit) -> str:
    """Infinitely fast parts and what is left with them, in the floor that is told or in expected times."""
    names = " and ".join(_main(one) for one in limit.names)
    leaves = f"{names} infinitely fast {'leave' if len(limit.names) > 1 else 'leaves'}"
    if limit.expected is not None:
        return f"{leaves} the least expected time that was found, {format_seconds(limit.expected)}"
    binding = _binding(limit.bottleneck)
    return f"{leaves} least: {binding} still {_takes(binding)} {format_seconds(limit.floor)}"


def _of(due: float, found: Need) -> str:
    return "" if due == found.due else f", and {format_seconds(due)} are due"


def _unreached(found: Need) -> Iterator[str]:
    """Where the floor is not what stands in the way: what the sustained rates or the schedule leave."""
    pair = found.best_expected_pair
    if pair is not None and found.best_pair is None and not found.everything_expected > found.due:
        yield f"at sustained rates, of all pairs {_left_text(pair)}."
    lefts = [(one, one.left_expected) for one in found.with_parts if one.left_expected is not None]
    if lefts and not found.reachable:
        least, left = min(lefts, key=lambda pair: (pair[1].expected or pair[1].floor) / pair[0].due)
        yield (f"at sustained rates, of all changes with a part, {_setting(least)} with "
               f"{_left_text(left)}{_of(least.due, found)}.")
    if found.everything_expected > found.due >= found.everything.floor:
        yield ("every part infinitely fast: the expected time is still "
               f"{format_seconds(found.everything_expected)}: latencies and stated times.")


def _binding(names: tuple[str, ...]) -> str:
    return fold(names) if names else "what is no rate"


def _takes(binding: str) -> str:
    return "take" if ".." in binding or ", " in binding else "takes"


def need_to_json(found: Need) -> dict[str, Any]:
    """The same as plain data: seconds of one step, bytes/s, FLOP/s; what is infinite or does not exist is null."""
    target = found.target
    return {
        "format": FORMAT,
        "offload_version": __version__,
        "title": found.title,
        "topology": found.topology,
        "target": {"text": target.text, "seconds": target.seconds, "tokens_per_s": target.tokens_per_s},
        "tokens": found.tokens,
        "chunks": found.chunks,
        "due": found.due,
        "floor": found.floor,
        "expected": found.expected,
        "allowed": found.allowed,
        "met": found.met,
        "reachable": found.reachable,
        "forbidden_by": [] if found.allowed else list(found.forbidden_by),
        "lacks": dict(found.lacks),
        "full": list(found.full),
        "changes": [_lever_to_json(lever) for lever in found.levers],
        "pairs": {"floor": _pair_to_json(found.floor_pair), "expected": _pair_to_json(found.expected_pair)},
        "best_pair": found.best_pair and _limit_to_json(found.best_pair),
        "best_expected_pair": found.best_expected_pair and _limit_to_json(found.best_expected_pair),
        "with_parts": [_with_part_to_json(one) for one in found.with_parts],
        "two": [_two_to_json(one) for one in found.two],
        "everything": {**_limit_to_json(found.everything), "expected": found.everything_expected},
    }


def _limit_to_json(limit: Limit) -> dict[str, Any]:
    return {
        "names": [list(one) for one in limit.names],
        "floor": limit.floor,
        "bottleneck": list(limit.bottleneck),
        "expected": limit.expected,
    }


def _with_part_to_json(one: WithPart) -> dict[str, Any]:
    setting = one.setting
    return {
        "kind": setting.kind,
        "names": list(setting.names),
        "now": setting.now,
        "value": setting.value,
        "due": one.due,
        "floor": _part_to_json(one.floor),
        "expected": _part_to_json(one.expected),
        "left": one.left and _limit_to_json(one.left),
        "left_expected": one.left_expected and _limit_to_json(one.left_expected),
    }


def _part_to_json(part: Part | None) -> dict[str, Any] | None:
    if part is None:
        return None
    return {
        "names": list(part.names),
        "factor": part.factor,
        "seconds": part.seconds,
        "at_least": part.at_least,
        "proved": part.proved,
    }


def _two_to_json(one: Two) -> dict[str, Any]:
    return {
        "changes": [{"kind": kind, "names": list(names), "now": now}
                    for (kind, names), now in zip((one.first, one.second), one.now, strict=True)],
        "floor_from": None if one.floor is None else list(one.floor),
        "expected_from": None if one.expected is None else list(one.expected),
        "seconds": one.seconds,
        "end": list(one.end),
        "end_floor": one.end_floor,
        "end_bottleneck": list(one.end_bottleneck),
        "end_due": one.end_due,
        "end_fits": one.end_fits,
    }  # fmt: skip


def _lever_to_json(lever: Lever) -> dict[str, Any]:
    return {
        "kind": lever.kind,
        "names": list(lever.names),
        "now": lever.now,
        "peak": lever.rates[0],
        "sustained": lever.rates[1],
        "floor_from": lever.floor,
        "expected_from": lever.expected,
        "seconds": lever.seconds,
        "end": None if lever.end == math.inf else lever.end,
        "end_floor": lever.end_floor,
        "end_bottleneck": list(lever.end_bottleneck),
        "floor_sure": lever.sure[0],
        "expected_sure": lever.sure[1],
    }


def _pair_to_json(pair: Pair | None) -> dict[str, Any] | None:
    if pair is None:
        return None
    parts = [{"names": list(names), "factor": factor} for names, factor in zip(pair.names, pair.factors, strict=True)]
    return {
        "parts": parts,
        "product": pair.product,
        "seconds": pair.seconds,
        "at_least": pair.at_least,
        "proved": pair.proved,
    }
