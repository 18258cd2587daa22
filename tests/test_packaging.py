"""The package as a stranger installs it: from a wheel, and with plain `pip install .`, away from this folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import offload

ROOT = Path(__file__).resolve().parent.parent
STEP = ["step", "llama-3.1-70b:q4_k_m", "--on", "desktop-4090", "--gpu-layers", "38", "--json"]


def call(*command: object, cwd: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment, capture_output=True, encoding="utf-8", timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> Path:
    """A copy of what is needed to build, so that a build leaves nothing here."""
    folder = tmp_path_factory.mktemp("sources")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    for name in ("offload", "topologies"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def answer_of(install: list[object], folder: Path) -> dict:
    """Install into a virtual environment, new where there is none yet, and ask from another folder."""
    programs = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    if not programs.exists():
        call(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
    call(programs / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check", *install, cwd=folder)
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    assert call(programs / "offload", "--version", cwd=elsewhere) == f"offload {offload.__version__}\n"
    where = call(programs / "python", "-c", "import offload; print(offload.__file__)", cwd=elsewhere)
    assert Path(where.strip()).is_relative_to(folder / "venv")
    return json.loads(call(programs / "offload", *STEP, cwd=elsewhere))


@pytest.mark.slow
def test_a_wheel_in_an_empty_environment_and_a_plain_install_over_it(sources, tmp_path):
    """The second is built anew from the sources; what it needs is there, as the first has brought it."""
    call(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path / "wheels", sources, cwd=tmp_path)
    (wheel,) = (tmp_path / "wheels").glob("offload-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    shipped = {f"offload/topologies/{path.name}" for path in (ROOT / "topologies").glob("*.yaml")}
    shipped |= {f"offload/{path.relative_to(ROOT / 'offload')}" for path in (ROOT / "offload/cases").rglob("*.yaml")}
    assert len(shipped) > 10 and shipped <= set(names)
    assert "offload/py.typed" in names
    assert all(name.startswith(("offload/", "offload-")) for name in names)
    answer = answer_of([wheel], tmp_path)
    assert answer["topology"] == "desktop-4090" and answer["fits"] is True and answer["floor"]["seconds"] > 0
    call(tmp_path / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python", "-m", "pip", "uninstall", "-q", "-y",
         "offload", cwd=tmp_path)  # fmt: skip
    assert answer_of([sources], tmp_path) == answer


def test_project_states_what_it_needs():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["requires-python"] == ">= 3.11"
    assert project["scripts"] == {"offload": "offload.cli:main"}
    assert all(">=" in need for need in project["dependencies"] + project["optional-dependencies"]["test"])
    top = {"pyproject.toml", "offload", "topologies", "tests", "examples", "README.md", ".ci", "benchmarks", "docs"}
    assert top <= {path.name for path in ROOT.iterdir()}
    assert (ROOT / "LICENSE").is_file() and offload.__version__ in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
