"""SGLang's log: its arguments, what it loads, its KV cache, and the lines of its decode and prefill batches.

SGLang prints "GB" of 2^30 bytes. A decode line comes every 40 steps, so one that follows another of as many requests,
with no prefill between, is decoding alone.
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
    setting,
)
from offload.readers.engines.run import Buffer
from offload.readers.engines.windows import Window, take_windows
from offload.readers.tools.text import Line

SIGN = re.compile(
    r"(?:Decode|Prefill) batch[.,] #|server_args=ServerArgs\(|KV Cache is allocated\. .{0,300}#tokens: \d|"
    r"Load weight end\."
)
ARGUMENTS = re.compile(r"server_args=ServerArgs\(")
RANK = re.compile(r"\b(?:DP(\d{1,6}) )?(?:PP(\d{1,6}) )?TP(\d{1,6})\b")
WEIGHTS = re.compile(rf"Load weight end\..{{0,500}}?mem usage={NUMBER} GB")
KV = re.compile(
    rf"KV Cache is allocated\..{{0,300}}?#tokens: (\d+)(?:, K size: {NUMBER} GB, V size: {NUMBER} GB)?"
)
DECODE = re.compile(rf"Decode batch[.,] #running-req: (\d+).{{0,600}}?gen throughput \(token/s\): {NUMBER}")
HELD = re.compile(r"#(?:full )?token: (\d+)")
ACCEPTED = re.compile(rf"accept len: {NUMBER}")
PREFILL = re.compile(r"Prefill batch[.,] #new-seq: \d+")
COUNTS = {
    "tp_size": "tensor", "pp_size": "pipeline", "dp_size": "replicas", "context_length": "window",
    "max_running_requests": "batch", "chunked_prefill_size": "chunk",
}  # fmt: skip
SETTINGS = (
    "cpu_offload_gb", "mem_fraction_static", "disable_radix_cache", "speculative_algorithm", "speculative_num_steps",
    "speculative_num_draft_tokens", "enable_hierarchical_cache", "hicache_ratio", "ep_size", "kt_cpuinfer",
    "kt_num_gpu_experts", "kt_threadpool_count", "kt_method", "kt_max_deferred_experts_per_token",
)  # fmt: skip


@dataclass(slots=True)
class Sglang:
    """Reads the lines of SGLang in a run. started : its arguments were read."""

    started: bool = False
    windows: list[Window] = field(default_factory=list)

    def begins(self, line: Line) -> bool:
        """Whether a line starts a server."""
        return ARGUMENTS.search(line.text) is not None

    def take(self, run: Gathered, line: Line) -> bool:
        """Whether the line was SGLang's; what it says goes to the run."""
        text, at = line.text, line.number
        if found := ARGUMENTS.search(text):
            self.started = True
            self._arguments(run, text[found.end() :], at)
        elif found := DECODE.search(text):
            held, accepted = HELD.search(text), ACCEPTED.search(text)
            self.windows.append(Window(
                at, 0.0, number(found[2]) or 0.0, int(found[1][:9]), _rank(text),
                None if held is None else number(held[1]), number(accepted[1]) if accepted else 1.0))  # fmt: skip
            run.line = run.line or at
        elif PREFILL.search(text):
            self.windows.append(Window(at, 0.0, 0.0, 0, _rank(text), decoding=False))
        elif found := WEIGHTS.search(text):
            if (size := gib(found[1])) is not None:
                run.put(Buffer(_rank(text), "weights", size, line=at))
            if "weights_format" not in run.said and (dtype := number_type(setting(text, "dtype"))) is not None:
                run.say("weights_format", dtype, at)
                run.say("bits", float(FLOAT_BITS[dtype]) if dtype in FLOAT_BITS else None, at)
        elif found := KV.search(text):
            if "kv_tokens" not in run.said:
                run.say("kv_tokens", count(found[1]), at)
            keys, values = gib(found[2]), gib(found[3])
            if keys and values:
                run.put(Buffer(_rank(text), "kv", keys + values, line=at))
        else:
            return False
        run.engine = "sglang"
        run.assumed["GB are 2^30 bytes, as SGLang counts"] = None
        return True

    def _arguments(self, run: Gathered, text: str, line: int) -> None:
        run.say("model", model_name(setting(text, "model_path")), line)
        for key, name in COUNTS.items():
            if name not in run.said:
                run.say(name, count(setting(text, key)), line)
        scheme = number_type(setting(text, "quantization")) or number_type(setting(text, "dtype"))
        run.say("weights_format", scheme, line)
        run.say("kv_format", number_type(setting(text, "kv_cache_dtype")), line)
        run.say("threads", count(setting(text, "kt_cpuinfer")), line)
        for key in SETTINGS:
            value = setting(text, key)
            run.set(key, None if value is None else plain(value), line)

    def finish(self, run: Gathered) -> None:
        """Give the run what its decode lines say, of the rank that prints most of them."""
        ranks = [window.server for window in self.windows]
        if ranks:
            one = max(sorted(set(ranks)), key=ranks.count)
            take_windows(run, [window for window in self.windows if window.server == one])


def _rank(text: str) -> str:
    found = RANK.search(text[: text.find("batch") if "batch" in text else len(text)])
    return "rank0" if found is None else f"rank{int(found[3])}"
