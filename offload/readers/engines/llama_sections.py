"""What a llama.cpp log says of one loaded model, gathered line by line, and the `Run` that comes of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from offload.readers.engines.run import Buffer, Holds, Processor, Run, Said, Timing

Value = str | int | float | bool
BLOCK = re.compile(r"^blk\.(\d+)\.(.+?)(?:\.weight|\.bias)?$")
MAPPED = ("_Mapped", "_mapped")


@dataclass(slots=True)
class Process:
    """One start of a program: what holds for every model that it loads."""

    devices: dict[str, Processor] = field(default_factory=dict)
    said: dict[str, Said[Value]] = field(default_factory=dict)
    sections: list[Section] = field(default_factory=list)


@dataclass(slots=True)
class Cache:
    """One KV memory: positions of one stream, layers, streams and the formats of K and V."""

    cells: int
    layers: int
    streams: int
    k: str
    v: str
    line: int


@dataclass(slots=True)
class Slot:
    """A task of a server's slot: its prompt's tokens, how many were in its KV memory, whether others ran.

    held : of a task that is over before its times are printed, the positions that it held then (0: not told).
    """

    prompt: int | None = None
    cached: int | None = None
    alone: bool | None = None
    decode: int | None = None
    request: int | None = None
    prefill: int | None = None
    held: int | None = None


@dataclass(slots=True)
class Section:
    """One loaded model: `said` by key (the first line of a key stands), buffers, KV memories, timings."""

    process: Process
    line: int
    said: dict[str, Said[Value]] = field(default_factory=dict)
    devices: dict[str, Processor] = field(default_factory=dict)
    contexts: int = 0
    buffers: dict[tuple[str, ...], Buffer] = field(default_factory=dict)
    placed: dict[str, int] = field(default_factory=dict)
    overrides: dict[tuple[str, str], tuple[set[int], int]] = field(default_factory=dict)
    caches: list[Cache] = field(default_factory=list)
    timings: list[Timing] = field(default_factory=list)
    alone: list[bool | None] = field(default_factory=list)
    facts: list[tuple[str, Value, int]] = field(default_factory=list)
    assumed: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    draft: bool = False
    sums: bool = False
    last: int = 0

    def say(self, key: str, value: Value | None, line: int) -> None:
        """Keep a value at its first line; None says nothing."""
        if value is not None and key not in self.said:
            self.said[key] = Said(value, line)

    def add(self, device: str, holds: Holds, size: int | None, line: int, *, sums: bool) -> None:
        """Keep a buffer; `sums` : one more of its kind (files of a split model, two KV memories), else it replaces."""
        if not size:
            return
        key = (holds, device, str(self.contexts)) + ((str(line),) if sums else ())
        self.buffers[key] = Buffer(device, holds, size, line=line)

    def time(self, timing: Timing, alone: bool | None = True) -> int:
        """Keep a timing; alone : that no other sequence ran meanwhile (None: not known). Gives its place."""
        self.timings.append(timing)
        self.alone.append(alone)
        return len(self.timings) - 1

    def again(self, line: int) -> Section:
        """The same loaded model in a new context."""
        model = {key: value for key, value in self.said.items() if key not in OF_A_CONTEXT}
        weights = {key: buffer for key, buffer in self.buffers.items() if buffer.holds == "weights"}
        return Section(
            self.process, line, model, dict(self.devices), buffers=weights, placed=self.placed, overrides=self.overrides
        )


OF_A_CONTEXT = frozenset(
    ("n_ctx", "n_ctx_seq", "n_batch", "n_ubatch", "n_seq_max", "flash_attn", "kv_unified", "offload_kv", "graph splits")
)
SETTINGS = (
    ("n_gpu_layers", "n_gpu_layers"),
    ("n_batch", "n_batch"),
    ("flash_attn", "flash_attn"),
    ("kv_unified", "kv_unified"),
    ("mmap", "mmap"),
    ("mlock", "mlock"),
    ("cpu_moe", "cpu_moe"),
    ("split_mode", "split_mode"),
    ("tensor_split", "tensor_split"),
    ("main_gpu", "main_gpu"),
    ("no_op_offload", "no_op_offload"),
    ("run_time_repack", "run_time_repack"),
    ("mla_attn", "mla_attn"),
    ("fused_moe", "fused_moe"),
    ("attn_max_batch", "attn_max_batch"),
    ("pipeline copies", "n_copies"),
    ("override-tensor", "override-tensor"),
)


def ranges(numbers: Iterable[int]) -> str:
    """Numbers as ranges: "3-60", "0,2,4"."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def overridden(section: Section) -> tuple[tuple[str, str | int | bool, int], ...]:
    """The tensors whose device was chosen by hand, as settings: "blk.3-60 ffn_down_exps|ffn_up_exps=CPU"."""
    groups: dict[tuple[str, str], tuple[list[str], int]] = {}
    for (kind, place), (blocks, line) in section.overrides.items():
        names, first = groups.setdefault((ranges(blocks), place), ([], line))
        names.append(kind)
        groups[ranges(blocks), place] = (names, min(first, line))
    return tuple(
        ("override-tensor", (f"blk.{blocks} " if blocks else "") + "|".join(sorted(names)) + f"={place}", line)
        for (blocks, place), (names, line) in groups.items()
    )


def run_of(section: Section) -> Run:
    """The Run that a section comes to."""
    said = {**{key: value for key, value in section.process.said.items()}, **section.said}
    used = Words(said)
    cache = max(section.caches, key=lambda one: (one.cells * one.streams, one.layers), default=None)
    batch = used.whole("n_seq_max") or used.whole("n_slots") or used.whole("parallel")
    total = used.whole("n_ctx")
    window = used.whole("n_ctx_seq") or used.whole("n_ctx_slot") or total
    if window is None and (batch is None or batch.value == 1):
        window = used.whole("ctx-size")
    kv_tokens = None if cache is None else Said(cache.cells * cache.streams, cache.line)
    if kv_tokens is None and total is not None:
        kv_tokens = total
    layers = used.whole("n_layer")
    assumed = set(section.assumed)
    at_once = None if batch is None else int(batch.value)
    if section.sums and at_once is None:
        at_once = 1
        assumed.add("One sequence ran at a time: the log names no more.")
    timings, unknown = resolved(section, at_once)
    processors = tuple(one for name, one in {**section.process.devices, **section.devices}.items() if name != "kind")
    buffers = with_layers(section, processors)
    size = used.whole("size")
    odd = []
    weights = sum(buffer.size for buffer in buffers if buffer.holds == "weights")
    if size is not None and weights > size.value * 1.02 + 2**20:
        if any(buffer.device.endswith(MAPPED) for buffer in buffers):
            assumed.add(
                "The buffers of the weights hold more than the model: a memory-mapped one spans all of the file from "
                "its first tensor to its last, those on other devices too."
            )
        else:
            odd.append(f"The buffers of the weights hold {weights:,} bytes, the model {size.value:,}.")
    unknown += [*sorted(section.unknown), *missing(section, used)]
    return Run(
        engine="ollama" if "ollama" in said else "llama.cpp",
        line=section.line,
        model=used.text("name") or named(used),
        architecture=used.text("arch"),
        parameters=used.real("params"),
        size=size,
        bits=used.real("bits"),
        weights_format=used.text("format"),
        kv_format=kv_format(cache, used),
        layers=layers,
        layers_on_gpus=on_gpus(used, layers),
        experts=used.whole("n_expert"),
        experts_used=used.whole("n_expert_used"),
        window=window,
        kv_tokens=kv_tokens,
        batch=batch,
        chunk=used.whole("n_ubatch") or used.whole("ubatch-size"),
        threads=used.whole("n_threads") or used.whole("threads"),
        processors=processors,
        buffers=buffers,
        timings=timings,
        settings=settings(section, said),
        facts=tuple(section.facts),
        unknown=tuple(unknown),
        odd=tuple(odd),
        assumed=tuple(sorted(assumed)),
    )


@dataclass(frozen=True, slots=True)
class Words:
    """What was said, by the kind of value that is due."""

    said: dict[str, Said[Value]]

    def whole(self, key: str) -> Said[int] | None:
        """A whole number from 1 on, or None."""
        found = self.said.get(key)
        if found is None or isinstance(found.value, bool | str) or found.value < 1:
            return None
        return Said(int(found.value), found.line)

    def real(self, key: str) -> Said[float] | None:
        """A number above 0, or None."""
        found = self.said.get(key)
        if found is None or isinstance(found.value, bool | str) or found.value <= 0:
            return None
        return Said(float(found.value), found.line)

    def text(self, key: str) -> Said[str] | None:
        """A text that is not empty, or None."""
        found = self.said.get(key)
        if found is None or not isinstance(found.value, str) or not found.value:
            return None
        return Said(found.value, found.line)


def named(used: Words) -> Said[str] | None:
    """A model without a name of its own by its architecture and kind: "llama 8B"."""
    arch, kind = used.text("arch"), used.text("kind")
    if arch is None or kind is None or "?" in kind.value:
        return None
    return Said(f"{arch.value} {kind.value}", kind.line)


def kv_format(cache: Cache | None, used: Words) -> Said[str] | None:
    """The format of K and V, or of each where they differ."""
    if cache is not None:
        same = cache.k == cache.v or not cache.v
        return Said(cache.k if same else f"K {cache.k}, V {cache.v}", cache.line)
    k, v = used.text("cache-type-k"), used.text("cache-type-v")
    if k is None or v is None:
        return None
    return Said(k.value if k.value == v.value else f"K {k.value}, V {v.value}", k.line)


def on_gpus(used: Words, layers: Said[int] | None) -> Said[int] | None:
    """Blocks (and the output layer) on GPUs; versions of 2023 counted the KV memory's halves as two layers more."""
    told, of = used.said.get("offloaded"), used.said.get("offloaded of")
    if told is None or of is None:
        return None
    if layers is not None and int(of.value) > layers.value + 1 and "offloading" in used.said:
        return Said(int(used.said["offloading"].value) + ("offloading output" in used.said), told.line)
    return Said(int(told.value), told.line)


def with_layers(section: Section, processors: tuple[Processor, ...]) -> tuple[Buffer, ...]:
    """The buffers; those of weights with the blocks that were assigned to their device, where it has one buffer.

    The "GPU" of 2023's sums is the only device there is.
    """
    buffers = list(section.buffers.values())
    if len(processors) == 1:
        only = processors[0].name
        buffers = [replace(buffer, device=only) if buffer.device == "GPU" else buffer for buffer in buffers]
    for place, layers in section.placed.items():
        mine = [
            index
            for index, buffer in enumerate(buffers)
            if buffer.holds == "weights" and buffer.device in (place, f"{place}_Mapped")
        ]
        if len(mine) == 1:
            buffers[mine[0]] = replace(buffers[mine[0]], layers=layers)
    return tuple(buffers)


def resolved(section: Section, batch: int | None) -> tuple[tuple[Timing, ...], list[str]]:
    """The timings with how many sequences ran, where that is known, and what is not."""
    timings: list[Timing] = []
    open_ = 0
    for timing, alone in zip(section.timings, section.alone, strict=True):
        single = alone or (alone is None and batch == 1)
        if timing.phase == "load" or timing.sequences is not None:
            timings.append(timing)
            continue
        open_ += not single
        timings.append(replace(timing, sequences=1.0 if single else None))
    if not open_:
        return tuple(timings), []
    return tuple(timings), [f"How many sequences ran at once during {open_} of the timings: their steps were shared."]


def missing(section: Section, used: Words) -> list[str]:
    """What a log of a run should say and this one does not."""
    gone = []
    if not section.buffers:
        gone.append("Where the weights and the KV memory are: no line on buffers.")
    if section.draft:
        return gone
    if not section.timings:
        gone.append("How long anything took: no line with timings.")
    if used.whole("size") is None and used.text("arch") is None:
        gone.append("Which model it was: no lines of its loading.")
    return gone


def settings(section: Section, said: dict[str, Said[Value]]) -> tuple[tuple[str, str | int | bool, int], ...]:
    """What else changes what moves, by the engine's own key."""
    told: list[tuple[str, str | int | bool, int]] = []
    for key, name in SETTINGS:
        found = said.get(key)
        if found is None or isinstance(found.value, float) or (key == "override-tensor" and section.overrides):
            continue
        told.append((name, found.value, found.line))
    off, flag = said.get("offload_kv"), said.get("no_kv_offload")
    if off is not None:
        told.append(("no_kv_offload", not off.value, off.line))
    elif flag is not None and isinstance(flag.value, bool):
        told.append(("no_kv_offload", flag.value, flag.line))
    if section.draft:
        told.append(("draft", True, section.line))
    return (*told, *overridden(section))
