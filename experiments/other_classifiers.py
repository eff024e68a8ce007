"""Classifiers of scikit-learn and cleanlab on the label sets of a study, beside its runs.

They learn from the same vectors and given labels as the runs. A result is stored as soon as it is
there, so an interrupted study resumes.
"""

import time
import warnings
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path

from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tqdm import tqdm

from experiments.harness.runs import Run, config_of
from experiments.harness.study import Cells, spread, table
from spr_jax.io.atomic import read_json, write_json
from spr_jax.training.build import make_run
from spr_jax.training.provenance import commit


def logistic_regression(seed: int):
    """Scikit-learn's, behind a scaler, which it leaves to the user."""
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))


def clean_learning(seed: int):
    """Cleanlab's, around the same logistic regression; the package is needed only here."""
    from cleanlab.classification import CleanLearning

    return CleanLearning(logistic_regression(seed), seed=seed)


CLASSIFIERS: Mapping[str, Callable] = {
    "logistic regression": logistic_regression,
    "CleanLearning": clean_learning,
}


def measure(cells: Cells, options: Namespace) -> None:
    """Fit every classifier to the labels of every cell whose result is not stored yet."""
    jobs = [(name, run) for runs in cells.values() for run in runs for name in CLASSIFIERS]
    jobs = [job for job in jobs if not path_of(*job, options.out).exists()]
    for name, run in tqdm(jobs, "other classifiers"):
        data = make_run(config_of(run)).dataset
        start = time.perf_counter()
        with warnings.catch_warnings(action="ignore"):  # not converged in 1,000 iterations
            model = CLASSIFIERS[name](run.seed).fit(data.train.images, data.train.labels)
        accuracy = float(model.score(data.tests["test"].images, data.tests["test"].labels))
        took, path = time.perf_counter() - start, path_of(name, run, options.out)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {"accuracy": accuracy, "seconds": took, "commit": commit()})


def path_of(name: str, run: Run, out: Path) -> Path:
    """The file of a result; its name has what decides the labels."""
    fields = dict(run.overrides)
    labels = Path(fields.get("dataset.labels", "")).stem
    noise = labels or f"{fields['noise.kind']}-{fields['noise.rate']}"
    return Path(out, "other_classifiers", f"{name.replace(' ', '_')},{noise},seed={run.seed}.json")


def results_of(cells: Cells, options: Namespace) -> dict[tuple[str, str], list[float]]:
    """(classifier, noise) -> stored test accuracies, in per cent."""
    found = {}
    for (*_, noise), runs in cells.items():
        for name in CLASSIFIERS:
            stored = [read_json(path_of(name, run, options.out)) for run in runs]
            found[name, noise] = [100 * one["accuracy"] for one in stored if one]
    return found


def render(cells: Cells, options: Namespace) -> str:
    """Classifiers in rows, noise in columns; empty while nothing is stored."""
    found = results_of(cells, options)
    if not any(found.values()):
        return ""
    noises = list(dict.fromkeys(noise for _, noise in found))
    rows = [[name, *(spread(found[name, noise]) for noise in noises)] for name in CLASSIFIERS]
    return table(["classifier", *noises], rows)
