"""What tests of figures look at: where text lies and what is written; and the laws that every figure keeps to."""

from __future__ import annotations

from collections.abc import Callable

from offload import Study, compile_step, evaluate, load_plan
from offload.plots import style
from offload.step import Step


def outlines(figure) -> list[tuple[str, object]]:
    """Every piece of text of a figure, with its outline [pixels], turned as the text is."""
    import numpy
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.path import Path as Outline
    from matplotlib.text import Text
    from matplotlib.transforms import Affine2D

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    found = []
    for text in figure.findobj(Text):
        if not text.get_text() or not text.get_visible():
            continue
        angle = text.get_rotation()
        if angle % 90 == 0:
            box = text.get_window_extent(canvas.get_renderer())
            corners = numpy.array([(box.x0, box.y0), (box.x1, box.y0), (box.x1, box.y1), (box.x0, box.y1)])
        else:  # a name along the curve, turned about its middle
            text.set_rotation(0)
            box = text.get_window_extent(canvas.get_renderer())
            middle = numpy.array([(box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2])
            corners = numpy.array([(-1, -1), (1, -1), (1, 1), (-1, 1)]) * (box.width / 2, box.height / 2)
            corners = Affine2D().rotate_deg(angle).translate(*middle).transform(corners)
        found.append((text.get_text(), Outline(numpy.vstack([corners, corners[:1]]), closed=True)))
    return found


def assert_clear(figure) -> int:
    """No text is cut off, and none lies on another; how many there are."""
    found = outlines(figure)
    left_edge, low_edge, right_edge, high_edge = figure.bbox.extents
    for number, (text, outline) in enumerate(found):
        (left, low), (right, high) = outline.vertices.min(axis=0), outline.vertices.max(axis=0)
        inside = left_edge - 0.5 <= left and right <= right_edge + 0.5 and low_edge <= low and high <= high_edge
        assert inside, f"{text} is cut off"
        for other, another in found[:number]:
            assert not outline.intersects_path(another, filled=True), f"{text} lies on {other}"
    return len(found)


def written(figure) -> list[str]:
    """Every text that is seen on a figure."""
    return [text for text, _ in outlines(figure)]


# The laws of figures.


def assert_page(figure, theme: str) -> None:
    """No text is cut off or lies on another; the page has its width and colour, its finding as title, and its maker."""
    assert assert_clear(figure) > 12
    assert abs(figure.get_size_inches()[0] * 25.4 / style.WIDTH - 1) < 1e-6
    found = written(figure)
    assert any("offload 0.1.0" in text for text in found), "what drew it"
    title = figure.get_label()
    assert len(title) > 20 and title in " ".join(found), "the title is the finding, and is written"
    paper = [int(style.THEMES[theme].paper[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    assert all(abs(one - other) < 1e-6 for one, other in zip(figure.get_facecolor()[:3], paper, strict=True))


def assert_draws_on_given_axes(draw: Callable[..., object], *, keeps_place: bool = True) -> None:
    """It draws on `ax` and returns it, and leaves the settings of the process and the other axes as they were."""
    import matplotlib
    from matplotlib.figure import Figure

    before = dict(matplotlib.rcParams)
    figure = Figure(figsize=(14, 7))
    axes = figure.subplots(1, 2)
    place = axes[0].get_position().bounds
    found = draw(ax=axes[0])
    assert found is axes[0] and found.get_figure() is figure and len(found.get_children()) > 8
    assert not keeps_place or found.get_position().bounds == place
    assert dict(matplotlib.rcParams) == before
    assert figure.get_size_inches().tolist() == [14, 7] and not axes[1].lines and not axes[1].patches


def assert_same_bytes(draw: Callable[[], object]) -> str:
    """Two drawings of the same values are the same file, whatever the process has set; the text of the SVG."""
    from matplotlib import rc_context

    other = {"font.size": 30, "lines.linewidth": 9, "hatch.linewidth": 5, "svg.fonttype": "path", "svg.hashsalt": None}
    found = {}
    for suffix in ("svg", "png", "pdf"):
        found[suffix] = style.render(draw(), suffix)
        with rc_context(other):
            again = style.render(draw(), suffix)
        assert found[suffix] == again and again, suffix
    svg = found["svg"].decode()
    assert "<dc:date>" not in svg and "<text" in svg and "<dc:title>" in svg and len(svg) < 100_000
    return svg


def compiled(path: object) -> tuple[Step, Study]:
    """The step of a plan file, and its study."""
    plan, topology = load_plan(path)
    return compile_step(topology, plan), evaluate(topology, plan)


def bars(axes, label: str) -> list:
    """The bars of a name."""
    return [patch for patch in axes.patches if patch.get_label() == label]


def line(axes, label: str):
    """The first line of a name."""
    return next(one for one in axes.get_lines() if one.get_label() == label)
