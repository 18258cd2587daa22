"""Price and power of a server as text: of the whole, of its parts, and their sum or what it lacks."""

from __future__ import annotations

from rich.console import Console

from offload.costs import WHATS, Costs, costs_of
from offload.printing import fold_rows, write_heading, write_line, write_list, write_table
from offload.ranges import fold
from offload.topology import Cost, Topology
from offload.units import format_cost


def write_costs(topology: Topology, console: Console) -> None:
    """Print what a server and its parts cost and draw; nothing where nothing is stated."""
    both = [costs_of(topology, what) for what in WHATS]
    both = [one for one in both if one.server or one.parts]
    if not both:
        return
    write_heading(console, "Price and power: they change no floor")
    rows: dict[str, dict[str, str]] = {}
    for costs in both:
        for part in costs.parts:
            each = f"{part.count} x " if part.count > 1 and not part.each.included else ""
            rows.setdefault(part.name, {})[costs.what] = each + cost_text(part.each)
    if rows:
        table = fold_rows([[name, *(row.get(one.what, "-") for one in both)] for name, row in rows.items()])
        write_table(console, ["part, each", *(one.what for one in both)], table, right=set(range(1, len(both) + 1)))
    for costs in both:
        for line in _lines(costs):
            write_line(console, line)
    sources: dict[str, dict[str, None]] = {}
    for costs in both:
        told = [("the server", costs.server), *((part.name, part.each) for part in costs.parts)]
        for name, cost in told:
            if cost is not None and not cost.included:
                sources.setdefault(f"{costs.what}: {cost.source}", {})[name] = None
    write_list("Sources of price and power", [f"{fold(names)}: {text}" for text, names in sources.items()], console)


def _lines(costs: Costs) -> list[str]:
    found = []
    if costs.server is not None:
        found.append(f"{costs.what} of the whole server: {cost_text(costs.server)}")
    if costs.total is not None:
        found.append(f"{costs.what} of all parts, added up: {cost_text(costs.total)}")
    elif costs.parts and costs.lacking:
        found.append(f"{costs.what}: the parts are not added up, as {fold(costs.lacking)} say none")
    elif len(costs.units) > 1:
        found.append(f"{costs.what}: the parts are not added up, as they are in {', '.join(costs.units)}")
    return found


def cost_text(cost: Cost | None) -> str:
    """A price or a power: "250,000 USD", "450 W (300 to 700)", "included"; "-" for none."""
    if cost is None:
        return "-"
    if cost.included:
        return "included"
    text = format_cost(cost.figure.value, cost.unit)
    if cost.figure.low == cost.figure.high:
        return text
    low, high = (format_cost(end, "").strip() for end in (cost.figure.low, cost.figure.high))
    return f"{text} ({low} to {high})"
