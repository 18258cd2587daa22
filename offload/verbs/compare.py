"""`offload compare`: plans on servers, ranked; what fits, how sure the order is, what would settle it, meters."""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING, Any

from offload.errors import OffloadError
from offload.verbs import ANSWERED, NO, figure
from offload.verbs.options import first_gpu_alone
from offload.verbs.output import check_outputs, print_json, print_report
from offload.verbs.step import asked_of, details, is_plan_file, plan_of

if TYPE_CHECKING:
    from collections.abc import Callable

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
    verb.add_argument("--report", metavar="FILE", help="write it as a page that opens offline, with sliders: .html")
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
    verb.add_argument(
        "--full", action="store_true",
        help="work out every end and every order, however long that takes; else it stays quick and says what it left "
             "out",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Answer, and return the exit status."""
    from offload.verbs.report import page_name, write_compared

    check_outputs({"--plot": options.plot})
    page_name("--report", options.report)
    meters = meters_of(options)
    from offload.comparison import compare
    from offload.comparison.efforts import FULL, QUICK
    from offload.comparison.halves import processes_here

    processes = processes_here()
    candidates = candidates_of(options, processes)
    found = compare(candidates, by=options.by, meters=meters, effort=FULL if options.full else QUICK,
                    processes=processes)
    if options.json:
        from offload.comparison.answer import comparison_to_json

        print_json(comparison_to_json(found))
    else:
        from offload.report_compare import write_comparison

        print_report(write_comparison, found)
    if options.report is not None:
        write_compared(options.report, found)
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


def candidates_of(options: argparse.Namespace, processes: int = 1) -> list[Candidate]:
    """Each plan on each server, in the order in which they are given, worked out by so many processes."""
    from offload.comparison.entries import prepared
    from offload.comparison.halves import shared_out

    if len({*options.targets}) < len(options.targets):
        twice = next(one for one in options.targets if options.targets.count(one) > 1)
        raise OffloadError(f"{twice} is given twice. Keep one.")
    servers = _servers(options)
    due: list[Callable[[], Candidate]] = []
    for target in options.targets:
        due += _of_file(target, servers, options) if is_plan_file(target) else _of_model(target, servers, options)
    return shared_out(lambda make: prepared(make()), due, processes)


def _servers(options: argparse.Namespace) -> dict[str, Callable[[], Topology]]:
    """The servers that are named, by the name that they are told apart by; none where none is."""
    from functools import partial

    from offload import documents

    if options.all:
        return {name: partial(documents.load_topology, name) for name in documents.shipped_topologies()}
    found: dict[str, Callable[[], Topology]] = {}
    for text in [] if options.on is None else options.on.split(","):
        name = text.strip()
        if not name:
            raise OffloadError(f'--on "{options.on}": a name between two commas is missing.')
        if name in found:
            raise OffloadError(f"--on: {name} is given twice. Keep one.")
        server = documents.load_topology(name)
        found[name] = partial(_itself, server)
    return found


def _itself(server: Topology) -> Topology:
    return server


def _asked(options: argparse.Namespace, **other: Any) -> argparse.Namespace:
    """The options of one plan on one server, as `offload step` takes them."""
    return argparse.Namespace(**{**vars(options), "topology": None, **other})


def _of_file(
    target: str, servers: dict[str, Callable[[], Topology]], options: argparse.Namespace
) -> list[Callable[[], Candidate]]:
    from offload.comparison import Candidate
    from offload.comparison.entries import reason
    from offload.documents.other_server import load_plan_on

    own = plan_of(_asked(options, target=target, on=None))  # what is wrong with the plan itself is told, not listed

    def there(name: str) -> Candidate:
        server = servers[name]()
        names: dict[str, str] = {}

        def load(path: str, *, topology: Topology, settings: Any) -> Any:
            plan, on, changed = load_plan_on(path, topology, settings=settings, own=own[1])
            names.update(changed)
            return plan, on

        if server.name == own[1].name and name == server.name:
            return Candidate(target, name, own)
        try:
            made = plan_of(_asked(options, target=target, on=None, topology=server), load)
        except OffloadError as error:
            return Candidate(target, name, why=reason(error))
        return Candidate(target, name, made, names=names)

    alone = [] if options.all and own[1].name in servers or servers and not options.all else [
        lambda: Candidate(target, own[1].name, own)]
    return [*alone, *(lambda name=name: there(name) for name in servers)]


def _of_model(
    target: str, servers: dict[str, Callable[[], Topology]], options: argparse.Namespace
) -> list[Callable[[], Candidate]]:
    from offload.comparison import Candidate
    from offload.comparison.entries import reason
    from offload.words import check_words

    if not servers:
        raise OffloadError(f"{target}: on which servers? Write --on gh200,dgx-h100, or --all.")
    settings, given = asked_of(_asked(options, target=target, on=",".join(servers)))
    check_words(target, settings=settings, **(given or {}))  # what is wrong on every server is told, not listed

    def there(name: str) -> Candidate:
        server = servers[name]()
        if options.compute is None and sum(one.kind == "gpu" for one in server.processors.values()) > 1:
            first_gpu_alone("--compute gpu0..7")
        try:
            made = plan_of(_asked(options, target=target, on=server, first_gpu=True))
        except OffloadError as error:
            return Candidate(target, name, why=reason(error))
        return Candidate(target, name, made)

    return [partial(there, name) for name in servers]
