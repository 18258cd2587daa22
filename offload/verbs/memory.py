"""`offload memory`: how many requests fit in a GPU's memory or a given KV memory, and what would change it."""

from __future__ import annotations

import argparse
import os
import re
import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from offload.errors import OffloadError, PlotError
from offload.verbs import ANSWERED, NO
from offload.verbs.options import count, first_gpu_alone, unknown_family
from offload.verbs.output import check_outputs, print_json, print_report

if TYPE_CHECKING:
    from collections.abc import Callable

    from offload.memory import Memory
    from offload.memory_behind import Behind, Hosting
    from offload.memory_curve import Concurrency
    from offload.memory_server import Machine
    from offload.models import Model
    from offload.models.lengths import Lengths

Given = TypeVar("Given")
Read = TypeVar("Read")
SIZES = ("reserve", "overhead", "communication", "graphs", "allocator", "alignment", "duplicates")


def add(verbs: Any) -> None:
    """State the verb's words."""
    memory = verbs.add_parser(
        "memory",
        allow_abbrev=False,
        help="how many requests fit: for certain, by risk, what breaks it first, what would change it",
        description="What is left of a memory for KV, and how many requests of given lengths to admit: a bound to "
                    "test, not a promise that an engine runs.",
        epilog="Exit status: 0 answered, 1 what was asked for does not fit, 2 bad input.",
    )  # fmt: skip
    words(memory)
    memory.add_argument("--plot", metavar="FILE",
                        help="draw how many requests fit against their length: .svg, .png or .pdf")  # fmt: skip
    memory.add_argument("--json", action="store_true", help="the same as data")
    memory.add_argument("--debug", action="store_true", help="show where an error arose")
    memory.set_defaults(run=run)


def words(memory: Any) -> None:
    """State the words that say which model, which memory and which requests; `answer_of` reads them."""
    memory._negative_number_matcher = re.compile(r"-\.?\d")  # "-14GB" is a value, and refused as one
    memory.add_argument("target", metavar="MODEL[:FORMAT]", help="a model's name, or the path of its files")
    memory.add_argument(
        "--requests", metavar="LENGTHS", required=True,
        help='COUNTxLENGTH as 18x2000, a list "900, 4000", "lognormal 2000 0.7" (median, sigma of the logarithm), '
             '"uniform 100 4000", "fixed 2000", or a file with a number on each line',
    )  # fmt: skip
    memory.add_argument("--column", metavar="NAME", help="the column of a CSV file that holds the lengths")
    memory.add_argument("--prompt", metavar="N", type=count(1), help="positions of each request that are its prompt "
                        "(lengths include it); the rest is output")  # fmt: skip
    memory.add_argument("--prompt-column", metavar="NAME",
                        help="the column of a CSV file that holds the prompts, as --prompt")  # fmt: skip
    memory.add_argument("--output-column", metavar="NAME", help="with --prompt-column: the column that holds the "
                        "outputs, instead of whole lengths in --column")  # fmt: skip
    where = memory.add_argument_group("how much memory there is (one of these)")
    where.add_argument("--kv-budget", metavar="SIZE", help='memory for KV alone, as "14 GB"')
    where.add_argument("--gpu-memory", metavar="SIZE", help='all of one GPU\'s memory, as "80 GB"')
    where.add_argument("--on", metavar="SERVER", help="the GPU of a server: a shipped name or a topology file")
    memory.add_argument("--weights", metavar="FORMAT", help="weight format, as q4_k_m, bf16, fp8")
    unknown_family(memory)
    memory.add_argument("--kv-format", metavar="FORMAT",
                        help="KV cache format, as fp8 (default: as the checkpoint states, else f16)")  # fmt: skip
    memory.add_argument("--block", metavar="N", type=count(1), default=1, help="positions in a KV block (default 1)")
    memory.add_argument("--prefix", metavar="N", type=count(0), default=0,
                        help="positions that all requests share, held once (lengths include them)")  # fmt: skip
    memory.add_argument("--chunk", metavar="N", type=count(1), default=2048,
                        help="new positions in one prefill step (default 2048)")  # fmt: skip
    for name, what in (("tp", "tensor-parallel"), ("pp", "pipeline"), ("ep", "expert-parallel")):
        memory.add_argument(f"--{name}", metavar="N", type=count(1), default=1, help=f"{what} ranks (default 1)")
    memory.add_argument("--usable", metavar="SHARE", help='share of a GPU\'s memory that the engine takes, as "90 %%"')
    for name in SIZES:
        memory.add_argument(f"--{name}", metavar="SIZE", help=f"bytes of each GPU: {name}, a line of its own")
    memory.add_argument("--risk", metavar="SHARE", help="accepted risk of overflow (default 1 %%)")
    memory.add_argument("--link", metavar="RATE",
                        help='rate of each GPU\'s link to host memory, as "25 GB/s" (default: the server\'s peak)')
    memory.add_argument("--flops", metavar="RATE", help='rate of computing KV again on each GPU, as "400 TFLOP/s"')
    behind = memory.add_argument_group("memories behind the GPUs (with --on the server's own)")
    behind.add_argument("--host-memory", metavar="SIZE", help="host memory in all")
    behind.add_argument("--host-kv", metavar="SIZE", help="host memory for KV (default: all that is left of it)")
    behind.add_argument("--nvme-kv", metavar="SIZE", help="drives for KV")
    behind.add_argument("--nvme-rate", metavar="RATE", help='reading rate of these drives together, as "7 GB/s"')
    behind.add_argument("--gpu-layers", metavar="N", type=count(0),
                        help="keep the weights of the first N layers on the GPU, the rest in host memory")  # fmt: skip
    behind.add_argument("--buffers", metavar="N", type=count(1), help="buffers for these weights (default 2)")
    behind.add_argument("--pinned", choices=("pages", "powers", "no"),
                        help="their buffers in host memory: pinned in whole pages (default), in powers of two as "
                        "PyTorch's allocator, or not pinned")  # fmt: skip
    behind.add_argument("--mmap", action="store_true", help="they are read from a mapped file")
    behind.add_argument("--copies", metavar="N", type=count(1), help="copies of them, one for each socket (default 1)")


def run(options: argparse.Namespace) -> int:
    """Answer, and return the exit status."""
    from offload.memory import memory_to_json

    answer = answer_of(options)
    drawing, failure = None, None
    if options.plot is not None:  # a figure that fails loses no report
        from offload.memory_curve import concurrency_of

        try:
            drawing = concurrency_of(answer)
        except PlotError as error:
            failure = error
    if options.json:
        data = memory_to_json(answer)
        if drawing is not None:
            from offload.memory_curve import concurrency_to_json

            data["plot"] = concurrency_to_json(drawing)
        print_json(data)
    else:
        from offload.report_memory import write_memory

        print_report(write_memory, answer)
    if failure is not None:
        sys.stdout.flush()
        raise failure
    if drawing is not None:
        _draw(drawing, answer, options)
    return ANSWERED if answer.fits else NO


def answer_of(options: argparse.Namespace) -> Memory:
    """The answer that the words ask for."""
    from fractions import Fraction

    from offload.memory import answer_memory
    from offload.models.budget import kv_format_of
    from offload.models.formats import kv_name
    from offload.units import parse_bytes, parse_flops, parse_rate, parse_share
    from offload.words import model_and_format

    given = [name for name in ("kv_budget", "gpu_memory", "on") if getattr(options, name) is not None]
    if not given:
        raise OffloadError(
            "how much memory is there? Give one of: --kv-budget SIZE (KV alone), --gpu-memory SIZE, --on SERVER."
        )
    if len(given) > 1:
        words = " and ".join(f"--{name.replace('_', '-')}" for name in given)
        raise OffloadError(f"how much memory is there? {words} each say it: {len(given)} are given, keep one.")
    alone = options.kv_budget is not None
    model, weights = model_and_format(options.target, options.weights, "bf16" if alone else None, like=options.like,
                                      give=options.give)  # fmt: skip
    _check_ranks(options, model)
    values: dict[str, Any] = {
        name: _read(f"--{name}", parse_bytes, text) for name in SIZES if (text := getattr(options, name))
    }
    if alone and (unused := [f"--{name}" for name in (*SIZES, "usable") if getattr(options, name)]):
        raise OffloadError(f"--kv-budget is for KV alone, so {' and '.join(unused)} would take nothing of it. Drop it, "
                           "or give the GPU's memory: --gpu-memory SIZE.")  # fmt: skip
    if options.usable is not None:
        share = _read("--usable", parse_share, options.usable)
        values["usable"] = Fraction(share).limit_denominator(10**6)
    link = None if options.link is None else _read("--link", _above_zero(parse_rate, "25 GB/s"), options.link)
    kv = None if options.kv_format is None else _read("--kv-format", kv_name, options.kv_format)
    machine = None
    warnings: tuple[str, ...] = ()
    if options.on is not None:
        machine, warnings = _server(options, weights, kv_format_of(model, kv)[0])
        capacity = machine.capacity
    else:
        text = options.kv_budget if alone else options.gpu_memory
        capacity = _read("--kv-budget" if alone else "--gpu-memory", _above_zero(parse_bytes, "24 GB"), text)
    behind = _behind(options, machine, link, model.layers)
    if behind.hosting is not None:
        values["buffers"] = options.buffers or 2
    lengths, prompt, is_file = _lengths(options)
    check_outputs({"--plot": getattr(options, "plot", None)})
    return answer_memory(
        model, None if alone else weights, capacity, lengths, prompt=prompt,
        drawn=True if is_file or options.risk is not None else None,
        risk=_read("--risk", _risk, "1 %" if options.risk is None else options.risk),
        link=machine.link if link is None and machine else link,
        flops=None if options.flops is None else _read("--flops", _above_zero(parse_flops, "400 TFLOP/s"),
                                                         options.flops),
        behind=behind, warnings=warnings, gpus=None if machine is None else machine.gpus, format=kv,
        block=options.block, shared_prefix=options.prefix,
        chunk=options.chunk, tp=options.tp, pp=options.pp, ep=options.ep, **values,
    )  # fmt: skip


def _draw(drawing: Concurrency, answer: Memory, options: argparse.Namespace) -> None:
    """The figure, once the report is out."""
    from offload.plots import draw_concurrency

    sys.stdout.flush()
    draw_concurrency(drawing, answer, options.plot)
    if not options.json:
        from offload.report_memory import write_concurrency

        print_report(write_concurrency, options.plot, drawing)


def _read(option: str, parse: Callable[[Given], Read], text: Given) -> Read:
    try:
        return parse(text)
    except OffloadError as error:
        raise OffloadError(f"{option}: {error}") from None


def _above_zero(parse: Any, example: str) -> Any:
    """The same reader of a rate or a size, that refuses nothing at all."""

    def read(text: str) -> Any:
        if not (found := parse(text)) > 0:
            what = "rate at which anything comes; write one" if example.endswith("/s") else "memory; write a size"
            raise OffloadError(f'"{text}" is no {what} above 0, as "{example}".')
        return found

    return read


def _risk(text: str) -> float:
    from offload.errors import UnitError
    from offload.models.overflow import LEAST_RISK
    from offload.units import parse_share

    allowed = f'"{text}" is no risk to accept: it is from {100 * LEAST_RISK:.6f} % to below 100 %, as "1 %".'
    try:
        found = parse_share(text)
    except UnitError as error:
        if "out of range" not in str(error):
            raise
        raise OffloadError(allowed) from None
    if not LEAST_RISK <= found < 1:
        raise OffloadError(allowed)
    return found


def _check_ranks(options: argparse.Namespace, model: Model) -> None:
    """Raises OffloadError for expert-parallel ranks that the model or the other ranks do not go with."""
    from offload.models import layers_of

    if options.ep == 1:
        return
    most = max((layer.experts[0] for layer in layers_of(model) if layer.experts), default=0)
    if options.ep > most:
        has = f"{most} experts in a layer" if most else "no experts"
        advice = "Lower it" if most else "Drop it"
        raise OffloadError(f"--ep {options.ep}: {model.name} has {has}, which such ranks share. {advice}, or share "
                           "layers or tensors: --pp, --tp.")  # fmt: skip
    if max(options.ep, options.tp) % min(options.ep, options.tp):
        raise OffloadError(f"--ep {options.ep} and --tp {options.tp}: these ranks are on the same GPUs, so one number "
                           "is a multiple of the other. Change one.")  # fmt: skip


def _lengths(options: argparse.Namespace) -> tuple[Lengths, int | tuple[int, ...] | None, bool]:
    """Lengths and prompts, and whether they are of a file."""
    from offload.models.lengths import Lengths, read_lengths

    text, column, output = options.requests, options.column, options.output_column
    if options.prompt_column is None:
        if output is not None:
            raise OffloadError("--output-column holds outputs: name the column of the prompts too, --prompt-column "
                               "NAME, or give whole lengths in --column NAME.")  # fmt: skip
        return _whole_lengths(text, column), options.prompt, _is_file(text)
    if options.prompt is not None:
        raise OffloadError("--prompt and --prompt-column both say the prompts; keep one.")
    if (column is None) == (output is None):
        raise OffloadError("--prompt-column needs one column more: that of the whole lengths, --column NAME, or that "
                           "of the outputs, --output-column NAME.")  # fmt: skip
    if not _is_file(text):
        raise OffloadError(f"--prompt-column {options.prompt_column} is of a CSV file, and --requests {text} is none. "
                           "Write --prompt N, or give the path of the file: --requests FILE.")  # fmt: skip
    prompts, others = (_read("--requests", partial(read_lengths, column=name), text)
                       for name in (options.prompt_column, column or output))  # fmt: skip
    if output is None:
        return others, prompts.values, True
    whole = tuple(map(sum, zip(prompts.values, others.values, strict=True)))
    return Lengths("list", values=whole, text=others.text), prompts.values, True


def _is_file(text: str) -> bool:
    return os.path.exists(text) or "/" in text or text.endswith((".csv", ".txt"))


def _whole_lengths(text: str, column: str | None) -> Lengths:
    """Lengths in words, or of a file where there is one of that name."""
    from offload.models.lengths import parse_lengths, read_lengths

    named = _is_file(text)
    if column is not None and not named:
        raise OffloadError(f"--column {column} is of a CSV file, and --requests {text} is none. Drop --column, or give "
                           "the path of the file: --requests FILE.")  # fmt: skip
    if named:
        return _read("--requests", lambda path: read_lengths(path, column), text)
    if text.strip().isdigit() and len(text) <= 16:
        raise OffloadError(f"--requests {text}: so many requests, or one so long? Write {text}x2000 for {text} of 2000 "
                           f"positions, 1x{text} for one.")  # fmt: skip
    return _read("--requests", parse_lengths, text)


def _server(options: argparse.Namespace, weights: str | None, kv: str) -> tuple[Machine, tuple[str, ...]]:
    """What a server has for these ranks, and warnings about it."""
    from offload import documents
    from offload.memory_server import format_notes, machine_of
    from offload.models.serving import gpus_of

    server = documents.load_topology(options.on)
    gpus = gpus_of(options.tp, options.pp, options.ep)
    machine = _read(f"--on {options.on}", lambda one: machine_of(one, gpus), server)
    if machine.gpus > gpus == 1:
        first_gpu_alone(f"--tp {machine.gpus}")
    return machine, format_notes(server, weights, kv)


def _behind(options: argparse.Namespace, machine: Machine | None, link: float | None, layers: int) -> Behind:
    """The memories behind the GPUs: a server's, and what options say instead."""
    from offload.memory_behind import Behind, Drives, Way
    from offload.units import parse_bytes, parse_rate

    def read(option: str, parse: Any) -> Any:
        text = getattr(options, option.replace("-", "_"))
        return None if text is None else _read(f"--{option}", parse, text)

    if machine is not None and machine.unified is not None:
        if twice := [f"--{name}" for name in ("gpu-layers", "host-memory", "host-kv")
                     if getattr(options, name.replace("-", "_")) is not None]:  # fmt: skip
            raise OffloadError(f"{' and '.join(twice)}: GPU and host of {options.on} work in one memory, "
                               f"{machine.unified}, which is counted already; it would count twice. Drop it; what "
                               "drives hold is --nvme-kv SIZE.")  # fmt: skip
    found = Behind() if machine is None else machine.behind
    host, host_kv = read("host-memory", parse_bytes), read("host-kv", parse_bytes)
    drives, rate = read("nvme-kv", parse_bytes), read("nvme-rate", _above_zero(parse_rate, "7 GB/s"))
    ways, drive_ways = found.ways, found.drives.ways if found.drives else ()
    if link is not None:  # what is said of the link stands for all between a GPU and the memories, whose own rates stay
        given = tuple(Way("link", link, (rank,)) for rank in range(options.tp * options.pp))
        ways, drive_ways = (given + tuple(way for way in own if way.ranks is None) for own in (ways, drive_ways))
    if rate is not None:
        drive_ways = (*(way for way in drive_ways if way.ranks is not None), Way("drives", rate))
    size = found.drives.capacity if drives is None and found.drives else drives
    if rate is not None and size is None:
        raise OffloadError("--nvme-rate says how fast drives are: give their size too, --nvme-kv SIZE, or drop it.")
    return replace(found, host=found.host if host is None else host, ways=ways, host_kv=host_kv,
                   drives=None if size is None else Drives(size, drive_ways),
                   hosting=_hosting(options, layers))  # fmt: skip


def _hosting(options: argparse.Namespace, layers: int) -> Hosting | None:
    """What of the weights stays in host memory."""
    from offload.memory_behind import Hosting

    about = [f"--{name}" for name in ("buffers", "pinned", "mmap", "copies") if getattr(options, name)]
    if options.gpu_layers is None:
        if about:
            raise OffloadError(f"{' and '.join(about)}: about weights in host memory. Say how many layers stay on the "
                               "GPU too, as --gpu-layers 40, or drop it.")  # fmt: skip
        return None
    if options.kv_budget is not None:
        raise OffloadError("--kv-budget is for KV alone, so --gpu-layers would take nothing of it. Drop it, or give "
                           "the GPU's memory: --gpu-memory SIZE.")  # fmt: skip
    if options.gpu_layers > layers:
        raise OffloadError(f"--gpu-layers {options.gpu_layers}: the model has {layers} layers. Write --gpu-layers "
                           f"{layers} for all of them, or drop it.")  # fmt: skip
    return Hosting(options.gpu_layers, options.pinned or "pages", options.mmap, options.copies or 1)
