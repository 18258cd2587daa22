"""What a result says to a notebook: that it is shown as HTML, or as a figure.

Results stand below what shows them (`displays`), which is loaded when a notebook asks; Matplotlib is only for a figure.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

HOME = "offload.displays"


class Displayed:
    """A result that a notebook shows as HTML, as `displays.html_of` has it."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        html: str = import_module(HOME).html_of(self)
        return html


class Pictured:
    """A result of which there is a figure."""

    __slots__ = ()

    def picture(self, *, theme: str | None = None, **more: Any) -> Any:
        """The figure of this result, which a notebook shows: as `displays.picture` makes it, and raises."""
        return import_module(HOME).picture(self, theme=theme, **more)


class Drawing(Pictured):
    """A result that a notebook shows as its figure, as it is one."""

    __slots__ = ()

    def _repr_svg_(self) -> str:
        svg: str = self.picture()._repr_svg_()
        return svg
