"""The pages of questions: each command that they show is run, and prints what the page shows of its output."""

from __future__ import annotations

import json
import re
import shlex

import pytest

from offload import cli, load_topology
from offload.documents.server_settings import change_topology
from offload.documents.settings import read_setting
from tests.commands import ROOT, run
from tests.shown import a_folder_of_its_own, done, missing_from, renewed, shown_in

QUESTIONS = sorted((ROOT / "docs" / "questions").glob("*.md"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# A command in an indented line, or in backticks.
LINE = re.compile(r"^ {4}(offload [^\n]*)$|`(offload [^`\n]*)`", re.M)
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.M | re.S)


@pytest.mark.few
@pytest.mark.parametrize("page", QUESTIONS, ids=lambda page: page.stem)
def test_a_page_shows_what_its_commands_print(page):
    shown = shown_in(page.read_text(encoding="utf-8"))
    assert shown and all(one.output for one in shown), f"{page.name} asks nothing, or leaves an answer out"
    with a_folder_of_its_own() as folder:
        for one in shown:
            answer = done(one.command, folder)
            assert answer.returncode == 0, f"{one.command}\n{answer.stderr}"
            line = missing_from(one.output, answer.stdout)
            assert not line, f"{page.name}: {one.command} prints no such line there now:\n{line}"


@pytest.mark.parametrize("page", QUESTIONS, ids=lambda page: page.stem)
def test_a_page_answers_first_and_is_short(page):
    text = page.read_text(encoding="utf-8")
    assert re.match(r"# [^\n]+\?\n\n\*\*Answer\.\*\* ", text)
    prose = re.sub(r"```.*?```", "", text, flags=re.S)
    assert len(prose.split()) < 400, "a page of a question is read in two minutes"


def test_an_excerpt_is_whole_between_its_cuts():
    real = "title\n\none\ntwo\nthree\n"
    assert not missing_from("title\n...\ntwo\nthree\n", real) and not missing_from("...\ntwo\n...\n", real)
    assert not missing_from(real, real)
    assert missing_from("title\n...\none\nthree\n", real) == "one", "a line between them is left out"
    assert missing_from("...\ntwo\n...\none\n...\n", real) == "one", "they stand in another order"
    assert missing_from("one\n...\n", real) == "one", "it does not begin so"
    assert missing_from("...\ntwo\n", real) == "two", "nor end so"
    assert missing_from("...\n2\n...\n", real) == "2"


def test_an_excerpt_is_renewed_with_its_cuts():
    now = "title of now\n\nfloor  13 ms\nserial  17 ms\nend\n"
    assert renewed("title of then\n...\nserial  9 ms\n...\n", now) == "title of now\n...\nserial  17 ms\n...\n"
    assert renewed("...\nfloor  2 ms\nserial  9 ms\n...\n", now) == "...\nfloor  13 ms\nserial  17 ms\n...\n"


def commands() -> list[object]:
    """Every command line of README and docs; `whole` where it stands in a line of its own, not within a sentence."""
    found = {}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        lines = [(whole or within, bool(whole)) for whole, within in LINE.findall(text)]
        for block in BLOCK.findall(text):
            lines += [(one, True) for one in block.replace("\\\n", " ").splitlines() if one.startswith("offload ")]
        for line, whole in lines:
            line = line.partition(" > ")[0].strip()
            found.setdefault((line, whole), pytest.param(line, whole, id=f"{page.stem}: {line[:70]}"))
    return list(found.values())


@pytest.mark.parametrize(("line", "whole"), commands())
def test_commands_that_the_docs_show_are_understood(line, whole, capsys):
    """Every word of them; one within a sentence may leave some out."""
    left_out = not whole or "..." in line
    words = ["1" if word == "N" else word for word in shlex.split(line, comments=True)[1:] if word != "..."]
    try:
        cli._parser().parse_args(words)
    except SystemExit as end:
        wrong = capsys.readouterr().err
        assert end.code == 0 or (left_out and re.search("are required|expected one", wrong)), f"{line}\n{wrong}"


# --- what newcomers stumbled over ---

UNKNOWN = """\
title: host memory of no known rate
switches: {socket0: {kind: socket}}
memories:
  hbm0: {kind: hbm, capacity: 24 GiB, rate: 1000 GB/s}
  dram0: {kind: dram, at: socket0, capacity: 64 GiB, rate: unknown}
processors: {gpu0: {kind: gpu, memory: hbm0, flops: {bf16: 100 TFLOP/s}}, cpu0: {kind: cpu, memory: dram0}}
links: {pcie0: {between: [socket0, hbm0], pcie: 4 x16}}
"""


def test_times_say_what_they_do_not_count(tmp_path):
    (tmp_path / "box.yaml").write_text(UNKNOWN, encoding="utf-8")
    asked = ("step", "llama-3.1-8b:q8_0", "--on", "box.yaml", "--gpu-layers", "16")
    times = run(*asked, cwd=tmp_path).stdout.partition("\nTimes\n")[2].partition("\n\n")[0]
    assert "No time here counts dram0, whose rate is unknown: a step may take far longer." in times
    (tmp_path / "box.yaml").write_text(UNKNOWN.replace("rate: unknown", "rate: 90 GB/s"), encoding="utf-8")
    assert "No time here counts" not in run(*asked, cwd=tmp_path).stdout


def test_what_passes_parts_without_a_rate_is_not_expected_nor_ranked(tmp_path):
    (tmp_path / "box.yaml").write_text(UNKNOWN, encoding="utf-8")
    asked = ("step", "llama-3.1-8b:q8_0", "--on", "box.yaml", "--gpu-layers", "16")
    whole = run(*asked, cwd=tmp_path).stdout
    times = whole.partition("\nTimes\n")[2].partition("\n\n")[0]
    assert re.search(r"^expected \(2 buffers\) +>= \S+ ms +- +>= ", times, re.MULTILINE), times
    assert "How long it takes depends on dram0: what to expect is not known before it has a rate." in times
    assert "Expected between" not in times and "What would change it" not in whole
    answer = json.loads(run(*asked, "--json", cwd=tmp_path).stdout)
    assert answer["uncounted"] == ["dram0"] and answer["changes"] == []
    assert [one for one, rate in answer["tokens_per_s"].items() if rate is not None] == ["floor"]
    ranked = run("compare", "llama-3.1-8b:q8_0", "--on", "box.yaml,desktop-4090", "--gpu-layers", "16", cwd=tmp_path)
    assert "1 desktop-4090" in ranked.stdout
    why = "no rate is known of dram0, on which its time depends"
    assert f"- box: takes a time that is not known: {why}" in ranked.stdout
    # All layers on the GPU: of host memory one row of the embedding is read, a millionth of the step.
    little = run(*asked[:-2], cwd=tmp_path).stdout.partition("\nTimes\n")[2].partition("\n\n")[0]
    assert "No time here counts dram0" in little and ">=" not in little


def test_times_say_what_a_setting_leaves_as_it_is_and_changes_that_they_have_no_ends():
    asked = ("step", "llama-3.1-70b:q4_k_m", "--on", "desktop-4090", "--gpu-layers", "40")
    faster = ("--set", "dram0.rate=6000 MT/s x 4")
    told = "--set dram0.rate=6000 MT/s x 4: cpu0.reads stays as it is, unless it is set too."
    times = run(*asked, *faster).stdout.partition("\nTimes\n")[2].partition("\n\n")[0]
    assert told in times
    both = run(*asked, *faster, "--set", "cpu0.reads.rate=138.2GB/s").stdout
    assert "unless it is set too" not in both
    changes = both.partition("\nWhat would change it")[2].partition("\n\n")[0]
    assert changes.endswith("Each at the rates as shown above: at their ends a change may be worth less or more.")


def stays(*settings: str) -> list[str]:
    told = change_topology(load_topology("dgx-h100"), [read_setting(one) for one in settings]).stated
    return [note.partition(": ")[2] for note in told if note.endswith("stays as it is, unless it is set too")]


def test_what_does_not_follow_a_setting_is_told():
    end = "stays as it is, unless it is set too"
    assert stays("ssd0.count=2") == [f"nvme0 {end}"]
    assert stays("ssd0.count=2", "nvme0.rate=PCIe 4 x8") == stays("nvme0.rate=PCIe 4 x8", "ssd0.count=2") == []
    assert stays("dram0.rate=6400 MT/s x 12") == [f"cpu0.reads {end}"]
    assert stays("cpu0.reads.rate=200 GB/s", "dram0.rate=6400 MT/s x 12") == []
    assert stays("hbm0.capacity=90 GB", "pcie0.rate=30 GB/s") == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--on", "desktop-4090", "--kv", "fp8"], "It is a format: model.kv, or --kv-format fp8."),
        (["--on", "desktop-4090", "--set", "dram0.channels=4"], "dram0.rate=6000 MT/s x 4 is four of 8 bytes."),
        (["--on", "box.yaml"], "Run it on the CPU (--compute cpu0), or write a plan file"),
    ],
)
def test_messages_name_what_was_meant(words, said, tmp_path):
    box = "memories: {dram0: {kind: dram, rate: 90 GB/s}}\nprocessors: {cpu0: {kind: cpu, memory: dram0}}\n"
    (tmp_path / "box.yaml").write_text(box, encoding="utf-8")
    answer = run("step", "llama-3.1-8b:q8_0", *words, cwd=tmp_path)
    assert answer.returncode == 2 and said in answer.stderr
