"""A run as a plan by placement: the keys that its log says, as a plan file has them, and the plan that they make."""

from __future__ import annotations

import copy
import os
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from offload.documents import parse_document, read_plan
from offload.documents.settings import Setting
from offload.errors import DocumentError, OffloadError, one_line
from offload.models import layers_of, weigh
from offload.models.architecture import MOST_LAYERS
from offload.models.gguf_names import first_of, gguf_names, outside_names, tensor_pattern
from offload.models.weights import layer_tensors
from offload.plan import Plan
from offload.ranges import fold
from offload.readers.engines.run import Run
from offload.topology import Topology
from offload.units import many
from offload.why.model import Known
from offload.why.notes import Notes
from offload.why.server import DRIVE, HOST, LLAMA, Place, gpu_layers, is_gpu, spread_of
from offload.why.streamed import streamed
from offload.why.unified import in_one_memory, is_unified

OFFLOADED = 32  # tokens of a pass from which llama.cpp computes on a GPU with weights that lie in host memory
BLOCKS = re.compile(r"blk\.([\d,-]+) ([\w|]+)")
HEAD_ON_HOST = r"^(output|lm_head)\.weight"


def keys_of(run: Run, known: Known, place: Place, workload: dict[str, Any], notes: Notes) -> dict[str, Any]:
    """The keys of the plan file of a run: topology, model, workload, placement, and overlap where the engine says it.

    Raises OffloadError where the log's parts have no place on the server.
    """
    settings = {key: value for key, value, _ in run.settings}
    placed = _Placing(run, known, place, workload, settings, notes)
    placement = placed.placement()
    keys: dict[str, Any] = {"topology": place.topology.name, "model": known.keys, "workload": workload,
                            "placement": placement}  # fmt: skip
    if placed.overlap is not None:
        keys["overlap"] = placed.overlap
    return keys


def read_keys(
    keys: dict[str, Any], topology: Topology, settings: Sequence[Setting], folder: str = ""
) -> tuple[Plan, Topology]:
    """The plan that keys make on a server. Raises DocumentError with the keys that cannot be."""
    text = plan_text(keys)
    try:
        document = parse_document(text, "the plan of the log")
        return read_plan(document, Path(folder), topology=topology, settings=settings)
    except DocumentError as error:
        raise OffloadError(f"{error}\n  The plan that was made of the log, which --set, --on and --model change:\n"
                           + textwrap.indent(text.rstrip(), "    ")) from None


def with_settings(keys: dict[str, Any], settings: Sequence[Setting]) -> dict[str, Any]:
    """The keys as settings of the plan change them: what is set is what a file of the plan says."""
    changed = copy.deepcopy(keys)
    for one in settings:
        if not one.is_of_plan:
            continue
        inside = changed
        for key in one.path[:-1]:
            if not isinstance(inside.get(key), dict):
                inside[key] = {}
            inside = inside[key]
        inside[one.path[-1]] = _bare(parse_document(f"value: {one.text}", "a setting").value["value"])
    return changed


def _bare(value: Any) -> Any:
    """A value of a document as plain data."""
    if isinstance(value, dict):
        return {str(key): _bare(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_bare(part) for part in value]
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return value


def plan_text(keys: dict[str, Any], head: Sequence[str] = ()) -> str:
    """The plan as the text of a file. head : lines of comment above it."""
    body: str = yaml.safe_dump(keys, sort_keys=False, allow_unicode=True, width=110)
    return "".join(f"# {one_line(line, 300)}\n" for line in head) + body


def saved(keys: dict[str, Any], path: str, topology: str) -> dict[str, Any]:
    """The keys with paths as they are from the folder of a file. topology : what it names."""
    model = dict(keys["model"])
    for key in ("config", "gguf"):
        if key in model:
            model[key] = os.path.relpath(model[key], os.path.dirname(path) or ".")
    return keys | {"topology": topology, "model": model}


def _numbers(ranges: str) -> list[int]:
    """The numbers of "3-5,9"."""
    found: list[int] = []
    for part in ranges.split(","):
        start, _, end = part.partition("-")
        if start.isdigit() and (end or start).isdigit() and int(end or start) < MOST_LAYERS:
            found += range(int(start), int(end or start) + 1)
    return found


class _Placing:
    """Where the parts of a run are, step by step. overlap : how much runs beside what, where the engine is known."""

    def __init__(
        self, run: Run, known: Known, place: Place, workload: dict[str, Any], settings: dict[str, Any], notes: Notes
    ):
        self.run, self.known, self.place, self.settings, self.notes = run, known, place, settings, notes
        self.layers = known.model.layers
        self.passes = workload.get("prompt", 1) if workload["phase"] == "prefill" else 1
        self.passes *= workload["batch"]
        self.overlap: str | None = None
        self.head_on_host = False
        self.on_gpus: list[tuple[str, int]] = []  # memories of GPUs with how many layers, the last layers first
        self.llama = run.engine.lower().startswith(LLAMA)

    def placement(self) -> dict[str, Any]:
        found = self._weights()
        found |= self._experts()
        if self.head_on_host:
            found["tensors"] = {HEAD_ON_HOST: self._host("the output layer is there")} | found.get("tensors", {})
        if self._kv_stays():
            found |= self._kv_on_host(found)
        found["reserve"] = f"{self._reserve()} B"
        return in_one_memory(self.run, self.place, self.layers, found, self.notes) if is_unified(self.place) else found

    def _kv_stays(self) -> bool:
        """Whether the KV cache is in host memory though layers are on GPUs: by its option, or by its buffers."""
        kv = [buffer for buffer in self.run.buffers if buffer.holds == "kv"]
        there = self.llama and kv and not any(is_gpu(one.device) for one in kv) and (gpu_layers(self.run) or 0) > 1
        if there and not self._says("no_kv_offload"):
            self.notes.took("placement.kv", f"in host memory ({kv[0].device})", kv[0].line)
        return bool(there) or self._says("no_kv_offload")

    def _kv_on_host(self, found: dict[str, Any]) -> dict[str, Any]:
        """The KV cache in host memory, where the CPU attends to it, as llama.cpp does without KV offload."""
        host = self._host("its KV cache is in host memory (no_kv_offload)")
        if "tensors" in found or not self.place.cpu:
            self.notes.assume("placement.kv: with layer, though the log has the KV cache in host memory: beside "
                              "tensors that are placed one by one no plan says that")  # fmt: skip
            return {}
        return {"kv": host, "attention": self.place.cpu} if self.place.gpus else {}

    # Weights

    def _weights(self) -> dict[str, Any]:
        ranks, stages = self._several()
        if away := streamed(self.run, self.place, ranks, self.notes):
            return away
        if ranks > 1 or stages > 1 or self.place.gpus and self.run.engine.lower() in ("vllm", "sglang"):
            return self._shared(ranks, stages)
        counts = self._layers_by_device()
        if not self.place.gpus:
            return {"weights": {self._host("its layers are in host memory"): "rest"}, "compute": self._cpu()}
        last_first = list(reversed(self.place.devices))
        weights: dict[str, Any] = {}
        for device in last_first:
            if counts.get(device):
                weights[self.place.memory(device)] = f"{counts[device]} layers"
                self.on_gpus.append((self.place.memory(device), counts[device]))
        left = self.layers - sum(counts.get(device, 0) for device in self.place.devices)
        if left > 0:
            drive = counts.get("drive", 0)
            if left - drive > 0:
                host = self._host(f"{many(left - drive, 'layer')} are in host memory")
                weights[host] = f"{left - drive} layers"
            if drive:
                weights[self._drive(f"{many(drive, 'layer')} are on a drive")] = f"{drive} layers"
        if weights:
            weights[list(weights)[-1]] = "rest"
        return {"weights": weights} | self._runs(left)

    def _several(self) -> tuple[int, int]:
        """Over how many GPUs each layer is cut, and in how many stages."""
        tensor = self.run.tensor.value if self.run.tensor else 1
        stages = self.run.pipeline.value if self.run.pipeline else 1
        if self.llama and self.settings.get("split_mode") == "row" and len(self.place.gpus) > 1:
            self.notes.assume("split_mode row: each layer is shared by all GPUs (tensor parallel), its KV cache too; "
                              "llama.cpp keeps that on one of them")  # fmt: skip
            tensor = len(self.place.gpus)
        return tensor, stages

    def _shared(self, ranks: int, stages: int) -> dict[str, Any]:
        if ranks * stages > len(self.place.gpus):
            raise OffloadError(f"the run is cut over {ranks * stages} GPUs, and of these the server has "
                               f"{len(self.place.gpus)}: it does not fit {self.place.topology.name}. Say --on SERVER.")
        memories = [self.place.topology.memory_of(name) for name in self.place.gpus]
        if stages == 1:
            self.on_gpus = [(spread_of(self.place, ranks), self.layers)]
            return {"weights": {spread_of(self.place, ranks): "rest"}}
        each, more = divmod(self.layers, stages)
        weights = {}
        for stage in reversed(range(stages)):
            count = each + (1 if stage < more else 0)
            weights[fold(memories[stage * ranks : (stage + 1) * ranks])] = f"{count} layers"
        self.on_gpus = [(memory, int(text.split()[0])) for memory, text in weights.items()]
        self.notes.assume(f"placement.weights: {stages} stages of {each} layers" + (" and one more" if more else ""))
        return {"weights": weights}

    def _layers_by_device(self) -> dict[str, int]:
        """Layers by the log's GPUs, and "drive"; what is left is in host memory."""
        run, gpus = self.run, self.place.devices
        told: dict[str, int] = {}
        for buffer in run.buffers:
            if buffer.holds in ("weights", "all") and buffer.layers is not None:
                name = buffer.device if is_gpu(buffer.device) else "drive" if DRIVE.search(buffer.device) else ""
                told[name] = told.get(name, 0) + buffer.layers
        if not told:  # accelerate's device maps
            for what, value, _ in run.facts:
                if str(what).startswith("layers on ") and isinstance(value, int):
                    device = str(what).removeprefix("layers on ")
                    name = device if is_gpu(device) else "drive" if DRIVE.search(device) else ""
                    told[name] = told.get(name, 0) + value
        if sum(told.values()) > self.layers + 1:
            raise OffloadError(f"the log's buffers hold {sum(told.values())} layers, and {self.known.model.name} has "
                               f"{self.layers}. Say --model.")
        if any(told.get(name) for name in gpus):
            counts = {name: told[name] for name in gpus if told.get(name)}
            if sum(told.values()) > self.layers:  # one of them is the output layer
                counts[list(counts)[-1]] -= sum(counts.values()) - self._of_these(sum(counts.values()))
            return counts | ({"drive": told["drive"]} if told.get("drive") else {})
        if not gpus:
            return {}
        if run.engine == "accelerate" and run.layers_on_gpus is None:
            return self._by_bytes()
        on_gpus = self._on_gpus()
        if len(gpus) == 1:
            return {gpus[0]: on_gpus}
        if exact := self._by_kv(on_gpus):
            return exact
        sizes: list[float] = [run.on("weights").get(device, 0) for device in gpus]
        if self.llama and self._head_there() and sizes[-1] > (head := weigh(self.known.model, self.known.weights).head):
            sizes[-1] -= head  # the output layer is with the last layers
        asked = [float(part) for part in re.findall(r"\d+(?:\.\d+)?", str(self.settings.get("tensor_split", "")))]
        if not any(sizes) and any(asked[: len(gpus)]):
            sizes = [*asked, *(0.0 for _ in gpus)][: len(gpus)]
            self.notes.assume("placement.weights: layers by GPU as tensor_split asks for")
        elif not any(sizes):
            sizes = [1] * len(gpus)
            self.notes.assume(f"placement.weights: as many layers on each of {len(gpus)} GPUs; the log does not tell")
        else:
            self.notes.assume("placement.weights: layers by GPU in the proportion of their buffers")
        ends = [round(on_gpus * sum(sizes[: index + 1]) / sum(sizes)) for index in range(len(sizes))]
        return {device: end - start for device, end, start in zip(gpus, ends, [0, *ends], strict=False)}

    def _head_there(self) -> bool:
        """Whether the log counts the output layer among those on GPUs."""
        return not self.head_on_host and (gpu_layers(self.run) or 0) > 0

    def _by_kv(self, on_gpus: int) -> dict[str, int]:
        """Layers by GPU in the proportion of their KV buffers, where these give whole ones; else {}."""
        held = [self.run.on("kv").get(device, 0) for device in self.place.devices]
        if not self.llama or not all(held):
            return {}
        shares = [on_gpus * size / sum(held) for size in held]
        whole = [round(share) for share in shares]
        if sum(whole) != on_gpus or any(abs(one - share) > 0.02 for one, share in zip(whole, shares, strict=True)):
            return {}
        self.notes.assume("placement.weights: layers by GPU in the proportion of their KV buffers")
        return dict(zip(self.place.devices, whole, strict=True))

    def _by_bytes(self) -> dict[str, int]:
        """Layers of each device by the bytes that it holds, in whole ones; what is left is in host memory."""
        held = self.run.on("weights")
        total = sum(held.values())
        found = {device: int(self.layers * held.get(device, 0) / max(total, 1)) for device in self.place.devices}
        if total and not any(HOST.search(device) or DRIVE.search(device) for device in held):
            found[list(found)[-1]] += self.layers - sum(found.values())
        if total:
            self.notes.assume("placement.weights: layers by device in the proportion of their bytes, whole ones")
            return found
        self.notes.assume("placement.weights: all layers are on the GPU: the log does not tell")
        return {self.place.devices[0]: self.layers}

    def _on_gpus(self) -> int:
        """How many layers are on GPUs, the output layer not counted."""
        told = gpu_layers(self.run)
        if told is None:
            self.notes.assume("placement.weights: all layers are on the GPU: the log does not tell")
            return self.layers
        line = self.run.layers_on_gpus.line if self.run.layers_on_gpus else self.run.line
        self.notes.took("placement.weights", f"{told} layers on GPUs", line)
        return self._of_these(told)

    def _of_these(self, told: int) -> int:
        """Of layers that a log counts on GPUs those that are no output layer: it is one more if all are there.

        Else older versions of llama.cpp leave it on the CPU, and newer ones take it first: the buffers' sizes tell.
        """
        if told > self.layers or told == 0:
            return min(told, self.layers)
        weighed = weigh(self.known.model, self.known.weights)
        there = sum(size for device, size in self.run.on("weights").items() if is_gpu(device))
        first = sum(weighed.layers[self.layers - told + 1 :]) + weighed.head
        without = sum(weighed.layers[self.layers - told :])
        if there and abs(there - without) < abs(there - first):
            self.head_on_host = True
            return told
        if not there:
            self.notes.assume(f"placement.weights: of {told} layers on the GPU one is the output layer, as in newer "
                              "versions of llama.cpp")  # fmt: skip
        return told - 1

    def _runs(self, away: int) -> dict[str, Any]:
        """Where layers run that do not live on a GPU, and how they come there."""
        engine = self.run.engine.lower()
        gpu = self.place.gpus[0]
        if away <= 0 or not self.place.gpus:
            return {}
        if engine == "accelerate":
            self.overlap = "none"
            self.notes.assume("overlap: none, and host_memory: pageable: accelerate copies each layer as it is due")
            if len(self.place.gpus) > 1:
                raise OffloadError("layers lie in host memory or on a drive beside several GPUs, and come to one of "
                                   "them: no plan is made of that. Write one, and compare it by offload step PLAN "
                                   "--measured.")
            return {"compute": gpu, "layout": "streamed_last", "host_memory": "pageable"}
        if engine in ("vllm", "sglang", "deepspeed", "flexgen"):
            return {"compute": gpu}
        if self._streams():
            return {"compute": gpu, "host_memory": self._host_memory()}
        return {"compute": "local"}

    def _streams(self) -> bool:
        """Whether llama.cpp takes weights from host memory to a GPU for this pass; it says how, once."""
        if not self.llama or self.passes < OFFLOADED or self._says("no_op_offload") or not self.place.gpus:
            return False
        if len(self.place.gpus) > 1:
            self.notes.assume("placement.compute: local: of a prompt llama.cpp takes weights in host memory to a GPU; "
                              "beside several GPUs that is not said here, and they run on the CPU")  # fmt: skip
            return False
        self.notes.assume(f"placement.compute: {self.place.gpus[0]}: llama.cpp takes weights in host memory there for "
                          f"passes of {OFFLOADED} tokens and more (--no-op-offload does not), with overlap: none")
        self.overlap = "none"
        return True

    def _host_memory(self) -> str:
        mapped = any(buffer.device.lower() == "cpu_mapped" for buffer in self.run.buffers)
        pinned = any(device.lower().endswith("_host") for device in self.run.on("weights"))
        return "pinned" if pinned and not mapped else "pageable"

    # Experts and single tensors

    def _experts(self) -> dict[str, Any]:
        has = sum(1 for layer in layers_of(self.known.model) if layer.experts)
        count = self.settings.get("cpu_moe", self.settings.get("n_cpu_moe"))
        by_default = "ktransformers" in self.run.engine.lower() and "override-tensor" not in self.settings
        if by_default and count is None and has:
            self.notes.assume("placement.experts: all in host memory, on the CPU, as ktransformers places them; all "
                              "else on the GPU")  # fmt: skip
            count = True
        if count not in (None, False, 0):
            return self._cpu_experts(count, has)
        patterns = [value for key, value, _ in self.run.settings if key in ("override-tensor", "override_tensor")]
        found = self._patterns([one for one in patterns if isinstance(one, str)])
        if found:
            if any(memory == self.place.host for memory in found.values()) and self._streams():
                return {"tensors": found, "compute": self.place.gpus[0], "host_memory": self._host_memory()}
            return {"tensors": found}
        return {}

    def _cpu_experts(self, count: int | bool, has: int) -> dict[str, Any]:
        if not has:
            raise OffloadError(f"the log places experts on the CPU, and {self.known.model.name} has none that a router "
                               "chooses. Say --model.")
        host = self._host("experts are in host memory")
        left = self.layers - (self.layers if count is True else min(int(count), self.layers))
        home: dict[str, Any] = {}
        for memory, layers in self.on_gpus:  # the last layers first; those of the first have their experts on the CPU
            if taken := min(layers, left):
                home[memory] = f"{taken} layers"
                left -= taken
        home[host] = "rest"
        experts: dict[str, Any] = {"home": home, "compute": "local"}
        found: dict[str, Any] = {"experts": experts}
        if self._streams():
            experts |= {"compute": self.place.gpus[0], "access": "copy"}
            found["host_memory"] = self._host_memory()
        return found

    def _patterns(self, texts: list[str]) -> dict[str, str]:
        """Patterns of tensors with their memories: as an option has them, "exps=CPU,...", or gathered by a reader,
        "blk.3-60 ffn_down_exps|ffn_up_exps=CPU"."""
        found: dict[str, str] = {}
        parts = [[text] if BLOCKS.match(text) else re.split(r"[,;](?=[^=]*=)", text) for text in texts]
        for part in [part for some in parts for part in some]:
            pattern, equals, device = part.rpartition("=")
            if gathered := BLOCKS.fullmatch(pattern):
                numbers = "|".join(map(str, _numbers(gathered[1])))
                pattern = rf"^blk\.({numbers})\.({gathered[2]})\."
            memory = self.place.memory(device.strip())
            if not equals or not memory:
                raise OffloadError(f'override-tensor "{one_line(part)}": {one_line(device)} is no device of this '
                                   "server. Say --on SERVER, or --set placement.tensors={PATTERN: MEMORY}.")
            if self._matches(pattern, list(found)):
                found[pattern] = memory
            else:
                self.notes.assume(f'override-tensor "{one_line(pattern)}": no tensor of {self.known.model.name} that '
                                  "is not placed before has such a name, so it is left out")
        return found

    def _matches(self, pattern: str, before: list[str]) -> bool:
        """Whether a pattern is the first to match any tensor of the model."""
        read = [tensor_pattern(text) for text in (*before, pattern)]
        stack = [gguf_names(one) for layer in layer_tensors(self.known.model, self.known.weights) for one, _ in layer]
        return any(first_of(ways, read) == len(before) for ways in (*stack, *outside_names(self.known.model).values()))

    # What all need

    def _reserve(self) -> int:
        """Bytes of the largest compute buffer on a GPU: what the runtime keeps there, as the log tells it."""
        sizes = [size for device, size in self.run.on("compute").items() if is_gpu(device)]
        return max(sizes, default=0)

    def _says(self, key: str) -> bool:
        return self.settings.get(key) in (True, 1, "1", "true", "on")

    def _host(self, why: str) -> str:
        if not self.place.host:
            raise OffloadError(f"{why}, and {self.place.topology.name} has no host memory: the run does not fit this "
                               "server. Say --on SERVER.")
        return self.place.host

    def _cpu(self) -> str:
        return self.place.cpu or "local"

    def _drive(self, why: str) -> str:
        if not self.place.drive:
            raise OffloadError(f"{why}, and {self.place.topology.name} has none. Say --on SERVER.")
        return self.place.drive
