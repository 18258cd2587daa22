"""What processors pass to one another, and changes and notes that say what a reader asked."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from offload import cli, evaluate, load_plan
from offload.answer import to_json
from offload.documents.settings import read_setting
from offload.errors import DocumentError

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def study(path, *settings):
    plan, topology = load_plan(path, settings=[read_setting(one) for one in settings])
    return evaluate(topology, plan)


def example(name, *settings):
    return study(EXAMPLES / f"{name}.yaml", *settings)


def printed(name, capsys, monkeypatch, *words):
    monkeypatch.setenv("COLUMNS", "300")
    assert cli.main(["step", str(EXAMPLES / f"{name}.yaml"), *words]) == 0
    return capsys.readouterr().out


def seconds_on(found, name):
    return next(row.sustained_seconds for row in found.resources if row.name == name)


def test_all_reduces_take_their_bytes_over_the_link_and_two_latencies_each():
    """Nothing else is on the NVLinks of this plan: the transfers are the time that those are busy."""
    found = example("tensor-parallel-in-the-switch")
    (row,) = found.passed
    assert row.what == "all-reduce"
    assert row.transfer_seconds == pytest.approx(seconds_on(found, "nvlink0.hbm0"), rel=1e-12)
    assert row.latency_seconds == pytest.approx(160 * 4e-6, rel=1e-12)  # 2 in each of 80 layers, 2 links of 2 us each
    assert row.share == pytest.approx((row.transfer_seconds + row.latency_seconds) / found.overlapped.seconds)


def test_all_to_alls_of_experts():
    found = example("experts-on-eight-gpus")
    (row,) = found.passed
    assert row.what == "all-to-all"
    assert row.transfer_seconds == pytest.approx(seconds_on(found, "nvlink0.hbm0"), rel=1e-12)


def test_a_row_over_ethernet_is_mostly_latency():
    found = example("two-desktops-over-ethernet")
    (row,) = found.passed
    assert row.what == "hidden row" and row.latency_seconds > row.transfer_seconds > seconds_on(found, "ethernet.nic0")


@pytest.mark.slow
def test_what_replicas_gather_is_told_by_name():
    whats = [row.what for row in example("replicas-that-share-the-fetch").passed]
    assert "all-gather of layer weights" in whats and "layer weights" not in whats


def test_one_processor_passes_nothing(capsys, monkeypatch):
    assert example("by-hand").passed == () and to_json(example("by-hand"))["passed"] == []
    assert "Between processors" not in printed("by-hand", capsys, monkeypatch)


def test_json_has_what_passes():
    found = example("experts-on-eight-gpus")
    assert [list(row) for row in to_json(found)["passed"]] == [
        ["what", "transfer_seconds", "latency_seconds", "share"]]  # fmt: skip


@pytest.mark.few
@pytest.mark.parametrize(
    ("name", "start", "changed"),
    [
        ("replicas-of-four-gpus", "one replica of all 8", {"parallel": {"by": "tensor", "algorithm": "ring"}}),
        ("replicas-of-four-gpus", "one replica alone", {"parallel": {"by": "tensor", "algorithm": "ring"},
                                                        "weights": {"hbm0..3": "rest"}, "batch": 32}),
        ("replicas-that-share-the-cpu", "one replica of all 2", {"parallel": "tensor"}),
        ("replicas-that-share-the-cpu", "one replica alone", {"parallel": None, "batch": 1,
                                                             "weights": {"hbm0": "39 layers", "dram0": "rest"}}),
    ],
)  # fmt: skip
def test_other_replicas_are_what_their_own_file_comes_to(name, start, changed, tmp_path):
    path = EXAMPLES / f"{name}.yaml"
    text = yaml.safe_load(path.read_text(encoding="utf-8"))
    text["workload"]["batch"] = changed.pop("batch", text["workload"]["batch"])
    text["placement"] |= changed
    if text["placement"]["parallel"] is None:
        del text["placement"]["parallel"]
    if "/" in text["topology"]:
        text["topology"] = str(EXAMPLES / text["topology"])
    alone = tmp_path / "alone.yaml"
    alone.write_text(yaml.safe_dump(text, sort_keys=False), encoding="utf-8")
    (change,) = [one for one in study(path).changes if one.what.startswith(start)]
    other, now = study(alone), study(path)
    assert change.seconds == pytest.approx(other.overlapped.seconds, rel=1e-9)
    assert change.gain == pytest.approx(other.tokens_per_s.overlapped / now.tokens_per_s.overlapped, rel=1e-9)


@pytest.mark.slow
def test_a_request_without_speculation_is_what_its_own_file_comes_to(tmp_path):
    text = yaml.safe_load((EXAMPLES / "phases-speculation-run.yaml").read_text(encoding="utf-8"))
    del text["speculation"]
    plain = tmp_path / "plain.yaml"
    plain.write_text(yaml.safe_dump(text, sort_keys=False), encoding="utf-8")
    found, alone = example("phases-speculation-run").request, study(plain).request
    assert found.without_speculation == alone.total and alone.without_speculation is None
    assert found.total.expected < alone.total.expected


@pytest.mark.few
@pytest.mark.parametrize("name", ["weights-page-cache", "weights-page-cache-experts"])
def test_what_has_no_effect_is_no_change(name):
    """All runs on the CPU where it is mapped: there is no other place where it lives."""
    assert not [one for one in example(name).changes if one.what.startswith("run layers where")]


def test_layers_are_not_moved_away_from_where_they_run():
    whats = [one.what for one in example("weights-zero-copy").changes if " layers in " in one.what]
    assert whats == ["57 layers in hbm0 instead of 40 (all that fit)"]


def test_a_head_is_no_layer():
    whats = [one.what for one in example("tensors-outside-layers").changes if one.what.startswith("stream")]
    assert whats == ["stream to gpu0 the output head, which runs elsewhere"]


@pytest.mark.slow
def test_sockets_that_come_out_equal_say_what_is_not_modelled():
    assert [line for line in example("experts-on-two-sockets").not_modelled if line.startswith("numa: ")]
    assert not [line for line in example("experts-on-eight-gpus").not_modelled if line.startswith("numa: ")]


def test_a_row_of_blocks_that_passes_nowhere_is_idle():
    idle = [note for note in example("weights-block-swap", "model.row=1kB").assumptions if note.startswith("model.row")]
    assert idle == ["model.row: 1kB changes nothing here: all blocks run on one processor, so none passes on"]
    used = example("weights-block-swap", "model.row=1kB", "placement.compute=local")
    assert not [note for note in used.assumptions if note.startswith("model.row")]


@pytest.mark.few
@pytest.mark.parametrize(("value", "told"), [("true", "the plan's file says so too"),
                                             ("false", 'the plan\'s file says "true"')])  # fmt: skip
def test_yes_and_no_are_told_as_the_file_writes_them(value, told):
    setting = f"training.gradient_clipping={value}"
    assert f"--set {setting}: {told}" in example("train-with-gradient-clipping", setting).assumptions


def test_where_a_draft_lives_names_the_setting_that_made_it_wrong():
    with pytest.raises(DocumentError) as raised:
        example("phases-speculation-run", "speculation.compute=cpu0")
    (one,) = raised.value.mistakes
    assert (one.line, one.key) == (13, "speculation.home")
    assert one.message.endswith("Write `home: dram0`. (With --set speculation.compute=cpu0.)")


def test_what_a_measurement_leaves_open_is_no_pair_of_equal_times(capsys, monkeypatch):
    text = printed("layers-in-turn-on-two-gpus", capsys, monkeypatch)
    assert "Measure hbm0..1 first (620 GB/s to 860 GB/s): it alone settles the expected time, to 176 ns." in text


def test_one_token_is_one(capsys, monkeypatch):
    text = printed("a-whole-request", capsys, monkeypatch, "--set", "workload.generate=1")
    assert "1 token over the whole request" in text and "1 tokens" not in text
