"""The command line: verbs and words in, a report out. No arithmetic here; nothing heavy is imported before it is due.

Exit status: 0 answered, 1 the answer is no (does not fit, contradicts physics), 2 bad input, 70 an error of our own.
Results go to standard output, everything else to standard error.
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any, NoReturn, TextIO

from offload import __version__
from offload.errors import CapacityError, OffloadError, OutputError, one_line
from offload.verbs import (
    ANSWERED,
    BAD_INPUT,
    NO,
    check,
    compare,
    measure,
    memory,
    model,
    need,
    place,
    plot,
    replay,
    report,
    schema,
    step,
    sweep,
    topology,
    validate,
    why,
)
from offload.verbs.output import NARROWEST, put
from offload.verbs.unknown_options import REQUIRED, said_of_required, said_of_unknown

# How many objects are made before Python looks for garbage among them. Plans and steps are many small objects that all
# stay: at its own figures it looks so often that a plan of 100,000 layers takes twice as long, and more than n log n.
COLLECTIONS = (50_000, 20, 100)
INTERNAL, INTERRUPTED, PIPE_CLOSED = 70, 130, 141
# As help lists them.
VERBS = (
    step, report, need, place, sweep, compare, why, model, memory, plot, topology, measure, replay, check, validate,
    schema,
)  # fmt: skip

SCREEN = f"""\
offload {__version__}: how fast a step is when not everything fits (offload step --help: every option).
How fast is a token with 38 layers on the GPU, what binds, does it fit? And fetching the others?
  offload step llama-3.1-70b:q4_k_m --on desktop-4090 --gpu-layers 38
  offload step llama-3.1-70b:q4_k_m --on desktop-4090 --gpu-layers 38 --compute gpu0
More sequences, a longer context; several GPUs that work alike; a prompt and what follows it?
  offload step llama-3.1-70b:bf16 --on dgx-h100 --compute gpu0..7 --prompt 2048 --generate 256
My own model (a config.json); my own design, with another value, server; I measured: what is left?
  offload step path/to/config.json --weights q8_0 --on desktop-4090 --gpu-layers 20
  offload step plan.yaml --set workload.batch=4 -t gh200 --measured "2.7 tok/s"
Every term; a figure; data. What do 10 tok/s need, where had it better live, and on which server?
  offload step plan.yaml --explain --plot floor.svg --json
  offload need llama-3.1-70b:q4_k_m --on desktop-4090 --gpu-layers 38 --target 10tok/s
  offload place llama-3.1-70b:q4_k_m --on desktop-4090
  offload sweep plan.yaml --over workload.batch=1:64 --over pcie0.rate=16GB/s:128GB/s:200log
  offload compare plan.yaml --all --meter "money: 12 USD/h"
What is stored, what moves for a token, what grows? How many requests fit, for certain, by risk?
  offload model deepseek-v3 mixtral-8x7b
  offload memory llama-3.1-8b:fp8 --on desktop-4090 --requests "lognormal 2000 0.7"
Which servers are there (offload topology list, show), how do two differ, what is mine (measure)?
  offload topology diff dgx-h100 gh200
  offload topology import lstopo.xml nvbandwidth.txt -o my-box.yaml
Is my file sound (offload check plan.yaml)? How near are published measurements? Why so slow?
  offload validate
  offload why run.log --on desktop-4090
"""


class _Parser(argparse.ArgumentParser):
    """A parser whose help that cannot be written is an error: argparse would pass over it in silence.

    Its help keeps to the terminal's width, of an option that is not known it tells what to write instead, of one that
    is missing an example, and one that takes a single value is given once.
    """

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._given: dict[str, str] = {}  # the value of each option so far, as it is written
        self._words: Sequence[str] = sys.argv[1:] if args is None else args
        return super().parse_known_args(args, namespace)

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        if action.option_strings and action.nargs is None and isinstance(action, argparse._StoreAction):
            value = arg_strings[-1]
            if (first := self._given.get(action.dest)) is not None:
                wrong = f'it takes one value and is given two, "{one_line(first)}" and "{one_line(value)}". Keep one.'
                raise argparse.ArgumentError(action, wrong)
            self._given[action.dest] = value
        return super()._get_values(action, arg_strings)

    def format_help(self) -> str:
        return _within(super().format_help())

    def format_usage(self) -> str:
        return _within(super().format_usage())

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        options, unknown = self.parse_known_args(args, namespace)
        if unknown:
            verb = _asked(self, options)
            verb.error(said_of_unknown(unknown, verb, _parser))
        return options

    def error(self, message: str) -> NoReturn:
        if message.startswith(REQUIRED):
            message = said_of_required(message, self._words, self, _parser)
        super().error(message)

    def _print_message(self, message: str, file: Any = None) -> None:
        if message and file is sys.stdout:
            put(message)
        else:
            super()._print_message(message, file)


def _asked(parser: argparse.ArgumentParser, options: argparse.Namespace) -> argparse.ArgumentParser:
    """The parser of the verb, or of a verb's own word, that was asked for."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            below = action.choices.get(getattr(options, action.dest))
            return parser if below is None else _asked(below, options)
    return parser


def _within(text: str) -> str:
    """A help text whose lines keep to the terminal's width; argparse leaves some that cannot be broken."""
    width = max(NARROWEST, shutil.get_terminal_size().columns)
    lines = []
    for line in text.split("\n"):
        bare = line.strip()
        if len(line) <= width:
            lines.append(line)
        elif len(bare) <= width - 2 and bare.startswith("["):
            lines.append(f"  {bare}")
        else:
            indent = line[: len(line) - len(line.lstrip())]
            lines += textwrap.wrap(bare, width, initial_indent=indent, subsequent_indent=indent,
                                   break_on_hyphens=False)  # fmt: skip
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line on `argv` (default: the process's own) and return its exit status."""
    if argv is None:  # the process is ours; a caller's own settings stay
        gc.set_threshold(*COLLECTIONS)
    options = None
    try:
        if sys.stdout is None:
            raise OffloadError("standard output is closed: there is nowhere to print the answer.")
        options = _parser().parse_args(argv)
        return _run(options)
    except SystemExit as exit:  # argparse has printed its help or its complaint
        return exit.code if isinstance(exit.code, int) else BAD_INPUT
    except BrokenPipeError:
        _silence(sys.stdout)
        return PIPE_CLOSED
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if getattr(options, "debug", False):
            import traceback

            traceback.print_exception(error)
        return _complain(error)


def _run(options: argparse.Namespace) -> int:
    if options.verb is None:
        put(SCREEN)
        return ANSWERED
    from offload.files import files_read
    from offload.units.remarks import remarks

    with remarks() as heard, files_read():
        try:
            code: int = options.run(options)
            return code
        finally:
            for one in heard:
                _tell(f"offload: note: {one}")


def _complain(error: Exception) -> int:
    """Say on standard error what is wrong, and return the exit status."""
    if sys.stderr is None:  # closed; print would take standard output instead
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if isinstance(error, OutputError):
        _silence(sys.stdout)
    if isinstance(error, OffloadError):
        _tell(f"offload: {error}")
        return NO if isinstance(error, CapacityError) else BAD_INPUT
    if isinstance(error, OSError):
        where = "a file cannot be read: " if error.filename is None else f"{error.filename}: "
        if error.filename is None and isinstance(error, FileNotFoundError):
            where = "the current folder is gone; change to another: "
        _tell(f"offload: {where}{error.strerror or error}.")
        return BAD_INPUT
    text = " ".join(str(error).split())[:200]
    _tell(f"offload: internal error ({type(error).__name__}: {text}).")
    _tell("This is a fault of offload, not of your input: please report it with what --debug prints.")
    return INTERNAL


def _tell(text: str) -> None:
    """A line on standard error. Where that cannot be written either, the exit status alone says it."""
    shown = "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)  # as a file may hold them
    try:
        print(shown, file=sys.stderr)
    except OSError:
        _silence(sys.stderr)


def _silence(stream: TextIO) -> None:
    """The reader has gone: nothing more may be written, not even by the interpreter as it ends."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
    except (OSError, ValueError):  # the stream is no file
        pass


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="offload",
        description="How fast one step can be when not everything fits where it is computed, and what binds it.",
        epilog="Without a verb: the questions it answers, with an example each.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"offload {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    for verb in VERBS:
        verb.add(verbs)
    return parser
