"""What is often given in place of a tool's output or an engine's log, by a sign in its text, and where its place is."""

from __future__ import annotations

import re

HEAD = 2**16  # characters in which a sign stands
BINARY = 0.05  # share of characters that are no text, from which a file is none
SHOWN = "Save the tool's own output as text."
# What is not read anywhere here, or has its place in a plan or an option, and what to give instead.
OTHERS = (
    (r"<graphs\b", "an NCCL graph file (NCCL_GRAPH_DUMP_FILE). Give the topology, NCCL_TOPO_DUMP_FILE."),
    (r"\AGGUF", "a GGUF model. Its place is in a plan: model: {gguf: PATH}."),
    (r'\A.{0,64}?\{\s*"(?:__metadata__|[\w.]+)"\s*:\s*\{\s*"(?:dtype|shape|data_offsets)"|\A.{0,64}?\{"__metadata__"',
     "safetensors. With config.json beside them: offload step PATH."),
    (r"\A.?PNG\r?\n|\AGIF8|\A.{0,4}JFIF|\A%PDF-", f"a picture or a PDF. {SHOWN}"),
    (r"\A[ \t]*<!DOCTYPE html|^[ \t]*<html", "a web page. Save the tool's own output."),
    (r'"architectures"\s*:\s*\[', "a model's config.json. Its place is in a plan: model: {config: PATH}."),
    (r"^(?:memories|links|switches)\s*:", "a topology file already: name it with --on or --onto."),
    (r"^(?:workload|placement|moves|computes)\s*:", "a plan file. Ask it with: offload step PATH."),
    (r"\|\s*NVIDIA-SMI\s+\d", "plain nvidia-smi. Links are in: nvidia-smi topo -m, nvidia-smi nvlink -s."),
    (r"^CPU\(s\):\s+\d|^Model name:\s+\S.*\n(?:.*\n){0,40}^NUMA node",
     "lscpu. Nodes and their memory are in: numactl --hardware, or lstopo of the whole machine."),
    (r"^\s+total\s+used\s+free\b", "free. Nodes and their memory are in: numactl --hardware."),
    (r"^\d+\+\d+ records in", "dd, which mostly measures the page cache. Measure a drive with fio (direct=1, JSON)."),
    (r"^AVG\s+Method: (?:MEMCPY|DUMB|MCBLOCK)", "mbw, which copies by one thread. Measure host memory with STREAM or "
                                               "Intel MLC."),
    (r"^# dmidecode \d|^Memory Device\s*$", "dmidecode. Nodes and their memory are in: numactl --hardware."),
)  # fmt: skip


def looks_like(whole: str) -> str:
    """What a text looks like and what to give instead; "" where no sign stands in it."""
    head = whole[:HEAD]
    found = next((what for sign, what in OTHERS if re.search(sign, head, re.MULTILINE | re.IGNORECASE)), "")
    if not found and head.count("\ufffd") > BINARY * len(head):
        return f"a file that is no text: binary, packed or in another coding. {SHOWN}"
    return found
