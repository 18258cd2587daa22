"""The command line in this process: what it prints and its exit status, as a process of its own would give them."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from offload import cli

ROOT = Path(__file__).resolve().parent.parent


class Done(NamedTuple):
    """What a command left behind, by the names that `subprocess` has for it."""

    returncode: int
    stdout: str
    stderr: str


@contextlib.contextmanager
def environment(**values: str) -> Iterator[None]:
    """Variables of the environment that are others for a while."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def run(*arguments: str, cwd: Path = ROOT, **variables: str) -> Done:
    """`python -m offload` with these words, in a folder. It spares the second that a new process takes to start."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(cwd), environment(**variables):
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = cli.main(arguments)
    return Done(status, out.getvalue(), err.getvalue())
