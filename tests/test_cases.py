"""Published measurements: every shipped case keeps its floor; the reader tells every mistake; the verb end to end."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import yaml

from offload import cli
from offload.documents import load_topology
from offload.documents.case_file import Case, Measured, load_cases
from offload.documents.case_shape import Figure, read_figure
from offload.documents.shipped import shipped_cases
from offload.errors import CapacityError, DocumentError, PlanError, UnitError
from offload.plan import Block, Collective, Plan, Tensor
from offload.rankings import kendall, rankings
from offload.requests import generation
from offload.scores import summary
from offload.validation import PLANS, Outcome, run_case

ROOT = Path(__file__).resolve().parent.parent
PUBLISHED = ROOT.parent / "shared" / "reference" / "measurements.yaml"
FILES = shipped_cases()
KINDS = ("weight_stream", "disk_stream", "unified_mem", "cpu_exec", "kv_offload", "training", "collective", "raw_link")

SMALL = """\
kind: weight_stream
strength: A
source: {title: A table, url: https://example.org/table}
topology: desktop-4090
plan:
  tensors:
    w: {bytes: 500 MB, home: dram0}
  repeat: 4
  tasks:
    fetch: {move: w, to: hbm0}
    layer: {compute: gpu0, reads: w, after: fetch}
measured: {value: 10 tok/s}
"""


@cache
def cases() -> tuple[Case, ...]:
    return tuple(case for path in FILES for case in load_cases(path))


@cache
def outcomes() -> dict[str, Outcome]:
    return {case.id: run_case(case) for case in cases()}


def write(folder: Path, text: str, name: str = "case.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def refused(folder: Path, text: str) -> str:
    with pytest.raises(DocumentError) as error:
        load_cases(write(folder, text))
    return str(error.value)


# The shipped cases.


def test_there_are_cases_and_their_ids_differ():
    ids = [case.id for case in cases()]
    assert len(FILES) >= 12 and len(ids) >= 36
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_floor_is_above_its_measurement(path):
    for case in load_cases(path):
        outcome = outcomes()[case.id]
        assert 0 < outcome.floor <= min(outcome.schedule, outcome.informed) * (1 + 1e-12)
        assert outcome.binding
        if not case.trap:
            assert outcome.floor <= outcome.measured, case.id
        assert case.measured.tolerance is None, "the floor is compared as it is"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_case_has_its_source(path):
    for case in load_cases(path):
        assert case.source.title and case.source.url.startswith("https://")
        thread = re.fullmatch(r"(?:issue|pull request) #(\d+)(?: \(.*\))?", case.source.path)  # which has no version
        several = case.source.path.startswith("pull requests ")
        assert case.source.repo and case.source.path and (thread or several or len(case.source.commit) in (7, 8))
        where = "issues" if case.source.path.startswith("issue") else "pull"
        assert not thread or case.source.url.endswith(f"{case.source.repo}/{where}/{thread[1]}")
        assert case.kind in KINDS


def test_the_trap_is_one():
    """Were the published batch right, the rows would be faster than the link."""
    traps = [one for one in outcomes().values() if one.case.trap]
    assert {one.id for one in traps} == {f"zinf22-token-count/{n}" for n in (1, 2, 3)}
    assert all(one.floor > one.measured and not one.holds and not one.failed for one in traps)


# Floors and times worked by hand from published figures: bytes / line rate, and the times' sum or maximum.
PCIE3, PCIE5 = 16 * 8e9 * 128 / 130 / 8, 16 * 32e9 * 128 / 130 / 8
DRIVES = 2 * 4 * 16e9 * 128 / 130 / 8
EXPERT = 3 * 4096 * 14336 * 2


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        ("zinf22-opt175b-cpu", (96 * (12 * 12288**2 + 13 * 12288) * 2 + 50272 * 12288 * 2) / PCIE3),
        ("zinf22-bloom-cpu", (70 * (12 * 14336**2 + 13 * 14336) * 2 + 250880 * 14336 * 2) / PCIE3),
        ("zinf22-opt30b-cpu-partial/1", 36e9 / PCIE3),
        ("dnvme-h100-bloom-176b/2", (70 * (12 * 14336**2 + 13 * 14336) * 2 + 250880 * 14336 * 2) / DRIVES),
        ("dnvme-h100-llama-3-70b/1", (141.107e9 - 128256 * 8192 * 2) / DRIVES),
        ("ovl-h100-kv100k/6", 0.4 * 4.9152e9 / PCIE5),
        ("moe-replay-h100/1", 158474 / 4387 * EXPERT / PCIE5),
        ("moe-replay-h100-oracle/1", 163480 / 4387 * EXPERT / PCIE5),
    ],
)
def test_floors_by_hand(name, seconds):
    assert outcomes()[name].floor == pytest.approx(seconds, rel=1e-4)


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        ("moe-replay-h100/1", 158474 / 4387 * EXPERT / 56e9 + 37.54e-3),  # a fetch, then its layer: times add
        ("moe-replay-h100/6", 787822 / 4400 * EXPERT / 56e9 + 34.98e-3),
        ("moe-replay-h100-oracle/1", 163480 / 4387 * EXPERT / 56e9),  # fetches run beside the layers
        ("dnvme-h100-bloom-176b/1", 352.494428e9 / 13e9),
    ],
)
def test_expected_times_by_hand(name, seconds):
    assert outcomes()[name].informed == pytest.approx(seconds, rel=1e-4)


APART = {"collective", "raw_link"}


def test_tables_of_strength_a_are_near():
    """Half of the expected times of strength A within a fifth, blind and informed, by rows and by entries.

    Collectives and links alone count too: most collectives are of sizes where a kernel's own steps are what counts.
    Where the 90th percentile is above a half the page of published measurements says why.
    """
    found = {one.of: one for one in summary(list(outcomes().values())).errors}
    assert set(found) == {"all", "all, strength A", "plans", "plans, strength A", *PLANS, *APART}
    assert {name for name, one in found.items() if not one.judged} == APART
    for name in ("all, strength A", "plans, strength A"):
        assert all(off.median <= 0.2 for off in (*found[name].blind, *found[name].informed)), name
    assert found["plans"].cases == sum(found[kind].cases for kind in PLANS)
    assert found["all"].held == found["all"].cases, "no floor is above what was measured, whatever the strength"


UNEXPLAINED = {"kv_offload", "training"}  # kinds whose tables hold more than bandwidth explains; their cases say what
NEAR = {
    "co-8xa100", "cs357-eight-gpus", "dnvme-h100-bloom-176b", "dnvme-h100-llama-3-70b", "ds-offload-states",
    "ds1635-3090", "ik258-7965wx-r1", "ik258-epyc9355-v3", "ik520-dslite", "lcpp4812-nkvo", "lia-fg-66b-b1",
    "lia-ipex", "lia-lia-66b", "lmcache-1739-tp2", "lmcache-1740", "moe-replay-h100", "ovl-4090-gemv",
    "ovl-h100-kv100k", "spark-llamabench", "sylv-8480-layer", "vllm-kv-l1b-ttft", "xiong-dgpu",
    "zinf22-bloom-cpu", "zinf22-opt175b-cpu", "zinf22-opt30b-cpu-partial", "zinf22-token-count",
    "zinf23-bloom-fp16-nvme-kvcpu", "zinf23-int4-kvcpu",
}  # fmt: skip


def test_half_of_the_expected_times_of_each_kind_are_within_a_fifth():
    """Of the tables that each kind was first held by; later ones are of machines that are less known."""
    found = {one.of: one for one in summary([one for one in outcomes().values() if one.case.entry in NEAR]).errors}
    assert set(found) >= {"plans", *PLANS} - UNEXPLAINED
    for name in set(found) - UNEXPLAINED - APART - {"all", "all, strength A"}:
        assert all(off.median <= 0.2 for off in (*found[name].blind, *found[name].informed)), name


def test_errors_by_hand(tmp_path):
    """Entries count once, however many files they are in: medians of rows and of entries differ."""
    text = SMALL.replace("kind: ", "entry: one-table\nkind: ")
    figures = {"a": "1 s", "b": "0.5 s", "c": "0.4 s"}
    for name, figure in figures.items():
        entry = text if name != "c" else SMALL
        write(tmp_path, entry.replace("10 tok/s", figure), f"{name}.yaml")
    write(tmp_path, SMALL.replace("weight_stream", "raw_link").replace("10 tok/s", "9 s"), "d.yaml")
    rows = [run_case(case) for name in "abcd" for case in load_cases(tmp_path / f"{name}.yaml")]
    off = [1 - one.schedule_ratio for one in rows]
    assert off[0] > off[1] > off[2] > 0 and [one.case.entry for one in rows] == ["one-table", "one-table", "c", "d"]
    every, _, plans, of_a, kind, link = summary(rows).errors
    assert (every.of, every.cases, every.entries, every.held) == ("all", 4, 4 - 1, 4)
    assert (plans.of, plans.cases, plans.entries, plans.strength) == ("plans", 3, 2, "A")
    middle = (off[0] + off[1]) / 2
    assert [one.median for one in plans.blind] == pytest.approx([off[1], (middle + off[2]) / 2])
    assert [one.most for one in plans.blind] == pytest.approx(
        [off[1] + 0.8 * (off[0] - off[1]), off[2] + 0.9 * (middle - off[2])])
    assert plans.blind == plans.informed
    assert (kind.of, link.of, link.judged) == ("weight_stream", "raw_link", False) and of_a.blind == plans.blind
    assert [one.median for one in link.blind] == pytest.approx([off[3], off[3]])


def test_what_is_off_by_more_than_a_fifth_is_explained():
    for one in outcomes().values():
        off = max(abs(one.informed_ratio - 1), abs(one.schedule_ratio - 1)) > 0.2
        assert not off or one.case.trap or one.case.verdict, one.id


OTHER_ORDER = {
    "dn25-llama70b-h200", "dnvme-h100-bloom-176b", "fg-table-175b-baselines", "fiddler-mixtral",
    "ik232-dslite-q4km", "ik258-7965wx-r1", "ik258-epyc9355-v3", "lia-fg-66b-b1",
    "rl-6xa6000-p2p", "rl-8x5090", "rl-azure-a100", "rl-azure-h100", "rl-dn25-nvme", "rl-gb300-station",
    "rl-h100-p2p", "rl-h100-sm", "rl-h200", "rl-p100-numa", "rl-strix", "zinf23-int4-kvcpu",
}  # fmt: skip


def test_expected_times_come_in_the_order_of_the_measured_ones():
    """Where one value varies, or the case says why not: kernels of a format, or what bandwidth does not explain."""
    found = rankings(list(outcomes().values()))
    for one in found:
        print(f"{one.name:24} {one.varies or 'several':24} {one.cases:3} tau {one.tau} informed {one.informed}")
    alone = [one for one in found if one.varies]
    assert len(alone) >= 40
    poor = [one for one in alone if any(tau is None or tau < 0.9 for tau in (one.tau, one.informed))]
    assert all(one.order for one in poor) and not any(one.order for one in alone if one not in poor)
    assert {one.name.partition(" (")[0] for one in poor} == OTHER_ORDER
    assert {case.id.partition("/")[0] for case in cases() if case.order} == OTHER_ORDER


def test_stated_rates_are_measured_apart_from_what_they_explain():
    """Each shipped one: copies or reads timed by themselves, or a rate that the source names; no bytes / own time."""
    stated = {(case.entry, path, value) for case in cases() for path, value in case.stated.items()}
    assert stated == {
        ("col136-gb10", "ssd0.read.sustained", "5.58 GB/s"),
        ("col605-13600k", "ssd0.read.sustained", "5.9 GB/s"),
        ("dn25-llama70b-h200", "ssd0.read.sustained", "1.75 GB/s"),
        ("dn25-llama70b-h200", "ssd0.read.sustained", "2.4 GB/s"),
        ("dn25-llama70b-h200", "ssd0.read.sustained", "5.75 GB/s"),
        ("dn25-llama70b-h200", "ssd0.read.sustained", "5.875 GB/s"),
        ("dn25-llama70b-h200", "ssd0.read.sustained", "6 GB/s"),
        ("dn25-llama70b-h200", "ssd0.read.sustained", "6.625 GB/s"),
        ("dnvme-h100-bloom-176b", "ssd0.read.sustained", "6.5 GB/s"),
        ("dnvme-h100-llama-3-70b", "ssd0.read.sustained", "6.5 GB/s"),
        ("ik232-dslite-q4km", "dram0.rate.sustained", "60 GB/s"),
        ("ik258-7965wx-r1", "dram0.rate.sustained", "225 GB/s"),
        ("ik258-epyc9355-v3", "dram0.rate.sustained", "598 GB/s"),
        ("ik357-q235-9355", "dram0.rate.sustained", "500 GB/s"),
        ("ik477-r1-ubatch", "pcie0.rate.sustained", "30 GB/s"),
        ("ik534-dense72b", "dram0.rate.sustained", "256 GB/s"),
        ("ik534-dense72b", "dram0.rate.sustained", "512 GB/s"),
        ("kt-7965wx-r1", "dram0.rate.sustained", "225 GB/s"),
        ("llmfit-partial-ngl", "dram0.rate.sustained", "102 GB/s"),
        ("moe-replay-h100", "pcie0.rate.sustained", "56 GB/s"),
        ("ollm-sata", "ssd0.read.sustained", "380 MB/s"),
        ("ovl-4090-gemv", "pcie0.hbm0.rate.sustained", "26.83 GB/s"),
        ("ovl-h100-kv100k", "pcie0.rate.sustained", "55.95 GB/s"),
        ("uberg-r1-nvme", "dram0.rate.sustained", "88 GB/s"),
        ("vllm-kv-l1b-ttft", "pcie0.rate.sustained", "51.2 GB/s"),
        ("vllm-kv-l1b-ttft", "placement.kv_block.per_copy", "3.6 us"),
    }


def test_kendall_by_hand():
    assert kendall([(1, 1), (2, 2), (3, 3)]) == 1 and kendall([(1, 3), (2, 2), (3, 1)]) == -1
    assert kendall([(1, 1), (2, 3), (3, 2)]) == pytest.approx(1 / 3)
    assert kendall([(1, 1), (1, 2), (2, 3)]) == pytest.approx(2 / (2 * 3) ** 0.5)  # one pair is tied
    assert kendall([(1, 1), (1, 2)]) is None and kendall([]) is None
    from scipy.stats import kendalltau

    draw = random.Random(4)
    for _ in range(50):
        pairs = [(draw.randint(1, 6), draw.randint(1, 6)) for _ in range(8)]
        known = kendalltau(*zip(*pairs, strict=True)).statistic
        assert kendall(pairs) == (None if known != known else pytest.approx(known))


def test_times_within_the_resolution_are_not_compared():
    pairs = [(1, 1), (2, 0.997), (3, 2)]
    assert kendall(pairs) == pytest.approx(1 / 3)
    assert kendall(pairs, [0.005] * 3) == 1 and kendall(pairs, [0.001] * 3) == pytest.approx(1 / 3)
    assert kendall(pairs, [0, 0.005, 0]) == 1, "the larger of two counts"
    assert kendall(pairs[:2], [0.01, 0.01]) is None


def test_what_one_value_changes_is_found(tmp_path):
    """Of four variants in two values, each value's pairs; a value that another changes with is no slice."""
    rows = [("500 MB", 4, "1 s"), ("1 GB", 4, "2 s"), ("500 MB", 8, "3 s"), ("1 GB", 8, "2.9 s")]
    text = SMALL.replace("measured: {value: 10 tok/s}", "note: two runs differ by 5 %\nresolution: 5%\nvariants:")
    for size, n, time in rows:
        text += f"  - {{set: {{tensors.w.bytes: {size}, repeat: {n}}}, measured: {{value: {time}}}}}\n"
    found = rankings([run_case(case) for case in load_cases(write(tmp_path, text, "own.yaml"))])
    assert {(one.name, one.varies): (one.cases, one.tau, one.unresolved) for one in found} == {
        ("own (repeat 4)", "tensors.w.bytes"): (2, 1, 0),
        ("own (repeat 8)", "tensors.w.bytes"): (2, None, 1),
        ("own (tensors.w.bytes 500 MB)", "repeat"): (2, 1, 0),
        ("own (tensors.w.bytes 1 GB)", "repeat"): (2, 1, 0),
    }
    told = refused(tmp_path, text.replace("note: two runs differ by 5 %\n", ""))
    assert "a resolution needs its reason" in told
    two = SMALL.replace("measured: {value: 10 tok/s}", "order: the host's own work\nvariants:") + "".join(
        f"  - {{set: {{repeat: {n}}}, measured: {{value: {time}}}}}\n" for n, time in ((4, "3 s"), (8, "2 s")))
    (one,) = rankings([run_case(case) for case in load_cases(write(tmp_path, two, "two.yaml"))])
    assert (one.name, one.varies, one.tau, one.order) == ("two", "repeat", -1, "the host's own work")


def test_stated_rates_are_apart(tmp_path):
    text = SMALL.replace("plan:", "stated: {pcie0.rate.sustained: 10 GB/s}\nvaries: size\nplan:", 1) + """\
variants:
  - {set: {tensors.w.bytes: 1 GB}, stated: {dram0.rate.sustained: 5 GB/s}, measured: {value: 0.3 s}}
"""
    first, second = load_cases(write(tmp_path, text, "own.yaml"))
    assert first.stated == {"pcie0.rate.sustained": "10 GB/s"} and first.varies == "size"
    assert set(second.stated) == {"pcie0.rate.sustained", "dram0.rate.sustained"}
    one, other = run_case(first), run_case(second)
    assert one.informed == pytest.approx(0.2, rel=0.05) and one.schedule < 0.1 and other.informed > 0.75
    assert one.floor == run_case(replace(first, informed=None)).floor
    (order,) = rankings([one, other])
    assert (order.name, order.varies, order.cases, order.tau) == ("own", "size", 2, 1)
    said = refused(tmp_path, text.replace("pcie0.rate.sustained", "pcie9.rate.sustained"))
    assert "line 5" in said and "pcie9" in said


def test_the_bytes_are_those_that_the_source_states():
    """7.54 GiB of qwen2-7b with its embedding, gathered by row; 30.25 GiB of qwen3-30b-a3b with all experts."""
    plan = {case.id: case.plan for case in cases()}["spark-llamabench/1"]
    read = sum(
        plan.tensors[name].bytes * block.repeat
        for block in plan.blocks for task in block.tasks for name in getattr(task, "reads", ())
        if "KV" not in plan.tensors[name].what and not plan.tensors[name].transient
    )  # fmt: skip
    assert (read + 152064 * 3584 * 34 / 32) / 2**30 == pytest.approx(7.54, abs=0.005)
    plan = {case.id: case.plan for case in cases()}["spark-llamabench-qwen3/1"]
    size = {name: tensor.bytes for name, tensor in plan.tensors.items()}
    layer = size["attention"] + 16 * size["experts"] + size["router"]
    assert (48 * layer + 2 * size["head"]) / 2**30 == pytest.approx(30.25, abs=0.005)


BESIDES = {"cs357-eight-gpus"}  # published, but not in that collection


@pytest.mark.skipif(not PUBLISHED.exists(), reason="the collected figures are not here")
def test_figures_are_those_collected():
    entries = {entry["id"]: entry for entry in yaml.safe_load(PUBLISHED.read_text(encoding="utf-8"))["entries"]}
    assert {case.entry for case in cases()} - set(entries) == BESIDES
    for case in cases():
        if case.entry in BESIDES:
            continue
        entry = entries[case.entry]
        figure = case.measured.figure
        scale = {"tok/s": 1.0, "us": 1e-6, "ms": 1e-3, "s": 1.0, "GB/s": 1e9, "TB/s": 1e12}
        # What is published for each of several GPUs is of all together here, and of a sum of both directions half.
        values = [row["value"] * scale[row["unit"]] * count for row in entry["measured"] if row["unit"] in scale
                  for count in (1, (row.get("when") or {}).get("gpus", 1), 0.5 if "bidi" in row["quantity"] else 1)
                  ]  # fmt: skip
        assert any(figure.value == pytest.approx(value, rel=1e-12) for value in values), case.id
        assert (case.strength, case.kind) == (entry["strength"], entry["kind"])
        source = entry["source"]
        assert (case.source.path, case.source.commit) == (source["path"], source.get("commit", ""))
        assert case.source.title == entry["source"]["title"]


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


# The command line.


def ask(capsys, *words: object) -> tuple[int, str, str]:
    status = cli.main(["validate", *(str(word) for word in words)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.fixture
def once(monkeypatch):
    """The verb is told what was found of a case; that it finds it by itself is tested by id."""
    def found(case: Case) -> Outcome:
        one = outcomes()[case.id]
        alike = {"plan": case.plan, "informed": case.informed}  # the steps of a request are functions
        assert replace(one.case, **alike) == case, "read alike each time"
        return one

    monkeypatch.setattr("offload.validation.run_case", found)


def test_all_shipped_cases(capsys, once):
    """By the words that the command line shows where it is asked nothing."""
    assert "\n  offload validate\n" in cli.SCREEN
    status, out, err = ask(capsys)
    assert status == 0 and err == ""
    assert all(case.id in out for case in cases())
    real = sum(not case.trap for case in cases())
    assert f"{len(cases())} cases: {real} with the floor at most what was measured, 0 with the floor above it" in out


def test_data(capsys, once):
    status, out, err = ask(capsys, "--json")
    answer = json.loads(out)
    assert status == 0 and err == "" and answer["unread"] == []
    assert [one["id"] for one in answer["cases"]] == [case.id for case in cases()]
    for one in answer["cases"]:
        outcome = outcomes()[one["id"]]
        assert (one["floor"], one["schedule"], one["measured"]) == (outcome.floor, outcome.schedule, outcome.measured)
        assert one["binding"] == list(outcome.binding) and one["tolerance"] is None
        assert (one["trap"] is None) != one["id"].startswith("zinf22-token-count")
    assert answer["summary"]["cases"] == len(cases()) and answer["summary"]["failed"] == 0
    assert answer["summary"]["traps"] == 3 and 0 < answer["summary"]["floor_ratio"]["most"] <= 1


def test_by_id(capsys):
    status, out, _ = ask(capsys, "spark-llamabench")
    assert status == 0 and "spark-llamabench/2" in out and "qwen3" not in out and "2 cases: 2 " in out
    status, out, _ = ask(capsys, "spark-llamabench/2", "spark-llamabench/2")
    assert status == 0 and "spark-llamabench/1" not in out and "1 case: 1 " in out
    assert ask(capsys, "spark-llamabensh") == (2, "", ask(capsys, "spark-llamabensh")[2])
    assert 'Did you mean "spark-llamabench"?' in ask(capsys, "spark-llamabensh")[2]
    assert 'no shipped case "spark-llamabench/9"' in ask(capsys, "spark-llamabench/9")[2]


def test_a_floor_above_its_measurement(tmp_path, capsys):
    path = write(tmp_path, SMALL.replace("10 tok/s", "16 tok/s"))
    status, out, err = ask(capsys, path)
    assert status == 1 and err == "" and "A FLOOR ABOVE" in out and "0.985" in out and "1.016" in out
    assert "1 case: 0 with the floor at most what was measured, 1 with the floor above it." in out
    status, out, _ = ask(capsys, path, "--json")
    answer = json.loads(out)
    assert status == 1 and answer["cases"][0]["failed"] is True and answer["summary"]["failed"] == 1


def test_a_broken_file_loses_no_other(tmp_path, capsys):
    good = write(tmp_path, SMALL, "a.yaml")
    bad = write(tmp_path, SMALL.replace("strength: A", "strength: D"), "b.yaml")
    large = write(tmp_path, SMALL.replace("500 MB", "5 TB"), "c.yaml")
    write(tmp_path, SMALL.replace("kind:", "id: a\nkind:"), "d.yaml")
    status, out, err = ask(capsys, tmp_path, tmp_path / "gone.yaml", "")
    assert status == 2 and "1 case: 1 " in out and "5 files or cases could not be computed" in out
    assert f"{bad}: 1 mistake" in err and f"{large}, case c: the plan does not fit" in err
    assert f'the id "a" is taken by {good}' in err and "no such file" in err and "an empty name is no case" in err
    status, out, err = ask(capsys, tmp_path, "--json")
    assert status == 2 and [one["id"] for one in json.loads(out)["cases"]] == ["a"]
    assert len(json.loads(out)["unread"]) == json.loads(out)["summary"]["unread"] == 3


def test_a_case_without_a_floor_says_so(tmp_path, capsys):
    server = "{memories: {a: {kind: hbm, rate: unknown}, b: {kind: dram, rate: unknown}}, "
    server += "links: {x: {between: [a, b], rate: {sustained: 5 GB/s}}}}"
    plan = "{tensors: {w: {bytes: 1 GB, home: b}}, tasks: {fetch: {move: w, to: a}}}"
    text = SMALL.partition("topology:")[0] + f"topology: {server}\nplan: {plan}\nmeasured: {{value: 1 s}}\n"
    status, out, err = ask(capsys, write(tmp_path, text))
    assert status == 0 and err == "" and "no floor, so nothing is tested" in out and "Floor over" not in out
    answer = json.loads(ask(capsys, tmp_path / "case.yaml", "--json")[1])
    assert answer["cases"][0]["floor"] is None and answer["cases"][0]["schedule"] == pytest.approx(0.2)
    assert answer["cases"][0]["floor_ratio"] is None and answer["summary"]["floor_ratio"] is None


def test_nothing_to_show(tmp_path, capsys):
    status, out, err = ask(capsys, tmp_path)
    assert status == 2 and out == "" and "no case file (.yaml) is in this folder" in err
    assert ask(capsys, write(tmp_path, ""))[:2] == (2, "")


def test_a_folder_without_permission_and_a_file_that_is_none(tmp_path, capsys):
    (tmp_path / "folder.yaml").mkdir()
    assert ask(capsys, tmp_path / "folder.yaml")[0] == 2
    path = tmp_path / "bytes.yaml"
    path.write_bytes(b"\xff\xfe\x00kind")
    status, _, err = ask(capsys, path)
    assert status == 2 and "bytes.yaml" in err
