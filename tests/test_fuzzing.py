"""Damaged files of every kind and every verb: refused in words or answered in numbers (tests/fuzzing.py is longer)."""

from __future__ import annotations

import json
import socket
import sys

import pytest

from tests.commands import ROOT, Done, run
from tests.fuzzing import KINDS, ask, case, places, wrong

# Cases of a moment each; the campaign of `python -m tests.fuzzing` takes any.
QUICK = {
    "plan": ("check",),
    "topology": ("check", "topology"),
    "config": ("model",),
    "case": ("check",),
    "log": ("why",),
    "tool": ("topology",),
    "meters": ("compare",),
    "requests": ("memory",),
    "header": ("model",),
}


@pytest.mark.few
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files_never_end_in_a_traceback(kind: str, tmp_path):
    found, number = [], 0
    while number < 60:
        number += 1
        one = case(number, kind)
        if one.words[0] in QUICK[kind] and len(found) < 8:
            found.append(one)
    assert found
    for one in found:
        done, faults = ask(one, tmp_path)
        assert not faults, (one.number, one.words, faults, done.stderr)


@pytest.mark.parametrize(
    "done, told",
    [
        (Done(70, "", ""), "exit status 70"),
        (Done(2, "", ""), "refused without a word"),
        (Done(0, "offload: internal error (x)", ""), "a traceback"),
        (Done(0, '{"a": NaN}', ""), "a is nan"),
        (Done(0, '{"floor": {"seconds": -1}}', ""), "floor.seconds is -1"),
        (Done(0, '{"a": ', ""), "no JSON"),
        (Done(0, "floor   nan s", ""), "a number that is none in the report"),
        (Done(0, "floor  3 s", ""), ""),
        (Done(1, '{"seconds": 3}', ""), ""),
    ],
)
def test_what_is_wrong_is_seen(done: Done, told: str):
    assert wrong(done) == told


def test_a_case_is_made_of_its_number_alone():
    assert case(7) == case(7) and case(7) != case(8)
    tree: dict[str, object] = {"a": [1]}
    tree["b"] = tree
    assert [*places(tree)] == [("a",), ("a", 0), ("b",)]


@pytest.mark.few
@pytest.mark.parametrize(
    "words",
    [
        ("step", "examples/by-hand.yaml", "--json"),
        ("topology", "list"),
        ("model", "llama-3.1-8b"),
        ("check", "examples/own-server.yaml"),
    ],
)
def test_nothing_asks_the_network(words: tuple[str, ...], monkeypatch):
    def refused(*_: object, **__: object) -> None:
        raise AssertionError("a socket")

    for name in ("socket", "create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, refused)
    assert run(*words).returncode == 0


@pytest.mark.few
@pytest.mark.parametrize("name", ["a b.yaml", "né 日本.yaml", "-x.yaml", "a#b%20.yaml"])
@pytest.mark.parametrize(
    "change",
    [lambda text: text, lambda text: "\ufeff" + text, lambda text: text.replace("\n", "\r\n")],
    ids=["plain", "mark", "windows"],
)
def test_names_and_line_ends_of_plans_change_no_answer(name: str, change, tmp_path):
    text = (ROOT / "examples/by-hand.yaml").read_text(encoding="utf-8")
    (tmp_path / name).write_bytes(change(text).encode())
    found = run("step", str(tmp_path / name), "--json", "--trace", str(tmp_path / "é b.json"))
    plain = json.loads(run("step", "examples/by-hand.yaml", "--json").stdout)
    assert json.loads(found.stdout)["floor"] == plain["floor"]
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted([name, "é b.json"])


@pytest.mark.skipif(sys.platform == "win32", reason="no such permissions there")
def test_an_output_keeps_its_permissions_and_is_whole_or_not_there(tmp_path):
    from offload.errors import OutputError
    from offload.files import write_whole, writing

    path = tmp_path / "out.json"
    path.write_text("before")
    path.chmod(0o640)
    with pytest.raises(RuntimeError), writing(path) as beside:
        with open(beside, "w") as file:
            file.write("half")
        raise RuntimeError
    assert path.read_text() == "before"
    link = tmp_path / "link.json"
    link.symlink_to(path)
    write_whole(link, b"after")
    assert path.read_text() == "after" and link.is_symlink() and path.stat().st_mode & 0o777 == 0o640
    long = tmp_path / ("é" * 125)
    write_whole(long, b"x")
    assert long.read_bytes() == b"x" and len([*tmp_path.iterdir()]) == 3
    for wrong_one in (tmp_path, tmp_path / "none" / "a", "a\0b"):
        with pytest.raises(OutputError, match="cannot be written"):
            write_whole(wrong_one, b"")
