"""`price` and `power` of a server and of its parts in a topology file: a figure with its source, or `included`.

    price: {value: 250000 USD, source: "a reseller's page, 2025-01 (found: ...)"}
    price: {value: 80..98.32..110 USD/h, source: "on demand (memory)"}     # of what is rented
    power: {value: 700 W, source: "data sheet (memory)"}
    power: included                                                         # in that of another part

They change no floor and no schedule: they are for those who rank servers by what they cost.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict

from offload import units
from offload.documents.shapes import Shape, quantity
from offload.topology.confidence import ends_in_confidence
from offload.topology.parts import INCLUDED, Cost, Interval

COSTS = ("price", "power")
WORD = "included"


def _sure(source: str) -> str:
    if not ends_in_confidence(source):
        raise ValueError(
            f'"{source[:60]}" does not end in how sure it is. End it with (found: where), (derived), (memory), '
            "(announced) or (what if)."
        )
    return source


def _power(text: str) -> tuple[float, float, float, str]:
    return *units.parse_power_interval(text), "W"


Source = Annotated[str, AfterValidator(_sure)]
Price = Annotated[tuple[float, float, float, str], quantity(units.parse_price_interval)]
Power = Annotated[tuple[float, float, float, str], quantity(_power)]


class PriceShape(Shape):
    """What something costs, or the word included."""

    model_config = ConfigDict(title="a price")
    value: Price
    source: Source


class PowerShape(Shape):
    """What something draws, or the word included."""

    model_config = ConfigDict(title="a power")
    value: Power
    source: Source


def without_included(value: dict[str, Any]) -> dict[str, Any]:
    """An entry of a topology without the costs that it says are in those of another part."""
    return {key: one for key, one in value.items() if key not in COSTS or one != WORD}


def costs_of(shape: Any, written: Any, count: int = 1) -> dict[str, Cost]:
    """price and power of an entry, of `count` together; written : the entry as it stands in the file."""
    found = {}
    for what in COSTS:
        one = getattr(shape, what)
        if one is not None:
            *ends, unit = one.value
            found[what] = Cost(Interval(*ends), unit, one.source).scaled(count)
        elif isinstance(written, dict) and written.get(what) == WORD:
            found[what] = INCLUDED
    return found


def written_costs(part: Any) -> dict[str, Any]:
    """price and power of a part as a file has them."""
    return {what: _written(cost) for what in COSTS if (cost := getattr(part, what)) is not None}


def _written(cost: Cost) -> Any:
    if cost.included:
        return WORD
    ends = (cost.figure.low, cost.figure.value, cost.figure.high)
    figures = [units.plain_number(end) for end in (ends if cost.figure.low != cost.figure.high else ends[:1])]
    return {"value": f"{'..'.join(figures)} {cost.unit}", "source": cost.source}
