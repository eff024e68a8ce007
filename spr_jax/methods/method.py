"""What a method is: three pure functions. The training loop knows nothing else about methods.

What is remembered of each training example (`memory`), the loss of a batch given that memory, and
how the memory changes after an epoch, given what the loss recorded of each example. Memory and
record are dicts of arrays. Of the memory some names are reserved: `clean` [N], logged as the
selection, with the ranking in `suspicion` [N] and the numbers in `selection`; `targets` [N, c]; and
`right` [N], which the run fills with the truth, where it is known, for a method that is to be the
upper mark of all others.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

Memory = dict[str, Array]
Loss = Callable[..., Any]  # (networks, batch, memory, key) -> (scalar, (networks, record))


def keep_memory(memory: Memory, record: dict[str, Array], key: Array) -> Memory:
    return memory


def mean_probability(networks: tuple, memory: Memory, images: Array) -> Array:
    """[b, c], averaged over the networks."""
    return sum(jax.nn.softmax(net.predict(images).logits) for net in networks) / len(networks)


class Method(NamedTuple):
    init: Callable[..., Memory]  # (labels, num_classes) -> memory
    loss: Loss  # traced
    revise: Callable[..., Memory] = keep_memory  # (memory, record, key) -> memory, plain Python
    predict: Callable[..., Array] = mean_probability  # (networks, memory, images) -> [b, c], traced
    describe: Callable[..., dict] = lambda memory: {}  # memory -> numbers for the log
    num_networks: int = 1
    num_views: int = 1
    record_from: str = "train"  # or "scan": an eval-mode pass after the epoch records features
    # A second kind of step is a program of its own: the host knows which one a step takes, and
    # convolutions under `lax.cond` are several times slower on a CPU.
    other_loss: Loss | None = None  # records the same
    takes_other: Callable[[int, float], bool] = lambda epoch, chance: False  # chance in [0, 1)


class Stage(NamedTuple):
    """A phase of a method that has several; memory is handed on, and keeps what it holds."""

    method: Method
    epochs: int = 0  # 0: the rest of the run, as the last one always takes
    restart: bool = False  # with fresh networks, and the learning rate from its beginning
    learning_rate: float | None = None  # constant, instead of the run's schedule


def weighted_mean(values: Array, weights: Array) -> Array:
    """Mean over the examples that count; `weights` are those of a batch."""
    return jnp.mean(weights * values)
