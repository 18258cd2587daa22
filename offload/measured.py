"""A measured speed beside the floor and the expected time: what bandwidth explains of it, and what it cannot explain.

A measurement above the ceiling contradicts an input, whichever: a floor is proved for the plan and the machine as they
were given. One far below everything that bandwidth can explain has another cause. Between the two it says how much is
left to gain.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from offload.errors import OffloadError, UnitError
from offload.schedules import serial
from offload.step import Step
from offload.study import Study
from offload.units import parse_seconds

NEAR = 0.05  # a measurement this close to the expected interval is as expected: repeated runs differ by as much
FAR = 2.0  # times the serial time at the slow ends of the sustained rates: above, more than half has another cause
ROUNDING = 0.01  # at most this share of a figure is laid to its last digit
LONGEST = 60  # characters of a measured speed
ABOVE, BETTER, EXPECTED, SLOWER, FAR_BELOW = (
    "contradicts physics", "better than expected", "as expected", "slower than expected", "far below",
)  # fmt: skip
WRITE = 'Write "4.6 tok/s" (of all sequences together), "217 ms/step" or "0.217 s/step".'

_NUMBER = r"(\d+\.?\d*|\.\d+)(?:[eE]([+-]?\d{1,3}))?"
_FIGURE = re.compile(rf"{_NUMBER} ?([A-Za-z][A-Za-z ]*?)? ?(?:(?:/|per) ?([A-Za-z]+))?", re.ASCII)
_TOKENS = ("t", "tok", "toks", "token", "tokens")
_SECONDS = ("s", "sec", "secs", "second", "seconds")
_STEPS = ("step", "steps", "it", "iteration")

CONTRADICTIONS = (
    "other bytes: a quantised or smaller model than said, or one with experts that reads only some of them",
    "another context or batch than said: attention that reads less, more sequences at once",
    "the prompt's tokens counted in: prompts are processed many tokens at a time",
    "several tokens each step: speculative decoding, or answers from a cache",
    "more hardware than said: several GPUs or servers",
    "peak rates that are too low in the server's file: memory clocks (XMP, EXPO), one direction of a link for both, "
    "bits for bytes",
    "a figure of all sequences together, in a plan with fewer of them",
)
GAPS = (
    "launches and synchronisation: many small kernels, no graph of them, one wait for each layer",
    "dequantisation or sampling that keeps a processor busy",
    "threads: too few or too many, not pinned, or memory on another socket (NUMA)",
    "swap or the page cache: weights read from the drive again each step",
    "another process on the same processor, memory or link",
    "power or thermal limits: clocks below those of the file",
    "a measurement of something else: loading, prompt processing, the first tokens",
)
GAPS_OF_COPIES = (
    "pageable host memory, which is copied twice: say host_memory: pageable, or pin it",
    "a PCIe link that trained down: fewer lanes or an older generation than said",
    "copies that do not run beside compute, or wait for each other",
)


@dataclass(frozen=True, slots=True)
class Measurement:
    """A speed as it was measured: unit "tok/s" (of all sequences together), "s/step" or "s/token"; value above zero.

    rounding : the share of the value that its last digit leaves open [1]. per : "step" or "token" where a time says so.
    """

    text: str
    value: float
    unit: str
    rounding: float
    per: str = ""


@dataclass(frozen=True, slots=True)
class Standing:
    """How a measurement stands. seconds : of one step; slow : the serial time at the slow ends of the sustained rates.

    floor_share, expected_share : floor and expected time over the measured time; floor_share is None where nothing is
    proved. per_sequence : tokens/s of one sequence. phase : what the step is, as "decode". other_reading : where
    sequences may have been mixed up, the other meaning of the figure ("each" it is of each sequence, "all" they were
    multiplied in once too often) and its seconds. of : of a request what was measured ("request", "first-token",
    "token"); seconds, tokens and all times are then of that. "" where the plan is one step.
    """

    text: str
    seconds: float
    tokens: float
    tokens_per_s: float
    sequences: float
    per_sequence: float
    floor: float | None
    floor_share: float | None
    expected: tuple[float, float, float]  # low, value, high
    expected_share: float | None
    slow: float
    verdict: str
    other_reading: tuple[str, float] | None
    causes: tuple[str, ...]
    phase: str = ""
    of: str = ""

    @property
    def contradicts(self) -> bool:
        """Whether it is faster than the floor allows."""
        return self.verdict == ABOVE


def read_measurement(text: str) -> Measurement:
    """A measured speed such as "4.6 tok/s", "217 ms/step", "0.2 s". Raises UnitError with what to write."""
    plain = " ".join(text.split())
    match = _FIGURE.fullmatch(plain)
    if match is None or len(plain) > LONGEST:
        plain = plain[:LONGEST]
        raise UnitError(f'"{plain}" is no measured speed. {WRITE}')
    digits, power, unit, per = match[1], int(match[2] or 0), (match[3] or "").strip(), (match[4] or "").lower()
    number = f"{digits}e{power}"
    if not unit:
        wrong = f'"{plain}" has no unit. Write "{digits} tok/s", the tokens of all sequences together,'
        raise UnitError(f'{wrong} or "{digits} ms/step", the time of one step.')
    if unit.lower() == "tps" and not per:
        unit, per = "tok", "s"
    if unit.lower() in _TOKENS and per in _SECONDS:
        kind, value, said = "tok/s", float(number), ""
    elif unit.lower() in _TOKENS and not per:
        raise UnitError(f'"{plain}": in what time? Write "{digits} tok/s", the tokens of all sequences together.')
    elif per in ("", *_STEPS, *_TOKENS):
        kind, value = "s/token" if per in _TOKENS else "s/step", _seconds(plain, digits, power, unit)
        said = kind[2:] if per else ""
    else:
        raise UnitError(f'"{plain}" is no measured speed. {WRITE}')
    if not 1e-12 < value < 1e15:
        raise UnitError(f'"{plain}" is {"not above zero" if value == 0 else "more or less than can be meant"}. {WRITE}')
    half = 0.5 * 10.0 ** -len(digits.partition(".")[2]) / float(digits)
    return Measurement(plain, value, kind, min(half, ROUNDING), said)


def _seconds(plain: str, digits: str, power: int, unit: str) -> float:
    unit = "s" if unit.lower() in _SECONDS else unit
    try:
        return parse_seconds(f"{digits}e{power} {unit}")
    except UnitError:
        if float(digits) == 0:
            return 0.0
        raise UnitError(f'"{plain}" is no measured speed: "{unit}" is neither tokens nor a time. {WRITE}') from None


def compare(study: Study, step: Step, measured: Measurement) -> Standing:
    """How a measurement stands against a study of the same step, both of steps back to back.

    Raises OffloadError for a time of one token where a step yields several (it is said of both), and for a step that
    takes no time.
    """
    tokens, sequences = float(step.plan.tokens), float(step.plan.sequences)
    if measured.unit == "s/token" and tokens != 1:
        raise OffloadError(
            f'"{measured.text}": a step yields {tokens:g} tokens here, and the time of a token may be a step\'s or a '
            'share of it. Write the time of a step, "... ms/step", or "... tok/s" of all sequences together.'
        )
    seconds = tokens / measured.value if measured.unit == "tok/s" else measured.value
    # Of a mean of tokens (speculation) no run of steps yields more than the most each time.
    most = float(step.plan.tokens_at_most) / tokens if measured.unit == "tok/s" else 1.0
    floor = study.floor.seconds / most if study.floor.seconds > 0 else None
    expected, slow = study.overlapped, float(serial(step, "low").seconds)
    if not expected.seconds > 0:
        raise OffloadError("a step of this plan takes no time, so there is nothing to compare the measurement with.")
    verdict = verdict_of(seconds, measured.rounding, floor, expected.low, expected.high, slow)
    return Standing(
        text=measured.text,
        seconds=seconds,
        tokens=tokens,
        tokens_per_s=tokens / seconds,
        sequences=sequences,
        per_sequence=tokens / seconds / sequences,
        floor=floor,
        floor_share=None if floor is None else floor / seconds,
        expected=(expected.low, expected.seconds, expected.high),
        expected_share=expected.seconds / seconds if expected.seconds > 0 else None,
        slow=slow,
        verdict=verdict,
        other_reading=other_reading_of(verdict, measured.unit, seconds, sequences, floor or 0.0, slow),
        causes=causes_of(verdict, step),
        phase=str(study.workload.get("phase", "")),
    )


def verdict_of(seconds: float, rounding: float, floor: float | None, low: float, high: float, slow: float) -> str:
    """What a measured time is called beside a floor, the expected interval and the serial time at slow rates [s]."""
    if floor is not None and seconds * (1 + rounding) < floor:
        return ABOVE
    if seconds < low * (1 - NEAR):
        return BETTER
    if seconds <= high * (1 + NEAR):
        return EXPECTED
    return SLOWER if seconds <= FAR * slow else FAR_BELOW


def other_reading_of(
    verdict: str, unit: str, seconds: float, sequences: float, floor: float, slow: float
) -> tuple[str, float] | None:
    """The other meaning that a rate may have, where it fits between the floor and what bandwidth explains."""
    if sequences <= 1 or unit != "tok/s":
        return None
    if verdict == ABOVE and floor <= seconds * sequences <= FAR * slow:
        return "all", seconds * sequences
    if verdict in (SLOWER, FAR_BELOW) and floor <= seconds / sequences <= FAR * slow:
        return "each", seconds / sequences
    return None


def causes_of(verdict: str, step: Step, prompt: bool = False) -> tuple[str, ...]:
    """What is usually behind a verdict; nothing where none is called for. prompt : it is of a prompt's tokens."""
    if verdict == ABOVE:
        prefill = prompt or step.plan.workload.get("phase") == "prefill"  # whose tokens are the prompt's
        return tuple(cause for cause in CONTRADICTIONS if not (prefill and cause.startswith("the prompt's tokens")))
    if verdict != FAR_BELOW:
        return ()
    copies = any(row.transfer and not row.urgent for row in step.rows)
    return (*GAPS, *(GAPS_OF_COPIES if copies else ()))
