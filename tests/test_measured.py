"""Measurements beside floor and expected time: what is read, the verdicts, and what is printed."""

from __future__ import annotations

import io
import json
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from offload import cli
from offload.compiler import compile_step
from offload.documents import load_plan, read_setting
from offload.errors import OffloadError, UnitError
from offload.measured import FAR, NEAR, Measurement, Standing, compare, read_measurement
from offload.report_measured import write_measured
from offload.step import Step
from offload.study import Study, evaluate

ROOT = Path(__file__).resolve().parent.parent
PLACED, BY_HAND = ROOT / "examples" / "llama-3.1-70b-desktop.yaml", ROOT / "examples" / "by-hand.yaml"
ONE_RATE = """\
topology: ./box.yaml
tensors: {w: {bytes: 10 GB, home: dram0}}
tasks: {c: {compute: cpu0, flops: 1 FLOP, reads: w}}
"""
BOX = """\
memories: {dram0: {kind: dram, rate: {peak: 100 GB/s, sustained: 50..80 GB/s}}}
processors: {cpu0: {kind: cpu, memory: dram0, flops: {bf16: unknown}}}
"""


def box(folder: Path, rate: str = "{peak: 100 GB/s, sustained: 50..80 GB/s}", plan: str = ONE_RATE) -> Path:
    """10 GB from one memory: floor 100 ms, expected 125 to 200 ms, its middle at 65 GB/s; serial is the same."""
    (folder / "box.yaml").write_text(BOX.replace("{peak: 100 GB/s, sustained: 50..80 GB/s}", rate))
    (folder / "plan.yaml").write_text(plan)
    return folder / "plan.yaml"


@cache
def evaluated(path: Path, settings: tuple[str, ...], content: str) -> tuple[Study, Step]:
    plan, topology = load_plan(path, settings=[read_setting(one) for one in settings])
    return evaluate(topology, plan), compile_step(topology, plan)


def standing(path: Path, text: str, *settings: str) -> Standing:
    return compare(*evaluated(path, settings, path.read_text()), read_measurement(text))


def printed(one: Standing, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    write_measured(one, console)
    return console.file.getvalue()


BATCH = ("workload.batch=4", "model.name=llama-3.1-8b", "model.weights=q8_0", "placement.weights={hbm0: rest}")

# --- what is read ---


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("4.6 tok/s", 4.6, "tok/s"),
        ("4.6tok/s", 4.6, "tok/s"),
        (" 4.6  tokens / s ", 4.6, "tok/s"),
        ("4.6 t/s", 4.6, "tok/s"),
        ("4.6 tps", 4.6, "tok/s"),
        ("4.6 Tokens/sec", 4.6, "tok/s"),
        ("4.6 tokens per second", 4.6, "tok/s"),
        ("1e3 tok/s", 1000.0, "tok/s"),
        ("217 ms", 0.217, "s/step"),
        ("217 ms/step", 0.217, "s/step"),
        (".5 s/step", 0.5, "s/step"),
        ("0.5 s/it", 0.5, "s/step"),
        ("2 min/step", 120.0, "s/step"),
        ("50 us per step", 50e-6, "s/step"),
        ("217 ms/token", 0.217, "s/token"),
        ("0.2 s/tok", 0.2, "s/token"),
    ],
)
def test_speeds_are_read(text, value, unit):
    read = read_measurement(text)
    assert (read.value, read.unit) == (pytest.approx(value, rel=1e-12), unit)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("4.6", 'no unit. Write "4.6 tok/s"'),
        ("4.6 tok", 'Write "4.6 tok/s"'),
        ("0 tok/s", "not above zero"),
        ("0.0 ms", "not above zero"),
        ("-4 tok/s", "no measured speed"),
        ("nan tok/s", "no measured speed"),
        ("1e400 tok/s", "more or less than can be meant"),
        ("1e-300 tok/s", "more or less than can be meant"),
        ("4,6 tok/s", "no measured speed"),
        ("3..4 tok/s", "no measured speed"),
        ("5 GB/s", "no measured speed"),
        ("5 tok/min", "no measured speed"),
        ("5 apples", "neither tokens nor a time"),
        ("5 apples/step", "neither tokens nor a time"),
        ("tok/s", "no measured speed"),
        ("", "no measured speed"),
        ("\u0665 tok/s", "no measured speed"),
        ("9" * 5000 + " tok/s", "no measured speed"),
    ],
)
def test_what_is_no_speed_is_refused_with_what_to_write(text, said):
    with pytest.raises(UnitError) as caught:
        read_measurement(text)
    assert said in str(caught.value) and "tok/s" in str(caught.value) and len(str(caught.value)) < 300


@settings(max_examples=200)
@given(st.text(max_size=12) | st.from_regex(r"[0-9.e+-]{1,6} ?[a-z]{0,4}/?[a-z]{0,4}", fullmatch=True))
def test_any_text_is_read_or_refused(text):
    try:
        read = read_measurement(text)
    except UnitError:
        return
    assert isinstance(read, Measurement) and 0 < read.value < 1e15 and 0 < read.rounding <= 0.01


# --- verdicts ---


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("90.0 ms", "contradicts physics"),
        ("98.0 ms", "contradicts physics"),
        ("99.9 ms", "contradicts physics"),
        ("100 ms", "better than expected"),
        ("99.96 ms", "contradicts physics"),
        ("0.1 s", "better than expected"),
        ("118 ms", "better than expected"),  # 125 ms less 5 % is 118.75 ms
        ("119 ms", "as expected"),
        ("210 ms", "as expected"),  # 200 ms and 5 %
        ("211 ms", "slower than expected"),
        ("400 ms", "slower than expected"),
        ("401 ms", "far below"),
        ("1 tok/s", "far below"),
        ("10 tok/s", "better than expected"),
        ("11 tok/s", "contradicts physics"),
    ],
)
def test_verdicts(text, verdict, tmp_path):
    one = standing(box(tmp_path), text)
    assert one.verdict == verdict and one.contradicts == (verdict == "contradicts physics")
    assert one.floor == pytest.approx(0.1) and one.slow == pytest.approx(0.2)
    assert one.expected == (pytest.approx(0.125), pytest.approx(10 / 65), pytest.approx(0.2))
    assert bool(one.causes) == (verdict in ("contradicts physics", "far below"))


def test_shares_are_of_the_measured_time(tmp_path):
    one = standing(box(tmp_path), "250 ms/step")
    assert one.floor_share == pytest.approx(0.4) and one.expected_share == pytest.approx(10 / 65 / 0.25)
    assert one.seconds == 0.25 and one.tokens_per_s == one.per_sequence == 4.0
    assert standing(box(tmp_path), "4 tok/s").seconds == standing(box(tmp_path), "250 ms/token").seconds == 0.25


def test_a_measurement_is_rounded_by_its_last_digit_and_no_more_than_one_per_cent(tmp_path):
    path = box(tmp_path)
    assert read_measurement("4 tok/s").rounding == 0.01
    assert read_measurement("4.60 tok/s").rounding == pytest.approx(0.005 / 4.6)
    assert not standing(path, "10.0 tok/s").contradicts and not standing(path, "10.00 tok/s").contradicts
    assert standing(path, "10.02 tok/s").contradicts
    assert not standing(path, "10.1 tok/s", "dram0.rate=101 GB/s").contradicts
    assert "at the ceiling, as far as the digits" in printed(standing(path, "10.1 tok/s", "dram0.rate=100.9 GB/s"))


def test_without_a_peak_no_ceiling_is_claimed(tmp_path):
    one = standing(box(tmp_path, "{sustained: 50..80 GB/s}"), "1 ms")
    assert (one.floor, one.floor_share, one.verdict) == (None, None, "better than expected")
    assert "No ceiling is proved" in printed(one)


def test_a_step_that_takes_no_time_cannot_be_compared(tmp_path):
    path = box(tmp_path, plan=ONE_RATE.replace("10 GB", "0 B"))
    with pytest.raises(OffloadError, match="takes no time"):
        standing(path, "1 ms")


GENERATE = ("workload={phase: generate, batch: 1, prompt: 100, generate: 20}", *BATCH[1:])
PREFILL = ("workload={phase: prefill, batch: 1, prompt: 512}", *BATCH[1:])


def test_a_request_is_compared_by_its_decode_step():
    one = standing(PLACED, "100 tok/s", *GENERATE)
    assert one.tokens == 1 and "the decode step at the mean context" in printed(one)
    assert "mean context" not in printed(standing(PLACED, "100 tok/s"))


def test_the_tokens_of_a_prefill_are_the_prompt_s():
    one = standing(PLACED, "1e9 tok/s", *PREFILL)
    assert one.tokens == 512 and one.contradicts
    assert len(one.causes) == len(standing(PLACED, "1e9 tok/s").causes) - 1


def test_copies_have_causes_of_their_own():
    assert not [cause for cause in standing(PLACED, "1 tok/s").causes if "pageable" in cause]
    assert [cause for cause in standing(BY_HAND, "0.01 tok/s").causes if "pageable" in cause]


# --- sequences ---


def test_a_rate_is_of_all_sequences_together():
    one = standing(PLACED, "100 tok/s", *BATCH)
    assert (one.tokens, one.sequences, one.seconds) == (4.0, 4.0, 0.04)
    assert one.tokens_per_s == 100.0 and one.per_sequence == 25.0
    text = printed(one)
    assert "100 tokens/s of all sequences together" in text and "Each of the 4 sequences: 25 tokens/s" in text


def test_sequences_that_were_mixed_up_are_told():
    fair = standing(PLACED, "100 tok/s", *BATCH)
    total = 4 / fair.expected[1]
    each = standing(PLACED, f"{total / 4:.6g} tok/s", *BATCH)
    assert each.verdict == "far below" and each.other_reading == ("each", pytest.approx(fair.expected[1], rel=1e-5))
    assert "the speed of each sequence? Then all together have" in printed(each)
    twice = standing(PLACED, f"{total * 4:.6g} tok/s", *BATCH)
    assert twice.verdict == "contradicts physics"
    assert twice.other_reading == ("all", pytest.approx(fair.expected[1], rel=1e-5))
    assert "once too often?" in printed(twice)
    assert standing(PLACED, f"{total:.6g} tok/s", *BATCH).other_reading is None
    assert standing(PLACED, f"{1000 * each.seconds} ms", *BATCH).other_reading is None
    assert standing(PLACED, "100 tok/s").other_reading is None


def test_a_token_s_time_is_refused_where_a_step_yields_several():
    with pytest.raises(OffloadError, match="a step yields 4 tokens here"):
        standing(PLACED, "50 ms/token", *BATCH)


# --- properties ---


@settings(max_examples=60)
@given(st.floats(1e-3, 10.0))
def test_the_verdict_follows_from_the_times(seconds):
    text = f"{seconds:.9f} s"
    one = standing(PLACED, text)
    low, _, high = one.expected
    order = ["contradicts physics", "better than expected", "as expected", "slower than expected", "far below"]
    ends = [one.floor / (1 + read_measurement(text).rounding), low * (1 - NEAR), high * (1 + NEAR), FAR * one.slow]
    assert order[sum(float(text.split()[0]) > end for end in ends)] == one.verdict


# --- the command line ---


@pytest.mark.few
@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("2.9 tok/s", 0, "as expected."),
        ("3.5 tok/s", 0, "sustained rates in the server's file may be low"),
        ("2.2 tok/s", 0, "slower than expected, 1.32 times its time"),
        ("1 tok/s", 0, "bandwidth cannot explain this gap"),
        ("4.6 tok/s", 1, "Input contradicts physics: this is 1.16 times as fast"),
    ],
)
def test_the_report_says_how_a_measurement_stands(text, status, said, capsys):
    assert cli.main(["step", str(PLACED), "--measured", text]) == status
    captured = capsys.readouterr()
    assert captured.err == "" and said in " ".join(captured.out.partition("\nMeasured\n")[2].split())
    assert cli.main(["step", str(PLACED), "--measured", text, "--json"]) == status
    found = json.loads(capsys.readouterr().out)["measured"]
    assert found["text"] == text and bool(status) == (found["verdict"] == "contradicts physics")
    told = (ROOT / "docs" / "reading-a-report.md").read_text().partition("## As data")[2].replace("\n", " ")
    listed = told.partition("measured{")[2].partition("}`")[0]
    assert [key for key in [*found, "rate_is_of"] if key not in listed] == []


def test_a_model_named_in_words_is_measured_too(capsys):
    words = ["step", "llama-3.1-70b:q4_k_m", "--on", "desktop-4090", "--gpu-layers", "38", "--measured", "9 tok/s"]
    assert cli.main(words) == 1
    assert "Input contradicts physics" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["4.6", "", "abc", "-3 tok/s"])
def test_what_is_no_speed_is_bad_input(text, capsys):
    assert cli.main(["step", str(PLACED), f"--measured={text}"]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith("offload: --measured: ")


@pytest.mark.slow
def test_a_plan_that_does_not_fit_is_not_compared(capsys):
    words = ["step", str(PLACED), "--set", "workload.batch=64", "--measured", "50 tok/s"]
    assert cli.main(words) == 1
    out = capsys.readouterr().out
    assert "Measured all the same (50 tok/s)?" in out and "Floor" not in out
    assert cli.main([*words, "--json"]) == 1
    assert "measured" not in json.loads(capsys.readouterr().out)
    assert cli.main([*words, "--ignore-capacity"]) in (0, 1)
    assert "\nMeasured\n" in capsys.readouterr().out


def test_the_page_tells_every_verdict():
    page = (ROOT / "docs" / "reading-a-report.md").read_text()
    for verdict in ("contradicts physics", "better than expected", "as expected", "slower than expected", "far below"):
        assert f"| {verdict} |" in page


def test_narrow_and_odd_terminals(tmp_path):
    for text in ("1 ms", "150 ms", "1 h"):
        for width in (16, 40):
            lines = printed(standing(box(tmp_path), text), width).splitlines()
            assert lines and all(len(line) <= max(width, 16) or " " not in line.strip() for line in lines)
