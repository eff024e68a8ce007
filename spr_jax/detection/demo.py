"""The data set of a first try: scikit-learn's digits, some labels corrupted."""

import numpy as np


def noisy_digits(rate: float = 0.2, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the pixels of the 8 x 8 digits as features, given labels and true labels."""
    from sklearn.datasets import load_digits  # a second to import

    features, true = load_digits(return_X_y=True)
    generator = np.random.default_rng(seed)
    wrong = generator.permutation(len(true))[: int(rate * len(true))]
    given = true.copy()
    given[wrong] = (true[wrong] + generator.integers(1, 10, len(wrong))) % 10
    return features, given, true


def digit_images(features: np.ndarray) -> np.ndarray:
    """[N, 8, 8] uint8, from pixels of 0 to 16."""
    return (features * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8)
