"""`offload schema`: the JSON Schema of a kind of file, for editors."""

from __future__ import annotations

import argparse
from typing import Any

from offload.verbs import ANSWERED
from offload.verbs.output import print_json


def add(verbs: Any) -> None:
    """State the verb's words."""
    schema = verbs.add_parser(
        "schema",
        allow_abbrev=False,
        help="the JSON Schema of topology or plan files, for editors",
        description="The JSON Schema (draft 2020-12) of topology or plan files: keys, values and what they mean.",
        epilog="A file that names it in its first line is checked by editors as it is written: "
               "# yaml-language-server: $schema=plan.json",
    )  # fmt: skip
    schema.add_argument("kind", metavar="topology|plan", choices=("topology", "plan"), help="the kind of file")
    schema.add_argument("--debug", action="store_true", help="show where an error arose")
    schema.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the schema."""
    from offload.documents.schema import schema_of

    print_json(schema_of(options.kind))
    return ANSWERED
