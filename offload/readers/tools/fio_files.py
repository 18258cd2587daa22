"""What a run of fio worked on: one drive, several, or none (memory, a network, a RAID), by its files and its disk_util.

fio lists under disk_util the disks below the files it used, the members of RAIDs and volumes among them; under tmpfs,
network and overlay file systems it sees none and leaves the list out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

NVME = re.compile(r"nvme(\d{1,4})n\d+(?:p\d+)?$")
DISK = re.compile(r"(?:sd[a-z]{1,3}|hd[a-z]|vd[a-z]{1,2}|xvd[a-z]{1,2}|mmcblk\d+|pmem\d+)(?:p?\d+)?$")
VOLUME = re.compile(r"(?:dm-\d+|mapper/.*)$")
OTHERS = (
    (r"md(?:\d|_|/|-)", "a RAID, whose rate is not that of one drive"),
    (r"(?:zram|ram|shm/)", "memory, not a drive"),
    (r"(?:nbd|rbd|drbd)", "a drive of another host"),
    (r"(?:loop|null|fuse)", "no drive of its own"),
)


def disks_of(run: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The names of the disks that fio saw; None where the run lists none."""
    listed = run.get("disk_util")
    if not isinstance(listed, list):
        return None
    names = [one.get("name") for one in listed if isinstance(one, dict)]
    return tuple(name for name in names if isinstance(name, str)) or None


def place_of(
    settings: Iterable[Mapping[str, str]], disks: tuple[str, ...] | None, listing: bool = True
) -> tuple[str, int] | str | None:
    """The drives' name and how many: ("drive0", 1) for /dev/nvme0n1, ("drive", 1), ("drives", 2); why it is none, in
    words; None where nothing tells. listing : whether this fio would have listed disks."""
    known = list(settings)
    files = {one.replace("\\:", ":") for each in known for one in re.split(r"(?<!\\):", each.get("filename", ""))}
    files |= {each["directory"] for each in known if each.get("directory")}
    devices = {one.removeprefix("/dev/") for one in files if one.startswith("/dev/")}
    for name in devices:
        if why := _other(name):
            return f"/dev/{name.split('/')[0]} is {why}"
    if devices and devices == {one.removeprefix("/dev/") for one in files} and not any(map(VOLUME.match, devices)):
        return _counted(devices) or "a file in /dev is no drive that is known"
    if disks is None:
        hidden = any(each.get("disk_util", "1") in ("0", "false") for each in known)
        if listing and known and not hidden:
            return "fio saw no disk below its files: memory, or a network or overlay file system"
        return None
    for name in disks:
        if why := _other(name):
            return f"its files lie on {name.split('/')[0]}, {why}"
    below = {name for name in disks if not VOLUME.match(name)}
    if not below:
        return None
    if len(below) > 1 and len(below) < len(disks):
        return f"its files lie on a volume of {len(below)} disks, whose rate is not that of one drive"
    return _counted(below)


def _other(name: str) -> str | None:
    return next((why for sign, why in OTHERS if re.match(sign, name)), None)


def _counted(names: set[str]) -> tuple[str, int] | None:
    nvme = {int(found[1]) for name in names if (found := NVME.match(name))}
    others = {re.sub(r"(?<=\d)p\d+$|(?<=[a-z])\d+$", "", name) for name in names if DISK.match(name)}
    if len(names) != sum(1 for name in names if NVME.match(name) or DISK.match(name)):
        return None
    if len(nvme) + len(others) > 1:
        return "drives", len(nvme) + len(others)
    return (f"drive{nvme.pop()}", 1) if nvme else ("drive", 1)
