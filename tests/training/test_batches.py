"""Batches: every example once, the same for any number of devices, processes and restarts."""

import itertools
import subprocess
import sys

import jax
import numpy as np
import pytest
from PIL import Image

from spr_jax.datasets.images import ImageFiles
from spr_jax.training.batches import (
    draw_visits,
    num_steps,
    part_of_process,
    prefetch,
    stream,
    visits_on_devices,
)


@pytest.mark.parametrize("size", [1, 7, 50, 103, 200])
def test_an_epoch_visits_every_example_once(size):
    visits = draw_visits(103, size, seed=0, epoch=3)
    assert visits.index.shape == (-(-103 // size), size) == (num_steps(103, size), size)
    assert sorted(visits.index[visits.valid]) == list(range(103))
    assert visits.valid[:-1].all()  # only the last batch is filled up
    assert (visits.index[~visits.valid] < 103).all()
    np.testing.assert_allclose(visits.weights.mean(axis=1), 1, rtol=1e-6)


def test_a_partial_last_batch_can_be_dropped():
    visits = draw_visits(103, 50, seed=0, epoch=3, drop_last=True)
    assert visits.index.shape == (2, 50) and visits.valid.all()
    assert len(set(visits.index.ravel())) == 100 and num_steps(103, 50, drop_last=True) == 2
    whole = draw_visits(103, 50, seed=0, epoch=3)
    np.testing.assert_array_equal(whole.index[:2], visits.index)


def test_the_order_is_a_function_of_seed_and_epoch():
    orders = [
        draw_visits(100, 10, seed=seed, epoch=epoch).index.tobytes()
        for seed, epoch in itertools.product((0, 1, 2), (0, 1, 2))
    ]
    assert len(set(orders)) == 9
    assert orders[5] == draw_visits(100, 10, seed=1, epoch=2).index.tobytes()


def test_an_epoch_can_visit_some_examples_or_keep_their_order():
    members = np.array([90, 3, 14, 15])
    assert sorted(draw_visits(members, 2, seed=0, epoch=0).index.ravel()) == [3, 14, 15, 90]
    visits = draw_visits(5, 2, seed=0, epoch=0, shuffle=False)
    assert visits.index.tolist() == [[0, 1], [2, 3], [4, 0]]
    assert visits.valid.tolist() == [[True, True], [True, True], [True, False]]


@pytest.mark.parametrize(("processes", "devices"), [(1, 1), (1, 8), (2, 4), (4, 1)])
def test_shards_are_disjoint_and_complete(processes, devices):
    visits = draw_visits(103, 16, seed=0, epoch=0)
    shards = [
        part_of_process(visits, devices, process=p, num_processes=processes)
        for p in range(processes)
    ]
    assert all(shard.index.shape == (7, devices, 16 // devices // processes) for shard in shards)
    for step in range(7):
        parts = [shard.index[step][shard.valid[step]] for shard in shards]
        seen = np.concatenate(parts)
        assert len(seen) == len(set(seen)) == visits.valid[step].sum()
        np.testing.assert_array_equal(seen, visits.index[step][visits.valid[step]])


def test_the_only_process_has_the_columns_of_all_its_devices():
    visits = draw_visits(103, 16, seed=0, epoch=0)
    mine = visits_on_devices(visits)
    assert mine.index.shape == (7, jax.local_device_count(), 16 // jax.local_device_count())
    for table, whole in zip(mine, visits, strict=True):
        np.testing.assert_array_equal(table.reshape(7, 16), whole)


def test_bad_sizes_are_described():
    visits = draw_visits(103, 10, seed=0, epoch=0)
    with pytest.raises(ValueError, match="Batch size 10 does not divide over 8 devices"):
        part_of_process(visits, 4, process=0, num_processes=2)
    with pytest.raises(ValueError, match="A batch of 0 from 103 examples leaves no step"):
        draw_visits(103, 0, seed=0, epoch=0)
    with pytest.raises(ValueError, match="A batch of 200 from 103 examples leaves no step"):
        draw_visits(103, 200, seed=0, epoch=0, drop_last=True)
    with pytest.raises(ValueError, match="from 0 examples"):
        draw_visits(np.array([], int), 2, seed=0, epoch=0)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    home = tmp_path_factory.mktemp("images")
    generator = np.random.default_rng(0)
    for k in range(10):
        pixels = generator.integers(0, 256, (12 + k, 20, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(home / f"{k}.png")
    return ImageFiles([str(home / f"{k}.png") for k in range(10)], size=8, short_side=10)


def test_streamed_crops_belong_to_their_index_seed_and_epoch(files):
    visits = draw_visits(10, 4, seed=5, epoch=2)
    batches = list(stream(files, visits.index, seed=5, epoch=2, num_views=2))
    assert len(batches) == 3
    for row, views in zip(visits.index, batches, strict=True):
        assert [view.shape for view in views] == [(4, 8, 8, 3)] * 2
        for place, example in enumerate(row.tolist()):
            expected = files.random_crops(example, 2, (5, 2, example))
            np.testing.assert_array_equal([view[place] for view in views], expected)


def test_a_stream_is_entered_at_any_step(files):
    visits = draw_visits(10, 2, seed=0, epoch=0)
    whole = list(stream(files, visits.index, seed=0, epoch=0))
    for first in (1, 4, 5):
        rest = list(stream(files, visits.index, seed=0, epoch=0, first_step=first))
        assert len(rest) == 5 - first
        for (expected,), (found,) in zip(whole[first:], rest, strict=True):
            np.testing.assert_array_equal(found, expected)


def test_a_stream_of_central_crops(files):
    visits = draw_visits(10, 5, seed=0, epoch=0, shuffle=False)
    batches = stream(files, visits.index, seed=0, epoch=0, random_crops=False)
    np.testing.assert_array_equal(np.concatenate([images for (images,) in batches]), files[:])


def test_an_image_that_breaks_while_streaming_is_named(files, tmp_path):
    (tmp_path / "broken.png").write_text("no image")
    broken = ImageFiles([*files.paths[:3], str(tmp_path / "broken.png")], 8, 10)
    visits = draw_visits(4, 2, seed=0, epoch=0, shuffle=False)
    with pytest.raises(ValueError, match="Cannot read the image .*broken.png"):
        list(stream(broken, visits.index, seed=0, epoch=0))


def test_prefetch_stays_two_ahead_and_loses_nothing():
    sent, taken = [], []
    for item in prefetch(range(7), put=lambda item: sent.append(item) or item, ahead=2):
        taken.append(item)
        assert len(sent) == min(len(taken) + 1, 7)
    assert taken == list(range(7))
    assert list(prefetch([], put=None)) == []


@pytest.mark.slow
def test_processes_stream_what_threads_stream(files, tmp_path):
    """In a script, as grain starts its processes afresh."""
    code = f"""
import numpy as np
from spr_jax.training.batches import draw_visits, stream
from spr_jax.datasets.images import ImageFiles

if __name__ == "__main__":
    files = ImageFiles({list(files.paths)!r}, 8, 10)
    index = draw_visits(10, 2, seed=0, epoch=0).index
    threads, processes = (
        list(stream(files, index, seed=0, epoch=0, num_views=2, workers=w)) for w in (0, 2)
    )
    np.testing.assert_array_equal(threads, processes)
    print(len(processes))
"""
    (tmp_path / "script.py").write_text(code)
    done = subprocess.run(
        [sys.executable, tmp_path / "script.py"], capture_output=True, text=True, timeout=100
    )
    assert done.stdout.strip() == "5", done.stderr
