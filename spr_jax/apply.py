"""Apply the corrections of a review to a label file, as a command.

    spr-apply corrections.csv labels.csv --out=fixed.csv    # or python -m spr_jax.apply

corrections.csv is what the review page exports. Everything else in the label file stays as it is,
byte for byte; the file itself is never written to.
"""

import argparse
import sys
from pathlib import Path

from spr_jax.detection.corrections import Applied, apply_corrections
from spr_jax.io.text import program_name, shown


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=program_name("spr_jax.apply"),
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("corrections", type=Path, help="exported by the review page")
    parser.add_argument("labels", type=Path, help=".csv with one column, or a column 'label'")
    parser.add_argument("--out", type=Path, required=True, help="the corrected label file")
    return parser.parse_args(arguments)


def describe(applied: Applied, out: Path) -> str:
    new = ", ".join(map(shown, applied.new_labels))
    return (
        f"Changed {applied.changed:,} of {applied.examples:,} labels and confirmed "
        f"{applied.confirmed:,}; wrote {out}." + (f" New in this file: {new}." if new else "")
    )


def main(arguments: list[str] | None = None) -> None:
    options = parse_arguments(arguments)
    try:
        applied = apply_corrections(options.corrections, options.labels, options.out)
    except (ValueError, OSError) as error:
        print(f"{program_name('spr_jax.apply')}: {error}", file=sys.stderr)
        sys.exit(2)
    print(describe(applied, options.out))


if __name__ == "__main__":
    main()
