"""`offload model`: what a model's files amount to, in bytes; several models side by side."""

from __future__ import annotations

import argparse
from typing import Any

from offload.verbs import ANSWERED
from offload.verbs.options import unknown_family
from offload.verbs.output import print_json, print_report


def add(verbs: Any) -> None:
    """State the verb's words."""
    model = verbs.add_parser(
        "model",
        allow_abbrev=False,
        help="a model's layers, parameters and bytes: what is stored, what moves for a token, what grows with context",
        description="A model in figures: layers by kind, bytes by class, KV for each token, state, what a token reads.",
        epilog="Exit status: 0 answered, 2 bad input.",
    )
    model.add_argument("models", metavar="MODEL", nargs="+",
                       help="MODEL[:FORMAT], or path of a config.json, a GGUF file, a "
                       "safetensors file, its index, or the folder of one")
    model.add_argument("--weights", metavar="FORMAT", help="weight format, as q4_k_m, q8_0, bf16, fp8")
    model.add_argument("--kv-format", metavar="FORMAT",
                       help="KV cache format (default: as the checkpoint states, else f16)")
    unknown_family(model)
    model.add_argument("--json", action="store_true", help="the same as data")
    model.add_argument("--debug", action="store_true", help="show where an error arose")
    model.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Answer, and return the exit status."""
    from offload.describe_model import summaries_of

    found = summaries_of(options.models, options.weights, options.kv_format, like=options.like, give=options.give)
    if options.json:
        from dataclasses import asdict

        print_json([asdict(one) for one in found] if len(found) > 1 else asdict(found[0]))
    else:
        from offload.report_model import write_models

        print_report(write_models, found)
    return ANSWERED
