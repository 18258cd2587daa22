"""Names of a server's parts in a plan: what is wrong with one that is not known, in words."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from offload.designs.homes import is_mixed, parts_of_home
from offload.errors import OffloadError, PlanError, did_you_mean
from offload.ranges import listed
from offload.topology import Route, Topology, describe_route


def no_node(
    topology: Topology, name: str, kind: str, also: tuple[str, ...] = (), fit: Collection[str] | None = None
) -> str:
    """What is wrong with a name that is to be a "memory" or a "processor"; "" where it is one.

    also : other words. fit : those that may stand here, where not all may: no other is proposed.
    """
    known: Mapping[str, object] = topology.memories
    other: Mapping[str, object] = topology.processors
    if kind == "processor":
        known, other = other, known
    if name in known:
        return ""
    if name in other and kind == "memory":
        return f'"{name}" is a processor; its memory is {topology.processors[name].memory}.'
    plural = {"memory": "Memories", "processor": "Processors"}[kind]
    if fit is not None:
        hint = did_you_mean(name, [*also, *fit], "Allowed") if fit else (
            f"{topology.name} has no {kind} that may stand here. Drop it.")
    else:
        hint = did_you_mean(name, [*also, *known], f"{plural} of {topology.name}" if not also else "Allowed")
    if name in other:
        here = ", ".join(topology.processors_of(name)) or "none"
        return f'"{name}" is a memory; processors that work in it: {here}. {hint}'
    return f'no {kind} "{name}". {hint}'


def no_nodes(
    topology: Topology, text: str, kind: str, also: tuple[str, ...] = (), fit: Collection[str] | None = None
) -> str:
    """The same for a name or a range of names (`hbm0..7`)."""
    try:
        names = listed(text)
    except ValueError as error:
        return str(error)
    return next((wrong for wrong in (no_node(topology, name, kind, also, fit) for name in names) if wrong), "")


def same_home(home: str, before: Iterable[str]) -> str:
    """What is wrong with a home that an earlier one, written otherwise, is already; "" where none is."""
    own = _memories(home)
    twin = next((one for one in before if own is not None and _memories(one) == own), None)
    return "" if twin is None else f'"{home}" is the same as "{twin}": name it once, with one portion.'


def _memories(home: str) -> frozenset[tuple[str, float | None]] | None:
    """The memories of a home with their parts; None where it is none."""
    try:
        return frozenset(parts_of_home(home) if is_mixed(home) else ((name, None) for name in listed(home)))
    except (PlanError, ValueError):
        return None


def no_stop(topology: Topology, name: str) -> str:
    """What is wrong with a name in `via`; "" where it is a node."""
    if name in topology.links:
        link = topology.links[name]
        return f"{name} is the link between {link.a} and {link.b}; `via` names nodes: write one of these."
    nodes = {*topology.memories, *topology.switches}
    return "" if name in nodes else f'no memory or switch "{name}". {did_you_mean(name, nodes, "Nodes")}'


def plain(error: OffloadError, topology: Topology) -> str:
    """An error's text without the topology's name, which the file's line already leads to."""
    return str(error).removeprefix(f"topology {topology.name}: ")


def parts_not_alike(memory: str, routes: Iterable[Route]) -> str:
    """What is wrong with a home in several memories whose parts come by ways of unlike stages."""
    shown = "; ".join(dict.fromkeys(describe_route(route) for route in routes))
    own = _memories(memory)
    if own is not None and len(own) == 1:
        return (f'"{memory}" is not reached alike by those that share each layer ({shown}), and a layer\'s parts are '
                "moved together. Send all the same way with `via` under placement, as `via: dram0`, or place the "
                "layers elsewhere.")
    return (f'the parts of "{memory}" come by ways that differ ({shown}), and a layer\'s parts are moved together. '
            "Place whole layers in each memory, as {dram0: 20 layers, ssd0: rest}.")
