"""What fits: the most layers, sequences and positions, against trying every number."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from offload.answer import refusal_to_json, to_json
from offload.capacity import NO_LIMIT, again, largest, layers_that_fit, missing, room
from offload.compiler import compile_step
from offload.designs import Placement, Portion, Workload, plan_model
from offload.errors import PlanError
from offload.models import kv_bytes, weigh
from offload.plan import Overlap
from offload.readers.huggingface import model_of
from offload.report import write_refusal, write_text
from offload.study import evaluate
from offload.words import plan_from_words
from tests.boxes import GB, MB, box, plan_of

SHAPE = {
    "model_type": "llama", "num_hidden_layers": 4, "hidden_size": 1024, "intermediate_size": 2048,
    "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 1000, "tie_word_embeddings": False,
}  # fmt: skip
MODEL = model_of(SHAPE, "small")
MIXED = model_of(SHAPE | {"num_hidden_layers": 9}, "mixed")  # in q4_k_m its layers differ
LAYER = weigh(MODEL, "bf16").layers[0]
HEAD = weigh(MODEL, "bf16").head + weigh(MODEL, "bf16").norm
EMBEDDING = weigh(MODEL, "bf16").embedding
POSITION = kv_bytes(MODEL, "f16")
REST = Portion("rest")


def layers(count: int) -> Portion:
    return Portion("layers", count)


def step_of(server, weights, compute="local", workload=None, kv="with layer", reserve=0, model=MODEL, format_="bf16",
            overlap=None):  # fmt: skip
    placement = Placement(tuple(weights.items()), compute, kv, reserve)
    asked = workload or Workload("decode", 1, 100)
    return compile_step(server, plan_model(model, server, asked, placement, weights=format_, overlap=overlap))


def rooms(step) -> dict[tuple[str, str], int | None]:
    return {(one.what, one.memory): one.most for one in room(step, layers_that_fit(step))}


# --- the search ---


@settings(max_examples=300, deadline=None)
@given(answer=st.integers(1, 10**6), guess=st.one_of(st.integers(-5, 40), st.integers(0, 10**13)))
def test_the_largest_from_any_guess(answer, guess):
    asked = []

    def fits(number):
        asked.append(number)
        return number <= answer

    assert largest(fits, guess) == answer
    assert min(asked) >= 1
    away = abs(guess - answer) + 2
    assert len(asked) <= 4 * away.bit_length() + 4, "doubling strides, then halves"


@settings(max_examples=200, deadline=None)
@given(answer=st.integers(1, 60), guess=st.integers(0, 90))
def test_the_largest_is_that_of_a_linear_scan(answer, guess):
    scan = max(number for number in range(1, 100) if number <= answer)
    assert largest(lambda number: number <= answer, guess) == scan
    asked = []
    largest(lambda number: asked.append(number) or number <= answer, answer)
    assert len(asked) <= 2, "a right guess and the one after it"


# --- batch, context and prompt ---


def test_room_by_hand():
    """100 MB hold four layers, the head, and 22,436,000 bytes of cache."""
    step = step_of(box(1, capacity=100 * MB), {"hbm0": REST})
    free = 100 * MB - 4 * LAYER - HEAD
    assert free == 22_436_096
    assert rooms(step) == {
        ("batch", "hbm0"): free // (4 * 100 * POSITION), ("context", "hbm0"): free // (4 * POSITION),
        ("layers", "hbm0"): 4,
    }  # fmt: skip
    assert [one.now for one in room(step, layers_that_fit(step))] == [1, 100, 4]
    assert all(one.fits for one in room(step, layers_that_fit(step)))


def test_room_of_a_prompt_and_of_a_request():
    server = box(1, capacity=100 * MB)
    free = 22_436_096 // (4 * POSITION)
    found = rooms(step_of(server, {"hbm0": REST}, workload=Workload("prefill", 2, 30, prompt=10)))
    assert found["prompt", "hbm0"] == free // 2 - 30 and found["batch", "hbm0"] == free // 40
    found = rooms(step_of(server, {"hbm0": REST}, workload=Workload("prefill", 2, 0, prompt=10)))
    assert found["prompt", "hbm0"] == free // 2 and found["batch", "hbm0"] == free // 10
    found = rooms(step_of(server, {"hbm0": REST}, workload=Workload("generate", 2, prompt=10, generate=21)))
    assert found["prompt", "hbm0"] == free // 2 - 20 and found["batch", "hbm0"] == free // 30
    assert ("context", "hbm0") not in found


def test_what_the_plan_has_may_be_too_much():
    step = step_of(box(1, capacity=100 * MB), {"hbm0": REST}, workload=Workload("decode", 40, 100))
    by_name = {one.what: one for one in room(step, layers_that_fit(step))}
    assert missing(step) == {"hbm0": 4 * LAYER + HEAD + 40 * 4 * 100 * POSITION - 100 * MB}
    assert (by_name["batch"].most, by_name["batch"].now, by_name["batch"].fits) == (27, 40, False)
    assert by_name["context"].most == 22_436_096 // (40 * 4 * POSITION) == 68 and not by_name["context"].fits


def test_not_even_one():
    found = rooms(step_of(box(1, capacity=4 * LAYER), {"hbm0": REST}))
    assert found["batch", "hbm0"] is None and found["context", "hbm0"] is None
    found = rooms(step_of(box(1, capacity=MB), {"hbm0": REST}))
    assert ("layers", "hbm0") not in found, "the head alone is too large"


def test_the_memory_that_is_full_first_is_named():
    step = step_of(box(1, capacity=GB, host=100 * MB), {"hbm0": layers(2), "dram0": REST})
    free = 100 * MB - 2 * LAYER - EMBEDDING
    assert rooms(step)["batch", "dram0"] == free // (2 * 100 * POSITION)
    step = step_of(box(2, 2, capacity=100 * MB, host=GB), {"hbm0..1": REST})
    assert ("batch", "hbm0..1") in rooms(step), "both at once"


@pytest.mark.parametrize("known", [None, "dram", "hbm"])
def test_a_capacity_that_is_not_known_limits_nothing(known):
    server = box(1, capacity=100 * MB if known == "hbm" else None, host=100 * MB if known == "dram" else None)
    found = rooms(step_of(server, {"hbm0": layers(2), "dram0": REST}))
    names = {memory for what, memory in found if what != "layers"}
    assert names == ({f"{known}0"} if known else set())
    assert found["layers", "hbm0"] == 4 or known == "hbm", "all of them"


def test_a_limit_without_end_is_none():
    free = 10**15 - 4 * LAYER - HEAD
    assert rooms(step_of(box(1, capacity=10**15), {"hbm0": REST}))["context", "hbm0"] == free // (4 * POSITION)
    assert free // POSITION < NO_LIMIT < 10**18 // (400 * POSITION)
    assert set(rooms(step_of(box(1, capacity=10**18), {"hbm0": REST}))) == {("layers", "hbm0")}


def test_a_plan_by_hand_gives_nothing(tmp_path):
    text = "tensors: {w: {bytes: 1 MB, home: dram0}}\ntasks: {fetch: {move: w, to: hbm0}}\n"
    step = compile_step(box(1), plan_of(tmp_path, text, box(1)))
    assert layers_that_fit(step) == [] and room(step, []) == ()
    assert evaluate(step.topology, step.plan).room == ()


# --- layers ---


def test_layers_by_hand():
    """60 MB: three layers of 18.9 MB with a cache of 0.2 MB each, and the head's 2 MB."""
    assert HEAD + 3 * (LAYER + 100 * POSITION) < 60 * MB < 4 * LAYER
    server = box(1, capacity=60 * MB)
    step = step_of(server, {"hbm0": layers(1), "dram0": REST})
    (one,) = [one for one in layers_that_fit(step) if one.memory == "hbm0"]
    assert (one.most, one.now) == (3, 1)
    assert dict(one.placement.weights) == {"hbm0": layers(one.most), "dram0": REST}
    assert missing(again(step, placement=one.placement)) == {}


def test_what_streams_may_be_kept_instead():
    """Everything comes from host memory to gpu0: its own memory could hold some, beside buffers and cache."""
    server = box(1, capacity=70 * MB)
    step = step_of(server, {"dram0": REST}, "gpu0")
    (one,) = layers_that_fit(step)
    assert one.memory == "hbm0" and one.now == 0
    assert one.most == brute(step, "hbm0", {"hbm0": None, "dram0": REST}, "gpu0") == 1
    assert 3 * LAYER + HEAD + 400 * POSITION < 70 * MB < 4 * LAYER, "one and two slots; two, and none has room"


def brute(step, memory, weights, compute="local", **more) -> int | None:
    """The most layers of those from 0 on for which the memory lacks nothing, one after another."""
    most = None
    for count in range(step.plan.origin[0].layers + 1):
        placed = {name: layers(count) if portion is None else portion for name, portion in weights.items()}
        lacks = missing(step_of(step.topology, placed, compute, **more))
        if any(name in lacks for name in ([memory] if ".." not in memory else lacks)):
            break
        most = count
    return most


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    now=st.integers(0, 9), compute=st.sampled_from(["local", "gpu0"]), capacity=st.integers(5, 120),
    reserve=st.sampled_from([0, 7 * MB]), kv=st.sampled_from(["with layer", "dram0"]), batch=st.integers(1, 12),
    buffers=st.sampled_from([1, 2, 0]), host=st.integers(5, 120),
)  # fmt: skip
def test_layers_are_those_of_a_linear_scan(now, compute, capacity, reserve, kv, batch, buffers, host):
    server = box(1, capacity=capacity * MB, host=host * MB)
    more = {"workload": Workload("decode", batch, 200), "kv": kv, "reserve": reserve, "model": MIXED,
            "format_": "q4_k_m", "overlap": Overlap("buffers", buffers)}  # fmt: skip
    step = step_of(server, {"hbm0": layers(now), "dram0": REST}, compute, **more)
    found = {one.memory: one for one in layers_that_fit(step)}
    for memory, weights, here in (("hbm0", {"hbm0": None, "dram0": REST}, now),
                                  ("dram0", {"hbm0": REST, "dram0": None}, 9 - now)):  # fmt: skip
        most = brute(step, memory, weights, compute, **more)
        assert (memory in found) == (most is not None)
        if most is not None:
            assert (found[memory].most, found[memory].now) == (most, here)


@settings(max_examples=30, deadline=None)
@given(
    near=st.integers(0, 4), capacity=st.integers(30, 120), host=st.integers(30, 120), batch=st.integers(1, 30),
    context=st.integers(1, 300), count=st.sampled_from([1, 2]), compute=st.sampled_from(["local", "gpu"]),
    phase=st.sampled_from(["decode", "prefill", "generate"]),
)  # fmt: skip
def test_rooms_are_the_last_that_fit(near, capacity, host, batch, context, count, compute, phase):
    """What is named fits, one more does not, and where it is None not even one does."""
    server = box(count, capacity=capacity * MB, host=host * MB)
    hbm = "hbm0" if count == 1 else "hbm0..1"
    asked = {"decode": Workload("decode", batch, context), "prefill": Workload("prefill", batch, 9, prompt=context),
             "generate": Workload("generate", batch, prompt=context, generate=7)}[phase]  # fmt: skip
    where = "local" if compute == "local" else hbm.replace("hbm", "gpu")
    step = step_of(server, {hbm: layers(near), "dram0": REST}, where, workload=asked)
    found = [one for one in room(step, layers_that_fit(step)) if one.what != "layers"]
    assert [one.what for one in found] == ["batch", "context" if phase == "decode" else "prompt"]
    for one in found:
        last, beyond = (missing(again(step, workload=replace(asked, **{one.what: number})))
                        for number in (one.most or 1, (one.most or 0) + 1))  # fmt: skip
        assert bool(last) == (one.most is None) and beyond
        worst = max(beyond.values())
        assert one.memory in ("dram0", hbm) and worst == beyond[one.memory.replace("0..1", "0")]
        assert one.fits == (not missing(step))


def test_layers_of_ranks():
    """Two GPUs of 30 MB hold 60 MB less two halves of the head and of what the ranks add."""
    server = box(2, capacity=30 * MB, nvlink=100e9)
    step = step_of(server, {"hbm0..1": layers(1), "dram0": REST}, "gpu0..1")
    (one,) = [one for one in layers_that_fit(step) if one.memory == "hbm0..1"]
    assert one.most == brute(step, "hbm0..1", {"hbm0..1": None, "dram0": REST}, "gpu0..1") and one.most > 0
    streamed = step_of(server, {"dram0": REST}, "gpu0..1")
    assert [(one.memory, one.now) for one in layers_that_fit(streamed)] == [("hbm0..1", 0)]


def test_the_rest_may_spill_to_the_host():
    """Where all of a model is to lie in the GPU's memory, the layers beyond it would go to host memory."""
    step = step_of(box(1, capacity=60 * MB), {"hbm0": REST})
    (one,) = layers_that_fit(step)
    assert (one.memory, one.now) == ("hbm0", 4) and one.most < 4
    assert dict(one.placement.weights) == {"hbm0": layers(one.most), "dram0": REST}
    assert missing(again(step, placement=one.placement)) == {}


def test_words_take_as_many_as_fit():
    plan, server = plan_from_words("llama-3.1-70b:q4_k_m", "desktop-4090")
    step = compile_step(server, plan)
    (one,) = [one for one in layers_that_fit(step) if one.memory == "hbm0"]
    assert one.now == one.most == 44


# --- what is shown ---


def shown(write, study) -> str:
    out = io.StringIO()
    write(study, Console(file=out, width=200))
    return out.getvalue()


def test_the_report_names_the_most():
    server = box(1, capacity=60 * MB)
    study = evaluate(server, step_of(server, {"hbm0": layers(1), "dram0": REST}).plan)
    batch, context, held, rest = (one.most for one in study.room)
    assert (f"The most that fits, all else as it is: batch {batch:,} (now 1; then hbm0 is full); context {context:,} "
            f"(now 100; then hbm0 is full); {held} layers in hbm0 (now 1); {rest} layers in dram0 (now 3)"
            ) in shown(write_text, study)


def test_a_refusal_names_the_most():
    server = box(1, capacity=100 * MB)
    study = evaluate(server, step_of(server, {"hbm0": REST}, workload=Workload("decode", 40, 100)).plan)
    text = shown(write_refusal, study)
    assert "batch 27 (now 40; then hbm0 is full); context 68 (now 100; then hbm0 is full)" in text
    assert "DOES NOT FIT: hbm0 lacks" in text and "ms" not in text.split("Assumptions")[0]
    data = json.loads(json.dumps(refusal_to_json(study)))
    assert data["room"][0] == {"what": "batch", "memory": "hbm0", "most": 27, "now": 40}
    assert data["fits"] is False and "floor" not in data


def test_a_refusal_says_where_not_even_one_fits():
    server = box(2, capacity=2 * LAYER, nvlink=100e9)
    study = evaluate(server, step_of(server, {"hbm0..1": REST}).plan)
    text = shown(write_refusal, study)
    assert "no batch, not even 1 (hbm0..1 is full); no context, not even 1 (hbm0..1 is full)" in text
    assert "hbm0..1 lacks" in text and " each." in text
    assert refusal_to_json(study)["room"][0]["most"] is None


def test_room_as_data():
    server = box(1, capacity=100 * MB)
    study = evaluate(server, step_of(server, {"hbm0": REST}).plan)
    assert [list(one.values()) for one in to_json(study)["room"]] == [
        ["batch", "hbm0", 27, 1], ["context", "hbm0", 22_436_096 // (4 * POSITION), 100], ["layers", "hbm0", 4, 4],
    ]  # fmt: skip


def test_a_context_that_nothing_stops_ends_the_search(capsys):
    """All layers of Mistral-7B have a window: once it is full a longer context takes no more memory."""
    from offload import cli

    assert cli.main(["step", "mistral-7b-v0.1:q4_k_m", "--on", "desktop-4090", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["what"] for one in told["room"]] == ["batch", "layers", "layers"]


def test_where_no_plan_can_be_made_of_more_the_search_ends(tmp_path):
    """A mixture's file in the page cache, beside KV that grows: once it does not fit, which pages stay is not known."""
    shape = SHAPE | {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
    (tmp_path / "config.json").write_text(json.dumps(shape))
    server = box(1, host=2 * GB)
    plan = plan_of(tmp_path, """\
model: {config: config.json, weights: bf16}
workload: {batch: 4, context: 60}
placement: {weights: {hbm0: 3 layers, ssd0: rest}, compute: local, page_cache: dram0, kv: dram0}
""", server)
    step = compile_step(server, plan)
    workload = plan.origin[1]
    found = {one.what: one for one in evaluate(server, plan).room}
    for what in ("batch", "context"):
        assert found[what].memory == "" and found[what].most > found[what].now and found[what].fits
        again(step, replace(workload, **{what: found[what].most}))
        with pytest.raises(PlanError, match="of a mixture's file that does not fit"):
            again(step, replace(workload, **{what: found[what].most + 1}))
    console = Console(file=io.StringIO(), width=100)
    write_text(evaluate(server, plan), console)
    text = " ".join(console.file.getvalue().split())
    assert f"context {found['context'].most:,} (now 60; then no plan can be made)" in text


def test_a_prompt_that_is_no_shorter_than_what_is_found_of_it_has_a_longest(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(SHAPE))
    server = box(1)
    plan = plan_of(tmp_path, """\
model: {config: config.json, weights: bf16}
workload: {phase: prefill, prompt: 100, cached: 80}
placement: {weights: {hbm0: rest}, cache: dram0}
""", server)
    found = {one.what: one for one in evaluate(server, plan).room}
    assert found["prompt"].memory == "hbm0" and found["prompt"].most > 100


def test_tiers_that_only_longer_prompts_reach_are_counted(tmp_path):
    """Half of a prompt of nine positions takes two tiers; of the shortest it takes none."""
    (tmp_path / "config.json").write_text(json.dumps(SHAPE))
    server = box(1)
    plan = plan_of(tmp_path, """\
model: {config: config.json, weights: bf16}
workload: {phase: prefill, batch: 4, prompt: 9, cached: 50%}
placement: {weights: {hbm0: rest}, cache: {dram0: 10 KB, ssd0: rest}}
""", server)
    found = {one.what: one for one in evaluate(server, plan).room}
    assert found["prompt"].memory == "hbm0" and found["batch"].memory == "hbm0"
