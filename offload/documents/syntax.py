"""Text to YAML nodes: what is no YAML at all is told in plain words, with line, column and the fix.

The parser stops at the first such mistake, so there is one per file; everything after it is `marks`' work.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

import yaml

from offload.errors import DocumentError, FileError, MissingFileError, Mistake
from offload.files import named, read_bytes

Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # without libyaml PyYAML has the second alone: slower

LONGEST_FILE = 4_000_000  # characters; a person's file has thousands
REMEMBERED = 50_000  # characters of a text whose nodes are kept
MOST_BYTES = 4 * LONGEST_FILE  # a character takes at most four in UTF-8
ODD_SPACE = re.compile("[\u00a0\u1680\u2000-\u200b\u202f\u205f\u2060\u3000\ufeff]")
FULL_WIDTH_COLON = "\uff1a"
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")
_LINE_END = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_EATEN = re.compile(r"\s(#\S[^,}\]]*)")
_NO_SPACE = re.compile(r"^\s*([^\s:\"'#{\[]+):([^\s:/\\][^:]*)$")


def read_text(path: Path, name: str) -> str:
    """The text of a file; raises DocumentError where it is no UTF-8 text, FileError where it cannot be read."""
    try:
        data = read_bytes(path, MOST_BYTES + 1)  # a device has no end
    except MissingFileError as error:
        text = f"{name}: no such file. Looked for it in {named(path.resolve().parent)}."
        raise MissingFileError(text).of(error, path) from None
    except IsADirectoryError:
        raise FileError(f"{name} is a folder; name a file in it.") from None
    if len(data) > MOST_BYTES:
        message = f"the file has more than {MOST_BYTES:,} bytes; at most {LONGEST_FILE:,} characters are read."
        raise DocumentError(name, [Mistake(0, 0, "", message)])
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", "replace")
        message = f"byte 0x{data[error.start]:02x} is not UTF-8. Save the file as UTF-8 (the usual choice of editors)."
        raise DocumentError(name, [_at(before, len(before), message)]) from None


def lines_of(text: str) -> list[str]:
    """The lines as YAML counts them."""
    return _LINE_END.split(text)


def compose(text: str, name: str) -> yaml.MappingNode:
    """The root map of a text; raises DocumentError for anything that is not one YAML document with keys."""
    root = _composed(text, name)
    if root is None:
        message = 'the file is empty. It holds keys and values, like "title: ...".'
        raise DocumentError(name, [Mistake(1, 1, "", message)])
    if not isinstance(root, yaml.MappingNode):
        raise DocumentError(name, [_no_map(root, lines_of(text))])
    return root


def compose_value(text: str, name: str) -> yaml.Node:
    """The node of a text that is one value: a scalar, a list or a map; raises DocumentError for anything else."""
    root = _composed(text, name)
    if root is None:
        raise DocumentError(name, [Mistake(0, 0, "", "the value is missing.")])
    return root


def _composed(text: str, name: str) -> yaml.Node | None:
    """The root of a text, None where there is none; raises DocumentError for what is no YAML."""
    text = text.removeprefix("\ufeff")
    if len(text) > LONGEST_FILE:
        message = f"the file has {len(text):,} characters; at most {LONGEST_FILE:,} are read."
        raise DocumentError(name, [Mistake(0, 0, "", message)])
    if found := _CONTROL.search(text):
        message = f"character U+{ord(found[0]):04X} is not allowed in a text file. Remove it."
        raise DocumentError(name, [_at(text, found.start(), message)])
    try:
        return _read_again(text) if len(text) <= REMEMBERED else yaml.compose(text, Loader)
    except RecursionError:
        raise DocumentError(name, [Mistake(0, 0, "", "the maps are nested too deeply to be meant.")]) from None
    except yaml.MarkedYAMLError as error:
        raise DocumentError(name, [_explained(error, lines_of(text))]) from None
    except yaml.YAMLError as error:
        raise DocumentError(name, [Mistake(0, 0, "", f"not readable as YAML: {error}.")]) from None


@lru_cache(maxsize=32)
def _read_again(text: str) -> yaml.Node | None:
    """The root of a text that may be read again and again, as a sweep reads its plan; nobody changes it."""
    return yaml.compose(text, Loader)


def _at(text: str, index: int, message: str) -> Mistake:
    before = lines_of(text[:index])
    return Mistake(len(before), len(before[-1]) + 1, "", message)


def _no_map(root: yaml.Node, lines: list[str]) -> Mistake:
    line, column = root.start_mark.line, root.start_mark.column
    if isinstance(root, yaml.SequenceNode):
        message = 'the file is a list. It holds keys and values at its top level, like "title: ..." (without "- ").'
        return Mistake(line + 1, column + 1, "", message)
    message = 'the file is one text, without keys. Write "key: value", with a space after the colon.'
    if hint := _look_alike(lines, line):
        message, line, column = hint
    return Mistake(line + 1, column + 1, "", message)


def _explained(error: yaml.MarkedYAMLError, lines: list[str]) -> Mistake:
    """A parser's error in plain words, at the place where it can be mended."""
    mark = error.problem_mark or error.context_mark
    line, column = _within(lines, mark)
    problem, context = error.problem or "", error.context or ""
    here = lines[line]
    if "another document" in problem or "document start" in problem:
        message = 'a second document starts here. One file holds one document: remove this and what follows ("---").'
    elif "nesting depth" in problem:
        message = "maps and lists are nested too deeply to be meant."
    elif (tab := _tab(lines, line, column)) and "token" in problem + context or "tab character" in problem:
        column = tab - 1 if tab else column
        message = "a tab. YAML indents with spaces only: replace the tab by spaces."
    elif "alias" in problem + context or "anchor" in problem + context:
        column = max((n for n in range(min(column, len(here))) if here[n] in " {[,"), default=-1) + 1
        word = re.split(r"[,}\]]|:\s|\s#", here[column:])[0].strip()
        message = f'a text that starts with * or & must be quoted: "{word}".'
        if "undefined" in problem:
            message = f'"{word}" names an anchor that is not defined before. Quote a text that starts with *: "{word}".'
        elif "duplicate" in problem + context:
            message = f'the anchor "{word}" is defined twice. Give each "&name" once.'
    elif "cannot start any token" in problem:
        word = here[column:].split(",")[0].strip()
        message = f'a text cannot start with "{word[:1]}": quote it, "{word}".'
    elif "quoted scalar" in context and error.context_mark:
        line, column = _within(lines, error.context_mark)
        message = "a quoted text starts here and does not end well: close the quote, or escape what is in it."
        if "escape" in problem:
            message = 'a backslash in double quotes starts an escape: use single quotes, or write "\\\\".'
    elif "unexpected ':'" in problem and re.match(r":\s*[,}\]]", here[column:]):
        word = re.split(r"[{\[,]", here[:column])[-1].strip()
        message = f'the value of "{word}" is missing. Give one, after the colon and a space, or remove the key.'
    elif hint := _look_alike(lines, line):
        message, line, column = hint
    elif error.context_mark and "flow" in context:
        message, line, column = _unclosed(error, lines, line, column)
    elif "mapping values" in problem and here[:column].count(": "):
        message = 'a second ": " in one line. Quote a text that holds a colon and a space: key: "a: b".'
    elif "mapping values" in problem or "expected key" in problem or "'-' indicator" in problem:
        message = (
            "this line does not fit the lines above it. Keys of one map start in the same column, each with its own"
            ' colon and a space ("key: value"); quote a text that holds quotes.'
        )
    else:
        message = f"not readable as YAML: {problem or error}" + (f" {context}." if context else ".")
    return Mistake(line + 1, column + 1, "", message)


def _unclosed(error: yaml.MarkedYAMLError, lines: list[str], line: int, column: int) -> tuple[str, int, int]:
    """A { or [ that was not closed: often a # ate the rest, or a text holds a colon."""
    start, opening = _within(lines, error.context_mark)
    for number in range(start, line + 1):
        if eaten := _EATEN.search(lines[number]):
            message = f'YAML takes "{eaten[1].strip()}" and what follows as a comment. Quote a text that holds " #".'
            return message, number, eaten.start(1)
    if start == line and lines[line][column : column + 1] == ":":
        return 'a second ": " in one value. Quote a text that holds a colon and a space: {key: "a: b"}.', line, column
    opened = lines[start][opening : opening + 1]
    closing = {"{": "}", "[": "]"}.get(opened)
    if closing is None:
        return 'a value is missing here, or a text needs quotes: "...".', line, column
    message = f'a "," or the "{closing}" that closes this "{opened}" is missing, or a text in it needs quotes.'
    return (message, start, opening) if line != start else (message, line, column)


def _within(lines: list[str], mark: yaml.Mark | None) -> tuple[int, int]:
    """Line and column of a parser's mark, from 0; a mark behind the end of the text is moved to its end."""
    if mark is None or mark.line >= len(lines):
        return (0, 0) if mark is None else (len(lines) - 1, len(lines[-1]))
    return mark.line, mark.column


def _tab(lines: list[str], line: int, column: int) -> int:
    """The column (from 1) of a tab that indents the line at fault, or 0."""
    here = lines[line]
    indent = here[: len(here) - len(here.lstrip())]
    if "\t" in indent:
        return indent.index("\t") + 1
    return column + 1 if here[column : column + 1] == "\t" else 0


def _look_alike(lines: list[str], line: int) -> tuple[str, int, int] | None:
    """A colon, a space or a missing space that only looks right, in the line at fault or just above: what, where."""
    for number in (line, line - 1):
        text = lines[number] if 0 <= number < len(lines) else ""
        if FULL_WIDTH_COLON in text:
            return 'a full-width colon (U+FF1A). Write ": ".', number, text.index(FULL_WIDTH_COLON)
        if found := ODD_SPACE.search(text):
            message = f"a {space_name(found[0])}, which YAML takes as text. Write a plain space."
            return message, number, found.start()
        if found := _NO_SPACE.match(text):
            message = f'a space is missing after the colon: write "{found[1]}: {found[2].strip()}".'
            return message, number, found.end(1)
    return None


def space_name(character: str) -> str:
    """What an odd space is called."""
    names = {"\u00a0": "no-break space", "\u3000": "full-width space", "\u200b": "zero-width space"}
    names["\ufeff"] = "byte order mark"
    return f"{names.get(character, 'space of an odd kind')} (U+{ord(character):04X})"
