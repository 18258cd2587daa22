"""What a sweep found: figures over axes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy

from offload.sweeps.axes import Axis
from offload.sweeps.overlapping import Told


@dataclass(frozen=True, slots=True)
class Grid:
    """Figures at every point, each of the shape of the axes (the first axis slowest); None where not asked for.

    floor, serial : seconds of steps back to back; NaN where no step can be made. binding : int16, the place in `names`
    of the first resource that binds the floor, -1 where the order of the step does, -2 where nothing is counted.
    spare : bytes left in the fullest memory, below zero what it lacks (NaN where no size is known). tokens : of a step.
    overlapped : seconds of steps back to back where transfers and computes overlap, as `schedule` has them; told : how
    many of its points were found how. wrong : why steps cannot be made, by how many points say so.
    """

    axes: tuple[Axis, ...]
    names: tuple[str, ...]
    floor: numpy.ndarray | None
    serial: numpy.ndarray | None
    binding: numpy.ndarray | None
    spare: numpy.ndarray | None
    tokens: numpy.ndarray | None
    overlapped: numpy.ndarray | None = None
    wrong: Mapping[str, int] = field(default_factory=dict)
    told: Told = field(default_factory=Told)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(axis) for axis in self.axes)

    @property
    def fits(self) -> numpy.ndarray:
        """Where everything fits into its memory, as far as sizes are known."""
        return ~(self.spare < 0) & ~numpy.isnan(self.floor)
