"""safetensors headers: one file, shards, indexes, and the safetensors library as the oracle."""

from __future__ import annotations

import io
import json
import re
import struct
from pathlib import Path

import pytest

from offload.errors import ModelError, OffloadError
from offload.readers.safetensors import BITS, LARGEST_HEADER, LONGEST_TEXT, read_header, read_safetensors
from offload.readers.shards import INDEX, read_index
from offload.readers.stored import Omitted
from offload.readers.weight_files import read_weights
from tests.weight_bytes import Counted, entry, laid_out, safetensors_bytes

DATA = Path(__file__).parent / "data" / "weights"
SAMPLES = Path(__file__).parents[2] / "shared" / "samples"  # where a larger collection lies
Q, K = "model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.k_proj.weight"


def read(raw: bytes, size: int | None = None):
    return read_header(io.BytesIO(raw), len(raw) if size is None else size, "f.safetensors")


def refusal(raw: bytes, size: int | None = None) -> str:
    with pytest.raises(ModelError) as error:
        read(raw, size)
    return str(error.value)


def write(path: Path, tensors: list, data: bool = True, **metadata) -> Path:
    entries = laid_out(tensors)
    size = sum(tensor[3] for tensor in tensors) if data else 0
    path.write_bytes(safetensors_bytes(({"__metadata__": metadata} if metadata else {}) | entries, bytes(size)))
    return path


# --- one file ---


def test_a_tiny_file_of_the_library():
    weights = read_weights(DATA / "tiny_mixed.safetensors")
    found = {tensor.name: (tensor.type, tensor.shape, tensor.bytes) for tensor in weights.tensors}
    assert found == {
        "empty": ("f32", (0, 4), 0),
        "model.layers.0.mlp.down_proj.weight_scale": ("f32", (32, 1), 128),
        "model.norm.weight": ("f32", (32,), 128),
        "model.embed_tokens.weight": ("f16", (64, 32), 4096),
        "model.layers.0.self_attn.q_proj.weight": ("f16", (32, 32), 2048),
        "model.layers.0.mlp.down_proj.weight": ("i8", (32, 64), 2048),
    }
    assert (weights.bytes, weights.format, weights.notes) == (8448, "safetensors", ())
    assert dict(weights.metadata) == {"format": "pt"}
    assert weights.elements == 32 + 2048 + 1024 + 2048
    assert weights.by_role()["ffn_down"].bits_per_weight == 8 + 8 * 128 / 2048
    raw = (DATA / "tiny_mixed.safetensors").read_bytes()
    last = weights.tensors[-1]
    assert last.offset + last.bytes == len(raw)


def test_a_file_that_is_cut_behind_its_header_is_read_and_says_so(tmp_path):
    whole = (DATA / "tiny_mixed.safetensors").read_bytes()
    path = tmp_path / "cut.safetensors"
    path.write_bytes(whole[:-3000])
    cut, full = read_safetensors(path), read_safetensors(DATA / "tiny_mixed.safetensors")
    assert [tensor.bytes for tensor in cut.tensors] == [tensor.bytes for tensor in full.tensors]
    (note,) = cut.notes
    assert "5,448 of 8,448 bytes of data, and 2 of 6 tensors are not wholly there" in note


@pytest.mark.parametrize("kind", BITS)
def test_every_dtype_takes_its_bits(kind):
    size = BITS[kind] * 8 // 8 * 3
    (tensor,) = read(safetensors_bytes({"a": entry(kind, [3, 8], 0, size)}, bytes(size))).tensors
    assert (tensor.type, tensor.bytes, tensor.elements) == (kind.lower(), size, 24)
    assert "takes" in refusal(safetensors_bytes({"a": entry(kind, [3, 8], 0, size + 1)}, bytes(size + 1)))


def test_a_format_that_is_not_known_keeps_the_bytes_that_the_header_states():
    header = read(safetensors_bytes({"a": entry("F2_NEW", [16], 0, 4)}, bytes(4)))
    assert (header.tensors[0].type, header.tensors[0].bytes) == ("f2_new", 4)
    assert "not known (F2_NEW)" in header.notes[0]


def test_blanks_behind_the_header_holes_and_other_keys():
    entries = {"b": entry("U8", [4], 8, 12) | {"more": {"deep": [1]}}, "a": entry("U8", [4], 0, 4)}
    header = read(safetensors_bytes(entries, bytes(12), pad=77))
    assert [tensor.name for tensor in header.tensors] == ["a", "b"]  # as they lie in the file
    assert header.notes == ("4 bytes between its tensors belong to none",)


def test_long_texts_of_metadata_are_counted():
    metadata = {"short": "x", "long": "ü" * LONGEST_TEXT}
    header = read(safetensors_bytes({"__metadata__": metadata, "a": entry("U8", [1], 0, 1)}, b"1"))
    assert dict(header.metadata) == {"short": "x", "long": Omitted("text", 2 * LONGEST_TEXT)}


# --- damaged files ---


def plain(header: bytes, data: int = 0) -> bytes:
    return struct.pack("<Q", len(header)) + header + bytes(data)


ENTRY = json.dumps(entry("U8", [4], 0, 4)).encode()


@pytest.mark.parametrize(
    "raw, message",
    [
        (b"1234", "this is no safetensors file"),
        (struct.pack("<Q", 2**63) + b"{}", "header would have 9,223,372,036,854,775,808 bytes"),
        (struct.pack("<Q", LARGEST_HEADER + 1) + b"{}", "header would have 100,000,001 bytes"),
        (struct.pack("<Q", 0) + bytes(9), "zero bytes"),
        (struct.pack("<Q", 1) + b"{", "this is no safetensors file"),
        (plain(b"[]"), "this is no safetensors file"),
        (struct.pack("<Q", 500) + b'{"a"', "cut within its header: it ends at byte 12, the header at 508"),
        (plain(b'{"a"}'), 'byte 4: no JSON, ":" is due here'),
        (plain(b'{"a":' + ENTRY), 'no JSON, "," is due here and its end stands'),
        (plain(b'{"a":' + ENTRY + b"}{}"), "something follows"),
        (plain(b'{"a":' + ENTRY + b"}" + bytes(3)), "something follows"),
        (plain(b'{"a":' + ENTRY + b',"a":' + ENTRY + b"}", 4), '"a" is described twice'),
        (plain(b'{"a":' + ENTRY + b',"b":' + ENTRY + b"}", 4), 'tensor "b" begins at byte 0 .* inside "a"'),
        (plain(b'{"a":{"dtype":"U8","dtype":"U8"}}'), 'holds the key "dtype" twice'),
        (plain(b'{"\xff\xfe":' + ENTRY + b"}"), "no text in UTF-8"),
        (plain(b'{"\\ud800":' + ENTRY + b"}"), "no text in UTF-8"),
        (plain(b'{"a":{"dtype":"\xff"}}'), "byte 15: here is no text in UTF-8"),
        (plain(b'{"a\nb":' + ENTRY + b"}"), "must be a text in quotes"),
        (plain(b'{"' + b"x" * 10_000_000 + b'":' + ENTRY + b"}"), '"x+.*" is 10,000,000 bytes long'),
        (plain(b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}"), "nests too deeply"),
        (plain(b'{"a":' + b'{"a":' * 3000 + b"1" + b"}" * 3001), "nests too deeply"),
        (plain(b'{"a":"' + b"[" * 20_000 + b'"}'), "longer than the 16,384 bytes"),
        (plain(b'{"a":{"dtype":"U8","shape":[' + b"9" * 5000 + b'],"data_offsets":[0,1]}}'), "too long a number"),
        (plain(b'{"a":' + b" " * 20_000 + b"}"), "no JSON"),
        (plain(b'{"a":3}'), "must be a map with dtype, shape, data_offsets"),
        (plain(b'{"a":{"dtype":"U8","shape":[1]}}'), "must be a map with"),
        (plain(json.dumps({"a": entry(7, [1], 0, 1)}).encode()), "its dtype is 7"),
        (plain(json.dumps({"a": entry("\x1b[2J", [1], 0, 1)}).encode()), r'dtype is "\\x1b\[2J"'),
        (plain(json.dumps({"a": entry("U8", [-1], 0, 1)}).encode()), r"its shape is \[-1\]"),
        (plain(json.dumps({"a": entry("U8", [True], 0, 1)}).encode()), r"its shape is \[True\]"),
        (plain(json.dumps({"a": entry("U8", [1.0], 0, 1)}).encode()), r"its shape is \[1.0\]"),
        (plain(json.dumps({"a": entry("U8", {}, 0, 1)}).encode()), r"its shape is \{\}"),
        (plain(json.dumps({"a": entry("U8", [1] * 65, 0, 1)}).encode()), "at most 64 whole numbers"),
        (plain(json.dumps({"a": entry("U8", [2**63], 0, 1)}).encode()), "its shape is"),
        (plain(json.dumps({"a": entry("U8", [2**40, 2**40], 0, 1)}).encode()), "more elements than any file holds"),
        (plain(json.dumps({"a": entry("U8", [1], 2, 1)}).encode()), r"ends \(byte 1\) before it begins \(byte 2\)"),
        (plain(json.dumps({"a": entry("U8", [1], -1, 0)}).encode()), r"data_offsets are \[-1, 0\]"),
        (plain(json.dumps({"a": entry("U8", [1], 0, 2**64)}).encode()), "data_offsets are"),
        (plain(json.dumps({"a": entry("U8", [2], 0, 1)}).encode()), "takes 2 bytes, its offsets give 1"),
        (plain(json.dumps({"a": entry("F4", [3], 0, 1)}).encode()), "takes 1 bytes and 4 bits"),
        (plain(json.dumps({"a": entry("U8", [1], 2**50, 2**50 + 1)}).encode()), "past the end of the file"),
        (plain(b'{"__metadata__":{"a":1}}'), '"a" of __metadata__ must be a text'),
        (plain(b'{"__metadata__":[]}'), "must be a map"),
        (plain(b'{"a":{"dtype":"U8","shape":[NaN],"data_offsets":[0,1]}}'), "its shape is"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_damaged_headers(raw, message):
    assert re.search(message, refusal(raw)), refusal(raw)


@pytest.mark.parametrize(
    "raw, what",
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n", "a Git LFS pointer"),
        (b"/annex/objects/SHA256E-s497774208--0.safetensors\n", "a git-annex pointer"),
        (b"PK\x03\x04" + bytes(60), "a zip archive"),
        (b"\x80\x02}q\x00(X\x05\x00\x00\x00", "a pickle"),
        (b"<!DOCTYPE html><html>", "a web page"),
        (b"\n <html lang='en'>", "a web page"),
        (b'{"error": "Repository not found"}', "JSON text"),
        (b"tjgg\x01\x00\x00\x00" + bytes(40), "a GGML file from before GGUF"),
        (b"\x1f\x8b\x08" + bytes(40), "a compressed file"),
        (b"\x89HDF\r\n\x1a\n" + bytes(40), "an HDF5 file"),
        (b"Access to model X is restricted.", "plain text"),
        (bytes(64), "zero bytes"),
        (b"\x93NUMPY\x01\x00" + bytes(40), "a NumPy array"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("ending", ["safetensors", "gguf"])
def test_what_is_no_file_of_weights_says_what_it_looks_like(tmp_path, raw, what, ending):
    path = tmp_path / f"model.{ending}"
    path.write_bytes(raw)
    with pytest.raises(ModelError) as error:
        read_weights(path)
    kind = "GGUF" if ending == "gguf" else ending
    assert str(error.value).startswith(f"{path}: this is no {kind} file. It looks like {what}")


def test_the_first_bytes_decide_not_the_name(tmp_path):
    path = tmp_path / "weights"
    path.write_bytes((DATA / "tiny_llama_mixed.header.gguf").read_bytes())
    assert read_weights(path).format == "gguf"
    path.write_bytes((DATA / "tiny_mixed.safetensors").read_bytes())
    assert read_weights(path).format == "safetensors"


@pytest.mark.parametrize("name, message", [("", "the file is empty"), ("folder", "no safetensors files and no index")])
def test_nothing_to_read(tmp_path, name, message):
    path = tmp_path / "empty.safetensors"
    path.touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(ModelError, match=message):
        read_weights(tmp_path / name if name else path)


def test_no_tensors(tmp_path):
    path = tmp_path / "none.safetensors"
    path.write_bytes(safetensors_bytes({"__metadata__": {"format": "pt"}}))
    with pytest.raises(ModelError, match="holds no tensors"):
        read_weights(path)
    with pytest.raises(ModelError, match="hold no tensors"):
        read_weights(tmp_path)


def test_devices_and_names_that_no_file_has():
    with pytest.raises(ModelError, match="no regular file"):
        read_weights("/dev/null")
    with pytest.raises(OffloadError, match="no file can have such a name"):
        read_weights("a\0b")
    with pytest.raises(FileNotFoundError):
        read_weights("there/is/none.safetensors")


def test_messages_hold_nothing_that_a_terminal_obeys():
    raw = safetensors_bytes({"\x1b[2Jname": entry("U8", [2], 0, 1)}, b"1")
    assert "\x1b" not in refusal(raw) and "\\x1b[2Jname" in refusal(raw)


# --- folders and indexes ---


def sharded(folder: Path, total: int | None = None, parameters: int | None = None, **files: list) -> Path:
    """A folder of shards with an index; keyword arguments are shard1=[tensors], ..."""
    names = {f"model-{number:05}-of-{len(files):05}.safetensors": tensors
             for number, tensors in enumerate(files.values(), 1)}  # fmt: skip
    for name, tensors in names.items():
        write(folder / name, tensors)
    given = {"total_size": total, "total_parameters": parameters}
    totals = {key: value for key, value in given.items() if value is not None}
    weight_map = {tensor[0]: name for name, tensors in names.items() for tensor in tensors}
    (folder / INDEX).write_text(json.dumps({"metadata": totals, "weight_map": weight_map}))
    return folder


TWO = {"one": [(Q, "BF16", [4, 4], 32)], "two": [(K, "BF16", [2, 4], 16), ("lm_head.weight", "F32", [4], 16)]}


@pytest.mark.parametrize("given", ["", INDEX])
def test_shards_are_one_model(tmp_path, given):
    weights = read_weights(sharded(tmp_path, 64, 28, **TWO) / given)
    assert (weights.bytes, weights.elements, len(weights.files)) == (64, 28, 2)
    assert weights.notes == ()
    assert weights.metadata["total_size"] == 64


def test_without_an_index_all_shards_must_be_there(tmp_path):
    folder = sharded(tmp_path, **TWO)
    (folder / INDEX).unlink()
    assert read_weights(folder).bytes == 64
    (folder / "model-00001-of-00002.safetensors").unlink()
    with pytest.raises(ModelError, match="1 of 2 shards are missing: model-00001-of-00002.safetensors"):
        read_weights(folder)


def test_an_index_whose_shards_are_partly_there(tmp_path):
    folder = sharded(tmp_path, 64, **TWO)
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ModelError, match="1 of 2 shards are missing: model-00002-of-00002.safetensors. Download"):
        read_weights(folder)
    (folder / "model-00001-of-00002.safetensors").unlink()
    weights = read_weights(folder)
    assert weights.bytes == 64 and not weights.sized and weights.elements is None
    assert weights.by_role() == weights.by_layer() == weights.types() == {}
    assert [group.bytes for group in weights.groups] == [None] * 3


def test_totals_are_held_beside_what_the_shards_hold(tmp_path):
    notes = read_weights(sharded(tmp_path, 60, 44, **TWO)).notes
    assert notes[0] == "the index states total_size 60; the shards' tensors have 64 bytes"
    assert "total_parameters 44; the shards' tensors have 28 (a head that is the embedding" in notes[1]


def test_a_consolidated_copy_beside_the_shards_is_not_counted_twice(tmp_path):
    folder = sharded(tmp_path, 64, **TWO)
    write(folder / "consolidated.safetensors", [("layers.0.attention.wq.weight", "BF16", [4, 4], 32)])
    weights = read_weights(folder)
    assert weights.bytes == 64
    assert "not counted: consolidated.safetensors" in weights.notes[0]
    (folder / INDEX).unlink()
    assert read_weights(folder).bytes == 64
    for name in ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"):
        (folder / name).unlink()
    assert read_weights(folder).bytes == 32


def test_a_tensor_that_the_index_does_not_name_is_not_loaded_and_not_counted(tmp_path):
    folder = sharded(tmp_path, 64, **TWO)
    write(folder / "model-00001-of-00002.safetensors", [*TWO["one"], ("stray", "U8", [9], 9)])
    weights = read_weights(folder)
    assert weights.bytes == 64
    assert weights.notes[0].endswith('does not name are not counted: 1 of 9 bytes, the first is "stray"')


def test_an_index_of_other_shards(tmp_path):
    folder = sharded(tmp_path, 64, **TWO)
    write(folder / "model-00001-of-00002.safetensors", [("other", "U8", [9], 9)])
    with pytest.raises(ModelError, match=rf'that its shards do not hold \(1\); the first is "{Q}"'):
        read_weights(folder)


def test_two_copies_of_a_tensor_without_an_index(tmp_path):
    write(tmp_path / "a.safetensors", TWO["one"])
    write(tmp_path / "b.safetensors", TWO["one"])
    with pytest.raises(ModelError, match=r"is in a.safetensors and in b.safetensors"):
        read_weights(tmp_path)
    write(tmp_path / "model.safetensors", TWO["two"])  # where there is a model.safetensors, it is the model
    assert read_weights(tmp_path).bytes == 32


def test_several_models_in_a_folder(tmp_path):
    gguf = (DATA / "tiny_llama_mixed.header.gguf").read_bytes()
    (tmp_path / "q4.gguf").write_bytes(gguf)
    (tmp_path / "mmproj-q8.gguf").write_bytes(gguf)
    assert read_weights(tmp_path).path.endswith("q4.gguf")
    (tmp_path / "q8.gguf").write_bytes(gguf)
    with pytest.raises(ModelError, match=r"several models \(q4.gguf, q8.gguf\)"):
        read_weights(tmp_path)


def test_an_index_of_pickled_shards_gives_names_and_the_total(tmp_path):
    path = tmp_path / "pytorch_model.bin.index.json"
    totals = {"total_size": 13_476_839_424.0}
    path.write_text(json.dumps({"metadata": totals, "weight_map": {Q: "pytorch_model-1.bin"}}))
    (tmp_path / "pytorch_model-1.bin").write_bytes(b"PK\x03\x04")
    weights = read_weights(tmp_path)
    assert (weights.bytes, len(weights.tensors)) == (13_476_839_424, 1)
    assert weights.tensors[0].shape is None


# --- published indexes ---

# Index: tensors, total_size, total_parameters.
TOTALS = {
    "Devstral-Small-2507": (363, 47_144_806_400, 23_572_403_200),
    "falcon-180B": (644, 359_045_130_240, None),
    "gemma-2b": (164, 5_012_344_832, None),
    "gemma-3-27b": (400, 54_864_813_280, 28_842_036_848),
    "Molmo7B-NF4": (400, 6_661_964_712, 8_021_025_280),
    "Phi-3-mini-variant": (195, 7_642_159_104, None),
}


@pytest.mark.parametrize("name", TOTALS)
def test_published_indexes(name):
    weights = read_weights(DATA / f"{name}.model.safetensors.index.json")
    assert (len(weights.tensors), weights.bytes, weights.metadata.get("total_parameters")) == TOTALS[name]


def test_gemma_3_counts_a_head_that_it_does_not_store():
    """262,208 x 5,376 embeddings stand for the head, too: that many parameters have no bytes of their own."""
    weights = read_weights(DATA / "gemma-3-27b.model.safetensors.index.json")
    assert weights.metadata["total_parameters"] - weights.bytes // 2 == 262_208 * 5_376
    assert any("15.22 bits each; a head that is the embedding" in note for note in weights.notes)


def test_molmos_companions_are_counted_to_their_matrices():
    weights = read_weights(DATA / "Molmo7B-NF4.model.safetensors.index.json")
    groups = [group for group in weights.groups if group.companions]
    assert {len(group.companions) for group in groups if group.layer != 26} == {3}
    assert {group.role for group in groups} == {"attn_qkv", "attn_output", "ffn_gate_up", "ffn_down"}


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the larger collection of samples is not here")
def test_samples_of_a_larger_collection():
    for path in sorted((SAMPLES / "safetensors_index").glob("*.json")):
        weights = read_weights(path)
        assert weights.bytes == TOTALS[path.name.split(".model.")[0]][1]
    assert read_weights(SAMPLES / "safetensors").bytes == 8448


# --- odd indexes ---


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "the file is empty"),
        ("[]", "this is no index"),
        ("{}", 'has no "weight_map"'),
        ('{"weight_map": {}}', "names no tensors"),
        ('{"weight_map": []}', "must be a map"),
        ('{"weight_map": {"a": 1}}', 'the file of "a" must be a text'),
        ('{"weight_map": {"a": "../b.safetensors"}}', "not a name in this folder"),
        ('{"weight_map": {"a": ""}}', "not a name in this folder"),
        ('{"weight_map": {"a": "f", "a": "f"}}', "named twice"),
        ('{"weight_map": {"a": "f"}', '"," is due here and its end stands'),
        ('{"metadata": {"total_size": -1}, "weight_map": {"a": "f"}}', "total_size is -1"),
        ('{"metadata": {"total_size": 1.5}, "weight_map": {"a": "f"}}', "total_size is 1.5"),
        ('{"metadata": {"total_size": NaN}, "weight_map": {"a": "f"}}', "total_size is NaN"),
        ('{"metadata": {"total_size": true}, "weight_map": {"a": "f"}}', "total_size is true"),
        ('{"metadata": ' + "[" * 10_000 + "]" * 10_000 + ', "weight_map": {"a": "f"}}', "nests too deeply"),
        ('{"weight_map": {"a": "f"}} x', 'must be a map'),
        ('{"weight_map": {"a": "f"}} {"weight_map": {"a": "g"}}', "two JSON texts"),
        ("version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer"),
    ],
    ids=lambda value: value[:50],
)  # fmt: skip
def test_odd_indexes(tmp_path, text, message):
    path = tmp_path / INDEX
    path.write_text(text)
    with pytest.raises(ModelError) as error:
        read_weights(path)
    assert message in str(error.value)


def test_an_index_that_holds_its_text_twice(tmp_path):
    path = tmp_path / INDEX
    text = json.dumps({"metadata": {"total_size": "32", "total_parameters": None, "x": [1]}, "weight_map": {Q: "f"}})
    path.write_text("\ufeff" + text + "\n" + text + "\n")
    weights = read_index(path)
    assert weights.notes[0] == "the index holds the same JSON text twice"
    assert weights.bytes == 32


# --- bounds ---


def test_only_the_header_is_read():
    """Of 40 GB no byte behind the header."""
    big = 40 * 10**9
    head = safetensors_bytes(laid_out([("a", "F32", [10**10], big)]))
    file = Counted(head + bytes(1_000_000))
    header = read_header(file, len(head) + big, "f")
    assert header.tensors[0].bytes == big and header.notes == ()
    assert file.taken == len(head)


# --- the safetensors library as the oracle ---


def test_files_of_the_safetensors_library_read_as_it_reads_them(tmp_path):
    numpy, library = pytest.importorskip("numpy"), pytest.importorskip("safetensors.numpy")
    from safetensors import safe_open

    path = tmp_path / "oracle.safetensors"
    kinds = "bool u1 i1 u2 i2 u4 i4 u8 i8 f2 f4 f8 c8".split()
    arrays = {f"t.{kind}": numpy.zeros((2, 3, number), dtype=kind) for number, kind in enumerate(kinds)}
    scalar = numpy.array(1.5, dtype=numpy.float32)
    library.save_file(arrays | {"scalar": scalar}, path, {"who": "oracle", "ü": '\t"'})
    ours = read_safetensors(path)
    with safe_open(path, "np") as theirs:
        assert {t.name: (t.type.upper(), list(t.shape)) for t in ours.tensors} == {
            name: (theirs.get_slice(name).get_dtype(), theirs.get_slice(name).get_shape()) for name in theirs.keys()
        }
        assert dict(ours.metadata) == theirs.metadata()
    assert ours.bytes == sum(array.nbytes for array in arrays.values()) + 4
    raw = path.read_bytes()
    tensor = next(tensor for tensor in ours.tensors if tensor.name == "scalar")
    assert struct.unpack("<f", raw[tensor.offset : tensor.offset + tensor.bytes])[0] == 1.5
