"""Comparisons: numbers by hand, the order of the arguments, and orders that no ends of the figures reverse."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload import compare
from offload.comparison import Candidate
from offload.documents import load_topology, shipped_topologies
from offload.documents.other_server import load_plan_on
from offload.errors import OffloadError, PlanError
from offload.plan import Block, Compute, Overlap, Plan, Tensor
from offload.topology import Interval, Memory, Processor, Rate, Topology

GB = 10**9
EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def memory(name: str, low: float, value: float, high: float, source: str, peak: float = 100.0) -> Memory:
    rate = Rate(peak=peak * GB, sustained={"": Interval(low * GB, value * GB, high * GB)}, source=source)
    return Memory(name, "dram", 10 * GB, rate)


def server(name: str, *memories: Memory) -> Topology:
    processors = [Processor(f"cpu{number}", "cpu", one.name) for number, one in enumerate(memories)]
    return Topology.build(name=name, memories=memories, processors=processors)


def plan_of(*sizes: float, tokens: int = 1, title: str = "") -> Plan:
    """Reads one after another, of so many GB from dram0, dram1, ..."""
    tensors = {f"w{i}": Tensor(f"w{i}", int(size * GB), ((f"dram{i}", 1.0),)) for i, size in enumerate(sizes)}
    tasks = tuple(Compute(f"read{i}", f"cpu{i}", reads=(f"w{i}",), after=(f"read{i - 1}",) if i else ())
                  for i in range(len(sizes)))  # fmt: skip
    return Plan(title, tensors, (Block(tasks),), tokens=tokens, overlap=Overlap("none"))


def on(plan: Plan, *servers: Topology) -> list[Candidate]:
    return [Candidate("p", one.name, (plan, one)) for one in servers]


A = server("a", memory("dram0", 10, 10, 10, "ten", peak=20))
B = server("b", memory("dram0", 8, 9, 12, "nine", peak=25))
C = server("c", memory("dram0", 4, 4, 4, "four", peak=5))


def test_numbers_by_hand():
    found = compare(on(plan_of(1.0, tokens=2), C, B, A))
    assert [one.server for one in found.ranked] == ["a", "b", "c"]
    first, second, third = found.ranked
    assert first.floor.seconds == pytest.approx(0.05) and second.floor.seconds == pytest.approx(0.04)
    assert found.costs[1] == pytest.approx((1 / 12, 1 / 9, 1 / 8))
    assert first.tokens_per_s == pytest.approx((20, 20, 20))
    assert third.binding == ("dram0",) and third.memory[0].free == 9 * GB
    assert [pair.order for pair in found.pairs] == ["open", "certain"]
    assert found.pairs[0].margin == pytest.approx(1 / 9) and not found.certain
    measure = found.pairs[0].measure
    assert measure.sides == (("p", "b", ("dram0",)),)
    assert (measure.low, measure.high) == pytest.approx((8 * GB, 12 * GB))
    assert measure.first == pytest.approx((8 * GB, 10 * GB), rel=2e-3)
    assert measure.second == pytest.approx((10 * GB, 12 * GB), rel=2e-3)


def test_ranked_by_the_floor_is_exact():
    found = compare(on(plan_of(1.0), A, B, C), by="floor")
    assert [one.server for one in found.ranked] == ["b", "a", "c"]
    assert [pair.order for pair in found.pairs] == ["certain", "certain"]


def test_ranked_by_tokens():
    few, many = plan_of(1.0, tokens=1), plan_of(1.5, tokens=2)
    candidates = [Candidate("few", "a", (few, A)), Candidate("many", "a", (many, A))]
    assert [one.plan for one in compare(candidates).ranked] == ["few", "many"]
    found = compare(candidates, by="tokens")
    assert [one.plan for one in found.ranked] == ["many", "few"] and found.unit == "s/token"
    assert found.costs[0] == pytest.approx((0.075, 0.075, 0.075))


def test_what_both_have_moves_together():
    """The one with less to read beside the same uncertain rate is faster wherever that rate is."""
    shared = (8.0, 10.0, 16.0)
    quick = server("quick", memory("dram0", *shared, "one part"), memory("dram1", 20, 20, 20, "fast"))
    slow = server("slow", memory("dram0", *shared, "one part"), memory("dram1", 10, 10, 10, "not"))
    other = server("other", memory("dram0", *shared, "another part"), memory("dram1", 10, 10, 10, "not"))
    plan = plan_of(1.0, 0.2)
    (pair,) = compare(on(plan, quick, slow)).pairs
    assert pair.order in ("certain", "at all ends") and pair.common == 1
    (pair,) = compare(on(plan, quick, other)).pairs
    assert pair.order == "open" and pair.common == 0


def test_one_part_by_another_name_and_number_is_the_same():
    one = server("one", memory("dram0", 8, 10, 16, "one part"))
    two = server("two", memory("dram0", 8, 10, 16, "one part"))
    (pair,) = compare(on(plan_of(1.0), one, two)).pairs
    assert pair.order == "same" and pair.margin == 0


def test_a_point_between_the_ends_is_not_overlooked():
    """1 + x is below max(1.1, 2.1 x) at both ends of 0.05..1.0 and above it between: no proof from ends alone."""
    from offload.comparison.orders import Side, never_worse

    class Formula(Side):
        def __init__(self, formula):
            self.formula, self.figures = formula, {"x": []}

        def at(self, box, slow):
            low, high = box.get("x", (0.05, 1.0))
            return self.formula(high if slow else low)

    straight, bent = Formula(lambda x: 1 + x), Formula(lambda x: max(1.1, 2.1 * x))
    ends = [{"x": (x, x)} for x in (0.05, 1.0)]
    assert all(straight.at(box, True) <= bent.at(box, False) for box in ends)
    assert not never_worse(straight, bent, {"x": (0.05, 1.0)})
    assert never_worse(straight, Formula(lambda x: 1.2 + x), {"x": (0.05, 1.0)})


def test_what_does_not_fit_or_cannot_be_laid_out_is_listed():
    small = server("small", Memory("dram0", "dram", 10**8, Rate(peak=GB)))
    found = compare([*on(plan_of(1.0), A, small), Candidate("p", "none", why="no such part")])
    assert [one.server for one in found.ranked] == ["a"]
    assert [(one.server, one.state) for one in found.rest] == [
        ("small", "does not fit"), ("none", "cannot be laid out")]  # fmt: skip
    assert found.rest[0].memory[0].missing == 9 * 10**8 and "900 MB" in found.rest[0].why
    assert found.rest[1].why == "no such part" and found.any_fits
    assert not compare(on(plan_of(1.0), small)).any_fits


def test_whose_load_changed():
    two = server("two", memory("dram0", 10, 10, 10, "x"), memory("dram1", 5, 5, 5, "y"))
    before, after = plan_of(1.0, 0.1), plan_of(0.4, 0.7)
    (change,) = compare([Candidate("before", "two", (before, two)), Candidate("after", "two", (after, two))]).changes
    assert change.seconds == pytest.approx((0.12, 0.18))
    rows = {row.resource: row for row in change.changed}
    assert rows["dram0"].difference == pytest.approx(-0.6 * GB) and rows["dram1"].difference == pytest.approx(0.6 * GB)
    assert rows["dram1"].seconds_after == pytest.approx(0.14) and rows["dram0"].seconds_before == pytest.approx(0.1)
    assert change.changed[0].resource == "dram1"  # 120 ms more, 60 ms less
    assert change.binding[0][0] == "dram0" and change.binding[1][0] == "dram1"


@pytest.mark.parametrize("candidates, by, said", [
    ([], "expected", "nothing to compare"),
    (on(plan_of(1.0), A, A), "expected", "given twice"),
    (on(plan_of(1.0), A), "expectd", 'Did you mean "expected"'),
])  # fmt: skip
def test_refused(candidates, by, said):
    with pytest.raises(OffloadError, match=said):
        compare(candidates, by=by)


# Against brute force.

ends = st.tuples(st.integers(2, 30), st.integers(0, 12), st.integers(0, 12)).map(lambda t: (t[0], t[0] + t[1],
                                                                                            t[0] + t[1] + t[2]))
drawn = st.lists(st.tuples(ends, ends), min_size=2, max_size=4)


@st.composite
def fleets(draw):
    """Servers with two memories each, some of whose rates are one figure."""
    known = draw(st.lists(ends, min_size=1, max_size=2))
    found = []
    for number in range(draw(st.integers(2, 4))):
        rates = []
        for place in range(2):
            shared = draw(st.integers(0, 3))
            if shared < len(known):
                rates.append((*known[shared], f"part {shared}"))
            else:
                rates.append((*draw(ends), f"own {number} {place}"))
        found.append(rates)
    return found


def seconds(rates, sizes, at) -> float:
    return sum(size / at[rate[3]] for rate, size in zip(rates, sizes, strict=True))


@settings(max_examples=60)
@given(fleets(), st.tuples(st.integers(1, 9), st.integers(1, 9)), st.randoms())
def test_an_order_is_never_reversed_at_any_ends(fleet, sizes, random):
    servers = [server(f"s{number}", *(memory(f"dram{place}", low, value, high, source)
                                      for place, (low, value, high, source) in enumerate(rates)))
               for number, rates in enumerate(fleet)]  # fmt: skip
    candidates = on(plan_of(*sizes), *servers)
    found = compare(candidates)
    shuffled = list(candidates)
    random.shuffle(shuffled)
    again = compare(shuffled)
    assert [one.server for one in again.ranked] == [one.server for one in found.ranked]
    assert again.pairs == found.pairs
    by_name = {one.name: rates for one, rates in zip(servers, fleet, strict=True)}
    for pair in found.pairs:
        first, second = by_name[pair.first[1]], by_name[pair.second[1]]
        figures = {rate[3]: (rate[0], rate[2]) for rate in (*first, *second)}
        points = [dict(zip(figures, values, strict=True)) for values in product(*figures.values())]
        times = [(seconds(first, sizes, at), seconds(second, sizes, at)) for at in points]
        reversed_ = [at for at, (a, b) in zip(points, times, strict=True) if b < a * (1 - 2e-5)]
        if pair.order == "open":
            assert any(b < a for a, b in times)
        else:
            assert not reversed_
        if pair.order == "same":
            assert all(abs(a - b) <= 3e-5 * a for a, b in times)
        if pair.measure is not None:
            _check_measure(pair.measure, first, second, figures, sizes)


def _check_measure(measure, first, second, figures, sizes):
    """In its parts of the interval the order is what it says, at all ends of the other figures."""
    owner = measure.sides[0]
    rates = first if measure.sides[0][1] == owner[1] else second
    sources = [rate[3] for rate in (*first, *second)
               if (rate[0] * GB, rate[2] * GB) == pytest.approx((measure.low, measure.high))]  # fmt: skip
    assert sources and rates
    holds = []
    for source in dict.fromkeys(sources):  # which of figures with equal ends it is, the names tell; one of them must do
        others = {key: value for key, value in figures.items() if key != source}
        good = True
        for part, sign in ((measure.first, 1), (measure.second, -1)):
            for value in () if part is None else part:
                for values in product(*others.values()):
                    at = dict(zip(others, values, strict=True)) | {source: value / GB}
                    a, b = seconds(first, sizes, at), seconds(second, sizes, at)
                    good &= sign * (b - a) >= -3e-5 * max(a, b)
        holds.append(good)
    assert any(holds)


# A plan file on other servers.


def test_names_stand_for_the_same_roles():
    plan, there, names = load_plan_on(EXAMPLES / "llama-3.1-70b-desktop.yaml", load_topology("dgx-spark"))
    assert names == {"hbm0": "unified0", "dram0": "unified0", "local": "gpu0"} and there.name == "dgx-spark"
    assert {home for tensor in plan.tensors.values() for home, _ in tensor.home} <= {"unified0", "gpu0"}
    assert any("hbm0 of the plan is unified0 on dgx-spark" in note for note in plan.assumptions)
    _, _, names = load_plan_on(EXAMPLES / "three-tiers.yaml", load_topology("aws-p3-16xlarge"))
    assert names == {"ssd0": "ebs0"}


def test_names_stay_where_the_server_is_alike():
    _, _, names = load_plan_on(EXAMPLES / "llama-3.1-70b-desktop.yaml", load_topology("dgx-h100"))
    assert names == {}


@pytest.mark.parametrize("example, name, said", [
    ("three-tiers", "gh200-dual", "the plan uses ssd0, drive number 1; gh200-dual has no drive"),
    ("eight-gpus", "hgx-a100-4gpu", "the plan uses hbm4, of GPU number 5; hgx-a100-4gpu has 4 GPUs"),
])  # fmt: skip
def test_what_has_no_counterpart_is_said(example, name, said):
    with pytest.raises(PlanError, match=said):
        load_plan_on(EXAMPLES / f"{example}.yaml", load_topology(name))


def test_portions_that_meet_add_up(tmp_path):
    text = ("topology: desktop-4090\nmodel: {name: llama-3.1-8b, weights: q4_k_m}\n"
            "placement: {weights: {hbm0: 12 layers, dram0: 20 layers}, compute: gpu0}\n")  # fmt: skip
    (tmp_path / "p.yaml").write_text(text)
    plan, _, _ = load_plan_on(tmp_path / "p.yaml", load_topology("dgx-spark"))
    assert {home for tensor in plan.tensors.values() for home, _ in tensor.home} <= {"unified0", "gpu0"}
    (tmp_path / "q.yaml").write_text(text.replace("12 layers", "2 GB").replace("20 layers", "90%"))
    with pytest.raises(PlanError, match="do not add up"):
        load_plan_on(tmp_path / "q.yaml", load_topology("dgx-spark"))


def test_a_server_with_other_names(tmp_path):
    own = load_topology("desktop-4090")
    text = (Path(__file__).resolve().parent.parent / "topologies" / "desktop-4090.yaml").read_text()
    text = text.split("# One RTX")[1].partition("\n")[2].replace("hbm0", "vram").replace("gpu0", "card")
    (tmp_path / "mine.yaml").write_text(text)
    mine = load_topology(tmp_path / "mine.yaml")
    plan, _, names = load_plan_on(EXAMPLES / "llama-3.1-70b-desktop.yaml", mine)
    assert names == {"hbm0": "vram"}
    same, _, _ = load_plan_on(EXAMPLES / "llama-3.1-70b-desktop.yaml", own)
    found = compare([Candidate("p", "own", (same, own)), Candidate("p", "mine", (plan, mine))])
    assert found.costs[0] == found.costs[1] and found.pairs[0].order == "same"


def test_every_shipped_server_has_a_row():
    candidates = []
    for name in shipped_topologies():
        topology = load_topology(name)
        plan, there, names = load_plan_on(EXAMPLES / "llama-3.1-70b-desktop.yaml", topology)
        candidates.append(Candidate("p", name, (plan, there), names=names))
    found = compare(candidates)
    assert {one.server for one in (*found.ranked, *found.rest)} == set(shipped_topologies())
    costs = [value for _, value, _ in found.costs]
    assert costs == sorted(costs) and len(found.pairs) == len(found.ranked) - 1
    for pair, one, other in zip(found.pairs, found.costs, found.costs[1:], strict=False):
        if pair.order == "open":
            assert other[0] < one[2] * (1 - 1e-9)
