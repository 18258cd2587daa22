"""Finished chunks beside the output, so that a sweep that is stopped or killed goes on where it was.

`FILE.partial/` holds `manifest.json`, what was asked, and a file for each finished chunk: a line with its number, its
length and its SHA-256, then the arrays as NPZ. Each is written under another name, flushed to the disk and renamed: one
that is there under its name is whole, and one that is not what its line says is worked out again.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast
from zipfile import BadZipFile

import numpy

from offload.errors import OffloadError, OutputError
from offload.files import named

FORMAT = 1
MANIFEST = "manifest.json"


class Kept:
    """The folder of a sweep's finished chunks. path : of the output; it may be there from an earlier run."""

    def __init__(self, path: str | os.PathLike[str]):
        self.output = os.fspath(path)
        self.folder = f"{self.output.rstrip(os.sep)}.partial"

    @property
    def exists(self) -> bool:
        """Whether there is something to go on with."""
        return os.path.isfile(os.path.join(self.folder, MANIFEST))

    def asked(self) -> dict[str, Any]:
        """What the chunks that are there were asked for. Raises OffloadError where that cannot be read."""
        path = os.path.join(self.folder, MANIFEST)
        try:
            with open(path, encoding="utf-8") as file:
                found = json.load(file)
            if not isinstance(found, dict) or found.get("format") != FORMAT or not isinstance(found.get("asked"), dict):
                raise ValueError("of another version")
            asked: dict[str, Any] = found["asked"]
            return asked
        except (OSError, ValueError, RecursionError) as error:
            raise OffloadError(f"{named(path)} cannot be read ({error}). Remove {named(self.folder)} to start "
                               "anew.") from None

    def start(self, asked: Mapping[str, Any]) -> None:
        """Make the folder, empty but for what is asked. Raises OutputError where that cannot be."""
        with self._errors():
            if os.path.isdir(self.folder) and not self.exists:  # killed before there was anything in it
                for name in os.listdir(self.folder):
                    if name != f".{MANIFEST}.new":
                        raise OutputError(f"{named(self.folder)} is there and holds something else. Move it away.")
            if not os.path.isdir(self.folder):
                os.mkdir(self.folder)
            text = json.dumps({"format": FORMAT, "asked": dict(asked)}, indent=1) + "\n"
            self._write(MANIFEST, text.encode())

    def differs(self, asked: Mapping[str, Any]) -> list[str]:
        """What was asked of the chunks that are there and is not asked now, or the other way, in words."""
        before = self.asked()
        now = json.loads(json.dumps(dict(asked)))
        names = (*before, *(one for one in now if one not in before))
        told = [name for name in names if before.get(name) != now.get(name)]
        if told == ["structure"]:
            return ["the plan, its server, a setting or a file that they name was changed since"]
        changed: list[str] = []
        for name in told:
            one, other = before.get(name), now.get(name)
            if name == "axes" and isinstance(one, list) and len(one) == len(other):
                changed += [f"axis {number + 1} was {_axis(was)} and is {_axis(new)}"
                            for number, (was, new) in enumerate(zip(one, other, strict=True)) if was != new]
            elif name != "structure":
                changed.append(f"{name} was {_short(one)} and is {_short(other)}")
        return changed

    def save(self, number: int, arrays: Mapping[str, numpy.ndarray]) -> None:
        """Keep a finished chunk. Raises OutputError where it cannot be written; those before it stay."""
        held = io.BytesIO()
        numpy.savez(held, **cast("dict[str, Any]", arrays))
        with held.getbuffer() as body, self._errors():  # given back whatever happens: else it outlives what it is of
            line = {"chunk": number, "bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}
            self._write(_name(number), json.dumps(line).encode() + b"\n", body)

    def load(self, number: int) -> dict[str, numpy.ndarray] | None:
        """A finished chunk; None where there is none, or not what was written."""
        try:
            with open(os.path.join(self.folder, _name(number)), "rb") as file:
                line, body = json.loads(file.readline(4096)), file.read()
            if (line["chunk"], line["bytes"], line["sha256"]) != (number, len(body), hashlib.sha256(body).hexdigest()):
                return None
            with numpy.load(io.BytesIO(body), allow_pickle=False) as found:
                return {name: found[name] for name in found.files}
        except (OSError, ValueError, KeyError, TypeError, RecursionError, EOFError, BadZipFile):
            return None

    def array(self, name: str, size: int, kind: Any) -> numpy.ndarray:
        """An array in a file of the folder, for grids that memory does not hold. Raises OutputError."""
        with self._errors():
            path = os.path.join(self.folder, f"whole.{name}")
            with open(path, "wb") as file:
                os.posix_fallocate(file.fileno(), 0, size * numpy.dtype(kind).itemsize)
            return numpy.memmap(path, dtype=kind, mode="r+", shape=(size,))

    def remove(self) -> None:
        """Take the folder away; the manifest last, so that what is left of it by a kill is told from another's."""
        with self._errors():
            for name in os.listdir(self.folder):
                if name != MANIFEST:
                    os.unlink(os.path.join(self.folder, name))
            shutil.rmtree(self.folder)

    def _write(self, name: str, *parts: Any) -> None:
        new, path = os.path.join(self.folder, f".{name}.new"), os.path.join(self.folder, name)
        try:
            with open(new, "wb") as file:
                for part in parts:
                    file.write(part)
                file.flush()
                os.fsync(file.fileno())
            os.replace(new, path)
        except OSError:
            if os.path.exists(new):
                os.unlink(new)
            raise
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if isinstance(error, FileNotFoundError) and os.path.isdir(os.path.dirname(self.folder) or "."):
                raise OutputError(f"{named(self.folder)} is gone: another run with the same output ended, or it was "
                                  "removed.") from None
            why = error.strerror or str(error)
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                why += "; finished chunks are kept: make room, and go on with --resume"
            raise OutputError(f"{named(self.folder)} cannot be written: {why}.") from None


def _name(number: int) -> str:
    return f"chunk-{number:07d}"


def _axis(told: Any) -> str:
    try:
        return (f"{told['path']}, {told['values']:,} values from {told['first']} to {told['last']} "
                f"({told['digest']})")  # fmt: skip
    except (KeyError, TypeError, ValueError):
        return _short(told)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else f"{text[:117]}..."
