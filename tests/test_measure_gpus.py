"""GPUs behind the interface: a device of our own that keeps its own time and refuses what is out of order."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from offload.measure.figures import Budget, Collected
from offload.measure.gpu_libraries import CupyGpus, TorchGpus, by_nvbandwidth, find_gpus
from offload.measure.gpus import measure_gpus
from offload.measure.settings import MIB
from tests.measuring import small

RATES = {("pinned", "gpu"): 25e9, ("gpu", "pinned"): 26e9, ("pageable", "gpu"): 6e9, ("gpu", "pageable"): 5e9,
         ("gpu", "gpu"): 1000e9, ("gpu", "other"): 300e9}  # fmt: skip
ALPHA = 1e-5  # seconds of each copy beside its bytes


class FakeGpus:
    """Work takes time on its stream alone; the clock goes on only while somebody waits, and may be looked at only when
    nothing runs: whoever times a copy that has not ended fails."""

    tool = "fake 1.0"

    def __init__(self, count=1, memory=2**34, peers=True):
        self.number, self.memory, self.peers = count, memory, peers
        self.time, self.ends, self.calls = 0.0, {}, []
        self.fails = ""

    def clock(self):
        assert all(end <= self.time for ends in self.ends.values() for end in ends.values()), "something still runs"
        return self.time

    def count(self):
        return self.number

    def model(self, gpu):
        return "Fake GPU"

    def free(self, gpu):
        return self.memory

    def host(self, size, pinned):
        self.calls.append(("host", size, pinned))
        if self.fails == "pinned" and pinned:
            raise RuntimeError("CUDA error: out of memory\nmore lines")
        return SimpleNamespace(where="pinned" if pinned else "pageable", gpu=None, size=size, whole=size)

    def device(self, gpu, size):
        self.calls.append(("device", gpu, size))
        return SimpleNamespace(where="gpu", gpu=gpu, size=size, whole=size)

    def part(self, buffer, size):
        assert size <= buffer.whole
        return SimpleNamespace(where=buffer.where, gpu=buffer.gpu, size=size, whole=buffer.whole)

    def stream(self, gpu):
        stream = SimpleNamespace(gpu=gpu)
        self.ends.setdefault(gpu, {})[id(stream)] = 0.0
        self.calls.append(stream)  # kept, so that ids stay apart
        return stream

    def begin(self, stream, seconds):
        ends = self.ends[stream.gpu]
        ends[id(stream)] = max(ends[id(stream)], self.time) + seconds

    def copy(self, into, source, stream):
        assert into.size == source.size, "a copy of all of it"
        assert stream.gpu in (into.gpu, source.gpu), "on a stream of one of its ends"
        ends = (source.where, into.where)
        if ends == ("gpu", "gpu"):
            rate = RATES["gpu", "gpu"] if into.gpu == source.gpu else RATES["gpu", "other"]
            moved = source.size * (2 if into.gpu == source.gpu else 1)
        else:
            rate, moved = RATES[ends], source.size
        self.calls.append(("copy", *ends, source.size))
        self.begin(stream, ALPHA + moved / rate)

    def add(self, into, one, other, stream):
        assert into.size == one.size == other.size and into.gpu == one.gpu == other.gpu == stream.gpu
        self.calls.append(("add", into.size))
        self.begin(stream, ALPHA + 3 * into.size / RATES["gpu", "gpu"])

    def reaches(self, gpu, other):
        return self.peers

    def wait(self, gpu):
        self.calls.append(("wait", gpu))
        self.time = max([self.time, *self.ends.get(gpu, {}).values()])

    def release(self):
        self.calls.append(("release",))


def measured(gpus, **more):
    told = Collected()
    budget = more.pop("budget", Budget(None))
    measure_gpus(gpus, more.pop("free", 2**34), small(**more), told, budget, lambda text: None, gpus.clock)
    return told


def expected(rate, size, times=1):
    return pytest.approx(times * size / (ALPHA + times * size / rate), rel=1e-3)


def test_every_copy_is_timed_from_its_begin_to_its_end():
    told = measured(FakeGpus())
    found = {(one.source, one.destination, one.access, one.when, one.size): one.value for one in told.figures}
    for size in (MIB, 4 * MIB):
        assert found["host", "gpu0", "pinned", "alone", size] == expected(25e9, size)
        assert found["gpu0", "host", "pinned", "alone", size] == expected(26e9, size)
        assert found["host", "gpu0", "pageable", "alone", size] == expected(6e9, size)
        assert found["gpu0", "host", "pageable", "alone", size] == expected(5e9, size)
    size = 4 * MIB
    assert found["gpu0", "gpu0", "copy", "alone", size] == expected(1000e9, size, 2)
    assert found["gpu0", "gpu0", "mixed", "alone", size] == expected(1000e9, size, 3)
    slower = ALPHA + size / 25e9  # both run at once, and the slower one ends last
    assert found["host", "gpu0", "pinned", "both directions", size] == pytest.approx(2 * size / slower, rel=1e-3)
    assert len(found) == 8 + 2 + 1 and not told.missing


def test_both_ways_at_once_run_on_two_streams_and_say_that_they_are_added():
    gpus = FakeGpus()
    one = next(one for one in measured(gpus).figures if one.when == "both directions")
    assert one.streams == 2 and "both directions added" in one.note


def test_one_run_before_those_that_count_and_a_wait_around_each():
    gpus = FakeGpus()
    told = measured(gpus, repeats=3, gpu_copy=(MIB,))
    assert all(len(one.repeats) == 3 for one in told.figures)
    begins = [place for place, call in enumerate(gpus.calls) if isinstance(call, tuple) and call[0] in ("copy", "add")]
    assert sum(call == ("copy", "pinned", "gpu", MIB) for call in gpus.calls) == 4 + 4  # alone, and both ways
    for place in begins:
        around = [gpus.calls[spot] for spot in (place - 1, place + 1)]
        assert ("wait", 0) in around or gpus.calls[place] in around  # within a GPU again and again


def test_work_within_a_gpu_is_repeated_until_its_begin_is_little_beside_it():
    gpus = FakeGpus()
    measured(gpus, repeats=3, gpu_copy=(MIB,))
    once = ALPHA + 2 * MIB / RATES["gpu", "gpu"]
    times = sum(call == ("copy", "gpu", "gpu", MIB) for call in gpus.calls)
    assert times == 1 + 3 * min(512, math.ceil(0.02 / once))


def test_gpus_that_reach_each_other_copy_straight():
    told = measured(FakeGpus(2), gpu_copy=(4 * MIB,))
    found = {(one.source, one.destination): one.value for one in told.figures if one.source != one.destination}
    assert found["gpu0", "gpu1"] == found["gpu1", "gpu0"] == expected(300e9, 4 * MIB)


def test_gpus_that_do_not_reach_each_other_are_told():
    told = measured(FakeGpus(2, peers=False))
    assert [one for one in told.missing if "gpu0 to gpu1" in one and "go through host memory" in one]
    assert not any({one.source, one.destination} == {"gpu0", "gpu1"} for one in told.figures)


def test_what_fails_is_told_in_a_line_and_the_rest_is_measured():
    gpus = FakeGpus()
    gpus.fails = "pinned"
    told = measured(gpus)
    assert {one.access for one in told.figures} == {"pageable", "copy", "mixed"}
    assert [one for one in told.missing if one.endswith("fake 1.0 says: CUDA error: out of memory")]
    assert gpus.calls.count(("release",)) == 4


@pytest.mark.parametrize("more", [{"free": 2**20}, {"gpu_copy": (2**40,)}])
def test_buffers_that_do_not_fit_are_not_asked_for(more):
    gpus = FakeGpus()
    told = measured(gpus, **more)
    assert [one for one in told.missing if "too little memory is free" in one]
    assert all(call[1] <= 2**20 for call in gpus.calls if isinstance(call, tuple) and call[0] == "host")


def test_no_time_left():
    times = iter([0.0] + [9.0] * 99)
    told = measured(FakeGpus(), budget=Budget(1.0, lambda: next(times)))
    assert not told.figures and len(told.missing) == 4


# torch and cupy, by stand-ins that keep what they are asked


class Buffer:
    """An array of torch's: what is done to it is kept."""

    def __init__(self, log, name, size):
        self.log, self.name, self.size = log, name, size

    def __getitem__(self, place):
        return Buffer(self.log, self.name, place.stop)

    def copy_(self, source, non_blocking=False):
        self.log.append(("copy", source.name, self.name, self.size, non_blocking))

    def view(self, kind):
        return self


class Stream:
    def __init__(self, log, device):
        self.log, self.device = log, device

    def __enter__(self):
        self.log.append(("stream", self.device))

    def __exit__(self, *error):
        self.log.append(("left",))


def torch_of(log, available=True):
    def ones(size, dtype=None, device="cpu", pin_memory=False):
        return Buffer(log, "pinned" if pin_memory else device, size)

    cuda = SimpleNamespace(
        is_available=lambda: available, device_count=lambda: 2, get_device_name=lambda gpu: "NVIDIA H200",
        mem_get_info=lambda gpu: (2**33, 2**34), Stream=lambda device: Stream(log, device), stream=lambda one: one,
        can_device_access_peer=lambda one, other: True, synchronize=lambda gpu: log.append(("wait", gpu)),
        empty_cache=lambda: log.append(("release",)),
    )  # fmt: skip
    return SimpleNamespace(__version__="2.9", uint8="u8", int32="i32", ones=ones, cuda=cuda,
                           add=lambda one, other, out: log.append(("add", one.name, out.name)))  # fmt: skip


def test_torch_copies_without_waiting_on_the_stream_it_is_given():
    log = []
    gpus = TorchGpus(torch_of(log))
    pinned, there, other = gpus.host(8 * MIB, True), gpus.device(1, 8 * MIB), gpus.device(0, 8 * MIB)
    gpus.copy(gpus.part(there, MIB), gpus.part(pinned, MIB), gpus.stream(1))
    assert log == [("stream", 1), ("copy", "pinned", "cuda:1", MIB, True), ("left",)]
    gpus.add(there, there, other, gpus.stream(1))
    assert log[-2] == ("add", "cuda:1", "cuda:1")
    gpus.wait(1)
    assert log[-1] == ("wait", 1) and gpus.host(MIB, False).name == "cpu"
    assert (gpus.count(), gpus.free(0), gpus.model(0), gpus.reaches(0, 1)) == (2, 2**33, "NVIDIA H200", True)


def test_all_of_it_runs_over_torch():
    log, told = [], Collected()
    measure_gpus(TorchGpus(torch_of(log)), 2**34, small(), told, Budget(None), lambda text: None)
    assert not told.missing and {one.source for one in told.figures} == {"host", "gpu0", "gpu1"}


def test_cupy_copies_each_way_by_its_own_kind(monkeypatch):
    log = []

    class Device:
        def __init__(self, number):
            self.id = number

        def __enter__(self):
            log.append(("on", self.id))

        def __exit__(self, *error):
            pass

    class Array:
        def __init__(self, size, device):
            self.nbytes, self.device = size, device
            self.data = SimpleNamespace(ptr=1000 + device.id)

    runtime = SimpleNamespace(
        memcpyHostToDevice=1, memcpyDeviceToHost=2, memcpyDeviceToDevice=3,
        deviceSynchronize=lambda: log.append("wait"),
        memcpyAsync=lambda to, of, size, kind, stream: log.append((kind, size)),
        memcpyPeerAsync=lambda to, here, of, there, size, stream: log.append(("peer", there, here, size)),
        getDeviceCount=lambda: 2, deviceCanAccessPeer=lambda one, other: 1, memGetInfo=lambda: (5, 6),
        getDeviceProperties=lambda gpu: {"name": b"NVIDIA H200"},
    )  # fmt: skip
    cupy = SimpleNamespace(__version__="13", cuda=SimpleNamespace(
        runtime=runtime, Device=Device, alloc_pinned_memory=lambda size: bytearray(size)))  # fmt: skip
    gpus = CupyGpus(cupy, np)
    stream = SimpleNamespace(ptr=7)
    here, one, other = gpus.host(64, True), Array(64, Device(0)), Array(64, Device(1))
    gpus.copy(one, here, stream)
    gpus.copy(here, one, stream)
    gpus.copy(one, one, stream)
    gpus.copy(other, one, stream)
    assert log == [(1, 64), (2, 64), (3, 64), ("peer", 0, 1, 64)]
    gpus.wait(1)
    assert log[-2:] == [("on", 1), "wait"]
    assert gpus.model(0) == "NVIDIA H200" and gpus.count() == 2 and gpus.free(0) == 5 and (here == 1).all()


@pytest.mark.parametrize(("modules", "tool", "words"), [
    ({"torch": torch_of([])}, "torch 2.9", ""),
    ({"torch": torch_of([], available=False)}, None, "it sees none"),
    ({}, None, ""),
])  # fmt: skip
def test_what_drives_the_gpus_is_found(monkeypatch, modules, tool, words):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    told = Collected()
    found = find_gpus(told, modules.get)
    assert (found.tool if found else None) == tool
    assert words in " ".join(told.missing) and not told.warnings


def test_hidden_gpus_are_doubted(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    told = Collected()
    find_gpus(told, {}.get)
    assert any("CUDA_VISIBLE_DEVICES is 3" in one for one in told.warnings)


NVBANDWIDTH = """nvbandwidth Version: v0.8
Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0     55.63     55.64

SUM host_to_device_memcpy_ce 111.27
"""


def test_nvbandwidth_is_run_and_read():
    told = Collected()
    assert by_nvbandwidth(lambda words: NVBANDWIDTH if words == ["nvbandwidth"] else None, told)
    found = {(one.source, one.destination, one.access): one.value for one in told.figures}
    assert found == {("host", "gpu0", "pinned"): 55.63e9, ("host", "gpu1", "pinned"): 55.64e9}


def test_nvbandwidth_that_is_not_there_or_says_nothing():
    told = Collected()
    assert not by_nvbandwidth(lambda words: None, told) and not told.missing
    assert not by_nvbandwidth(lambda words: "no CUDA-capable device is detected", told)
    assert any("GPUs by nvbandwidth" in one for one in told.missing)
