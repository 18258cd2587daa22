"""What tests of readers of XML share: the fixtures, the larger collection, dirt, and what a finding may not hold."""

from __future__ import annotations

import math
import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import ModuleType

from hypothesis import strategies as st

from offload.errors import OffloadError
from offload.readers.tools.finding import Finding, facts_of
from offload.readers.tools.text import clean
from tests.pace import within

OUTPUTS = Path(__file__).parent / "data" / "outputs"
SAMPLES = Path(__file__).parents[2] / "shared" / "samples"  # where a larger collection lies


def output(name: str) -> str:
    return (OUTPUTS / name).read_text()


def finding_of(reader: ModuleType, content: str) -> Finding:
    text = clean(content)
    assert reader.is_it(text)
    return reader.read(text)


def dirty(content: str) -> str:
    """An output as people paste it: log lines around it, a fence, colours, CRLF. One line more stands before it."""
    colored = re.sub(r"^( *)(<\w+)", "\\1\x1b[32m\\2\x1b[0m", content, flags=re.MULTILINE)
    return f"host:12:34 [0] INFO <starting> & done\n{colored}\n```\n$ exit < /dev/null\n".replace("\n", "\r\n")


def numbers_in(value: object):
    """Every number in a finding, however deep."""
    if isinstance(value, int | float):
        yield value
    elif is_dataclass(value):
        for field in fields(value):
            yield from numbers_in(getattr(value, field.name))
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from numbers_in(key)
            yield from numbers_in(inner)
    elif isinstance(value, tuple | list):
        for inner in value:
            yield from numbers_in(inner)


def assert_reads_or_refuses(reader: ModuleType, content: str) -> None:
    """A text ends in a finding with finite numbers and lines of the file, or in an OffloadError, within a second."""
    try:
        with within(1):
            text = clean(content)
            finding = reader.read(text) if reader.is_it(text) else None
    except OffloadError as error:
        assert str(error)
        return
    if finding is None:
        return
    assert all(math.isfinite(number) for number in numbers_in(finding))
    assert all(1 <= fact.line <= len(text.lines) for fact in facts_of(finding) if fact.line)
    names = [device.name for device in finding.machine.devices]
    assert len(set(names)) == len(names)
    ends = {*names, "nvswitch", *(f"numa{node.number}" for node in finding.machine.numas)}
    assert all({joint.first, joint.second} <= ends for joint in finding.machine.joints)
    assert all(device.parent is None or device.parent in ends for device in finding.machine.devices)


@st.composite
def spoiled(draw: st.DrawFn, contents: tuple[str, ...]) -> str:
    """A fixture that is cut, has its lines shuffled, its characters changed or its words swapped."""
    content = draw(st.sampled_from(contents))
    way = draw(st.sampled_from(("cut", "shuffled", "flipped", "numbers", "lines")))
    if way == "cut":
        return content[: draw(st.integers(0, len(content)))]
    if way == "flipped":
        data = bytearray(content.encode())
        for place in draw(st.lists(st.integers(0, len(data) - 1), min_size=1, max_size=8)):
            data[place] ^= 1 << draw(st.integers(0, 7))
        return data.decode("utf-8", errors="replace")
    if way == "numbers":
        words = ("0", "-1", "nan", "inf", "1e999", "9" * 30, "", "N/A", "0x", "\u0663", "\u00b2")
        places = list(re.finditer(r'(?<=")[^"<>]*(?=")', content))
        for found in sorted(draw(st.lists(st.sampled_from(places), max_size=6, unique_by=lambda found: found.start())),
                            key=lambda found: -found.start()):  # fmt: skip
            content = content[: found.start()] + draw(st.sampled_from(words)) + content[found.end() :]
        return content
    lines = content.splitlines()
    if way == "shuffled":
        return "\n".join(draw(st.permutations(lines)))
    chosen = draw(st.lists(st.integers(0, len(lines) - 1), max_size=5))
    return "\n".join(line for number, line in enumerate(lines) for _ in range(0 if number in chosen[:3] else 1 + (
        number in chosen[3:])))  # fmt: skip
