"""Table 4: time of one epoch's selection, with the paper's split and without it.

    python -m experiments.table4_time            # about five minutes on two cores
    python -m experiments.table4_time --small    # scikit-learn on fewer sizes
    python -m experiments.table4_time --read     # report the last measurement again

50,000 x 512 features of 10 classes, 40 % of the labels wrong; all times come from this one run. The
paper splits the data because a penalty path over all of it took hours. So it does with
scikit-learn, whose design is dense, n x n; it is timed on the first n examples and extrapolated.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import jax
import numpy as np
from tqdm import tqdm

from experiments import paper_results
from experiments.benchmark_solver import (
    NUM_CLASSES,
    PAPER,
    PROGRAMS,
    compile_clean_set,
    make_features,
    seconds_of,
    sklearn_workers,
    solve_with_sklearn,
    spread,
    start_worker,
)
from experiments.harness import study
from experiments.harness.provenance import origin
from experiments.harness.runs import load_config
from experiments.harness.study import table
from spr_jax.devices import one_device_per_core
from spr_jax.io.atomic import check_folder, write_json
from spr_jax.methods import METHODS
from spr_jax.methods.method import Epoch
from spr_jax.registry import build
from spr_jax.solver import plan_pieces
from spr_jax.solver.pieces import Pieces, cut_pieces
from spr_jax.training.config import resolve

NAME = "table4_time"
NUM_EXAMPLES, DIMENSION = 50_000, 512
SIZES = (500, 1000, 2000, 3000, 4000)  # of whole data, for scikit-learn
SMALL_SIZES = (250, 500, 1000)
TURNS, CALLS = 3, 7  # in a turn scikit-learn is called once, ours seven times
SPLIT, WHOLE = "split, scikit-learn", "whole, scikit-learn"
TITLES = {
    SPLIT: "split, scikit-learn, a process for each core",
    "split": "split, ours",
    WHOLE: "whole data, scikit-learn, extrapolated",
    "whole, 10": "whole data, ours, the same problem: 10 components",
    "whole, 64": "whole data, ours, 64 components",
    "noise_model": "whole data, ours, the selection of preset `noise_model` (no path)",
}
PRINTED = {SPLIT: paper_results.TABLE4["split"], WHOLE: paper_results.TABLE4["whole"]}


def measure(sizes: Sequence[int], num_examples: int, dimension: int) -> dict:
    """Time every call, and both solvers on whole data of growing size; in seconds."""
    features, labels = make_features(num_examples, dimension)
    growth = time_growth(features, labels, sizes)
    calls = {
        name: compile_clean_set(features, labels, per_class, options)[0]
        for name, (per_class, options) in PROGRAMS.items()
    }
    calls["noise_model"] = selection("noise_model", features, labels)
    seconds = {name: [] for name in [SPLIT, *calls]}
    with sklearn_workers(features, split_pieces(labels)) as solve:
        for call in calls.values():
            call()  # compiles
        for _ in tqdm(range(TURNS), "split and whole data in turn"):
            seconds[SPLIT].append(seconds_of(lambda: solve("auto")))
            for name, call in calls.items():
                seconds[name] += [seconds_of(call) for _ in range(CALLS)]
    return {"examples": num_examples, "seconds": seconds, "growth": growth}


def split_pieces(labels) -> Pieces:
    """The paper's pieces: ten examples of each class."""
    plan = plan_pieces(labels, per_class=10)
    cut = jax.jit(partial(cut_pieces, plan=plan))
    return cut(labels, np.arange(NUM_CLASSES)[None], jax.random.key(0))


def selection(preset: str, features, labels) -> Callable:
    """The selection of a run on CIFAR-10 after an epoch, as a call on features in memory."""
    config = load_config("configs/cifar10_sym.py", "spr")
    config.preset = preset
    resolve(config)
    method = build(METHODS, config.method)
    memory = method.init(labels, int(labels.max()) + 1)
    epoch = Epoch(
        number=0,
        labels=labels,
        record={"features": jax.device_put(features)},
        visited=np.ones(len(labels), bool),
        position=np.arange(len(labels)),
    )
    return lambda: jax.block_until_ready(method.revise(memory, epoch, jax.random.key(0)))


def time_growth(features, labels, sizes: Sequence[int]) -> list[dict]:
    """Time whole data of growing size: scikit-learn's path, on all cores, and ours."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder, "features.npy"), features[: max(sizes)])
        start_worker(str(Path(folder, "features.npy")))  # this process is its worker
        solve_with_sklearn((np.arange(100), labels[:100]), "auto")  # imports
        for n in tqdm(sizes, "whole data by size"):
            ours, _ = compile_clean_set(features[:n], labels[:n], None, PAPER)
            ours()
            piece = np.arange(n), labels[:n]
            theirs = seconds_of(lambda piece=piece: solve_with_sklearn(piece, "auto"))
            median = float(np.median([seconds_of(ours) for _ in range(CALLS)]))
            rows.append({"examples": n, "scikit-learn": theirs, "ours": median})
    return rows


def extrapolate(growth: Sequence[Mapping], num_examples: int) -> tuple[float, float]:
    """Seconds at n examples by c n^2, fitted to the logarithms; and the exponent of a free fit.

    A round of coordinate descent over n columns of length n is quadratic.
    """
    sizes = np.log([row["examples"] for row in growth])
    seconds = np.log([row["scikit-learn"] for row in growth])
    coefficient = np.exp(np.mean(seconds - 2 * sizes))
    return float(coefficient * num_examples**2), float(np.polyfit(sizes, seconds, 1)[0])


def duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds:.3g} s"


def lines_of(measured: Mapping) -> list[list]:
    """The rows of the table: title, median seconds, their spread, the paper's seconds."""
    whole, _ = extrapolate(measured["growth"], measured["examples"])
    lines = []
    for name, title in TITLES.items():
        if name == WHOLE:
            found = whole, None
        else:
            times = measured["seconds"][name]
            found = float(np.median(times)), spread(times)
        lines.append([title, *found, PRINTED.get(name)])
    return lines


def render(measured: Mapping) -> list[str]:
    num_examples, growth = measured["examples"], measured["growth"]
    whole, exponent = extrapolate(growth, num_examples)
    ours = float(np.median(measured["seconds"]["whole, 10"]))
    lines = [
        [title, duration(seconds), "" if around is None else f"{around:.3f}", duration(printed)]
        for title, seconds, around, printed in lines_of(measured)
    ]
    by_size = [
        [
            f"{row['examples']:,}",
            f"{row['scikit-learn']:.3f}",
            f"{row['ours']:.4f}",
            f"{row['scikit-learn'] / row['ours']:,.0f}",
        ]
        for row in growth
    ]
    return [
        "# Table 4: time of one epoch's selection",
        measured["origin"],
        f"{num_examples:,} examples; medians of warm calls that take turns, spread is half the "
        "distance between the quartiles. The paper's 54 s are for a whole epoch of CIFAR-10 on "
        "hardware that it does not name, so only the ratio of its two numbers can be compared.",
        table(["", "time", "spread, s", "paper"], lines),
        f"Whole data takes 1/{whole / ours:,.0f} of scikit-learn's time for the same problem.",
        "## Whole data by size, seconds",
        table(["examples", "scikit-learn", "ours", "ratio"], by_size),
        f"Extrapolated by c n^2; a free exponent would be {exponent:.2f}. At {num_examples:,} "
        f"examples the dense design alone is {8 * num_examples**2 / 1e9:.0f} GB.",
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = study.report_arguments(__doc__, NAME)
    options = study.parse(parser, arguments)
    try:
        path = check_folder(options.out) / f"{options.name}.json"
    except ValueError as error:
        parser.error(str(error))
    if options.read and not path.exists():
        parser.error(f"There is no {path}; measure first, without --read.")
    if not options.read:
        one_device_per_core()
        measured = measure(SMALL_SIZES if options.small else SIZES, NUM_EXAMPLES, DIMENSION)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, measured | {"origin": origin("scikit-learn")})
    measured = json.loads(path.read_text())
    command = f"python -m experiments.{NAME}" + " --small" * options.small
    rows = [["", "seconds", "spread", "paper, seconds", "command"]]
    rows += [[*line, command] for line in lines_of(measured)]
    study.write_report(options, render(measured), rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
