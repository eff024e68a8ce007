"""The report of `ablation_selection`: a table, a plot and plain words for each question."""

from collections.abc import Callable, Sequence
from pathlib import Path

from experiments.label_sets import Row
from experiments.markdown import table
from experiments.plot import COLOURS, new_figure, save_figure, style
from experiments.study import mean_and_std, number, spread

COLUMNS = ("question", "features", "labels", "seed", "piece", "components", "ranking", "keep")
MEASURES = ("base", "kept", "label_precision", "label_recall", "label_auroc", "seconds")
FLOOR = 1e-4  # of a share that is divided by
RANKINGS = {  # name -> in tables and plots
    "entry": "entry penalty (SPR)",
    "residual": "residual norm",
    "studentised": "leave-one-out residual",
    "noise model": "noise model",
    "linear loss": "loss of a linear fit",
}


def csv_rows(rows: Sequence[Row]) -> list[Sequence]:
    """All rows, numbers to four digits."""
    cells = [
        [row.get(name, "") for name in COLUMNS] + [_cell(row, name) for name in MEASURES]
        for row in rows
    ]
    return [COLUMNS + MEASURES, *cells]


def _cell(row, name):
    value = row.get(name)
    return "" if value is None else f"{value:.4f}"


def of(rows: Sequence[Row], **wanted) -> list[Row]:
    return [row for row in rows if wanted.items() <= row.items()]


def groups(rows: Sequence[Row], *names: str) -> dict[tuple, list[Row]]:
    """Rows that agree in these fields, in the order in which they come first."""
    found: dict[tuple, list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return found


def values(rows: Sequence[Row], measure: str) -> list[float]:
    return [row[measure] for row in rows if row.get(measure) is not None]


def mean(rows: Sequence[Row], measure: str, digits: int = 4) -> str:
    return number(mean_and_std(values(rows, measure))[0], digits)


# Tables.


def split_table(rows: Sequence[Row]) -> str:
    lines = []
    quality = of(rows, question="split")
    for (features, labels, piece), group in groups(quality, "features", "labels", "piece").items():
        by_class = of(group, keep="half of each class")
        by_piece = mean(of(group, keep="half of each piece"), "label_precision")
        measured = [mean(by_class, name) for name in MEASURES[2:5]]
        timed = of(rows, question="time", features=features, labels=labels, piece=piece)
        lines.append([features, labels, piece, *measured, by_piece, mean(timed, "seconds", 2)])
    head = ["features", "labels", "piece", "precision", "recall", "AUROC"]
    return table([*head, "precision, half of each piece", "processor seconds"], lines)


def ranking_table(rows: Sequence[Row]) -> str:
    lines = []
    for (features, labels, piece), group in groups(rows, "features", "labels", "piece").items():
        for (ranking,), mine in groups(group, "ranking").items():
            precision = [
                spread(values(of(mine, keep=keep), "label_precision"), 4)
                for keep in ("half of each class", "right share of each class")
            ]
            cells = [features, labels, piece, RANKINGS[ranking], *precision]
            lines.append([*cells, mean(mine, "label_auroc")])
    head = ["features", "labels", "piece", "ranking", "precision, half kept"]
    return table([*head, "precision, right share kept", "AUROC"], lines)


def defect_table(rows: Sequence[Row]) -> str:
    lines = [
        [
            *name,
            mean(group, "base"),
            mean(of(group, keep="mapped back"), "label_precision"),
            mean(of(group, keep="index defect"), "label_precision"),
        ]
        for name, group in groups(rows, "features", "labels", "piece").items()
    ]
    head = ["features", "labels", "piece", "right among all labels", "right among the kept"]
    return table([*head, "with the index defect"], lines)


def components_table(rows: Sequence[Row]) -> str:
    """Precision of the kept half / AUROC."""
    dims = sorted({row["components"] for row in rows})
    lines = []
    for name, group in groups(rows, "features", "labels", "piece").items():
        cells = [of(group, components=dim) for dim in dims]
        both = [f"{mean(cell, 'label_precision')} / {mean(cell, 'label_auroc')}" for cell in cells]
        lines.append([*name, *(text.replace("- / -", "-") for text in both)])
    return table(["features", "labels", "piece", *map(str, dims)], lines)


# Plots: what is not drawn is in the tables.


def plot_split(rows: Sequence[Row], path: Path) -> None:
    """A line for each set of labels, against the size of a piece."""
    half = of(rows, question="split", keep="half of each class")
    figure, panels = new_figure(3)
    shown = {
        "label_precision": ("right among the kept half", half),
        "label_auroc": ("AUROC of the ranking", half),
        "seconds": ("processor seconds of a call", of(rows, question="time")),
    }
    for panel, (measure, (title, mine)) in zip(panels, shown.items(), strict=True):
        for look, name, group in _lines(mine):
            points = groups(group, "piece")
            heights = [mean_and_std(values(found, measure))[0] for found in points.values()]
            panel.plot([piece for (piece,) in points], heights, label=name, **look)
        panel.set(title=title, xlabel="piece")
        panel.tick_params(axis="x", labelsize=8)
    panels[2].set_ylim(bottom=0)
    save_figure(figure, path, "Split size (10 components, half of each class kept)")


def _lines(rows):
    """(look, name, rows) for each file and set of labels: colour by labels, dashes by file."""
    labels = list(dict.fromkeys(row["labels"] for row in rows))
    files = list(dict.fromkeys(row["features"] for row in rows))
    for (file, label), group in groups(rows, "features", "labels").items():
        dashes = ("-", "--", ":", "-.")[files.index(file) % 4]
        look = style(labels.index(label)) | {"linestyle": dashes, "markersize": 5}
        yield look, f"{file}, {label}", group


def plot_ranking(rows: Sequence[Row], path: Path) -> None:
    """Wrong labels among the kept, of every ranking on whole data, beside those of SPR's."""
    rows = of(rows, question="ranking", piece="whole data")
    panels_of = groups(rows, "features", "keep")
    figure, panels = new_figure(len(panels_of), width=3.6)
    for panel, ((file, keep), group) in zip(panels, panels_of.items(), strict=True):
        labels = groups(group, "labels")
        entry = [wrong_share(of(found, ranking="entry")) for found in labels.values()]
        for place, (ranking, name) in enumerate(RANKINGS.items()):
            wrong = [wrong_share(of(found, ranking=ranking)) for found in labels.values()]
            ratio = [mine / ours for mine, ours in zip(wrong, entry, strict=True)]
            places = [at + (place - 2) * 0.13 for at in range(len(wrong))]
            panel.plot(places, ratio, label=name, **style(place), linestyle="", markersize=7)
        panel.set(title=f"{file}\n{keep} kept")
        panel.set_xticks(range(len(labels)), [label.replace(" ", "\n") for (label,) in labels])
    panels[0].set_ylabel("wrong labels among the kept / SPR's")
    save_figure(figure, path, "What ranks the labels (whole data, the same components)")


def wrong_share(rows: Sequence[Row]) -> float:
    """Among the kept; none counts as FLOOR, so that others can be divided by it."""
    return max(1 - mean_and_std(values(rows, "label_precision"))[0], FLOOR)


def plot_defect(rows: Sequence[Row], path: Path) -> None:
    rows = of(rows, question="defect", piece="10 per class")
    panels_of = groups(rows, "features")
    figure, panels = new_figure(len(panels_of))
    for panel, ((file,), group) in zip(panels, panels_of.items(), strict=True):
        by_labels = groups(group, "labels")
        for place, keep in enumerate(("mapped back", "index defect")):
            kept = [
                mean_and_std(values(of(found, keep=keep), "label_precision"))[0]
                for found in by_labels.values()
            ]
            look = style(place) | {"linestyle": "", "markersize": 9}
            panel.plot(range(len(kept)), kept, label=f"kept, {keep}", **look)
        base = [mean_and_std(values(found, "base"))[0] for found in by_labels.values()]
        look = {"color": COLOURS[-1], "marker": "_", "markersize": 26, "linestyle": ""}
        panel.plot(range(len(base)), base, label="all labels", **look)
        panel.set(title=file, ylim=(0, 1.03), xlim=(-0.5, len(base) - 0.5))
        panel.set_xticks(range(len(base)), [label.replace(" ", "\n") for (label,) in by_labels])
    panels[0].set_ylabel("share of right labels")
    save_figure(figure, path, "Positions taken for indices (10 per class, half of each piece kept)")


def plot_components(rows: Sequence[Row], path: Path) -> None:
    rows = of(rows, question="components")
    panels_of = groups(rows, "features")
    figure, panels = new_figure(len(panels_of))
    for panel, ((file,), group) in zip(panels, panels_of.items(), strict=True):
        for number_of_labels, ((labels,), mine) in enumerate(groups(group, "labels").items()):
            for (piece,), found in groups(mine, "piece").items():
                points = groups(found, "components")
                heights = [mean_and_std(values(some, "label_auroc"))[0] for some in points.values()]
                dashes = {"linestyle": "-" if piece == "whole data" else "--", "markersize": 5}
                name = f"{labels}, {piece}"
                dims = [dim for (dim,) in points]
                panel.plot(dims, heights, label=name, **style(number_of_labels), **dashes)
        panel.set(title=file, xlabel="principal components", xscale="log")
        dims = sorted({row["components"] for row in group})
        panel.set_xticks(dims, map(str, dims))
        panel.minorticks_off()
    panels[0].set_ylabel("AUROC of the ranking")
    save_figure(figure, path, "Principal components (half of each class kept)")


PLOTS: dict[str, Callable] = {
    "ablation_selection_split.png": plot_split,
    "ablation_selection_ranking.png": plot_ranking,
    "ablation_selection_defect.png": plot_defect,
    "ablation_selection_components.png": plot_components,
}


def render(rows: Sequence[Row], head: str) -> str:
    """The report; a pure function of the rows."""
    sizes = ", ".join(f"{row['most_rows']:,}" for (row, *_) in groups(rows, "most_rows").values())
    seeds = len({row["seed"] for row in rows} - {0})
    sections = [section(rows, *about) for about in QUESTIONS.items()]
    return "\n\n".join(
        [
            f"# What decides how good the selection is\n\n{head}",
            ABOUT.format(sizes=sizes, seeds=seeds),
            *sections,
        ]
    )


ABOUT = """Each file holds the features of a small network (at most {sizes} examples). Labels are
its own, on which it was trained, or drawn anew from the true ones on the same features (seeds:
{seeds}); numbers are means over the seeds. Precision is the share of right labels among the kept,
recall the share of the right labels that are kept, AUROC the chance that a wrong label is ranked
above a right one. With half kept, precision cannot exceed 0.4 at symmetric 0.8, where 20 % of the
labels are right."""


def section(rows: Sequence[Row], question: str, about: tuple[str, Callable, str]) -> str:
    title, tabulate, seen = about
    mine = of(rows, question=question) + of(rows, question="time") * (question == "split")
    words = [seen] if {row["features"] for row in rows} == SEEN_ON else []
    picture = f"![{title}](ablation_selection_{question}.png)"
    return "\n\n".join([f"## {title}", picture, *words, tabulate(mine)])


SEEN_ON = {"mnist_sym40", "cifar10_sym40"}  # what the words are about
SPLIT_SEEN = """With symmetric noise larger is better, and whole data no dearer than pieces of 10.
Pieces of 50 come near it where 40 % of the labels are wrong, not where 80 % are. With asymmetric
noise whole data is worse than pieces of 50 and 500, on CIFAR-10 worse than pieces of 10: by AUROC
0.56 against 0.72 to 0.74 (with 64 components its kept half is as good as theirs, its AUROC is not).
This noise leaves given classes of unequal sizes, which pieces balance and whole data does not; that
this is the reason was not tested. A part of what small pieces lose is not in their fits but in the
rule of a half in every piece: with the same fits and half of each class over all pieces, ten a
class reach 0.99 instead of 0.94 on MNIST."""
RANKING_SEEN = """With symmetric noise, hardly. On whole data the entry penalty, the residual of one
least-squares fit and the leave-one-out residual keep equally right labels, to 0.3 points. In pieces
of 10 the path gains at most 0.5 points over the residual, and on CIFAR-10 the leave-one-out
residual is the best of the three. The loss of a linear softmax fit is a little better on CIFAR-10
with 40 % wrong labels, and the worst with 80 %. With asymmetric noise on whole data the path is
ahead of the residual on MNIST and behind it, and behind the linear loss, on CIFAR-10. There the
noise model, which learns how classes are confused, is better than all others by far (AUROC 0.92,
the next 0.69), and with 80 % symmetric noise it is the best, too."""
DEFECT_SEEN = """The kept labels are then a random half: right as often as all labels are, whatever
the ranking was worth."""
COMPONENTS_SEEN = """Cells are precision of the kept half / AUROC. A piece of 100 examples bears
about as many components as there are classes: at 64 it explains nearly any label. Whole data gains
up to 16 or 32 components and then stays level with 40 % wrong labels; with 80 % more than 16 do
harm, so that the 64 which the detector takes for 20,000 examples are too many there."""

QUESTIONS = {  # name -> title, table, what is seen
    "split": ("How large should a piece be?", split_table, SPLIT_SEEN),
    "ranking": ("Does the path rank better than what is simpler?", ranking_table, RANKING_SEEN),
    "defect": ("What did the released indices do?", defect_table, DEFECT_SEEN),
    "components": ("How many principal components?", components_table, COMPONENTS_SEEN),
}
