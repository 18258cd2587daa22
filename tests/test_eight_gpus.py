"""Eight GPUs of the shipped DGX H100 read one socket at once, beside what a Gen5 server of eight had."""

import subprocess
import sys
from pathlib import Path

import pytest

from offload import compile_step, load_plan
from offload.documents import read_setting
from offload.fluid_step import simulate_step

ROOT = Path(__file__).resolve().parent.parent
NEAR, FAR, ALL = 44.6e9, 25.4e9, 278e9  # github.com/NVIDIA/cuda-samples/issues/357


def rates(*settings):
    plan, topology = load_plan(ROOT / "examples/eight-gpus-read-one-socket.yaml",
                               settings=[read_setting(text) for text in settings])  # fmt: skip
    found = simulate_step(compile_step(topology, plan))
    return [8e9 / found.finish[f"to{number} #{number}"] for number in range(8)]


def test_the_shipped_file_alone_is_a_fifth_below_in_all():
    # Latencies are 1e-4 of a copy.
    # 225 GB/s of DRAM; the four far ones share 108 of UPI, and the near ones what is left: (225 - 108) / 4.
    found = rates()
    assert found == pytest.approx([29.25e9] * 4 + [27e9] * 4, rel=1e-4)
    assert found[0] / NEAR - 1 == pytest.approx(-0.344, abs=5e-4)
    assert found[4] / FAR - 1 == pytest.approx(0.063, abs=5e-4)
    assert sum(found) / ALL - 1 == pytest.approx(-0.191, abs=5e-4)


def test_with_the_memory_of_that_server_both_kinds_of_gpu_are_within_6_percent():
    found = rates("dram0.rate.sustained=278 GB/s")
    assert found == pytest.approx([42.5e9] * 4 + [27e9] * 4, rel=1e-4)
    assert abs(found[0] / NEAR - 1) < 0.063 and abs(found[4] / FAR - 1) < 0.064


def test_without_any_shared_limit_each_would_have_what_one_alone_has():
    found = rates("dram0.rate=1000 GB/s", "upi0.rate=1000 GB/s")
    assert found == pytest.approx([56.2e9] * 8, rel=1e-4)


def test_the_benchmark_prints_how_far_off_and_why():
    printed = subprocess.run([sys.executable, str(ROOT / "benchmarks/eight_gpus.py")], cwd=ROOT, text=True,
                             capture_output=True, check=True).stdout  # fmt: skip
    assert "29.2     27.0    225.0   -34%  +6%  -19%" in printed
    assert "DRAM binds the near GPUs" in printed
