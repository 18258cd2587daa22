"""The best placement where some parts have no rate: what depends on them is not looked at, and said."""

import json

import pytest

from offload.compiler import compile_step
from offload.documents import read_setting
from offload.placing import Objective, best_of, plan_question
from offload.uncounted import uncounted
from offload.words import plan_from_words
from tests.commands import run

DESKTOP = ("place", "llama-3.1-8b:bf16", "--on", "desktop-4090")


def test_a_prompt_does_not_go_to_a_processor_without_flops():
    """It was told to take 163 ms there, 7 times as fast as the GPU."""
    asked = ("place", "llama-3.1-8b:bf16", "--on", "gcp-n1-t4-flexgen", "--prompt", "4096")
    found = json.loads(run(*asked, "--json").stdout)
    assert "dram0" not in found["best"]["placement"]["weights"] and found["best"]["expected_s"] > 1
    assert found["left_out"][0].startswith("what depends on cpu0.flops, ")
    assert found["compared"]["uncounted"] == ["cpu0.flops"]  # its output head is there
    shown = run(*asked).stdout
    assert ">= 1.15 s" in shown and " x as fast as the plan as asked" not in shown
    assert "How long the plan as asked takes depends on cpu0.flops" in shown
    # The floor of any plan holds for what runs there too.
    there = json.loads(run("step", *asked[1:], "--compute", "cpu0", "--json").stdout)
    assert found["floor_of_any_plan"]["seconds"] <= there["floor"]["seconds"]


def test_one_token_may_go_there_all_the_same():
    found = json.loads(run("place", "llama-3.1-8b:bf16", "--on", "gcp-n1-t4-flexgen", "--json").stdout)
    assert "dram0" in found["best"]["placement"]["weights"] and found["compared"]["uncounted"] == []


@pytest.mark.parametrize(("model", "status"), [("llama-3.1-405b:q8_0", 1), ("llama-3.1-70b:q8_0", 0)])
def test_a_drive_without_a_rate_holds_nothing(model, status):
    asked = run("place", model, "--on", "desktop-4090", "--set", "ssd0.rate=unknown")
    assert asked.returncode == status
    told = " ".join(asked.stdout.split())
    if status:
        assert "What depends on ssd0.read was not looked at, as no rate is known of that." in told
    else:
        assert "what depends on ssd0.read, of which no rate is known: it would look faster than it is" in told
    assert "of which no rate is known" not in run("place", model, "--on", "desktop-4090").stdout


def test_no_plan_that_is_told_depends_on_a_link_without_a_rate():
    plan, topology = plan_from_words("llama-3.1-70b:q4_k_m", "desktop-4090", compute="gpu0",
                                     settings=[read_setting("pcie0.rate=unknown")])  # fmt: skip
    found = best_of(plan_question(plan, topology), compile_step(topology, plan), Objective("latency"))
    assert found.placing.unknown == ("pcie0.hbm0",) and len(found.placing.of_families) > 2
    assert all(uncounted(one.step) == () for one in found.placing.of_families)
    assert found.placing.expected.seconds <= found.placing.best.seconds
    assert found.any_plan.seconds <= found.placing.best.floor
