"""`offload check`: whether plan and topology files are sound, and what in them is probably not meant."""

from __future__ import annotations

import argparse
from typing import Any

from offload.verbs import ANSWERED, BAD_INPUT, NO
from offload.verbs.output import print_json, print_report


def add(verbs: Any) -> None:
    """State the verb's words."""
    check = verbs.add_parser(
        "check",
        allow_abbrev=False,
        help="whether plan and topology files are sound, and what in them is probably not meant",
        description="All mistakes of each file with their places, then warnings: what is sound and probably not meant.",
        epilog="Exit status: 0 all sound, 1 a warning and --strict, 2 a mistake in any file.",
    )
    check.add_argument("files", metavar="FILE", nargs="+", help="plan or topology file, or a shipped server's name")
    check.add_argument("--strict", action="store_true", help="exit with 1 where there is a warning")
    check.add_argument(
        "--allow", metavar="CODE", action="append", default=[], help="a warning that is meant (several: say it again)"
    )
    check.add_argument("--json", action="store_true", help="the same as data")
    check.add_argument("--debug", action="store_true", help="show where an error arose")
    check.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Check every file, and return the exit status."""
    from offload.checking import check_file, checked_to_json

    files = [check_file(path, options.allow) for path in options.files]
    if options.json:
        print_json(checked_to_json(files))
    else:
        from offload.report_checked import write_checked

        print_report(write_checked, files)
    if any(one.mistakes for one in files):
        return BAD_INPUT
    return NO if options.strict and any(one.warnings for one in files) else ANSWERED
