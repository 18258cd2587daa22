"""Figures: files that hold what they should, byte for byte the same, and errors that lose no report."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from offload import cli, compile_step, evaluate, load_plan
from offload.curves import Piece, floor_curve
from offload.plots import draw_floor
from offload.plots.style import LETTERS, WIDTH
from tests.figures import assert_clear

ROOT = Path(__file__).resolve().parent.parent
BY_HAND = str(ROOT / "examples" / "by-hand.yaml")
DESKTOP = str(ROOT / "examples" / "llama-3.1-70b-desktop.yaml")
SPARK = ["llama-3.1-70b:q4_k_m", "--on", "dgx-spark"]


@pytest.fixture(scope="module")
def by_hand():
    plan, topology = load_plan(BY_HAND)
    return floor_curve(compile_step(topology, plan)), evaluate(topology, plan)


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> str:
    """The example with few layers, which is quick."""
    path = tmp_path_factory.mktemp("plans") / "small.yaml"
    path.write_text(Path(BY_HAND).read_text(encoding="utf-8").replace("repeat: 80", "repeat: 4"), encoding="utf-8")
    return str(path)


def texts(path: Path) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", path.read_text(encoding="utf-8"))


def test_a_figure_says_what_it_shows(tmp_path, by_hand):
    path = tmp_path / "floor.svg"
    draw_floor(*by_hand, str(path))
    found = texts(path)
    for text in (
        "peak rate of pcie0.hbm0 (GB/s)", "time per step (s)", "tokens per second", "impossible on this machine",
        "PCIe 3", "PCIe 4", "PCIe 5", "PCIe 6", "x16",
        "floor: pcie0.hbm0", "floor: dram0", "expected (2 buffers)", "serial",
        "your box: 31.5 GB/s", "serial 1.65 s", "expected 1.61 s", "floor 1.34 s", "96.2 GB/s",
    ):  # fmt: skip
        assert text in found, text
    title = ("No step takes less than 1.34 s (0.746 tok/s) at 31.5 GB/s: pcie0.hbm0 binds up to 96.2 GB/s, from there "
             "dram0")  # fmt: skip
    assert title in " ".join(found)
    assert f"<dc:title>{title}</dc:title>" in path.read_text(encoding="utf-8")
    assert found.count("pcie0.hbm0") == found.count("dram0") == 1, "the name of what binds stands along its piece"
    caption = " ".join(" ".join(found).split())
    for text in ("80 layers streamed by hand, on Desktop", "sustained rates keep their share of it.",
                 "Scaled with it: pcie0_both.", "offload 0.1.0", "(desktop-4090)"):  # fmt: skip
        assert text in caption
    assert not re.search(r"\b20\d\d-\d\d-\d\d", path.read_text(encoding="utf-8")), "no date"


def test_a_chain_says_that_times_add(tmp_path):
    plan, topology = load_plan(DESKTOP)
    path = tmp_path / "floor.svg"
    draw_floor(floor_curve(compile_step(topology, plan)), evaluate(topology, plan), str(path))
    found = texts(path)
    assert "floor: dram0 + hbm0 (times add)" in found and "time per step (ms)" in found
    assert not [text for text in found if text.startswith("PCIe")], "a memory is no link"
    assert any(text.startswith("Decode, batch 1, context 4096") for text in found)


@pytest.mark.few
@pytest.mark.parametrize(("suffix", "begins"), [(".svg", b"<?xml"), (".PNG", b"\x89PNG"), (".pdf", b"%PDF")])
def test_the_same_figure_is_the_same_bytes(suffix, begins, tmp_path, by_hand):
    images = []
    for name in ("one", "two"):
        path = tmp_path / (name + suffix)
        draw_floor(*by_hand, str(path))
        images.append(path.read_bytes())
    assert images[0] == images[1] and images[0].startswith(begins)


@pytest.mark.slow
def test_neither_the_process_nor_a_persons_settings_change_the_bytes(tmp_path):
    (tmp_path / "matplotlibrc").write_text("font.size: 30\nlines.linewidth: 9\nsvg.fonttype: path\n")
    images = []
    for seed, folder in (("1", ROOT), ("2", tmp_path)):
        path = tmp_path / f"{seed}.svg"
        own = {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT), "DISPLAY": "", "MPLBACKEND": f"none-{seed}"}
        command = [sys.executable, "-m", "offload", "step", *SPARK, "--plot", str(path)]
        done = subprocess.run(command, cwd=folder, env=os.environ | own, capture_output=True, encoding="utf-8",
                              timeout=120)  # fmt: skip
        assert done.returncode == 0 and done.stderr == "", done.stderr
        images.append(path.read_bytes())
    assert images[0] == images[1]


def test_letters_are_readable_in_a_column_of_print(tmp_path, by_hand):
    path = tmp_path / "floor.svg"
    draw_floor(*by_hand, str(path))
    svg = path.read_text(encoding="utf-8")
    sizes = {float(size) for size in re.findall(r"font-size: ([\d.]+)px", svg)}
    width = float(re.search(r'<svg[^>]* width="([\d.]+)pt"', svg)[1])
    assert width == pytest.approx(WIDTH / 25.4 * 72)
    assert min(sizes) * 115 / WIDTH >= 6 and LETTERS in sizes


WILD = "W" * 90 + " $a$ $ \x1b[31m <b>&" + " word" * 200


def changed(curve, study, case: str):
    """A curve and a study as they may come from a person's files."""
    if case == "wild names":
        pieces = tuple(replace(piece, parts=("n" * 300, f"$x {piece.name}")) for piece in curve.pieces)
        study = replace(study, title=WILD, topology_title=WILD, workload={"overlap": "o" * 400})
        return replace(curve, over="o" * 300, pieces=pieces, scaled=("s" * 300, "t" * 300)), study
    if case == "many pieces":
        rates = [point.rate for point in curve.points][::4]
        pieces = tuple(Piece(a, b, "cycle", (), (f"r{a:.0f}", "other")) for a, b in zip(rates, rates[1:], strict=False))
        return replace(curve, pieces=pieces), study
    if case == "flat":
        flat = tuple(replace(p, floor=3.0, serial=3.0, expected=p.expected and 3.0) for p in curve.points)
        return replace(curve, points=flat, pieces=curve.pieces[:1]), study
    if case == "apart":
        apart = tuple(replace(p, serial=p.serial * 1e9) for p in curve.points)
        return replace(curve, points=apart, tokens=1e-6), study
    return curve, study


@pytest.mark.few
@pytest.mark.parametrize("case", ["as it is", "wild names", "many pieces", "flat", "apart"])
def test_no_text_is_cut_off_and_none_lies_on_another(case, by_hand, monkeypatch, tmp_path):
    from matplotlib.figure import Figure

    counts = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: counts.append(assert_clear(figure)))
    draw_floor(*changed(*by_hand, case), str(tmp_path / "floor.svg"))
    assert counts[0] > 20


@pytest.mark.few
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--plot", "floor.gif"], 'no figure: "floor.gif" ends in ".gif". End it in .svg, .png or .pdf.'),
        (["--plot", "floor"], 'no figure: "floor" has no ending.'),
        (["--plot", ""], 'no figure: "" has no ending.'),
        (["--plot", "no/such/folder/floor.svg"], "cannot be written: No such file or directory. Name a file in"),
        (["--plot", "folder.svg"], '"folder.svg" cannot be written: it is a folder. Name a file in'),
        (["--plot", "nul\0.svg"], "cannot be written: no file can have such a name"),
        (["--plot", "floor.svg", "--plot-over", "pcie"], 'no link or memory "pcie".* Did you mean "pcie0"?'),
        (["--plot", "floor.svg", "--plot-over", "m2"], "m2 is no link or memory that this step loads"),
    ],
)
def test_a_figure_that_fails_loses_no_report(arguments, said, small, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.svg").mkdir()
    assert cli.main(["step", small, *arguments]) == 2
    captured = capsys.readouterr()
    assert "Assumptions" in captured.out and "Figure" not in captured.out
    assert re.search(said.replace("?", r"\?").replace("(", r"\("), captured.err), captured.err
    assert captured.err.count("\n") == 1
    assert cli.main(["step", small, "--json", *arguments]) == 2
    answer = json.loads(capsys.readouterr().out)
    assert answer["floor"]["seconds"] > 0 and ("plot" in answer) == ("--plot-over" not in arguments)
    assert not (tmp_path / "floor.svg").exists()


def test_no_figure_of_what_does_not_fit(tmp_path, capsys):
    words = ["step", "llama-3.1-70b:bf16", "--on", "desktop-4090", "--gpu-layers", "70"]
    figure = ["--plot", str(tmp_path / "floor.svg")]
    assert cli.main([*words, *figure]) == 2
    captured = capsys.readouterr()
    assert "DOES NOT FIT" in captured.out and "add --ignore-capacity" in captured.err
    assert cli.main([*words, *figure, "--ignore-capacity"]) == 0
    assert texts(tmp_path / "floor.svg")


def test_without_matplotlib_the_report_stands(small, tmp_path, monkeypatch, capsys):
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert cli.main(["step", small, "--plot", str(tmp_path / "floor.svg")]) == 2
    captured = capsys.readouterr()
    assert "Assumptions" in captured.out and "Install it: pip install matplotlib" in captured.err


def test_an_axis_without_a_figure_is_bad_input(small, capsys):
    assert cli.main(["step", small, "--plot-over", "pcie0"]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and "give the file with --plot too" in captured.err


def test_the_report_and_the_data_tell_the_pieces(small, tmp_path, capsys):
    path = tmp_path / "floor.png"
    assert cli.main(["step", small, "--plot", str(path)]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()[-4:]]
    assert lines[0].startswith("Figure: ") and lines[1:] == [
        "What binds the floor, over the peak rate of pcie0.hbm0:",
        "up to 99.97 GB/s: pcie0.hbm0", "from 99.97 GB/s: dram0"
    ]  # fmt: skip
    assert cli.main(["step", small, "--plot", str(path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    plot = answer["plot"]
    assert [piece["resources"] for piece in plot["pieces"]] == [["pcie0.hbm0"], ["dram0"]]
    present = next(point for point in plot["points"] if point["rate"] == plot["rate"])
    assert present["floor"] == answer["floor"]["seconds"] and present["expected"] == answer["overlapped"]["seconds"]
    told = (ROOT / "docs" / "reading-a-report.md").read_text(encoding="utf-8").partition("## As data")[2]
    for name in [*plot, *plot["points"][0], *plot["pieces"][0]]:
        assert re.search(rf"\b{name}\b", told), name
