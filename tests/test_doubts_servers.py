"""What users get wrong in servers: each doubt from a file that shows it, and none from one that nearly does."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload import cli
from offload.checking import Checked, check_file
from offload.documents import parse_document
from offload.documents.kinds import is_parts, kind_of
from offload.documents.topology_file import load_topology
from offload.errors import DocumentError

TITLE = "title: A box"
SWITCHES = "switches: {s0: {kind: socket}, s1: {kind: socket}}"
HBM = "  hbm0..1: {kind: hbm, capacity: 80 GB, rate: 2039 GB/s}"
DRAM = "  dram0..1: {kind: dram, at: s0..1, capacity: 512 GiB, rate: 4800 MT/s x 8}"
SSD = "  ssd0: {kind: nvme, capacity: 2 TB, read: 7 GB/s, write: 6 GB/s}"
GPU = "  gpu0..1: {kind: gpu, memory: hbm0..1, flops: {bf16: 312 TFLOP/s}}"
PCIE = "  pcie0..1: {between: [s0..1, hbm0..1], pcie: 4 x16}"
NVLINK = "  nvlink0: {between: [hbm0, hbm1], kind: nvlink, both_directions: 600 GB/s}"
M2 = "  m2: {between: [ssd0, s0], pcie: 4 x4}"
UPI = "  upi0: {between: [s0, s1], kind: upi, rate: 96 GB/s}"
SERVER = "\n".join([TITLE, SWITCHES, "memories:", HBM, DRAM, SSD, "processors:", GPU, "  cpu0..1: {kind: cpu, memory: "
                    "dram0..1}", "links:", PCIE, NVLINK, M2, UPI, ""])  # fmt: skip
SMALL = HBM.replace("80 GB", "24 GiB").replace("2039 GB/s", "936 GB/s")  # a card with GDDR memory


def check(tmp_path: Path, text: str, name: str = "box.yaml") -> Checked:
    (tmp_path / name).write_text(text, encoding="utf-8")
    return check_file(str(tmp_path / name))


def server(**lines: str) -> str:
    """The server with lines replaced: by a line's name, in lower case; "" takes it out, `also` adds links."""
    text = SERVER + lines.pop("also", "")
    for name, new in lines.items():
        old = globals()[name.upper()]
        assert text.count(old + "\n") == 1, name
        text = text.replace(old + "\n", f"{new}\n" if new else "")
    return text


def codes(tmp_path: Path, text: str) -> list[tuple[str, str]]:
    found = check(tmp_path, text)
    assert found.mistakes == ()
    return [(one.code, one.part) for one in found.warnings]


def test_the_server_is_sound(tmp_path):
    assert codes(tmp_path, SERVER) == []


STRIX = {"switches": "switches: {s0: {kind: socket}}", "upi": "", "nvlink": "", "ssd": "", "m2": "",
         "gpu": "  gpu0: {kind: gpu, memory: hbm0}", "pcie": "  pcie0: {between: [s0, hbm0], pcie: 4 x16}"}  # fmt: skip
CPUS = "  cpu0..1: {kind: cpu, memory: dram0..1}"
ONE = {"switches": "switches: {s0: {kind: socket}}", "upi": "", "pcie": PCIE.replace("s0..1", "s0"), "dram":
       DRAM.replace("dram0..1", "dram0").replace("s0..1", "s0"), "cpus": CPUS.replace("0..1", "0")}  # fmt: skip
RYZEN = ONE | {"title": "title: Ryzen 9 7950X", "hbm": SMALL, "nvlink": ""}
DESKTOP_DRAM = "  dram0: {kind: dram, at: s0, capacity: 96 GiB, rate: 6000 MT/s x 2}"
X8 = PCIE.replace("s0..1", "s0").replace("x16", "x8")
SATA = SSD.replace("read: 7 GB/s, write: 6 GB/s", "read: 0.55 GB/s, write: 0.5 GB/s")
HALF = NVLINK.replace("600", "300")
LARGE = "  hbm0..1: {kind: hbm, capacity: 180 GB, rate: 8000 GB/s}"
SLICES = "  hbm0..1: {kind: hbm, capacity: 10 GB, rate: 3352 GB/s}"


@pytest.mark.parametrize(
    ("lines", "found", "near"),
    [
        # A card's own generation, NVLinks and memory.
        ({"title": "title: 2 x A100", "pcie": PCIE.replace("4 x16", "5 x16")}, ("above-card", "pcie0..1"),
         {"title": "title: 2 x H100", "pcie": PCIE.replace("4 x16", "5 x16")}),
        ({"pcie": PCIE.replace("pcie: 4 x16", "kind: pcie, rate: 60 GB/s"), "title": "title: 2 x A100"},
         ("above-card", "pcie0..1"), {"pcie": PCIE.replace("pcie: 4 x16", "kind: pcie, rate: 60 GB/s")}),
        ({"hbm": SMALL, "title": "title: two RTX 3090"}, ("above-card", "nvlink0"),
         {"hbm": SMALL, "title": "title: two RTX 3090", "nvlink": NVLINK.replace("600", "112.5")}),
        ({"hbm": SMALL}, ("above-card", "nvlink0"), {"hbm": SMALL, "nvlink": NVLINK.replace("600", "200")}),
        ({"hbm": SMALL, "nvlink": NVLINK.replace("600", "112.5"), "title": "title: two RTX 4090"},
         ("above-card", "nvlink0"), {"hbm": SMALL, "nvlink": NVLINK.replace("600", "112.5")}),
        ({"hbm": HBM.replace("2039", "3352"), "title": "title: 2 x A100"}, ("above-card", "hbm0..1"),
         {"hbm": HBM.replace("2039", "1935"), "title": "title: 2 x A100"}),
        ({"nvlink": NVLINK.replace("both_directions: 600 GB/s", "rate: 7.2 TB/s")}, ("above-card", "nvlink0"),
         {"nvlink": NVLINK.replace("both_directions: 600 GB/s", "nvlink: 5 x18"), "hbm": LARGE}),
        # Slices of a GPU.
        ({"hbm": SLICES, "pcie": "  pcie0..1: {between: [s0..1, hbm0..1], pcie: 4 x8}"}, ("mig-slices", "hbm0..1"),
         {"hbm": SLICES.replace("3352", "419"), "nvlink": ""}),
        ({"title": "title: H100, MIG 1g.10gb", "hbm": SLICES.replace("3352", "419"), "nvlink": ""},
         ("mig-slices", "pcie0"),
         {"title": "title: H100, MIG 1g.10gb", "hbm": SLICES.replace("3352", "419"), "nvlink": "", "switches":
          SWITCHES[:-1] + ", card: {kind: pcie switch}}", "pcie": PCIE.replace("s0..1", "card"), "also":
          "  up: {between: [s0, card], pcie: 5 x16}\n"}),
        # Pageable copies, copies that are counted once.
        ({"pcie": PCIE.replace("4 x16", "4 x16, sustained: 6 GB/s")}, ("pageable", "pcie0..1"),
         {"pcie": PCIE.replace("4 x16", "4 x16, sustained: {pageable: 6 GB/s}")}),
        ({"pcie": PCIE.replace("4 x16", "4 x16, sustained: {pinned: 12 GB/s}")}, ("pageable", "pcie0..1"),
         {"pcie": PCIE.replace("4 x16", "4 x16, sustained: {pinned: 12 GB/s, pageable: 3 GB/s}")}),
        ({"dram": DRAM.replace("4800 MT/s x 8", "{peak: 4800 MT/s x 8, sustained: 120 GB/s}")},
         ("counted-once", "dram0..1"),
         {"dram": DRAM.replace("4800 MT/s x 8", "{peak: 4800 MT/s x 8, sustained: 200 GB/s}")}),
        ({"hbm": HBM.replace("2039 GB/s", "{peak: 2039 GB/s, sustained: 890 GB/s}")}, ("counted-once", "hbm0..1"),
         {"hbm": HBM.replace("2039 GB/s", "{peak: 2039 GB/s, sustained: {copy: 890 GB/s, read: 1769 GB/s}}")}),
        # Links that idle, side by side, both ways.
        ({"pcie": PCIE.replace("4 x16", "2 x16")}, ("idle-link", "pcie0..1"), {"pcie": PCIE.replace("4 x16", "3 x16")}),
        ({"pcie": PCIE.replace("pcie0..1", "slot0..1").replace("pcie: 4 x16", "rate: 4 GB/s")},
         ("idle-link", "slot0..1"),
         {"pcie": PCIE.replace("pcie0..1", "slot0..1").replace("pcie: 4 x16", "rate: 7 GB/s")}),
        ({"switches": SWITCHES[:-1] + ", w0: {kind: pcie switch}}", "m2": M2.replace("s0", "w0"),
          "also": "  up: {between: [s0, w0], pcie: 1 x16}\n", "ssd": SSD.replace("7", "3").replace("6", "3")},
         ("idle-link", "up"),
         {"switches": SWITCHES[:-1] + ", w0: {kind: pcie switch}}", "m2": M2.replace("s0", "w0"),
          "also": "  up: {between: [s0, w0], pcie: 3 x16}\n"}),
        ({"nvlink": HALF, "also": HALF.replace("nvlink0", "nvlink1") + "\n"}, ("parallel-links", "nvlink0"),
         {"also": "  pcie2: {between: [hbm0, hbm1], pcie: 4 x16}\n"}),
        ({"nvlink": "  x0: {between: [hbm0, hbm1], kind: xgmi, rate: 128 GB/s}"}, ("both-directions", "x0"),
         {"nvlink": "  x0: {between: [hbm0, hbm1], kind: xgmi, rate: 64 GB/s}"}),
        # Where host memory is.
        ({"dram": ONE["dram"], "cpus": ONE["cpus"]}, ("no-numa", "dram0"), ONE),
        ({"dram": DRAM + "\n  dram2: {kind: dram, capacity: 512 GiB, rate: 4800 MT/s x 8}"}, ("no-numa", "dram2"),
         {"dram": DRAM + "\n  cxl0: {kind: cxl, capacity: 512 GiB, rate: 30 GB/s}", "also":
          "  c0: {between: [cxl0, s1], pcie: 5 x8}\n"}),
        (ONE | {"title": "title: dual Xeon"}, ("no-numa", "dram0"), ONE | {"title": "title: one Xeon, two GPUs"}),
        ({"upi": ""}, ("sockets-apart", "dram1"), {"upi": UPI.replace("upi", "xgmi")}),
        # Modules and channels.
        ({"dram": DRAM.replace("512", "448")}, ("dram-uneven", "dram0..1"), {"dram": DRAM.replace("512", "384")}),
        ({"dram": DRAM.replace("512 GiB", "96 GB")}, ("dram-uneven", "dram0..1"), {"dram": DRAM.replace("512", "503")}),
        ({"dram": DRAM.replace("dram0..1", "dram0").replace("s0..1", "s0") + "\n" + DRAM.replace("dram0..1", "dram1")
          .replace("s0..1", "s1").replace("x 8", "x 6").replace("512", "384")}, ("dram-uneven", "dram1"),
         {"dram": DRAM.replace("dram0..1", "dram0").replace("s0..1", "s0").replace("512 GiB", "503 GiB") + "\n" +
          DRAM.replace("dram0..1", "dram1").replace("s0..1", "s1")}),
        ({"dram": DRAM.replace("x 8", "x 7").replace("512", "448")}, ("dram-channels", "dram0..1"),
         {"dram": DRAM.replace("x 8", "x 6").replace("512", "384")}),
        (RYZEN | {"dram": DESKTOP_DRAM.replace("x 2", "x 4"), "pcie": X8}, ("dram-channels", "dram0"),
         RYZEN | {"dram": DESKTOP_DRAM, "pcie": X8}),
        (RYZEN | {"dram": DESKTOP_DRAM.replace("6000 MT/s x 2", "192 GB/s"), "pcie": X8}, ("dram-rate", "dram0"),
         RYZEN | {"dram": DESKTOP_DRAM.replace("6000 MT/s x 2", "96 GB/s"), "pcie": X8}),
        ({"dram": DRAM.replace("4800 MT/s x 8", "{peak: 4800 MT/s x 8, source: DDR4-3200 modules}")},
         ("dram-speed", "dram0..1"),
         {"dram": DRAM.replace("4800 MT/s x 8", "{peak: 4400 MT/s x 8, source: DDR5-4800 modules}")}),
        (RYZEN | {"dram": DESKTOP_DRAM}, ("socket-lanes", "pcie0"),
         RYZEN | {"dram": DESKTOP_DRAM, "title": "title: Threadripper, as a Ryzen 9 in shape"}),
        # Drives.
        ({"ssd": SSD.replace("ssd0", "ssd0..3"), "m2": "  m2: {between: [ssd0..3, c0], pcie: 4 x4}", "switches":
          SWITCHES[:-1] + ", c0: {kind: chipset}}", "also": "  dmi: {between: [c0, s0], pcie: 4 x4}\n"},
         ("shared-uplink", "dmi"),
         {"ssd": SSD.replace("ssd0", "ssd0..3"), "m2": "  m2: {between: [ssd0..3, c0], pcie: 4 x4}", "switches":
          SWITCHES[:-1] + ", c0: {kind: chipset}}", "also": "  dmi: {between: [c0, s0], pcie: 4 x16}\n"}),
        ({"ssd": SSD.replace("ssd0: {", "raid5: {count: 4, "), "m2": M2.replace("ssd0", "raid5")[:-1] + ", count: 4}"},
         ("raid", "raid5"),
         {"ssd": SSD.replace("ssd0: {", "raid0: {count: 4, "), "m2": M2.replace("ssd0", "raid0")[:-1] + ", count: 4}"}),
        ({"ssd": SSD.replace("kind", "count: 4, kind").replace("7 GB/s", "28 GB/s"), "m2":
          M2.replace("4 x4", "5 x4, count: 8")}, ("raid", "ssd0"),
         {"ssd": SSD.replace("kind", "count: 4, kind").replace("7 GB/s", "14 GB/s"), "m2":
          M2.replace("4 x4", "5 x4, count: 8")}),
        ({"ssd": SSD.replace("read: 7 GB/s, write: 6 GB/s", "rate: 7 GB/s")}, ("one-rate", "ssd0"),
         {"ssd": SSD.replace("write: 6 GB/s", "write: unknown")}),
        ({"also": "  c2c0: {between: [s0, hbm0], kind: c2c, rate: {peak: 450 GB/s, sustained: 400 GB/s}}\n"},
         ("one-rate", "c2c0"), {"also": "  c2c0: {between: [s0, hbm0], kind: c2c, rate: 450 GB/s}\n"}),
        ({"switches": SWITCHES[:-1] + ", nic0: {kind: nic}, net: {kind: nic}}", "also": "  slot: {between: [s0, nic0], "
          "pcie: 4 x8}\n  eth: {between: [nic0, net], kind: ethernet, rate: 400 Gb/s}\n"}, ("above-link", "eth"),
         {"switches": SWITCHES[:-1] + ", nic0: {kind: nic}, net: {kind: nic}}", "also": "  slot: {between: [s0, nic0], "
          "pcie: 5 x16}\n  eth: {between: [nic0, net], kind: ethernet, rate: 400 Gb/s}\n"}),
        # Figures.
        ({"pcie": PCIE.replace("4 x16", "4 x16, latency: 6 ms")}, ("unit-slip", "pcie0..1"),
         {"pcie": PCIE.replace("4 x16", "4 x16, latency: 6 us")}),
        ({"m2": M2.replace("4 x4", "4 x4, latency: 80 ns")}, ("unit-slip", "m2"),
         {"m2": M2.replace("4 x4", "4 x4, latency: 0.2 ms")}),
        ({"hbm": HBM.replace("GB/s", "MB/s"), "nvlink": ""}, ("unit-slip", "hbm0..1"),
         {"hbm": HBM.replace("2039", "20"), "nvlink": ""}),
        ({"hbm": HBM.replace("80 GB", "80 TB")}, ("unit-slip", "hbm0..1"), {"hbm": HBM.replace("80 GB", "288 GB")}),
        ({"gpu": GPU.replace("TFLOP", "GFLOP")}, ("unit-slip", "gpu0..1"), {"gpu": GPU.replace("312", "2500")}),
        ({"pcie": PCIE.replace("4 x16", "4 x16, sustained: 26 MB/s")}, ("unit-slip", "pcie0..1"),
         {"pcie": PCIE.replace("4 x16", "4 x16, sustained: 26 GB/s")}),
        ({"gpu": GPU.replace("312", "624")}, ("sparse-flops", "gpu0..1"), {"gpu": GPU.replace("312", "989")}),
        ({"gpu": GPU.replace("bf16: 312", "fp8: 3958")}, ("sparse-flops", "gpu0..1"),
         {"gpu": GPU.replace("bf16: 312", "fp8: 1979")}),
        ({"pcie": PCIE.replace("4 x16", "4 x16, sustained: 0.85 %")}, ("percent", "pcie0..1"),
         {"pcie": PCIE.replace("4 x16", "4 x16, sustained: 85 %")}),
        ({"dram": DRAM.replace("512 GiB", "512 Gb")}, ("bits-bytes", "dram0..1"),
         {"dram": DRAM.replace("512 GiB", "512 GB")}),
        ({"m2": M2.replace("pcie: 4 x4", "kind: sata, rate: 6 GB/s"), "ssd": SATA}, ("bits-bytes", "m2"),
         {"m2": M2.replace("pcie: 4 x4", "kind: sata, rate: 6 Gb/s"), "ssd": SATA}),
        ({"upi": UPI.replace("upi,", "ethernet,").replace("96", "400")}, ("bits-bytes", "upi0"),
         {"upi": UPI.replace("upi,", "ethernet,").replace("96 GB", "400 Gb")}),
    ],
)  # fmt: skip
def test_a_doubt_and_what_nearly_is_one(lines, found, near, tmp_path):
    assert codes(tmp_path, server(**lines)) == [found]
    assert codes(tmp_path, server(**near)) == []


def test_the_links_of_a_gpu_are_not_each_as_fast_as_all(tmp_path):
    """A mesh of four in which each pair has the 450 GB/s of a whole H100, with and without its name."""
    text = "title: TITLE\nmemories:\n  h0..3: {kind: hbm, capacity: 80 GB, rate: 3352 GB/s}\n"
    text += "processors: {g0..3: {kind: gpu, memory: h0..3}}\nlinks:\n"
    text += "".join(f"  n{a}{b}: {{between: [h{a}, h{b}], nvlink: RATE}}\n" for b in range(4) for a in range(b))
    for title, code in (("four", "gpu-ports"), ("4 x H100", "above-card")):
        mesh = text.replace("TITLE", title)
        assert codes(tmp_path, mesh.replace("RATE", "4 x18")) == [(code, "n01, n02, n03")]
        assert codes(tmp_path, mesh.replace("RATE", "4 x6")) == [], "six links of each pair: an HGX H100 of four"
    whole = text.replace("nvlink: RATE", "kind: xgmi, rate: RATE").replace("3352", "5325").replace("80 GB", "192 GB")
    assert codes(tmp_path, whole.replace("RATE", "448 GB/s")) == [("gpu-ports", "n01, n02, n03")]
    assert codes(tmp_path, whole.replace("RATE", "64 GB/s")) == []


@pytest.mark.parametrize(
    ("title", "gpu", "host", "found"),
    [
        ("Mini PC", "capacity: 96 GiB, rate: 256 GB/s", "capacity: 32 GiB, rate: 8000 MT/s x 4", True),  # carved out
        ("DGX Spark", "capacity: 64 GB, rate: 273 GB/s", "capacity: 55 GB, rate: 200 GB/s", True),
        ("Mac Studio", "capacity: 384 GB, rate: 819 GB/s", "capacity: 128 GB, rate: 800 GB/s", True),
        ("Strix Halo", "capacity: 64 GB, rate: 250 GB/s", "capacity: 63 GB, rate: 256 GB/s", True),
        ("GH200", "capacity: 96 GiB, rate: 4022 GB/s", "capacity: 480 GB, rate: 384 GB/s", False),
        ("A T4", "capacity: 15 GiB, rate: 320 GB/s", "capacity: 256 GiB, rate: 4800 MT/s x 8", False),
    ],
)
def test_one_memory_drawn_as_two(title, gpu, host, found, tmp_path):
    text = f"""\
title: {title}
switches: {{s0: {{kind: socket}}}}
memories:
  hbm0: {{kind: hbm, {gpu}}}
  dram0: {{kind: dram, at: s0, {host}}}
processors:
  gpu0: {{kind: gpu, memory: hbm0}}
links:
  link0: {{between: [s0, hbm0], forward: 60 GB/s, backward: 60 GB/s}}
"""
    assert codes(tmp_path, text) == ([("unified-twice", "hbm0")] if found else [])
    one = "title: " + title + "\nmemories: {u0: {kind: unified, capacity: 128 GB, rate: 256 GB/s}}\n"
    assert codes(tmp_path, one + "processors: {g: {kind: gpu, memory: u0}, c: {kind: cpu, memory: u0}}\n") == []


def test_a_part_that_is_used_says_which_card_it_is(tmp_path):
    used = server(hbm="  hbm0..1: {use: a100-80-sxm}", pcie=PCIE.replace("4 x16", "5 x16"))
    assert codes(tmp_path, used) == [("above-card", "pcie0..1")]
    assert codes(tmp_path, used.replace("5 x16", "4 x16")) == []
    named = server(title="title: an A100 and an H100", pcie=PCIE.replace("4 x16", "5 x16"))
    assert codes(tmp_path, named) == [], "which of the two is where cannot be known"


def test_a_doubt_tells_line_key_and_value(tmp_path):
    lines = server(dram=DRAM.replace("4800 MT/s x 8", "4800 MT/s x 7"), pcie=PCIE.replace("4 x16", "1 x16"))
    found = {one.code: one for one in check(tmp_path, lines).warnings}
    numbered = lines.splitlines()
    for code, key, value in (("dram-channels", "memories.dram0..1.rate", "4800 MT/s x 7"),
                             ("idle-link", "links.pcie0..1.pcie", "1 x16")):  # fmt: skip
        one = found[code]
        assert (one.key, one.value) == (key, value) and value in numbered[one.line - 1]
    long = server(hbm=HBM.split("{")[0] + "\n    kind: hbm\n    capacity: 80 TB\n    rate: 2039 GB/s")
    (one,) = check(tmp_path, long).warnings
    assert (one.key, one.value, one.line) == ("memories.hbm0..1.capacity", "80 TB", 6)


# --- plans ---

PLAN = """\
topology: ./box.yaml
tensors:
  w: {bytes: BYTES, home: dram0}
  x: {bytes: 79 GB, home: hbm0, shared: true}
repeat: REPEAT
tasks:
  fetch: {move: w, to: hbm0}
  run: {compute: gpu0, flops: 1 GFLOP, reads: [w, x], after: fetch}
"""


@pytest.mark.few
@pytest.mark.parametrize(
    ("size", "repeat", "latency", "found"),
    [
        ("64 kB", "9000", "", [("no-latency", "fetch")]),
        ("64 kB", "9000", ", latency: 5 us", []),
        ("64 MB", "20", "", []),
        ("37B", "4000", ", latency: 5 us", [("billions", "w")]),
        ("37 bytes", "4000", ", latency: 5 us", []),
        ("400 Mb", "40", "", [("bits-bytes", "w")]),
    ],
)
def test_what_is_doubted_in_a_plan(size, repeat, latency, found, tmp_path):
    (tmp_path / "box.yaml").write_text(server(pcie=PCIE.replace("4 x16", f"4 x16{latency}")))
    told = codes_of_plan(tmp_path, PLAN.replace("BYTES", size).replace("REPEAT", repeat))
    assert [one for one in told if one[0] != "moved-for-nothing"] == found


def codes_of_plan(tmp_path: Path, text: str) -> list[tuple[str, str]]:
    found = check(tmp_path, text, "plan.yaml")
    assert found.mistakes == ()
    return [(one.code, one.part) for one in found.warnings]


def test_a_share_with_a_percent_sign_in_a_plan(tmp_path):
    text = "topology: desktop-4090\nmodel: {name: llama-3.1-70b, weights: q4_k_m}\n"
    text += "placement: {weights: {hbm0: SHARE, dram0: rest}}\n"
    assert ("percent", "weights") in codes_of_plan(tmp_path, text.replace("SHARE", "0.4 %"))
    assert codes_of_plan(tmp_path, text.replace("SHARE", "40 %")) == []


# --- parts ---

PARTS = """\
source: data sheets
memories:
  card: {kind: hbm, capacity: 96 GB, rate: {peak: 4 TB/s, sustained: 80 %}}
processors:
  card: {kind: gpu, flops: {bf16: 900 TFLOP/s}}
links:
  card: {pcie: 5 x16, latency: 6 us}
  card-nvlink: {nvlink: 4 x18}
"""


def test_a_file_of_parts_is_read_as_one(tmp_path, capsys):
    found = check(tmp_path, PARTS, "parts.yaml")
    assert (found.kind, found.mistakes, found.warnings) == ("parts", (), ())
    assert cli.main(["check", str(tmp_path / "parts.yaml")]) == 0
    assert "parts, sound" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("old", "new", "key", "says"),
    [
        ("pcie: 5 x16", "pcie: 5 x3", "links.card.pcie", "impossible width"),
        ("kind: gpu", "kind: gpu, memry: hbm0", "processors.card.memry", 'unknown key "memry"'),
        ("sustained: 80 %", "sustained: 5 TB/s", "memories.card.rate.sustained", "above the peak"),
        ("4 x18", "4 x18, use: other", "links.card-nvlink", ""),
        ("source:", "sorce:", "sorce", 'Did you mean "source"?'),
        ("nvlink: 4 x18", "kind: nvlink, rate: 900 GB/s", "links.card-nvlink.rate", "sum of both directions"),
        ("{pcie: 5 x16, latency: 6 us}", "fast", "links.card", "must be a map"),
    ],
)
def test_mistakes_in_a_file_of_parts(old, new, key, says, tmp_path):
    found = check(tmp_path, PARTS.replace(old, new), "parts.yaml")
    told = [one for one in found.mistakes if one.key == key and says in one.message]
    if "use" in new:  # then it refers to another part, and is no file of parts
        assert found.kind == "topology" and found.mistakes
    else:
        assert found.kind == "parts" and len(found.mistakes) == len(told) == 1


def test_doubts_in_a_file_of_parts(tmp_path):
    found = check(tmp_path, PARTS.replace("nvlink: 4 x18", "kind: nvlink, rate: 112.5 GB/s"), "parts.yaml")
    assert [(one.code, one.part, one.line) for one in found.warnings] == [("both-directions", "card-nvlink", 8)]


def test_what_is_a_file_of_parts():
    assert is_parts(parse_document(PARTS, "x")) and kind_of(parse_document(PARTS, "x")) == "parts"
    for text in (SERVER, PARTS + "title: a box\n", PARTS.replace("kind: gpu", "kind: gpu, memory: card"),
                 "memories: {h: {kind: hbm}}", "topology: a", "links: {a: {between: [b, c]}}"):  # fmt: skip
        assert not is_parts(parse_document(text, "x"))


def test_parts_are_no_topology(tmp_path):
    (tmp_path / "parts.yaml").write_text(PARTS)
    with pytest.raises(DocumentError, match="a file of parts; due is a topology"):
        load_topology(tmp_path / "parts.yaml")


def test_a_drive_without_a_link(tmp_path):
    assert codes(tmp_path, server(m2="")) == [("no-way", "ssd0")]
    at = SSD.replace("kind: nvme", "kind: nvme, at: s0")
    assert codes(tmp_path, server(m2="", ssd=at)) == []


@pytest.mark.parametrize(("rate", "doubted"), [("8 GB/s", True), ("7.88 GB/s", False), ("7.9 GB/s", False)])
def test_a_rate_that_idle_links_report(tmp_path, rate, doubted):
    """8 GB/s are 5 GT/s x16; eight lanes of PCIe 3 have 7.88."""
    found = codes(tmp_path, server(pcie=PCIE.replace("pcie: 4 x16", f"rate: {rate}")))
    assert found == ([("idle-link", "pcie0..1")] if doubted else [])


def test_pinned_copies_that_are_told_apart_from_pageable_ones(tmp_path):
    """A card of eight lanes in a link whose peak is that of sixteen."""
    slow = PCIE.replace("4 x16", "4 x16, sustained: {pinned: 12.5 GB/s, pageable: 6 GB/s}")
    assert codes(tmp_path, server(pcie=slow)) == []
