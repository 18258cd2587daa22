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
    """A desktop: a GPU, a CPU, a drive, their links, perhaps a cap over both directions of the GPU's."""
    latency = draw(st.sampled_from([(0.0, 0.0), (0.0, 1.0), (0.5, 1.0)]))
    cache = draw(st.sampled_from([0, 0, 3, 50]))
    limits = []
    if draw(st.booleans()):
        limits.append(Limit("both", ("pcie",), draw(a_rate())))
    cpu_reads = draw(st.none() | a_rate())
    return Topology.build(
        name="drawn",
        title="drawn",
        memories=[
            Memory("hbm", "hbm", capacity=10**6, rate=draw(a_rate()), cache=cache),
            Memory("dram", "dram", capacity=10**6, rate=draw(a_rate()), at="socket"),
            Memory("ssd", "nvme", capacity=10**6, read=draw(a_rate()), write=draw(a_rate())),
        ],
        processors=[
            Processor("gpu", "gpu", "hbm", flops={"bf16": draw(a_rate())}, direct_storage=draw(st.booleans())),
            Processor("cpu", "cpu", "dram", flops={"bf16": draw(a_rate())}, reads=cpu_reads),
        ],
        switches=[Switch("socket")],
        links=[
            Link("pcie", "socket", "hbm", draw(a_rate()), draw(a_rate()), latency=latency,
                 half_duplex=False),
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
        transient = size < 3 and draw(st.booleans())
        tensors[name] = Tensor(name, size, where, shared=draw(st.booleans()), transient=transient)
    blocks = []
    for _ in range(draw(st.integers(1, 3))):
        tasks = []
        for index in range(draw(st.integers(1, 4))):
            earlier = st.sampled_from([task.name for task in tasks] or [""])
            after = tuple(draw(st.lists(earlier, max_size=2, unique=True))) if tasks else ()
            every = draw(st.sampled_from([1, 1, 1, 3]))
            movable = [n for n in names if tensors[n].home[0][0] != "hbm"]
            if movable and draw(st.booleans()):
                tensor = draw(st.sampled_from(movable))
                to = "hbm"
                tasks.append(Transfer(f"t{index}", tensor, to, after, every))
            else:
                processor = draw(st.sampled_from(["gpu", "cpu"]))
                held = "hbm" if processor == "gpu" else "dram"
                reads = draw(st.lists(st.sampled_from([n for n in names if tensors[n].home[0][0] != "ssd"]
                                                      or [names[0]]), max_size=2, unique=True))
                reads = [n for n in reads if tensors[n].home[0][0] != "ssd"]
                writes = [n for n in reads if all(memory == held for memory, _ in tensors[n].home)][:1]
                tasks.append(Compute(f"t{index}", processor, float(draw(st.integers(0, 60))), "bf16", tuple(reads),
                                     tuple(writes) if draw(st.booleans()) else (), after, every))
        blocks.append(Block(tuple(tasks), draw(st.integers(1, 3))))
    count = draw(st.sampled_from([1, 2, 2, 3, UNLIMITED])) if buffers is None else buffers
    return Plan("drawn", tensors, tuple(blocks), in_flight=draw(st.sampled_from([1, 1, 2, 4])),
                overlap=Overlap("buffers", count))
