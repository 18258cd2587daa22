"""Several that work alike as one task: what each link and memory carries, by hand and in collectives."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offload.bounds import floor
from offload.compiler import compile_step
from offload.plan import Block, Collective, Compute, Plan, Tensor, Transfer
from offload.schedules import schedule, solo_seconds
from offload.study import evaluate
from tests.boxes import GB, MB, box
from tests.rank_plans import ALL_REDUCE, HAND, by_hand, loaded

# --- by hand ---


def test_a_split_fetch_takes_each_rank_s_own_link(tmp_path):
    step = by_hand(tmp_path, HAND, box())
    assert loaded(step) == loaded(step, least=True) == {
        "dram0": 2 * GB, "pcie0.hbm0": 1 * GB, "pcie1.hbm1": 1 * GB,
        "hbm0": 1 * GB + 1 * GB + 0.5 * GB, "hbm1": 2.5 * GB, "gpu0.flops": 100e9, "gpu1.flops": 100e9,
    }  # fmt: skip
    assert solo_seconds(step) == pytest.approx([5e-3, 0.15e-3]), "100 MB at 20 GB/s, 150 MB at 1 TB/s"
    assert step.occupied == {
        "dram0": {"w": 2 * GB}, "hbm0": {"kv": 500 * MB, "buffers": 200 * MB},
        "hbm1": {"kv": 500 * MB, "buffers": 200 * MB},
    }  # fmt: skip
    study = evaluate(step.topology, step.plan)
    assert study.floor.seconds == pytest.approx(50e-3)
    assert study.floor.bottleneck == ("pcie0.hbm0", "pcie1.hbm1")
    assert study.overlapped.seconds == pytest.approx(50e-3) and study.serial.seconds == pytest.approx(51.5e-3)


def test_a_shared_uplink_carries_the_sum(tmp_path):
    step = by_hand(tmp_path, HAND, box(uplink=True))
    found = loaded(step)
    assert found["up0.sw0"] == 2 * GB and found["pcie0.hbm0"] == found["pcie1.hbm1"] == 1 * GB
    assert solo_seconds(step)[0] == pytest.approx(10e-3)
    assert floor(step).bottleneck == ("up0.sw0",)


FOUR = HAND.replace("0..1}", "0..3}").replace("gpu0..1", "gpu0..3").replace("home: dram0", "home: dram0..1")


def test_two_sockets_pair_up_with_the_ranks(tmp_path):
    step = by_hand(tmp_path, FOUR, box(4, 2))
    found = loaded(step)
    assert found["dram0"] == found["dram1"] == 1 * GB
    assert [found[f"pcie{n}.hbm{n}"] for n in range(4)] == [0.5 * GB] * 4
    assert not any(name.startswith("upi") for name in found), "each half comes from its own socket"
    assert step.occupied["dram1"] == {"w": 1 * GB}


def test_from_one_socket_half_of_it_crosses_over(tmp_path):
    found = loaded(by_hand(tmp_path, FOUR.replace("dram0..1", "dram1"), box(4, 2)))
    assert found["dram1"] == 2 * GB and "dram0" not in found
    assert found["upi.socket0"] == 1 * GB and "upi.socket1" not in found


def test_unequal_parts_are_taken_from_each_by_every_rank(tmp_path):
    found = loaded(by_hand(tmp_path, FOUR.replace("dram0..1", "{dram0: 75%, dram1: rest}"), box(4, 2)))
    assert (found["dram0"], found["dram1"]) == (1.5 * GB, 0.5 * GB)
    assert found["upi.socket1"] == pytest.approx(0.75 * GB) and found["upi.socket0"] == pytest.approx(0.25 * GB)
    assert [found[f"pcie{n}.hbm{n}"] for n in range(4)] == pytest.approx([0.5 * GB] * 4)


def test_three_ranks_take_a_part_from_each_of_two_memories(tmp_path):
    text = HAND.replace("0..1}", "0..2}").replace("gpu0..1", "gpu0..2").replace("home: dram0", "home: dram0..1")
    found = loaded(by_hand(tmp_path, text, box(3, 2)))
    assert found["dram0"] == pytest.approx(1 * GB) and found["dram1"] == pytest.approx(1 * GB)
    assert [found[f"pcie{n}.hbm{n}"] for n in range(3)] == pytest.approx([2 / 3 * GB] * 3)


def test_only_what_is_elsewhere_moves(tmp_path):
    step = by_hand(tmp_path, HAND.replace("home: dram0", "home: {dram0: 50%, hbm0..1: rest}"), box())
    found = loaded(step)
    assert found["dram0"] == 1 * GB and found["pcie0.hbm0"] == 0.5 * GB
    assert found["hbm0"] == 0.5 * GB + 1 * GB + 0.5 * GB, "its half arrives, all of its part is read"
    assert step.occupied["hbm0"] == {"w": 500 * MB, "kv": 500 * MB, "buffers": 100 * MB}


def test_zero_copy_reads_are_split_too(tmp_path):
    text = HAND.replace("  fetch: {move: w, to: hbm0..1}\n", "").replace(", after: fetch", "")
    step = by_hand(tmp_path, text, box())
    assert loaded(step) == {
        "dram0": 2 * GB, "pcie0.hbm0": 1 * GB, "pcie1.hbm1": 1 * GB, "hbm0": 0.5 * GB, "hbm1": 0.5 * GB,
        "gpu0.flops": 100e9, "gpu1.flops": 100e9,
    }  # fmt: skip
    assert solo_seconds(step) == pytest.approx([10e-3]), "100 MB at the 10 GB/s of zero copy"
    assert any("gpu0..1 reads w in dram0 over pcie0 without a copy" in note for note in step.assumptions)


def test_a_part_lies_in_another_s_memory(tmp_path):
    """gpu0..1 read what lies in hbm2 over NVLink, half each, and gpu2 its own."""
    text = """\
tensors: {w: {bytes: 90 MB, home: hbm0..2}}
tasks: {layer: {compute: gpu0..1, reads: w}}
"""
    assert loaded(by_hand(tmp_path, text, box(3, nvlink=100e9))) == {
        "hbm0": 30 * MB, "hbm1": 30 * MB, "hbm2": pytest.approx(30 * MB), "nv2.nvsw": pytest.approx(30 * MB),
        "nv0.hbm0": pytest.approx(15 * MB), "nv1.hbm1": pytest.approx(15 * MB),
    }  # fmt: skip


def test_writes_of_ranks(tmp_path):
    found = loaded(by_hand(tmp_path, HAND.replace("reads: [w, kv]", "reads: w, writes: kv"), box()))
    assert found["hbm0"] == found["hbm1"] == 1 * GB + 1 * GB + 0.5 * GB
    text = HAND.replace("reads: [w, kv]", "reads: w, writes: kv").replace("home: hbm0..1", "home: dram0")
    found = loaded(by_hand(tmp_path, text, box()))
    assert found["pcie0.socket0"] == found["pcie1.socket0"] == 0.5 * GB and found["dram0"] == 3 * GB


def test_from_a_drive_to_ranks_in_two_stages(tmp_path):
    step = by_hand(tmp_path, HAND.replace("home: dram0", "home: ssd0"), box())
    found = loaded(step)
    assert found["ssd0.read"] == found["m2.socket0"] == 2 * GB and found["dram0"] == 4 * GB
    assert found["pcie0.hbm0"] == found["pcie1.hbm1"] == 1 * GB
    assert step.occupied["dram0"] == {"buffers": 400 * MB}
    assert [step.occupied[name]["buffers"] for name in ("hbm0", "hbm1")] == [200 * MB] * 2
    straight = loaded(by_hand(tmp_path, HAND.replace("home: dram0", "home: ssd0"), box(direct=(0, 1))))
    assert "dram0" not in straight and straight["pcie0.hbm0"] == 1 * GB and straight["ssd0.read"] == 2 * GB


def test_all_of_it_to_each():
    """`whole` brings all of a tensor to each rank, and each reads all of it; a slot holds all of it in each."""
    tasks = (
        Transfer("fetch", "x", "hbm0", ranks=("hbm0", "hbm1"), whole=True),
        Compute("layer", "gpu0", reads=("x",), after=("fetch",), ranks=("gpu0", "gpu1")),
        Transfer("back", "x", "dram0", after=("layer", "fetch")),
    )
    tensors = {"x": Tensor("x", 10 * MB, (("dram1", 1.0),))}
    step = compile_step(box(2, 2), Plan("whole", tensors, (Block(tasks),)))
    assert loaded(step) == {
        "dram1": 20 * MB, "upi.socket0": 10 * MB, "pcie0.hbm0": 10 * MB, "pcie1.hbm1": 10 * MB,
        "hbm0": 10 * MB + 10 * MB + 10 * MB, "hbm1": 10 * MB + 10 * MB, "pcie0.socket0": 10 * MB, "dram0": 10 * MB,
    }  # fmt: skip
    assert step.occupied["hbm0"]["buffers"] == step.occupied["hbm1"]["buffers"] == 10 * MB


# --- collectives ---


@pytest.mark.parametrize(("count", "share"), [(2, 1.0), (4, 1.5), (8, 1.75)])
def test_an_all_reduce_is_a_ring(tmp_path, count, share):
    step = by_hand(tmp_path, ALL_REDUCE.replace("OVER", f"hbm0..{count - 1}"), box(count, nvlink=100e9))
    sent, least = loaded(step), loaded(step, least=True)
    for n in range(count):
        assert sent[f"nv{n}.nvsw"] == sent[f"nv{n}.hbm{n}"] == pytest.approx(share * 100 * MB)
        assert sent[f"hbm{n}"] == pytest.approx(2 * share * 100 * MB), "read where it is sent, written where it arrives"
        assert least[f"nv{n}.nvsw"] == least[f"nv{n}.hbm{n}"] == 100 * MB, "once out and once in"
    assert set(least) == {name for name in sent if name.startswith("nv")}
    assert solo_seconds(step) == pytest.approx([share * 1e-3])


def test_an_all_reduce_of_eight_as_published():
    """W61: 8 GB over eight at 400 GB/s: 35 ms by a ring, 20 ms where the network adds up."""
    tensors = {"x": Tensor("x", 8 * GB, (("hbm0", 1.0),), shared=True)}
    ring = Collective("sum", "x", tuple(f"hbm{n}" for n in range(8)))
    step = compile_step(box(8, nvlink=400e9), Plan("W61", tensors, (Block((ring,)),)))
    assert schedule(step).seconds == pytest.approx(7 / 200, rel=1e-12)
    assert floor(step).seconds == pytest.approx(1 / 50, rel=1e-12)


@pytest.mark.parametrize(("order", "crossings"), [((0, 1, 2, 3), 1), ((0, 2, 1, 3), 2)])
def test_the_cut_between_two_islands(order, crossings):
    """W62: 10 GB over two islands of two, 10 GB/s between them: 1 s whatever the ring, which may cross more often."""
    tensors = {"x": Tensor("x", 10 * GB, (("hbm0", 1.0),), shared=True)}
    ring = Collective("sum", "x", tuple(f"hbm{n}" for n in order))
    step = compile_step(box(4, 2, peers=True, pcie=25e9, upi=10e9), Plan("W62", tensors, (Block((ring,)),)))
    assert loaded(step)["upi.socket1"] == loaded(step)["upi.socket0"] == pytest.approx(crossings * 15 * GB)
    assert floor(step).seconds == pytest.approx(1.0, rel=1e-12)
    assert floor(step).bottleneck == ("upi.socket0", "upi.socket1")


def test_half_duplex_and_caps_count_both_directions():
    from offload.topology import Limit, Topology
    from tests.boxes import rate

    parts = box(2, peers=True)
    links = [replace(link, half_duplex=link.name == "pcie0") for link in parts.links.values()]
    limit = Limit("root", ("pcie0", "pcie1.hbm1"), rate(20e9))
    server = Topology.build(name="box", memories=parts.memories.values(), processors=parts.processors.values(),
                            switches=parts.switches.values(), links=links, limits=[limit])  # fmt: skip
    tensors = {"x": Tensor("x", 100 * MB, (("hbm0", 1.0),), shared=True)}
    step = compile_step(server, Plan("x", tensors, (Block((Collective("sum", "x", ("hbm0", "hbm1")),)),)))
    assert loaded(step, least=True) == {"pcie0": 200 * MB, "pcie1.hbm1": 100 * MB, "pcie1.socket0": 100 * MB,
                                        "root": 300 * MB}  # fmt: skip


def test_a_ring_beside_streamed_weights(tmp_path):
    """W63: 20 GB to each of two GPUs and 4 GB both ways between them over 25 GB/s: what comes in binds, 0.96 s."""
    text = """\
tensors:
  w: {bytes: 40 GB, home: dram0}
  x: {bytes: 4 GB, home: hbm0, shared: true}
tasks:
  fetch: {move: w, to: hbm0..1}
  sum: {collective: all_reduce, of: x, over: hbm0..1}
"""
    bound = floor(by_hand(tmp_path, text, box(peers=True, pcie=25e9)))
    assert bound.seconds == pytest.approx(24 / 25, rel=1e-12)
    assert bound.bottleneck == ("pcie0.hbm0", "pcie1.hbm1")
    found = loaded(by_hand(tmp_path, text, box(peers=True, pcie=25e9)))
    assert found["pcie0.socket0"] / 25e9 == pytest.approx(0.16) and found["dram0"] / 100e9 == pytest.approx(0.4)


def test_without_peer_access_it_is_staged_in_host_memory(tmp_path):
    """As two GeForce cards: down to DRAM and up again in both directions; of host memory nothing is certain."""
    step = by_hand(tmp_path, ALL_REDUCE.replace("OVER", "hbm0..1"), box())
    assert loaded(step) == {
        **{name: 100 * MB for name in ("pcie0.socket0", "pcie0.hbm0", "pcie1.socket0", "pcie1.hbm1")},
        "hbm0": 200 * MB, "hbm1": 200 * MB, "dram0": 400 * MB,
    }  # fmt: skip
    assert loaded(step, least=True) == dict.fromkeys(
        ("pcie0.socket0", "pcie0.hbm0", "pcie1.socket0", "pcie1.hbm1"), 100 * MB)  # fmt: skip
    assert "dram0" not in loaded(by_hand(tmp_path, ALL_REDUCE.replace("OVER", "hbm0..1"), box(peers=True)))


def test_a_list_is_a_range_too(tmp_path):
    for text in ("'hbm0, hbm1, hbm2'", "'hbm0..1, hbm2'"):
        step = by_hand(tmp_path, ALL_REDUCE.replace("OVER", text), box(3, nvlink=100e9))
        assert loaded(step)["nv2.nvsw"] == pytest.approx(400 / 3 * MB)
