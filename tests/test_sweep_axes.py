"""Axes of a sweep: what their texts mean, what is refused, and the places of values."""

from __future__ import annotations

import numpy
import pytest

from offload import OffloadError, load_plan
from offload.documents import read_setting
from offload.sweeps import read_axis, sweep
from offload.sweeps.axes import number_text

BY_HAND = "examples/by-hand.yaml"


@pytest.mark.parametrize(
    ("text", "values", "unit"),
    [
        ("workload.batch=1:5", [1, 2, 3, 4, 5], ""),
        ("workload.batch=-1:1", [-1, 0, 1], ""),
        ("workload.batch=1:9:3", [1, 5, 9], ""),
        ("workload.batch=1:4:3", [1, 2, 4], ""),  # 2.5 to the even whole number
        ("workload.batch=1:2:9log", [1, 2], ""),
        ("workload.context=1:1000:4log", [1, 10, 100, 1000], ""),
        ("workload.batch=7", [7], ""),
        ("workload.batch=8,1,3", [8, 1, 3], ""),
        ("pcie0.rate=10GB/s:40GB/s:4", [10e9, 20e9, 30e9, 40e9], "B/s"),
        ("pcie0.rate=1GB/s:100 GB/s:3 log", [1e9, 10e9, 100e9], "B/s"),
        ("hbm0.capacity=24 GiB,48 GB", [24 * 2**30, 48 * 10**9], "B"),
        ("tensors.w.bytes=1 kB:3 kB:3", [1000, 2000, 3000], "B"),
        ("pcie0.latency=1 us,2 ms", [1e-6, 2e-3], "s"),
        ("tasks.layer.flops=1 GFLOP,2 TFLOP", [1e9, 2e12], "FLOP"),
        ("gpu0.flops.bf16.rate=1 TFLOP/s,2 TFLOP/s", [1e12, 2e12], "FLOP/s"),
        ("placement.weights.hbm0=10%:30 %:3", [10, 20, 30], "%"),
        ("placement.weights.hbm0=3 layers:5 layers", [3, 4, 5], "layers"),
        ("experts.hit=0.5,0.9", [0.5, 0.9], ""),
    ],
)
def test_values_of_numbers(text, values, unit):
    axis = read_axis(text)
    assert axis.path == text.partition("=")[0] and axis.unit == unit and len(axis) == len(values)
    numpy.testing.assert_allclose(axis.numbers, values, rtol=1e-15)
    assert axis.numbers[0] == values[0] and axis.numbers[-1] == values[-1]  # the ends exactly


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("model.weights=q4_0, q8_0", ("q4_0", "q8_0")),
        ("overlap.buffers=1,2,full", ("1", "2", "full")),
        ("placement.weights={hbm0: 10 layers, dram0: rest},{hbm0: all}",
         ("{hbm0: 10 layers, dram0: rest}", "{hbm0: all}")),
        ('model.name="a:b","c,d"', ('"a:b"', '"c,d"')),
        ("placement.weights.hbm0=50%,20 GB", ("50%", "20 GB")),
    ],
)
def test_values_of_words(text, given):
    axis = read_axis(text)
    assert axis.given == given and axis.numbers is None
    assert axis.setting(1).text == given[1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("workload.batch", 'no "="'),
        ("=1:2", "no path"),
        ("workload.batch=", "there is no value"),
        ("workload.batch=1,,2", "a value of the list is empty"),
        ("workload.batch=1,2,1", '"1" is there twice'),
        ("hbm0.capacity=1 GB,1000 MB", '"1 GB" and "1000 MB" are the same value'),
        ("pcie0.rate=24 GiB,48 GB/s", "different kinds"),
        ("pcie0.rate=24,48 GB/s", "no unit"),
        ("pcie0.rate=1 GB:2 GB/s:5", "in one kind of unit"),
        ("pcie0.rate=1GB/s:2GB/s", "how many values?"),
        ("workload.batch=1:2.5", "how many values?"),
        ("workload.batch=9:1", "write workload.batch=1:9"),
        ("workload.batch=9:1:4", "write workload.batch=1:9:4"),
        ("workload.batch=3:3", "a single value is workload.batch=3"),
        ("workload.batch=1:9:1", "no count of at least 2"),
        ("workload.batch=1:9:x", '"x" is no count'),
        ("workload.batch=1:9:99999999999", "there are 9 whole numbers, and 99,999,999,999 are asked"),
        ("workload.batch=1:10000001", "10,000,001 values are more than the 10,000,000"),
        ("pcie0.rate=1GB/s:2GB/s:20000000", "20,000,000 values are more"),
        ("workload.context=0:100:5log", "equal ratios start above zero"),
        ("workload.context=-5:100:5log", "equal ratios start above zero"),
        ("workload.batch=a:b", '"a" is no number'),
        ("x.y=nan,1", '"nan" is no finite number'),
        ("x.y=1,inf", '"inf" is no finite number'),
        ("x.y=nan:1:3", '"nan" is no finite number'),
        ("x.y=1:1e999:3", '"1e999" is no finite number'),
        ("x.y=1,1e300", "larger than anything"),
    ],
)
def test_what_is_refused(text, said):
    with pytest.raises(OffloadError, match="^--over") as caught:
        read_axis(text)
    assert said in str(caught.value)


def test_a_list_may_be_long_and_has_an_end():
    assert len(read_axis("a.b=" + ",".join(map(str, range(100_000))))) == 100_000
    with pytest.raises(OffloadError, match="100,001 values are more than the 100,000"):
        read_axis("a.b=" + ",".join(map(str, range(100_001))))


def test_ten_million_values_are_an_axis():
    axis = read_axis("workload.batch=1:10000000")
    assert len(axis) == 10_000_000 and axis.text(9_999_998) == "9999999" and axis.place(123_456) == 123_455


@pytest.mark.parametrize("unit", ["B/s", "s", "FLOP", "FLOP/s"])
def test_a_text_of_a_number_is_read_back_to_the_last_bit(unit):
    rates = numpy.random.default_rng(5)
    suffix = {"B/s": "GB/s", "s": "ms", "FLOP": "GFLOP", "FLOP/s": "TFLOP/s"}[unit]
    for number in numpy.exp(rates.uniform(-5, 12, 300)).tolist():
        axis = read_axis(f"x={number!r} {suffix}")
        again = read_axis(f"x={number_text(axis.numbers[0].item(), unit)}")
        assert again.numbers[0] == axis.numbers[0] and again.unit == unit


def test_the_text_of_each_value_of_a_range_gives_the_value():
    axis = read_axis("pcie0.rate=16GB/s:128GB/s:200log")
    assert axis.text(0) == "16GB/s" and axis.text(199) == "128GB/s"  # as they were written
    assert [read_axis(f"pcie0.rate={axis.text(at)}").numbers[0] for at in range(200)] == axis.numbers.tolist()


def test_places_of_values():
    axis = read_axis("pcie0.rate=10GB/s:40GB/s:4")
    assert [axis.place(one) for one in (10e9, "20 GB/s", "30e9", "320 Gb/s")] == [0, 1, 2, 3]
    with pytest.raises(OffloadError, match='no value "25GB/s". Nearest are "20 GB/s" and "30 GB/s"'):
        axis.place("25GB/s")
    for wrong in ("25 s", "x", float("nan"), True, None):
        with pytest.raises(OffloadError, match="pcie0.rate"):
            axis.place(wrong)
    words = read_axis("model.weights=q4_0,q8_0")
    assert words.place("q8_0") == 1
    with pytest.raises(OffloadError, match='Did you mean "q8_0"'):
        words.place("q8")


def test_names_of_columns():
    names = {text: read_axis(text).name for text in ("pcie0.rate=1GB/s,2GB/s", "tensors.w.bytes=1 B,2 B", "repeat=1,2",
                                                     "hbm0.capacity=1GB,2GB", "pcie0.latency=1us,2us")}  # fmt: skip
    assert list(names.values()) == ["pcie0.rate_bytes_per_s", "tensors.w.bytes", "repeat", "hbm0.capacity_bytes",
                                    "pcie0.latency_seconds"]  # fmt: skip


@pytest.mark.parametrize(
    ("over", "said"),
    [
        ("workload.batch=1:3", "belongs to a plan by placement"),
        ("tensors.v.bytes=1 GB,2 GB", 'no tensor "v"'),
        ("pcie1.rate=1GB/s,2GB/s", 'Did you mean "pcie0"'),
        ("repaet=1:3", 'Did you mean "repeat"'),
        ("pcie0.rate=1GB,2GB", "B/s"),
        ("pcie0.rate=1 s:2 s:3", "B/s"),
        ("tensors.w.bytes=-2:-1", "bytes"),
        ("tokens=-3:0", "at least 1"),
        ("pcie0.rate=-3,0", "pcie0.rate"),
    ],
)
def test_an_axis_that_leads_nowhere_is_an_error(over, said):
    with pytest.raises(OffloadError) as caught:
        sweep(BY_HAND, [over])
    assert said in str(caught.value) and "--over" in str(caught.value)


def test_an_axis_is_swept_once():
    with pytest.raises(OffloadError, match='"repeat" is swept twice'):
        sweep(BY_HAND, ["repeat=1,2", "repeat=3,4"])
    with pytest.raises(OffloadError, match="set the same value"):
        sweep(BY_HAND, ["repeat=1,2"], settings=[read_setting("repeat=3")])


def test_numbers_of_a_plan_by_hand_are_followed():
    """A traced size comes out of the plan's tensor, not a copy of its digits."""
    from dataclasses import replace

    from offload.tracing import Trace, Traced

    trace = Trace()
    number = trace.number("0", 600_000_000)
    plan, _ = load_plan(BY_HAND, settings=[replace(read_setting("tensors.w.bytes=600 MB"), number=number)])
    assert isinstance(plan.tensors["w"].bytes, Traced) and plan.tensors["w"].bytes.exact == 600_000_000
