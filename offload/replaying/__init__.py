"""A plan's step run on this machine: real reads, writes, copies and products in the order, lanes and buffers of the
plan, and what they take beside what the model says of the same step.

    run = replay(topology, plan, Options(disks=("/data",)))
    run.measured.median, run.predicted.seconds            # s of a step, back to back

Nothing is fitted to the plan: its rates are those of the topology, from wherever it has them.
"""

from offload.replaying.machine import ReplayError
from offload.replaying.results import Replay
from offload.replaying.run import Options, replay

__all__ = ["Options", "Replay", "ReplayError", "replay"]
