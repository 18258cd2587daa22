"""Values set from elsewhere: paths of plans and of servers, and the command line."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload import cli
from offload.documents import load_plan, load_topology, parse_document, read_setting
from offload.documents.plan_shape import PlanShape
from offload.documents.server_settings import change_topology
from offload.documents.settings import PLAN_KEYS
from offload.errors import DocumentError, OffloadError
from offload.plan import UNLIMITED, Overlap
from offload.topology import Interval, Topology
from tests.strategies import topologies

ROOT = Path(__file__).resolve().parent.parent
PLACED, BY_HAND = ROOT / "examples" / "llama-3.1-70b-desktop.yaml", ROOT / "examples" / "by-hand.yaml"
TRAINED = ROOT / "examples" / "train-3b-zero-offload.yaml"
PAGE = (ROOT / "docs" / "changing-values.md").read_text(encoding="utf-8")
DESKTOP = load_topology("desktop-4090")
DGX = load_topology("dgx-h100")


def with_settings(path: Path, *texts: str, **extra):
    return load_plan(path, settings=[read_setting(text) for text in texts], **extra)


def changed(*texts: str, server: Topology = DESKTOP) -> Topology:
    return change_topology(server, [read_setting(text) for text in texts])


def refused(*texts: str, server: Topology = DESKTOP) -> str:
    with pytest.raises(OffloadError) as caught:
        changed(*texts, server=server)
    return str(caught.value)


# --- paths ---


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("workload.batch=8", ("workload", "batch"), "8"),
        (" a . b = 1 ", ("a", "b"), "1"),
        ("a[0].b=x=y", ("a", "0", "b"), "x=y"),
        ('tensors."kv.0 = 1".bytes=1 GB', ("tensors", "kv.0 = 1", "bytes"), "1 GB"),
        ("tensors.'a'.x=", ("tensors", "a", "x"), ""),
        ("gpu0..7.flops.bf16.rate=3", ("gpu0..7", "flops", "bf16", "rate"), "3"),
    ],
)
def test_paths_are_read(text, path, value):
    setting = read_setting(text)
    assert (setting.path, setting.text) == (path, value) and setting.origin.startswith("--set ")


@pytest.mark.parametrize("text", ["", "abc", "=3", "a.=3", ".a=3", "a..b=3", '""=1', '"a=1', "a[x]=1", "a[=1"])
def test_what_is_no_path_is_refused(text):
    with pytest.raises(OffloadError, match=r"workload\.batch=8"):
        read_setting(text)


def test_a_long_or_odd_setting_is_shown_short_and_plain():
    assert read_setting("a=" + "x" * 500).origin == "--set a=" + "x" * 98 + "..."
    assert "\x1b" not in read_setting("a=\x1b[31m\nb").origin


# --- plans ---


def test_settings_change_a_plan_by_placement():
    plan, topology = with_settings(PLACED, "workload.batch=3", "overlap.buffers=4", "placement.weights.hbm0=10 layers")
    same, _ = load_plan(PLACED)
    assert plan.workload["batch"] == 3 and plan.tokens == 3 and plan.overlap == Overlap("buffers", 4)
    assert topology.name == "desktop-4090" and "batch 3" in plan.title
    assert plan.assumptions[:3] == (
        '--set workload.batch=3: the plan\'s file says "1"',
        "--set overlap.buffers=4: the plan's file does not say it",
        '--set placement.weights.hbm0=10 layers: the plan\'s file says "38 layers"',
    )
    assert "realised placement: 10 layers in hbm0, 70 layers in dram0" in plan.assumptions
    assert not [note for note in same.assumptions if note.startswith("--set")]


def test_settings_change_a_plan_by_hand():
    plan, _ = with_settings(BY_HAND, "tensors.w.bytes=1 GB", "tasks.fetch.buffers=3", "repeat=4", "overlap=full")
    assert plan.tensors["w"].bytes == 10**9 and plan.blocks[0].repeat == 4
    assert plan.blocks[0].tasks[0].buffers == 3 and plan.overlap.buffers == UNLIMITED


def test_a_setting_mends_a_mistake_of_the_file(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(PLACED.read_text().replace("batch: 1", "batch: 0"))
    with pytest.raises(DocumentError):
        load_plan(path)
    assert with_settings(path, "workload.batch=2")[0].tokens == 2


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [
        (PLACED, "workload.batch=abc", '--set workload.batch=abc: must be a whole number, not "abc"'),
        (PLACED, "workload.bacth=3", 'unknown key "bacth"'),
        (PLACED, "workload.batch.x=3", "workload.batch"),
        (PLACED, "workload=3", "must be a map"),
        (PLACED, "wrokload.batch=3", 'Did you mean "workload"?'),
        (PLACED, "model.weights=q4", "--set model.weights=q4: "),
        (PLACED, "placement.weights.hbm0=90 layers", "Place 10 fewer. (With --set placement.weights.hbm0=90 layers.)"),
        (PLACED, "placement.weights.hbm1=3 layers", '--set placement.weights.hbm1=3 layers: no memory "hbm1"'),
        (PLACED, "tokens=3", '"tokens" belongs to a plan by hand'),
        (BY_HAND, "workload.batch=3", '"workload" belongs to a plan by placement'),
        (BY_HAND, "costs.x={each: step, time: 1 ms}", '"costs" belongs to a plan by placement'),
        (BY_HAND, "tensors.v.bytes=3 GB", 'no tensor "v". Tensors: kv, w. Did you mean'),
        (BY_HAND, "tasks.fetsh.buffers=3", 'no task "fetsh". Tasks: fetch, layer. Did you mean "fetch"?'),
        (BY_HAND, "tensors.w.bytes=3 GB/s", "is a rate, where a size is due"),
        (BY_HAND, "tensors.w.home.dram0=3 GB", 'tensors.w.home is "dram0" and no map'),
        (BY_HAND, "blocks.0.repeat=3", "blocks"),
        (BY_HAND, "topology=nothing", '--set topology=nothing: no topology "nothing"'),
    ],
)
def test_a_setting_that_cannot_be_says_so(path, text, said):
    with pytest.raises(OffloadError) as caught:
        with_settings(path, text)
    assert said in str(caught.value) and f"--set {text}" in str(caught.value) and "line 0" not in str(caught.value)


def test_all_mistakes_of_the_file_and_of_the_settings_are_told_at_once(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(PLACED.read_text().replace("batch: 1", "batch: 0"))
    with pytest.raises(DocumentError) as caught:
        with_settings(path, "placement.kv=hbm9", "pcie0.rate=0 GB/s", "nothing.rate=3 GB/s", "model.kv=NO")
    assert [mistake.origin for mistake in caught.value.mistakes].count("") == 1
    assert len(caught.value.mistakes) == 5


def test_a_path_is_set_once():
    with pytest.raises(OffloadError, match="set the same value"):
        with_settings(PLACED, "workload.batch=2", "workload.batch=3")
    assert "set the same value" in refused("pcie0.rate=3 GB/s", "pcie0.rate=4 GB/s")


# --- another server ---


def test_a_plan_is_read_on_another_server():
    plan, topology = load_plan(PLACED, topology="gh200")
    assert topology.name == "gh200" and plan.workload == load_plan(PLACED)[0].workload
    assert load_plan(PLACED, topology=DESKTOP)[1] is DESKTOP
    changed_there = with_settings(PLACED, "c2c0.rate=100 GB/s", topology="gh200")[1]
    assert changed_there.links["c2c0"].forward.peak == 100e9


def test_a_server_is_found_from_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "box.yaml").write_text((ROOT / "topologies" / "desktop-4090.yaml").read_text())
    monkeypatch.chdir(tmp_path)
    assert load_plan(PLACED, topology="box.yaml")[1].name == "box"
    assert load_plan(PLACED, topology=tmp_path / "box.yaml")[1].name == "box"


def test_names_that_another_server_lacks_are_told_with_what_it_has():
    with pytest.raises(DocumentError) as caught:
        load_plan(PLACED, topology="dgx-spark")
    text = str(caught.value)
    assert "on dgx-spark: 2 mistakes" in text and "unified0 (unified)" in text and "--set" in text
    said = ("placement.weights={unified0: rest}", "placement.compute=gpu0")
    assert with_settings(PLACED, *said, topology="dgx-spark")[1].name == "dgx-spark"
    with pytest.raises(OffloadError, match="another server is named already"):
        with_settings(PLACED, "topology=gh200", topology="dgx-h100")


# --- servers ---


def test_a_peak_keeps_the_share_that_is_sustained():
    old, new = DESKTOP.links["pcie0"], changed("pcie0.rate=30 GB/s").links["pcie0"]
    for before, after in ((old.forward, new.forward), (old.backward, new.backward)):
        assert after.peak == 30e9 and set(after.sustained) == set(before.sustained)
        for access, interval in before.sustained.items():
            for end in ("low", "value", "high"):
                share = getattr(interval, end) / before.peak
                assert getattr(after.sustained[access], end) / after.peak == pytest.approx(share, rel=1e-12)
    note = "--set pcie0.rate=30 GB/s: instead of peak 31.51 GB/s; sustained rates keep their share of it"
    assert note in changed("pcie0.rate=30 GB/s").assumptions
    assert DESKTOP.links["pcie0"] is old


def test_one_direction_and_one_access_alone():
    new = changed("pcie0.hbm0.rate=20 GB/s", "pcie0.rate.sustained.pageable=4..5 GB/s")
    old, link = DESKTOP.links["pcie0"], new.links["pcie0"]
    assert (old.a, old.b) == ("socket0", "hbm0")
    assert link.forward.peak == 20e9 and link.backward.peak == old.backward.peak
    assert link.forward.sustained["pageable"] == link.backward.sustained["pageable"] == Interval(4e9, 4.5e9, 5e9)
    assert link.backward.sustained["pinned"] == old.backward.sustained["pinned"]


def test_a_sustained_rate_replaces_those_of_all_accesses():
    rate = changed("pcie0.rate.sustained=26 GB/s").links["pcie0"].forward
    assert rate.sustained == {"": Interval.exact(26e9)} and rate.peak == DESKTOP.links["pcie0"].forward.peak
    row = changed("pcie0.rate.sustained=80 %").resources["pcie0.hbm0"]
    assert row.sustained["pinned" if "pinned" in row.sustained else ""].value == pytest.approx(0.8 * row.peak)


def test_peaks_are_set_before_sustained_rates():
    texts = ("pcie0.rate.sustained=40 GB/s", "pcie0.rate=PCIe 5 x16")
    assert changed(*texts).links == changed(*reversed(texts)).links
    assert changed(*texts).links["pcie0"].forward.sustained == {"": Interval.exact(40e9)}


def test_what_has_no_peak_gets_none():
    new = changed("ssd0.rate=14 GB/s", "cpu0.reads.rate=90 GB/s", "pcie0_both.rate=50 GB/s",
                  "gpu0.flops.bf16.rate=1 PFLOP/s")  # fmt: skip
    ssd, old = new.memories["ssd0"], DESKTOP.memories["ssd0"]
    assert (ssd.read.rated, ssd.write.rated, ssd.read.peak, ssd.write.peak) == (14e9, 14e9, None, None)
    assert ssd.read.sustained[""].value == pytest.approx(old.read.sustained[""].value * 14e9 / old.read.rated)
    assert new.processors["cpu0"].reads.sustained[""].value == pytest.approx(90e9)
    assert new.limits["pcie0_both"].rate.sustained[""].value == pytest.approx(50e9)
    assert new.processors["gpu0"].flops["bf16"].rated == 1e15
    for name in ("ssd0.read", "cpu0.reads", "pcie0_both", "gpu0.flops"):
        assert new.resources[name].peak is None and DESKTOP.resources[name].peak is None


def test_what_was_not_stated_gets_the_grade_of_a_bare_figure():
    new = changed("cpu0.writes.rate=10 GB/s", "gpu0.flops.fp4.rate=1 PFLOP/s")
    assert new.processors["cpu0"].writes.sustained == {"": Interval.exact(10e9)}
    assert new.processors["gpu0"].flops["fp4"].rated == 1e15
    again = changed("pcie0.rate=30 GB/s", server=changed("pcie0.rate=unknown"))
    assert again.links["pcie0"].forward.peak == 30e9 and not again.links["pcie0"].forward.unknown
    assert "pcie0.hbm0" not in changed("pcie0.rate=unknown").resources


def test_sizes_counts_and_times():
    new = changed("hbm0.capacity=32 GB", "hbm0.cache=96 MB", "ssd0.count=4", "pcie0.latency=[1 us, 2 us]",
                  "dram0.capacity=unknown")  # fmt: skip
    assert (new.memories["hbm0"].capacity, new.memories["hbm0"].cache) == (32 * 10**9, 96 * 10**6)
    assert new.memories["ssd0"].count == 4 and new.memories["dram0"].capacity is None
    assert new.links["pcie0"].latency == (1e-6, 2e-6)
    assert changed("pcie0.latency=2 us").links["pcie0"].latency == (0.0, 2e-6)


def test_ranges_set_several_parts():
    new = changed("pcie0..7.rate=30 GB/s", "hbm0..3.capacity=141 GB", "nvlink0..1.hbm0..1.rate=100 GB/s", server=DGX)
    assert {new.links[f"pcie{n}"].forward.peak for n in range(8)} == {30e9}
    assert [new.memories[f"hbm{n}"].capacity == 141 * 10**9 for n in range(8)] == [True] * 4 + [False] * 4
    ways = {name: row.peak for name, row in new.resources.items() if name.startswith("nvlink") and row.peak == 100e9}
    assert set(ways) == {"nvlink0.hbm0", "nvlink1.hbm1"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pcie0.rate=0 GB/s", "not above zero"),
        ("pcie0.rate=-1 GB/s", "negative"),
        ("pcie0.rate=5 GB", "is a size, where a rate is due"),
        ("pcie0.rate=5", "has no unit"),
        ("pcie0.rate=", "is empty"),
        ("pcie0.rate=inf GB/s", "not a finite figure"),
        ("pcie0.rate=1e400 GB/s", "too large"),
        ("pcie0.rate=20..26 GB/s", "20..26 GB/s"),
        ("pcie0.rate.sustained=40 GB/s", "above the peak, 31.51 GB/s"),
        ("pcie0.rate.sustained=0 GB/s", "not above zero"),
        ("pcie0.rate.sustained=120 %", "120 %"),
        ("pcie0_both.rate.sustained=80 %", "of what?"),
        ("pcie0.rate.sustained.mixed=4 GB/s", "Kinds of access here: pageable, pinned, zero_copy"),
        ("dram0.rate.sustained.pinned=4 GB/s", "Kinds of access here: read, write"),
        ("gpu0.flops.bf16.rate.sustained.read=4 TFLOP/s", "gpu0.flops.bf16.rate.sustained"),
        ("pcie0.rate.peak=4 GB/s", 'a rate has no "peak"'),
        ("pcie0.rat=4 GB/s", 'Did you mean "pcie0.rate"?'),
        ("pcie0=4 GB/s", "pcie0.rate"),
        ("pcie0.hbm0=4 GB/s", "pcie0.hbm0.rate"),
        ("pcie0.count=2", "all its links side by side"),
        ("pcie=4 GB/s", 'Did you mean "pcie0"?'),
        ("gpu0.rate=4 GB/s", "hbm0.rate"),
        ("gpu0.flops.rate=100 TFLOP/s", "gpu0.flops.bf16.rate"),
        ("gpu0.flops.bf61.rate=100 TFLOP/s", 'Did you mean "gpu0.flops.bf16.rate"?'),
        ("gpu0.flops.bf16.rate=100 GB/s", "where a compute rate is due"),
        ("hbm0.flops=3", "processors that work in it: gpu0"),
        ("socket0.rate=4 GB/s", "is a switch"),
        ("hbm0.capacity=0 B", "capacity is 0 bytes"),
        ("hbm0.capacity=1 MB", "more than the memory holds"),
        ("hbm0.capacity=1 GB/s", "where a size is due"),
        ("ssd0.count=0", "whole number from 1 to 999999"),
        ("ssd0.count=1.5", "whole number from 1 to 999999"),
        ("pcie0.latency=3 s", "longer than any link's"),
        ("pcie0.latency=[2 us, 1 us]", "[least, typical]"),
        ("pcie0.latency=[1 us, 2 us, 3 us]", "[least, typical]"),
        ("gpu0..3.flops.bf16.rate=1 TFLOP/s", '"gpu1"'),
        ("gpu3..0.rate=1 GB/s", "runs backwards"),
        ("gpu0..3.hbm0..1.rate=1 GB/s", "differ in length"),
    ],
)
def test_a_server_s_value_that_cannot_be_says_so(text, said):
    message = refused(text)
    assert said in message and message.startswith(f"desktop-4090: 1 mistake\n  --set {text}: ")


@pytest.mark.parametrize("text", ["dram0.channels=4", "hbm0.flops=3", "gpu0.rate=4 GB/s", "pcie0.count=2"])
def test_where_the_right_way_is_told_no_other_key_is_guessed(text):
    message = refused(text)
    assert " Write: " in message and "Did you mean" not in message


def test_half_duplex_is_set_as_one():
    text = "memories: {a: {kind: dram, rate: 9 GB/s}, b: {kind: hbm, rate: 9 GB/s}}\n"
    text += "links: {bus: {between: [a, b], rate: 4 GB/s, duplex: half}}"
    from offload.documents.topology_file import read_topology

    server = read_topology(parse_document(text, "box.yaml"), name="box")
    assert "half duplex" in refused("bus.b.rate=3 GB/s", server=server)
    assert changed("bus.rate=3 GB/s", server=server).resources["bus"].peak == 3e9


@settings(max_examples=60)
@given(topologies())
def test_setting_a_rate_to_what_it_is_changes_nothing(server):
    texts = []
    for name, part in server.memories.items():
        for key in ("rate", "read", "write"):
            rate = getattr(part, key)
            texts += [] if rate is None else [f"{name}.{'' if key == 'rate' else f'{key}.'}rate={rate.peak!r} B/s"]
    for name, link in server.links.items():
        texts += [f"{name}.{link.b}.rate={link.forward.peak!r} B/s", f"{name}.{link.a}.rate={link.backward.peak!r} B/s"]
    for name, part in server.processors.items():
        texts += [f"{name}.flops.{form}.rate={rate.peak!r} FLOP/s" for form, rate in part.flops.items()]
        texts += [] if part.reads is None else [f"{name}.reads.rate={part.reads.peak!r} B/s"]
    texts += [f"{name}.rate={limit.rate.peak!r} B/s" for name, limit in server.limits.items()]
    same = changed(*texts, server=server)
    assert dict(same.resources) == dict(server.resources)
    assert len(same.stated) == len(server.stated) + len(texts)


@settings(max_examples=40)
@given(st.sampled_from(sorted(DESKTOP.links)), st.floats(1e6, 1e14))
def test_doubling_a_link_doubles_each_of_its_figures(name, peak):
    once = changed(f"{name}.rate={peak!r} B/s").links[name].forward
    twice = changed(f"{name}.rate={2 * peak!r} B/s").links[name].forward
    assert twice.peak == 2 * once.peak
    for access, interval in once.sustained.items():
        assert twice.sustained[access].value == pytest.approx(2 * interval.value, rel=1e-12)


# --- the page ---


def shown() -> list[object]:
    found = []
    for section in re.split(r"^## ", PAGE, flags=re.M)[1:]:
        title = section.partition("\n")[0]
        for text in re.findall(r"^\| (`.*?) \|", section, re.M):
            found += [pytest.param(title, one, id=one) for one in re.findall(r"`([^`]+=[^`]+)`", text)]
    return found


@pytest.mark.parametrize(("title", "text"), shown())
def test_every_path_that_the_page_shows_works(title, text):
    if title == "Values of a server":
        new = changed(text)
        assert any(note.startswith(f"--set {text}: instead of ") for note in new.stated)
        assert (new.links, new.memories, new.processors, new.limits) != (
            DESKTOP.links, DESKTOP.memories, DESKTOP.processors, DESKTOP.limits,
        )  # fmt: skip
        return
    path = {"Values of a plan by hand": BY_HAND, "Values of a training plan": TRAINED}.get(title, PLACED)
    before, after = load_plan(path), with_settings(path, text)
    assert after != before and (text.startswith("topology") or after[0].assumptions[0].startswith(f"--set {text}: "))


def test_a_path_may_start_with_any_key_of_a_plan():
    keys = {field.alias or name for name, field in PlanShape.model_fields.items()}
    assert keys - {"$schema"} == set(PLAN_KEYS)
    assert not set(PLAN_KEYS) & {name for server in (DESKTOP, DGX) for name in (*server.memories, *server.links)}


def test_the_page_shows_paths_of_every_kind():
    texts = [one.values[1] for one in shown()]
    assert len(texts) > 30
    for part in (*DESKTOP.memories, "pcie0", "pcie0_both", *DESKTOP.processors):
        assert [text for text in texts if text.startswith(f"{part}.")], part
    for key in PLAN_KEYS:
        assert key in ("title", "blocks") or [text for text in texts if text.startswith(key)], key


@pytest.mark.few
@pytest.mark.parametrize("line", re.findall(r"^    (offload step .*)$", PAGE, re.M))
def test_every_command_that_the_page_shows_works(line, tmp_path, monkeypatch, capsys):
    (tmp_path / "plan.yaml").write_text(PLACED.read_text())
    (tmp_path / "my-box.yaml").write_text((ROOT / "topologies" / "desktop-4090.yaml").read_text())
    monkeypatch.chdir(tmp_path)
    status = cli.main([*shlex.split(line)[1:], "--ignore-capacity"])
    captured = capsys.readouterr()
    assert status == 0 and captured.err == "" and "Floor" in captured.out


# --- the command line ---


def answer(capsys, *words: str) -> dict:
    assert cli.main(["step", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_the_command_line_sets_values(capsys):
    plain = answer(capsys, str(PLACED))
    more = answer(capsys, str(PLACED), "--set", "workload.batch=2", "--set", "dram0.rate=192 GB/s")
    assert more["workload"]["batch"] == 2
    peaks = {row["name"]: row["peak"] for row in more["resources"]}
    assert peaks["dram0"] == 2 * {row["name"]: row["peak"] for row in plain["resources"]}["dram0"] == 192e9
    told = [note for note in more["assumptions"] if note.startswith("--set")]
    assert len(told) == 3 and "cpu0.reads stays as it is" in told[2]
    words = ("llama-3.1-70b:q4_k_m", "--on", "desktop-4090", "--gpu-layers", "38", "--batch", "2")
    same = answer(capsys, *words, "--set", "dram0.rate=192 GB/s")
    assert same["floor"]["seconds"] == more["floor"]["seconds"]


def test_the_command_line_names_another_server(capsys):
    assert answer(capsys, str(PLACED), "-t", "gh200")["topology"] == "gh200"
    assert answer(capsys, str(BY_HAND), "--topology", "gh200")["topology"] == "gh200"


WORDS = ("llama-3.1-70b:q4_k_m", "--on", "desktop-4090")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*WORDS, "--set", "workload.batch=8"), "--batch says it"),
        ((*WORDS, "--set", "overlap.buffers=8"), "--buffers says it"),
        ((*WORDS, "--set", "placement.weights.hbm0=8 layers"), "--gpu-layers says it"),
        ((*WORDS, "--set", "topology=gh200"), "--on says it"),
        ((*WORDS, "--set", "tokens=8"), "there is no tokens to set"),
        ((*WORDS, "--set", "pcie0.rate=8 GB"), "--set pcie0.rate=8 GB: "),
        ((*WORDS, "-t", "gh200"), "write --on gh200"),
        ((str(PLACED), "--batch", "8"), "--set workload.batch=..."),
        ((str(PLACED), "--on", "gh200"), "-t SERVER"),
        ((str(PLACED), "--buffers", "3", "--set", "overlap=full"), "say the same"),
        ((str(PLACED), "-t", "nothing"), 'no topology "nothing"'),
        ((str(PLACED), "-t", "./nothing.yaml"), "no such file"),
        ((str(PLACED), "--set", "workload"), 'there is no "="'),
        ((str(PLACED), "--set", ""), 'there is no "="'),
    ],
)
def test_settings_that_do_not_go_together_are_bad_input(words, said, capsys):
    assert cli.main(["step", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and said in captured.err and "internal error" not in captured.err


PATHS = ("workload.batch", "workload", "model", "placement.weights", "placement.weights.hbm0", "overlap", "title",
         "topology", "pcie0.rate", "pcie0.hbm0.rate.sustained", "hbm0.capacity", "pcie0.latency", "ssd0.count",
         "gpu0.flops.bf16.rate", "")  # fmt: skip
VALUES = ("3", "0", "-1", "1e9", "3 GB", "3 GB/s", "[1, 2]", "{a: 1}", "null", "NO", "unknown", "50 %", "*x", "[")


@pytest.mark.slow
@settings(max_examples=150)
@given(st.sampled_from(PATHS), st.text(max_size=4), st.sampled_from(VALUES) | st.text(max_size=8))
def test_any_setting_is_taken_or_refused_in_words(path, more, value):
    try:
        setting = read_setting(f"{path}{more}={value}")
        plan, topology = load_plan(PLACED, settings=[setting])
    except OffloadError as error:
        assert setting_told(str(error))
    else:
        notes = [*plan.assumptions, *topology.assumptions]
        assert setting.path[0] == "topology" or [note for note in notes if note.startswith(setting.origin)]


def setting_told(text: str) -> bool:
    return "--set" in text and "Traceback" not in text


def test_a_figure_just_above_the_peak_is_told_apart_from_it():
    """PCIe 4 x16 is printed as 31.51 GB/s, and is 16 GT/s x 16 x 128 / 130 / 8 = 31.5077 GB/s."""
    with pytest.raises(OffloadError, match=r"above the peak, 31\.51 GB/s \(31,507,692,308 B/s\)"):
        load_plan(BY_HAND, settings=[read_setting("pcie0.rate.sustained=31.51 GB/s")])


@pytest.mark.parametrize("count", ["1000000", "0", "1e3", "four"])
def test_a_count_says_its_bounds(count):
    with pytest.raises(OffloadError, match="is not a whole number from 1 to 999999"):
        load_plan(BY_HAND, settings=[read_setting(f"ssd0.count={count}")])
