"""Apply the corrections of a review to the label file.

    python -m spr_jax.apply corrections.csv labels.csv --out=fixed.csv

`corrections.csv` is what the page of `spr_jax.report` exports: a line for each answered example,
with its id, the label it had and the right one. An id is what the labels have in a column `file`
or, without such a column, the position of the example, from 0. Whatever else is in the label file
stays as it is, byte for byte; the file itself is never written to.
"""

import argparse
import csv
import io
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import NamedTuple

from spr_jax.files import check_folder, read_labels, replace_file, shown

COLUMNS = ("id", "label", "corrected")


class Correction(NamedTuple):
    id: str
    label: str  # as it was given
    corrected: str


class Record(NamedTuple):
    text: str  # as it stands in the file, its line ending too
    cells: list[str]  # none of a blank line


class Table(NamedTuple):
    """A label file. An example has a place, from 0; its record may stand below a line of names."""

    records: list[Record]
    places: list[int]  # [N], of each example, where in `records` it is
    labels: list[str]  # [N], as a detector would show them
    column: int  # of the label
    files: list[str] | None  # [N]


def read_corrections(path: Path) -> list[Correction]:
    """One for each example, in the order of the file; two answers that differ are an error."""
    names, *rows = [record.cells for record in _read(path) if record.cells] or [[]]
    if sorted(names) != sorted(COLUMNS):
        raise ValueError(f"{path} has the columns {names}; expected {', '.join(COLUMNS)}.")
    found = {}
    for row in rows:
        if len(row) != len(COLUMNS) or not all(row):
            raise ValueError(f"{path} has the line {row}; expected {', '.join(COLUMNS)}, no more.")
        new = Correction(**dict(zip(names, map(_without_guard, row), strict=True)))
        if found.setdefault(new.id, new) != new:
            raise ValueError(
                f"{path} has two answers for {shown(new.id)}: from {_change(found[new.id])}, and "
                f"from {_change(new)}; keep the one that is right."
            )
    return list(found.values())


def read_table(path: Path) -> Table:
    if path.suffix.lower() != ".csv":
        raise ValueError(f"Cannot correct {path}: expected labels in a file that ends in .csv.")
    values = read_labels(path)  # says what is wrong with the file, if anything is
    if values.dtype.kind == "f" and (values == values.round()).all():
        values = values.astype(int)
    records = _read(path)
    places = [place for place, record in enumerate(records) if record.cells]
    names = records[places[0]].cells
    if "label" not in names:
        return Table(records, places, list(map(str, values.tolist())), 0, None)
    places, files = places[1:], None
    if "file" in names:
        column = names.index("file")
        files = [PurePath(records[place].cells[column]).as_posix() for place in places]
    return Table(records, places, list(map(str, values.tolist())), names.index("label"), files)


def find_examples(table: Table, corrections: list[Correction], whose: str) -> list[int]:
    """Which example each correction is for, if its label still is what the reviewer saw."""
    wanted = {correction.id for correction in corrections}
    ids = [str(number) for number in range(len(table.places))]
    expected = f"a position from 0 to {len(ids) - 1}"
    # Of features alone the page knows no files, whatever the table has.
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
        now = table.records[table.places[example]].cells[table.column]
        if seen not in (now, table.labels[example]):
            raise ValueError(
                f"{whose} has the label {shown(now)} for {shown(name)}, and the corrections were "
                f"made when it was {shown(seen)}; review the labels as they are now, or give the "
                "file as it was."
            )
    return examples


def corrected_text(table: Table, examples: list[int], corrections: list[Correction]) -> str:
    texts = [record.text for record in table.records]
    for example, correction in zip(examples, corrections, strict=True):
        if correction.corrected != correction.label:
            place = table.places[example]
            texts[place] = _with_label(table.records[place], table.column, correction.corrected)
    return "".join(texts)


def _with_label(record, column, label):
    cells = [*record.cells]
    cells[column] = label
    file = io.StringIO(newline="")
    ending = record.text[len(record.text.rstrip("\r\n")) :]
    csv.writer(file, lineterminator=ending).writerow(cells)
    return file.getvalue()


def _read(path):
    try:
        return list(_records(path.read_bytes().decode("utf-8")))
    except OSError as error:
        raise ValueError(f"Cannot read {path}: {error.strerror or error}.") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"Cannot read {path}: it is not a CSV file in UTF-8 ({error}).") from None


def _records(text: str) -> Iterator[Record]:
    """What csv.reader reads, with the text it read it from."""
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
    """The page puts a quote before what a spreadsheet would take for a formula."""
    return cell[1:] if re.match(r"'+[=+\-@\t\r]", cell) else cell


def _change(correction):
    return f"{shown(correction.label)} to {shown(correction.corrected)}"


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m spr_jax.apply",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("corrections", type=Path, help="as exported by the page of a report")
    parser.add_argument("labels", type=Path, help=".csv, one column or one named 'label'")
    parser.add_argument("--out", type=Path, required=True, help="the corrected label file")
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> str:
    """Write the corrected file; what was done, in one sentence."""
    for given in (options.corrections, options.labels):
        if options.out.exists() and given.exists() and options.out.samefile(given):
            raise ValueError(f"--out is {given} itself; give another name, the original is kept.")
    corrections = read_corrections(options.corrections)
    table = read_table(options.labels)
    examples = find_examples(table, corrections, str(options.labels))
    check_folder(options.out.parent).mkdir(parents=True, exist_ok=True)
    with replace_file(options.out) as file:
        file.write(corrected_text(table, examples, corrections))
    changed = [item.corrected for item in corrections if item.corrected != item.label]
    new = sorted({shown(label) for label in changed if label not in table.labels})
    return (
        f"Changed {len(changed):,} of {len(table.places):,} labels and confirmed "
        f"{len(corrections) - len(changed):,}; wrote {options.out}."
        + (f" New in this file: {', '.join(new)}." if new else "")
    )


def main(arguments: list[str] | None = None) -> None:
    try:
        print(run(parse_arguments(arguments)))
    except (ValueError, OSError) as error:
        print(f"python -m spr_jax.apply: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
