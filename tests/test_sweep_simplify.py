"""Traces that are shortened for a grid: fewer operations, and not another bit."""

from __future__ import annotations

import random
from pathlib import Path

import numpy
import pytest

from offload.replay import Replay
from offload.sweeps import sweep
from offload.sweeps.program import Into, Points, Unsupported, evaluate, evaluate_into, into_kernel, longest
from offload.sweeps.simplify import Simplified
from offload.tracing import Trace, largest, pick

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
KINDS = [
    lambda a, b, c, d: a + b, lambda a, b, c, d: a - b, lambda a, b, c, d: a * b, lambda a, b, c, d: a / b,
    lambda a, b, c, d: largest(a, b), lambda a, b, c, d: pick(a, b, c, d),
    lambda a, b, c, d: pick(a, b, c, d, equal=True),
]  # fmt: skip
AXES = {"a": numpy.array([1.0, 2.0, 8.0]), "b": numpy.linspace(0.5, 4.0, 7), "c": numpy.geomspace(3.0, 900.0, 40)}


def traced(values=AXES):
    trace = Trace()
    return trace, {name: trace.number(name, one[0].item()) for name, one in values.items()}


def points(values=AXES):
    return Points(tuple(values), tuple(values.values()))


def short(trace, number, values=AXES):
    """What stands for a number, and the operations that it needs."""
    found = Simplified(trace, points(values).inputs(), [(number.node,)])
    waiting, nodes = [found.of((number.node,))], {}
    while waiting:
        one = waiting.pop()
        if isinstance(one, tuple) and one[0] not in nodes:
            nodes[one[0]] = found.trace.nodes[one[0]]
            waiting += nodes[one[0]][1:]
    nodes = [nodes[one] for one in sorted(nodes)]
    return found.of((number.node,)), [one[0] for one in nodes], nodes


def both(trace, number, values=AXES):
    """By the kernel and by NumPy, which does not shorten anything."""
    return [evaluate(trace, [number], points(values), compiled=compiled)[0] for compiled in (True, False)]


def test_quotients_by_one_number_are_divided_once():
    trace, x = traced()
    number = largest(3 * x["a"] / x["c"], x["b"] / x["c"], 7.0 / x["c"], x["a"] / x["b"])
    _, operations, _ = short(trace, number)
    assert operations.count("truediv") == 2
    kernel, plain = both(trace, number)
    assert numpy.array_equal(kernel, plain)


def test_a_quotient_that_is_needed_by_itself_stays():
    trace, x = traced()
    one, other = x["a"] / x["c"], x["b"] / x["c"]
    number = largest(one, other) + one
    _, operations, _ = short(trace, number)
    assert operations.count("truediv") == 2
    kernel, plain = both(trace, number)
    assert numpy.array_equal(kernel, plain)


def test_quotients_by_what_may_be_below_zero_stay_apart():
    values = AXES | {"c": numpy.array([-3.0, -1.0, 2.0, 5.0])}
    trace, x = traced(values)
    number = largest(x["a"] / x["c"], x["b"] / x["c"])
    _, operations, _ = short(trace, number, values)
    assert operations.count("truediv") == 2
    kernel, plain = both(trace, number, values)
    assert numpy.array_equal(kernel, plain)


def test_what_is_never_the_largest_is_left_out():
    trace, x = traced()
    number = largest(x["c"] + 10, x["a"], x["b"], 0.0)  # c + 10 is at least 13
    _, operations, _ = short(trace, number)
    assert "max" not in operations
    equal = largest(x["a"], x["a"], 1.0, 1.0)
    found, operations, _ = short(trace, equal)
    assert operations == ["input"] and found == (0,)


def test_choices_that_always_fall_alike_are_made():
    trace, x = traced()
    never = pick(0.0, x["a"] * x["b"], x["c"], x["a"])
    always = pick(x["a"], 1, x["b"], x["c"], equal=True)
    open_ = pick(x["a"], 1, x["b"], x["c"])
    assert short(trace, never)[1] == ["input"]
    assert short(trace, always)[2] == [("input", "b")]
    assert "pick" in short(trace, open_)[1]


def test_numbers_that_change_nothing():
    trace, x = traced()
    assert short(trace, 1 * x["a"] / 1.0 + 0)[1] == ["input"]
    values = {"a": numpy.array([-0.0, 1.0])}
    trace, x = traced(values)
    kernel, plain = both(trace, x["a"] + 0.0, values)
    assert numpy.array_equal(numpy.signbit(kernel), numpy.signbit(plain))


@pytest.mark.parametrize("seed", range(60))
def test_random_traces(seed):
    rng = random.Random(seed)
    values = {"a": numpy.array([rng.uniform(-3, 3) for _ in range(4)]),
              "b": numpy.array([rng.uniform(0.1, 3) for _ in range(5)]),
              "c": numpy.array([float(rng.randint(1, 5)) for _ in range(33)])}  # fmt: skip
    trace, x = traced(values)
    made = [*x.values()]
    for _ in range(40):
        a, b, c, d = (rng.choice([*made, rng.choice([0, 1, 1.0, 0.0, 2, -1, 2.5])]) for _ in range(4))
        try:
            one = rng.choice(KINDS)(a, b, c, d)
        except ZeroDivisionError:
            continue
        if type(one).__name__ == "Traced":
            made.append(one)
    outputs = [one for one in made[3:] if abs(one) < 1e30][-3:]
    with numpy.errstate(all="ignore"):
        kernel = evaluate(trace, outputs, points(values), compiled=True)
        plain = evaluate(trace, outputs, points(values), compiled=False)
    finite = numpy.isfinite(plain)  # where a divisor is zero no trace holds
    assert numpy.array_equal(kernel[finite], plain[finite])
    assert finite.any()


def test_whole_numbers_that_no_float_holds_are_not_the_kernels():
    values = {"n": numpy.array([2**54 + 1, 2**54 + 3, 2**54 + 5]), "c": numpy.array([1, 2, 3, 4])}
    trace, x = traced(values)
    number = x["n"] + x["c"] - 2**54
    with pytest.raises(Unsupported):
        into_kernel(trace, [number], None, points(values), 1, Into.empty((3, 4), 1, longest((3, 4))))
    assert both(trace, number, values)[0][0].tolist() == [2, 3, 4, 5]


def test_more_resources_than_a_byte_counts():
    trace, x = traced()
    code = -2
    for place in range(300):
        code = pick(x["c"], 3.0 * place, place, code, equal=True)
    found = []
    for compiled in (True, False):
        into = Into.empty(points().shape, 0, 2, numpy.array([*range(300), -2, -1], dtype=numpy.int16))
        evaluate_into(trace, [], code, points(), into, compiled=compiled, threads=1)
        found.append(into.code.copy())
    assert numpy.array_equal(*found)
    assert found[0][0, 0, 0] == 1 and found[0].max() == 299


def with_values(seed):
    """A random trace of positive numbers, many of them quotients in maxima, and its shorter one."""
    rng = random.Random(seed)
    trace, x = traced()
    made = [*x.values()]
    for _ in range(30):
        kind = rng.randrange(3)
        if kind == 0:
            divisor = rng.choice([*x.values()])
            made.append(largest(*(rng.choice(made) / divisor for _ in range(rng.randint(2, 4)))))
        elif kind == 1:
            made.append(largest(*(rng.choice(made) for _ in range(rng.randint(2, 4)))))
        else:
            made.append(rng.choice(made) + rng.choice([*made, 3]))
    return trace, Simplified(trace, points().inputs(), [(one.node,) for one in made[-4:]])


@pytest.mark.parametrize("seed", range(40))
def test_spans_of_a_shorter_trace_are_those_of_its_own_numbers(seed):
    """Of maxima whose quotients are divided once those of other nodes were told, or of nodes that are not there."""
    _, found = with_values(seed)
    replay = Replay(found.trace, points().inputs())
    known = 0
    for node in range(len(found.trace.nodes)):
        span, values = found.span((node,)), numpy.asarray(replay._node(node))
        if span is not None:
            known += 1
            assert span[0] <= values.min() and values.max() <= span[1], found.trace.nodes[node]
    assert known > 3


def test_eight_gpus_over_contexts_by_the_kernel():
    grids = [sweep(EXAMPLES / "eight-gpus.yaml", ["workload.context=1024:65536:4log"], compiled=compiled)
             for compiled in (True, False)]  # fmt: skip
    for name in ("floor", "serial", "binding"):
        assert numpy.array_equal(*(one.array(name) for one in grids))
