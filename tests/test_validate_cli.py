"""`offload validate` as a command: tables, data, exit status, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from offload import cli
from offload.documents.case_file import Case
from offload.validation import Outcome
from tests.published import SMALL, cases, outcomes, write


def ask(capsys, *words: object) -> tuple[int, str, str]:
    status = cli.main(["validate", *(str(word) for word in words)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.fixture
def once(monkeypatch):
    """The verb is told what was found of a case; that it finds it by itself is tested by id."""
    def found(case: Case) -> Outcome:
        one = outcomes()[case.id]
        alike = {"plan": case.plan, "informed": case.informed}  # the steps of a request are functions
        assert replace(one.case, **alike) == case, "read alike each time"
        return one

    monkeypatch.setattr("offload.validation.run_case", found)


@pytest.mark.slow
def test_all_shipped_cases(capsys, once):
    """By the words that the command line shows where it is asked nothing."""
    assert "\n  offload validate\n" in cli.SCREEN
    status, out, err = ask(capsys)
    assert status == 0 and err == ""
    assert all(case.id in out for case in cases())
    real = sum(not case.trap for case in cases())
    assert f"{len(cases())} cases: {real} with the floor at most what was measured, 0 with the floor above it" in out


@pytest.mark.slow
def test_data(capsys, once):
    status, out, err = ask(capsys, "--json")
    answer = json.loads(out)
    assert status == 0 and err == "" and answer["unread"] == []
    assert [one["id"] for one in answer["cases"]] == [case.id for case in cases()]
    for one in answer["cases"]:
        outcome = outcomes()[one["id"]]
        assert (one["floor"], one["schedule"], one["measured"]) == (outcome.floor, outcome.schedule, outcome.measured)
        assert one["binding"] == list(outcome.binding) and one["tolerance"] is None
        assert (one["trap"] is None) != one["id"].startswith("zinf22-token-count")
    assert answer["summary"]["cases"] == len(cases()) and answer["summary"]["failed"] == 0
    assert answer["summary"]["traps"] == 3 and 0 < answer["summary"]["floor_ratio"]["most"] <= 1


@pytest.mark.slow
def test_by_id(capsys):
    status, out, _ = ask(capsys, "spark-llamabench")
    assert status == 0 and "spark-llamabench/2" in out and "qwen3" not in out and "2 cases: 2 " in out
    status, out, _ = ask(capsys, "spark-llamabench/2", "spark-llamabench/2")
    assert status == 0 and "spark-llamabench/1" not in out and "1 case: 1 " in out
    assert ask(capsys, "spark-llamabensh") == (2, "", ask(capsys, "spark-llamabensh")[2])
    assert 'Did you mean "spark-llamabench"?' in ask(capsys, "spark-llamabensh")[2]
    assert 'no shipped case "spark-llamabench/9"' in ask(capsys, "spark-llamabench/9")[2]


def test_a_floor_above_its_measurement(tmp_path, capsys):
    path = write(tmp_path, SMALL.replace("10 tok/s", "16 tok/s"))
    status, out, err = ask(capsys, path)
    assert status == 1 and err == "" and "A FLOOR ABOVE" in out and "0.985" in out and "1.016" in out
    assert "1 case: 0 with the floor at most what was measured, 1 with the floor above it." in out
    status, out, _ = ask(capsys, path, "--json")
    answer = json.loads(out)
    assert status == 1 and answer["cases"][0]["failed"] is True and answer["summary"]["failed"] == 1


def test_a_broken_file_loses_no_other(tmp_path, capsys):
    good = write(tmp_path, SMALL, "a.yaml")
    bad = write(tmp_path, SMALL.replace("strength: A", "strength: D"), "b.yaml")
    large = write(tmp_path, SMALL.replace("500 MB", "5 TB"), "c.yaml")
    write(tmp_path, SMALL.replace("kind:", "id: a\nkind:"), "d.yaml")
    status, out, err = ask(capsys, tmp_path, tmp_path / "gone.yaml", "")
    assert status == 2 and "1 case: 1 " in out and "5 files or cases could not be computed" in out
    assert f"{bad}: 1 mistake" in err and f"{large}, case c: the plan does not fit" in err
    assert f'the id "a" is taken by {good}' in err and "no such file" in err and "an empty name is no case" in err
    status, out, err = ask(capsys, tmp_path, "--json")
    assert status == 2 and [one["id"] for one in json.loads(out)["cases"]] == ["a"]
    assert len(json.loads(out)["unread"]) == json.loads(out)["summary"]["unread"] == 3


def test_a_case_without_a_floor_says_so(tmp_path, capsys):
    server = "{memories: {a: {kind: hbm, rate: unknown}, b: {kind: dram, rate: unknown}}, "
    server += "links: {x: {between: [a, b], rate: {sustained: 5 GB/s}}}}"
    plan = "{tensors: {w: {bytes: 1 GB, home: b}}, tasks: {fetch: {move: w, to: a}}}"
    text = SMALL.partition("topology:")[0] + f"topology: {server}\nplan: {plan}\nmeasured: {{value: 1 s}}\n"
    status, out, err = ask(capsys, write(tmp_path, text))
    assert status == 0 and err == "" and "no floor, so nothing is tested" in out and "Floor over" not in out
    answer = json.loads(ask(capsys, tmp_path / "case.yaml", "--json")[1])
    assert answer["cases"][0]["floor"] is None and answer["cases"][0]["schedule"] == pytest.approx(0.2)
    assert answer["cases"][0]["floor_ratio"] is None and answer["summary"]["floor_ratio"] is None


def test_nothing_to_show(tmp_path, capsys):
    status, out, err = ask(capsys, tmp_path)
    assert status == 2 and out == "" and "no case file (.yaml) is in this folder" in err
    assert ask(capsys, write(tmp_path, ""))[:2] == (2, "")


def test_a_folder_without_permission_and_a_file_that_is_none(tmp_path, capsys):
    (tmp_path / "folder.yaml").mkdir()
    assert ask(capsys, tmp_path / "folder.yaml")[0] == 2
    path = tmp_path / "bytes.yaml"
    path.write_bytes(b"\xff\xfe\x00kind")
    status, _, err = ask(capsys, path)
    assert status == 2 and "bytes.yaml" in err
