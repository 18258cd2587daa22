"""The period of layers that are fetched ahead, as a function of the numbers of their kinds (`two_lanes`).

What is found is the shortest of: a loop with a barrier per layer, which two buffers allow; the recurrence, where no
compute is slowed by the fetches that may run beside it, or with computes as slow as beside the fastest of them; and the
ways to share, unless one of those is at a bound. Layers that come round again within a step (a b a b) are one lap of it
many times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from offload.laps import BARRIER, DELAY, FETCH, alone, barred, beyond, loaded, longest, spread, summed, together
from offload.laps import RECURRENCE as RECURRENCE  # how a period is attained, as BARRIER
from offload.tracing import heavy
from offload.two_lanes import NEAR, TRIES, TRIES_MOST, TRIES_WAY, simulated, weights


@dataclass(frozen=True, slots=True)
class Sharing:
    """Two lanes that share by weights, the larger of them 1, with at most so many buffers."""

    by_fetch: float
    by_compute: float
    buffers: int


@dataclass(frozen=True)
class Prefetching(heavy):
    """Seconds per step of layers in k buffers, as a function of numbers: `layers(*numbers)`.

    fetches, computes : the kind of each layer's fetch and compute, of one lap. repeats : laps in a step. fetch_uses,
    compute_uses : the resources of each kind, by number. barrier_only : nothing is shorter than a barrier per layer.
    The numbers are of each kind of fetch, then of each kind of compute: its delay, and its seconds on each of its
    resources.
    """

    fetches: tuple[int, ...]
    computes: tuple[int, ...]
    repeats: int
    buffers: int
    fetch_uses: tuple[tuple[int, ...], ...]
    compute_uses: tuple[tuple[int, ...], ...]
    barrier_only: bool

    @classmethod
    def of(
        cls, fetches: Sequence[int], computes: Sequence[int], buffers: int, fetch_uses: Sequence[tuple[int, ...]],
        compute_uses: Sequence[tuple[int, ...]], barrier_only: bool,
    ) -> Prefetching:
        """The same from all layers of a step. More buffers than two laps have layers are never waited for."""
        pairs = list(zip(fetches, computes, strict=True))
        lap = next(n for n in range(1, len(pairs) + 1)
                   if len(pairs) % n == 0 and pairs == pairs[:n] * (len(pairs) // n))  # fmt: skip
        return cls(tuple(fetches[:lap]), tuple(computes[:lap]), len(pairs) // lap, min(buffers, 2 * lap),
                   tuple(fetch_uses), tuple(compute_uses), barrier_only)  # fmt: skip

    @property
    def resources(self) -> int:
        return 1 + max(max(one, default=0) for one in (*self.fetch_uses, *self.compute_uses))

    @cached_property
    def pairs(self) -> dict[tuple[int, int], int]:
        """(compute, the fetch after it): how often in a lap, in the order in which they are met."""
        found: dict[tuple[int, int], int] = {}
        for place, compute in enumerate(self.computes):
            pair = compute, self.fetches[(place + 1) % len(self.fetches)]
            found[pair] = found.get(pair, 0) + 1
        return found

    @cached_property
    def windows(self) -> dict[tuple[int, tuple[int, ...]], int]:
        """(compute, how many fetches of each kind may run beside it): its number."""
        found: dict[tuple[int, tuple[int, ...]], int] = {}
        for one in self._windows:
            found.setdefault(one, len(found))
        return found

    @cached_property
    def window_of_layer(self) -> tuple[int, ...]:
        return tuple(self.windows[one] for one in self._windows)

    @cached_property
    def _windows(self) -> list[tuple[int, tuple[int, ...]]]:
        layers = len(self.fetches)
        many = min(self.buffers - 1, layers)  # while a lap takes as long as it does, no more are fetched
        found = []
        for place, compute in enumerate(self.computes):
            beside = [self.fetches[(place + 1 + more) % layers] for more in range(many)]
            found.append((compute, tuple(beside.count(kind) for kind in range(len(self.fetch_uses)))))
        return found

    def counts(self) -> tuple[list[int], list[int]]:
        """How often each kind of fetch, and of compute, is in a lap."""
        return ([self.fetches.count(kind) for kind in range(len(self.fetch_uses))],
                [self.computes.count(kind) for kind in range(len(self.compute_uses))])  # fmt: skip

    @cached_property
    def entries(self) -> list[int]:
        """Lane, kind and resource of each number, one after another; of a delay DELAY for the resource."""
        lanes = ((FETCH, self.fetch_uses), (1 - FETCH, self.compute_uses))
        return [one for lane, uses in lanes for kind, names in enumerate(uses) for name in (DELAY, *names)
                for one in (lane, kind, name)]  # fmt: skip

    @cached_property
    def flat_pairs(self) -> list[int]:
        return [one for pair, count in self.pairs.items() for one in (*pair, count)]

    @cached_property
    def flat_windows(self) -> tuple[list[int], list[int], tuple[int, ...], list[int]]:
        """The compute of each window, the fetches beside it, the window of each layer, how often each is in a lap."""
        counts = [self.window_of_layer.count(one) for one in range(len(self.windows))]
        return ([compute for compute, _ in self.windows], [one for _, beside in self.windows for one in beside],
                self.window_of_layer, counts)  # fmt: skip

    def plain(self) -> tuple[Any, ...]:
        """What `laps.step_seconds` is given before the numbers: whole numbers and lists of them."""
        windows = ([], [], [], []) if self.barrier_only else self.flat_windows
        return (self.fetches, self.computes, self.buffers, self.repeats, self.barrier_only, self.resources,
                self.entries, self.flat_pairs, *windows, *self.counts())  # fmt: skip

    def __call__(self, *numbers: float) -> float:
        return _Period(self, numbers).period()[0] * self.repeats

    def attained(self, numbers: Sequence[float]) -> tuple[float, float, int | Sharing, int | Sharing]:
        """(period, one step from empty buffers) [s], and how each is attained."""
        found = _Period(self, numbers)
        period, how = found.period()
        cold, its = found.cold()
        return period * self.repeats, cold, found.sharing(how), found.sharing(its)

    def run(self, numbers: Sequence[float], sharing: Sharing, layers: int) -> tuple[list[float], list[float]]:
        """When the fetch and the compute of so many layers start and end, in turn, from empty buffers [s]."""
        starts, ends = [0.0] * (2 * layers), [0.0] * (2 * layers)
        found = _Period(self, numbers)
        simulated(self.fetches, self.computes, sharing.buffers, *found.lanes, sharing.by_fetch, sharing.by_compute,
                  False, layers, starts, ends)  # fmt: skip
        return starts, ends


class _Period:
    def __init__(self, layers: Prefetching, numbers: Sequence[float]):
        self.layers = layers
        resources = layers.resources
        delays, times, works, both = [], [], [], []
        for lane, uses in ((FETCH, layers.fetch_uses), (1 - FETCH, layers.compute_uses)):
            delays.append([0.0] * len(uses))
            times.append([0.0] * (len(uses) * resources))
            works.append([0.0] * len(uses))
            both.append([0.0] * len(uses))
            spread(layers.entries, numbers, lane, resources, delays[-1], times[-1])
            longest(times[-1], resources, works[-1])
            alone(delays[-1], works[-1], both[-1])
        self.fetch, self.compute = both
        self.lanes = (delays[0], delays[1], works[0], works[1], times[0], times[1], resources)
        self.counts = layers.counts()

    def period(self) -> tuple[float, int]:
        """Seconds per lap, and how."""
        layers = self.layers
        _, compute_delays, _, _, fetch_times, compute_times, resources = self.lanes
        bound = max(summed(self.counts[0], self.fetch), summed(self.counts[1], self.compute),
                    loaded(*self.counts, fetch_times, compute_times, resources))  # fmt: skip
        best = barred(layers.flat_pairs, resources, self.fetch, self.compute, compute_delays, fetch_times,
                      compute_times)  # fmt: skip
        if layers.barrier_only or best <= bound * NEAR:
            return best, BARRIER
        return beyond(best, bound, layers.fetches, layers.computes, layers.buffers, layers.repeats, resources,
                      *layers.flat_windows, *self.counts, *self.lanes[:-1], self.fetch, self.compute)  # fmt: skip

    def _works(self) -> tuple[float, float]:
        return summed(self.counts[0], self.lanes[2]), summed(self.counts[1], self.lanes[3])

    def together(self, compute: int, fetch: int) -> float:
        """Both from the same time on: each alone, or what they share [s]."""
        _, compute_delays, _, _, fetch_times, compute_times, resources = self.lanes
        return together(compute, fetch, resources, self.fetch, self.compute, compute_delays, fetch_times,
                      compute_times)  # fmt: skip

    def cold(self) -> tuple[float, int]:
        """One step from empty buffers [s], and how: a barrier per layer, or as `period` tries."""
        layers = self.layers
        count = layers.repeats * len(layers.fetches)
        best, how = self.fetch[layers.fetches[0]], BARRIER
        for place in range(count - 1):
            lap = place % len(layers.fetches)
            best = best + self.together(layers.computes[lap], layers.fetches[(lap + 1) % len(layers.fetches)])
        best = best + self.compute[layers.computes[-1]]
        fetching, computing = self._works()
        longest = max(fetching, computing)
        shares = (fetching / longest, computing / longest) if longest > 0 else (1.0, 1.0)
        for place in range(0 if layers.barrier_only else TRIES):
            if TRIES_MOST[place] < layers.buffers:
                time = simulated(layers.fetches, layers.computes, TRIES_MOST[place] or layers.buffers, *self.lanes,
                                 *weights(TRIES_WAY[place], *shares), False, count, [], [])  # fmt: skip
                if 0 <= time < best:
                    best, how = time, place
        return best, how

    def sharing(self, how: int) -> int | Sharing:
        """The weights of one of the ways to share; what is none of them as it is."""
        if how < 0:
            return how
        fetching, computing = self._works()
        longest = max(fetching, computing)
        shares = (fetching / longest, computing / longest) if longest > 0 else (1.0, 1.0)
        return Sharing(*weights(TRIES_WAY[how], *shares), TRIES_MOST[how] or self.layers.buffers)
