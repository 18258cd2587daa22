"""The figure of `offload memory`: exact values, what it says, and no label over another."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload import cli
from offload.errors import PlotError
from offload.memory import answer_memory
from offload.memory_curve import STAIRS, concurrency_of
from offload.models import Cache, State, catalogue
from offload.models.architecture import Layer
from offload.models.lengths import parse_lengths
from offload.models.levers import most_requests
from offload.models.serving import LayerBytes, Serving, Sizes, serving_budget
from offload.plots import concurrency, draw_concurrency
from offload.plots.requests import finding
from tests.figures import assert_clear

LLAMA = catalogue["llama-3.1-70b"]
TEXTBOOK = ["memory", "llama-3.1-70b", "--kv-budget", "14GB"]


def answered(requests: str, model: str = "llama-3.1-70b", size: int = 14 * 10**9, weights: str | None = None, **values):
    return answer_memory(catalogue[model], weights, size, parse_lengths(requests), block=1, **values)


# --- values ---


def test_the_textbook_curve():
    found = concurrency_of(answered("18x2000"))
    now, eight = found.curves
    assert (now.format, eight.format) == ("f16", "fp8")
    for curve, positions in ((now, 42_724), (eight, 85_449)):
        assert all(fit.requests == positions // fit.length for fit in curve.points)
        assert curve.points[-1].length == positions, "to the longest context of one request"
        lengths = {fit.length for fit in curve.points}
        for count in range(1, STAIRS):
            assert {positions // count, positions // count + 1} - {positions + 1} <= lengths, "each step is drawn"
    assert found.marks == (("length", 2000),) and found.limit == 131_072
    assert (found.asked.length, found.asked.requests) == (2000, 18) and found.admitted is None


@pytest.mark.slow
def test_a_distribution_is_marked_by_its_median_its_99th_percentile_and_what_risk_admits():
    found = concurrency_of(answered("lognormal 2000 0.7"))
    assert found.marks == (("median", 2000), ("99 %", 10_192))
    assert (found.admitted.length, found.admitted.requests) == (2556, 9) and found.asked is None
    assert concurrency_of(answered("900, 4000")).marks == (("mean", 2450), ("longest", 4000))


def test_no_curve_for_a_format_that_is_no_lever():
    assert [one.format for one in concurrency_of(answered("2x2000", format="fp8")).curves] == ["fp8"]
    assert [one.format for one in concurrency_of(answered("2x2000", format="q8_0")).curves] == ["q8_0"]


@settings(max_examples=25)
@given(st.integers(60, 3000), st.integers(1, 60), st.integers(1, 5), st.integers(0, 30), st.booleans())
def test_requests_of_a_length_by_trying_every_number(capacity, length, block, window, sized):
    caches = [Cache("full", 1, 1, 1), Cache("window", 1, 1, 1, window=window) if window else Cache("none")]
    serving = Serving(capacity, tuple(LayerBytes(20, cache=one) for one in caches), block=block, chunk=1,
                      sizes=Sizes(1, 1, 1, 1, 1) if sized else None)  # fmt: skip
    count = 0
    while serving_budget(replace(serving, context=length, requests=count + 1)).fits:
        count += 1
    assert most_requests(serving, length) == count


def test_what_has_no_figure():
    with pytest.raises(PlotError, match="nothing fits .*61.4 GB too much"):
        concurrency_of(answered("1x2000", weights="bf16", size=80 * 10**9))
    with pytest.raises(PlotError, match="not one short request fits"):
        concurrency_of(answered("1x2000", size=1000))


def test_a_cache_that_does_not_grow_has_no_end():
    """States alone: any length, in any KV format; the line goes on to the border."""
    stack = (Layer((), Cache("none"), State(elements=1000)),) * 2
    model = replace(LLAMA, layers=2, stack=stack, name="states")
    answer = answer_memory(model, None, 80_000, parse_lengths("lognormal 2000 0.7"))
    found = concurrency_of(answer)
    assert [(one.format, one.endless, {fit.requests for fit in one.points}) for one in found.curves] == [
        ("f16", True, {10})]  # fmt: skip
    assert finding(found, answer) == "states: 10 requests of any length fit"
    axes = concurrency(found, answer=answer)
    line = next(one for one in axes.get_lines() if one.get_label() == "f16")
    right = axes.get_xlim()[1]
    assert tuple(line.get_xydata()[-1]) == (right, 10) and right > found.limit


def test_a_dot_has_room_beside_it():
    answer = answered("1x300000")
    found = concurrency_of(answer)
    axes = concurrency(found, answer=answer)
    there = axes.transData.transform((300_000, 1))[0]
    assert axes.bbox.x1 - there > 7 / 72 * axes.get_figure().dpi / 2, "half of its 7 points"


# --- on paper ---

CASES = [
    ("18x2000", "llama-3.1-70b", {}),
    ("lognormal 2000 0.7", "llama-3.1-70b", {}),
    ("uniform 1900 2100", "gemma-3-27b", {"shared_prefix": 1000}),
    ("500, 800, 30x5000, 90000", "jamba-1.5-mini", {}),
    ("lognormal 100000 1.5", "deepseek-v3", {"tp": 8}),
    ("2x130000", "llama-3.1-70b", {"size": 10**12}),
    ("1x3", "llama-3.1-70b", {"size": 4 * 327_680}),
    ("lognormal 5 0.1", "gpt-oss-120b", {"size": 3 * 10**9}),
]


@pytest.mark.few
@pytest.mark.parametrize(("requests", "model", "values"), CASES, ids=[f"{one[1]} {one[0]}" for one in CASES])
def test_no_label_lies_over_another_or_off_the_paper(requests, model, values):
    answer = answered(requests, model, **values)
    assert assert_clear(concurrency(concurrency_of(answer), answer=answer).get_figure()) > 10


def texts(path) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", path.read_text(encoding="utf-8"))


def test_a_figure_says_what_it_shows(capsys, tmp_path):
    path = tmp_path / "fit.svg"
    assert cli.main([*TEXTBOOK, "--requests", "lognormal 2000 0.7", "--plot", str(path)]) == 0
    found = texts(path)
    title = "llama-3.1-70b: 9 requests fit at 1 % risk of overflow, with KV in fp8 22"
    assert title in " ".join(found)
    for words in ("positions of each request", "requests that fit", "does not fit", "14 GB for KV", "KV in f16",
                  "KV in fp8", "median", "2,000", "99 %", "10,192", "admitted at 1 % risk:",
                  "9 of 2,556 positions"):  # fmt: skip
        assert words in found, words
    assert "131,072" in found and any(one.endswith("limit") for one in found)
    said = " ".join(capsys.readouterr().out.split())
    assert f"Figure: {path} Requests that fit if all have one length:" in said
    assert "- median 2,000: 21 with KV in f16 and 42 with KV in fp8" in said


@pytest.mark.few
@pytest.mark.parametrize("suffix", [".svg", ".png", ".pdf"])
def test_the_same_figure_is_the_same_bytes(suffix, tmp_path):
    images = []
    for name in ("one", "two"):
        path = tmp_path / (name + suffix)
        answer = answered("18x2000")
        draw_concurrency(concurrency_of(answer), answer, str(path))
        images.append(path.read_bytes())
    assert images[0] == images[1]


@pytest.mark.few
@pytest.mark.parametrize(
    ("requests", "values", "said"),
    [
        ("18x2000", {}, "llama-3.1-70b: 21 requests of 2,000 positions fit, with KV in fp8 42"),
        ("900, 4000", {}, "llama-3.1-70b: 2 of 2 requests fit"),
        ("1x42000", {}, "llama-3.1-70b: 1 request of 42,000 positions fits, with KV in fp8 2"),
        ("18x2000", {"format": "fp8"}, "llama-3.1-70b: 42 requests of 2,000 positions fit"),
        ("1x300000", {}, "llama-3.1-70b: none of 300,000 positions fits"),
        ("1x50000", {}, "llama-3.1-70b: none of 50,000 positions fits, with KV in fp8 1"),
        ("300000, 900", {}, "llama-3.1-70b: none of 2 requests fits"),
    ],
)
def test_the_title_is_the_finding(requests, values, said):
    answer = answered(requests, **values)
    assert finding(concurrency_of(answer), answer) == said


def test_a_figure_that_fails_loses_no_report(capsys, tmp_path):
    assert cli.main([*TEXTBOOK, "--requests", "18x2000", "--plot", str(tmp_path / "fit.gif")]) == 2
    captured = capsys.readouterr()
    assert "18 of 18 fit" in captured.out and 'ends in ".gif"' in captured.err
    assert cli.main(["memory", "llama-3.1-70b", "--kv-budget", "1kB", "--requests", "1x9", "--plot", "fit.svg"]) == 2
    captured = capsys.readouterr()
    assert "0 of 1 fit" in captured.out and "no figure: nothing fits" in captured.err


def test_the_values_as_data(capsys, tmp_path):
    path = tmp_path / "fit.svg"
    cli.main([*TEXTBOOK, "--requests", "18x2000", "--plot", str(path), "--json"])
    plot = json.loads(capsys.readouterr().out)["plot"]
    assert path.exists() and [2000, 21] in plot["curves"][0]["points"] and [2000, 42] in plot["curves"][1]["points"]
    assert plot["asked"] == {"length": 2000, "requests": 18} and plot["limit"] == 131_072
