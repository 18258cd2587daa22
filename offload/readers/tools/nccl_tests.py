"""nccl-tests and rccl-tests (all_reduce_perf and the rest), as text, old and new, and as JSON (-J).

A rate is the bus bandwidth, algorithm bandwidth x factor of the collective and its n ranks. What is printed with less
than three figures is worked out from the row's size and time. Out of place and in place are kept apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from offload.errors import ReadingError
from offload.readers.tools.finding import Delay, Fact, Finding, Gathered, Measured, When
from offload.readers.tools.matrices import GB, figure, once, unmarked
from offload.readers.tools.text import Text

LOOKS_LIKE = "nccl-tests"
HEADING = re.compile(r"#\s*out-of-place\s+in-place\s*$", re.MULTILINE)
PROGRAM = re.compile(
    r"\b(all_reduce|all_gather|reduce_scatter|alltoall|broadcast|reduce|sendrecv|gather|scatter)_perf\b"
)
STARTING = re.compile(r"#\s*Collective test starting: (\w{1,40})_perf\s*$")
SETTINGS = re.compile(r"#\s*nThread [0-9]+ nGpus [0-9]+ ")
RANK = re.compile(
    r"#\s*Rank\s+([0-9]{1,6})\s+(?:Group\s+([0-9]{1,6})\s+)?Pid\s+[0-9]+ on\s+(\S+) device\s+[0-9]+ "
    r"\[[0-9A-Fa-fx:.]+\] (\S.{0,60}?)\s*$"
)
BOUNDS = re.compile(r"#\s*Out of bounds values : ([0-9]{1,12}) (\w+)")
TYPES = frozenset(
    "int8 uint8 int32 uint32 int64 uint64 half float double bfloat16 f8e4m3 f8e5m2 fp8_e4m3 fp8_e5m2".split()
)
REDUCTIONS = frozenset("sum prod max min avg mulsum none".split())
# Collectives by whether they reduce and have a root (None: the table has no such column).
CANDIDATES = {
    (True, True): ("reduce",),
    (True, False): ("all_reduce", "reduce_scatter"),
    (True, None): ("all_reduce", "reduce_scatter", "reduce"),
    (False, True): ("broadcast", "gather", "scatter"),
    (False, False): ("all_gather", "all_to_all", "sendrecv"),
    (False, None): ("all_gather", "all_to_all", "broadcast", "sendrecv"),
}
NAMES = {"alltoall": "all_to_all"}  # the word of the rest of this library
PRECISE = 0.2 * GB  # from here a rate of two decimals is known well enough for a ratio
PLACES = ("out of place", "in place")


def factor_of(operation: str, ranks: int) -> float | None:
    """Bus bandwidth over algorithm bandwidth of a collective of n ranks; None for one that is not known here."""
    if operation == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if operation in ("reduce_scatter", "all_gather", "all_to_all", "gather", "scatter"):
        return (ranks - 1) / ranks
    return 1.0 if operation in ("broadcast", "reduce", "sendrecv") else None


@dataclass(frozen=True, slots=True)
class _Side:
    """Half a row: its time [s], its rates [B/s] and how many results were wrong; None where it is not said or 0."""

    seconds: float | None
    algorithm: float | None
    bus: float | None
    wrong: float | None


@dataclass(frozen=True, slots=True)
class _Row:
    size: int
    reduces: bool | None
    root: int | None
    sides: tuple[_Side, _Side]
    line: int


@dataclass(slots=True)
class _Run:
    operation: str = ""
    hosts: set[str] = field(default_factory=set)
    groups: dict[int, int] = field(default_factory=dict)
    models: set[str] = field(default_factory=set)
    rows: list[_Row] = field(default_factory=list)
    line: int = 0

    @property
    def ranks(self) -> int:
        """How many ranks one collective has."""
        return max(self.groups.values(), default=0)


def is_it(text: Text) -> bool:
    """Whether a text holds the table of nccl-tests or their JSON."""
    return bool(HEADING.search(text.whole)) or ('"out_of_place"' in text.whole and '"results"' in text.whole)


def read(text: Text) -> Finding:
    """The bus bandwidths of collectives by size. Raises ReadingError where no row has one."""
    text, found = text.without_prefixes(), Gathered()
    for run in [*_of_json(text, found), *_of_text(text, found)]:
        _take(run, found)
    if not found.rates:
        raise ReadingError(
            "nccl-tests' output without a row of a size and its bandwidths. Give all of it, from '# nThread' to the end"
            + (f" ({found.odd[0]})" if found.odd else ".")
        )
    found.assumed.append("The average bus bandwidth over all sizes is left out: it says nothing of the links.")
    return Finding(
        LOOKS_LIKE, rates=tuple(found.rates), delays=tuple(found.delays), facts=tuple(found.facts),
        assumed=once(found.assumed), unknown=once(found.unknown), odd=once(found.odd),
    )  # fmt: skip


def _of_text(text: Text, found: Gathered) -> Iterator[_Run]:
    run = _Run()
    headed = False
    for line in text:
        said = unmarked(line.text)
        if match := STARTING.match(said):
            yield run
            run, headed = _Run(NAMES.get(match[1], match[1]), line=line.number), False
        elif SETTINGS.match(said):
            if run.rows or run.groups:
                yield run
                run = _Run(line=line.number)
            run.line, headed = line.number, False
        elif match := RANK.match(said):
            group = int(match[2] or 0)
            run.groups[group] = run.groups.get(group, 0) + 1
            run.hosts.add(match[3])
            run.models.add(match[4])
        elif HEADING.match(said.strip()):
            headed = True
            run.line = run.line or line.number
        elif match := BOUNDS.match(said):
            if match[1] != "0" or match[2] != "OK":
                found.odd.append(f"line {line.number}: {match[1]} values out of bounds: the results were wrong.")
        elif headed and (row := _row(said, line.number)):
            run.rows.append(row)
        elif headed and re.match(r"\s*[0-9]+\s+[0-9]+\s+[a-z]", said):
            found.odd.append(f"line {line.number}: a row that is cut or not understood is left out.")
        elif not said.startswith("#") and not run.rows and (match := PROGRAM.search(said)):
            run.operation = run.operation or NAMES.get(match[1], match[1])
    yield run


def _row(said: str, line: int) -> _Row | None:
    """A row: size, count, type, perhaps reduction and root, and the last eight fields, four for each place."""
    words = said.split()
    if not 11 <= len(words) <= 13 or words[2] not in TYPES or not re.fullmatch(r"[0-9]{1,18}", words[0], re.ASCII):
        return None
    middle, last = words[3:-8], words[-8:]
    if not all(re.fullmatch(r"[0-9]{1,15}(?:\.[0-9]{1,6})?|N/A", word, re.ASCII) for word in last):
        return None
    reduces: bool | None = None
    root: int | None = None
    for word in middle:
        if re.fullmatch(r"-?[0-9]{1,6}", word, re.ASCII):
            root = int(word)
        elif word in REDUCTIONS:
            reduces = word != "none"
        else:
            return None
    sides = [
        _Side(_times(last[at], 1e-6), _times(last[at + 1], GB), _times(last[at + 2], GB), figure(last[at + 3]))
        for at in (0, 4)
    ]
    return _Row(int(words[0]), bool(reduces), root, (sides[0], sides[1]), line)


def _times(said: Any, unit: float) -> float | None:
    value = figure(said)
    return None if value is None else value * unit


def _of_json(text: Text, found: Gathered) -> Iterator[_Run]:
    for line, value in text.json_values("results"):
        rows = value["results"]
        if not isinstance(rows, list) or not any(isinstance(row, dict) and "out_of_place" in row for row in rows):
            continue
        run = _Run(line=line)
        arguments = value.get("args")
        words = arguments if isinstance(arguments, list) else [arguments]
        for word in (word for word in words if isinstance(word, str)):
            if match := PROGRAM.search(word):
                run.operation = run.operation or NAMES.get(match[1], match[1])
        devices = value.get("devices")
        for device in devices if isinstance(devices, list) else ():
            if isinstance(device, dict):
                group = device.get("group")
                group = group if isinstance(group, int) else 0
                run.groups[group] = run.groups.get(group, 0) + 1
                host = device.get("hostname")
                if isinstance(host, str) and host:
                    run.hosts.add(host)
                model = device.get("device_info")
                if isinstance(model, str) and re.fullmatch(r"[\w .()/-]{1,60}", model):
                    run.models.add(model)
        for row in rows:
            size = row.get("size") if isinstance(row, dict) else None
            if isinstance(size, str) and re.fullmatch(r"[0-9]{1,18}", size, re.ASCII):
                size = int(size)
            if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size < 10**18:
                found.odd.append(f"line {line}: a row without a size is left out.")
                continue
            redop, root = row.get("redop"), row.get("root")
            sides = (_json_side(row.get("out_of_place")), _json_side(row.get("in_place")))
            run.rows.append(_Row(
                size, redop not in ("none", "", None), root if isinstance(root, int) else None, sides, line
            ))  # fmt: skip
        yield run


def _json_side(said: Any) -> _Side:
    if not isinstance(said, dict):
        return _Side(None, None, None, None)
    seconds = _times(said.get("time", said.get("cpu_time")), 1e-6)
    return _Side(seconds, _times(said.get("alg_bw"), GB), _times(said.get("bus_bw"), GB), figure(said.get("nwrong")))


def _take(run: _Run, found: Gathered) -> None:
    """A run's rows as rates, its shortest time as a latency, what it ran on as facts."""
    if not run.rows:
        return
    operation = _operation(run, found)
    ranks, hosts = run.ranks, len(run.hosts)
    factors = {factor_of(name, ranks) for name in operation.split(" or ")} if ranks else set()
    factor = factors.pop() if len(factors) == 1 else None
    if ranks:
        found.facts.append(Fact(f"ranks of {operation}", ranks, "", run.line))
        if hosts:
            found.facts.append(Fact(f"hosts of {operation}", hosts, "", run.line))
        else:
            found.unknown.append(f"line {run.line}: on how many hosts the ranks run.")
    else:
        found.unknown.append(f"line {run.line}: how many ranks took part; the lines '# Rank' are not there.")
    for model in sorted(run.models):
        found.facts.append(Fact("model of the GPUs", model, "", run.line))
    if len(run.groups) > 1:
        found.assumed.append(f"{len(run.groups)} groups of ranks ran at once; a rate is that of one group.")
    when: When = "together" if len(run.groups) > 1 else "alone"
    over = f", over {hosts} hosts" if hosts > 1 else ""
    rounded = 0
    for row in run.rows:
        for place, side in zip(PLACES, row.sides, strict=True):
            if side.wrong:
                found.odd.append(f"line {row.line}: {side.wrong:g} wrong results at {row.size} bytes, {place}.")
            rate, note = side.bus, place + over
            exact = row.size / side.seconds * factor if row.size and side.seconds and factor else None
            if exact is not None and (rate is None or rate < GB):
                rate, note = exact, f"{note}; from size and time"
            if rate is None:
                rounded += bool(row.size)
                continue
            if exact is not None and side.bus and abs(exact - side.bus) > 0.0051 * GB + 0.01 * side.bus:
                found.odd.append(f"line {row.line}: {place}: the bus bandwidth is not size / time x {factor:g}.")
            if row.size:
                found.rates.append(Measured(
                    "gpus", "gpus", rate, "mixed", when, size=row.size, streams=max(1, len(run.groups)),
                    operation=operation, ranks=ranks, note=note, line=row.line,
                ))  # fmt: skip
    if rounded:
        found.unknown.append(f"line {run.line}: {rounded} rates that are printed as 0, rounded or not measured.")
    least = min((row for row in run.rows if row.size and row.sides[0].seconds), key=lambda row: row.size, default=None)
    if least is not None and least.sides[0].seconds:
        note = f"{operation} of {least.size} bytes{over}"
        found.delays.append(Delay("gpus", "gpus", least.sides[0].seconds, when, note, least.line))


def _operation(run: _Run, found: Gathered) -> str:
    """Which collective it is: as it is named, or as its factor, reductions and root tell."""
    if run.operation:
        return run.operation
    ratios = [
        side.bus / side.algorithm
        for row in run.rows
        for side in row.sides
        if side.bus and side.algorithm and min(side.bus, side.algorithm) > PRECISE
    ]
    best = max(run.rows, key=lambda row: row.size)
    fits = []
    if run.ranks > 1 and ratios:
        ratio = sorted(ratios)[len(ratios) // 2]
        rooted = None if best.root is None else best.root >= 0
        for name in CANDIDATES[bool(best.reduces), rooted]:
            if abs((factor_of(name, run.ranks) or 0) - ratio) < 0.02:
                fits.append(name)
    if not fits:
        found.unknown.append(f"line {run.line}: which collective this is: no program's name, and no factor that fits.")
        return "collective"
    if len(fits) == 1:
        found.assumed.append(f"The collective is {fits[0]}, as its bus bandwidth over its algorithm bandwidth tells.")
        return fits[0]
    found.unknown.append(f"line {run.line}: which of {', '.join(fits)} this is: the factor fits each.")
    return " or ".join(fits)
