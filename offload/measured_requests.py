"""A measurement beside a plan with a whole request: what of it was measured, and how that stands.

Three things are measured of a request: the whole of it, the time to its first token (of a prompt in chunks that is all
there is), and the time of a token after it, which is that of a decode step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from offload.errors import OffloadError
from offload.measured import Measurement, Standing, causes_of, compare, other_reading_of, verdict_of
from offload.requests import Generation
from offload.step import Step
from offload.study import Study

REQUEST, FIRST, TOKEN = PARTS = ("request", "first-token", "token")


def part_of(study: Study, measured: Measurement, of: str | None) -> str | None:
    """What of a request a measurement is compared with, one of `PARTS`; None where the plan is one step.

    of : what was said, if anything. Else a plain time is of the whole request, any other figure of a decode step; of a
    prompt that nothing follows all are to the first token. Raises OffloadError where that does not go together.
    """
    asked = study.request
    if asked is None:
        if of is not None:
            raise OffloadError(f"--measured-of {of}: this plan is one step, and a measurement is of it: drop the "
                               "option. It is for phase: generate, and for a prompt in chunks.")
        return None
    if asked.decode is None:
        if of == TOKEN:
            raise OffloadError(f"--measured-of {TOKEN}: no token follows the first here. "
                               f"Write --measured-of {FIRST}.")
        of = FIRST
    elif of is None:
        of = REQUEST if measured.unit == "s/step" and not measured.per else TOKEN
    if of != TOKEN and measured.per:
        what = "the whole request" if of == REQUEST else "the first token"
        rest = "" if asked.decode is None else ", or say --measured-of token"
        raise OffloadError(f'--measured "{measured.text}": a time per {measured.per}, and {what} has one time. Write '
                           f'it as "35 s", or "... tok/s"{rest}.')
    return of


def standing_of(study: Study, step: Step, measured: Measurement, of: str | None = None) -> Standing:
    """How a measurement stands against what it is of (`part_of`). Raises as `part_of` and `compare` do."""
    part = part_of(study, measured, of)
    if part in (None, TOKEN):
        found = compare(study, step, measured)
        return found if part is None else replace(found, of=TOKEN)
    asked = cast(Generation, study.request)  # else it has no parts
    times, of_part = (asked.total, asked.tokens) if part == REQUEST else (asked.prefill, asked.prompt_tokens)
    tokens, sequences = float(of_part), float(step.plan.sequences)
    seconds = tokens / measured.value if measured.unit == "tok/s" else measured.value
    floor = times.floor if times.floor > 0 else None
    if not times.expected > 0:
        raise OffloadError("this request takes no time, so there is nothing to compare the measurement with.")
    verdict = verdict_of(seconds, measured.rounding, floor, times.low, times.high, times.serial_slow)
    return Standing(
        text=measured.text,
        seconds=seconds,
        tokens=tokens,
        tokens_per_s=tokens / seconds,
        sequences=sequences,
        per_sequence=tokens / seconds / sequences,
        floor=floor,
        floor_share=None if floor is None else floor / seconds,
        expected=(times.low, times.expected, times.high),
        expected_share=times.expected / seconds,
        slow=times.serial_slow,
        verdict=verdict,
        other_reading=other_reading_of(verdict, measured.unit, seconds, sequences, floor or 0.0, times.serial_slow),
        causes=causes_of(verdict, step, prompt=part == FIRST),
        phase=str(study.workload.get("phase", "")),
        of=part,
    )
