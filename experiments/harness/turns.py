"""Contenders of a benchmark: each has a process of its own, and they take turns."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from tqdm import tqdm

HEAD = ["images/s", "spread", "over the first"]  # of `rows`, after the title


def serve(run: Callable[[], object], images: int, *, repeat: int = 1) -> None:
    """Run a few times for every line of the input; print images per second."""
    run()
    for _ in sys.stdin:
        start = time.perf_counter()
        for _ in range(repeat):
            run()
        print(repeat * images / (time.perf_counter() - start), flush=True)


def speeds_of(names: Sequence[str], *arguments: str, rounds: int) -> dict[str, np.ndarray]:
    """Images per second of each contender, in each round.

    A contender is this command with `--serve NAME` and the arguments.
    """
    processes = {name: _start(name, arguments) for name in names}
    for process in processes.values():
        _measure(process)
    measured = [
        {name: _measure(process) for name, process in processes.items()}
        for _ in tqdm(range(rounds), "in turn")
    ]
    for process in processes.values():
        process.communicate()
    return {name: np.array([speed[name] for speed in measured]) for name in names}


def rows(speeds: Mapping[str, np.ndarray], titles: Mapping[str, str]) -> list[list[str]]:
    """A row for each contender; ratios are medians of the ratios within a round."""
    first = next(iter(speeds.values()))

    def row(name, speed):
        low, middle, high = np.percentile(speed, [25, 50, 75])
        ratio = np.median(speed / first)
        return [titles[name], f"{middle:,.0f}", f"{(high - low) / 2:,.0f}", f"{ratio:.2f}"]

    return [row(name, speed) for name, speed in speeds.items()]


def _start(name, arguments):
    module = sys.modules["__main__"].__spec__.name
    command = [sys.executable, "-m", module, "--serve", name, *arguments]
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return subprocess.Popen(command, env=environment, **pipes)


def _measure(process):
    print(file=process.stdin, flush=True)
    return float(process.stdout.readline())
