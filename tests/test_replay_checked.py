"""The checks of a run find what they look for: order, buffers, bytes."""

from __future__ import annotations

import pytest

from offload.replaying import buffers, doing, results
from offload.replaying.computing import Processor
from offload.replaying.items import program
from offload.replaying.layout import lay_out
from offload.replaying.running import Record
from tests.replaying import STREAM, ran, stepped


@pytest.fixture
def stream(tmp_path):
    return ran(tmp_path)


def broken(stream, change):
    """The checks of a run's program with times that are made up: one after another, then changed."""
    step = stream.step
    made = program(step, lay_out(step.topology, step.plan, step), 2)
    record = Record([float(place) for place in range(len(made.items))],
                    [place + 0.5 for place in range(len(made.items))], [None] * len(made.items))  # fmt: skip
    change(made, record)
    return results.checks_of(step, made, record)


def test_times_in_order_are_found_to_be(stream):
    checked, wrong, (slots,) = broken(stream, lambda made, record: None)
    assert not wrong and checked["waits"] and checked["turns"] and slots.most == 1


def test_a_compute_before_its_fetch_has_ended_is_found(stream):
    def change(made, record):
        record.ended[2] = 3.25  # a fetch, whose compute begins at 3

    _, wrong, _ = broken(stream, change)
    assert any("layer of step 1 began before fetch of step 1 had ended" in one for one in wrong)


def test_one_buffer_too_many_is_found(stream):
    def change(made, record):
        for place, item in enumerate(made.items):
            if item.into is not None:
                record.begun[place], record.ended[place] = place / 1000, place / 1000 + 1e-4

    _, wrong, (slots,) = broken(stream, change)
    assert slots.most > 2 and any("and the plan has 2" in one for one in wrong)


def test_bytes_of_another_layer_in_a_buffer_are_found(tmp_path, monkeypatch):
    right = doing.Engine._request

    def astray(self, lane, spot, array, size, write):
        other = spot if spot.offset == 0 else buffers.OnDrive(spot.drive, 0, spot.size)
        return right(self, lane, other, array, size, write)

    monkeypatch.setattr(doing.Engine, "_request", astray)
    assert any("its buffer begins with" in one for one in ran(tmp_path).wrong)


def test_bytes_that_are_left_out_are_found(tmp_path, monkeypatch):
    right = Processor.read
    monkeypatch.setattr(Processor, "read", lambda self, array, flops, kind: right(self, array[:4096], flops, kind))
    assert any("cpu0.reads" in one and "the plan loads" in one for one in ran(tmp_path).wrong)


def test_without_overlap_two_at_once_are_found(tmp_path):
    step, made, topology = stepped(tmp_path, STREAM.replace("{buffers: 2}", "none"))
    items = program(step, lay_out(topology, made, step), 1)
    times = [float(place) for place in range(len(items.items))]
    record = Record(list(times), [one + 0.5 for one in times], [None] * len(times))
    assert not results.checks_of(step, items, record)[1]
    record.begun[4] = 3.25  # a fetch beside the compute before it, for which it would not wait otherwise
    _, wrong, _ = results.checks_of(step, items, record)
    assert any("fetch of step 1 began before layer of step 1 had ended" in one for one in wrong)
