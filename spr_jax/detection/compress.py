"""Features with fewer columns, for calls that start from kept features.

The detector sees at most a few hundred principal components of the whole data. Those of all
features are those of the leading components, so it is enough to keep these: the products with 1,280
columns are then computed once, and not in every call.
"""

from pathlib import Path

import numpy as np
from numpy.lib.format import write_array_header_1_0

from spr_jax.io.atomic import replace_file

COMPONENTS = 256  # at least; twice what the detector looks at where classes are few
ROWS = 8192  # at a time: memory does not grow with the number of images


def leading_components(
    features: np.ndarray,  # [N, d]; rows of NaN are left out of the computation
    path: Path,
    *,
    components: int = COMPONENTS,
) -> np.ndarray:
    """Return the leading principal components of features, [N, components], kept in a file.

    Features with no more columns, or with more columns than rows, are returned as they are. A file
    with fewer components is replaced.
    """
    count, dim = features.shape
    if dim <= components or count < dim:
        return features
    if not path.exists() or _load(path).shape[1] < components:
        _project(features, path, components)
    return _load(path)


def _load(path):
    return np.load(path, mmap_mode="r", allow_pickle=False)


def _project(features, path, components):
    count, dim = features.shape
    parts = [slice(start, start + ROWS) for start in range(0, count, ROWS)]
    good = [~np.isnan(features[part, 0]) for part in parts]
    total = sum(
        features[part][rows].sum(axis=0, dtype=np.float64)
        for part, rows in zip(parts, good, strict=True)
    )
    mean = (total / sum(rows.sum() for rows in good)).astype(np.float32)
    scatter = np.zeros((dim, dim))
    for part, rows in zip(parts, good, strict=True):
        centred = features[part][rows] - mean
        scatter += centred.T @ centred
    directions = np.linalg.eigh(scatter)[1][:, : -components - 1 : -1].astype(np.float32)
    header = {"descr": "<f4", "fortran_order": False, "shape": (count, components)}
    with replace_file(path, binary=True) as file:
        write_array_header_1_0(file, header)
        for part in parts:
            file.write(((features[part] - mean) @ directions).astype("<f4").tobytes())
