"""Outputs of tools that measure rates: small files of our own, larger ones where they lie, dirt, and damage."""

from __future__ import annotations

import math
from dataclasses import astuple
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import strategies as st

from offload.errors import OffloadError
from offload.readers.tools.finding import Finding
from offload.readers.tools.text import clean
from tests.pace import within

OWN = Path(__file__).parent / "data" / "outputs"
SAMPLES = Path(__file__).parents[2] / "shared" / "samples"  # where a larger collection lies
where_samples_lie = pytest.mark.skipif(not SAMPLES.exists(), reason="the collection of samples is not here")


def find(reader: str, content: str) -> Finding:
    """What one reader says of a text, which must be of its kind."""
    module = import_module(f"offload.readers.tools.{reader}")
    text = clean(content)
    assert module.is_it(text)
    return module.read(text)


def own(name: str) -> str:
    return (OWN / name).read_text()


def sample(name: str) -> str:
    return (SAMPLES / name).read_text(errors="replace")


def values(finding: Finding, source: str, destination: str, **conditions) -> list[float]:
    """The rates [GB/s] between two ends under conditions, as they come; `note` : a part of the note."""
    note = conditions.pop("note", "")
    return [
        round(rate.rate / 1e9, 6)
        for rate in finding.rates
        if (rate.source, rate.destination) == (source, destination)
        and note in rate.note
        and all(getattr(rate, key) == value for key, value in conditions.items())
    ]


def dirty(content: str) -> str:
    """The same as it looks when pasted: in a fence, with colours, loggers' times, and Windows' ends of lines."""
    lines = [f"2025-11-30 07:00:00,123 \x1b[32m{line}\x1b[0m" for line in content.splitlines()]
    return "\r\n".join(["Here is what I get:", "", "```text", *lines, "```", ""])


@st.composite
def damaged(draw, names: tuple[str, ...]) -> str:
    """One of our files cut, with lines in another order or letters changed."""
    content = own(draw(st.sampled_from(names)))
    how = draw(st.sampled_from(("cut", "shuffled", "flipped", "digits")))
    if how == "cut":
        first = draw(st.integers(0, len(content)))
        return content[first : draw(st.integers(first, len(content)))]
    if how == "shuffled":
        return "\n".join(draw(st.permutations(content.splitlines())))
    raw = bytearray(content, "utf-8")
    digits = [at for at, byte in enumerate(raw) if chr(byte).isdigit()] if how == "digits" else range(len(raw))
    for at in draw(st.lists(st.sampled_from(digits), min_size=1, max_size=12)):
        raw[at] = draw(st.sampled_from(b"0123456789.-eN\xff[{\"") if how == "digits" else st.integers(0, 255))
    return raw.decode("utf-8", errors="replace")


def holds(reader: str, content: str) -> None:
    """A reader ends in a finding of finite positive figures or in an OffloadError, within a second."""
    module = import_module(f"offload.readers.tools.{reader}")
    finding = None
    with within(1):
        try:
            text = clean(content)
            module.is_it(text)
            finding = module.read(text)
        except OffloadError as error:
            assert str(error)
    for one in (*finding.rates, *finding.delays) if finding else ():
        figures = [figure for figure in astuple(one) if isinstance(figure, float)]
        assert figures
        assert all(math.isfinite(figure) and figure > 0 for figure in figures)
