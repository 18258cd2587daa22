"""Experts apart from their layers: what is fetched of them, what a cache holds, what is fetched ahead; and patterns of
tensors' names that place some of a layer elsewhere (llama.cpp's -ot).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from offload.designs.homes import home_names, reads_in_place
from offload.designs.outside import Outside
from offload.designs.parts import Part, Piece, Pieces, Place, parts_of, stage_of, whole_layer
from offload.designs.placement import (
    LayerHome,
    Placement,
    experts_placement,
    memories_of,
    place_layers,
    runs,
)
from offload.designs.routing import CACHE, UNIFORM, Routing, Touched, slots_of, touched
from offload.designs.slot_sizes import larger
from offload.errors import ModelError, PlanError
from offload.models import Layer, Matrix, Model, Weights, layers_of
from offload.models.attention import smaller
from offload.models.gguf_names import first_match, tensor_pattern
from offload.models.weights import layer_tensors
from offload.ranges import listed
from offload.topology import Topology
from offload.units import format_bytes

EXPERTS = "placement.experts.home"
TENSORS = "placement.tensors"
PREFETCH = "placement.experts.prefetch"


def routing_of(placement: Placement) -> Routing:
    """How tokens choose experts."""
    return UNIFORM if placement.experts is None else placement.experts.routing


def check_experts(placement: Placement, model: Model) -> None:
    """Raises PlanError where experts are placed of a model that has none."""
    if placement.experts is not None and not any(layer.experts for layer in layers_of(model)):
        raise PlanError(f"placement.experts: {model.name} has no experts that a router chooses. Drop it.")


@dataclass(slots=True)
class LayerParts:
    """The parts of each layer of a model, by a placement; layers that are alike share theirs.

    homes : of each layer. tokens : new positions of all sequences. matched : for each pattern of tensors' names, how
    many it places and their bytes. used : of each layer with a cache, what a step touches; fetched : of each whose
    chosen experts are fetched; ahead : of each of which some are fetched ahead. outside : where tensors outside of
    layers are, of which patterns place some.
    """

    model: Model
    topology: Topology
    placement: Placement
    weights: str
    weighed: Weights
    homes: Sequence[LayerHome]
    tokens: Any
    matched: list[list[int]] = field(default_factory=list)
    used: dict[tuple[int, int], Touched] = field(default_factory=dict)
    fetched: dict[tuple[int, int], Touched] = field(default_factory=dict)
    ahead: dict[tuple[int, int], Touched] = field(default_factory=dict)
    slots: int = 0
    outside: Outside | None = None

    def parts(self, amounts: Sequence[Any]) -> list[tuple[Part, ...]]:
        """The parts of each layer. amounts : what the pass counts of each.

        Raises PlanError where the placement does not fit the model.
        """
        layers = layers_of(self.model)
        placement, asked = self.placement, self.placement.experts
        apart = self._experts_homes()
        patterns = self._patterns()
        tensors = layer_tensors(self.model, self.weights) if asked is not None or patterns else ()
        moved = [self._moved(one, patterns) for one in tensors]
        self._check_matched()
        places = [self._places(home, apart[i] if apart else None) for i, home in enumerate(self.homes)]
        self._count_slots(layers, tensors, moved, places)
        known: dict[tuple[Any, ...], tuple[Part, ...]] = {}
        found = []
        for i, (layer, whole) in enumerate(zip(layers, amounts, strict=True)):
            plain = not (any(moved[i]) if moved else False) and (layer.experts is None or asked is None)
            key = (tuple(places[i]), id(whole), id(layer),
                   () if plain else (tuple(size for _, size in tensors[i]), tuple(moved[i])))  # fmt: skip
            if key not in known:
                known[key] = (
                    whole_layer(self.homes[i], whole, placement.access) if plain
                    else parts_of(tensors[i], places[i], whole, self.tokens, self._pieces(layer), moved[i])
                )  # fmt: skip
            found.append(known[key])
        return found

    def notes(self) -> list[str]:
        """What was found on the way, for a reader of the plan."""
        found = []
        for (text, memory), (count, size) in zip(self.placement.tensors, self.matched, strict=True):
            number = "1 tensor" if count == 1 else f"{count} tensors"
            found.append(f'"{text}": {number}, {format_bytes(size)}, in {memory}')
        if self.placement.tensors:
            found.append("a layer's norms and biases, its KV cache and attention itself stay with it, whatever matches")
        asked = self.placement.experts
        cache = asked.cache if asked else None
        ahead = asked.prefetch if asked else None
        found += [_slots_note(one, count, ahead) for (count, _), one in self.fetched.items()]
        for (count, used), one in self.used.items():
            if cache is None:
                break
            found.append(_cache_note(one, count, used, cache.memory, cache.hit, cache.policy))
        if asked is not None and asked.prefetch is not None:
            found += dict.fromkeys(_prefetch_note(asked.prefetch, one, count) for (count, _), one in self.ahead.items())
        return found

    # --- where things are ---

    def _experts_homes(self) -> list[LayerHome] | None:
        """A home for the experts of each layer; None where they are with their layer."""
        if self.placement.experts is None:
            return None
        if not self.placement.experts.home and not self.placement.experts.compute:
            return list(self.homes)
        return place_layers(self.topology, experts_placement(self.placement), self.weighed.layers, EXPERTS)

    def _places(self, home: LayerHome, experts: LayerHome | None) -> tuple[Place, Place, Place]:
        own = Place(home, self.placement.access)
        asked = self.placement.experts
        return own, own, own if experts is None or asked is None else Place(experts, asked.access)

    def _patterns(self) -> list[tuple[re.Pattern[str], Place, Place]]:
        """Each pattern with the place of what it matches, and of experts that it matches."""
        found = []
        for text, memory in self.placement.tensors:
            try:
                pattern = tensor_pattern(text)
            except ModelError as error:
                raise PlanError(f"{TENSORS}: {error}") from None
            home = LayerHome(memory, runs(self.topology, self.placement, memory, TENSORS))
            place = Place(home, self.placement.access, True)
            experts = place
            if self.placement.experts is not None:
                apart = experts_placement(self.placement)
                processor = runs(self.topology, apart, memory, TENSORS)
                experts = Place(LayerHome(memory, processor), self.placement.experts.access, True)
            found.append((pattern, place, experts))
        self.matched = [[0, 0] if self.outside is None else list(self.outside.matched[i]) for i in range(len(found))]
        return found

    def _moved(
        self, tensors: Sequence[tuple[Matrix, int]], patterns: Sequence[tuple[re.Pattern[str], Place, Place]]
    ) -> list[Place | None]:
        found: list[Place | None] = []
        for one, size in tensors:
            which = first_match(one, [pattern for pattern, _, _ in patterns]) if patterns else None
            if which is not None:
                self.matched[which][0] += 1
                self.matched[which][1] += size
            if which is None:
                found.append(None)
                continue
            _, place, place_of_experts = patterns[which]
            found.append(place_of_experts if stage_of(one) == "experts" else place)
        return found

    def _check_matched(self) -> None:
        for (text, _), (count, _) in zip(self.placement.tensors, self.matched, strict=True):
            if not count:
                raise PlanError(f'{TENSORS}: "{text}" matches no tensor of {self.model.name}, or only such as an '
                                "earlier pattern has. Names are as blk.12.ffn_up_exps.weight (experts), "
                                "blk.12.ffn_up.weight, blk.12.attn_q.weight, token_embd.weight, output.weight.")

    # --- experts ---

    def _fetched(self, place: Place) -> bool:
        far = [name for name in home_names(place.home.memory)
               if name not in listed(memories_of(self.topology, place.home.processor))]  # fmt: skip
        return bool(far) and not reads_in_place(self.topology, listed(place.home.processor)[0], far)

    def _count_slots(
        self, layers: Sequence[Layer], tensors: Sequence[Any], moved: Sequence[Any], places: Sequence[Any]
    ) -> None:
        """How many experts of a layer a cache holds; refused where nothing is fetched that it or a prefetch is for."""
        asked = self.placement.experts
        if asked is None or (asked.cache is None and asked.prefetch is None):
            return
        far = []
        for i, layer in enumerate(layers):
            if layer.experts is None:
                continue
            sizes = [size for (one, size), place in zip(tensors[i], moved[i], strict=True)
                     if one.used is not None and self._fetched(place or places[i][2])]  # fmt: skip
            if sizes:
                far.append((-(-sum(sizes) // layer.experts[0]), layer.experts[0]))
        if not far:
            key = CACHE if asked.cache is not None else PREFETCH
            raise PlanError(f"{key}: no expert is fetched here: they run where they live. Drop it, or say which "
                            "processor runs them: `compute: gpu0`.")
        if asked.cache is not None:
            homes = {name for i, layer in enumerate(layers) if layer.experts is not None
                     for name in listed(places[i][2].home.memory) if self._fetched(places[i][2])}  # fmt: skip
            if asked.cache.memory in homes:
                raise PlanError(f"{CACHE}: {asked.cache.memory} is where the experts live, so nothing is nearer in it. "
                                "Name the memory of the processor that runs them, as hbm0.")
            self.slots = slots_of(asked.cache, [size for size, _ in far], [count for _, count in far])

    def _pieces(self, layer: Layer) -> Pieces | None:
        """From bytes of a layer's experts to what is read of them."""
        asked = self.placement.experts
        if layer.experts is None or asked is None:
            return None
        count, used = layer.experts

        def pieces(place: Place, size: Any, bytes_touched: Any, surely: Any) -> tuple[Piece, ...]:
            memory, access = place.home.memory, place.access
            if not self._fetched(place) or (asked.cache is None and asked.prefetch is None and access != "on_demand"):
                return (Piece("experts", memory, access, size, bytes_touched, surely, what="experts",
                              alone=asked.numa not in ("", self.placement.numa)),)  # fmt: skip
            one = touched(asked.routing, asked.cache, self.slots, count, used, self.tokens)
            if access == "on_demand":
                self.fetched[count, used] = one
            if asked.cache is None and asked.prefetch is None:
                return (Piece("experts", memory, access, size, bytes_touched, surely, what="experts",
                              most=size * one.most_missed / count),)  # fmt: skip
            each = size / count
            found = []
            if asked.cache is not None:
                self.used[count, used] = one
                cached = asked.cache.memory
                near = cached == memories_of(self.topology, place.home.processor)
                hit = each * one.surely_hit
                if near and access == "on_demand" and asked.prefetch is None:
                    hit = max(hit, self._surely_there(cached, each * used, each * one.surely_missed))
                found.append(Piece("cached experts", cached, "in_place" if near else "on_demand", each * one.slots,
                                   each * (one.distinct - one.misses), hit,
                                   what="experts, cached", most=size * one.most_hit / count))  # fmt: skip
            missed, surely, most = each * one.misses, each * one.surely_missed, size * one.most_missed / count
            whole = size - each * one.slots if access == "copy" else None
            at_least = at_most = None
            if asked.prefetch is not None:
                self.ahead[count, used] = one
                right = _right(asked.prefetch, one, count)
                last = asked.prefetch == 1  # then nothing is left to fetch after the router
                found.append(Piece("experts ahead", memory, "ahead", size if last else 0, right * missed, 0,
                                   missed, surely, "experts, ahead", most))
                if last:
                    return tuple(found)
                if whole is not None:  # all that have not come yet
                    whole, at_least, at_most = whole - missed, whole - most, whole - surely
                missed, surely, most = (1 - right) * missed, 0, size * one.most_wrong / count
            found.append(Piece("experts", memory, access, size, missed, surely, whole, at_least, "experts",
                               most=at_most if access == "copy" else most))
            return tuple(found)

        return pieces


    def _surely_there(self, memory: str, chosen: float, missed: float) -> float:
        """What experts of one token surely load where they are cached, beside what of `missed` is surely written. [B]

        Each of them is read from there or fetched to there. What is fetched may stay in a cache in front of the memory
        until it is read: no more than that cache's size in a layer. chosen, missed : bytes of all, and of those that
        surely miss.
        """
        rows = [[self.topology.resources[row].cache for row in self.topology.ways.port(name, "write")]
                for name in listed(memory)]  # fmt: skip
        spared = sum(max(caches, default=0) for caches in rows)
        return max(0, chosen - spared) - max(0, missed - spared)


def _right(stated: float, one: Touched, count: int) -> Any:
    """The share of experts fetched ahead that is right: as stated, but no less than any guess has.

    Of m that are needed and m that are fetched, out of the n that no cache holds, m / n coincide by chance.
    """
    return larger(stated, smaller(one.misses / max(1, count - one.slots), 1.0))


def _prefetch_note(stated: float, one: Touched, count: int) -> str:
    """What of a prefetch is right, in words; with sweeps (arrays) without what chance makes of it."""
    right, pool, more = _right(stated, one, count), count - one.slots, ""
    if not hasattr(right, "shape") and right > stated * (1 + 1e-9):
        more = (f", and not the {100 * stated:g} % that are given: {one.misses:.4g} of {pool} are fetched, of "
                "which any guess has that much right")  # fmt: skip
    shown = stated if hasattr(right, "shape") else right
    return (f"{100 * shown:.4g} % of what is fetched ahead is right{more}; for the other {100 * (1 - shown):.4g} % as "
            "many experts are fetched again, after the router")  # fmt: skip


def _cache_note(one: Touched, count: int, used: int, memory: str, hit: float | None, policy: str) -> str:
    """What a cache holds and serves, in words; with sweeps (arrays) without the figures."""
    held = f"{memory} caches {one.slots} of the {count} experts of each layer that fetches its own"
    if hasattr(one.distinct, "shape"):
        return held
    share = 100 * (1 - one.misses / one.distinct)
    means = f"a step touches {one.distinct:.4g} of them and fetches {one.misses:.4g}, means over steps"
    if hit is not None and share > 100 * hit * (1 + 1e-9):
        return (f"{held}; {means}: no less than {share:.4g} % of those touched is there, as no more than "
                f"{count - one.slots} are elsewhere, and not the {100 * hit:g} % that are given")  # fmt: skip
    if hit is not None and share < 100 * hit * (1 - 1e-9):
        return (f"{held}; {means}: no more than {share:.4g} % of those touched can be there, and not the "
                f"{100 * hit:g} % that are given")  # fmt: skip
    if hit is not None:
        return (f"{held}; {means}: {share:.4g} % of those touched are taken to be there, as given (with several tokens "
                "a step, a counter of activations shows more)")
    kept = "the most popular for good" if policy == "static" else "those used last, by Che's approximation"
    served = cast(float, one.activation_hit)
    return (f"{held} ({kept}); {means}: it serves {100 * served:.4g} % of activations and spares "
            f"{share:.4g} % of bytes")  # fmt: skip


def _slots_note(one: Touched, count: int, ahead: float | None) -> str:
    """What buffers of fetched experts hold, in words; with sweeps (arrays) without the figures."""
    told = "buffers of experts hold the most that a step may fetch of a layer at once"
    if hasattr(one.distinct, "shape"):
        return told
    wrong = "" if ahead in (None, 1) else f" ({one.most_wrong} more after the router)"
    return f"{told}, {one.most_missed} of {count}{wrong}; times count the mean, {one.misses:.4g}"
