"""DeepSpeed's ds_io and ds_nvme_tune: rates of reading and writing a drive from host memory.

They print "GB/sec" and mean 2^30 B/s. ds_io gives E2E speeds (whole run) and Task speeds (the transfers alone);
ds_nvme_tune gives the best of a sweep and, as JSON under "aio", the settings it was reached with. Source: DeepSpeed's
nvme folder.
"""

from __future__ import annotations

import re
from bisect import bisect_left

from offload.errors import ReadingError
from offload.readers.tools.figures import GIB, positive, whole
from offload.readers.tools.finding import Fact, Finding, Measured
from offload.readers.tools.text import Text

LOOKS_LIKE = "DeepSpeed ds_io or ds_nvme_tune"
NUMBER = r"([^\s,]+)"
BEST = re.compile(rf"Best performance \((\S+?)\):\s*read\s*=\s*{NUMBER}\s*,\s*write\s*=\s*{NUMBER}")
SPEED = re.compile(rf"\b(E2E|Task) (Read|Write) Speed\s*=\s*{NUMBER}\s*(\S+)")
LATENCY = re.compile(rf"\b(E2E|Task) (Read|Write) Latency\s*=\s*{NUMBER}\s*sec\b")
FOLDERS = re.compile(r"Running DeepNVMe performance tuning on \[(.*)\]")
SETTINGS = ("single_submit", "overlap_events", "intra_op_parallelism", "queue_depth", "block_size")


def is_it(text: Text) -> bool:
    """Whether lines of ds_io or ds_nvme_tune stand in the text."""
    signs = r"Best performance \(GB/sec\)|\b(?:E2E|Task) (?:Read|Write) Speed\s*="
    words = ("Best performance", " Speed")
    return any(word in text.whole for word in words) and re.search(signs, text.whole) is not None


def read(text: Text) -> Finding:
    """The rates of every run in the text. Raises ReadingError where there is no figure above 0."""
    rates: list[Measured] = []
    facts: list[Fact] = []
    odd: list[str] = []
    text = text.without_prefixes()
    tuned = list(_settings(text))
    drives = 1
    for line in text:
        if folders := FOLDERS.search(line.text):
            drives = max(1, len(re.findall(r"'[^']*'|\"[^\"]*\"", folders[1])))
        if best := BEST.search(line.text):
            size, depth = _conditions(tuned, line.number, facts)
            for access, printed in (("read", best[2]), ("write", best[3])):
                rate = _rate(access, printed, best[1], line.number, odd)
                if rate is not None:
                    note = "best of ds_nvme_tune's sweep"
                    rates.append(_measured(access, rate, note, line.number, drives, size, depth))
        for scope, operation, printed, unit in SPEED.findall(line.text):
            access = operation.lower()
            rate = _rate(access, printed, unit, line.number, odd)
            if rate is not None and scope == "E2E":
                rates.append(_measured(access, rate, "whole run of ds_io", line.number))
            elif rate is not None:
                facts.append(Fact(f"{access} rate of the transfers alone (Task)", rate, "B/s", line.number))
        for scope, operation, printed in LATENCY.findall(line.text):
            seconds = positive(printed)
            if seconds is not None:
                facts.append(Fact(f"time of the {operation.lower()}, {scope}", seconds, "s", line.number))
    if not rates and not facts:
        raise ReadingError(f"looks like {LOOKS_LIKE}, but there is no figure above 0 in it. {' '.join(odd)}")
    unknown = []
    if any(rate.size is None for rate in rates):
        unknown.append("block size and requests in flight of the rates without them")
    if not rates:
        unknown.append("the rate of the whole run: only Task figures are there")
    assumed = [
        "GB is 2^30 bytes, as DeepSpeed counts",
        "host memory at the other end: the output does not say whether --gpu or --use_gds was given",
    ]
    if any(rate.depth for rate in rates):
        assumed.append("the settings under aio for reads and writes alike")
    return Finding("DeepSpeed NVMe rates", rates=tuple(rates), facts=tuple(facts), assumed=tuple(assumed),
                   unknown=tuple(unknown), odd=tuple(odd))  # fmt: skip


def _rate(access: str, printed: str, unit: str, line: int, odd: list[str]) -> float | None:
    rate = positive(printed, GIB)
    if unit.rstrip(".,;") != "GB/sec":
        odd.append(f"line {line}: a {access} rate in {unit} is not known here (GB/sec is), left out.")
        return None
    if rate is None:
        odd.append(f"line {line}: a {access} rate of {printed} is no figure above 0, left out.")
    return rate


def _measured(access: str, rate: float, note: str, line: int, drives: int = 1, size: int | None = None,
              depth: int | None = None) -> Measured:  # fmt: skip
    drive = "drive" if drives == 1 else "drives"
    ends = (drive, "host") if access == "read" else ("host", drive)
    return Measured(*ends, rate, access, "alone" if drives == 1 else "together", size, depth, drives, note=note,
                    line=line)  # fmt: skip


def _settings(text: Text) -> list[tuple[int, dict[str, object]]]:
    return [(line, value["aio"]) for line, value in text.json_values("aio") if isinstance(value["aio"], dict)]


def _conditions(tuned: list[tuple[int, dict[str, object]]], line: int,
                facts: list[Fact]) -> tuple[int | None, int | None]:  # fmt: skip
    """Block size and requests in flight (threads x queue depth) of the settings that follow a line."""
    place = bisect_left(tuned, line, key=lambda one: one[0])
    if place == len(tuned):
        return None, None
    at, settings = tuned[place]
    for name in SETTINGS:
        value = settings.get(name)
        if isinstance(value, int | str) and (whole(value) or str(value).lower() in ("true", "false")):
            facts.append(Fact(f"aio {name}", value, "B" if name == "block_size" else "", at))
    threads, depth = whole(settings.get("intra_op_parallelism")), whole(settings.get("queue_depth"))
    return whole(settings.get("block_size")), threads * depth if threads and depth else None
