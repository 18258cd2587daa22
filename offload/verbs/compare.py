"""`offload compare`: plans on servers, ranked; what fits, how sure the order is, what would settle it, meters."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from offload.errors import OffloadError
from offload.verbs import ANSWERED, NO, figure
from offload.verbs.output import check_outputs, print_json, print_report
from offload.verbs.step import details, is_plan_file, plan_of

if TYPE_CHECKING:
    from offload.comparison import Candidate
    from offload.meters import Meter
    from offload.topology import Topology


def add(verbs: Any) -> None:
    """State the verb's words."""
    verb = verbs.add_parser(
        "compare",
        allow_abbrev=False,
        help="a plan on many servers, or many plans on one: ranked, what fits, whether the order is certain, meters",
        description="Plans on servers, ranked: floor, expected time with its ends, what binds, what fits, the margin "
                    "to the next, whether the order is certain, and which measurement would settle it.",
        epilog="Exit status: 0 something fits, 1 nothing fits anywhere, 2 bad input.",
    )  # fmt: skip
    words(verb)
    verb.add_argument("--plot", metavar="FILE", help="draw the ranking with its intervals: .svg, .png or .pdf")
    verb.add_argument("--json", action="store_true", help="the same as data")
    verb.add_argument("--debug", action="store_true", help="show where an error arose")
    verb.set_defaults(run=run)


def words(verb: Any) -> None:
    """State the words that say which plans on which servers; `candidates_of` and `meters_of` read them."""
    verb.add_argument(
        "targets", metavar="TARGET", nargs="+", help="plan files (.yaml), MODEL[:FORMAT], or paths of models' files"
    )
    where = verb.add_mutually_exclusive_group()
    where.add_argument(
        "--on", metavar="SERVERS",
        help="servers with commas between them, as gh200,dgx-h100,./mine.yaml (default: each plan file's own)",
    )  # fmt: skip
    where.add_argument("--all", action="store_true", help="every shipped server, and each plan file's own")
    verb.add_argument(
        "--by", metavar="WHAT", default="expected",
        help="what is ranked by: expected (time of a step; default), floor, tokens (per second) or a meter's name",
    )  # fmt: skip
    verb.add_argument(
        "--meter", metavar="TERMS", action="append", default=[],
        help='what else a step costs, as "energy: 350 W + 4 pJ/bit of pcie0", "money: 12 USD/h", "wear: 1400 TB '
             'written to ssd0"; repeatable',
    )  # fmt: skip
    verb.add_argument("--meters", metavar="FILE", help="the same from a file (docs/comparing.md)")
    details(verb, on=False)


def run(options: argparse.Namespace) -> int:
    """Answer, and return the exit status."""
    check_outputs({"--plot": options.plot})
    meters = meters_of(options)
    candidates = candidates_of(options)
    check_outputs({"--plot": options.plot})
    from offload.comparison import compare

    found = compare(candidates, by=options.by, meters=meters)
    if options.json:
        from offload.comparison.answer import comparison_to_json

        print_json(comparison_to_json(found))
    else:
        from offload.report_compare import write_comparison

        print_report(write_comparison, found)
    if options.plot is not None:
        from offload import plots

        figure.draw(options.plot, lambda: plots.ranking(found), options.json)
    return ANSWERED if found.any_fits else NO


def meters_of(options: argparse.Namespace) -> tuple[Meter, ...]:
    """The meters of the options and of the file."""
    from offload.meters import read_meter

    found: tuple[Meter, ...] = ()
    if options.meters is not None:
        from offload.documents.meter_file import load_meters

        found = load_meters(options.meters)
    for text in options.meter:
        try:
            found = (*found, read_meter(text))
        except OffloadError as error:
            raise OffloadError(f"--meter: {error}") from None
    return found


def candidates_of(options: argparse.Namespace) -> list[Candidate]:
    """Each plan on each server, in the order in which they are given."""
    if len({*options.targets}) < len(options.targets):
        twice = next(one for one in options.targets if options.targets.count(one) > 1)
        raise OffloadError(f"{twice} is given twice. Keep one.")
    servers = _servers(options)
    found: list[Candidate] = []
    for target in options.targets:
        found += _of_file(target, servers, options) if is_plan_file(target) else _of_model(target, servers, options)
    return found


def _servers(options: argparse.Namespace) -> dict[str, Topology]:
    """The servers that are named, by the name that they are told apart by; none where none is."""
    from offload import documents

    if options.all:
        return {name: documents.load_topology(name) for name in documents.shipped_topologies()}
    found: dict[str, Topology] = {}
    for text in [] if options.on is None else options.on.split(","):
        name = text.strip()
        if not name:
            raise OffloadError(f'--on "{options.on}": a name between two commas is missing.')
        if name in found:
            raise OffloadError(f"--on: {name} is given twice. Keep one.")
        found[name] = documents.load_topology(name)
    return found


def _asked(options: argparse.Namespace, **other: Any) -> argparse.Namespace:
    """The options of one plan on one server, as `offload step` takes them."""
    return argparse.Namespace(**{**vars(options), "topology": None, **other})


def _of_file(target: str, servers: dict[str, Topology], options: argparse.Namespace) -> list[Candidate]:
    from offload.comparison import Candidate
    from offload.comparison.entries import reason
    from offload.documents.other_server import load_plan_on

    own = plan_of(_asked(options, target=target, on=None))  # what is wrong with the plan itself is told, not listed
    names: dict[str, str] = {}

    def load(path: str, *, topology: Topology, settings: Any) -> Any:
        plan, there, changed = load_plan_on(path, topology, settings=settings)
        names.update(changed)
        return plan, there

    if not servers:
        return [Candidate(target, own[1].name, own)]
    found = []
    if options.all and own[1].name not in servers:
        found.append(Candidate(target, own[1].name, own))
    for name, server in servers.items():
        names.clear()
        try:
            made = own if server.name == own[1].name and name == server.name else plan_of(
                _asked(options, target=target, on=None, topology=server), load)
        except OffloadError as error:
            found.append(Candidate(target, name, why=reason(error)))
            continue
        found.append(Candidate(target, name, made, names=dict(names)))
    return found


def _of_model(target: str, servers: dict[str, Topology], options: argparse.Namespace) -> list[Candidate]:
    from offload.comparison import Candidate
    from offload.comparison.entries import reason
    from offload.words import model_and_format

    if not servers:
        raise OffloadError(f"{target}: on which servers? Write --on gh200,dgx-h100, or --all.")
    model_and_format(target, options.weights, like=options.like, give=options.give)
    found, several = [], False
    for name, server in servers.items():
        several |= sum(one.kind == "gpu" for one in server.processors.values()) > 1
        try:
            made = plan_of(_asked(options, target=target, on=server, first_gpu=True))
        except OffloadError as error:
            found.append(Candidate(target, name, why=reason(error)))
            continue
        found.append(Candidate(target, name, made))
    if several and options.compute is None:
        from offload.units.remarks import remark

        remark("of several GPUs the first is used, beside the host, as on servers with one; --compute gpu0..7 takes "
               "more")  # fmt: skip
    return found
