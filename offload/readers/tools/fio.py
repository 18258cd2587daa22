"""fio's JSON (2.x and 3.x): rates of reading and writing drives, with block size and requests in flight.

fio 3 gives bw_bytes [B/s] and times in ns; fio 2 gives bw [KiB/s] and times in us. Jobs of one group run at once: their
rates are added. A run through the page cache (direct=0) does not measure the drive: its rates are facts. File names and
job names are not kept.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from offload.errors import ReadingError
from offload.readers.tools.figures import KIB, binary_size, positive, whole
from offload.readers.tools.finding import WHICH_DRIVE, Fact, Finding, Gathered, Measured, When, describe_rate
from offload.readers.tools.fio_files import disks_of, place_of
from offload.readers.tools.text import Text

LOOKS_LIKE = "fio JSON"
SIGN = re.compile(r'"fio version"\s*:')
PLAIN = re.compile(r"^[ \t]*(?:read|write)\s*: (?:IOPS=|io=).*\b(?:BW|bw)=", re.MULTILINE)
DIRECTION = re.compile(r'"(?:read|write|mixed)"\s*:\s*\{')
RATE_KEY = re.compile(r'"bw_bytes"|"bw"')
SYNCHRONOUS = ("sync", "psync", "vsync", "pvsync", "pvsync2", "mmap", "libpmem")
NO_DRIVE = (
    "null", "cpuio", "net", "netsplice", "rdma", "exec", "nfs", "http", "rados", "rbd", "nbd", "gfapi", "gfapi_async",
    "libhdfs", "filecreate", "filestat", "filedelete", "dircreate", "dirstat", "dirdelete", "ftruncate", "falloc",
    "e4defrag", "mmap", "libpmem", "dev-dax", "librpma_apm_client", "librpma_gpspm_client",
)  # fmt: skip
SMALL = 128 * KIB  # below it a drive's requests per second tend to be the limit


@dataclass(frozen=True, slots=True)
class _Job:
    """One entry of "jobs" in one direction: rate [B/s], seconds, its settings (None: fio did not write them)."""

    group: tuple[object, ...]
    direction: str
    rate: float
    seconds: float | None
    settings: dict[str, str] | None
    mean: float | None
    line: int
    disks: tuple[str, ...] | None


def is_it(text: Text) -> bool:
    """Whether fio's JSON, or its plain text, stands in the text."""
    return SIGN.search(text.whole) is not None or _is_plain(text)


def _is_plain(text: Text) -> bool:
    named = re.search(r"^[ \t]*fio-\d+\.\d", text.whole, re.MULTILINE)
    return named is not None and PLAIN.search(text.whole) is not None


def read(text: Text) -> Finding:
    """The rates of every group of jobs in the text. Raises ReadingError where no JSON of fio with a rate is whole."""
    text = text.without_prefixes()
    runs = list(_runs(text))
    if not runs:
        if SIGN.search(text.whole) is None:
            raise ReadingError("is fio's plain text. Run it with --output-format=json and give that.")
        raise ReadingError("looks like fio JSON, but the JSON is not whole. Give all of it, to the last brace.")
    told = Gathered()
    starts = [line for line, _ in runs]
    times = Counter(starts)
    jobs: list[_Job] = []
    for number, (line, run) in enumerate(runs):
        end = starts[number + 1] if number + 1 < len(runs) else len(text.lines) + 1
        own = Text.of(text.lines[line - 1 : end - 1] if times[line] == 1 else ())  # () : a list of runs
        jobs += _jobs(number, line, run, own, told)
    groups: dict[tuple[object, str], list[_Job]] = {}
    for job in jobs:
        groups.setdefault((job.group, job.direction), []).append(job)
    directions = Counter(group for group, _ in groups)
    for (group, direction), members in groups.items():
        _group(direction, members, directions[group] > 1, told)
    if not told.rates and not told.facts:
        raise ReadingError(f"is fio JSON without a rate of reads or writes above 0. {' '.join(told.odd)}")
    versions = sorted({str(run["fio version"]) for _, run in runs if re.fullmatch(r"fio-[\w.-]{1,30}",
                      str(run.get("fio version")))})  # fmt: skip
    tool = versions[0].replace("-", " ", 1) + " JSON" if len(versions) == 1 else "fio JSON"
    return Finding(tool, rates=tuple(told.rates), facts=tuple(told.facts), assumed=tuple(dict.fromkeys(told.assumed)),
                   unknown=tuple(dict.fromkeys(told.unknown)), odd=tuple(dict.fromkeys(told.odd)))  # fmt: skip


def _runs(text: Text) -> Iterator[tuple[int, dict[str, Any]]]:
    for line, value in text.json_values():
        for run in value if isinstance(value, list) else [value]:
            if isinstance(run, dict) and "fio version" in run:
                yield line, run


def _jobs(number: int, line: int, run: dict[str, Any], text: Text, told: Gathered) -> Iterator[_Job]:
    """The jobs of a run, direction by direction, that moved something and ended well; `text` : the lines it stands on,
    empty where several runs share them."""
    entries = run.get("jobs", run.get("client_stats"))
    shared = run.get("global options")
    if not isinstance(entries, list):
        told.odd.append(f'line {line}: a fio run without "jobs".')
        return
    lines = _lines(text, line, run)
    old = not str(run.get("fio version")).startswith("fio-3")
    for entry in entries:
        if not isinstance(entry, dict):
            told.odd.append(f"line {line}: a job that is no JSON object, left out.")
            continue
        for direction in [key for key in entry if key in ("read", "write", "mixed") and isinstance(entry[key], dict)]:
            at, figures = next(lines, line), entry[direction]
            rate = _rate(figures, at, told)
            if entry.get("jobname") == "All clients" or rate is None:
                continue
            if entry.get("error", 0) != 0:
                told.odd.append(f"line {at}: the job ended with an error, its {direction} rate is left out.")
                continue
            group, host = entry.get("groupid"), entry.get("hostname")
            yield _Job((number, group if isinstance(group, int) else None, str(host)), direction,
                       rate, positive(figures.get("runtime"), 1e-3), _settings(shared, entry),
                       _mean(figures, old), at, disks_of(run))  # fmt: skip
        trim = entry.get("trim")
        if isinstance(trim, dict) and positive(trim.get("bw")):
            told.unknown.append("trims, which move no data, are not read")


def _lines(text: Text, line: int, run: dict[str, Any]) -> Iterator[int]:
    """The lines of the rates, in the order of the directions; none where they cannot be told for sure."""
    found = [RATE_KEY.search(text.whole, one.end()) for one in DIRECTION.finditer(text.whole)]
    entries = run.get("jobs", run.get("client_stats", ()))
    due = sum(isinstance(entry.get(key), dict) for entry in entries if isinstance(entry, dict)
              for key in ("read", "write", "mixed"))  # fmt: skip
    if len(found) < due:
        return iter(())
    return iter([line - 1 + text.line_of(one.start()) if one else line for one in found[:due]])


def _rate(figures: dict[str, Any], line: int, told: Gathered) -> float | None:
    exact, rounded = positive(figures.get("bw_bytes")), positive(figures.get("bw"), KIB)
    if exact and rounded and abs(exact - rounded) > 0.01 * exact + KIB:
        told.odd.append(f"line {line}: bw_bytes, {exact:.0f} B/s, is not bw, {rounded / KIB:.0f} KiB/s; it counts.")
    rate = exact or rounded
    moved = any(figures.get(key, 0) not in (0, None) for key in ("bw_bytes", "bw", "total_ios", "io_bytes"))
    if rate is None and moved:
        told.odd.append(f"line {line}: data was moved, but its rate is no figure above 0, left out.")
    return rate


def _mean(figures: dict[str, Any], old: bool) -> float | None:
    for key, unit in (("lat_ns", 1e-9), ("lat", 1e-6 if old else None)):
        if unit is not None and isinstance(figures.get(key), dict):
            return positive(figures[key].get("mean"), unit)
    return None


def _settings(shared: Any, entry: dict[str, Any]) -> dict[str, str] | None:
    """The job's settings over the run's; None where fio wrote neither (2.1.4 does not)."""
    own = entry.get("job options")
    if not isinstance(own, dict) and not isinstance(shared, dict):
        return None
    both = {**(shared if isinstance(shared, dict) else {}), **(own if isinstance(own, dict) else {})}
    named = {"blocksize": "bs", "readwrite": "rw"}
    return {named.get(key, key): str(value) for key, value in both.items()}


def _on(settings: dict[str, str], name: str) -> bool:
    return settings.get(name, "0").strip().lower() not in ("0", "false")


def _block(settings: dict[str, str], direction: str) -> int | None:
    if any(key in settings for key in ("bssplit", "bsrange", "blocksize_range")) or settings.get("kb_base") == "1000":
        return None
    sizes = settings.get("bs", "4096").split(",")
    at = 1 if direction == "write" and len(sizes) > 1 else 0
    return None if direction == "mixed" and len(set(sizes)) > 1 else binary_size(sizes[at])


def _depth(job: _Job, told: Gathered) -> int | None:
    """Requests in flight of one entry: iodepth x numjobs where fio reports jobs as one, else iodepth."""
    settings = job.settings or {}
    depth = whole(settings.get("iodepth", "1"))
    engine = settings.get("ioengine", "psync").split(":")[0]
    if engine in SYNCHRONOUS and depth and depth > 1:
        told.odd.append(f"line {job.line}: iodepth {depth} has no effect with {engine}: one request in flight.")
        depth = 1
    jobs = whole(settings.get("numjobs", "1")) if _on(settings, "group_reporting") else 1
    return depth * jobs if depth and jobs else None


def _same(values: list[Any]) -> Any:
    return values[0] if all(value == values[0] for value in values) else None


def _group(direction: str, jobs: list[_Job], others: bool, told: Gathered) -> None:
    """One rate of the jobs that ran at once; `others` : the other direction ran as well."""
    line, known = jobs[0].line, [job.settings for job in jobs if job.settings is not None]
    engines = sorted({settings.get("ioengine", "psync").split(":")[0] for settings in known})
    if refused := [engine for engine in engines if engine in NO_DRIVE]:
        told.odd.append(f"line {line}: ioengine {refused[0]} does not measure a drive, left out.")
        return
    times = [job.seconds for job in jobs if job.seconds is not None]
    if times and max(times) > 1.1 * min(times):
        told.odd.append(f"line {line}: jobs run at once took {min(times):g} to {max(times):g} s: their sum is high.")
    complete = len(known) == len(jobs)
    size = _same([_block(settings, direction) for settings in known]) if complete else None
    depths = [_depth(job, told) for job in jobs] if complete else [None]
    depth = None if None in depths else sum(one or 0 for one in depths)
    access = direction
    if direction == "mixed" and complete:
        access = {"read": "read", "randread": "read", "write": "write", "randwrite": "write"}.get(
            _same([settings.get("rw", "read") for settings in known]) or "", "mixed")  # fmt: skip
    place = place_of(known if complete else [], jobs[0].disks, complete)
    if place is None:
        told.unknown.append(f"{WHICH_DRIVE}, and whether one alone")
    elif place == ("drive", 1):
        told.unknown.append(WHICH_DRIVE)
    drive, many = place if isinstance(place, tuple) else ("drive", 1)
    memory = _memory(known, told, line)
    ends = (memory, drive) if access == "write" else (drive, memory)
    when: When = "both directions" if others or access == "mixed" else "together" if many > 1 else "alone"
    rate = Measured(*ends, sum(job.rate for job in jobs), access, when, size, depth, many,
                    note=_note(known, size, access, len(jobs)), line=line)  # fmt: skip
    if len(jobs) == 1 and jobs[0].mean is not None:
        told.facts.append(Fact(f"mean time of a request, {describe_rate(rate)}", jobs[0].mean, "s", line))
    if not complete:
        told.unknown.append("block size, requests in flight and direct: this fio does not write its settings")
    elif not all(_on(settings, "direct") or settings.get("buffered") == "0" for settings in known):
        told.facts.append(Fact(f"through the page cache, {describe_rate(rate)}", rate.rate, "B/s", line))
        told.odd.append(f"line {line}: direct=0 goes through the page cache: no rate of the drive. Run with direct=1.")
        told.unknown.append("the drive's own rate of runs through the page cache")
        return
    if isinstance(place, str):
        told.facts.append(Fact(f"of no single drive, {describe_rate(rate)}", rate.rate, "B/s", line))
        told.odd.append(f"line {line}: {place}: it is no drive's rate.")
        return
    if access != "read":
        told.unknown.append("whether the writes outlast the drive's own cache")
    told.rates.append(rate)


def _memory(known: list[dict[str, str]], told: Gathered, line: int) -> str:
    """Host memory, or the GPU of ioengine libcufile."""
    if not any(settings.get("ioengine") == "libcufile" for settings in known):
        return "host"
    numbers = _same([settings.get("gpu_dev_ids", "0") for settings in known]) or ""
    told.assumed.append("libcufile: cuda_io=cufile is GPU-direct, posix passes host memory")
    if re.fullmatch(r"\d{1,4}", numbers):
        return f"gpu{int(numbers)}"
    told.unknown.append(f"line {line}: the rates of each GPU: several took part")
    return "gpus"


def _note(known: list[dict[str, str]], size: int | None, access: str, jobs: int) -> str:
    words = ["reads and writes added"] if access == "mixed" else []
    if any(settings.get("rw", "read").startswith("rand") for settings in known):
        words.append("random")
    if jobs > 1:
        words.append(f"sum of {jobs} jobs")
    if size is not None and size < SMALL:
        words.append("small requests: their number per second may be the limit")
    if any(key in ("rate", "rate_iops") for settings in known for key in settings):
        words.append("held down by fio's own rate limit")
    if any(settings.get("ioengine") == "libcufile" for settings in known):
        words.append(f"cuda_io {known[0].get('cuda_io', 'cufile')}")
    return ", ".join(words)
