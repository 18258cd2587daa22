"""`offload why`: what the time in an engine's log is made of, by the plan that the log tells."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

from offload.errors import OffloadError
from offload.files import named
from offload.verbs import ANSWERED, NO, figure
from offload.verbs.options import count
from offload.verbs.output import check_outputs, print_json, print_report, put, write_file

if TYPE_CHECKING:
    from offload.why import Why


ONE_STEP = "the log's time is of plain steps. Write a plan of your own, and compare it by offload step PLAN --measured."
OF_THE_LOG = {  # keys that say what was measured, or of another kind of plan
    "topology": "write --on SERVER.", "model.name": "write --model NAME.", "model.config": "write --model PATH.",
    "model.gguf": "write --model PATH.", "workload.phase": "the timing says it: choose another by --timing N.",
    "workload.generate": "the timing says it.", "workload.steps": "the timing says it.", "speculation": ONE_STEP,
    "training": ONE_STEP, "tensors": ONE_STEP, "tasks": ONE_STEP, "blocks": ONE_STEP, "repeat": ONE_STEP,
    "tokens": ONE_STEP, "in_flight": ONE_STEP, "workload.in_flight": ONE_STEP,
}  # fmt: skip


def add(verbs: Any) -> None:
    """State the verb's words."""
    why = verbs.add_parser(
        "why",
        allow_abbrev=False,
        help="why a run took so long: an engine's log beside its floor, term by term",
        description="Reads the log of an inference engine, makes the plan that it ran, and splits the measured time: "
        "what peak rates allow, order, sustained rates, contention, hand-overs, and what is left.",
        epilog="Exit status: 0 answered, 1 the measured time contradicts the floor or the server, or the run does not "
        "fit it, 2 bad input.",
    )
    why.add_argument("log", metavar="LOG", help="what the engine printed: llama.cpp, llama-bench, vLLM, ...")
    why.add_argument("--on", metavar="SERVER", help="the server: a shipped name or a topology file (default: by the "
                     "GPUs in the log)")  # fmt: skip
    why.add_argument("--model", metavar="NAME|PATH", help="the model, maybe with :FORMAT (default: by the log)")
    why.add_argument("--run", metavar="N", type=count(1), help="which run, where the log has several", dest="number")
    why.add_argument("--timing", metavar="N", type=count(1), help="which of the run's timings (default: decode)")
    why.add_argument(
        "--set", metavar="PATH=VALUE", action="append", default=[],
        help="a value of the plan or the server that the log does not tell, as workload.batch=8; repeatable",
    )
    why.add_argument("-o", "--output", metavar="PLAN.yaml",
                     help="write the plan that was made of the log; a server made of it goes beside, PLAN-server.yaml")
    why.add_argument("--plot", metavar="FILE", help="draw the terms of the measured time: .svg, .png or .pdf")
    why.add_argument("--json", action="store_true", help="the same as data")
    why.add_argument("--debug", action="store_true", help="show where an error arose")
    why.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Answer, and return the exit status."""
    outputs = _outputs(options.output, options.on) | {"--plot": options.plot}
    check_outputs(outputs)
    from offload.documents import read_setting
    from offload.readers.engines.recognise import read_log
    from offload.why import choose_run, why

    settings = [read_setting(text) for text in options.set]
    for option, name in (("--on", options.on), ("--model", options.model)):
        if name is not None and not name.strip():
            raise OffloadError(f"{option} is empty: give it a value, or drop it.")
    for one in settings:
        if wrong := OF_THE_LOG.get(".".join(one.path[:2])) or OF_THE_LOG.get(one.path[0]):
            raise OffloadError(f"{one.origin}: {wrong}")
    chosen = choose_run(read_log(options.log), options.number)
    found = why(chosen, server=options.on, model=options.model, timing=options.timing, settings=settings)
    check_outputs(outputs)
    if options.json:
        from offload.report_why import why_to_json

        print_json(why_to_json(found))
    else:
        from offload.report_why import write_why

        print_report(write_why, found)
    if options.output is not None:
        put()
        _save(found, options.output, options.on)
    if options.plot is not None:
        from offload import plots
        from offload.plots.subject import subject

        rate, seconds = found.timing.tokens_per_s, found.waterfall.measured
        figure.draw(options.plot, lambda: plots.waterfall(
            found.waterfall, subject=subject(found.study), tokens=None if rate is None else rate * seconds,
            source=f"{found.run.engine}, {named(options.log)}"), options.json)  # fmt: skip
    return NO if found.contradicts else ANSWERED


def _outputs(path: str | None, on: str | None) -> dict[str, str | None]:
    if path is None:
        return {}
    if not path.lower().endswith((".yaml", ".yml")):
        raise OffloadError(f"-o {named(path)}: a plan file ends in .yaml.")
    server: dict[str, str | None] = {"-o, the server,": _server_path(path)} if on is None else {}
    return {"-o": path, **server}


def _server_path(path: str) -> str:
    stem, ending = os.path.splitext(path)
    return f"{stem}-server{ending}"


def _save(found: Why, path: str, on: str | None) -> None:
    """Write the plan, and the server beside it where the log made it."""
    from offload import __version__
    from offload.why.plan import plan_text, saved

    topology = on or f"./{os.path.basename(_server_path(path))}"
    if on is not None and os.path.exists(on) and ("/" in on or on.lower().endswith((".yaml", ".yml"))):
        topology = os.path.join(".", os.path.relpath(on, os.path.dirname(path) or "."))
    if found.place.text:
        write_file(_server_path(path), f"# Written by offload {__version__} from a log of {found.run.engine}.\n"
                   + found.place.text)  # fmt: skip
    head = [f"Written by offload {__version__} from a log of {found.run.engine}.",
            *(f"assumed: {text}" for text in found.notes.assumed),
            *(f"contradicts: {text}" for text in found.notes.contradicts)]  # fmt: skip
    write_file(path, plan_text(saved(found.keys, path, topology), head))
