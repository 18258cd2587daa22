"""Worked examples as data: each case of a file is put through the public functions and held against its answers.

A module of this package registers, for the kinds of case that it knows, a function from a case's inputs to its answers.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from offload.errors import FormulaError, OffloadError, did_you_mean, one_line, shown
from tests.worked.shapes import Check, Optional, is_number, table

Runner = Callable[[Mapping[str, Any]], Mapping[str, Any]]
KINDS: dict[str, Runner] = {}
INPUTS: dict[str, Check] = {}
KEYS = ("id", "section", "title", "kind", "inputs", "expected", "exact", "certificate", "rtol", "note")
COARSEST = 0.1  # rtol: what is coarser tells hardly anything
RATIO = re.compile(r"[+-]?[0-9]{1,4000}(/[0-9]{1,4000}|\.[0-9]{1,4000})?")


def kind(name: str, /, **keys: Check | Optional) -> Callable[[Runner], Runner]:
    """Registers the function that answers cases of a kind, inputs of these keys -> answers by the keys of `expected`.
    """

    def register(runner: Runner) -> Runner:
        if name in KINDS:
            raise ValueError(f"two functions for {name}")
        KINDS[name], INPUTS[name] = runner, table(**keys)
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
    answer is a fraction. A case that nothing could differ from, or with keys that nothing reads, does not pass.
    """
    name, kinds = case.get("kind"), load_kinds()
    if not isinstance(name, str) or name not in kinds:
        return [f"unknown kind: {one_line(name)}"]
    found = [f'unknown key "{one_line(key)}". {did_you_mean(one_line(key), KEYS, "Known")}' for key in case
             if key not in KEYS]  # fmt: skip
    found += INPUTS[name]("inputs", case["inputs"])
    try:
        rtol = _rtol(case.get("rtol", 1e-12))
        exact = _fractions("exact", case.get("exact", {}))
    except FormulaError as error:
        return [*found, str(error)]
    found += _never_differs("expected", case["expected"])
    if exact != {}:
        found += _never_differs("exact", exact)
    if found:
        return found
    try:
        answers = kinds[name](case["inputs"])
        found = list(_differ("", case["expected"], answers, rtol))
        return found + list(_differ("exact ", exact, answers, rtol))
    except OffloadError as error:
        return [str(error)]
    except ZeroDivisionError:
        return ["the inputs make no sense together: one that others are divided by is 0"]
    except Exception as error:  # a case that cannot be answered is one that fails
        return [f"the inputs make no sense together ({type(error).__name__}: {one_line(error)})"]


def _rtol(given: Any) -> float:
    """As a number; a text of one too, since that is what YAML makes of 1e-12. Raises FormulaError."""
    try:
        found = float("nan" if isinstance(given, bool) or given is None else given)
    except (TypeError, ValueError, OverflowError):
        found = float("nan")
    if not 0 <= found <= COARSEST:
        raise FormulaError(f"rtol: {shown(given)} is no number from 0 to {COARSEST}; a coarser one compares nothing")
    return found


def _fractions(where: str, value: Any) -> Any:
    """Texts as the fractions that they are. Raises FormulaError."""
    if isinstance(value, Mapping):
        return {key: _fractions(f"{where} {one_line(key)}", one) for key, one in value.items()}
    if isinstance(value, list):
        return [_fractions(f"{where}[{index}]", one) for index, one in enumerate(value)]
    if not isinstance(value, str):
        return value
    try:
        if RATIO.fullmatch(value):
            return Fraction(value)
    except ZeroDivisionError:
        pass
    raise FormulaError(f"{where}: {shown(value)} is no fraction of whole numbers such as 7/2")


def _never_differs(where: str, expected: Any) -> Iterator[str]:
    """Parts of what is expected that no answer differs from, or none is equal to."""
    if isinstance(expected, Mapping):
        if not expected:
            yield f"{where}: an empty table, with which nothing is compared"
        for key, value in expected.items():
            yield from _never_differs(f"{where} {one_line(key)}", value)
    elif isinstance(expected, list | tuple):
        for index, value in enumerate(expected):
            yield from _never_differs(f"{where}[{index}]", value)
    elif not isinstance(expected, bool | str | None) and not is_number(expected):
        yield f"{where}: {shown(expected)} is no finite number"


def _differ(where: str, expected: Any, answer: Any, rtol: float):
    if isinstance(expected, Mapping):
        if not isinstance(answer, Mapping):
            yield f"{where}: {_told(answer)}, not a table"
            return
        for key, value in expected.items():
            at = f"{where}{'.' if where and not where.endswith(' ') else ''}{key}"
            if key not in answer:
                yield f"{at}: no answer"
            else:
                yield from _differ(at, value, answer[key], rtol)
    elif isinstance(expected, list):
        if not isinstance(answer, Sequence) or isinstance(answer, str) or len(answer) != len(expected):
            yield f"{where}: {_told(answer)}, not {_told(expected)}"
            return
        for index, (one, other) in enumerate(zip(expected, answer, strict=True)):
            yield from _differ(f"{where}[{index}]", one, other, rtol)
    elif not _equal(expected, answer, rtol):
        yield f"{where}: {_told(answer)}, not {_told(expected)}"


def _told(value: Any) -> str:
    return one_line(value if isinstance(value, Fraction) else repr(value) if not isinstance(value, int) else value, 200)


def _equal(expected: Any, answer: Any, rtol: float) -> bool:
    numbers = (int, float, Fraction)
    if isinstance(expected, bool | str) or expected is None or not isinstance(expected, numbers):
        return type(answer) is type(expected) and answer == expected
    if isinstance(answer, bool) or not isinstance(answer, numbers):
        return False
    if isinstance(expected, int) or (isinstance(expected, Fraction) and isinstance(answer, Fraction)):
        return answer == expected
    try:
        return abs(float(answer) - float(expected)) <= rtol * abs(float(expected))
    except OverflowError:  # one of them is beyond the floats
        return abs(Fraction(answer) - Fraction(expected)) <= rtol * abs(Fraction(expected))
