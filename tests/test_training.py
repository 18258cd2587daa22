"""Training: bytes by hand, the worked examples through plans, the closed forms met, ladders, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload import evaluate, load_topology
from offload.bounds import floor, load_seconds
from offload.compiler import compile_step
from offload.designs.training import Training, TrainingWorkload, homes_of, plan_training
from offload.errors import DocumentError, FormulaError, PlanError
from offload.models import Layer, Matrix, Model, catalogue
from offload.models.cache import Cache
from offload.overlap import efficiency, intensities
from offload.plan import Collective, Compute, Overlap, Transfer
from offload.schedules import schedule, serial
from offload.step import loads, row_seconds
from offload.techniques import checkpoint_traffic, zero_offload
from offload.topology import Link, Memory, Processor, Switch, Topology
from offload.training import bandwidth_for, compute_seconds, tier_needs, tier_traffic, training_times
from tests.boxes import GB, box, plan_of, rate

SMALL = Model("small", "test", layers=4, hidden=64, heads=4, kv_heads=2, head_dim=16, ffn=160, vocab=500)
TIED = replace(SMALL, name="tied", tied=True)


def planned(topology, training, model=SMALL, workload=None, **more):
    return plan_training(model, topology, workload or TrainingWorkload(8, 32), training, **more)


def there(topology, training, model=SMALL, workload=None):
    return loads(compile_step(topology, planned(topology, training, model, workload)), least=False)


def server(**rates):
    """One GPU without caches or latencies; rates [B/s, FLOP/s] of hbm, dram, link, half (duplex), flops, drive."""
    drive = rate(rates.get("drive", 1e18))
    return Topology.build(
        name="one", title="one",
        memories=[Memory("hbm0", "hbm", None, rate(rates.get("hbm", 1e18))),
                  Memory("dram0", "dram", None, rate(rates.get("dram", 1e18)), at="socket0"),
                  Memory("ssd0", "nvme", None, read=drive, write=drive)],
        processors=[Processor("gpu0", "gpu", "hbm0", {"bf16": rate(rates.get("flops", 1e18))}),
                    Processor("cpu0", "cpu", "dram0", {"fp32": rate(1e18)})],
        switches=[Switch("socket0")],
        links=[Link("pcie0", "socket0", "hbm0", rate(rates.get("link", 1e18)), rate(rates.get("link", 1e18)), "pcie"),
               Link("m2", "ssd0", "socket0", rate(1e18), rate(1e18))],
    )  # fmt: skip


# Bytes by hand: what each parameter loads, in each placement.


@pytest.mark.parametrize("model", [SMALL, TIED])
@pytest.mark.parametrize(
    ("training", "loaded"),
    [
        # ZeRO-Offload: 2 down, 2 up; DRAM 28 by the update and 4 by the copies (36 with 32-bit gradients).
        (Training("hbm0", "dram0"), {"pcie0.socket0": 2, "pcie0.hbm0": 2, "dram0": 32}),
        (Training("hbm0", "dram0", gradient_bytes=4), {"pcie0.socket0": 4, "pcie0.hbm0": 2, "dram0": 36}),
        (Training("hbm0", "dram0", gradients="hbm0"), {"pcie0.socket0": 2, "pcie0.hbm0": 2, "dram0": 32}),
        # States on the drive: 12 read and 12 written, and again by host memory.
        (Training("hbm0", "ssd0"), {"ssd0.read": 12, "ssd0.write": 12, "dram0": 32 + 24, "pcie0.socket0": 2,
                                    "pcie0.hbm0": 2}),
        (Training("hbm0", "ssd0", gradients="ssd0", gradient_bytes=4),
         {"ssd0.read": 16, "ssd0.write": 16, "dram0": 36 + 24 + 8, "pcie0.socket0": 4, "pcie0.hbm0": 2}),
        # The GPU updates states of the host: 12 each way, and nothing else.
        (Training("hbm0", "dram0", optimizer_on="gpu0"), {"pcie0.socket0": 12, "pcie0.hbm0": 12, "dram0": 24}),
        # Twin-Flow: a quarter stays on the GPU.
        (Training("hbm0", "dram0", gpu_share=0.25), {"pcie0.socket0": 1.5, "pcie0.hbm0": 1.5, "dram0": 24}),
        (Training("hbm0", "hbm0"), {}),
    ],
)  # fmt: skip
def test_bytes_for_each_parameter(model, training, loaded):
    found = there(box(gpus=1), training, model)
    for name in ("pcie0.socket0", "pcie0.hbm0", "dram0", "ssd0.read", "ssd0.write"):
        assert found.get(name, 0) == pytest.approx(loaded.get(name, 0) * model.parameters, rel=1e-12), name


@pytest.mark.parametrize(("reuse", "times"), [(True, 2), (False, 3)])
def test_parameters_are_fetched_in_each_pass(reuse, times):
    """Of layers once forward and once or twice backward; the embedding once; the head once for both passes."""
    found = there(box(gpus=1), Training("dram0", "dram0", reuse=reuse))
    layers = sum(layer.parameters for layer in [*_layers(SMALL)])
    assert found["pcie0.hbm0"] == 2 * (SMALL.parameters + (times - 1) * layers)
    assert found["pcie0.socket0"] == 2 * SMALL.parameters  # gradients
    drive = there(box(gpus=1), Training("ssd0", "ssd0", reuse=reuse))
    assert drive["ssd0.read"] == found["pcie0.hbm0"] + 12 * SMALL.parameters
    assert drive["ssd0.write"] == 14 * SMALL.parameters


def test_a_tied_head_fetches_the_embedding_and_is_updated_once():
    found = there(box(gpus=1), Training("dram0", "dram0"), TIED)
    layers = sum(layer.parameters for layer in _layers(TIED))
    assert found["pcie0.hbm0"] == 2 * (TIED.parameters + layers + 500 * 64)
    assert found["pcie0.socket0"] == 2 * TIED.parameters


def _layers(model):
    from offload.models import layers_of

    return layers_of(model)


def test_flop_are_six_and_eight_for_each_weight():
    """Model FLOP three forward passes; with checkpoints layers run a fourth time; attention is causal."""
    workload = TrainingWorkload(8, 32)
    plain = planned(box(gpus=1), Training("hbm0", "hbm0", checkpoints="none"), workload=workload)
    again = planned(box(gpus=1), Training("hbm0", "hbm0"), workload=workload)
    matrices = 2 * 64 * 64 + 2 * 32 * 64 + 3 * 160 * 64
    attention = 4 * 4 * 16 * 32 * 33 // 2
    layer = 8 * (32 * 2 * matrices + attention)
    head = 8 * 32 * 2 * 64 * 500
    for plan, hardware in ((plain, 12 * layer + 3 * head), (again, 16 * layer + 3 * head)):
        assert plan.training.model_flops == 12 * layer + 3 * head
        assert plan.training.hardware_flops == hardware
        done = sum(block.repeat * task.flops for block in plan.blocks for task in block.tasks
                   if isinstance(task, Compute))  # fmt: skip
        assert done == hardware
    assert again.training.layer_flops == 8 * 8 * 32 * 4 * matrices


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_micro_batches_add_gradients_where_they_are_kept(parts):
    workload = TrainingWorkload(8, 32, parts)
    host = there(box(gpus=1), Training("hbm0", "dram0"), workload=workload)
    assert host["pcie0.socket0"] == 2 * SMALL.parameters * parts
    assert host["pcie0.hbm0"] == 2 * SMALL.parameters * parts  # parts - 1 come back, the new parameters come once
    near = there(box(gpus=1), Training("hbm0", "dram0", gradients="hbm0"), workload=workload)
    assert near["pcie0.socket0"] == near["pcie0.hbm0"] == 2 * SMALL.parameters
    assert host["gpu0.flops"] == near["gpu0.flops"] == there(box(gpus=1), Training("hbm0", "dram0"))["gpu0.flops"]


def test_memory_holds_state_once():
    step = compile_step(box(gpus=1), planned(box(gpus=1), Training("dram0", "ssd0", checkpoints="dram0")))
    held = step.occupied
    count = SMALL.parameters
    assert held["ssd0"] == {"optimizer states": 12 * count}
    checkpoints = 4 * 8 * 32 * 64 * 2
    assert held["dram0"]["gradients"] == 2 * count and held["dram0"]["activation checkpoints"] == checkpoints
    assert held["dram0"]["parameters"] == 2 * count
    assert held["hbm0"]["activations (estimate)"] == 8 * 32 * (34 * 64 + 6 * 500)
    all_kept = compile_step(box(gpus=1), planned(box(gpus=1), Training("hbm0", "hbm0", checkpoints="none"))).occupied
    assert all_kept["hbm0"]["activations (estimate)"] == 8 * 32 * (4 * 34 * 64 + 6 * 500)
    assert all_kept["hbm0"]["optimizer states"] == 12 * count and all_kept["hbm0"]["gradients"] == 2 * count
    assert list(all_kept) == ["hbm0"]


# Several GPUs.


@pytest.mark.parametrize(
    ("training", "loaded"),
    [
        # each fetches a half in both passes; each sends a half of the gradients
        (Training("dram0", "dram0", compute="gpu0..1"), {"pcie0.hbm0": 1, "pcie0.socket0": 1}),
        (Training("hbm0..1", "dram0", compute="gpu0..1"), {"pcie0.hbm0": 1, "pcie0.socket0": 1}),
        (Training("hbm0..1", "dram0", compute="gpu0..1", stage=2), {"pcie0.hbm0": 1, "pcie0.socket0": 1}),
        (Training("hbm0..1", "hbm0..1", compute="gpu0..1"), {}),
    ],
)
def test_each_gpu_moves_its_part(training, loaded):
    topology = box(gpus=2, nvlink=100e9)
    plan = planned(topology, training)
    found = loads(compile_step(topology, plan), least=False)
    layers = sum(layer.parameters for layer in _layers(SMALL))
    fetched = SMALL.parameters + layers if training.parameters == "dram0" else SMALL.parameters
    for link in ("pcie0", "pcie1"):
        host = f"{link}.hbm{link[-1]}"
        assert found.get(host, 0) == pytest.approx(loaded.get("pcie0.hbm0", 0) * fetched, rel=1e-12)
        assert found.get(f"{link}.socket0", 0) == pytest.approx(loaded.get("pcie0.socket0", 0) * SMALL.parameters)
    exchanged = {task.kind for block in plan.blocks for task in block.tasks if isinstance(task, Collective)}
    assert exchanged == {"all_gather", "reduce_scatter"}
    # A ring of two: a half of each gathered or summed buffer leaves each GPU.
    gathers = 1 if training.stage == 2 else 2
    once = SMALL.parameters if training.stage == 2 else SMALL.parameters + layers * (gathers - 1)
    assert found["nv0.nvsw"] == pytest.approx(once + SMALL.parameters, rel=1e-12)
    assert found["gpu0.flops"] == found["gpu1.flops"] == plan.training.hardware_flops / 2


def test_two_sockets_take_from_their_own_gpus():
    """Gradients go to the nearer socket: the link between the sockets carries nothing."""
    topology = box(gpus=4, sockets=2, nvlink=100e9)
    found = there(topology, Training("hbm0..3", "dram0..1", compute="gpu0..3"))
    assert found.get("upi.socket1", 0) == found.get("upi.socket0", 0) == 0
    assert found["dram0"] == found["dram1"] == pytest.approx(16 * SMALL.parameters)


# The worked examples, through plans.


def test_w58_zero_offload():
    """10^10 parameters' times: the rates are those of the example over what the model has less."""
    model = TIED
    scale = model.parameters / 1e10
    topology = server(link=25e9 * scale, dram=200e9 * scale)
    # Of a tied embedding every row is updated; of another a floor counts one.
    step = compile_step(topology, planned(topology, Training("hbm0", "dram0"), model))
    found = floor(step)
    closed = zero_offload(model.parameters, to_host=25e9 * scale, to_device=25e9 * scale, host_memory=200e9 * scale)
    load = loads(step, least=True)
    assert load["dram0"] == closed.host_bytes * model.parameters == 32 * model.parameters
    adam = sum(count * use.load for row, count in zip(step.rows, step.counts, strict=True) if row.name == "update"
               for use in row.uses if use.resource == "dram0")  # fmt: skip
    assert adam == closed.adam_bytes * model.parameters == 28 * model.parameters
    assert load["pcie0.hbm0"] / (25e9 * scale) == pytest.approx(0.8, rel=1e-12)
    assert load["pcie0.socket0"] / (25e9 * scale) == pytest.approx(0.8, rel=1e-12)
    assert found.load_seconds == pytest.approx(1.6, rel=1e-12) == float(closed.bound.seconds)


MATRICES = Layer((Matrix("ffn_up", None, 12 * 8192, 8192),), Cache("full", 1, 1, 1), attend=0, heads=1)
PAPER = Model("paper", "test", layers=3, hidden=8192, heads=0, kv_heads=0, head_dim=0, ffn=0, vocab=1,
              stack=(MATRICES,) * 3)  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "training", "exact"),
    [
        ("parameters and gradients", Training("dram0", "dram0", reuse=False), Fraction(128, 253)),
        ("optimizer states", Training("dram0", "ssd0", gradients="ssd0", gradient_bytes=4), Fraction(32, 157)),
        ("activation checkpoints", Training("hbm0", "dram0", checkpoints="dram0"), Fraction(24576, 24701)),
    ],
)
def test_w59_zero_infinity(kind, training, exact):
    """Layers of 12 x hidden^2 weights, one sequence of 1024: FLOP per byte and the share without overlap."""
    topology = server(link=70e9, drive=70e9, flops=70e12)
    step = compile_step(topology, planned(topology, training, PAPER, TrainingWorkload(1, 1024)))
    found = {one.kind: one for one in tier_traffic(step)}[kind]
    names = {"parameters and gradients": "params_grads", "optimizer states": "optimizer",
             "activation checkpoints": "activations"}  # fmt: skip
    intensity = getattr(intensities(1024, 1, 8192, 1), names[kind])
    assert found.intensity == pytest.approx(intensity, rel=1e-12)
    assert found.without_overlap == pytest.approx(float(exact), rel=1e-12)
    assert found.overlapped == pytest.approx(min(1, intensity * 70e9 / 70e12), rel=1e-12)


def test_w60_activation_checkpoints():
    model = replace(PAPER, layers=64, stack=(MATRICES,) * 64)
    topology = server(link=25e9)
    for interval in (1, 2, 8):
        plan = planned(topology, Training("hbm0", "hbm0", checkpoints="dram0", every=interval), model,
                       TrainingWorkload(4, 4096))  # fmt: skip
        found = loads(compile_step(topology, plan), least=False)
        closed = checkpoint_traffic(64, hidden=8192, tokens=4 * 4096, interval=interval, to_host=25e9, to_device=25e9)
        assert found["pcie0.socket0"] == found["pcie0.hbm0"] == closed.bytes == 17179869184 / interval
        assert found["pcie0.socket0"] / 25e9 == pytest.approx(closed.to_host_seconds, rel=1e-12)
    assert 17179869184 / 25e9 == pytest.approx(0.68719476736, rel=1e-12)


def test_what_is_needed_is_the_inverse():
    for target in (0.5, 0.9, 0.99):
        assert efficiency(1024, bandwidth_for(target, 1024, 70e12, overlapped=False), 70e12) == pytest.approx(target)
        there = bandwidth_for(target, 1024, 70e12)
        assert efficiency(1024, there, 70e12, "max(compute, transfer)") == pytest.approx(target)
    assert bandwidth_for(Fraction(1, 2), 1024, 70 * 10**12) == Fraction(35 * 10**12, 1024)
    for wrong in (0, -1, 1.5, True, "a"):
        with pytest.raises(FormulaError, match="target"):
            bandwidth_for(wrong, 1, 1)
    with pytest.raises(FormulaError, match="never fills"):
        bandwidth_for(1, 1, 1, overlapped=False)


def test_a_tier_with_what_it_needs_reaches_the_target():
    """With every rate as needed the busiest resource is busy for the arithmetic's time over the target."""
    topology = server(hbm=1e13, link=3e6, dram=3e7, flops=1e11)  # what is expected: floors count less
    step = compile_step(topology, planned(topology, Training("dram0", "dram0")))
    needs = {one.name: one for one in tier_needs(step, 0.8)}
    assert not needs["pcie0.hbm0"].enough and needs["hbm0"].enough
    faster = server(hbm=1e13, link=max(needs["pcie0.hbm0"].needed, needs["pcie0.socket0"].needed),
                    dram=needs["dram0"].needed, flops=1e11)  # fmt: skip
    again = compile_step(faster, planned(faster, Training("dram0", "dram0")))
    assert load_seconds(again, "value").seconds == pytest.approx(compute_seconds(step) / 0.8, rel=1e-9)


# Order and times.


def test_a_delayed_update_is_hidden():
    """Where the update takes as long as the passes, what is left of it is that new parameters come at the end."""
    compute = planned(box(gpus=1), Training("hbm0", "dram0")).training.hardware_flops / 1e9
    host = 1.2 * 32 * SMALL.parameters / compute
    slow = server(flops=1e9, dram=host, link=host / 4)
    plain, delayed = (compile_step(slow, planned(slow, Training("hbm0", "dram0", delayed=delayed)))
                      for delayed in (False, True))  # fmt: skip
    comes = 2 * SMALL.parameters / (host / 4)
    assert compute + comes <= schedule(delayed).seconds * (1 + 1e-9)
    assert schedule(delayed).seconds < schedule(plain).seconds
    assert floor(delayed).seconds >= compute * (1 - 1e-12)
    assert floor(plain).seconds > 1.1 * floor(delayed).seconds
    assert delayed.plan.in_flight == 2 and delayed.plan.carried == (
        ("parameters to hbm0", "forward", 1), ("update", "parameters to hbm0", 1))  # fmt: skip
    times = training_times(delayed, schedule(delayed), floor(delayed).seconds)
    assert times.delayed and times.forward + times.backward + times.update == pytest.approx(
        schedule(delayed).cold_seconds, rel=1e-12)  # fmt: skip


def test_backward_runs_in_reverse_and_updates_follow_their_gradients():
    plan = planned(box(gpus=1), Training("dram0", "dram0", checkpoints="dram0"), replace(SMALL, tied=True))
    names = [[task.name for task in block.tasks] for block in plan.blocks]
    assert [block.repeat for block in plan.blocks] == [1, 4, 1, 4, 1]
    assert plan.carried == (("update", "fetch parameters", 1),)
    assert [one[-1] for one in names] == ["embedding", "checkpoint to dram0", "update", "update", "update"]
    last = {task.name: task for task in plan.blocks[3].tasks}
    assert last["gradients to dram0"].after == ("backward",) and last["gradients to dram0"].into
    assert last["update"].after == ("gradients to dram0",)
    assert set(last["backward"].after) == {"fetch parameters", "previous.backward", "head", "fetch checkpoint"}
    assert isinstance(last["fetch checkpoint"], Transfer) and last["fetch checkpoint"].after == ("checkpoint to dram0",)


def test_no_overlap_adds_up():
    topology = box(gpus=1)
    step = compile_step(topology, planned(topology, Training("dram0", "dram0"), overlap=Overlap("none")))
    alone = sum(count * max(row_seconds(step, row, "value").values(), default=0.0)
                for row, count in zip(step.rows, step.counts, strict=True))  # fmt: skip
    assert schedule(step).seconds == pytest.approx(serial(step).seconds) == pytest.approx(alone)


memories = st.sampled_from(["hbm0", "dram0", "ssd0"])


@pytest.mark.slow
@given(memories, memories, memories, st.sampled_from(["hbm0", "dram0", "none", "ssd0"]), st.sampled_from([1, 2, 3]),
       st.booleans(), st.booleans(), st.sampled_from([0.0, 0.3]), st.sampled_from([1, 2]), st.booleans(),
       st.sampled_from([Overlap(), Overlap("none"), Overlap("buffers", 0), Overlap("buffers", 1)]),
       st.sampled_from(["desktop-4090", "box"]), st.sampled_from(["", "gpu0"]))  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_ladders_of_training(parameters, gradients, optimizer, checkpoints, every, reuse, delayed, share, parts, tied,
                             overlap, name, on):  # fmt: skip
    topology = box(gpus=1) if name == "box" else load_topology(name)
    training = Training(parameters, optimizer, gradients, on, "", checkpoints, every, 2, delayed, share, 3, reuse)
    try:
        plan = planned(topology, training, TIED if tied else SMALL, TrainingWorkload(4, 64, parts), overlap=overlap)
    except PlanError:
        return
    step = compile_step(topology, plan)
    low, point, expected, most = floor(step), floor(step, "value"), schedule(step), serial(step)
    assert 0 <= low.seconds <= point.seconds * (1 + 1e-12)  # 0 where all of it fits in a cache
    assert point.seconds <= expected.seconds * (1 + 1e-12)
    assert expected.seconds <= most.seconds * (1 + 1e-12)
    assert low.cold_seconds <= point.cold_seconds * (1 + 1e-12)
    assert point.cold_seconds <= expected.cold_seconds * (1 + 1e-12)
    assert expected.cold_seconds <= most.cold_seconds * (1 + 1e-12)


@pytest.mark.parametrize("training", [
    Training("dram0..1", "dram0..1", compute="gpu0..3", checkpoints="dram0..1"),
    Training("hbm0..3", "dram0", compute="gpu0..3", stage=2, delayed=True),
    Training("hbm0..3", "dram0..1", compute="gpu0..3", gpu_share=0.3),
    Training("hbm0..3", "hbm0..3", compute="gpu0..3"),
    Training("ssd0", "ssd0", compute="gpu0..3", gradients="ssd0", reuse=False),
])  # fmt: skip
@pytest.mark.parametrize("parts", [1, 2])
def test_ladders_of_several(training, parts):
    topology = box(gpus=4, sockets=2, nvlink=100e9)
    step = compile_step(topology, planned(topology, training, workload=TrainingWorkload(8, 32, parts)))
    low, point, expected, most = floor(step), floor(step, "value"), schedule(step), serial(step)
    assert 0 < low.seconds <= point.seconds * (1 + 1e-12)
    assert point.seconds <= expected.seconds * (1 + 1e-12) and expected.seconds <= most.seconds * (1 + 1e-12)
    assert low.cold_seconds <= expected.cold_seconds * (1 + 1e-12)


def test_a_cache_only_lowers_a_floor():
    """With any cache in front of host memory a floor counts no more, and never more than all of the bytes."""
    plain = load_topology("desktop-4090")
    plan = planned(plain, Training("dram0", "dram0", checkpoints="dram0"), catalogue["llama-3.2-1b"])
    known = []
    for cache in (0, 10**6, 32 * 10**6, 10**9):
        memories = [replace(one, cache=cache) if one.name == "dram0" else one for one in plain.memories.values()]
        topology = Topology.build(
            name="cached", title="", memories=memories, processors=plain.processors.values(),
            switches=plain.switches.values(), links=plain.links.values(), limits=plain.limits.values())
        known.append(floor(compile_step(topology, plan)).load_seconds)
    assert known == sorted(known, reverse=True) and known[-1] < known[0]


@pytest.mark.parametrize("gpus", ["gpu0", "gpu0..1"])
def test_what_the_gpu_updates_takes_load_off_the_host(gpus):
    topology = box(gpus=2, nvlink=100e9)
    own = gpus.replace("gpu", "hbm")
    times = []
    for share in (0.0, 0.25, 0.5, 0.75):
        stage = 3 if gpus == "gpu0" else 2
        plan = planned(topology, Training(own, "dram0", compute=gpus, stage=stage, gpu_share=share))
        step = compile_step(topology, plan)
        load = loads(step, least=False)
        assert load["dram0"] == pytest.approx((1 - share) * 32 * SMALL.parameters)
        times.append(floor(step).load_seconds)
    assert times == sorted(times, reverse=True) and times[0] > 2 * times[-1]


# In files.

HEAD = "model: {name: llama-3.2-1b}\nworkload: {phase: train, batch: 8, context: 256}\n"


def test_a_file_says_it(tmp_path):
    topology = box(gpus=1, capacity=1000 * GB)
    plan = plan_of(tmp_path, HEAD + "training: {parameters: dram0, optimizer: ssd0, checkpoints: dram0, "
                   "every: 2 layers, gradient_format: 32-bit, delayed: true, reserve: 1 GB}\n"
                   "costs: {launches: {each: layer, time: 1 ms}, data: {each: step, time: 2 ms}}\n", topology)
    same = plan_training(catalogue["llama-3.2-1b"], topology, TrainingWorkload(8, 256), Training(
        "dram0", "ssd0", checkpoints="dram0", every=2, gradient_bytes=4, delayed=True, reserve=GB,
        costs=plan_costs(plan)))  # fmt: skip
    assert plan.tensors == same.tensors and plan.held == same.held
    times = [task.time.value * block.repeat for block in plan.blocks for task in block.tasks
             if isinstance(task, Compute) and task.time is not None]  # fmt: skip
    assert sum(times) == pytest.approx(0.001 * 2 * 16 + 0.002)
    study = evaluate(topology, plan)
    assert study.training is not None and study.training.traffic and study.training.needs
    assert study.training.model_flops < study.training.hardware_flops < 100e12


def plan_costs(plan):
    from offload.designs import Cost

    found = {task.name: task.time for block in plan.blocks for task in block.tasks
             if isinstance(task, Compute) and task.time is not None}  # fmt: skip
    return tuple(Cost(name, "layer" if name == "launches" else "step", time) for name, time in found.items())


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("training: {parameters: dram9, optimizer: dram0}", "training.parameters", 'no memory "dram9"'),
        ("training: {parameters: gpu0, optimizer: dram0}", "training.parameters", "its memory is hbm0"),
        ("training: {parameters: hbm0, optimizer: dram0, compute: cpu0}", "training.compute", "is a CPU"),
        ("training: {parameters: hbm0, optimizer: dram0, checkpoints: disk}", "training.checkpoints", "none"),
        ("training: {parameters: hbm0, optimizer: hbm0, delayed: true}", "training.delayed", "runs on the GPU"),
        ("training: {parameters: hbm0, optimizer: dram0, gpu_share: 0%}", "training.gpu_share", "out of range"),
        ("training: {parameters: dram0, optimizer: dram0, gpu_share: 30%}", "training.gpu_share", "parameters: hbm0"),
        ("training: {parameters: hbm0, optimizer: hbm0, gpu_share: 30%}", "training.gpu_share", "already"),
        ("training: {parameters: hbm0, optimizer: dram0, gpu_share: 100%}", "training.gpu_share", "optimizer: hbm0"),
        ("training: {parameters: hbm0, optimizer: dram0, stage: 2}", "training.stage", "one GPU"),
        ("training: {parameters: hbm0, optimizer: dram0, stage: 1}", "training.stage", "Write 3"),
        ("training: {parameters: hbm0, optimizer: dram0, every: 2}", "training.every", '"2 layers"'),
        ("training: {parameters: hbm0, optimizer: dram0, every: 99 layers}", "training.every", "the model has 16"),
        ("training: {parameters: hbm0, optimizer: dram0, checkpoints: none, every: 2 layers}", "training.every",
         "without checkpoints"),
        ("training: {parameters: hbm0, optimizer: dram0, reuse: false}", "training.reuse", "nothing is fetched"),
        ("training: {parameters: hbm0, optimizer: dram0, precision: fp8}", "training.precision", "unknown key"),
        ("training: {parameters: hbm0}", "training", '"optimizer" is missing'),
        ("training: {parameters: hbm0, optimizer: dram0}\nplacement: {weights: {hbm0: rest}}", "placement",
         "where everything lives: training"),
        ("training: {parameters: hbm0, optimizer: dram0}\ncosts: {update: {each: step, time: 1 ms}}", "costs.update",
         "task of the step"),
        ("", "", '"training" is missing'),
    ],
)  # fmt: skip
def test_what_is_refused(text, place, said, tmp_path):
    with pytest.raises(DocumentError) as error:
        plan_of(tmp_path, HEAD + text, box(gpus=1))
    assert any(place in one.key and said in one.message for one in error.value.mistakes), str(error.value)
    assert "plan.yaml" in str(error.value) or error.value.mistakes[0].line


@pytest.mark.parametrize(
    ("workload", "place", "said"),
    [
        ("{phase: train, batch: 9, context: 256}", "workload.batch", "multiple of 2"),
        ("{phase: train, batch: 8, context: 256, micro_batches: 3}", "workload.batch", "multiple of 6"),
        ("{phase: train, batch: 8, context: 0}", "workload.context", "at least 1"),
        ("{phase: train, batch: 8, prompt: 5}", "workload.prompt", "phase train"),
        ("{phase: decode, batch: 8}", "workload.phase", "phase: train"),
        ("{batch: 8}", "workload", "phase: train"),
    ],
)
def test_what_is_refused_of_a_workload(workload, place, said, tmp_path):
    text = f"model: {{name: llama-3.2-1b}}\nworkload: {workload}\n"
    with pytest.raises(DocumentError) as error:
        plan_of(tmp_path, text + "training: {parameters: hbm0..1, optimizer: dram0, compute: gpu0..1}",
                box(gpus=2, nvlink=100e9))  # fmt: skip
    assert any(place in one.key and said in one.message for one in error.value.mistakes), str(error.value)


def test_micro_batches_belong_to_training(tmp_path):
    with pytest.raises(DocumentError, match="micro_batches.*phase train"):
        plan_of(tmp_path, "model: {name: llama-3.2-1b}\nworkload: {micro_batches: 2}\n"
                "placement: {weights: {hbm0: rest}}",
                box(gpus=1))  # fmt: skip
    with pytest.raises(DocumentError, match="bf16 or fp16"):
        plan_of(tmp_path, "model: {name: 'llama-3.2-1b:q4_k_m'}\nworkload: {phase: train}\n"
                "training: {parameters: hbm0, optimizer: dram0}", box(gpus=1))  # fmt: skip


@pytest.mark.parametrize(
    ("training", "said"),
    [
        (Training("hbm0", "dram0"), "training.compute: box has 2 GPUs"),
        (Training("hbm0", "dram0", compute="gpu0..1"), "training.parameters: hbm0 is not the memory of"),
        (Training("hbm1", "dram0", compute="gpu0"), "training.parameters: hbm1 is the memory of a GPU that does not"),
        (Training("hbm0", "dram0", optimizer_on="gpu1", compute="gpu0"), "optimizer_on: gpu1 does not compute"),
        (Training("hbm0..1", "dram0", optimizer_on="gpu0", compute="gpu0..1"), "of gpu0..1 all update, or none"),
        (Training("dram0", "dram0", compute="gpu0..1", stage=2), "training.stage: stage 2 keeps all"),
        (Training("hbm0..1", "dram0", compute="gpu0..1", gradient_bytes=3), "training.gradient_bytes: 3"),
    ],
)
def test_what_a_design_refuses(training, said):
    with pytest.raises(PlanError, match=said):
        planned(box(gpus=2, nvlink=100e9), training)


def test_too_many_tasks_are_refused():
    with pytest.raises(PlanError, match="workload.micro_batches: .* are laid out"):
        planned(box(gpus=1), Training("dram0", "dram0"), workload=TrainingWorkload(4096, 32, 4096))


def test_homes_are_filled_in():
    homes = homes_of(load_topology("desktop-4090"), Training("ssd0", "ssd0"))
    assert (homes.compute, homes.own, homes.update_on, homes.update, homes.gradients, homes.checkpoints) == (
        "gpu0", "hbm0", "cpu0", "dram0", "dram0", "hbm0")  # fmt: skip
