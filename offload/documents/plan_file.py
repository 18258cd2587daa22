"""A plan file as a Plan and its Topology: by placement (a model, where its layers live) or by hand (tasks).

    load_plan("plan.yaml")

Every mistake of the file is told at once, each at its line. A relative path starts from the file's folder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from offload.designs import Placement, Workload, check_kv, plan_decode, portions_in_layers, runs
from offload.documents.marks import Document, Location, read_document
from offload.documents.plan_by_hand import no_node, plain, plan_by_hand
from offload.documents.plan_shape import OVERLAPS, ModelShape, PlacementShape, PlanShape, WorkloadShape
from offload.documents.server_settings import change_topology
from offload.documents.settings import Setting, change_plan
from offload.documents.shapes import validate
from offload.documents.topology_file import load_topology
from offload.errors import DocumentError, ModelError, OffloadError, PlanError, TopologyError
from offload.models import Model, kv_bytes, parse_model_name, weigh
from offload.plan import Plan
from offload.readers import load_model
from offload.topology import Topology

BY_PLACEMENT = ("model", "workload", "placement")
BY_HAND = ("tensors", "tasks", "blocks", "repeat")
FORMAT_OF_DTYPE = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def load_plan(
    path: str | Path, *, topology: str | Path | Topology | None = None, settings: Sequence[Setting] = ()
) -> tuple[Plan, Topology]:
    """Read a plan file. Raises DocumentError with every mistake, OffloadError where there is no such file.

    topology : another server than the file's, as a shipped name or a path from the current folder. settings : values
    instead of the file's and the server's.
    """
    return read_plan(read_document(path), Path(path).parent, topology=topology, settings=settings)


def read_plan(
    document: Document,
    folder: str | Path,
    *,
    topology: str | Path | Topology | None = None,
    settings: Sequence[Setting] = (),
) -> tuple[Plan, Topology]:
    """The plan that a document holds, and its server. Raises as `load_plan`.

    folder : where relative paths in it start from. topology, settings : as in `load_plan`.
    """
    folder = Path(folder)
    other = topology if topology is None or isinstance(topology, Topology) else load_topology(topology)
    if other is not None:
        document.set_value(("topology",), str(getattr(topology, "name", topology)), "the server named instead")
    notes = change_plan(document, [one for one in settings if one.is_of_plan])
    shape = validate(document, PlanShape, document.value) or _sound_keys(document.value)
    if document.get(("overlap",)) == "off" and ("overlap",) in document.refused:  # YAML's false, which means none here
        document.forgive(("overlap",))
        document.mistake(("overlap",), f'"off" is no overlap: must be {OVERLAPS}.')
    given = [key for key in (*BY_PLACEMENT, *BY_HAND) if key in document.value]
    by_placement = any(key in BY_PLACEMENT for key in given)
    server, broken = (other, None) if other is not None else _topology(document, shape.topology, folder)
    if server is not None:
        server = _changed(document, server, [one for one in settings if not one.is_of_plan])
    plan = None
    if by_placement and any(key in BY_HAND for key in given):
        hand = next(key for key in given if key in BY_HAND)
        document.mistake((hand,), f'a plan is by placement ({", ".join(BY_PLACEMENT)}) or by hand '
                         f'({", ".join(BY_HAND)}): "{hand}" and "{given[0]}" do not go together.', key=True)
    elif by_placement:
        plan = _by_placement(document, shape, server, folder)
    elif given:
        plan = plan_by_hand(document, shape, server, shape.title or f"plan of {Path(document.name).name}")
    else:
        document.mistake((), 'a plan needs "model" and "placement", or "tensors" and "tasks".')
    if broken is not None and not document.mistakes:
        raise broken
    if broken is not None:
        document.mistake(("topology",), str(broken).replace("\n", "\n  "))
    if other is not None and document.mistakes:
        raise DocumentError(f"{document.name} on {other.name}", document.mistakes, _other_names(document, other))
    document.raise_if_mistakes()
    return replace(plan, assumptions=(*notes, *plan.assumptions)) if notes else plan, server


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


def _topology(document: Document, name: str, folder: Path) -> tuple[Topology | None, DocumentError | None]:
    """The topology, or None with what is wrong: noted where the plan names it, or the mistakes of its own file."""
    given = document.get(("topology",))
    if not isinstance(given, str) or ("topology",) in document.refused:
        return None, None
    try:
        return load_topology(name, folder), None
    except DocumentError as error:
        return None, error
    except OffloadError as error:
        document.mistake(("topology",), str(error))
    except OSError as error:
        document.mistake(("topology",), f'"{error.filename}" cannot be read ({error.strerror}).')
    return None, None


# By placement.


def _by_placement(document: Document, shape: PlanShape, topology: Topology | None, folder: Path) -> Plan | None:
    for key in ("model", "placement"):
        if key not in document.value:
            document.mistake((), f'the key "{key}" is missing.')
    for key, text in (("tokens", "a decode step yields one for each sequence. Write workload: {batch: ...}."),
                      ("in_flight", 'in a plan by placement it stands under "workload".')):  # fmt: skip
        if key in document.value:
            document.mistake((key,), f'"{key}" at the top belongs to a plan by hand; {text}', key=True)
    placement, model, weights = None, None, ""
    if shape.placement is not None:
        placement = _placement(shape.placement)
        if topology is not None:
            _check_placement(document, placement, topology)
    if shape.model is not None:
        model, weights = _model(document, shape.model, folder)
    if model is not None and weights and placement is not None and len(_rests(placement)) < 2:
        _told(document, ("placement", "weights"), lambda: portions_in_layers(placement, weigh(model, weights).layers))
    if document.mistakes or model is None or placement is None or topology is None:
        return None
    asked = shape.workload or WorkloadShape()
    workload = Workload(asked.phase, asked.batch, asked.context, asked.in_flight)
    plan = _told(document, ("model",), lambda: plan_decode(
        model, topology, workload, placement, weights=weights, kv=shape.model.kv, overlap=shape.overlap))
    return replace(plan, title=shape.title) if plan is not None and shape.title else plan


def _told(document: Document, place: Location, make: Callable[[], Any], key: bool = False) -> Any:
    """What is made, or None with the error noted: where its text starts with a key of the file, there."""
    try:
        return make()
    except (PlanError, ModelError, TopologyError) as error:
        head, found, rest = str(error).partition(": ")
        named = found and head.startswith("placement.") and " " not in head
        document.mistake(tuple(head.split(".")) if named else place, rest if named else str(error),
                         key=key and not named)
    return None


def _placement(shape: PlacementShape) -> Placement:
    extra = {} if shape.reserve is None else {"reserve": shape.reserve}
    return Placement(tuple(shape.weights.items()), shape.compute, shape.kv, **extra)


def _rests(placement: Placement) -> list[str]:
    return [memory for memory, portion in placement.weights if portion.kind == "rest"]


def _check_placement(document: Document, placement: Placement, topology: Topology) -> None:
    """Every memory and processor is known, and every layer and its KV cache have a way to where the layer runs."""
    for memory in _rests(placement)[1:]:
        text = f"{_rests(placement)[0]} already takes the rest; one memory may."
        document.mistake(("placement", "weights", memory), text)
    if placement.compute != "local" and (wrong := no_node(topology, placement.compute, "processor", ("local",))):
        document.mistake(("placement", "compute"), wrong)
    if not _told(document, ("placement", "kv"), lambda: check_kv(topology, placement.kv)):
        placement = replace(placement, kv="with layer")  # told; no way is looked for
    for memory, _ in placement.weights:
        place = ("placement", "weights", memory)
        if wrong := no_node(topology, memory, "memory"):
            document.mistake(place, wrong, key=True)
        elif placement.compute == "local" or placement.compute in topology.processors:
            processor = _told(document, place, lambda: runs(topology, placement, memory), True)  # noqa: B023
            if processor is not None:
                _check_ways(document, placement, topology, memory, processor)


def _check_ways(document: Document, placement: Placement, topology: Topology, memory: str, processor: str) -> None:
    own, kv = topology.memory_of(processor), placement.kv
    ways: list[tuple[Location, Any, tuple[str, str]]] = []
    if memory != own:
        ways.append((("placement", "weights", memory), topology.route, (memory, own)))
    if kv in topology.memories and kv != own:
        ways += [(("placement", "kv"), topology.route, (kv, own)),
                 (("placement", "kv"), topology.write_route, (processor, kv))]  # fmt: skip
    for place, find, ends in ways:
        try:
            find(*ends)
        except TopologyError as error:
            document.mistake(place, plain(error, topology), key=len(place) == 3)


def _model(document: Document, shape: ModelShape, folder: Path) -> tuple[Any, str]:
    """The model and its weights' format; None and "" where they are not known."""
    if (shape.name is None) == (shape.config is None):
        if not {("model", "name"), ("model", "config")} & document.refused:
            text = 'give one of "name" (a known model) and "config" (path of a config.json).'
            document.mistake(("model",), text, key=True)
        return None, ""
    named = None
    if shape.config is not None:
        model = _config(document, folder / shape.config, shape.weights is not None)
    else:
        name, named = _told(document, ("model", "name"), lambda: parse_model_name(shape.name)) or (None, None)
        model = None if name is None else load_model(name)
    if model is None:
        return None, ""
    _told(document, ("model", "kv"), lambda: kv_bytes(model, shape.kv))
    weights = _told(document, ("model", "weights"), lambda: weights_format(model, named, shape.weights), True)
    return model, weights or ""


def _config(document: Document, path: Path, weights_known: bool) -> Any:
    try:
        return _told(document, ("model", "config"), lambda: load_model(path, weights_known=weights_known))
    except OSError as error:
        text = f"{error.filename or path} cannot be read: {error.strerror}. A relative path starts from this file."
        document.mistake(("model", "config"), text)
    except ValueError:  # a zero byte in the path
        document.mistake(("model", "config"), f"{str(path)!r} is no file name.")
    return None


def weights_format(model: Model, named: str | None, given: str | None) -> str:
    """The weights' format: as named with the model or given, else the one that the model's file states.

    Raises ModelError for an unknown format, two that differ, or none.
    """
    formats = [weigh(model, one).format for one in (named, given) if one is not None]
    if len(set(formats)) > 1:
        raise ModelError(f'the name already says {named}, and "{given}" is another format: drop one of the two.')
    stated = formats[0] if formats else FORMAT_OF_DTYPE.get(model.dtype or "")
    if stated is None:
        says = f'states "{model.dtype}", which is no weight format here' if model.dtype else "states no weight format"
        raise ModelError(f"{model.name} {says}. Say it: `weights: bf16` in a plan file, --weights bf16 without one (or "
                         "q8_0, q4_k_m, fp8, int8, ...).")
    return stated
