"""How long requests are: a distribution given in words, by a list or by a file; exact functions of it.

A length is the positions that a request has stored when it ends. A drawn length that is no whole number is rounded up,
and so is a part of a block; both together are one rounding, so the distribution function at the ends of blocks says the
probability of each number of blocks exactly, and nothing is approximated.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from offload.errors import ModelError, did_you_mean
from offload.files import named, path_of, read_bytes
from offload.models.whole import ceil_div, check_whole

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

LONGEST = 10**12  # of a request, in positions
MOST_REQUESTS = 10**6  # of a list
NEAR = 2**20  # blocks that are summed one by one where no formula sums them
LARGEST_FILE = 64 * 1024 * 1024
WIDEST = 10.0  # sigma of a logarithm
FORMS = {"lognormal": "lognormal MEDIAN SIGMA", "uniform": "uniform LEAST MOST", "fixed": "fixed LENGTH"}
_NUMBER = re.compile(r"[0-9]{1,13}(?:\.[0-9]{1,9})?", re.ASCII)
_TIMES = re.compile(r"(?:([0-9]+) ?[x×] ?)?([0-9]+)", re.ASCII | re.IGNORECASE)
_THOUSANDS = re.compile(r"[0-9],[0-9]{3}(?![0-9])", re.ASCII)  # 2,500: a length, or two?
_PLAIN = re.compile(r"(?:[0-9]{1,13}\r?\n)*[0-9]{1,13}(?:\r?\n)*", re.ASCII)
_NO_NUMBERS = {"nan", "inf", "infinity", "null", "none", "na"}  # no headings either
_SEPARATORS = {";": "a semicolon", "\t": "a tab", "|": "a bar"}


@dataclass(frozen=True, slots=True)
class Lengths:
    """A distribution of request lengths, in positions.

    kind : "lognormal" (first: the median, second: sigma of the logarithm), "uniform" (whole numbers from first to
    second, each as likely), "fixed" (first), or "list" (values, each as likely where one is drawn). text : as given.
    """

    kind: str
    first: float = 0
    second: float = 0
    values: tuple[int, ...] = ()
    text: str = ""

    def __post_init__(self) -> None:
        if self.kind == "list":
            if not self.values:
                raise ModelError("no request lengths are given. Give at least one.")
            for value in self.values:
                check_whole("request length", value, 1, LONGEST)
        elif self.kind == "lognormal":
            _check(0 < self.first <= LONGEST, "median of request lengths", self.first, "above 0, up to 1e12")
            _check(0 <= self.second <= WIDEST, "sigma of the logarithm", self.second, f"from 0 to {WIDEST:g}")
        elif self.kind in ("uniform", "fixed"):
            check_whole("request length", self.first, 1, LONGEST)
            if self.kind == "uniform":
                check_whole("longest request", self.second, int(self.first), LONGEST)
        else:
            raise ModelError(f'no distribution "{str(self.kind)[:60]}". {did_you_mean(self.kind, FORMS)}')

    @property
    def largest(self) -> int | None:
        """The longest that a request can be; None where nothing bounds it."""
        if self.kind == "lognormal":
            return None if self.second else math.ceil(self.first)
        return max(self.values) if self.kind == "list" else int(self.second or self.first)

    @property
    def mean(self) -> float:
        """Mean length, before it is rounded up to whole positions."""
        return self._moment(1)

    @property
    def mean_square(self) -> float:
        """Mean of the length's square."""
        return self._moment(2)

    def _moment(self, power: int) -> float:
        if self.kind == "lognormal":
            return float(self.first**power) * math.exp((power * self.second) ** 2 / 2)
        if self.kind == "list":
            return float(sum(value**power for value in self.values) / len(self.values))
        if self.kind == "fixed":
            return float(self.first**power)
        least, most = int(self.first), int(self.second)
        if power == 1:
            return (least + most) / 2
        mean: float = (_squares(most) - _squares(least - 1)) / (most - least + 1)
        return mean

    def quantile(self, share: float) -> int:
        """The least whole length that a request exceeds with at most 1 - share. Raises ModelError outside (0, 1)."""
        _check(0 < share < 1, "share of requests", share, "above 0 and below 1")
        if self.kind == "lognormal":
            spread = self.second * NormalDist().inv_cdf(share) if self.second else 0.0
            return max(1, math.ceil(self.first * math.exp(spread)))
        if self.kind == "list":
            return sorted(self.values)[max(0, math.ceil(round(share * len(self.values), 9)) - 1)]
        count = int(self.second or self.first) - int(self.first) + 1
        return int(self.first) + max(0, math.ceil(round(share * count, 9)) - 1)

    def below(self, ends: Floats) -> Floats:
        """P(length <= end) for each end, in positions. Exact but for rounding (1e-16)."""
        import numpy as np

        if self.kind == "lognormal" and self.second:
            return _normal(self._spread(ends)) * (ends > 0)
        if self.kind == "uniform":
            return np.clip((np.floor(ends) - self.first + 1) / (self.second - self.first + 1), 0.0, 1.0)
        if self.kind == "list":
            return np.searchsorted(np.sort(np.array(self.values)), ends, side="right") / len(self.values)
        return (ends >= self.first).astype(np.float64)

    def mean_up_to(self, ends: Floats) -> Floats:
        """Mean of the smaller of length and end, for each end of 0 or more: the integral of P(length > x) up to it."""
        import numpy as np

        if self.kind == "lognormal" and self.second:
            spread = self._spread(ends)
            return self.mean * _normal(spread - self.second) + ends * _normal(-spread)
        if self.kind == "uniform":
            least, most = self.first, self.second
            inside = np.clip(np.floor(ends), least - 1, most)  # the largest length that is no more than the end
            shorter = (inside - least + 1) * (inside + least) / 2
            return (shorter + ends * (most - inside)) / (most - least + 1)
        values = np.sort(np.array(self.values or (self.first,), dtype=np.float64))
        count = np.searchsorted(values, ends, side="right")
        shorter = np.concatenate([[0.0], np.cumsum(values)])[count]
        return (shorter + ends * (len(values) - count)) / len(values)

    def square_up_to(self, ends: Floats) -> Floats:
        """Mean of the square of the smaller of length and end, for each end of 0 or more."""
        import numpy as np

        if self.kind == "lognormal" and self.second:
            spread = self._spread(ends)
            return self.mean_square * _normal(spread - 2 * self.second) + ends**2 * _normal(-spread)
        if self.kind == "uniform":
            least, most = self.first, self.second
            inside = np.clip(np.floor(ends), least - 1, most)
            shorter = _squares(inside) - _squares(float(least - 1))
            squares: Floats = (shorter + ends**2 * (most - inside)) / (most - least + 1)
            return squares
        values = np.sort(np.array(self.values or (self.first,), dtype=np.float64))
        count = np.searchsorted(values, ends, side="right")
        shorter = np.concatenate([[0.0], np.cumsum(values**2)])[count]
        return (shorter + ends**2 * (len(values) - count)) / len(values)

    def blocks_up_to(self, ends: Floats, block: int) -> Floats:
        """Mean of the smaller of a length's whole blocks and an end, for each end of 0 or more in blocks.

        The sum of P(blocks > n) over the n below the end.
        """
        import numpy as np

        if self.kind == "lognormal" and self.second:
            return summed_blocks(self, ends, block)
        if self.kind == "uniform":
            least, most = int(self.first), int(self.second)
            whole = np.floor(ends)
            surely = np.minimum(whole, ceil_div(least, block))  # n blocks are shorter than any length
            count = np.clip(whole, ceil_div(least, block), ceil_div(most, block)) - ceil_div(least, block)
            falling = count * (most - block * (ceil_div(least, block) + (count - 1) / 2)) / (most - least + 1)
            return surely + falling + (ends - whole) * (1 - self.below(whole * block))
        own = [ceil_div(math.ceil(value), block) for value in self.values or (self.first,)]
        values = np.sort(np.array(own, dtype=np.float64))
        count = np.searchsorted(values, ends, side="right")
        shorter = np.concatenate([[0.0], np.cumsum(values)])[count]
        return (shorter + ends * (len(values) - count)) / len(values)

    def _spread(self, ends: Floats) -> Floats:
        """How many sigma of the logarithm an end lies above the median; an end of 0 very far below."""
        import numpy as np

        return np.log(np.maximum(ends, 1e-300) / self.first) / self.second


def _normal(values: Floats) -> Floats:
    """The normal distribution function, to the last digits of a float on either side."""
    import numpy as np

    return np.array([math.erfc(-value / math.sqrt(2)) / 2 for value in values.tolist()])


def _squares(most: Any) -> Any:
    return most * (most + 1) * (2 * most + 1) // 6


def summed_blocks(stored: Any, ends: Floats, block: int) -> Floats:
    """Mean of the smaller of stored blocks and end, for each end of 0 or more, of a distribution that has a density.

    The sum of P(blocks > n) over the n below the end: one by one up to 1,048,576 blocks, beyond by Euler and Maclaurin
    from the integral of P(stored > x), where terms that are left out are below 1e-9 of a block. stored : has `below`
    and `mean_up_to`.
    """
    import numpy as np

    whole = np.floor(ends)
    near = min(NEAR, 1 << int(min(NEAR, whole.max(initial=1))).bit_length())
    sums, longer = _near(stored, block, near)
    at = np.minimum(whole, near).astype(np.int64)
    found = sums[at] + (ends - whole) * longer[at]
    far = whole > near
    if far.any():
        last, past, part = np.array([near * float(block)]), whole[far] * block, (ends - whole)[far]
        more = 1 - stored.below(past)
        beyond = (stored.mean_up_to(past) - stored.mean_up_to(last)) / block + (longer[-1] - more) / 2
        found[far] = sums[-1] + beyond + part * more
    return found


@lru_cache(maxsize=4)
def _near(stored: Any, block: int, near: int) -> tuple[Floats, Floats]:
    """Sums of P(blocks > n) over the first n, and P(blocks > n), for n from 0 to `near`."""
    import numpy as np

    longer = 1 - stored.below(np.arange(near + 1, dtype=np.float64) * block)
    return np.concatenate([[0.0], np.cumsum(longer[:-1])]), longer


def _check(holds: bool, what: str, value: object, allowed: str) -> None:
    if not holds:
        raise ModelError(f"{what} is {str(value)[:60]}; it must be {allowed}.")


# --- as given in words ---


def parse_lengths(text: str) -> Lengths:
    """Request lengths in words: "lognormal 2000 0.7", "uniform 100 4000", "fixed 2000", "18x2000", "900, 2x4000".

    A plain number is one request. Raises ModelError for anything else, with the forms that work.
    """
    if not isinstance(text, str):
        raise ModelError(f"request lengths are given in words, as a text; given is {type(text).__name__}. {_forms()}")
    return _parsed(text)


@lru_cache(maxsize=64)
def _parsed(text: str) -> Lengths:
    if text.strip() == "-":
        raise ModelError('"-" is no request length. For lengths on standard input, one on each line, write /dev/stdin.')
    words = " ".join(text.replace(":", " ").split())
    match = re.match(r"([^\W\d_]+)\W*(.*)", words)
    if match is not None and not _TIMES.fullmatch(words):
        return _distribution(words, match[1].lower(), match[2].rstrip(" )"))
    if (found := _THOUSANDS.search(words)) is not None:
        first, second = found[0].split(",")
        raise ModelError(f'"{_short(words)}": is ...{found[0]} one number, or two? Write ...{first}{second} for one, '
                         f'"...{first}, {int(second)}" for two.')  # fmt: skip
    values: list[int] = []
    for part in re.split(r"[,;]", words):
        match = _TIMES.fullmatch(part.strip())
        if match is None:
            raise ModelError(f'"{_short(part.strip() or words)}" is no request length. {_forms()}')
        count = _whole("a number of requests", match[1] or "1", MOST_REQUESTS, "Give their distribution instead.")
        length = _whole("a request length", match[2], LONGEST, "Lengths are positions of one request.")
        if len(values) + count > MOST_REQUESTS:
            raise ModelError(f"more than {MOST_REQUESTS:,} requests are given. Give their distribution instead.")
        values += [length] * count
    return Lengths("list", values=tuple(values), text=words)


def _distribution(words: str, kind: str, rest: str) -> Lengths:
    if kind not in FORMS:
        near = get_close_matches(kind, FORMS, n=1, cutoff=0.6)
        hint = f'Did you mean "{near[0]} {rest}"? ' if near else ""
        raise ModelError(f'"{_short(words)}" is no request length. {hint}{_forms()}')
    form, what = FORMS[kind], f'"{_short(words)}"'
    if (found := _THOUSANDS.search(rest)) is not None:
        raise ModelError(f"{what}: write {found[0].replace(',', '')} without a comma; it is written \"{form}\".")
    numbers = rest.replace(",", " ").split()
    if len(numbers) != form.count(" "):
        raise ModelError(f'{what} does not say a distribution; it is written "{form}".')
    for number in numbers:
        if not _NUMBER.fullmatch(number):
            most = f"a plain number of up to {LONGEST:,}" if re.match(r"\+?[0-9.]", number) else "a number from 0 on"
            raise ModelError(f'{what}: "{_short(number)}" is not {most}. It is written "{form}".')
    if kind != "lognormal" and any("." in number for number in numbers):
        raise ModelError(f"{what}: lengths are whole numbers of positions.")
    first, second, *_ = *(float(number) if kind == "lognormal" else int(number) for number in numbers), 0
    return Lengths(kind, first, second, text=words)


def _forms() -> str:
    forms = ", ".join(f'"{form}"' for form in FORMS.values())
    return f'Write whole numbers ("900, 4000"), COUNTxLENGTH ("18x2000"), one of {forms}, or the path of a file.'


def _whole(what: str, digits: str, most: int, advice: str) -> int:
    """A whole number of 1 to `most`, written in digits."""
    if not digits.strip("0"):
        raise ModelError(f"{what} is 0; it must be at least 1.")
    if len(digits) > 30 or int(digits) > most:
        raise ModelError(f"{what} is {_short(digits)}; at most {most:,}. {advice}")
    return int(digits)


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


# --- from a file ---


def read_lengths(path: str | Path, column: str | None = None) -> Lengths:
    """Request lengths of a file: one number on each line, or a column of a CSV file with a heading.

    column : the heading; needed where there are several. Empty lines and lines that begin with # are passed over.
    Raises ModelError with the line of what is no whole positive number; FileError where the file cannot be read.
    """
    path = path_of(path, "request lengths")
    name = _short(named(path))
    try:
        raw = read_bytes(path, LARGEST_FILE + 1)
    except IsADirectoryError:
        raise ModelError(f"{name}: this is a folder. Give a file with one length on each line.") from None
    if len(raw) > LARGEST_FILE:
        raise ModelError(f"{name}: more than {LARGEST_FILE:,} bytes. Give the lengths' distribution instead.")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ModelError(f"{name}: this is no text in UTF-8. Give one length on each line.") from None
    if _PLAIN.fullmatch(text):  # a number on each line and nothing else: no CSV is needed
        values = tuple(map(int, text.split()))
        if column is None and len(values) <= MOST_REQUESTS and 1 <= min(values) and max(values) <= LONGEST:
            return Lengths("list", values=values, text=name)
    try:
        rows = [(number, [cell.strip() for cell in row]) for number, row in _rows(text)]
    except csv.Error as error:
        advice = f"Give a file of the lengths alone, cells of up to {csv.field_size_limit():,} characters."
        raise ModelError(f"{name}: no CSV ({error}). {advice}") from None
    if not rows:
        raise ModelError(f"{name}: the file holds no lengths. Give one on each line.")
    first = rows[0][1][0]
    titled = re.match(r"[^\W\d]", first) and first.isprintable() and first.casefold() not in _NO_NUMBERS
    heading = rows[0][1] if titled or column is not None else None
    index = _column(name, heading, column) if heading is not None else 0
    if heading is not None and len(rows) == 1:
        raise ModelError(f"{name}: a heading and no lengths below it. Give one on each line.")
    if heading is None and any(len(row) > 1 for _, row in rows):
        raise ModelError(f"{name}: several columns and no heading. Give a file with one number on each line.")
    values = tuple(_length(name, number, row, index) for number, row in rows[heading is not None :])
    if len(values) > MOST_REQUESTS:
        raise ModelError(f"{name}: more than {MOST_REQUESTS:,} requests. Give their distribution instead.")
    return Lengths("list", values=values, text=name)


def _rows(text: str) -> list[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""))
    return [(reader.line_num, row) for row in reader if any(map(str.strip, row)) and not row[0].startswith("#")]


def _column(name: str, heading: Sequence[str], column: str | None) -> int:
    if column is None and len(heading) == 1:
        return 0
    if column is None:
        raise ModelError(f"{name}: which column holds the lengths? {did_you_mean('', heading, 'Columns')}")
    if len(heading) == 1 and heading[0] != column:
        for mark, word in _SEPARATORS.items():
            if mark in heading[0]:
                wrong = f"{name}: its columns are separated by {word}"
                raise ModelError(f"{wrong}; commas are read. Change that in the file.")
    if heading.count(column) > 1:
        raise ModelError(f'{name}: {heading.count(column)} columns are called "{_short(column)}". Rename one.')
    if column not in heading:
        raise ModelError(f'{name}: no column "{_short(column)}". {did_you_mean(column, heading, "Columns")}')
    return heading.index(column)


def _length(name: str, number: int, row: Sequence[str], index: int) -> int:
    text = row[index] if index < len(row) else ""
    digits = re.fullmatch(r"([0-9]{1,13})(?:\.0*)?", text, re.ASCII)
    if digits is None or not 1 <= int(digits[1]) <= LONGEST:
        raise ModelError(f'{name}, line {number}: "{_short(text)}" is no whole number of positions from 1 on.')
    return int(digits[1])
