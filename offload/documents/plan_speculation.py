"""What a plan says of chunks of a prompt and of guessed tokens, checked where the file still has a line for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from offload.designs import Placement, Workload
from offload.designs.chunks import MOST_CHUNKS
from offload.designs.speculation import KEY, Speculation, draft_placement
from offload.documents.marks import Document
from offload.documents.named import no_nodes
from offload.errors import PlanError, TopologyError
from offload.topology import Topology

if TYPE_CHECKING:
    from offload.documents.plan_shape import SpeculationShape


def check_chunk(document: Document, chunk: int, prompt: int | None, in_flight: int) -> bool:
    """Whether a chunk goes with what else is asked; else what is wrong is noted."""
    if in_flight != 1:
        document.mistake(("workload", "chunk"), "chunks of a prompt come one after another: they do not go with "
                         "in_flight. Drop one of the two.", key=True)
        return False
    for place in (("workload", "cached"), ("placement", "hand_over")):
        if document.get(place) is not None:
            document.mistake(place, f'"{place[1]}" goes with a prompt in one pass, and this one comes in chunks. Drop '
                             "one of the two.", key=True)  # fmt: skip
            return False
    if prompt is not None and -(-prompt // chunk) > MOST_CHUNKS:
        least = -(-prompt // MOST_CHUNKS)
        document.mistake(("workload", "chunk"), f"{prompt:,} positions in chunks of {chunk:,} are "
                         f"{-(-prompt // chunk):,} chunks, and each is laid out by itself: {MOST_CHUNKS} at most. Take "
                         f"{least:,} or more.")
        return False
    return True


def speculating(
    document: Document, shape: SpeculationShape, workload: Workload, topology: Topology, placement: Placement,
    model: Any, weights: str, kv: str,
) -> Workload | None:
    """The workload with guessed tokens; None where something is wrong, which is noted.

    model, weights, kv : the draft model with its formats, or None.
    """
    sound = True

    def wrong(key: str, text: str, whole: bool = False) -> None:
        nonlocal sound
        sound = False
        document.mistake((KEY, key) if key else (KEY,), text, key=whole)

    if workload.phase not in ("decode", "generate"):
        wrong("", f"tokens are guessed in decode steps, and this is {workload.phase}. Write `phase: decode` or `phase: "
              "generate`, or drop it.", True)
    if model is not None and workload.cached is not None:
        sound = False
        document.mistake(("workload", "cached"), f"where {model.name} has its own keys and values of what is found is "
                         "not known. Drop it, or the draft model.", key=True)
    if model is None:
        for key in ("home", "compute"):
            if document.get((KEY, key)) is not None:
                wrong(key, f'"{key}" is of a draft model, and none is named. Add `model: {{name: ...}}`, or drop it.',
                      True)
    elif not shape.home:
        wrong("model", f"where does {model.name} live? Add `home: hbm0`.", True)
    elif text := no_nodes(topology, shape.home, "memory"):
        wrong("home", text)
    elif shape.compute != "local" and (text := no_nodes(topology, shape.compute, "processor", ("local",))):
        wrong("compute", text)
    if not sound:
        return None
    asked = Speculation(shape.draft, shape.accept, model, weights, kv, shape.home, shape.compute)
    if model is not None:
        try:
            draft_placement(topology, asked, placement.reserve)
        except (PlanError, TopologyError) as error:
            head, _, rest = str(error).partition(": ")
            key, text = ("compute" if head == "placement.compute" else "home"), rest
            if key == "home" and not document.origin((KEY, key)) and (given := document.origin((KEY, "compute"))):
                text += f" (With {given}.)"  # what the file says was right with its own processor
            wrong(key, text.replace("placement.compute", "compute"))
            return None
    return replace(workload, speculation=asked)
