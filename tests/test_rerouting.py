"""The load floor over any routes: what peers and staging may carry, and that it never exceeds the plan's own."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from offload import cli
from offload.bounds import TIE, load_seconds
from offload.compiler import compile_step
from offload.errors import OffloadError, PlanError, RouteError
from offload.multipath import multipath
from offload.plan import Block, Compute, Plan, Tensor, Transfer
from offload.rerouting import _commodities, _fixed_loads, _rates, any_routes
from offload.rows import row_table
from offload.sensitivity import scaled
from offload.topology import Link, Memory, Processor, Rate, Switch, Topology
from offload.topology.shares import DRIVES
from tests.strategies import placed_ranks, plans, ranked_plans, topologies

GB = 1e9
BY_HAND = str(Path(__file__).resolve().parent.parent / "examples" / "by-hand.yaml")


def rate(peak: float) -> Rate:
    return Rate(peak=peak * GB)


def server(nvlink: float | None = 100, peers: bool | None = None, dram: float = 200, **more) -> Topology:
    """Two GPUs on PCIe links of 25 and 15 GB/s, with NVLink between them or not."""
    links = [Link("pcie0", "socket0", "hbm0", rate(25), rate(25), "pcie"),
             Link("pcie1", "socket0", "hbm1", rate(15), rate(15), "pcie")]  # fmt: skip
    if nvlink:
        links.append(Link("nv", "hbm0", "hbm1", rate(nvlink), rate(nvlink), "nvlink"))
    return Topology.build(
        name="pair",
        memories=[Memory("hbm0", "hbm", 10**12, rate(1000)), Memory("hbm1", "hbm", 10**12, rate(1000)),
                  Memory("dram0", "dram", 10**12, rate(dram), at="socket0"), *more.get("memories", ())],
        processors=[Processor(f"gpu{n}", "gpu", f"hbm{n}", {"bf16": Rate(peak=1e15)}, peer_to_peer=peers)
                    for n in (0, 1)] + [Processor("cpu0", "cpu", "dram0")],
        switches=[Switch("socket0"), *more.get("switches", ())],
        links=links + more.get("links", []),
    )  # fmt: skip


def moved(size: float = 30 * GB, home: str = "dram0", to: str = "hbm0", every: int = 1, repeat: int = 1) -> Plan:
    return Plan("moved", {"w": Tensor("w", size, ((home, 1.0),), what="weights")},
                (Block((Transfer("fetch", "w", to, every=every),), repeat),))  # fmt: skip


def floors(topology: Topology, plan: Plan):
    return any_routes(compile_step(topology, plan))


def test_a_peer_carries_a_part_over_nvlink():
    found = floors(server(), moved())
    assert (found.seconds, found.attained, found.fixed_seconds) == (0.75, 0.75, 1.2) and found.exact
    assert found.cut == ("pcie0.hbm0", "pcie1.hbm1")
    assert [(one.resource, one.share) for one in found.prices] == [("pcie0.hbm0", 25 / 40), ("pcie1.hbm1", 15 / 40)]
    assert [one.seconds_per_rate for one in found.prices] == [0.75 / (40 * GB)] * 2
    (split,) = found.splits
    assert (split.what, split.source, split.destination, split.bytes) == (("weights",), "dram0", "hbm0", 30 * GB)
    assert [(part.bytes, part.planned) for part in split.parts] == [(18.75 * GB, True), (11.25 * GB, False)]
    assert split.parts[0].way == "dram0 -> socket0 -> pcie0 -> hbm0"
    assert split.parts[1].way == "dram0 -> socket0 -> pcie1 -> hbm1 (staged) -> nv -> hbm0"


def test_a_narrow_nvlink_is_where_the_cut_lies():
    found = floors(server(nvlink=5), moved())
    assert found.seconds == 1.0 and found.cut == ("nv.hbm0", "pcie0.hbm0")


def test_without_nvlink_a_peer_helps_only_where_devices_may_exchange():
    assert floors(server(nvlink=None), moved()).seconds == 1.2, "back through the socket it would pass pcie0 as well"
    # A second link of the two GPUs, over PCIe: theirs only with peer-to-peer.
    side = {"links": [Link("side", "hbm0", "hbm1", rate(100), rate(100), "pcie")]}
    assert floors(server(nvlink=None, **side), moved()).seconds == 1.2
    assert floors(server(nvlink=None, peers=True, **side), moved()).seconds == 0.75


def test_what_the_host_memory_serves_binds_whatever_the_routes():
    found = floors(server(dram=30), moved())
    assert found.seconds == 1.0 and [one.resource for one in found.prices] == ["dram0"]


def test_a_drive_stages_nothing():
    drive = {"memories": [Memory("ssd0", "nvme", 10**12, read=rate(50), write=rate(50))],
             "links": [Link("m2", "socket0", "ssd0", rate(50), rate(50)),
                       Link("back", "ssd0", "hbm0", rate(50), rate(50))]}  # fmt: skip
    assert floors(server(**drive), moved()).seconds == 0.75


def test_what_a_further_rank_may_find_in_the_page_cache_is_not_read_again():
    """The drive is read once for both GPUs, at 10 GB/s; only the second GPU's own link is sure to carry it again."""
    drive = {"memories": [Memory("ssd0", "nvme", 10**12, read=rate(10), write=rate(10))],
             "links": [Link("m2", "socket0", "ssd0", rate(10), rate(10))]}  # fmt: skip
    plan = Plan("ranks", {"w": Tensor("w", 30 * GB, (("ssd0", 1.0),))}, (Block((
        Transfer("fetch", "w", "hbm0", access="page cache", ranks=("hbm0", "hbm1"), whole=True),)),))  # fmt: skip
    for nvlink in (None, 100):
        found = floors(server(nvlink=nvlink, **drive), plan)
        assert (found.seconds, found.fixed_seconds, found.exact) == (3.0, 3.0, True)
        assert found.cut == ("m2.socket0",)
    assert [(split.source, split.destination) for split in found.splits] == [("ssd0", "hbm0"), ("dram0", "hbm1")]


def test_other_loads_stay_where_they_are():
    """A compute on the second GPU reads 9 GB over its link in place: 6 GB/s of 15 are left for the peer's part."""
    plan = Plan(
        "both", {"w": Tensor("w", 30 * GB, (("dram0", 1.0),)), "x": Tensor("x", 9 * GB, (("dram0", 1.0),))},
        (Block((Transfer("fetch", "w", "hbm0"), Compute("far", "gpu1", reads=("x",)))),),
    )  # fmt: skip
    found = floors(server(), plan)
    assert found.seconds == 39 / 40 and found.fixed_seconds == 1.2 and found.cut == ("pcie0.hbm0", "pcie1.hbm1")


def test_moves_of_every_few_steps_and_repetitions_count_by_the_step():
    found = floors(server(), moved(every=3, repeat=6))
    assert found.seconds == 1.5 and found.splits[0].bytes == 60 * GB


def test_faster_parts_of_a_changed_step_count():
    step = compile_step(server(), moved())
    found = any_routes(scaled(step, ("pcie0.hbm0",), 2))
    assert Fraction(found.seconds) < Fraction(30, 65) < Fraction(found.attained), "rounded apart, a floor down"
    assert found.exact and found.attained - found.seconds < 1e-15


def test_a_step_without_moves_has_the_floor_of_its_loads():
    plan = Plan("none", {"x": Tensor("x", 9 * GB, (("hbm0", 1.0),))}, (Block((Compute("c", "gpu0", reads=("x",)),)),))
    found = floors(server(), plan)
    assert found.seconds == found.fixed_seconds == 9e-3 and found.splits == () and found.cut == ("hbm0",)


def test_without_peak_rates_nothing_is_proved():
    unknown = Rate(rated=GB)
    topology = Topology.build(
        memories=[Memory("dram0", "dram", 10**12, unknown), Memory("hbm0", "hbm", 10**12, unknown)],
        processors=[Processor("gpu0", "gpu", "hbm0"), Processor("cpu0", "cpu", "dram0")],
        links=[Link("pcie0", "dram0", "hbm0", unknown, unknown, "pcie")],
    )  # fmt: skip
    found = floors(topology, moved())
    assert found.seconds == found.attained == 0 and found.prices == ()


# Any server, any plan.


def compiled(topology, plan):
    try:
        return compile_step(topology, plan)
    except (PlanError, RouteError):
        assume(False)


def check(step) -> None:
    table = row_table(step.topology, step.plan)
    assert tuple(table.rows) == step.rows, "the moves are those of the step"
    found = any_routes(step)
    fixed = load_seconds(step).seconds
    assert found.fixed_seconds == fixed
    assert 0 <= found.seconds <= found.attained and found.seconds <= fixed * (1 + TIE)
    assert found.exact and found.attained <= fixed * (1 + TIE)
    for split in found.splits:
        assert sum(part.bytes for part in split.parts) == pytest.approx(split.bytes, rel=1e-12)
    if found.seconds:
        assert sum(one.share for one in found.prices) == pytest.approx(1, rel=1e-12)
    every = replace_routes(step, table)
    assert found.seconds == pytest.approx(float(every), rel=1e-12, abs=1e-300), "all simple ways, listed one by one"


def replace_routes(step, table) -> Fraction:
    """The same by a list of every way that the rules allow."""
    _, ships = _commodities(step, table)
    fixed = _fixed_loads(step, table)
    rates = _rates(step, fixed)
    ways = step.topology.ways
    direct: dict[tuple[str, str], list[dict[str, int]]] = {}

    def walk(origin, node, seen, rows, mixed):
        for edge in ways.hops[node]:
            if edge.destination in seen:
                continue
            used, peer = [*rows, *edge.rows], edge.is_peer
            if edge.destination not in ways.memories:
                walk(origin, edge.destination, {*seen, edge.destination}, used, mixed or not peer)
            elif not (mixed or not peer) or ways.is_direct(origin, edge.destination):
                use = {row: used.count(row) for row in used if row in rates}
                direct.setdefault((origin, edge.destination), []).append(use)

    for memory in ways.memories:
        walk(memory, memory, {memory}, [], False)
    stops = [name for name, one in ways.memories.items() if one.kind not in DRIVES]
    given = []
    for (source, destination, *_), amount in ships.items():
        between = [name for name in stops if name not in (source, destination)]
        routes: list[dict[str, int]] = []
        for count in range(min(len(between), 2) + 1):
            for middle in permutations(between, count):
                chain = (source, *middle, destination)
                partial = [{}]
                for leg in zip(chain, chain[1:], strict=False):
                    partial = [{row: one.get(row, 0) + use.get(row, 0) for row in {*one, *use}}
                               for one in partial for use in direct.get(leg, [])]  # fmt: skip
                routes += partial
        given.append((amount, [dict(one) for one in {tuple(sorted(route.items())) for route in routes}]))
    given += [(load, [{name: 1}]) for name, load in fixed.items()]
    return multipath(rates, given).bound


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(topologies(), plans())
def test_any_plan_by_hand(topology, plan):
    check(compiled(topology, plan))


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(ranked_plans())
def test_any_plan_of_ranks(drawn):
    check(compiled(*drawn))


@settings(max_examples=15, deadline=None)
@given(placed_ranks())
def test_any_placed_model(drawn):
    check(compiled(*drawn))


@settings(max_examples=20, deadline=None)
@given(ranked_plans(), st.data())
def test_a_faster_link_never_makes_it_slower(drawn, data):
    step = compiled(*drawn)
    assume(step.resources)
    name = data.draw(st.sampled_from(sorted(step.resources)))
    assert any_routes(scaled(step, (name,), 2)).seconds <= any_routes(step).seconds


# The command.


def answer(words: list[str], capsys) -> str:
    assert cli.main(["step", *words]) == 0
    return capsys.readouterr().out


def test_the_report_tells_prices_and_splits(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    words = ["llama-3.1-70b:bf16", "--on", "dgx-h100", "--gpu-layers", "0", "--compute", "gpu0", "--ignore-capacity"]
    plain, told = answer(words, capsys), answer([*words, "--routes", "any"], capsys)
    assert told.startswith(plain.rstrip("\n")), "nothing else changes"
    told = told[len(plain.rstrip("\n")) :]
    assert "Load floor over any routes: no routing of the same moves is faster" in told
    assert "Over the plan's own routes the load floor is 2.173 s: other routes can take off 77.7 %." in told
    assert "dram0" in told and "for 1 GB/s more" in told
    assert "hbm1..2 (staged) -> nvlink1..2 -> nvswitch0 -> nvlink0 -> hbm0" in told


def test_where_routes_change_nothing_the_report_says_so(capsys):
    told = answer([BY_HAND, "--routes", "any"], capsys)
    assert "the load floor is 1.34 s too: other routes take nothing off." in told
    assert "Every move keeps the plan's route." in told


def test_the_answer_as_data(capsys):
    plain = json.loads(answer([BY_HAND, "--json"], capsys))
    told = json.loads(answer([BY_HAND, "--json", "--routes", "any"], capsys))
    routes = told.pop("routes")
    assert told == plain
    assert routes["seconds"] <= routes["fixed_seconds"] == plain["floor"]["load_seconds"] and routes["exact"]
    assert routes["prices"][0]["resource"] == "pcie0.hbm0" and routes["cut"] == ["pcie0.hbm0"]
    assert routes["splits"][0]["parts"][0]["planned"]


def test_a_plan_that_does_not_fit_gets_no_such_floor(capsys):
    words = ["llama-3.1-70b:bf16", "--on", "desktop-4090", "--gpu-layers", "80", "--routes", "any"]
    assert cli.main(["step", *words]) == 1
    assert "over any routes" not in capsys.readouterr().out


def test_without_scipy_the_command_says_what_to_install(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    assert cli.main(["step", BY_HAND, "--routes", "any"]) == 2
    assert 'pip install "offload[lp]"' in capsys.readouterr().err


@pytest.mark.few
@pytest.mark.parametrize("data", [[], ["--json"]])
def test_without_the_flag_nothing_of_it_is_imported(data):
    code = (
        "import sys\nfrom offload import cli\n"
        f"status = cli.main(['step', {BY_HAND!r}, *{data!r}])\n"
        "wrong = [n for n in sys.modules if n.split('.')[0] == 'scipy' or n.startswith(('offload.lp', 'offload.mul', "
        "'offload.rerouting'))]\nsys.exit(str(wrong) if wrong or status else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_amounts_that_are_no_numbers_are_refused():
    numpy = pytest.importorskip("numpy")
    step = compile_step(server(), moved())
    tensors = {"w": replace(step.plan.tensors["w"], bytes=numpy.array([1.0, 2.0]))}
    with pytest.raises(OffloadError, match="give a finite number"):
        any_routes(compile_step(server(), replace(step.plan, tensors=tensors)))
