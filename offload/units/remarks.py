"""Remarks on how texts were read that are no mistakes: collected by who shows them to a person, else dropped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_heard: ContextVar[dict[str, None] | None] = ContextVar("heard", default=None)


@contextmanager
def remarks() -> Iterator[dict[str, None]]:
    """The remarks that are made inside, each once, in their order (the keys)."""
    found: dict[str, None] = {}
    token = _heard.set(found)
    try:
        yield found
    finally:
        _heard.reset(token)


def remark(text: str) -> None:
    """Make a remark: one sentence or two, without the place."""
    heard = _heard.get()
    if heard is not None:
        heard[text] = None
