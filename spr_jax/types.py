"""Structures that modules pass to each other. Shapes: b examples of a batch, N of a split."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:  # data sets load without JAX
    from jax import Array

# Of pixels / 255: what most networks that were trained on ImageNet expect.
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Batch(NamedTuple):
    views: tuple[Array, ...]  # [b, h, w, channels] each, float32; `images` is the first
    labels: Array  # [b], as given, possibly wrong
    index: Array  # type: ignore[assignment]  # [b], position in the training set
    weights: Array  # [b], mean 1 over the whole batch; 0 for padding rows of the last batch
    epoch: Array | int = 0  # since the stage of the method began

    @property
    def images(self) -> Array:
        return self.views[0]

    def rows(self, part: slice) -> Batch:
        """Select some examples."""
        return self._replace(
            views=tuple(view[part] for view in self.views),
            labels=self.labels[part],
            index=self.index[part],
            weights=self.weights[part],
        )


class Output(NamedTuple):
    logits: Array  # [b, c]
    features: Array  # [b, d]


class Split(NamedTuple):
    images: Any  # [N, h, w, channels] uint8 array, or image files with the same indexing
    labels: np.ndarray  # [N], as given, possibly wrong
    true_labels: np.ndarray | None = None  # [N] where known; for metrics only
    names: np.ndarray | None = None  # [N], files of the user's own images

    def take(self, index: np.ndarray) -> Split:
        """The examples at `index`, in that order; image files stay undecoded."""
        images, *columns = self
        images = images[index] if isinstance(images, np.ndarray) else images.take(index)
        rows = (None if column is None else column[index] for column in columns)
        return Split(images, *rows)  # type: ignore[arg-type]


class Dataset(NamedTuple):
    name: str
    train: Split
    tests: dict[str, Split]  # by name; the first is the primary one
    class_names: tuple[str, ...]
    mean: tuple[float, ...]  # of pixels / 255, one per channel
    std: tuple[float, ...]
    augmentation: str  # a name in augment.AUGMENTATIONS

    @property
    def num_classes(self) -> int:
        return len(self.class_names)
