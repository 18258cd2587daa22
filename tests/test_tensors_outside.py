"""Patterns on tensors outside of layers: where the embedding, the head and the final norm live and run."""

from __future__ import annotations

import pytest

from offload import load_topology
from offload.compiler import compile_step
from offload.designs import Cost, Experts, Placement, Portion, Workload, plan_model
from offload.documents.plan_file import load_plan
from offload.errors import DocumentError, PlanError
from offload.models import catalogue, weigh
from offload.models.gguf_names import first_of, outside_names, tensor_pattern
from offload.plan import Compute, GivenTime, Transfer
from offload.schedules import schedule
from offload.study import evaluate

REST = Portion("rest")
DESKTOP = load_topology("desktop-4090")
MODEL = catalogue["llama-3.1-8b"]  # its head is no embedding's
TIED = catalogue["llama-3.2-1b"]


def planned(*tensors, model=MODEL, workload=None, weights=None, **more):
    placement = Placement(tuple((weights or {"hbm0": REST}).items()), reserve=0, tensors=tensors, **more)
    return plan_model(model, DESKTOP, workload or Workload(context=100), placement, weights="q8_0")


def tasks(plan, name):
    return [task for block in plan.blocks for task in block.tasks if task.name == name]


def where(plan):
    """Of head and norm: (processor, home of what is read)."""
    found = {}
    for block in plan.blocks:
        for task in block.tasks:
            if isinstance(task, Compute):
                found |= {name: (task.processor, plan.tensors[name].home) for name in task.reads
                          if name in ("head", "norm")}  # fmt: skip
    return found


def occupied(plan, memory):
    return compile_step(DESKTOP, plan).occupied.get(memory, {})


def test_names_of_files():
    def names(model, text):
        return {role for role, ways in outside_names(model).items() if first_of(ways, [tensor_pattern(text)]) == 0}

    assert names(MODEL, r"^output\.weight") == names(MODEL, "lm_head") == {"head"}
    assert names(MODEL, "token_embd") == names(MODEL, r"model\.embed_tokens") == {"embedding"}
    assert names(MODEL, "output_norm") == names(MODEL, r"model\.norm") == {"norm"}
    assert names(MODEL, "^output") == {"head", "norm"} and names(MODEL, ".*") == {"embedding", "head", "norm"}
    assert names(TIED, "token_embd") == {"embedding", "head"}, "one tensor"
    assert names(TIED, "lm_head") == {"head"} and names(TIED, r"^output\.weight") == set()
    assert not names(MODEL, "ffn_") | names(MODEL, r"blk\.")


def test_a_head_in_host_memory_runs_on_the_cpu():
    """532 MiB of head read at DRAM's rate: the row of 4096 values goes there once the norm has run on the GPU."""
    plan, plain = planned((r"^output\.weight", "dram0")), planned()
    weighed = weigh(MODEL, "q8_0")
    assert where(plan) == {"head": ("cpu0", (("dram0", 1.0),)), "norm": ("gpu0", (("hbm0", 1.0),))}
    row, = [task for block in plan.blocks for task in block.tasks
            if isinstance(task, Transfer) and task.to == "dram0" and task.name.startswith("hidden row")]  # fmt: skip
    assert plan.tensors[row.tensor].bytes == 4096 * 2 and row.after == ("norm",)
    assert tasks(plan, "head")[0].after == (row.name,)
    study, before = evaluate(DESKTOP, plan), evaluate(DESKTOP, plain)
    dram = {one.name: one.load for one in study.resources}["dram0"]
    assert dram == weighed.head + 2 * 8192, "the row of the embedding leaves, that of the last layer comes"
    assert occupied(plan, "dram0")["output head"] == weighed.head
    head = weighed.head + weighed.norm
    assert before.floor.cycle_seconds < study.floor.cycle_seconds
    assert study.floor.cycle_seconds - before.floor.cycle_seconds == pytest.approx(
        (weighed.head - 80 * 2**20) / 96e9 - weighed.head / 1.008e12, rel=2e-2)  # less what the CPU's cache may keep
    assert occupied(plain, "hbm0")["output head"] == head
    assert any("by pattern the output head lives in dram0 and runs on cpu0" in note for note in plan.assumptions)
    assert any("1 tensor," in note for note in plan.assumptions)


def test_a_head_that_is_streamed():
    """With `compute: gpu0` it comes to the GPU each step, as layers do."""
    plan = planned(("lm_head", "dram0"), compute="gpu0")
    moved, = (task for block in plan.blocks for task in block.tasks if task.name == "fetch head to hbm0")
    assert plan.tensors[moved.tensor].bytes == weigh(MODEL, "q8_0").head
    assert where(plan)["norm"] == ("gpu0", (("hbm0", 1.0),)), "in the memory that it is in, and with the head"
    assert len(tasks(plan, "norm")) == 0


def test_head_and_norm_together():
    plan = planned(("^output", "dram0"))
    weighed = weigh(MODEL, "q8_0")
    assert where(plan) == {"head": ("cpu0", (("dram0", 1.0),))}
    assert plan.tensors["head"].bytes == weighed.head + weighed.norm and not tasks(plan, "norm")


def test_a_norm_alone_takes_the_row_there_and_back():
    costs = (Cost("sync", "hand-over", GivenTime(50e-6, 50e-6, 50e-6)),)
    plan, plain = planned(("output_norm", "dram0"), costs=costs), planned(costs=costs)
    assert where(plan) == {"head": ("gpu0", (("hbm0", 1.0),)), "norm": ("cpu0", (("dram0", 1.0),))}
    rows = [task.to for task in plan.blocks[-1].tasks if isinstance(task, Transfer)]
    assert rows == ["dram0", "hbm0"]
    times = [schedule(compile_step(DESKTOP, one)).seconds for one in (plan, plain)]
    assert 100e-6 < times[0] - times[1] < 200e-6, "two hand-overs of 50 us, and a row each way"


def test_an_embedding_in_the_gpu_s_memory():
    """No row crosses the link, and its table takes 532 MiB there."""
    plan, plain = planned(("token_embd", "hbm0")), planned()
    weighed = weigh(MODEL, "q8_0")
    assert occupied(plan, "hbm0")["input embedding"] == weighed.embedding
    assert "input embedding" not in occupied(plan, "dram0")
    assert occupied(plain, "dram0")["input embedding"] == weighed.embedding
    link = {one.name: one.load for one in evaluate(DESKTOP, plan).resources}
    assert not link.get("pcie0.hbm0") and not link.get("dram0")
    first = planned(("token_embd", "hbm0"), weights={"hbm0": Portion("layers", 8), "dram0": REST})
    rows = [(plan.tensors and task.to) for task in first.blocks[0].tasks if isinstance(task, Transfer)]
    assert rows == ["dram0"], "the first layers are the CPU's: the row goes to them"


def test_a_tied_head_is_the_embedding():
    one = planned(("token_embd", "hbm0"), model=TIED)
    weighed = weigh(TIED, "q8_0")
    assert occupied(one, "hbm0")["output head"] == weighed.head + weighed.norm
    assert "input embedding" not in {**occupied(one, "hbm0"), **occupied(one, "dram0")}, "held once"
    assert any("1 tensor," in note for note in one.assumptions)
    both = planned(("lm_head", "dram0"), model=TIED)
    assert occupied(both, "dram0")["output head"] == weighed.head and where(both)["head"][0] == "cpu0"
    assert "input embedding" not in occupied(both, "dram0")


def test_the_sums_stay():
    """Wherever head and norm are, all weights are read once a step, and held once."""
    weighed = weigh(MODEL, "q8_0")
    for pattern in ("^output", "output_norm", "lm_head", "token_embd", ".*"):
        plan = planned((pattern, "dram0"))
        total = sum(size for memory in ("hbm0", "dram0") for name, size in occupied(plan, memory).items()
                    if name in ("layer weights", "output head", "final norm", "input embedding"))  # fmt: skip
        assert total == weighed.total
    everything = planned((".*", "dram0"))
    assert any(" tensors, " in note for note in everything.assumptions)


def test_a_prompt_in_chunks_holds_the_head_that_most_of_them_do_not_run():
    asked = Workload("prefill", context=0, prompt=600, chunk=256)
    plan = planned((r"^output\.weight", "dram0"), workload=asked)
    weighed = weigh(MODEL, "q8_0")
    assert occupied(plan, "dram0")["output head"] == weighed.head
    assert occupied(plan, "hbm0")["output head"] == weighed.norm


def test_rows_of_a_prompt_s_layers_are_not_those_of_its_head():
    """Experts on the CPU: 512 rows go there and back in each layer, and one goes to the head."""
    model = catalogue["qwen3-30b-a3b"]
    asked = Workload("prefill", context=0, prompt=512)
    plan = planned(model=model, workload=asked, experts=Experts((("dram0", REST),)))
    back = [(plan.tensors[task.tensor].bytes, block.repeat) for block in plan.blocks for task in block.tasks
            if isinstance(task, Transfer) and task.to == "hbm0" and task.name.startswith("hidden row")]  # fmt: skip
    assert sum(size * repeat for size, repeat in back) == (47 * 512 + 1) * 2048 * 2


def test_what_cannot_be_is_refused(tmp_path):
    with pytest.raises(PlanError, match=r"ssd0 is a drive.*leaves out token_embd"):
        planned(("token_embd", "ssd0"))
    with pytest.raises(PlanError, match="matches no tensor of llama-3.2-1b"):
        planned((r"^output\.weight", "dram0"), model=TIED)
    for text, match in (("lm_heads", "Nearest: lm_head.weight"), ("token_embed", "Nearest: token_embd.weight"),
                        ("ffn_uo", r"Nearest: blk\.0\.ffn_up\.weight"), ("foo", "outside of layers: token_embd")):
        path = tmp_path / "plan.yaml"
        path.write_text("topology: desktop-4090\nmodel: {name: llama-3.1-8b, weights: q8_0}\n"
                        f"placement: {{weights: {{hbm0: rest}}, tensors: {{{text}: dram0}}}}\n")
        with pytest.raises(DocumentError, match=match):
            load_plan(path)


def test_the_first_pattern_counts_outside_of_layers_too(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text("topology: desktop-4090\nmodel: {name: llama-3.1-8b, weights: q8_0}\n"
                    "placement: {weights: {hbm0: rest}, tensors: {lm_head: hbm0, ^output: dram0}}\n")
    plan, _ = load_plan(path)
    assert where(plan)["head"][0] == "gpu0" and where(plan)["norm"][0] == "cpu0"
    path.write_text(path.read_text().replace("lm_head: hbm0, ^output: dram0", "^output: dram0, lm_head: hbm0"))
    with pytest.raises(DocumentError, match='lm_head: all that it matches is matched before, as by "\\^output"'):
        load_plan(path)


@pytest.mark.parametrize(("key", "said"), [
    ("experts: {home: dram0}", r"write compute: gpu0 with experts: \{home: dram0, compute: cpu0\}"),
    ("tensors: {exps: dram0}", "a pattern places what matches in the memory of the processor that is to run it"),
])
def test_a_split_says_what_to_write_instead(tmp_path, key, said):
    path = tmp_path / "plan.yaml"
    path.write_text("topology: desktop-4090\nmodel: {name: qwen3-30b-a3b, weights: q8_0}\n"
                    f"placement: {{weights: {{dram0: rest}}, split: {{gpu0: 20%, cpu0: rest}}, {key}}}\n")
    with pytest.raises(DocumentError, match=said):
        load_plan(path)
