"""Checking a server with hundreds of GPUs and many drives takes seconds, and says the same as of a small one."""

from __future__ import annotations

import time

import pytest

from offload.checking import check_file
from offload.documents.topology_file import load_topology
from offload.doubts import doubts_of_server
from offload.doubts.widest import widest_way
from offload.memory_server import machine_of
from tests.rack import write_racks

SOCKETS = 64
LARGE = f"""
title: 512 GPUs at 64 sockets
source: invented
switches:
  socket0..{SOCKETS - 1}: {{kind: socket}}
  chip0..{SOCKETS - 1}: {{kind: chipset}}
  nvswitch0: {{kind: nvswitch}}
memories:
  hbm0..511: {{kind: hbm, capacity: 80 GB, rate: 3352 GB/s}}
  dram0..{SOCKETS - 1}: {{kind: dram, at: socket0..{SOCKETS - 1}, capacity: 512 GiB, rate: 4800 MT/s x 8}}
  ssd0..{SOCKETS - 1}: {{kind: nvme, capacity: 3.84 TB, read: 7 GB/s, write: 5 GB/s}}
processors:
  gpu0..511: {{kind: gpu, memory: hbm0..511, peer_to_peer: true, direct_storage: true}}
  cpu0..{SOCKETS - 1}: {{kind: cpu, memory: dram0..{SOCKETS - 1}}}
links:
""" + "".join(f"  pcie{8 * n}..{8 * n + 7}: {{between: [socket{n}, hbm{8 * n}..{8 * n + 7}], pcie: 5 x16}}\n"
              for n in range(SOCKETS)) + f"""
  nvlink: {{between: [hbm0..511, nvswitch0], both_directions: 900 GB/s, kind: nvlink}}
  upi: {{between: [socket0..{SOCKETS - 2}, socket1..{SOCKETS - 1}], kind: upi, rate: 64 GB/s, count: 3}}
  drives: {{between: [ssd0..{SOCKETS - 1}, chip0..{SOCKETS - 1}], pcie: 5 x4}}
  ups: {{between: [chip0..{SOCKETS - 1}, socket0..{SOCKETS - 1}], pcie: UPLINK}}
"""  # fmt: skip


@pytest.mark.few
@pytest.mark.parametrize(("uplink", "code"), [("4 x4", None), ("3 x4", "above-link")])
def test_a_large_server_takes_seconds(tmp_path, uplink, code):
    (tmp_path / "large.yaml").write_text(LARGE.replace("UPLINK", uplink))
    start = time.process_time()
    found = check_file(str(tmp_path / "large.yaml"))
    assert time.process_time() - start < 20  # it took many minutes; a slow machine takes 4 s
    assert not found.mistakes
    assert {one.code for one in found.warnings} == ({code} if code else set())
    assert len(found.warnings) == (SOCKETS if code else 0)


def test_drives_behind_links_alike_are_told_once(tmp_path):
    text = SMALL.replace("ssd0:", "ssd0..3:").replace("read: 7", "read: 14").replace("m2: {between: [ssd0, c0]", (
        "m2: {between: [ssd0..3, s0]")).replace("limits: {up: {over: [m2.c0], rate: 7.5 GB/s}}\n", "")
    (tmp_path / "four.yaml").write_text(text)
    (told,) = [one for one in check_file(str(tmp_path / "four.yaml")).warnings if one.code == "above-link"]
    assert told.part == "ssd0..3"
    assert "its link carries 7.877 GB/s" in told.says


SMALL = """
title: A drive with a narrow way to the near memory and a wide one to the far
source: invented
switches: {s0: {kind: socket}, s1: {kind: socket}, c0: {kind: chipset}, c1: {kind: chipset}}
memories:
  dram0..1: {kind: dram, at: s0..1, capacity: 64 GiB, rate: 4800 MT/s x 8}
  ssd0: {kind: nvme, capacity: 2 TB, read: 7 GB/s, write: 5 GB/s}
processors: {cpu0..1: {kind: cpu, memory: dram0..1}}
links:
  m2: {between: [ssd0, c0], pcie: 4 x4}
  near: {between: [c0, s0], pcie: 3 x1}
  far: {between: [c0, c1], pcie: 4 x8}
  farther: {between: [c1, s1], pcie: 4 x4}
limits: {up: {over: [m2.c0], rate: 7.5 GB/s}}
"""


@pytest.fixture
def small(tmp_path):
    (tmp_path / "small.yaml").write_text(SMALL)
    return load_topology(str(tmp_path / "small.yaml"))


def test_the_widest_way_of_all(small):
    assert small.route("ssd0", "dram0").links == ("m2", "near")
    assert widest_way(small, "ssd0", True, 7e9) == (7.5e9, "up")  # by the longer way, to the other socket
    assert widest_way(small, "ssd0", True, 8e9) == (7.5e9, "up")  # the limit binds every way
    assert widest_way(small, "ssd0", False, 5e9)[0] > 7.8e9
    assert widest_way(small, "ssd0", True, 0.5e9)[1] == "near.s0"  # the nearest has enough


def test_distances_are_those_of_routes(small):
    assert small.ways.distances("ssd0") == {"dram0": (0, 2), "dram1": (0, 3)}
    for name, (stages, links) in small.ways.distances("ssd0").items():
        route = small.route("ssd0", name)
        assert (len(route.stages) - 1, len(route.links)) == (stages, links)


class _Passes(dict):
    """A map that counts how often all of it is gone through."""

    def __init__(self, content):
        super().__init__(content)
        self.count = 0

    def __iter__(self):
        self.count += 1
        return super().__iter__()

    def values(self):
        self.count += 1
        return super().values()

    def items(self):
        self.count += 1
        return super().items()


def _passes(folder, sockets):
    """How often a check goes through all parts of a server of so many sockets with two GPUs each."""
    topology = load_topology(write_racks(folder, sockets))
    found = 0
    for section in ("memories", "processors", "switches", "links"):
        object.__setattr__(topology, section, _Passes(getattr(topology, section)))
    doubts_of_server(topology, {})
    for section in ("memories", "processors", "switches", "links"):
        found += getattr(topology, section).count
    return found


def test_no_part_of_a_server_is_checked_against_all_others(tmp_path):
    """Else 10,000 nodes, which are 68 racks, take a minute."""
    assert _passes(tmp_path, 4) == _passes(tmp_path, 12)


def test_links_at_an_end():
    topology = load_topology("dgx-h100")
    ends = [*topology.memories, *topology.switches]
    for end in ends:
        assert list(topology.links_at(end)) == [one for one in topology.links.values() if end in (one.a, one.b)]
    assert sum(len(topology.links_at(end)) for end in ends) == 2 * len(topology.links)
    assert topology.links_at("nothing") == ()


def test_the_nearest_hosts_are_those_of_the_shortest_routes():
    for name in ("dgx-h100", "dual-xeon-4090", "gh200-dual", "ws-2x3090-nvlink", "strix-halo-mini-pc"):
        topology = load_topology(name)
        for memory in topology.memories:
            routes = [topology.route(host, memory) for host in topology.ways.hosts if host != memory]
            best = min(((len(one.stages), len(one.links)) for one in routes), default=None)
            near = [one.stages[0].source for one in routes if (len(one.stages), len(one.links)) == best]
            assert topology.ways.nearest_of(memory, topology.ways.hosts) == sorted(near), (name, memory)


def test_a_gpu_is_asked_for_one_route_however_many_hosts_there_are(tmp_path, monkeypatch):
    """Else the memory of 68 racks takes minutes: each of 5,000 GPUs times each of 2,500 host memories."""
    topology = load_topology(write_racks(tmp_path, 12))
    asked = []
    route = type(topology).route
    monkeypatch.setattr(type(topology), "route", lambda own, *ends: asked.append(ends) or route(own, *ends))
    machine_of(topology, 1)
    assert len(asked) == 24 + 1
