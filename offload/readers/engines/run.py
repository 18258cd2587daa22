"""What an engine's log says of one run: its model, where the parts were put, on which devices, and how long it took.

Units inside: bytes, seconds; every value with the line that says it. What a log does not say is None or absent, never a
number. Devices keep the engine's own names ("CUDA0", "CPU", "rank0"). Nothing personal is kept: no host names, paths,
users, serial numbers, addresses, prompts or answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

Value = TypeVar("Value")
Holds = Literal["weights", "kv", "compute", "output", "optimizer", "gradients", "all"]
Timed = Literal["load", "prefill", "decode", "train", "request"]


@dataclass(frozen=True, slots=True)
class Said(Generic[Value]):
    """A value and the line, from 1, that says it."""

    value: Value
    line: int = 0


@dataclass(frozen=True, slots=True)
class Processor:
    """A device as the engine names it: its model, its memory [bytes], and what of it was free [bytes]."""

    name: str
    model: str = ""
    memory: int | None = None
    free: int | None = None
    line: int = 0


@dataclass(frozen=True, slots=True)
class Buffer:
    """Bytes that the engine put on a device: "CUDA0", "CPU", "CUDA_Host" (pinned host memory), "CPU_Mapped" (mmap).

    layers : how many layers of the model it holds, where the log says so.
    """

    device: str
    holds: Holds
    size: int
    layers: int | None = None
    line: int = 0


@dataclass(frozen=True, slots=True)
class Timing:
    """A measured time [s] of one phase, and what was done in it.

    tokens : all tokens of all sequences that were processed (prefill, train) or made (decode); steps : how often the
    model ran (decode of one sequence: a step a token); sequences : how many ran together; context : positions held
    before the first step; prompt : of a request, its prompt's tokens. samples : of how many repetitions it is the
    mean, spread : their standard deviation [s]. test : the engine's own name of it, as "pp512", "tg128 @ d4096".
    includes : what the time holds besides ("sampling", "the prompt's tokens").
    """

    phase: Timed
    seconds: float
    tokens: float | None = None
    steps: float | None = None
    sequences: float | None = None
    context: int | None = None
    prompt: int | None = None
    samples: int | None = None
    spread: float | None = None
    test: str = ""
    includes: str = ""
    line: int = 0

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens/s of all sequences together, where the tokens are told."""
        return None if self.tokens is None else self.tokens / self.seconds


@dataclass(frozen=True, slots=True)
class Run:
    """All that a log says of one run; a log with several runs (a table of a benchmark) gives several.

    model : the name as the log has it; architecture : as "llama", "qwen3moe". parameters : how many weights. size :
    bytes of the weights; bits : per weight; weights_format, kv_format : as the log says them ("Q4_K - Medium", "f16",
    "fp8_e5m2"). layers, layers_on_gpus : blocks, and how many of them (and of the output layer) are on GPUs.
    experts, experts_used : of each layer, and for each token. window : the context that was made room for; kv_tokens :
    tokens that all KV memory holds; batch : sequences at once (the most); chunk : tokens of a prompt at a time.
    tensor, pipeline, replicas, ranks : how the model is cut over devices. threads : of the CPU. settings : what else
    changes what moves, by the engine's own key, as {"no_kv_offload": True, "cpu_moe": 24, "override-tensor": "..."}.
    timings : what was measured. facts : other plain sayings [(what, value, line)]; unknown : what the log leaves open;
    odd : what contradicts in it; assumed : what the reader took for granted.
    """

    engine: str
    line: int = 0
    model: Said[str] | None = None
    architecture: Said[str] | None = None
    parameters: Said[float] | None = None
    size: Said[int] | None = None
    bits: Said[float] | None = None
    weights_format: Said[str] | None = None
    kv_format: Said[str] | None = None
    layers: Said[int] | None = None
    layers_on_gpus: Said[int] | None = None
    experts: Said[int] | None = None
    experts_used: Said[int] | None = None
    window: Said[int] | None = None
    kv_tokens: Said[int] | None = None
    batch: Said[int] | None = None
    chunk: Said[int] | None = None
    tensor: Said[int] | None = None
    pipeline: Said[int] | None = None
    replicas: Said[int] | None = None
    ranks: Said[int] | None = None
    threads: Said[int] | None = None
    processors: tuple[Processor, ...] = ()
    buffers: tuple[Buffer, ...] = ()
    timings: tuple[Timing, ...] = ()
    settings: tuple[tuple[str, str | int | bool, int], ...] = ()
    facts: tuple[tuple[str, str | int | float | bool, int], ...] = ()
    unknown: tuple[str, ...] = ()
    odd: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    file: str = ""

    def on(self, holds: str) -> dict[str, int]:
        """Bytes of one kind of content by device."""
        found: dict[str, int] = {}
        for buffer in self.buffers:
            if buffer.holds == holds:
                found[buffer.device] = found.get(buffer.device, 0) + buffer.size
        return found
