"""What a compiled step loads and where copies lie, worked by hand."""

import pytest

from offload import load_topology
from offload.bounds import floor
from offload.compiler import compile_step
from offload.errors import PlanError, RouteError
from offload.plan import UNLIMITED, Block, Compute, GivenTime, Overlap, Plan, Tensor, Transfer
from offload.schedules import schedule
from offload.step import loads

SIZE = 200_000_000


@pytest.fixture(scope="module")
def desktop():
    return load_topology("desktop-4090")


def plan(*blocks, shared=False, overlap=None, home="dram0"):
    tensors = {"w": Tensor("w", SIZE, ((home, 1.0),), shared=shared)}
    return Plan("by hand", tensors, blocks, overlap=overlap or Overlap())


def fetch(name="fetch", **more):
    return Transfer(name, "w", "hbm0", **more)


def layer(after=("fetch",), **more):
    return Compute("layer", "gpu0", reads=("w",), after=after, **more)


def test_a_later_block_reads_the_copy_that_an_earlier_one_brought(desktop):
    step = compile_step(desktop, plan(Block((fetch(),), 3), Block((layer(),))))
    assert loads(step, least=False)["pcie0.hbm0"] == 3 * SIZE, "moved, not read again over the link"
    assert loads(step, least=False)["hbm0"] == 4 * SIZE, "three written, one read"
    assert step.occupied["dram0"]["w"] == 3 * SIZE


def test_a_shared_tensor_moved_once_serves_every_later_compute(desktop):
    blocks = (Block((fetch(once=True), layer()), 2), Block((Compute("tail", "gpu0", reads=("w",)),), 3))
    step = compile_step(desktop, plan(*blocks, shared=True))
    assert loads(step, least=False)["pcie0.hbm0"] == SIZE
    assert loads(step, least=False)["hbm0"] == SIZE + 5 * SIZE
    assert step.occupied["dram0"]["w"] == SIZE


def test_a_prefetch_by_hand_feeds_the_next_repetition(desktop):
    step = compile_step(desktop, plan(Block((fetch(), layer(after=("previous.fetch",))), 4)))
    assert loads(step, least=False)["pcie0.hbm0"] == 4 * SIZE
    assert loads(step, least=False)["hbm0"] == 8 * SIZE
    slots = step.slots[0]
    assert slots.releases == (((3, 0),), ((5, 0),), ((7, 0),), ((1, 1),)), "the last one by the next step's first layer"
    found, bound = schedule(step), floor(step, "value")
    assert bound.seconds <= found.seconds * (1 + 1e-12)
    # With two slots the fetch of one layer runs beside the layer before: the link binds.
    assert found.seconds == pytest.approx(4 * (SIZE / 26.3e9 + 6.5e-6), rel=1e-9)


def test_moves_of_one_name_have_one_number_of_buffers(desktop):
    with pytest.raises(PlanError, match="3 and 1 buffers"):
        compile_step(desktop, plan(Block((fetch(buffers=3), layer())), Block((fetch(buffers=1), layer()))))


def test_a_split_tensor_moves_only_the_part_that_is_not_there(desktop):
    tensors = {"w": Tensor("w", SIZE, (("dram0", 0.75), ("hbm0", 0.25)))}
    step = compile_step(desktop, Plan("split", tensors, (Block((fetch(), layer()), 2),)))
    assert loads(step, least=False)["pcie0.hbm0"] == 2 * 0.75 * SIZE
    assert step.occupied["dram0"]["w"] == 2 * 0.75 * SIZE and step.occupied["hbm0"]["w"] == 2 * 0.25 * SIZE


def test_a_drive_reaches_the_gpu_by_way_of_host_memory(desktop):
    """Charged once to write and once to read host memory at expected loads; the ring may stay in a cache at least."""
    step = compile_step(desktop, plan(Block((fetch(), layer()), 8), home="ssd0"))
    expected, least = loads(step, least=False), loads(step, least=True)
    assert expected["dram0"] == 2 * 8 * SIZE and least["dram0"] == 0
    assert expected["ssd0.read"] == expected["m2.socket0"] == expected["pcie0.hbm0"] == 8 * SIZE
    assert step.occupied["dram0"]["buffers"] == 2 * SIZE, "as many slots in host memory as in the GPU's"
    drive, link = SIZE / 7.1e9 + 78e-6, SIZE / 26.3e9 + 6.5e-6
    found = schedule(step)
    assert found.seconds == pytest.approx(8 * drive, rel=1e-6), "a tandem: the slower stage binds"
    read = SIZE / 921e9
    alone = 8 * drive + link + read
    assert alone <= found.cold_seconds <= 1.001 * alone, "the last copy and layer are slowed a little by what follows"
    assert floor(step).bottleneck == ("m2.socket0",)


def test_a_given_time_is_taken_as_it_is(desktop):
    time = GivenTime(0.9e-3, 1e-3, 1.1e-3, 0.5e-3, "a profile")
    step = compile_step(desktop, Plan("given", {}, (Block((Compute("layer", "gpu0", time=time),), 10),)))
    found = schedule(step)
    assert (found.seconds, found.low, found.high) == (
        pytest.approx(10e-3), pytest.approx(9e-3), pytest.approx(11e-3),
    )  # fmt: skip
    assert floor(step).seconds == pytest.approx(5e-3)
    assert any("given, not counted (a profile)" in note for note in step.assumptions)


def test_what_cannot_be_is_refused_by_name(desktop):
    with pytest.raises(PlanError, match="already lives"):
        compile_step(desktop, plan(Block((fetch(),)), home="hbm0"))
    with pytest.raises(PlanError, match="in a circle"):
        compile_step(desktop, plan(Block((fetch(after=("layer",)), layer()))))
    with pytest.raises(PlanError, match='no task "fetsh".*Did you mean "fetch"'):
        compile_step(desktop, plan(Block((fetch(), layer(after=("fetsh",))))))
    with pytest.raises(RouteError, match="layer"):
        compile_step(desktop, plan(Block((layer(after=()),)), home="ssd0"))


def least_and_load(step, name):
    return loads(step, least=True)[name], loads(step, least=False)[name]


def test_a_cache_in_front_of_what_is_fetched_spares_nothing_within_a_step():
    """Each repetition's bytes are read once: what stays from the step before is taken off in the floor, once a step.

    Only the slot at the other end is written again each time: of 200 MB, of which 60 MiB may stay in the cache. The
    plan has two, and a schedule may use one.
    """
    gh200 = load_topology("gh200")
    near, far = 60 * 2**20, gh200.memories["dram0"].cache
    step = compile_step(gh200, plan(Block((fetch(), layer()), 50)))
    assert least_and_load(step, "dram0") == (50 * SIZE, 50 * SIZE)
    least, load = least_and_load(step, "hbm0")
    assert least == pytest.approx(50 * (SIZE - near), rel=1e-12) and load == 100 * SIZE
    bound = {term.resource: term.seconds for term in floor(step, "peak").terms}
    assert far == 186 * 2**20 and bound == {"dram0": pytest.approx((50 * SIZE - far) / 384e9, rel=1e-12)}


def test_more_buffers_never_raise_a_floor():
    """A schedule of the plan with more may leave them unused, so it is legal there too: what it takes is no less."""
    gh200 = load_topology("gh200")
    steps = [compile_step(gh200, plan(Block((fetch(), layer()), 5), overlap=overlap))
             for overlap in (Overlap("none"), Overlap(buffers=1), Overlap(), Overlap(buffers=UNLIMITED))]  # fmt: skip
    assert {loads(step, least=True)["hbm0"] for step in steps} == {least_and_load(steps[0], "hbm0")[0]}
    assert [floor(step).seconds for step in steps] == sorted((floor(step).seconds for step in steps), reverse=True)


def test_what_is_fetched_and_read_where_it_lives_is_gone_over_twice():
    far = 186 * 2**20
    both = Block((Compute("host", "cpu0", reads=("w",)), fetch(), layer()), 5)
    assert least_and_load(compile_step(load_topology("gh200"), plan(both)), "dram0") == (10 * (SIZE - far), 10 * SIZE)


def test_what_a_move_takes_on_from_another_may_come_from_the_cache():
    """ssd0 to dram0, then dram0 to hbm0 by a move of its own: the reading in between is as little certain as a
    compute's, and of the slot that is written again each time 186 MiB may stay in the cache."""
    first = Transfer("up", "w", "dram0")
    step = compile_step(load_topology("gh200"), plan(Block((first, fetch(after=("up",)), layer()), 5), home="ssd0"))
    least, load = least_and_load(step, "dram0")
    assert least == pytest.approx(5 * (SIZE - 186 * 2**20), rel=1e-12) and load == 10 * SIZE
