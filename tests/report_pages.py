"""Pages of `offload report`: written to a folder, their data, and what Python says of the same sliders."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from offload.bounds import floor
from offload.compiler import compile_step
from offload.documents import load_plan, read_setting
from offload.page.programs import CALLED
from offload.schedules import schedule, serial
from offload.sensitivity import scaled
from offload.step import Step
from tests.commands import ROOT, run

ARITY = {"neg": 1, "pick": 4, "pick_ge": 4}
RUN = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "truediv": lambda a, b: a / b,
       "max": lambda a, b: b if b > a else a, "pick": lambda a, b, c, d: c if a > b else d,
       "pick_ge": lambda a, b, c, d: c if a >= b else d, "neg": lambda a: -a}  # fmt: skip
COMPARED = {"ne": lambda a, b: a != b, "eq": lambda a, b: a == b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
            "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b}  # fmt: skip


def write_page(folder: Path, *words: str) -> Path:
    """The page of these words of the command line."""
    path = folder / "report.html"
    done = run("report", *words, "-o", str(path))
    assert done.returncode == 0, done.stderr
    return path


def data_of(path: Path) -> dict[str, Any]:
    """The data of a page's sliders."""
    text = path.read_text(encoding="utf-8")
    return json.loads(re.search(r'<script type="application/json" id="live">(.*?)</script>', text, re.S)[1])


def replayed(data: Mapping[str, Any], told: Sequence[Any], factors: Sequence[float]) -> dict[str, float] | None:
    """What a program of a page gives, run here; None where its comparisons come out otherwise."""
    number, plain = told
    program = data["programs"][number]
    values, code, at = list(factors), program["code"], 0
    while at < len(code):
        name, call = data["operations"][code[at]], None
        if name == "call":
            at += 1
            call = program["calls"][code[at]]
        count, here = call["operands"] if call else ARITY.get(name, 2), len(values)
        operands = [values[here - one] if one > 0 else plain[-1 - one] for one in code[at + 1 : at + 1 + count]]
        values.append(CALLED[call["function"]](*call["fixed"], operands) if call else RUN[name](*operands))
        at += 1 + count

    def of(place: int) -> float:
        return plain[-1 - place] if place < 0 else values[place]

    for name, one, other, outcome in program["guards"]:
        if COMPARED[data["comparisons"][name]](of(one), of(other)) is not outcome:
            return None
    return {name: of(place) for name, place in program["outputs"]}


def point_of(data: Mapping[str, Any], at: Sequence[int]) -> dict[str, Any]:
    """What a page holds of the stops at these places."""
    place = 0
    for axis, one in zip(data["axes"], at, strict=True):
        place = place * len(axis["shown"]) + one
    return data["points"][place]


def step_of(plan: str, data: Mapping[str, Any], at: Sequence[int], factors: Mapping[str, float]) -> Step:
    """The step of a plan file at stops, with the rates of some dials times a factor: by Python alone."""
    settings = []
    for axis, one in zip(data["axes"], at, strict=True):
        words = axis["words"][one]
        assert words == [] or words[0] == "--set" and len(words) == 2
        settings += [read_setting(words[1])] if words else []
    loaded, topology = load_plan(ROOT / plan, settings=settings)
    step = compile_step(topology, loaded)
    for dial in data["dials"]:
        step = scaled(step, dial["names"], factors.get(dial["name"], 1.0))
    return step


def figures_of(step: Step) -> dict[str, float]:
    """Floor, the same at sustained rates, serial and expected [s], by single evaluation."""
    return {"floor": floor(step).seconds, "sustained": floor(step, "value").seconds, "serial": serial(step).seconds,
            "expected": schedule(step, ends=False).seconds}  # fmt: skip
