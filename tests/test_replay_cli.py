"""`offload replay` as a command: report, data, timelines, words that are wrong, and what is left when it is ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from offload import replaying
from offload.replaying import running
from offload.verbs import replay as verb
from tests.commands import ROOT, run
from tests.replaying import MACHINE, STREAM, written


@pytest.fixture
def plan(tmp_path):
    """A plan file, and a folder that stands for its drive."""
    folder = tmp_path / "drive"
    folder.mkdir()
    return str(written(tmp_path)), f"disk0={folder}", folder


def asked(plan, *words):
    steps = [] if "--steps" in words else ["--steps", "2"]
    return run("replay", plan[0], "--disk", plan[1], "--buffered", *steps, *words)

def test_a_report_from_end_to_end(plan):
    done = asked(plan)
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    for words in ("layers from a drive, run on this machine", "All bytes and FLOP of the plan.",
                  "A step, back to back (2 steps counted)", "floor", "schedule (2 buffers)", "measured, the first step",
                  "Resources, in a mean step", "Kept to the plan", "All were kept.", "Rates of the prediction",
                  "Nothing was fitted to this plan", "measured: offload measure, read, 1048576 B each, 2 in flight",
                  "disk0: through the page cache", "By the system"):  # fmt: skip
        assert words in text, words
    assert "replay: " in done.stderr and not list(plan[2].iterdir())


def test_the_page_cache_that_served_reads_is_told(plan):
    done = asked(plan)
    assert "the page cache served" in " ".join(done.stdout.split())


def test_data_has_every_number(plan):
    done = asked(plan, "--json", "--scale", "1/2", "--buffers", "1")
    data = json.loads(done.stdout)
    assert done.returncode == 0 and data["offload_replay"] == 1 and data["factor"] == 0.5 and data["steps"] == 2
    assert data["measured"]["least"] <= data["measured"]["median"] <= data["measured"]["most"]
    assert len(data["periods"]) == 2 and data["ratio"] == data["measured"]["median"] / data["predicted"]["seconds"]
    assert {one["name"]: one["moved"] for one in data["resources"]}["disk0.read"] == 6 * 128 * 1024
    assert data["buffers"] == [{"name": "fetch", "plan": 1, "most": 1}] and data["wrong"] == []
    assert all(one["source"] or one["assumed"] or one["value"] for one in data["rates"]) and not data["interrupted"]


def test_timelines_are_written_side_by_side(plan, tmp_path):
    trace, plot = tmp_path / "both.json", tmp_path / "both.svg"
    done = asked(plan, "--trace", str(trace), "--plot", str(plot))
    assert done.returncode == 0, done.stderr
    events = json.loads(trace.read_text())["traceEvents"]
    names = {one["pid"]: one["args"]["name"] for one in events if one["name"] == "process_name"}
    assert sum("predicted" in one for one in names.values()) == sum("measured" in one for one in names.values()) == 2
    counts = {pid: sum(one["ph"] == "X" and one["pid"] == pid for one in events) for pid in names}
    assert counts[1] == counts[2] == 3 * 12, "as many tasks in either, by queue"
    text = plot.read_text()
    assert "disk0.read, schedule" in text and "disk0.read, run" in text


@pytest.mark.parametrize(("words", "told"), [
    (["--scale", "2"], "above 0 and at most 1"),
    (["--scale", "1/0"], "no part of the plan"),
    (["--mmap"], "not allowed with"),
    (["--stepz", "3"], 'Did you mean "--steps"?'),
    (["--trace", "a.json", "--plot", "a.json"], "are one file"),
    (["--plot", "a.txt"], "a.txt"),
    (["--disk", "disk7=."], 'no drive "disk7"'),
    (["--trace", "/no/such/folder/t.json"], "there is no folder /no/such/folder"),
    (["--plot", "/no/such/folder/t.svg"], "nothing was measured yet"),
    (["--steps", "1000000000"], "are too many to run"),
])  # fmt: skip
def test_words_that_are_wrong_are_told(plan, words, told, monkeypatch):
    monkeypatch.setattr(running, "run", None)
    done = asked(plan, *words)
    assert done.returncode == 2 and told in done.stderr and not done.stdout


def test_a_machine_that_is_not_here_is_told(plan, tmp_path):
    path = tmp_path / "gpu.yaml"
    path.write_text(STREAM.replace("to: dram0", "to: hbm1, via: dram0").replace("cpu0, flops: 2 MFLOP, format: fp32",
                                                                                "gpu1"))  # fmt: skip
    done = run("replay", str(path), "--disk", plan[1], "--buffered")
    assert done.returncode == 2 and "hbm1" in done.stderr and "It can stand for" in done.stderr


def test_what_was_not_kept_is_the_answer_no(plan, monkeypatch):
    right = replaying.doing.Engine._look

    def look(self, held, due, size, place):
        self.wrong["made up"] = None
        right(self, held, due, size, place)

    monkeypatch.setattr(replaying.doing.Engine, "_look", look)
    done = asked(plan)
    assert done.returncode == 1 and "- made up" in done.stdout


def test_parts_of_a_whole():
    assert (verb._part("1/16"), verb._part("25%"), verb._part("0.5"), verb._part("1")) == (0.0625, 0.25, 0.5, 1.0)


def test_a_trace_that_cannot_be_written_in_the_end_costs_no_figure(plan, tmp_path):
    plot = tmp_path / "both.svg"
    done = asked(plan, "--trace", os.devnull, "--plot", str(plot))
    assert done.returncode == 2 and "is no file" in done.stderr
    assert "Kept to the plan" in done.stdout and "disk0.read, run" in plot.read_text()


@pytest.mark.skipif(not os.path.exists("/proc/self/io"), reason="what drives read is not told here")
def test_reads_that_the_page_cache_served_are_the_reason_of_a_run_below_the_floor(plan, tmp_path):
    machine = tmp_path / "machine.yaml"
    machine.write_text(MACHINE.replace("9 TB/s, sustained: 1 GB/s", "1 MB/s, sustained: 1 MB/s"))
    done = asked(plan)
    assert done.returncode == 1 and "Faster than the floor: the page cache served reads" in done.stdout


def test_ended_before_anything_was_measured_it_says_so(plan, monkeypatch):
    def ended(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(replaying.doing.Engine, "_file", ended)
    done = asked(plan)
    assert done.returncode == 130 and "ended before a counted step had ended; no file is left" in done.stderr
    assert not done.stdout and not list(plan[2].iterdir())


# The program, which tells on standard error when its tenth step begins.
TELLS = """
import sys
from offload import cli
from offload.replaying import doing
right = doing.Engine.do
def do(self, place):
    if self.program.items[place].step == 9 and not hasattr(self, "told"):
        self.told = True
        print("step 9", file=sys.stderr, flush=True)
    return right(self, place)
doing.Engine.do = do
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.mark.few
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_ended_early_it_reports_what_it_has_and_leaves_no_file(plan, name):
    process = subprocess.Popen(
        [sys.executable, "-c", TELLS, "replay", plan[0], "--disk", plan[1], "--buffered", "--steps", "3000", "--json"],
        cwd=ROOT, env=os.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        for line in process.stderr:
            if "step 9" in line:
                break
        process.send_signal(getattr(signal, name))
        out, _ = process.communicate(timeout=300)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130 and not list(plan[2].iterdir())
    data = json.loads(out)
    assert data["interrupted"] and 7 <= data["steps"] == len(data["periods"]) < 3000 and not data["wrong"]
