"""Numbers, sizes and commands as llama.cpp and what is built on it print them.

"MiB" and "MB" are both 2^20 bytes there (the older spelling divides by 1024 twice as well). Some systems print a comma
for the decimal point.
"""

from __future__ import annotations

import math
import re

MOST = 1e18
NUMBER = r"\d+(?:[.,]\d+)?"
MEMORY = {"B": 1, "KiB": 2**10, "KB": 2**10, "MiB": 2**20, "MB": 2**20, "GiB": 2**30, "GB": 2**30, "TiB": 2**40}
COUNTS = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
SIZE = re.compile(rf"({NUMBER})\s*(TiB|GiB|MiB|KiB|GB|MB|KB|B)\b")
LAPSE = re.compile(r"(\d+(?:\.\d+)?)(h|ms|µs|us|μs|ns|m|s)")
LAPSES = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "µs": 1e-6, "μs": 1e-6, "us": 1e-6, "ns": 1e-9}
REMOTE = re.compile(r"^(RPC\d*)\[.*\]$")
ADDRESS = re.compile(r"\[[^\[\]]*:\d+\]")
COMMAND = re.compile(
    r"""(?:^|[\s/\\"'+$])
    (?:llama-[a-z-]+|main|server|ollama\ runner|ollama_llama_server|runner)(?:\.exe)?["']?\s+(?=-)""",
    re.VERBOSE,
)
WORD = re.compile(r"""(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^\s"']+))""")
WHOLE, WORDS, ON, OFF, PERHAPS = "whole", "words", "on", "off", "perhaps"
FLAGS: dict[str, tuple[str, str]] = {
    "-ngl": ("n_gpu_layers", WORDS),
    "--n-gpu-layers": ("n_gpu_layers", WORDS),
    "--gpu-layers": ("n_gpu_layers", WORDS),
    "-ot": ("override-tensor", WORDS),
    "--override-tensor": ("override-tensor", WORDS),
    "-ncmoe": ("cpu_moe", WHOLE),
    "--n-cpu-moe": ("cpu_moe", WHOLE),
    "-cmoe": ("cpu_moe", ON),
    "--cpu-moe": ("cpu_moe", ON),
    "-nkvo": ("no_kv_offload", ON),
    "--no-kv-offload": ("no_kv_offload", ON),
    "--no-mmap": ("mmap", OFF),
    "--mlock": ("mlock", ON),
    "-sm": ("split_mode", WORDS),
    "--split-mode": ("split_mode", WORDS),
    "-ts": ("tensor_split", WORDS),
    "--tensor-split": ("tensor_split", WORDS),
    "-mg": ("main_gpu", WHOLE),
    "--main-gpu": ("main_gpu", WHOLE),
    "-fa": ("flash_attn", PERHAPS),
    "--flash-attn": ("flash_attn", PERHAPS),
    "-nopo": ("no_op_offload", ON),
    "--no-op-offload": ("no_op_offload", ON),
    "-rtr": ("run_time_repack", ON),
    "--run-time-repack": ("run_time_repack", ON),
    "-fmoe": ("fused_moe", ON),
    "--fused-moe": ("fused_moe", ON),
    "-mla": ("mla_attn", WHOLE),
    "--mla-use": ("mla_attn", WHOLE),
    "-amb": ("attn_max_batch", WHOLE),
    "--attention-max-batch": ("attn_max_batch", WHOLE),
    "-c": ("ctx-size", WHOLE),
    "--ctx-size": ("ctx-size", WHOLE),
    "-b": ("batch-size", WHOLE),
    "--batch-size": ("batch-size", WHOLE),
    "-ub": ("ubatch-size", WHOLE),
    "--ubatch-size": ("ubatch-size", WHOLE),
    "-np": ("parallel", WHOLE),
    "--parallel": ("parallel", WHOLE),
    "-t": ("threads", WHOLE),
    "--threads": ("threads", WHOLE),
    "-ctk": ("cache-type-k", WORDS),
    "--cache-type-k": ("cache-type-k", WORDS),
    "-ctv": ("cache-type-v", WORDS),
    "--cache-type-v": ("cache-type-v", WORDS),
}


def number(text: str) -> float | None:
    """A finite number from 0 on, with a point or a comma; None for anything else ("inf", "nan", "-1")."""
    try:
        value = float(text.strip().replace(",", "."))
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value <= MOST else None


def whole(text: str) -> int | None:
    """A whole number from 0 on; None for anything else."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


def some(text: str) -> int | None:
    """A whole number from 1 on; None for anything else."""
    return whole(text) or None


def memory(text: str) -> int | None:
    """The first size in a text [bytes], rounded to whole bytes: "4.58 GiB (4.89 BPW)"; None where there is none."""
    found = SIZE.search(text)
    if found is None:
        return None
    value = number(found[1])
    return None if value is None or value * MEMORY[found[2]] > MOST else round(value * MEMORY[found[2]])


def count(text: str) -> float | None:
    """A count as "8.03 B", "494.03 M", "1.04 T"; None for anything else."""
    found = re.match(rf"\s*({NUMBER})\s*([KMBT]?)\s*$", text)
    if found is None:
        return None
    value = number(found[1])
    return None if not value or value * COUNTS[found[2]] > MOST else float(round(value * COUNTS[found[2]]))


def lapse(text: str) -> float | None:
    """A time as Go prints it [s]: "4.799s", "1m2.5s", "847ms"; None for anything else."""
    parts = LAPSE.findall(text)
    if not parts or "".join(a + b for a, b in parts) != text.strip():
        return None
    total = sum(float(value) * LAPSES[unit] for value, unit in parts)
    return total if 0 < total <= MOST else None


def device(name: str) -> str:
    """A device's name without the address of another machine: "RPC0[10.0.0.2:50052]" is "RPC0"."""
    found = REMOTE.match(name)
    return found[1] if found else name


def command(text: str) -> dict[str, str | int | bool]:
    """What a command line of llama.cpp (or of ollama's runner) sets that changes what moves; {} where there is none.

    Paths, hosts, prompts and all other options are passed over.
    """
    found = COMMAND.search(text)
    if found is None:
        return {}
    words = [a or b or c for a, b, c in WORD.findall(text[found.end() :])]
    told: dict[str, str | int | bool] = {}
    for place, word in enumerate(words):
        flag, _, tied = word.partition("=") if word.startswith("--") else (word, "", "")
        if flag not in FLAGS:
            continue
        key, kind = FLAGS[flag]
        after = tied or (words[place + 1] if place + 1 < len(words) else "")
        if kind == ON:
            told[key] = True
        elif kind == OFF:
            told[key] = False
        elif kind == PERHAPS:
            told[key] = after if after in ("on", "off", "auto", "0", "1") else True
        elif kind == WHOLE:
            value = whole(after)
            if value is not None:
                told[key] = value
        elif after and not after.startswith("--"):
            after, before = ADDRESS.sub("", after), told.get(key)
            told[key] = int(after) if whole(after) is not None else after
            if key == "override-tensor" and before:
                told[key] = f"{before},{after}"
    return told
