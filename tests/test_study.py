"""Whole answers, held against arithmetic done by hand: Llama-3.1-70B in 4 bits on a desktop, in bf16 on GH200."""

import math
from dataclasses import replace

import pytest

from offload import load_topology
from offload.bounds import floor
from offload.compiler import compile_step
from offload.designs import Placement, Portion, Workload, plan_model
from offload.models import weigh
from offload.plan import UNLIMITED, Block, Compute, Overlap, Plan, Tensor, Transfer
from offload.readers import load_model
from offload.schedules import schedule, serial
from offload.study import evaluate

MODEL = load_model("llama-3.1-70b")
LAYERS = weigh(MODEL, "q4_k_m").layers
HEAD = 861_880_320 + 4 * 8192  # head and final norm
KV = 4096 * 4096  # bytes of one layer's cache at 4,096 positions
NEW_KV = 4096
ROW = 8192 * 2


@pytest.fixture(scope="module")
def desktop():
    return load_topology("desktop-4090")


def placed(topology, layers=38, compute="local", weights="q4_k_m", batch=1, context=4096, kv="with layer",
           overlap=None):  # fmt: skip
    portions = (("hbm0", Portion("layers", layers)), ("dram0", Portion("rest")))
    return plan_model(MODEL, topology, Workload("decode", batch, context), Placement(portions, compute, kv),
                       weights=weights, overlap=overlap)  # fmt: skip


def row(study, name):
    return next(one for one in study.resources if one.name == name)


def test_in_place_the_token_passes_the_cpu_then_the_gpu(desktop):
    study = evaluate(desktop, placed(desktop))
    on_cpu = sum(LAYERS[:42]) + 42 * (KV + NEW_KV)
    on_gpu = sum(LAYERS[42:]) + 38 * (KV + NEW_KV) + HEAD
    assert row(study, "dram0").load == on_cpu + ROW, "layers, cache, and the row that leaves"
    assert row(study, "hbm0").load == on_gpu + ROW
    moved = {(move.what, move.source): move.bytes for move in study.moves}
    assert moved["layer weights", "dram0"] == 21_494_628_352 == sum(LAYERS[:42])
    assert moved["layer weights", "hbm0"] + moved["output head", "hbm0"] == sum(LAYERS[42:]) + HEAD
    assert (moved["KV cache", "dram0"], moved["KV cache", "hbm0"]) == (42 * KV, 38 * KV)
    spared = 72 * 2**20 / 1008.1e9 + 80 * 2**20 / 96e9  # what the GPU's cache and the processor's may keep
    chain = on_cpu / 96e9 + on_gpu / 1008.1e9 - spared  # the GPU may start on the row's first tile
    assert study.floor.seconds == pytest.approx(chain, rel=1e-12)
    assert study.floor.rule == "cycle" and study.floor.bottleneck == ("dram0", "hbm0")
    assert round(study.floor.seconds, 3) == 0.251
    assert study.floor.load_seconds == pytest.approx((on_cpu - 80 * 2**20) / 96e9, rel=1e-12)
    assert round(study.floor.load_seconds, 3) == 0.23
    assert study.next_bottleneck.name == "hbm0"
    read_by_cpu = sum(LAYERS[:42]) + 42 * KV
    solo = read_by_cpu / 69.1e9 + (6.5e-6 + ROW / 26.3e9) + on_gpu / 921e9
    assert study.overlapped.seconds == pytest.approx(solo, rel=1e-9), "a chain: nothing hides anything"
    assert study.overlapped.seconds == pytest.approx(study.serial.seconds, rel=1e-9)
    assert study.overlapped.low < study.overlapped.seconds < study.overlapped.high
    assert study.hideable_share == 0.0
    assert "-ngl 39" in " ".join(study.assumptions)


def test_at_the_sustained_rate_of_dram_alone_it_is_340_ms(desktop):
    resources = {name: one for name, one in desktop.resources.items() if name != "cpu0.reads"}
    step = compile_step(desktop, placed(desktop))
    rows = tuple(
        replace(one, uses=tuple(use for use in one.uses if use.resource in resources)) for one in step.rows
    )  # fmt: skip
    bare = replace(step, rows=rows, resources={n: r for n, r in step.resources.items() if n in resources})
    assert schedule(bare).seconds == pytest.approx(0.340, abs=5e-4)


def test_44_layers_fit_and_45_do_not(desktop):
    fits, too_many = (evaluate(desktop, placed(desktop, layers)) for layers in (44, 45))
    assert fits.fits and not too_many.fits
    over = sum(LAYERS[35:]) + HEAD + 45 * KV + 1_500_000_000 - 24 * 2**30
    assert next(one.missing for one in too_many.memory if one.name == "hbm0") == over
    assert "hbm0 lacks" in too_many.first_limit
    assert any("44 layers in hbm0" in change.what for change in evaluate(desktop, placed(desktop, 38)).changes)


@pytest.mark.slow
def test_streamed_layers_cross_the_link_each_step(desktop):
    study = evaluate(desktop, placed(desktop, 38, "gpu0"))
    streamed = [size for i, size in enumerate(LAYERS) if (i + 1) * 42 // 80 > i * 42 // 80]
    assert len(streamed) == 42
    peak = desktop.resources["pcie0.hbm0"].peak
    link = sum(streamed) + ROW
    assert row(study, "pcie0.hbm0").load == link
    assert study.floor.rule == "load" and study.floor.bottleneck == ("pcie0.hbm0",)
    assert study.floor.seconds == pytest.approx(link / peak, rel=1e-12)
    assert row(study, "hbm0").load == sum(LAYERS) + 80 * (KV + NEW_KV) + HEAD + sum(streamed) + 2 * ROW - ROW
    assert 1.1 < study.tokens_per_s.overlapped < 1.3, "about 1.2 tokens a second"
    in_place = evaluate(desktop, placed(desktop))
    assert study.overlapped.seconds > 2 * in_place.overlapped.seconds, "streaming is slower than running in place"
    slots = next(one for one in study.memory if one.name == "hbm0").parts["buffers"]
    assert slots == 2 * max(streamed)


def test_everything_streamed(desktop):
    study = evaluate(desktop, placed(desktop, 0, "gpu0"))
    assert row(study, "pcie0.hbm0").load == sum(LAYERS) + HEAD * 0 + ROW
    assert study.floor.seconds == pytest.approx((sum(LAYERS) + ROW) / desktop.resources["pcie0.hbm0"].peak, rel=1e-12)


@pytest.mark.few
@pytest.mark.parametrize("buffers", [1, 2, 3, UNLIMITED])
@pytest.mark.parametrize("batch", [1, 64])
def test_gh200_shares_hbm_between_copies_and_compute(buffers, batch):
    server = load_topology("gh200")
    plan = placed(server, 40, "gpu0", "bf16", batch, 8192, overlap=Overlap("buffers", buffers))
    step = compile_step(server, plan)
    found, bound, sustained = schedule(step), floor(step), floor(step, "value")
    assert bound.load_seconds <= sustained.load_seconds <= found.seconds * (1 + 1e-12)
    assert found.seconds <= found.cold_seconds * (1 + 1e-12) <= serial(step).cold_seconds * (1 + 2e-12)
    study = evaluate(server, plan)
    weights = weigh(MODEL, "bf16")
    hbm = sum(weights.layers) * 1.5 + batch * 80 * (8192 + 1) * 4096 + weights.head + weights.norm
    assert row(study, "hbm0").load == pytest.approx(hbm + batch * ROW, rel=1e-9), "copy-in writes what compute reads"


def test_contention_alone_keeps_a_period_above_its_load_bound():
    """80 layers, 1.7 GB streamed over 450 GB/s beside 13.6 GB of cache read from 4 TB/s: 0.340 s, not 0.306 s."""
    from offload.topology import Interval, Link, Memory, Processor, Rate, Switch, Topology

    def rate(value):
        return Rate(peak=value, sustained={"": Interval.exact(value)}, source="example")

    server = Topology.build(
        name="example",
        memories=[Memory("hbm", "hbm", 10**13, rate(4e12)), Memory("dram", "dram", 10**13, rate(1e13), at="socket")],
        processors=[Processor("gpu", "gpu", "hbm")],
        switches=[Switch("socket")],
        links=[Link("c2c", "socket", "hbm", rate(450e9), rate(450e9), "c2c")],
    )
    tensors = {"w": Tensor("w", 1_700_000_000, (("dram", 1.0),)), "kv": Tensor("kv", 13_600_000_000, (("hbm", 1.0),))}
    tasks = (Transfer("fetch", "w", "hbm"), Compute("layer", "gpu", reads=("w", "kv"), after=("fetch",)))
    step = compile_step(server, Plan("example", tensors, (Block(tasks, 80),)))
    bound = floor(step)
    assert bound.load_seconds == pytest.approx(80 * (1.7e9 * 2 + 13.6e9) / 4e12, rel=1e-12)
    assert round(bound.load_seconds, 3) == 0.340
    assert bound.load_seconds <= schedule(step).seconds * (1 + 1e-12)
    blind = 80 * (1.7e9 + 13.6e9) / 4e12
    assert round(blind, 3) == 0.306, "what solo times alone would have said"


def test_no_overlap_is_serial(desktop):
    study = evaluate(desktop, placed(desktop, 20, "gpu0", overlap=Overlap("none")))
    assert study.overlapped.seconds == study.serial.seconds and study.overlapped.policy == "serial"


def test_changes_are_re_evaluated(desktop):
    study = evaluate(desktop, placed(desktop))
    by = {change.what: change for change in study.changes}
    twice = by["cpu0.reads and dram0 twice as fast (channels or speed)"]
    saved = (sum(LAYERS[:42]) + 42 * KV) / 69.1e9 / 2
    # Twice the memory leaves the CPU's arithmetic where it was: 112 ms for its layers, well below 160 ms.
    assert twice.seconds == pytest.approx(study.overlapped.seconds - saved, rel=1e-6)
    assert twice.gain == pytest.approx(study.overlapped.seconds / twice.seconds)
    batch = next(change for what, change in by.items() if what.startswith("batch 2"))
    assert batch.gain == pytest.approx(2 * study.overlapped.seconds / batch.seconds)
    streams = next(change for what, change in by.items() if what.startswith("stream to gpu0"))
    assert streams.gain < 1


def test_every_number_is_finite(desktop):
    from offload.answer import to_json

    def walk(value):
        if isinstance(value, dict):
            for one in value.values():
                walk(one)
        elif isinstance(value, list | tuple):
            for one in value:
                walk(one)
        elif isinstance(value, float):
            assert math.isfinite(value) and value >= 0

    for plan in (placed(desktop), placed(desktop, 10, "gpu0"), placed(desktop, 38, batch=512, context=131072)):
        walk(to_json(evaluate(desktop, plan)))


def test_in_flight_divides_the_chain_but_not_the_loads(desktop):
    one = floor(compile_step(desktop, placed(desktop)))
    four = floor(compile_step(desktop, replace(placed(desktop), in_flight=4)))
    assert four.cycle_seconds == pytest.approx(one.cycle_seconds / 4)
    assert four.seconds == four.load_seconds == one.load_seconds and four.rule == "load"


def test_every_n_steps_counts_less_back_to_back_and_in_full_alone(desktop):
    tensors = {"w": Tensor("w", 10**9, (("dram0", 1.0),))}
    often, rare = (
        compile_step(desktop, Plan("x", tensors, (Block((Transfer("fetch", "w", "hbm0", every=n),)),))) for n in (1, 4)
    )
    assert floor(rare).load_seconds == floor(often).load_seconds / 4
    assert floor(rare).cold_seconds == floor(often).cold_seconds
    assert serial(rare).seconds == serial(often).seconds / 4 and serial(rare).cold_seconds == serial(often).cold_seconds


def test_amounts_broadcast_and_equal_each_point():
    import numpy

    from offload.bounds import load_seconds

    desktop = load_topology("desktop-4090")
    batches = numpy.array([1.0, 2.0, 32.0]).reshape(3, 1)
    contexts = numpy.array([512.0, 4096.0]).reshape(1, 2)

    def step_of(batch, context):
        tensors = {
            "w": Tensor("w", 5.3e8, (("dram0", 1.0),)),
            "kv": Tensor("kv", batch * context * 4096.0, (("hbm0", 1.0),)),
        }
        layer = Compute("layer", "gpu0", batch * 1.7e9, "bf16", ("w", "kv"), (), ("fetch",))
        return compile_step(desktop, Plan("x", tensors, (Block((Transfer("fetch", "w", "hbm0"), layer), 80),)))

    grid = step_of(batches, contexts)
    for grade in ("peak", "value"):
        swept = load_seconds(grid, grade).seconds
        assert swept.shape == (3, 2)
        for i in range(3):
            for j in range(2):
                point = step_of(float(batches[i, 0]), float(contexts[0, j]))
                assert swept[i, j] == load_seconds(point, grade).seconds, "bit for bit"
                assert serial(grid).seconds[i, j] == serial(point).seconds
