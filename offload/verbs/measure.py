"""`offload measure`: what this machine sustains, as a topology file of it."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

from offload.errors import OffloadError, did_you_mean
from offload.files import named
from offload.verbs import ANSWERED, NO
from offload.verbs.output import check_outputs, print_json, print_report, put, write_file

EVERY = 1.0  # seconds between lines of progress where there is no terminal
PARTS = ("memory", "drive", "processor", "host", "gpu")  # as offload.measure has them, which is imported when due


def add(verbs: Any) -> None:
    """State the verb's words."""
    measure = verbs.add_parser(
        "measure",
        allow_abbrev=False,
        help="measure this machine: a topology file with what its memories, drives, processors and GPUs sustain",
        description="Finds sockets, memory, drives, PCIe and GPUs of the machine that it runs on, measures what they "
                    "sustain, and writes its topology. What cannot be measured is told, and the rest is measured. "
                    "Close other programs before: a busy machine is told, and its figures are low.",
        epilog="Exit status: 0 measured, 1 nothing could be measured, 2 bad input, 130 ended by Ctrl-C (no file is "
               "left).",
    )  # fmt: skip
    measure.add_argument("-o", "--output", metavar="FILE", help="write the topology file here, and not to the report")
    measure.add_argument("--quick", action="store_true",
                         help="under 20 s, with fewer sizes and runs (default: some minutes)")  # fmt: skip
    measure.add_argument(
        "--disk", metavar="PATH", action="append",
        help="a folder on the drive to measure, where a file is made and removed, or a large file, which is only read; "
        "repeatable, one for each drive (default: the current folder)",
    )  # fmt: skip
    measure.add_argument("--only", metavar="PARTS", help=f"measure these alone, by commas: {', '.join(PARTS)}")
    measure.add_argument("--json", action="store_true",
                         help="every figure with all of its runs, as data; topology import reads it")  # fmt: skip
    measure.add_argument("--debug", action="store_true", help="show where an error arose")
    measure.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measure, and print or write what was found."""
    parts = _parts(options.only)
    check_outputs({"-o": options.output})
    _check_writable(options.output)
    from offload.measure import QUICK, THOROUGH, measure

    told = Progress(sys.stderr)
    try:
        measurement = measure(options.disk or ["."], QUICK if options.quick else THOROUGH, parts, tell=told.tell)
    finally:
        told.end()
    topology = measurement.told
    if options.output is not None and topology is not None:
        write_file(options.output, topology.text)
    if options.json:
        print_json(measurement.data | {"topology": None if topology is None else topology.text})
    else:
        from offload.report_measure import write_measurement

        print_report(write_measurement, measurement, options.output)
        if options.output is None and topology is not None:
            put("\n" + topology.text)
    return ANSWERED if measurement.collected.figures and topology is not None else NO


def _parts(given: str | None) -> tuple[str, ...]:
    if given is None:
        return PARTS
    found = tuple(dict.fromkeys(one.strip() for one in given.split(",") if one.strip()))
    for one in found:
        if one not in PARTS:
            raise OffloadError(f'--only: "{one}" is no part. {did_you_mean(one, PARTS, "Parts")}')
    if not found:
        raise OffloadError(f"--only names no part. Parts: {', '.join(PARTS)}.")
    return found


def _check_writable(path: str | None) -> None:
    """Refuse a file that cannot be written before minutes are spent. Raises OffloadError."""
    if path is None:
        return
    folder = os.path.dirname(os.path.abspath(path))
    why = ("it is a folder" if os.path.isdir(path) else f"there is no folder {named(folder)}"
           if not os.path.isdir(folder) else "it may not be written"
           if not os.access(path if os.path.exists(path) else folder, os.W_OK) else "")  # fmt: skip
    if why:
        raise OffloadError(f"-o {named(path)}: {why}. Name another file; nothing was measured yet.")


class Progress:
    """What is being measured: one line that is written over on a terminal, else a line now and then."""

    def __init__(self, stream: Any, verb: str = "measure"):
        self.stream, self.last, self.verb = stream, 0.0, verb
        self.terminal = bool(getattr(stream, "isatty", lambda: False)())

    def tell(self, text: str) -> None:
        """Say what has begun."""
        shown = "".join(one if one.isprintable() else "?" for one in text)
        if self.terminal:
            self._put(f"\r\x1b[K{self.verb}: {shown[:70]}")
        elif time.monotonic() - self.last >= EVERY:
            self.last = time.monotonic()
            self._put(f"{self.verb}: {shown}\n")

    def end(self) -> None:
        """Leave the line empty."""
        if self.terminal:
            self._put("\r\x1b[K")

    def _put(self, text: str) -> None:
        try:
            self.stream.write(text)
            self.stream.flush()
        except (AttributeError, OSError, ValueError):  # nobody reads: no reason to stop
            self.stream = None
