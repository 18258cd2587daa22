"""Makes docs/gallery.md and the figures of docs/gallery/: `python docs/gallery.py`, from the root of the repository.

Each function below is one figure: its docstring is the heading, its lines are shown and run.
"""

from __future__ import annotations

import ast
import inspect
import os
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
HEAD = """# Gallery

Every figure with the lines that made it, as `python docs/gallery.py` writes this page. How to read them, and how to ask
for them in a terminal: [figures](figures.md). Each `axes` is written with `plots.save(axes, "name.svg")`.
"""


def floor():
    """The floor over a link's rate"""
    from offload import compile_step, evaluate, load_plan, plots
    from offload.curves import floor_curve

    plan, topology = load_plan("examples/by-hand.yaml")
    curve = floor_curve(compile_step(topology, plan), "pcie0")
    return plots.latency_floor(curve, study=evaluate(topology, plan))


def heat():
    """The floor over batch and context"""
    from offload import plots
    from offload.sweeps import Words, sweep

    asked = Words("llama-3.1-70b:q4_k_m", "desktop-4090", gpu_layers=8, compute="gpu0")
    grid = sweep(asked, ["batch=1:256:17log", "context=512:131072:17log"])
    return plots.heat_map(grid, subject="Llama 3.1 70B, Q4_K_M, on a desktop")


def roofline():
    """An offload roofline"""
    from offload import compile_step, plots
    from offload.rooflines import roofline
    from offload.words import plan_from_words

    steps, asked = [], {"gpu_layers": 8, "compute": "gpu0"}
    for batch in (1, 4, 16, 64, 256):
        plan, server = plan_from_words("llama-3.1-70b:q4_k_m", "desktop-4090", batch=batch, **asked)
        steps.append((batch, compile_step(server, plan)))
    return plots.roofline_chart(roofline(steps), subject="Llama 3.1 70B, Q4_K_M, on a desktop")


def waterfall():
    """A measured time, term by term"""
    from offload import compile_step, load_plan, plots
    from offload.why.waterfall import Passes, waterfall

    plan, topology = load_plan("examples/llama-3.1-70b-desktop.yaml")
    step = compile_step(topology, plan)
    found = waterfall(Passes("step", (step,)), 1 / 2.6)  # seconds of a step
    return plots.waterfall(found, tokens=1, subject=plan.title, source="an example, not measured")


def loads():
    """How long each resource is busy"""
    from offload import evaluate, load_plan, plots

    plan, topology = load_plan("examples/train-8b-zero-infinity.yaml")
    return plots.load_bars(evaluate(topology, plan))


def timeline():
    """When each task uses each resource"""
    from offload import compile_step, load_plan, plots

    plan, topology = load_plan("examples/llama-3-70b-from-two-drives.yaml")
    step = compile_step(topology, plan)
    return plots.timeline(step, until=1.0, subject=plan.title)


def server():
    """A server, and where it is busy"""
    from offload import evaluate, load_plan, plots

    plan, topology = load_plan("examples/eight-gpus-read-one-socket.yaml")
    return plots.server(topology, study=evaluate(topology, plan))


def memory():
    """What lies in each memory"""
    from offload import evaluate, load_plan, plots

    plan, topology = load_plan("examples/train-8b-zero-infinity.yaml")
    return plots.memory_stack(evaluate(topology, plan))


def ranking():
    """Servers in order"""
    from offload import plots
    from offload.comparison import Candidate, compare
    from offload.words import plan_from_words

    model = "llama-3.1-70b:q4_k_m"
    servers = ("gh200", "dgx-h100", "gaudi3-hls3", "mi300x-8gpu", "mac-studio-m3-ultra", "desktop-4090", "dgx-spark")
    made = [Candidate(model, name, plan_from_words(model, name, first_gpu=True)) for name in servers]
    return plots.ranking(compare(made))


def pareto():
    """Choices that no other beats"""
    from offload import plots
    from offload.sweeps import Words, sweep

    asked = Words("llama-3.1-70b:q4_k_m", "desktop-4090")
    grid = sweep(asked, ["gpu-layers=0:38:6", "batch=1,2,4,8"])
    return plots.pareto_front(grid, "spare", "floor", subject="Llama 3.1 70B, Q4_K_M, on a desktop")


def concurrency():
    """How many requests fit"""
    from offload import plots
    from offload.memory import answer_memory
    from offload.memory_curve import concurrency_of
    from offload.models import catalogue
    from offload.models.lengths import parse_lengths

    answer = answer_memory(catalogue["llama-3.1-70b"], None, 14 * 10**9, parse_lengths("18x2000"), block=1)
    return plots.concurrency(concurrency_of(answer), answer=answer)


def residency():
    """Layers at the GPU against speed"""
    from offload import plots
    from offload.sweeps import FIGURES, Words, sweep

    grid = sweep(Words("llama-3.1-70b:q4_k_m", "desktop-4090"), ["gpu-layers=0:80:17"], figures=FIGURES)
    return plots.residency(grid, subject="Llama 3.1 70B, Q4_K_M, on a desktop")


def drives():
    """How many drives are enough"""
    from offload import compile_step, load_plan, plots
    from offload.drive_counts import drive_counts

    plan, topology = load_plan("examples/llama-3-70b-from-two-drives.yaml")
    found = drive_counts(compile_step(topology, plan), counts=range(1, 11))
    return plots.drives(found, subject=plan.title)


def swept():
    """A sweep over one value"""
    from offload import plots
    from offload.sweeps import FIGURES, Words, sweep

    asked = Words("llama-3.1-70b:q4_k_m", "desktop-4090", gpu_layers=38)
    grid = sweep(asked, ["dram0.rate=40GB/s:400GB/s:12log"], figures=FIGURES)
    return plots.swept(grid, subject="Llama 3.1 70B, Q4_K_M, on a desktop")


def predicted():
    """Published measurements of the best kept sources against the model"""
    from offload import plots
    from offload.documents.case_file import load_cases
    from offload.documents.shipped import shipped_cases
    from offload.validation import PLANS, run_case

    every = [case for path in shipped_cases() for case in load_cases(path)]
    strong = [case for case in every if case.kind in PLANS and case.strength == "A"]
    return plots.predicted([run_case(case) for case in strong])


FIGURES = (floor, heat, roofline, waterfall, loads, timeline, server, memory, ranking, predicted, swept, residency,
           drives, concurrency, pareto)  # fmt: skip


def lines_of(figure: Callable[[], Any]) -> str:
    """The lines of a figure, as they are shown: `axes =` instead of `return`."""
    source = textwrap.dedent(inspect.getsource(figure))
    body = ast.parse(source).body[0].body  # type: ignore[attr-defined]
    shown = textwrap.dedent("\n".join(source.split("\n")[body[1].lineno - 1 :])).rstrip()
    return shown.replace("\nreturn ", "\naxes = ")


def page() -> str:
    """The page, without its figures."""
    parts = [HEAD]
    for figure in FIGURES:
        name = figure.__name__
        parts.append(f"## {figure.__doc__}\n\n![{figure.__doc__}](gallery/{name}.svg)\n\n"
                     f"```python\n{lines_of(figure)}\n```\n")  # fmt: skip
    return "\n".join(parts)


def main(folder: Path) -> None:
    """Write the page and its figures into a folder."""
    from offload import plots

    (folder / "gallery").mkdir(exist_ok=True)
    (folder / "gallery.md").write_text(page(), encoding="utf-8")
    os.chdir(ROOT)
    for figure in FIGURES:
        plots.save(figure(), str(folder / "gallery" / f"{figure.__name__}.svg"))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "docs").resolve())
