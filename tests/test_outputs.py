"""Files that a command writes: never one that it reads, nor one for two outputs; and options that are given twice."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from offload import cli
from offload.documents.shipped import shipped_folder
from offload.files import files_read, overwritten, read_bytes, same_file

ROOT = Path(__file__).resolve().parent.parent
CONFIG = ROOT / "tests/data/hf_config/Llama-3.1-8B/config.json"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a plan on a server of its own, a plan of a model's file, and links to them."""
    shutil.copy(shipped_folder() / "desktop-4090.yaml", tmp_path / "box.yaml")
    by_hand = (ROOT / "examples/by-hand.yaml").read_text(encoding="utf-8")
    (tmp_path / "plan.yaml").write_text(by_hand.replace("desktop-4090", "./box.yaml"), encoding="utf-8")
    shutil.copy(CONFIG, tmp_path / "config.json")
    (tmp_path / "model.yaml").write_text(
        "topology: ./box.yaml\nmodel: {config: config.json, weights: q4_0}\n"
        "workload: {phase: decode, batch: 1, context: 64}\n"
        "placement: {weights: {hbm0: rest}}\n",
        encoding="utf-8")  # fmt: skip
    (tmp_path / "lengths.csv").write_text("length\n100\n200\n", encoding="utf-8")
    os.symlink("plan.yaml", tmp_path / "soft.yaml")
    os.link(tmp_path / "plan.yaml", tmp_path / "hard.yaml")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


MEMORY = "memory ./config.json --on ./box.yaml --requests lengths.csv --column length --plot"


@pytest.mark.parametrize("words", [
    "step plan.yaml --trace plan.yaml",
    "step plan.yaml --trace ./below/../plan.yaml",
    "step plan.yaml --trace soft.yaml",
    "step plan.yaml --trace hard.yaml",
    "step soft.yaml --trace plan.yaml",
    "step plan.yaml --trace box.yaml",
    "step plan.yaml --json --trace box.yaml",
    "step plan.yaml -t box.yaml --trace box.yaml",
    "step model.yaml --ignore-capacity --trace config.json",
    "step ./config.json --weights q4_0 --on ./box.yaml --ignore-capacity --trace config.json",
    "step ./config.json --weights q4_0 --on ./box.yaml --ignore-capacity --trace box.yaml",
])  # fmt: skip
def test_what_is_read_is_not_overwritten(folder, capsys, words):
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    assert cli.main(words.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and "is read here" in captured.err and "Name another" in captured.err
    assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


@pytest.mark.few
@pytest.mark.parametrize("words", ["step plan.yaml --plot", MEMORY])
@pytest.mark.parametrize("read", ["plan.yaml", "box.yaml", "config.json"])
def test_nor_is_it_by_a_figure(folder, capsys, words, read):
    os.link(folder / read, folder / "figure.svg")
    if read == "plan.yaml" and words is MEMORY or read == "config.json" and words is not MEMORY:
        assert cli.main([*words.split(), "figure.svg"]) == 0, "it is not read"
        return
    before = (folder / read).read_bytes()
    assert cli.main([*words.split(), "figure.svg"]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and f"({read})" in captured.err.replace("./", "")
    assert (folder / read).read_bytes() == before


def test_lengths_are_not_overwritten(folder, capsys):
    (folder / "lengths.csv").rename(folder / "lengths.svg")
    words = MEMORY.replace("lengths.csv", "./lengths.svg")
    assert cli.main([*words.split(), "lengths.svg"]) == 2
    assert (folder / "lengths.svg").read_text(encoding="utf-8").startswith("length")
    assert "is read here" in capsys.readouterr().err


def test_shards_beside_an_index_are_read(folder):
    index = '{"metadata": {"total_size": 8}, "weight_map": {"a": "one.bin"}}'
    (folder / "pytorch_model.bin.index.json").write_text(index, encoding="utf-8")
    (folder / "one.bin").write_bytes(b"12345678")
    from offload.readers.shards import read_index

    with files_read():
        read_index(folder / "pytorch_model.bin.index.json")
        assert overwritten("one.bin") and overwritten("pytorch_model.bin.index.json")
        assert overwritten("two.bin") is None


@pytest.mark.parametrize("second", ["one.svg", "./one.svg", "below/../one.svg", "other.svg"])
@pytest.mark.parametrize("there", [True, False])
def test_two_outputs_are_two_files(folder, capsys, second, there):
    if there:
        (folder / "one.svg").write_text("old", encoding="utf-8")
    os.symlink("one.svg", folder / "other.svg")  # to a file that may not be there yet
    assert cli.main(["step", "no such plan.yaml", "--trace", "one.svg", "--plot", second]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and "are one file" in captured.err and "no such file" not in captured.err
    assert (folder / "one.svg").exists() == there


def test_the_report_is_an_output_too(folder):
    command = [sys.executable, "-m", "offload", "step", "plan.yaml", "--trace", "report.txt"]
    with open("report.txt", "w", encoding="utf-8") as file:
        done = subprocess.run(command, stdout=file, stderr=subprocess.PIPE, encoding="utf-8", timeout=120,
                              env={**os.environ, "PYTHONPATH": str(ROOT)})  # fmt: skip
    assert done.returncode == 2 and "the report goes to this file too" in done.stderr
    assert (folder / "report.txt").read_text(encoding="utf-8") == ""


def test_other_files_are_written(folder, capsys):
    (folder / "one.json").write_text("old", encoding="utf-8")
    assert cli.main(["step", "plan.yaml", "--trace", "one.json", "--plot", "one.svg"]) == 0
    assert (folder / "one.json").read_text(encoding="utf-8").startswith('{"traceEvents"')
    assert (folder / "one.svg").stat().st_size > 1000
    assert cli.main(["step", "plan.yaml", "--trace", "one.json", "--plot", "one.svg"]) == 0, "they are only written"
    capsys.readouterr()


def test_files_are_remembered_only_while_asked(folder):
    read_bytes("plan.yaml", 10)
    with files_read() as found:
        assert overwritten("plan.yaml") is None
        read_bytes("plan.yaml", 10)
        assert list(found) == ["plan.yaml"] and overwritten("hard.yaml") == "plan.yaml"
        assert overwritten("box.yaml") is None
    assert overwritten("plan.yaml") is None
    assert not same_file(os.devnull, os.devnull), "a device keeps nothing"
    assert not same_file("a\0b", "a\0b")


# --- an option that takes one value ---


def single_valued() -> list[tuple[list[str], str, str]]:
    """Every option of every verb that takes one value: what precedes it, how it is called, a value."""
    found = []
    verbs = next(one for one in cli._parser()._actions if isinstance(one, argparse._SubParsersAction))
    for name, verb in verbs.choices.items():
        for action in verb._actions:
            if isinstance(action, argparse._StoreAction) and action.option_strings and action.nargs is None:
                value = action.choices[0] if action.choices else "3"
                found += [([name], option, value) for option in action.option_strings]
    return found


@pytest.mark.parametrize(("verb", "option", "value"), single_valued())
def test_one_value_is_given_once(capsys, verb, option, value):
    assert cli.main([*verb, option, value, option, value]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert f'it takes one value and is given two, "{value}" and "{value}"' in told and option in told


def test_both_values_are_named(capsys):
    for words in (["-t", "one", "--topology", "two"], ["--topology=one", "-ttwo"], ["--trace", "one", "--trace=two"]):
        assert cli.main(["step", "plan.yaml", *words]) == 2
        assert '"one" and "two". Keep one.' in " ".join(capsys.readouterr().err.split())
    verbs = {verb[0] for verb, _, _ in single_valued()}
    assert {"step", "need", "memory", "model"} <= verbs


def test_what_may_be_said_again_still_may(capsys):
    words = ["step", str(ROOT / "examples/by-hand.yaml"), "--set", "repeat=4", "--set", "tokens=2", "--json", "--json"]
    assert cli.main(words) == 0
    assert '"tokens": 2' in capsys.readouterr().out
