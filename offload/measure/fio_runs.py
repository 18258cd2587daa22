"""Patterns of requests run by fio, whose JSON is read as an import reads it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence

from offload.errors import OffloadError
from offload.measure.drives import ByFio, Request
from offload.measure.scratch import DriveError
from offload.measure.settings import Settings
from offload.readers.tools import fio
from offload.readers.tools.text import clean

SLACK = 60.0  # seconds that fio may take beyond its run: it lays out its file first


def words_of(path: str, size: int, request: Request, seconds: float, engine: str) -> list[str]:
    """fio's command line for a pattern."""
    return [
        "fio", "--name=measure", f"--filename={path.replace(':', chr(92) + ':')}", f"--size={size}",
        f"--rw={request.word}", f"--bs={request.block}", f"--iodepth={request.depth}", f"--ioengine={engine}",
        "--direct=1", "--time_based=1", f"--runtime={max(1, round(seconds * 1e3))}ms", "--thread=1",
        "--output-format=json", *(["--end_fsync=1"] if request.write else []),
    ]  # fmt: skip


def by_fio(
    settings: Settings, call: Callable[[Sequence[str]], tuple[int, str, str]] | None = None
) -> ByFio | None:
    """What runs a pattern by fio and gives bytes per second; None where fio is not installed, or where runs are so
    short that fio's own begin takes far longer.

    call : runs words, and gives the exit status, standard output and standard error. The answer raises DriveError
    with what fio says where it fails.
    """
    if call is None:
        if not settings.fio or shutil.which("fio") is None:
            return None
        call = _call

    def run(path: str, size: int, request: Request) -> float:
        status, out, err = call(words_of(path, size, request, settings.drive_run, "libaio"))
        if status and "libaio" in err + out and "load" in err + out:  # built without it
            status, out, err = call(words_of(path, size, request, settings.drive_run, "io_uring"))
        if status:
            raise DriveError(f"fio ended with {status}: {' '.join((err or out).split())[:200]}")
        try:
            found = fio.read(clean(out))
        except OffloadError as error:
            raise DriveError(f"fio's output: {error}") from None
        told = [one.value for one in found.facts if one.unit == "B/s"]  # where it saw no drive below its file
        rates = [one.rate for one in found.rates] or [float(one) for one in told]
        if len(rates) != 1:
            raise DriveError(f"fio's output has {len(rates)} rates, one is due. {' '.join(found.odd)}")
        return rates[0]

    return run


def _call(words: Sequence[str]) -> tuple[int, str, str]:
    try:
        done = subprocess.run(words, capture_output=True, timeout=SLACK, check=False, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise DriveError(f"fio took longer than {SLACK:g} s") from None
    except OSError as error:
        raise DriveError(f"fio cannot be run: {error.strerror}") from None
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
