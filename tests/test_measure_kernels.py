"""The loops that memory is measured with: bytes counted one by one, results, threads."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

from offload.measure import memory, threads
from offload.measure.compiled import loops
from offload.measure.figures import Budget, Collected
from offload.measure.memory import COLUMNS, KERNELS, LEAST, PAGE, ROW, WORD, Arrays, Kernel, Node, array_bytes
from offload.measure.memory import measure_memory as measure
from offload.measure.settings import QUICK, THOROUGH
from offload.measure.threads import counts, parts, timed
from tests.measuring import small


class Counting:
    """An array that counts the bytes that are read from and written to it."""

    def __init__(self, array):
        self.array, self.read, self.written = array, 0, 0
        self.shape = array.shape

    def __getitem__(self, place):
        self.read += self.array.itemsize
        return self.array[place]

    def __setitem__(self, place, value):
        self.written += self.array.itemsize
        self.array[place] = value


def counted(name: str, elements: int) -> tuple[int, int]:
    """Bytes that a loop reads and writes, by its own text, over an array of so many elements of 8 bytes."""
    a, b, c = (Counting(np.ones(elements)) for _ in range(3))
    if name == "read":
        whole = Counting(np.ones(elements, np.int64))
        loops().read.py_func(whole)
        return whole.read, whole.written
    if name == "write":
        loops().write.py_func(a, 2.0)
        return a.read, a.written
    if name == "copy":
        loops().copy.py_func(a, b)
        return a.read + b.read, a.written + b.written
    if name.startswith("triad"):
        {"triad": loops().triad, "triad by line": loops().triad_by_line}[name].py_func(a, b, c, 3.0)
        return a.read + b.read + c.read, a.written + b.written + c.written
    rows = elements * WORD // (4 * COLUMNS)
    y, w = Counting(np.zeros(rows, np.float32)), Counting(np.ones((rows, COLUMNS), np.float32))
    loops().gemv.py_func(y, w, np.ones(COLUMNS, np.float32))
    return w.read + y.read, w.written + y.written


@pytest.mark.parametrize("kernel", [one for one in KERNELS if one.name != "memcpy"], ids=lambda one: one.name)
def test_a_loop_moves_the_bytes_that_are_counted(kernel):
    elements = 2 * COLUMNS
    read, written = counted(kernel.name, elements)
    assert read + written == kernel.bytes_of(elements)
    if not kernel.matrix:
        assert (read, written) == (elements * WORD * kernel.reads, elements * WORD * kernel.writes)


def test_what_is_counted_of_an_array():
    of = {one.name: one.bytes_of(2**20) for one in KERNELS}
    matrix = 2**23 + 4 * 2**23 // (4 * COLUMNS)
    assert of == {"read": 2**23, "write": 2**23, "copy": 2**24, "memcpy": 2**24, "triad": 3 * 2**23,
                  "triad by line": 3 * 2**23, "matrix-vector": matrix}  # fmt: skip


def test_compiled_loops_do_what_their_text_says():
    draw = np.random.default_rng(3)
    b, c, whole = draw.random(5000), draw.random(5000), draw.integers(-(2**62), 2**62, 5000)
    a = np.zeros(5000)
    with np.errstate(over="ignore"):
        assert loops().read(whole) == whole.sum()
    loops().copy(a, b)
    assert (a == b).all()
    for length in (5000, 4999, 3):
        for triad in (loops().triad, loops().triad_by_line):
            a[:] = 0
            triad(a[:length], b[:length], c[:length], 3.0)
            assert np.allclose(a[:length], (b + 3.0 * c)[:length], rtol=1e-15) and not a[length:].any()
    loops().write(a, 7.0)
    assert (a == 7.0).all()
    w, x, y = draw.random((3, COLUMNS), np.float32), draw.random(COLUMNS, np.float32), np.zeros(3, np.float32)
    loops().gemv(y, w, x)
    assert np.allclose(y, w @ x, rtol=1e-4)


def test_multiply_adds_are_sixteen_flop_each():
    class Number:
        flop = 0

        def __mul__(self, other):
            Number.flop += 1
            return self

        __add__ = __mul__

    loops().multiply_add.py_func(np.array([Number() for _ in range(5)]), 3, 1.0, 1.0)
    assert Number.flop == 16 * 5 * 3


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_share_an_array_without_gap_or_overlap(threads):
    arrays = Arrays(5 * PAGE, [0], 60.0)
    for kernel in KERNELS:
        work, moved = arrays.work(kernel, threads)
        assert moved == kernel.bytes_of(5 * PAGE)
        for number in range(threads):
            work(number)
    assert (arrays.a == 2.0 + 3.0 * 0.5).all()  # triad, the last that wrote
    arrays.a[:] = 0
    for number in range(threads):
        arrays.work(next(one for one in KERNELS if one.name == "memcpy"), threads)[0](number)
    assert (arrays.a == arrays.b).all()


def test_arrays_are_touched_whole_and_no_more_than_the_time_allows():
    full = Arrays(3 * LEAST // WORD + 5, [0], 60.0)
    assert full.elements == 3 * LEAST // WORD + 5
    assert (full.a == 1.0).all() and (full.b == 2.0).all() and (full.c == 0.5).all()
    ticks = iter(range(100))
    cut = Arrays(8 * LEAST // WORD, [0], 2.5, clock=lambda: float(next(ticks)))
    assert cut.elements == 3 * LEAST // WORD
    assert (cut.a[: cut.elements] == 1.0).all()


def test_parts_cover_whole_units():
    assert parts(10, 3) == [slice(0, 3), slice(3, 6), slice(6, 10)]
    assert parts(11, 2, 4) == [slice(0, 4), slice(4, 8)]
    assert parts(0, 2) == [slice(0, 0), slice(0, 0)]


def test_numbers_of_threads():
    assert counts(1, True) == [1]
    assert counts(6, True) == [1, 2, 4, 6]
    assert counts(6, False) == [1, 6]


def test_threads_begin_together_and_each_repeat_is_timed():
    together = threading.Barrier(3)
    calls = []

    def work(number):
        together.wait(10)  # would not come back if one ran after another
        calls.append(number)

    seconds = timed([0, 0, 0], work, 4)
    assert len(seconds) == 4 and min(seconds) > 0
    assert sorted(calls) == sorted([0, 1, 2] * 5)


def test_a_run_makes_as_many_passes_as_it_takes(monkeypatch):
    calls = []
    monkeypatch.setattr(threads.time, "perf_counter", lambda: float(len(calls)))
    seconds = threads.repeated([0], lambda number: calls.append(number), 3, 4.5)
    assert seconds == [1.0, 1.0, 1.0] and len(calls) == 2 + 3 * 5


def test_an_error_in_a_thread_is_raised_and_holds_nobody():
    def work(number):
        if number == 1:
            raise MemoryError("no")

    with pytest.raises(MemoryError):
        timed([0, 0, 0], work, 2)


def test_array_sizes():
    node = Node(0, (0,), 2**40)
    assert array_bytes(replace(node, cache=2**25), THOROUGH) == 2**27
    assert array_bytes(replace(node, cache=2**20), THOROUGH) == 4 * LEAST
    assert array_bytes(node, QUICK) == 2**28  # no size of a cache is told
    assert array_bytes(replace(node, cache=2**40), QUICK) == QUICK.array
    assert array_bytes(Node(0, (0,), 24 * 2**26, 2**40), THOROUGH) == 2**26


@pytest.mark.parametrize("threads", [3, 24, 48, 128])
def test_threads_have_parts_of_nearly_one_size_also_of_the_least_array(threads):
    cut = [one.stop - one.start for one in parts(4 * LEAST // WORD, threads, ROW)]
    assert max(cut) <= 1.04 * min(cut) and all(one % ROW == 0 for one in cut)


def test_memory_of_two_nodes_by_its_own_and_by_the_other_ones_processors():
    told = Collected()
    measure([Node(0, (0,), 2**33), Node(1, (0,), 2**33), Node(2, (), 2**33)], small(every_count=True), told,
            Budget(None), lambda text: None)  # fmt: skip
    ends = {(one.source, one.destination, one.access, one.note) for one in told.figures}
    for node in ("numa0", "numa1"):
        assert {(node, node, one.access, one.name) for one in KERNELS} <= ends
    across = {one for one in ends if one[0] != one[1]}
    assert across == {("numa0", "numa1", "read", "read"), ("numa1", "numa0", "read", "read"),
                      ("numa1", "numa0", "write", "write"), ("numa0", "numa1", "write", "write")}  # fmt: skip
    assert all(len(one.repeats) == 2 and one.threads == 1 and one.low <= one.value <= one.high for one in told.figures)
    assert any("NUMA node 2: no processor" in one for one in told.missing)


def test_too_little_memory_is_told():
    told = Collected()
    measure([Node(0, (0,), 2**20)], QUICK, told, Budget(None), lambda text: None)
    assert not told.figures
    assert "1.05 MB" in next(iter(told.missing)) and "close other programs" in next(iter(told.missing))


def test_arrays_that_fit_the_cache_are_doubted():
    told = Collected()
    measure([Node(0, (0,), 2**33, 2**28)], small(), told, Budget(None), lambda text: None)
    assert any("less than twice the last cache of 268 MB" in one for one in told.warnings)
    measure([Node(0, (0,), 2**33)], small(), told, Budget(None), lambda text: None)
    assert any("how large the caches are is not told" in one for one in told.warnings)


def test_memory_that_the_system_refuses_is_told(monkeypatch):
    def refused(*given):
        raise MemoryError

    monkeypatch.setattr(memory, "Arrays", refused)
    told = Collected()
    measure([Node(0, (0,), 2**33)], small(), told, Budget(None), lambda text: None)
    assert not told.figures and any("refused by the system" in one for one in told.missing)


def test_what_no_time_is_left_for_is_told_and_the_main_figures_are_there():
    times = iter([0.0] + [100.0] * 1000)
    told = Collected()
    measure([Node(0, (0, 0), 2**33)], small(), told, Budget(1.0, lambda: next(times)), lambda text: None)
    assert {one.note for one in told.figures} == {one.name for one in KERNELS}
    assert all(one.threads == 2 for one in told.figures)
    assert all("no time was left" in one for one in told.missing) and len(told.missing) == 2


def test_a_kernel_that_is_none_has_no_bytes():
    assert Kernel("nothing", 0, 0, "").bytes_of(10) == 0
