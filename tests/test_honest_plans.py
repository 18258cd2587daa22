"""What plans move, floors count and reports say, where an answer was plausible and wrong: each worked by hand."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from offload import load_topology
from offload.answer import to_json
from offload.bounds import floor
from offload.compiler import compile_step
from offload.designs import ExpertCache, Experts, Parallel, Placement, Portion, Workload, plan_model
from offload.designs.page_cache import PageCache
from offload.documents.plan_file import load_plan
from offload.doubts import doubts_of_plan
from offload.errors import DocumentError, PlanError, RouteError
from offload.models import catalogue, weigh
from offload.models.experts import distinct_uniform
from offload.plan import Overlap, Transfer
from offload.report import write_text
from offload.requests import generation
from offload.schedules import schedule
from offload.sensitivity import changes
from offload.step import loads
from offload.study import evaluate

GB = 10**9
REST = Portion("rest")


def planned(topology, name, weights, asked=None, format="bf16", kv="f16", overlap=None, **more):
    homes = tuple((memory, portion) for memory, portion in weights.items())
    return plan_model(catalogue[name], load_topology(topology), asked or Workload(), Placement(homes, **more),
                      weights=format, kv=kv, overlap=overlap)  # fmt: skip


def compiled(topology, *args, **more):
    return compile_step(load_topology(topology), planned(topology, *args, **more))


def text_of(study):
    out = io.StringIO()
    write_text(study, Console(file=out, width=150))
    return " ".join(out.getvalue().split())


def from_file(tmp_path, text):
    (tmp_path / "plan.yaml").write_text(text, encoding="utf-8")
    return load_plan(tmp_path / "plan.yaml")


# --- via ---


@pytest.mark.parametrize("weights", [
    {"dram0": REST}, {"hbm0": Portion("layers", 6), "dram0": Portion("layers", 20), "ssd0": REST},
])  # fmt: skip
def test_what_lives_in_a_memory_of_via_is_not_copied_onto_itself(weights):
    bare, by = (compiled("desktop-4090", "llama-3.1-8b", weights, compute="gpu0", via=via) for via in ((), ("dram0",)))
    assert loads(by, least=False) == loads(bare, least=False) and loads(by, least=True) == loads(bare, least=True)
    assert schedule(by).seconds == schedule(bare).seconds
    assert by.occupied == bare.occupied, "no slot in dram0 for what is there"


def test_via_that_changes_nothing_or_says_a_node_twice(tmp_path):
    text = ("topology: desktop-4090\nmodel: {name: llama-3.1-8b}\n"
            "placement: {weights: {dram0: rest}, compute: gpu0, via: X}\n")  # fmt: skip
    plan, _ = from_file(tmp_path, text.replace("X", "dram0"))
    assert "placement.via: dram0 changes nothing here" in " ".join(plan.assumptions)
    with pytest.raises(DocumentError, match=r'line 3, column \d+, placement.via\[1\]: "dram0" is given twice'):
        from_file(tmp_path, text.replace("X", "[dram0, dram0]"))
    with pytest.raises(RouteError, match="dram0 is named twice"):
        load_topology("desktop-4090").route("ssd0", "hbm0", ("dram0", "dram0"))


# --- experts ---


def test_no_more_experts_come_than_there_are():
    """64 tokens of 8 of 128 need all but two of a layer's experts: whatever was guessed, few are left to come."""
    asked = Experts((("dram0", REST),), "gpu0", "on_demand", prefetch=0.5)
    step = compiled("desktop-4090", "qwen3-30b-a3b", {"hbm0": REST}, Workload("decode", 64, 1024), "q8_0",
                    experts=asked)  # fmt: skip
    came = {what: sum(part.bytes * count for row, count in zip(step.rows, step.counts, strict=True)
                      for part in row.moved if row.transfer and part.what == what)
            for what in ("experts, ahead", "experts")}  # fmt: skip
    whole = step.occupied["dram0"]["experts"]
    needed = float(distinct_uniform(128, 8, 64)) / 128
    assert came["experts, ahead"] == pytest.approx(needed * whole, rel=1e-9)
    assert came["experts"] == pytest.approx((1 - needed) * needed * whole, rel=1e-6)
    assert sum(came.values()) < whole
    assert "98.39 % of what is fetched ahead is right, and not the 50 %" in " ".join(step.plan.assumptions)


def test_a_copy_after_a_prefetch_brings_the_others():
    """All experts come each step: those foreseen ahead, the others after the router, and none twice."""
    asked = Experts((("dram0", REST),), "gpu0", "copy", prefetch=0.5)
    step = compiled("desktop-4090", "qwen3-30b-a3b", {"hbm0": REST}, Workload("decode", 64, 1024), "q8_0",
                    experts=asked)  # fmt: skip
    came = sum(part.bytes * count for row, count in zip(step.rows, step.counts, strict=True)
               for part in row.moved if row.transfer and part.what.startswith("experts"))  # fmt: skip
    assert came == pytest.approx(step.occupied["dram0"]["experts"], rel=1e-12)


def test_chosen_experts_load_the_memory_of_their_cache():
    """Each is read there or brought there; what is brought may be read from a cache in front, of 60 MiB a layer."""
    model = catalogue["qwen3-30b-a3b"]
    step = compiled("gh200", "qwen3-30b-a3b", {"hbm0": REST}, experts=Experts(
        (("dram0", REST),), "gpu0", "on_demand", cache=ExpertCache("hbm0", 32)))  # fmt: skip
    expert, spared = 3 * 2048 * 768 * 2, 60 * 2**20
    found = sum(use.least * count for row, count in zip(step.rows, step.counts, strict=True)
                for use in row.uses if row.name == "experts" and use.resource == "hbm0")  # fmt: skip
    assert found == pytest.approx(model.layers * (8 * expert - spared), rel=1e-12)
    for row in step.rows:
        for use in row.uses:
            assert use.least <= use.load * (1 + 1e-12)


def test_a_claim_of_means_says_so():
    topology = load_topology("desktop-4090")
    experts = Experts((("dram0", REST),), "gpu0", "on_demand", cache=ExpertCache("hbm0", 32))
    mixture = evaluate(topology, planned("desktop-4090", "qwen3-30b-a3b", {"hbm0": REST}, format="q8_0",
                                         experts=experts))  # fmt: skip
    dense = evaluate(topology, planned("desktop-4090", "llama-3.1-8b", {"hbm0": REST}))
    claim = "The same at sustained rates: no schedule of this model is faster"
    assert f"{claim}, in the mean over steps How many experts are read is a mean" in text_of(mixture)
    assert claim in text_of(dense) and "mean over steps" not in text_of(dense)
    assert to_json(mixture)["floor_sustained"]["of_mean"] is True
    assert to_json(dense)["floor_sustained"]["of_mean"] is False


# --- weights moved for nothing ---

SOCKETS = {"dram0..1": REST}
RANKS = {"compute": "gpu0..7"}


@pytest.mark.parametrize(("topology", "name", "weights", "parallel", "access", "size", "where"), [
    ("dgx-h100", "llama-3.1-8b", SOCKETS, "{by: data}", "copy", 1, "moved to each of hbm0..7"),
    ("dgx-h100", "llama-3.1-8b", SOCKETS, "{by: data, fetch: sharded}", "copy", 1, "moved to each of hbm0..7"),
    ("dgx-h100", "llama-3.1-8b", SOCKETS, "", "copy", 1 / 8, "moved to each of hbm0..7"),
    ("gh200", "llama-3.1-8b", {"dram0": REST}, "", "in_place", 1, "read over c2c0"),
])  # fmt: skip
def test_what_fits_where_it_is_used_is_told(tmp_path, topology, name, weights, parallel, access, size, where):
    (home,) = weights
    ranks = "gpu0..7" if topology == "dgx-h100" else "gpu0"
    shared = f", parallel: {parallel}" if parallel else ""
    plan, server = from_file(tmp_path, (
        f"topology: {topology}\nmodel: {{name: {name}, weights: bf16}}\nworkload: {{batch: 16}}\n"
        f"placement: {{weights: {{{home}: rest}}, compute: {ranks}, access: {access}{shared}}}\n"))  # fmt: skip
    told = [note for note in plan.assumptions if note.startswith("everything fits")]
    weighed = weigh(catalogue[name], "bf16")
    brought = size * (sum(weighed.layers) + weighed.head + weighed.norm)
    assert len(told) == 1 and where in told[0] and f"{brought / GB:.3g} GB of weights" in told[0]
    doubts = [one for one in doubts_of_plan(compile_step(server, plan)) if one.code == "moved-for-nothing"]
    assert len(doubts) == 1 and where in doubts[0].says and doubts[0].place == ("placement", "weights", home[:5])


def test_experts_on_ranks_that_fit_there_are_told():
    """Each rank has all but the experts, and an eighth of these."""
    asked = Workload("decode", 16)
    plan = planned("dgx-h100", "qwen3-30b-a3b", SOCKETS, asked, **RANKS, parallel=Parallel("expert"))
    told = [note for note in plan.assumptions if note.startswith("everything fits")]
    assert len(told) == 1 and "9.71 GB of weights are moved to each of hbm0..7" in told[0]


@pytest.mark.parametrize(("topology", "name", "more"), [
    ("desktop-4090", "llama-3.1-70b", {"compute": "gpu0"}),  # too large
    ("gh200", "llama-3.1-70b", {"compute": "gpu0", "access": "in_place"}),
    ("gh200", "llama-3.1-8b", {"compute": "cpu0"}),  # where they live
])  # fmt: skip
def test_what_does_not_fit_or_stays_is_not_told(topology, name, more):
    format = "q4_k_m" if topology == "desktop-4090" else "bf16"
    plan = planned(topology, name, {"dram0": REST}, format=format, **more)
    assert not [note for note in plan.assumptions if note.startswith("everything fits")]


# --- floors ---


def test_the_last_layer_of_a_chunk_without_output():
    """Sixteen chunks of 32: fifteen need of the last layer its keys and values alone, and the head runs once."""
    asked = Workload("prefill", 1, 0, prompt=512, chunk=32)
    topology = load_topology("desktop-4090")
    plan = planned("desktop-4090", "llama-3.2-1b", {"dram0": REST}, asked, compute="gpu0")
    weighed = weigh(catalogue["llama-3.2-1b"], "bf16")
    kept = 2 * 2048 * 512 * 2
    least = 16 * sum(weighed.layers) - 15 * (weighed.layers[-1] - kept) + weighed.head + weighed.norm + 16 * 2048 * 2
    peak = topology.resources["pcie0.hbm0"].peak
    assert generation(topology, plan).prefill.floor == pytest.approx(least / peak, rel=1e-12)
    assert least / peak == pytest.approx(0.949, rel=1e-3)


@pytest.mark.parametrize(("more", "share"), [
    ({"access": "in_place"}, 1), ({"split": (("gpu0", 0.25), ("cpu0", None))}, 0.25),
])  # fmt: skip
def test_the_same_in_place_and_of_rows(more, share):
    """What the GPU reads over the link of a layer of which keys and values alone are needed: its rows of these."""
    asked = Workload("prefill", 1, 0, prompt=64, chunk=32)
    compute = {} if "split" in more else {"compute": "gpu0"}
    plan = planned("desktop-4090", "llama-3.2-1b", {"dram0": REST}, asked, **compute, **more)
    first = compile_step(load_topology("desktop-4090"), plan.request.chunk(0))
    layer = weigh(catalogue["llama-3.2-1b"], "bf16").layers[-1]
    weights = [tensor for name, tensor in first.plan.tensors.items()
               if name.startswith("weights") and name.endswith(" 16") and "cpu0" not in name]  # fmt: skip
    assert [(one.bytes, one.least) for one in weights] == [(share * layer, share * 2 * 2048 * 512 * 2)]


def test_more_buffers_never_raise_the_floor_of_a_plan():
    asked = Workload("prefill", 64, 0, prompt=512)
    floors = [floor(compiled("gh200", "falcon-7b", {"hbm0": REST}, asked, "int4-g128", "int8", overlap, compute="cpu0"))
              for overlap in (Overlap("none"), Overlap(buffers=1), Overlap(buffers=2), Overlap(buffers=0))]  # fmt: skip
    times = [one.seconds for one in floors]
    assert times == sorted(times, reverse=True) and times[-1] <= times[0]
    assert times[0] == pytest.approx(8.97e-3, rel=1e-3)


# --- what a report says ---


def test_links_between_gpus_that_carry_weights_are_not_said_to_carry_none():
    told = "NVLink does not widen"
    by_nvlink = planned("dgx-h100", "llama-3.1-8b", {"hbm0..3": REST}, compute="gpu0..1")
    assert told not in " ".join(by_nvlink.assumptions)
    assert loads(compile_step(load_topology("dgx-h100"), by_nvlink), least=False)["nvlink0.hbm0"] > GB
    by_host = planned("dgx-h100", "llama-3.1-8b", SOCKETS, compute="gpu0..1")
    assert told in " ".join(by_host.assumptions)


@pytest.mark.parametrize(("weights", "nothing"), [
    ({"hbm0": REST}, True), ({"dram0": REST}, False), ({"hbm0": Portion("layers", 4), "dram0": REST}, False),
])  # fmt: skip
def test_a_split_of_nothing_is_told(weights, nothing):
    plan = planned("desktop-4090", "llama-3.2-3b", weights, split=(("gpu0", 0.2), ("cpu0", None)))
    told = " ".join(plan.assumptions)
    assert ("placement.split: 20% on gpu0, 80% on cpu0 changes nothing here: layers in hbm0" in told) is nothing
    assert ("the rows of each layer are split" in told) is not nothing
    assert any("partial rows" in task.name for block in plan.blocks for task in block.tasks
               if isinstance(task, Transfer)) is not nothing  # fmt: skip


def test_batches_of_blocks_are_compared_by_items(tmp_path):
    """Two clips at once where the link binds one: each step takes longer, and advances both."""
    plan, server = from_file(tmp_path, (
        "topology: desktop-4090\nmodel: {blocks: {count: 40, bytes: 700 MB, flops: 1.2 TFLOP}}\n"
        "workload: {phase: denoise, batch: 1, steps: 20}\n"
        "placement: {weights: {hbm0: 20 layers, dram0: rest}, compute: gpu0}\n"))  # fmt: skip
    step = compile_step(server, plan)
    seconds = schedule(step).seconds
    found = {one.what: one for one in changes(step, seconds, floor(step), floor(step, "value"))}
    double = found["batch 2 instead of 1"]
    assert double.gain == pytest.approx(2 * seconds / double.seconds) and 1.3 < double.gain < 1.4
    assert found["3 buffers instead of 2"].gain == pytest.approx(seconds / found["3 buffers instead of 2"].seconds)


def test_free_beyond_its_memory_is_refused_at_its_key(tmp_path):
    text = ("topology: desktop-4090\nmodel: {name: llama-3.1-70b}\nplacement:\n  weights: {ssd0: rest}\n"
            "  compute: cpu0\n  page_cache: {memory: dram0, free: 200 GB}\n")  # fmt: skip
    with pytest.raises(DocumentError, match=r"line 6, column \d+, placement.page_cache.free: 200 GB is more than all"):
        from_file(tmp_path, text)
    cache = PageCache("dram0", 200 * GB)
    with pytest.raises(PlanError, match="page_cache.free: 200 GB is more than all of dram0"):
        planned("desktop-4090", "llama-3.1-70b", {"ssd0": REST}, compute="cpu0", page_cache=cache)
