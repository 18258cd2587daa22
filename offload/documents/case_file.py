"""A case file as cases: what was measured and published, with the plan and the server that it was measured of.

    load_cases("cases/my-case.yaml")

A file is one case or, with `variants`, several, each with other values in its plan. Every mistake of a file is told at
once, each at its line. A relative path starts from the case file's folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import yaml

from offload.documents.case_shape import CaseShape, Figure, MeasuredShape, SourceShape
from offload.documents.kinds import refuse_other_kind
from offload.documents.marks import Document, Location, as_written, read_document
from offload.documents.plan_file import read_plan
from offload.documents.plan_shape import PlanShape
from offload.documents.settings import Setting, read_setting, refuse_twice
from offload.documents.shapes import validate
from offload.documents.shipped import SUFFIXES
from offload.documents.topology_file import load_topology, read_topology
from offload.errors import DocumentError, OffloadError, did_you_mean
from offload.plan import Collective, Compute, Plan
from offload.topology import Topology

STATED = ("per_copy",)  # keys of a plan that are a figure of the server


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured: a figure, over how many steps (None: not said), whether one step alone; of : whose rate it is.

    tolerance : by how much the floor may exceed it [1], and why.
    """

    figure: Figure
    steps: int | None = None
    alone: bool = False
    of: str | None = None
    counts: str = "rate"
    tolerance: float | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """A published measurement with what it was measured of. set : what differs from the plan as it stands.

    stated : rates that the source itself states. informed : the plan and the server with these, None without any.
    entry : the published table or page that it is a row of; files of one share it. varies : the one value in which the
    variants of its file differ. resolution : the share below which two measured times are not told apart, 0 where none
    is stated. order : why expected times come in another order than the measured ones.
    """

    id: str
    kind: str
    group: str
    strength: str
    file: str
    source: SourceShape
    plan: Plan
    topology: Topology
    measured: Measured
    set: Mapping[str, str] = field(default_factory=dict)
    trap: str = ""
    verdict: str = ""
    note: str = ""
    varies: str = ""
    stated: Mapping[str, str] = field(default_factory=dict)
    informed: tuple[Plan, Topology] | None = None
    entry: str = ""
    resolution: float = 0.0
    order: str = ""


def load_cases(path: str | Path) -> tuple[Case, ...]:
    """Read a case file. Raises DocumentError with every mistake, OSError where it cannot be read."""
    document = read_document(path)
    refuse_other_kind(document, "case")
    shape = validate(document, CaseShape, document.value)
    if shape is None:  # the plan and the server are looked at all the same
        _Reader(document, Path(path)).base_plan()
        document.raise_if_mistakes()
    cases = _Reader(document, Path(path)).cases(cast(CaseShape, shape))
    document.raise_if_mistakes()
    return cases


class _Reader:
    """One case file: the server once, then the plan once for each case."""

    def __init__(self, document: Document, path: Path):
        self.document = document
        self.path = path
        self.folder = path.parent
        self.broken: dict[str, None] = {}  # mistakes of other files that were told

    def cases(self, shape: CaseShape) -> tuple[Case, ...]:
        own = shape.id or self.path.stem
        if shape.varies and len(shape.variants) + (shape.measured is not None) < 2:
            self.document.mistake(("varies",), "one case has no order: give variants, or drop the key.", key=True)
        if shape.resolution is not None and not shape.note:
            text = 'a resolution needs its reason: say in "note" how far apart two runs may be.'
            self.document.mistake(("resolution",), text, key=True)
        if shape.measured is None and not shape.variants:
            self.document.mistake((), 'nothing was measured: give "measured", or "variants" with one each.')
        server = self.server(("topology",))
        given: list[tuple[str, Any, Location]] = []
        if shape.measured is not None:
            given.append((own, shape, ()))
        given += [(one.id or f"{own}/{n}", one, ("variants", n - 1)) for n, one in enumerate(shape.variants, 1)]
        found = []
        for index, (name, one, place) in enumerate(given):
            if name in [other for other, _, _ in given[:index]]:
                self.document.mistake((*place, "id"), f'two cases are called "{name}": ids differ.', key=True)
            case = self.case(name, shape, one, place, server)
            if case is not None:
                found.append(case)
        return tuple(found)

    def case(self, name: str, shape: CaseShape, one: Any, place: Location, server: Topology | None) -> Case | None:
        settings = self.settings((*place, "set")) if place else {}
        stated = self.settings(("stated",)) | (self.settings((*place, "stated")) if place else {})
        if place and one.topology is not None:
            server = self.server((*place, "topology"))
        if ("topology" in self.document.value or (place and one.topology is not None)) and server is None:
            read = None  # told
        else:
            read = self.plan(settings, server)
        informed = self.plan(settings | stated, server) if read and stated else None
        self.check_measured(one.measured, (*place, "measured"), read[0] if read else None)
        if read is None:
            return None
        measured = Measured(one.measured.value, one.measured.per, one.measured.alone, one.measured.of,
                            one.measured.as_, one.measured.tolerance, one.measured.why)  # fmt: skip
        told, rates = ({".".join(one.path): one.text for one in some.values()} for some in (settings, stated))
        note = " ".join(text for text in dict.fromkeys((one.note, shape.note)) if text)
        return Case(name, shape.kind, shape.group, shape.strength, str(self.path), shape.source, *read, measured,
                    MappingProxyType(told), one.trap or shape.trap, one.verdict or shape.verdict, note, shape.varies,
                    MappingProxyType(rates), informed, shape.entry or shape.id or self.path.stem,
                    shape.resolution or 0.0, shape.order)  # fmt: skip

    # The server and the plan.

    def server(self, at: Location) -> Topology | None:
        """The server that stands or is named at a place; None where there is none, or it has mistakes (told)."""
        given = self.document.get(at)
        if given is None or at in self.document.refused:
            return None
        try:
            if isinstance(given, dict):
                return self.own_server(at)
            if isinstance(given, str):
                return load_topology(given, self.folder)
            self.document.mistake(at, "must be a shipped server's name, the path of a topology file, or a topology.")
        except (OffloadError, OSError) as error:
            self.tell(error, at)
        return None

    def own_server(self, at: Location) -> Topology | None:
        try:
            return read_topology(self.document.part(at), name=self.path.stem)
        except DocumentError:
            return None  # noted in the document itself

    def base_plan(self) -> None:
        """Note the mistakes of the server and of the plan as it stands."""
        server = self.server(("topology",))
        if server is not None or "topology" not in self.document.value:
            self.plan({}, server)

    def plan(self, settings: Mapping[Location, Setting], server: Topology | None) -> tuple[Plan, Topology] | None:
        """The plan with other values, and its server; None where it has mistakes, which are told."""
        given = self.document.get(("plan",))
        if given is None or ("plan",) in self.document.refused:
            return None
        try:
            if isinstance(given, dict):
                fresh = read_document(self.path, self.document.name)  # settings change the document that they are of
                plan = fresh.part(("plan",))
                if server is None and "topology" not in given:
                    text = 'no server: give "topology", here or in the plan.'
                    self.document.mistake(("plan",), text, key=True)
                    return None
            elif isinstance(given, str) and (given.lower().endswith(SUFFIXES) or "/" in given):
                plan = read_document(self.folder / given)
            else:
                self.document.mistake(("plan",), "must be a plan, or the path of a plan file as \"./plan.yaml\".")
                return None
            folder = self.folder if isinstance(given, dict) else (self.folder / given).parent
            return read_plan(plan, folder, topology=server, settings=tuple(settings.values()))
        except (OffloadError, OSError) as error:
            self.tell(error, ("plan",), settings)
        return None

    def settings(self, place: Location) -> dict[Location, Setting]:
        """What is set at a place, by where it stands."""
        found: dict[Location, Setting] = {}
        if place in self.document.refused:
            return found
        for key, value in self.document.get(place, {}).items():
            at = (*place, key)
            if at in self.document.refused:
                continue
            try:
                read = read_setting(f"{key}={_text(value)}", f"{place[-1]} {key}")
                refuse_twice([*found.values(), read])
            except OffloadError as error:
                self.document.mistake(at, str(error).removeprefix(f"{place[-1]} {key}: "), key=True)
            else:
                own = read.path[0] in PlanShape.model_fields and read.path[-1] not in STATED
                if place[-1] == "stated" and own:
                    text = (f'"{read.path[0]}" is a key of the plan: stated are rates of the server, as '
                            "pcie0.rate.sustained. What differs in the plan stands under set.")
                    self.document.mistake(at, text, key=True)
                elif read.path[0] == "topology":
                    self.document.mistake(at, 'another server is the variant\'s own key "topology".', key=True)
                found[at] = read
        return found

    def tell(self, error: Exception, at: Location, settings: Mapping[Location, Setting] = MappingProxyType({})) -> None:
        """Note what is wrong: at its own line where it is of this file, else at `at`."""
        if isinstance(error, DocumentError):
            origins = {setting.origin: place for place, setting in settings.items()}
            own = error.file == self.document.name or error.file.startswith(f"{self.document.name} on ")
            for one in error.mistakes:
                if one.origin in origins:
                    self.document.mistake(origins[one.origin], one.message)
                elif own:
                    self.document.note((one.key,), (one.line, one.column), one.message)
                elif (text := f"{error.file}, {one}") not in self.broken:
                    self.broken[text] = None
                    self.document.mistake(at, text)
        elif isinstance(error, OSError) and not isinstance(error, OffloadError):
            self.document.mistake(at, f'"{error.filename}" cannot be read ({error.strerror}).')
        else:
            self.document.mistake(at, str(error))

    # What was measured.

    def check_measured(self, measured: MeasuredShape, place: Location, plan: Plan | None) -> None:
        """A figure fits what it is of, and a tolerance has a reason."""
        unit = measured.value.unit
        if unit == "B/s" and measured.of is None:
            text = 'a rate is of a task: add "of: TASK", the move or compute whose bytes it counts.'
            self.document.mistake(place, text, key=True)
        if unit != "B/s":
            for key, given in (("of", measured.of is not None), ("as", measured.as_ != "rate")):
                if given:
                    self.document.mistake((*place, key), f'"{key}" is of a rate in GB/s.', key=True)
        if unit != "s" and measured.per is not None:
            self.document.mistake((*place, "per"), '"per" is of a time: it says over how many steps.', key=True)
        if plan is not None and plan.request is not None:
            for key, given in (("of", measured.of is not None), ("alone", measured.alone)):
                if given:
                    text = f'"{key}" is of one step, and the plan is a whole request (phase: generate).'
                    self.document.mistake((*place, key), text, key=True)
        if measured.tolerance is not None and not measured.why:
            text = 'a tolerance needs its reason: add "why".'
            self.document.mistake((*place, "tolerance"), text, key=True)
        if measured.of is not None and plan is not None:
            tasks = [one for block in plan.blocks for one in block.tasks
                     if not isinstance(one, Compute) or one.reads or one.writes]  # fmt: skip
            named = [one for one in tasks if one.name == measured.of]
            if not named:
                hint = did_you_mean(measured.of, {one.name for one in tasks}, "Tasks")
                self.document.mistake((*place, "of"), f'no task "{measured.of}" that moves or reads bytes. {hint}')
            elif measured.as_ == "busbw" and not isinstance(named[0], Collective):
                text = f'"busbw" is of a collective, and "{measured.of}" is none: remove it, its bytes are counted.'
                self.document.mistake((*place, "as"), text)


def _text(value: Any) -> str:
    """A value as a file would say it, on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_quoted(key)}: {_text(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_text(one) for one in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return _quoted(value) if isinstance(value, str) else as_written(value)


def _quoted(text: str) -> str:
    """A text, quoted where YAML would read it as something else."""
    shown: str = yaml.safe_dump(text, default_flow_style=True, width=10**6, allow_unicode=True)
    return shown.removesuffix("\n...\n").strip()
