"""The recurrence of layers that are fetched ahead, at a block of points, compiled: as `two_lanes.grown` has it at one.

Several layers at a time, so that what goes from one to the next is not stored between them. For how it is written see
`kernels_overlapped`, which it is compiled into.
"""

from __future__ import annotations

import numba

from offload import two_lanes

MADE_OF = (two_lanes,)  # what is compiled into these kernels
GROWING, WARM, EXACT = two_lanes.GROWING, two_lanes.WARM, two_lanes.EXACT


@numba.njit(cache=True, error_model="numpy")
def clear(numbers, many):
    """Nothing in the first numbers of an array."""
    for i in range(many):
        numbers[i] = 0


@numba.njit(cache=True, error_model="numpy")
def grown(fetch, compute, fetches, computes, buffers, full, many, ends, before, done, earlier, last, least, most, low,
           high):  # fmt: skip
    """Bounds of the recurrence's period, of points whose low is below their high; as `two_lanes.grown`."""
    layers = fetches.shape[0]
    clear(last, many)
    for age in range(buffers):
        slot = (-1 - age) % buffers
        kind = computes[(-1 - age) % layers]
        for i in range(many):
            ends[slot, i] = last[i]
            last[i] = last[i] - compute[kind, i] if full[i] else 0.0
    for i in range(many):
        done[i] = ends[0, i]
    newest = buffers - 1
    place = 0
    for lap in range(GROWING + 1):
        for slot in range(buffers):
            for i in range(many):
                before[slot, i] = ends[slot, i]
        for i in range(many):
            earlier[i] = done[i]
        first = place
        place = first + (layers if lap else WARM)
        newest = _layers(fetch, compute, fetches, computes, ends, newest, first, place, many, done)
        if lap == 0:
            continue
        for i in range(many):
            least[i] = most[i] = done[i] - earlier[i]
        for age in range(buffers):
            now, then = (place - 1 - age) % buffers, (first - 1 - age) % buffers
            for i in range(many):
                more = ends[now, i] - before[then, i]
                least[i] = (more if more < least[i] else least[i]) + 0.0
                most[i] = (more if more > most[i] else most[i]) + 0.0
        left = 0
        for i in range(many):
            if high[i] > low[i] * EXACT:
                low[i] = least[i] if least[i] > low[i] else low[i]
                high[i] = most[i] if most[i] < high[i] else high[i]
                left += high[i] > low[i] * EXACT
        if left == 0:
            break


@numba.njit(cache=True, error_model="numpy")
def _layers(fetch, compute, fetches, computes, ends, newest, first, last, many, done):
    """Layers one after another; the slot of the last. Several at a time, so that what goes from one to the next is not
    stored between them.
    """
    buffers, layers, place = ends.shape[0], fetches.shape[0], first
    if buffers == 2:  # the slot of the layer before is that of the layer after
        while place + 4 <= last:
            a, b, c, d = place % layers, (place + 1) % layers, (place + 2) % layers, (place + 3) % layers
            f0, f1, f2, f3 = fetches[a], fetches[b], fetches[c], fetches[d]
            c0, c1, c2, c3 = computes[a], computes[b], computes[c], computes[d]
            odd = 1 - newest
            for i in range(many):
                fetched, older, computed = done[i], ends[odd, i], ends[newest, i]
                fetched = (fetched if fetched > older else older) + fetch[f0, i]
                held = computed
                computed = (computed if computed > fetched else fetched) + compute[c0, i]
                fetched = (fetched if fetched > held else held) + fetch[f1, i]
                held = computed
                computed = (computed if computed > fetched else fetched) + compute[c1, i]
                fetched = (fetched if fetched > held else held) + fetch[f2, i]
                held = computed
                computed = (computed if computed > fetched else fetched) + compute[c2, i]
                fetched = (fetched if fetched > held else held) + fetch[f3, i]
                done[i] = fetched
                ends[odd, i] = computed
                ends[newest, i] = (computed if computed > fetched else fetched) + compute[c3, i]
            place += 4
    if buffers == 3:  # the slot of the layer before is that of the third one
        s0, s1, s2 = place % 3, (place + 1) % 3, (place + 2) % 3
        while place + 6 <= last:
            a, b, c = place % layers, (place + 1) % layers, (place + 2) % layers
            d, e, f = (place + 3) % layers, (place + 4) % layers, (place + 5) % layers
            f0, f1, f2, f3, f4, f5 = fetches[a], fetches[b], fetches[c], fetches[d], fetches[e], fetches[f]
            c0, c1, c2, c3, c4, c5 = computes[a], computes[b], computes[c], computes[d], computes[e], computes[f]
            for i in range(many):
                fetched, one, two, three = done[i], ends[s0, i], ends[s1, i], ends[s2, i]
                fetched = (fetched if fetched > one else one) + fetch[f0, i]
                one = (three if three > fetched else fetched) + compute[c0, i]
                fetched = (fetched if fetched > two else two) + fetch[f1, i]
                two = (one if one > fetched else fetched) + compute[c1, i]
                fetched = (fetched if fetched > three else three) + fetch[f2, i]
                three = (two if two > fetched else fetched) + compute[c2, i]
                fetched = (fetched if fetched > one else one) + fetch[f3, i]
                one = (three if three > fetched else fetched) + compute[c3, i]
                fetched = (fetched if fetched > two else two) + fetch[f4, i]
                two = (one if one > fetched else fetched) + compute[c4, i]
                fetched = (fetched if fetched > three else three) + fetch[f5, i]
                three = (two if two > fetched else fetched) + compute[c5, i]
                ends[s0, i] = one
                ends[s1, i] = two
                ends[s2, i] = three
                done[i] = fetched
            newest = s2
            place += 6
    while buffers > 2 and place + 2 <= last:
        slot, layer = place % buffers, place % layers
        next_slot, next_layer = (place + 1) % buffers, (place + 1) % layers
        f, c, next_f, next_c = fetches[layer], computes[layer], fetches[next_layer], computes[next_layer]
        for i in range(many):
            fetched, computed, held = done[i], ends[newest, i], ends[slot, i]
            fetched = (fetched if fetched > held else held) + fetch[f, i]
            computed = (computed if computed > fetched else fetched) + compute[c, i]
            held = ends[next_slot, i]
            ends[slot, i] = computed
            fetched = (fetched if fetched > held else held) + fetch[next_f, i]
            done[i] = fetched
            ends[next_slot, i] = (computed if computed > fetched else fetched) + compute[next_c, i]
        newest = next_slot
        place += 2
    while place < last:
        slot, layer = place % buffers, place % layers
        f, c = fetches[layer], computes[layer]
        for i in range(many):
            fetched, computed, held = done[i], ends[newest, i], ends[slot, i]
            fetched = (fetched if fetched > held else held) + fetch[f, i]
            done[i] = fetched
            ends[slot, i] = (computed if computed > fetched else fetched) + compute[c, i]
        newest = slot
        place += 1
    return newest
