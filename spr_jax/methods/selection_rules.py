"""Selection rules: which examples SPR calls clean after an epoch.

A rule is a function of its options, like a method: `config.method.select.name` names one, and the
options next to the name are the arguments of its function. It returns a `Rule`, whose `choose`
takes the features [N, d] that the epoch recorded, the given labels [N], a key and the last clean
set [N].

`share` and `knockoffs` solve the penalized-regression path, on small pieces as in the paper or on
the whole data; `path` solves it on the whole data; `noise_model` does not solve it at all. Examples
that were not visited (drop_last) have all-zero features; there are too few of them to affect the
fit.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, random
from jax.sharding import NamedSharding, PartitionSpec

from spr_jax.devices import device_mesh
from spr_jax.methods.method import expect
from spr_jax.registry import lookup
from spr_jax.solver import Options, clean_set, plan_pieces
from spr_jax.solver.knockoffs import Trial, knockoff_set
from spr_jax.solver.label_noise import label_noise
from spr_jax.solver.mean_shift import CUTS
from spr_jax.solver.top_share import SELECTORS, keep_lowest

WHOLE_DATA_CLASSES = 100  # at most; more are solved in groups


class Selection(NamedTuple):
    """The clean set that a rule chose."""

    clean: Array  # [N] bool
    suspicion: Array | None = None  # [N], larger is more suspect; None: the rule does not rank
    numbers: Mapping[str, Array] = MappingProxyType({})  # for the log, see `Rule.numbers`
    transition: Array | None = None  # [c, c], P(given label | true class), from a noise model


class Rule(NamedTuple):
    """A way to choose the clean set."""

    choose: Callable[..., Selection]  # (features, labels, key, clean) -> Selection
    numbers: tuple[str, ...] = ()  # names of the numbers it logs
    models_noise: bool = False  # its suspicion is a probability, and it knows the transitions


def share(
    keep: float = 0.5,
    within: str = "piece",
    per_class: int = 10,
    classes_per_group: int = 10,
    pca_dim: int = 10,
    intercept: bool = False,
    ties: str = "interpolated",
    penalty: str = "l21",
    num_penalties: int = 100,
) -> Rule:
    """Keep a fixed share of each class: the examples that enter the path last. The paper's rule.

    Args:
      keep: the share of each class to call clean.
      within: take it of each "piece", or of each "class" over all pieces.
      per_class: examples of each class in a piece; 0 solves the whole data at once.
      classes_per_group: classes that are solved together.
      pca_dim: principal components that the regression sees.
      intercept: add a constant column; needed where classes differ in size.
      ties: "interpolated" entry penalties, or grid penalties as "released".
      penalty: "l21", one norm per example, or "l1", element by element.
      num_penalties: length of the path.
    """
    _expect_share(keep)
    lookup(SELECTORS, within)
    lookup({"interpolated": None, "released": None}, ties)
    lookup(CUTS, penalty)
    options = Options(
        pca_dim=pca_dim,
        intercept=intercept,
        select=within,
        ties=ties,
        penalty=penalty,
        num_penalties=num_penalties,
    )

    def choose(features, labels, key, clean):
        arguments, how = _problem(features, labels, key, clean, per_class, classes_per_group)
        found = clean_set(*arguments, keep, options=options, **how)
        return Selection(found.clean, found.entry_penalty)

    return Rule(choose)


def noise_model(
    max_error_probability: float = 0.1,
    min_correct_kept: float = 0.9,
    pca_dim: int = 64,
    lift: bool = False,
) -> Rule:
    """Keep the labels that are probably correct, by the label-noise model. No path is solved.

    Training on a label makes the features explain it better in the next epoch, so a doubtful label,
    once kept, tends to stay. But where the features are weak all labels are doubtful, and a network
    learns more from many of them than from the few that are certain.

    Args:
      max_error_probability: keep labels that are wrong with a lower probability than this.
      min_correct_kept: keep at least this fraction of the labels of each class that the model
        estimates to be correct, however doubtful they are.
      pca_dim: principal components that the model sees.
      lift: also use a kernel regression; for inputs, as the last layer of a network is linear in
        its features.
    """
    expect(
        0 < max_error_probability <= 1,
        "max_error_probability",
        max_error_probability,
        "a probability above 0, up to 1",
    )
    expect(
        0 <= min_correct_kept <= 1, "min_correct_kept", min_correct_kept, "a fraction from 0 to 1"
    )

    def choose(features, labels, key, clean):
        noise = _fit_noise(features, labels, pca_dim, lift)
        correct = 1 - noise.rate[1:]  # of each class
        surest = _least_suspect(noise.wrong, labels, min_correct_kept * correct)
        clean = (noise.wrong < max_error_probability) | surest
        numbers = {
            "estimated_noise": noise.rate[0],
            "expected_wrong_in_clean": jnp.mean(noise.wrong, where=clean),
        }
        together = noise.confusion * jnp.bincount(labels, length=len(correct))[:, None]
        transition = (together / jnp.maximum(together.sum(axis=0), 1e-6)).T
        return Selection(clean, noise.wrong, numbers, transition)

    return Rule(choose, ("estimated_noise", "expected_wrong_in_clean"), models_noise=True)


def path(pca_dim: int = 64, penalty: str = "l21", num_penalties: int = 100) -> Rule:
    """Rank by the path of the whole data, keep the share of each class that the noise model says.

    SPR's own ranking without its split. Of a class with an estimated fraction r of wrong labels,
    the 1 - r that enter the path last are kept.

    Args:
      pca_dim: principal components that the regression and the model see.
      penalty: "l21", one norm per example, or "l1", element by element.
      num_penalties: length of the path.
    """
    lookup(CUTS, penalty)
    options = Options(
        pca_dim=pca_dim,
        intercept=True,
        select="class",
        penalty=penalty,
        num_penalties=num_penalties,
    )

    def choose(features, labels, key, clean):
        noise = _fit_noise(features, labels, pca_dim)
        arguments, how = _problem(features, labels, key, clean, 0, WHOLE_DATA_CLASSES)
        found = clean_set(*arguments, 1 - noise.rate[1:], options=options, **how)
        return Selection(found.clean, found.entry_penalty, {"estimated_noise": noise.rate[0]})

    return Rule(choose, ("estimated_noise",))


def knockoffs(
    level: float = 0.1,
    scale_level: bool = False,
    rivals: str = "random",
    fallback: str = "share",
    keep: float = 0.5,
    least_keep: float = 0.1,
    per_class: int = 10,
    classes_per_group: int = 10,
    pca_dim: int = 10,
    intercept: bool = False,
    penalty: str = "l21",
    num_penalties: int = 100,
) -> Rule:
    """Keep as many labels as a level of wrong ones among them allows (Knockoffs-SPR).

    Args:
      level: highest fraction of wrong labels among the kept. It assumes that wrong labels are
        spread evenly over the classes.
      scale_level: scale the level as in the paper, by (c - 2) / 2c for c classes.
      rivals: "random" labels, or "confident" ones, the class that fits best.
      fallback: for a class that cannot attain the level, keep the best-fitting "share", or "none".
      keep: share of a class that is certain enough to fit to, and the most that falls back.
      least_keep: share of each class that is kept however poor the features are.
      per_class, classes_per_group, pca_dim, intercept, penalty, num_penalties: as in `share`.
    """
    _expect_share(keep)
    expect(0 < level < 1, "level", level, "a fraction between 0 and 1")
    expect(0 <= least_keep < 1, "least_keep", least_keep, "a share from 0 to below 1")
    lookup({"share": None, "none": None}, fallback)
    lookup({"random": None, "confident": None}, rivals)
    lookup(CUTS, penalty)
    trial = Trial(rivals, scale_level=scale_level, fallback=fallback, share=keep)
    options = Options(
        pca_dim=pca_dim,
        intercept=intercept,
        select="class",
        penalty=penalty,
        num_penalties=num_penalties,
    )

    def choose(features, labels, key, clean):
        arguments, how = _problem(features, labels, key, clean, per_class, classes_per_group)
        how["options"] = options
        entry = clean_set(*arguments, keep, **how).entry_penalty
        tried = knockoff_set(*arguments, None, level, trial=trial, **how)
        kept = tried.clean | _least_suspect(entry, labels, least_keep)
        return Selection(kept, entry, {"classes_attained": tried.attained.mean()})

    return Rule(choose, ("classes_attained",))


def keep_all() -> Rule:
    """Keep every label: SPR's training without a selection."""
    return Rule(lambda features, labels, key, clean: Selection(jnp.ones(len(labels), bool)))


def keep_random(keep: float = 0.5) -> Rule:
    """Keep a random share of the labels."""
    _expect_share(keep)

    def choose(features, labels, key, clean):
        return Selection(random.bernoulli(key, keep, (len(labels),)))

    return Rule(choose)


RULES: dict[str, Callable[..., Rule]] = {
    "share": share,
    "noise_model": noise_model,
    "path": path,
    "knockoffs": knockoffs,
    "all": keep_all,
    "random": keep_random,
}


def _expect_share(keep):
    expect(0 < keep <= 1, "keep", keep, "a share above 0, up to 1")


def _fit_noise(features, labels, pca_dim, lift=False):
    return label_noise(
        jnp.asarray(features),
        labels,
        num_classes=int(labels.max()) + 1,
        pca_dim=pca_dim,
        intervals=False,
        lift=lift,
    )


def _problem(
    features, labels, key, clean, per_class, classes_per_group
) -> tuple[tuple, dict[str, Any]]:
    """Arguments of the solver, on all devices, and how they are split."""
    mesh = device_mesh()
    plan = plan_pieces(
        labels,
        per_class=per_class or None,
        classes_per_group=min(classes_per_group, int(labels.max()) + 1),
        multiple_of=mesh.size,
    )
    arguments = (features, labels, key, clean)
    arguments = jax.device_put(arguments, NamedSharding(mesh, PartitionSpec()))
    return arguments, {"plan": plan, "mesh": mesh}


def _least_suspect(suspicion, labels, share):
    """Mark a share of each class, [] or [classes]."""
    share = jnp.broadcast_to(share, int(labels.max()) + 1)
    return _keep_lowest(suspicion, labels, jnp.ones(len(labels), bool), share)


_keep_lowest = jax.jit(keep_lowest)
