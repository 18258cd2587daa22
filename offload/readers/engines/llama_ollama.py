"""What ollama's server says in its own words ("time=... level=INFO source=ggml.go:365 msg=...")."""

from __future__ import annotations

import re

from offload.readers.engines.llama_log import Log
from offload.readers.engines.llama_words import command, memory, whole
from offload.readers.engines.run import Buffer, Holds, Processor, Said

FIELD = re.compile(r"(?:^|\s)([\w.]+)=(?:\"((?:[^\"\\]|\\.)*)\"|(\S*))")
REQUEST = re.compile(r"\b(Parallel|BatchSize|KvSize|NumThreads|FlashAttention|KvCacheType|UseMmap):(\w*)")
PARTS: dict[str, Holds] = {"model weights": "weights", "kv cache": "kv", "compute graph": "compute"}
KINDS = {"cuda": "CUDA", "rocm": "ROCm", "metal": "Metal", "vulkan": "Vulkan"}
ASKED = (("KvSize", "n_ctx"), ("BatchSize", "n_ubatch"), ("Parallel", "n_seq_max"), ("NumThreads", "n_threads"))
ROUNDED = "ollama tells sizes to 0.1 GiB: they are rounded."


def read_ollama(log: Log, text: str, line: int) -> None:
    """One line of ollama's server."""
    told = {key: quoted or plain for key, quoted, plain in FIELD.findall(text)}
    message = told.get("msg", "")
    if "source" not in told:
        return
    log.process.said.setdefault("ollama", Said(True, line))
    if message.startswith("starting ") and "cmd" in told:
        for key, value in command(told["cmd"].replace('\\"', '"').replace("\\\\", "/")).items():
            log.process.said.setdefault(key, Said(value, line))
    elif message == "inference compute":
        _device(log, told, line)
    elif message in PARTS:
        size = memory(told.get("size", ""))
        place = told.get("device") or told.get("buffer") or told.get("backend") or ""
        if size and place:
            section = log.loads(line)
            section.assumed.add(ROUNDED)
            section.buffers[PARTS[message], place, "ollama"] = Buffer(place, PARTS[message], size, line=line)
    elif "architecture" in told and "file_type" in told:
        section = log.load(line)
        section.say("arch", told["architecture"], line)
        section.say("format", told["file_type"], line)
        section.say("name", told.get("name") or None, line)
    elif "layers.model" in told:
        _estimate(log, told, line)
    elif "KvSize:" in text and "Operation:commit" in text:
        _request(log, text, line)


def _device(log: Log, told: dict[str, str], line: int) -> None:
    kind = KINDS.get(told.get("library", "").lower())
    if kind is None:
        return
    number = sum(name.startswith(kind) for name in log.process.devices)
    name, model = f"{kind}{number}", told.get("description") or told.get("name", "")
    memory_, free = memory(told.get("total", "")), memory(told.get("available", ""))
    log.process.devices[name] = Processor(name, model, memory_, free, line)


def _estimate(log: Log, told: dict[str, str], line: int) -> None:
    """What ollama reckons before it loads; `offloaded` where the engine says no more."""
    for key in ("layers.requested", "layers.model", "layers.offload", "layers.split"):
        value = told.get(key, "")
        if key == "layers.split" and value:
            log.process.said.setdefault("tensor_split", Said(value, line))
        elif key == "layers.offload" and whole(value) is not None:
            log.process.said["offloaded"] = Said(whole(value) or 0, line)
        elif key == "layers.model" and whole(value):
            log.process.said["offloaded of"] = Said(whole(value) or 0, line)


def _request(log: Log, text: str, line: int) -> None:
    """The last request to load: what was settled."""
    asked = dict(REQUEST.findall(text))
    for name, key in ASKED:
        value = whole(asked.get(name, ""))
        if value:
            log.process.said[key] = Said(value, line)
    kind = asked.get("KvCacheType")
    if kind:
        log.process.said["cache-type-k"] = log.process.said["cache-type-v"] = Said(kind, line)
    flash = asked.get("FlashAttention", "").lower()
    if flash in ("enabled", "true", "disabled", "false"):
        log.process.said["flash_attn"] = Said(flash in ("enabled", "true"), line)
