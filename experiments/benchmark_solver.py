"""A report on the time of the solver, compared with scikit-learn, and its growth on whole data.

    python -m experiments.benchmark_solver            # about three minutes on two cores
    python -m experiments.benchmark_solver --large    # up to 1,000,000 examples

Every time is measured in this one run: medians (and spread) of warm calls, without compilation.
scikit-learn gets a process and JAX a device for each core. The last line is JSON.
"""

import argparse
import concurrent.futures
import contextlib
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import numpy as np
from tqdm import tqdm

from experiments.harness.provenance import origin, show_report
from experiments.harness.study import table
from spr_jax.devices import AXIS, device_mesh, one_device_per_core
from spr_jax.solver import Options, clean_set, plan_pieces, solve_pieces
from spr_jax.solver.pieces import cut_pieces

NUM_CLASSES = 10
PAPER = Options(pca_dim=10)  # and 10 examples of each class in a piece
GROWTH = Options(pca_dim=64)
PROGRAMS = {  # examples of each class in a piece, options
    "split": (10, PAPER),
    "whole, 10": (None, PAPER),
    "whole, 64": (None, GROWTH),
}


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
    """The step at which each row enters the path, as released: PCA, I - H, penalty path."""
    from sklearn.decomposition import PCA
    from sklearn.linear_model import enet_path

    index, slot = piece
    scores = PCA(PAPER.pca_dim, svd_solver=svd_solver).fit_transform(FEATURES[index])
    projection = np.eye(len(scores)) - scores @ np.linalg.inv(scores.T @ scores) @ scores.T
    targets = projection @ np.eye(NUM_CLASSES)[slot]
    _, coefficients, _ = enet_path(projection, targets, l1_ratio=1.0)
    return (~coefficients.any(axis=0)).sum(axis=1)


@contextlib.contextmanager
def sklearn_workers(features, pieces):
    """A function that solves all pieces with a given SVD, in one process per core."""
    tables = list(zip(np.asarray(pieces.index), np.asarray(pieces.slot), strict=True))
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")  # of the workers
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "features.npy")
        np.save(path, features)
        with concurrent.futures.ProcessPoolExecutor(
            os.cpu_count(), multiprocessing.get_context("spawn"), start_worker, (path,)
        ) as pool:

            def solve(svd_solver, tables=tables):
                solvers = [svd_solver] * len(tables)
                return np.array(list(pool.map(solve_with_sklearn, tables, solvers, chunksize=4)))

            solve("auto", tables[:20])  # imports
            yield solve


# Ours --------------------------------------------------------------------------------------


def compile_clean_set(features, labels, per_class, options):
    """A call of the compiled program on arrays in memory, and the seconds to compile it."""
    mesh = device_mesh() if jax.device_count() > 1 else None
    plan = plan_pieces(labels, per_class=per_class, multiple_of=jax.device_count())
    arrays = [features, labels, jax.random.key(0)]
    if mesh:
        rows = jax.P(AXIS) if plan.is_whole and len(labels) % mesh.size == 0 else jax.P()
        places = [jax.NamedSharding(mesh, spec) for spec in (rows, rows, jax.P())]
        arrays = jax.device_put(arrays, places)
    else:
        arrays = jax.device_put(arrays)
    start = time.perf_counter()
    program = clean_set.lower(*arrays, plan=plan, options=options, mesh=mesh).compile()
    compilation = time.perf_counter() - start
    return lambda: jax.block_until_ready(program(*arrays)), compilation


def seconds_of(call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def entry_steps(features, labels):
    """Pieces of the paper's split, and the grid step at which each row enters the path."""
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
    """Measure one size in a process of its own, for its peak memory."""
    command = [sys.executable, "-m", "experiments.benchmark_solver", "--one", str(n), str(d)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def run_one(n: int, d: int) -> None:
    features, labels = make_features(n, d)
    call, compilation = compile_clean_set(features, labels, None, GROWTH)
    found = call()
    seconds = [seconds_of(call) for _ in range(5)]
    peak = peak_memory()
    measured = {
        "examples": n,
        "seconds": seconds,
        "compile_seconds": compilation,
        "rounds": int(found.rounds),
        "peak_gib": peak,
    }
    print(json.dumps(measured))


def pooled(runs: list[dict]) -> dict:
    """Pool the processes of one size, which took turns with the other sizes."""
    times = [second for run in runs for second in run["seconds"]]
    peak = max(run["peak_gib"] for run in runs)
    return runs[0] | {"seconds": np.median(times), "spread": spread(times), "peak_gib": peak}


def peak_memory() -> float:
    """GiB of this process alone (the peak of getrusage includes the one that forked it)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 2**20
    return float("nan")


def spread(seconds) -> float:
    """Half the distance between the quartiles."""
    low, high = np.percentile(seconds, [25, 75])
    return float(high - low) / 2


def compare(repeats: int) -> dict:
    """Time scikit-learn and our programs in turn; compare the steps at which rows enter."""
    features, labels = make_features(50_000, 512)
    pieces, ours = entry_steps(features, labels)
    programs = {
        name: compile_clean_set(features, labels, per_class, solver_options)
        for name, (per_class, solver_options) in PROGRAMS.items()
    }
    seconds = {name: [] for name in ["scikit-learn", *PROGRAMS]}
    with sklearn_workers(features, pieces) as solve:
        for call, _ in programs.values():
            call()
        for _ in tqdm(range(repeats), "scikit-learn and ours in turn"):
            # The SVD of the released code, which is the fastest for this shape.
            seconds["scikit-learn"].append(seconds_of(lambda: solve("auto")))
            for name, (call, _) in programs.items():
                seconds[name] += [seconds_of(call) for _ in range(7)]
        theirs = solve("full")
    return {
        "seconds": seconds,
        "compilation": {name: compilation for name, (_, compilation) in programs.items()},
        "agreement": 1 - np.abs(ours - theirs).mean() / PAPER.num_penalties,
    }


def grow(sizes: list[int], repeats: int) -> list[dict]:
    """Measure whole data of growing size, the sizes in turn."""
    runs = [run_growth(n, 64) for n in tqdm(sizes * repeats, "growth")]
    return [pooled([run for run in runs if run["examples"] == n]) for n in sizes]


def ratios_of(compared: dict, growth: list[dict]) -> dict[str, float]:
    """The numbers that later measurements are compared with."""
    median = {name: np.median(times) for name, times in compared["seconds"].items()}
    per_row = {row["examples"]: row["seconds"] / row["examples"] for row in growth}
    return {
        "split_over_sklearn": median["scikit-learn"] / median["split"],
        "zero_pattern_agreement": compared["agreement"],
        "whole_over_split_time": median["whole, 10"] / median["split"],
        "whole_64_over_split_time": median["whole, 64"] / median["split"],
        "time_per_row_largest_over_50000": per_row[growth[-1]["examples"]] / per_row[50_000],
        "peak_gib_at_largest": growth[-1]["peak_gib"],
        "compile_seconds": max(compared["compilation"].values()),
    }


def render(compared: dict, growth: list[dict], ratios: dict[str, float]) -> str:
    def timed(title, name):
        times, compilation = compared["seconds"][name], compared["compilation"].get(name)
        compiled = "-" if compilation is None else f"{compilation:.1f}"
        return [title, f"{np.median(times):.3f}", f"{spread(times):.3f}", compiled]

    times = [
        timed("scikit-learn: PCA and enet_path, a process for each core", "scikit-learn"),
        timed("clean_set, paper's split: 10 of each class, 10 components", "split"),
        timed("clean_set, whole data, 10 components", "whole, 10"),
        timed("clean_set, whole data, 64 components", "whole, 64"),
    ]
    sizes = [
        [
            f"{row['examples']:,}",
            f"{row['seconds']:.3f}",
            f"{row['spread']:.3f}",
            f"{1e6 * row['seconds'] / row['examples']:.2f}",
            row["rounds"],
            f"{row['peak_gib']:.2f}",
        ]
        for row in growth
    ]
    head = ["examples", "seconds", "spread", "us per example", "rounds", "peak memory, GiB"]
    agreement = ratios["zero_pattern_agreement"]
    return f"""# The solver, timed

{origin("scikit-learn")}

## 50,000 x 512 features, 10 classes, 40 % wrong labels

{table(["what", "seconds", "spread", "compilation, s"], times)}

Medians of warm calls that take turns; spread is half the distance between the quartiles.

- The split is {ratios["split_over_sklearn"]:.1f} times as fast as scikit-learn, PCA included.
- Same sparsity pattern over rows and penalties as scikit-learn with exact PCA: {agreement:.3%}.
- Whole data takes {ratios["whole_over_split_time"]:.2f} times as long as the split with as many
  components, {ratios["whole_64_over_split_time"]:.2f} times with 64.

## Whole data, 64 features, 64 components

{table(head, sizes)}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--large", action="store_true", help="whole data up to 1,000,000 rows")
    parser.add_argument("--report", action="store_true", help="write reports/benchmark_solver.md")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", nargs=2, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    one_device_per_core()
    if options.one:
        return run_one(*options.one)
    compared = compare(options.repeats)
    sizes = [12_500, 25_000, 50_000, 100_000, 200_000, 400_000]
    growth = grow(sizes + [1_000_000] * options.large, options.repeats)
    ratios = ratios_of(compared, growth)
    show_report(render(compared, growth, ratios), "benchmark_solver", keep=options.report)
    print(json.dumps({name: round(float(value), 5) for name, value in ratios.items()}))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
