"""How long and how large: the quick measurement and the thorough one."""

from __future__ import annotations

from dataclasses import dataclass

KIB, MIB, GIB = 2**10, 2**20, 2**30


@dataclass(frozen=True, slots=True)
class Settings:
    """Sizes in bytes, times in seconds.

    repeats : runs of each figure. seconds : of all parts together, None for no end (SHARES of it). caches : how many
    times the last cache an array of memory is; array : what it is at most; touch : time to touch those of all nodes;
    memory_run : time of a run at least.
    every_count : threads 1, 2, 4 .. all, instead of 1 and all. drive_file, drive_run, drive_sure, drive_fill : size of
    the file, time of one run, that of the best pattern's where it is more, time to write the file, each at most. fio :
    whether it is taken where it is installed. blocks, depths : of drives. copies : sizes of copies. matrix : rows of
    square matrices. gpu_copy : sizes of copies of GPUs.
    """

    name: str
    repeats: int
    seconds: float | None
    caches: float
    array: int
    touch: float
    memory_run: float
    every_count: bool
    drive_file: int
    drive_run: float
    drive_sure: float
    drive_fill: float
    fio: bool
    blocks: tuple[int, ...]
    depths: tuple[int, ...]
    copies: tuple[int, ...]
    matrix: tuple[int, ...]
    gpu_copy: tuple[int, ...]


SHARES = {"memory": 0.4, "drive": 0.5, "processor": 0.15, "host": 0.15, "gpu": 0.3}  # of the time, by part

QUICK = Settings(
    name="quick", repeats=3, seconds=13.0, caches=2, array=384 * MIB, touch=2.0, memory_run=0.05,
    every_count=False, drive_file=256 * MIB, drive_run=0.08, drive_sure=0.4, drive_fill=2.0, fio=False,
    blocks=(64 * KIB, 512 * KIB, 4 * MIB), depths=(1, 4, 16), copies=(64 * KIB, 1 * MIB, 16 * MIB),
    matrix=(1024,), gpu_copy=(1 * MIB, 16 * MIB, 128 * MIB),
)  # fmt: skip
THOROUGH = Settings(
    name="thorough", repeats=5, seconds=None, caches=4, array=4 * GIB, touch=60.0, memory_run=0.2,
    every_count=True, drive_file=4 * GIB, drive_run=1.0, drive_sure=1.0, drive_fill=20.0, fio=True,
    blocks=(16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB),
    depths=(1, 2, 4, 8, 16, 32), copies=(16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB),
    matrix=(1024, 2048, 4096), gpu_copy=(64 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 512 * MIB),
)  # fmt: skip
