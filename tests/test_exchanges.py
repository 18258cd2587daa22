"""Collectives on servers: what each direction carries by every algorithm, and that no floor is above any of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload.bounds import floor
from offload.collectives import ALGORITHMS, cost, endpoint_bound, traffic
from offload.compiler import compile_step
from offload.documents import load_topology
from offload.errors import DocumentError, PlanError, RouteError, TopologyError
from offload.exchanges import exchange
from offload.plan import Block, Collective, Plan, Tensor
from offload.schedules import schedule
from offload.topology import Limit, Link, Memory, Processor, Switch, Topology
from tests.boxes import GB, MB, box, plan_of, rate

EVERY = [(kind, algorithm) for kind, names in ALGORITHMS.items() for algorithm in names]
BETWEEN_RANKS = [(kind, algorithm) for kind, algorithm in EVERY if algorithm != "in_network"]
NEAR = 1 + 1e-12


def memories(count: int) -> tuple[str, ...]:
    return tuple(f"hbm{n}" for n in range(count))


def rebuilt(topology: Topology, **parts) -> Topology:
    groups = {name: list(getattr(topology, name).values())
              for name in ("memories", "processors", "switches", "links", "limits")}  # fmt: skip
    return Topology.build(name=topology.name, **groups | parts)


def adding(topology: Topology) -> Topology:
    """The same server with an NVSwitch that adds up."""
    switches = [replace(one, reduces=one.kind == "nvswitch") for one in topology.switches.values()]
    return rebuilt(topology, switches=switches)


def wired(count: int, pairs: list[tuple[int, int]], latency: float = 0.0, nvlink: float = 100e9) -> Topology:
    """GPUs that NVLinks join one to one."""
    links = [Link(f"nv{a}{b}", f"hbm{a}", f"hbm{b}", rate(nvlink), rate(nvlink), "nvlink", latency=(latency, latency))
             for a, b in pairs]  # fmt: skip
    hbms = [Memory(name, "hbm", 100 * GB, rate(1000e9)) for name in memories(count)]
    gpus = [Processor(f"gpu{n}", "gpu", f"hbm{n}") for n in range(count)]
    return Topology.build(name="wired", memories=hbms, processors=gpus, links=links)


def mesh(count: int, **more) -> Topology:
    return wired(count, [(a, b) for a in range(count) for b in range(a + 1, count)], **more)


def circle(count: int, **more) -> Topology:
    return wired(count, [(a, (a + 1) % count) for a in range(count)], **more)


def step_of(topology: Topology, count: int, kind: str, algorithm: str | None = None, size: int = 8 * GB):
    task = Collective("sum", "x", memories(count), kind=kind, algorithm=algorithm)
    tensors = {"x": Tensor("x", size, (("hbm0", 1.0),), shared=True)}
    return compile_step(topology, Plan("x", tensors, (Block((task,)),)))


@pytest.mark.parametrize(("kind", "algorithm"), EVERY)
@pytest.mark.parametrize("count", [2, 3, 4, 8])
def test_each_rank_s_links_carry_what_it_sends_and_receives(kind, algorithm, count):
    server = adding(box(count, nvlink=100e9))
    found = exchange(server, kind, memories(count), algorithm)
    rows = traffic(kind, algorithm, count)
    for n, (sent, received) in enumerate(rows):
        for direction, share in ((f"nv{n}.nvsw", sent), (f"nv{n}.hbm{n}", received)):
            least, expected = found.loads.get(direction, (0.0, 0.0))
            assert expected == pytest.approx(float(share), rel=1e-12)
            assert least == pytest.approx(1.0 if algorithm == "in_network" else expected, rel=1e-12)
    links = sum(expected for name, (_, expected) in found.loads.items() if name.startswith("nv"))
    assert links == pytest.approx(2 * found.sent, rel=1e-12) and found.sent == pytest.approx(float(sum(
        sent for sent, _ in rows)))
    assert all(least == 0 for name, (least, _) in found.loads.items() if name.startswith("hbm"))


@pytest.mark.parametrize(("kind", "algorithm"), EVERY)
def test_schedules_meet_the_closed_form(kind, algorithm):
    """Eight ranks at 100 GB/s on a switch: all steps of typical latency, and the busiest rank's bytes."""
    server = adding(box(8, nvlink=100e9))
    links = [replace(one, latency=(1e-6, 2e-6)) for one in server.links.values()]
    found = schedule(step_of(rebuilt(server, links=links), 8, kind, algorithm))
    assert found.seconds == pytest.approx(cost(kind, algorithm, 8).seconds(8e9, 100e9, 4e-6), rel=1e-12)
    bound = floor(step_of(rebuilt(server, links=links), 8, kind, algorithm))
    share = 1 if algorithm == "in_network" else float(cost(kind, algorithm, 8).share)
    assert bound.cold_seconds == pytest.approx(2e-6 + share * 0.08, rel=1e-12), "one way's least latency"


@pytest.mark.parametrize("kind", list(ALGORITHMS))
def test_without_an_algorithm_floors_are_the_endpoint_bound(kind):
    """On a switch they are those of the closed form, where switches may add up and copy."""
    found = floor(step_of(box(8, nvlink=100e9), 8, kind))
    assert found.seconds == pytest.approx(endpoint_bound(kind, 8, 8e9, 100e9, switches_add=True), rel=1e-12)


def test_the_floor_of_a_mesh_is_not_that_of_a_ring():
    """Each rank has three links: all pairs at once put D/2 on each, and no single link must carry anything."""
    server = mesh(4)
    ring, pairs = step_of(server, 4, "all_reduce", "ring"), step_of(server, 4, "all_reduce", "pairwise")
    assert schedule(ring).seconds == floor(ring).seconds == pytest.approx(1.5 * 0.08, rel=1e-12)
    assert schedule(pairs).seconds == floor(pairs).seconds == pytest.approx(0.5 * 0.08, rel=1e-12)
    assert floor(step_of(server, 4, "all_reduce")).seconds == 0.0


def test_ranks_in_a_circle_pass_on_what_others_must_know():
    """No way but by the neighbours: a cut has two links, none alone is sure, and the farthest are four hops away."""
    found = exchange(circle(8, latency=1e-6), "all_reduce", memories(8))
    assert found.latency == pytest.approx((1e-6, 2 * 4e-6))
    assert all(least == 0 for least, _ in found.loads.values())
    chain = exchange(wired(2, [(0, 1)]), "all_reduce", memories(2))
    assert chain.loads["nv01.hbm1"] == chain.loads["nv01.hbm0"] == (1.0, 1.0)


@pytest.mark.parametrize(("kind", "out", "into"), [
    ("all_reduce", 1, 1), ("all_gather", 1 / 4, 3 / 4), ("reduce_scatter", 3 / 4, 1 / 4), ("all_to_all", 3 / 4, 3 / 4),
    ("broadcast", 0, 1), ("reduce", 1, 0),
])  # fmt: skip
def test_what_is_sure_of_a_rank_that_is_not_the_root(kind, out, into):
    loads = exchange(box(4, nvlink=100e9), kind, memories(4)).loads
    assert loads.get("nv2.nvsw", (0.0,))[0] == out and loads.get("nv2.hbm2", (0.0,))[0] == into


def test_what_is_sure_between_two_islands():
    """The link between sockets carries each direction's cut: 2 of 4 ranks on each side."""
    loads = {kind: exchange(box(4, 2, peers=True), kind, memories(4)).loads["upi.socket1"][0] for kind in ALGORITHMS
             if kind != "reduce"}  # fmt: skip
    assert loads == {"all_reduce": 1, "all_gather": 0.5, "reduce_scatter": 0.5, "all_to_all": 1, "broadcast": 1}
    assert exchange(box(4, 2, peers=True), "reduce", memories(4)).loads["upi.socket0"][0] == 1


@st.composite
def servers(draw) -> tuple[Topology, int]:
    count = draw(st.integers(2, 6))
    shape = draw(st.sampled_from(["box", "box", "mesh", "circle"]))
    if shape != "box" and count > 2:
        return (mesh if shape == "mesh" else circle)(count), count
    server = adding(box(count, draw(st.integers(1, min(2, count))), uplink=draw(st.booleans()),
                        nvlink=draw(st.sampled_from([0, 100e9])), peers=draw(st.booleans())))  # fmt: skip
    halved = draw(st.sets(st.sampled_from(sorted(server.links))))
    links = [replace(one, half_duplex=one.name in halved) for one in server.links.values()]
    over = draw(st.lists(st.sampled_from(sorted(server.links)), min_size=1, max_size=4, unique=True))
    return rebuilt(server, links=links, limits=[Limit("root", tuple(over), rate(50e9))]), count


@given(servers(), st.sampled_from(EVERY), st.integers(0, 5))
@settings(max_examples=200, deadline=None)
def test_no_floor_is_above_an_algorithm(server, which, turn):
    """What is sure of a resource is no more than what any algorithm puts on it, whatever the order of the ranks."""
    topology, count = server
    kind, algorithm = which
    over = memories(count)[turn % count :] + memories(count)[: turn % count]
    if kind in ("broadcast", "reduce"):
        over = memories(count)[:1] + memories(count)[:0:-1] if turn % 2 else memories(count)
    try:
        named = exchange(topology, kind, over, algorithm)
    except (PlanError, RouteError):
        return  # no switch that adds up, or a circle whose ranks are no neighbours
    free = exchange(topology, kind, memories(count))
    for name, (least, expected) in free.loads.items():
        assert least <= expected * NEAR, "the ring is an algorithm"
        assert least <= named.loads.get(name, (0.0, 0.0))[1] * NEAR, name
    assert free.latency[0] <= free.latency[1] and named.latency[0] <= named.latency[1]


def test_a_ring_beside_streamed_weights(tmp_path):
    """20 GB to each of two GPUs and an all-gather of 8 GB over 25 GB/s: what comes in binds, 0.96 s."""
    text = """\
tensors:
  w: {bytes: 40 GB, home: dram0}
  x: {bytes: 8 GB, home: hbm0, shared: true}
tasks:
  fetch: {move: w, to: hbm0..1}
  gather: {collective: all_gather, of: x, over: hbm0..1, algorithm: ring}
"""
    server = box(peers=True, pcie=25e9)
    bound = floor(compile_step(server, plan_of(tmp_path, text, server)))
    assert bound.seconds == pytest.approx(24 / 25, rel=1e-12)
    assert bound.bottleneck == ("pcie0.hbm0", "pcie1.hbm1")


@pytest.mark.parametrize("algorithm", ["ring", "pairwise", "recursive_doubling", "tree"])
def test_without_peer_access_each_send_is_staged(algorithm):
    """Down from the sender, twice over host memory, up to the receiver; of host memory nothing is sure."""
    found = exchange(box(4), "all_reduce", memories(4), algorithm)
    assert found.loads["dram0"] == (0.0, pytest.approx(2 * found.sent))
    for n, (sent, received) in enumerate(traffic("all_reduce", algorithm, 4)):
        assert found.loads[f"pcie{n}.socket0"] == (sent, sent)
        assert found.loads[f"pcie{n}.hbm{n}"] == (received, received)


def test_eight_gpus_whose_switch_adds_up():
    server = load_topology("dgx-h100")
    assert server.switches["nvswitch0"].reduces
    found = exchange(server, "all_reduce", memories(8), "in_network")
    assert found.loads["nvlink3.nvswitch0"] == found.loads["nvlink3.hbm3"] == (1.0, 1.125)
    assert found.loads["hbm3"] == (0.0, 2.0), "all of it is read, and the sum written"


def test_in_network_asks_for_a_switch_that_adds_up():
    with pytest.raises(PlanError, match=r"no switch that adds up joins hbm0\.\.7: say `reduces: true`"):
        exchange(box(8, nvlink=100e9), "all_reduce", memories(8), "in_network")


def test_a_collective_that_is_none_is_refused():
    with pytest.raises(PlanError, match='task "sum": no collective "all_redcue"'):
        step_of(box(2), 2, "all_redcue")


def test_bytes_that_are_only_expected_are_not_sure():
    tensors = {"x": Tensor("x", 10 * GB, (("hbm0", 1.0),), shared=True, least=4 * GB)}
    step = compile_step(box(2, nvlink=100e9), Plan("x", tensors, (Block((Collective("sum", "x", memories(2)),)),)))
    assert floor(step).seconds == pytest.approx(0.04) and schedule(step).seconds == pytest.approx(0.1)


def test_only_an_nvswitch_adds_up():
    with pytest.raises(TopologyError, match="socket0: only an nvswitch reduces, and its kind is socket"):
        rebuilt(box(2), switches=[Switch("socket0", "socket", reduces=True)])


SUM = """\
tensors:
  x: {bytes: 100 MB, home: hbm0, shared: true}
tasks:
  sum: {collective: KIND, of: x, over: hbm0..7, algorithm: HOW}
"""


@pytest.mark.parametrize(("kind", "how", "wrong"), [
    ("all_gather", "tree", "all_gather has no algorithm tree"),
    ("all_reduce", "in_network", "no switch that adds up joins hbm0..7"),
    ("all_reduce", "rings", "ring"),
    ("gather", "ring", "all_gather"),
])  # fmt: skip
def test_files_say_what_is_wrong(tmp_path, kind, how, wrong):
    with pytest.raises(DocumentError) as caught:
        plan_of(tmp_path, SUM.replace("KIND", kind).replace("HOW", how), box(8, nvlink=100e9))
    assert "line 5" in str(caught.value) and wrong in str(caught.value)


def test_files_name_algorithms(tmp_path):
    server = adding(box(8, nvlink=100e9))
    plan = plan_of(tmp_path, SUM.replace("KIND", "all_reduce").replace("HOW", "in_network"), server)
    assert schedule(compile_step(server, plan)).seconds == pytest.approx(100 * MB * 1.125 / 100e9, rel=1e-12)


@pytest.mark.parametrize(("kind", "factor"), [("all_gather", 7 / 8), ("all_to_all", 7 / 8), ("broadcast", 1)])
def test_measured_rates_of_other_collectives(tmp_path, kind, factor):
    """busbw is D x the collective's factor over the time; a rate alone is D over the time."""
    from offload.documents.case_file import load_cases
    from offload.validation import run_case

    for counts, share in (("busbw", factor), ("rate", 1)):
        text = f"""\
kind: collective
strength: A
source: {{title: A table, url: https://example.org/table}}
topology: dgx-h100
plan:
  tensors: {{x: {{bytes: 8 GB, home: hbm0, shared: true}}}}
  tasks: {{sum: {{collective: {kind}, of: x, over: hbm0..7}}}}
measured: {{value: {share * 8 / 0.04} GB/s, of: sum, as: {counts}}}
"""
        path = tmp_path / "case.yaml"
        path.write_text(text, encoding="utf-8")
        (case,) = load_cases(path)
        assert run_case(case).measured == pytest.approx(0.04, rel=1e-12)
