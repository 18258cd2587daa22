"""Ranks by placement: what each reads and sends, what is refused, the report, and that no time is lost."""

from __future__ import annotations

import io

import pytest
from hypothesis import given, settings
from rich.console import Console

from offload import schedules
from offload.bounds import floor
from offload.compiler import compile_step
from offload.designs import Cost, Placement, Workload, plan_model
from offload.errors import DocumentError, PlanError
from offload.models import head_flops
from offload.plan import Block, Collective, GivenTime, Plan, Tensor
from offload.ranges import in_short
from offload.readers.huggingface import model_of
from offload.report import write_text
from offload.schedules import hideable, schedule, serial
from offload.study import evaluate
from tests.boxes import box, plan_of
from tests.rank_plans import (
    ALL_REDUCE,
    CLOSE,
    HAND,
    HEAD,
    LAYER,
    MODEL,
    POSITION,
    REST,
    ROW,
    SHAPE,
    WORK,
    by_hand,
    loaded,
    placed,
    times,
)
from tests.strategies import placed_ranks, ranked_plans

# --- by placement ---


def test_each_rank_reads_its_part(tmp_path):
    """Four layers on two GPUs with NVLink: halves of weights, cache and FLOP, all of the row, two sums a layer."""
    step = placed(box(nvlink=100e9), hbm_0_1="rest")
    sums = 4 * 2 * ROW  # over a ring of two each sends and receives all of it
    per_gpu = 4 * (LAYER + 100 * POSITION + POSITION) / 2 + HEAD / 2 + ROW + 2 * sums
    flops = (4 * WORK + head_flops(MODEL)) / 2
    assert loaded(step) == {
        "dram0": 2 * ROW, "hbm0": per_gpu, "hbm1": per_gpu, "pcie0.hbm0": ROW, "pcie1.hbm1": ROW,
        **{name: sums for name in ("nv0.nvsw", "nv0.hbm0", "nv1.nvsw", "nv1.hbm1")},
        "gpu0.flops": flops, "gpu1.flops": flops,
    }  # fmt: skip
    assert step.occupied["hbm0"] == step.occupied["hbm1"] == {
        "layer weights": 2 * LAYER, "KV cache": 2 * 100 * POSITION, "new KV": 0, "output head": HEAD / 2,
    }  # fmt: skip
    names = {note for note in step.plan.assumptions if "gpu0..1" in note}
    assert names == {"gpu0..1 work alike: each has an equal part of every matrix and of the KV heads"}


def test_layers_follow_the_sum_of_the_layer_before():
    step = placed(box(nvlink=100e9), hbm_0_1="rest")
    rows = [step.rows[row].name for row in step.instances]
    for i, name in enumerate(rows):
        before = [rows[wait.on] for wait in step.waits[i]]
        if name in ("layer", "head") and i > 2:
            assert "all-reduce" in before
        if name == "all-reduce":
            assert before == ["layer"]
    assert rows.count("all-reduce") == 4 and rows[0].startswith("embedding row")


def test_streamed_to_ranks_over_two_sockets():
    step = placed(box(4, 2, nvlink=100e9), "gpu0..3", dram_0_1="rest")
    found = loaded(step)
    assert found["pcie2.hbm2"] == (4 * LAYER + HEAD) / 4 + ROW
    assert found["dram1"] == (4 * LAYER + HEAD) / 2 and found["dram0"] == (4 * LAYER + HEAD) / 2 + 4 * ROW
    assert found["upi.socket1"] == 2 * ROW, "the embedding row alone crosses over"
    assert step.occupied["hbm3"]["buffers"] == 2 * LAYER / 4 + HEAD / 4
    assert step.occupied["dram1"] == {"layer weights": 2 * LAYER, "output head": HEAD / 2}


def test_some_layers_on_the_ranks_and_some_on_the_cpu():
    """The CPU's row goes to each rank once, whole."""
    step = placed(box(nvlink=100e9), hbm_0_1=3, dram0="rest")
    found = loaded(step)
    assert found["pcie0.hbm0"] == found["pcie1.hbm1"] == ROW
    assert found["cpu0.flops"] == WORK and found["gpu1.flops"] == (3 * WORK + head_flops(MODEL)) / 2
    assert found["dram0"] == LAYER + 101 * POSITION + 2 * ROW


def test_a_rank_that_lacks_the_row_gets_it():
    """Two layers on gpu0 alone, two on four GPUs: the other three need the row, and gpu0 has it in the end."""
    server = box(4, nvlink=100e9)
    step = placed(server, hbm_0_3=2, hbm0="rest")
    moves = [(row.name, dict(row.places)) for row in step.rows if row.transfer and "row" in row.name]
    third = pytest.approx(1 / 3)
    assert moves == [("embedding row to hbm0", {"hbm0": 1.0}),
                     ("hidden row to hbm1..3", {"hbm1": third, "hbm2": third, "hbm3": third})]  # fmt: skip
    assert loaded(step)["nv0.nvsw"] == pytest.approx(3 * ROW + 2 * 2 * 1.5 * ROW)
    moves = [row.name for row in placed(server, hbm2=2, hbm_0_3="rest").rows if row.transfer and "row" in row.name]
    assert moves == ["embedding row to hbm0..3"], "each of the four has it"


def test_more_ranks_than_kv_heads_keep_copies():
    """Eight GPUs, four KV heads: each holds a whole one, so the cache is there twice."""
    step = placed(box(8, nvlink=100e9), hbm_0_7="rest")
    assert [step.occupied[f"hbm{n}"]["KV cache"] for n in range(8)] == [4 * 100 * POSITION // 4] * 8
    two, eight = (loaded(placed(box(8, nvlink=100e9), **{f"hbm_0_{n - 1}": "rest"})) for n in (4, 8))
    sums = [4 * 2 * 2 * share * ROW * 2 for share in (3 / 4, 7 / 8)]
    assert two["hbm0"] - sums[0] == pytest.approx(4 * (LAYER + 101 * POSITION) / 4 + HEAD / 4 + ROW)
    assert eight["hbm0"] - sums[1] == pytest.approx(4 * (LAYER / 8 + 101 * POSITION / 4) + HEAD / 8 + ROW)


def test_kv_of_ranks_in_host_memory():
    found = loaded(placed(box(nvlink=100e9), kv="dram0", hbm_0_1="rest"))
    assert found["pcie0.hbm0"] == 4 * 100 * POSITION / 2 + ROW and found["pcie0.socket0"] == 4 * POSITION / 2
    assert found["dram0"] == 4 * 101 * POSITION + 2 * ROW
    split = loaded(placed(box(4, 2, nvlink=100e9), kv="dram0..1", hbm_0_3="rest"))
    assert split["dram1"] == 4 * 100 * POSITION / 2 + 4 * POSITION / 2
    assert split["pcie3.hbm3"] == 4 * 100 * POSITION / 4 + ROW


@pytest.mark.parametrize("count", [1, 2, 4])
def test_n_alike_with_a_part_of_the_work_are_as_one(count, tmp_path):
    """n GPUs, each with an n-th: as long as one GPU with an n-th (its own link and memory, nothing shared binds)."""

    def text(part: int, names: str) -> str:
        return (f"tensors:\n  w: {{bytes: {part * 400} MB, home: dram0}}\n"
                f"  kv: {{bytes: {part * 40} MB, home: hbm{names}}}\n"
                f"repeat: 8\ntasks:\n  fetch: {{move: w, to: hbm{names}}}\n"
                f"  layer: {{compute: gpu{names}, flops: {part} TFLOP, reads: [w, kv], after: fetch}}\n")  # fmt: skip

    several = by_hand(tmp_path, text(count, f"0..{count - 1}"), box(count))
    one = by_hand(tmp_path, text(1, "0"), box(1))
    assert times(several) == pytest.approx(times(one), rel=1e-12)


@pytest.mark.parametrize("more", [{"hbm0": 2, "dram0": "rest"}, {"hbm0": "rest"}, {"dram0": "rest"}])
def test_a_range_of_one_is_that_one(more, tmp_path):
    plain = placed(box(), "gpu0", **more)
    ranged = placed(box(), "gpu0..0", **{key.replace("hbm0", "hbm_0_0"): value for key, value in more.items()})
    assert loaded(plain) == loaded(ranged) and plain.occupied == ranged.occupied and times(plain) == times(ranged)
    text = HAND.replace("hbm0..1", "hbm0").replace("gpu0..1", "gpu0")
    same = HAND.replace("hbm0..1", "hbm0..0").replace("gpu0..1", "gpu0..0")
    assert times(by_hand(tmp_path, text, box())) == times(by_hand(tmp_path, same, box()))


@pytest.mark.parametrize(("memories", "processors"), [("hbm0, hbm1", "local"), ("hbm1, hbm0", "gpu1, gpu0")])
def test_a_list_of_names_is_the_range_that_it_is(memories, processors):
    asked = Placement(((memories, REST),), processors, reserve=0)
    plan = plan_model(MODEL, box(nvlink=100e9), Workload("decode", 1, 100), asked, weights="bf16")
    assert loaded(compile_step(box(nvlink=100e9), plan)) == loaded(placed(box(nvlink=100e9), hbm_0_1="rest"))


def test_names_in_short():
    assert in_short("hbm1, hbm0") == "hbm0..1" and in_short("gpu3..3") == "gpu3"
    assert in_short("a..b") == "a..b" and in_short("hbm3..1") == "hbm3..1", "what is no range is told later"
    assert in_short("with layer") == "with layer"


def test_ranks_of_two_cpus():
    found = loaded(placed(box(2, 2), "cpu0..1", dram_0_1="rest"))
    sums = 4 * 2 * ROW
    assert found["upi.socket0"] == found["upi.socket1"] - ROW == sums, "the embedding row goes to the other socket"
    assert found["dram1"] == (4 * (LAYER + 101 * POSITION) + HEAD) / 2 + 2 * sums + ROW
    assert not any(name.startswith(("hbm", "pcie")) for name in found)


# --- refused ---

PLACED = """\
model: {config: ./config.json, weights: bf16}
placement:
  weights: {hbm0..1: rest}
  compute: local
"""
REFUSED = [  # text, edits, server, line, parts of the message
    (HAND, [("hbm0..1}\n  layer", "hbm0..9}\n  layer")], box(), 7, ['no memory "hbm2"']),
    (HAND, [("gpu0..1", "gpu0..2")], box(), 8, ['no processor "gpu2"']),
    (HAND, [("home: dram0", "home: ssd0")], box(direct=(0,)), 7, ["not reached alike", "ssd0 -> m2", "(staged)"]),
    (HAND, [("home: dram0", "home: hbm0")], box(nvlink=100e9), 7, ['some of hbm0..1 hold more of "w"', "equal part"]),
    (HAND, [("home: dram0", "home: {hbm0: 50%, dram0: rest}")], box(), 7, ["some of hbm0..1 hold more"]),
    (HAND, [("home: dram0", "home: hbm0..1")], box(), 7, ['"w" is in hbm0..1 already']),
    (HAND, [("home: dram0", "home: {hbm0..1: 50%, hbm1: rest}")], box(), 3, ["hbm1 is named twice"]),
    (HAND, [("home: hbm0..1", "home: hbm0..2")], box(3), 8, ["gpu0 cannot read hbm2 in place"]),
    (HAND, [("reads: [w, kv]", "reads: w, writes: kv"), ("home: hbm0..1", "home: hbm1..2")], box(3), 8,
     ["gpu0 cannot write hbm2 in place"]),
    (ALL_REDUCE, [("sum:", "gpu0:"), ("OVER", "hbm0..1")], box(), 5, ["is a processor", "another name"]),
    (ALL_REDUCE, [("OVER", "hbm0..1")], "no way", 5, ["no route from hbm0 to hbm1"]),
    (PLACED, [("hbm0..1", "hbm0..2")], box(3), 5, ["8 attention heads of config.json", "split evenly over 3",
                                                   "Numbers that do: 1, 2, 4, 8"]),
    (PLACED, [("  compute: local\n", ""), ("hbm0..1", "hbm0..2")], box(3), 3, ["do not split evenly over 3"]),
    (PLACED, [("hbm0..1", "hbm0..5")], box(6), 5, ["8 attention heads"]),
    (PLACED, [("hbm0..1: rest", "ssd0: rest"), ("local", "gpu0..1")], box(direct=(0,)), 4, ["not reached alike"]),
    (PLACED, [("hbm0..1: rest", "hbm0..1: 2 layers, dram0: rest")], "no way", 5, ["no route from hbm0 to hbm1"]),
    (PLACED, [("hbm0..1: rest", "hbm0: 2 layers, dram0: rest"), ("local", "gpu0..1")], box(nvlink=100e9), 4,
     ["hbm0 is a part of the memory of gpu0..1", "Write hbm0..1"]),
    (PLACED, [("local", "local\n  kv: hbm1")], box(nvlink=100e9), 6, ["hbm1 is a part of the memory of gpu0..1"]),
    (PLACED, [("local", "local\n  kv: hbm0, dram0")], box(nvlink=100e9), 6, ["hbm0 is a part of"]),
    (PLACED, [("local", "gpu1..0")], box(), 5, ["runs backwards", "0..1"]),
    (PLACED, [("local", "local\n  kv: hbm0..2")], box(), 6, ['no memory "hbm2"']),
    (PLACED, [("local", "local\ncosts: {hidden row to hbm0: {each: step, time: 1 ms}}")], box(), 6,
     ["a task of the model itself"]),
]  # fmt: skip


def no_way():
    """Two GPUs that nothing joins, not even host memory."""
    from offload.topology import Topology

    parts = box()
    links = [link for link in parts.links.values() if link.name not in ("pcie1",)]
    return Topology.build(name="box", memories=parts.memories.values(), processors=parts.processors.values(),
                          switches=parts.switches.values(), links=links)  # fmt: skip


@pytest.mark.parametrize(("text", "edits", "server", "line", "parts"), REFUSED)
def test_refused_at_its_line(tmp_path, text, edits, server, line, parts):
    import json

    (tmp_path / "config.json").write_text(json.dumps(SHAPE))
    for old, new in edits:
        assert old in text
        text = text.replace(old, new, 1)
    with pytest.raises(DocumentError) as caught:
        plan_of(tmp_path, text, no_way() if server == "no way" else server)
    said = str(caught.value)
    assert [one for one in said.splitlines() if one.startswith(f"  line {line}, ")], said
    assert all(part in said for part in parts), said
    assert "1 mistake\n" in said, said


def test_kv_heads_split_whole():
    """Twelve heads share four KV heads: six processors would each hold one and a half."""
    model = model_of(SHAPE | {"num_attention_heads": 12, "num_key_value_heads": 4, "head_dim": 128}, "twelve")
    with pytest.raises(PlanError, match="the 4 KV heads of twelve do not split evenly over 6 .*do: 1, 2, 4, 12"):
        placed(box(6), model=model, hbm_0_5="rest")
    assert placed(box(4), model=model, hbm_0_3="rest").occupied["hbm3"]["KV cache"] == 100 * 4 * 2 * 128 * 2


def test_ranks_that_share_a_memory():
    from offload.topology import Memory, Processor, Topology
    from tests.boxes import rate

    server = Topology.build(name="box", memories=[Memory("mem", "unified", 10**11, rate(1e11))],
                            processors=[Processor("gpu0", "gpu", "mem"), Processor("gpu1", "gpu", "mem")])  # fmt: skip
    with pytest.raises(PlanError, match=r"placement.compute: gpu0\.\.1 share a memory"):
        placed(server, "gpu0..1", mem="rest")


def test_a_collective_needs_two():
    with pytest.raises(PlanError, match="over two memories or more"):
        tensors = {"x": Tensor("x", 1, (("hbm0", 1.0),))}
        compile_step(box(), Plan("x", tensors, (Block((Collective("sum", "x", ("hbm0",)),)),)))


# --- the report ---


def test_the_report_folds_what_is_alike():
    step = placed(box(4, nvlink=100e9), "gpu0..3", hbm_0_3=2, dram0="rest")
    out = io.StringIO()
    write_text(evaluate(step.topology, step.plan), Console(file=out, width=160))
    text = out.getvalue()
    for name in ("hbm0..3", "pcie0..3.hbm0..3", "gpu0..3.flops", "nv0..3.nvsw", "nv0..3.hbm0..3"):
        assert any(line.split()[:1] == [name] for line in text.splitlines()), (name, text)
    for name in ("hbm2", "pcie1", "gpu3.", "nv2"):
        assert not any(line.startswith(name) for line in text.splitlines()), text
    assert "A range of names: the figures of each one." in text
    assert "gpu0..3 work alike" in text


# --- whatever is asked ---


def given_time(low: float = 1.0) -> GivenTime:
    return GivenTime(low, 2.0, 4.0, low / 2)


def test_a_given_time_has_its_ends():
    for low, ends in ((1.0, (1.0, 4.0)), (0.0, (0.0, 4.0))):
        cost = Cost("sync", "step", given_time(low))
        step = placed(box(), hbm0="rest", costs=(cost,))
        bare = placed(box(), hbm0="rest")
        assert schedule(step).seconds == pytest.approx(schedule(bare).seconds + 2.0)
        assert schedule(step).low == pytest.approx(schedule(bare).low + ends[0])
        assert schedule(step).high == pytest.approx(schedule(bare).high + ends[1])


def ladders(step) -> None:
    peak, sustained = floor(step), floor(step, "value")
    found, alone = schedule(step), serial(step)
    assert peak.seconds <= sustained.seconds * CLOSE and sustained.seconds <= found.seconds * CLOSE
    assert found.seconds <= alone.seconds * CLOSE
    assert peak.cold_seconds <= sustained.cold_seconds * CLOSE
    assert sustained.cold_seconds <= found.cold_seconds * CLOSE and found.cold_seconds <= alone.cold_seconds * CLOSE
    assert found.low <= found.seconds * CLOSE and found.seconds <= found.high * CLOSE
    assert found.seconds <= found.cold_seconds * CLOSE
    for row in step.rows:
        assert all(0 <= use.least <= use.load * CLOSE for use in row.uses)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(ranked_plans())
def test_ladders_by_hand(drawn):
    ladders(compile_step(*drawn))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(placed_ranks())
def test_ladders_by_placement(drawn):
    ladders(compile_step(*drawn))


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(placed_ranks() | ranked_plans())
def test_counting_alike_resources_once_changes_no_time(drawn):
    """Floors may rise: with more than three memories behind caches not every subset of them is tried."""
    step = compile_step(*drawn)
    once = floor(step)
    expected = (*times(step), *_hidden(step))
    with pytest.MonkeyPatch.context() as patch:
        everything = lambda step: (step, {name: () for name in step.resources})  # noqa: E731
        patch.setattr(schedules, "distinct", everything)
        patch.setattr("offload.bounds.distinct", everything)
        each = floor(step)
        found = (*times(step), *_hidden(step))
    if sum(1 for one in step.resources.values() if one.cache and one.peak is not None) > 3:
        assert once.load_seconds == pytest.approx(each.load_seconds, rel=1e-9)
        assert once.cycle_seconds >= each.cycle_seconds * (1 - 1e-9)
        assert once.cold_seconds >= each.cold_seconds * (1 - 1e-9)
        assert found[6:] == pytest.approx(expected[6:], rel=1e-9, abs=1e-12)
        return
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert once.rule == each.rule and set(each.bottleneck) <= set(once.bottleneck)
    # Of two memories that work alike, each behind a cache, one may be left out to spare one cache only.
    assert all(step.resources[name].cache for name in set(once.bottleneck) - set(each.bottleneck))


def _hidden(step) -> tuple[float, float]:
    hidden = hideable(step)
    return (hidden.behind_compute or 0.0, hidden.among_transfers or 0.0)
