"""The worked examples of tests/data, read once for all files of tests."""

from __future__ import annotations

from pathlib import Path

import yaml

FILE = Path(__file__).resolve().parent / "data" / "worked_examples.yaml"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the first is of libyaml, and not everywhere
WORKED: list[dict] = yaml.load(FILE.read_text(encoding="utf-8"), LOADER)["cases"]
BY_ID = {case["id"]: case for case in WORKED}
