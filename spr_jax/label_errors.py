"""Find the label errors of a data set from the features of its examples.

On one's own arrays, NumPy in, NumPy out:

    found = find_label_errors(features, labels)
    found.noise.rate, found.noise.interval    # the share of wrong labels
    found.order[:100]                         # the most suspect examples
    sure = find_label_errors(features, labels, max_noise_in_clean=0.05).clean
    weights = sample_weights(features, labels)  # of the losses, in any training loop
"""

import contextlib
import math
import numbers
from typing import NamedTuple

import jax
import numpy as np
from tqdm import tqdm

from spr_jax.devices import device_mesh
from spr_jax.files import shown
from spr_jax.levels import flag_surest, is_explained, keep_cleanest
from spr_jax.solver import Options, clean_set, plan_pieces
from spr_jax.solver.noise_model import label_noise

MAX_PCA_DIM = 64
MAX_CLASSES_PER_GROUP = 100


class Noise(NamedTuple):
    """How many labels are wrong; by class: in the order of `classes`, by given label."""

    rate: float
    interval: tuple[float, float]
    classes: np.ndarray  # [c]
    by_class: np.ndarray  # [c]
    by_class_interval: np.ndarray  # [c, 2]
    confusion: np.ndarray  # [c, c], of a given class, the share that each class truly has
    explained: bool  # whether the features say anything of the labels; if not, nothing here does


class Promise(NamedTuple):
    """A level of mistakes that was asked for, and which classes keep it."""

    level: float
    of: str  # "clean": wrong labels among the kept; "suspects": right ones among the flagged
    attained: np.ndarray  # [c] bool; a class that cannot keep the level has none kept, or flagged
    lowest: np.ndarray  # [c], the lowest level that each class supports


class Detection(NamedTuple):
    clean: np.ndarray  # [N] bool; the rest is suspect
    entry: np.ndarray  # [N], penalty at which the example left zero: larger, more suspect
    suggested: np.ndarray  # [N], the most probable label
    gap: float  # largest relative duality gap on the path: how well the answer is converged
    wrong: np.ndarray  # [N], chance that the label is wrong
    order: np.ndarray  # [N], indices of the examples, the most suspect first
    noise: Noise
    promise: Promise | None  # None if no level was asked for

    @property
    def rank(self) -> np.ndarray:
        """[N], the place of each example in `order`, from 1."""
        return np.argsort(self.order) + 1

    def to_frame(self):
        """A pandas DataFrame, a row for each example in the order given; needs pandas."""
        try:
            import pandas
        except ImportError:
            raise ImportError(
                "to_frame needs pandas, which is not installed; pip install pandas."
            ) from None
        return pandas.DataFrame(
            {
                "suspect": ~self.clean,
                "wrong": self.wrong,
                "entry": self.entry,
                "rank": self.rank,
                "suggested": self.suggested,
            }
        )


def find_label_errors(
    features: np.ndarray,  # [N, d]
    labels: np.ndarray,  # [N], integers from 0, or class names
    *,
    max_noise_in_clean: float | None = None,
    max_false_alarms: float | None = None,
    keep: float | None = None,
    per_class: int | None = None,
    pca_dim: int | None = None,
    classes_per_group: int | None = None,
    seed: int = 0,
    progress: bool = False,
) -> Detection:
    """Estimate how many labels are wrong, and which.

    Without further options the examples whose label is more likely wrong than right are suspect.

    Args:
      features: one row for each example, from any network or descriptor; bring columns of
        very different scales to one scale first, the largest would drown the others.
      labels: as given, possibly wrong.
      max_noise_in_clean: call as many examples clean as can be with at most this share of wrong
        labels among them, class by class; `promise` says which classes can keep it.
      max_false_alarms: call as many suspect as can be with at most this share of right labels
        among them. Both levels are met on average over data sets like those in
        experiments/reports/error_control.md, not for certain.
      keep: instead, the share of each class to call clean, those that left zero last (SPR's own
        rule, which ranks by `entry`).
      per_class: examples of each class in a piece; 10 is the paper's split. None, the default,
        solves the whole data at once (with an intercept, as classes then differ in size),
        which finds more errors than small pieces.
      pca_dim: principal components the regression sees. None takes sqrt(rows of a piece) / 2,
        at most 64, but one for each class. On features of networks trained on 40 % wrong
        labels, whole data, half kept, 99.91 / 99.95 / 99.95 % (MNIST) and 90.0 / 91.7 / 91.8 %
        (CIFAR-10) of the kept labels were right with 10 / 32 / 64 components, and no more with
        all of them; fewer examples bear fewer components, and in pieces of 100 more than 10
        did harm (`experiments/reports/detector_quality.md`).
      classes_per_group: solve so many classes at a time, unlike ones together. None takes all
        of them, at most 100.
      seed: of the random split; whole data needs none.
      progress: show how many examples have entered the path of the whole data.

    Raises:
      ValueError: in one sentence, what was given and what is expected.
    """
    features = _check_features(features)
    classes, codes = _check_labels(labels, len(features))
    levels = {"max_noise_in_clean": max_noise_in_clean, "max_false_alarms": max_false_alarms}
    _check_options(levels, keep, per_class, pca_dim, classes_per_group, seed)
    plan, options, mesh = _plan(features, codes, per_class, pca_dim, classes_per_group)
    if progress:
        options = options._replace(report=_show_progress)
    with _progress_bar() if progress else contextlib.nullcontext():
        path = jax.device_get(
            clean_set(
                features,
                codes,
                jax.random.key(seed),
                keep=0.5 if keep is None else keep,
                plan=plan,
                options=options,
                mesh=mesh,
            )
        )
    dim = pca_dim or components_for(len(features), num_classes=plan.classes_per_group)
    model = jax.device_get(label_noise(features, codes, num_classes=len(classes), pca_dim=dim))
    if keep is None:
        clean, promise = _choose(model, codes, **levels)
        order = np.lexsort((-path.entry, -model.wrong))
    else:
        clean, promise, order = path.clean, None, np.argsort(-path.entry, kind="stable")
    return Detection(
        clean=clean,
        entry=path.entry,
        suggested=classes[model.suggested],
        gap=float(path.gap),
        wrong=model.wrong,
        order=order,
        noise=_describe_noise(model, classes),
        promise=promise,
    )


def sample_weights(
    features: np.ndarray,  # [N, d]
    labels: np.ndarray,  # [N], integers from 0, or class names
    **options,
) -> np.ndarray:
    """[N] from 0 to 1, the chance that each label is right: its weight in a training loss.

    What is surely wrong is left out, what is doubtful counts a little. Features and options are
    those of `find_label_errors`.
    """
    return 1 - find_label_errors(features, labels, **options).wrong


def _plan(features, codes, per_class, pca_dim, classes_per_group):
    """What is solved together, how, and on which devices."""
    is_tall = len(features) > features.shape[1]  # else there is nothing to gain
    mesh = device_mesh() if jax.local_device_count() > 1 and is_tall else None
    plan = plan_pieces(
        codes,
        per_class=per_class,
        classes_per_group=classes_per_group or MAX_CLASSES_PER_GROUP,
        multiple_of=mesh.size if mesh else 1,
    )
    dim = pca_dim or components_for(plan.rows, num_classes=plan.classes_per_group)
    return plan, Options(pca_dim=dim, intercept=per_class is None), mesh


def _choose(model, codes, max_noise_in_clean, max_false_alarms):
    """The clean set by the noise model, and the promise if a level was asked for."""
    if max_noise_in_clean is not None:
        kept = keep_cleanest(model, codes, max_noise_in_clean)
        return kept.chosen, Promise(max_noise_in_clean, "clean", kept.attained, kept.lowest)
    if max_false_alarms is not None:
        flagged = flag_surest(model, codes, max_false_alarms)
        found = Promise(max_false_alarms, "suspects", flagged.attained, flagged.lowest)
        return ~flagged.chosen, found
    return model.wrong <= 0.5, None


def _describe_noise(model, classes) -> Noise:
    return Noise(
        rate=float(model.rate[0]),
        interval=(float(model.low[0]), float(model.high[0])),
        classes=classes,
        by_class=model.rate[1:],
        by_class_interval=np.stack([model.low[1:], model.high[1:]], axis=1),
        confusion=model.confusion,
        explained=is_explained(model),
    )


def components_for(rows: int, *, num_classes: int) -> int:
    """Principal components that so many rows bear: sqrt(rows) / 2, at most 64, one a class."""
    return max(num_classes, min(math.isqrt(rows // 4), MAX_PCA_DIM))


def _as_array(values, name) -> np.ndarray:
    try:
        return np.asarray(values)
    except ValueError:
        raise ValueError(f"{name} are not one array: their rows differ in length.") from None


def _check_features(features) -> np.ndarray:
    features = _as_array(features, "Features")
    if features.dtype.kind not in "fiub":
        raise ValueError(f"Features have the type {features.dtype}; expected numbers.")
    if features.ndim != 2:
        raise ValueError(
            f"Features have the shape {features.shape}; expected [examples, features], one row "
            "for each example."
        )
    if features.size == 0:
        raise ValueError(f"Features are empty, of shape {features.shape}; expected some rows.")
    # One number a row is enough to see what is not finite, without a copy of the whole.
    extreme = np.maximum(features.max(axis=1), -features.min(axis=1).astype(np.float64))
    wrong = np.flatnonzero(~(extreme < np.finfo(np.float32).max))
    if len(wrong):
        raise ValueError(
            f"{len(wrong)} rows of the features hold NaN or infinite values, the first at index "
            f"{wrong[0]}; expected finite numbers (of at most 3e38): repair or drop these rows."
        )
    scale = max(extreme.max(), np.finfo(np.float64).tiny)
    if features.dtype == np.float64:  # a common offset would not survive single precision
        features = features / scale
        features -= features.mean(axis=0)
    elif not 1e-6 < scale < 1e6:  # squares must stay within single precision
        features = features / features.dtype.type(scale)
    return features.astype(np.float32, copy=False)


def _check_labels(labels, num_features: int) -> tuple[np.ndarray, np.ndarray]:
    """Names of the classes [c] and the labels as positions among them [N]."""
    labels = _as_array(labels, "Labels")
    if labels.ndim != 1:
        raise ValueError(f"Labels have the shape {labels.shape}; expected [examples].")
    if len(labels) != num_features:
        raise ValueError(
            f"Got {num_features} rows of features but {len(labels)} labels; they must match "
            "(in a file, a line of column names must be called 'label')."
        )
    if labels.dtype.kind == "S":
        labels = np.char.decode(labels, "utf-8", "replace")
    if labels.dtype.kind == "O" and len({type(label) for label in labels}) == 1:
        labels = np.array(labels.tolist())
    if labels.dtype.kind not in "iubfU":
        raise ValueError(f"Labels have the type {labels.dtype}; expected integers or class names.")
    if labels.dtype.kind == "f":
        wrong = np.flatnonzero(~((np.abs(labels) < 2**53) & (labels == np.round(labels))))
        if len(wrong):
            raise ValueError(
                f"{len(wrong)} labels are not integers, the first is {labels[wrong[0]]} at index "
                f"{wrong[0]}; expected integers from 0 or class names."
            )
        labels = labels.astype(np.int64)
    if labels.dtype.kind == "i" and labels.min() < 0:
        first = np.flatnonzero(labels < 0)[0]
        raise ValueError(
            f"{(labels < 0).sum()} labels are negative, the first is {labels[first]} at index "
            f"{first}; expected integers from 0 or class names."
        )
    classes, codes = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"All labels are {shown(classes[0])}; expected at least two classes.")
    return classes, codes.astype(np.int32)


def _check_options(levels, keep, per_class, pca_dim, classes_per_group, seed) -> None:
    given = {name: value for name, value in {**levels, "keep": keep}.items() if value is not None}
    for name, value in given.items():
        if not isinstance(value, numbers.Real) or not 0 < value < 1:
            raise ValueError(f"{name} is {value!r}; expected a share between 0 and 1, such as 0.1.")
    if len(given) > 1:
        both = " and ".join(f"{name}={value!r}" for name, value in given.items())
        raise ValueError(f"Got {both}; give one of them, each says by itself what is clean.")
    counts = {"per_class": per_class, "pca_dim": pca_dim, "classes_per_group": classes_per_group}
    for name, value in counts.items():
        lowest = 2 if name == "classes_per_group" else 1
        if value is None:
            continue
        if not isinstance(value, numbers.Integral) or value < lowest:
            raise ValueError(f"{name} is {value!r}; expected {lowest} or more, or none.")
    if not isinstance(seed, numbers.Integral) or not 0 <= seed < 2**32:
        raise ValueError(f"seed is {seed!r}; expected an integer from 0 to 4294967295.")


_bars: list[tqdm] = []


def _show_progress(share) -> None:
    """Called from within the solver; one function, so that it is compiled only once."""
    for bar in _bars:
        bar.update(max(round(float(share) * bar.total) - bar.n, 0))


@contextlib.contextmanager
def _progress_bar():
    form = "{desc}: {percentage:3.0f}% |{bar}| {elapsed}"
    with tqdm(total=100, desc="Examples entered", bar_format=form, leave=False) as bar:
        _bars.append(bar)
        try:
            yield
        finally:
            jax.effects_barrier()
            _bars.remove(bar)
