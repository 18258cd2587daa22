"""What drives GPUs, where it is installed: torch, cupy; the program nvbandwidth, whose output is read.

Imported where a GPU was found. Devices are counted by their place on PCIe, as nvidia-smi counts them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from offload.errors import OffloadError
from offload.measure.figures import Collected, Figure
from offload.measure.gpus import Gpus
from offload.readers.tools import nvbandwidth
from offload.readers.tools.text import clean


class TorchGpus:
    """torch.cuda, which drives AMD's GPUs too. torch : the module."""

    def __init__(self, torch: Any):
        self.torch, self.tool = torch, f"torch {torch.__version__}"

    def count(self) -> int:
        return int(self.torch.cuda.device_count())

    def model(self, gpu: int) -> str:
        return str(self.torch.cuda.get_device_name(gpu))

    def free(self, gpu: int) -> int:
        return int(self.torch.cuda.mem_get_info(gpu)[0])

    def host(self, size: int, pinned: bool) -> Any:
        return self.torch.ones(size, dtype=self.torch.uint8, pin_memory=pinned)

    def device(self, gpu: int, size: int) -> Any:
        return self.torch.ones(size, dtype=self.torch.uint8, device=f"cuda:{gpu}")

    def part(self, buffer: Any, size: int) -> Any:
        return buffer[:size]

    def stream(self, gpu: int) -> Any:
        return self.torch.cuda.Stream(device=gpu)

    def copy(self, into: Any, source: Any, stream: Any) -> None:
        with self.torch.cuda.stream(stream):
            into.copy_(source, non_blocking=True)

    def add(self, into: Any, one: Any, other: Any, stream: Any) -> None:
        wide = self.torch.int32
        with self.torch.cuda.stream(stream):
            self.torch.add(one.view(wide), other.view(wide), out=into.view(wide))

    def reaches(self, gpu: int, other: int) -> bool:
        return bool(self.torch.cuda.can_device_access_peer(gpu, other))

    def wait(self, gpu: int) -> None:
        self.torch.cuda.synchronize(gpu)

    def release(self) -> None:
        self.torch.cuda.empty_cache()


class CupyGpus:
    """cupy. cupy, numpy : the modules."""

    def __init__(self, cupy: Any, numpy: Any):
        self.cupy, self.numpy, self.tool = cupy, numpy, f"cupy {cupy.__version__}"

    def count(self) -> int:
        return int(self.cupy.cuda.runtime.getDeviceCount())

    def model(self, gpu: int) -> str:
        name = self.cupy.cuda.runtime.getDeviceProperties(gpu)["name"]
        return name.decode(errors="replace") if isinstance(name, bytes) else str(name)

    def free(self, gpu: int) -> int:
        with self.cupy.cuda.Device(gpu):
            return int(self.cupy.cuda.runtime.memGetInfo()[0])

    def host(self, size: int, pinned: bool) -> Any:
        if not pinned:
            return self.numpy.ones(size, self.numpy.uint8)
        memory = self.cupy.cuda.alloc_pinned_memory(size)
        found = self.numpy.frombuffer(memory, self.numpy.uint8, size)
        found[:] = 1
        return found

    def device(self, gpu: int, size: int) -> Any:
        with self.cupy.cuda.Device(gpu):
            return self.cupy.ones(size, self.cupy.uint8)

    def part(self, buffer: Any, size: int) -> Any:
        return buffer[:size]

    def stream(self, gpu: int) -> Any:
        with self.cupy.cuda.Device(gpu):
            return self.cupy.cuda.Stream(non_blocking=True)

    def copy(self, into: Any, source: Any, stream: Any) -> None:
        here, there = (isinstance(one, self.numpy.ndarray) for one in (source, into))
        runtime = self.cupy.cuda.runtime
        kind = {(True, False): runtime.memcpyHostToDevice, (False, True): runtime.memcpyDeviceToHost,
                (False, False): runtime.memcpyDeviceToDevice}[here, there]  # fmt: skip
        to, of = (one.ctypes.data if host else one.data.ptr for one, host in ((into, there), (source, here)))
        if not here and not there and into.device.id != source.device.id:
            runtime.memcpyPeerAsync(to, into.device.id, of, source.device.id, source.nbytes, stream.ptr)
        else:
            runtime.memcpyAsync(to, of, source.nbytes, kind, stream.ptr)

    def add(self, into: Any, one: Any, other: Any, stream: Any) -> None:
        wide = self.cupy.int32
        with into.device, stream:
            self.cupy.add(one.view(wide), other.view(wide), out=into.view(wide))

    def reaches(self, gpu: int, other: int) -> bool:
        return bool(self.cupy.cuda.runtime.deviceCanAccessPeer(gpu, other))

    def wait(self, gpu: int) -> None:
        with self.cupy.cuda.Device(gpu):
            self.cupy.cuda.runtime.deviceSynchronize()

    def release(self) -> None:
        self.cupy.get_default_memory_pool().free_all_blocks()
        self.cupy.get_default_pinned_memory_pool().free_all_blocks()


def find_gpus(collected: Collected, load: Callable[[str], Any] | None = None) -> Gpus | None:
    """What drives the GPUs here: torch, else cupy; None where neither is installed or sees one, which is told.

    load : gives a module by its name, or None where it is not installed.
    """
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    if hidden := os.environ.get("CUDA_VISIBLE_DEVICES"):
        collected.warn(f"CUDA_VISIBLE_DEVICES is {hidden}: the GPUs that are measured may be numbered otherwise than "
                       "those of the topology. Unset it")  # fmt: skip
    get = _module if load is None else load
    made: dict[str, Callable[[Any], Gpus]] = {
        "torch": TorchGpus, "cupy": lambda cupy: CupyGpus(cupy, import_module("numpy")),
    }  # fmt: skip
    for name, make in made.items():
        module = get(name)
        if module is None:
            continue
        try:
            if name == "torch" and not module.cuda.is_available():
                collected.left_out(f"GPUs by {name}", "it sees none (built without CUDA or ROCm, or no driver)")
                continue
            gpus = make(module)
            if gpus.count():
                return gpus
        except RuntimeError as error:
            collected.left_out(f"GPUs by {name}", (str(error).splitlines() or [type(error).__name__])[0][:200])
    return None


def _module(name: str) -> Any:
    """A module that is installed, None else; one that is broken counts as not installed."""
    try:
        return import_module(name) if find_spec(name) is not None else None
    except (ImportError, OSError):
        return None


def by_nvbandwidth(run: Callable[[list[str]], str | None], collected: Collected) -> bool:
    """The figures of the program nvbandwidth, where it is there. Whether there were any."""
    text = run(["nvbandwidth"])
    if text is None:
        return False
    try:
        found = nvbandwidth.read(clean(text))
    except OffloadError as error:
        collected.left_out("GPUs by nvbandwidth", str(error))
        return False
    for one in found.rates:
        note = "; ".join(filter(None, (one.note, found.tool)))
        collected.add(Figure("gpu", one.source, one.destination, (one.rate,), one.access, when=one.when,
                             streams=one.streams, size=one.size, depth=one.depth, note=note))  # fmt: skip
    for delay in found.delays:
        collected.add(Figure("gpu", delay.source, delay.destination, (delay.seconds,), unit="s", when=delay.when,
                             note="; ".join(filter(None, (delay.note, found.tool)))))  # fmt: skip
    return bool(found.rates)
