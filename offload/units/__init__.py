"""Sizes, rates, times, work and shares as people write them, into bytes, B/s, s, FLOP and FLOP/s, and back.

This is the only place where a unit is read or printed; everything inside counts in the plain units. A text passes a
gate first: a plain number, then a spelling from our own list, in its own case (b is a bit, B a byte; k and K are
1000, Ki is 1024; `FLOP` and `FLOPs` are amounts, `FLOPS`, `FLOP/s` and `TOPS` are rates). What is doubtful is refused
with the spelling that works. quantiphy says what a prefix is worth; the arithmetic is exact (Fraction) to the end.

`kinds` holds the spellings, `gate` is passed by every text, `encodings` are PCIe and NVLink.
"""

from offload.units.costs import (
    format_cost,
    parse_power_interval,
    parse_price_interval,
    plain_number,
)
from offload.units.encodings import (
    nvlink_rate,
    parse_nvlink,
    parse_pcie,
    pcie_rate,
)
from offload.units.kinds import (
    KINDS,
    RATE,
    SIZE,
    SPEED,
    TIME,
    WORK,
    Kind,
)
from offload.units.printing import (
    format_apart,
    format_bytes,
    format_bytes_both,
    format_flop,
    format_flops,
    format_rate,
    format_rate_both,
    format_seconds,
    format_share,
    many,
    percent,
)
from offload.units.reading import (
    CHANNELS,
    parse_bytes,
    parse_bytes_interval,
    parse_flop,
    parse_flop_interval,
    parse_flops,
    parse_flops_interval,
    parse_rate,
    parse_rate_interval,
    parse_seconds,
    parse_seconds_interval,
    parse_share,
    parse_share_interval,
)

__all__ = [
    "CHANNELS",
    "KINDS",
    "Kind",
    "RATE",
    "SIZE",
    "SPEED",
    "TIME",
    "WORK",
    "format_apart",
    "format_bytes",
    "format_bytes_both",
    "format_cost",
    "format_flop",
    "format_flops",
    "format_rate",
    "format_rate_both",
    "format_seconds",
    "format_share",
    "many",
    "percent",
    "nvlink_rate",
    "parse_bytes",
    "parse_bytes_interval",
    "parse_flop",
    "parse_flop_interval",
    "parse_flops",
    "parse_flops_interval",
    "parse_nvlink",
    "parse_pcie",
    "parse_power_interval",
    "parse_price_interval",
    "parse_rate",
    "parse_rate_interval",
    "parse_seconds",
    "parse_seconds_interval",
    "parse_share",
    "parse_share_interval",
    "pcie_rate",
    "plain_number",
]
