"""`offload place`: the best placement of a model on a server, how far it is from any plan's floor, how to run it."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from offload.errors import OffloadError
from offload.verbs import ANSWERED, NO
from offload.verbs.options import count
from offload.verbs.output import check_outputs, print_json, print_report, put, write_file
from offload.verbs.step import plan_of, question

if TYPE_CHECKING:
    from offload.placing import Objective
    from offload.step import Step

ENGINES = ("llama.cpp", "vllm", "accelerate", "deepspeed", "ktransformers")


def add(verbs: Any) -> None:
    """State the verb's words."""
    verb = verbs.add_parser(
        "place",
        allow_abbrev=False,
        help="the best placement of a model on a server, the floor of any plan, and the flags of engines",
        description="Of all placements that plan files can say by counts of layers: the best, proved by evaluating "
                    "whole plans in the order of their bounds. Beside it the plan that the words or the file say (as "
                    "many layers on the GPU as fit, where they say nothing), and what no plan beats.",
        epilog="Exit status: 0 answered, 1 nothing fits or nothing reaches the target, 2 bad input.",
    )  # fmt: skip
    question(verb)
    verb.add_argument(
        "--for", metavar="AIM", dest="aim", default="latency",
        help='"latency" (the least time of a step; default), "throughput" (the most tokens/s, over batches unless '
             '--batch says one), or a target, "20 tok/s": the least GPU memory that reaches it',
    )  # fmt: skip
    verb.add_argument("-o", "--output", metavar="FILE", help="write the best placement as a plan file for offload step")
    verb.add_argument("--engine", choices=ENGINES, help="print in full what this engine takes")
    verb.add_argument("--most", metavar="N", type=count(1), help="plans to evaluate at most (default 1500)")
    verb.add_argument("--json", action="store_true", help="the same as data")
    verb.add_argument("--debug", action="store_true", help="show where an error arose")
    verb.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Answer, and return the exit status."""
    check_outputs({"-o": options.output})
    plan, topology = plan_of(options)
    check_outputs({"-o": options.output})
    from offload.compiler import compile_step
    from offload.placing import MOST, best_of, plan_question, powers_of_two

    asked = plan_question(plan, topology)
    step = compile_step(topology, plan)
    objective = _objective(options.aim, step)
    batches = powers_of_two() if objective.kind == "throughput" and options.batch is None else ()
    line = _Line()
    try:
        found = best_of(asked, step, objective, batches, most=options.most or MOST, overlap=options.buffers,
                        tick=line.show)
    finally:
        line.end()
    if options.output is not None and found.placing.best is not None:
        from offload.verbs.plan_output import plan_text

        write_file(options.output, plan_text(options, found.placing.best))
    from offload.report_place import place_to_json, write_place

    if options.json:
        print_json(place_to_json(found))
    else:
        print_report(write_place, found, options.engine, options.output)
    if found.placing.best is not None:
        return ANSWERED
    if options.output is not None and not options.json:
        put(f"Nothing is written to {options.output}.\n")
    return NO


def _objective(text: str, step: Step) -> Objective:
    from offload.need_rates import read_target
    from offload.placing import OBJECTIVES, Objective

    plain = text.strip().casefold()
    if plain in OBJECTIVES:
        return Objective(plain)
    try:
        return Objective("target", read_target(text, step))
    except OffloadError as error:
        raise OffloadError(f"--for: {error} Or write latency or throughput.") from None


class _Line:
    """One line on a terminal's standard error that is written anew; nothing where that is no terminal."""

    def __init__(self) -> None:
        self.live = sys.stderr is not None and sys.stderr.isatty()
        self.shown = False

    def show(self, text: str) -> None:
        """Say how far it is."""
        if self.live:
            sys.stderr.write(f"\r\x1b[K{text[:78]}")
            sys.stderr.flush()
            self.shown = True

    def end(self) -> None:
        """Take the line away."""
        if self.shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
