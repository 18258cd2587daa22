"""The published measurements that are shipped, each run once; and a small case file."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from offload.documents.case_file import Case, load_cases
from offload.documents.shipped import shipped_cases
from offload.errors import DocumentError
from offload.validation import Outcome, run_case

ROOT = Path(__file__).resolve().parent.parent
PUBLISHED = ROOT.parent / "shared" / "reference" / "measurements.yaml"
FILES = shipped_cases()
KINDS = ("weight_stream", "disk_stream", "unified_mem", "cpu_exec", "kv_offload", "training", "collective", "raw_link")

SMALL = """\
kind: weight_stream
strength: A
source: {title: A table, url: https://example.org/table}
topology: desktop-4090
plan:
  tensors:
    w: {bytes: 500 MB, home: dram0}
  repeat: 4
  tasks:
    fetch: {move: w, to: hbm0}
    layer: {compute: gpu0, reads: w, after: fetch}
measured: {value: 10 tok/s}
"""


@cache
def cases() -> tuple[Case, ...]:
    return tuple(case for path in FILES for case in load_cases(path))


@cache
def outcomes() -> dict[str, Outcome]:
    return {case.id: run_case(case) for case in cases()}


def write(folder: Path, text: str, name: str = "case.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def refused(folder: Path, text: str) -> str:
    with pytest.raises(DocumentError) as error:
        load_cases(write(folder, text))
    return str(error.value)
