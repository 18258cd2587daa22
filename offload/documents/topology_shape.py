"""What may stand in a topology file: shorthand written out to maps, and the shape of each part.

`rate: 96 GB/s` becomes `rate: {peak: 96 GB/s}`: a figure without a grade is the peak of a link, a memory or a limit,
the rated figure of arithmetic and of a drive (drives beat their data sheets), and the sustained rate at which a
processor reads its memory. A sustained rate may be a percentage: of the peak, else of the rated figure. `unknown` is
a legal rate: it has no row, and is listed under assumptions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from offload import units
from offload.documents.costs import PowerShape, PriceShape, without_included
from offload.documents.shapes import ByteCount, ByteRate, FlopRate, Seconds, Shape, quantity

Access = Literal["", "read", "write", "copy", "mixed", "pinned", "pageable", "zero_copy", "gemv"]
Format = Literal["fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "fp6", "fp4", "int8", "int4"]
MemoryKind = Literal["hbm", "dram", "nvme", "disk", "cxl", "unified"]
ProcessorKind = Literal["gpu", "cpu"]
SwitchKind = Literal["socket", "pcie_switch", "nvswitch", "nic", "chipset"]
LinkKind = Literal["pcie", "nvlink", "c2c", "upi", "xgmi", "cxl", "sata", "ethernet", "infiniband"]
PcieWidth = Annotated[tuple[int, int], quantity(units.parse_pcie)]  # generation and lanes of "4 x16"
NvlinkWidth = Annotated[tuple[int, int], quantity(units.parse_nvlink)]  # generation and links of "4 x18"


@dataclass(frozen=True, slots=True)
class Part:
    """A sustained rate as a share [1] of the stated one: low <= value <= high; `text` as it is written."""

    low: float
    value: float
    high: float
    text: str


def _sustained(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """A reader of a rate, or of a percentage of the stated one ("80 %", "75..85 %")."""

    def read(text: str) -> Any:
        return Part(*units.parse_share_interval(text), text) if "%" in text else parse(text)

    return read


SustainedRate = Annotated[Any, quantity(_sustained(units.parse_rate_interval))]
SustainedFlopRate = Annotated[Any, quantity(_sustained(units.parse_flops_interval))]
Count = Annotated[int, Field(ge=1, le=100_000)]


class RateShape(Shape):
    """Bytes per second, by grade."""

    model_config = ConfigDict(title="a rate")
    peak: ByteRate | None = None
    rated: ByteRate | None = None
    sustained: dict[Access, SustainedRate] = {}
    source: str = ""
    unknown: bool = False


class FlopRateShape(Shape):
    """FLOP per second in one number format, by grade."""

    model_config = ConfigDict(title="a FLOP rate")
    peak: FlopRate | None = None
    rated: FlopRate | None = None
    sustained: dict[Access, SustainedFlopRate] = {}
    source: str = ""
    unknown: bool = False


class MemoryShape(Shape):
    """Where state lives."""

    model_config = ConfigDict(title="a memory")
    use: str = ""
    kind: MemoryKind
    at: str | None = None
    capacity: ByteCount | None = None
    cache: ByteCount = 0
    rate: RateShape | None = None
    read: RateShape | None = None
    write: RateShape | None = None
    count: Count = 1
    source: str = ""
    price: PriceShape | None = None
    power: PowerShape | None = None


class ProcessorShape(Shape):
    """Where compute runs."""

    model_config = ConfigDict(title="a processor")
    use: str = ""
    kind: ProcessorKind
    memory: str
    flops: dict[Format, FlopRateShape] = {}
    reads: RateShape | None = None
    writes: RateShape | None = None
    peer_to_peer: bool | None = None
    direct_storage: bool = False
    source: str = ""
    price: PriceShape | None = None
    power: PowerShape | None = None


class SwitchShape(Shape):
    """Where links meet."""

    model_config = ConfigDict(title="a switch")
    use: str = ""
    kind: SwitchKind
    reduces: bool = False
    source: str = ""
    price: PriceShape | None = None
    power: PowerShape | None = None


class LinkShape(Shape):
    """A link: `forward` is from the first to the second of `between`."""

    model_config = ConfigDict(title="a link")
    use: str = ""
    between: list[str]
    kind: LinkKind | None = None
    rate: RateShape | None = None
    forward: RateShape | None = None
    backward: RateShape | None = None
    pcie: PcieWidth | None = None
    nvlink: NvlinkWidth | None = None
    both_directions: ByteRate | None = None
    sustained: dict[Access, SustainedRate] = {}
    latency: list[Seconds] = []
    duplex: Literal["full", "half"] = "full"
    count: Count = 1
    source: str = ""
    price: PriceShape | None = None
    power: PowerShape | None = None


class LimitShape(Shape):
    """A cap over several link directions."""

    model_config = ConfigDict(title="a limit")
    over: list[str]
    rate: RateShape | None = None
    sustained: dict[Access, SustainedRate] = {}
    source: str = ""


class TopologyShape(Shape):
    """A whole topology; the parts are checked one by one."""

    model_config = ConfigDict(title="a topology")
    title: str = ""
    source: str = ""
    price: PriceShape | None = None
    power: PowerShape | None = None
    schema_: str = Field(default="", alias="$schema")
    parts: dict[Literal["switches", "memories", "processors", "links", "limits"], dict[str, Any]] = {}
    switches: dict[str, Any] = {}
    memories: dict[str, Any]
    processors: dict[str, Any] = {}
    links: dict[str, Any] = {}
    limits: dict[str, Any] = {}


def written_out(part: str, value: Any) -> Any:
    """One entry of a section ("memories", "links", ...) with its shorthand written out; anything odd stays as it is."""
    if not isinstance(value, dict):
        return value
    found = without_included(value) if part != "limits" else dict(value)
    grade = "rated" if found.get("kind") in ("nvme", "disk") else "peak"
    for key in ("rate", "read", "write", "forward", "backward"):
        if key in found:
            found[key] = _rate(found[key], grade)
    for key in ("reads", "writes"):
        if key in found:
            found[key] = _rate(found[key], "sustained")
    if isinstance(found.get("flops"), dict):
        found["flops"] = {form: _rate(figure, "rated") for form, figure in found["flops"].items()}
    if "sustained" in found:
        found["sustained"] = _by_access(found["sustained"])
    if found.get("capacity") == "unknown":
        del found["capacity"]
    if part == "switches" and isinstance(found.get("kind"), str):
        found["kind"] = found["kind"].replace(" ", "_")
    if part == "limits" and isinstance(found.get("over"), str):
        found["over"] = [found["over"]]
    if part == "links" and isinstance(found.get("latency"), str | int | float):
        found["latency"] = ["0 s", found["latency"]]
    return found


def _rate(value: Any, grade: str) -> Any:
    if isinstance(value, dict):
        found = {key: figure for key, figure in value.items() if figure != "unknown"}
        if "sustained" in found:
            found["sustained"] = _by_access(found["sustained"])
        return found if found.keys() - {"source"} or len(found) == len(value) else found | {"unknown": True}
    if value == "unknown":
        return {"unknown": True}
    if isinstance(value, list):
        return value
    return {grade: _by_access(value) if grade == "sustained" else value}


def _by_access(value: Any) -> Any:
    """A sustained rate by kind of access; "" is any access."""
    return value if isinstance(value, dict | list) else {"": value}
