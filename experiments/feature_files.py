"""Files of features and labels from small networks, as the experiments on detection read them.

    python -m experiments.feature_files mnist_sym40 cifar10_sym40 --data_dir=DIR
    python -m experiments.feature_files mnist_asym40_e2    # after two epochs instead of one

A name says what is trained: DATASET_KINDRATE, with a kind of sym, asym or none, and _eEPOCHS for a
number of epochs other than the default. The training is plain cross-entropy (`ce`) with the data
set's config:

    mnist      C2F2, 128 features, 1 epoch
    cifar10    ResNet-18 of width 32, 256 features, 4 epochs

Each file holds `features` [N, d] in half precision, `given` and `true` labels [N] and `index` [N]
for 20,000 training images, the same for every file of a data set. Interrupted runs resume.

The files behind the reports in `reports/` were written before this script existed, by other runs:
their features come from the training-mode forward pass of the last epoch (here: the trained
network, without augmentation), the images are another random choice, they hold `logits` as well,
and the network of cifar10_sym40 had four convolutions and a global average pool (256 features, four
epochs, 62 % test accuracy). New files give similar numbers, not the same ones: on a new mnist_sym40
the kept half has a label precision of 0.927 in pieces of 10 per class (10 components; the report
has 0.936) and 0.9998 on whole data (64 components; 0.9995). A new cifar10_sym40 was not measured.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.features import look, write
from experiments.harness import study
from experiments.harness.runs import Run, config_of
from spr_jax.devices import one_device_per_core

NAME = "feature_files"
NUM_EXAMPLES = 20_000
EPOCHS = {"mnist": 1, "cifar10": 4}
FIELDS = {"mnist": {}, "cifar10": {"backbone.width": 32}}
FILE_NAME = re.compile(rf"({'|'.join(EPOCHS)})_(none|(sym|asym)([1-9]\d?))(?:_e([1-9]\d*))?")


def run_of(name: str) -> Run:
    """The run whose network makes the features of a file.

    Raises:
      ValueError: the name does not say what to train.
    """
    match = FILE_NAME.fullmatch(name)
    if not match:
        raise ValueError(
            f"Cannot read the name {name!r}; expected DATASET_KINDRATE or DATASET_KINDRATE_eEPOCHS "
            f"such as mnist_sym40 or mnist_asym40_e2, with a data set of {', '.join(EPOCHS)}."
        )
    dataset, _, kind, rate, epochs = match.groups()
    fields = FIELDS[dataset] | {"epochs": int(epochs or EPOCHS[dataset])}
    fields["noise.rate"] = int(rate or 0) / 100
    return Run(f"configs/{dataset}_{kind or 'sym'}.py", "ce", tuple(fields.items()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 0; 1 if a run failed; 75 if it was stopped and can resume."""
    parser = study.new_parser(__doc__)
    parser.set_defaults(seeds=1, read=False)
    parser.add_argument("names", nargs="+", metavar="NAME", help="of a file, without .npz")
    parser.add_argument("--data_dir", default="", help="where data sets are kept")
    parser.add_argument("--files", type=Path, default=Path(), help="folder to write the files to")
    parser.add_argument("--out", type=Path, default=Path("runs", NAME), help="folder of the runs")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time [%(default)s]")
    options = parser.parse_args(arguments)
    found = study.conduct(
        lambda options: {name: study.repeat(run_of(name), options) for name in options.names},
        options,
    )
    for name, cell in found.items():
        if cell.summaries:
            write(
                look(config_of(cell.runs[0]), cell.results[0].folder, NUM_EXAMPLES),
                options.files / f"{name}.npz",
            )
    return study.exit_status(study.results_of(found))


if __name__ == "__main__":
    one_device_per_core()
    sys.exit(main())
