"""Find the label errors of a data set from the features of its examples.

Arrays, tensors, frames or sparse matrices in (`io/inputs.py`), NumPy arrays out:

    found = find_label_errors(features, labels)
    found.noise.rate, found.noise.interval    # the fraction of wrong labels
    found.order[:100]                         # the most suspect examples
    clean = find_label_errors(features, labels, max_noise_in_clean=0.05).clean
    weights = sample_weights(features, labels)  # for the losses of any training loop
"""

import contextlib
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from spr_jax.detection.error_control import flag_surest, is_explained, keep_cleanest
from spr_jax.detection.options import MAX_CLASSES_PER_GROUP, DetectorOptions, components_for
from spr_jax.detection.progress import PATH_PROGRESS
from spr_jax.detection.scaling import scale_if_better
from spr_jax.detection.streamed import fit_streamed
from spr_jax.detection.suspects import worth_a_look
from spr_jax.detection.types import Detection, Noise, Promise
from spr_jax.devices import device_mesh
from spr_jax.io.arrays import read_features
from spr_jax.io.inputs import SPARSE_COMPONENTS, check_features, check_labels
from spr_jax.io.rows import Rows, open_rows
from spr_jax.solver import Options, clean_set, plan_pieces
from spr_jax.solver.label_noise import READING_WEIGHTS, label_noise

IN_MEMORY = 2**29  # bytes of features in files, in single precision, beyond which they stay there


def find_label_errors(
    features: Any,  # [N, d]
    labels: Any,  # [N], integers from 0, or class names
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

    By default those examples are suspect that are worth a look: a list of them can be expected to
    have the highest F1 (`suspects.py`). With good features these are the labels that are more
    likely wrong than correct.

    Args:
      features: one row for each example, from any network or descriptor: an array, a list, a
        pandas frame, a PyTorch tensor, a column of a Hugging Face data set, a sparse matrix. Or
        files that need not fit in memory: the path of a .npy file, of a folder of them or a list of
        paths, or a memory-mapped array. Beyond 0.5 GB they are read block by block, in some
        seventy passes. Columns are brought to one scale where that predicts the labels better.
      labels: as given, possibly wrong: an array, a list, a pandas column, a tensor.
      max_noise_in_clean: upper bound on the fraction of wrong labels in the clean set, class by
        class; as many examples as possible are kept. `promise` says which classes can keep it.
      max_false_alarms: upper bound on the fraction of correct labels among the suspects; as many
        examples as possible are flagged. Both bounds hold on average over data sets like those
        in experiments/reports/error_control.md, not with certainty.
      keep: instead, the fraction of each class to call clean: the examples that enter the path
        last (SPR's own rule, which ranks by `entry_penalty`).
      per_class: examples of each class in a piece; 10 is the paper's split. None, the default,
        solves the whole data at once, with an intercept since classes then differ in size.
      pca_dim: principal components that the regression sees. None takes sqrt(rows of a piece) / 2,
        at most 64 but at least one per class: small data sets support fewer components
        (measured in docs/results.md).
      classes_per_group: solve this many classes at a time, dissimilar ones together. None takes
        all of them, at most 100.
      seed: decides the random split into pieces; the whole data needs none.
      progress: show how many examples have entered the path of the whole data; of files that are
        read block by block, how far each pass is.

    Returns:
      A `Detection`: for every example whether it is clean, the probability that its label is
      wrong and the most probable label; the examples ordered by suspicion; the estimated noise.

    Raises:
      ValueError: in one sentence, what was given and what is expected.

    Example:
      >>> found = find_label_errors(features, labels)
      >>> suspects = found.order[: (~found.clean).sum()]
      >>> list(zip(labels[suspects], found.suggested[suspects], found.error_probability[suspects]))
    """
    options = DetectorOptions(
        max_noise_in_clean,
        max_false_alarms,
        keep,
        per_class,
        pca_dim,
        classes_per_group,
        seed,
        progress,
    )
    options.check()
    return decide(fit_detector(features, labels, options), options)


def sample_weights(
    features: Any,  # [N, d]
    labels: Any,  # [N], integers from 0, or class names
    **options,
) -> np.ndarray:
    """Compute weights for a training loss: the probability that each label is correct.

    A label that is surely wrong gets no weight, a doubtful one a little.

    Args:
      features: as for `find_label_errors`.
      labels: as for `find_label_errors`.
      **options: of `find_label_errors`.

    Returns:
      [N] from 0 to 1.

    Raises:
      ValueError: in one sentence, what was given and what is expected.
    """
    return 1 - find_label_errors(features, labels, **options).error_probability


class Fitted(NamedTuple):
    """What is known of the labels before a criterion decides which are suspect."""

    path: Any  # a solution of `solver.clean_set`, and
    model: Any  # a LabelNoise; both as NumPy arrays
    classes: np.ndarray  # [c], sorted
    codes: np.ndarray  # [N], given labels as positions in `classes`


def read_or_open(path: str | Path) -> np.ndarray | Rows:
    """Read a file, or a folder of .npy files; only open it if it is larger than IN_MEMORY."""
    path = Path(path)
    may_be_large = path.suffix.lower() == ".npy" and path.is_file()
    if not path.is_dir() and not (may_be_large and path.stat().st_size > IN_MEMORY):
        return read_features(path)
    rows = open_rows(path)
    assert rows is not None
    return rows if rows.nbytes > IN_MEMORY else rows.read(0, len(rows))


def fit_detector(features: Any, labels: Any, options: DetectorOptions) -> Fitted:
    """Check the input, solve the path and fit the noise model."""
    rows = open_rows(features)
    if rows is not None and rows.nbytes > IN_MEMORY:
        path, model, classes, codes = fit_streamed(rows, labels, options)
    else:
        features = features if rows is None else rows.read(0, len(rows))
        path, model, classes, codes = _fit_in_memory(features, labels, options)
    return Fitted(path, model if is_explained(model) else _know_nothing(model), classes, codes)


def _fit_in_memory(features, labels, options):
    most = max(SPARSE_COMPONENTS, options.pca_dim or 0, options.classes_per_group or 0)
    features = check_features(features, most)
    classes, codes = check_labels(labels, len(features))
    features = scale_if_better(features, codes)
    # Asynchronous: the model is traced while the path is being solved.
    path, num_together = _solve_path(features, codes, options)
    # The model is fitted to the whole data, while the path may have been solved in small pieces.
    dim = options.pca_dim or components_for(len(features), num_classes=num_together)
    dim = min(dim, max(len(features) // 2, 1))  # with more, an example explains its own label
    model = label_noise(features, codes, num_classes=len(classes), pca_dim=dim)
    return *jax.device_get((path, model)), classes, codes


def decide(fitted: Fitted, options: DetectorOptions) -> Detection:
    """Call examples suspect by the criterion of the options; one fit serves for any of them.

    Only `keep` must be among the options of the fit as well.
    """
    path, model, classes, codes = fitted
    clean, promise, order = _choose(path, model, codes, options)
    return Detection(
        clean=clean,
        entry_penalty=path.entry_penalty,
        # A suspect gets another label, however likely the given one is.
        suggested=classes[np.where(clean, model.suggested, model.other)],
        duality_gap=float(path.duality_gap),
        error_probability=model.wrong,
        order=order,
        noise=_describe_noise(model, classes),
        promise=promise,
    )


def _solve_path(features, codes, options):
    """Return the solved path, and how many classes were solved together."""
    is_tall = len(features) > features.shape[1]  # otherwise several devices gain nothing
    mesh = device_mesh() if jax.local_device_count() > 1 and is_tall else None
    plan = plan_pieces(
        codes,
        per_class=options.per_class,
        classes_per_group=options.classes_per_group or MAX_CLASSES_PER_GROUP,
        multiple_of=mesh.size if mesh else 1,
    )
    dim = options.pca_dim or components_for(plan.rows, num_classes=plan.classes_per_group)
    how = Options(
        pca_dim=dim,
        intercept=options.per_class is None,
        report=PATH_PROGRESS.report if options.progress else None,
    )
    with PATH_PROGRESS.bar() if options.progress else contextlib.nullcontext():
        path = clean_set(
            features,
            codes,
            jax.random.key(options.seed),
            keep=options.keep or 0.5,  # decides `path.clean`, which is read only with `keep`
            plan=plan,
            options=how,
            mesh=mesh,
        )
        if options.progress:
            jax.block_until_ready(path)
    return path, plan.classes_per_group


def _choose(path, model, codes, options):
    """Return the clean set, the promise if a level was asked for, and the order of suspicion."""
    if options.keep is not None:
        return path.clean, None, np.argsort(-path.entry_penalty, kind="stable")
    order = np.lexsort((-path.entry_penalty, -model.wrong))
    if options.max_noise_in_clean is not None:
        kept = keep_cleanest(model, codes, options.max_noise_in_clean)
        promise = Promise(options.max_noise_in_clean, "clean", kept.attained, kept.lowest)
        return kept.chosen, promise, order
    if options.max_false_alarms is not None:
        flagged = flag_surest(model, codes, options.max_false_alarms)
        promise = Promise(options.max_false_alarms, "suspects", flagged.attained, flagged.lowest)
        return ~flagged.chosen, promise, order
    return ~worth_a_look(model.by_reading, READING_WEIGHTS, order), None, order


def _know_nothing(model):
    """Flag nothing, and say that any fraction may be wrong: the features do not tell."""
    zeros = np.zeros_like(model.rate)
    wrong = np.zeros_like(model.wrong)
    return model._replace(
        wrong=wrong,
        by_reading=np.zeros_like(model.by_reading),
        least=wrong,
        most=wrong + 1,
        rate=zeros,
        low=zeros,
        high=zeros + 1,
    )


def _describe_noise(model, classes) -> Noise:
    return Noise(
        rate=float(model.rate[0]),
        interval=(float(model.low[0]), float(model.high[0])),
        classes=classes,
        by_class=model.rate[1:],
        by_class_interval=np.stack([model.low[1:], model.high[1:]], axis=1),
        confusion=model.confusion,
        explained=is_explained(model),
        fit_gap=float(model.left),
    )
