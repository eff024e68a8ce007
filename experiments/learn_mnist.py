"""MNIST with wrong labels, ten epochs: plain training, SPR's presets, and a fixed half beside them.

    python -m experiments.learn_mnist --out=runs/learn_mnist [--data_dir=DIR] [--report]

A run that was broken off goes on; one that is finished is read.
"""

import argparse
from pathlib import Path

from experiments.markdown import table
from experiments.origin import REPORTS, origin
from experiments.runs import Result, Run, complaints, in_shell, launch
from spr_jax.files import replace_file

NOISE = {  # title -> config, rate
    "symmetric 0.4": ("mnist_sym", 0.4),
    "symmetric 0.8": ("mnist_sym", 0.8),
    "asymmetric 0.4": ("mnist_asym", 0.4),
}
METHODS = {  # title -> method, overrides
    "SPR, preset exact": ("spr", {"preset": "exact"}),
    "the same, half kept": ("spr", {"preset": "exact", "method.select": "class"}),
    "plain cross-entropy": ("ce", {}),
    "SPR, preset paper": ("spr", {"preset": "paper"}),
}


def runs(data_dir: str) -> dict[tuple[str, str], Run]:
    """By titles; what decides most comes first."""
    found = {}
    for title, (method, fields) in METHODS.items():
        for noise, (config, rate) in NOISE.items():
            fields = fields | {"epochs": 10, "noise.rate": rate, "dataset.data_dir": data_dir}
            run = Run(f"configs/{config}.py", method, tuple(fields.items()))
            found[noise, title] = run
    return found


def render(results: dict[tuple[str, str], Result]) -> str:
    rows = []
    for noise in NOISE:
        for title in METHODS:
            summary = results[noise, title].summary
            rows.append([noise, title, *(_cells(summary) if summary else ["-"] * 7)])
    head = ["noise", "", "last epoch", "best on test", "kept", "of them right", "of the right kept"]
    return table([*head, "training s", "selection"], rows)


def _cells(summary):
    last, best = summary["last"], summary["best_on_test"]["test_top1"]
    accuracies = [f"{100 * found['test_top1']:.2f}" for found in (last, best)]
    seconds = summary["seconds_train"]
    if "clean_share" not in last:
        return [*accuracies, "", "", "", f"{seconds:.0f}", ""]
    shares = [f"{last[name]:.4f}" for name in ("clean_share", "label_precision", "label_recall")]
    selection = summary["seconds_select"] / (seconds + summary["seconds_select"])
    return [*accuracies, *shares, f"{seconds:.0f}", f"{100 * selection:.1f} %"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="runs/learn_mnist", help="folder of the runs")
    parser.add_argument("--data_dir", default="", help="where data sets are kept")
    parser.add_argument("--report", action="store_true", help="write it to experiments/reports")
    options = parser.parse_args()
    named = runs(options.data_dir)
    found = launch(named.values(), Path(options.out))
    print("\n".join(complaints(found.values())))
    missing = [
        f"    {in_shell(runs('DIR')[titles], Path('runs/learn_mnist'))}"
        for titles, run in named.items()
        if found[run].summary is None
    ]
    text = "\n\n".join(
        [
            "# Learning from MNIST with wrong labels",
            origin("flax", "optax"),
            "C2F2, ten epochs, seed 0; test accuracy in percent. `exact` keeps labels whose chance "
            "to be wrong is below 0.1, `paper` half of each class. The first selection compiles.",
            render({titles: found[run] for titles, run in named.items()}),
            *(["What is missing is made by\n", "\n".join(missing)] if missing else []),
        ]
    )
    print(text)
    if options.report:
        with replace_file(REPORTS / "learn_mnist.md") as file:
            file.write(text + "\n")
