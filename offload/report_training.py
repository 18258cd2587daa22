"""A training step as text: TFLOP/s per GPU, forward, backward and update, what each tier moves and must bring."""

from __future__ import annotations

from rich.console import Console

from offload.given import surely
from offload.printing import fold_rows, number_text, write_heading, write_line, write_table
from offload.training import TrainingTimes
from offload.units import format_bytes, format_flops, format_rate, format_seconds, format_share

DIGITS = 4


def write_training(times: TrainingTimes, console: Console) -> None:
    """Print the figures of a training step."""
    write_heading(console, "Training")
    each = "each GPU" if times.gpus > 1 else "the GPU"
    of = "" if times.share is None else (f", {format_share(times.share)} of its {times.peak_grade} "
                                         f"{format_flops(surely(times.peak), DIGITS)}")
    write_line(console, f"{format_flops(times.model_flops, DIGITS)} on {each}{of}: model FLOP, 6 for each weight and "
                        "token, and attention's.")
    if times.recomputes:
        write_line(console, f"{format_flops(times.hardware_flops, DIGITS)} with what is computed again from "
                            "checkpoints: hardware FLOP, 8 for each weight of a layer and token.")
    if times.at_most is not None:
        write_line(console, f"No schedule on this machine exceeds {format_flops(times.at_most, DIGITS)} of model FLOP "
                            "(its floor).")
    write_line(console, f"The GPU's arithmetic takes {format_seconds(times.compute)} of a step, "
                        f"{format_share(times.busy)} of the expected time.")
    whole = times.forward + times.backward + times.update
    parts = {"forward": times.forward, "backward": times.backward, "update, not hidden": times.update}
    rows = [[name, format_seconds(time), format_share(time / whole)] for name, time in parts.items()]
    write_table(console, ["one step alone", "expected", "share"], rows, right={1, 2})
    if times.delayed:
        write_line(console, "Back to back the update runs beside the next step (delayed): the time of a step is that "
                            "of back-to-back steps, below.")
    if times.traffic:
        rows = [[one.kind, format_bytes(one.bytes, DIGITS), number_text(one.intensity), format_seconds(one.seconds),
                 format_share(one.without_overlap), format_share(one.overlapped)] for one in times.traffic]
        write_table(console, ["state of the layers", "each step", "FLOP/B", "by itself", "no overlap", "overlapped"],
                    rows, right={1, 2, 3, 4, 5})
        write_line(console, "Estimates: the share of compute that each leaves were it alone, where compute waits for "
                            "it (ZeRO-Infinity's model) and where it runs beside compute.", style="dim")
    if times.needs:
        write_line(console, f"For {format_share(times.target)} of the time in compute ("
                            f"{format_seconds(times.compute / times.target)} a step), all else beside it:")
        rows = [[one.name, format_bytes(one.load, DIGITS), format_rate(one.needed, DIGITS),
                 format_rate(one.present, DIGITS), "" if one.enough else "too slow"] for one in times.needs]
        write_table(console, ["resource", "load", "needs", "sustained", ""], fold_rows(rows), right={1, 2, 3})
