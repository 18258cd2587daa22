"""The command line: verbs and words in, a report out. No arithmetic here; nothing heavy is imported before it is due.

Exit status: 0 answered, 1 the answer is no (it does not fit), 2 bad input, 70 an error of our own.
Results go to standard output, everything else to standard error.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from offload import __version__
from offload.errors import CapacityError, OffloadError

if TYPE_CHECKING:
    from offload.plan import Overlap, Plan
    from offload.topology import Topology

ANSWERED, NO, BAD_INPUT, INTERNAL, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 70, 130, 141
PIPED_WIDTH = 100  # columns where the output is no terminal and COLUMNS says nothing
NARROWEST = 24

SCREEN = f"""\
offload {__version__}: how fast one step can be when not everything fits where it is computed.

How fast is a token with 38 layers on the GPU, and what binds? Does it fit?
  offload step llama-3.1-70b:q4_k_m --on desktop-4090 --gpu-layers 38
And if the GPU fetches the other layers each step instead of the CPU running them?
  offload step llama-3.1-70b:q4_k_m --on desktop-4090 --gpu-layers 38 --compute gpu0
What do more buffers, more sequences or a longer context do to it?
  offload step llama-3.1-70b:q4_k_m --on desktop-4090 --gpu-layers 30 --batch 4 --context 8192
And on another server, with the KV cache in host memory?
  offload step llama-3.1-70b:bf16 --on gh200 --gpu-layers 40 --kv dram0
My own model: the config.json of a dense decoder.
  offload step path/to/config.json --weights q8_0 --on desktop-4090 --gpu-layers 20
My own server or design, in a small file.
  offload step plan.yaml
The same as data, for a program.
  offload step plan.yaml --json

offload step --help lists every option.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line on `argv` (default: the process's own) and return its exit status."""
    options = None
    try:
        if sys.stdout is None:
            raise OffloadError("standard output is closed: there is nowhere to print the answer.")
        options = _parser().parse_args(argv)
        status = _run(options)
        sys.stdout.flush()
        return status
    except SystemExit as exit:  # argparse has printed its help or its complaint
        try:
            sys.stdout.flush()
        except OSError as error:
            return _complain(error)
        return exit.code if isinstance(exit.code, int) else BAD_INPUT
    except BrokenPipeError:
        _silence_output()
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
        sys.stdout.write(SCREEN)
        return ANSWERED
    return _step(options)


def _complain(error: Exception) -> int:
    """Say on standard error what is wrong, and return the exit status."""
    if sys.stderr is None:  # closed; print would take standard output instead
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if isinstance(error, OffloadError):
        print(f"offload: {error}", file=sys.stderr)
        return NO if isinstance(error, CapacityError) else BAD_INPUT
    if isinstance(error, OSError):  # a file that cannot be read, or output that cannot be written
        where = "" if error.filename is None else f"{error.filename}: "
        if error.filename is None and isinstance(error, FileNotFoundError):
            where = "the current folder is gone; change to another: "
        elif error.filename is None:
            where = "the answer cannot be written: "
            _silence_output()
        print(f"offload: {where}{error.strerror or error}.", file=sys.stderr)
        return BAD_INPUT
    text = " ".join(str(error).split())[:200]
    print(f"offload: internal error ({type(error).__name__}: {text}).", file=sys.stderr)
    print("This is a fault of offload, not of your input: please report it with what --debug prints.", file=sys.stderr)
    return INTERNAL


def _silence_output() -> None:
    """The reader has gone: nothing more may be written, not even by the interpreter as it ends."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    except (OSError, ValueError):  # standard output is no file
        pass


# --- words -----------------------------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="offload",
        description="How fast one step can be when not everything fits where it is computed, and what binds it.",
        epilog="Without a verb: the questions it answers, with an example each.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"offload {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    _add_step(verbs)
    return parser


def _add_step(verbs: Any) -> None:
    step = verbs.add_parser(
        "step",
        allow_abbrev=False,
        help="the floor and the expected time of one step, what binds, what fits, what would change it",
        description="One step of a plan: what moves, what binds, how fast it can be, what fits, what would change it.",
        epilog="Exit status: 0 answered, 1 it does not fit, 2 bad input.",
    )
    step.add_argument("target", metavar="TARGET", help="plan file (.yaml), MODEL[:FORMAT], or path of a config.json")
    words = step.add_argument_group("without a plan file")
    words.add_argument("--on", metavar="TOPOLOGY", help="server: a shipped name or a topology file")
    words.add_argument(
        "--gpu-layers", metavar="N", type=_count(0),
        help="decoder layers whose weights live at the GPU (default: as many as fit)",
    )
    words.add_argument(
        "--compute", metavar="WHERE", help='"local" (each layer where its weights live; default) or a processor'
    )
    words.add_argument("--kv", metavar="WHERE", help='KV cache: "with layer" (default) or a memory')
    words.add_argument("--batch", metavar="N", type=_count(1), help="sequences decoded together (default 1)")
    words.add_argument(
        "--context", metavar="N", type=_count(1), help="positions in each sequence's KV cache (default 4096)"
    )
    words.add_argument("--weights", metavar="FORMAT", help="weight format, as q4_k_m, q8_0, bf16, fp8")
    words.add_argument("--kv-format", metavar="FORMAT", help="KV cache format, as f16, fp8")
    words.add_argument("--reserve", metavar="SIZE", help='GPU memory the runtime keeps for itself, as "1.5 GB"')
    step.add_argument(
        "--buffers", metavar="N", type=_overlap, help="layer-sized buffers for what is streamed: a number, none or full"
    )
    step.add_argument("--ignore-capacity", action="store_true", help="compute on where it does not fit")
    step.add_argument("--json", action="store_true", help="the same as data")
    step.add_argument("--debug", action="store_true", help="show where an error arose")


def _count(least: int):
    """A whole number of at least `least`."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 16) or int(text) < least:
            wrong = f'"{text}" is not a whole number of at least {least}'
            raise argparse.ArgumentTypeError(wrong + _plainly(text, least))
        return int(text)

    return read


def _plainly(text: str, least: int) -> str:
    """How to write a whole number that was spelled in another way (1e9, 1,000, 4k), "" where none is meant."""
    match = re.fullmatch(r"\+?([0-9]{1,15}(?:[,_' ][0-9]{3})*)(?:\.0*)?(?:[eE]\+?([0-9]{1,2}))?([kKM]?)", text.strip())
    if match is None:
        return ""
    number = int(re.sub("[^0-9]", "", match[1])) * 10 ** int(match[2] or 0) * {"": 1, "M": 10**6}.get(match[3], 1000)
    return f". Write {number}" if least <= number < 10**15 else ". That is more than can be meant" if number else ""


def _overlap(text: str) -> Overlap:
    from offload.plan import UNLIMITED, Overlap

    if text == "none":
        return Overlap("none")
    if text == "full":
        return Overlap("buffers", UNLIMITED)
    try:
        return Overlap("buffers", _count(1)(text))
    except argparse.ArgumentTypeError:
        wrong = f'"{text}" is neither a number of buffers (1, 2, ...) nor none or full'
        raise argparse.ArgumentTypeError(wrong) from None


# --- step ------------------------------------------------------------------------------------------------------------


def _step(options: argparse.Namespace) -> int:
    plan, topology = _plan(options)
    from offload.study import evaluate

    study = evaluate(topology, plan)
    refused = not study.fits and not options.ignore_capacity
    if options.json:
        import json

        from offload.answer import refusal_to_json, to_json

        answer = refusal_to_json(study) if refused else to_json(study)
        sys.stdout.write(json.dumps(answer, indent=2, allow_nan=False) + "\n")
    else:
        from offload.report import write_refusal, write_text

        _print(write_refusal if refused else write_text, study)
    return NO if refused else ANSWERED


def _plan(options: argparse.Namespace) -> tuple[Plan, Topology]:
    from offload import documents

    words = {
        "--on": options.on,
        "--gpu-layers": options.gpu_layers,
        "--compute": options.compute,
        "--kv": options.kv,
        "--batch": options.batch,
        "--context": options.context,
        "--weights": options.weights,
        "--kv-format": options.kv_format,
        "--reserve": options.reserve,
    }
    if _is_plan_file(options.target):
        given = [name for name, value in words.items() if value is not None]
        if given:
            raise OffloadError(
                f"{options.target} already says what {' and '.join(given)} would. "
                f"Edit the file, or name a model instead of it."
            )
        plan, topology = documents.load_plan(options.target)
        if options.buffers is not None:
            from dataclasses import replace

            plan = replace(plan, overlap=options.buffers)
        return plan, topology
    for name in ("--on", "--compute", "--kv", "--weights", "--kv-format", "--reserve"):
        if words[name] is not None and not words[name].strip():
            raise OffloadError(f"{name} is empty: give it a value, or drop it.")
    from offload.words import model_and_format, plan_from_words

    if options.on is None:
        shipped = ", ".join(sorted(documents.shipped_topologies()))
        missing = f"--on is missing: on which server? Name a topology file, or one of: {shipped}."
        try:
            model_and_format(options.target, options.weights)
        except (OffloadError, OSError) as error:
            told = f"{error.filename}: {error.strerror}." if isinstance(error, OSError) else error
            raise OffloadError(f"{told}\noffload: {missing}") from None
        raise OffloadError(missing)
    given = {name[2:].replace("-", "_"): value for name, value in words.items() if name != "--on" and value is not None}
    if "reserve" in given:
        from offload.units import parse_bytes

        try:
            given["reserve"] = parse_bytes(given["reserve"])
        except OffloadError as error:
            raise OffloadError(f"--reserve: {error}") from None
    if options.buffers is not None:
        given["overlap"] = options.buffers
    return plan_from_words(options.target, options.on, **given)


def _is_plan_file(target: str) -> bool:
    """A plan file ends in .yaml or .yml, or is a file that is no model's."""
    lowered = target.lower()
    if lowered.endswith((".yaml", ".yml")):
        return True
    if os.path.isfile(target) and ("/" in target or os.sep in target or lowered.endswith(".json")):
        return not _is_model_file(target)
    return False


def _is_model_file(path: str) -> bool:
    """Whether a file is a model's: by its name, or a JSON map that says which family the model is of."""
    name = os.path.basename(path).lower()
    if name in ("config.json", "hf_quant_config.json") or name.endswith((".gguf", ".safetensors")):
        return True  # the reader of models says what it takes
    import json

    try:
        with open(path, "rb") as file:
            text = file.read(16 * 1024 * 1024).decode("utf-8-sig").lstrip()
        content = json.loads(text) if text.startswith("{") else None
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and ("model_type" in content or "architectures" in content)


def _print(write: Any, study: Any) -> None:
    """Print a report: all of it or, where it fails, nothing."""
    from rich.console import Console

    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name that the terminal cannot show is no reason to fail
    columns = os.environ.get("COLUMNS", "")
    width = None if sys.stdout.isatty() else PIPED_WIDTH
    if columns.isascii() and columns.isdigit() and 0 < int(columns) < 10_000:
        width = max(int(columns), NARROWEST)
    plain = bool(os.environ.get("NO_COLOR")) or not sys.stdout.isatty()
    console = Console(width=width, color_system=None if plain else "auto", legacy_windows=False)
    with console.capture() as captured:
        write(study, console)
    text = captured.get()
    if plain:  # tables fill their lines with spaces
        text = "\n".join(line.rstrip() for line in text.split("\n"))
    sys.stdout.write(text)
