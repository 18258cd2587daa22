"""The scripts in examples/notebooks: each asks a question first, runs as it stands and prints the answer at its end."""

from __future__ import annotations

import ast
import os
import re
import runpy
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = sorted((ROOT / "examples" / "notebooks").glob("*.py"))
SECONDS = 10.0
ANSWERS = {
    "what_is_my_floor": (r"faster than 251 ms: at most 3\.98 tokens/s\.\nExpected: 344 ms, 2\.91 tokens/s\.\n"
                         r"What shortens it most: cpu0\.reads and dram0 twice as fast", ["what_is_my_floor.svg"]),
    "which_server": (r"1\. gh200: .*\n2\. .*\n3\. .*\n4\. desktop-4090: .*\ngh200 is the fastest, and the whole order "
                     r"is certain\.", []),
    "sweep_and_plot": (r"Most tokens per second that fit, at the floor: [\d.]+, with \d+ layers at the GPU and a batch "
                       r"of 15\.\nFrom about 9[5-9]\.?\d* GB/s of the link on, dram0 binds and no longer pcie0\.hbm0\."
                       r"\nA link of 256 GB/s instead of 8 makes the floor 12\.0 times as fast\.", ["layers.svg"]),
}  # fmt: skip


def test_every_script_has_its_answer():
    assert {path.stem for path in SCRIPTS} == set(ANSWERS)


@pytest.mark.few
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_it_runs_and_answers(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    began = time.process_time()
    left = runpy.run_path(str(path), run_name="__main__")
    assert time.process_time() - began < SECONDS
    answer, files = ANSWERS[path.stem]
    captured = capsys.readouterr()
    assert re.fullmatch(rf"[^\n]*{answer}[^\n]*\n", captured.out), captured.out
    assert captured.err == ""
    assert sorted(os.listdir(tmp_path)) == files
    assert all((tmp_path / name).stat().st_size > 1000 for name in files)
    shown = [node.value for node in ast.parse(path.read_text()).body if isinstance(node, ast.Expr)]
    values = [eval(compile(ast.Expression(node), str(path), "eval"), left) for node in shown  # noqa: S307
              if not (isinstance(node, ast.Call) and ast.unparse(node.func) in ("print", "plots.save"))]  # fmt: skip
    assert len(values) >= 2
    for value in values:
        one = value._repr_svg_() if hasattr(value, "_repr_svg_") else value._repr_html_()
        assert re.match("<svg |<style>", one)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_its_cells_begin_with_a_question(path):
    lines = path.read_text(encoding="utf-8").split("\n")
    assert lines[0] == "# %% [markdown]" and re.fullmatch(r"# # .*\?", lines[1])
    cells = re.split(r"^# %%", path.read_text(encoding="utf-8"), flags=re.M)[1:]
    for cell in cells:
        body = cell.split("\n")[1:]
        if cell.startswith(" [markdown]"):
            assert all(line.startswith("# ") for line in body if line), "text stands in comments"
        else:
            ast.parse("\n".join(body))
    assert "print(" in cells[-1] and "answer" in cells[-2]
