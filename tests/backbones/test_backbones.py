"""Sizes, initial values, precision and batch statistics of the backbones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spr_jax.backbones import BACKBONES, Classifier
from spr_jax.backbones.network import make_network
from spr_jax.backbones.vgg19_bn import adaptive_mean

CASES = {  # image shape, classes, parameters with the head, feature dimension
    "c2f2": ((28, 28, 1), 10, 422_090, 128),
    "resnet18": ((32, 32, 3), 10, 11_173_962, 512),
    "whitened": ((32, 32, 3), 10, 1_971_362, 256),
    "vgg19_bn": ((64, 64, 3), 10, 139_622_218, 4096),
    "inception_resnet_v2": ((299, 299, 3), 50, 54_383_314, 1536),
    "linear": ((20,), 10, 210, 20),
    "mlp": ((20,), 10, 20 * 256 + 256 + 2 * 256 + 2570, 256),
}
SMALL = {
    "c2f2": ((8, 8, 1), {}),
    "resnet18": ((8, 8, 3), {"width": 2}),
    "whitened": ((9, 9, 3), {"widths": (4, 4, 4)}),
}


def make_small(name, **options):
    """A classifier for four classes, its variables, and eight images."""
    shape, small = SMALL[name]
    model = Classifier(BACKBONES[name](**small, **options), 4)
    images = np.random.default_rng(0).standard_normal((8, *shape)).astype(np.float32)
    variables = jax.jit(lambda key: model.init(key, images[:2], False))(jax.random.key(0))
    return model, variables, images


@pytest.mark.parametrize("name", BACKBONES)
def test_sizes(name):
    shape, num_classes, num_parameters, dim = CASES[name]
    model = Classifier(BACKBONES[name](), num_classes)
    images = jax.ShapeDtypeStruct((2, *shape), jnp.float32)

    def run(key, images):
        variables = model.init(key, images, False)
        rngs = {"dropout": key}
        output, _ = model.apply(variables, images, True, rngs=rngs, mutable=["batch_stats"])
        return variables["params"], output

    params, output = jax.eval_shape(run, jax.random.key(0), images)
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == num_parameters
    assert output.logits.shape == (2, num_classes)
    assert output.features.shape == (2, dim)


@pytest.mark.parametrize(
    "name",
    [
        *(name for name in BACKBONES if name not in ("inception_resnet_v2", "linear")),
        pytest.param("inception_resnet_v2", marks=pytest.mark.slow),  # long to trace
    ],
)
def test_bfloat16_keeps_parameters_statistics_and_outputs_single(name):
    shape, num_classes, *_ = CASES[name]
    model = Classifier(BACKBONES[name](dtype=jnp.bfloat16), num_classes)

    def run(key):
        variables = model.init(key, jnp.zeros((2, *shape), jnp.float32), False)
        backbone = model.backbone.apply(
            {kind: tree["backbone"] for kind, tree in variables.items()},
            jnp.zeros((2, *shape), jnp.float32),
            False,
        )
        return backbone, variables, model.apply(variables, jnp.zeros((2, *shape)), False)

    backbone, *rest = jax.eval_shape(run, jax.random.key(0))
    assert backbone.dtype == jnp.bfloat16
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(rest))


def spread(values):
    """Largest magnitude of uniform numbers."""
    return np.abs(values).max()


def test_initial_values_of_c2f2():
    _, variables, _ = make_small("c2f2")
    backbone, head = variables["params"]["backbone"], variables["params"]["head"]
    second = backbone["ConvNorm_1"]["Conv_0"]
    bounds = [
        (second["kernel"], np.sqrt(6 / (9 * 32))),  # Kaiming
        (second["bias"], 1 / np.sqrt(9 * 32)),
        (backbone["Dense_0"]["kernel"], np.sqrt(6 / (256 + 128))),  # Xavier
        (backbone["Dense_0"]["bias"], 1 / np.sqrt(256)),
        (head["kernel"], np.sqrt(6 / (128 + 4))),
    ]
    for values, bound in bounds:
        assert 0.85 * bound < spread(values) <= bound
    assert 0 < spread(head["bias"]) <= 1 / np.sqrt(128)


def test_initial_values_of_resnet18():
    _, variables, _ = make_small("resnet18")
    kernel = variables["params"]["backbone"]["Block_7"]["ConvNorm_1"]["Conv_0"]["kernel"]
    assert 0.98 / np.sqrt(9 * 16) < spread(kernel) <= 1 / np.sqrt(9 * 16)
    assert 0.85 / np.sqrt(16) < spread(variables["params"]["head"]["kernel"]) <= 1 / np.sqrt(16)


def test_vgg_replicates_a_small_map():
    images = jnp.asarray([[[[1.0], [3.0]], [[5.0], [7.0]]]])
    rows = adaptive_mean(images)[0, :, :, 0]
    np.testing.assert_allclose(rows[0], [1, 1, 1, 2, 3, 3, 3])
    np.testing.assert_allclose(rows[:, 0], [1, 1, 1, 3, 5, 5, 5])
    np.testing.assert_allclose(rows[3, 3], 4)


def test_mask_hides_features_from_the_head_only():
    model, variables, images = make_small("c2f2")
    mask = jnp.arange(128) < 5
    plain, masked, none = jax.jit(
        lambda variables, images: [
            model.apply(variables, images, False, feature_mask=m)
            for m in (None, mask, jnp.zeros((8, 128)))
        ]
    )(variables, images)
    head = variables["params"]["head"]
    expected = plain.features[:, :5] @ head["kernel"][:5] + head["bias"]
    np.testing.assert_allclose(masked.logits, expected, atol=1e-6)
    np.testing.assert_array_equal(masked.features, plain.features)
    np.testing.assert_allclose(none.logits, jnp.broadcast_to(head["bias"], (8, 4)))


@pytest.mark.parametrize("name", SMALL)
def test_shared_statistics_make_two_devices_one(name):
    def step(model, variables, images):
        return model.apply(variables, images, True, mutable=["batch_stats"])

    model, variables, images = make_small(name)
    output, updated = jax.jit(lambda *arrays: step(model, *arrays))(variables, images)
    spread_out, _, _ = make_small(name, axis_name="devices")
    halves = images.reshape(2, 4, *images.shape[1:])
    parts = jax.pmap(
        lambda *arrays: step(spread_out, *arrays), axis_name="devices", in_axes=(None, 0)
    )(variables, halves)
    np.testing.assert_allclose(parts[0].logits.reshape(8, -1), output.logits, atol=2e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a[1], b, atol=1e-5), parts[1], updated)


@pytest.mark.parametrize("batch_norm", [True, False])
def test_layers_of_a_network_on_vectors(batch_norm):
    """Images are flattened; the eval-mode pass in NumPy, with fresh running statistics."""
    backbone = BACKBONES["mlp"](width=5, depth=2, dropout=0.5, batch_norm=batch_norm)
    model = Classifier(backbone, 3)
    images = np.random.default_rng(0).standard_normal((4, 2, 3, 1)).astype(np.float32)
    variables = model.init(jax.random.key(0), images, False)
    hidden, layers = images.reshape(4, 6), variables["params"]["backbone"]
    assert ("batch_stats" in variables) == batch_norm
    for number in range(2):
        layer = layers[f"Dense_{number}"]
        hidden = hidden @ layer["kernel"] + layer["bias"]
        hidden = np.maximum(hidden / np.sqrt(1 + 1e-5) if batch_norm else hidden, 0)
    output = model.apply(variables, images, False)
    np.testing.assert_allclose(output.features, hidden, atol=1e-5)
    head = variables["params"]["head"]
    np.testing.assert_allclose(output.logits, hidden @ head["kernel"] + head["bias"], atol=1e-5)


def test_a_linear_classifier_has_no_batch_statistics():
    network = make_network(
        Classifier(BACKBONES["linear"](), 3), jax.random.key(0), jnp.zeros((1, 6))
    )
    vectors = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    output, after = network.forward(vectors)
    np.testing.assert_array_equal(output.features, vectors)
    np.testing.assert_array_equal(output.logits, network.predict(vectors).logits)
    assert after.batch_stats == {}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"width": 0}, r"backbone\.width is 0; expected 1 or more\."),
        ({"depth": 0}, r"backbone\.depth is 0; expected 1 or more\."),
        ({"dropout": 1.0}, r"backbone\.dropout is 1\.0; expected 0 to below 1\."),
    ],
)
def test_options_that_make_no_network_of_vectors_are_named(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        BACKBONES["mlp"](**options)
