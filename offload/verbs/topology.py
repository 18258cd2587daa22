"""`offload topology`: which servers are shipped, and what one of them, or one of your own, is made of."""

from __future__ import annotations

import argparse
from typing import Any

from offload.verbs import ANSWERED
from offload.verbs.output import print_json, print_report


def add(verbs: Any) -> None:
    """State the verb's words."""
    topology = verbs.add_parser(
        "topology",
        allow_abbrev=False,
        help="the shipped servers, or one server in full: parts, rates, ways, sources, what is assumed",
        description="The servers that are shipped, or one server in full.",
    )
    actions = topology.add_subparsers(dest="action", metavar="ACTION", required=True)
    listed = actions.add_parser(
        "list", allow_abbrev=False, help="the shipped servers, a line each",
        description="The shipped servers: GPUs, memory, the GPU's host link, drives, how many rates are assumed.",
    )  # fmt: skip
    shown = actions.add_parser(
        "show", allow_abbrev=False, help="one server in full",
        description="One server: its parts, their rates by grade, the ways between them, the source of each figure, "
                    "and what is assumed.",
        epilog="Exit status: 0 answered, 2 bad input.",
    )  # fmt: skip
    shown.add_argument("topology", metavar="NAME|PATH", help="a shipped name, or the path of a topology file")
    for action, run in ((listed, run_list), (shown, run_show)):
        action.add_argument("--json", action="store_true", help="the same as data")
        action.add_argument("--debug", action="store_true", help="show where an error arose")
        action.set_defaults(run=run)


def run_list(options: argparse.Namespace) -> int:
    """Print the shipped servers."""
    from offload import documents
    from offload.describe import summaries_to_json, summary_of

    summaries = [summary_of(documents.load_topology(name)) for name in documents.shipped_topologies()]
    if options.json:
        print_json(summaries_to_json(summaries))
    else:
        from offload.report_topology import write_summaries

        print_report(write_summaries, summaries)
    return ANSWERED


def run_show(options: argparse.Namespace) -> int:
    """Print one server in full."""
    from offload import documents

    topology = documents.load_topology(options.topology)
    if options.json:
        from offload.describe import topology_to_json

        print_json(topology_to_json(topology))
    else:
        from offload.report_topology import write_topology

        print_report(write_topology, topology)
    return ANSWERED
