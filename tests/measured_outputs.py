"""What the tests of readers of measured rates share: fixtures, dirt, damage, and what no reader may ever return."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload.errors import OffloadError
from offload.readers.tools.finding import Finding
from offload.readers.tools.text import clean
from tests.pace import within

OUTPUTS = Path(__file__).parent / "data" / "outputs"
SAMPLES = Path(__file__).parents[2] / "shared" / "samples"  # where a larger collection lies


def output(name: str) -> str:
    return (OUTPUTS / name).read_text(encoding="utf-8")


def found(reader: ModuleType, content: str) -> Finding:
    text = clean(content)
    assert reader.is_it(text)
    return reader.read(text)


def sample(reader: ModuleType, name: str) -> Finding:
    path = SAMPLES / name
    if not path.exists():
        pytest.skip("the larger collection is not here")
    return found(reader, path.read_text(encoding="utf-8"))


def rates(finding: Finding) -> list[tuple[object, ...]]:
    """Each rate: ends, B/s, access, when, size, depth, streams, line."""
    return [(one.source, one.destination, one.rate, one.access, one.when, one.size, one.depth, one.streams, one.line)
            for one in finding.rates]  # fmt: skip


def facts(finding: Finding, unit: str) -> list[tuple[str, object, int]]:
    return [(fact.what, fact.value, fact.line) for fact in finding.facts if fact.unit == unit]


def numbers(value: object) -> Iterator[float]:
    if isinstance(value, float):
        yield value
    elif dataclasses.is_dataclass(value):
        for one in dataclasses.fields(value):
            yield from numbers(getattr(value, one.name))
    elif isinstance(value, tuple):
        for one in value:
            yield from numbers(one)


def ends_well(reader: ModuleType, content: str) -> None:
    """A damaged output ends in a finding of finite figures above 0, or an OffloadError, within a second."""
    with within(1):
        try:
            text = clean(content)
            finding = reader.read(text) if reader.is_it(text) else None
        except OffloadError as error:
            assert str(error)
            finding = None
    if finding is not None:
        assert all(math.isfinite(number) and number > 0 for number in numbers(finding))
        assert all(one.rate > 0 and 1 <= one.line <= len(text.lines) for one in finding.rates)
        assert finding.rates or finding.delays or finding.facts


@st.composite
def damaged(draw: st.DrawFn, contents: list[str]) -> str:
    """An output cut somewhere, its lines shuffled or left out, or some of its bytes changed."""
    content = draw(st.sampled_from(contents))
    kind = draw(st.sampled_from(("cut", "lines", "bytes", "none left")))
    if kind == "cut":
        return content[: draw(st.integers(0, len(content)))]
    lines = content.splitlines(keepends=True)
    if kind == "lines":
        return "".join(draw(st.permutations(lines)))
    if kind == "none left":
        keep = draw(st.lists(st.booleans(), min_size=len(lines), max_size=len(lines)))
        return "".join(line for line, kept in zip(lines, keep, strict=True) if kept)
    data = bytearray(content.encode())
    for at in draw(st.lists(st.integers(0, len(data) - 1), min_size=1, max_size=8)):
        data[at] = draw(st.one_of(st.integers(0, 255), st.sampled_from(b'0-9.,:{}[]"eE\n ')))
    return data.decode(errors="replace")


def damage_test(reader: ModuleType, names: tuple[str, ...]) -> Callable[[], None]:
    """A property test of a reader over damaged fixtures."""

    @given(damaged([output(name) for name in names]))
    def test(content: str) -> None:
        ends_well(reader, content)

    return test


def dirty(content: str) -> Iterator[str]:
    """The same output as it comes pasted; every line keeps its place but for the first of each."""
    yield content.replace("\n", "\r\n")
    yield "".join(f"\x1b[32m{line}\x1b[0m\n" for line in content.splitlines())
    yield "".join(f"2026-01-02T03:04:05.123Z {line}\n" for line in content.splitlines())
    yield f"Hello, here it is:\n```text\n{content}\n```\nThanks\n"
    yield f"WARNING: {{not json [1, 2}}\n{content}"


def same_but_lines(first: Finding, second: Finding) -> bool:
    def bare(finding: Finding) -> object:
        def of(parts: tuple[object, ...]) -> list[object]:
            return [dataclasses.replace(part, line=0) for part in parts]  # type: ignore[type-var]

        return of(finding.rates), of(finding.delays), of(finding.facts)

    return bare(first) == bare(second)
