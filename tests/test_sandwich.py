"""The sandwich on random task graphs, and the laws that every bound obeys; where the others are tested.

Load bound and critical path <= order-aware bound <= a simulation <= all tasks one after another; the simulation here is
the obvious one, in fractions, and knows nothing of the package's.

| laws | tested in |
| --- | --- |
| 1 floors rise with loads and latency, fall with rates | here, test_ladders (compiled steps), test_multipath |
| 1 to the last bit: load bound, recurrence, closed forms | here, test_bounds, test_events |
| 2 scaling of amounts, rates and time; exact for powers of two | here, test_bounds |
| 3 subadditive, convex in loads and in rates | here, test_bounds |
| 4 load and path <= order-aware <= simulation <= serial | here, test_fluid, test_ladders (compiled steps) |
| 4 dual certificate <= LP <= fixed routes | test_multipath |
| 5 a row, task or dependency more never lowers a bound | here, test_bounds; a route more: test_multipath |
| 5 what does not bind changes nothing | here |
| 6 names and order mean nothing, parts add up | here, test_bounds, test_worked_cases |
| 6 parallel links merge | test_multipath |
| 7 loads are sums; what leaves arrives | here, test_ladders; test_multipath |
| 7 rates integrate to work | test_fluid |
| 8 prices, slackness, Euler identities | test_multipath, test_gradients |
| 9 buffers never slow a chain; k = 1, 2, N in closed form; max <= period <= cold <= sum | here, test_events |
| 10 experts between their limits, concave; skew <= uniform; pinned <= LRU | here, test_experts |
| 11 KV in steps of a block; sequences fall with length, in whole numbers | here, test_cache, test_budget |
| 12 gradients are finite differences | test_gradients |
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload.bounds import head_body_tail, load_bound
from offload.events import double_buffer, prefetch_chain
from offload.models.budget import block_budget
from offload.models.experts import cyclic_scan, distinct, distinct_limits, distinct_uniform, expert_traffic
from offload.models.popularity import inclusion, uniform_inclusion
from offload.plan import UNLIMITED
from offload.techniques import decode_step, streamed_batch

# --- task graphs ---


@dataclass(frozen=True, slots=True)
class Task:
    """Work that waits for tasks before it in the list, then for a delay."""

    work: Fraction
    use: dict[str, Fraction]
    after: frozenset[int] = frozenset()
    alpha: Fraction = Fraction(0)


Graph = tuple[dict[str, Fraction], list[Task]]


def random_graph(chance: random.Random) -> Graph:
    rates = {name: Fraction(chance.randint(1, 5)) for name in "abc"[: chance.randint(1, 3)]}
    tasks: list[Task] = []
    for place in range(chance.randint(1, 6)):
        names = chance.sample(sorted(rates), chance.randint(1, len(rates)))
        use = {name: Fraction(chance.randint(1, 2)) for name in names}
        after = frozenset(one for one in range(place) if chance.random() < 0.3)
        alpha = Fraction(chance.choice([0, 0, 1, 3]))
        tasks.append(Task(Fraction(chance.randint(0, 9)), use, after, alpha))
    return rates, tasks


def solo(rates: dict[str, Fraction], task: Task) -> Fraction:
    return task.alpha + max(task.work * share / rates[name] for name, share in task.use.items())


@dataclass(frozen=True, slots=True)
class Bounds:
    """Load bound, critical path, order-aware bound; sum of solo times, sum of loads with the longest delay path."""

    load: Fraction
    path: Fraction
    order: Fraction
    serial: Fraction
    loads_and_delays: Fraction


def bounds_of(graph: Graph) -> Bounds:
    rates, tasks = graph
    ends: list[Fraction] = []
    delays: list[Fraction] = []
    tails = [Fraction(0)] * len(tasks)
    for task in tasks:
        ends.append(max((ends[one] for one in task.after), default=Fraction(0)) + solo(rates, task))
        delays.append(max((delays[one] for one in task.after), default=Fraction(0)) + task.alpha)
    for place in range(len(tasks) - 1, -1, -1):
        for one in tasks[place].after:
            tails[one] = max(tails[one], solo(rates, tasks[place]) + tails[place])
    path = max(end + tail for end, tail in zip(ends, tails, strict=True))
    order = path
    for name, rate in rates.items():
        jobs = []
        for place, task in enumerate(tasks):
            if name in task.use:
                head = ends[place] - solo(rates, task) + task.alpha
                jobs.append((head, task.work * task.use[name] / rate, tails[place]))
        order = max(order, head_body_tail(jobs))
    load = load_bound(rates, [(task.work, task.use) for task in tasks])
    serial = sum(solo(rates, task) for task in tasks)
    return Bounds(load.seconds, path, order, serial, sum(load.resource_seconds.values()) + max(delays))


def fair_rates(rates: dict[str, Fraction], active: dict[int, Task]) -> dict[int, Fraction]:
    """All rates raised together; who uses a saturated resource stops rising; and so on."""
    fixed: dict[int, Fraction] = {}
    while len(fixed) < len(active):
        rising = {place: task for place, task in active.items() if place not in fixed}
        level = {}
        for name, rate in rates.items():
            taken = sum(fixed[place] * active[place].use.get(name, 0) for place in fixed)
            share = sum(task.use.get(name, 0) for task in rising.values())
            if share:
                level[name] = (rate - taken) / share
        least = min(level.values())
        full = {name for name in level if level[name] == least}
        fixed |= {place: least for place, task in rising.items() if full & set(task.use)}
    return fixed


def simulated(graph: Graph) -> Fraction:
    """The makespan under max-min fair sharing, in fractions, from event to event."""
    rates, tasks = graph
    left = {place: task.work for place, task in enumerate(tasks)}
    ready = {place: task.alpha for place, task in enumerate(tasks) if not task.after}
    ended: dict[int, Fraction] = {}
    clock = Fraction(0)
    while len(ended) < len(tasks):
        for place in [one for one, at in ready.items() if at <= clock and not left[one]]:
            ended[place] = clock
            del ready[place]
            for later, task in enumerate(tasks):
                if place in task.after and task.after <= set(ended):
                    ready[later] = clock + task.alpha
            break
        else:
            active = {place: tasks[place] for place, at in ready.items() if at <= clock}
            speed = fair_rates(rates, active)
            steps = [at - clock for at in ready.values() if at > clock]
            steps += [left[place] / speed[place] for place in active]
            for place in active:
                left[place] -= speed[place] * min(steps)
            clock += min(steps)
    return clock


def exclusive(graph: Graph, chance: random.Random) -> Fraction:
    """The makespan where each resource serves one task at a time, in a random legal order."""
    rates, tasks = graph
    free = dict.fromkeys(rates, Fraction(0))
    ended: dict[int, Fraction] = {}
    while len(ended) < len(tasks):
        place = chance.choice([one for one in range(len(tasks)) if one not in ended and tasks[one].after <= set(ended)])
        task = tasks[place]
        begins = max([ended[one] for one in task.after], default=Fraction(0)) + task.alpha
        begins = max([begins, *(free[name] for name in task.use)]) if task.work else begins
        ended[place] = begins + solo(rates, task) - task.alpha
        free |= {name: ended[place] for name in task.use} if task.work else {}
    return max(ended.values())


@pytest.mark.slow
def test_the_sandwich_on_thousands_of_graphs():
    chance = random.Random(5)
    between = 0
    for _ in range(3000):
        graph = random_graph(chance)
        found, makespan = bounds_of(graph), simulated(graph)
        assert found.load <= found.order and found.path <= found.order <= makespan
        assert makespan <= found.serial and makespan <= found.loads_and_delays
        assert found.order <= exclusive(graph, chance) <= found.serial
        between += max(found.load, found.path) < found.order < makespan
    assert between > 30, "all three differ somewhere"


# --- laws of graphs ---

graphs = st.randoms(use_true_random=False).map(random_graph)


def changes(graph: Graph, index: int, factor: int) -> tuple[list[Graph], list[Graph]]:
    """The graph with one figure changed: those that no bound may fall in, and those that none may rise in."""
    rates, tasks = graph
    place = index % len(tasks)
    task = tasks[place]
    name = sorted(rates)[index % len(rates)]

    def having(other: Task) -> Graph:
        return rates, [*tasks[:place], other, *tasks[place + 1 :]]

    heavier = {one: share + (factor if one == name else 0) for one, share in task.use.items()}
    slower = [
        having(replace(task, work=task.work + factor)),
        having(replace(task, alpha=task.alpha + factor)),
        having(replace(task, use=heavier)),
        having(replace(task, use={**task.use, name: task.use.get(name, Fraction(factor, 3))})),
        (rates, [*tasks, Task(Fraction(factor), {name: Fraction(1)})]),
        ({**rates, "more": Fraction(factor)}, [replace(one, use={**one.use, "more": Fraction(1)}) for one in tasks]),
        *(having(replace(task, after=task.after | {one})) for one in range(place)),
    ]
    return slower, [({**rates, name: rates[name] * (1 + Fraction(factor, 3))}, tasks)]


@settings(max_examples=200)
@given(graphs, st.integers(0, 30), st.integers(1, 6))
def test_bounds_of_graphs_are_monotone(graph, index, factor):
    before = bounds_of(graph)
    slower, faster = changes(graph, index, factor)
    for after in map(bounds_of, slower):
        assert after.load >= before.load and after.path >= before.path and after.order >= before.order
    for after in map(bounds_of, faster):
        assert after.load <= before.load and after.path <= before.path and after.order <= before.order


@settings(max_examples=100)
@given(graphs, st.fractions(Fraction(1, 9), 9), st.randoms(use_true_random=False))
def test_bounds_of_graphs_scale_and_ignore_names_and_order(graph, factor, chance):
    rates, tasks = graph
    before = bounds_of(graph)
    quicker = {name: rate * factor for name, rate in rates.items()}
    larger = [replace(task, work=task.work * factor) for task in tasks]
    assert bounds_of((quicker, larger)) == before
    slower = [replace(task, work=task.work * factor, alpha=task.alpha * factor) for task in tasks]
    after = bounds_of((rates, slower))
    assert (after.load, after.path, after.order) == tuple(
        factor * one for one in (before.load, before.path, before.order)
    )
    # Another legal order of the list, and other names.
    order: list[int] = []
    while len(order) < len(tasks):
        order.append(chance.choice([one for one in range(len(tasks)) if one not in order
                                    and tasks[one].after <= set(order)]))  # fmt: skip
    moved = [
        replace(tasks[one], after=frozenset(order.index(other) for other in tasks[one].after),
                use={name.upper(): share for name, share in tasks[one].use.items()})
        for one in order
    ]  # fmt: skip
    assert bounds_of(({name.upper(): rate for name, rate in rates.items()}, moved)) == before
    assert simulated(({name.upper(): rate for name, rate in rates.items()}, moved)) == simulated(graph)


# --- laws of the load bound ---

rows = st.tuples(
    st.fixed_dictionaries({name: st.integers(1, 10**6).map(Fraction) for name in "abc"}),
    st.lists(st.tuples(st.integers(0, 10**6).map(Fraction), st.dictionaries(st.sampled_from("abc"), st.integers(0, 5))),
             max_size=5),
)  # fmt: skip


@given(rows)
def test_loads_are_the_sums_of_what_transfers_put_there(step):
    rates, transfers = step
    found = load_bound(rates, transfers).resource_seconds
    put = sum(amount * sum(use.values()) for amount, use in transfers)
    assert sum(found[name] * rates[name] for name in rates) == put


@given(rows, st.integers(2, 9))
def test_what_does_not_bind_changes_nothing(step, factor):
    rates, transfers = step
    before = load_bound(rates, transfers)
    for name in sorted(set(rates) - set(before.bottleneck)):
        assert load_bound({**rates, name: rates[name] * factor}, transfers).seconds == before.seconds
    if len(before.bottleneck) > 1:
        one = before.bottleneck[0]
        assert load_bound({**rates, one: rates[one] * factor}, transfers).seconds == before.seconds, "one of a tie"


@given(rows, st.lists(st.integers(0, 10**6), min_size=5, max_size=5), st.fractions(0, 1), st.integers(1, 10**6))
def test_load_bound_is_convex_in_loads_and_in_rates(step, others, share, rate):
    rates, transfers = step
    ends = transfers, [(Fraction(other), use) for other, (_, use) in zip(others, transfers, strict=False)]
    mixed = [(share * one + (1 - share) * two, use) for (one, use), (two, _) in zip(*ends, strict=True)]
    first, second = (load_bound(rates, one).seconds for one in ends)
    assert load_bound(rates, mixed).seconds <= share * first + (1 - share) * second
    other = {**rates, "a": Fraction(rate)}
    between = {**rates, "a": share * rates["a"] + (1 - share) * rate}
    middle = load_bound(between, transfers).seconds
    assert middle <= share * first + (1 - share) * load_bound(other, transfers).seconds


# --- to the last bit ---

positive = st.floats(1e-6, 1e12)
amounts = st.just(0.0) | st.floats(1e-100, 1e12)  # no product of two is subnormal


def up(value: float) -> float:
    return math.nextafter(value, math.inf)


@given(
    st.lists(st.tuples(amounts, st.lists(amounts, min_size=2, max_size=2)), min_size=1, max_size=5),
    st.tuples(positive, positive), st.integers(0, 9), st.integers(0, 1), st.integers(-40, 40),
)  # fmt: skip
def test_load_bound_is_monotone_to_the_last_bit(transfers, rates, index, row, power):
    def seconds(moved, rates):
        return load_bound(dict(zip("ab", rates, strict=True)),
                          [(amount, dict(zip("ab", use, strict=True))) for amount, use in moved]).seconds  # fmt: skip

    before = seconds(transfers, rates)
    place = index % len(transfers)
    amount, use = transfers[place]
    for other in ((up(amount), use), (amount, [up(one) if at == row else one for at, one in enumerate(use)])):
        assert seconds([*transfers[:place], other, *transfers[place + 1 :]], rates) >= before
    assert seconds(transfers, [up(rate) if at == row else rate for at, rate in enumerate(rates)]) <= before
    factor = 2.0**power
    assert seconds([(amount * factor, use) for amount, use in transfers], rates) == before * factor
    assert seconds(transfers, [rate * factor for rate in rates]) == before / factor


chains = st.lists(st.tuples(amounts, amounts, st.booleans()), min_size=1, max_size=8)


@given(chains, st.integers(1, 4) | st.just(UNLIMITED), st.integers(0, 15), st.integers(-40, 40))
def test_the_recurrence_is_monotone_to_the_last_bit(layers, buffers, index, power):
    resident = [here for *_, here in layers]
    times = [[time for time, *_ in layers], [time for _, time, _ in layers]]
    before = prefetch_chain(*times, buffers, resident)
    side, place = index % 2, index // 2 % len(layers)
    slower = [list(one) for one in times]
    slower[side][place] = up(slower[side][place])
    assert prefetch_chain(*slower, buffers, resident).cold_seconds >= before.cold_seconds
    closed, slow = double_buffer(*times), double_buffer(*slower)
    assert slow.cold_seconds >= closed.cold_seconds and slow.seconds >= closed.seconds
    factor = 2.0**power
    scaled = [[time * factor for time in one] for one in times]
    assert prefetch_chain(*scaled, buffers, resident).cold_seconds == before.cold_seconds * factor
    assert double_buffer(*scaled).seconds == closed.seconds * factor


@given(chains)
def test_buffers_never_slow_a_chain_to_the_last_bit(layers):
    fetch, compute, resident = zip(*layers, strict=True)
    colds = [prefetch_chain(fetch, compute, k, resident).cold_seconds for k in range(1, len(layers) + 2)]
    assert all(more <= fewer for fewer, more in zip(colds, colds[1:], strict=False))
    assert colds[-1] == colds[-2] == prefetch_chain(fetch, compute, UNLIMITED, resident).cold_seconds


wholes = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=6)


@given(wholes, wholes, st.integers(1, 4))
def test_the_recurrence_is_convex_and_subadditive(one, two, buffers):
    layers = list(zip(one, two, strict=False))
    ends = [[pair[side] for pair in layers] for side in (0, 1)]

    def chain(times, factor=1):
        return prefetch_chain([f * factor for f, _ in times], [c * factor for _, c in times], buffers)

    both = chain([(f + g, c + d) for (f, c), (g, d) in layers])
    apart = [chain(times) for times in ends]
    assert both.cold_seconds <= apart[0].cold_seconds + apart[1].cold_seconds
    assert both.seconds <= (apart[0].seconds + apart[1].seconds) * (1 + 1e-12)
    # The sum is twice the midpoint, so with homogeneity this is convexity too.
    assert chain(ends[0], 3).cold_seconds == 3 * apart[0].cold_seconds


@given(positive, positive, positive, st.integers(1, 10**6), st.integers(0, 1))
def test_closed_forms_are_monotone_to_the_last_bit(weights, kv, rate, batch, which):
    before = streamed_batch(weights, kv, rate, batch).seconds
    heavier = [up(one) if at == which else one for at, one in enumerate((weights, kv))]
    assert streamed_batch(*heavier, rate, batch).seconds >= before
    assert streamed_batch(weights, kv, up(rate), batch).seconds <= before
    assert streamed_batch(weights, kv, rate, batch + 1).seconds >= before


RATES = ("memory_rate", "flop_rate", "link_rate")


@given(st.tuples(positive, positive, positive), positive, positive, st.sampled_from(RATES), st.integers(1, 100))
def test_a_decode_step_is_monotone_to_the_last_bit(rates, size, kv, which, layers):
    given_ = dict(zip(RATES, rates, strict=True))
    known = {"active_parameters": 3.0, "batch": 2, "context": 7, "room": 5 * size, "layer_bytes": size}
    before = decode_step(layers, kv_bytes=kv, **given_, **known)
    faster = decode_step(layers, kv_bytes=kv, **{**given_, which: up(given_[which])}, **known)
    longer = decode_step(layers, kv_bytes=up(kv), **given_, **known)
    for name in ("lower_bound", "no_overlap"):
        assert getattr(faster, name) <= getattr(before, name) <= getattr(longer, name)


# --- experts, caches, KV ---


@settings(max_examples=60)
@given(st.lists(st.integers(1, 30), min_size=2, max_size=6), st.integers(1, 2), st.integers(0, 6), st.data())
def test_laws_of_experts(weights, active, tokens, data):
    chances = inclusion([Fraction(one) for one in weights], active)
    counts = [distinct(chances, tokens + more) for more in range(3)]
    assert counts[0] <= counts[1] <= counts[2] and counts[2] - counts[1] <= counts[1] - counts[0], "concave in tokens"
    experts = len(weights)
    least, most = distinct_limits(experts, active, tokens)
    assert least <= counts[0] <= distinct_uniform(experts, active, tokens, exact=True) <= most
    kept = data.draw(st.integers(0, experts))
    moved = expert_traffic(chances, tokens, layers=2, expert_bytes=3, cached=kept)
    assert moved.least <= moved.fetched <= moved.most and moved.fetched <= moved.touched
    uniform = expert_traffic(uniform_inclusion(experts, active, exact=True), tokens, layers=2, expert_bytes=3,
                             cached=kept)  # fmt: skip
    assert moved.fetched <= uniform.fetched, "the most popular are kept"


@given(st.integers(1, 10**6), st.integers(0, 10**6), st.integers(1, 100))
def test_a_pinned_part_misses_least(items, capacity, more):
    found, larger = cyclic_scan(items, capacity), cyclic_scan(items, capacity + more)
    assert found.pinned_misses <= found.best_demand_misses <= found.lru_misses
    assert found.pinned_misses <= found.random_misses + 1e-9 * items <= found.lru_misses + 2e-9 * items
    assert larger.pinned_misses <= found.pinned_misses and larger.best_demand_misses <= found.best_demand_misses


@given(st.integers(1, 10**30), st.integers(1, 10**9), st.integers(1, 64), st.integers(1, 10**6), st.integers(1, 100))
def test_sequences_fall_with_their_length_in_whole_numbers(available, each, block, context, more):
    found = block_budget(available, each, block=block, context=context)
    longer = block_budget(available, each, block=block, context=context + more)
    assert longer.sequences <= found.sequences and longer.private_blocks >= found.private_blocks
    # One floor or two come to the same, in integers of any size.
    assert found.sequences == available // (block * each * found.private_blocks)
    assert found.sequences * found.private_blocks * found.block_bytes <= available
