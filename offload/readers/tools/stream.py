"""STREAM (McCalpin) on host memory and superbench's gpu-stream on GPUs' memory.

STREAM's MB/s is 10^6 B/s and counts the arrays' bytes read and written, not the lines a processor reads before it
writes them (write-allocate): real traffic is up to 3/2 of Copy and Scale, 4/3 of Add and Triad where stores are not
non-temporal. gpu-stream prints GB/s (10^9) and per cent of the peak it names.
"""

from __future__ import annotations

import re

from offload.errors import ReadingError
from offload.readers.tools.figures import agree, last_digit, positive, whole
from offload.readers.tools.finding import Fact, Finding, Measured
from offload.readers.tools.text import Text

LOOKS_LIKE = "STREAM"
ARRAYS = {"Copy": 2, "Scale": 2, "Add": 3, "Triad": 3}
HEADING = re.compile(r"^\s*Function\s+(?:Best Rate MB/s|Rate \(MB/s\))\s+Avg time\s+Min time\s+Max time")
ROW = re.compile(r"^\s*(Copy|Scale|Add|Triad):(.*)$")
BOUND = re.compile(r"(?:^|[\s;&])numactl\s+(.*\S)")
NODE = {word: re.compile(rf"(?:^|\s)(?:{'|'.join(ways)})(\d{{1,4}})(?=\s)") for word, ways in
        {"cpus": (r"-N\s*", r"--cpunodebind[=\s]\s*"), "memory": (r"-m\s*", r"--membind[=\s]\s*")}.items()}  # fmt: skip
GPU_ROW = re.compile(r"^\s*STREAM_(COPY|SCALE|ADD|TRIAD)_(\w+)_gpu_(\d{1,4})_buffer_(\d{1,18})_block_(\d{1,6})\s+(.*)$")
GPU = re.compile(r"^\s*Device (\d{1,4}): \"([^\"]*)\".*=\s*(\S+) GB/s PEAK")


def is_it(text: Text) -> bool:
    """Whether a STREAM or gpu-stream table stands in the text."""
    signs = ("Function ", "STREAM_")
    if not any(sign in text.whole for sign in signs):
        return False
    lines = (line.text for line in text.without_prefixes() if signs[0] in line.text or signs[1] in line.text)
    return any(HEADING.match(line) or GPU_ROW.match(line) for line in lines)


def read(text: Text) -> Finding:
    """The rates of every run in the text. Raises ReadingError where there is no row with a rate."""
    bare = text.without_prefixes()
    odd: list[str] = []
    host, host_facts = _host(bare, odd)
    gpus, gpu_facts = _gpus(bare, odd)
    if not host and not gpus:
        raise ReadingError(f"looks like {LOOKS_LIKE}, but no row with a rate is in it. {' '.join(odd)}")
    assumed, unknown = [], []
    if host:
        assumed.append("arrays larger than the caches (STREAM asks for four times as large)")
        unknown.append("write-allocate reads, which STREAM does not count: traffic is up to 3/2 of Copy and Scale, "
                       "4/3 of Add and Triad without non-temporal stores")  # fmt: skip
        if any(one.source == "host" for one in host):
            unknown.append("on which NUMA nodes it ran: a line numactl -N 0 -m 0 ./stream before it tells")
    name = "STREAM" if host else "superbench gpu-stream"
    return Finding(name, rates=(*host, *gpus), facts=(*host_facts, *gpu_facts), assumed=tuple(assumed),
                   unknown=tuple(unknown), odd=tuple(odd))  # fmt: skip


def _host(text: Text, odd: list[str]) -> tuple[list[Measured], list[Fact]]:
    rates: list[Measured] = []
    facts: list[Fact] = []
    width = elements = None
    inside, ended, end = False, False, "host"
    for line in text:
        if bound := BOUND.search(line.text):
            inside, ended, end = False, False, _bound_to(bound[1])
        elif re.match(r"\s*STREAM version", line.text):
            end = "host" if ended else end  # a command before the last run says nothing of this one
            inside, ended = False, False
        elif found := re.match(r"\s*This system uses (\d+) bytes per array element", line.text):
            width = whole(found[1])
        elif found := re.match(r"\s*Array size = (\d+)", line.text):
            elements = whole(found[1])
            if elements and width:
                facts.append(Fact("bytes of an array of STREAM", elements * width, "B", line.number))
        elif found := re.match(r"\s*Number of Threads (?:counted|requested) = (\d+)", line.text):
            if threads := whole(found[1]):
                facts.append(Fact("threads of STREAM", threads, "", line.number))
        elif HEADING.match(line.text):
            inside, ended, end = True, True, "host" if ended else end
        elif re.match(r"\s*Failed Validation|.*Solution .*[Ff]ail", line.text):
            odd.append(f"line {line.number}: STREAM says that its results are wrong.")
        elif inside and (row := ROW.match(line.text)):
            cells = row[2].split()
            rate = positive(cells[0], 1e6) if len(cells) == 4 else None
            seconds = positive(cells[2]) if len(cells) == 4 else None
            if rate is None or seconds is None:
                odd.append(f"line {line.number}: {row[1]} has no rate and times above 0, left out.")
                continue
            size = ARRAYS[row[1]] * width * elements if width and elements else None
            if size and not agree(rate, size, seconds, last_digit(cells[2])):
                odd.append(
                    f"line {line.number}: {row[1]} of {rate:.6g} B/s is not its arrays' {size:,} B in {seconds} s."
                )
            access = "copy" if ARRAYS[row[1]] == 2 else "mixed"
            rates.append(Measured(end, end, rate, access, note=f"{row[1]}, bytes read and written added",
                                  line=line.number))  # fmt: skip
    return rates, facts


def _bound_to(options: str) -> str:
    """The NUMA node whose cores and memory numactl's options bind a run to; "host" where they do not name one node."""
    nodes = {found[1] for word in NODE.values() if (found := word.search(f"{options} "))}
    whole_ones = all(word.search(f"{options} ") for word in NODE.values())
    return f"numa{int(nodes.pop())}" if whole_ones and len(nodes) == 1 else "host"


def _gpus(text: Text, odd: list[str]) -> tuple[list[Measured], list[Fact]]:
    rates: list[Measured] = []
    facts: list[Fact] = []
    peaks: dict[int, float] = {}
    for line in text:
        if gpu := GPU.match(line.text):
            facts.append(Fact(f"model of gpu{int(gpu[1])}", gpu[2], "", line.number))
            if peak := positive(gpu[3], 1e9):
                peaks[int(gpu[1])] = peak
                facts.append(Fact(f"nominal memory rate of gpu{int(gpu[1])}", peak, "B/s", line.number))
        elif row := GPU_ROW.match(line.text):
            cells = row[6].split()
            rate = positive(cells[0], 1e9) if len(cells) == 2 else None
            if rate is None:
                odd.append(f"line {line.number}: has no rate above 0, left out.")
                continue
            kernel, number = row[1].capitalize(), int(row[3])
            share = positive(cells[1], 0.01)
            if share and number in peaks and abs(rate / peaks[number] - share) > 0.001:
                odd.append(f"line {line.number}: {cells[0]} GB/s is not {cells[1]} % of the peak of gpu{number}.")
            access = "copy" if ARRAYS[kernel] == 2 else "mixed"
            note = f"{kernel}, {row[2]}, blocks of {int(row[5])} threads, bytes read and written added"
            rates.append(Measured(f"gpu{number}", f"gpu{number}", rate, access, size=whole(row[4]), note=note,
                                  line=line.number))  # fmt: skip
    return rates, facts
