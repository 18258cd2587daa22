"""Requests to end (Ctrl-C, SIGTERM, SIGHUP) that unwind in order, so that files are closed and threads have ended.

A KeyboardInterrupt out of a signal's handler is raised wherever the program is just then. Some of these places swallow
it: where Python frees memory, callbacks, modules of compiled code that are being imported. So each request is noted
besides, and whatever takes long looks at it from time to time.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from types import FrameType

NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
LOOK = 0.25  # seconds between looks while threads are waited for


class _Requests:
    """asked : whether there was one; held : how many blocks hold it back."""

    def __init__(self) -> None:
        self.asked, self.held = False, 0


_under_way: list[_Requests] = []


def requested() -> bool:
    """Whether an end was asked for of an `ended_in_order` that lasts."""
    return any(one.asked for one in _under_way)


def look() -> None:
    """Raises KeyboardInterrupt where an end was asked for, once more if need be: the first may have been lost."""
    if requested():
        raise KeyboardInterrupt


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """While it lasts a request to end is only noted: for what must not be cut in two. Whoever uses it looks after it.
    """
    held = list(_under_way)
    for one in held:
        one.held += 1
    try:
        yield
    finally:
        for one in held:
            one.held -= 1


@contextlib.contextmanager
def ended_in_order(*modules: str) -> Iterator[Callable[[], None]]:
    """While it lasts a request to end (SIGTERM, SIGHUP) unwinds as Ctrl-C does, so that files go. Gives `look`.

    modules : imported first, as an import that is interrupted may swallow the request, or never succeed again. Raises
    KeyboardInterrupt where an end was asked for meanwhile.
    """
    requests = _Requests()

    def stop(number: int, frame: FrameType | None) -> None:
        requests.asked = True
        if not requests.held:
            raise KeyboardInterrupt

    before = {}
    try:
        requests.held += 1
        _under_way.append(requests)
        for name in NAMES:
            if hasattr(signal, name):
                with contextlib.suppress(ValueError):  # not in the main thread
                    before[name] = signal.signal(getattr(signal, name), stop)
        for one in modules:
            import_module(one)
        requests.held -= 1
        look()
        yield look
    finally:
        requests.held += 1
        for name, handler in before.items():
            signal.signal(getattr(signal, name), signal.SIG_DFL if handler is None else handler)
        _under_way.remove(requests)


class Threads:
    """Threads that can be waited for again and again: join(), once interrupted, takes its thread for ended (Python 3.11
    and 3.12), also where it goes on.

    works : what each does; what one raises is its own matter.
    """

    def __init__(self, works: Sequence[Callable[[], None]]):
        self._ended = [threading.Event() for _ in works]
        self._threads = [threading.Thread(target=self._one, args=one, daemon=True)
                         for one in zip(works, self._ended, strict=True)]  # fmt: skip

    def start(self) -> None:
        """Start all. Raises RuntimeError where the system gives no more threads; wait() then waits for those begun."""
        with held_back():
            for number, thread in enumerate(self._threads):
                try:
                    thread.start()
                except RuntimeError:
                    for one in self._ended[number:]:
                        one.set()
                    raise

    def wait(self) -> None:
        """Until all have ended. Raises KeyboardInterrupt where an end is asked for."""
        for one in self._ended:
            while not one.wait(LOOK):
                look()
        self._join()

    def wait_out(self) -> None:
        """Until all have ended, whatever is asked for meanwhile."""
        for one in self._ended:
            while not one.is_set():
                with contextlib.suppress(KeyboardInterrupt):
                    one.wait()
        self._join()

    def _join(self) -> None:
        """Of threads whose work has ended: a moment."""
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    @staticmethod
    def _one(work: Callable[[], None], ended: threading.Event) -> None:
        try:
            work()
        finally:
            ended.set()
