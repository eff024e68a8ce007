"""The detector on features that are larger than memory: passes over blocks of rows.

Memory holds a block of features and a few numbers for each example. The answer is that of
`find.py` in memory: error probabilities differ by rounding, entry penalties as two solutions within
the solver's tolerance do.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from spr_jax.detection.options import MAX_CLASSES_PER_GROUP, DetectorOptions, components_for
from spr_jax.detection.scaling import better_scale, trial_rows
from spr_jax.devices import return_freed_memory
from spr_jax.io.inputs import LARGEST, check_labels, extremes, refuse_extreme, to_single
from spr_jax.io.rows import Rows
from spr_jax.solver import CleanSet, Options, plan_pieces
from spr_jax.solver.groups import group_classes
from spr_jax.solver.label_noise import LabelNoise
from spr_jax.solver.sweep import Stream, block_size
from spr_jax.solver.sweep_basis import MOST_WIDTH, class_means, moments_of
from spr_jax.solver.sweep_noise import sweep_noise
from spr_jax.solver.sweep_path import sweep_path
from spr_jax.solver.top_share import keep_lowest


def fit_streamed(
    rows: Rows, labels: Any, options: DetectorOptions
) -> tuple[CleanSet, LabelNoise, np.ndarray, np.ndarray]:
    """Solve the path and fit the noise model; return classes and their numbers by example, too."""
    if options.per_class is not None:
        raise ValueError(
            f"per_class is {options.per_class}; expected None for features that are read in "
            "blocks, whose path is that of the whole data."
        )
    if rows.shape[1] > MOST_WIDTH:
        raise ValueError(
            f"Features have {rows.shape[1]} columns; expected at most {MOST_WIDTH} where they are "
            "read in blocks: reduce them, as to their principal components."
        )
    classes, codes = check_labels(labels, len(rows))
    stream = _prepared(rows, codes, options)
    groups, rows_of_piece = _groups(stream, len(classes), options)
    dim = options.pca_dim or components_for(rows_of_piece, num_classes=groups.shape[1])
    whole = moments_of(stream.blocks("Components"), 1, len(classes))
    moments = whole
    if len(groups) > 1:
        blocks = stream.blocks_by_group("Components of the groups", groups)
        moments = moments_of(blocks, *groups.shape)
    solved = sweep_path(stream, groups, moments, Options(pca_dim=dim, intercept=True))
    clean = np.ones(len(codes), bool)
    if options.keep is not None:
        share = np.full(len(classes), options.keep, np.float32)
        clean = jax.device_get(jax.jit(keep_lowest)(solved.entry, codes, clean, share))
    return_freed_memory()  # of the blocks, before other programs ask for theirs
    fields: Any = clean, solved.entry, solved.duality_gap, solved.rounds
    dim = options.pca_dim or components_for(len(codes), num_classes=groups.shape[1])
    model = sweep_noise(stream, whole[0], min(dim, max(len(codes) // 2, 1)))
    return_freed_memory()
    return CleanSet(*fields), model, classes, codes


def _prepared(rows, codes, options):
    """Check all rows; return them in single precision, on one scale if that is better."""
    stream = Stream(rows, codes, _in_single(rows), _size_of(rows), options.progress)
    some = trial_rows(len(codes))
    scale = better_scale(stream.take(some), np.eye(codes.max() + 1)[codes[some]])
    if scale is None:
        return stream
    prepare = stream.prepare
    return stream._replace(prepare=lambda block: scale.apply(prepare(block)))


def _size_of(rows):
    return min(block_size(rows.shape[1]), len(rows))


def _in_single(rows: Rows) -> Callable[[np.ndarray], np.ndarray]:
    """Look at all rows as `check_features` does; return what brings some of them to float32."""
    wrong, largest, sums = [], 0.0, np.zeros(rows.shape[1])
    for start, block in rows.blocks(_size_of(rows)):
        extreme = extremes(block)
        wrong.append(start + np.flatnonzero(~(extreme < LARGEST)))
        largest = max(largest, float(extreme.max()))
        if rows.dtype == np.float64:
            sums += block.sum(axis=0)
    refuse_extreme(np.concatenate(wrong))
    mean = sums / len(rows)
    return lambda block: to_single(block, largest, mean)


def _groups(stream, classes, options):
    """Classes that are solved together, [groups, at most k], and the rows of the largest group."""
    most = options.classes_per_group or MAX_CLASSES_PER_GROUP
    plan = plan_pieces(stream.labels, classes_per_group=most)
    if plan.num_groups == 1:
        return np.arange(classes)[None], plan.rows
    means = jnp.float32(class_means(stream.blocks("Groups of classes"), classes))
    with jax.default_matmul_precision("highest"):
        return np.asarray(group_classes(means, plan.classes_per_group)), plan.rows
