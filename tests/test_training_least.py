"""Floors of training count what every engine moves: by hand, with any capacity; expected loads stay all of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload.bounds import floor
from offload.compiler import compile_step
from offload.designs.training import Training, TrainingWorkload
from offload.designs.training_least import brought
from offload.models import catalogue, layers_of
from offload.plan import Overlap
from offload.schedules import schedule, serial
from offload.step import loads
from offload.topology import Topology
from tests.boxes import box
from tests.test_training import SMALL, TIED, planned

ROW, TABLE = 64, 500 * 64  # parameters of a row of the embedding, and of all of it
LAYERS = [layer.parameters for layer in layers_of(SMALL)]
ALL = sum(LAYERS)
HEAD = SMALL.parameters - TABLE - ALL  # with the last norm


def with_room(topology, hbm, dram=None):
    """The server with other capacities of the GPUs' and of host memory [B], and no cache."""
    sizes = {"hbm": hbm, "dram": dram}
    memories = [replace(one, capacity=sizes.get(one.kind, one.capacity), cache=0) for one in topology.memories.values()]
    return Topology.build(name="room", title="", memories=memories, processors=topology.processors.values(),
                          switches=topology.switches.values(), links=topology.links.values(),
                          limits=topology.limits.values())  # fmt: skip


def least(training, model=SMALL, parts=1, hbm=None, dram=None, gpus=1):
    topology = with_room(box(gpus=gpus, nvlink=100e9), hbm, dram)
    return loads(compile_step(topology, planned(topology, training, model, TrainingWorkload(8, 32, parts))), least=True)


@pytest.mark.parametrize("parts", [1, 2, 4])
@pytest.mark.parametrize("reuse", [True, False])
def test_where_all_can_be_kept_parameters_come_once_a_step(parts, reuse):
    """Of the embedding one row, of a tied one all, once; gradients leave each micro-batch."""
    found = least(Training("dram0", "dram0", reuse=reuse), parts=parts)
    assert found["pcie0.hbm0"] == 2 * (ROW + ALL + HEAD)
    assert found["pcie0.socket0"] == parts * 2 * (ROW + ALL + HEAD)
    tied = least(Training("dram0", "dram0", reuse=reuse), TIED, parts)
    assert tied["pcie0.hbm0"] == 2 * TIED.parameters
    assert tied["pcie0.socket0"] == parts * 2 * TIED.parameters
    # An update touches 28 bytes of each parameter that it surely updates; copies read and write the rest.
    assert tied["dram0"] == 28 * TIED.parameters + tied["pcie0.hbm0"] + tied["pcie0.socket0"]
    assert found["dram0"] == 28 * (ROW + ALL + HEAD) + found["pcie0.hbm0"] + found["pcie0.socket0"]


@pytest.mark.parametrize("room", [1, 1000, 2 * LAYERS[0], 2 * LAYERS[0] + 7, 5 * LAYERS[0], 10**9])
@pytest.mark.parametrize("parts", [1, 2])
def test_each_pass_brings_what_the_memory_cannot_hold(room, parts):
    found = least(Training("dram0", "dram0"), parts=parts, hbm=room)
    forward = max(0, 2 * (ROW + ALL + HEAD) - room)
    backward = max(0, 2 * ALL - room)
    assert found["pcie0.hbm0"] == 2 * (ROW + ALL + HEAD) + (parts - 1) * forward + parts * backward


def test_behind_a_drive_host_memory_may_keep_it():
    training = Training("ssd0", "ssd0")
    once = 2 * (ROW + ALL + HEAD) + 12 * (ROW + ALL + HEAD)
    assert least(training, hbm=1000, dram=10**9)["ssd0.read"] == once
    assert least(training, hbm=1000, dram=500)["ssd0.read"] == once + 2 * ALL - 1500


def test_an_update_on_the_gpu_leaves_what_is_new_there():
    training = Training("dram0", "dram0", optimizer_on="gpu0")
    states = 12 * (ROW + ALL + HEAD)
    assert least(training)["pcie0.hbm0"] == states
    assert least(training, hbm=1000)["pcie0.hbm0"] == states + 2 * (ROW + ALL + HEAD) - 1000 + 2 * ALL - 1000


@pytest.mark.parametrize("every", [1, 2, 4])
def test_checkpoints_that_are_kept_do_not_come_back(every):
    """All of them leave, since the plan keeps them in host memory."""
    size = 8 * 32 * 64 * 2
    training = Training("hbm0", "hbm0", checkpoints="dram0", every=every)
    for room, back in ((1, 4 // every * size - 1), (size + 3, 4 // every * size - size - 3), (None, 0)):
        found = least(training, hbm=room)
        assert found["pcie0.socket0"] == 4 // every * size
        assert found.get("pcie0.hbm0", 0) == max(0, back)


def test_gathered_parameters_may_be_kept():
    """Two GPUs: a half of all comes to each in the first pass, then what a memory of its own does not hold."""
    training = Training("hbm0..1", "dram0", compute="gpu0..1")
    once, sums = ROW + ALL + HEAD, ROW + ALL + HEAD
    assert least(training, gpus=2)["nv0.nvsw"] == once + sums
    assert least(training, gpus=2, hbm=1000)["nv0.nvsw"] == once + sums + ALL - 1000
    assert least(training, gpus=2, hbm=1)["nv0.nvsw"] == once + sums + ALL - 1
    # Sums of gradients that stay with the GPUs may wait for the last micro-batch; those that leave may not.
    near = Training("hbm0..1", "dram0", gradients="hbm0..1", compute="gpu0..1")
    assert least(near, parts=2, gpus=2)["nv0.nvsw"] == once + sums
    assert least(near, parts=2, gpus=2, hbm=1)["nv0.nvsw"] == 2 * once + 2 * sums + 2 * ALL - 4
    assert least(training, parts=2, gpus=2)["nv0.nvsw"] == once + 2 * sums


def test_a_stated_share_of_the_update_names_no_row():
    """A row may be of the GPU's share or of the rest: neither surely has it."""
    found = least(Training("hbm0", "dram0", gpu_share=0.25))
    assert found["pcie0.socket0"] == found["pcie0.hbm0"] == pytest.approx(1.5 * (ALL + HEAD), rel=1e-12)


def test_an_8b_model_on_a_desktop():
    """30.02 GB are expected to come up and 14.96 GB are sure: all but the embedding, of which a row is."""
    from offload import load_topology

    topology, model = load_topology("desktop-4090"), catalogue["llama-3.1-8b"]
    step = compile_step(topology, planned(topology, Training("dram0", "dram0"), model, TrainingWorkload(1, 512)))
    table = model.vocab * model.hidden
    layers = sum(layer.parameters for layer in layers_of(model))
    assert loads(step, least=False)["pcie0.hbm0"] == 2 * (model.parameters + layers)
    assert loads(step, least=True)["pcie0.hbm0"] == 2 * (model.parameters - table + model.hidden)


def test_what_is_kept_is_what_a_pass_uses_first():
    assert brought([5, 7, 2], 0) == [5, 7, 2]
    assert brought([5, 7, 2], 8) == [0, 4, 2]
    assert brought([5, 7, 2], 100) == [0, 0, 0]
    assert brought([5, 7, 2], None) == [None] * 3


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(0, 30), st.data())
@settings(max_examples=200, deadline=None)
def test_no_choice_of_what_is_kept_brings_less_or_later(sizes, room, data):
    """Any engine: kept bytes of each within the room. From any piece on it brings no less than the floor's does."""
    kept, left = [], room
    for size in data.draw(st.permutations(range(len(sizes)))):
        kept.append((size, data.draw(st.integers(0, min(left, sizes[size])))))
        left -= kept[-1][1]
    brings = [sizes[i] - dict(kept)[i] for i in range(len(sizes))]
    floors = brought(sizes, room)
    assert sum(brings) >= sum(floors)
    for place in range(len(sizes)):  # what must be there by then
        assert sum(brings[: place + 1]) >= sum(floors[: place + 1])


def test_gradients_kept_on_the_gpu_are_not_read_from_a_copy():
    """Layers of two kinds in turn: a backward pass adds to what is on the GPU, not to what left for the update."""
    first = layers_of(SMALL)[0]
    other = replace(first, attend=16)
    model = replace(SMALL, stack=(first, other, first, other))
    topology = box(gpus=1)
    training = Training("hbm0", "dram0", gradients="hbm0")
    found = [loads(compile_step(topology, planned(topology, training, one, TrainingWorkload(8, 32, 2))), least=False)
             for one in (SMALL, model)]  # fmt: skip
    assert found[1]["pcie0.hbm0"] == pytest.approx(2 * model.parameters)
    assert found[0]["pcie0.hbm0"] == pytest.approx(2 * SMALL.parameters)
    assert found[1]["dram0"] == pytest.approx(32 * model.parameters)


memories = st.sampled_from(["hbm0", "dram0", "ssd0"])


@pytest.mark.slow
@given(memories, memories, st.sampled_from(["hbm0", "dram0", "none", "ssd0"]), st.sampled_from([1, 2]), st.booleans(),
       st.booleans(), st.sampled_from([1, 2]), st.booleans(), st.sampled_from([1, 30_000, 90_000, 10**6, 10**9]),
       st.sampled_from([Overlap(), Overlap("none"), Overlap("buffers", 0)]))  # fmt: skip
@settings(max_examples=50, deadline=None)
def test_ladders_with_any_capacity(parameters, optimizer, checkpoints, every, reuse, tied, parts, clip, room, overlap):
    """More room lowers a floor or leaves it, and no expected time; every rung stays below the next."""
    from offload.errors import PlanError

    found = []
    for size in (room, 10 * room, None):
        topology = with_room(box(gpus=1), size, size)
        training = Training(parameters, optimizer, "", "", "", checkpoints, every, reuse=reuse, gradient_clipping=clip)
        try:
            plan = planned(topology, training, TIED if tied else SMALL, TrainingWorkload(4, 64, parts), overlap=overlap)
        except PlanError:
            return
        step = compile_step(topology, plan)
        low, point, expected, most = floor(step), floor(step, "value"), schedule(step), serial(step)
        assert low.seconds <= point.seconds * (1 + 1e-12) and point.seconds <= expected.seconds * (1 + 1e-12)
        assert expected.seconds <= most.seconds * (1 + 1e-12)
        assert low.cold_seconds <= point.cold_seconds * (1 + 1e-12)
        assert point.cold_seconds <= expected.cold_seconds * (1 + 1e-9)
        found.append((low.seconds, low.cold_seconds, expected.seconds, loads(step, least=False)))
    for more, less in zip(found, found[1:], strict=False):
        assert less[0] <= more[0] * (1 + 1e-12) and less[1] <= more[1] * (1 + 1e-12)
        assert less[2] == pytest.approx(more[2], rel=1e-9) and less[3] == pytest.approx(more[3], rel=1e-12)
