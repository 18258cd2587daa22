"""Every reader ends within a second of processor time, whatever a file holds: repeated, cut, of one line, of none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from offload.errors import OffloadError, ReadingError
from offload.readers.tools.recognise import read_content, readers
from offload.readers.tools.text import LONGEST, MOST_LINES, clean
from tests.pace import within

OUTPUTS = sorted((Path(__file__).parent / "data" / "outputs").iterdir())
PLAIN = {
    "prose": "the quick brown fox jumps over the lazy dog, 12345 times and more\n",
    "figures": "  12  34.5 55.2 N/A 17.1 22.3 44.4 12.0 9 8 7 6 5 4 3 2 1 0 9 8 7 6\n",
    "log": "2024-01-02 03:04:05,123 INFO worker.py:12] step 17 loss 3.2\n",
    "codes": "\x1b[4mGPU0\tGPU1\x1b[0m NV18 X PIX and as many words as a line has in the mean\n",
    "one line": "abc def ",
    "GPUs": "GPU0 GPU1 GPU2 GPU3 CPU Affinity and some more words behind them\n",
    "brackets": "[[[[[[[[[{{{{{{{",
    "broken objects": '{"results": x ',
    "open lists": '{"results": [1, ',
    "open strings": '{"blockdevices": "[[[[[[[[[[[[[[[[[[[[[[[[[[',
}  # fmt: skip


def filled(unit: str) -> str:
    """As much of a text as is read at most."""
    return unit * max(1, min(LONGEST // len(unit), MOST_LINES // (unit.count("\n") + 1)))


def each_in_time(content: str) -> None:
    modules, text = [*readers()], clean(content)  # imported before the clock runs
    for module in modules:
        with within(1, module.__name__):
            if module.is_it(text):
                try:
                    module.read(text)
                except OffloadError:
                    pass


@pytest.mark.few
@pytest.mark.parametrize("path", OUTPUTS, ids=lambda path: path.name)
def test_an_output_over_and_over(path):
    content = path.read_text(encoding="utf-8", errors="replace") + "\n"
    each_in_time(filled(content))


@pytest.mark.slow
@pytest.mark.parametrize("path", OUTPUTS, ids=lambda path: path.name)
def test_each_line_of_an_output_over_and_over(path):
    content = path.read_text(encoding="utf-8", errors="replace") + "\n"
    times = len(filled(content)) // len(content)
    each_in_time("".join(line * times for line in content.splitlines(keepends=True)))


@pytest.mark.few
@pytest.mark.parametrize("kind", PLAIN)
def test_a_text_that_is_no_output_is_refused_within_a_second(kind):
    content = filled(PLAIN[kind])
    with within(1.5):
        each_in_time(content)
    with pytest.raises(ReadingError):
        read_content(content)


def test_json_that_is_cut_within_many_lists():
    for content in ('{"fio version": "fio-3.1", "jobs": [' + "[" * 400 + "1, " * 600_000,
                    '{"a": x} ' * 200_000 + '{"nvbandwidth": 1}', '[12 "fio version": ' * 100_000):  # fmt: skip
        each_in_time(content)


def test_json_is_found_behind_what_only_looks_like_it():
    text = clean('[1, 2 {"a": 1} {x} ["b"\n' + '{"c": [' + "1, " * 5000 + '2], "d": {"e": "' + "f" * 9000 + '"}} [7]')
    assert [(line, value if line == 1 else sorted(value)) for line, value in text.json_values()] == [
        (1, {"a": 1}), (2, ["c", "d"]), (2, [7])]  # fmt: skip
    assert [line for line, _ in text.json_values("c")] == [2]


@pytest.mark.slow
def test_many_devices():
    drives = [{"name": f"sda{n}x", "type": "disk", "size": 10**12 + n, "model": "M"} for n in range(15_000)]
    each_in_time(json.dumps({"blockdevices": drives}))
    matrix = {f"(Topology) Weight between DRM devices {a} and {b}": "15" for a in range(150) for b in range(a)}
    each_in_time(json.dumps({"system": matrix}))
    each_in_time("".join(f"{n >> 8:04x}:{n & 255:02x}:00.0 3D controller: NVIDIA X\n" for n in range(15_000)))
    each_in_time("".join(f"node {n} cpus: 1 2 3\nnode {n} size: 100 MB\n" for n in range(15_000)))


def test_too_long_is_refused_with_what_to_do():
    for content in ("a" * (LONGEST + 1), "a\n" * (MOST_LINES + 1)):
        with pytest.raises(ReadingError, match="Give the part"):
            clean(content)
