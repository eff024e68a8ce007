"""A report on the speed of data: preparing, loading, augmenting, streaming.

    python -m experiments.benchmark_data --raw_dir=DIR [--report]

DIR holds the raw files of MNIST and CIFAR-10. Compared calls take turns; times are medians.
"""

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import jax
import numpy as np
from PIL import Image, ImageOps

from experiments.harness.provenance import origin, show_report
from experiments.harness.study import table
from spr_jax import augment
from spr_jax.datasets import DATASETS, SOURCES, prepared
from spr_jax.datasets.images import ImageFiles, random_resized_crop
from spr_jax.devices import keep_freed_memory
from spr_jax.training.batches import draw_visits, stream

ROUNDS = 7
LIMITS = {"mnist": 30, "cifar10": 60}  # seconds to prepare


def seconds(function, *arguments) -> float:
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def preparing(raw_dir: str, data_dir: str) -> list[list]:
    """Time preparation, from raw files to records and arrays, and a new process that loads them."""
    rows = []
    for name, limit in LIMITS.items():
        took = seconds(prepared.prepare, SOURCES[name], raw_dir, data_dir)
        code = f"from spr_jax.datasets import DATASETS; DATASETS[{name!r}](data_dir={data_dir!r})"
        again = [seconds(subprocess.check_call, [sys.executable, "-c", code]) for _ in range(3)]
        rows.append([name, f"{took:.1f}", limit, f"{statistics.median(again):.2f}", 1])
    return rows


def augmenting(data_dir: str, batch_size: int = 128) -> list[list]:
    """Time pad, crop, flip and normalise: a batch on the device, and single images in Pillow."""
    dataset = DATASETS["cifar10"](data_dir=data_dir)
    images, index = np.asarray(dataset.train.images[:batch_size]), np.arange(batch_size)
    pixels = {"mean": dataset.mean, "std": dataset.std}
    make = jax.jit(partial(augment.views, augmentation="crop_flip", **pixels))
    on_device, key = jax.device_put(images), jax.random.key(0)
    generator, mean, std = np.random.default_rng(0), *map(np.float32, pixels.values())

    def one(image):
        image = ImageOps.expand(Image.fromarray(image), 4)
        left, top = generator.integers(0, 9, 2)
        image = image.crop((left, top, left + 32, top + 32))
        if generator.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return (np.asarray(image, np.float32) / 255 - mean) / std

    ways = {
        "Pillow, one image at a time": lambda: np.stack([one(image) for image in images]),
        "ours, images on the device": lambda: jax.block_until_ready(make((on_device,), index, key)),
    }
    times = in_turns(ways, repeat=20)
    slow = times["Pillow, one image at a time"]
    return [
        [way, f"{1e3 * took:.2f}", f"{batch_size / took:,.0f}", f"{slow / took:.1f}x"]
        for way, took in times.items()
    ]


def in_turns(ways: dict, repeat: int = 1) -> dict[str, float]:
    """Median seconds of each way; the ways take turns, round after round."""
    times = {way: [] for way in ways}
    for round_number, (way, function) in itertools.product(range(ROUNDS + 1), ways.items()):
        took = seconds(lambda f=function: [f() for _ in range(repeat)]) / repeat
        if round_number:  # the first compiles and fills caches
            times[way].append(took)
    return {way: statistics.median(all_times) for way, all_times in times.items()}


def decode(path: str) -> int:
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB")).nbytes


def decode_and_crop(path: str) -> int:
    with Image.open(path) as image:
        return random_resized_crop(image.convert("RGB"), 299, np.random.default_rng(0)).nbytes


def streaming(folder: Path, count: int = 1024, batch_size: int = 128) -> list[list]:
    """Time 299x299 JPEGs through grain, and through one Pillow process per core."""
    generator = np.random.default_rng(0)
    paths = [str(folder / f"{k}.jpg") for k in range(256)]
    for path in paths:  # blobs and fine grain, about 30 kB each
        pixels = generator.integers(0, 256, (40, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((299, 299), Image.Resampling.BICUBIC).save(path, quality=90)
    paths = (paths * count)[:count]
    files = ImageFiles(paths, 299, 299)
    index = draw_visits(count, batch_size, seed=0, epoch=0).index

    def ours(random_crops):
        for _ in stream(files, index, seed=0, epoch=0, random_crops=random_crops):
            pass

    # Pillow with its defaults: it does not keep freed memory, as ours does.
    with ProcessPoolExecutor(
        os.cpu_count(), initializer=Image.core.set_blocks_max, initargs=(0,)
    ) as pool:
        sum(pool.map(decode, paths, chunksize=32))
        keep_freed_memory()  # as every run does
        times = in_turns(
            {
                "Pillow decodes": lambda: sum(pool.map(decode, paths, chunksize=32)),
                "ours, as they are": lambda: ours(False),
                "Pillow decodes, crops at random and resizes": lambda: sum(
                    pool.map(decode_and_crop, paths, chunksize=32)
                ),
                "ours, random-resized crops": lambda: ours(True),
            }
        )
    rows = []
    for way, took in times.items():
        same = "Pillow decodes" if "are" in way else "Pillow decodes, crops at random and resizes"
        ratio = f"{times[same] / took:.2f}x" if way.startswith("ours") else ""
        rows.append([way, f"{count / took:,.0f}", ratio])
    return rows


def render(raw_dir: str) -> str:
    with tempfile.TemporaryDirectory() as home:
        (Path(home) / "images").mkdir()
        streamed = streaming(Path(home) / "images")  # before JAX starts its threads
        ready = preparing(raw_dir, home)
        augmented = augmenting(home)
    return "\n\n".join(
        [
            "# Data",
            origin("grain", "pillow", "tensorflow-datasets"),
            "Preparing from raw files, and loading in a new process, imports included; seconds.",
            table(["data set", "prepare", "limit", "second start", "limit"], ready),
            "CIFAR-10 augmentation (pad, crop, flip, normalise), a batch of 128.",
            table(["", "milliseconds", "images/s", "faster"], augmented),
            "Streaming 299x299 JPEG files, compared with one Pillow process per core.",
            table(["", "images/s", "of Pillow"], streamed),
        ]
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--raw_dir", required=True, help="folder of MNIST's and CIFAR-10's files")
    parser.add_argument("--report", action="store_true", help="write reports/benchmark_data.md")
    options = parser.parse_args()
    text = render(options.raw_dir)
    show_report(text, "benchmark_data", keep=options.report)
