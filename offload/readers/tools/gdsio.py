"""gdsio's result lines: rates between a drive and a GPU's or the host's memory, by the way they take.

XferType tells the way: GPUD (also GPUD_ASYNC, GPUD_BATCH) straight to the GPU, CPU_GPU and its kin through a buffer in
host memory, CPUONLY host memory alone. Units: GiB/sec is 2^30 B/s, IOSize is in KiB. Source: the tool's own output.
"""

from __future__ import annotations

import re

from offload.errors import ReadingError
from offload.readers.tools.figures import GIB, KIB, MIB, agree, positive, whole
from offload.readers.tools.finding import Fact, Finding, Measured
from offload.readers.tools.text import Text

LOOKS_LIKE = "gdsio"
SIGN = re.compile(r"\bIoType:\s*\w+\s+XferType:")
RESULT = re.compile(
    r"""\bIoType:\s*(?P<operation>\w+)\s+XferType:\s*(?P<way>\w+)\s+Threads:\s*(?P<threads>\d+)\s+
    DataSetSize:\s*(?P<moved>\d+)/\d+\s*\(KiB\)\s+IOSize:\s*(?P<size>[\d:\-]+)\s*\(KiB\)\s+
    Throughput:\s*(?P<rate>\S+)\s+(?P<unit>[KMG]iB)/sec,?\s+Avg_Latency:\s*(?P<latency>\S+)\s+usecs\s+
    ops:\s*(?P<requests>\d+)\s+total_time\s+(?P<seconds>\S+)\s+secs""",
    re.VERBOSE,
)
UNITS = {"KiB": KIB, "MiB": MIB, "GiB": GIB}
DIRECT, BOUNCE, HOST = "GPU-direct", "bounce through host memory", "host memory alone"
WAYS = {
    "GPUD": DIRECT, "GPUD_ASYNC": DIRECT, "GPUD_BATCH": DIRECT,
    "CPU_GPU": BOUNCE, "CPU_ASYNC_GPU": BOUNCE, "CPU_CACHED_GPU": BOUNCE,
    "CPUONLY": HOST,
}  # fmt: skip
OPERATIONS = {"READ": "read", "RANDREAD": "read", "WRITE": "write", "RANDWRITE": "write"}
ONE_BY_ONE = ("GPUD", "CPU_GPU", "CPUONLY")  # a thread of these has one request in flight


def is_it(text: Text) -> bool:
    """Whether gdsio's result lines stand in the text."""
    return "IoType:" in text.whole and SIGN.search(text.whole) is not None


def read(text: Text) -> Finding:
    """The rates of every run in the text. Raises ReadingError where none of them is whole."""
    bare = text.without_prefixes()
    rates: list[Measured] = []
    facts: list[Fact] = []
    odd: list[str] = []
    unknown: list[str] = []
    found = list(RESULT.finditer(bare.whole))
    begun = len(SIGN.findall(bare.whole))
    for run in found:
        line = bare.line_of(run.start())
        rate = positive(run["rate"], UNITS[run["unit"]])
        way, access = WAYS.get(run["way"]), OPERATIONS.get(run["operation"])
        if way is None or access is None:
            known = ", ".join(WAYS if way is None else OPERATIONS)
            kind = f"XferType {run['way']}" if way is None else f"IoType {run['operation']}"
            odd.append(f"line {line}: {kind} is not known here, left out. Known: {known}.")
        elif rate is None:
            odd.append(f"line {line}: a throughput of {run['rate']} is no figure above 0, left out.")
        else:
            odd += _contradictions(run, rate, line)
            rates.append(_rate(run, rate, access, way, line))
            facts += _latency(run, rates[-1], line)
    if begun > len(found):
        odd.append(f"{begun - len(found)} of {begun} results are cut or not of the known form, left out.")
    if not rates:
        raise ReadingError(f"looks like {LOOKS_LIKE}, but no whole result is in it. {' '.join(odd)}")
    assumed = ["a drive: gdsio does not say what lies behind the file"]
    if any(rate.note.startswith(DIRECT) for rate in rates):
        unknown.append("whether GPUD runs went straight to the GPU: without nvidia-fs they pass host memory unsaid")
    if any("gpu" in (rate.source, rate.destination) for rate in rates):
        unknown.append("which GPU it was")
    return Finding("gdsio", rates=tuple(rates), facts=tuple(facts), assumed=tuple(assumed), unknown=tuple(unknown),
                   odd=tuple(odd))  # fmt: skip


def _contradictions(run: re.Match[str], rate: float, line: int) -> list[str]:
    moved, seconds = positive(run["moved"], KIB), positive(run["seconds"])
    if moved is None or seconds is None or agree(rate, moved, seconds, 1e-6):
        return []
    return [f"line {line}: {run['rate']} {run['unit']}/sec is not DataSetSize / total_time, "
            f"{moved / seconds / GIB:.6f} GiB/sec; taken as printed."]  # fmt: skip


def _rate(run: re.Match[str], rate: float, access: str, way: str, line: int) -> Measured:
    memory = "host" if way == HOST else "gpu"
    ends = ("drive", memory) if access == "read" else (memory, "drive")
    size = whole(run["size"])
    note = f"{way} ({run['way']})" + (", random" if run["operation"].startswith("RAND") else "")
    if size is None:
        note += f", sizes {run['size']} KiB"
    depth = whole(run["threads"]) if run["way"] in ONE_BY_ONE else None
    return Measured(*ends, rate, access, size=None if size is None else size * KIB, depth=depth, note=note, line=line)


def _latency(run: re.Match[str], rate: Measured, line: int) -> list[Fact]:
    seconds = positive(run["latency"], 1e-6)
    what = f"mean time of a {rate.access}, {run['way']}, {run['size']} KiB, {run['threads']} threads"
    return [] if seconds is None else [Fact(what, seconds, "s", line)]
