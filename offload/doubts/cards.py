"""Which GPU a file names, and what its data sheet says of the links and the memory of that card.

A card is known by a part that is used, by the name of a memory or a processor, else by a title that names one card.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from offload.topology import Topology


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU as it is sold. pcie : its generation. nvlink : all its links one way [B/s], 0 where it has none.

    memory : the fastest of its memories [B/s]. Data sheets of the makers; of variants the highest figure.
    """

    name: str
    pcie: int
    nvlink: float
    memory: float


_CARDS = {  # what names it, in lower case -> the card
    r"p100": Card("P100", 3, 80e9, 732e9),
    r"v100s?": Card("V100", 3, 150e9, 1134e9),
    r"t4": Card("T4", 3, 0.0, 320e9),
    r"(?:rtx[ -]?)?2080[ -]?ti": Card("RTX 2080 Ti", 3, 50e9, 616e9),
    r"a100x?": Card("A100", 4, 300e9, 2039.1e9),
    r"a800": Card("A800", 4, 200e9, 2039.1e9),
    r"a30": Card("A30", 4, 100e9, 933.1e9),
    r"a40": Card("A40", 4, 56.25e9, 696e9),
    r"a10": Card("A10", 4, 0.0, 600.2e9),
    r"(?:rtx[ -]?)?a6000": Card("RTX A6000", 4, 56.25e9, 768e9),
    r"(?:rtx[ -]?)?3090(?:[ -]?ti)?": Card("RTX 3090", 4, 56.25e9, 1008.1e9),
    r"(?:rtx[ -]?)?4090d?": Card("RTX 4090", 4, 0.0, 1008.1e9),
    r"rtx[ -]?6000[ -]?ada": Card("RTX 6000 Ada", 4, 0.0, 960.1e9),
    r"l4": Card("L4", 4, 0.0, 300.1e9),
    r"l40s?": Card("L40S", 4, 0.0, 864.1e9),
    r"(?:rtx[ -]?)?5090d?": Card("RTX 5090", 5, 0.0, 1792.1e9),
    r"h100": Card("H100", 5, 450e9, 3938e9),
    r"h800": Card("H800", 5, 200e9, 3352.4e9),
    r"h20": Card("H20", 5, 450e9, 4916.8e9),
    r"h200": Card("H200", 5, 450e9, 4917e9),
    r"b200": Card("B200", 6, 900e9, 8192e9),
    r"mi210": Card("MI210", 4, 0.0, 1638.4e9),
    r"mi300x": Card("MI300X", 5, 0.0, 5324.8e9),
}
_KNOWN = [(re.compile(rf"(?<![a-z0-9]){pattern}(?![a-z0-9])"), card) for pattern, card in _CARDS.items()]
_DESKTOP = re.compile(r"\bryzen [3579]\b|\bcore i[3579]\b|\bcore ultra\b|\bam[45]\b|\blga ?1[127]\d\d\b", re.IGNORECASE)
_NO_DESKTOP = re.compile(r"threadripper|\bcore i\d-\d+xe?\b|\bxeon\b|\bepyc\b", re.IGNORECASE)
_SHARED = re.compile(r"\bgb10\b|dgx[ -]spark|strix[ -]halo|ryzen ai max|\bm[1-5] (?:ultra|max|pro)\b|mac studio"
                     r"|macbook|\bmi300a\b|jetson", re.IGNORECASE)  # fmt: skip


def cards_in(text: str, shortest: int = 1) -> set[Card]:
    """The cards that a text names, in words of so many letters and more."""
    found = ((pattern.search(text.lower()), card) for pattern, card in _KNOWN)
    return {card for match, card in found if match and len(match[0]) >= shortest}


def cards_of(topology: Topology, used: Mapping[str, str]) -> dict[str, Card]:
    """The card that each GPU's memory is of, by the memory's name, where it is known. used : a part of each name."""
    titled = cards_in(topology.title)
    found = {}
    for processor in topology.processors.values():
        if processor.kind != "gpu":
            continue
        parts = [cards_in(used.get(name, "")) for name in (processor.memory, processor.name)]
        names = [cards_in(name, 4) for name in (processor.memory, processor.name)]  # a10 may be the tenth of some
        known = next(filter(None, (*parts, *names)), titled)
        if len(known) == 1:
            found[processor.memory] = next(iter(known))
    return found


def desktop_word(topology: Topology) -> str:
    """The word by which the title or a socket's or a CPU's source says that it is a desktop; "" where none does."""
    texts = [topology.title, *(switch.source for switch in topology.switches.values() if switch.kind == "socket")]
    texts += [processor.source for processor in topology.processors.values() if processor.kind == "cpu"]
    if any(_NO_DESKTOP.search(text) for text in texts):
        return ""
    return next((match[0] for match in map(_DESKTOP.search, texts) if match), "")


def shared_memory_word(topology: Topology) -> str:
    """The word by which the title says that GPU and CPU share one memory; "" where it does not."""
    found = _SHARED.search(topology.title)
    return found[0] if found else ""
