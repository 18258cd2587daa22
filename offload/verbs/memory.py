"""`offload memory`: how many requests fit in a GPU's memory or a given KV memory, and what would change it."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

from offload.errors import OffloadError
from offload.verbs import ANSWERED, NO
from offload.verbs.options import count, unknown_family
from offload.verbs.output import print_json, print_report

if TYPE_CHECKING:
    from offload.models.lengths import Lengths

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
    memory.add_argument("target", metavar="MODEL[:FORMAT]", help="a model's name, or the path of its files")
    memory.add_argument(
        "--requests", metavar="LENGTHS", required=True,
        help='COUNTxLENGTH as 18x2000, a list "900, 4000", "lognormal 2000 0.7" (median, sigma of the logarithm), '
             '"uniform 100 4000", "fixed 2000", or a file with a number on each line',
    )  # fmt: skip
    memory.add_argument("--column", metavar="NAME", help="the column of a CSV file that holds the lengths")
    where = memory.add_argument_group("how much memory there is (one of these)")
    where.add_argument("--kv-budget", metavar="SIZE", help='memory for KV alone, as "14 GB"')
    where.add_argument("--gpu-memory", metavar="SIZE", help='all of one GPU\'s memory, as "80 GB"')
    where.add_argument("--on", metavar="SERVER", help="the GPU of a server: a shipped name or a topology file")
    memory.add_argument("--weights", metavar="FORMAT", help="weight format, as q4_k_m, bf16, fp8")
    unknown_family(memory)
    memory.add_argument("--kv-format", metavar="FORMAT", default="f16", help="KV cache format, as fp8 (default f16)")
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
    memory.add_argument("--risk", metavar="SHARE", default="1 %", help="accepted risk of overflow (default 1 %%)")
    memory.add_argument("--link", metavar="RATE", help='rate of swapping KV out and back, as "25 GB/s"')
    memory.add_argument("--flops", metavar="RATE", help='rate of computing KV again on each GPU, as "400 TFLOP/s"')
    memory.add_argument("--json", action="store_true", help="the same as data")
    memory.add_argument("--debug", action="store_true", help="show where an error arose")
    memory.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Answer, and return the exit status."""
    from fractions import Fraction

    from offload.memory import answer_memory, memory_to_json
    from offload.models.formats import kv_name
    from offload.units import parse_bytes, parse_flops, parse_rate, parse_share
    from offload.words import model_and_format

    given = [name for name in ("kv_budget", "gpu_memory", "on") if getattr(options, name) is not None]
    if len(given) != 1:
        raise OffloadError(
            "how much memory is there? Give one of: --kv-budget SIZE (KV alone), --gpu-memory SIZE, --on SERVER."
        )
    model, weights = model_and_format(options.target, options.weights, like=options.like, give=options.give)
    alone = options.kv_budget is not None
    values = {name: _read(f"--{name}", parse_bytes, text) for name in SIZES if (text := getattr(options, name))}
    if alone and (unused := [f"--{name}" for name in (*SIZES, "usable") if getattr(options, name)]):
        raise OffloadError(f"--kv-budget is for KV alone, so {' and '.join(unused)} would take nothing of it. Drop it, "
                           "or give the GPU's memory: --gpu-memory SIZE.")  # fmt: skip
    if options.usable is not None:
        share = _read("--usable", parse_share, options.usable)
        values["usable"] = Fraction(share).limit_denominator(10**6)
    if options.on is not None:
        capacity, link = _server(options.on)
    else:
        text = options.kv_budget if alone else options.gpu_memory
        capacity, link = _read("--kv-budget" if alone else "--gpu-memory", parse_bytes, text), None
    if options.link is not None:
        link = _read("--link", parse_rate, options.link)
    answer = answer_memory(
        model, None if alone else weights, capacity, _lengths(options.requests, options.column),
        risk=_read("--risk", parse_share, options.risk), link=link,
        flops=None if options.flops is None else _read("--flops", parse_flops, options.flops),
        format=_read("--kv-format", kv_name, options.kv_format), block=options.block, shared_prefix=options.prefix,
        chunk=options.chunk, tp=options.tp, pp=options.pp, ep=options.ep, **values,
    )  # fmt: skip
    if options.json:
        print_json(memory_to_json(answer))
    else:
        from offload.report_memory import write_memory

        print_report(write_memory, answer)
    return ANSWERED if answer.fits else NO


def _read(option: str, parse: Any, text: str) -> Any:
    try:
        return parse(text)
    except OffloadError as error:
        raise OffloadError(f"{option}: {error}") from None


def _lengths(text: str, column: str | None) -> Lengths:
    """Lengths in words, or of a file where there is one of that name."""
    from offload.models.lengths import parse_lengths, read_lengths

    if column is not None or os.path.exists(text) or "/" in text or text.endswith((".csv", ".txt")):
        return _read("--requests", lambda path: read_lengths(path, column), text)
    if text.strip().isdigit():
        raise OffloadError(f"--requests {text}: so many requests, or one so long? Write {text}x2000 for {text} of 2000 "
                           f"positions, 1x{text} for one.")  # fmt: skip
    return _read("--requests", parse_lengths, text)


def _server(name: str) -> tuple[int, float | None]:
    """The smallest GPU memory of a server, and the peak of its narrowest link to host memory."""
    from offload import documents
    from offload.describe import gpu_memories, host_link

    server = documents.load_topology(name)
    memories = [server.memories[one] for one in gpu_memories(server)]
    if not memories:
        raise OffloadError(f"--on {name}: {server.name} has no GPU. Give the memory: --gpu-memory SIZE.")
    if any(one.capacity is None for one in memories):
        raise OffloadError(f"--on {name}: a GPU's capacity is not known. Give it: --gpu-memory SIZE.")
    links = [found.peak for one in gpu_memories(server) if (found := host_link(server, one)) is not None]
    smallest = min(one.capacity * one.count for one in memories)
    return smallest, None if not links or None in links else min(links)
