"""`offload need`: what brings a step to a target, one change or two at a time, or what forbids it."""

from __future__ import annotations

import argparse
from typing import Any

from offload.errors import OffloadError
from offload.verbs import ANSWERED, NO
from offload.verbs.output import print_json, print_report
from offload.verbs.step import plan_of, question


def add(verbs: Any) -> None:
    """State the verb's words."""
    verb = verbs.add_parser(
        "need",
        allow_abbrev=False,
        help="what would bring a step to a target: the least single changes, the cheapest pairs, or what forbids it",
        description="The least changes of single values that bring a step to a target, in the floor (what no schedule "
                    "beats) and in the expected time, and what pairs of changes do.",
        epilog="Exit status: 0 it is reached, as it is or by changes, 1 no change or pair that was tried reaches it, "
               "2 bad input.",
    )  # fmt: skip
    question(verb)
    verb.add_argument(
        "--target", metavar="SPEED", required=True, dest="due",
        help='what is to be reached: "10 tok/s" (of all sequences together) or "200 ms" (of one step)',
    )  # fmt: skip
    verb.add_argument("--json", action="store_true", help="the same as data")
    verb.add_argument("--debug", action="store_true", help="show where an error arose")
    verb.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Answer, and return the exit status."""
    plan, topology = plan_of(options)
    from offload.compiler import compile_step
    from offload.need import need
    from offload.need_rates import read_target
    from offload.report_need import need_to_json, write_need

    step = compile_step(topology, plan)
    try:
        target = read_target(options.due, step)
    except OffloadError as error:
        raise OffloadError(f"--target: {error}") from None
    found = need(step, target)
    if options.json:
        print_json(need_to_json(found))
    else:
        print_report(write_need, found)
    return ANSWERED if found.reachable else NO
