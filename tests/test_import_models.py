"""A shape that names no GPU's model, beside an output of rates that does."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload.importing import import_outputs
from offload.readers.tools.recognise import read_output

SHAPE = """        GPU0    GPU1    CPU Affinity    NUMA Affinity   GPU NUMA ID
GPU0     X      NODE    0-31            0               N/A
GPU1    NODE     X      0-31            0               N/A

Legend:
  X    = Self
"""
RATES = """nvbandwidth Version: v0.8
Device 0: NVIDIA GeForce RTX 4090 (00000000:01:00)
Device 1: {second} (00000000:41:00)

Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0     25.50     24.26

SUM host_to_device_memcpy_ce 49.76
"""


def imported(folder: Path, *texts: str):
    findings = []
    for number, text in enumerate(texts):
        path = folder / f"{number}.txt"
        path.write_text(text, encoding="utf-8")
        findings += read_output(str(path))
    return import_outputs(findings)


def test_the_one_model_of_all_gpus_is_taken_from_the_rates(tmp_path: Path) -> None:
    found = imported(tmp_path, SHAPE, RATES.format(second="NVIDIA GeForce RTX 4090"))
    assert found.topology.title == "Imported server: 2 x NVIDIA GeForce RTX 4090"
    assert {found.topology.resources[f"hbm{n}"].peak for n in (0, 1)} == {1008.1e9}
    assert any(text.endswith("1.txt:2: the 2 GPUs here are those that it names: NVIDIA GeForce RTX 4090")
               for text in found.assumed)  # fmt: skip
    assert not found.contradicts


@pytest.mark.parametrize("rates", [
    RATES.format(second="NVIDIA GeForce RTX 3090"),  # which of the two is gpu0 is not told
    RATES.replace("Device 1: {second} (00000000:41:00)\n", ""),  # one is told, and there are two
])  # fmt: skip
def test_models_that_may_be_of_other_gpus_are_not(tmp_path: Path, rates: str) -> None:
    found = imported(tmp_path, SHAPE, rates)
    assert found.topology.title == "Imported server: 2 GPUs"
    assert found.topology.memories["hbm0"].capacity is None
