"""Tables of encoders, sizes and ways to enlarge images, from which the defaults were chosen.

    python -m experiments.encoder_choice --data_dir=DIR --report

On development data only (docs/measuring.md): the first test images of CIFAR-10 and MNIST. A linear
probe in five folds tells how well the features separate the true classes; the AUROC of
`find_label_errors` tells how well they reveal labels that were flipped, symmetrically and to the
class that is most easily taken for the true one.
"""

import argparse
import time
from typing import NamedTuple

import numpy as np
from PIL import Image
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tqdm import tqdm

from experiments.harness.provenance import origin, show_report
from experiments.harness.study import table
from spr_jax.datasets import DATASETS
from spr_jax.detection.find import find_label_errors
from spr_jax.devices import keep_freed_memory, one_device_per_core
from spr_jax.encoders import load_encoder
from spr_jax.noise import symmetric
from spr_jax.training.selection_metrics import auroc

RATE, SEEDS = 0.2, (0, 1, 2)
PENALTY = 1000  # of the probe, about as large as the number of features
COMPONENTS = 128  # as for a large data set; few images would get fewer


class Setting(NamedTuple):
    """An encoder, and what is done to an image before it."""

    encoder: str = "efficientnet_lite0"
    size: int = 128
    resize: str = "bicubic"
    crop: float = 1.0  # side of the central part that is used

    def shown(self) -> list[str]:
        part = "whole" if self.crop == 1 else f"central {self.crop:.3g}"
        return [self.encoder, str(self.size), self.resize, part]


LITE2 = "efficientnet_lite2"
SETTINGS = {
    "cifar10": (
        *(Setting(size=size) for size in (64, 96, 128, 160, 192, 224)),
        Setting(resize="bilinear"),
        Setting(crop=0.875),
        *(Setting(LITE2, size=size) for size in (96, 128, 160)),
    ),
    "mnist": (
        *(Setting(size=size) for size in (64, 96, 128, 160)),
        Setting(resize="bilinear"),
        Setting(crop=0.875),
        Setting(LITE2),
    ),
}


class Measured(NamedTuple):
    milliseconds: float  # of a core, per image
    features: np.ndarray  # [N, d]
    scores: np.ndarray  # [N, c], of a linear probe that has not seen the example


def prepare(images: np.ndarray, setting: Setting) -> np.ndarray:  # -> [N, size, size, 3]
    """Crop, enlarge, and repeat the channel of gray images."""
    side = images.shape[1]
    margin = side * (1 - setting.crop) / 2
    box = (margin, margin, side - margin, side - margin)
    way = Image.Resampling[setting.resize.upper()]
    target = (setting.size, setting.size)

    def enlarge(image):
        return np.asarray(Image.fromarray(image).resize(target, way, box))

    return np.stack([enlarge(image) for image in np.broadcast_to(images, (*images.shape[:3], 3))])


def measure(images: np.ndarray, labels: np.ndarray, setting: Setting) -> Measured:
    encoder = load_encoder(setting.encoder, size=setting.size)
    pixels = prepare(images, setting)
    encoder.encode(pixels[:1])  # compiles
    start = time.process_time()
    features = encoder.encode(pixels)
    milliseconds = 1e3 * (time.process_time() - start) / len(images)
    probe = make_pipeline(StandardScaler(), RidgeClassifier(PENALTY))
    scores = cross_val_predict(probe, features, labels, cv=5, method="decision_function")
    return Measured(milliseconds, features, scores)


def flip_to_runner_up(true: np.ndarray, scores: np.ndarray, seed: int) -> np.ndarray:
    """Give some examples the class that scores highest among the wrong ones."""
    others = np.where(np.arange(scores.shape[1]) == true[:, None], -np.inf, scores)
    flipped = np.random.default_rng(seed).random(len(true)) < RATE
    return np.where(flipped, others.argmax(axis=1), true)


def found(features: np.ndarray, given: np.ndarray, true: np.ndarray) -> float:
    """AUROC of the probabilities that labels are wrong."""
    return auroc(
        find_label_errors(features, given, pca_dim=COMPONENTS).error_probability, given != true
    )


def table_of(images: np.ndarray, true: np.ndarray, settings: tuple[Setting, ...], name: str) -> str:
    results = [measure(images, true, setting) for setting in tqdm(settings, name)]
    together = np.mean([result.scores for result in results], axis=0)  # no encoder is preferred
    count = together.shape[1]
    evenly = [symmetric(true, RATE, num_classes=count, seed=seed) for seed in SEEDS]
    confused = [flip_to_runner_up(true, together, seed) for seed in SEEDS]
    rows = []
    for setting, result in zip(settings, results, strict=True):
        accuracy = np.mean(result.scores.argmax(axis=1) == true)
        areas = [
            np.mean([found(result.features, given, true) for given in draws])
            for draws in (evenly, confused)
        ]
        numbers = [f"{result.milliseconds:.1f}", *(f"{value:.4f}" for value in (accuracy, *areas))]
        rows.append([*setting.shown(), *numbers])
    head = ["encoder", "size", "resize", "part", "ms", "probe", "symmetric", "runner-up"]
    return f"## {name}: {len(true):,} test images\n\n{table(head, rows)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data_dir", default="", help="where data sets are kept")
    parser.add_argument("--images", type=int, default=2000, help="of each data set [%(default)s]")
    parser.add_argument("--report", action="store_true", help="write reports/encoder_choice.md")
    options = parser.parse_args()
    keep_freed_memory()
    one_device_per_core()
    sections = [origin("scikit-learn", "pillow")]
    for name, settings in SETTINGS.items():
        (test,) = DATASETS[name](data_dir=options.data_dir).tests.values()
        images, true = test.images[: options.images], test.labels[: options.images]
        sections.append(table_of(images, true, settings, name))
    sections.append(
        f"Milliseconds of one core per image; accuracy of a linear probe, five folds; AUROC of\n"
        f"`find_label_errors` ({COMPONENTS} components) with {RATE:.0%} of the labels flipped,\n"
        f"symmetrically and to the runner-up class of all probes together; mean of\n"
        f"{len(SEEDS)} draws."
    )
    report = "\n\n".join(["# Which encoder, at which size", *sections])
    show_report(report, "encoder_choice", keep=options.report)


if __name__ == "__main__":
    main()
