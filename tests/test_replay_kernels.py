"""What a processor does in a run: products, reads and writes, by one thread and by a team."""

from __future__ import annotations

import os
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from offload.replaying import buffers, doing
from offload.replaying.computing import Processor, Team, nearest
from tests.replaying import ran

MIB = 2**20


def test_kernels_read_all_and_say_what_they_did():
    one = Processor([0])
    try:
        array = buffers.host_array(3 * MIB + 4096)
        buffers.touch(array, 0.5)
        assert buffers.stamp_of(array) == 0.5 and array.ctypes.data % buffers.LARGE == 0
        for flops in (0.0, 1e6, 1e7, 1e8):
            read, done = one.read(array, flops, "fp32")
            assert read == array.nbytes and done == nearest(array.nbytes, flops, "fp32")
        assert one.read(array, 1e7, "fp64")[0] == array.nbytes
        assert one.write(array) == array.nbytes and buffers.stamp_of(array) == 0.5
        assert np.all(array[8:].view(np.float64) == 1.5)
        other = buffers.host_array(array.nbytes, large=False)
        assert one.copy(other, array) == array.nbytes and np.array_equal(array, other)
        assert one.reckon(1e9, "fp32") == pytest.approx(1e9, rel=1e-3)
    finally:
        one.close()


def test_the_parts_of_a_product_are_shared_out_among_a_team(monkeypatch):
    one, rows, who, all_three = Processor([0, 0, 0]), [], set(), threading.Barrier(3)
    right = np.matmul

    def counted(part, by, out):
        rows.append((len(part), part.shape[1] * by.shape[1]))
        if threading.get_ident() not in who:
            who.add(threading.get_ident())
            all_three.wait(60)
        return right(part, by, out=out)

    monkeypatch.setattr(np, "matmul", counted)
    try:
        array = buffers.host_array(24 * MIB + 4096)
        buffers.touch(array, 0.5)
        for work in (lambda: one.read(array, 4e9, "fp32")[1], lambda: one.read(array, 1e9, "fp64")[1],
                     lambda: one.reckon(3.3e9, "fp32")):  # fmt: skip
            rows.clear()
            who.clear()
            done = work()
            assert done == sum(2.0 * many * each for many, each in rows) and len(rows) > 9 and len(who) == 3
    finally:
        one.close()


def test_while_a_plan_is_run_a_product_takes_one_thread(tmp_path, monkeypatch):
    from threadpoolctl import threadpool_info

    def threads():
        return [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]

    seen, before, right = [], threads(), doing.Engine.do

    def do(self, place):
        seen.append(threads())
        return right(self, place)

    monkeypatch.setattr(doing.Engine, "do", do)
    ran(tmp_path)
    assert seen and all(set(one) <= {1} for one in seen) and threads() == before


def test_a_team_does_every_piece_once_and_tells_what_goes_wrong():
    team, done = Team(3), []
    try:
        team.run(done.append, 100)
        assert sorted(done) == list(range(100))

        def fails(piece):
            raise OSError(piece)

        with pytest.raises(OSError):
            team.run(fails, 5)
        team.run(done.append, 7)
        assert len(done) == 107
    finally:
        team.close()


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="one processor")
def test_threads_of_a_team_have_a_processor_each_and_the_programs_own_keeps_all():
    cpus, before = sorted(os.sched_getaffinity(0))[:2], os.sched_getaffinity(0)
    team, seen, both = Team(2, cpus), {}, threading.Barrier(2)

    def piece(number):
        both.wait(10)  # one each
        seen[threading.get_ident()] = os.sched_getaffinity(0)

    try:
        asking = threading.Thread(target=team.run, args=(piece, 2))
        asking.start()
        asking.join()
        assert seen.pop(asking.ident) == {cpus[0]} and list(seen.values()) == [{cpus[1]}]
        team.run(piece, 2)
        assert seen[threading.get_ident()] == os.sched_getaffinity(0) == before
    finally:
        team.close()


def test_what_a_compute_writes_begins_with_its_stamp_at_every_moment():
    array = np.zeros(3 * MIB, np.uint8)
    array[:8].view(float)[0] = 7.5
    processor = Processor((0,))
    seen = []
    write = processor.loops.write
    processor.loops = SimpleNamespace(write=lambda part, value: (write(part, value), seen.append(stamp(array))))
    assert processor.write(array) == array.nbytes
    processor.close()
    assert set(seen) == {7.5} and set(array.view(float)[1:]) == {1.5}


def stamp(array):
    return float(array[:8].view(float)[0])
