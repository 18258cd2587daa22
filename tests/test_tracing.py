"""Traced numbers: what they write down, where a trace holds, and that a replay is plain evaluation to the last bit."""

import math

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from offload.replay import Replay
from offload.tracing import Trace, Traced, key_of, largest, pick, plain, pure


def replayed(code, at, arrays):
    """What `code` gives for arrays by name, traced at one point: (where it holds, values)."""
    trace = Trace()
    made = code(**{name: trace.number(name, value) for name, value in at.items()})
    count = len(arrays)
    inputs = {name: np.asarray(values).reshape([-1 if axis == place else 1 for axis in range(count)])
              for place, (name, values) in enumerate(arrays.items())}  # fmt: skip
    replay = Replay(trace, inputs)
    return replay.holds, replay.value(made), trace


def test_operations_and_where_they_hold():
    holds, values, _ = replayed(lambda batch: 16 * batch + 3 if batch > 4 else 0, {"batch": 8}, {"batch": range(1, 9)})
    assert holds.tolist() == [False] * 4 + [True] * 4
    assert values.tolist() == [19, 35, 51, 67, 83, 99, 115, 131] and values.dtype.kind == "i"


def test_traced_numbers_look_like_what_they_are():
    trace = Trace()
    eight, half = trace.number("n", 8), trace.number("x", 0.5)
    assert (f"{eight}", f"{half:.2f}", repr(eight), str(half)) == ("8", "0.50", "8", "0.5")
    assert plain(eight * 2) == 16 and type(plain(eight * 2)) is int and type(plain(eight / 2)) is float
    assert {8: "a"}[eight] == "a" and eight.is_integer() and not half.is_integer()
    assert isinstance(sum([0.5, eight, 1]), Traced) and isinstance(1.5 * eight, Traced) and isinstance(2 - half, Traced)


def test_what_takes_the_number_out_pins_it():
    for take in (int, float, lambda x: x.as_integer_ratio()):
        holds, _, _ = replayed(lambda n, take=take: (take(n), n)[1], {"n": 4}, {"n": range(1, 9)})
        assert holds.tolist() == [n == 4 for n in range(1, 9)]
    with pytest.raises(TypeError):
        range(Trace().number("n", 4))


def test_keys_that_meet_elsewhere_do_not_hold_there():
    """Two numbers as keys of one mapping: where they are equal, there would be one entry."""
    holds, _, _ = replayed(lambda n, m: len({n: 1, m: 2}) * n, {"n": 1, "m": 2}, {"n": [1, 2, 3], "m": [2, 3]})
    assert holds.tolist() == [[True, True], [False, True], [True, False]]


def test_largest_and_pick_split_nothing():
    def code(a, b):
        return pick(a, b, largest(a * 2, b, float("-inf")), -a), largest(a, a)

    trace = Trace()
    first, second = code(trace.number("a", 3.0), trace.number("b", 5.0))
    assert not trace.guards and plain(second) == 3.0
    replay = Replay(trace, {"a": np.arange(1.0, 9.0)[:, None], "b": np.arange(1.0, 9.0)[None, :]})
    expected = [[max(a * 2, b) if a > b else -a for b in range(1, 9)] for a in range(1, 9)]
    assert replay.value(first).tolist() == expected
    assert pick(2, 2, 1, 0) == 0 and pick(2, 2, 1, 0, equal=True) == 1 and largest(1, 3, 2) == 3


def test_keys_tell_traced_numbers_apart_however_deep():
    """Equal ones that are made in other ways are no one key; plain ones and texts are their own."""
    trace = Trace()
    one, other = trace.number("a", 2), trace.number("b", 2)
    assert key_of((1, 2.5, "x", None, True)) == (1, 2.5, "x", None, True) and key_of(()) == ()
    for wrap in (lambda x: x, lambda x: (x,), lambda x: (1, ("x", (x, None)))):
        assert key_of(wrap(one)) == key_of(wrap(one)) != key_of(wrap(other))
        assert key_of(wrap(one)) != key_of(wrap(2))
    assert not trace.hashed and not trace.guards, "nothing is pinned"


def test_whole_numbers_stay_exact_where_floats_do_not_hold_them():
    arrays = {"n": [3, 2**40 + 1, 2**52 + 1]}
    for code in (lambda n: n * 4097 + 1, lambda n: (n * 2**20) // 3, lambda n: n * 2**30 * 2**30,
                 lambda n: n * 2**12 / 7, lambda n: 2.5 * (n * 2**8), lambda n: (n * 2**11 + 1) % 1000):  # fmt: skip
        holds, values, _ = replayed(code, {"n": 5}, arrays)
        assert holds.all() and values.tolist() == [code(n) for n in arrays["n"]]


def test_values_at_a_point_are_plain_and_nan_where_there_are_none():
    trace = Trace()
    made = 10 // trace.number("n", 2) + pure(math.sqrt)(trace.number("x", 4.0))
    assert trace.values({"n": 3, "x": 9.0})[made.node] == 6.0
    for odd in ({"n": 0, "x": 9.0}, {"n": 3, "x": -1.0}):
        assert math.isnan(trace.values(odd)[made.node])


def test_a_pure_function_is_one_operation():
    calls = []

    @pure
    def odd(n):
        calls.append(n)
        return n**0.37

    holds, values, trace = replayed(lambda n: odd(n) + 1, {"n": 2}, {"n": [1, 2, 2, 3]})
    assert holds.all() and values.tolist() == [n**0.37 + 1 for n in (1, 2, 2, 3)] and not trace.guards
    assert sorted(calls) == [1, 2, 2, 3] and odd(4) == 4**0.37  # once while traced, then once for each value


NUMBERS = st.one_of(st.integers(1, 10**6), st.floats(0.01, 1e9))
STEPS = (
    lambda x, y: x + y, lambda x, y: x - y, lambda x, y: x * y, lambda x, y: x / y, lambda x, y: 3 * x,
    lambda x, y: max(x, y), lambda x, y: x if x > y else y * 2, lambda x, y: math.ceil(x), lambda x, y: -(-x // 7),
    lambda x, y: largest(x, y), lambda x, y: pick(x, y, y, x / 2), lambda x, y: -x, lambda x, y: abs(x - y),
    lambda x, y: math.floor(y) + x, lambda x, y: min(x, y, 100), lambda x, y: sum([x, y, 0.5]), lambda x, y: x**2,
    lambda x, y: 0.1 + y, lambda x, y: x % 5,
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@example([0, 7, 9, 16], [1], [94906266.0])  # a whole number and a float that are equal, squared
@example([0, 7, 5, 2, 5, 17, 5], [1], [1, 94906266.0])  # two that are equal as floats
@given(
    st.lists(st.integers(0, len(STEPS) - 1), min_size=1, max_size=12),
    st.lists(NUMBERS, min_size=1, max_size=6),
    st.lists(NUMBERS, min_size=1, max_size=6),
)
def test_a_replay_is_plain_evaluation_wherever_it_holds(chosen, xs, ys):
    kinds = {type(x) for x in xs}, {type(y) for y in ys}
    if len(kinds[0]) > 1 or len(kinds[1]) > 1:
        xs, ys = [float(x) for x in xs], [float(y) for y in ys]

    def code(x, y):
        for step in chosen:
            x, y = STEPS[step](x, y), x
        return x

    try:
        holds, values, trace = replayed(code, {"x": xs[0], "y": ys[0]}, {"x": xs, "y": ys})
        found = code(*(trace.number(name, one[0]) for name, one in (("x", xs), ("y", ys))))  # the same nodes again
    except (ZeroDivisionError, OverflowError):
        assume(False)
    shape = (len(xs), len(ys))
    holds, values = np.broadcast_to(holds, shape), np.broadcast_to(values, shape)
    assert holds[0, 0]
    for i, x in enumerate(xs):
        for j, y in enumerate(ys):
            if holds[i, j]:
                mine = values[i, j].item() if hasattr(values[i, j], "item") else values[i, j]
                assert mine == code(x, y), (x, y)
                alone = trace.values({"x": x, "y": y})
                assert mine == (alone[found.node] if isinstance(found, Traced) else found), (x, y)
