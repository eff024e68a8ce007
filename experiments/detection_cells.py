"""Measure detectors on the cells of the detection benchmark: source, kind of noise, rate, seed.

A new rule is tried on development cells, without the command and its store:

    def judge(features, labels):  # [N, d], [N]
        ...
        return suspect, score, rate, (low, high)  # [N] bool, [N], and the estimated noise

    rows = [measure_cell(cell, judge) for cell in development_cells(kinds=["hard"])]
    print(against_rivals(rows, store))  # of detection_verdict: with the rivals' stored rows
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from sklearn.metrics import average_precision_score

from experiments.noise_kinds import DRAWN, HUMAN, HUMAN_SOURCE, KINDS, RATES, Cell, draw_cell
from experiments.rival_detectors import OURS, Evidence, Verdict, judge
from experiments.sources import DEVELOPMENT, MOST_ROWS, is_available, path_of, role_of
from spr_jax.detection.find import Fitted, decide
from spr_jax.detection.options import DetectorOptions
from spr_jax.training.selection_metrics import auroc

Row = dict[str, Any]
Judge = Callable[[np.ndarray, np.ndarray], tuple]

SEEDS = {"development": 0, "report": 1000}  # the first seed of each role
LEVELS = {"max_noise_in_clean": (0.05, 0.1), "max_false_alarms": (0.1, 0.2)}


def cells_of(
    sources: Iterable[str],
    kinds: Sequence[str] = KINDS,
    rates: Sequence[float] = RATES,
    seeds: int = 2,
) -> list[Cell]:
    """All cells of these sources, source by source; labels without noise have one seed."""
    cells = []
    for source in sources:
        first = SEEDS[role_of(source)]
        if "none" in kinds:
            cells.append(Cell(source, "none", 0.0, first))
        cells += [
            Cell(source, kind, rate, first + seed)
            for kind in DRAWN
            if kind in kinds
            for rate in rates
            for seed in range(seeds)
        ]
        if "human" in kinds and source == HUMAN_SOURCE and path_of("cifar10n").exists():
            cells += [Cell(source, "human", rate, k) for k, rate in enumerate(HUMAN.values())]
    return cells


def development_cells(sources: Iterable[str] | None = None, **which) -> list[Cell]:
    """The cells that rules may be chosen on.

    Args:
      sources: names of development sources; None takes all whose files are given.
      **which: kinds, rates and seeds, as for `cells_of`.

    Raises:
      ValueError: a source is a report source.
    """
    names = [name for name in DEVELOPMENT if is_available(name)] if sources is None else sources
    for name in names:
        if name not in DEVELOPMENT:
            raise ValueError(
                f"{name!r} is no development source; choose rules on {[*DEVELOPMENT]}."
            )
    return cells_of(names, **which)


def quality(verdict: Verdict, wrong: np.ndarray) -> Row:
    """Measures of the suspects and of the ranking; those that need errors are None without."""
    hits = float(np.sum(verdict.suspect & wrong))
    suspects, errors = int(verdict.suspect.sum()), int(wrong.sum())
    found = {"flagged": suspects / len(wrong), "precision": hits / max(suspects, 1)}
    if not 0 < errors < len(wrong):
        return found | dict.fromkeys(("recall", "f1", "auroc", "ap", "top"))
    return found | {
        "recall": hits / errors,
        "f1": 2 * hits / (suspects + errors),
        "auroc": auroc(verdict.suspicion, wrong),
        "ap": float(average_precision_score(wrong, verdict.suspicion)),
        "top": top_precision(verdict.suspicion, wrong),
    }


def top_precision(suspicion: np.ndarray, wrong: np.ndarray) -> float:
    """Fraction of errors among as many of the most suspect as there are errors.

    Of examples that tie for the last places, each is taken with equal probability.
    """
    count = int(wrong.sum())
    last = np.sort(suspicion)[-count]
    above, tied = suspicion > last, suspicion == last
    left = count - above.sum()
    return float((wrong[above].sum() + left * wrong[tied].mean()) / count)


def estimate(rate: float, interval: tuple[float, float], wrong: np.ndarray) -> Row:
    """The estimated fraction of wrong labels, and whether its interval covers the true one."""
    low, high = map(float, interval)
    true = float(wrong.mean())
    within = low - 1e-9 <= true <= high + 1e-9
    return {"rate": float(rate), "low": low, "high": high, "covers": within}


def has_levels(cell: Cell) -> bool:
    """True for the first seed and for people's labels."""
    return cell.kind == "human" or cell.seed in SEEDS.values()


def levels(fitted: Fitted, wrong: np.ndarray) -> list[Row]:
    """For each level, how many examples its rule takes, and what fraction of them is mistaken.

    A claim about the clean set is trivial where the level is no lower than the noise.
    """
    found = []
    for option, bounds in LEVELS.items():
        for level in bounds:
            clean = decide(fitted, DetectorOptions(**{option: level})).clean
            is_clean_set = option == "max_noise_in_clean"
            taken, mistaken = (clean, wrong) if is_clean_set else (~clean, ~wrong)
            found.append(
                {
                    "option": option,
                    "level": level,
                    "taken": int(taken.sum()),
                    "mistaken": float(mistaken[taken].mean()) if taken.any() else 0.0,
                    "trivial": bool(is_clean_set and wrong.mean() <= level),
                }
            )
    return found


def measure_cell(cell: Cell, judge: Judge, most_rows: int = MOST_ROWS) -> Row:
    """Measure a rule on one cell; `judge` returns suspects, scores, the rate and its interval."""
    features, given, true = draw_cell(cell, most_rows)
    wrong = given != true
    suspect, score, rate, interval = judge(features, given)
    verdict = Verdict(np.asarray(score), np.asarray(suspect))
    found = quality(verdict, wrong) | estimate(rate, interval, wrong)
    return identity(cell, OURS, most_rows) | {"wrong": float(wrong.mean())} | found


def identity(cell: Cell, detector: str, most_rows: int) -> Row:
    """What a row is about."""
    return {"cell": cell._asdict(), "most_rows": most_rows, "detector": detector}


def measure(cell: Cell, names: Iterable[str], most_rows: int = MOST_ROWS) -> Iterable[Row]:
    """A row for each detector of these names on one cell, as it is measured.

    A detector that fails flags nothing, and its row says why.
    """
    features, given, true = draw_cell(cell, most_rows)
    wrong = given != true
    evidence, seconds = Evidence(features, given, float(wrong.mean())), {}
    facts = {"rows": len(given), "columns": features.shape[1], "classes": int(true.max()) + 1}
    facts["wrong"] = float(wrong.mean())
    for name in names:
        row = identity(cell, name, most_rows) | facts
        try:
            verdict, took = judge(name, evidence, seconds)
            row |= quality(verdict, wrong) | {"seconds": took}
            if name == OURS:
                noise = evidence.found.noise
                row |= estimate(noise.rate, noise.interval, wrong)
                if has_levels(cell):
                    row["levels"] = levels(evidence.fitted, wrong)
        except Exception as error:  # of any detector: the benchmark goes on, and reports it
            nothing = Verdict(np.zeros(len(given)), np.zeros(len(given), bool))
            row |= quality(nothing, wrong) | {"failed": f"{type(error).__name__}: {error}"}
        yield row
