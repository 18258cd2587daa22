"""Files that people write: what is refused, where, and with which advice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload.documents import load_plan, load_topology, parse_document, read_document
from offload.documents.case_file import load_cases
from offload.documents.marks import as_written, path_text
from offload.documents.shapes import Shape, validate
from offload.errors import DocumentError, OffloadError
from offload.ranges import expand

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 8)
)

# name, text, line, column, what the message must hold (what is wrong, and the spelling that works)
REFUSED = [
    ("two documents", "a: 1\n---\nb: 2", 2, 1, ["second document", '"---"']),
    ("a document after its end", "a: 1\n...\nb: 2", 3, 1, ["second document"]),
    ("a tab that indents", "a:\n\tb: 1", 2, 1, ["tab", "spaces"]),
    ("a tab at the start", "\ta: 1", 1, 1, ["tab", "spaces"]),
    ("nothing", "", 1, 1, ["empty", '"title: ..."']),
    ("only a comment", "# nothing here\n", 1, 1, ["empty"]),
    ("a list", "- a\n- b", 1, 1, ["list", "keys and values"]),
    ("one text", "just words", 1, 1, ["without keys", '"key: value"']),
    ("a zero byte", "a: 1\nb: \x00", 2, 4, ["U+0000", "Remove it"]),
    ("a comma in a text", "a: 1\nb: {source: data sheet, 2023}", 2, 25, ['"2023" has no value', "comma", "Quote"]),
    ("no value in braces", "b: {bytes: , home: x}", 1, 5, ["b.bytes: the value is missing", "remove the key"]),
    ("no value at the end of braces", "b: {home: x, bytes: }", 1, 14, ["b.bytes: the value is missing"]),
    ("no value, nor a space", "b: {home: x, bytes:, c: d}", 1, 19, ['the value of "bytes" is missing']),
    ("a size that is not a number", "bytes: .nan", 1, 8, [".nan is no number", "Give one, or remove the key"]),
    ("no space after the colon, in braces", "x: {a:1}", 1, 5, ["space is missing", '"a: 1"']),
    ("no space after the colon, in a line", "a:1\nb: 2", 1, 2, ["space is missing", '"a: 1"']),
    ("a full-width colon", "a\uff1a1\nb: 2", 1, 2, ["full-width colon", "U+FF1A"]),
    ("a no-break space in a key", "a: 1\nb\u00a0c: 2", 2, 1, ["no-break space", "U+00A0"]),
    ("a no-break space in a value", "a: 26\u00a0GB/s", 1, 4, ["no-break space", "U+00A0"]),
    ("an unquoted * pattern", "weights: {*.attn*: hbm0}", 1, 11, ["quoted", '"*.attn*"']),
    ("an alias of nothing", "x: *gpu", 1, 4, ['"*gpu"', "not defined", "Quote"]),
    ("an unquoted &", "x: & y", 1, 4, ["must be quoted"]),
    ("an alias that holds itself", "a: &x [1, *x]", 1, 4, ["holds itself"]),
    ("a merge that holds itself", "a: &x {b: {<<: *x}}", 1, 11, ["holds itself"]),
    ("an alias bomb", BOMB, 6, 5, ["a5", "100,000 values"]),
    ("depth that the parser itself ends", "a: " + "[" * 3000 + "]" * 3000, 1, 1003, ["nested too deeply"]),
    ("depth without end", "a: " + "[" * 500 + "]" * 500, 1, 4, ["nested too deeply"]),
    ("a name after #", "gpu: gpu #0", 1, 6, ['"#0"', '"gpu #0"', "Quote"]),
    ("names after # in a list", "a: [gpu #0, gpu #1]\nb: 1", 1, 9, ['"#0"', "comment", "Quote"]),
    ("a bus id", "id: 01:00.0", 1, 5, ["60 (base 60)", "must be text", '"01:00.0"']),
    ("a longer bus id", "id: 41:00.0", 1, 5, ["2460", '"41:00.0"']),
    ("a range as hours", "batch: 1:30", 1, 8, ["90 (base 60)", '"1:30"']),
    ("Norway", "name: NO", 1, 7, ["false", '"NO"']),
    ("a switch position", "name: on", 1, 7, ["true", '"on"']),
    ("a key that is a truth", "on: 1", 1, 1, ["true", '"on"']),
    ("an octal number", "id: 010", 1, 5, ["8", '"010"', "10"]),
    ("a hexadecimal number", "id: 0x1F", 1, 5, ["31", '"0x1F"']),
    ("underscores", "n: 1_000", 1, 4, ["underscore", "1000"]),
    ("a date", "on_sale: 2023-01-01", 1, 10, ["date", '"2023-01-01"']),
    ("not a number", "rate: .nan", 1, 7, [".nan", "unknown"]),
    ("endless", "rate: -.inf", 1, 7, ["-.inf", "unknown"]),
    ("larger than a float", "rate: 1e999", 1, 7, ["larger than any number"]),
    ("larger than 64 bit", "count: 99999999999999999999", 1, 8, ["larger than any number"]),
    ("no value", "a: 1\nrate:\nb: 2", 2, 1, ["missing", "unknown"]),
    ("a null", "rate: ~", 1, 7, ['"~" is no value', "unknown"]),
    ("a number as key", "0: {a: 1}", 1, 1, ["a key is a text", '"0"']),
    ("a list as key", "? [a, b]\n: c", 1, 3, ["a key is a text"]),
    ("a type mark", "a: !!python/object:os.system x", 1, 4, ["!!python/object:os.system", "Remove"]),
    ("a set", "a: !!set {}", 1, 4, ["!!set", "Remove"]),
    ("a merge of a number", "a: {<<: 1}", 1, 9, ["merge takes maps"]),
    ("a bracket not closed", "a: 1\nb: [1, 2\nc: 3", 2, 4, ['"]"', "missing"]),
    ("a quote not closed", "a: 1\nb: 'it\nc: 3", 2, 4, ["quote"]),
    ("a backslash", 'a: "C:\\dir"', 1, 4, ["backslash", "single quotes"]),
    ("a second colon", "title: PCIe: fast", 1, 12, ['second ": "', "Quote"]),
    ("a character that starts no text", "a: @home", 1, 4, ['"@home"', "quote"]),
    ("a column off", "a:\n    b: 1\n   c: 2", 3, 4, ["does not fit", "same column"]),
]


@pytest.mark.parametrize(("what", "text", "line", "column", "parts"), REFUSED, ids=[case[0] for case in REFUSED])
def test_refused_with_place_and_advice(what: str, text: str, line: int, column: int, parts: list[str]) -> None:
    with pytest.raises(DocumentError) as caught:
        parse_document(text, "box.yaml").raise_if_mistakes()
    message = str(caught.value)
    assert message.startswith("box.yaml: ")
    mistakes = caught.value.mistakes
    assert (mistakes[0].line, mistakes[0].column) == (line, column), message
    for part in parts:
        assert part in message, message
    assert "Error" not in message and "Traceback" not in message and "tag:yaml" not in message


@pytest.mark.parametrize(
    ("text", "unknown"),
    [("bytes: .nan", False), ("bytes: ~", False), ("a: {bytes: , home: x}", False), ("capacity: .inf", False),
     ("rate: .nan", True), ("rate: ~", True), ("a: {peak: }", True), ("flops: {bf16: ~}", True)],
)  # fmt: skip
def test_only_rates_may_be_unknown(text: str, unknown: bool) -> None:
    with pytest.raises(DocumentError) as caught:
        parse_document(text, "box.yaml").raise_if_mistakes()
    assert ("unknown" in str(caught.value)) is unknown
    assert "comma" not in str(caught.value)


def test_a_refused_value_is_told_once_and_by_the_path_that_is_written() -> None:
    document = parse_document("a: {rate: ~, b: 1}", "box.yaml")
    document.mistake(("a", "rate", "peak"), "has no figure.")
    document.mistake(("a", "rate"), "has no figure.")
    document.mistake(("a", "b", "peak"), "is too small.")
    assert [mistake.key for mistake in document.mistakes] == ["a.rate", "a.b"]
    assert "no value here" in document.mistakes[0].message


class Numbers(Shape):
    """What a number may be."""

    whole: int = 1
    part: float = 1.0
    truth: bool = True


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('whole: "8"', 'must be a whole number, not "8". Drop the quotes: 8'),
        ("whole: ' 8 '", 'must be a whole number, not "8". Drop the quotes: 8'),
        ("whole: 1e5", 'must be a whole number, not "1e5". Write 100000'),
        ('whole: "1e5"', 'must be a whole number, not "1e5". Drop the quotes and write 100000'),
        ("whole: 8.0", 'must be a whole number, not "8.0". Write 8'),
        ("whole: 2.5", 'must be a whole number, not "2.5". For example: 8.'),
        ("whole: many", 'must be a whole number, not "many". For example: 8.'),
        ("whole: true", 'must be a whole number, not "true". For example: 8.'),
        ('part: "0.5"', 'must be a number, not "0.5". Drop the quotes: 0.5'),
        ("part: half", 'must be a number, not "half". For example: 0.5.'),
        ('truth: "yes"', 'must be true or false, not "yes". Write true, without quotes.'),
        ("truth: 1", 'must be true or false, not "1".'),
    ],
)
def test_numbers_in_quotes_and_with_exponents(text: str, message: str) -> None:
    document = parse_document(text, "box.yaml")
    assert validate(document, Numbers, document.value) is None
    assert [mistake.message for mistake in document.mistakes] == [message]


def test_duplicate_keys_name_both_lines() -> None:
    with pytest.raises(DocumentError, match='"a" is given twice, on lines 1 and 3'):
        parse_document("a: 1\nb: 2\na: 3", "box.yaml").raise_if_mistakes()


def test_all_mistakes_of_a_file_at_once() -> None:
    document = parse_document("a: NO\nb: 1:30\nc:\nd: {x: 1, x: 2}\n", "box.yaml")
    document.mistake(("d", "x"), "one of mine.")
    with pytest.raises(DocumentError) as caught:
        document.raise_if_mistakes()
    assert [mistake.line for mistake in caught.value.mistakes] == [1, 2, 3, 4, 4]
    assert str(caught.value).splitlines()[0] == "box.yaml: 5 mistakes"


def test_plain_values_and_how_they_were_written() -> None:
    text = 'a: 1e9\nb: 1.50\nc: 3\nd: true\ne: "01:00.0"\nf: 26 GB/s\ng: [x, 2]\nh: !!str 12\ni: 08\nj: =\n'
    value = parse_document(text, "box.yaml").value
    assert value == {
        "a": 1e9, "b": 1.5, "c": 3, "d": True, "e": "01:00.0", "f": "26 GB/s", "g": ["x", 2], "h": "12", "i": "08",
        "j": "=",
    }  # fmt: skip
    assert [as_written(value[key]) for key in "abcf"] == ["1e9", "1.50", "3", "26 GB/s"]


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_ends_and_byte_order_mark(tmp_path, ends: str, mark: str) -> None:
    path = tmp_path / "box.yaml"
    path.write_bytes((mark + ends.join(["a: 1", "b:", "  c: é", "  d: NO", ""])).encode())
    document = read_document(path, "box.yaml")
    assert document.value["b"]["c"] == "é"
    assert document.mark(("b", "d")) == (4, 6)
    assert document.mistakes[0].line == 4


def test_places() -> None:
    document = parse_document("a: {b: [x, {c: 1}]}\nd:\n  e: 2\n", "box.yaml")
    assert document.mark(("a", "b", 1, "c")) == (1, 16)
    assert document.mark(("a", "b", 1, "c"), key=True) == (1, 13)
    assert document.mark(("d",)) == (2, 1)
    assert document.mark(("d", "e", "peak")) == (3, 6)  # shorthand written out: the nearest place that is in the file
    assert document.mark(("nowhere",)) == (1, 1)
    assert document.get(("a", "b", 1, "c")) == 1
    assert document.get(("a", "z", 1), "none") == "none"
    assert path_text(("links", "pcie0", "between", 1)) == "links.pcie0.between[1]"


def test_anchors_and_merges() -> None:
    text = """
base: &base {kind: gpu, rate: 1 GB/s}
more: &more {rate: 2 GB/s, cache: 3 MB}
one: {<<: *base, rate: 5 GB/s}
two:
  <<: [*base, *more]
same: *base
"""
    document = parse_document(text, "box.yaml")
    document.raise_if_mistakes()
    assert document.value["one"] == {"kind": "gpu", "rate": "5 GB/s"}
    assert document.value["two"] == {"kind": "gpu", "rate": "1 GB/s", "cache": "3 MB"}
    assert document.mark(("one", "kind")) == (2, 20)  # where the merged value is written
    document.value["same"]["kind"] = "cpu"
    assert document.value["base"]["kind"] == "gpu"  # an alias is a copy


def test_two_merges_are_refused() -> None:
    with pytest.raises(DocumentError, match=r"<<: \[\*a, \*b\]"):
        parse_document("a: &a {x: 1}\nb: &b {y: 1}\nc: {<<: *a, <<: *b}", "box.yaml").raise_if_mistakes()


def test_files_that_cannot_be_read(tmp_path) -> None:
    with pytest.raises(OffloadError, match="no such file"):
        read_document(tmp_path / "none.yaml")
    with pytest.raises(OffloadError, match="is a folder"):
        read_document(tmp_path)
    path = tmp_path / "box.yaml"
    path.write_bytes(b"a: 1\nb: \xe9t\xe9\n")
    with pytest.raises(DocumentError, match="line 2, column 4.*UTF-8"):
        read_document(path)
    path.write_bytes("a: 1\n".encode("utf-16"))
    with pytest.raises(DocumentError, match="UTF-8"):
        read_document(path)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu0", ["gpu0"]),
        ("gpu0..2", ["gpu0", "gpu1", "gpu2"]),
        ("gpu7..7", ["gpu7"]),
        ("pcie9..10.hbm1..2", ["pcie9.hbm1", "pcie10.hbm2"]),
        ("größe1..2x", ["größe1x", "größe2x"]),
    ],
)
def test_ranges(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize("text", ["gpu7..0", "gpu..3", "gpu0..", "gpu0..9999", "a0..1.b0..2", "gpu0...3"])
def test_ranges_refused(text: str) -> None:
    with pytest.raises(ValueError, match="range"):
        expand(text)


def test_reading_marks_loads_no_pydantic() -> None:
    code = (
        "import sys, offload.documents.marks, offload.documents.shipped;"
        "sys.exit(any(name in sys.modules for name in ('pydantic', 'numpy', 'networkx')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


ODD_TEXT = st.text(st.sampled_from("ab1:{}[],#&*!|>'\"%@`~ \n\t\r-?.0_<\uff1a\u00a0\u2028é\x00\ud800"), max_size=60)


@settings(max_examples=300, deadline=None)
@given(ODD_TEXT)
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_document(text, "box.yaml").raise_if_mistakes()
    except OffloadError as error:
        assert str(error).startswith("box.yaml: ")


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no endless device here")
def test_a_copy_is_a_document_of_its_own():
    document = parse_document("a: {b: [1, {c: 2}], d: 3}\nodd: true", "box.yaml")
    document.mistake(("a", "d"), "is odd.")
    other = document.copy()
    other.set(("a", "b", 1, "c"), "5", "--set a.b.1.c=5")
    other.mistake(("odd",), "is odd too.")
    other.refused.add(("a",))
    assert document.value == {"a": {"b": [1, {"c": 2}], "d": 3}, "odd": True} and not document.refused
    assert other.value["a"]["b"] == [1, {"c": 5}] and other.mark(("a", "b", 1, "c")) == (0, 0)
    assert document.mark(("a", "b", 1, "c")) == (1, 16)
    assert [len(one.mistakes) for one in (document, other)] == [1, 2]
    part = document.part(("a",)).copy()
    part.set(("d",), "4", "--set a.d=4")
    assert part.value["d"] == 4 and document.value["a"]["d"] == 3


def test_a_file_without_end_is_not_read_to_it():
    with pytest.raises(DocumentError, match="more than 16,000,000 bytes; at most 4,000,000 characters"):
        read_document("/dev/zero")


def test_as_many_bytes_as_the_characters_may_have_are_read(tmp_path):
    """A character takes up to four bytes, so the number of bytes alone refuses no file of fewer characters."""
    path = tmp_path / "wide.yaml"
    path.write_text("a: 1\n" + "\n".join(["# " + "\U0001f600" * 99_000] * 40), encoding="utf-8")
    assert path.stat().st_size > 15_000_000 and read_document(path).value == {"a": 1}


CONFIG = '{"model_type": "llama", "hidden_size": 1, "vocab_size": 2}'
TOPOLOGY = "memories: {hbm0: {kind: none}}\nprocessors: {}"
PLAN = "topology: gh200\ntensors: {}\ntasks: {}"
CASE = "kind: x\nstrength: A\nsource: {}\ntopology: gh200\nplan: {}\nmeasured: {}"
LOADERS = {"topology": load_topology, "plan": load_plan, "case": load_cases}


@pytest.mark.parametrize("kind, text", [("topology", TOPOLOGY), ("plan", PLAN), ("case", CASE),
                                        ("model's config.json", CONFIG)])  # fmt: skip
@pytest.mark.parametrize("due", LOADERS)
def test_a_file_of_another_kind_is_told_once(kind, text, due, tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DocumentError) as error:
        LOADERS[due](path)
    told = [one.message for one in error.value.mistakes]
    if kind == due:
        assert not any("due is" in one for one in told)
    else:
        assert len(told) == 1 and told[0].startswith("this is a") and f"{kind}; due is a {due}" in told[0]


@pytest.mark.parametrize("due", LOADERS)
def test_a_file_of_no_kind_is_told_once_and_a_misspelt_one_key_by_key(due, tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text("fio version: 3\njobs: []\ndisk_util: []\n", encoding="utf-8")
    with pytest.raises(DocumentError) as error:
        LOADERS[due](path)
    assert len(error.value.mistakes) == 1 and "its keys are fio version, jobs, disk_util" in str(error.value)
    misspelt = {"topology": "memoris", "plan": "tensrs", "case": "measurd"}[due]
    path.write_text(f"jobs: []\n{misspelt}: {{}}\nx: 1\ny: 2\n", encoding="utf-8")
    with pytest.raises(DocumentError, match=f'unknown key "{misspelt}".*Did you mean'):
        LOADERS[due](path)
