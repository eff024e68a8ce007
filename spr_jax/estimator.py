"""A scikit-learn classifier that learns from labels of which some are wrong:

    model = SPRClassifier().fit(features, labels)
    model.predict(others)
    model.noise_.rate, model.detection_.order[:100]   # what it found about the labels

The network is trained in memory; with a run folder, to resume and to sweep, it is
`configs/features.py`.
"""

import json
from functools import cache, partial
from typing import Any

import jax
import numpy as np
from flax.jax_utils import unreplicate
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from spr_jax.datasets.features import COMPONENTS, Given, dataset_of
from spr_jax.detection.find import components_for, find_label_errors
from spr_jax.io.columns import scale_of
from spr_jax.methods import METHODS, TOLD_NOISE_RATE, Method
from spr_jax.registry import build, suggestion
from spr_jax.training.base_config import get_config, suit_vectors
from spr_jax.training.batches import num_steps
from spr_jax.training.config import check, resolve
from spr_jax.training.loop import train_in_memory

ROWS = 1024  # predicted at a time
STEPS = 1500  # of training, at least
LEAST_ROWS = 10  # examples whose labels can be judged


class SPRClassifier(ClassifierMixin, BaseEstimator):
    """Classify vectors after learning from noisy labels.

    A small network is trained by one of the package's methods. By default that is SPR: it judges
    the labels by the vectors (`find_label_errors`), and learns from each in proportion to the
    probability that it is correct.

    Args:
      method: a name in `spr_jax.METHODS`.
      hidden: width of the hidden layer; 0 for a linear classifier. None chooses by the data.
      epochs: None chooses by the number of examples, as do
      batch_size: and
      learning_rate: of SGD, which falls to zero along a cosine.
      options: of the method, as in `config.method`; for "spr" also those of its rule, as `select`.
      random_state: seed of all random choices. The same data and seed give the same network.
      verbose: show the progress.

    Attributes:
      classes_: [c], sorted.
      detection_: label errors of the training data, as `find_label_errors` returns them; None where
        there are too few examples to judge.
      noise_: of `detection_`: estimated fraction of wrong labels, overall and of each class.
      clean_: [N], which labels are probably correct.

    Example:
      >>> model = SPRClassifier(random_state=1).fit(features, labels)
      >>> model.score(test_features, test_labels)
    """

    def __init__(
        self,
        method: str = "spr",
        *,
        hidden: int | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        options: dict[str, Any] | None = None,
        random_state: int | None = 0,
        verbose: bool = False,
    ) -> None:
        self.method = method
        self.hidden = hidden
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.options = options
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "SPRClassifier":  # noqa: N803
        """Learn from vectors [N, k] and their labels [N], some of which may be wrong.

        Raises:
          ValueError: in one sentence, what was given and what is expected.
        """
        X, y = validate_data(self, X, y, dtype=np.float64)  # noqa: N806
        check_classification_targets(y)
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, X)
        if weights is not None:
            X, y, weights = X[weights > 0], y[weights > 0], weights[weights > 0]  # noqa: N806
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"All labels are {self.classes_[0]!r}: the data has only one class, and a "
                "classifier can't be trained when only one class is present; expected at least two."
            )
        config = self._config(len(X), len(self.classes_))
        self.scale_ = scale_of(X, COMPONENTS)
        given = Given(X, codes, class_names=np.arange(len(self.classes_)))
        dataset = dataset_of(given, scale=self.scale_)
        self.detection_ = self._judge(X, codes)
        self.noise_ = None if self.detection_ is None else self.detection_.noise
        self.clean_ = np.ones(len(X), bool) if self.detection_ is None else self.detection_.clean
        self._tell_noise_rate(config.method)
        _, progress = train_in_memory(
            config,
            dataset,
            weights=weights,
            known=self._known() if config.method.get("record_from") == "inputs" else None,
            report=print if self.verbose else None,
        )
        self.method_options_ = config.method.to_dict()
        self.networks_ = jax.device_get(unreplicate(progress.state.evaluated))
        self.memory_ = progress.memory
        return self

    def _judge(self, features, codes):
        """The label errors, in the names of the classes; None if there are too few examples."""
        if len(features) < LEAST_ROWS:
            return None
        found = find_label_errors(features, codes)
        noise = found.noise._replace(classes=self.classes_)
        return found._replace(suggested=self.classes_[found.suggested], noise=noise)

    def _tell_noise_rate(self, method):
        """Set the option of a method that is told the noise rate, unless the user did."""
        option = TOLD_NOISE_RATE.get(self.method)
        if option and option not in (self.options or {}) and self.noise_ and self.noise_.explained:
            method[option] = min(float(self.noise_.rate), 0.95)

    def _known(self):
        """What SPR would find out about these labels again."""
        if self.detection_ is None or not self.noise_.explained:
            return None  # nothing is flagged then, but to learn a guess is better than none
        probability = self.detection_.error_probability
        correct = (1 - probability).astype(np.float32)
        return {"clean": self.detection_.clean, "suspicion": probability, "correct": correct}

    def _config(self, count, num_classes):
        """The training, sized to the data."""
        if self.method not in METHODS:
            raise ValueError(f"method is {self.method!r}; {suggestion(self.method, METHODS)}")
        if self.method == "oracle":
            raise ValueError("method is 'oracle', which needs the true labels; choose another one.")
        if self.hidden is not None and self.hidden < 0:
            raise ValueError(
                f"hidden is {self.hidden}; expected 0, for a linear classifier, or more."
            )
        if self.batch_size is not None and self.batch_size < 1:
            raise ValueError(f"batch_size is {self.batch_size}; expected 1 or more, or None.")
        hidden = _first(self.hidden, 256)
        config = get_config(self.method, dataset="features", backbone="mlp" if hidden else "linear")
        config.preset = "noise_model"
        config.seed = 0 if self.random_state is None else int(self.random_state)
        devices = jax.device_count()
        batch = _first(self.batch_size, 2 ** int(np.clip(np.log2(count / 20), 4, 8)))
        config.batch_size = config.eval_batch_size = -(-batch // devices) * devices
        steps = num_steps(count, config.batch_size)
        config.epochs = _first(self.epochs, int(np.clip(STEPS // steps, 30, 200)))
        config.optimizer.learning_rate = _first(self.learning_rate, 0.02)
        config.optimizer.weight_decay = 1e-3
        if hidden:
            config.backbone.width = hidden
        suit_vectors(config)
        if "select" in config.method:
            config.method.select.pca_dim = components_for(count, num_classes=num_classes)
        for name, value in (self.options or {}).items():
            if name not in config.method:
                raise ValueError(
                    f"options has {name!r}, which {self.method!r} does not know; "
                    f"{suggestion(name, config.method)}"
                )
            config.method[name] = value
        resolve(config)
        check(config, has_dataset=True)
        return config

    def predict_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        """Probability of each class in `classes_`, [M, c]."""
        check_is_fitted(self, "scale_")
        X = validate_data(self, X, dtype=np.float64, reset=False)  # noqa: N806
        inputs = self.scale_.apply(X).astype(np.float32)
        predict = compiled_prediction(json.dumps(self.method_options_))
        predict = partial(predict, self.networks_, self.memory_)
        padded = np.pad(inputs, ((0, -len(inputs) % ROWS), (0, 0)))
        parts = [np.asarray(predict(rows)) for rows in padded.reshape(-1, ROWS, inputs.shape[1])]
        found = np.concatenate(parts)[: len(X)].astype(np.float64)
        return found / found.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """The most probable class of each example, [M]."""
        check_is_fitted(self, "scale_")
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]


@cache
def compiled_prediction(options: str):
    """The prediction of a method with these options, in JSON; compiled once in a process."""
    built = build(METHODS, json.loads(options))
    method = built if isinstance(built, Method) else built[-1].method
    return jax.jit(method.predict)


def _first(given, usual):
    return usual if given is None else given
