"""Replicas of several processors, CPUs beside replicas, and where the collectives of such groups run on a server."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload.bounds import floor
from offload.capacity import room
from offload.compiler import compile_step
from offload.designs import Placement, Portion, Workload, plan_model
from offload.designs.ranks import Parallel
from offload.designs.speculation import Speculation
from offload.documents.plan_file import load_plan
from offload.errors import DocumentError
from offload.exchanges import exchange, exchange_in_groups
from offload.models import attention_flops, kv_bytes, layer_flops, weigh
from offload.plan import Collective, Overlap, Transfer
from offload.schedules import schedule, serial, solo_seconds
from offload.step import loads
from offload.study import evaluate
from offload.topology import Link, Topology
from offload.validation import _moved
from tests.boxes import GB, box, plan_of, rate
from tests.rank_plans import SHAPE
from tests.runs import examples
from tests.strategies import SMALL, costs, ranked_servers, workloads
from tests.test_parallel import (
    ALL,
    HEAD,
    LAYER,
    MIXTURE,
    MIXTURE_SHAPE,
    MODEL,
    POSITION,
    REST,
    ROW,
    SMALL_MIXTURE,
    experts_of,
    placed,
    tasks,
)
from tests.test_ranks_placed import ladders

ROOT = Path(__file__).resolve().parent.parent
TEAMS = Parallel("data", tensor=2)


def wired(topology: Topology, *links: Link) -> Topology:
    """The server with links added, and those of the same names replaced."""
    kept = {one.name: one for one in (*topology.links.values(), *links)}
    return Topology.build(name="box", memories=topology.memories.values(), processors=topology.processors.values(),
                          switches=topology.switches.values(), links=kept.values())  # fmt: skip


def bridges(speed: float, **more) -> Topology:
    """Four GPUs in pairs, each pair with an NVLink bridge."""
    ends = [(f"hbm{2 * n}", f"hbm{2 * n + 1}") for n in (0, 1)]
    return wired(box(4, **more), *(Link(f"bridge{n}", *ends[n], rate(speed), rate(speed), "nvlink") for n in (0, 1)))


def apart(count: int, latency: float) -> Topology:
    """Two servers with GPUs on a switch that lets them reach each other, joined by Ethernet of 1 GB/s each way."""
    return wired(box(count, 2, peers=True, uplink=True),
                 Link("upi", "socket0", "socket1", rate(1e9), rate(1e9), "ethernet", latency=(0.0, latency)))


def found(step, least: bool = False) -> dict[str, float]:
    return {name: load for name, load in loads(step, least).items() if load}


# --- replicas of several ---


def test_two_replicas_of_two_are_two_pairs():
    """Each pair does what a pair by itself does with half of the sequences: same bytes, room and times."""
    four, two = (placed(box(count, nvlink=400e9), parallel, (f"hbm0..{count - 1}", None), batch=batch)
                 for count, parallel, batch in ((4, TEAMS, 6), (2, None, 3)))  # fmt: skip
    for n in range(4):
        assert four.occupied[f"hbm{n}"] == two.occupied["hbm0"]
        assert four.occupied[f"hbm{n}"]["layer weights"] == 2 * LAYER
        for name in ("hbm0", "gpu0.flops", "nv0.nvsw", "nv0.hbm0"):
            for least in (False, True):
                assert found(four, least)[name.replace("0", str(n))] == pytest.approx(found(two, least)[name])
    sums = 4 * 2 * 3 * ROW  # layers, sums, sequences; a ring of two sends all of it once
    assert found(four)["nv3.nvsw"] == sums
    for one in (floor, schedule, serial):
        assert one(four).seconds == pytest.approx(one(two).seconds, rel=1e-9)
    assert four.plan.tokens == 2 * two.plan.tokens
    assert {(task.over, task.groups) for task in tasks(four, Collective)} == {(("hbm0", "hbm1", "hbm2", "hbm3"), 2)}
    said = "\n".join(four.plan.assumptions)
    assert "each of 2 replicas (gpu0..1; gpu2..3) has whole layers and 3 of 6 sequences" in said


def test_bus_bandwidth_is_of_one_pair_s_buffer():
    """What a case counts of sums that were measured: of two ranks all of the buffer, which is a pair's own rows."""
    step = placed(box(4, nvlink=400e9), TEAMS, ("hbm0..3", None), batch=6)
    for counts in ("busbw", "rate"):  # of two ranks the same
        case = SimpleNamespace(measured=SimpleNamespace(of="all-reduce", counts=counts), plan=step.plan,
                               topology=step.topology)  # fmt: skip
        assert _moved(case, step) == 4 * 2 * 3 * ROW == found(step)["nv0.nvsw"]


def test_what_replicas_of_two_fetch():
    """Whole: each link brings half of a layer, host memory gives it twice. Sharded: a quarter, and the other pair's."""
    step = {fetch: placed(box(4, nvlink=400e9), Parallel("data", fetch=fetch, tensor=2), ("dram0", None),
                          compute="gpu0..3", batch=4) for fetch in ("whole", "sharded")}  # fmt: skip
    sums = 4 * 2 * 2 * ROW
    for fetch, times, part, gathered in (("whole", 2, 1 / 2, 0), ("sharded", 1, 1 / 4, 1 / 4)):
        one = found(step[fetch])
        assert one["dram0"] == times * ALL + 2 * 4 * ROW, "and to each of a pair the rows of both its sequences"
        for n in range(4):
            assert one[f"pcie{n}.hbm{n}"] == part * ALL + 2 * ROW
            assert one[f"nv{n}.nvsw"] == one[f"nv{n}.hbm{n}"] == gathered * ALL + sums
            assert found(step[fetch], True)[f"pcie{n}.hbm{n}"] == part * ALL + ROW / 4
        assert step[fetch].occupied["dram0"]["layer weights"] == 4 * LAYER, "one copy for all"
        # Two slots of half a layer each, and half of the head.
        assert step[fetch].occupied["hbm2"]["buffers"] == pytest.approx(2 * LAYER / 2 + HEAD / 2, abs=8)
        assert floor(step[fetch]).seconds == pytest.approx(part * ALL / 20e9, rel=1e-3)
    over = {(task.over, task.groups) for task in tasks(step["sharded"], Collective) if task.kind == "all_gather"}
    assert over == {(("hbm0", "hbm2", "hbm1", "hbm3"), 2)}, "those with the same part of a layer"
    assert {(task.whole, task.team) for task in tasks(step["whole"], Transfer) if "fetch" in task.name} == {(True, 2)}
    # Each GPU reads half of what its replica uses, wherever it was brought from.
    assert found(step["whole"])["hbm1"] == pytest.approx(2 * ALL / 2 + found(
        placed(box(4, nvlink=400e9), TEAMS, ("hbm0..3", None), batch=4))["hbm1"] - ALL / 2)  # fmt: skip


def test_a_cache_may_serve_the_other_replica_and_no_more():
    """Floors count host memory once, and not once for each pair of GPUs: those of a pair bring other bytes."""
    memories = [replace(one, cache=1000) if one.name == "dram0" else one for one in box(4).memories.values()]
    server = box(4)
    server = Topology.build(name="box", memories=memories, processors=server.processors.values(),
                            switches=server.switches.values(), links=server.links.values())  # fmt: skip
    step = placed(server, TEAMS, ("dram0", None), compute="gpu0..3", batch=4)
    without = placed(server, None, ("dram0", None), compute="gpu0..3", batch=4)
    teams, one = (sum(use.least for row in step.rows for use in row.uses if use.resource == "dram0"
                      and row.name.startswith("fetch")) for step in (step, without))  # fmt: skip
    assert teams == one > 0
    assert found(step)["dram0"] > 1.9 * ALL


def test_attention_in_pairs_beside_spread_experts():
    """Eight experts on four GPUs, attention in pairs (as DeepSeek-V3 is served): sums within pairs, rows to all."""
    step = placed(box(4, nvlink=400e9), Parallel("expert", tensor=2, algorithm="ring"), ("hbm0..3", None), batch=16,
                  model=MIXTURE)  # fmt: skip
    exchanged = 4 * 2 * (16 / 4) * 2 * ROW * 3 / 4
    sums = 4 * 1 * 8 * ROW  # once a layer, the rows of eight sequences
    for n in range(4):
        assert found(step)[f"nv{n}.nvsw"] == exchanged + sums
        assert found(step, True)[f"nv{n}.nvsw"] == sums
        assert step.occupied[f"hbm{n}"]["experts"] == experts_of(MIXTURE)
        assert step.occupied[f"hbm{n}"]["layer weights"] == pytest.approx(
            4 * (weigh(MIXTURE, "bf16").layers[0] - experts_of(MIXTURE)) / 2)  # fmt: skip
    one = placed(box(1), None, ("hbm0", None), batch=16, model=MIXTURE)
    assert sum(found(step)[f"gpu{n}.flops"] for n in range(4)) == pytest.approx(found(one)["gpu0.flops"], rel=1e-12)


def test_stages_that_replicas_share_out():
    """Two stages of two GPUs and two replicas: gpu0 and gpu2 are one, gpu1 and gpu3 the other; a row each goes on."""
    step, one = (placed(box(4, peers=True), parallel, *weights, batch=batch) for parallel, weights, batch in (
        (Parallel("data"), [("hbm0..1", 2), ("hbm2..3", None)], 4), (None, [("hbm0", 2), ("hbm2", None)], 2)))
    # The first named have the last layers.
    assert found(step)["pcie2.socket0"] == found(step)["pcie0.hbm0"] == found(one)["pcie0.hbm0"] == 2 * ROW
    assert step.occupied["hbm3"] == one.occupied["hbm2"]
    for figure in (floor, schedule, serial):
        assert figure(step).seconds == pytest.approx(figure(one).seconds)
    assert "2 replicas (gpu2 and gpu0; gpu3 and gpu1)" in "\n".join(step.plan.assumptions)
    pairs = placed(box(8, nvlink=400e9), TEAMS, ("hbm0..3", 2), ("hbm4..7", None), batch=4)
    alone = placed(box(4, nvlink=400e9), None, ("hbm0..1", 2), ("hbm2..3", None), batch=2)
    assert schedule(pairs).seconds == pytest.approx(schedule(alone).seconds)
    assert found(pairs)["nv1.hbm1"] == found(alone)["nv1.hbm1"]


def test_each_replica_drafts_for_itself():
    """A draft model in the replicas' memories is theirs too: what a pair drafts and checks stays within it."""
    asked = Speculation(2, 0.5, MODEL, "bf16", "f16", "hbm0..3", "local")
    two, one = (placed(box(count, nvlink=400e9), parallel, (f"hbm0..{count - 1}", None), workload=Workload(
        "decode", 2 * count // 2, 100, speculation=replace(asked, home=f"hbm0..{count - 1}")))
        for count, parallel in ((4, TEAMS), (2, None)))  # fmt: skip
    for n in range(4):
        assert two.occupied[f"hbm{n}"] == one.occupied["hbm0"]
        assert found(two)[f"nv{n}.nvsw"] == found(one)["nv0.nvsw"]
    assert schedule(two).seconds == pytest.approx(schedule(one).seconds)


def test_room_is_in_whole_replicas():
    step = placed(box(4, capacity=2 * GB, nvlink=400e9), TEAMS, ("hbm0..3", None))
    batch = next(one for one in room(step, []) if one.what == "batch")
    assert batch.most % 2 == 0 and batch.memory == "hbm0..3"
    for count, fits in ((batch.most, True), (batch.most + 2, False)):
        held = placed(box(4, capacity=2 * GB, nvlink=400e9), TEAMS, ("hbm0..3", None), batch=count).occupied["hbm0"]
        assert (sum(held.values()) <= 2 * GB) == fits


# --- a CPU beside replicas ---


@pytest.mark.parametrize("count", [2, 4])
def test_replicas_share_the_cpu(count):
    """llama.cpp's -ngl in each of several replicas: one copy of the CPU's layer, read by each, and times add."""
    step, one = (placed(box(ranks), parallel, (f"hbm0..{ranks - 1}".replace("0..0", "0"), 3), ("dram0", None),
                        batch=ranks) for ranks, parallel in ((count, Parallel("data")), (1, None)))  # fmt: skip
    assert step.occupied["dram0"]["layer weights"] == LAYER
    assert step.occupied["dram0"]["KV cache"] == count * 100 * POSITION / 4
    work = layer_flops(MODEL) + 100 * attention_flops(MODEL)
    assert found(step)["cpu0.flops"] == found(step, True)["cpu0.flops"] == count * work
    seen = 100 * kv_bytes(MODEL, "f16")
    new = kv_bytes(MODEL, "f16")
    assert found(step)["dram0"] == count * (LAYER + seen + new + ROW)
    assert found(step, True)["dram0"] == LAYER + count * (seen + new), "weights once: one may read them for all"
    for n in range(count):
        assert step.occupied[f"hbm{n}"] == one.occupied["hbm0"]
        assert found(step)[f"pcie{n}.hbm{n}"] == ROW == found(step, True)[f"pcie{n}.hbm{n}"]
    cpu = max((LAYER + seen + new) / 100e9, work / 1e12)
    assert schedule(step).seconds - schedule(one).seconds == pytest.approx((count - 1) * cpu, rel=1e-9)
    # What no schedule beats: the CPU's load, or one replica's chain; nothing says that they keep step.
    bound = floor(step, "value")
    gpu = (3 * LAYER + HEAD + 3 * (seen + new)) / 1e12
    assert bound.cycle_seconds == pytest.approx(cpu + gpu + ROW / 20e9, rel=1e-3)
    assert bound.load_seconds == pytest.approx(count * cpu, rel=1e-3)
    assert "cpu0 runs its layers for all" in "\n".join(step.plan.assumptions)


def test_rows_go_to_the_cpu_and_back():
    """Layers of GPUs, then of the CPU, which has the head: each replica sends the rows of its own sequences."""
    step = placed(box(2), Parallel("data"), ("dram0", 1), ("hbm0..1", None), batch=6)
    for n in range(2):
        assert found(step)[f"pcie{n}.hbm{n}"] == found(step)[f"pcie{n}.socket0"] == 3 * ROW
    pairs = placed(box(4, nvlink=400e9), TEAMS, ("dram0", 1), ("hbm0..3", None), batch=6)
    sent = [found(pairs).get(f"pcie{n}.socket0", 0) for n in range(4)]
    assert sent == [3 * ROW, 0, 3 * ROW, 0], "of a pair, whose GPUs have the same sums, one does"
    assert [found(pairs)[f"pcie{n}.hbm{n}"] for n in range(4)] == [3 * ROW] * 4


def test_two_cpus_beside_replicas():
    """Both sockets run the CPU's layer, half of it each, for all replicas."""
    step = placed(box(4, 2), Parallel("data"), ("hbm0..3", 3), ("dram0..1", None), batch=4)
    work = layer_flops(MODEL) + 100 * attention_flops(MODEL)
    for socket in (0, 1):
        assert step.occupied[f"dram{socket}"]["layer weights"] == LAYER / 2
        assert found(step)[f"cpu{socket}.flops"] == 4 * work / 2
    # The opening row to the other socket, two sums of four rows, and what two GPUs there are handed.
    assert found(step)["upi.socket1"] == 4 * ROW + 2 * 4 * ROW + 2 * ROW
    assert {task.groups for task in tasks(step, Collective)} == {1}


# --- collectives of groups, on servers ---


def sum_of(server: Topology, parallel: Parallel, ranks: int = 4, batch: int = 4):
    """(seconds, loads) of one of a step's sums after a layer, two in a row."""
    step = placed(server, parallel, (f"hbm0..{ranks - 1}", None), batch=batch)
    number = [row.name for row in step.rows].index("all-reduce")
    uses = {use.resource: use.load for use in step.rows[number].uses if use.load}
    return solo_seconds(step)[number], uses, step


def test_pairs_over_bridges():
    """Sums of a pair stay on its bridge, at 50 GB/s: two of two rows each; PCIe has none of it."""
    seconds, uses, _ = sum_of(bridges(50e9), TEAMS)
    assert uses.keys() - {f"hbm{n}" for n in range(4)} == {f"bridge{n}.hbm{2 * n + m}" for n in (0, 1) for m in (0, 1)}
    assert uses["bridge1.hbm3"] == 2 * 2 * ROW
    assert seconds == pytest.approx(2 * 2 * ROW / 50e9)
    # All four as one replica must leave the bridges, twice as many bytes and by host memory.
    four, uses, _ = sum_of(bridges(50e9), Parallel())
    assert uses["pcie1.socket0"] == 2 * 4 * ROW * 3 / 2 and uses["dram0"] == 2 * 2 * (2 * 4 * ROW * 3 / 2)
    assert four == pytest.approx(2 * 4 * ROW * Fraction(3, 2) / 20e9)


@pytest.mark.parametrize(
    ("options", "up", "dram", "seconds"),
    [
        # Sums of two rows, two in a row; each rank sends 2 x (n - 1)/n of them, which for two ranks is all.
        ({"peers": True, "uplink": True}, 0, 0, 4 * ROW / 20e9),
        ({"peers": True}, None, 0, 4 * ROW / 20e9),
        # Without peer access by host memory and down again: 4 ranks x 4 rows, written and read there.
        ({}, None, 8 * 4 * ROW, 8 * 4 * ROW / 100e9),
        ({"uplink": True}, 4 * 4 * ROW, 8 * 4 * ROW, 4 * 4 * ROW / 20e9),
    ],
)  # fmt: skip
def test_pairs_over_pcie(options, up, dram, seconds):
    found_seconds, uses, step = sum_of(box(4, **options), TEAMS)
    assert uses["pcie0.socket0" if not options.get("uplink") else "pcie0.sw0"] == 4 * ROW
    assert uses.get("dram0", 0) == dram
    if up is not None:
        assert uses.get("up0.socket0", 0) == uses.get("up0.sw0", 0) == up
    assert found_seconds == pytest.approx(max(seconds, 4 * ROW / 20e9))
    (row,) = {row.apart for row in step.rows if row.name == "all-reduce"}
    assert row == (2 if options.keys() == {"uplink"} else 1 if options else pytest.approx(32 / 20))
    ladders(step)


def test_groups_on_what_they_share_add_up():
    """Two pairs behind one uplink: each has its bytes there, and a path through one pair's sum takes half as long."""
    server = box(4, uplink=True)
    both, apart_by = exchange_in_groups(server, "all_reduce", ("hbm0", "hbm1", "hbm2", "hbm3"), None, 2)
    one = exchange(server, "all_reduce", ("hbm0", "hbm1"), None)
    assert both.loads["up0.sw0"] == one.loads["up0.sw0"] and apart_by == 2, "two halves of a byte"
    assert both.loads["pcie3.hbm3"][1] == one.loads["pcie0.hbm0"][1] / 2
    assert both.sent == one.sent
    switch = exchange_in_groups(box(4, nvlink=400e9), "all_reduce", ("hbm0", "hbm1", "hbm2", "hbm3"), "ring", 2)
    assert switch[1] == 1


def test_a_replica_in_each_server_sends_nothing_between_them():
    """Two servers of two GPUs: pairs within, nothing over Ethernet but rows that the first one embeds; four across."""
    pairs, _, step = sum_of(apart(4, 50e-6), TEAMS)
    assert found(step)["upi.socket1"] == 2 * 2 * ROW and "upi.socket0" not in found(step)
    four, uses, _ = sum_of(apart(4, 50e-6), Parallel(algorithm="ring"))
    assert uses["upi.socket0"] == 2 * 4 * ROW * 3 / 2
    assert pairs == pytest.approx(4 * ROW / 20e9)
    assert four == pytest.approx(2 * (6 * 50e-6 + 4 * ROW * Fraction(3, 2) / 1e9))


def test_stages_over_ethernet():
    """A pair in each server, one after the other (RPC): one row to each of the pair, there and with the head back."""
    step = placed(apart(4, 50e-6), Parallel(), ("hbm0..1", 2), ("hbm2..3", None), batch=1)
    # The embedding's row, then the layers there, then the row to both GPUs of the first server.
    assert found(step)["upi.socket1"] == found(step)["upi.socket0"] == 2 * ROW
    near = placed(apart(4, 0.0), Parallel(), ("hbm0..1", 2), ("hbm2..3", None), batch=1)
    # The row between stages is waited for; that of the embedding is sent while the step before runs. Without latency
    # the two rows meet on the link for a moment.
    assert schedule(step).seconds - schedule(near).seconds == pytest.approx(50e-6, rel=1e-4)
    split = placed(apart(4, 50e-6), Parallel(algorithm="ring"), ("hbm0..3", None), batch=1)
    assert schedule(split).seconds > 8 * 6 * 50e-6 > 10 * schedule(step).seconds


# --- files ---

PLACED = """\
model: {config: config.json, weights: bf16}
workload: {batch: 4, context: 100}
placement:
  weights: {hbm0..3: rest}
  compute: local
  parallel: {by: data, tensor: 2}
"""
WEIGHTS = "hbm0..3: rest"
TENSOR = "parallel: {by: data, tensor: 2}"
BOTH = WEIGHTS + "}\n  compute: local\n  " + TENSOR
REFUSED = [
    (TENSOR, "parallel: {by: data, tensor: 3}", 7, ["tensor: 4 processors (gpu0..3)", "Numbers that do: 2."]),
    (TENSOR, "parallel: {by: data, tensor: 4}", 7, ["would be one replica", "Write by: tensor"]),
    (TENSOR, "parallel: {by: expert, tensor: 1}", 7, ["Drop it"]),
    (TENSOR, "parallel: {by: data, tensor: 0}", 7, ["1"]),
    (TENSOR, "parallel: {tensor: 2}", 7, ["all of a range do", "by: data"]),
    (TENSOR, "parallel: {by: expert, attention: tensor, tensor: 2}", 7, ["all processors share attention"]),
    (TENSOR, "parallel: {by: data, tensor: 2, algorithm: pairwse}", 7, ['unknown "pairwse"', '"pairwise"']),
    (TENSOR, "parallel: {by: data, tensor: 2, algorithm: in_network}", 7, ["no switch that adds up joins hbm0..1"]),
    ("batch: 4", "batch: 3", 3, ["3 sequences do not split evenly over 2 replicas", "Write 2 or 4"]),
    (BOTH, "hbm0..1: 2 layers, hbm2: rest}\n  parallel: data", 6, ["gpu2 would run layers of all 2", "a range of 2"]),
    (BOTH, "hbm0..1: 2 layers, hbm2..4: rest}\n  parallel: data", 6, ["gpu0..1 and gpu2..4 are not equally many"]),
    (WEIGHTS, "hbm0..1: 1 layers, hbm2..3: rest", 7, ["would be one replica"]),
    (WEIGHTS, "hbm0..3: 2 layers, ssd0: rest", 5, ["cpu0 runs what lives in ssd0 for 2 replicas", "dram0"]),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "line", "parts"), REFUSED)
def test_refused_at_its_line(tmp_path, old, new, line, parts):
    (tmp_path / "config.json").write_text(json.dumps(SHAPE))
    with pytest.raises(DocumentError) as caught:
        plan_of(tmp_path, PLACED.replace(old, new), box(5, nvlink=400e9))
    said = str(caught.value)
    assert [one for one in said.splitlines() if one.startswith(f"  line {line}, ")], said
    assert all(part in said for part in parts), said


# --- whatever is asked ---


@st.composite
def teams_drawn(draw):
    """A server of four GPUs and replicas on it: teams or not, stages or layers of the CPU or streamed ones."""
    topology = draw(ranked_servers([4]))
    by = draw(st.sampled_from(["data", "data", "data", "expert"]))
    model = SMALL_MIXTURE if by == "expert" else draw(st.sampled_from([*SMALL, SMALL_MIXTURE]))
    drams = f"dram0..{sum(name.startswith('dram') for name in topology.memories) - 1}".replace("dram0..0", "dram0")
    kind = "streamed" if by == "expert" else draw(st.sampled_from(["streamed", "cpu", "cpu", "stages"]))
    near = draw(st.integers(0 if kind == "streamed" else 1, model.layers))
    tensor = None if kind == "stages" else draw(st.sampled_from([2, 2, None]))
    fetch = draw(st.sampled_from([None, "whole", "sharded"])) if kind == "streamed" else None
    algorithm = draw(st.sampled_from([None, "ring"])) if tensor else None
    first, far, compute = {
        "streamed": ("hbm0..3", draw(st.sampled_from([drams, "dram0", "ssd0"])), "gpu0..3"),
        "cpu": ("hbm0..3", draw(st.sampled_from([drams, "dram0"])), "local"),
        "stages": ("hbm0..1", "hbm2..3", "local"),
    }[kind]
    weights = [(first, Portion("layers", near)), (far, REST)]
    access = "in_place" if kind == "streamed" and far != "ssd0" and fetch is None and draw(st.booleans()) else "copy"
    placement = Placement(
        tuple(weights if draw(st.booleans()) else weights[::-1]), compute,
        draw(st.sampled_from(["with layer", "with layer", "dram0"][:2 if far == "dram0..1" else 3])), 0,
        draw(st.sampled_from(["pinned", "pageable", "page cache"])), (), draw(costs()), access=access,
        parallel=Parallel(by, algorithm, fetch, None, tensor))  # fmt: skip
    asked = draw(workloads())
    asked = replace(asked, batch=4 * asked.batch)
    overlap = Overlap("buffers", draw(st.sampled_from([1, 2, 3, 0])))
    return topology, plan_model(model, topology, asked, placement, weights="bf16", overlap=overlap)


@pytest.mark.slow
@examples(60, 150)
@given(teams_drawn())
def test_ladders_of_teams(drawn):
    """floor <= floor at sustained rates <= expected <= serial, of steps in turn and of one alone."""
    step = compile_step(*drawn)
    ladders(step)
    close = 1 + 1e-12
    low, middle, expected, most = (one.seconds for one in (
        floor(step), floor(step, "value"), schedule(step), serial(step)))  # fmt: skip
    assert low <= middle * close and middle <= expected * close and expected <= most * close
    assert all(0 <= use.least <= use.load * close for row in step.rows for use in row.uses)


WORDS = {
    "weights": ["{hbm0..3: rest}", "{dram0: rest}", "{hbm0..3: 2 layers, dram0: rest}",
                "{dram0: 1 layers, hbm0..3: rest}", "{hbm0..1: 2 layers, hbm2..3: rest}",
                "{hbm0..3: 2 layers, dram0..1: rest}", "{hbm0..3: 3 layers, ssd0: rest}"],
    "compute": ["local", "local", "gpu0..3", "gpu2"],
    "parallel": ["data", "{by: data, tensor: 2}", "{by: data, tensor: 2, algorithm: ring}",
                 "{by: data, tensor: 2, fetch: sharded}", "{by: data, tensor: 2, fetch: whole, algorithm: pairwise}",
                 "{by: expert, tensor: 2}", "{by: data, tensor: 4}", "{by: data, tensor: 2, algorithm: in_network}"],
    "kv": ["with layer", "with layer", "dram0", "hbm0..3", "{with layer: 60%, dram0: rest}"],
    "access": ["copy", "copy", "in_place"],
    "workload": ["{batch: 4, context: 60}", "{phase: prefill, batch: 4, prompt: 30}", "{batch: 3}",
                 "{batch: 4, in_flight: 2}", "{phase: generate, batch: 4, prompt: 20, generate: 4}",
                 "{phase: prefill, batch: 2, prompt: 30, chunk: 10}",
                 "{phase: prefill, batch: 4, prompt: 9, cached: 50%}"],
    "more": ["", "  page_cache: dram0\n", "  hand_over: ssd0\n", "  attention: cpu0\n", "  kv_block: {tokens: 16}\n",
             "costs: {sync: {each: layer, time: 20 us}}\n", "costs: {sync: {each: hand-over, time: 20 us}}\n"],
    "server": [box(4, nvlink=400e9), box(4, 2), box(4, peers=True, uplink=True), box(4, 2, nvlink=400e9)],
    "shape": [SHAPE, SHAPE, MIXTURE_SHAPE],
}  # fmt: skip


@examples(40, 80)
@given(st.fixed_dictionaries({key: st.sampled_from(values) for key, values in WORDS.items()}))
def test_any_words_are_refused_or_answered(tmp_path_factory, said):
    """A combination of words is refused at its line, or all of its figures are sound."""
    folder = tmp_path_factory.mktemp("words")
    (folder / "config.json").write_text(json.dumps(said["shape"]))
    text = (f"model: {{config: config.json, weights: bf16}}\nworkload: {said['workload']}\nplacement:\n" + "".join(
        f"  {key}: {said[key]}\n" for key in ("weights", "compute", "parallel", "kv", "access")) + said["more"])
    try:
        plan = plan_of(folder, text, said["server"])
    except DocumentError as error:
        assert "  line " in str(error) and "Traceback" not in str(error)
        return
    answered = evaluate(said["server"], plan)
    assert 0 < answered.floor.seconds <= answered.overlapped.seconds * (1 + 1e-9)
    assert answered.overlapped.seconds <= answered.serial.seconds * (1 + 1e-8)
    assert all(row.used >= 0 for row in answered.memory)


def test_examples():
    """What the examples are for: a second replica on one CPU gains 3 %; two of four GPUs are behind one of eight."""
    share, four = (compile_step(topology, plan) for plan, topology in (
        load_plan(ROOT / "examples" / f"{name}.yaml")
        for name in ("replicas-that-share-the-cpu", "replicas-of-four-gpus")))  # fmt: skip
    one, eight = ((model, workload, placement, weights, kv) for model, workload, placement, weights, kv in (
        share.plan.origin, four.plan.origin))  # fmt: skip
    alone = plan_model(one[0], share.topology, replace(one[1], batch=1), replace(
        one[2], weights=(("hbm0", one[2].weights[0][1]), one[2].weights[1]), parallel=None), weights=one[3])
    whole = plan_model(eight[0], four.topology, eight[1], replace(
        eight[2], parallel=Parallel(algorithm="ring")), weights=eight[3])  # fmt: skip
    rates = [step.plan.tokens / schedule(step).seconds for step in (
        share, compile_step(share.topology, alone), four, compile_step(four.topology, whole))]  # fmt: skip
    # 80 layers, two sums of 32 rows of 8192 numbers, each sent 2 x 3/4 times by a rank of four.
    assert found(four)["nvlink5.nvswitch0"] == 80 * 2 * 32 * 8192 * 2 * 3 // 2
    assert rates == pytest.approx([2.234, 2.17, 3564, 4271], rel=0.005)
