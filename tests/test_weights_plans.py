"""Weights by technique, through designs: page cache, interleaving, split rows, layouts, blocks; worked examples."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload.bounds import floor
from offload.capacity import layers_that_fit
from offload.compiler import compile_step
from offload.designs import Placement, Portion, Workload, plan_model
from offload.designs.homes import home_in_short, parts_of_home, shares_of_home
from offload.designs.page_cache import PageCache
from offload.documents.plan_file import load_plan
from offload.errors import DocumentError, ModelError, PlanError
from offload.models import catalogue, weigh
from offload.models.stated import Blocks, stated_model
from offload.plan import Compute, Overlap, Transfer
from offload.schedules import schedule, serial
from offload.step import loads
from offload.study import evaluate
from tests.boxes import GB, box, plan_of
from tests.weights_box import REST, blocks, compiled, planned, server
from tests.worked_numbers import BY_ID as WORKED

TB = 10**12


# --- page cache ---


def test_w50_a_cyclic_scan_reads_all_again():
    case = WORKED["W50"]
    items, capacity = case["inputs"]["items"], case["inputs"]["capacity"]
    topology = server(drive=1e9, m2=1e9)
    lru = compiled(topology, blocks(items, GB), {"ssd0": REST}, page_cache=PageCache("dram0", capacity * GB))
    assert loads(lru, least=False)["ssd0.read"] == case["expected"]["lru_misses_per_cycle"] * GB
    assert loads(lru, least=True)["ssd0.read"] == pytest.approx(case["expected"]["pinned_misses_per_cycle"] * GB)
    assert floor(lru).seconds == pytest.approx(8) and schedule(lru).seconds == pytest.approx(40, rel=1e-3)
    pinned = compiled(topology, blocks(items, GB), {"ssd0": REST}, page_cache=PageCache("dram0", capacity * GB, True))
    assert loads(pinned, least=False)["ssd0.read"] == pytest.approx(8 * GB)
    assert floor(pinned).seconds == pytest.approx(8) and schedule(pinned).seconds == pytest.approx(8, rel=1e-3)
    fits = compiled(topology, blocks(items, GB), {"ssd0": REST}, page_cache=PageCache("dram0", items * GB))
    assert "ssd0.read" not in loads(fits, least=False)


def test_what_a_page_cache_tells():
    topology = server(drive=1e9, m2=1e9, host=30 * GB)
    told = " ".join(planned(topology, blocks(20, GB), {"ssd0": REST}, page_cache=PageCache("dram0")).assumptions)
    assert "fit in 28.1 GB of dram0" in told and "of 30 GB that the plan leaves in dram0, 1.88 GB are left to" in told
    assert "about 20 s at the sustained rate (first touch" in told
    told = planned(topology, blocks(20, GB), {"ssd0": REST}, page_cache=PageCache("dram0", 16 * GB)).assumptions
    assert "a file just over memory: 4 GB too many cost 20 GB of reads each step" in " ".join(told)
    told = planned(topology, blocks(20, GB), {"ssd0": REST}, page_cache=PageCache("dram0", 4 * GB)).assumptions
    assert "just over" not in " ".join(told)


def test_what_a_page_cache_holds():
    """What is free by default is what the plan leaves, less what the system keeps; pages and slots of reads fill it.

    Floors take that some system keeps nothing.
    """
    topology, system = server(host=30 * GB), 30 * GB // 16
    model = stated_model("two", [Blocks(10, GB), Blocks(40, GB)])
    for pinned in (False, True):
        step = compiled(topology, model, {"dram0": Portion("layers", 10), "ssd0": REST},
                        page_cache=PageCache("dram0", None, pinned))  # fmt: skip
        used = step.occupied["dram0"]
        assert sum(used.values()) <= 30 * GB - system
        assert pinned or sum(used.values()) == 30 * GB - system
        assert sum(step.occupied["ssd0"].values()) == pytest.approx(40 * GB, abs=100)
        missed = loads(step, least=True)["ssd0.read"]
        assert missed == pytest.approx(40 * GB - (18 if pinned else 20) * GB)
        read = loads(step, least=False)["ssd0.read"]
        assert read == pytest.approx(40 * GB - (18 * GB - system if pinned else 0))
    assert not evaluate(topology, step.plan).memory[0].missing


def test_a_file_that_fits_but_for_the_system():
    """19 GB in 20 GB: what the system keeps makes it a scan that finds nothing; that it fits, floors cannot exclude."""
    topology = server(host=20 * GB)
    step = compiled(topology, blocks(19, GB), {"ssd0": REST}, page_cache=PageCache("dram0"))
    assert loads(step, least=True)["ssd0.read"] == 0 and loads(step, least=False)["ssd0.read"] == 19 * GB
    told = " ".join(step.plan.assumptions)
    assert "do not fit in 18.8 GB of dram0" in told and "a file just over memory: 250 MB too many" in told
    large = server(host=200 * GB)
    told = " ".join(planned(large, blocks(19, GB), {"ssd0": REST}, page_cache=PageCache("dram0")).assumptions)
    assert "fit in 196 GB of dram0" in told, "4 GB, however large it is"


def test_free_beyond_what_there_is():
    topology = server(host=20 * GB)
    with pytest.raises(PlanError, match=r"page_cache\.free: 21 GB is more than all of dram0, 20 GB"):
        planned(topology, blocks(4, GB), {"ssd0": REST}, page_cache=PageCache("dram0", 21 * GB))
    step = compiled(topology, blocks(40, GB), {"dram0": Portion("layers", 10), "ssd0": REST},
                    page_cache=PageCache("dram0", 15 * GB))  # fmt: skip
    assert "page_cache.free: 15 GB are stated, and this plan leaves 10 GB in dram0" in " ".join(step.plan.assumptions)
    assert evaluate(topology, step.plan).memory[0].missing == 5 * GB


def test_a_page_cache_on_the_way_to_a_gpu():
    """In the cache the CPU copies pages to a pinned buffer: three passes of host memory; from the drive four."""
    topology = server()
    for free, drive, dram in ((100 * GB, 0, 30 * GB), (5 * GB, 10 * GB, 40 * GB)):
        step = compiled(topology, blocks(10, GB), {"ssd0": REST}, compute="gpu0", page_cache=PageCache("dram0", free))
        there = loads(step, least=False)
        assert there.get("ssd0.read", 0) == drive and there["dram0"] == dram and there["pcie0.hbm0"] == 10 * GB


@pytest.mark.parametrize(
    ("placed", "said"),
    [
        ({"page_cache": PageCache("hbm0")}, r"hbm0 \(hbm\) keeps no pages of files; host memory does: dram0"),
        ({"page_cache": PageCache("nowhere")}, "nowhere keeps no pages"),
    ],
)
def test_page_caches_that_are_refused(placed, said):
    with pytest.raises(PlanError, match=said):
        planned(server(), blocks(4, GB), {"ssd0": REST}, **placed)
    with pytest.raises(PlanError, match="no weights are on a drive"):
        planned(server(), blocks(4, GB), {"dram0": REST}, page_cache=PageCache("dram0"))


def test_a_page_cache_of_a_mixture():
    topology = box(1)
    placement = Placement((("ssd0", REST),), "cpu0", page_cache=PageCache("dram0", 10 * GB))
    with pytest.raises(PlanError, match="a mixture's file"):
        plan_model(catalogue["qwen3-30b-a3b"], topology, Workload(), placement, weights="q8_0")


# --- several memories at once ---


def test_parts_of_a_home():
    assert parts_of_home("dram0+cxl0") == (("dram0", None), ("cxl0", None))
    assert parts_of_home("75% dram0 + 25% cxl0") == (("dram0", 0.75), ("cxl0", 0.25))
    assert home_in_short("dram0+cxl0") == home_in_short("dram0 +  cxl0") == "dram0 + cxl0"
    assert parts_of_home("dram0..1 + cxl0") == (("dram0", None), ("dram1", None), ("cxl0", None))
    for text, said in (("dram0+dram0", "twice"), ("50% a + 40% b", "add up to 90%"), ("50% a + b", "others none"),
                       ("a +", 'beside a "[+]"'), ("100% a + 0% b", "nothing")):  # fmt: skip
        with pytest.raises(PlanError, match=said):
            parts_of_home(text)


def test_by_their_rates_all_end_together():
    """70 GB/s of DRAM and 30 GB/s of CXL read 100 GB in a second; half and half takes 5/3 s, DRAM alone 10/7 s."""
    topology = server(dram=70e9, cxl=30e9)
    model = blocks(10, 10 * GB)
    mixed = compiled(topology, model, {"dram0 + cxl0": REST})
    assert shares_of_home(topology, "dram0 + cxl0", "cpu0") == (("dram0", 0.7), ("cxl0", 0.3))
    assert not [row for row in mixed.rows if row.transfer]  # a CPU reads both where they are
    assert floor(mixed).seconds == pytest.approx(1) and schedule(mixed).seconds == pytest.approx(1)
    halves = compiled(topology, model, {"50% dram0 + 50% cxl0": REST})
    assert schedule(halves).seconds == pytest.approx(5 / 3)
    assert schedule(compiled(topology, model, {"dram0": REST})).seconds == pytest.approx(10 / 7)
    told = " ".join(halves.plan.assumptions)
    assert "60 GB/s in all" in told and "it would be 100 GB/s (70.0% in dram0, 30.0% in cxl0)" in told
    assert mixed.occupied == {"dram0": {"layer weights": 70 * GB}, "cxl0": {"layer weights": 30 * GB}}


def test_streamed_from_several_memories_at_once():
    topology = server(dram=70e9, cxl=30e9)
    step = compiled(topology, blocks(10, 10 * GB), {"dram0 + cxl0": REST}, compute="gpu0")
    assert schedule(step).seconds == pytest.approx(1, rel=1e-3)
    narrow = compiled(server(dram=70e9, cxl=30e9, link=25e9), blocks(10, 10 * GB), {"dram0 + cxl0": REST},
                      compute="gpu0")  # fmt: skip
    assert floor(narrow).seconds == pytest.approx(4)  # the link binds, whatever lies where


def test_a_part_of_each_layer_on_the_gpu():
    """FlexGen's percentages: 20 % of each layer stays, the other 80 % come over the link."""
    step = compiled(server(link=25e9), blocks(10, 10 * GB), {"20% hbm0 + 80% dram0": REST}, compute="gpu0")
    assert loads(step, least=False)["pcie0.hbm0"] == pytest.approx(80 * GB)
    assert step.occupied["hbm0"]["layer weights"] == pytest.approx(20 * GB)
    assert floor(step).seconds == pytest.approx(80 / 25)


def test_homes_that_are_refused():
    with pytest.raises(PlanError, match="ssd0 is a drive"):
        planned(server(), blocks(4, GB), {"dram0 + ssd0": REST})
    with pytest.raises(PlanError, match="processors work in several memories"):
        planned(server(), blocks(4, GB), {"hbm0 + dram0": REST})
    with pytest.raises(PlanError, match='no memory "dram7"'):
        planned(server(), blocks(4, GB), {"dram0 + dram7": REST})


# --- rows split between processors ---


@pytest.mark.parametrize("name", ["W27", "W28"])
def test_rows_split_between_cpu_and_gpu(name):
    case = WORKED[name]
    given_, expected = case["inputs"], case["expected"]
    topology = server(dram=given_["dram_bw"], reads=given_["cpu_bw"], link=given_["link_bw"])
    model = blocks(70, given_["bytes"] // 70)

    def split(share):
        return compiled(topology, model, {"dram0": REST}, split=(("gpu0", 1 - share), ("cpu0", None)))

    for share in (expected["cpu_share_min"], expected["cpu_share_max"]):
        if share == 1:
            continue
        step = split(share)
        assert floor(step).seconds == pytest.approx(expected["T"], rel=1e-9)
        assert schedule(step).seconds == pytest.approx(expected["T"], rel=0.02)
        assert loads(step, least=False)["pcie0.hbm0"] == pytest.approx((1 - share) * given_["bytes"])
    worse = floor(split(0.5)).seconds
    assert worse > expected["T"] * 1.01
    alone = compiled(topology, model, {"dram0": REST})
    assert floor(alone).seconds == pytest.approx(expected["T_cpu_only"])
    streamed = compiled(topology, model, {"dram0": REST}, compute="gpu0")
    assert floor(streamed).seconds == pytest.approx(expected["T_stream_only"])
    least = f"{100 * expected['cpu_share_min']:.1f}%"
    assert any(f"best split of what is in dram0: {least}" in note for note in step.plan.assumptions)


def test_each_reads_its_part_where_it_lives():
    """60 % of each layer on the GPU and 40 % at the CPU (as PowerInfer lays it out): only rows cross the link."""
    topology = server(hbm=600e9, dram=40e9, link=25e9)
    model = blocks(10, 10 * GB, row=16_384)
    step = compiled(topology, model, {"60% hbm0 + 40% dram0": REST}, split=(("gpu0", 0.6), ("cpu0", None)))
    there = loads(step, least=False)
    assert there["hbm0"] == pytest.approx(60 * GB, rel=1e-4) and there["dram0"] == pytest.approx(40 * GB, rel=1e-4)
    assert there["pcie0.socket0"] == 9 * 2 * 16_384  # the first layer's row is at the host
    assert there["pcie0.hbm0"] == 10 * 2 * 16_384  # blocks have no embedding whose row would come
    assert schedule(step).seconds == pytest.approx(1, rel=1e-3)  # both at the same time, not one after the other


def test_split_of_a_known_model_keeps_all_bytes_and_flops():
    topology = box(1)
    whole = plan_model(catalogue["llama-3.1-8b"], topology, Workload(batch=3), Placement((("dram0", REST),)),
                       weights="bf16")  # fmt: skip
    split = plan_model(catalogue["llama-3.1-8b"], topology, Workload(batch=3),
                       Placement((("dram0", REST),), split=(("gpu0", 0.3), ("cpu0", None))), weights="bf16")

    def total(plan, count):
        return sum(block.repeat * count(plan, task) for block in plan.blocks for task in block.tasks
                   if isinstance(task, Compute))  # fmt: skip

    for count in (lambda plan, task: task.flops,
                  lambda plan, task: sum(plan.tensors[name].bytes for name in task.reads)):  # fmt: skip
        assert total(split, count) == pytest.approx(total(whole, count))
    resident = plan_model(catalogue["llama-3.1-8b"], topology, Workload(), Placement(
        (("hbm0", Portion("layers", 10)), ("dram0", REST)), split=(("gpu0", 0.3), ("cpu0", None))), weights="bf16")
    assert any("layers in hbm0 run there as a whole" in note for note in resident.assumptions)
    assert schedule(compile_step(topology, resident)).seconds < schedule(compile_step(topology, split)).seconds


@pytest.mark.parametrize(
    ("split", "said"),
    [
        ((("gpu0", 0.2), ("cpu0", 0.3)), "add up to 50%"),
        ((("gpu0", None), ("cpu0", None)), "both take the rest"),
        ((("gpu0", None),), "two processors or more"),
        ((("gpu0", 0.2), ("gpu7", None)), 'no processor "gpu7"'),
        ((("gpu0", 1.0), ("cpu0", None)), "nothing is left for cpu0"),
    ],
)
def test_splits_that_are_refused(split, said):
    with pytest.raises(PlanError, match=said):
        planned(server(), blocks(4, GB), {"dram0": REST}, split=split)


# --- worked examples of streams ---


@pytest.mark.parametrize("name", ["W15a", "W15b", "W15c"])
def test_bounce_buffers(name):
    case = WORKED[name]
    caps, amount = case["inputs"]["caps"], case["inputs"]["transfers"][0]["bytes"]
    way = {"W15a": "pinned", "W15b": "page cache", "W15c": "page cache, write-allocate"}[name]
    topology = server(drive=caps["nvme"], dram=caps["dram"], link=caps["gpu_pcie"])
    step = compiled(topology, blocks(10, amount // 10), {"ssd0": REST}, compute="gpu0", host_memory=way)
    there = loads(step, least=False)
    times = {name: there[row] / topology.resources[row].peak
             for name, row in (("nvme", "ssd0.read"), ("dram", "dram0"), ("gpu_pcie", "pcie0.hbm0"))}  # fmt: skip
    assert times == pytest.approx(case["expected"]["resource_time"])
    assert floor(step, "value").seconds == pytest.approx(case["expected"]["T"])
    assert floor(step).seconds == pytest.approx(times["nvme"])  # host memory is likely, not certain


def test_w18_a_stripe_behind_one_uplink():
    case = WORKED["W18"]
    given_, expected = case["inputs"], case["expected"]
    topology = server(drive=given_["disk_bw"], count=given_["disks"], m2=given_["uplink_bw"])
    step = compiled(topology, blocks(8, given_["bytes"] // 8), {"ssd0": REST}, compute="gpu0")
    there = loads(step, least=False)
    assert there["ssd0.read"] / topology.resources["ssd0.read"].peak == pytest.approx(expected["device_time"])
    assert floor(step).seconds == pytest.approx(expected["T"]) and floor(step).bottleneck == ("m2.socket0",)


def test_w25_copies_in_share_hbm_with_compute():
    case = WORKED["W25"]
    given_, expected = case["inputs"], case["expected"]
    streamed, resident = given_["copy_in_bytes"], given_["compute_hbm_bytes"] - given_["copy_in_bytes"]
    topology = server(hbm=given_["hbm_bw"], link=given_["link_bw"], flops=given_["peak_flops"])
    model = stated_model("w25", [Blocks(10, resident // 10, given_["flops"] / 20),
                                 Blocks(10, streamed // 10, given_["flops"] / 20)])  # fmt: skip
    step = compiled(topology, model, {"hbm0": Portion("layers", 10), "dram0": REST}, compute="gpu0",
                    layout="streamed_last")  # fmt: skip
    there = loads(step, least=False)
    times = {"flop": there["gpu0.flops"] / given_["peak_flops"], "link": there["pcie0.hbm0"] / given_["link_bw"],
             "hbm": there["hbm0"] / given_["hbm_bw"]}  # fmt: skip
    assert times == pytest.approx(expected["resource_time"])
    assert floor(step).seconds == pytest.approx(expected["T"])


def test_w26_cpu_and_dma_share_host_memory():
    case = WORKED["W26"]
    caps, (by_cpu, by_dma) = case["inputs"]["caps"], [one["bytes"] for one in case["inputs"]["transfers"]]
    topology = server(dram=caps["dram"], link=caps["gpu_pcie"], reads=caps["cpu_stream"])
    share = by_dma / (by_cpu + by_dma)
    step = compiled(topology, blocks(50, (by_cpu + by_dma) // 50), {"dram0": REST},
                    split=(("gpu0", share), ("cpu0", None)))  # fmt: skip
    there = loads(step, least=False)
    times = {"dram": there["dram0"] / caps["dram"], "gpu_pcie": there["pcie0.hbm0"] / caps["gpu_pcie"],
             "cpu_stream": there["cpu0.reads"] / caps["cpu_stream"]}  # fmt: skip
    assert times == pytest.approx(case["expected"]["resource_time"])
    assert floor(step).seconds == pytest.approx(case["expected"]["T"])


@pytest.mark.parametrize(
    ("name", "layout"),
    [("W38a", "streamed_first"), ("W38b", "streamed_last"), ("W38c", "interleaved_streamed_first"),
     ("W38d", "interleaved")],
)  # fmt: skip
def test_layouts(name, layout):
    case = WORKED[name]
    given_, expected = case["inputs"], case["expected"]
    topology = server(link=GB, flops=TB)
    model = blocks(8, given_["fetch"] * GB, given_["compute"] * TB)
    step = compiled(topology, model, {"hbm0": Portion("layers", 4), "dram0": REST}, compute="gpu0", layout=layout,
                    overlap=Overlap("buffers", given_["buffers"]))  # fmt: skip
    where = "".join("R" if task.reads[0] in step.plan.tensors and
                    step.plan.tensors[task.reads[0]].home[0][0] == "hbm0" else "S"
                    for block in step.plan.blocks for _ in range(block.repeat) for task in block.tasks
                    if isinstance(task, Compute))  # fmt: skip
    assert where == given_["pattern"]
    found = schedule(step)
    assert found.cold_seconds == pytest.approx(expected["first_step"], rel=1e-4)
    assert found.seconds == pytest.approx(expected["steady_step"], rel=1e-4)
    total = found.cold_seconds + (given_["steps"] - 1) * found.seconds
    assert total == pytest.approx(expected["total"], rel=1e-4)


def test_w45_buffers_cost_resident_layers():
    case = WORKED["W45"]
    given_, expected = case["inputs"], case["expected"]
    topology = server(room=given_["layers_that_fit"] * GB)
    step = compiled(topology, blocks(given_["layers"], GB), {"hbm0": Portion("layers", 1), "dram0": REST},
                    compute="gpu0", overlap=Overlap("buffers", given_["buffers"]))  # fmt: skip
    most = {one.memory: one.most for one in layers_that_fit(step)}
    assert most["hbm0"] == expected["resident"] and given_["layers"] - most["hbm0"] == expected["streamed"]


def test_zero_copy_reads_are_no_copies():
    """vLLM's UVA path: the kernel reads pinned host memory over the link; nothing lands in the GPU's memory."""
    topology = server(link=25e9)
    step = compiled(topology, blocks(10, GB), {"hbm0": Portion("layers", 4), "dram0": REST}, compute="gpu0",
                    access="in_place")  # fmt: skip
    assert not [task for block in step.plan.blocks for task in block.tasks if isinstance(task, Transfer)]
    there = loads(step, least=False)
    assert there["pcie0.hbm0"] == 6 * GB and there["hbm0"] == 4 * GB and "buffers" not in step.occupied["hbm0"]
    assert schedule(step).seconds == pytest.approx(serial(step).seconds)


def test_everything_fits_and_is_moved_for_nothing():
    topology = server(room=80 * GB)
    told = planned(topology, blocks(10, GB), {"dram0": REST}, compute="gpu0").assumptions
    assert any("everything fits: 10 GB of weights are moved to hbm0 each step" in note for note in told)
    tight = planned(server(room=9 * GB), blocks(10, GB), {"dram0": REST}, compute="gpu0").assumptions
    assert not any("everything fits" in note for note in tight)


# --- blocks of a diffusion transformer ---

SWAPPED = """\
model: {{name: some DiT, blocks: {{count: 40, bytes: 700 MB, flops: 2 TFLOP}}}}
workload: {{phase: denoise, batch: 2, steps: 20}}
placement: {{weights: {{hbm0: {resident} blocks, dram0: rest}}, compute: gpu0}}
"""


def test_block_swap(tmp_path, capsys):
    """20 of 40 blocks of 700 MB over 20 GB/s: 0.7 s; 40 x 2 x 2 TFLOP at 100 TFLOP/s: 1.6 s hide it."""
    topology = box(1)
    plan = plan_of(tmp_path, SWAPPED.format(resident=20), topology)
    assert plan.title == "some DiT, denoise, batch 2, steps 20" and plan.tokens == 1
    step = compile_step(topology, plan)
    assert loads(step, least=False)["pcie0.hbm0"] == 14 * GB
    assert floor(step).seconds == pytest.approx(1.6)
    assert schedule(step).seconds == pytest.approx(1.6, rel=0.05)
    alone = evaluate(topology, plan)
    assert alone.workload["steps"] == 20


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model: {name: llama-3.1-8b, weights: bf16}\nworkload: {phase: denoise}\nplacement: {weights: {hbm0: rest}}\n",
         "denoise is of a diffusion model"),
        ("model: {blocks: {count: 4, bytes: 1 GB}}\nworkload: {phase: prefill, prompt: 7}\n"
         "placement: {weights: {hbm0: rest}}\n", "blocks say nothing of positions"),
        ("model: {blocks: {count: 4, bytes: 1 GB}}\nworkload: {steps: 3}\nplacement: {weights: {hbm0: rest}}\n",
         '"steps" belongs to phase denoise'),
        ("model: {blocks: {count: 4, bytes: 1 GB}, weights: bf16}\nplacement: {weights: {hbm0: rest}}\n",
         "blocks state theirs"),
        ("model: {blocks: {count: 4, bytes: 1 GB}}\nplacement: {weights: {hbm0: rest}, kv: dram0}\n", "no KV cache"),
        ("model: {blocks: {count: 4, bytes: 1 GB}}\nworkload: {context: 9}\nplacement: {weights: {hbm0: rest}}\n",
         "nothing of a context"),
        ("model: {blocks: {count: 4000, bytes: 1 GB}}\nplacement: {weights: {hbm0: rest}}\n", "at most 500"),
        ("model: {blocks: []}\nplacement: {weights: {hbm0: rest}}\n", "0 blocks"),
        ("model: {name: llama-3.1-8b, weights: bf16, row: 2 B}\nplacement: {weights: {hbm0: rest}}\n",
         "stated in blocks"),
        ("model: {blocks: {count: 4, bytes: 1 GB}}\nplacement: {weights: {hbm0: rest}, split: {gpu0: 2, cpu0: rest}}\n",
         "no share of rows"),
        ("model: {blocks: {count: 4, bytes: 1 GB}}\n"
         "placement: {weights: {dram0: rest}, compute: gpu0, split: {gpu0: 20%, cpu0: rest}}\n", "Drop this key"),
        ("model: {blocks: {count: 4, bytes: 1 GB}}\n"
         "placement: {weights: {dram0: rest}, split: {gpu9: 20%, cpu0: rest}}\n", 'no processor "gpu9"'),
        ("model: {blocks: {count: 4, bytes: 1 GB}}\n"
         "placement: {weights: {dram0: rest}, split: {gpu0: 20%, cpu0: 20%}}\n", "add up to 40%"),
        ("model: {blocks: {count: 4, bytes: 1 GB}}\nplacement: {weights: {ssd0: rest}, page_cache: hbm0}\n",
         "keeps no pages"),
        ("model: {blocks: {count: 4, bytes: 1 GB}}\nplacement: {weights: {ssd0: rest}, page_cache: dram7}\n",
         'no memory "dram7"'),
        ("model: {blocks: {count: 4, bytes: 1 GB}}\nplacement: {weights: {hbm0: rest}, page_cache: dram0}\n",
         "no weights are on a drive"),
        ("model: {blocks: {count: 4, bytes: 1 GB}}\n"
         "placement: {weights: {ssd0: rest}, page_cache: dram0, host_memory: pinned}\n", "Drop this key, or page"),
        ("model: {blocks: {count: 4, bytes: 1 GB}}\nplacement: {weights: {dram0 + dram9: rest}}\n",
         'no memory "dram9"'),
        ("model: {blocks: {count: 4, bytes: 1 GB}}\nplacement: {weights: {40% dram0 + 20% hbm0: rest}}\n",
         "add up to 60%"),
        ("model: {blocks: {count: 4, bytes: 1 GB}}\nplacement: {weights: {hbm0: rest}, layout: first}\n", "layout"),
    ],
)  # fmt: skip
def test_mistakes_of_files(tmp_path, text, said):
    with pytest.raises(DocumentError, match=said):
        plan_of(tmp_path, text, box(1))


def test_no_other_format_of_what_is_stated():
    with pytest.raises(ModelError, match="stated with its blocks"):
        weigh(blocks(3, GB), "fp8")


# --- the words of tools (docs/weights-in-plans.md): 40 layers of 1 GB, and what each tool would move of them ---

ALL, HBM = 40 * GB, "pcie0.hbm0"
TOOLS = [
    # words of the placement, then of the plan; bytes a step by resource; bytes that live in memories
    ("weights: {hbm0: 18 layers, dram0: rest}", "", {HBM: 0, "dram0": 22 * GB, "hbm0": 18 * GB}, {"hbm0": 18 * GB}),
    ("weights: {ssd0: rest}, compute: cpu0, page_cache: dram0", "", {"dram0": ALL, "ssd0.read": 0}, {"dram0": ALL}),
    ("weights: {ssd0: rest}, compute: cpu0, page_cache: {memory: dram0, free: 30 GB}", "",
     {"ssd0.read": ALL, "dram0": 2 * ALL}, {}),
    ("weights: {ssd0: rest}, compute: cpu0, page_cache: {memory: dram0, free: 30 GB, pinned: true}", "",
     {"ssd0.read": 10 * GB, "dram0": ALL + 10 * GB}, {"dram0": 30 * GB}),
    ("weights: {hbm0: rest, dram0: 25 GB}, compute: gpu0, layout: streamed_first, access: in_place", "",
     {HBM: 25 * GB, "hbm0": 15 * GB}, {"dram0": 25 * GB}),
    ("weights: {hbm0: rest, dram0: 25 GB}, compute: gpu0, layout: streamed_first", "overlap: none",
     {HBM: 25 * GB, "hbm0": ALL + 25 * GB}, {"dram0": 25 * GB}),
    ("weights: {hbm0: 10 layers, dram0: 20 layers, ssd0: rest}, compute: gpu0, layout: streamed_last, "
     "host_memory: pageable", "overlap: none", {HBM: 30 * GB, "ssd0.read": 10 * GB}, {"dram0": 20 * GB}),
    ("weights: {20% hbm0 + 80% dram0: rest}, compute: gpu0", "", {HBM: 32 * GB}, {"hbm0": 8 * GB, "dram0": 32 * GB}),
    ("weights: {50% dram0 + 50% ssd0: rest}, compute: gpu0", "", {HBM: ALL, "ssd0.read": 20 * GB},
     {"dram0": 20 * GB, "ssd0": 20 * GB}),
    ("weights: {dram0: rest}, compute: gpu0", "overlap: 2", {HBM: ALL}, {"dram0": ALL}),
    ("weights: {ssd0: rest}, compute: gpu0, via: dram0", "", {HBM: ALL, "ssd0.read": ALL, "dram0": 2 * ALL}, {}),
    ("weights: {hbm0: 20 blocks, dram0: rest}, compute: gpu0", "", {HBM: 20 * GB}, {"hbm0": 20 * GB}),
    ("weights: {60% hbm0 + 40% dram0: rest}, split: {gpu0: 60%, cpu0: rest}", "",
     {HBM: 0, "hbm0": 24 * GB, "dram0": 16 * GB}, {"hbm0": 24 * GB}),
]  # fmt: skip


@pytest.mark.parametrize(("placed", "more", "moved", "lives"), TOOLS, ids=[one[0][:60] for one in TOOLS])
def test_words_of_tools(tmp_path, placed, more, moved, lives):
    text = f"model: {{blocks: {{count: 40, bytes: 1 GB}}}}\nplacement: {{{placed}}}\n{more}\n"
    topology = box(1, direct=(0,))
    step = compile_step(topology, plan_of(tmp_path, text, topology))
    there = loads(step, least=False)
    assert {name: there.get(name, 0) for name in moved} == pytest.approx(moved)
    for memory, size in lives.items():
        assert step.occupied[memory]["layer weights"] == pytest.approx(size)


def test_the_page_tells_the_words_that_are_tested():
    page = (Path(__file__).parent.parent / "docs" / "weights-in-plans.md").read_text(encoding="utf-8")
    for key in ("compute", "access", "layout", "page_cache", "split", "host_memory", "via", "overlap"):
        assert f"`{key}: " in page and any(f"{key}: " in f"{placed} {more}" for placed, more, _, _ in TOOLS), key


# --- ladders ---


@given(
    st.sampled_from(["dram0", "cxl0", "ssd0", "dram0 + cxl0", "30% dram0 + 70% cxl0", "25% hbm0 + 75% dram0"]),
    st.sampled_from(["local", "gpu0", "cpu0", "split"]), st.integers(0, 12), st.sampled_from([None, 2, 6, 30]),
    st.booleans(), st.sampled_from(["interleaved", "interleaved_streamed_first", "streamed_first", "streamed_last"]),
    st.sampled_from(["none", 1, 2, 3, 0]), st.sampled_from(["copy", "in_place"]), st.integers(0, 20),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_ladders_of_weights(home, compute, resident, free, pinned, layout, buffers, access, share):
    topology = server(hbm=500e9, dram=60e9, link=20e9, drive=5e9, m2=7e9, reads=40e9, cxl=15e9, flops=1e13)
    model = blocks(12, GB, 3e10, row=4096)
    weights = {"hbm0": Portion("layers", resident), home: REST}
    placed = {"layout": layout, "access": access}
    if compute == "split":
        placed["split"] = (("gpu0", share / 20), ("cpu0", None))
    else:
        placed["compute"] = compute
    if home == "ssd0" and free is not None and resident < 12:
        placed["page_cache"] = PageCache("dram0", free * GB, pinned)
    overlap = Overlap("none") if buffers == "none" else Overlap("buffers", buffers)
    try:
        step = compiled(topology, model, weights, overlap=overlap, **placed)
    except (PlanError, ValueError) as error:
        assert isinstance(error, PlanError), error
        return
    low, point, expected, most = floor(step), floor(step, "value"), schedule(step), serial(step)
    assert low.seconds <= point.seconds * (1 + 1e-12)
    assert point.seconds <= expected.seconds * (1 + 1e-12)
    assert expected.seconds <= most.seconds * (1 + 1e-12)
    assert low.cold_seconds <= expected.cold_seconds * (1 + 1e-12)
    assert 12 * GB == pytest.approx(sum(size for parts in step.occupied.values() for what, size in parts.items()
                                        if what == "layer weights"), abs=100)  # fmt: skip


def test_examples_say_what_they_ask():
    for path in (Path(__file__).parent.parent / "examples").glob("weights-*.yaml"):
        lines = path.read_text(encoding="utf-8").splitlines()
        assert lines[1].startswith("# ") and "?" in " ".join(line for line in lines[1:5] if line.startswith("#")), path
        assert load_plan(path)
