"""Placements of engines that compute everything on GPUs and fetch what lies elsewhere: ZeRO-Inference, FlexGen, vLLM.

Each function gives the keys of a plan's placement, or {} where the run's settings say nothing of the kind.
"""

from __future__ import annotations

import re
from typing import Any

from offload.errors import OffloadError
from offload.ranges import fold
from offload.readers.engines.run import Run
from offload.units import many
from offload.why.notes import Notes
from offload.why.server import Place, spread_of

SHARES = re.compile(r"(\d{1,3})\D+(\d{1,3})\D+(\d{1,3})\D+(\d{1,3})(?:\D+(\d{1,3})\D+(\d{1,3}))?\D*")


def streamed(run: Run, place: Place, ranks: int, notes: Notes) -> dict[str, Any]:
    """The placement of a run whose settings say what lies away from its GPUs. Raises OffloadError for what cannot be.

    ranks : GPUs that share each layer.
    """
    settings = {key: value for key, value, _ in run.settings}
    if not place.gpus:
        return {}
    return (_vllm(settings, place, ranks, notes) or _flexgen(settings, place, notes)
            or _zero(settings, place, notes))  # fmt: skip


def _vllm(settings: dict[str, Any], place: Place, ranks: int, notes: Notes) -> dict[str, Any]:
    """vLLM's cpu_offload_gb: GiB of each GPU's weights that stay in host memory and are read over the link."""
    told = str(settings.get("cpu_offload_gb", "0")).strip()
    if re.fullmatch(r"\d{1,6}(\.\d{1,6})?", told) is None or float(told) == 0:
        return {}
    size = round(float(told) * 2**30 * ranks)
    notes.assume(f"placement.weights: cpu_offload_gb {told} for each of {many(ranks, 'GPU')}, in whole layers "
                 "rounded down; read over the link and not copied (access: in_place)")  # fmt: skip
    return {"weights": {spread_of(place, ranks): "rest", _host(place, "cpu_offload_gb"): f"{size} B"},
            "compute": fold(place.gpus[:ranks]), "layout": "streamed_first", "access": "in_place"}  # fmt: skip


def _flexgen(settings: dict[str, Any], place: Place, notes: Notes) -> dict[str, Any]:
    """FlexGen's --percent: shares of weights, KV cache and rows on the GPU and the host, the rest on the drive."""
    found = SHARES.fullmatch(str(settings.get("percent", "")).strip())
    if found is None:
        return {}
    shares = [int(one) for one in found.groups()[:4]]
    if shares[0] + shares[1] > 100 or shares[2] + shares[3] > 100:
        raise OffloadError(f"percent: {' '.join(map(str, shares))} are more than all of the weights or the KV cache.")
    if len(place.gpus) > 1:
        raise OffloadError("percent: of FlexGen on several GPUs no plan is made. Write one, and compare it by offload "
                           "step PLAN --measured.")  # fmt: skip
    weights = _parts(place, shares[0], shares[1], "percent")
    home: dict[str, str] = {" + ".join(f"{part}% {name}" for name, part in weights.items()): "rest"}
    if len(weights) == 1:
        home = {next(iter(weights)): "rest"}
    elif place.drive in weights:  # whose part of a layer comes another way than the rest of it
        home = {name: f"{part}%" for name, part in weights.items()}
    cache = _parts(place, shares[2], shares[3], "percent")
    kv: Any = {name: f"{part}%" for name, part in cache.items()}
    if len(cache) == 1:
        kv = next(iter(cache))
    found_keys = {"weights": home, "compute": place.gpus[0], "kv": kv}
    if settings.get("cpu_cache_compute") in (True, "True", "true", 1) and place.host in cache and place.cpu:
        found_keys["attention"] = place.cpu
    notes.assume(f"placement: FlexGen's percent {' '.join(map(str, shares))}, shares of each layer (with a drive "
                 "among them whole layers); hidden rows stay with the GPU")  # fmt: skip
    return found_keys


def _parts(place: Place, gpu: int, host: int, why: str) -> dict[str, int]:
    parts = {}
    if gpu:
        parts[spread_of(place, 1)] = gpu
    if host:
        parts[_host(place, why)] = host
    if gpu + host < 100:
        parts[_drive(place, why)] = 100 - gpu - host
    return parts


def _zero(settings: dict[str, Any], place: Place, notes: Notes) -> dict[str, Any]:
    """ZeRO-Inference: all weights in host memory or on a drive, fetched layer by layer; KV with the GPU or the host."""

    def says(key: str) -> bool:
        return settings.get(key) in (True, "True", "true", 1)

    if not says("cpu_offload") and not says("disk_offload"):
        return {}
    home = _drive(place, "disk_offload") if says("disk_offload") else _host(place, "cpu_offload")
    found: dict[str, Any] = {"weights": {home: "rest"}, "compute": fold(place.gpus)}
    if says("disk_offload"):
        found["via"] = [_host(place, "disk_offload")]
    if len(place.gpus) > 1:
        found["parallel"] = {"by": "data", "fetch": "sharded"}
        notes.assume("placement.parallel: replicas that each fetch a part and gather the rest, as ZeRO-3 does")
    if says("kv_offload"):
        found["kv"] = _host(place, "kv_offload")
    if settings.get("pin_memory") in (False, "False", "false", 0) and not says("disk_offload"):
        found["host_memory"] = "pageable"
    notes.assume(f"placement: all weights in {home}, each layer fetched while the one before runs, as ZeRO-Inference "
                 "does")  # fmt: skip
    return found


def _host(place: Place, why: str) -> str:
    if not place.host:
        raise OffloadError(f"{why}: {place.topology.name} has no host memory apart from its GPU's: the run does not "
                           "fit this server. Say --on SERVER.")  # fmt: skip
    return place.host


def _drive(place: Place, why: str) -> str:
    if not place.drive:
        raise OffloadError(f"{why}: {place.topology.name} has no drive: the run does not fit this server. "
                           "Say --on SERVER.")  # fmt: skip
    return place.drive
