"""Figures within a page: one drawing for both grounds, names of its own, nothing that reaches outside it."""

from __future__ import annotations

import re

import pytest

from offload.compiler import compile_step
from offload.documents import load_plan
from offload.errors import PlotError
from offload.page.drawn import Drawn, draw, inline, of_step, section, style_of
from offload.study import evaluate
from tests.commands import ROOT


@pytest.fixture(scope="module")
def drawn() -> list[Drawn]:
    plan, topology = load_plan(ROOT / "examples/by-hand.yaml")
    step = compile_step(topology, plan)
    return of_step(evaluate(topology, plan), step, topology)


@pytest.mark.slow
def test_a_step_has_its_figures_for_both_grounds(drawn):
    assert [one.name for one in drawn] == ["timeline", "server", "floor", "memory"]
    assert all(not one.wrong and one.finding for one in drawn)
    colours: dict[tuple[str, str], str] = {}
    for one in drawn:
        text = inline(one, colours)
        assert "var(--drawn" in text, f"{one.name} differs by more than its colours"
        assert "<style" not in text and "<title" not in text and "<?xml" not in text and "<metadata" not in text
        assert len(text) < len(one.light)
    style = style_of(colours)
    assert style.count("--drawn0:") == 2 and "prefers-color-scheme: dark" in style
    assert ("#FFFFFF", "#14181C") in {tuple(map(str.upper, pair)) for pair in colours}


def test_names_are_unique_and_all_that_is_used_is_there(drawn):
    text, _ = section(drawn, "a note")
    names = re.findall(r' id="([^"]*)"', text)
    used = re.findall(r'(?:url\(#|href="#)([^)"]+)', text)
    assert len(set(names)) == len(names) and used and set(used) <= set(names)
    assert text.count('role="img" aria-label="') == len(drawn) and text.count("<details") == len(drawn)
    assert "http" not in re.sub(r'xmlns(:\w+)?="[^"]*"', "", text)
    assert section(drawn, "a note")[0] == text


def test_what_cannot_be_drawn_is_said():
    def fail() -> None:
        raise PlotError("no figure: <it> has no link.")

    text, style = section([draw("floor", "The floor", fail)], "a note")
    assert "Not drawn: The floor: no figure: &lt;it&gt; has no link." in text and "<svg" not in text
    assert section([], "a note") == ("", "")
    assert "--drawn" not in style
