"""Ways of sharing, against times worked by hand: write-backs, tiers, several GPUs, pipelines, what is rare."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload import lanes as lanes_module
from offload import load_topology
from offload.bounds import floor
from offload.compiler import compile_step
from offload.designs import Placement, Portion, Workload, plan_model
from offload.documents import load_plan
from offload.plan import UNLIMITED, Block, Compute, Overlap, Plan, Tensor, Transfer
from offload.readers import load_model
from offload.schedules import hideable, schedule, serial
from offload.sensitivity import scaled
from offload.topology import Interval, Limit, Link, Memory, Processor, Rate, Switch, Topology

BIG = 1e12
EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def rate(value):
    return Rate(peak=float(value), sustained={"": Interval.exact(float(value))}, source="example")


def server(*, dram=BIG, links=(10,), half_duplex=False, cap=None, cpu=BIG, hbm=BIG):
    """GPUs behind links of their own to one host memory; rates in bytes (and FLOP) per second."""
    count = len(links)
    return Topology.build(
        name="example",
        memories=[Memory("dram", "dram", 10**9, rate(dram), at="socket")]
        + [Memory(f"hbm{i}", "hbm", 10**9, rate(hbm)) for i in range(count)],
        processors=[Processor("cpu", "cpu", "dram", flops={"bf16": rate(cpu)})]
        + [Processor(f"gpu{i}", "gpu", f"hbm{i}", flops={"bf16": rate(1)}) for i in range(count)],
        switches=[Switch("socket")],
        links=[Link(f"link{i}", "socket", f"hbm{i}", rate(links[i]), rate(links[i]), half_duplex=half_duplex)
               for i in range(count)],
        limits=[] if cap is None else [Limit("cap", tuple(f"link{i}" for i in range(count)), rate(cap))],
    )  # fmt: skip


def with_write_back(buffers, compute=3.0):
    tensors = {"w": Tensor("w", 20, (("dram", 1.0),)), "out": Tensor("out", 10, (("hbm0", 1.0),))}
    tasks = (
        Transfer("fetch", "w", "hbm0"),
        Compute("layer", "gpu0", compute, after=("fetch",)),
        Transfer("evict", "out", "dram", after=("layer",)),
    )
    return Plan("write-back", tensors, (Block(tasks, 20),), overlap=Overlap("buffers", buffers), data_cycle=True)


@pytest.mark.parametrize("buffers", [2, 3, UNLIMITED])
def test_fetch_and_write_back_on_one_half_duplex_link(buffers):
    """f = 2, w = 1, c = 3 for 20 layers: the link is busy for f + w = c each layer, so 60, and a little at the ends."""
    step = compile_step(server(half_duplex=True), with_write_back(buffers))
    found = schedule(step)
    assert serial(step).seconds == pytest.approx(120)
    assert 60 <= found.seconds <= 63 * (1 + 1e-9), "a bubble a step at most: its last write-back, then the next fetch"


def test_a_cap_over_both_directions_does_not_stop_prefetch():
    """2 x 10 with a cap of 15: per layer 30 bytes of 15, so 2 s beside 3 s of compute."""
    step = compile_step(server(cap=15), with_write_back(2))
    assert 60 <= schedule(step).seconds <= 64


def test_write_back_on_the_desktop_is_hidden():
    tensors = {"w": Tensor("w", 5 * 10**8, (("dram0", 1.0),)), "out": Tensor("out", 10**8, (("hbm0", 1.0),))}
    tasks = (
        Transfer("fetch", "w", "hbm0"),
        Compute("layer", "gpu0", 2.2e12, after=("fetch",)),
        Transfer("evict", "out", "dram0", after=("layer",)),
    )
    step = compile_step(load_topology("desktop-4090"), Plan("x", tensors, (Block(tasks, 40),)))
    found, bound = schedule(step), floor(step, "value")
    assert bound.seconds <= found.seconds < 1.1 * bound.seconds
    assert hideable(step).behind_compute > 0.8


@pytest.mark.parametrize(
    ("links", "dram", "wanted"), [((26, 26), 48, 43.3333), ((26,) * 4, 70, 59.4286), ((26, 26), 52, 40)]
)
def test_gpus_that_stream_from_one_memory_share_it(links, dram, wanted):
    """Flows at proportional rates all end at max L / B (theorem: independent divisible flows)."""
    tensors, tasks = {}, []
    for i in range(len(links)):
        tensors[f"w{i}"] = Tensor(f"w{i}", 26 * 40 / 1, (("dram", 1.0),))
        tasks.append(Transfer(f"fetch{i}", f"w{i}", f"hbm{i}"))
    step = compile_step(server(links=links, dram=dram), Plan("x", tensors, (Block(tuple(tasks)),)))
    assert schedule(step).seconds == pytest.approx(wanted, rel=1e-4)
    assert floor(step, "value").load_seconds == pytest.approx(wanted, rel=1e-4)
    assert hideable(step).among_transfers == pytest.approx(1 - wanted / (40 * len(links)), rel=1e-4)


def test_the_fetch_runs_beside_the_compute_that_does_not_compete():
    """GPU 2 s, then CPU reading host memory for 4 s, fetch 1 s from it: 20 x (2 + 4), not 20 x 7."""
    tensors = {"w": Tensor("w", 10, (("dram", 1.0),)), "kv": Tensor("kv", 40, (("dram", 1.0),))}
    tasks = (
        Transfer("fetch", "w", "hbm0"),
        Compute("mlp", "gpu0", 2.0, after=("fetch",)),
        Compute("attention", "cpu", 0.0, reads=("kv",)),
    )
    for buffers in (2, 3, UNLIMITED):
        plan = Plan("x", tensors, (Block(tasks, 20),), overlap=Overlap("buffers", buffers))
        step = compile_step(server(dram=10), plan)
        assert 120 <= schedule(step).seconds <= 121 * (1 + 1e-9), "the first fetch of a step has nothing to hide behind"
        assert hideable(step).behind_compute >= 0.95


def test_more_buffers_are_never_slower():
    server_ = load_topology("gh200")
    plan = plan_model(
        load_model("llama-3.1-70b"), server_, Workload(batch=32, context=8192),
        Placement((("hbm0", Portion("layers", 30)), ("dram0", Portion("rest"))), "gpu0", "dram0"), weights="bf16",
    )  # fmt: skip
    step = compile_step(server_, plan)
    times = [schedule(step, buffers, ends=False).seconds for buffers in (1, 2, 3, UNLIMITED)]
    for fewer, more in zip(times, times[1:], strict=False):
        assert more <= fewer * (1 + 1e-12)


def test_three_tiers_overlap_disk_and_pcie():
    desktop = load_topology("desktop-4090")
    portions = (("hbm0", Portion("layers", 38)), ("dram0", Portion("layers", 30)), ("ssd0", Portion("rest")))
    plan = plan_model(load_model("llama-3.1-70b"), desktop, Workload(), Placement(portions, "gpu0"), weights="q4_k_m")
    step = compile_step(desktop, plan)
    found, bound = schedule(step), floor(step, "value")
    assert bound.seconds <= found.seconds < 1.02 * bound.seconds
    assert hideable(step).among_transfers > 0.4, "the drive reads beside the copies over PCIe"


def test_steps_in_flight_fill_the_pipeline():
    """Four GPUs of one stage each, 10 s a stage: 40 s alone, 20 with two in flight, 10 with four and no less."""
    tensors = {f"row{i}": Tensor(f"row{i}", 1, ((f"hbm{i}", 1.0),), shared=True, transient=True) for i in range(3)}
    blocks = []
    for i in range(4):
        tasks = [] if i == 0 else [Transfer(f"hop{i}", f"row{i - 1}", f"hbm{i}", after=("previous.stage",))]
        after = tuple(task.name for task in tasks)
        blocks.append(Block((*tasks, Compute("stage", f"gpu{i}", 10.0, after=after)),))
    whole = Plan("pipeline", tensors, tuple(blocks))
    for in_flight, wanted in ((1, 40.0), (2, 20.0), (4, 10.0), (8, 10.0)):
        step = compile_step(server(links=(BIG,) * 4), replace(whole, in_flight=in_flight))
        assert schedule(step).seconds == pytest.approx(wanted, rel=1e-6)
        assert schedule(step).cold_seconds == pytest.approx(40.0, rel=1e-6)
    assert not [wrap for wrap in step.wraps if wrap[2] == 1], "no hop waits for a step that it need not wait for"


def test_in_flight_steps_keep_their_own_cache_and_speed():
    desktop = load_topology("desktop-4090")
    model = load_model("llama-3.1-70b")
    placement = Placement((("hbm0", Portion("layers", 20)), ("dram0", Portion("rest"))))
    one, two = (
        compile_step(desktop, plan_model(model, desktop, Workload(batch=4, in_flight=m), placement, weights="q4_k_m"))
        for m in (1, 2)
    )
    assert two.occupied["hbm0"]["KV cache"] == 2 * one.occupied["hbm0"]["KV cache"]
    assert (one.plan.sequences, two.plan.sequences, two.plan.tokens) == (4, 8, 4)


def test_what_happens_every_few_steps_is_run_as_it_happens():
    """a(1), then x (12 s on the CPU, every 4 steps) beside y(3), then z(1) for both: (3 x 5 + 14) / 4 a step."""
    tasks = (
        Compute("a", "gpu0", 1.0),
        Compute("x", "cpu", 12.0, after=("a",), every=4),
        Compute("y", "gpu0", 3.0, after=("a",)),
        Compute("z", "gpu0", 1.0, after=("x", "y")),
    )
    step = compile_step(server(cpu=1), Plan("x", {}, (Block(tasks),)))
    found = schedule(step)
    assert found.seconds == pytest.approx(7.25)
    assert found.cold_seconds == pytest.approx(14)
    assert floor(step, "value").seconds <= found.seconds


def test_a_round_that_is_too_long_runs_step_by_step():
    tasks = (Compute("a", "gpu0", 1.0), Compute("x", "gpu0", 5.0, every=99_991))
    step = compile_step(server(), Plan("x", {}, (Block(tasks, 2),)))
    assert schedule(step).seconds == pytest.approx(serial(step).seconds)


def test_urgent_rows_together_never_exceed_a_cap():
    """Three rows of 30 bytes over a cap of 10 each step take 9 s, however urgent each of them is."""
    tensors = {f"row{i}": Tensor(f"row{i}", 30, (("dram", 1.0),), shared=True, transient=True) for i in range(3)}
    tasks = tuple(Transfer(f"hop{i}", f"row{i}", f"hbm{i}") for i in range(3))
    step = compile_step(server(links=(10, 10, 10), cap=10), Plan("x", tensors, (Block(tasks),)))
    assert schedule(step).seconds == pytest.approx(9)
    assert floor(step).load_seconds == pytest.approx(9), "limits carry rows as links do"


def test_caches_spare_each_pass_over_the_same_bytes():
    desktop = load_topology("desktop-4090")
    cache = desktop.resources["hbm0"].cache
    small = Tensor("small", 50 * 10**6, (("hbm0", 1.0),), shared=True)
    large = Tensor("large", 10**9, (("hbm0", 1.0),), shared=True)
    for tensor, least in ((small, 0), (large, 80 * (10**9 - cache) - cache)):
        layer = Compute("layer", "gpu0", reads=(tensor.name,))
        step = compile_step(desktop, Plan("x", {tensor.name: tensor}, (Block((layer,), 80),)))
        assert floor(step).load_seconds == pytest.approx(max(0, least) / 1008.1e9)


def test_latencies_of_queued_copies_may_overlap_in_a_floor():
    slow = Topology.build(
        name="x",
        memories=[Memory("dram", "dram", 10**9, rate(BIG), at="socket"), Memory("hbm0", "hbm", 10**9, rate(BIG))],
        processors=[Processor("gpu0", "gpu", "hbm0")],
        switches=[Switch("socket")],
        links=[Link("link", "socket", "hbm0", rate(1000), rate(1000), latency=(1.0, 1.0))],
    )
    tensors = {"w": Tensor("w", 1000, (("dram", 1.0),))}
    step = compile_step(slow, Plan("x", tensors, (Block((Transfer("fetch", "w", "hbm0"),), 10),)))
    assert floor(step).cold_seconds == pytest.approx(11.0), "one latency, ten loads"
    assert schedule(step).cold_seconds == pytest.approx(20.0)


def test_bulk_stands_still_for_urgent_rows_where_it_fills_a_memory(tmp_path):
    """A drive fills DRAM, a copy empties it, and together they ask for just its rate; an urgent row needs it too."""
    rate = "rate: {peak: %s GB/s, sustained: %s GB/s}"
    (tmp_path / "box.yaml").write_text("switches: {socket: {kind: socket}}\nmemories:\n"
        + "".join(f"  {name}: {{kind: hbm, {rate % (17, 17)}}}\n" for name in ("hbm0", "hbm1"))
        + f"  dram: {{kind: dram, at: socket, {rate % (18, 18)}}}\n"
        + "  ssd: {kind: nvme, read: {peak: 14 GB/s, sustained: 14 GB/s}}\n"
        + "processors: {g0: {kind: gpu, memory: hbm0}, g1: {kind: gpu, memory: hbm1}}\nlinks:\n"
        + f"  p0: {{between: [socket, hbm0], {rate % (10, 10)}}}\n"
        + f"  p1: {{between: [socket, hbm1], {rate % (22, 22)}}}\n"
        + f"  m2: {{between: [ssd, socket], {rate % (8.1755, 8.1755)}}}\n")  # fmt: skip
    server = load_topology(tmp_path / "box.yaml")
    tensors = {"b": Tensor("b", 52 * 10**9, (("ssd", 1.0),)),
               "c": Tensor("c", 13 * 10**9, (("dram", 1.0),), transient=True)}  # fmt: skip
    moves = (Block((Transfer("t0", "b", "hbm0"),)), Block((Transfer("t1", "c", "hbm1"),)))
    step = compile_step(server, Plan("row", tensors, moves, data_cycle=False))
    bound = floor(step, "value")
    assert bound.bottleneck == ("dram",) and bound.seconds == pytest.approx((2 * 52 + 13) / 18, rel=1e-12)
    assert bound.seconds <= schedule(step).seconds * (1 + 1e-12) <= serial(step).seconds


@given(st.data())
@settings(max_examples=60)
def test_windows_of_several_lanes_are_those_of_each(data):
    """Lanes of many names find their windows at once: the same numbers, one column for each."""
    count = data.draw(st.integers(1, 9))
    owner = data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    lanes = [[i for i in range(count) if owner[i] == lane] for lane in sorted(set(owner))]
    arcs = [(lane[-1], lane[0], 1) for lane in lanes]
    arcs += [(a, b, 0) for lane in lanes for a, b in zip(lane, lane[1:], strict=False)]
    for later in range(1, count):
        for earlier in data.draw(st.lists(st.integers(0, later - 1), max_size=2, unique=True)):
            arcs.append((earlier, later, 0))
    for _ in range(data.draw(st.integers(0, 3))):
        ends = data.draw(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)))
        arcs.append((*ends, data.draw(st.integers(1, 3))))
    arcs.sort(key=lambda arc: (arc[1], arc[0]))
    assert lanes_module.windows(lanes, arcs, count) == [lanes_module._window(lane, arcs, count) for lane in lanes]


def test_lanes_of_many_names_are_timed_alike(tmp_path, monkeypatch):
    tasks = "".join(f"  m{i}: {{move: w, to: hbm0}}\n"
        f"  c{i}: {{compute: gpu0, reads: w, flops: {i} GFLOP, after: m{i}}}\n" for i in range(6))
    path = tmp_path / "plan.yaml"
    path.write_text("topology: desktop-4090\ntensors: {w: {bytes: 1 MB, home: dram0}}\nrepeat: 2\n"
                    f"tasks:\n{tasks}", encoding="utf-8")  # fmt: skip
    plan, topology = load_plan(path)
    alone = schedule(compile_step(topology, plan))
    monkeypatch.setattr(lanes_module, "FEW", 2)
    monkeypatch.setattr(lanes_module, "MANY", 3)
    assert schedule(compile_step(topology, plan)) == alone


@pytest.mark.few
@pytest.mark.parametrize("kept", [lanes_module.KEPT, 1])
@pytest.mark.parametrize("name", ["weights-split-rows", "llama-3-70b-from-two-drives", "kv-on-the-host"])
def test_what_is_kept_of_an_order_changes_no_time(name, kept, monkeypatch):
    """Steps of other rates take windows from the step that they are made of: each has the times of one by itself."""
    monkeypatch.setattr(lanes_module, "KEPT", kept)
    plan, topology = load_plan(EXAMPLES / f"{name}.yaml")
    step = compile_step(topology, plan)
    schedule(step, ends=False)
    assert 0 < len(step.shared["windows"]) <= kept
    for factor in (0.25, 3.0):
        for resource in list(step.resources)[:2]:
            faster = scaled(step, [resource], factor)
            assert faster.shared is step.shared
            assert schedule(faster, ends=False) == schedule(replace(faster, shared={}), ends=False)
