"""The report of `ablation_selection`: a table and a plot for each question."""

from collections.abc import Callable, Sequence
from pathlib import Path

from experiments.harness.plot import COLOURS, new_figure, save_figure, style
from experiments.harness.study import mean_and_std, number, spread, table
from experiments.label_sets import Row

COLUMNS = ("question", "features", "labels", "seed", "piece", "components", "ranking", "keep")
MEASURES = ("base", "kept", "label_precision", "label_recall", "label_auroc", "seconds")
FLOOR = 1e-4  # least fraction of wrong labels that others are divided by
RANKINGS = {  # name -> in tables and plots
    "entry": "entry penalty (SPR)",
    "residual": "residual norm",
    "studentised": "leave-one-out residual",
    "noise model": "noise model",
    "linear loss": "loss of a linear fit",
}


def csv_rows(rows: Sequence[Row]) -> list[Sequence]:
    """All rows as lines of the CSV, with four digits."""
    cells = [
        [row.get(name, "") for name in COLUMNS] + [_cell(row, name) for name in MEASURES]
        for row in rows
    ]
    return [COLUMNS + MEASURES, *cells]


def _cell(row, name):
    value = row.get(name)
    return "" if value is None else f"{value:.4f}"


def matching(rows: Sequence[Row], **wanted) -> list[Row]:
    """The rows that have all of these values."""
    return [row for row in rows if wanted.items() <= row.items()]


def groups(rows: Sequence[Row], *names: str) -> dict[tuple, list[Row]]:
    """Rows grouped by these fields, in the order in which the groups first occur."""
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
    quality = matching(rows, question="split")
    for (features, labels, piece), group in groups(quality, "features", "labels", "piece").items():
        by_class = matching(group, keep="half of each class")
        by_piece = mean(matching(group, keep="half of each piece"), "label_precision")
        measured = [mean(by_class, name) for name in MEASURES[2:5]]
        timed = matching(rows, question="time", features=features, labels=labels, piece=piece)
        lines.append([features, labels, piece, *measured, by_piece, mean(timed, "seconds", 2)])
    head = ["features", "labels", "piece", "precision", "recall", "AUROC"]
    return table([*head, "precision, half of each piece", "processor seconds"], lines)


def ranking_table(rows: Sequence[Row]) -> str:
    lines = []
    for (features, labels, piece), group in groups(rows, "features", "labels", "piece").items():
        for (ranking,), mine in groups(group, "ranking").items():
            precision = [
                spread(values(matching(mine, keep=keep), "label_precision"), 4)
                for keep in ("half of each class", "right share of each class")
            ]
            cells = [features, labels, piece, RANKINGS[ranking], *precision]
            lines.append([*cells, mean(mine, "label_auroc")])
    head = ["features", "labels", "piece", "ranking", "precision, half kept"]
    return table([*head, "precision, fraction of correct labels kept", "AUROC"], lines)


def defect_table(rows: Sequence[Row]) -> str:
    lines = [
        [
            *name,
            mean(group, "base"),
            mean(matching(group, keep="mapped back"), "label_precision"),
            mean(matching(group, keep="index defect"), "label_precision"),
        ]
        for name, group in groups(rows, "features", "labels", "piece").items()
    ]
    head = ["features", "labels", "piece", "correct among all labels", "correct among the kept"]
    return table([*head, "with the index defect"], lines)


def components_table(rows: Sequence[Row]) -> str:
    """Precision of the kept half / AUROC."""
    dims = sorted({row["components"] for row in rows})
    lines = []
    for name, group in groups(rows, "features", "labels", "piece").items():
        cells = [matching(group, components=dim) for dim in dims]
        both = [f"{mean(cell, 'label_precision')} / {mean(cell, 'label_auroc')}" for cell in cells]
        lines.append([*name, *(text.replace("- / -", "-") for text in both)])
    return table(["features", "labels", "piece", *map(str, dims)], lines)


# Plots; everything else is in the tables.


def plot_split(rows: Sequence[Row], path: Path) -> None:
    """Draw a line for each set of labels, against the size of a piece."""
    half = matching(rows, question="split", keep="half of each class")
    figure, panels = new_figure(3)
    shown = {
        "label_precision": ("correct among the kept half", half),
        "label_auroc": ("AUROC of the ranking", half),
        "seconds": ("processor seconds of a call", matching(rows, question="time")),
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
    """Draw the wrong labels that each ranking keeps on whole data, relative to SPR's."""
    rows = matching(rows, question="ranking", piece="whole data")
    panels_of = groups(rows, "features", "keep")
    figure, panels = new_figure(len(panels_of), width=3.6)
    for panel, ((file, keep), group) in zip(panels, panels_of.items(), strict=True):
        labels = groups(group, "labels")
        entry = [wrong_share(matching(found, ranking="entry")) for found in labels.values()]
        for place, (ranking, name) in enumerate(RANKINGS.items()):
            wrong = [wrong_share(matching(found, ranking=ranking)) for found in labels.values()]
            ratio = [mine / ours for mine, ours in zip(wrong, entry, strict=True)]
            places = [at + (place - 2) * 0.13 for at in range(len(wrong))]
            panel.plot(places, ratio, label=name, **style(place), linestyle="", markersize=7)
        panel.set(title=f"{file}\n{keep} kept")
        panel.set_xticks(range(len(labels)), [label.replace(" ", "\n") for (label,) in labels])
    panels[0].set_ylabel("wrong labels among the kept / SPR's")
    save_figure(figure, path, "Rankings of the labels (whole data, the same components)")


def wrong_share(rows: Sequence[Row]) -> float:
    """Fraction of wrong labels among the kept, at least FLOOR, so that it can divide others."""
    return max(1 - mean_and_std(values(rows, "label_precision"))[0], FLOOR)


def plot_defect(rows: Sequence[Row], path: Path) -> None:
    rows = matching(rows, question="defect", piece="10 per class")
    panels_of = groups(rows, "features")
    figure, panels = new_figure(len(panels_of))
    for panel, ((file,), group) in zip(panels, panels_of.items(), strict=True):
        by_labels = groups(group, "labels")
        for place, keep in enumerate(("mapped back", "index defect")):
            kept = [
                mean_and_std(values(matching(found, keep=keep), "label_precision"))[0]
                for found in by_labels.values()
            ]
            look = style(place) | {"linestyle": "", "markersize": 9}
            panel.plot(range(len(kept)), kept, label=f"kept, {keep}", **look)
        base = [mean_and_std(values(found, "base"))[0] for found in by_labels.values()]
        look = {"color": COLOURS[-1], "marker": "_", "markersize": 26, "linestyle": ""}
        panel.plot(range(len(base)), base, label="all labels", **look)
        panel.set(title=file, ylim=(0, 1.03), xlim=(-0.5, len(base) - 0.5))
        panel.set_xticks(range(len(base)), [label.replace(" ", "\n") for (label,) in by_labels])
    panels[0].set_ylabel("fraction of correct labels")
    save_figure(figure, path, "Positions taken for indices (10 per class, half of each piece kept)")


def plot_components(rows: Sequence[Row], path: Path) -> None:
    rows = matching(rows, question="components")
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
    """The report, a pure function of the rows."""
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
its own, on which it was trained, or redrawn from the true ones on the same features (seeds:
{seeds}); numbers are means over the seeds. Precision is the fraction of correct labels among the
kept, recall the fraction of the correct labels that are kept, AUROC the probability that a wrong
label is ranked above a correct one. With half kept, precision cannot exceed 0.4 at symmetric 0.8,
where 20 % of the labels are correct."""


def section(rows: Sequence[Row], question: str, about: tuple[str, Callable, str]) -> str:
    """The title, plot, explanation and table of one question."""
    title, tabulate, explanation = about
    mine = matching(rows, question=question) + matching(rows, question="time") * (
        question == "split"
    )
    picture = f"![{title}](ablation_selection_{question}.png)"
    return "\n\n".join(filter(None, [f"## {title}", picture, explanation, tabulate(mine)]))


QUESTIONS = {  # name -> title, table, what its columns are
    "split": ("How large should a piece be?", split_table, ""),
    "ranking": ("Does the path rank better than simpler scores?", ranking_table, ""),
    "defect": ("What did the released indices do?", defect_table, ""),
    "components": (
        "How many principal components?",
        components_table,
        "Cells are precision of the kept half / AUROC.",
    ),
}
