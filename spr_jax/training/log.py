"""Records of a run: metrics.jsonl, TensorBoard, a line per epoch, the clean set."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np

from spr_jax.io.atomic import replace_file
from spr_jax.methods.method import Memory
from spr_jax.types import Dataset


class Log:
    """Rows of metrics, written by one process; the others only keep them."""

    def __init__(self, folder: Path, epoch: int = 0, *, writes: bool = True):
        """Open the log; rows of `epoch` and later, left by an interrupted run, are dropped."""
        self.path, self.events = folder / "metrics.jsonl", None
        self.rows = [row for row in read_rows(self.path) if row["epoch"] < epoch]
        if not writes:
            return
        from tensorboardX import SummaryWriter

        with replace_file(self.path) as file:
            file.writelines(json.dumps(row) + "\n" for row in self.rows)
        self.events = SummaryWriter(str(folder / "events"), purge_step=epoch or None)

    def write(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        if self.events:
            with open(self.path, "a") as file:
                file.write(json.dumps(row) + "\n")
            for name, value in row.items():
                self.events.add_scalar(name, value, row["epoch"])

    def close(self) -> None:
        if self.events:
            self.events.close()


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read the finished epochs of a metrics.jsonl; an incomplete last line is ignored."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def line_of(row: dict[str, Any], epochs: int) -> str:
    """Format the row of an epoch for people."""
    parts = [f"epoch {row['epoch'] + 1:{len(str(epochs))}}/{epochs}", f"loss {row['loss']:.4f}"]
    for name in row:
        if name.endswith("_top1"):
            parts.append(f"{name.removesuffix('_top1')} {100 * row[name]:.2f} %")
    if "clean_share" in row:
        parts.append(f"kept {100 * row['clean_share']:.1f} %")
    if "label_precision" in row:
        parts[-1] += f", {100 * row['label_precision']:.2f} % correct"
    seconds = (f"{name} {row[f'seconds_{name}']:.1f}" for name in ("train", "select", "test"))
    return "  ".join([*parts, f"{', '.join(seconds)} s"])


def write_selection(workdir: Path, dataset: Dataset, members: np.ndarray, memory: Memory) -> None:
    """Write clean.npz: `index` in the data set, clean mask and suspicion of each example.

    For the user's own images also clean.csv, the most suspect first.
    """
    if "clean" not in memory:
        return
    kept: dict[str, Any] = {name: memory[name] for name in ("clean", "suspicion") if name in memory}
    with replace_file(workdir / "clean.npz", binary=True) as file:
        np.savez_compressed(file, index=members, **kept)
    if dataset.train.names is None:
        return
    labels = np.array(dataset.class_names)[dataset.train.labels]
    columns: dict[str, Any] = {"file": dataset.train.names, "label": labels, **kept}
    suspicion = np.asarray(kept.get("suspicion", ~kept["clean"]), float)
    order = np.argsort(-suspicion, kind="stable")
    with replace_file(workdir / "clean.csv") as file:
        table = csv.writer(file)
        table.writerow(columns)
        table.writerows(zip(*(column[order].tolist() for column in columns.values()), strict=True))
