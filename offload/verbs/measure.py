"""`offload measure`: what this machine sustains, as a topology file of it."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from offload.errors import OffloadError, OutputError, did_you_mean
from offload.files import named, same_file
from offload.verbs import ANSWERED, NO
from offload.verbs.output import check_outputs, print_json, print_report, put, write_file

EVERY = 1.0  # seconds between lines of progress where there is no terminal
MOST = 80  # columns of progress
INTERRUPTED = 130  # as a shell has it for Ctrl-C
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
        epilog="Exit status: 0 measured, 1 nothing could be measured, 2 bad input, 130 ended by Ctrl-C, SIGTERM "
               "or SIGHUP: what was measured is told, and no file is left.",
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
    folders = options.disk or ["."]
    check_outputs({"-o": options.output})
    check_writable(options.output, folders)
    from offload.measure import QUICK, THOROUGH, Ended, measure

    told, status = Progress(sys.stderr), None
    try:
        measurement = measure(folders, QUICK if options.quick else THOROUGH, parts, tell=told.tell)
    except Ended as ended:
        measurement, status = ended.measurement, INTERRUPTED
    finally:
        told.end()
    topology, refused, where = measurement.told, None, options.output
    last = "The topology (-o FILE writes it to a file):" if where is None else f"Written to {named(where)}"
    if status == INTERRUPTED:
        last = "Ended before all was measured: no topology is written."
    elif topology is None:
        last = ""  # why stands among what is not measured
    elif where is not None and topology is not None:
        try:
            write_file(where, topology.text)
        except OutputError as error:  # what took minutes is not lost
            last = f"The topology, which {named(where)} did not take:"
            refused, where = error, None
    if options.json:
        print_json(measurement.data | {"topology": None if topology is None else topology.text})
    elif measurement.collected.figures or status is None:
        from offload.report_measure import write_measurement

        print_report(write_measurement, measurement, last)
        if where is None and topology is not None and status is None:
            put("\n" + topology.text)
    else:
        told.say("ended before anything was measured; no file is left and none was written")
    if refused is not None:
        raise refused
    return status or (ANSWERED if measurement.collected.figures and topology is not None else NO)


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


def check_writable(path: str | None, folders: Sequence[str], option: str = "-o") -> None:
    """Refuse a file of an option that cannot be written, or is to be read, before minutes are spent. Raises
    OffloadError."""
    if path is None:
        return
    folder, there = os.path.dirname(os.path.abspath(path)), os.path.exists(path)
    why = ("it has no name" if not path else "it is a folder" if os.path.isdir(path) else
           f"there is no folder {named(folder)}" if not os.path.isdir(folder) else "it is the file that --disk names"
           if any(same_file(path, one) for one in folders) else "")  # fmt: skip
    if not why and (not there or os.path.isfile(path)):  # a pipe would wait for a reader
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o666))
            if not there:
                os.unlink(path)
        except OSError as error:
            why = error.strerror or "it cannot be written"
    if why:
        raise OffloadError(f"{option} {named(path)}: {why}. Name another file; nothing was measured yet.")


class Progress:
    """What is being measured: one line that is written over on a terminal, else a line now and then."""

    def __init__(self, stream: Any, verb: str = "measure"):
        self.stream, self.last, self.verb = stream, 0.0, verb
        self.terminal = bool(getattr(stream, "isatty", lambda: False)()) and os.environ.get("TERM") != "dumb"

    def tell(self, text: str) -> None:
        """Say what has begun."""
        shown = "".join(one if one.isprintable() else "?" for one in text)
        if self.terminal:
            from rich.cells import set_cell_size

            room = max(1, min(self._columns(), MOST) - 1)  # a line that is full may go on in the next
            self._put(f"\r\x1b[K{set_cell_size(f'{self.verb}: {shown}', room).rstrip()}")
        elif time.monotonic() - self.last >= EVERY:
            self.last = time.monotonic()
            self._put(f"{self.verb}: {shown}\n")

    def say(self, text: str) -> None:
        """Say something that stays."""
        self._put(f"{self.verb}: {text}\n")

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self.stream.fileno()).columns or MOST
        except (AttributeError, OSError, ValueError):
            return MOST

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
