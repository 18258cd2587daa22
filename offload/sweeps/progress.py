"""How far a sweep is, on standard error: one line that lives on a terminal, else a line now and then."""

from __future__ import annotations

import sys
import time
from typing import Any

EVERY = 2.0  # seconds between lines where there is no terminal


class Progress:
    """Tells how far a sweep is: points a second, the share that is done, the time left. Use as a context.

    shown : whether to tell at all; None for only where standard error is a terminal.
    """

    def __init__(self, shown: bool | None = None, stream: Any = None):
        self._stream = sys.stderr if stream is None else stream
        self._terminal = bool(getattr(self._stream, "isatty", lambda: False)())
        self._shown = self._terminal if shown is None else shown
        self._live: Any = None
        self._task: Any = None
        self._points = self._done = self._before = 0
        self._begun = self._told = 0.0

    def __enter__(self) -> Progress:
        if self._shown and self._terminal:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
            self._live = Progress(*columns, console=Console(file=self._stream), transient=True)
            self._live.start()
            self._task = self._live.add_task("starting", total=None)
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def stage(self, text: str) -> None:
        """What is begun."""
        if self._live is not None:
            self._live.update(self._task, description=text)
            self._live.refresh()
        elif self._shown and (self._told == 0 or time.monotonic() - self._told > EVERY):
            self._line(text)

    def start(self, points: int, done: int) -> None:
        """How many points there are, and how many of them were done before."""
        self._points, self._done, self._before = points, done, done
        self._begun = time.monotonic()
        before = f", {done:,} of them done before" if done else ""
        if self._live is not None:
            self._live.update(self._task, total=points, completed=done, description=f"{points:,} points{before}")
            self._live.refresh()
        elif self._shown:
            self._line(f"{points:,} points{before}")

    def add(self, points: int) -> None:
        """So many more points are done."""
        self._done += points
        if not self._shown:
            return
        seconds = max(1e-9, time.monotonic() - self._begun)
        rate = (self._done - self._before) / seconds
        if self._live is not None:
            self._live.update(self._task, completed=self._done, description=f"{_short(rate)} points/s")
        elif time.monotonic() - self._told > EVERY or self._done == self._points:
            left = (self._points - self._done) / rate
            self._line(f"{100 * self._done / self._points:.0f} %, {_short(rate)} points/s, {_time(left)} left")

    def _line(self, text: str) -> None:
        self._told = time.monotonic()
        try:
            self._stream.write(f"sweep: {text}\n")
            self._stream.flush()
        except (OSError, ValueError):  # nobody reads: no reason to stop
            self._shown = False


def _short(number: float) -> str:
    for size, mark in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g} {mark}"
    return f"{number:.3g}"


def _time(seconds: float) -> str:
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"
