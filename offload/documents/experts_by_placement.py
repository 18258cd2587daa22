"""Experts and patterns of tensors' names of a plan by placement: what a file says of them, checked where it stands."""

from __future__ import annotations

import re
from difflib import get_close_matches

from offload.designs import Experts, Placement, Routing, runs
from offload.designs.homes import home_names
from offload.designs.placement import memories_of, with_some_ranks
from offload.documents.marks import Document, Location
from offload.documents.named import no_nodes, plain
from offload.documents.plan_shape import ExpertsShape
from offload.errors import ModelError, PlanError, TopologyError
from offload.models import Model
from offload.models.gguf_names import first_of, gguf_names, outside_names, tensor_pattern
from offload.models.weights import layer_tensors
from offload.ranges import listed
from offload.topology import Topology
from offload.units import format_rate

PLACE = ("placement", "experts")


def experts_of(document: Document, shape: ExpertsShape) -> Experts:
    """What stands under `placement.experts`; keys that contradict each other or have no effect are noted."""
    cache, routing = None, shape.routing
    if shape.cache is not None:
        try:
            cache = shape.cache.cache()
        except ValueError as error:
            document.mistake((*PLACE, "cache"), str(error), key=True)
        if isinstance(shape.cache.hit, Routing):
            if routing is not None and routing != shape.cache.hit:
                document.mistake((*PLACE, "cache", "hit"), "says how tokens choose experts, and so does "
                                 '"routing" under "experts", which differs. Keep one of the two.')  # fmt: skip
            routing = shape.cache.hit
    prefetch = None if shape.prefetch is None else shape.prefetch.accuracy
    access = shape.access or ("copy" if cache is None and prefetch is None else "on_demand")
    if prefetch is not None and access != "on_demand":
        why = "all experts are fetched anyway" if access == "copy" else "experts are read where they are"
        document.mistake((*PLACE, "prefetch"), f"with access: {access} {why}, so nothing is to be foreseen. Write "
                         "access: on_demand, or drop the prefetch.", key=True)  # fmt: skip
    if not any((shape.home, shape.compute, shape.access, shape.routing, shape.cache, shape.prefetch, shape.numa)):
        document.mistake(PLACE, "says nothing of the experts. Write where they live, {home: dram0}, or drop it.",
                         key=True)  # fmt: skip
    return Experts(tuple((shape.home or {}).items()), shape.compute, access, routing or Routing(), cache, prefetch,
                   shape.numa or "")  # fmt: skip


def as_stated(document: Document, place: Location) -> Location:
    """Where the value of a key stands: how tokens choose experts may be told with a cache's hit rate."""
    hit = (*PLACE, "cache", "hit")
    return hit if place == (*PLACE, "routing") and document.get(place) is None and document.get(hit) else place


def check_experts(document: Document, placement: Placement, topology: Topology) -> None:
    """The memory of a cache is known, and has a way to where experts run. placement : that of the experts."""
    cache = None if placement.experts is None else placement.experts.cache
    if cache is None:
        return
    place = (*PLACE, "cache", "memory")
    if wrong := no_nodes(topology, cache.memory, "memory"):
        document.mistake(place, wrong)
        return
    for memory, _ in placement.weights:
        try:
            processors = runs(topology, placement, memory)
            own = listed(memories_of(topology, processors))
            if wrong := with_some_ranks(topology, cache.memory, processors):
                document.mistake(place, wrong)
                return
            for source in listed(cache.memory):
                for near in own if source not in own else ():
                    topology.route(source, near)
        except PlanError:
            return  # told of the homes
        except TopologyError as error:
            document.mistake(place, plain(error, topology))
            return
    if wrong := _slower(placement, topology, cache.memory):
        document.mistake(place, wrong)


def _slower(placement: Placement, topology: Topology, cache: str) -> str:
    """What is wrong with a cache from which experts come slower than from wherever they live; "" where it is faster."""
    for memory, _ in placement.weights:
        own = listed(memories_of(topology, runs(topology, placement, memory)))
        far = [name for name in home_names(memory) if name not in own]
        if not far or listed(cache)[0] in own:
            return ""
        try:
            kept = [_rate(topology, name, own[0]) for name in listed(cache)]
            missed = [_rate(topology, name, own[0]) for name in far]
        except (PlanError, TopologyError):
            return ""  # told of the homes
        if not all((*kept, *missed)) or sum(kept) >= min(missed):
            return ""
    return (f"{cache} brings what it keeps at {format_rate(sum(kept))}, and experts come from {memory} (their home) "
            f"at {format_rate(min(missed))} (sustained): hits would be slower than misses. Name a faster memory, or "
            "drop it.")


def _rate(topology: Topology, source: str, destination: str) -> float:
    """The sustained rate of the slowest part of the way [B/s]; 0 where none is known."""
    uses = [use for stage in topology.route(source, destination).stages for use in stage.uses]
    found = [(topology.resources[name].sustained_at("read"), times) for name, _, times in uses if times > 0]
    return min((rate.value / times for rate, times in found if rate is not None), default=0.0)


def check_tensors(
    document: Document, patterns: tuple[tuple[str, str], ...], model: Model, weights: str
) -> None:
    """Every pattern can be read, and matches tensors of the model that no earlier one has."""
    read = []
    for text, _ in patterns:
        try:
            read.append(tensor_pattern(text))
        except ModelError as error:
            document.mistake(("placement", "tensors", text), str(error), key=True)
    if not patterns or len(read) < len(patterns):
        return
    stack = [gguf_names(one) for layer in layer_tensors(model, weights) for one, _ in layer]
    stack += outside_names(model).values()
    first = [first_of(ways, read) for ways in stack]
    for place, (text, _) in enumerate(patterns):
        if place in first:
            continue
        earlier = next((first[i] for i, ways in enumerate(stack) if first_of(ways, [read[place]]) is not None), None)
        if earlier is not None:
            wrong = f'all that it matches is matched before, as by "{patterns[earlier][0]}". Write it above that one.'
        else:
            names = list(dict.fromkeys(name for ways in stack for way in ways for name in way))
            shown = ", ".join(name for name in names if name.startswith("blk.1.")) or ", ".join(names[:9])
            outer = " or ".join(name for name in names if not name.startswith("blk."))
            wrong = (f"matches no tensor of {model.name}.{_nearest(text, names)} Names of a layer: {shown}; outside of "
                     f"layers: {outer}.")
        document.mistake(("placement", "tensors", text), wrong, key=True)


def _nearest(text: str, names: list[str]) -> str:
    """The names nearest to a pattern that matches none, as words for a message; "" where none is near."""
    plain = re.sub(r"[\\^$()\[\]?+*|]", "", text).casefold()
    stems = {name.removesuffix(".weight"): name for name in names}
    for stem, name in list(stems.items()):
        stems.setdefault(re.sub(r"^blk\.\d+\.", "", stem), name)
    near = [stems[one] for one in get_close_matches(plain.removesuffix(".weight"), stems, n=3, cutoff=0.6)]
    return f" Nearest: {', '.join(dict.fromkeys(near))}." if near else ""
