"""GPUs as a replay uses them: the small interface that measuring has, with products, and an end of each queue alone.

A copy or a product has only begun when its call returns; it has ended when `ended` of its stream returns.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol

from offload.measure.figures import Collected
from offload.measure.gpu_libraries import CupyGpus, TorchGpus, find_gpus
from offload.measure.gpus import Gpus

COLUMNS = 4096  # of the matrix that a buffer holds, of 2-byte numbers
NUMBER = 2  # bytes


class Devices(Gpus, Protocol):
    """`Gpus` with what a replay needs besides. Every method may raise RuntimeError."""

    def view(self, host: Any) -> Any:
        """A buffer of host memory as NumPy bytes, the same memory."""

    def multiply(self, gpu: int, buffer: Any, vectors: int, stream: Any) -> float:
        """Begin the product of the matrix that a buffer holds, in 16 bits, with so many vectors. Gives its FLOP."""

    def ended(self, stream: Any) -> None:
        """Until all that was begun on a stream has ended."""


def shape_of(size: int) -> tuple[int, int]:
    """Rows and columns of the matrix of 2-byte numbers in so many bytes; what is left over belongs to none."""
    numbers = size // NUMBER
    columns = min(COLUMNS, numbers)
    return (numbers // columns, columns) if columns else (0, 0)


class TorchDevices(TorchGpus):
    """torch."""

    def __init__(self, torch: Any):
        super().__init__(torch)
        self._beside: dict[Any, Any] = {}

    def view(self, host: Any) -> Any:
        return host.numpy()

    def multiply(self, gpu: int, buffer: Any, vectors: int, stream: Any) -> float:
        rows, columns = shape_of(buffer.numel())
        half = self.torch.float16
        key = (gpu, rows, columns, vectors, id(stream))
        with self.torch.cuda.stream(stream):
            if key not in self._beside:
                made = [self.torch.ones(shape, dtype=half, device=f"cuda:{gpu}") for shape in
                        ((columns, vectors), (rows, vectors))]  # fmt: skip
                self._beside[key] = (*made, stream)
            by, into, _ = self._beside[key]
            matrix = buffer[: rows * columns * NUMBER].view(half).view(rows, columns)
            self.torch.matmul(matrix, by, out=into)
        return 2.0 * rows * columns * vectors

    def ended(self, stream: Any) -> None:
        stream.synchronize()


class CupyDevices(CupyGpus):
    """cupy."""

    def __init__(self, cupy: Any, numpy: Any):
        super().__init__(cupy, numpy)
        self._beside: dict[Any, Any] = {}

    def view(self, host: Any) -> Any:
        return host

    def multiply(self, gpu: int, buffer: Any, vectors: int, stream: Any) -> float:
        rows, columns = shape_of(buffer.nbytes)
        half = self.cupy.float16
        key = (gpu, rows, columns, vectors, id(stream))
        with self.cupy.cuda.Device(gpu), stream:
            if key not in self._beside:
                made = [self.cupy.ones(shape, half) for shape in ((columns, vectors), (rows, vectors))]
                self._beside[key] = (*made, stream)
            by, into, _ = self._beside[key]
            self.cupy.matmul(buffer[: rows * columns * NUMBER].view(half).reshape(rows, columns), by, out=into)
        return 2.0 * rows * columns * vectors

    def ended(self, stream: Any) -> None:
        stream.synchronize()


def find_devices(collected: Collected) -> Devices | None:
    """What drives the GPUs here, None where nothing does; why stands among what is not measured."""
    found = find_gpus(collected)
    if isinstance(found, TorchGpus):
        return TorchDevices(found.torch)
    if isinstance(found, CupyGpus):
        return CupyDevices(found.cupy, import_module("numpy"))
    return None
