"""Where topology files are: shipped ones by name, others by path; and the shipped case files."""

from __future__ import annotations

from pathlib import Path

from offload.errors import OffloadError, did_you_mean, one_line
from offload.files import path_of

SUFFIXES = (".yaml", ".yml")


def shipped_folder() -> Path:
    """The folder of the shipped topologies: inside the package in a wheel, beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "topologies"
    return inside if inside.is_dir() else package.parent / "topologies"


def shipped_topologies() -> tuple[str, ...]:
    """Names of the shipped topologies, sorted."""
    folder = shipped_folder()
    return tuple(sorted(path.stem for path in folder.glob("*.yaml"))) if folder.is_dir() else ()


def find_topology(name_or_path: str | Path, relative_to: str | Path | None = None) -> Path:
    """The file of a topology. A text with a / or that ends in .yaml is a path, anything else a shipped name.

    relative_to : the folder that relative paths start from (the plan's own). Raises OffloadError for an unknown name.
    """
    if name_or_path != "":  # which is told as a name
        path_of(name_or_path, "a topology")
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or "/" in text or "\\" in text or text.lower().endswith(SUFFIXES):
        return Path(relative_to or "", name_or_path)
    names = shipped_topologies()
    if text.strip() and text not in names and Path(relative_to or "", text).is_dir():
        raise OffloadError(f'"{one_line(text)}" is a folder. Name a topology file in it, or one of: '
                           f"{', '.join(names)}.")
    if text not in names:
        hint = did_you_mean(text, names, "Shipped topologies")
        raise OffloadError(f'no topology "{one_line(text)}". {hint} A file of your own is named by its path, '
                           f'"./{one_line(text)}.yaml".')
    return shipped_folder() / f"{text}.yaml"


def shipped_cases() -> tuple[Path, ...]:
    """The case files that the package holds, sorted by name."""
    return tuple(sorted((Path(__file__).resolve().parents[1] / "cases").glob("*.yaml")))
