"""Checked files: each kind of warning from a file that shows it, none where it is meant or cannot be known."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from offload import cli
from offload.checking import check_file, kind_of
from offload.documents import parse_document
from offload.doubts import CODES

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = {"topologies": "topology", "servers": "topology", "outputs": "topology", "examples": "plan", "cases": "case",
           "parts": "parts"}  # fmt: skip
# What is doubted in shipped files and is their point.
MEANT = {"what-if": {"not-for-sale"}, "405b-from-drives": {"drive-for-nothing"},
         "replay-from-a-drive": {"moved-for-nothing"}}  # fmt: skip
FILES = [path for folder in ("topologies", "examples", "offload/cases") for path in (ROOT / folder).rglob("*.yaml")]

# A sound server; each case replaces one line or adds to it.
SERVER = """\
title: A box
switches: {s0: {kind: socket}}
memories:
  hbm0: {kind: hbm, capacity: 24 GB, rate: 900 GB/s}
  hbm1: {kind: hbm, capacity: 24 GB, rate: 900 GB/s}
  dram0: {kind: dram, at: s0, capacity: 96 GB, rate: 6000 MT/s x 2}
  ssd0: {kind: nvme, capacity: 2 TB, read: 7 GB/s, write: 6 GB/s}
processors:
  gpu0..1: {kind: gpu, memory: hbm0..1}
  cpu0: {kind: cpu, memory: dram0}
links:
  pcie0..1: {between: [s0, hbm0..1], pcie: 4 x16}
  nvlink0: {between: [hbm0, hbm1], both_directions: 112.5 GB/s, kind: nvlink}
  m2: {between: [ssd0, s0], pcie: 4 x4}
"""
PCIE = "  pcie0..1: {between: [s0, hbm0..1], pcie: 4 x16}"
SSD = "  ssd0: {kind: nvme, capacity: 2 TB, read: 7 GB/s, write: 6 GB/s}"
NVLINK = "  nvlink0: {between: [hbm0, hbm1], both_directions: 112.5 GB/s, kind: nvlink}"
DRAM = "  dram0: {kind: dram, at: s0, capacity: 96 GB, rate: 6000 MT/s x 2}"
HBM0 = "  hbm0: {kind: hbm, capacity: 24 GB, rate: 900 GB/s}"
M2 = "  m2: {between: [ssd0, s0], pcie: 4 x4}"


def server_with(**lines: str) -> str:
    text = SERVER
    for old, new in ((globals()[name.upper()], line) for name, line in lines.items()):
        assert text.count(old) == 1
        text = text.replace(old, f"  {new}")
    return text


def codes(tmp_path, text: str, name: str = "file.yaml") -> list[tuple[str, str]]:
    (tmp_path / name).write_text(text, encoding="utf-8")
    found = check_file(str(tmp_path / name))
    assert found.mistakes == ()
    return [(one.code, one.part) for one in found.warnings]


# --- servers ---


def test_a_sound_server_has_no_warning(tmp_path):
    assert codes(tmp_path, SERVER) == []


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        # Both directions taken for one.
        ({"pcie": "slot0..1: {between: [s0, hbm0..1], rate: 64 GB/s}"}, ("both-directions", "slot0..1")),
        # An idle reading, a riser.
        ({"pcie": "pcie0..1: {between: [s0, hbm0..1], pcie: 1 x16}"}, ("idle-link", "pcie0..1")),
        ({"pcie": "pcie0..1: {between: [s0, hbm0..1], pcie: 4 x1}"}, ("idle-link", "pcie0..1")),
        ({"pcie": "pcie0..1: {between: [s0, hbm0..1], kind: pcie, rate: 4 GB/s}"}, ("idle-link", "pcie0..1")),
        # A stripe, or a drive, above its link.
        ({"ssd": SSD.strip().replace("2 TB", "2 TB, count: 4")}, ("above-link", "ssd0")),
        ({"ssd": SSD.strip().replace("read: 7", "read: 14")}, ("above-link", "ssd0")),
        ({"ssd": SSD.strip().replace("write: 6", "write: 12")}, ("above-link", "ssd0")),
        # Memory channels.
        ({"dram": DRAM.strip().replace("6000 MT/s x 2", "12000 MT/s x 2")}, ("dram-speed", "dram0")),
        ({"dram": DRAM.strip().replace("6000 MT/s x 2", "{peak: 4800 MT/s x 16}")}, ("dram-channels", "dram0")),
        ({"dram": DRAM.strip().replace("6000 MT/s x 2", "900 GB/s")}, ("dram-rate", "dram0")),
        # The peak as what is sustained.
        ({"hbm0": HBM0.strip().replace("900 GB/s", "{peak: 900 GB/s, sustained: 900 GB/s}")}, ("line-rate", "hbm0")),
        ({"pcie": PCIE.strip().replace("4 x16", "4 x16, sustained: 100 %")}, ("line-rate", "pcie0..1")),
        # One memory drawn as two.
        ({"hbm0": "hbm0: {kind: hbm, capacity: 96 GB, rate: 96 GB/s}"}, ("unified-twice", "hbm0")),
        ({"hbm0": "hbm0: {kind: hbm, capacity: 96 GB, rate: 256 GB/s}"}, ("unified-twice", "hbm0")),
    ],
)
def test_what_is_doubted_in_a_server(lines, found, tmp_path):
    assert codes(tmp_path, server_with(**lines)) == [found]


@pytest.mark.parametrize(("name", "rate", "both"), [
    ("bridge", "600 GB/s", True), ("nvlink0", "112.5 GB/s", True), ("nv", "100 GB/s", False),
])  # fmt: skip
def test_a_link_of_no_kind_between_gpus_is_doubted(name, rate, both, tmp_path):
    """Copies between the GPUs pass the host and leave it idle, whatever its name and whichever its rate."""
    told = [("both-directions", name)] * both + [("no-kind", name)]  # one direction or both: that shows first
    assert codes(tmp_path, server_with(nvlink=f"{name}: {{between: [hbm0, hbm1], rate: {rate}}}")) == told


@pytest.mark.parametrize("kind", ["nvlink", "xgmi", "pcie"])
def test_a_link_of_some_kind_between_gpus_is_not_doubted(kind, tmp_path):
    assert codes(tmp_path, server_with(nvlink=f"nv: {{between: [hbm0, hbm1], kind: {kind}, rate: 100 GB/s}}")) == []


@pytest.mark.parametrize(
    "lines",
    [
        {"nvlink": "bridge: {between: [hbm0, hbm1], kind: nvlink, forward: 600 GB/s, backward: 600 GB/s}"},
        {"nvlink": "xgmi0: {between: [hbm0, hbm1], rate: 64 GB/s, kind: xgmi}"},
        {"pcie": "pcie0..1: {between: [s0, hbm0..1], pcie: 5 x8}"},
        {"ssd": SSD.strip().replace("read: 7 GB/s, write: 6 GB/s", "read: unknown, write: unknown")},
        {"ssd": SSD.strip().replace("2 TB", "2 TB, count: 4"), "m2": M2.strip().replace("4 x4", "4 x4, count: 4")},
        {"dram": DRAM.strip().replace("6000 MT/s x 2", "8800 MT/s x 12")},
        {"dram": DRAM.strip().replace("6000 MT/s x 2", "6400 MT/s x 4")},
        {"dram": DRAM.strip().replace("96 GB, rate: 6000 MT/s x 2", "24 GB, rate: unknown")},
        {"hbm0": HBM0.strip().replace("24 GB", "96 GB")},
        {"hbm0": HBM0.strip().replace("900 GB/s", "{peak: 900 GB/s, sustained: 860 GB/s}")},
    ],
)
def test_what_is_meant_or_cannot_be_known_is_not_doubted(lines, tmp_path):
    assert codes(tmp_path, server_with(**lines)) == []


def test_an_uplink_below_a_stripe(tmp_path):
    text = server_with(ssd=SSD.strip().replace("2 TB", "2 TB, count: 4"), m2="m2: {between: [ssd0, sw0], pcie: 4 x4, "
                       "count: 4}\n  up: {between: [sw0, s0], pcie: 4 x4}").replace(
        "{s0: {kind: socket}}", "{s0: {kind: socket}, sw0: {kind: chipset}}")  # fmt: skip
    (tmp_path / "raid.yaml").write_text(text)
    (warning,) = check_file(str(tmp_path / "raid.yaml")).warnings
    assert (warning.code, warning.part, warning.line) == ("above-link", "ssd0", 7)
    assert "4 x 7 GB/s = 28 GB/s" in warning.says and "up.s0 carries 7.877 GB/s" in warning.says


def test_memories_of_one_socket_count_together(tmp_path):
    two = "dram0..1: {kind: dram, at: s0, capacity: 96 GB, rate: 500 GB/s}"
    assert codes(tmp_path, server_with(dram=two)) == [("dram-rate", "dram0")]
    sockets = server_with(dram=two.replace("at: s0", "at: s0..1")).replace("{s0:", "{s1: {kind: socket}, s0:")
    joined = sockets.replace(M2, M2 + "\n  upi0: {between: [s0, s1], kind: upi, rate: 64 GB/s}")
    assert codes(tmp_path, joined) == []


def test_a_gpu_without_a_way(tmp_path):
    text = server_with(pcie=PCIE.strip().replace("pcie0..1", "pcie0").replace("hbm0..1", "hbm0"))
    assert codes(tmp_path, text) == [("no-way", "hbm1")], "a GPU's memory stages no copy for another"
    assert codes(tmp_path, text.replace(NVLINK + "\n", "")) == [("no-way", "hbm1")]
    assert codes(tmp_path, "memories: {h: {kind: hbm, rate: 9 GB/s}}\nprocessors: {g: {kind: gpu, memory: h}}") == []


def test_what_cannot_be_bought_is_told(tmp_path):
    """Each part once, whichever of its figures it is."""
    source = 'source: "a press page (announced)"'
    text = server_with(nvlink=f"nv: {{between: [hbm0, hbm1], kind: nvlink, rate: 100 GB/s, {source}}}")
    assert codes(tmp_path, text) == [("not-for-sale", "nv")]
    assert codes(tmp_path, text.replace("announced", "memory")) == []


# --- plans ---

PLAN = """\
topology: desktop-4090
tensors:
  w: {bytes: 1 GB, home: dram0}
  x: {bytes: 1 GB, home: hbm0}
repeat: 40
tasks:
  fetch: {move: w, to: hbm0}
  run: {compute: gpu0, flops: 1 GFLOP, reads: [w, x], after: fetch}
"""


FEW = {"repeat: 40": "repeat: 4"}
SMALL = {"x: {bytes: 1 GB": "x: {bytes: 10 MB"}  # so that the buffers fit, and the layers do not
SHARED = {"home: dram0": "home: dram0, shared: true", "x: {bytes: 1 GB": "x: {bytes: 400 MB"}


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, [("does-not-fit", "hbm0")]),
        (SMALL, []),
        (FEW, [("moved-for-nothing", "fetch")]),
        (FEW | {"to: hbm0}": "to: hbm0, every: 4 steps}"}, []),
        (FEW | {"reads: [w, x]": "reads: [w, x], writes: w"}, []),
        (SMALL | {"tasks:": "overlap: {buffers: 1}\ntasks:"}, [("one-buffer", "overlap")]),
        (SMALL | {"to: hbm0}": "to: hbm0, buffers: 1}"}, [("one-buffer", "fetch")]),
        (SMALL | {"tasks:": "overlap: none\ntasks:"}, []),
        (SMALL | {"home: dram0": "home: ssd0"}, [("drive-for-nothing", "fetch")]),
        (SMALL | {"home: dram0": "home: ssd0", "w: {bytes: 1 GB": "w: {bytes: 3 GB"}, []),
        (SHARED, [("moved-for-nothing", "fetch"), ("same-bytes-again", "fetch")]),
        (SHARED | {"to: hbm0}": "to: hbm0, every: step}"}, [("moved-for-nothing", "fetch")]),
        (SHARED | {"reads: [w, x]": "reads: [w, x], writes: w"}, []),
    ],
)
def test_what_is_doubted_in_a_plan_by_hand(changes, found, tmp_path):
    text = PLAN
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    assert codes(tmp_path, text) == found


def test_a_request_is_looked_at_with_its_prefill(tmp_path):
    text = "topology: desktop-4090\nmodel: {name: llama-3.1-8b, weights: q8_0}\nplacement: {weights: {hbm0: rest}}\n"
    text += "workload: {phase: generate, batch: BATCH, prompt: 4096, generate: 16}\n"
    assert codes(tmp_path, text.replace("BATCH", "1")) == []
    assert codes(tmp_path, text.replace("BATCH", "100")) == [("does-not-fit", "hbm0")]


def test_copies_through_the_host_between_gpus_on_nvlink(tmp_path):
    plan = """\
topology: {server}
tensors: {{a: {{bytes: 1 GB, home: hbm0}}}}
tasks:
  out: {{move: a, to: dram0}}
  in: {{move: a, to: hbm1, after: out}}
  straight: {{move: a, to: hbm1}}
  round: {{move: a, to: hbm1, via: dram0}}
  run: {{compute: gpu0, flops: 1 GFLOP, reads: a}}
"""
    (tmp_path / "box.yaml").write_text(SERVER)
    found = codes(tmp_path, plan.format(server="./box.yaml"))
    assert found == [("through-host", "in, round")]
    (tmp_path / "box.yaml").write_text(SERVER.replace(NVLINK + "\n", ""))
    assert codes(tmp_path, plan.format(server="./box.yaml")) == [], "there is no other way"


@pytest.mark.parametrize(
    ("placement", "found"),
    [
        ("{weights: {hbm0: 10 layers, dram0: rest}, compute: gpu0}", [("moved-for-nothing", "dram0")]),
        ("{weights: {hbm0: 10 layers, ssd0: rest}, compute: gpu0}", [("moved-for-nothing", "ssd0")]),
        ("{weights: {hbm0: 10 layers, dram0: rest}}", []),
        ("{weights: {hbm0: rest}}", []),
        ("{weights: {hbm0: rest}, kv: dram0}", [("moved-for-nothing", "kv")]),
        ("{weights: {hbm0: rest}, kv: dram0, attention: cpu0}", [("kv-for-nothing", "kv")]),
    ],
)
def test_what_is_doubted_in_a_placement(placement, found, tmp_path):
    text = f"topology: desktop-4090\nmodel: {{name: llama-3.1-8b, weights: q4_k_m}}\nplacement: {placement}\n"
    assert codes(tmp_path, text) == found


def test_moved_keys_and_values_of_every_head(tmp_path):
    text = "topology: desktop-4090\nmodel: {name: MODEL, weights: q4_0}\nworkload: {batch: 30, context: 4096}\n"
    text += "placement: {weights: {hbm0: rest}, kv: dram0}\n"
    assert codes(tmp_path, text.replace("MODEL", "llama-2-7b")) == [("kv-fat", "kv")]
    assert codes(tmp_path, text.replace("MODEL", "llama-3.1-8b").replace("30", "60")) == []


def test_a_plan_tells_the_doubts_of_its_own_server(tmp_path):
    (tmp_path / "own.yaml").write_text(server_with(pcie=PCIE.strip().replace("4 x16", "1 x16")))
    plan = PLAN.replace("desktop-4090", "own.yaml").replace("x: {bytes: 1 GB", "x: {bytes: 1 MB")
    (tmp_path / "plan.yaml").write_text(plan)
    (warning,) = check_file(str(tmp_path / "plan.yaml")).warnings
    assert (warning.file, warning.code, warning.line) == (str(tmp_path / "own.yaml"), "idle-link", 12)


# --- files and the command ---


def test_what_a_file_is():
    kinds = {"topology: a": "plan", "tensors: {}": "plan", "memories: {}": "topology", "links: {}": "topology",
             "plan: {}\nmeasured: {}\ntopology: a": "case", "title: a": "", "model_type: llama": ""}  # fmt: skip
    assert {text: kind_of(parse_document(text, "x")) for text in kinds} == kinds


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_what_is_shipped_is_sound_and_meant(path):
    found = check_file(str(path))
    assert found.kind == FOLDERS[path.parent.name]
    assert not found.mistakes and {one.code for one in found.warnings} == MEANT.get(path.stem, set())


def write(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "good.yaml": SERVER,
        "doubted.yaml": server_with(pcie=PCIE.strip().replace("4 x16", "1 x16")),
        "bad.yaml": SERVER.replace("kind: hbm,", "kind: hbn,"),
        "plan.yaml": "topology: bad.yaml\nmodel: {name: llama-3.1-8b:q8_0}\nplacement: {weights: {hbm0: rest}}\n",
        "other.yaml": "topology: bad.yaml\nmodel: {name: none}\nplacement: {weights: {hbm0: rest}}\n",
        "neither.yaml": "memory: {}\n",
        "config.json": '{"model_type": "llama"}',
        "case.yaml": "plan: ./plan.yaml\nmeasured: {value: 3 tok/s}\n",
        "empty.yaml": "",
        "tab.yaml": "a:\n\tb: 1\n",
    }.items():
        Path(name).write_text(text)


def test_one_file_does_not_hide_another(tmp_path, monkeypatch, capsys):
    write(tmp_path, monkeypatch)
    names = ["none.yaml", "bad.yaml", "empty.yaml", "tab.yaml", "neither.yaml", "config.json", "plan.yaml",
             "case.yaml", "other.yaml", "doubted.yaml", "good.yaml"]  # fmt: skip
    assert cli.main(["check", *names]) == 2
    captured = capsys.readouterr()
    assert captured.err == ""
    lines = captured.out.splitlines()
    heads = [line.split(": ")[0] for line in lines if not line.startswith(" ")]
    assert [head for head in heads if head in names] == names
    text = " ".join(captured.out.split())
    for said in (
        "none.yaml: not read, 1 mistake no such file",
        'bad.yaml: topology, 2 mistakes line 4, column 16, memories.hbm0.kind: unknown "hbn"',
        'Did you mean "memories"?',
        "this is a model's config.json",
        "plan.yaml: plan, 2 mistakes bad.yaml: line 4",
        "other.yaml: plan, 2 mistakes line 1, column 11, topology: bad.yaml: 2 mistakes line 4",
        'the key "kind" is missing. line 1, column 1: the key "source" is missing.',
        "doubted.yaml: topology, 1 warning line 12, pcie0..1: PCIe 1 x16",
        "[idle-link]",
        "good.yaml: topology, sound",
        "11 files, 9 with mistakes, 1 with warnings",
    ):
        assert said in text


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["good.yaml"], 0),
        (["doubted.yaml"], 0),
        (["doubted.yaml", "--strict"], 1),
        (["good.yaml", "--strict"], 0),
        (["doubted.yaml", "--strict", "--allow", "idle-link"], 0),
        (["doubted.yaml", "bad.yaml", "--strict"], 2),
    ],
)
def test_exit_statuses(words, status, tmp_path, monkeypatch, capsys):
    write(tmp_path, monkeypatch)
    assert cli.main(["check", *words]) == status
    assert cli.main(["check", *words, "--json"]) == status


def test_as_data(tmp_path, monkeypatch, capsys):
    write(tmp_path, monkeypatch)
    assert cli.main(["check", "doubted.yaml", "bad.yaml", "--json"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert found["sound"] is False and [one["kind"] for one in found["files"]] == ["topology", "topology"]
    doubted, bad = found["files"]
    assert doubted["warnings"][0] | {"says": "", "meant": ""} == {
        "file": "doubted.yaml", "line": 12, "code": "idle-link", "part": "pcie0..1", "says": "", "meant": "",
        "key": "links.pcie0..1.pcie", "value": "1 x16",
    }  # fmt: skip
    assert (bad["mistakes"][0]["line"], bad["mistakes"][0]["column"]) == (4, 16)


def test_wrong_words(tmp_path, monkeypatch, capsys):
    write(tmp_path, monkeypatch)
    assert cli.main(["check"]) == 2
    assert cli.main(["check", "good.yaml", "--allow", "idle"]) == 2
    assert 'Did you mean "idle-link"?' in capsys.readouterr().err


def test_every_code_is_told_and_found_by_a_test():
    page = (ROOT / "docs" / "checking-files.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| `([a-z-]+)` \|", page, re.M)
    assert told == list(CODES)
    tests = [ROOT / "tests" / name for name in ("test_check.py", "test_doubts_servers.py")]
    here = "".join(path.read_text(encoding="utf-8") for path in tests)
    assert [code for code in CODES if f'("{code}", ' not in here] == []
