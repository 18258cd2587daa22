"""Rounds of steps: where something happens every n steps, so many steps as one, in which it happens once."""

from __future__ import annotations

from dataclasses import replace
from math import lcm

from offload.step import Row, Step, Wait

MOST_UNROLLED = 20_000  # instances of a round of steps in which what happens every n steps happens once


def unrolled(step: Step) -> tuple[Step | None, int]:
    """A round of steps in which what happens every n steps happens once every n; None where it would be too long."""
    rounds = [row.every for row in step.rows if row.every > 1]
    if not rounds:
        return step, 1
    steps = lcm(*rounds)
    if steps * len(step.instances) > MOST_UNROLLED:
        return None, 1
    return _round(step, steps), steps


def _round(step: Step, steps: int) -> Step:
    """So many steps as one: what happens every n steps happens in every n-th, and takes no time in the others."""
    count = len(step.instances)
    active = [[(lap + 1) % step.rows[row].every == 0 for row in step.instances] for lap in range(steps)]
    nothing = len(step.rows)
    waits = [
        [Wait(lap * count + wait.on, wait.streams) for wait in waits] for lap in range(steps) for waits in step.waits
    ]
    wraps = []
    for later, earlier, tokens in step.wraps:
        for lap in range(steps):
            rounds, onto = divmod(lap + tokens, steps)
            if rounds:
                wraps.append((lap * count + later, onto * count + earlier, rounds))
            else:
                waits[onto * count + earlier].append(Wait(lap * count + later, False))
    slots = []
    for one in step.slots:
        fetches, releases = [], []
        for lap in range(steps):
            for fetch, given in zip(one.fetches, one.releases, strict=True):
                if active[lap][fetch]:
                    fetches.append(lap * count + fetch)
                    due = [(divmod(lap + later, steps), release) for release, later in given]
                    releases.append(tuple((at * count + release, rounds) for (rounds, at), release in due))
        slots.append(replace(one, fetches=tuple(fetches), releases=tuple(releases)))
    return replace(
        step,
        rows=(*(replace(row, every=1) for row in step.rows), Row("", "", False, ())),
        instances=tuple(row if active[lap][i] else nothing for lap in range(steps)
                        for i, row in enumerate(step.instances)),
        waits=tuple(tuple(one) for one in waits),
        slots=tuple(slots),
        wraps=tuple(wraps),
        first_compute=None,
        last_compute=None,
    )  # fmt: skip
