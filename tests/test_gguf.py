"""GGUF headers: every version, byte order, type and value, split files, and the gguf library as the oracle."""

from __future__ import annotations

import io
import json
import re
import struct
from pathlib import Path

import pytest

from offload.errors import ModelError
from offload.readers.ggml import BLOCKS, TYPES
from offload.readers.gguf import CHUNK, LONGEST_LIST, MOST_STEPS, read_gguf, read_part
from offload.readers.stored import Omitted
from offload.readers.weight_files import read_weights
from tests.weight_bytes import F16, F32, LIST, Q4_K, TEXT, U32, Counted, GgufBytes

DATA = Path(__file__).parent / "data" / "weights"
SAMPLES = Path(__file__).parents[2] / "shared" / "samples"  # where a larger collection lies
NUMBERS = {name: number for number, name in TYPES.items()}
ONE = [("output_norm.weight", (8,), F32, 0)]


def read(raw: bytes, size: int | None = None):
    return read_part(io.BytesIO(raw), len(raw) if size is None else size, "f.gguf")


def refusal(raw: bytes, size: int | None = None) -> str:
    with pytest.raises(ModelError) as error:
        read(raw, size)
    return str(error.value)


# --- published files ---


def gemma_bytes() -> bytes:
    """The header of the real file, from its list of tensors; the vocabulary is as long as there."""
    told = json.loads((DATA / "gemma3_270m_Q4_K_M_tensors.json").read_text())
    pairs = [
        ("general.architecture", TEXT, "gemma3"),
        ("gemma3.block_count", U32, 18),
        ("tokenizer.ggml.tokens", LIST, (TEXT, [f"token {number}" for number in range(262_144)])),
        ("tokenizer.ggml.scores", LIST, (6, [0.0] * 262_144)),
        ("general.file_type", U32, 15),
    ]
    tensors = [(one["name"], one["ne"], NUMBERS[one["type"].lower()], one["offset"]) for one in told["tensors"]]
    return GgufBytes().file(pairs, tensors)


def test_gemmas_q4_k_m_file_averages_7_36_bits(tmp_path):
    """A name as Q4_K_M is a mixture: rows of 640 divide into no block of 256, and a third is a Q8_0 embedding."""
    path = tmp_path / "gemma.gguf"
    path.write_bytes(gemma_bytes())
    told = json.loads((DATA / "gemma3_270m_Q4_K_M_tensors.json").read_text())["tensors"]
    with path.open("r+b") as file:  # as long as the real one
        file.truncate(path.stat().st_size + told[-1]["offset"] + told[-1]["n_bytes"])
    weights = read_gguf(path)
    assert weights.notes == ()
    assert len(weights.tensors) == 236
    assert {tensor.name: (tensor.bytes, tensor.elements) for tensor in weights.tensors} == {
        one["name"]: (one["n_bytes"], one["n_elements"]) for one in told
    }
    assert (weights.bytes, weights.elements) == (246_587_904, 268_098_176)
    assert round(weights.bits_per_weight, 2) == 7.36
    assert {kind: share.bytes for kind, share in weights.types().items()}["q8_0"] > 178_257_920
    assert weights.by_role()["embedding"].bytes == 178_257_920 == weights.tensors[1].bytes
    assert weights.tensors[1].shape == (262_144, 640)
    assert set(weights.by_layer()) == {None, *range(18)}
    assert weights.metadata["tokenizer.ggml.tokens"] == Omitted("text", 262_144)
    assert weights.metadata["tokenizer.ggml.scores"] == Omitted("f32", 262_144)
    assert weights.metadata["general.file_type"] == 15


def test_a_q4_0_file_of_granite_mixes_five_types():
    text = (DATA / "granite4_h_tiny_Q4_0_dump_cut.txt").read_text()
    rows = re.findall(r"^\s+\d+:\s+(\d+) \|([\d, ]+)\| (\w+)\s+\| (\S+)$", text, re.M)
    tensors, at = [], 0
    for count, sizes, kind, name in rows:
        ne = [int(size) for size in sizes.split(",")]
        blocks = BLOCKS[kind.lower()]
        tensors.append((name, ne, NUMBERS[kind.lower()], at))
        at += -(-int(count) // blocks.size * blocks.bytes // 32) * 32
    heads = [0, 0, 0, 0, 0, 4] * 6 + [0] * 4
    part = read(GgufBytes().file([("granitehybrid.attention.head_count_kv", LIST, (5, heads))], tensors))
    assert {tensor.type for tensor in part.tensors} == {"f32", "q4_0", "q4_1", "q5_k", "q6_k"}
    assert [tensor.elements for tensor in part.tensors] == [int(row[0]) for row in rows]
    assert part.metadata["granitehybrid.attention.head_count_kv"] == tuple(heads)
    down = next(tensor for tensor in part.tensors if tensor.name == "blk.0.ffn_down_exps.weight")
    assert (down.shape, down.bytes) == ((1, 64, 1536, 512), 50_331_648 // 32 * 20)


def test_a_file_that_is_cut_behind_its_header_is_read_and_says_so():
    weights = read_weights(DATA / "tiny_llama_mixed.header.gguf")
    assert (len(weights.tensors), weights.bytes, weights.elements) == (10, 441_600, 622_848)
    assert weights.metadata["llama.block_count"] == 1
    assert weights.tensors[0].offset == 992
    (note,) = weights.notes
    assert "it has 32 of 441,600 bytes of data, and 10 of 10 tensors" in note


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the larger collection of samples is not here")
def test_samples_of_a_larger_collection():
    weights = read_weights(SAMPLES / "gguf" / "tiny_llama_mixed.gguf")
    assert (weights.bytes, weights.notes) == (441_600, ())


# --- what the format allows ---


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("version", [1, 2, 3])
def test_versions_and_byte_orders(version, order):
    writer = GgufBytes(version, order)
    pairs = [
        ("u8", 0, 200), ("i8", 1, -5), ("u16", 2, 60_000), ("i16", 3, -3), ("u32", 4, 4_000_000_000), ("i32", 5, -7),
        ("f32", 6, 0.5), ("yes", 7, True), ("text", 8, "Grüße"), ("u64", 10, 2**63), ("i64", 11, -(2**62)),
        ("f64", 12, 0.1), ("many", LIST, (5, [4, 0, -4])), ("words", LIST, (TEXT, ["a", "", "b"])),
        ("truths", LIST, (7, [True, False])), ("none", LIST, (U32, [])),
        ("nested", LIST, (LIST, [(U32, [1, 2]), (LIST, [(TEXT, ["x"])]), (U32, [])])),
    ]  # fmt: skip
    tensors = [("a", (256, 4, 2), Q4_K, 0), ("b", (7,), F16, 1152), ("c", (), F32, 1184)]
    part = read(writer.file(pairs, tensors, data=1188))
    plain = {key: value for key, kind, value in pairs if kind != LIST}
    plain |= {"many": (4, 0, -4), "words": ("a", "", "b"), "truths": (True, False), "none": ()}
    assert dict(part.metadata) == plain | {"nested": ((1, 2), (("x",),), ()), "GGUF.version": version}
    assert [(t.name, t.shape, t.type, t.bytes) for t in part.tensors] == [
        ("a", (2, 4, 256), "q4_k", 1152), ("b", (7,), "f16", 14), ("c", (), "f32", 4),
    ]  # fmt: skip
    assert part.tensors[0].offset % 32 == 0 and part.tensors[1].offset - part.tensors[0].offset == 1152
    assert part.notes == ()


@pytest.mark.parametrize("name", sorted(NUMBERS.keys() & BLOCKS.keys()))
def test_every_type_takes_its_blocks(name):
    blocks = BLOCKS[name]
    (tensor,) = read(GgufBytes().file([], [("t", (blocks.size * 3, 5), NUMBERS[name], 0)])).tensors
    assert (tensor.type, tensor.bytes, tensor.elements) == (name, 15 * blocks.bytes, 15 * blocks.size)


@pytest.mark.parametrize("alignment", [1, 8, 64, 4096])
def test_alignment(alignment):
    offsets = [0, -(-4 // alignment) * alignment]
    raw = GgufBytes().file([("general.alignment", U32, alignment)], [("a", (1,), F32, 0), ("b", (1,), F32, offsets[1])],
                           data=offsets[1] + 4, alignment=alignment)  # fmt: skip
    part = read(raw)
    assert part.tensors[1].offset == len(raw) - 4
    assert part.tensors[0].offset % alignment == 0
    assert part.notes == ()


def test_lists_are_kept_up_to_a_length_and_counted_beyond():
    pairs = [("kept", LIST, (U32, list(range(LONGEST_LIST)))), ("long", LIST, (U32, list(range(LONGEST_LIST + 1)))),
             ("lists", LIST, (LIST, [(TEXT, ["x"])] * (LONGEST_LIST + 1))), ("text", TEXT, "x" * 70_000)]  # fmt: skip
    found = read(GgufBytes().file(pairs, ONE)).metadata
    assert found["kept"] == tuple(range(LONGEST_LIST))
    assert found["long"] == Omitted("u32", LONGEST_LIST + 1)
    assert found["lists"] == Omitted("list", LONGEST_LIST + 1)
    assert found["text"] == Omitted("text", 70_000)


def test_values_that_are_no_text_are_written_out():
    assert read(GgufBytes().file([("token", TEXT, b"\xe2\x96")], ONE)).metadata["token"] == r"\xe2\x96"


# --- split files ---


def split_files(folder: Path, count: int = 3, **changes) -> list[Path]:
    paths = []
    for part in range(count):
        pairs = [("split.no", 2, part), ("split.count", 2, count), ("split.tensors.count", 5, count - 1)]
        pairs = [pair if pair[0] not in changes else (*pair[:2], changes[pair[0]]) for pair in pairs]
        pairs += [("general.architecture", TEXT, "llama")] if part == 0 else []
        tensors = [(f"blk.{part - 1}.attn_q.weight", (4, 4), F32, 0)] if part else []  # the first holds keys alone
        path = folder / f"model-{part + 1:05}-of-{count:05}.gguf"
        path.write_bytes(GgufBytes().file(pairs, tensors, data=64 if part else 0))
        paths.append(path)
    return paths


@pytest.mark.parametrize("given", [0, 1, 2])
def test_a_split_file_is_found_from_any_part(tmp_path, given):
    weights = read_weights(split_files(tmp_path)[given])
    assert [(tensor.name, tensor.file) for tensor in weights.tensors] == [
        ("blk.0.attn_q.weight", "model-00002-of-00003.gguf"), ("blk.1.attn_q.weight", "model-00003-of-00003.gguf"),
    ]  # fmt: skip
    assert weights.metadata["general.architecture"] == "llama"
    assert weights.bytes == 128
    assert read_weights(tmp_path).tensors == weights.tensors


def test_missing_parts_are_named(tmp_path):
    paths = split_files(tmp_path, 4)
    paths[0].unlink(), paths[2].unlink()
    with pytest.raises(ModelError, match="2 of 4 parts are missing: model-00001-of-00004.gguf, model-00003-of-00004"):
        read_gguf(paths[1])
    with pytest.raises(FileNotFoundError):
        read_gguf(paths[0])


@pytest.mark.parametrize(
    "changes, message",
    [({"split.no": 1}, "says that it is part 1"), ({"split.count": 5}, "of 5; its name says part 0 of 3"),
     ({"split.tensors.count": 9}, "its parts hold 2 tensors, the first says 9")],
)  # fmt: skip
def test_parts_that_do_not_belong_together(tmp_path, changes, message):
    with pytest.raises(ModelError, match=re.escape(message)):
        read_gguf(split_files(tmp_path, **changes)[2])


def test_one_part_under_another_name_is_no_model(tmp_path):
    renamed = split_files(tmp_path)[1].rename(tmp_path / "model.gguf")
    with pytest.raises(ModelError, match="one of 3 parts .* must end with -00001-of-00003.gguf"):
        read_gguf(renamed)


def test_a_tensor_in_two_parts(tmp_path):
    paths = split_files(tmp_path)
    pairs = [("split.no", 2, 2), ("split.count", 2, 3)]
    paths[2].write_bytes(GgufBytes().file(pairs, [("blk.0.attn_q.weight", (4, 4), F32, 0)], data=64))
    with pytest.raises(ModelError, match="is in model-00002-of-00003.gguf too"):
        read_gguf(paths[0])


def test_a_name_that_counts_wrong(tmp_path):
    path = tmp_path / "model-00004-of-00003.gguf"
    path.write_bytes(GgufBytes().file([], ONE))
    with pytest.raises(ModelError, match="no part 4 of 3"):
        read_gguf(path)


# --- damaged files ---

WRITER = GgufBytes()


@pytest.mark.parametrize(
    "raw, message",
    [
        (b"GGUF", "ends at byte 4, in the magic and the version"),
        (b"GGUF" + bytes(60), "version is 0"),
        (b"GGUF" + struct.pack("<I", 4) + bytes(60), "version is 4"),
        (WRITER.start(1, 2**63) + bytes(99), "9,223,372,036,854,775,808 key-value pairs"),
        (WRITER.start(2**64 - 1, 0) + bytes(99), "tensors and has 123 bytes"),
        (WRITER.start(0, 1) + WRITER.text("k") + struct.pack("<IIQ", LIST, U32, 2**64 - 1) + bytes(30),
         '"k" .* is a list of 18,446,744,073,709,551,615 items'),
        (WRITER.file([("k", 7, True)]).replace(b"k\7\0\0\0\1", b"k\7\0\0\0\2"), "neither true nor false"),
        (WRITER.start(0, 1) + WRITER.text("key") + struct.pack("<I", 13) + bytes(9), 'value of "key" .* type 13'),
        (WRITER.start(0, 1) + WRITER.text("k") + struct.pack("<IIQ", 9, 99, 0) + bytes(9), "a list of type 99"),
        (WRITER.start(0, 1) + WRITER.text(b"\xff\xfe") + bytes(40), "a key is no text in UTF-8, in key 1 of 1"),
        (WRITER.start(0, 1) + struct.pack("<Q", 2**62) + bytes(40), "a key of 4,611,686,018,427,387,904 bytes"),
        (WRITER.file([("k", U32, 1), ("k", U32, 2)], ONE), 'key "k" stands twice'),
        (WRITER.file([("general.alignment", U32, 0)], ONE), "general.alignment is 0"),
        (WRITER.file([("general.alignment", U32, 24)], ONE), "general.alignment is 24"),
        (WRITER.file([("general.alignment", TEXT, "32")], ONE), "general.alignment is 32"),
        (WRITER.file([], [("a", (8,), F32, 16)]), "no multiple of the alignment of 32"),
        (WRITER.file([], [("a", (8,), F32, 0), ("a", (8,), F32, 32)]), 'tensor "a" is described twice'),
        (WRITER.file([], [("a", (9,), F32, 0), ("b", (8,), F32, 32)]), '"b" begins at byte 32 .* inside "a", .* 36'),
        (WRITER.file([], [("a", (8,), F32, 0), ("b", (8,), F32, 2**40)]), '"b" is to lie .* past the end of the file'),
        (WRITER.file([], [("a", (8,), F32, 2**64 - 32)]), "past any file's end"),
        (WRITER.file([], [("a", (1,) * 5, F32, 0)]), "5 dimensions"),
        (WRITER.file([], [("a", (2**40, 2**40), F32, 0)]), "more elements than any file holds"),
        (WRITER.file([], [("a", (2**64 - 1,), F32, 0)]), "more elements than any file holds"),
        (WRITER.file([], [("a", (640, 4), Q4_K, 0)]), "rows of 640 elements do not divide into the blocks of 256"),
        (WRITER.file([], [("a", (256,), 9, 0)]), "type 9: that is Q8_1"),
        (WRITER.file([], [("a", (256,), 4, 0)]), "type 4: that is Q4_2"),
        (WRITER.file([], [("a", (256,), 137, 0)]), "type 137: its size is not known"),
        (WRITER.file([], [(b"\xc3\x28", (8,), F32, 0)]), "a tensor's name is no text in UTF-8"),
        (WRITER.file([], [("x" * 10_000_000, (8,), F32, 0)]), "a tensor's name is 10,000,000 bytes long"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_damaged_headers(raw, message):
    assert re.search(message, refusal(raw))


def test_deep_lists():
    raw = WRITER.start(0, 1) + WRITER.text("deep") + struct.pack("<I", LIST) + struct.pack("<IQ", LIST, 1) * 10_000
    assert 'the value of "deep" (key 1 of 1) nests lists more than' in refusal(raw)


def test_a_file_of_many_empty_texts_ends_at_once():
    """Zero bytes are texts without letters: a sparse file can hold billions of them."""
    raw = WRITER.start(0, 1) + WRITER.text("k") + struct.pack("<IIQ", LIST, TEXT, 10**9)
    assert f"more than {MOST_STEPS:,} items" in refusal(raw, 10**11)


def test_cut_anywhere_in_the_header_it_says_where():
    pairs = [("general.architecture", TEXT, "llama"), ("l", LIST, (TEXT, ["ab", "c"])), ("n", LIST, (U32, [1] * 9))]
    tensors = [("first", (8,), F32, 0), ("second", (8,), F32, 32)]
    end = len(WRITER.start(2, 3) + b"".join(WRITER.pair(*pair) for pair in pairs)
              + b"".join(WRITER.tensor(*tensor) for tensor in tensors))  # fmt: skip
    raw = WRITER.file(pairs, tensors)
    told = [refusal(raw[:size]) for size in range(4, end)]
    for size, message in enumerate(told, 4):
        assert re.search(rf"ends at byte {size}\b|has {size} bytes|ends \d+ bytes further on", message), message
    assert len(read(raw[:end]).tensors) == 2
    places = [re.search(r"magic|counts|has \d+ bytes|key \d|tensor \d", message)[0] for message in told]
    assert [place for place in dict.fromkeys(places) if "bytes" not in place] == [
        "magic", "counts", "key 1", "key 2", "key 3", "tensor 1", "tensor 2",
    ]  # fmt: skip


def test_a_vocabulary_alone_is_no_model(tmp_path):
    path = tmp_path / "vocab.gguf"
    path.write_bytes(WRITER.file([("general.architecture", TEXT, "llama")]))
    with pytest.raises(ModelError, match="holds no tensors"):
        read_gguf(path)


# --- bounds ---


def test_only_the_header_is_read():
    """Of 40 GB no byte behind the chunk in which the header ends; long lists of numbers are stepped over unread."""
    big = 40 * 10**9
    tensors = [("a", (10**10,), F32, 0)]
    head = WRITER.file([("scores", LIST, (6, [0.0] * 500_000)), ("x", U32, 1)], tensors)
    file = Counted(head + bytes(1_000_000))
    part = read_part(file, len(head) + big, "f")
    assert part.tensors[0].bytes == big and part.notes == ()
    assert file.taken <= 2 * CHUNK < 2_000_000 < len(head)


# --- the gguf library as the oracle ---


@pytest.mark.parametrize("order", ["LITTLE", "BIG"])
def test_files_of_the_gguf_library_read_as_it_reads_them(tmp_path, order):
    gguf, numpy = pytest.importorskip("gguf"), pytest.importorskip("numpy")
    path = tmp_path / "oracle.gguf"
    writer = gguf.GGUFWriter(path, "llama", endianess=gguf.GGUFEndian[order])
    writer.add_block_count(2)
    writer.add_head_count_kv([4, 0])
    writer.add_token_list([f"t{number}" for number in range(5000)])
    writer.add_sliding_window(512)
    writer.add_custom_alignment(64)
    generator = numpy.random.default_rng(5)
    for number, kind in enumerate(kind for kind in gguf.GGML_QUANT_SIZES if kind.name != "Q8_1"):
        size, taken = gguf.GGML_QUANT_SIZES[kind]
        shape = tuple(int(one) for one in generator.integers(1, 5, size=number % 3)) + (size * (1 + number % 2),)
        raw = numpy.zeros((*shape[:-1], shape[-1] // size * taken), dtype=numpy.uint8)
        writer.add_tensor(f"blk.{number}.{kind.name}", raw, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    theirs = gguf.GGUFReader(path)
    ours = read_gguf(path)
    assert len(ours.tensors) > 30
    assert [(t.name, list(t.shape), t.type, t.bytes, t.elements, t.offset) for t in ours.tensors] == [
        (t.name, [int(n) for n in reversed(t.shape)], t.tensor_type.name.lower(), int(t.n_bytes), int(t.n_elements),
         int(t.data_offset)) for t in theirs.tensors
    ]  # fmt: skip
    for key, field in theirs.fields.items():
        if key.startswith("GGUF."):
            continue
        value = field.contents()
        kept = Omitted("text", len(value)) if key == "tokenizer.ggml.tokens" else value
        assert ours.metadata[key] == (tuple(kept) if isinstance(kept, list) else kept), key
    assert ours.notes == ()


def test_split_files_of_the_gguf_library(tmp_path):
    gguf, numpy = pytest.importorskip("gguf"), pytest.importorskip("numpy")
    writer = gguf.GGUFWriter(tmp_path / "big.gguf", "llama", split_max_tensors=2, small_first_shard=True)
    for number in range(5):
        writer.add_tensor(f"blk.{number}.attn_q.weight", numpy.zeros((3, 8), dtype=numpy.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    parts = sorted(tmp_path.glob("*.gguf"))
    assert len(parts) > 2
    weights = read_weights(parts[1])
    assert (len(weights.tensors), weights.bytes, len(weights.files)) == (5, 5 * 48, len(parts) - 1)
    assert weights.metadata["general.architecture"] == "llama"
