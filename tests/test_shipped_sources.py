"""What shipped servers and parts say of their figures: where one was found, and what stands in front of host memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from offload.documents import load_topology, read_document, shipped_topologies
from offload.documents.parts_library import part_files
from offload.documents.shipped import find_topology

FILES = [*(find_topology(name) for name in shipped_topologies()), *part_files()]
BRACKETS = re.compile(r"\(([^()]*)\)")
FOUND = re.compile(r"(?:[^;]* )?found(?:, [\w ]+)?: [^;]*(?:\S[./]\S|mlcommons)[^;]*|found there", re.DOTALL)


def sources(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inside in value.items():
            if key == "source" and isinstance(inside, str):
                yield inside
            else:
                yield from sources(inside)


def unfounded(text: str) -> list[str]:
    """What a source calls found without saying where."""
    parts = [part for inside in BRACKETS.findall(text) for part in inside.split(";")]
    return [part for part in parts if re.search(r"\bfound\b", part) and not FOUND.fullmatch(part.strip())]


def test_what_counts_as_a_reference():
    assert not unfounded("peak: 5 (found: github.com/a/b); 7 (derived; found, on PCIe: github.com/c/d README)")
    assert unfounded("175 + 172 (found)") == ["found"]
    assert unfounded("its slot (found: that it hangs there)") == ["found: that it hangs there"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_what_is_found_says_where(path):
    assert [one for text in sources(read_document(path).value) for one in unfounded(text)] == []


@pytest.mark.parametrize("name", shipped_topologies())
def test_host_memory_says_its_caches(name):
    """A floor counts what a cache may hold as not read: without the cache it would claim too much."""
    topology = load_topology(name)
    for memory in topology.memories.values():
        if topology.ways.may_stage(memory.name):
            assert memory.cache >= 40 * 2**20, memory.name


@pytest.mark.parametrize("name", shipped_topologies())
def test_the_head_tells_what_is_missing(name):
    text = find_topology(name).read_text(encoding="utf-8").partition("\ntitle:")[0]
    assert "# Gaps. " in text


@pytest.mark.parametrize("name", shipped_topologies())
def test_no_uplink_is_slower_for_pageable_copies_than_a_gpu_below_it(name):
    topology = load_topology(name)
    for processor in topology.processors.values():
        for host in topology.memories:
            if processor.kind != "gpu" or processor.memory == host or not topology.ways.may_stage(host):
                continue
            rows = [row for stage in topology.route(host, processor.memory).stages for row, _, _ in stage.uses]
            slots = {f"{link.name}.{end}" for link in topology.links.values() for end in (link.a, link.b)
                     if link.technology == "pcie"}  # fmt: skip
            rates = {row: topology.resources[row].sustained for row in rows if row in slots}
            own = [rate["pageable"].value for row, rate in rates.items() if row.endswith(f".{processor.memory}")
                   and "pageable" in rate]  # fmt: skip
            for row, rate in rates.items():
                assert not own or rate.get("pageable", rate[""]).value >= min(own), row
