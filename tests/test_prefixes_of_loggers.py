"""What loggers put before each line changes nothing that is read of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offload.readers.tools.recognise import read_content

STREAM = """STREAM version $Revision: 5.10 $
Function    Best Rate MB/s  Avg time     Min time     Max time
Copy:          318402.7     0.041001     0.040201     0.042178
Triad:         332871.4     0.058402     0.057680     0.060002
"""
NVBANDWIDTH = """nvbandwidth Version: v0.8
Device 0: NVIDIA A100 80GB PCIe (00000000:01:00)
Device 1: NVIDIA A100 80GB PCIe (00000000:81:00)

Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0     25.11     24.62

SUM host_to_device_memcpy_ce 49.73
"""
NUMACTL = """available: 1 nodes (0)
node 0 cpus: 0 1 2 3
node 0 size: 64000 MB
node distances:
node   0
  0:  10
"""
PREFIXES = (
    "2024-05-01T10:00:00Z ", "2024-05-01 10:00:00,123 ", "[rank0]: ", "(main pid=12, ip=10.0.0.1) ",
    "Nov 30 10:00:01 box17.corp bash[4711]: ", "May  1 10:00:01 box stream: ",
    "2024-05-01T10:00:00+0200 box bash[4711]: ", "bench-1  | ", "my_job_1     | ", "[1,0]<stdout>:", "[1,0]<stdout>: ",
)  # fmt: skip


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("text", [STREAM, NVBANDWIDTH, NUMACTL])
def test_a_prefix_changes_nothing(prefix: str, text: str):
    (plain,) = read_content(text)
    (found,) = read_content("".join(f"{prefix}{line}" for line in text.splitlines(keepends=True)))
    assert found == replace(plain, file=found.file)
