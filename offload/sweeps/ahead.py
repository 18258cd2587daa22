"""The seconds of streamed layers at the points of a grid, from a trace: what `prefetching` is given at each point."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy

from offload.prefetching import Prefetching
from offload.replay import Replay
from offload.sweeps.cuts import cut
from offload.sweeps.program import Points
from offload.tracing import Trace, Traced

FEW_POINTS = 300  # below, plain evaluations are done before a compiled kernel is read from the disk
FEW_BEFORE = 6_000  # the same where it was never compiled on this machine, which takes half a minute
HELD = 2**24  # numbers that go into a kernel at a time


def layers_of(trace: Trace, seconds: Any) -> Prefetching | None:
    """The layers whose seconds a traced number is; None of any other number."""
    if not isinstance(seconds, Traced):
        return None
    operation, *operands = trace.nodes[seconds.node]
    return operands[0] if operation == "call" and isinstance(operands[0], Prefetching) else None


def seconds_of_layers(
    trace: Trace, seconds: Any, grid: Points, *, compiled: bool | None = None, threads: int = 2,
    into: numpy.ndarray | None = None,
) -> numpy.ndarray:
    """A number of which `layers_of` knows the layers, at all points [s].

    compiled : as `sweep` has it. into : an array of the grid's shape that gets them.
    """
    if not grid.shape or compiled is False or compiled is None and _few(prod(grid.shape)):
        plainly = numpy.broadcast_to(Replay(trace, grid.inputs()).value(seconds), grid.shape)
        if into is None:
            return plainly
        into[...] = plainly
        return into
    _, layers, *numbers = trace.nodes[seconds.node]
    longest = max(range(len(grid.shape)), key=lambda axis: (grid.shape[axis], axis))
    order = [*(axis for axis in range(len(grid.shape)) if axis != longest), longest]
    turned = Points(tuple(grid.names[axis] for axis in order), tuple(grid.values[axis] for axis in order))
    into = numpy.empty(turned.shape).transpose(numpy.argsort(order)) if into is None else into
    found = into.transpose(order)
    for block in cut(turned.shape, _many(trace, numbers, turned)):
        _fill(trace, layers, numbers, turned.part(block), found[block], threads)
    return into


def _few(points: int) -> bool:
    """Whether plain evaluations are done before the kernel is."""
    if points < FEW_POINTS or points >= FEW_BEFORE:
        return points < FEW_POINTS
    from offload.sweeps.machine_code import compiled_before

    return not compiled_before("kernels_overlapped")


def _many(trace: Trace, numbers: list[Any], grid: Points) -> int:
    """Points at a time: all of them where the numbers vary along few axes each, and so are few."""
    reached, points = trace.reached(), prod(grid.shape)
    held = sum(prod(len(values) for name, values in zip(grid.names, grid.values, strict=True)
                    if name in reached[one[0]]) for one in set(numbers) if isinstance(one, tuple))  # fmt: skip
    return points if held <= HELD else max(1, points * HELD // held)


def _fill(
    trace: Trace, layers: Prefetching, numbers: list[Any], grid: Points, found: numpy.ndarray, threads: int
) -> None:
    from offload.sweeps.machine_code import running

    replay, dimensions = Replay(trace, grid.inputs()), len(grid.shape)
    place: dict[Any, int] = {}
    arrays: list[numpy.ndarray] = []
    for one in numbers:
        if one not in place:
            array = numpy.asarray(replay._of(one), dtype=numpy.float64)
            place[one] = len(arrays)
            arrays.append(array.reshape((1,) * (dimensions - array.ndim) + array.shape))
    offsets, strides, at = [], [], 0
    for array in arrays:
        offsets.append(at)
        at += array.size
        steps, step = [0] * dimensions, 1
        for axis in range(dimensions - 1, -1, -1):
            steps[axis] = 0 if array.shape[axis] == 1 else step
            step *= array.shape[axis]
        strides.append(steps)
    entries, given = [], iter(numbers)
    for lane, uses in enumerate((layers.fetch_uses, layers.compute_uses)):
        for kind, names in enumerate(uses):
            entries += [(lane, kind, name, place[next(given)]) for name in (-1, *names)]
    *outer, inner = grid.shape
    rows = prod(outer)
    strides_of = numpy.array(strides, dtype=numpy.int64).reshape(len(arrays), dimensions)
    whole = found if found.flags.c_contiguous else numpy.empty(found.shape)
    windows = list(layers.windows)
    with running(threads or 2, "kernels_overlapped") as kernels:
        kernels.run(
            _whole(layers.fetches), _whole(layers.computes), layers.buffers, layers.barrier_only, layers.repeats,
            layers.resources, _whole(entries), _whole([(*pair, count) for pair, count in layers.pairs.items()]),
            _whole([compute for compute, _ in windows]),
            numpy.array([beside for _, beside in windows], dtype=numpy.float64), _whole(layers.window_of_layer),
            *(numpy.array(one, dtype=numpy.float64) for one in layers.counts()),
            *(numpy.array([[name in names for name in range(layers.resources)] for names in uses])
              for uses in (layers.fetch_uses, layers.compute_uses)), strides_of[:, -1] != 0,
            numpy.concatenate([array.ravel() for array in arrays]), _whole(offsets),
            numpy.ascontiguousarray(strides_of[:, :-1]), numpy.array(outer, dtype=numpy.int64), inner,
            whole.reshape(rows, inner), max(1, min(rows, 16 * (threads or 2))),
        )  # fmt: skip
    if whole is not found:
        found[...] = whole


def _whole(numbers: Any) -> numpy.ndarray:
    return numpy.array(numbers, dtype=numpy.int64)
