"""Apply the corrections of a review to a label file.

A corrections file has a line for each answered example: its id, the label it had and the correct
one. The id is the example's entry in the column `file` of the labels or, without such a column, its
position, from 0. Everything else in the label file stays as it is, byte for byte.
"""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import NamedTuple

from spr_jax.io.arrays import csv_errors, read_labels
from spr_jax.io.atomic import check_folder, replace_file
from spr_jax.io.text import shown

COLUMNS = ("id", "label", "corrected")


class Correction(NamedTuple):
    id: str
    label: str  # as it was given
    corrected: str


class Record(NamedTuple):
    text: str  # as it is in the file, with its line ending
    cells: list[str]  # empty for a blank line


class Table(NamedTuple):
    """A label file of N examples."""

    records: list[Record]
    rows: list[int]  # [N], index of each example in `records`, which may begin with column names
    labels: list[str]  # [N], as a detector would show them
    column: int  # of the label
    files: list[str] | None  # [N]


class Applied(NamedTuple):
    """Counts of labels, and the classes that the file did not have before."""

    changed: int
    confirmed: int
    examples: int
    new_labels: list[str]


def apply_corrections(corrections_path: Path, labels_path: Path, out: Path) -> Applied:
    """Write the corrected labels to a new file.

    Args:
      corrections_path: exported by the review page, with the columns id, label, corrected.
      labels_path: .csv with one column, or with a column `label`.
      out: the corrected file; neither of the other two.

    Returns:
      Counts of the labels that were changed and confirmed.

    Raises:
      ValueError: in one sentence, what was given and what is expected.
    """
    for given in (corrections_path, labels_path):
        if out.exists() and given.exists() and out.samefile(given):
            raise ValueError(f"out is {given} itself; give another name, the original is kept.")
    corrections = read_corrections(corrections_path)
    table = read_table(labels_path)
    examples = find_examples(table, corrections, str(labels_path))
    check_folder(out.parent).mkdir(parents=True, exist_ok=True)
    with replace_file(out) as file:
        file.write(corrected_text(table, examples, corrections))
    changed = [item.corrected for item in corrections if item.corrected != item.label]
    return Applied(
        changed=len(changed),
        confirmed=len(corrections) - len(changed),
        examples=len(table.rows),
        new_labels=sorted({label for label in changed if label not in table.labels}),
    )


def read_corrections(path: Path) -> list[Correction]:
    """Read one correction per example, in the order of the file.

    Two answers that differ are an error.
    """
    names, *rows = [record.cells for record in _read(path) if record.cells] or [[]]
    if sorted(names) != sorted(COLUMNS):
        raise ValueError(f"{path} has the columns {names}; expected {', '.join(COLUMNS)}.")
    found: dict[str, Correction] = {}
    for row in rows:
        if len(row) != len(COLUMNS) or not all(row):
            raise ValueError(f"{path} has the line {row}; expected {', '.join(COLUMNS)}, no more.")
        new = Correction(**dict(zip(names, map(_without_guard, row), strict=True)))
        if found.setdefault(new.id, new) != new:
            raise ValueError(
                f"{path} has two answers for {shown(new.id)}: from {_change(found[new.id])}, and "
                f"from {_change(new)}; keep the correct one."
            )
    return list(found.values())


def read_table(path: Path) -> Table:
    if path.suffix.lower() != ".csv":
        raise ValueError(f"Cannot correct {path}: expected labels in a file that ends in .csv.")
    values = read_labels(path)  # raises if anything is wrong with the file
    if values.dtype.kind == "f" and (values == values.round()).all():
        values = values.astype(int)
    labels = list(map(str, values.tolist()))
    records = _read(path)
    rows = [row for row, record in enumerate(records) if record.cells]
    names = records[rows[0]].cells
    if "label" not in names:
        return Table(records, rows, labels, 0, None)
    rows, files = rows[1:], None
    if "file" in names:
        column = names.index("file")
        files = [PurePath(records[row].cells[column]).as_posix() for row in rows]
    return Table(records, rows, labels, names.index("label"), files)


def find_examples(table: Table, corrections: list[Correction], whose: str) -> list[int]:
    """Find the example of each correction, and check that its label is the one reviewed."""
    wanted = {correction.id for correction in corrections}
    ids = [str(number) for number in range(len(table.rows))]
    expected = f"a position from 0 to {len(ids) - 1}"
    # A page made from features alone has positions as ids, even if the table has files.
    if table.files and not wanted.isdisjoint(table.files):
        ids, expected = table.files, "one of its files"
    example_of = {name: example for example, name in enumerate(ids)}
    unknown = [correction.id for correction in corrections if correction.id not in example_of]
    if unknown:
        raise ValueError(
            f"{len(unknown)} ids of the corrections are not in {whose}, the first is "
            f"{shown(unknown[0])}; expected {expected}."
        )
    repeated = [name for name, times in Counter(ids).items() if times > 1 and name in wanted]
    if repeated:
        raise ValueError(f"{whose} has {shown(repeated[0])} in several lines; expected it in one.")
    examples = [example_of[correction.id] for correction in corrections]
    for example, (name, seen, _) in zip(examples, corrections, strict=True):
        now = table.records[table.rows[example]].cells[table.column]
        if seen not in (now, table.labels[example]):
            raise ValueError(
                f"{whose} has the label {shown(now)} for {shown(name)}, but the corrections were "
                f"made when it was {shown(seen)}; review the labels as they are now, or give the "
                "file as it was."
            )
    return examples


def corrected_text(table: Table, examples: list[int], corrections: list[Correction]) -> str:
    texts = [record.text for record in table.records]
    for example, correction in zip(examples, corrections, strict=True):
        if correction.corrected != correction.label:
            row = table.rows[example]
            texts[row] = _with_label(table.records[row], table.column, correction.corrected)
    return "".join(texts)


def _with_label(record, column, label):
    cells = [*record.cells]
    cells[column] = label
    file = io.StringIO(newline="")
    ending = record.text[len(record.text.rstrip("\r\n")) :]
    csv.writer(file, lineterminator=ending).writerow(cells)
    return file.getvalue()


def _read(path):
    with csv_errors(path):
        return list(_records(path.read_bytes().decode("utf-8")))


def _records(text: str) -> Iterator[Record]:
    """Yield what csv.reader reads, together with the text it was read from."""
    taken = []

    def lines():
        for line in io.StringIO(text.removeprefix("\ufeff"), newline=""):
            taken.append(line)
            yield line

    mark = text[: text.startswith("\ufeff")]  # a spreadsheet's, kept where it was
    for cells in csv.reader(lines()):
        yield Record(mark + "".join(taken), cells)
        taken.clear()
        mark = ""


def _without_guard(cell):
    """Remove the quote that the page puts before anything a spreadsheet would run as a formula."""
    return cell[1:] if re.match(r"'+[=+\-@\t\r]", cell) else cell


def _change(correction):
    return f"{shown(correction.label)} to {shown(correction.corrected)}"
