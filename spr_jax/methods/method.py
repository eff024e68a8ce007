"""The contract of a method: three functions, and a few optional ones.

    init     what is remembered of each training example (`memory`), before the first epoch
    steps    the loss of a batch, given that memory; usually one, SPR has two
    revise   the memory after an epoch, given what the losses recorded of each example

All are pure. The training loop knows nothing else about methods. Some names in the memory are
reserved: `clean` [N] is logged as the selection, with its ranking in `suspicion` [N] and further
numbers in the dict `selection`.
"""

import warnings
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

ArrayLike = Array | np.ndarray  # NumPy between epochs, JAX within them
Memory = dict[str, Any]  # arrays, or dicts of arrays
Record = dict[str, ArrayLike]
Loss = Callable[..., Any]  # (networks, batch, memory, key) -> (scalar, (networks, record))


class Epoch(NamedTuple):
    """A finished epoch as `revise` sees it; arrays are in the order of the data set."""

    number: int  # since the stage began
    labels: ArrayLike  # [N], as given
    record: Record  # [N, ...] each, as the steps recorded it
    visited: ArrayLike  # [N] bool; all, unless an incomplete last batch is dropped
    position: ArrayLike  # [N], place in the order of visits
    # (averaged=False, inner=False) -> logits and features [N, ...] that the first network has now,
    # in eval mode, or its running average, if the run has one; with `inner` also the outputs of its
    # inner layers, as inner_0, inner_1 ...; takes a pass
    scan: Callable[..., Record] = dict


def keep_memory(memory: Memory, epoch: Epoch, key: Array) -> Memory:
    return memory


def nth_probability(number: int) -> Callable[..., Array]:
    """Make the prediction of one of the networks, [b, c]; the first is 0."""

    def predict(networks, memory, images):
        return jax.nn.softmax(networks[number].predict(images).logits)

    return predict


def mean_probability(networks: tuple, memory: Memory, images: Array) -> Array:
    """Average the networks' predictions, [b, c]."""
    total = sum(jax.nn.softmax(net.predict(images).logits) for net in networks)
    return jnp.asarray(total) / len(networks)


class Method(NamedTuple):
    """A way to learn from noisy labels.

    Attributes:
      init: (labels, num_classes) -> memory; also given what the method needs.
      steps: losses (networks, batch, memory, key) -> (scalar, (networks, record)), traced.
        `batch.epoch` counts from the beginning of the stage. All record the same. Each is compiled
        to a program of its own: the host knows which one a step takes, and convolutions under
        `lax.cond` are several times slower on a CPU.
      revise: (memory, epoch, key) -> memory, in plain Python after every epoch.
      predict: (networks, memory, images) -> probabilities [b, c], traced.
      describe: (memory, epoch number) -> numbers for the log.
      choose_step: (epoch number, draw) -> index into `steps`; `draw` is uniform on [0, 1).
      num_networks: networks that are trained side by side.
      num_views: augmented views of each image in a batch.
      on_top: for each view, an augmentation that follows the data set's own; empty for none.
      extra: a Flax module of features whose parameters are trained with each network's own, as
        `network.params["extra"]`; None for none. Stages without a restart share it.
      goes_back: (memory after an epoch) -> whether the networks return to those at the end of the
        epoch before, with which this one began; on the host. None: never.
      record_from: "train", or "scan" for an eval-mode pass after the epoch, which records the
        logits and features of the first network instead and the logits of a second as `logits_1`,
        or "inputs": the features are the vectors of the data set themselves.
      needs_truth: hand `init` the mask [N] of correct labels. For upper bounds only.
      needs_widths: hand `init` the widths of the inner layers that the backbone offers and, last,
        of its features.
      predict_beside: name -> function like `predict`, whose accuracy is logged beside that of
        `predict`, as test_top1_NAME.
    """

    init: Callable[..., Memory]
    steps: tuple[Loss, ...]
    revise: Callable[[Memory, Epoch, Array], Memory] = keep_memory
    predict: Callable[..., Array] = mean_probability
    describe: Callable[[Memory, int], dict[str, float]] = lambda memory, epoch: {}
    choose_step: Callable[[int, float], int] = lambda epoch, draw: 0
    num_networks: int = 1
    num_views: int = 1
    on_top: tuple[str, ...] = ()
    extra: Any = None
    goes_back: Callable[[Memory], bool] | None = None
    record_from: str = "train"
    needs_truth: bool = False
    needs_widths: bool = False
    predict_beside: Mapping[str, Callable[..., Array]] = MappingProxyType({})


class Stage(NamedTuple):
    """One stage of a method that has several; the memory is handed on from stage to stage."""

    method: Method
    epochs: int = 0  # 0: the rest of the run, which the last stage always takes
    restart: str = ""  # with "fresh" networks, or with the "same" that the run began with
    fresh_optimizer: bool = False  # without momentum from the stage before; so is any restart
    # (fraction of the stage that is over, the run's learning rate) -> learning rate. None: the
    # run's schedule, over this stage and its neighbors without one; anew with a fresh optimizer.
    schedule: Callable[[Any, float], Any] | None = None


def nothing_to_remember(labels: ArrayLike, num_classes: int) -> Memory:
    return {}


def weighted_mean(values: Array, weights: Array) -> Array:
    """Average over the examples that count; `weights` are those of a batch."""
    return jnp.mean(weights * values)


def expect(holds: bool, name: str, value: Any, what: str) -> None:
    """Refuse an option in one sentence; options are checked before any data is loaded."""
    if not holds:
        raise ValueError(f"{name} is {value!r}; expected {what}.")


def warn_of_few(labels: ArrayLike, num_classes: int, fewest: int, consequence: str) -> None:
    """Say what becomes of classes with few examples; from `init`, so that it is said once."""
    few = np.flatnonzero(np.bincount(np.asarray(labels), minlength=num_classes) < fewest)
    if few.size:
        names = ", ".join(map(str, few[:5])) + " ..." * (few.size > 5)
        warnings.warn(
            f"The classes [{names}] have fewer than {fewest} examples: {consequence}.", stacklevel=3
        )


def training_weights(labels: ArrayLike, num_classes: int, every: int | Array = 10) -> Array:
    """Hold out every tenth example of a class: weights [N], 0 for those, equal else, mean 1."""
    ordinal = jnp.cumsum(jax.nn.one_hot(labels, num_classes, dtype=jnp.int32), axis=0)  # from 1
    ordinal = jnp.take_along_axis(ordinal, jnp.asarray(labels)[:, None], axis=1)[:, 0]
    kept = (ordinal % every != 0).astype(jnp.float32)
    return kept / kept.mean()
