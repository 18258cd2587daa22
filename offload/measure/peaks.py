"""Peaks from the system's own description: what the memory modules can do, by dmidecode.

A peak may only be too high: every module that is in use counts as a channel of its own, unless the places of all of
them name channels: those whose places differ by the number of the module alone share one. PCIe links get theirs from
the encoding; nothing is measured to make a peak.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from offload.measure import conditions
from offload.measure.figures import Collected
from offload.measure.system import System, fields

CHANNEL = re.compile(r"channel[ _-]?(?:[a-z]|\d{1,2})(?![a-z0-9])", re.IGNORECASE)
NUMBER = re.compile(r"dimm[ _-]?\d{1,2}", re.IGNORECASE)  # of a module in its channel
SOCKET = re.compile(r"(?:cpu|proc|processor|node|p)[ _-]?(\d{1,2})(?!\d)", re.IGNORECASE)
WIDEST = 8  # bytes that a channel of DDR carries at once: DDR5 has two halves of four


@dataclass(frozen=True, slots=True)
class Module:
    """A memory module: its rate [B/s], and the socket and channel that its place names, None where it does not."""

    rate: float
    socket: int | None
    channel: str | None


def modules_of(text: str | None) -> list[Module] | None:
    """The modules in dmidecode's output of type 17; None where one that is in use does not tell its speed."""
    found = []
    for block in re.split(r"\n\s*\n", text or ""):
        if "Memory Device" not in block:
            continue
        told = dict(fields(block))
        if not re.match(r"\d", told.get("Size", "")):
            continue  # no module in this place
        speed = next((re.match(r"(\d{3,5}) (?:MT/s|MHz)", told.get(key, "")) for key in
                      ("Configured Memory Speed", "Configured Clock Speed") if key in told), None)  # fmt: skip
        speed = speed or re.match(r"(\d{3,5}) (?:MT/s|MHz)", told.get("Speed", ""))
        if speed is None or not re.match(r"(?:LP)?DDR\d", told.get("Type", "")):
            return None
        width = re.match(r"(\d{2,3}) bits", told.get("Data Width", ""))
        wide = max(WIDEST, int(width[1]) // 8) if width else WIDEST
        place = f"{told.get('Locator', '')} {told.get('Bank Locator', '')}"
        socket = SOCKET.search(place)
        channel = NUMBER.sub("", place).upper() if CHANNEL.search(place) else None
        found.append(Module(float(speed[1]) * 1e6 * wide, int(socket[1]) if socket else None, channel))
    return found or None


def memory_peaks(system: System, sockets: Sequence[int], collected: Collected) -> dict[int, tuple[float, str]]:
    """Peak [B/s] of each socket's memory and where it is from. sockets : numbers of the sockets, in their order.

    Empty where the system does not tell.
    """
    virtual = conditions.is_virtual(system)
    text = None if virtual else system.run(["dmidecode", "-t", "17"])
    modules = modules_of(text)
    if modules is None:
        why = ("the modules that a virtual machine tells are not those that it has" if virtual else
               "dmidecode is not there, may not be run (root may) or tells nothing" if not (text or "").strip() else
               "dmidecode tells no speed of the modules")  # fmt: skip
        collected.left_out("peak of host memory", f"{why}: no floor counts it. Write it from the data sheet, as rate: "
                           "{peak: 6000 MT/s x 2}")  # fmt: skip
        return {}
    named = sorted({one.socket for one in modules if one.socket is not None})
    apart = None not in {one.socket for one in modules} and len(named) == len(sockets)
    if len(sockets) > 1 and not apart:
        collected.left_out("peak of host memory", "dmidecode does not tell which modules are whose: no floor counts it")
        return {}
    found = {}
    for place, socket in enumerate(sockets):
        own = [one for one in modules if not apart or one.socket == named[place]]
        channels = {one.channel for one in own}
        if None in channels:
            rate, how = sum(one.rate for one in own), f"{len(own)} modules, each taken as a channel: at most"
        else:
            rate = sum(max(one.rate for one in own if one.channel == channel) for channel in channels)
            how = f"{len(channels)} channels"
        found[socket] = (rate, f"peak: dmidecode, {how} (derived)")
    return found
