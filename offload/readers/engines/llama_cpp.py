"""Logs of llama.cpp and of what is built on it: llama-cli, llama-server, llama-simple, ik_llama.cpp, ollama, LM Studio.

A log's lines are found by the function that prints them ("print_info: ", "load_tensors: "), wherever a logger's prefix
put them, in the spellings of 2023 to 2026. Every loaded model is a Run of its own: a draft model too (its settings say
`draft`), and a new context after timings. A model that was loaded twice before it ran (for its vocabulary, to try what
fits) is one. What a table of llama-batched-bench or llama-sweep-bench came of is left to `llama_bench`.

Format: ggml-org/llama.cpp src/llama-model.cpp, llama-context.cpp, llama-kv-cache.cpp, tools/server; ollama/ollama
ml/backend/ggml; ikawrakow/ik_llama.cpp src/llama.cpp, as of 2023 to 2026.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from offload.errors import ReadingError
from offload.readers.engines.llama_devices import read_device
from offload.readers.engines.llama_log import Log, kept_of
from offload.readers.engines.llama_ollama import read_ollama
from offload.readers.engines.llama_sections import BLOCK, Cache, Section, run_of
from offload.readers.engines.llama_timings import (
    DRAFT,
    Clock,
    read_draft,
    read_rates,
    read_server,
    read_times,
    read_verbose,
)
from offload.readers.engines.llama_words import NUMBER, command, count, device, memory, number, whole
from offload.readers.engines.run import Buffer, Holds, Processor, Run, Said
from offload.readers.tools.text import Text

LOOKS_LIKE = "llama.cpp (llama-cli, llama-server, ollama, LM Studio)"
LONGEST_LINE = 4000
CHILD = re.compile(r"^(?:[\w.-]+\s+\| )?\[(\d{4,6})\] ")
TABLE = re.compile(r"T_PP s\s*\|")
MARKS = re.compile(
    r"llama_model_loader: |llm_load_print_meta: |print_info: (?:arch|file|n_layer)"
    r"|(?:llm_)?load_tensors: .*(?:buffer|layers)|llama_print_timings: |llama_perf_context_print: |common_perf_print: "
    r"|llama_memory_breakdown_print: |llama_new_context_with_model: |llama_context: |llama_kv_cache\w*: "
    r"|llama_model_load_internal: |slot print_timing|\bprint_timings\b"
    rf"|(?:prompt |generation )?eval time\s*=\s*{NUMBER} ms /|\[ Prompt: {NUMBER} t/s \| Generation: "
    r"|source=(?:\w+/)*(?:server|memory|ggml|runner|device|sched)\.go"
)
PAIR = re.compile(r"\b(llm_load_print_meta|print_info|llama_model_load_internal|llama_model_load):\s+(.+?)\s*= (.+)$")
CONTEXT = re.compile(
    r"\b(?:llama_context(?:_base)?|llama_new_context_with_model|llama_init_from_\w+|llama_context_params)"
    r"(?:::\w+)?:\s+(\w+)\s*= (\S+)"
)
BUFFER = re.compile(
    r"\b(\w+)(?:::\w+)?:\s+(?:\[\w+\]\s+)?(\S+)\s+(?:(model|KV|RS|compute|output)\s+)?"
    rf"buffer size\s*=\s*({NUMBER}\s*[KMG]i?B)"
)
CELLS = re.compile(
    rf"size\s*=\s*{NUMBER} MiB \(\s*(\d+) cells,\s*(\d+) layers(?:,\s*(\d+)(?:/(\d+))? seqs)?[^)]*\)(.*)$"
)
HALVES = re.compile(r"\b([KV]|c\^KV) \((\w+)\)")
SELF = re.compile(rf"\b[Kk][Vv] self size\s*=\s*({NUMBER}\s*Mi?B)(.*)$")
INIT = re.compile(r"\bkv_size = (\d+), offload = (\d), type_k = '(\w+)', type_v = '(\w+)', n_layer = (\d+)")
OFFLOADED = re.compile(r"\boffloaded (\d+)/(\d+) layers to GPU")
OFFLOADING = re.compile(r"\boffloading (?:(\d+) repeating layers|(?:output layer|non-repeating layers)) to (GPU|CPU)")
ASSIGNED = re.compile(r"\blayer\s+(\d+) assigned to device (\S+?)(?:,|\s|$)")
OVERRIDE = re.compile(r"\b[Tt]ensor (\S+)(?: \([^)]*\))? buffer type overr?idd?en to (\S+)")
BREAKDOWN = re.compile(
    r"\|\s+- (\S+)(?: \((.*)\))?\s+\|\s+(?:(\d+) = (\d+) \+ \()?\s*(\d+) =\s*(\d+) \+\s*(\d+) \+\s*(\d+)"
)
THREADS = re.compile(r"\bsystem[_ ]info: n_threads = (\d+)")
SLOTS = re.compile(r"\bn_slots\s*=\s*(\d+)|\binitializing slots.*?n_slots[=:\" ]+(\d+)")
SLOT_WINDOW = re.compile(r"\b(?:new slot,?\s+n_ctx|n_ctx_slot)\"?\s*[=:]\s*(\d+)")
SPLITS = re.compile(r"\bgraph splits = (\d+)(?: \(with bs=(\d+)\), (\d+) \(with bs=1\))?")
COPIES = re.compile(r"pipeline parallelism enabled \(n_copies=(\d+)\)")
REQUIRED = re.compile(rf"\bmem required\s*=\s*({NUMBER} Mi?B)")
USED = re.compile(rf"\b(total VRAM used|VRAM used)\s*[:=]\s*({NUMBER} Mi?B)")
COMPUTE = re.compile(rf"compute buffer total size\s*=\s*({NUMBER} Mi?B)")
NUMBERS = frozenset(("n_layer", "n_expert", "n_expert_used"))
OF_CONTEXT = frozenset(("n_ctx", "n_batch", "n_ubatch", "n_seq_max", "mla_attn", "n_ctx_seq", "n_ctx_per_seq"))
KINDS: dict[str | None, Holds] = {
    None: "weights", "model": "weights", "KV": "kv", "RS": "kv", "compute": "compute", "output": "output"
}  # fmt: skip
PRECISE = "Sizes are told to 0.01 MiB or, the whole model's, to 0.01 GiB: they are rounded."


def is_it(text: Text) -> bool:
    """Whether there are lines of llama.cpp, of ollama's server or of `ollama run --verbose` in a text."""
    if MARKS.search(text.whole):
        return True
    return "total duration:" in text.whole and "eval duration:" in text.whole and "load duration:" in text.whole


def read(text: Text) -> tuple[Run, ...]:
    """The runs of a log. Raises ReadingError where its lines say nothing that can be used."""
    found = sections(text)
    tables = [line.number for line in text if TABLE.search(line.text[:LONGEST_LINE])]
    kept = [one for one in found if not any(one.line <= at <= one.last for at in tables)]
    if not found:
        raise ReadingError("The log of llama.cpp is cut: none of its lines says what was loaded or how long it took.")
    return tuple(run_of(section) for section in kept)


def sections(text: Text) -> tuple[Section, ...]:
    """The loaded models of a log, in their order, each with the last line that is its own.

    The lines of the servers that a router starts ("[50453] ...") are told apart.
    """
    logs: dict[str, Log] = {}
    for line in text:
        written = line.text[:LONGEST_LINE]
        child = CHILD.match(written)
        _read(logs.setdefault(child[1] if child else "", Log()), written, line.number)
    told: list[Section] = []
    for log in logs.values():
        mine = [section for process in log.processes for section in kept_of(process)]
        for section, after in zip(mine, [*mine[1:], None][: len(mine)], strict=True):
            section.last = text.lines[-1].number if after is None else after.line - 1
        told += mine
    return tuple(sorted(told, key=lambda section: section.line))


def _read(log: Log, text: str, number_: int) -> None:
    """One line."""
    if log.continued or (" -" in text and "--" in text or " -m " in text or " -hf " in text):
        _command(log, text, number_)
    for words, reads in READS:
        if any(word in text for word in words):
            reads(log, text, number_)


def _command(log: Log, text: str, line: int) -> None:
    first = not log.continued
    told = command(text if first else f"llama-cli {text.lstrip()}")
    log.continued = text.rstrip().endswith("\\") and (not first or bool(told) or "llama-" in text)
    if told and first:
        log.restart()
    for key, value in told.items():
        log.process.said.setdefault(key, Said(value, line))


def _start(log: Log, text: str, line: int) -> None:
    """A model's loading, or a program's start, as the lines that come first say it."""
    if "loading draft model" in text:
        log.next_is_draft = True
    elif "partial load" in text and "sibling model" in text:
        log.sibling()
    elif "loaded meta data" in text or "llama.cpp: loading model from" in text:
        log.load(line)
    elif re.search(r"\b(?:ggml_cuda_init|ggml_init_cublas): found|\bbuild(?: =|:) \d+ \(|msg=\"starting ", text):
        log.restart()


def _pair(log: Log, text: str, line: int) -> None:
    """`print_info: key = value` and its older spellings: the model."""
    found = PAIR.search(text)
    if found is None:
        return
    key, value = found[2].strip(), found[3].strip()
    section = log.loads(line)
    if key in ("format", "file format") and "file format" in section.said:
        section = log.load(line)
    if key in ("format", "file format"):
        section.say("file format", value, line)
    elif key in NUMBERS or key == "vocab_only":
        section.say(key, whole(value), line)
    elif key == "n_ctx":
        section.say("n_ctx", whole(value), line)
    elif key == "arch":
        section.say("arch", value, line)
    elif key in ("file type", "model ftype"):
        section.say("format", re.sub(r"\s*\(guessed\)|^\(guessed\)\s*|^mostly ", "", value), line)
    elif key == "ftype":
        named = re.search(r"\((?:mostly )?(.+)\)", value)
        section.say("format", None if named is None else named[1], line)
    elif key == "model size" and re.fullmatch(r"[\w.]+", value):  # "7B", in the summer of 2023: no bytes
        section.say("kind", value, line)
    elif key in ("file size", "model size"):
        section.say("size", memory(value), line)
        bits = re.search(rf"\(({NUMBER}) BPW\)", value)
        section.say("bits", None if bits is None else number(bits[1]), line)
        section.assumed.add(PRECISE)
    elif key == "model params":
        section.say("params", count(value), line)
    elif key == "model type":
        section.say("kind", value, line)
    elif key == "general.name" and value not in (".", "n/a", "model") and not re.search(r"[/\\]", value):
        section.say("name", value, line)


def _buffer(log: Log, text: str, line: int) -> None:
    """Sizes of buffers by device."""
    found = BUFFER.search(text)
    if found is None:
        return
    who, place, kind, size = found[1], device(found[2]), found[3], memory(found[4])
    if kind is None and "load_tensors" not in who:
        return
    section = log.loads(line)
    if kind == "RS":
        section.assumed.add("The state of layers that are no attention (RS) counts as KV memory.")
    if size:
        section.assumed.add(PRECISE)
    section.add(place, KINDS[kind], size, line, sums=kind in (None, "model", "KV", "RS"))


def _layers(log: Log, text: str, line: int) -> None:
    """How many layers were put on GPUs, and which tensors elsewhere."""
    offloaded, offloading = OFFLOADED.search(text), OFFLOADING.search(text)
    assigned, override = ASSIGNED.search(text), OVERRIDE.search(text)
    if offloaded is not None:
        section = log.loads(line)
        section.say("offloaded", whole(offloaded[1]), line)
        section.say("offloaded of", whole(offloaded[2]), line)
    elif offloading is not None and offloading[1]:
        log.loads(line).say("offloading", whole(offloading[1]), line)
    elif offloading is not None and offloading[2] == "GPU":
        log.loads(line).say("offloading output", 1, line)
    elif assigned is not None:
        section, layer = log.loads(line), whole(assigned[1])
        blocks = section.said.get("n_layer")
        if layer is not None and (blocks is None or layer < int(blocks.value)):
            place = device(assigned[2])
            section.placed[place] = section.placed.get(place, 0) + 1
    elif override is not None:
        section = log.loads(line)
        block = BLOCK.match(override[1])
        kind, number_ = (block[2], {int(block[1][:6])}) if block else (override[1].removesuffix(".weight"), set())
        blocks_, first = section.overrides.setdefault((kind, device(override[2])), (set(), line))
        blocks_ |= number_


def _context(log: Log, text: str, line: int) -> None:
    """`llama_context: key = value` and its older spellings: the room for sequences."""
    found = CONTEXT.search(text)
    if found is None:
        return
    key, value = found[1], found[2].rstrip(",")
    section = log.loads(line)
    if key in ("n_seq_max", "n_ctx") and section.timings:
        section = section.again(line)
        log.process.sections.append(section)
        log.loading = log.running = section
        log.clock = Clock()
    if key == "n_ctx":
        section.contexts += 1
    if key in OF_CONTEXT:
        section.say({"n_ctx_per_seq": "n_ctx_seq"}.get(key, key), whole(value), line)
    elif key == "flash_attn":
        section.say("flash_attn", {"0": False, "1": True, "disabled": False, "enabled": True}.get(value, value), line)
    elif key in ("kv_unified", "fused_moe"):
        section.say(key, {"0": False, "1": True, "false": False, "true": True}.get(value, value), line)


def _kv(log: Log, text: str, line: int) -> None:
    """The KV memories: their cells, layers and formats."""
    cells, init, whole_ = CELLS.search(text), INIT.search(text), SELF.search(text)
    if cells is None and init is None and whole_ is None:
        return
    section = log.loads(line)
    if init is not None:
        section.say("offload_kv", init[2] != "0", line)
        halves = {"K": init[3], "V": init[4]}
        room = (whole(init[1]), whole(init[5]), 1)
    elif cells is not None:
        halves = dict(HALVES.findall(cells[5]))
        room = (whole(cells[1]), whole(cells[2]), (whole(cells[4]) if cells[4] else 1) or 1)
    else:
        halves = dict(HALVES.findall(whole_[2] if whole_ else ""))
        total, layers = section.said.get("n_ctx"), section.said.get("n_layer")
        room = (int(total.value) if total else None, int(layers.value) if layers else 0, 1)
        if whole_ is not None and not any(buffer.holds == "kv" for buffer in section.buffers.values()):
            _nowhere(section, "KV memory [bytes]", memory(whole_[1]), line)
    k = halves.get("K") or halves.get("c^KV")
    if k is not None and room[0] is not None and room[1] is not None:
        section.caches.append(Cache(room[0], room[1], room[2], k, halves.get("V", ""), line))


def _nowhere(section: Section, what: str, size: int | None, line: int) -> None:
    """A size without a device."""
    if size:
        section.facts.append((what, size, line))
        section.unknown.add("On which devices the KV memory and the compute buffers are: one size for all is told.")


def _breakdown(log: Log, text: str, line: int) -> None:
    """The table of memory that is printed at the end; used where no line on buffers came before."""
    found = BREAKDOWN.search(text)
    if found is None:
        return
    section = log.runs(line)
    if any(key[-1] != "table" for key in section.buffers):
        return
    section.assumed.add("The table of memory cuts sizes to whole MiB.")
    place = device(found[1])
    cells: tuple[tuple[Holds, str], ...] = (("weights", found[6]), ("kv", found[7]), ("compute", found[8]))
    for holds, cell in cells:
        size = (whole(cell) or 0) * 2**20
        if size:
            section.buffers[holds, place, "table"] = Buffer(place, holds, size, line=line)
    total = whole(found[3]) if found[3] else None
    if total and place not in section.devices:
        free = None if found[4] is None else (whole(found[4]) or 0) * 2**20
        section.devices[place] = Processor(place, found[2] or "", total * 2**20, free, line)


def _old(log: Log, text: str, line: int) -> None:
    """The sums of memory that versions of 2023 print in place of buffers."""
    required, used, compute = REQUIRED.search(text), USED.search(text), COMPUTE.search(text)
    section = log.loads(line)
    alone: Holds = "all" if "llama_model_load_internal" in text else "weights"
    if required is not None:
        section.add("CPU", alone, memory(required[1]), line, sums=False)
    elif used is not None and (used[1] == "VRAM used" or alone == "all"):
        section.add("GPU", alone, memory(used[2]), line, sums=False)
    elif compute is not None:
        _nowhere(section, "compute buffers [bytes]", memory(compute[1]), line)


def _details(log: Log, text: str, line: int) -> None:
    """Threads, slots, mmap, parts of the graph."""
    threads, slots, window = THREADS.search(text), SLOTS.search(text), SLOT_WINDOW.search(text)
    splits, copies = SPLITS.search(text), COPIES.search(text)
    if threads is not None:
        log.process.said.setdefault("n_threads", Said(whole(threads[1]) or 0, line))
    if slots is not None:
        log.runs(line).say("n_slots", whole(slots[1] or slots[2]), line)
    if window is not None:
        log.runs(line).say("n_ctx_slot", whole(window[1]), line)
    if splits is not None:
        section = log.loads(line)
        value = whole(splits[3] or splits[1])
        if value is not None and "graph splits" not in section.said:
            section.say("graph splits", value, line)
            section.facts.append(("parts of the graph (1 is: all on one device)", value, line))
    if copies is not None:
        log.loads(line).say("pipeline copies", whole(copies[1]), line)
    if "this can take a while" in text:
        mapped = re.search(r"mmap = (true|false)|load_mode = (\w+)", text)
        if mapped is not None:
            log.loads(line).say("mmap", mapped[1] == "true" or mapped[2] == "mmap", line)
    if "Flash Attention was auto, set to" in text:
        section = log.loads(line)
        section.said["flash_attn"] = Said("set to enabled" in text, line)


def _devices(log: Log, text: str, line: int) -> None:
    read_device(log.process.devices, text, line)


def _times(log: Log, text: str, line: int) -> None:
    read_times(log.runs(line), log.clock, text, line)


def _server(log: Log, text: str, line: int) -> None:
    read_server(log.running, log.clock, text)


def _draft(log: Log, text: str, line: int) -> None:
    """The drafts that were accepted: of two models loaded before any time, the smaller one made them."""
    if DRAFT.search(text) is None:
        return
    mine = log.process.sections
    if len(mine) > 1 and mine[-1] is log.running and not mine[-2].timings and not any(one.draft for one in mine):
        large, small = (one.said.get("size") for one in mine[-2:])
        if large is not None and small is not None and float(large.value) > float(small.value):
            main, draft = mine[-2], mine[-1]
            main.timings, main.alone, draft.timings, draft.alone = draft.timings, draft.alone, [], []
            main.facts, draft.facts = main.facts + draft.facts, []
            main.assumed |= draft.assumed
            draft.draft, log.running = True, main
    read_draft(log.runs(line), log.clock, text, line)


def _rates(log: Log, text: str, line: int) -> None:
    read_rates(log.runs(line), text, line)


def _verbose(log: Log, text: str, line: int) -> None:
    section = log.runs(line)
    if read_verbose(section, log.clock, text, line):
        log.process.said.setdefault("ollama", Said(True, line))


def _ollama(log: Log, text: str, line: int) -> None:
    read_ollama(log, text, line)


READS: tuple[tuple[tuple[str, ...], Callable[[Log, str, int], None]], ...] = (
    (
        ("loaded meta data", "loading model from", "draft model", "partial load", ": found", "build", "starting "),
        _start,
    ),
    (("Device ", "device", "Found ", "GPU name", "SYCL", " free)", "ggml_vulkan: ", "WorkingSet"), _devices),
    (("print_meta: ", "print_info: ", "llama_model_load"), _pair),
    (("buffer size",), _buffer),
    (("offload", "assigned to device", "buffer type over"), _layers),
    (("llama_context", "llama_new_context", "llama_init_from"), _context),
    ((" cells,", "kv_size = ", "elf size"), _kv),
    (("mem required", "VRAM used", "compute buffer total"), _old),
    (("n_threads", "slot", "graph splits", "pipeline", "take a while", "Flash Attention"), _details),
    (("slot", "task"), _server),
    (("eval time", "load time", "total time", "sample time", "sampling time"), _times),
    (("draft acceptance",), _draft),
    (("Generation: ",), _rates),
    ((" duration:", " count:"), _verbose),
    (("| ",), _breakdown),
    (("source=",), _ollama),
)
