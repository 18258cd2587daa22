"""A comparison of plans and servers as text for a person."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from offload.comparison import Changes, Comparison, Entry, Measure, Pair, Reading
from offload.comparison.entries import step_of, times_of
from offload.comparison.ranking import IN_WORDS, MOST_SOUGHT
from offload.comparison.readings import YEAR
from offload.given import surely
from offload.meters import JOULE
from offload.printing import Pieces, and_text, clean, number_text, write_heading, write_line, write_list, write_table
from offload.ranges import fold
from offload.units import format_bytes, format_flop, format_flops, format_rate, format_seconds

MOST_LOADS = 12  # of a difference that are shown; the others are counted


def write_comparison(found: Comparison, console: Console) -> None:
    """Print a ranking, what it leaves open, what differs between plans, and meters."""
    entries = [*found.ranked, *found.rest]
    plans, servers = ({getattr(entry, key): None for entry in entries} for key in ("plan", "server"))
    word = IN_WORDS.get(found.by, f"{found.by} for each token")
    if len(plans) == 1:
        title = next((entry.title for entry in entries if entry.title), "")
        head = f"{next(iter(plans))}{f' ({title})' if title else ''} on {_many(len(servers), 'server')}"
    else:
        head = f"{len(plans)} plans on {next(iter(servers)) if len(servers) == 1 else f'{len(servers)} servers'}"
    write_line(console, f"{head}, by {word}", style="bold")
    names = _names(plans, servers)
    if found.ranked:
        console.print()
        _ranking(found, names, console)
    else:
        console.print()
        write_line(console, "Nothing fits." if not found.any_fits else "Nothing can be ranked so.")
    if len({entry.tokens for entry in found.ranked}) > 1 and found.by in ("expected", "floor"):
        write_line(console, "The steps yield different numbers of tokens: --by tokens ranks by tokens/s.")
    if requests := [entry for entry in found.ranked if step_of(entry).plan.request is not None]:
        whose = "" if len(requests) == len(found.ranked) else f" ({_many(len(requests), 'of the rows')})"
        write_line(console, f"Of a whole request{whose} one decode step at its mean context is compared, and its "
                            "prompt is not: offload step has both.")
    _left_out(found, console)
    _open(found, names, console)
    others = [f"{names(entry.plan, entry.server)}: {_not_ranked(entry, found)}" for entry in found.rest]
    write_list("Not ranked", others, console)
    for change in found.changes:
        _changes(change, names, console)
    _meters(found, names, console)
    write_list("What options come to", _noted(found.ranked, names), console)
    write_list("Names of the plan's own server elsewhere", _renamed(entries), console)


class _names:
    """How an entry is called: by its server, its plan, or both; files by their names alone where these differ."""

    def __init__(self, plans: Iterable[str], servers: Iterable[str]):
        self.of = {"plan": _short(plans), "server": _short(servers)}
        self.plans, self.servers = (len(self.of[key]) > 1 for key in ("plan", "server"))

    def __call__(self, plan: str, server: str) -> str:
        plan, server = self.of["plan"][plan], self.of["server"][server]
        if self.plans and self.servers:
            return f"{plan} on {server}"
        return plan if self.plans else server


def _short(names: Iterable[str]) -> dict[str, str]:
    """Names of files without their folder and ending, where these tell them apart."""
    stems = {name: PurePath(name).stem if name.endswith((".yaml", ".yml")) else name for name in names}
    return stems if len(set(stems.values())) == len(stems) else {name: name for name in stems}


def _many(count: int, word: str) -> str:
    return f"{count} {word}" + ("" if count == 1 else "s")


def _ranking(found: Comparison, names: _names, console: Console) -> None:
    pairs = [*found.pairs, None]
    columns = {
        "": [f"{place + 1} {names(entry.plan, entry.server)}" for place, entry in enumerate(found.ranked)],
        "floor": [format_seconds(surely(entry.floor).seconds) for entry in found.ranked],
        "expected": [_expected(entry) for entry in found.ranked],
        "tokens/s": [number_text(None if entry.tokens_per_s is None else entry.tokens_per_s[1])
                     for entry in found.ranked],
        "binds": [_binds(entry.floor_binding if found.by == "floor" else entry.binding) for entry in found.ranked],
        "least free": [_tightest(entry) for entry in found.ranked],
        "to next": ["" if pair is None else f"{_share(pair.margin)} {MARKS[pair.order]}".strip() for pair in pairs],
    }  # fmt: skip
    if found.by not in IN_WORDS:
        worth = [_amount(cost[1] * 1e6, found.unit.partition("/")[0]) for cost in found.costs]
        columns = {"": columns.pop(""), f"{found.by} /1M tokens": worth, **columns}
    _table(columns, console)
    used = {pair.order for pair in found.pairs}
    for order, text in LEGEND.items():
        if order in used:
            write_line(console, text)


SPARED = ("least free", "tokens/s", "binds")  # columns that are left out, in this order, where names need the room
LEFT = ("", "binds", "to next")  # columns that start at their left
INDENT = 2  # of the figures that stand under a name


def _table(columns: Mapping[str, Sequence[str]], console: Console) -> None:
    """Print a table with whole names: without some columns where it is too wide, then each name above its figures.

    Where even that is too wide, it is a list of all.
    """
    if isinstance(console, Pieces):  # a page has the room
        right = {place for place, head in enumerate(columns) if head not in LEFT}
        write_table(console, list(columns), list(zip(*columns.values(), strict=True)), right=right)
        return
    widths = {head: max(cell_len(cell) for cell in (head, *cells)) for head, cells in columns.items()}

    def room(heads: Sequence[str]) -> int:
        return sum(widths[head] for head in heads) + 3 * (len(heads) - 1)

    def fitting(heads: Sequence[str], width: int) -> list[str]:
        """As many of the columns as fit; none where those that are never spared do not."""
        found = [head for head in heads if head not in SPARED]
        if room(found) > width:
            return []
        for spared in reversed(SPARED):
            more = [head for head in heads if head in found or head == spared]
            found = more if room(more) <= width else found
        return found

    beside = fitting(list(columns), console.width)
    heads = beside or fitting([*columns][1:], console.width - INDENT)
    if not heads:
        write_table(console, list(columns), list(zip(*columns.values(), strict=True)))
        return
    lines = [["", *heads[1:]] if beside else heads, *zip(*(columns[head] for head in heads), strict=True)]
    for number, cells in enumerate(lines):
        text = "   ".join(cell.ljust(widths[head]) if head in LEFT else cell.rjust(widths[head])
                          for head, cell in zip(heads, cells, strict=True)).rstrip()  # fmt: skip
        if not beside and number:
            write_line(console, columns[""][number - 1])
        _line(text if beside else " " * INDENT + text, console, "" if number else "bold")
        if not number:
            _line("-" * (room(heads) + (0 if beside else INDENT)), console, "")
    gone = [head for head in columns if head and head not in heads]
    if gone:
        write_line(console, f"Left out for want of width: {and_text(gone)} ({room(list(columns))} columns show all).")


def _line(text: str, console: Console, style: str) -> None:
    console.print(Text(clean(text), style=style), no_wrap=True, overflow="ignore", crop=False)


MARKS = {"certain": "", "at all ends": "=", "same": "same", "open": "?", "left out": "..."}
LEGEND = {
    "open": '"?": the order is open: somewhere within the ends of the rates the next one may be better.',
    "at all ends": '"=": the order holds at all ends of the rates that both share; between them it is not proved.',
    "same": '"same": no difference, wherever the rates are.',
}


def _expected(entry: Entry) -> str:
    """The expected time with its ends, in the unit of the time where all are in one."""
    times = times_of(entry)
    low, value, high = (format_seconds(one) for one in (times.low, times.seconds, times.high))
    if low == high:
        return value
    about = "" if entry.exact else "~"
    unit = value.split()[1]
    if all(one.split()[1] == unit for one in (low, high)):
        return f"{value} {about}({low.split()[0]}..{high.split()[0]})"
    return f"{value} {about}({low}..{high})"


def _binds(names: Sequence[str]) -> str:
    """What binds, in a word or two: of several the first and how many more."""
    text = fold(names)
    parts = text.split(", ")
    return text if len(text) <= 14 or len(parts) == 1 else f"{parts[0]} +{len(parts) - 1}"


def _share(margin: float) -> str:
    return "+0%" if margin < 5e-5 else f"{100 * margin:+.2f}%" if margin < 0.0995 else f"{100 * margin:+.0f}%"


def _tightest(entry: Entry) -> str:
    """What is left in the memory with the smallest free share."""
    known = [(one.free, one.capacity) for one in entry.memory if one.capacity and one.free is not None]
    if not known:
        return "-"
    return format_bytes(min(known, key=lambda one: one[0] / one[1])[0])


def _not_ranked(entry: Entry, found: Comparison) -> str:
    if entry.fits:
        why = next((one.why for one in entry.readings if one.name == found.by and one.why), "")
        return f"it fits, but {found.by} cannot be read there: {why}"
    return f"{entry.state}: {entry.why}"


def _left_out(found: Comparison, console: Console) -> None:
    """What was not worked out, so as to stay quick."""
    loose = [entry for entry in found.ranked if not entry.exact]
    orders = sum(pair.order == "left out" for pair in found.pairs)
    left = [f"the ends of {_many(len(loose), 'expected time')} (~: they lie between these, the floor at fast rates and "
            "all tasks one after another at slow ones)"] if loose else []  # fmt: skip
    left += [f"the order of {_many(orders, 'pair')} (...)"] if orders else []
    if left:
        way = "effort=FULL" if isinstance(console, Pieces) else "--full"
        write_line(console, f"Left out, to be quick: {and_text(left)}. {way} works out all of it.")


def _open(found: Comparison, names: _names, console: Console) -> None:
    if found.pairs and found.certain:
        write_line(console, "The order is certain: no rate within its ends changes it."
                   if all(pair.order in ("certain", "same") for pair in found.pairs) else
                   "No rate at either of its ends changes the order.")  # fmt: skip
    told = [_open_pair(pair, names) for pair in found.pairs
            if pair.order == "open" and pair.sought]  # fmt: skip
    write_list("What is open, and which one measurement would settle it", told, console)
    opened = [pair for pair in found.pairs if pair.order == "open"]
    way = "effort=FULL" if isinstance(console, Pieces) else "--full"
    if late := sum(not pair.sought for pair in opened[:MOST_SOUGHT]):
        what = f"{late} more" if told else _many(late, "pair")
        write_line(console, f"What would settle {what} was left out, to be quick: {way} works it out.")
    if more := len(opened[MOST_SOUGHT:]):
        are = "is" if more == 1 else "are"
        write_line(console, f"{_many(more, 'further pair')} {are} open: compare two alone, with {way}, for what would "
                   "settle them.")  # fmt: skip


def _open_pair(pair: Pair, names: _names) -> str:
    first, second = names(*pair.first), names(*pair.second)
    head = f"{first} or {second}: "
    measure = pair.measure
    if measure is None:
        return head + "no single measurement was found that settles it."
    what = f"measure {_where(measure, names)} ({_ends(measure, measure.low, measure.high)})"
    parts = [f"{one} is better {_part(measure, part)}"
             for one, part in ((first, measure.first), (second, measure.second)) if part is not None]  # fmt: skip
    return f"{head}{what}: {'; '.join(parts)}." + ("" if measure.settles else " Else it stays open.")


def _where(measure: Measure, names: _names) -> str:
    places = [f"{fold(own)} on {server}" if names.servers else f"{fold(own)} ({plan})"
              for plan, server, own in measure.sides]  # fmt: skip
    if len(measure.sides) == 2 and len({one[2] for one in measure.sides}) == 1 and names.servers:
        return f"{fold(measure.sides[0][2])}, the same on both"
    if len(measure.sides) == 2 and not names.servers:
        return f"{fold(measure.sides[0][2])}, which both have"
    return and_text(places)


def _part(measure: Measure, part: tuple[float, float]) -> str:
    low, high = part
    if low <= measure.low and high >= measure.high:
        return "whatever it is"
    return f"from {_figure(measure, low)} up" if high >= measure.high else f"up to {_figure(measure, high)}"


def _ends(measure: Measure, low: float, high: float) -> str:
    return f"{_figure(measure, low)} to {_figure(measure, high)}"


def _figure(measure: Measure, value: float) -> str:
    if measure.unit == "s":
        return f"{value:.4g} per second"
    shows = {("B", "rate"): format_rate, ("FLOP", "rate"): format_flops, ("B", "load"): format_bytes,
             ("FLOP", "load"): format_flop}  # fmt: skip
    return shows[measure.unit, measure.what](value, 4)


def _changes(one: Changes, names: _names, console: Console) -> None:
    where = f" on {names.of['server'][one.server]}" if names.servers else ""
    before, after = (names.of["plan"][name] for name in (one.before, one.after))
    write_heading(console, f"From {before} to {after}{where}")
    first, then = one.seconds
    times = "the same time" if first == then else f"{then / first:.3g} x the time" if first else ""
    write_line(console, f"{format_seconds(first, 4)} -> {format_seconds(then, 4)} expected ({times}).")
    if one.binding[0] == one.binding[1]:
        told = fold(one.binding[0]) or "nothing"
        write_line(console, f"{told} {'bind' if ',' in told or '..' in told else 'binds'} before and after.")
    else:
        write_line(console, f"What binds: before {fold(one.binding[0]) or 'nothing'}, after "
                   f"{fold(one.binding[1]) or 'nothing'}.")  # fmt: skip
    if not one.changed:
        write_line(console, "No load differs.")
        return
    rows = []
    for row in one.changed[:MOST_LOADS]:
        show = format_bytes if row.unit == "B" else format_flop if row.unit == "FLOP" else number_text
        sign = "+" if row.difference > 0 else "-"
        rows.append([row.resource, show(row.before), show(row.after), f"{sign}{show(abs(row.difference))}",
                     "-" if row.seconds_before is None else format_seconds(row.seconds_before),
                     "-" if row.seconds_after is None else format_seconds(row.seconds_after)])  # fmt: skip
    write_table(console, ["load of", "before", "after", "difference", "time before", "after"], rows,
                right={1, 2, 3, 4, 5})  # fmt: skip
    more = len(one.changed) - len(rows)
    same = [f"{more} more {'differ' if more > 1 else 'differs'} less"] if more else []
    stays = "stays as it is" if one.same == 1 else "stay as they are"
    same += [f"{_many(one.same, 'load')} {stays}"] if one.same else []
    if same:
        write_line(console, f"{and_text(same)}.")


def _meters(found: Comparison, names: _names, console: Console) -> None:
    for place, meter in enumerate(found.meters):
        shown = [(entry, entry.readings[place]) for entry in [*found.ranked, *found.rest] if entry.fits]
        if not shown:
            continue
        text = f"written to {meter.drive}" if meter.drive else " + ".join(
            one.written + (f" of {one.of}" if one.of else "") for one in meter.terms)  # fmt: skip
        origin = f"the {meter.stated} that each server states" if meter.stated else f"your coefficients ({text})"
        write_heading(console, f"{meter.name}: an estimate from {origin}")
        rows = [[names(entry.plan, entry.server), *_cells(one)] for entry, one in shown if not one.why]
        heads = ["", "per step", "per token", "per million tokens", "low..high"]
        if meter.drive:
            heads = ["", "per step", "per million tokens", "tokens until worn", "years until worn"]
        if rows:
            _table(dict(zip(heads, zip(*rows, strict=True), strict=True)), console)
        for entry, one in shown:
            if one.why:
                write_line(console, f"{names(entry.plan, entry.server)}: {one.why}")
            elif one.uncounted:
                write_line(console, f"{names(entry.plan, entry.server)}: not counted, as their rates are not known: "
                           f"{fold(one.uncounted)}")  # fmt: skip


def _cells(one: Reading) -> list[str]:
    if one.wear is not None:
        per = one.wear.seconds
        years = "-" if per is None else f"{number_text(per[1] / YEAR)}" + (
            "" if per[0] == per[2] else f" ({number_text(per[0] / YEAR)}..{number_text(per[2] / YEAR)})")
        none = "never" if one.wear.endurance is not None else "-"
        return [format_bytes(surely(one.per_step)[1]), format_bytes(surely(one.per_million_tokens)[1]),
                none if one.wear.tokens is None else f"{one.wear.tokens:.3g}", none if per is None else years]
    low, value, high = (_amount(figure, one.unit) for figure in surely(one.per_million_tokens))
    return [_amount(surely(one.per_step)[1], one.unit), _amount(surely(one.per_token)[1], one.unit), value,
            "" if low == high else f"{low}..{high}"]  # fmt: skip


def _amount(value: float, unit: str) -> str:
    if unit == "B":
        return format_bytes(value)
    if unit != JOULE or value == 0:
        return f"{number_text(value) if value < 1e9 else f'{value:.3g}'} {unit}"
    if value >= 3.6e6:
        return f"{value / 3.6e6:.3g} kWh"
    for worth, prefix in ((1e3, "kJ"), (1.0, "J"), (1e-3, "mJ"), (1e-6, "uJ")):
        if value >= worth:
            return f"{value / worth:.3g} {prefix}"
    return f"{value / 1e-9:.3g} nJ"


def _noted(entries: Sequence[Entry], names: _names) -> list[str]:
    """What options come to, a line for all entries of which the same is told."""
    found: dict[str, list[str]] = {}
    for entry in entries:
        for note in entry.notes:
            found.setdefault(note, []).append(names(entry.plan, entry.server))
    return [f"{and_text(of)}: {note}" for note, of in found.items()]


def _renamed(entries: Sequence[Entry]) -> list[str]:
    """What the plan's names stand for, a line for all servers on which they stand for the same."""
    found: dict[tuple[str, tuple[tuple[str, str], ...]], list[str]] = {}
    for entry in entries:
        if entry.names:
            found.setdefault((entry.plan, tuple(entry.names.items())), []).append(entry.server)
    return [f"{and_text(servers)}: {and_text([f'{own} is {other}' for own, other in names])}"
            for (_, names), servers in found.items()]  # fmt: skip
