"""The best placement, as text for a person and as plain data for a program."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console

from offload import __version__
from offload.given import surely
from offload.placing import (
    NEAR,
    Answer,
    Found,
    Price,
    Relaxation,
    engines_of,
    overlap_to_data,
    placement_to_data,
    regret,
    streams,
)
from offload.printing import Pieces, number_text, write_heading, write_line, write_list, write_table
from offload.ranges import fold
from offload.schedules import schedule
from offload.step import Step
from offload.uncounted import uncounted
from offload.units import format_bytes, format_rate, format_seconds

FORMAT = 1  # version of the keys; raised when one changes its meaning or goes away
SHOWN = 6  # families, prices
BILLION = 1e9
TIE = 1e-9  # relative: two times that are equal
UNCOUNTED = "its arithmetic is not counted"  # of a processor without FLOP/s, as a step's notes have it
TOLD = 0.05  # relative: by how much longer one step alone takes, before that is told


def write_place(found: Answer, engine: str | None, output: str | None, console: Console) -> None:
    """Print the best placement, what it is compared with, bounds, prices, and what engines take.

    engine : of which all is printed, by its name in small letters.
    """
    placing, best = found.placing, found.placing.best
    shown = found.compared.step if best is None else best.step
    topology = shown.topology
    write_line(console, shown.plan.title, style="bold")
    write_line(console, f"on {topology.title or topology.name} ({topology.name})")
    aim = {"latency": "the least time of a step", "throughput": "the most tokens per second",
           "target": "the least GPU memory"}[placing.objective.kind]  # fmt: skip
    target = placing.objective.target
    write_line(console, f"Aim: {aim}" + (f" that reaches {target.text}." if target is not None else "."))
    if best is None:
        for text in _nothing(found):
            write_line(console, text)
        return
    write_heading(console, f"Best placement: {best.family.name}")
    write_table(console, ["what", "where"], list(_where(best)))
    write_heading(console, "Times")
    rows = [_times("best placement", best.seconds, best.floor, found, best.step)]
    compared = found.compared
    batch = compared.step.plan.origin[1].batch
    name = "the plan as asked" + (" (does not fit)" if compared.missing else "" if found.like else f" (batch {batch})")
    rows.append(_times(name, compared.seconds, compared.floor, found if found.like else None, compared.step))
    for name, one in (("bound of all mixes of these", placing.floors), ("floor of any plan", placing.any_plan)):
        if one is not None:
            expected = placing.expected if one is placing.floors else None
            rows.append([name, "-" if expected is None else format_seconds(expected.seconds), "-",
                         format_seconds(one.seconds), ""])
    write_table(console, ["", "expected", "tokens/s", "floor", "floor over any plan"], rows)
    for text in (*_alone(best), *_proofs(found, best)):
        write_line(console, text)
    if len(placing.of_families) > 1:
        write_heading(console, "Of other families, the first by their bounds")
        write_table(console, ["placements", "expected", "GPU memory"], [
            [f"{one.family.name}: {_counts(one)}{_buffers(one)}", format_seconds(one.seconds), format_bytes(one.hbm)]
            for one in placing.of_families[1 : 1 + SHOWN]])  # fmt: skip
    _write_prices(found, console)
    write_heading(console, "For engines")
    for told in engines_of(best):
        if engine is not None and told.name.casefold() != engine:
            continue
        if told.kind == "flags" and told.text:
            write_line(console, f"{told.name}: {told.text}")
        elif told.text and engine is None:
            way = f"--engine {told.name.casefold()} prints"
            if isinstance(console, Pieces):
                way = "engines_of(answer.placing.best) has"
            write_line(console, f"{told.name}: {way} its {told.kind.upper()}")
        elif told.text:
            write_line(console, f"{told.name}:")
            for line in told.text.split("\n"):
                console.print(line, markup=False, highlight=False, no_wrap=True, overflow="ignore", crop=False)
        for what in told.cannot:
            write_line(console, f"- {told.name} cannot be told: {what}", indent=2)
    write_list("Not in the search", found.left_out, console)
    if output is not None:
        write_line(console, f"Written to {output}: offload step {output}")


def _alone(best: Found) -> Iterator[str]:
    """A line where a step alone takes longer than one of many back to back, which is what placements are ranked by."""
    alone = schedule(best.step, ends=False).cold_seconds
    if alone > best.seconds * (1 + TOLD):
        yield (f"Expected times are of steps back to back, which overlap; one step of the best placement alone takes "
               f"{format_seconds(alone)}.")


def _nothing(found: Answer) -> Iterator[str]:
    placing = found.placing
    if not placing.proved:
        fits = "fits" if placing.objective.kind != "target" else f"reaches {surely(placing.objective.target).text}"
        yield (f"Of {placing.placements:,} placements {placing.evaluated:,} were evaluated and none of those {fits}; "
               "the search ended early, so others may. A larger --most looks further.")
        return
    unknown = (f" What depends on {fold(placing.unknown)} was not looked at, as no rate is known of that."
               if placing.unknown else "")  # fmt: skip
    if placing.objective.kind != "target":
        yield f"None of {placing.placements:,} placements fits in this server's memories.{unknown}"
        return
    due = placing.objective.target
    yield f"None of {placing.placements:,} placements that fit reaches {surely(due).text} in expected time.{unknown}"
    if placing.expected is not None:
        yield f"No mix of them takes less than {format_seconds(placing.expected.seconds)} at sustained rates."
    if placing.any_plan is not None:
        yield f"The floor of any plan is {format_seconds(placing.any_plan.seconds)}."


def _counts(found: Found) -> str:
    """Layers in each memory that has some."""
    counts, apart = found.counts
    parts = [f"{count} in {name}" for name, count in zip(found.family.homes, counts, strict=True) if count]
    if found.family.parts:
        what = "KV" if found.family.keys else "feed-forward" if found.family.pattern else "experts"
        parts.append(f"{what} " + " and ".join(
            f"{count} in {name}" for name, count in zip(found.family.parts, apart, strict=True) if count))  # fmt: skip
    return ", ".join(parts)


def _buffers(found: Found) -> str:
    """The number of buffers, where more than one was tried and something takes them."""
    return f", {found.overlap}" if len(found.family.overlaps) > 1 and streams(found.step) else ""


def _layers(portion: str) -> str:
    return "1 layer" if portion == "1 layers" else portion


def _where(found: Found) -> Iterator[list[str]]:
    """What lives and runs where, as the plan's keys say it."""
    placement = placement_to_data(found.placement)
    yield ["layers", ", ".join(f"{_layers(portion)} in {name}" for name, portion in placement["weights"].items()
                               if portion != "0 layers")]
    yield ["run on", "where they live" if found.placement.compute == "local" else found.placement.compute]
    if found.placement.access != "copy":
        yield ["read", "over the link, in place"]
    if (experts := placement.get("experts")) is not None:
        words = [f"{_layers(portion)} in {name}" for name, portion in experts["home"].items()]
        on = surely(found.placement.experts).compute or found.placement.compute
        yield ["experts", ", ".join(words) + f"; run {'where they live' if on == 'local' else f'on {on}'}"
               + (f", {experts['access']}" if "access" in experts else "")]
    for pattern, memory in found.placement.tensors:
        yield ["tensors", f"{pattern} in {memory}"]
    kept = placement.get("kv", "with their layers")
    if not isinstance(kept, str):
        kept = ", ".join(f"of {_layers(portion)} in {name}" for name, portion in kept.items())
    attends = f", where {found.placement.attention} attends" if found.placement.attention else ""
    yield ["KV cache", kept + attends]
    if _buffers(found):
        yield ["overlap", str(found.overlap)]
    yield ["batch", str(found.question.workload.batch)]
    for name, parts in sorted(found.step.occupied.items()):
        one = found.step.topology.memories[name]
        room = "" if one.capacity is None else f" of {format_bytes(one.capacity * one.count)}"
        yield [name, f"{format_bytes(sum(parts.values()))}{room}"]


def _times(name: str, seconds: float, least: float, found: Answer | None, step: Step) -> list[str]:
    lost = None if found is None else found.regret(least)
    unknown = bool(uncounted(step))
    rate = number_text(step.plan.tokens / seconds) if seconds > 0 and not unknown else "-"
    took = f"{'>= ' if unknown else ''}{format_seconds(seconds)}"
    return [name, took, rate, format_seconds(least), "" if lost is None else _percent(lost)]


def _share(share: float) -> str:
    """A share that sums in another order may make a little less than nothing."""
    return f"{number_text(100 * share)} %" if abs(share) > TIE else "0 %"


def _percent(share: float) -> str:
    return f"{'+' if share >= 0 else ''}{number_text(100 * share)} %"


def _proofs(found: Answer, best: Found) -> Iterator[str]:
    placing = found.placing
    if placing.proved:
        yield (f"The best of {placing.placements:,} placements of {found.families} families: {placing.evaluated:,} "
               "were evaluated, and no bound of the others is less.")
    else:
        yield (f"The search ended after {placing.evaluated:,} plans of {placing.placements:,} placements of "
               f"{found.families} families: another may be better by {_share(placing.left)} at most"
               + (", and a larger --most looks further." if placing.left > NEAR else "."))
    gap = None if placing.expected is None else regret(best.seconds, placing.expected.seconds)
    if gap is not None:
        yield (f"Optimality gap: {_share(gap)} above the bound of all mixes at sustained rates, in which a layer may "
               "be split and go another way.")
    compared = found.compared
    if parts := uncounted(compared.step):
        yield f"How long the plan as asked takes depends on {fold(parts)}, of which no rate is known."
    elif not compared.missing and compared.seconds > 0:
        ratio = best.tokens_per_s / (compared.step.plan.tokens / compared.seconds)
        if ratio >= 1.1:
            yield f"It is {number_text(ratio)} x as fast as the plan as asked, in tokens per second."
        elif ratio > 1 + TIE:
            yield f"It is {100 * (ratio - 1):.2g} % faster than the plan as asked, in tokens per second."
        elif placing.proved and placing.objective.kind == "latency":
            yield "The plan as asked cannot be beaten by any of these placements."
    for text in dict.fromkeys((*best.step.assumptions, *compared.step.assumptions)):
        if text.endswith(UNCOUNTED):
            yield f"{text}, so what runs there looks faster than it is."
    if found.placing.no_peak:
        yield (f"No peak rate is known of {fold(found.placing.no_peak)}: left out of floors, which are lower for it "
               "where a plan uses it, and for any plan.")
    if placing.any_plan is not None:
        yield ("The floor of any plan: least loads over peak rates, wherever each byte lives and runs, over any of "
               "these routes and at any split.")


def _write_prices(found: Answer, console: Console) -> None:
    rows = []
    both = ((found.placing.expected, 0), (found.any_plan, 1))
    names: dict[tuple[str, str], list[str]] = {}
    for one, column in both:
        shown = () if one is None else (*[price for price in one.prices if price.kind != "channel"][:SHOWN],
                                        *(price for price in one.prices if price.kind == "channel"))  # fmt: skip
        for price in shown:
            names.setdefault((price.name, price.kind), ["-", "-"])[column] = _worth(price)
    for (name, kind), worths in names.items():
        price = next(price for one, _ in both if one is not None for price in one.prices if price.name == name
                     and price.kind == kind)  # fmt: skip
        more = {"room": f"1 GB more of {name}", "rate": f"{_unit(price)} more of {name}",
                "channel": f"1 channel of DIMMs more of {name}"}[kind]  # fmt: skip
        now = (format_bytes(int(price.now)) if kind == "room" else _rate(price) if kind == "rate"
               else f"{price.now:.0f} channels")  # fmt: skip
        rows.append([more, *worths, now])
    if rows:
        write_heading(console, "What more of it is worth (a step's time, at the bound)")
        write_table(console, ["", "expected", "floor of any plan", "now"], rows)
        write_line(console, "Prices of the linear programs: right for a little more, less for a lot.", style="dim")


def _unit(price: Price) -> str:
    return "1 TFLOP/s" if price.name.endswith(".flops") else format_rate(BILLION)


def _rate(price: Price) -> str:
    return f"{price.now / 1e12:.4g} TFLOP/s" if price.name.endswith(".flops") else format_rate(price.now)


def _worth(price: Price) -> str:
    each = 1.0 if price.kind == "channel" else 1e12 if price.name.endswith(".flops") else BILLION
    return format_seconds(price.worth * each)


def place_to_json(found: Answer) -> dict[str, Any]:
    """All of it as plain data; times in seconds, sizes in bytes."""
    placing = found.placing

    def relaxation(one: Relaxation | None) -> Any:
        return None if one is None else {"seconds": one.seconds, "prices": [
            {"name": price.name, "kind": price.kind, "seconds_per_unit": price.worth, "now": price.now}
            for price in one.prices]}  # fmt: skip

    def plan(one: Found) -> dict[str, Any]:
        return {
            "family": one.family.name, "placement": placement_to_data(one.placement),
            "overlap": overlap_to_data(one.overlap), "batch": one.question.workload.batch, "expected_s": one.seconds,
            "floor_s": one.floor, "tokens_per_s": one.tokens_per_s, "gpu_bytes": one.hbm,
            "regret": found.regret(one.floor),
        }  # fmt: skip

    compared = found.compared
    best = placing.best
    return {
        "offload": __version__, "format": FORMAT, "aim": placing.objective.kind,
        "target": None if placing.objective.target is None else placing.objective.target.text,
        "best": None if best is None else plan(best),
        "compared": {
            "title": compared.step.plan.title, "uncounted": list(uncounted(compared.step)),
            "expected_s": compared.seconds, "floor_s": compared.floor,
            "missing": compared.missing, "regret": found.regret(compared.floor) if found.like else None},
        "families": [plan(one) for one in placing.of_families],
        "placements": placing.placements, "evaluated": placing.evaluated, "proved": placing.proved,
        "unseen": placing.unseen, "better_at_most": placing.left, "batches": list(placing.batches),
        "gap": None if best is None or placing.expected is None else regret(best.seconds, placing.expected.seconds),
        "floor_of_any_plan": relaxation(placing.any_plan), "floor_bound": relaxation(placing.floors),
        "expected_bound": relaxation(placing.expected),
        "engines": [] if best is None else [
            {"name": one.name, "kind": one.kind, "text": one.text, "cannot": list(one.cannot)}
            for one in engines_of(best)],
        "left_out": list(found.left_out),
    }  # fmt: skip
