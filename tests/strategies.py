"""Random small servers and plans: everything that a step may be made of, at sizes where slow checks are quick."""

from hypothesis import strategies as st

from offload.collectives import ALGORITHMS
from offload.designs import Cost, Placement, Portion, Workload, plan_model
from offload.models import Model
from offload.plan import UNLIMITED, Block, Collective, Compute, GivenTime, Overlap, Plan, Tensor, Transfer
from offload.topology import Interval, Limit, Link, Memory, Processor, Rate, Switch, Topology

rates = st.integers(1, 40)


@st.composite
def a_rate(draw, share=True):
    peak = draw(rates)
    sustained = peak * draw(st.sampled_from([1.0, 0.9, 0.5]))
    low = sustained * draw(st.sampled_from([1.0, 0.8]))
    return Rate(peak=float(peak), sustained={"": Interval(low, sustained, float(peak))}, source="drawn")


@st.composite
def topologies(draw):
    """Two GPUs, a CPU, a drive, their links, perhaps a cap over both directions of a GPU's link or over both links."""
    latency = draw(st.sampled_from([(0.0, 0.0), (0.0, 1.0), (0.5, 1.0)]))
    cache = draw(st.sampled_from([0, 0, 3, 50]))
    limits = []
    over = draw(st.sampled_from([(), (), ("pcie",), ("pcie.hbm", "pcie1.hbm1")]))
    if over:
        limits.append(Limit("both", over, draw(a_rate())))
    cpu_reads = draw(st.none() | a_rate())
    return Topology.build(
        name="drawn",
        title="drawn",
        memories=[
            Memory("hbm", "hbm", capacity=10**6, rate=draw(a_rate()), cache=cache),
            Memory("hbm1", "hbm", capacity=10**6, rate=draw(a_rate())),
            Memory("dram", "dram", capacity=10**6, rate=draw(a_rate()), at="socket"),
            Memory("ssd", "nvme", capacity=10**6, read=draw(a_rate()), write=draw(a_rate())),
        ],
        processors=[
            Processor("gpu", "gpu", "hbm", flops={"bf16": draw(a_rate())}, direct_storage=draw(st.booleans())),
            Processor("gpu1", "gpu", "hbm1", flops={"bf16": draw(a_rate())}),
            Processor("cpu", "cpu", "dram", flops={"bf16": draw(a_rate())}, reads=cpu_reads),
        ],
        switches=[Switch("socket")],
        links=[
            Link("pcie", "socket", "hbm", draw(a_rate()), draw(a_rate()), latency=latency,
                 half_duplex=False),
            Link("pcie1", "socket", "hbm1", draw(a_rate()), draw(a_rate())),
            Link("m2", "ssd", "socket", draw(a_rate()), draw(a_rate())),
        ],
        limits=limits,
    )


@st.composite
def plans(draw, buffers=None):
    """A plan by hand: some tensors, one to three blocks of moves and computes."""
    names = ["a", "b", "c"]
    tensors = {}
    for name in names:
        size = draw(st.integers(0, 60))
        home = draw(st.sampled_from(["hbm", "dram", "ssd", "dram", "split"]))
        where = (("dram", 0.5), ("hbm", 0.5)) if home == "split" else ((home, 1.0),)
        transient = draw(st.sampled_from([False, False, True]))
        tensors[name] = Tensor(name, size, where, shared=draw(st.booleans()), transient=transient)
    blocks = []
    for _ in range(draw(st.integers(1, 3))):
        tasks = []
        for index in range(draw(st.integers(1, 4))):
            earlier = st.sampled_from([task.name for task in tasks] or [""])
            after = tuple(draw(st.lists(earlier, max_size=2, unique=True))) if tasks else ()
            if draw(st.integers(0, 4)) == 0:
                after = (*after, f"previous.t{draw(st.integers(0, index))}")
            once = draw(st.integers(0, 5)) == 0
            every = draw(st.sampled_from([1, 1, 1, 3]))
            movable = [n for n in names if tensors[n].home[0][0] != "hbm"]
            if movable and draw(st.booleans()):
                tensor = draw(st.sampled_from(movable))
                to = draw(st.sampled_from(["hbm", "hbm", "hbm1"]))
                tasks.append(Transfer(f"t{index}", tensor, to, after, every, once))
            else:
                processor = draw(st.sampled_from(["gpu", "cpu", "gpu1"]))
                held = {"gpu": "hbm", "cpu": "dram", "gpu1": "hbm1"}[processor]
                reads = draw(st.lists(st.sampled_from([n for n in names if tensors[n].home[0][0] != "ssd"]
                                                      or [names[0]]), max_size=2, unique=True))
                reads = [n for n in reads if tensors[n].home[0][0] != "ssd"]
                writes = [n for n in reads if all(memory == held for memory, _ in tensors[n].home)][:1]
                tasks.append(Compute(f"t{index}", processor, float(draw(st.integers(0, 60))), "bf16", tuple(reads),
                                     tuple(writes) if draw(st.booleans()) else (), after, every, once))
        blocks.append(Block(tuple(tasks), draw(st.integers(1, 3))))
    count = draw(st.sampled_from([1, 2, 2, 3, UNLIMITED])) if buffers is None else buffers
    return Plan("drawn", tensors, tuple(blocks), in_flight=draw(st.sampled_from([1, 1, 2, 4])),
                overlap=Overlap("buffers", count))


# Servers with ranks, and what may be asked of them.


@st.composite
def ranked_servers(draw, counts=(1, 2, 2, 4)):
    """So many GPUs that are alike, on one or two sockets, perhaps behind a switch or with NVLink, and a drive."""
    gpus = draw(st.sampled_from(counts))
    sockets = draw(st.sampled_from([1, 1, 2])) if gpus > 1 else 1
    uplink, nvlink = draw(st.booleans()), draw(st.booleans())
    peers, direct = draw(st.sampled_from([None, True])), draw(st.booleans())
    cache = draw(st.sampled_from([0, 0, 2000]))
    latency = draw(st.sampled_from([(0.0, 0.0), (0.0, 1.0), (0.5, 1.0)]))
    hbm, dram, pcie, other, flops = (draw(a_rate()) for _ in range(5))
    names = [f"socket{s}" for s in range(sockets)]
    links = [Link("m2", "ssd0", "socket0", draw(a_rate()), draw(a_rate()))]
    if sockets == 2:
        links.append(Link("upi", "socket0", "socket1", other, other))
    if uplink:
        links += [Link(f"up{s}", f"socket{s}", f"sw{s}", other, other) for s in range(sockets)]
        names += [f"sw{s}" for s in range(sockets)]
    for n in range(gpus):
        at = f"{'sw' if uplink else 'socket'}{n * sockets // gpus}"
        links.append(Link(f"pcie{n}", at, f"hbm{n}", pcie, pcie, "pcie", latency=latency))
        links += [Link(f"nv{n}", f"hbm{n}", "nvsw", other, other, "nvlink", latency=latency)] if nvlink else []
    limits = []
    over = draw(st.sampled_from(["", "", "both", "root"]))
    if over:
        ends = [[f"pcie{n}"] for n in range(gpus)] if over == "both" else [[f"pcie{n}.hbm{n}" for n in range(gpus)]]
        cap = draw(a_rate())
        limits = [Limit(f"cap{n}", tuple(names), cap) for n, names in enumerate(ends)]
    memories = [Memory(f"hbm{n}", "hbm", 10**9, hbm, cache=cache) for n in range(gpus)]
    memories += [Memory(f"dram{s}", "dram", 10**9, dram, at=f"socket{s}") for s in range(sockets)]
    memories.append(Memory("ssd0", "nvme", 10**9, read=draw(a_rate()), write=draw(a_rate())))
    processors = [Processor(f"gpu{n}", "gpu", f"hbm{n}", {"bf16": flops}, peer_to_peer=peers, direct_storage=direct)
                  for n in range(gpus)]  # fmt: skip
    reads = draw(st.none() | a_rate())
    processors += [Processor(f"cpu{s}", "cpu", f"dram{s}", {"bf16": flops}, reads=reads) for s in range(sockets)]
    switches = [Switch(name) for name in names] + ([Switch("nvsw", "nvswitch")] if nvlink else [])
    return Topology.build(name="drawn", memories=memories, processors=processors, switches=switches, links=links,
                          limits=limits)  # fmt: skip


def _all(topology, kind):
    """All memories or processors whose names start so, as one range and as a tuple."""
    names = [name for name in (*topology.memories, *topology.processors) if name.startswith(kind)]
    return f"{kind}0..{len(names) - 1}", tuple(names)


@st.composite
def costs(draw):
    """Named costs of a layer or of a step, in no particular order."""
    found = []
    for number in range(draw(st.integers(0, 2))):
        low = draw(st.sampled_from([0.0, 1.0, 30.0]))
        time = GivenTime(low, low + draw(st.integers(0, 5)), low + 10.0, draw(st.sampled_from([0.0, low / 2, low])))
        found.append(Cost(f"cost {number}", draw(st.sampled_from(["layer", "step"])), time))
    return tuple(found)


@st.composite
def workloads(draw, phases=("decode", "prefill")):
    phase = draw(st.sampled_from(phases))
    batch, in_flight = draw(st.integers(1, 3)), draw(st.sampled_from([1, 1, 3]))
    if phase == "generate":
        return Workload(phase, batch, prompt=draw(st.integers(1, 40)), generate=draw(st.integers(1, 16)))
    if phase == "prefill":
        return Workload(phase, batch, draw(st.integers(0, 50)), in_flight, prompt=draw(st.integers(1, 40)))
    return Workload(phase, batch, draw(st.integers(1, 90)), in_flight)


@st.composite
def placed_ranks(draw, phases=("decode", "prefill"), ranks=True):
    """A server and a plan of a small model on it: ranks or not, anything streamed or in place, any costs."""
    topology = draw(ranked_servers())
    model = draw(st.sampled_from(SMALL))
    gpus, hbms, drams = (_all(topology, kind)[0] if ranks else f"{kind}0" for kind in ("gpu", "hbm", "dram"))
    near = draw(st.integers(0, model.layers))
    far = draw(st.sampled_from([drams, "dram0", "ssd0"]))
    weights = ((hbms, Portion("layers", near)), (far, Portion("rest")))
    where = draw(st.sampled_from([gpus, gpus, "local"]))
    kv = draw(st.sampled_from(["with layer", "with layer", drams, hbms]))
    host_memory = draw(st.sampled_from(["pinned", "pageable", "page cache"]))
    overlap = Overlap("buffers", draw(st.sampled_from([1, 2, 2, 3, UNLIMITED])))
    placement = Placement(weights, where, kv, 0, host_memory, (), draw(costs()))
    return topology, plan_model(model, topology, draw(workloads(phases)), placement, weights="bf16", overlap=overlap)


def _small(layers, heads, kv_heads):
    return Model("small", "llama", layers, 8 * heads, heads, kv_heads, 8, 24, 40)


SMALL = (_small(1, 4, 1), _small(3, 4, 2), _small(5, 8, 4), _small(2, 4, 4))


EXCHANGES = [(kind, name) for kind, names in ALGORITHMS.items() for name in (None, *names) if name != "in_network"]


@st.composite
def ranked_plans(draw):
    """A server and a plan by hand on it, whose moves, computes and collectives are over ranks or not."""
    topology = draw(ranked_servers())
    hbms, drams, gpus, cpus = (_all(topology, kind)[1] for kind in ("hbm", "dram", "gpu", "cpu"))
    homes = [drams, drams[:1], ("ssd0",), hbms]
    tensors = {}
    for name in ("a", "b", "c"):
        home = draw(st.sampled_from(homes))
        tensors[name] = Tensor(name, draw(st.integers(0, 6000)), tuple((one, 1 / len(home)) for one in home),
                               shared=draw(st.booleans()))  # fmt: skip
    tensors["sum"] = Tensor("sum", draw(st.integers(1, 3000)), ((hbms[0], 1.0),), shared=True,
                            transient=draw(st.booleans()))  # fmt: skip
    blocks = []
    for _ in range(draw(st.integers(1, 2))):
        tasks = []
        for index in range(draw(st.integers(1, 4))):
            name = f"t{index}"
            after = tuple(draw(st.lists(st.sampled_from([task.name for task in tasks]), max_size=2, unique=True))
                          if tasks else ())  # fmt: skip
            every, once = draw(st.sampled_from([1, 1, 1, 2])), draw(st.integers(0, 5)) == 0
            kind = draw(st.sampled_from(["move", "compute", "collective"]))
            far = [one for one in ("a", "b", "c") if tensors[one].home[0][0] not in hbms]
            if kind == "collective" and len(hbms) > 1:
                how, by = draw(st.sampled_from(EXCHANGES))
                times = draw(st.integers(1, 2))
                tasks.append(Collective(name, "sum", hbms, after, every, once, times, kind=how, algorithm=by))
            elif kind == "move" and far:
                access = draw(st.sampled_from(["pinned", "pageable", "page cache"]))
                brought = {task.tensor for task in tasks if isinstance(task, Transfer)}
                tensor = draw(st.sampled_from(far))
                if tensor in brought:
                    continue
                ranks = hbms if len(hbms) > 1 else ()
                tasks.append(Transfer(name, tensor, hbms[0], after, every, once, (), access, None, ranks,
                                      bool(ranks) and draw(st.booleans())))  # fmt: skip
            else:
                on_gpu = draw(st.booleans())
                ranks = gpus if on_gpu else cpus[:1]
                own = hbms if on_gpu else drams[:1]
                readable = [one for one in ("a", "b", "c") if {at for at, _ in tensors[one].home} <= {*own, *drams}]
                reads = draw(st.lists(st.sampled_from(readable), max_size=2, unique=True)) if readable else []
                time = draw(st.none() | st.just(GivenTime(10.0, 20.0, 30.0, 5.0)))
                tasks.append(Compute(name, ranks[0], float(draw(st.integers(0, 6000))), "bf16", tuple(reads), (), after,
                                     every, once, time=time, ranks=ranks if len(ranks) > 1 else ()))  # fmt: skip
        if tasks:
            blocks.append(Block(tuple(tasks), draw(st.integers(1, 3))))
    if not blocks:
        blocks = [Block((Compute("t0", "gpu0", 5.0),))]
    count = draw(st.sampled_from([1, 2, 2, 3, UNLIMITED]))
    plan = Plan("drawn", tensors, tuple(blocks), in_flight=draw(st.sampled_from([1, 1, 2])),
                overlap=Overlap("buffers", count))  # fmt: skip
    return topology, plan
