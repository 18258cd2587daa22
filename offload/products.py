"""Rates of links, memories and drives that can be bought, to mark on an axis: peaks per direction, with sources."""

from __future__ import annotations

from dataclasses import dataclass

from offload.units import pcie_rate

CHANNEL = 8  # bytes that a DDR channel carries at a time


@dataclass(frozen=True, slots=True)
class Product:
    """A product's peak rate [B/s], of a link in one direction. kind : "link", "memory" or "drive"."""

    name: str
    kind: str
    rate: float
    source: str


_PCIE = "PCI Express Base Specification: transfers per second, lanes and encoding"
_JEDEC = "JEDEC: transfers per second x channels x 8 bytes"


def _links() -> list[Product]:
    found = [Product(f"PCIe {generation} x16", "link", pcie_rate(generation, 16), _PCIE) for generation in (3, 4, 5, 6)]
    found.append(Product("NVLink-C2C (GH200)", "link", 450e9, "NVIDIA GH200 data sheet: 900 GB/s both directions"))
    return found


def _drives() -> list[Product]:
    return [Product(f"PCIe {generation} x4", "drive", pcie_rate(generation, 4), _PCIE) for generation in (3, 4, 5, 6)]


def _memories() -> list[Product]:
    ddr = ((4, 3200, 2), (5, 6000, 2), (4, 3200, 8), (5, 4800, 8), (5, 6400, 12))
    found = [Product(f"DDR{generation}-{speed} x{channels}", "memory", speed * 1e6 * CHANNEL * channels, _JEDEC)
             for generation, speed, channels in ddr]  # fmt: skip
    return [*found, *_HBM]


# As the shipped servers have them, with how they were derived (`offload topology show dgx-h100`).
_HBM = (
    Product("RTX 4090", "memory", 1008.1e9, "desktop-4090: GDDR6X, 384 bit at 21 GT/s"),
    Product("H100 SXM", "memory", 3352.4e9, "dgx-h100: 5120 bit at 2619 MHz, two transfers each"),
    Product("GH200 96 GB", "memory", 4022.8e9, "gh200: 6144 bit, two transfers each"),
)


def products(kind: str, low: float, high: float) -> tuple[Product, ...]:
    """The products of a kind whose rate is between two others [B/s], the slowest first."""
    every = {"link": _links, "drive": _drives, "memory": _memories}[kind]()
    return tuple(sorted((one for one in every if low <= one.rate <= high), key=lambda one: one.rate))
