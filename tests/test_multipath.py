"""Multipath floor: exact examples, proofs that hold for any prices, and oracles that try every vertex."""

from __future__ import annotations

import random
import sys
from fractions import Fraction
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload.errors import CapacityError, OffloadError
from offload.lp.exact import pivoted, solved
from offload.lp.problem import ONE, ZERO, Problem, Way, weighed
from offload.multipath import best_cut, dual_bound, fixed_bound, fixed_is_optimal, multipath, multipath_routed
from offload.multipath_arcs import Arc, multipath_arcs
from offload.tiers import Item, Tier, tier_placement

GB = 10**9
F = Fraction
K23 = {name: 1 for name in ("sa", "sb", "sc", "ta", "tb", "tc")}
K23_SHIPS = [
    (1, [{"sa": 1, "ta": 1}, {"sb": 1, "tb": 1}, {"sc": 1, "tc": 1}]),
    *((1, [{f"s{x}": 1, f"s{y}": 1}, {f"t{x}": 1, f"t{y}": 1}]) for x, y in ("ab", "bc", "ac")),
]
CUT = {"sa": 10, "sb": 10, "ab": 3, "at": 4, "bt": 10}
CUT_SHIPS = [(28, [{"sa": 1, "at": 1}, {"sb": 1, "bt": 1}, {"sa": 1, "ab": 1, "bt": 1}])]

NAMES = ("a", "b", "c", "d")
figures = st.one_of(st.integers(1, 12), st.fractions(F(1, 9), 9, max_denominator=9))
uses = st.dictionaries(st.sampled_from(NAMES), st.sampled_from([1, 1, 1, 2, F(1, 2)]), min_size=1, max_size=3)


@st.composite
def problems(draw, commodities: int = 4, routes: int = 3):
    rates = {name: draw(figures) for name in NAMES}
    ships = st.tuples(st.one_of(st.just(0), figures), st.lists(uses, min_size=1, max_size=routes))
    return rates, draw(st.lists(ships, min_size=1, max_size=commodities))


def load_times(rates, found):
    loads = dict.fromkeys(rates, ZERO)
    for routes, flows in zip(found.routes, found.flows, strict=True):
        for use, flow in zip(routes, flows, strict=True):
            for name, a in use.items():
                loads[name] += a * flow
    return {name: load / F(rates[name]) for name, load in loads.items()}


def vertices(rates, ships):
    """The least T by trying every basis of the standard form: the definition, not an algorithm."""
    ways = [(j, p) for j, (_, routes) in enumerate(ships) for p in range(len(routes))]
    rows = [{(j, p): ONE for i, p in ways if i == j} for j in range(len(ships))]
    right = [ONE] * len(ships)
    for name, rate in rates.items():
        row = {(j, p): F(ships[j][0]) * F(a) for j, p in ways if (a := ships[j][1][p].get(name))}
        rows.append({key: value for key, value in row.items() if value} | {(name,): ONE, "T": -F(rate)})
        right.append(ZERO)
    columns = [*ways, *((name,) for name in rates), "T"]
    best = None
    for basis in combinations(columns, len(rows)):
        kept = [({key: value for key, value in row.items() if key in basis}, value)
                for row, value in zip(rows, right, strict=True)]  # fmt: skip
        try:
            found = solved(kept, basis)
        except KeyError:
            continue  # singular
        if len(found) < len(basis) or any(value < 0 for value in found.values()):
            continue
        if any(sum(a * found[key] for key, a in row.items()) != value for row, value in kept):
            continue
        time = found.get("T", ZERO)
        best = time if best is None or time < best else best
    return best


# Exact examples.


def test_two_disjoint_routes_split_by_their_rates():
    rates = {"direct": 25 * GB, "via_peer": 15 * GB}
    ships = [(30 * GB, [{"direct": 1}, {"via_peer": 1}])]
    found = multipath(rates, ships)
    assert found.bound == found.attained == F(3, 4) and found.gap == 0
    assert found.flows == ((F("18.75") * GB, F("11.25") * GB),)
    assert found.fixed == fixed_bound(rates, ships) == F(6, 5)
    assert found.prices == {"direct": F(1, 40 * GB), "via_peer": F(1, 40 * GB)}
    assert found.per_rate["direct"] == F(-3, 160 * GB)
    assert found.saturated == found.cut == ("direct", "via_peer")
    assert found.bound == multipath({"link": 40 * GB}, [(30 * GB, [{"link": 1}])]).bound, "parallel links merge"


def test_a_cut_is_named_where_the_prices_are_one():
    found = multipath(CUT, CUT_SHIPS)
    assert found.bound == found.attained == 2 and found.fixed == 7
    assert found.cut == ("at", "bt") and best_cut(CUT, CUT_SHIPS) == (2, ("at", "bt"))


def test_no_cut_is_named_where_none_proves_the_time():
    found = multipath(K23, K23_SHIPS)
    assert found.bound == found.attained == F(4, 3)
    assert found.prices == dict.fromkeys(K23, F(1, 6)) and set(found.distances) == {F(1, 3)}
    assert found.cut is None and best_cut(K23, K23_SHIPS)[0] == 1


def test_prices_that_are_not_the_best_prove_less():
    prices = {name: F(9, 10) for name in K23} | {"sa": 1}
    assert dual_bound(K23, K23_SHIPS, prices) == F(72, 55) < F(4, 3)
    assert dual_bound(K23, K23_SHIPS, {"sa": 1}) == 0


def test_coefficients_that_are_no_ones_make_no_cut():
    found = multipath({"dram": 10, "spare": 1}, [(30, [{"dram": 2}, {"spare": 1}])])
    assert found.bound == found.attained == 5
    assert found.flows == ((25, 5),) and found.cut is None


def test_another_route_through_the_same_bottleneck_does_not_help():
    rates = {"uplink": 20, "p1": 30, "p2": 30}
    ships = [(40, [{"uplink": 1, "p1": 1}, {"uplink": 1, "p2": 1}])]
    assert fixed_is_optimal(rates, ships) and not fixed_is_optimal(CUT, CUT_SHIPS)
    found = multipath(rates, ships)
    assert found.bound == found.fixed == 2 and found.prices == {"uplink": F(1, 20)}


def test_the_test_of_fixed_routes_looks_at_every_commodity_on_the_bottleneck():
    rates = {"a": 1, "b": 9}
    assert not fixed_is_optimal(rates, [(1, [{"a": 1}]), (1, [{"a": 1}, {"b": 1}])])
    assert fixed_is_optimal(rates, [(1, [{"a": 1}]), (0, [{"a": 1}, {"b": 1}])]), "what ships nothing does not count"


# What a solver says is not believed.


def test_a_wrong_answer_of_the_solver_is_caught_by_its_certificate(monkeypatch):
    import scipy.optimize

    true = scipy.optimize.linprog

    def wrong(*given, **named):
        answer = true(*given, **named)
        answer.x = answer.x * 0 + 0.5
        answer.ineqlin.marginals = answer.ineqlin.marginals * 0 - [1.0, *[0.0] * (len(answer.ineqlin.marginals) - 1)]
        answer.fun = 0.0
        return answer

    monkeypatch.setattr(scipy.optimize, "linprog", wrong)
    monkeypatch.setattr("offload.lp.highs.LARGEST_EXACT", 0)
    found = multipath(CUT, CUT_SHIPS)
    assert found.bound == dual_bound(CUT, CUT_SHIPS, {"sa": 1}) == 0 < 2 < found.attained
    assert found.gap == 1, "the interval still holds the truth, and says how little it knows"
    assert max(load_times(CUT, found).values()) == found.attained


def test_bytes_and_bytes_per_second_unscaled_give_an_optimum_that_is_none():
    """300 GB over three tiers take 92/7 s: HiGHS takes its reduced costs of 1e-10 for zeros and calls more optimal."""
    from scipy.optimize import linprog

    rates = {"link": 25 * GB, "nvme": 7 * GB, "dram": 100 * GB}
    # x = bytes in HBM, host memory and on the drive, and T.
    loads = [[0, 1, 1, -rates["link"]], [0, 0, 1, -rates["nvme"]], [0, 1, 2, -rates["dram"]]]
    rooms = [[1, 0, 0, 0], [0, 1, 0, 0]]
    answer = linprog([0, 0, 0, 1], loads + rooms, [0, 0, 0, 80 * GB, 128 * GB], [[1, 1, 1, 0]], [300 * GB],
                     method="highs")  # fmt: skip
    assert answer.status == 0 and answer.success
    tiers = [Tier("hbm", 80 * GB, {}), Tier("host", 128 * GB, {"link": 1, "dram": 1}),
             Tier("nvme", None, {"link": 1, "dram": 2, "nvme": 1})]  # fmt: skip
    found = tier_placement(rates, tiers, [Item(300 * GB)])
    assert found.bound == found.attained == F(92, 7)
    if abs(answer.fun - 92 / 7) < 1e-3:
        pytest.skip("this HiGHS is not trapped")
    # Weighed exactly, the wrong answer does not prove itself.
    rooms = ({"hbm": ONE}, {"host": ONE}, {})
    ways = [Way({n: F(a) for n, a in tier.use.items()}, room) for tier, room in zip(tiers, rooms, strict=True)]
    problem = Problem({n: F(rate) for n, rate in rates.items()}, {"hbm": F(80 * GB), "host": F(128 * GB)},
                      (F(300 * GB),), (tuple(ways),))  # fmt: skip
    duals = [max(F(0), -F(float(value))) for value in answer.ineqlin.marginals]
    shares = [[F(float(x)) / (300 * GB) for x in answer.x[:3]]]
    told = weighed(problem, shares, dict(zip(rates, duals, strict=False)), dict(zip(problem.stores, duals[3:],
                                                                                 strict=True)))  # fmt: skip
    assert told is None or told.attained - told.bound > 1


def test_numbers_many_orders_apart_are_exact():
    rates = {"slow": 1e-3, "fast": 1e15, "other": F(1, 3)}
    ships = [(10**18, [{"fast": 1}, {"slow": 1}]), (1, [{"slow": 1}, {"other": 1}]), (0, [{"fast": 1}, {"slow": 2}])]
    found = multipath(rates, ships)
    assert found.gap == 0 and found.bound == found.attained
    for exponent in (-18, 6, 18):
        scaled = multipath(rates, [(F(amount) * F(10) ** exponent, routes) for amount, routes in ships])
        assert scaled.bound == found.bound * F(10) ** exponent
    assert multipath({"slow": 1e-3}, [(10**18, [{"slow": 1}])]).bound == 10**18 / F(1e-3)


@pytest.mark.parametrize(
    ("rates", "ships", "told"),
    [
        ({"a": 1}, [(1, [])], "commodity 1 has no route"),
        ({"a": 0}, [(1, [{"a": 1}])], "the rate of a is 0"),
        ({"a": float("nan")}, [(1, [{"a": 1}])], "the rate of a is nan: give a finite number"),
        ({"a": 1}, [(-1, [{"a": 1}])], "commodity 1 ships -1 bytes"),
        ({"a": 1}, [(float("inf"), [{"a": 1}])], "commodity 1: its bytes is inf"),
        ({"a": 1}, [(True, [{"a": 1}])], "commodity 1: its bytes is True"),
        ({"pcie": 1}, [(1, [{"pcei": 1}])], 'no rate of "pcei" is given. .*Did you mean "pcie"'),
        ({"a": 1}, [(1, [{"a": -1}])], "commodity 1, route 1: the coefficient on a is -1"),
        ({"a": 1}, [(1, [{"a": "1"}])], "the coefficient on a is '1': give a finite number"),
    ],
)
def test_what_is_no_problem_is_refused(rates, ships, told):
    with pytest.raises(OffloadError, match=told):
        multipath(rates, ships)


def test_prices_that_prove_nothing_are_refused():
    with pytest.raises(OffloadError, match="every price is 0"):
        dual_bound(CUT, CUT_SHIPS, {"sa": 0})
    with pytest.raises(OffloadError, match="the price of sa is -1"):
        dual_bound(CUT, CUT_SHIPS, {"sa": -1})
    with pytest.raises(OffloadError, match='no rate of "zz"'):
        dual_bound(CUT, CUT_SHIPS, {"zz": 1})


def test_nothing_to_ship_takes_no_time():
    for ships in ([], [(0, [{"a": 1}])], [(5, [{}, {"a": 1}])]):
        found = multipath({"a": 2}, ships)
        assert found.bound == found.attained == 0 and found.cut is None
    assert multipath({}, []).attained == 0


def test_without_scipy_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(OffloadError, match=r'pip install "offload\[lp\]"'):
        multipath(CUT, CUT_SHIPS)
    assert dual_bound(CUT, CUT_SHIPS, {"at": 1, "bt": 1}) == 2, "proofs need no solver"


def test_too_many_resources_have_too_many_cuts():
    rates = {f"r{n}": 1 for n in range(17)}
    with pytest.raises(OffloadError, match="17 resources have too many cuts"):
        best_cut(rates, [(1, [{name: 1} for name in rates])])


# Laws.


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(problems())
def test_prices_prove_and_flows_show_the_same_time(problem):
    rates, ships = problem
    found = multipath(rates, ships)
    assert found.bound == found.attained <= found.fixed
    for (amount, _), flows in zip(ships, found.flows, strict=True):
        assert sum(flows) == amount and min(flows) >= 0
    times = load_times(rates, found)
    assert max(times.values()) == found.attained
    if found.bound:
        assert min(found.prices.values()) > 0 and sum(F(rates[name]) * y for name, y in found.prices.items()) == 1
        assert dual_bound(rates, ships, found.prices) == found.bound
        assert set(found.prices) <= set(found.saturated), "who bears a price is full"
        for routes, flows, least in zip(found.routes, found.flows, found.distances, strict=True):
            for use, flow in zip(routes, flows, strict=True):
                length = sum(a * found.prices.get(name, 0) for name, a in use.items())
                assert length == least if flow else length >= least, "only cheapest routes are used"
        assert sum(F(rates[name]) * slope for name, slope in found.per_rate.items()) == -found.bound
        assert sum(F(amount) * slope for (amount, _), slope in zip(ships, found.distances, strict=True)) == found.bound
    if fixed_is_optimal(rates, ships):
        assert found.bound == found.fixed
    cut, across = best_cut(rates, ships)
    assert cut <= found.bound and (found.cut is None or cut == found.bound)


@settings(max_examples=25, deadline=None)
@given(problems(commodities=2, routes=2))
def test_no_vertex_is_better(problem):
    rates, ships = problem
    rates = {name: rates[name] for name in NAMES[:3]}
    ships = [(amount, [{n: a for n, a in use.items() if n in rates} or {"a": 1} for use in routes])
             for amount, routes in ships if amount]  # fmt: skip
    if ships:
        assert multipath(rates, ships).bound == vertices(rates, ships)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(problems(), st.data())
def test_more_of_anything_never_makes_it_slower(problem, data):
    rates, ships = problem
    before = multipath(rates, ships).bound
    wider = data.draw(st.sampled_from(NAMES))
    assert multipath(rates | {wider: rates[wider] * 2}, ships).bound <= before
    number = data.draw(st.integers(0, len(ships) - 1))
    amount, routes = ships[number]
    other = [*ships[:number], (amount, [*routes, data.draw(uses)]), *ships[number + 1 :]]
    assert multipath(rates, other).bound <= before, "a route more"
    grown = [*ships[:number], (amount + 1, routes), *ships[number + 1 :]]
    assert multipath(rates, grown).bound >= before, "a byte more"


@settings(max_examples=40, deadline=None)
@given(problems(), st.dictionaries(st.sampled_from(NAMES), figures, min_size=1))
def test_any_prices_prove_a_bound(problem, prices):
    rates, ships = problem
    assert dual_bound(rates, ships, prices) <= multipath(rates, ships).bound


@settings(max_examples=60, deadline=None)
@given(problems())
def test_the_simplex_method_in_rationals_agrees(problem):
    rates, ships = problem
    exactly = Problem(
        {name: F(rate) for name, rate in rates.items()}, {}, tuple(F(amount) for amount, _ in ships),
        tuple(tuple(Way({name: F(a) for name, a in use.items()}, {}) for use in routes) for _, routes in ships),
    )  # fmt: skip
    start = weighed(exactly, [[ONE, *[ZERO] * (len(ways) - 1)] for ways in exactly.ways], {}, {})
    found = pivoted(exactly, start)
    assert found.bound == found.attained == multipath(rates, ships).bound


@pytest.mark.slow
def test_a_thousand_random_cases_are_certified():
    """Any prices <= dual = primal <= fixed route, at sizes and scales drawn without care."""
    draw = random.Random(5)
    for _ in range(1000):
        names = [f"r{n}" for n in range(draw.randint(1, 6))]
        size = 10.0 ** draw.choice([0, 0, 9, -6])
        rates = {name: draw.choice([draw.randint(1, 9), size * draw.random() + 1e-3]) for name in names}
        ships = [
            (draw.choice([draw.randint(0, 20), draw.random() * 10.0 ** draw.randint(0, 18)]),
             [{name: draw.choice([1, 1, 2, 0]) for name in draw.sample(names, draw.randint(1, len(names)))}
              for _ in range(draw.randint(1, 3))])
            for _ in range(draw.randint(1, 4))
        ]  # fmt: skip
        found = multipath(rates, ships)
        assert found.bound == found.attained <= found.fixed == fixed_bound(rates, ships)
        assert dual_bound(rates, ships, {name: draw.randint(1, 9) for name in names}) <= found.bound


# Graphs.


def undirected(edges):
    return [Arc(tail, head, {f"{a}{b}": 1}) for a, b in edges for tail, head in ((a, b), (b, a))]


def test_a_graph_finds_its_routes_itself():
    arcs = undirected([end + middle for end in "st" for middle in "abc"])
    found = multipath_arcs(K23, arcs, [(1, x, y) for x, y in ("st", "ab", "bc", "ac")])
    assert found.bound == found.attained == F(4, 3) and found.cut is None


def test_a_sink_that_cannot_be_reached_is_refused():
    arcs = [Arc("a", "b", {"l": 1})]
    with pytest.raises(OffloadError, match="no route leads from b to a"):
        multipath_arcs({"l": 1}, arcs, [(1, "b", "a")])
    with pytest.raises(OffloadError, match="goes from a to itself"):
        multipath_arcs({"l": 1}, arcs, [(1, "a", "a")])


graphs = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), figures).filter(lambda arc: arc[0] != arc[1]),
                  min_size=1, max_size=10, unique_by=lambda arc: arc[:2])  # fmt: skip


def simple_routes(arcs, source, sink, seen=()):
    for arc in arcs:
        if arc.tail == source and arc.head not in seen and arc.head != source:
            if arc.head == sink:
                yield dict(arc.use)
            else:
                for rest in simple_routes(arcs, arc.head, sink, (*seen, source)):
                    yield {**arc.use, **rest}


@settings(max_examples=80, deadline=None)
@given(graphs, st.lists(st.tuples(figures, st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=3))
def test_a_graph_gives_what_all_its_routes_give(edges, asked):
    rates = {f"{tail}-{head}": rate for tail, head, rate in edges}
    arcs = [Arc(tail, head, {f"{tail}-{head}": 1}) for tail, head, _ in edges]
    ships = [(amount, list(simple_routes(arcs, source, sink))) for amount, source, sink in asked if source != sink]
    kept = [one for one in asked if one[1] != one[2]]
    if not kept or not all(routes for _, routes in ships):
        return
    found = multipath_arcs(rates, arcs, kept)
    assert found.bound == found.attained == multipath(rates, ships).bound
    if len(kept) == 1:  # max-flow min-cut, over the sets of nodes that part source from sink
        amount, source, sink = kept[0]
        cuts = [sum(F(rate) for tail, head, rate in edges if side[tail] and not side[head])
                for side in product((0, 1), repeat=5) if side[source] and not side[sink]]  # fmt: skip
        assert found.bound == F(amount) / min(cuts)


def test_routes_come_as_prices_ask_for_them():
    asked = []

    def nearest(prices):
        asked.append(prices)
        routes = [{"direct": F(1)}, {"via_peer": F(1)}]
        return [min(((sum(a * prices.get(name, 0) for name, a in use.items()), use) for use in routes),
                    key=lambda one: one[0])]  # fmt: skip

    found = multipath_routed({"direct": 25, "via_peer": 15}, [(30, [{"direct": 1}])], nearest)
    assert found.bound == found.attained == F(3, 4) and found.fixed == F(6, 5)
    assert found.routes == (({"direct": 1}, {"via_peer": 1}),)
    assert asked[0] == {"direct": F(1, 25)}


# Tiers.

TIERS = [Tier("hbm", 80, {}), Tier("host", 128, {"link": 1, "dram": 1}),
         Tier("nvme", None, {"link": 1, "dram": 2, "nvme": 1})]  # fmt: skip
TIER_RATES = {"link": 25, "nvme": 7, "dram": 100}


def test_what_does_not_fit_goes_down_a_tier():
    found = tier_placement(TIER_RATES, TIERS, [Item(300)])
    assert found.bound == found.attained == F(92, 7)
    assert found.stored == {"hbm": 80, "host": 128, "nvme": 92}
    assert found.resource_seconds == {"link": F(44, 5), "nvme": F(92, 7), "dram": F(78, 25)}
    assert found.per_room == {"hbm": F(-1, 7), "host": F(-1, 7)}, "a GB of host memory is worth 1/7 s"
    more = [TIERS[0], Tier("host", 129, TIERS[1].use), TIERS[2]]
    assert tier_placement(TIER_RATES, more, [Item(300)]).bound == F(92, 7) - F(1, 7)


def test_equally_fast_placements_fill_the_first_tiers_first():
    found = tier_placement(TIER_RATES | {"nvme": 700}, TIERS, [Item(300)])
    assert found.bound == found.attained == F(220, 25)
    assert found.stored == {"hbm": 80, "host": 128, "nvme": 92}


def test_what_is_read_most_stays_nearest():
    items = [Item(60, reads=1), Item(60, reads=3), Item(60, reads=2)]
    found = tier_placement({"link": 10}, [Tier("hbm", 90, {}), Tier("host", None, {"link": 1})], items)
    assert found.bound == found.attained == F(60 * 1 + 30 * 2, 10)
    assert [one["hbm"] for one in found.placed] == [0, 60, 30]
    assert found.per_room == {"hbm": F(-2, 10)}


def test_sources_beside_each_other_add_up():
    tiers = [Tier("a", None, {"one": 1}), Tier("b", None, {"two": 1})]
    assert tier_placement({"one": 7, "two": 3}, tiers, [Item(40)]).bound == 4


def test_tiers_that_are_too_small_say_what_lacks():
    with pytest.raises(CapacityError, match="hbm, host: 92 bytes have no room"):
        tier_placement(TIER_RATES, TIERS[:2], [Item(300)])
    with pytest.raises(CapacityError, match="hbm: 20 bytes have no room"):
        tier_placement(TIER_RATES, TIERS, [Item(10), Item(100, tiers=("hbm",))])
    with pytest.raises(OffloadError, match='no tier "hmb"'):
        tier_placement(TIER_RATES, TIERS, [Item(1, tiers=("hmb",))])
    with pytest.raises(OffloadError, match="item 1 is read -1 times"):
        tier_placement(TIER_RATES, TIERS, [Item(1, reads=-1)])
    assert tier_placement(TIER_RATES, TIERS[:2], [Item(208)]).stored == {"hbm": 80, "host": 128}, "to the last byte"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.builds(Item, figures, st.sampled_from([0, 1, 2, 3])), min_size=1, max_size=4),
       figures, figures, figures)  # fmt: skip
def test_one_link_keeps_what_is_read_most_per_byte(items, rate, hbm, host):
    """Against the fractional knapsack: fill the near tier in the order of reads."""
    tiers = [Tier("hbm", hbm, {}), Tier("host", host, {"link": 1}), Tier("disk", None, {"link": 2})]
    found = tier_placement({"link": rate}, tiers, items)
    rooms, load = [[F(hbm), 0], [F(host), 1], [None, 2]], ZERO
    for item in sorted(items, key=lambda one: -one.reads):
        left = F(item.bytes)
        for room in rooms:
            part = left if room[0] is None else min(left, room[0])
            if room[0] is not None:
                room[0] -= part
            left -= part
            load += part * room[1] * item.reads
    assert found.bound == found.attained == load / F(rate)
    assert sum(found.stored.values()) == sum(F(item.bytes) for item in items)
    assert found.stored["hbm"] <= hbm and found.stored["host"] <= host
