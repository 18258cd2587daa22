"""Techniques in closed form: plain numbers in, times out, exact where the numbers are Fractions.

What a plan and a server would be compiled to, written down as a formula: to check an answer by hand, to see which term
is which, and to ask about a machine of which only a few rates are known.
"""

from offload.techniques.batching import SpeculatedPass, StreamedBatch, speculated_pass, streamed_batch
from offload.techniques.decoding import DecodeStep, decode_step
from offload.techniques.numerics import Exactness, SweepLimits, exactness, sweep_limits
from offload.techniques.training import CheckpointTraffic, OptimizerStep, checkpoint_traffic, zero_offload

__all__ = [
    "CheckpointTraffic", "DecodeStep", "Exactness", "OptimizerStep", "SpeculatedPass", "StreamedBatch", "SweepLimits",
    "checkpoint_traffic", "decode_step", "exactness", "speculated_pass", "streamed_batch", "sweep_limits",
    "zero_offload",
]  # fmt: skip
