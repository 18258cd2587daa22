"""How many requests fit: against enumeration, against simulation with a fixed seed, and against figures by hand."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from offload.errors import ModelError, OffloadError
from offload.models import overflow
from offload.models.concurrency import (
    SteadyLengths,
    admitted_by_risk,
    fitting_now,
    fitting_worst,
    kv_tier,
    mean_stored,
    overflow_risk,
    recompute_seconds,
    risk_curve,
    stored_positions,
    swap_seconds,
)
from offload.models.lengths import Lengths, parse_lengths, read_lengths
from offload.models.overflow import ERROR, Risk

LOGNORMAL = parse_lengths("lognormal 2000 0.7")
POSITIONS = 42_724  # 14 GB of KV of Llama 3.1 70B


# --- the textbook case ---


def test_a_quantile_of_each_is_no_quantile_of_the_sum():
    assert LOGNORMAL.quantile(0.99) == 10_192
    assert fitting_worst(LOGNORMAL, POSITIONS, share=0.99) == 4
    admitted = admitted_by_risk(LOGNORMAL, POSITIONS, 0.01)
    assert admitted.requests == 9 and admitted.value == pytest.approx(0.00718, abs=5e-6)
    assert overflow_risk(LOGNORMAL, 10, POSITIONS).value == pytest.approx(0.01515, abs=5e-6)
    assert fitting_worst(LOGNORMAL, POSITIONS) is None, "nothing bounds one request"


def test_the_textbook_risk_by_simulation():
    draws = np.random.default_rng(7).lognormal(math.log(2000), 0.7, (400_000, 10))
    for requests in (9, 10):
        overflows = np.ceil(draws[:, :requests]).sum(axis=1) > POSITIONS
        spread = math.sqrt(overflows.mean() / len(draws))
        assert overflow_risk(LOGNORMAL, requests, POSITIONS).value == pytest.approx(overflows.mean(), abs=4 * spread)


def test_the_curve_rises_from_nothing_to_certainty():
    curve = risk_curve(LOGNORMAL, POSITIONS, most=40, points=40)
    assert [one.requests for one in curve] == list(range(1, 41))
    values = [one.value for one in curve]
    assert all(one <= more + ERROR for one, more in itertools.pairwise(values))
    assert values[0] < 1e-4 and values[-1] > 0.999999
    assert values[8] == pytest.approx(overflow_risk(LOGNORMAL, 9, POSITIONS).value, abs=ERROR)
    assert [one.requests for one in risk_curve(LOGNORMAL, POSITIONS, most=1000, points=4)] == [1, 334, 667, 1000]
    assert [one.requests for one in risk_curve(LOGNORMAL, POSITIONS, most=3)] == [1, 2, 3]


# --- against enumeration ---


def risk_by_hand(values: list[int], requests: int, positions: int, block: int) -> Fraction:
    sums = [sum(-(-value // block) * block for value in drawn)
            for drawn in itertools.product(values, repeat=requests)]  # fmt: skip
    return Fraction(sum(total > positions for total in sums), len(sums))


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=4), st.integers(0, 4), st.integers(0, 100), st.integers(1, 8)
)
@example([10], 3, 30, 1)
@example([10], 3, 29, 1)
@example([5, 9], 2, 0, 3)
def test_risk_of_a_list(values, requests, positions, block):
    lengths = Lengths("list", values=tuple(values))
    found = overflow_risk(lengths, requests, positions, block)
    assert found.error == ERROR
    assert found.value == pytest.approx(float(risk_by_hand(values, requests, positions // block * block, block)),
                                        abs=ERROR)  # fmt: skip


@given(st.integers(1, 6), st.integers(0, 6), st.integers(1, 3), st.integers(0, 30), st.integers(1, 4))
def test_risk_of_a_uniform_distribution(least, more, requests, positions, block):
    lengths = Lengths("uniform", least, least + more)
    by_hand = risk_by_hand(list(range(least, least + more + 1)), requests, positions // block * block, block)
    assert overflow_risk(lengths, requests, positions, block).value == pytest.approx(float(by_hand), abs=ERROR)


@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=3), st.integers(0, 30), st.sampled_from([0.01, 0.26, 0.5, 0.9])
)
@example([1, 2], 6, 0.25)
@example([31], 30, 0.5)
def test_the_most_requests_by_risk(values, positions, risk):
    lengths = Lengths("list", values=tuple(values))
    found = admitted_by_risk(lengths, positions, risk)
    assert found.value <= risk + 2 * ERROR
    assert overflow_risk(lengths, found.requests + 1, positions).value > risk
    assert fitting_worst(lengths, positions) <= found.requests


def test_a_lognormal_length_is_rounded_up_once():
    """P(blocks = n) is the distribution function's difference, so one request overflows with P(length > positions)."""
    for positions, block in ((2000, 1), (2000, 16), (1999, 16), (31, 16)):
        whole = positions // block * block
        by_hand = math.erfc(math.log(whole / 2000) / 0.7 / math.sqrt(2)) / 2
        assert overflow_risk(LOGNORMAL, 1, positions, block).value == pytest.approx(by_hand, abs=1e-13)
    assert overflow_risk(LOGNORMAL, 1, 15, 16).value == 1


def test_certain_lengths_have_no_risk_or_all_of_it():
    fixed = parse_lengths("fixed 2000")
    assert admitted_by_risk(fixed, POSITIONS, 1e-8).requests == 21 == fitting_worst(fixed, POSITIONS)
    assert overflow_risk(fixed, 21, POSITIONS).value == pytest.approx(0, abs=ERROR)
    assert overflow_risk(fixed, 22, POSITIONS).value == 1
    assert admitted_by_risk(parse_lengths("lognormal 2000 0"), POSITIONS, 0.5).requests == 21
    assert admitted_by_risk(fixed, 1999, 0.5) == Risk(0, 0.0, ERROR)


@pytest.mark.parametrize("cells", [313, 400, 625, 1249])
def test_cells_of_several_blocks_say_how_far_off_they_are(monkeypatch, cells):
    lengths = parse_lengths("lognormal 300 0.7")
    exact = {n: overflow_risk(lengths, n, 20_000, 16).value for n in (20, 30, 40, 48, 60)}
    most = admitted_by_risk(lengths, 20_000, 0.01, 16).requests
    monkeypatch.setattr(overflow, "MOST_CELLS", cells)
    for requests, value in exact.items():
        coarse = overflow_risk(lengths, requests, 20_000, 16)
        assert abs(coarse.value - value) <= coarse.error < 0.02
    assert abs(admitted_by_risk(lengths, 20_000, 0.01, 16).requests - most) <= 1


def test_many_blocks_are_quick_and_near_the_normal_distribution():
    positions = 40_000_000
    admitted = admitted_by_risk(LOGNORMAL, positions, 0.01, 16)
    assert 0.008 < admitted.value <= 0.01 and admitted.error < 5e-4
    mean, square = LOGNORMAL.mean + 7.5 + 0.5, LOGNORMAL.mean_square - LOGNORMAL.mean**2
    spread = 2.3263 * math.sqrt(admitted.requests * square)
    assert admitted.requests * mean + spread == pytest.approx(positions, rel=5e-4)


@pytest.mark.parametrize("risk", [0, -0.1, 1, 1.5, 1e-9, float("nan"), "0.01", None, True])
def test_risks_that_cannot_be_asked_for(risk):
    with pytest.raises(ModelError, match="the risk of overflow is"):
        admitted_by_risk(LOGNORMAL, POSITIONS, risk)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: overflow_risk(LOGNORMAL, -1, 100), "requests is -1"),
        (lambda: overflow_risk(LOGNORMAL, 1, -1), "positions is -1"),
        (lambda: overflow_risk(LOGNORMAL, 1, 1.5), "positions is '1.5'"),
        (lambda: overflow_risk(LOGNORMAL, 1, 100, 0), "block is 0"),
        (lambda: risk_curve(LOGNORMAL, 100, most=0), "most requests is 0"),
        (lambda: fitting_now([5], 10, 0), "block is 0"),
        (lambda: fitting_worst(LOGNORMAL, -5), "positions is -5"),
        (lambda: LOGNORMAL.quantile(1), "share of requests is 1"),
        (lambda: LOGNORMAL.quantile(float("nan")), "share of requests is nan"),
    ],
)
def test_amounts_that_are_not(call, said):
    with pytest.raises(ModelError, match=said):
        call()


# --- what fits for certain ---


def test_what_fits_now_in_order():
    assert fitting_now([10, 20, 30, 1], 60) == 3, "the fourth waits though another order would take it"
    assert fitting_now([10, 20, 31, 1], 60) == 2
    assert fitting_now([17, 17], 63, 16) == 1, "32 of 48 positions each"
    assert fitting_now([17, 17], 64, 16) == 2
    assert fitting_now([], 60) == 0 == fitting_now([5], 0)
    assert stored_positions([17, 17, 1], 16) == 80 and stored_positions([17, 17, 1]) == 35


@given(st.lists(st.integers(1, 50), max_size=12), st.integers(0, 200), st.integers(1, 9))
def test_what_fits_now_is_the_longest_start_that_does(lengths, positions, block):
    found = fitting_now(lengths, positions, block)
    room = positions // block * block
    assert stored_positions(lengths[:found], block) <= room
    assert found == len(lengths) or stored_positions(lengths[: found + 1], block) > room


def test_each_at_its_worst():
    lengths = parse_lengths("uniform 100 4000")
    assert lengths.largest == 4000 and fitting_worst(lengths, 42_724) == 10
    assert fitting_worst(lengths, 42_724, 16) == 10 and fitting_worst(lengths, 3999, 16) == 0
    assert lengths.quantile(0.99) == 100 + 3862 - 1  # of 3901 lengths, the 3862nd


# --- steady operation ---


def test_a_request_is_seen_half_way_and_the_long_ones_more_often():
    assert mean_stored([0], [100]) == 50
    assert mean_stored([10, 10], [100, 300]) == 10 + (100 * 50 + 300 * 150) / 400
    assert mean_stored([1000, 0], [1, 999]) == (1000.5 + 999 * 499.5) / 1000
    assert SteadyLengths(parse_lengths("100, 300"), 10).mean == mean_stored([10, 10], [100, 300])
    assert SteadyLengths(parse_lengths("fixed 2000"), 7).mean == 1007
    median, sigma = 2000, 0.7  # E[L^2] / (2 E[L]) of a lognormal
    assert SteadyLengths(LOGNORMAL).mean == pytest.approx(median / 2 * math.exp(1.5 * sigma**2), rel=1e-14)


def test_the_mean_of_steady_operation_by_simulation():
    """64 slots, each with a request that grows by a position a step and is then replaced, looked at over and over."""
    draw = random.Random(11)
    prompt, slots, seen = 50, [], []
    for _ in range(64):
        slots.append([0, draw.randint(1, 400)])
    for step in range(40_000):
        for slot in slots:
            slot[0] += 1
            if slot[0] > slot[1]:
                slot[:] = [1, draw.randint(1, 400)]
        if step > 2000 and step % 50 == 0:
            seen += [prompt + stored - 0.5 for stored, _ in slots]  # in the middle of a step
    outputs = parse_lengths("uniform 1 400")
    expected = SteadyLengths(outputs, prompt).mean
    assert expected == 50 + (401 * 801 / 6) / 401
    assert sum(seen) / len(seen) == pytest.approx(expected, rel=0.01)
    assert prompt + outputs.mean / 2 < 0.83 * expected, "half of the mean output is too little"
    shares = SteadyLengths(outputs, prompt).below(np.array([100.0, 200.0, 300.0, 400.0]))
    counted = [sum(one <= end for one in seen) / len(seen) for end in (100, 200, 300, 400)]
    assert list(shares) == pytest.approx(counted, abs=0.01)


@pytest.mark.parametrize("text", ["lognormal 300 0.5", "uniform 3 9", "fixed 12", "4, 9, 9, 30"])
def test_the_distribution_in_steady_operation_has_its_mean(text):
    steady = SteadyLengths(parse_lengths(text), 5)
    ends = np.arange(0, 20_000, 0.5)
    mean = ((1 - steady.below(ends)).sum() - 0.5) * 0.5 + 0.25
    assert mean == pytest.approx(steady.mean, abs=0.3)
    assert (np.diff(steady.below(ends)) >= -1e-12).all()
    assert steady.below(np.array([4.0]))[0] == 0 and steady.below(ends)[-1] == pytest.approx(1, abs=1e-9)


def test_prompts_and_outputs_that_do_not_pair():
    for prompts, outputs in (([1], [1, 2]), ([], []), ([1], [0]), ([-1], [1]), ([1.0], [1])):
        with pytest.raises(ModelError):
            mean_stored(prompts, outputs)
    with pytest.raises(ModelError, match="prompt is -1"):
        SteadyLengths(LOGNORMAL, -1)


# --- lengths in words ---


@pytest.mark.parametrize(
    ("text", "kind", "mean", "square", "largest"),
    [
        ("fixed 2000", "fixed", 2000, 4e6, 2000),
        ("Uniform 100 4000", "uniform", 2050, sum(n * n for n in range(100, 4001)) / 3901, 4000),
        ("uniform:7:7", "uniform", 7, 49, 7),
        ("18x2000", "list", 2000, 4e6, 2000),
        ("18 x 2000", "list", 2000, 4e6, 2000),
        ("900, 2x4000", "list", 8900 / 3, (900**2 + 2 * 4000**2) / 3, 4000),
        ("5", "list", 5, 25, 5),
        ("lognormal 2000 0.7", "lognormal", 2000 * math.exp(0.245), 2000**2 * math.exp(0.98), None),
        ("lognormal 1500.5 0", "lognormal", 1500.5, 1500.5**2, 1501),
    ],
)
def test_lengths_in_words(text, kind, mean, square, largest):
    lengths = parse_lengths(text)
    assert lengths.kind == kind and lengths.largest == largest
    assert lengths.mean == pytest.approx(mean, rel=1e-14)
    assert lengths.mean_square == pytest.approx(square, rel=1e-14)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no request length"),
        ("lognormal", 'written "lognormal MEDIAN SIGMA"'),
        ("lognormal 2000", 'written "lognormal MEDIAN SIGMA"'),
        ("lognormal 2000 0.7 3", 'written "lognormal MEDIAN SIGMA"'),
        ("lognormal 2000 -1", 'written "lognormal'),
        ("lognormal 2000 nan", 'written "lognormal'),
        ("lognormal 2000 11", "sigma of the logarithm is 11"),
        ("lognormal 0 1", "median of request lengths is 0"),
        ("uniform 9 3", "longest request is 3"),
        ("uniform 0 3", "request length is 0"),
        ("uniform 1.5 3", "whole numbers"),
        ("fixed 0", "request length is 0"),
        ("normal 5 6", '"normal 5 6" is no request length'),
        ("18x", "is no request length"),
        ("18x0", "request length is 0"),
        ("0x2000", "a number of requests is 0"),
        ("1e3", "is no request length"),
        ("9999999x2000", "a number of requests is 9999999; at most 1,000,000"),
        ("2000,,2000", "is no request length"),
        ("\u0662\u0660", "is no request length"),
        ("x" * 500, r"\.\.\." + '" is no request length'),
    ],
)
def test_lengths_that_are_none(text, said):
    with pytest.raises(ModelError, match=said):
        parse_lengths(text)


@pytest.mark.slow
@given(st.text(max_size=30))
@settings(max_examples=50)
def test_any_text_is_lengths_or_refused(text):
    try:
        lengths = parse_lengths(text)
    except ModelError:
        return
    assert lengths.mean > 0


@given(st.sampled_from(["lognormal 40 0.7", "uniform 3 90", "fixed 12", "4, 9, 9, 30", "lognormal 40 0"]),
       st.sampled_from([0.001, 0.25, 0.5, 0.9, 0.99, 0.999]))  # fmt: skip
def test_a_quantile_is_the_least_length_that_holds_its_share(text, share):
    lengths = parse_lengths(text)
    found = lengths.quantile(share)
    below = lengths.below(np.array([found - 1.0, float(found)]))
    assert below[0] < share + 1e-12 and share - 1e-12 <= below[1]


@given(st.sampled_from(["uniform 3 90", "fixed 12", "4, 9, 9, 30", "uniform 1 1"]), st.floats(0, 200))
def test_the_mean_of_the_smaller_by_counting(text, end):
    lengths = parse_lengths(text)
    values = lengths.values or range(int(lengths.first), int(lengths.second or lengths.first) + 1)
    by_hand = sum(min(value, end) for value in values) / len(values)
    assert lengths.mean_up_to(np.array([end]))[0] == pytest.approx(by_hand, rel=1e-12, abs=1e-12)
    assert lengths.below(np.array([end]))[0] == pytest.approx(sum(value <= end for value in values) / len(values))


# --- lengths of a file ---


@pytest.mark.parametrize(
    ("text", "column", "values"),
    [
        ("100\n200\n\n# a remark\n300\n", None, (100, 200, 300)),
        ("\ufeff100\r\n200\r\n", None, (100, 200)),
        ("length\n100\n200.0\n", None, (100, 200)),
        ("id,tokens\na,100\nb,200\n", "tokens", (100, 200)),
        ('"id, or name",tokens\n"a,b",100\n', "tokens", (100,)),
    ],
)
def test_lengths_of_a_file(tmp_path, text, column, values):
    path = tmp_path / "lengths.csv"
    path.write_bytes(text.encode())
    assert read_lengths(path, column).values == values


@pytest.mark.parametrize(
    ("raw", "column", "said"),
    [
        (b"", None, "holds no lengths"),
        (b"\n\n# nothing\n", None, "holds no lengths"),
        (b"length\n", None, "a heading and no lengths below"),
        (b"100\nabc\n", None, 'line 2: "abc" is no whole number'),
        (b"100\n-5\n", None, 'line 2: "-5"'),
        (b"100\n0\n", None, 'line 2: "0"'),
        (b"100\n1.5\n", None, 'line 2: "1.5"'),
        (b"100\n99999999999999999999\n", None, "line 2"),
        (b"100,5\n200,6\n", None, "several columns and no heading"),
        (b"id,tokens\na,100\n", None, "which column.*Columns: id, tokens"),
        (b"id,tokens\na,100\n", "token", 'no column "token".*Did you mean "tokens"'),
        (b"tokens,tokens\n1,100\n", "tokens", '2 columns are called "tokens"'),
        (b"id,tokens\na\n", "tokens", 'line 2: ""'),
        (b"\xff\xfe1\x00", None, "no text in UTF-8"),
        (b"1\x00\n2", None, "line 1|no CSV"),
        (b"-5\n100\n", None, 'line 1: "-5"'),
    ],
)
def test_files_that_hold_no_lengths(tmp_path, raw, column, said):
    path = tmp_path / "lengths.csv"
    path.write_bytes(raw)
    with pytest.raises(ModelError, match=said):
        read_lengths(path, column)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ModelError, match="folder"):
        read_lengths(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_lengths(tmp_path / "nothing")
    with pytest.raises(OffloadError, match="no file can have such a name"):
        read_lengths("a\0b")


# --- preemption and tiers ---


def test_what_a_preemption_costs():
    """Llama 2 7B at 3000 positions: 1.57 GB, 63 ms over 25 GB/s one way, 29 ms over 55 GB/s; computing it again at 44
    thousand positions a second takes 68 ms. One way hardly gains; out and back loses at 25 GB/s."""
    size = 3000 * 524_288
    assert swap_seconds(size, 25e9) == pytest.approx(2 * 0.0629, rel=1e-3)
    assert swap_seconds(size, 55e9, 25e9) == pytest.approx(0.0286 + 0.0629, rel=1e-3)
    matrices = 2 * 6.6e9
    again = recompute_seconds(3000, 44_000 * matrices, flops_per_position=matrices)
    assert again == pytest.approx(3000 / 44_000, rel=1e-15)
    assert swap_seconds(size, 25e9) > again > swap_seconds(size, 55e9)
    tier = kv_tier(10**12, 524_288, context=3000, rate=25e9, recompute=again)
    assert tier.positions == 10**12 // 524_288 and tier.pays
    assert tier.break_even == pytest.approx(23.1e9, rel=1e-2)
    assert kv_tier(10**12, 524_288, context=3000, rate=20e9, recompute=again).pays is False
    assert kv_tier(10**12, 524_288, context=3000, rate=20e9).pays is None


def test_attention_makes_recomputing_grow_with_the_square():
    assert recompute_seconds(4, 1.0, flops_per_position=10, attention_flops=3) == 4 * 10 + (1 + 2 + 3 + 4) * 3


@pytest.mark.parametrize(
    "call",
    [
        lambda: swap_seconds(0, 1e9),
        lambda: swap_seconds(1, 0),
        lambda: swap_seconds(1, float("nan")),
        lambda: swap_seconds(1, 1e9, -1),
        lambda: swap_seconds(1, "1 GB/s"),
        lambda: recompute_seconds(0, 1, flops_per_position=1),
        lambda: recompute_seconds(1, float("inf"), flops_per_position=1),
        lambda: recompute_seconds(1, 1, flops_per_position=1, attention_flops=-1),
        lambda: kv_tier(0, 1, context=1, rate=1),
        lambda: kv_tier(1, 1, context=1, rate=1, recompute=0),
    ],
)
def test_costs_of_nothing(call):
    with pytest.raises(ModelError):
        call()


@pytest.mark.parametrize(
    "text, why",
    [
        ("18x2,500", 'one number, or two? Write ...8?2500|2500 for one'),
        ("4,096", '"...4, 96" for two'),
        ("lognorm 2000 0.7", 'Did you mean "lognormal 2000 0.7"'),
        ("lognormal 2,000 0.7", "write 2000 without a comma"),
        ("lognormal 1e18 0.7", '"1e18" is not a plain number of up to 1,000,000,000,000'),
        ("1000000000x2000", "a number of requests is 1000000000; at most 1,000,000"),
        ("18x1000000000000000000", "a request length is 1000000000000000000; at most"),
    ],
)
def test_numbers_written_in_ways_that_may_mean_another(text, why):
    with pytest.raises(ModelError, match=why):
        parse_lengths(text)


def test_a_distribution_may_be_written_as_a_call():
    assert parse_lengths("lognormal(2000, 0.7)").quantile(0.99) == parse_lengths("lognormal 2000 0.7").quantile(0.99)


@pytest.mark.parametrize(
    "raw, column, why",
    [
        (b"nan\n2000\n", None, 'line 1: "nan" is no whole number'),
        (b"id;len\n1;5\n", "len", "separated by a semicolon; commas are read"),
        (b"id\tlen\n1\t5\n", "len", "separated by a tab"),
    ],
)
def test_files_whose_first_line_misleads(tmp_path, raw, column, why):
    (tmp_path / "lengths.csv").write_bytes(raw)
    with pytest.raises(ModelError, match=why):
        read_lengths(tmp_path / "lengths.csv", column)
