"""A file of another kind is refused by what it looks like, with the place where it belongs."""

from __future__ import annotations

import gzip
import re

import pytest

from offload.errors import ReadingError
from offload.readers.engines.recognise import read_log, read_runs
from offload.readers.tools.recognise import read_content, read_output

STREAM = "Function    Best Rate MB/s  Avg time     Min time     Max time\nCopy:  100.0  0.1  0.1  0.1\n"
MAP = "Some parameters are on the meta device because they were offloaded to the cpu.\n"
NEITHER = {  # neither an output nor a log
    "a plan file": "topology: gh200\nworkload: {phase: decode}\n",
    "a topology file already": "title: mine\nmemories:\n  hbm0: {kind: hbm}\n",
    "a model's config.json": '{"architectures": ["LlamaForCausalLM"]}',
    "safetensors": '\0\0{"model.norm.weight":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}}',
    "lscpu": "Architecture:  x86_64\nCPU(s):        256\nModel name:    Some CPU\n",
    "free": "       total        used        free      shared\nMem:   503Gi  12Gi  480Gi\n",
    "dd": "1024+0 records in\n1024+0 records out\n1073741824 bytes copied, 0.512 s, 2.1 GB/s\n",
    "mbw": "AVG\tMethod: MEMCPY\tElapsed: 0.21\tMiB: 1024.0\tCopy: 4800.1 MiB/s\n",
    "dmidecode": "# dmidecode 3.3\nHandle 0x1, DMI type 17\nMemory Device\n",
    "plain nvidia-smi": "| NVIDIA-SMI 570.124.06   Driver Version: 570.124.06 |\n",
}


@pytest.mark.parametrize("kind", NEITHER)
@pytest.mark.parametrize("read", [read_content, read_runs])
def test_what_is_neither(kind: str, read):
    with pytest.raises(ReadingError, match=rf"^looks like {re.escape(kind)}\b"):
        read(NEITHER[kind])


@pytest.mark.parametrize("read", [read_output, read_log])
def test_what_is_no_text(read, tmp_path):
    for name, data, kind in (("a.gz", gzip.compress(STREAM.encode() * 3, mtime=0), "a file that is no text"),
                             ("a.png", b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "a picture or a PDF")):  # fmt: skip
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(ReadingError, match=f"{name}: looks like {kind}"):
            read(path)


def test_a_log_is_no_output_and_an_output_no_log():
    with pytest.raises(ReadingError, match="looks like a device map .* offload why FILE"):
        read_content(MAP)
    with pytest.raises(ReadingError, match="looks like STREAM. Give it to offload topology import"):
        read_runs(STREAM)


def test_what_nothing_is_known_of_gets_the_list():
    with pytest.raises(ReadingError, match="output of no tool that is read here: hwloc"):
        read_content("dear diary\n")
    with pytest.raises(ReadingError, match="log of no engine that is read here: llama.cpp"):
        read_runs("dear diary\n")
