"""The JSON Schema of files: what the readers take is valid, what is misspelt or missing is not; it is up to date."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from offload import cli, units
from offload.documents import (
    parse_document,
    plan_experts,
    plan_shape,
    read_document,
    shipped_topologies,
    topology_shape,
)
from offload.documents.key_texts import KEY_TEXTS
from offload.documents.schema import KINDS, QUANTITIES, schema_of
from offload.documents.shapes import Shape
from offload.documents.shipped import shipped_folder
from offload.errors import OffloadError

ROOT = Path(__file__).resolve().parent.parent
TOPOLOGIES = sorted([*(ROOT / "topologies").glob("*.yaml"), *(ROOT / "examples" / "servers").glob("*.yaml")])
PLANS = sorted((ROOT / "examples").glob("*.yaml"))
SHAPES = [shape for module in (plan_shape, plan_experts, topology_shape) for shape in vars(module).values()
          if isinstance(shape, type) and issubclass(shape, Shape) and shape is not Shape]  # fmt: skip
AGAIN = "make it again: python -m offload schema {0} > topologies/schema/{0}.json"


def errors_of(kind: str, text: str) -> list[str]:
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(schema_of(kind))
    return [error.message for error in validator.iter_errors(parse_document(text, "file.yaml").value)]


def shown() -> list[object]:
    """The plans and topologies that the docs show (a case file holds a plan, and has no schema)."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    pages = [page for page in pages if page.name != "case-files.md"]
    block = re.compile(r"^```yaml\n(.*?)^```", re.S | re.M)
    blocks = [(page, text) for page in pages for text in block.findall(page.read_text(encoding="utf-8"))]
    return [pytest.param(text, id=f"{page.name}-{number}") for number, (page, text) in enumerate(blocks)]


# --- up to date, and where editors look ---


@pytest.mark.parametrize("kind", KINDS)
def test_the_shipped_schema_is_the_one_that_is_printed(kind, capsys):
    assert cli.main(["schema", kind]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    shipped = shipped_folder() / "schema" / f"{kind}.json"
    assert shipped.read_text(encoding="utf-8") == captured.out, AGAIN.format(kind)


@pytest.mark.parametrize("path", [*TOPOLOGIES, *PLANS], ids=lambda path: path.name)
def test_files_name_their_schema_in_the_first_line(path):
    first = path.read_text(encoding="utf-8").splitlines()[0]
    named = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", first)
    assert named, first
    kind = "topology" if path in TOPOLOGIES else "plan"
    assert (path.parent / named[1]).resolve() == ROOT / "topologies" / "schema" / f"{kind}.json"


def test_the_schemas_are_no_servers():
    assert set(shipped_topologies()) == {path.stem for path in (ROOT / "topologies").glob("*.yaml")}
    assert "topology" not in shipped_topologies()


@pytest.mark.few
@pytest.mark.parametrize("kind", KINDS)
def test_the_schema_is_a_schema(kind):
    jsonschema = pytest.importorskip("jsonschema")
    schema = schema_of(kind)
    jsonschema.Draft202012Validator.check_schema(schema)
    text = json.dumps(schema)
    assert text.isascii()
    assert set(re.findall(r'"#/\$defs/(\w+)"', text)) == set(schema["$defs"]), "no definition is lost or left over"


def test_every_key_has_its_line():
    for shape in SHAPES:
        keys = {field.alias or name for name, field in shape.model_fields.items()}
        title = shape.model_config["title"]
        assert set(KEY_TEXTS.get(title, ())) == keys, f'KEY_TEXTS["{title}"] in offload/documents/key_texts.py'
    assert set(KEY_TEXTS) == {shape.model_config["title"] for shape in SHAPES}


def test_defaults_are_what_could_be_written():
    jsonschema = pytest.importorskip("jsonschema")
    count = 0
    for kind in KINDS:
        schema = schema_of(kind)
        for part in (schema, *schema["$defs"].values()):
            for options in (part, *part.get("anyOf", ())):
                for field in options.get("properties", {}).values():
                    values = [field[key] for key in ("default",) if key in field] + field.get("examples", [])
                    for value in values:
                        validator = jsonschema.Draft202012Validator(field | {"$defs": schema["$defs"]})
                        assert not list(validator.iter_errors(value)), (field, value)
                        count += 1
    assert count > 20


# --- what is valid ---


@pytest.mark.parametrize("path", [*TOPOLOGIES, *PLANS], ids=lambda path: path.name)
def test_what_is_shipped_is_valid(path):
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(schema_of("topology" if path in TOPOLOGIES else "plan"))
    assert [error.message for error in validator.iter_errors(read_document(path).value)] == []


@pytest.mark.parametrize("text", shown())
def test_what_the_docs_show_is_valid(text):
    assert errors_of("topology" if "memories:" in text else "plan", text) == []


TOPOLOGY = """\
memories:
  hbm0: {kind: hbm, capacity: 24 GiB, rate: 1008 GB/s}
  dram0: {kind: dram, at: s0, rate: 6000 MT/s x 2}
switches: {s0: {kind: socket}}
processors: {gpu0: {kind: gpu, memory: hbm0, flops: {bf16: 165 TFLOP/s}}}
links: {pcie0: {between: [s0, hbm0], pcie: 4 x16}}
limits: {root: {over: pcie0, rate: 40 GB/s}}
"""
PLAN = """\
topology: desktop-4090
tensors: {w: {bytes: 528 MB, home: dram0}}
tasks:
  fetch: {move: w, to: hbm0}
  layer: {compute: gpu0, flops: 1.76 GFLOP, reads: w, after: fetch}
overlap: {buffers: 2}
"""
PLACED = """\
topology: desktop-4090
model: {name: llama-3.1-70b, weights: q4_k_m}
placement: {weights: {hbm0: 38 layers, dram0: rest}}
"""


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        (TOPOLOGY, "24 GiB", "unknown"),
        (TOPOLOGY, "1008 GB/s", "unknown"),
        (TOPOLOGY, "1008 GB/s", "{peak: 1008 GB/s, rated: unknown, sustained: 85 %, source: a}"),
        (TOPOLOGY, "1008 GB/s", "{sustained: {read: 800..900 GB/s, copy: 700..750..800 GB/s}}"),
        (TOPOLOGY, "rate: 1008", "cache: 72 MiB, count: 2, read: 7"),
        (TOPOLOGY, "165 TFLOP/s", "{rated: 165 TFLOPS, sustained: 75 %}, int8: 330 TOPS, fp8: unknown"),
        (TOPOLOGY, "kind: gpu,", "kind: gpu, reads: 90..120 GB/s, peer_to_peer: true, direct_storage: false,"),
        (TOPOLOGY, "kind: socket", "kind: pcie switch"),
        (TOPOLOGY, "pcie: 4 x16", "pcie: PCIe 4.0 x16, latency: 6 us, duplex: half"),
        (TOPOLOGY, "pcie: 4 x16", "nvlink: 4 x18, latency: [1 us, 6 us], sustained: {pinned: 26 GB/s}"),
        (TOPOLOGY, "pcie: 4 x16", "both_directions: 900 GB/s, kind: c2c, count: 2"),
        (TOPOLOGY, "pcie: 4 x16", "forward: 400 Gb/s, backward: {peak: 50 GB/s}"),
        (TOPOLOGY, "over: pcie0, rate", "over: [pcie0, pcie0.hbm0], sustained"),
        (TOPOLOGY, "memories:", "title: a\nsource: b\n$schema: c\nmemories:"),
        (PLAN, "home: dram0", "home: {dram0: 50%, hbm0: rest, ssd0: 10 MB}, shared: true, what: a"),
        (PLAN, "to: hbm0", "to: hbm0, via: dram0, every: 4 steps, buffers: 3, host_memory: page cache, after: [layer]"),
        (PLAN, "reads: w", "reads: [w], writes: [w], every: step, time: 2 ms"),
        (PLAN, "reads: w", "time: {sustained: 0.9..1.1 ms, peak: 0.5 ms, source: a}"),
        (PLAN, "{buffers: 2}", "none"),
        (PLAN, "{buffers: 2}", "4"),
        (PLAN, "{buffers: 2}", '{buffers: "full"}'),
        (PLAN, "overlap: {buffers: 2}", "repeat: 80\ntokens: 2\nin_flight: 4\noverlap: full"),
        (PLAN, "tasks:\n", "blocks: [{repeat: 2, tasks: {a: {collective: all_reduce, of: w, over: h0..7}}}]\ntasks:\n"),
        (PLACED, "placement", "workload: {phase: prefill, batch: 2, prompt: 10, context: 0, in_flight: 2}\nplacement"),
        (PLACED, "38 layers", "50%"),
        (PLACED, "38 layers", "1 layer"),
        (PLACED, "38 layers", "20 GB"),
        (PLACED, "rest}", "rest}, compute: gpu0, kv: dram0, reserve: 1.5 GB, via: [dram0], host_memory: pageable"),
        (PLACED, "topology", "costs: {a: {each: layer, time: 2 us}, b: {each: step, time: {peak: 1 ms}}}\ntopology"),
    ],
)
def test_shorthand_is_valid(text, old, new):
    assert text.count(old) == 1
    assert errors_of("topology" if text is TOPOLOGY else "plan", text.replace(old, new)) == []


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        # Misspelt keys, at every depth.
        (TOPOLOGY, "memories:", "memory:"),
        (TOPOLOGY, "capacity", "capasity"),
        (TOPOLOGY, "rate: 1008 GB/s", "rate: {peek: 1008 GB/s}"),
        (TOPOLOGY, "flops", "flop"),
        (TOPOLOGY, "bf16", "bf61"),
        (PLAN, "overlap", "overlaps"),
        (PLAN, "home", "hom"),
        (PLAN, "after", "afer"),
        (PLAN, "buffers", "buffer"),
        (PLACED, "weights: q4_k_m", "weight: q4_k_m"),
        # Missing keys.
        (TOPOLOGY, "kind: hbm, ", ""),
        (TOPOLOGY, "memory: hbm0, ", ""),
        (TOPOLOGY, ", pcie: 4 x16", ""),
        (TOPOLOGY, "between: [s0, hbm0], ", ""),
        (PLAN, "topology: desktop-4090", "title: a"),
        (PLAN, "bytes: 528 MB, ", ""),
        (PLAN, ", to: hbm0", ""),
        (PLACED, "placement: {weights: {hbm0: 38 layers, dram0: rest}}", ""),
        (PLACED, "name: llama-3.1-70b, ", ""),
        # Wrong types, units and words.
        (TOPOLOGY, "24 GiB", "24"),
        (TOPOLOGY, "24 GiB", "24 GiB/s"),
        (TOPOLOGY, "1008 GB/s", "1008 GB"),
        (TOPOLOGY, "1008 GB/s", "1,008 GB/s"),
        (TOPOLOGY, "165 TFLOP/s", "165 TFLOP"),
        (TOPOLOGY, "kind: gpu", "kind: tpu"),
        (TOPOLOGY, "[s0, hbm0]", "s0"),
        (TOPOLOGY, "[s0, hbm0]", "[s0, hbm0, hbm0]"),
        (TOPOLOGY, "4 x16", "4 x12"),
        (TOPOLOGY, "4 x16", "7 x16"),
        (TOPOLOGY, "4 x16", "4 x16, latency: 6"),
        (TOPOLOGY, "4 x16", "4 x16, count: 0"),
        (TOPOLOGY, "4 x16", "4 x16, sustained: {pined: 26 GB/s}"),
        (PLAN, "528 MB", "528"),
        (PLAN, "1.76 GFLOP", "1.76 GFLOP/s"),
        (PLAN, "{buffers: 2}", "{buffers: 0}"),
        (PLAN, "{buffers: 2}", "simulate"),
        (PLAN, "to: hbm0", "to: hbm0, every: often"),
        (PLAN, "to: hbm0", "to: [hbm0]"),
        (PLACED, "38 layers", "38"),
        (PLACED, "38 layers", "thirty layers"),
        (PLACED, "placement", "workload: {batch: 0}\nplacement"),
        (PLACED, "placement", "workload: {batch: two}\nplacement"),
    ],
)
def test_what_is_wrong_is_not_valid(text, old, new):
    assert text.count(old) >= 1
    assert errors_of("topology" if text is TOPOLOGY else "plan", text.replace(old, new, 1)) != []


# --- quantities: every text that is read is valid ---

PARSERS = {
    "size": (units.SIZE, units.parse_bytes),
    "rate_text": (units.RATE, units.parse_rate),
    "sustained_rate": (units.RATE, units.parse_rate_interval),
    "flops_text": (units.SPEED, units.parse_flops),
    "work_range": (units.WORK, units.parse_flop_interval),
    "size_range": (units.SIZE, units.parse_bytes_interval),
    "seconds": (units.TIME, units.parse_seconds),
    "seconds_range": (units.TIME, units.parse_seconds_interval),
}
NUMBERS = st.sampled_from("0 1 8 3.5 .5 2. 1e3 1.5E+2 08 1000000 -1 1,000 1e x".split() + [""])
WIDTHS = ("4 x16", "PCIe 4 x16", "pcie gen4x8", "PCIe 4.0 x 16", "NVLink 4 x18", "6000 MT/s x 2", "x16", "16 GT/s x4")


@pytest.mark.few
@pytest.mark.parametrize("name", PARSERS)
def test_what_is_read_matches(name):
    kind, parse = PARSERS[name]
    pattern = re.compile(QUANTITIES[name]["pattern"])
    spaces = st.sampled_from(["", " ", "  "])
    slashes = (unit.replace("/", " / ") for unit in kind.units)
    unit = st.sampled_from([*kind.units, *slashes, "", "GBs", "XB/s", "\u00b5s"])
    one = st.builds("{}{}{}".format, NUMBERS, spaces, unit)
    ends = st.builds("{}{}{}{}".format, one | NUMBERS, spaces, st.sampled_from(["..", "-", "\u2026"]), one)
    seen = set()

    @given(one | ends | st.sampled_from(WIDTHS))
    @example(f"1 {next(iter(kind.units))}")
    @example("none")
    def check(text: str) -> None:
        try:
            parse(text)
        except OffloadError:
            seen.add(False)
            return
        seen.add(True)
        assert pattern.search(text), text

    check()
    assert seen == {True, False}


@pytest.mark.parametrize("name", [name for name in QUANTITIES if "examples" in QUANTITIES[name]])
def test_examples_match_their_own_pattern(name):
    for text in QUANTITIES[name]["examples"]:
        assert re.search(QUANTITIES[name]["pattern"], text)
    for text in ("", "24", "24 XB", "GB/s", "x", "none"):
        assert not re.search(QUANTITIES[name]["pattern"], text)


# --- the command line ---


@pytest.mark.parametrize(("words", "said"), [([], "topology|plan"), (["model"], "invalid"), (["Plan"], "invalid")])
def test_wrong_words(words, said, capsys):
    assert cli.main(["schema", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and said in captured.err
