"""Gradient clipping: no update before the last gradient, and the same loads; places that do not go together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offload import load_topology
from offload.bounds import floor
from offload.compiler import compile_step
from offload.designs.training import Training, TrainingWorkload
from offload.errors import DocumentError, PlanError
from offload.models import catalogue
from offload.plan import Block, Compute, Plan, Tensor, Transfer
from offload.schedules import cold_timeline, schedule, serial
from offload.step import loads
from offload.topology import Topology
from tests.boxes import GB, box, plan_of
from tests.test_training import HEAD, SMALL, planned, server

ONE = [Training("hbm0", "dram0"), Training("hbm0", "dram0", delayed=True), Training("hbm0", "dram0", gpu_share=0.3),
       Training("hbm0", "dram0", gradients="hbm0"), Training("dram0", "ssd0", checkpoints="dram0"),
       Training("dram0", "ssd0", gradients="ssd0"), Training("hbm0", "hbm0"),
       Training("hbm0", "dram0", optimizer_on="gpu0")]  # fmt: skip
FOUR = [Training("hbm0..3", "dram0..1", compute="gpu0..3", gpu_share=0.3),
        Training("dram0..1", "dram0..1", compute="gpu0..3"),
        Training("hbm0..3", "dram0", compute="gpu0..3", stage=2, delayed=True),
        Training("hbm0..3", "hbm0..3", compute="gpu0..3"),
        Training("hbm0..3", "dram0..1", compute="gpu0..3", gradients="hbm0..3")]  # fmt: skip


def both(training, parts):
    """The step without and with clipping."""
    topology = box(gpus=4, sockets=2, nvlink=100e9) if training.compute else box(gpus=1)
    return [compile_step(topology, planned(topology, replace(training, gradient_clipping=clip),
                                           workload=TrainingWorkload(8, 32, parts))) for clip in (False, True)]


@pytest.mark.few
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("training", ONE + FOUR)
def test_it_moves_nothing_and_no_update_is_early(training, parts):
    without, clipped = both(training, parts)
    assert loads(clipped, least=False) == pytest.approx(loads(without, least=False), rel=1e-12)
    assert clipped.occupied == without.occupied
    assert floor(clipped).load_seconds == pytest.approx(floor(without).load_seconds, rel=1e-12)
    time = cold_timeline(clipped)
    begins = {"update": [], "passes": [], "arrivals": []}
    kinds = {"update": "update", "update on the GPU": "update", "gradient norm": "passes",
             "embedding backward": "passes"}  # fmt: skip
    for row, start, end in zip(time.rows, time.starts, time.ends, strict=True):
        name = clipped.rows[row].name
        if name in kinds:
            begins[kinds[name]].append(start if kinds[name] == "update" else end)
        elif name.startswith("gradients to") and name.count(" to ") == 1:  # not what is on its way
            begins["arrivals"].append(end)
    assert min(begins["update"]) >= max(begins["passes"]) > 0
    # The n-th update follows the arrival of the n-th gradients, of the last micro-batch.
    if begins["arrivals"] and not training.gpu_share:
        ranks = len({row.name.rpartition(" from ")[2] for row in clipped.rows
                     if row.name.startswith("gradients to") and row.name.count(" to ") == 1})  # fmt: skip
        last = begins["arrivals"][-ranks * len(begins["update"]):]
        groups = [last[first : first + ranks] for first in range(0, len(last), ranks)]
        assert all(start >= max(ends) for start, ends in zip(begins["update"], groups, strict=True))


@pytest.mark.few
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("training", ONE + FOUR)
def test_ladders_with_clipping(training, parts):
    without, clipped = both(training, parts)
    low, point, expected, most = floor(clipped), floor(clipped, "value"), schedule(clipped), serial(clipped)
    assert low.seconds <= point.seconds * (1 + 1e-12) and point.seconds <= expected.seconds * (1 + 1e-12)
    assert expected.seconds <= most.seconds * (1 + 1e-12)
    assert low.cold_seconds <= point.cold_seconds * (1 + 1e-12) <= expected.cold_seconds * (1 + 1e-9)
    assert low.cold_seconds >= floor(without).cold_seconds * (1 - 1e-12)


def test_the_update_adds_to_the_passes():
    """Where only arithmetic and host memory take time: all passes, then what the update touches of the host."""
    compute = planned(box(gpus=1), Training("hbm0", "dram0")).training.hardware_flops / 1e9
    topology = server(flops=1e9, dram=28 * SMALL.parameters / compute)
    plain, clipped = (compile_step(topology, planned(topology, Training("hbm0", "dram0", gradient_clipping=clip)))
                      for clip in (False, True))  # fmt: skip
    # The embedding's gradient, which is made last, the update, and new parameters that are read to be sent.
    behind = 2 * SMALL.vocab * SMALL.hidden + (28 + 2) * SMALL.parameters
    least = compute * (1 + behind / 28 / SMALL.parameters)
    assert floor(clipped, "value").cold_seconds == pytest.approx(least, rel=1e-6)
    assert least * (1 - 1e-12) <= schedule(clipped).cold_seconds <= 1.05 * least
    assert schedule(plain).cold_seconds < 0.9 * least


def test_a_delayed_update_with_clipping_still_runs_beside_the_next_step():
    compute = planned(box(gpus=1), Training("hbm0", "dram0")).training.hardware_flops / 1e9
    topology = server(flops=1e9, dram=2 * 32 * SMALL.parameters / compute)
    delayed, plain = (compile_step(topology, planned(topology, Training(
        "hbm0", "dram0", gradient_clipping=True, delayed=delayed))) for delayed in (True, False))  # fmt: skip
    assert compute <= schedule(delayed).seconds < 1.1 * compute < 1.3 * compute < schedule(plain).seconds


def test_in_turn_waits_for_as_many_repetitions():
    topology = box(gpus=1)
    tensors = {"a": Tensor("a", GB, (("dram0", 1.0),)), "b": Tensor("b", GB, (("hbm0", 1.0),))}
    bring = Block((Transfer("bring", "a", "hbm0", into="b"),), 3)
    use = Block((Compute("use", "gpu0", reads=("b",), in_turn=("bring",)),), 3)
    step = compile_step(topology, Plan("in turn", tensors, (bring, use), data_cycle=False))
    names = [step.rows[row].name for row in step.instances]
    assert names == ["bring"] * 3 + ["use"] * 3
    assert [[wait.on for wait in step.waits[i] if wait.on < 3] for i in (3, 4, 5)] == [[0], [1], [2]]
    with pytest.raises(PlanError, match="in turn"):
        compile_step(topology, Plan("too few", tensors, (bring, replace(use, repeat=4)), data_cycle=False))


# In files.


def test_a_file_says_clipping(tmp_path):
    text = HEAD + "training: {parameters: hbm0, optimizer: dram0, gradient_clipping: %s}\n"
    topology = box(gpus=1, capacity=1000 * GB)
    plans = [plan_of(tmp_path, text % word, topology) for word in ("false", "true")]
    norms = [[task.name for block in plan.blocks for task in block.tasks].count("gradient norm") for plan in plans]
    assert norms[0] == 0 < norms[1]
    assert ["norm of all gradients" in " ".join(plan.assumptions) for plan in plans] == [False, True]


def test_host_memory_that_nothing_passes_is_told(tmp_path):
    text = HEAD + "training: {parameters: hbm0, optimizer: %s, host_memory: pageable}\n"
    topology = box(gpus=1, capacity=1000 * GB)
    told = ["training.host_memory: pageable changes nothing here: nothing is moved" in plan_of(
        tmp_path, text % home, topology).assumptions for home in ("hbm0", "dram0")]  # fmt: skip
    assert told == [True, False]


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("parameters: hbm0..1, optimizer: dram0..1, optimizer_on: cpu0", "training.optimizer_on",
         "Write `optimizer_on: cpu0..1`"),
        ("parameters: hbm0..1, optimizer: dram0, optimizer_on: cpu0..1", "training.optimizer_on",
         "Write `optimizer_on: cpu0`"),
        ("parameters: dram0..1, optimizer: hbm0..1, optimizer_on: cpu0", "training.parameters",
         "Write `parameters: dram0`"),
        ("parameters: dram0..1, optimizer: dram0", "training.parameters", "`optimizer: dram0..1`"),
        ("parameters: hbm0..1, optimizer: dram0, gradients: dram0..1", "training.gradients", "`gradients: dram0`"),
        ("parameters: hbm0..1, optimizer: dram0..1, gradients: dram0, optimizer_on: cpu0..1", "training.optimizer_on",
         "`gradients: dram0..1`"),
        ("parameters: hbm0..1, optimizer: dram0, gradient_clipping: 1.0", "training.gradient_clipping", "Write true"),
    ],
)  # fmt: skip
def test_ranges_that_are_there_in_part_are_refused(text, place, said, tmp_path):
    topology = box(gpus=2, sockets=2, nvlink=100e9, capacity=1000 * GB)
    with pytest.raises(DocumentError) as error:
        plan_of(tmp_path, HEAD + f"training: {{compute: gpu0..1, {text}}}\n", topology)
    (mistake,) = error.value.mistakes
    assert mistake.key == place and said in mistake.message and mistake.line == 4, str(error.value)


def test_clipping_on_the_gpu_alone_is_told_to_change_no_time(tmp_path):
    text = HEAD + "training: {parameters: hbm0, optimizer: %s, gradient_clipping: %s}\n"
    topology = box(gpus=1, capacity=1000 * GB)
    said = {}
    for home in ("hbm0", "dram0"):
        plans = [plan_of(tmp_path, text % (home, word), topology) for word in ("true", "false")]
        said[home] = ["gradient_clipping: true changes no time" in " ".join(plan.assumptions) for plan in plans]
        times = [schedule(compile_step(topology, plan)).seconds for plan in plans]
        assert (times[0] == pytest.approx(times[1], rel=1e-12)) == (home == "hbm0")
    assert said == {"hbm0": [True, False], "dram0": [False, False]}


def test_clipping_costs_what_updates_beside_the_backward_pass_save():
    """Two micro-batches: updates share host memory with the copies of gradients, and with clipping they come after."""
    topology = load_topology("desktop-4090")
    ends, firsts = [], []
    for clip in (False, True):
        plan = planned(topology, Training("hbm0", "dram0", gradient_clipping=clip), catalogue["llama-3.2-1b"],
                       TrainingWorkload(8, 512, 2))
        step = compile_step(topology, plan)
        time = cold_timeline(step)
        last = max(end for row, end in zip(time.rows, time.ends, strict=True)
                   if row is not None and step.rows[row].name == "gradients to dram0, micro-batch 2")
        firsts.append(last - min(start for row, start in zip(time.rows, time.starts, strict=True)
                                 if row is not None and step.rows[row].name == "update"))
        ends.append(time.seconds)
    assert firsts[0] > 5 * firsts[1]  # with clipping other layers' gradients alone may still be on their way
    assert ends[0] * 1.02 < ends[1] <= ends[0] + firsts[0]


BARE = """title: no link to the GPU
switches:
  s0: {kind: socket}
memories:
  hbm0: {kind: hbm, capacity: 80 GB, rate: {peak: 2 TB/s}}
  dram0: {kind: dram, capacity: 80 GB, rate: {peak: 100 GB/s}, at: s0}
  ssd0: {kind: nvme, capacity: 800 GB, read: {peak: 7 GB/s}, write: {peak: 7 GB/s}}
processors:
  gpu0: {kind: gpu, memory: hbm0, flops: {bf16: {peak: 100 TFLOP/s}}}
  cpu0: {kind: cpu, memory: dram0, flops: {fp32: {peak: 1 TFLOP/s}}}
"""


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("parameters: dram0, optimizer: hbm0", "parameters"),
        ("parameters: hbm0, optimizer: hbm0, gradients: dram0", "gradients"),
        ("parameters: hbm0, optimizer: hbm0, checkpoints: ssd0", "checkpoints"),
        ("parameters: hbm0, optimizer: ssd0", "optimizer"),
        ("parameters: hbm0, optimizer: dram0, optimizer_on: gpu0", "optimizer_on"),
    ],
)
def test_a_home_without_a_way_is_refused_at_its_key(text, key, tmp_path):
    from offload import load_plan

    (tmp_path / "bare.yaml").write_text(BARE)
    (tmp_path / "plan.yaml").write_text(f"topology: bare.yaml\n{HEAD}training: {{{text}}}\n")
    with pytest.raises(DocumentError) as error:
        load_plan(tmp_path / "plan.yaml")
    (mistake,) = error.value.mistakes
    assert mistake.key == f"training.{key}" and mistake.line == 4, str(error.value)
    assert "no route from" in mistake.message or "can be reached" in mistake.message


def test_gpus_without_a_way_to_each_other_are_refused_at_compute():
    whole = box(gpus=4, sockets=2)
    for drop, first, second in ((("pcie3",), "gpu2", "gpu3"), (("upi",), "gpu1", "gpu2")):
        links = [one for one in whole.links.values() if one.name not in drop]
        topology = Topology.build(name="cut", title="", memories=whole.memories.values(),
                                  processors=whole.processors.values(), switches=whole.switches.values(), links=links)
        with pytest.raises(PlanError, match=f"training.compute: {first} and {second} exchange gradients. .*no route"):
            planned(topology, Training("hbm0..3", "hbm0..3", compute="gpu0..3"))
        planned(topology, Training("hbm0..1", "hbm0..1", compute="gpu0..1"))
