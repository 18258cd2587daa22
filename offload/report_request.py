"""A whole request (a prompt, then token after token) as text: its parts, the first token, what binds over all of it."""

from __future__ import annotations

from rich.console import Console

from offload.printing import and_text, number_text, write_heading, write_line, write_table
from offload.ranges import fold, runs
from offload.requests import Generation, Times
from offload.units import format_seconds


def write_request(request: Generation, console: Console) -> None:
    """Print the times of a request and of its parts."""
    write_heading(console, "The whole request")
    rows = [_row("prefill", request.prompt, request.chunks, request.prefill)]
    if request.decode is not None:
        contexts = f"{request.first_context} to {request.last_context}"
        steps: int | str = request.steps
        whole: int | str = request.steps + request.chunks
        if request.rounds is not None:
            whole = ""
            steps = f"{number_text(request.rounds)} ({request.least_rounds:,} at least)"
        if request.drafted is not None:
            rows.append(_row("draft's prefill", request.prompt, request.chunks, request.drafted))
        rows.append(_row("decode", contexts, steps, request.decode))
        rows.append(_row("whole", "", whole, request.total))
    headings = ["part", "context", "rounds" if request.rounds is not None else "steps", "floor", "same, sustained",
                "expected", "serial"]
    write_table(console, headings, rows, right={2, 3, 4, 5, 6}, bold={len(rows) - 1})
    total, first = request.total, request.prefill
    if total.low < total.high:
        write_line(console, f"Expected between {format_seconds(total.low)} and {format_seconds(total.high)}, from the "
                            "ends of the sustained rates.")
    write_line(console, f"First token after {format_seconds(first.expected)} (no machine like this: before "
                        f"{format_seconds(first.floor)}).")
    if request.regimes:
        _write_chunks(request, console)
    if request.time_per_token is not None:
        over = "contexts" if request.rounds is None else "contexts and what guesses come to"
        write_line(console, f"Time per token after the first, on average over the {over}: "
                            f"{format_seconds(request.time_per_token)}.")
    rate = request.tokens_per_s
    if rate is not None and (request.decode is not None or not request.regimes):
        limit = "" if total.floor <= 0 else f"; at most {number_text(request.tokens / total.floor)}"
        word = "token" if request.tokens == 1 else "tokens"
        write_line(console, f"{request.tokens:,} {word} over the whole request: {number_text(rate)} tokens/s{limit}.")
    if (plain := request.without_speculation) is not None:
        longer = plain.expected / total.expected
        write_line(console, f"Without speculation the whole request takes {format_seconds(plain.expected)}, "
                            f"{number_text(longer)} x as long.")
    if request.bottleneck:
        rule = "the chain through the tokens, on" if request.rule == "cycle" else "the load on"
        names = and_text([fold(run) for run in runs(request.bottleneck)])
        write_line(console, f"What binds the floor of the whole: {rule} {names}.")
    if request.decode is not None:
        write_line(console, "Fetches may run ahead from one part into the other, so the whole may be less than its "
                            f"parts. Below: the {'round' if request.rounds is not None else 'decode step'} at the "
                            "mean context.")
    elif request.regimes:
        write_line(console, "Below: the last chunk that is full.")


BOUND = {"compute": "compute-bound", "streaming": "streaming-bound", "memory": "bound by memory"}


def _write_chunks(request: Generation, console: Console) -> None:
    """Which chunks of a prompt what binds, and how fast the prompt goes through."""
    for one in request.regimes:
        which = f"chunks {one.first} to {one.last}" if one.last > one.first else f"chunk {one.first}"
        names = and_text([fold(run) for run in runs(one.resources)])
        write_line(console, f"{which} (positions {one.start:,} to {one.end:,}): {BOUND[one.kind]} on {names}, "
                            f"{format_seconds(one.seconds)}.", indent=2)
    rate, floor = request.prompt_tokens_per_s, request.prefill.floor
    if rate is not None:
        limit = f"; at most {number_text(request.prompt_tokens / floor)}" if floor > 0 else ""
        write_line(console, f"{request.prompt_tokens:,.0f} tokens of prompt: {number_text(rate)} tokens/s{limit}.")


def _row(part: str, context: object, steps: int | str, times: Times) -> list[str]:
    shown = [format_seconds(time) if time > 0 else "-"
             for time in (times.floor, times.floor_sustained, times.expected, times.serial)]  # fmt: skip
    return [part, str(context), steps if isinstance(steps, str) else f"{steps:,}", *shown]
