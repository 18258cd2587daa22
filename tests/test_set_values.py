"""Values set in documents from elsewhere, and parts of documents."""

from __future__ import annotations

import pytest

from offload.documents import parse_document, read_plan
from offload.errors import DocumentError

# --- documents: values set, and parts ---

TEXT = """\
a: {b: 1, c: [x, y]}
plans:
  one:
    k: {deep: [1, {n: NO}]}
"""


def test_a_value_is_replaced_added_and_read_as_a_file_would():
    document = parse_document(TEXT, "f.yaml")
    document.set(("a", "b"), "[1, {x: y z}]", "--set a.b")
    document.set(("a", "c", 1), "q", "--set a.c.1")
    document.set(("new", "map", "key"), "2.5", "--set new.map.key")
    assert document.value["a"] == {"b": [1, {"x": "y z"}], "c": ["x", "q"]}
    assert document.value["new"] == {"map": {"key": 2.5}}


def test_mistakes_about_a_set_value_say_where_it_came_from_and_have_no_line():
    document = parse_document(TEXT, "f.yaml")
    document.set(("a",), "{b: 2}", "--set a={b: 2}")
    document.mistake(("a", "b"), "is wrong.")
    document.mistake(("a",), "is wrong too.")
    document.mistake(("plans", "one"), "is wrong as well.", key=True)
    lines = [str(mistake) for mistake in document.mistakes]
    assert lines[1:] == [
        "--set a={b: 2}, a.b: is wrong.",
        "--set a={b: 2}: is wrong too.",
        "line 3, column 3, plans.one: is wrong as well.",
    ]
    assert (document.mistakes[1].line, document.mistakes[1].column) == (0, 0)


def test_mistakes_about_the_old_value_are_forgotten():
    document = parse_document(TEXT, "f.yaml")
    assert [mistake.key for mistake in document.mistakes] == ["plans.one.k.deep[1].n"]
    document.set(("plans", "one", "k"), "3", "--set k=3")
    assert document.mistakes == [] and not document.refused


@pytest.mark.parametrize(
    ("location", "text", "said"),
    [
        (("a", "b"), "", "the value is missing"),
        (("a", "b"), "  # x", "the value is missing"),
        (("a", "b"), "~", '"~" is no value here'),
        (("a", "b"), "yes", "YAML reads yes as true"),
        (("a", "b"), "010", "YAML reads 010 as 8"),
        (("a", "b"), "{x: 1", 'the "}" that closes'),
        (("a", "b"), "[1, *x]", "not defined"),
        (("a", "b"), "1\n---\n2", "second document"),
        (("a", "b"), "\x00", "U+0000"),
        (("a", "b"), "[" * 500 + "]" * 500, "nested too deeply"),
        (("a", "b", "x"), "1", 'a.b is "1" and no map, so it holds no "x"'),
        (("a", "c", 2), "1", 'a.c has 2 entries, numbered from 0: there is no "2"'),
        (("a", "c", "x"), "1", 'there is no "x"'),
    ],
)
def test_what_cannot_be_set_is_a_mistake_of_the_setting(location, text, said):
    document = parse_document("a: {b: 1, c: [x, y]}", "f.yaml")
    document.set(location, text, "--set it")
    assert len(document.mistakes) == 1
    mistake = document.mistakes[0]
    assert said in mistake.message and mistake.origin == "--set it" and mistake.line == 0
    assert str(mistake).startswith("--set it, a.")


def test_a_part_is_a_document_whose_mistakes_land_in_the_whole():
    document = parse_document(TEXT, "f.yaml")
    part = document.part(("plans", "one"))
    assert part.value == {"k": {"deep": [1, {"n": "NO"}]}} and part.get(("k", "deep", 0)) == 1
    assert part.name == "f.yaml" and part.mark(("k",), key=True) == document.mark(("plans", "one", "k"), key=True)
    assert ("k", "deep", 1, "n") in part.refused and len(part.refused) == 1
    part.mistake(("k",), "is wrong.", key=True)
    part.set(("k", "new"), "1", "elsewhere")
    part.mistake(("k", "new"), "is set.")
    document.mistake(("a",), "is no part's.")
    assert document.value["plans"]["one"]["k"]["new"] == 1
    assert [str(mistake) for mistake in part.mistakes][1:] == [
        "line 4, column 5, plans.one.k: is wrong.",
        "elsewhere, plans.one.k.new: is set.",
    ]
    assert len(part.mistakes) == 3 and len(document.mistakes) == 4
    with pytest.raises(DocumentError) as caught:
        part.raise_if_mistakes()
    assert len(caught.value.mistakes) == 3
    part.forgive(())
    assert part.mistakes == [] and not part.refused and len(document.mistakes) == 1
    assert document.part(("a",)).part(("b",)).value == {}


@pytest.mark.parametrize(("location", "said"), [(("a", "b"), "must be a map"), (("x",), "is missing: a map is due")])
def test_a_part_that_is_no_map_is_one_mistake(location, said):
    document = parse_document("a: {b: 1}", "f.yaml")
    with pytest.raises(DocumentError) as caught:
        read_plan(document.part(location), ".")
    assert len(caught.value.mistakes) == 1 and said in str(caught.value)


def test_a_file_may_hold_several_plans():
    placed = "{topology: desktop-4090, model: {name: llama-3.1-8b, weights: q8_0}, placement: {weights: {hbm0: rest}}"
    text = f"plans:\n  good: {placed}}}\n  bad: {placed}, workload: {{batch: none}}}}\n  worse: 3\n"
    document = parse_document(text, "cases.yaml")
    plan, topology = read_plan(document.part(("plans", "good")), ".")
    assert plan.workload["batch"] == 1 and topology.name == "desktop-4090"
    for name in ("bad", "worse"):
        with pytest.raises(DocumentError) as caught:
            read_plan(document.part(("plans", name)), ".")
        assert len(caught.value.mistakes) == 1
    assert [mistake.key for mistake in document.mistakes] == ["plans.bad.workload.batch", "plans.worse"]
