"""`offload step`: the floor and the expected time of one step of a plan file, or of a model named in words."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

from offload.errors import OffloadError
from offload.verbs import ANSWERED, NO, figure
from offload.verbs.options import count, overlap, unknown_family
from offload.verbs.output import check_outputs, print_json, print_report, put

if TYPE_CHECKING:
    from offload.documents.settings import Setting
    from offload.measured import Measurement
    from offload.plan import Plan
    from offload.topology import Topology


def add(verbs: Any) -> None:
    """State the verb's words."""
    step = verbs.add_parser(
        "step",
        allow_abbrev=False,
        help="the floor and the expected time of one step, what binds, what fits, what would change it",
        description="One step of a plan: what moves, what binds, how fast it can be, what fits, what would change it.",
        epilog="Exit status: 0 answered, 1 it does not fit or the measurement contradicts physics, 2 bad input.",
    )
    question(step)
    step.add_argument(
        "--measured", metavar="SPEED",
        help='compare with what was measured: "4.6 tok/s" (of all sequences together), "217 ms/step"',
    )
    step.add_argument(
        "--measured-of", choices=["request", "first-token", "token"],
        help="of phase: generate, what --measured is of (default: a plain time of the request, else of a token)",
    )
    step.add_argument("--ignore-capacity", action="store_true", help="compute on where it does not fit")
    step.add_argument(
        "--routes", choices=["any"],
        help="the load floor over all routes that the moves could take too, with link prices and splits (needs SciPy)",
    )
    step.add_argument("--explain", action="store_true", help="every term: tasks, loads, floor and schedule")
    step.add_argument(
        "--trace", metavar="FILE", help="write the expected schedule as a timeline for Perfetto (ui.perfetto.dev)"
    )
    figure.add(step)
    step.add_argument("--json", action="store_true", help="the same as data")
    step.add_argument("--debug", action="store_true", help="show where an error arose")
    step.set_defaults(run=run)


def question(step: Any) -> None:
    """State the words that say which plan on which server is meant; `plan_of` reads them."""
    step.add_argument("target", metavar="TARGET", help="plan file (.yaml), MODEL[:FORMAT], or path of a model's files")
    step.add_argument(
        "-t", "--topology", metavar="SERVER", help="another server than the plan file's: a shipped name or a file"
    )
    details(step)


def details(step: Any, on: bool = True) -> None:
    """State the words that say more of a plan. on : with `--on`, a single server."""
    step.add_argument(
        "--set", metavar="PATH=VALUE", action="append", default=[],
        help="change a value of the plan file or the server, as workload.batch=8, pcie0.rate=30GB/s; repeatable",
    )
    words = step.add_argument_group("without a plan file")
    if on:
        words.add_argument("--on", metavar="TOPOLOGY", help="server: a shipped name or a topology file")
    words.add_argument(
        "--gpu-layers", metavar="N", type=count(0),
        help="decoder layers whose weights live at the GPU (default: as many as fit)",
    )
    words.add_argument(
        "--cpu-experts", metavar="N", type=count(0),
        help="of so many first layers, dense ones counted, the experts live in host memory and run on the CPU "
             "(llama.cpp --n-cpu-moe); without effect where CPU and GPU share one memory",
    )
    words.add_argument(
        "--compute", metavar="WHERE",
        help='"local" (each layer where its weights live; default), a processor, or several alike, as gpu0..7',
    )
    words.add_argument("--kv", metavar="WHERE", help='KV cache: "with layer" (default) or a memory')
    words.add_argument("--batch", metavar="N", type=count(1), help="sequences decoded together (default 1)")
    words.add_argument(
        "--context", metavar="N", type=count(0),
        help="positions in each sequence's KV cache (default 4096); with --prompt those before it (default 0)",
    )
    words.add_argument(
        "--prompt", metavar="N", type=count(1), help="prefill: new positions in each sequence, instead of decode"
    )
    words.add_argument(
        "--generate", metavar="N", type=count(1), help="a whole request: the prompt, then so many tokens"
    )
    words.add_argument("--weights", metavar="FORMAT", help="weight format, as q4_k_m, q8_0, bf16, fp8")
    unknown_family(words)
    words.add_argument("--kv-format", metavar="FORMAT", help="KV cache format, as f16, fp8")
    words.add_argument("--reserve", metavar="SIZE", help='GPU memory the runtime keeps for itself, as "1.5 GB"')
    step.add_argument(
        "--buffers", metavar="N", type=overlap, help="layer-sized buffers for what is streamed: a number, none or full"
    )


def run(options: argparse.Namespace) -> int:
    """Answer, and return the exit status."""
    figure.check(options)
    outputs = {"--trace": options.trace, "--plot": options.plot}
    check_outputs(outputs)
    measured = None if options.measured is None else _measurement(options.measured)
    if options.measured_of is not None and measured is None:
        raise OffloadError("--measured-of says what --measured is of: add --measured SPEED, or drop it.")
    plan, topology = plan_of(options)
    check_outputs(outputs)
    from offload.study import evaluate

    study = evaluate(topology, plan)
    refused = not study.fits and not options.ignore_capacity
    standing = None
    if measured is not None and not refused:
        from offload.compiler import compile_step
        from offload.measured_requests import standing_of

        standing = standing_of(study, compile_step(topology, plan), measured, options.measured_of)
    explanation = None
    if options.explain and not refused:
        from offload.compiler import compile_step
        from offload.explain import explain

        explanation = explain(compile_step(topology, plan), study)
    rerouted = None
    if options.routes is not None and not refused:
        from offload.compiler import compile_step
        from offload.rerouting import any_routes

        rerouted = any_routes(compile_step(topology, plan))
    crossing = None
    if not refused:
        from offload.crossover import streaming

        crossing = streaming(topology, plan)
    drawing = figure.prepare(options, plan, topology, refused)
    if options.json:
        from offload.answer import explanation_to_json, measured_to_json, refusal_to_json, to_json

        answer = refusal_to_json(study) if refused else to_json(study)
        if standing is not None:
            answer["measured"] = measured_to_json(standing)
        if explanation is not None:
            answer["explain"] = explanation_to_json(explanation)
        if rerouted is not None:
            from offload.answer import routes_to_json

            answer["routes"] = routes_to_json(rerouted)
        if not refused:
            from offload.report_crossover import crossover_to_json

            answer["crossover"] = crossover_to_json(crossing)
        print_json(answer | drawing.to_json())
    else:
        from offload.report import write_refusal, write_text

        print_report(write_refusal if refused else write_text, study)
        if crossing is not None:
            from offload.report_crossover import write_crossover

            print_report(write_crossover, crossing)
        if measured is not None:
            from offload.report_measured import write_measured, write_unfit

            print_report(*((write_unfit, measured.text) if standing is None else (write_measured, standing)))
        if rerouted is not None:
            from offload.report_routes import write_routes

            print_report(write_routes, rerouted)
        if explanation is not None:
            from offload.report_explain import write_explanation

            print_report(write_explanation, explanation)
    if options.trace is not None:
        _write_trace(options.trace, plan, topology, refused)
    drawing.finish(study)
    return NO if refused or (standing is not None and standing.contradicts) else ANSWERED


def _write_trace(path: str, plan: Plan, topology: Topology, refused: bool) -> None:
    """Write the timeline, once the report is out."""
    if refused:
        raise OffloadError("--trace: no timeline of a plan that does not fit: make it fit, or add --ignore-capacity.")
    from offload.compiler import compile_step
    from offload.trace import write_trace

    put()
    write_trace(compile_step(topology, plan), path)


def _measurement(text: str) -> Measurement:
    from offload.measured import read_measurement

    try:
        return read_measurement(text)
    except OffloadError as error:
        raise OffloadError(f"--measured: {error}") from None


def plan_of(options: argparse.Namespace, load: Any = None) -> tuple[Plan, Topology]:
    """The plan and the server that the options name. load : how a plan file is read instead of `load_plan`."""
    from offload import documents

    settings, given = asked_of(options)
    if given is None:
        plan, topology = (load or documents.load_plan)(options.target, topology=options.topology, settings=settings)
        if options.buffers is not None:
            from dataclasses import replace

            plan = replace(plan, overlap=options.buffers)
        return plan, topology
    from offload.words import plan_from_words

    first = getattr(options, "first_gpu", False)
    return plan_from_words(options.target, options.on, settings=settings, first_gpu=first, **given)


def asked_of(options: argparse.Namespace) -> tuple[list[Setting], dict[str, Any] | None]:
    """The settings of the options and, where a model is named instead of a plan file, the arguments of
    `plan_from_words` besides the first two; None of a plan file. Raises OffloadError for words that do not go together.
    """
    from offload import documents

    settings = [documents.read_setting(text) for text in options.set]
    words = {
        "--on": options.on,
        "--gpu-layers": options.gpu_layers,
        "--cpu-experts": options.cpu_experts,
        "--compute": options.compute,
        "--kv": options.kv,
        "--batch": options.batch,
        "--context": options.context,
        "--prompt": options.prompt,
        "--generate": options.generate,
        "--weights": options.weights,
        "--kv-format": options.kv_format,
        "--reserve": options.reserve,
        "--like": options.like,
        "--give": options.give,
    }
    if is_plan_file(options.target):
        given = [name for name, value in words.items() if value is not None]
        if given:
            raise OffloadError(_instead(options.target, given))
        if options.buffers is not None and (other := [one for one in settings if one.path[0] == "overlap"]):
            raise OffloadError(f"--buffers and {other[0].origin} say the same. Keep one.")
        return settings, None
    if options.topology is not None:
        raise OffloadError(f"-t is for plan files; without one, --on says the server: write --on {options.topology}.")
    for name in ("--on", "--compute", "--kv", "--weights", "--kv-format", "--reserve", "--like"):
        if isinstance(words[name], str) and not words[name].strip():
            raise OffloadError(f"{name} is empty: give it a value, or drop it.")
    if options.on is None:
        shipped = ", ".join(sorted(documents.shipped_topologies()))
        from offload.words import model_and_format

        missing = f"--on is missing: on which server? Name a topology file, or one of: {shipped}."
        try:
            model_and_format(options.target, options.weights, like=options.like, give=options.give)
        except OffloadError as error:
            raise OffloadError(f"{error}\noffload: {missing}") from None
        raise OffloadError(missing)
    said: dict[str, Any] = {
        name[2:].replace("-", "_"): value for name, value in words.items() if name != "--on" and value is not None
    }
    if "reserve" in said:
        from offload.units import parse_bytes

        try:
            said["reserve"] = parse_bytes(said["reserve"])
        except OffloadError as error:
            raise OffloadError(f"--reserve: {error}") from None
    if options.buffers is not None:
        said["overlap"] = options.buffers
    return settings, said


def _instead(target: str, given: list[str]) -> str:
    """What is said of options that stand beside a plan file: how it says the same, or that its kind does not."""
    from offload.documents import plan_kind
    from offload.words import instead_of

    kind = plan_kind(target)
    ways = {name: instead_of(name, kind) for name in given}
    idle = [name for name in given if not ways[name]]
    if not idle:
        said = " and ".join(ways.values())
        return (f"{target} already says what {' and '.join(given)} would. Edit the file, change it with {said}, or "
                "name a model instead of it.")
    them = "it" if len(idle) == 1 else "them"
    told = [f"{' and '.join(idle)}: {target} is a plan {kind}, which has nothing of {them} to change. Edit the file, "
            "or name a model instead of it."]  # fmt: skip
    told += [f"For {name} write {way}." for name, way in ways.items() if way]
    return " ".join(told)


def is_plan_file(target: str) -> bool:
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

    from offload.readers import holds_weights

    if holds_weights(path):
        return True
    try:
        with open(path, "rb") as file:
            text = file.read(16 * 1024 * 1024).decode("utf-8-sig").lstrip()
        content = json.loads(text) if text.startswith("{") else None
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and ("model_type" in content or "architectures" in content)
