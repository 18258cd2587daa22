"""Pieces of HTML: texts that are escaped, tables, lists, parts that open."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from html import escape
from typing import Any

from offload.printing import clean


def text(value: object) -> str:
    """A text as it may stand in a page; control characters of names stay out."""
    return escape("\n".join(clean(line) for line in str(value).split("\n")))


def element(name: str, inner: str, **attributes: str) -> str:
    """An element around what is markup already. attributes : `class_` for class, `aria_label` for aria-label."""
    told = "".join(f' {key.rstrip("_").replace("_", "-")}="{text(value)}"' for key, value in attributes.items())
    return f"<{name}{told}>{inner}</{name}>"


def section(name: str, title: str, inner: str) -> str:
    """A part of the page, which is found by its name."""
    head = f'<h2 id="{name}-title">{text(title)}</h2>'
    return f'<section id="{name}" aria-labelledby="{name}-title">\n{head}\n{inner}\n</section>'


def table(
    caption: str, headings: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[int] = (),
    marked: Collection[int] = (), long: Collection[int] = (),
) -> str:  # fmt: skip
    """A table of plain texts, whose first column names its rows. right : columns of numbers; long : of sentences;
    marked : rows.
    """

    def cell(name: str, value: str, column: int, scope: str = "") -> str:
        kind = "number" if column in right else "long" if column in long else ""
        side = f' class="{kind}"' if kind else ""
        return f"<{name}{scope}{side}>{text(value)}</{name}>"

    head = "".join(cell("th", one, column, ' scope="col"') for column, one in enumerate(headings))
    body = []
    for number, row in enumerate(rows):
        cells = cell("th", row[0], 0, ' scope="row"') + "".join(cell("td", one, at) for at, one in enumerate(row) if at)
        body.append(element("tr", cells, **({"class_": "marked"} if number in marked else {})))
    return (f'<div class="wide" tabindex="0" role="region" aria-label="{text(caption)}"><table>\n'
            f"<caption>{text(caption)}</caption>\n<thead><tr>{head}</tr></thead>\n"
            "<tbody>\n" + "\n".join(body) + "\n</tbody></table></div>")  # fmt: skip


def listing(items: Iterable[str]) -> str:
    """A list of texts that are markup already."""
    return f"<ul>{''.join(f'<li>{one}</li>' for one in items)}</ul>"


def fold_away(title: str, inner: str) -> str:
    """What is read when it is opened."""
    return f"<details><summary>{text(title)}</summary>\n{inner}\n</details>"


def code(value: str) -> str:
    """A text as it stands in a file."""
    return f'<pre tabindex="0"><code>{text(value)}</code></pre>'


def data(name: str, value: Any) -> str:
    """Data for the page's code, as JSON that no markup can end."""
    inner = json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c").replace("&", "\\u0026")
    return f'<script type="application/json" id="{name}">{inner}</script>'
