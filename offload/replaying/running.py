"""Items done for real: a thread for each queue, each item when what it needs has ended, and when it began and ended.

Nothing here knows what an item does; it is told by a function of its place.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from offload.measure.ending import Threads, held_back
from offload.replaying.items import Program


@dataclass(slots=True)
class Record:
    """When each item began and ended [s on one clock], None where it was not done, and what it moved.

    error : what ended the run before its time, None where nothing did. ended : whether it was asked to end.
    """

    begun: list[float | None]
    ended: list[float | None]
    moved: list[Any]
    error: BaseException | None = None
    stopped: bool = False

    def span(self, place: int) -> tuple[float, float]:
        """When an item that was done began and ended."""
        return cast("tuple[float, float]", (self.begun[place], self.ended[place]))


@dataclass(slots=True)
class _Queue:
    places: list[int]
    done: int = 0
    changed: threading.Condition = field(default_factory=threading.Condition)


def run(
    program: Program, do: Callable[[int], Any], stop: threading.Event, clock: Callable[[], float] = time.perf_counter
) -> Record:
    """Do all items. do(place) : does one and gives what it moved; called by the thread of its queue.

    stop : ends the run after what is under way. An interrupt (KeyboardInterrupt) does so too, and is told by
    `stopped`. What `do` raises ends the run and is told by `error`.
    """
    count = len(program.items)
    record = Record([None] * count, [None] * count, [None] * count)
    queues: dict[str, _Queue] = {}
    turn = [0] * count  # its number in its queue
    for place, item in enumerate(program.items):
        queue = queues.setdefault(item.lane, _Queue([]))
        turn[place] = len(queue.places)
        queue.places.append(place)
    home = [queues[item.lane] for item in program.items]

    def wait_for(other: int, own: _Queue) -> bool:
        queue = home[other]
        if queue is own:
            return True
        with queue.changed:
            while queue.done <= turn[other]:
                if stop.is_set():
                    return False
                queue.changed.wait()
        return True

    def serve(queue: _Queue) -> None:
        try:
            for place in queue.places:
                item = program.items[place]
                for other in (*item.needs, *item.frees):
                    if not wait_for(other, queue):
                        return
                if stop.is_set():
                    return
                record.begun[place] = clock()
                record.moved[place] = do(place)
                record.ended[place] = clock()
                with queue.changed:
                    queue.done += 1
                    queue.changed.notify_all()
        except BaseException as error:  # told by the record
            record.error = record.error or error
            end()

    def end() -> None:
        stop.set()
        for queue in queues.values():
            with queue.changed:
                queue.changed.notify_all()

    threads = Threads([functools.partial(serve, queue) for queue in queues.values()])
    try:
        threads.start()
        threads.wait()
    except BaseException as error:
        with held_back():  # nobody may go on: the file that it reads is closed soon
            end()
            threads.wait_out()
        if not isinstance(error, KeyboardInterrupt):
            raise
        record.stopped = True
    return record
