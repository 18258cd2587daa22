"""Prefetch chains against answers worked by hand and against the recurrence run for many steps."""


import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload.events import double_buffer, prefetch_chain
from offload.plan import UNLIMITED
from tests.worked_numbers import WORKED as CASES


def of_kind(kind):
    return [pytest.param(case, id=case["id"]) for case in CASES if case["kind"] == kind]


def ends_by_hand(fetch, compute, buffers, steps, resident=None):
    """The plain recurrence, run for many steps: the end of each step."""
    count = len(fetch)
    resident = resident or [False] * count
    loaded = done = 0.0
    streamed_ends, ends = [], []
    for _ in range(steps):
        for i in range(count):
            if not resident[i]:
                free = streamed_ends[-buffers] if buffers and len(streamed_ends) >= buffers else 0.0
                loaded = max(loaded, free) + fetch[i]
                done = max(done, loaded) + compute[i]
                streamed_ends.append(done)
            else:
                done += compute[i]
        ends.append(done)
    return ends


@pytest.mark.parametrize("case", of_kind("prefetch_chain"))
def test_prefetch_chain_equals_the_worked_example(case):
    inputs, expected = case["inputs"], case["expected"]
    for buffers in inputs["buffers"]:
        chain = prefetch_chain(inputs["fetch"], inputs["compute"], buffers)
        assert chain.cold_seconds == expected["makespan"][buffers]
        assert chain.seconds == expected["steady_period"][buffers]
    unlimited = prefetch_chain(inputs["fetch"], inputs["compute"], UNLIMITED)
    assert unlimited.cold_seconds == expected["makespan_unbounded"]
    assert unlimited.seconds == expected["max"]


@pytest.mark.parametrize("case", of_kind("resident_layout"))
def test_resident_layout_equals_the_worked_example(case):
    inputs, expected = case["inputs"], case["expected"]
    resident = [letter == "R" for letter in inputs["pattern"]]
    count = len(resident)
    chain = prefetch_chain([inputs["fetch"]] * count, [inputs["compute"]] * count, inputs["buffers"], resident)
    assert chain.cold_seconds == expected["first_step"]
    assert chain.seconds == expected["steady_step"]
    total = chain.cold_seconds + (inputs["steps"] - 1) * chain.seconds
    assert total == expected["total"]


def test_w70_double_buffer_in_closed_form():
    case = next(case for case in CASES if case["id"] == "W70")
    chain = double_buffer(case["inputs"]["fetch"], case["inputs"]["compute"])
    assert (chain.cold_seconds, chain.seconds) == (case["expected"]["cold"], case["expected"]["steady"])
    fetch = [numpy.array([float(f), 2.0 * f]) for f in case["inputs"]["fetch"]]
    swept = double_buffer(fetch, case["inputs"]["compute"])
    assert swept.seconds[0] == chain.seconds and swept.seconds.shape == (2,)


times = st.integers(0, 9)
chains = st.integers(1, 7).flatmap(
    lambda n: st.tuples(st.lists(times, min_size=n, max_size=n), st.lists(times, min_size=n, max_size=n),
                        st.lists(st.booleans(), min_size=n, max_size=n))
)  # fmt: skip


@given(chains, st.integers(1, 4))
def test_chain_equals_the_recurrence_run_for_many_steps(chain, buffers):
    fetch, compute, resident = chain
    fetch = [0 if here else time for time, here in zip(fetch, resident, strict=True)]
    found = prefetch_chain(fetch, compute, buffers, resident)
    count = len(fetch)
    ends = ends_by_hand(fetch, compute, buffers, 16 * count + 16, resident)
    assert found.cold_seconds == ends[0]
    lap = 420  # a multiple of every cyclicity that 7 layers can have here
    ends = ends_by_hand(fetch, compute, buffers, 60 + lap, resident)
    assert (ends[-1] - ends[-1 - lap]) / lap == pytest.approx(found.seconds, abs=1e-9)


@given(chains)
def test_laws_of_the_chain(chain):
    fetch, compute, _ = chain
    count = len(fetch)
    found = [prefetch_chain(fetch, compute, k) for k in range(1, count + 2)]
    assert found[0].cold_seconds == found[0].seconds == sum(fetch) + sum(compute)
    for fewer, more in zip(found, found[1:], strict=False):
        assert more.cold_seconds <= fewer.cold_seconds and more.seconds <= fewer.seconds
    flow_shop = max(sum(fetch[: i + 1]) + sum(compute[i:]) for i in range(count))
    unlimited = prefetch_chain(fetch, compute, UNLIMITED)
    assert unlimited.cold_seconds == flow_shop == found[-1].cold_seconds
    assert unlimited.seconds == max(sum(fetch), sum(compute))
    for one in found:
        assert max(sum(fetch), sum(compute)) <= one.seconds + 1e-9
        assert one.seconds <= one.cold_seconds + 1e-9 <= sum(fetch) + sum(compute) + 2e-9
    closed = double_buffer(fetch, compute)
    two = prefetch_chain(fetch, compute, 2)
    assert two.cold_seconds == closed.cold_seconds
    if count > 1:
        assert two.seconds == pytest.approx(closed.seconds, abs=1e-9)


@given(chains, st.integers(1, 3), st.integers(0, 6), st.integers(1, 5))
def test_cold_time_is_exactly_monotone(chain, buffers, index, more):
    fetch, compute, _ = chain
    before = prefetch_chain(fetch, compute, buffers).cold_seconds
    slower = list(fetch)
    slower[index % len(fetch)] += more
    assert prefetch_chain(slower, compute, buffers).cold_seconds >= before
