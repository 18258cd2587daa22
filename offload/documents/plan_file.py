"""A plan file as a Plan and its Topology: by placement (a model, where its layers live) or by hand (tasks).

    load_plan("plan.yaml")

Every mistake of the file is told at once, each at its line. A relative path starts from the file's folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from offload.documents.kinds import refuse_other_kind
from offload.documents.marks import Document, read_document
from offload.documents.nodes import Real, Whole
from offload.documents.plan_by_hand import plan_by_hand
from offload.documents.plan_by_placement import plan_by_placement
from offload.documents.plan_shape import OVERLAPS, PlanShape, plan_written_out
from offload.documents.plan_training import trains
from offload.documents.server_settings import change_topology
from offload.documents.settings import Setting, change_plan, location, settings_of
from offload.documents.shapes import numbered, validate
from offload.documents.topology_file import load_topology
from offload.errors import DocumentError, OffloadError
from offload.plan import Plan
from offload.topology import Topology
from offload.tracing import NotFollowed, plain

BY_PLACEMENT = ("model", "workload", "placement", "training")
BY_HAND = ("tensors", "tasks", "blocks", "repeat")


def load_plan(
    path: str | Path, *, topology: str | Path | Topology | None = None, settings: Sequence[Setting | str] = ()
) -> tuple[Plan, Topology]:
    """Read a plan file. Raises DocumentError with every mistake, OffloadError where there is no such file.

    topology : another server than the file's, as a shipped name or a path from the current folder. settings : values
    instead of the file's and the server's, texts as "workload.batch=8" among them.

    >>> from offload import load_plan
    >>> plan, topology = load_plan("examples/llama-3.1-70b-desktop.yaml", settings=["workload.batch=8"])
    >>> plan.tokens, topology.name
    (8, 'desktop-4090')
    """
    document = read_document(path)
    refuse_other_kind(document, "plan")
    return read_plan(document, Path(path).parent, topology=topology, settings=settings_of(settings))


def plan_kind(path: str | Path) -> str:
    """What a plan file is, by the keys at its top: "by placement", "of training" or "by hand".

    Raises as `load_plan` where the file cannot be read.
    """
    document = read_document(path)
    if any(key in document.value for key in BY_HAND) and not any(key in document.value for key in BY_PLACEMENT):
        return "by hand"
    return "of training" if trains(document) else "by placement"


def read_plan(
    document: Document,
    folder: str | Path,
    *,
    topology: str | Path | Topology | None = None,
    settings: Sequence[Setting] = (),
    servers: Callable[[str, Path], Topology] = load_topology,
) -> tuple[Plan, Topology]:
    """The plan that a document holds, and its server. Raises as `load_plan`.

    folder : where relative paths in it start from. topology, settings : as in `load_plan`. servers : what reads the
    server that the document names, as `load_topology` does.
    """
    folder = Path(folder)
    other = topology if topology is None or isinstance(topology, Topology) else load_topology(topology)
    if other is not None:
        for one in settings:
            if one.path == ("topology",):
                raise OffloadError(f"{one.origin}: another server is named already, {other.name}. Keep one of them.")
        document.set_value(("topology",), str(getattr(topology, "name", topology)), "the server named instead")
    notes = change_plan(document, [one for one in settings if one.is_of_plan])
    written = plan_written_out(document.value)
    shape = validate(document, PlanShape, written) or _sound_keys(written)
    for one in settings:
        if one.number is not None and one.is_of_plan and not document.mistakes:
            try:
                shape = _with_number(shape, location(document, one.path), one.number)
            except (AttributeError, LookupError, TypeError):  # written out elsewhere
                raise NotFollowed(one.number, one.text) from None
    if document.get(("overlap",)) == "off" and ("overlap",) in document.refused:  # YAML's false, which means none here
        document.forgive(("overlap",))
        document.mistake(("overlap",), f'"off" is no overlap: must be {OVERLAPS}.')
    given = [key for key in (*BY_PLACEMENT, *BY_HAND) if key in document.value]
    by_placement = any(key in BY_PLACEMENT for key in given)
    if "costs" in document.value and given and not by_placement:
        document.reject(("costs",), "costs belong to a plan by placement. By hand a cost is a compute with a `time`: "
                        "{compute: gpu0, time: 20 us}.")
    if "speculation" in document.value and given and not by_placement:
        document.reject(("speculation",), "speculation belongs to a plan by placement. By hand its passes are blocks, "
                        "and `tokens` what they yield.")
    server, broken = (other, None) if other is not None else _topology(document, shape.topology, folder, servers)
    if server is not None:
        server = _changed(document, server, [one for one in settings if not one.is_of_plan])
    plan = None
    if by_placement and any(key in BY_HAND for key in given):
        hand = next(key for key in given if key in BY_HAND)
        document.mistake((hand,), f'a plan is by placement ({", ".join(BY_PLACEMENT)}) or by hand '
                         f'({", ".join(BY_HAND)}): "{hand}" and "{given[0]}" do not go together.', key=True)
    elif by_placement:
        plan = plan_by_placement(document, shape, server, folder)
    elif given:
        plan = plan_by_hand(document, shape, server, shape.title or f"plan of {Path(document.name).name}")
    else:
        document.mistake((), 'a plan needs "model" and "placement", or "tensors" and "tasks"; for training '
                         '"model" and "training".')
    if broken is not None and not document.mistakes:
        raise broken
    if broken is not None:
        document.mistake(("topology",), str(broken).replace("\n", "\n  "))
    if other is not None and document.mistakes:
        raise DocumentError(f"{document.name} on {other.name}", document.mistakes, _other_names(document, other))
    document.raise_if_mistakes()
    made, on = cast(Plan, plan), cast(Topology, server)  # where either is lacking there is a mistake
    return replace(made, assumptions=(*notes, *made.assumptions)) if notes else made, on


def _with_number(shape: Any, place: tuple[str | int, ...], number: float) -> Any:
    """A shape with the number at a place replaced by one that is equal to it."""
    if not place:
        if isinstance(shape, str | Whole | Real):  # of a plan by hand, which is read further
            return numbered(shape, number)
        if shape != plain(number):
            raise NotFollowed(number, shape)
        return number
    if isinstance(shape, BaseModel):
        key = str(place[0])
        return shape.model_copy(update={key: _with_number(getattr(shape, key), place[1:], number)})
    changed: Any = dict(shape) if isinstance(shape, Mapping) else list(shape)
    changed[place[0]] = _with_number(changed[place[0]], place[1:], number)
    return changed if isinstance(shape, Mapping) else type(shape)(changed)


def _changed(document: Document, server: Topology, settings: Sequence[Setting]) -> Topology:
    """The server with other values; what is wrong with them is noted."""
    try:
        return change_topology(server, settings)
    except DocumentError as error:
        for one in error.mistakes:
            document.note((), (1, 1), one.message, one.origin)
    return server


def _other_names(document: Document, server: Topology) -> str:
    """What to do about a plan that names parts of its own server and not of this one; "" where it does not."""
    if not any(one.message.startswith(("no memory", "no processor")) for one in document.mistakes):
        return ""
    memories = [f"{memory.name} ({memory.kind})" for memory in server.memories.values()]
    shown = ", ".join(memories[:12]) + (", ..." if len(memories) > 12 else "")
    return (
        f"  The plan names parts of its own server; {server.name} has {shown}. Say what differs there, as\n"
        '  --set "placement.weights={MEMORY: 30 layers, OTHER: rest}" --set placement.compute=PROCESSOR'
    )


def _sound_keys(values: dict[str, Any]) -> PlanShape:
    """The keys at the top that are right by themselves, so that what is wrong below the others is told too."""
    sound: dict[str, Any] = {"topology": ""}
    for key, value in values.items():
        try:
            PlanShape.model_validate(sound | {key: value})
        except ValidationError:
            continue
        sound[key] = value
    return PlanShape.model_validate(sound)


def _topology(
    document: Document, name: str, folder: Path, servers: Callable[[str, Path], Topology]
) -> tuple[Topology | None, DocumentError | None]:
    """The topology, or None with what is wrong: noted where the plan names it, or the mistakes of its own file."""
    given = document.get(("topology",))
    if not isinstance(given, str) or ("topology",) in document.refused:
        return None, None
    try:
        return servers(name, folder), None
    except DocumentError as error:
        return None, error
    except OffloadError as error:
        document.mistake(("topology",), str(error))
    except OSError as error:
        document.mistake(("topology",), f'"{error.filename}" cannot be read ({error.strerror}).')
    return None, None
