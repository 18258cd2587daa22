"""Which engine printed a log, by its content; what it says of each run.

    for run in read_log("run.log"):
        run.engine, run.model, run.timings
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType

from offload.errors import ReadingError
from offload.readers.engines.run import Run
from offload.readers.others import HEAD, looks_like
from offload.readers.tools.recognise import readers as tool_readers
from offload.readers.tools.recognise import said_of
from offload.readers.tools.text import Text, clean

LONGEST, MOST_LINES = 32 * 2**20, 1_000_000  # a server logs for hours: some seconds of reading
ENGINES = ("llama_cpp", "llama_bench", "vllm", "ktransformers", "deepspeed", "accelerate")


def readers(names: tuple[str, ...] = ENGINES) -> tuple[ModuleType, ...]:
    """The modules that read these engines' logs."""
    return tuple(import_module(f"offload.readers.engines.{name}") for name in names)


def read_log(path: str | Path) -> tuple[Run, ...]:
    """The runs that a log tells of, by every reader whose engine is in it.

    Raises FileError for a file that cannot be read, ReadingError (with the file's name) for a log of no known engine.
    """
    return said_of(path, read_runs, LONGEST)


def read_runs(content: str) -> tuple[Run, ...]:
    """The runs that a log tells of, as read_log, from its text."""
    text = clean(content, LONGEST, MOST_LINES)
    found = [module for module in readers() if module.is_it(text)]
    if not found:
        raise ReadingError(_refused(text))
    return tuple(run for module in found for run in module.read(text))


def _refused(text: Text) -> str:
    head = clean(text.whole[:HEAD])
    tool = next((module for module in tool_readers() if module.is_it(head)), None)
    if tool is not None:
        return f"looks like {tool.LOOKS_LIKE}. Give it to offload topology import, and why --on what that writes."
    if found := looks_like(text.whole):
        return f"looks like {found}"
    known = ", ".join(module.LOOKS_LIKE for module in readers())
    return f"is the log of no engine that is read here: {known}."
