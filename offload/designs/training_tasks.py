"""The tasks of a training step: fetches, passes, gradients that leave, updates, parameters that come back.

Tensors are shared: one stands for a kind of layer, with all of its copies as what is stored, since the same bytes are
touched in the forward pass, the backward pass and the update. What is used elsewhere than it lives is moved there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from offload.designs.placement import equal_homes
from offload.designs.training_pieces import HALF, STATES, Homes, Kept, Piece
from offload.plan import Collective, Compute, Task, Tensor, Transfer
from offload.ranges import listed
from offload.topology import Topology

NORM = "gradient norm"


class TrainingTasks:
    """Makes the tasks of pieces; `tensors` collects what they touch, `updates` the names of the update's tasks.

    asked : a `Training`. checkpoint : bytes of one checkpoint, of a micro-batch on all GPUs [B]. format_ : the number
    format of forward and backward.
    """

    def __init__(self, topology: Topology, asked: Any, homes: Homes, pieces: Sequence[Piece], checkpoint: int,
                 format_: str):
        self.topology = topology
        self.asked = asked
        self.homes = homes
        self.checkpoint = checkpoint
        self.format = format_
        self.ranks = listed(homes.own)
        self.several = len(self.ranks) > 1
        self.sharded = self.several and asked.stage == 3
        self.remote = homes.parameters != homes.own
        self.recomputes = homes.checkpoints != "none"
        self.counts = Counter((piece.kind, piece.parameters) for piece in pieces)
        self.checkpoints = sum(piece.keeps for piece in pieces)
        # With a delayed update old gradients and parameters are still in use when new ones come. Parameters on the GPUs
        # are replaced at the end of a step (`replacing`); elsewhere there are two sets of them.
        self.replaces = asked.delayed and not self.remote and homes.update != homes.own
        self.sets = 2 if asked.delayed else 1
        self.numbers: dict[tuple[str, int], str] = {}
        self.tensors: dict[str, Tensor] = {}
        self.fewer: dict[tuple[str, float], str] = {}  # exchanged tensors, by what is surely exchanged of them
        self.updates: set[str] = set()
        self.delivers: dict[str, None] = {}  # tasks after which parameters are new where they live
        self.begins = ""  # the first task that uses them
        self.norm: tuple[str, ...] = ()  # with clipping: after which the norm of all gradients is known
        self.made = ""  # and after which, in turn, the gradients of a piece are where they are kept

    # Tensors: one for each kind of piece.

    def name(self, what: str, piece: Piece) -> str:
        key = (piece.kind, piece.parameters)
        if key not in self.numbers:
            alike = sum(kind == piece.kind for kind, _ in self.numbers)
            self.numbers[key] = f"{piece.of} {alike + 1}" if alike else piece.of
        return what + self.numbers[key]

    def tensor(self, what: str, piece: Piece, size: float, home: str, stored: float, shown: str) -> str:
        """A tensor of a kind of piece. stored : how often its bytes are stored in all."""
        name = self.name(what, piece)
        if name not in self.tensors:
            self.tensors[name] = Tensor(name, size, equal_homes(home), shared=True, what=shown, stored=stored * size,
                                        least=self.surely(piece, size))
        return name

    def surely(self, piece: Piece, size: float) -> float | None:
        """Of bytes that go with a piece's own parameters those that are surely touched; None is all."""
        return None if piece.sure == piece.parameters else size / piece.parameters * piece.sure

    def exchanged(self, what: str, piece: Piece, size: float, shown: str, least: float | None) -> str:
        """A tensor that GPUs exchange, of which they surely do `least` bytes; None is what its piece's update has."""
        name = self.name(what, piece)
        if least is None or least == size:
            return self.tensor(what, piece, size, self.homes.own, 0, shown)
        if (name, least) not in self.fewer:
            alike = sum(of == name for of, _ in self.fewer)
            self.fewer[name, least] = kept = f"{name}, but what is kept" + (f" {alike + 1}" if alike else "")
            self.tensors[kept] = Tensor(kept, size, equal_homes(self.homes.own), shared=True, what=shown, stored=0,
                                        least=least)
        return self.fewer[name, least]

    def parameters(self, piece: Piece) -> str:
        copies = len(self.ranks) if self.several and not self.sharded else 1
        name = self.name("parameters", piece)
        if name not in self.tensors:
            count, sets = self.count(piece), 1 if self.replaces else self.sets
            self.tensors[name] = Tensor(name, copies * HALF * piece.used, equal_homes(self.homes.parameters),
                                        shared=True, what="parameters",
                                        least=self.surely(piece, copies * HALF * piece.used),
                                        stored=copies * HALF * piece.parameters * count * sets)
        return name

    def count(self, piece: Piece) -> int:
        return self.counts[piece.kind, piece.parameters]

    def gradients(self, piece: Piece) -> str:
        """Those in the GPUs' memory: all of them where they are kept there, else a buffer and the GPU's own share."""
        buffers = 2 if self.count(piece) > 1 else 1
        share = self.asked.gpu_share * self.count(piece)
        near = self.homes.gradients == self.homes.own
        stored = self.sets * self.count(piece) if near else buffers + share
        size = self.asked.gradient_bytes * piece.parameters
        return self.tensor("gradients", piece, size, self.homes.own, stored, "gradients")

    # Tasks.

    def move(self, name: str, tensor: str, memory: str, **more: Any) -> Transfer:
        ranks = tuple(listed(memory))
        return Transfer(name, tensor, ranks[0], ranks=ranks if len(ranks) > 1 else (), access=self.asked.host_memory,
                        **more)

    def again(self, name: str, tensor: str, memory: str, least: float | None, **more: Any) -> Transfer:
        """A move of which `least` bytes are sure; None is all."""
        size = self.tensors[tensor].bytes
        if least is not None and least < size:
            more |= {"bytes": size, "least": least}
        return self.move(name, tensor, memory, **more)

    def compute(self, name: str, processors: str, **more: Any) -> Compute:
        ranks = tuple(listed(processors))
        return Compute(name, ranks[0], ranks=ranks if len(ranks) > 1 else (), **more)

    def fetched(self, piece: Piece, name: str, fetched: float | None, gathered: float | None
                ) -> tuple[list[Task], str, tuple[str, ...]]:
        """Tasks that bring a piece's parameters to the GPUs, what computes then read, and what they wait for.

        fetched, gathered : bytes that surely are.
        """
        weights = self.parameters(piece)
        tasks: list[Task] = []
        after: tuple[str, ...] = ()
        if self.remote:
            into = "" if piece.kind == "layer" else self.tensor("parameters in use", piece, HALF * piece.used,
                                                                self.homes.own, 1, "parameters")
            tasks.append(self.again(name, weights, self.homes.own, fetched, into=into, queue="to the GPU"))
            weights, after = into or weights, (name,)
        if self.sharded:
            size = len(self.ranks) * HALF * piece.used
            many = 2 if self.count(piece) > 1 else 1
            whole = self.tensor("gathered parameters", piece, size, self.homes.own, many, "parameters, gathered")
            part = self.exchanged("parts of parameters", piece, HALF * piece.used, "all-gather", gathered)
            gather = name.replace("fetch", "gather", 1)
            tasks.append(Collective(gather, part, tuple(self.ranks), after, kind="all_gather"))
            return tasks, whole, (gather,)
        return tasks, weights, after

    def costs(self, each: str, after: str) -> list[Task]:
        return [self.compute(cost.name, self.homes.compute, after=(after,), time=cost.time)
                for cost in self.asked.costs if cost.each == each]

    def forward(self, piece: Piece, kept: Kept) -> tuple[Task, ...]:
        """The forward pass of a piece; nothing for an embedding that is where it is used."""
        tasks, weights, after = self.fetched(piece, "fetch parameters", kept.fetched, kept.gathered)
        if piece.kind == "embedding":
            if tasks:
                tasks.append(self.compute("embedding", self.homes.compute, after=after))
                self.begins = self.begins or tasks[0].name
            return tuple(tasks)
        writes: tuple[str, ...] = ()
        out: list[Task] = []
        if piece.keeps:
            near = self.homes.checkpoints == self.homes.own
            self.tensors["checkpoint"] = Tensor(
                "checkpoint", self.checkpoint, equal_homes(self.homes.own), shared=True, what="activation checkpoints",
                stored=self.checkpoint * (self.checkpoints if near else min(2, self.checkpoints)))
            writes = ("checkpoint",)
            if not near:
                self.tensors["kept checkpoint"] = Tensor(
                    "kept checkpoint", self.checkpoint, equal_homes(self.homes.checkpoints), shared=True,
                    what="activation checkpoints", stored=self.checkpoint * self.checkpoints)
                out.append(self.move(f"checkpoint to {self.homes.checkpoints}", "checkpoint", self.homes.checkpoints,
                                     after=("forward",), into="kept checkpoint", queue="from the GPU"))
        tasks.append(self.compute("forward", self.homes.compute, flops=piece.flops, format=self.format,
                                  reads=(weights,), writes=writes, after=after))
        self.begins = self.begins or tasks[0].name
        return (*tasks, *self.costs("layer", "forward"), *out)

    def backward(self, piece: Piece, number: int, last: bool, kept: Kept) -> tuple[Task, ...]:
        """The backward pass of a piece in a micro-batch, of the head the forward pass too; in the last one its update.

        number : of the micro-batch, from 0.
        """
        tasks: list[Task] = []
        reads: list[str] = []
        flops: Any = 0
        after: tuple[str, ...] = ()
        writes: tuple[str, ...] = (self.local_gradients(piece),)
        if piece.kind == "embedding":
            # A few rows are added up; the table of zeros around them is not counted as traffic.
            name, after, writes = "embedding backward", ("backward",), ()
        elif piece.kind == "head":
            found, weights, after = self.fetched(piece, "fetch parameters", kept.fetched, kept.gathered)
            tasks += found
            name, flops, reads = "head", 3 * piece.flops, [weights]
        else:
            name = "backward"
            comes = kept.fetched, kept.gathered
            if self.recomputes and not self.asked.reuse and (self.remote or self.sharded):
                again = self.fetched(piece, "fetch parameters again", *comes)[0]
                tasks += again
                after, comes = (again[-1].name,), (kept.again, kept.gathered_again)
            found, weights, ready = self.fetched(piece, "fetch parameters", *comes)
            tasks += found
            flops = (3 if self.recomputes else 2) * piece.flops
            reads, after = [weights], (*after, *ready, "previous.backward", "head")
            if piece.needs:
                saved = "checkpoint"
                if self.homes.checkpoints != self.homes.own:
                    saved = "kept checkpoint"
                    tasks.append(self.again("fetch checkpoint", saved, self.homes.own, kept.checkpoint,
                                            after=(f"checkpoint to {self.homes.checkpoints}",), queue="to the GPU"))
                    after = (*after, "fetch checkpoint")
                reads.append(saved)
        if number and piece.parameters:
            found, so_far = self.so_far(piece, number)
            tasks += found
            after = (*after, *(task.name for task in found))
            reads += [so_far] if piece.kind != "embedding" else []
        tasks.append(self.compute(name, self.homes.compute, flops=flops, format=self.format, reads=tuple(reads),
                                  writes=writes, after=after))
        made = name
        if piece.kind == "layer":
            tasks += self.costs("layer", "backward")
        if piece.kind == "embedding" and last:
            tasks += self.costs("step", name)
        if piece.parameters == 0:
            return tuple(tasks)
        if self.several:
            sums = self.exchanged("summed gradients", piece, HALF * piece.parameters, "reduce-scatter", kept.reduced)
            made = "reduce gradients" + (_of_micro_batch(number) if self.asked.gradient_clipping else "")
            tasks.append(Collective(made, sums, tuple(self.ranks), (name,), kind="reduce_scatter"))
        tasks += self.leaving(piece, number, made)
        if not last:
            return tuple(tasks)
        if self.homes.gradients != self.homes.own:
            made = tasks[-1].name
        if self.asked.gradient_clipping:
            # Its norm is taken where and when a gradient is made; the last one is the norm of all.
            tasks.append(self.compute(NORM, self.homes.compute, after=(name,)))
            self.made = made if made != name else NORM
            self.norm = (NORM, "reduce gradients" + _of_micro_batch(number)) if self.several else (NORM,)
        else:
            tasks += self.update(piece, (name, "reduce gradients") if self.several else (name,), (made,))
        return tuple(tasks)

    def clipped(self, piece: Piece) -> tuple[Task, ...]:
        """The update of a piece once the norm of all gradients is known; nothing without clipping."""
        if not self.asked.gradient_clipping or not piece.parameters:
            return ()
        return tuple(self.update(piece, self.norm, self.norm, (self.made,)))

    def local_gradients(self, piece: Piece) -> str:
        """What a backward pass writes: of several GPUs each makes all of it, before it is summed and split."""
        if not self.several:
            return self.gradients(piece)
        size = len(self.ranks) * HALF * piece.parameters
        many = 2 if self.count(piece) > 1 else 1
        return self.tensor("own gradients", piece, size, self.homes.own, many, "gradients")

    def leaving(self, piece: Piece, number: int, made: str) -> list[Task]:
        """Gradients go where they are kept."""
        where = self.homes.gradients
        if where == self.homes.own:
            return []
        kept = self.tensor("kept gradients", piece, self.leaving_bytes(piece), where, self.sets * self.count(piece),
                           "gradients")
        return [self.move(f"gradients to {where}" + _of_micro_batch(number), self.leaves(piece), where, after=(made,),
                          into=kept, queue="from the GPU")]

    def so_far(self, piece: Piece, number: int) -> tuple[list[Task], str]:
        """The gradients of earlier micro-batches, to which the GPU adds its own, and what brings them back to it."""
        where, own = self.homes.gradients, self.homes.own
        if where == own:
            return [], self.gradients(piece)
        kept, size = self.name("gradients so far", piece), self.leaving_bytes(piece)
        # Where they are kept a CPU may add what is new to them: none surely comes back.
        self.tensors[kept] = Tensor(kept, size, equal_homes(where), shared=True, what="gradients", stored=0, least=0)
        before = f"gradients to {where}" + _of_micro_batch(number - 1)
        return [self.move("fetch gradients", kept, own, after=(before,), queue="to the GPU")], kept

    def leaving_bytes(self, piece: Piece) -> float:
        share = self.asked.gpu_share
        leaving: float = self.asked.gradient_bytes * (piece.parameters * (1 - share) if share else piece.parameters)
        return leaving

    def leaves(self, piece: Piece) -> str:
        """The gradients that go to where the update runs: all, or but the GPU's share."""
        if not self.asked.gpu_share:
            return self.gradients(piece)
        return self.tensor("leaving gradients", piece, self.leaving_bytes(piece), self.homes.own, 0, "gradients")

    def brought(self, piece: Piece) -> str:
        """Gradients of the GPUs' memory that the update has elsewhere, named apart from what backward passes read.

        A cache of the GPUs may still have them, as with all that a step touches more than once.
        """
        name, of = self.name("gradients to update with", piece), self.tensors[self.gradients(piece)]
        cache = sum(self.topology.memories[memory].cache for memory in self.ranks)
        sure = of.bytes if of.least is None else of.least
        self.tensors[name] = replace(of, name=name, stored=0, least=max(0, sure - cache) if cache else of.least)
        return name

    def update(self, piece: Piece, passed: tuple[str, ...], made: tuple[str, ...], in_turn: tuple[str, ...] = ()
               ) -> list[Task]:
        """The update of a piece. passed : what the GPU's share of it waits for. made, in_turn : what the rest does.

        in_turn : where it does not follow its own backward pass, what its gradients are ready after.
        """
        homes, share = self.homes, self.asked.gpu_share
        tasks: list[Task] = []
        rest = piece.parameters * (1 - share) if share else piece.parameters
        near, there = homes.gradients == homes.own, homes.update
        gradients = self.leaves(piece) if near else self.name("kept gradients", piece)
        after = made
        if share:
            tasks += self.update_on_gpu(piece, passed)
        if homes.gradients != there:
            if near and not share:
                gradients = self.brought(piece)
            name = f"bring gradients to {there}"
            tasks.append(self.move(name, gradients, there, after=() if in_turn else after, in_turn=in_turn))
            after, in_turn = (*after, name) if in_turn else (name,), ()
        states = self.tensor("optimizer states", piece, STATES * rest, homes.optimizer, self.count(piece),
                             "optimizer states")
        old = new = states
        if homes.optimizer != there:
            new = self.tensor("updated states", piece, STATES * rest, there, 1, "optimizer states")
            into = "" if piece.kind == "layer" else new
            tasks.append(self.move("fetch states", states, there, into=into, queue=f"from {homes.optimizer}"))
            old, after = into or states, (*after, "fetch states")
        in_place = homes.parameters == there and not (self.several and self.asked.stage == 2)
        target = self.parameters(piece)
        if in_place and piece.used == piece.parameters:
            made_new = target
        else:
            many = 0 if in_place else self.count(piece) if self.replaces else 2 if self.count(piece) > 1 else 1
            made_new = self.tensor("new parameters", piece, HALF * rest, there, many, "parameters")
        tasks.append(self.compute("update", homes.update_on, reads=(old, gradients), writes=(new, made_new),
                                  after=after, access="mixed", in_turn=in_turn))
        if homes.optimizer != there:
            tasks.append(self.move(f"states to {homes.optimizer}", new, homes.optimizer, after=("update",),
                                   into=states, queue=f"to {homes.optimizer}"))
        self.updates |= {task.name for task in tasks}
        if self.replaces:
            return tasks
        more = self.delivering(piece, made_new, "update")
        self.updates |= {task.name for task in more}
        self.delivers[more[-1].name if more else "update"] = None
        return tasks + more

    def delivering(self, piece: Piece, new: str, after: str) -> list[Task]:
        """Tasks that bring new parameters to where they live."""
        homes = self.homes
        tasks: list[Task] = []
        if homes.parameters != homes.update:
            name = f"parameters to {homes.parameters}"
            tasks.append(self.move(name, new, homes.parameters, after=(after,), into=self.parameters(piece),
                                   queue=f"to {homes.parameters}"))
            after = name
        if self.several and self.asked.stage == 2:
            part = self.tensor("parts of parameters", piece, HALF * piece.parameters, homes.own, 0, "all-gather")
            tasks.append(Collective("gather parameters", part, tuple(self.ranks), (after,), kind="all_gather"))
        return tasks

    def replacing(self, piece: Piece) -> tuple[Task, ...]:
        """At the end of a step: what the update of the step before made comes to the GPUs (delayed updates)."""
        if not self.replaces or not piece.parameters:
            return ()
        tasks = self.delivering(piece, self.name("new parameters", piece), "embedding backward")
        self.updates |= {task.name for task in tasks}
        self.delivers[tasks[-1].name] = None
        return tuple(tasks)

    def update_on_gpu(self, piece: Piece, passed: tuple[str, ...]) -> list[Task]:
        """The share of a piece that the GPUs update in their own memory, behind what it waits for."""
        share = self.asked.gpu_share
        parts = {
            "optimizer states on the GPU": (STATES, self.count(piece), "optimizer states"),
            "gradients on the GPU": (self.asked.gradient_bytes, 0, "gradients"),
            "parameters on the GPU": (HALF, 0, "parameters"),
        }
        states, gradients, new = (
            self.tensor(what, piece, size * piece.parameters * share, self.homes.own, stored, shown)
            for what, (size, stored, shown) in parts.items()
        )
        return [self.compute("update on the GPU", self.homes.compute, reads=(states, gradients),
                             writes=(states, new), after=passed)]

    def carried(self) -> tuple[tuple[str, str, int], ...]:
        """What a step needs of the update before it, or with a delayed update of the one before that."""
        steps = 2 if self.asked.delayed and not self.replaces else 1
        found = [(done, self.begins, steps) for done in self.delivers]
        if self.replaces:
            found.append(("update", f"parameters to {self.homes.parameters}", 1))
        return tuple(found)


def _of_micro_batch(number: int) -> str:
    """What names a task of a later micro-batch apart; they are waited for by name."""
    return f", micro-batch {number + 1}" if number else ""
