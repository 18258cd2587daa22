"""Outputs of tools that tell a machine's shape: fixtures, larger samples where they lie, dirt, and damage to them."""

from __future__ import annotations

import math
import random
from pathlib import Path
from types import ModuleType

from hypothesis import strategies as st

from offload.errors import OffloadError, ReadingError
from offload.readers.tools.finding import Finding, facts_of
from offload.readers.tools.text import clean
from tests.pace import within

DATA = Path(__file__).parent / "data" / "outputs"
SAMPLES = Path(__file__).parents[2] / "shared" / "samples"  # where a larger collection lies


def fixture(name: str) -> str:
    return (DATA / name).read_bytes().decode()


def sample(name: str) -> str:
    return (SAMPLES / name).read_bytes().decode()


def finding(module: ModuleType, content: str) -> Finding:
    text = clean(content)
    assert module.is_it(text)
    return module.read(text)


def refusal(module: ModuleType, content: str) -> str:
    try:
        finding(module, content)
    except ReadingError as error:
        return str(error)
    raise AssertionError("was read")


def facts(found: Finding) -> dict[str, object]:
    """Every fact by its words; two of the same words must not differ."""
    told: dict[str, object] = {}
    for fact in facts_of(found):
        assert told.setdefault(fact.what, fact.value) == fact.value, fact
    return told


def dirty(content: str) -> dict[str, str]:
    """The same output as people paste it."""
    lines = content.splitlines()
    return {
        "ANSI": "\n".join(f"\x1b[1m{line}\x1b[0m" for line in lines),
        "CRLF": "\r\n".join(lines),
        "fence": "Here it is:\n\n```text\n" + content + "\n```\nThanks!\n",
        "log": "\n".join(f"2026-01-02 03:04:05,678 {line}" for line in lines),
    }


@st.composite
def damage(draw: st.DrawFn, content: str) -> str:
    """The content cut, with lines shuffled or repeated, with bytes flipped, or with numbers blown up."""
    raw = content.encode()
    match draw(st.sampled_from(["cut", "shuffle", "flip", "blow up", "twice"])):
        case "cut":
            raw = raw[draw(st.integers(0, len(raw) // 2)) : draw(st.integers(len(raw) // 2, len(raw)))]
        case "shuffle":
            lines = raw.splitlines(keepends=True)
            random.Random(draw(st.integers(0, 2**32))).shuffle(lines)
            raw = b"".join(lines)
        case "flip":
            changed = bytearray(raw)
            for place in draw(st.lists(st.integers(0, len(raw) - 1), min_size=1, max_size=30)):
                changed[place] ^= draw(st.integers(1, 255))
            raw = bytes(changed)
        case "blow up":
            digit = draw(st.sampled_from([b"0", b"1", b"2", b"5"]))
            by = draw(
                st.sampled_from([b"-1", b"NaN", b"9" * 400, b"9" * 5000, b"1e999", b"", b"\xd9\xa3", b"[" * 3000])
            )
            raw = raw.replace(digit, by, draw(st.integers(1, 4)))
        case "twice":
            raw = raw + raw[draw(st.integers(0, len(raw) - 1)) :]
    return raw.decode(errors="replace")


def survives(module: ModuleType, content: str) -> None:
    """Reading ends within a second in a finding of finite numbers or in an OffloadError."""
    with within(1):
        try:
            text = clean(content)
            found = module.read(text) if module.is_it(text) else None
        except OffloadError as error:
            assert "\n" not in str(error) and len(str(error)) < 1000
            found = None
    for fact in facts_of(found) if found else ():
        assert not isinstance(fact.value, float) or math.isfinite(fact.value)
        assert fact.unit == "" or fact.value > 0
        assert 1 <= fact.line <= len(text.lines)
