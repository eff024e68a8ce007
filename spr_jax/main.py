"""Train with noisy labels.

    python -m spr_jax.main                                   # digits: plain training, SPR, ours
    python -m spr_jax.main --config=configs/cifar10_sym.py --workdir=DIR --config.noise.rate=0.4
    python -m spr_jax.main --config=configs/mnist_sym.py:ce  # another method

Rerun the same command to resume from the last checkpoint. SIGTERM and Ctrl-C save and exit with
status 75.
"""

import math
import os
import re
import sys
from pathlib import Path
from typing import NoReturn

import jax

from spr_jax.backbones import OF_VECTORS
from spr_jax.devices import keep_freed_memory, one_device_per_core
from spr_jax.io.extras import needs_extra
from spr_jax.io.text import print_columns, program_name

with needs_extra("train", "spr_jax.main"):
    from absl import app, flags, logging
    from ml_collections import config_flags

    from spr_jax.devices import cache_programs
    from spr_jax.io.signals import SAVED, STOPPED, stop_on_signals
    from spr_jax.training import Stopped, demo, start
    from spr_jax.training.build import describe
    from spr_jax.training.config import check, resolve
    from spr_jax.training.old_configs import new_name

# Exceptions that a bad flag can raise.
FLAG_ERRORS = (AttributeError, ImportError, LookupError, TypeError, ValueError, OSError)

CONFIG = config_flags.DEFINE_config_file("config", None, "The experiment.", lock_config=True)
WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run. [runs/CONFIG-METHOD]")
DRY_RUN = flags.DEFINE_bool("dry_run", False, "Say what would be run, and exit.")
COORDINATOR = flags.DEFINE_string("coordinator", None, "HOST:PORT of the first process, or auto.")
NUM_PROCESSES = flags.DEFINE_integer("num_processes", None, "Number of processes in the run.")
PROCESS_ID = flags.DEFINE_integer("process_id", None, "Number of this process, from 0.")


def main(argv):
    logging.set_verbosity(logging.WARNING)
    if COORDINATOR.value == "auto":  # on TPU VMs and clusters that JAX knows
        jax.distributed.initialize()
    elif COORDINATOR.value:
        jax.distributed.initialize(COORDINATOR.value, NUM_PROCESSES.value, PROCESS_ID.value)
    try:
        if len(argv) > 1:
            raise ValueError(f"Unknown argument {argv[1]!r}; options begin with --config.")
        if CONFIG.value is None:
            demonstrate(Path(WORKDIR.value or "runs/digits"))
        else:
            name = CONFIG.value.method.name
            stem = Path(flags.FLAGS["config"].config_filename).stem
            launch(CONFIG.value, Path(WORKDIR.value or f"runs/{stem}-{name}"))
    except Stopped:
        print(f"\n{STOPPED}", file=sys.stderr)
        sys.exit(SAVED)
    except (ValueError, FloatingPointError) as error:
        fail(str(error))


def launch(config, workdir: Path) -> dict | None:
    """Set up this process for a run and start it; with --dry_run, only describe it."""
    resolve(config)
    keep_freed_memory()
    common_batch = math.gcd(config.batch_size, config.eval_batch_size)
    # A small network on vectors is a few products, which XLA itself spreads over the cores faster
    # than devices share a batch (experiments/reports/benchmark_vectors.md).
    if config.backbone.name not in OF_VECTORS:
        one_device_per_core(batch_size=common_batch // (NUM_PROCESSES.value or 1))
    if DRY_RUN.value:
        check(config)
        print(config)
        print(describe(config))
        return None
    cache_programs(config.compilation_cache)
    with stop_on_signals() as should_stop:
        return start(config, workdir, should_stop=should_stop)


def demonstrate(home: Path) -> None:
    """Train on the embedded digits with 40 % wrong labels, in three ways, and compare."""
    rows = []
    for title, method, preset in demo.ROWS:
        print(f"\n{title}:")
        config = demo.digits_config(method)
        config.preset = preset
        name = method if method == "ce" else f"{method}-{preset}"
        summary = launch(config, home / name)
        if summary:
            names = ("test_top1", "clean_share", "label_precision")
            numbers = [summary["last"].get(name) for name in names]
            rows.append((title, *("" if x is None else f"{100 * x:.1f} %" for x in numbers)))
    if rows:
        print("\nAfter the last epoch, with 40 % of the training labels wrong:", end="")
        print_columns(("", "test accuracy", "labels kept", "of them correct"), rows)


def parse_flags(argv):
    """Parse flags; a misspelled or impossible override is one sentence."""
    try:
        rest = flags.FLAGS(argv)
        getattr(CONFIG.value, "method", None)  # fails if the config file could not be read
        return rest
    except (*FLAG_ERRORS, flags.Error) as error:
        fail(one_sentence(error))


def one_sentence(error: Exception) -> str:
    """The last line of what absl and ml_collections say, which may be a whole traceback."""
    said = str(error)
    if said[0] == said[-1] and said[0] in "'\"":  # the repr of another error's text
        said = said[1:-1].encode().decode("unicode_escape")
    said = re.sub(r".*(\w+Error: |\[Errno \d+\] )", "", said, flags=re.DOTALL)  # a traceback
    said = " ".join(said.split())
    if section := re.search(r"flag (--[\w.]+)=(.*?): Failed to parse .* as a ConfigDict", said):
        flag, value = section.groups()
        return f"{flag} is {value!r}, but it has fields of its own; set one, such as {flag}.name."
    if field := re.fullmatch(r"'(\w+)'", said):
        new = new_name(field[1])
        hint = f"it is now called {new!r}" if new else "--dry_run lists all fields"
        return f"Unknown field {said}; {hint}."
    return said


def fail(sentence: str) -> NoReturn:
    print(f"{program_name('spr_jax.main')}: {sentence}", file=sys.stderr)
    sys.exit(2)


def run() -> None:
    """Run the command; the console script spr-train."""
    sys.path.append(os.getcwd())  # a config file imports its neighbors, such as configs/recipes.py
    app.run(main, flags_parser=parse_flags)


if __name__ == "__main__":
    run()
