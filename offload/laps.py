"""The seconds of a lap of layers that are fetched ahead, from the numbers of their kinds: plain arithmetic on lists.

As `two_lanes`, so that what works it out can be read by more than Python: a page of `offload report` runs these very
functions (`page.scripted`). What is found, and why nothing is shorter: `prefetching`.
"""

from __future__ import annotations

from collections.abc import Sequence

from offload.two_lanes import INFINITE, NEAR, grown, searched

BARRIER, RECURRENCE = -1, -2  # how a period is attained; from 0 on one of the ways to share
FETCH, DELAY = 0, -1  # of an entry: its lane, else it is a compute's; its resource, for a delay
NONE_SLOWED, SLOWED, STANDS = 0, 1, 2


def spread(
    entries: Sequence[int], numbers: Sequence[float], lane: int, resources: int, delays: list[float],
    times: list[float],
) -> None:  # fmt: skip
    """Put the numbers of a lane to their places. entries : lane, kind and resource of each number, one after another.

    delays : by kind [s]. times : by kind and resource [s].
    """
    for place in range(len(numbers)):
        kind, resource = entries[3 * place + 1], entries[3 * place + 2]
        if entries[3 * place] == lane:
            if resource == DELAY:
                delays[kind] = numbers[place]
            else:
                times[kind * resources + resource] = numbers[place]


def longest(times: Sequence[float], resources: int, works: list[float]) -> None:
    """Put the longest time of each kind into its work [s]."""
    for kind in range(len(works)):
        work = 0.0
        for resource in range(resources):
            work = max(work, times[kind * resources + resource])
        works[kind] = work


def alone(delays: Sequence[float], works: Sequence[float], into: list[float]) -> None:
    """Put what each kind takes with nothing beside it into `into` [s]."""
    for kind in range(len(into)):
        into[kind] = delays[kind] + works[kind]


def summed(counts: Sequence[int], of_kinds: Sequence[float]) -> float:
    """What a lap has of something of its kinds. counts : how often each is in a lap."""
    found = 0.0
    for kind in range(len(counts)):
        found = found + counts[kind] * of_kinds[kind]
    return found


def loaded(
    fetch_counts: Sequence[int], compute_counts: Sequence[int], fetch_times: Sequence[float],
    compute_times: Sequence[float], resources: int,
) -> float:  # fmt: skip
    """What the busiest resource is busy in a lap [s]."""
    found = 0.0
    for resource in range(resources):
        by_fetches = by_computes = 0.0
        for kind in range(len(fetch_counts)):
            by_fetches = by_fetches + fetch_counts[kind] * fetch_times[kind * resources + resource]
        for kind in range(len(compute_counts)):
            by_computes = by_computes + compute_counts[kind] * compute_times[kind * resources + resource]
        found = max(found, by_fetches + by_computes)
    return found


def together(
    compute: int, fetch: int, resources: int, fetch_alone: Sequence[float], compute_alone: Sequence[float],
    compute_delays: Sequence[float], fetch_times: Sequence[float], compute_times: Sequence[float],
) -> float:  # fmt: skip
    """A compute and a fetch from the same time on: each alone, or what they share [s]."""
    found = compute_alone[compute]
    for resource in range(resources):
        a, b = fetch_times[fetch * resources + resource], compute_times[compute * resources + resource]
        if a > 0 and b > 0:
            found = max(found, compute_delays[compute] + (b + a))
    return max(found, fetch_alone[fetch])


def barred(
    pairs: Sequence[int], resources: int, fetch_alone: Sequence[float], compute_alone: Sequence[float],
    compute_delays: Sequence[float], fetch_times: Sequence[float], compute_times: Sequence[float],
) -> float:  # fmt: skip
    """A lap with a barrier per layer [s]. pairs : a compute, the fetch after it and how often, one after another."""
    found = 0.0
    for place in range(len(pairs) // 3):
        one = together(pairs[3 * place], pairs[3 * place + 1], resources, fetch_alone, compute_alone, compute_delays,
                       fetch_times, compute_times)  # fmt: skip
        found = found + pairs[3 * place + 2] * one
    return found


def recurring(
    fetches: Sequence[int], computes: Sequence[int], buffers: int, fetch_alone: Sequence[float],
    compute_alone: Sequence[float], fetching: float, computing: float,
) -> tuple[float, float]:  # fmt: skip
    """Bounds of the recurrence's period per lap, the upper one attained [s]; as many buffers as it likes: both lanes
    by themselves.
    """
    if buffers >= 2 * len(fetches):
        most = max(fetching, computing)
        return most, most
    return grown(fetch_alone, compute_alone, fetches, computes, buffers, computing > fetching, [0.0] * buffers,
                 [0.0] * buffers)  # fmt: skip


def slowed(
    window_computes: Sequence[int], window_fetches: Sequence[int], resources: int, compute_delays: Sequence[float],
    fetch_works: Sequence[float], compute_works: Sequence[float], fetch_times: Sequence[float],
    compute_times: Sequence[float], into: list[float],
) -> int:  # fmt: skip
    """Put by window the seconds of its compute beside the fastest fetch of it into `into`; whether any is slowed by all
    of them, or stands still.

    window_computes : the kind of each. window_fetches : how many of each kind may run beside it, one after another.
    """
    kinds = len(fetch_works)
    crowded = stands = False
    for window in range(len(window_computes)):
        compute = window_computes[window]
        work = compute_works[compute]
        for resource in range(resources):
            own = compute_times[compute * resources + resource]
            load = fastest = 0.0
            for kind in range(kinds):
                count = window_fetches[window * kinds + kind]
                if count > 0:
                    load = load + count * fetch_times[kind * resources + resource]
                    if fetch_works[kind] > 0:
                        fastest = max(fastest, fetch_times[kind * resources + resource] / fetch_works[kind])
            if own > 0 and load > 0:
                if own + load > compute_works[compute]:
                    crowded = True
                work = max(work, own / (1 - fastest) if fastest < 1 else INFINITE)
        into[window] = compute_delays[compute] + work
        if into[window] == INFINITE:
            stands = True
    if not crowded:
        return NONE_SLOWED
    return STANDS if stands else SLOWED


def beyond(
    best: float, bound: float, fetches: Sequence[int], computes: Sequence[int], buffers: int, repeats: int,
    resources: int, window_computes: Sequence[int], window_fetches: Sequence[int], window_of_layer: Sequence[int],
    window_counts: Sequence[int], fetch_counts: Sequence[int], compute_counts: Sequence[int],
    fetch_delays: Sequence[float], compute_delays: Sequence[float], fetch_works: Sequence[float],
    compute_works: Sequence[float], fetch_times: Sequence[float], compute_times: Sequence[float],
    fetch_alone: Sequence[float], compute_alone: Sequence[float],
) -> tuple[float, int]:  # fmt: skip
    """The shortest that is found of a lap that a barrier per layer does not bring to its bound [s], and how.

    best : with a barrier [s]. bound : of each lane and each resource [s]. window_of_layer : the window of each compute;
    window_counts : how often each is in a lap.
    """
    how = BARRIER
    fetching, computing = summed(fetch_counts, fetch_alone), summed(compute_counts, compute_alone)
    low, high = recurring(fetches, computes, buffers, fetch_alone, compute_alone, fetching, computing)
    bound = max(bound, low)
    windows = [0.0] * len(window_computes)
    state = slowed(window_computes, window_fetches, resources, compute_delays, fetch_works, compute_works, fetch_times,
                   compute_times, windows)  # fmt: skip
    if state != STANDS:
        if state == SLOWED:
            total = summed(window_counts, windows)
            low, high = recurring(fetches, window_of_layer, buffers, fetch_alone, windows, fetching, total)
        if high < best:
            best, how = high, RECURRENCE
        if best <= bound * NEAR:
            return best, how
    found, chosen = searched(
        best, bound, fetches, computes, buffers, repeats, fetch_delays, compute_delays, fetch_works, compute_works,
        fetch_times, compute_times, resources, summed(fetch_counts, fetch_works), summed(compute_counts, compute_works),
        computing > fetching, [],
    )  # fmt: skip
    return found, how if chosen < 0 else chosen


def step_seconds(
    fetches: Sequence[int], computes: Sequence[int], buffers: int, repeats: int, barrier_only: bool, resources: int,
    entries: Sequence[int], pairs: Sequence[int], window_computes: Sequence[int], window_fetches: Sequence[int],
    window_of_layer: Sequence[int], window_counts: Sequence[int], fetch_counts: Sequence[int],
    compute_counts: Sequence[int], numbers: Sequence[float],
) -> float:  # fmt: skip
    """Seconds per step of layers that are described by whole numbers alone, and their numbers: `prefetching`, plainly.

    What describes them is `Prefetching.plain`.
    """
    kinds, others = len(fetch_counts), len(compute_counts)
    fetch_delays, compute_delays = [0.0] * kinds, [0.0] * others
    fetch_times, compute_times = [0.0] * (kinds * resources), [0.0] * (others * resources)
    fetch_works, compute_works = [0.0] * kinds, [0.0] * others
    fetch_alone, compute_alone = [0.0] * kinds, [0.0] * others
    spread(entries, numbers, FETCH, resources, fetch_delays, fetch_times)
    spread(entries, numbers, 1 - FETCH, resources, compute_delays, compute_times)
    longest(fetch_times, resources, fetch_works)
    longest(compute_times, resources, compute_works)
    alone(fetch_delays, fetch_works, fetch_alone)
    alone(compute_delays, compute_works, compute_alone)
    bound = max(summed(fetch_counts, fetch_alone), summed(compute_counts, compute_alone),
                loaded(fetch_counts, compute_counts, fetch_times, compute_times, resources))  # fmt: skip
    best = barred(pairs, resources, fetch_alone, compute_alone, compute_delays, fetch_times, compute_times)
    if not barrier_only and best > bound * NEAR:
        best, _ = beyond(
            best, bound, fetches, computes, buffers, repeats, resources, window_computes, window_fetches,
            window_of_layer, window_counts, fetch_counts, compute_counts, fetch_delays, compute_delays, fetch_works,
            compute_works, fetch_times, compute_times, fetch_alone, compute_alone,
        )  # fmt: skip
    return best * repeats
