"""Scikit-learn's 8x8 digits: embedded, for a first try and for tests."""

import numpy as np

from spr_jax.types import Dataset, Split


def digits() -> Dataset:
    """scikit-learn's 8x8 handwritten digits, embedded: nothing to download."""
    from sklearn.datasets import load_digits  # a second to import

    stored = load_digits()
    images = (stored.images * 15).astype(np.uint8)[..., None]  # 0..16 -> 0..240
    labels = stored.target.astype(np.int32)
    test = np.arange(len(labels)) % 5 == 4  # examples are ordered by writer: take some of each
    return Dataset(
        name="digits",
        train=Split(images[~test], labels[~test], labels[~test]),
        tests={"test": Split(images[test], labels[test], labels[test])},
        class_names=tuple("0123456789"),
        mean=(0.287,),
        std=(0.354,),
        augmentation="none",
    )
