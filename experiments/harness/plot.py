"""The look of all figures: colours for the colour-blind, readable axes, one legend."""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.harness.study import mean_and_std
from spr_jax.io.atomic import replace_file

# Okabe and Ito's colours, without the pale ones.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vPX"
# Paul Tol's muted colours and a grey, for ten classes; name the classes in the picture as well.
TEN_COLOURS = (
    *("#332288", "#DDCC77", "#117733", "#CC6677", "#88CCEE"),
    *("#882255", "#44AA99", "#999933", "#AA4499", "#777777"),
)


def style(number: int) -> dict[str, str]:
    """Colour and marker of a line; when the colours are used up, they repeat with other markers."""
    turn, kind = divmod(number, len(COLOURS))
    return {"color": COLOURS[kind], "marker": MARKERS[(kind + turn) % len(MARKERS)]}


def star(number: int) -> dict:
    """A single point that belongs to a line."""
    return style(number) | {
        "marker": "*",
        "markersize": 13,
        "markeredgecolor": "black",
        "zorder": 3,
    }


def new_figure(num_panels: int, width: float = 4.0, height: float = 4.2):
    """A figure, and its panels in a row."""
    figure, panels = new_grid(1, num_panels, width, height)
    return figure, panels[0]


def new_grid(num_rows: int, num_columns: int, width: float = 4.0, height: float = 4.2):
    """A figure, and its panels [rows, columns]; width and height are those of a panel."""
    from matplotlib.figure import Figure  # only needed to draw

    size = (1 + width * num_columns, height * num_rows)
    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(num_rows, num_columns, squeeze=False)


def draw_means(panel, points: Mapping[float, Sequence[float]], **look) -> None:
    """Draw mean and standard deviation at each x; an x without values is a gap."""
    drawn = [(x, *mean_and_std(values)) for x, values in sorted(points.items()) if values]
    panel.errorbar(
        [x for x, _, _ in drawn],
        [mean for _, mean, _ in drawn],
        [std or 0 for _, _, std in drawn],
        markersize=5,
        capsize=3,
        **look,
    )


def save_figure(figure, path: Path, title: str = "") -> None:
    """Write the figure as a PNG file, with one legend for all panels below them."""
    handles = {}
    for panel in figure.axes:
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if len(handles) > 1:
        columns = columns_of(list(handles), figure.get_figwidth())
        figure.legend(handles.values(), handles, loc="outside lower center", ncols=columns)
    figure.suptitle(title)
    with replace_file(path, binary=True) as file:
        figure.savefig(file, dpi=150, format="png")


def show_figure(figure, options: Namespace, title: str) -> str:
    """Write NAME.png next to the report of a study; return the line of Markdown that shows it."""
    options.reports.mkdir(parents=True, exist_ok=True)
    save_figure(figure, options.reports / f"{options.name}.png", title)
    return f"![{options.name}]({options.name}.png)"


def columns_of(labels: Sequence[str], width: float) -> int:
    """The number of legend columns that fit next to each other."""
    return min(len(labels), max(1, int(14 * width / (max(map(len, labels)) + 8))))
