"""Parts of small servers, and what a route loads of them."""

from __future__ import annotations

from offload.topology import (
    Interval,
    Link,
    Memory,
    Processor,
    Rate,
    Switch,
)

GB = 1e9


def rate(peak: float | None = None, sustained: float | None = None, **accesses: float) -> Rate:
    figures = {access: Interval.exact(figure * GB) for access, figure in accesses.items()}
    if sustained is not None:
        figures[""] = Interval.exact(sustained * GB)
    return Rate(peak=None if peak is None else peak * GB, sustained=figures)


def link(name: str, a: str, b: str, peak: float = 32.0, technology: str = "pcie", **more) -> Link:
    return Link(name, a, b, rate(peak), rate(peak), technology, **more)


def hbm(number: int, **more) -> Memory:
    return Memory(f"hbm{number}", "hbm", 24 * 2**30, rate(1000.0), **more)


def dram(number: int, peak: float = 100.0) -> Memory:
    return Memory(f"dram{number}", "dram", 96 * 2**30, rate(peak), at=f"socket{number}")


def ssd(number: int) -> Memory:
    return Memory(f"ssd{number}", "nvme", 2 * 10**12, read=Rate(rated=7.0 * GB), write=Rate(rated=6.0 * GB))


def gpu(number: int, **more) -> Processor:
    return Processor(f"gpu{number}", "gpu", f"hbm{number}", **more)


def cpu(number: int, **more) -> Processor:
    return Processor(f"cpu{number}", "cpu", f"dram{number}", **more)


def desktop(**more) -> dict[str, list]:
    return {
        "memories": [hbm(0), dram(0), ssd(0)],
        "processors": [gpu(0, **more), cpu(0)],
        "switches": [Switch("socket0")],
        "links": [
            link("pcie0", "socket0", "hbm0", 31.5, latency=(3e-6, 6e-6)),
            link("m2", "ssd0", "socket0", 7.9, latency=(1e-6, 2e-6)),
        ],
    }


def switched_pair(**more) -> dict[str, list]:
    """Two GPUs under one PCIe switch, with one uplink to the socket."""
    return {
        "memories": [hbm(0), hbm(1), dram(0)],
        "processors": [gpu(0, **more), gpu(1, **more), cpu(0)],
        "switches": [Switch("socket0"), Switch("plx", "pcie_switch")],
        "links": [link("uplink", "socket0", "plx"), link("p0", "plx", "hbm0"), link("p1", "plx", "hbm1")],
    }


def two_sockets() -> dict[str, list]:
    return {
        "memories": [hbm(0), dram(0), dram(1), ssd(0)],
        "processors": [gpu(0), cpu(0), cpu(1)],
        "switches": [Switch("socket0"), Switch("socket1")],
        "links": [
            link("pcie0", "socket0", "hbm0"),
            link("upi", "socket0", "socket1", 62.4, "upi"),
            link("m2", "ssd0", "socket0", 7.9),
        ],
    }


def uses(route) -> list[dict[str, tuple[float, float]]]:
    return [{name: (least, expected) for name, least, expected in stage.uses} for stage in route.stages]


ONE, STAGED = (1.0, 1.0), (0.0, 1.0)
