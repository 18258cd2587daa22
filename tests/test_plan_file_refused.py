"""Plan files: every mistake at its line, with the fix."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from offload import cli
from offload.documents import load_plan
from offload.errors import DocumentError, OffloadError
from tests.plan_texts import BLOCKS, BOX, HAND, PLACED, changed, write_box

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 8)
)
TASKS = HAND[HAND.index("tasks") : HAND.index("overlap")]
LAYER_LINE = "  layer: {compute: gpu0, flops: 20 GFLOP, reads: [w, kv], after: fetch}\n"

MANY_NAMES = HAND.replace("repeat: 10", "repeat: 500").replace(
    LAYER_LINE, "".join(f"  t{i}: {{compute: gpu0, after: fetch}}\n" for i in range(20)) + LAYER_LINE)  # fmt: skip
# what, text, edits, line, what the message must hold (what is wrong, and the fix)
REFUSED = [
    ("bytes as a bare power", HAND, [("200 MB", "1e9")], 3, ['"1e9" has no unit', '"1 GB"']),
    ("bytes as a bare number", HAND, [("200 MB", "200")], 3, ['"200" has no unit', '"200 MB"']),
    ("bytes below nothing", HAND, [("200 MB", "-200 MB")], 3, ["negative"]),
    ("bytes with a comma", HAND, [("200 MB", "1,008 MB")], 3, ["comma"]),
    ("bytes beyond all", HAND, [("200 MB", "1" + "0" * 30 + " B")], 3, ["too large"]),
    ("a gigabit of bytes", HAND, [("200 MB", "200 G")], 3, ["GB"]),
    ("flop beyond all", HAND, [("20 GFLOP", "1e300 FLOP")], 8, ["too large"]),
    ("flop without unit", HAND, [("20 GFLOP", "20")], 8, ["has no unit", "GFLOP"]),
    ("an unknown tensor to move", HAND, [("move: w", "move: W")], 7, ['no tensor "W"', 'Did you mean "w"?']),
    ("an unknown tensor to read", HAND, [("[w, kv]", "[w, kvv]")], 8, ['no tensor "kvv"', "reads[1]", '"kv"?']),
    ("an unknown tensor to write", HAND, [("after: f", "writes: kw, after: f")], 8, ['no tensor "kw"', '"w"']),
    ("an unknown memory", HAND, [("to: hbm0", "to: HBM0")], 7, ['no memory "HBM0"', 'Did you mean "hbm0"?']),
    ("a processor as memory", HAND, [("to: hbm0", "to: gpu0")], 7, ['"gpu0" is a processor', "hbm0"]),
    ("an unknown home", HAND, [("home: dram0", "home: dram")], 3, ['no memory "dram"', 'Did you mean "dram0"?']),
    ("an unknown processor", HAND, [("compute: gpu0", "compute: GPU0")], 8, ['no processor "GPU0"', '"gpu0"']),
    ("a memory as processor", HAND, [("compute: gpu0", "compute: hbm0")], 8, ['"hbm0" is a memory', "gpu0"]),
    ("an unknown format", HAND, [("after: f", "format: fp64, after: f")], 8, ['"fp64"', "bf16, fp8"]),
    ("after an unknown task", HAND, [("after: fetch", "after: fetsh")], 8, ['no task "fetsh"', '"fetch"']),
    ("after the previous unknown", HAND, [("after: fetch", "after: [previous.fetsh]")], 8, ["after[0]", '"fetch"']),
    ("after the previous of nothing", HAND, [("after: fetch", "after: previous")], 8, ['"previous.NAME"']),
    ("after itself", HAND, [("after: fetch", "after: layer")], 8, ["wait for itself", '"previous.layer"']),
    ("a circle", HAND, [("to: hbm0}", "to: hbm0, after: layer}")], 7,
     ['"fetch" waits for "layer", which waits for "fetch"', "Drop one"]),
    ("after a later block", BLOCKS, [("reads: x}", "reads: x, after: layer}")], 7, ["in a later block"]),
    ("a move to where it lives", HAND, [("to: hbm0", "to: dram0")], 7, ['"w" is in dram0 already', "drop"]),
    ("a second move to the same place", HAND, [(LAYER_LINE, "  again: {move: w, to: hbm0, after: fetch}\n")], 8,
     ['"w" is in hbm0 already']),
    ("a read from a drive", HAND, [("home: hbm0", "home: ssd0")], 8, ["ssd0 is a drive", "Move it first, to hbm0"]),
    ("a write to a drive", HAND, [("after: f", "writes: kv, after: f"), ("[w, kv]", "w"), ("home: hbm0", "home: ssd0")],
     8, ["cannot write ssd0", "Move it first"]),
    ("via an unknown node", HAND, [("to: hbm0}", "to: hbm0, via: socket}")], 7, ['no memory or switch "socket"']),
    ("via a link", HAND, [("to: hbm0}", "to: hbm0, via: [pcie0]}")], 7, ["the link between socket0 and hbm0"]),
    ("via a drive", HAND, [("to: hbm0}", "to: hbm0, via: ssd0}")], 7, ["only host DRAM may stage"]),
    ("a move named like a processor", HAND, [("fetch: {", "gpu0: {"), ("after: fetch", "after: gpu0")], 7,
     ["is a processor", "another name"]),
    ("a task named previous", HAND, [("fetch: {", "previous.x: {"), ("after: fetch", "after: layer2")], 7, ["rename"]),
    ("a range of names", HAND, [("  kv:", "  kv0..7:"), ("[w, kv]", "w")], 4, ["range", "write each name out"]),
    ("a list as text", BLOCKS + "      more: {compute: gpu0, reads: 'w, x'}\n", [], 12,
     ["Several are a list: [w, x]"]),
    ("neither move nor compute", HAND, [("compute: gpu0, ", "")], 8, ['"move: TENSOR" or "compute: PROCESSOR"']),
    ("both move and compute", HAND, [("compute: gpu0", "compute: gpu0, move: w")], 8, ["split it in two"]),
    ("no tasks", HAND, [(TASKS, "tasks: {}\n")], 6, ["there is no task"]),
    ("tasks of nothing", HAND, [(TASKS, "tasks:\n")], 6, ["value is missing"]),
    ("tasks as a list", HAND, [(TASKS, "tasks: [a, b]\n")], 6, ["must be a map, not a list"]),
    ("no blocks", HAND, [(TASKS, "blocks: []\n"), ("repeat: 10\n", "")], 5, ["there is no block"]),
    ("tasks and blocks", HAND + "blocks: [{tasks: {a: {compute: cpu0}}}]\n", [], 10, ['give "tasks"', 'or "blocks"']),
    ("blocks with a repeat at the top", BLOCKS + "repeat: 3\n", [], 12, ["each block has its own repeat"]),
    ("neither tasks nor blocks", HAND, [(TASKS, "")], 1, ['needs "tasks" or "blocks"']),
    ("repeat nothing", HAND, [("repeat: 10", "repeat: 0")], 5, ["at least 1"]),
    ("repeat without end", HAND, [("repeat: 10", "repeat: 1000000000000")], 5, ["at most 20000"]),
    ("names times tasks", MANY_NAMES, [], 5, ["11,000 tasks", "of 22 names", "the 4,545 that"]),
    ("more names than can be timed", HAND, [(LAYER_LINE, "".join(
        f"  t{i}: {{compute: gpu0, after: fetch}}\n" for i in range(299)) + LAYER_LINE)], 6,
     ["301 tasks are written", "300 names", "once, with repeat"]),
    ("more than can be laid out", HAND, [("repeat: 10", "repeat: 20000")], 5, ["40,000 tasks", "more bytes each"]),
    ("repeat in exponents", HAND, [("repeat: 10", "repeat: 1e1")], 5, ["whole number"]),
    ("no buffers", HAND, [("buffers: 2", "buffers: 0")], 9, ['not "0"', "1 or more"]),
    ("no buffers of a move", HAND, [("to: hbm0}", "to: hbm0, buffers: 0}")], 7, ["at least 1"]),
    ("overlap simulated", HAND, [("{buffers: 2}", "simulate")], 9, ["not built yet", "none, full or {buffers: 2}"]),
    ("overlap of half", HAND, [("{buffers: 2}", "1.5")], 9, ['not "1.5"', "none, full or {buffers: 2}"]),
    ("overlap of two keys", HAND, [("buffers: 2", "buffers: 2, depth: 3")], 9, ["must be none, full or {buffers: 2}"]),
    ("overlap off", HAND, [("{buffers: 2}", "off")], 9, ['"off" is no overlap', "none, full or {buffers: 2}"]),
    ("a rhythm for later", HAND, [("to: hbm0}", "to: hbm0, every: prompt}")], 7, ['"prompt"', '"4 steps"']),
    ("a rhythm of nothing", HAND, [("to: hbm0}", "to: hbm0, every: 0 steps}")], 7, ['"0 steps"', '"layer"']),
    ("memory of an unknown kind", HAND, [("to: hbm0}", "to: hbm0, host_memory: mapped}")], 7, ["pageable, pinned"]),
    ("shares beyond one", HAND, [("home: dram0", "home: {dram0: 50%, hbm0: 60%}")], 3, ["1.1 times"]),
    ("shares below one", HAND, [("home: dram0", "home: {dram0: 50%, hbm0: 40%}")], 3, ["10 %", "rest"]),
    ("two rests of a tensor", HAND, [("home: dram0", "home: {dram0: rest, hbm0: rest}")], 3, ["takes the rest"]),
    ("no home", HAND, [("home: dram0", "home: {}")], 3, ["empty map", "{dram0: 50%, hbm0: rest}"]),
    ("homes as a list", HAND, [("home: dram0", "home: [dram0, hbm0]")], 3, ["not a list", "{dram0: 50%, hbm0: rest}"]),
    ("a home without a part", HAND, [("home: dram0", "home: {dram0: 50%, hbm0}")], 3, ["comma inside { }"]),
    ("a part without a unit", HAND, [("home: dram0", "home: {dram0: 0.5, hbm0: rest}")], 3, ['"50%"']),
    ("Norway as a truth", HAND, [("home: dram0", "home: dram0, shared: NO")], 3, ["false"]),
    ("tokens of nothing", HAND + "tokens: 0\n", [], 10, ["at least 1"]),
    ("tokens beyond all", HAND + "tokens: 1" + "0" * 30 + "\n", [], 10, ["larger than any number"]),
    ("steps in flight of nothing", HAND + "in_flight: 0\n", [], 10, ["at least 1"]),
    ("a task twice", HAND, [("layer:", "fetch:")], 8, ["given twice, on lines 7 and 8"]),
    ("a key twice", HAND, [("home: dram0", "home: dram0, home: hbm0")], 3, ["given twice"]),
    ("a hour of batches", PLACED, [("batch: 1", "batch: 1:30")], 3, ["base 60", "without colons"]),
    ("half a batch", PLACED, [("batch: 1", "batch: 1.5")], 3, ["whole number"]),
    ("no batch", PLACED, [("batch: 1", "batch: 0")], 3, ["at least 1"]),
    ("a batch beyond all", PLACED, [("batch: 1", "batch: 1" + "0" * 30)], 3, ["larger than any number"]),
    ("a context in thousands", PLACED, [("context: 1000", "context: 1k")], 3, ["whole number"]),
    ("a context with a comma", PLACED, [("context: 1000", "context: 1,000")], 3, ["comma inside { }"]),
    ("a percent twice", PLACED, [("2 layers", "50%%")], 5, ['"50%%"', '"50%"']),
    ("a percent beyond all", PLACED, [("2 layers", "150%")], 5, ['"150%"', "up to 100"]),
    ("percents beyond all", PLACED, [("2 layers, dram0: rest", "75%, dram0: 50%")], 5,
     ["3 in hbm0 and 2 in dram0", "4 layers", "Place 1 fewer"]),
    ("layers without a unit", PLACED, [("2 layers", "2")], 5, ['"2 layers"', '"2%"', '"2 GB"']),
    ("layers below nothing", PLACED, [("2 layers", "-2 layers")], 5, ["fewer layers than none", '"38 layers"']),
    ("half a layer", PLACED, [("2 layers", "2.5 layers")], 5, ["whole layers"]),
    ("layers of another spelling", PLACED, [("2 layers", "2 Layers")], 5, ['Write "38 layers"']),
    ("more layers than there are", PLACED, [("2 layers", "5 layers")], 5, ["5 in hbm0", "4 layers", "1 fewer"]),
    ("fewer layers than there are", PLACED, [("rest", "1 layer")], 5, ["3 of 4 layers", "MEMORY: rest"]),
    ("two rests", PLACED, [("2 layers", "rest")], 5, ["hbm0 already takes the rest"]),
    ("a portion in words", PLACED, [("2 layers", "some")], 5, ['"some" is no portion', '"38 layers"']),
    ("an unknown memory of weights", PLACED, [("hbm0: 2", "HBM0: 2")], 5, ['no memory "HBM0"', '"hbm0"']),
    ("a processor for weights", PLACED, [("hbm0: 2", "gpu0: 2")], 5, ['"gpu0" is a processor', "hbm0"]),
    ("weights as text", PLACED, [("{hbm0: 2 layers, dram0: rest}", "hbm0")], 5, ["{hbm0: 38 layers, dram0: rest}"]),
    ("weights of nothing", PLACED, [("{hbm0: 2 layers, dram0: rest}", "{}")], 5, ["empty map"]),
    ("compute on a memory", PLACED, [("compute: local", "compute: hbm0")], 6, ['"hbm0" is a memory', "gpu0"]),
    ("compute Local", PLACED, [("compute: local", "compute: Local")], 6, ['Did you mean "local"?']),
    ("KV in bytes", PLACED, [("kv: with layer", "kv: {ssd0: 1 GB, dram0: rest}")], 7, ['"20 layers"', '"60%"']),
    ("KV on a processor", PLACED, [("kv: with layer", "kv: gpu0")], 7, ["its memory is hbm0"]),
    ("KV nowhere", PLACED, [("kv: with layer", "kv: with_layer")], 7, ['Did you mean "with layer"?']),
    ("reserve without unit", PLACED, [("reserve: 1 GB", "reserve: 1")], 8, ["has no unit", '"1 GB"']),
    ("reserve below nothing", PLACED, [("reserve: 1 GB", "reserve: -1 GB")], 8, ["negative"]),
    ("an unknown weight format", PLACED, [("bf16", "q4")], 2, ['no weight format "q4"', "q4_k_m"]),
    ("an unknown KV format", PLACED, [("kv: f16", "kv: f15")], 2, ['"f15"', '"f16"']),
    ("two formats", PLACED, [("config: ./config.json, weights: bf16", 'name: "llama-3.1-8b:q8_0", weights: bf16')], 2,
     ["q8_0", "drop one"]),
    ("an unknown model", PLACED, [("config: ./config.json", "name: llama-3-8b")], 2, ['"llama-3-8b"', "llama-3.1-8b"]),
    ("name and config", PLACED, [("config:", "name: llama-3.1-8b, config:")], 2,
     ["name and config are both given"]),
    ("no config there", PLACED, [("./config.json", "there/config.json")], 2, ["there/config.json", "No such file"]),
    ("a model as text", PLACED, [("{config: ./config.json, weights: bf16, kv: f16}", "llama-3.1-8b")], 2,
     ["must be a map", "Keys of a model: blocks, config, gguf, give, kv, like, name, row, weights"]),
    ("no model", PLACED, [("model: {config: ./config.json, weights: bf16, kv: f16}\n", "")], 1, ['"model" is missing']),
    ("no placement", PLACED[: PLACED.index("placement")], [], 1, ['"placement" is missing']),
    ("no topology", PLACED, [("topology: ./box.yaml\n", "")], 1, ['"topology" is missing']),
    ("an unknown topology", PLACED, [("./box.yaml", "desktop-4091")], 1, ['Did you mean "desktop-4090"?']),
    ("no topology there", PLACED, [("./box.yaml", "boxes/box.yaml")], 1, ["boxes/box.yaml", "no such file"]),
    ("a folder as topology", PLACED, [("./box.yaml", "./")], 1, ["is a folder"]),
    ("a number as topology", PLACED, [("./box.yaml", "4090")], 1, ['Quote it: "4090"']),
    ("both forms", HAND + "model: {config: ./config.json}\n", [], 2, ['"tensors" and "model" do not go together']),
    ("tokens of a placement", PLACED + "tokens: 4\n", [], 10, ["plan by hand", "batch"]),
    ("in flight at the top", PLACED + "in_flight: 4\n", [], 10, ["plan by hand", '"workload"']),
    ("neither form", "topology: gh200\n", [], 1, ['"model" and "placement", or "tensors" and "tasks"']),
    ("a wrong title", PLACED + "title: 5\n", [], 10, ["must be text", '"5"']),
    ("a tab", PLACED, [("  compute", "\tcompute")], 6, ["tab", "spaces"]),
    ("two documents", PLACED + "---\na: 1\n", [], 10, ["second document"]),
    ("a full-width colon", PLACED, [("workload:", "workload\uff1a")], 3, ["full-width colon"]),
    ("an alias bomb", PLACED + BOMB, [], 15, ["100,000 values"]),
    ("a list", "- topology: gh200\n", [], 1, ["list", "keys and values"]),
    ("nothing", "", [], 1, ["empty"]),
    ("another file's text", "hello there\n", [], 1, ["without keys"]),
    # keys that other versions may have: never ignored
    ("attention", PLACED, [("  kv:", "  attention: cpu0\n  kv:")], 7, ["runs the layers itself", "Drop it"]),
    ("access", PLACED, [("  kv:", "  access: copied\n  kv:")], 7, ['"copied"', "copy", "in_place"]),
    ("experts", PLACED, [("  kv:", "  experts: {home: dram0, hit: 0.9}\n  kv:")], 7, ['unknown key "hit"']),
    ("cache", PLACED, [("  kv:", "  cache: dram0\n  kv:")], 7, ["how much of a prompt", "cached: 80%"]),
    ("cached", PLACED, [("batch: 1", "batch: 1, cached: 80%")], 3, ['"cached" belongs to phase prefill and generate']),
    ("micro-batches", PLACED, [("batch: 1", "batch: 1, micro_batches: 4")], 3,
     ['"micro_batches" belongs to phase train', "this is decode"]),
    ("a prompt", PLACED, [("batch: 1", "batch: 1, prompt: 4")], 3, ['"prompt" belongs to phase prefill and generate']),
    ("prefill", PLACED, [("decode", "prefill")], 3, ['phase prefill needs "prompt"', "prompt: 2048"]),
    ("train", PLACED, [("decode", "train"), (", kv: f16", "")], 4, ['has "training" instead', "optimizer: dram0"]),
    ("generate", PLACED, [("decode", "generate"), ("context", "prompt")], 3,
     ['generate needs "generate"', "prompt: 512"]),
    ("a context that grows", PLACED, [("decode", "generate"), ("1000", "9, prompt: 5, generate: 3")], 3,
     ['"context" belongs to phase decode and prefill']),
    ("no context at all", PLACED, [("context: 1000", "context: 0")], 3, ["counts the new position"]),
    ("trains", PLACED, [("decode", "trains")], 3, ['unknown "trains"', "decode", 'mean "train"']),
    ("a GGUF file", PLACED, [("config: ./config.json", "gguf: m.gguf")], 2,
     ["m.gguf: No such file", "starts from this file"]),
    ("a config as GGUF", PLACED, [("config: ./config.json", "gguf: ./config.json")], 2,
     ["no GGUF file: it does not begin with GGUF"]),
    ("two models", PLACED, [("config: ./config.json", "config: ./config.json, gguf: m.gguf")], 2,
     ["config and gguf are both given"]),
    ("stated bytes", PLACED, [("weights: bf16", "weights: {format: bf16, bytes: 3 GB}")], 2, ["text, not a map"]),
    ("a cost of a token", PLACED + "costs: {sync: {each: token, time: 3 us}}\n", [], 10, ['unknown "token"', "layer"]),
    ("a cost without unit", PLACED + "costs: {sync: {each: step, time: 3}}\n", [], 10, ["has no unit", '"3 ms"']),
    ("a cost by hand", HAND + "costs: {sync: {each: step, time: 3 ms}}\n", [], 10,
     ["costs belong to a plan by placement", "time: 20 us"]),
    ("a cost named layer", PLACED + "costs: {layer: {each: step, time: 3 ms}}\n", [], 10, ["a task of the model"]),
    ("a collective over one", HAND, [(LAYER_LINE, "  sum: {collective: all_reduce, of: w, over: hbm0}\n")], 8,
     ["a single memory", '"hbm0..7"']),
    ("a collective over what is no memory", HAND, [(LAYER_LINE, "  sum: {collective: all_reduce, of: w, over: hbm}\n")],
     8, ['no memory "hbm"', 'Did you mean "hbm0"?']),
    ("a collective over too many", HAND,
     [(LAYER_LINE, "  sum: {collective: all_reduce, of: w, over: hbm0..99999999}\n")],
     8, ['the range "0..99999999" is longer than the 1024 names']),
    ("a collective of another kind", HAND, [(LAYER_LINE, "  sum: {collective: gather, of: w, over: hbm0..1}\n")], 8,
     ['unknown "gather"', "all_reduce"]),
    ("a time below the least", HAND, [("after: f", "time: {sustained: 1 ms, peak: 2 ms}, after: f")], 8,
     ["the least that it can take"]),
    ("a time that is none", HAND, [("after: f", "time: {peak: 2 ms}, after: f")], 8, ['needs "sustained"']),
    ("a range of processors", HAND, [("gpu0", "gpu0..3")], 8, ['no processor "gpu1"']),
    ("a range that runs backwards", HAND, [("to: hbm0", "to: hbm3..0")], 7, ["runs backwards", '"0..3"']),
    ("a key of the other task", HAND, [("after: f", "to: hbm0, after: f")], 8, ['unknown key "to"', "of a compute"]),
    ("a slip of the pen", HAND, [("reads:", "read:")], 8, ['unknown key "read"', 'Did you mean "reads"?']),
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_box(tmp_path)


def refused(folder: Path, text: str, capsys) -> str:
    """What the command says on standard error; it printed nothing else and ended as for bad input."""
    path = folder / "plan.yaml"
    path.write_text(text, encoding="utf-8")
    assert cli.main(["step", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert str(path) in captured.err.splitlines()[0]
    for sign in ("Traceback", "internal error", "pydantic", "tag:yaml", "None", "Error("):
        assert sign not in captured.err
    return captured.err


@pytest.mark.few
@pytest.mark.parametrize(("what", "text", "edits", "line", "parts"), REFUSED, ids=[case[0] for case in REFUSED])
def test_refused_at_its_line_with_the_fix(folder, capsys, what, text, edits, line, parts):
    said = refused(folder, changed(text, *edits), capsys)
    places = [one for one in said.splitlines() if one.startswith(f"  line {line}, column ")]
    assert places, said
    for part in parts:
        assert any(part in one for one in places), said
    if what not in ("a task named previous", "bytes with a comma"):
        assert "1 mistake\n" in said, said


def test_all_mistakes_at_once_by_placement(folder, capsys):
    text = changed(
        PLACED, ("kv: f16", "kvv: f16"), ("batch: 1", "batch: 1:30"), ("2 layers", "2"), ("dram0: rest", "ram: rest"),
        ("local", "cpu1"), ("with layer", "hbm"), ("{buffers: 2}", "simulate"),
    )  # fmt: skip
    said = refused(folder, text + "cost: {}\n", capsys)
    assert "5 mistakes\n" in said, "what hangs on a map with a mistake waits"
    assert [f"line {n}," in said for n in (2, 3, 5, 9, 10)] == [True] * 5
    names = changed(text, ("hbm0: 2", "hbm0: 2 layers"), ("kvv", "kv"), ("kv: f16", "kv: f17"), ("bf16", "q4"))
    said = refused(folder, names, capsys)
    for part in ('"f17"', '"q4"', "base 60", '"ram"', '"cpu1"', '"hbm"', '"simulate"'):
        assert part in said
    assert "7 mistakes\n" in said


def test_all_mistakes_at_once_by_hand(folder, capsys):
    text = changed(
        HAND, ("200 MB", "200"), ("home: hbm0", "home: hbm1"), ("repeat: 10", "repeat: 0"), ("to: hbm0", "to: hbm2"),
        ("[w, kv], after: fetch", "[w, q], after: fetsh"), ("{buffers: 2}", "{buffers: -1}"),
    )  # fmt: skip
    said = refused(folder, text, capsys)
    assert [one.split(",")[0].strip() for one in said.splitlines()[1:]] == [
        "line 3", "line 4", "line 5", "line 7", "line 8", "line 8", "line 9",
    ]  # fmt: skip


def test_mistakes_of_the_topology_too(folder, capsys):
    (folder / "box.yaml").write_text(BOX.replace("20 GB/s", "20").replace("kind: hbm", "kind: hbn"))
    (folder / "plan.yaml").write_text(HAND)
    with pytest.raises(DocumentError) as caught:
        load_plan(folder / "plan.yaml")
    assert caught.value.file == str(folder / "box.yaml"), "only the topology is wrong"
    said = refused(folder, changed(HAND, ("200 MB", "200")), capsys)
    assert "2 mistakes\n" in said and "line 1, column 11, topology:" in said and '"200" has no unit' in said
    assert "box.yaml: 3 mistakes" in said and '"hbn"' in said


def test_a_circle_of_three_is_shown_from_its_first(folder, capsys):
    tasks = "tasks:\n  a: {compute: cpu0, after: c}\n  b: {compute: cpu0, after: a}\n  c: {compute: gpu0, after: [b]}\n"
    said = refused(folder, "topology: ./box.yaml\n" + tasks, capsys)
    assert "line 3, column 29, tasks.a.after:" in said
    assert '"a" waits for "c", which waits for "b", which waits for "a": a circle' in said


def test_what_is_no_file(folder, capsys):
    blocked = folder / "blocked.yaml"
    blocked.write_text(HAND)
    blocked.chmod(0)
    cases = [(folder / "none.yaml", "no such file"), (folder, "folder"), (Path("x\0.yaml"), "no file can have such")]
    if not os.access(blocked, os.R_OK):
        cases.append((blocked, "cannot be read"))
    for path, part in cases:
        with pytest.raises(OffloadError, match=part):
            load_plan(path)
    (folder / "folder.yaml").mkdir()
    assert cli.main(["step", str(folder / "folder.yaml")]) == 2
    assert "is a folder" in capsys.readouterr().err
    (folder / "latin.yaml").write_bytes("title: Größe\n".encode("latin-1"))
    assert cli.main(["step", str(folder / "latin.yaml")]) == 2
    assert "latin.yaml" in (said := capsys.readouterr().err) and "UTF-8" in said


@pytest.mark.parametrize("config", ["[]", "{", '{"model_type": "bert"}', '{"model_type": "llama"}', "\0"])
def test_a_config_that_is_none(folder, config, capsys):
    (folder / "config.json").write_text(config)
    said = refused(folder, PLACED, capsys)
    assert "line 2, column 17, model.config:" in said and "config.json" in said


def test_a_server_without_a_way(folder, capsys):
    """No link to the GPU: streaming to it is refused where the plan asks for it."""
    lines = [line for line in BOX.splitlines() if not line.startswith(("  pcie0", "  up0"))]
    (folder / "box.yaml").write_text("\n".join(lines))
    said = refused(folder, changed(PLACED, ("local", "gpu0")), capsys)
    assert "line 5" in said and "no route from dram0 to hbm0" in said
    said = refused(folder, HAND, capsys)
    assert "line 7, column 24, tasks.fetch.to: no route from dram0 to hbm0" in said


def test_two_processors_of_one_memory_must_be_chosen(folder, capsys):
    text = BOX.replace("  cpu0: {", "  npu0: {kind: gpu, memory: dram0}\n  cpu0: {")
    (folder / "box.yaml").write_text(text)
    said = refused(folder, PLACED, capsys)
    assert "line 6, column 12, placement.compute: dram0 has 2 processors (npu0, cpu0)" in said


# What only a compiled step would find.

TO_SSD = "  fetch: {move: w, to: ssd0}\n  count: {compute: cpu0, reads: [kv], after: fetch}\n"
TWO_BLOCKS = """\
topology: ./box.yaml
tensors:
  w: {bytes: 200 MB, home: dram0}
blocks:
  - tasks: {fetch: {move: w, to: hbm0, buffers: 2}}
  - tasks:
      again: {move: w, to: hbm0, after: fetch}
  - tasks:
      fetch: {move: w, to: hbm0, buffers: 3}
"""


@pytest.mark.parametrize(
    "changes, line, parts",
    [
        ([("reads: [w, kv]", "reads: [kv, w, kv]")], 8, ["tasks.layer.reads[2]", '"kv" is given twice']),
        ([("reads: [w, kv]", "writes: [kv, kv]")], 8, ["tasks.layer.writes[1]", '"kv" is given twice']),
        ([("after: fetch", "after: [fetch, fetch]")], 8, ["tasks.layer.after[1]", '"fetch" is given twice']),
        ([("to: hbm0}", "to: hbm0, via: [socket0, socket0]}")], 7, ["tasks.fetch.via[1]", "given twice"]),
        ([("to: hbm0}", "to: hbm0, via: []}")], 7, ["tasks.fetch.via", "an empty `via`"]),
        ([("to: hbm0}", "to: hbm0, via: dram0}")], 7, ["tasks.fetch.via", "the move starts at dram0"]),
        ([("after: fetch}", "after: fetch}\n  again: {move: w, to: hbm0, after: layer}")], 9,
         ["tasks.again.to", "in hbm0 already"]),
        ([("  fetch: {move: w, to: hbm0}\n", TO_SSD), ("after: fetch}\noverlap", "after: count}\noverlap")], 9,
         ["tasks.layer.reads[0]", "gpu0 cannot read ssd0"]),
    ],
)  # fmt: skip
def test_by_hand_at_its_line(folder, capsys, changes, line, parts):
    text = HAND
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    said = refused(folder, text, capsys)
    assert f"line {line}, " in said and all(part in said for part in parts), said


def test_by_hand_across_blocks(folder, capsys):
    said = refused(folder, TWO_BLOCKS, capsys)
    assert "line 7, column 28, blocks[1].tasks.again.to: \"w\" is in hbm0 already" in said
    assert "line 9, column 43, blocks[2].tasks.fetch.buffers" in said and "2 buffers, this one 3" in said


def test_unknown_names_are_told_with_every_other_mistake(folder, capsys):
    text = HAND.replace("to: hbm0}", "to: hbm0, after: nobody}")
    text = text.replace("20 GFLOP, reads: [w, kv], after: fetch", "20, reads: [v], after: nothing")
    said = refused(folder, text, capsys)
    assert "4 mistakes" in said
    for part in ('no task "nobody"', 'no tensor "v"', 'no task "nothing"', '"20" has no unit'):
        assert part in said


def test_a_memory_with_two_processors_offers_both_the_gpu_first(folder, capsys):
    (folder / "box.yaml").write_text(BOX.replace("  cpu0: {", "  npu0: {kind: gpu, memory: dram0}\n  cpu0: {"))
    assert "write `compute: npu0` or `compute: cpu0`" in refused(folder, PLACED, capsys)
