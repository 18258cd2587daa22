"""Runs files of worked examples: one line for each case, a total, and exit status 1 where any differs, 2 on bad input.

    python -m tests.worked FILE [FILE...]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from offload.errors import one_line
from tests.worked import differences

DEEPEST = 20  # tables and lists within each other
MOST_VALUES = 10**6  # of a file
MOST_TOLD = 20  # differences of a case in its line


def main(files: Sequence[str]) -> int:
    """Run all cases of the files and return the exit status."""
    if not files:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    total = passed = 0
    for name in files:
        try:
            cases = cases_of(name)
        except RecursionError:
            print(f"{one_line(name, 200)}: lists and tables lie too deep within each other", file=sys.stderr)
            return 2
        except Exception as error:  # whatever YAML cannot make a value of
            print(f"{one_line(name, 200)}: {one_line(' '.join(str(error).split()), 500)}", file=sys.stderr)
            return 2
        for case in cases:
            wrong = differences(case)
            total, passed = total + 1, passed + (not wrong)
            title = one_line(case.get("title", ""), 200)
            line = f"{one_line(case['id'])} {one_line(case['kind'])}: {title}"
            more = [f"and {len(wrong) - MOST_TOLD} more"] if len(wrong) > MOST_TOLD else []
            told = "; ".join(" ".join(one.split()) for one in [*wrong[:MOST_TOLD], *more])
            print(f"FAIL  {line}: {told}" if wrong else f"ok    {line}")
    print(f"{passed} of {total} cases pass")
    return 0 if passed == total and total else 1


def cases_of(name: str) -> list[dict[str, Any]]:
    """The cases of a file; raises ValueError where it is none of worked examples."""
    document = yaml.load(Path(name).read_text(encoding="utf-8"), Loader=_Once)  # noqa: S506 (a safe loader)
    _small(document)
    cases = document.get("cases") if isinstance(document, dict) else None
    if not isinstance(cases, list):
        raise ValueError('no list of "cases" is in it')
    if not cases:
        raise ValueError('its list of "cases" is empty')
    for number, case in enumerate(cases, 1):
        if not isinstance(case, dict) or not {"id", "kind", "inputs", "expected"} <= set(case):
            raise ValueError(f"case {number} lacks one of id, kind, inputs, expected")
        if not isinstance(case["inputs"], dict) or not isinstance(case["expected"], dict) or not case["expected"]:
            raise ValueError(f"case {one_line(case['id'])}: inputs and expected are tables with something in them")
    return cases


class _Once(yaml.SafeLoader):
    """A key that stands twice in a table is refused: of two expectations only one would be compared."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if (key.tag, key.value) in seen:
                    raise ValueError(f'the key "{one_line(key.value)}" stands twice, line {key.start_mark.line + 1}')
                seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep)


def _small(document: Any) -> None:
    """Raises ValueError for more values than are worked through, or deeper ones; aliases count each time."""
    left, values = [(document, 0)], 0
    while left:
        value, depth = left.pop()
        values += 1
        if depth > DEEPEST or values > MOST_VALUES:
            raise ValueError(f"more than {MOST_VALUES:,} values, or {DEEPEST} of them within each other")
        inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        left += [(one, depth + 1) for one in inside]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
