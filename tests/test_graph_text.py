"""A server's graph as DOT and as Mermaid: every part and link is there, and no name or title becomes syntax."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from offload import load_topology
from offload.documents import shipped_topologies
from offload.errors import OffloadError
from offload.graph_text import MOST_EDGES, edges_of, nodes_of, to_dot, to_mermaid
from offload.topology import Interval, Limit, Link, Memory, Processor, Rate, Switch, Topology
from tests.commands import run
from tests.strategies import topologies

NASTY = ('a"b', "a\\", 'a\\"', "a\nb", "end", "graph", "a]b", '"];', "a --> b", "%%{init}%%", "<b>x</b>", "&quot;",
         "#35;", "a|b", "`x`", "- a", "*a*", "_a_", "é", "\U0001f600", "\x1b[31m", "&#233;", "x;y", "{x}", "\\n",
         "\\N")  # fmt: skip
QUOTED = r'"(?:[^"\\]|\\.)*"'


@dataclass
class Drawn:
    """What a small reader finds in a text: label of each node, and (ends, label, dashed) of each edge."""

    title: str = ""
    nodes: dict[str, str] = field(default_factory=dict)
    edges: list[tuple[str, str, str, bool]] = field(default_factory=list)


def read_dot(text: str) -> Drawn:
    """The DOT that is written here, by the rules of its language: a quoted id ends at a quote without a backslash."""

    def label(quoted: str) -> str:
        body = re.sub(r"\\(.)", lambda match: "\n" if match[1] == "n" else match[1], quoted[1:-1], flags=re.S)
        return html.unescape(body)

    found = Drawn()
    head, *lines, tail, nothing = text.split("\n")
    assert re.fullmatch(rf"graph {QUOTED} \{{", head) and (tail, nothing) == ("}", "")
    for line in lines:
        if re.fullmatch(r"  //[ -~]*|  (node|edge) \[[a-z0-9=, ]+\];", line):
            continue
        if match := re.fullmatch(rf"  label=({QUOTED});", line):
            found.title = label(match[1])
        elif match := re.fullmatch(rf"  ({QUOTED}) -- ({QUOTED}) \[label=({QUOTED})(, style=dashed)?\];", line):
            found.edges.append((match[1], match[2], label(match[3]), bool(match[4])))
        else:
            match = re.fullmatch(rf'  ({QUOTED}) \[label=({QUOTED}), class="[a-z]+", shape=[a-z]+, '
                                 r'fillcolor="#[0-9a-f]{6}"\];', line)  # fmt: skip
            assert match and match[1] not in found.nodes, line
            found.nodes[match[1]] = label(match[2])
    return found


def read_mermaid(text: str) -> Drawn:
    """The Mermaid that is written here; a label may hold no character that its language, HTML or Markdown reads."""

    def label(quoted: str) -> str:
        assert re.fullmatch(r"(?:[A-Za-z0-9 .,:/]|(?<!^)(?<!>)-|<br/>|#[0-9]+;)*", quoted), quoted
        return re.sub(r"#([0-9]+);", lambda match: chr(int(match[1])), quoted.replace("<br/>", "\n"))

    head, title, rule, start, *lines = text.rstrip("\n").split("\n")
    assert (head, rule, start) == ("---", "---", "flowchart LR")
    found = Drawn(yaml.safe_load(title)["title"])
    for line in lines:
        if re.fullmatch(r"  %% [ -~]*|  classDef [a-z]+ [a-z:#0-9,]+", line):
            continue
        if match := re.fullmatch(r'  (\w+) (---|-\.-)\|"([^"]*)"\| (\w+)', line):
            assert {match[1], match[4]} <= found.nodes.keys()
            found.edges.append((match[1], match[4], label(match[3]), match[2] == "-.-"))
        else:
            match = re.fullmatch(r'  ([A-Za-z0-9]+)(\[\(|\[/|\[|\{\{)"([^"]*)"(\)\]|/\]|\]|\}\}):::[a-z]+', line)
            assert match and match[1] not in found.nodes and match[1] != "end", line
            assert match[2] + match[4] in ("[()]", "[//]", "[]", "{{}}")
            found.nodes[match[1]] = label(match[3])
    return found


ANY_NAME = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).map(str.strip).filter(bool)
READERS = [pytest.param(to_dot, read_dot, id="dot"), pytest.param(to_mermaid, read_mermaid, id="mermaid")]


def shown(text: str) -> str:
    return "".join(one if one.isprintable() else "?" for one in text)


def named(*names: str, title: str = "") -> Topology:
    """Memories of these names in a row of links, a processor in the first."""
    memories = [Memory(name, "dram", 10**9, Rate(1e9)) for name in names]
    links = [Link(f"l{n}", a, b, Rate(1e9), Rate(1e9)) for n, (a, b) in enumerate(zip(names, names[1:], strict=False))]
    return Topology.build(name=title or "t", title=title, memories=memories, links=links,
                          processors=[Processor("cpu", "cpu", names[0])])  # fmt: skip


# --- every part is drawn ---


@pytest.mark.parametrize(("write", "read"), READERS)
@pytest.mark.parametrize("name", shipped_topologies())
def test_every_part_and_link_of_a_shipped_server(name, write, read):
    topology = load_topology(name)
    text = write(topology)
    drawn = read(text)
    assert text.isascii() and drawn.title == topology.title
    parts = [*topology.memories, *topology.processors, *topology.switches, *topology.limits]
    names = {id: label.split("\n")[0] for id, label in drawn.nodes.items()}
    assert list(names.values()) == parts
    links = [(names[a], names[b], re.split("[:\n]", label)[0]) for a, b, label, _ in drawn.edges][: len(topology.links)]
    assert links == [(link.a, link.b, link.name) for link in topology.links.values()]
    rest = drawn.edges[len(topology.links):]
    sits = [(memory.name, memory.at, False) for memory in topology.memories.values() if memory.at]
    works = [(one.name, one.memory, True) for one in topology.processors.values()]
    assert [(names[a], names[b], dashed) for a, b, _, dashed in rest] == sits + works


@pytest.mark.parametrize(("write", "read"), READERS)
def test_eight_gpus_on_a_switch(write, read):
    drawn = read(write(load_topology("dgx-h100")))
    labels = [label for _, _, label, _ in drawn.edges]
    for n in range(8):
        assert f"nvlink{n}: NVLink\npeak 450 GB/s, sustained 376 GB/s, each way" in labels
    assert sum(label.startswith("gpu") for label in drawn.nodes.values()) == 8
    assert "pcie0: PCIe 5 x16\nto hbm0: peak 63.02 GB/s, sustained 56.2 GB/s\n" \
           "to sw0: peak 63.02 GB/s, sustained 57 GB/s\nunder pcie0_both" in labels  # fmt: skip
    assert "pcie0_both\nlimit: sustained 101.3 GB/s\nover pcie0.hbm0, pcie0.sw0" in drawn.nodes.values()
    assert "ssd0\n4 x nvme, capacity 15.36 TB" in drawn.nodes.values()
    assert any("\nrate not known, each way" in label for label in labels)  # of the drives that it starts from


@pytest.mark.parametrize(("write", "read"), READERS)
def test_unified_memory_holds_both_processors(write, read):
    drawn = read(write(load_topology("dgx-spark")))
    names = {id: label.split("\n")[0] for id, label in drawn.nodes.items()}
    assert [(names[a], names[b]) for a, b, _, dashed in drawn.edges if dashed] == [("gpu0", "unified0"),
                                                                                  ("cpu0", "unified0")]  # fmt: skip


def test_rates_of_links():
    ends = [Memory("a", "hbm"), Memory("b", "dram")]
    forth, back = (Rate(peak * 1e9, sustained={"": Interval.exact(held * 1e9)}) for peak, held in ((32, 26), (16, 13)))

    def label(*links: Link, **more) -> tuple[str, ...]:
        return edges_of(Topology.build(memories=ends, links=links, **more))[0].label

    assert label(Link("l", "a", "b", forth, forth)) == ("l", "peak 32 GB/s, sustained 26 GB/s, each way")
    assert label(Link("l", "a", "b", forth, back, "cxl")) == (
        "l: CXL", "to b: peak 32 GB/s, sustained 26 GB/s", "to a: peak 16 GB/s, sustained 13 GB/s")  # fmt: skip
    half = Link("l", "a", "b", forth, forth, half_duplex=True)
    assert label(half) == ("l", "peak 32 GB/s, sustained 26 GB/s, both ways together")
    assert label(Link("l", "a", "b", Rate(unknown=True), Rate(unknown=True))) == ("l", "rate not known, each way")
    limit = Limit("cap", ("l.b",), Rate(sustained={"": Interval.exact(20e9)}))
    assert label(Link("l", "a", "b", forth, forth), limits=[limit])[-1] == "under cap"
    assumed = label(Link("l", "a", "b", Rate(32e9), Rate(32e9), "pcie"))[1]
    assert re.fullmatch(r"peak 32 GB/s, sustained [0-9.]+ GB/s\*, each way", assumed)


@pytest.mark.few
@pytest.mark.parametrize(("write", "read"), READERS)
@given(topology=topologies())
def test_any_server_is_drawn_whole(write, read, topology):
    drawn = read(write(topology))
    assert len(drawn.nodes) == len(nodes_of(topology)) and len(drawn.edges) == len(edges_of(topology))


# --- names are data ---


@pytest.mark.parametrize(("write", "read"), READERS)
@pytest.mark.parametrize("text", NASTY)
def test_names_and_titles_are_no_syntax(text, write, read):
    written = write(named(text, "other", title=f"of {text}"))
    drawn = read(written)
    assert written.isascii() and all(line.isprintable() for line in written.split("\n"))
    assert drawn.title == f"of {shown(text)}"
    assert [label.split("\n")[0] for label in drawn.nodes.values()] == [shown(text), "other", "cpu"]
    assert len(drawn.edges) == 2


@pytest.mark.parametrize(("write", "read"), READERS)
@given(names=st.lists(ANY_NAME, min_size=2, max_size=4, unique=True))
def test_any_names_make_as_many_nodes(write, read, names):
    try:
        topology = named(*names)
    except OffloadError:  # two parts, or their resources, would bear one name
        return
    drawn = read(write(topology))
    assert len(drawn.nodes) == len(names) + 1 and len(drawn.edges) == len(names)
    assert [label.split("\n")[0] for label in drawn.nodes.values()][: len(names)] == [shown(name) for name in names]


def test_names_that_print_alike_stay_apart_in_dot():
    names = ("a\nb", "a?b", "é", "&#233;")
    assert len(read_dot(to_dot(named(*names))).nodes) == len(names) + 1


# --- limits of the tools ---


def star(leaves: int) -> Topology:
    return Topology.build(
        name="star", switches=[Switch("s")], memories=[Memory(f"m{n}", "dram") for n in range(leaves)],
        links=[Link(f"l{n}", "s", f"m{n}", Rate(1e9), Rate(1e9)) for n in range(leaves)],
    )  # fmt: skip


def test_more_edges_than_mermaid_draws_are_refused():
    assert len(read_mermaid(to_mermaid(star(300))).edges) == 300
    with pytest.raises(OffloadError, match=f"star: its graph has 501 edges .* at most {MOST_EDGES} .*--dot"):
        to_mermaid(star(501))
    assert len(read_dot(to_dot(star(501))).edges) == 501


def test_more_characters_than_mermaid_reads_are_refused():
    with pytest.raises(OffloadError, match="characters.*50,000"):
        to_mermaid(named(*(f"m{n}" * 400 for n in range(50))))


# --- the command ---


@pytest.mark.parametrize(("option", "read"), [("--dot", read_dot), ("--mermaid", read_mermaid)])
def test_the_command_prints_the_text_alone(option, read):
    done = run("topology", "show", "gh200", option)
    assert done.returncode == 0 and done.stderr == "" and read(done.stdout).title.startswith("GH200")


@pytest.mark.parametrize("other", ["--json", "--mermaid"])
def test_one_form_at_a_time(other):
    try:
        done = run("topology", "show", "gh200", "--dot", other)
    except SystemExit as error:  # argparse, which has said why
        assert error.code == 2
        return
    assert done.returncode == 2 and done.stdout == ""


def test_a_library_reads_the_dot():
    pydot = pytest.importorskip("pydot")
    (graph,) = pydot.graph_from_dot_data(to_dot(named(*NASTY)))
    assert len(graph.get_edges()) == len(NASTY)
