"""An encoder that the user exported to ONNX, run by onnxruntime."""

from spr_jax.encoders.encoder import Encoder


def onnx_file(path: str, *, size: int | None = None) -> Encoder:
    raise ValueError(f"Cannot read {path}: ONNX files are not supported yet.")
