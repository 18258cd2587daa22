"""The page put together: one file, which fetches nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from offload import __version__
from offload.page import markup, sections
from offload.page.drawn import Drawn, section
from offload.page.live import Live
from offload.page.programs import script_of
from offload.step import Step
from offload.study import Study

STYLES = ("page.css",)
SCRIPTS = ("replay.js", "units.js", "charts.js", "figures.js", "page.js")
# Nothing may be fetched, whatever stands in the page.
DRAWN = "At the plan's own values: these do not move with the sliders. Each is a file too, by offload plot {}."
COMMANDED = ", and the command that searches there"
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri 'none'"


@dataclass(frozen=True, slots=True)
class Report:
    """What a page is made of. command : the words that ask the same of `offload step`, without those that stops set.

    files : (name, text) of those that were read. drawn : figures at the plan's own values.
    """

    study: Study
    live: Live
    command: Sequence[str]
    files: Sequence[tuple[str, str]] = ()
    drawn: Sequence[Drawn] = ()


def write_html(report: Report) -> str:
    """The page as text; the same report, the same bytes."""
    study, live = report.study, report.live
    steps = [one for one in live.points.values() if isinstance(one, Step)]
    kinds = [one.name for one in report.drawn if not one.wrong]
    choice = " or ".join(filter(None, [", ".join(kinds[:-1]), *kinds[-1:]]))
    figures, style = section(report.drawn, DRAWN.format(choice))
    parts = [
        sections.answer(study), bench(live, COMMANDED), figures, sections.moves(study), sections.resources(study),
        sections.times(study), sections.memory(study), sections.changes(study),
        sections.assumptions(study, steps), sections.as_text(study), sections.files(report.files),
    ]  # fmt: skip
    names = [*study.floor.bottleneck, *(row.name for row in study.resources)]
    data = live.data | {
        "unit": sections.yields(study), "policy": study.overlapped.policy, "command": list(report.command),
        "lead": sections.in_words(study), "over": first_dial(live, names), "given": "as the plan has it",
        "what": "The plan",
    }  # fmt: skip
    title = f"{study.title} on {study.topology or study.topology_title}"
    return whole(title, sections.question(study), parts, data, style)


def whole(title: str, head: str, parts: Sequence[str], data: Mapping[str, Any], style: str = "") -> str:
    """A page of its parts: markup of its head, of its sections, and the data of its sliders. style : of its figures."""
    called = script_of(call["function"] for program in data["programs"] for call in program["calls"])
    code = f'(function () {{\n"use strict";\n{called}{_shipped(SCRIPTS)}}})();'
    return "\n".join([
        "<!doctype html>", '<html lang="en">', "<head>", '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        f"<title>{markup.text(title)} - offload</title>",
        f"<style>\n{_shipped(STYLES)}{style}</style>", "</head>", "<body>",
        '<a class="skip" href="#answer">Go to the answer</a>', f"<header>\n{head}\n</header>", "<main>",
        *(part for part in parts if part), "</main>",
        f"<footer><p>Made by offload {markup.text(__version__)}. The page fetches nothing and works offline.</p>"
        "</footer>", markup.data("live", data),
        f"<script>\n{code}\n</script>", "</body>", "</html>", "",
    ])  # fmt: skip


def first_dial(live: Live, names: Iterable[str]) -> int:
    """The dial that a figure is over at first: of the first of these resources that has one; -1 where none has."""
    return next((place for name in names for place, dial in enumerate(live.dials) if name in dial.names), -1)


def bench(live: Live, elsewhere: str) -> str:
    """Where the sliders and their figures are drawn, by the page's code. elsewhere : what tells a time that is not
    known here.
    """
    told = ["Sliders of rates take any value: a rate's peak and what it sustains move together, and nothing else does. "
            "Those of the plan stop where Python has compiled the step."]  # fmt: skip
    if live.formula != "everywhere":
        where = "The" if live.formula == "nowhere" else "At some stops or rates the"
        told.append(f"{where} expected time has no formula: Python searches for it among schedules. It is shown for "
                    "the given rates and where a figure has circles; elsewhere the page tells between which times it "
                    f"is, the floor at sustained rates and serial{elsewhere}.")  # fmt: skip
    inner = f"""<p class="note">{" ".join(markup.text(one) for one in told)}</p>
<noscript><p class="wrong">The sliders need JavaScript. All else of this page is below.</p></noscript>
<div id="bench"><form id="sliders" aria-label="Rates and plan" autocomplete="off"></form><div id="drawn"></div></div>"""
    return markup.section("try", "Try it", inner)


def _shipped(names: Sequence[str]) -> str:
    return "".join((files("offload.page") / name).read_text(encoding="utf-8") for name in names)
