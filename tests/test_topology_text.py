"""A topology written as a file reads back as an equal one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload.documents import load_topology, parse_document, shipped_topologies
from offload.documents.topology_file import read_topology
from offload.documents.topology_text import topology_text
from offload.errors import TopologyError
from offload.topology import Interval, Limit, Link, Memory, Processor, Rate, Switch, Topology

CASES = Path(__file__).resolve().parent.parent / "offload" / "cases" / "topologies"
OWN = sorted(path for path in CASES.glob("*.yaml"))


def again(topology: Topology) -> Topology:
    return read_topology(parse_document(topology_text(topology), "again.yaml"), name=topology.name)


@pytest.mark.parametrize("name", [*shipped_topologies(), *map(str, OWN)])
def test_written_and_read_again_is_equal(name):
    topology = load_topology(name)
    same = again(topology)
    for group in ("switches", "memories", "processors", "links", "limits"):
        ours, theirs = getattr(topology, group), getattr(same, group)
        assert list(ours) == list(theirs)
        for part, value in ours.items():
            assert theirs[part] == value
    assert same == topology
    assert topology_text(same) == topology_text(topology)


def test_parts_that_are_alike_stand_in_one_entry():
    text = topology_text(load_topology("dgx-h100"))
    assert "  hbm0..7:" in text and "memory: hbm0..7" in text and "between: [hbm0..7, nvswitch0]" in text
    assert "count: 4" in text and "pcie: 4 x4" in text


def test_head_is_a_comment():
    text = topology_text(load_topology("gh200"), ["made by hand", "two\nlines"])
    assert text.startswith("# made by hand\n# two\n# lines\ntitle:")


@pytest.mark.parametrize("link", [
    Link("a", "socket0", "hbm0", Rate(900e9), Rate(900e9), "nvlink", assumed_symmetric=True),
    Link("a", "socket0", "hbm0", Rate(900e9), Rate(900e9), "nvlink"),
    Link("a", "socket0", "hbm0", Rate(900e9), Rate(450e9), "c2c"),
    Link("a", "socket0", "hbm0", Rate(64e9), Rate(64e9), "pcie", assumed_symmetric=True),
    Link("a", "socket0", "hbm0", Rate(1e9), Rate(1e9), "upi", half_duplex=True, assumed_symmetric=True),
    Link("a", "socket0", "hbm0", Rate(unknown=True), Rate(unknown=True), "pcie"),
    Link("a", "socket0", "hbm0", Rate(unknown=True), Rate(unknown=True)),
    Link("a", "socket0", "hbm0", Rate(31e9), Rate(30e9), "pcie", 4, 16, (1e-6, 6.5e-6)),
    Link("a", "socket0", "hbm0", Rate(1e9, sustained={"": Interval(1, 2, 4)}), Rate(1e9), "cxl"),
])  # fmt: skip
def test_odd_links(link):
    topology = Topology.build(
        name="box", title="box", memories=[Memory("hbm0", "hbm", 10**9 + 1, Rate(unknown=True))],
        switches=[Switch("socket0")], links=[link],
    )  # fmt: skip
    assert again(topology) == topology


def test_links_of_a_range_between_ends():
    topology = read_topology(parse_document(
        "memories: {hbm0..3: {kind: hbm}}\nswitches: {s: {kind: socket}}\n"
        "links: {up: {between: [s, hbm0..3], pcie: 4 x16}}\nlimits: {root: {over: [up, up.0.hbm0], rate: 50 GB/s}}\n",
        "box.yaml"), name="box")  # fmt: skip
    same = again(topology)
    assert [(one.a, one.b, one.forward) for one in same.links.values()] == [
        (one.a, one.b, one.forward) for one in topology.links.values()]  # fmt: skip
    assert list(same.links) == ["up-0", "up-1", "up-2", "up-3"]
    assert same.limits["root"].over[-1] == "up-0.hbm0"


def test_any_access_beside_others():
    def server(**sustained: float) -> Topology:
        rate = Rate(sustained={key.replace("any", ""): Interval.exact(one) for key, one in sustained.items()})
        return Topology.build(name="box", memories=[Memory("hbm0", "hbm", 1, rate)])

    read = again(server(any=5.0, zero_copy=3.0)).resources["hbm0"]
    assert read.sustained_at("copy") == Interval.exact(5.0) and read.sustained_at("zero_copy") == Interval.exact(3.0)
    with pytest.raises(TopologyError, match="cannot say both"):
        topology_text(server(any=5.0, pinned=3.0))


FIGURE = st.floats(1.0, 1e15)
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc", "Cn", "Zl", "Zp", "Co")), max_size=90)


@given(st.lists(FIGURE, min_size=3, max_size=3), st.integers(1, 10**15), TEXT, TEXT, st.integers(1, 4))
def test_any_figures_and_sources(ends, size, source, other, count):
    low, value, high = sorted(ends)
    rate = Rate(high, value, {"read": Interval(low, value, high), "pinned": Interval.exact(low)}, source or other)
    topology = Topology.build(
        name="box", title=source or "box",
        memories=[Memory("m0", "hbm", size, rate, count=count, source=other)],
        processors=[Processor("g0", "gpu", "m0", {"bf16": Rate(rated=value, source=other)}, rate, source=other)],
        switches=[Switch("s0")],
        links=[Link(f"l{n}", "s0", "m0", rate, Rate(peak=high, source=other), "xgmi", source=other)
               for n in range(count)],
        limits=[Limit("cap", ("l0.m0",), Rate(sustained={"": Interval(low, value, high)}, source=other), other)],
    )  # fmt: skip
    same = again(topology)
    assert same == topology
