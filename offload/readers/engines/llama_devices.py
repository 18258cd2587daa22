"""The devices that llama.cpp prints: their models, their memory, and what of it was free."""

from __future__ import annotations

import re
from dataclasses import replace

from offload.readers.engines.llama_words import device, number, whole
from offload.readers.engines.run import Processor

MIB = 2**20
FOUND = re.compile(r"\b(?:ggml_cuda_init|ggml_init_cublas): found (\d+) (\w+) devices")
LISTED = re.compile(r"^.*?\bDevice (\d+): (.+?), (?:compute capability|gfx\w+|cc )(.*)$")
VRAM = re.compile(r"VRAM: (\d+) MiB(?: \((\d+) MiB free\))?")
USING = re.compile(r"\busing device (\S+) \((.+?)\)(?: \([\w:. ]+\))? - (\d+) MiB free")
STATED = re.compile(r"^.*?(?:^|[\s-])([A-Z]\w*\d+)\s*: (.+) \((\d+) MiB, (\d+) MiB free\)\s*$")
VULKAN = re.compile(r"\bggml_vulkan: (\d+) = (.+?) \| ")
METAL = re.compile(r"\bGPU name:\s+(?:(MTL\d+) \()?(.+?)\)?\s*$")
METAL_OLD = re.compile(r"\bggml_metal_init: (?:picking default device|found device|using): (.+?)\s*$")
WORKING = re.compile(r"\brecommendedMaxWorkingSetSize\s*=\s*([\d.]+) MB")
NAMES = {"CUDA": "CUDA", "ROCm": "ROCm", "MUSA": "MUSA"}


def read_device(devices: dict[str, Processor], text: str, line: int) -> None:
    """Take what a line says of a device into `devices`, by the engine's name for it."""
    found = FOUND.search(text)
    if found is not None:
        devices["kind"] = Processor(NAMES.get(found[2], found[2]))
        return
    listed = LISTED.match(text)
    if listed is not None:
        kind = devices["kind"].name if "kind" in devices else "ROCm" if ", gfx" in text else "CUDA"
        room = VRAM.search(listed[3])
        memory = None if room is None else (whole(room[1]) or 0) * MIB or None
        free = None if room is None or room[2] is None else (whole(room[2]) or 0) * MIB
        _keep(devices, Processor(f"{kind}{int(listed[1][:6])}", listed[2], memory, free, line))
        return
    using, stated = USING.search(text), STATED.match(text)
    vulkan, metal = VULKAN.search(text), METAL.search(text) or METAL_OLD.search(text)
    if using is not None:
        _keep(devices, Processor(device(using[1]), _model(using[2]), None, (whole(using[3]) or 0) * MIB, line))
    elif stated is not None:
        memory, free = (whole(stated[3]) or 0) * MIB or None, (whole(stated[4]) or 0) * MIB
        _keep(devices, Processor(stated[1], stated[2], memory, free, line))
    elif vulkan is not None:
        _keep(devices, Processor(f"Vulkan{int(vulkan[1][:6])}", vulkan[2], None, None, line))
    elif metal is not None:
        named = metal[1] if metal.re is METAL and metal[1] else "Metal"
        _keep(devices, Processor(named, metal[metal.re.groups], None, None, line))
    else:
        room = WORKING.search(text)
        size = None if room is None else number(room[1])
        name = next((key for key in devices if key.startswith(("Metal", "MTL"))), "Metal")
        if size:
            _keep(devices, Processor(name, "", round(size * 1e6), None, line))


def _model(text: str) -> str:
    """A model's name without what is an address of another machine."""
    return "" if re.search(r"[\w.]+:\d+$", text) else text


def _keep(devices: dict[str, Processor], new: Processor) -> None:
    """A device as told so far, with what is new: later figures of free memory stand."""
    old = devices.get(new.name)
    if old is None:
        devices[new.name] = new
        return
    devices[new.name] = replace(
        old,
        model=old.model or new.model,
        memory=new.memory if new.memory is not None else old.memory,
        free=new.free if new.free is not None else old.free,
    )
