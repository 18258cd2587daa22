"""How many requests fit against how long each is."""

from __future__ import annotations

from typing import Any, cast

from offload.memory import Memory
from offload.memory_curve import Concurrency, FitCurve
from offload.plots import style
from offload.plots.page import Page
from offload.plots.style import drawn, format_of, save
from offload.printing import clean
from offload.units import format_bytes, format_share

LEAST = 0.75  # requests at the lower edge: one request is seen
ABOVE = 1.6  # the upper edge, in times of the most requests
ASIDE = 0.015  # of the width, right of the furthest dot, so that none is cut


@drawn
def concurrency(result: Concurrency, *, answer: Memory, ax: Any = None) -> Any:
    """How many requests of one length fit, over the length; above the highest line more does not fit.

    result : from `concurrency_of(answer)`. Returns the axes, log-log: positions of each request along, requests up.
    """
    page = Page(ax)
    axes = page.axes
    dots = [fit for fit in (result.admitted, result.asked) if fit is not None]
    every = [fit for curve in result.curves for fit in curve.points] + dots
    low = min(fit.length for fit in every)
    high = max([*(fit.length for fit in every), 2 * low, result.limit or 0, *(length for _, length in result.marks)])
    right = high * max(1.06, (high / low) ** ASIDE)
    top = ABOVE * max(fit.requests for fit in every)
    page.limits("x", low, right, log=True)
    page.limits("y", LEAST, top, log=True, whole=True)
    page.words(axes, "positions of each request", "requests that fit")
    for name, length in result.marks:
        page.above(f"{name}\n{length:,}", length)
    if result.limit is not None and low <= result.limit <= high:
        page.above(f"model's limit\n{result.limit:,}", result.limit)
        axes.axvline(result.limit, color=style.now().ink, linewidth=1.2, zorder=1.5, gid="faint")
    highest = max(result.curves, key=lambda curve: curve.points[-1].length)
    xs, ys = _line(highest, right)
    axes.fill_between([*xs, right], [*ys, ys[-1]], top, zorder=0.5, **style.forbidden())
    entries = []
    for number, curve in enumerate(result.curves):
        axes.plot(*_line(curve, right), solid_capstyle="butt", zorder=5, label=curve.format, **style.look(number))
        entries.append((f"KV in {curve.format}", style.look(number)))
    looks = ({"linestyle": "none", "marker": "o", "markersize": 7, "color": style.now().ink},
             {"linestyle": "none", "marker": "D", "markersize": 7, "color": style.now().ink,
              "markerfacecolor": style.now().paper})  # fmt: skip
    share = format_share(answer.risk)
    found = ((result.admitted, looks[0], f"admitted at {share} risk"), (result.asked, looks[1], "asked"))
    for fit, look, words in found:
        if fit is not None and fit.requests:
            axes.plot([fit.length], [fit.requests], zorder=8, label=words, **look)
            page.beside(fit.length, fit.requests, f"{words}:\n{fit.requests:,} of {fit.length:,} positions",
                        [(1, 1), (-1, -1)])  # fmt: skip
            entries.append((words, look))
    entries.append(("does not fit", {"patch": style.forbidden()}))
    serving = answer.serving
    block = f" in blocks of {serving.block}" if serving.block > 1 else ""
    prefix = f", {serving.shared_prefix:,} positions of it shared" if serving.shared_prefix else ""
    notes = [f"Every request is held at the same length{block}{prefix}", f"Lengths asked for: {answer.lengths.text}"]
    return page.finish(finding(result, answer), _memory(answer), entries, notes)


def draw_concurrency(found: Concurrency, answer: Memory, path: str) -> None:
    """Draw it to an .svg, .png or .pdf file, which is replaced. Raises PlotError as `save`."""
    format_of(path)
    save(concurrency(found, answer=answer), path)


def _line(curve: FitCurve, right: float) -> tuple[list[float], list[float]]:
    """A curve as it is drawn: down to the edge where not one request fits, or on to the border."""
    last = curve.points[-1]
    end = (right, last.requests) if curve.endless else (last.length, LEAST)
    return [*(fit.length for fit in curve.points), end[0]], [*(fit.requests for fit in curve.points), end[1]]


def _memory(answer: Memory) -> str:
    rank, serving = answer.budget.tightest, answer.serving
    ranks = serving.tp * serving.pp
    weights = f"weights in {answer.weights}, " if answer.weights else ""
    where = f"on each of {ranks} GPUs" if serving.tp == ranks > 1 else "on the tightest GPU" if ranks > 1 else ""
    return f"{weights}{format_bytes(rank.left)} for KV {where}".rstrip()


def finding(found: Concurrency, answer: Memory) -> str:
    """What the figure shows, in a sentence."""
    lever = next((one for one in answer.levers if one.what == "KV cache in fp8" and not one.reason), None)
    then = None if lever is None or len(found.curves) == 1 else lever.requests
    name, risk = clean(answer.model.name), format_share(answer.risk)
    if answer.by_risk is not None:
        text = f"{name}: {_fit(answer.by_risk.requests)} at {risk} risk of overflow"
    elif found.asked is not None:
        length = found.asked.length
        count = next((fit.requests for fit in found.curves[0].points if fit.length == length), 0)
        text = f"{name}: {_fit(count, f' of {length:,} positions')}"
    elif answer.asked is not None:
        fit = f"{answer.now:,} of {answer.asked:,} requests fit"
        text = f"{name}: {fit if answer.now else f'none of {answer.asked:,} requests fits'}"
        then = None  # the lever counts requests of the longest
    else:
        level = len({fit.requests for fit in found.curves[0].points}) == 1 and found.curves[0].endless
        text = f"{name}: {_fit(cast(int, answer.at_share), ' of any length' * level)}"
        text += ", each at its 99th percentile" * (not level)
        then = None
    return text if not then else f"{text}, with KV in fp8 {then:,}"


def _fit(count: int, of: str = "") -> str:
    if not count:
        return f"none{of} fits" if of else "no request fits"
    return f"1 request{of} fits" if count == 1 else f"{count:,} requests{of} fit"
