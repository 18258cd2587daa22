"""The gallery is what its command makes, and pictures look as they did, within a tolerance."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import numpy
import pytest

from offload import compile_step, evaluate, load_plan, plots
from offload.documents import load_topology
from offload.plots import style
from offload.why.waterfall import Passes, waterfall
from tests.rack import write_rack

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
BASELINES = ROOT / "tests" / "data" / "figures"
MOST_BYTES = 100_000
TOLERANCE = 6.0  # mean difference of a channel, of 255: letters may be set otherwise, shapes may not move
SMALL = 50  # dots per inch

_spec = importlib.util.spec_from_file_location("gallery", DOCS / "gallery.py")
gallery = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(gallery)
QUICK = ("floor", "waterfall", "loads", "timeline", "memory", "concurrency", "drives", "server")


def numbers_of(svg: str) -> list[str]:
    """The texts of a figure."""
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_the_page_is_what_the_command_makes():
    assert (DOCS / "gallery.md").read_text(encoding="utf-8") == gallery.page()
    names = {figure.__name__ for figure in gallery.FIGURES}
    assert {path.stem for path in (DOCS / "gallery").iterdir()} == names
    for path in (DOCS / "gallery").iterdir():
        assert path.suffix == ".svg" and path.stat().st_size < MOST_BYTES, f"{path.name} is too large to ship"


def test_every_figure_of_the_package_is_shown():
    from offload.plots import __all__ as public

    helpers = {"Dot", "draw_concurrency", "draw_floor", "save", "theme", "over_axis",
               "replayed"}  # of a run on some machine: no two are alike
    page = gallery.page()
    assert [name for name in set(public) - helpers if f"plots.{name}(" not in page] == []


@pytest.mark.parametrize("figure", gallery.FIGURES, ids=lambda one: one.__name__)
def test_each_is_made_by_about_ten_lines(figure):
    shown = gallery.lines_of(figure)
    assert "\naxes = " in shown and len([line for line in shown.split("\n") if line]) <= 11
    compile(shown, figure.__name__, "exec")


@pytest.mark.few
@pytest.mark.parametrize("figure", [pytest.param(one, marks=() if one.__name__ in QUICK else pytest.mark.slow)
                                    for one in gallery.FIGURES], ids=lambda one: one.__name__)  # fmt: skip
def test_the_figures_are_what_the_lines_make(figure, monkeypatch):
    """The same texts everywhere; the same bytes with the Matplotlib that drew them."""
    monkeypatch.chdir(ROOT)
    made: dict = {}
    exec(compile(gallery.lines_of(figure), figure.__name__, "exec"), made)
    svg = style.render(made["axes"], "svg").decode("utf-8")
    kept = (DOCS / "gallery" / f"{figure.__name__}.svg").read_text(encoding="utf-8")
    assert numbers_of(svg) == numbers_of(kept)
    if len(svg) != len(kept):
        import matplotlib

        pytest.skip(f"Matplotlib {matplotlib.__version__} writes other bytes, with the same texts")
    assert svg == kept


# Pictures.


def small(axes) -> numpy.ndarray:
    """A figure as a small picture, (rows, columns, 3) of 0 to 255."""
    from io import BytesIO

    from matplotlib.image import imread

    target = BytesIO()
    with style.house_style():
        axes.get_figure().savefig(target, format="png", dpi=SMALL)
    target.seek(0)
    return numpy.asarray(imread(target))[:, :, :3] * 255


def difference(one: numpy.ndarray, other: numpy.ndarray) -> float:
    """The mean difference of two pictures; a difference of a few rows at their ends is cut off."""
    assert abs(one.shape[0] - other.shape[0]) <= 3 and one.shape[1] == other.shape[1]
    rows = min(one.shape[0], other.shape[0])
    return float(numpy.abs(one[:rows] - other[:rows]).mean())


def pictures(tmp_path: Path) -> dict:
    """What is kept as a picture: figures that no text describes, small and of 72 GPUs."""
    plan, topology = load_plan(ROOT / "examples" / "llama-3.1-70b-desktop.yaml")
    step = compile_step(topology, plan)
    rack, racked = load_plan(write_rack(tmp_path, 72))
    drives, there = load_plan(ROOT / "examples" / "llama-3-70b-from-two-drives.yaml")
    return {
        "server-mesh": lambda: plots.server(load_topology("dgx1-v100")),
        "server-72": lambda: plots.server(racked, study=evaluate(racked, rack)),
        "timeline": lambda: plots.timeline(compile_step(there, drives), until=1.0),
        "waterfall": lambda: plots.waterfall(waterfall(Passes("step", (step,)), 0.5)),
    }


@pytest.mark.few
@pytest.mark.parametrize("name", ["server-mesh", "server-72", "timeline", "waterfall"])
def test_pictures_look_as_they_did(name, tmp_path):
    from matplotlib.image import imread

    kept = numpy.asarray(imread(BASELINES / f"{name}.png"))[:, :, :3] * 255
    assert difference(small(pictures(tmp_path)[name]()), kept) < TOLERANCE


def test_another_picture_is_told_apart():
    """The tolerance is below what a wrong figure differs by."""
    plan, topology = load_plan(ROOT / "examples" / "llama-3-70b-from-two-drives.yaml")
    step = compile_step(topology, plan)
    one, other = (small(plots.timeline(step, until=seconds)) for seconds in (1.0, 0.6))
    assert difference(one, other) > TOLERANCE
