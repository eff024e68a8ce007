"""A report on the time of the command `spr-detect`, as a user sees it.

    python -m experiments.benchmark_command --report
    python -m experiments.benchmark_command --data_dir=DIR --out=FOUND --report    # and CIFAR-10N

Each call is a process of its own, timed from its start to its end. The first one finds no compiled
programs, those after it find all that it left: features, pictures of the page, programs. The
photographs are made up; DIR holds the prepared CIFAR-10N, and FOUND the results of its calls: what
it has of their features is not computed again. The last line is JSON.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image
from tqdm import tqdm

from experiments.harness.provenance import origin, show_report
from experiments.harness.study import new_parser, positive, table
from spr_jax.devices import num_cores
from spr_jax.io.atomic import check_folder, read_json

NAME = "benchmark_command"
COMMAND = (sys.executable, "-m", "spr_jax.detect")
PHOTOGRAPHS, SMALL = 10_000, 60
WIDTH, HEIGHT, CLASSES, WRONG = 400, 300, 10, 0.1  # share of the photographs in a wrong folder
# Pixels. The encoder sees such waves (2.3 and 3 pixels of its 128), a network that is trained on
# images of 32 pixels hardly: so `spr-detect` chooses the encoder, as it does for photographs.
WAVELENGTHS = (5.5, 7)
FILES_LIMIT = "180 s for 10,000"
KEPT_LIMIT = "10 s for 50,000"


class Timed(NamedTuple):
    title: str
    seconds: list[float]  # of each call
    summary: dict  # summary.json of the last
    limit: str = "-"  # what was asked for

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def row(self) -> list[str]:
        each = ", ".join(f"{took:.1f}" for took in self.seconds)
        encoder = self.summary["features_from"]["encoder"]
        examples = f"{self.summary['examples']:,}"
        return [self.title, examples, encoder, each, f"{self.median:.1f}", self.limit]


HEAD = ["", "images", "features", "seconds of each call", "median", "asked for, at most"]


def draw(number: int, seed: int = 0) -> tuple[Image.Image, int, int]:
    """A photograph, its true class and the class of its folder.

    Waves whose direction and length belong to the class, on a smooth field of colors, with grain.
    """
    rng = np.random.default_rng([seed, number])
    true = number % CLASSES
    colors = Image.fromarray(rng.integers(48, 208, (6, 8, 3), dtype=np.uint8))
    field = np.asarray(colors.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC), np.float32)
    directions = CLASSES // len(WAVELENGTHS)
    angle = np.pi * (true % directions + 0.3 * rng.uniform(-1, 1)) / directions
    frequency = 2 * np.pi / WAVELENGTHS[true // directions]
    across = np.arange(WIDTH, dtype=np.float32) * np.float32(frequency * np.cos(angle))
    down = np.arange(HEIGHT, dtype=np.float32) * np.float32(frequency * np.sin(angle))
    phase = np.float32(rng.uniform(0, 2 * np.pi))
    waves = 14 * np.sin(across + down[:, None] + phase)
    grain = rng.integers(-12, 13, (HEIGHT, WIDTH), dtype=np.int8)
    pixels = np.clip(field + (waves + grain)[..., None], 0, 255).astype(np.uint8)
    is_wrong = rng.random() < WRONG
    given = (true + is_wrong * int(rng.integers(1, CLASSES))) % CLASSES
    return Image.fromarray(pixels), true, int(given)


def make_photographs(folder: Path, count: int, home: Path) -> Path:
    """Fill a folder with JPEG files, a folder per class, unless it is there; draw in `home`."""
    if folder.exists():
        return folder
    drawn = home / "drawn"
    for label in range(CLASSES):
        (drawn / f"class_{label}").mkdir(parents=True)

    def save(number):
        image, _, given = draw(number)
        image.save(drawn / f"class_{given}" / f"{number:06}.jpg", quality=85)

    with ThreadPoolExecutor(num_cores()) as threads:
        list(tqdm(threads.map(save, range(count)), "Drawing photographs", count))
    return drawn.rename(folder)


def environment_with(programs: Path) -> dict[str, str]:
    """The environment of a call that keeps its programs in a folder.

    The command leaves a cache that the environment names as it is, so the settings of
    `devices.cache_programs`, which every other user gets, stand here, too.
    """
    return os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(programs),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


def seconds_of(arguments: Sequence[str], programs: Path) -> float:
    """Seconds of a call in a process of its own.

    Raises:
      ValueError: if it fails, with the last line that it printed.
    """
    environment = environment_with(programs)
    start = time.perf_counter()
    done = subprocess.run(
        [*COMMAND, *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    took = time.perf_counter() - start
    call = " ".join(["spr-detect", *arguments])
    if done.returncode:
        lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
        last = lines[-1] if lines else "It printed nothing."
        raise ValueError(f"`{call}` ended with exit status {done.returncode}: {last}")
    print(f"{took:.1f} s: {call}", file=sys.stderr)
    return took


def time_photographs(folder: Path, home: Path) -> list[Timed]:
    """Time files to page without features and programs, and the same call twice again."""
    out, programs = home / "found", home / "programs_of_photographs"
    arguments = [f"--images={folder}", f"--out={out}"]
    programs.mkdir()
    first = [seconds_of(arguments, programs)]
    again = [seconds_of(arguments, programs) for _ in range(2)]
    summary = read_json(out / "summary.json")
    return [
        Timed("photographs, first call: from files to page", first, summary, FILES_LIMIT),
        Timed("photographs, again", again, summary),
    ]


def has_features(out: Path) -> bool:
    """Whether a folder of results keeps features.

    Raises:
      ValueError: if it keeps some of them; the time of the call that computes the rest is no first.
    """
    if list(out.glob("features/*/features.partial.npy")):
        raise ValueError(
            f"{out} has part of its features; finish that call, or give another --out."
        )
    return bool(list(out.glob("features/*/features.npy")))


def time_dataset(name: str, data_dir: str, out: Path, home: Path) -> list[Timed]:
    """Time a call without programs, which computes features if none are kept, and three again."""
    programs = home / f"programs_of_{name}"
    arguments = [f"--dataset={name}", f"--data_dir={data_dir}", f"--out={out}"]
    title = "features kept, no programs" if has_features(out) else "first call"
    programs.mkdir()
    first = [seconds_of(arguments, programs)]
    again = [seconds_of(arguments, programs) for _ in range(3)]
    summary = read_json(out / "summary.json")
    return [
        Timed(f"{name}, {title}", first, summary),
        Timed(f"{name}, again", again, summary, KEPT_LIMIT),
    ]


def render(timed: Sequence[Timed]) -> str:
    return f"""# The command `spr-detect`, timed

{origin("pillow")}

{table(HEAD, [each.row() for each in timed])}

Wall-clock seconds of whole processes, one at a time, from their start to the review page on the
disk. Before a first call there are no compiled programs; a call again finds the features, the
pictures of the page and the programs of the one before. Photographs: JPEG, {WIDTH} x {HEIGHT}
pixels, {CLASSES} classes, {WRONG:.0%} of the labels wrong; no option but where to read and write.
"""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = new_parser(__doc__)
    add = parser.add_argument
    add("--report", action="store_true", help=f"write reports/{NAME}.md")
    add("--small", action="store_true", help=f"{SMALL} photographs, and a report of its own")
    add("--photographs", type=positive, metavar="N", help=f"how many are made [{PHOTOGRAPHS:,}]")
    add("--work", type=Path, help="folder to keep the photographs in [a temporary one]")
    add("--data_dir", default="", help="of the prepared CIFAR-10N; it is timed if this is given")
    add("--out", type=Path, default=Path("runs", NAME), help="its results [%(default)s]")
    options = parser.parse_args(arguments)
    count = options.photographs or (SMALL if options.small else PHOTOGRAPHS)
    if count < 2 * CLASSES:
        parser.error(f"--photographs is {count}; expected {2 * CLASSES} or more.")
    try:
        if options.data_dir:
            has_features(check_folder(options.out))
        if options.work:
            check_folder(options.work).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f"{NAME}-", dir=options.work) as name:
            home = Path(name)
            folder = (options.work or home) / f"photographs_{count}"
            timed = time_photographs(make_photographs(folder, count, home), home)
            if options.data_dir:
                timed += time_dataset("cifar10n", options.data_dir, options.out, home)
    except ValueError as error:
        parser.error(str(error))
    show_report(render(timed), NAME + "_small" * options.small, keep=options.report)
    print(json.dumps({each.title: round(each.median, 2) for each in timed}))


if __name__ == "__main__":
    main()
