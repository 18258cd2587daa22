"""What the tests of readers of servers' and trainers' logs share: fixtures, dirt, damage, what no Run may hold."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

from hypothesis import given

from offload.errors import OffloadError
from offload.readers.engines.run import Buffer, Run, Said
from offload.readers.tools.text import clean
from tests.measured_outputs import damaged
from tests.pace import within

LOGS = Path(__file__).parent / "data" / "logs"
GIB = 2**30


def log(name: str) -> str:
    return (LOGS / name).read_text(encoding="utf-8")


def runs(reader: ModuleType, content: str) -> tuple[Run, ...]:
    text = clean(content)
    assert reader.is_it(text)
    return reader.read(text)


def said(run: Run) -> dict[str, tuple[object, int]]:
    """The plain fields that a run holds, with their lines."""
    values = {one.name: getattr(run, one.name) for one in dataclasses.fields(run)}
    return {name: (value.value, value.line) for name, value in values.items() if isinstance(value, Said)}


def settings(run: Run) -> dict[str, object]:
    return {key: value for key, value, _ in run.settings}


def facts(run: Run) -> dict[str, object]:
    return {what: value for what, value, _ in run.facts}


def buffers(run: Run) -> list[tuple[str, str, float, int]]:
    """Each buffer: device, content, GiB, line."""
    return [(one.device, one.holds, one.size / GIB, one.line) for one in run.buffers]


def bare(found: tuple[Run, ...]) -> list[object]:
    """Runs without the lines that say them."""

    def of(value: object) -> object:
        if isinstance(value, Said):
            return value.value
        if isinstance(value, tuple):
            return [of(one) for one in value]
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {one.name: of(getattr(value, one.name)) for one in dataclasses.fields(value) if one.name != "line"}
        return value

    def run_of(run: Run) -> object:
        plain = dataclasses.replace(
            run, line=0, facts=tuple((what, value, 0) for what, value, _ in run.facts),
            settings=tuple((key, value, 0) for key, value, _ in run.settings))  # fmt: skip
        return of(plain)

    return [run_of(run) for run in found]


def dirty(content: str, prefixes: bool = True) -> Iterator[str]:
    """The same log as it comes pasted."""
    yield content.replace("\n", "\r\n")
    yield "".join(f"\x1b[36m{line[:12]}\x1b[0m{line[12:]}\n" for line in content.splitlines())
    yield f"Hello, here it is:\n```text\n{content}\n```\nThanks\n"
    if prefixes:
        yield "".join(f"2026-01-02T03:04:05.123Z {line}\n" for line in content.splitlines())
        yield "".join(f"engine-1  | {line}\n" for line in content.splitlines())
        yield "".join(f"Jan 02 03:04:05 box engine[123]: {line}\n" for line in content.splitlines())
        yield "".join(f"(RayServe pid=77, ip=10.0.0.1) {line}\n" for line in content.splitlines())


def numbers(value: object) -> Iterator[float]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield value
    elif isinstance(value, tuple):
        for one in value:
            yield from numbers(one)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from numbers(getattr(value, field.name))


def well(run: Run, lines: int) -> None:
    """All figures are finite and above 0 (settings and layers on GPUs may be 0), all lines are the text's."""
    figures = numbers(dataclasses.replace(run, settings=(), layers_on_gpus=None))
    assert all(math.isfinite(one) and one > 0 for one in figures), run
    assert all(not isinstance(value, float) for _, value, _ in run.settings)
    told = [*run.buffers, *run.timings, *run.processors, run]
    assert all(1 <= one.line <= lines for one in told)
    assert all(1 <= line <= lines for _, line in said(run).values())
    assert all(1 <= one[-1] <= lines for one in (*run.settings, *run.facts))
    assert said(run) or run.buffers or run.timings or run.facts or run.settings or run.processors
    assert all(isinstance(one, Buffer) and isinstance(one.size, int) for one in run.buffers)


def damage_test(reader: ModuleType, names: tuple[str, ...]) -> Callable[[], None]:
    """A property test of a reader over damaged logs: runs or an OffloadError, within a second."""

    @given(damaged([log(name) for name in names]))
    def test(content: str) -> None:
        found: tuple[Run, ...] = ()
        lines = 0
        with within(1):
            try:
                text = clean(content)
                lines = len(text.lines)
                found = reader.read(text) if reader.is_it(text) else ()
                assert found or not reader.is_it(text)
            except OffloadError as error:
                assert str(error)
        for run in found:
            well(run, lines)

    return test


__all__ = ["GIB", "bare", "buffers", "damage_test", "dirty", "facts", "log", "runs", "said", "settings", "well"]
