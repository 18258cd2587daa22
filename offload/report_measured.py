"""A measurement beside the floor and the expected time, as text."""

from __future__ import annotations

from rich.console import Console

from offload.given import surely
from offload.measured import ABOVE, BETTER, EXPECTED, FAR, FAR_BELOW, Standing
from offload.printing import number_text, write_heading, write_line, write_table
from offload.units import format_seconds, format_share

WHAT = {"": "a step", "token": "a step", "first-token": "to the first token", "request": "the whole request"}
COMPARED = {
    "token": "Compared with the decode step at the mean context: a speed of decoding, without the prompt. "
             "--measured-of request or first-token compares it with those.",
    "first-token": "Compared with the time to the first token: the whole prompt, with all its chunks.",
    "request": "Compared with the whole request, its prompt and all its tokens. --measured-of first-token or token "
               "compares it with those.",
}  # fmt: skip


def write_measured(standing: Standing, console: Console) -> None:
    """Print how a measurement stands, with what usually explains it."""
    write_heading(console, "Measured")
    sequences = number_text(standing.sequences)
    together = " of all sequences together" if standing.sequences > 1 else ""
    yields = f", which yields {number_text(standing.tokens)} tokens" if standing.tokens != 1 else ""
    if standing.of == "first-token":
        yields = f", {standing.tokens:,.0f} tokens of prompt"
    what = f"{'for ' if standing.of == 'request' else ''}{WHAT[standing.of]}"
    text = f"{standing.text}: {format_seconds(standing.seconds)} {what}{yields}, "
    write_line(console, f"{text}{number_text(standing.tokens_per_s)} tokens/s{together}.")
    if standing.sequences > 1:
        write_line(console, f"Each of the {sequences} sequences: {number_text(standing.per_sequence)} tokens/s.")
    _write_times(standing, console)
    if standing.of or standing.phase == "generate":
        write_line(console, COMPARED[standing.of or "token"])
    if standing.floor is None:
        write_line(console, "No ceiling is proved: no resource that this step loads has a known peak rate.")
    style = "bold red" if standing.verdict == ABOVE else "bold"
    write_line(console, _verdict(standing), style=style)
    for cause in standing.causes:
        write_line(console, f"- {cause}")
    if standing.other_reading is not None:
        write_line(console, _other_reading(standing))


def write_unfit(text: str, console: Console) -> None:
    """Print what a measurement says of a plan that does not fit."""
    write_line(console, f"Measured all the same ({text})? Then less is held than said here, or it lives elsewhere.")


def _write_times(standing: Standing, console: Console) -> None:
    low, value, high = standing.expected
    ends = [] if low == high else [("expected, fast end", low), ("expected, slow end", high)]
    times = [("floor", standing.floor), *ends[:1], ("expected", value), *ends[1:], ("serial, slow end", standing.slow)]
    rows = [
        [name, format_seconds(time), number_text(standing.tokens / time), format_share(time / standing.seconds)]
        for name, time in times
        if time
    ]
    write_table(console, ["", WHAT[standing.of], "tokens/s", "of the measured time"], rows, right={1, 2, 3})


def _verdict(standing: Standing) -> str:
    seconds, value = standing.seconds, standing.expected[1]
    if standing.verdict == ABOVE:
        times = number_text(surely(standing.floor) / seconds)
        return (
            f"Input contradicts physics: this is {times} times as fast as any schedule of this plan on this machine "
            "can be. Something is other than said, usually:"
        )
    share = standing.floor_share
    reached = "" if share is None else f"{format_share(share)} of the floor's speed is reached: "
    if share is not None and share > 1:
        reached = "at the ceiling, as far as the digits of the measurement tell: "
    if standing.verdict == BETTER:
        return f"{reached}better than the expected time; sustained rates in the server's file may be low."
    if standing.verdict == EXPECTED:
        return f"{reached}as expected."
    if standing.verdict == FAR_BELOW:
        return (
            f"{reached}bandwidth cannot explain this gap. It takes {number_text(seconds / standing.slow)} times as "
            "long as everything one after another at the slow ends of the sustained rates, and more than "
            f"{number_text(FAR)} times is taken as unexplained. Usual causes:"
        )
    rest = (
        "Everything one after another would take as long: look at what does not overlap."
        if seconds <= standing.slow
        else "Even one after another it would be faster: a part of it has other causes than bandwidth."
    )
    left = f"{format_seconds(seconds - value)}{' a step' if standing.of in ('', 'token') else ''}"
    return f"{reached}{left} slower than expected, {number_text(seconds / value)} times its time. {rest}"


def _other_reading(standing: Standing) -> str:
    kind, seconds = surely(standing.other_reading)
    rate = f"{number_text(standing.tokens / seconds)} tokens/s"
    if standing.floor is not None:
        rate += f", {format_share(standing.floor / seconds)} of the floor's speed"
    if kind == "each":
        return f"Is {standing.text} the speed of each sequence? Then all together have {rate}: give that figure."
    times = number_text(standing.sequences)
    return f"Were the {times} sequences multiplied in once too often? Without that it is {rate}."
