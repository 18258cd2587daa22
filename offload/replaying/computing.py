"""What a processor of this machine does for a compute: real reads of as many bytes, and as many FLOP as come with them.

With so few FLOP to a byte that a matrix-vector product has them, or fewer, it is the same matrix-vector read that
`offload measure` times: a number is read once for two FLOP. With more it is a matrix product: what is read is a matrix,
which is multiplied with as many columns as give the FLOP, part by part, so that the result stays in the cache. FLOP
without bytes are products within the cache.

The parts of a product go to whichever thread of a team is free. A library's own threads share each product out evenly
and wait for one another: where something else takes a core for a moment, as a drive's next request does, all wait.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from offload.measure.memory import COLUMNS
from offload.measure.settings import MIB
from offload.measure.threads import bind

PIECE = MIB  # bytes that a thread takes at a time: who is held up leaves more to the others
WIDTH = 1024  # columns of the matrix in a product
SQUARE = 512  # columns of the matrices of FLOP without bytes
ROWS = 128  # of them that a thread takes at a time
FEWEST = 2  # columns of a product; with fewer it is the matrix-vector read
NUMBERS = {"fp32": "float32", "fp64": "float64"}


class Team:
    """Threads that share out pieces of work with the thread that asks. close() ends them.

    count : how many, the asking one included. cpus : processors that they are bound to, one each; () for none. Without,
    after a wait the system often wakes one on the processor of another, which then stands still for a millisecond.
    """

    def __init__(self, count: int, cpus: Sequence[int] = ()):
        self.size, self._cpus, self._asks = max(1, count), cpus, threading.local()
        self._begin = [threading.Semaphore(0) for _ in range(self.size - 1)]
        self._done = threading.Semaphore(0)
        self._work: Callable[[int], None] | None = None
        self._pieces: Any = iter(())
        self._errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._serve, args=(number, cpus[number + 1 : number + 2]), daemon=True)
                         for number in range(self.size - 1)]  # fmt: skip
        for thread in self._threads:
            thread.start()

    def run(self, work: Callable[[int], None], count: int) -> None:
        """work(0) .. work(count - 1), each by whoever is free. Raises what the work raises."""
        main = threading.current_thread() is threading.main_thread()  # the program's, which goes on after us
        if self._cpus and not main and not hasattr(self._asks, "bound"):
            bind(self._cpus[:1])
            self._asks.bound = True
        helpers = self._begin[: max(0, count - 1)]
        self._work, self._pieces, self._errors = work, iter(range(count)), []
        for one in helpers:
            one.release()
        try:
            for piece in self._pieces:
                work(piece)
        finally:
            for _ in helpers:
                self._done.acquire()
        if self._errors:
            raise self._errors[0]

    def close(self) -> None:
        """End the threads."""
        self._work = None
        for one in self._begin:
            one.release()
        for thread in self._threads:
            thread.join()

    def _serve(self, number: int, cpus: Sequence[int]) -> None:
        if cpus:
            bind(cpus)
        while True:
            self._begin[number].acquire()
            if self._work is None:
                return
            try:
                for piece in self._pieces:
                    self._work(piece)
            except BaseException as error:  # told by the thread that asked
                self._errors.append(error)
            self._done.release()


def columns_of(size: int, flops: float, number: int) -> int:
    """Columns that a matrix of `size` bytes, of numbers of so many bytes, is multiplied with for so many FLOP."""
    return max(1, round(flops * number / (2 * size))) if size else 0


class Processor:
    """A processor of this machine: its team and what it keeps at hand to multiply with."""

    def __init__(self, cpus: Sequence[int]):
        from offload.measure.compiled import loops

        self.team, self.loops = Team(len(cpus), cpus), loops()
        self._at_hand: dict[tuple[str, str, tuple[int, ...]], Any] = {}

    def read(self, array: Any, flops: float, kind: str) -> tuple[int, float]:
        """Read all of an array, with about so many FLOP in a format. Gives the bytes and FLOP that it did."""
        import numpy as np

        one = np.dtype(NUMBERS.get(kind, "float32"))
        count = array.nbytes // one.itemsize
        if not count:
            return 0, 0.0
        numbers = array[: count * one.itemsize].view(one)
        columns = columns_of(numbers.nbytes, flops, one.itemsize)
        if columns < FEWEST:
            self._vector(array[: array.nbytes // 4 * 4].view(np.float32))
            done = array.nbytes // 4 * 4
            return done, done / 2
        return numbers.nbytes, self._product(numbers, columns)

    def write(self, array: Any) -> int:
        """Write all of an array but the stamp it begins with, which stays. Gives the bytes."""
        import numpy as np

        count: int = array.nbytes // 8
        if not count:
            return 0
        numbers = array[: count * 8].view(np.float64)
        stamp = float(numbers[0])
        step, rest = PIECE // 8, numbers[1:]  # others may look at the stamp meanwhile
        self.team.run(lambda n: self.loops.write(rest[n * step : (n + 1) * step], 1.5), -(-len(rest) // step))
        numbers[0] = stamp
        return count * 8

    def reckon(self, flops: float, kind: str) -> float:
        """About so many FLOP within the cache. Gives those that it did."""
        import numpy as np

        one = np.dtype(NUMBERS.get(kind, "float32"))
        by = self._kept("by", one, SQUARE, SQUARE)
        rows = round(flops / (2 * SQUARE * SQUARE))

        def piece(number: int) -> None:
            many = min(ROWS, rows - number * ROWS)
            np.matmul(by[:many], by, out=self._own("into", one, ROWS, SQUARE)[:many])

        self.team.run(piece, -(-rows // ROWS))
        return 2.0 * rows * SQUARE * SQUARE

    def copy(self, into: Any, source: Any) -> int:
        """memcpy by all threads. Gives the bytes."""
        import numpy as np

        size: int = min(into.nbytes, source.nbytes)

        def piece(number: int) -> None:
            spot = slice(number * PIECE, min((number + 1) * PIECE, size))
            np.copyto(into[spot], source[spot])

        self.team.run(piece, -(-size // PIECE))
        return size

    def close(self) -> None:
        """End the team."""
        self.team.close()

    def _vector(self, numbers: Any) -> None:
        """The matrix-vector read, in pieces of whole rows, and what is left over as a row of its own."""
        import numpy as np

        rows = len(numbers) // COLUMNS
        x = self._kept("by", np.dtype(np.float32), COLUMNS)
        y = self._kept("into", np.dtype(np.float32), max(rows, 1))
        matrix = numbers[: rows * COLUMNS].reshape(-1, COLUMNS)
        step = max(1, min(PIECE // (4 * COLUMNS), -(-rows // self.team.size)))

        def piece(number: int) -> None:
            spot = slice(number * step, (number + 1) * step)
            self.loops.gemv(y[spot], matrix[spot], x)

        self.team.run(piece, -(-rows // step))
        rest = numbers[rows * COLUMNS :]
        if len(rest):
            self.loops.gemv(y[:1], rest.reshape(1, -1), x[: len(rest)])

    def _product(self, numbers: Any, columns: int) -> float:
        """The matrix product, in pieces of whole rows; what is left over is a row of its own."""
        import numpy as np

        one = numbers.dtype
        rows = len(numbers) // WIDTH
        step = max(1, min(PIECE // (WIDTH * one.itemsize), -(-rows // self.team.size)))
        by = self._kept("by", one, WIDTH, columns)
        matrix = numbers[: rows * WIDTH].reshape(-1, WIDTH)

        def piece(number: int) -> None:
            part = matrix[number * step : (number + 1) * step]
            np.matmul(part, by, out=self._own("into", one, step, columns)[: len(part)])

        self.team.run(piece, -(-rows // step))
        rest = numbers[rows * WIDTH :]
        if len(rest):
            np.matmul(rest.reshape(1, -1), by[: len(rest)], out=self._own("into", one, step, columns)[:1])
        return 2.0 * len(numbers) * columns

    def _own(self, use: str, kind: Any, *shape: int) -> Any:
        """As `_kept`, for this thread alone."""
        return self._kept(f"{use} of {threading.get_ident()}", kind, *shape)

    def _kept(self, use: str, kind: Any, *shape: int) -> Any:
        """An array of ones for a use, that is made once."""
        import numpy as np

        key = (use, kind.name, shape)
        if key not in self._at_hand:
            self._at_hand[key] = np.ones(shape, kind)
        return self._at_hand[key]


def nearest(size: int, flops: float, kind: str) -> float:
    """FLOP that a read of `size` bytes is done with where a plan asks for `flops`."""
    number = 8 if NUMBERS.get(kind) == "float64" else 4
    columns = columns_of(size // number * number, flops, number)
    if columns < FEWEST:
        return size // 4 * 4 / 2
    return 2.0 * (size // number) * columns
