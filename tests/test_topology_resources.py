"""Topologies: the resources that parts compile to, their rates and notes, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offload.errors import TopologyError
from offload.topology import (
    Interval,
    Limit,
    Link,
    Memory,
    Processor,
    Rate,
    Resource,
    Switch,
    Topology,
)
from offload.topology.shares import SHARES
from tests.topology_parts import GB, ONE, STAGED, cpu, desktop, dram, gpu, hbm, link, rate, ssd, switched_pair, uses

# Resources


def test_names_kinds_and_units():
    parts = desktop(flops={"bf16": Rate(rated=165e12)})
    parts["limits"] = [Limit("root", ("pcie0",), rate(None, 40.0))]
    resources = Topology.build(**parts).resources
    assert {name: (row.kind, row.unit) for name, row in resources.items()} == {
        "hbm0": ("memory", "B"),
        "dram0": ("memory", "B"),
        "ssd0.read": ("memory", "B"),
        "ssd0.write": ("memory", "B"),
        "gpu0.flops": ("processor", "FLOP"),
        "pcie0.hbm0": ("link", "B"),
        "pcie0.socket0": ("link", "B"),
        "m2.socket0": ("link", "B"),
        "m2.ssd0": ("link", "B"),
        "root": ("limit", "B"),
    }
    with pytest.raises(TypeError):
        resources["hbm0"] = None


def resource(name: str, **parts) -> Resource:
    return Topology.build(**parts).resources[name]


def test_half_duplex_is_one_resource():
    bus = Link("bus", "a", "b", rate(25.0), rate(25.0), "pcie", half_duplex=True)
    parts = {"memories": [Memory("a", "dram", rate=rate(90.0)), Memory("b", "hbm", rate=rate(900.0))], "links": [bus]}
    topology = Topology.build(**parts)
    assert "bus" in topology.resources and "bus.a" not in topology.resources
    assert uses(topology.route("a", "b")) == [{"a": ONE, "bus": ONE, "b": ONE}]
    assert uses(topology.route("b", "a")) == [{"b": ONE, "bus": ONE, "a": ONE}]


def test_asymmetric_c2c():
    parts = {
        "memories": [Memory("lpddr", "dram", rate=rate(384.0)), hbm(0)],
        "processors": [gpu(0), Processor("cpu0", "cpu", "lpddr")],
        "links": [Link("c2c", "lpddr", "hbm0", rate(450.0, 377.0), rate(450.0, 297.0), "c2c")],
    }
    resources = Topology.build(**parts).resources
    assert resources["c2c.hbm0"].sustained_at("pinned") == Interval.exact(377 * GB)
    assert resources["c2c.lpddr"].sustained_at("pinned") == Interval.exact(297 * GB)
    assert "pageable" not in resources["c2c.hbm0"].sustained
    assumed = Topology.build(**parts | {"links": [link("c2c", "lpddr", "hbm0", 450.0, "c2c")]})
    assert assumed.resources["c2c.hbm0"].sustained_at("").value == pytest.approx(0.84 * 450 * GB)
    assert assumed.resources["c2c.lpddr"].sustained_at("").value == pytest.approx(0.66 * 450 * GB)
    assert "c2c.hbm0: sustained rate assumed at 84 % of peak (76 to 94 %: C2C, host to device)" in assumed.assumptions


def test_limits_over_links_and_directions():
    parts = switched_pair()
    parts["limits"] = [
        Limit("both", ("uplink",), rate(40.0, 30.0)),
        Limit("down", ("p0.hbm0", "p1.hbm1"), rate(None, 28.0)),
    ]
    topology = Topology.build(**parts)
    assert uses(topology.route("dram0", "hbm0"))[0] == {
        "dram0": ONE, "uplink.plx": ONE, "both": ONE, "p0.hbm0": ONE, "down": ONE, "hbm0": ONE,
    }  # fmt: skip
    assert uses(topology.route("hbm0", "dram0"))[0] == {
        "hbm0": ONE, "p0.plx": ONE, "uplink.socket0": ONE, "both": ONE, "dram0": ONE,
    }  # fmt: skip
    assert topology.resources["down"].peak is None, "a measured limit certifies nothing"
    assert topology.resources["down"].sustained_at("pinned") == Interval.exact(28 * GB)


def test_a_limit_that_a_byte_meets_twice_counts_twice():
    parts = switched_pair(peer_to_peer=True)
    parts["limits"] = [Limit("switch", ("p0", "p1"), rate(40.0))]
    assert uses(Topology.build(**parts).route("hbm0", "hbm1"))[0]["switch"] == (2.0, 2.0)


def test_count_multiplies_rates_and_cache_and_leaves_the_stated_values():
    drives = Memory("raid", "nvme", 10**12, read=Rate(rated=7.0 * GB), write=rate(None, 5.0), count=4)
    topology = Topology.build(memories=[drives])
    assert topology.resources["raid.read"].sustained_at("").value == pytest.approx(4 * 7.0 * GB * 0.85)
    assert topology.resources["raid.write"].sustained_at("") == Interval.exact(20 * GB)
    assert (topology.memories["raid"].capacity, topology.memories["raid"].count) == (10**12, 4)
    stacks = Memory("hbm", "hbm", rate=rate(500.0), cache=36 * 10**6, count=2)
    row = resource("hbm", memories=[stacks])
    assert (row.peak, row.cache) == (1000 * GB, 72 * 10**6)


@pytest.mark.parametrize(
    ("memory", "name", "share"),
    [
        (Memory("m", "hbm", rate=rate(1000.0)), "m", "hbm"),
        (Memory("m", "dram", rate=rate(96.0)), "m", "dram_desktop"),
        (Memory("m", "dram", rate=rate(460.8)), "m", "dram_server"),
        (Memory("m", "unified", rate=rate(273.0)), "m", "dram_server"),
        (Memory("m", "cxl", rate=rate(64.0)), "m", "dram_desktop"),
    ],
)
def test_memories_without_a_measurement_get_the_documented_share(memory, name, share):
    row, known = resource(name, memories=[memory]), SHARES[share]
    assert row.sustained_at("read") == Interval(*(row.peak * part for part in (known.low, known.value, known.high)))
    assert "" in row.assumed


@pytest.mark.parametrize(
    ("technology", "generation", "share"),
    [
        ("pcie", 1, "pcie3"), ("pcie", 3, "pcie3"), ("pcie", 4, "pcie4"), ("pcie", 5, "pcie5"), ("pcie", 6, "pcie5"),
        ("pcie", None, "pcie"), ("", None, "pcie"), ("nvlink", None, "nvlink"), ("upi", None, "socket"),
        ("xgmi", None, "socket"), ("infiniband", None, "network"),
    ],
)  # fmt: skip
def test_links_without_a_measurement_get_the_documented_share(technology, generation, share):
    one = replace(link("l", "m", "s", 10.0, technology), generation=generation)
    row = resource("l.s", memories=[Memory("m", "dram", rate=rate(96.0))], switches=[Switch("s")], links=[one])
    known = SHARES[share]
    assert row.sustained_at("pinned") == Interval(*(10 * GB * part for part in (known.low, known.value, known.high)))
    assert "" in row.assumed


def test_pinned_serves_any_access_and_pageable_is_assumed_of_peak():
    parts = desktop()
    pinned = rate(31.5, pinned=26.0)
    parts["links"][0] = Link("pcie0", "socket0", "hbm0", pinned, pinned, "pcie", 4, 16)
    row = resource("pcie0.hbm0", **parts)
    assert row.sustained_at("zero_copy") == row.sustained_at("pinned") == Interval.exact(26 * GB)
    assert row.sustained_at("pageable").value == pytest.approx(0.20 * 31.5 * GB)
    assert row.assumed == {"pageable"}
    given_both = rate(31.5, pinned=26.0, pageable=6.0)
    parts["links"][0] = Link("pcie0", "socket0", "hbm0", given_both, given_both, "pcie", 4, 16)
    assert resource("pcie0.hbm0", **parts).assumed == frozenset()


def test_drives_get_their_share_of_the_rated_figure_and_no_peak():
    topology = Topology.build(**desktop())
    read, write = topology.resources["ssd0.read"], topology.resources["ssd0.write"]
    assert (read.peak, write.peak) == (None, None)
    assert read.sustained_at("").value == pytest.approx(0.95 * 7.0 * GB)
    assert write.sustained_at("").value == pytest.approx(0.90 * 6.0 * GB)
    assert "ssd0.read: sustained rate assumed at 95 % of the rated figure" in " ".join(topology.assumptions)


def test_an_assumed_link_is_no_slower_than_the_drive_behind_it():
    topology = Topology.build(**desktop())
    drive, way = topology.resources["ssd0.read"].sustained_at(""), topology.resources["m2.socket0"].sustained_at("")
    assert way.value == drive.value and way.high <= 7.9 * GB
    parts = desktop()
    parts["memories"][2] = replace(ssd(0), read=Rate(rated=14.0 * GB))
    faster = Topology.build(**parts).resources["m2.socket0"]
    assert faster.sustained_at("").value == pytest.approx(0.83 * 7.9 * GB), "measured through another slot"


def test_notes_begin_with_the_row_they_are_about_and_do_not_contradict():
    """A plan that never writes can leave out what is assumed of writes."""
    topology = Topology.build(**desktop())
    notes = topology.assumptions
    rows = [note.partition(":")[0] for note in notes]
    assert set(rows) <= set(topology.resources) and {"m2.socket0", "m2.ssd0", "ssd0.read", "ssd0.write"} <= set(rows)
    assert len([row for row in rows if row == "m2.socket0"]) == 1
    assert "m2.socket0: assumed to sustain what ssd0.read does through it" in notes
    assert any(note.startswith("m2.ssd0: sustained rate assumed at 83 % of peak") for note in notes)


def test_a_link_measured_slower_than_what_is_behind_it_is_told():
    parts = desktop()
    parts["memories"][2] = replace(ssd(0), read=rate(None, 7.0))
    parts["links"][1] = Link("m2", "ssd0", "socket0", rate(7.9, 6.0), rate(7.9, 6.0), "pcie", 4, 4)
    told = [text for text in Topology.build(**parts).assumptions if "contradiction" in text]
    assert told == ["m2.socket0: contradiction: sustains 6 GB/s, yet ssd0.read is given as 7 GB/s through it"]


def test_flops_by_format():
    known = {"bf16": Rate(rated=165e12), "fp8": Rate(rated=330e12, sustained={"": Interval.exact(250e12)})}
    row = resource("gpu0.flops", memories=[hbm(0)], processors=[gpu(0, flops=known)])
    assert row.sustained_at("bf16").value == pytest.approx(0.75 * 165e12)
    assert row.sustained_at("fp8") == Interval.exact(250e12)
    assert row.assumed == {"bf16"} and row.peak is None
    peaks = {"bf16": Rate(peak=180e12, rated=165e12), "fp8": Rate(peak=360e12)}
    assert resource("gpu0.flops", memories=[hbm(0)], processors=[gpu(0, flops=peaks)]).peak == 360e12
    mixed = {"bf16": Rate(peak=180e12), "fp8": Rate(rated=330e12)}
    row = resource("gpu0.flops", memories=[hbm(0)], processors=[gpu(0, flops=mixed)])
    assert row.peak is None, "the fastest format has no peak: bf16's would be too low for it"
    avx = [Processor("c", "cpu", "hbm0", {"bf16": Rate(rated=1e12)})]
    on_cpu = resource("c.flops", memories=[hbm(0)], processors=avx)
    assert on_cpu.sustained_at("bf16").value == pytest.approx(0.30 * 1e12)


def test_a_processor_s_own_rate_of_a_desktop_and_of_a_server():
    for peak, share in ((96.0, 0.72), (460.8, 0.45)):
        parts = {"memories": [dram(0, peak)], "processors": [cpu(0, reads=rate(peak))], "switches": [Switch("socket0")]}
        assert resource("cpu0.reads", **parts).sustained_at("").value == pytest.approx(share * peak * GB)


def test_unknown_rates_have_no_row_and_are_told():
    parts = desktop()
    unknown = Rate(unknown=True)
    parts["links"][1] = Link("m2", "ssd0", "socket0", unknown, unknown, "pcie")
    parts["memories"][0] = Memory("hbm0", "hbm", rate=unknown)
    topology = Topology.build(**parts)
    assert not {"m2.socket0", "m2.ssd0", "hbm0"} & set(topology.resources)
    assert uses(topology.route("ssd0", "hbm0")) == [
        {"ssd0.read": ONE, "dram0": STAGED},
        {"dram0": STAGED, "pcie0.hbm0": ONE},
    ]
    assert "m2.socket0: rate unknown, so it is not counted" in topology.assumptions
    assert "m2.ssd0: rate unknown, so it is not counted" in topology.assumptions
    assert "hbm0: rate unknown, so it is not counted" in topology.assumptions


def test_what_is_not_stated_is_told():
    parts = desktop()
    parts["links"][0] = replace(parts["links"][0], assumed_symmetric=True)
    parts["memories"][2] = replace(ssd(0), write=None)
    topology = Topology.build(**parts, assumptions=["from a guess"])
    assert topology.assumptions[0] == "from a guess"
    for direction in ("pcie0.hbm0", "pcie0.socket0"):
        assert f"{direction}: one direction's rate is stated; the other is assumed equal" in topology.assumptions
    assert "ssd0.write: rate not stated, so writes are not counted there" in topology.assumptions


# What is refused


def refused(**parts) -> str:
    with pytest.raises(TopologyError) as error:
        Topology.build(name="box", **parts)
    return str(error.value)


def test_all_mistakes_at_once():
    parts = desktop()
    parts["memories"].append(Memory("dram0", "drm", -5, rate(0.0), at="soket0", count=0, cache=-1))
    parts["processors"].append(Processor("gpu1", "tpu", "hbm1"))
    parts["links"] += [link("loop", "hbm0", "hbm0"), link("lost", "socket0", "gpu0"), link("far", "soket0", "hbm0")]
    parts["limits"] = [Limit("root", ("pcie0.hbm1", "pci0"), rate(None, 30.0)), Limit("none", (), rate(1.0))]
    text = refused(**parts)
    assert text.splitlines()[0] == "topology box: 15 mistakes"
    for line in (
        "dram0: two memories have this name. Rename one of them.",
        'dram0: no kind of memory "drm". Kinds: cxl, disk, dram, hbm, nvme, unified. Did you mean "dram"?',
        "dram0: capacity is -5 bytes.",
        "dram0: cache is -1 bytes.",
        "dram0: count is 0.",
        'dram0: at "soket0": it is no switch. Switches: socket0. Did you mean "socket0"?',
        "dram0: rate is peak 0.0: a rate is finite, above zero",
        'gpu1: no kind of processor "tpu".',
        'gpu1: no memory "hbm1". Memories: dram0, hbm0, ssd0. Did you mean "hbm0"?',
        "loop: both ends are hbm0. A link is between two different nodes.",
        'lost: gpu0 is a processor, and links end at memories or switches. Name the memory it is attached to, "hbm0".',
        'far: no node "soket0".',
        'root: over "pcie0.hbm1": no such link or direction. Directions: pcie0.hbm0, pcie0.socket0.',
        'root: over "pci0": no such link or direction.',
        "none: it is over nothing.",
    ):
        assert f"  {line}" in text
    assert len(text.splitlines()) == 16


@pytest.mark.parametrize("figure", [0.0, -1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("grade", ["peak", "rated", "sustained"])
def test_rates_that_are_none(figure, grade):
    wrong = Rate(sustained={"": Interval.exact(figure)}) if grade == "sustained" else Rate(**{grade: figure})
    for parts in (
        {"memories": [Memory("m", "hbm", rate=wrong)]},
        {"memories": [hbm(0)], "processors": [gpu(0, flops={"bf16": wrong})]},
        {"memories": [hbm(0), Memory("d", "dram")], "links": [Link("l", "d", "hbm0", wrong, rate(1.0))]},
    ):
        assert f"{grade} {figure}" in refused(**parts)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (rate(10.0, 11.0), "m: rate: sustained 11 GB/s is above the peak 10 GB/s"),
        (rate(10.0, pinned=11.0), "m: rate: sustained pinned 11 GB/s is above the peak 10 GB/s"),
        (Rate(peak=10.0 * GB, sustained={"": Interval(8 * GB, 9 * GB, 11 * GB)}), "11 GB/s is above the peak"),
        (Rate(peak=10.0 * GB, rated=12.0 * GB), "rated 12 GB/s is above the peak 10 GB/s"),
        (Rate(sustained={"": Interval(9.0, 8.0, 10.0)}), "its low end first"),
        (Rate(), "m: rate has no figure"),
        (Rate(peak=1.0, unknown=True), "said to be unknown and yet has a figure"),
    ],
)
def test_figures_that_contradict(wrong, why):
    assert why in refused(memories=[Memory("m", "hbm", rate=wrong)])


def test_more_that_is_refused():
    ends = [Memory("a", "dram", rate=rate(90.0)), Memory("b", "hbm", rate=rate(900.0))]
    bus = Link("bus", "a", "b", rate(25.0), rate(20.0), half_duplex=True)
    assert "bus: half duplex is one rate that both directions share" in refused(memories=ends, links=[bus])
    late = link("l", "a", "b", latency=(2e-6, 1e-6))
    assert "l: latency is [2e-06, 1e-06] s." in refused(memories=ends, links=[late])
    slow = link("l", "a", "b", latency=(1e-6, 3600.0))
    assert "l: latency 60 min is longer than any link's, 1 s." in refused(memories=ends, links=[slow])
    large = Memory("c", "hbm", capacity=2**30, rate=rate(900.0), cache=2**31)
    assert "c: cache 2.15 GB (2.00 GiB) is more than the memory holds" in refused(memories=[large])
    assert "a: a switch and a memory share this name" in refused(memories=ends, switches=[Switch("a")])
    assert "the topology has no memory" in refused()
    assert 'at "b": it is a memory' in refused(memories=[ends[1], replace(ends[0], at="b")])
    twins = [link("l", "a", "b.x"), link("l.b", "a", "x")]
    nodes = [ends[0], Memory("b.x", "hbm", rate=rate(900.0)), Memory("x", "hbm", rate=rate(900.0))]
    assert "l.b.x: two resources would have this name" in refused(memories=nodes, links=twins)


def test_a_link_of_a_range_may_hold_a_point():
    parts = desktop()
    parts["links"][0] = link("pcie.0", "socket0", "hbm0")
    parts["limits"] = [Limit("root", ("pcie.0",), rate(None, 40.0)), Limit("down", ("pcie.0.hbm0",), rate(30.0))]
    assert {"root", "down"} < set(uses(Topology.build(**parts).route("dram0", "hbm0"))[0])
