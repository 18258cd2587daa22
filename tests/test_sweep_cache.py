"""Compiled kernels find a place to be kept, or do without: read-only packages, no home directory, no place at all."""

from __future__ import annotations

import importlib
import linecache
import os
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from offload.sweeps import ahead, kept_code, machine_code
from offload.units.remarks import remarks

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = """
import os, sys
from pathlib import Path
from offload.sweeps import machine_code
from offload.sweeps.kept_code import kept_code
from offload.units.remarks import remarks
closed = [Path(one) for one in sys.argv[1].split(os.pathsep) if one]
there = machine_code._writable
def writable(folder):
    return not any(one == folder or one in folder.parents for one in closed) and there(folder)
machine_code._writable = writable
from offload.sweeps import sweep
from offload.units.remarks import remarks
with remarks() as heard:
    grid = sweep(sys.argv[2], ["tensors.w.bytes=100 MB:900 MB:9", "pcie0.rate=40GB/s:200GB/s:10log"], compiled=True)
import numba
print(repr(float(grid.floor.sum())), numba.config.CACHE_DIR or "beside", len(heard))
"""


def _swept(closed: list[Path], folder: Path, **variables: str) -> tuple[str, str, int]:
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR", "TMPDIR")}  # fmt: skip
    environment |= {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", **variables}
    words = [sys.executable, "-c", PROGRAM, os.pathsep.join(map(str, closed)), str(ROOT / "examples" / "by-hand.yaml")]
    done = subprocess.run(words, env=environment, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    total, place, heard = done.stdout.split()
    return total, place, int(heard)


@pytest.mark.slow
def test_a_read_only_package_keeps_kernels_in_the_users_cache(tmp_path: Path) -> None:
    total, place, heard = _swept([ROOT], tmp_path, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert (place, heard) == (str(tmp_path / "cache" / "offload"), 0)
    assert list((tmp_path / "cache" / "offload").rglob("kernels.run*.nbi"))
    again, *_ = _swept([ROOT], tmp_path, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert again == total


@pytest.mark.slow
def test_without_a_home_directory_they_are_among_temporary_files(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    _, place, heard = _swept([ROOT], tmp_path, HOME=str(gone), TMPDIR=str(tmp_path))
    assert Path(place).parent == tmp_path and heard == 0 and not gone.exists()
    assert Path(place).stat().st_mode & 0o077 == 0


@pytest.mark.slow
def test_where_nothing_can_be_written_they_are_compiled_each_time_and_this_is_said(tmp_path: Path) -> None:
    _, place, heard = _swept([ROOT, tmp_path], tmp_path, HOME=str(tmp_path), TMPDIR=str(tmp_path))
    assert (place, heard) == ("beside", 1)


def test_a_folder_of_temporary_files_that_is_anothers_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_code.tempfile, "gettempdir", lambda: str(tmp_path))
    mine = machine_code._temporary()
    assert mine is not None
    os.chmod(mine, 0o777)  # anybody may put code there
    assert machine_code._temporary() is None
    os.rmdir(mine)
    (tmp_path / "elsewhere").mkdir()
    os.symlink(tmp_path / "elsewhere", mine)
    assert machine_code._temporary() is None


def test_a_kernel_that_was_never_compiled_is_not_compiled_for_few_points(monkeypatch):
    there = []
    monkeypatch.setattr(machine_code, "compiled_before", lambda name: there)
    assert ahead._few(ahead.FEW_POINTS) and not ahead._few(ahead.FEW_BEFORE)
    there.append(True)
    assert not ahead._few(ahead.FEW_POINTS) and ahead._few(ahead.FEW_POINTS - 1)


@pytest.mark.slow
def test_whether_kernels_were_compiled_is_told(tmp_path):
    """Before and after the first run, and of the next process."""
    code = """
from offload.sweeps import sweep
from offload.sweeps.machine_code import compiled_before
before = compiled_before()
sweep("examples/by-hand.yaml", ["tensors.w.bytes=100 MB:900 MB:9"], compiled=True)
print(before, compiled_before())
"""
    told = []
    for _ in range(2):
        told.append(subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True,
            env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)},
        ).stdout.split())  # fmt: skip
    assert told == [["False", "True"], ["True", "True"]]


def test_what_is_damaged_counts_as_not_kept_and_is_written_anew(tmp_path):
    kept = kept_code.kept_code()(str(tmp_path), "f", "stamp")
    kept.save("key", [1, 2])
    assert kept.load("key") == [1, 2] and kept.load("other") is None
    index, code = tmp_path / "f.nbi", next(tmp_path.glob("*.nbc"))
    for file in (index, code):
        for content in (b"", file.read_bytes()[:9], b"\x80\x04garbage", b"\x80\x04." * 20):
            file.write_bytes(content)
            assert kept.load("key") is None
            kept.save("key", [1, 2])
            assert kept.load("key") == [1, 2]
    assert len(list(tmp_path.iterdir())) == 2
    index.unlink()
    index.mkdir()  # as a file that may be neither read nor written
    kept.save("key", [1, 2])
    assert kept.load("key") is None
    kept_code.kept_code()(str(tmp_path / "gone"), "f", "stamp").save("key", [1, 2])


def test_processes_that_compile_at_once_never_take_each_others_code(tmp_path):
    """The name of a file says its function, its source and its types: what is there under a name is what is meant."""
    kept_code.kept_code()(str(tmp_path), "f", "old source").save("key", "old")
    new = kept_code.kept_code()(str(tmp_path), "f", "new source")
    new._save_data = lambda name, data: None  # another process reads before the code is written
    new.save("key", "new")
    assert kept_code.kept_code()(str(tmp_path), "f", "new source").load("key") is None


@pytest.mark.slow
def test_a_sweep_with_a_damaged_cache(tmp_path: Path) -> None:
    total, *_ = _swept([], tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "cache"))
    kept = [one for one in (tmp_path / "cache").rglob("*.nb*")]
    assert kept
    for one in kept:
        one.write_bytes(one.read_bytes()[:37])
    assert _swept([], tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "cache"))[0] == total
    assert all(one.stat().st_size > 37 for one in kept)


def test_where_kernels_may_not_be_kept_they_are_compiled_in_each_run(monkeypatch):
    """A folder may be written, and the one in it that numba takes be another user's."""
    asked = []

    def importing(name):
        asked.append(name)
        if len(asked) == 1:
            raise RuntimeError("cannot cache function 'run': no locator available for file 'kernels.py'")
        return "module"

    monkeypatch.setattr(machine_code, "import_module", importing)
    monkeypatch.setattr(machine_code, "_place", lambda: None)
    monkeypatch.setattr(machine_code, "_writable", lambda folder: True)
    with remarks() as heard:
        assert machine_code.kept.__wrapped__("some.kernels") == "module"
    assert asked == ["some.kernels"] * 2 and "cannot be kept" in "".join(heard)


def test_what_is_kept_is_compiled_anew_where_a_module_that_it_is_made_of_changed(tmp_path, monkeypatch):
    """numba looks at a function's own file alone."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(tmp_path))
    inner = "import numba\n@numba.njit(cache=True)\ndef twice(x):\n    return 2 * x\n"
    (tmp_path / "inner_kernel.py").write_text(inner)
    (tmp_path / "outer_kernel.py").write_text(
        "import numba\nimport inner_kernel\nfrom inner_kernel import twice\nMADE_OF = (inner_kernel,)\n"
        "@numba.njit(cache=True)\ndef run(x):\n    return twice(x) + 1\n")  # fmt: skip

    def run() -> tuple[float, int]:
        for name in ("inner_kernel", "outer_kernel"):
            sys.modules.pop(name, None)
        linecache.clearcache()
        importlib.invalidate_caches()
        module = importlib.import_module("outer_kernel")
        kept_code.keep_safely(module)
        return module.run(3.0), sum(module.run.stats.cache_hits.values())

    assert run() == (7.0, 0)
    assert run() == (7.0, 1)
    (tmp_path / "inner_kernel.py").write_text(inner.replace("2 * x", "20 * x"))
    assert run() == (61.0, 0)
    assert run() == (61.0, 1)
