"""Results in a notebook: as HTML that holds what the command line prints, and figures as SVG.

The HTML is the report's own text and tables (`printing.Pieces`), the answer first and the details folded away. All
texts are escaped; there is no script, and no colour of its own but of a warning, so that it reads on a light and on a
dark page. A study, a comparison, a grid, a placement and a server call `html_of` when a notebook shows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from offload import plots
from offload.comparison import Comparison
from offload.curves import Curve, floor_curve
from offload.drive_counts import DriveCounts
from offload.errors import OffloadError, shown
from offload.page.markup import element, listing, table, text
from offload.page.sections import in_words
from offload.placing import Answer
from offload.printing import Heading, Items, Line, Pieces, Rows, write_line, write_table
from offload.report import write_text
from offload.report_compare import write_comparison
from offload.report_place import write_place
from offload.report_sweep import of_grid, write_grid
from offload.report_topology import write_topology
from offload.rooflines import Roofline
from offload.study import Study, evaluate
from offload.sweeps.grid import ARRAYS, Grid
from offload.topology import Topology
from offload.units import many

STYLE = """
.offload { max-width: 70em; line-height: 1.4; }
.offload h3, .offload p { margin: .3em 0; }
.offload h3 { font-size: 1.15em; }
.offload summary { cursor: pointer; font-weight: 600; margin: .3em 0; }
.offload .wide { overflow-x: auto; }
.offload table { border-collapse: collapse; margin: .2em 0 .6em; font-variant-numeric: tabular-nums; }
.offload caption { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
.offload tr, .offload tr:nth-child(odd), .offload tr:hover { background: none; }
.offload th, .offload td { text-align: left; padding: .15em .8em .15em 0; white-space: nowrap; vertical-align: top;
                           border: 0; border-bottom: 1px solid rgba(128, 128, 128, .35); background: none; }
.offload th { font-weight: 400; }
.offload thead th, .offload tr.marked th, .offload tr.marked td { font-weight: 600; }
.offload th.number, .offload td.number { text-align: right; }
.offload pre { background: none; color: inherit; margin: .3em 0 .3em 1em; white-space: pre-wrap; }
.offload .wrong { font-weight: 700; border-left: .3em solid #d00000; padding-left: .5em; }
"""


# HTML.


def html_of(result: Any) -> str:
    """A result as HTML, for a notebook: the answer first, details folded away; every text of a file is escaped.

    result : a Study, Comparison, Topology, a Grid over one or two axes, the Answer of a placement, a Curve, Roofline or
    DriveCounts; or axes that were drawn already. theme : "light" (usual) or "dark", the page that it is for. more : as
    the function of `plots` takes it (`subject`, `measured`). Raises OffloadError for another result, and PlotError as
    that function does.
    """
    for kind, (what, write, opened) in SHOWN.items():
        if isinstance(result, kind):
            console = Pieces()
            write(result, console)
            inner = "\n".join(_sections(console.pieces, opened))
            label = f"offload: {what}"
            return f"<style>{STYLE}</style>\n" + element("section", f"\n{inner}\n", class_="offload", aria_label=label)
    kinds = ", ".join(kind.__name__ for kind in SHOWN)
    raise OffloadError(f"there is no display of {shown(result)}. Results that have one: {kinds}.")


def _study(study: Study, console: Pieces) -> None:
    """The report, with the answer in words under its head."""
    write_text(study, console)
    first = next(place for place, piece in enumerate(console.pieces) if isinstance(piece, Heading))
    told = in_words(study) + ("" if study.fits else " Times are as if it fitted.")
    console.pieces.insert(first, Line(told, "bold", 0))


def _comparison(found: Comparison, console: Pieces) -> None:
    write_comparison(found, console)


def _grid(grid: Grid, console: Pieces) -> None:
    """The report of a sweep; of a grid without all figures that it takes, what there is."""
    over = ", ".join(axis.path for axis in grid.axes)
    write_line(console, f"Sweep{f' over {over}' if over else ''}: {many(grid.size, 'point')}", style="bold")
    if grid.fixed:
        write_line(console, "at " + ", ".join(f"{path} {value}" for path, value in grid.fixed.items()))
    if all(getattr(grid, name) is not None for name in ("floor", "spare", "binding")) and grid.made.any():
        write_grid(of_grid(grid), console)
        return
    rows = [[axis.path, f"{len(axis):,}", axis.text(0), axis.text(len(axis) - 1)] for axis in grid.axes]
    write_table(console, ["axis", "values", "first", "last"], rows, right={1})
    has = [name for name in ARRAYS[:-2] if getattr(grid, name) is not None]
    write_line(console, f"It holds {', '.join(has) or 'no figure'}.")
    if not grid.made.any():
        write_line(console, "No step can be made at any point.", style="bold red")
    for told, count in grid.wrong.items():
        write_line(console, f"{count:,}: {' '.join(told.split())}")


def _answer(found: Answer, console: Pieces) -> None:
    write_place(found, None, None, console)


SHOWN: dict[type, tuple[str, Callable[[Any, Pieces], None], tuple[str, ...]]] = {
    Study: ("a step", _study, ("Times",)),
    Comparison: ("a comparison", _comparison, ()),
    Grid: ("a sweep", _grid, ("Floor", "Best", "What fits")),
    Answer: ("a placement", _answer, ("Best placement", "Times")),
    Topology: ("a server", write_topology, ("Memories", "Links")),
}  # of each class: its name, what writes it, and how headings of parts begin that are open at first


def _sections(pieces: list[Any], opened: tuple[str, ...]) -> Iterator[str]:
    """The head as it stands, then each part under its heading, which opens and closes it."""
    parts: list[tuple[str, list[Any]]] = [("", [])]
    for piece in pieces:
        if isinstance(piece, Heading):
            parts.append((piece.text, []))
        else:
            parts[-1][1].append(piece)
    title = parts[0][1][0].text
    for heading, inner in parts:
        told = "\n".join(_markup(inner, heading or title, first=not heading))
        if not heading:
            yield told
            continue
        open_ = " open" if heading.startswith(opened) else ""
        yield f"<details{open_}><summary>{text(heading)}</summary>\n{told}\n</details>"


def _markup(pieces: list[Any], caption: str, first: bool) -> Iterator[str]:
    """The pieces of one part. Lines that are set in stand together, as they are aligned. first : it has the title."""
    sums: list[str] = []
    for place, piece in enumerate([*pieces, None]):
        if isinstance(piece, Line) and piece.indent:
            sums.append(piece.text)
            continue
        if sums:
            yield element("pre", text("\n".join(sums)))
            sums = []
        if isinstance(piece, Rows):
            yield table(caption, piece.headings, piece.rows, piece.right, piece.bold)
        elif isinstance(piece, Items):
            yield listing(text(one) for one in piece.items)
        elif isinstance(piece, Line):
            told = text(piece.text)
            if first and place == 0:
                yield element("h3", told)
            elif "red" in piece.style:
                yield element("p", told, class_="wrong")
            else:
                yield element("p", element("strong", told) if "bold" in piece.style else told)


# Figures.


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure that a notebook shows, as SVG. axes : Matplotlib's, to draw more on, or for `plots.save`."""

    axes: Any

    def _repr_svg_(self) -> str:
        svg = plots.style.render(self.axes, "svg").decode()
        label = str(self.axes.get_figure().get_label()) or self.axes.get_title()
        drawn: str = svg.partition("<svg ")[2]
        return f'<svg role="img" aria-label="{text(label)}" ' + drawn


def picture(result: Any, *, theme: str | None = None, **more: Any) -> Picture:
    """The figure of a result, which a notebook shows where it stands last in a cell.

    result : a Study, Comparison, Topology, a Grid over one or two axes, the Answer of a placement, a Curve, Roofline or
    DriveCounts; or axes that were drawn already. theme : "light" (usual) or "dark", the page that it is for. more : as
    the function of `plots` takes it (`subject`, `measured`). Raises OffloadError for another result, and PlotError
    as that function does.
    """
    if hasattr(result, "get_figure"):
        if theme is not None or more:
            words = ", ".join([*(["theme"] if theme is not None else []), *more])
            raise OffloadError(f"{words}: these axes are drawn already. Give it to the function that draws them.")
        return Picture(result)
    draw = next((draw for kind, draw in DRAWN.items() if isinstance(result, kind)), None)
    if draw is None:
        kinds = ", ".join(kind.__name__ for kind in DRAWN)
        raise OffloadError(f"there is no figure of {shown(result)}. Results that have one: {kinds}; or axes that "
                           "a function of offload.plots returned.")  # fmt: skip
    with plots.theme("light" if theme is None else theme):
        return Picture(draw(result, **more))


def _of_best(found: Answer, **more: Any) -> Any:
    """The floor of the best placement over the rate that it hangs on most."""
    best = found.placing.best
    if best is None:
        raise OffloadError("there is no figure of a placement where nothing fits.")
    step = best.step
    return plots.latency_floor(floor_curve(step), study=evaluate(step.topology, step.plan), **more)


DRAWN: dict[type, Callable[..., Any]] = {
    Study: lambda study, **more: plots.load_bars(study, **more),
    Comparison: lambda found, **more: plots.ranking(found, **more),
    Topology: lambda topology, **more: plots.server(topology, **more),
    Grid: lambda grid, **more: plots.swept(grid, **more),
    Answer: _of_best,
    Curve: lambda curve, **more: plots.latency_floor(curve, **more),
    Roofline: lambda found, **more: plots.roofline_chart(found, **more),
    DriveCounts: lambda found, **more: plots.drives(found, **more),
}
