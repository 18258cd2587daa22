"""Chunks that other threads, processes and machines work out are the same bits, also where a worker is lost."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from offload.errors import OffloadError
from offload.sweeps import Grid, read_axis, sweep
from offload.sweeps.chunks import Job, run, work
from offload.sweeps.cuts import cut
from offload.sweeps.filling import fill
from offload.sweeps.kept import Kept
from offload.sweeps.sources import PlanFile
from offload.sweeps.structure import Asked, structure_of
from tests.commands import ROOT
from tests.commands import run as command

PLAN = ROOT / "examples" / "by-hand.yaml"
AXES = ("tensors.w.bytes=100 MB:900 MB:40", "pcie0.rate=40GB/s:200GB/s:50log")
REASON = "dask.distributed is not installed: pip install 'offload[dask]'"
FIGURES = ("floor", "serial", "binding", "spare", "tokens")


@pytest.fixture(scope="module")
def whole() -> Grid:
    return sweep(PLAN, AXES)


def _same(one: Grid, other: Grid) -> None:
    for name in FIGURES:
        assert (getattr(one, name) == getattr(other, name)).all() and getattr(one, name).shape == other.shape, name
    assert one.names == other.names


def test_a_job_goes_through_a_pickle() -> None:
    structure = structure_of(Asked(PlanFile(PLAN), tuple(map(read_axis, AXES))))
    job = Job(structure, cut(structure.shape, 300), FIGURES)
    packed = pickle.dumps(job)
    there = work(packed, "some digest", 2)
    here = job.chunk(2)
    assert there.keys() == here.keys()
    assert all(there[name].tobytes() == here[name].tobytes() for name in here)
    assert pickle.loads(packed).structure.digest == structure.digest


def test_a_thread_pool_gives_the_same_bits(whole: Grid) -> None:
    with ThreadPoolExecutor(3) as pool:
        _same(sweep(PLAN, AXES, chunk=100, executor=pool), whole)
        _same(sweep(PLAN, AXES, chunk=100, executor=pool, compiled=True), whole)


@pytest.mark.slow
def test_a_process_pool_gives_the_same_bits_and_reductions(whole: Grid) -> None:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        _same(sweep(PLAN, AXES, chunk=400, executor=pool), whole)
        there = sweep(PLAN, AXES, chunk=400, executor=pool, reduce=["best=7", "min", "binding"])
    here = sweep(PLAN, AXES, reduce=["best=7", "min", "binding"])
    assert there.to_json() == here.to_json()


class Elsewhere(Executor):
    """An executor of our own: nothing but `submit`. fails : how many calls end in an error first."""

    def __init__(self, fails: int = 0):
        self.fails, self.called = fails, 0

    def submit(self, function: Any, /, *arguments: Any, **more: Any) -> Future:
        self.called += 1
        future: Future = Future()
        pickle.dumps((function, arguments, more))
        if self.called <= self.fails:
            future.set_exception(ConnectionError("the worker went away"))
        else:
            future.set_result(function(*arguments, **more))
        return future


def test_a_chunk_whose_worker_is_lost_is_sent_again(whole: Grid) -> None:
    executor = Elsewhere(fails=5)
    _same(sweep(PLAN, AXES, chunk=100, executor=executor), whole)
    assert executor.called == 5 + 20


def test_a_chunk_that_fails_each_time_is_told_and_the_others_are_kept(tmp_path: Path) -> None:
    with pytest.raises(OffloadError, match=r"failed 3 times.*ConnectionError: the worker went away"):
        sweep(PLAN, AXES, chunk=100, executor=Elsewhere(fails=10_000), keep=tmp_path / "any")
    assert Kept(tmp_path / "any").exists


def _dies(*ignored: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_pool_that_breaks_is_told(whole: Grid, tmp_path: Path) -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        list(pool.map(abs, [1]))
        broken = pool.submit(_dies)
        assert broken.exception() is not None
        with pytest.raises(OffloadError, match="no more chunks|workers are gone"):
            sweep(PLAN, AXES, chunk=100, executor=pool, keep=tmp_path / "any")
    _same(sweep(PLAN, AXES, keep=tmp_path / "any", resume=True), whole)


def test_an_error_of_a_chunk_ends_the_run_at_once() -> None:
    structure = structure_of(Asked(PlanFile(PLAN), tuple(map(read_axis, AXES))))
    job = Job(structure, cut(structure.shape, 100), FIGURES)

    class Refuses(Elsewhere):
        def submit(self, function: Any, /, *arguments: Any, **more: Any) -> Future:
            future: Future = Future()
            future.set_exception(OffloadError("no"))
            return future

    with pytest.raises(OffloadError, match="^no$"):
        run(job, list(range(len(job.cuts))), lambda number, arrays: None, Refuses())


def test_without_what_compiles_a_step_no_overlapped_time_is_known() -> None:
    """NaN at every point, not what stood in memory before; the other figures are there."""
    structure = structure_of(Asked(PlanFile(PLAN), tuple(map(read_axis, AXES))))
    left = [np.ones(structure.shape) for _ in range(4)]  # memory of that size to be used again
    del left
    grid = fill(structure, figures=("floor", "overlapped"))
    assert np.isnan(grid.overlapped).all() and not np.isnan(grid.floor).any()


@pytest.fixture
def cluster() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed", reason=REASON)
    from dask import config

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own, of this version of Python
        with config.set({"distributed.admin.log-format": "%(message)s", "logging.distributed": "critical"}):
            with distributed.LocalCluster(
                n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
            ) as made:
                yield made


def _slowly(packed: bytes, digest: str, number: int) -> Any:
    time.sleep(0.05)
    return work(packed, digest, number)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_worker_killed_on_dask_changes_nothing(
    whole: Grid, cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distributed import Client

    from offload.sweeps import chunks

    monkeypatch.setattr(chunks, "work", _slowly)
    victim = next(iter(cluster.workers.values())).pid
    kept = Kept.save
    killed: list[int] = []

    def save(self: Kept, number: int, arrays: Any) -> None:
        kept(self, number, arrays)
        if len(list(Path(self.folder).glob("chunk-*"))) == 5 and not killed:
            killed.append(victim)
            threading.Thread(target=os.kill, args=(victim, signal.SIGKILL)).start()

    monkeypatch.setattr(Kept, "save", save)
    with Client(cluster, set_as_default=False) as client:
        assert len(client.scheduler_info()["workers"]) == 2
        assert victim is not None
        found = sweep(PLAN, AXES, chunk=50, executor=client.get_executor(retries=3), keep=tmp_path / "any")
    assert killed
    _same(found, whole)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_verb_uses_a_scheduler(cluster: Any, tmp_path: Path) -> None:
    words = ("sweep", str(PLAN), "--over", AXES[0], "--over", AXES[1], "--chunk", "300", "-o")
    here, there = tmp_path / "here.csv", tmp_path / "there.csv"
    assert command(*words, str(here)).returncode == 0
    done = command(*words, str(there), "--dask", cluster.scheduler_address)
    assert done.returncode == 0, done.stderr
    assert here.read_bytes() == there.read_bytes()


@pytest.mark.filterwarnings("ignore")
def test_no_scheduler_is_told() -> None:
    pytest.importorskip("distributed", reason=REASON)
    done = command("sweep", str(PLAN), "--over", AXES[0], "--dask", "nowhere")
    assert done.returncode == 2 and "--dask nowhere" in done.stderr
