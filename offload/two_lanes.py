"""Layers fetched ahead into k buffers while one processor computes: two lanes, and what they share.

Fetches queue in one lane, computes in the other, each behind its own fetch, and a buffer is held from the start of a
fetch to the end of its compute (theory: F_i = max(F_i-1, C_i-k) + f_i, C_i = max(C_i-1, F_i) + c_i). What is here is
plain arithmetic on numbers in lists or arrays, so that a sweep compiles the very same functions.

`grown` : bounds of the recurrence's period. A state x after a lap tells both: no period is below the least that any of
its events grows in a lap, and one as long as the most of them is attained (every event starts that much later, lap
after lap, and waits for all that it must). Where both are equal that is the period.

`simulated` : both lanes as they run, sharing by weights. Where they share a resource that cannot serve both at their
own speed, their speeds are in proportion to the weights; where only one can go on faster, it does. Nothing asks more of
a resource than its rate, so that what it takes is attained; once the same state comes again, it repeats.
"""

from __future__ import annotations

from collections.abc import Sequence

INFINITE = float("inf")
LAPS = 12  # of a simulation, in which most repeat
GROWING = 6  # laps of the recurrence, of which most need one
WARM = 16  # layers before the first of them
EXACT = 1 + 1e-12  # bounds of a period that are equal but for rounding
NEAR = 1 + 1e-9  # of a bound: nothing shorter is looked for
ALIKE = 1e-9  # of a fetch: states that differ by less are the same
# Ways to share: the power of a lane's share of the work that weighs it; in the first two one lane goes first.
FETCH_FIRST, COMPUTE_FIRST, POWERS = 0, 1, (0.0, 0.0, 0.0, 1.0, 2.0, 4.0)
# (way, at most so many buffers; 0: all of them), in the order in which they are tried.
TRIES_WAY = (0, 1, 3, 4, 2, 5, 2, 3, 3)
TRIES_MOST = (0, 0, 0, 0, 0, 0, 3, 3, 6)
TRIES = len(TRIES_WAY)


def speeds(
    fetch: int, compute: int, by_fetch: float, by_compute: float, fetch_times: Sequence[float],
    compute_times: Sequence[float], fetch_works: Sequence[float], compute_works: Sequence[float], resources: int,
) -> tuple[float, float]:
    """How fast a fetch and a compute run beside each other, as shares of their speeds alone.

    by_fetch, by_compute : the weights, of which the larger is 1. ..._times : by kind and resource, one after another
    [s]; ..._works : the longest of each kind [s].
    """
    scale = INFINITE
    beside_fetch = beside_compute = 1.0  # what is left for one beside the other at its own speed
    for r in range(resources):
        a, b = fetch_times[fetch * resources + r], compute_times[compute * resources + r]
        if a > 0 and b > 0:
            a, b = a / fetch_works[fetch], b / compute_works[compute]
            asked = a * by_fetch + b * by_compute
            if asked * scale > 1:
                scale = 1 / asked
            if beside_fetch * b > 1 - a:
                beside_fetch = (1 - a) / b
            if beside_compute * a > 1 - b:
                beside_compute = (1 - b) / a
    if scale < 1:
        return by_fetch * scale, by_compute * scale
    if by_fetch >= by_compute:
        return 1.0, beside_fetch
    return beside_compute, 1.0


def simulated(
    fetches: Sequence[int], computes: Sequence[int], buffers: int, fetch_delays: Sequence[float],
    compute_delays: Sequence[float], fetch_works: Sequence[float], compute_works: Sequence[float],
    fetch_times: Sequence[float], compute_times: Sequence[float], resources: int, by_fetch: float, by_compute: float,
    full: bool, count: int, starts: list[float], ends: list[float],
) -> float:
    """Seconds per lap of layers over and over once they repeat, -1 where they do not; or of so many layers alone.

    fetches, computes : the kinds of a lap's layers. full : begin with all buffers full, else with none. count : of
    layers that run alone, 0 for over and over. starts, ends : get the times of each fetch and compute in turn, if they
    have places [s].
    """
    layers = len(fetches)
    told = len(starts) > 0
    fetched = buffers if full else 0
    computed = 0
    now = 0.0
    kind, other = fetches[fetched % layers], computes[0]
    fetch_waits, fetch_left = fetch_delays[kind], fetch_works[kind]
    compute_waits, compute_left = compute_delays[other], compute_works[other]
    fetch_begun = compute_begun = False
    lead1 = lead2 = lead3 = -1
    left1 = left2 = left3 = waits1 = waits2 = waits3 = time1 = time2 = time3 = 0.0
    most = 4 * ((count if count else LAPS * layers) + buffers + 1)
    for _ in range(most):
        fetching = fetched < computed + buffers and (count == 0 or fetched < count)
        computing = computed < fetched
        if told:
            if fetching and not fetch_begun:
                starts[2 * fetched] = now
                fetch_begun = True
            if computing and not compute_begun:
                starts[2 * computed + 1] = now
                compute_begun = True
        fast, quick = 1.0, 1.0
        if fetching and computing and fetch_waits <= 0 and compute_waits <= 0:
            fast, quick = speeds(kind, other, by_fetch, by_compute, fetch_times, compute_times, fetch_works,
                                 compute_works, resources)  # fmt: skip
        to_fetch = to_compute = INFINITE
        if fetching:
            if fetch_waits > 0:
                to_fetch = fetch_waits
            elif fetch_left <= 0:
                to_fetch = 0.0
            elif fast > 0:
                to_fetch = fetch_left / fast
        if computing:
            if compute_waits > 0:
                to_compute = compute_waits
            elif compute_left <= 0:
                to_compute = 0.0
            elif quick > 0:
                to_compute = compute_left / quick
        span = to_fetch if to_fetch < to_compute else to_compute
        if span == INFINITE:
            return -1.0
        now += span
        near = span * EXACT
        if fetching:
            if to_fetch <= near:
                if fetch_waits > 0:
                    fetch_waits = 0.0
                else:
                    if told:
                        ends[2 * fetched] = now
                    fetched += 1
                    fetch_begun = False
                    kind = fetches[fetched % layers]
                    fetch_waits, fetch_left = fetch_delays[kind], fetch_works[kind]
            elif fetch_waits > 0:
                fetch_waits -= span
            else:
                fetch_left -= fast * span
        if computing:
            if to_compute <= near:
                if compute_waits > 0:
                    compute_waits = 0.0
                else:
                    if told:
                        ends[2 * computed + 1] = now
                    computed += 1
                    compute_begun = False
                    if computed == count:
                        return now
                    if computed == LAPS * layers and count == 0:
                        return -1.0
                    other = computes[computed % layers]
                    compute_waits, compute_left = compute_delays[other], compute_works[other]
                    if count == 0 and computed % layers == 0:
                        lead = fetched - computed
                        same = ALIKE * (fetch_works[kind] + fetch_delays[kind])
                        if lead == lead1 and abs(fetch_left - left1) <= same and abs(fetch_waits - waits1) <= same:
                            return now - time1
                        if lead == lead2 and abs(fetch_left - left2) <= same and abs(fetch_waits - waits2) <= same:
                            return (now - time2) / 2
                        if lead == lead3 and abs(fetch_left - left3) <= same and abs(fetch_waits - waits3) <= same:
                            return (now - time3) / 3
                        lead3, left3, waits3, time3 = lead2, left2, waits2, time2
                        lead2, left2, waits2, time2 = lead1, left1, waits1, time1
                        lead1, left1, waits1, time1 = lead, fetch_left, fetch_waits, now
            elif compute_waits > 0:
                compute_waits -= span
            else:
                compute_left -= quick * span
    return -1.0


def weights(way: int, share_of_fetches: float, share_of_computes: float) -> tuple[float, float]:
    """Weights of both lanes, the larger 1, from what each has to do as a share of the longer one."""
    if way == FETCH_FIRST:
        return 1.0, 0.0
    if way == COMPUTE_FIRST:
        return 0.0, 1.0
    a, b = 1.0, 1.0
    for _ in range(int(POWERS[way])):
        a, b = a * share_of_fetches, b * share_of_computes
    return a, b


def searched(
    best: float, bound: float, fetches: Sequence[int], computes: Sequence[int], buffers: int, repeats: int,
    fetch_delays: Sequence[float], compute_delays: Sequence[float], fetch_works: Sequence[float],
    compute_works: Sequence[float], fetch_times: Sequence[float], compute_times: Sequence[float], resources: int,
    fetching: float, computing: float, full: bool, none: list[float],
) -> tuple[float, int]:
    """The least seconds per lap by the ways to share, `best` where none takes less; and which of `TRIES` it was.

    bound : near it the search ends. fetching, computing : what each lane has to do in a lap [s]. none : no places.
    Steps of `repeats` laps alone, one after another, are a way too.
    """
    chosen = -1
    longest = fetching if fetching > computing else computing
    of_fetches, of_computes = (fetching / longest, computing / longest) if longest > 0 else (1.0, 1.0)
    for place in range(TRIES):
        fewest = TRIES_MOST[place]
        if fewest >= buffers:
            continue
        by_fetch, by_compute = weights(TRIES_WAY[place], of_fetches, of_computes)
        time = simulated(fetches, computes, fewest if fewest else buffers, fetch_delays, compute_delays, fetch_works,
                         compute_works, fetch_times, compute_times, resources, by_fetch, by_compute, full, 0, none,
                         none)  # fmt: skip
        if 0 <= time < best:
            best, chosen = time, place
            if best <= bound * NEAR:
                return best, chosen
    for place in range(TRIES):
        fewest = TRIES_MOST[place]
        if fewest >= buffers:
            continue
        by_fetch, by_compute = weights(TRIES_WAY[place], of_fetches, of_computes)
        time = simulated(fetches, computes, fewest if fewest else buffers, fetch_delays, compute_delays, fetch_works,
                         compute_works, fetch_times, compute_times, resources, by_fetch, by_compute, False,
                         repeats * len(fetches), none, none) / repeats  # fmt: skip
        if 0 <= time < best:
            best, chosen = time, place
    return best, chosen


def grown(
    fetch: Sequence[float], compute: Sequence[float], fetches: Sequence[int], computes: Sequence[int], buffers: int,
    full: bool, ends: list[float], before: list[float],
) -> tuple[float, float]:
    """Bounds of the recurrence's period per lap, the upper one attained [s].

    fetch, compute : seconds by kind; fetches, computes : kinds of a lap's layers. full : begin with all buffers full.
    ends, before : places for the ends of as many computes as there are buffers.
    """
    layers = len(fetches)
    time = 0.0
    for age in range(buffers):  # the compute that ended so many layers ago
        ends[(-1 - age) % buffers] = time
        if full:
            time -= compute[computes[(-1 - age) % layers]]
    done, last = ends[0], ends[buffers - 1]
    place = 0
    low, high = 0.0, INFINITE
    for lap in range(GROWING + 1):
        for slot in range(buffers):
            before[slot] = ends[slot]
        earlier = done
        first = place
        for _ in range(layers if lap else WARM):
            slot = place % buffers
            layer = place % layers
            held = ends[slot]
            done = (done if done > held else held) + fetch[fetches[layer]]
            last = (last if last > done else done) + compute[computes[layer]]
            ends[slot] = last
            place += 1
        if lap == 0:
            continue
        least = most = done - earlier
        for age in range(buffers):
            more = ends[(place - 1 - age) % buffers] - before[(first - 1 - age) % buffers]
            least = more if more < least else least
            most = more if more > most else most
        low = least if least > low else low
        high = most if most < high else high
        if high <= low * EXACT:
            break
    return low, high
