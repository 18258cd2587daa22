"""All parts of a measurement, one after another; what goes wrong in one is told and loses no other."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from offload import __version__
from offload.errors import OffloadError
from offload.files import named
from offload.measure import conditions
from offload.measure.drives import measure_drive
from offload.measure.ending import ended_in_order
from offload.measure.figures import Budget, Collected, Tell
from offload.measure.fio_runs import by_fio
from offload.measure.gpu_libraries import by_nvbandwidth, find_gpus
from offload.measure.gpus import Gpus, measure_gpus
from offload.measure.machine import Here, find
from offload.measure.memory import measure_memory
from offload.measure.passing import measure_passing
from offload.measure.peaks import memory_peaks
from offload.measure.places import place_of
from offload.measure.processors import measure_processors
from offload.measure.settings import SHARES, THOROUGH, Settings
from offload.measure.system import System
from offload.measure.topology import Told, topology_of
from offload.readers.tools.own_measurement import FORMAT

PARTS = ("memory", "drive", "processor", "host", "gpu")
WHAT = {"memory": "host memory", "drive": "drives", "processor": "FLOP/s", "host": "copies within host memory",
        "gpu": "GPUs"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Measurement:
    """What was measured: as values, as plain data, and as a topology (None, with the reason told under `missing`, where
    the shape of the machine cannot be one; None where it was ended)."""

    collected: Collected
    data: dict[str, Any]
    told: Told | None


class Ended(KeyboardInterrupt):
    """A measurement that was ended by Ctrl-C, SIGTERM or SIGHUP; no file is left.

    measurement : what it had measured.
    """

    def __init__(self, measurement: Measurement):
        super().__init__("the measurement was ended")
        self.measurement = measurement


def measure(
    folders: Sequence[str] = (".",), settings: Settings = THOROUGH, parts: Sequence[str] = PARTS,
    system: System | None = None, tell: Tell | None = None, gpus: Callable[[Collected], Gpus | None] | None = None,
    allowed: Sequence[int] | None = None, today: datetime.date | None = None,
) -> Measurement:  # fmt: skip
    """Measure this machine: rates in B/s and FLOP/s, each with all of its repeats and its conditions.

    folders : one on each drive that is measured, or a file that is only read. parts : of PARTS. system, gpus, allowed,
    today : what tests replace. Raises Ended, a KeyboardInterrupt, when it is ended, with what was measured until
    then and no file left; nothing for what cannot be measured, which stands under `missing`.
    """
    system, tell = system or System(), tell or (lambda text: None)
    collected, whole = Collected(), Budget(None)
    begun = conditions.now(system)
    models: list[str] = []
    tell("looking at the machine")
    here = find(system, collected, allowed)
    cpus = sorted({cpu for node in here.nodes for cpu in node.cpus})
    conditions.before(system, cpus, begun, collected)
    if unasked := [WHAT[part] for part in PARTS if part not in parts]:
        collected.left_out(", ".join(unasked), "not asked for")
    due = [one for one in PARTS if one in parts]
    ended = begun_part = False
    try:
        with ended_in_order("numpy", "numpy.random") as look:

            def telling(text: str) -> None:
                look()
                tell(text)

            while due:
                look()
                begun_part = True
                budget = Budget(None if settings.seconds is None else SHARES[due[0]] * settings.seconds)
                try:
                    _part(due[0], here, folders, settings, system, collected, budget, telling, gpus or find_gpus,
                          models, cpus)  # fmt: skip
                except Exception as error:  # of libraries and drivers too: the rest is measured
                    known = isinstance(error, (OffloadError, OSError, MemoryError, RuntimeError, ImportError))
                    text = str(error) or type(error).__name__
                    collected.left_out(WHAT[due[0]], text if known else f"{type(error).__name__}: {text}")
                begun_part = False
                del due[0]
            look()
    except KeyboardInterrupt:
        ended = True
        rest = [WHAT[one] for one in due]
        if begun_part or not rest:
            rest[:1] = ["the rest of what was asked for"]
        collected.left_out(", ".join(rest), "the measurement was ended")
    shares = conditions.after(begun, conditions.now(system), collected)
    day = today or datetime.datetime.now(datetime.UTC).date()
    peaks = {} if ended else memory_peaks(system, [node.number for node in here.nodes], collected)
    data = {
        "offload_measure": FORMAT, "offload_version": __version__, "date": day.isoformat(), "mode": settings.name,
        "seconds": round(whole.spent, 1), "processor": here.cpu, "gpus": models, "processors_used": len(cpus),
        "load_average_before": begun.load, "processor_time": shares, "warnings": list(collected.warnings),
        "figures": [one.to_json() for one in collected.figures],
    }  # fmt: skip
    told = None
    try:
        told = None if ended else topology_of(here, data, peaks, collected)
    except OffloadError as error:
        collected.left_out("a topology of this machine", str(error))
    measurement = Measurement(collected, {**data, "missing": list(collected.missing)}, told)
    if ended:
        raise Ended(measurement)
    return measurement


def _part(
    part: str, here: Here, folders: Sequence[str], settings: Settings, system: System, collected: Collected,
    budget: Budget, tell: Tell, gpus: Callable[[Collected], Gpus | None], models: list[str], cpus: Sequence[int],
) -> None:  # fmt: skip
    free = max((node.free for node in here.nodes), default=0)
    if part == "memory":
        measure_memory(here.nodes, settings, collected, budget, tell)
    elif part == "drive":
        _drives(here, folders, settings, system, collected, budget, tell)
    elif part == "processor":
        measure_processors(cpus, settings, collected, budget, tell)
    elif part == "host":
        measure_passing(free, settings, collected, budget, tell)
    elif any(one.kind == "gpu" for finding in here.findings if finding.machine for one in finding.machine.devices):
        found = gpus(collected)
        if found is not None:
            models += [found.model(number) for number in range(found.count())]
            measure_gpus(found, free, settings, collected, budget, tell)
        elif not by_nvbandwidth(system.run, collected):
            collected.left_out("GPUs", "none of torch, cupy and nvbandwidth is installed and works. Install one")
    else:
        collected.left_out("GPUs", "this machine tells none")


def _drives(
    here: Here, folders: Sequence[str], settings: Settings, system: System, collected: Collected, whole: Budget,
    tell: Tell,
) -> None:  # fmt: skip
    if not hasattr(os, "preadv"):
        return collected.left_out("drives", "this system has no preadv, by which they are read (Linux and macOS have)")
    measured = set()
    for number, folder in enumerate(folders):
        budget = whole.share(len(folders) - number)
        try:
            place = place_of(folder, system, here.drives)
        except OSError as error:
            collected.left_out(f"drive at {named(folder)}", f"{error.strerror or error}")
            continue
        if place.drive is not None and place.drive in measured:
            collected.left_out(f"drive at {named(folder)}", f"it lies on {place.block}, as one before: measured once")
            continue
        before = len(collected.figures)
        measure_drive(place, settings, collected, budget, tell, by_fio(settings))
        if len(collected.figures) > before:
            measured.add(place.drive)
    for number, block in enumerate(here.drives):
        if number not in measured:
            collected.left_out(f"drive {block}", "no folder on it that can be measured is given: add --disk FOLDER")
    return None
