"""`offload validate`: published measurements beside the floor and the expected time of what was measured."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offload.errors import OffloadError, did_you_mean
from offload.verbs import ANSWERED, BAD_INPUT, NO, figure
from offload.verbs.output import check_outputs, print_json, print_report, put

if TYPE_CHECKING:
    from offload.documents.case_file import Case


def add(verbs: Any) -> None:
    """State the verb's words."""
    validate = verbs.add_parser(
        "validate",
        allow_abbrev=False,
        help="published measurements beside their floor and expected time",
        description="Compares the floor and the expected time of a step with what others measured and published.",
        epilog="Exit status: 0 no floor is above its measurement, 1 one is (traps aside), 2 bad input.",
    )
    words(validate)
    validate.add_argument("--plot", metavar="FILE", help="draw floors and expected times against what was measured: "
                          ".svg, .png or .pdf")  # fmt: skip
    shown = validate.add_mutually_exclusive_group()
    shown.add_argument("--json", action="store_true", help="the same as data")
    shown.add_argument("--markdown", action="store_true", help="the same as Markdown, for a page of documentation")
    validate.add_argument("--debug", action="store_true", help="show where an error arose")
    validate.set_defaults(run=run)


def words(verb: Any) -> None:
    """State the words that say which cases; `cases_of` reads them."""
    verb.add_argument(
        "targets", metavar="FILE|ID", nargs="*",
        help="case file (.yaml), folder of case files, or id of a shipped case (default: all shipped cases)",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Answer, and return the exit status. What is wrong with one file or case is told and loses no other."""
    from offload.report_validation import validation_to_json, validation_to_markdown, write_validation
    from offload.validation import run_case

    check_outputs({"--plot": options.plot})
    cases, wrong = cases_of(options.targets)
    outcomes = []
    for case in cases:
        try:
            outcomes.append(run_case(case))
        except OffloadError as error:
            wrong.append(str(error))
    for text in wrong:
        print(f"offload: {text}", file=sys.stderr)
    if options.json:
        print_json(validation_to_json(outcomes, wrong))
    elif options.markdown:
        put(validation_to_markdown(outcomes, len(wrong)) if outcomes else "")
    elif outcomes:
        print_report(write_validation, outcomes, len(wrong))
    if options.plot is not None:
        from offload import plots

        figure.draw(options.plot, lambda: plots.predicted(outcomes), options.json or options.markdown)
    if wrong:
        return BAD_INPUT
    return NO if any(one.failed for one in outcomes) else ANSWERED


def cases_of(targets: list[str]) -> tuple[list[Case], list[str]]:
    """The cases that are asked for, in order and each once, and what is wrong with the others."""
    from offload.documents.case_file import load_cases
    from offload.documents.shipped import shipped_cases

    wrong: list[str] = []
    read: dict[Path, tuple[Case, ...]] = {}

    def cases_in(path: Path) -> tuple[Case, ...]:
        if path not in read:
            read[path] = ()
            try:
                read[path] = load_cases(path)
            except OffloadError as error:
                wrong.append(str(error))
            except OSError as error:
                wrong.append(f"{path}: {error.strerror or error}.")
        return read[path]

    found: list[Case] = []
    for target in targets:
        if not target.strip():
            wrong.append("an empty name is no case. Name a case file, or a shipped case by its id.")
        elif os.path.isdir(target):
            files = sorted(path for path in Path(target).iterdir() if path.suffix in (".yaml", ".yml"))
            if not files:
                wrong.append(f"{target}: no case file (.yaml) is in this folder.")
            found += [case for path in files for case in cases_in(path)]
        elif target.lower().endswith((".yaml", ".yml")) or os.path.exists(target):
            found += cases_in(Path(target))
        else:
            own = [path for path in shipped_cases() if path.stem == target.partition("/")[0]]
            shipped = [case for path in own or shipped_cases() for case in cases_in(path)]
            named = [case for case in shipped if case.id == target or case.id.startswith(f"{target.rstrip('/')}/")]
            if not named:
                ids = [case.id for case in shipped] if own else [path.stem for path in shipped_cases()]
                wrong.append(f'no shipped case "{target}". {did_you_mean(target, ids, "Shipped cases")} '
                             "A case file is named by its path.")  # fmt: skip
            found += named
    if not targets:
        found = [case for path in shipped_cases() for case in cases_in(path)]
    return _once(found, wrong), wrong


def _once(cases: list[Case], wrong: list[str]) -> list[Case]:
    """Each case once; another one of the same id is refused."""
    first: dict[str, Case] = {}
    for case in cases:
        other = first.setdefault(case.id, case)
        if other.file != case.file:
            wrong.append(f'{case.file}: the id "{case.id}" is taken by {other.file}. Give the case another "id".')
    return list(first.values())
