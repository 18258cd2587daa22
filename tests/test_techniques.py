"""Closed forms of techniques: what no worked example shows, and what is refused."""

from fractions import Fraction

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload.errors import CapacityError, OffloadError
from offload.models.cache import Cache, position_bytes
from offload.models.token_bytes import token_bytes_of_heads, token_bytes_of_latents
from offload.techniques import (
    checkpoint_traffic,
    decode_step,
    exactness,
    speculated_pass,
    streamed_batch,
    sweep_limits,
    zero_offload,
)


def test_a_batch_whose_kv_stays_has_no_limit():
    found = streamed_batch(50, 0, 25, Fraction(8))
    assert (found.seconds, found.tokens_per_s, found.limit) == (2, 4, None)


def test_batches_as_arrays_equal_each_alone():
    batches = numpy.array([1.0, 50.0, 450.0])
    swept = streamed_batch(50e9, 1e9, 25e9, batches)
    alone = [streamed_batch(50e9, 1e9, 25e9, float(one)) for one in batches]
    assert swept.seconds.tolist() == [one.seconds for one in alone]
    assert swept.tokens_per_s.tolist() == [one.tokens_per_s for one in alone] and swept.limit == 25
    drafts = speculated_pass(50e9, 25e9, 0.8, numpy.array([0, 4]))
    assert drafts.seconds_per_token == pytest.approx([2, 2 / 3.3616])


def test_optimizer_steps_with_wider_gradients_and_write_allocate():
    rates = {"to_host": 25, "to_device": 25, "host_memory": 200}
    wide = zero_offload(Fraction(100), **rates, gradient_bytes=4)
    assert (wide.adam_bytes, wide.host_bytes) == (30, 36)
    assert wide.bound.resource_seconds["d2h"] == 16 and wide.bound.resource_seconds["h2d"] == 8
    assert zero_offload(100, **rates, write_allocate=True).host_bytes == 34
    busy = zero_offload(Fraction(100), **rates, gpu_seconds=Fraction(99, 2)).bound
    assert (busy.seconds, busy.bottleneck) == (Fraction(99, 2), ("gpu",))


def test_checkpoints_that_do_not_divide_count_by_their_share():
    rates = {"to_host": Fraction(4), "to_device": Fraction(8)}
    found = checkpoint_traffic(10, hidden=3, tokens=Fraction(5), interval=4, element_bytes=2, **rates)
    assert (found.bytes, found.to_host_seconds) == (75, Fraction(75, 4))
    assert type(checkpoint_traffic(8, hidden=3, tokens=5, interval=4, **rates).bytes) is int


DEVICE = {"layer_bytes": 10, "active_parameters": 5, "kv_bytes": 1, "batch": 2, "context": 3, "memory_rate": 100,
          "flop_rate": 50, "link_rate": 4}  # fmt: skip


def test_a_model_that_fits_streams_nothing_and_needs_no_buffers():
    found = decode_step(8, **DEVICE, room=80)
    assert (found.resident, found.streamed, found.loads.resource_seconds["link"]) == (8, 0, 0)
    assert found.lower_bound == found.no_overlap == found.compute_serial
    assert decode_step(8, **DEVICE, room=79).resident == 5, "seven fit, two of those places are buffers"
    assert decode_step(8, **DEVICE, room=29, buffers=2).streamed == 8
    with pytest.raises(CapacityError, match="2 buffers of a layer do not fit: there is room for 1"):
        decode_step(8, **DEVICE, room=19)


@given(st.integers(0, 500), st.integers(1, 500), st.integers(1, 500), st.integers(1, 50), st.integers(1, 4))
def test_more_room_and_faster_links_never_slow_a_decode_step(room, more, memory, link, factor):
    given_ = {**DEVICE, "layer_bytes": Fraction(10), "memory_rate": memory, "link_rate": link, "buffers": 1}
    before = decode_step(12, **given_, room=room + 10)
    roomier = decode_step(12, **given_, room=room + 10 + more)
    faster = decode_step(12, **{**given_, "link_rate": link * factor, "memory_rate": memory * factor}, room=room + 10)
    for after in (roomier, faster):
        assert after.lower_bound <= before.lower_bound <= before.no_overlap
        assert after.no_overlap <= before.no_overlap and after.tokens_per_s >= before.tokens_per_s


def test_a_link_faster_than_the_memory_behind_it():
    found = decode_step(4, **{**DEVICE, "link_rate": 1000, "memory_rate": Fraction(5)}, room=0 + 20)
    assert found.fetch_seconds == 2, "the copy is written at the memory's rate"
    assert found.lower_bound <= found.no_overlap


def test_numbers_that_floats_hold():
    found = exactness(2**53)
    assert found.value == 2**53 and found.float64 and found.float32 and found.int64
    assert not exactness(2**53 + 1).float64 and exactness(2**53 + 1).int64
    assert exactness(2**63 - 1).int64 and not exactness(2**63).int64
    assert exactness(2**24 - 1).float32 and not exactness(2**24 + 1).float32
    assert exactness(2**127).float32 and not exactness(2**128).float32
    assert exactness(2**1023).float64 and not exactness(2**1024).float64
    assert (found := exactness(0)).float64 and found.float32 and found.int64


@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 40))
def test_plain_kv_bytes_are_those_of_the_formats(heads, sixteenths, tp):
    dim = 16 * sixteenths
    cache, latent = Cache("full", heads, dim, dim), Cache("latent", latent=dim, rope=16)
    for format, bits, scale in (("f16", 16, 0), ("f32", 32, 0), ("fp8", 8, 0), ("int8", 8, 4), ("fp8-head", 8, 4)):
        plain = token_bytes_of_heads(3, heads, dim, bits=bits, scale_bytes=scale, tp=tp)
        assert plain.layer == position_bytes(cache, format) and plain.model == 3 * plain.layer
        assert plain.rank == 3 * position_bytes(cache, format, tp=tp)
        assert plain.all_ranks == tp * plain.rank >= plain.model
        if not scale:
            assert token_bytes_of_latents(1, dim, 16, bits=bits, tp=tp).rank == position_bytes(latent, format, tp=tp)


REFUSED = [
    (streamed_batch, (1, 1, 0, 1), "rate: 0 is not a finite number above 0"),
    (streamed_batch, (1, 1, 1, 0), "batch: 0"),
    (streamed_batch, (-1, 1, 1, 1), "weight_bytes: -1 is not a finite number of at least 0"),
    (streamed_batch, (float("nan"), 1, 1, 1), "weight_bytes: nan"),
    (streamed_batch, (float("inf"), 1, 1, 1), "weight_bytes: inf"),
    (streamed_batch, (0, 0, 1, 1), "weight_bytes.*: 0 is not"),
    (streamed_batch, (1, numpy.array([1.0, 0.0]), 1, 1), "kv_bytes: the array goes down to 0"),
    (streamed_batch, ("1 GB", 1, 1, 1), "weight_bytes: .1 GB. is not"),
    (streamed_batch, (True, 1, 1, 1), "weight_bytes: True"),
    (speculated_pass, (1, 1, 1.5, 2), "acceptance is 1.5"),
    (speculated_pass, (1, 1, 0.5, -1), "draft"),
    (lambda: zero_offload(1, to_host=1, to_device=1, host_memory=1, gradient_bytes=3), (), "2 bytes or 4"),
    (lambda: zero_offload(1, to_host=1, to_device=1, host_memory=0), (), "host_memory: 0"),
    (lambda: checkpoint_traffic(4, hidden=1, tokens=1, interval=5, to_host=1, to_device=1), (), "no checkpoint in 4"),
    (lambda: checkpoint_traffic(4.0, hidden=1, tokens=1, to_host=1, to_device=1), (), "layers is"),
    (lambda: decode_step(4, **{**DEVICE, "layer_bytes": 0}, room=9), (), "layer_bytes: 0"),
    (lambda: decode_step(4, **DEVICE, room=99, buffers=0), (), "buffers is 0"),
    (lambda: sweep_limits(0, 1, stream_rate=1, flop_rate=1), (), "resources is 0"),
    (lambda: sweep_limits(1, 1, stream_rate=1, flop_rate=float("nan")), (), "flop_rate: nan"),
    (exactness, (1.5,), "1.5 is no whole number"),
    (exactness, (-1,), "-1 is no whole number"),
    (token_bytes_of_heads, (1, 0, 128), "kv_heads is 0"),
    (lambda: token_bytes_of_heads(1, 1, 3, bits=4), (), "a head of 3 elements of 4 bits is 1.5 bytes"),
    (token_bytes_of_latents, (1, 0, 64), "latent is 0"),
]


@pytest.mark.parametrize(("function", "values", "told"), REFUSED)
def test_what_makes_no_sense_is_refused(function, values, told):
    with pytest.raises(OffloadError, match=told):
        function(*values)
