"""What DeepSpeed prints: its configuration, times of steps, memory, the FLOPS profiler, ZeRO's memory estimates.

And what its inference examples print: ZeRO-Inference's run_model.py and FlexGen (the same summary), the BLOOM scripts.
DeepSpeed's "GB" are 2^30 bytes (its sources divide by 1024^3). Estimates are runs of their own, as facts.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field

from offload.readers.engines.deepspeed_inference import COMMAND, Inference
from offload.readers.engines.deepspeed_inference import SIGN as INFERENCE_SIGN
from offload.readers.engines.gathered import NUMBER, Gathered, count, gib, number, number_type, plain, runs_of
from offload.readers.engines.run import Buffer, Run, Timing
from offload.readers.tools.text import Line, Text

LOOKS_LIKE = "a DeepSpeed log"
SIGN = re.compile(
    r"DeepSpeedEngine configuration|SamplesPerSec=\d|DeepSpeed Flops Profiler|zero_optimization_stage \.\.\.|"
    r"Estimated memory needed for params, optim|time \(ms\) \| (?:fwd|forward|optimizer_)|MA [\d.]+ GB +Max_MA|"
    r"print(?:_user_config)?\] +json = \{"
)
BEGIN = re.compile(r"DeepSpeedEngine configuration:|Estimated memory needed for params, optim")
ROW = re.compile(r"\] +(\w{1,80}) \.{2,80} (\S+)\s*$")
JSON_BEGIN = re.compile(r"\bjson = \{\s*$")
JSON_KEY = re.compile(r'"(\w{1,60})"\s*:\s*(\S.*)')
JSON_END = re.compile(r"(?:^|[\s|:])\}[\s,]{0,20}$")
INLINE = re.compile(r'"(\w{1,60})"\s*:\s*("[^"]*"|[^\s,{}\[\]]+)')
SPEED = re.compile(
    rf"(?:RunningAvg)?SamplesPerSec={NUMBER}(?:, *CurrSamplesPerSec={NUMBER})?"
    rf"(?:, *MemAllocated=([\d.]+)GB)?(?:, *MaxMemAllocated=([\d.]+)GB)?"
)
BREAKDOWN = re.compile(r"(?:^|\s)time \(ms\) \| (.*)$")
PART = re.compile(rf"(\w+): {NUMBER}")
PARTS = {"forward": "fwd", "backward": "bwd", "backward_inner": "bwd_inner", "backward_allreduce": "bwd_allreduce"}
MEMORY = re.compile(rf"MA [\d.]+ GB +Max_MA {NUMBER} GB")
HOST = re.compile(rf"CPU Virtual Memory: +used = {NUMBER} GB")
PROFILER = re.compile(rf"(?:^|[\s|])([a-z][\w ()/+-]{{4,60}}?)(?: = [^:]{{0,80}})?: +{NUMBER} ?([A-Za-z]*)\s*$")
SIZES = {"": 1.0, "K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12}
SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
MACHINE = re.compile(r"HW: Setup with (\d+) nodes?, (\d+) GPUs? per node")
MODEL = re.compile(r"SW: Model with (\d+)M total params(?:, (\d+)M largest layer params)?")
ESTIMATE = re.compile(r"(?<![\d.])([\d.]{1,20})GB +\| +([\d.]{1,20})GB +\| +(\S.*)")
KEPT = re.compile(
    r"^(?:train_batch_size|train_micro_batch_size_per_gpu|gradient_accumulation_steps|gradient_clipping|(?:fp16|bf16|"
    r"bfloat16)\.enabled|zero_optimization\.(?!.*path)[\w.]+|aio\.\w+|activation_checkpointing\.\w+|optimizer\.type|"
    r"weight_quantization\.quantized_initialization\.\w+|wall_clock_breakdown)$"
)


def is_it(text: Text) -> bool:
    """Whether a line of DeepSpeed or of its inference examples stands in the text."""
    return SIGN.search(text.whole) is not None or INFERENCE_SIGN.search(text.whole) is not None


def read(text: Text) -> tuple[Run, ...]:
    """The runs of a log: each start of an engine, summary and table of estimates is one.

    Raises ReadingError where no line can be used.
    """
    return runs_of(text, Reader, LOOKS_LIKE)


@dataclass(slots=True)
class Reader:
    """Reads the lines of one run."""

    run: Gathered = field(default_factory=lambda: Gathered("deepspeed"))
    inference: Inference = field(default_factory=Inference)
    begun: bool = False
    json: list[str] | None = None  # keys that are open in the configuration's JSON
    keys: int = 0
    speeds: list[tuple[float, bool, int]] = field(default_factory=list)  # samples/s, whether a running mean, line
    parts: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))  # of a step, s
    parts_line: int = 0
    most: dict[str, tuple[int, int]] = field(default_factory=dict)  # bytes, line
    profile: dict[str, tuple[float, int]] = field(default_factory=dict)
    profiling: bool = False

    def begins_another(self, line: Line) -> bool:
        """Whether a line starts something new after what this run has."""
        if BEGIN.search(line.text) or COMMAND.search(line.text) and not self.inference.open_command:
            return self.begun or bool(self.speeds or self.parts) or self.inference.done
        return self.inference.begins(line)

    def take(self, line: Line) -> None:
        """Read one line."""
        text, at, run = line.text, line.number, self.run
        if self.json is not None and self._json(self.json, text, at):
            return
        if self.inference.take(run, line):
            return
        if BEGIN.search(text):
            self.begun = True
        elif JSON_BEGIN.search(text):
            self.json, self.keys = [], 0
        elif found := ROW.search(text):
            self._row(found[1], found[2], at)
        elif found := SPEED.search(text):
            self._speed(found, at)
        elif found := BREAKDOWN.search(text):
            self._breakdown(found[1], at)
        elif found := MEMORY.search(text):
            self._highest("most of PyTorch's memory on a GPU (Max_MA), bytes", gib(found[1]), at)
        elif found := HOST.search(text):
            self._highest("most of the host's memory in use, by everything, bytes", gib(found[1]), at)
        elif "DeepSpeed Flops Profiler" in text:
            self.profiling = True
        elif found := MACHINE.search(text):
            run.fact("estimate, nodes", count(found[1]), at)
            run.fact("estimate, GPUs of a node", count(found[2]), at)
        elif found := MODEL.search(text):
            millions = number(found[1])
            run.say("parameters", None if millions is None else millions * 1e6, at)
            largest = number(found[2])
            run.fact("parameters of the largest layer", None if largest is None else largest * 1e6, at)
        elif found := ESTIMATE.search(text):
            self._estimate(found, at)
        elif self.profiling and (found := PROFILER.search(text)):
            self._profile(found, at)

    def _json(self, stack: list[str], text: str, line: int) -> bool:
        """Read a line of the configuration's JSON, key by key: it may hold "inf", and a logger's words before it."""
        self.keys += 1
        if found := JSON_KEY.search(text):
            key, value = found[1], found[2].rstrip().removesuffix(",").rstrip()
            if value == "{":
                stack.append(key)
            elif value.startswith("{"):
                for inner, told in INLINE.findall(value):
                    self._set(".".join([*stack, key, inner]), told, line)
            else:
                self._set(".".join([*stack, key]), value, line)
            return True
        if JSON_END.search(text):
            if stack:
                stack.pop()
            else:
                self.json = None
            return True
        if self.keys > 1000 or "[INFO]" in text:
            self.json = None
            return False
        return False

    def _set(self, path: str, value: str, line: int) -> None:
        value = value.strip().strip('"')
        if not KEPT.match(path) or value in ("null", "None", "auto", "") or len(value) > 60 or re.search(
                r"[/\\\[\]{}]", value):  # fmt: skip
            return
        told = number(value) if re.search(r"[.eE]", value) else None
        whole = int(told) if told is not None and told == int(told) else None
        self.run.set(path, plain(value) if whole is None else whole, line)
        self._row({"fp16.enabled": "fp16_enabled", "bf16.enabled": "bfloat16_enabled",
                   "bfloat16.enabled": "bfloat16_enabled", "zero_optimization.stage": "zero_optimization_stage",
                   }.get(path, path), value, line)  # fmt: skip

    def _row(self, name: str, value: str, line: int) -> None:
        run = self.run
        if name == "world_size":
            run.say("ranks", count(value), line)
        elif name == "train_batch_size":
            if "batch" not in run.said:
                run.say("batch", count(value), line)
        elif name in ("fp16_enabled", "bfloat16_enabled") and value.lower() == "true":
            if "weights_format" not in run.said:
                run.say("weights_format", number_type("float16" if name == "fp16_enabled" else "bfloat16"), line)
                run.say("bits", 16.0, line)
        elif name == "zero_optimization_stage" and re.fullmatch(r"[0-3]", value):
            run.set("zero_optimization.stage", int(value), line)
        elif name in ("gradient_accumulation_steps", "train_micro_batch_size_per_gpu"):
            run.set(name, count(value), line)

    def _speed(self, found: re.Match[str], line: int) -> None:
        running, now = number(found[1]), number(found[2])
        if running is not None:
            self.speeds.append((running, now is not None, line))
        if (size := gib(found[4])) is not None:
            self._highest("MaxMemAllocated", size, line)
        self.run.line = self.run.line or line

    def _breakdown(self, text: str, line: int) -> None:
        told = {PARTS.get(name, name): number(value) for name, value in PART.findall(text)}
        if told.get("fwd") is None and not any(name.startswith("optimizer_") for name in told):
            return
        for name, value in told.items():
            if value is not None and not name.endswith("_microstep"):
                self.parts[name].append(value / 1e3)
        self.parts_line = self.parts_line or line

    def _highest(self, what: str, size: int | None, line: int) -> None:
        if size is not None:
            before = self.most.get(what, (0, line))
            self.most[what] = (size, line) if size > before[0] else before

    def _estimate(self, found: re.Match[str], line: int) -> None:
        options = re.sub(r"[{}']", "", found[3].rstrip()).replace(" ,", ",")
        if "offload" not in options or len(options) > 150:
            return
        self.run.fact(f"estimate with {options}: host memory, bytes", gib(found[1]), line)
        self.run.fact(f"estimate with {options}: memory of a GPU, bytes", gib(found[2]), line)
        self.run.assumed["GB are 2^30 bytes, as DeepSpeed counts"] = None

    def _profile(self, found: re.Match[str], line: int) -> None:
        name, value, unit = found[1].strip().lower(), number(found[2]), found[3]
        if value is None:
            return
        if name.endswith("latency") and unit in SECONDS:
            self.profile.setdefault(name, (value * SECONDS[unit], line))
        elif name.startswith(("params", "world size", "data parallel", "model parallel", "batch size", "samples")):
            if unit in SIZES and (whole := round(value * SIZES[unit])) > 0:
                self.profile.setdefault(name, (whole, line))

    def finished(self) -> list[Run]:
        """What was read, as a list of one run, or of none."""
        run = self.run
        self.inference.finish(run)
        self._train()
        for what, (size, line) in self.most.items():
            if what == "MaxMemAllocated":
                run.put(Buffer("rank0", "all", size, line=line))
            else:
                run.fact(what, size, line)
        if self.most:
            run.assumed["GB are 2^30 bytes, as DeepSpeed counts"] = None
        return [run.run()] if run.says_something else []

    def _train(self) -> None:
        run = self.run
        batch = run.value("batch")
        if self.speeds:
            mean, is_mean, line = self.speeds[-1]
            run.fact("samples/s" + (", mean from the start" if is_mean else ""), mean, line)
            if batch is not None:
                run.time(Timing("train", batch / mean, steps=1, sequences=batch, samples=len(self.speeds),
                                test="SamplesPerSec", line=line))  # fmt: skip
            else:
                run.unknown["samples of a step (train_batch_size), so the time of one"] = None
        if self.parts.get("fwd"):
            kept = {name: values[1:] if len(values) > 1 else values for name, values in self.parts.items()}
            means = {name: sum(values) / len(values) for name, values in kept.items()}
            whole = sum(means.get(name, 0.0) for name in ("fwd", "bwd", "step"))
            run.time(Timing("train", whole, steps=1, sequences=batch, samples=len(kept["fwd"]),
                            test="wall_clock_breakdown", line=self.parts_line))  # fmt: skip
            for name, mean in sorted(means.items()):
                run.fact(f"mean time of {name}, s", mean, self.parts_line)
            run.assumed["the first step is left out of the means: it holds the start-up"] = None
        self._profiled()

    def _profiled(self) -> None:
        run, told = self.run, self.profile

        def of(*starts: str) -> tuple[float | None, int]:
            return next((value for name, value in told.items() if name.startswith(starts)), (None, 0))

        ranks, line = of("world size")
        if ranks is not None and "ranks" not in run.said:
            run.say("ranks", int(ranks), line)
        parallel, line = of("model parallel")
        run.say("tensor", None if parallel is None else int(parallel), line)
        copies, line = of("data parallel")
        run.say("replicas", None if copies is None else int(copies), line)
        parameters, line = of("params of model")
        if "parameters" not in run.said:
            run.say("parameters", parameters, line)
        each, line = of("batch size per")
        run.fact("samples of a step on a GPU", each, line)
        iteration, line = of("iter latency")
        if iteration is not None:
            together = each * copies if each is not None and copies is not None else None
            run.time(Timing("train", iteration, steps=1, sequences=together, test="FLOPS profiler, one step",
                            includes="the profiler's own time", line=line))  # fmt: skip
        for name in ("fwd latency", "bwd latency", "step latency"):
            seconds, line = of(name)
            run.fact(f"time of {name.removesuffix(' latency')}, profiled, s", seconds, line)
