"""Eight GPUs that read buffers of one socket at once: what the shipped dgx-h100 says of them, beside what was measured.

    python benchmarks/eight_gpus.py

The shape and the rates of one GPU alone are the server's file's; nothing of the measurement of all together is in it
but where a row says so. Rates come from max-min fair sharing of the copies that run at once.
"""

from __future__ import annotations

from offload import compile_step, load_plan
from offload.documents import read_setting
from offload.fluid_step import simulate_step

MEASURED = (44.6e9, 25.4e9, 278e9)  # each near GPU, each far one, all eight (github.com/NVIDIA/cuda-samples/issues/357)
PLAN = "examples/eight-gpus-read-one-socket.yaml"
BYTES = 8e9
WHY = (
    "DRAM binds the near GPUs, the sockets' link the far ones, as measured.",
    "DRAM: the file's 225 GB/s is what processors read, scaled to DDR5-4400. The measured server, not named, gave 278:",
    "  99 % of eight channels of DDR5-4400, 91 % of DDR5-4800, so its memory is the faster.",
    "UPI: the file's 108 is 6 % above the 101.6 that the four far GPUs had.",
)


def rates(*settings: str) -> tuple[float, float, float]:
    """Bytes/s of each near GPU, each far GPU and all eight, while all eight copies run."""
    plan, topology = load_plan(PLAN, settings=[read_setting(text) for text in settings])
    found = simulate_step(compile_step(topology, plan))
    near, far = BYTES / found.finish["to0 #0"], BYTES / found.finish["to4 #4"]
    if far < near:  # the far ones speed up once the near ones have ended, unless their link binds them throughout
        far = min(far, BYTES / found.makespan)
    return near, far, 4 * near + 4 * far


def main() -> None:
    """Print the table."""
    rows = [("measured", MEASURED, "")]
    for name, settings in (
        ("the file as shipped", ()),
        ("with 278 GB/s of DRAM", ("dram0.rate.sustained=278 GB/s",)),
    ):
        found = rates(*settings)
        off = [f"{mine / its - 1:+.0%}" for mine, its in zip(found, MEASURED, strict=True)]
        rows.append((name, found, "  ".join(off)))
    for name, figures, off in rows:
        print(f"{name:24}" + "".join(f"{figure / 1e9:9.1f}" for figure in figures) + f"   {off}")
    print("GB/s of each near GPU, each far one, all eight; how far off.", *WHY, sep="\n")


if __name__ == "__main__":
    main()
