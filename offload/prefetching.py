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

from offload.tracing import heavy
from offload.two_lanes import INFINITE, NEAR, TRIES, TRIES_MOST, TRIES_WAY, grown, searched, simulated, weights

BARRIER, RECURRENCE = -1, -2  # how a period is attained; from 0 on one of the ways to share


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

    @property
    def unhindered(self) -> bool:
        """Whether there are so many buffers that each lane runs on by itself."""
        return self.buffers >= 2 * len(self.fetches)

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
        self.layers, given = layers, iter(numbers)
        resources = layers.resources
        delays: list[list[float]] = []
        times: list[list[float]] = []
        for uses in (layers.fetch_uses, layers.compute_uses):
            delays.append([])
            times.append([0.0] * (len(uses) * resources))
            for kind, names in enumerate(uses):
                delays[-1].append(next(given))
                for name in names:
                    times[-1][kind * resources + name] = next(given)
        works = [[max(0.0, *of[kind * resources : (kind + 1) * resources]) for kind in range(len(of) // resources)]
                 for of in times]  # fmt: skip
        self.fetch, self.compute = ([delay + work for delay, work in zip(*both, strict=True)]
                                    for both in zip(delays, works, strict=True))  # fmt: skip
        self.lanes = (delays[0], delays[1], works[0], works[1], times[0], times[1], resources)
        self.counts = layers.counts()
        self.fetching, self.computing = self._sum(0, self.fetch), self._sum(1, self.compute)

    def _sum(self, lane: int, of_kinds: Sequence[float]) -> float:
        found = 0.0
        for count, one in zip(self.counts[lane], of_kinds, strict=True):
            found = found + count * one
        return found

    def period(self) -> tuple[float, int]:
        """Seconds per lap, and how."""
        layers = self.layers
        bound = max(self.fetching, self.computing, self._load())
        best, how = self.barrier(), BARRIER
        if layers.barrier_only or best <= bound * NEAR:
            return best, how
        low, high = self._grown(self.compute, layers.computes, self.computing)
        bound = max(bound, low)
        slowed = self.slowed()
        if slowed is not None:
            if slowed:
                total = 0.0
                for window, one in enumerate(slowed):
                    total = total + layers.window_of_layer.count(window) * one
                high = self._grown(slowed, layers.window_of_layer, total)[1]
            if high < best:
                best, how = high, RECURRENCE
            if best <= bound * NEAR:
                return best, how
        found, chosen = searched(
            best, bound, layers.fetches, layers.computes, layers.buffers, layers.repeats, *self.lanes,
            *self._works(), self.computing > self.fetching, [],
        )  # fmt: skip
        return found, how if chosen < 0 else chosen

    def _works(self) -> tuple[float, float]:
        return self._sum(0, self.lanes[2]), self._sum(1, self.lanes[3])

    def _load(self) -> float:
        """What the busiest of the resources that both lanes use is busy in a lap [s]; of others a lane is not below."""
        *_, fetch_times, compute_times, resources = self.lanes
        used = (set().union(*self.layers.fetch_uses), set().union(*self.layers.compute_uses))
        return max((self._sum(0, fetch_times[r::resources]) + self._sum(1, compute_times[r::resources])
                    for r in used[0] & used[1]), default=0.0)  # fmt: skip

    def together(self, compute: int, fetch: int) -> float:
        """Both from the same time on: each alone, or what they share [s]."""
        _, delays, _, _, fetch_times, compute_times, resources = self.lanes
        found = self.compute[compute]
        for r in range(resources):
            a, b = fetch_times[fetch * resources + r], compute_times[compute * resources + r]
            if a > 0 and b > 0:
                found = max(found, delays[compute] + (b + a))
        return max(found, self.fetch[fetch])

    def barrier(self) -> float:
        """A lap with a barrier per layer [s]."""
        found = 0.0
        for pair, count in self.layers.pairs.items():
            found = found + count * self.together(*pair)
        return found

    def _grown(self, compute: Sequence[float], computes: Sequence[int], computing: float) -> tuple[float, float]:
        layers = self.layers
        if layers.unhindered:
            longest = max(self.fetching, computing)
            return longest, longest
        return grown(self.fetch, compute, layers.fetches, computes, layers.buffers, computing > self.fetching,
                     [0.0] * layers.buffers, [0.0] * layers.buffers)  # fmt: skip

    def slowed(self) -> list[float] | None:
        """By window, the seconds of its compute beside the fastest fetch of it; empty where none is slowed by all of
        them, None where one stands still.
        """
        _, delays, fetch_works, works, fetch_times, times, resources = self.lanes
        crowded, found = False, []
        for compute, beside in self.layers.windows:
            work = works[compute]
            for r in range(resources):
                own = times[compute * resources + r]
                load = fastest = 0.0
                for kind, count in enumerate(beside):
                    if count:
                        load = load + count * fetch_times[kind * resources + r]
                        if fetch_works[kind] > 0:
                            fastest = max(fastest, fetch_times[kind * resources + r] / fetch_works[kind])
                if own > 0 and load > 0:
                    crowded = crowded or own + load > works[compute]
                    work = max(work, own / (1 - fastest) if fastest < 1 else INFINITE)
            found.append(delays[compute] + work)
        if not crowded:
            return []
        return None if INFINITE in found else found

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
