"""Rates of a drive that a tool does not number, put to the drive that a person names: `ssd1=fio.json`."""

from __future__ import annotations

import os
import re
from dataclasses import replace

from offload.errors import OffloadError, did_you_mean, one_line
from offload.importing.ends import Ends
from offload.importing.notes import Notes
from offload.ranges import fold
from offload.readers.tools.finding import WHICH_DRIVE, Finding
from offload.topology import Topology

NAMED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.+)", re.DOTALL)
DRIVE = re.compile(r"drive\d*")


def drive_and_path(text: str) -> tuple[str, str]:
    """The drive and the path of "ssd1=fio.json"; "" and the text where it names none or is a file itself."""
    found = NAMED.fullmatch(text)
    return ("", text) if found is None or os.path.lexists(text) else (found[1], found[2])


def with_drive(findings: tuple[Finding, ...], drive: str) -> tuple[Finding, ...]:
    """What one file says, its rates of a drive being of the one that is named; as it is where the name is "".

    Raises OffloadError where nothing in it is of a drive, or of several.
    """
    if not drive:
        return findings
    told = {end for one in findings for end in _drives(one)}
    file = next((one.file for one in findings), "")
    if not told:
        raise OffloadError(f"{drive}={file}: no rate of one drive is in it. Give the file alone: {file}.")
    if len(told) > 1:
        raise OffloadError(f"{drive}={file}: it tells {', '.join(sorted(told))} apart. Give the file alone, {file}, or "
                           "one file for each drive.")  # fmt: skip
    return tuple(replace(one, drive=drive) if _drives(one) else one for one in findings)


def placed(finding: Finding, topology: Topology, notes: Notes) -> Finding:
    """A finding with the number of the drive that it is said to be of. Raises OffloadError for a name that is none."""
    if not finding.drive:
        return finding
    drives = Ends(topology).drives
    if finding.drive not in drives:
        raise OffloadError(f'{finding.drive}={finding.file}: there is no drive "{one_line(finding.drive)}". '
                           f"{did_you_mean(finding.drive, drives, 'Drives')}")  # fmt: skip
    notes.assume(f"{finding.file or finding.tool}: the drive is {finding.drive}, as is said with the file's name")
    number = f"drive{drives.index(finding.drive)}"

    def end(name: str) -> str:
        return number if DRIVE.fullmatch(name) else name

    rates = tuple(replace(one, source=end(one.source), destination=end(one.destination)) for one in finding.rates)
    delays = tuple(replace(one, source=end(one.source), destination=end(one.destination)) for one in finding.delays)
    return replace(finding, rates=rates, delays=delays)


def how_to_name(end: str, topology: Topology, file: str) -> str:
    """Why a rate of a drive is not written, and how to say which drive it was."""
    drives = Ends(topology).drives
    if not drives:
        return "no drive is known here: add an output that tells the drives, as that of lsblk -J or lstopo"
    which = f"{end} is none of the drives here" if end != "drive" else "which of the drives here it was is not told"
    return f"{which} ({fold(drives)}): write it before the file, as {drives[0]}={file or 'FILE'}"


def is_answered(text: str, finding: Finding) -> bool:
    """Whether what an output leaves open is said with the file's name."""
    return bool(finding.drive) and text.startswith(WHICH_DRIVE)


def _drives(finding: Finding) -> set[str]:
    ends = {end for one in finding.rates for end in (one.source, one.destination)}
    ends |= {end for one in finding.delays for end in (one.source, one.destination)}
    return {end for end in ends if DRIVE.fullmatch(end)}
