"""Compiled kernels as files that may be damaged, another's, or written by several processes at once.

numba reads what it kept as it finds it: a file that ends early, or that may not be read or written, would end the run,
and processes that compile at once number their files alike. Here such a file counts as not there, so that the kernel is
compiled anew and takes its place where it may be written, and a file's name says what it holds. numba asks whether a
function's own file has changed; here also those of the functions that are compiled into it.
"""

from __future__ import annotations

import hashlib
import inspect
from functools import cache
from types import ModuleType
from typing import Any


@cache
def kept_code() -> Any:
    """The class of the index and the files of one compiled function."""
    from numba.core.caching import IndexDataCacheFile

    base: Any = IndexDataCacheFile  # numba has no types

    class KeptCode(base):  # type: ignore[misc]
        def _load_index(self) -> dict[Any, str]:
            try:
                found: dict[Any, str] = super()._load_index()
            except Exception:  # whatever unpickling a damaged file, or opening it, ends in
                return {}
            return found

        def _load_data(self, name: str) -> Any:
            try:
                return super()._load_data(name)
            except Exception as error:
                raise OSError(f"{name} is damaged") from error  # which numba takes as a file that is not there

        def save(self, key: Any, data: Any) -> None:
            """Keep a compiled function: first it, then the index that names it; nothing where it cannot be written."""
            number = hashlib.sha256(self._dump((self._source_stamp, key))).digest()[:7]
            name = self._data_name(int.from_bytes(number, "big"))
            try:
                self._save_data(name, data)
                self._save_index(self._load_index() | {key: name})
            except OSError:
                return

    return KeptCode


def keep_safely(module: ModuleType) -> None:
    """Let all compiled functions of a module be kept so; MADE_OF in it : the other modules that they are made of."""
    made_of = tuple(_digest(one) for one in getattr(module, "MADE_OF", ()))
    for function in vars(module).values():
        file = getattr(getattr(function, "_cache", None), "_cache_file", None)
        if file is not None and type(file) in kept_code().__bases__:
            file.__class__ = kept_code()
            file._source_stamp = (file._source_stamp, made_of) if made_of else file._source_stamp


def _digest(module: ModuleType) -> str:
    """A text that is another where a module's source is; "" where it has none."""
    try:
        return hashlib.sha256(inspect.getsource(module).encode()).hexdigest()
    except OSError:
        return ""
