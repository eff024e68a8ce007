"""Encoders from ONNX files: small ones made here, and files that are not encoders."""

import sys

import numpy as np
import pytest

from spr_jax.encoders import load_encoder

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper  # noqa: E402

FLOAT, BYTES = TensorProto.FLOAT, TensorProto.UINT8
FIRST, LAST = ("b", 3, 32, 32), ("b", 32, 32, 3)
AXES = helper.make_tensor("axes", TensorProto.INT64, [2], [2, 3])
MEAN = helper.make_node("ReduceMean", ["x", "axes"], ["y"], keepdims=0)
COPY = helper.make_node("Identity", ["x"], ["y"])


def save(path, *nodes, inputs=(FIRST,), output=("b", 3), kind=FLOAT):
    """A file with inputs x, x1 ... and the output y."""
    names = ["x", "x1"]
    given = [
        helper.make_tensor_value_info(name, kind, shape)
        for name, shape in zip(names, inputs, strict=False)
    ]
    made = [helper.make_tensor_value_info("y", FLOAT, output)]
    graph = helper.make_graph(nodes, "encoder", given, made, [AXES])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.save(model, path)
    return f"onnx:{path}"


@pytest.fixture
def images():
    return np.random.default_rng(0).integers(0, 256, (37, 32, 32, 3), dtype=np.uint8)


def normalised(images):
    return (images / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]


def test_float_input_is_normalised(tmp_path, images):
    name = save(tmp_path / "a.onnx", MEAN)
    encoder = load_encoder(name)
    assert (encoder.name, encoder.size, encoder.dim) == (name, 32, 3)
    features = encoder.encode(images)
    assert features.dtype == np.float32
    np.testing.assert_allclose(features, normalised(images).mean(axis=(1, 2)), atol=1e-5)


@pytest.mark.parametrize("shape", [FIRST, LAST, (4, 3, 32, 32)], ids=str)
def test_feature_maps_are_averaged(tmp_path, images, shape):
    encoder = load_encoder(save(tmp_path / "a.onnx", COPY, inputs=(shape,), output=shape))
    expected = normalised(images).mean(axis=(1, 2))
    np.testing.assert_allclose(encoder.encode(images), expected, atol=1e-5)


def test_bytes_come_as_they_are(tmp_path, images):
    cast = helper.make_node("Cast", ["x"], ["y"], to=FLOAT)
    encoder = load_encoder(save(tmp_path / "a.onnx", cast, inputs=(LAST,), output=LAST, kind=BYTES))
    np.testing.assert_allclose(encoder.encode(images), images.mean(axis=(1, 2)), rtol=1e-5)


def test_open_sizes_are_the_users(tmp_path):
    name = save(tmp_path / "a.onnx", MEAN, inputs=(("b", 3, "h", "w"),))
    assert load_encoder(name).size == 224
    small, large = load_encoder(name, size=48), load_encoder(name, size=64)
    assert (small.size, large.size) == (48, 64) and small.version != large.version


def test_version_follows_the_content(tmp_path):
    first = load_encoder(save(tmp_path / "a.onnx", MEAN)).version
    assert load_encoder(save(tmp_path / "b.onnx", MEAN)).version == first
    assert load_encoder(save(tmp_path / "b.onnx", COPY, output=FIRST)).version != first


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"inputs": (FIRST, FIRST)}, r"2 inputs, \['x', 'x1'\]; expected one input"),
        ({"inputs": (("b", 1, 32, 32),)}, r"input of shape \['b', 1, 32, 32\]; expected"),
        ({"inputs": (("b", 3072),), "output": ("b", 3072)}, r"\['b', 3072\]; expected"),
        ({"inputs": (("b", 3, 32, 48),)}, "32 x 48 pixels; expected squares"),
        ({"kind": TensorProto.DOUBLE}, r"type tensor\(double\); expected"),
    ],
)
def test_other_inputs_are_refused(tmp_path, options, says):
    if options.get("kind", FLOAT) != FLOAT:
        node = helper.make_node("Cast", ["x"], ["y"], to=FLOAT)
    else:
        node = COPY
    options = {"output": options.get("inputs", (FIRST,))[0], **options}
    with pytest.raises(ValueError, match=says):
        load_encoder(save(tmp_path / "a.onnx", node, **options))


def test_tokens_are_refused(tmp_path):
    tokens = helper.make_node("ReduceMean", ["x", "last"], ["y"], keepdims=0)
    last = helper.make_node(
        "Constant", [], ["last"], value=helper.make_tensor("v", TensorProto.INT64, [1], [3])
    )
    name = save(tmp_path / "a.onnx", last, tokens, output=("b", 3, 32))
    with pytest.raises(ValueError, match=r"shape \[32, 3, 32\]; expected features \[b, d\]"):
        load_encoder(name)


def test_another_size_than_the_files_is_refused(tmp_path):
    with pytest.raises(ValueError, match="takes images of 32 pixels; got a size of 64"):
        load_encoder(save(tmp_path / "a.onnx", MEAN), size=64)


def test_what_is_not_there_is_named(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="There is no file '.*missing.onnx'"):
        load_encoder(f"onnx:{tmp_path / 'missing.onnx'}")
    (tmp_path / "a.onnx").write_bytes(b"not ONNX")
    with pytest.raises(ValueError, match="Cannot read .*a.onnx as an ONNX file"):
        load_encoder(f"onnx:{tmp_path / 'a.onnx'}")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ValueError, match=r'not installed; pip install "spr_jax\[onnx\]"'):
        load_encoder(f"onnx:{tmp_path / 'a.onnx'}")
