"""Figures of `plots` within a page: each drawn for a light and for a dark ground, and written once.

Both drawings are the same but for their colours, so that one stands in the page and its colours are those of the
reader's ground. Names within a figure are its own, styles reach nothing outside it, and it fetches nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from offload.comparison import Comparison
from offload.curves import floor_curve
from offload.errors import OffloadError
from offload.page import markup
from offload.step import Step
from offload.study import Study
from offload.topology import Topology

MOST = 400_000  # characters of a figure; a heavier one is a file of its own
INK = "#010101"  # as good as black, which an SVG leaves out: then both drawings would differ by more than colours
_COLOUR = re.compile(r"#[0-9a-fA-F]{6}\b")
_APART = re.compile(r"<\?xml.*?\?>|<!DOCTYPE.*?>|<!--.*?-->|<metadata>.*?</metadata>|<title>.*?</title>|"
                    r"<style\b.*?</style>", re.S)  # fmt: skip
_FIGURE = re.compile(r"\d+\.\d{3,}")


@dataclass(frozen=True, slots=True)
class Drawn:
    """A figure of a page. finding : what it shows, in words. light, dark : its SVG for each ground. wrong : why there
    is none.
    """

    name: str
    title: str
    finding: str = ""
    light: str = ""
    dark: str = ""
    wrong: str = ""


def of_step(study: Study, step: Step, topology: Topology, residency: Callable[[], Any] | None = None) -> list[Drawn]:
    """The figures of a step. residency : gives the grid over the layers in a memory, where a plan has such."""
    from offload import plots

    curve = cache(lambda: floor_curve(step))  # once for both grounds
    kinds: list[tuple[str, str, Callable[[], Any]]] = [
        ("timeline", "Timeline: when each task uses each resource", lambda: plots.timeline(step)),
        ("server", "The server, and how busy each part is", lambda: plots.server(topology, study=study)),
        ("floor", "The floor over the rate of what binds", lambda: plots.latency_floor(curve(), study=study)),
    ]
    if residency is not None:
        grid = cache(residency)
        kinds.append(("residency", "Times over the layers near the GPU", lambda: plots.residency(grid())))
    kinds.append(("memory", "What lies in each memory", lambda: plots.memory_stack(study)))
    return [draw(*kind) for kind in kinds]


def of_comparison(found: Comparison) -> list[Drawn]:
    """The figure of a comparison."""
    from offload import plots

    return [draw("ranking", "The ranking, with intervals", lambda: plots.ranking(found))]


def draw(name: str, title: str, make: Callable[[], Any]) -> Drawn:
    """A figure for both grounds; where it cannot be drawn or is too heavy, why."""
    from offload.plots.style import DARK, LIGHT, render, theme

    made, finding = [], ""
    try:
        for ground in (replace(LIGHT, ink=INK), DARK):
            with theme(ground):
                axes = make()
                finding = str(axes.get_figure().get_label())
                made.append(render(axes, "svg").decode("utf-8"))
    except OffloadError as error:
        return Drawn(name, title, wrong=str(error))
    if len(made[0]) > MOST:
        return Drawn(name, title, wrong="it has too many parts for a page; offload plot writes it to a file.")
    return Drawn(name, title, finding, *made)


def section(drawn: Sequence[Drawn], note: str) -> tuple[str, str]:
    """The figures as a part of a page, and the style that goes with them; both empty where there is none."""
    if not drawn:
        return "", ""
    colours: dict[tuple[str, str], str] = {}
    parts, without = [markup.element("p", markup.text(note), class_="note")], []
    for one in drawn:
        if one.wrong:
            without.append(f"{one.title}: {one.wrong}")
            continue
        inner = markup.element("div", inline(one, colours), class_="wide drawn", tabindex="0", role="region",
                               aria_label=one.title)  # fmt: skip
        opened = " open" if len(parts) == 1 else ""
        parts.append(f"<details{opened}><summary>{markup.text(one.title)}</summary>\n{inner}\n</details>")
    if without:
        parts.append(markup.element("p", markup.text("Not drawn: " + " ".join(without)), class_="note"))
    return markup.section("figures", "Figures", "\n".join(parts)), style_of(colours)


def inline(one: Drawn, colours: dict[tuple[str, str], str]) -> str:
    """A figure as an element of a page, that is told in words by its finding.

    colours : gets the name of each pair of colours, of a light and a dark ground.
    """
    light, dark = (_own(text, f"drawn-{one.name}") for text in (one.light, one.dark))
    if _COLOUR.split(light) == _COLOUR.split(dark):
        pairs = iter(zip(_COLOUR.findall(light), _COLOUR.findall(dark), strict=True))
        light = _COLOUR.sub(lambda found: _variable(next(pairs), colours), light)
    head, rest = light.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', head)
    width = re.search(r'viewBox="\S+ \S+ (\S+) ', head)
    wide = "" if width is None else f' width="{float(width[1]) * 4 / 3:.0f}"'  # CSS pixels of points
    return f'<svg role="img" aria-label="{markup.text(one.finding)}" {box[0] if box else ""}{wide}>{rest.rstrip()}'


def style_of(colours: Mapping[tuple[str, str], str]) -> str:
    """The colours of figures, by the ground of the page."""
    light, dark = ("".join(f"{name}:{pair[ground]};" for pair, name in colours.items()) for ground in (0, 1))
    return (f":root {{ {light} }}\n@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n")


def _variable(pair: tuple[str, str], colours: dict[tuple[str, str], str]) -> str:
    if pair[0] == pair[1]:
        return pair[0]
    return f"var({colours.setdefault(pair, f'--drawn{len(colours)}')})"


def _own(text: str, prefix: str) -> str:
    """An SVG without what only a file has, with names that no other figure has, and no more digits than are seen."""
    text = _APART.sub("", text).replace("xlink:href", "href").strip()
    used = dict.fromkeys(re.findall(r'(?:url\(#|href="#)([^)"]+)', text))
    names = {name: f"{prefix}-{number}" for number, name in enumerate(used)}
    text = re.sub(r' id="([^"]*)"', lambda found: f' id="{names[found[1]]}"' if found[1] in names else "", text)
    text = re.sub(r'(url\(#|href="#)([^)"]+)', lambda found: found[1] + names[found[2]], text)
    # Black is left out of what is written.
    text = re.sub(r'<text style="(?![^"]*fill:)([^"]*)"', r'<text style="\1; fill: #000000"', text)
    text = re.sub(r' d="([^"]*)"', lambda found: f' d="{_short(found[1])}"', text)
    return re.sub(r">\s+<", "><", text)


def _short(path: str) -> str:
    return _FIGURE.sub(lambda found: f"{float(found[0]):.2f}", " ".join(path.split()))
