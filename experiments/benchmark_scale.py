"""A report on the time and memory of the detector as rows and classes grow, from files and memory.

    python -m experiments.benchmark_scale --folder=DIR             # up to 1,000,000 rows
    python -m experiments.benchmark_scale --folder=DIR --large     # and 10,000,000

Features of 64 columns are drawn in blocks into DIR, which needs up to 2.6 GB, and removed. Each
cell has a process of its own. A cold call compiles its programs. Memory is what the process
allocates: pages of files that the system keeps are not counted. If cleanlab is installed, its
`find_label_issues_batched` is measured, too, with class probabilities given.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tqdm import tqdm

from experiments.harness.provenance import origin, show_report
from experiments.harness.study import table
from spr_jax.devices import one_device_per_core

WIDTH = 64
WRONG = 0.2
BLOCK = 100_000  # rows that are drawn at a time
IN_MEMORY_ROWS = 1_000_000  # with more, only files are measured
WARM_ROWS = 1_000_000  # with more, there is one call
CELLS = [(10_000, 10), (100_000, 10), (1_000_000, 10), (100_000, 100), (100_000, 1000)]
LARGE = [(1_000_000, 1000), (10_000_000, 10)]


def draw(folder: Path, rows: int, classes: int) -> None:
    """Write features around class centers and labels, some of them wrong."""
    generator = np.random.default_rng(0)
    centers = 0.5 * generator.standard_normal((classes, WIDTH), np.float32)
    true = generator.integers(0, classes, rows)
    features = np.lib.format.open_memmap(folder / "features.npy", "w+", np.float32, (rows, WIDTH))
    for start in range(0, rows, BLOCK):
        mine = true[start : start + BLOCK]
        drawn = generator.standard_normal((len(mine), WIDTH), np.float32) + centers[mine]
        features[start : start + BLOCK] = np.maximum(drawn, 0)
    features.flush()
    wrong = generator.random(rows) < WRONG
    other = (true + generator.integers(1, classes, rows)) % classes
    np.save(folder / "labels.npy", np.where(wrong, other, true).astype(np.int32))
    np.save(folder / "wrong.npy", wrong)


class PeakMemory:
    """The most memory, GiB, that this process has allocated while it was watched."""

    def __init__(self) -> None:
        self.peak, self.done = 0.0, threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self):
        while not self.done.wait(0.05):
            for line in Path("/proc/self/status").read_text().splitlines():
                if line.startswith("RssAnon"):
                    self.peak = max(self.peak, int(line.split()[1]) / 2**20)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()


def measure(folder: Path, how: str) -> dict:
    """Measure the detector in this process; print JSON."""
    from spr_jax.detection import find, streamed

    path_seconds, rounds = [], []

    def timed(*arguments, solve=streamed.sweep_path):
        start = time.process_time()
        solved = solve(*arguments)
        path_seconds.append(time.process_time() - start)
        rounds.append(solved.rounds)
        return solved

    streamed.sweep_path = timed
    labels, wrong = np.load(folder / "labels.npy"), np.load(folder / "wrong.npy")
    find.IN_MEMORY = 0 if how == "files" else 2**62
    seconds, cpu = [], []
    with PeakMemory() as memory:
        for _ in range(1 if len(labels) > WARM_ROWS else 2):
            start = time.perf_counter(), time.process_time()
            found = find.find_label_errors(folder / "features.npy", labels)
            seconds.append(time.perf_counter() - start[0])
            cpu.append(time.process_time() - start[1])
    suspect = ~found.clean
    return {
        "seconds": seconds,
        "cpu": cpu[-1],
        "rounds": rounds[-1] if rounds else None,
        "path_seconds": path_seconds[-1] if path_seconds else None,
        "peak_gib": memory.peak,
        "precision": float(wrong[suspect].mean()) if suspect.any() else 0.0,
        "recall": float(suspect[wrong].mean()),
    }


def measure_cleanlab(folder: Path) -> dict:
    """Measure cleanlab, given the probabilities of the true generator, softened."""
    from cleanlab.experimental.label_issues_batched import find_label_issues_batched

    labels, wrong = np.load(folder / "labels.npy"), np.load(folder / "wrong.npy")
    classes = int(labels.max()) + 1
    generator = np.random.default_rng(1)
    given = np.where(wrong, generator.integers(0, classes, len(labels)), labels)
    path = folder / "probabilities.npy"
    shape = len(labels), classes
    probabilities = np.lib.format.open_memmap(path, "w+", np.float32, shape)
    for start in range(0, len(labels), BLOCK):
        part = probabilities[start : start + BLOCK]
        part[:] = 0.2 / classes
        part[np.arange(len(part)), given[start : start + BLOCK]] += 0.8
    probabilities.flush()
    seconds = []
    with PeakMemory() as memory:
        for _ in range(2):
            start = time.perf_counter(), time.process_time()
            issues = find_label_issues_batched(labels=labels, pred_probs_file=str(path))
            seconds.append(time.perf_counter() - start[0])
            cpu = time.process_time() - start[1]
    found = np.zeros(len(labels), bool)
    found[issues] = True
    return {
        "seconds": seconds,
        "cpu": cpu,
        "rounds": None,
        "path_seconds": None,
        "peak_gib": memory.peak,
        "precision": float(wrong[found].mean()) if found.any() else 0.0,
        "recall": float(found[wrong].mean()),
    }


def in_own_process(folder: Path, how: str) -> dict | None:
    """Measure one cell; None if what it needs is not installed."""
    command = [sys.executable, "-m", "experiments.benchmark_scale", "--one", how]
    done = subprocess.run(
        [*command, f"--folder={folder}"], stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def has_cleanlab() -> bool:
    with contextlib.suppress(ImportError):
        import cleanlab  # noqa: F401

        return True
    return False


def run(folder: Path, cells: list[tuple[int, int]]) -> Iterator[list[dict]]:
    """Yield what is measured so far, cell by cell; the data of one are on the disk."""
    measured: list[dict] = []
    folder.mkdir(parents=True, exist_ok=True)
    for rows, classes in tqdm(cells, "cells"):
        draw(folder, rows, classes)
        ways = ["files", *["memory"] * (rows <= IN_MEMORY_ROWS), *["cleanlab"] * has_cleanlab()]
        for how in ways:
            load = os.getloadavg()[0]
            cell = {"rows": rows, "classes": classes, "how": how, "load": load}
            measured.append(cell | in_own_process(folder, how))
            yield measured
        for file in folder.glob("*.npy"):
            file.unlink()


HEAD = ["rows", "classes", "features in", "cold, s", "warm, s", "CPU, us per row", "of it the path"]
HEAD += ["a round", "peak memory, GiB", "precision", "recall", "load before"]


def row_of(cell: dict) -> list[str]:
    seconds, path, rows = cell["seconds"], cell["path_seconds"], cell["rows"]
    each_row = 1e6 / rows
    return [
        f"{rows:,}",
        f"{cell['classes']:,}",
        cell["how"],
        f"{seconds[0]:.1f}",
        f"{seconds[1]:.1f}" if len(seconds) > 1 else "-",
        f"{each_row * cell['cpu']:.1f}",
        "-" if path is None else f"{each_row * path:.1f}",
        "-" if path is None else f"{each_row * path / cell['rounds']:.2f}",
        f"{cell['peak_gib']:.2f}",
        f"{cell['precision']:.3f}",
        f"{cell['recall']:.3f}",
        f"{cell['load']:.1f}",
    ]


def render(measured: list[dict]) -> str:
    cores = os.cpu_count()
    busy = max(cell["load"] for cell in measured) > 1
    quiet = (
        f"The machine was not quiet: other work ran on its {cores} cores (last column: processes "
        "that wanted one before the cell began), so times are upper bounds."
        if busy
        else "Nothing else ran on the machine."
    )
    without = "" if has_cleanlab() else "\ncleanlab is not installed here, and not measured.\n"
    return f"""# The detector, by rows and classes

{origin()}

{WIDTH} features of single precision, {WRONG:.0%} of the labels wrong. {quiet}

{table(HEAD, [row_of(cell) for cell in measured])}

CPU time, of all cores, is that of the last call: with more than {WARM_ROWS:,} rows it is cold, and
its programs are compiled in it. A round is a pass over the files that the path makes for a penalty.
Peak memory is what the process allocates, Python, JAX, its compiler and the given labels included;
pages of files that the system keeps are not counted.
{without}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", required=True, help="for the features; made if it is missing")
    parser.add_argument("--large", action="store_true", help="10,000,000 rows, and 1,000 classes")
    parser.add_argument("--cell", nargs=2, type=int, action="append", metavar=("ROWS", "CLASSES"))
    parser.add_argument("--report", action="store_true", help="write reports/benchmark_scale.md")
    parser.add_argument("--one", choices=["files", "memory", "cleanlab"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    folder = Path(options.folder)
    one_device_per_core()
    if options.one:
        is_ours = options.one != "cleanlab"
        print(json.dumps(measure(folder, options.one) if is_ours else measure_cleanlab(folder)))
        return
    cells = [tuple(cell) for cell in options.cell or []] or CELLS + LARGE * options.large
    for measured in run(folder, cells):
        show_report(render(measured), "benchmark_scale", keep=options.report)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
