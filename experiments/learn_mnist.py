"""MNIST with 40 % of its labels wrong, ten epochs: plain training and SPR's presets.

    python -m experiments.learn_mnist --out=runs/learn_mnist [--data_dir=DIR] [--report]

A run that was broken off goes on; one that is finished is read.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from experiments.markdown import table
from experiments.origin import REPORTS, origin

RUNS = {  # name -> method, overrides
    "plain cross-entropy": ("ce", {}),
    "SPR, preset paper": ("spr", {"preset": "paper"}),
    "SPR, preset exact": ("spr", {"preset": "exact"}),
}
SHARED = {"noise.rate": 0.4, "epochs": 10}


def launch(workdir: Path, method: str, overrides: dict) -> dict:
    """Run to the end, unless that was done before; its summary."""
    command = [sys.executable, "-m", "spr_jax.main", f"--config=configs/mnist_sym.py:{method}"]
    command += [f"--config.{field}={value}" for field, value in overrides.items()]
    subprocess.run([*command, f"--workdir={workdir}"], check=True)
    return json.loads((workdir / "summary.json").read_text())


def render(summaries: dict[str, dict]) -> str:
    rows = []
    for name, summary in summaries.items():
        last, best = summary["last"], summary["best_on_test"]["test_top1"]
        train, select = summary["seconds_train"], summary["seconds_select"]
        kept = f"{last['clean_share']:.3f}" if "clean_share" in last else ""
        right = f"{last['label_precision']:.4f}" if kept else ""
        accuracies = [f"{100 * found['test_top1']:.2f}" for found in (last, best)]
        times = [f"{train:.0f}", f"{100 * select / (train + select):.1f} %" if kept else ""]
        rows.append([name, *accuracies, kept, right, *times])
    head = ["", "last epoch", "best on test", "kept", "of them right", "training s", "selection"]
    return table(head, rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="runs/learn_mnist", help="folder of the runs")
    parser.add_argument("--data_dir", default="", help="where data sets are kept")
    parser.add_argument("--report", action="store_true", help="write it to experiments/reports")
    options = parser.parse_args()
    summaries = {}
    for name, (method, overrides) in RUNS.items():
        folder = Path(options.out, name.replace(" ", "_").replace(",", ""))
        overrides = SHARED | overrides | {"dataset.data_dir": options.data_dir}
        summaries[name] = launch(folder, method, overrides)
    text = "\n\n".join(
        [
            "# Learning from MNIST with wrong labels",
            origin("flax", "optax"),
            "Symmetric noise, rate 0.4, ten epochs, seed 0; test accuracy in percent. The first "
            "epoch's selection compiles.",
            render(summaries),
        ]
    )
    print(text)
    if options.report:
        (REPORTS / "learn_mnist.md").write_text(text + "\n")
