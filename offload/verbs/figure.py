"""`--plot`: a figure beside the report. The report comes first, so that a figure that fails loses nothing."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from offload.errors import OffloadError, PlotError
from offload.verbs.output import print_report, put

if TYPE_CHECKING:
    from offload.curves import Curve
    from offload.plan import Plan
    from offload.study import Study
    from offload.topology import Topology


def add(verb: Any) -> None:
    """State the words of `--plot`."""
    group = verb.add_argument_group("figure")
    group.add_argument(
        "--plot", metavar="FILE", help="draw floor and times over the rate of one link or memory: .svg, .png or .pdf"
    )
    group.add_argument(
        "--plot-over", metavar="NAME",
        help="whose rate: a link, a direction of it or a memory, as pcie0, pcie0.hbm0, dram0 (default: the link that "
        "is busy longest, else the busiest memory)",
    )  # fmt: skip


def check(options: argparse.Namespace) -> None:
    """Refuse words that ask for no figure."""
    if options.plot_over is not None and options.plot is None:
        raise PlotError("--plot-over says what a figure is drawn over: give the file with --plot too, or drop it.")


@dataclass
class Drawing:
    """What is asked of a figure: its values, or why there are none. Empty where none is asked."""

    path: str | None
    as_data: bool
    curve: Curve | None = None
    failure: OffloadError | None = None

    def to_json(self) -> dict[str, Any]:
        """The key `plot` of an answer; none where there are no values."""
        if self.curve is None:
            return {}
        from offload.answer import curve_to_json

        return {"plot": curve_to_json(self.curve)}

    def finish(self, study: Study) -> None:
        """Draw, once the report is out, and say what binds where. Raises what went wrong."""
        if self.path is None:
            return
        put()
        if self.failure is not None:
            raise self.failure
        from offload.plots import draw_floor

        draw_floor(self.curve, study, self.path)
        if not self.as_data:
            print_report(_write, self.path, self.curve)


def prepare(options: argparse.Namespace, plan: Plan, topology: Topology, refused: bool) -> Drawing:
    """The values of the figure that is asked for, or why there are none."""
    drawing = Drawing(options.plot, options.json)
    if options.plot is None:
        return drawing
    try:
        if refused:
            raise PlotError("no figure of a plan that does not fit: make it fit, or add --ignore-capacity.")
        from offload.compiler import compile_step
        from offload.curves import floor_curve

        drawing.curve = floor_curve(compile_step(topology, plan), options.plot_over)
    except OffloadError as error:
        drawing.failure = error
    return drawing


def draw(path: str, make: Callable[[], Any], as_data: bool) -> None:
    """Draw to a file, once the report is out, and say so beside a report. Raises PlotError."""
    from offload.plots.style import format_of, save

    put()
    format_of(path)
    save(make(), path)
    if not as_data:
        put(f"\nFigure: {path}\n")


def _write(path: str, curve: Curve, console: Any) -> None:
    from offload.curves import describe
    from offload.printing import write_heading, write_line

    write_heading(console, f"Figure: {path}")
    write_line(console, f"What binds the floor, over the peak rate of {curve.over}:")
    for line in describe(curve):
        write_line(console, line, indent=2)
