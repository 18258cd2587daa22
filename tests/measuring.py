"""What tests of measuring share: small settings, and trees of /sys and /proc of made-up machines."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from offload.measure.settings import KIB, MIB, QUICK, Settings
from offload.measure.system import System


def small(**changed) -> Settings:
    """Settings that take no time."""
    plain = replace(
        QUICK, repeats=2, seconds=None, caches=1, array=16 * MIB, touch=60.0, memory_run=0.0,
        drive_file=32 * MIB, drive_run=0.01, drive_sure=0.01,
        drive_fill=30.0, blocks=(64 * KIB, 512 * KIB, 4 * MIB), depths=(1, 2), copies=(64 * KIB,), matrix=(64,),
        gpu_copy=(1 * MIB, 4 * MIB),
    )  # fmt: skip
    return replace(plain, **changed)


def tree(root: Path, files: dict[str, str], links: dict[str, str] | None = None) -> Path:
    """Files below a root, and links to other paths below it."""
    for name, text in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name, target in (links or {}).items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(os.path.relpath(root / target.lstrip("/"), path.parent))
    return root


def nothing(words: list[str]) -> None:
    """No program is installed."""


def system(root: Path, outputs: dict[str, str] | None = None) -> System:
    """A machine below a root, and what its programs print, by the words that call them."""
    return System(root, lambda words: (outputs or {}).get(" ".join(words)))


def pci(address: str, kind: str, above: str = "", **said: str) -> tuple[dict[str, str], dict[str, str]]:
    """The files and the link of a PCIe device below the bridges `above`."""
    base = f"/sys/devices/pci0000:00{above}/{address}"
    files = {f"{base}/class": kind, **{f"{base}/{key}": value for key, value in said.items()}}
    return files, {f"/sys/bus/pci/devices/{address}": base}


def two_sockets(root: Path) -> Path:
    """Two sockets of one NUMA node each, a GPU behind a PCIe switch, an NVMe drive, a SATA drive with a partition."""
    files = {
        "/proc/meminfo": "MemTotal:       268435456 kB\nMemFree: 1 kB\nMemAvailable:   134217728 kB\n",
        "/proc/cpuinfo": "processor : 0\nmodel name\t: Example 9000\nflags\t\t: fpu avx2\n",
        "/proc/loadavg": "0.05 0.10 0.10 1/200 1234\n",
        "/proc/stat": "cpu  100 0 50 1000 10 0 5 0 0 0\n",
        "/proc/self/mountinfo": "30 1 8:1 / / rw - ext4 /dev/sda1 rw\n31 30 259:0 / /fast rw - xfs /dev/nvme0n1 rw\n"
                                "32 30 0:40 / /dev/shm rw - tmpfs tmpfs rw\n",
    }  # fmt: skip
    links: dict[str, str] = {}
    for node, cpus in ((0, "0-1,4-5"), (1, "2-3,6-7")):
        base = f"/sys/devices/system/node/node{node}"
        files |= {
            f"{base}/cpulist": cpus + "\n",
            f"{base}/meminfo": f"Node {node} MemTotal: 134217728 kB\nNode {node} MemFree: 67108864 kB\n"
                               f"Node {node} FilePages: 1024 kB\n",
            f"{base}/distance": "10 21\n" if node == 0 else "21 10\n",
        }  # fmt: skip
    for cpu in range(8):
        base = f"/sys/devices/system/cpu/cpu{cpu}"
        package = cpu // 2 % 2
        shared = "0-1,4-5" if package == 0 else "2-3,6-7"
        siblings = f"{cpu % 4},{cpu % 4 + 4}\n"
        files |= {
            f"{base}/topology/physical_package_id": f"{package}\n",
            f"{base}/topology/thread_siblings_list": siblings,
        }
        for index, level, kind, size, of in ((0, 1, "Data", "48K", siblings), (1, 1, "Instruction", "32K", siblings),
                                             (2, 2, "Unified", "2048K", siblings),
                                             (3, 3, "Unified", "32M", shared)):  # fmt: skip
            place = f"{base}/cache/index{index}"
            files |= {f"{place}/level": f"{level}", f"{place}/type": kind, f"{place}/size": size,
                      f"{place}/shared_cpu_list": of}  # fmt: skip
    fast, wide = {"max_link_speed": "32.0 GT/s PCIe", "max_link_width": "16"}, {"max_link_width": "4"}
    root_port, upper, lower = "0000:00:01.0", "0000:01:00.0", "0000:02:00.0"
    devices = [
        pci(root_port, "0x060400", **fast, numa_node="1"),
        pci(upper, "0x060400", f"/{root_port}", **fast, numa_node="1"),
        pci(lower, "0x060400", f"/{root_port}/{upper}", max_link_speed="16.0 GT/s PCIe", max_link_width="16"),
        pci("0000:03:00.0", "0x030200", f"/{root_port}/{upper}/{lower}", **fast, numa_node="1", vendor="0x10de",
            device="0x2330", current_link_speed="2.5 GT/s PCIe", current_link_width="16"),
        pci("0000:00:03.0", "0x060400", max_link_speed="16.0 GT/s PCIe", max_link_width="4", numa_node="0"),
        pci("0000:04:00.0", "0x010802", "/0000:00:03.0", max_link_speed="32.0 GT/s PCIe", **wide, numa_node="0"),
    ]  # fmt: skip
    for found, linked in devices:
        files |= found
        links |= linked
    nvme = "/sys/devices/pci0000:00/0000:00:03.0/0000:04:00.0/nvme/nvme0/nvme0n1"
    sata = "/sys/devices/pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0/block/sda"
    files |= {f"{nvme}/size": "2000000\n", f"{sata}/size": "4000000\n", f"{sata}/sda1/partition": "1\n",
              f"{sata}/sda1/size": "3999000\n"}  # fmt: skip
    virtual = {"loop0": "8", "dm-0": "8", "zram0": "8"}
    for name, size in virtual.items():
        files[f"/sys/devices/virtual/block/{name}/size"] = size
        links[f"/sys/block/{name}"] = f"/sys/devices/virtual/block/{name}"
    links |= {"/sys/block/nvme0n1": nvme, "/sys/block/sda": sata, "/sys/dev/block/8:1": f"{sata}/sda1",
              "/sys/dev/block/259:0": nvme}  # fmt: skip
    return tree(root, files, links)
