"""`offload report`: the page's data give what Python gives, the page is whole, and what cannot be is refused."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from offload.compiler import compile_step
from offload.documents import load_plan
from offload.page.stops import MOST_POINTS
from offload.plan import UNLIMITED
from offload.schedules import schedule
from offload.sensitivity import scaled
from tests.commands import ROOT, run
from tests.report_pages import data_of, figures_of, point_of, replayed, step_of, write_page

# In place, streamed by hand, three tiers, eight ranks, experts on demand, training, a prompt in chunks, drives.
DESIGNS = ("llama-3.1-70b-desktop", "by-hand", "three-tiers", "eight-gpus", "expert-cache", "train-3b-zero-offload",
           "phases-chunked-prefill", "weights-gpu-direct")  # fmt: skip
EXAMPLE = "examples/llama-3.1-70b-desktop.yaml"
BATCHES = {"llama-3.1-70b-desktop": "1,2", "three-tiers": "4,8", "eight-gpus": "16,32", "expert-cache": "1,4",
           "phases-chunked-prefill": "1,2", "weights-gpu-direct": "8,16"}  # fmt: skip


def words_of(name: str) -> list[str]:
    return [f"examples/{name}.yaml", *(["--over", f"workload.batch={BATCHES[name]}"] if name in BATCHES else [])]


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    """The pages by name, each made when it is asked for."""
    made: dict[str, Path] = {}

    class Pages(dict):
        def __missing__(self, name: str) -> Path:
            self[name] = write_page(tmp_path_factory.mktemp("page"), *words_of(name))
            return self[name]

    return Pages(made)


@pytest.mark.few
@pytest.mark.parametrize("name", DESIGNS)
def test_programs_give_the_figures_of_python(pages, name):
    """At the given rates and at others, at each stop: floor, sustained, serial, and expected where it has a formula."""
    data = data_of(pages[name])
    dials = [one["name"] for one in data["dials"]]
    known = 0
    for number, factors in enumerate(([1.0] * 12, [0.37, 2.0, 5.5, 1.0, 0.11, 9.0], [3.0, 1.0, 0.2, 4.0])):
        chosen = {dial: factors[place % len(factors)] for place, dial in enumerate(dials)}
        ats = [[place] for place in range(len(data["axes"][0]["shown"]))] if data["axes"] else [[]]
        for at in ats:
            point = point_of(data, at)
            wanted = figures_of(step_of(f"examples/{name}.yaml", data, at, chosen))
            found = replayed(data, point["figures"], [chosen[dial] for dial in dials])
            for figure in ("floor", "sustained", "serial"):
                assert found[figure] == wanted[figure], (figure, at, number)
            assert wanted["sustained"] * (1 - 1e-12) <= wanted["expected"] <= wanted["serial"] * (1 + 1e-12)
            if "expected" in point:
                expected = replayed(data, point["expected"], [chosen[dial] for dial in dials])
                assert expected is None or expected["overlapped"] == wanted["expected"]
                known += expected is not None
            elif number == 0:
                assert point["known"] == wanted["expected"]
                known += 1
    assert known


@pytest.mark.few
@pytest.mark.parametrize("buffers", ["2", "3", "4", "full"])
def test_expected_times_of_streamed_layers_are_known_at_all_rates(tmp_path, buffers):
    """The page calls the functions that find them, whatever the buffers: nothing is searched for ahead."""
    path = write_page(tmp_path, "examples/by-hand.yaml", "--buffers", buffers, "--ignore-capacity")
    data = data_of(path)
    told = data["points"][0]
    assert data["formula"] == "everywhere" and "known" not in told and data["along"] == []
    (call,) = data["programs"][told["expected"][0]]["calls"]
    assert f"function {call['function']}(" in path.read_text(encoding="utf-8")
    plan, topology = load_plan(ROOT / "examples/by-hand.yaml")
    many = UNLIMITED if buffers == "full" else int(buffers)
    step = compile_step(topology, replace(plan, overlap=replace(plan.overlap, buffers=many)))
    chance = random.Random(buffers)
    for _ in range(20):
        factors = [10 ** chance.uniform(-1, 1) for _ in data["dials"]]
        its = step
        for dial, factor in zip(data["dials"], factors, strict=True):
            its = scaled(its, dial["names"], factor)
        assert replayed(data, told["expected"], factors) == {"overlapped": schedule(its, ends=False).seconds}


def test_a_page_that_calls_nothing_holds_no_functions(pages):
    assert "function py_" not in pages["llama-3.1-70b-desktop"].read_text(encoding="utf-8")


def test_expected_times_along_a_rate_are_those_of_python(pages):
    data = data_of(pages["three-tiers"])
    assert len(data["along"]) > 6
    for dial, factor, seconds in data["along"][:: len(data["along"]) // 5]:
        at = [axis["now"] for axis in data["axes"]]
        step = step_of("examples/three-tiers.yaml", data, at, {data["dials"][dial]["name"]: factor})
        assert figures_of(step)["expected"] == seconds


def sets_of(data: dict, place: int) -> list:
    """The settings that do what a dial does, on the first server."""
    return data["servers"][0]["readings"][place]["sets"]


@pytest.mark.slow
def test_settings_of_a_dial_say_what_it_does(pages):
    """The command that a page shows, with a rate of its dial doubled, gives its floor."""
    data = data_of(pages["llama-3.1-70b-desktop"])
    assert len(data["servers"]) == 1 and all(sets_of(data, place) for place in range(len(data["dials"])))
    for place, dial in enumerate(data["dials"]):
        unit = "FLOP/s" if dial["unit"] == "FLOP" else "B/s"
        sets = [word for path, rate in sets_of(data, place) for word in ("--set", f"{path}={2 * rate!r} {unit}")]
        told = json.loads(run("step", *data["command"], *sets, "--json").stdout)
        factors = [2.0 if one == place else 1.0 for one in range(len(data["dials"]))]
        point = point_of(data, [axis["now"] for axis in data["axes"]])
        found = replayed(data, point["figures"], factors)
        assert told["floor"]["seconds"] == pytest.approx(found["floor"], rel=1e-9)
        assert told["serial"]["seconds"] == pytest.approx(found["serial"], rel=1e-9)


def test_a_link_behind_a_drive_has_no_setting_of_its_own(pages):
    """What a link to a drive sustains follows from the drive: no setting of the link alone does what its dial does."""
    data = data_of(pages["three-tiers"])
    names = [one["name"] for one in data["dials"]]
    assert sets_of(data, names.index("m2.socket0")) == [] and sets_of(data, names.index("ssd0.read"))


@pytest.mark.slow
def test_words_of_stops_give_the_step_of_the_point(tmp_path):
    """A model in words: the words of each stop, behind those of the page, give the floor that the page has there."""
    page = write_page(tmp_path, "llama-3.1-8b:q8_0", "--on", "desktop-4090", "--gpu-layers", "20", "--batch", "2",
                      "--set", "dram0.rate=80GB/s")  # fmt: skip
    data = data_of(page)
    assert [axis["name"] for axis in data["axes"]] == ["workload.batch", "workload.context", "gpu-layers"]
    lengths = [len(axis["shown"]) for axis in data["axes"]]
    for at in ([axis["now"] for axis in data["axes"]], [0, 0, 0], [length - 1 for length in lengths]):
        words = [word for axis, one in zip(data["axes"], at, strict=True) for word in axis["words"][one]]
        told = json.loads(run("step", *data["command"], *words, "--ignore-capacity", "--json").stdout)
        found = replayed(data, point_of(data, at)["figures"], [1.0] * len(data["dials"]))
        assert told["floor"]["seconds"] == found["floor"] and told["serial"]["seconds"] == found["serial"]


@pytest.mark.slow
def test_stops_that_the_plan_has_none_of_come_after_the_plan(tmp_path):
    """A rate of the server as a slider with stops: its own comes first, and the dials show the rates of each stop."""
    words = ("--over", "pcie0.rate=16GB/s,64GB/s", "--over", "workload.batch=2,4")
    data = data_of(write_page(tmp_path, "examples/llama-3.1-70b-desktop.yaml", *words))
    assert [axis["shown"] for axis in data["axes"]] == [["as it is", "16GB/s", "64GB/s"], ["as it is", "2", "4"]]
    place = [dial["name"] for dial in data["dials"]].index("pcie0.hbm0")
    rates = [data["servers"][point_of(data, [at, 0])["server"]]["readings"][place]["rate"] for at in range(3)]
    assert rates[1:] == [16e9, 64e9] and rates[0] == pytest.approx(31.5e9, rel=1e-3)
    for at in ([0, 0], [1, 2], [2, 1]):
        found = replayed(data, point_of(data, at)["figures"], [1.0] * len(data["dials"]))
        assert found["floor"] == figures_of(step_of("examples/llama-3.1-70b-desktop.yaml", data, at, {}))["floor"]


@pytest.mark.slow
def test_what_the_command_line_sets_stays_at_every_stop(tmp_path):
    """A value that is set and has a slider too: the page opens there, and each stop is what `offload step` gives."""
    page = write_page(tmp_path, "examples/llama-3.1-70b-desktop.yaml", "--set", "workload.batch=2", "--set",
                      "placement.weights.hbm0=20 layers", "--set", "dram0.rate=80GB/s")  # fmt: skip
    data = data_of(page)
    assert [axis["shown"][axis["now"]] for axis in data["axes"]] == ["2", "4,096", "20"]
    for at in ([axis["now"] for axis in data["axes"]], [0, 1, 0], [1, 0, 2], [1, 1, 3]):
        words = [word for axis, one in zip(data["axes"], at, strict=True) for word in axis["words"][one]]
        assert "placement.weights.hbm0=20 layers" not in data["command"]  # each stop says all of the placement
        told = json.loads(run("step", *data["command"], *words, "--ignore-capacity", "--json").stdout)
        found = replayed(data, point_of(data, at)["figures"], [1.0] * len(data["dials"]))
        assert told["floor"]["seconds"] == found["floor"] and told["serial"]["seconds"] == found["serial"]


def test_a_value_that_is_set_and_no_stop_is_refused(tmp_path):
    done = run("report", "examples/llama-3.1-70b-desktop.yaml", "--set", "workload.batch=2", "--over",
               "workload.batch=1,4", "-o", str(tmp_path / "page.html"))  # fmt: skip
    assert done.returncode == 2 and "Add it to them" in done.stderr


@pytest.mark.slow
def test_usual_stops_are_of_batch_context_and_layers(tmp_path):
    data = data_of(write_page(tmp_path, "examples/llama-3.1-70b-desktop.yaml"))
    assert [axis["label"] for axis in data["axes"]] == ["Batch (sequences)", "Context (positions)", "Layers in hbm0"]
    for axis in data["axes"]:
        assert 2 <= len(axis["shown"]) <= 6 and axis["words"][axis["now"]] == []
        assert axis["numbers"] == sorted(axis["numbers"])
    assert data["axes"][2]["numbers"][0] == 0 and 38 in data["axes"][2]["numbers"]
    lacking = [point["lacks"] for point in data["points"] if point["lacks"]]
    assert lacking and all(set(one) <= {"hbm0", "dram0"} for one in lacking)
    names = {name for point in data["points"] for name in point["loads"]}
    assert {name for dial in data["dials"] for name in dial["names"]} == names


class _Page(HTMLParser):
    """The elements of a page: that all are closed, names and what would be fetched."""

    VOID = {"meta", "input", "br", "link", "img"}

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: list[str] = []
        self.fetched: list[str] = []
        self.headings: list[int] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        if tag not in self.VOID:
            self.open.append(tag)
        self.names += [told["id"]] if "id" in told else []
        self.fetched += [told[key] for key in ("src", "srcset", "data", "action") if key in told]
        self.fetched += [told["href"]] if "href" in told and not told["href"].startswith("#") else []
        self.headings += [int(tag[1])] if re.fullmatch("h[1-6]", tag) else []

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()


@pytest.mark.parametrize("name", ["llama-3.1-70b-desktop", "eight-gpus", "by-hand"])
def test_page_is_whole(pages, name):
    text = pages[name].read_text(encoding="utf-8")
    parsed = _Page()
    parsed.feed(text)
    assert parsed.open == [] and parsed.fetched == []
    assert len(set(parsed.names)) == len(parsed.names)
    assert parsed.headings[0] == 1 and 1 not in parsed.headings[1:]
    assert all(later - before <= 1 for before, later in zip(parsed.headings, parsed.headings[1:], strict=False))
    assert "default-src 'none'" in text and "@import" not in text and "url(http" not in text
    assert len(text) < 1_500_000


def test_page_says_question_answer_sources_and_files(pages):
    text = pages["llama-3.1-70b-desktop"].read_text(encoding="utf-8")
    order = ["<h1>llama-3.1-70b q4_k_m", "How fast can one step be", "251 ms", 'id="try"', 'id="moves"',
             'id="resources"', 'id="times"', 'id="memory"', 'id="changes"', 'id="rates"', 'id="assumed"',
             'id="not-modelled"', 'id="report"', 'id="files"']  # fmt: skip
    places = [text.index(one) for one in order]
    assert places == sorted(places)
    plan = (ROOT / "examples" / "llama-3.1-70b-desktop.yaml").read_text(encoding="utf-8")
    assert "<summary>llama-3.1-70b-desktop.yaml</summary>" in text and "<summary>desktop-4090.yaml</summary>" in text
    from html import escape

    assert escape(plan.strip().splitlines()[-1]) in text
    report = run("step", "examples/llama-3.1-70b-desktop.yaml").stdout
    assert escape(report.strip().splitlines()[10].rstrip()) in text
    assert str(ROOT) not in text


@pytest.mark.slow
def test_same_question_gives_the_same_bytes(tmp_path):
    words = ["examples/three-tiers.yaml", "--over", "workload.batch=8,16"]
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir(), other.mkdir()
    assert write_page(one, *words).read_bytes() == write_page(other, *words).read_bytes()


@pytest.mark.slow
def test_names_from_files_are_no_markup(tmp_path):
    plan = tmp_path / "plan.yaml"
    text = (ROOT / "examples" / "by-hand.yaml").read_text(encoding="utf-8")
    plan.write_text('title: "<script>alert(1)</script> & </script>"\n' + re.sub(r"(?m)^title:.*\n", "", text))
    page = write_page(tmp_path, str(plan)).read_text(encoding="utf-8")
    assert "<script>alert" not in page and "&lt;script&gt;alert(1)" in page
    assert page.count("</script>") == 2
    assert "by offload plot timeline, server, floor or memory." in page, "those that it has"


@pytest.mark.slow
def test_names_from_files_do_not_steer_the_terminal(tmp_path):
    text = (ROOT / "examples" / "by-hand.yaml").read_text(encoding="utf-8")
    plan = tmp_path / "plan.yaml"
    plan.write_text('title: "a \\e[31mred \\u202e title"\n' + re.sub(r"(?m)^title:.*\n", "", text))
    done = run("report", str(plan), "-o", str(tmp_path / "page.html"))
    assert "a ?[31mred ? title" in done.stdout and "\x1b" not in done.stdout


@pytest.mark.few
@pytest.mark.parametrize("words, told", [
    (["examples/by-hand.yaml", "-o", "page.svg"], 'Give a name that ends in ".html"'),
    (["examples/by-hand.yaml", "-o", "examples/by-hand.yaml"], 'Give a name that ends in ".html"'),
    (["examples/llama-3.1-70b-desktop.yaml", "--over", "workload.batch=1,2", "--over", "workload.batch=1,4", "-o",
      "OUT"], "two sliders"),
    (["examples/llama-3.1-70b-desktop.yaml", "--over", "workload.batch=1:1000", "-o", "OUT"], f"at most {MOST_POINTS}"),
    (["examples/llama-3.1-70b-desktop.yaml", "--over", "workload.batch", "-o", "OUT"], "PATH=VALUE"),
])  # fmt: skip
def test_what_cannot_be_is_refused(tmp_path, words, told):
    out = tmp_path / "page.html"
    done = run("report", *(str(out) if word == "OUT" else word for word in words))
    assert done.returncode == 2 and told in done.stderr, done.stderr
    assert done.stdout == "" and not out.exists() and "Traceback" not in done.stderr


@pytest.mark.slow
def test_what_does_not_fit_has_no_page_unless_asked(tmp_path):
    out = tmp_path / "page.html"
    words = ["report", "examples/llama-3.1-70b-desktop.yaml", "--set", "placement.weights.hbm0=60 layers", "--over",
             "workload.batch=1,2", "-o", str(out)]  # fmt: skip
    done = run(*words)
    assert done.returncode == 1 and "hbm0 lacks" in done.stderr and not out.exists()
    done = run(*words, "--ignore-capacity")
    assert done.returncode == 0 and "DOES NOT FIT" in out.read_text(encoding="utf-8")


def test_page_of_a_comparison_has_each_server(tmp_path):
    """By kinds of parts: twice the host memory of every server gives each what `scaled` gives it."""
    out = tmp_path / "page.html"
    names = ["desktop-4090", "gh200", "mac-studio-m2-ultra", "dgx-spark"]
    done = run("compare", EXAMPLE, "--on", ",".join(names), "--report", str(out))
    assert done.returncode == 0 and done.stdout == run("compare", EXAMPLE, "--on", ",".join(names)).stdout
    text, data = out.read_text(encoding="utf-8"), data_of(out)
    axis, = data["axes"]
    assert axis["label"] == "Server" and set(axis["shown"]) == set(names) and data["command"] is None
    assert axis["shown"][0] in text[text.index('id="lead"') :][:200]
    told = json.loads(run("compare", EXAMPLE, "--on", ",".join(names), "--json").stdout)
    entries = {entry["server"]: entry for entry in told["entries"] if entry["rank"]}
    ranked = [name for name in axis["shown"] if name in entries]
    assert ranked == list(entries) and len(ranked) > 2
    place = [dial["name"] for dial in data["dials"]].index("host memory")
    for at, name in enumerate(ranked):
        found = replayed(data, point_of(data, [at])["figures"], [1.0] * len(data["dials"]))
        assert found["floor"] == entries[name]["floor"]
        faster = [2.0 if one == place else 1.0 for one in range(len(data["dials"]))]
        reading = data["servers"][point_of(data, [at])["server"]]["readings"][place]
        there = replayed(data, point_of(data, [at])["figures"], faster)["floor"]
        assert (there < found["floor"]) == (reading is not None and reading["rate"] is not None)
    parsed = _Page()
    parsed.feed(text)
    assert parsed.open == [] and parsed.fetched == [] and len(set(parsed.names)) == len(parsed.names)


@pytest.mark.slow
def test_page_of_a_comparison_of_plans(tmp_path):
    out = tmp_path / "page.html"
    plans = ["examples/replicas-that-fetch-whole-layers.yaml", "examples/replicas-that-share-the-fetch.yaml"]
    done = run("compare", *plans, "--report", str(out))
    assert done.returncode == 0, done.stderr
    data = data_of(out)
    assert data["axes"][0]["label"] == "Plan" and sorted(data["axes"][0]["shown"]) == plans


@pytest.mark.parametrize("words, told", [
    (["--on", "gh200", "--report", "page.pdf"], 'Give a name that ends in ".html"'),
    (["--on", "gcp-n1-t4-flexgen", "--report", "OUT"], "nothing can be ranked"),
])  # fmt: skip
def test_comparison_without_a_page(tmp_path, words, told):
    out = tmp_path / "page.html"
    done = run("compare", EXAMPLE, *(str(out) if word == "OUT" else word for word in words))
    assert done.returncode == 2 and told in done.stderr and not out.exists()


def test_a_comparison_whose_order_was_left_out_has_a_page():
    """To be quick, orders far down a ranking are not sought; the page says so."""
    from offload import compare
    from offload.comparison import Candidate
    from offload.comparison.orders import LEFT_OUT
    from offload.page.compared import live_of, write_html
    from offload.words import plan_from_words

    found = compare([Candidate("8b", name, plan_from_words("llama-3.1-8b:bf16", name)) for name in
                     ("desktop-4090", "gh200")])  # fmt: skip
    quick = replace(found, pairs=tuple(replace(pair, order=LEFT_OUT) for pair in found.pairs))
    page = write_html(quick, live_of(quick))
    assert "not sought" in page
