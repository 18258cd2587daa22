"""How busy the machine is while it is measured: what makes figures low, told beside them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from offload.measure.figures import Collected
from offload.measure.system import System, fields

BUSY = 0.25  # processors that others keep busy: of each one before, of all of them together meanwhile; more is told
STOLEN = 0.02  # of the time, which a hypervisor took
LEAST = 1.0  # seconds below which ticks say little
WORKING = ("user", "nice", "system", "irq", "softirq")
TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100  # a second
COLUMNS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


@dataclass(frozen=True, slots=True)
class Moment:
    """Processor time so far by kind [ticks]; the load average over a minute (None: not told); the time on a clock, and
    the processor time of this process and of those that it has waited for [s]."""

    ticks: dict[str, int]
    load: float | None
    clock: float = 0.0
    own: float = 0.0


def now(system: System) -> Moment:
    """What the system counts at this moment."""
    first = (system.text("/proc/stat") or "").split("\n")[0].split()
    ticks = {}
    if first[:1] == ["cpu"] and all(one.isdigit() for one in first[1:]):
        ticks = {name: int(one) for name, one in zip(COLUMNS, first[1:], strict=False)}
    load = (system.text("/proc/loadavg") or "").split()
    own = os.times()
    spent = (own.elapsed, own.user + own.system + own.children_user + own.children_system)
    try:
        return Moment(ticks, float(load[0]) if load else None, *spent)
    except ValueError:
        return Moment(ticks, None, *spent)


def before(system: System, cpus: Sequence[int], moment: Moment, collected: Collected) -> None:
    """Warn of what is running already and of what holds the processors back."""
    if moment.load is None:
        collected.left_out("how busy the machine was", "/proc tells no load average")
    elif moment.load > BUSY * max(1, len(cpus)):
        collected.warn(f"the machine was busy: the load average of the last minute was {moment.load:g} on "
                       f"{len(cpus)} processors. Figures may be low; measure again when nothing else runs")  # fmt: skip
    total = os.cpu_count() or len(cpus)
    if len(cpus) < total:
        collected.warn(f"this process may run on {len(cpus)} of {total} processors: figures are of those")
    quota = (system.text("/sys/fs/cgroup/cpu.max") or " ".join(
        system.text(f"/sys/fs/cgroup/cpu/cpu.cfs_{one}_us") or "" for one in ("quota", "period"))).split()
    if len(quota) == 2 and all(one.isdigit() for one in quota) and int(quota[0]) < int(quota[1]) * len(cpus):
        collected.warn(f"this container may use {int(quota[0]) / int(quota[1]):g} of {len(cpus)} processors: figures "
                       "of more threads are held down")  # fmt: skip
    governors = {system.text(f"/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor") for cpu in cpus} - {None}
    if governors and governors <= {"powersave"} and not system.text("/sys/devices/system/cpu/intel_pstate/status"):
        collected.warn('processors are set to the governor "powersave": figures may be low. cpupower frequency-set -g '
                       "performance")  # fmt: skip
    if is_virtual(system):
        collected.warn("this is a virtual machine: others may share its memory and drives, and its host may cache them")


def is_virtual(system: System) -> bool:
    """Whether the processor tells that a hypervisor is below."""
    return "hypervisor" in dict(fields(system.text("/proc/cpuinfo"))).get("flags", "").split()


def after(begun: Moment, ended: Moment, collected: Collected) -> dict[str, float]:
    """Shares of the processors' time between two moments by kind, and a warning where others took some: other programs,
    or a hypervisor."""
    spent = {name: max(0, ended.ticks[name] - begun.ticks[name]) for name in begun.ticks if name in ended.ticks}
    total = sum(spent.values())
    if total <= 0:
        return {}
    busy = sum(spent.get(name, 0) for name in WORKING) / TICKS - (ended.own - begun.own)
    if (seconds := ended.clock - begun.clock) > LEAST and busy > BUSY * seconds:
        collected.warn(f"other programs kept {busy / seconds:.2g} processors busy while this was measured: figures may "
                       "be low; measure again when nothing else runs")  # fmt: skip
    shares = {name: one / total for name, one in spent.items()}
    if shares.get("steal", 0.0) > STOLEN:
        collected.warn(f"the host took {shares['steal']:.0%} of the processors' time for others while this was "
                       "measured: figures are low by about as much")  # fmt: skip
    return shares
