"""The state between the lines of a llama.cpp log: which program prints, which model loads, which one runs."""

from __future__ import annotations

from dataclasses import dataclass, field

from offload.readers.engines.llama_sections import Process, Section
from offload.readers.engines.llama_timings import Clock

OF_THE_SERVER = frozenset(("ollama", "offloaded", "offloaded of", "tensor_split"))


@dataclass(slots=True)
class Log:
    """The state between the lines: the section that loads, the one that runs."""

    processes: list[Process] = field(default_factory=lambda: [Process()])
    loading: Section | None = None
    running: Section | None = None
    clock: Clock = field(default_factory=Clock)
    next_is_draft: bool = False
    continued: bool = False

    @property
    def process(self) -> Process:
        """The program that prints now."""
        return self.processes[-1]

    def restart(self) -> None:
        """Another start of a program, if this one has loaded anything."""
        if self.process.sections:
            old, new = self.process, Process()
            if "ollama" in old.said:  # its server tells the devices once, what it reckons before it starts a runner
                new.devices.update(old.devices)
                new.said.update({key: value for key, value in old.said.items() if key in OF_THE_SERVER})
            self.processes.append(new)
            self.loading = self.running = None
            self.clock = Clock()

    def load(self, line: int) -> Section:
        """Another model's loading starts."""
        section = Section(self.process, line, devices=dict(self.process.devices), draft=self.next_is_draft)
        self.process.sections.append(section)
        self.loading = section
        if not self.next_is_draft or self.running is None:
            self.running = section
            self.clock = Clock()
        self.next_is_draft = False
        return section

    def sibling(self) -> None:
        """What loads now is a part of the file that ran before: layers that make drafts."""
        mine = self.process.sections
        if len(mine) > 1 and mine[-1] is self.loading and not mine[-2].timings:
            mine[-1].draft = True
            self.running = mine[-2]

    def loads(self, line: int) -> Section:
        """The section that load lines belong to."""
        return self.loading or self.load(line)

    def runs(self, line: int) -> Section:
        """The section that times belong to."""
        if self.running is None:
            self.running = self.loads(line)
        return self.running


def kept_of(process: Process) -> list[Section]:
    """The sections that are runs: none of a vocabulary alone, and of a model loaded again before it ran, the last."""
    kept: list[Section] = []
    for section in process.sections:
        if section.said.get("vocab_only") is not None and section.said["vocab_only"].value == 1 and not section.timings:
            continue
        if not (section.said or section.buffers or section.timings):
            continue
        before = kept[-1] if kept else None
        if before is not None and not before.timings and before.draft == section.draft and same_model(before, section):
            section.assumed.add("The model was loaded more than once before it ran: the last time is told.")
            kept[-1] = section
        else:
            kept.append(section)
    return kept


def same_model(one: Section, other: Section) -> bool:
    keys = ("arch", "name", "format", "size", "params", "n_layer")
    told = [(one.said[key].value, other.said[key].value) for key in keys if key in one.said and key in other.said]
    return bool(told) and all(a == b for a, b in told)
