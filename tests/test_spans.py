"""Spans: what they tell of a block is so at all of its points; a settled trace holds where it held."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from offload.replay import Replay
from offload.spans import Spans
from offload.tracing import PLAIN, Trace
from tests.test_tracing import NUMBERS, STEPS


def _traced(chosen: list[int], xs: list[float], ys: list[float]) -> tuple[Trace, dict[str, np.ndarray]]:
    if len({type(x) for x in xs}) > 1 or len({type(y) for y in ys}) > 1:
        xs, ys = [float(x) for x in xs], [float(y) for y in ys]
    trace = Trace()
    x, y = trace.number("x", xs[0]), trace.number("y", ys[0])
    keys = {}
    try:
        for step in chosen:
            x, y = STEPS[step](x, y), x
            keys[x] = step  # numbers that are keys, too
    except (ZeroDivisionError, OverflowError):
        assume(False)
    return trace, {"x": np.asarray(xs).reshape(-1, 1), "y": np.asarray(ys).reshape(1, -1)}


GIVEN = (
    st.lists(st.integers(0, len(STEPS) - 1), min_size=1, max_size=12),
    st.lists(NUMBERS, min_size=1, max_size=6), st.lists(NUMBERS, min_size=1, max_size=6),
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(*GIVEN)
def test_every_number_is_within_its_span(chosen: list[int], xs: list[float], ys: list[float]) -> None:
    trace, inputs = _traced(chosen, xs, ys)
    spans, replay = Spans(trace, inputs), Replay(trace, inputs)
    for node in range(len(trace.nodes)):
        span = spans.of((node,))
        if span is not None:
            for value in np.asarray(replay._node(node), dtype=object).ravel():
                assert span[0] <= value <= span[1]


@settings(max_examples=300, deadline=None)
@given(*GIVEN)
def test_what_a_span_tells_of_a_comparison_is_so(chosen: list[int], xs: list[float], ys: list[float]) -> None:
    trace, inputs = _traced(chosen, xs, ys)
    spans, replay = Spans(trace, inputs), Replay(trace, inputs)
    for name, *operands in trace.guards:
        told = spans.told(name, tuple(operands))
        if told is not None:
            values = [np.asarray(replay._of(one), dtype=object) for one in operands]
            came = np.frompyfunc(PLAIN[name], len(values), 1)(*values)
            assert (np.asarray(came) == told).all()


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(*GIVEN)
@example([1, 0, 3, 7], [1], [0.5, 1])  # infinite minus infinite, among whole numbers too large for an array of floats
def test_a_settled_trace_holds_where_it_held(chosen: list[int], xs: list[float], ys: list[float]) -> None:
    trace, inputs = _traced(chosen, xs, ys)
    shape = (len(xs), len(ys))
    before = np.broadcast_to(Replay(trace, inputs).holds, shape).copy()
    guards = len(trace.guards) + math.comb(len(trace.hashed), 2)
    Replay(trace, inputs).settle()
    assert len(trace.guards) <= guards and not trace.hashed
    assert (np.broadcast_to(Replay(trace, inputs).holds, shape) == before).all()
    for part in (slice(0, 1), slice(1, None), slice(None, None, 2)):
        some = {"x": inputs["x"][part], "y": inputs["y"]}
        if some["x"].size:
            there = np.broadcast_to(Replay(trace, some).holds, (some["x"].size, len(ys)))
            assert (there == before[part]).all()


def test_a_comparison_of_what_varies_along_one_axis_is_tried_out() -> None:
    """Sides that move together: their spans meet, and still the comparison comes out the same everywhere."""
    trace = Trace()
    x, y = trace.number("x", 2.0), trace.number("y", 1.0)
    assert x < x * 1.5
    assert not y > x
    inputs = {"x": np.arange(1.0, 99.0).reshape(-1, 1), "y": np.arange(0.5, 9.5).reshape(1, -1)}
    Replay(trace, inputs).settle()
    assert [name for name, *_ in trace.guards] == ["gt"]
    assert Replay(trace, inputs).holds.shape == (98, 9)
