"""Plan files: whatever is written is refused or answered, never a traceback or a figure that is none."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload.documents import load_plan
from offload.errors import OffloadError
from offload.study import evaluate
from tests.plan_texts import BLOCKS, CHAIN, HAND, PLACED, write_box
from tests.runs import examples

WORDS = (
    "0 -1 1e9 1:30 NO ~ 1000000000000000000000000000000 2 3 hbm0 dram0 ssd0 gpu0 cpu0 w kv layer fetch previous.layer "
    "previous.fetch local rest none full simulate step 50% 100% 0% 5% *x &a <<: {} [] {a} [w,w] .nan .inf 0x10 010 "
    "bf16 fp8 q4_k_m q8_0 f16 é 取 \ufeff \u00a0 \t # : , {{ }} ' \" | > - ? ! % @ ` 12_000"
).split(" ") + ["4 steps", "2 layers", "0 layers", "1 GB", "0 B", "7 kB", "1 PB", "with layer", "0 FLOP", ""]
TOKENS = ("topology tensors tasks repeat overlap bytes home move to compute flops reads writes after every via buffers "
          "host_memory shared what format blocks tokens in_flight model workload placement weights config name batch "
          "context phase kv reserve title $schema").split()  # fmt: skip


@st.composite
def mutated(draw) -> str:
    """A plan that worked, with one to four slips: lines lost, doubled or swapped, words and signs changed."""
    text = draw(st.sampled_from([HAND, HAND, BLOCKS, CHAIN, PLACED, PLACED]))
    pick = random.Random(draw(st.integers(0, 2**32)))
    for _ in range(draw(st.integers(1, 4))):
        lines = text.split("\n")
        row = pick.randrange(len(lines))
        kind = pick.choice("word word word word sign line twice swap cut".split())
        if kind == "word":
            parts = lines[row].replace("{", " { ").replace("}", " } ").replace(",", " , ").split(" ")
            spots = [n for n, part in enumerate(parts) if part.strip()]
            if spots:
                spot = pick.choice(spots)
                word = pick.choice(WORDS)
                parts[spot] = pick.choice(TOKENS) + ":" if parts[spot].endswith(":") and pick.random() < 0.7 else word
            lines[row] = " ".join(parts)
        elif kind == "sign":
            spot = pick.randrange(len(lines[row]) + 1)
            lines[row] = lines[row][:spot] + pick.choice(WORDS) + lines[row][spot + pick.randrange(3) :]
        elif kind == "line":
            del lines[row]
        elif kind == "twice":
            lines.insert(row, lines[row])
        elif kind == "swap":
            other = pick.randrange(len(lines))
            lines[row], lines[other] = lines[other], lines[row]
        else:
            lines = lines[:row]
        text = "\n".join(lines)
    return text


@pytest.fixture(scope="module")
def room(tmp_path_factory) -> Path:
    return write_box(tmp_path_factory.mktemp("plans"))


def refused_or_answered(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    try:
        plan, topology = load_plan(path)
        study = evaluate(topology, plan)
    except OffloadError as error:
        assert str(error) and "Traceback" not in str(error)
        return
    figures = [
        study.floor.seconds, study.floor_sustained.seconds, study.serial.seconds, study.serial.cold_seconds,
        study.overlapped.seconds, study.overlapped.low, study.overlapped.high, study.overlapped.cold_seconds,
        *(row.load for row in study.resources), *(row.least for row in study.resources),
        *(row.used for row in study.memory), *(move.bytes for move in study.moves),
    ]  # fmt: skip
    assert all(math.isfinite(figure) and figure >= 0 for figure in figures)
    assert study.floor.seconds <= study.overlapped.seconds * (1 + 1e-9) <= study.serial.seconds * (1 + 1e-8)
    assert study.floor.cold_seconds <= study.overlapped.cold_seconds * (1 + 1e-9)


@examples(100, 300)
@given(text=mutated())
def test_a_mutated_plan_is_refused_or_answered(room, text):
    refused_or_answered(room / "plan.yaml", text)


@st.composite
def written(draw) -> str:
    """A plan by hand in which every key has a value that it may have; orders and places may still contradict."""
    pick = random.Random(draw(st.integers(0, 2**32)))
    homes = ["dram0", "hbm0", "ssd0", "{dram0: 50%, hbm0: rest}", "{ssd0: 1 MB, dram0: rest}"]
    names = ["w", "x", "y"][: pick.randint(1, 3)]
    lines = ["topology: ./box.yaml", "tensors:"]
    for name in names:
        size = pick.choice(["200 MB", "3 MB", "1 GB", "1 MB"])
        shared = pick.choice(["", ", shared: true"])
        lines.append(f"  {name}: {{bytes: {size}, home: {pick.choice(homes)}{shared}}}")
    lines.append("blocks:")
    earlier: list[str] = []
    for _ in range(pick.randint(1, 3)):
        lines += [f"- repeat: {pick.choice([1, 1, 2, 5])}", "  tasks:"]
        tasks = [f"t{n}" for n in range(pick.randint(1, 4))]
        for task in tasks:
            others = [*tasks[: tasks.index(task)], *earlier]
            after = [pick.choice(["", "", "previous."]) + pick.choice(others) for _ in others[:pick.randint(0, 2)]]
            more = f", after: [{', '.join(dict.fromkeys(after))}]" if after else ""
            more += pick.choice(["", "", "", ", every: step", ", every: 3 steps", ", every: layer"])
            if pick.random() < 0.5:
                more += pick.choice(["", ", buffers: 1", ", buffers: 3", ", host_memory: pageable", ", via: socket0"])
                to = pick.choice(["hbm0", "hbm0", "dram0"])
                lines.append(f"    {task}: {{move: {pick.choice(names)}, to: {to}{more}}}")
            else:
                reads = pick.sample(names, pick.randint(0, len(names)))
                writes = pick.sample(names, pick.randint(0, 1))
                flops = pick.choice(["", ", flops: 1 TFLOP, format: bf16", ", flops: 20 GFLOP"])
                lines.append(f"    {task}: {{compute: {pick.choice(['gpu0', 'gpu0', 'cpu0'])}{flops}, "
                             f"reads: [{', '.join(reads)}], writes: [{', '.join(writes)}]{more}}}")  # fmt: skip
        earlier += [task for task in tasks if task not in earlier]
    lines += [f"overlap: {pick.choice(['none', 'full', '1', '2', '3'])}", f"in_flight: {pick.choice([1, 1, 2])}"]
    return "\n".join(lines) + "\n"


@examples(70, 200)
@given(text=written())
def test_a_plan_of_possible_values_is_refused_or_answered(room, text):
    refused_or_answered(room / "plan.yaml", text)
