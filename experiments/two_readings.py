"""A picture of what no detector can tell: overlapping classes, or wrong labels near their border.

    python -m experiments.two_readings

Both panels have the same features and the same given labels.
"""

import numpy as np

from experiments.harness.plot import new_figure, save_figure
from experiments.harness.provenance import REPORTS

PICTURE = REPORTS / "two_readings.png"


def main() -> None:
    generator = np.random.default_rng(0)
    points = generator.uniform(-3, 3, (400, 2))
    # In a strip around the border the label is a coin flip, elsewhere it is the side.
    in_strip = np.abs(points[:, 0]) < 0.8
    given = np.where(in_strip, generator.integers(0, 2, 400), points[:, 0] > 0)
    side = (points[:, 0] > 0).astype(int)
    figure, panels = new_figure(2, width=4.2, height=3.6)
    readings = {"all labels correct, classes overlap": given, "classes apart, labels wrong": side}
    for panel, (title, true) in zip(panels, readings.items(), strict=True):
        for label, color in ((0, "tab:blue"), (1, "tab:orange")):
            mine = given == label
            panel.scatter(*points[mine].T, s=9, color=color, label=f"given label {label}")
        wrong = given != true
        panel.scatter(*points[wrong].T, s=42, facecolors="none", edgecolors="black", label="wrong")
        panel.set(
            title=f"{title}: {wrong.mean():.0%} wrong", xlabel="feature 1", ylabel="feature 2"
        )
    save_figure(figure, PICTURE, "The same features and labels, two readings")
    print(f"Wrote {PICTURE}.")


if __name__ == "__main__":
    main()
