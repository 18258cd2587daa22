"""XML documents that stand in a tool's output, as elements with their lines; nothing that could be loaded is loaded.

    for root in documents(text, "topology"):
        root.attributes["version"], [child.line for child in root.all("object")]

Log lines may stand before, between and after the documents. Entities and references to other files are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NoReturn
from xml.parsers import expat

from offload.errors import ReadingError
from offload.readers.tools.text import Text

DEEPEST = 200  # elements in one another
MOST = 100_000  # elements of a document
MOST_DOCUMENTS = 50
# A document type without a list of entities is passed over; hwloc's names its own definition, which is never loaded.
DOCTYPE = re.compile(r'<!DOCTYPE\s+(\w+)\s*(?:SYSTEM\s*["\']hwloc\d?\.dtd["\']\s*)?>', re.IGNORECASE)
LOADS = re.compile(r"<!(?:ENTITY|NOTATION|ELEMENT|ATTLIST)\b|<\w+:include\b|<!DOCTYPE\b", re.IGNORECASE)


@dataclass(slots=True)
class Element:
    """An element: its name, attributes, line in the file, children and the pieces of text directly in it."""

    name: str
    attributes: dict[str, str]
    line: int
    children: list[Element] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text directly in it, what stands between its children too."""
        return "".join(self.pieces)

    def get(self, name: str) -> str:
        """An attribute without the blanks around it, "" where it is absent."""
        return self.attributes.get(name, "").strip()

    def all(self, name: str) -> Iterator[Element]:
        """The children of a name."""
        return (child for child in self.children if child.name == name)

    def whole(self, name: str = "") -> Iterator[Element]:
        """This element and all in it, in the order of the file; `name` : those of that name."""
        stack = [self]
        while stack:
            element = stack.pop()
            if not name or element.name == name:
                yield element
            stack.extend(reversed(element.children))


def holds(text: Text, root: str, child: str) -> bool:
    """Whether a document of this root, with such a child, seems to stand in the text."""
    return bool(re.search(rf"<{root}\b", text.whole) and re.search(rf"<{child}\b", text.whole))


def documents(text: Text, root: str) -> tuple[Element, ...]:
    """Every document with this root element, in the order of the file.

    Raises ReadingError for a document that is cut, broken, too deep or too large, and for entities, definitions in the
    file and references to other files.
    """
    content = _without_comments(text.without_prefixes().whole)
    _refuse_loading(content)
    found: list[Element] = []
    at = 0
    opening = re.compile(rf"<{root}(?=[\s/>])[^<>]*>")
    while start := opening.search(content, at):
        at = start.end()
        if len(found) == MOST_DOCUMENTS:
            line = _line(content, start.start())
            raise ReadingError(f"line {line}: more than {MOST_DOCUMENTS} <{root}> elements. Give one machine a file.")
        if not start[0].endswith("/>"):
            end = content.find(f"</{root}>", at)
            if end < 0:
                raise ReadingError(
                    f"line {_line(content, start.start())}: <{root}> is never closed, the file is cut. Give the whole "
                    f"file, down to </{root}>."
                )
            at = end + len(root) + 3
        found.append(_parsed(content[start.start() : at], _line(content, start.start())))
    if not found:
        raise ReadingError(f"holds no <{root}> element that can be read. Give the whole file.")
    return tuple(found)


def one_document(roots: tuple[Element, ...]) -> tuple[Element, str]:
    """The document to read where several are given: the first, if all say the same, and a remark (or "").

    Raises ReadingError where they differ: each tells a machine of its own.
    """
    first = roots[0]
    for other in roots[1:]:
        if not _same(first, other):
            raise ReadingError(
                f"lines {first.line} and {other.line} begin two <{first.name}> elements that differ. Give one machine "
                "in a file."
            )
    return first, f"the same <{first.name}> stands {len(roots)} times; it is read once" if roots[1:] else ""


def whole_number(text: str, most: int = 10**9) -> int | None:
    """A plain whole number of at most `most`; None for anything else."""
    return int(text) if re.fullmatch(r"[0-9]{1,12}", text) and int(text) <= most else None


def bits_of(mask: str) -> int | None:
    """How many bits a mask of hexadecimal words has ("0x00ff,,ffffffff"); None where it is no such mask or endless."""
    words = mask.lower().split(",")
    if not mask or any(not re.fullmatch(r"(?:0x)?[0-9a-f]{1,8}|", word) for word in words):
        return None
    return sum(int(word, 16).bit_count() for word in words if word)


def listed(names: Sequence[str]) -> str:
    """How many there are and the first four: "6 (gpu0, gpu1, gpu2, gpu3, ...)"."""
    return f"{len(names)} ({', '.join(names[:4])}{', ...' if names[4:] else ''})"


def _same(first: Element, other: Element) -> bool:
    pairs = zip(first.whole(), other.whole(), strict=False)
    told = (sum(1 for _ in root.whole()) for root in (first, other))
    return next(told) == next(told) and all(
        one.name == two.name and one.attributes == two.attributes and one.text.split() == two.text.split()
        for one, two in pairs
    )


def _line(content: str, offset: int) -> int:
    return content.count("\n", 0, offset) + 1


def _without_comments(content: str) -> str:
    """The text with its comments blank; their lines stay."""
    kept, at = [], 0
    while (start := content.find("<!--", at)) >= 0 and (end := content.find("-->", start + 4)) >= 0:
        kept += [content[at:start], "\n" * content.count("\n", start, end)]
        at = end + 3
    return "".join(kept) + content[at:]


def _refuse_loading(content: str) -> None:
    for sign in LOADS.finditer(content):
        if DOCTYPE.match(content, sign.start()):
            continue
        raise ReadingError(
            f"line {_line(content, sign.start())}: {sign[0]} is refused. Entities, definitions and references to other "
            "files are not read; give the tool's own file."
        )


def _parsed(content: str, line: int) -> Element:
    """A document's root element, from its text, which begins at a line of the file."""
    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = True
    stack: list[Element] = []
    roots: list[Element] = []
    count = 0

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if count > MOST or len(stack) >= DEEPEST:
            most = f"{DEEPEST} elements in one another" if count <= MOST else f"{MOST:,} elements"
            raise ReadingError(f"line {line - 1 + parser.CurrentLineNumber}: more than {most}; no tool writes that.")
        element = Element(name, attributes, line - 1 + parser.CurrentLineNumber)
        (stack[-1].children if stack else roots).append(element)
        stack.append(element)

    def end(_: str) -> None:
        stack.pop()

    def characters(data: str) -> None:
        stack[-1].pieces.append(data)

    def refused(*_: object) -> NoReturn:
        raise ReadingError(f"line {line - 1 + parser.CurrentLineNumber}: entities are not read.")

    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, characters
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = parser.ExternalEntityRefHandler = refused
    try:
        parser.Parse(content.encode("utf-8", errors="replace"), True)
    except expat.ExpatError as error:
        at = line - 1 + error.lineno
        raise ReadingError(f"line {at}: the XML is broken: {expat.ErrorString(error.code)}. Give the file as it was "
                           "written.") from None  # fmt: skip
    return roots[0]
