"""Host memory: how fast a NUMA node's is read, written and copied, from its own processors and from those of others.

Arrays are touched first by threads of the node whose memory is meant, so that the system puts them there. What is
counted are the bytes that a loop reads and writes, as STREAM counts them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from offload.measure.figures import Budget, Collected, Figure, Tell
from offload.measure.settings import MIB, Settings
from offload.measure.threads import counts, parts, repeated, timed
from offload.units import format_bytes, format_bytes_both

WORD, COLUMNS = 8, 4096  # bytes of an element; columns of the matrix-vector read, of 4 bytes
SHARE = 8  # the arrays together take no more than this part of the free memory
LEAST = 16 * MIB  # of an array, or nothing is measured
UNKNOWN_CACHE = 128 * MIB  # taken where no size is told
PAGE = 2**21 // WORD  # elements of a large page, on which arrays begin
ROW = 4 * COLUMNS // WORD  # elements of a row of the matrix: threads' parts are whole ones, so that they are alike


@dataclass(frozen=True, slots=True)
class Kernel:
    """A loop: elements of 8 bytes that it reads and writes for each one of its array, and the kind of access.

    matrix : its array is a matrix of 4-byte numbers, of which a row's sum is written too.
    """

    name: str
    reads: int
    writes: int
    access: str
    matrix: bool = False

    def bytes_of(self, elements: int) -> int:
        """Bytes that it moves over an array of so many elements of 8 bytes."""
        if self.matrix:
            rows = elements * WORD // (4 * COLUMNS)
            return rows * COLUMNS * 4 + rows * 4
        return elements * WORD * (self.reads + self.writes)


KERNELS = (
    Kernel("read", 1, 0, "read"),
    Kernel("write", 0, 1, "write"),
    Kernel("copy", 1, 1, "copy"),
    Kernel("memcpy", 1, 1, "copy"),
    Kernel("triad", 2, 1, "mixed"),
    Kernel("triad by line", 2, 1, "mixed"),
    Kernel("matrix-vector", 1, 0, "gemv", matrix=True),
)
ACROSS = ("read", "write")
FEW = ("read", "triad")  # by one thread, in a quick measurement


@dataclass(frozen=True, slots=True)
class Node:
    """A NUMA node: its number, the processors of it that may be used, bytes of its memory that are free, and of all the
    last caches of those processors (0: not known)."""

    number: int
    cpus: tuple[int, ...]
    free: int
    cache: int = 0


class Arrays:
    """Three arrays of one node's memory, touched first by its own threads; `elements` of 8 bytes each: as many as were
    asked for, less where memory is handed out too slowly for the time that may be spent on it.
    """

    def __init__(self, elements: int, cpus: Sequence[int], seconds: float, clock: Callable[[], float] = time.monotonic):
        self.a, self.b, self.c = (aligned(elements) for _ in range(3))
        step, self.elements, end = LEAST // WORD, 0, clock() + seconds
        while self.elements < elements and (not self.elements or clock() < end):
            first = self.elements
            self.elements = min(elements, first + step)
            cut = parts(self.elements - first, len(cpus), ROW)

            def touch(number: int, first: int = first, cut: list[slice] = cut) -> None:
                last = number == len(cut) - 1
                spot = slice(first + cut[number].start, self.elements if last else first + cut[number].stop)
                self.a[spot], self.b[spot], self.c[spot] = 1.0, 2.0, 0.5

            timed(cpus, touch, 1, warm=False)

    def work(self, kernel: Kernel, count: int) -> tuple[Callable[[int], object], int]:
        """The loop over a thread's part, and the bytes that all of them move."""
        import numpy as np

        from offload.measure.compiled import loops

        compiled, cut = loops(), parts(self.elements, count, ROW)
        moved = sum(kernel.bytes_of(one.stop - one.start) for one in cut)
        a, b, c = self.a, self.b, self.c
        if kernel.matrix:
            x = np.ones(COLUMNS, np.float32)
            matrices = [b[one].view(np.float32).reshape(-1, COLUMNS) for one in cut]
            sums = [np.empty(len(one), np.float32) for one in matrices]
            return lambda number: compiled.gemv(sums[number], matrices[number], x), moved
        tasks: dict[str, Callable[[slice], Any]] = {
            "read": lambda part: compiled.read(b[part].view(np.int64)),
            "write": lambda part: compiled.write(a[part], 1.5),
            "copy": lambda part: compiled.copy(a[part], b[part]),
            "memcpy": lambda part: np.copyto(a[part], b[part]),
            "triad": lambda part: compiled.triad(a[part], b[part], c[part], 3.0),
            "triad by line": lambda part: compiled.triad_by_line(a[part], b[part], c[part], 3.0),
        }
        task = tasks[kernel.name]
        return lambda number: task(cut[number]), moved


def aligned(elements: int) -> Any:
    """An array of 8-byte numbers that begins on a large page: what begins within a line of a cache is slower."""
    import numpy as np

    whole = np.empty(elements + PAGE)
    begin = -whole.ctypes.data % (PAGE * WORD) // WORD
    return whole[begin : begin + elements]


def array_bytes(node: Node, settings: Settings) -> int:
    """Bytes of one array: several times the last caches, but all three no more than a part of the free memory."""
    wanted = max(int(settings.caches * (node.cache or UNKNOWN_CACHE)), 4 * LEAST)
    allowed = min(node.free // (3 * SHARE), settings.array)
    return min(wanted, allowed) // (PAGE * WORD) * PAGE * WORD


def measure_memory(
    nodes: Sequence[Node], settings: Settings, collected: Collected, budget: Budget, tell: Tell
) -> None:
    """Every loop on every node by its own processors, and reads and writes from other nodes.

    A node none of whose processors may be used is not measured. Raises nothing: what cannot be measured is told.
    """
    with_cpus = [one for one in nodes if one.cpus]
    for node in nodes:
        size = array_bytes(node, settings)
        name = f"memory of NUMA node {node.number}"
        if size < LEAST:
            collected.left_out(name, f"{format_bytes_both(node.free)} are free, too few for three arrays of "
                                     f"{format_bytes(LEAST)}; close other programs")  # fmt: skip
            continue
        if not node.cpus:
            collected.left_out(name, "no processor of this node may be used, so that nothing is placed there")
            continue
        try:
            tell(f"{name}: touching three arrays of {format_bytes(size)}")
            arrays = Arrays(size // WORD, node.cpus, settings.touch / len(nodes))
            size = arrays.elements * WORD
            if not node.cache:
                collected.warn(f"{name}: how large the caches are is not told; arrays of {format_bytes(size)} may lie "
                               "in them in part")  # fmt: skip
            elif size < 2 * node.cache:
                collected.warn(f"{name}: arrays of {format_bytes(size)}, less than twice the last cache of "
                               f"{format_bytes(node.cache)}: figures may count what the cache serves")  # fmt: skip
            for count in reversed(counts(len(node.cpus), settings.every_count)):
                for kernel in KERNELS:
                    if count < len(node.cpus) and not settings.every_count and kernel.name not in FEW:
                        continue
                    _one(arrays, node, node.cpus[:count], kernel, node.number, settings, collected, budget, tell)
            for other in with_cpus:
                if other.number != node.number:
                    for kernel in KERNELS:
                        if kernel.name in ACROSS:
                            _one(arrays, node, other.cpus, kernel, other.number, settings, collected, budget, tell)
        except MemoryError:
            collected.left_out(name, f"three arrays of {format_bytes(size)} are refused by the system")


def _one(
    arrays: Arrays, node: Node, cpus: Sequence[int], kernel: Kernel, user: int, settings: Settings,
    collected: Collected, budget: Budget, tell: Tell,
) -> None:  # fmt: skip
    threads = "1 thread" if len(cpus) == 1 else f"{len(cpus)} threads"
    far = "" if user == node.number else f" from node {user}"
    what = f"memory of NUMA node {node.number}{far}, {kernel.name}, {threads}"
    essential = user == node.number and len(cpus) == len(node.cpus)
    if not essential and not budget.left():
        return collected.left_out(what, "no time was left; measure without --quick")
    tell(what)
    work, moved = arrays.work(kernel, len(cpus))
    seconds = repeated(cpus, work, settings.repeats, settings.memory_run)
    own, theirs = f"numa{node.number}", f"numa{user}"
    ends = (theirs, own) if kernel.name == "write" else (own, theirs)
    collected.add(Figure("memory", *ends, tuple(moved / one for one in seconds), kernel.access, threads=len(cpus),
                         size=arrays.elements * WORD, note=kernel.name))  # fmt: skip
    return None
