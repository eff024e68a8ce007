"""Rules of selection: which examples of an epoch SPR calls clean.

A rule takes the features [N, d] that the epoch recorded, the given labels [N], a key and the last
clean set [N], and gives what changes in the memory: `clean` [N], `suspicion` [N] where it ranks
them, and in `selection` the numbers that it has to say of its choice (SAYS).

Examples that were not visited (drop_last) have rows of zeros as features, too few to bend the fit.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import random
from jax.sharding import NamedSharding, PartitionSpec

from spr_jax.devices import device_mesh
from spr_jax.solver import Options, clean_set, plan_pieces
from spr_jax.solver.knockoffs import Trial, knockoff_set
from spr_jax.solver.noise_model import label_noise
from spr_jax.solver.select import keep_lowest


class Choice(NamedTuple):
    """What the rules are told; `spr` says what it means."""

    keep: float
    per_class: int
    classes_per_group: int
    options: Options
    level: float
    trial: Trial
    most_wrong: float
    least_right: float
    least_keep: float


def keep_all(choice: Choice, features, labels, key, clean) -> dict:
    return {"clean": jnp.ones(len(labels), bool)}


def keep_random(choice: Choice, features, labels, key, clean) -> dict:
    return {"clean": random.bernoulli(key, choice.keep, (len(labels),))}


def keep_share(choice: Choice, features, labels, key, clean) -> dict:
    """A share of each class, the last to leave zero."""
    arguments, how = _problem(choice, features, labels, key, clean)
    found = clean_set(*arguments, choice.keep, **how)
    return {"clean": found.clean, "suspicion": found.entry}


def keep_probable(choice: Choice, features, labels, key, clean) -> dict:
    """Labels that are wrong with a small chance, by the noise model.

    What is learnt from is explained better in the next epoch, so that doubtful labels would stay.
    But where the features are weak all labels are doubtful, and a network learns more from many of
    them than from the few that are sure: `least_right` of those that are likely right are kept.
    """
    noise = label_noise(
        jnp.asarray(features),
        labels,
        num_classes=int(labels.max()) + 1,
        pca_dim=choice.options.pca_dim,
        intervals=False,
    )
    right = 1 - noise.rate[1:]  # of each class
    surest = _surest(noise.wrong, labels, choice.least_right * right)
    clean = (noise.wrong < choice.most_wrong) | surest
    said = {
        "estimated_noise": noise.rate[0],
        "expected_wrong_in_clean": jnp.mean(noise.wrong, where=clean),
    }
    return {"clean": clean, "suspicion": noise.wrong, "selection": said}


def keep_level(choice: Choice, features, labels, key, clean) -> dict:
    """As many labels as a level of wrong ones among them allows, by knockoffs."""
    arguments, how = _problem(choice, features, labels, key, clean)
    entry = clean_set(*arguments, choice.keep, **how).entry
    tried = knockoff_set(*arguments, None, choice.level, trial=choice.trial, **how)
    kept = tried.clean | _surest(entry, labels, choice.least_keep)
    said = {"classes_attained": tried.attained.mean()}
    return {"clean": kept, "suspicion": entry, "selection": said}


def _problem(choice, features, labels, key, clean):
    """Arguments of the solver, on all devices."""
    mesh = device_mesh()
    plan = plan_pieces(
        labels,
        per_class=choice.per_class or None,
        classes_per_group=min(choice.classes_per_group, int(labels.max()) + 1),
        multiple_of=mesh.size,
    )
    arguments = (features, labels, key, clean)
    arguments = jax.device_put(arguments, NamedSharding(mesh, PartitionSpec()))
    return arguments, {"plan": plan, "options": choice.options, "mesh": mesh}


def _surest(suspicion, labels, share):
    """A share of each class, [] or [classes]: the least suspicious."""
    share = jnp.broadcast_to(share, int(labels.max()) + 1)
    return _keep_lowest(suspicion, labels, jnp.ones(len(labels), bool), share)


_keep_lowest = jax.jit(keep_lowest)


RULES = {
    "piece": keep_share,
    "class": keep_share,
    "auto": keep_probable,
    "knockoffs": keep_level,
    "none": keep_all,
    "random": keep_random,
}
# What each says of its choice.
SAYS = {
    "auto": ("estimated_noise", "expected_wrong_in_clean"),
    "knockoffs": ("classes_attained",),
}
