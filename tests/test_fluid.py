"""Fluid simulation: exact examples, a plain rational simulation as oracle, and what holds for every graph of tasks."""

from __future__ import annotations

import random
from fractions import Fraction
from math import inf, nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload import fluid_engine
from offload.errors import PlanError
from offload.fluid import POLICIES, FluidTask, Segment, max_min_rates, simulate, task_bounds
from offload.fluid_engine import FEW

CLOSE = 1 + 1e-9
W71 = {
    "a": FluidTask(4, {"r0": 1, "r1": 1}), "b": FluidTask(2, {"r0": 1}),
    "c": FluidTask(1, {"r0": 1}), "d": FluidTask(1, {"r0": 1}),
}  # fmt: skip


def plain(rates, tasks, weights):
    """The obvious simulation, in Fractions: at each event all rates anew, by filling task by task."""
    left = {name: Fraction(task.work) for name, task in tasks.items()}
    delay = {name: Fraction(task.alpha) for name, task in tasks.items()}
    used = {name: {r: Fraction(a) for r, a in task.use.items() if a and task.work} for name, task in tasks.items()}
    now, finish, makespan_rates = Fraction(0), {}, []
    while len(finish) < len(tasks):
        for _ in tasks:  # what takes no time, one after another
            for name, task in tasks.items():
                over = name not in finish and all(on in finish for on in task.deps) and not delay[name]
                if over and (not used[name] or not left[name]):
                    finish[name] = now
        begun = [name for name, task in tasks.items() if name not in finish and all(on in finish for on in task.deps)]
        if not begun:
            break
        active = [name for name in begun if not delay[name]]
        speed = filled(rates, {name: used[name] for name in active}, weights)
        makespan_rates.append((now, speed))
        step = min([left[name] / speed[name] for name in active] + [delay[name] for name in begun if delay[name]])
        for name in begun:
            if delay[name]:
                delay[name] -= step
            else:
                left[name] -= speed[name] * step
        now += step
    return finish, makespan_rates


def filled(rates, flows, weights):
    """Progressive filling, task by task."""
    speed, level = {}, Fraction(0)
    while len(speed) < len(flows):
        levels = {}
        for r, rate in rates.items():
            rising = sum(use[r] * weights[name] for name, use in flows.items() if r in use and name not in speed)
            if rising:
                frozen = sum(flows[name][r] * x for name, x in speed.items() if r in flows[name])
                levels[r] = (Fraction(rate) - frozen) / rising
        level = min(levels.values())
        full = {r for r, at in levels.items() if at == level}
        for name, use in flows.items():
            if name not in speed and full & set(use):
                speed[name] = level * weights[name]
    return speed


def weights_of(policy, tasks, given):
    if policy == "proportional":
        return {name: Fraction(task.work or 1) for name, task in tasks.items()}
    return {name: Fraction(given.get(name, 1) if policy == "weighted" else 1) for name in tasks}


def drawn(seed, most=9, tiny=False):
    """A random graph of tasks with delays, work of nothing and tasks that use nothing among them."""
    dice = random.Random(seed)
    rates = {f"r{k}": dice.choice([1, 2, 3, 5, 10]) for k in range(dice.randint(1, 4))}
    tasks = {}
    for j in range(dice.randint(1, most)):
        names = dice.sample(sorted(rates), dice.randint(0 if dice.random() < 0.1 else 1, min(3, len(rates))))
        use = {name: dice.choice([0, 1, 1, 1, 2, Fraction(1, 2)]) for name in names}
        deps = dice.sample(sorted(tasks), min(len(tasks), dice.choice([0, 0, 1, 1, 2])))
        work = dice.choice([0, 1, 2, 3, 4, 7, 10**6 if tiny else 8])
        tasks[f"t{j}"] = FluidTask(work, use, tuple(deps), dice.choice([0, 0, 0, 1, 3, Fraction(1, 3)]))
    weights = {name: dice.choice([1, 2, 5, Fraction(1, 4)]) for name in tasks if dice.random() < 0.8}
    return rates, tasks, weights


def run(policy, rates, tasks, weights, exact=False):
    return simulate(rates, tasks, policy, weights if policy == "weighted" else None, exact)


@pytest.mark.few
@pytest.mark.parametrize("policy", POLICIES)
def test_it_is_the_plain_simulation(policy):
    for seed in range(1000):
        rates, tasks, weights = drawn(seed, tiny=seed % 3 == 0)
        finish, _ = plain(rates, tasks, weights_of(policy, tasks, weights))
        found = run(policy, rates, tasks, weights)
        for name, time in found.finish.items():
            assert time == pytest.approx(float(finish[name]), rel=1e-9, abs=1e-9), (seed, name)
        if seed < 300:
            assert run(policy, rates, tasks, weights, exact=True).finish == finish, seed


@pytest.mark.few
@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_stays_in_the_range_and_serves_all_work_within_the_rates(policy):
    for seed in range(300):
        rates, tasks, weights = drawn(seed)
        found = run(policy, rates, tasks, weights, exact=True)
        bounds = found.bounds
        assert bounds.load <= bounds.order <= found.makespan and bounds.critical_path <= found.makespan, seed
        assert found.makespan <= bounds.sum_solo, seed
        assert found.makespan <= bounds.sum_loads + bounds.critical_delay, seed
        loaded = sum(share > 0 for share in found.utilisation.values())
        assert bounds.sum_loads <= loaded * bounds.load
        if all(task.work and any(task.use.values()) for task in tasks.values()):
            assert bounds.order >= bounds.critical_path, seed
        served = {name: [] for name in tasks}
        for piece in found.timeline:
            assert piece.begin < piece.end and piece.rate > 0
            served[piece.task].append(piece)
        for name, pieces in served.items():
            task = tasks[name]
            if task.work and any(task.use.values()):
                assert sum(one.rate * (one.end - one.begin) for one in pieces) == task.work
                assert pieces[0].begin == found.start[name] + task.alpha and pieces[-1].end == found.finish[name]
                assert all(one.end == two.begin and one.rate != two.rate for one, two in zip(pieces, pieces[1:]))  # noqa: B905
            else:
                assert not pieces and found.finish[name] == found.start[name] + task.alpha
            assert found.start[name] == max((found.finish[on] for on in task.deps), default=0)
        check_no_waste(rates, tasks, found.timeline)


def check_no_waste(rates, tasks, timeline):
    """At each moment no resource is over its rate, and each task at work uses one that is full."""
    moments = sorted({time for piece in timeline for time in (piece.begin, piece.end)})
    for begin, end in zip(moments, moments[1:], strict=False):
        at_work = [piece for piece in timeline if piece.begin <= begin and end <= piece.end]
        taken = {r: sum(Fraction(tasks[one.task].use.get(r, 0)) * one.rate for one in at_work) for r in rates}
        assert all(taken[r] <= rates[r] for r in rates)
        assert all(any(a and taken[r] == rates[r] for r, a in tasks[one.task].use.items()) for one in at_work)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 50), st.sets(st.integers(0, 3), min_size=1)), min_size=1, max_size=12),
       st.lists(st.integers(1, 20), min_size=4, max_size=4))  # fmt: skip
def test_proportional_sharing_of_independent_tasks_ends_at_the_load_bound(flows, sizes):
    rates = {f"r{k}": size for k, size in enumerate(sizes)}
    tasks = {f"t{j}": FluidTask(work, {f"r{k}": 1 for k in used}) for j, (work, used) in enumerate(flows)}
    found = simulate(rates, tasks, "proportional", exact=True)
    assert found.makespan == found.bounds.load
    assert simulate(rates, tasks, exact=True).makespan >= found.makespan


def test_fair_sharing_is_not_the_shortest():
    fair, witness = simulate({"r0": 2, "r1": 1}, W71, exact=True), simulate({"r0": 2, "r1": 1}, W71, "proportional")
    assert (fair.makespan, fair.bounds.load) == (5, 4)
    assert set(witness.finish.values()) == {4}
    assert fair.utilisation == {"r0": Fraction(4, 5), "r1": Fraction(4, 5)}
    assert list(fair.segments("a")) == [
        Segment("a", 0, 2, Fraction(1, 2)), Segment("a", 2, 5, 1)]  # fmt: skip


def test_a_faster_resource_may_make_it_longer():
    """Ten times the rate of l2 starts A2 early, and A2 takes l1 from C, for which the tail waits."""
    tasks = {"C": FluidTask(10, {"l1": 1}), "tail": FluidTask(10, {"gpu": 1}, ["C"]),
             "A": FluidTask(10, {"l2": 1}), "A2": FluidTask(10, {"l1": 1}, ["A"])}  # fmt: skip
    slow, fast = (simulate({"l1": 1, "l2": rate, "gpu": 1}, tasks) for rate in (1, 10))
    assert (slow.makespan, fast.makespan) == (20, 29)
    assert slow.bounds.low == fast.bounds.low == 20, "the bound does not rise"


@pytest.mark.parametrize("exact", [False, True])
def test_names_and_their_order_change_nothing(exact):
    for seed in range(200):
        rates, tasks, weights = drawn(seed)
        new = {name: f"x{99 - j}" for j, name in enumerate(tasks)}
        turned = {new[name]: FluidTask(one.work, dict(reversed(one.use.items())), [new[on] for on in one.deps],
                                       one.alpha) for name, one in reversed(tasks.items())}  # fmt: skip
        before = run("weighted", rates, tasks, weights, exact)
        after = simulate(dict(reversed(rates.items())), turned, "weighted",
                         {new[name]: one for name, one in weights.items()}, exact)  # fmt: skip
        for name in tasks:
            assert after.finish[new[name]] == pytest.approx(before.finish[name], rel=0 if exact else 1e-11, abs=0)
        bounds = (before.bounds, after.bounds)
        assert bounds[0] == bounds[1] if exact else bounds[0].low == pytest.approx(bounds[1].low, rel=1e-12)


def test_alike_tasks_end_together_to_the_last_bit():
    tasks = {f"t{j}": FluidTask(0.1, {"a": 3, "b": 0.7}, alpha=0.3) for j in range(50)}
    found = simulate({"a": 1.1, "b": 0.3}, tasks)
    assert len(set(found.finish.values())) == 1 and len(found.timeline) == 50


def test_a_small_task_beside_a_huge_one_keeps_its_digits():
    chain = {f"t{j}": FluidTask(1, {"a": 1}, [f"t{j - 1}"] if j else []) for j in range(2000)}
    found = simulate({"a": 1}, {"huge": FluidTask(10**15, {"a": 1}), **chain})
    assert found.finish["t1999"] == pytest.approx(4000, rel=1e-12)
    late = simulate({"a": 1}, {"huge": FluidTask(4 * 10**12, {"a": 1}),
                               "late": FluidTask(0.1, {"a": 1}, alpha=10**12)})  # fmt: skip
    assert [one.rate for one in late.segments("huge")] == [1, 0.5, 1]
    weighty = {"heavy": FluidTask(1, {"a": 1}), "light": FluidTask(1, {"a": 1})}
    uneven = simulate({"a": 1}, weighty, "weighted", {"heavy": 1e16, "light": 1.0})
    assert uneven.finish["light"] == pytest.approx(2, rel=1e-12), "what is left of the sum of weights is exact"


@pytest.mark.parametrize("light", [1e-10, 1e-20, 1e-44, 1e-100])
def test_what_is_served_to_the_light_hides_nothing_of_the_heavy(light):
    """The light one alone is served more than a heavy one is due by 1 / `light`: heavy ones that come take their time
    all the same."""
    tasks = {"light": FluidTask(10.1, {"r": 0.7})}
    tasks |= {f"heavy {at}": FluidTask(1.3, {"r": 0.9}, alpha=at) for at in (1.1, 3.7, 4.1, 6.3)}
    found, exact = (simulate({"r": 1.7}, tasks, "weighted", {"light": light}, exact) for exact in (False, True))
    assert found.finish == pytest.approx({name: float(end) for name, end in exact.finish.items()}, rel=1e-9)
    assert all(found.finish[name] - task.alpha >= 0.688 for name, task in tasks.items())


def test_weights_share():
    tasks = {"a": FluidTask(2, {"r": 1}), "b": FluidTask(2, {"r": 1})}
    found = simulate({"r": 1}, tasks, "weighted", {"a": 3}, exact=True)
    assert found.finish == {"a": Fraction(8, 3), "b": 4}
    assert max_min_rates({"r": 4}, {"a": {"r": 1}, "b": {"r": 1}}, {"a": 3}) == {"a": 3, "b": 1}


def test_rates_of_flows_are_exact_in_fractions():
    caps = {"l1": Fraction(10), "l2": Fraction(6)}
    flows = {"A": {"l1": 1, "l2": 1}, "B": {"l1": 1}, "C": {"l2": 1}}
    assert max_min_rates(caps, flows) == {"C": 3, "A": 3, "B": 7}
    assert max_min_rates({"l": Fraction(1)}, {n: {"l": 1} for n in "abc"}) == dict.fromkeys("abc", Fraction(1, 3))


def test_what_takes_no_time_and_what_nothing_uses():
    tasks = {"delay": FluidTask(5, {}, alpha=2), "none": FluidTask(0, {"r": 1}, ["delay"]),
             "last": FluidTask(3, {"r": 0}, ["none"])}  # fmt: skip
    found = simulate({"r": 1, "idle": 7}, tasks)
    assert found.finish == {"delay": 2, "none": 2, "last": 2} and found.timeline == ()
    assert found.utilisation == {"r": 0, "idle": 0}
    assert (found.bounds.low, found.bounds.high, found.bounds.order) == (2, 2, 0)
    nothing = simulate({"r": 1}, {})
    assert (nothing.makespan, nothing.bounds.high, nothing.utilisation) == (0, 0, {"r": 0})


def test_a_long_chain_of_nothing_is_no_recursion():
    tasks = {f"t{j}": FluidTask(0, {}, [f"t{j - 1}"] if j else []) for j in range(5000)}
    assert simulate({}, tasks).makespan == 0


@pytest.mark.parametrize(
    ("rates", "tasks", "words"),
    [
        ({"r": 0}, {}, 'rate of "r" is 0'),
        ({"r": inf}, {}, "finite number above 0"),
        ({"r": nan}, {}, 'rate of "r" is nan'),
        ({"r": "1 GB/s"}, {}, "give a number"),
        ({"r": 10**400}, {}, "larger unit"),
        ({"r": 1}, {"a": FluidTask(-1, {"r": 1})}, 'work of "a" is -1'),
        ({"r": 1}, {"a": FluidTask(1, {"r": nan})}, 'what "a" puts on "r" is nan'),
        ({"r": 1}, {"a": FluidTask(1, {"r": 1}, alpha=inf)}, 'alpha of "a" is inf'),
        ({"link": 1}, {"a": FluidTask(1, {"lnk": 1})}, 'Did you mean "link"'),
        ({"r": 1}, {"one": FluidTask(1, {"r": 1}, ["oen"])}, 'Did you mean "one"'),
        ({"r": 1}, {"one": FluidTask(1, {"r": 1}, "one")}, r'write \["one"\]'),
        ({"r": 1}, {"a": FluidTask(1, {"r": 1}, ["a"])}, '"a" after "a"'),
        ({"r": 1}, {"z": FluidTask(1, {}), "a": FluidTask(1, {}, ["c", "z"]), "b": FluidTask(1, {}, ["a"]),
                    "c": FluidTask(1, {}, ["b"]), "d": FluidTask(1, {}, ["c"])}, '"a" after "c" after "b" after "a"'),
        ({"r": 1e-300}, {"a": FluidTask(1e300, {"r": 1})}, "exact=True"),
        ({"r": 1e300}, {"a": FluidTask(1, {"r": 1e-300})}, "exact=True"),
        ({"r": 1e-300}, {"a": FluidTask(1, {"r": 1e-300}), "b": FluidTask(1, {"r": 1e300})}, "come to 0.* exact=True"),
        ({"r": 1e300}, {"a": FluidTask(1e300, {"r": 1e10})}, 'load of "r" is too much for floats.*exact=True'),
        ({"r": 1}, {"a": 5}, 'task "a" is 5: give a FluidTask'),
        ({"r": 1}, {"b": FluidTask(1, {"r": 1}), "a": FluidTask(1, None)}, 'use of "a" is None: give {resource'),
        ({"r": 1}, {"a": FluidTask(1, {"r": 1}, 5)}, 'deps of "a" are 5: give a list'),
        ({"r": 1}, {"a": FluidTask(1, {"r": 1}, [["a"]])}, 'deps of "a" are .*: give a list'),
        ({"r": 1}, {"a": FluidTask(1, {"r": 1}), "b": FluidTask(1, {"r": True})}, 'what "b" puts on "r" is True'),
        ({"r": 1}, {"a": FluidTask(1, {"r": 1.0}), "b": FluidTask(True, {"r": 1.0})}, 'work of "b" is True'),
        ({"r": 1}, {"a": FluidTask(1.0, {"r": 1}), "b": FluidTask(-1, {"r": 1})}, 'work of "b" is -1'),
        ({"r": 1}, {"a": FluidTask(1.0, {"r": 1}), "b": FluidTask(nan, {"r": 1})}, 'work of "b" is nan'),
        ({"r": 1}, {"a": FluidTask(10**400, {"r": 1})}, "larger unit"),
    ],
)  # fmt: skip
def test_what_cannot_be_simulated_is_refused(rates, tasks, words):
    for exact in (False, True):
        if exact and ("exact" in words or "larger" in words):
            assert simulate(rates, tasks, exact=True).makespan >= 0
            continue
        with pytest.raises(PlanError, match=words):
            simulate(rates, tasks, exact=exact)


def test_policies_and_weights_are_checked():
    tasks = {"a": FluidTask(1, {"r": 1})}
    for policy, weights, words in (
        ("fair", None, "max-min"), ("weighted", None, "give both or neither"), ("max-min", {"a": 1}, "both or neither"),
        ("weighted", {"b": 1}, 'task "b", which is not known'), ("weighted", {"a": 0}, 'weight of "a" is 0'),
    ):  # fmt: skip
        with pytest.raises(PlanError, match=words):
            simulate({"r": 1}, tasks, policy, weights)
    with pytest.raises(PlanError, match="uses no resource"):
        max_min_rates({"r": 1}, {"a": {}})
    with pytest.raises(PlanError, match='task "b", which is not known'):
        simulate({"r": 1}, tasks).segments("b")


def test_weights_that_leave_floats_are_refused():
    for work, coefficient, weight in ((1e300, 1.0, 1e-300), (1e-300, 1.0, 1e300), (1.0, 1e-300, 1e-300)):
        tasks = {"a": FluidTask(work, {"r": coefficient}), "b": FluidTask(1, {"r": 1})}
        with pytest.raises(PlanError, match='"a".* too far apart for floats.*exact=True'):
            simulate({"r": 1}, tasks, "weighted", {"a": weight})
        assert simulate({"r": 1}, tasks, "weighted", {"a": weight}, exact=True).finish["a"] > 0
    with pytest.raises(PlanError, match="bounds leave the range of floats"):
        task_bounds({"r": 1e-300}, {"a": FluidTask(1e300, {"r": 1})})


def grid(count, dice):
    """Chains of tasks each on two of so many links that few sets of them come twice."""
    rates = {f"r{k}": dice.choice([1, 2, 3, 5]) for k in range(20)}
    tasks = {}
    for j in range(count):
        use = {name: dice.choice([1, 2, Fraction(1, 2)]) for name in dice.sample(sorted(rates), 2)}
        deps = [f"t{j - 7}"] if j >= 7 else []
        tasks[f"t{j}"] = FluidTask(dice.randint(1, 9), use, deps, dice.choice([0, 0, 1]))
    return rates, tasks


@pytest.mark.few
@pytest.mark.parametrize("policy", POLICIES)
def test_many_sets_of_resources_are_simulated_like_few(policy):
    """More sets than those whose joints are kept; floats and fractions, and the plain simulation."""
    rates, tasks = grid(120, random.Random(4))
    assert len({frozenset(task.use) for task in tasks.values()}) > FEW
    weights = {name: 2 for name in list(tasks)[::3]}
    finish, _ = plain(rates, tasks, weights_of(policy, tasks, weights))
    assert run(policy, rates, tasks, weights, exact=True).finish == finish
    for name, time in run(policy, rates, tasks, weights).finish.items():
        assert time == pytest.approx(float(finish[name]), rel=1e-9), name


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_looked_up_is_what_would_be_worked_out(policy, monkeypatch):
    """With nothing kept, or all dropped at each step, every time and rate is the same to the last bit."""
    problems = [drawn(seed, most=30) for seed in range(60)]
    once = [run(policy, *problem) for problem in problems]
    for name, value in (("KEPT", 1), ("SMALL", 0)):
        monkeypatch.setattr(fluid_engine, name, value)
        for problem, found in zip(problems, once, strict=True):
            again = run(policy, *problem)
            assert (again.start, again.finish, again.timeline) == (found.start, found.finish, found.timeline)
        monkeypatch.undo()
    monkeypatch.setattr(fluid_engine, "FEW", 0)
    for problem, found in zip(problems, once, strict=True):
        assert (again := run(policy, *problem)).finish == found.finish and again.timeline == found.timeline


def test_a_set_that_comes_again_with_other_numbers_is_not_taken_for_the_first():
    tasks = {"a": FluidTask(6, {"r": 1, "s": 1}), "b": FluidTask(6, {"r": 2, "s": 1}, ["a"]),
             "c": FluidTask(6, {"r": 1.0, "s": 1.0}, ["b"]), "d": FluidTask(0, {"r": 1, "s": 1}, ["c"])}  # fmt: skip
    assert simulate({"r": 1, "s": 1}, tasks).finish == {"a": 6, "b": 18, "c": 24, "d": 24}


def test_a_name_given_twice_is_waited_for_once():
    tasks = {"a": FluidTask(2, {"r": 1}), "b": FluidTask(3, {"r": 1}, ["a", "a"])}
    found = simulate({"r": 1}, tasks, exact=True)
    assert found.finish == {"a": 2, "b": 5} and found.bounds.critical_path == 5


def test_bounds_need_no_simulation():
    for seed in range(50):
        rates, tasks, _ = drawn(seed)
        assert task_bounds(rates, tasks, exact=True) == simulate(rates, tasks, exact=True).bounds
        assert task_bounds(rates, tasks).low <= simulate(rates, tasks).makespan * CLOSE
