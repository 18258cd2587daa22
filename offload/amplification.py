"""What one byte of payload puts on the parts that carry it: pages, packets, stripes, copies through host memory.

Each function answers with coefficients, or amounts, for the rows of `bounds.load_bound`: bytes on a resource for each
byte that the user asked for. They are apart from rates: an overhead is put on the bytes or on the rate, never on both.
Figures may be ints, floats or Fractions, and are exact with ints and Fractions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from offload.errors import FormulaError, did_you_mean, one_line, shown
from offload.given import finite, flag, is_number, plainly

Number = Any  # int, float or Fraction


@dataclass(frozen=True, slots=True)
class Pass:
    """How often a copy reads and writes a memory for each byte that it brings."""

    reads: int
    writes: int

    @property
    def total(self) -> int:
        """Both together: the coefficient of a memory whose reads and writes share one rate."""
        return self.reads + self.writes

    def __add__(self, other: Pass) -> Pass:
        return Pass(self.reads + other.reads, self.writes + other.writes)


# Host memory, between a drive and a device (either way): a DMA in and a DMA out; then what a copy by the CPU adds, by
# how it passes host memory (words of plan files); and what its stores add where they first read the line that they
# write, which non-temporal stores do not.
NO_BOUNCE = Pass(0, 0)
DMA = Pass(1, 1)
WRITE_ALLOCATE = Pass(1, 0)
HOST_COPY: Mapping[str, Pass] = MappingProxyType({
    "pinned": Pass(0, 0), "pageable": Pass(1, 1), "page cache": Pass(1, 1),
    "page cache, write-allocate": Pass(1, 1) + WRITE_ALLOCATE,
})
BOUNCES: Mapping[str, Pass] = MappingProxyType({
    "direct": NO_BOUNCE,
    **{name: DMA + copy for name, copy in HOST_COPY.items()},
})


def bounce(way: str) -> Pass:
    """What a byte from a drive to a device puts on host memory, by the way it takes there.

    direct 0 (peer-to-peer, GPUDirect Storage); pinned 2 (the drive writes, the device reads); pageable and page cache 4
    (the CPU copies to a pinned buffer in between); page cache, write-allocate 5 (its stores read each line first). A
    small buffer may stay in the CPU's cache, so this is likely and not least. Raises FormulaError for other ways.
    """
    if not isinstance(way, str) or way not in BOUNCES:
        way = one_line(way)
        raise FormulaError(f'no way through host memory "{way}". {did_you_mean(way, BOUNCES, "Ways")}')
    return BOUNCES[way]


@dataclass(frozen=True, slots=True)
class Pages:
    """Bytes that a device moves for items that it reads by whole pages: of one item, of all, and all over payload."""

    item_bytes: int | None
    total_bytes: int
    amplification: Fraction


@plainly
def pages(count: int, item_bytes: int, page: int, *, packed: bool = False) -> Pages:
    """What `count` items cost in whole pages [B]: ceil(n / page) x page for each, aligned to a page of its own.

    packed : the items lie in one run that starts at a page: rounded up once (item_bytes is None then). An item that
    starts inside a page may touch one page more than this; the least is counted. Raises FormulaError.
    """
    for what, figure, least in (("count", count, 1), ("item_bytes", item_bytes, 1), ("page", page, 1)):
        _whole(what, figure, least)
    payload = count * item_bytes
    if flag("packed", packed):
        total, each = -(-payload // page) * page, None
    else:
        each = -(-item_bytes // page) * page
        total = count * each
    return Pages(each, total, Fraction(total, payload))


@dataclass(frozen=True, slots=True)
class Packets:
    """Bytes on a PCIe link for each byte of payload: three coefficients.

    read : on the direction in which what was read arrives. request : of reads, on the other direction. write : on the
    direction of the write.
    """

    read: Fraction
    request: Fraction
    write: Fraction

    @finite
    def rates(self, rate: Number) -> tuple[Number, Number]:
        """Payload bytes per second that a direction of `rate` [B/s] carries: of reads and of writes, one at a time."""
        if not is_number(rate) or rate <= 0:
            raise FormulaError(f"a rate of {shown(rate)} B/s: give a finite one above 0.")
        return rate / self.read, rate / self.write


FRAMING = 8  # framing, sequence number and check of the data link layer
HEADER = {32: 12, 64: 16}  # of requests, by the address's bits
COMPLETION = 12  # header of a completion
CHECK = 4  # end-to-end check, ECRC


@plainly
def pcie_packets(mps: int, mrrs: int, *, address_bits: int = 64, ecrc: bool = False) -> Packets:
    """Coefficients of PCIe transactions, generations 3 to 5, for payload in whole packets.

    mps : the largest payload of a packet [B], mrrs : the largest read request [B]. Read: (MPS + 20)/MPS, and a request
    of 24 B for each MRRS on the other direction; write: (MPS + 24)/MPS; 4 B less with 32-bit addresses, 4 B more with
    ECRC. Acknowledgements, flow control and skips are not in it: they depend on the implementation (5 to 10 % more).
    Source: Neugebauer et al. 2018, pcie-bench. Raises FormulaError.
    """
    for what, figure in (("mps", mps), ("mrrs", mrrs)):
        if not isinstance(figure, int) or figure not in (128, 256, 512, 1024, 2048, 4096):
            raise FormulaError(f"{what} is {shown(figure)} B: PCIe knows 128, 256, 512, 1024, 2048 and 4096.")
    if not isinstance(address_bits, int) or address_bits not in HEADER:
        raise FormulaError(f"addresses of {shown(address_bits)} bits: PCIe has 32 and 64.")
    check = CHECK if flag("ecrc", ecrc) else 0
    return packets(mps, mrrs, completion=FRAMING + COMPLETION + check, write=FRAMING + HEADER[address_bits] + check,
                   request=FRAMING + HEADER[address_bits] + check)  # fmt: skip


@plainly
def packets(mps: int, mrrs: int, *, completion: int, write: int, request: int) -> Packets:
    """The same for any overheads [B]: of each completion, each write and each read request. Raises FormulaError."""
    for what, figure, least in (("mps", mps, 1), ("mrrs", mrrs, 1), ("completion", completion, 0), ("write", write, 0),
                                ("request", request, 0)):  # fmt: skip
        _whole(what, figure, least)
    return Packets(Fraction(mps + completion, mps), Fraction(request, mrrs), Fraction(mps + write, mps))


@dataclass(frozen=True, slots=True)
class Stripe:
    """Coefficients of a set of alike drives: bytes on each drive, read and written, and on what they share (uplink).

    The uplink carries what all drives together do, as with software RAID; a controller that hangs on the link carries
    the payload only.
    """

    drives: int
    reads: Fraction
    writes: Fraction

    @property
    def uplink_reads(self) -> Fraction:
        """What comes from the drives over their shared link, for each byte of payload."""
        return self.drives * self.reads

    @property
    def uplink_writes(self) -> Fraction:
        """What goes to the drives over their shared link, for each byte of payload."""
        return self.drives * self.writes


LEVELS = ("raid0_read", "raid0_write", "raid1_read", "raid1_write", "raid5_read", "raid5_write", "raid5_small_write")


@plainly
def raid(level: str, drives: int) -> Stripe:
    """What a byte of payload puts on each of n drives, spread evenly. Raises FormulaError.

    RAID 0: 1/n, read or written. RAID 1 (n copies): read 1/n, written 1 on each. RAID 5: read 1/n; written in whole
    stripes n/(n - 1) in all; written by less than a stripe (raid5_small_write) two reads and two writes in all: old
    data and old parity, new data and new parity. Source: Patterson, Gibson and Katz 1988.
    """
    if not isinstance(level, str) or level not in LEVELS:
        raise FormulaError(f'no level "{one_line(level)}". {did_you_mean(one_line(level), LEVELS, "Levels")}')
    _whole("drives", drives, {"raid0": 1, "raid1": 2, "raid5": 3}[level[:5]])
    each = Fraction(1, drives)
    if level.endswith("_read"):
        return Stripe(drives, each, Fraction(0))
    writes = {"raid0_write": each, "raid1_write": Fraction(1), "raid5_write": Fraction(1, drives - 1 or 1)}
    if level in writes:
        return Stripe(drives, Fraction(0), writes[level])
    return Stripe(drives, 2 * each, 2 * each)


Rows = tuple[dict[str, Number], list[tuple[Number, dict[str, Number]]]]


@finite
def mixed_rows(
    read_bytes: Number, write_bytes: Number, read_rate: Number, write_rate: Number, total_rate: Number | None = None,
    *, time_shared: bool = False,
) -> Rows:  # fmt: skip
    """Rates and transfers of a drive that is read and written, ready for `bounds.load_bound`.

    time_shared : one at a time: a single row of rate 1 with coefficients 1/B_read and 1/B_write. Otherwise a row each,
    and with total_rate [B/s] one for both together. Bytes [B], rates [B/s]. Raises FormulaError.
    """
    rates = {"read": read_rate, "write": write_rate} | ({} if total_rate is None else {"total": total_rate})
    for name, rate in rates.items():
        if not is_number(rate) or rate <= 0:
            raise FormulaError(f"the {name} rate is {shown(rate)} B/s: give a finite one above 0.")
    for name, amount in (("read", read_bytes), ("written", write_bytes)):
        if not is_number(amount) or amount < 0:
            raise FormulaError(f"{shown(amount)} bytes are {name}: give a finite number from 0 on.")
    if flag("time_shared", time_shared):
        uses = {"read": {"drive": _inverse(read_rate)}, "write": {"drive": _inverse(write_rate)}}
        rates = {"drive": 1} | ({} if total_rate is None else {"total": total_rate})
    else:
        uses = {"read": {"read": 1}, "write": {"write": 1}}
    if total_rate is not None:
        uses = {name: use | {"total": 1} for name, use in uses.items()}
    return rates, [(read_bytes, uses["read"]), (write_bytes, uses["write"])]


@plainly
def inline_ecc(data: int, check: int) -> Fraction:
    """The coefficient of memory that keeps its check bytes among the data: (data + check)/data, read and written.

    Usual are 16 or 8 bytes of data for one of check, 1/16 to 1/8 more; side-band ECC has chips of its own and adds
    nothing. A cache of check bytes may spare a part: an estimate unless the memory is known to have none. Raises
    FormulaError.
    """
    _whole("data", data, 1)
    _whole("check", check, 0)
    return Fraction(data + check, data)


def _inverse(rate: Number) -> Number:
    return 1 / rate if isinstance(rate, float) else 1 / Fraction(rate)


def _whole(what: str, figure: int, least: int) -> None:
    if isinstance(figure, bool) or not isinstance(figure, int) or figure < least:
        raise FormulaError(f"{what} is {shown(figure)}: give a whole number from {least} on.")
