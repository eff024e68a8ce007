"""Sets of labels with known noise on the features of a file, to measure detectors with.

A file holds `features` [N, d], `given` and `true` labels [N], and for human labels `index` [N] into
the data set. Its own labels are those that its network learned from; others are redrawn from the
true ones, or come from people (CIFAR-10N).
"""

import argparse
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from spr_jax.io.arrays import load_arrays
from spr_jax.io.atomic import replace_file
from spr_jax.noise import PAIRS, asymmetric, symmetric
from spr_jax.training.log import read_rows
from spr_jax.training.provenance import commit

Row = dict[str, Any]

HUMAN = ("aggre_label", "random_label1", "random_label2", "random_label3", "worse_label")
FIRST_SEED = 1000  # of redrawn labels; the noise model was developed with seeds below 100


class Case(NamedTuple):
    """A set of labels on the features of a file."""

    file: Path
    data: str  # name of the data set, whose pairs of classes asymmetric noise confuses
    labels: str  # "own", "none", "symmetric 0.4", "worse_label"
    kind: str  # of noise
    seed: int = 0

    def identity(self, most_rows: int) -> Row:
        return self._replace(file=self.file.stem)._asdict() | {"most_rows": most_rows}


def dataset_of(stem: str) -> str:
    """The data set of a file named DATASET_...; empty if it is unknown."""
    return next((name for name in PAIRS if stem.startswith(name)), "")


def kind_of(stem: str) -> str:
    """The noise of a file's own labels, from a name such as mnist_asym40_e1."""
    named = re.search(r"_(none|sym|asym)\d*(_|$)", stem)
    kinds = {"none": "none", "sym": "symmetric", "asym": "asymmetric"}
    return kinds[named[1]] if named else "unknown"


def is_redrawn(stem: str) -> bool:
    """True for DATASET_sym40, on whose features labels are redrawn."""
    return re.fullmatch(rf"({'|'.join(PAIRS)})_sym40", stem) is not None


def cases_of(
    file: Path,
    data: str,
    rates: Mapping[str, Sequence[float]],  # by kind of noise
    seeds: int,
    *,
    redraw: bool,
    human: bool,
) -> list[Case]:
    """The cases of one file; only redrawn labels have several seeds."""
    cases = [Case(file, data, "own", kind_of(file.stem))]
    if redraw:
        cases.append(Case(file, data, "none", "none"))
        cases += [
            Case(file, data, f"{kind} {rate}", kind, FIRST_SEED + seed)
            for kind in (rates if data in PAIRS else ("symmetric",))
            for rate in rates[kind]
            for seed in range(seeds)
        ]
        if human and data == "cifar10":
            cases += [Case(file, data, name, "human") for name in HUMAN]
    return cases


@lru_cache(maxsize=1)
def read_examples(path: Path, most_rows: int) -> dict[str, np.ndarray]:
    """The arrays of a file, cut to a fixed random choice of at most `most_rows` examples.

    Raises:
      ValueError: the file lacks an array.
    """
    arrays = load_arrays(path)
    kinds = {"features": np.float32, "given": np.int32, "true": np.int32}
    missing = set(kinds) - set(arrays if isinstance(arrays, dict) else ())
    if missing:
        raise ValueError(
            f"{path} has no {', '.join(sorted(missing))}; expected an .npz file of features [N, d] "
            "with given and true labels [N]."
        )
    chosen = np.sort(np.random.default_rng(0).permutation(len(arrays["given"]))[:most_rows])
    return {
        name: array[chosen].astype(kinds.get(name, array.dtype)) for name, array in arrays.items()
    }


def check_files(parser: argparse.ArgumentParser, files: Sequence[Path]) -> None:
    """Report a bad file at once, rather than after an hour spent on those before it."""
    try:
        for path in files:
            read_examples(path, 1)
    except ValueError as error:
        parser.error(str(error))


def labels_of(case: Case, arrays: Mapping[str, np.ndarray], human: Path | None) -> np.ndarray:
    """Labels [N] with the noise of the case; `human` is the file of human labels."""
    true = arrays["true"].astype(np.int32)
    if case.labels == "own":
        return arrays["given"].astype(np.int32)
    if case.kind == "none":
        return true
    if case.kind == "human":
        if "index" not in arrays:
            raise ValueError(f"{case.file} has no `index`, which human labels are looked up by.")
        return load_arrays(human)[case.labels][arrays["index"]].astype(np.int32)
    rate = float(case.labels.split()[1])
    if case.kind == "symmetric":
        return symmetric(true, rate, num_classes=int(true.max()) + 1, seed=case.seed)
    return asymmetric(true, rate, pairs=PAIRS[case.data], seed=case.seed)


def measure_all(
    measure: Callable[[np.ndarray, np.ndarray, np.ndarray, int], Row],
    cases: Sequence[Case],
    store: Path,
    most_rows: int,
    human: Path | None,
) -> list[Row]:
    """The row of each case: stored in `store`, or `measure(features, given, true, seed)`.

    Every new row is stored at once, so an interrupted command resumes, and a report is made again
    without measuring.
    """
    store.parent.mkdir(parents=True, exist_ok=True)
    rows, here = read_rows(store), commit()
    with replace_file(store) as file:  # drops an incomplete last line
        file.writelines(json.dumps(row) + "\n" for row in rows)
    known = {json.dumps(row["run"]): row for row in rows}
    names = [case.identity(most_rows) for case in cases]
    for case, name in zip(bar := tqdm(cases, "Label sets"), names, strict=True):
        bar.set_postfix_str(f"{case.file.stem}, {case.labels}")
        if json.dumps(name) in known:
            continue
        arrays = read_examples(case.file, most_rows)
        given = labels_of(case, arrays, human)
        start = time.perf_counter()
        row = measure(arrays["features"], given, arrays["true"], case.seed)
        row = {"run": name, "commit": here, "seconds": time.perf_counter() - start} | row
        known[json.dumps(name)] = row
        with open(store, "a") as file:
            file.write(json.dumps(row) + "\n")
    return [known[json.dumps(name)] for name in names]
