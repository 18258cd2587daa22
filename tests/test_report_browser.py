"""`offload report` in a real browser: sliders moved and numbers read, with the keyboard, on a phone, from a link."""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from offload.units import format_seconds
from tests.commands import ROOT, run
from tests.report_pages import data_of, figures_of, point_of, replayed, step_of, write_page

try:
    from playwright.sync_api import sync_playwright
except ImportError:
    sync_playwright = None
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = [
    pytest.mark.skipif(sync_playwright is None, reason="playwright is not installed (it is in the extra `test`)"),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium (Debian: apt install chromium)"),
]
CLOSE = 1e-9
# In place, streamed by hand, three tiers, eight ranks, experts on demand, training; with some stops.
DESIGNS = {
    "llama-3.1-70b-desktop": ("workload.batch=1,2,4", "placement.weights.hbm0=20 layers,38 layers"),
    "by-hand": (), "three-tiers": ("workload.batch=4,8",), "eight-gpus": ("workload.batch=16,32",),
    "expert-cache": ("workload.batch=1,4",), "train-3b-zero-offload": (),
}  # fmt: skip
# Layers of two kinds, so much in hbm0 that fetches slow computes, fetched ahead into some buffers: no example is such.
BLOCK = ("  - tasks:\n      fetch: {{move: {0}, to: hbm0}}\n"
         "      layer: {{compute: gpu0, flops: {1}, reads: [{0}, kv_{0}], after: fetch}}\n")  # fmt: skip
LAYERS = ("topology: desktop-4090\ntensors:\n  a: {bytes: 800 MB, home: dram0}\n  b: {bytes: 300 MB, home: dram0}\n"
          "  kv_a: {bytes: 3 GB, home: hbm0}\n  kv_b: {bytes: 900 MB, home: hbm0}\nblocks:\n" + "".join(
              BLOCK.format(kind, "4 TFLOP" if kind == "a" else "900 GFLOP") for kind in "abbab"))  # fmt: skip
STREAMED = {
    "equal-3": (ROOT / "examples/by-hand.yaml").read_text(encoding="utf-8").replace("buffers: 2", "buffers: 3"),
    "equal-4": (ROOT / "examples/by-hand.yaml").read_text(encoding="utf-8").replace("buffers: 2", "buffers: 4"),
    **{f"kinds-{buffers}": f"{LAYERS}overlap: {{buffers: {buffers}}}\n" for buffers in (2, 3, 4)},
}
# Times of hours, times of nanoseconds with tokens per second of millions, and a memory without a rate.
SMALL = STREAMED["equal-3"].replace("repeat: 80", "repeat: 8")
FAR = {
    "hours": SMALL.replace("1.76 GFLOP", "1760000000 TFLOP"),
    "nanoseconds": SMALL.replace("528 MB", "528 B").replace("16.8 MB", "17 B").replace("1.76 GFLOP", "2 FLOP"),
    "open": SMALL.replace("topology: desktop-4090", "topology: server.yaml"),
}
SERVER = """\
switches: {socket0: {kind: socket}}
memories:
  hbm0: {kind: hbm, capacity: 24 GB, rate: unknown}
  dram0: {kind: dram, at: socket0, capacity: 100 GB, rate: {peak: 40 GB/s, source: made up}}
processors:
  gpu0: {kind: gpu, memory: hbm0, flops: {bf16: 2500 TFLOP/s}, source: made up}
links:
  c0: {between: [socket0, hbm0], kind: c2c, rate: unknown}
"""
CUT = """() => [...document.querySelectorAll(".stage svg text")].filter((one) => {
  const box = one.getBoundingClientRect(), frame = one.ownerSVGElement.getBoundingClientRect();
  return box.left < frame.left - 1 || box.right > frame.right + 1 || box.bottom > frame.bottom + 1;
}).map((one) => one.textContent)"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    class Pages(dict):
        def __missing__(self, name: str) -> Path:
            folder = tmp_path_factory.mktemp("page")
            if name in STREAMED | FAR:
                (folder / "plan.yaml").write_text((STREAMED | FAR)[name], encoding="utf-8")
                (folder / "server.yaml").write_text(SERVER, encoding="utf-8")
                self[name] = write_page(folder, str(folder / "plan.yaml"))
                return self[name]
            over = [word for text in DESIGNS[name] for word in ("--over", text)]
            self[name] = write_page(folder, f"examples/{name}.yaml", *over)
            return self[name]

    return Pages()


@pytest.fixture
def opened(browser, pages) -> Iterator[Any]:
    """Opens a page; afterwards nothing may have gone wrong on it, and nothing may have been asked of a network."""
    contexts, wrong, asked = [], [], []

    def open_(name: str, fragment: str = "", **how: Any) -> Any:
        context = browser.new_context(**how)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: asked.append(request.url.split("#")[0]))
        page.goto(pages[name].as_uri() + fragment)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert wrong == []
    assert set(asked) <= {path.as_uri() for path in pages.values()}


def shown(page: Any) -> dict[str, float | None]:
    """The figures that the page shows, in full [s]; None where it tells between which times one is."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    found = {name: page.get_attribute(f"#{name}-time", "data-seconds") for name in ("floor", "expected", "serial")}
    found["sustained"] = page.get_attribute("#bench", "data-sustained")
    return {name: float(text) if text else None for name, text in found.items()}


def hash_of(page: Any) -> dict[str, str]:
    return dict(page.evaluate("() => [...new URLSearchParams(location.hash.slice(1))]"))


def state_of(page: Any, data: dict[str, Any]) -> tuple[list[int], dict[str, float]]:
    """The places of the stops and the factors of the rates, from the link that keeps them."""
    told = hash_of(page)
    at = [[one.replace(",", "") for one in axis["shown"]].index(told[axis["name"]]) if axis["name"] in told
          else axis["now"] for axis in data["axes"]]  # fmt: skip
    factors = {dial["name"]: float(told[f"{dial['name']}.rate"]) for dial in data["dials"]
               if f"{dial['name']}.rate" in told}  # fmt: skip
    return at, factors


def compare(page: Any, data: dict[str, Any], name: str, plan: str = "") -> dict[str, float | None]:
    """What the page shows against single evaluation in Python. plan : where it is no example."""
    found = shown(page)
    at, factors = state_of(page, data)
    wanted = figures_of(step_of(plan or f"examples/{name}.yaml", data, at, factors))
    for figure in ("floor", "serial", "sustained"):
        assert found[figure] == pytest.approx(wanted[figure], rel=CLOSE), (figure, at, factors)
    if found["expected"] is not None:
        assert found["expected"] == pytest.approx(wanted["expected"], rel=CLOSE), (at, factors)
    else:
        assert found["sustained"] * (1 - CLOSE) <= wanted["expected"] <= found["serial"] * (1 + CLOSE)
        low, high = format_seconds(wanted["sustained"]), format_seconds(wanted["serial"])
        assert page.inner_text("#expected-time") == f"{low} to {high}"
    return found


@pytest.mark.few
@pytest.mark.parametrize("name", DESIGNS)
def test_sliders_show_what_python_says(opened, pages, name):
    page, data = opened(name), data_of(pages[name])
    assert compare(page, data, name)["expected"] is not None
    for place in range(len(data["dials"])):
        page.locator(f"#dial-{place}").fill(f"{(-1) ** place * (0.13 + 0.11 * place) % 1:.2f}")
        compare(page, data, name)
    assert len(state_of(page, data)[1]) == len(data["dials"])
    for place, axis in enumerate(data["axes"]):
        for stop in range(len(axis["shown"])):
            page.locator(f"#axis-{place}").fill(str(stop))
            compare(page, data, name)
    page.click("#reset")
    assert compare(page, data, name)["expected"] is not None and set(hash_of(page)) <= {"over"}


@pytest.mark.few
@pytest.mark.parametrize("name", STREAMED)
def test_layers_in_any_buffers_show_what_python_says(opened, pages, name):
    """Streamed layers have their expected time at all rates, also where a search among ways to share finds it."""
    page, data = opened(name), data_of(pages[name])
    assert data["formula"] == "everywhere" and [one for one in data["programs"] if one["calls"]]
    chance, plan = random.Random(name), str(pages[name].parent / "plan.yaml")
    assert compare(page, data, name, plan)["expected"] is not None
    for _ in range(12):
        page.evaluate("(text) => { location.hash = text; }", "&".join(
            f"{dial['name']}.rate={10 ** chance.uniform(-1, 1)!r}" for dial in data["dials"]))
        assert compare(page, data, name, plan)["expected"] is not None


@pytest.mark.slow
def test_expected_time_that_is_searched_for_is_told_where_it_is_known(opened, pages):
    """Of one rate at some values; between two times elsewhere, and where two rates have moved."""
    page, data = opened("three-tiers"), data_of(pages["three-tiers"])
    place = next(place for place, factor, _ in data["along"] if factor == 10**0.3)
    page.locator(f"#dial-{place}").fill("0.3")
    assert compare(page, data, "three-tiers")["expected"] is not None
    page.locator(f"#dial-{place}").fill("0.31")
    assert compare(page, data, "three-tiers")["expected"] is None
    page.locator(f"#dial-{place}").fill("0.3")
    page.locator(f"#dial-{(place + 1) % len(data['dials'])}").fill("0.3")
    assert compare(page, data, "three-tiers")["expected"] is None


def test_a_typed_rate_counts_exactly_and_the_command_says_it(opened, pages):
    page, data = opened("llama-3.1-70b-desktop"), data_of(pages["llama-3.1-70b-desktop"])
    place = [dial["name"] for dial in data["dials"]].index("dram0")
    page.fill(f"#rate-{place}", "192")
    page.press(f"#rate-{place}", "Enter")
    page.locator("#axis-0").fill("1")
    assert compare(page, data, "llama-3.1-70b-desktop")["floor"] < 0.2
    assert hash_of(page)["dram0.rate"] == "2"
    said = " ".join(page.inner_text("#command").split())
    assert said == ('offload step examples/llama-3.1-70b-desktop.yaml --set workload.batch=2 --set '
                    '"placement.weights.hbm0=38 layers" --set "dram0.rate=192 GB/s"')  # fmt: skip
    assert "batch" in page.inner_text("#lead") and "192 GB/s" in page.inner_text("#lead")
    page.fill(f"#rate-{place}", "-5")
    page.press(f"#rate-{place}", "Enter")
    assert hash_of(page)["dram0.rate"] == "2" and page.input_value(f"#rate-{place}") != ""


def test_what_one_better_part_makes_faster_moves_together(opened, pages):
    page, data = opened("llama-3.1-70b-desktop"), data_of(pages["llama-3.1-70b-desktop"])
    names = [dial["name"] for dial in data["dials"]]
    page.check("#together")
    page.locator(f"#dial-{names.index('dram0')}").fill("0.5")
    compare(page, data, "llama-3.1-70b-desktop")
    told = hash_of(page)
    assert set(told) == {"dram0.rate", "cpu0.reads.rate"} and len(set(told.values())) == 1


@pytest.mark.slow
def test_a_link_keeps_the_state(opened, pages):
    first, data = opened("llama-3.1-70b-desktop"), data_of(pages["llama-3.1-70b-desktop"])
    first.locator("#axis-0").fill("2")
    first.locator("#dial-1").fill("-0.47")
    first.select_option("#over", "2")
    before = shown(first)
    link = first.get_attribute("#link", "href")
    other = opened("llama-3.1-70b-desktop", link)
    assert shown(other) == before and state_of(other, data) == state_of(first, data)
    assert other.input_value("#over") == "2" and other.input_value("#axis-0") == "2"
    other.evaluate("() => { location.hash = 'dram0.rate=nonsense&nobody=1&over=gone&workload.batch=77'; }")
    assert shown(other)["floor"] == shown(opened("llama-3.1-70b-desktop"))["floor"]


@pytest.mark.slow
def test_keyboard_reaches_and_moves_everything(opened, pages):
    """Tab goes from the answer through the sliders of the plan, then of the rates, in order; arrows move and read."""
    page, data = opened("llama-3.1-70b-desktop"), data_of(pages["llama-3.1-70b-desktop"])
    order = []
    for _ in range(60):
        page.keyboard.press("Tab")
        order.append(page.evaluate("() => document.activeElement.id || document.activeElement.className"))
    rates = [name for place in range(len(data["dials"])) for name in (f"rate-{place}", f"dial-{place}")]
    wanted = ["skip", "axis-0", "axis-1", *rates, "together"]
    assert [one for one in order if one in wanted][: len(wanted)] == wanted
    stages = [one for one in order if one.startswith("figure-")]
    assert stages[:3] == ["figure-times", "figure-over", "figure-loads"]

    before = shown(page)
    page.focus("#axis-0")
    page.keyboard.press("ArrowRight")
    page.focus("#dial-0")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    assert shown(page) != before
    compare(page, data, "llama-3.1-70b-desktop")
    assert page.get_attribute("#dial-0", "aria-valuetext").endswith(" x")
    page.focus("#figure-over")
    page.keyboard.press("Home")
    first = page.inner_text("#figure-over-read")
    page.keyboard.press("ArrowRight")
    assert "floor" in first and page.inner_text("#figure-over-read") != first
    page.keyboard.press("Escape")
    assert "arrow keys" in page.inner_text("#figure-over-read")


def test_pointing_reads_numbers(opened):
    page = opened("three-tiers")
    for name in ("figure-times", "figure-over", "figure-loads", "figure-axis-0", "figure-memory"):
        page.hover(f"#{name}")
        assert page.inner_text(f"#{name}-read") != "" and "arrow keys" not in page.inner_text(f"#{name}-read"), name


def test_everything_has_a_name(opened):
    """Each control, figure and region is named; values of sliders are told in words."""
    page = opened("eight-gpus")
    unnamed = page.evaluate("""() => {
      const named = (one) => (one.labels && one.labels.length) || one.getAttribute("aria-label") ||
        document.getElementById(one.getAttribute("aria-labelledby")) || one.textContent.trim();
      const all = document.querySelectorAll("input, select, button, [role=region], [role=group]");
      return [...all].filter((one) => !named(one)).map((one) => one.id);
    }""")
    assert unnamed == []
    told = page.evaluate("() => [...document.querySelectorAll('input[type=range]')].map((one) => one.ariaValueText)")
    assert all(told)
    titles = page.evaluate("() => [...document.querySelectorAll('figcaption')].map((one) => one.textContent)")
    assert all(titles) and len(set(titles)) == len(titles)


@pytest.mark.few
@pytest.mark.parametrize("name", ["llama-3.1-70b-desktop", "eight-gpus"])
@pytest.mark.parametrize("width", [360, 768, 1280])
def test_nothing_is_wider_than_the_screen(opened, name, width):
    page = opened(name, viewport={"width": width, "height": 800})
    assert page.evaluate("() => document.documentElement.scrollWidth") <= width
    assert page.evaluate(CUT) == []


@pytest.mark.parametrize("name", FAR)
def test_figures_of_any_size_have_room_and_round_ticks(opened, name):
    page = opened(name, viewport={"width": 360, "height": 800})
    assert page.evaluate(CUT) == []
    ticks = page.evaluate("() => [...document.querySelectorAll('#figure-over .tick')].map((one) => one.textContent)")
    odd = [one for one in ticks if re.sub(r"(e-?\d+)|[^0-9]", "", one).strip("0") not in ("1", "2", "3", "5")]
    assert len(ticks) > 8 and odd == []
    assert any(one.endswith({"hours": " h", "nanoseconds": " M", "open": " ms"}[name]) for one in ticks), ticks


def test_times_of_what_has_no_rate_are_least_ones(opened, pages):
    """As `offload step` tells them: the floor in full, the others as at least so long, and no tokens per second."""
    page, data = opened("open"), data_of(pages["open"])
    assert page.inner_text("#floor-time") == format_seconds(shown(page)["floor"]) and page.inner_text("#floor-rate")
    for name in ("expected", "serial"):
        assert page.inner_text(f"#{name}-time") == f">= {format_seconds(shown(page)[name])}"
        assert page.inner_text(f"#{name}-rate") == ""
    page.locator("#dial-0").fill("0.5")
    compare(page, data, "open", str(pages["open"].parent / "plan.yaml"))
    assert "Expected is at least " in page.inner_text("#lead") and "least" in page.inner_text("#figure-times-title")
    page.focus("#figure-over")
    page.keyboard.press("Home")
    assert "expected >= " in page.inner_text("#figure-over-read")


@pytest.mark.few
@pytest.mark.parametrize("width", [360, 1280])
def test_labels_of_figures_lie_apart(opened, width):
    page = opened("llama-3.1-70b-desktop", "#dram0.rate=2&workload.batch=2", viewport={"width": width, "height": 800})
    met = page.evaluate("""() => [...document.querySelectorAll(".stage svg")].flatMap((drawn) => {
      const boxes = [...drawn.querySelectorAll("text")].map((one) => [one.textContent, one.getBoundingClientRect()]);
      const meet = (one, other) => one.left < other.right - 1 && other.left < one.right - 1 &&
        one.top < other.bottom - 3 && other.top < one.bottom - 3;
      return boxes.flatMap(([a, one], k) => boxes.slice(k + 1).filter(([, other]) => meet(one, other))
        .map(([b]) => a + " | " + b));
    })""")
    assert met == []


@pytest.mark.few
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_stand_out_from_the_page(opened, scheme):
    """Contrast of at least 4.5 of all texts, and of 3 of lines and bars (WCAG 2.1, AA)."""
    page = opened("three-tiers", color_scheme=scheme)
    low = page.evaluate("""() => {
      const parts = (text) => text.match(/[0-9.]+/g).slice(0, 3).map((one) => Number(one) / 255);
      const light = (text) => parts(text).map((c) => (c <= 0.03928 ? c / 12.92 : Math.pow((c + 0.055) / 1.055, 2.4)))
        .reduce((sum, c, k) => sum + c * [0.2126, 0.7152, 0.0722][k], 0);
      const paper = light(getComputedStyle(document.body).backgroundColor);
      const told = (one, key, least) => {
        const own = light(getComputedStyle(one)[key]);
        const ratio = (Math.max(own, paper) + 0.05) / (Math.min(own, paper) + 0.05);
        return [one.getAttribute("class") || one.textContent.slice(0, 30), ratio, least];
      };
      const all = (what) => [...document.querySelectorAll(what)];
      const texts = all("p, h1, h2, h3, th, td, li, label, caption, figcaption, summary, a")
        .filter((one) => one.offsetParent).map((one) => told(one, "color", 4.5));
      const drawn = all(".stage .line").map((one) => told(one, "stroke", 3));
      const bars = all(".stage .bar").filter((one) => !one.getAttribute("fill")).map((one) => told(one, "fill", 3));
      return [...texts, ...drawn, ...bars].filter(([, found, least]) => !(found >= least));
    }""")
    assert low == []


@pytest.mark.slow
def test_times_are_printed_as_python_prints_them(opened):
    """Times over many sizes, from hours to microseconds, each as Python prints the number that the page holds."""
    page, dials = opened("by-hand"), ("pcie0.hbm0", "dram0", "hbm0", "gpu0.flops", "pcie0_both")
    for power in range(-30, 31, 3):
        page.evaluate("(text) => { location.hash = text; }", "&".join(
            f"{name}.rate={10 ** (power / 10)!r}" for name in dials))
        found = shown(page)
        for name in ("floor", "expected", "serial"):
            assert page.inner_text(f"#{name}-time") == format_seconds(found[name]), (name, found[name])


def test_the_page_prints(opened, tmp_path):
    page = opened("eight-gpus", color_scheme="dark")
    page.emulate_media(media="print")
    assert page.evaluate("() => getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    link = page.evaluate("() => getComputedStyle(document.querySelector('summary')).color")
    assert max(int(one) for one in link[4:-1].split(",")) < 180, "links are as dark as on a light page"
    page.set_viewport_size({"width": 720, "height": 1000})  # an A4 page between its margins
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 720
    assert page.is_visible("#figure-over svg") and not page.is_visible("#dial-0") and page.is_visible("#floor-time")
    path = tmp_path / "page.pdf"
    page.pdf(path=str(path), format="A4")
    assert path.read_bytes().startswith(b"%PDF") and path.stat().st_size > 20_000


@pytest.mark.slow
def test_a_comparison_goes_from_server_to_server(browser, tmp_path):
    """The slider of servers, rates by kinds of parts, and a figure over a kind that a server has none of."""
    out = tmp_path / "page.html"
    done = run("compare", "examples/llama-3.1-70b-desktop.yaml", "--on", "desktop-4090,gh200,mac-studio-m2-ultra",
               "--report", str(out))  # fmt: skip
    assert done.returncode == 0, done.stderr
    data, wrong = data_of(out), []
    page = browser.new_page(viewport={"width": 360, "height": 800})
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(out.as_uri())
    names = data["axes"][0]["shown"]
    floors = []
    for at, name in enumerate(names):
        page.locator("#axis-0").fill(str(at))
        found = shown(page)
        told = replayed(data, point_of(data, [at])["figures"], [1.0] * len(data["dials"]))
        assert found["floor"] == pytest.approx(told["floor"], rel=CLOSE)
        assert at == 0 or name in page.inner_text("#lead")
        reading = data["servers"][point_of(data, [at])["server"]]["readings"]
        seen = [page.is_visible(f"#dial-{place}") for place in range(len(data["dials"]))]
        assert seen == [one is not None for one in reading]
        assert seen[int(page.input_value("#over"))]
        floors.append(found["floor"])
    assert len(set(floors)) == 3
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 360
    page.close()
    assert wrong == []


@pytest.mark.slow
def test_a_stop_without_a_step_says_why(browser, tmp_path):
    """More layers than there are: no figure is shown there, and the way back works."""
    path = write_page(tmp_path, "examples/llama-3.1-70b-desktop.yaml", "--over",
                      "placement.weights.hbm0=38 layers,90 layers")  # fmt: skip
    page, wrong = browser.new_page(), []
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(path.as_uri())
    before = shown(page)
    page.locator("#axis-0").fill("1")
    assert set(shown(page).values()) == {None}
    assert "no step" in page.inner_text("#lead") and "layers" in page.inner_text("#lead")
    page.click("#reset")
    assert shown(page) == before and None not in before.values()
    page.close()
    assert wrong == []


def test_without_code_the_answer_stands(browser, pages):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(pages["by-hand"].as_uri())
    assert page.inner_text("#floor-time") == "1.34 s" and page.is_visible("noscript")
    context.close()
