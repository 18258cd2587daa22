"""The period of streamed layers at all points of a grid, compiled: bit for bit what `prefetching` gives at each.

A block of points at a time goes through what `prefetching` tries, one operation over all its points after another; the
ways to share, where neither a barrier per layer nor the recurrence is at a bound, run point by point and are the very
functions of `two_lanes`.

A maximum that goes back to where one of its numbers lies is written with `+ 0.0`: without it the compiler stores only
where the other number is larger, element by element behind a mask, which takes some processors five times as long.
No part of an array is taken out as one of its own: each is counted by an instruction that the threads wait for. An
index that is a sum is one of whole numbers without a sign: of others each is asked whether it counts from the end.
"""

from __future__ import annotations

import numba
import numpy as np
from numba.extending import register_jitable

from offload import two_lanes
from offload.sweeps import kernels_recurrence
from offload.sweeps.kernels_recurrence import clear, grown

MADE_OF = (two_lanes, kernels_recurrence)  # what is compiled into these kernels
BLOCK = 384
LINE = 8  # numbers in a line of a processor's cache
NEAR = two_lanes.NEAR
LEFT = -1.0  # a point that is not found yet
FETCH, COMPUTE, DELAY = 0, 1, -1

for _one in (two_lanes.speeds, two_lanes.weights, two_lanes.simulated, two_lanes.searched):
    register_jitable(_one)
_searched = two_lanes.searched


@numba.njit(cache=True, error_model="numpy")
def _totals(counts, kinds, many, into):
    """How long a lane takes in a lap."""
    clear(into, many)
    for kind in range(kinds.shape[0]):
        count = counts[kind]
        for i in range(many):
            into[i] = into[i] + count * kinds[kind, i]


@numba.njit(cache=True, error_model="numpy")
def _barrier(pairs, fetch, compute, compute_delays, fetch_times, compute_times, resources, uses_f, uses_c, many, both,
             into):  # fmt: skip
    """A lap with a barrier per layer."""
    clear(into, many)
    for pair in range(pairs.shape[0]):
        c, f, count = pairs[pair, 0], pairs[pair, 1], float(pairs[pair, 2])
        last, shared = -1, 0  # the last resource that both use: it is done together with what comes after
        for r in range(resources):
            if uses_f[f, r] and uses_c[c, r]:
                last = r
                shared += 1
        if shared == 1:
            for i in range(many):
                longest = compute[c, i] if compute[c, i] > fetch[f, i] else fetch[f, i]
                a, b = fetch_times[f * resources + last, i], compute_times[c * resources + last, i]
                together = compute_delays[c, i] + (b + a)
                together = together if (a > 0) & (b > 0) else 0.0
                longest = together if together > longest else longest
                into[i] = into[i] + count * longest
            continue
        if shared == 0:
            for i in range(many):
                longest = compute[c, i] if compute[c, i] > fetch[f, i] else fetch[f, i]
                into[i] = into[i] + count * longest
            continue
        for i in range(many):
            both[i] = compute[c, i] if compute[c, i] > fetch[f, i] else fetch[f, i]
        for r in range(last):
            if not (uses_f[f, r] and uses_c[c, r]):
                continue
            for i in range(many):
                a, b = fetch_times[f * resources + r, i], compute_times[c * resources + r, i]
                together = compute_delays[c, i] + (b + a)
                together = together if (a > 0) & (b > 0) else 0.0
                both[i] = (together if together > both[i] else both[i]) + 0.0
        for i in range(many):
            a, b = fetch_times[f * resources + last, i], compute_times[c * resources + last, i]
            together = compute_delays[c, i] + (b + a)
            together = together if (a > 0) & (b > 0) else 0.0
            longest = together if together > both[i] else both[i]
            into[i] = into[i] + count * longest


@numba.njit(cache=True, error_model="numpy")
def _crowds(of_windows, beside, works, fetch_times, times, resources, uses_f, uses_c, fetched, count, many, load,
            crowded):  # fmt: skip
    """Where a compute has not all that it asks of a resource beside all fetches of a window; whether that is anywhere.
    """
    clear(crowded, many)
    maybe = False
    for c in range(works.shape[0]):  # beside so many of the fetch that asks for most
        for r in range(resources):
            if not uses_c[c, r] or not fetched[r]:
                continue
            clear(load, many)
            for kind in range(beside.shape[1]):
                if uses_f[kind, r]:
                    for i in range(many):
                        time = fetch_times[kind * resources + r, i]
                        load[i] = (time if time > load[i] else load[i]) + 0.0
            over = 0
            for i in range(many):
                over += times[c * resources + r, i] + load[i] * (count * NEAR) > works[c, i]
            maybe = maybe or over > 0
    if not maybe:
        return False
    found = 0
    for window in range(of_windows.shape[0]):
        c = of_windows[window]
        for r in range(resources):
            if not uses_c[c, r] or not fetched[r]:
                continue
            clear(load, many)
            for kind in range(beside.shape[1]):
                count = beside[window, kind]
                if count > 0 and uses_f[kind, r]:
                    for i in range(many):
                        load[i] = load[i] + count * fetch_times[kind * resources + r, i]
            for i in range(many):
                own = times[c * resources + r, i]
                if own > 0 and load[i] > 0 and own + load[i] > works[c, i]:
                    crowded[i] = True
                    found += 1
    return found > 0


@numba.njit(cache=True, error_model="numpy")
def _slowed(of_windows, beside, compute_delays, fetch_works, works, fetch_times, times, resources, uses_f, uses_c,
            fetched, many, fastest, into, stands):  # fmt: skip
    """By window, the seconds of its compute beside the fastest fetch of it; where one stands still."""
    clear(stands, many)
    for window in range(of_windows.shape[0]):
        c = of_windows[window]
        for i in range(many):
            into[window, i] = works[c, i]
        for r in range(resources):
            if not uses_c[c, r] or not fetched[r]:
                continue
            clear(fastest, many)
            for kind in range(beside.shape[1]):
                if beside[window, kind] > 0 and uses_f[kind, r]:
                    for i in range(many):
                        time, work = fetch_times[kind * resources + r, i], fetch_works[kind, i]
                        share = time / work if work > 0 else 0.0
                        fastest[i] = (share if share > fastest[i] else fastest[i]) + 0.0
            for i in range(many):
                own = times[c * resources + r, i]
                if own > 0 and fastest[i] > 0:
                    if fastest[i] < 1:
                        slow = own / (1 - fastest[i])
                        if slow > into[window, i]:
                            into[window, i] = slow
                    else:
                        stands[i] = True
        for i in range(many):
            into[window, i] = compute_delays[c, i] + into[window, i]


@numba.njit(cache=True, parallel=True, error_model="numpy")
def run(fetches, computes, buffers, barrier_only, repeats, resources, entries, pairs, of_windows, beside,
        window_of_layer, fetch_counts, compute_counts, uses_f, uses_c, along, leaves, offsets, strides, lengths, inner,
        outputs, workers):  # fmt: skip
    """Seconds per step at the points of a grid, walked in rows of its innermost axis.

    fetches, computes, window_of_layer : (layers,) kinds and windows of a lap. entries : (numbers, 4) int64: lane, kind,
    resource (-1: its delay), leaf. pairs : (pairs, 3): compute, the fetch after it, how often. of_windows : (windows,)
    kinds of computes; beside : (windows, kinds of fetches) float64. ..._counts : float64, how often each is in a lap.
    uses_f, uses_c : (kinds, resources) bool. along : (leaves,) whether one varies along a row; leaves, offsets,
    strides, lengths : as in `kernels.run`. outputs : (rows, inner) float64.
    """
    rows, axes = outputs.shape[0], lengths.shape[0]
    f_kinds, c_kinds = fetch_counts.shape[0], compute_counts.shape[0]
    unhindered = buffers >= 2 * fetches.shape[0]
    slots = 1 if unhindered else buffers
    window_counts = np.zeros(of_windows.shape[0])
    for layer in range(window_of_layer.shape[0]):
        window_counts[window_of_layer[layer]] += 1
    ahead = beside[:1].sum()  # how many fetches are beside a compute of a window, the same of each
    fetched, shared = np.zeros(resources, np.bool_), np.zeros(resources, np.bool_)
    for r in range(resources):
        fetched[r] = uses_f[:, r].any()
        shared[r] = fetched[r] and uses_c[:, r].any()
    varying_f, varying_c = _varying(entries, along, FETCH, f_kinds, resources), _varying(
        entries, along, COMPUTE, c_kinds, resources)  # fmt: skip
    for worker in numba.prange(workers):
        begin, end = rows * worker // workers, rows * (worker + 1) // workers
        delays_f, delays_c = _lines(f_kinds), _lines(c_kinds)
        times_f, times_c = _lines(f_kinds * resources), _lines(c_kinds * resources)
        works_f, works_c = _lines(f_kinds), _lines(c_kinds)
        solo_f, solo_c = _lines(f_kinds), _lines(c_kinds)
        slow = _lines(of_windows.shape[0])
        ends, before = _lines(slots), _lines(slots)
        some = _lines(14)
        fetching, computing, bound, best, low, high = some[0], some[1], some[2], some[3], some[4], some[5]
        computing2, low2, high2 = some[6], some[7], some[8]  # with computes that are slowed
        one, two, three, four, five = some[9], some[10], some[11], some[12], some[13]
        full, crowded, stands = np.zeros(BLOCK, np.bool_), np.zeros(BLOCK, np.bool_), np.zeros(BLOCK, np.bool_)
        found = np.zeros(BLOCK)
        point = np.zeros(2 * (f_kinds + c_kinds) + resources * (f_kinds + c_kinds))
        start = offsets.copy()
        index = np.zeros(axes, np.int64)
        left = begin
        for axis in range(axes - 1, -1, -1):
            index[axis] = left % lengths[axis]
            left //= lengths[axis]
        for leaf in range(offsets.shape[0]):
            for axis in range(axes):
                start[leaf] += index[axis] * strides[leaf, axis]
        for row in range(begin, end):
            for first in range(0, inner, BLOCK):
                many = min(BLOCK, inner - first)
                for entry in range(entries.shape[0]):
                    lane, kind, r, leaf = entries[entry, 0], entries[entry, 1], entries[entry, 2], entries[entry, 3]
                    if first > 0 and not along[leaf]:
                        continue  # the same along the row
                    if lane == FETCH and r == DELAY:
                        _filled(leaves, start[leaf], along[leaf], first, many, delays_f, kind)
                    elif lane == FETCH:
                        _filled(leaves, start[leaf], along[leaf], first, many, times_f, kind * resources + r)
                    elif r == DELAY:
                        _filled(leaves, start[leaf], along[leaf], first, many, delays_c, kind)
                    else:
                        _filled(leaves, start[leaf], along[leaf], first, many, times_c, kind * resources + r)
                _alone(delays_f, times_f, resources, uses_f, many, varying_f, first, works_f, solo_f)
                _alone(delays_c, times_c, resources, uses_c, many, varying_c, first, works_c, solo_c)
                if not barrier_only:
                    _totals(fetch_counts, solo_f, many, fetching)
                    _totals(compute_counts, solo_c, many, computing)
                    _most_loaded(fetch_counts, compute_counts, times_f, times_c, resources, uses_f, uses_c, shared,
                                 fetching, computing, many, one, two, bound)
                _barrier(pairs, solo_f, solo_c, delays_c, times_f, times_c, resources, uses_f, uses_c, many, one, best)
                if barrier_only:
                    _written(best, repeats, many, outputs, row, first)
                    continue
                count = 0
                for i in range(many):
                    full[i] = computing[i] > fetching[i]
                    near = best[i] <= bound[i] * NEAR
                    found[i] = best[i] if near else LEFT
                    count += not near
                if count:
                    clear(stands, many)
                    crowds = _crowds(of_windows, beside, works_c, times_f, times_c, resources, uses_f, uses_c, fetched,
                                     ahead, many, one, crowded)
                    if crowds:
                        _slowed(of_windows, beside, delays_c, works_f, works_c, times_f, times_c, resources, uses_f,
                                uses_c, fetched, many, one, slow, stands)
                    others = 0
                    for i in range(many):
                        low[i], high[i] = 0.0, np.inf if found[i] == LEFT else 0.0
                        others += (found[i] == LEFT) & crowded[i] & (not stands[i])
                    if unhindered:
                        for i in range(many):
                            low[i] = high[i] = computing[i] if computing[i] > fetching[i] else fetching[i]
                    else:
                        grown(solo_f, solo_c, fetches, computes, buffers, full, many, ends, before, one, two, three,
                               four, five, low, high)
                    if others:
                        _totals(window_counts, slow, many, computing2)
                        for i in range(many):
                            full[i] = computing2[i] > fetching[i]
                            needed = found[i] == LEFT and crowded[i] and not stands[i]
                            low2[i], high2[i] = 0.0, np.inf if needed else 0.0
                            if unhindered:
                                high2[i] = computing2[i] if computing2[i] > fetching[i] else fetching[i]
                        if not unhindered:
                            grown(solo_f, slow, fetches, window_of_layer, buffers, full, many, ends, before, one,
                                   two, three, four, five, low2, high2)
                    for i in range(many if crowds else 0):
                        if crowded[i]:
                            high[i] = best[i] if stands[i] else high2[i]
                    count = 0
                    for i in range(many):
                        bound[i] = (low[i] if low[i] > bound[i] else bound[i]) + 0.0
                        best[i] = (high[i] if high[i] < best[i] else best[i]) + 0.0
                        left = found[i] == LEFT
                        found[i] = best[i] if left & (best[i] <= bound[i] * NEAR) else found[i]
                        count += found[i] == LEFT
                    for i in range(many if count else 0):
                        if found[i] == LEFT:
                            found[i] = _at(i, best[i], bound[i], fetches, computes, buffers, repeats, delays_f,
                                           delays_c, works_f, works_c, times_f, times_c, resources, fetch_counts,
                                           compute_counts, computing[i] > fetching[i], point)
                _written(found, repeats, many, outputs, row, first)
            # The next row: the last outer axis one on, and where one is at its end, the one before it.
            axis = axes - 1
            while axis >= 0:
                index[axis] += 1
                for leaf in range(offsets.shape[0]):
                    start[leaf] += strides[leaf, axis]
                if index[axis] < lengths[axis]:
                    break
                for leaf in range(offsets.shape[0]):
                    start[leaf] -= strides[leaf, axis] * lengths[axis]
                index[axis] = 0
                axis -= 1


@numba.njit(cache=True, error_model="numpy")
def _lines(rows):
    """Rows of a block's numbers, zeros, each from the start of a line of the cache on: what wide instructions read and
    write is then never parted over two lines, which would take up to twice as long.
    """
    numbers = np.zeros(rows * BLOCK + LINE)
    skipped = -(numbers.ctypes.data // 8) % LINE
    return numbers[skipped : skipped + rows * BLOCK].reshape(rows, BLOCK)


@numba.njit(cache=True, error_model="numpy")
def _filled(leaves, start, along, first, many, into, row):
    """The numbers of a block, or the one of a row."""
    if along:
        at = np.uintp(start + first)
        for i in range(many):
            into[row, i] = leaves[at + np.uintp(i)]
    else:
        for i in range(into.shape[1]):
            into[row, i] = leaves[start]


@numba.njit(cache=True, error_model="numpy")
def _written(found, repeats, many, outputs, row, first):
    at = np.uintp(first)
    for i in range(many):
        outputs[row, at + np.uintp(i)] = found[i] * repeats


@numba.njit(cache=True, error_model="numpy")
def _varying(entries, along, lane, kinds, resources):
    """Of each kind of a lane, whether its delay or any of its times varies along a row, and each of its times."""
    found = np.zeros((kinds, 1 + resources), np.bool_)
    for entry in range(entries.shape[0]):
        if entries[entry, 0] == lane and along[entries[entry, 3]]:
            found[entries[entry, 1], 0] = found[entries[entry, 1], 1 + entries[entry, 2]] = True
    return found


@numba.njit(cache=True, error_model="numpy")
def _alone(delays, times, resources, uses, many, varying, first, works, solo):
    """Of each kind the longest of its times, and with its delay. varying : (kinds, 1 + resources), whether anything of
    it is not the same along a row, and which of its times: the rest of a row is known from its first block.
    """
    for kind in range(delays.shape[0]):
        if first > 0 and not varying[kind, 0]:
            continue
        longest = 0.0
        for r in range(resources):
            if uses[kind, r] and not varying[kind, 1 + r] and times[kind * resources + r, 0] > longest:
                longest = times[kind * resources + r, 0]
        for i in range(works.shape[1]):
            works[kind, i] = longest
        for r in range(resources):
            if uses[kind, r] and varying[kind, 1 + r]:
                for i in range(many):
                    time = times[kind * resources + r, i]
                    works[kind, i] = (time if time > works[kind, i] else works[kind, i]) + 0.0
        for i in range(many):
            solo[kind, i] = delays[kind, i] + works[kind, i]


@numba.njit(cache=True, error_model="numpy")
def _most_loaded(fetch_counts, compute_counts, times_f, times_c, resources, uses_f, uses_c, shared, fetching, computing,
                 many, one, two, bound):  # fmt: skip
    """What no lap is below: what each lane takes, and what each resource that both use has to serve."""
    for i in range(many):
        bound[i] = fetching[i] if fetching[i] > computing[i] else computing[i]
    for r in range(resources):
        if not shared[r]:
            continue
        _served(fetch_counts, times_f, resources, uses_f, r, many, one)
        _served(compute_counts, times_c, resources, uses_c, r, many, two)
        for i in range(many):
            both = one[i] + two[i]
            bound[i] = (both if both > bound[i] else bound[i]) + 0.0


@numba.njit(cache=True, error_model="numpy")
def _served(counts, times, resources, uses, r, many, into):
    clear(into, many)
    for kind in range(counts.shape[0]):
        if uses[kind, r]:
            for i in range(many):
                into[i] = into[i] + counts[kind] * times[kind * resources + r, i]


@numba.njit(cache=True, error_model="numpy")
def _at(i, best, bound, fetches, computes, buffers, repeats, delays_f, delays_c, works_f, works_c, times_f, times_c,
        resources, fetch_counts, compute_counts, full, point):  # fmt: skip
    """The ways to share at one point."""
    at = 0
    parts = []
    for block in (delays_f, delays_c, works_f, works_c, times_f, times_c):
        many = block.shape[0]
        part = point[at : at + many]
        for kind in range(many):
            part[kind] = block[kind, i]
        parts.append(part)
        at += many
    fetching = computing = 0.0
    for kind in range(fetch_counts.shape[0]):
        fetching = fetching + fetch_counts[kind] * works_f[kind, i]
    for kind in range(compute_counts.shape[0]):
        computing = computing + compute_counts[kind] * works_c[kind, i]
    none = point[:0]
    found, _ = _searched(best, bound, fetches, computes, buffers, repeats, parts[0], parts[1], parts[2], parts[3],
                         parts[4], parts[5], resources, fetching, computing, full, none)  # fmt: skip
    return found
