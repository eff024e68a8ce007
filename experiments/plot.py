"""How figures look: colours that the colour-blind tell apart, readable axes, one legend."""

from collections.abc import Sequence
from pathlib import Path

from spr_jax.files import replace_file

# Okabe and Ito's colours, without the pale ones.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vPX"


def style(number: int) -> dict[str, str]:
    """Colour and marker of a line; colours come again with another marker."""
    turn, kind = divmod(number, len(COLOURS))
    return {"color": COLOURS[kind], "marker": MARKERS[(kind + turn) % len(MARKERS)]}


def new_figure(num_panels: int, width: float = 4.0, height: float = 4.2):
    """A figure, and its panels in a row."""
    from matplotlib.figure import Figure  # what is not drawn does not need it

    figure = Figure(figsize=(1 + width * num_panels, height), layout="constrained")
    return figure, figure.subplots(1, num_panels, squeeze=False)[0]


def save_figure(figure, path: Path, title: str = "") -> None:
    """With one legend for all panels, below them."""
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


def columns_of(labels: Sequence[str], width: float) -> int:
    """As many columns of a legend as fit beside each other."""
    return min(len(labels), max(1, int(14 * width / (max(map(len, labels)) + 8))))
