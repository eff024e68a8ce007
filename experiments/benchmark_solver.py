"""The solver beside scikit-learn on the same pieces, and its growth on whole data.

    python -m experiments.benchmark_solver            # about three minutes on two cores
    python -m experiments.benchmark_solver --large    # up to 1,000,000 examples

Every time is measured in this one run: medians (and spread) of warm calls, compilation apart.
scikit-learn gets a process for each core, and so does JAX a device. The last line is JSON.
"""

import argparse
import concurrent.futures
import contextlib
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import numpy as np
from tqdm import tqdm

from experiments.origin import REPORTS, origin
from spr_jax.devices import device_mesh, one_device_per_core
from spr_jax.files import replace_file
from spr_jax.solver import Options, clean_set, plan_pieces, solve_pieces
from spr_jax.solver.pieces import cut_pieces

NUM_CLASSES = 10
PAPER = Options(pca_dim=10)  # and 10 examples of each class in a piece
WHOLE = Options(pca_dim=32)
GROWTH = Options(pca_dim=64)


def make_features(n: int, d: int, rate: float = 0.4, seed: int = 0):
    """ReLU features around class centres, in single precision; given labels, `rate` wrong."""
    generator = np.random.default_rng(seed)
    centres = 0.5 * generator.standard_normal((NUM_CLASSES, d), np.float32)
    true = generator.integers(0, NUM_CLASSES, n)
    features = np.empty((n, d), np.float32)
    for start in range(0, n, 10_000):
        rows = features[start : start + 10_000]
        generator.standard_normal(out=rows, dtype=np.float32)
        rows += centres[true[start : start + 10_000]]
        np.maximum(rows, 0, out=rows)
    wrong = generator.random(n) < rate
    given = np.where(wrong, (true + generator.integers(1, NUM_CLASSES, n)) % NUM_CLASSES, true)
    return features, given.astype(np.int32)


# scikit-learn, in worker processes ---------------------------------------------------------


def start_worker(path: str) -> None:
    global FEATURES
    FEATURES = np.load(path, mmap_mode="r")


def solve_with_sklearn(piece, svd_solver: str):
    """The released mathematics: PCA, I - H, penalty path; the step at which each row enters."""
    from sklearn.decomposition import PCA
    from sklearn.linear_model import enet_path

    index, slot = piece
    scores = PCA(PAPER.pca_dim, svd_solver=svd_solver).fit_transform(FEATURES[index])
    projection = np.eye(len(scores)) - scores @ np.linalg.inv(scores.T @ scores) @ scores.T
    targets = projection @ np.eye(NUM_CLASSES)[slot]
    _, coefficients, _ = enet_path(projection, targets, l1_ratio=1.0)
    return (~coefficients.any(axis=0)).sum(axis=1)


def run_sklearn(features, pieces, repeats: int):
    """Seconds of each repeat and the entry steps [pieces, rows] with exact PCA."""
    tables = list(zip(np.asarray(pieces.index), np.asarray(pieces.slot), strict=True))
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")  # of the workers
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "features.npy")
        np.save(path, features)
        with concurrent.futures.ProcessPoolExecutor(
            os.cpu_count(), multiprocessing.get_context("spawn"), start_worker, (path,)
        ) as pool:

            def solve(tables, svd_solver):
                solvers = [svd_solver] * len(tables)
                return list(pool.map(solve_with_sklearn, tables, solvers, chunksize=4))

            solve(tables[:20], "auto")  # imports
            seconds = []
            for _ in tqdm(range(repeats), "scikit-learn"):
                start = time.perf_counter()
                solve(tables, "auto")  # as released; the fastest for this shape
                seconds.append(time.perf_counter() - start)
            return seconds, np.array(solve(tables, "full"))


# Ours --------------------------------------------------------------------------------------


def run_clean_set(features, labels, per_class, options, repeats: int):
    """Seconds of each warm call, seconds to compile, the answer."""
    mesh = device_mesh() if jax.device_count() > 1 else None
    plan = plan_pieces(labels, per_class=per_class, multiple_of=jax.device_count())
    arrays = [features, labels, jax.random.key(0)]
    if mesh:
        rows = jax.P("shards") if plan.is_whole and len(labels) % mesh.size == 0 else jax.P()
        places = [jax.NamedSharding(mesh, spec) for spec in (rows, rows, jax.P())]
        arrays = jax.device_put(arrays, places)
    else:
        arrays = jax.device_put(arrays)
    start = time.perf_counter()
    program = clean_set.lower(*arrays, plan=plan, options=options, mesh=mesh).compile()
    compilation = time.perf_counter() - start
    seconds = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        found = jax.block_until_ready(program(*arrays))
        seconds.append(time.perf_counter() - start)
    return seconds[1:], compilation, found


def entry_steps(features, labels):
    """Pieces of the paper's split and the grid step at which each row enters."""
    plan = plan_pieces(labels, per_class=10)

    @jax.jit
    def solve(features, labels, key):
        pieces = cut_pieces(labels, jax.numpy.arange(NUM_CLASSES)[None], key, plan)
        return pieces, solve_pieces(features, pieces, plan, PAPER)

    pieces, rows = solve(features, labels, jax.random.key(0))
    first = rows.entry.max(axis=1, keepdims=True)  # the largest penalty
    ratio = PAPER.penalty_ratio ** (1 / (PAPER.num_penalties - 1))
    steps = np.rint(np.log(rows.grid_entry / first) / np.log(ratio))
    return pieces, np.where(rows.grid_entry > 0, steps, PAPER.num_penalties)


def run_growth(n: int, d: int) -> dict:
    """One size in a process of its own, for its peak memory."""
    command = [sys.executable, "-m", "experiments.benchmark_solver", "--one", str(n), str(d)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def run_one(n: int, d: int) -> None:
    features, labels = make_features(n, d)
    seconds, compilation, found = run_clean_set(features, labels, None, GROWTH, repeats=5)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    measured = {
        "examples": n,
        "seconds": float(np.median(seconds)),
        "spread": spread(seconds),
        "compile_seconds": compilation,
        "rounds": int(found.rounds),
        "peak_gib": peak,
    }
    print(json.dumps(measured))


def spread(seconds) -> float:
    """Half the distance between the quartiles."""
    low, high = np.percentile(seconds, [25, 75])
    return float(high - low) / 2


def table(head: list[str], rows: list[list]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--large", action="store_true", help="whole data up to 1,000,000 rows")
    parser.add_argument("--report", action="store_true", help="write reports/benchmark_solver.md")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--one", nargs=2, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    one_device_per_core()
    if options.one:
        return run_one(*options.one)

    features, labels = make_features(50_000, 512)
    pieces, ours = entry_steps(features, labels)
    theirs_seconds, theirs = run_sklearn(features, pieces, repeats=3)
    agreement = 1 - np.abs(ours - theirs).mean() / PAPER.num_penalties
    split, split_compilation, _ = run_clean_set(features, labels, 10, PAPER, options.repeats)
    whole, whole_compilation, _ = run_clean_set(features, labels, None, WHOLE, options.repeats)
    del features

    sizes = [12_500, 25_000, 50_000, 100_000, 200_000, 400_000]
    sizes += [1_000_000] if options.large else []
    growth = [run_growth(n, 64) for n in tqdm(sizes, "growth")]
    per_row = {row["examples"]: row["seconds"] / row["examples"] for row in growth}
    ratios = {
        "split_over_sklearn": np.median(theirs_seconds) / np.median(split),
        "zero_pattern_agreement": agreement,
        "whole_over_split_time": np.median(whole) / np.median(split),
        "time_per_row_largest_over_50000": per_row[sizes[-1]] / per_row[50_000],
        "peak_gib_at_largest": growth[-1]["peak_gib"],
        "compile_seconds": max(split_compilation, whole_compilation),
    }

    def timed(name, seconds, compilation=None):
        median = f"{np.median(seconds):.3f} +- {spread(seconds):.3f}"
        return [name, median, "-" if compilation is None else f"{compilation:.1f}"]

    report = f"""# The solver, timed

{origin("scikit-learn")}

## 50,000 x 512 features, 10 classes, 40 % wrong labels

{
        table(
            ["what", "seconds (median, half quartile distance)", "compilation, s"],
            [
                timed("scikit-learn: PCA and enet_path, a process per core", theirs_seconds),
                timed("paper's split, clean_set with PCA", split, split_compilation),
                timed("whole data, clean_set with 32 components", whole, whole_compilation),
            ],
        )
    }

The split is {ratios["split_over_sklearn"]:.1f} times as fast as scikit-learn; {len(ours)} pieces.
Its zero pattern over rows and penalties agrees with scikit-learn's (exact PCA) in
{agreement:.3%} of the cells. Whole data takes {ratios["whole_over_split_time"]:.2f} times as long.

## Whole data, 64 features, 64 components

{
        table(
            ["examples", "seconds", "spread", "us per example", "rounds", "peak memory, GiB"],
            [
                [
                    f"{row['examples']:,}",
                    f"{row['seconds']:.3f}",
                    f"{row['spread']:.3f}",
                    f"{1e6 * row['seconds'] / row['examples']:.2f}",
                    row["rounds"],
                    f"{row['peak_gib']:.2f}",
                ]
                for row in growth
            ],
        )
    }
"""
    print(report)
    if options.report:
        with replace_file(Path(REPORTS) / "benchmark_solver.md") as file:
            file.write(report)
    print(json.dumps({name: round(float(value), 5) for name, value in ratios.items()}))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
