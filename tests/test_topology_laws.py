"""Topologies: the graph, values that stay as they are, and laws that hold for any server."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload.documents import load_topology
from offload.errors import RouteError
from offload.topology import (
    Limit,
    Memory,
    Switch,
    Topology,
)
from offload.topology.routes import Ways
from tests.pace import within
from tests.topology_parts import cpu, dram, gpu, hbm, link, rate, ssd, switched_pair, two_sockets

# The graph, and values that stay as they are


def test_graph_is_frozen_and_whole():
    import networkx

    topology = Topology.build(**two_sockets())
    graph = topology.graph
    assert isinstance(graph, networkx.MultiDiGraph) and networkx.is_frozen(graph)
    assert graph is topology.graph
    assert set(graph) == {"hbm0", "dram0", "dram1", "ssd0", "socket0", "socket1"}
    assert graph.nodes["hbm0"]["node"] == topology.memories["hbm0"]
    assert graph.edges["socket0", "hbm0", "pcie0"]["direction"] == "pcie0.hbm0"
    assert graph.edges["hbm0", "socket0", "pcie0"]["link"] is topology.links["pcie0"]
    assert graph.edges["dram1", "socket1", "at"]["link"] is None
    assert networkx.is_strongly_connected(graph)


def test_networkx_loads_only_for_the_graph():
    code = """
import sys
from offload.topology import Memory, Topology
topology = Topology.build(memories=[Memory("m", "dram")])
topology.reachable("m"), topology.resources
assert not {"networkx", "numpy"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_topologies_are_values():
    topology = Topology.build(name="box", **switched_pair())
    assert topology == Topology.build(name="box", **switched_pair())
    again = pickle.loads(pickle.dumps(topology))
    assert again == topology and again.route("hbm0", "hbm1") == topology.route("hbm0", "hbm1")
    with pytest.raises(AttributeError):
        topology.name = "other"
    with pytest.raises(TypeError):
        topology.memories["x"] = hbm(9)


# Laws


@st.composite
def servers(draw) -> dict[str, list]:
    """Small servers of every sort: sockets, switches, GPUs with and without peers, drives, parallel links."""
    switches = [Switch(f"socket{n}") for n in range(draw(st.integers(1, 3)))]
    memories = [dram(n) for n in range(draw(st.integers(0, len(switches))))]
    gpus = range(draw(st.integers(1, 3)))
    memories += [hbm(n) for n in gpus] + [ssd(n) for n in range(draw(st.integers(0, 2)))]
    options = st.fixed_dictionaries(
        {"peer_to_peer": st.sampled_from([None, True, False]), "direct_storage": st.booleans()}
    )
    processors = [gpu(n, **draw(options)) for n in gpus]
    nodes = [part.name for part in (*memories, *switches)]
    pairs = st.tuples(st.sampled_from(nodes), st.sampled_from(nodes)).filter(lambda pair: pair[0] != pair[1])
    ends = draw(st.lists(pairs, min_size=1, max_size=9))
    links = [
        link(f"l{n}", *pair, draw(st.sampled_from([8.0, 16.0, 32.0])), draw(st.sampled_from(["pcie", "nvlink"])))
        for n, pair in enumerate(ends)
    ]
    limits = [Limit("cap", ("l0", f"l{len(links) - 1}"), rate(20.0))]
    return {"memories": memories, "processors": processors, "switches": switches, "links": links, "limits": limits}


def routes(topology: Topology) -> dict[tuple[str, str], object]:
    found = {}
    for source in topology.memories:
        for destination in topology.memories:
            if source != destination:
                try:
                    found[source, destination] = topology.route(source, destination)
                except RouteError:
                    pass
    return found


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(servers(), st.randoms(use_true_random=False))
def test_the_order_of_the_parts_changes_nothing(parts, order: random.Random):
    shuffled = {key: order.sample(values, len(values)) for key, values in parts.items()}
    one, other = Topology.build(**parts), Topology.build(**shuffled)
    assert one == other
    assert routes(one) == routes(other)
    assert dict(one.resources) == dict(other.resources)


@settings(max_examples=150, deadline=None)
@given(servers())
def test_routes_keep_the_rules(parts):
    topology = Topology.build(**parts)
    found = routes(topology)
    for source in topology.memories:
        assert topology.reachable(source) == tuple(sorted(to for start, to in found if start == source))
    for (source, destination), route in found.items():
        assert (route.stages[0].source, route.stages[-1].destination) == (source, destination)
        for stage, after in zip(route.stages, route.stages[1:], strict=False):
            assert stage.destination == after.source
        for name in route.staged_in:
            assert topology.memories[name].kind == "dram"
        for stage in route.stages:
            assert not set(stage.way) & set(topology.memories), "memories are never cut through"
            assert all(name in topology.resources and 0 <= least <= expected for name, least, expected in stage.uses)
            kinds = {topology.memories[end].kind for end in (stage.source, stage.destination)}
            used = {topology.links[name].technology for name in stage.links}
            if "dram" not in kinds and "pcie" in used:
                pairs = [p for p in topology.processors.values() if p.memory in (stage.source, stage.destination)]
                assert all(p.direct_storage if "nvme" in kinds else p.peer_to_peer for p in pairs)
                assert kinds != {"nvme"}


@settings(max_examples=150, deadline=None)
@given(servers())
def test_best_of_all_ways(parts):
    """Against every simple path: fewest links, then the widest, then the names along it; staged ones over each host."""
    import networkx

    topology = Topology.build(**parts)

    def ways(source: str, destination: str) -> list[tuple]:
        others = [name for name in topology.memories if name not in (source, destination)]
        graph = networkx.MultiDiGraph(topology.graph)
        graph.remove_nodes_from(others)
        found = []
        for path in networkx.all_simple_edge_paths(graph, source, destination):
            links = [(graph.edges[edge]["link"], edge[1]) for edge in path]
            widths = [link.forward.peak for link, _ in links if link is not None]
            names = [(link.name if link else "", end) for link, end in links]
            found.append((len(widths), len(path) - len(widths), min(widths, default=float("inf")), names))
        return found

    for (source, destination), route in routes(topology).items():
        if topology.memories[source].kind == "dram" and not route.staged_in:
            length, _, _, names = min(ways(source, destination), key=lambda way: (*way[:2], -way[2], way[3]))
            assert [name for name, _ in names if name] == list(route.links) and length == len(route.links)
        elif len(route.staged_in) == 1:
            hosts = [name for name, memory in topology.memories.items() if memory.kind == "dram"]
            both = [(one[0] + two[0], one[1] + two[1], min(one[2], two[2]), one[3] + two[3])
                    for host in hosts if host not in (source, destination)
                    for one in ways(source, host) for two in ways(host, destination)]  # fmt: skip
            names = min(both, key=lambda way: (*way[:2], -way[2], way[3]))[3]
            assert [name for name, _ in names if name] == list(route.links)


def test_ten_thousand_nodes():
    """A tree of switches with a GPU at every leaf, two sockets' memory at the root; no search visits all pairs."""
    count = 5000
    memories, processors, switches, links = [dram(0)], [cpu(0)], [Switch("socket0")], []
    for n in range(count):
        parent = "socket0" if n == 0 else f"s{(n - 1) // 2}"
        switches.append(Switch(f"s{n}", "pcie_switch"))
        links += [link(f"up{n}", parent, f"s{n}"), link(f"p{n}", f"s{n}", f"hbm{n}")]
        memories.append(hbm(n))
        processors.append(gpu(n))
    with within(5):
        topology = Topology.build(memories=memories, processors=processors, switches=switches, links=links)
        route = topology.route("hbm4999", "hbm4000")
        assert route.staged_in == ("dram0",)
        assert topology.nearest_processor("dram0") == "cpu0"
        assert len(topology.reachable("hbm0")) == count


def test_a_chain_of_ten_thousand_switches():
    count = 10_000
    topology = Topology.build(
        memories=[Memory("a", "dram", rate=rate(90.0)), Memory("b", "hbm", rate=rate(900.0))],
        switches=[Switch(f"s{n}") for n in range(count)],
        links=[link("first", "a", "s0"), *(link(f"l{n}", f"s{n}", f"s{n + 1}") for n in range(count - 1)),
               link("last", f"s{count - 1}", "b")],
    )  # fmt: skip
    assert len(topology.route("a", "b").links) == count + 1


def test_the_nearest_host_memory_is_found_without_going_over_the_links_of_a_large_switch(tmp_path, monkeypatch):
    (tmp_path / "star.yaml").write_text(
        "switches: {net: {kind: nic}, s0..99: {kind: socket}}\nmemories:\n"
        "  hbm0..99: {kind: hbm, capacity: 80 GB, rate: 3 TB/s}\n"
        "  dram0..99: {kind: dram, at: s0..99, capacity: 512 GB, rate: 300 GB/s}\n"
        "processors: {gpu0..99: {kind: gpu, memory: hbm0..99}}\nlinks:\n"
        "  pcie0..99: {between: [s0..99, hbm0..99], pcie: 5 x16}\n"
        "  eth0..99: {between: [s0..99, net], kind: ethernet, rate: 400 Gb/s}\n")  # fmt: skip
    ways, right, seen = load_topology(tmp_path / "star.yaml").ways, Ways._steps, []

    def steps(self, state, *rest):
        seen.append(state[0])
        return right(self, state, *rest)

    monkeypatch.setattr(Ways, "_steps", steps)
    assert ways.nearest_of("hbm7", ways.hosts) == ["dram7"]
    assert "net" not in seen and len(seen) < 5
    assert ways.distances("hbm7")["dram9"] > ways.distances("hbm7")["dram7"]
