"""Python's functions as JavaScript: they give the same bits on numbers drawn by chance; what is unknown is refused."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from offload.errors import OffloadError
from offload.laps import step_seconds
from offload.page.programs import CALLED, script_of
from offload.page.scripted import HELPERS, scripted
from offload.prefetching import Prefetching
from tests.test_report_browser import CHROMIUM, sync_playwright

NODE = shutil.which("node")
ENGINES = [
    pytest.param("node", marks=pytest.mark.skipif(NODE is None, reason="there is no node")),
    pytest.param("browser", marks=pytest.mark.skipif(
        sync_playwright is None or CHROMIUM is None, reason="there is no Chromium, or no playwright")),
]  # fmt: skip
CALLS = """(cases) => cases.map(([name, given]) => {
  try { return CALLED[name](...given); } catch (error) { return error.name; }
})"""


def run_in(engine: str, script: str, cases: Sequence[Any]) -> list[Any]:
    """What CALLED of a script gives for (name, arguments) each; the name of an error where one is thrown."""
    whole = f'(() => {{ "use strict"; {script}\nreturn JSON.stringify(({CALLS})({json.dumps(cases)})); }})()'
    if engine == "node":
        done = subprocess.run([NODE], input=f"console.log({whole})", capture_output=True, text=True, check=True)
        return json.loads(done.stdout)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            return json.loads(started.new_page().evaluate(whole))
        finally:
            started.close()


def layers_by_chance(chance: random.Random) -> tuple[Prefetching, list[float]]:
    """Up to 12 layers of up to three kinds, in two buffers or many, and their numbers, some of them with no delay."""
    kinds, others, resources = chance.randint(1, 3), chance.randint(1, 3), chance.randint(1, 4)
    layers = chance.choice([1, 2, 3, 5, 8, 12])
    uses = [[tuple(chance.sample(range(resources), chance.randint(1, resources))) for _ in range(count)]
            for count in (kinds, others)]  # fmt: skip
    buffers = chance.choice([2, 2, 3, 4, 6, 30])
    barred = buffers == 2 and chance.random() < 0.3
    numbers = []
    for used in (*uses[0], *uses[1]):
        numbers += [0.0 if barred or chance.random() < 0.5 else 0.1 * chance.random(), *(chance.random() for _ in used)]
    orders = [[chance.randrange(count) for _ in range(layers)] for count in (kinds, others)]
    return Prefetching.of(*orders, buffers, *uses, barred), numbers


@pytest.mark.few
@pytest.mark.parametrize("engine", ENGINES)
def test_streamed_layers_take_as_long_as_in_python(engine):
    chance = random.Random(11)
    drawn = [layers_by_chance(chance) for _ in range(600)]
    cases = [("step_seconds", [*layers.plain(), numbers]) for layers, numbers in drawn]
    assert run_in(engine, script_of(CALLED), cases) == [layers(*numbers) for layers, numbers in drawn]
    ways = {layers.attained(numbers)[2] if layers.barrier_only else type(layers.attained(numbers)[2])
            for layers, numbers in drawn[:60]}  # fmt: skip
    assert len(ways) > 2  # a barrier, the recurrence and shares are among them


def test_plain_arithmetic_is_the_period_of_prefetching():
    chance = random.Random(12)
    for _ in range(50):
        layers, numbers = layers_by_chance(chance)
        assert step_seconds(*layers.plain(), numbers) == layers(*numbers) == layers.attained(numbers)[0]


PLACES = (4, 7)


def turned(a: float, b: float, flag: bool = False) -> float:
    """Of each kind of what is known, something that JavaScript's own operators would do otherwise."""
    left, right = a, b
    left, right = right, left
    found = left % right + 10 * (left // right) + 100 * (-left % right)
    filled = [1.5] * 4
    filled[-1] = found
    filled[2], filled[-3] = filled[-1], filled[-2]
    first = last = 0.0
    for place in range(1, len(filled)):
        if not flag and place == 3:
            break
        if 0 < place <= 2:
            first = first + filled[-place]
            continue
        last -= filled[place] / max(right, 0.25, left)
    for place in range(2):
        place = place + 1
        last = last + place * PLACES[place - 1]
    while last > 1e6:
        last = last / 2
    return plain_sum(first, last) if found >= 0 else min(first, int(last), abs(first))


def plain_sum(a: float, b: float = 2.0) -> float:
    return a + b


def defaults(a: float) -> float:
    return plain_sum(a)


def holes(a: float) -> float:
    return [1.0, 2.0][int(a)]


def exported(*functions: Callable[..., Any]) -> str:
    names = ", ".join(one.__name__ for one in functions)
    return f"const CALLED = (() => {{ {scripted(functions)}\nreturn {{ {names} }}; }})();"


@pytest.mark.few
@pytest.mark.parametrize("engine", ENGINES)
def test_operators_mean_what_they_mean_in_python(engine):
    chance = random.Random(13)
    numbers = [-7, -3, -2.5, -1, -0.1, 0.1, 1, 2, 2.5, 3, 7, 1e9, *(chance.uniform(-9, 9) for _ in range(40))]
    cases = [("turned", [chance.choice(numbers), chance.choice(numbers), chance.random() < 0.5]) for _ in range(400)]
    cases += [("defaults", [3.25])]
    wanted = [{"turned": turned, "defaults": defaults}[name](*given) for name, given in cases]
    assert run_in(engine, exported(turned, defaults), cases) == wanted
    failing = [("turned", [0.0, 1.0]), ("turned", [0, -3]), ("holes", [2]), ("holes", [-3]), ("holes", [-2])]
    found = run_in(engine, exported(turned, holes), failing)
    assert found == ["RangeError", "RangeError", "RangeError", "RangeError", 1.0]
    for name, given in failing[:4]:
        with pytest.raises((ZeroDivisionError, IndexError)):
            {"turned": turned, "holes": holes}[name](*given)


def of_source(text: str, tmp_path: Any, **known: Any) -> Callable[..., Any]:
    """The function `asked` of a source."""
    path = tmp_path / "source.py"
    path.write_text(text)
    scope: dict[str, Any] = dict(known)
    exec(compile(text, str(path), "exec"), scope)
    return scope["asked"]


@pytest.mark.parametrize("body", [
    "return a ** 2", "return round(a)", "return sum([a])", "return a.real", "return a[0:1]", "return a @ a",
    "return [one for one in a]", "return a if a is None else 1", "return a in (1, 2)", "return -a[0] < f(a) < 3",
    "return a or 2", "return max(*a)", "return max(a)", "return max(a, 1, key=abs)", "return 'text'", "return {}",
    "return lambda: a", "return unknown", "return unknown(a)", "return other(a, a, a)", "return other()",
    "return a + [1]", "return (1, 2) + (3, 4)", "return None", "return 2 ** 60", "return 9007199254740993",
    "new = a\n    return new", "max = a\n    return max(a, 1)", "other = a\n    return other(a)",
    "for one in a:\n        a = one\n    return a", "for one in range(0, 9, 2):\n        a = one\n    return a",
    "for one in range(3):\n        a = one\n    else:\n        a = 2\n    return a", "a[0] += 1", "del a",
    "a, *b = 1, 2", "a, b = 1, 2, 3", "try:\n        a = 1\n    finally:\n        a = 2", "with a:\n        pass",
    "global here\n    here = a", "assert a", "raise a", "import math", "yield a", "a = b = c[0] = 1",
    "return (b := a)", "b = [1.0]\n    return b * a", "b = [1.0]\n    return 1 if b else 2", "return py_max",
    "py_max = a\n    return py_max", "return f'{a}'", "return True if a == (1, 2) else 0", "return ~a",
])  # fmt: skip
def test_what_is_unknown_is_refused(tmp_path, body):
    asked = of_source(f"def asked(a):\n    {body}\n", tmp_path, other=plain_sum)
    with pytest.raises(OffloadError):
        scripted([asked])


@pytest.mark.parametrize("head", ["*a", "**a", "a, *, b", "a, /, b", "a=[]", "a: Sequence[float], b=None"])
def test_arguments_that_are_unknown_are_refused(tmp_path, head):
    with pytest.raises(OffloadError):
        scripted([of_source(f"from collections.abc import Sequence\ndef asked({head}):\n    return 1\n", tmp_path)])


def test_lists_are_not_taken_for_numbers(tmp_path):
    head = "from __future__ import annotations\ndef asked(a: Sequence[float]):\n"
    for body in ("return a + a", "return a == a", "return 1 if a else 2", "return -a"):
        with pytest.raises(OffloadError):
            scripted([of_source(f"{head}    {body}\n", tmp_path)])
    assert "a.length" in scripted([of_source(f"{head}    return len(a)\n", tmp_path)])


def test_what_is_no_plain_function_is_refused(tmp_path):
    for one in (max, Prefetching, layers_by_chance, lambda a: a):
        with pytest.raises(OffloadError):
            scripted([one])
    with pytest.raises(OffloadError, match="two things"):
        scripted([of_source("def asked(a):\n    return a\n", tmp_path),
                  of_source("def asked(a):\n    return 2 * a\n", tmp_path)])  # fmt: skip


def test_a_page_that_calls_nothing_has_no_functions():
    assert "function py_" in HELPERS and "function" not in script_of([]).replace("(function () {", "")
