"""What a byte of payload puts on its carriers: exact figures, rows that a load bound takes, and conservation."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload.amplification import (
    BOUNCES,
    LEVELS,
    Packets,
    Pass,
    bounce,
    inline_ecc,
    mixed_rows,
    packets,
    pages,
    pcie_packets,
    raid,
)
from offload.bounds import load_bound
from offload.errors import FormulaError

GB = 10**9


def test_pages():
    found = pages(1000, 10_000, 4096)
    assert (found.item_bytes, found.total_bytes, found.amplification) == (12288, 12_288_000, Fraction(768, 625))
    packed = pages(1000, 10_000, 4096, packed=True)
    assert (packed.item_bytes, packed.total_bytes) == (None, 2442 * 4096)


@given(st.integers(1, 1000), st.integers(1, 10**6), st.sampled_from([1, 512, 4096, 2**21]))
def test_whole_pages_hold_the_payload(count, size, page):
    apart, packed = pages(count, size, page), pages(count, size, page, packed=True)
    assert apart.total_bytes >= packed.total_bytes >= count * size > packed.total_bytes - page
    assert apart.total_bytes % page == packed.total_bytes % page == 0
    assert apart.total_bytes - count * size < count * page
    assert pages(1, size, page).total_bytes == apart.item_bytes


def test_packets_of_generation_4():
    raw = Fraction(16 * 10**9 * 16 * 128, 130 * 8)
    found = pcie_packets(256, 512)
    assert found == Packets(Fraction(276, 256), Fraction(3, 64), Fraction(280, 256))
    assert found.rates(raw) == (Fraction(26214400000000, 897), Fraction(2621440000000, 91))
    assert pcie_packets(256, 512, ecrc=True) == packets(256, 512, completion=24, write=28, request=28)
    assert pcie_packets(128, 4096, address_bits=32) == packets(128, 4096, completion=20, write=20, request=20)


def test_requests_load_the_other_direction():
    """Reads one way and writes the other: 25 GB read on a link that also carries 25 GB of writes with the requests."""
    found = pcie_packets(256, 512)
    bound = load_bound({"in": 25 * GB, "out": 25 * GB}, [(25 * GB, {"in": found.read, "out": found.request}),
                                                         (25 * GB, {"out": found.write})])  # fmt: skip
    assert bound.resource_seconds["in"] == Fraction(276, 256)
    assert bound.seconds == Fraction(280, 256) + Fraction(3, 64) and bound.bottleneck == ("out",)


@pytest.mark.parametrize(("level", "reads", "writes"), [
    ("raid0_read", Fraction(1, 4), 0), ("raid0_write", 0, Fraction(1, 4)), ("raid1_read", Fraction(1, 4), 0),
    ("raid1_write", 0, 1), ("raid5_read", Fraction(1, 4), 0), ("raid5_write", 0, Fraction(1, 3)),
    ("raid5_small_write", Fraction(1, 2), Fraction(1, 2)),
])  # fmt: skip
def test_stripes_over_four(level, reads, writes):
    found = raid(level, 4)
    assert (found.reads, found.writes) == (reads, writes)
    assert (found.uplink_reads, found.uplink_writes) == (4 * reads, 4 * writes)


def test_four_drives_behind_a_switch():
    found = raid("raid0_read", 4)
    bound = load_bound({"drive": 7 * GB, "uplink": 25 * GB},
                       [(56 * GB, {"drive": found.reads, "uplink": found.uplink_reads})])  # fmt: skip
    assert bound.resource_seconds["drive"] == 2 and bound.seconds == Fraction(56, 25)
    assert bound.bottleneck == ("uplink",)


@given(st.sampled_from(LEVELS), st.integers(3, 24))
def test_stripes_carry_the_payload_and_no_more_with_more_drives(level, drives):
    found, more = raid(level, drives), raid(level, drives + 1)
    assert max(found.uplink_reads, found.uplink_writes) >= 1
    assert more.reads + more.writes <= found.reads + found.writes <= 2
    lost = {"raid1_write": drives, "raid5_write": Fraction(drives, drives - 1), "raid5_small_write": 2}
    assert max(found.uplink_reads, found.uplink_writes) == lost.get(level, 1)


def test_a_drive_that_is_read_and_written():
    figures = (14 * GB, 5 * GB, 7 * GB, 5 * GB)
    assert load_bound(*mixed_rows(*figures, time_shared=True)).seconds == 3
    assert load_bound(*mixed_rows(*figures)).seconds == 2
    assert load_bound(*mixed_rows(*figures, 8 * GB)).seconds == Fraction(19, 8)
    assert load_bound(*mixed_rows(*(float(one) for one in figures), time_shared=True)).seconds == pytest.approx(3.0)
    assert load_bound(*mixed_rows(*figures, 8 * GB, time_shared=True)).bottleneck == ("drive",)


@given(*[st.fractions(Fraction(1, 100), 100, max_denominator=100)] * 5)
def test_one_at_a_time_is_never_faster_than_together(read, written, reads, writes, total):
    together = load_bound(*mixed_rows(read, written, reads, writes)).seconds
    capped = load_bound(*mixed_rows(read, written, reads, writes, total)).seconds
    shared = load_bound(*mixed_rows(read, written, reads, writes, time_shared=True)).seconds
    assert together <= min(capped, shared) and shared == read / reads + written / writes
    assert capped == max(together, (read + written) / total)


def test_ways_through_host_memory():
    assert {way: bounce(way).total for way in BOUNCES} == {
        "direct": 0, "pinned": 2, "pageable": 4, "page cache": 4, "page cache, write-allocate": 5,
    }  # fmt: skip
    assert bounce("page cache, write-allocate") == Pass(3, 2)


@pytest.mark.parametrize(("way", "seconds", "binds"), [
    ("pinned", Fraction(5, 6), "nvme"), ("page cache", Fraction(5, 6), "nvme"),
    ("page cache, write-allocate", Fraction(1), "dram"),
])  # fmt: skip
def test_the_bottleneck_may_flip_on_the_bounce_alone(way, seconds, binds):
    rates = {"nvme": 12 * GB, "dram": 50 * GB, "pcie": 25 * GB}
    bound = load_bound(rates, [(Fraction(10 * GB), {"nvme": 1, "dram": bounce(way).total, "pcie": 1})])
    assert bound.seconds == seconds and bound.bottleneck == (binds,)


def test_the_same_coefficients_reach_host_memory_in_a_plan():
    """A plan's move from a drive loads DRAM by the same table."""
    from offload.compiler import compile_step
    from offload.plan import Block, Plan, Tensor, Transfer
    from offload.step import loads
    from tests.boxes import box

    for access in ("pinned", "pageable", "page cache"):
        tensors = {"w": Tensor("w", GB, (("ssd0", 1.0),))}
        plan = Plan("x", tensors, (Block((Transfer("fetch", "w", "hbm0", access=access),)),))
        assert bounce(access).total * GB == loads(compile_step(box(1), plan), least=False)["dram0"]


def test_inline_ecc():
    assert inline_ecc(16, 1) == Fraction(17, 16) and inline_ecc(8, 1) == Fraction(9, 8) and inline_ecc(64, 0) == 1


REFUSED = [
    (lambda: pages(0, 10, 4096), "count is 0"),
    (lambda: pages(1, 10, 0), "page is 0"),
    (lambda: pages(1, 2.5, 4096), "item_bytes is 2.5"),
    (lambda: pcie_packets(200, 512), "mps is 200"),
    (lambda: pcie_packets(256, 512, address_bits=48), "32 and 64"),
    (lambda: packets(256, 512, completion=-1, write=24, request=24), "completion is -1"),
    (lambda: pcie_packets(256, 512).rates(0), "above 0"),
    (lambda: raid("raid6_read", 4), 'no level "raid6_read"'),
    (lambda: raid("raid5_write", 2), "from 3 on"),
    (lambda: raid("raid1_read", 1), "from 2 on"),
    (lambda: mixed_rows(1, 1, 0, 1), "the read rate is 0"),
    (lambda: mixed_rows(1, 1, 1, float("nan")), "the write rate is nan"),
    (lambda: mixed_rows(1, -1, 1, 1), "-1 bytes are written"),
    (lambda: bounce("pined"), 'Did you mean "pinned"'),
    (lambda: inline_ecc(0, 1), "data is 0"),
]


@pytest.mark.parametrize(("call", "text"), REFUSED)
def test_what_has_no_answer_is_refused(call, text):
    with pytest.raises(FormulaError, match=text):
        call()
