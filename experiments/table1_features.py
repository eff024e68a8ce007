"""Table 1 on frozen features: CIFAR-10 by a pretrained encoder, all methods on one small network.

    spr-encode --dataset=cifar10 --out=DIR/cifar10.npz
    python -m experiments.table1_features --data_dir=DIR [--seeds 3] [--jobs 2]
    python -m experiments.table1_features --data_dir=DIR --noise sym-0.4 --methods ce spr
    python -m experiments.table1_features --others ...    # scikit-learn and cleanlab, as well
    python -m experiments.table1_features --read          # report what is finished

    python -m experiments.table1_features --small         # plain training and SPR, one noise

For people's labels DIR holds aggre.npy, random1.npy and worst.npy, the columns of CIFAR-10N. About
a minute a run on two cores; an interrupted table resumes, on another machine, too.
"""

import sys
from argparse import Namespace
from collections.abc import Mapping

from experiments import other_classifiers, paper_results
from experiments.figure_precision import KINDS
from experiments.harness import study
from experiments.harness.runs import Run
from experiments.table1_synthetic import BEST, LAST, MEASURES, render
from spr_jax.datasets.cifar10n import WRONG
from spr_jax.methods import METHODS, TOLD_NOISE_RATE

NAME = "table1_features"
DATASET = "CIFAR-10, frozen features"  # other rows than those of the paper
OTHERS = "Classifiers of other packages on the same vectors and labels"
HUMAN = ("aggre", "random1", "worst")
NOISE = (*paper_results.NOISE, *HUMAN)
# Rows that show what the preset is made of.
OURS, ORACLE = "spr, ours", "oracle"
VARIANTS = {
    "spr": {OURS: {}, "spr, paper": {"preset": "paper"}},
}


def cells(options: Namespace) -> study.Cells:
    """(data set, row, noise) -> runs."""
    noises = study.choose(options.noise, ["sym-0.4"] if options.small else NOISE, "noise")
    methods = study.choose(options.methods, ["ce", "spr"] if options.small else METHODS, "method")
    found = {}
    for method in methods:
        for row, fields in VARIANTS.get(method, {method: {}}).items():
            for noise in noises:
                changed = fields | of(noise, method)
                run = Run(study.FEATURES_CONFIG, method, tuple(changed.items()))
                found[DATASET, row, noise] = study.repeat(run, options)
    return found


def of(noise: str, method: str) -> dict:
    """The fields of a noise; methods that are told its rate are told the published one."""
    if noise in HUMAN:
        told = TOLD_NOISE_RATE.get(method)
        return {
            "noise.kind": "human",
            "noise.rate": 0.0,
            "dataset.labels": f"{noise}.npy",
        } | ({f"method.{told}": WRONG[noise]} if told else {})
    kind, rate = noise.split("-")
    return {"noise.kind": KINDS[kind], "noise.rate": float(rate)}


def verdict(found: Mapping[tuple, study.Found]) -> str:
    """How ours stands to the best other method of each label set, and to the oracle, in words."""
    means = {
        (row, noise): study.mean_and_std(cell.values(LAST))[0]
        for (_, row, noise), cell in found.items()
    }
    lines, ahead, counted = [], 0, 0
    for noise in dict.fromkeys(noise for _, noise in means):
        ours, perfect = means.get((OURS, noise)), means.get((ORACLE, noise))
        others = {
            row: mean
            for (row, of_noise), mean in means.items()
            if of_noise == noise and row not in (OURS, ORACLE) and mean is not None
        }
        if ours is None or not others:
            continue
        best = max(others, key=others.__getitem__)
        counted, ahead = counted + 1, ahead + (ours >= others[best])
        line = f"- {noise}: {ours:.2f}, {ours - others[best]:+.2f} against {best}"
        lines.append(line + (f", {ours - perfect:+.2f} against oracle." if perfect else "."))
    if not lines:
        return ""
    head = (
        f"In {ahead} of {counted} label sets `{OURS}` is at or above every other method without "
        "true labels that is finished there. Last epoch, against the best of them, and the oracle:"
    )
    return "\n".join([head, "", *lines])


def remarks(options: Namespace) -> str:
    """The facts that a reader needs to judge the numbers."""
    return (
        f"Test accuracy in per cent; {study.seeds_of(options)}. The features are those of an "
        "encoder that was trained on ImageNet and is not trained any further; every method trains "
        "the same network of one hidden layer on them, for 30 epochs, with true labels only in the "
        "row `oracle`. So nothing here can be compared with the paper's Table 1, whose networks "
        "learn from the images. `sym-0.4` is symmetric noise of rate 0.4; `aggre`, `random1` and "
        "`worst` are people's labels (CIFAR-10N: 9, 17 and 40 % wrong). Co-teaching, Co-teaching+, "
        "MentorNet and SELFIE are told the rate of synthetic noise, and the published one of "
        "people's labels. Settings of our training on vectors were chosen with networks that were "
        "trained on 8,000 and tested on 2,000 of the test images, and on a part of the training "
        "images: the test images are not new to them."
    )


def main(arguments: list[str] | None = None) -> int:
    parser = study.arguments(__doc__, NAME)
    several = {"nargs": "+", "action": "extend"}
    parser.add_argument("--noise", **several, help="sym-0.4, asym-0.3, worst ... [all]")
    parser.add_argument("--methods", **several, help="names of spr_jax.methods [all]")
    parser.add_argument("--others", action="store_true", help="fit scikit-learn's and cleanlab's")
    options = study.parse(parser, arguments)
    found = study.conduct(cells, options)
    label_sets = cells(Namespace(**vars(options) | {"methods": ["ce"]}))
    # Beside the report, as the results of the runs are: folders of runs do not outlive a machine.
    beside = Namespace(**vars(options) | {"out": options.reports / NAME})
    if options.others and not options.read:
        other_classifiers.measure(label_sets, beside)
    sections = [
        f"## {measure[0].upper()}{measure[1:]}\n\n{render(DATASET, measure, found, {})}"
        for measure in (LAST, BEST)
    ]
    if others := other_classifiers.render(label_sets, beside):
        sections.insert(1, f"## {OTHERS}\n\n{others}")
    rows = study.csv_rows(["data set", "method", "noise"], MEASURES, found, {}, NAME)
    title = "Table 1 on frozen features of CIFAR-10"
    return study.report(options, found, title, [remarks(options), verdict(found), *sections], rows)


if __name__ == "__main__":
    sys.exit(main())
