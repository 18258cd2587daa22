"""A server's graph as text for tools that draw: Graphviz DOT, and Mermaid.

Nodes are memories, processors, switches and limits, each by its kind; a link is an edge with what it is and its rate
each way. A name or a title may hold any character: here it is data, never syntax. Both texts are plain ASCII.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from dataclasses import dataclass

from offload.describe import link_text
from offload.errors import OffloadError
from offload.printing import clean
from offload.ranges import fold
from offload.topology import Link, Topology
from offload.topology.resources import directions, directions_over
from offload.topology.shares import DRIVES
from offload.units import format_bytes, format_rate, many

DIGITS = 4
MOST_EDGES = 500  # that Mermaid draws unless its page says otherwise (maxEdges)
MOST_CHARACTERS = 50_000  # that it reads (maxTextSize)
NOTE = "peak and sustained rates, one way; * assumed: a usual share, not measured"
DOT_SHAPES = {"memory": "cylinder", "drive": "cylinder", "processor": "box", "switch": "hexagon", "limit": "note"}
MERMAID_SHAPES = {"memory": ("[(", ")]"), "drive": ("[(", ")]"), "processor": ("[", "]"), "switch": ("{{", "}}"),
                  "limit": ("[/", "/]")}  # fmt: skip
FILLS = {"memory": "#dbeafe", "drive": "#e5e7eb", "processor": "#dcfce7", "switch": "#fef3c7", "limit": "#fee2e2"}
_PLAIN = frozenset(string.ascii_letters + string.digits + " .,:/")  # the rest may be syntax, HTML or Markdown


@dataclass(frozen=True, slots=True)
class Node:
    """A node to draw. id : letters and digits; group : memory, drive, processor, switch or limit; label : its lines."""

    id: str
    name: str
    group: str
    label: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Edge:
    """A line between two nodes, by their names. label : its lines; dashed : a processor and the memory it works in."""

    a: str
    b: str
    label: tuple[str, ...] = ()
    dashed: bool = False


def nodes_of(topology: Topology) -> list[Node]:
    """The nodes of a server, in the order of its file: memories, processors, switches, limits."""
    found: list[tuple[str, str, tuple[str, ...]]] = []
    for memory in topology.memories.values():
        size = "not known" if memory.capacity is None else format_bytes(memory.capacity * memory.count, DIGITS)
        striped = f"{memory.count} x {memory.kind}" if memory.count > 1 else memory.kind
        found.append(("drive" if memory.kind in DRIVES else "memory", memory.name, (f"{striped}, capacity {size}",)))
    found += [("processor", processor.name, (processor.kind,)) for processor in topology.processors.values()]
    found += [("switch", switch.name, (switch.kind.replace("_", " "),)) for switch in topology.switches.values()]
    for limit in topology.limits.values():
        over = fold(directions_over(limit, topology.links))
        found.append(("limit", limit.name, ("limit: " + _speed(topology, limit.name), f"over {over}")))
    return [Node(f"n{number}", name, group, (name, *label)) for number, (group, name, label) in enumerate(found)]


def edges_of(topology: Topology) -> list[Edge]:
    """The lines of a server: links, memories that sit in a switch, processors and the memories they work in."""
    limits: dict[str, list[str]] = {}
    for limit in topology.limits.values():
        for direction in directions_over(limit, topology.links):
            limits.setdefault(direction, []).append(limit.name)
    found = [Edge(link.a, link.b, tuple(_link_label(topology, link, limits))) for link in topology.links.values()]
    found += [Edge(memory.name, memory.at, ("sits in",)) for memory in topology.memories.values() if memory.at]
    found += [Edge(processor.name, processor.memory, ("works in",), dashed=True)
              for processor in topology.processors.values()]  # fmt: skip
    return found


def _link_label(topology: Topology, link: Link, limits: dict[str, list[str]]) -> Iterator[str]:
    """Name and kind; the rate of one way, or of each where they differ; the limits it falls under."""
    what = link_text(link)
    yield f"{link.name}: {what}" if what else link.name
    if link.half_duplex:
        yield f"{_speed(topology, link.name)}, both ways together"
    else:
        rates = {end: _speed(topology, name) for name, end, _ in directions(link)}
        if len(set(rates.values())) == 1:
            yield f"{rates[link.b]}, each way"
        else:
            yield from (f"to {end}: {rate}" for end, rate in rates.items())
    under = dict.fromkeys(name for direction, _, _ in directions(link) for name in limits.get(direction, ()))
    if under:
        yield f"under {fold(under)}"


def _speed(topology: Topology, name: str) -> str:
    """The peak of a link's direction or a limit, and the sustained rate of a pinned copy through it."""
    row = topology.resources.get(name)
    if row is None:
        return "rate not known"
    held = "pinned" if "pinned" in row.sustained else ""
    words = [] if row.peak is None else [f"peak {format_rate(row.peak, DIGITS)}"]
    if held in row.sustained:
        mark = "*" if held in row.assumed else ""
        words.append(f"sustained {format_rate(row.sustained[held].value, DIGITS)}{mark}")
    return ", ".join(words)


# Graphviz DOT.


def to_dot(topology: Topology) -> str:
    """The graph in the DOT language: `dot -Tsvg` draws it. Nodes have the names of the parts."""
    lines = [f"graph {_dot_id(topology.name)} {{", f"  // {NOTE}",
             f"  label={_dot_label((topology.title or topology.name,))};",
             "  node [style=filled, fontname=sans];", "  edge [fontname=sans, fontsize=10];"]  # fmt: skip
    for node in nodes_of(topology):
        lines.append(f"  {_dot_id(node.name)} [label={_dot_label(node.label)}, class={_dot_id(node.group)}, "
                     f'shape={DOT_SHAPES[node.group]}, fillcolor="{FILLS[node.group]}"];')  # fmt: skip
    for edge in edges_of(topology):
        dashed = ", style=dashed" if edge.dashed else ""
        lines.append(f"  {_dot_id(edge.a)} -- {_dot_id(edge.b)} [label={_dot_label(edge.label)}{dashed}];")
    return "\n".join([*lines, "}"]) + "\n"


def _dot_id(text: str) -> str:
    """A quoted id. Only a quote can end it, and a backslash before one would keep it open."""
    return '"' + "".join(_dot(one) for one in text) + '"'


def _dot_label(lines: tuple[str, ...]) -> str:
    """A quoted text of several lines."""
    return '"' + "\\n".join("".join(_dot(one) for one in clean(line)) for line in lines) + '"'


def _dot(one: str) -> str:
    """A character between quotes: a backslash is an escape there, and an ampersand starts an entity."""
    if one in '"\\':
        return "\\" + one
    return one if " " <= one <= "~" and one != "&" else f"&#{ord(one)};"


# Mermaid.


def to_mermaid(topology: Topology) -> str:
    """The graph as a Mermaid flowchart. Raises OffloadError where it is larger than Mermaid draws."""
    nodes, edges = nodes_of(topology), edges_of(topology)
    ids = {node.name: node.id for node in nodes}
    title = "".join(_yaml(one) for one in clean(topology.title or topology.name))
    lines = ["---", f'title: "{title}"', "---", "flowchart LR", f"  %% {NOTE}"]
    for node in nodes:
        left, right = MERMAID_SHAPES[node.group]
        lines.append(f"  {node.id}{left}{_mermaid_label(node.label)}{right}:::{node.group}")
    for edge in edges:
        line = "-.-" if edge.dashed else "---"
        lines.append(f"  {ids[edge.a]} {line}|{_mermaid_label(edge.label)}| {ids[edge.b]}")
    groups = dict.fromkeys(node.group for node in nodes)
    lines += [f"  classDef {group} fill:{FILLS[group]},stroke:#6b7280,color:#111827" for group in groups]
    text = "\n".join(lines) + "\n"
    if len(edges) > MOST_EDGES or len(text) > MOST_CHARACTERS:
        raise OffloadError(
            f"{topology.name}: its graph has {many(len(edges), 'edge')} and {many(len(text), 'character')}; Mermaid "
            f"draws at most {MOST_EDGES} and {MOST_CHARACTERS:,}. Use --dot, which has no such limit."
        )
    return text


def _mermaid_label(lines: tuple[str, ...]) -> str:
    """A quoted text of several lines: all that could be syntax, HTML or Markdown is an entity code."""
    shown = ("".join(one if one in _PLAIN or one in "-" and place else f"#{ord(one)};"
                     for place, one in enumerate(clean(line))) for line in lines)  # fmt: skip
    return '"' + "<br/>".join(shown) + '"'


def _yaml(one: str) -> str:
    """A character in a quoted YAML text; of Mermaid's own syntax too, as it looks for directives before it reads."""
    code = ord(one)
    if one in '"\\%{}<>' or not " " <= one <= "~":
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return one
