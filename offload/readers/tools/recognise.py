"""Which tool printed a file, by its content; all that it says, by every reader whose kind is in it.

    for finding in read_output("nvbandwidth.txt"):
        finding.tool, finding.rates                  # a file may hold what several tools printed, one after another
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from offload.errors import ReadingError
from offload.files import named, read_bytes
from offload.readers.others import HEAD, looks_like
from offload.readers.tools.finding import Finding
from offload.readers.tools.text import LONGEST, Text, clean

Said = TypeVar("Said", bound=Any)
MACHINES = (
    "hwloc", "nccl_topology", "nvidia_topology", "nvidia_p2p", "nvidia_nvlink", "rocm_smi", "lspci", "numactl",
    "drives",
)  # fmt: skip
RATES = (
    "nvbandwidth", "p2p_test", "bandwidth_test", "nccl_tests", "rocm_bandwidth", "osu", "fio", "gdsio", "deepspeed_io",
    "stream", "babelstream", "mlc", "own_measurement",
)  # fmt: skip
ENGINES = "offload.readers.engines.recognise"


def readers(names: tuple[str, ...] = MACHINES + RATES) -> tuple[ModuleType, ...]:
    """The modules that read these formats."""
    return tuple(import_module(f"offload.readers.tools.{name}") for name in names)


def read_output(path: str | Path) -> tuple[Finding, ...]:
    """What a file of a tool's output says, one finding for each kind of output in it.

    Raises FileError for a file that cannot be read, ReadingError (with the file's name) for one of no known kind or
    with nothing in it.
    """
    return said_of(path, read_content, LONGEST)


def said_of(path: str | Path, read: Callable[[str], tuple[Said, ...]], longest: int) -> tuple[Said, ...]:
    """What `read` finds in a file's text, each with the file's name. Raises as `read_output`."""
    try:
        data = read_bytes(path, longest + 1)
    except IsADirectoryError:
        raise ReadingError(f"{named(path)} is a folder. Give the files in it.") from None
    try:
        return tuple(replace(one, file=named(path)) for one in read(decoded(data)))
    except ReadingError as error:
        raise ReadingError(f"{named(path)}: {error}") from None


def read_content(content: str) -> tuple[Finding, ...]:
    """What a tool's output says, as read_output, from its text."""
    text = clean(content)
    found = [module for module in readers() if module.is_it(text)]
    if not found:
        raise ReadingError(_refused(text))
    return tuple(module.read(text) for module in found)


def decoded(data: bytes) -> str:
    """Bytes as text: UTF-8 (what Windows consoles save is UTF-16); a byte that is no text reads as a replacement."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", errors="replace")
    return data.decode("utf-8", errors="replace")


def _refused(text: Text) -> str:
    head = clean(text.whole[:HEAD])
    engine = next((module for module in import_module(ENGINES).readers() if module.is_it(head)), None)
    if engine is not None:
        return f"looks like {engine.LOOKS_LIKE}. Ask what its run took with: offload why FILE --on SERVER."
    if found := looks_like(text.whole):
        return f"looks like {found}"
    known = ", ".join(module.LOOKS_LIKE for module in readers())
    return f"is the output of no tool that is read here: {known}."
