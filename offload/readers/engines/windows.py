"""Lines that a server prints every few seconds: tokens/s in a window of time, and how many requests ran at its end.

A window is steady where the window before it ended with as many requests and no prompt was worked on in it: then all
of it was decoding of that many sequences. Other windows hold idle time or prompts too.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from offload.readers.engines.gathered import Gathered
from offload.readers.engines.run import Timing

Tokens = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Window:
    """One such line: tokens/s of prompts and of answers, requests running at its end, KV tokens held then.

    server : which of several replicas; accepted : tokens a sequence makes in a step (above 1 with speculation, None
    where not known); decoding : False where the line tells that prompts were worked on.
    """

    line: int
    prompt: float
    made: float
    running: int
    server: str = ""
    held: float | None = None
    accepted: float | None = 1.0
    decoding: bool = True


def take_windows(run: Gathered, windows: list[Window]) -> None:
    """Add to a run what its windows say: for each number of sequences the mean of its steady windows.

    Where no window is steady, the one with most answer tokens stands, with what it includes besides.
    """
    if not windows:
        return
    steady: dict[int, list[Window]] = defaultdict(list)
    before: dict[str, Window] = {}
    for window in windows:
        last = before.get(window.server)
        if (last is not None and last.running == window.running > 0 and window.made > 0 and window.prompt == 0
                and window.decoding):  # fmt: skip
            steady[window.running].append(window)
        before[window.server] = window
    for running, group in sorted(steady.items()):
        run.time(_timing(group, running, ""))
        if len(group) > 1:
            rates = [window.made for window in group]
            run.fact(f"lowest tokens/s of a window with {running} running", min(rates), group[0].line)
            run.fact(f"highest tokens/s of a window with {running} running", max(rates), group[0].line)
    if not steady:
        best = max(windows, key=lambda window: window.made)
        if best.made > 0:
            run.time(_timing([best], best.running, "prompts of other requests, or time without requests"))
    fastest = max(windows, key=lambda window: window.prompt)
    run.fact("highest prompt tokens/s of a window", fastest.prompt or None, fastest.line)
    if run.timings:
        run.assumed["a window's tokens/s are of one second of it: the windows' length is not printed"] = None


def _timing(group: list[Window], running: int, includes: str) -> Timing:
    made = sum(window.made for window in group) / len(group)
    held = [window.held for window in group if window.held is not None]
    context = int(sum(held) / len(held) / running) if held and running else 0
    known = [window.accepted for window in group if window.accepted is not None]
    steps = None
    if running and not includes and len(known) == len(group):
        steps = made / (running * (sum(known) / len(known)))
    return Timing("decode", 1.0, made, steps, running or None, context or None, samples=len(group),
                  test="windows of the server's log", includes=includes, line=group[0].line)  # fmt: skip
