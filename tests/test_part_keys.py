"""An entry's keys over those of its part: what says the same in another form is replaced, and nothing stays behind."""

from __future__ import annotations

import math

import pytest

from offload.documents import parse_document
from offload.documents.topology_file import read_topology
from offload.errors import DocumentError
from offload.topology import Topology
from offload.units import nvlink_rate, pcie_rate
from offload.units.remarks import remarks

PARTS = """
title: Parts in other forms
parts:
  links:
    peaks: {forward: {peak: 31 GB/s, sustained: 12 GB/s}, backward: {peak: 30 GB/s}, kind: pcie}
    coherent:
      {kind: c2c, forward: {peak: 450 GB/s, sustained: 377 GB/s}, backward: {peak: 450 GB/s, sustained: 297 GB/s}}
    wide: {pcie: 4 x16, forward: {sustained: {pinned: 26 GB/s, pageable: 6 GB/s}}, backward: {sustained: 25 GB/s}}
    alike: {pcie: 4 x16, rate: {sustained: 26 GB/s}}
    plain: {rate: 25 GB/s, count: 2}
    unknown: {rate: unknown}
    headline: {both_directions: 900 GB/s, sustained: 400 GB/s, kind: nvlink}
  memories:
    two: {kind: nvme, read: 7 GB/s, write: 6 GB/s}
    one: {kind: nvme, rate: 7 GB/s}
switches: {s0: {kind: socket}}
memories:
  hbm0: {kind: hbm, capacity: 80 GB, rate: 2039 GB/s}
  ssd0: {capacity: 1 TB, DRIVE}
links:
  l: {between: [s0, hbm0], LINK}
"""


def topology(link: str = "use: wide", drive: str = "use: two") -> Topology:
    return read_topology(parse_document(PARTS.replace("LINK", link).replace("DRIVE", drive), "box.yaml"))


def peaks(link: str) -> list[float | None]:
    found = topology(link).links["l"]
    return [found.forward.peak, found.backward.peak]


@pytest.mark.parametrize("part", ["peaks", "coherent", "wide", "alike", "plain", "unknown", "headline"])
@pytest.mark.parametrize(("width", "each"), [
    ("pcie: 4 x8", pcie_rate(4, 8)), ("pcie: 5 x16", pcie_rate(5, 16)), ("nvlink: 3 x12", nvlink_rate(3, 12)),
    ("both_directions: 20 GB/s", 10e9), ("rate: 11 GB/s", 11e9),
    ("forward: {peak: 9 GB/s}, backward: {peak: 9 GB/s}", 9e9),
])  # fmt: skip
def test_a_width_or_a_rate_of_the_entry_is_the_peak(part, width, each):
    count = 2 if part == "plain" else 1
    assert peaks(f"use: {part}, {width}") == [pytest.approx(count * each, rel=1e-12)] * 2
    link = topology(f"use: {part}, {width}").links["l"]
    for rate in (link.forward, link.backward):
        assert not rate.unknown
        assert all(figure.high <= rate.peak * (1 + 1e-9) for figure in rate.sustained.values())


@pytest.mark.parametrize(("part", "width", "kind"), [
    ("coherent", "pcie: 5 x16", "pcie"), ("headline", "pcie: 5 x16", "pcie"), ("peaks", "nvlink: 3 x12", "nvlink"),
    ("coherent", "both_directions: 800 GB/s", "c2c"),
])  # fmt: skip
def test_a_width_says_the_kind_too(part, width, kind):
    link = topology(f"use: {part}, {width}").links["l"]
    assert link.technology == kind
    assert (link.generation is not None) == ("pcie" in width)


def test_sustained_figures_stay_where_the_new_width_allows_them():
    with remarks() as told:
        link = topology("use: peaks, pcie: 4 x8").links["l"]
    assert link.forward.sustained[""].value == 12e9
    assert not told
    with remarks() as told:
        link = topology("use: wide, pcie: 3 x16").links["l"]
    assert {access: one.value for access, one in link.forward.sustained.items()} == {"pageable": 6e9}
    assert not link.backward.sustained
    assert sorted(told) == [
        "box.yaml: links.l: of the part wide, backward sustained: 25 GB/s is above what pcie: 3 x16 carries, and is "
        "left out.",
        "box.yaml: links.l: of the part wide, forward sustained pinned: 26 GB/s is above what pcie: 3 x16 carries, and "
        "is left out.",
    ]  # fmt: skip


def test_sustained_of_the_entry_replaces_that_of_each_direction():
    link = topology("use: wide, pcie: 4 x8, sustained: 11 GB/s").links["l"]
    assert [one.sustained[""].value for one in (link.forward, link.backward)] == [11e9, 11e9]


def test_one_direction_leaves_the_other_as_the_part_has_it():
    link = topology("use: coherent, forward: {peak: 450 GB/s, sustained: 400 GB/s}").links["l"]
    assert [one.sustained[""].value for one in (link.forward, link.backward)] == [400e9, 297e9]
    assert not link.assumed_symmetric
    link = topology("use: alike, forward: {sustained: 20 GB/s}").links["l"]
    assert [one.sustained[""].value for one in (link.forward, link.backward)] == [20e9, 26e9]


@pytest.mark.parametrize(("drive", "expected"), [
    ("use: two, read: 8 GB/s", (None, 8e9, 6e9)), ("use: two, write: 5 GB/s", (None, 7e9, 5e9)),
    ("use: two, rate: 5 GB/s", (5e9, None, None)), ("use: one, read: 8 GB/s, write: 5 GB/s", (None, 8e9, 5e9)),
    ("use: one, read: 8 GB/s", (None, 8e9, None)),
])  # fmt: skip
def test_reads_and_writes(drive, expected):
    memory = topology(drive=drive).memories["ssd0"]
    rates = (memory.rate, memory.read, memory.write)
    assert tuple(None if rate is None else rate.rated for rate in rates) == expected


@pytest.mark.parametrize(("link", "says"), [
    ("pcie: 4 x8, forward: 31 GB/s", 'more than "pcie" says of one direction, 15.75 GB/s'),
    ("nvlink: 3 x12, backward: {peak: 600 GB/s}", 'more than "nvlink" says of one direction, 300 GB/s'),
    ("both_directions: 100 GB/s, forward: 60 GB/s", 'more than "both_directions" says of one direction, 50 GB/s'),
    ("pcie: 4 x8, kind: nvlink", '"pcie" says the kind: pcie, not nvlink'),
    ("nvlink: 3 x12, kind: pcie", '"nvlink" says the kind: nvlink, not pcie'),
    ("rate: {peak: 25 GB/s, sustained: 20 GB/s}, sustained: 10 GB/s", "has no effect"),
    ("pcie: 4 x16, forward: {sustained: 20 GB/s}, backward: {sustained: 20 GB/s}, sustained: 10 GB/s", "has no effect"),
])  # fmt: skip
def test_an_entry_that_contradicts_itself_is_a_mistake(link, says):
    with pytest.raises(DocumentError) as caught:
        topology(link)
    assert len(caught.value.mistakes) == 1
    assert says in caught.value.mistakes[0].message


def test_near_misses_are_no_mistakes():
    assert peaks("pcie: 4 x16, forward: {peak: 20 GB/s}") == [20e9, pcie_rate(4, 16)]
    assert math.isclose(topology("pcie: 5 x8, kind: cxl").links["l"].forward.peak, pcie_rate(5, 8))
    link = topology("pcie: 4 x16, forward: {sustained: 20 GB/s}, sustained: 10 GB/s").links["l"]
    assert [one.sustained[""].value for one in (link.forward, link.backward)] == [20e9, 10e9]


def test_a_limit_with_two_sustained_rates_is_a_mistake():
    text = PARTS.replace("LINK", "use: wide").replace("DRIVE", "use: two")
    text += "limits:\n  cap: {over: [l], rate: {peak: 40 GB/s, sustained: 30 GB/s}, sustained: 20 GB/s}\n"
    with pytest.raises(DocumentError, match="has no effect"):
        read_topology(parse_document(text, "box.yaml"))
