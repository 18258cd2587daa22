"""Several processors that share a model: replicas with whole layers, experts spread over ranks, and what is refused.

Replicas (data parallel): each has all of a layer and works on an equal share of the sequences, with their KV cache.
What lives elsewhere is one copy, which each brings whole over its own link, or of which each brings an n-th and gathers
the rest from the others (ZeRO-Inference, deepspeed.ai/2022/09/09/zero-inference.html). Experts that are spread over
ranks (expert parallel): each has some of them whole, and hidden rows go to where their experts are and back, by two
all-to-alls a layer. Tokens choose any expert alike, so ranks are taken to have equal work.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

from offload.collectives import ALGORITHMS
from offload.designs.amounts import Positions
from offload.designs.parts import STAGES, Part, Piece, Place, part_at, stage_of, whole_layer
from offload.designs.placement import Experts, LayerHome, Placement, memories_of, runs
from offload.designs.ranks import TENSOR, Parallel
from offload.designs.receivers import receivers_of
from offload.designs.teams import Teams, groups_of, teams_of
from offload.errors import FormulaError, PlanError, did_you_mean
from offload.exchanges import exchange_in_groups
from offload.models import Layer, Model, Weights, layers_of
from offload.models.weights import layer_tensors
from offload.plan import UNLIMITED, Block, Collective, Overlap, Tensor
from offload.ranges import listed
from offload.topology import Topology

KEY = "placement.parallel"
NOT_SEVERAL = (f"{KEY}: no layer runs on several processors, so nothing is shared. Write a range, as `weights: "
               "{hbm0..1: rest}` or `compute: gpu0..1`, or drop it.")  # fmt: skip
GATHER = "all-gather "  # tasks that gather what replicas fetched start so


def parallel_of(placement: Placement) -> Parallel:
    """How ranks share the model; tensor parallel where nothing is said."""
    return placement.parallel or TENSOR


def teams_in(topology: Topology, placement: Placement, homes: Sequence[LayerHome]) -> Teams:
    """Which processors work together on a replica, by where layers and the head run."""
    head = runs(topology, placement, placement.weights[0][0])
    return teams_of(topology, placement.parallel, (*(home.processor for home in homes), head))


def check_parallel(
    topology: Topology, placement: Placement, homes: Sequence[LayerHome], model: Model, batch: Any, heads: Any
) -> None:
    """Raises PlanError, starting with the key, where what was said of ranks cannot be.

    heads : what raises PlanError where a layer's heads do not split over a processor's range.
    """
    asked = placement.parallel
    if asked is None:
        return
    if placement.split:
        raise PlanError(f"{KEY}: rows are split between processors that are unlike (split), and a range shares layers "
                        "in equal parts. Drop one of the two.")
    processors = {home.processor for home in homes}
    several = _several(homes)
    teams = teams_in(topology, placement, homes)
    if asked.tensor is not None:
        _check_team(asked, several, teams)
    if asked.by != "tensor":
        if not several:
            raise PlanError(NOT_SEVERAL)
        _check_ranges(topology, placement, processors, several, teams)
        _check_shares(topology, placement, model, batch, listed(several[0]))
    if asked.by == "expert":
        _check_alike(topology, several[0])
    for home, layer in zip(homes, layers_of(model), strict=True):
        heads(layer, home.processor)
    _check_algorithm(topology, asked, several, teams)


def _several(homes: Sequence[LayerHome]) -> list[str]:
    return sorted({home.processor for home in homes if len(listed(home.processor)) > 1})


def batch_unit(topology: Topology, placement: Placement) -> int:
    """What a batch must be a multiple of: the replicas where each has its own sequences, here and where they are handed
    over to; ranks with experts; else 1.
    """
    return math.lcm(_sharing(topology, placement), receivers_of(topology, placement)[1])


def _sharing(topology: Topology, placement: Placement) -> int:
    if parallel_of(placement).by == "tensor":
        return 1
    processors = [runs(topology, placement, memory) for memory, _ in placement.weights]
    if parallel_of(placement).replicated:
        return teams_of(topology, placement.parallel, processors).replicas
    return max(len(listed(name)) for name in processors)


def _check_team(asked: Parallel, several: Sequence[str], teams: Teams) -> None:
    """The processors of a replica: more than one, not all, and as many in each."""
    key, team = f"{KEY}.tensor", cast(int, asked.tensor)
    if asked.by == "tensor":
        raise PlanError(f"{key}: it says how many processors share a replica, and with by: tensor all of a range do. "
                        "Drop it, or write by: data.")
    if asked.attention == "tensor":
        raise PlanError(f"{key}: with attention: tensor all processors share attention. Drop one of the two.")
    if team == 1:
        raise PlanError(f"{key}: one processor a replica is what by: {asked.by} means without it. Drop it.")
    for processors in several:
        count = len(listed(processors))
        if not teams.is_own(processors):
            continue
        if count == team:
            word = "by: tensor" if asked.by == "data" else "attention: tensor"
            raise PlanError(f"{key}: {processors} are {count}, which would be one replica. Write {word} instead, or "
                            "fewer.")  # fmt: skip
        if count % team:
            fits = [str(n) for n in range(2, count) if count % n == 0]
            hint = f"Numbers that do: {', '.join(fits)}." if fits else "Drop it: no number but 1 does."
            raise PlanError(f"{key}: {count} processors ({processors}) do not split into teams of {team}. {hint}")


def _check_ranges(
    topology: Topology, placement: Placement, processors: Iterable[str], several: list[str], teams: Teams
) -> None:
    """Layers and the head run on ranges that replicas share out, or on CPUs beside them; experts are not apart."""
    by = parallel_of(placement).by
    head = runs(topology, placement, placement.weights[0][0])
    everywhere = sorted({*processors, head})
    owned = [one for one in everywhere if teams.is_own(one)]
    others = [one for one in everywhere if one not in owned] if owned else []
    if by == "expert" and len(everywhere) > 1:
        raise PlanError(f"{KEY}: with {by} every layer and the head run on one range of processors, and here on "
                        f"{' and '.join(everywhere)}. Write compute: {several[0]}.")  # fmt: skip
    if unequal := [one for one in owned if len(listed(one)) != len(listed(owned[0]))]:
        raise PlanError(f"{KEY}: each replica has a part of every range that runs layers, and {owned[0]} and "
                        f"{unequal[0]} are not equally many. Choose ranges of one length.")  # fmt: skip
    for one in others:
        if topology.processors[listed(one)[0]].kind == "gpu":
            raise PlanError(f"{KEY}: {one} would run layers of all {teams.replicas} replicas, which share no GPU. "
                            f"Choose a range of {len(listed(owned[0]))} as {owned[0]}, or write compute: {owned[0]}.")
    asked = placement.experts
    if asked is not None and asked != Experts(routing=asked.routing):
        raise PlanError(f"placement.experts: with parallel: {by} experts live with their layers, so only routing may "
                        "stand here. Drop one of the two.")
    if placement.tensors:
        raise PlanError(f"placement.tensors: with parallel: {by} a layer lives in one place. Drop one of the two.")
    if placement.numa:
        raise PlanError(f"placement.numa: with parallel: {by} each processor has its own copies. Drop one of the two.")
    for one in several:
        memories = [topology.memory_of(processor) for processor in listed(one)]
        if len(set(memories)) < len(memories):
            raise PlanError(f"placement.compute: {one} share a memory; ranks that work alike each have one.")


def _check_shares(topology: Topology, placement: Placement, model: Model, batch: Any, ranks: Sequence[str]) -> None:
    """Experts in equal numbers on each rank, sequences on each replica."""
    asked, count = parallel_of(placement), len(ranks)
    if asked.by == "expert":
        numbers = {layer.experts[0] for layer in layers_of(model) if layer.experts is not None}
        if not numbers:
            raise PlanError(f"{KEY}: {model.name} has no experts to spread. Write tensor or data.")
        for number in sorted(numbers):
            if number % count:
                fits = ", ".join(str(n) for n in range(2, number + 1) if number % n == 0)
                raise PlanError(f"{KEY}: {number} experts do not split evenly over {count} processors. Numbers that "
                                f"do: {fits}.")  # fmt: skip
    count = _sharing(topology, placement)
    if _any(batch % count):
        near = max(count, batch - batch % count) if isinstance(batch, int) else count
        who = f"{count} processors" if count == len(ranks) else f"{count} replicas"
        raise PlanError(f"workload.batch: {batch} sequences do not split evenly over {who}, each of which "
                        f"works on its own. Write {near} or {near + count}, the batch of all together.")  # fmt: skip


def check_words(topology: Topology, placement: Placement, homes: Sequence[LayerHome]) -> None:
    """Raises PlanError, starting with the key, for words that would change nothing."""
    asked = placement.parallel
    if asked is None:
        return
    if not _several(homes):
        raise PlanError(NOT_SEVERAL)
    if asked.algorithm is not None and not collectives_of(asked):
        raise PlanError(f"{KEY}.algorithm: replicas that fetch whole layers exchange nothing. Drop it, or write fetch: "
                        "sharded, or tensor: for several processors in each.")
    if asked.attention is not None and asked.by != "expert":
        raise PlanError(f"{KEY}.attention: it goes with by: expert, and this is {asked.by}. Drop it.")
    if asked.fetch is None:
        return
    if not asked.replicated:
        raise PlanError(f"{KEY}.fetch: it says how replicas get weights, and with tensor parallel each rank fetches "
                        "its own part anyway. Drop it, or write by: data.")  # fmt: skip
    if not any(memories_of(topology, home.processor) != home.memory for home in homes):
        raise PlanError(f"{KEY}.fetch: all layers live where they run, so nothing is fetched. Drop it.")
    if placement.access == "in_place":
        raise PlanError(f"{KEY}.fetch: weights are read in place (access: in_place) and never fetched. Drop one.")


def _check_algorithm(topology: Topology, asked: Parallel, several: Sequence[str], teams: Teams) -> None:
    """An algorithm is known to a collective of the plan, and a switch adds up where it must."""
    kinds = collectives_of(asked)
    if asked.algorithm is None or not kinds:
        return
    known = list(dict.fromkeys(name for kind in kinds for name in ALGORITHMS[kind]))
    if asked.algorithm not in known:
        words = " and ".join(kind.replace("_", "-") for kind in kinds)
        hint = did_you_mean(asked.algorithm, known, "Allowed")
        raise PlanError(f'{KEY}.algorithm: "{asked.algorithm}" is no algorithm of the {words} here. {hint}')
    for processors in several:
        memories = tuple(topology.memory_of(name) for name in listed(processors))
        for kind in kinds:
            over, groups = groups_of(memories, kind, teams, processors)
            if asked.algorithm in ALGORITHMS[kind] and len(over) > groups:
                try:
                    exchange_in_groups(topology, kind, over, asked.algorithm, groups)
                except (PlanError, FormulaError) as error:
                    raise PlanError(f"{KEY}.algorithm: {error}") from None


def _check_alike(topology: Topology, processors: str) -> None:
    """Floors of spread experts are those of the mean rank, so ranks must be equally fast."""
    first, *others = listed(processors)

    def peaks(name: str) -> tuple[Any, ...]:
        memory = topology.memory_of(name)
        rows = (f"{name}.flops", f"{name}.reads", memory)
        return tuple(topology.resources[row].peak if row in topology.resources else None for row in rows)

    for other in others:
        if peaks(other) != peaks(first):
            raise PlanError(f"{KEY}: experts are spread over ranks that are alike, and {first} and {other} have other "
                            "peak rates. Choose a range of equal processors.")  # fmt: skip


def collectives_of(asked: Parallel) -> tuple[str, ...]:
    """The kinds of collectives that ranks need."""
    found: tuple[str, ...] = () if asked.replicated and asked.tensor is None else ("all_reduce",)
    found += ("all_gather",) if asked.sharded else ()
    return (*found, "all_to_all") if asked.by == "expert" else found


def algorithm_for(placement: Placement, kind: str) -> str | None:
    """The algorithm that was named, where a kind of collective knows it."""
    name = parallel_of(placement).algorithm
    return name if name in ALGORITHMS[kind] else None


def _any(amount: Any) -> bool:
    return bool(amount.any()) if hasattr(amount, "any") else bool(amount)


# --- parts of layers ---


def parts_on_ranks(
    topology: Topology, model: Model, weights: str, weighed: Weights, placement: Placement,
    homes: Sequence[LayerHome], positions: Positions, kv: str, in_flight: int, row: Any,
) -> list[tuple[Part, ...]]:
    """The parts of each layer on replicas, or with its experts spread; those of alike layers are one object.

    positions : of all sequences together. row : bytes of one position's hidden row.
    """
    count, asked = len(listed(homes[0].processor)), parallel_of(placement)
    teams = teams_in(topology, placement, homes)
    copies = teams.replicas
    own = replace(positions, batch=positions.batch // copies)
    tokens = positions.batch * positions.new
    known: dict[tuple[Any, ...], tuple[Part, ...]] = {}
    found = []
    for i, (home, layer) in enumerate(zip(homes, layers_of(model), strict=True)):
        size, expert = weighed.layers[i], weighed.experts[i]
        experts = layer.experts if asked.by == "expert" else None
        tensors = layer_tensors(model, weights)[i] if experts is not None else ()
        key = (home, id(layer), size, expert, tuple(size for _, size in tensors))
        if key not in known:
            one = own.amounts(layer, size, expert, kv, in_flight, teams.team(home.processor))
            if experts is not None:
                whole = positions.amounts(layer, size, expert, kv, in_flight, 1)
                dense = tuple(stage for stage in STAGES[:2] if any(stage_of(matrix) == stage for matrix, _ in tensors))
                place = Place(home, placement.access)
                rest = part_at("attention", dense, place, tensors, one, tokens // copies)
                chosen = part_at("experts", ("experts",), place, tensors, whole, tokens)
                if placement.access == "in_place":  # tokens may choose those of the ranks with the fastest ways to them
                    chosen = replace(chosen, amounts=replace(chosen.amounts, surely=0),
                                     pieces=tuple(replace(piece, surely=0) for piece in chosen.pieces))  # fmt: skip
                known[key] = (
                    replace(rest, copies=copies, sums_of=_sums(layer)),
                    replace(chosen, exchanged=tokens * experts[1] * row / count),
                )
            else:
                known[key] = tuple(replace(part, copies=copies) for part in whole_layer(home, one, placement.access))
        found.append(known[key])
    return found


def _sums(layer: Layer) -> int:
    """How often ranks add up rows of all but the experts: after attention, and after experts that all tokens use."""
    shared = any(stage_of(one) == "feed-forward" and one.role.startswith("ffn") for one in layer.matrices)
    return 1 + shared


# --- tensors and tasks ---


def weights_tensor(
    name: str, piece: Piece, homes: tuple[tuple[str, float], ...], copies: int, near: bool, there: bool, shared: bool
) -> Tensor:
    """Weights of a part: in the ranks' memories one copy for each replica, elsewhere one copy for all.

    piece : of one replica. near : whether they live in the ranks' own memories. there : whether all read them where
    they live. shared : whether one processor reads them for all replicas: a cache may then serve all but one.
    """
    each = copies if there else 1
    return Tensor(name, each * piece.touched, homes, what=piece.what, stored=piece.size * (copies if near else 1),
                  least=(1 if shared else each) * piece.surely, same=each > 1)


def gather(
    placement: Placement, name: str, tensor: str, groups: tuple[tuple[str, ...], int], after: tuple[str, ...],
    size: Any, least: Any,
) -> Collective:
    """Replicas give each other what they fetched an n-th of. groups : as of `groups_of`. least : bytes that are surely
    gathered, None for all.
    """
    return Collective(f"{GATHER}{name}", tensor, groups[0], after, kind="all_gather",
                      algorithm=algorithm_for(placement, "all_gather"), bytes=size, groups=groups[1], least=least)


def to_experts(placement: Placement, name: str, tensor: str, own: str, after: tuple[str, ...]) -> Collective:
    """Hidden rows to the ranks of their experts, or back."""
    return Collective(name, tensor, tuple(listed(own)), after, kind="all_to_all",
                      algorithm=algorithm_for(placement, "all_to_all"))


def exchanged_tensor(part: Part, own: str) -> Tensor:
    """The rows that each rank has for experts, one for each expert chosen; surely none leaves its rank."""
    return Tensor(f"rows for experts in {own}", part.exchanged, ((listed(own)[0], 1.0),), shared=True,
                  what="all-to-all", transient=True, least=0)


def gathered(blocks: Sequence[Block], tensors: Any, overlap: Overlap) -> tuple[tuple[str, str, Any], ...]:
    """(memory, part, bytes) of the places that gathered layers take beside the n-th that each rank fetched itself."""
    counts: dict[str, tuple[int, Any, Collective]] = {}
    for block in blocks:
        for task in block.tasks:
            if isinstance(task, Collective) and task.name.startswith(GATHER):
                size = tensors[task.tensor].bytes if task.bytes is None else task.bytes
                count, largest, _ = counts.get(task.name, (0, 0, task))
                counts[task.name] = (count + block.repeat, max(largest, size), task)
    held = []
    for name, (count, size, task) in counts.items():
        most = 1 if overlap.kind == "none" or name not in (f"{GATHER}weights", f"{GATHER}experts") else overlap.buffers
        slots = count if most == UNLIMITED else min(count, most)
        ranks = len(task.over)
        others = math.ceil(size * (ranks // task.groups - 1) / ranks)
        held += [(memory, "buffers", others * slots) for memory in task.over]
    return tuple(held)
