"""Results in a notebook: HTML that is whole, says what the result says and runs nothing; figures as SVG."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from offload import compare, evaluate, load_plan, load_topology, sweep
from offload.comparison import Candidate
from offload.compiler import compile_step
from offload.curves import floor_curve
from offload.displayed import Displayed, Pictured
from offload.displays import DRAWN, SHOWN, html_of, picture
from offload.drive_counts import drive_counts
from offload.errors import OffloadError
from offload.placing import Objective, best_of, plan_question
from offload.printing import number_text
from offload.rooflines import roofline
from offload.sweeps import Words
from offload.units import format_bytes_both, format_rate, format_seconds
from offload.words import plan_from_words
from tests.commands import ROOT

VOID = {"br", "hr", "img", "input", "link", "meta"}
EVIL = '<b onclick="x()">"&\'</b><script>alert(1)</script>'


class Parsed(HTMLParser):
    """The elements of a page, whether each is closed, the visible text, and tables as (caption, rows of texts)."""

    def __init__(self, html: str):
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.tables: list[tuple[str, list[list[str]]]] = []
        self.wrong: list[str] = []
        self.feed(html)
        self.close()
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        if len(set(names)) < len(names):
            self.wrong.append(f"{tag}: an attribute twice")
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append(("", []))
        if tag == "tr":
            self.tables[-1][1].append([])
        if tag in ("td", "th"):
            self.tables[-1][1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open[-1] != tag:
            self.wrong.append(f"</{tag}> in {self.open}")
        else:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        if "style" in self.open:
            return
        self.words.append(data)
        if self.open and self.open[-1] in ("td", "th"):
            self.tables[-1][1][-1][-1] += data
        if self.open and self.open[-1] == "caption":
            self.tables[-1] = (self.tables[-1][0] + data, self.tables[-1][1])

    def tags(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.seen if tag == name]


def parsed(html: str) -> Parsed:
    """The page, which is well-formed, has tables with headings and names, and runs and fetches nothing."""
    page = Parsed(html)
    assert page.wrong == [] and page.open == []
    assert not page.tags("script") and not page.tags("link") and not page.tags("iframe")
    for tag, attributes in page.seen:
        assert not [name for name in attributes if name.startswith("on") or name in ("src", "href", "id")], tag
    assert all(caption and rows for caption, rows in page.tables)
    assert {len(row) - len(rows[0]) for _, rows in page.tables for row in rows} <= {0}
    assert {one.get("scope") for one in page.tags("th")} <= {"col", "row"}
    style = re.search(r"<style>(.*?)</style>", html, re.S)[1]
    told = re.sub(r"rgba\(128, 128, 128, \.35\)|#d00000", "", style)  # a rule and a warning: seen on any ground
    assert not re.search(r"#[0-9a-f]{3}|rgb|url|@import", told), "letters and grounds are those of the page"
    assert all(one.lstrip().startswith(".offload ") for rule in re.findall(r"([^{}]+)\{", style)
               for one in rule.split(",")), "no rule reaches another cell"  # fmt: skip
    return page


@pytest.fixture(scope="module")
def desktop():
    return plan_from_words("llama-3.1-70b:q4_k_m", "desktop-4090", gpu_layers=38)


@pytest.fixture(scope="module")
def study(desktop):
    plan, topology = desktop
    return evaluate(topology, plan)


@pytest.fixture(scope="module")
def grid():
    return sweep(Words("llama-3.1-8b:bf16", "desktop-4090"), ["gpu-layers=0,16,32", "batch=1,4"])


@pytest.fixture(scope="module")
def answer():
    plan, topology = plan_from_words("llama-3.1-8b:bf16", "desktop-4090")
    return best_of(plan_question(plan, topology), compile_step(topology, plan), Objective("latency"))


def candidate(server: str, **more) -> Candidate:
    return Candidate("my plan", server, plan_from_words("llama-3.1-8b:bf16", server, **more))


def test_a_study(study):
    page = parsed(study._repr_html_())
    for time in (study.floor.seconds, study.overlapped.seconds, study.overlapped.high, study.serial.seconds):
        assert format_seconds(time) in page.text
    tables = dict(page.tables)
    assert tables["Times"][0] == ["", "back to back", "tokens/s", "one step alone"]
    floor = next(row for row in tables["Times"] if row[0] == "floor")
    assert floor[1:] == [format_seconds(study.floor.seconds), number_text(study.tokens_per_s.floor),
                         format_seconds(study.floor.cold_seconds)]  # fmt: skip
    assert {row.name for row in study.resources} <= {row[0] for row in tables["Resources"]}
    assert all(format_seconds(one.seconds) in page.text and one.what in page.text for one in study.changes)
    opened = [attributes for attributes in page.tags("details") if "open" in attributes]
    assert len(opened) == 1 < len(page.tags("details")) == len(page.tags("summary"))
    lead = page.text.index("No schedule makes a step shorter than")
    assert lead < page.text.index("Read or moved each step"), "the answer comes first"
    assert "DOES NOT FIT" not in page.text


def test_a_study_that_does_not_fit():
    plan, topology = plan_from_words("llama-3.1-70b:q4_k_m", "desktop-4090", gpu_layers=80)
    study = evaluate(topology, plan)
    assert not study.fits
    html = study._repr_html_()
    page = parsed(html)
    assert "Times are as if it fitted." in page.text
    assert re.search(r'<p class="wrong">DOES NOT FIT: hbm0 lacks ', html)


def test_a_server(desktop):
    topology = desktop[1]
    page = parsed(topology._repr_html_())
    tables = [row for _, rows in page.tables for row in rows]
    for name, memory in topology.memories.items():
        row = next(row for row in tables if row[0] == name and row[1] == memory.kind)
        assert format_bytes_both(memory.capacity * memory.count) in row[2]
    peak = topology.resources["dram0"].peak
    assert ["dram0", "any", format_rate(peak, 4)] in [row[:3] for row in tables]


def test_a_grid(grid):
    page = parsed(grid._repr_html_())
    assert "Sweep over gpu-layers, batch: 6 points" in page.text
    over = dict(page.tables)["Floor over gpu-layers and batch"]
    assert [row[0] for row in over[1:]] == ["0", "16", "32"] and over[0][1:] == ["1", "4"]
    for row, floors, fits in zip(over[1:], grid.floor, grid.fits, strict=True):
        pairs = zip(floors, fits, strict=True)
        assert row[1:] == [format_seconds(value) + ("" if one else "*") for value, one in pairs]
    best = dict(page.tables)["Best that fit, by floor"]
    assert best[1][2] == format_seconds(grid.best(1)[0].floor)


def test_a_part_of_a_grid_says_where_it_is(grid):
    page = parsed(grid.at(batch=4)._repr_html_())
    assert "Sweep over gpu-layers: 3 points" in page.text and "at batch 4" in page.text


def test_a_grid_of_one_figure():
    page = parsed(sweep(Words("llama-3.1-8b:bf16", "desktop-4090"), ["batch=1,4"], figures=["floor"])._repr_html_())
    assert dict(page.tables)["Sweep over batch: 2 points"][1] == ["batch", "2", "1", "4"]
    assert "It holds floor." in page.text or "It holds floor, " in page.text


def test_a_grid_without_a_step(grid):
    """Nothing was made anywhere: the reasons are told."""
    import numpy

    none = replace(grid, floor=numpy.full(grid.shape, numpy.nan), causes=numpy.zeros(grid.shape, dtype=numpy.int32),
                   wrong={EVIL: 6})  # fmt: skip
    page = parsed(none._repr_html_())
    assert "No step can be made at any point." in page.text and f"6: {EVIL}" in page.text


def test_a_comparison():
    found = compare([candidate("desktop-4090"), candidate("gh200"), candidate("strix-halo-mini-pc")])
    page = parsed(found._repr_html_())
    (rows,) = [rows for caption, rows in page.tables if "by expected time of a step" in caption]
    assert len(found.ranked) > 1
    assert [row[0] for row in rows[1:]] == [f"{place} {one.server}" for place, one in enumerate(found.ranked, 1)]
    floors = rows[0].index("floor")
    assert [row[floors] for row in rows[1:]] == [format_seconds(one.floor.seconds) for one in found.ranked]


def test_what_is_hinted_at_is_python():
    """Of options of the command line nothing is said where there is none."""
    more = {"gpu-layers": "0:20:21", "batch": "1:20"}
    wide = sweep(Words("llama-3.1-8b:bf16", "desktop-4090"), [f"{path}={values}" for path, values in more.items()])
    text = parsed(wide._repr_html_()).text
    assert "more points are not shown: to_csv(FILE) writes all." in text and " -o " not in text and "--" not in text


def test_a_comparison_in_which_nothing_fits():
    plan, server = plan_from_words("llama-3.1-70b:q4_k_m", "desktop-4090", gpu_layers=80)
    page = parsed(compare([Candidate("big", "desktop-4090", (plan, server))])._repr_html_())
    assert "Nothing fits." in page.text and "lacks" in page.text


def test_a_placement(answer):
    page = parsed(answer._repr_html_())
    best = next(row for row in dict(page.tables)["Times"] if row[0] == "best placement")
    assert best[1] == format_seconds(answer.placing.best.seconds)
    assert best[3] == format_seconds(answer.placing.best.floor)
    assert "--engine" not in page.text and "engines_of(answer.placing.best) has its JSON" in page.text


@pytest.mark.parametrize("what", ["study", "server", "comparison"])
def test_names_are_escaped(what, study, desktop):
    if what == "study":
        html = replace(study, title=EVIL, assumptions=(f"{EVIL}: {EVIL}",), not_modelled=(EVIL,))._repr_html_()
    elif what == "server":
        html = replace(desktop[1], title=EVIL, stated=(EVIL,))._repr_html_()
    else:
        html = compare([Candidate(EVIL, "a", plan_from_words("llama-3.1-8b:bf16", "gh200")),
                        Candidate("b", "a", desktop)])._repr_html_()  # fmt: skip
    page = parsed(html)
    assert "<b " not in html and not page.tags("b") and EVIL in page.text


def test_control_characters_stay_out(study):
    html = replace(study, title="a\x1b[31m\x00b")._repr_html_()
    assert "a?[31m?b" in html and "\x1b" not in html


def test_every_class_that_says_so_has_a_display():
    assert all(issubclass(kind, Displayed) for kind in SHOWN) and all(issubclass(kind, Pictured) for kind in DRAWN)
    with pytest.raises(OffloadError, match="no display of .*Study, Comparison"):
        html_of(3)


# Figures.


def drawn(svg: str) -> str:
    """The texts of an SVG, which is well-formed and has a name for who cannot see it."""
    root = ElementTree.fromstring(svg)
    assert root.tag.endswith("svg") and root.get("role") == "img" and root.get("aria-label")
    assert not [one for one in root.iter() if one.tag.endswith("script")]
    return " ".join(" ".join(root.itertext()).split())


def test_a_curve_is_shown_as_its_figure(desktop, study):
    curve = floor_curve(compile_step(desktop[1], desktop[0]), "dram0")
    assert "peak rate of dram0 (GB/s)" in drawn(curve._repr_svg_())
    assert study.title in drawn(curve.picture(study=study)._repr_svg_())


def test_a_roofline_and_drives_are_shown_as_their_figures(desktop):
    plan, topology = desktop
    assert "FLOP" in drawn(roofline([(1.0, compile_step(topology, plan))], "batch")._repr_svg_())
    plan, topology = load_plan(ROOT / "examples" / "three-tiers.yaml")
    assert "drives" in drawn(drive_counts(compile_step(topology, plan), None, range(1, 5))._repr_svg_())


def test_a_grid_and_a_placement_have_a_figure(grid, answer):
    assert "my box" in drawn(grid.picture(subject="my box")._repr_svg_())
    assert format_seconds(answer.placing.best.floor) in drawn(answer.picture()._repr_svg_())
    light, dark = (grid.picture(theme=theme)._repr_svg_() for theme in ("light", "dark"))
    assert "#14181c" in dark.lower() and "#14181c" not in light.lower()


def test_a_step_a_comparison_and_a_server_have_a_figure(desktop, study):
    assert study.title in drawn(study.picture()._repr_svg_())
    found = compare([candidate("desktop-4090"), candidate("gh200")])
    assert "gh200 comes first" in drawn(found.picture(subject="my plan")._repr_svg_())
    topology = desktop[1]
    plain, used = (drawn(topology.picture(study=one)._repr_svg_()) for one in (None, study))
    assert "dram0" in plain and "%" in used and "%" not in plain


def test_axes_that_were_drawn_are_shown(grid):
    from offload import plots

    axes = plots.residency(grid.at(batch=1), subject="here")
    assert picture(axes).axes is axes and "here" in drawn(picture(axes)._repr_svg_())
    with pytest.raises(OffloadError, match="theme: these axes are drawn already"):
        picture(axes, theme="dark")


@pytest.mark.parametrize("theme", ["sepia", 3])
def test_what_has_no_figure_is_refused(study, grid, theme):
    with pytest.raises(OffloadError, match="no figure of .*Grid, Answer, Curve"):
        picture(study.floor)
    with pytest.raises(OffloadError, match="no theme"):
        grid.picture(theme=theme)


def test_a_display_loads_no_matplotlib():
    code = ("import sys; from offload import load_topology, evaluate; from offload.words import plan_from_words\n"
            "plan, server = plan_from_words('llama-3.1-8b:bf16', 'desktop-4090'); study = evaluate(server, plan)\n"
            "assert 'offload.displays' not in sys.modules\n"
            "server._repr_html_(), study._repr_html_()\n"
            "assert 'offload.displays' in sys.modules and 'matplotlib' not in sys.modules")  # fmt: skip
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_results_stay_what_they_were(desktop):
    """Being displayed adds no field and no dict, and servers are still copied through pickle."""
    import pickle

    topology = load_topology("desktop-4090")
    assert pickle.loads(pickle.dumps(topology)) == topology and not hasattr(topology, "__dict__")
