"""A sweep that is killed, stopped or out of disk goes on where it was, and its file is the same to the last byte."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy
import pytest

from offload.errors import OffloadError, OutputError
from offload.sweeps import sweep
from offload.sweeps.kept import Kept
from tests.commands import ROOT, run

PLAN = "examples/by-hand.yaml"
AXES = ("--over", "tensors.w.bytes=100 MB:900 MB:40", "--over", "pcie0.rate=40GB/s:200GB/s:50log")
KILLS = 20 if os.environ.get("OFFLOAD_SLOW") == "1" else 4


def _words(path: Path, *more: str) -> list[str]:
    return ["sweep", PLAN, *AXES, "-o", str(path), "--chunk", "100", *more]


def _ended(path: Path, *more: str) -> bytes:
    done = run(*_words(path, *more))
    assert done.returncode == 0, done.stderr
    assert not Path(f"{path}.partial").exists()
    return path.read_bytes()


@pytest.fixture(scope="module")
def due(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return _ended(tmp_path_factory.mktemp("due") / "grid.csv")


def _stopped(path: Path, monkeypatch: pytest.MonkeyPatch, after: int, error: BaseException) -> None:
    """A run that ends with an error once so many chunks are kept."""
    kept = Kept.save
    count = iter(range(after))

    def save(self: Kept, number: int, arrays: dict[str, numpy.ndarray]) -> None:
        if next(count, None) is None:
            raise error
        kept(self, number, arrays)

    with monkeypatch.context() as patched:
        patched.setattr(Kept, "save", save)
        patched_done = run(*_words(path))
    assert patched_done.returncode != 0
    assert len(list(Path(f"{path}.partial").glob("chunk-*"))) == after


def test_chunks_make_the_file_that_one_piece_makes(due: bytes, tmp_path: Path) -> None:
    path = tmp_path / "grid.csv"
    assert run("sweep", PLAN, *AXES, "-o", str(path)).returncode == 0
    assert path.read_bytes() == due


@pytest.mark.few
@pytest.mark.parametrize("threads", ["1", "2"])
@pytest.mark.parametrize("suffix", [".csv", ".npz", ".json"])
def test_threads_make_the_same_file(tmp_path: Path, threads: str, suffix: str) -> None:
    one, other = (_ended(tmp_path / f"{name}{suffix}", "--threads", count)
                  for name, count in (("one", threads), ("other", "2")))  # fmt: skip
    assert one == other


def test_ctrl_c_keeps_finished_chunks_and_says_how_to_go_on(
    due: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "grid.csv"
    kept = Kept.save

    def save(self: Kept, number: int, arrays: dict[str, numpy.ndarray]) -> None:
        if number == 7:
            raise KeyboardInterrupt
        kept(self, number, arrays)

    with monkeypatch.context() as patched:
        patched.setattr(Kept, "save", save)
        done = run(*_words(path))
    assert done.returncode == 130 and "--resume" in done.stderr and "grid.csv.partial" in done.stderr
    assert len(list(Path(f"{path}.partial").glob("chunk-*"))) == 7 and not path.exists()
    again = run(*_words(path))
    assert again.returncode == 2 and "--resume" in again.stderr  # and nothing is lost by asking without it
    assert len(list(Path(f"{path}.partial").glob("chunk-*"))) == 7
    assert _ended(path, "--resume") == due


def test_only_what_is_lacking_is_worked_out_again(due: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "grid.csv"
    _stopped(path, monkeypatch, 6, KeyboardInterrupt())
    folder = Path(f"{path}.partial")
    (folder / "chunk-0000002").write_bytes((folder / "chunk-0000002").read_bytes()[:-9])  # torn
    whole = bytearray((folder / "chunk-0000004").read_bytes())
    whole[-200] ^= 1  # a bit that a disk has lost
    (folder / "chunk-0000004").write_bytes(whole)
    (folder / ".chunk-0000009.new").write_bytes(b"never finished")
    saved: list[int] = []
    kept = Kept.save
    monkeypatch.setattr(Kept, "save", lambda self, number, arrays: (saved.append(number), kept(self, number, arrays)))
    assert _ended(path, "--resume") == due
    assert saved == [2, 4, *range(6, 20)]


@pytest.mark.few
@pytest.mark.parametrize(("words", "told"), [
    (["--over", "tensors.w.bytes=100 MB:900 MB:40", "--over", "pcie0.rate=40GB/s:200GB/s:51log"], "axis 2 was pcie0"),
    (["--over", "tensors.w.bytes=100 MB:900 MB:40", "--over", "pcie0.rate=41GB/s:200GB/s:50log"], "axis 2 was pcie0"),
    ([*AXES, "--chunk", "200"], "chunk was 100 and is 200"),
    ([*AXES, "--set", "pcie0.latency=1 us"], "changed since"),
])  # fmt: skip
def test_another_question_is_refused_and_takes_nothing_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], told: str
) -> None:
    path = tmp_path / "grid.csv"
    _stopped(path, monkeypatch, 3, KeyboardInterrupt())
    done = run("sweep", PLAN, *words, "-o", str(path), "--resume")
    assert done.returncode == 2 and "another sweep" in done.stderr and told in done.stderr, done.stderr
    assert len(list(Path(f"{path}.partial").glob("chunk-*"))) == 3


def test_a_plan_that_was_changed_since_is_another_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text((ROOT / PLAN).read_text())
    path = tmp_path / "grid.npz"
    words = ["sweep", str(plan), *AXES, "-o", str(path), "--chunk", "100"]
    kept = Kept.save

    def save(self: Kept, number: int, arrays: dict[str, numpy.ndarray]) -> None:
        if number == 3:
            raise KeyboardInterrupt
        kept(self, number, arrays)

    with monkeypatch.context() as patched:
        patched.setattr(Kept, "save", save)
        assert run(*words).returncode == 130
    text = plan.read_text()
    assert "repeat: 80" in text
    plan.write_text(text.replace("repeat: 80", "repeat: 79"))
    done = run(*words, "--resume")
    assert done.returncode == 2 and "changed since" in done.stderr
    plan.write_text(text)
    assert run(*words, "--resume").returncode == 0


def test_a_full_disk_is_told_and_what_is_finished_stays(
    due: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "grid.csv"
    real, written = os.replace, []

    def replace(old: str, new: str) -> None:
        if os.path.basename(new).startswith("chunk-"):
            written.append(new)
            if len(written) > 5:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(old, new)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", replace)
        done = run(*_words(path))
    assert done.returncode == 2 and "No space left" in done.stderr and "--resume" in done.stderr
    assert sorted(one.name for one in Path(f"{path}.partial").iterdir()) == [
        *(f"chunk-000000{at}" for at in range(5)), "manifest.json"]  # fmt: skip
    assert _ended(path, "--resume") == due


def test_a_path_that_cannot_be_written_is_told_before_any_work(tmp_path: Path) -> None:
    done = run(*_words(tmp_path / "none" / "grid.csv"))
    assert done.returncode == 2 and "cannot be written" in done.stderr
    (tmp_path / "grid.csv.partial").write_text("a file of that name")
    done = run(*_words(tmp_path / "grid.csv"))
    assert done.returncode == 2 and "grid.csv.partial cannot be written" in done.stderr
    (tmp_path / "other.csv.partial").mkdir()
    (tmp_path / "other.csv.partial" / "mine.txt").write_text("not of a sweep")
    done = run(*_words(tmp_path / "other.csv"))
    assert done.returncode == 2 and "something else" in done.stderr


def test_resume_without_an_output_is_refused_and_without_chunks_just_runs(due: bytes, tmp_path: Path) -> None:
    assert "-o FILE" in run("sweep", PLAN, *AXES, "--resume").stderr
    assert _ended(tmp_path / "grid.csv", "--resume") == due


def test_a_manifest_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "grid.csv.partial"
    folder.mkdir()
    (folder / "manifest.json").write_text('{"format": 1, "asked"')
    done = run(*_words(tmp_path / "grid.csv", "--resume"))
    assert done.returncode == 2 and "cannot be read" in done.stderr and "Remove" in done.stderr


@pytest.mark.parametrize("reduce", ["best=20,min,pareto=floor:spare,binding"])
def test_reductions_go_on_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reduce: str) -> None:
    plain, path = tmp_path / "plain.json", tmp_path / "grid.json"
    assert run(*_words(plain, "--reduce", reduce)).returncode == 0
    kept = Kept.save
    with monkeypatch.context() as patched:
        patched.setattr(Kept, "save", lambda self, at, arrays: kept(self, at, arrays) if at < 9 else _raise())
        assert run(*_words(path, "--reduce", reduce)).returncode == 130
    other = run(*_words(path, "--reduce", "best=20", "--resume"))
    assert other.returncode == 2 and "reduce was" in other.stderr
    assert run(*_words(path, "--reduce", reduce, "--resume")).returncode == 0
    assert path.read_bytes() == plain.read_bytes()
    assert len(json.loads(path.read_text())["reductions"]) == 4 and not Path(f"{path}.partial").exists()


def _raise() -> None:
    raise KeyboardInterrupt


@pytest.mark.slow
def test_killed_at_random_moments_it_ends_in_the_same_file(due: bytes, tmp_path: Path) -> None:
    """Kill -9 of a process of its own, again and again, each time gone on with."""
    path = tmp_path / "grid.csv"
    words = [sys.executable, "-c",
             "import sys, time\n"
             "from offload.sweeps import kept\n"
             "save = kept.Kept.save\n"
             "kept.Kept.save = lambda *a: (save(*a), time.sleep(0.05))\n"  # so that there is something to kill
             "from offload.cli import main\n"
             "sys.exit(main(sys.argv[1:]))", *_words(path, "--resume")]  # fmt: skip
    moments = random.Random(8)
    seen: list[int] = []
    folder = Path(f"{path}.partial")
    for kill in range(KILLS):
        process = subprocess.Popen(words, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)},
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)  # fmt: skip
        begun = time.monotonic()
        while process.poll() is None and not (folder / "manifest.json").exists() and time.monotonic() - begun < 60:
            time.sleep(0.01)
        time.sleep(moments.uniform(0, 2.0 if kill % 2 else 0.4))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        seen.append(len(list(folder.glob("chunk-*"))) if folder.exists() else -1)
        if path.exists() and not folder.exists():
            path.unlink()  # it was done: once more from the beginning
    assert any(count > 0 for count in seen)
    assert _ended(path, "--resume") == due


def test_the_python_call_keeps_chunks_beside_an_output(tmp_path: Path) -> None:
    axes = ["tensors.w.bytes=100 MB:900 MB:40", "pcie0.rate=40GB/s:200GB/s:50log"]
    path = tmp_path / "any"
    found = sweep(ROOT / PLAN, axes, chunk=100, keep=path)
    with pytest.raises(OffloadError, match="--resume"):
        sweep(ROOT / PLAN, axes, chunk=100, keep=path)
    again = sweep(ROOT / PLAN, axes, keep=path, resume=True)  # in chunks as it was begun
    assert again.floor.tobytes() == found.floor.tobytes()
    Kept(path).remove()
    with pytest.raises(OutputError):
        sweep(ROOT / PLAN, axes, chunk=100, keep=tmp_path / "none" / "any")
