"""What differs between two servers: nothing between equal ones, every figure that changed, and no other."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given

from offload import load_topology
from offload.documents import parse_document, shipped_topologies
from offload.documents.topology_file import read_topology
from offload.topology import Interval, Link, Memory, Processor, Rate, Switch, Topology
from offload.topology_diff import Change, Figure, compare, difference_to_json
from tests.commands import run
from tests.strategies import topologies

EIGHT = """
title: Eight GPUs
source: invented
switches: {s0: {kind: socket}, sw: {kind: nvswitch}}
memories:
  hbm0..7: {kind: hbm, capacity: 80 GB, rate: {peak: 3000 GB/s, sustained: 2000..2500..2800 GB/s}}
  dram0: {kind: dram, at: s0, capacity: 1 TB, rate: {peak: 300 GB/s, sustained: 225 GB/s}}
  ssd0: {kind: nvme, count: 2, capacity: 1 TB, read: {rated: 7 GB/s, sustained: 6 GB/s}, write: unknown}
processors:
  gpu0..7: {kind: gpu, memory: hbm0..7, flops: {bf16: {rated: 900 TFLOP/s, sustained: 600 TFLOP/s}}}
  cpu0: {kind: cpu, memory: dram0, reads: 100 GB/s}
links:
  pcie0..7: {between: [s0, hbm0..7], pcie: 5 x16, sustained: {pinned: 55 GB/s, pageable: 10 GB/s}, latency: 2 us}
  nv0..7: {between: [hbm0..7, sw], kind: nvlink, rate: {peak: 450 GB/s, sustained: 380 GB/s}}
  m2: {between: [ssd0, s0], pcie: 4 x4, count: 2}
limits:
  root: {over: [pcie0..3], sustained: 150 GB/s}
"""


def server(*swaps: tuple[str, str]) -> Topology:
    """EIGHT with some of its text swapped, each of which must be there."""
    text = EIGHT
    for old, new in swaps:
        assert old in text
        text = text.replace(old, new)
    return read_topology(parse_document(text, "box.yaml"), name="box")


def changes(*swaps: tuple[str, str]) -> dict[tuple[str, str], Change]:
    found = compare(server(), server(*swaps))
    assert not found.added and not found.removed
    return {(change.name, change.what): change for change in found.changed}


def values(change: Change) -> tuple[object, object, float | None]:
    return tuple(None if one is None else one.value for one in (change.a, change.b)) + (change.ratio,)


# --- equal servers ---


@pytest.mark.few
@pytest.mark.parametrize("name", shipped_topologies())
def test_a_server_does_not_differ_from_itself(name):
    found = compare(load_topology(name), load_topology(name))
    assert found.equal and not found.sources and not found.notes_a and not found.notes_b
    done = run("topology", "diff", name, name)
    assert done.returncode == 0 and "No difference: the same parts with the same figures." in done.stdout


def test_the_order_of_parts_and_of_a_links_ends_is_no_difference():
    swaps = ("between: [ssd0, s0]", "between: [s0, ssd0]"), ("{s0: {kind: socket}, sw: {kind: nvswitch}}",
                                                              "{sw: {kind: nvswitch}, s0: {kind: socket}}")  # fmt: skip
    assert compare(server(), server(*swaps)).equal


def test_sources_alone_make_no_difference_and_are_told():
    found = compare(server(), server(("sustained: 225 GB/s}", "sustained: 225 GB/s, source: a data sheet}")))
    assert found.equal and found.sources == ("dram0",)


def test_the_same_figure_reckoned_in_two_ways_is_no_difference():
    third = 100e9 / 3
    found = [Topology.build(memories=[Memory("m", "dram", rate=Rate(peak))]) for peak in (third, third * (1 + 4e-16))]
    assert found[0] != found[1] and compare(*found).equal


# --- figures ---


def test_rates_have_both_figures_and_their_ratio():
    found = changes(("peak: 300 GB/s, sustained: 225 GB/s", "peak: 600 GB/s, sustained: 180 GB/s"))
    assert values(found["dram0", "peak"]) == (300e9, 600e9, 2.0)
    assert values(found["dram0", "sustained"]) == (225e9, 180e9, pytest.approx(0.8))
    assert {key for key in found if key[0] != "dram0"} == set()
    assert all(change.a.unit == change.b.unit == "B/s" for change in found.values())


def test_the_ends_of_a_rate_are_a_difference_too():
    found = changes(("2000..2500..2800", "1900..2500..2800"))
    assert {key[1] for key in found} == {"sustained"} and len(found) == 8
    assert (found["hbm3", "sustained"].a.low, found["hbm3", "sustained"].b.low) == (2000e9, 1900e9)


def test_what_is_assumed_differs_from_what_is_stated_though_the_figure_is_the_same():
    stated = Rate(100e9, sustained={"": Interval.exact(80e9)})
    a = Topology.build(memories=[Memory("hbm0", "hbm", rate=Rate(100e9))])
    row = a.resources["hbm0"].sustained[""]
    b = Topology.build(memories=[Memory("hbm0", "hbm", rate=replace(stated, sustained={"": row}))])
    (change,) = compare(a, b).changed
    assert change.a == replace(change.b, assumed=True) and not change.b.assumed and change.ratio == 1


def test_an_access_that_one_server_does_not_name_has_the_rate_that_it_would_be_charged_with():
    found = changes(("sustained: 225 GB/s", "sustained: {pinned: 225 GB/s, mixed: 150 GB/s}"))
    assert values(found["dram0", "sustained mixed"])[1] == 150e9
    assert found["dram0", "sustained mixed"].a is not None
    assert ("dram0", "sustained pinned") not in found and ("dram0", "sustained") not in found


def test_accesses_that_differ_alike_stand_together():
    found = changes(("pinned: 55 GB/s, pageable: 10 GB/s", "pinned: 50 GB/s, pageable: 9 GB/s"))
    assert values(found["pcie0.hbm0", "sustained any, pinned"])[:2] == (55e9, 50e9)
    assert values(found["pcie0.hbm0", "sustained pageable"])[:2] == (10e9, 9e9)
    assert len(found) == 8 * 2 * 2


def test_what_is_unknown_is_no_number():
    found = changes(("write: unknown", "write: 5 GB/s"))
    assert found["ssd0.write", "rate"].a == Figure("unknown") and found["ssd0.write", "rate"].b is None
    assert values(found["ssd0.write", "rated"]) == (None, 10e9, None)  # of the stripe of two


@pytest.mark.parametrize(
    ("swap", "name", "what", "a", "b"),
    [
        (("capacity: 80 GB", "capacity: 141 GB"), "hbm7", "capacity", 80 * 10**9, 141 * 10**9),
        (("capacity: 80 GB", "capacity: unknown"), "hbm0", "capacity", 80 * 10**9, None),
        (("capacity: 80 GB", "cache: 50 MB, capacity: 80 GB"), "hbm0", "cache in front", None, 50 * 10**6),
        (("count: 2, capacity", "count: 4, capacity"), "ssd0", "capacity", 2 * 10**12, 4 * 10**12),
        (("count: 2, capacity", "count: 4, capacity"), "ssd0", "in a stripe", 2, 4),
        (("kind: dram, at: s0", "kind: cxl, at: s0"), "dram0", "kind", "dram", "cxl"),
        (("dram, at: s0", "dram, at: sw"), "dram0", "sits in", "s0", "sw"),
        (("memory: hbm0..7,", "memory: hbm0..7, direct_storage: true,"), "gpu1", "direct storage", False, True),
        (("memory: hbm0..7,", "memory: hbm0..7, peer_to_peer: true,"), "gpu1", "peer to peer", None, True),
        (("memory: dram0", "memory: hbm0"), "cpu0", "works in", "dram0", "hbm0"),
        (("600 TFLOP/s", "700 TFLOP/s"), "gpu0.flops", "bf16 sustained", 600e12, 700e12),
        (("reads: 100 GB/s", "reads: 90 GB/s"), "cpu0.reads", "sustained", 100e9, 90e9),
        (("{kind: nvswitch}", "{kind: nvswitch, reduces: true}"), "sw", "adds up", False, True),
        (("{kind: nvswitch}", "{kind: pcie_switch}"), "sw", "kind", "nvswitch", "pcie_switch"),
        (("latency: 2 us", "latency: [1 us, 3 us]"), "pcie5", "latency", 2e-6, 3e-6),
        (("latency: 2 us", "latency: [1 us, 3 us]"), "pcie5", "least latency", None, 1e-6),
        (("pcie: 4 x4", "pcie: 3 x4"), "m2", "width", "2 x PCIe 4 x4", "2 x PCIe 3 x4"),
        (("kind: nvlink", "kind: xgmi"), "nv0", "kind", "nvlink", "xgmi"),
        (("pcie: 5 x16", "duplex: half, pcie: 5 x16"), "pcie6", "duplex", "full", "half"),
        (("between: [ssd0, s0]", "between: [ssd0, sw]"), "m2", "between", "s0 - ssd0", "ssd0 - sw"),
        (("over: [pcie0..3]", "over: [pcie0]"), "root", "over", None, "pcie0.hbm0, pcie0.s0"),
    ],
)  # fmt: skip
def test_every_kind_of_figure_is_compared(swap, name, what, a, b):
    if what == "over":
        a = ", ".join(sorted(f"pcie{n}.{end}" for n in range(4) for end in (f"hbm{n}", "s0")))
    assert values(changes(swap)[name, what])[:2] == (a, b)


# --- parts ---


def test_parts_that_one_server_has():
    other = server(("hbm0..7", "hbm0..3"), ("gpu0..7", "gpu0..3"), ("pcie0..7", "pcie0..3"), ("nv0..7", "nv0..3"))
    for found, gone in ((compare(server(), other), "removed"), (compare(other, server()), "added")):
        assert [one.name for one in getattr(found, gone)] == [f"{word}{n}" for word in ("hbm", "gpu", "pcie", "nv")
                                                              for n in range(4, 8)]  # fmt: skip
        facts = {(fact.name, fact.what): fact.figure.value for fact in getattr(found, gone)[0].facts}
        assert facts["hbm4", "capacity"] == 80 * 10**9 and facts["hbm4", "peak"] == 3000e9
        assert not found.changed and not (found.added if gone == "removed" else found.removed)


def test_a_name_of_another_section_is_another_part():
    a = Topology.build(memories=[Memory("x", "dram"), Memory("m", "dram")], links=[])
    b = Topology.build(memories=[Memory("m", "dram")], switches=[Switch("x")])
    found = compare(a, b)
    assert [(one.section, one.name) for one in found.removed] == [("memory", "x")]
    assert [(one.section, one.name) for one in found.added] == [("switch", "x")] and not found.equal


@pytest.mark.slow
@given(topologies(), topologies())
def test_a_difference_is_empty_for_equal_servers_alone_and_mirrors(a, b):
    there, back = compare(a, b), compare(b, a)
    groups = ("memories", "processors", "switches", "links", "limits")
    if all(getattr(a, group) == getattr(b, group) for group in groups):
        assert there.equal
    if there.equal:
        assert a.resources == b.resources
    assert there.equal == back.equal
    assert [one.name for one in there.added] == [one.name for one in back.removed]
    mirrored = {(one.section, one.part, one.name, one.what): (one.b, one.a) for one in back.changed}
    assert {(one.section, one.part, one.name, one.what): (one.a, one.b) for one in there.changed} == mirrored
    json.dumps(difference_to_json(there), allow_nan=False)


# --- as text and as data ---


def test_the_report_folds_equal_parts(tmp_path):
    (tmp_path / "a.yaml").write_text(EIGHT, encoding="utf-8")
    (tmp_path / "b.yaml").write_text(
        EIGHT.replace("capacity: 80 GB", "capacity: 141 GB").replace("2000..2500..2800", "2000..2600..2800"), "utf-8"
    )
    done = run("topology", "diff", "./a.yaml", "./b.yaml", cwd=tmp_path, COLUMNS="100")
    assert done.returncode == 0 and done.stdout.isascii()
    lines = [line.split() for line in done.stdout.splitlines()]
    assert "hbm0..7 capacity 80.0 GB (74.5 GiB) 141 GB (131 GiB) 1.76".split() in lines
    assert "sustained 2.5 TB/s 2.6 TB/s 1.04".split() in lines
    assert "low to high 2 to 2.8 TB/s 2 to 2.8 TB/s".split() in lines
    assert "Only in" not in done.stdout and max(map(len, done.stdout.splitlines())) <= 100
    narrow = run("topology", "diff", "./a.yaml", "./b.yaml", cwd=tmp_path, COLUMNS="40").stdout
    assert max(map(len, narrow.splitlines())) <= 40 and "B / A: 1.76" in narrow


def test_the_report_of_parts_that_one_has(tmp_path):
    (tmp_path / "a.yaml").write_text(EIGHT, encoding="utf-8")
    text = EIGHT
    for word in ("hbm", "gpu", "pcie", "nv"):
        text = text.replace(f"{word}0..7", f"{word}0..5")
    (tmp_path / "b.yaml").write_text(text, encoding="utf-8")
    out = " ".join(run("topology", "diff", "./a.yaml", "./b.yaml", cwd=tmp_path).stdout.split())
    assert "Only in A - hbm6..7: memory, kind hbm, capacity 80.0 GB (74.5 GiB)" in out and "Only in B" not in out
    assert "gpu6..7: processor, kind gpu, works in hbm6..7" in out
    assert "pcie6..7: link, between hbm6..7 - s0, kind pcie, width PCIe 5 x16" in out
    assert "; to hbm6..7: peak 63.02 GB/s, sustained any, pinned 55 GB/s, sustained pageable 10 GB/s" in out


def test_figures_that_would_read_alike_are_told_in_full(tmp_path):
    (tmp_path / "a.yaml").write_text(EIGHT, encoding="utf-8")
    (tmp_path / "b.yaml").write_text(EIGHT.replace("peak: 3000 GB/s", "peak: 3000.1 GB/s"), encoding="utf-8")
    out = [line.split() for line in run("topology", "diff", "./a.yaml", "./b.yaml", cwd=tmp_path).stdout.splitlines()]
    assert "hbm0..7 peak 3 TB/s 3.0001 TB/s 1.000033".split() in out


def test_as_data():
    done = run("topology", "diff", "gh200", "dgx-h100", "--json")
    data = json.loads(done.stdout)
    assert done.returncode == 0 and data["equal"] is False
    assert (data["a"]["name"], data["b"]["name"]) == ("gh200", "dgx-h100")
    change = next(one for one in data["changed"] if (one["name"], one["what"]) == ("hbm0", "peak"))
    assert change["b"] == {"value": 3352.4e9, "unit": "B/s", "low": None, "high": None, "assumed": False}
    assert change["ratio"] == pytest.approx(change["b"]["value"] / change["a"]["value"])
    assert {one["name"] for one in data["added"]} >= {f"hbm{n}" for n in range(1, 8)}
    assert json.loads(run("topology", "diff", "gh200", "gh200", "--json").stdout)["equal"] is True


def test_unified_memory_beside_two_memories():
    found = compare(load_topology("dgx-spark"), load_topology("gh200"))
    assert "unified0" in [one.name for one in found.removed] and "hbm0" in [one.name for one in found.added]
    works = next(change for change in found.changed if (change.name, change.what) == ("gpu0", "works in"))
    assert values(works) == ("unified0", "hbm0", None)


@pytest.mark.parametrize("words", [("gh200", "gh2000"), ("./none.yaml", "gh200"), ("gh200",)])
def test_a_server_that_is_not_there_is_a_mistake(words, tmp_path):
    try:
        done = run("topology", "diff", *words, cwd=tmp_path)
    except SystemExit as error:  # argparse, which has said why
        assert error.code == 2
        return
    assert done.returncode == 2 and done.stdout == "" and "Traceback" not in done.stderr


def test_names_cannot_steer_the_terminal():
    from rich.console import Console

    from offload.report_diff import write_difference

    bad = 'm"\x1b[31m\n\\'
    a = Topology.build(name="a", memories=[Memory(bad, "dram", rate=Rate(1e9)), Memory("x", "dram")])
    b = Topology.build(name="b", memories=[Memory(bad, "dram", rate=Rate(2e9))],
                       processors=[Processor("p" + bad, "cpu", bad)])  # fmt: skip
    console = Console(width=100, color_system=None)
    with console.capture() as captured:
        write_difference(compare(a, b), console)
    assert "\x1b" not in captured.get() and "2 GB/s" in captured.get()


def test_what_a_drive_proved_of_a_link_is_compared():
    ends = [Memory("a", "hbm"), Memory("b", "dram")]
    plain, proven = Rate(10e9), Rate(10e9, proven=Interval.exact(7e9))
    one, other = (Topology.build(memories=ends, links=[Link("l", "a", "b", rate, plain)]) for rate in (plain, proven))
    found = {(change.name, change.what): values(change) for change in compare(one, other).changed}
    assert found["l", "proven, to b"] == (None, 7e9, None)
