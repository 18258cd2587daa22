"""How long `offload step` takes for each example beside the bare imports, slowest first: seconds of processor time.

    python benchmarks/slowest.py [examples ...]

Without names all of examples/ are run, each once. Processor time, so that a busy machine changes little; more than
5 s is marked.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

from startup import IMPORTS, ROOT

MOST = 5.0  # seconds that an example should take at most


def seconds(command: list[str]) -> float:
    """Processor time of a command and its children [s]."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(names: list[str]) -> None:
    paths = [Path(name).resolve() for name in names] or sorted((ROOT / "examples").glob("*.yaml"))
    seconds(IMPORTS)  # byte-compile and fill the page cache
    bare = seconds(IMPORTS)
    step = [sys.executable, "-m", "offload", "step"]
    found = sorted(((seconds([*step, str(path), "--ignore-capacity"]), path.name) for path in paths), reverse=True)
    print(f"{'bare imports':40} {bare:6.2f} s")
    for time, name in found:
        print(f"{name:40} {time:6.2f} s  {time / bare:5.1f} x{'  slow' if time > MOST else ''}")


if __name__ == "__main__":
    main(sys.argv[1:])
