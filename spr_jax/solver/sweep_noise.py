"""The noise model of `label_noise.py` for examples that are read block by block.

The models are fitted to the same random examples as in memory. A last pass applies them to every
example, and adds up what the rates and intervals are made of.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from spr_jax.solver.label_noise import LabelNoise, estimate, fit_some, judge, rows_to_fit
from spr_jax.solver.linear_scores import TINY
from spr_jax.solver.sweep import Block, Stream, over_parts, sweep, total
from spr_jax.solver.sweep_basis import Moments
from spr_jax.solver.sweep_scores import fit_views, scores_of

ROWS = ("wrong", "least", "most", "suggested", "other")  # fields of one value for each row


def sweep_noise(stream: Stream, moments: Moments, dim: int) -> LabelNoise:
    """Estimate how many labels are wrong, and which; as NumPy arrays."""
    n = len(stream.labels)
    size, classes = moments.size, len(moments.size)
    views, known, nearest = fit_views(stream, moments, dim)
    chosen = np.asarray(rows_to_fit(n, classes))
    labels = stream.labels[chosen].astype(np.int32)
    voters = nearest[chosen].astype(np.int32)
    fitted = known.of(Block(chosen, np.empty(0), labels), len(chosen))[0]
    with jax.default_matmul_precision("highest"):
        few = _scores(views, stream.take(chosen), labels, fitted, voters)
        models, sampling = jax.device_get(_fit(few, labels, total=n))

    def extra(block):
        mine = np.zeros((stream.size, nearest.shape[1]), np.int32)
        mine[: len(block.index)] = nearest[block.index]
        return known.of(block, stream.size)[0], mine

    kinds = (np.float32, np.float32, np.float32, np.int32, np.int32)
    rows = {name: np.empty(n, kind) for name, kind in zip(ROWS, kinds, strict=True)}
    by_reading = np.empty((2, n), np.float32)

    def kept():
        state = views, models, (size / n).astype(np.float32)
        for block, (sums, found) in sweep(_judge_block, stream.blocks("Labels"), {0: state}, extra):
            m = len(block.index)
            for name in ROWS:
                rows[name][block.index] = getattr(found, name)[:m]
            by_reading[:, block.index] = found.by_reading[:, :m]
            yield block, sums

    summed, confusion, (surplus, variance) = total(kept())[0]
    shares = jax.tree.map(partial(_shares, size=size), summed)
    rates = jax.device_get(estimate(shares, jnp.asarray(size), sampling))
    fields: dict[str, Any] = {name: np.float32(value) for name, value in rates.items()}
    fields |= rows
    fields["by_reading"] = by_reading
    fields["confusion"] = np.float32(confusion / np.maximum(size, 1)[:, None])
    fields["evidence"] = np.float32(surplus / np.sqrt(variance + TINY))
    return LabelNoise(**fields, left=models.left)


def _shares(sums, size):
    """Means over all rows, then over each class, [..., 1 + c], from sums over classes."""
    by_class = sums / np.maximum(size, 1)
    return np.concatenate([sums.sum(axis=-1, keepdims=True) / size.sum(), by_class], axis=-1)


_scores = jax.jit(scores_of)
_fit = partial(jax.jit, static_argnames="total")(fit_some)


@jax.jit
def _judge_block(state, features, labels, fitted, nearest):
    """Sums of a block by class, and what is found in its rows."""
    views, models, frequency = state
    classes = len(frequency)

    def judge_part(features, labels, fitted, nearest):
        used = labels >= 0
        scores = scores_of(views, features, labels, fitted, nearest)
        judged = judge(models, scores, jnp.maximum(labels, 0))
        to = jnp.where(used, labels, classes)  # which is dropped

        def by_class(values):  # [..., m] -> [..., c]
            sums = jnp.zeros((*values.shape[:-1], classes), values.dtype)
            return sums.at[..., to].add(values, mode="drop")

        confusion = jnp.zeros((classes, classes), scores.dtype)
        confusion = confusion.at[to].add(judged.true.T, mode="drop")
        linear_and_kernel = scores[:2].mean(axis=0)  # as `evidence_of`
        expected = frequency @ linear_and_kernel
        variance = frequency @ (linear_and_kernel - expected) ** 2
        own = jnp.take_along_axis(linear_and_kernel, jnp.maximum(labels, 0)[None], axis=0)[0]
        evidence = jnp.sum((own - expected) * used), jnp.sum(variance * used)
        sums = jax.tree.map(by_class, judged.summed), confusion, evidence
        return sums, judged.found

    return over_parts(judge_part, features, labels, fitted, nearest)
