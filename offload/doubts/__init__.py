"""What in a sound file is probably not meant: figures and plans that usual misconceptions lead to.

A doubt is no mistake: the file says something that can be, and computes. `servers` looks at the links and memories of
topologies, `sockets`, `gpus` and `drives` at what these have of their own, `slips` at single figures, `plans` at plans
on their topology. Only what the values show is told; what cannot be known from them is not guessed at.
"""

from offload.doubts.doubt import CODES, Doubt
from offload.doubts.plans import doubts_of_plan
from offload.doubts.server_files import doubts_of_server
from offload.doubts.servers import doubts_of_channels, doubts_of_topology
from offload.doubts.slips import doubts_of_texts

__all__ = ["CODES", "Doubt", "doubts_of_channels", "doubts_of_plan", "doubts_of_server", "doubts_of_texts",
           "doubts_of_topology"]  # fmt: skip
