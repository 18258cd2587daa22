"""What options of several verbs take: counts, buffers; and how a number is written that was spelled in another way."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from offload.errors import one_line

if TYPE_CHECKING:
    from offload.plan import Overlap


MOST = 10**15 - 1  # of any count


def count(least: int) -> Callable[[str], int]:
    """A whole number of at least `least`."""

    def read(text: str) -> int:
        number = text.strip()
        if number.isascii() and number.isdigit() and len(number.lstrip("0")) > len(str(MOST)):
            raise argparse.ArgumentTypeError(f'"{one_line(text, 24)}" is too large; at most {MOST:,} is taken')
        if not (text.isascii() and text.isdigit()) or int(text) < least:
            wrong = f'"{one_line(text)}" is not a whole number of at least {least}'
            raise argparse.ArgumentTypeError(wrong + _plainly(text, least))
        return int(text)

    return read


def unknown_family(parser: Any) -> None:
    """The options that read files of a family that is not known, or that lack a key."""
    parser.add_argument("--like", metavar="FAMILY",
                        help="a known family, as llama: files of one that is not known have its shapes; models that "
                        "are known stay as they are")  # fmt: skip
    parser.add_argument("--give", metavar="KEY=VALUE", action="append",
                        help="a key that the model's file lacks or has wrong, as head_dim=128; KEY=ignore for one "
                        "that changes no count; repeatable")  # fmt: skip


def first_gpu_alone(more: str) -> None:
    """Remark that of a server's GPUs one is used. more : the option that takes more."""
    from offload.units.remarks import remark

    remark(f"of several GPUs the first is used, beside the host, as on servers with one; {more} takes more")


def overlap(text: str) -> Overlap:
    from offload.plan import UNLIMITED, Overlap

    if text == "none":
        return Overlap("none")
    if text == "full":
        return Overlap("buffers", UNLIMITED)
    try:
        return Overlap("buffers", count(1)(text))
    except argparse.ArgumentTypeError:
        wrong = f'"{one_line(text)}" is neither a number of buffers (1, 2, ...) nor none or full'
        raise argparse.ArgumentTypeError(wrong) from None


def _plainly(text: str, least: int) -> str:
    """How to write a whole number that was spelled in another way (1e9, 1,000, 4k), "" where none is meant."""
    match = re.fullmatch(r"\+?([0-9]{1,15}(?:[,_' ][0-9]{3})*)(?:\.0*)?(?:[eE]\+?([0-9]{1,2}))?([kKM]?)", text.strip())
    if match is None:
        return ""
    number = int(re.sub("[^0-9]", "", match[1])) * 10 ** int(match[2] or 0) * {"": 1, "M": 10**6}.get(match[3], 1000)
    return f". Write {number}" if least <= number <= MOST else ". That is more than can be meant" if number else ""
