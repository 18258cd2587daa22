"""One way in for every file of weights: what a path holds decides which reader reads it."""

from __future__ import annotations

from pathlib import Path

from offload.errors import ModelError
from offload.errors import one_line as shown
from offload.files import file_errors, path_of
from offload.readers.gguf import SPLIT, read_gguf
from offload.readers.headers import open_header
from offload.readers.safetensors import LARGEST_HEADER, read_safetensors
from offload.readers.shards import read_folder, read_index
from offload.readers.stored import StoredWeights


def read_weights(path: str | Path) -> StoredWeights:
    """The weights of a GGUF file, a safetensors file, an index of shards, or a folder that holds one of these.

    Only headers are read. A file's first bytes decide, not its name; an index is known by ".json". Raises ModelError
    for what is none of them, is damaged, or is several models; FileError for what is not there or may not be read.
    """
    path = path_of(path, "files of weights")
    with file_errors(path):
        if path.is_dir():
            return _folder(path)
        if path.suffix.lower() == ".json":
            return read_index(path)
        with open_header(path) as (file, _):
            kind = kind_of(file.read(9))
        return read_gguf(path) if kind == "gguf" or path.suffix.lower() == ".gguf" else read_safetensors(path)


def kind_of(start: bytes) -> str:
    """What a file of weights is by its first 9 bytes: "gguf", "safetensors" or ""."""
    if start[:4] == b"GGUF":
        return "gguf"
    length = int.from_bytes(start[:8], "little")
    return "safetensors" if start[8:9] == b"{" and 2 <= length <= LARGEST_HEADER else ""


def weights_kind(path: Path) -> str:
    """`kind_of` a file, whatever it is called; "" for what is none or cannot be read. A pipe is not looked into."""
    try:
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            return kind_of(file.read(9))
    except (OSError, ValueError):  # its reader says what is wrong
        return ""


def _folder(path: Path) -> StoredWeights:
    names = sorted(one.name for one in path.iterdir())
    # A projector for images lies beside the model that it belongs to, and the parts of a split file are one model.
    models = [name for name in names if name.lower().endswith(".gguf") and not name.lower().startswith("mmproj")]
    wholes = {(match[1], match[3]) if (match := SPLIT.fullmatch(name)) else name: name for name in models}
    others = [name for name in names if name.endswith((".safetensors", ".safetensors.index.json"))]
    if not wholes or others and not wholes:
        return read_folder(path)
    if len(wholes) > 1 or others:
        found = [*wholes.values(), *others]
        some = ", ".join(shown(name, 100) for name in found[:6]) + (", ..." if len(found) > 6 else "")
        raise ModelError(f"{shown(path, 300)}: this folder holds several models ({some}). Give one of the files.")
    return read_gguf(path / next(iter(wholes.values())))
