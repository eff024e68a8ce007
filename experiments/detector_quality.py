"""Tables of label precision, by split size and PCA dimension.

    python -m experiments.detector_quality mnist_sym40.npz cifar10_sym40.npz --report

Each file holds `features` [N, d], `given` and `true` labels [N]. Half of each class is kept.
"""

import argparse
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from experiments.harness.provenance import origin, show_report
from experiments.harness.study import table
from spr_jax.devices import device_mesh, one_device_per_core
from spr_jax.solver import Options, clean_set, plan_pieces

PER_CLASS = (10, 50, 500, None)
PCA_DIMS = (10, 16, 32, 64, 128, 256)
SUBSETS = (500, 1000, 2000, 5000, 10_000)


def measure(features, given, true, per_class, pca_dim):
    """Measure the label precision of the kept half and the seconds of a warm call."""
    mesh = device_mesh()
    plan = plan_pieces(given, per_class=per_class, multiple_of=mesh.size)
    arrays = jnp.asarray(features), jnp.asarray(given), jax.random.key(0)
    options = Options(pca_dim=pca_dim, intercept=per_class is None)  # as in find_label_errors
    for _ in range(2):  # the first call compiles
        start = time.perf_counter()
        found = jax.block_until_ready(clean_set(*arrays, plan=plan, options=options, mesh=mesh))
        seconds = time.perf_counter() - start
    return np.mean((given == true)[np.asarray(found.clean)]), seconds


def table_of_pieces(features, given, true, name) -> str:
    dims = [dim for dim in PCA_DIMS if dim <= features.shape[1]]
    rows = []
    for per_class in tqdm(PER_CLASS, name):
        cells = [measure(features, given, true, per_class, dim) for dim in dims]
        title = "whole data" if per_class is None else f"{per_class} per class"
        rows.append([title, *(f"{share:.4f} ({seconds:.2f} s)" for share, seconds in cells)])
    return table(["piece", *(f"{dim} components" for dim in dims)], rows)


def table_of_sizes(features, given, true, name) -> str:
    """A table of whole-data fits to random subsets: the components that n examples support."""
    dims = [dim for dim in PCA_DIMS if dim <= min(64, features.shape[1])]
    rows = []
    for size in tqdm([size for size in SUBSETS if size < len(given)], f"{name}, subsets"):
        draws = [np.random.default_rng(seed).permutation(len(given))[:size] for seed in range(4)]
        cells = [
            np.mean([measure(features[i], given[i], true[i], None, dim)[0] for i in draws])
            for dim in dims
        ]
        rows.append([f"{size:,}", *(f"{share:.4f}" for share in cells)])
    return table(["examples", *(f"{dim} components" for dim in dims)], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--report", action="store_true", help="write reports/detector_quality.md")
    options = parser.parse_args()
    one_device_per_core()
    sections = []
    for path in options.files:
        with np.load(path, allow_pickle=False) as file:
            features = file["features"].astype(np.float32)
            given, true = file["given"].astype(np.int32), file["true"].astype(np.int32)
        arrays = features, given, true
        sections.append(
            f"## {path.stem}: {len(given):,} examples, {features.shape[1]} features, "
            f"{np.mean(given == true):.1%} of the labels correct\n\n"
            f"{table_of_pieces(*arrays, path.stem)}\n\n"
            f"Whole data with fewer examples (mean of four random subsets):\n\n"
            f"{table_of_sizes(*arrays, path.stem)}\n"
        )
    report = "\n".join(
        [
            "# How many of the kept labels are correct\n",
            f"{origin()}\n",
            "Fraction of correct labels in the kept half of each class, and seconds of a warm "
            "call.\n",
            *sections,
        ]
    )
    show_report(report, "detector_quality", keep=options.report)


if __name__ == "__main__":
    main()
