"""Types and style hold wherever the tools that look at them are installed (the extra `dev`)."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

from tests.commands import ROOT


@pytest.mark.parametrize(("tool", "words"), [
    ("ruff", ["check", "."]), pytest.param("mypy", [], marks=pytest.mark.slow),
])  # fmt: skip
def test_is_clean(tool, words, tmp_path):
    needed = [tool, *(["yaml-stubs", "networkx-stubs"] if tool == "mypy" else [])]
    if any(importlib.util.find_spec(one) is None for one in needed):
        pytest.skip(f"{tool} is not installed (it is in the extra `dev`)")
    where = ["--cache-dir", str(tmp_path)]
    done = subprocess.run([sys.executable, "-m", tool, *words, *where], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
