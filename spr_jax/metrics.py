"""What a run tells while it goes: metrics.jsonl, TensorBoard, a line for each epoch."""

import json
from pathlib import Path
from typing import Any

from spr_jax.files import replace_file


class Log:
    """Written by one process; the others only keep the rows."""

    def __init__(self, folder: Path, epoch: int = 0, *, writes: bool = True):
        """Rows of `epoch` and later, left by a run that was broken off, are dropped."""
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
    """The finished epochs of a metrics.jsonl; a line that was cut off is none."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def line_of(row: dict[str, Any], epochs: int) -> str:
    """One epoch, for people."""
    parts = [f"epoch {row['epoch'] + 1:{len(str(epochs))}}/{epochs}", f"loss {row['loss']:.4f}"]
    for name in row:
        if name.endswith("_top1"):
            parts.append(f"{name.removesuffix('_top1')} {100 * row[name]:.2f} %")
    if "clean_share" in row:
        right = f", {100 * row['label_precision']:.2f} % right" if "label_precision" in row else ""
        parts.append(f"kept {100 * row['clean_share']:.1f} %{right}")
    seconds = (f"{name} {row[f'seconds_{name}']:.1f}" for name in ("train", "select", "test"))
    return "  ".join([*parts, f"{', '.join(seconds)} s"])


def write_json(path: Path, content: Any) -> None:
    with replace_file(path) as file:
        json.dump(content, file, indent=2)
        file.write("\n")
