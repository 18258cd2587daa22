"""`offload measure` as a command: its files, its words, and what is left when it is ended."""

from __future__ import annotations

import contextlib
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


@pytest.mark.slow
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
    imported = run("topology", "import", "m.json", "--onto", "m.yaml", cwd=tmp_path)
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


def open_below(process: subprocess.Popen, folder) -> bool:
    """Whether a process has a file in a folder open, also one without a name."""
    try:
        links = [os.readlink(f"/proc/{process.pid}/fd/{one}") for one in os.listdir(f"/proc/{process.pid}/fd")]
    except OSError:
        return False
    return any(one.startswith(f"{folder}/") for one in links)


@pytest.mark.few
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="which files are open is not told here")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_files_are_gone_however_it_is_ended_and_what_was_measured_is_told(tmp_path, name):
    """A process of its own, ended while it writes and reads its file."""
    out = tmp_path / "out.yaml"
    out.write_text("kept")
    folder = tmp_path / "drive"
    folder.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "offload", "measure", "--only", "host,drive", "--disk", str(folder), "-o", str(out)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        end = time.monotonic() + 600  # far longer than a busy machine takes to begin
        while time.monotonic() < end and not open_below(process, folder) and process.poll() is None:
            time.sleep(0.02)
        if process.poll() is not None and "is memory" in process.stdout.read():
            pytest.skip("temporary files are kept in memory here")
        assert open_below(process, folder)
        process.send_signal(getattr(signal, name))
        said, told = process.communicate(timeout=300)
    finally:
        process.kill()
        process.wait()
    assert process.returncode in (130, -signal.SIGINT)  # the latter where Python was within exec(): 130 to a shell
    assert not list(folder.iterdir()) and out.read_text() == "kept"
    said = " ".join(said.split())
    if not said:
        assert "ended before anything was measured; no file is left" in told
        return
    assert "copies within host memory: the measurement was ended" in said  # of what was not begun
    assert said.endswith("Ended before all was measured: no topology is written.")


def test_figures_until_the_end_are_printed_and_as_data(quickly, monkeypatch, tmp_path):
    def ended(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "measure_processors", ended)
    words = ("measure", "--quick", "--only", "memory,processor,host", "-o", str(tmp_path / "x.yaml"))
    done = run(*words)
    assert done.returncode == 130 and "Host memory" in done.stdout
    text = " ".join(done.stdout.split())
    assert "the rest of what was asked for, copies within host memory: the measurement was ended" in text
    assert text.endswith("Ended before all was measured: no topology is written.")
    data = json.loads(run(*words, "--json").stdout)
    assert {one["about"] for one in data["figures"]} == {"memory"}
    assert any("the measurement was ended" in one for one in data["missing"]) and not list(tmp_path.iterdir())


def test_a_request_that_a_part_swallowed_ends_before_the_next_one_and_after_the_last(quickly, monkeypatch, tmp_path):
    def swallows(*given):
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(running, "measure_processors", swallows)
    words = ("measure", "--quick", "-o", str(tmp_path / "x.yaml"), "--only")
    for parts, rest in (("memory,processor,host", "copies within host memory"),
                        ("memory,processor", "the rest of what was asked for")):  # fmt: skip
        done = run(*words, parts)
        assert done.returncode == 130 and f"- {rest}: the measurement was ended" in " ".join(done.stdout.split())
        assert not list(tmp_path.iterdir())


def test_a_file_that_fills_up_in_the_end_loses_no_figures(quickly):
    if not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full here")
    done = run("measure", "--quick", "--only", "memory", "-o", "/dev/full")
    assert done.returncode == 2 and "-o /dev/full cannot be written" in done.stderr
    assert "The topology, which /dev/full did not take:" in done.stdout and "\nmemories:\n" in done.stdout


def test_an_output_that_cannot_be_is_told_before_and_leaves_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr("offload.measure.measure", None)
    for path in (str(tmp_path / "new") + "/", str(tmp_path / ("x" * 300)), ""):
        done = run("measure", "-o", path)
        assert done.returncode == 2 and "nothing was measured yet" in done.stderr and not list(tmp_path.iterdir())
    data = tmp_path / "model.gguf"
    data.write_text("mine")
    done = run("measure", "--disk", str(data), "-o", str(data))
    assert done.returncode == 2 and "it is the file that --disk names" in done.stderr and data.read_text() == "mine"


def test_progress_fits_its_line(monkeypatch):
    import io

    monkeypatch.setattr(verb.Progress, "_columns", lambda self: 20)
    stream = io.StringIO()
    stream.isatty = lambda: True
    told = verb.Progress(stream)
    told.tell("drive at 数数数数数数数数")
    assert stream.getvalue() == "\r\x1b[Kmeasure: drive at"
