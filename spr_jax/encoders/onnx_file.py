"""An encoder that the user exported to ONNX, run by onnxruntime.

The file has one input, [b, 3, h, w] or [b, h, w, 3]. An input of type uint8 gets the pixels as they
are, so that a file can hold its own preprocessing; one of type float gets what most networks for
ImageNet expect:

    (pixel / 255 - mean) / std

Its first output is the features, [b, d], or a feature map [b, d, h, w] (laid out like the input),
of which the mean is taken.
"""

import hashlib
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spr_jax.encoders.encoder import Encoder, check_size, in_batches
from spr_jax.types import IMAGENET_MEAN, IMAGENET_STD

SIZE, BATCH = 224, 32  # where the file leaves them open
PREPROCESSING = 1  # number of the version; changes with what is done to pixels
MEAN, STD = np.array((IMAGENET_MEAN, IMAGENET_STD), np.float32)
RUN_BY = ("CUDAExecutionProvider", "CPUExecutionProvider")  # in this order, if they are there


class Input(NamedTuple):
    """What a file expects, in its own words: numbers, or names of what it leaves open."""

    name: str
    batch: Any
    size: Any
    channels_first: bool
    is_float: bool


def onnx_encoder(path: str, *, size: int | None = None) -> Encoder:
    """Load an ONNX file as an encoder.

    Args:
      path: of the file.
      size: side of the images; None: the one of the file, or 224.

    Returns:
      An encoder whose name is `onnx:PATH`.

    Raises:
      ValueError: onnxruntime is missing, or the file is, or it does not map images to features.
    """
    session = _open(path)
    given = _input_of(path, session)
    fixed = given.size if isinstance(given.size, int) else None
    if fixed and size not in (None, fixed):
        raise ValueError(f"{path} takes images of {fixed} pixels; got a size of {size}.")
    size = fixed or check_size(SIZE if size is None else size)
    batch = given.batch if isinstance(given.batch, int) else BATCH
    encode = partial(in_batches, partial(_run, path, session, given), batch)
    dim = encode(np.zeros((1, size, size, 3), np.uint8)).shape[1]  # fails now rather than later
    digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    return Encoder(f"onnx:{path}", f"onnx-{digest[:12]}-{size}-{PREPROCESSING}", size, dim, encode)


def _open(path):
    try:
        import onnxruntime
    except ModuleNotFoundError:
        raise ValueError(
            f"Running {path} needs onnxruntime, which is not installed; "
            'pip install "spr_jax[onnx]".'
        ) from None
    if not Path(path).is_file():
        raise ValueError(f"There is no file {path!r}; expected an encoder in the ONNX format.")
    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level = 4  # what fails is raised
    known = onnxruntime.get_available_providers()
    providers = [name for name in RUN_BY if name in known]
    try:
        return onnxruntime.InferenceSession(path, quiet, providers=providers)
    except Exception as error:  # onnxruntime raises many kinds
        raise ValueError(f"Cannot read {path} as an ONNX file: {_first_line(error)}.") from None


def _input_of(path, session) -> Input:
    expected = "expected one input [b, 3, h, w] or [b, h, w, 3] of float or uint8"
    inputs = session.get_inputs()
    if len(inputs) != 1:
        names = [one.name for one in inputs]
        raise ValueError(f"{path} has {len(inputs)} inputs, {names}; {expected}.")
    (only,) = inputs
    shape = tuple(only.shape)
    channels_first = len(shape) == 4 and shape[1] == 3
    if not channels_first and not (len(shape) == 4 and shape[3] == 3):
        raise ValueError(f"{path} has an input of shape {list(shape)}; {expected}.")
    height, width = shape[2:] if channels_first else shape[1:3]
    if isinstance(height, int) and isinstance(width, int) and height != width:
        raise ValueError(f"{path} takes images of {height} x {width} pixels; expected squares.")
    if only.type not in ("tensor(float)", "tensor(uint8)"):
        raise ValueError(f"{path} has an input of type {only.type}; {expected}.")
    size = height if isinstance(height, int) else width
    return Input(only.name, shape[0], size, channels_first, only.type == "tensor(float)")


def _run(path, session, given: Input, images: np.ndarray) -> np.ndarray:
    """Features [b, d] of a batch [b, size, size, 3] uint8."""
    pixels = (images / np.float32(255) - MEAN) / STD if given.is_float else images
    if given.channels_first:
        pixels = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))
    first = session.get_outputs()[0].name
    try:
        (features,) = session.run([first], {given.name: pixels})
    except Exception as error:  # onnxruntime raises many kinds
        raise ValueError(
            f"{path} cannot encode images of {images.shape[1]} pixels: {_first_line(error)}."
        ) from None
    features = np.asarray(features, np.float32)
    if features.ndim == 4:
        features = features.mean(axis=(2, 3) if given.channels_first else (1, 2))
    if features.ndim != 2 or len(features) != len(images):
        raise ValueError(
            f"{path} maps {len(images)} images to an array of shape {list(features.shape)}; "
            "expected features [b, d] or a feature map with four axes."
        )
    return features


def _first_line(error):
    return str(error).strip().splitlines()[0].rstrip(".")
