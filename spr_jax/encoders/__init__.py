"""Frozen networks from images to features, which tell photographs apart without training.

encoder = load_encoder("efficientnet_lite0")
features = encoder.encode(images)  # [b, size, size, 3] uint8 -> [b, dim]
"""

from functools import partial

from spr_jax.encoders.efficientnet_lite import lite_encoder
from spr_jax.encoders.encoder import Encoder
from spr_jax.encoders.onnx_file import onnx_encoder
from spr_jax.registry import suggestion

__all__ = ["ENCODERS", "Encoder", "load_encoder"]

ENCODERS = {f"efficientnet_lite{variant}": partial(lite_encoder, variant) for variant in (0, 1, 2)}
ONNX = "onnx:"  # then a file
OTHER_CHOICES = (f"{ONNX}FILE", "scratch", "auto")  # the last two belong to `spr_jax.detection`


def load_encoder(name: str, *, size: int | None = None) -> Encoder:
    """Load an encoder by name.

    Args:
      name: a key of `ENCODERS`, or `onnx:FILE` for a network in a file of the user.
      size: side of the images that it is given; None: the encoder's own.

    Returns:
      The encoder; its weights are read, and it is compiled at the first call of `encode`.

    Raises:
      ValueError: in one sentence, what was given and what is expected.
    """
    if name.startswith(ONNX):
        return onnx_encoder(name.removeprefix(ONNX), size=size)
    if name not in ENCODERS:
        raise ValueError(
            f"Unknown encoder {name!r}; {suggestion(name, [*ENCODERS, *OTHER_CHOICES])}"
        )
    return ENCODERS[name](size=size)
