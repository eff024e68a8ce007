import numpy as np
import pytest

from spr_jax.solver import blocks as module
from spr_jax.solver.blocks import blocks_of, sum_and_stack


@pytest.mark.parametrize("n", [1, 5, 8, 9, 17, 64])
def test_blocks_cover_each_row_once(n, monkeypatch):
    monkeypatch.setattr(module, "ROWS", 8)
    blocks = blocks_of(n)
    assert blocks.length <= 8
    rows = np.arange(n)
    cut = np.asarray(blocks.cut(rows))
    assert cut.shape == blocks.fresh.shape == (blocks.count, blocks.length)
    np.testing.assert_array_equal(cut[:, 0], blocks.starts)
    np.testing.assert_array_equal(np.sort(cut[blocks.fresh]), rows)
    np.testing.assert_array_equal(blocks.join(cut), rows)


@pytest.mark.parametrize("count", [1, 3])
def test_sums_add_up_and_rows_stack(count):
    values = np.arange(4.0 * count).reshape(count, 4)
    total, doubled = sum_and_stack(lambda block: (block.sum(), 2 * block), (values,))
    assert total == values.sum()
    np.testing.assert_array_equal(doubled, 2 * values)
