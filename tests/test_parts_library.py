"""`use: NAME` in a topology file: the part's keys below the entry's own, one level deep."""

from __future__ import annotations

import pytest

from offload.documents.marks import parse_document
from offload.documents.parts_library import SECTIONS, part_files, shipped_parts, with_part
from offload.documents.shapes import validate
from offload.documents.topology_file import SHAPES, read_topology
from offload.documents.topology_shape import written_out
from offload.errors import DocumentError

HEAD = """
parts:
  memories:
    big: {kind: hbm, capacity: 80 GB, cache: 50 MB, rate: 3 TB/s, source: a sheet}
    copy: {use: big}
    odd: 80 GB
  processors:
    big: {kind: gpu, flops: {bf16: 900 TFLOP/s}}
switches: {socket0: {kind: socket}}
"""


def topology(text: str):
    return read_topology(parse_document(HEAD + text, "box.yaml"), name="box")


def test_an_entry_takes_the_keys_of_its_part_and_its_own_replace_them():
    memories = "memories: {hbm0..1: {use: big, capacity: 90 GB}}\n"
    box = topology(memories + "processors: {gpu0..1: {use: big, memory: hbm0..1}}\n")
    for name in ("hbm0", "hbm1"):
        memory = box.memories[name]
        assert (memory.kind, memory.capacity, memory.cache, memory.source) == ("hbm", 90 * 10**9, 50 * 10**6, "a sheet")
        assert memory.rate.peak == 3e12
    assert box.processors["gpu1"].flops["bf16"].rated == 900e12


def test_one_way_to_state_a_rate_replaces_the_others_of_the_part():
    box = topology("memories: {hbm0: {use: big, read: 2 TB/s, write: 1 TB/s}}\n")
    memory = box.memories["hbm0"]
    assert memory.rate is None and (memory.read.peak, memory.write.peak) == (2e12, 1e12)


def test_a_shipped_link_by_its_encoding():
    box = topology("memories: {hbm0: {use: big}}\nlinks: {pcie0: {use: pcie-5-x16, between: [socket0, hbm0]}}\n")
    link = box.links["pcie0"]
    assert (link.generation, link.lanes) == (5, 16)
    assert link.forward.peak == pytest.approx(32e9 * 16 * 128 / 130 / 8)


@pytest.mark.parametrize(
    ("entry", "place", "says"),
    [
        ("{use: bigg}", "memories.hbm0.use", 'no memory "bigg" among the parts'),
        ("{use: pcie-5-x16}", "memories.hbm0.use", "is a part of links, not of memories"),
        ("{use: [big]}", "memories.hbm0.use", "is the name of one part"),
        ("{use: 5}", "memories.hbm0.use", "is the name of one part"),
        ("{use: copy}", "memories.hbm0.use", "one level deep"),
        ("{use: odd}", "parts.memories.odd", "is a map of the keys"),
        ("{use: big, capasity: 1 GB}", "memories.hbm0.capasity", "capacity"),
    ],
)
def test_what_is_refused_stands_once_and_at_its_place(entry: str, place: str, says: str):
    with pytest.raises(DocumentError) as refused:
        topology(f"memories: {{hbm0: {entry}}}\n")
    (mistake,) = refused.value.mistakes
    assert mistake.key == place and says in mistake.message


def test_shipped_parts_are_sound_and_their_names_are_one_each():
    names = [(section, name) for section in SECTIONS for name in shipped_parts(section)]
    assert len(names) > 1 and len(part_files()) > 0
    document = parse_document("links: {}", "parts")
    place = {"memories": {}, "switches": {}, "processors": {"memory": "hbm0"}, "links": {"between": ["a", "b"]}}
    for section, name in names:
        said = {"use": name, **place.get(section, {"over": ["a"]})}
        value = with_part(document, section, said, (section, name), None)
        assert value["source"], f"{name}: every part says where it is from"
        assert validate(document, SHAPES[section], written_out(section, value), (section, name)) is not None, name
    assert document.mistakes == []


def test_no_part_stands_in_two_files():
    from offload.documents.parts_library import _read

    for section in SECTIONS:
        found = [name for path in part_files() for name in _read(path).get(section, {})]
        assert len(found) == len(set(found))
