"""`offload sweep` end to end: its report, its JSON, its files, its exit status, and that it equals `offload step`."""

from __future__ import annotations

import csv
import json

import pytest

from tests.commands import run
from tests.test_sweep_grid import PLAN, SERVER

DESKTOP = "examples/llama-3.1-70b-desktop.yaml"
WORDS = ("llama-3.1-70b:q4_k_m", "--on", "desktop-4090")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "server.yaml").write_text(SERVER, encoding="utf-8")
    (tmp_path / "plan.yaml").write_text(PLAN, encoding="utf-8")
    return tmp_path


def test_the_whole_report_of_a_plan_by_hand(folder):
    done = run("sweep", "plan.yaml", "--over", "tensors.w.bytes=1GB,2GB", "--over",
               "pcie0.rate=50GB/s,80GB/s,125GB/s,200GB/s", "--best", "2", cwd=folder)  # fmt: skip
    assert done.returncode == 0 and done.stderr == ""
    told = done.stdout.split("\nNot modelled")[0].split("\nAssumptions")[0]
    assert told == """\
Sweep of plan.yaml: 8 points
At the best point: four fetches on server

Swept
axis              values   which
-----------------------------------------------------------
tensors.w.bytes        2   1GB, 2GB
pcie0.rate             4   50GB/s, 80GB/s, 125GB/s, 200GB/s

Floor: no schedule on this machine is faster
Smallest: 40 ms (50 tokens/s) at tensors.w.bytes 1GB, pcie0.rate 125GB/s: dram0 binds; it fits.
Largest: 160 ms (12.5 tokens/s) at tensors.w.bytes 2GB, pcie0.rate 50GB/s: pcie0.hbm0 binds; it does
  not fit, 2 GB short.
What binds, by points: dram0 at 50 %, pcie0.hbm0 at 50 %.

Best that fit, by floor
tensors.w.bytes   pcie0.rate   floor   tokens/s    serial   binds   spare
-------------------------------------------------------------------------
            1GB      125GB/s   40 ms         50   55.3 ms   dram0    2 GB
            1GB      200GB/s   40 ms         50   55.3 ms   dram0    2 GB

Floor over tensors.w.bytes and pcie0.rate
across: pcie0.rate
tensors.w.bytes    50GB/s    80GB/s   125GB/s   200GB/s
-------------------------------------------------------
            1GB     80 ms     50 ms     40 ms     40 ms
            2GB   160 ms*   100 ms*    80 ms*    80 ms*
* does not fit.

Where what binds changes
along        from         to      between               lines
-------------------------------------------------------------
pcie0.rate   pcie0.hbm0   dram0   80GB/s and 125GB/s   2 of 2
lines: along the axis, one for each choice of values of the other axes.

What fits
4 of 8 points fit.
Of those that do not, the nearest lacks 2 GB in the fullest memory at tensors.w.bytes 2GB,
  pcie0.rate 50GB/s.
"""


@pytest.mark.slow
def test_each_point_is_the_answer_of_a_single_step(tmp_path):
    file = tmp_path / "all.csv"
    axes = ("workload.batch=1,7", "dram0.rate=60GB/s:90GB/s:3")
    done = run("sweep", DESKTOP, "--over", axes[0], "--over", axes[1], "-o", str(file), "--json")
    assert done.returncode == 0, done.stderr
    with open(file, encoding="utf-8", newline="") as opened:
        rows = list(csv.DictReader(opened))
    assert len(rows) == 6
    for row in rows:
        step = run("step", DESKTOP, "--json", "--ignore-capacity", "--set", f"workload.batch={row['workload.batch']}",
                   "--set", f"dram0.rate={row['dram0.rate_bytes_per_s']} B/s")  # fmt: skip
        answer = json.loads(step.stdout)
        assert float(row["floor_seconds"]) == answer["floor"]["seconds"]
        assert float(row["serial_seconds"]) == answer["serial"]["seconds"]
        assert (row["fits"] == "true") == answer["fits"]


def test_json_of_words():
    done = run("sweep", *WORDS, "--gpu-layers", "38", "--over", "batch=0:4", "--over", "model.kv=f16,fp8", "--json",
               "--best", "3", "--by", "tokens")  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["axes"] == [{"path": "batch", "unit": "", "count": 5, "first": 0, "last": 4},
                            {"path": "model.kv", "unit": "", "count": 2, "first": "f16", "last": "fp8"}]  # fmt: skip
    assert (told["points"], told["made"], told["fit"], told["by"]) == (10, 8, 8, "tokens_per_s")
    assert [one["values"] for one in told["best"]] == [{"batch": 4, "model.kv": "fp8"}, {"batch": 4, "model.kv": "f16"},
                                                      {"batch": 3, "model.kv": "fp8"}]  # fmt: skip
    assert sum(one["points"] for one in told["wrong"]) == 2 and "at least 1" in told["wrong"][0]["text"]
    assert sum(told["binds"].values()) == 8 and told["smallest"]["floor_seconds"] <= told["largest"]["floor_seconds"]
    single = run("step", *WORDS, "--gpu-layers", "38", "--batch", "4", "--kv-format", "fp8", "--json")
    assert told["best"][0]["floor_seconds"] == json.loads(single.stdout)["floor"]["seconds"]


@pytest.mark.parametrize("suffix", [".csv", ".json", ".npz", ".parquet", ".nc", ".zarr"])
def test_the_suffix_says_what_is_written(folder, suffix):
    needs = {".parquet": ["pyarrow"], ".nc": ["xarray", "netCDF4"], ".zarr": ["xarray", "zarr"]}
    for module in needs.get(suffix, ()):
        pytest.importorskip(module)
    done = run("sweep", "plan.yaml", "--over", "tokens=1:3", "-o", f"out{suffix}", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert (folder / f"out{suffix}").exists() and f"3 points are in out{suffix}." in done.stdout


def test_a_sweep_of_many_points_is_told_in_few_lines(folder):
    done = run("sweep", "plan.yaml", "--over", "pcie0.rate=10GB/s:200GB/s:900", "--over",
               "dram0.rate=50GB/s:150GB/s:40log", "--over", "tokens=1:3", cwd=folder)  # fmt: skip
    assert done.returncode == 0 and done.stdout.count("\n") < 60
    assert max(map(len, done.stdout.splitlines())) <= 100
    assert "108,000 points" in done.stdout and "at 40 places" not in done.stderr
    one = run("sweep", "plan.yaml", "--over", "pcie0.rate=10GB/s:200GB/s:191", cwd=folder)
    assert "179 more points are not shown: -o FILE writes all." in one.stdout
    assert "pcie0.hbm0   dram0   99 GB/s and 100 GB/s" in one.stdout  # at 100 GB/s both bind, and dram0 comes first


def test_no_point_fits(folder):
    done = run("sweep", "plan.yaml", "--over", "tensors.w.bytes=2GB,3GB", cwd=folder)
    assert done.returncode == 1 and "No point of 2 fits." in done.stdout
    assert "the nearest lacks 2 GB in the fullest memory at tensors.w.bytes 2GB." in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--over is missing"),
        (("--over", "tokens"), 'no "="'),
        (("--over", "token=1:3"), 'Did you mean "tokens"'),
        (("--over", "tokens=3:1"), "write tokens=1:3"),
        (("--over", "tokens=1:3", "--over", "tokens=1:2"), "swept twice"),
        (("--over", "tokens=1:3", "--set", "tokens=2"), "set the same value"),
        (("--over", "tokens=nan,1"), "no finite number"),
        (("--over", "tokens=1:99999999"), "more than the 10,000,000"),
        (("--over", "repeat=1:2000000"), "gone through value by value"),
        (("--over", "tokens=1:3", "-o", "out.xls"), "Suffixes: .csv"),
        (("--over", "tokens=1:3", "-o", "no/out.csv"), "No such file or directory"),
        (("--over", "tokens=1:3", "-o", "plan.yaml"), "would be overwritten"),
        (("--over", "tokens=1:3", "--reduce", ""), "--reduce: which answers?"),
        (("--over", "tokens=1:3", "--best", "0"), "at least 1"),
        (("--over", "tokens=1:3", "--batch", "3"), "--batch"),
        (("--over", "overlap.buffers=1:3", "--buffers", "2"), "say the same"),
    ],
)
def test_bad_input(folder, words, said):
    done = run("sweep", "plan.yaml", *words, cwd=folder)
    assert done.returncode == 2 and done.stdout == "" and said in done.stderr, done.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["plan.yaml", "server.yaml"]


def test_a_file_that_fails_late_takes_no_answer_away(folder, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("offload.sweeps.writing._cells", full)
    done = run("sweep", "plan.yaml", "--over", "tokens=1:3", "-o", "out.csv", cwd=folder)
    assert done.returncode == 2 and "Floor: no schedule" in done.stdout and "points are in" not in done.stdout
    assert "-o out.csv cannot be written: No space left on device. Make room" in done.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["plan.yaml", "server.yaml"]


def test_servers_of_a_model_in_words_are_swept():
    asked = ("llama-3.1-70b:q4_k_m", "--gpu-layers", "10", "--over", "topology=desktop-4090,gh200")
    done = run("sweep", *asked, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["best"][0]["values"] == {"topology": "gh200"} and told["of"] == "llama-3.1-70b:q4_k_m"
    assert "--on and --over topology say the same" in run("sweep", *asked, "--on", "gh200").stderr
    assert "--on is missing" in run("sweep", "llama-3.1-70b:q4_k_m", "--over", "batch=1:3").stderr
    other = run("sweep", DESKTOP, "--over", "topology=desktop-4090,gh200", "-t", "gh200")
    assert other.returncode == 2 and "Keep one" in other.stderr
    assert run("sweep", DESKTOP, "--over", "topology=desktop-4090,gh200").returncode == 0
