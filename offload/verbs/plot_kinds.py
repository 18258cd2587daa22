"""The kinds of figures: what each is drawn of, the words it takes, and how its result is made.

A kind is a line of `KINDS`; further modules may have tables of their own, which `plot` joins.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from offload.errors import OffloadError, PlotError, did_you_mean
from offload.verbs import memory, step
from offload.verbs.options import count

if TYPE_CHECKING:
    from offload.sweeps import Grid


OTHER_GRIDS = (".csv", ".nc", ".parquet", ".zarr")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of figure. words : states its words on a parser; draw : makes its axes from what was given."""

    name: str
    help: str
    words: Callable[[Any], None]
    draw: Callable[[argparse.Namespace], Any]


# What is read.


def plan_words(verb: Any) -> None:
    """The words that say which plan on which server."""
    step.question(verb)


def grid_words(verb: Any) -> None:
    """The same, and what is swept; TARGET may be a grid that `offload sweep -o FILE.npz` wrote."""
    step.question(verb)
    verb.add_argument(
        "--over", metavar="PATH=VALUES", action="append", default=[],
        help="an axis, as `offload sweep` takes it: workload.batch=1:256, pcie0.rate=16GB/s:128GB/s:200log; repeatable",
    )  # fmt: skip


def dots(verb: Any, x: str) -> None:
    """State `--measured`. x : what stands along the axis."""
    verb.add_argument(
        "--measured", metavar="DOT", action="append", default=[],
        help=f'a measured speed, as "2.7 tok/s", "32: 2.7 tok/s; who says so" ({x}, speed, source); repeatable',
    )  # fmt: skip


def measured_dots(options: argparse.Namespace, present: float | None, tokens: float, what: str) -> list[Any]:
    """The measured marks that were given. present : where one stands that does not say; what : what the axis counts."""
    from offload.measured import read_measurement
    from offload.plots import Dot
    from offload.units import parse_rate

    found: list[Dot] = []
    for text in options.measured:
        speed, _, source = text.partition(";")
        place, colon, rest = speed.partition(":")
        try:
            if not colon:
                place, rest = "", speed
            x = present if not place.strip() else (
                parse_rate(place.strip()) if what == "rate" else float(place.strip().removesuffix(what)))  # fmt: skip
            read = read_measurement(rest.strip())
        except (OffloadError, ValueError) as error:
            told = f"{error}" if isinstance(error, OffloadError) else f'"{place.strip()}" is no number.'
            raise OffloadError(f"--measured {text}: {told} Write [{what.upper()}:] SPEED [; SOURCE].") from None
        if x is None:
            raise OffloadError(f'--measured {text}: where does it stand? Write {what.upper()}: before it, as '
                               '"38: 2.7 tok/s".')  # fmt: skip
        seconds = tokens / read.value if read.unit == "tok/s" else read.value
        seconds *= tokens if read.unit == "s/token" else 1
        name = f"measured {len(found) + 1}" if len(options.measured) > 1 else "measured"
        found.append(Dot(x, seconds, name, source.strip() or "as given, without a source"))
    return found


def step_of(options: argparse.Namespace) -> tuple[Any, Any, Any]:
    """The plan, its server and the compiled step that the words name."""
    from offload.compiler import compile_step

    plan, topology = step.plan_of(options)
    return plan, topology, compile_step(topology, plan)


def subject_of(plan: Any, topology: Any, changed: Sequence[str] = ()) -> str:
    """A plan on its server, in words; of what is swept nothing is told. changed : paths of axes."""
    from offload.plots.subject import machine, without

    title = without(plan.title, changed)
    if {"on", "topology"} & set(changed):
        return title
    return f"{title}, on {machine(topology.title, topology.name)}"


def grid_of(options: argparse.Namespace, usual: Callable[[argparse.Namespace], list[str]], *,
            overlapped: bool = False) -> tuple[Any, str, Any]:  # fmt: skip
    """A grid, what it is of, and what gives the step at a place of it: swept, or read from a file, which gives none.

    usual : the axes where none is given.
    """
    from offload.compiler import compile_step
    from offload.sweeps import FIGURES, USUAL, read_axis, sweep
    from offload.verbs.sweep import source_of

    if options.target.lower().endswith(".npz"):
        from offload.files import named
        from offload.sweeps.reading import read_grid

        refuse_more(options, "a grid that is made", ("over", *ASKED))
        return read_grid(options.target), named(options.target), None
    if options.target.lower().endswith(OTHER_GRIDS) and os.path.exists(options.target):
        raise OffloadError(f"{options.target}: figures are drawn of grids in .npz files. Write one: offload sweep ... "
                           "-o FILE.npz")  # fmt: skip
    axes = [read_axis(text) for text in options.over or usual(options)]
    source = source_of(options, axes)
    try:
        grid = cast("Grid", sweep(source, axes, figures=FIGURES if overlapped else USUAL))
    except OffloadError as error:
        if options.over or is_words(options):
            raise
        told = "These axes are the usual ones of this figure: say others of the plan with --over."
        raise OffloadError(f"{error}\n{told}") from None
    best = grid.best(1, fitting=False)  # none where no time is known
    place = best[0].place if best else next(zip(*grid.made.nonzero(), strict=True), None)
    if place is None:
        raise OffloadError("no figure: no step can be made at any point of the grid.")
    values = [axis.setting(int(at)) for axis, at in zip(grid.axes, place, strict=True)]
    plan, topology = source.load(values)

    def step_at(place: Sequence[int]) -> Any:
        plan, topology = source.load([axis.setting(at) for axis, at in zip(grid.axes, place, strict=True)])
        return compile_step(topology, plan)

    subject = subject_of(plan, topology, [axis.path for axis in axes]) + left_out(compile_step(topology, plan))
    return grid, subject, step_at


def left_out(compiled: Any) -> str:
    """What a figure of many steps says behind its plan, where much of a step goes by parts without a rate."""
    from offload.ranges import fold
    from offload.uncounted import uncounted

    names = uncounted(compiled)
    return f"; no time counts {fold(names)}, whose rate is unknown: steps may take far longer" if names else ""


def is_words(options: argparse.Namespace) -> bool:
    """Whether a model is named instead of a plan file."""
    return not step.is_plan_file(options.target)


# The kinds.


def _floor_words(verb: Any) -> None:
    plan_words(verb)
    verb.add_argument("--over", metavar="NAME", help="whose rate: a link, a direction of it or a memory, as pcie0, "
                      "dram0 (default: the link that is busy longest, else the busiest memory)")  # fmt: skip
    dots(verb, "rate")


def _floor(options: argparse.Namespace) -> Any:
    from offload import plots
    from offload.curves import floor_curve
    from offload.study import evaluate

    case = _case_of(options)
    plan, topology, compiled = step_of(options) if case is None else _step_of_case(case)
    curve = floor_curve(compiled, options.over)
    marks = measured_dots(options, curve.rate, curve.tokens, "rate")
    if case is not None:
        from offload.validation import measured_seconds

        source = case.source
        told = ", ".join(text for text in (source.title, source.url) if text)
        marks.insert(0, plots.Dot(curve.rate, measured_seconds(case, compiled), f"published: {case.id}", told))
    return plots.latency_floor(curve, study=evaluate(topology, plan), measured=marks)


def case_named(options: argparse.Namespace) -> Any:
    """The shipped case that TARGET names by its id, None where it is a plan or a model."""
    from offload.documents.shipped import shipped_cases

    name = options.target.partition("/")[0]
    path = next((path for path in shipped_cases() if path.stem == name), None)
    if path is None or is_words(options) is False:
        return None
    from offload.documents.case_file import load_cases

    found = [case for case in load_cases(path) if options.target in (case.id, name)]
    if not found:
        ids = [case.id for case in load_cases(path)]
        raise OffloadError(f'no case "{options.target}". {did_you_mean(options.target, ids, "Cases")}')
    return found[0]


def _case_of(options: argparse.Namespace) -> Any:
    """The same, of steps back to back. Raises PlotError for another."""
    case = case_named(options)
    if case is None:
        return None
    refuse_more(options, "a published case", ASKED)
    if case.measured.alone or case.plan.request is not None:
        raise PlotError(f"{case.id} is of one step alone or of a whole request, and the figure of steps back to back.")
    return case


def _step_of_case(case: Any) -> tuple[Any, Any, Any]:
    from offload.compiler import compile_step

    return case.plan, case.topology, compile_step(case.topology, case.plan)


def refuse_more(options: argparse.Namespace, what: str, names: Sequence[str]) -> None:
    """Refuse words that would have no effect beside a target that says all."""
    if given := [f"--{name.replace('_', '-')}" for name in names if getattr(options, name)]:
        raise OffloadError(f"{options.target} is {what}: drop {', '.join(given)}, or name the plan instead of it.")


def _heat_words(verb: Any) -> None:
    grid_words(verb)
    verb.add_argument("--figure", choices=["floor", "serial", "overlapped"], default="floor",
                      help="which time (default: the floor)")  # fmt: skip


def _heat(options: argparse.Namespace) -> Any:
    from offload import plots
    from offload.bounds import floor

    def usual(options: argparse.Namespace) -> list[str]:
        given = [name for name in ("batch", "context") if getattr(options, name) is not None]
        if given:
            raise OffloadError(f"the map is over batch and context, and --{given[0]} is given: drop it, or say the two "
                               "axes with --over.")  # fmt: skip
        return ["workload.batch=1:256:33log", f"workload.context=512:{_longest(options)}:33log"]

    grid, subject, step_at = grid_of(options, usual, overlapped=options.figure == "overlapped")
    chain = None if step_at is None else lambda place: floor(step_at(place)).bottleneck
    return plots.heat_map(grid, figure=options.figure, subject=subject, chain=chain)


def _longest(options: argparse.Namespace) -> int:
    """The longest context that the model takes, or 128 Ki positions."""
    if not is_words(options):
        return 131_072
    return model_of(options).max_positions or 131_072


def model_of(options: argparse.Namespace) -> Any:
    """The model that is named in words."""
    from offload.words import model_and_format

    return model_and_format(options.target, options.weights, like=options.like, give=options.give)[0]


def _roofline_words(verb: Any) -> None:
    plan_words(verb)
    verb.add_argument("--over", metavar="PATH=VALUES", default="workload.batch=1,2,4,8,16,32,64,128,256,512,1024",
                      help="what is varied (default: workload.batch=1,2,4,... to 1024)")  # fmt: skip


def _roofline(options: argparse.Namespace) -> Any:
    from offload import plots
    from offload.compiler import compile_step
    from offload.rooflines import roofline
    from offload.sweeps import read_axis
    from offload.verbs.sweep import source_of

    axis = read_axis(options.over)
    if axis.numbers is None or len(axis) < 2 or len(axis) > MOST_STEPS:
        raise PlotError(f"--over {options.over}: a roofline's path is over 2 to {MOST_STEPS} numbers.")
    source = source_of(options, [axis])
    steps = []
    for place in range(len(axis)):
        plan, topology = source.load([axis.setting(place)])
        steps.append((axis.numbers[place].item(), compile_step(topology, plan)))
    name = axis.path.rpartition(".")[2]
    subject = subject_of(plan, topology, [axis.path]) + left_out(steps[-1][1])
    return plots.roofline_chart(roofline(steps, name), subject=subject)


def _residency_words(verb: Any) -> None:
    grid_words(verb)
    dots(verb, "layers")


def _residency(options: argparse.Namespace) -> Any:
    from offload import plots

    def usual(options: argparse.Namespace) -> list[str]:
        if not is_words(options):
            raise OffloadError("over which portion? For a plan file write it, as --over 'placement.weights.hbm0=0 "
                               "layers:80 layers'.")  # fmt: skip
        return [f"gpu-layers=0:{model_of(options).layers}"]

    grid, subject, _ = grid_of(options, usual, overlapped=True)
    tokens = float(grid.tokens.flat[0])
    return plots.residency(grid, subject=subject, measured=measured_dots(options, None, tokens, "layers"))


def _drives_words(verb: Any) -> None:
    plan_words(verb)
    verb.add_argument("--drive", metavar="NAME", help="which set of drives (default: the one that is loaded most)")
    verb.add_argument("--most", metavar="N", type=count(1), default=8, help="up to how many drives (default 8)")
    dots(verb, "drives")


def _drives(options: argparse.Namespace) -> Any:
    from offload import plots
    from offload.drive_counts import drive_counts

    plan, topology, compiled = step_of(options)
    result = drive_counts(compiled, options.drive, range(1, options.most + 1))
    marks = measured_dots(options, result.present, result.tokens, "drives")
    return plots.drives(result, subject=subject_of(plan, topology) + left_out(compiled), measured=marks)


def _concurrency(options: argparse.Namespace) -> Any:
    from offload import plots
    from offload.memory_curve import concurrency_of

    answer = memory.answer_of(options)
    return plots.concurrency(concurrency_of(answer), answer=answer)


def _pareto_words(verb: Any) -> None:
    grid_words(verb)
    verb.add_argument("--of", metavar="X,Y", default="spare,floor",
                      help="two of floor, serial, overlapped, tokens, spare or axes; with a - before an axis more of "
                      "it is better (default: spare,floor)")  # fmt: skip


def _pareto(options: argparse.Namespace) -> Any:
    from offload import plots

    names = [one.strip() for one in options.of.split(",")]
    if len(names) != 2 or not all(names):
        raise OffloadError(f"--of {options.of}: name two, as spare,floor.")

    def usual(options: argparse.Namespace) -> list[str]:
        raise OffloadError("--over is missing: a front is of a sweep. Write --over gpu-layers=0:38 --over "
                           "batch=1,2,4,8, or name a grid that `offload sweep -o FILE.npz` wrote.")  # fmt: skip

    grid, subject, _ = grid_of(options, usual, overlapped="overlapped" in options.of)
    return plots.pareto_front(grid, *names, subject=subject)


MOST_STEPS = 64
ASKED = ("topology", "set", "on", "gpu_layers", "cpu_experts", "compute", "kv", "batch", "context", "prompt",
         "generate", "weights", "kv_format", "reserve", "buffers", "like", "give")  # what says a plan, in options
KINDS = (
    Kind("floor", "the floor over a link's or a memory's rate, what binds along it, your box and products",
         _floor_words, _floor),
    Kind("heat", "the floor over batch and context, or any two axes, and the regions in which one thing binds",
         _heat_words, _heat),
    Kind("roofline", "FLOP per byte at each memory and link, and the plan's way as its batch grows",
         _roofline_words, _roofline),
    Kind("residency", "the time of a token over the layers at the GPU, tokens per second beside it",
         _residency_words, _residency),
    Kind("drives", "the time of a step over the number of drives", _drives_words, _drives),
    Kind("concurrency", "how many requests fit over their length", memory.words, _concurrency),
    Kind("pareto", "the points of a sweep that no other beats in two figures", _pareto_words, _pareto),
)  # fmt: skip
