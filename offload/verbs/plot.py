"""`offload plot KIND`: one figure, in a file."""

from __future__ import annotations

import argparse
from typing import Any

from offload.verbs import ANSWERED, plot_kinds, plot_results
from offload.verbs.output import check_outputs, put

KINDS = (*plot_kinds.KINDS, *plot_results.KINDS)  # as help lists them


def add(verbs: Any) -> None:
    """State the verb's words."""
    plot = verbs.add_parser(
        "plot",
        allow_abbrev=False,
        help="a figure: floor over a rate, heat map, roofline, waterfall, loads, timeline, the server, a ranking, ...",
        description="One figure in a file, whose title is the finding. The same words give the same bytes.",
        epilog="Exit status: 0 answered, 2 bad input.",
    )
    kinds = plot.add_subparsers(dest="kind", metavar="KIND", required=True)
    for kind in KINDS:
        words = kinds.add_parser(kind.name, allow_abbrev=False, help=kind.help,
                                 description=f"A figure: {kind.help}.", epilog=plot.epilog)  # fmt: skip
        kind.words(words)
        words.add_argument("-o", "--output", metavar="FILE", required=True, help="the file: .svg, .png or .pdf")
        words.add_argument("--theme", choices=["light", "dark"], default="light", help="for a page of which ground")
        words.add_argument("--debug", action="store_true", help="show where an error arose")
        words.set_defaults(run=run, draw=kind.draw)


def run(options: argparse.Namespace) -> int:
    """Draw, and return the exit status."""
    check_outputs({"-o": options.output})
    from offload.plots.style import format_of, save, theme

    format_of(options.output)  # before any work
    from offload.printing import clean

    with theme(options.theme):
        axes = options.draw(options)
        check_outputs({"-o": options.output})
        save(axes, options.output)
        put(f"{clean(axes.get_figure().get_label())}\nFigure: {options.output}\n")
    return ANSWERED
