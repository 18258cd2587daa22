"""Expressions over max and +: a small frozen tree, its text, and a reader that shows where a text goes wrong."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from offload.errors import FormulaError, one_line, shown
from offload.given import mapping

DEEPEST = 50  # parentheses within parentheses
TOKEN = re.compile(r"\s*(?:([A-Za-z_][A-Za-z0-9_.]*)|(.))", re.S)


@dataclass(frozen=True, slots=True)
class Term:
    """A named time."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Sum:
    """Parts one after another."""

    parts: tuple[Node, ...]

    def __post_init__(self) -> None:
        _some(self.parts)

    def __str__(self) -> str:
        return " + ".join(f"({part})" if isinstance(part, Sum) else str(part) for part in self.parts)


@dataclass(frozen=True, slots=True)
class Max:
    """Parts at once: the longest counts."""

    parts: tuple[Node, ...]

    def __post_init__(self) -> None:
        _some(self.parts)

    def __str__(self) -> str:
        return f"max({', '.join(map(str, self.parts))})"


Node = Term | Sum | Max


def _some(parts: tuple[Node, ...]) -> None:
    if not isinstance(parts, tuple) or not all(isinstance(part, Node) for part in parts):
        raise FormulaError(f"{shown(parts)}: the parts of a sum or max are a tuple of Term, Sum and Max.")
    if not parts:
        raise FormulaError("a sum or max without parts has no value; give it one at least.")


def tree_of(form: Node | str) -> Node:
    """A form's tree, read where it is a text; raises FormulaError for what is neither."""
    return form if isinstance(form, Node) else parse(form)


def terms_of(tree: Node) -> tuple[str, ...]:
    """The names of a tree's terms, each once, in the order in which they first stand."""
    if isinstance(tree, Term):
        return (tree.name,)
    if not isinstance(tree, Node):
        raise FormulaError(f"{shown(tree)} is no tree of a form: give what `parse` makes of its text.")
    return tuple(dict.fromkeys(name for part in tree.parts for name in terms_of(part)))


def substitute(tree: Node | str, by: Mapping[str, Node | str]) -> Node:
    """The tree with terms replaced by trees or texts; raises FormulaError on a name that is no term of it."""
    tree = tree_of(tree)
    known = terms_of(tree)
    for name in mapping("by", by, "{term: form}"):
        if name not in known:
            raise FormulaError(f'"{one_line(name)}" is no term of {tree}. Terms: {", ".join(known)}.')
    return _replaced(tree, {name: tree_of(one) for name, one in by.items()})


def _replaced(tree: Node, by: Mapping[str, Node]) -> Node:
    if isinstance(tree, Term):
        return by.get(tree.name, tree)
    return type(tree)(tuple(_replaced(part, by) for part in tree.parts))


def parse(text: str) -> Node:
    """The tree of a text of names, +, max(..., ...), sum(..., ...) and parentheses, as "ctog + max(gtoc, comp)".

    Names are letters, digits, _ and dots. Raises FormulaError that points at the first place that cannot be read.
    """
    if not isinstance(text, str):
        raise FormulaError(f'{shown(text)} is no text; write a form such as "max(compute, link + disk)".')
    reader = _Reader(text)
    tree = reader.sum(0)
    if reader.token:
        reader.refuse("a + or the end is due here")
    return tree


class _Reader:
    """One pass over a text, a token at a time; `token` is "" at the end."""

    def __init__(self, text: str):
        self.text = text
        self.at = self.after = 0
        self.token = ""
        self.is_name = False
        self.next()

    def next(self) -> None:
        found = TOKEN.match(self.text, self.after)
        if not found:
            self.at, self.after, self.token, self.is_name = len(self.text), len(self.text), "", False
            return
        self.is_name = found[1] is not None
        self.token = found[1] or found[2].strip()
        self.at, self.after = found.start(1 if self.is_name else 2), found.end()
        if not self.token:  # white space at the end
            self.at = len(self.text)

    def refuse(self, why: str) -> NoReturn:
        first, last = max(0, self.at - 60), max(self.at, 60) + 30  # what is around the place
        line = re.sub(r"\s", " ", self.text[first:last])
        line = f"{'...' if first else ''}{line}{'...' if last < len(self.text) else ''}"
        column = self.at - first + (3 if first else 0)
        raise FormulaError(f"{why}:\n  {line}\n  {' ' * column}^\nA form has names, +, max(a, b) and parentheses.")

    def sum(self, depth: int) -> Node:
        parts = [self.item(depth)]
        while self.token == "+":
            self.next()
            parts.append(self.item(depth))
        return parts[0] if len(parts) == 1 else Sum(tuple(parts))

    def item(self, depth: int) -> Node:
        if depth > DEEPEST:
            self.refuse(f"more than {DEEPEST} parentheses within each other")
        if self.is_name:
            name = self.token
            self.next()
            if self.token != "(":
                return Term(name)
            if name not in ("max", "sum"):
                self.refuse(f'"{name}" is no function')
            parts = self.inside(depth, ",")
            return (Max if name == "max" else Sum)(parts) if len(parts) > 1 else parts[0]
        if self.token == "(":
            return self.inside(depth, "")[0]
        if self.token.isdigit():
            self.refuse("a number is no term: give it a name, and its time beside the others'")
        self.refuse("a name is due here" if self.token else "the form ends where a name is due")

    def inside(self, depth: int, separator: str) -> tuple[Node, ...]:
        """What stands in parentheses, from the opening one on."""
        self.next()
        parts = [self.sum(depth + 1)]
        while separator and self.token == separator:
            self.next()
            parts.append(self.sum(depth + 1))
        if self.token != ")":
            self.refuse("a + or a closing parenthesis is due here" if not separator else
                        "a +, a comma or a closing parenthesis is due here")  # fmt: skip
        self.next()
        return tuple(parts)
