"""What ktransformers prints: the modules it puts in, where it loads tensors, and the times of prompts and answers.

Its eval count holds the token that the prompt's pass made, which the eval duration does not: the steps are one fewer.
"loading X with CPU" names who unpacks a tensor, not where it stays. Bytes are not printed. Newer versions are served
by SGLang, whose log is read with vLLM's.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from offload.readers.engines.gathered import NUMBER, Commands, Gathered, count, model_name, number, plain, runs_of
from offload.readers.engines.run import Run, Timing
from offload.readers.tools.text import Line, Text

LOOKS_LIKE = "a ktransformers log"
SIGN = re.compile(
    r"Injecting [\w.]+ as ktransformers\.|Performance\(T/s\): prefill|using default_optimize_rule for|"
    r"loading (?:blk|model\.layers)\.\d+\.[\w.]+ to c|^.{0,120}?eval rate: +\d+\.\d{3,} tokens/s",
    re.MULTILINE,
)
COMMAND = r"ktransformers(?:\.local_chat|/local_chat\.py|/server/main\.py|\s+--)"
INJECTED = re.compile(r"Injecting ([\w.]+) as (default|[\w.]+ ?\. ?\w+)")
LAYER = re.compile(r"(?:model\.layers|blk)\.(\d{1,4})\.?")
LOADED = re.compile(r"loading ([\w.]+) to (cuda(?::\d{1,3})?|cpu)\b")
RULE = re.compile(r"using default_optimize_rule for (\w+)")
CHAT = re.compile(rf"\b(prompt )?eval (count|duration|rate): +{NUMBER} ?(token|s\b)")
SERVED = re.compile(
    rf"Performance\(T/s\): prefill {NUMBER}, decode {NUMBER}\. Time\(s\): tokenize ([\d.eE+-]+), prefill {NUMBER}, "
    rf"decode {NUMBER}"
)
BATCH = re.compile(r"decode_batch_i: (\d+)")
SCHEME = re.compile(r"(?:^|[-_./])((?:UD[-_])?I?Q\d(?:_[A-Z0-9]+)*|BF16|FP8|INT[48])(?:$|[-_./])", re.IGNORECASE)
COUNTS = {
    "cpu_infer": "threads", "chunk_size": "chunk", "chunk_prefill_size": "chunk", "max_batch_size": "batch",
    "cache_lens": "kv_tokens",
}  # fmt: skip
SETTINGS = ("max_new_tokens", "backend_type", "use_cuda_graph", "mode", "optimize_config_path")


def is_it(text: Text) -> bool:
    """Whether ktransformers' own lines stand in the text: Ollama's rates look alike, but have two decimals."""
    return SIGN.search(text.whole) is not None


def read(text: Text) -> tuple[Run, ...]:
    """The runs of a log: each start begins one. Raises ReadingError where no line can be used."""
    return runs_of(text, Reader, LOOKS_LIKE)


@dataclass(slots=True)
class Reader:
    """Reads the lines of one run."""

    run: Gathered = field(default_factory=lambda: Gathered("ktransformers"))
    command: Commands = field(default_factory=lambda: Commands(COMMAND))
    commands: int = 0
    layers: set[int] = field(default_factory=set)
    layers_line: int = 0
    injected: dict[str, str] = field(default_factory=dict)
    experts: Counter[str] = field(default_factory=Counter)
    experts_line: int = 0
    loaded: Counter[str] = field(default_factory=Counter)
    loaded_line: int = 0
    chat: dict[str, tuple[float, int]] = field(default_factory=dict)
    batches: set[int] = field(default_factory=set)

    def begins_another(self, line: Line) -> bool:
        """Whether a line starts ktransformers again: a second command, or modules that were put in already."""
        if self.command.program.search(line.text) and not self.command.parts:
            return bool(self.commands or self.layers or self.run.timings)
        found = INJECTED.search(line.text)
        return found is not None and found[1] in self.injected

    def take(self, line: Line) -> None:
        """Read one line."""
        text, at, run = line.text, line.number, self.run
        if (command := self.command.take(text, at)) is not None:
            self.commands += 1
            self._command(*command)
        elif found := INJECTED.search(text):
            self.injected[found[1]] = found[2]
            self._layer(found[1], at)
            if re.search(r"\.experts$", found[1]) and found[2] != "default":
                self.experts[re.split(r"[ .]+", found[2])[-1]] += 1
                self.experts_line = self.experts_line or at
        elif found := LOADED.search(text):
            self._layer(found[1], at)
            self.loaded[found[2]] += 1
            self.loaded_line = self.loaded_line or at
        elif found := RULE.search(text):
            run.say("architecture", found[1], at)
        elif found := BATCH.search(text):
            self.batches.add(int(found[1][:6]))
        elif found := SERVED.search(text):
            self._served(found, at)
        elif found := CHAT.search(text):
            self._chat(found, at)

    def _layer(self, name: str, line: int) -> None:
        if found := LAYER.search(name):
            self.layers.add(int(found[1]))
            self.layers_line = self.layers_line or line

    def _command(self, options: dict[str, str], line: int) -> None:
        run = self.run
        run.say("model", model_name(options.get("model_path")), line)
        for key, name in COUNTS.items():
            if key in options and name not in run.said:
                run.say(name, count(options[key]), line)
        files = model_name(options.get("gguf_path"))
        if files is not None:
            run.set("gguf_path", files, line)
            if scheme := SCHEME.search(files):
                run.say("weights_format", scheme[1], line)
                run.assumed[f"{scheme[1]} weights, as the name of their folder says"] = None
        for key in SETTINGS:
            value = options.get(key)
            is_path = value is not None and ("/" in value or "\\" in value)
            value = model_name(value) if is_path else value
            run.set(key, None if value is None else plain(value), line)

    def _chat(self, found: re.Match[str], line: int) -> None:
        """Three lines of the prompt and three of the answer; the last, the rate, ends them."""
        value = number(found[3])
        if value is None:
            return
        part = "prompt" if found[1] else "answer"
        if (part, found[2]) == ("prompt", "count"):
            self.chat.clear()
        self.chat[f"{part} {found[2]}"] = (value, line)
        if found[2] == "rate":
            self._timed(part)

    def _timed(self, part: str) -> None:
        tokens, line = self.chat.get(f"{part} count", (None, 0))
        seconds, _ = self.chat.get(f"{part} duration", (None, 0))
        prompt = self.chat.get("prompt count", (None, 0))[0]
        if tokens is None or seconds is None:
            return
        if part == "prompt":
            self.run.time(Timing("prefill", seconds, tokens, 1, 1, test="local_chat", line=line))
        elif tokens > 1:
            self.run.time(Timing("decode", seconds, tokens - 1, tokens - 1, 1, int(prompt) if prompt else None,
                                 test="local_chat", includes="capture of the CUDA graph", line=line))  # fmt: skip
            self.run.assumed["eval count holds the token that the prompt's pass made: decode made one fewer"] = None

    def _served(self, found: re.Match[str], line: int) -> None:
        """The server's times of one request; others may have run with it, which the batch lines tell."""
        together = next(iter(self.batches)) if len(self.batches) == 1 else None if self.batches else 1
        shared = "" if together == 1 else "other requests' steps"
        self.batches.clear()
        for phase, rate, printed in (("prefill", found[1], found[4]), ("decode", found[2], found[5])):
            tokens, seconds = number(rate), number(printed)
            if tokens is None or seconds is None or round(tokens * seconds) < 1:
                continue
            made = round(tokens * seconds)
            self.run.time(Timing(phase, seconds, made, made if phase == "decode" else None, 1, test="server",  # type: ignore[arg-type]
                                 includes=shared, line=line))  # fmt: skip
        self.run.assumed["tokens of the server's requests: tokens/s x time, rounded"] = None
        if together != 1:
            self.run.unknown["how many requests ran at once while the server timed one"] = None

    def finished(self) -> list[Run]:
        """What was read, as a list of one run, or of none."""
        run = self.run
        if self.layers:
            run.say("layers", max(self.layers) + 1, self.layers_line)
        for name, found in sorted(self.experts.items()):
            run.fact(f"layers whose experts are {name}", found, self.experts_line)
        for device, found in sorted(self.loaded.items()):
            run.fact(f"small tensors loaded to {device}", found, self.loaded_line)
        if not run.says_something:
            return []
        if self.experts:
            run.unknown["which experts are on GPUs: the rule file says it, the log does not"] = None
        run.unknown["bytes on each device: ktransformers prints none"] = None
        if "threads" not in run.said:
            run.unknown["CPU threads (--cpu_infer): not in the log"] = None
        return [run.run()]
