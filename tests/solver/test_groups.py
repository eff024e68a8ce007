import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import greedy_groups

from spr_jax.solver.groups import class_prototypes, group_classes


@pytest.mark.parametrize(
    ("num_classes", "size"), [(10, 10), (10, 5), (50, 10), (7, 3), (5, 2), (11, 10)]
)
def test_groups_match_the_greedy_loop(num_classes, size):
    prototypes = np.random.default_rng(0).standard_normal((num_classes, 6))
    groups = np.asarray(jax.jit(group_classes, static_argnums=1)(prototypes, size))
    ours = [[k for k in group.tolist() if k >= 0] for group in groups]
    assert ours == greedy_groups(prototypes, size)
    assert max(map(len, ours)) - min(map(len, ours)) <= 1


def test_similar_classes_are_kept_apart():
    prototypes = jnp.asarray([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
    groups = np.sort(np.asarray(group_classes(prototypes, 2)), axis=1)
    assert sorted(groups.tolist()) == [[0, 2], [1, 3]]


def test_prototypes_are_means_of_clean_examples():
    features = jnp.asarray([[1.0], [3.0], [10.0], [5.0]])
    labels = jnp.asarray([0, 0, 0, 1])
    clean = jnp.asarray([True, True, False, True])
    np.testing.assert_allclose(class_prototypes(features, labels, clean, 2), [[2.0], [5.0]])


def test_class_without_clean_examples_is_described_by_all_of_them():
    features = jnp.asarray([[1.0], [3.0], [5.0]])
    clean = jnp.asarray([False, False, True])
    prototypes = class_prototypes(features, jnp.asarray([0, 0, 1]), clean, 3)
    np.testing.assert_allclose(prototypes, [[2.0], [5.0], [0.0]])
