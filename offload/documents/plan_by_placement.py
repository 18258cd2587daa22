"""A plan by placement: a model, what is asked of it, and where its layers live, as a Plan.

What a design would refuse is found here first, where the file still has a line for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from offload.designs import STAGES, Cost, Placement, Workload, check_kv, plan_model, portions_in_layers, runs
from offload.designs.homes import home_names
from offload.designs.kv import memories_named, on_drive, without_effect
from offload.designs.parallel import check_words, collectives_of, parallel_of
from offload.designs.placement import CONTEXT, experts_placement, memories_of, place_layers, with_some_ranks
from offload.designs.speculation import KEY
from offload.documents.experts_by_placement import as_stated, check_experts, check_tensors, experts_of
from offload.documents.idle_keys import idle_keys, idle_row
from offload.documents.marks import Document, Location
from offload.documents.named import no_nodes, no_stop, parts_not_alike, plain, same_home
from offload.documents.plan_by_hand import TWIN_FORMATS
from offload.documents.plan_kv_checks import block_of, check_kv_nodes, check_workload, kv_of
from offload.documents.plan_shape import (
    CostShape,
    ModelShape,
    PlacementShape,
    PlanShape,
    SpeculationShape,
    WorkloadShape,
)
from offload.documents.plan_speculation import check_chunk, speculating
from offload.documents.plan_training import plan_by_training, trains
from offload.documents.plan_weights import check_phase, check_weights, model_of_blocks, no_homes, of_shape
from offload.errors import FileError, ModelError, PlanError, TopologyError, one_line
from offload.models import Model, parse_model_name, weigh
from offload.models.budget import check_kv_format, kv_format_of, kv_notes
from offload.models.formats import FORMAT_OF_DTYPE
from offload.plan import Compute, Plan
from offload.ranges import listed
from offload.readers import load_model
from offload.topology import Topology, not_alike

KV_TASKS = ("projections", "query rows ", "attention ", "new KV ", "write KV ", "load cached KV ", "hand over KV ")
TASKS = ("layer", *STAGES, "head", "all-reduce", "embedding", "sums")  # that the plans of models have, beside STARTS
STARTS = ("fetch ", "read ", "hidden row ", "embedding row ", "partial rows ", "layer on ", "all-reduce ",
          "all-gather ", "all-to-all ", "previous.", *KV_TASKS)  # fmt: skip


def plan_by_placement(
    document: Document, shape: PlanShape, topology: Topology | None, folder: Path
) -> Plan | None:
    """The plan of `model`, `workload` and `placement`; None where the document has mistakes, which are noted in it.

    topology : None where it could not be read; what needs it is then not checked.
    """
    if trains(document):
        return plan_by_training(document, shape, topology, _costs(document, shape.costs),
                                lambda: _model(document, cast(ModelShape, shape.model), folder))
    for place in (("placement", "tensors"), ("placement", "parallel"), ("costs",)):
        if document.get(place) == {}:
            document.mistake(place, "is empty: say something, or drop the key.", key=True)
    for key in ("model", "placement"):
        if key not in document.value:
            document.mistake((), f'the key "{key}" is missing.')
    for key, text in (("tokens", "a decode step yields one for each sequence. Write workload: {batch: ...}."),
                      ("in_flight", 'in a plan by placement it stands under "workload".')):  # fmt: skip
        if key in document.value:
            document.mistake((key,), f'"{key}" at the top belongs to a plan by hand; {text}', key=True)
    placement: Placement | None = None
    model, weights = None, ""
    if shape.placement is not None:
        placement = _placement(document, shape.placement, _costs(document, shape.costs))
        if topology is not None:
            _check_placement(document, placement, topology)
    asked = shape.model
    if asked is not None:
        model, weights = _model(document, asked, folder)
    for place, one in () if model is None or not weights or placement is None else _portions(placement):
        if len(_rests(one)) < 2:
            _told(document, place, lambda: portions_in_layers(  # noqa: B023
                one, weigh(cast(Model, model), weights).layers, ".".join(place)))  # noqa: B023
    if model is not None and weights and placement is not None:
        check_tensors(document, placement.tensors, model, weights)
    if document.mistakes or asked is None or model is None or placement is None or topology is None:
        return None
    workload = _workload(document, shape.workload or WorkloadShape())
    if workload is None or not (check_phase(document, model, workload.phase)
                                and check_workload(document, placement, workload)):
        return None
    if asked.blocks is not None:
        workload = replace(workload, context=1)
    if shape.speculation is not None:
        workload = _speculating(document, shape.speculation, workload, topology, placement, folder)
        if workload is None:
            return None
    kv = kv_format_of(model, asked.kv)[0]
    def make(placed: Placement) -> Plan:
        return plan_model(model, topology, workload, placed, weights=weights, kv=kv, overlap=shape.overlap)

    plan: Plan | None = _told(document, ("model",), lambda: make(placement))
    if plan is None:
        return None
    homes = place_layers(topology, placement, weigh(model, weights).layers)
    _told(document, ("placement", "parallel"), lambda: check_words(topology, placement, homes))
    if (idle := without_effect(plan)) is not None:
        document.mistake(tuple(idle[0].split(".")), idle[1])
    if document.mistakes:
        return None
    if wrong := no_arithmetic(plan, topology, weights):
        document.mistake(("model", "weights"), wrong)
        return None
    notes = (*kv_notes(model, asked.kv), *idle_keys(document, placement, plan, make),
             *idle_row(document, plan))
    return replace(plan, title=shape.title or plan.title, assumptions=(*notes, *plan.assumptions))


def _told(document: Document, place: Location, make: Callable[[], Any], key: bool = False) -> Any:
    """What is made, or None with the error noted: where its text starts with a key of the file, there."""
    try:
        return make()
    except (PlanError, ModelError, TopologyError) as error:
        head, found, rest = str(error).partition(": ")
        named = found and head.startswith(("placement.", "workload.")) and " " not in head
        at = as_stated(document, tuple(head.split("."))) if named else place
        if at[:1] == place[:1] and document.get(at) is None:
            at = place  # what brought the key up, nearer than the map that lacks it
        document.mistake(at, rest if named else str(error), key=key and at == place)
    return None


def _placement(document: Document, shape: PlacementShape, costs: tuple[Cost, ...]) -> Placement:
    experts = None if shape.experts is None else experts_of(document, shape.experts)
    placed = Placement(
        tuple(shape.weights.items()), shape.compute, kv_of(shape), shape.reserve, shape.host_memory, tuple(shape.via),
        costs, experts, shape.access, parallel=None if shape.parallel is None else shape.parallel.asked(),
        tensors=tuple(shape.tensors.items()), numa=shape.numa or "", attention=shape.attention,
        kv_block=block_of(document, shape), cache=tuple((shape.cache or {}).items()), hand_over=shape.hand_over,
    )  # fmt: skip
    return replace(placed, **of_shape(shape))


def _costs(document: Document, shapes: Mapping[str, CostShape] | None) -> tuple[Cost, ...]:
    found = []
    for name, shape in (shapes or {}).items():
        if name in TASKS or name.startswith(STARTS):
            document.mistake(("costs", name), f'"{name}" is a task of the model itself. Name the cost for what it is, '
                             'as "sync".', key=True)
        try:
            found.append(Cost(name, shape.each, shape.time.given()))
        except ValueError as error:
            document.mistake(("costs", name, "time"), str(error))
    return tuple(found)


KEYS_OF_PHASE = {  # key -> phases that know it
    "context": ("decode", "prefill"),
    "prompt": ("prefill", "generate"),
    "generate": ("generate",),
    "in_flight": ("decode", "prefill"),
    "steps": ("denoise",),
    "chunk": ("prefill", "generate"),
    "cached": ("prefill", "generate"),
    "micro_batches": ("train",),
}
NEEDED = {"prefill": ("prompt",), "generate": ("prompt", "generate")}


def _workload(document: Document, shape: WorkloadShape) -> Workload | None:
    """What is asked; None where a key is missing or belongs to another phase, which is noted."""
    phase, sound = shape.phase, True
    for key, phases in KEYS_OF_PHASE.items():
        if phase not in phases and document.get(("workload", key)) is not None:
            document.mistake(("workload", key), f'"{key}" belongs to phase {" and ".join(phases)}, and this is '
                             f"{phase}. {OTHER_KEYS[phase]}", key=True)
            sound = False
    missing = [f'"{key}"' for key in NEEDED.get(phase, ()) if getattr(shape, key) is None]
    if missing:
        document.mistake(("workload",), f"phase {phase} needs {' and '.join(missing)}. {OTHER_KEYS[phase]}", key=True)
        sound = False
    if phase == "decode" and shape.context == 0:
        document.mistake(("workload", "context"), "the context counts the new position, so it is at least 1.")
        sound = False
    if shape.chunk is not None and not check_chunk(document, shape.chunk, shape.prompt, shape.in_flight):
        sound = False
    if not sound:
        return None
    context = shape.context if shape.context is not None else {"decode": CONTEXT}.get(phase, 0)
    return Workload(phase, shape.batch, context, shape.in_flight, shape.prompt or 0, shape.generate or 0,
                    steps=shape.steps or 1, chunk=shape.chunk or 0, cached=shape.cached)


def _speculating(
    document: Document, shape: SpeculationShape, workload: Workload, topology: Topology, placement: Placement,
    folder: Path,
) -> Workload | None:
    """The workload with guesses that a draft model makes, or none; None where something is wrong, which is noted."""
    drafting: tuple[Any, str, str] = (None, "", "f16")
    if shape.model is not None:
        model, weights = _model(document.part((KEY,)), shape.model, folder)
        if model is None or not weights:
            return None
        drafting = model, weights, kv_format_of(model, shape.model.kv)[0]
    return speculating(document, shape, workload, topology, placement, *drafting)


OTHER_KEYS = {
    "decode": "Decode takes {batch: 1, context: 4096, in_flight: 1}; or set the phase.",
    "prefill": "Prefill takes {batch: 1, prompt: 2048, context: 0}: new positions, and those before them.",
    "generate": "Generate takes {batch: 1, prompt: 512, generate: 128}: the context grows from the prompt.",
    "denoise": "Denoise takes {batch: 1, steps: 20}.",
}


def _rests(placement: Placement) -> list[str]:
    return [memory for memory, portion in placement.weights if portion.kind == "rest"]


def _portions(placement: Placement) -> list[tuple[Location, Placement]]:
    """The keys of a plan that lay layers in memories, each with its portions as `Placement.weights`."""
    found: list[tuple[Location, Placement]] = [(("placement", "weights"), placement)]
    if placement.experts is not None and placement.experts.home:
        found.append((("placement", "experts", "home"), experts_placement(placement)))
    return found


def _check_placement(document: Document, placement: Placement, topology: Topology) -> None:
    """Every memory and processor is known, and every layer and its KV cache have a way to where the layer runs."""
    for index, node in enumerate(placement.via):
        if wrong := no_stop(topology, node):
            listed = isinstance(document.get(("placement", "via")), list)
            document.mistake(("placement", "via", index) if listed else ("placement", "via"), wrong)
            placement = replace(placement, via=())
        elif node in placement.via[:index]:
            document.mistake(("placement", "via", index), f'"{node}" is given twice. Keep one.')
            placement = replace(placement, via=())
    if not _told(document, ("placement", "kv"), lambda: check_kv(topology, placement.kv)):
        placement = replace(placement, kv="with layer")  # told; no way is looked for
    check_weights(document, placement, topology)
    check_kv_nodes(document, placement, topology)
    _check_homes(document, placement, topology, ("placement",), "weights")
    if placement.experts is not None:
        apart = replace(experts_placement(placement), kv="with layer")
        if placement.experts.home:
            _check_homes(document, apart, topology, ("placement", "experts"), "home")
        check_experts(document, apart, topology)
    for pattern, memory in placement.tensors:
        place = ("placement", "tensors", pattern)
        if wrong := no_homes(topology, memory):
            document.mistake(place, wrong)
        elif (processors := _told(document, place, lambda: runs(topology, placement, memory), True)) is not None:  # noqa: B023
            _check_ways(document, replace(placement, kv="with layer"), topology, (*place, memory), processors)


def _check_homes(document: Document, placement: Placement, topology: Topology, place: Location, key: str) -> None:
    """The same of the memories that one key names, and of the processors that run what lives there."""
    for memory in _rests(placement)[1:]:
        text = f"{_rests(placement)[0]} already takes the rest; one memory may."
        document.mistake((*place, key, memory), text)
    sound = placement.compute == "local"
    if not sound:
        wrong = no_nodes(topology, placement.compute, "processor", ("local",))
        sound = not wrong
        if wrong and document.get((*place, "compute")) is not None:
            document.mistake((*place, "compute"), wrong)
    names = [memory for memory, _ in placement.weights]
    for number, memory in enumerate(names):
        named = (*place, key, memory)
        if wrong := no_homes(topology, memory) or same_home(memory, names[:number]):
            document.mistake(named, wrong, key=True)
        elif sound:
            processors = _told(document, named, lambda: runs(topology, placement, memory), True)  # noqa: B023
            if processors is not None:
                _check_ways(document, placement, topology, named, processors)


def _check_ways(
    document: Document, placement: Placement, topology: Topology, weights: Location, processors: str
) -> None:
    """Weights have a way to each rank, and the KV cache both ways."""
    memory = weights[-1]
    own, kept = listed(memories_of(topology, processors)), memories_named(placement.kv)
    for place, names in ((weights, memory), *((("placement", "kv"), name) for name in kept)):
        if wrong := with_some_ranks(topology, names, processors):
            document.mistake(place, wrong, key=len(place) > 2)
            return
    ways: list[tuple[Location, Any, list[tuple[Any, ...]]]] = []
    far = [source for source in home_names(memory) if source not in own]
    ways.append((weights, topology.route, [(source, near, placement.via) for source in far for near in own]))
    for kv in kept:
        far = [name for name in listed(kv) if name not in own]
        ways.append((("placement", "kv"), topology.route, [(name, near) for name in far for near in own]))
        if on_drive(topology, kv):
            ways.append((("placement", "kv"), topology.route, [(near, name) for name in far for near in own]))
        else:
            ways.append((("placement", "kv"), topology.write_route, [(name, one) for one in far
                                                                    for name in listed(processors)]))
    if len(own) > 1 and collectives_of(parallel_of(placement)):  # what they add up goes round
        ways.append((("placement", "compute"), topology.route, list(zip(own, [*own[1:], own[0]], strict=True))))
    for place, find, ends in ways:
        routes = []
        for one in ends:
            try:
                routes.append(find(*one))
            except TopologyError as error:
                document.mistake(place, plain(error, topology), key=len(place) > 2)
                break
        if place != ("placement", "compute") and not_alike(routes):
            document.mistake(place, parts_not_alike(place[-1], routes), key=len(place) > 2)


def _model(document: Document, shape: ModelShape, folder: Path) -> tuple[Any, str]:
    """The model and its weights' format; None and "" where they are not known."""
    if shape.blocks is not None:
        return model_of_blocks(document, shape)
    if shape.row is not None:
        document.mistake(("model", "row"), "belongs to a model that is stated in blocks. Drop it.", key=True)
    said = [key for key in ("name", "config", "gguf") if getattr(shape, key) is not None]
    if len(said) != 1:
        if said:
            text = f"{' and '.join(said)} are both given, and say which model it is: keep one of them."
            document.mistake(("model", said[1]), text, key=True)
        elif not {("model", key) for key in ("name", "config", "gguf")} & document.refused:
            text = ('give one of "name" (a known model), "config" (path of a config.json or its folder) and "gguf" '
                    "(path of a GGUF file).")
            document.mistake(("model",), text, key=True)
        return None, ""
    named = None
    if shape.name is None:
        key = "config" if shape.config is not None else "gguf"
        model = _of_files(document, key, folder / getattr(shape, key), shape)
    else:
        for key in ("like", "give"):
            if getattr(shape, key):
                document.mistake(("model", key), "goes with a model's files (config or gguf), and this one is known by "
                                 "its name. Drop it.", key=True)  # fmt: skip
        text = shape.name
        name, named = _told(document, ("model", "name"), lambda: parse_model_name(text)) or (None, None)
        model = None if name is None else load_model(name)
    if model is None:
        return None, ""
    place = ("model", "kv") if shape.kv is not None else ("model",)
    _told(document, place, lambda: check_kv_format(model, kv_format_of(model, shape.kv)[0]))
    weights = _told(document, ("model", "weights"), lambda: weights_format(model, named, shape.weights), True)
    return model, weights or ""


def _of_files(document: Document, key: str, path: Path, shape: ModelShape) -> Any:
    from offload.readers.weight_files import weights_kind  # a model by name needs none of it

    if not getattr(shape, key).strip():
        document.mistake(("model", key), 'the path is empty. Write "." for the folder of this file.')
        return None
    if key == "gguf" and path.suffix.lower() != ".gguf" and path.exists() and weights_kind(path) != "gguf":
        document.mistake(("model", key), f'"{one_line(path.name)}" is no GGUF file: it does not begin with GGUF. For '
                         'other files write "config".')
        return None
    try:
        return _told(document, ("model", key), lambda: load_model(
            path, weights_known=shape.weights is not None, like=shape.like, give=_plain(shape.give)))  # fmt: skip
    except FileError as error:
        document.mistake(("model", key), f"{error} A relative path starts from this file.")
    return None


def no_arithmetic(plan: Plan, topology: Topology, weights: str) -> str:
    """What is wrong where a processor computes in a format for which it states no FLOP/s; "" where none does.

    weights : the format of the model's weights, which says what is computed in.
    """
    for block in plan.blocks:
        for task in block.tasks:
            if not isinstance(task, Compute) or not task.format or task.flops == 0:
                continue
            for name in task.ranks or (task.processor,):
                engine = topology.resources.get(f"{name}.flops")
                offered = set() if engine is None else set(engine.sustained)
                if offered and not offered & {task.format, TWIN_FORMATS.get(task.format)}:
                    known = ", ".join(sorted(offered))
                    return (f"weights in {weights} are computed in {task.format}, for which {name} states no FLOP/s "
                            f"(it does for {known}). Name another format of the weights, as bf16, or state its "
                            f"{task.format} rate in the server's file.")  # fmt: skip
    return ""


def _plain(value: Any) -> Any:
    """A value without what a document knows of how it was written, as a model's own file would give it."""
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    kind = next((kind for kind in (bool, int, float, str) if isinstance(value, kind)), None)
    return value if kind is None else kind(value)


def weights_format(model: Model, named: str | None, given: str | None, otherwise: str | None = None) -> str:
    """The weights' format: as named with the model or given, else as its tensors are stored or its file states.

    otherwise : where none of these says any. Raises ModelError for an unknown format, two that differ, or none.
    """
    formats = [weigh(model, one).format for one in (named, given) if one is not None]
    if not formats and model.stored is not None:
        as_stored: str = model.stored.format
        return as_stored
    if len(set(formats)) > 1:
        raise ModelError(f'the name already says {named}, and "{given}" is another format: drop one of the two.')
    quantised = None if model.quantised is None else model.quantised.format
    stated = formats[0] if formats else quantised or FORMAT_OF_DTYPE.get(model.dtype or "")
    if stated is None and otherwise is not None and not model.dtype:
        return otherwise
    if stated is None:
        says = f'states "{model.dtype}", which is no weight format here' if model.dtype else "states no weight format"
        raise ModelError(f"{model.name} {says}. Say it: `weights: bf16` in a plan file, --weights bf16 without one (or "
                         "q8_0, q4_k_m, fp8, int8, ...).")
    return stated
