"""The flags and files with which engines are told of a placement, and what each of them cannot be told.

llama.cpp takes layers from the last one on (`-ngl`, which counts the output head as one more), experts of first layers
(`--n-cpu-moe`) and tensors by regular expressions (`-ot`), the first that matches. vLLM keeps so many GiB of weights in
host memory and reads them from there, or streams the last layers of each group ahead; accelerate and DeepSpeed stream
what lives elsewhere to the GPU; ktransformers replaces modules by rules.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace

from offload.designs import Workload
from offload.designs.placement import in_short_names, place_layers
from offload.models import layers_of, weigh
from offload.models.architecture import STATED
from offload.placing.module_names import LAYER, LLAMA_LIKE, MIXTURES
from offload.placing.problem import feed_forward_of, first_numbers
from offload.placing.search import Found
from offload.ranges import listed
from offload.step import Step
from offload.topology import Topology
from offload.topology.shares import DRIVES
from offload.units import format_bytes

GIB = 2**30
HOSTS = ("dram", "cxl")  # kinds of memories that engines call "cpu"
WEIGHTS = ("layer weights", "experts", "output head")
PLACED = (*WEIGHTS, "KV cache")  # what a placement puts somewhere: not rows of the embedding, nor buffers


@dataclass(frozen=True, slots=True)
class Engine:
    """What an engine takes: its flags or its file's text; "" where it cannot run the placement at all.

    kind : "flags", "json" or "yaml". cannot : what of the placement it cannot be told, in words.
    """

    name: str
    kind: str
    text: str
    cannot: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Layout:
    """A placement layer by layer, in the words that engines share: "gpu", "cpu" or "disk".

    homes : where each layer's weights live. runs : where each layer runs. parts : where each layer's experts (or
    feed-forward, with `pattern`) live, () where with their layer. head : where the output head lives.
    """

    homes: tuple[str, ...]
    runs: tuple[str, ...]
    parts: tuple[str, ...]
    parts_run: str
    head: str
    kv: str
    attention: str
    gpus: int


def engines_of(found: Found) -> tuple[Engine, ...]:
    """What each engine takes for a placement; none for a model that is stated in blocks, which no engine runs."""
    model = found.question.model
    if model.family == STATED:
        return ()
    laid, alike = _layout(found), _told_as_one(found.step)
    engines = (_llama(found, laid), _vllm(found, laid), _accelerate(found, laid), _deepspeed(found, laid),
               _ktransformers(found, laid))  # fmt: skip
    return tuple(replace(one, cannot=(*one.cannot, *alike)) if one.text else one for one in engines)


def _told_as_one(step: Step) -> list[str]:
    """What no engine tells apart: "cpu" is all host memory, whichever socket it is at, and "disk" one folder."""
    cannot = []
    for kinds, what in ((HOSTS, "all host memory is one to it, whichever processor reads it"),
                        (DRIVES, "it takes one folder or file")):  # fmt: skip
        names = [name for name, memory in step.topology.memories.items()
                 if memory.kind in kinds and any(step.occupied.get(name, {}).get(part) for part in PLACED)]  # fmt: skip
        if len(names) > 1:
            cannot.append(f"which of {', '.join(names[:-1])} and {names[-1]} holds what: {what}")
    return cannot


def _layout(found: Found) -> _Layout:
    topology, placement = found.question.topology, in_short_names(found.placement)
    sizes = found.question.sizes
    homes = place_layers(topology, placement, sizes)
    parts: tuple[str, ...] = ()
    family = found.family
    if family.parts and not family.keys:
        places = family.parts_of(topology, sizes, found.counts[1])
        parts = tuple(_word(topology, family.parts[place]) for place in places)
    gpus = {name for home in homes for name in listed(home.processor) if topology.processors[name].kind == "gpu"}
    moved = any(pattern.startswith(r"^output") for pattern, _ in placement.tensors)
    kv = placement.kv if isinstance(placement.kv, str) else "several"
    runs = tuple("gpu" if topology.processors[listed(home.processor)[0]].kind == "gpu" else "cpu" for home in homes)

    def word(memory: str, run: str) -> str:
        """Of one memory of both, whoever runs the layer has it."""
        kind = topology.memories[listed(memory)[0]].kind
        return run if kind == "unified" else _word(topology, memory)

    return _Layout(
        tuple(word(home.memory, run) for home, run in zip(homes, runs, strict=True)), runs,
        parts, "gpu" if placement.experts is not None and placement.compute != "local" else "local",
        "cpu" if moved else word(placement.weights[0][0], "gpu" if "gpu" in runs else "cpu"),
        kv if kv in ("with layer", "several") else _word(topology, kv), "cpu" if placement.attention else "", len(gpus),
    )  # fmt: skip


def _word(topology: Topology, memory: str) -> str:
    kind = topology.memories[listed(memory)[0]].kind
    return "disk" if kind in DRIVES else "cpu" if kind in HOSTS else "gpu"


def _several(laid: _Layout, how: str) -> list[str]:
    return [f"several GPUs that work alike: {how}"] if laid.gpus > 1 else []


def _last(laid: _Layout) -> int | None:
    """How many last layers are the GPU's, where those before are all elsewhere; None where they are mixed."""
    count = sum(home == "gpu" for home in laid.homes)
    return count if all(home == "gpu" for home in laid.homes[len(laid.homes) - count :]) else None


def _llama(found: Found, laid: _Layout) -> Engine:
    workload = found.question.workload
    cannot = _several(laid, "--split-mode row or tensor has rules of its own")
    flags = []
    last = _last(laid)
    count = sum(home == "gpu" for home in laid.homes)
    elsewhere = [home for home, runs in zip(laid.homes, laid.runs, strict=True) if home != "gpu" and runs == "gpu"]
    if elsewhere:
        cannot.append(f"{len(elsewhere)} layers that stream to the GPU each step: it runs them on the CPU (in decode)")
    if "disk" in laid.homes or "disk" in laid.parts:
        cannot.append("which layers stay on the drive: what does not fit in host memory is paged in as it comes (mmap)")
    if last is None:
        cannot.append("streamed layers among resident ones: -ngl takes the last layers")
    if laid.head == "gpu":
        flags.append(f"-ngl {count + 1}" if count else "-ngl 1")
    else:
        flags.append(f"-ngl {count + 1 if count else 0}")
        flags += ['-ot "^output\\.weight=CPU"'] if count else []
    if laid.parts:
        there = sum(part != "gpu" for part in laid.parts)
        if found.family.pattern:
            flags += [f'-ot "{feed_forward_of(there)}=CPU"'] if there else []
        else:
            flags += _experts_on_the_cpu(laid, there)
            if laid.parts_run == "gpu":
                cannot.append("experts that come to the GPU: it runs those of host memory on the CPU (in decode)")
    if laid.kv == "several":
        cannot.append("KV of some layers elsewhere than where the layer runs")
    if laid.kv == "cpu":
        flags.append("--no-kv-offload")
        if not laid.attention:
            cannot.append("KV that comes to the GPU each step: with KV in host memory its attention runs on the CPU")
    formats = {"f16": "", "q8_0": "q8_0", "q4_0": "q4_0", "bf16": "bf16", "f32": "f32"}
    kept = formats.get(found.question.kv)
    if kept is None:
        cannot.append(f"KV in {found.question.kv}: f16, bf16, f32, q8_0, q4_0 and others of GGML are taken")
    elif kept:
        flags.append(f"-ctk {kept} -ctv {kept}" + (" -fa on" if kept[0] == "q" else ""))  # V in q8_0 needs it
    flags.append(f"-c {_context(workload)}" + (f" -np {workload.batch}" if workload.batch > 1 else ""))
    cannot.append("buffers: it copies nothing ahead")
    return Engine("llama.cpp", "flags", " ".join(flags), tuple(cannot))


def _experts_on_the_cpu(laid: _Layout, there: int) -> list[str]:
    """Experts of so many layers: of the first ones, or of those that are named, as a regular expression is searched."""
    layers = [number for number, part in enumerate(laid.parts) if part != "gpu"]
    if not there or layers == list(range(there)):
        return [f"--n-cpu-moe {there}"] if there else []
    return [f'-ot "blk\\.({"|".join(map(str, layers))})\\.ffn_(up|down|gate|gate_up)_(ch|)exps=CPU"']


def _context(workload: Workload) -> int:
    """Positions of all sequences together, which -c counts."""
    return int((workload.context + workload.prompt) * workload.batch)


def _vllm(found: Found, laid: _Layout) -> Engine:
    sizes = found.question.sizes
    cannot = []
    away = _bytes_away(found.step)
    streamed = sum(home != "gpu" and run == "gpu" for home, run in zip(laid.homes, laid.runs, strict=True))
    flags = []
    if streamed and not laid.parts and found.placement.access == "copy":
        size, each, count = _groups(len(laid.homes), streamed)
        flags.append(f"--offload-group-size {size} --offload-num-in-group {each} "
                     f"--offload-prefetch-step {max(found.overlap.buffers, 1)}")
        if count != streamed:
            cannot.append(f"{streamed} streamed layers: groups of equal size make {count}")
    elif away:
        flags.append(f"--cpu-offload-gb {math.ceil(10 * away / GIB / max(laid.gpus, 1)) / 10:g}")
        if laid.parts and not found.family.pattern and "gpu" not in laid.parts:
            flags[-1] += " --cpu-offload-params experts"
    flags += [f"--tensor-parallel-size {laid.gpus}"] if laid.gpus > 1 else []
    flags += [f"--max-num-seqs {found.question.workload.batch}", f"--max-model-len {_longest(found.question.workload)}"]
    if "cpu" in laid.runs or (laid.parts and laid.parts_run == "local" and "cpu" in laid.parts):
        cannot.append("layers or experts that run on the CPU: it reads what it keeps in host memory from the GPU")
    if "disk" in laid.homes or "disk" in laid.parts:
        cannot.append("weights on a drive")
    if laid.kv in ("cpu", "several"):
        size = sum(parts.get("KV cache", 0) for name, parts in found.step.occupied.items()
                   if found.question.topology.memories[name].kind not in ("hbm", "unified"))  # fmt: skip
        flags.append(f"--kv-offloading-size {math.ceil(size / GIB)} --kv-offloading-backend native")
        cannot.append("KV in use outside of the GPU: what it offloads is KV that no running step reads")
    if flags and flags[0].startswith("--cpu-offload-gb") and laid.homes.count("gpu") not in (0, len(sizes)):
        cannot.append("which layers stay: it takes parameters of first ones until so many GiB are in host memory")
    if laid.head != "gpu":
        cannot.append("an output head by itself in host memory")
    if found.question.weights.startswith(("q", "iq")) and found.question.weights[1:2].isdigit():
        cannot.append(f"{found.question.weights} runs from GGUF files only where that is supported")
    return Engine("vLLM", "flags", " ".join(flags), tuple(cannot))


def _groups(layers: int, streamed: int) -> tuple[int, int, int]:
    """(layers in a group, of those the last that stream, how many stream in all): no fewer than `streamed`.

    The nearest number of them, in the smallest groups. Layer i streams where i mod size >= size - each.
    """
    ways = ((sum(number % size >= size - each for number in range(layers)), size, each)
            for size in range(1, layers + 1) for each in range(1, size + 1))  # fmt: skip
    count, size, each = min(way for way in ways if way[0] >= streamed)
    return size, each, count


def _longest(workload: Workload) -> int:
    return int(workload.context + workload.prompt)


def _bytes_away(step: Step) -> int:
    """Weights that live in no GPU's memory, but for the input embedding [B]."""
    kinds = step.topology.memories
    return sum(size for name, parts in step.occupied.items() if kinds[name].kind not in ("hbm", "unified")
               for part, size in parts.items() if part in WEIGHTS)  # fmt: skip


def _accelerate(found: Found, laid: _Layout) -> Engine:
    model = found.question.model
    if model.family not in LLAMA_LIKE:
        return Engine("accelerate", "json", "", (f"{model.family}: its names of modules are not known here",))
    words = {"gpu": 0, "cpu": "cpu", "disk": "disk"}
    head = words[laid.head]
    device_map: dict[str, object] = {"model.embed_tokens": head if model.tied else 0}
    for number, home in enumerate(laid.homes):
        layer, part = f"model.layers.{number}", laid.parts[number] if laid.parts else home
        routed = layers_of(model)[number].experts is not None
        if part == home or not found.family.pattern and not routed:
            device_map[layer] = words[home]
            continue
        device_map |= {f"{layer}.{one}": words[home] for one in LAYER}
        if found.family.pattern:
            device_map[f"{layer}.mlp"] = words[part]
        else:
            own = MIXTURES[model.family]
            device_map |= {f"{layer}.{own.block}.{one}": words[home] for one in own.beside}
            device_map[f"{layer}.{own.block}.experts"] = words[part]
    device_map |= {"model.norm": head, "lm_head": head}
    cannot = ["buffers: hooks copy each module as its turn comes, from pageable memory, and nothing ahead"]
    if "cpu" in laid.runs or (laid.parts and laid.parts_run == "local" and set(laid.parts) != {"gpu"}):
        cannot.insert(0, "what runs on the CPU: it copies all weights to the GPU for each pass, where there is one")
    if not model.tied:
        cannot.append(f"rows of the input embedding from host memory: all {format_bytes(found.question.embedding)} of "
                      "it are on the GPU")
    if laid.kv in ("cpu", "several"):
        cannot.append("where KV lives (cache_implementation=\"offloaded\" of transformers is by layer)")
    cannot += _several(laid, "a device_map gives each module one device")
    return Engine("accelerate", "json", json.dumps(device_map, indent=1), tuple(cannot))


def _deepspeed(found: Found, laid: _Layout) -> Engine:
    cannot = ["layers by name: parameters stay on the GPU by size (persistence thresholds), not by layer"]
    device = "nvme" if "disk" in laid.homes else "cpu"
    largest = max(weigh(found.question.model, "bf16").layers) // 2  # DeepSpeed counts elements, not bytes
    count = found.overlap.buffers if found.overlap.kind == "buffers" and found.overlap.buffers else 1
    offload: dict[str, object] = {"device": device, "pin_memory": True}
    if device == "nvme":
        offload |= {"nvme_path": "/local_nvme", "buffer_count": count, "buffer_size": largest}
        if "cpu" in laid.homes:
            cannot.append("layers in host memory and others on a drive by count: all are on the drive, but for "
                          "max_in_cpu parameters")  # fmt: skip
    config = {"train_micro_batch_size_per_gpu": found.question.workload.batch, "bf16": {"enabled": True},
              "zero_optimization": {
        "stage": 3, "offload_param": offload, "stage3_prefetch_bucket_size": largest * max(count - 1, 0),
        "stage3_max_live_parameters": largest * count, "stage3_max_reuse_distance": 0,
    }}  # fmt: skip
    if "cpu" in laid.runs or laid.parts:
        cannot.insert(0, "what runs on the CPU, and experts apart: every layer comes to the GPU")
    if laid.kv in ("cpu", "several"):
        cannot.append("where KV lives, outside of its own kv_offload")
    if found.question.weights not in ("bf16", "f16", "fp16"):
        cannot.append(f"{found.question.weights}: it moves parameters of 16 bits")
    return Engine("DeepSpeed", "json", json.dumps(config, indent=1), tuple(cannot))


def _ktransformers(found: Found, laid: _Layout) -> Engine:
    model = found.question.model
    if not any(layer.experts for layer in layers_of(model)):
        return Engine("ktransformers", "yaml", "", ("a dense model: its rules place experts on the CPU",))
    mixture = MIXTURES.get(model.family)
    if mixture is None or not mixture.injected:
        return Engine("ktransformers", "yaml", "", (f"{model.family}: which of its modules take its experts is not "
                                                    "known here",))
    cannot = []
    away = [number for number, home in enumerate(laid.homes) if home != "gpu"]
    parts = laid.parts or laid.homes
    there = [number for number, part in enumerate(parts) if part != "gpu"]
    # The first rule that matches a module counts, so what is of experts comes first.
    rules = [_rule(rf"^model\.layers\..*\.{mixture.block}$", mixture.injected,
                   {"generate_device": "cuda", "prefill_device": "cuda"}, match=mixture.block_class)]
    if there:
        rules.append(_rule(
            rf"^model\.layers\.{_numbers(there)}\.{mixture.block}\.experts$",
            mixture.experts_class,
            {"generate_device": "cpu", "generate_op": "KExpertsCPU", "prefill_device": "cuda",
             "prefill_op": "KExpertsTorch", "out_device": "cuda"}, recursive=False))  # fmt: skip
    if len(there) < len(parts):
        rules.append(_rule(rf"^model\.layers\..*\.{mixture.block}\.experts$",
                           mixture.experts_class,
                           {"generate_device": "cuda", "generate_op": "KExpertsMarlin", "prefill_device": "cuda",
                            "prefill_op": "KExpertsTorch", "out_device": "cuda"}, recursive=False))  # fmt: skip
        cannot.append("experts in GGUF formats on the GPU: KExpertsMarlin holds them in its own 4 bits, without graphs")
    rules.append(_rule("^model.embed_tokens", "default", {"generate_device": "cpu", "prefill_device": "cpu"}))
    if away:
        cannot.append(f"{len(away)} whole layers on the CPU: but for experts they are on the GPU there")
    if laid.head != "gpu":
        cannot.append("an output head by itself in host memory")
    cannot.append("the rest of a model's rules, its attention and linears: add its optimize_rules/*.yaml below")
    cannot.append("layers by kt-kernel in SGLang, its successor: --kt-num-gpu-experts counts experts of each layer")
    comes = any(home != "gpu" and run == "gpu" for home, run in zip(laid.homes, laid.runs, strict=True))
    if laid.parts_run == "gpu" or comes:
        cannot.append("weights that come to the GPU each step in decode")
    if "disk" in laid.homes or "disk" in laid.parts:
        cannot.append("weights on a drive")
    if laid.kv in ("cpu", "several"):
        cannot.append("KV in host memory")
    cannot += _several(laid, "rules give each layer one device")
    return Engine("ktransformers", "yaml", "\n".join(rules), tuple(cannot))


def _numbers(layers: list[int]) -> str:
    return first_numbers(len(layers)) if layers == list(range(len(layers))) else f"({'|'.join(map(str, layers))})"


def _rule(name: str, operator: str, keys: dict[str, str], recursive: bool = True, match: str = "") -> str:
    quoted = name.replace("\\", "\\\\")
    lines = ["- match:", f'    name: "{quoted}"', *([f"    class: {match}"] if match else []), "  replace:",
             f"    class: {operator}", "    kwargs:"]  # fmt: skip
    lines += [f'      {key}: "{value}"' for key, value in keys.items()]
    return "\n".join(lines + ([] if recursive else ["  recursive: False"]))
