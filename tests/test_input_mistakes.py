"""Mistakes in plan files of the kinds that once slipped through: no traceback, no second mistake for one, no key that
says nothing, no advice that is refused next.
"""

from __future__ import annotations

import pytest

from offload.cli import main
from offload.compiler import compile_step
from offload.designs import Placement, Portion, Workload, plan_model
from offload.documents import load_plan, parse_document
from offload.documents.topology_file import load_topology
from offload.errors import DocumentError, did_you_mean
from offload.models.stated import Blocks, stated_model
from offload.plan import Transfer
from offload.schedules import schedule

LLAMA = "topology: desktop-4090\nmodel: {name: llama-3.1-8b, weights: q8_0}\n"
SMALL = "topology: desktop-4090\nmodel: {name: llama-3.2-1b, weights: bf16}\n"
TRAIN = SMALL + "workload: {phase: train}\n"
STATE = "training: {parameters: hbm0, optimizer: dram0}\n"
SOCKETS = "topology: dgx-h100\nmodel: {name: qwen3-30b-a3b, weights: bf16}\n"
BLOCKS = "topology: desktop-4090\nmodel: {blocks: {count: 40, bytes: 700 MB, flops: 1.2 TFLOP}, row: 1 MB}\n"
DENOISE = "workload: {phase: denoise}\n"
GUESSED = "speculation: {draft: 4, accept: 80%, model: {name: MODEL}, home: hbm0}\n"


def plan(folder, text, **more):
    path = folder / "plan.yaml"
    path.write_text(text, encoding="utf-8")
    return load_plan(path, **more)[0]


def mistakes(folder, text):
    with pytest.raises(DocumentError) as raised:
        plan(folder, text)
    return [(one.line, one.column, one.key, one.message) for one in raised.value.mistakes]


def told(folder, text):
    (one,) = mistakes(folder, text)
    return one


def noted(made):
    return " | ".join(made.assumptions)


# --- training ---


@pytest.mark.parametrize(("workload", "keys"), [
    ("{phase: training}", ["workload.phase"]),
    ("{phase: prefill, prompt: abc}", ["workload.phase", "workload.prompt"]),
    ("{phase: train, batch: x}", ["workload.batch"]),
    ("{phase: train, nonsense: 1}", ["workload.nonsense"]),
    ("{phase: [train]}", ["workload.phase"]), ("{phase: }", ["workload.phase"]), ("{phase: 3}", ["workload.phase"]),
    ("abc", ["workload"]), ("[]", ["workload"]), ("{}", ["workload"]), ("{batch: 4}", ["workload"]),
    ("{phase: denoise}", ["workload.phase"]),
])  # fmt: skip
def test_a_wrong_workload_of_a_training_plan_is_told_once(tmp_path, workload, keys):
    assert [key for _, _, key, _ in mistakes(tmp_path, SMALL + f"workload: {workload}\n" + STATE)] == keys


def test_a_phase_that_is_set_wrong(tmp_path, capsys):
    (tmp_path / "plan.yaml").write_text(TRAIN + STATE)
    for words in (["step"], ["need", "--target", "1 s"]):
        assert main([words[0], str(tmp_path / "plan.yaml"), *words[1:], "--set", "workload.phase=trian"]) == 2
        error = capsys.readouterr().err
        assert 'Did you mean "train"?' in error and "1 mistake" in error
    (tmp_path / "plan.yaml").write_text(SMALL + "workload: {phase: trian}\n" + STATE)
    assert main(["check", str(tmp_path / "plan.yaml")]) == 2
    assert 'Did you mean "train"?' in "".join(capsys.readouterr())


@pytest.mark.parametrize(("text", "key"), [
    (TRAIN + STATE + "speculation: {draft: 4, accept: 80%}\n", "speculation"),
    (TRAIN + STATE + GUESSED.replace("MODEL", "no-such-model"), "speculation"),
    (TRAIN.replace("train}", "train, chunk: 512}") + STATE, "workload.chunk"),
    (TRAIN.replace("train}", "train, cached: 50%}") + STATE, "workload.cached"),
    (TRAIN + STATE.replace("}", ", stage: 3}"), "training.stage"),
    (TRAIN + STATE.replace("}", ", stage: 2}"), "training.stage"),
    (TRAIN + STATE.replace("}", ", reuse: true}"), "training.reuse"),
    (TRAIN + STATE.replace("}", ", reuse: false}"), "training.reuse"),
])  # fmt: skip
def test_keys_that_mean_nothing_in_a_training_plan(tmp_path, text, key):
    assert told(tmp_path, text)[2] == key


def test_keys_of_training_with_a_meaning_are_taken(tmp_path):
    for more in (", parameters: dram0, reuse: true", ", parameters: dram0, reuse: false"):
        assert "training.reuse" not in noted(plan(tmp_path, TRAIN + "training: {optimizer: dram0" + more + "}\n"))
    eight = TRAIN.replace("desktop-4090", "dgx-h100").replace("train}", "train, batch: 8}")
    shared = "training: {compute: gpu0..7, parameters: hbm0..7, optimizer: dram0..1, stage: 3}\n"
    assert "stage" not in noted(plan(tmp_path, eight + shared))


def test_buffers_that_no_training_step_takes(tmp_path):
    all_there = "training: {parameters: hbm0, optimizer: hbm0, gradients: hbm0}\n"
    note = "overlap: 4 buffers changes nothing here"
    assert note in noted(plan(tmp_path, TRAIN + all_there + "overlap: {buffers: 4}\n"))
    streamed = "training: {parameters: dram0, optimizer: dram0}\n"
    assert note not in noted(plan(tmp_path, TRAIN + streamed + "overlap: {buffers: 4}\n"))


# --- keys beside others ---


@pytest.mark.parametrize("parallel", ["{by: tensor}", "{by: data}", "{by: expert}"])
def test_experts_of_a_dense_model_whatever_shares_it(tmp_path, parallel):
    text = ("topology: dgx-h100\nmodel: {name: opt-175b, weights: bf16}\nworkload: {batch: 8}\nplacement:\n"
            f"  weights: {{dram0: rest}}\n  compute: gpu0..7\n  parallel: {parallel}\n"
            "  experts: {routing: {zipf: 1}}\n")  # fmt: skip
    line, _, key, message = told(tmp_path, text)
    assert (line, key) == (8, "placement.experts") and "opt-175b has no experts" in message


def test_experts_of_a_mixture_that_replicas_share(tmp_path):
    text = SOCKETS + "workload: {batch: 8}\nplacement: {weights: {dram0: rest}, compute: gpu0..7, parallel: data, "
    _, _, key, message = told(tmp_path, text + "experts: {home: dram0}}\n")
    assert key == "placement.experts" and "experts live with their layers" in message
    plan(tmp_path, text + "experts: {routing: {zipf: 1}}}\n")


def test_a_numa_policy_that_nothing_follows_beside_one_that_is_followed(tmp_path):
    apart = "experts: {home: dram0..1, compute: cpu0..1, numa: duplicate}"
    on_gpu = plan(tmp_path, SOCKETS + f"placement: {{weights: {{hbm0: rest}}, numa: interleave, {apart}}}\n")
    assert "placement.numa: interleave changes nothing here" in noted(on_gpu)
    assert "experts.numa" not in noted(on_gpu)
    own = plan(tmp_path, SOCKETS + f"placement: {{weights: {{hbm0: rest}}, {apart}}}\n")
    assert "numa" not in noted(own) and own.blocks == on_gpu.blocks and dict(own.tensors) == dict(on_gpu.tensors)


def test_a_numa_policy_of_experts_counts_where_they_lie_with_the_rest(tmp_path):
    """All on two sockets: duplicated experts are there twice, and what else is in a layer once."""
    text = SOCKETS + "placement: {weights: {dram0..1: rest}, compute: cpu0..1, numa: interleave%s}\n"

    def stored(more):
        made = plan(tmp_path, text % more)
        read = [(block.repeat, made.tensors[name]) for block in made.blocks for task in block.tasks
                for name in getattr(task, "reads", ())]  # fmt: skip
        return sum(repeat * one.stored for repeat, one in read if one.what in ("layer weights", "experts"))

    once, twice = stored(""), stored(", experts: {home: dram0..1, numa: duplicate}")
    experts = 48 * 128 * 3 * 2048 * 768 * 2  # layers x experts x matrices x hidden x width, 2 bytes each
    assert twice - once == experts


@pytest.mark.parametrize("key", ["kv: dram0", "experts: {home: dram0}", "tensors: {ffn: dram0}", "attention: cpu0",
                                 "kv_block: 16 tokens", "cache: dram0", "hand_over: dram0"])  # fmt: skip
def test_blocks_that_are_stated_have_no_such_thing(tmp_path, key):
    _, _, at, message = told(tmp_path, BLOCKS + DENOISE + f"placement: {{weights: {{hbm0: rest}}, {key}}}\n")
    assert at == f"placement.{key.partition(':')[0]}" and message.startswith("blocks ") and message.endswith("Drop it.")


# --- rows of stated blocks ---


def test_stated_blocks_have_no_embedding_whose_row_would_come(tmp_path):
    for weights, rows in (("{hbm0: rest}", 0), ("{hbm0: 10 layers, dram0: rest}", 1), ("{dram0: rest}", 0)):
        made = plan(tmp_path, BLOCKS + DENOISE + f"placement: {{weights: {weights}}}\n")
        whats = [made.tensors[task.tensor].what for block in made.blocks for task in block.tasks
                 if isinstance(task, Transfer)]  # fmt: skip
        assert whats == ["hidden row"] * rows
    server, model = load_topology("desktop-4090"), stated_model("two", [Blocks(2, 10**9)], row=1000)
    made = plan_model(model, server, Workload(context=1), Placement((("dram0", Portion("rest")),), "gpu0"),
                      weights=model.stored.format)  # fmt: skip
    assert {made.tensors[task.tensor].what for block in made.blocks for task in block.tasks
            if isinstance(task, Transfer)} == {"layer weights"}  # fmt: skip


# --- notes ---


@pytest.mark.parametrize(("weights", "compute", "streamed", "idle"), [
    ("{hbm0: 10 layers, dram0: rest}", "gpu0", True, False),
    ("{dram0: rest}", "gpu0", False, True), ("{hbm0: rest}", "gpu0", False, True),
    ("{hbm0: 10 layers, dram0: rest}", "local", False, True),
])  # fmt: skip
def test_a_layout_is_told_or_said_to_be_idle_and_never_both(tmp_path, weights, compute, streamed, idle):
    text = LLAMA + f"placement: {{weights: {weights}, compute: {compute}, layout: streamed_first}}\n"
    notes = noted(plan(tmp_path, text))
    assert ("streamed layers come before the resident ones" in notes) == streamed
    assert ("layout: streamed_first changes nothing" in notes) == idle


def test_the_order_of_two_streamed_homes_is_a_layout(tmp_path):
    text = LLAMA + "placement: {weights: {dram0: 10 layers, ssd0: rest}, compute: gpu0, layout: LAYOUT}\n"
    first = plan(tmp_path, text.replace("LAYOUT", "interleaved"))
    other = plan(tmp_path, text.replace("LAYOUT", "interleaved_streamed_first"))
    assert first.blocks != other.blocks and "changes nothing" not in noted(other)


@pytest.mark.parametrize(("draft", "differs"), [("gpt-oss-20b", True), ("llama-3.2-1b", False)])
def test_a_draft_model_with_other_tokens(tmp_path, draft, differs):
    text = LLAMA + "placement: {weights: {hbm0: 10 layers, dram0: rest}}\n" + GUESSED.replace("MODEL", draft)
    assert (f"{draft} has a vocabulary of" in noted(plan(tmp_path, text))) == differs


# --- one mistake, told once, at its place ---


@pytest.mark.parametrize(("weights", "place", "words"), [
    ("{hbm0: 10 layers, hbm0: rest}", (3, 40), "given twice"),
    ("{hbm0\u00a0: rest}", (3, 23), "no-break space"), ("{1: rest}", (3, 23), "a key is a text"),
    ("{[hbm0]: rest}", (3, 23), "not a list or a map"), ("{hbm0: 10 layers, 0x1: rest}", (3, 40), "YAML reads 0x1"),
    ("{hbm0:rest}", (3, 23), "a space is missing"),
    ("{hbm0: 10 layers, hbm0..0: rest}", (3, 40), 'the same as "hbm0"'),
    ("{hbm0 + dram0: 10 layers, dram0 + hbm0: rest}", (3, 48), 'the same as "hbm0 + dram0"'),
])  # fmt: skip
def test_entries_of_a_map_of_portions(tmp_path, weights, place, words):
    line, column, _, message = told(tmp_path, LLAMA + f"placement: {{weights: {weights}, compute: gpu0}}\n")
    assert (line, column) == place and words in message


@pytest.mark.parametrize(("key", "twin"), [
    ("kv", "{hbm0: 50%, hbm0..0: rest}"), ("cache", "{dram0: 5 GB, dram0..0: rest}"),
])  # fmt: skip
def test_one_memory_by_two_names_in_other_maps(tmp_path, key, twin):
    more = "workload: {phase: prefill, prompt: 100, cached: 50%}\n" if key == "cache" else ""
    found = mistakes(tmp_path, LLAMA + more + f"placement: {{weights: {{hbm0: rest}}, {key}: {twin}}}\n")
    assert len(found) == 1 and "is the same as" in found[0][3]


def test_what_is_left_out_hides_nothing_for_good(tmp_path):
    """A value that is set mends the entry, and then what was hidden by it is told."""
    document = parse_document("placement: {weights: {hbm0: 3 layers, hbm0: rest}}\n", "plan")
    document.mistake(("placement", "weights"), "hidden")
    assert [one.key for one in document.mistakes] == ["placement.weights.hbm0"]
    document.set(("placement", "weights", "hbm0"), "5 layers", "--set")
    document.mistake(("placement", "weights"), "told")
    assert [one.message for one in document.mistakes] == ["told (With --set.)"]
    top = parse_document("title: a\ntitle: b\n", "plan")  # at the top nothing is missing for a key that comes twice
    top.mistake((), "also told")
    assert len(top.mistakes) == 2


def test_parts_of_a_home_where_two_processors_work(tmp_path):
    line, column, _, message = told(tmp_path, LLAMA + "placement: {weights: {50% hbm0 + 50% dram0: rest}}\n")
    assert (line, column) == (3, 23) and "write `compute: gpu0`" in message


# --- advice that can be followed ---


@pytest.mark.parametrize(("text", "key", "most"), [
    ("workload: {batch: 1e30}\n", "workload.batch", "at most 1000000000000"),
    ("workload: {in_flight: 1e9}\n", "workload.in_flight", "at most 1000000"),
    ("workload: {batch: -1e3}\n", "workload.batch", "at least 1"),
    ("workload: {context: '1e30'}\n", "workload.context", "at most 1000000000000"),
    ("workload: {phase: denoise, steps: 1e9}\n", "workload.steps", "at most 1000000"),
])  # fmt: skip
def test_numbers_out_of_bounds_are_told_so_however_they_are_written(tmp_path, text, key, most):
    found = mistakes(tmp_path, LLAMA + text + "placement: {weights: {hbm0: rest}}\n")
    assert [(one[2], most in one[3], "Write" in one[3]) for one in found] == [(key, True, False)]


def test_a_number_within_bounds_is_written_out(tmp_path):
    message = told(tmp_path, LLAMA + "workload: {batch: 1e3}\nplacement: {weights: {hbm0: rest}}\n")[3]
    assert message.endswith("Write 1000")


def test_names_that_would_be_refused_next_are_not_proposed(tmp_path):
    (tmp_path / "server.yaml").write_text("""\
switches: {s0: {kind: socket}}
memories:
  hbm0: {kind: hbm, capacity: 24 GB, rate: 1 TB/s}
  dram0: {kind: dram, capacity: 64 GB, rate: 80 GB/s, at: s0}
processors:
  gpu0: {kind: gpu, memory: hbm0, flops: {bf16: 100 TFLOP/s}}
links: {pcie0: {between: [s0, hbm0], kind: pcie, rate: 25 GB/s}}
""")
    text = LLAMA.replace("desktop-4090", "./server.yaml")
    message = told(tmp_path, text + "placement: {weights: {hbm0: rest}, kv: dram0, attention: cpu0}\n")[3]
    assert "Did you mean" not in message and message.endswith("Drop it.")
    message = told(tmp_path, LLAMA + "placement: {weights: {dram0 + ssd0: rest}}\n")[3]
    assert "cxl0" not in message and '"75% dram0 + 25% ssd0"' in message
    made = plan(tmp_path, LLAMA + "placement: {weights: {75% dram0 + 25% ssd0: rest}}\n")
    assert "75.0% in dram0" in noted(made)


@pytest.mark.parametrize(("given", "allowed", "meant"), [
    ("switch", ["socket", "pcie_switch", "nvswitch", "nic"], ' Did you mean "nvswitch" or "pcie_switch"?'),
    ("nvswich", ["socket", "pcie_switch", "nvswitch"], ' Did you mean "nvswitch"?'),
    ("rat", ["rate", "rate.sustained"], ' Did you mean "rate"?'),
    ("zzz", ["rate"], ""),
])  # fmt: skip
def test_several_names_that_are_as_likely(given, allowed, meant):
    assert did_you_mean(given, allowed) == f"Allowed: {', '.join(sorted(allowed))}.{meant}"


@pytest.mark.parametrize(("file", "options", "says", "never"), [
    ("by-hand", ["--batch", "4"], "is a plan by hand, which has nothing of it to change", "--set"),
    ("by-hand", ["--batch", "4", "--on", "gh200"], "For --on write -t SERVER", "--set"),
    ("train-8b-zero-infinity", ["--prompt", "5"], "is a plan of training, which has nothing of it", "--set"),
    ("train-8b-zero-infinity", ["--compute", "gpu0"], "--set training.compute=...", "placement"),
    ("kv-on-the-host", ["--batch", "4"], "--set workload.batch=...", "by hand"),
])  # fmt: skip
def test_options_beside_a_plan_file(capsys, file, options, says, never):
    assert main(["step", f"examples/{file}.yaml", *options]) == 2
    error = capsys.readouterr().err
    assert says in error and never not in error


# --- plans that are sound, and once were none ---


@pytest.mark.parametrize("optimizer", ["ssd0", "unified0"])
def test_a_delayed_update_in_the_one_memory_of_gpu_and_cpu(tmp_path, optimizer):
    """Nothing brings new parameters: the CPU writes a second set of them beside the one that the GPU reads."""
    state = f"training: {{parameters: unified0, optimizer: {optimizer}, optimizer_on: cpu0, compute: gpu0, delayed: "
    found = {}
    for delayed in ("true", "false"):
        made = plan(tmp_path, TRAIN.replace("desktop-4090", "dgx-spark") + state + delayed + "}\n")
        step = compile_step(load_topology("dgx-spark"), made)
        held = step.occupied["unified0"]
        found[delayed] = schedule(step).seconds, held["parameters"], held["gradients"]
        assert ("are a second set in unified0" in noted(made)) == (delayed == "true")
    assert found["true"][1:] == tuple(2 * one for one in found["false"][1:])
    assert found["true"][0] <= found["false"][0] * (1 + 1e-12)


# --- what does not belong at all ---


@pytest.mark.parametrize(("text", "key"), [
    (TRAIN + STATE + "placement: {access: nonsense}\n", "placement"),
    (TRAIN + STATE + "speculation: {model: 3}\n", "speculation"),
    (TRAIN.replace("bf16}", "bf16, kv: nonsense}") + STATE, "model.kv"),
    (BLOCKS + DENOISE + "placement: {weights: {hbm0: rest}, tensors: nonsense}\n", "placement.tensors"),
    (BLOCKS + DENOISE + "placement: {weights: {hbm0: rest}, cache: nonsense}\n", "placement.cache"),
    (TRAIN.replace("train}", "train, cached: nonsense}") + STATE, "workload.cached"),
])  # fmt: skip
def test_what_is_inside_of_a_key_that_does_not_belong_is_not_told(tmp_path, text, key):
    assert told(tmp_path, text)[2] == key


SERVER = """\
switches: {s0: {kind: socket}}
memories:
  dram0: {kind: dram, capacity: 64 GB, rate: 80 GB/s, at: s0}
  ssd0: {kind: nvme, capacity: 1 TB, read: 7 GB/s}
processors: {cpu0: {kind: cpu, memory: dram0}}
links: {m2: {between: [s0, ssd0], kind: pcie, rate: 7 GB/s}}
"""


@pytest.mark.parametrize(("old", "new", "key"), [
    ("switches: {s0: {kind: socket}}", "switches: none", "switches"),
    ("s0: {kind: socket}", "s0\u00a0: {kind: socket}", "switches.s0\u00a0"),
    ("  dram0:", "  dram0\u00a0:", "memories.dram0\u00a0"),
    ("{cpu0: {kind: cpu, memory: dram0}}", "{cpu0: {kind: cpu, memory: dram0, flops: {nonsense: nonsense}}}",
     "processors.cpu0.flops.nonsense"),
    ("rate: 80 GB/s", "rate: {peak: 90 GB/s, sustained: {nonsense: 3}}", "memories.dram0.rate.sustained.nonsense"),
    ("kind: socket", "kind: switch", "switches.s0.kind"),
])  # fmt: skip
def test_one_mistake_of_a_server_is_told_once(tmp_path, old, new, key):
    assert SERVER.count(old) == 1
    (tmp_path / "server.yaml").write_text(SERVER, encoding="utf-8")
    load_topology(tmp_path / "server.yaml")
    (tmp_path / "server.yaml").write_text(SERVER.replace(old, new), encoding="utf-8")
    with pytest.raises(DocumentError) as raised:
        load_topology(tmp_path / "server.yaml")
    assert [one.key for one in raised.value.mistakes] == [key]


def test_a_word_with_a_comma_is_one_word(tmp_path):
    message = told(tmp_path, LLAMA + "placement: {weights: {hbm0: rest}, host_memory: swapped}\n")[3]
    assert message.count("page cache") == 2 and '"page cache, write-allocate"' in message
