"""Ranks by placement: named algorithms, replicas that fetch whole or sharded, spread experts, and layers in turn."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from offload.bounds import floor
from offload.capacity import room
from offload.compiler import compile_step
from offload.designs import Placement, Portion, Workload, plan_model
from offload.designs.ranks import Parallel
from offload.errors import DocumentError, PlanError
from offload.models import head_flops, kv_bytes, weigh
from offload.models.weights import layer_tensors
from offload.plan import Collective, Compute, Overlap
from offload.readers.huggingface import model_of
from offload.schedules import schedule, serial, solo_seconds
from offload.step import loads
from offload.study import evaluate
from offload.topology import Topology
from tests.boxes import GB, box, plan_of, rate
from tests.rank_plans import SHAPE
from tests.runs import examples
from tests.strategies import SMALL, costs, ranked_servers, workloads

REST = Portion("rest")
MODEL = model_of(SHAPE, "small")
LAYER = weigh(MODEL, "bf16").layers[0]
HEAD = weigh(MODEL, "bf16").head + weigh(MODEL, "bf16").norm
ALL = 4 * LAYER + HEAD  # what a step reads of weights
ROW = 2 * 1024
POSITION = 4 * kv_bytes(MODEL, "f16")  # of all layers
MIXTURE_SHAPE = SHAPE | {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
MIXTURE = model_of(MIXTURE_SHAPE, "mixture")
DATA, SHARDED, EXPERT = Parallel("data"), Parallel("data", fetch="sharded"), Parallel("expert")


def changed(topology: Topology, *, links=(), switches=(), memories=()) -> Topology:
    """The server with functions over its links, switches and memories applied."""
    def each(parts, edits):
        for edit in edits:
            parts = [edit(one) for one in parts]
        return parts

    return Topology.build(
        name="box", memories=each(list(topology.memories.values()), memories), processors=topology.processors.values(),
        switches=each(list(topology.switches.values()), switches), links=each(list(topology.links.values()), links),
    )  # fmt: skip


def placed(topology, parallel, *weights, compute="local", batch=2, context=100, model=MODEL, workload=None,
           overlap=None, **more):
    """Step of a placement; weights : memories with how many layers (or the rest)."""
    portions = tuple((name, REST if count is None else Portion("layers", count)) for name, count in weights)
    placement = Placement(portions, compute, reserve=0, parallel=parallel, **more)
    asked = workload or Workload("decode", batch, context)
    return compile_step(topology, plan_model(model, topology, asked, placement, weights="bf16", overlap=overlap))


def tasks(step, kind):
    return [task for block in step.plan.blocks for task in block.tasks if isinstance(task, kind)]


# --- tensor parallel by a named algorithm ---


def slow_nvlink(count: int, alpha: float) -> Topology:
    """GPUs on an NVSwitch that adds up; a way between two takes `alpha`."""
    return changed(box(count, nvlink=400e9),
                   links=[lambda one: replace(one, latency=(0.0, alpha / 2)) if one.name.startswith("nv") else one],
                   switches=[lambda one: replace(one, reduces=one.kind == "nvswitch")])  # fmt: skip


@pytest.mark.parametrize(
    ("algorithm", "sent", "seconds"),
    [
        # W61: 8 GB over eight at 400 GB/s, 5 us a step.
        ("ring", 7 / 4, 3507 / 100_000),
        ("rabenseifner", 7 / 4, 3503 / 100_000),
        ("recursive_doubling", 3, 60_015 / 10**6),
        ("in_network", 9 / 8, 225 / 10_000 + 2 * 5e-6),
        (None, 7 / 4, 35 / 1000 + 2 * 5e-6),
    ],
)
def test_an_algorithm_s_bytes_and_steps(algorithm, sent, seconds):
    """W61 by placement: a batch whose hidden rows are 8 GB, summed twice a layer."""
    size = 8 * GB
    step = placed(slow_nvlink(8, 5e-6), Parallel(algorithm=algorithm), ("hbm0..7", None),
                  workload=Workload("decode", size // ROW, 1))  # fmt: skip
    (number,) = {n for n, row in enumerate(step.rows) if row.name == "all-reduce"} - {0, 1, 2}
    assert solo_seconds(step)[number] == pytest.approx(2 * seconds, rel=1e-12)
    assert loads(step, least=False)["nv3.nvsw"] == pytest.approx(8 * sent * size, rel=1e-12)
    surely = {None: 1, "in_network": 1}.get(algorithm, sent)
    assert loads(step, least=True)["nv3.nvsw"] == pytest.approx(8 * surely * size, rel=1e-12)


def test_a_cut_between_two_islands():
    """W62: what is summed crosses the 10 GB/s between two islands once a sum, whatever the algorithm."""
    step = placed(box(4, 2, peers=True, pcie=25e9, upi=10e9), Parallel(), ("hbm0..3", None),
                  workload=Workload("decode", 10 * GB // (8 * ROW), 1))  # fmt: skip
    row = 10 * GB // (8 * ROW) * ROW
    assert loads(step, least=True)["upi.socket1"] == pytest.approx(8 * row + 2 * ROW)  # and one row of the embedding
    assert loads(step, least=True)["upi.socket0"] / 10e9 == pytest.approx(1.0, rel=1e-5)


def test_a_switch_must_add_up():
    with pytest.raises(PlanError, match=r"^placement\.parallel\.algorithm: no switch that adds up joins hbm0\.\.7"):
        placed(box(8, nvlink=400e9), Parallel(algorithm="in_network"), ("hbm0..7", None))


def test_without_peer_access_a_shared_uplink_carries_it_up_and_down():
    """NCCL 1086: two cards under one switch are slower than two on two sockets: the uplink is passed twice."""
    one = placed(box(2, uplink=True), Parallel(algorithm="ring"), ("hbm0..1", None))
    two = placed(box(2, 2, uplink=True), Parallel(algorithm="ring"), ("hbm0..1", None))
    peers = placed(box(2, uplink=True, peers=True), Parallel(algorithm="ring"), ("hbm0..1", None))
    sums = 8 * 2 * ROW  # batch 2
    assert loads(one, False)["up0.sw0"] - loads(two, False)["up0.sw0"] == pytest.approx(sums + 2 * ROW)
    assert loads(one, False)["up0.socket0"] == pytest.approx(2 * sums) and "up0.socket0" not in loads(peers, False)
    times = [solo_seconds(step)[[row.name for row in step.rows].index("all-reduce")] for step in (one, two, peers)]
    assert times[0] == pytest.approx(2 * times[1]) and times[2] == pytest.approx(times[1])


# --- replicas ---


def test_replicas_hold_whole_layers_and_a_share_of_the_batch():
    step, tensor, one = (
        placed(box(2, peers=True), parallel, (where, None), batch=batch)
        for parallel, where, batch in ((DATA, "hbm0..1", 6), (None, "hbm0..1", 6), (None, "hbm0", 3))
    )  # fmt: skip
    assert not tasks(step, Collective)
    for n in (0, 1):
        assert step.occupied[f"hbm{n}"] == {"layer weights": 4 * LAYER, "KV cache": 3 * 100 * POSITION, "new KV": 0,
                                            "output head": HEAD}  # fmt: skip
        for least in (False, True):
            assert loads(step, least)[f"hbm{n}"] == pytest.approx(loads(one, least)["hbm0"])
        assert loads(step, False)[f"gpu{n}.flops"] == loads(one, False)["gpu0.flops"]
    assert floor(step).seconds == pytest.approx(floor(one).seconds) and step.plan.tokens == 2 * one.plan.tokens
    assert loads(tensor, False)["hbm0"] < loads(step, False)["hbm0"]


SERVERS = {
    "root ports": (box(2, nvlink=400e9), box(1)),
    "an uplink": (box(2, nvlink=400e9, uplink=True), box(1, uplink=True)),
}


@pytest.mark.parametrize("name", SERVERS)
def test_whole_and_sharded_fetches(name):
    """Sharded, each link carries half; where both links share an uplink a step is no shorter than on one GPU."""
    two, single = SERVERS[name]
    one = placed(single, None, ("dram0", None), compute="gpu0", batch=1)
    whole, sharded = (placed(two, parallel, ("dram0", None), compute="gpu0..1", batch=2)
                      for parallel in (DATA, SHARDED))  # fmt: skip
    for step, times, link, rest in ((whole, 2, 1, 0), (sharded, 1, 0.5, 0.5)):
        found, least = loads(step, False), loads(step, True)
        assert found["dram0"] == pytest.approx(times * ALL + 2 * ROW)
        for n in (0, 1):
            assert found[f"pcie{n}.hbm{n}"] == pytest.approx(link * ALL + ROW)
            assert found.get(f"nv{n}.nvsw", 0) == pytest.approx(rest * ALL)
            assert least[f"pcie{n}.hbm{n}"] == found[f"pcie{n}.hbm{n}"] - ROW / 2  # one row of the embedding for both
        if name == "an uplink":
            assert found["up0.sw0"] == least["up0.sw0"] + ROW == pytest.approx(times * ALL + 2 * ROW)
            assert floor(step).bottleneck == ("up0.sw0",)
    assert not tasks(whole, Collective)
    assert [task.kind for task in tasks(sharded, Collective)] == ["all_gather"] * len(tasks(sharded, Collective))
    alone = floor(one).seconds
    expected = {"root ports": (1, 0.5), "an uplink": (2, 1)}[name]
    for step, factor in zip((whole, sharded), expected, strict=True):
        assert floor(step).seconds == pytest.approx(factor * alone, rel=1e-3)
        assert schedule(step).seconds == pytest.approx(factor * schedule(one).seconds, rel=0.1)
        # Each GPU reads all of what it uses.
        assert loads(step, False)["gpu0.flops"] == loads(one, False)["gpu0.flops"]
        assert [task for task in tasks(step, Compute) if task.name == "head"][0].flops == 2 * head_flops(MODEL)


def test_gathering_over_pcie_gains_nothing_on_the_links():
    """Peers over PCIe get the other half by the same link; without peer access by host memory, which has more then."""
    whole, peers, staged = (
        placed(box(2, peers=peer), parallel, ("dram0", None), compute="gpu0..1")
        for parallel, peer in ((DATA, True), (SHARDED, True), (SHARDED, None))
    )  # fmt: skip
    found = [loads(step, False) for step in (whole, peers, staged)]
    assert [one["pcie0.hbm0"] for one in found] == pytest.approx([ALL + ROW] * 3)
    assert [one["dram0"] - 2 * ROW for one in found] == pytest.approx([2 * ALL, ALL, 3 * ALL])
    assert floor(peers).seconds == pytest.approx(floor(whole).seconds)


def test_places_of_gathered_layers():
    """Two slots of a layer in each: its own half by the fetch, the other half by the gathering."""
    for buffers, count in ((1, 1), (2, 2), (0, 4)):
        step = placed(box(2, nvlink=400e9), SHARDED, ("dram0", None), compute="gpu0..1",
                      overlap=Overlap("buffers", buffers))  # fmt: skip
        whole = placed(box(2, nvlink=400e9), DATA, ("dram0", None), compute="gpu0..1",
                       overlap=Overlap("buffers", buffers))  # fmt: skip
        assert step.occupied["hbm1"]["buffers"] == pytest.approx(count * LAYER + HEAD, abs=8)
        assert step.occupied["hbm1"] == pytest.approx(whole.occupied["hbm1"], abs=8)
        assert step.occupied["dram0"]["layer weights"] == 4 * LAYER, "one copy for all"


def test_a_gathered_layer_waits_for_its_place():
    """With one slot nothing is fetched while its layer computes, so times add."""
    one, two = (placed(box(2, nvlink=400e9), SHARDED, ("dram0", None), compute="gpu0..1", batch=2 * 4000,
                       overlap=Overlap("buffers", buffers)) for buffers in (1, 2))  # fmt: skip
    assert schedule(one).seconds > 1.2 * schedule(two).seconds


def test_replicas_share_host_memory_and_drives():
    """Eight replicas: host memory and the drive carry each byte eight times, and the shared one binds."""
    for home, shared, speed in (("dram0", "dram0", 100e9), ("ssd0", "ssd0.read", 5e9)):
        one, eight = (placed(box(count), parallel, (home, None), compute=gpus, batch=count)
                      for count, parallel, gpus in ((1, None, "gpu0"), (8, DATA, "gpu0..7")))  # fmt: skip
        assert loads(eight, True)[shared] == pytest.approx(8 * loads(one, True)[shared], rel=1e-3)
        assert floor(eight).bottleneck == (shared,)
        assert floor(eight).seconds == pytest.approx(8 * ALL / speed, rel=1e-3)
        assert schedule(eight).seconds >= floor(eight).seconds


def test_a_cache_may_serve_the_other_replicas():
    """Floors count once what a CPU's cache may give to all of them; the schedule counts each."""
    server = changed(box(2), memories=[lambda one: replace(one, cache=10**6) if one.name == "dram0" else one])
    step = placed(server, DATA, ("dram0", None), compute="gpu0..1")
    assert loads(step, False)["dram0"] == pytest.approx(2 * ALL + 2 * ROW)
    assert loads(step, True)["dram0"] <= ALL + 2 * ROW
    assert loads(step, True)["pcie1.hbm1"] == pytest.approx(ALL + ROW / 2)
    by_cache = placed(box(2), DATA, ("ssd0", None), compute="gpu0..1", host_memory="page cache")
    assert loads(by_cache, False)["ssd0.read"] == pytest.approx(2 * ALL)
    assert loads(by_cache, True)["ssd0.read"] == pytest.approx(ALL)


def test_replicas_that_read_in_place():
    step = placed(box(2), DATA, ("dram0", 3), ("hbm0..1", None), compute="gpu0..1", access="in_place")
    found = loads(step, False)
    assert found["pcie0.hbm0"] == pytest.approx(3 * LAYER + HEAD + ROW)
    assert step.occupied["dram0"]["layer weights"] == 3 * LAYER
    assert found["dram0"] == pytest.approx(2 * (3 * LAYER + HEAD) + 2 * ROW)
    least = loads(step, True)
    assert (least["pcie1.hbm1"], least["dram0"]) == (found["pcie1.hbm1"] - ROW / 2, found["dram0"] - 2 * ROW)
    cached = changed(box(2), memories=[lambda one: replace(one, cache=1000) if one.name == "dram0" else one])
    step = placed(cached, DATA, ("dram0", 3), ("hbm0..1", None), compute="gpu0..1", access="in_place")
    least = loads(step, True)
    assert least["pcie1.hbm1"] == found["pcie1.hbm1"] - ROW / 2 and least["dram0"] <= 3 * LAYER + HEAD + 2 * ROW


def test_kv_of_replicas_in_host_memory():
    step = placed(box(2), DATA, ("hbm0..1", None), batch=4, kv="dram0")
    assert step.occupied["dram0"]["KV cache"] == 4 * 100 * POSITION
    assert loads(step, False)["pcie0.hbm0"] == pytest.approx(2 * 99 * POSITION + 2 * POSITION + 2 * ROW, rel=0.02)


def test_sockets_with_a_copy_each():
    """Weights in both sockets' memories, each CPU with its own copy: nothing crosses."""
    step = placed(box(2, 2), DATA, ("dram0..1", None), batch=2)
    assert step.occupied["dram1"]["layer weights"] == 4 * LAYER
    assert loads(step, False)["upi.socket1"] == ROW  # of the embedding


def test_room_is_in_whole_shares():
    step = placed(box(2, capacity=2 * GB), DATA, ("hbm0..1", None))
    batch = next(one for one in room(step, []) if one.what == "batch")
    assert batch.most % 2 == 0 and batch.memory == "hbm0..1"
    for count, fits in ((batch.most, True), (batch.most + 2, False)):
        held = placed(box(2, capacity=2 * GB), DATA, ("hbm0..1", None), batch=count).occupied["hbm0"]
        assert (sum(held.values()) <= 2 * GB) == fits


# --- experts ---


def experts_of(model) -> int:
    return sum(size for one, size in layer_tensors(model, "bf16")[0] if one.used is not None)


@pytest.mark.parametrize(("peers", "nvlink"), [(None, 400e9), (True, 0), (None, 0)])
def test_spread_experts(peers, nvlink):
    """Each of four has all but the experts, and two of eight: rows go out and back, three of four to other ranks."""
    server = box(4, peers=peers, nvlink=nvlink)
    step = placed(server, EXPERT, ("hbm0..3", None), batch=16, model=MIXTURE)
    exchanged = 4 * 2 * (16 / 4) * 2 * ROW * 3 / 4  # layers, both ways, rows of a rank, experts, what leaves it
    found, least = loads(step, False), loads(step, True)
    for n in range(4):
        out = f"nv{n}.nvsw" if nvlink else f"pcie{n}.socket0"
        assert found[out] == pytest.approx(exchanged) and least.get(out, 0) == 0
        assert step.occupied[f"hbm{n}"]["experts"] == experts_of(MIXTURE)  # of 4 layers a quarter
    kinds = [task.kind for block in step.plan.blocks for task in block.tasks for _ in range(block.repeat)
             if isinstance(task, Collective)]  # fmt: skip
    assert kinds == ["all_to_all"] * 8
    if not nvlink:
        assert found.get("dram0", 0) == pytest.approx(16 * ROW + (0 if peers else 2 * 4 * exchanged))
    # What a step reads of experts: all that 16 tokens choose, expected, and two at least.
    distinct = 8 * (1 - (1 - 2 / 8) ** 16)
    read = {name: sum(block.repeat * getattr(step.plan.tensors[tensor], name) for block in step.plan.blocks
                      for task in block.tasks if isinstance(task, Compute) for tensor in task.reads
                      if step.plan.tensors[tensor].what == "experts") for name in ("bytes", "least")}  # fmt: skip
    assert read["bytes"] == pytest.approx(4 * distinct / 8 * experts_of(MIXTURE))
    assert read["least"] == pytest.approx(4 * 2 / 8 * experts_of(MIXTURE))


def test_spread_experts_beside_tensor_parallel_attention():
    step = placed(box(4, nvlink=400e9), Parallel("expert", attention="tensor", algorithm="ring"), ("hbm0..3", None),
                  batch=16, model=MIXTURE)  # fmt: skip
    sums = {task.kind: (task.times, task.algorithm) for task in tasks(step, Collective)}
    assert sums == {"all_reduce": (1, "ring"), "all_to_all": (1, None)}
    exchanged = 4 * 2 * (16 / 4) * 2 * ROW * 3 / 4
    assert loads(step, False)["nv0.nvsw"] == pytest.approx(exchanged + 4 * 16 * ROW * 3 / 2)
    assert loads(step, True)["nv0.nvsw"] == pytest.approx(4 * 16 * ROW * 3 / 2)


def test_work_of_spread_experts_is_that_of_one_gpu():
    """No FLOP and no byte is lost: data parallel attention reads its weights on each rank."""
    one = placed(box(1), None, ("hbm0", None), batch=16, model=MIXTURE)
    step = placed(box(4, nvlink=400e9), EXPERT, ("hbm0..3", None), batch=16, model=MIXTURE)
    flops = [sum(loads(step, False)[f"gpu{n}.flops"] for n in range(count)) for step, count in ((one, 1), (step, 4))]
    assert flops[0] == pytest.approx(flops[1], rel=1e-12)
    rest = weigh(MIXTURE, "bf16").layers[0] - experts_of(MIXTURE)
    weights = sum(sum(parts[what] for what in ("layer weights", "experts"))
                  for memory, parts in step.occupied.items() if memory.startswith("hbm"))  # fmt: skip
    assert weights == pytest.approx(one.occupied["hbm0"]["layer weights"] + 3 * 4 * rest)


# --- layers in turn against layers in parts ---


def test_layer_split_adds_times_and_tensor_split_bandwidth():
    server = box(2, nvlink=400e9)
    one = placed(server, None, ("hbm0", None))
    split = placed(server, None, ("hbm0", 2), ("hbm1", None))
    several = placed(server, None, ("hbm0", 2), ("hbm1", None), workload=Workload("decode", 2, 100, 2))
    tensor = placed(server, Parallel(algorithm="ring"), ("hbm0..1", None))
    assert schedule(split).seconds == pytest.approx(schedule(one).seconds, rel=1e-3)
    assert floor(split).seconds == pytest.approx(floor(one).seconds, rel=1e-3)
    assert 0.5 <= schedule(several).seconds / schedule(one).seconds < 0.75, "two at once, the head on one of them"
    assert schedule(tensor).seconds == pytest.approx(schedule(one).seconds / 2, rel=0.05)
    rows = {row.name for row in split.rows}
    assert rows >= {"hidden row to hbm0"} and not tasks(split, Collective)
    said = "\n".join(split.plan.assumptions)
    assert "capacity adds up, bandwidth does not" in said and "pass 1 x 4.1 kB of hidden rows" in said
    assert "capacity adds up" not in "\n".join(tensor.plan.assumptions)
    assert "2 steps in flight" in "\n".join(several.plan.assumptions)


def test_groups_of_ranks_in_turn():
    """Two groups of two, one after the other: each is tensor parallel, times add, a row goes to each of the next."""
    step, two, four = (placed(box(4, nvlink=400e9), Parallel(algorithm="ring"), *weights) for weights in (
        [("hbm0..1", 2), ("hbm2..3", None)], [("hbm0..1", None)], [("hbm0..3", None)]))  # fmt: skip
    assert schedule(step).seconds == pytest.approx(schedule(two).seconds, rel=0.01)
    assert schedule(four).seconds < 0.6 * schedule(two).seconds
    assert loads(step, False)["nv1.hbm1"] == pytest.approx(2 * 2 * 2 * ROW + 2 * ROW)  # sums of two layers, and a row
    assert "the layers on gpu2..3 and gpu0..1 run one after another" in "\n".join(step.plan.assumptions)


def test_nvlink_carries_nothing_of_what_is_streamed():
    said = {name: "\n".join(placed(server, parallel, ("dram0", None), compute="gpu0..1").plan.assumptions)
            for name, server, parallel in (("nvlink", box(2, nvlink=400e9), None), ("none", box(2, peers=True), None),
                                           ("sharded", box(2, nvlink=400e9), SHARDED))}  # fmt: skip
    assert ["which NVLink does not widen" in said[name] for name in ("nvlink", "none", "sharded")] == [
        True, False, False]  # fmt: skip


# --- files ---

PLACED = """\
model: {config: config.json, weights: bf16}
workload: {batch: 2, context: 100}
placement:
  weights: {hbm0..1: rest}
  compute: local
  parallel: data
"""
STREAMED = PLACED.replace("hbm0..1", "dram0").replace("local", "gpu0..1")
REFUSED = [
    (PLACED, "parallel: datum", 7, ['unknown "datum"', "Allowed: data, expert, tensor", 'Did you mean "data"?']),
    (PLACED, "parallel: [data]", 7, ["must be a map"]),
    (PLACED, "parallel: {by: data, fetsh: whole}", 7, ['unknown key "fetsh"', "fetch"]),
    (PLACED, "parallel: {by: data, fetch: whole}", 7, ["nothing is fetched"]),
    (PLACED, "parallel: {fetch: sharded}", 7, ["each rank fetches its own part", "by: data"]),
    (PLACED, "parallel: {by: data, algorithm: ring}", 7, ["exchange nothing", "fetch: sharded"]),
    (PLACED, "parallel: {by: data, attention: tensor}", 7, ["by: expert"]),
    (PLACED, "parallel: {algorithm: rign}", 7, ['unknown "rign"', '"ring"']),
    (PLACED, "parallel: {algorithm: in_network}", 7, ["no switch that adds up", "reduces: true"]),
    (PLACED, "parallel: expert", 7, ["has no experts to spread", "tensor or data"]),
    (PLACED.replace("hbm0..1", "hbm0"), "parallel: data", 7, ["no layer runs on several processors"]),
    (PLACED.replace("hbm0..1", "hbm0"), "parallel: tensor", 7, ["no layer runs on several processors"]),
    (PLACED.replace("batch: 2", "batch: 3"), "parallel: data", 3, ["3 sequences do not split", "Write 2 or 4"]),
    (PLACED.replace("hbm0..1: rest", "hbm0..1: 2 layers, dram0: rest"), "parallel: expert", 7,
     ["here on cpu0 and gpu0..1", "Write compute: gpu0..1"]),
    (STREAMED, "parallel: {by: data, fetch: sharded, algorithm: in_network}", 7,
     ["no algorithm of the all-gather here", "pairwise, ring"]),
    (STREAMED, "access: in_place\n  parallel: {by: data, fetch: sharded}", 8, ["read in place"]),
    (PLACED, "experts: {home: dram0}\n  parallel: data", 7, ["has no experts that a router chooses"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said", "line", "parts"), REFUSED)
def test_refused_at_its_line(tmp_path, text, said, line, parts):
    (tmp_path / "config.json").write_text(json.dumps(SHAPE))
    with pytest.raises(DocumentError) as caught:
        plan_of(tmp_path, text.replace("parallel: data", said), box(2, nvlink=400e9))
    found = str(caught.value)
    assert [one for one in found.splitlines() if one.startswith(f"  line {line}, ")], found
    assert all(part in found for part in parts), found


def test_experts_that_do_not_split(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(MIXTURE_SHAPE))
    text = PLACED.replace("hbm0..1", "hbm0..2").replace("parallel: data", "parallel: expert")
    with pytest.raises(DocumentError, match="8 experts do not split evenly over 3 processors. Numbers that do: 2, 4"):
        plan_of(tmp_path, text, box(3))


def test_experts_are_spread_over_equal_ranks():
    faster = changed(box(2), memories=[lambda one: replace(one, rate=rate(2e12)) if one.name == "hbm1" else one])
    with pytest.raises(PlanError, match="gpu0 and gpu1 have other peak rates"):
        placed(faster, EXPERT, ("hbm0..1", None), model=MIXTURE)


@pytest.mark.parametrize("words", ["data", "{by: data}"])
def test_shorthand(tmp_path, words):
    (tmp_path / "config.json").write_text(json.dumps(SHAPE))
    plan = plan_of(tmp_path, PLACED.replace("parallel: data", f"parallel: {words}"), box(2))
    assert plan.origin[2].parallel == Parallel("data")


# --- whatever is asked ---

SMALL_MIXTURE = model_of(MIXTURE_SHAPE | {"num_hidden_layers": 2, "hidden_size": 16, "intermediate_size": 16,
                                          "num_attention_heads": 4, "head_dim": 4, "vocab_size": 20}, "mixture")


@st.composite
def on_ranks(draw):
    """A server with ranks and a plan on them with any words of sharing."""
    topology = draw(ranked_servers())
    gpus = [name for name in topology.processors if name.startswith("gpu")]
    assume(len(gpus) > 1)
    count = len(gpus)
    by = draw(st.sampled_from(["tensor", "data", "data", "expert", "expert"]))
    model = SMALL_MIXTURE if by == "expert" else draw(st.sampled_from([*SMALL, SMALL_MIXTURE]))
    attention = draw(st.sampled_from([None, "tensor"])) if by == "expert" else None
    replicated = by != "tensor" and attention is None
    fetch = draw(st.sampled_from([None, "whole", "sharded"])) if replicated else None
    algorithm = draw(st.sampled_from([None, "ring"])) if by == "tensor" or fetch == "sharded" else None
    near = draw(st.integers(0, model.layers))
    drams = f"dram0..{sum(name.startswith('dram') for name in topology.memories) - 1}"
    far = draw(st.sampled_from([drams, "dram0", "ssd0"])).replace("dram0..0", "dram0")
    access = "in_place" if far != "ssd0" and fetch is None and draw(st.booleans()) else "copy"
    weights = [(f"hbm0..{count - 1}", Portion("layers", near)), (far, Portion("rest"))]
    placement = Placement(
        tuple(weights if draw(st.booleans()) else weights[::-1]), f"gpu0..{count - 1}",
        draw(st.sampled_from(["with layer", "with layer", "dram0"])), 0,
        draw(st.sampled_from(["pinned", "pageable", "page cache"])), (), draw(costs()), access=access,
        parallel=Parallel(by, algorithm, fetch, attention))  # fmt: skip
    asked = draw(workloads())
    asked = replace(asked, batch=count * asked.batch)
    overlap = Overlap("buffers", draw(st.sampled_from([1, 2, 3, 0])))
    return topology, plan_model(model, topology, asked, placement, weights="bf16", overlap=overlap)


@examples(20, 120)
@given(on_ranks())
def test_ladders(drawn):
    step = compile_step(*drawn)
    close = 1 + 1e-12
    peak, sustained, found, alone = floor(step), floor(step, "value"), schedule(step), serial(step)
    for name in ("seconds", "cold_seconds"):
        low, middle, expected, most = (getattr(one, name) for one in (peak, sustained, found, alone))
        assert low <= middle * close and middle <= expected * close and expected <= most * close
    assert found.low <= found.seconds * close and found.seconds <= found.high * close
    assert all(0 <= use.least <= use.load * close for row in step.rows for use in row.uses)


WORDS = {
    "weights": ["{hbm0..1: rest}", "{dram0: rest}", "{hbm0..1: 2 layers, dram0: rest}", "{ssd0: rest}",
                "{dram0: 1 layers, hbm0..1: rest}", "{hbm0: 2 layers, hbm1: rest}", "{hbm0..1: 50%, ssd0: 50%}"],
    "compute": ["local", "gpu0..1", "gpu0", "cpu0"],
    "parallel": ["tensor", "data", "expert", "{by: data, fetch: whole}", "{by: data, fetch: sharded}", "{by: expert}",
                 "{by: expert, attention: tensor, algorithm: tree}", "{algorithm: ring}", "{algorithm: in_network}",
                 "{by: expert, fetch: sharded, algorithm: pairwise}", "{by: tensor, fetch: whole}", "{}"],
    "kv": ["with layer", "dram0", "hbm0..1", "hbm1"],
    "access": ["copy", "in_place"],
    "host_memory": ["pinned", "page cache"],
    "workload": ["{batch: 2, context: 60}", "{phase: prefill, batch: 2, prompt: 30}", "{batch: 3}",
                 "{batch: 2, in_flight: 2}", "{phase: generate, batch: 2, prompt: 20, generate: 4}",
                 "{phase: generate, batch: 4, prompt: 5, generate: 1}"],
    "server": [box(2, nvlink=400e9), box(2), box(2, peers=True, uplink=True), box(2, 2)],
    "shape": [SHAPE, MIXTURE_SHAPE],
    "overlap": ["none", "1", "2", "full"],
}  # fmt: skip


@examples(15, 60)
@given(st.fixed_dictionaries({key: st.sampled_from(values) for key, values in WORDS.items()}))
def test_any_words_are_refused_or_answered(tmp_path_factory, said):
    """A combination of words is refused at its line, or all of its figures are sound."""
    assume("ssd0" not in said["weights"] or said["access"] == "copy")  # a drive is not read in place
    folder = tmp_path_factory.mktemp("words")
    (folder / "config.json").write_text(json.dumps(said["shape"]))
    text = (f"model: {{config: config.json, weights: bf16}}\nworkload: {said['workload']}\noverlap: {said['overlap']}\n"
            "placement:\n" + "".join(f"  {key}: {said[key]}\n" for key in
                                     ("weights", "compute", "parallel", "kv", "access", "host_memory")))  # fmt: skip
    try:
        plan = plan_of(folder, text, said["server"])
    except DocumentError as error:
        assert "  line " in str(error) and "Traceback" not in str(error)
        return
    found = evaluate(said["server"], plan)
    assert 0 < found.floor.seconds <= found.overlapped.seconds * (1 + 1e-9) <= found.serial.seconds * (1 + 1e-8)
    assert all(row.used >= 0 for row in found.memory)
