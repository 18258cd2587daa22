"""The floor over any routes, as text."""

from __future__ import annotations

from rich.console import Console

from offload.printing import and_text, fold_rows, write_heading, write_line, write_table
from offload.ranges import fold, runs
from offload.rerouting import AnyRoutes, LinkPrice
from offload.units import format_apart, format_bytes, format_seconds, format_share

MORE = {"B": (1e9, "1 GB/s"), "FLOP": (1e12, "1 TFLOP/s")}  # by how much a rate is said to grow


def write_routes(answer: AnyRoutes, console: Console) -> None:
    """Print the floor over any routes beside that of the plan's, what binds it, and how moves would be split."""
    write_heading(console, "Load floor over any routes: no routing of the same moves is faster")
    if answer.seconds <= 0:
        write_line(console, "Nothing is proved: no resource that every routing loads has a known peak rate.")
        return
    write_line(console, f"T >= {format_seconds(answer.seconds)}, proved by the prices below", style="bold", indent=2)
    fixed = format_seconds(answer.fixed_seconds)
    if answer.seconds < answer.fixed_seconds * (1 - 1e-9):
        fixed = format_apart(answer.fixed_seconds, answer.seconds, format_seconds)
        less = format_share(1 - answer.seconds / answer.fixed_seconds)
        write_line(console, f"Over the plan's own routes the load floor is {fixed}: other routes can take off {less}.")
    else:
        write_line(console, f"Over the plan's own routes the load floor is {fixed} too: other routes take nothing off.")
    if answer.exact:
        write_line(console, "The split below attains it exactly, in loads over peak rates.")
    else:
        write_line(console, f"The split below attains {format_seconds(answer.attained)}, in loads over peak rates: "
                            f"certified to within {answer.gap:.1e}.")  # fmt: skip
    _write_prices(answer, console)
    _write_splits(answer, console)


def _write_prices(answer: AnyRoutes, console: Console) -> None:
    rows = [[one.resource, format_share(one.share), _worth(one)] for one in answer.prices]
    write_table(console, ["price on", "share", "shortens a step by at most"], fold_rows(rows), right={1})
    if answer.full:
        names = and_text([fold(run) for run in runs(answer.full)])
        write_line(console, f"As full in this split: {names}. More of what has a price may then change less.")
    if answer.cut and len(answer.cut) > 1:
        names = and_text([fold(run) for run in runs(answer.cut)])
        write_line(console, f"A cut: {names} together carry all that must cross them, whatever the routes.")
    elif len(answer.prices) > 1:
        write_line(console, "No cut: these prices together prove the floor, no set of links alone does.")


def _worth(price: LinkPrice) -> str:
    if price.unit not in MORE:
        return ""
    amount, text = MORE[price.unit]
    return f"{format_seconds(amount * price.seconds_per_rate)} for {text} more"


def _write_splits(answer: AnyRoutes, console: Console) -> None:
    other = [split for split in answer.splits if any(not part.planned for part in split.parts)]
    if not other:
        write_line(console, "Every move keeps the plan's route." if answer.splits else "Nothing is moved.")
        return
    rows = []
    for split in other:
        for part in split.parts:
            share = format_share(part.bytes / split.bytes)
            own = "plan's" if part.planned else ""
            rows.append([and_text(split.what), format_bytes(part.bytes), share, part.way, own])
    write_table(console, ["what", "each step", "share", "way", ""], fold_rows(rows, (3,)), right={1, 2})
    if len(other) < len(answer.splits):
        write_line(console, "Other moves keep the plan's route.")
