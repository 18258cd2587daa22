"""Grids in chunks: cut anywhere they are the same; what is kept of them is what the whole grid says."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy
import pytest

from offload.errors import OffloadError
from offload.sweeps import Grid, Reduced, sweep
from offload.sweeps.cuts import cut
from offload.sweeps.points import Point
from offload.sweeps.reductions import read_reductions

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
PLAN = EXAMPLES / "llama-3.1-70b-desktop.yaml"
AXES = ("workload.batch=1:12", "placement.weights={hbm0: 10 layers, dram0: rest},{hbm0: 30 layers, dram0: rest}",
        "workload.context=1024,4096,16384", "pcie0.rate=16GB/s:64GB/s:7log")  # fmt: skip
FIGURES = ("floor", "serial", "binding", "spare", "tokens")


@pytest.fixture(scope="module")
def whole() -> Grid:
    return sweep(PLAN, AXES)


@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 4), (5, 1, 9), (2, 3, 4, 5)])
@pytest.mark.parametrize("points", [1, 2, 5, 7, 12, 100, 10_000])
def test_chunks_are_runs_of_the_grid_in_its_order(shape: tuple[int, ...], points: int) -> None:
    cuts = cut(shape, points)
    order = numpy.arange(int(numpy.prod(shape, dtype=int))).reshape(shape)
    pieces = [order[block].ravel() for block in cuts]
    assert len(pieces) == len(cuts)
    assert numpy.concatenate(pieces).tolist() == order.ravel().tolist()
    assert [int(one[0]) for one in pieces] == [cuts.begin(number) for number in range(len(cuts))]
    assert max(one.size for one in pieces) <= points
    with pytest.raises(IndexError):
        cuts[len(cuts)]


@pytest.mark.few
@pytest.mark.parametrize("chunk", [1, 5, 21, 100, 10_000])
def test_a_grid_in_chunks_is_the_same_bits(whole: Grid, chunk: int) -> None:
    if chunk == 1:  # a point each: of a part of the grid
        axes = ("workload.batch=1:12", "pcie0.rate=16GB/s:64GB/s:3log")
        one, other = sweep(PLAN, axes, chunk=1), sweep(PLAN, axes)
    else:
        one, other = sweep(PLAN, AXES, chunk=chunk), whole
    for name in FIGURES:
        assert getattr(one, name).tobytes() == numpy.ascontiguousarray(getattr(other, name)).tobytes(), name
    assert (one.names, one.wrong, one.shape) == (other.names, other.wrong, other.shape)


@pytest.mark.few
@pytest.mark.parametrize("threads", [1, 2])
def test_the_kernel_gives_the_same_bits_in_chunks(whole: Grid, threads: int) -> None:
    found = sweep(PLAN, AXES, chunk=100, compiled=True, threads=threads)
    for name in FIGURES:
        assert getattr(found, name).tobytes() == numpy.ascontiguousarray(getattr(whole, name)).tobytes(), name


def test_steps_that_cannot_be_made_are_told_by_point_in_chunks_too() -> None:
    axes = ("placement.weights.hbm0=10 layers,70 layers,90 layers", "workload.batch=1:5")
    one, other = sweep(PLAN, axes, chunk=4), sweep(PLAN, axes)
    assert other.wrong and one.wrong == other.wrong
    assert one.causes.tolist() == other.causes.tolist()
    assert numpy.array_equal(one.floor, other.floor, equal_nan=True) and numpy.isnan(one.floor).any()


def _first(points: list[Point]) -> list[Point]:
    """Without points that are equal in floor and spare to one before them."""
    seen: dict[tuple[float | None, ...], Point] = {}
    for point in sorted(points, key=lambda one: one.place):
        seen.setdefault((point.floor, point.spare), point)
    return sorted(seen.values(), key=lambda one: (one.floor, one.place))


def _bare(points: list[Point] | tuple[Point, ...]) -> list[tuple[object, ...]]:
    return [(one.place, one.values, one.floor, one.spare, one.tokens_per_s, one.binding, one.fits) for one in points]


@pytest.mark.few
@pytest.mark.parametrize("chunk", [13, 84, 100_000])
def test_reductions_say_what_the_whole_grid_says(whole: Grid, chunk: int) -> None:
    found = sweep(PLAN, AXES, chunk=chunk, reduce=["best=9", "pareto=floor:spare", "binding", "min=batch"])
    assert isinstance(found, Reduced)
    best, front, least = (_bare(points) for points in found.answers.values())
    assert best == _bare(whole.best(9))
    assert front == _bare(_first(whole.pareto("floor", "spare")))
    summary = whole.summary()
    assert (found.size, found.made, found.fit, found.binds) == (whole.size, summary.made, summary.fit, summary.binds)
    due = []
    for at in range(12):
        points = [whole.point((at, *rest)) for rest in product(*map(range, whole.shape[1:]))]
        points = [point for point in points if point.fits]
        if points:
            due.append(min(points, key=lambda one: (one.floor, one.place)))
    assert least == _bare(due) and 0 < len(due)


@pytest.mark.few
@pytest.mark.parametrize("axis", range(4))
@pytest.mark.parametrize("by", ["floor", "serial", "tokens_per_s", "spare"])
def test_the_least_along_an_axis_is_that_of_the_whole_grid(whole: Grid, axis: int, by: str) -> None:
    found = sweep(PLAN, AXES, chunk=30, reduce=[f"min={whole.axes[axis].path}"], by=by)
    [points] = found.answers.values()
    sign = -1 if by in ("tokens_per_s", "spare") else 1
    signed = numpy.where(whole.fits, sign * whole.figure(by), numpy.inf)
    lines = numpy.moveaxis(signed, axis, 0).reshape(signed.shape[axis], -1)
    assert [sign * getattr(point, by) for point in points] == [one for one in lines.min(axis=1) if one < numpy.inf]
    for point in points:
        firsts = [at for at in numpy.ndindex(whole.shape) if at[axis] == point.place[axis]
                  and signed[at] == sign * getattr(point, by)]  # fmt: skip
        assert firsts[0] == point.place


def test_many_equal_points_are_told_by_their_first() -> None:
    """An axis that nothing depends on: all its values are as good."""
    axes = ("workload.batch=1:3", "m2.rate=3GB/s:8GB/s:3000")
    found = sweep(PLAN, axes, reduce=["best=5", "pareto=floor:spare"], chunk=2000)
    best, front = found.answers.values()
    assert [one.place for one in best] == [(0, at) for at in range(5)]
    assert [one.place[1] for one in front] == [0] * len(front)


@pytest.mark.parametrize(("text", "told"), [
    ("bset=3", 'Did you mean "best"'), ("best=0", "no number of points"), ("best=many", "no number of points"),
    ("binding=3", "takes no value"), ("min=batches", "no axis is called"), ("pareto=floor:spar", "no axis is called"),
    ("pareto=floor:placement.weights", "has no order"),
])  # fmt: skip
def test_what_is_no_reduction_is_told(whole: Grid, text: str, told: str) -> None:
    with pytest.raises(OffloadError, match=told):
        read_reductions([text], whole.axes)


def test_a_reduction_named_twice_is_refused(whole: Grid) -> None:
    with pytest.raises(OffloadError, match="twice"):
        sweep(PLAN, AXES, reduce=["best=3", "best=3"])


def test_a_grid_that_memory_does_not_hold_is_refused_at_once() -> None:
    with pytest.raises(OffloadError, match="GiB of memory.*--reduce"):
        sweep(PLAN, ["workload.batch=1:100000", "pcie0.rate=1GB/s:64GB/s:1000000"])
