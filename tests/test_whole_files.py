"""Files that are written: whole, or as they were."""

from __future__ import annotations

import os

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
