"""How near our own memory figures are to those of a compiled STREAM on this machine.

    python benchmarks/stream.py [MiB of an array [turns]]

STREAM's four loops (copy, scale, add, triad) and two more, a read and a write, in C, compiled by gcc with -O3
-march=native -fopenmp, beside `offload.measure` on arrays of the same size and kind of pages and the same threads. A
loop of ours and the compiled one run in turn, three times each, so that what else the machine does meets both. Told are
the best of all runs, as STREAM tells it, and the median over the turns of the shares. Both count the bytes that a loop
reads and writes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from offload.measure.memory import KERNELS, WORD, Arrays
from offload.measure.threads import repeated

RUNS = 3
PAIRS = {"read": "read", "write": "write", "copy": "copy", "triad": "triad", "triad by line": "triad"}
ALONE = ("scale", "add")
SOURCE = r"""
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#define LOOP(NAME, COUNT, BODY) if (!strcmp(name, NAME)) { count = COUNT; _Pragma("omp parallel for") \
    for (long i = 0; i < n; i++) BODY; }
int main(int argc, char **argv) {
    long n = atol(argv[1]), sum = 0; int runs = atoi(argv[2]); double value = atof(argv[3]); char name[32];
    double *a = aligned_alloc(1 << 21, n * sizeof *a), *b = aligned_alloc(1 << 21, n * sizeof *b),
           *c = aligned_alloc(1 << 21, n * sizeof *c);
    madvise(a, n * sizeof *a, MADV_HUGEPAGE); madvise(b, n * sizeof *b, MADV_HUGEPAGE);  /* as NumPy's arrays have */
    madvise(c, n * sizeof *c, MADV_HUGEPAGE);
    #pragma omp parallel for
    for (long i = 0; i < n; i++) { a[i] = 1; b[i] = 2; c[i] = 0.5; }
    long *whole = (long *)b;
    while (scanf("%31s", name) == 1) {
        double best = 1e30; int count = 0;
        for (int run = 0; run <= runs; run++) {
            double t = omp_get_wtime();
            LOOP("copy", 2, a[i] = b[i])
            LOOP("scale", 2, a[i] = value * b[i])
            LOOP("add", 3, a[i] = b[i] + c[i])
            LOOP("triad", 3, a[i] = b[i] + value * c[i])
            LOOP("write", 1, a[i] = value)
            if (!strcmp(name, "read")) {
                count = 1;
                #pragma omp parallel for reduction(+:sum)
                for (long i = 0; i < n; i++) sum += whole[i];
            }
            t = omp_get_wtime() - t;
            if (run && t < best) best = t;
        }
        printf("%.6e %ld\n", (double)count * sizeof(double) * n / best, sum + (long)a[n / 2]); fflush(stdout);
    }
    return 0;
}
"""


def compiled(folder: str) -> Path:
    """The program, built: it runs the loop whose name it is given, and answers with its rate [B/s]."""
    source, program = Path(folder) / "stream.c", Path(folder) / "stream"
    source.write_text(SOURCE, encoding="utf-8")
    flags = ["-O3", "-march=native", "-fopenmp", "-std=gnu11", "-D_GNU_SOURCE"]
    subprocess.run(["gcc", *flags, "-o", str(program), str(source)], check=True)
    return program


def ask(program: subprocess.Popen[str], name: str) -> float:
    """The rate of one of the program's loops [B/s]."""
    print(name, file=program.stdin, flush=True)
    return float(program.stdout.readline().split()[0])


def main() -> None:
    if shutil.which("gcc") is None:
        sys.exit("gcc is not installed: there is nothing to compare with.")
    size = int(sys.argv[1]) * 2**20 if len(sys.argv) > 1 else 2**28
    turns = int(sys.argv[2]) if len(sys.argv) > 2 else 15
    cpus = sorted(os.sched_getaffinity(0))
    ours: dict[str, list[float]] = {one.name: [] for one in KERNELS}
    theirs: dict[str, list[float]] = {name: [] for name in (*PAIRS, *ALONE)}  # each beside one of ours
    arrays = Arrays(size // WORD, cpus, 1e9)
    environment = {**os.environ, "OMP_NUM_THREADS": str(len(cpus)), "OMP_PROC_BIND": "true",
                   "OMP_WAIT_POLICY": "passive"}  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        words = [str(compiled(folder)), str(size // WORD), str(RUNS), "3.0"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(words, env=environment, **pipes) as other:
            for _ in range(turns):
                for kernel in KERNELS:
                    work, moved = arrays.work(kernel, len(cpus))
                    ours[kernel.name].append(moved / min(repeated(cpus, work, RUNS, 0.0)))
                    if kernel.name in PAIRS:
                        theirs[kernel.name].append(ask(other, PAIRS[kernel.name]))
                for name in ALONE:
                    theirs[name].append(ask(other, name))
            other.stdin.close()
    print(f"arrays of {size >> 20} MiB, {len(cpus)} threads, load average {os.getloadavg()[0]:.2f}, {turns} turns of "
          f"{RUNS} runs; best, in GB/s")  # fmt: skip
    print("| loop | ours | compiled | ours / compiled, best | median of turns |\n| --- | --- | --- | --- | --- |")
    for name, rates in ours.items():
        other_rates = theirs.get(name)
        cells = [name, f"{max(rates) / 1e9:.2f}"]
        if other_rates:
            shares = [one / two for one, two in zip(rates, other_rates, strict=True)]
            cells += [f"{max(other_rates) / 1e9:.2f}", f"{max(rates) / max(other_rates):.3f}", f"{median(shares):.3f}"]
        print(f"| {' | '.join([*cells, *[''] * (5 - len(cells))])} |")
    for name in ALONE:
        print(f"| {name} | | {max(theirs[name]) / 1e9:.2f} | | |")


if __name__ == "__main__":
    main()
