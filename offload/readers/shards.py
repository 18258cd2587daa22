"""Folders of safetensors shards, and the index files that say which shard holds which tensor."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from offload.errors import ModelError
from offload.errors import one_line as shown
from offload.files import reading
from offload.readers.headers import LONGEST_NAME, MOST_TENSORS, not_a, open_header
from offload.readers.json_walk import JsonWalk
from offload.readers.safetensors import Header, header_of
from offload.readers.stored import StoredTensor, StoredWeights

LARGEST_INDEX = 100_000_000  # bytes
LONGEST_VALUE = 1024 * 1024  # of an index's metadata, or of a key that is not read
INDEX = "model.safetensors.index.json"
TORCH_INDEX = "pytorch_model.bin.index.json"
SHARD = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.safetensors")
# A further name of an index with its file, as writers spell them; what is spelled in another way is walked.
USUAL = re.compile(rb' , "([\x20!#-\[\]-~]{1,1024})" : "([\x20!#-.0-\[\]-~]{1,1024})"'.replace(b" ", rb"[ \t\n\r]*+"))
# Another copy of the same weights in Mistral's own names, and weights that are no model by themselves.
BESIDE = ("consolidated", "adapter_model")


def read_index(path: str | Path) -> StoredWeights:
    """What an index file names. Where its shards lie beside it, their headers are read too.

    From an index alone there are names and a total, no shapes. Raises ModelError for what is no index, for shards of
    which some are there and some are not, and for shards that do not hold what the index names; OSError.
    """
    path = Path(path)
    names, totals, notes = index_of(path)
    wanted = sorted(set(names.values()))
    there = [name for name in wanted if (path.parent / name).is_file()]
    for name in there:
        reading(path.parent / name)
    if not there or not path.name.endswith(".safetensors.index.json"):
        tensors = tuple(StoredTensor(name, None, "", None, file, None) for name, file in names.items())
        total = totals.get("total_size")
        notes.append("an index names tensors only: no shapes, and the bytes of all of them together"
                     + ("" if total is not None else " are not stated either"))
        return StoredWeights(str(path), "safetensors", tensors, totals, (*notes, *_totals(totals, None, None)))
    if len(there) < len(wanted):
        raise ModelError(f"{shown(path, 300)}: {_missing(wanted, there)} Download them, or read the index in a folder "
                         "without shards.")
    headers = {name: header_of(path.parent / name) for name in wanted}
    tensors, metadata, more = _joined(headers, names, path)
    read = StoredWeights(str(path), "safetensors", tensors, {**metadata, **totals}, ())
    return replace(read, notes=(*notes, *more, *_totals(totals, read.bytes, read.elements)))


def read_folder(path: str | Path) -> StoredWeights:
    """The model in a folder: by its index where it has one, else its only file or all its shards.

    Raises ModelError where the folder holds no weights that are read, or two sets of them; OSError.
    """
    path = Path(path)
    files = sorted(one.name for one in path.iterdir() if one.name.endswith(".safetensors"))
    indexes = sorted(one.name for one in path.iterdir() if one.name.endswith(".safetensors.index.json"))
    if INDEX in indexes or len(indexes) == 1:
        read = read_index(path / (INDEX if INDEX in indexes else indexes[0]))
        unused = [name for name in files if name not in read.files]
        return replace(read, path=str(path), notes=(*read.notes, *_unused(unused, path)))
    if indexes:
        raise ModelError(f"{shown(path, 300)}: this folder holds several indexes ({_some(indexes)}). Give one of them.")
    main = [name for name in files if not name.startswith(BESIDE)] or files
    chosen = ["model.safetensors"] if "model.safetensors" in main else main
    if not chosen:
        if (path / TORCH_INDEX).is_file():
            return replace(read_index(path / TORCH_INDEX), path=str(path))
        raise ModelError(f"{shown(path, 300)}: this folder holds no safetensors files and no index.")
    series = {(match[1], match[3]) for name in chosen if (match := SHARD.fullmatch(name))}
    for stem, count in series:
        wanted = [f"{stem}-{part:05}-of-{count}.safetensors" for part in range(1, int(count) + 1)]
        if any(name not in chosen for name in wanted):
            raise ModelError(f"{shown(path, 300)}: {_missing(wanted, chosen)}")
    tensors, metadata, notes = _joined({name: header_of(path / name) for name in chosen}, None, path)
    unused = [name for name in files if name not in chosen]
    return StoredWeights(str(path), "safetensors", tensors, metadata, (*notes, *_unused(unused, path)))


def _joined(headers: dict[str, Header], index: dict[str, str] | None, path: Path
            ) -> tuple[tuple[StoredTensor, ...], dict[str, Any], list[str]]:  # fmt: skip
    """The tensors of several files as one model. index : the file that counts for each name, or None."""
    where = shown(path, 300)
    metadata: dict[str, Any] = {}
    kept: dict[str, StoredTensor] = {}
    extra: list[StoredTensor] = []
    for file, header in headers.items():
        metadata |= header.metadata
        for tensor in header.tensors:
            if index is not None and index.get(tensor.name) != file:
                extra.append(tensor)
            elif tensor.name in kept:
                raise ModelError(f'{where}: tensor "{shown(tensor.name)}" is in {shown(kept[tensor.name].file)} and in '
                                 f"{shown(file)}. Give the one that is meant.")
            else:
                kept[tensor.name] = tensor
        if len(kept) + len(extra) > MOST_TENSORS:
            raise ModelError(f"{where}: more than {MOST_TENSORS:,} tensors are not read.")
    if index is not None and (absent := [name for name in index if name not in kept]):
        first = f'the first is "{shown(absent[0])}" in {shown(index[absent[0]])}'
        raise ModelError(f"{where}: the index names tensors that its shards do not hold ({len(absent):,}); {first}. "
                         "Index and shards do not belong together.")
    if not kept:
        raise ModelError(f"{where}: these files hold no tensors.")
    notes = [f"{shown(file)}: {note}" for file, header in headers.items() for note in header.notes]
    if extra:
        size = sum(one.size for one in extra)
        notes.append(f"tensors in the shards that the index does not name are not counted: {len(extra):,} of {size:,} "
                     f'bytes, the first is "{shown(extra[0].name)}"')
    return tuple(kept.values()), metadata, notes


def index_of(path: Path) -> tuple[dict[str, str], dict[str, Any], list[str]]:
    """An index's names and their files, its metadata, and notes. Raises ModelError, OSError."""
    with open_header(path) as (file, size):
        raw = file.read(min(size, LARGEST_INDEX))
    where = shown(path, 300)
    if size > LARGEST_INDEX:
        raise ModelError(f"{where}: more than {LARGEST_INDEX:,} bytes are no index.")
    try:
        if not re.match(rb"(?:\xef\xbb\xbf)?\s*\{", raw):
            raise ModelError(not_a("index", raw[:512]))
        walk = JsonWalk(raw, "the index", 3 if raw.startswith(b"\xef\xbb\xbf") else 0)
        names, totals = _document(walk)
        notes = []
        while not walk.ended():
            more, others = _document(walk)
            if (more, others) != (names, totals):
                raise ModelError("this file holds two JSON texts one behind the other, and they do not say the same. "
                                 f"The second ends at byte {walk.at:,}. Keep the one that belongs to the shards.")
            notes = ["the index holds the same JSON text twice"]
    except ModelError as error:
        raise ModelError(f"{where}: {error}") from None
    return names, totals, notes


def _document(walk: JsonWalk) -> tuple[dict[str, str], dict[str, Any]]:
    """One JSON text of an index: its weight_map and metadata."""
    names: dict[str, str] | None = None
    totals: dict[str, Any] = {}
    files: dict[str, str] = {}  # one text for each file, however many tensors name it
    for key in walk.items(LONGEST_NAME, "a key of the index"):
        if key == "weight_map":
            names = {}
            for name in walk.items(LONGEST_NAME, "a tensor's name"):
                if name in names:
                    raise walk.error(f'tensor "{shown(name)}" is named twice.')
                if len(names) >= MOST_TENSORS:
                    raise walk.error(f"more than {MOST_TENSORS:,} tensors are not read.")
                file = walk.text(LONGEST_NAME, f'the file of "{shown(name)}"')
                if not file or "/" in file or "\\" in file or "\0" in file or file in (".", ".."):
                    raise walk.error(f'the file of "{shown(name)}" is "{shown(file)}"; not a name in this folder.')
                names[name] = files.setdefault(file, file)
                while len(names) < MOST_TENSORS and (match := USUAL.match(walk.data, walk.at)):
                    name, file = match[1].decode(), match[2].decode()
                    if name in names or file in (".", ".."):
                        break  # the walk says what is wrong
                    names[name] = files.setdefault(file, file)
                    walk.at = match.end()
        else:
            value = walk.value(LONGEST_VALUE, f'"{shown(key)}"')
            if key == "metadata" and isinstance(value, dict):
                totals = _checked_totals(value)
    if names is None:
        raise ModelError('it has no "weight_map", which an index must have.')
    if not names:
        raise ModelError("its weight_map names no tensors.")
    return names, totals


def _checked_totals(metadata: dict[str, Any]) -> dict[str, Any]:
    """An index's metadata with its totals as whole numbers; some writers spell them 1.3e10 or "13000000000"."""
    for key in ("total_size", "total_parameters"):
        value = metadata.get(key)
        if value is None:
            metadata.pop(key, None)
            continue
        if isinstance(value, str) and re.fullmatch(r"\d{1,18}", value):
            value = int(value)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if type(value) is not int or not 0 <= value < 2**63:
            raise ModelError(f"{key} is {shown(json.dumps(value))}; it must be a whole number of bytes or parameters.")
        metadata[key] = value
    return metadata


def _totals(totals: dict[str, Any], size: int | None, elements: int | None) -> Iterable[str]:
    """What an index's totals say beside each other and beside the shards."""
    stated, parameters = totals.get("total_size"), totals.get("total_parameters")
    if size is not None and stated not in (None, size):
        yield f"the index states total_size {stated:,}; the shards' tensors have {size:,} bytes"
    if elements is not None and parameters not in (None, elements):
        yield (f"the index states total_parameters {parameters:,}; the shards' tensors have {elements:,} (a head that "
               "is the embedding is counted and not stored?)")
    if size is None and stated is not None and parameters:
        bits = 8 * stated / parameters
        yield (f"total_size {stated:,} over total_parameters {parameters:,} are {bits:.4g} bits each; a "
               "head that is the embedding may be counted and not stored")


def _missing(wanted: list[str], there: Iterable[str]) -> str:
    absent = [name for name in wanted if name not in set(there)]
    return f"{len(absent)} of {len(wanted)} shards are missing: {_some(absent)}."


def _some(names: list[str]) -> str:
    return ", ".join(shown(name, 100) for name in names[:6]) + (f", ... ({len(names)})" if len(names) > 6 else "")


def _unused(names: list[str], path: Path) -> list[str]:
    if not names:
        return []
    for name in names:
        reading(path / name)
    size = sum((path / name).stat().st_size for name in names)
    return [f"files beside these are not counted: {_some(names)} ({size:,} bytes)"]
