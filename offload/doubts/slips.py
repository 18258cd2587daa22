"""Doubts about single figures: off by a thousand, in bits for bytes, with sparsity, a share with a percent sign."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from offload.doubts.doubt import KEPT, Doubt
from offload.doubts.drives import figure
from offload.doubts.written import Written
from offload.topology import Link, Memory, Processor, Rate, Topology
from offload.topology.shares import DRIVES
from offload.units import format_bytes, format_flops, format_rate, format_seconds

# What there is of each kind, widely: beyond it a prefix is wrong by a thousand.
RATES = {"hbm": (5e9, 40e12), "dram": (1e9, 8e12), "unified": (5e9, 40e12), "nvme": (0.1e9, 30e9), "disk": (5e6, 4e9)}
SIZES = {"hbm": (0.5e9, 1e12), "dram": (0.5e9, 64e12), "unified": (0.5e9, 8e12), "nvme": (4e9, 500e12)}
FLOPS = {"gpu": (0.5e12, 100e15), "cpu": (1e9, 5e15)}
LATENCIES = {"nvme": (1e-6, 5e-3), "disk": (1e-6, 50e-3), "network": (1e-7, 100e-3), "": (1e-8, 1e-3)}
SHARE = 0.01  # of the peak: pageable copies have 4 % of it at the least
NETWORKS = ("ethernet", "infiniband")
FASTEST_PORT = 100e9  # of a network: 800 Gb/s
SATA = 0.75e9  # 6 Gb/s; 0.6 after its encoding
# Dense figures doubled by the zeros that the hardware skips: A100, H100 and H200, B200, MI300X, L40S.
SPARSE = {
    "bf16": {624e12: "an A100", 1979e12: "an H100", 4500e12: "a B200", 2614.9e12: "an MI300X", 733e12: "an L40S"},
    "fp8": {3958e12: "an H100", 9000e12: "a B200", 5229.8e12: "an MI300X", 1466e12: "an L40S"},
    "int8": {1248e12: "an A100", 3958e12: "an H100", 1466e12: "an L40S"},
}
_PERCENT = re.compile(r"0?\.\d+ ?%")
_BITS = re.compile(r"[\d.]+ ?[kKMGTP]i?(?:b|bits?)(?:/s|ps)?")
_BILLIONS = re.compile(r"(\d{1,3}(?:\.\d+)?) ?B")
SIZE_KEYS = ("bytes", "capacity", "cache")


def doubts_of_slips(topology: Topology, written: Written) -> Iterator[Doubt]:
    """Figures of a topology that are far from any of their kind."""
    for memory in topology.memories.values():
        yield from _memory(memory)
    for processor in topology.processors.values():
        yield from _processor(processor)
    for link in topology.links.values():
        yield from _latency(topology, link)
        yield from _port(link, written)
        yield from _share(("links", link.name), {"forward": link.forward, "backward": link.backward})


def _share(place: tuple[str, str], rates: Mapping[str, Rate | None]) -> Iterator[Doubt]:
    """A sustained rate of less than a hundredth of its peak, or of the rated one."""
    for rate in rates.values():
        base = None if rate is None else rate.peak or rate.rated
        if rate is None or not base or not rate.sustained:
            continue
        best = max(one.value for one in rate.sustained.values())
        if best < SHARE * base:
            says = f"sustained {format_rate(best)} is {100 * best / base:.2g} % of {format_rate(base, 4)}, less than "
            says += "any copy or kernel has of it. Check the unit: MB/s, GB/s; a share is written 85 %."
            yield Doubt("unit-slip", place, says, KEPT, ("sustained",))
            return


def _memory(memory: Memory) -> Iterator[Doubt]:
    place = ("memories", memory.name)
    low, high = SIZES.get(memory.kind, (0.0, math.inf))
    if memory.capacity is not None and not low <= memory.capacity <= high:
        says = f"{format_bytes(memory.capacity)} is {_side(memory.capacity, low)} any {memory.kind} holds. "
        yield Doubt("unit-slip", place, f"{says}Check the unit: MB, GB, TB; b is a bit.", KEPT, ("capacity",))
    low, high = RATES.get(memory.kind, (0.0, math.inf))
    rates = {"rate": memory.rate, "read": memory.read, "write": memory.write}
    yield from _share(place, rates)
    for key, rate in rates.items():
        value = figure(rate) if memory.kind in DRIVES else _peak(rate)
        if value is not None and (value < low or value > high * memory.count) and not (memory.kind in DRIVES
                                                                                      and value > high):  # fmt: skip
            says = f"{format_rate(value)} is {_side(value, low)} any {memory.kind} has. "
            yield Doubt("unit-slip", place, f"{says}Check the unit: MB/s, GB/s, TB/s.", KEPT, (key,))


def _peak(rate: Rate | None) -> float | None:
    if rate is None or rate.unknown:
        return None
    return rate.peak or rate.rated or max((one.value for one in rate.sustained.values()), default=None)


def _side(value: float, low: float) -> str:
    return "less than" if value < low else "more than"


def _processor(processor: Processor) -> Iterator[Doubt]:
    place = ("processors", processor.name)
    low, high = FLOPS[processor.kind]
    for form, rate in processor.flops.items():
        value = rate.rated or _peak(rate)
        if value is None or (form in ("fp64", "fp32", "tf32") and value < high):
            continue
        if not low <= value <= high:
            says = f"{form} {format_flops(value)} is {_side(value, low)} any {processor.kind} does. "
            yield Doubt("unit-slip", place, f"{says}Check the unit: GFLOP/s, TFLOP/s.", KEPT, ("flops", form))
        known = SPARSE.get("bf16" if form == "fp16" else form, {})
        card = next((name for sparse, name in known.items() if math.isclose(value, sparse, rel_tol=2e-3)), None)
        if card is not None:
            yield Doubt(
                "sparse-flops", place,
                f"{form} {format_flops(value, 4)} is what the data sheet of {card} gives with sparsity. Weights as "
                f"they are come to half of it. Write {form}: {format_flops(value / 2, 4)}.",
                KEPT, ("flops", form),
            )  # fmt: skip


def _latency(topology: Topology, link: Link) -> Iterator[Doubt]:
    typical = link.latency[1]
    if not typical:
        return
    kinds = {topology.memories[end].kind for end in (link.a, link.b) if end in topology.memories}
    kind = next((one for one in DRIVES if one in kinds), "network" if link.technology in NETWORKS else "")
    low, high = LATENCIES[kind]
    if not low <= typical <= high:
        usual = {"nvme": "about 80 us", "disk": "4 to 10 ms", "network": "5 to 100 us", "": "0.1 to 10 us"}[kind]
        side = "shorter" if typical < low else "longer"
        yield Doubt(
            "unit-slip", ("links", link.name),
            f"latency {format_seconds(typical)} is {side} than any such link's, which has {usual}. ns, us, ms?",
            KEPT, ("latency",),
        )  # fmt: skip


def _port(link: Link, written: Written) -> Iterator[Doubt]:
    """A network's or a SATA port's rate in bits, written as bytes."""
    peaks = [rate.peak for rate in (link.forward, link.backward) if rate.peak is not None]
    if not peaks:
        return
    each = max(peaks) / written.counts.get(link.name, written.counts.get(link.name.rpartition(".")[0], 1))
    most = FASTEST_PORT if link.technology in NETWORKS else SATA if link.technology == "sata" else math.inf
    if each > most * 1.001:
        bits = f"{each / 1e9:g} Gb/s"
        yield Doubt(
            "bits-bytes", ("links", link.name),
            f"{format_rate(each)} is more than any {link.technology} port has, {format_rate(most)} one way. Ports are "
            f"sold by their bits: {bits} are {format_rate(each / 8)}. Write {bits}.",
            KEPT,
        )  # fmt: skip


def doubts_of_texts(value: Mapping[str, Any]) -> Iterator[Doubt]:
    """Texts of a topology's or a plan's plain values that are read as they stand and are probably meant otherwise."""
    for path, text in _texts(value, ()):
        if len(path) < 2 or "source" in path or "title" in path:
            continue
        place, key = tuple(map(str, path[:2])), path[2:]
        text = text.strip()
        if _PERCENT.fullmatch(text):
            share = float(text.rstrip("% "))
            yield Doubt(
                "percent", place,
                f'"{text}" is {share / 100:.4g} of the whole. A share, {share:g}, has no percent sign: is it '
                f"{100 * share:.4g} %?",
                "keep it.", key,
            )  # fmt: skip
        elif (path[-1] in SIZE_KEYS or place[0] == "memories") and _BITS.fullmatch(text) and not text.endswith("B"):
            whole = re.sub(r"bits?|b(?=$|/|p)", "B", text)
            yield Doubt(
                "bits-bytes", place,
                f'"{text}" is in bits, 8 to a byte: memories and tensors are told in bytes. Is "{whole}" meant?',
                KEPT, key,
            )  # fmt: skip
        elif path[-1] in SIZE_KEYS and (found := _BILLIONS.fullmatch(text)):
            yield Doubt(
                "billions", place,
                f'"{text}" is {found[1]} bytes. Billions of parameters? Their bytes are parameters x bits / 8: '
                f"{found[1]} billion of 16 bits are {2 * float(found[1]):g} GB.",
                "write a space and bytes: 37 bytes.", key,
            )  # fmt: skip


def _texts(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict | list):
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _texts(one, (*path, key))
