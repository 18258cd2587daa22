"""Where compiled kernels are kept between runs, also where the package or the home directory cannot be written.

Asked once, before the kernels are imported: NUMBA_CACHE_DIR where it is set and can be written; else beside the
kernels, which is numba's own place; else the user's cache (XDG_CACHE_HOME or ~/.cache); else a folder of this user's
among the temporary files. Where nothing can be written the kernels are compiled anew in each run.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any

from offload.units.remarks import remark

_ONE = Lock()
LEAST_ROOM = 2**24  # bytes, of the few MB that the kernels take


def _settings() -> Any:
    """numba's configuration, which it fills from the environment."""
    import numba

    return numba.config


@cache
def kernels(name: str = "kernels") -> ModuleType:
    """The compiled kernels of a module of sweeps, imported with a place for what is compiled."""
    return kept(f"offload.sweeps.{name}")


@cache
def kept(module: str) -> ModuleType:
    """A module of compiled functions, by its full name, imported with a place for what is compiled."""

    place = _place()
    if place is not None:
        _settings().CACHE_DIR = place
        os.environ["NUMBA_CACHE_DIR"] = place  # of processes that are started from here
    elif not _writable(Path(__file__).parent / "__pycache__"):
        remark("no folder can be written to keep compiled kernels in: each run compiles them anew. Set "
               "NUMBA_CACHE_DIR to a folder that can.")  # fmt: skip
        with _uncached():
            return import_module(module)
    try:
        found = import_module(module)
    except RuntimeError as error:
        if "cannot cache" not in str(error):
            raise
        remark(f"compiled kernels cannot be kept in {place or 'the package'}: what is there is another user's. Each "
               "run compiles them anew. Set NUMBA_CACHE_DIR to a folder of your own.")  # fmt: skip
        with _uncached():
            return import_module(module)
    from offload.sweeps.kept_code import keep_safely

    keep_safely(found)
    return found


def compiled_before(name: str = "kernels") -> bool:
    """Whether the kernels of a module are there, from this run or an earlier one; else they take long the first time.
    """
    run = kernels(name).run
    try:
        return bool(run.signatures or run._cache._cache_file._load_index())
    except (AttributeError, OSError):  # nothing is kept, or where numba keeps it has moved
        return False


@contextmanager
def running(threads: int, name: str = "kernels") -> Iterator[ModuleType]:
    """The kernels of a module, for one thread at a time, which work with so many of their own: some of the ways in
    which numba runs threads end the process where two start them.
    """
    import numba

    with _ONE:
        found = kernels(name)
        before = numba.get_num_threads()
        numba.set_num_threads(max(1, min(threads, _settings().NUMBA_NUM_THREADS)))
        try:
            yield found
        finally:
            numba.set_num_threads(before)


def _place() -> str | None:
    """A folder for the cache; None for numba's own place beside the kernels, or where there is none."""
    given = os.environ.get("NUMBA_CACHE_DIR", "")
    if given and _writable(Path(given)):
        return given
    if not given and _writable(Path(__file__).parent / "__pycache__"):
        return None
    for folder in _users():
        if _writable(folder):
            return str(folder)
    return _temporary()


def _users() -> list[Path]:
    found = [Path(one) / "offload" for one in [os.environ.get("XDG_CACHE_HOME", "")] if os.path.isabs(one)]
    try:
        home = Path.home()
    except RuntimeError:  # there is no such user
        return found
    return [*found, home / ".cache" / "offload"] if home.is_dir() else found


def _temporary() -> str | None:
    """A folder of this user's alone: what is read from it is run."""
    try:
        folder = Path(tempfile.gettempdir()) / f"offload-{os.getuid() if hasattr(os, 'getuid') else 'cache'}"
        folder.mkdir(mode=0o700, exist_ok=True)
        there = folder.lstat()
    except OSError:
        return None
    if not stat.S_ISDIR(there.st_mode) or hasattr(os, "getuid") and (
            there.st_uid != os.getuid() or there.st_mode & 0o022):  # fmt: skip
        return None
    return str(folder) if _writable(folder) else None


def _writable(folder: Path) -> bool:
    """Whether files can be made in a folder, which is made if need be, and there is room."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return shutil.disk_usage(folder).free >= LEAST_ROOM
    except OSError:
        return False


class _uncached:  # noqa: N801 - used as a statement
    """While kernels are defined, `cache=True` asks for nothing: numba refuses it where it finds no place."""

    def __enter__(self) -> None:
        from numba.core.dispatcher import Dispatcher

        self.before: Any = Dispatcher.enable_caching
        setattr(Dispatcher, "enable_caching", lambda self: None)  # noqa: B010 - a method in place of another

    def __exit__(self, *error: object) -> None:
        from numba.core.dispatcher import Dispatcher

        setattr(Dispatcher, "enable_caching", self.before)  # noqa: B010
