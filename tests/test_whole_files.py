"""Files that are written: whole, or as they were."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from offload import files
from offload.errors import OutputError, PlotError
from offload.plots import style
from offload.verbs.output import write_file


def test_a_failed_write_leaves_what_was_there(tmp_path, monkeypatch):
    page, figure = tmp_path / "a.html", tmp_path / "a.svg"
    for path in (page, figure):
        path.write_text("old")
    monkeypatch.setattr(style, "render", lambda axes, kind: b"new")

    def full(one, other):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "replace", full)
    with pytest.raises(OutputError, match="-o .* cannot be written: No space left"):
        write_file(str(page), "new")
    with pytest.raises(PlotError, match="cannot be written: No space left"):
        style.save(None, str(figure))
    assert page.read_text() == figure.read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["a.html", "a.svg"], "nothing else is left"


def test_links_and_permissions_are_kept(tmp_path):
    there, link, fresh = tmp_path / "there", tmp_path / "link", tmp_path / "fresh"
    there.write_text("old")
    there.chmod(0o640)
    link.symlink_to(there)
    files.write_whole(link, b"new", OutputError)
    assert link.is_symlink() and there.read_bytes() == b"new" and there.stat().st_mode & 0o777 == 0o640
    files.write_whole(fresh, b"new", OutputError)
    plain = tmp_path / "plain"
    plain.write_text("")
    assert fresh.stat().st_mode == plain.stat().st_mode


STORE = """
import os, signal, sys
from offload import files
path, stop, exchange = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "exchange"
count = 0
def hook(event, args):
    global count
    if event in ("os.remove", "os.rmdir", "os.rename"):
        count += 1
        if count == stop:
            os.kill(os.getpid(), signal.SIGKILL)
if not exchange:
    files._exchanged = lambda one, other: False
with files.writing(path) as beside:
    os.mkdir(beside)
    for name in ("zarr.json", "new1", "new2"):
        open(os.path.join(beside, name), "w").close()
    sys.addaudithook(hook)
"""
OLD, NEW = ["old1", "old2", "zarr.json"], ["new1", "new2", "zarr.json"]


def old_store(tmp_path):
    store = tmp_path / "a.zarr"
    store.mkdir()
    for name in OLD:
        (store / name).touch()
    return store


@pytest.mark.parametrize("way", ["exchange", "two renames"])
@pytest.mark.parametrize("stop", range(1, 10))
def test_a_folder_is_whole_wherever_its_writer_is_killed(tmp_path, stop, way):
    store = old_store(tmp_path)
    root = str(Path(files.__file__).parents[1])
    done = subprocess.run([sys.executable, "-c", STORE, store, str(stop), way], cwd=root, timeout=60)
    assert done.returncode in (0, -signal.SIGKILL)
    if not store.exists():
        assert way == "two renames", "an exchange is one step"
    files._beside(store)  # whoever writes it next first puts back what was taken away
    assert sorted(os.listdir(store)) in (OLD, NEW)
    assert done.returncode or sorted(os.listdir(store)) == NEW


def test_a_folder_comes_back_where_the_new_one_cannot_take_its_place(tmp_path, monkeypatch):
    store = old_store(tmp_path)
    monkeypatch.setattr(files, "_exchanged", lambda one, other: False)
    rename = os.rename

    def fails(one, other):
        if os.path.basename(os.path.dirname(one)).startswith(".offload-") and os.path.basename(one) == "a.zarr":
            raise OSError(28, "No space left on device")
        rename(one, other)

    monkeypatch.setattr(files.os, "rename", fails)
    with pytest.raises(OutputError, match="cannot be written: No space left"):
        with files.writing(store) as beside:
            os.mkdir(beside)
    assert sorted(os.listdir(store)) == OLD and os.listdir(tmp_path) == ["a.zarr"]
