"""The page of published measurements: the command's own tables; every collected figure is a case or named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from offload.report_validation import validation_to_markdown
from tests.published import PUBLISHED, cases, outcomes

PAGE = Path(__file__).resolve().parent.parent / "docs" / "validation.md"
MARK = "<!-- offload validate --markdown -->\n\n"
SCALE = {"tok/s": 1.0, "us": 1e-6, "ms": 1e-3, "s": 1.0, "GB/s": 1e9, "TB/s": 1e12}


def told() -> tuple[str, str]:
    """The page's tables of what is no case: whole tables, and single rows."""
    text = PAGE.read_text(encoding="utf-8").partition(MARK)[0].partition("## What is no case")[2]
    whole, _, rows = text.partition("Of tables that are cases")
    return whole, rows


def test_the_report_is_the_commands_own():
    written = PAGE.read_text(encoding="utf-8").partition(MARK)[2]
    assert written == validation_to_markdown(list(outcomes().values()), 0), "offload validate --markdown makes it anew"


def test_what_is_told_to_be_no_case_is_none():
    named = set(re.findall(r"`([\w-]+)`", told()[0]))
    assert named and not named & {case.entry for case in cases()}
    assert set(re.findall(r"^\| ((?:`[\w-]+`(?:, )?)+)", told()[1], re.M))
    assert set(re.findall(r"`([\w-]+)`", told()[1])) <= {case.entry for case in cases()}


@pytest.mark.skipif(not PUBLISHED.exists(), reason="the collected figures are not here")
def test_every_collected_figure_is_a_case_or_named():
    whole, rows = (set(re.findall(r"`([\w-]+)`", text)) for text in told())
    shipped: dict[str, list[float]] = {}
    for case in cases():
        shipped.setdefault(case.entry, []).append(case.measured.figure.value)
    for entry in yaml.safe_load(PUBLISHED.read_text(encoding="utf-8"))["entries"]:
        left = shipped.get(entry["id"])
        assert (left is None) == (entry["id"] in whole), entry["id"]
        for row in entry["measured"] if left is not None else ():
            value = row["value"] * SCALE.get(row["unit"], float("nan"))
            counts = (1, (row.get("when") or {}).get("gpus", 1), 0.5)  # of all GPUs together; of one direction of two
            found = next((one for one in left for n in counts if one == pytest.approx(value * n, rel=1e-9)), None)
            if found is None:
                assert entry["id"] in rows, (entry["id"], row)
            else:
                left.remove(found)
        assert not left, f"{entry['id']}: no such figure was published"
