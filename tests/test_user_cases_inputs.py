"""What users write in files: bad and odd inputs that were seen in public threads, each answered in words or as meant.

The numbers are those of a list of such inputs, which is complete in `test_user_cases_listed`.
"""

from __future__ import annotations

import pytest

from offload import cli
from offload.documents import load_plan, load_topology
from offload.documents.case_file import load_cases
from offload.errors import OffloadError
from offload.units import parse_bytes, parse_rate, parse_seconds
from offload.validation import run_case

SERVER = """\
switches: {socket0: {kind: socket}}
memories:
  hbm0: {kind: hbm, capacity: 24 GB, rate: 1000 GB/s}
  dram0: {kind: dram, at: socket0, capacity: 64 GB, rate: 80 GB/s}
processors:
  gpu0: {kind: gpu, memory: hbm0, flops: {fp16: 100 TFLOP/s}}
links:
  pcie0: {between: [socket0, hbm0], rate: 25 GB/s}
"""
PLAN = """\
topology: ./server.yaml
tensors:
  w: {bytes: 1 GB, home: dram0}
repeat: 4
tasks:
  fetch: {move: w, to: hbm0}
  layer: {compute: gpu0, reads: w, after: fetch}
"""


def server(folder, *changes, data=None):
    """The server with texts replaced, as read."""
    text = SERVER
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        assert old in text
        text = text.replace(old, new, 1)
    path = folder / "server.yaml"
    path.write_bytes(text.encode() if data is None else data)
    return load_topology(path)


def plan(folder, *changes):
    server(folder)
    text = PLAN
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        assert old in text
        text = text.replace(old, new, 1)
    (folder / "plan.yaml").write_text(text, encoding="utf-8")
    return load_plan(folder / "plan.yaml")


def check(folder, capsys, *changes):
    server(folder, *changes)
    cli.main(["check", str(folder / "server.yaml")])
    said = capsys.readouterr()
    return " ".join((said.out + said.err).split())


@pytest.mark.parametrize(
    ("number", "old", "new", "told"),
    [
        (1, "rate: 25 GB/s", "rate: 1e9", "GB/s"),
        (2, "pcie0: {between", "41:00.0: {between", "41:00.0"),
        (3, "hbm0: {kind", "NO: {kind", 'Quote it if it is a name: "NO"'),
        (3, "hbm0: {kind", "010: {kind", 'Quote it if it is a name: "010"'),
        (4, "rate: 25 GB/s", "rate: 400G", "400G"),
        (5, "rate: 25 GB/s", "pcie: x16", "generation"),
        (5, "rate: 25 GB/s", "pcie: 4 x3", "x3"),
        (5, "rate: 25 GB/s", "pcie: 4 x0", "x0"),
        (10, "rate: 25 GB/s", "rate: 0 GB/s", "pcie0.rate"),
        (10, "rate: 25 GB/s", "rate: -3 GB/s", "pcie0.rate"),
        (10, "rate: 25 GB/s", "rate: .nan", "pcie0.rate"),
        (10, "rate: 25 GB/s", "rate: .inf", "pcie0.rate"),
        (10, "rate: 25 GB/s", "rate: ", "pcie0.rate"),
        (10, "rate: 25 GB/s", "rate: ~", "pcie0.rate"),
        (11, "capacity: 24 GB", "capacity: -1 GB", "capacity"),
        (11, "capacity: 24 GB", "capacity: 1e30 B", "capacity"),
        (12, "rate: 25 GB/s", "rate: '1,008 GB/s'", "1008"),
        (12, "rate: 25 GB/s", "rate: 1/2", "pcie0.rate"),
        (12, "rate: 25 GB/s", "rate: ~25", "pcie0.rate"),
        (13, "rate: 25 GB/s", "rate: 25 GB/s, rate: 26 GB/s", "twice"),
        (14, "  dram0: {kind", "  hbm0: {kind: hbm, capacity: 1 GB, rate: 1 GB/s}\n  dram0: {kind", "line"),
        (15, "[socket0, hbm0]", "[hbm0, hbm0]", "itself"),
        (17, "[socket0, hbm0]", "[socket0, HBM0]", 'Did you mean "hbm0"'),
        (17, "memory: hbm0", "memory: hbm1", 'Did you mean "hbm0"'),
        (18, "switches:", "\tswitches:", "tab"),
        (18, "links:\n", "---\nlinks:\n", "document"),
        (18, "{kind: socket}", "{kind:socket}", "kind"),
        (19, "{kind: socket}", "&x {kind: socket, source: *x}", "itself"),
        (24, "rate: 25 GB/s", "rate: {peak: 25 GB/s, sustained: 85}", "sustained"),
        (28, "rate: 25 GB/s", "rate: 25 GB/s, latency: 5", "latency"),
    ],
)  # fmt: skip
def test_refused_with_what_works(number, old, new, told, tmp_path):
    with pytest.raises(OffloadError) as error:
        server(tmp_path, old, new)
    assert told in str(error.value), f"C{number}: {error.value}"


def test_c1_a_number_with_its_unit_is_read_however_it_is_written(tmp_path):
    rates = {server(tmp_path, "25 GB/s", text).links["pcie0"].forward.peak for text in ("25e9 B/s", "2.5E10 B/s")}
    assert rates == {25e9}


def test_c2_unquoted_addresses_are_no_numbers_in_base_60(tmp_path):
    for name in ("01:00.0", "0000:01:00.0", "3b:00.0"):
        with pytest.raises(OffloadError) as error:
            server(tmp_path, "  pcie0: {between", f"  {name}: {{between")
        assert name in str(error.value)


def test_c4_bits_and_bytes():
    assert parse_rate("50 Gb/s") == 6.25e9 and parse_rate("50 GB/s") == 50e9 and parse_rate("50 GiB/s") == 50 * 2**30
    assert parse_rate("50Gbps") == 6.25e9 and parse_rate("50 GBps") == 50e9


def test_c5_transfers_are_no_bytes(tmp_path):
    gen4 = server(tmp_path, "rate: 25 GB/s", "pcie: 4 x16").links["pcie0"].forward.peak
    assert gen4 == pytest.approx(31.508e9, rel=1e-4)
    assert server(tmp_path, "rate: 25 GB/s", "pcie: 1 x16").links["pcie0"].forward.peak == 4e9


def test_c6_a_headline_of_both_directions_is_refused(tmp_path):
    with pytest.raises(OffloadError, match="sum of both directions of PCIe 4 x16"):
        server(tmp_path, "rate: 25 GB/s", "kind: pcie, rate: 64 GB/s")
    with pytest.raises(OffloadError, match="both directions"):
        server(tmp_path, "rate: 25 GB/s", "kind: nvlink, rate: 900 GB/s")


def test_c7_one_value_for_both_ways_and_two(tmp_path):
    one = server(tmp_path).links["pcie0"]
    assert one.forward == one.backward
    two = server(tmp_path, "rate: 25 GB/s", "forward: 25 GB/s, backward: 20 GB/s").links["pcie0"]
    assert (two.forward.peak, two.backward.peak) == (25e9, 20e9)


def test_c9_an_idle_link_is_doubted(tmp_path, capsys):
    assert "idle" in check(tmp_path, capsys, "rate: 25 GB/s", "pcie: 1 x16")


def test_c11_counts_and_sizes_of_a_plan(tmp_path):
    for old, new in (("bytes: 1 GB", "bytes: -1 GB"), ("bytes: 1 GB", "bytes: 1e30 B"), ("repeat: 4", "repeat: -1"),
                     ("repeat: 4", "repeat: 99999999999999999999"), ("bytes: 1 GB", "bytes: 1.5 B")):  # fmt: skip
        with pytest.raises(OffloadError):
            plan(tmp_path, old, new)


def test_c14_a_bundle_of_links(tmp_path):
    assert server(tmp_path, "rate: 25 GB/s", "rate: 25 GB/s, count: 2").links["pcie0"].forward.peak == 50e9


def test_c15_rings_are_legal(tmp_path):
    ring = "  a: {between: [hbm0, hbm1], rate: 50 GB/s}\n  b: {between: [hbm1, hbm2], rate: 50 GB/s}\n"
    ring += "  c: {between: [hbm2, hbm0], rate: 50 GB/s}\n"
    more = "  hbm1..2: {kind: hbm, capacity: 24 GB, rate: 1000 GB/s}\n  dram0"
    assert set(server(tmp_path, "  dram0", more, "links:\n", "links:\n" + ring).links) == {"a", "b", "c", "pcie0"}


def test_c16_a_tensor_without_a_way(tmp_path):
    server(tmp_path)
    text = SERVER.replace("[socket0, hbm0]", "[socket0, hbm1]").replace(
        "  dram0", "  hbm1: {kind: hbm, capacity: 24 GB, rate: 1000 GB/s}\n  dram0")
    (tmp_path / "apart.yaml").write_text(text)
    (tmp_path / "plan.yaml").write_text(PLAN.replace("server", "apart"))
    assert cli.main(["step", str(tmp_path / "plan.yaml")]) != 0


def test_c18_a_byte_order_mark_is_read_over(tmp_path):
    assert server(tmp_path, data=b"\xef\xbb\xbf" + SERVER.encode()).links["pcie0"].forward.peak == 25e9


def test_c19_merge_keys_work_and_bombs_do_not(tmp_path):
    merged = server(tmp_path, "hbm0: {kind", "hbm0: &m {kind", "  dram0", "  hbm1: {<<: *m, capacity: 8 GB}\n  dram0")
    assert merged.memories["hbm1"].capacity == 8e9 and merged.memories["hbm0"].capacity == 24e9
    bomb = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 8))
    with pytest.raises(OffloadError):
        server(tmp_path, data=bomb.encode())


def test_c20_names_of_any_letters(tmp_path):
    more = "  speicher_ä: {kind: dram, capacity: 1 GB, rate: 1 GB/s}\n  dram0: {kind"
    assert "speicher_ä" in server(tmp_path, "  dram0: {kind", more).memories


def test_c22_one_memory_for_both(tmp_path):
    text = PLAN.replace("./server.yaml", "dgx-spark").replace("home: dram0", "home: unified0").replace(
        "  fetch: {move: w, to: hbm0}\n", "").replace(", after: fetch", "")
    (tmp_path / "plan.yaml").write_text(text)
    assert cli.main(["step", str(tmp_path / "plan.yaml")]) == 0
    assert list(load_topology("dgx-spark").memories)[0] == "unified0"


def test_c27_a_measurement_above_the_ceiling_is_loud(tmp_path, capsys):
    case = "kind: weight_stream\nstrength: A\nsource: {title: t, url: https://example.org/t}\nplan: ./plan.yaml\n"
    plan(tmp_path)
    (tmp_path / "case.yaml").write_text(case + "measured: {value: 100 tok/s}\n")
    assert run_case(load_cases(tmp_path / "case.yaml")[0]).failed
    assert cli.main(["validate", str(tmp_path / "case.yaml")]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "an input contradicts physics" in said and "Likely: a unit" in said and "drive's page cache" in said


def test_c28_times_need_their_unit():
    assert parse_seconds("5 us") == 5e-6 and parse_seconds("5 ms") == 5e-3
    with pytest.raises(OffloadError):
        parse_seconds("5")


def test_c25_sizes_need_their_unit():
    for text in ("37B params", "37", "Q4"):
        with pytest.raises(OffloadError):
            parse_bytes(text)
