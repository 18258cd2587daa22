"""What in a sound file is probably not meant: figures and plans that usual misconceptions lead to.

A doubt is no mistake: the file says something that can be, and computes. `servers` looks at topologies, `plans` at
plans on their topology. Only what the values show is told; what cannot be known from them is not guessed at.
"""

from offload.doubts.doubt import CODES, Doubt
from offload.doubts.plans import doubts_of_plan
from offload.doubts.servers import doubts_of_channels, doubts_of_topology

__all__ = ["CODES", "Doubt", "doubts_of_channels", "doubts_of_plan", "doubts_of_topology"]
