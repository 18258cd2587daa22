"""Summaries of vLLM's and SGLang's benchmark clients: `vllm bench serve` (benchmark_serving.py), throughput, latency.

TTFT is the time to a request's first token (with its wait in the queue), TPOT the mean time of each later token of a
request, ITL the time between two parts of an answer. All are means over requests.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from offload.readers.engines.gathered import NUMBER, Gathered, count, model_name, number, plain, setting
from offload.readers.engines.run import Timing
from offload.readers.tools.text import Line

SERVING = re.compile(r"= (?:vLLM |SGLang )?Serving Benchmark Result =", re.IGNORECASE)
ROW = re.compile(rf"(?:^|[|\s])([A-Z][\w .()/-]{{2,48}}?):\s+{NUMBER}(?:\s|$)")
END = re.compile(r"(?<!=)={40,120}\s*$")
THROUGHPUT = re.compile(
    rf"\bThroughput: {NUMBER} requests/s, {NUMBER} (?:total )?tokens/s(?:, {NUMBER} output tokens/s)?"
)
LATENCY = re.compile(rf"\bAvg latency: {NUMBER} seconds")
BAR = re.compile(rf"100%.{{0,400}}?est\. speed input: {NUMBER} toks/s, output: {NUMBER} toks/s")
CLIENT = re.compile(r"\b(?:dataset_name|num_iters|num_prompts)=")
CLIENT_KEYS = ("dataset_name", "num_prompts", "request_rate", "max_concurrency", "random_input_len",
               "random_output_len", "input_len", "output_len", "batch_size", "num_iters")  # fmt: skip


@dataclass(slots=True)
class Benchmarks:
    """Reads a run's benchmark lines one after another; `close` after the last. client : the client's own settings."""

    client: dict[str, str] = field(default_factory=dict)
    rows: dict[str, tuple[float, int]] | None = None
    started: int = 0

    def take(self, run: Gathered, line: Line) -> bool:
        """Whether the line was one of a benchmark's; what it says goes to the run."""
        text = line.text
        if SERVING.search(text):
            self.close(run)
            self.rows, self.started = {}, line.number
            return True
        if self.rows is not None:
            if END.search(text):
                self.close(run)
                return True
            if row := ROW.search(text):
                value = number(row[2])
                if value is not None:
                    self.rows.setdefault(row[1].lower(), (value, line.number))
                return True
        if "Namespace(" in text and CLIENT.search(text):
            self.client = {key: said for key in CLIENT_KEYS if (said := setting(text, key)) is not None}
            for key, said in self.client.items():
                run.set(f"benchmark {key}", plain(said), line.number)
            if "model" not in run.said:
                run.say("model", model_name(setting(text, "model")), line.number)
            return True
        return self._single(run, line)

    def _single(self, run: Gathered, line: Line) -> bool:
        if found := THROUGHPUT.search(line.text):
            total, made = number(found[2]), number(found[3])
            if made is not None:
                run.time(Timing("request", 1.0, made, test="bench throughput", includes="the prompts' tokens",
                                line=line.number))  # fmt: skip
                run.assumed["bench throughput's tokens/s are of one second of it: its length is not printed"] = None
            run.fact("tokens/s of prompts and answers together", total, line.number)
            run.fact("requests/s", number(found[1]), line.number)
            return True
        if found := LATENCY.search(line.text):
            run.time(self._latency(number(found[1]), line.number))
            return True
        if found := BAR.search(line.text):
            made = number(found[2])
            if made is not None:
                run.time(Timing("request", 1.0, made, test="generate()'s progress bar",
                                includes="the prompts' tokens", line=line.number))  # fmt: skip
                run.assumed["the progress bar's tokens/s are of one second of it, over all requests"] = None
            run.fact("prompt tokens/s over all requests", number(found[1]), line.number)
            return True
        return False

    def _latency(self, seconds: float | None, line: int) -> Timing | None:
        if seconds is None:
            return None
        batch, length, prompt, repeated = (
            count(self.client.get(key)) for key in ("batch_size", "output_len", "input_len", "num_iters")
        )
        made = batch * length if batch and length else None
        return Timing("request", seconds, made, sequences=batch, prompt=prompt, samples=repeated,
                      test="bench latency", includes="the prompts' tokens", line=line)  # fmt: skip

    def close(self, run: Gathered) -> None:
        """End a block of rows, if one is open: its figures go to the run."""
        rows, self.rows = self.rows, None
        if rows:
            _block(run, rows, self.started)


def _block(run: Gathered, rows: dict[str, tuple[float, int]], started: int) -> None:
    def said(*names: str) -> tuple[float | None, int]:
        return next((rows[name] for name in names if name in rows), (None, started))

    requests, _ = said("successful requests")
    prompts, _ = said("total input tokens")
    made, _ = said("total generated tokens")
    seconds, at = said("benchmark duration (s)")
    together, _ = said("maximum request concurrency", "max request concurrency")
    alone = together == 1
    prompt = prompts / requests if requests and prompts else None
    samples = int(requests) if requests and requests == int(requests) else None
    label = "bench serve" if together is None else f"bench serve, at most {together:g} at once"
    if seconds is not None:
        run.time(Timing("request", seconds, made, sequences=together, prompt=_whole(prompt), test=label,
                        includes="the prompts' tokens", line=at))  # fmt: skip
    first, at = said("mean ttft (ms)")
    if first is not None:
        run.time(Timing("prefill", first / 1e3, prompt, sequences=1 if alone else None, prompt=_whole(prompt),
                        samples=samples, test=f"TTFT of {label}",
                        includes="" if alone else "waiting in the queue, other requests' tokens", line=at))  # fmt: skip
    later, at = said("mean tpot (ms)")
    if later is not None:
        running = 1.0 if alone else None
        if running is None and seconds and made and requests and made > requests:
            running = later / 1e3 * (made - requests) / seconds
            run.assumed["sequences of TPOT: the mean over the benchmark, TPOT x later tokens / duration"] = None
        running = running if running is not None and running >= 1 else None
        run.time(Timing("decode", later / 1e3, running, sequences=running, context=_whole(prompt), samples=samples,
                        test=f"TPOT of {label}", includes="" if alone else "prompts of other requests",
                        line=at))  # fmt: skip
    between, at = said("mean itl (ms)")
    run.fact(f"mean ITL of {label}, s", None if between is None else between / 1e3, at)
    for name in ("failed requests", "peak output token throughput (tok/s)", "peak concurrent requests"):
        value, at = said(name)
        run.fact(f"{name} of {label}", value, at)


def _whole(value: float | None) -> int | None:
    return round(value) or None if value is not None else None
