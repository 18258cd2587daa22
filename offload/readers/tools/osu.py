"""The OSU micro-benchmarks of bandwidth: osu_bw, osu_bibw, osu_mbw_mr. MB/s are 10^6 bytes a second.

The output does not say on how many machines the ranks run, nor over which network.
"""

from __future__ import annotations

import re

from offload.errors import ReadingError
from offload.readers.tools.finding import Fact, Finding, Measured
from offload.readers.tools.matrices import figure, once, unmarked
from offload.readers.tools.text import Text

LOOKS_LIKE = "osu_bw"
MB = 1e6
LONGEST_LINE = 300  # what stands after it on a line is none of the benchmark's
TITLE = re.compile(
    r"#\s{0,8}OSU MPI\S{0,20}\s{1,8}(\S.{0,80}?)(?:\s{1,8}Test)?(?:\s{1,8}v([0-9][0-9.]{0,12}))?\s*$"
)
KINDS = {
    "bandwidth": "osu_bw",
    "bi-directional bandwidth": "osu_bibw",
    "multiple bandwidth / message rate": "osu_mbw_mr",
}
PAIRS = re.compile(r"#\s*\[\s*pairs:\s*([0-9]{1,6})\s*\]")
WINDOW = re.compile(r"\[\s*window size:\s*([0-9]{1,6})\s*\]")
BUFFERS = re.compile(r"#\s*Send Buffer on (DEVICE|HOST|MANAGED)\S* .*Receive Buffer on (DEVICE|HOST|MANAGED)")
COLUMNS = re.compile(r"#\s*Size\s+(?:Bandwidth \((\S{1,8})\)|(\SB/s)\b)")
ROW = re.compile(r"\s*([0-9]{1,15})\s+([0-9]{1,15}\.[0-9]{1,6})(?:\s+[0-9.]{1,24})?(?:\s+(Pass|Fail))?\s*$")


def is_it(text: Text) -> bool:
    """Whether a text holds the title of one of these benchmarks."""
    return bool(re.search(r"^.{0,80}#\s*OSU MPI\S* .*Bandwidth", text.whole, re.MULTILINE))


def read(text: Text) -> Finding:
    """The rates by message size. Raises ReadingError where there is none."""
    rates: list[Measured] = []
    facts: list[Fact] = []
    unknown: list[str] = []
    odd: list[str] = []
    tools: list[str] = []
    tool, unit, pairs, window, ends = "", "", 1, None, ("hosts", "hosts")
    for line in text.without_prefixes():
        said, where = unmarked(line.text[:LONGEST_LINE]), f"line {line.number}"
        if match := TITLE.search(said):
            tool, unit, pairs, window, ends = KINDS.get(match[1].lower(), ""), "", 1, None, ("hosts", "hosts")
            if tool:
                tools.append(f"{tool} {match[2] or ''}".strip())
            else:
                unknown.append(f"{where}: an OSU benchmark that is not one of {', '.join(KINDS.values())}: left out.")
        elif match := BUFFERS.search(said):
            both = ["gpus" if match[at] == "DEVICE" else "hosts" for at in (1, 2)]
            ends = both[0], both[1]
        elif match := PAIRS.search(said):
            pairs = int(match[1])
            wide = WINDOW.search(said)
            window = int(wide[1]) if wide else None
            facts.append(Fact("pairs of ranks at once", pairs, "", line.number))
        elif match := COLUMNS.search(said):
            unit = match[1] or match[2]
            if unit != "MB/s":
                unknown.append(f"{where}: rates in {unit}, not MB/s, are left out.")
        elif tool and unit == "MB/s" and (match := ROW.match(said)):
            value, size = figure(match[2]), int(match[1])
            if match[3] == "Fail":
                odd.append(f"{where}: the benchmark says that the data were wrong.")
            elif value is None or not size or not pairs:
                unknown.append(f"{where}: the rate at {size} bytes, which is printed as {match[2]}.")
            else:
                both_ways = tool == "osu_bibw"
                rates.append(Measured(
                    *ends, value * MB, when="both directions" if both_ways else "together" if pairs > 1 else "alone",
                    size=size, depth=window, streams=2 if both_ways else pairs,
                    note="both directions added" if both_ways else "", line=line.number,
                ))  # fmt: skip
        elif tool and re.match(r"\s*[0-9]+\s+[0-9]+\.?\s*$", said):
            odd.append(f"{where}: a row that is cut or not understood is left out.")
    if not rates:
        raise ReadingError(
            "an OSU benchmark's output without a rate. Give all of it, of osu_bw, osu_bibw or osu_mbw_mr, with the"
            " table under '# Size  Bandwidth (MB/s)'."
        )
    unknown.append("Whether the ranks run on one machine or on several, and over which network.")
    return Finding(
        " and ".join(dict.fromkeys(tools)), rates=tuple(rates), facts=tuple(facts),
        assumed=("MB/s are 10^6 bytes a second.",), unknown=once(unknown), odd=once(odd),
    )  # fmt: skip
