"""The numbers that two compilations of a step are compared by: all of them, in one order."""

from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from offload import load_plan
from offload.compiler import compile_step
from offload.sweeps.inside import numbers

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def plainly(value):
    """The same, written as one reads it."""
    if isinstance(value, bool | str) or value is None:
        return []
    if isinstance(value, int | float):
        return [value]
    if isinstance(value, dict) or hasattr(value, "values"):
        return [number for one in value.values() for number in plainly(one)]
    if isinstance(value, tuple | list):
        return [number for one in value for number in plainly(one)]
    if is_dataclass(value):
        return [number for one in fields(value) if one.compare for number in plainly(getattr(value, one.name))]
    return []


@pytest.mark.parametrize("name", ["by-hand", "llama-3.1-70b-desktop", "three-tiers", "phases-speculation"])
def test_all_numbers_of_a_step_are_compared(name):
    plan, server = load_plan(EXAMPLES / f"{name}.yaml")
    step = compile_step(server, plan)
    found = numbers(step)
    assert found == plainly((step.rows, step.resources, step.slots, step.occupied))
    assert len(found) > 30
    assert all(type(one) in (int, float) for one in found)
