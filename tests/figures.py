"""What tests of figures look at: where text lies, and what is written."""

from __future__ import annotations


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
