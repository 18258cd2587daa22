"""PCIe and NVLink: the rate of a generation and a width, in one direction."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from fractions import Fraction

from offload.errors import UnitError
from offload.units.gate import EXAMPLE, channels_text, plain_text, refusal, shown
from offload.units.kinds import NUMBER, number_of

PCIE_GIGATRANSFERS = {1: 2.5, 2: 5, 3: 8, 4: 16, 5: 32, 6: 64}
PCIE_LANES = (1, 2, 4, 8, 16)
NVLINK = {1: (20, 4), 2: (25, 6), 3: (25, 12), 4: (25, 18), 5: (50, 18)}  # GB/s per link one way, most links of a GPU
# PCI Express defined x12 and x32 up to generation 5 as well, but no device has them.
GENERATIONS, WIDTHS = "1 to 6", "x1, x2, x4, x8 or x16"
MOST_TOGETHER = 1024  # lanes or links of several devices, up to which a number is taken for their sum

GIGATRANSFERS = re.compile(rf"({NUMBER}) ?GT/s(?: ?x ?(\d+))?", re.ASCII)
_PCIE = re.compile(r"(?:pcie ?)?(?:gen ?)?(\d+)(?:\.0)? ?x ?(\d+)", re.ASCII | re.IGNORECASE)
_NVLINK = re.compile(r"(?:nvlink ?)?(\d+)(?:\.0)? ?x ?(\d+)", re.ASCII | re.IGNORECASE)


def parse_pcie(text: object) -> tuple[int, int]:
    """Generation and lanes of "4 x16", "PCIe 4.0 x16" or "gen4x8".  Raises UnitError when there is no such link."""
    plain = plain_text(text, "PCIe 4 x16")
    if found := _PCIE.fullmatch(plain):
        generation, lanes = int(found[1]), int(found[2])
        if refused := _refuse_pcie(text, generation, lanes):
            raise refused
        return generation, lanes
    if transfers := GIGATRANSFERS.fullmatch(re.sub(r" ?/ ?", "/", plain)):
        raise refuse_gigatransfers(text, *transfers.groups(), anything=False)
    if width := re.fullmatch(r"(?:pcie ?)?x ?(\d+)", plain, re.ASCII | re.IGNORECASE):
        raise _refuse_lanes(text, f"lacks the PCIe generation, {GENERATIONS}", (4, 5), int(width[1]))
    if alone := re.fullmatch(r"(?:pcie ?)?(?:gen ?)?(\d+)(?:\.0)?", plain, re.ASCII | re.IGNORECASE):
        generation = int(alone[1])
        if plain == alone[1] and generation in PCIE_LANES and generation not in PCIE_GIGATRANSFERS:
            wrong = f"lacks the generation, {GENERATIONS}, or the number of lanes, {WIDTHS}"
            raise refusal(text, wrong, f"PCIe 4 x{plain}", f"PCIe 5 x{plain}")
        known = _near(generation, PCIE_GIGATRANSFERS)[0]
        wrong = "" if known == generation else f"has no known generation ({GENERATIONS}) and "
        raise refusal(text, f"{wrong}lacks the number of lanes, {WIDTHS}", *(f"PCIe {known} x{n}" for n in (4, 8, 16)))
    raise refusal(text, "is no PCIe generation and width", "PCIe 4 x16", say=EXAMPLE)


def parse_nvlink(text: object) -> tuple[int, int]:
    """Generation and links of "4 x18" or "NVLink 4 x18".  Raises UnitError when there is no such bundle."""
    plain = plain_text(text, "NVLink 4 x18")
    found = _NVLINK.fullmatch(plain)
    if not found:
        alone = re.fullmatch(r"(?:nvlink ?)?(\d+)(?:\.0)?", plain, re.ASCII | re.IGNORECASE)
        width = re.fullmatch(r"(?:nvlink ?)?x ?(\d+)", plain, re.ASCII | re.IGNORECASE)
        generation = _near(int(alone[1]), NVLINK)[0] if alone else 4
        wrong = "needs the NVLink generation (1 to 5) and the number of links"
        if width:
            raise _refuse_links(text, wrong, generation, int(width[1]))
        say = "Write" if alone else EXAMPLE
        raise refusal(text, wrong, f"NVLink {generation} x{NVLINK[generation][1]}", say=say)
    nvlink_rate(int(found[1]), int(found[2]))
    return int(found[1]), int(found[2])


def pcie_rate(generation: int, lanes: int) -> float:
    """PCIe rate in one direction after encoding: GT/s x lanes / 8 x encoding. [B/s]

    The encoding is 8/10 in generations 1 and 2, 128/130 in 3 to 5 (PCI Express Base Specification); in 6 it is the 236
    of each 256-byte flit that carry packets. Raises UnitError for a generation or width that does not exist.
    """
    if refused := _refuse_pcie(f"PCIe {generation} x{lanes}", generation, lanes):
        raise refused
    return float(_of_lanes(generation, lanes))


def nvlink_rate(generation: int, links: int) -> float:
    """NVLink rate in one direction: 20, 25, 25, 25, 50 GB/s per link in generations 1 to 5 (NVIDIA data sheets). [B/s]

    Raises UnitError for what does not exist, and for up to four links of generation 3: their rate depends on the part.
    """
    given = f"NVLink {generation} x{links}"
    if generation not in NVLINK:
        raise _refuse_links(given, "has no known generation (1 to 5)", _near(generation, NVLINK)[0], links)
    gigabytes, most = NVLINK[generation]
    if not 1 <= links <= most:
        raise _refuse_links(given, f"is impossible: a GPU has 1 to {most} such links", generation, links)
    if generation == 3 and links <= 4:
        wrong = "depends on the part: 25 GB/s per link on an A100, 14.0625 on an RTX 3090 or A6000"
        raise refusal(given, wrong, f"{25 * links} GB/s", f"{14.0625 * links:g} GB/s", say="As a rate it is")
    return float(gigabytes * links * 10**9)


def refuse_gigatransfers(given: object, transfers: str, lanes: str | None, *, anything: bool = True) -> UnitError:
    """A refusal that names the PCIe generation of such a speed; with `anything` it may be memory as well."""
    figure, wrong = number_of(transfers), "counts transfers, not bytes"
    if generation := next((known for known, rate in PCIE_GIGATRANSFERS.items() if rate == figure), None):
        wrong += f"; {transfers} GT/s is PCIe generation {generation}"
        if lanes:
            return _refuse_lanes(given, wrong, (generation,), int(lanes))
        return refusal(given, wrong, *(f"PCIe {generation} x{lane}" for lane in (4, 8, 16)))
    if not anything:
        speeds = ", ".join(f"{rate:g}" for rate in PCIE_GIGATRANSFERS.values())
        return refusal(given, f"{wrong}; PCIe 1 to 6 run at {speeds} GT/s", "PCIe 4 x16", say=EXAMPLE)
    if lanes and figure and figure < 10**6:
        return refusal(given, wrong, channels_text(f"{float(figure * 1000):.10g}", lanes))
    return refusal(given, wrong, "26 GB/s", say=EXAMPLE)


def _refuse_pcie(given: object, generation: int, lanes: int) -> UnitError | None:
    """What is wrong with a generation and a width, with the nearest that exist."""
    wrong = []
    if generation not in PCIE_GIGATRANSFERS:
        wrong.append(f"has no known generation ({GENERATIONS})")
    if lanes not in PCIE_LANES:
        wrong.append(f"has an impossible width ({WIDTHS})")
    if not wrong:
        return None
    nearest = _near(generation, PCIE_GIGATRANSFERS)
    meant = next((known for known, rate in PCIE_GIGATRANSFERS.items() if rate == generation), None)
    if len(nearest) == 1 and meant and nearest[0] != generation:  # 16 x8: the GT/s of generation 4
        wrong[0] += f"; {generation} GT/s is generation {meant}"
        nearest = (meant,)
    return _refuse_lanes(given, " and ".join(wrong), nearest, lanes)


def _of_lanes(generation: int, lanes: int) -> Fraction:
    """What so many lanes of a generation carry in one direction, whatever links they make up. [B/s]"""
    encoding = Fraction(8, 10) if generation <= 2 else Fraction(128, 130) if generation <= 5 else Fraction(236, 256)
    return Fraction(PCIE_GIGATRANSFERS[generation]) * 10**9 * lanes / 8 * encoding


def _refuse_lanes(given: object, wrong: str, generations: Iterable[int], lanes: int) -> UnitError:
    """A refusal with the link of these generations that has so many lanes.

    Where none has: the links beside it, if it is below the widest, and what several links with so many lanes come to. A
    narrower link alone is never offered for a wider one.
    """
    generations = tuple(generations)
    links = [f"PCIe {one} x{lane}" for lane in _near(lanes, PCIE_LANES) for one in generations]
    if lanes in PCIE_LANES or lanes < PCIE_LANES[0]:
        return refusal(given, wrong, *links)
    if lanes > MOST_TOGETHER:
        return refusal(given, wrong, links[0], say=EXAMPLE)
    rates = [_rounded_up(_of_lanes(one, lanes)) + (f" (PCIe {one})" if generations[1:] else "") for one in generations]
    return _refuse_sum(given, wrong, "One link is", links if lanes < PCIE_LANES[-1] else [], "links", rates)


def _refuse_links(given: object, wrong: str, generation: int, links: int) -> UnitError:
    """A refusal with so many NVLinks of a generation; for more than a GPU has, what those of several GPUs come to."""
    gigabytes, most = NVLINK[generation]
    if most < links <= MOST_TOGETHER:
        rate = _rounded_up(Fraction(gigabytes * links * 10**9))
        return _refuse_sum(given, wrong, "All of one GPU are", [f"NVLink {generation} x{most}"], "GPUs", [rate])
    if links > most:
        return refusal(given, wrong, f"NVLink {generation} x{most}", say=EXAMPLE)
    least = most if generation == 3 else 1  # of generation 3 one link alone is not enough said
    return refusal(given, wrong, f"NVLink {generation} x{links or least}")


def _refuse_sum(given: object, wrong: str, one: str, links: list[str], several: str, rates: list[str]) -> UnitError:
    """A refusal that says what several have together as a rate, behind what one alone is written as."""
    alone = f"{one} " + " or ".join(f'"{link}"' for link in links) + "; of" if links else "Of"
    together = f"{alone} several {several} together write the rate of one direction: {' or '.join(rates)}."
    return UnitError(f"{shown(given)} {wrong}. {together}")


def _rounded_up(rate: Fraction) -> str:
    """A rate in GB/s with four digits, rounded up, so that a floor with it stays one: "47.27 GB/s"."""
    figure = rate / 10**9
    places = max(4 - len(str(int(figure))), 0)
    return f"{math.ceil(figure * 10**places) / 10**places:g} GB/s"


def _near(figure: int, known: Iterable[int]) -> tuple[int, ...]:
    """The figure itself where it is known, else the nearest below and above."""
    known = sorted(known)
    below, above = [one for one in known if one <= figure], [one for one in known if one >= figure]
    return tuple(dict.fromkeys((*below[-1:], *above[:1])))
