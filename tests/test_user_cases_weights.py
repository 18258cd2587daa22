"""What users reported of streamed, mapped and split weights, as plans: each verdict is the one that was drawn there.

Figures are those of the reports: sizes, rates and times as stated in public issues (named by repository and number);
what a report does not state is a data sheet's figure, said at its place. A case whose report lacks what a plan needs
names the missing fact.
"""

from __future__ import annotations

import pytest

from offload import load_topology
from offload.bounds import floor
from offload.compiler import compile_step
from offload.designs import Cost, Portion, Workload, plan_model
from offload.designs.page_cache import PageCache
from offload.designs.placement import Placement
from offload.documents.plan_file import load_plan
from offload.measured import EXPECTED, FAR_BELOW, compare, read_measurement
from offload.models import catalogue, weigh
from offload.models.stated import Blocks, stated_model
from offload.need import need
from offload.need_rates import read_target
from offload.plan import GivenTime, Overlap
from offload.schedules import schedule, serial
from offload.step import loads
from offload.study import evaluate
from offload.units import pcie_rate
from tests.boxes import GB, plan_of
from tests.weights_box import REST, blocks, compiled, server

GIB = 2**30
NONE = Overlap("none")


def standing(step, text):
    return compare(evaluate(step.topology, step.plan), step, read_measurement(text))


def test_b01_a_70b_of_which_59_gb_spill():
    """GH200, vllm-project/vllm PR #6317, #6496: 97,871 MiB of HBM, weights to 80 %, host to device 342 GB/s, 4.6 tok/s.

    172 ms over the link and 20 ms of HBM, one after the other: 5.2 tok/s. The copy is nearly saturated.
    """
    weights = weigh(catalogue["llama-3.1-70b"], "bf16").total
    kept = 0.8 * 97_871 * 2**20
    assert weights == pytest.approx(141.1e9, rel=1e-3)
    spill = weights - kept
    assert spill == pytest.approx(59e9, rel=0.01)
    topology = server(hbm=4e12, link=342e9)
    model = stated_model("70B", [Blocks(47, round(kept / 47)), Blocks(33, round(spill / 33))])
    step = compiled(topology, model, {"hbm0": Portion("layers", 47), "dram0": REST}, compute="gpu0",
                    layout="streamed_last", access="in_place")  # fmt: skip
    assert floor(step).seconds == pytest.approx(0.192, rel=0.01)
    assert 1 / floor(step).seconds == pytest.approx(5.2, rel=0.01)
    found = standing(step, "4.6 tok/s")
    assert not found.contradicts and found.floor_share == pytest.approx(0.89, abs=0.01)
    # Copied layer by layer with nothing beside, what comes is also written to HBM and read there: 4.8 tok/s.
    copied = compiled(topology, model, {"hbm0": Portion("layers", 47), "dram0": REST}, compute="gpu0",
                      layout="streamed_last", overlap=NONE)  # fmt: skip
    assert 1 / serial(copied).seconds == pytest.approx(4.6, rel=0.06)


def test_b01_on_the_shipped_server():
    """The words of a plan file: `weights: {hbm0: rest, dram0: 59 GB}`, `compute: gpu0`; the floor holds at peak."""
    topology = load_topology("gh200")
    placement = Placement((("hbm0", REST), ("dram0", Portion("bytes", 59e9))), "gpu0", access="in_place")
    plan = plan_model(catalogue["llama-3.1-70b"], topology, Workload(context=1024), placement, weights="bf16")
    study = evaluate(topology, plan)
    assert study.floor.seconds < 1 / 4.6
    assert study.overlapped.seconds == pytest.approx(1 / 4.6, rel=0.2)


def test_b06_a_file_larger_than_memory():
    """ggml-org/llama.cpp PR #711: 20 GB mapped on a laptop with 16 GB (14 free), NVMe of 1 GB/s: 20 s a token."""
    topology = server(drive=GB, m2=GB, dram=50e9)
    model = blocks(60, 20 * GB // 60)
    lru = compiled(topology, model, {"ssd0": REST}, page_cache=PageCache("dram0", 14 * GB), overlap=NONE)
    assert schedule(lru).seconds == pytest.approx(20, rel=0.03)
    assert standing(lru, "20 s/token").verdict == EXPECTED
    assert floor(lru).seconds == pytest.approx(6, rel=1e-6)
    pinned = compiled(topology, model, {"ssd0": REST}, page_cache=PageCache("dram0", 14 * GB, True))
    assert schedule(pinned).seconds == pytest.approx(6, rel=0.02)
    fits = compiled(topology, model, {"ssd0": REST}, page_cache=PageCache("dram0", 20 * GB))
    assert "ssd0.read" not in loads(fits, least=False)  # mapped files are not read each token


def test_b07_a_hard_disk_and_a_ram_disk():
    """lyogavin/airllm #186: 17.57 GB in 4 bits; from a hard disk (150 MB/s) just over 120 s, from a RAM disk 13 s.

    The first is bandwidth. Of the second a PCIe 4 x8 link explains 1.4 s: bandwidth cannot explain that gap.
    """
    model = blocks(64, 17_570_000_000 // 64)
    disk = compiled(server(drive=150e6, m2=600e6, link=13e9, peak=pcie_rate(4, 8)), model, {"ssd0": REST},
                    compute="gpu0", page_cache=PageCache("dram0", 4 * GB), overlap=NONE)  # fmt: skip
    assert schedule(disk).seconds == pytest.approx(117, rel=0.02)
    assert standing(disk, "121 s/token").verdict == EXPECTED
    ram = compiled(server(link=13e9, peak=pcie_rate(4, 8), dram=50e9), model, {"dram0": REST}, compute="gpu0",
                   host_memory="page cache", overlap=NONE)  # fmt: skip
    assert floor(ram).seconds == pytest.approx(17.57e9 / pcie_rate(4, 8), rel=1e-3)
    found = standing(ram, "13 s/token")
    assert found.floor_share < 0.4 and found.verdict == FAR_BELOW


def test_b08_a_sata_drive():
    """Mega4alik/ollm #41: 24 GB in bf16 from SATA, rated 560 MB/s, iostat 380 MB/s: 50 s a token. 63 and 43 s."""
    model = blocks(48, 24 * GB // 48)
    times = {}
    for figure in (380e6, 560e6):
        step = compiled(server(drive=figure, m2=600e6, link=25e9), model, {"ssd0": REST}, compute="gpu0")
        times[figure] = schedule(step).seconds
        assert floor(step).bottleneck == ("ssd0.read",)
    assert times[380e6] == pytest.approx(63, rel=0.01) and times[560e6] == pytest.approx(43, rel=0.01)
    assert times[560e6] < 50 < times[380e6]  # disk-bound, between what iostat showed and the data sheet


def test_b16_pageable_copies():
    """sgl-project/sglang PR #32032: an H200 on PCIe 5 x16 (63 GB/s one way), weights moved at 2.8 GB/s: 22 times."""
    topology = server(link=55e9, peak=pcie_rate(5, 16), pageable=2.8e9)
    model = blocks(40, GB)
    pageable = compiled(topology, model, {"dram0": REST}, compute="gpu0", host_memory="pageable", overlap=NONE)
    pinned = compiled(topology, model, {"dram0": REST}, compute="gpu0")
    assert schedule(pageable).seconds / floor(pinned).seconds == pytest.approx(22, abs=0.6)
    assert schedule(pageable).seconds / schedule(pinned).seconds == pytest.approx(55 / 2.8, rel=0.01)


def test_b17_block_swap_of_a_22b_model():
    """ostris/ai-toolkit PR #813, RTX 5090: all of it swapped (pinned) 10 s a step, half 6.5 s, a quarter 4.6 s.

    The report gives neither bytes for each step nor arithmetic, so these two come from its first two times: 7 s of
    copies and 3 s beside which nothing is copied. Times add (copies that block), and the third follows.
    """
    model = stated_model("22B", [Blocks(48, round(7 / 48 * 50e9), 3 / 48 * 1e12)])
    topology = server(link=50e9, flops=1e12)

    def swapped(count, overlap=NONE):
        step = compiled(topology, model, {"hbm0": REST, "dram0": Portion("layers", count)}, compute="gpu0",
                        workload=Workload("denoise", context=1), overlap=overlap)  # fmt: skip
        return schedule(step).seconds

    assert [swapped(count) for count in (48, 24)] == pytest.approx([10, 6.5], rel=1e-3)
    assert swapped(12) == pytest.approx(4.6, rel=0.05)
    assert swapped(12, Overlap("buffers", 2)) == pytest.approx(3, rel=0.15)  # what overlap would leave


def test_b17_pinning_takes_memory():
    """kohya-ss/musubi-tuner PR #700 lost by pinning: host memory decides. A second copy that does not fit is told."""
    model = blocks(40, GB)
    for host, told in ((50 * GB, True), (100 * GB, False)):
        step = compiled(server(host=host, room=10 * GB), model, {"dram0": REST}, compute="gpu0")
        assert any("holds them twice" in note for note in step.plan.assumptions) is told


def test_b18_pages_locked_at_each_use():
    """huggingface/diffusers PR #11106: five passes over a 24 GB transformer of 57 blocks: 9.5 to 9.8 s with memory
    pinned before, 38.1 s where each block is pinned when it is used: a cost for each transfer, not a slower link.
    """
    model = stated_model("Flux", [Blocks(57, 24 * GB // 57)])
    topology = server(link=12.6e9)
    placed = {"compute": "gpu0", "overlap": NONE, "workload": Workload("denoise", context=1, steps=5)}
    before = compiled(topology, model, {"dram0": REST}, **placed)
    assert 9.5 <= 5 * schedule(before).seconds <= 9.8
    pin = (38.1 - 9.65) / 5 / 57
    assert pin == pytest.approx(0.1, rel=0.01)  # 421 MB locked at 4.2 GB/s
    cost = Cost("pin", "layer", GivenTime(pin, pin, pin, 0.0, "the report's two times"))
    each = compiled(topology, model, {"dram0": REST}, costs=(cost,), **placed)
    assert 5 * schedule(each).seconds == pytest.approx(38.1, rel=0.02)
    assert floor(each).seconds == floor(before).seconds  # named costs enter no floor


def test_b19_copies_that_block():
    """deepspeedai/DeepSpeed #1130: a V100, 10B parameters from NVMe, 2.3 TFLOP/s against 30 to 40: a blocking copy.

    Missing: tokens of a step and the drive's rate. With 20 GB at 3 GB/s and arithmetic for as long, copies that block
    take the sum where overlap takes the larger.
    """
    topology = server(drive=3e9, link=12e9, flops=35e12)
    model = blocks(50, 20 * GB // 50, 20e9 / 3e9 * 35e12 / 50)
    step = {overlap: schedule(compiled(topology, model, {"ssd0": REST}, compute="gpu0", overlap=overlap)).seconds
            for overlap in (NONE, Overlap("buffers", 0))}  # fmt: skip
    alone = 20 / 3
    assert step[Overlap("buffers", 0)] == pytest.approx(alone, rel=0.05)
    assert step[NONE] == pytest.approx(2 * alone + 20 / 12, rel=0.05)


@pytest.mark.slow
def test_b32_a_road_map_refuted_by_arithmetic():
    """lvyufeng/PocketLLM #156, RTX 2080 Ti: pinned 10.53 GiB/s, 64 of 80 layers of 0.4234 GiB come each token.

    27.1 GiB a token: 0.39 tok/s; 5 tok/s let 2.11 GiB move, four layers.
    """
    size = round(27.1 / 64 * GIB)
    topology = server(link=10.53 * GIB, room=100 * size)
    model = blocks(80, size)

    def streamed(count):
        return compiled(topology, model, {"hbm0": REST, "dram0": Portion("layers", count)}, compute="gpu0")

    assert loads(streamed(64), least=False)["pcie0.hbm0"] == pytest.approx(27.1 * GIB, rel=1e-6)
    assert 1 / schedule(streamed(64)).seconds == pytest.approx(0.39, abs=0.005)
    assert loads(streamed(4), least=False)["pcie0.hbm0"] < 2.11 * GIB < loads(streamed(5), least=False)["pcie0.hbm0"]
    assert 1 / floor(streamed(4)).seconds > 5 > 1 / floor(streamed(5)).seconds
    step = compiled(topology, model, {"hbm0": Portion("layers", 16), "dram0": REST}, compute="gpu0")
    found = need(step, read_target("5 tok/s", step))
    layers = next(lever for lever in found.levers if lever.kind == "layers" and lever.names == ("hbm0",))
    assert (layers.now, layers.floor, layers.end) == (16, 76, 80)


def test_b34_drives_beyond_the_gpus_own_link():
    """ZaidQureshi/bam #28: a V100 (Gen3, whatever its slot): 5.16, 8.10, about 10 GB/s from 1, 2 and 4 drives.

    #17: H800 (Gen5 x16), eight Gen4 drives of 7.5 GB/s: flat from six or seven on. Drives add up to the GPU's link.
    """
    model = blocks(40, GB)

    def reached(drives, each, link):
        step = compiled(server(drive=each, count=drives, link=link), model, {"ssd0": REST}, compute="gpu0")
        return 40 * GB / floor(step).seconds, floor(step).bottleneck

    v100 = pcie_rate(3, 16)
    for drives, measured in ((1, 5.16e9), (2, 8.10e9), (4, 10e9)):
        assert measured <= reached(drives, 5.16e9, v100)[0] * (1 + 1e-9)
    assert reached(2, 5.16e9, v100)[1] == ("ssd0.read",) and reached(4, 5.16e9, v100)[1] == ("pcie0.hbm0",)
    assert 4 * 5.16e9 > reached(4, 5.16e9, v100)[0] == pytest.approx(15.75e9, rel=1e-3)
    h800 = 0.83 * pcie_rate(5, 16)
    rates = [reached(drives, 7.5e9, h800)[0] for drives in range(1, 9)]
    assert rates[5] == pytest.approx(45e9) and rates[6] == rates[7] == pytest.approx(h800)


def test_b35_a_data_sheet_and_a_step(tmp_path):
    """deepspeedai/DeepSpeed #7368: 14.23 GB saved in 21.8 s (25.7 s by the "fast" path) to a drive like #998's, rated
    3.5 GB/s read and 3.0 written: 4.7 s. Bandwidth cannot explain that gap; block size and queue depth are missing.
    """
    text = """\
topology: ./box.yaml
tensors: {states: {bytes: 14.23 GB, home: dram0, shared: true}}
tasks: {save: {move: states, to: ssd0}}
"""
    (tmp_path / "box.yaml").write_text("""\
switches: {socket0: {kind: socket}}
memories:
  dram0: {kind: dram, at: socket0, capacity: 64 GB, rate: {peak: 100 GB/s, sustained: 80 GB/s}}
  ssd0: {kind: nvme, capacity: 1 TB, read: {rated: 3.5 GB/s}, write: {rated: 3.0 GB/s, sustained: 3.0 GB/s}}
processors: {cpu0: {kind: cpu, memory: dram0, flops: {bf16: 1 TFLOP/s}}}
links: {m2: {between: [ssd0, socket0], pcie: 3 x4}}
""", encoding="utf-8")
    path = tmp_path / "plan.yaml"
    path.write_text(text, encoding="utf-8")
    plan, topology = load_plan(path)
    step = compile_step(topology, plan)
    assert schedule(step).seconds == pytest.approx(14.23 / 3.0, rel=0.01)
    for seconds, rate in ((21.8, 0.65), (25.7, 0.55)):
        assert 14.23 / seconds == pytest.approx(rate, abs=0.01)
        found = standing(step, f"{seconds} s/step")
        assert not found.contradicts and found.verdict == FAR_BELOW


def test_job_25_a_cxl_expander(tmp_path):
    """Interleaving gains what the expander's link adds: 26 GB/s beside 220 GB/s are 12 %; half and half lose."""
    topology = load_topology("examples/servers/cxl-box.yaml")
    seconds = {}
    for home in ("dram0", "dram0 + cxl0", "50% dram0 + 50% cxl0"):
        plan = plan_of(tmp_path, f"""\
model: {{name: llama-3.1-70b, weights: q8_0}}
placement: {{weights: {{{home}: rest}}}}
""", topology)  # fmt: skip
        seconds[home] = evaluate(topology, plan).overlapped.seconds
    assert seconds["dram0"] / seconds["dram0 + cxl0"] == pytest.approx(246 / 220, rel=0.01)
    assert seconds["50% dram0 + 50% cxl0"] > 4 * seconds["dram0"]
