"""A topology as rows and as text: what it lists, which figures it marks as assumed, and how equal ranks are folded."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload import cli, load_topology
from offload.describe import (
    MOST_ENDS,
    gpu_memories,
    host_link,
    link_text,
    rate_rows,
    summary_of,
    topology_to_json,
    way_between,
    ways_of,
)
from offload.documents import parse_document, shipped_topologies
from offload.documents.topology_file import read_topology
from offload.ranges import expand, fold, folded, listed, runs
from offload.topology import Topology

TWO = """
title: Two GPUs, one drive
source: invented
switches: {s0: {kind: socket}}
memories:
  hbm0..1: {kind: hbm, capacity: 10 GB, rate: {peak: 1000 GB/s, sustained: 800..900..950 GB/s}}
  dram0: {kind: dram, at: s0, capacity: 100 GB, rate: 100 GB/s}
  ssd0: {kind: nvme, count: 2, capacity: 1 TB, read: {rated: 7 GB/s, source: a box}, write: unknown}
processors:
  gpu0..1: {kind: gpu, memory: hbm0..1, flops: {bf16: 100 TFLOP/s, fp8: unknown}}
  cpu0: {kind: cpu, memory: dram0}
links:
  pcie0..1: {between: [s0, hbm0..1], pcie: 4 x16, sustained: {pinned: 26 GB/s, pageable: 6 GB/s}, latency: [1 us, 3 us]}
  m2: {between: [ssd0, s0], pcie: 4 x4, count: 2}
"""


def box(text: str = TWO) -> Topology:
    return read_topology(parse_document(text, "box.yaml"), name="box")


def report(capsys, *words: str) -> str:
    assert cli.main(["topology", *words]) == 0
    captured = capsys.readouterr()
    assert captured.err == "" and captured.out.isascii()
    return captured.out


# --- ranges ---


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["gpu0", "gpu1", "gpu2"], "gpu0..2"),
        (["gpu0"], "gpu0"),
        (["gpu0", "gpu2", "gpu3"], "gpu0, gpu2..3"),
        (["gpu10", "gpu9", "gpu8"], "gpu8..10"),
        (["a0.b0", "a1.b1"], "a0..1.b0..1"),
        (["a0.b1", "a0.b0"], "a0.b0..1"),
        (["a0.b1", "a1.b0"], "a0.b1, a1.b0"),
        (["gpu01", "gpu02"], "gpu01, gpu02"),
        (["x" + "9" * 30, "x" + "9" * 29 + "8"], f"x{'9' * 30}, x{'9' * 29}8"),
        ([], ""),
        (["", "b"], ", b"),
    ],
)
def test_names_that_count_up_fold(names, text):
    assert fold(names) == text


def test_names_in_a_row_fold_to_ranges_that_are_read():
    names = [f"hbm{number}" for number in range(2500)]
    assert fold(names) == "hbm0..1023, hbm1024..2047, hbm2048..2499"
    assert listed(fold(names)) == names


@given(st.lists(st.tuples(st.sampled_from(["gpu", "hbm", "a.b"]), st.integers(0, 12)), max_size=20))
def test_folding_is_the_inverse_of_writing_out(pairs):
    names = [f"{stem}{number}" for stem, number in pairs]
    found = [name for run in runs(names) for name in expand(folded(run))]
    assert sorted(found) == sorted(set(names))


# --- rows ---


def test_the_line_of_a_server():
    found = summary_of(box())
    assert (found.gpus, found.gpu_memory, found.host_memory, found.unified) == (2, 20 * 10**9, 100 * 10**9, False)
    assert (found.drives, found.drive_capacity) == (2, 2 * 10**12)
    assert [(link.what, link.peak) for link in found.host_links] == [("PCIe 4 x16", pytest.approx(31.507692e9))]
    # Assumed: dram0, ssd0.read, both GPUs' FLOP/s, both directions of the drives' link; pinned rates are given.
    assert (found.rates, found.assumed) == (12, 6)


def test_a_server_whose_gpus_have_different_links_and_unknown_sizes():
    text = TWO.replace("pcie0..1: {between: [s0, hbm0..1]", "other: {between: [s0, hbm1], kind: c2c, rate: 450 GB/s}\n"
                       "  pcie0: {between: [s0, hbm0]").replace("capacity: 100 GB, ", "")  # fmt: skip
    found = summary_of(box(text))
    assert [link.what for link in found.host_links] == ["PCIe 4 x16", "C2C"] and found.host_memory is None


def test_the_host_link_is_the_narrowest_on_the_way_in_its_direction():
    text = """
switches: {s0: {kind: socket}, w0: {kind: pcie switch}}
memories: {h0: {kind: hbm, rate: 1000 GB/s}, d0: {kind: dram, at: s0, rate: 100 GB/s}}
processors: {g0: {kind: gpu, memory: h0}}
links:
  slot: {between: [h0, w0], forward: 50 GB/s, backward: 60 GB/s}
  up: {between: [w0, s0], forward: 20 GB/s, backward: 55 GB/s, kind: pcie}
"""
    found = host_link(box(text), "h0")
    assert (found.link, found.what, found.peak) == ("up", "PCIe", 55e9)
    assert host_link(box("memories: {h0: {kind: hbm, rate: 1 GB/s}}\nprocessors: {g0: {kind: gpu, memory: h0}}"),
                     "h0") is None  # fmt: skip


def test_links_side_by_side_say_so():
    assert link_text(box().links["m2"]) == "2 x PCIe 4 x4"
    assert link_text(box().links["pcie0"]) == "PCIe 4 x16"


def test_every_rate_has_its_grades_and_its_source():
    rows = {(row.resource, row.format): row for row in rate_rows(box())}
    hbm, ssd, unknown = rows["hbm0", ""], rows["ssd0.read", ""], rows["ssd0.write", ""]
    assert (hbm.peak, hbm.rated, hbm.source) == (1000e9, None, "invented")
    assert [(used.accesses, used.low, used.value, used.high, used.assumed) for used in hbm.used] == [
        (("",), 800e9, 900e9, 950e9, False)
    ]
    assert (ssd.peak, ssd.rated, ssd.source) == (None, 14e9, "a box"), "of both drives"
    assert [used.assumed for used in ssd.used] == [True]
    assert unknown.unknown and not unknown.used
    link = rows["pcie0.hbm0", ""]
    assert [(used.accesses, used.value) for used in link.used] == [(("", "pinned"), 26e9), (("pageable",), 6e9)]
    assert rows["gpu0.flops", "bf16"].unit == "FLOP" and rows["gpu0.flops", "bf16"].used[0].value == 75e12
    assert rows["gpu0.flops", "fp8"].unknown


def test_rates_and_resources_are_the_same_things():
    for name in shipped_topologies():
        topology = load_topology(name)
        rows = rate_rows(topology)
        assert {row.resource for row in rows if not row.unknown} == set(topology.resources)
        for row in rows:
            if row.resource in topology.resources and not row.format:
                resource = topology.resources[row.resource]
                assert row.peak == resource.peak
                shown = {access: used.value for used in row.used for access in used.accesses}
                assert shown == {access: rate.value for access, rate in resource.sustained.items()}


def test_ways_say_what_is_narrowest_and_where_they_are_staged():
    topology = box()
    near = way_between(topology, "dram0", "hbm1")
    assert (near.text, near.peak, near.sustained) == ("dram0 -> s0 -> pcie1 -> hbm1", pytest.approx(31.507692e9), 26e9)
    assert (near.narrowest, near.assumed, near.latency, near.staged_in) == ("pcie1.hbm1", False, (1e-6, 3e-6), ())
    far = way_between(topology, "ssd0", "hbm0")
    assert far.staged_in == ("dram0",) and far.narrowest == "ssd0.read" and far.assumed
    assert far.sustained == pytest.approx(14e9 * 0.85) and far.unknown == ()
    back = way_between(topology, "hbm0", "ssd0")
    assert back.unknown == ("ssd0.write",)
    apart = box("memories: {a: {kind: hbm, rate: 1 GB/s}, b: {kind: dram, rate: 1 GB/s}}")
    assert way_between(apart, "b", "a").text == ""


def test_the_ways_that_are_listed():
    kinds = {ways.what: [(way.source, way.destination) for way in ways.ways] for ways in ways_of(box())}
    assert kinds == {
        "host memory to GPU": [("dram0", "hbm0"), ("dram0", "hbm1")],
        "drive to GPU": [("ssd0", "hbm0"), ("ssd0", "hbm1")],
        "GPU to GPU": [("hbm0", "hbm1"), ("hbm1", "hbm0")],
    }
    without = box("memories: {d: {kind: dram, rate: 9 GB/s}, n: {kind: nvme, read: 1 GB/s}}\n"
                  "links: {l: {between: [d, n], pcie: 4 x4}}")  # fmt: skip
    assert [ways.what for ways in ways_of(without)] == ["drive to host memory"]
    assert gpu_memories(without) == []


def test_a_server_with_very_many_gpus_says_what_it_leaves_out():
    last = MOST_ENDS + 3
    many = box(f"switches: {{s: {{kind: socket}}}}\nmemories: {{d: {{kind: dram, at: s, rate: 9 GB/s}}, h0..{last}: "
               f"{{kind: hbm, rate: 9 GB/s}}}}\nprocessors: {{g0..{last}: {{kind: gpu, memory: h0..{last}}}}}\n"
               f"links: {{l0..{last}: {{between: [s, h0..{last}], pcie: 4 x16}}}}")  # fmt: skip
    assert [(len(ways.ways), ways.left_out) for ways in ways_of(many)] == [
        (MOST_ENDS, 4), (MOST_ENDS * (MOST_ENDS - 1), 4),
    ]  # fmt: skip


# --- the command line ---


def test_the_list_names_every_shipped_server(capsys):
    text = report(capsys, "list")
    for name in shipped_topologies():
        assert re.search(rf"^{name} ", text, re.M) and load_topology(name).title in text
    assert max(map(len, text.splitlines())) <= 100
    found = json.loads(report(capsys, "list", "--json"))
    assert [one["name"] for one in found["topologies"]] == list(shipped_topologies())
    spark = next(one for one in found["topologies"] if one["name"] == "dgx-spark")
    assert spark["unified"] and spark["host_links"] == [] and spark["gpus"] == 1


@pytest.mark.few
@pytest.mark.parametrize("name", shipped_topologies())
def test_a_shipped_server_in_full(name, capsys):
    text = report(capsys, "show", name)
    topology = load_topology(name)
    assert text.startswith(topology.title) and max(map(len, text.splitlines())) <= 100
    squeezed = " ".join(text.split())
    for part in (*topology.memories.values(), *topology.processors.values(), *topology.links.values()):
        assert " ".join(part.source.split()) in squeezed
    assert ("*" in text) == any(used.assumed for row in rate_rows(topology) for used in row.used)
    for note in topology.assumptions:
        assert " ".join(note.partition(": ")[2].split()) in squeezed
    data = json.loads(report(capsys, "show", name, "--json"))
    assert data["assumptions"] == list(topology.assumptions)
    assert [one["name"] for one in data["links"]] == list(topology.links)


def test_equal_ranks_are_one_line(capsys):
    text = report(capsys, "show", "dgx-h100")
    assert "hbm0..7    hbm" in text and "gpu0..7.flops" in text
    assert "dram0 -> socket0 -> up0..3 -> sw0..3 -> pcie0..3 -> hbm0..3\n" in text
    assert "and 55 more like it, from hbm0..7 to hbm0..7" in text
    assert "rate not known of boot0.read, m2.socket0, at most 56.2 GB/s" in text
    assert len(text.splitlines()) < 250


def test_parts_with_different_figures_are_not_folded(tmp_path, capsys):
    (tmp_path / "own.yaml").write_text(
        "memories: {m0: {kind: dram, capacity: 24 GB, rate: 5 GB/s}, m1: {kind: dram, capacity: 25 GB, rate: 6 GB/s}}\n"
    )
    text = report(capsys, "show", str(tmp_path / "own.yaml"))
    assert re.search(r"^m0 .*24\.0 GB", text, re.M) and re.search(r"^m1 .*25\.0 GB", text, re.M)
    assert "m0..1" not in text.partition("Assumptions")[0]


def test_names_cannot_steer_the_terminal(tmp_path, capsys):
    (tmp_path / "own.yaml").write_text('title: "a\\e[31mb"\nmemories: {m: {kind: dram, rate: 5 GB/s}}\n')
    assert "\x1b" not in report(capsys, "show", str(tmp_path / "own.yaml"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["show", "desktop-409"], 'Did you mean "desktop-4090"?'),
        (["show", "./none.yaml"], "no such file"),
        (["show", ""], 'no topology ""'),
        (["show"], "NAME|PATH"),
        ([], "ACTION"),
        (["lst"], "invalid choice"),
    ],
)
def test_wrong_words(words, said, capsys):
    assert cli.main(["topology", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and said in captured.err


def test_the_data_is_plain():
    json.dumps(topology_to_json(box()), allow_nan=False)


def test_of_a_large_server_fewer_ways_are_looked_for(tmp_path):
    (tmp_path / "many.yaml").write_text(
        "switches: {net: {kind: nic}, s0..999: {kind: socket}}\nmemories:\n"
        "  dram0..999: {kind: dram, at: s0..999, capacity: 1 TB, rate: 300 GB/s}\n"
        "  hbm0..999: {kind: hbm, capacity: 80 GB, rate: 3 TB/s}\n"
        "processors: {gpu0..999: {kind: gpu, memory: hbm0..999}}\nlinks:\n"
        "  pcie0..999: {between: [s0..999, hbm0..999], pcie: 5 x16}\n"
        "  eth0..999: {between: [s0..999, net], kind: ethernet, rate: 400 Gb/s}\n")  # fmt: skip
    near, among = ways_of(load_topology(tmp_path / "many.yaml"))
    assert (len(near.ways), near.left_out, len(among.ways), among.left_out) == (100, 2 * 990, 90, 990)
