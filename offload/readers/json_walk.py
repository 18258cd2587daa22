"""Walking through JSON bytes piece by piece, so that no text can make its reader build more than it asked for."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any

from offload.errors import ModelError
from offload.errors import one_line as shown

BLANK = re.compile(rb"[ \t\n\r]*+")
STRING = re.compile(rb'"(?:[^"\\\x00-\x1f]++|\\.)*+"', re.S)
STRING_OR_SIGN = re.compile(STRING.pattern + rb'|[][{}"]', re.S)  # a quote alone: a string that is cut
QUOTE = ord('"')
FIRST_TRY = 512  # bytes; nearly every value is shorter
DEEPEST = 500  # maps and lists within each other; how many Python's own reader takes differs by its version


class JsonWalk:
    """A place in JSON bytes that only moves forward; every method raises ModelError with the byte where it failed."""

    def __init__(self, data: bytes, what: str, at: int = 0):
        """what : how messages call the JSON, as "the header"."""
        self.data, self.what, self.at = data, what, at

    def error(self, message: str) -> ModelError:
        return ModelError(f"{self.what}, byte {self.at:,}: {message}")

    def blank(self) -> int:
        """Skips blanks; the byte that follows, or -1 at the end."""
        if found := BLANK.match(self.data, self.at):  # as always: no blanks match too
            self.at = found.end()
        return self.data[self.at] if self.at < len(self.data) else -1

    def ended(self) -> bool:
        """Whether nothing but blanks is left."""
        return self.blank() < 0

    def take(self, sign: str) -> None:
        if self.blank() != ord(sign):
            found = "its end" if self.at >= len(self.data) else f'"{shown(self._rest(12))}"'
            raise self.error(f'no JSON, "{sign}" is due here and {found} stands.')
        self.at += 1

    def text(self, longest: int, called: str) -> str:
        """A text of at most `longest` bytes."""
        self.blank()
        match = STRING.match(self.data, self.at)
        if match is None:
            raise self.error(f"{called} must be a text in quotes, in one line and with its end.")
        if match.end() - match.start() - 2 > longest:
            size = match.end() - match.start() - 2
            raise self.error(f'{called} "{shown(self._rest(40)[1:])}..." is {size:,} bytes long; at most {longest:,} '
                             "are read.")
        try:
            text = match[0][1:-1].decode() if b"\\" not in match[0] else json.loads(match[0])
            text.encode()  # half a surrogate pair is no text either
        except UnicodeError:
            raise self.error(f"{called} is no text in UTF-8.") from None
        except ValueError as error:
            raise self.error(f"{called} is no JSON text ({error}).") from None
        self.at = match.end()
        return text

    def items(self, longest: int, called: str) -> Iterator[str]:
        """The keys of a map; the caller takes each key's value before it asks for the next. `called` is a key."""
        if self.blank() != ord("{"):
            raise self.error(f"{self.what} must be a map, {{...}}.")
        self.at += 1
        if self.blank() == ord("}"):
            self.at += 1
            return
        while True:
            key = self.text(longest, called)
            self.take(":")
            yield key
            if self.blank() == ord("}"):
                self.at += 1
                return
            self.take(",")

    def value(self, longest: int, called: str) -> Any:
        """Any value that is written in at most `longest` bytes."""
        self.blank()
        for length in (min(FIRST_TRY, longest), longest):
            part = self.data[self.at : self.at + length]
            whole = self.at + length >= len(self.data)
            try:
                text = codecs.utf_8_decode(part, "strict", whole)[0]
                found, end = DECODER.raw_decode(text)
            except UnicodeDecodeError as error:
                self.at += error.start
                raise self.error("here is no text in UTF-8.") from None
            except RecursionError:
                raise self.error(f"{called} nests too deeply.") from None
            except json.JSONDecodeError as error:
                if whole:
                    raise self.error(f"{called} is no JSON ({error.msg}).") from None
                continue
            except _Double as error:
                raise self.error(f'{called} holds the key "{shown(error)}" twice.') from None
            except ValueError:  # more digits than Python turns to a number
                raise self.error(f"{called} holds too long a number.") from None
            if whole or end < len(text):  # else a number may go on
                self.at += end if text.isascii() else len(text[:end].encode())
                return found
        if _depth(part) > DEEPEST:
            raise self.error(f"{called} nests too deeply.")
        raise self.error(f"{called} is no JSON, or longer than the {longest:,} bytes that are read.")

    def _rest(self, length: int) -> str:
        return self.data[self.at : self.at + length].decode("utf-8", "replace")


def _depth(text: bytes) -> int:
    """How many maps and lists are open at once at most. What stands in texts, and in one that is cut, counts for none.
    """
    deepest = depth = 0
    for found in STRING_OR_SIGN.finditer(text):  # one at a time: a list of them takes many times their size
        sign = text[found.start()]
        if sign == QUOTE:
            if found.end() - found.start() == 1:
                break
        else:
            depth += 1 if sign in b"[{" else -1
            deepest = max(deepest, depth)
    return deepest


class _Double(Exception):
    """A key that stands twice in one map; JSON's reader would drop the first without a word."""


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise _Double(key)
        values[key] = value
    return values


DECODER = json.JSONDecoder(object_pairs_hook=_no_doubles)
