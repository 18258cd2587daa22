"""Where the parts of a server stand when it is drawn: host memory over its socket, below it switches, GPUs and drives.

Everything below a part lies under it, so that a link between the two is a vertical line. GPUs that are linked to each
other have their links, or the switch between them, below. Positions are mm, of a drawing of a given width.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import cast

from offload.topology import Topology
from offload.topology.parts import Link, Memory, Processor, Switch
from offload.topology.shares import DRIVES

HIGH = {"memory": 13.0, "switch": 7.0}  # mm of a box
GAP = 15.0  # mm between the rows, in which links have their names
UNITS = {"gpu": 2.3, "host": 3.0, "other": 1.0}  # how wide a part is, by what it is
BETWEEN = 0.9  # units between sockets, where their link is
BESIDE = 0.5  # units between a part and one that hangs on it in the same row
FEW = 2  # cards or drives at one part, alike; of more one box stands for all
HOST = 34.0  # mm that host memory is wide at most
NARROW = 7.0  # mm: the names of GPUs that are narrower stand below them
NAMES = 4.6  # mm for these
ARCS = (10.0, 0.6, 18.0)  # mm that links between GPUs take below them: for none, more for each, at most


@dataclass(slots=True, eq=False)
class Node:
    """A part of the drawing: names (several of cards or drives that are alike), its children, its box [mm].

    kind : "gpu" (a memory with a GPU), "host", "drive", "card", "switch", "socket" or "nvswitch". beside : of a part
    that hangs on another in the same row. x, y : the middle of the box.
    """

    names: list[str]
    kind: str
    part: Memory | Switch
    processors: list[Processor] = field(default_factory=list)
    children: list[Node] = field(default_factory=list)
    hosts: list[Node] = field(default_factory=list)
    beside: bool = False
    level: int = 0
    x: float = 0.0
    y: float = 0.0
    wide: float = 0.0
    high: float = 0.0

    @property
    def name(self) -> str:
        return self.names[0]

    @property
    def top(self) -> float:
        return self.y + self.high / 2

    @property
    def bottom(self) -> float:
        return self.y - self.high / 2

    def units(self) -> float:
        """How wide it is, with all that is below it."""
        own = UNITS.get(self.kind, UNITS["other"])
        below = [one.units() for one in self.children if not one.beside]
        aside = sum(one.units() + BESIDE for one in self.children if one.beside)
        hosts = sum(one.units() for one in self.hosts)
        return max(own, sum(below), hosts) + aside


@dataclass(frozen=True, slots=True)
class Places:
    """Nodes by the name of each part, what joins them: (link, how), and the height of the drawing [mm].

    how : "down" (the second end is below the first), "aside" (in one row), "bar" (to the switch below) or "arc".
    deep : of the deepest arc [mm].
    """

    nodes: dict[str, Node]
    links: tuple[tuple[Link, str], ...]
    high: float
    deep: float


def places(topology: Topology, wide: float) -> Places:
    """The parts of a server in their places."""
    trees, parents = _trees(topology)
    nodes = {name: node for node in _all(trees) for name in node.names}
    bars = [one for one in topology.switches.values() if one.kind == "nvswitch"]
    how = tuple((link, _how(link, nodes, parents, {one.name for one in bars})) for link in topology.links.values()
                if not _merged(link, nodes))  # fmt: skip
    total = sum(tree.units() for tree in trees) + BETWEEN * (len(trees) - 1)
    unit = wide / max(total, 6.0)
    at = (wide - unit * total) / 2
    for tree in trees:
        _across(tree, at, unit)
        at += (tree.units() + BETWEEN) * unit
    deep = min(ARCS[0] + ARCS[1] * sum(one == "arc" for _, one in how), ARCS[2])
    high = _heights(trees, nodes, bars, how, wide, deep)
    return Places(nodes, how, high, deep)


def _trees(topology: Topology) -> tuple[list[Node], dict[str, str]]:
    """Sockets with all that hangs on them, and the link by which each part hangs on its parent."""
    ends: dict[str, list[Link]] = {}
    bars = {one.name for one in topology.switches.values() if one.kind == "nvswitch"}
    for link in topology.links.values():
        for end in (link.a, link.b):
            ends.setdefault(end, []).append(link)
    hosted = {one.name for one in topology.memories.values() if one.at is not None}
    made = {name: _node(topology, name) for name in (*topology.switches, *topology.memories) if name not in bars}
    parents: dict[str, str] = {}
    seen = set(hosted)
    trees: list[Node] = []

    def grow(roots: Iterable[str], near: bool) -> None:
        """Hang on roots, row by row, what their links lead to. near : over no link between GPUs."""
        row = list(roots)
        while row:
            below = []
            for name in row:
                for link in ends.get(name, ()):
                    other = link.b if link.a == name else link.a
                    peers = {made[end].kind for end in (link.a, link.b) if end in made} == {"gpu"}
                    if other in seen or other in bars or (near and peers):
                        continue
                    seen.add(other)
                    parents[other] = link.name
                    made[other].level = made[name].level + 1
                    made[name].children.append(made[other])
                    below.append(other)
            row = below

    sockets = [one.name for one in topology.switches.values() if one.kind == "socket"]
    seen |= set(sockets)
    trees += [made[name] for name in sockets]
    grow(sockets, True)
    for near in (True, False):
        grow([name for name in made if name in seen and name not in hosted], near)
    order = {"host": 0, "switch": 1, "card": 2, "gpu": 3, "drive": 4}
    for name in sorted(made, key=lambda name: order.get(made[name].kind, 5)):  # what no socket leads to
        if name not in seen:
            seen.add(name)
            trees.append(made[name])
            grow([name], True)
    for name in hosted:
        made[cast(str, topology.memories[name].at)].hosts.append(made[name])
    for tree in trees:
        _arrange(tree, topology, parents)
    return trees, parents


def _node(topology: Topology, name: str) -> Node:
    if name in topology.switches:
        switch = topology.switches[name]
        kind = {"socket": "socket", "nic": "card"}.get(switch.kind, "switch")
        return Node([name], kind, switch)
    memory = topology.memories[name]
    own = [one for one in topology.processors.values() if one.memory == name]
    gpu = any(one.kind == "gpu" for one in own) or memory.kind == "hbm"
    kind = "drive" if memory.kind in DRIVES else "gpu" if gpu and memory.at is None else "host"
    return Node([name], kind, memory, own)


def _arrange(node: Node, topology: Topology, parents: dict[str, str]) -> None:
    """Put children in order: switches and GPUs, then cards and drives, of which many alike are one."""
    for child in node.children:
        _arrange(child, topology, parents)
    leaves = [one for one in node.children if not one.children and one.kind in ("card", "drive")]
    groups: dict[object, list[Node]] = {}
    for leaf in leaves:
        link = topology.links[parents[leaf.name]]
        facts = replace(leaf.part, name="", source=""), link.forward, link.backward, link.a == node.name
        groups.setdefault(repr(facts), []).append(leaf)
    kept: list[Node] = []
    for group in groups.values():
        if len(group) > FEW:
            group[0].names += [name for other in group[1:] for name in other.names]
            kept.append(group[0])
        else:
            kept += group
    node.children = [one for one in node.children if one not in leaves] + kept
    if node.kind in ("gpu", "drive", "card"):
        for child in node.children:
            child.beside = not child.children


def _all(trees: Iterable[Node]) -> Iterable[Node]:
    for tree in trees:
        yield tree
        yield from _all(tree.hosts)
        yield from _all(tree.children)


def _merged(link: Link, nodes: dict[str, Node]) -> bool:
    """Whether another link stands for this one: of several alike cards or drives only the first is drawn."""
    return any(end in nodes and nodes[end].name != end for end in (link.a, link.b))


def _how(link: Link, nodes: dict[str, Node], parents: dict[str, str], bars: set[str]) -> str:
    if link.a in bars or link.b in bars:
        return "bar"
    for end in (link.a, link.b):
        if parents.get(end) == link.name:
            return "aside" if nodes[end].beside else "down"
    return "arc"


def _across(node: Node, left: float, unit: float) -> None:
    """Give a part and all below it their places from left to right."""
    aside = [one for one in node.children if one.beside]
    below = [one for one in node.children if not one.beside]
    own = node.units() - sum(one.units() + BESIDE for one in aside)
    node.x = left + own * unit / 2
    node.wide = own * unit - (1.2 if below else 0.16 * own * unit)
    at = left + own * unit
    for one in aside:
        at += BESIDE * unit
        _across(one, at, unit)
        at += one.units() * unit
    at = left + (own - sum(one.units() for one in below)) * unit / 2
    for one in below:
        _across(one, at, unit)
        at += one.units() * unit
    each = min(HOST, node.wide / max(1, len(node.hosts)))
    for place, one in enumerate(node.hosts):
        one.x, one.wide = node.x + (place - (len(node.hosts) - 1) / 2) * each, each - 1.2 * (len(node.hosts) > 1)


def _heights(trees: list[Node], nodes: dict[str, Node], bars: list[Switch], how: tuple[tuple[Link, str], ...],
             wide: float, deep: float) -> float:  # fmt: skip
    """Give each row its height, from below; the height of all."""
    every = list(dict.fromkeys(nodes.values()))
    for node in every:
        for child in node.children:
            if child.beside:
                child.level = node.level
    levels: dict[int, list[Node]] = {}
    hosts = [host for tree in _all(trees) for host in tree.hosts]
    for node in every:
        node.high = HIGH["switch" if isinstance(node.part, Switch) else "memory"]
        if node not in hosts:  # these are upon their sockets
            levels.setdefault(node.level, []).append(node)
    gpus = [node for node in every if node.kind == "gpu"]
    at = 1.0 + NAMES * any(node.wide < NARROW for node in gpus)
    if bars:
        at = 1.0
        for number, bar in enumerate(bars):
            own = [nodes[end] for link, _ in how for end in (link.a, link.b)
                   if end in nodes and bar.name in (link.a, link.b)]  # fmt: skip
            left = min((one.x - one.wide / 2 for one in own), default=0.0)
            right = max((one.x + one.wide / 2 for one in own), default=wide)
            nodes[bar.name] = Node([bar.name], "nvswitch", bar, x=(left + right) / 2, wide=right - left,
                                   high=HIGH["switch"], y=at + HIGH["switch"] / 2 + number * (HIGH["switch"] + 3))
        at += len(bars) * (HIGH["switch"] + 3) - 3 + GAP
    if any(one == "arc" and not _both_roots(link, trees) for link, one in how):
        at += deep + 1
    for level in sorted(levels, reverse=True):
        row = levels[level]
        high = max(one.high for one in row)
        for node in row:
            node.y = at + high - node.high / 2  # tops in one line
        at += high + (GAP if level else 0.0)
    if hosts:
        for host in hosts:
            host.y = at + host.high / 2
        at += HIGH["memory"]
    if any(one == "arc" and _both_roots(link, trees) and not next_to(link, trees) for link, one in how):
        at += deep / 2 + 1
    return at + 1.0


def _both_roots(link: Link, trees: list[Node]) -> bool:
    roots = {tree.name for tree in trees}
    return link.a in roots and link.b in roots


def next_to(link: Link, trees: list[Node]) -> bool:
    """Whether a link is between two parts of the first row that stand beside each other."""
    names = [tree.name for tree in trees]
    return link.a in names and link.b in names and abs(names.index(link.a) - names.index(link.b)) == 1
