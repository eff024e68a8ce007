"""A file of features and labels, from a finished run, for the experiments on detection.

    python -m experiments.features runs/mnist_asym-spr mnist_asym40_large.npz

The network of the run's last checkpoint sees the training images without augmentation. The file
holds `features` [N, d] in half precision, `given` and `true` labels [N], and `index` [N] into the
data set. The other experiments read data and noise from the file's name: DATASET_KINDRATE.npz.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from ml_collections import ConfigDict

from experiments.harness.study import new_parser
from spr_jax.detection.features import features_of
from spr_jax.devices import one_device_per_core
from spr_jax.io.atomic import replace_file
from spr_jax.training.build import make_run
from spr_jax.training.loop import last_network
from spr_jax.training.workdir import read_config


class View(NamedTuple):
    """Some training examples, and their features in a trained network."""

    index: np.ndarray  # [n], in the data set
    features: np.ndarray  # [n, d]
    true: np.ndarray  # [n]
    given: np.ndarray  # [n]
    class_names: tuple[str, ...]


def look(config: ConfigDict, folder: Path, most: int | None = None) -> View:
    """The view of a run's last network; of a fixed random choice of at most `most` examples."""
    network, run = last_network(config, folder), make_run(config)
    dataset = run.dataset
    train = dataset.train
    chosen = np.arange(len(train.labels))
    if most is not None:
        chosen = np.random.default_rng(0).permutation(chosen)[:most]
    features = features_of(network, train.images[chosen], dataset.mean, dataset.std)
    labels = train.true_labels[chosen], train.labels[chosen]
    return View(run.members[chosen], features, *labels, dataset.class_names)


def write(view: View, path: Path) -> None:
    """Write the file that the other experiments read."""
    with replace_file(path, binary=True) as file:
        np.savez_compressed(
            file,
            features=view.features.astype(np.float16),
            given=view.given,
            true=view.true,
            index=view.index,
        )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = new_parser(__doc__)
    parser.add_argument("run", type=Path, help="folder of a finished run")
    parser.add_argument("file", type=Path, help=".npz file to write")
    options = parser.parse_args(arguments)
    try:
        write(look(read_config(options.run), options.run), options.file)
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    one_device_per_core()
    main()
