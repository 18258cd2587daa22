"""Import: rates of a drive that the output does not name, the drive that is named before it, and what may be added."""

from __future__ import annotations

import json
import re

import pytest

from offload import cli
from offload.documents import parse_document
from offload.documents.parts_library import part, shipped_parts
from offload.documents.topology_file import read_topology
from offload.errors import OffloadError
from offload.importing import EXAMPLES, import_outputs
from offload.importing.named_drives import drive_and_path, with_drive
from offload.readers.tools.finding import Delay, Device, Finding, Machine, Measured, Numa
from offload.topology.checks import MEMORY_KINDS
from offload.topology.shares import DRIVES

GIB = 2**30
NODE = Numa(0, GIB, 8, 0)


def box(drives: int) -> Finding:
    return Finding("lsblk -J", Machine((NODE,), tuple(Device(f"d{n}", "nvme", n, size=GIB) for n in range(drives))))


def fio(*rates: Measured, unknown: tuple[str, ...] = ("which drive it was",)) -> Finding:
    return Finding("fio", rates=rates, delays=(Delay("drive", "host", 8e-5),), unknown=unknown, file="fio.json")


READ, WRITTEN = Measured("drive", "host", 5e9, "read"), Measured("host", "drive", 3e9, "write")


def test_without_a_name_the_lines_say_how_to_give_it():
    imported = import_outputs([box(2), fio(READ, WRITTEN)])
    assert not any(rate.sustained for one in imported.topology.memories.values() for rate in (one.read,) if rate)
    told = [text for text in imported.not_used if "read" in text or "write" in text]
    assert told and all("(ssd0..1): write it before the file, as ssd0=fio.json" in text for text in told)
    assert "fio.json: which drive it was; DRIVE=FILE, as ssd0=fio.json, says it" in imported.unknown


@pytest.mark.parametrize("drive", ["ssd0", "ssd1"])
def test_with_a_name_the_drive_has_the_rates_and_nothing_is_open(drive):
    named = with_drive((fio(READ, WRITTEN),), drive)
    imported = import_outputs([box(2), *named])
    memory = imported.topology.memories[drive]
    assert memory.read.sustained[""].value == 5e9 and memory.write.sustained[""].value == 3e9
    other = imported.topology.memories["ssd1" if drive == "ssd0" else "ssd0"]
    assert not any(rate.sustained for rate in (other.rate, other.read, other.write) if rate)
    assert f"fio.json: the drive is {drive}, as is said with the file's name" in imported.assumed
    assert not any("which drive" in text for text in (*imported.unknown, *imported.not_used))
    assert read_topology(parse_document(imported.text, "box.yaml"), name="my-box") == imported.topology


def test_a_number_of_fio_that_is_none_here_may_be_named():
    rate = Measured("drive5", "host", 5e9, "read")
    numbered = Finding("fio", rates=(rate,), file="fio.json")
    imported = import_outputs([box(2), numbered])
    assert any("drive5 is none of the drives here (ssd0..1)" in text for text in imported.not_used)
    imported = import_outputs([box(2), *with_drive((numbered,), "ssd1")])
    assert imported.topology.memories["ssd1"].read.sustained[""].value == 5e9


def test_no_drive_at_all_says_what_tells_one():
    imported = import_outputs([box(0), fio(READ)])
    assert any("no drive is known here: add an output that tells the drives" in text for text in imported.not_used)


def test_names_that_cannot_be():
    with pytest.raises(OffloadError, match=r'ssd7=fio.json: there is no drive "ssd7". Drives: ssd0, ssd1.'):
        import_outputs([box(2), *with_drive((fio(READ),), "ssd7")])
    with pytest.raises(OffloadError, match="no rate of one drive"):
        with_drive((Finding("STREAM", rates=(Measured("host", "host", 1e9),), file="s.txt"),), "ssd0")
    several = Finding("fio", rates=(Measured("drive0", "host", 1e9), Measured("drive1", "host", 1e9)), file="f")
    with pytest.raises(OffloadError, match="it tells drive0, drive1 apart"):
        with_drive((several,), "ssd0")


def test_a_file_of_such_a_name_is_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert drive_and_path("ssd1=fio.json") == ("ssd1", "fio.json")
    (tmp_path / "ssd1=fio.json").write_text("{}")
    assert drive_and_path("ssd1=fio.json") == ("", "ssd1=fio.json")
    assert drive_and_path("runs/a=b.json") == ("", "runs/a=b.json")


def test_on_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    disk = {"type": "disk", "size": 10**12, "tran": "nvme"}
    (tmp_path / "lsblk.json").write_text(json.dumps({"blockdevices": [disk | {"name": f"nvme{n}n1"} for n in (0, 1)]}))
    (tmp_path / "numactl.txt").write_text("available: 1 nodes (0)\nnode 0 cpus: 0 1\nnode 0 size: 64000 MB\n")
    job = {"jobname": "a", "groupid": 0, "error": 0, "read": {"io_bytes": 10**11, "bw_bytes": 5 * 10**9, "runtime": 10},
           "job options": {"filename": "/data/f", "rw": "read", "bs": "1M", "direct": "1"}}  # fmt: skip
    run = {"fio version": "fio-3.33", "jobs": [job], "disk_util": [{"name": "sda"}]}
    (tmp_path / "fio.json").write_text(json.dumps(run))
    assert cli.main(["topology", "import", "lsblk.json", "numactl.txt", "fio.json"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "as ssd0=fio.json" in printed and "ssd1.read sustained" not in printed
    assert cli.main(["topology", "import", "lsblk.json", "numactl.txt", "ssd1=fio.json", "-o", "box.yaml"]) == 0
    assert re.search(r"ssd1.read sustained +5 GB/s +fio.json:", capsys.readouterr().out)


@pytest.mark.parametrize("kind", MEMORY_KINDS)
def test_what_is_said_to_add_can_be_added(kind):
    """Each line names a key with an example value: put in place of `unknown`, the file reads."""
    keys = ("read", "write") if kind in DRIVES else ("rate",)
    own = "".join(f", {key}: unknown" for key in keys)
    text = f"""
title: a box
memories:
  m0: {{kind: {kind}, capacity: 1 GiB{own}}}
  dram7: {{kind: dram, capacity: 1 GiB, rate: 50 GB/s}}
processors:
  cpu0: {{kind: cpu, memory: dram7}}
links:
  l0: {{between: [m0, dram7], rate: 10 GB/s}}
"""
    start = read_topology(parse_document(text, "box.yaml"), name="box")
    unknown = import_outputs([], onto=start).unknown
    for key in keys:
        line = next(one for one in unknown if one.startswith(f"m0: {key} unknown"))
        example = re.search(rf"Add it, as {key}: (\{{[^}}]*\}})", line)[1]
        of_kind = any(part("memories", name).get("kind") == kind for name in shipped_parts("memories"))
        assert ("use: NAME (offload topology list --parts)" in line) == of_kind
        text = text.replace(f"{key}: unknown", f"{key}: {example}")
    flops = re.search(r"as (flops: \{[^}]*\})", next(one for one in unknown if one.startswith("cpu0")))[1]
    filled = read_topology(parse_document(text.replace("memory: dram7", f"memory: dram7, {flops}"), "b"), name="box")
    assert import_outputs([], onto=filled).unknown == ()
    for key in keys:
        rate = getattr(filled.memories["m0"], key)
        assert (rate.rated if kind in DRIVES else rate.peak) > rate.sustained[""].value
    assert set(EXAMPLES) == set(MEMORY_KINDS)


def test_the_shipped_parts_are_listed(capsys):
    assert cli.main(["topology", "list", "--parts", "--json"]) == 0
    parts = json.loads(capsys.readouterr().out)["parts"]
    assert parts["memories"] == list(shipped_parts("memories")) and "switches" not in parts
    assert cli.main(["topology", "list", "--parts"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for names in parts.values() for name in names)
    assert cli.main(["topology", "list", "--parts", "gh200"]) == 2
    assert "drop the names" in capsys.readouterr().err
