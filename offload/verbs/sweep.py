"""`offload sweep`: the floor of a step over any values of its plan and its server."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from offload.errors import OffloadError, OutputError
from offload.verbs import ANSWERED, NO
from offload.verbs.big_grids import big_grids, finished, reduce_grid, working
from offload.verbs.options import count
from offload.verbs.output import check_outputs, print_json, print_report, put
from offload.verbs.step import asked_of, question

BY = ("floor", "serial", "overlapped", "tokens", "spare")


def add(verbs: Any) -> None:
    """State the verb's words."""
    verb = verbs.add_parser(
        "sweep",
        allow_abbrev=False,
        help="the floor over any values of a plan and a server: the best points, what binds where, what fits",
        description="One step at every point of a grid: its floor, what binds it and whether it fits; the best points, "
                    "and where what binds changes.",
        epilog="Exit status: 0 answered, 1 no point fits, 2 bad input.",
    )  # fmt: skip
    question(verb)
    verb.add_argument(
        "--over", metavar="PATH=VALUES", action="append", default=[],
        help="an axis: workload.batch=1:256 (whole numbers), pcie0.rate=16GB/s:128GB/s:200log (so many, in equal "
        "ratios; without log evenly), model.weights=q4_0,q8_0 (a list); repeatable",
    )  # fmt: skip
    verb.add_argument(
        "-o", metavar="FILE", dest="output",
        help="write every point; the suffix says how: .csv, .json, .npz, .parquet, .nc, .zarr",
    )  # fmt: skip
    verb.add_argument(
        "--plot", metavar="FILE",
        help="draw it, over one axis times and tokens per second, over two a map: .svg, .png or .pdf",
    )  # fmt: skip
    verb.add_argument("--best", metavar="N", type=count(1), default=5, help="how many best points to tell (default 5)")
    verb.add_argument("--by", choices=BY, default="floor", help="what is best (default: the least floor)")
    verb.add_argument(
        "--overlapped", action="store_true",
        help="the expected time of each point as well; it is searched for point by point where a step has no formula",
    )
    verb.add_argument("--threads", metavar="N", type=count(1), help="threads that large grids are worked out by")
    big_grids(verb)
    verb.add_argument("--json", action="store_true", help="the answer as data")
    verb.add_argument("--debug", action="store_true", help="show where an error arose")
    verb.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Answer, and return the exit status."""
    outputs = {"-o": options.output, "--plot": options.plot}
    check_outputs(outputs)
    from offload.sweeps import FIGURES, USUAL, read_axis, sweep
    from offload.sweeps.writing import writer_of

    axes = [read_axis(text) for text in options.over]
    if not axes:
        raise OffloadError("--over is missing: which value is swept? Write --over workload.batch=1:64 or --over "
                           "pcie0.rate=16GB/s:128GB/s:200log; `offload step` answers for one point.")
    source = source_of(options, axes)
    check_outputs(outputs)
    if options.reduce is not None:
        if options.plot is not None:
            raise OffloadError("--plot draws every point, and --reduce keeps none: drop one of them.")
        return reduce_grid(options, source, axes)
    write = None if options.output is None else _named(lambda: writer_of(options.output))
    with working(options, axes) as how:
        grid = sweep(source, axes, figures=FIGURES if _wants_overlapped(options) else USUAL, **how)
    try:
        answer = _answer(grid, source, options)
    except OffloadError as error:
        raise OffloadError(f"--by {options.by}: {error}") from None
    failed = None
    if write is not None:
        try:
            _named(lambda: write(grid))
            finished(how)
        except OutputError as error:  # told once the answer is out, which is not lost
            failed = error
    if options.json:
        from offload.report_sweep import sweep_to_json

        print_json(sweep_to_json(answer))
    else:
        from offload.report_sweep import write_sweep

        print_report(write_sweep, answer)
        if options.output is not None and failed is None:
            put(f"\n{'1 point is' if grid.size == 1 else f'{grid.size:,} points are'} in {options.output}.\n")
    if options.plot is not None:
        _draw(grid, answer.title, options)
    if failed is not None:
        raise failed
    return ANSWERED if answer.summary.fit else NO


def _draw(grid: Any, title: str, options: argparse.Namespace) -> None:
    """The figure, once the report is out, so that one that fails loses nothing."""
    put()
    from offload.plots import save, swept
    from offload.plots.subject import without

    save(swept(grid, subject=without(title, [axis.path for axis in grid.axes])), options.plot)
    if not options.json:
        put(f"\nFigure: {options.plot}\n")


def source_of(options: argparse.Namespace, axes: Sequence[Any]) -> Any:
    """What the options ask a sweep of, over these axes."""
    from offload.sweeps import PlanFile, Words

    servers = next((axis for axis in axes if axis.path in ("on", "topology")), None)
    if servers is not None and options.on is not None:
        raise OffloadError(f"--on and --over {servers.path} say the same. Keep one.")
    if servers is not None and options.topology is None:
        options.on = servers.text(0)
    settings, given = _asked(options, servers)
    if given is None:
        return PlanFile(options.target, topology=options.topology, settings=settings, overlap=options.buffers)
    source = Words(options.target, options.on, settings=settings, **given)
    source.name = options.target if servers is not None else source.name
    return source


def _wants_overlapped(options: argparse.Namespace) -> bool:
    return bool(options.overlapped) or options.by == "overlapped"


def _asked(options: argparse.Namespace, servers: Any) -> tuple[Any, Any]:
    """What the options ask; of a plan file too where its servers are swept, which needs no --on."""
    from offload.verbs.step import is_plan_file

    if servers is not None and is_plan_file(options.target):
        options.on = None
    return asked_of(options)


def _answer(grid: Any, source: Any, options: argparse.Namespace) -> Any:
    from offload.compiler import compile_step
    from offload.report_sweep import Answer
    from offload.study import assumptions_of

    summary = grid.summary()
    best = grid.best(options.best, by=options.by)
    point = best[0] if best else summary.smallest
    plan, topology = source.load([axis.setting(at) for axis, at in zip(grid.axes, point.place, strict=True)])
    step = compile_step(topology, plan)
    by = "tokens_per_s" if options.by == "tokens" else options.by
    return Answer(source.name, _title(grid, plan, topology), grid, summary, grid.crossovers(), best, by,
                  assumptions_of(step), plan.not_modelled)


def _title(grid: Any, plan: Any, topology: Any) -> str:
    """The plan and the server, where no axis changes them."""
    changed = {axis.path for axis in grid.axes}
    server = "" if changed & {"topology", "on"} else f" on {topology.name or topology.title}"
    return f"{plan.title}{server}"


def _named(make: Any) -> Any:
    """What is made; raises what making raises, with the option."""
    try:
        return make()
    except OutputError as error:
        raise OutputError(f"-o {error}") from None
