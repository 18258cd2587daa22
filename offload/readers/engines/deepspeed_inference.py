"""Summaries of inference with weights away from the GPU: ZeRO-Inference's run_model.py, FlexGen, the BLOOM scripts.

run_model.py and FlexGen print model and cache sizes that they compute from the model's shape, in "GB" of 2^30 bytes.
Decode made gen-len - 1 tokens of each sequence: the prompt's pass made the first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from offload.readers.engines.gathered import NUMBER, Commands, Gathered, count, gib, model_name, number, plain
from offload.readers.engines.run import Buffer, Timing
from offload.readers.tools.text import Line

SIGN = re.compile(
    r"prefill latency: [\d.]+ s\s+prefill throughput:|model size: [\d.]+ GB\s+cache size:|"
    r"Tokenize and generate \d+ \(bs=\d+\) tokens"
)
COMMAND = re.compile(r"(?:run_model\.py|flexgen\.flex_opt|flex_opt\.py)\s")
SUMMARY = re.compile(rf"(model size|cache size|hidden size \(p\)|peak gpu mem): {NUMBER} GB")
TIMES = re.compile(
    rf"(prefill|decode|total) latency: {NUMBER} s\s+(?:prefill|decode|total) throughput: {NUMBER} token/s"
)
SHAPE = re.compile(
    r"benchmark, prompt_len = (\d+), execute_gen_len = (\d+), input_ids\.shape = torch\.Size\(\[(\d+), (\d+)\]\)"
)
NAMED = re.compile(
    r"\bds-([\w.-]{1,80}?)-bs(\d+)-prompt(\d+)-gen(\d+)-n(\d+)x(\d+)-(cpu|disk|gpu)(-kv_offload)?(-w_quant)?\b"
)
BLOOM = re.compile(rf"Tokenize and generate (\d+) \(bs=(\d+)\) tokens: {NUMBER} secs")
READY = re.compile(rf"Start to ready to generate: {NUMBER} secs")
OPTIONS = {
    "cpu_offload": "cpu_offload", "disk_offload": "disk_offload", "kv_offload": "kv_offload",
    "quant_bits": "quant_bits", "quant_group_size": "quant_group_size", "pin_memory": "pin_memory",
    "pin_kv_cache": "pin_kv_cache", "async_kv_offload": "async_kv_offload", "num_gpus": "num_gpus",
    "num_gpu_batches": "num_gpu_batches", "compress_weight": "compress_weight", "compress_cache": "compress_cache",
    "cpu_cache_compute": "cpu_cache_compute", "overlap": "overlap", "percent": "percent",
}  # fmt: skip


@dataclass(slots=True)
class Inference:
    """Reads the lines of such a summary in a run. done : a summary is complete."""

    commands: Commands = field(default_factory=lambda: Commands(COMMAND.pattern))
    done: bool = False
    flexgen: bool = False
    shape: dict[str, int] = field(default_factory=dict)  # prompt, made, batch
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    times: dict[str, tuple[float, float, int]] = field(default_factory=dict)  # s, tokens/s, line

    @property
    def open_command(self) -> bool:
        """Whether a command line goes on in the next line."""
        return bool(self.commands.parts)

    def begins(self, line: Line) -> bool:
        """Whether a line starts another summary after one that is complete."""
        if not self.done:
            return False
        return any(sign.search(line.text) for sign in (SHAPE, NAMED)) or "model size:" in line.text

    def take(self, run: Gathered, line: Line) -> bool:
        """Whether the line was of such a summary; what it says goes to the run."""
        text, at = line.text, line.number
        if (found := self.commands.take(text, at)) is not None:
            self.flexgen = self.flexgen or "flex" in text
            self._command(run, *found)
            return True
        if self.open_command:
            self.flexgen = self.flexgen or "flex" in text
            return True
        if named := NAMED.search(text):
            self._named(run, named, at)
            return True
        if shape := SHAPE.search(text):
            for key, printed in (("prompt", shape[1]), ("made", shape[2]), ("batch of a rank", shape[3])):
                if (value := count(printed)) is not None:
                    self.shape[key] = value
            return True
        if BLOOM.search(text) or READY.search(text):
            self._bloom(run, text, at)
            return True
        taken = False
        for name, printed in SUMMARY.findall(text):
            if (size := gib(printed)) is not None:
                self.sizes.setdefault(name, (size, at))
            taken = True
        self.flexgen = self.flexgen or "projected:" in text
        for phase, printed, rate in TIMES.findall(text):
            seconds, per_second = number(printed), number(rate)
            if seconds is not None and per_second is not None:
                self.times.setdefault(phase, (seconds, per_second, at))
            self.done = self.done or phase == "total"
            taken = True
        return taken

    def _command(self, run: Gathered, options: dict[str, str], line: int) -> None:
        run.say("model", model_name(options.get("model")), line)
        for key, names in (("batch", ("batch_size",)), ("prompt", ("prompt_len",)), ("made", ("gen_len",))):
            for name in names:
                if (value := count(options.get(name))) is not None:
                    self.shape[key] = value
        each, several = count(options.get("gpu_batch_size")), count(options.get("num_gpu_batches")) or 1
        if each is not None:
            self.shape["batch"] = each * several
        for option, key in OPTIONS.items():
            said = options.get(option)
            run.set(key, None if said is None else plain(said) if len(said) < 20 else None, line)
        run.say("ranks", count(options.get("num_gpus")), line)

    def _named(self, run: Gathered, named: re.Match[str], line: int) -> None:
        """The name of run_model.py's own log, which says its settings."""
        if "model" not in run.said:
            run.say("model", model_name(named[1]), line)
        for key, printed in (("batch", named[2]), ("prompt", named[3]), ("made", named[4])):
            if (value := count(printed)) is not None:
                self.shape.setdefault(key, value)
        nodes, gpus = count(named[5]), count(named[6])
        if nodes and gpus and "ranks" not in run.said:
            run.say("ranks", nodes * gpus, line)
        run.set(f"{named[7]}_offload", True if named[7] != "gpu" else None, line)
        run.set("kv_offload", True if named[8] else None, line)
        run.set("quantized weights", True if named[9] else None, line)

    def _bloom(self, run: Gathered, text: str, line: int) -> None:
        if found := BLOOM.search(text):
            tokens, batch, seconds = count(found[1]), count(found[2]), number(found[3])
            if tokens is not None and seconds is not None:
                run.time(Timing("request", seconds, tokens, sequences=batch, test="BLOOM inference script",
                                includes="the prompts' tokens", line=line))  # fmt: skip
        elif found := READY.search(text):
            seconds = number(found[1])
            if seconds is not None:
                run.time(Timing("load", seconds, test="start to ready", line=line))

    def finish(self, run: Gathered) -> None:
        """Give the run what the summary says."""
        if not self.sizes and not self.times:
            if self.shape and run.says_something:
                self._shape_facts(run)
            return
        if self.flexgen:
            run.engine = "flexgen"
        prompt, made = self.shape.get("prompt"), self.shape.get("made")
        batch = self.shape.get("batch")
        if batch is None and run.value("ranks") is not None and "batch of a rank" in self.shape:
            batch = self.shape["batch of a rank"] * run.value("ranks")
        self._sizes(run)
        if "prefill" in self.times:
            seconds, rate, line = self.times["prefill"]
            tokens = batch * prompt if batch and prompt else round(seconds * rate) or None
            run.time(Timing("prefill", seconds, tokens, sequences=batch, prompt=prompt, test="summary", line=line))
        if "decode" in self.times:
            seconds, rate, line = self.times["decode"]
            steps = made - 1 if made and made > 1 else None
            tokens = batch * steps if batch and steps else round(seconds * rate) or None
            run.time(Timing("decode", seconds, tokens, steps, batch, prompt, test="summary", line=line))
        if "total" in self.times:
            seconds, rate, line = self.times["total"]
            tokens = batch * made if batch and made else round(seconds * rate) or None
            run.time(Timing("request", seconds, tokens, sequences=batch, prompt=prompt, test="summary",
                            includes="the prompts' tokens", line=line))  # fmt: skip
        if self.times and batch is None:
            run.unknown["sequences at once: the summary does not print the batch"] = None
            run.assumed["tokens: the summary's tokens/s x its times, rounded"] = None
        if self.times and (made is None or prompt is None):
            run.unknown["lengths of prompts and answers: the summary does not print them"] = None

    def _shape_facts(self, run: Gathered) -> None:
        for key, value in self.shape.items():
            run.fact(f"benchmark {key}", value, run.line)

    def _sizes(self, run: Gathered) -> None:
        percent = self._percent(run)
        if self.sizes:
            run.assumed["GB are 2^30 bytes, as run_model.py and FlexGen count"] = None
        size, line = self.sizes.get("model size", (None, 0))
        run.say("size", size, line)
        if size is not None:
            run.assumed["model and cache sizes are computed by the script from the model's shape, in float16"] = None
            where = next((device for key, device in (("disk_offload", "disk"), ("cpu_offload", "CPU"))
                          if run.settings.get(key, (False, 0))[0] is True), None)  # fmt: skip
            quantized = run.settings.get("quant_bits", (16, 0))[0] != 16 or "quantized weights" in run.settings
            if percent:
                self._shares(run, "weights", size, percent[0], percent[1], line)
            elif quantized:
                run.unknown["bytes of the quantized weights: the size that is printed is of float16"] = None
            elif where is not None:
                run.put(Buffer(where, "weights", size, line=line))
            else:
                run.unknown["where the weights are: the summary does not say"] = None
        cache, line = self.sizes.get("cache size", (None, 0))
        if percent and cache is not None:
            self._shares(run, "kv", cache, percent[2], percent[3], line)
        elif run.settings.get("kv_offload", (False, 0))[0] is True and cache is not None:
            run.put(Buffer("CPU", "kv", cache, line=line))
        else:
            run.fact("KV cache of all sequences, bytes", cache, line)
        hidden, line = self.sizes.get("hidden size (p)", (None, 0))
        run.fact("hidden states of all sequences, bytes", hidden, line)
        peak, line = self.sizes.get("peak gpu mem", (None, 0))
        if peak is not None:
            run.put(Buffer("rank0", "all", peak, line=line))

    def _percent(self, run: Gathered) -> tuple[int, ...]:
        """FlexGen's --percent, if told: of weights, cache and activations what is on the GPU and in host memory."""
        told = tuple(int(one) for one in re.findall(r"\d{1,3}", str(run.settings.get("percent", ("", 0))[0])))
        pairs = zip(told[::2], told[1::2], strict=False)
        return told if len(told) == 6 and all(gpu + host <= 100 for gpu, host in pairs) else ()

    def _shares(self, run: Gathered, holds: str, size: int, gpu: int, host: int, line: int) -> None:
        for device, share in (("rank0", gpu), ("CPU", host), ("disk", 100 - gpu - host)):
            if (part := round(size * share / 100)) > 0:
                run.put(Buffer(device, holds, part, line=line))  # type: ignore[arg-type]
