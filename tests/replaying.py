"""What tests of replays share: a made-up machine that this one can stand for, plans, and GPUs that are none."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as np

from offload.compiler import compile_step
from offload.documents import load_plan, load_topology
from offload.measure.machine import Here
from offload.measure.memory import Node
from offload.replaying import Options, replay

# Peaks are far above what any machine does: true upper bounds.
MACHINE = """
title: a made-up machine
switches: {socket0: {kind: socket}}
memories:
  dram0: {kind: dram, at: socket0, capacity: 64 GB, rate: {peak: 90 TB/s, sustained: 20 GB/s}}
  disk0:
    kind: disk
    capacity: 1 TB
    read: {peak: 9 TB/s, sustained: 1 GB/s, source: "measured: offload measure, read, 1048576 B each, 2 in flight"}
    write: {peak: 9 TB/s, sustained: 0.5 GB/s}
  hbm0..1: {kind: hbm, capacity: 24 GiB, rate: {peak: 90 TB/s, sustained: 800 GB/s}}
processors:
  cpu0: {kind: cpu, memory: dram0, flops: {fp32: {peak: 900 TFLOP/s, sustained: 50 GFLOP/s}}, reads: 10 GB/s}
  gpu0..1: {kind: gpu, memory: hbm0..1, flops: {fp16: {peak: 9 PFLOP/s, sustained: 100 TFLOP/s}}}
links:
  sata0: {between: [disk0, socket0], rate: {peak: 9 TB/s, sustained: 2 GB/s}, latency: 20 us}
  pcie0..1: {between: [socket0, hbm0..1], rate: {peak: 9 TB/s, sustained: 25 GB/s}, latency: 5 us}
"""
STREAM = """
topology: ./machine.yaml
title: layers from a drive
tensors:
  w: {bytes: 256 KiB, home: disk0}
repeat: 6
tasks:
  fetch: {move: w, to: dram0}
  layer: {compute: cpu0, flops: 2 MFLOP, format: fp32, reads: w, after: fetch}
overlap: {buffers: 2}
"""
HERE = Here((Node(0, (0,), 2**28),), 2**20, 2**20, (), ("vda",))


def written(folder, plan=STREAM, machine=MACHINE):
    """The path of a plan file, beside its machine's."""
    (folder / "machine.yaml").write_text(machine)
    path = folder / "plan.yaml"
    path.write_text(plan)
    return path


def loaded(folder, plan=STREAM, machine=MACHINE, **more):
    """(plan, topology) of texts."""
    return load_plan(written(folder, plan, machine), **more)


def stepped(folder, plan=STREAM):
    """The compiled step of a text."""
    made, topology = loaded(folder, plan)
    return compile_step(topology, made), made, topology


def machine(folder):
    """The made-up machine."""
    (folder / "machine.yaml").write_text(MACHINE)
    return load_topology(folder / "machine.yaml")


class FakeDevices:
    """GPUs whose copies happen when their stream is waited for; whoever uses bytes before that reads old ones."""

    tool = "fake 1.0"

    def __init__(self, count=2, memory=2**34):
        self.number, self.memory = count, memory
        self.calls, self.lock = [], threading.Lock()

    def count(self):
        return self.number

    def free(self, gpu):
        return self.memory

    def host(self, size, pinned):
        self.calls.append(("host", size, pinned))
        return SimpleNamespace(gpu=None, data=np.zeros(size, np.uint8))

    def device(self, gpu, size):
        self.calls.append(("device", gpu, size))
        return SimpleNamespace(gpu=gpu, data=np.zeros(size, np.uint8))

    def part(self, buffer, size):
        assert size <= buffer.data.nbytes
        return SimpleNamespace(gpu=buffer.gpu, data=buffer.data[:size])

    def view(self, host):
        assert host.gpu is None
        return host.data

    def stream(self, gpu):
        return SimpleNamespace(gpu=gpu, begun=[])

    def copy(self, into, source, stream):
        assert into.data.nbytes == source.data.nbytes and stream.gpu in (into.gpu, source.gpu)
        with self.lock:
            self.calls.append(("copy", source.gpu, into.gpu, into.data.nbytes))
        stream.begun.append(lambda: np.copyto(into.data, source.data))

    def multiply(self, gpu, buffer, vectors, stream):
        assert gpu == buffer.gpu == stream.gpu
        stream.begun.append(lambda: self._product(buffer, vectors))
        return buffer.data.nbytes / 2 * 2 * vectors

    def _product(self, buffer, vectors):
        first = float(buffer.data[:8].view(float)[0])
        with self.lock:
            self.calls.append(("multiply", buffer.gpu, buffer.data.nbytes, vectors, first))

    def ended(self, stream):
        for one in stream.begun:
            one()
        stream.begun.clear()


def ran(folder, plan=STREAM, **more):
    """A replay of a text, through the page cache, which every file system has."""
    devices = more.pop("devices", None)
    made, topology = loaded(folder, plan)
    chosen = {"disks": (f"disk0={folder}",), "way": "buffered", "steps": 2} | more
    return replay(topology, made, Options(**chosen), here=HERE, devices=lambda collected: devices)
