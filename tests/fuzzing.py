"""Valid files of every kind, damaged, and each verb asked about them: what may never come of it, and a long campaign.

    python -m tests.fuzzing --seconds 600 --seed 1 --keep /some/folder

Never a traceback or an error of our own, a number that is none, a negative time, a hang or a gigabyte. A case is made
of its number alone, so that `--only N` runs it again.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import math
import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from offload import cli
from tests.commands import ROOT, Done, run

LONGEST = 30  # seconds of processors' time of a command, where an undamaged one takes at most a few
LARGEST = 1 << 30  # bytes that a command may add to the largest that this process was

ODD: tuple[Any, ...] = (
    "", " ", None, [], {}, [None], {"": ""}, [[]], {"a": {"b": []}}, float("nan"), float("inf"), -float("inf"), 0, -0.0,
    -1, 1, 0.5, 1e-320, 1e308, 10**18, 10**19, 2**63, 2**64, 10**400, True, False, "1e400", "-1", "-0", "0", "nan",
    "inf",
    "1e999 GB", "1e308 GB/s", "-3 GB/s", "0 GB/s", "0 B", "1 B", "1e-300 B/s", "1e300 s", "٣٤", "１２", "²", "½", "1,5",
    "1_000", "0x10", "1:30", "12 GB/", "3 parsecs", "5 s", "5 GB", "5 GB/s", "7 TFLOP/s", "50 %", "101 %", "-5 %", "µs",
    "1 µs", "rest", "all", "none", "full", "unknown", "with layer", "local", "gpu0", "cpu0", "hbm0", "dram0", "gpu0..7",
    "gpu0..999999999", "0..10", "..", "x" * 5000, "😀" * 50, "a\tb", "a\nb", "a\x1b[31m", "\u202e", "../..", "/", ".",
    "/dev/null", "llama-3.1-70b", "q4_k_m", "previous.fetch", "2024-01-01", "!!python/object:os.system", "*a", "&a",
    "${HOME}", "{}", "[]", "null", "~", "1 layers", "-1 layers", "0 layers", "1e9 layers", 3.999999999999999999,
    ["gpu0", "gpu0"], ["hbm0", None], {"gpu0": "gpu0"}, {"dram0": "rest", "hbm0": "rest"}, {"peak": "1 GB/s"}, {1: 2},
)  # fmt: skip
SPLINTERS = (
    "", " ", "\n", "\t", ":", ",", "{", "}", "[", "]", "#", "&a ", "*a", "- ", "~", "1e9", "0", "-", ".inf", ".nan",
    "'",
    '"', "<<: *a", "x: ", "null", "\u00a0", "：", "!!int ", "!!binary ", "%", "@", "`", "|", ">", "? ",
    "---\n", "...\n",
    "\ufeff", "\r", "\r\n", "\x00", "\x85", "\u2028", "\ud800", "<<", "=", "9" * 40, "1" * 400,
)  # fmt: skip


def places(tree: Any, path: tuple[Any, ...] = (), above: tuple[int, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """All paths into a tree of maps and lists; of one that holds itself, those before it comes again."""
    if path:
        yield path
    if id(tree) in above:
        return
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield from places(value, (*path, key), (*above, id(tree)))


def at(tree: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def damaged_tree(tree: Any, chooser: random.Random) -> Any:
    """The same tree with one to three slips: a value dropped, replaced by an odd one or another, moved, repeated."""
    for _ in range(chooser.choice((1, 1, 1, 2, 3))):
        found = list(places(tree))
        if not found:
            return tree
        path = chooser.choice(found)
        above, key = at(tree, path[:-1]), path[-1]
        what = chooser.randrange(8)
        if what == 0:
            del above[key]
        elif what == 1:
            above[key] = at(tree, chooser.choice(found))  # perhaps what holds it: a cycle
        elif what == 2 and isinstance(above, dict):
            odd = chooser.choice(ODD)
            above[odd if chooser.random() < 0.3 and not isinstance(odd, dict | list) else f"{key}x"] = above.pop(key)
        elif what == 3 and isinstance(above[key], int | float) and not isinstance(above[key], bool):
            above[key] = above[key] * chooser.choice((-1, 0, 0.5, 3, 10**6, 1e-9, 10**18))
        elif what == 4 and isinstance(above, list):
            above.extend(above[:] * chooser.choice((1, 50)))
        elif what == 5 and isinstance(above[key], str):
            above[key] = re.sub(r"\d+", lambda _: chooser.choice(("0", "1", "3", "-1", "99999999999999999999", "1e9")),
                                above[key], count=1)  # fmt: skip
        else:
            above[key] = copy.deepcopy(chooser.choice(ODD))
    return tree


def as_yaml(tree: Any) -> str:
    try:
        return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)
    except (yaml.YAMLError, RecursionError, TypeError):
        return repr(tree)


def as_json(tree: Any) -> str:
    try:
        return json.dumps(tree, indent=1)
    except (ValueError, TypeError, RecursionError):
        return repr(tree)


def damaged_text(text: str, chooser: random.Random) -> str:
    """The same text with one to four slips of lines or characters."""
    for _ in range(chooser.choice((1, 1, 2, 4))):
        lines = text.split("\n")
        here = chooser.randrange(len(lines))
        what = chooser.randrange(9)
        if what == 0:
            del lines[here]
        elif what == 1:
            lines.insert(here, lines[chooser.randrange(len(lines))])
        elif what == 2:
            lines[here] = chooser.choice((" ", "  ", "\t")) + lines[here]
        elif what == 3:
            key, sep, _ = lines[here].partition(": ")
            odd = chooser.choice(ODD)
            lines[here] = f"{key}{sep or ': '}{odd if isinstance(odd, str) else as_yaml(odd).strip()}"
        elif what == 4:
            numbers = list(re.finditer(r"\d[\d.,_]*", text))
            if numbers:
                one = chooser.choice(numbers)
                new = chooser.choice(("0", "-1", "1e400", "٣", "nan", "9" * 30, "1e-400", "", "0x1", "1" * 5000))
                text = text[: one.start()] + new + text[one.end() :]
                continue
        elif what == 5:
            place = chooser.randrange(len(text) + 1)
            text = text[:place] + chooser.choice(SPLINTERS) + text[place + chooser.choice((0, 0, 1, 5, 40)) :]
            continue
        elif what == 6:
            return text[: chooser.randrange(len(text) + 1)]
        elif what == 7:
            lines[here] = lines[here] * chooser.choice((2, 200))
        else:
            return chooser.choice(("\ufeff" + text, text.replace("\n", "\r\n"), text.replace("  ", "\t"), text * 2,
                                   text.replace("\n", "\r"), text + "\n...\n---\n"))  # fmt: skip
        text = "\n".join(lines)
    return text


# The kinds of input: their sources, and the words that ask each verb about one


class Kind(NamedTuple):
    sources: tuple[Path, ...]
    words: tuple[tuple[str, ...], ...]  # FILE stands for the damaged one, OUT for a folder


def _files(*patterns: str) -> tuple[Path, ...]:
    return tuple(sorted(path for pattern in patterns for path in ROOT.glob(pattern) if path.is_file()))


PLAN = (
    ("check", "FILE"), ("check", "FILE", "--json"), ("step", "FILE"), ("step", "FILE", "--json"),
    ("step", "FILE", "--explain"), ("step", "FILE", "--json", "--trace", "OUT/t.json", "--plot", "OUT/f.svg"),
    ("step", "FILE", "--measured", "2.7 tok/s"), ("step", "FILE", "-t", "gh200"), ("step", "FILE", "--buffers", "3"),
    ("sweep", "FILE", "--over", "workload.batch=1:4", "--json"),
    ("sweep", "FILE", "--over", "pcie0.rate=16GB/s:128GB/s:5log", "-o", "OUT/g.csv"),
    ("sweep", "FILE", "--over", "dram0.rate=16GB/s:128GB/s:4", "--overlapped", "-o", "OUT/g.json"),
    ("compare", "FILE", "--on", "gh200,desktop-4090", "--json"), ("compare", "FILE"),
    ("need", "FILE", "--target", "10 tok/s"), ("need", "FILE", "--target", "200 ms", "--json"),
    ("place", "FILE", "--most", "200", "--json"), ("report", "FILE", "-o", "OUT/r.html"),
    ("plot", "floor", "FILE", "-o", "OUT/f.svg"), ("plot", "roofline", "FILE", "-o", "OUT/f.svg"),
    ("plot", "loads", "FILE", "-o", "OUT/f.svg"), ("plot", "timeline", "FILE", "-o", "OUT/f.svg"),
    ("plot", "residency", "FILE", "-o", "OUT/f.svg"), ("plot", "memory", "FILE", "-o", "OUT/f.svg"),
    ("plot", "server", "FILE", "-o", "OUT/f.svg"), ("plot", "drives", "FILE", "-o", "OUT/f.svg"),
)  # fmt: skip
TOPOLOGY = (
    ("check", "FILE"), ("topology", "show", "FILE"), ("topology", "show", "FILE", "--json"),
    ("topology", "show", "FILE", "--routes"), ("topology", "diff", "FILE", "gh200"),
    ("topology", "diff", "dgx-h100", "FILE", "--json"), ("topology", "list", "FILE"), ("topology", "list", "FILE",
    "--json"),
    ("step", "llama-3.1-8b:q8_0", "--on", "FILE", "--json"), ("step", "llama-3.1-8b:q8_0", "--on", "FILE",
    "--gpu-layers", "8"),
    ("step", "llama-3.1-8b:q8_0", "--on", "FILE", "--gpu-layers", "8", "--compute", "gpu0"),
    ("step", "examples/llama-3.1-70b-desktop.yaml", "-t", "FILE"), ("place", "llama-3.1-8b:q8_0", "--on", "FILE",
    "--most", "200"),
    ("compare", "llama-3.1-8b:q8_0", "--on", "FILE,gh200"),
    ("need", "llama-3.1-8b:q8_0", "--on", "FILE", "--gpu-layers", "8", "--target", "100 tok/s"),
    ("memory", "llama-3.1-8b:fp8", "--on", "FILE", "--requests", "lognormal 2000 0.7", "--json"),
    ("plot", "server", "FILE", "-o", "OUT/f.svg"),
    ("topology", "import", "tests/data/outputs/nvbandwidth.txt", "--onto", "FILE", "-o", "OUT/t.yaml"),
)  # fmt: skip
CONFIG = (
    ("model", "FILE"), ("model", "FILE", "--json"), ("model", "FILE", "--weights", "q4_k_m"),
    ("step", "FILE", "--weights", "q8_0", "--on", "gh200", "--json"),
    ("memory", "FILE", "--weights", "fp8", "--on", "dgx-h100", "--tp", "8", "--requests", "fixed 2000", "--json"),
    ("place", "FILE", "--weights", "q4_k_m", "--on", "desktop-4090", "--most", "100"),
    ("plot", "concurrency", "FILE", "--on", "gh200", "-o", "OUT/f.svg"),
)  # fmt: skip
CASE = (
    ("validate", "FILE"), ("validate", "FILE", "--json"), ("check", "FILE"), ("plot", "predicted", "FILE", "-o",
    "OUT/f.svg"),
)  # fmt: skip
LOG = (
    ("why", "FILE"), ("why", "FILE", "--json"), ("why", "FILE", "--on", "desktop-4090", "-o", "OUT/p.yaml"),
    ("why", "FILE", "--on", "dgx-h100", "--model", "llama-3.1-8b", "--plot", "OUT/f.svg"),
    ("plot", "waterfall", "FILE", "--on", "desktop-4090", "-o", "OUT/f.svg"),
)  # fmt: skip
TOOL = (
    ("topology", "import", "FILE"), ("topology", "import", "FILE", "--json"),
    ("topology", "import", "FILE", "--onto", "dgx-h100", "-o", "OUT/t.yaml"),
    ("topology", "import", "tests/data/outputs/topo_old_driver.txt", "FILE", "--json"),
)  # fmt: skip
METERS = (("compare", "examples/by-hand.yaml", "--meters", "FILE"),)
REQUESTS = (
    ("memory", "llama-3.1-8b:fp8", "--on", "desktop-4090", "--requests", "FILE"),
    ("memory", "llama-3.1-8b:fp8", "--on", "desktop-4090", "--requests", "FILE", "--column", "length", "--json"),
    ("memory", "llama-3.1-8b:fp8", "--gpu-memory", "24 GB", "--requests", "FILE", "--prompt-column", "prompt",
     "--output-column", "length", "--plot", "OUT/f.svg"),
)  # fmt: skip
HEADERS = (("model", "FILE"), ("step", "FILE", "--on", "gh200", "--json"), ("model", "FILE", "--json"))

KINDS = {
    "plan": Kind(_files("examples/*.yaml"), PLAN),
    "topology": Kind(_files("topologies/*.yaml", "examples/servers/*.yaml"), TOPOLOGY),
    "config": Kind(_files("tests/data/hf_config/*/config.json"), CONFIG),
    "case": Kind(_files("offload/cases/*.yaml"), CASE),
    "log": Kind(_files("tests/data/logs/*"), LOG),
    "tool": Kind(_files("tests/data/outputs/*"), TOOL),
    "meters": Kind((), METERS),
    "requests": Kind((), REQUESTS),
    "header": Kind(_files("tests/data/weights/*.gguf", "tests/data/weights/*.safetensors",
    "tests/data/weights/*.index.json"), HEADERS),
}  # fmt: skip
OWN = {
    "meters": "meters:\n  energy: {per_second: 350 W, per_byte: {dram0: 20 pJ/bit, pcie: 4 pJ/bit},"
              " per_flop: {gpu: 1 pJ}}\n"
              "  money: {per_hour: 12 USD}\n  wear: {written: ssd0, endurance: 1400 TB}\n",
    "requests": "prompt,length\n100,200\n4000,300\n12,9000\n7,8\n2000,1000\n",
}  # fmt: skip
# Words of options that may be odd as well
OPTIONS: dict[str, tuple[str, ...]] = {
    "step": ("--set", "--batch", "--context", "--prompt", "--generate", "--gpu-layers", "--cpu-experts", "--compute",
    "--kv",
             "--weights", "--kv-format", "--reserve", "--buffers", "--measured", "--on", "-t", "--give", "--like"),
    "sweep": ("--over", "--best", "--by", "--threads", "--reduce", "--chunk", "--set"),
    "compare": ("--on", "--by", "--meter", "--set", "--batch"), "need": ("--target", "--set"), "place": ("--for",
    "--most", "--engine"),
    "memory": ("--requests", "--prompt", "--kv-budget", "--gpu-memory", "--block", "--prefix", "--chunk", "--tp",
    "--pp", "--ep",
               "--usable", "--reserve", "--risk", "--link", "--flops", "--host-memory", "--host-kv", "--nvme-kv",
               "--nvme-rate",
               "--gpu-layers", "--copies", "--column"),
    "why": ("--run", "--timing", "--set", "--model", "--on"), "model": ("--weights", "--kv-format", "--like", "--give"),
}  # fmt: skip
WORDS = (*(str(one) for one in ODD if isinstance(one, str | int | float)), "workload.batch=0",
 "workload.batch=1:99999999999",
         "pcie0.rate=nan", "pcie0.rate=1GB/s:0:5log", "workload.batch=1:4,8", "workload.context=-1:5",
         "model.weights=q4_0,zz",
         "dram0.rate=1e400", "=", "a=b", "workload.batch=1e400", "hbm0.capacity=0", "energy: nan W",
         "m: 1e400 USD/h", "1e400 tok/s",
         "0 tok/s", "1e-320 tok/s", "-1 ms", "lognormal 2000 0.7", "lognormal nan 1", "uniform 5 1", "fixed 1e400",
         "18x2000",
         "99999999999999x1", "1, 2, -3", "gh200,gh200", "best=0", "pareto=floor:floor", "min=x", "binding")  # fmt: skip


class Case(NamedTuple):
    number: int
    words: tuple[str, ...]
    name: str
    content: bytes


def case(number: int, kind: str | None = None) -> Case:
    """The case of a number: a kind of file, a damaged one, and what is asked."""
    chooser = random.Random(number)
    kind = kind or chooser.choice(list(KINDS))
    sources, asked = KINDS[kind]
    words = chooser.choice(asked)
    if sources:
        path = chooser.choice(sources)
        raw, name = path.read_bytes(), path.name
        folder = str(path.parent)
    else:
        raw, name, folder = OWN[kind].encode(), f"{kind}.{'csv' if kind == 'requests' else 'yaml'}", ""
    if kind == "header" and not name.endswith(".json"):
        content = damaged_bytes(raw, chooser)
    else:
        content = _damaged(raw.decode("utf-8", "surrogateescape"), name, folder, chooser)
    if chooser.random() < 0.25 and words[0] in OPTIONS:
        words = (*words, chooser.choice(OPTIONS[words[0]]), chooser.choice(WORDS))
    return Case(number, words, name, content)


def _damaged(text: str, name: str, folder: str, chooser: random.Random) -> bytes:
    # Files that it names lie where it lay.
    text = text.replace("topology: servers/", f"topology: {folder}/servers/")
    if name.endswith((".yaml", ".json")) and chooser.random() < 0.7:
        try:
            tree = yaml.safe_load(text) if name.endswith(".yaml") else json.loads(text)
        except (yaml.YAMLError, ValueError):
            tree = None
        if isinstance(tree, dict | list):
            text = (as_yaml if name.endswith(".yaml") else as_json)(damaged_tree(tree, chooser))
            if chooser.random() < 0.85:
                return text.encode("utf-8", "surrogatepass")
    return damaged_text(text, chooser).encode("utf-8", "surrogatepass")


def damaged_bytes(raw: bytes, chooser: random.Random) -> bytes:
    found = bytearray(raw)
    for _ in range(chooser.choice((1, 2, 5))):
        place = chooser.randrange(min(len(found), chooser.choice((64, 1000, 10**9))))
        what = chooser.randrange(5)
        if what == 0:
            found[place : place + 8] = chooser.choice((0, 1, 2**31, 2**32, 2**63, 2**64 - 1)).to_bytes(8, "little")
        elif what == 1:
            found[place] ^= 1 << chooser.randrange(8)
        elif what == 2:
            del found[place : place + chooser.choice((1, 8, 100))]
        elif what == 3:
            found[place:place] = found[place : place + chooser.choice((1, 8, 100))]
        else:
            found = found[: place + 1]
        if not found:
            return b""
    return bytes(found)


# What may never come of it


def wrong(done: Done) -> str:
    """What an answer has that none may; "" where it is fine."""
    if done.returncode not in (0, 1, 2):
        return f"exit status {done.returncode}"
    both = done.stdout + done.stderr
    if "Traceback (most" in both or "internal error" in both:
        return "a traceback"
    if done.returncode == 2 and not both.strip():
        return "refused without a word"
    if done.returncode != 2 and done.stdout.startswith("{"):
        try:
            answer = json.loads(done.stdout, parse_constant=lambda text: float("nan"))
        except ValueError:
            return "no JSON"
        for path in places(answer):
            value = at(answer, path)
            if isinstance(value, float) and not math.isfinite(value):
                return f"{'.'.join(map(str, path))} is {value}"
            if isinstance(value, int | float) and value < 0 and re.search(r"second|time|bytes|floor", str(path[-1])):
                if _may_be_below(answer, path):
                    continue
                if not re.search(r"left|error|gap|differ|spare|free|margin|change", ".".join(map(str, path))):
                    return f"{'.'.join(map(str, path))} is {value}"
    elif done.returncode != 2 and re.search(r"(?<![\w\"'./-])(nan|-?inf) (?:s|ms|us|ns|B|[kMGTP]B|%|tok)", done.stdout):
        return "a number that is none in the report"
    return ""


class Late(BaseException):
    """A command that takes too long."""


def _may_be_below(answer: Any, path: tuple[Any, ...]) -> bool:
    """What is left for KV of a rank that is too full, and the gap of a run that was faster than expected."""
    above = at(answer, path[:-1])
    left = path[0] == "ranks" and path[-1] == "kv_bytes"
    return left or (path[0] == "terms" and isinstance(above, dict) and above.get("grade") == "measured")


@contextlib.contextmanager
def watched(found: list[str], seconds: int = LONGEST) -> Iterator[None]:
    """Note in `found` the traceback of an error of our own, of a hang, and memory above the largest before."""
    complain: Callable[[Exception], int] = cli._complain

    def note(error: Exception) -> int:
        status = complain(error)
        if status == cli.INTERNAL:
            found.append("".join(traceback.format_exception(error)[-6:]))
        return status

    def late(*_: object) -> None:
        raise Late

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    old = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    cli._complain = note
    try:
        yield
    except Late:
        found.append("late\n" + "".join(traceback.format_exc().splitlines(True)[-14:]))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, old)
        cli._complain = complain
        if (more := (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10) > LARGEST:
            found.append(f"memory: {more / 1e9:.2f} GB more than before\n")


def ask(one: Case, folder: Path, seconds: int = LONGEST) -> tuple[Done, list[str]]:
    """Run a case in this process: what it printed, and what was wrong."""
    path = folder / one.name
    path.write_bytes(one.content)
    words = [word.replace("FILE", str(path)).replace("OUT/", f"{folder}/out-") for word in one.words]
    found: list[str] = []
    done = Done(0, "", "")
    try:
        with watched(found, seconds):
            done = run(*words)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        found.append("".join(traceback.format_exception(error)[-8:]))
    if told := wrong(done):
        found.append(told)
    return done, found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=list(KINDS))
    parser.add_argument("--only", type=int)
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_DATA, (4 << 30, 4 << 30))
    begin, number, kinds = time.monotonic(), options.seed * 10**6, set()
    counts = {"run": 0, "wrong": 0, "refused": 0, "answered": 0}
    with tempfile.TemporaryDirectory() as name:
        while time.monotonic() - begin < options.seconds:
            one = case(number if options.only is None else options.only, options.kind)
            done, found = ask(one, Path(name))
            counts["run"] += 1
            counts["refused" if done.returncode == 2 else "answered"] += 1
            if found:
                counts["wrong"] += 1
                last = re.sub(r"\d+", "#", " | ".join(part.strip().splitlines()[-1] for part in found if part.strip()))
                if last not in kinds or options.only is not None:
                    kinds.add(last)
                    print(f"== {one.number}: {' '.join(one.words)[:200]} ({one.name})", *found, sep="\n", flush=True)
                    if options.keep is not None:
                        options.keep.mkdir(parents=True, exist_ok=True)
                        (options.keep / f"{one.number}-{one.name}").write_bytes(one.content)
            if options.only is not None:
                print(done.stdout[-3000:], done.stderr[-3000:])
                break
            number += 1
            if not counts["run"] % 100:
                print(counts, "numbers below", number, flush=True)
            for made in os.listdir(name):
                path = os.path.join(name, made)
                if os.path.isfile(path):
                    os.unlink(path)
    print(counts, "numbers below", number)
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
