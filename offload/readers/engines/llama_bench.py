"""Tables of llama.cpp's benchmarks: llama-bench (Markdown, JSON, JSONL, CSV, SQL), batched-bench, sweep-bench.

Every row of llama-bench is a Run with one Timing, every row of the two others a Run with the prompt's and the answer's.

* llama-bench: "pp512" is a prompt of 512 tokens, "tg128" 128 steps of one sequence, "pp512+tg128" both, "@ d4096"
  behind 4096 positions. Its "t/s" is the mean of the repetitions' rates; JSON, CSV and SQL have the mean time itself.
* llama-batched-bench: PP and TG are tokens of each of B sequences; N_KV tells whether they share the prompt.
* llama-sweep-bench (ik_llama.cpp): PP and TG are measured behind N_KV positions each.

Format: ggml-org/llama.cpp tools/llama-bench/llama-bench.cpp, tools/batched-bench; ikawrakow/ik_llama.cpp
examples/sweep-bench.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from offload.errors import ReadingError, one_line
from offload.readers.engines.llama_cpp import sections
from offload.readers.engines.llama_devices import read_device
from offload.readers.engines.llama_sections import run_of
from offload.readers.engines.llama_timings import OF_TIMES
from offload.readers.engines.llama_words import NUMBER, count, memory, number, some, whole
from offload.readers.engines.run import Processor, Run, Said, Timing
from offload.readers.tools.text import Text

LOOKS_LIKE = "llama-bench, llama-batched-bench"
LONGEST_LINE = 20_000
ALIASES = {
    "ngl": "n_gpu_layers",
    "threads": "n_threads",
    "sm": "split_mode",
    "mg": "main_gpu",
    "nkvo": "no_kv_offload",
    "fa": "flash_attn",
    "dev": "devices",
    "ts": "tensor_split",
    "ot": "tensor_buft_overrides",
    "mmap": "use_mmap",
    "lm": "load_mode",
    "embd": "embeddings",
    "nopo": "no_op_offload",
    "noh": "no_host",
    "backend": "backends",
    "model": "model_type",
    "ncmoe": "n_cpu_moe",
    "fmoe": "fused_moe",
    "mla": "mla_attn",
    "amb": "attn_max_batch",
    "rtr": "repack",
}
SETTINGS = {
    "n_gpu_layers": "n_gpu_layers",
    "n_batch": "n_batch",
    "n_cpu_moe": "cpu_moe",
    "split_mode": "split_mode",
    "main_gpu": "main_gpu",
    "no_kv_offload": "no_kv_offload",
    "flash_attn": "flash_attn",
    "tensor_split": "tensor_split",
    "tensor_buft_overrides": "override-tensor",
    "use_mmap": "mmap",
    "load_mode": "load_mode",
    "no_op_offload": "no_op_offload",
    "fused_moe": "fused_moe",
    "mla_attn": "mla_attn",
    "attn_max_batch": "attn_max_batch",
    "repack": "run_time_repack",
    "backends": "backends",
}
SWITCHES = frozenset(("no_kv_offload", "use_mmap", "no_op_offload", "fused_moe", "repack"))
NOTHING = frozenset(("", "none", "0.00", "auto"))
TEST = re.compile(r"^(?:pp ?(\d+))?(?:\+?tg ?(\d+))?(?: @ d(\d+))?$")  # "pp 512" until the spring of 2024
RATE = re.compile(rf"^({NUMBER})(?:\s*(?:±|\+/-|\+-|Â±)\s*({NUMBER}))?$")
INSERT = re.compile(r"INSERT INTO \w+ \(([\w, ]+)\) VALUES \((.*)\);")
QUOTED = re.compile(r"'((?:[^']|'')*)'")
CUT = re.compile(r"(?<!\\)\|")
BATCHED = ("PP", "TG", "N_KV", "T_PP s", "T_TG s")
MEAN = "'t/s' is the mean of the repetitions' rates: the time is the tokens by that rate, its spread to first order."
DEFAULTS = "Columns that are left out are at their defaults: K and V in f16, chunks (n_ubatch) of 512 tokens."
ROUNDED = "The model's size is told to 0.01 GiB or MiB: it is rounded."


@dataclass(frozen=True, slots=True)
class Row:
    """One row, by column, with its line."""

    cells: Mapping[str, Any]
    line: int


def is_it(text: Text) -> bool:
    """Whether there is a table of one of the benchmarks in a text, in any of its forms."""
    whole_ = text.whole
    if '"avg_ns"' in whole_ and '"model_type"' in whole_ or ('"t_pp"' in whole_ and '"t_tg"' in whole_):
        return True
    if "avg_ns" in whole_ and ("build_commit" in whole_ or "INSERT INTO" in whole_):
        return True
    return any(_heads(line.text[:LONGEST_LINE]) for line in text if "|" in line.text)


def read(text: Text) -> tuple[Run, ...]:
    """A Run for each row. Raises ReadingError where no row has a time."""
    devices: dict[str, Processor] = {}
    for line in text:
        if any(word in line.text for word in ("found", "Device ", "ggml_vulkan", "GPU name", "MiB free)")):
            read_device(devices, line.text[:1000], line.number)
    devices.pop("kind", None)
    runs = [run for row in _rows(text) for run in [_run(row, tuple(devices.values()))] if run is not None]
    runs = _with_unread(runs, text)
    runs += _batched_runs(text, tuple(devices.values()))
    if not runs:
        raise ReadingError(
            'The table of llama.cpp\'s benchmark has no row with a time ("t/s" or "avg_ns"). Was it cut?'
        )
    return tuple(sorted(runs, key=lambda run: run.line))


def _with_unread(runs: list[Run], text: Text) -> list[Run]:
    """The runs, which tell where a table of llama-bench has rows with a rate that are none of them."""
    seen = {run.line for run in runs}
    lost = [row for row in _tables(text)
            if row.line not in seen and (rate := RATE.match(_text(row, "t/s"))) and number(rate[1])]
    if not lost:
        return runs
    tests = ", ".join(f'"{one_line(_text(row, "test"))[:30]}" (line {row.line})' for row in lost[:4])
    more = f" and {len(lost) - 4} more" if len(lost) > 4 else ""
    told = f"Rows of the table that were not read, as their test is none that is known: {tests}{more}."
    return [replace(run, unknown=(*run.unknown, told)) for run in runs]


def _heads(text: str) -> tuple[str, ...]:
    """The columns of a table's head: of llama-bench or of the batched ones; () for any other line."""
    if "|" not in text:
        return ()
    cells = tuple(cell.strip() for cell in text[text.index("|") :].strip().strip("|").split("|"))
    if ("test" in cells and "t/s" in cells and "model" in cells) or all(name in cells for name in BATCHED):
        return cells
    return ()


def _tables(text: Text) -> Iterator[Row]:
    """The rows of the Markdown tables."""
    heads: tuple[str, ...] = ()
    for line in text:
        written = line.text[:LONGEST_LINE]
        found = _heads(written)
        if found:
            heads = found
            continue
        if not heads or "|" not in written:
            continue
        cells = [cell.strip("*` \t") for cell in CUT.split(written[written.index("|") :].strip().strip("|"))]
        over = len(cells) - len(heads)
        if over > 0 and "ot" in heads:  # an expression with "|" in it
            at = heads.index("ot")
            cells[at : at + over + 1] = ["|".join(cells[at : at + over + 1])]
        if len(cells) == len(heads) and not all(set(cell) <= set("-: ") for cell in cells):
            yield Row(dict(zip(heads, cells, strict=True)), line.number)


def _rows(text: Text) -> Iterator[Row]:
    """The rows of llama-bench in any of its forms, by the names of its JSON."""
    for row in _tables(text):
        if "t/s" in row.cells:
            yield Row({ALIASES.get(key, key): value for key, value in row.cells.items()}, row.line)
    if "avg_ns" not in text.whole:
        return
    places = {line.number for line in text if '"avg_ns"' in line.text}
    for begin, value in text.json_values():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, dict) and "avg_ns" in one:
                at = min((place for place in places if place >= begin), default=begin)
                if isinstance(value, list):
                    places.discard(at)
                yield Row(one, at)
    heads: list[str] = []
    for line in text:
        written = line.text[:LONGEST_LINE]
        inserted = INSERT.search(written)
        if inserted is not None:
            names = [name.strip() for name in inserted[1].split(",")]
            values = [value.replace("''", "'") for value in QUOTED.findall(inserted[2])]
            if len(names) == len(values):
                yield Row(dict(zip(names, values, strict=True)), line.number)
        elif "build_commit" in written and "avg_ns" in written and "{" not in written:
            heads = [name.strip().strip('"') for name in written[written.index("build_commit") :].split(",")]
        elif heads and written.lstrip().startswith('"'):
            try:
                values = next(csv.reader([written.strip()]))
            except (csv.Error, StopIteration):
                continue
            if len(values) == len(heads):
                yield Row(dict(zip(heads, values, strict=True)), line.number)


def _text(row: Row, key: str) -> str:
    value = row.cells.get(key)
    if isinstance(value, bool):
        return "1" if value else "0"
    return "" if value is None or isinstance(value, dict | list) else str(value).strip()


def _run(row: Row, devices: tuple[Processor, ...]) -> Run | None:
    """A row of llama-bench as a Run; None where it has no time."""
    assumed: list[str] = []
    timing = _timing(row, assumed)
    if timing is None:
        return None
    line = row.line
    named = _text(row, "model_type").split(" ", 2)
    size = some(_text(row, "model_size"))
    if size is None and "size" in row.cells:
        size = memory(_text(row, "size")) or None
        assumed.append(ROUNDED)
    parameters = number(_text(row, "model_n_params")) or count(_text(row, "params"))
    k, v = _text(row, "type_k"), _text(row, "type_v")
    kind = k if k == v or not v else v if not k else f"K {k}, V {v}"
    if bool(k) != bool(v):
        kind = f"K {k or 'f16'}, V {v or 'f16'}"
    chunk, threads = some(_text(row, "n_ubatch")), some(_text(row, "n_threads"))
    if "test" in row.cells and (not k or not v or chunk is None):
        assumed.append(DEFAULTS)
        kind, chunk = kind or "f16", chunk or 512
    bits = None if not size or not parameters else Said(size * 8 / parameters, line)
    return Run(
        engine="llama-bench",
        line=line,
        model=Said(" ".join(named[:2]), line) if named[0] else None,
        architecture=Said(named[0], line) if len(named) == 3 else None,
        parameters=Said(parameters, line) if parameters else None,
        size=Said(size, line) if size else None,
        bits=bits,
        weights_format=Said(named[2].removeprefix("(guessed) "), line) if len(named) == 3 else None,
        kv_format=Said(kind, line) if kind else None,
        batch=Said(1, line),
        chunk=Said(chunk, line) if chunk else None,
        threads=Said(threads, line) if threads else None,
        processors=devices or _processors(row),
        timings=(timing,),
        settings=_settings(row),
        assumed=tuple(assumed),
    )


def _timing(row: Row, assumed: list[str]) -> Timing | None:
    """The time of a row, from "avg_ns" or from "t/s"; None where there is none."""
    found = TEST.match(_text(row, "test")) if "test" in row.cells else None
    if found is not None:
        prompt, made, depth = (whole(part or "0") for part in found.groups())
    else:
        prompt, made, depth = (whole(_text(row, key) or "0") for key in ("n_prompt", "n_gen", "n_depth"))
    if prompt is None or made is None or depth is None or prompt + made == 0:
        return None
    tokens = prompt + made
    seconds = spread = None
    samples = row.cells.get("samples_ns")
    repeated = len(samples) if isinstance(samples, list) and samples else None
    mean, deviation = number(_text(row, "avg_ns")), number(_text(row, "stddev_ns"))
    rate = RATE.match(_text(row, "t/s"))
    if mean:
        seconds, spread = mean / 1e9, None if deviation is None else deviation / 1e9
    elif rate is not None:
        per_second, plus = number(rate[1]), number(rate[2] or "")
        if per_second:
            assumed.append(MEAN)
            seconds = tokens / per_second
            spread = None if plus is None else seconds * plus / per_second
    if not seconds:
        return None
    test = "+".join([f"pp{prompt}"] * (prompt > 0) + [f"tg{made}"] * (made > 0)) + (f" @ d{depth}" if depth else "")
    timing = Timing("decode", seconds, sequences=1.0, context=depth, samples=repeated, spread=spread, test=test)
    if made == 0:
        steps = _passes(prompt, some(_text(row, "n_batch")), some(_text(row, "n_ubatch")))
        return replace(timing, phase="prefill", tokens=float(prompt), steps=steps, line=row.line)
    if prompt == 0:
        return replace(timing, tokens=float(made), steps=float(made), line=row.line)
    return replace(timing, phase="request", tokens=float(made), prompt=prompt, line=row.line)


def _passes(prompt: int, batch: int | None, chunk: int | None) -> float | None:
    """How often the model ran over a prompt, where the sizes of batch and chunk are told."""
    if batch is None or chunk is None:
        return None
    full, rest = divmod(prompt, batch)
    return float(full * -(-batch // min(batch, chunk)) + -(-rest // min(batch, chunk)))


def _settings(row: Row) -> tuple[tuple[str, str | int | bool, int], ...]:
    told: list[tuple[str, str | int | bool, int]] = []
    for key, name in SETTINGS.items():
        value = _text(row, key)
        if key not in row.cells or (value in NOTHING and key != "flash_attn"):
            continue
        value = re.sub(r"\[[^\[\]]*:\d+\]", "", value)
        if key in SWITCHES and value in ("0", "1"):
            told.append((name, value == "1", row.line))
        elif key == "flash_attn":
            flash: dict[str, bool | str] = {"0": False, "1": True, "-1": "auto"}
            told.append((name, flash.get(value, value), row.line))
        else:
            number_ = whole(value)
            told.append((name, value if number_ is None else number_, row.line))
    return tuple(told)


def _processors(row: Row) -> tuple[Processor, ...]:
    """The devices that a row of JSON names."""
    kind = _text(row, "backends").split(",")[0] or ("CUDA" if _text(row, "cuda") == "1" else "GPU")
    gpus = [name.strip() for name in _text(row, "gpu_info").split(",") if name.strip()]
    cpu = _text(row, "cpu_info")
    found = [Processor(f"{kind}{at}", name, line=row.line) for at, name in enumerate(gpus)]
    return (*found, *([Processor("CPU", cpu, line=row.line)] if cpu else []))


def _batched_runs(text: Text, devices: tuple[Processor, ...]) -> list[Run]:
    """The rows of llama-batched-bench and llama-sweep-bench, with what the log before them says of the model."""
    rows = [row for row in _tables(text) if "T_PP s" in row.cells]
    if '"t_pp"' in text.whole:
        for line, value in text.json_values("t_pp"):
            names = {"pp": "PP", "tg": "TG", "pl": "B", "n_kv": "N_KV", "t_pp": "T_PP s", "t_tg": "T_TG s"}
            rows.append(Row({names[key]: str(one) for key, one in value.items() if key in names}, line))
    if not rows:
        return []
    before = [(section.line, section.last, run_of(section)) for section in sections(text)]
    runs = []
    for row in rows:
        base = next((run for first, last, run in reversed(before) if first <= row.line <= last), None)
        timings = _batched(row)
        if timings:
            bare = Run("llama-batched-bench" if "B" in row.cells else "llama-sweep-bench", processors=devices)
            if base is None:
                run = bare
            else:
                assumed = tuple(one for one in base.assumed if one not in OF_TIMES)
                run = replace(base, engine=bare.engine, unknown=(), facts=(), assumed=assumed)
            runs.append(replace(run, line=row.line, timings=timings))
    return runs


def _batched(row: Row) -> tuple[Timing, ...]:
    prompt, made = whole(_text(row, "PP")), whole(_text(row, "TG"))
    held, of_prompt, of_answer = whole(_text(row, "N_KV")), number(_text(row, "T_PP s")), number(_text(row, "T_TG s"))
    if prompt is None or made is None or held is None:
        return ()
    if "B" not in row.cells:
        sequences, read_in, at, behind = 1, prompt, held, held
    else:
        sequences, at, behind = some(_text(row, "B")) or 0, 0, prompt
        if sequences == 0 or held not in (sequences * (prompt + made), prompt + sequences * made):
            return ()
        read_in = prompt if held == prompt + sequences * made else prompt * sequences
    shared = 1.0 if read_in == prompt else float(sequences)
    name = f" x {sequences}" if "B" in row.cells else f" @ d{held}"
    timings = []
    if of_prompt and read_in:
        timings.append(
            Timing("prefill", of_prompt, float(read_in), None, shared, at, test=f"pp{prompt}{name}", line=row.line)
        )
    if of_answer and made:
        timings.append(
            Timing(
                "decode", of_answer, float(made * sequences), float(made), float(sequences), behind,
                test=f"tg{made}{name}", line=row.line,
            )
        )  # fmt: skip
    return tuple(timings)
