"""A plan's step run on this machine: bytes, order, buffers, scale and ends. No test looks at how long anything took."""

from __future__ import annotations

import errno
import signal
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from offload.compiler import compile_step
from offload.documents import load_plan
from offload.measure.ending import ended_in_order
from offload.measure.places import Place
from offload.replaying import Options, ReplayError, doing, replay
from offload.replaying.computing import nearest
from offload.replaying.items import Buffer, program
from offload.replaying.layout import Brought, Home, Move, Work, lay_out
from offload.replaying.machine import Stands
from offload.replaying.run import _short, requests_of
from offload.replaying.running import run
from offload.replaying.scaling import scaled, whole_bytes
from offload.schedules import schedule
from offload.step import loads
from tests.replaying import HERE, MACHINE, STREAM, FakeDevices, loaded, ran, stepped

MIB = 2**20


@pytest.fixture
def stream(tmp_path):
    return ran(tmp_path)


# What is run


def test_bytes_that_are_moved_are_the_plans(stream):
    moved = {one.name: one.moved for one in stream.resources}
    size = 6 * 256 * 1024
    assert moved["disk0.read"] == moved["sata0.socket0"] == moved["cpu0.reads"] == size and moved["dram0"] == 2 * size
    due = loads(stream.step, least=False)
    assert all(one.moved == due[one.name] for one in stream.resources if one.unit == "B")
    assert not stream.wrong and not any(one.why for one in stream.resources if one.unit == "B")


def test_flop_are_the_nearest_that_whole_products_have(stream):
    (flops,) = [one for one in stream.resources if one.unit == "FLOP"]
    assert flops.moved == 6 * nearest(256 * 1024, 2e6, "fp32")
    assert abs(flops.moved / flops.load - 1) < 0.05 and "nearest" in flops.why


def test_times_beside_the_model_are_those_of_the_model(stream):
    found = schedule(stream.step)
    assert (stream.predicted.seconds, stream.predicted.cold) == (found.seconds, found.cold_seconds)
    assert stream.factor == 1.0 and stream.measured.count == 2 and stream.measured.least > 0
    assert stream.ratio == stream.measured.median / found.seconds
    assert {one.name: one.count for one in stream.tasks} == {"fetch": 6, "layer": 6}
    assert all(one.measured.count == 12 for one in stream.tasks)


def test_a_true_floor_is_never_above_what_is_measured(stream):
    assert 0 < stream.predicted.floor <= stream.measured.least and not stream.below_floor


@pytest.mark.parametrize("count", [1, 2, 4])
def test_buffers_are_never_more_than_the_plans(tmp_path, count):
    found = ran(tmp_path, STREAM.replace("buffers: 2", f"buffers: {count}"), steps=3)
    (slots,) = found.slots
    assert slots.buffers == count and 1 <= slots.most <= count and not found.wrong
    assert found.checked["buffers"] == 6 * 5  # one before and one after the three


def test_without_overlap_nothing_runs_beside_anything(tmp_path):
    found = ran(tmp_path, STREAM.replace("{buffers: 2}", "none"))
    assert found.predicted.seconds == found.predicted.serial
    _, measured = found.timelines
    order = sorted(range(len(measured.rows)), key=lambda i: measured.starts[i])
    assert all(measured.ends[a] <= measured.starts[b] for a, b in zip(order, order[1:], strict=False))


def test_what_happens_every_few_steps_happens_then(tmp_path):
    plan = STREAM.replace("overlap", "  save: {move: s, to: disk0, after: layer, every: 2 steps}\noverlap").replace(
        "repeat", "  s: {bytes: 64 KiB, home: dram0, shared: true}\nrepeat"
    )
    found = ran(tmp_path, plan, steps=3)
    assert found.steps == 4, "whole rounds of two steps"
    moved = {one.name: one for one in found.resources}
    assert moved["disk0.write"].moved == moved["disk0.write"].load == 6 * 64 * 1024 / 2
    assert not found.wrong


def test_a_step_before_is_waited_for(tmp_path):
    plan = STREAM.replace("after: fetch", "after: [fetch, previous.late]").replace(
        "overlap", "  late: {compute: cpu0, reads: w, after: layer}\noverlap")  # fmt: skip
    found = ran(tmp_path, plan)
    assert not found.wrong and found.checked["waits"] > 0


# Scale


def test_a_scaled_step_has_a_part_of_bytes_and_flop_and_the_same_latencies(tmp_path):
    made, topology = loaded(tmp_path)
    whole, part = compile_step(topology, scaled(made, 1.0)), compile_step(topology, scaled(made, 0.25))
    for name, load in loads(whole, least=False).items():
        assert loads(part, least=False)[name] == load / 4
    assert [row.latency for row in part.rows] == [row.latency for row in whole.rows] != [(0, 0), (0, 0)]
    assert schedule(part).seconds > schedule(whole).seconds / 4


def test_bytes_are_whole_pages_in_the_model_too(tmp_path):
    assert [whole_bytes(one) for one in (0, 1, 5, 4096, 6000, 7000)] == [0, 4, 4, 4096, 4096, 8192]
    found = ran(tmp_path, STREAM.replace("256 KiB", "300 kB"))
    assert {one.moved for one in found.resources if one.name == "disk0.read"} == {6 * 299008} == {
        loads(found.step, least=False)["disk0.read"]}  # fmt: skip


def test_what_does_not_fit_is_scaled_down_and_says_why(tmp_path):
    plan = STREAM.replace("w: {bytes: 256 KiB", "big: {bytes: 30 MB, home: dram0}\n  w: {bytes: 256 KiB").replace(
        "reads: w", "reads: [w, big]")  # fmt: skip
    found = ran(tmp_path, plan, steps=1)
    assert found.factor < 1 and 1 / found.factor == 2 ** round(np.log2(1 / found.factor))
    assert "dram0 would need" in " ".join(found.because)
    assert found.predicted.seconds == schedule(found.step).seconds and not found.wrong


def test_a_scale_that_does_not_fit_is_refused(tmp_path):
    plan = STREAM.replace("256 KiB", "900 GB")
    with pytest.raises(ReplayError, match=r"disk0 would need a file of .*smaller --scale"):
        ran(tmp_path, plan, scale=1.0)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["machine.yaml", "plan.yaml"]


# Layout and program


def test_each_repetition_has_bytes_of_its_own_and_a_shared_tensor_has_not(tmp_path):
    step, plan, topology = stepped(tmp_path)
    layout = lay_out(topology, plan, step)
    assert len(layout.homes) == 6 and set(layout.homes.values()) == {256 * 1024}
    step, plan, topology = stepped(tmp_path, STREAM.replace("home: disk0", "home: disk0, shared: true"))
    assert list(lay_out(topology, plan, step).homes) == [Home("w", "disk0", 0)]


def test_a_compute_reads_the_buffer_that_its_fetch_brought(tmp_path):
    step, plan, topology = stepped(tmp_path)
    layout = lay_out(topology, plan, step)
    for number, operation in enumerate(layout.operations):
        if isinstance(operation, Work):
            ((spot, size),) = operation.reads
            assert isinstance(spot, Brought) and size == 256 * 1024
            fetch = layout.operations[spot.instance]
            assert isinstance(fetch, Move) and spot.instance == number - 1


def test_a_tensor_of_two_homes_is_read_from_all_of_its_parts(tmp_path):
    plan = STREAM.replace("home: disk0", "home: {disk0: 75%, dram0: rest}")
    found = ran(tmp_path, plan)
    moved = {one.name: one.moved for one in found.resources}
    assert moved["disk0.read"] == 6 * 192 * 1024 and moved["cpu0.reads"] == 6 * 256 * 1024 and not found.wrong


def test_fetches_take_turns_with_buffers_and_wait_for_who_gives_one_back(tmp_path):
    step, plan, topology = stepped(tmp_path)
    layout = lay_out(topology, plan, step)
    made = program(step, layout, 2)
    fetches = [item for item in made.items if isinstance(layout.operations[item.instance], Move)]
    assert [item.into.number for item in fetches] == [0, 1] * 6 and len(made.buffers) == 2
    assert all(isinstance(one, Buffer) and one.size == 256 * 1024 for one in made.buffers)
    computes = [place for place, item in enumerate(made.items) if item not in fetches]
    assert [item.frees for item in fetches] == [(), (), *((place,) for place in computes[:-2])]


def test_too_many_tasks_are_refused(tmp_path):
    step, plan, topology = stepped(tmp_path)
    with pytest.raises(ReplayError, match="too many to run"):
        program(step, lay_out(topology, plan, step), 10**6)


def test_tasks_of_several_ranks_are_refused(tmp_path):
    plan = STREAM.replace("to: dram0}", "to: hbm0..1}").replace("compute: cpu0, flops: 2 MFLOP, format: fp32",
                                                                "compute: gpu0..1, flops: 2 MFLOP")  # fmt: skip
    with pytest.raises(ReplayError, match="several ranks"):
        ran(tmp_path, plan, devices=FakeDevices())


# Running


def test_items_run_when_what_they_need_has_ended_whatever_the_threads_do(tmp_path):
    step, plan, topology = stepped(tmp_path)
    made = program(step, lay_out(topology, plan, step), 4)
    lock, ended, running = threading.Lock(), set(), []

    def do(place):
        item = made.items[place]
        with lock:
            assert {*item.needs, *item.frees, *(() if item.after is None else (item.after,))} <= ended
            running.append(place)
        with lock:
            ended.add(place)

    record = run(made, do, threading.Event())
    assert record.error is None and sorted(running) == list(range(len(made.items)))


def test_what_an_item_raises_ends_the_run(tmp_path):
    step, plan, topology = stepped(tmp_path)
    made = program(step, lay_out(topology, plan, step), 4)

    def do(place):
        if place == 5:
            raise OSError(errno.EIO, "gone")

    record = run(made, do, threading.Event())
    assert record.error.errno == errno.EIO and record.ended[5] is None


def test_a_drive_that_fails_while_it_is_read_is_told(tmp_path, monkeypatch):
    def fails(number, views, at):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(doing.os, "preadv", fails)
    with pytest.raises(OSError, match="Input/output error"):
        ran(tmp_path)


# What cannot be, and what is asked for meanwhile


@pytest.mark.parametrize("told", ["100 B each, 2 in flight", "4096 B each, 99999 in flight",
                                  "4096 B each, 0 in flight"])  # fmt: skip
def test_requests_that_are_not_made_here_are_told(tmp_path, told):
    (tmp_path / "machine.yaml").write_text(MACHINE.replace("1048576 B each, 2 in flight", told))
    plan = tmp_path / "plan.yaml"
    plan.write_text(STREAM)
    made, topology = load_plan(plan)
    found, why = requests_of(compile_step(topology, made), "disk0")
    assert (found.block, found.depth) == (4 * MIB, 1) and told in why and "not done here" in why


def test_times_that_no_scale_makes_shorter_are_told(tmp_path):
    plan = STREAM.replace("reads: w,", "reads: w, time: 10 s,")
    with pytest.raises(ReplayError, match=r"times that are given.*fewer --steps"):
        ran(tmp_path, plan, steps=4)


def test_a_folder_whose_name_has_an_equals_sign_is_one(tmp_path):
    folder = tmp_path / "a=b"
    folder.mkdir()
    plan = STREAM.replace("home: disk0", "home: dram0").replace("  fetch: {move: w, to: dram0}\n", "").replace(
        ", after: fetch", "")  # fmt: skip
    found = ran(tmp_path, plan, way="mapped", disks=(str(folder),))
    assert any(str(folder) in one or "mapping" in one for one in found.how) and not list(folder.iterdir())
    with pytest.raises(ReplayError, match="No such file"):
        ran(tmp_path, plan, way="mapped", disks=(str(tmp_path / "none"),))


def test_mapped_homes_take_room_on_the_drive_and_none_of_memory(tmp_path):
    step, made, topology = stepped(tmp_path, STREAM)
    layout = lay_out(topology, made, step)
    stands = Stands({"dram0": HERE.nodes[0]}, {"disk0": Place(str(tmp_path))})
    plan = STREAM.replace("home: disk0", "home: dram0").replace("  fetch: {move: w, to: dram0}\n", "").replace(
        ", after: fetch", "")  # fmt: skip
    engine = doing.Engine(step, layout, program(step, layout, 2), stands, {}, "buffered")
    assert engine.sizes() == {"disk0": 6 * 256 * 1024, "dram0": 2 * 256 * 1024}
    step, made, topology = stepped(tmp_path, plan)
    layout = lay_out(topology, made, step)
    engine = doing.Engine(step, layout, program(step, layout, 2), stands, {}, "mapped")
    assert engine.sizes() == {"disk0": 6 * 256 * 1024}


def test_two_drives_in_one_file_system_share_its_room(tmp_path, monkeypatch):
    stands = Stands({}, {"disk0": Place(str(tmp_path)), "disk1": Place(str(tmp_path))})
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=100 * MIB))
    assert not _short({"disk0": 40 * MIB}, stands, Options())
    (told,) = _short({"disk0": 40 * MIB, "disk1": 40 * MIB}, stands, Options())
    assert told.startswith("disk1 would need a file of")


def test_a_folder_in_memory_that_is_named_as_a_drive_is_doubtful(tmp_path, monkeypatch):
    def memory(path, *more):
        return Place(path, "tmpfs", why=f"{path} is memory (tmpfs), no drive")

    monkeypatch.setattr("offload.replaying.machine.place_of", memory)
    found = ran(tmp_path)
    assert any("is memory (tmpfs), no drive: it stands for disk0 all the same" in one for one in found.warnings)


def test_a_request_to_end_that_came_when_all_was_done_loses_nothing(tmp_path, monkeypatch):
    right = doing.Engine.sync

    def sync(self):
        signal.raise_signal(signal.SIGTERM)
        right(self)

    monkeypatch.setattr(doing.Engine, "sync", sync)
    found = ran(tmp_path)
    assert found.interrupted and found.steps == 2 and found.measured.count == 2


def test_no_item_goes_on_once_a_run_was_ended(tmp_path):
    """A second request to end comes while the first one is waited for."""
    step, made, topology = stepped(tmp_path)
    items = program(step, lay_out(topology, made, step), 2)
    under_way = []

    def do(place):
        under_way.append(place)
        if place == 1:
            for wait in (0.05, 0.1):
                threading.Timer(wait, signal.raise_signal, [signal.SIGINT]).start()
            time.sleep(0.5)
        under_way.remove(place)

    with ended_in_order():
        record = run(items, do, threading.Event())
    assert record.stopped and not under_way and record.ended[1] is not None and None in record.ended


def test_a_request_is_told_to_be_run_as_its_mean_step(tmp_path):
    made, topology = loaded(tmp_path)
    found = replay(topology, replace(made, request=SimpleNamespace()), Options((f"disk0={tmp_path}",), "buffered", 1),
                   here=HERE)  # fmt: skip
    assert any(one.startswith("the whole request: its mean decode step is run") for one in found.missing)
