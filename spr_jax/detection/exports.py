"""Results as the files that review tools import: plain CSV and JSON, written without these tools.

    export(found, labels, ["fiftyone", "labelstudio"], "found", names=files, root="photos")

`EXPORTS` maps a name to what it writes. Every file appears completely or not at all.
"""

import importlib.util
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path, PurePath
from typing import Any, NamedTuple
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

import numpy as np

import spr_jax
from spr_jax.detection.results import write_csv
from spr_jax.detection.types import Detection
from spr_jax.io.atomic import check_folder, replace_file, write_json
from spr_jax.io.inputs import label_array
from spr_jax.io.text import shown
from spr_jax.registry import lookup

LOCAL_FILES = "/data/local-files/?d="  # where Label Studio serves files below its document root


class Judged(NamedTuple):
    """N examples whose labels were judged."""

    found: Detection
    labels: np.ndarray  # [N], as given
    names: np.ndarray | None  # [N] text that identifies the examples
    root: Path | None  # folder that the names are files of; None: they are no files


class Export(NamedTuple):
    write: Callable[[Judged, Path], None]  # to a folder
    file: str  # the main file, in the folder of the results
    needs_files: bool = False
    package: str = ""  # that must be installed


def export(
    found: Detection,
    labels: Any,  # [N]
    to: Sequence[str],
    out: str | Path,
    *,
    names: Any = None,  # [N]
    root: Any = None,
) -> list[Path]:
    """Write the results of a detector for other tools.

    Args:
      found: what `find_label_errors` returned.
      labels: as it was given them.
      to: names of `EXPORTS`.
      out: folder that is written to; each tool has its own file or folder in it.
      names: image files of the examples, or anything else that identifies them.
      root: folder that the image files are in. FiftyOne, Label Studio and Hugging Face need it.

    Returns:
      The main file of each export.

    Raises:
      ValueError: in one sentence, what was given and what is expected.
    """
    judged = Judged(
        found,
        label_array(labels),
        None if names is None else np.asarray(names).astype(str),
        None if root is None else Path(os.path.abspath(Path(root).expanduser())),
    )
    check_exports(to, judged.labels, judged.names, judged.root)
    out = check_folder(out)
    for name in to:
        path = out / EXPORTS[name].file
        path.parent.mkdir(parents=True, exist_ok=True)
        EXPORTS[name].write(judged, path.parent)
    return [out / EXPORTS[name].file for name in to]


def check_exports(
    to: Sequence[str], labels: np.ndarray, names: np.ndarray | None, root: Path | None
) -> None:
    """Raise a ValueError for what cannot be exported, before any work is done."""
    for name in to:
        chosen = lookup(EXPORTS, name)
        if chosen.package and importlib.util.find_spec(chosen.package) is None:
            raise ValueError(
                f"The export {name} needs {chosen.package}, which is not installed; pip install "
                f"{chosen.package}."
            )
        if chosen.needs_files:
            _check_files(name, names, root)
    if "labelstudio" in to:
        _check_xml(labels)


def _check_files(name, names, root):
    if names is None or root is None:
        raise ValueError(
            f"The export {name} needs image files, and there are only features; give the images, "
            "or a column 'file' beside the labels."
        )
    missing = [file for file in names.tolist() if not _is_below(file, root)]
    if missing:
        raise ValueError(
            f"The export {name} needs image files, but {len(missing)} of {len(names)} are not in "
            f"{os.path.abspath(root)}, the first is {shown(missing[0])!r}; give paths below it."
        )


def _is_below(file, root):
    path = PurePath(file)
    return not path.is_absolute() and ".." not in path.parts and (root / path).is_file()


def _check_xml(labels):
    for label in np.unique(labels).astype(str).tolist():
        if not all(mark >= " " or mark in "\t\n\r" for mark in label):
            raise ValueError(
                f"The label {shown(label)} has a control character, which the configuration of "
                "Label Studio cannot hold; rename it, or leave out the export labelstudio."
            )


def _rows(judged: Judged) -> list[dict[str, Any]]:
    """Return the columns of each example as values for JSON, numbers with six digits."""
    columns = judged.found.columns()
    texts = [
        [float(f"{value:.6g}") for value in column.tolist()]
        if column.dtype.kind == "f"
        else column.tolist()
        for column in columns.values()
    ]
    return [dict(zip(columns, row, strict=True)) for row in zip(*texts, strict=True)]


def write_cleanlab(judged: Judged, folder: Path) -> None:
    """Write the table of cleanlab's `get_label_issues`, in the input order."""
    write_csv(folder / "cleanlab.csv", judged.found.as_cleanlab(judged.labels))


def write_parquet(judged: Judged, folder: Path) -> None:
    """Write the columns of labels.csv as Parquet."""
    import pyarrow
    from pyarrow import parquet

    columns: dict[str, np.ndarray] = {"index": np.arange(len(judged.labels))}
    if judged.names is not None:
        columns["file"] = judged.names
    columns |= judged.found.columns(judged.labels)
    arrays = {
        name: pyarrow.array(column.tolist() if column.dtype.kind == "U" else column)
        for name, column in columns.items()
    }
    with replace_file(folder / "labels.parquet", binary=True) as file:
        parquet.write_table(pyarrow.table(arrays), file)


def write_fiftyone(judged: Judged, folder: Path) -> None:
    """Write labels.json of a FiftyOneImageClassificationDataset, keyed by absolute paths."""
    assert judged.names is not None and judged.root is not None
    labels = {}
    for name, given, row in zip(judged.names.tolist(), judged.labels, _rows(judged), strict=True):
        attributes = {
            "given_label": str(given),
            "suggested_label": str(row["suggested"]),
            "error_probability": row["error_probability"],
            "rank": row["rank"],
            "suspect": row["suspect"],
        }
        labels[str(judged.root / name)] = {"label": str(given), "attributes": attributes}
    classes = [str(label) for label in judged.found.noise.classes]
    write_json(folder / "labels.json", {"classes": classes, "labels": labels})


def write_labelstudio(judged: Judged, folder: Path) -> None:
    """Write tasks.json, the most suspect first, and config.xml, the interface to review them with.

    The suggested label is the prediction; its score is the probability that the given label is
    correct, since Label Studio presents the lowest score first.
    """
    assert judged.names is not None and judged.root is not None
    rows, tasks = _rows(judged), []
    for index in judged.found.order.tolist():
        row, name = rows[index], judged.names[index].item()
        choice = {
            "from_name": "choice",
            "to_name": "image",
            "type": "choices",
            "value": {"choices": [str(row["suggested"])]},
        }
        data = {
            "image": LOCAL_FILES + quote((Path(judged.root.name) / name).as_posix()),
            "index": index,
            "file": name,
            "given_label": str(judged.labels[index]),
            "suggested_label": str(row["suggested"]),
            "error_probability": row["error_probability"],
            "rank": row["rank"],
            "suspect": row["suspect"],
        }
        prediction = {
            "model_version": f"spr_jax {spr_jax.__version__}",
            "score": round(1 - row["error_probability"], 6),
            "result": [choice],
        }
        tasks.append({"data": data, "predictions": [prediction]})
    write_json(folder / "tasks.json", tasks)
    with replace_file(folder / "config.xml") as file:
        file.write(_interface([str(label) for label in judged.found.noise.classes]))


def _interface(classes):
    choices = "\n".join(f"    <Choice value={quoteattr(label)}/>" for label in classes)
    return f"""<View>
  <Header value="Given: $given_label, suggested: $suggested_label"/>
  <Image name="image" value="$image"/>
  <Choices name="choice" toName="image" choice="single" showInLine="true">
{choices}
  </Choices>
</View>
"""


def write_huggingface(judged: Judged, folder: Path) -> None:
    """Write metadata.jsonl of an image folder: it belongs into the folder of the images."""
    assert judged.names is not None
    with replace_file(folder / "metadata.jsonl") as file:
        for name, label, row in zip(
            judged.names.tolist(), judged.labels.tolist(), _rows(judged), strict=True
        ):
            file.write(json.dumps({"file_name": name, "label": label, **row}) + "\n")


EXPORTS = {
    "cleanlab": Export(write_cleanlab, "cleanlab.csv"),
    "fiftyone": Export(write_fiftyone, "fiftyone/labels.json", needs_files=True),
    "huggingface": Export(write_huggingface, "huggingface/metadata.jsonl", needs_files=True),
    "labelstudio": Export(write_labelstudio, "labelstudio/tasks.json", needs_files=True),
    "parquet": Export(write_parquet, "labels.parquet", package="pyarrow"),
}
