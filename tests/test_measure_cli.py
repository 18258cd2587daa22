"""`offload measure` as a command: its files, its words, and what is left when it is ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from offload.measure import run as running
from offload.verbs import measure as verb
from tests.commands import ROOT, run
from tests.measuring import small

PLAN = """
topology: ./my-machine.yaml
tensors: {w: {bytes: 100 MB, home: dram0}}
repeat: 4
tasks: {layer: {compute: cpu0, flops: 1 GFLOP, format: fp32, reads: w}}
"""


@pytest.fixture
def quickly(monkeypatch):
    """The quick measurement without any time."""
    monkeypatch.setattr("offload.measure.QUICK", small(repeats=1))


def test_a_topology_is_written_that_is_sound_and_answers(quickly, tmp_path):
    path = tmp_path / "my-machine.yaml"
    done = run("measure", "--quick", "-o", str(path), "--disk", str(tmp_path), "--only", "memory,processor,drive")
    assert done.returncode == 0, done.stderr
    assert f"Written to{path}" in "".join(done.stdout.split("\n")).replace("Written to ", "Written to")
    for words in ("Host memory", "matrix-vector", "Processors", "Not measured",
                  "copies within host memory, GPUs: not asked for"):  # fmt: skip
        assert words in done.stdout
    assert run("check", str(path)).returncode == 0
    assert [one.name for one in tmp_path.iterdir()] == [path.name]
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN)
    answered = run("step", str(plan))
    assert answered.returncode == 0 and "cpu0.reads" in answered.stdout and "cpu0.flops" in answered.stdout


def test_without_a_file_the_topology_follows(quickly, tmp_path):
    done = run("measure", "--quick", "--only", "memory", cwd=tmp_path)
    assert done.returncode == 0 and "\nmemories:\n" in done.stdout
    assert "measure: " in done.stderr  # progress


def test_data_is_read_by_an_import(quickly, tmp_path):
    path, out = tmp_path / "m.json", tmp_path / "m.yaml"
    done = run("measure", "--quick", "--json", "-o", str(out), "--only", "memory", cwd=tmp_path)
    path.write_text(done.stdout)
    data = json.loads(done.stdout)
    assert data["topology"] == out.read_text() and data["mode"] == "quick"
    assert all(one["low"] <= one["value"] <= one["high"] for one in data["figures"])
    imported = run("topology", "import", str(path), "--onto", str(out))
    assert imported.returncode == 0 and "dram0 sustained read" in imported.stdout


@pytest.mark.parametrize(("words", "told"), [
    (["--only", "memry"], 'Did you mean "memory"?'),
    (["--only", ","], "names no part"),
    (["-o", "/no/such/folder/x.yaml"], "there is no folder /no/such/folder"),
    (["-o", "."], "it is a folder"),
    (["--quik"], "--quick"),
])  # fmt: skip
def test_words_that_are_wrong_are_told_before_anything_is_measured(words, told, monkeypatch):
    monkeypatch.setattr(running, "measure", None)
    done = run("measure", *words)
    assert done.returncode == 2 and told in done.stderr and not done.stdout


def test_a_drive_that_is_not_there_is_told_and_the_exit_status_says_that_nothing_was_measured(quickly):
    done = run("measure", "--quick", "--only", "drive", "--disk", "/no/such/folder")
    assert done.returncode == 1
    assert "drive at /no/such/folder: No such file or directory" in " ".join(done.stdout.split())


def test_a_stream_that_nobody_reads_is_no_reason_to_stop():
    class Closed:
        def write(self, text):
            raise BrokenPipeError

    told = verb.Progress(Closed())
    told.tell("one")
    told.end()


def test_progress_on_a_terminal_is_one_line():
    import io

    stream = io.StringIO()
    stream.isatty = lambda: True
    told = verb.Progress(stream)
    told.tell("one\x1b[2J")
    told.tell("two")
    told.end()
    assert stream.getvalue() == "\r\x1b[Kmeasure: one?[2J\r\x1b[Kmeasure: two\r\x1b[K"


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_files_are_gone_however_it_is_ended(tmp_path, name):
    """A process of its own, ended while it writes and reads its file; a stand-in for fio, that needs a named one."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "fio").write_text("#!/bin/sh\nsleep 30\n")
    (tools / "fio").chmod(0o755)
    folder = tmp_path / "drive"
    folder.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "offload", "measure", "--quick", "--only", "drive", "--disk", str(folder)], cwd=ROOT,
        env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        end = time.monotonic() + 60
        while time.monotonic() < end and not list(folder.iterdir()) and process.poll() is None:
            time.sleep(0.02)
        if process.poll() is not None and b"is memory" in process.stdout.read():
            pytest.skip("temporary files are kept in memory here")
        assert [one.name for one in folder.iterdir()], "fio's file is there while fio runs"
        process.send_signal(getattr(signal, name))
        process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert not list(folder.iterdir())
