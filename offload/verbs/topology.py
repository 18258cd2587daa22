"""`offload topology`: the shipped servers, one in full, how two differ, and one imported from what tools print."""

from __future__ import annotations

import argparse
from typing import Any

from offload.errors import OffloadError
from offload.verbs import ANSWERED
from offload.verbs.output import check_outputs, print_json, print_report, put, write_file


def add(verbs: Any) -> None:
    """State the verb's words."""
    topology = verbs.add_parser(
        "topology",
        allow_abbrev=False,
        help="the shipped servers; one in full: parts, rates, ways, sources, what is assumed; how two differ; import",
        description="The servers that are shipped, one in full, how two differ, or your own from what tools printed "
                    "on it.",
    )
    actions = topology.add_subparsers(dest="action", metavar="ACTION", required=True)
    listed = actions.add_parser(
        "list", allow_abbrev=False, help="the shipped servers, or those that are named, a line each",
        description="The shipped servers, or those that are named: GPUs, memory, the GPU's host link, drives, how many "
                    "rates are assumed; price and power where one states them.",
    )  # fmt: skip
    listed.add_argument("topologies", metavar="NAME|PATH", nargs="*", help="shipped names, or paths of topology files")
    listed.add_argument("--parts", action="store_true", help="the shipped parts instead: what `use: NAME` takes in "
                        "entries of a topology file")  # fmt: skip
    shown = actions.add_parser(
        "show", allow_abbrev=False, help="one server in full",
        description="One server: its parts, their rates by grade, the ways between them, the source of each figure, "
                    "and what is assumed.",
        epilog="Exit status: 0 answered, 2 bad input.",
    )  # fmt: skip
    shown.add_argument("topology", metavar="NAME|PATH", help="a shipped name, or the path of a topology file")
    drawn = shown.add_mutually_exclusive_group()
    drawn.add_argument("--dot", action="store_true", help="its graph as text for Graphviz")
    drawn.add_argument("--mermaid", action="store_true", help="its graph as text for Mermaid")
    differ = actions.add_parser(
        "diff", allow_abbrev=False, help="what differs between two servers",
        description="Two servers: the parts that only one has, and both figures of what differs, B over A.",
        epilog="Exit status: 0 answered, whether they differ or not, 2 bad input.",
    )  # fmt: skip
    for letter in ("A", "B"):
        differ.add_argument(letter.lower(), metavar=letter, help="a shipped name, or the path of a topology file")
    imported = actions.add_parser(
        "import", allow_abbrev=False, help="a topology file from what tools printed on a machine",
        description="A topology file from the outputs of tools, recognised by their content: the shape of the machine "
                    "from lstopo, nvidia-smi topo, NCCL, lspci and the like, rates from nvbandwidth, fio, STREAM and "
                    "the like. It says what it took from which line, what it assumed, what contradicts and what is "
                    "unknown; unknown stays unknown. Without -o the topology follows the report.",
        epilog="Exit status: 0 answered, 2 bad input.",
    )  # fmt: skip
    imported.add_argument("files", metavar="FILE", nargs="+", help="an output of a tool, or of several; ssd1=FILE says "
                          "of which drive it is, where it does not tell")  # fmt: skip
    imported.add_argument(
        "--onto", metavar="NAME|PATH",
        help="a server whose sustained rates are replaced where they were measured; all else of it stays as it is",
    )  # fmt: skip
    imported.add_argument("-o", "--output", metavar="FILE", help="write the topology file here, and not to the report")
    for action, run in ((listed, run_list), (shown, run_show), (differ, run_diff), (imported, run_import)):
        action.add_argument("--json", action="store_true", help="the same as data")
        action.add_argument("--debug", action="store_true", help="show where an error arose")
        action.set_defaults(run=run)


def run_list(options: argparse.Namespace) -> int:
    """Print the shipped servers, or those that are named."""
    from offload import documents
    from offload.describe import summaries_to_json, summary_of

    if options.parts:
        return _list_parts(options)
    names = list(dict.fromkeys(options.topologies)) or documents.shipped_topologies()
    summaries = [summary_of(documents.load_topology(name)) for name in names]
    if options.json:
        print_json(summaries_to_json(summaries))
    else:
        from offload.report_topology import write_summaries

        print_report(write_summaries, summaries)
    return ANSWERED


def _list_parts(options: argparse.Namespace) -> int:
    """Print the names of the shipped parts, by the section of a topology file that they stand in."""
    from offload.documents.parts_library import SECTIONS, shipped_parts

    if options.topologies:
        raise OffloadError("--parts lists the shipped parts, which belong to no server: drop the names, or --parts.")
    parts = {section: names for section in SECTIONS if (names := shipped_parts(section))}
    if options.json:
        from offload.describe import parts_to_json

        print_json(parts_to_json(parts))
    else:
        from offload.report_topology import write_parts

        print_report(write_parts, parts)
    return ANSWERED


def run_show(options: argparse.Namespace) -> int:
    """Print one server in full."""
    from offload import documents

    if options.json and (options.dot or options.mermaid):
        raise OffloadError("--json gives data, --dot and --mermaid a text for other tools: give one of them.")
    topology = documents.load_topology(options.topology)
    if options.dot or options.mermaid:
        from offload.graph_text import to_dot, to_mermaid

        put(to_dot(topology) if options.dot else to_mermaid(topology))
    elif options.json:
        from offload.describe import topology_to_json

        print_json(topology_to_json(topology))
    else:
        from offload.report_topology import write_topology

        print_report(write_topology, topology)
    return ANSWERED


def run_diff(options: argparse.Namespace) -> int:
    """Print what differs between two servers."""
    from offload import documents
    from offload.topology_diff import compare, difference_to_json

    difference = compare(documents.load_topology(options.a), documents.load_topology(options.b))
    if options.json:
        print_json(difference_to_json(difference))
    else:
        from offload.report_diff import write_difference

        print_report(write_difference, difference)
    return ANSWERED


def run_import(options: argparse.Namespace) -> int:
    """Read outputs of tools, put them together to a topology, and print or write it."""
    outputs = {"-o": options.output}
    check_outputs(outputs)
    from offload import documents
    from offload.importing import import_outputs
    from offload.importing.named_drives import drive_and_path, with_drive
    from offload.readers.tools.recognise import read_output

    files = [drive_and_path(text) for text in dict.fromkeys(options.files)]
    findings = [finding for drive, path in files for finding in with_drive(read_output(path), drive)]
    onto = None if options.onto is None else documents.load_topology(options.onto)
    check_outputs(outputs)
    imported = import_outputs(findings, onto)
    if options.output is not None:
        write_file(options.output, imported.text)
    if options.json:
        print_json(imported.to_json())
        return ANSWERED
    from offload.report_import import write_import

    print_report(write_import, imported, options.output)
    if options.output is None:
        put("\n" + imported.text)
    return ANSWERED
