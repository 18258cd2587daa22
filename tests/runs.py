"""How long property tests run: some examples always, the full number with OFFLOAD_SLOW=1."""

from __future__ import annotations

import os

from hypothesis import settings

LONG = os.environ.get("OFFLOAD_SLOW") == "1"


def examples(always: int, long: int) -> settings:
    """So many examples of each run, and in long runs so many."""
    return settings(max_examples=long if LONG else always)
