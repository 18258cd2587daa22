"""The machine that is found: /sys and /proc of made-up machines, what programs print, and what is not there."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from offload.importing import import_outputs
from offload.measure import conditions
from offload.measure.figures import Collected
from offload.measure.machine import find
from offload.measure.peaks import memory_peaks, modules_of
from offload.measure.places import place_of
from offload.measure.system import fields, kib, numbers_of
from tests.measuring import pci, system, tree, two_sockets

GIB = 2**30


@pytest.fixture
def box(tmp_path):
    return two_sockets(tmp_path)


def test_nodes_with_their_processors_cores_first_and_their_free_memory(box):
    here = find(system(box), Collected(), allowed=range(8))
    assert [(one.number, one.cpus) for one in here.nodes] == [(0, (0, 1, 4, 5)), (1, (2, 3, 6, 7))]
    assert {one.free for one in here.nodes} == {64 * GIB + 2**20}
    assert [one.cache for one in here.nodes] == [32 * 2**20] * 2
    assert here.caches == 4 * 2 * 2**20 + 2 * 32 * 2**20
    assert here.cpu == "Example 9000" and here.drives == ("nvme0n1", "sda")


def test_processors_that_may_not_be_used_are_not(box):
    here = find(system(box), Collected(), allowed=[1, 2])
    assert [one.cpus for one in here.nodes] == [(1,), (2,)]


def test_caches_side_by_side_are_added_up(box):
    """As of a processor of several chiplets: arrays have to be larger than all of them."""
    files = {f"/sys/devices/system/cpu/cpu{cpu}/cache/index3/shared_cpu_list": f"{cpu % 4},{cpu % 4 + 4}\n"
             for cpu in range(8)}  # fmt: skip
    here = find(system(tree(box, files)), Collected(), allowed=range(8))
    assert [one.cache for one in here.nodes] == [64 * 2**20] * 2
    assert [one.cache for one in find(system(box), Collected(), allowed=[1]).nodes] == [32 * 2**20, 0]


def test_the_memory_of_a_node_is_asked_for_once(box):
    asked = "lstopo-no-graphics --filter io:all --of xml"
    xml = ('<?xml version="1.0"?>\n<topology version="2.0">\n <object type="Machine" os_index="0" gp_index="1">\n'
           '   <object type="NUMANode" os_index="0" gp_index="3" local_memory="1073741824" cpuset="0x3"/>\n'
           '   <object type="NUMANode" os_index="7" gp_index="4" local_memory="1073741824" cpuset="0x4"/>\n'
           " </object>\n</topology>\n")  # fmt: skip
    here = find(system(box, {asked: xml}), Collected(), allowed=[0])
    assert [(one.number, one.size) for one in here.findings[1].machine.numas] == [(0, None), (7, GIB)]


def test_a_drive_that_could_have_several_ways_to_it_is_found_behind_the_first(tmp_path):
    block = "/sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1"
    files, links = pci("0000:04:00.0", "0x010802", max_link_speed="16.0 GT/s PCIe", max_link_width="4")
    controller = "/sys/devices/pci0000:00/0000:04:00.0/nvme/nvme0"
    root = tree(tmp_path, {**files, f"{block}/size": "2000000\n", f"{controller}/state": "live\n"}, {
        **links, "/sys/block/nvme0n1": block, f"{block}/device/nvme0": controller})  # fmt: skip
    here = find(system(root), Collected(), allowed=[0])
    assert here.drives == ("nvme0n1",)
    (drive,) = [one for one in here.findings[0].machine.devices if one.kind == "nvme"]
    assert (drive.port.generation, drive.port.lanes) == (4, 4)


def test_the_machine_becomes_a_topology(box):
    here = find(system(box), Collected(), allowed=range(8))
    imported = import_outputs(here.findings)
    topology = imported.topology
    assert list(topology.memories) == ["dram0", "dram1", "hbm0", "ssd0", "disk0"]
    assert topology.memories["dram0"].capacity == 128 * GIB and topology.memories["dram1"].at == "socket1"
    assert topology.memories["ssd0"].capacity == 512 * 2_000_000
    links = {name: (link.a, link.b, link.generation, link.lanes) for name, link in topology.links.items()}
    assert links["up0"] == ("socket1", "sw0", 5, 16)
    assert links["pcie0"] == ("sw0", "hbm0", 4, 16)  # the port above it is of generation 4
    assert next(one for one in links.values() if "ssd0" in one)[2:] == (4, 4)
    assert any("H100" in one for one in imported.assumed)  # by its PCI number
    assert any("idle" in one or "when it was asked it ran at 1 x16" in one for one in imported.assumed)


def test_what_nvidia_smi_says_of_gpus_is_taken(box):
    query = "nvidia-smi --query-gpu=index,pci.bus_id,name,memory.total --format=csv,noheader,nounits"
    said = {query: "0, 00000000:03:00.0, NVIDIA H100 80GB HBM3, 81559\n"}
    here = find(system(box, said), Collected(), allowed=range(8))
    topology = import_outputs(here.findings).topology
    assert topology.memories["hbm0"].capacity == 81559 * 2**20


def test_lstopo_is_taken_where_it_is_there_and_told_where_it_is_not_understood(box):
    asked = "lstopo-no-graphics --filter io:all --of xml"
    xml = ('<?xml version="1.0"?>\n<topology version="2.0">\n <object type="Machine" os_index="0" gp_index="1">\n'
           '  <object type="Package" os_index="0" gp_index="2">\n'
           '   <object type="NUMANode" os_index="0" gp_index="3" local_memory="1073741824" cpuset="0x3"/>\n'
           '   <object type="PU" os_index="0" gp_index="4" cpuset="0x1"/>\n  </object>\n </object>\n'
           "</topology>\n")  # fmt: skip
    here = find(system(box, {asked: xml}), Collected(), allowed=[0])
    assert [one.tool for one in here.findings][:2] == ["/sys and /proc", "hwloc XML 2.0"]
    told = Collected()
    assert len(find(system(box, {asked: "Segmentation fault"}), told, allowed=[0]).findings) == 1
    assert any("not understood" in one and "/sys is taken" in one for one in told.missing)


def test_a_container_without_sys(tmp_path):
    root = tree(tmp_path, {"/proc/meminfo": "MemTotal: 1048576 kB\nMemAvailable: 524288 kB\n"})
    told = Collected()
    here = find(system(root), told, allowed=[0, 3])
    assert [(one.number, one.cpus, one.free) for one in here.nodes] == [(0, (0, 3), GIB // 2)]
    assert any("NUMA nodes" in one and "taken as one node" in one for one in told.missing)
    topology = import_outputs(here.findings).topology
    assert topology.memories["dram0"].capacity == GIB and not here.drives


def test_a_machine_that_tells_nothing_at_all(tmp_path):
    told = Collected()
    here = find(system(tmp_path), told, allowed=[0])
    assert here.nodes[0].free > 0 or not hasattr(os, "sysconf")
    assert any("/proc/meminfo cannot be read" in one for one in told.missing)
    assert import_outputs(here.findings).topology.memories["dram0"].kind == "dram"


@pytest.mark.parametrize("files", [
    {"/sys/fs/cgroup/memory.max": "1073741824\n", "/sys/fs/cgroup/memory.current": "73741824\n"},
    {"/sys/fs/cgroup/memory/memory.limit_in_bytes": "1073741824\n",
     "/sys/fs/cgroup/memory/memory.usage_in_bytes": "73741824\n"},
])  # fmt: skip
def test_a_container_may_use_less_memory_than_there_is(box, files):
    told = Collected()
    here = find(system(tree(box, files)), told, allowed=range(8))
    assert {one.free for one in here.nodes} == {1_000_000_000}
    assert any("may use 1 GiB of 256" in one for one in told.warnings)


def test_a_process_may_use_fewer_addresses_than_there_is_memory(box):
    root = tree(box, {"/proc/self/limits": "Limit  Soft Limit  Hard Limit  Units\nMax address space         2147483648"
                                           "           unlimited            bytes\n",
                      "/proc/self/status": "Name: x\nVmSize:   1048576 kB\n"})  # fmt: skip
    told = Collected()
    assert {one.free for one in find(system(root), told, allowed=range(8)).nodes} == {GIB}
    assert any("may use 2 GiB of addresses" in one for one in told.warnings)
    unlimited = tree(box, {"/proc/self/limits": "Max address space   unlimited   unlimited   bytes\n"})
    assert {one.free for one in find(system(unlimited), told, allowed=range(8)).nodes} == {64 * GIB + 2**20}


def test_no_limit_of_a_container_is_no_limit(box):
    told = Collected()
    find(system(tree(box, {"/sys/fs/cgroup/memory.max": "max\n"})), told, allowed=range(8))
    assert not told.warnings


def test_texts_of_the_kernel():
    assert numbers_of("0-3,8,10-11\n") == (0, 1, 2, 3, 8, 10, 11)
    assert numbers_of("") == numbers_of(None) == numbers_of("none") == ()
    assert [kib(one) for one in ("16 kB", "48K", "2M", "512", "", None, "x kB")] == [16384, 49152, 2**21, 512, None,
                                                                                    None, None]  # fmt: skip
    assert list(fields("a: 1\nno line\nb : 2:3\n")) == [("a", "1"), ("b", "2:3")]


# Places


def lies(path: str, root, *number: int):
    """The place of a path that is on the device of this number."""
    return place_of(path, system(root), ("nvme0n1", "sda"), lambda path: os.makedev(*number))


def test_a_folder_is_on_the_drive_of_its_partition(box):
    place = lies("/home", box, 8, 1)
    assert (place.block, place.drive, place.end, place.why) == ("sda", 1, "drive1", "")


def test_a_folder_on_a_whole_drive(box):
    place = lies("/fast/data", box, 259, 0)
    assert (place.system, place.block, place.drive) == ("xfs", "nvme0n1", 0)


def test_memory_is_no_drive(box):
    place = lies("/dev/shm", box, 0, 40)
    assert place.in_memory and place.drive is None and "memory (tmpfs), no drive" in place.why


def test_a_network_a_volume_and_a_device_that_nobody_tells(box):
    root = tree(box, {
        "/proc/self/mountinfo": "30 1 0:50 / / rw - nfs4 host:/export rw\n40 30 253:0 / /vol rw - ext4 /dev/dm-0 rw\n"
                                "41 30 0:60 / /over rw - overlay overlay rw\n",
    }, {
        "/sys/dev/block/253:0": "/sys/devices/virtual/block/dm-0",
        "/sys/devices/virtual/block/dm-0/slaves/sda": "/sys/block/sda",
        "/sys/devices/virtual/block/dm-0/slaves/nvme0n1": "/sys/block/nvme0n1",
    })  # fmt: skip
    for number, path, words in (((0, 50), "/", "reached over nfs4"), ((253, 0), "/vol", "a volume of 2 drives"),
                                ((0, 60), "/over", "(overlay) lies is not told")):  # fmt: skip
        place = lies(path, root, *number)
        assert words in place.why and place.drive is None and place.end == "drive"


@pytest.mark.parametrize(("kind", "source"), [("btrfs", "/dev/sda"), ("bcachefs", "/dev/sda:/dev/nvme0n1")])
def test_a_file_system_on_two_drives_is_neither(box, kind, source):
    root = tree(box, {
        "/proc/self/mountinfo": f"30 1 0:50 / / rw - {kind} {source} rw\n",
        "/sys/fs/btrfs/features/x": "1\n", "/sys/fs/btrfs/1-2/devices/sda/size": "1\n",
        "/sys/fs/btrfs/1-2/devices/nvme0n1/size": "1\n",
    }, {"/sys/class/block/sda": "/sys/block/sda", "/sys/class/block/nvme0n1": "/sys/block/nvme0n1"})  # fmt: skip
    place = lies("/", root, 0, 50)
    assert place.drive is None and "2 devices of one file system" in place.why


def test_a_file_system_with_a_number_of_its_own_on_one_drive_is_that_drive(box):
    root = tree(box, {"/proc/self/mountinfo": "30 1 0:50 / / rw - btrfs /dev/sda rw\n"},
                {"/sys/class/block/sda": "/sys/block/sda"})  # fmt: skip
    assert lies("/", root, 0, 50).drive == 1


def test_a_volume_on_one_drive_is_that_drive(box):
    root = tree(box, {}, {"/sys/dev/block/253:0": "/sys/devices/virtual/block/dm-0",
                          "/sys/devices/virtual/block/dm-0/slaves/nvme0n1": "/sys/block/nvme0n1"})  # fmt: skip
    assert lies("/x", root, 253, 0).drive == 0


# Peaks

DMI = """# dmidecode 3.3
Handle 0x0040, DMI type 17, 40 bytes
Memory Device
\tData Width: 64 bits
\tSize: 16 GB
\tLocator: {}
\tBank Locator: {}
\tType: {}
\tSpeed: 6400 MT/s
\tConfigured Memory Speed: {}
"""
EMPTY = "Handle 0x0041, DMI type 17, 40 bytes\nMemory Device\n\tSize: No Module Installed\n\tSpeed: Unknown\n"


def dmi(*places: tuple[str, str], kind: str = "DDR5", speed: str = "4800 MT/s") -> dict[str, str]:
    return {"dmidecode -t 17": "\n\n".join([*(DMI.format(*one, kind, speed) for one in places), EMPTY])}


@pytest.mark.parametrize(("places", "channels"), [
    ([("DIMM 0", "P0 CHANNEL A"), ("DIMM 1", "P0 CHANNEL A"), ("DIMM 0", "P0 CHANNEL B")], 2),
    ([("Controller0-ChannelA-DIMM0", "BANK 0"), ("Controller1-ChannelA-DIMM0", "BANK 2")], 2),
    ([("DIMM_A1", "BANK 0"), ("DIMM_A2", "BANK 1"), ("DIMM_B1", "BANK 2")], 3),  # at most: no channel is named
    ([("DIMM 0", "P0 CHANNEL A"), ("A2", "")], 2),
])  # fmt: skip
def test_the_peak_of_memory_is_never_below_that_of_its_channels(tmp_path, places, channels):
    told = Collected()
    peaks = memory_peaks(system(tmp_path, dmi(*places)), [0], told)
    assert peaks[0][0] == channels * 4800e6 * 8 and peaks[0][1].startswith("peak: dmidecode")
    assert not told.missing


def test_peaks_of_two_sockets(tmp_path):
    places = [("DIMM 0", f"P{number} CHANNEL {letter}") for number in (0, 1) for letter in "ABC"]
    peaks = memory_peaks(system(tmp_path, dmi(*places)), [0, 1], Collected())
    assert {number: peak for number, (peak, _) in peaks.items()} == {0: 3 * 38.4e9, 1: 3 * 38.4e9}
    told = Collected()
    assert memory_peaks(system(tmp_path, dmi(("A1", ""), ("B1", ""))), [0, 1], told) == {}
    assert "which modules are whose" in next(iter(told.missing))


@pytest.mark.parametrize(("outputs", "words"), [
    ({}, "is not there, may not be run"),
    ({"dmidecode -t 17": "# dmidecode 3.4\n"}, "tells no speed"),
    ({"dmidecode -t 17": ""}, "tells nothing"),
    (dmi(("DIMM 0", ""), kind="RAM", speed="Unknown"), "tells no speed"),
    ({"dmidecode -t 17": EMPTY}, "tells no speed"),
])  # fmt: skip
def test_a_peak_that_nobody_tells_is_left_out(tmp_path, outputs, words):
    told = Collected()
    assert memory_peaks(system(tmp_path, outputs), [0], told) == {}
    assert words in next(iter(told.missing)) and "no floor counts it" in next(iter(told.missing))


def test_modules_of_a_virtual_machine_are_no_peak(tmp_path):
    """Hosts make them up: one module of 24 GB is told where eight channels are."""
    root = tree(tmp_path, {"/proc/cpuinfo": "flags : fpu hypervisor sse\n"})
    told = Collected()
    assert memory_peaks(system(root, dmi(("DIMM 0", ""))), [0], told) == {}
    assert "virtual machine" in next(iter(told.missing))


def test_half_wide_channels_count_as_whole_ones():
    (text,) = dmi(("DIMM 0", "")).values()
    assert [one.rate for one in modules_of(text.replace("64 bits", "32 bits")) or ()] == [38.4e9]


# How busy


def test_a_busy_machine_is_told(box):
    told = Collected()
    moment = conditions.now(system(tree(box, {"/proc/loadavg": "3.50 1 1 1/2 3\n"})))
    conditions.before(system(box), range(4), moment, told)
    assert any("load average of the last minute was 3.5 on 4 processors" in one for one in told.warnings)


def test_an_idle_machine_is_not_doubted(box, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    told = Collected()
    conditions.before(system(box), range(4), conditions.now(system(box)), told)
    assert not told.warnings and not told.missing


@pytest.mark.parametrize(("files", "words"), [
    ({"/sys/fs/cgroup/cpu.max": "150000 100000\n"}, "may use 1.5 of 4 processors"),
    ({"/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "150000\n", "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"},
     "may use 1.5 of 4 processors"),
    ({f"/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor": "powersave\n" for cpu in range(4)}, "powersave"),
    ({"/proc/cpuinfo": "flags : fpu hypervisor sse\n"}, "virtual machine"),
])  # fmt: skip
def test_what_holds_processors_back_is_told(box, files, words):
    root = tree(box, files)
    told = Collected()
    conditions.before(system(root), range(4), conditions.now(system(root)), told)
    assert any(words in one for one in told.warnings)


def test_fewer_processors_than_there_are(box, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    told = Collected()
    conditions.before(system(box), range(4), conditions.now(system(box)), told)
    assert any("4 of 16 processors" in one for one in told.warnings)


def test_time_that_the_host_took_is_told(box):
    begun = conditions.now(system(box))
    ended = replace(begun, ticks={**begun.ticks, "user": begun.ticks["user"] + 60,
                                  "steal": begun.ticks["steal"] + 40})  # fmt: skip
    told = Collected()
    shares = conditions.after(begun, ended, told)
    assert shares["steal"] == pytest.approx(0.4) and any("took 40%" in one for one in told.warnings)
    assert conditions.after(begun, begun, Collected()) == {}


@pytest.mark.parametrize(("others", "told_of"), [(0.1, False), (0.9, True)])
def test_other_programs_that_run_meanwhile_are_told(box, others, told_of):
    """Ten seconds in which this process works one and others work `others` processors."""
    begun = conditions.now(system(box))
    spent = round((1 + others) * 10 * conditions.TICKS)
    ended = replace(begun, ticks={**begun.ticks, "user": begun.ticks["user"] + spent}, clock=begun.clock + 10,
                    own=begun.own + 10)  # fmt: skip
    told = Collected()
    conditions.after(begun, ended, told)
    assert any("other programs kept 0.9 processors busy" in one for one in told.warnings) == told_of


def test_without_proc_nothing_is_known_of_how_busy_it_was(tmp_path):
    moment = conditions.now(system(tmp_path))
    assert moment.load is None and moment.ticks == {}
    told = Collected()
    conditions.before(system(tmp_path), [0], moment, told)
    assert any("no load average" in one for one in told.missing)
