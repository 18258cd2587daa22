"""Worked examples as data: each case of a file is put through the public functions and held against its answers.

A module of this package registers, for the kinds of case that it knows, a function from a case's inputs to its answers.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

Runner = Callable[[Mapping[str, Any]], Mapping[str, Any]]
KINDS: dict[str, Runner] = {}


def kind(name: str) -> Callable[[Runner], Runner]:
    """Registers the function that answers cases of a kind: inputs -> answers by the keys of `expected`."""

    def register(runner: Runner) -> Runner:
        if name in KINDS:
            raise ValueError(f"two functions for {name}")
        KINDS[name] = runner
        return runner

    return register


def load_kinds() -> Mapping[str, Runner]:
    """All kinds that are known."""
    for module in pkgutil.iter_modules(__path__):
        if module.name != "__main__":
            importlib.import_module(f"{__name__}.{module.name}")
    return KINDS


def exactly(value: Any) -> Any:
    """Numbers as fractions, a float by the decimals that it is written with; containers alike, other things as is."""
    if isinstance(value, bool) or isinstance(value, str) or value is None:
        return value
    if isinstance(value, int | float):
        return Fraction(str(value))
    if isinstance(value, Mapping):
        return {key: exactly(one) for key, one in value.items()}
    if isinstance(value, Sequence):
        return [exactly(one) for one in value]
    return value


def differences(case: Mapping[str, Any]) -> list[str]:
    """What a case's answers differ in from those that it expects: nothing where it passes.

    Whole numbers must be met exactly, others to the case's `rtol`; what it calls `exact` too, by value where the
    answer is a fraction.
    """
    runner = load_kinds().get(case.get("kind"))
    if runner is None:
        return [f"unknown kind: {case.get('kind')}"]
    rtol = float(case.get("rtol", 1e-12))
    try:
        answers = runner(case["inputs"])
    except Exception as error:  # a case that cannot be answered is one that fails
        return [f"{type(error).__name__}: {error}"]
    found = list(_differ("", case["expected"], answers, rtol))
    return found + list(_differ("exact ", _fractions(case.get("exact", {})), answers, rtol))


def _fractions(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _fractions(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_fractions(one) for one in value]
    return Fraction(value) if isinstance(value, str) else value


def _differ(where: str, expected: Any, answer: Any, rtol: float):
    if isinstance(expected, Mapping):
        if not isinstance(answer, Mapping):
            yield f"{where}: {answer!r}, not a table"
            return
        for key, value in expected.items():
            at = f"{where}{'.' if where and not where.endswith(' ') else ''}{key}"
            if key not in answer:
                yield f"{at}: no answer"
            else:
                yield from _differ(at, value, answer[key], rtol)
    elif isinstance(expected, list):
        if not isinstance(answer, Sequence) or isinstance(answer, str) or len(answer) != len(expected):
            yield f"{where}: {answer!r}, not {expected!r}"
            return
        for index, (one, other) in enumerate(zip(expected, answer, strict=True)):
            yield from _differ(f"{where}[{index}]", one, other, rtol)
    elif not _equal(expected, answer, rtol):
        yield f"{where}: {answer if isinstance(answer, Fraction) else repr(answer)}, not {expected}"


def _equal(expected: Any, answer: Any, rtol: float) -> bool:
    numbers = (int, float, Fraction)
    if isinstance(expected, bool | str) or expected is None or not isinstance(expected, numbers):
        return type(answer) is type(expected) and answer == expected
    if isinstance(answer, bool) or not isinstance(answer, numbers):
        return False
    if isinstance(expected, int) or (isinstance(expected, Fraction) and isinstance(answer, Fraction)):
        return answer == expected
    return abs(float(answer) - float(expected)) <= rtol * abs(float(expected))
