"""What Hugging Face accelerate and transformers say of a model spread over GPUs, host memory and disk.

Read: device maps, the warning of what was offloaded, max_memory, tables of `accelerate estimate-memory` (a run for each
row), and accelerate's big_model_inference benchmark: what its script prints, and its table of results (a run for each
row). accelerate's "MB" and "GB" are 2^20 and 2^30 bytes: its convert_bytes divides by 1024.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from offload.errors import ReadingError
from offload.readers.engines.gathered import FLOAT_BITS, NUMBER, Gathered, gib, model_name, number, number_type
from offload.readers.engines.run import Buffer, Holds, Processor, Run, Timing
from offload.readers.tools.text import Line, Text

LOOKS_LIKE = "a device map or memory table of Hugging Face accelerate"
SIGN = re.compile(
    r"because they were offloaded to the (?:cpu|disk)|Memory Usage for loading `|verage time of generation per token|"
    r"""['"][\w.]*\.(?:layers|h|blocks?|layer)\.\d+['"]\s*[:,]\s*['"]?(?:\d|cpu|disk|cuda|meta)|"""
    r"""['"]lm_head['"]\s*[:,]\s*['"]?(?:\d|cpu|disk|cuda)|s per token \||- GPU \d+ allocated: [\d.]+MiB"""
)
PLACED = re.compile(
    r"""['"]([A-Za-z_][\w.]*|)['"]\s*[:,]\s*(?:device\(type=)?['"]?(cuda:\d{1,3}|cuda|cpu|disk|meta|mps|\d{1,3})\b['"]?(?!\s*[\w.])"""
)
LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks?|layer)\.(\d{1,4})(\..+)?$")
OFFLOADED = re.compile(r"parameters are on the meta device(?: device)? because they were offloaded to the ([a-z ]+)\b")
LIMITS = re.compile(r"max_memory\s*[=:]\s*\{([^{}]{1,2000})\}")
LIMIT = re.compile(r"""['"]?(\d{1,3}|cpu|disk)['"]?\s*:\s*['"]?(\d+(?:\.\d+)?) ?([KMGT]i?B)['"]?""", re.IGNORECASE)
TITLE = re.compile(r"Memory Usage for loading `([^`]{1,200})`")
SIZE = r"(\d+(?:\.\d+)?) ?(bytes|KB|MB|GB|TB)"
ESTIMATE = re.compile(
    rf"[│|]\s*(float32|float16|bfloat16|int8|int4|fp8)\s*[│|]\s*{SIZE}\s*[│|]\s*{SIZE}\s*[│|]\s*(?:{SIZE}|N/A)"
)
UNITS = {"bytes": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}
LIMIT_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30,
               "TIB": 2**40}  # fmt: skip
RESULT = re.compile(
    rf"\|\s*([^|]{{1,80}}?)\s*\|\s*{NUMBER}s\s*\|\s*{NUMBER}s per token\s*\|\s*(\w+)\s*\|((?:\s*[\d.]+ ?GB\s*\|)+)\s*"
    r"(yes|no)\s*\|"
)
HEADING = re.compile(r"(?:^|\s)(Model loading|Model generation|Theoretical use):\s*$", re.IGNORECASE)
TIME = re.compile(rf"- Time: {NUMBER}s")
ALLOCATED = re.compile(rf"- (GPU (\d{{1,3}})|CPU RAM) (allocated|peak): {NUMBER}MiB")
THEORY = re.compile(rf"- (\d{{1,3}}|cpu|disk): {NUMBER}MiB")
GENERATED = re.compile(rf"(?:^|\s)In {NUMBER}s for (\d{{1,9}}) tokens\s*$")
AVERAGE = re.compile(rf"Average time of generation per token( \(excluding the first\))?: {NUMBER}s")
REST = ("norm", "lm_head", "embed_tokens", "wte", "rotary_emb")


def is_it(text: Text) -> bool:
    """Whether a device map, the warning or a table of accelerate stands in the text."""
    return SIGN.search(text.whole) is not None


def read(text: Text) -> tuple[Run, ...]:
    """The runs of a log: a device map or benchmark each, and each row of a table. Raises ReadingError if there is none.

    Buffers have bytes only where they are printed; a device map alone gives the layers of each device as facts.
    """
    runs: list[Run] = []
    tables: list[Run] = []
    reader = Reader()
    model: str | None = None
    for line in text:
        if title := TITLE.search(line.text):
            model = model_name(title[1])
        elif row := RESULT.search(line.text):
            tables += _result(row, line.number)
        elif row := ESTIMATE.search(line.text):
            tables += _estimate(row, model, line.number)
        else:
            if reader.begins_another(line):
                runs += reader.finished()
                reader = Reader()
            reader.take(line)
    runs += reader.finished()
    if not runs and not tables:
        raise ReadingError(f"looks like {LOOKS_LIKE}, but no line of it says a size, a place or a time.")
    return (*runs, *tables)


@dataclass(slots=True)
class Reader:
    """Reads the lines of one run. placed : device by module, with its line."""

    run: Gathered = field(default_factory=lambda: Gathered("accelerate"))
    placed: dict[str, tuple[str, int]] = field(default_factory=dict)
    heading: str = ""
    loaded: bool = False

    def begins_another(self, line: Line) -> bool:
        """Whether a line begins another device map (a module that is in this one) or loads another model."""
        if "'" in line.text or '"' in line.text:
            names = [name for name, _ in PLACED.findall(line.text) if _is_module(name)]
            return any(name in self.placed for name in names)
        return self.loaded and (heading := HEADING.search(line.text)) is not None and "loading" in heading[1].lower()

    def take(self, line: Line) -> None:
        """Read one line."""
        text, at, run = line.text, line.number, self.run
        if limits := LIMITS.search(text):
            self._limits(limits[1], at)
            text = text[: limits.start()] + text[limits.end() :]
        if "'" in text or '"' in text:
            for name, device in PLACED.findall(text):
                if _is_module(name):
                    self.placed.setdefault(name, (_device(device), at))
        if found := OFFLOADED.search(text):
            places = sorted({place for place in ("cpu", "disk") if re.search(rf"\b{place}\b", found[1])})
            run.set("offloaded to", " and ".join(places) or None, at)
        elif found := HEADING.search(text):
            self.heading = found[1].lower()
            self.loaded = self.loaded or "loading" in self.heading
        elif found := TIME.search(text):
            seconds = number(found[1])
            if seconds is not None and self.heading == "model loading":
                run.time(Timing("load", seconds, test="big_model_inference", line=at))
            elif seconds is not None and self.heading == "model generation":
                run.fact("time of all generations, s", seconds, at)
        elif found := ALLOCATED.search(text):
            self._allocated(found, at)
        elif self.heading == "theoretical use" and (found := THEORY.search(text)):
            if (size := _bytes(found[2], "MB")) is not None:
                run.put(Buffer(_device(found[1]), "weights", size, line=at))
                self._gpu(_device(found[1]), at)
        elif found := GENERATED.search(text):
            seconds, tokens = number(found[1]), number(found[2])
            if seconds is not None and tokens is not None:
                run.time(Timing("request", seconds, tokens, sequences=1, test="big_model_inference",
                                includes="the prompt's tokens", line=at))  # fmt: skip
        elif found := AVERAGE.search(text):
            seconds = number(found[2])
            if seconds is not None:
                test = "average time per token" + (", without the first request" if found[1] else "")
                run.time(Timing("decode", seconds, 1, 1, 1, test=test, includes="the prompt's pass, in parts",
                                line=at))  # fmt: skip

    def _limits(self, text: str, line: int) -> None:
        for device, printed, unit in LIMIT.findall(text):
            value = number(printed)
            if value is not None:
                self.run.fact(f"most that may lie on {_device(device)} (max_memory), bytes",
                              round(value * LIMIT_UNITS[unit.upper()]) or None, line)  # fmt: skip

    def _allocated(self, found: re.Match[str], line: int) -> None:
        device = "cpu" if found[2] is None else f"cuda:{int(found[2])}"
        size = _bytes(found[4], "MB")
        if size is None:
            return
        if self.heading == "model loading" and found[3] == "allocated" and device != "cpu":
            self.run.put(Buffer(device, "weights", size, line=line))
            self._gpu(device, line)
        elif self.heading:
            self.run.fact(f"{self.heading}: {found[3]} on {device}, bytes", size, line)

    def _gpu(self, device: str, line: int) -> None:
        if device.startswith("cuda"):
            self.run.processors.setdefault(device, Processor(device, line=line))

    def finished(self) -> list[Run]:
        """What was read, as a list of one run, or of none."""
        run = self.run
        if self.placed:
            self._map()
        return [run.run()] if run.says_something else []

    def _map(self) -> None:
        """Layers of each device; a layer whose parts lie on several counts where most of them do, and is told."""
        run = self.run
        line = min(at for _, at in self.placed.values())
        layers: dict[int, list[str]] = {}
        others: dict[str, list[str]] = {}
        for name, (device, _) in self.placed.items():
            if found := LAYER.search(name):
                layers.setdefault(int(found[1]), []).append(device)
            else:
                others.setdefault(device, []).append(name)
        split = [number_ for number_, devices in layers.items() if len(set(devices)) > 1]
        where = {number_: max(sorted(set(devices)), key=devices.count) for number_, devices in layers.items()}
        if split:
            run.unknown[f"where {len(split)} layers lie that are split between devices"] = None
        if where:
            run.say("layers", max(where) + 1, line)
            output = [device for name, (device, _) in self.placed.items() if name.split(".")[-1] == "lm_head"]
            run.say("layers_on_gpus", sum(place.startswith("cuda") for place in [*where.values(), *output[:1]]), line)
            if len(where) != max(where) + 1:
                run.odd[f"layers 0 to {max(where)} are {max(where) + 1}, the device map places {len(where)}."] = None
        for device in sorted({*where.values(), *others}):
            self._gpu(device, line)
            held = sorted(number_ for number_, place in where.items() if place == device)
            if held:
                run.fact(f"layers on {device}", len(held), line)
            parts = [_ranges(held)] if held else []
            run.set(f"device_map {device}", ", ".join([*parts, *sorted(others.get(device, ()))])[:300], line)
        if not run.buffers:
            run.unknown["bytes on each device: a device map gives none"] = None


def _is_module(name: str) -> bool:
    return LAYER.search(name) is not None or name.split(".")[-1] in REST or "." in name


def _device(printed: str) -> str:
    """A device as torch names it: a number is a GPU's."""
    return f"cuda:{int(printed)}" if printed.isdigit() else {"cuda": "cuda:0"}.get(printed, printed)


def _ranges(numbers: list[int]) -> str:
    """Numbers in order as ranges: "layers 0-3, 5"."""
    parts: list[list[int]] = []
    for one in numbers:
        if parts and one == parts[-1][-1] + 1:
            parts[-1][1:] = [one]
        else:
            parts.append([one])
    return "layers " + ", ".join("-".join(str(end) for end in part) for part in parts)


def _bytes(printed: str, unit: str) -> int | None:
    value = number(printed)
    return None if value is None else round(value * UNITS[unit]) or None


def _estimate(row: re.Match[str], model: str | None, line: int) -> list[Run]:
    """A row of `accelerate estimate-memory`: the size of all weights in one type."""
    run = Gathered("accelerate")
    run.say("model", model, line)
    run.say("weights_format", row[1], line)
    bits = {**FLOAT_BITS, "int8": 8, "int4": 4, "fp8": 8}[row[1]]
    run.say("bits", float(bits), line)
    run.say("size", _bytes(row[4], row[5]), line)
    run.fact("largest layer, bytes", _bytes(row[2], row[3]), line)
    if row[6] is not None:
        run.fact("memory for training with Adam, bytes", _bytes(row[6], row[7]), line)
    run.assumed["MB and GB are 2^20 and 2^30 bytes, as accelerate counts"] = None
    return [run.run()] if "size" in run.said else []


def _result(row: re.Match[str], line: int) -> list[Run]:
    """A row of the benchmark's table: load time, time a token, and what each device held at most."""
    run = Gathered("accelerate")
    run.say("model", model_name(row[1]), line)
    dtype = number_type(row[4])
    run.say("weights_format", dtype, line)
    run.say("bits", float(FLOAT_BITS[dtype]) if dtype in FLOAT_BITS else None, line)
    loading, token = number(row[2]), number(row[3])
    if loading is not None:
        run.time(Timing("load", loading, test="big_model_inference", line=line))
    if token is not None:
        run.time(Timing("decode", token, 1, 1, 1, test="big_model_inference",
                        includes="the prompt's pass, in parts", line=line))  # fmt: skip
    cells = re.findall(r"([\d.]+) ?GB", row[5])
    holds: Holds = "weights"
    for index, printed in enumerate(cells):
        device = "cpu" if index == len(cells) - 1 else f"cuda:{index}"
        if (size := gib(printed)) is not None:
            run.put(Buffer(device, holds, size, line=line))
        if device != "cpu":
            run.processors[device] = Processor(device, line=line)
    run.set("disk offload", row[6] == "yes", line)
    if row[6] == "yes":
        run.unknown["bytes on the disk"] = None
    run.assumed["the last GB of a row are host memory, those before it GPUs in order; GB are 2^30 bytes"] = None
    return [run.run()]
