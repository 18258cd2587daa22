"""What differs between two servers, as text for a person; parts that differ by their number alone are one line."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Console

from offload.given import surely
from offload.printing import clean, fold_rows, write_heading, write_line, write_list, write_table
from offload.ranges import fold, folded, runs
from offload.topology_diff import SECTIONS, Change, Difference, Figure, Only
from offload.units import format_bytes_both, format_cost, format_flops, format_rate, format_seconds
from offload.units.kinds import RATE, SIZE, SPEED, TIME

DIGITS = 4
PLURALS = {
    "server": "Figures of the whole server", "memory": "Memories", "processor": "Processors", "switch": "Switches",
    "link": "Links", "limit": "Limits",
}  # fmt: skip
SHOW: dict[str, Callable[[float], str]] = {
    "B": format_bytes_both,
    "B/s": lambda value: format_rate(value, DIGITS),
    "FLOP/s": lambda value: format_flops(value, DIGITS),
    "s": lambda value: format_seconds(value, DIGITS),
}
RUNGS = {"B": SIZE.rungs, "B/s": RATE.rungs, "FLOP/s": SPEED.rungs, "s": TIME.rungs}


def write_difference(difference: Difference, console: Console) -> None:
    """Print what differs. The console's width is kept, whatever it is."""
    for letter, one in (("A", difference.a), ("B", difference.b)):
        title = f" ({one.title})" if one.title != one.name else ""
        write_line(console, f"{letter}: {one.name}{title}", style="bold")
    if difference.equal:
        console.print()
        write_line(console, "No difference: the same parts with the same figures.")
    write_list("Only in A", _only(difference.removed), console)
    write_list("Only in B", _only(difference.added), console)
    for section in SECTIONS:
        changes = [change for change in difference.changed if change.section == section]
        if changes:
            write_heading(console, f"{PLURALS[section]} that differ")
            write_table(console, ["name", "what", "A", "B", "B / A"], _rows(changes), right={4})
    shown = [figure for change in difference.changed for figure in (change.a, change.b)]
    shown += [fact.figure for one in (*difference.removed, *difference.added) for fact in one.facts]
    if any(figure is not None and figure.assumed for figure in shown):
        console.print()
        write_line(console, "* assumed: a usual share of the rated or peak figure, not measured.", style="dim")
    if difference.sources:
        write_list("Sources that differ (offload topology show prints them)", [fold(difference.sources)], console)
    write_list("Assumptions of A alone", difference.notes_a, console)
    write_list("Assumptions of B alone", difference.notes_b, console)


def _rows(changes: Sequence[Change]) -> list[list[str]]:
    """The lines of a table: words first, whose names fold with those of their parts, then figures and their ends."""
    words: list[list[str]] = []
    figures: list[list[str]] = []
    for change in changes:
        ratio = "" if change.ratio is None else _times(change.ratio)
        pair = change.a, change.b
        cells = [change.name, change.what, *_both(_text, *pair), ratio, *_both(_ends, *pair)]
        is_word = any(figure is not None and isinstance(figure.value, str) for figure in pair)
        (words if is_word else figures).append(cells)
    found: list[list[str]] = []
    told = ""
    for name, what, a, b, ratio, low_a, low_b in [*fold_rows(words, (0, 2, 3)), *fold_rows(figures)]:
        found.append([name if name != told else "", what, a, b, ratio])
        if low_a or low_b:
            found.append(["", "low to high", low_a or "-", low_b or "-", ""])
        told = name
    return found


def _times(ratio: float) -> str:
    """A ratio with three digits, and with more where it is nearly one."""
    text = f"{ratio:.3g}" if not 0.995 <= ratio <= 1.005 else f"{ratio:.7g}"
    return text if text != "1" or ratio == 1 else "nearly 1"


Show = Callable[..., str]


def _both(show: Show, a: Figure | None, b: Figure | None) -> tuple[str, str]:
    """Two figures as texts, in full where they differ and would read alike."""
    short, full = (show(a), show(b)), (show(a, exact=True), show(b, exact=True))
    return full if short[0] == short[1] and full[0] != full[1] else short


def _text(figure: Figure | None, exact: bool = False) -> str:
    if figure is None:
        return "not stated"
    if isinstance(figure.value, bool):
        return "yes" if figure.value else "no"
    return _amount(figure.value, figure.unit, exact) + ("*" if figure.assumed else "")


def _ends(figure: Figure | None, exact: bool = False) -> str:
    """The ends of a sustained rate; "" where it has none apart from itself."""
    if figure is None or figure.low == figure.high:
        return ""
    low, high = (_amount(surely(end), figure.unit, exact) for end in (figure.low, figure.high))
    return f"{low.split()[0] if low.split()[1:] == high.split()[1:] else low} to {high}"


def _amount(value: float | str, unit: str, exact: bool) -> str:
    if not unit:
        return str(value)
    value = float(value)  # what has a unit
    if unit not in SHOW:  # a price or a power, in full
        return format_cost(value, unit)
    text = SHOW[unit](value)
    if not exact:
        return text
    shown = text.split()[1]
    worth = next(worth for worth, rung in RUNGS[unit] if rung == shown)
    return f"{value / worth:.15g} {shown}"


def _only(parts: Sequence[Only]) -> list[str]:
    """Parts that one server has: a text for each run of them with the same figures, whose names count up."""
    groups: dict[tuple[str, ...], dict[str, None]] = {}
    for part in parts:
        words, figures, row = [part.name], [part.section], part.name
        for fact in part.facts:
            before = ", "
            if fact.name != row:
                row = fact.name
                before = f"; {'to ' if part.section == 'link' else ''}{row[len(part.name) + 1 :]}: "
            if isinstance(fact.figure.value, str):
                words.append(f"{before}{fact.what} {fact.figure.value}")
                figures.append("")
            else:
                ends = _ends(fact.figure)
                words.append(before + fact.what)
                figures.append(f" {_text(fact.figure)}" + (f" ({ends})" if ends else ""))
        groups.setdefault(tuple(figures), {})["\n".join(clean(word) for word in words)] = None
    found = []
    for told, texts in groups.items():
        for run in runs(texts):
            name, *words = folded(run).split("\n")
            facts = [word + figure for word, figure in zip(words, told[1:], strict=True)]
            found.append(f"{name}: {told[0]}{''.join(facts)}")
    return found
