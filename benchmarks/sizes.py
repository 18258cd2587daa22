"""How time grows with a plan's layers, its bytes and a server's parts, and by which exponent.

    python benchmarks/sizes.py [--most-layers 100000] [--most-nodes 10000]

Three series: layers written by hand, each with a tensor (streamed) and tasks of its own; one layer, repeated; and
servers of whole racks: 72 GPUs with 36 sockets, a host memory each, an NVSwitch; racks are joined at a spine. Each is
built, its routes are found, a plan is compiled and its floor is worked out. Times are of the processor (what else runs
does not count), the best of three where they are short; the exponent is the slope from the third largest size to the
largest, in logarithms: 1 is linear, and n log n reads as 1.1 here. Bytes come up to 10^18 a tensor, which cost nothing:
numbers are numbers. Garbage is collected as in the command line. What was made before a part is kept out of the
collector's sight while that part is timed: it would else be charged now and then for a pass over all that was made.
"""

from __future__ import annotations

import argparse
import gc
import math
import time
from collections.abc import Callable
from typing import Any

from offload import compile_step
from offload.bounds import floor
from offload.cli import COLLECTIONS
from offload.documents.topology_file import load_topology
from offload.plan import Block, Compute, Overlap, Plan, Tensor, Transfer
from offload.topology import Interval, Link, Memory, Processor, Rate, Switch, Topology

GPUS, SOCKETS = 72, 36  # of a rack


def rate(value: float) -> Rate:
    """A rate whose peak is what is sustained."""
    return Rate(peak=value, sustained={"": Interval.exact(value)}, source="made up")


def racks(count: int) -> Topology:
    """A server of whole racks: 72 GPUs, 36 sockets with a CPU and its memory, an NVSwitch; a spine joins the racks."""
    memories, processors, links = [], [], []
    switches = [Switch("spine")]
    for rack in range(count):
        switches.append(Switch(f"r{rack}nvsw", "nvswitch"))
        links.append(Link(f"r{rack}up", f"r{rack}nvsw", "spine", rate(7.2e12), rate(7.2e12)))
        for socket in range(SOCKETS):
            node = f"r{rack}s{socket}"
            switches.append(Switch(node))
            memories.append(Memory(f"{node}dram", "dram", 480 * 10**9, rate(512e9), at=node))
            processors.append(Processor(f"{node}cpu", "cpu", f"{node}dram", {"bf16": rate(7e12)}))
            if socket:  # Ethernet between the trays of a rack
                links.append(Link(f"{node}net", node, f"r{rack}s0", rate(50e9), rate(50e9)))
        for gpu in range(GPUS):
            node = f"r{rack}g{gpu}"
            memories.append(Memory(f"{node}hbm", "hbm", 186 * 10**9, rate(8e12)))
            processors.append(Processor(node, "gpu", f"{node}hbm", {"bf16": rate(2.5e15)}, peer_to_peer=True))
            links.append(Link(f"{node}c2c", f"r{rack}s{gpu * SOCKETS // GPUS}", f"{node}hbm", rate(450e9), rate(450e9)))
            links.append(Link(f"{node}nvl", f"{node}hbm", f"r{rack}nvsw", rate(900e9), rate(900e9), "nvlink"))
    return Topology.build(name="racks", memories=memories, processors=processors, switches=switches, links=links)


def over_racks(topology: Topology) -> Plan:
    """Each GPU fetches its part from the memory at its socket, and one from a GPU of the next rack."""
    gpus = [one for one in topology.processors.values() if one.kind == "gpu"]
    tensors, tasks = {}, []
    for number, gpu in enumerate(gpus):
        rack, place = divmod(number, GPUS)
        far = gpus[(number + GPUS) % len(gpus)].memory
        for name, home in (("w", f"r{rack}s{place * SOCKETS // GPUS}dram"), ("x", far)):
            if home != gpu.memory:
                tensors[f"{name}{number}"] = Tensor(f"{name}{number}", 10**18, ((home, 1.0),))
                tasks.append(Transfer(f"{name}{number}", f"{name}{number}", gpu.memory))
        read = tuple(f"{name}{number}" for name in "wx" if f"{name}{number}" in tensors)
        tasks.append(Compute(f"c{number}", gpu.name, 1e15, "bf16", read, after=read))
    return Plan("over racks", tensors, (Block(tuple(tasks), 1),), overlap=Overlap("buffers", 2))


def layers_by_hand(count: int, each: int) -> Plan:
    """So many layers, a tensor, a move and a compute each."""
    tensors = {f"w{n}": Tensor(f"w{n}", each, (("dram0", 1.0),)) for n in range(count)}
    blocks = []
    for n in range(count):
        compute = Compute(f"c{n}", "gpu0", 1e9, "bf16", (f"w{n}",), after=(f"f{n}",))
        blocks.append(Block((Transfer(f"f{n}", f"w{n}", "hbm0"), compute), 1))
    return Plan("layers", tensors, tuple(blocks), overlap=Overlap("buffers", 2))


def repeated(count: int, each: int) -> Plan:
    """One layer, so many times."""
    return Plan(
        "layers",
        {"w": Tensor("w", each, (("dram0", 1.0),))},
        (Block((Transfer("f", "w", "hbm0"), Compute("c", "gpu0", 1e9, "bf16", ("w",), after=("f",))), count),),
        overlap=Overlap("buffers", 2),
    )


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """Processor time of the best of three runs, of one where it takes long, and what it made."""
    best, made = math.inf, None
    for _ in range(3):
        made = None
        gc.collect()
        gc.freeze()
        begin = time.process_time()
        made = work()
        best = min(best, time.process_time() - begin)
        if best > 3:
            break
    return best, made


def show(title: str, sizes: list[int], parts: dict[str, list[float]]) -> float:
    """Print a series with the exponents; the largest of them."""
    print(title)
    print(f"  {'size':>12}" + "".join(f"{size:>12,}" for size in sizes) + "   exponent")
    worst = 0.0
    for name, times in parts.items():
        slope = math.log(times[-1] / times[-3]) / math.log(sizes[-1] / sizes[-3]) if min(times[-3:]) > 1e-3 else 0.0
        worst = max(worst, slope)
        print(f"  {name:>12}" + "".join(f"{one:>11.3f}s" for one in times) + f"{slope:>11.2f}")
    return worst


def main() -> int:
    """Print the three series."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most-layers", type=int, default=100_000)
    parser.add_argument("--most-nodes", type=int, default=10_000)
    options = parser.parse_args()
    gc.set_threshold(*COLLECTIONS)
    desktop = load_topology("desktop-4090")
    worst = 0.0
    for title, make in (("layers, each written out", layers_by_hand), ("one layer, repeated", repeated)):
        sizes = [options.most_layers // part for part in (100, 10, 2, 1)]
        parts: dict[str, list[float]] = {"plan": [], "compile": [], "floor": []}
        for size in sizes:
            took, plan = seconds(lambda size=size, make=make: make(size, 10**18))
            parts["plan"].append(took)
            took, step = seconds(lambda plan=plan: compile_step(desktop, plan))
            parts["compile"].append(took)
            took, found = seconds(lambda step=step: floor(step))
            parts["floor"].append(took)
            if not math.isfinite(found.seconds) or found.seconds < size * 10**18 / 40e9:
                raise SystemExit(f"the floor of {size} layers is {found.seconds} s")
        worst = max(worst, show(title, sizes, parts))
    nodes = 1 + 1 + SOCKETS * 2 + GPUS
    sizes = [max(2, options.most_nodes // nodes // part) for part in (16, 4, 2, 1)]
    parts = {"build": [], "resources": [], "routes": [], "compile": [], "floor": []}
    for size in sizes:
        took, topology = seconds(lambda size=size: racks(size))
        parts["build"].append(took)
        parts["resources"].append(seconds(lambda size=size: racks(size).resources)[0] - took)
        last = f"r{size - 1}g{GPUS - 1}hbm"
        parts["routes"].append(seconds(lambda topology=topology, last=last: racks_routes(topology, last))[0])
        plan = over_racks(topology)
        took, step = seconds(lambda topology=topology, plan=plan: compile_step(topology, plan))
        parts["compile"].append(took)
        parts["floor"].append(seconds(lambda step=step: floor(step))[0])
    worst = max(worst, show("racks of 72 GPUs (145 nodes each)", [size * nodes for size in sizes], parts))
    print(f"largest exponent: {worst:.2f}")
    return 0 if worst < 1.3 else 1


def racks_routes(topology: Topology, last: str) -> None:
    """Some ways, near and far, of a server whose ways are not known yet."""
    topology._derived.pop("ways", None)
    for end in ("r0s0dram", "r0g1hbm", last):
        topology.route("r0g0hbm", end)
    topology.nearest_processor("r0s0dram")
    topology.reachable("r0g0hbm")


if __name__ == "__main__":
    raise SystemExit(main())
