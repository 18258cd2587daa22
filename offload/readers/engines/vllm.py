"""vLLM's log, engines V0 and V1, and its benchmark clients; SGLang's log, whose server and client are much alike.

Read: the line of the engine's start, arguments, bytes of weights, KV cache and activations, KV tokens, tokens/s every
few seconds, benchmark summaries. Where vLLM prints "GB" it has divided by 2^30 (its model_runner.py), and --swap-space
and --cpu-offload-gb are GiB for each GPU too. Devices are "rank0" and on, replica by replica, stage by stage.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from offload.readers.engines.gathered import (
    FLOAT_BITS,
    NUMBER,
    Gathered,
    count,
    gib,
    model_name,
    number,
    number_type,
    plain,
    runs_of,
    setting,
)
from offload.readers.engines.run import Buffer, Processor, Run, Timing
from offload.readers.engines.serving_benchmarks import Benchmarks
from offload.readers.engines.sglang import SIGN as SGLANG_SIGN
from offload.readers.engines.sglang import Sglang
from offload.readers.engines.windows import Window, take_windows
from offload.readers.tools.text import Line, Text

LOOKS_LIKE = "a vLLM or SGLang log"
SIGN = re.compile(
    r"Initializing an? (?:V1 )?LLM engine|vLLM API server version|Avg generation throughput: \d|"
    r"Maximum concurrency for [\d,]+ tokens per request|GPU KV cache size: [\d,]+ tokens|"
    r"Loading model weights took \d[\d.]* G|Model loading took \d[\d.]* G|Available KV cache memory: \d|"
    r"Serving Benchmark Result|Throughput: [\d.]+ requests/s, [\d.]+ (?:total )?tokens/s|"
    r"# (?:GPU|CUDA|cuda) blocks: \d|est\. speed input: [\d.]+ toks/s"
)
START = re.compile(r"Initializing an? (?:V1 )?LLM engine.{0,200}?config:")
ARGUMENTS = re.compile(r"\bargs: Namespace\(|non-default args: \{")
TAG = re.compile(r"\(((?:Engine|Worker|VllmWorker|RayWorker|ApiServer|APIServer|Ray)\w{0,60})([^()]{0,200})\)")
# What an engine's start line and arguments say, by their own key, in fields of Run.
COUNTS = {
    "tensor_parallel_size": "tensor", "pipeline_parallel_size": "pipeline", "data_parallel_size": "replicas",
    "max_seq_len": "window", "max_model_len": "window", "max_num_seqs": "batch", "max_num_batched_tokens": "chunk",
}  # fmt: skip
SETTINGS = (
    "cpu_offload_gb", "swap_space", "enforce_eager", "gpu_memory_utilization", "block_size", "enable_prefix_caching",
    "enable_chunked_prefill", "enable_expert_parallel", "device_config", "num_gpu_blocks_override", "num_spec_tokens",
    "num_speculative_tokens", "kv_cache_memory_bytes", "kv_offloading_size", "kv_connector", "load_format",
    "decode_context_parallel_size", "preemption_mode",
)  # fmt: skip
SPECULATIVE = re.compile(r"speculative_config'?\s*[=:]\s*(?:SpeculativeConfig\(|\{)([^)}]{0,2000})[)}]?")
WEIGHTS = re.compile(rf"(Loading model weights|Model loading) took {NUMBER} (GB|GiB)(?: memory)?(?: and {NUMBER} s)?")
BUDGET = re.compile(
    rf"model weights take {NUMBER}GiB; non_torch_memory takes (\d[\d.]*)GiB; PyTorch activation peak memory takes "
    rf"{NUMBER}GiB; the rest of the memory reserved for KV Cache is {NUMBER}GiB"
)
CARD = re.compile(rf"total_gpu_memory \({NUMBER}GiB\) x gpu_memory_utilization \({NUMBER}\)")
FREE = re.compile(rf"Free memory on device[^(]{{0,60}}\({NUMBER}/{NUMBER} GiB\) on startup")
USAGE = re.compile(rf"Actual usage is {NUMBER} GiB for weights?, {NUMBER} GiB for peak activation")
KV_BYTES = re.compile(rf"Available KV cache memory: {NUMBER} GiB")
KV_TOKENS = re.compile(r"GPU KV cache size: ([\d,]+) tokens")
BLOCKS = re.compile(r"# (\w+) blocks: (\d+)(?:, # CPU blocks: (\d+))?")
CONCURRENCY = re.compile(rf"Maximum concurrency for ([\d,]+) tokens per request: {NUMBER}x")
GRAPHS = re.compile(rf"Graph capturing finished in {NUMBER} secs?(?:, took {NUMBER} GiB)?")
OFFLOADED = re.compile(rf"Total CPU offloaded parameters: {NUMBER}")
CHUNK = re.compile(r"Chunked prefill is enabled with max_num_batched_tokens=(\d+)")
ARCHITECTURE = re.compile(r"Resolved architectures?: (\w+)")
PREEMPTED = re.compile(r"is preempted by PreemptionMode\.(\w+)")
RATES = re.compile(
    r"Avg prompt throughput: ([\d.]+) tokens/s, Avg generation throughput: ([\d.]+) tokens/s, Running: (\d+) reqs"
)
KV_USED = re.compile(r"GPU KV cache usage: ([\d.]+)%")
SERVER = re.compile(r"Engine (\d+): Avg prompt")
ACCEPTED = re.compile(rf"Mean acceptance length: {NUMBER}")
TIMES = (
    (re.compile(rf"Loading weights took {NUMBER} seconds"), "time of reading the weights, s"),
    (re.compile(rf"Memory profiling takes {NUMBER} seconds"), "time of memory profiling, s"),
    (re.compile(rf"init engine \([^)]{{0,100}}\) took {NUMBER} seconds"), "time of profiling, KV cache and warm-up, s"),
)
BLOCK_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def is_it(text: Text) -> bool:
    """Whether a line of vLLM, of SGLang or of their benchmark clients stands in the text."""
    return SIGN.search(text.whole) is not None or SGLANG_SIGN.search(text.whole) is not None


def read(text: Text) -> tuple[Run, ...]:
    """The runs of a log: each start of an engine begins one. Raises ReadingError where no line can be used."""
    return runs_of(text, Reader, LOOKS_LIKE)


@dataclass(slots=True)
class Reader:
    """Reads the lines of one run."""

    run: Gathered = field(default_factory=lambda: Gathered("vllm"))
    benchmarks: Benchmarks = field(default_factory=Benchmarks)
    sglang: Sglang = field(default_factory=Sglang)
    started: set[str] = field(default_factory=set)  # tags of the engines that printed their start
    workers: dict[str, str] = field(default_factory=dict)  # device by process, where no rank is told
    kv_tokens: dict[str, tuple[int, int]] = field(default_factory=dict)  # by replica: tokens, line
    blocks: tuple[int, int, int] | None = None  # on the GPU, on the CPU, line
    concurrency: tuple[int, float, int] | None = None  # tokens a request, times, line
    windows: list[tuple[Window, float]] = field(default_factory=list)  # with the share of KV memory in use
    loaded: list[Timing] = field(default_factory=list)
    v1: bool = False
    preempted: int = 0
    preempted_at: int = 0

    def begins_another(self, line: Line) -> bool:
        """Whether a line starts an engine after this one had started: not where it is one more replica."""
        if ARGUMENTS.search(line.text) or "vLLM API server version" in line.text or self.sglang.begins(line):
            return bool(self.started) or self.sglang.started
        if START.search(line.text):
            tag = _replica(line.text)
            return tag in self.started or (bool(self.started) and (self.run.value("replicas") or 1) <= 1)
        return False

    def take(self, line: Line) -> None:
        """Read one line."""
        text = line.text
        if self.benchmarks.take(self.run, line) or self.sglang.take(self.run, line):
            return
        if found := START.search(text):
            self.started.add(_replica(text))
            self.v1 = "V1 LLM engine" in found[0]
            self._settings(text[found.end() :], line.number)
        elif found := ARGUMENTS.search(text):
            self._settings(text[found.end() :], line.number)
        elif rates := RATES.search(text):
            self._window(rates, line)
        else:
            self._memory(line)

    def _settings(self, text: str, line: int) -> None:
        """Settings of a start line or of arguments: what both say is taken once, from the arguments if they differ."""
        run = self.run
        speculative = SPECULATIVE.search(text)
        inside = speculative[1] if speculative else ""
        if speculative:
            for key in ("method", "num_spec_tokens", "num_speculative_tokens"):
                value = setting(inside, key)
                run.set(f"speculative {key}", None if value is None else plain(value), line)
            run.set("speculative model", model_name(setting(inside, "model")), line)
            text = text[: speculative.start()] + text[speculative.end() :]
        if "model" not in run.said:
            run.say("model", model_name(setting(text, "model") or setting(text, "model_tag")), line)
        for key, name in COUNTS.items():
            if name not in run.said:
                run.say(name, count(setting(text, key)), line)
        dtype, scheme = number_type(setting(text, "dtype")), number_type(setting(text, "quantization"))
        if "weights_format" not in run.said or run.said["weights_format"].value in FLOAT_BITS:
            format_, bits = scheme or dtype, None if scheme else FLOAT_BITS.get(dtype or "")
            if format_ is not None:
                run.said.pop("weights_format", None)
                run.said.pop("bits", None)
                run.say("weights_format", format_, line)
                run.say("bits", None if bits is None else float(bits), line)
        kv = number_type(setting(text, "kv_cache_dtype"))
        if kv is None and dtype is not None and setting(text, "kv_cache_dtype") == "auto":
            kv = dtype
            run.assumed[f"kv_cache_dtype auto is the model's type, {dtype}"] = None
        if "kv_format" not in run.said:
            run.say("kv_format", kv, line)
        for key in SETTINGS:
            value = setting(text, key)
            run.set(key, None if value is None else plain(value), line)
        if setting(text, "cpu_offload_gb") is not None or setting(text, "swap_space") is not None:
            run.assumed["cpu_offload_gb and swap_space are GiB (2^30 bytes) for each GPU"] = None

    def _window(self, rates: re.Match[str], line: Line) -> None:
        prompt, made = number(rates[1]) or 0.0, number(rates[2]) or 0.0
        used, server = KV_USED.search(line.text), SERVER.search(line.text)
        share = (number(used[1]) or 0.0) / 100 if used else 0.0
        place = server[1] if server else _replica(line.text)
        self.windows.append((Window(line.number, prompt, made, int(rates[3][:9]), place), share))
        self.run.line = self.run.line or line.number

    def _memory(self, line: Line) -> None:
        text, at, run = line.text, line.number, self.run
        if found := WEIGHTS.search(text):
            self._put(text, "weights", "", found[2], at)
            if found[3] == "GB":
                run.assumed["GB of loaded weights are 2^30 bytes, as vLLM counts"] = None
            if (seconds := number(found[4])) is not None:
                self.loaded.append(Timing("load", seconds, test="model loading", line=at))
        elif found := BUDGET.search(text):
            for printed, holds, kind in ((found[1], "weights", ""), (found[3], "compute", "activations"),
                                         (found[4], "kv", "")):  # fmt: skip
                self._put(text, holds, kind, printed, at)
            run.fact("memory outside PyTorch, bytes", gib(found[2]), at)
        elif found := CARD.search(text):
            self._card(text, gib(found[1]), None, at)
            run.set("gpu_memory_utilization", found[2], at)
        elif (found := FREE.search(text)) or USAGE.search(text):
            if found:
                self._card(text, gib(found[2]), gib(found[1]), at)
            if used := USAGE.search(text):
                self._put(text, "weights", "", used[1], at)
                self._put(text, "compute", "activations", used[2], at)
        elif found := KV_BYTES.search(text):
            self._put(text, "kv", "", found[1], at)
        elif found := KV_TOKENS.search(text):
            tokens, replica = count(found[1]), _replica(text)
            if tokens is not None:
                self.kv_tokens[replica] = min(self.kv_tokens.get(replica, (tokens, at)), (tokens, at))
                run.line = run.line or at
        elif (found := BLOCKS.search(text)) and (blocks := count(found[2])):
            told = (blocks, count(found[3]) or 0, at)
            self.blocks = min(self.blocks or told, told)
            run.fact("KV blocks on the device", blocks, at)
            run.fact("KV blocks in host memory", count(found[3]), at)
        elif found := CONCURRENCY.search(text):
            tokens, times = count(found[1]), number(found[2])
            if tokens is not None and times is not None:
                self.concurrency = self.concurrency or (tokens, times, at)
                run.fact(f"requests of {tokens} tokens that fit at once", times, at)
        else:
            self._others(text, at)

    def _others(self, text: str, at: int) -> None:
        run = self.run
        if found := OFFLOADED.search(text):
            if (size := gib(found[1])) is not None:
                run.put(Buffer("CPU", "weights", size, line=at), self._device(text))
                run.assumed["offloaded parameters without a unit are GiB (2^30 bytes), as vLLM prints them"] = None
        elif found := GRAPHS.search(text):
            run.fact("time of capturing graphs, s", number(found[1]), at)
            self._put(text, "compute", "graphs", found[2], at)
        elif found := CHUNK.search(text):
            if "chunk" not in run.said:
                run.say("chunk", count(found[1]), at)
        elif found := ARCHITECTURE.search(text):
            if "architecture" not in run.said:
                run.say("architecture", found[1], at)
        elif found := PREEMPTED.search(text):
            self.preempted, self.preempted_at = self.preempted + 1, self.preempted_at or at
        elif found := ACCEPTED.search(text):
            run.fact("mean tokens accepted in a step of speculation", number(found[1]), at)
        else:
            for pattern, what in TIMES:
                if found := pattern.search(text):
                    run.fact(what, number(found[1]), at)

    def _put(self, text: str, holds: str, kind: str, printed: str | None, line: int) -> None:
        if (size := gib(printed)) is not None:
            self.run.put(Buffer(self._device(text), holds, size, line=line), kind)  # type: ignore[arg-type]

    def _card(self, text: str, memory: int | None, free: int | None, line: int) -> None:
        device = self._device(text)
        if memory is not None:
            self.run.processors.setdefault(device, Processor(device, memory=memory, free=free, line=line))
            self.run.line = self.run.line or line

    def _device(self, text: str) -> str:
        """The rank that prints a line: as it says, or by its process in the order of appearance, the first rank0."""
        tensor, pipeline = self.run.value("tensor") or 1, self.run.value("pipeline") or 1
        told = " ".join(match[0] for match in TAG.finditer(text))
        if rank := re.search(r"\brank=?\s?(\d{1,6})", told):
            return f"rank{int(rank[1])}"
        at = {kind: int(found[1]) for kind in ("DP", "PP", "TP")
              if (found := re.search(rf"(?<![A-Z]){kind}(\d{{1,6}})", told))}  # fmt: skip
        if at and (len(at) > 1 or "TP" in at or tensor * pipeline == 1):
            return f"rank{(at.get('DP', 0) * pipeline + at.get('PP', 0)) * tensor + at.get('TP', 0)}"
        process = re.search(r"Worker\w{0,60}[^()]{0,100}\bpid=(\d{1,12})", told)
        if process is None or tensor * pipeline == 1:
            return "rank0"
        # V0's first rank is the engine's own process and has no tag; V1 has a process for each.
        first = 0 if self.v1 or told.startswith("(Worker") else 1
        return self.workers.setdefault(process[1], f"rank{len(self.workers) + first}")

    def finished(self) -> list[Run]:
        """What was read, as a list of one run, or of none."""
        run = self.run
        self.benchmarks.close(run)
        self._sizes()
        if self.loaded:
            run.timings.insert(0, max(self.loaded, key=lambda one: one.seconds))
        if self.preempted:
            run.fact("times that a request was preempted for want of KV memory", self.preempted, self.preempted_at)
        tokens = run.value("kv_tokens")
        replicas = max(1, len(self.kv_tokens))
        speculative = any(key.startswith("speculative") for key in run.settings)
        take_windows(run, [
            Window(one.line, one.prompt, one.made, one.running, one.server,
                   share * tokens / replicas if tokens and share else None, None if speculative else 1.0)
            for one, share in self.windows])  # fmt: skip
        self.sglang.finish(run)
        if not run.says_something:
            return []
        self._gaps()
        return [run.run()]

    def _sizes(self) -> None:
        """Tokens that all KV memory holds, from what the log gives: tokens, else blocks, else the concurrency line."""
        run = self.run
        if self.kv_tokens:
            total = sum(tokens for tokens, _ in self.kv_tokens.values())
            run.say("kv_tokens", total, next(iter(self.kv_tokens.values()))[1])
            return
        size = run.settings.get("block_size", (None, 0))[0]
        block = size if isinstance(size, int) and not isinstance(size, bool) and size > 0 else None
        if self.blocks is not None:
            blocks, _, line = self.blocks
            if block is None and self.concurrency is not None:
                guess = self.concurrency[0] * self.concurrency[1] / blocks
                block = next((one for one in BLOCK_SIZES if abs(guess / one - 1) < 0.02), None)
                if block is not None:
                    run.assumed[f"a KV block holds {block} tokens: the concurrency line says so"] = None
            if block is not None:
                run.say("kv_tokens", blocks * block, line)
            else:
                run.unknown["tokens of a KV block, so how many the KV cache holds"] = None
        elif self.concurrency is not None:
            tokens, times, line = self.concurrency
            run.say("kv_tokens", int(tokens * times), line)
            run.assumed["KV tokens: tokens of a request x requests that fit, of two decimals"] = None
        if self.concurrency is not None and "window" not in run.said:
            run.say("window", self.concurrency[0], self.concurrency[2])

    def _gaps(self) -> None:
        run = self.run
        ranks = (run.value("tensor") or 1) * (run.value("pipeline") or 1) * (run.value("replicas") or 1)
        told = {device for device, holds, _ in run.buffers if holds == "weights" and device != "CPU"}
        if run.engine == "vllm" and ranks > 1:
            run.said.pop("ranks", None)
            run.say("ranks", ranks, run.said["tensor" if "tensor" in run.said else "replicas"].line)
            if told and len(told) < ranks:
                run.unknown[f"weights on {ranks - len(told)} of {ranks} ranks: not every rank prints them"] = None
        gb = run.settings.get("cpu_offload_gb", (0, 0))[0]
        if (number(str(gb)) or 0) > 0 and not any(device == "CPU" for device, _, _ in run.buffers):
            run.unknown["how much of the weights is in host memory: cpu_offload_gb is the most of each GPU"] = None
        if run.timings and "model" not in run.said:
            run.unknown["the model: its name is not in the log"] = None


def _replica(text: str) -> str:
    """Which replica's engine prints a line: "DP1", or "" where it is not told."""
    tag = re.search(r"\((?:EngineCore|Worker|VllmWorker)[^()]{0,60}?DP(\d{1,6})", text)
    return "" if tag is None else f"DP{int(tag[1])}"
