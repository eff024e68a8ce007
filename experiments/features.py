"""Features of a run's training images, with their labels: a file for the experiments on detection.

    python -m experiments.features runs/mnist_asym-spr mnist_asym40_large.npz

The network is that of the run's last checkpoint, and sees the images without augmentation. The file
holds `features` [N, d] in half precision, `given` and `true` labels [N], and `index` [N] into the
data set. Its name tells the other experiments which data and noise it has: DATASET_KINDrate.npz.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from ml_collections import ConfigDict

from experiments.study import new_parser
from spr_jax.devices import one_device_per_core
from spr_jax.experiment import make_experiment
from spr_jax.files import replace_file
from spr_jax.image_features import features_of, last_network


class View(NamedTuple):
    """Some training examples, as a trained network sees them."""

    index: np.ndarray  # [n], in the data set
    features: np.ndarray  # [n, d]
    true: np.ndarray  # [n]
    given: np.ndarray  # [n]
    class_names: tuple[str, ...]


def look(config: ConfigDict, folder: Path, most: int | None = None) -> View:
    """From the last checkpoint; of at most so many examples, a choice that is always the same."""
    experiment = make_experiment(config)
    network, dataset = last_network(config, experiment, folder), experiment.setup.dataset
    train = dataset.train
    chosen = np.arange(len(train.labels))
    if most is not None:
        chosen = np.random.default_rng(0).permutation(chosen)[:most]
    features = features_of(network, train.images[chosen], dataset.mean, dataset.std)
    labels = train.true_labels[chosen], train.labels[chosen]
    return View(experiment.members[chosen], features, *labels, dataset.class_names)


def config_in(folder: Path) -> ConfigDict:
    """As the run that the folder belongs to has it."""
    try:
        return ConfigDict(json.loads((folder / "config.json").read_text()))
    except OSError as error:
        raise ValueError(f"{folder} is not the folder of a run: {error.strerror}.") from None


def main(arguments: Sequence[str] | None = None) -> None:
    parser = new_parser(__doc__)
    parser.add_argument("run", type=Path, help="folder of a finished run")
    parser.add_argument("file", type=Path, help=".npz file to write")
    options = parser.parse_args(arguments)
    try:
        view = look(config_in(options.run), options.run)
    except ValueError as error:
        parser.error(str(error))
    with replace_file(options.file, binary=True) as file:
        np.savez_compressed(
            file,
            features=view.features.astype(np.float16),
            given=view.given,
            true=view.true,
            index=view.index,
        )


if __name__ == "__main__":
    one_device_per_core()
    main()
