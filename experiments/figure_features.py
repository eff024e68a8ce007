"""A figure of the paper: the learned features, projected to two dimensions.

    python -m experiments.figure_features --data_dir=DIR    # CIFAR-10, on an accelerator
    python -m experiments.figure_features --small           # digits

Training images with 40 % symmetric noise, as the last checkpoint of each run sees them, without
augmentation. PCA and then t-SNE place them in the plane; colours are true classes, crosses are
labels that are wrong. The plane shows neighbours and not distances, so the report adds two numbers
of the features themselves: the fraction of nearest neighbours with the same true class, and the
silhouette of the true classes.
"""

import argparse
import sys
from collections.abc import Hashable

import numpy as np
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from sklearn.metrics import silhouette_score
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits

from experiments.features import View, look
from experiments.figure_precision import METHODS
from experiments.harness import study
from experiments.harness.plot import TEN_COLOURS, new_figure, show_figure
from experiments.harness.runs import Run, config_of
from experiments.harness.study import Cells, Found, spread, table

NAME = "figure_features"
CONFIGS = {False: "configs/cifar10_sym.py", True: "configs/digits_sym.py"}  # by --small
NOISE = (("noise.rate", 0.4),)
NUM_EXAMPLES = 2000
NUM_COMPONENTS = 50
NUM_NEIGHBOURS = 10

Views = dict[Hashable, list[View]]  # one for each finished run of a cell
Places = dict[Hashable, np.ndarray]  # [n, 2], for the first of them


def cells(options: argparse.Namespace) -> Cells:
    found = {}
    for title, (method, fields) in METHODS.items():
        fields = (*fields.items(), *NOISE)
        found[title] = study.repeat(Run(CONFIGS[options.small], method, fields), options)
    return found


def in_the_plane(features: np.ndarray) -> np.ndarray:
    """[n, 2]: PCA removes noise, t-SNE keeps neighbours together."""
    components = min(NUM_COMPONENTS, *features.shape)
    scores = PCA(components, svd_solver="full").fit_transform(features)
    perplexity = min(30, (len(features) - 1) / 3)
    with threadpool_limits(1):  # so that the order of sums, and the picture, is always the same
        return TSNE(init="pca", perplexity=perplexity, random_state=0).fit_transform(scores)


def same_class_neighbours(view: View) -> float:
    """Per cent of the nearest neighbours with the same class; an example is not its own."""
    count = min(NUM_NEIGHBOURS, len(view.true) - 1)
    neighbours = NearestNeighbors(n_neighbors=count).fit(view.features)
    nearest = neighbours.kneighbors(return_distance=False)
    return 100 * float(np.mean(view.true[nearest] == view.true[:, None]))


def silhouette(view: View) -> float:
    """Silhouette of the true classes, from -1 to 1 (tight and far from each other)."""
    return float(silhouette_score(view.features, view.true))


def views_of(found: dict[Hashable, Found]) -> Views:
    views = {}
    for title, (runs, results) in found.items():
        pairs = zip(runs, results, strict=True)
        views[title] = [
            look(config_of(run), result.folder, NUM_EXAMPLES)
            for run, result in pairs
            if result.status == "finished"
        ]
    return views


def draw(options: argparse.Namespace, views: Views, places: Places) -> str:
    """The picture of the first seeds, as Markdown; empty while there is nothing to draw."""
    if not places:
        return ""
    figure, panels = new_figure(len(views), width=4.2, height=4.8)
    for panel, (title, several) in zip(panels, views.items(), strict=True):
        panel.set(title=title, xticks=[], yticks=[], xlabel="t-SNE, no unit", aspect="equal")
        if several:
            draw_panel(panel, several[0], places[title])
            same = same_class_neighbours(several[0])
            panel.set_title(f"{title}\n{same:.1f} % of the neighbours have the same class")
    data = "digits, C2F2" if options.small else "CIFAR-10, ResNet-18"
    return show_figure(figure, options, f"{data}, training images, symmetric noise 0.4")


def draw_panel(panel, view: View, places: np.ndarray) -> None:
    """Draw dots and crosses in the colours of their true classes, named at their centres."""
    from matplotlib.patheffects import withStroke

    right = view.true == view.given
    kinds = {"label correct": (right, "o", 7), "label wrong": (~right, "x", 16)}
    for kind, (chosen, marker, size) in kinds.items():
        shape = {"marker": marker, "s": size, "linewidths": 0.8}
        colours = [TEN_COLOURS[label % len(TEN_COLOURS)] for label in view.true[chosen]]
        panel.scatter(*places[chosen].T, c=colours, **shape)
        panel.scatter([], [], c="0.3", label=kind, **shape)  # for the legend
    for label, name in enumerate(view.class_names):
        centre = np.median(places[view.true == label], axis=0)
        halo = [withStroke(linewidth=3, foreground="white")]
        panel.text(*centre, name, ha="center", va="center", weight="bold", path_effects=halo)


def result_table(views: Views) -> str:
    rows = [
        [
            title,
            len(several),
            spread([same_class_neighbours(view) for view in several]),
            spread([silhouette(view) for view in several], digits=3),
        ]
        for title, several in views.items()
    ]
    neighbours = f"of the {NUM_NEIGHBOURS} nearest neighbours, same true class (%)"
    return table(["", "seeds", neighbours, "silhouette of the true classes"], rows)


def csv_rows(views: Views, places: Places) -> list[list]:
    """The points of the picture."""
    rows = [["method", "example", "x", "y", "true class", "given class"]]
    for title, drawn in places.items():
        view = views[title][0]
        for k, (x, y) in enumerate(drawn):
            classes = [view.class_names[labels[k]] for labels in (view.true, view.given)]
            rows.append([title, view.index[k], f"{x:.2f}", f"{y:.2f}", *classes])
    return rows


def main(arguments: list[str] | None = None) -> int:
    options = study.parse(study.arguments(__doc__, NAME), arguments)
    found = study.conduct(cells, options)
    try:
        views = views_of(found)
    except ValueError as error:  # the data set is missing
        study.fail(str(error))
    places = {
        title: in_the_plane(several[0].features) for title, several in views.items() if several
    }
    parts = [
        draw(options, views, places),
        f"At most {NUM_EXAMPLES:,} training images, the same for all; {study.seeds_of(options)}. "
        "The numbers describe the features of all seeds, the picture shows the first seed.",
        result_table(views),
    ]
    title = "Learned features in the plane"
    return study.report(options, found, title, parts, csv_rows(views, places))


if __name__ == "__main__":
    sys.exit(main())
