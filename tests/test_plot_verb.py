"""`offload plot KIND`: every kind from words, from a plan file and from a grid; what is wrong, and how to write it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from offload import cli
from offload.verbs.plot import KINDS

ROOT = Path(__file__).resolve().parent.parent
DESKTOP = str(ROOT / "examples" / "llama-3.1-70b-desktop.yaml")
DRIVES = str(ROOT / "examples" / "llama-3-70b-from-two-drives.yaml")
BY_HAND = str(ROOT / "examples" / "by-hand.yaml")
WORDS = ["llama-3.1-70b:q4_k_m", "--on", "desktop-4090"]
ASKED = {
    "floor": [DESKTOP, "--over", "dram0", "--measured", "2.7 tok/s; a post", "--measured", "48 GB/s: 600 ms/step"],
    "heat": [DESKTOP, "--over", "workload.batch=1,2,4", "--over", "workload.context=512,4096", "--figure", "serial"],
    "roofline": [*WORDS, "--compute", "gpu0", "--gpu-layers", "8", "--over", "batch=1,64"],
    "residency": [*WORDS, "--over", "gpu-layers=0:80:5", "--measured", "38: 2.7 tok/s; a post"],
    "drives": [DRIVES, "--most", "3", "--measured", "9 tok/s"],
    "concurrency": ["llama-3.1-8b:fp8", "--on", "desktop-4090", "--requests", "20x2000"],
    "pareto": [*WORDS, "--over", "gpu-layers=0,20,38", "--over", "batch=1,4", "--of", "floor,tokens"],
}


def texts(path: Path) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", path.read_text(encoding="utf-8"))


def test_every_kind_is_asked_for_here():
    assert {kind.name for kind in KINDS} >= set(ASKED)


@pytest.mark.few
@pytest.mark.parametrize("kind", ASKED)
def test_a_figure_of_every_kind(kind, tmp_path, capsys):
    path = tmp_path / "figure.svg"
    assert cli.main(["plot", kind, *ASKED[kind], "-o", str(path)]) == 0
    title, told = capsys.readouterr().out.splitlines()
    assert told == f"Figure: {path}"
    found = texts(path)
    assert title in " ".join(found) and len(title) > 20
    if "a post" in " ".join(ASKED[kind]):
        assert "a post" in " ".join(found)
    first = path.read_bytes()
    assert cli.main(["plot", kind, *ASKED[kind], "-o", str(path), "--theme", "dark"]) == 0
    assert path.read_bytes() != first and "#14181c" in path.read_text(encoding="utf-8")


@pytest.mark.slow
def test_marks_stand_where_they_are_said_to(tmp_path, capsys):
    path = tmp_path / "floor.svg"
    assert cli.main(["plot", "floor", *ASKED["floor"], "-o", str(path)]) == 0
    assert {"370 ms", "600 ms"} <= set(texts(path)), "1 / 2.7 of a second, and what was given as a time"


@pytest.mark.slow
def test_a_published_measurement_stands_with_its_source(tmp_path, capsys):
    path = tmp_path / "floor.svg"
    assert cli.main(["plot", "floor", "zinf22-opt175b-cpu", "-o", str(path)]) == 0
    found = texts(path)
    assert "published: zinf22-opt175b-cpu" in found
    assert any("deepspeed.ai" in text for text in found), "where it was published"


@pytest.mark.slow
def test_a_grid_that_a_sweep_wrote(tmp_path, capsys):
    grid, path = str(tmp_path / "grid.npz"), tmp_path / "figure.svg"
    axes = ["--over", "batch=1:8", "--over", "gpu-layers=0:38:5"]
    assert cli.main(["sweep", *WORDS, *axes, "-o", grid]) == 0
    assert cli.main(["plot", "heat", *WORDS, *axes, "-o", str(path)]) == 0
    swept = path.read_text(encoding="utf-8")
    assert cli.main(["plot", "heat", grid, "-o", str(path)]) == 0
    filled = re.compile(r"style=.fill: (#[0-9a-f]{6}); stroke: #")
    assert filled.findall(path.read_text(encoding="utf-8")) == filled.findall(swept) and len(filled.findall(swept)) > 40
    assert cli.main(["plot", "pareto", grid, "-o", str(path)]) == 0
    capsys.readouterr()
    assert cli.main(["plot", "heat", grid, "--batch", "3", "--over", "context=1:3", "-o", str(path)]) == 2
    assert "drop --over, --batch, or name the plan" in capsys.readouterr().err


@pytest.mark.few
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["floor", DESKTOP, "-o", "f.gif"], 'ends in ".gif". End it in .svg, .png or .pdf.'),
        (["floor", DESKTOP, "-o", "no/such/f.svg"], "cannot be written: No such file or directory"),
        (["floor", DESKTOP, "--over", "m3", "-o", "f.svg"], 'no link or memory "m3"'),
        (["floor", DESKTOP, "--measured", "fast", "-o", "f.svg"], "--measured fast: .*Write \\[RATE:\\] SPEED"),
        (["floor", DESKTOP, "--measured", "9 parsecs: 2 tok/s", "-o", "f.svg"], "--measured 9 parsecs"),
        (["residency", *WORDS, "--over", "gpu-layers=0,8", "--measured", "2 tok/s", "-o", "f.svg"],
         'Write LAYERS: before it, as "38: 2.7 tok/s"'),
        (["residency", DESKTOP, "-o", "f.svg"], "over which portion?"),
        (["residency", *WORDS, "--over", "gpu-layers=0,8", "--over", "batch=1,2", "-o", "f.svg"], "over one axis"),
        (["heat", *WORDS, "--batch", "3", "-o", "f.svg"], "--batch is given: drop it"),
        (["heat", BY_HAND, "-o", "f.svg"], "belongs to a plan by placement"),
        (["heat", BY_HAND, "-o", "f.svg"], "usual ones of this figure: say others of the plan with --over"),
        (["roofline", DESKTOP, "--over", "workload.batch=4", "-o", "f.svg"], "path is over 2 to 64 numbers"),
        (["floor", "ovl-h100-kv100k/3", "--batch", "2", "-o", "f.svg"], "is a published case: drop --batch"),
        (["floor", "ovl-h100-kv100k/99", "-o", "f.svg"], "no case .ovl-h100-kv100k/99"),
        (["floor", "ovl-h100-kv100k/3", "-o", "f.svg"], "of one step alone"),
        (["drives", BY_HAND, "-o", "f.svg"], "reads and writes no drive"),
        (["drives", DRIVES, "--drive", "ssd9", "-o", "f.svg"], 'no drive "ssd9"'),
        (["pareto", *WORDS, "-o", "f.svg"], "--over is missing"),
        (["pareto", *WORDS, "--of", "floor", "-o", "f.svg"], "name two"),
        (["pareto", *WORDS, "--over", "batch=1,2", "--of", "floor,speed", "-o", "f.svg"], "speed"),
        (["concurrency", "llama-3.1-8b", "--requests", "2x9", "-o", "f.svg"], "how much memory is there"),
        (["pie", DESKTOP, "-o", "f.svg"], "invalid choice"),
        (["server", "gb200-nvl72", "-o", "f.svg"], 'no server "gb200-nvl72". Did you mean "gb200-nvl72-tray"'),
        (["server", "DGX", "-o", "f.svg"], 'Did you mean "dgx-a100" or'),
        (["floor", DESKTOP], "required: -o"),
        (["heat", "none.npz", "-o", "f.svg"], "none.npz: No such file"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(arguments, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["plot", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and re.search(said.replace("?", r"\?"), captured.err), captured.err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_sweep_draws_beside_its_report(tmp_path, capsys):
    path = tmp_path / "sweep.svg"
    words = ["sweep", *WORDS, "--over", "batch=1:4", "--plot", str(path)]
    assert cli.main(words) == 0
    captured = capsys.readouterr()
    assert captured.out.endswith(f"Figure: {path}\n") and "What fits" in captured.out
    assert "llama-3.1-70b q4_k_m, decode, context 4096 on desktop-4090" in " ".join(texts(path)), "not one batch"
    assert cli.main([*words[:-1], str(tmp_path / "sweep.gif")]) == 2
    captured = capsys.readouterr()
    assert "What fits" in captured.out and 'ends in ".gif"' in captured.err, "a figure that fails loses no report"
    assert cli.main([*words, "--reduce", "best=2"]) == 2
    assert "drop one of them" in capsys.readouterr().err


def test_an_axis_of_one_value_stands_above_the_figure(tmp_path, capsys):
    path = tmp_path / "swept.svg"
    over = ["--over", "gpu-layers=8", "--over", "batch=1,2,4"]
    assert cli.main(["sweep", *WORDS[:3], *over, "--plot", str(path)]) == 0
    capsys.readouterr()
    assert "gpu-layers 8" in path.read_text() and "batch" in path.read_text()


def test_no_figure_replaces_what_is_read(tmp_path, capsys):
    plan = tmp_path / "plan.svg"
    plan.write_text(Path(BY_HAND).read_text(encoding="utf-8"), encoding="utf-8")
    before = plan.read_bytes()
    assert cli.main(["plot", "floor", str(plan), "-o", str(plan)]) == 2
    assert plan.read_bytes() == before


def test_without_matplotlib_it_says_how_to_get_it(tmp_path, monkeypatch, capsys):
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert cli.main(["plot", "drives", DRIVES, "--most", "2", "-o", str(tmp_path / "f.svg")]) == 2
    assert "Install it: pip install matplotlib" in capsys.readouterr().err


@pytest.mark.slow
def test_neither_the_process_nor_a_persons_settings_change_the_bytes(tmp_path):
    (tmp_path / "matplotlibrc").write_text("font.size: 30\nlines.linewidth: 9\nsvg.fonttype: path\n")
    images = []
    for seed, folder in (("1", ROOT), ("2", tmp_path)):
        path = tmp_path / f"{seed}.svg"
        own = {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT), "DISPLAY": "", "MPLBACKEND": f"none-{seed}"}
        command = [sys.executable, "-m", "offload", "plot", "heat", *ASKED["heat"], "-o", str(path)]
        done = subprocess.run(command, cwd=folder, env=os.environ | own, capture_output=True, encoding="utf-8",
                              timeout=120)  # fmt: skip
        assert done.returncode == 0 and done.stderr == "", done.stderr
        images.append(path.read_bytes())
    assert images[0] == images[1]
