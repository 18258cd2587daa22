"""Further kinds of figures: of one step, of a measurement, of servers and of published cases."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from offload.errors import OffloadError, PlotError, one_line
from offload.verbs import compare, step, validate
from offload.verbs.options import count
from offload.verbs.plot_kinds import ASKED, Kind, case_named, plan_words, refuse_more, step_of, subject_of


def _study(options: argparse.Namespace) -> tuple[Any, Any, Any]:
    """The plan, its server and its study."""
    from offload.study import evaluate

    plan, topology = step.plan_of(options)
    return plan, topology, evaluate(topology, plan)


# A measured time.


def _waterfall_words(verb: Any) -> None:
    plan_words(verb)
    verb.add_argument("--measured", metavar="SPEED[; SOURCE]", help='what was measured, as "2.7 tok/s; llama-bench, '
                      'today" (of a published case its own)')  # fmt: skip
    verb.add_argument("--measured-of", choices=["request", "first-token", "token"], help="as of offload step")


def _waterfall(options: argparse.Namespace) -> Any:
    case = case_named(options)
    if case is not None:
        return _waterfall_of_case(case, options)
    from offload import plots
    from offload.measured import read_measurement
    from offload.measured_requests import standing_of
    from offload.study import evaluate
    from offload.why.waterfall import waterfall

    if options.measured is None:
        raise OffloadError('--measured is missing: what time is it made of? Write --measured "2.7 tok/s; SOURCE", or '
                           "name a published case.")  # fmt: skip
    text, _, source = options.measured.partition(";")
    try:
        measured = read_measurement(text.strip())
    except OffloadError as error:
        raise OffloadError(f"--measured {options.measured}: {error}") from None
    plan, topology, compiled = step_of(options)
    standing = standing_of(evaluate(topology, plan), compiled, measured, options.measured_of)
    found = waterfall(passes_measured(compiled, standing.of), standing.seconds, prompt=standing.of == "first-token")
    told = source.strip() or "as given, without a source"
    return plots.waterfall(found, subject=subject_of(plan, topology), tokens=standing.tokens, source=told)


def passes_measured(compiled: Any, part: str) -> Any:
    """What a measured time is of, as passes. part : of a request, as `Standing.of`; "" of steps back to back."""
    from offload.why.waterfall import Passes, passes_of

    if part in ("", "token"):
        return Passes("step", (compiled,))
    passes = passes_of(compiled.topology, compiled.plan)
    if part == "first-token" and passes.of == "request":
        return Passes("prompt", passes.steps[:-1], passes.counts[:-1])
    return passes


def _waterfall_of_case(case: Any, options: argparse.Namespace) -> Any:
    """Of a published case, with the rates that its source states."""
    from offload import plots
    from offload.compiler import compile_step
    from offload.validation import measured_seconds
    from offload.why.waterfall import Passes, passes_of, waterfall

    refuse_more(options, "a published case", (*ASKED, "measured", "measured_of"))
    plan, topology = case.informed or (case.plan, case.topology)
    compiled = compile_step(topology, plan)
    seconds, tokens = measured_seconds(replace(case, plan=plan, topology=topology), compiled), None
    if plan.request is not None:
        passes = passes_of(topology, plan)
        seconds *= plan.request.steps + 1
    else:
        passes = Passes("pass" if case.measured.alone else "step", (compiled,))
        tokens = float(plan.tokens) if case.measured.figure.unit == "tok/s" else None
    source = ", ".join(text for text in (case.source.title, case.source.url) if text)
    return plots.waterfall(waterfall(passes, seconds), subject=subject_of(plan, topology), tokens=tokens,
                           source=f"{case.id}, {source}")  # fmt: skip


# One step.


def _loads(options: argparse.Namespace) -> Any:
    from offload import plots

    return plots.load_bars(_study(options)[2])


def _memory(options: argparse.Namespace) -> Any:
    from offload import plots

    return plots.memory_stack(_study(options)[2])


def _timeline_words(verb: Any) -> None:
    plan_words(verb)
    verb.add_argument("--steps", metavar="N", type=count(1), help="so many rounds back to back, instead of one alone")
    verb.add_argument("--until", metavar="TIME", help='draw no more than the first part, as "200 ms"')


def _timeline(options: argparse.Namespace) -> Any:
    from offload import plots
    from offload.units import parse_seconds

    until = None
    if options.until is not None:
        try:
            until = parse_seconds(options.until)
        except OffloadError as error:
            raise OffloadError(f"--until: {error}") from None
        if not until > 0:
            raise OffloadError(f'--until {options.until}: no time to draw. Write a time above 0, as "200 ms".')
    plan, topology, compiled = step_of(options)
    return plots.timeline(compiled, steps=options.steps, until=until, subject=subject_of(plan, topology))


# Servers.


def _server(options: argparse.Namespace) -> Any:
    from offload import plots

    topology = server_named(options.target)
    if topology is not None:
        refuse_more(options, "a server", (*ASKED, "buffers"))
        return plots.server(topology)
    _, topology, study = _study(options)
    return plots.server(topology, study=study)


def server_named(target: str) -> Any:
    """The server that a target names, shipped or by its file; None of a plan or a model."""
    from offload import documents

    if target in documents.shipped_topologies():
        return documents.load_topology(target)
    if not target.lower().endswith((".yaml", ".yml")):
        _refuse_nearly(target)
        return None
    from offload.documents.kinds import kind_of
    from offload.documents.marks import read_document

    try:
        kind = kind_of(read_document(target))
    except (OSError, OffloadError):
        return None  # who reads it as a plan says what is wrong
    return documents.load_topology(target) if kind == "topology" else None


def _refuse_nearly(target: str) -> None:
    """Refuse what is nearly the name of a shipped server, and would be looked for among models."""
    import difflib
    import os

    from offload.documents import shipped_topologies
    from offload.models.catalogue import catalogue

    names, asked = shipped_topologies(), target.casefold()
    near = [name for name in names if len(asked) >= 3 and name.startswith(asked)]
    near = near or difflib.get_close_matches(asked, names, n=2, cutoff=0.8)
    if near and asked.partition(":")[0] not in catalogue and not os.path.exists(target):
        meant = " or ".join(f'"{name}"' for name in near)
        raise PlotError(f'no server "{one_line(target)}". Did you mean {meant}?')


def _ranking(options: argparse.Namespace) -> Any:
    from offload import plots
    from offload.comparison import compare as rank
    from offload.comparison.efforts import FULL, QUICK
    from offload.comparison.halves import processes_here

    meters, processes = compare.meters_of(options), processes_here()
    return plots.ranking(rank(compare.candidates_of(options, processes), by=options.by, meters=meters,
                              effort=FULL if options.full else QUICK, processes=processes))  # fmt: skip


# Published cases.


def _predicted(options: argparse.Namespace) -> Any:
    from offload import plots
    from offload.validation import run_case

    cases, wrong = validate.cases_of(options.targets)
    if wrong:
        raise PlotError("\noffload: ".join(wrong))
    return plots.predicted([run_case(case) for case in cases])


KINDS = (
    Kind("waterfall", "a measured time from the load floor to what nothing explains", _waterfall_words, _waterfall),
    Kind("loads", "how long each resource is busy, at its peak and at its sustained rate", plan_words, _loads),
    Kind("timeline", "when each task uses each resource, by the expected schedule", _timeline_words, _timeline),
    Kind("server", "a server as a machine; of a plan with how busy each part is", plan_words, _server),
    Kind("memory", "what lies in each memory, part on part", plan_words, _memory),
    Kind("ranking", "plans on servers in order, with intervals", compare.words, _ranking),
    Kind("predicted", "published measurements against floors and expected times", validate.words, _predicted),
)
