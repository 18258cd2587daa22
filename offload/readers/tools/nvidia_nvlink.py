"""`nvidia-smi nvlink -s`: each GPU's model, its NVLinks and their raw rates, one way. Where they lead is not told."""

from __future__ import annotations

import math
import re

from offload.errors import ReadingError, one_line
from offload.readers.tools.finding import Device, Fact, Finding, Machine
from offload.readers.tools.text import Text

LOOKS_LIKE = "nvidia-smi nvlink -s"
GPU = re.compile(r"(?:^|[\s\]:>])GPU ([0-9]{1,4}): (.{1,120}?)\s*(?:\(UUID.*)?$")
LINK = re.compile(r"(?:^|[\s\]:>])Link ([0-9]{1,3}): (?:([0-9]{1,6}(?:\.[0-9]{1,9})?) GB/s|(<inactive>|inactive))\s*$")
PAYLOAD = {26.562: 25e9, 26.5625: 25e9, 53.125: 50e9}  # raw GB/s as shown: payload B/s, NVLink 4 and 5


def is_it(text: Text) -> bool:
    """Whether a text has lines `Link N: x GB/s` or `Link N: <inactive>`; those of -c and -e are others."""
    return any("Link " in line.text and LINK.search(line.text) for line in text)


def read(text: Text) -> Finding:
    """Devices "gpuN" with their models; as facts: links that are up and down, raw rate and payload in sum [B/s].

    Raises ReadingError where a GPU is told twice with different links, or no line names a GPU.
    """
    links: dict[int, dict[int, tuple[float | None, int]]] = {}
    models: dict[int, tuple[str, int]] = {}
    odd: list[str] = []
    now: int | None = None
    for line in text.without_prefixes():
        if match := GPU.search(line.text):
            now = int(match[1])
            model = one_line(match[2], 80)
            if now in models and models[now][0] != model:
                raise ReadingError(f"line {line.number}: GPU {now} has two models. Give one machine's run.")
            models.setdefault(now, (model, line.number))
        elif match := LINK.search(line.text):
            number, rate = int(match[1]), float(match[2]) * 1e9 if match[2] else None
            if now is None:
                odd.append(f"line {line.number}: a link before any line that names its GPU.")
                continue
            if rate is not None and not 0 < rate < math.inf:
                odd.append(f"line {line.number}: Link {number} of gpu{now} runs at no rate above 0.")
                continue
            told = links.setdefault(now, {}).setdefault(number, (rate, line.number))
            if told[0] != rate:
                raise ReadingError(
                    f"line {told[1]}, line {line.number}: Link {number} of GPU {now} differs. Give one run."
                )
    if not models:
        raise ReadingError('has links but no line "GPU 0: NAME" above them. Save all of: nvidia-smi nvlink -s')
    unknown = ["where the NVLinks lead (another GPU or an NVSwitch): nvidia-smi topo -m tells."]
    facts: list[Fact] = []
    for number in sorted(models):
        facts += _facts(number, models[number], links.get(number, {}), unknown, odd)
    devices = tuple(Device(f"gpu{n}", "gpu", n, models[n][0], line=models[n][1]) for n in sorted(models))
    assumed = ("GB/s are 10^9 bytes/s, one way, raw: 26.562 carries 25, 53.125 carries 50 of payload.",)
    return Finding(LOOKS_LIKE, Machine(devices=devices), (), (), tuple(facts), assumed, tuple(unknown), tuple(odd))


def _facts(
    number: int, model: tuple[str, int], links: dict[int, tuple[float | None, int]], unknown: list[str], odd: list[str]
) -> list[Fact]:
    up = {link: (rate, line) for link, (rate, line) in links.items() if rate is not None}
    down = [link for link in links if link not in up]
    line = min((line for _, line in links.values()), default=model[1])
    if not links:
        unknown.append(f"NVLinks of gpu{number}: no line tells one.")
        return []
    facts = [Fact(f"NVLinks of gpu{number}", len(up), "", line)]
    if down:
        facts.append(Fact(f"NVLinks of gpu{number} that are inactive", len(down), "", links[min(down)][1]))
    if missing := sorted(set(range(max(links) + 1)) - set(links)):
        odd.append(f"gpu{number}: links {', '.join(map(str, missing))} are missing in the list.")
    if up:
        facts.append(Fact(f"NVLinks of gpu{number}, one way, raw", math.fsum(r for r, _ in up.values()), "B/s", line))
        payload = [PAYLOAD.get(rate / 1e9) or PAYLOAD.get(round(rate / 1e9, 4)) for rate, _ in up.values()]
        if all(payload):
            carried = math.fsum(one or 0 for one in payload)
            facts.append(Fact(f"NVLinks of gpu{number}, one way, payload", carried, "B/s", line))
        else:
            unknown.append(f"payload of gpu{number}'s NVLinks: known for raw rates of 26.562 and 53.125 GB/s a link.")
    return facts
