"""Comparisons that stay quick: what is left out is told, sharing work out changes nothing, proofs hold inside."""

from __future__ import annotations

import os
import random
import signal
from itertools import pairwise

import pytest

from offload import compare
from offload.comparison import Candidate
from offload.comparison.answer import comparison_to_json
from offload.comparison.halves import shared_out
from offload.comparison.proofs import never_worse, no_slower
from offload.comparison.sides import Side, ends_of
from offload.documents import load_plan, load_topology, read_setting
from offload.documents.other_server import load_plan_on
from offload.schedules import schedule
from offload.units.remarks import remark, remarks
from tests.commands import ROOT, run

PREFETCH, DESKTOP = (ROOT / "examples" / name for name in ("expert-prefetch.yaml", "llama-3.1-70b-desktop.yaml"))
forked = pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing can be forked here")


def on(path, *servers):
    found = []
    for name in servers:
        plan, server, names = load_plan_on(path, load_topology(name))
        found.append(Candidate("p", name, (plan, server), names=names))
    return found


@pytest.mark.slow
def test_what_is_left_out_encloses_what_it_would_be():
    candidates = on(PREFETCH, "gh200", "desktop-4090", "gaudi3-hls3", "dgx-h100")
    quick, full = compare(candidates, effort=0.0), compare(candidates)
    assert [entry.server for entry in quick.ranked] == [entry.server for entry in full.ranked]
    assert not any(entry.exact for entry in quick.ranked) and all(entry.exact for entry in full.ranked)
    for some, every in zip(quick.ranked, full.ranked, strict=True):
        assert some.expected.seconds == every.expected.seconds and some.floor == every.floor
        assert some.expected.low <= every.expected.low <= every.expected.high <= some.expected.high
        assert some.expected.cold_low <= every.expected.cold_low
        assert every.expected.cold_high <= some.expected.cold_high
        once = schedule(every.step)
        assert (every.expected.low, every.expected.high) == (once.low, once.high)
        assert (every.expected.cold_low, every.expected.cold_high) == (once.cold_low, once.cold_high)
    left = [pair for pair in quick.pairs if pair.order == "left out"]
    assert left and not quick.certain
    for some, every in zip(quick.pairs, full.pairs, strict=True):
        assert some.order in ("left out", every.order) and some.margin == every.margin
    assert "left out" not in [pair.order for pair in full.pairs]


def test_the_best_are_worked_out_first():
    candidates = on(PREFETCH, "gh200", "desktop-4090", "gaudi3-hls3")
    exact = [entry.exact for entry in compare(candidates, effort=1600.0).ranked]
    assert exact == sorted(exact, reverse=True) and len(set(exact)) == 2


@forked
def test_shared_out_work_gives_the_same():
    candidates = on(ROOT / "examples" / "kv-in-blocks.yaml", "gh200", "desktop-4090", "dgx-h100", "dgx-a100")
    alone, shared = (comparison_to_json(compare(candidates, processes=count)) for count in (1, 3))
    assert alone == shared


@forked
def test_what_a_helper_cannot_do_is_done_here():
    here = os.getpid()

    def work(number):
        if number % 3 == 1 and os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        remark(f"made {number % 2}")
        return (lambda: number) if number % 3 == 2 else number  # functions cannot be handed back

    with remarks() as heard:
        found = shared_out(work, range(60), 3)
    assert [one() if callable(one) else one for one in found] == list(range(60))
    assert sorted(heard) == ["made 0", "made 1"]
    with pytest.raises(ZeroDivisionError):
        shared_out(lambda number: 1 / (number - 7), range(20), 2)


class Formula(Side):
    """A cost by a formula of one load."""

    def __init__(self, formula):
        self.formula, self.figures = formula, {("load",): []}

    def at(self, box, slow):
        return self.formula(box.get(("load",), (0.05, 1.0))[slow])


@pytest.mark.parametrize("worst, proved", [(1.002, True), (0.999, False)])
def test_close_costs_are_told_apart_along_a_figure(worst, proved):
    first, second = Formula(lambda x: 1 + x), Formula(lambda x: (1 + x) * worst)
    assert never_worse(first, second, {("load",): (0.05, 1.0)}, 2000) is proved


def test_what_is_proved_holds_at_random_points():
    """Servers of which some share the rate of a CPU, each of them against all others."""
    names = "aws-p4d-24xlarge", "gcp-a2-highgpu-8g", "frontier-mi250x-node", "aws-g5-48xlarge", "gh200", "gh200-dual"
    sides = []
    for entry in compare(on(DESKTOP, *names)).ranked:
        sides.append(Side((entry.plan, entry.server), entry.step, lambda step, seconds: seconds,
                          seconds=entry.expected.low))
    random.seed(8)
    proofs = 0
    for first in sides:
        for second in sides:
            if first is second or not no_slower(first.step, second.step):
                continue
            proofs += 1
            shared = first.figures.keys() & second.figures.keys()
            for _ in range(12):
                box = {}
                for key in sorted(shared, key=str):
                    low, high = ends_of(first.figures[key][0])
                    value = random.choice((low, high, random.uniform(low, high)))
                    box[key] = value, value
                assert first.at(box, slow=True) <= second.at(box, slow=False) * (1 + 2e-5)
    assert proofs >= 3


def test_a_slower_part_is_no_proof():
    quick, slow = (one.made for one in on(DESKTOP, "dgx-a100", "desktop-4090"))
    from offload import compile_step

    steps = [compile_step(server, plan) for plan, server in (quick, slow)]
    assert not no_slower(steps[1], steps[0])
    assert no_slower(steps[0], steps[0])


NAMES = "frontier-mi250x-node", "azure-nc96ads-a100-v4", "mac-studio-m2-ultra", "desktop-4090"


@pytest.mark.few
@pytest.mark.parametrize("width", [120, 100, 80, 60, 40])
def test_names_are_whole_at_any_width(width):
    done = run("compare", str(DESKTOP), "--on", ",".join(NAMES), "--meter", "money: 12 USD/h", COLUMNS=str(width))
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and max(map(len, lines)) <= width
    for name in NAMES:
        assert sum(name in line.split() for line in lines) >= 2  # in the ranking and in the meter's table
    ranks = [line for line in lines if line[:2] in ("1 ", "2 ", "3 ", "4 ") and line.split()[1] in NAMES]
    assert len(ranks) == len(NAMES)
    for one, other in pairwise(ranks):
        assert int(one[0]) + 1 == int(other[0])


@pytest.mark.slow
def test_what_is_left_out_is_said():
    done = run("compare", str(PREFETCH), "--all")
    assert done.returncode == 0 and "Left out, to be quick: the ends of " in done.stdout and "~(" in done.stdout


def test_two_plans_that_share_every_rate():
    """Two layers more on the GPU are better, wherever the rates of that server are."""
    candidates = []
    for layers in ("38", "40"):
        setting = read_setting(f"placement.weights.hbm0={layers} layers")
        candidates.append(Candidate(layers, "desktop", load_plan(DESKTOP, settings=[setting])))
    found = compare(candidates)
    assert [entry.plan for entry in found.ranked] == ["40", "38"]
    assert found.pairs[0].order == "certain" and found.pairs[0].common >= 3
