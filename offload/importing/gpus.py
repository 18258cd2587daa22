"""What a GPU's model name says: the shipped part that it is, and the generation of its NVLink.

A part is used only where every word of the part's name is in the model's name, so that nothing is taken for its
neighbour; a model that two parts fit equally well is none of them. A board of another version (SXM3 of a V100) has
other clocks and is no part of the version that is shipped (SXM2).
"""

from __future__ import annotations

import re

from offload.documents.parts_library import part, shipped_parts
from offload.units import parse_bytes
from offload.units.encodings import NVLINK

# Generation of NVLink by model, and bytes/s of one link where it is not that of the generation (NVIDIA data sheets).
GENERATIONS = (
    (r"\b(?:GB[23]00|B[123]00)\b", 5), (r"\b(?:GH200|H100|H200|H800|H20)\b", 4), (r"\b(?:A100|A800|A30)\b", 3),
    (r"\bV100\b", 2), (r"\bP100\b", 1),
)  # fmt: skip
SLOWER = ((r"\b(?:RTX 3090|RTX A[456]000|RTX A5500|A40)\b", 14.0625e9),)
RAW = {20.0e9: 1, 26.562e9: 4, 53.125e9: 5}  # bytes/s of a link as nvidia-smi prints them, generations that differ
# What a model's name implies though it is not in it.
IMPLIED = (
    (r"\bH100\b.*\bHBM3\b", "sxm"), (r"\bH200\b(?!.*\bNVL\b)", "sxm"), (r"\bB[23]00\b", "sxm"),
    (r"\bH100\b.*\bHBM3\b(?!.*\b9[46]GB)", "80gb"), (r"\bTESLA V100\b", "v100"),
)  # fmt: skip
SEVERAL = re.compile(r"\bor\b|\s/\s|\w/\w")  # a name that stands for several models
SLICE = re.compile(r"\b(?:MIG|vGPU|GRID)\b|\b\d+g\.\d+gb\b", re.IGNORECASE)  # a part of a GPU


def part_of(model: str) -> str | None:
    """The name of the shipped part that a model is, None where none or no single one fits."""
    if SLICE.search(model) or SEVERAL.search(model.replace("AMD/ATI", "AMD")):
        return None
    said = _words(model) | {word for sign, word in IMPLIED if re.search(sign, model, re.IGNORECASE)}
    said |= {re.sub(r"\d$", "", word) for word in said if re.fullmatch(r"sxm\d", word)}
    names = set(shipped_parts("memories")) & set(shipped_parts("processors"))
    fitting = {name: len(_part_words(name)) for name in sorted(names)
               if _part_words(name) <= said and _has_size(name, model)}  # fmt: skip
    for name in list(fitting):  # "RTX 4070 Ti" is no "rtx-4070", an H100 PCIe no H100 of another board
        left = said - _part_words(name)
        if left & {"ti", "super", "laptop", "mobile", "max", "d", "hf"} or "-" not in name and not _is_whole(name):
            del fitting[name]
    most = max(fitting.values(), default=0)
    best = [name for name, words in fitting.items() if words == most]
    return best[0] if len(best) == 1 else None


def _is_whole(name: str) -> bool:
    """Whether a part's one word tells a model: letters and digits ("t4", "v100", "mi300x")."""
    return re.search(r"[a-z]\d{3,}|[a-z]+\d+[a-z]?$", name) is not None


def _part_words(name: str) -> set[str]:
    """The words of a part's name as a model's has them: a number by itself is its memory."""
    return {f"{word}gb" if word.isdigit() and len(word) < 4 else word for word in name.split("-")}


def _has_size(name: str, model: str) -> bool:
    """Whether a part's memory has the size that the model's name says, if it says one."""
    sizes = [int(size) for size in re.findall(r"(\d+)\s*GB\b", model, re.IGNORECASE)]
    capacity = (part("memories", name) or {}).get("capacity")
    if not sizes or not isinstance(capacity, str):
        return True
    holds = parse_bytes(capacity)
    return all(min(abs(holds / (size * unit) - 1) for unit in (10**9, 2**30)) < 0.06 for size in sizes)


def _words(text: str) -> set[str]:
    found = set(re.findall(r"[a-z0-9]+", re.sub(r"(\d)\s*GB\b", r"\1gb", text, flags=re.IGNORECASE).lower()))
    return found


def nvlink_of(model: str, each: float | None = None) -> tuple[int | None, float | None]:
    """The generation of a model's NVLink and the rate [B/s] of one link one way; None for what is not known.

    each : the rate that a tool prints for one link, which tells the generation where the model does not.
    """
    for sign, rate in SLOWER:
        if re.search(sign, model, re.IGNORECASE):
            return None, rate
    for sign, generation in GENERATIONS:
        if re.search(sign, model, re.IGNORECASE):
            return generation, NVLINK[generation][0] * 1e9
    if each is not None:
        for raw, generation in RAW.items():
            if abs(each / raw - 1) < 0.002:
                return generation, NVLINK[generation][0] * 1e9
    return None, each
