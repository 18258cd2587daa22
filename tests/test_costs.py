"""Prices and powers in topology files, how sure figures are, and parts that cannot be bought."""

from __future__ import annotations

import io
import json
import pickle

import pytest

from offload import cli
from offload.costs import costs_of
from offload.describe import summary_of, topology_to_json
from offload.documents import load_topology, parse_document, parts_library, read_plan
from offload.documents.topology_file import read_topology
from offload.documents.topology_text import topology_text
from offload.doubts import doubts_of_topology
from offload.errors import DocumentError, OffloadError, UnitError
from offload.study import evaluate
from offload.topology import Topology
from offload.topology.confidence import counts, ends_in_confidence, figures, what_ifs, word_for, words_of
from offload.topology_diff import compare
from offload.units import format_cost, parse_power_interval, parse_price_interval
from offload.units.remarks import remarks

BOX = """
title: Priced
price: {value: 250000 USD, source: "an offer (memory)"}
power: {value: 8..10.2 kW, source: "plates (derived)"}
switches: {s0: {kind: socket, price: included}}
memories:
  hbm0..1: {kind: hbm, capacity: 10 GB, rate: 1 TB/s, price: included}
  dram0: {kind: dram, at: s0, capacity: 10 GB, rate: 9 GB/s, price: {value: 100..200 USD, source: "a shop (found: x)"}}
  ssd0: {kind: nvme, count: 3, read: 7 GB/s, write: 5 GB/s, price: {value: 100 USD, source: "shop (memory)"}}
processors:
  gpu0..1:
    kind: gpu
    memory: hbm0..1
    price: {value: 30000 USD, source: "shop (memory)"}
    power: {value: 700 W, source: "data sheet (memory)"}
links:
  pcie0..1: {between: [s0, hbm0..1], pcie: 4 x16, count: 2, price: {value: 10.1 USD, source: "shop (memory)"}}
  m2: {between: [ssd0, s0], pcie: 4 x4}
"""


def box(text: str = BOX) -> Topology:
    return read_topology(parse_document(text, "box.yaml"), name="box")


def changed(*pairs: tuple[str, str]) -> Topology:
    text = BOX
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return box(text)


# Units


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("250000 USD", (250000.0, 250000.0, 250000.0, "USD")),
        ("98.32 USD/h", (98.32, 98.32, 98.32, "USD/h")),
        ("98.32 USD / h", (98.32, 98.32, 98.32, "USD/h")),
        ("2..3 EUR/h", (2.0, 2.5, 3.0, "EUR/h")),
        ("2..2.2..3 CNY", (2.0, 2.2, 3.0, "CNY")),
        ("0 USD", (0.0, 0.0, 0.0, "USD")),
    ],
)
def test_prices_are_read(text, found):
    assert parse_price_interval(text) == found


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("250000", "no unit"), (250000, "no unit"), ("$250,000", '"250000 USD"'), ("$98.32/h", '"98.32 USD/h"'),
        ("\u20ac5", '"5 EUR"'), ("2 USD..3 EUR", "two units"), ("2 USD..3 USD/h", "two units"), ("5 usd", '"5 USD"'),
        ("5 ABC", "none for a price"), ("5 USD/month", "none for a price"), ("-5 USD", "negative"),
        ("5 GB", "is a size"), ("3..2 USD", "out of order"), ("1e99 USD", "too large"), (None, "empty"),
    ],
)  # fmt: skip
def test_prices_that_are_none(text, says):
    with pytest.raises(UnitError, match=says):
        parse_price_interval(text)


def test_powers_are_read_or_refused():
    assert parse_power_interval("700 W") == (700.0, 700.0, 700.0)
    assert parse_power_interval("8..10.2 kW") == (8000.0, 9100.0, 10200.0)
    for text, says in (("700", "no unit"), ("700 w", '"700 W"'), ("1 kWh", "none for a power"), ("5 USD", "none")):
        with pytest.raises(UnitError, match=says):
            parse_power_interval(text)
    assert format_cost(250000.0, "USD") == "250,000 USD" and format_cost(98.32, "USD/h") == "98.32 USD/h"


# In files


def test_costs_of_a_server_and_its_parts():
    server = box()
    assert (server.price.figure.value, server.price.unit, server.power.figure.high) == (250000.0, "USD", 10200.0)
    assert server.memories["hbm1"].price.included and server.switches["s0"].price.included
    price = costs_of(server, "price")
    # 100..150..200 of DRAM, 3 x 100 of drives, 2 x 30000 of GPUs, 2 x 2 x 10.1 of links
    assert (price.total.figure.low, price.total.figure.value, price.total.figure.high) == (60440.4, 60490.4, 60540.4)
    assert price.lacking == () and price.total.unit == "USD"
    power = costs_of(server, "power")
    assert power.total is None and power.lacking == ("hbm0", "hbm1", "dram0", "ssd0", "s0")
    assert power.best == server.power


def test_a_sum_needs_one_unit():
    mixed = costs_of(changed(("value: 30000 USD", "value: 3 USD/h")), "price")
    assert mixed.total is None and mixed.lacking == () and set(mixed.units) == {"USD", "USD/h"}
    lacking = costs_of(changed(("{kind: socket, price: included}", "{kind: socket}")), "price")
    assert lacking.total is None and lacking.lacking == ("s0",)


def test_costs_change_no_rate():
    bare = "\n".join(line for line in BOX.splitlines() if not line.strip().startswith(("price:", "power:")))
    for cost in (', price: {value: 100..200 USD, source: "a shop (found: x)"}', ", price: included",
                 ', price: {value: 100 USD, source: "shop (memory)"}',
                 ', price: {value: 10.1 USD, source: "shop (memory)"}'):  # fmt: skip
        assert cost in bare
        bare = bare.replace(cost, "")
    assert "price" not in bare and box(bare).resources == box().resources
    assert box(bare).assumptions == box().assumptions


def test_written_and_pickled_costs_come_back():
    server = box()
    text = topology_text(server)
    assert read_topology(parse_document(text, "again.yaml"), name="box") == server
    assert pickle.loads(pickle.dumps(server)) == server
    assert "value: 10.1 USD" in text and "price: included" in text  # of one of two links


@pytest.mark.parametrize(
    ("old", "new", "place", "says"),
    [
        ('price: {value: 250000 USD, source: "an offer (memory)"}', "price: 250000 USD", "price", "must be a map"),
        ('price: {value: 250000 USD, source: "an offer (memory)"}', "price: included", "price", "must be a map"),
        (', source: "an offer (memory)"', "", "price", '"source" is missing'),
        ('"an offer (memory)"', '"an offer"', "price.source", "does not end in how sure"),
        ('"an offer (memory)"', '"(memory) of an offer"', "price.source", "does not end in how sure"),
        ("value: 250000 USD", "value: 250000", "price.value", "no unit"),
        ("value: 250000 USD", "value: 5 W", "price.value", "none for a price"),
        ("value: 700 W", "value: 700 USD", "processors.gpu0..1.power.value", "none for a power"),
        ("price: included}}", "price: unknown}}", "switches.s0.price", "must be a map"),
        ("value: 30000 USD", "vaule: 30000 USD", "processors.gpu0..1.price.vaule", 'unknown key "vaule"'),
    ],
)
def test_costs_that_are_refused(old, new, place, says):
    assert old in BOX
    with pytest.raises(DocumentError) as refused:
        box(BOX.replace(old, new, 1))
    assert any(one.key == place and says in one.message for one in refused.value.mistakes)


def test_a_limit_costs_nothing():
    with pytest.raises(DocumentError, match="price"):
        box(BOX + 'limits: {l: {over: [pcie0], rate: 1 GB/s, price: {value: 5 USD, source: "x (memory)"}}}\n')


def test_parts_bring_their_price():
    own = 'parts: {processors: {card: {kind: gpu, price: {value: 5 USD, source: "x (memory)"}}}}\n'
    server = box(own + BOX.replace("kind: gpu\n", "use: card\n").replace("value: 30000 USD", "value: 7 USD"))
    assert server.processors["gpu0"].price.figure.value == 7.0  # the entry's own replaces it
    text = own + "memories: {hbm0: {kind: hbm, rate: 1 TB/s}}\nprocessors: {gpu0: {use: card, memory: hbm0}}\n"
    assert box(text).processors["gpu0"].price.figure.value == 5.0


# Shown


def shown(capsys, *words: str) -> str:
    assert cli.main(["topology", *words]) == 0
    return capsys.readouterr().out


def test_show_and_diff_tell_costs(tmp_path, capsys):
    one, other = tmp_path / "one.yaml", tmp_path / "other.yaml"
    one.write_text(BOX, encoding="utf-8")
    other.write_text(BOX.replace("250000 USD", "98.32 USD/h").replace("700 W", "350 W"), encoding="utf-8")
    text = shown(capsys, "show", str(one))
    for line in ("price of the whole server: 250,000 USD", "60,490.4 USD (60,440.4 to 60,540.4)", "3 x 100 USD",
                 "the parts are not added up, as hbm0..1, dram0, ssd0, s0 say none"):  # fmt: skip
        assert line in " ".join(text.split())
    assert "Price and power" not in shown(capsys, "show", "gh200")
    told = {(change.part, change.what): change for change in compare(load_topology(one), load_topology(other)).changed}
    assert told.keys() == {("server", "price"), ("gpu0", "power"), ("gpu1", "power")}
    assert told["server", "price"].ratio is None  # a price and a rent are not compared
    assert told["gpu0", "power"].ratio == 0.5
    assert "98.32 USD/h" in shown(capsys, "diff", str(one), str(other))
    data = json.loads(shown(capsys, "show", str(one), "--json"))["costs"]
    assert data["price"]["sum"]["value"] == 60490.4 and data["power"]["sum"] is None
    assert {"name": "hbm0", "count": 1, "each": {"included": True}} in data["price"]["parts"]
    assert compare(load_topology(one), load_topology(one)).equal


def test_a_list_has_a_price_only_where_a_server_has_one(capsys):
    from rich.console import Console

    from offload.report_topology import write_summaries

    assert "price" not in shown(capsys, "list")
    out = io.StringIO()
    write_summaries([summary_of(box())], Console(width=140, file=out))
    assert "250,000 USD" in out.getvalue() and "9,100 W (8,000 to 10,200)" in out.getvalue()


# How sure


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a sheet (memory)", ["memory"]),
        ("(found: github.com/x/memory-notes)", ["found"]),
        ("(derived; the clock from memory), sold so (found: x)", ["derived", "memory", "found"]),
        ("(parts found: x)", ["found"]),
        ("from memory, without brackets", []),
        ("64 cores (two FMA units)", []),
        ("(what if)", ["what if"]),
    ],
)
def test_words_in_a_source(text, words):
    assert words_of(text) == words


def test_the_weakest_word_behind_the_nearest_label():
    source = "peak: a (derived; a clock from memory); pinned: b (found: x), c (found: y); pageable: d (memory)"
    assert word_for(("peak",), source) == "memory"
    assert word_for(("pinned", "sustained"), source) == "found"
    assert word_for(("pageable", "sustained"), source) == "memory"
    assert word_for(("capacity",), source) == "untold"
    assert word_for(("peak",), "pinned: b (found: x)", "peak: e (derived)") == "derived"
    assert word_for(("rated",), "dense rates (found: x); exchanges bytes (memory)") == "found"
    assert word_for(("peak",), "announced") == "untold"
    assert ends_in_confidence("a (found: x).") and not ends_in_confidence("a (found: x), b")


def test_counts_of_a_shipped_server():
    """By hand from desktop-4090: sustained and cache of HBM, the slot's two pinned rates, two latencies, both ways."""
    server = load_topology("desktop-4090")
    found = [(one.name, one.what) for one in figures(server) if one.word == "found"]
    assert found == [
        ("hbm0", "cache"), ("hbm0", "sustained"), ("pcie0.hbm0", "sustained pinned"),
        ("pcie0.socket0", "sustained pinned"), ("pcie0", "latency"), ("m2", "latency"), ("pcie0_both", "sustained"),
    ]  # fmt: skip
    assert counts(server)["found"] == 7 and counts(server)["announced"] == 0
    assert summary_of(server).confidence == counts(server) == topology_to_json(server)["confidence"]


def test_equal_parts_count_once():
    one = box(BOX.replace("hbm0..1", "hbm0").replace("gpu0..1", "gpu0").replace("pcie0..1", "pcie0"))
    assert counts(one) == counts(box())


# What cannot be bought

WHAT_IF = """
title: Gen6
switches: {s0: {kind: socket}}
memories:
  hbm0: {use: h100-sxm}
  dram0: {kind: dram, at: s0, capacity: 512 GiB, rate: 6400 MT/s x 8}
  ssd0: {kind: nvme, capacity: 4 TB, read: {rated: 20 GB/s, source: "a press page (announced)"}, write: unknown}
processors: {gpu0: {use: h100-sxm, memory: hbm0}}
links:
  pcie0: {use: what-if-gpu-pcie-6-x16, between: [s0, hbm0]}
  m2: {use: what-if-m2-pcie-6-x4, between: [ssd0, s0]}
"""


def test_results_that_rest_on_what_cannot_be_bought_say_so(tmp_path, capsys):
    path = tmp_path / "gen6.yaml"
    path.write_text(WHAT_IF, encoding="utf-8")
    server = load_topology(path)
    assert server.resources["pcie0.hbm0"].peak == 64e9 * 16 * 236 / 256 / 8 == 118e9
    assert server.resources["m2.s0"].peak == 29.5e9
    names = {note.partition(":")[0] for note in what_ifs(server)}
    assert names == {"ssd0.read", "pcie0.hbm0", "pcie0.s0", "m2.ssd0", "m2.s0"}
    told = {doubt.place for doubt in doubts_of_topology(server) if doubt.code == "not-for-sale"}
    assert told == {("memories", "ssd0"), ("links", "pcie0"), ("links", "m2")}
    assert "Not for sale yet, so a what-if: ssd0.read, pcie0.hbm0" in " ".join(shown(capsys, "show", str(path)).split())
    assert cli.main(["check", str(path)]) is not None and "[not-for-sale]" in capsys.readouterr().out
    plan = f"topology: {path}\ntensors: {{w: {{bytes: 1 GB, home: dram0}}}}\ntasks: {{m: {{move: w, to: hbm0}}}}\n"
    by_hand, topology = read_plan(parse_document(plan, "plan.yaml"), tmp_path)
    notes = evaluate(topology, by_hand).assumptions
    assert any(note.startswith("pcie0.hbm0: what if:") for note in notes)
    assert not any(note.startswith(("ssd0", "m2")) for note in notes)  # what the step does not use


def test_no_shipped_server_rests_on_what_cannot_be_bought():
    from offload.documents import shipped_topologies

    assert [name for name in shipped_topologies() if what_ifs(load_topology(name))] == []


# Parts by name


def test_a_part_in_two_files_is_refused(tmp_path, monkeypatch):
    for name in ("one.yaml", "two.yaml"):
        (tmp_path / name).write_text("memories:\n  same: {kind: hbm, rate: 1 TB/s}\n", encoding="utf-8")
    monkeypatch.setattr(parts_library, "part_files", lambda: tuple(sorted(tmp_path.glob("*.yaml"))))
    with pytest.raises(DocumentError, match="stands in one.yaml and two.yaml"):
        box("memories: {hbm0: {use: same}}\n")
    with pytest.raises(OffloadError, match="stands in one.yaml and two.yaml"):
        parts_library.part("memories", "same")
    assert parts_library.part("memories", "other") is None


def test_an_own_part_in_place_of_a_shipped_one_is_remarked():
    own = "parts: {memories: {h100-sxm: {kind: hbm, capacity: 96 GB, rate: 4 TB/s}}}\n"
    with remarks() as heard:
        server = box(own + "memories: {hbm0: {use: h100-sxm}}\n")
    assert server.memories["hbm0"].capacity == 96 * 10**9
    assert list(heard) == ["box.yaml: its own part memories.h100-sxm takes the place of the shipped one."]
    with remarks() as heard:
        box("memories: {hbm0: {use: h100-sxm}}\n")
    assert not heard
