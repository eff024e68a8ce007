"""Class probabilities from models that have not seen the example: what most detectors start from.

Linear softmax regression on standardized features, five folds. Its regularization is chosen, among
STRENGTHS, by the likelihood of the given labels out of fold, as a careful user without true labels
would; with too little, detectors that read these probabilities look worse than they are.
"""

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

FOLDS = 5
STRENGTHS = (0.001, 0.01, 0.1, 1.0)  # scikit-learn's C, from weak fits on
STEPS = 200  # of L-BFGS; the weakest fits are not quite converged after them


def out_of_fold(features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Probabilities [N, c] of each example's class, from the four folds without it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "The least populated class", UserWarning)
        folds = list(StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(features, labels))
        scaled = [standardized(features, seen) for seen, _ in folds]
        # Each fit starts from the weaker one of its fold.
        models = [LogisticRegression(warm_start=True, max_iter=STEPS, tol=1e-3) for _ in folds]
        best, highest = None, -np.inf
        for strength in STRENGTHS:
            found = np.zeros((len(labels), int(labels.max()) + 1))
            for model, array, (seen, rest) in zip(models, scaled, folds, strict=True):
                model.set_params(C=strength).fit(array[seen], labels[seen])
                found[np.ix_(rest, model.classes_)] = model.predict_proba(array[rest])
            own = found[np.arange(len(labels)), labels]
            likelihood = np.log(np.maximum(own, 1e-12)).sum()
            if likelihood <= highest:
                break  # it falls from here on, and the fits get slower
            best, highest = found, likelihood
    return best


def standardized(features: np.ndarray, seen: np.ndarray | slice = slice(None)) -> np.ndarray:
    """Columns of mean 0 and deviation 1 in the rows that a model learns from."""
    centre, width = (f(features[seen], axis=0, dtype=np.float64) for f in (np.mean, np.std))
    constant = width <= 1e-7 * np.abs(centre)  # but for rounding
    return (features - centre) / np.where(constant, 1, width)
