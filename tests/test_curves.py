"""Curves over one rate: their ladder at every point, and corners where they are in closed form."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings

from offload import compile_step, load_plan
from offload.bounds import floor
from offload.curves import busiest, describe, floor_curve
from offload.errors import PlanError, PlotError, RouteError
from offload.plan import Block, Compute, Overlap, Plan, Tensor, Transfer
from offload.schedules import schedule
from offload.sensitivity import scaled, together
from offload.topology import Link, Memory, Processor, Rate, Topology
from offload.units import pcie_rate
from tests.strategies import plans, topologies

DRAM, HBM, LINK, FLOPS = 100e9, 1000e9, 25e9, 50e12
BYTES, WORK, LAYERS = 1e9, 4e11, 8


def machine(link: float | None = LINK, dram: float | None = DRAM, cache: int = 0) -> Topology:
    """A GPU beside host memory, at peak rates alone."""
    return Topology.build(
        name="small",
        memories=[Memory("hbm0", "hbm", capacity=10**11, rate=rate(HBM), cache=cache),
                  Memory("dram0", "dram", capacity=10**11, rate=rate(dram))],
        processors=[Processor("gpu0", "gpu", "hbm0", flops={"bf16": rate(FLOPS)}),
                    Processor("cpu0", "cpu", "dram0", flops={"bf16": rate(1e12)})],
        links=[Link("pcie0", "dram0", "hbm0", rate(link), rate(link), technology="pcie", generation=4, lanes=16)],
    )  # fmt: skip


def rate(peak: float | None) -> Rate:
    return Rate(peak=peak) if peak else Rate(rated=1e9)


def streamed(work: float = WORK, **more) -> Plan:
    """Weights that are moved to the GPU, layer by layer."""
    tasks = (Transfer("fetch", "w", "hbm0"), Compute("layer", "gpu0", flops=work, reads=("w",), after=("fetch",)))
    return Plan("streamed", {"w": Tensor("w", BYTES, (("dram0", 1.0),))}, (Block(tasks, LAYERS),), **more)


def on_both(**more) -> Plan:
    """A token passes the GPU's layer and then the CPU's: times add."""
    tensors = {"a": Tensor("a", BYTES, (("hbm0", 1.0),)), "b": Tensor("b", BYTES, (("dram0", 1.0),))}
    tasks = (Compute("near", "gpu0", reads=("a",)), Compute("far", "cpu0", reads=("b",), after=("near",)))
    return Plan("both", tensors, (Block(tasks, LAYERS),), **more)


def test_the_corner_between_two_resources_is_where_their_times_meet():
    # The link takes BYTES / rate a layer, arithmetic WORK / FLOPS: the faster the link, the less it matters.
    curve = floor_curve(compile_step(machine(), streamed(work=1e12)))
    meets = BYTES / (1e12 / FLOPS)
    assert curve.over == "pcie0.hbm0" and curve.rate == LINK
    assert [piece.resources for piece in curve.pieces] == [("pcie0.hbm0",), ("gpu0.flops",)]
    assert curve.pieces[0].end == curve.pieces[1].start == pytest.approx(meets, rel=1e-12)
    corner = next(point for point in curve.points if point.rate == curve.pieces[1].start)
    assert corner.floor == pytest.approx(LAYERS * 1e12 / FLOPS, rel=1e-12)
    for point in curve.points:
        assert point.floor == pytest.approx(LAYERS * max(BYTES / point.rate, 1e12 / FLOPS), rel=1e-12)
    assert describe(curve) == ["up to 50 GB/s: pcie0.hbm0", "from 50 GB/s: gpu0.flops"]


def test_what_binds_together_is_one_piece():
    curve = floor_curve(compile_step(machine(), streamed(work=BYTES / DRAM * FLOPS)))
    assert [piece.resources for piece in curve.pieces] == [("pcie0.hbm0",), ("dram0", "gpu0.flops")]
    assert curve.pieces[1].start == pytest.approx(DRAM, rel=1e-12)
    assert curve.pieces[1].name == "dram0 and gpu0.flops"


def test_a_corner_at_the_present_rate_is_found_once():
    curve = floor_curve(compile_step(machine(link=DRAM), streamed()))
    assert [piece.resources for piece in curve.pieces] == [("pcie0.hbm0",), ("dram0",)]
    assert curve.pieces[1].start == pytest.approx(DRAM, rel=1e-12)
    assert len({point.rate for point in curve.points}) == len(curve.points) == 61


def test_two_corners_between_neighbouring_rates_are_both_found():
    # Neighbours are 8 % apart.
    points = floor_curve(compile_step(machine(), streamed())).points
    left, right = next((a.rate, b.rate) for a, b in pairwise(points) if a.rate > 2 * LINK)
    first, second = left + (right - left) / 3, left + (right - left) * 2 / 3
    # Two computes read over the link one after the other; each binds by its arithmetic from a rate of its own on.
    tensors = {name: Tensor(name, BYTES, (("dram0", 1.0),)) for name in ("a", "b")}
    tasks = tuple(
        Compute(name, "gpu0", flops=FLOPS * BYTES / meets, reads=(name,))
        for name, meets in (("a", first), ("b", second))
    )
    curve = floor_curve(compile_step(machine(), Plan("two", tensors, (Block(tasks),))), "pcie0")
    assert [piece.name for piece in curve.pieces] == ["pcie0.hbm0", "gpu0.flops + pcie0.hbm0", "gpu0.flops"]
    assert [piece.end for piece in curve.pieces[:2]] == pytest.approx([first, second], rel=1e-12)


def test_along_a_chain_times_add():
    curve = floor_curve(compile_step(machine(), on_both()))
    assert curve.over == "dram0" and curve.marks == ()
    (piece,) = curve.pieces
    assert piece.rule == "cycle" and set(piece.resources) == {"dram0", "hbm0"} and " + " in piece.name
    for point in curve.points:
        assert point.floor == pytest.approx(LAYERS * (BYTES / HBM + BYTES / point.rate), rel=1e-12)
    assert describe(curve) == [f"throughout: {piece.name}; their times add"]


def test_corners_along_a_chain_and_behind_a_cache():
    # The CPU's layer takes the longer of its reads and its arithmetic; the GPU's cache may spare some of every step.
    cache, work = 10**8, 4e9
    far = Compute("far", "cpu0", flops=work, reads=("b",), after=("near",))
    plan = on_both()
    plan = replace(plan, blocks=(Block((plan.blocks[0].tasks[0], far), LAYERS),))
    curve = floor_curve(compile_step(machine(cache=cache), plan), "dram0")
    assert [piece.name for piece in curve.pieces] == ["dram0 + hbm0", "cpu0.flops + hbm0"]
    assert curve.pieces[0].end == pytest.approx(BYTES / (work / 1e12), rel=1e-12)
    for point in curve.points:
        longer = max(BYTES / point.rate, work / 1e12)
        assert point.floor == pytest.approx((LAYERS * BYTES - cache) / HBM + LAYERS * longer, rel=1e-12)


def test_a_corner_moves_with_what_a_cache_may_spare():
    # With two steps in flight half the chain is never longer than the longer of its parts.
    cache = 10**8
    curve = floor_curve(compile_step(machine(dram=2 * DRAM, cache=cache), on_both(in_flight=2)), "dram0")
    assert [piece.resources for piece in curve.pieces] == [("dram0",), ("hbm0",)]
    assert curve.pieces[0].end == pytest.approx(LAYERS * BYTES / ((LAYERS * BYTES - cache) / HBM), rel=1e-12)


def test_the_present_rate_is_a_point_that_equals_the_single_evaluation():
    step = compile_step(*reversed(load_plan("examples/by-hand.yaml")))
    curve = floor_curve(step)
    assert curve.present.floor == floor(step).seconds
    assert curve.present.expected == schedule(step).seconds
    assert curve.points[0].rate == pytest.approx(curve.rate / 10)
    assert curve.points[-1].rate == pytest.approx(curve.rate * 10)
    assert 60 <= len(curve.points) <= 70 and 10 <= sum(point.expected is not None for point in curve.points) <= 16
    assert [(mark.name, mark.rate) for mark in curve.marks] == [
        (f"PCIe {generation} x16", pcie_rate(generation, 16)) for generation in (3, 4, 5, 6)
    ]


def holds(curve) -> None:
    """Each time is at least the one before it, and the floor never rises with the rate."""
    close = 1 + 1e-12
    for point in curve.points:
        above = [point.floor, point.floor_sustained, point.expected, point.serial]
        for lower, upper in pairwise(time for time in above if time is not None):
            assert lower <= upper * close
    for left, right in pairwise(curve.points):
        assert left.rate < right.rate and left.floor >= right.floor * (1 - 1e-12)
    assert curve.pieces[0].start == curve.points[0].rate and curve.pieces[-1].end == curve.points[-1].rate
    assert all(left.end == right.start for left, right in pairwise(curve.pieces))


@pytest.mark.parametrize("path", ["examples/llama-3.1-70b-desktop.yaml", "examples/by-hand.yaml"])
def test_the_ladder_of_an_example(path):
    holds(floor_curve(compile_step(*reversed(load_plan(path)))))


@pytest.mark.slow
@settings(max_examples=15)
@given(topologies(), plans())
def test_random_steps_are_straight_between_corners(topology, plan):
    try:
        step = compile_step(topology, plan)
        curve = floor_curve(step)
    except (RouteError, PlotError):
        assume(False)
    except PlanError as error:
        assume("already lives" not in str(error) and "waits for a compute that waits for it" not in str(error))
        raise
    holds(curve)
    group = together(topology, curve.over)
    for left, right in pairwise(curve.points):
        if right.rate < left.rate * (1 + 1e-6):
            continue
        # Over 1/rate the floor between two points is a chord.
        middle = 2 / (1 / left.rate + 1 / right.rate)
        there = floor(scaled(step, group, middle / curve.rate)).seconds
        assert there == pytest.approx((left.floor + right.floor) / 2, rel=1e-8)


def test_what_is_drawn_over_by_default():
    assert busiest(compile_step(*reversed(load_plan("examples/by-hand.yaml")))) == ("pcie0.hbm0",)
    # A row of hidden state crosses the link; nobody asks about that.
    assert busiest(compile_step(*reversed(load_plan("examples/llama-3.1-70b-desktop.yaml")))) == ("dram0",)


def test_names_of_the_axis():
    step = compile_step(machine(), streamed())
    assert floor_curve(step, "pcie0").over == floor_curve(step, "pcie0.hbm0").over == "pcie0.hbm0"
    assert floor_curve(step, "hbm0").over == "hbm0"
    tiers = compile_step(*reversed(load_plan("examples/three-tiers.yaml")))
    tiers = replace(tiers, plan=replace(tiers.plan, overlap=Overlap("none")))  # quick
    drive = floor_curve(tiers, "ssd0")
    assert drive.over == "m2.socket0" and set(drive.scaled) == {"m2.socket0", "ssd0.read"}
    assert drive.marks[0].name == "PCIe 3 x4" and drive.policy == "no overlap"


def ranks(tmp_path):
    path = tmp_path / "ranks.yaml"
    path.write_text("topology: dgx-h100\nmodel: {name: llama-3.1-8b, weights: bf16}\nworkload: {context: 100}\n"
                    "placement: {weights: {hbm0..7: 8 layers, dram0..1: rest}, compute: gpu0..7}\n")  # fmt: skip
    return compile_step(*reversed(load_plan(path)))


def test_ranks_that_work_alike_are_one_axis(tmp_path):
    step = ranks(tmp_path)
    assert busiest(step) == tuple(f"pcie{i}.hbm{i}" for i in range(8))
    curve = floor_curve(replace(step, plan=replace(step.plan, overlap=Overlap("none"))))
    assert curve.over == "pcie0..7.hbm0..7"
    assert [piece.name for piece in curve.pieces] == ["pcie0..7.hbm0..7", "up0..7.sw0..7"]
    assert curve.pieces[1].start == pytest.approx(curve.rate, rel=1e-12)
    with pytest.raises(PlotError, match="their peak rates differ .hbm0 3.35 TB/s, dram0 282 GB/s"):
        floor_curve(step, "hbm0, dram0")
    with pytest.raises(PlotError, match='--plot-over hbm3..0: .*runs backwards'):
        floor_curve(step, "hbm3..0")


@pytest.mark.parametrize(
    ("over", "said"),
    [
        ("pcie9", 'no link or memory "pcie9".* Did you mean "pcie0"'),
        ("gpu0.flops", "gpu0.flops is no link or memory that this step loads. .*: dram0, hbm0, pcie0, pcie0.hbm0"),
        ("pcie0.dram0", "pcie0.dram0 is no link or memory that this step loads"),
        ("", 'no link or memory ""'),
    ],
)
def test_names_that_are_no_axis(over, said):
    with pytest.raises(PlotError, match=said):
        floor_curve(compile_step(machine(), streamed()), over)


def test_without_a_peak_rate_there_is_no_curve():
    step = compile_step(machine(), streamed())
    resources = {name: replace(resource, peak=None, sustained=resource.sustained)
                 for name, resource in step.resources.items()}  # fmt: skip
    with pytest.raises(PlotError, match="has a known peak rate. State a `peak`"):
        floor_curve(replace(step, resources=resources))
    with pytest.raises(PlotError, match="--plot-over dram0: its peak rate is not known"):
        floor_curve(replace(step, resources=resources), "dram0")
    with pytest.raises(PlotError, match="the floor is 0, as caches may hold"):
        held = Plan("held", {"a": Tensor("a", 1000, (("hbm0", 1.0),))}, (Block((Compute("c", "gpu0", reads=("a",)),)),))
        floor_curve(compile_step(machine(cache=10**6), held))
