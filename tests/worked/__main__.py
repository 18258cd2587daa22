"""Runs files of worked examples: one line for each case, a total, and exit status 1 where any differs, 2 on bad input.

    python -m tests.worked FILE [FILE...]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.worked import differences


def main(files: Sequence[str]) -> int:
    """Run all cases of the files and return the exit status."""
    if not files:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    total = passed = 0
    for name in files:
        try:
            cases = cases_of(name)
        except (OSError, UnicodeDecodeError, ValueError, yaml.YAMLError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 2
        for case in cases:
            wrong = differences(case)
            total, passed = total + 1, passed + (not wrong)
            line = f"{case['id']} {case['kind']}: {case.get('title', '')}"
            print(f"ok    {line}" if not wrong else f"FAIL  {line}: " + "; ".join(wrong))
    print(f"{passed} of {total} cases pass")
    return 0 if passed == total and total else 1


def cases_of(name: str) -> list[dict[str, Any]]:
    """The cases of a file; raises ValueError where it is none of worked examples."""
    document = yaml.safe_load(Path(name).read_text(encoding="utf-8"))
    cases = document.get("cases") if isinstance(document, dict) else None
    if not isinstance(cases, list):
        raise ValueError('no list of "cases" is in it')
    if not cases:
        raise ValueError('its list of "cases" is empty')
    for number, case in enumerate(cases, 1):
        if not isinstance(case, dict) or not {"id", "kind", "inputs", "expected"} <= set(case):
            raise ValueError(f"case {number} lacks one of id, kind, inputs, expected")
        if not isinstance(case["inputs"], dict) or not isinstance(case["expected"], dict) or not case["expected"]:
            raise ValueError(f"case {case['id']}: inputs and expected are tables with something in them")
    return cases


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
