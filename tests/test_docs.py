"""What the docs promise: files that they show are read as they stand, every key is told, and links lead somewhere."""

from __future__ import annotations

import doctest
import importlib
import json
import re
import runpy
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest

from offload import cli
from offload.documents import (
    case_shape,
    load_plan,
    load_topology,
    plan_experts,
    plan_shape,
    shipped_topologies,
    topology_shape,
)
from offload.documents.case_file import load_cases
from offload.documents.shapes import Shape
from offload.documents.shipped import shipped_cases
from offload.models import catalogue, weigh
from offload.models.formats import KV_FORMATS
from offload.models.quantisation import METHODS
from offload.models.weights import WEIGHT_FORMATS, bits_per_weight

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted((ROOT / "docs").rglob("*.md"))
README = ROOT / "README.md"
CASE_PAGE = ROOT / "docs" / "case-files.md"
EXPERTS_PAGE = ROOT / "docs" / "experts-in-plans.md"
PLAN_PAGE, TOPOLOGY_PAGE = ROOT / "docs" / "plan-files.md", ROOT / "docs" / "topology-files.md"
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
SERVERS = sorted((ROOT / "examples" / "servers").glob("*.yaml"))
KINDS = ("Access", "Format", "MemoryKind", "ProcessorKind", "SwitchKind", "LinkKind")


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def blocks() -> Iterator[object]:
    for page in [README, *PAGES]:
        for number, text in enumerate(re.findall(r"^```yaml\n(.*?)^```", text_of(page), re.S | re.M)):
            yield pytest.param(text, id=f"{page.name}-{number}")


def keys() -> Iterator[object]:
    """Every key of a plan, a topology and a case, with the page that must tell it."""
    pages = {plan_shape: PLAN_PAGE, plan_experts: EXPERTS_PAGE, topology_shape: TOPOLOGY_PAGE, case_shape: CASE_PAGE}
    for module, page in pages.items():
        for shape in vars(module).values():
            if isinstance(shape, type) and issubclass(shape, Shape) and shape is not Shape:
                for name, field in shape.model_fields.items():
                    key = field.alias or name
                    own = ROOT / "docs" / "files.md" if key == "$schema" else page
                    if shape.__module__.endswith("plan_training"):
                        own = ROOT / "docs" / "training.md"
                    yield pytest.param(key, own, id=f"{shape.__name__}.{key}")


def words() -> Iterator[object]:
    """Every word that may stand as a value, with the page that must tell it."""
    for kind in KINDS:
        for word in typing.get_args(getattr(topology_shape, kind)):
            if word:  # "" is any access
                yield pytest.param(word, TOPOLOGY_PAGE, id=f"{kind}.{word}")
    for word in KV_FORMATS:
        yield pytest.param(word, PLAN_PAGE, id=word)
    for word in (*WEIGHT_FORMATS, *METHODS):
        yield pytest.param(word, ROOT / "docs" / "weight-formats.md", id=word)


def code_in(page: Path) -> str:
    """What stands in backticks or in a block of code."""
    return "\n".join(re.findall(r"```.*?```|`[^`\n]+`", text_of(page), re.S))


def links(page: Path) -> list[str]:
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", text_of(page)) if "://" not in link]


@pytest.mark.parametrize("text", list(blocks()))
def test_files_that_the_docs_show_are_read(text, tmp_path):
    path = tmp_path / "shown.yaml"
    path.write_text(text, encoding="utf-8")
    if "memories:" in text:
        assert load_topology(path).resources
    elif "measured:" in text:
        assert load_cases(path)
    else:
        assert load_plan(path)[0].blocks


@pytest.mark.parametrize("page", [page for page in PAGES if ">>> " in text_of(page)], ids=lambda page: page.name)
def test_sessions_that_the_docs_show_answer_so(page):
    text = "\n".join(re.findall(r"^```python\n(.*?)^```", text_of(page), re.S | re.M))
    session = doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0)
    told: list[str] = []
    assert doctest.DocTestRunner().run(session, out=told.append) == (0, len(session.examples)), "".join(told)


@pytest.mark.parametrize(("key", "page"), [*keys(), *words()])
def test_every_key_and_word_is_told(key, page):
    told = re.search(rf"(?<![\w-]){re.escape(key)}(?![\w-])", code_in(page))
    assert told, f"{page.name} says nothing of {key}: what it means, its unit and its default"


def test_the_pages_show_every_kind_of_part():
    text = text_of(TOPOLOGY_PAGE)
    assert [section for section in topology_shape.TopologyShape.model_fields if section not in ("schema_",)
            and not re.search(rf"`{section}`|^{section}:|^## {section}", text, re.M | re.I)] == []  # fmt: skip


@pytest.mark.parametrize("page", [page for page in PAGES if ">>>" in text_of(page)], ids=lambda page: page.name)
def test_sessions_of_the_docs_give_what_they_show(page):
    failed, tried = doctest.testfile(str(page), module_relative=False)
    assert tried and not failed


def test_the_bits_of_formats_are_those_that_are_told():
    page = text_of(ROOT / "docs" / "weight-formats.md")
    rows = [(re.findall(r"`([^`]+)`", names), bits.split(", ")) for names, bits in
            re.findall(r"^\| (`[a-z0-9`, -]+`) \| ([\d., ]+) \|", page, re.M)]  # fmt: skip
    assert len(rows) == 20
    for names, bits in rows:
        for place, name in enumerate(names):
            told = bits[place if len(bits) > 1 else 0]
            assert round(float(bits_per_weight(name)), len(told.partition(".")[2])) == float(told), name
    whole = dict(re.findall(r"`(i?q\d\w+)` \| (\d\.\d{4})", page))
    assert len(whole) == 22
    assert {name: f"{weigh(catalogue['llama-3.1-8b'], name).bits_per_weight:.4f}" for name in whole} == whole


@pytest.mark.parametrize("path", SERVERS, ids=lambda path: path.name)
def test_every_server_of_the_examples_is_used(path):
    assert load_topology(path).resources
    assert any(f"topology: servers/{path.name}" in text_of(example) for example in EXAMPLES)


def test_the_page_shows_the_example_by_hand():
    example = re.sub(r"\A(#.*\n)+", "", text_of(ROOT / "examples" / "by-hand.yaml"))
    assert f"```yaml\n{example}```" in text_of(PLAN_PAGE)


def test_the_readme_names_every_example_and_every_server():
    text = text_of(README)
    assert [path.name for path in EXAMPLES if f"(examples/{path.name})" not in text] == []
    assert [name for name in shipped_topologies() if f"| `{name}` |" not in text] == []


@pytest.mark.parametrize("page", [README, *PAGES], ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for link in links(page):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        if anchor:
            titles = re.findall(r"^#+ (.*)$", text_of(target), re.M)
            assert anchor in [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles], link


@pytest.mark.parametrize(
    ("words", "page", "heading"),
    [
        (["step", str(ROOT / "examples" / "by-hand.yaml"), "--routes", "any"], "reading-a-report.md", "## As data"),
        (["topology", "list"], "checking-files.md", "`list`: "),
        (["topology", "show", "dgx-h100"], "checking-files.md", "`show`: "),
        (["topology", "diff", "gh200", "dgx-h100"], "comparing-topologies.md", "`--json` prints "),
        (["check", str(ROOT / "examples" / "by-hand.yaml")], "checking-files.md", "## Whether a file is sound"),
    ],
)
def test_what_json_holds_is_told(words, page, heading, capsys):
    assert cli.main([*words, "--json"]) == 0
    told = text_of(ROOT / "docs" / page).partition(heading)[2]
    names: set[str] = set()

    def collect(value: object, open_map: bool = False) -> None:
        if isinstance(value, dict):
            names.update(() if open_map else value)
            for key, part in value.items():
                collect(part, key in ("workload", "parts"))
        elif isinstance(value, list):
            for part in value:
                collect(part)

    collect(json.loads(capsys.readouterr().out))
    assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", told)] == []


def test_what_json_of_cases_holds_is_told(capsys):
    assert cli.main(["validate", "spark-llamabench", "--json"]) == 0
    told = text_of(CASE_PAGE).partition("## As data")[2].partition("\n## ")[0]
    answer = json.loads(capsys.readouterr().out)
    case, total = answer["cases"][0], answer["summary"]
    names = {*answer, *case, *case["source"], *total, *total["floor_ratio"]}
    assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", told)] == []


def test_the_page_names_every_shipped_case():
    text = text_of(CASE_PAGE)
    assert [path.stem for path in shipped_cases() if f"`{path.stem}`" not in text] == []


def test_the_rules_of_a_floor_bear_the_names_that_json_has():
    rules = re.findall(r"^ +- \*(\w+)\*:", text_of(ROOT / "docs" / "reading-a-report.md"), re.M)
    assert rules == ["load", "cycle"]


@pytest.mark.parametrize("name", sorted({*re.findall(r"`(offload(?:\.\w+)+)`", text_of(ROOT / "docs" / "theory.md"))}))
def test_the_theory_names_what_exists(name):
    path, _, last = name.rpartition(".")
    assert callable(getattr(importlib.import_module(path), last))


def test_the_index_names_every_page():
    index = ROOT / "docs" / "README.md"
    led_to = {(index.parent / link.partition("#")[0]).resolve() for link in links(index)}
    assert [page.name for page in PAGES if page != index and page.resolve() not in led_to] == []


def test_the_reference_is_that_of_the_docstrings():
    script = runpy.run_path(str(ROOT / "docs" / "api.py"))
    assert text_of(ROOT / "docs" / "api.md") == script["page"](), "python docs/api.py writes it anew"
