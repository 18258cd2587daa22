"""Each reader of engine logs takes its own logs and leaves the others' alone; a file may hold several."""

from __future__ import annotations

import pytest

from offload.readers.engines.recognise import readers
from offload.readers.tools.recognise import readers as readers_of_outputs
from offload.readers.tools.text import clean
from tests.measured_outputs import OUTPUTS
from tests.server_logs import LOGS, log

NAMES = ("vllm", "ktransformers", "deepspeed", "accelerate")
OWN = {
    "sglang": "vllm", "vllm": "vllm", "ktransformers": "ktransformers", "deepspeed": "deepspeed", "zero": "deepspeed",
    "flexgen": "deepspeed", "bloom": "deepspeed", "accelerate": "accelerate",
}  # fmt: skip
MINE = sorted(path.name for path in LOGS.iterdir() if path.name.split("_")[0].split(".")[0] in OWN)


@pytest.mark.parametrize("name", MINE)
def test_one_reader_takes_a_log(name):
    text = clean(log(name))
    found = [module.__name__.rpartition(".")[2] for module in readers(NAMES) if module.is_it(text)]
    assert found == [OWN[name.split("_")[0].split(".")[0]]]
    assert not any(module.is_it(text) for module in readers_of_outputs())


@pytest.mark.parametrize("path", sorted(OUTPUTS.iterdir()), ids=lambda path: path.name)
def test_outputs_of_tools_are_no_logs(path):
    text = clean(path.read_text(encoding="utf-8"))
    assert not any(module.is_it(text) for module in readers(NAMES))


def test_logs_pasted_together_are_all_read():
    text = clean("\n".join(log(name) for name in ("vllm_v0_offload.log", "ktransformers_chat.txt",
                                                  "deepspeed_zero3.log", "accelerate_results.md")))  # fmt: skip
    assert [run.engine for module in readers(NAMES) for run in module.read(text)] == [
        "vllm", "ktransformers", "deepspeed", "accelerate", "accelerate"]  # fmt: skip
