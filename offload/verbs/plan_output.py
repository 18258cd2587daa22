"""A placement written as the plan file that says it: the question in the words or keys that it came in."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offload.errors import OffloadError
from offload.verbs.step import is_plan_file

if TYPE_CHECKING:
    from offload.placing import Found

PATHS = ("config", "gguf")  # keys of a model that are paths, from the folder of the file


def plan_text(options: argparse.Namespace, best: Found) -> str:
    """The text of the plan file, read again and evaluated to the same time. Raises OffloadError where it is not."""
    from offload.compiler import compile_step
    from offload.documents import parse_document, read_plan
    from offload.models.architecture import STATED
    from offload.placing import overlap_to_data, placement_to_data, write_yaml
    from offload.schedules import schedule

    folder = Path(options.output).absolute().parent
    question = best.question
    data: dict[str, Any] = {}
    if is_plan_file(options.target):
        given = _given(options)
        home = Path(options.target).absolute().parent
        named = options.topology or str(given["topology"])
        data["topology"] = _moved(named, Path.cwd() if options.topology else home, folder)
        data["model"] = {key: _moved(value, home, folder, path=True) if key in PATHS else value
                         for key, value in given["model"].items()}  # fmt: skip
    else:
        given = {}
        data["topology"] = _moved(options.on, Path.cwd(), folder)
        data["model"] = _model(options, question.model.name, folder)
    if question.model.family != STATED:
        data["model"] |= {"weights": question.weights, "kv": question.kv}
    data["workload"] = _workload(best)
    data["placement"] = placement_to_data(best.placement)
    if best.placement.costs and "costs" in given:
        data["costs"] = given["costs"]
    data["overlap"] = overlap_to_data(best.overlap)
    servers = [text for text in options.set if not _of_plan(text)]
    notes = [f"The best placement that offload place found: {best.family.name}."]
    if servers:
        notes.append(f"Found with {' '.join(f'--set {one}' for one in servers)}: give these to offload step too.")
    text = write_yaml(data, [" ".join(note.split()) for note in notes])
    plan, server = read_plan(parse_document(text, options.output), folder, topology=question.topology)
    seconds = schedule(compile_step(server, plan), ends=False).seconds
    if seconds != best.seconds:
        raise OffloadError(f"-o: the file would say {seconds:g} s where the placement takes {best.seconds:g} s; it is "
                           "not written.")  # fmt: skip
    return text


def _given(options: argparse.Namespace) -> Mapping[str, Any]:
    """The keys of the plan file, with what was set."""
    from offload.documents import read_document, read_setting
    from offload.documents.settings import change_plan

    document = read_document(options.target)
    change_plan(document, [one for one in map(read_setting, options.set) if one.is_of_plan])
    return document.value


def _of_plan(text: str) -> bool:
    from offload.documents import read_setting

    return read_setting(text).is_of_plan


def _moved(name: Any, home: Path, folder: Path, path: bool = False) -> Any:
    """A path from one folder as it is from another; a shipped server's name as it is."""
    text = str(name)
    if not path and "/" not in text and not text.endswith((".yaml", ".yml")):
        return name
    return os.path.relpath(home / Path(text).expanduser(), folder) if not os.path.isabs(text) else text


def _model(options: argparse.Namespace, name: str, folder: Path) -> dict[str, Any]:
    """The model's keys as words said them."""
    target = options.target
    path = target if os.path.exists(target) else target.rpartition(":")[0]
    if os.path.exists(path):
        key = "gguf" if path.lower().endswith(".gguf") else "config"
        found: dict[str, Any] = {key: _moved(os.path.abspath(path), folder, folder, path=True)}
    else:
        found = {"name": target.partition(":")[0]}
    if options.like is not None:
        found["like"] = options.like
    if options.give:
        found["give"] = dict(one.split("=", 1) for one in options.give)
    del name
    return found


def _workload(best: Found) -> dict[str, Any]:
    """The keys of a workload."""
    from offload.models.architecture import STATED

    asked = best.question.workload
    found: dict[str, Any] = {"phase": asked.phase, "batch": asked.batch}
    if asked.phase == "prefill":
        found |= {"prompt": asked.prompt, "context": asked.context}
    elif asked.phase == "denoise":
        found |= {"steps": asked.steps} if asked.steps != 1 else {}
    elif best.question.model.family != STATED:
        found["context"] = asked.context
    if asked.in_flight != 1:
        found["in_flight"] = asked.in_flight
    return found
