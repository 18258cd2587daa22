"""What an entry leaves of the part it uses: of ways to say the same, those of the entry replace the part's.

- `rate` and `both_directions` of a link replace all rates of its part; `forward` or `backward` that direction alone.
- `pcie`, `nvlink` and `both_directions` replace each other, a `kind` that is of another, and every peak and rated
  figure that the part states beside. Sustained figures stay where the new peak allows them; else they are left out,
  which is remarked.
- `sustained` replaces every sustained figure of the part.
- `rate` of a memory replaces `read` and `write`, and they the rate; `read` leaves the part's `write`.
"""

from __future__ import annotations

from typing import Any

from offload import units
from offload.documents.topology_rates import OTHER_KINDS
from offload.errors import OffloadError

WIDTHS = ("pcie", "nvlink", "both_directions")
RATES = ("rate", "forward", "backward")
SLACK = 1 + 1e-9


def left_of(section: str, part: dict[str, Any], said: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """A part's keys that an entry leaves, and what of its sustained figures is left out, in words.

    said : the entry's own keys, which go over them.
    """
    left = dict(part)
    if section == "memories":
        if "rate" in said:
            _drop(left, "read", "write")
        elif said.keys() & {"read", "write"}:
            _drop(left, "rate")
    elif section == "links":
        return left, _link(left, said)
    if section == "limits" and "sustained" in said and isinstance(left.get("rate"), dict):
        left["rate"] = {key: value for key, value in left["rate"].items() if key != "sustained"}
    return left, []


def _link(left: dict[str, Any], said: dict[str, Any]) -> list[str]:
    if said.keys() & {"rate", "both_directions"}:
        _drop(left, "forward", "backward", "rate", "both_directions", "sustained")
    elif said.keys() & {"forward", "backward"}:
        both, sustained = left.pop("rate", None), left.pop("sustained", None)
        for key in {"forward", "backward"} - said.keys():
            _hand_over(left, key, both, sustained)
    for key in RATES:
        if key in said:
            left.pop(key, None)
    if "sustained" in said:
        _drop(left, "sustained")
        _each_rate(left, ("sustained",))
    width = next((key for key in WIDTHS if key in said), None)
    if width is None:
        return []
    _drop(left, *WIDTHS)
    if left.get("kind") in OTHER_KINDS.get(width, ()):
        _drop(left, "kind")
    _each_rate(left, ("peak", "rated", "unknown"))
    peak = _peak(width, said[width])
    return [] if peak is None else _above(left, peak, f"{width}: {said[width]}")


def _hand_over(left: dict[str, Any], key: str, both: Any, sustained: Any) -> None:
    """What a part says of both directions, for the one that its entry leaves."""
    if both is not None and key not in left:
        left[key] = both
    rate = left.get(key, {})
    rate = rate if isinstance(rate, dict) else {"peak": rate}
    if sustained is not None and "sustained" not in rate:
        left[key] = rate | {"sustained": sustained}


def _drop(left: dict[str, Any], *keys: str) -> None:
    for key in keys:
        left.pop(key, None)


def _each_rate(left: dict[str, Any], grades: tuple[str, ...]) -> None:
    """Take grades out of the rates; a rate that is one figure is a peak, and one that has nothing left goes."""
    for key in RATES:
        rate = left.get(key)
        if isinstance(rate, dict):
            left[key] = {grade: value for grade, value in rate.items() if grade not in grades}
            if not left[key].keys() - {"source"}:
                del left[key]
        elif rate is not None and "peak" in grades:
            del left[key]


def _peak(width: str, text: Any) -> float | None:
    """The peak that a key states, one way [B/s]; None where it cannot be read, which is told elsewhere."""
    try:
        if width == "pcie":
            return units.pcie_rate(*units.parse_pcie(text))
        return units.nvlink_rate(*units.parse_nvlink(text)) if width == "nvlink" else units.parse_rate(text) / 2
    except OffloadError:
        return None


def _above(left: dict[str, Any], peak: float, what: str) -> list[str]:
    """Leave out sustained figures above a peak, and say which."""
    told = []
    for key in (None, *RATES):
        holder = left if key is None else left.get(key)
        if not isinstance(holder, dict) or "sustained" not in holder:
            continue
        rates = holder["sustained"] if isinstance(holder["sustained"], dict) else {"": holder["sustained"]}
        kept = {access: figure for access, figure in rates.items() if not _is_above(figure, peak)}
        for access in rates.keys() - kept.keys():
            name = " ".join(filter(None, (key, "sustained", access)))
            told.append(f"{name}: {rates[access]} is above what {what} carries, and is left out")
        if len(kept) == len(rates):
            continue
        holder = {grade: value for grade, value in holder.items() if grade != "sustained"} | (
            {"sustained": kept} if kept else {}
        )
        if key is None:
            left.pop("sustained")
            left.update(holder)
        elif holder.keys() - {"source"}:
            left[key] = holder
        else:
            del left[key]
    return sorted(told)


def _is_above(figure: Any, peak: float) -> bool:
    if not isinstance(figure, str) or "%" in figure:
        return False
    try:
        return units.parse_rate_interval(figure)[2] > peak * SLACK
    except OffloadError:
        return False
