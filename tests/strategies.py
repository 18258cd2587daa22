"""Random small servers and plans: everything that a step may be made of, at sizes where slow checks are quick."""

from hypothesis import strategies as st

from offload.plan import UNLIMITED, Block, Compute, Overlap, Plan, Tensor, Transfer
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
