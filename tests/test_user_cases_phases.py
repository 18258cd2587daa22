"""What users reported of directions of a link, a dense model in unified memory, and sockets, as plans with a verdict.

Figures are those of the reports (issues named by repository and number); what a report does not state is a data sheet's
figure, said at its place.
"""

from __future__ import annotations

import pytest

from offload import load_topology
from offload.bounds import floor
from offload.compiler import compile_step
from offload.designs import Placement, Portion, Workload, plan_model
from offload.documents import load_plan
from offload.measured import ABOVE, FAR_BELOW, compare, read_measurement
from offload.models import catalogue, weigh
from offload.schedules import schedule
from offload.study import evaluate
from offload.topology import Link, Memory, Processor, Switch, Topology
from tests.boxes import GB, rate
from tests.weights_box import blocks

REST = Portion("rest")


def seconds_of(folder, topology, home, to):
    """A step that moves 100 GB."""
    (folder / "plan.yaml").write_text(f"topology: any\ntensors: {{x: {{bytes: 50 GB, home: {home}}}}}\nrepeat: 2\n"
                                      f"tasks: {{go: {{move: x, to: {to}}}}}\n", encoding="utf-8")  # fmt: skip
    plan = load_plan(folder / "plan.yaml", topology=topology)[0]
    step = compile_step(topology, plan)
    return floor(step).seconds, schedule(step).seconds


def c2c(to_gpu, to_cpu):
    """A CPU and a GPU whose link has a rate for each direction, and none for both together [GB/s]."""
    links = [Link("c2c0", "grace0", "hbm0", rate(to_gpu * GB), rate(to_cpu * GB), "c2c")]
    return Topology.build(
        name="any", title="any",
        memories=[Memory("hbm0", "hbm", 10**15, rate(4e12)), Memory("dram0", "dram", 10**15, rate(5e12), at="grace0")],
        processors=[Processor("gpu0", "gpu", "hbm0", {"bf16": rate(1e15)})], switches=[Switch("grace0")], links=links,
    )  # fmt: skip


@pytest.mark.parametrize(("name", "to_gpu", "to_cpu"), [("GH200", 416, 170), ("GB300", 211, 193)])
def test_b15_directions_of_one_link(tmp_path, name, to_gpu, to_cpu):
    """NVIDIA/Megatron-LM #6491: GH200 412-421 to the GPU and 170 back, GB300 211 and 193: each direction by itself."""
    topology = c2c(to_gpu, to_cpu)
    there, back = (seconds_of(tmp_path, topology, *way)[1] for way in (("dram0", "hbm0"), ("hbm0", "dram0")))
    assert there == pytest.approx(100 / to_gpu, rel=1e-3) and back == pytest.approx(100 / to_cpu, rel=1e-3)
    assert back / there == pytest.approx(to_gpu / to_cpu, rel=1e-3)
    ratio = {"GH200": 2.45, "GB300": 1.09}[name]
    assert back / there == pytest.approx(ratio, abs=0.01), "it differs by product"


def test_b15_the_shipped_server_has_a_rate_for_each_direction(tmp_path):
    """The headline of 900 is both ways: one way no more than 450, and what is sustained differs by direction."""
    topology = load_topology("gh200")
    there, back = (seconds_of(tmp_path, topology, *way) for way in (("dram0", "hbm0"), ("hbm0", "dram0")))
    for low, expected in (there, back):
        assert low <= expected and 100 / 900 < low
    assert there[1] < back[1], "to the GPU is the faster way"
    for measured in (412, 421):
        assert there[0] <= 100 / measured * 1.1, "no measurement above the floor: DRAM states 384"
    assert back[0] <= 100 / 170


def test_b29_a_dense_70b_in_unified_memory():
    """NVIDIA/dgx-spark-playbooks PR #91, NVFP4: 38.50 + 2.10 GB a token, 273 GB/s: 6.72 tok/s, measured 4.0-4.2.

    It is normal: the floor is not passed and bandwidth is most of the time. Scales and the 16-bit head are counted.
    """
    weighed = weigh(catalogue["llama-3.1-70b"], "nvfp4")
    assert sum(weighed.layers) == pytest.approx(38.50e9, rel=2e-3) and weighed.head == pytest.approx(2.10e9, rel=2e-3)
    topology = load_topology("dgx-spark")
    placement = Placement((("unified0", REST),), "gpu0")
    plan = plan_model(catalogue["llama-3.1-70b"], topology, Workload(context=1), placement, weights="nvfp4")
    step, study = compile_step(topology, plan), evaluate(topology, plan)
    assert 1 / study.floor_sustained.seconds < 1 / study.floor.seconds == pytest.approx(6.72, rel=0.01)
    assert study.floor.bottleneck == ("unified0",)
    for text in ("4.0 tok/s", "4.2 tok/s"):
        found = compare(study, step, read_measurement(text))
        assert found.verdict not in (ABOVE, FAR_BELOW), text
        assert 0.59 <= found.floor_share <= 0.63, "60 % of the rated bandwidth"


def test_b29_the_comparison_with_a_mixture_was_unfair():
    """A mixture of 30 B of which 3 B are used reads a tenth as much: it is no measure of a dense model."""
    topology, placement = load_topology("dgx-spark"), Placement((("unified0", REST),), "gpu0")
    seconds = {
        name: floor(compile_step(topology, plan_model(catalogue[name], topology, Workload(context=1), placement,
                                                      weights="nvfp4"))).seconds
        for name in ("llama-3.1-70b", "qwen3-30b-a3b")
    }  # fmt: skip
    assert seconds["llama-3.1-70b"] / seconds["qwen3-30b-a3b"] > 10


def sockets(dram, between, pcie=10**15 / GB):
    """Two sockets with a GPU at the first; rates in GB/s, peak and sustained alike."""
    return Topology.build(
        name="any", title="any",
        memories=[Memory("hbm0", "hbm", 10**15, rate(1e15)),
                  *(Memory(f"dram{n}", "dram", 10**15, rate(dram * GB), at=f"socket{n}") for n in range(2))],
        processors=[Processor("gpu0", "gpu", "hbm0", {"bf16": rate(1e18)}),
                    *(Processor(f"cpu{n}", "cpu", f"dram{n}", {"bf16": rate(1e18)}) for n in range(2))],
        switches=[Switch("socket0"), Switch("socket1")],
        links=[Link("upi", "socket0", "socket1", rate(between * GB), rate(between * GB)),
               Link("pcie0", "socket0", "hbm0", rate(pcie * GB), rate(pcie * GB), "pcie")],
    )  # fmt: skip


def test_b36_sockets_do_not_matter_where_pcie_binds(tmp_path):
    """ROCm/rocm_bandwidth_test #129: 2x EPYC 9554 and an MI210: 28 GB/s from either node.

    Twelve channels of DDR5-4800 and xGMI, of the data sheets, are wider: 460.8 and at least 64 GB/s.
    """
    topology = sockets(460.8, 64, pcie=28)
    near, far = (seconds_of(tmp_path, topology, home, "hbm0") for home in ("dram0", "dram1"))
    assert near == far == pytest.approx((100 / 28, 100 / 28))


def test_b36_they_decide_where_dram_binds(tmp_path):
    """mozilla-ai/llamafile #765: 2x Xeon 5218, six channels each: 4 tok/s on both sockets, 8 pinned to one.

    Six channels of DDR4-2666 are 128 GB/s and two UPI of 10.4 GT/s 41.6 GB/s each way (data sheets). Weights that one
    socket holds and both read come half over UPI, which is narrower: both together are slower than one alone. How large
    the model was is not said; the ratio does not need it.
    """
    topology, model = sockets(128, 41.6), blocks(32, 500_000_000)

    def seconds(weights, compute, **more):
        placement = Placement(((weights, REST),), compute, access="in_place", reserve=0, **more)
        return schedule(compile_step(topology, plan_model(model, topology, Workload(context=1), placement,
                                                          weights="stated"))).seconds  # fmt: skip

    text = """\
topology: any
tensors: {near: {bytes: 250 MB, home: dram0}, far: {bytes: 250 MB, home: dram0}, sums: {bytes: 16 kB, home: dram0}}
repeat: 32
tasks:
  half: {compute: cpu0, reads: near, after: previous.join}
  other: {compute: cpu1, reads: far, after: previous.join}
  join: {compute: cpu0, reads: sums, after: [half, other]}
"""
    (tmp_path / "plan.yaml").write_text(text, encoding="utf-8")
    both = schedule(compile_step(topology, load_plan(tmp_path / "plan.yaml", topology=topology)[0])).seconds
    pinned = seconds("dram0", "cpu0")
    assert pinned == pytest.approx(16 / 128, rel=1e-6)
    assert both == pytest.approx(8 / 41.6, rel=1e-3), "the second socket's half, over UPI"
    assert 1.5 <= both / pinned <= 2.1, "measured: 2"
    assert seconds("dram1", "cpu0") == pytest.approx(16 / 41.6, rel=1e-3), "all of it remote: 3 times as long"
    # Each its own half, or a copy each: the sockets add.
    assert seconds("dram0..1", "cpu0..1", numa="local") == pytest.approx(pinned / 2, rel=1e-3)
