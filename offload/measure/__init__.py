"""This machine, measured: what its memories, drives, processors and GPUs sustain, and the topology file of it.

    measurement = measure(["."], QUICK)
    measurement.told.text                    # a topology file
    measurement.data["figures"]              # each with all repeats and conditions

`machine` finds what there is; `memory`, `drives`, `passing`, `processors` and `gpus` measure it; `kernels` holds what
is compiled; `topology` puts it together.
"""

from offload.measure.figures import Collected, Figure
from offload.measure.run import PARTS, Ended, Measurement, measure
from offload.measure.settings import QUICK, THOROUGH, Settings

__all__ = ["Collected", "Ended", "Figure", "Measurement", "PARTS", "QUICK", "Settings", "THOROUGH", "measure"]
