"""Topology files: what they mean, what is refused at which line, and that every shipped server names its sources."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload.documents import load_topology, parse_document, read_document, shipped_topologies
from offload.documents.parts_library import with_part
from offload.documents.shipped import find_topology, shipped_folder
from offload.documents.topology_file import read_topology
from offload.errors import DocumentError, OffloadError
from offload.topology import Interval, Topology
from tests.pace import within

BOX = """\
title: A box
source: made up
switches:
  socket0: {kind: socket}
memories:
  hbm0: {kind: hbm, capacity: 24 GiB, cache: 72 MB, rate: {peak: 1008 GB/s, sustained: 60..77 GB/s}}
  dram0: {kind: dram, at: socket0, capacity: 96 GiB, rate: 6000 MT/s x 2}
  ssd0: {kind: nvme, capacity: 2 TB, read: 7.45 GB/s, write: unknown}
processors:
  gpu0: {kind: gpu, memory: hbm0, flops: {bf16: 165 TFLOP/s}}
  cpu0: {kind: cpu, memory: dram0, reads: 60 GB/s}
links:
  pcie0: {between: [socket0, hbm0], pcie: 4 x16, sustained: {pinned: 26 GB/s}, latency: [3.6 us, 6 us]}
  m2: {between: [ssd0, socket0], pcie: 4 x4, latency: 80 us}
limits:
  root0: {over: [pcie0.hbm0, m2], sustained: 30 GB/s}
"""


def topology(text: str, name: str = "box.yaml") -> Topology:
    return read_topology(parse_document(text, name), name="box")


def box(old: str = "", new: str = "") -> Topology:
    assert old in BOX
    return topology(BOX.replace(old, new, 1))


# name, what of the box is replaced by what, the line of the mistake, what the message must hold
REFUSED = [
    ("a rate without unit", "rate: 6000 MT/s x 2", "rate: 1e9", 7, ['"1e9"', "GB/s"]),
    ("a capacity without unit", "24 GiB", "24", 6, ['"24"', "GB"]),
    ("bits for bytes", "capacity: 2 TB", "capacity: 2 Tbps", 8, ["2 Tbps"]),
    ("no unit but a prefix", "rate: 6000 MT/s x 2", "rate: 400G", 7, ["400G", "GB/s"]),
    ("transfers without channels", "6000 MT/s x 2", "6000 MT/s", 7, ["6000 MT/s", "x 2"]),
    ("lanes without generation", "pcie: 4 x16", "pcie: x16", 13, ["x16", "generation"]),
    ("lanes that do not exist", "pcie: 4 x16", "pcie: 4 x3", 13, ["x3", "x16"]),
    ("NVLink whose rate depends on the part", "pcie: 4 x16", "nvlink: 3 x4", 13, ["depends on the part"]),
    ("a headline number beside the encoding", "pcie: 4 x16", "pcie: 4 x16, rate: 64 GB/s", 13, ["31.51", "Remove the"]),
    ("the headline number of NVLink", "pcie: 4 x16", "kind: nvlink, rate: 900 GB/s", 13, ["both_directions: 900 GB/s"]),
    ("two rates", "pcie: 4 x16", "pcie: 4 x16, nvlink: 4 x18", 13, ["Keep one"]),
    ("no rate", "pcie: 4 x16, sustained: {pinned: 26 GB/s}, ", "", 13, ["needs its rate", "pcie: 4 x16"]),
    ("zero", "peak: 1008 GB/s", "peak: 0 GB/s", 6, ["not above zero", "unknown"]),
    ("negative", "peak: 1008 GB/s", "peak: -3 GB/s", 6, ["-3 GB/s"]),
    ("not a number", "peak: 1008 GB/s", "peak: .nan", 6, [".nan"]),
    ("zero of a link", "pcie: 4 x4", "rate: 0 GB/s", 14, ['links.m2.rate: "0 GB/s" is not', "such link, remove it"]),
    ("zero beside the encoding", "pcie: 4 x4", "pcie: 4 x4, rate: 0 GB/s", 14, ['"0 GB/s" is not above zero']),
    ("zero of a limit", "sustained: 30 GB/s", "sustained: 0 GB/s", 16, ['"0 GB/s"', "such limit, remove it"]),
    ("zero of arithmetic", "165 TFLOP/s", "0 TFLOP/s", 10, ['gpu0.flops.bf16: "0 TFLOP/s" is not above zero']),
    ("a cache above the capacity", "72 MB", "25 GiB", 6, ["hbm0.cache: 26.8 GB (25.0 GiB) is more", "25.8 GB"]),
    ("an hour of latency", "latency: 80 us", "latency: 1 h", 14, ["links.m2.latency: 60 min is longer", "us, ms"]),
    ("seconds of latency", "[3.6 us, 6 us]", "[3.6 us, 6 s]", 13, ["pcie0.latency[1]: 6 s is longer"]),
    ("a latency without unit", "latency: 80 us", "latency: 80", 14, ['links.m2.latency: "80" has no unit']),
    ("a rate by its written path", "rate: 6000 MT/s x 2", "rate: 1", 7, ['memories.dram0.rate: "1" has no unit']),
    ("both directions of PCIe 3", "pcie: 4 x4", "kind: pcie, rate: 32 GB/s", 14, ["15.75 GB/s each", "pcie: 3 x16"]),
    (
        "both directions of PCIe 4",
        "pcie: 4 x16",
        "rate: 64 GB/s",
        13,
        ["31.51 GB/s each way", "pcie: 4 x16 or pcie: 5"],
    ),
    ("both directions of PCIe 5", "pcie: 4 x16", "rate: 128 GB/s", 13, ["63.02 GB/s each", "forward: 128 GB/s"]),
    ("both directions as rated", "pcie: 4 x16", "rate: {rated: 64 GB/s}", 13, ["31.51 GB/s each way"]),
    ("a percentage of nothing", "sustained: 30 GB/s", "sustained: 80%", 16, ['sustained: "80%" of what?']),
    ("more than the whole", "60..77 GB/s", "120 %", 6, ['rate.sustained: "120 %" is out of range', 'read: "85 %"']),
    ("figures out of order", "60..77 GB/s", "99..98..97 GB/s", 6, ['Write "97..98..99 GB/s"']),
    ("lanes of no known width", "pcie: 4 x4", "pcie: 4 x5", 14, ['"PCIe 4 x4" or "PCIe 4 x8"']),
    ("a speed for a generation", "pcie: 4 x4", "pcie: 32 GT/s x4", 14, ['Write "PCIe 5 x4"']),
    ("a count in quotes", "capacity: 2 TB", "capacity: 2 TB, count: '8'", 8, ["Drop the quotes: 8"]),
    ("a thousands comma", "peak: 1008 GB/s", "peak: '1,008 GB/s'", 6, ["comma", "1008 GB/s"]),
    ("an interval where one figure is due", "24 GiB", "20..24 GiB", 6, ["20..24 GiB", "is the low end"]),
    ("a peak that is a range", "peak: 1008 GB/s", "peak: 1..2 TB/s", 6, ["due. Write", "most that can be"]),
    ("a range of FLOP/s", "165 TFLOP/s", "90..110 TFLOP/s", 10, ["one figure is due. Write", "the sustained"]),
    ("a latency that is a range", "latency: 80 us", "latency: 60..80 us", 14, ["typical time: [1 us, 6 us]"]),
    ("a latency that ends in a range", "[3.6 us, 6 us]", "[3 us, 5..6 us]", 13, ["least and its typical time"]),
    ("a cache that is a range", "72 MB", "70..72 MB", 6, ["the high end"]),
    ("FLOP/s above their peak", "bf16: 165 TFLOP/s", "bf16: {peak: 100 TFLOP/s, sustained: 90..110 TFLOP/s}", 10,
     ["110 TFLOP/s is above the peak"]),
    ("FLOP/s backwards", "bf16: 165 TFLOP/s", "bf16: {rated: 165 TFLOP/s, sustained: 110..90 TFLOP/s}", 10,
     ['Write "90..110 TFLOP/s"']),
    ("an interval backwards", "60..77 GB/s", "77..60 GB/s", 6, ["77..60"]),
    ("sustained above peak", "60..77 GB/s", "1100 GB/s", 6, ["above the peak", "1.008 TB/s"]),
    ("sustained of a link above its peak", "pinned: 26 GB/s", "pinned: 32 GB/s", 13, ["above the peak", "31.51 GB/s"]),
    ("an unknown key", "capacity: 24 GiB", "capacty: 24 GiB", 6, ['"capacty"', 'Did you mean "capacity"?']),
    ("an unknown key of a rate", "peak: 1008", "peek: 1008", 6, ['"peek"', 'Did you mean "peak"?', "Keys of a rate"]),
    ("an unknown section", "processors:", "procesors:", 9, ['"procesors"', 'Did you mean "processors"?']),
    ("an unknown kind", "kind: hbm", "kind: hmb", 6, ['"hmb"', 'Did you mean "hbm"?']),
    ("an unknown format", "bf16: 165", "bfloat16: 165", 10, ["bfloat16", "bf16"]),
    ("an unknown access", "pinned: 26", "pined: 26", 13, ['"pined"', 'Did you mean "pinned"?']),
    ("an unknown memory", "memory: hbm0", "memory: hbm1", 10, ['no memory "hbm1"', 'Did you mean "hbm0"?']),
    ("wrong case", "memory: hbm0", "memory: HBM0", 10, ['no memory "HBM0"', 'Did you mean "hbm0"?']),
    ("a trailing space", "memory: hbm0", "memory: 'hbm0 '", 10, ['Did you mean "hbm0"?']),
    ("an unknown switch", "at: socket0", "at: socket1", 7, ['no switch "socket1"', 'Did you mean "socket0"?']),
    ("a link to a processor", "[socket0, hbm0]", "[socket0, gpu0]", 13, ['"gpu0" is a processor', '"hbm0"']),
    ("a link to itself", "[socket0, hbm0]", "[hbm0, hbm0]", 13, ["linked to itself"]),
    ("a link of three", "[socket0, hbm0]", "[socket0, hbm0, ssd0]", 13, ["between two nodes"]),
    ("a link of one text", "[socket0, hbm0]", "socket0", 13, ["must be a list"]),
    ("a limit over nothing known", "pcie0.hbm0, m2", "pcie0.hbm1, m2", 16, ['"pcie0.hbm1"', '"pcie0.hbm0"']),
    ("a limit without rate", ", sustained: 30 GB/s", "", 16, ["has no figure", "sustained"]),
    ("a rate with a source only", "rate: 6000 MT/s x 2", "rate: {source: me}", 7, ["has no figure", "unknown"]),
    ("half duplex with two rates", "pcie: 4 x4", "duplex: half, forward: 2 GB/s, backward: 1 GB/s", 14, ["half"]),
    ("latency without unit", "[3.6 us, 6 us]", "[3.6, 6]", 13, ['"3.6"', "us"]),
    ("latency backwards", "[3.6 us, 6 us]", "[6 us, 3.6 us]", 13, ["least first"]),
    ("a name twice", "m2:", "ssd0:", 14, ['"ssd0" is taken', "line 8"]),
    ("a key twice", "hbm0: {kind: hbm,", "hbm0: {kind: hbm, kind: hbm,", 6, ["twice"]),
    ("a dot in a name", "m2:", "m.2:", 14, ['no "."']),
    ("a count that is none", "kind: nvme", "kind: nvme, count: 0", 8, ["at least 1"]),
    ("half a drive", "kind: nvme", "kind: nvme, count: 1.5", 8, ["whole number", "1.5"]),
    ("a number as a title", "title: A box", "title: 4090", 1, ['"4090"', "Quote"]),
    ("a comma in a source", "source: made up", "x: {source: made up, 2023}", 2, ['"2023" has no value', "Quote"]),
    ("a rate that is a list", "reads: 60 GB/s", "reads: [60 GB/s]", 11, ["must be a map", "a list"]),
    ("yes for true", "memory: hbm0,", "memory: hbm0, peer_to_peer: yes,", 10, ["true"]),
    ("text for true", "memory: hbm0,", "memory: hbm0, peer_to_peer: 'no',", 10, ["true or false"]),
    ("known and unknown", "reads: 60 GB/s", "reads: {sustained: 60 GB/s, unknown: true}", 11, ["unknown", "Keep one"]),
    ("a range for a single name", "memory: hbm0", "memory: hbm0..1", 10, ["holds 2 names"]),
    ("a memory without kind", "kind: hbm, ", "", 6, ['"kind" is missing']),
    ("flops as one figure", "flops: {bf16: 165 TFLOP/s}", "flops: 165 TFLOP/s", 10, ["must be a map", "bf16"]),
    ("FLOP/s in bytes", "165 TFLOP/s", "165 GB/s", 10, ["165 GB/s", "TFLOP/s"]),
    ("a section that is a list", "limits:\n  root0:", "limits:\n  - root0:", 15, ["must be a map", "a list"]),
    ("nothing in a section", BOX[BOX.index("limits:") :], "limits:\n", 15, ["missing"]),
]


@pytest.mark.parametrize(("what", "old", "new", "line", "parts"), REFUSED, ids=[case[0] for case in REFUSED])
def test_refused_at_its_line(what: str, old: str, new: str, line: int, parts: list[str]) -> None:
    with pytest.raises(DocumentError) as caught:
        box(old, new)
    message = str(caught.value)
    assert message.startswith("box.yaml: ")
    assert any(mistake.line == line for mistake in caught.value.mistakes), message
    for part in parts:
        assert part in message, message
    assert "pydantic" not in message and "Traceback" not in message


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("pcie: 4 x4", "rate: ~", "links.m2.rate"),
        ("rate: 6000 MT/s x 2", "rate: ~", "memories.dram0.rate"),
        ("sustained: 30 GB/s", "rate: ~", "limits.root0.rate"),
        ("pcie: 4 x16", "rate: {peak: ~}", "links.pcie0.rate.peak"),
        ("sustained: 30 GB/s", "sustained: 80%", "limits.root0.sustained"),
        ("reads: 60 GB/s", "reads: 60%", "processors.cpu0.reads"),
        ("capacity: 24 GiB,", "capacity: ,", "memories.hbm0.capacity"),
    ],
)
def test_told_once_by_the_path_that_is_written(old: str, new: str, path: str) -> None:
    with pytest.raises(DocumentError) as caught:
        box(old, new)
    assert [mistake.key for mistake in caught.value.mistakes] == [path]


@pytest.mark.parametrize(
    ("old", "new", "of", "shares", "words"),
    [
        ("{pinned: 26 GB/s}", "80%", lambda box: box.links["pcie0"].backward, (0.8,) * 3, "80% of peak"),
        ("{pinned: 26 GB/s}", "75..85 %", lambda box: box.links["pcie0"].forward, (0.75, 0.8, 0.85), "75..85 %"),
        ("60..77 GB/s", "90 %", lambda box: box.memories["hbm0"].rate, (0.9,) * 3, "90 % of peak"),
        ("7.45 GB/s", "{peak: 7 GB/s, sustained: 90 %}", lambda box: box.memories["ssd0"].read, (0.9,) * 3, "90 %"),
        ("write: unknown", "write: {rated: 7 GB/s, sustained: 90 %}", lambda box: box.memories["ssd0"].write,
         (0.9,) * 3, "90 % of the rated figure"),
        ("sustained: 30 GB/s", "rate: 40 GB/s, sustained: 80 %", lambda box: box.limits["root0"].rate, (0.8,) * 3,
         "80 % of peak"),
        ("sustained: 30 GB/s", "rate: {peak: 40 GB/s, sustained: 80 %}", lambda box: box.limits["root0"].rate,
         (0.8,) * 3, "80 % of peak"),
        ("165 TFLOP/s", "{rated: 165 TFLOP/s, sustained: 80 %}", lambda box: box.processors["gpu0"].flops["bf16"],
         (0.8,) * 3, "80 % of the rated figure"),
    ],
)  # fmt: skip
def test_sustained_as_a_percentage(old: str, new: str, of, shares: tuple[float, ...], words: str) -> None:
    found = box(old, new)
    rate = of(found)
    base = rate.rated if rate.peak is None else rate.peak
    interval = rate.sustained[""]
    assert (interval.low, interval.value, interval.high) == pytest.approx(tuple(share * base for share in shares))
    assert "made up; sustained: " in rate.source and words in rate.source and "as stated" in rate.source


def test_a_percentage_is_stated_and_not_assumed() -> None:
    found = box("pcie: 4 x16, sustained: {pinned: 26 GB/s}", "pcie: 4 x16, sustained: {pinned: 80 %}, count: 2")
    row = found.resources["pcie0.hbm0"]
    assert "" not in row.assumed and row.sustained_at("pinned").value == pytest.approx(0.8 * row.peak)
    assert not [note for note in found.assumptions if note.startswith("pcie0")]


def test_a_real_rate_of_a_pcie_link_passes() -> None:
    assert box("pcie: 4 x16", "rate: 31.5 GB/s").links["pcie0"].forward.peak == 31.5e9
    assert box("pcie: 4 x16", "forward: 64 GB/s, backward: 64 GB/s").links["pcie0"].forward.peak == 64e9
    assert box("pcie: 4 x16", "kind: upi, rate: 64 GB/s").links["pcie0"].forward.peak == 64e9


def test_all_mistakes_at_once() -> None:
    text = BOX.replace("24 GiB", "24").replace("memory: dram0", "memory: dram1").replace("pcie: 4 x4", "pcie: 4 x5")
    with pytest.raises(DocumentError) as caught:
        topology(text.replace("kind: nvme", "kindd: nvme"))
    assert [mistake.line for mistake in caught.value.mistakes] == [6, 8, 8, 11, 14]


def test_a_box_as_it_is_meant() -> None:
    found = box()
    assert (found.name, found.title) == ("box", "A box")
    hbm, dram, ssd = (found.memories[name] for name in ("hbm0", "dram0", "ssd0"))
    assert hbm.capacity == 24 * 2**30 and hbm.cache == 72_000_000
    assert hbm.rate.peak == 1008e9 and hbm.rate.sustained[""] == Interval(60e9, 68.5e9, 77e9)
    assert dram.at == "socket0" and dram.rate.peak == 96e9 and dram.rate.rated is None
    assert ssd.read.peak is None and ssd.read.rated == 7.45e9 and ssd.write.unknown
    assert found.processors["gpu0"].flops["bf16"].rated == 165e12
    assert found.processors["cpu0"].reads.sustained[""].value == 60e9 and found.processors["cpu0"].reads.peak is None
    pcie, m2 = found.links["pcie0"], found.links["m2"]
    assert (pcie.a, pcie.b, pcie.technology, pcie.generation, pcie.lanes) == ("socket0", "hbm0", "pcie", 4, 16)
    assert pcie.forward.peak == pcie.backward.peak == pytest.approx(31.508e9, rel=1e-4)
    assert pcie.backward.sustained["pinned"].value == 26e9
    assert pcie.latency == (3.6e-6, 6e-6) and m2.latency == (0.0, 80e-6)
    assert found.limits["root0"].over == ("pcie0.hbm0", "m2")
    assert found.limits["root0"].rate.peak is None and found.limits["root0"].rate.sustained[""].value == 30e9
    assert hbm.source == "made up" and pcie.forward.source == "made up"


@pytest.mark.parametrize(
    ("link", "forward", "backward", "symmetric"),
    [
        ("rate: 25 GB/s", 25e9, 25e9, True),
        ("rate: 25 GB/s, count: 4", 100e9, 100e9, True),
        ("both_directions: 900 GB/s", 450e9, 450e9, False),
        ("nvlink: 4 x18", 450e9, 450e9, False),
        ("forward: 900 GB/s, backward: 900 GB/s", 900e9, 900e9, False),
        ("forward: 450 GB/s, backward: {peak: 300 GB/s}", 450e9, 300e9, False),
        ("forward: 450 GB/s", 450e9, 450e9, True),
        ("rate: 64 Gb/s, backward: 2 GB/s", 8e9, 2e9, False),
        ("kind: ethernet, rate: 400 Gbps", 50e9, 50e9, True),
        ("rate: 900 GB/s, nvlink: 5 x18", 900e9, 900e9, False),
        ("rate: unknown", None, None, False),
    ],
)
def test_rates_of_links(link: str, forward: float, backward: float, symmetric: bool) -> None:
    found = box("pcie: 4 x16, sustained: {pinned: 26 GB/s}", link).links["pcie0"]
    assert (found.forward.peak, found.backward.peak) == (forward, backward)
    if forward is not None:
        assert found.assumed_symmetric is symmetric


def test_sustained_of_one_direction() -> None:
    text = "pcie: 4 x16, sustained: 25 GB/s, backward: {sustained: {pinned: 20 GB/s, pageable: 5 GB/s}}"
    link = box("pcie: 4 x16, sustained: {pinned: 26 GB/s}", text).links["pcie0"]
    assert link.forward.sustained == {"": Interval.exact(25e9)}
    assert link.backward.sustained == {"pinned": Interval.exact(20e9), "pageable": Interval.exact(5e9)}
    assert link.backward.peak == link.forward.peak


def test_count_multiplies_sustained() -> None:
    found = box("pcie: 4 x16, sustained: {pinned: 26 GB/s}", "pcie: 4 x16, sustained: 20..26 GB/s, count: 2")
    link = found.links["pcie0"]
    assert link.forward.sustained[""] == Interval(40e9, 46e9, 52e9)


EIGHT = """\
switches:
  socket0..1: {kind: socket}
  plx0..3: {kind: pcie switch}
memories:
  dram0..1: {kind: dram, at: socket0..1, rate: 307 GB/s}
  hbm0..3: {kind: hbm, capacity: 80 GiB, rate: 3350 GB/s}
processors:
  gpu0..3: {kind: gpu, memory: hbm0..3}
links:
  up: {between: [socket0, plx0..3], pcie: 5 x16}
  pcie0..3: {between: [plx0..3, hbm0..3], pcie: 5 x16}
  upi: {between: [socket0, socket1], kind: upi, rate: 60 GB/s, duplex: half}
limits:
  root: {over: [up], rate: 100 GB/s}
  engine0..3: {over: [pcie0..3.hbm0..3], sustained: 50 GB/s}
  half: {over: [pcie0..1, up.2], rate: 90 GB/s}
"""


def test_ranges_pair_up_and_fan_out() -> None:
    found = topology(EIGHT)
    assert list(found.memories) == ["dram0", "dram1", "hbm0", "hbm1", "hbm2", "hbm3"]
    assert found.memories["dram1"].at == "socket1"
    assert found.processors["gpu3"].memory == "hbm3"
    assert found.switches["plx2"].kind == "pcie_switch"
    assert [(link.name, link.a, link.b) for link in found.links.values()][:6] == [
        ("up.0", "socket0", "plx0"), ("up.1", "socket0", "plx1"),
        ("up.2", "socket0", "plx2"), ("up.3", "socket0", "plx3"),
        ("pcie0", "plx0", "hbm0"), ("pcie1", "plx1", "hbm1"),
    ]  # fmt: skip
    assert found.links["upi"].half_duplex
    assert found.limits["root"].over == ("up.0", "up.1", "up.2", "up.3")
    assert found.limits["engine2"].over == ("pcie2.hbm2",)
    assert found.limits["half"].over == ("pcie0", "pcie1", "up.2")


@pytest.mark.parametrize(
    ("old", "new", "line", "part"),
    [
        ("memory: hbm0..3", "memory: hbm0..2", 8, "holds 3 names, and 4 are due"),
        ("[plx0..3, hbm0..3]", "[plx0..3, hbm0..1]", 11, "holds 2 names, and 4 are due"),
        ("gpu0..3:", "gpu3..0:", 8, 'Write "0..3"'),
        ("gpu0..3:", "gpu0..99999:", 8, "longer"),
        ("hbm0..3:", "dram1..3:", 6, '"dram1" is taken, on line 5'),
        ("pcie0..3.hbm0..3", "pcie0..3.hbm0..2", 15, "differ in length"),
        ("[up]", "[up0..3]", 14, 'no link or direction "up0"'),
    ],
)
def test_ranges_refused(old: str, new: str, line: int, part: str) -> None:
    assert old in EIGHT
    with pytest.raises(DocumentError) as caught:
        topology(EIGHT.replace(old, new, 1))
    assert any(mistake.line == line and part in mistake.message for mistake in caught.value.mistakes), str(caught.value)


def test_a_topology_inside_a_document() -> None:
    indented = "".join(f"    {line}\n" for line in BOX.splitlines())
    document = parse_document(f"case:\n  topology:\n{indented}", "case.yaml")
    assert read_topology(document, ("case", "topology"), name="inner").memories["hbm0"].capacity == 24 * 2**30
    document = parse_document(f"case:\n  topology:\n{indented}".replace("24 GiB", "24"), "case.yaml")
    with pytest.raises(DocumentError, match="line 8, column .*case.topology.memories.hbm0.capacity"):
        read_topology(document, ("case", "topology"))


def test_names_and_paths(tmp_path: Path) -> None:
    (tmp_path / "box.yaml").write_text(BOX, encoding="utf-8")
    assert load_topology("./box.yaml", relative_to=tmp_path).title == "A box"
    assert load_topology(tmp_path / "box.yaml").name == "box"
    assert find_topology("desktop-4090") == shipped_folder() / "desktop-4090.yaml"
    with pytest.raises(OffloadError, match='no topology "desktop-409".*Did you mean "desktop-4090"'):
        load_topology("desktop-409")
    with pytest.raises(OffloadError, match=r"none\.yaml: no such file"):
        load_topology("none.yaml", relative_to=tmp_path)


# Shipped servers


def test_the_two_servers_are_shipped() -> None:
    assert {"desktop-4090", "gh200"} <= set(shipped_topologies())


@pytest.mark.parametrize("name", shipped_topologies())
def test_shipped_server_routes_and_names_sources(name: str) -> None:
    found = load_topology(name)
    assert found.title and found.name == name
    assert not [note for note in found.assumptions if "contradiction" in note]
    near = next(memory for memory in ("hbm0", "unified0") if memory in found.memories)
    for source in {"dram0", "ssd0"} & found.memories.keys():
        assert found.route(source, near).stages
    # Every figure has a source: its own, or that of the part it belongs to.
    for memory in found.memories.values():
        assert memory.source, memory.name
        rates = [rate for rate in (memory.rate, memory.read, memory.write) if rate is not None]
        assert rates and all(rate.source for rate in rates), memory.name
    for processor in found.processors.values():
        rates = [rate for rate in (*processor.flops.values(), processor.reads, processor.writes) if rate is not None]
        assert processor.source and all(rate.source for rate in rates), processor.name
    for link in found.links.values():
        assert link.source and link.forward.source and link.backward.source, link.name
    for limit in found.limits.values():
        assert limit.rate.source, limit.name
    document = read_document(shipped_folder() / f"{name}.yaml")
    for section in ("memories", "processors", "links", "limits"):
        for part, said in document.value.get(section, {}).items():
            value = with_part(document, section, said, (section, part), document.value.get("parts"))
            assert value.get("source"), f"{section}.{part} names no source of its own"
            sure = ("(found", "(derived", "(memory", "memory)", "not known")
            assert any(mark in str(value) for mark in sure), f"{section}.{part} does not say how sure it is"


def test_figures_of_the_desktop() -> None:
    found = load_topology("desktop-4090")
    hbm, dram, ssd = (found.memories[name] for name in ("hbm0", "dram0", "ssd0"))
    assert hbm.capacity == 24 * 2**30 and hbm.rate.peak == 1008.1e9 and hbm.rate.sustained[""].value == 921e9
    assert dram.capacity == 96 * 2**30 and dram.rate.peak == 96e9 and dram.rate.sustained[""].value == 70e9
    assert ssd.capacity == 2 * 10**12 and ssd.read.rated == 7.45e9 and ssd.read.sustained[""].value == 7.1e9
    assert found.links["pcie0"].forward.sustained["pinned"].value == 26.3e9
    assert found.links["pcie0"].backward.sustained["pinned"].value == 27.1e9
    assert found.processors["gpu0"].peer_to_peer is False


def test_figures_of_the_gh200() -> None:
    found = load_topology("gh200")
    c2c = found.links["c2c0"]
    assert (c2c.forward.peak, c2c.forward.sustained["pinned"].value) == (450e9, 377e9)
    assert (c2c.backward.peak, c2c.backward.sustained[""].value) == (450e9, 297e9)
    assert found.memories["dram0"].rate.peak == 384e9 and found.memories["hbm0"].rate.peak == 4022.8e9


def test_loading_takes_a_moment() -> None:
    load_topology("desktop-4090")
    with within(0.2):  # about 6 ms on an idle machine
        load_topology("desktop-4090")


# Whatever is typed is read or refused

SPLINTERS = [
    "", " ", "\n", "\t", ":", ",", "{", "}", "[", "]", "#", "&a", "*a", "- ", "~", "NO", "1e9", "0", "-1", ".inf",
    "unknown", "GB/s", "hbm0", "0..7", "..", "'", '"', "<<: *a", "x: ", "null", "1:30", "\u00a0", "\uff1a", "!!int",
    "{}", "[]", "true",
]  # fmt: skip


@settings(max_examples=250, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(BOX)), st.integers(0, 12), st.sampled_from(SPLINTERS)), max_size=4))
def test_any_slip_is_read_or_refused(slips: list[tuple[int, int, str]]) -> None:
    text = BOX
    for start, length, splinter in slips:
        text = text[:start] + splinter + text[start + length :]
    try:
        topology(text)
    except OffloadError as error:
        assert str(error).startswith("box.yaml: ")


WRONG_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 10**20) | st.floats() | st.sampled_from([*SPLINTERS, "1 GB/s"]),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.sampled_from(["peak", "x", "kind"]), children),
    max_leaves=4,
)


@settings(max_examples=150, deadline=None)
@given(WRONG_VALUES, st.integers(0, 10**6))
def test_any_wrong_value_is_read_or_refused(value: object, seed: int) -> None:
    document = parse_document(BOX, "box.yaml")
    node = document.value
    chooser = random.Random(seed)
    while True:  # walk down to some place and put the value there
        key = chooser.choice(list(node) if isinstance(node, dict) else list(range(len(node))))
        if not isinstance(node[key], dict | list) or not node[key] or chooser.random() < 0.3:
            node[key] = value
            break
        node = node[key]
    try:
        read_topology(document, name="box")
    except OffloadError as error:
        assert str(error).startswith("box.yaml: ")
