"""`offload report`: the answer of `offload step` as a page that opens offline, with sliders."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from offload.errors import CapacityError, OffloadError
from offload.verbs import ANSWERED
from offload.verbs.output import check_outputs, put, write_file
from offload.verbs.step import asked_of, plan_of, question

if TYPE_CHECKING:
    from offload.comparison import Comparison
    from offload.page.live import Live
    from offload.page.stops import Stops
    from offload.step import Step
    from offload.study import Study
    from offload.sweeps import Grid

LARGEST = 200_000  # characters of a file that is shown


def add(verbs: Any) -> None:
    """State the verb's words."""
    verb = verbs.add_parser(
        "report",
        allow_abbrev=False,
        help="the answer as a page that opens offline, with sliders for rates, batch, context and residency",
        description="One step of a plan as a page in one file: the answer, tables, sources and files, and sliders that "
                    "redraw it.",
        epilog="Exit status: 0 written, 1 it does not fit, 2 bad input.",
    )  # fmt: skip
    question(verb)
    verb.add_argument("-o", "--output", metavar="FILE", required=True, help="the page to write: a file ending in .html")
    verb.add_argument(
        "--over", metavar="PATH=VALUES", action="append", default=[],
        help="a slider and its stops, as of offload sweep: workload.batch=1,2,4,8, one of them what the plan has; "
        "repeatable (default: a few stops of batch, context and layers)",
    )  # fmt: skip
    verb.add_argument("--ignore-capacity", action="store_true", help="write it where it does not fit, and say so there")
    verb.add_argument("--debug", action="store_true", help="show where an error arose")
    verb.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Answer, and return the exit status."""
    page_name("-o", options.output)
    from offload.files import files_so_far

    plan, topology = plan_of(options)
    read = files_so_far()
    check_outputs({"-o": options.output})
    from offload.compiler import compile_step
    from offload.page.document import Report, write_html
    from offload.page.drawn import of_step
    from offload.page.live import at_of, live
    from offload.printing import clean
    from offload.study import evaluate

    line = _Line()
    try:
        line.tell("the step")
        study, base = evaluate(topology, plan), compile_step(topology, plan)
        if not study.fits and not options.ignore_capacity:
            raise CapacityError(_lacking(study))
        source, axes, words, over_layers = _stops(options, base)
        found = live(base, axes, at_of(source), line.tell)
        _refuse_empty(options, found)
        line.tell("figures")
        drawn = of_step(study, base, topology, None if over_layers is None else partial(over_layers, found))
    finally:
        line.clear()
    write_file(options.output, write_html(Report(study, found, words, _texts(read), drawn)))
    count, title = len(found.points), clean(study.title)
    put(f"{options.output}: {title}, {count} {'stop' if count == 1 else 'stops'} and {len(found.dials)} rates to "
        "move. Open it in a browser.\n")  # fmt: skip
    return ANSWERED


def _refuse_empty(options: argparse.Namespace, found: Live) -> None:
    """Refuse a slider at none of whose stops that were asked for a step can be made: a word is wrong."""
    if not options.over:
        return
    now = tuple(axis.now for axis in found.axes)
    for place in range(len(now)):
        if found.axes[place].stops[now[place]].setting is not None:
            continue  # the plan as it is was asked for
        rest = now[:place] + now[place + 1 :]
        own = [step for at, step in found.points.items()
               if at[place] != now[place] and at[:place] + at[place + 1 :] == rest]  # fmt: skip
        if own and all(isinstance(step, str) for step in own):
            raise OffloadError(f"no stop of this slider is a step: {own[0]}")


def page_name(option: str, path: str | None) -> None:
    """Refuse what is no name of a page, or a file that is read."""
    if path is not None and not path.lower().endswith((".html", ".htm")):
        raise OffloadError(f'{option} {path}: a report is a page. Give a name that ends in ".html".')
    check_outputs({option: path})


def write_compared(path: str, found: Comparison) -> None:
    """Write the page of a comparison. Raises OffloadError where nothing can be ranked."""
    check_outputs({"--report": path})
    if not found.ranked:
        raise OffloadError(f"--report {path}: nothing can be ranked, so there is no page.")
    from offload.files import files_so_far
    from offload.page.compared import live_of, write_html
    from offload.page.drawn import of_comparison

    line = _Line()
    try:
        made = live_of(found, line.tell)
        line.tell("figures")
        drawn = of_comparison(found)
    finally:
        line.clear()
    put()
    write_file(path, write_html(found, made, _texts(files_so_far()), drawn), "--report")


def _lacking(study: Study) -> str:
    from offload.units import format_bytes_both

    told = "; ".join(f"{row.name} lacks {format_bytes_both(row.missing)}" for row in study.memory if row.missing)
    return f"it does not fit: {told}. Make it fit, or add --ignore-capacity to have the page all the same."


def _stops(options: argparse.Namespace, base: Step) -> tuple[Any, list[Stops], list[str], Any]:
    """What gives the step at a stop, the stops, the words of `offload step` that no stop sets; and what sweeps the
    layers in a memory, None of a plan without such a slider.
    """
    from offload.page.live import at_of
    from offload.page.stops import of_axis, usual
    from offload.sweeps import PlanFile, Words, read_axis

    axes = [read_axis(text) for text in options.over]
    for place, one in enumerate(axes):
        if any(other.path == one.path for other in axes[:place]):
            raise OffloadError(f'"{one.path}" has two sliders. Keep one --over.')
    settings, given = asked_of(options)

    def source_without(taken: Sequence[str]) -> Any:
        """The source, without what stops set."""
        kept = [one for one in settings if not _within(".".join(one.path), taken)]
        if given is None:
            return PlanFile(options.target, topology=options.topology, settings=kept, overlap=options.buffers)
        own = {name: value for name, value in given.items() if not _says(name, taken)}
        return Words(options.target, options.on, settings=kept, **own)

    said = {".".join(one.path[:depth]) for one in settings for depth in range(1, len(one.path) + 1)}
    for word in given or {}:
        name = word.replace("_", "-")
        said |= {name, f"workload.{name}", f"model.{name}"}

    def without(name: str) -> Any:
        return at_of(source_without([name]))

    if axes:
        found = [of_axis(one, given is not None, one.path in said, without(one.path), base) for one in axes]
    else:
        found = usual(base, without, given is not None, said)
    taken = [one.name for one in found]
    layers = None if axes else next((one for one in found if one.name in ("gpu-layers", "placement.weights")), None)
    over_layers = None if layers is None else partial(_over_layers, source_without([layers.name]), layers)
    return source_without(taken), found, _words(options, given, taken), over_layers


def _over_layers(source: Any, layers: Stops, found: Live) -> Any:
    """The grid over the layers in a memory, each count; with expected times where they need no search.

    Raises OffloadError where some of them cannot be.
    """
    from offload.chains import has_formula
    from offload.step import Step
    from offload.sweeps import FIGURES, USUAL, read_axis, sweep

    most, memory = int((layers.numbers or ())[-1]), layers.label.rpartition(" ")[2]
    text = f"gpu-layers=0:{most}" if layers.name == "gpu-layers" else (
        f"placement.weights.{memory}=0 layers:{most} layers")  # fmt: skip
    known = all(has_formula(one) for one in found.points.values() if isinstance(one, Step))
    grid = cast("Grid", sweep(source, [read_axis(text)], figures=FIGURES if known else USUAL))
    if not grid.made.all():
        raise OffloadError(f"not every count of layers in {memory} can be.")
    return grid


def _within(path: str, taken: Sequence[str]) -> bool:
    """Whether stops set a value, or a map that it is in."""
    return any(path == one or path.startswith(f"{one}.") for one in taken)


def _says(word: str, taken: Sequence[str]) -> bool:
    """Whether stops set what a word of the command line says."""
    return any(one.rpartition(".")[2].replace("-", "_") == word for one in taken)


def _words(options: argparse.Namespace, given: Any, taken: Sequence[str]) -> list[str]:
    """The words of the command line, in a fixed order; files by their names alone where their paths are absolute."""
    target = options.target
    found = [_short(target)]
    for option, value in (("-t", options.topology), ("--on", getattr(options, "on", None))):
        if value is not None and not ({"on", "topology"} & set(taken)):
            found += [option, _short(value)]
    for text in options.set:
        if not _within(text.partition("=")[0].strip(), taken):
            found += ["--set", text]
    for word, value in sorted((given or {}).items()):
        if word in ("overlap", "reserve") or _says(word, taken):
            continue
        for one in value if isinstance(value, list | tuple) else [value]:
            found += [f"--{word.replace('_', '-')}", str(one)]
    if getattr(options, "reserve", None) is not None:
        found += ["--reserve", options.reserve]
    if options.buffers is not None:
        found += ["--buffers", _buffers(options.buffers)]
    return found


def _short(name: str) -> str:
    """A path that starts at the root by its last name, for a page that is sent on."""
    return os.path.basename(name) if os.path.isabs(name) else name


def _buffers(overlap: Any) -> str:
    from offload.plan import UNLIMITED

    return "none" if overlap.kind == "none" else "full" if overlap.buffers == UNLIMITED else str(overlap.buffers)


def _texts(read: Any) -> list[tuple[str, str]]:
    """The names and texts of files that were read, without those that hold no text or a long one."""
    found: dict[str, str] = {}
    for name in read:
        path = Path(name)
        if path.suffix.lower() not in (".yaml", ".yml", ".json") or not path.is_file():
            continue
        text = path.read_bytes().decode("utf-8-sig", errors="replace")
        if len(text) <= LARGEST:
            found.setdefault(path.name, text)
    return list(found.items())


class _Line:
    """A line on standard error that says how far it is, where that is a terminal."""

    def __init__(self) -> None:
        self.shown = bool(getattr(sys.stderr, "isatty", lambda: False)())

    def tell(self, text: str) -> None:
        if self.shown:
            sys.stderr.write(f"\r\x1b[Koffload: {text}")
            sys.stderr.flush()

    def clear(self) -> None:
        if self.shown:
            sys.stderr.write("\r\x1b[K")
