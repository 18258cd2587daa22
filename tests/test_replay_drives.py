"""Replay on drives: requests past the page cache, files that lie there, and drives that fail or are full."""

from __future__ import annotations

import errno
import os
from types import SimpleNamespace

import pytest

from offload.measure.scratch import DriveError
from offload.replaying import Options, ReplayError, buffers, doing, replay, run
from tests.replaying import HERE, STREAM, loaded, ran

MIB = 2**20


# Drives


def test_past_the_page_cache_requests_are_as_the_rate_was_measured(tmp_path):
    made, topology = loaded(tmp_path)
    try:
        found = replay(topology, made, Options((f"disk0={tmp_path}",), steps=1), here=HERE)
    except DriveError as error:
        pytest.skip(str(error))
    assert any("requests of 1.05 MB, 2 in flight for each move, as its rate was measured" in one for one in found.how)
    assert not found.wrong


@pytest.mark.parametrize(("block", "depth", "size", "expected"), [
    (4 * MIB, 1, 32 * MIB, 4 * MIB),  # one at a time: as asked
    (MIB, 4, 32 * MIB, MIB),  # 32 requests, 4 at once
    (16 * MIB, 32, 32 * MIB, MIB // 2),  # else two in flight
    (4 * MIB, 16, 32 * MIB + 1, MIB + 4096),
    (4 * MIB, 16, 100, MIB // 4),
    (64 * 1024, 16, 100, 64 * 1024),  # never larger than asked
])  # fmt: skip
def test_a_move_has_as_many_requests_in_flight_as_the_drive_was_measured_with(block, depth, size, expected):
    assert doing.Requests(block, depth).block_of(size) == expected


def test_smaller_requests_are_made_and_told(tmp_path, monkeypatch):
    made, topology = loaded(tmp_path)
    sizes, right = [], os.preadv

    def preadv(number, views, offset):
        sizes.append(sum(len(one) for one in views))
        return right(number, views, offset)

    monkeypatch.setattr(os, "preadv", preadv)
    monkeypatch.setattr(run, "requests_of", lambda step, drive: (doing.Requests(4 * MIB, 16), "as asked"))
    monkeypatch.setattr(doing, "SMALLEST", 8192)
    found = replay(topology, made, Options((f"disk0={tmp_path}",), steps=1, way="buffered"), here=HERE)
    assert set(sizes) == {8192} and not found.wrong
    assert any("requests of 4.19 MB, 16 in flight for each move, as asked; down to 8.19 kB in moves" in one
               for one in found.how)  # fmt: skip


def test_a_file_system_without_it_is_told_with_what_helps(tmp_path, monkeypatch):
    def refused(number):
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(doing, "opened_direct", refused)
    with pytest.raises(DriveError, match="takes no O_DIRECT: .*--buffered"):
        ran(tmp_path, way="direct")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["machine.yaml", "plan.yaml"]


def test_mapped_homes_lie_in_a_file(tmp_path):
    plan = """
topology: ./machine.yaml
tensors: {w: {bytes: 256 KiB, home: dram0}}
repeat: 4
tasks: {layer: {compute: cpu0, reads: w}}
"""
    found = ran(tmp_path, plan, way="mapped", disks=(str(tmp_path),))
    assert not found.wrong and any("by a mapping of the file" in one for one in found.how)
    assert {one.name: one.moved for one in found.resources}["cpu0.reads"] == MIB


def test_writes_are_counted(tmp_path):
    plan = STREAM.replace("fetch: {move: w, to: dram0}", "save: {move: w, to: disk0, after: layer}").replace(
        "home: disk0", "home: dram0").replace(", after: fetch", "")  # fmt: skip
    found = ran(tmp_path, plan)
    assert {one.name: one.moved for one in found.resources}["disk0.write"] == 6 * 256 * 1024 and not found.wrong


def test_a_full_drive_is_told_and_leaves_nothing(tmp_path, monkeypatch):
    def full(number, view, at):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(buffers.os, "pwrite", full)
    with pytest.raises(DriveError, match=r"the drive was full after 0 of .*--scale"):
        ran(tmp_path)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["machine.yaml", "plan.yaml"]


def test_a_read_only_file_system_is_told_without_what_only_measure_takes(tmp_path, monkeypatch):
    state = os.statvfs(tmp_path)
    told = {name: getattr(state, name) for name in dir(state) if name.startswith("f_")} | {"f_flag": os.ST_RDONLY}
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(**told))
    with pytest.raises(DriveError, match="read-only file system. Give --disk a folder that can be written"):
        ran(tmp_path)


def test_a_read_only_folder_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(DriveError, match="may not be written by this user"):
        ran(tmp_path)


@pytest.mark.parametrize(("disk", "told"), [
    ("disk9={0}", 'no drive "disk9"'),
    ("disk0={0}/plan.yaml", "is no folder"),
    ("disk0={0}/none", "No such file"),
])  # fmt: skip
def test_a_disk_that_is_none_is_told(tmp_path, disk, told):
    with pytest.raises(ReplayError, match=told):
        ran(tmp_path, disks=(disk.format(tmp_path),))


def test_a_folder_elsewhere_stands_for_the_only_drive_and_says_so(tmp_path):
    found = ran(tmp_path, disks=(str(tmp_path),))
    assert any("stands for disk0" in one for one in found.warnings) or "vda" in found.stands["disk0"]


def test_interrupted_it_tells_what_it_has(tmp_path, monkeypatch):
    made, topology = loaded(tmp_path)
    right, counted = doing.Engine.do, []

    def do(self, place):
        item = self.program.items[place]
        counted.append(item.step)
        if item.step == 3:
            raise KeyboardInterrupt  # as the main thread has it; here it ends the run by its error
        return right(self, place)

    monkeypatch.setattr(doing.Engine, "do", do)
    with pytest.raises(KeyboardInterrupt):
        replay(topology, made, Options((f"disk0={tmp_path}",), "buffered", steps=6), here=HERE)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["machine.yaml", "plan.yaml"]
