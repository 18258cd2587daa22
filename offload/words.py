"""A question in words instead of a file: a model, a server, and how many layers live at the GPU."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from offload.compiler import compile_step
from offload.designs import Experts, Placement, Portion, Workload, plan_model
from offload.designs.placement import CONTEXT, memories_of
from offload.documents import load_topology
from offload.documents.idle_keys import idle_buffers
from offload.documents.plan_by_placement import no_arithmetic, weights_format
from offload.documents.server_settings import change_topology
from offload.documents.settings import Setting, settings_of
from offload.errors import ModelError, OffloadError, PlanError, did_you_mean, one_line
from offload.models import Model, layers_of, parse_model_name, weigh
from offload.models.budget import check_kv_format, kv_format_of, kv_notes
from offload.models.families.said import read_given
from offload.plan import Overlap, Plan
from offload.ranges import fold, listed
from offload.readers import load_model
from offload.topology import Topology
from offload.units import many

SETTINGS = {  # paths of a plan that options say
    ("topology",): "--on", ("model", "name"): "the first word", ("model", "config"): "the first word",
    ("model", "gguf"): "the first word", ("model", "like"): "--like", ("model", "give"): "--give",
    ("model", "weights"): "--weights", ("model", "kv"): "--kv-format", ("workload", "batch"): "--batch",
    ("workload", "context"): "--context", ("workload", "prompt"): "--prompt", ("workload", "generate"): "--generate",
    ("placement", "weights"): "--gpu-layers", ("placement", "kv"): "--kv",
    ("placement", "experts"): "--cpu-experts", ("placement", "compute"): "--compute",
    ("placement", "reserve"): "--reserve", ("overlap",): "--buffers",
}  # fmt: skip
OF_TRAINING = {"--compute": ("training", "compute"), "--reserve": ("training", "reserve")}  # its own paths
NOT_OF_TRAINING = ("--gpu-layers", "--cpu-experts", "--kv", "--kv-format", "--prompt", "--generate")
OPTIONS = {"weights": "--gpu-layers", "compute": "--compute", "kv": "--kv"}  # by the placement's keys


def plan_from_words(
    target: str,
    topology: str | Topology,
    *,
    gpu_layers: int | None = None,
    cpu_experts: int | None = None,
    compute: str | None = None,
    kv: str | None = None,
    batch: int | None = None,
    context: int | None = None,
    prompt: int | None = None,
    generate: int | None = None,
    overlap: Overlap | None = None,
    weights: str | None = None,
    kv_format: str | None = None,
    reserve: int | None = None,
    like: str | None = None,
    give: Sequence[str] | None = None,
    settings: Sequence[Setting | str] = (),
    first_gpu: bool = False,
) -> tuple[Plan, Topology]:
    """The plan of MODEL[:FORMAT] (or a config.json) on a server, `gpu_layers` of it at the GPU.

    A decode step; with `prompt` a prefill, with `generate` too a whole request. Without `gpu_layers` as many as fit.
    cpu_experts : of so many first layers the experts live in host memory and run there (llama.cpp's --n-cpu-moe).
    reserve : bytes kept free on the GPU [B]. like, give : as of `model_and_format`. settings : of the server, or
    texts PATH=VALUE; those of a plan are refused with the option that says the same. first_gpu : of several GPUs the
    first is meant where `compute` says none; else that is refused. Raises OffloadError for what is not known or cannot
    be.
    """
    settings = settings_of(settings)
    _refuse_plan_settings(settings)
    server = change_topology(topology if isinstance(topology, Topology) else load_topology(topology), settings)
    model, format_ = model_and_format(target, weights, like=like, give=give)
    near, far = _memories(server, compute, first_gpu)
    asked = _workload(batch or 1, context, prompt, generate)
    extra: dict[str, Any] = {} if reserve is None else {"reserve": reserve}
    chosen = compute or ("local" if far is not None else _gpu(server, first_gpu))
    if kv_format is not None:
        _named("--kv-format", lambda: check_kv_format(model, kv_format))
    kept = kv_format_of(model, kv_format)[0]
    both = [name for name in server.processors_of(listed(near)[0]) if server.processors[name].kind != "gpu"]
    by_default = () if compute or far is not None or not both else (
        f"all layers run on {chosen}, which shares {near} with {', '.join(both)}: --compute {both[0]} runs them there",
    )  # fmt: skip

    def plan_of(layers: int) -> Plan:
        rest = Portion("rest")
        if far is None:
            portions: tuple[tuple[str, Portion], ...] = ((near, rest),)
        elif layers == 0 and _works_elsewhere(server, chosen, near):
            portions = ((far, rest),)
        else:
            portions = ((near, Portion("layers", layers)), (far, rest))
        experts = _cpu_experts(cpu_experts, model, near, far, layers)
        placed = Placement(portions, chosen, kv or "with layer", experts=experts, **extra)
        try:
            plan = plan_model(model, server, asked, placed, weights=format_, kv=kept, overlap=overlap)
        except PlanError as error:
            raise PlanError(_as_option(str(error))) from None
        if wrong := no_arithmetic(plan, server, format_):
            raise PlanError(f"{one_line(target)}: {wrong}")
        beside = _idle_experts(cpu_experts, near) if far is None else (
            _beside_experts(cpu_experts, experts, model, far, chosen == "local"))
        told = (*by_default, *beside, *idle_buffers(plan, "--buffers"), *kv_notes(model, kv_format))
        return replace(plan, assumptions=(*told, *plan.assumptions))

    if cpu_experts is not None:
        _check_cpu_experts(cpu_experts, model, server, near, far)
        on_cpu = far is None and chosen != "local" and server.processors[listed(chosen)[0]].kind != "gpu"
        if cpu_experts and (gpu_layers or 0) == 0 and (on_cpu or _works_elsewhere(server, chosen, near)):
            raise PlanError(f"--cpu-experts {cpu_experts}: with --compute {chosen} all layers live in {far or near} "
                            f"and run on {chosen}, their experts too. Drop one of the two.")
    _check_gpu_layers(gpu_layers, model)
    if far is None:
        if gpu_layers and server.memories[listed(near)[0]].kind == "dram":
            raise PlanError(f"--gpu-layers {gpu_layers}: in which GPU's memory? {chosen} works in {near}, and "
                            f"{server.name} has {_gpus_in_words(server)}. Drop --gpu-layers, or write a plan file.")
        if gpu_layers not in (None, 0, model.layers):
            raise PlanError(f"--gpu-layers {gpu_layers}: {server.name} has one memory for its GPU and CPU ({near}), "
                            f"so all {model.layers} layers are in it. Drop --gpu-layers.")
        return plan_of(model.layers), server
    if gpu_layers is not None:
        return plan_of(gpu_layers), server
    if _works_elsewhere(server, chosen, near):
        return plan_of(0), server
    return plan_of(_most_that_fit(plan_of, server, near, model.layers)), server


def check_words(
    target: str,
    *,
    gpu_layers: int | None = None,
    cpu_experts: int | None = None,
    compute: str | None = None,
    batch: int | None = None,
    context: int | None = None,
    prompt: int | None = None,
    generate: int | None = None,
    weights: str | None = None,
    kv_format: str | None = None,
    like: str | None = None,
    give: Sequence[str] | None = None,
    settings: Sequence[Setting | str] = (),
    **others: Any,
) -> None:
    """Raises OffloadError for what of the words of `plan_from_words` is wrong on every server."""
    _refuse_plan_settings(settings_of(settings))
    model, _ = model_and_format(target, weights, like=like, give=give)
    _workload(batch or 1, context, prompt, generate)
    if kv_format is not None:
        _named("--kv-format", lambda: check_kv_format(model, kv_format))
    if compute not in (None, "local"):
        _named_processors(compute)
    if cpu_experts is not None:
        _check_count_of_experts(cpu_experts, model)
    _check_gpu_layers(gpu_layers, model)


def _check_gpu_layers(count: int | None, model: Model) -> None:
    """Raises PlanError for more layers than the model has."""
    if count is not None and count > model.layers:
        raise PlanError(f"--gpu-layers {count}: {model.name} has {model.layers} layers. Write --gpu-layers "
                        f"{model.layers} for all of them, or drop it for as many as fit.")


def _cpu_experts(count: int | None, model: Model, near: str, far: str | None, layers: int) -> Experts | None:
    """Experts of the first layers in host memory; those of layers that live there anyway stay with them."""
    if not count or far is None:
        return None
    there = max(count, model.layers - layers)
    home = [(near, Portion("layers", model.layers - there)), (far, Portion("layers", there))]
    return Experts(tuple(one for one in home if one[1].value), "local")


def _beside_experts(
    count: int | None, experts: Experts | None, model: Model, far: str, local: bool
) -> tuple[str, ...]:
    """A note where the experts of more layers live in host memory than were asked for (those of all that live there),
    or of fewer, as dense layers were counted too.
    """
    if not count or experts is None:
        return ()
    there = sum(int(portion.value) for name, portion in experts.home if name == far)
    if there > count:
        idle = " changes nothing" if local else ""
        live = "lives" if there == 1 else "live"
        return (f"--cpu-experts {count}{idle}: {there} of {many(model.layers, 'layer')} {live} in {far}, and the "
                "experts of all of these run next to it",)  # fmt: skip
    has = [layer.experts is not None for layer in layers_of(model)]
    moved, every = sum(has[:count]), sum(has)
    if moved == count or moved == every:
        return ()
    dense, last = count - moved, max(place for place, one in enumerate(has, 1) if one)
    return (f"--cpu-experts {count}: {many(count, 'layer')} counted from the first; {dense} of them "
            f"{'is' if dense == 1 else 'are'} dense: the experts of {moved} of {many(every, 'layer')} with experts; "
            f"of all with --cpu-experts {last}",)  # fmt: skip


def _idle_experts(count: int | None, near: str) -> tuple[str, ...]:
    """A note where CPU and GPU share the memory in which everything lies: there is nowhere else for experts to be.

    llama.cpp runs such experts on the CPU also there, which gains nothing; a plan file can say that.
    """
    return () if not count else (
        f"--cpu-experts {count} changes nothing here: {near} holds all weights, and experts run where their layers do "
        "(llama.cpp --n-cpu-moe has the CPU run them; placement.experts.compute of a plan file says so)",)  # fmt: skip


def _check_cpu_experts(count: int, model: Model, server: Topology, near: str, far: str | None) -> None:
    """Raises PlanError where the experts of so many layers cannot run in host memory."""
    _check_count_of_experts(count, model)
    shared = any(server.processors[name].kind != "gpu" for name in server.processors_of(listed(near)[0]))
    if far is None and not shared and server.memories[listed(near)[0]].kind != "unified":
        raise PlanError(f"--cpu-experts {count}: {server.name} has no host memory. Drop it, or write a plan file.")


def _check_count_of_experts(count: int, model: Model) -> None:
    """Raises PlanError where a model has no experts, or in fewer layers."""
    if not any(layer.experts for layer in layers_of(model)):
        raise PlanError(f"--cpu-experts {count}: {model.name} has no experts that a router chooses. Write --gpu-layers "
                        "for whole layers.")
    if count > model.layers:
        raise PlanError(f"--cpu-experts {count}: {model.name} has {model.layers} layers. Write --cpu-experts "
                        f"{model.layers} for the experts of all of them.")


def _refuse_plan_settings(settings: Sequence[Setting]) -> None:
    for one in settings:
        if one.is_of_plan:
            option = next((option for path, option in SETTINGS.items() if one.path[: len(path)] == path), None)
            if option is None:
                wrong = f"{one.origin}: without a plan file there is no {'.'.join(one.path)} to set."
                raise OffloadError(f"{wrong} Write one, or set a value of the server, as pcie0.rate=30GB/s.")
            raise OffloadError(f"{one.origin}: without a plan file, {option} says it. Drop the setting.")


def instead_of(option: str, kind: str) -> str:
    """How to change in a plan file what an option says without one; "" where such a plan has nothing of it.

    kind : as of `documents.plan_kind`.
    """
    if option == "--on":
        return "-t SERVER"
    if kind == "by hand" or (kind == "of training" and option in NOT_OF_TRAINING):
        return ""
    paths = {option: path for path, option in SETTINGS.items()} | (OF_TRAINING if kind == "of training" else {})
    return f"--set {'.'.join(paths[option])}=..."


def model_and_format(
    target: str, weights: str | None, otherwise: str | None = None, *, like: str | None = None,
    give: Sequence[str] | None = None,
) -> tuple[Model, str]:  # fmt: skip
    """The model and its weights' format, by name or from its files, as MODEL, PATH, MODEL:FORMAT or PATH:FORMAT.

    otherwise : the format where nothing says any; without it that is refused. like, give : of a family that is not
    known and of keys that its file lacks (KEY=VALUE), as of `load_model`. Raises OffloadError for what is not known,
    OSError for a file that cannot be read.
    """
    if target.strip() == "-":
        raise ModelError('"-" is no model. For one on standard input write /dev/stdin: its config.json is read.')
    said = {"like": like, "give": _named("--give", lambda: read_given(give or ()))}
    if _is_path(target):
        model, named = load_model(target, weights_known=weights is not None, **said), None
    elif ":" in target and _is_path(path := target.rpartition(":")[0]):
        format_ = target.rpartition(":")[2]
        model, named = load_model(path, weights_known=True, **said), format_
        _named(f'"{one_line(target)}"', lambda: weigh(model, format_))
    else:
        name, named = parse_model_name(target)
        model = load_model(name, **said)
    if weights is not None:
        _named("--weights", lambda: weigh(model, weights))
    return model, weights_format(model, named, weights, otherwise)


def _is_path(text: str) -> bool:
    """Whether a target is a file or a folder: it is there, or it is spelled as one and is no path with a format."""
    if os.path.exists(text):
        return True
    before, colon, _ = text.rpartition(":")
    spelled = "/" in text or os.sep in text or text.endswith((".json", ".gguf", ".safetensors"))
    return spelled and not (colon and _is_path(before))


def _named(option: str, make: Callable[[], Any]) -> Any:
    """What is made; raises what making raises, with the option that was written."""
    try:
        return make()
    except ModelError as error:
        raise ModelError(f"{option}: {error}") from None


def _as_option(message: str) -> str:
    """A design's message about a key of a placement, about the option that set it instead."""
    head, found, rest = message.partition(": ")
    key = head.removeprefix("placement.")
    if not found or key == head or key not in OPTIONS:
        return message
    return f"{OPTIONS[key]}: {rest.replace('`compute: ', '`--compute ')}"


def _works_elsewhere(server: Topology, compute: str, near: str) -> bool:
    """Whether a processor was chosen that does not work in the GPU's memory: nothing is kept there for it."""
    names = _named_processors(compute) if compute != "local" else []
    return bool(names) and all(name in server.processors for name in names) and memories_of(server, compute) != near


def _most_that_fit(plan_of: Callable[[int], Plan], server: Topology, memory: str, layers: int) -> int:
    """The most layers with which nothing is missing there: mostly all, or where the line of their bytes reaches it."""
    memories = [server.memories[name] for name in listed(memory)]

    @cache
    def over(count: int) -> int:
        """Bytes more than there are, of the memory with the most; below 0 where all fits [B]."""
        held = compile_step(server, plan_of(count)).occupied
        return max((sum(held.get(one.name, {}).values()) - one.capacity * one.count for one in memories
                    if one.capacity is not None), default=0)  # fmt: skip

    if over(layers) <= 0:
        return layers
    low, high, tries = 0, layers, 0
    if high and over(low) > 0:
        return low
    while high - low > 1:
        middle = (low + high) // 2
        if tries % 3 < 2:  # else by halves: buffers and the head make steps
            line = low - (high - low) * over(low) // (over(high) - over(low))
            middle = min(max(line, low + 1), high - 1)
        low, high, tries = (low, middle, tries + 1) if over(middle) > 0 else (middle, high, tries + 1)
    return low


def _workload(batch: int, context: int | None, prompt: int | None, generate: int | None) -> Workload:
    if generate is not None:
        if prompt is None:
            raise PlanError("--generate needs --prompt: how many positions come before the first token?")
        if context is not None:
            raise PlanError("--context does not go with --generate: the context grows from the prompt. Drop it.")
        return Workload("generate", batch, prompt=prompt, generate=generate)
    if prompt is not None:
        return Workload("prefill", batch, context or 0, prompt=prompt)
    if context == 0:
        raise PlanError("--context 0: the context counts the new position, so it is at least 1.")
    return Workload("decode", batch, CONTEXT if context is None else context)


def _gpus(server: Topology) -> list[str]:
    return sorted(name for name, processor in server.processors.items() if processor.kind == "gpu")


def _gpus_in_words(server: Topology) -> str:
    count = len(_gpus(server))
    return many(count, "GPU") if count else "none"


def _gpu(server: Topology, first: bool = False) -> str:
    gpus = _gpus(server)
    if len(gpus) != 1 and not (first and gpus):
        if not gpus:
            cpus = fold(sorted(name for name, one in server.processors.items() if one.kind == "cpu"))
            alone = f"Run it on the CPU (--compute {cpus}), or write" if cpus else "Write"
            raise PlanError(f"{server.name} has no GPU; without a plan file it takes one. {alone} a plan file that "
                            "says where the layers live.")
        raise PlanError(f"{server.name} has {len(gpus)} GPUs. Say which: --compute {gpus[0]}, or several that work "
                        f"alike: --compute {fold(gpus)}.")
    return gpus[0]


def _memories(server: Topology, compute: str | None, first_gpu: bool = False) -> tuple[str, str | None]:
    """The GPU's memory (of several chosen GPUs the range) and the host's; None where they are one or there is none.

    Where CPUs are chosen the host's is the one that they work in, and without a single GPU it is the only one.
    """
    chosen = [] if compute is None or compute == "local" else _named_processors(compute)
    named = compute or ""
    for name in chosen:
        if name not in server.processors:
            hint = did_you_mean(name, ["local", *server.processors], "Allowed")
            raise PlanError(f'--compute: no processor "{name}". {hint}')
    if chosen and all(name in server.processors and server.processors[name].kind == "gpu" for name in chosen):
        near = memories_of(server, named)
    elif chosen and all(server.processors[name].kind != "gpu" for name in chosen):
        far, gpus = memories_of(server, named), _gpus(server)
        near = server.memory_of(gpus[0]) if len(gpus) == 1 else far
        return (near, None) if near == far else (near, far)
    elif chosen:
        raise PlanError(f"--compute: {compute} are GPUs and CPUs, which do not work alike. Write one kind of them.")
    else:
        near = server.memory_of(_gpu(server, first_gpu))
    own = listed(near)
    hosts = sorted(name for name, memory in server.memories.items() if memory.kind == "dram" and name not in own)
    if server.memories[own[0]].kind == "unified" or not hosts:
        return near, None
    return near, hosts[0]


def _named_processors(text: str) -> list[str]:
    try:
        return listed(text)
    except ValueError as error:
        raise PlanError(f"--compute: {error}") from None
