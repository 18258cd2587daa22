"""Where a tensor lives: a memory, a range of memories with equal parts, or several with parts by their rates.

"dram0 + cxl0" lays each layer over both at once, in proportion to the sustained rates at which the processor that runs
it reads each, so that all end together (weighted interleaving of memory nodes); "75% dram0 + 25% cxl0" says the parts.
"""

from __future__ import annotations

import re

from offload.errors import PlanError, RouteError
from offload.ranges import in_short, listed
from offload.topology import Stage, Topology
from offload.topology.shares import DRIVES
from offload.units import format_rate

_PART = re.compile(r"(?:(\d+(?:\.\d+)?) *% *)?(.+)")


def spelled(home: str) -> tuple[str, str]:
    """How a home of several memories is written, by rates and with parts, with the names of one that is wrong."""
    parts = (_PART.fullmatch(text.strip()) for text in home.split("+"))
    names = list(dict.fromkeys(match[2].strip() for match in parts if match is not None))
    first, second = (*names, "OTHER", "OTHER")[:2] if names else ("MEMORY", "OTHER")
    return f'"{first} + {second}"', f'"75% {first} + 25% {second}"'


def _spelling(home: str) -> str:
    by_rates, stated = spelled(home)
    return f"{by_rates} (by their rates) or {stated}"


def is_mixed(home: str) -> bool:
    """Whether a home is several memories with parts of their own."""
    return "+" in home or "%" in home


def parts_of_home(home: str) -> tuple[tuple[str, float | None], ...]:
    """The memories of a mixed home, each with its share [1], None where the rates decide.

    Raises PlanError where shares do not add up to the whole, or one memory is named twice.
    """
    found: list[tuple[str, float | None]] = []
    for text in home.split("+"):
        match = _PART.fullmatch(text.strip())
        if match is None:
            raise PlanError(f'placement.weights: "{home}" names no memory beside a "+". Write '
                            f"{_spelling(home)}.")
        try:
            names = listed(match[2])
        except ValueError as error:
            raise PlanError(f"placement.weights: {error}") from None
        share = None if match[1] is None else float(match[1]) / 100 / len(names)
        found += [(name, share) for name in names]
    names = [name for name, _ in found]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise PlanError(f'placement.weights: "{home}" names {twice} twice. Write {_spelling(home)}.')
    shares = [share for _, share in found if share is not None]
    if shares and len(shares) < len(found):
        raise PlanError(f'placement.weights: "{home}" gives some memories a share and others none. Write '
                        f"{_spelling(home)}.")
    if shares and abs(sum(shares) - 1) > 1e-9:
        raise PlanError(f'placement.weights: the shares of "{home}" add up to {100 * sum(shares):g}%. They are of each '
                        "layer, and add up to 100%.")
    if shares and min(shares) == 0:
        raise PlanError(f'placement.weights: "{home}" gives a memory nothing. Leave it out.')
    return tuple(found)


def home_names(home: str) -> list[str]:
    """The memories of any home. Raises ValueError for a range that is none, PlanError as `parts_of_home`."""
    return [name for name, _ in parts_of_home(home)] if is_mixed(home) else listed(home)


def home_in_short(home: str) -> str:
    """A home in its shortest writing, so that equal ones have equal names; what is no home stays as it is."""
    if not is_mixed(home):
        return in_short(home)
    try:
        parts = parts_of_home(home)
    except PlanError:
        return home
    return " + ".join(name if share is None else f"{100 * share:.12g}% {name}" for name, share in parts)


def shares_of_home(topology: Topology, home: str, processor: str) -> tuple[tuple[str, float], ...]:
    """(memory, share) of a home: equal parts of a range, stated ones, or by the rates at which a processor reads each.

    Raises PlanError where these rates are not known.
    """
    if not is_mixed(home):
        names = listed(home)
        return tuple((name, 1 / len(names)) for name in names)
    parts = parts_of_home(home)
    if parts[0][1] is not None:
        return tuple((name, share) for name, share in parts if share is not None)
    rates = rates_of_home(topology, home, processor)
    total = sum(rates.values())
    return tuple((name, rate / total) for name, rate in rates.items())


def rates_of_home(topology: Topology, home: str, processor: str) -> dict[str, float]:
    """The sustained rate at which a processor reads each memory of a home by itself, what they share left aside [B/s].

    Raises PlanError where one is not known, RouteError where no way leads.
    """
    names = home_names(home)
    stated = spelled(home)[1]
    if drive := next((name for name in names if topology.memories[name].kind in DRIVES), ""):
        raise PlanError(f'placement.weights: {drive} is a drive, whose bytes pass host memory on their way: "{home}" '
                        f"has no parts by rates. Say them, as {stated}.")
    loads = {name: _loads(topology, name, processor) for name in names}
    shared = set.intersection(*(set(one) for one in loads.values())) if len(names) > 1 else set()
    found = {}
    for name, uses in loads.items():
        rates = []
        for row, (times, access) in uses.items():
            rate = topology.resources[row].sustained_at(access)
            if rate is not None and row not in shared and times > 0:
                rates.append(rate.value / times)
        if not rates:
            raise PlanError(f'placement.weights: the rate of {name} is not known, so "{home}" has no parts by rates. '
                            f"Say them, as {stated}.")
        found[name] = min(rates)
    return found


def _loads(topology: Topology, memory: str, processor: str) -> dict[str, tuple[float, str]]:
    """What a byte loads that a processor reads there, or has brought to it: resource -> (times, access)."""
    own = topology.memory_of(processor)
    stage: Stage
    if memory == own or reads_in_place(topology, processor, [memory]):
        stage, access = topology.read_route(memory, processor).stages[0], "zero_copy"
    else:
        stage, access = topology.route(memory, own).stages[0], "pinned"
    found = {}
    for row, _, times in stage.uses:
        at_link = topology.resources[row].kind in ("link", "limit")
        if row != own or memory == own:  # what is brought shares the destination with everything else
            found[row] = (times, access if at_link else "read")
    return found


def reads_in_place(topology: Topology, processor: str, memories: list[str]) -> bool:
    """Whether a CPU reads other memories of its host where they are: another socket's, CXL. It never copies these."""
    if topology.processors[processor].kind != "cpu":
        return False
    ways = topology.ways
    if not all(ways.is_host(memory) for memory in memories):
        return False
    try:
        for memory in memories:
            topology.read_route(memory, processor)
    except RouteError:
        return False
    return True


def home_note(topology: Topology, home: str, processor: str) -> str:
    """What a mixed home comes to: its parts, and the rate of all together; of stated parts also the best ones."""
    shares = shares_of_home(topology, home, processor)
    shown = ", ".join(f"{100 * share:.1f}% in {name}" for name, share in shares)
    stated = parts_of_home(home)[0][1] is not None
    try:
        rates = rates_of_home(topology, home, processor)
    except PlanError:
        rates = {}
    if not rates or (stated and any(topology.memories[name].kind == "hbm" for name in rates)):
        return f"each layer lies over several memories at once, as stated: {shown}"
    total = sum(rates.values())
    alone = " and ".join(f"{format_rate(rate)} ({name})" for name, rate in rates.items())
    best = ", ".join(f"{100 * rate / total:.1f}% in {name}" for name, rate in rates.items())
    if not stated:
        return (f"each layer lies over several memories at once, in proportion to the sustained rates {alone}, so that "
                f"all end together: {shown}, {format_rate(total)} in all where nothing else binds")
    slowest = min(rates[name] / share for name, share in shares)
    return (f"each layer lies over several memories at once, as stated: {shown}: {format_rate(slowest)} in all where "
            f"nothing else binds; by their rates, {alone}, it would be {format_rate(total)} ({best})")
