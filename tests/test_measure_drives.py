"""Drives: requests of our own and by fio, the page cache, and everything that may be wrong with a folder."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import signal
import threading
from types import SimpleNamespace

import pytest

from offload.measure import drives, ending, scratch
from offload.measure.drives import OwnRequests, Request, measure_drive, opened_direct, patterns
from offload.measure.ending import Threads, ended_in_order, held_back, requested
from offload.measure.figures import Budget, Collected
from offload.measure.fio_runs import by_fio, words_of
from offload.measure.places import Place
from offload.measure.scratch import (
    LEAST,
    POOL,
    PREFIX,
    DriveError,
    fill,
    nameless,
    size_there,
    with_name,
)
from offload.measure.settings import KIB, MIB, QUICK, THOROUGH
from tests.measuring import small


@contextlib.contextmanager
def plainly(number):
    """The file as it is, past nothing: what O_DIRECT would give, on any file system."""
    yield number


@contextlib.contextmanager
def refused(number):
    raise OSError(errno.EINVAL, "Invalid argument")
    yield


def measured(path, **more) -> Collected:
    told = Collected()
    place = more.pop("place", Place(str(path), "ext4", "sda", 0))
    settings = more.pop("settings", small())
    budget = more.pop("budget", Budget(None))
    measure_drive(place, settings, told, budget, lambda text: None, **{"direct": plainly} | more)
    return told


def figures(told: Collected, note: str) -> set[tuple[str, int, int]]:
    return {(one.access, one.size, one.depth) for one in told.figures if one.note.startswith(note)}


# The whole


def test_a_drive_is_read_and_written_by_block_and_depth_and_nothing_stays(tmp_path):
    told = measured(tmp_path)
    due = {(block, 1) for block in (64 * KIB, 512 * KIB, 4 * MIB)} | {(512 * KIB, 2), (4 * MIB, 2)}
    assert figures(told, "O_DIRECT") == {(word, *one) for word in ("read", "write") for one in due}
    assert all(one.rate and len(one.repeats) == 2 for one in told.figures if one.note == "O_DIRECT")
    ends = {(one.source, one.destination) for one in told.figures if one.access == "write"}
    assert ends == {("host", "drive0")}
    assert not told.missing and not list(tmp_path.iterdir())


def test_the_page_cache_is_measured_beside_and_is_no_rate_of_the_drive(tmp_path):
    told = measured(tmp_path)
    notes = {one.note for one in told.figures if not one.rate}
    assert notes == {"through the page cache, until it is on the drive", "through the page cache, after it was dropped",
                     "from the page cache"}  # fmt: skip


def test_a_file_that_is_named_is_only_read(tmp_path):
    path = tmp_path / "model.gguf"
    data = os.urandom(16 * MIB)
    path.write_bytes(data)
    told = measured(path)
    assert {one.access for one in told.figures} == {"read"} and figures(told, "O_DIRECT")
    assert path.read_bytes() == data
    assert any("only read" in one for one in told.missing)


def test_a_file_that_is_too_small_is_told(tmp_path):
    (tmp_path / "tiny").write_bytes(os.urandom(MIB))
    told = measured(tmp_path / "tiny")
    assert not told.figures and "name a file of 8.39 MB and more" in next(iter(told.missing))


@pytest.mark.parametrize("reserved", [False, True])
def test_a_file_that_is_not_on_the_drive_is_no_measure_of_it(tmp_path, reserved):
    """Holes, and room that is reserved and was never written: both are read as zeros, from nowhere."""
    with open(tmp_path / "hollow", "wb") as file:
        (os.posix_fallocate if reserved else lambda number, at, size: os.truncate(number, size))(
            file.fileno(), 0, 64 * MIB)  # fmt: skip
    told = measured(tmp_path / "hollow")
    assert not told.figures and "Name a file with data" in next(iter(told.missing))


def test_what_is_neither_a_folder_nor_a_file_is_told(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert "neither a folder nor a file" in next(iter(measured(tmp_path / "pipe").missing))
    assert "neither a folder nor a file" in next(iter(measured("/dev/null").missing))


def test_where_there_is_no_direct_access_the_page_cache_is_still_measured(tmp_path):
    told = measured(tmp_path, direct=refused)
    assert {one.note for one in told.figures} >= {"from the page cache"} and not any(one.rate for one in told.figures)
    assert any("(ext4) takes no O_DIRECT there: Invalid argument" in one for one in told.missing)


def test_folders_in_memory_are_no_drives(tmp_path):
    told = measured(tmp_path, place=Place(str(tmp_path), "tmpfs", why="/dev/shm is memory (tmpfs), no drive"))
    assert not told.figures and not list(tmp_path.iterdir())
    assert "is memory (tmpfs), no drive. Give --disk a folder on a drive" in next(iter(told.missing))


def test_a_drive_that_nobody_tells_is_measured_and_no_part_of_a_topology(tmp_path):
    told = measured(tmp_path, place=Place(str(tmp_path), "overlay", why="on which drive it lies is not told: no /sys"))
    assert told.figures and not any(one.rate for one in told.figures)
    assert {one.source for one in told.figures if one.access == "read"} == {"drive"}
    assert any("as a part of the topology" in one for one in told.missing)


def test_what_no_time_is_left_for_is_told(tmp_path):
    times = iter([0.0] + [9.0] * 99)
    told = measured(tmp_path, budget=Budget(1.0, lambda: next(times)))
    assert not figures(told, "O_DIRECT") and len(told.missing) == 10
    assert all("no time was left" in one for one in told.missing)


def test_a_slow_drive_gets_fewer_runs(tmp_path):
    times = iter([0.0, 0.5] + [9.0] * 99)  # time for one pattern to begin, and for no second run of it
    told = measured(tmp_path, budget=Budget(1.0, lambda: next(times)))
    assert [len(one.repeats) for one in told.figures if one.rate] == [1] and len(told.missing) == 9


# Requests


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("write", [False, True])
def test_bytes_per_second_are_whole_blocks_over_the_time_of_all(tmp_path, write, depth, monkeypatch):
    """A clock that goes on by a hundredth of a second at each look: every request counts, at its own place."""
    seen, lock, ticks = [], threading.Lock(), iter(range(10_000))
    real = os.pwritev if write else os.preadv

    def seeing(number, buffers, at):
        with lock:
            seen.append((at, len(buffers[0])))
        return real(number, buffers, at)

    monkeypatch.setattr(os, "pwritev" if write else "preadv", seeing)
    with nameless(str(tmp_path)) as number:
        os.pwrite(number, bytes(MIB), 0)
        with lock:
            own = OwnRequests(number, MIB, 0.1, clock=lambda: next(ticks) / 100)
        rate = own.run(Request(write, 64 * KIB, depth))
    assert own.moved == 64 * KIB * len(seen) and rate > 0
    places = [at // (64 * KIB) for at, size in sorted(seen)]
    assert {size for _, size in seen} == {64 * KIB}
    assert sorted(places) == sorted(number % 16 for number in range(len(seen)))  # one after another, around the end


def test_the_rate_is_that_of_the_clock(tmp_path):
    with nameless(str(tmp_path)) as number:
        os.pwrite(number, bytes(MIB), 0)
        ticks = iter([0.0, 0.5, 1.0, 2.0, 4.0])  # begun; after one and two requests; over; ended
        own = OwnRequests(number, MIB, 1.5, clock=lambda: next(ticks))
        assert own.run(Request(False, 256 * KIB, 1)) == own.moved / 4.0
        assert own.moved == 2 * 256 * KIB


def test_a_request_that_fails_is_raised_from_any_depth(tmp_path, monkeypatch):
    def broken(number, buffers, at):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "preadv", broken)
    with nameless(str(tmp_path)) as number, pytest.raises(OSError, match="Input/output"):
        OwnRequests(number, MIB, 5.0).run(Request(False, 64 * KIB, 4))


def test_a_request_that_is_cut_short_is_an_error(tmp_path):
    with nameless(str(tmp_path)) as number:
        os.pwrite(number, bytes(10), 0)
        with pytest.raises(OSError, match="moved 10"):
            OwnRequests(number, MIB, 5.0).run(Request(False, 64 * KIB, 1))


def test_what_fails_in_one_pattern_loses_no_other(tmp_path, monkeypatch):
    real = os.pwritev

    def broken(number, buffers, at):
        if len(buffers[0]) == 512 * KIB:
            raise OSError(errno.EIO, "Input/output error")
        return real(number, buffers, at)

    monkeypatch.setattr(os, "pwritev", broken)
    told = measured(tmp_path)
    assert {one[1] for one in figures(told, "O_DIRECT") if one[0] == "write"} == {64 * KIB, 4 * MIB}
    assert any("write, blocks of 524 kB, 1 in flight: Input/output error" in one for one in told.missing)


def test_the_best_of_short_runs_is_run_for_longer_and_what_then_leads_too(tmp_path, monkeypatch):
    ran = []

    def rate(self, request):
        ran.append((request, self.seconds))
        size = request.block // (64 * KIB)  # 1, 8, 64
        if self.seconds == 0.01:
            return float(size * request.depth)
        return 3.0 if request.block == 4 * MIB else 100.0

    monkeypatch.setattr(OwnRequests, "run", rate)
    told = measured(tmp_path, settings=small(drive_sure=0.5))
    for word in ("read", "write"):
        longer = [request for request, seconds in ran if seconds == 0.5 and request.word == word]
        kinds = list(dict.fromkeys((one.block, one.depth) for one in longer))
        assert kinds[0] == (4 * MIB, 2) and len(longer) == 2 * len(kinds) and len(kinds) <= 3
        its = {(one.size, one.depth): one.value for one in told.figures
               if one.note == "O_DIRECT" and one.access == word}  # fmt: skip
        assert its[kinds[0]] == 3.0 and all(its[one] in (3.0, 100.0) for one in kinds)
        best = max(its, key=lambda one: its[one])
        assert best in kinds or len(kinds) == 3


def test_a_longer_run_that_fails_leaves_the_short_one(tmp_path, monkeypatch):
    def rate(self, request):
        if self.seconds > 0.01:
            raise OSError(errno.EIO, "Input/output error")
        return 5.0

    monkeypatch.setattr(OwnRequests, "run", rate)
    told = measured(tmp_path, settings=small(drive_sure=0.5))
    assert {one.value for one in told.figures if one.note == "O_DIRECT"} == {5.0}
    assert any("for longer: Input/output error" in one for one in told.missing)


def test_patterns_give_fits_over_size_and_over_depth_and_fit_the_file():
    found = patterns(THOROUGH, THOROUGH.drive_file, False)
    assert {one.block for one in found if one.depth == 1} == set(THOROUGH.blocks)
    assert {one.depth for one in found if one.block == THOROUGH.blocks[-2]} == set(THOROUGH.depths)
    assert all(one.block * one.depth < 40 * MIB for one in patterns(THOROUGH, 40 * MIB, True))
    assert patterns(THOROUGH, 1, False) == []


def test_a_file_is_read_past_the_page_cache_where_the_file_system_can(tmp_path):
    with nameless(str(tmp_path)) as number:
        os.pwrite(number, b"x" * MIB, 0)
        os.fsync(number)
        try:
            with opened_direct(number) as direct:
                assert fcntl.fcntl(direct, fcntl.F_GETFL) & os.O_DIRECT
                assert OwnRequests(direct, MIB, 0.01).run(Request(False, 64 * KIB, 2)) > 0
        except OSError as error:  # tmpfs of older kernels, some network and overlay file systems
            assert error.errno in (errno.EINVAL, errno.EOPNOTSUPP)
        assert not fcntl.fcntl(number, fcntl.F_GETFL) & os.O_DIRECT


# Room, rights, what ends it


def disk(monkeypatch, free, read_only=False, may_write=True):
    told = SimpleNamespace(f_flag=int(read_only), f_frsize=4096, f_bavail=free // 4096)
    monkeypatch.setattr(scratch.os, "statvfs", lambda path: told)
    monkeypatch.setattr(scratch.os, "access", lambda path, mode: may_write)


def test_a_file_leaves_room_on_its_drive(monkeypatch):
    disk(monkeypatch, 900 * MIB)
    assert size_there("/x", 400 * MIB) == 400 * MIB
    for free in (799, 300, 64):
        disk(monkeypatch, free * MIB)
        assert 0.95 * free / 2 * MIB <= size_there("/x", 400 * MIB) <= free / 2 * MIB


@pytest.mark.parametrize(("state", "words"), [
    ({"free": 60 * MIB}, "has 62.9 MB free"),
    ({"free": 0}, "Free some, or give --disk"),
    ({"free": 900 * MIB, "read_only": True}, "read-only file system. Give --disk a large file there, which is only"),
    ({"free": 900 * MIB, "may_write": False}, "may not be written by this user"),
])  # fmt: skip
def test_folders_that_cannot_be_measured_say_why(monkeypatch, tmp_path, state, words):
    disk(monkeypatch, **state)
    told = measured(tmp_path)
    assert not told.figures and words in next(iter(told.missing))


def test_a_folder_that_is_not_there():
    with pytest.raises(DriveError, match="cannot be looked at: No such file"):
        size_there("/no/such/folder", MIB)


def filling(after: int, number: int = errno.ENOSPC):
    written = [0]

    def write(to, view, at):
        if written[0] + len(view) > after:
            raise OSError(number, os.strerror(number))
        written[0] += len(view)
        return os.pwrite(to, view, at)

    return write


def test_a_drive_that_fills_up_is_measured_with_what_went_in(tmp_path):
    with nameless(str(tmp_path)) as number:
        assert fill(number, 2 * LEAST, 60, filling(LEAST + POOL))[0] == LEAST + POOL
        assert os.fstat(number).st_size == LEAST + POOL


def test_a_drive_that_is_full_at_once_says_so(tmp_path, monkeypatch):
    with nameless(str(tmp_path)) as number, pytest.raises(DriveError, match="full after 8.39 MB"):
        fill(number, 2 * LEAST, 60, filling(POOL))
    monkeypatch.setattr(drives, "fill", lambda number, size, seconds: fill(number, size, seconds, filling(0)))
    told = measured(tmp_path)
    assert "the drive was full after 0 B" in next(iter(told.missing)) and not list(tmp_path.iterdir())


def test_other_errors_of_writing_are_told_with_their_reason(tmp_path, monkeypatch):
    broken = filling(0, errno.EIO)
    monkeypatch.setattr(drives, "fill", lambda number, size, seconds: fill(number, size, seconds, broken))
    told = measured(tmp_path)
    assert os.strerror(errno.EIO) in next(iter(told.missing))


def test_a_slow_drive_gets_a_smaller_file(tmp_path):
    times = iter([0.0, 100.0, 200.0])  # begun; looked at once there is enough; ended
    with nameless(str(tmp_path)) as number:
        assert fill(number, 4 * LEAST, 5, clock=lambda: next(times)) == (LEAST, 200.0)


def test_no_two_pages_of_the_file_are_alike(tmp_path):
    with nameless(str(tmp_path)) as number:
        size, _ = fill(number, LEAST, 60)
        data = os.pread(number, size, 0)
    assert len({data[at : at + 4096] for at in range(0, size, 4096)}) == size // 4096


def test_a_nameless_file_is_never_seen(tmp_path, monkeypatch):
    with nameless(str(tmp_path)) as number:
        assert os.pwrite(number, b"abc", 0) == 3 and not list(tmp_path.iterdir())
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    with nameless(str(tmp_path)) as number:
        assert os.pwrite(number, b"abc", 0) == 3 and not list(tmp_path.iterdir())


@pytest.mark.parametrize("made", [nameless, with_name])
def test_a_file_that_cannot_be_made_is_told(tmp_path, made):
    with pytest.raises(DriveError, match="no file can be made"), made(str(tmp_path / "none")):
        pass


def test_a_named_file_is_removed_whatever_ends_it(tmp_path):
    with pytest.raises(KeyboardInterrupt), with_name(str(tmp_path)) as path:
        assert os.path.basename(path).startswith(PREFIX) and os.path.exists(path)
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())


# fio


def said(bw: int, options: dict[str, str], word: str = "read", disks: tuple[str, ...] = ("sda",)) -> str:
    idle = {"bw_bytes": 0, "bw": 0, "io_bytes": 0, "total_ios": 0}
    job = {"jobname": "measure", "groupid": 0, "error": 0, "job options": options, "read": idle, "write": idle}
    job[word] = {"bw_bytes": bw, "bw": bw // 1024, "io_bytes": bw, "total_ios": 9, "runtime": 1000}
    return json.dumps({"fio version": "fio-3.36", "jobs": [job], "disk_util": [{"name": one} for one in disks]})


def test_fio_runs_each_pattern_on_the_file_that_has_no_name(tmp_path):
    calls = []

    def call(words):
        options = dict(one.removeprefix("--").partition("=")[::2] for one in words[1:])
        assert os.stat(options["filename"]).st_size == int(options["size"]) and not list(tmp_path.iterdir())
        calls.append((options["rw"], int(options["bs"]), int(options["iodepth"]), options["direct"]))
        return 0, "note: a line before\n" + said(7_000_000_000, options, options["rw"]), ""

    told = measured(tmp_path, by_fio=by_fio(small(), call))
    due = figures(told, "fio, O_DIRECT")
    assert len(due) == 10 and {(*one, "1") for one in due} == set(calls)
    assert len(calls) == 1 + 2 * len(due)  # one to see whether it runs
    assert {word for word, *_ in calls[1:5]} == {"read", "write"}  # of both something where time is short
    assert {one.value for one in told.figures if one.rate} == {7e9}
    assert not list(tmp_path.iterdir())


def test_fio_without_libaio_is_run_with_another_engine(tmp_path):
    engines = []

    def call(words):
        options = dict(one.removeprefix("--").partition("=")[::2] for one in words[1:])
        engines.append(options["ioengine"])
        if options["ioengine"] == "libaio":
            return 1, "", "fio: engine libaio not loadable"
        return 0, said(5_000_000_000, options), ""

    run = by_fio(small(), call)
    assert run("/x/file", MIB, Request(False, 64 * KIB, 1)) == 5e9
    assert engines == ["libaio", "io_uring"]


@pytest.mark.few
@pytest.mark.parametrize(("answer", "words"), [
    ((1, "", "fio: No space left on device"), "No space left"),
    ((0, "nothing", ""), "fio's output"),
    ((0, '{"fio version": "fio-3.36", "jobs": []}', ""), "fio's output"),
])  # fmt: skip
def test_what_fio_gets_wrong_is_told_and_own_requests_are_taken(tmp_path, answer, words):
    told = measured(tmp_path, by_fio=by_fio(small(), lambda given: answer))
    assert len(figures(told, "O_DIRECT")) == 10 and not list(tmp_path.iterdir())
    assert [words in one and "Own requests" in one for one in told.missing] == [True]


def test_fio_is_taken_where_it_is_installed_and_there_is_time_for_it(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    assert by_fio(THOROUGH) is not None and by_fio(QUICK) is None
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert by_fio(THOROUGH) is None


def test_no_thread_writes_on_once_a_run_was_ended(tmp_path, monkeypatch):
    """The number of a closed file may be that of another one a moment later."""
    begun = threading.Event()
    real = os.pwritev

    def writing(number, buffers, at):
        begun.set()
        return real(number, buffers, at)

    def asked():
        calls.append(begun.wait(60))
        raise KeyboardInterrupt

    calls: list[bool] = []
    monkeypatch.setattr(os, "pwritev", writing)
    monkeypatch.setattr(ending, "look", asked)
    before = threading.active_count()
    with nameless(str(tmp_path)) as number, pytest.raises(KeyboardInterrupt):
        OwnRequests(number, MIB, 60.0).run(Request(True, 64 * KIB, 3))
    assert calls == [True] and threading.active_count() == before


def test_no_thread_more_may_be_started(tmp_path, monkeypatch):
    begin = threading.Thread.start
    count = iter(range(10**6))

    def start(self):
        if next(count) % 2:
            raise RuntimeError("can't start new thread")
        begin(self)

    monkeypatch.setattr(threading.Thread, "start", start)
    before = threading.active_count()
    told = measured(tmp_path, settings=small(depths=(1, 3), repeats=1))
    assert any("3 in flight: can't start new thread" in one for one in told.missing)
    assert threading.active_count() == before and not list(tmp_path.iterdir())


def test_a_name_with_a_colon_is_one_file_to_fio():
    words = words_of("/a:b/file", MIB, Request(True, 4096, 8), 0.25, "libaio")
    assert "--filename=/a\\:b/file" in words and "--runtime=250ms" in words and "--end_fsync=1" in words


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_request_to_end_that_was_lost_is_raised_again(name):
    before = signal.getsignal(getattr(signal, name))
    with ended_in_order() as look:
        look()
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(getattr(signal, name))
        with pytest.raises(KeyboardInterrupt):
            look()
    assert signal.getsignal(getattr(signal, name)) == before


def test_a_request_while_it_is_held_back_is_raised_by_the_next_look():
    with ended_in_order("json") as look, contextlib.suppress(KeyboardInterrupt):
        with held_back():
            signal.raise_signal(signal.SIGTERM)
            passed = requested()
        assert passed
        look()
        pytest.fail("look() raised nothing")
    assert not requested()


def test_threads_that_go_on_are_waited_for_although_a_wait_was_interrupted():
    begun, go, done = threading.Event(), threading.Event(), []

    def work():
        begun.set()
        go.wait()
        done.append(1)

    threads = Threads([work])
    with ended_in_order(), contextlib.suppress(KeyboardInterrupt):
        threads.start()
        begun.wait()
        threading.Timer(0.05, signal.raise_signal, [signal.SIGINT]).start()
        threads.wait()
    assert not done
    threading.Timer(0.05, go.set).start()
    threads.wait_out()
    assert done


def test_a_request_that_was_lost_ends_the_writing_of_a_file(tmp_path):
    def swallowing(number, view, at):
        with contextlib.suppress(KeyboardInterrupt):
            if at == 0:
                signal.raise_signal(signal.SIGTERM)
        written.append(at)
        return len(view)

    written = []
    with ended_in_order(), pytest.raises(KeyboardInterrupt), nameless(str(tmp_path)) as number:
        fill(number, 64 * POOL, 1e9, swallowing)
    assert written == [0]
