"""What a case file says, and how its mistakes are told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offload.documents import load_topology
from offload.documents.case_file import Measured, load_cases
from offload.documents.case_shape import Figure, read_figure
from offload.errors import CapacityError, PlanError, UnitError
from offload.plan import Block, Collective, Plan, Tensor
from offload.requests import generation
from offload.scores import summary
from offload.validation import run_case
from tests.published import SMALL, refused, write

# What a case says.


def test_a_small_case(tmp_path):
    (case,) = load_cases(write(tmp_path, SMALL, "small.yaml"))
    outcome = run_case(case)
    assert (case.id, case.kind, case.strength, case.trap, case.measured.tolerance) == (
        "small", "weight_stream", "A", "", None)  # fmt: skip
    assert outcome.measured == 0.1 and outcome.floor == pytest.approx(2e9 / 31.507692e9)
    assert outcome.binding == ("pcie0.hbm0",) and outcome.holds and not outcome.failed


@pytest.mark.parametrize(
    ("figure", "seconds"),
    [
        ("{value: 10 tok/s}", 0.1),
        ("{value: 4 tokens/s}", 0.25),
        ("{value: 350 ms}", 0.35),
        ("{value: 3.1 s, per: 31 steps}", 0.1),
        ("{value: 20 GB/s, of: fetch}", 0.1),
        ("{value: 20 GB/s, of: fetch, as: rate}", 0.1),
    ],
)
def test_figures_as_seconds_of_a_step(figure, seconds, tmp_path):
    (case,) = load_cases(write(tmp_path, SMALL.replace("{value: 10 tok/s}", figure)))
    assert run_case(case).measured == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(("counts", "share"), [("rate", 1.0), ("busbw", 2 * 7 / 8)])
def test_rates_of_an_all_reduce(counts, share, tmp_path):
    """1 GiB over eight ranks, 8203.9 us published with a bus bandwidth of 229.04 GB/s: nccl-tests' own definitions."""
    (case,) = load_cases(write(tmp_path, SMALL))
    memories = tuple(f"hbm{n}" for n in range(8))
    buffer = Tensor("x", 2**30, tuple((memory, 1 / 8) for memory in memories))
    plan = Plan("all-reduce", {"x": buffer}, (Block((Collective("sum", "x", memories),)),))
    measured = Measured(Figure(share * 2**30 / 8203.9e-6, "B/s"), of="sum", counts=counts)
    outcome = run_case(replace(case, plan=plan, topology=load_topology("dgx-h100"), measured=measured))
    assert outcome.measured == pytest.approx(8203.9e-6, rel=1e-12) and outcome.holds
    assert 2 * 7 / 8 * 2**30 / 8203.9e-6 == pytest.approx(229.04e9, rel=1e-4)


def test_one_step_alone(tmp_path):
    (back_to_back,) = load_cases(write(tmp_path, SMALL))
    (alone,) = load_cases(write(tmp_path, SMALL.replace("tok/s}", "tok/s, alone: true}")))
    assert run_case(alone).schedule > run_case(back_to_back).schedule
    assert run_case(alone).floor >= run_case(back_to_back).floor


def test_variants_are_cases_of_their_own(tmp_path):
    text = SMALL + """\
variants:
  - {set: {tensors.w.bytes: 1 GB}, measured: {value: 0.3 s}}
  - {id: other, set: {tensors.w.home: {dram0: 50%, hbm0: rest}, repeat: 8}, measured: {value: 0.2 s}, note: half}
  - {topology: gh200, measured: {value: 0.1 s}, trap: no}
note: all
""".replace("trap: no", "trap: it is wrong")
    found = load_cases(write(tmp_path, text, "own.yaml"))
    assert [case.id for case in found] == ["own", "own/1", "other", "own/3"]
    assert found[1].set == {"tensors.w.bytes": "1 GB"}
    assert [run_case(case).floor for case in found[:3]] == pytest.approx([n / 31.507692e9 for n in (2e9, 4e9, 2e9)])
    assert found[2].note == "half all" and found[3].topology.name == "gh200" and found[3].trap == "it is wrong"


def test_a_variant_changes_the_server(tmp_path):
    text = SMALL + "variants: [{set: {pcie0.rate: 20 GB/s}, measured: {value: 0.3 s}}]\n"
    _, changed = load_cases(write(tmp_path, text))
    assert run_case(changed).floor == pytest.approx(0.1)


def test_topology_and_plan_as_files_and_as_maps(tmp_path):
    (tmp_path / "parts").mkdir()
    server = """\
memories:
  hbm0: {kind: hbm, capacity: 24 GB, rate: 1000 GB/s}
  dram0: {kind: dram, capacity: 64 GB, rate: 80 GB/s}
processors: {gpu0: {kind: gpu, memory: hbm0}}
links: {x0: {between: [dram0, hbm0], rate: 10 GB/s}}
"""
    plan = SMALL.partition("plan:\n")[2].partition("measured")[0].replace("\n  ", "\n").removeprefix("  ")
    write(tmp_path / "parts", server, "server.yaml")
    write(tmp_path / "parts", "topology: server.yaml\n" + plan, "plan.yaml")
    head, tail = SMALL.partition("topology:")[0], "measured: {value: 1 s}\n"
    by_path = head + "plan: parts/plan.yaml\n" + tail
    both = head + "topology: parts/server.yaml\nplan: parts/plan.yaml\n" + tail
    inline = head + "topology:\n  " + server.strip().replace("\n", "\n  ") + "\nplan: parts/plan.yaml\n" + tail
    for text in (by_path, both, inline):
        (case,) = load_cases(write(tmp_path, text))
        assert run_case(case).floor == pytest.approx(0.2)


def test_what_does_not_fit_was_not_measured(tmp_path):
    (case,) = load_cases(write(tmp_path, SMALL.replace("500 MB", "5 TB")))
    with pytest.raises(CapacityError, match="dram0 lacks"):
        run_case(case)


def test_a_move_of_nothing_has_no_rate(tmp_path):
    text = SMALL.replace("500 MB", "0 B").replace("10 tok/s", "5 GB/s, of: fetch")
    with pytest.raises(PlanError, match='"fetch" moves nothing'):
        run_case(load_cases(write(tmp_path, text))[0])


def test_a_whole_request(tmp_path):
    """A throughput is of the request, its prompt included, and so is a time; both as the mean of its steps."""
    plan = """\
plan:
  model: {name: llama-3.1-8b, weights: q8_0}
  workload: {phase: generate, batch: 2, prompt: 100, generate: 20}
  placement: {weights: {hbm0: rest}}
"""
    text = SMALL.partition("plan:\n")[0] + plan
    figures = ("{value: 50 tok/s}", "{value: 0.8 s}", "{value: 0.76 s, per: 19 steps}")
    found = [run_case(load_cases(write(tmp_path, f"{text}measured: {figure}\n"))[0]) for figure in figures]
    assert [one.measured for one in found] == pytest.approx([0.04] * 3)
    whole = generation(found[0].case.topology, found[0].case.plan)
    assert (found[0].floor, found[0].schedule) == (whole.total.floor / 20, whole.total.expected / 20)
    assert found[0].holds and found[0].binding == whole.bottleneck
    for figure, key in (("{value: 1 s, alone: true}", "alone"), ("{value: 1 GB/s, of: x}", "of")):
        assert f'"{key}" is of one step' in refused(tmp_path, f"{text}measured: {figure}\n")


def test_tolerances_and_traps(tmp_path):
    fast = SMALL.replace("10 tok/s", "16 tok/s")  # 62.5 ms, and the floor is 63.5
    outcome = run_case(load_cases(write(tmp_path, fast))[0])
    assert outcome.failed and not outcome.holds and outcome.floor_ratio == pytest.approx(1.0156, abs=1e-4)
    outcome = run_case(load_cases(write(tmp_path, fast.replace(
        "16 tok/s", "16 tok/s, tolerance: 2%, why: read from a chart")))[0])  # fmt: skip
    assert outcome.holds and outcome.tolerance == 0.02
    outcome = run_case(load_cases(write(tmp_path, fast + "trap: two tables differ\n"))[0])
    assert not outcome.holds and not outcome.failed
    total = summary([outcome])
    assert (total.cases, total.held, total.failed, total.traps, total.floor_ratio) == (1, 0, 0, 1, None)


# Mistakes.


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("kind: weight_stream\n", "", 'the key "kind" is missing'),
        ("weight_stream", "Weight stream", "one word of small letters"),
        ("strength: A", "strength: D", 'unknown "D". Allowed: A, B, C'),
        ("strength: A", "strenght: A", 'Did you mean "strength"?'),
        ("https://example.org/table", "file:///tmp/x", "no public address"),
        ("title: A table, ", "", 'line 3, column 1, source: the key "title" is missing'),
        ("title: A table", "title: ' '", "is empty"),
        ("topology: desktop-4090", "topology: desktop-4080", 'Did you mean "desktop-4090"?'),
        ("topology: desktop-4090", "topology: nowhere.yaml", "line 4, column 11, topology: "),
        ("topology: desktop-4090\n", "", 'no server: give "topology"'),
        ("topology: desktop-4090", "topology: [a]", "must be a shipped server's name"),
        ("home: dram0", "home: dram1", "case.yaml: 1 mistake\n  line 7, column 30, plan.tensors.w.home: "),
        ("reads: w", "reads: v", 'no tensor "v"'),
        ("{value: 10 tok/s}", "{value: 10}", "has no unit"),
        ("{value: 10 tok/s}", "{value: 10 tps}", "A measured figure is"),
        ("{value: 10 tok/s}", "{value: 0 tok/s}", "cannot have been measured"),
        ("{value: 10 tok/s}", "{value: -3 s}", "line 12, column 19, measured.value: "),
        ("{value: 10 tok/s}", "{value: 5 GB/s}", 'add "of: TASK"'),
        ("{value: 10 tok/s}", "{value: 5 GB/s, of: fitch}", 'Did you mean "fetch"?'),
        ("{value: 10 tok/s}", "{value: 5 GB/s, of: tensor}", 'no task "tensor" that moves or reads bytes'),
        ("{value: 10 tok/s}", "{value: 5 GB/s, of: fetch, as: busbw}", '"busbw" is of a collective'),
        ("{value: 10 tok/s}", "{value: 5 s, of: fetch}", '"of" is of a rate in GB/s'),
        ("{value: 10 tok/s}", "{value: 5 tok/s, per: 3 steps}", '"per" is of a time'),
        ("{value: 10 tok/s}", "{value: 5 s, per: 3}", 'Write "31 steps"'),
        ("{value: 10 tok/s}", "{value: 5 s, per: 0 steps}", 'Write "31 steps"'),
        ("{value: 10 tok/s}", "{value: 5 s, tolerance: 5%}", 'a tolerance needs its reason: add "why"'),
        ("{value: 10 tok/s}", "{value: 5 s, tolerance: 5, why: x}", 'Did you mean 0.05, that is "5 %"?'),
        ("measured: {value: 10 tok/s}\n", "", 'give "measured", or "variants"'),
        ("measured:", "id: a b\nmeasured:", "is no id"),
        ("measured:", "variants: [{measured: {value: 1 s}, set: {tensors.v.bytes: 1 B}}]\nmeasured:", 'no tensor "v"'),
        ("measured:", "variants: [{measured: {value: 1 s}, set: {nothing.there: 1}}]\nmeasured:", "nothing"),
        ("measured:", "variants: [{measured: {value: 1 s}, set: {repeat: x}}]\nmeasured:",
         "line 12, column 51, variants[0].set.repeat: must be a whole number"),
        ("measured:", "variants: [{measured: {value: 1 s}, set: {topology: gh200}}]\nmeasured:", 'own key "topology"'),
        ("measured:", "variants: [{measured: {value: 1 s}, set: {'a..': 1}}]\nmeasured:", "is no path"),
        ("measured:", "variants: [{measured: {value: 1 s}, id: case}]\nmeasured:", 'two cases are called "case"'),
        ("measured:", "variants: [{set: {repeat: 2}}]\nmeasured:", 'the key "measured" is missing'),
    ],
)  # fmt: skip
def test_mistakes(old, new, told, tmp_path):
    assert old in SMALL
    assert told in refused(tmp_path, SMALL.replace(old, new, 1))


@pytest.mark.parametrize("plan", ["plan: 3", "plan: [1]", "plan: somewhere", "plan: gone.yaml", "plan: ''"])
def test_a_plan_that_is_none(plan, tmp_path):
    head, rest = SMALL.split("plan:\n")
    text = refused(tmp_path, head + plan + "\nmeasured:" + rest.partition("measured:")[2])
    assert "line 5, column 7, plan: " in text and "1 mistake\n" in text


def test_a_plan_by_placement_without_its_model(tmp_path):
    head, rest = SMALL.split("plan:\n")
    plan = "plan: {model: {weights: bf16}, placement: {weights: {hbm0: rest}}}\nmeasured:" + rest.split("measured:")[1]
    assert 'line 5, column 8, plan.model: give one of "name"' in refused(tmp_path, head + plan)


def test_mistakes_are_told_at_once(tmp_path):
    text = SMALL.replace("strength: A", "strength: D").replace("home: dram0", "home: x").replace("10 tok/s", "10")
    told = refused(tmp_path, text)
    assert "3 mistakes" in told and "line 2, " in told and "line 7, " in told and "line 12, " in told


def test_mistakes_of_a_plan_are_told_once_for_all_variants(tmp_path):
    variants = "variants: [" + ", ".join("{measured: {value: 1 s}}" for _ in range(3)) + "]\n"
    assert "1 mistake\n" in refused(tmp_path, SMALL.replace("home: dram0", "home: x") + variants)
    write(tmp_path, "topology: desktop-4090\ntensors: {}\ntasks: {}\n", "plan.yaml")
    head, rest = SMALL.split("plan:\n")
    told = refused(tmp_path, head + "plan: ./plan.yaml\n" + variants + "measured:" + rest.partition("measured:")[2])
    assert told.count("there is no task") == 1 and "plan.yaml on desktop-4090, line 3" in told


@pytest.mark.parametrize("text", ["", "- 1", "3", "measured", "kind: {a: b}", "{", "\0", "variants: 3", "variants: [1]",
                                  "plan: {}", "measured: []", "source: x", "topology: {}", "set: 1"])  # fmt: skip
def test_odd_files_are_refused(text, tmp_path):
    assert "mistake" in refused(tmp_path, text)


@pytest.mark.parametrize("text", ["", "tok/s", "1e400 tok/s", "inf s", "1 tok", "3 tok/min", "1e30 tok/s", "5 %"])
def test_figures_that_are_none(text):
    with pytest.raises(UnitError):
        read_figure(text)
