"""A plan file as a Plan and its Topology: by placement (a model, where its layers live) or by hand (tasks).

    load_plan("plan.yaml")

Every mistake of the file is told at once, each at its line. A relative path starts from the file's folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from offload.designs import Placement, Workload, plan_decode
from offload.documents.marks import Document, Location, read_document
from offload.documents.plan_shape import (
    BlockShape,
    ComputeShape,
    ModelShape,
    MoveShape,
    PlacementShape,
    PlanShape,
    TensorShape,
    WorkloadShape,
    task_written_out,
    tensor_written_out,
)
from offload.documents.shapes import validate
from offload.documents.topology_file import load_topology
from offload.errors import DocumentError, ModelError, OffloadError, PlanError, did_you_mean
from offload.models import parse_model_name
from offload.plan import Block, Compute, Plan, Task, Tensor, Transfer
from offload.readers import load_model
from offload.topology import Topology

BY_PLACEMENT = ("model", "workload", "placement")
BY_HAND = ("tensors", "tasks", "blocks", "repeat")
FORMAT_OF_DTYPE = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def load_plan(path: str | Path) -> tuple[Plan, Topology]:
    """Read a plan file. Raises DocumentError with every mistake, OffloadError where a name it gives is not known."""
    document = read_document(path)
    shape = validate(document, PlanShape, document.value)
    if shape is None:
        _also_tell_of_parts(document)
        document.raise_if_mistakes()
    given = [key for key in (*BY_PLACEMENT, *BY_HAND) if document.get((key,)) is not None]
    by_placement = any(key in BY_PLACEMENT for key in given)
    if by_placement and any(key in BY_HAND for key in given):
        hand = next(key for key in given if key in BY_HAND)
        document.mistake((hand,), f'a plan is by placement ({", ".join(BY_PLACEMENT)}) or by hand '
                         f'({", ".join(BY_HAND)}): "{hand}" and "{given[0]}" do not go together.', key=True)
    elif not given:
        document.mistake((), 'a plan needs "model" and "placement", or "tensors" and "tasks".')
    folder = Path(path).parent
    topology = _topology(document, shape.topology, folder)
    plan = None
    if by_placement:
        plan = _by_placement(document, shape, topology, folder)
    elif given:
        plan = _by_hand(document, shape, topology)
    document.raise_if_mistakes()
    return plan, topology


def _topology(document: Document, name: str, folder: Path) -> Topology | None:
    try:
        return load_topology(name, folder)
    except DocumentError:
        raise
    except OffloadError as error:
        document.mistake(("topology",), str(error))
    except OSError as error:
        document.mistake(("topology",), f'no file "{error.filename}" ({error.strerror}); a relative path starts '
                         "from this file's folder.")
    return None


def _also_tell_of_parts(document: Document) -> None:
    """The top is wrong; say what is wrong below it too, so that the file is mended in one go."""
    for key, shape in (("model", ModelShape), ("workload", WorkloadShape), ("placement", PlacementShape)):
        if isinstance(document.get((key,)), dict):
            validate(document, shape, document.get((key,)), (key,))


# By placement.


def _by_placement(document: Document, shape: PlanShape, topology: Topology | None, folder: Path) -> Plan | None:
    for key in ("model", "placement"):
        if getattr(shape, key) is None:
            document.mistake((), f'the key "{key}" is missing.')
    for key in ("tokens", "in_flight"):
        if document.get((key,)) is not None:
            document.mistake((key,), f'"{key}" belongs to a plan by hand; here write it under "workload".', key=True)
    model = validate(document, ModelShape, shape.model or {}, ("model",))
    workload = validate(document, WorkloadShape, shape.workload or {}, ("workload",))
    placement = validate(document, PlacementShape, shape.placement or {}, ("placement",)) if shape.placement else None
    if model is None or workload is None or placement is None or document.mistakes or topology is None:
        return None
    try:
        value, weights = _model(document, model, folder)
    except ModelError as error:
        document.mistake(("model",), str(error), key=True)
        return None
    except OSError as error:
        document.mistake(("model", "config"), f'no file "{error.filename}" ({error.strerror}).')
        return None
    if document.mistakes:
        return None
    placed = Placement(tuple(placement.weights.items()), placement.compute, placement.kv,
                       **({} if placement.reserve is None else {"reserve": placement.reserve}))
    asked = Workload(workload.phase, workload.batch, workload.context, workload.in_flight)
    try:
        plan = plan_decode(value, topology, asked, placed, weights=weights, kv=model.kv, overlap=shape.overlap)
    except (PlanError, ModelError) as error:
        document.mistake(_place_of(str(error)), str(error).removeprefix(_place_text(str(error))))
        return None
    return _titled(plan, shape.title)


def _place_of(message: str) -> Location:
    return tuple(_place_text(message).removesuffix(": ").split(".")) if _place_text(message) else ("model",)


def _place_text(message: str) -> str:
    """The "placement.kv: " that a design's message starts with, if it does."""
    head, found, _ = message.partition(": ")
    return head + found if found and head.startswith("placement.") and " " not in head else ""


def _model(document: Document, shape: ModelShape, folder: Path) -> tuple[Any, str]:
    if (shape.name is None) == (shape.config is None):
        document.mistake(("model",), 'give one of "name" (a known model) and "config" (path of a config.json).',
                         key=True)
        return None, ""
    if shape.config is not None:
        model, named = load_model(folder / shape.config, weights_known=shape.weights is not None), None
    else:
        name, named = parse_model_name(shape.name)
        model = load_model(name)
    if named and shape.weights and named != shape.weights:
        document.mistake(("model", "weights"), f'"{shape.name}" already says {named}; drop one of the two.')
    return model, weights_format(model, shape.weights or named)


def weights_format(model: Any, given: str | None) -> str:
    """The weights' format: as given, else the one that the model's file states."""
    if given is not None:
        return given
    stated = FORMAT_OF_DTYPE.get(model.dtype or "")
    if stated is None:
        raise ModelError(f'{model.name} states no weight format. Add `weights: q4_k_m` (or "bf16", "q8_0", ...).')
    return stated


# By hand.


def _by_hand(document: Document, shape: PlanShape, topology: Topology | None) -> Plan | None:
    if shape.blocks is not None and shape.tasks is not None:
        document.mistake(("blocks",), 'give "tasks" (with "repeat") or "blocks", not both.', key=True)
    if shape.blocks is not None and shape.repeat is not None:
        document.mistake(("repeat",), "each block has its own repeat; move it there.", key=True)
    if shape.blocks is None and shape.tasks is None:
        document.mistake((), 'a plan by hand needs "tasks" or "blocks".')
    tensors = {
        name: tensor for name, value in (shape.tensors or {}).items()
        if (tensor := _tensor(document, name, value, topology)) is not None
    }
    blocks = []
    if shape.tasks is not None:
        blocks.append(Block(_tasks(document, shape.tasks, ("tasks",), shape.tensors or {}, topology),
                            shape.repeat or 1))
    for index, value in enumerate(shape.blocks or []):
        block = validate(document, BlockShape, value, ("blocks", index))
        if block is not None:
            place = ("blocks", index, "tasks")
            blocks.append(Block(_tasks(document, block.tasks, place, shape.tensors or {}, topology), block.repeat))
    if document.mistakes:
        return None
    has_compute = any(isinstance(task, Compute) for block in blocks for task in block.tasks)
    title = shape.title or f"plan of {Path(document.name).name}"
    try:
        return Plan(title=title, tensors=tensors, blocks=tuple(blocks), tokens=shape.tokens,
                    in_flight=shape.in_flight, overlap=shape.overlap, data_cycle=has_compute)
    except PlanError as error:
        document.mistake((), str(error))
        return None


def _tensor(document: Document, name: str, value: Any, topology: Topology | None) -> Tensor | None:
    place = ("tensors", name)
    shape = validate(document, TensorShape, tensor_written_out(value), place)
    if shape is None:
        return None
    home = []
    left = 1.0
    rest = None
    for memory, (kind, figure) in shape.home.items():
        if topology is not None and memory not in topology.memories:
            hint = did_you_mean(memory, topology.memories, f"Memories of {topology.name}")
            document.mistake((*place, "home", memory), f'no memory "{memory}". {hint}')
        if kind == "rest":
            if rest is not None:
                document.mistake((*place, "home", memory), f"{rest} already takes the rest.")
            rest = memory
            home.append((memory, None))
            continue
        share = figure if kind == "share" else figure / shape.bytes if shape.bytes else 0.0
        left -= share
        home.append((memory, share))
    if left < -1e-9:
        document.mistake((*place, "home"), f"the shares add up to {1 - left:.4g} of the tensor, more than all of it.")
    elif rest is None and left > 1e-9:
        document.mistake((*place, "home"), f"{left:.3g} of the tensor has no home. Add `MEMORY: rest`.")
    shares = tuple((memory, max(0.0, left) if share is None else share) for memory, share in home)
    shares = tuple((memory, share) for memory, share in shares if share > 0) or shares[:1]
    return Tensor(name, shape.bytes, shares, shape.shared, shape.what)


def _tasks(
    document: Document, values: dict[str, Any], at: Location, tensors: dict[str, Any], topology: Topology | None
) -> tuple[Task, ...]:
    tasks: list[Task] = []
    if not values:
        document.mistake(at, "there is no task: give at least one move or compute.", key=True)
    for name, value in values.items():
        place = (*at, name)
        if not isinstance(value, dict) or ("move" in value) == ("compute" in value):
            document.mistake(place, 'a task is a map with either "move: TENSOR" or "compute: PROCESSOR".', key=True)
            continue
        move = "move" in value
        shape = validate(document, MoveShape if move else ComputeShape, task_written_out(value), place)
        if shape is None:
            continue
        for key in ("move",) if move else ("reads", "writes"):
            for index, tensor in enumerate([shape.move] if move else getattr(shape, key)):
                if tensor not in tensors:
                    listed = isinstance(value.get(key), list)
                    document.mistake((*place, key, index) if listed else (*place, key),
                                     f'no tensor "{tensor}". {did_you_mean(tensor, tensors, "Tensors")}')
        if topology is not None:
            _check_nodes(document, shape, place, topology, move)
        every, once = shape.every
        if move:
            tasks.append(Transfer(name, shape.move, shape.to, tuple(shape.after), every, once, tuple(shape.via),
                                  shape.host_memory, shape.buffers))
        else:
            tasks.append(Compute(name, shape.compute, shape.flops, shape.format, tuple(shape.reads),
                                 tuple(shape.writes), tuple(shape.after), every, once))
    return tuple(tasks)


def _check_nodes(document: Document, shape: Any, place: Location, topology: Topology, move: bool) -> None:
    key, name, known, kind = (
        ("to", shape.to, topology.memories, "memory") if move
        else ("compute", shape.compute, topology.processors, "processor")
    )
    if name not in known:
        plural = "Memories" if move else "Processors"
        hint = did_you_mean(name, known, f"{plural} of {topology.name}")
        document.mistake((*place, key), f'no {kind} "{name}". {hint}')
    nodes = {*topology.memories, *topology.switches}
    for index, node in enumerate(shape.via if move else ()):
        if node not in nodes:
            document.mistake((*place, "via", index), f'no node "{node}". {did_you_mean(node, nodes, "Nodes")}')


def _titled(plan: Plan, title: str) -> Plan:
    from dataclasses import replace

    return replace(plan, title=title) if title else plan
