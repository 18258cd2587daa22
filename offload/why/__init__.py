"""Why a run took as long as it did: an engine's log as a plan, and its measured time as a sum of terms.

    found = why(run, server="ws-2x3090-nvlink")     # of `offload.readers.engines.recognise.read_log`
    found.waterfall.terms, found.verdict, found.proven

`model` and `server` find what the log speaks of, `workload` and `plan` write its plan, `waterfall` splits the time,
`proven` says what rates the run proves.
"""

from __future__ import annotations

from offload.why.explained import Why, choose_run, choose_timing, why
from offload.why.proven import Proven
from offload.why.waterfall import Term, Waterfall

__all__ = ["Proven", "Term", "Waterfall", "Why", "choose_run", "choose_timing", "why"]
