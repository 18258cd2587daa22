"""What `offload sweep` does with large grids: chunks that are kept, reductions, workers elsewhere, progress."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, cast

from offload.errors import OffloadError, OutputError
from offload.files import named
from offload.verbs import ANSWERED, NO
from offload.verbs.options import count
from offload.verbs.output import print_json, print_report, put

if TYPE_CHECKING:
    from offload.sweeps import Reduced


def big_grids(verb: Any) -> None:
    """State the options."""
    verb.add_argument(
        "--reduce", metavar="LIST",
        help="keep answers in place of the grid: best=20, pareto=floor:spare, min=workload.batch (the least along an "
        "axis), binding; with commas between",
    )  # fmt: skip
    verb.add_argument("--chunk", metavar="N", type=count(1),
                      help="points that are worked out at a time (default 4194304); finished chunks are kept in "
                      "FILE.partial until all of -o FILE is written")  # fmt: skip
    verb.add_argument("--resume", action="store_true", help="go on with the chunks in FILE.partial")
    verb.add_argument("--dask", metavar="ADDRESS", help="a Dask scheduler whose workers work the chunks out, as "
                      "tcp://10.0.0.1:8786")  # fmt: skip
    verb.add_argument("--progress", action="store_true",
                      help="tell how far it is, also where standard error is no terminal")  # fmt: skip


@contextmanager
def working(options: argparse.Namespace, axes: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """How `sweep` is asked to work, while it does. Raises OffloadError for options that do not go together."""
    from math import prod

    from offload.sweeps.cuts import CHUNK
    from offload.sweeps.kept import Kept
    from offload.sweeps.overlapping import FEW
    from offload.sweeps.progress import Progress

    if options.resume and options.output is None:
        raise OffloadError("--resume goes on with what is kept beside an output: name it, -o FILE.")
    how: dict[str, Any] = {} if options.threads is None else {"threads": options.threads}
    points = prod(len(axis) for axis in axes)
    chunked = options.chunk is not None or options.dask is not None or bool(options.reduce) or points > CHUNK
    kept = None if options.output is None else Kept(options.output)
    searched = options.overlapped or options.by == "overlapped"
    if kept is not None and (chunked or kept.exists or searched and points > FEW):
        how |= {"keep": options.output, "resume": options.resume}
    if chunked:
        how["chunk"] = options.chunk
    with ExitStack() as stack:
        how["watcher"] = stack.enter_context(Progress(True if options.progress else None))
        if options.dask is not None:
            how["executor"] = stack.enter_context(dask_executor(options.dask))
        try:
            yield how
        except KeyboardInterrupt:
            stack.close()
            if kept is not None and kept.exists:
                _tell(f"stopped; finished chunks are in {named(kept.folder)}: the same with --resume goes on.")
            raise
        except OffloadError as error:
            if kept is None or not kept.exists or isinstance(error, OutputError) or "--resume" in str(error):
                raise
            told = any(one in str(error) for one in ("another sweep", kept.folder))
            if any(name.startswith("chunk-") for name in os.listdir(kept.folder)) and not told:
                raise type(error)(f"{error} Finished chunks are in {named(kept.folder)}: the same with --resume goes "
                                  "on.") from error
            raise


def _tell(text: str) -> None:
    try:
        sys.stderr.write(f"offload: {text}\n")
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        pass


def finished(how: dict[str, Any]) -> None:
    """The output is written: what was kept for it goes."""
    if "keep" in how:
        from offload.sweeps.kept import Kept

        Kept(how["keep"]).remove()


@contextmanager
def dask_executor(address: str) -> Iterator[Any]:
    """An executor of the workers of a Dask scheduler. Raises OffloadError where there is none."""
    try:
        from distributed import Client
        from distributed.comm.addressing import parse_address, parse_host_port
    except ImportError:
        raise OffloadError("--dask needs dask.distributed, which is not installed: pip install "
                           "'offload[dask]'") from None
    try:
        parse_host_port(parse_address(address)[1])  # a client of what is no address complains once more as it goes
    except (TypeError, ValueError) as error:
        raise OffloadError(f"--dask {address}: this is no address of a scheduler ({error}). Write what `dask "
                           "scheduler` prints, as tcp://10.0.0.1:8786.") from None
    try:
        client = cast("Any", Client)(address, timeout=10, set_as_default=False)
    except (OSError, ValueError) as error:
        raise OffloadError(f"--dask {address}: no scheduler answers there ({error}). Start one with `dask scheduler` "
                           "and workers with `dask worker ADDRESS`.") from None
    try:
        yield client.get_executor(retries=3)
    finally:
        client.close()


def reduce_grid(options: argparse.Namespace, source: Any, axes: Sequence[Any]) -> int:
    """Answer with reductions, and return the exit status."""
    from offload.report_reduced import reduced_to_json, write_reduced
    from offload.sweeps import sweep
    from offload.sweeps.reductions import read_reductions

    texts = [one for one in options.reduce.split(",") if one.strip()]
    reductions = list(read_reductions([one if one.strip() != "best" else f"best={options.best}" for one in texts], axes,
                                      by=options.by))  # fmt: skip
    if not reductions:
        raise OffloadError("--reduce: which answers? As --reduce best=20,binding.")
    if all(one.kind != "binding" for one in reductions):
        reductions += read_reductions(["binding"], axes)
    if options.output is not None:
        _check(options.output)
    with working(options, axes) as how:
        found = cast("Reduced", sweep(source, axes, reduce=reductions, by=options.by, **how))
    answer = reduced_to_json(found, source.name)
    if options.output is not None:
        _write(options.output, answer)
        finished(how)
    if options.json:
        print_json(answer)
    else:
        print_report(write_reduced, found, source.name)
        if options.output is not None:
            put(f"\nThe answers are in {options.output}.\n")
    return ANSWERED if found.fit else NO


def _check(path: str) -> None:
    """Raises OutputError for what no answers can be written to; before any work."""
    from offload.sweeps.writing import writer_of

    if not path.lower().endswith(".json"):
        raise OutputError(f"-o {named(path)}: answers of --reduce are written as JSON. Name a .json file.")
    try:
        writer_of(path)
    except OutputError as error:
        raise OutputError(f"-o {error}") from None


def _write(path: str, answer: Any) -> None:
    import json

    from offload.files import writing

    try:
        with writing(path) as beside, open(beside, "w", encoding="utf-8") as file:
            json.dump(answer, file, indent=1, allow_nan=False)
            file.write("\n")
    except OutputError as error:
        raise OutputError(f"-o {error}") from None
