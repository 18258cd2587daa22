"""A run of a log, explained: which timing, on which server, by which plan, and what its time is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from offload.documents.settings import Setting
from offload.errors import CapacityError, OffloadError
from offload.models.architecture import MOST_LAYERS
from offload.plan import Plan
from offload.readers.engines.run import Buffer, Processor, Run, Said, Timing
from offload.study import Study, evaluate
from offload.units import format_bytes, format_seconds, many
from offload.why.compared import compare_buffers
from offload.why.model import Known, model_of
from offload.why.notes import Notes, notes_of
from offload.why.plan import keys_of, read_keys, with_settings
from offload.why.proven import ABOVE_PEAK, Proven, proven, with_any_rates
from offload.why.server import Place, check_told, gpu_layers, place_of
from offload.why.waterfall import Waterfall, passes_of, waterfall
from offload.why.workload import COMPARED, asked_of, describe

MUCH = 0.01  # of what passes the fullest part
JOINED = ("timings", "facts", "unknown", "odd", "assumed")
OF_A_ROW = ("line", *JOINED)
ORDER = ("decode", "request", "prefill")  # of the timing that is taken where several are told


@dataclass(frozen=True, slots=True)
class Why:
    """A run, its plan and server, and the terms of its measured time.

    keys : of the plan file. place : the server, with its text where it was made from the log. study : the plan
    evaluated. proven : rates that the run proves. notes : what was taken from the log, assumed, contradicts, is
    unknown. not_counted : parts that much passes and whose rates nothing tells.
    """

    run: Run
    timing: Timing
    known: Known
    place: Place
    keys: dict[str, Any]
    plan: Plan
    study: Study
    waterfall: Waterfall
    proven: tuple[Proven, ...]
    notes: Notes
    not_counted: tuple[str, ...] = ()

    @property
    def causes(self) -> tuple[str, ...]:
        """What is usually behind the verdict; nothing of a gap while parts are not counted."""
        return self.waterfall.causes if self.waterfall.contradicts or not self.not_counted else ()

    @property
    def contradicts(self) -> bool:
        """Whether the time is below its floor, or a rate above its peak is proved."""
        return self.waterfall.contradicts or any(one.stands == ABOVE_PEAK for one in self.proven)


def same_runs(runs: Sequence[Run]) -> tuple[Run, ...]:
    """Runs of a log in which those that differ only in what was timed (rows of a table) are one, with all timings."""
    groups: dict[object, list[Run]] = {}
    for run in runs:
        alike = tuple(_plain(getattr(run, one.name)) for one in fields(run) if one.name not in OF_A_ROW)
        groups.setdefault(alike, []).append(run)
    return tuple(_joined(group) for group in groups.values())


def _joined(group: Sequence[Run]) -> Run:
    if len(group) == 1:
        return group[0]
    together: dict[str, Any] = {
        name: tuple(dict.fromkeys(one for run in group for one in getattr(run, name))) for name in JOINED
    }
    return replace(group[0], **together)


def _plain(value: Any) -> object:
    """A value of a run without the lines that say it."""
    if isinstance(value, Said):
        return value.value
    if isinstance(value, Processor | Buffer):
        return replace(value, line=0)
    return tuple(one[:-1] if isinstance(one, tuple) else _plain(one) for one in value) if isinstance(
        value, tuple) else value


def choose_run(runs: Sequence[Run], number: int | None) -> Run:
    """The run of a log with that number, from 1; the only one where none is said. Raises OffloadError."""
    runs = same_runs(runs)
    if not runs:
        raise OffloadError("the log tells of no run.")
    if number is not None:
        if not 1 <= number <= len(runs):
            raise OffloadError(f"--run {number}: the log has {len(runs)} run{'s' if len(runs) > 1 else ''}, 1 to "
                               f"{len(runs)}.")
        return runs[number - 1]
    timed = [run for run in runs if any(one.phase in COMPARED for one in run.timings)
             and ("draft", True) not in [setting[:2] for setting in run.settings]]
    if len(timed) == 1:
        return timed[0]
    if len(runs) == 1 or not timed:
        return runs[0]  # of which it is told that no time is in it
    told = "\n".join(f"  --run {place}: {describe_run(run)}" for place, run in enumerate(runs, 1))
    raise OffloadError(f"the log has {len(runs)} runs. Say which:\n{told}")


def describe_run(run: Run) -> str:
    """A run in words: engine, line, model, layers on GPUs, and its timings."""
    parts = [f"{run.engine}, line {run.line}"]
    if run.model is not None:
        parts.append(" ".join(run.model.value.split())[:60])
    on_gpus = gpu_layers(run)
    if on_gpus is not None:
        parts.append("all layers on GPUs" if on_gpus == MOST_LAYERS else f"{many(on_gpus, 'layer')} on GPUs")
    timed = [one for one in run.timings if one.phase in COMPARED]
    parts += [f"{one.test or one.phase} {format_seconds(one.seconds)}" for one in timed[:4]]
    return "; ".join(parts)


def choose_timing(run: Run, number: int | None) -> Timing:
    """The timing with that number among a run's, from 1; where none is said decode, else a request, else prefill."""
    if number is not None:
        if not 1 <= number <= len(run.timings):
            raise OffloadError(f"--timing {number}: the run has {len(run.timings)} timings.")
        return run.timings[number - 1]
    for phase in ORDER:
        for timing in run.timings:
            if timing.phase == phase:
                return timing
    others = "; ".join(map(describe, run.timings))
    told = f" It tells {others}." if others else ""
    raise OffloadError(f"no timing of a prompt, of tokens or of a request is in the log.{told} Give the log of a run "
                       "to its end, with its summary of times.")


def why(
    run: Run,
    *,
    server: str | None = None,
    model: str | None = None,
    timing: int | None = None,
    settings: Sequence[Setting] = (),
) -> Why:
    """Explain a run. server, model, timing : as --on, --model, --timing say. settings : of the plan and the server.

    Raises OffloadError for what the log does not tell and nothing else says, CapacityError where the plan made of it
    does not fit the server.
    """
    notes = notes_of(run)
    chosen = choose_timing(run, timing)
    said = {one.path: one.text for one in settings}
    known = model_of(run, model, notes, said.get(("model", "weights")), ("model", "kv") in said)
    place = place_of(run, server, notes)
    check_told(run, place, ("placement", "weights") in said, notes)
    asked = asked_of(run, chosen, notes, _batch(said))
    keys = keys_of(run, known, place, asked.keys, notes)
    plan, topology = read_keys(keys, place.topology, settings)
    _not_twice(settings, notes)
    study = evaluate(topology, plan)
    if not study.fits:
        lacking = "; ".join(f"{row.name} lacks {format_bytes(row.missing)}" for row in study.memory if row.missing)
        doubts = "".join(f"\n  The log contradicts it: {text}" for text in notes.contradicts)
        raise CapacityError(
            f"the run was measured, and the plan made of its log does not fit {topology.name}: {lacking}. Something is "
            "other than said: another GPU (--on SERVER), other weights (--model NAME:FORMAT), or layers and a KV cache "
            "that live elsewhere (--set placement.weights={MEMORY: 20 layers, OTHER: rest}, --set placement.kv=MEMORY)."
            + doubts
        )
    compare_buffers(run, known, place, keys, study, notes)
    least = (None, None) if ("workload", "context") in said else (asked.shortest, asked.sure)
    passes = sure = passes_of(topology, plan)
    if least != (None, None):
        sure = passes_of(topology, plan, *least)
    found = waterfall(passes, asked.seconds, sure, chosen.phase == "prefill")
    counted, unknown = with_any_rates(topology)
    if unknown:
        sure = passes_of(counted, plan, *least)
    rates = proven(sure, asked.seconds, unknown)
    return Why(run, chosen, known, place, with_settings(keys, settings), plan, study, found, rates, notes,
               _not_counted(rates))


def _not_counted(rates: Sequence[Proven]) -> tuple[str, ...]:
    """Parts without a rate that as much passes as a hundredth of what passes the fullest."""
    most = max((one.least for one in rates if one.unit == "B"), default=0.0)
    return tuple(one.resource for one in rates
                 if one.unit == "B" and one.peak is None and one.sustained is None and one.least > MUCH * most)


def _batch(said: dict[tuple[str, ...], str]) -> int | None:
    text = said.get(("workload", "batch"), "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 and int(text) > 0 else None


def _not_twice(settings: Sequence[Setting], notes: Notes) -> None:
    """What was assumed of a value that is set is not assumed."""
    for one in settings:
        path = ".".join(one.path)
        for text in [text for text in notes.assumed if text.startswith(f"{path}:")]:
            del notes.assumed[text]
