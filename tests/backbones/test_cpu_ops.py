"""The operations for the CPU against the stock ones, in values and gradients."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from spr_jax.backbones import cpu_ops


def stock_pool(images):
    return nn.max_pool(images, (2, 2), strides=(2, 2))


def normal(*shape, dtype=np.float64, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), dtype)


def value_and_gradients(conv, params, images):
    """Value and gradients of a random linear function of the output."""

    def loss(params, images):
        output = conv.apply(params, images)
        return jnp.sum(output * normal(*output.shape, dtype=output.dtype, seed=1)), output

    gradients, output = jax.jit(jax.grad(loss, argnums=(0, 1), has_aux=True))(params, images)
    return output, gradients


@pytest.fixture
def three_per_chunk(monkeypatch):
    """Given images and what they become, chunks of three; any number of channels."""
    monkeypatch.setattr(cpu_ops, "FEWEST_CHANNELS", 1)

    def limit(images, output):
        monkeypatch.setattr(cpu_ops, "CHUNK_BYTES", 3 * (images[0].nbytes + output[0].nbytes))

    return limit


@pytest.mark.parametrize(
    "dtype, tolerance",
    [(np.float64, 1e-13), pytest.param(np.float32, 1e-5, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("size", [(1, 1), (3, 3), (1, 7)])
@pytest.mark.parametrize("strides", [1, 2])
@pytest.mark.parametrize("batch", [2, 6, 7])  # below a chunk, whole chunks, and a rest
def test_convolution_is_the_stock_one(three_per_chunk, dtype, tolerance, size, strides, batch):
    images = normal(batch, 6, 5, 2, dtype=dtype)
    options = dict(padding=[(side // 2,) * 2 for side in size], param_dtype=dtype)
    stock = nn.Conv(4, size, strides, **options)
    params = stock.init(jax.random.key(0), images)
    expected = value_and_gradients(stock, params, images)
    three_per_chunk(images, expected[0])
    found = value_and_gradients(cpu_ops.Conv(4, size, strides, **options), params, images)
    close = dict(rtol=tolerance, atol=10 * tolerance)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **close), found, expected)
    assert all(a.dtype == dtype for a in jax.tree.leaves(found))


def test_convolution_without_padding(three_per_chunk):
    images = normal(4, 9, 8, 2)
    stock, ours = (conv(3, (3, 3), 2, padding=0) for conv in (nn.Conv, cpu_ops.Conv))
    params = stock.init(jax.random.key(0), images)
    expected = value_and_gradients(stock, params, images)
    three_per_chunk(images, expected[0])
    found = value_and_gradients(ours, params, images)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), found, expected)


@pytest.mark.parametrize(
    "side, channels, is_ours",
    [(28, 1, False), (14, 32, False), (24, 3, True), (23, 63, False), (7, 64, True)],
)
def test_few_channels_are_worth_it_on_large_maps_only(side, channels, is_ours):
    images = jax.ShapeDtypeStruct((2, side, side, channels), jnp.float32)
    kernel = jax.ShapeDtypeStruct((3, 3, channels, 4), jnp.float32)
    conv = cpu_ops.Conv(4, (3, 3), padding=1, use_bias=False)

    def convolve(images, kernel):
        return conv.apply({"params": {"kernel": kernel}}, images)

    program = gradient_program(convolve, images, kernel, platform="cpu")
    assert ("dot_general" in program) == is_ours


@pytest.mark.parametrize(
    "options", [dict(dtype=jnp.bfloat16), dict(kernel_dilation=2), dict(padding="SAME")]
)
def test_other_convolutions_stay_stock(options):
    images = normal(2, 6, 6, 64, dtype=np.float32)
    stock, ours = (conv(4, (3, 3), **options) for conv in (nn.Conv, cpu_ops.Conv))
    params = stock.init(jax.random.key(0), images)
    found, expected = (value_and_gradients(conv, params, images) for conv in (ours, stock))
    jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.mark.parametrize("shape", [(3, 4, 6, 2), (2, 5, 7, 3)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, jnp.bfloat16])
def test_pooling_is_exactly_the_stock_one_ties_included(shape, dtype):
    values = np.random.default_rng(0).integers(-1, 2, shape)  # nearly every cell has a tie
    images = jnp.asarray(values, dtype)
    for pool in (stock_pool, cpu_ops.max_pool):
        output, pull_back = jax.vjp(jax.jit(pool), images)
        (gradient,) = jax.jit(pull_back)(normal(*output.shape, dtype=dtype))
        if pool is stock_pool:
            expected = output, gradient
    jax.tree.map(np.testing.assert_array_equal, (output, gradient), expected)


def gradient_program(function, *arrays, platform):
    gradient = jax.jit(jax.grad(lambda *arrays: function(*arrays).sum(), argnums=len(arrays) - 1))
    return gradient.trace(*arrays).lower(lowering_platforms=(platform,)).as_text()


def test_only_the_cpu_is_repaired():
    images = normal(2, 4, 4, 64, dtype=np.float32)
    kernel = normal(1, 1, 64, 2, dtype=np.float32)
    window = cpu_ops.Window((1, 1), ((0, 0), (0, 0)))

    def convolve(images, kernel):
        return cpu_ops._convolve(window, images, kernel)

    for platform in ("cpu", "cuda", "tpu"):
        pooling = gradient_program(cpu_ops.max_pool, images, platform=platform)
        assert ("select_and_scatter" in pooling) == (platform != "cpu")
        convolution = gradient_program(convolve, images, kernel, platform=platform)
        assert ("dot_general" in convolution) == (platform == "cpu")


def test_gradients_under_pmap_are_those_of_the_whole_batch(monkeypatch):
    monkeypatch.setattr(cpu_ops, "FEWEST_CHANNELS", 1)
    images = normal(6, 4, 4, 2)
    conv = cpu_ops.Conv(3, (3, 3), padding=1, param_dtype=np.float64)
    params = conv.init(jax.random.key(0), images)

    def loss(params, images):
        return jnp.sum(cpu_ops.max_pool(conv.apply(params, images)) ** 2)

    whole = jax.jit(jax.grad(loss))(params, images)
    parts = jax.pmap(jax.grad(loss), in_axes=(None, 0))(params, images.reshape(2, 3, 4, 4, 2))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b.sum(axis=0)), whole, parts)


FAULTS = """
import resource
import numpy as np
from spr_jax.devices import keep_freed_memory

keep_freed_memory()
faults = []
for _ in range(3):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(4_000_000)
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(faults[0], faults[2])
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only glibc has this setting")
def test_kept_memory_comes_without_page_faults():
    done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True)
    first, again = map(int, done.stdout.split())
    assert first > 10 and again <= first / 10, done
