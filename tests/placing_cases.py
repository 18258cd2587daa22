"""Random small servers and models whose placements are few enough to go through, and all of them written out.

The placements are those that `offload place` says it looks at, stated here by themselves: no bound and no family of its
own is used.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from offload.capacity import missing
from offload.compiler import compile_step
from offload.designs import Experts, Placement, Portion, Workload, plan_model
from offload.errors import OffloadError
from offload.models import Model, weigh
from offload.placing import Question
from offload.plan import Overlap
from offload.schedules import schedule
from offload.topology import Interval, Link, Memory, Processor, Rate, Switch, Topology
from tests.sample_configs import model as sample

BUFFERS = [Overlap("buffers", count) for count in (2, 1, 3, 4)]
DENSE = [Model("small", "llama", layers, 8 * heads, heads, kv, 8, ffn, 40)
         for layers, heads, kv, ffn in ((1, 4, 1, 24), (2, 4, 4, 60), (3, 4, 2, 24), (4, 2, 1, 48))]


def _mixture(layers: int, experts: int, used: int) -> Model:
    return sample("Mixtral-8x7B", num_hidden_layers=layers, hidden_size=32, intermediate_size=16, vocab_size=40,
                  num_attention_heads=4, num_key_value_heads=2, head_dim=8, num_local_experts=experts,
                  num_experts_per_tok=used)  # fmt: skip


MIXTURES = [_mixture(1, 4, 2), _mixture(2, 4, 1), _mixture(3, 8, 2)]


def server(draw: random.Random, hbm: int, host: int, unified: bool = False) -> Topology:
    """A GPU, a CPU and a drive, with rates within a factor of some tens and a cache or none."""

    def rate(low: int, high: int, peak: bool = True) -> Rate:
        value = float(draw.randint(low, high))
        sustained = value * draw.choice([1.0, 0.8, 0.5])
        return Rate(peak=value if peak else None, sustained={"": Interval.exact(sustained)}, source="drawn")

    flops = {"bf16": rate(2000, 40000)}
    cache = draw.choice([0, 0, 500])
    slow = {"bf16": rate(50, 4000)}
    cpu_reads = draw.choice([None, rate(5, 60, peak=False)])
    latency = draw.choice([(0.0, 0.0), (0.0, 1.0), (0.5, 1.0)])
    return Topology.build(
        name="drawn", title="drawn",
        memories=[Memory("hbm0", "hbm", hbm, rate(50, 400), cache=cache), Memory("dram0", "dram", host, rate(10, 80),
                                                                                  at="socket0"),
                  Memory("ssd0", "nvme", 10**9, read=rate(1, 20, draw.random() < 0.7), write=rate(1, 20))],
        processors=[Processor("gpu0", "gpu", "hbm0", flops), Processor("cpu0", "cpu", "dram0", slow, reads=cpu_reads)],
        switches=[Switch("socket0")],
        links=[Link("pcie0", "socket0", "hbm0", rate(4, 60), rate(4, 60), "pcie", latency=latency),
               Link("m2", "ssd0", "socket0", rate(2, 30), rate(2, 30))],
    )  # fmt: skip


def instance(seed: int) -> Question:
    """A question whose model fits partly on the GPU, and sometimes only with the drive."""
    draw = random.Random(seed)
    routed = draw.random() < 0.4
    model = draw.choice(MIXTURES if routed else DENSE)
    size = weigh(model, "bf16").total
    hbm = int(size * draw.choice([0.2, 0.5, 0.8, 1.2, 2.0])) + 2000
    host = int(size * draw.choice([0.4, 0.8, 1.5, 3.0])) + 2000
    phase = draw.choice(["decode", "decode", "decode", "prefill"])
    batch = draw.choice([1, 1, 2, 5])
    asked = (Workload("decode", batch, draw.choice([8, 60, 300]), draw.choice([1, 1, 2])) if phase == "decode"
             else Workload("prefill", batch, 0, prompt=draw.randint(2, 30)))
    return Question(model, server(draw, hbm, host), asked, "bf16", "f16")


def _split(total: int, places: int) -> Iterator[tuple[int, ...]]:
    return (one for one in product(range(total + 1), repeat=places) if sum(one) == total)


def _homes(names: tuple[str, ...], counts: tuple[int, ...]) -> tuple[tuple[str, Portion], ...]:
    return tuple((name, Portion("layers", count)) for index, (name, count) in enumerate(zip(names, counts, strict=True))
                 if count or not index)


def everything(question: Question) -> Iterator[tuple[Placement, Overlap]]:
    """Every placement and number of buffers that the search is to go through."""
    model = question.model
    layers = model.layers
    routed = model.family != "llama"
    base = Placement((), reserve=0)
    three, two = ("hbm0", "dram0", "ssd0"), ("hbm0", "dram0")
    heads = [(), ((r"^output\.weight", "dram0"),)] if not model.tied else [()]
    for tensors in heads:
        for counts in _split(layers, 3):
            for overlap in BUFFERS:
                yield replace(base, weights=_homes(three, counts), tensors=tensors), overlap
        if not routed:
            for count in range(1, layers + 1):
                numbers = "|".join(str(number) for number in range(count))
                pattern = (rf"blk\.({numbers})\.ffn_", "dram0")
                yield replace(base, weights=_homes(("hbm0",), (layers,)), tensors=(pattern, *tensors)), Overlap()
        for counts in _split(layers, 2) if routed else ():
            for apart in _split(layers, 2):
                home = tuple(one for one in _homes(two, apart) if one[1].value)
                yield replace(base, weights=_homes(two, counts), tensors=tensors,
                              experts=Experts(home, "local")), Overlap()
    for counts in _split(layers, 3):
        for overlap in BUFFERS:
            yield replace(base, weights=_homes(three, counts), compute="gpu0"), overlap
            home = tuple(one for one in _homes(three, counts) if one[1].value)
            if routed:
                yield replace(base, weights=_homes(("hbm0",), (layers,)), experts=Experts(home, "local")), overlap
    for near in range(1, layers):
        kv = (("hbm0", Portion("layers", near)), ("dram0", Portion("layers", layers - near)))
        yield replace(base, weights=_homes(("hbm0",), (layers,)), compute="gpu0", kv=kv, attention="cpu0"), Overlap()
        for overlap in BUFFERS:
            yield replace(base, weights=_homes(("hbm0",), (layers,)), compute="gpu0", kv=kv), overlap
    for counts in _split(layers, 2):
        for overlap in BUFFERS:
            yield replace(base, weights=_homes(two, counts), compute="gpu0", access="in_place"), overlap
            for compute in ("local", "gpu0"):
                for attention in ("", "cpu0"):
                    yield replace(base, weights=_homes(two, counts), compute=compute, kv="dram0",
                                  attention=attention), overlap
            yield replace(base, weights=_homes(("dram0", "ssd0"), counts), compute="cpu0"), overlap
            home = tuple(one for one in _homes(two, counts) if one[1].value)
            for access in ("copy", "on_demand", "in_place") if routed else ():
                yield replace(base, weights=_homes(("hbm0",), (layers,)), compute="gpu0",
                              experts=Experts(home, "", access)), overlap


def evaluated(question: Question) -> Iterator[tuple[float, float, int, Placement]]:
    """(expected time, floor at peak, bytes in hbm0, placement) of each that can be and fits."""
    from offload.bounds import floor

    for placement, overlap in everything(question):
        try:
            plan = plan_model(question.model, question.topology, question.workload, placement, weights=question.weights,
                              kv=question.kv, overlap=overlap)
            step = compile_step(question.topology, plan)
        except OffloadError:
            continue
        if not missing(step):
            hbm = sum(step.occupied.get("hbm0", {}).values())
            yield schedule(step, ends=False).seconds, floor(step).seconds, hbm, placement
