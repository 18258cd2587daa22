"""`offload replay`: a plan's step run on this machine, and what it took beside what the model says of it."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from offload.errors import OffloadError, one_line
from offload.verbs import ANSWERED, NO
from offload.verbs import step as asking
from offload.verbs.measure import Progress, check_writable
from offload.verbs.options import count
from offload.verbs.output import check_outputs, print_json, print_report, put

INTERRUPTED = 130


def add(verbs: Any) -> None:
    """State the verb's words."""
    replay = verbs.add_parser(
        "replay",
        allow_abbrev=False,
        help="run a plan's step on this machine, and compare what it takes with floor and schedule",
        description="Runs the tasks of a plan's step on this machine: real reads and writes of a drive, copies and "
                    "products, with the plan's order, queues and buffers. Reports measured beside predicted times. "
                    "Rates come from the topology, best from offload measure run just before. Close other programs.",
        epilog="Exit status: 0 run, 1 what was run did not keep to the plan or was faster than the floor, 2 bad input "
               "or no such machine, 130 ended by Ctrl-C (what was measured so far is reported; no file is left).",
    )  # fmt: skip
    asking.question(replay)
    how = replay.add_argument_group("how it is run")
    how.add_argument(
        "--disk", metavar="[NAME=]PATH", action="append",
        help="a folder on the drive that the plan reads or writes, where a file is made and removed (default: the "
        "current one); NAME says which of the topology's drives it stands for; repeatable",
    )  # fmt: skip
    way = how.add_mutually_exclusive_group()
    way.add_argument("--buffered", action="store_true", help="read drives through the page cache, not past it")
    way.add_argument("--mmap", action="store_true",
                     help="read drives by a mapping of the file; what lives in host memory is mapped too")  # fmt: skip
    how.add_argument("--steps", metavar="N", type=count(1), help="steps that count (default 10, with --quick 4)")
    how.add_argument("--scale", metavar="PART",
                     help="run this part of the bytes and FLOP, as 1/16 (default: all, or what fits)")  # fmt: skip
    how.add_argument("--quick", action="store_true", help="fewer steps, files of at most 2 GiB")
    replay.add_argument("--trace", metavar="FILE", help="write both timelines for Perfetto (ui.perfetto.dev)")
    replay.add_argument("--plot", metavar="FILE", help="draw both timelines: .svg, .png or .pdf")
    replay.add_argument("--json", action="store_true", help="the same as data")
    replay.add_argument("--debug", action="store_true", help="show where an error arose")
    replay.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the plan, and report."""
    check_outputs({"--trace": options.trace, "--plot": options.plot})
    scale = None if options.scale is None else _part(options.scale)
    if options.plot is not None:
        from offload.plots.style import format_of

        format_of(options.plot)
    plan, topology = asking.plan_of(options)
    outputs = {"--trace": options.trace, "--plot": options.plot}
    check_outputs(outputs)
    for option, path in outputs.items():
        check_writable(path, [], option)
    from offload.replaying import Options, replay
    from offload.report_replay import replay_to_json, write_replay

    told = Progress(sys.stderr, "replay")
    way = "mapped" if options.mmap else "buffered" if options.buffered else "direct"
    try:
        found = replay(topology, plan, Options(tuple(options.disk or ["."]), way, options.steps, scale,
                                               options.quick), tell=told.tell)  # fmt: skip
    except KeyboardInterrupt:
        told.end()
        told.say("ended before a counted step had ended; no file is left")
        return INTERRUPTED
    finally:
        told.end()
    if options.json:
        print_json(replay_to_json(found))
    else:
        print_report(write_replay, found)
    refused = None
    if options.trace is not None:
        from offload.trace import write_timelines

        put()
        try:
            write_timelines(found.step, found.timelines, options.trace)
        except OffloadError as error:  # the figure is drawn all the same
            refused = error
    if options.plot is not None:
        from offload.plots import replayed
        from offload.verbs.figure import draw

        draw(options.plot, lambda: replayed(found.step, *found.timelines), options.json)
    if refused is not None:
        raise refused
    if found.interrupted:
        return INTERRUPTED
    return NO if found.wrong or found.below_floor else ANSWERED


def _part(text: str) -> float:
    """A part of the whole: 1/16, 0.25 or 25%. Raises OffloadError."""
    from fractions import Fraction

    shown = text.strip()
    try:
        if len(shown) > 24:
            raise OffloadError("too long")
        part = Fraction(shown.removesuffix("%").strip()) / (100 if shown.endswith("%") else 1)
    except (ValueError, ZeroDivisionError):
        part = Fraction(0)
    if not 0 < part <= 1:
        raise OffloadError(f'--scale: "{one_line(text, 24)}" is no part of the plan: above 0 and at most 1, as 1/16.')
    return float(part)
