"""Meters: coefficients with their units, in a file and in a line, and what they come to."""

from __future__ import annotations

import math
import re

import pytest

from offload import compare, compile_step, schedule
from offload.comparison import Candidate
from offload.comparison.readings import reading
from offload.documents import load_plan
from offload.documents.meter_file import load_meters
from offload.errors import DocumentError, OffloadError
from offload.meters import Meter, Term, read_amount, read_meter
from offload.plan import Block, Compute, Plan, Tensor, Transfer
from offload.topology import Cost, Interval, Link, Memory, Processor, Rate, Switch, Topology
from tests.commands import ROOT

GB = 10**9


@pytest.mark.parametrize("text, per, amount, unit", [
    ("350 W", "second", 350.0, "J"),
    ("1.2kW", "second", 1200.0, "J"),
    ("12 USD", "hour", 12 / 3600, "USD"),
    ("12 USD/h", "hour", 12 / 3600, "USD"),
    ("3.6 kWh", "hour", 3600.0, "J"),
    ("20 pJ/bit", "byte", 160e-12, "J"),
    ("1 nJ/B", "byte", 1e-9, "J"),
    ("0.5 J/GB", "byte", 0.5e-9, "J"),
    ("2 USD/TB", "byte", 2e-12, "USD"),
    ("1 J/GiB", "byte", 1 / 2**30, "J"),
    ("0.6 pJ/FLOP", "flop", 0.6e-12, "J"),
    ("5 J/TFLOP", "flop", 5e-12, "J"),
])  # fmt: skip
def test_amounts(text, per, amount, unit):
    found, own = read_amount(text, per)
    assert found == pytest.approx(amount, rel=1e-12) and own == unit


@pytest.mark.parametrize("text, per, said", [
    ("350", "second", "no amount with a unit"),
    ("-5 W", "second", "below zero"),
    ("1..2 W", "second", "a range where one figure is due"),
    ("5 W", "hour", "joules per second already"),
    ("12 USD/s", "hour", "is not per hour"),
    ("20 GB", "byte", "is not per byte"),
    ("20 W/GB", "byte", "watts are energy over time"),
    ("20 GB/GB", "byte", "no unit of what a meter counts"),
    ("12 kw", "second", "spelled kW"),
    ("1e999 J/B", "byte", "larger than any figure"),
    ("1e99999 J/B", "byte", "too long for a figure"),
    ("9" * 5000 + " J/B", "byte", "too long for a figure"),
    ("nan J/B", "byte", "no amount with a unit"),
    ("4 pJ/FLOP", "byte", "is not per byte"),
])  # fmt: skip
def test_amounts_that_are_refused(text, per, said):
    with pytest.raises(OffloadError, match=said):
        read_amount(text, per)


def test_a_line_says_what_a_file_says(tmp_path):
    (tmp_path / "m.yaml").write_text(
        "title: mine\nmeters:\n"
        "  energy: {per_second: 350 W, per_byte: {pcie0: 4 pJ/bit}, per_flop: {gpu0: 1 pJ/FLOP}}\n"
        "  money: {per_hour: 12 USD}\n  wear: {written: ssd0, endurance: 1400 TB}\n"
    )
    energy, money, wear = load_meters(tmp_path / "m.yaml")
    assert energy == read_meter("energy: 350 W + 4 pJ/bit of pcie0 + 1 pJ/FLOP of gpu0")
    assert money.terms[0].amount == read_meter("money: 12 USD/h").terms[0].amount
    assert wear == read_meter("wear: 1400 TB written to ssd0") == Meter("wear", "B", (), "ssd0", 1400 * 10**12)


def test_the_file_in_the_docs(tmp_path):
    text = (ROOT / "docs" / "comparing.md").read_text()
    example = re.search(r"```\n(meters:\n.*?)```", text, re.S)[1]
    (tmp_path / "m.yaml").write_text(example)
    assert [(one.name, one.unit) for one in load_meters(tmp_path / "m.yaml")] == [
        ("energy", "J"), ("money", "USD"), ("wear", "B")]  # fmt: skip
    for key in re.findall(r'"(per_\w+|written|endurance)"', (ROOT / "offload/documents/meter_file.py").read_text()):
        assert f"| `{key}` |" in text


@pytest.mark.parametrize("text, said", [
    ("energy", "is no meter"),
    ("energy:", "is no meter"),
    ("a b: 3 W", "no name of a meter"),
    ("tokens: 3 W", "ranked by already"),
    ("x: 12 USD", "per what"),
    ("x: 4 pJ/bit", "of which part"),
    ("x: 3 W + 2 USD/h", "do not add up"),
    ("x: 3 USD/day", "Per: "),
    ("x: 3 TB written to ssd0 + 2 W", "one term"),
    ("x: 0 B written to ssd0", "no endurance"),
])  # fmt: skip
def test_lines_that_are_refused(text, said):
    with pytest.raises(OffloadError, match=said):
        read_meter(text)


@pytest.mark.parametrize("text, line, said", [
    ("meters: {}", 1, "no meter is given"),
    ("meters: {a: 3 W}", 1, "a meter is a map"),
    ("meters:\n  a: {per_secnd: 3 W}", 2, 'Did you mean "per_second"'),
    ("meters:\n  a: {per_byte: 4 pJ/bit}", 2, "must be a map of parts"),
    ("meters:\n  a: {per_byte: {dram0: 4 GB}}", 2, "is not per byte"),
    ("meters:\n  a: {per_second: 3 W, written: ssd0}", 2, "Make two meters"),
    ("meters:\n  a: {endurance: 3 TB}", 2, 'needs "written"'),
    ("meters:\n  a: {written: ssd0, endurance: 3}", 2, "has no unit"),
    ("meters:\n  a: {per_second: 3 W, per_hour: 2 USD}", 2, "do not add up"),
    ("meters:\n  floor: {per_second: 3 W}", 2, "ranked by already"),
    ("meters:\n  a: {per_second: [3 W]}", 2, "one amount with its unit"),
    ("meters: {a: {per_second: 3 W}}\nmetres: 1", 2, "unknown key"),
    ("title: x", 1, "missing"),
])  # fmt: skip
def test_files_that_are_refused(tmp_path, text, line, said):
    path = tmp_path / "m.yaml"
    path.write_text(text)
    with pytest.raises(DocumentError, match=said) as caught:
        load_meters(path)
    assert any(mistake.line == line for mistake in caught.value.mistakes)


def box(write: Rate | None = None, backward: Rate | None = None) -> Topology:
    """A CPU with 10 GB/s of DRAM, and two drives in a stripe behind a link."""
    rate = Rate(peak=20.0 * GB, sustained={"": Interval(8.0 * GB, 10.0 * GB, 12.5 * GB)}, source="dram")
    exact = Rate(peak=4.0 * GB, sustained={"": Interval.exact(4.0 * GB)})
    return Topology.build(
        name="box",
        memories=[Memory("dram0", "dram", 100 * GB, rate, at="s0"),
                  Memory("ssd0", "nvme", 10**12, read=exact, write=write or exact, count=2)],
        processors=[Processor("cpu0", "cpu", "dram0", {"fp32": Rate(peak=1e12, sustained={"": Interval.exact(1e12)})})],
        switches=[Switch("s0")],
        links=[Link("m2", "ssd0", "s0", exact, backward or exact, "pcie")],
    )  # fmt: skip


def plan(tokens: int = 4, written: int = 2 * GB) -> Plan:
    """10 GB read at the CPU with 1 TFLOP, and 2 GB written to the drive."""
    tensors = {"w": Tensor("w", 10 * GB, (("dram0", 1.0),)), "kv": Tensor("kv", written, (("dram0", 1.0),))}
    tasks = (Compute("read", "cpu0", 1e12, "fp32", ("w",)), Transfer("keep", "kv", "ssd0", buffers=1))
    return Plan("", tensors, (Block(tasks),), tokens=tokens)


def shown(topology: Topology, *texts: str, tokens: int = 4, written: int = 2 * GB):
    candidate = Candidate("p", "box", (plan(tokens, written), topology))
    found = compare([candidate], meters=[read_meter(text) for text in texts])
    return found, found.ranked[0].readings


def test_readings_by_hand():
    found, (energy, money, wear) = shown(
        box(), "energy: 100 W + 1 nJ/B of dram0 + 2 pJ/FLOP of cpu0", "money: 36 USD/h", "wear: 1 TB written to ssd0",
    )
    low, value, high = (found.ranked[0].expected.low, found.ranked[0].expected.seconds, found.ranked[0].expected.high)
    moved = 12e9 * 1e-9  # dram0 is read for the compute and for the copy
    assert energy.unit == "J"
    assert energy.per_step == pytest.approx(tuple(100 * time + moved + 2.0 for time in (low, value, high)))
    assert energy.per_token == pytest.approx(tuple(one / 4 for one in energy.per_step))
    assert energy.per_million_tokens == pytest.approx(tuple(one * 250_000 for one in energy.per_step))
    assert [one.per_step[1] for one in energy.terms] == pytest.approx([100 * value, moved, 2.0])
    assert money.per_step[1] == pytest.approx(0.01 * value) and money.unit == "USD"
    assert wear.per_step[1] == pytest.approx(2 * GB) and wear.wear.drives == 2
    assert wear.wear.endurance == 2 * 10**12
    assert wear.wear.tokens == pytest.approx(4 * 1000)  # 2 TB, 2 GB a step, 4 tokens a step
    assert wear.wear.seconds == pytest.approx((1000 * low, 1000 * value, 1000 * high))


def test_parts_and_kinds_of_them():
    _, (part, kind, row, link, links) = shown(
        box(), "a: 1 J/B of dram0", "b: 1 J/B of dram", "c: 1 J/B of ssd0.write", "d: 1 J/B of m2", "e: 1 J/B of pcie")
    assert part.per_step == kind.per_step == pytest.approx((12e9,) * 3)
    assert row.per_step[1] == pytest.approx(2e9) and link.per_step[1] == links.per_step[1] == pytest.approx(2e9)


def test_a_kind_that_a_server_lacks_is_zero_and_a_name_is_told():
    step = compile_step(box(), plan())
    kind, name, wrong = (reading(read_meter(text), step, schedule(step)) for text in (
        "a: 1 J/B of nvlink", "b: 1 J/B of dram7", "c: 1 J/FLOP of dram0"))  # fmt: skip
    assert kind.per_step == (0, 0, 0) and not kind.why
    assert name.per_step is None and 'no part "dram7"' in name.why and "dram0" in name.why
    assert wrong.per_step is None and "does no arithmetic" in wrong.why


def test_loads_that_are_not_counted_are_told():
    few = GB // 20  # so that the time does not depend on the drive
    _, (link, wear) = shown(box(write=Rate(unknown=True), backward=Rate(unknown=True)),
                            "a: 1 J/B of m2", "b: 1 TB written to ssd0", written=few)  # fmt: skip
    assert link.uncounted == ("m2.ssd0",)
    assert wear.per_step[1] == pytest.approx(few)  # by what is moved, where the drive has no row


def test_nothing_written_is_never_worn():
    topology, nothing = box(), Plan("", {"w": Tensor("w", GB, (("dram0", 1.0),))},
                                    (Block((Compute("read", "cpu0", reads=("w",)),)),))  # fmt: skip
    found = compare([Candidate("p", "box", (nothing, topology))], meters=[read_meter("w: 1 TB written to ssd0")])
    wear = found.ranked[0].readings[0].wear
    assert wear.tokens is None and wear.seconds is None


def test_ranked_by_a_meter():
    """The slower server is the cheaper one where bytes cost more than time."""
    fast = Topology.build(name="fast", memories=[Memory("hbm0", "hbm", 10 * GB, Rate(peak=100.0 * GB), source="x")],
                          processors=[Processor("gpu0", "gpu", "hbm0")])  # fmt: skip
    slow = Topology.build(name="slow", memories=[Memory("dram0", "dram", 10 * GB, Rate(peak=50.0 * GB), source="y")],
                          processors=[Processor("cpu0", "cpu", "dram0")])  # fmt: skip
    candidates = []
    for one, memory, processor in ((fast, "hbm0", "gpu0"), (slow, "dram0", "cpu0")):
        tasks = (Compute("read", processor, reads=("w",)),)
        reads = Plan("", {"w": Tensor("w", GB, ((memory, 1.0),))}, (Block(tasks),))
        candidates.append(Candidate("p", one.name, (reads, one)))
    meter = read_meter("energy: 10 W + 2 nJ/B of hbm + 1 nJ/B of dram")
    assert [one.server for one in compare(candidates, meters=[meter]).ranked] == ["fast", "slow"]
    found = compare(candidates, by="energy", meters=[meter])
    assert [one.server for one in found.ranked] == ["slow", "fast"] and found.unit == "J/token"
    only = compare(candidates, by="energy", meters=[read_meter("energy: 1 nJ/B of hbm0")])
    assert [one.server for one in only.ranked] == ["fast"] and only.rest[0].fits
    with pytest.raises(OffloadError, match='meter "energy".*no part "hbm7"'):  # which no server has
        compare(candidates, meters=[read_meter("energy: 1 nJ/B of hbm7")])
    with pytest.raises(OffloadError, match="two meters"):
        compare(candidates, meters=[meter, meter])


def test_servers_that_state_a_rent_or_a_power_bring_their_meters():
    def stating(name, price, power):
        return Topology.build(name=name, memories=[Memory("dram0", "dram", 10 * GB, Rate(peak=10.0 * GB))],
                              processors=[Processor("cpu0", "cpu", "dram0")], price=price, power=power)  # fmt: skip

    rent, watts = Cost(Interval.exact(36.0), "USD/h", "x"), Cost(Interval.exact(500.0), "W", "x")
    reads = Plan("", {"w": Tensor("w", GB, (("dram0", 1.0),))}, (Block((Compute("read", "cpu0", reads=("w",)),)),))
    servers = [stating("a", rent, watts), stating("b", None, None), stating("c", Cost(rent.figure, "EUR/h"), None)]
    found = compare([Candidate("p", one.name, (reads, one)) for one in servers])
    assert [(one.name, one.unit) for one in found.meters] == [("rent", "USD"), ("power", "J")]
    seconds = found.ranked[0].expected.seconds
    by_name = {one.server: one.readings for one in found.ranked}
    assert by_name["a"][0].per_step[1] == pytest.approx(0.01 * seconds)
    assert by_name["a"][1].per_step[1] == pytest.approx(500 * seconds)
    assert "states no price in USD/h" in by_name["b"][0].why and "EUR/h" in by_name["c"][0].why
    ranked = compare([Candidate("p", one.name, (reads, one)) for one in servers], by="rent")
    assert [one.server for one in ranked.ranked] == ["a"]


def test_a_meter_is_linear():
    """Twice the coefficients show twice as much, and terms add up."""
    made, there = load_plan(ROOT / "examples" / "llama-3.1-70b-desktop.yaml")
    once, twice, time, load = (
        Meter(name, "J", terms) for name, terms in (
            ("once", (Term("second", "", 3.0, ""), Term("byte", "dram0", 1e-9, ""))),
            ("twice", (Term("second", "", 6.0, ""), Term("byte", "dram0", 2e-9, ""))),
            ("time", (Term("second", "", 3.0, ""),)),
            ("load", (Term("byte", "dram0", 1e-9, ""),)),
        )
    )  # fmt: skip
    found = compare([Candidate("p", "desktop-4090", (made, there))], meters=[once, twice, time, load])
    a, b, c, d = (one.per_step for one in found.ranked[0].readings)
    for place in range(3):
        assert math.isclose(b[place], 2 * a[place]) and math.isclose(a[place], c[place] + d[place])
