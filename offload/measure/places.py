"""Which drive a folder lies on, and how much room it has."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from offload.files import named
from offload.measure.system import System

IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs", "hugetlbfs")
NETWORK = ("nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "ceph", "glusterfs", "lustre", "beegfs", "gpfs", "fuse")


@dataclass(frozen=True, slots=True)
class Place:
    """A folder or file that is measured: its file system, the block device of its drive and the drive's place among
    those of the machine (None where it is none of them, which `why` tells)."""

    path: str
    system: str = ""
    block: str = ""
    drive: int | None = None
    why: str = ""

    @property
    def in_memory(self) -> bool:
        """Whether what is written there stays in memory."""
        return self.system in IN_MEMORY

    @property
    def end(self) -> str:
        """What a measurement calls it."""
        return "drive" if self.drive is None else f"drive{self.drive}"


def place_of(
    path: str, system: System, drives: Sequence[str], device: Callable[[str], int] = lambda path: os.stat(path).st_dev
) -> Place:  # fmt: skip
    """Where a path lies. drives : block devices of the machine's drives in their order; device : the number of a path's
    device, which tests replace. Raises OSError."""
    number = device(path)
    source, kind = _mount(path, number, system)
    shown = named(path)
    if kind in IN_MEMORY:
        return Place(path, kind, why=f"{shown} is memory ({kind}), no drive")
    if kind.split(".")[0] in NETWORK:
        return Place(path, kind, why=f"{shown} is reached over {kind}, which is no drive of this machine")
    real = system.real(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    sources = _sources(source, kind, system) if real is None else []
    if len(sources) == 1:
        real = system.real(f"/sys/class/block/{sources[0]}")
    if len(sources) > 1:
        return Place(path, kind, why=f"{shown} lies on {', '.join(sources)}, {len(sources)} devices of one file system "
                                     f"({kind}), whose rate is not that of one")  # fmt: skip
    if real is None:
        said = f" ({kind})" if kind else ""
        return Place(path, kind, why=f"on which drive {shown}{said} lies is not told: /sys names none")
    below = _disks(real, system)
    if len(below) != 1:
        return Place(path, kind, os.path.basename(real), why=f"{shown} lies on {os.path.basename(real)}, a volume of "
                     f"{len(below) or 'unknown'} drives, whose rate is not that of one")  # fmt: skip
    block = below[0]
    if block not in drives:
        return Place(path, kind, block, why=f"{shown} lies on {block}, which is no drive that a topology tells")
    return Place(path, kind, block, drives.index(block))


def _sources(source: str, kind: str, system: System) -> list[str]:
    """Names of the block devices of a file system that has a number of its own: some lie on several."""
    if not source.startswith("/dev/"):
        return []
    names = [os.path.basename(os.path.realpath(one)) for one in source.split(":")]
    base = "/sys/fs/btrfs"
    members = [system.names(f"{base}/{one}/devices") for one in system.names(base)] if kind == "btrfs" else []
    return next((one for one in members if names[0] in one), names)


def _mount(path: str, number: int, system: System) -> tuple[str, str]:
    """The source and the kind of the file system that a path lies on, "" where nothing tells."""
    best, found = -1, ("", "")
    full = os.path.realpath(path)
    for line in (system.text("/proc/self/mountinfo") or "").splitlines():
        front, _, back = line.partition(" - ")
        cells, said = front.split(), back.split()
        if len(cells) < 5 or len(said) < 2:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda one: chr(int(one[1], 8)), cells[4])
        under = full == point or full.startswith(point.rstrip("/") + "/")
        same = cells[2] == f"{os.major(number)}:{os.minor(number)}"
        if under and (weight := len(point) + 10_000 * same) >= best:
            best, found = weight, (said[1], said[0])
    return found


def _disks(real: str, system: System, depth: int = 0) -> list[str]:
    """The whole drives below a block device: of a partition its drive, of a volume those of its members."""
    if system.text(f"{real}/partition") is not None:
        return _disks(os.path.dirname(real), system, depth)
    members = system.names(f"{real}/slaves")
    if not members or depth > 8:
        return [os.path.basename(real)]
    found = []
    for member in members:
        found += _disks(system.real(f"{real}/slaves/{member}") or f"{real}/slaves/{member}", system, depth + 1)
    return list(dict.fromkeys(found))
