"""Train with noisy labels.

    python -m spr_jax.main                                   # noisy digits, with and without SPR
    python -m spr_jax.main --config=configs/cifar10_sym.py --workdir=DIR --config.noise.rate=0.4
    python -m spr_jax.main --config=configs/mnist_sym.py:ce  # another method

The same command again goes on from the last checkpoint. SIGTERM and Ctrl-C save and exit with
status 75.
"""

import math
import os
import re
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax
from absl import app, flags, logging
from jax.experimental import multihost_utils
from ml_collections import config_flags

from spr_jax import settings
from spr_jax.cpu_ops import keep_freed_memory
from spr_jax.devices import one_device_per_core
from spr_jax.experiment import describe
from spr_jax.run import Stopped, run
from spr_jax.settings import SAVED

MISTAKES = (AttributeError, ImportError, LookupError, TypeError, ValueError, OSError)  # in flags

CONFIG = config_flags.DEFINE_config_file("config", None, "The experiment.", lock_config=True)
WORKDIR = flags.DEFINE_string("workdir", None, "Where a run writes. [runs/CONFIG-METHOD]")
DRY_RUN = flags.DEFINE_bool("dry_run", False, "Say what would be run, and exit.")
COORDINATOR = flags.DEFINE_string("coordinator", None, "HOST:PORT of the first process, or auto.")
NUM_PROCESSES = flags.DEFINE_integer("num_processes", None, "How many processes train together.")
PROCESS_ID = flags.DEFINE_integer("process_id", None, "Which of them this is.")


def main(argv):
    sys.path.append(str(Path(__file__).parent.parent))  # where configs/ is
    logging.set_verbosity(logging.WARNING)
    if COORDINATOR.value == "auto":  # on TPU VMs and clusters that JAX knows
        jax.distributed.initialize()
    elif COORDINATOR.value:
        jax.distributed.initialize(COORDINATOR.value, NUM_PROCESSES.value, PROCESS_ID.value)
    try:
        if len(argv) > 1:
            raise ValueError(f"Unknown argument {argv[1]!r}; options begin with --config.")
        if CONFIG.value is None:
            demonstrate()
        else:
            name = CONFIG.value.method.name
            stem = Path(flags.FLAGS["config"].config_filename).stem
            start(CONFIG.value, Path(WORKDIR.value or f"runs/{stem}-{name}"))
    except Stopped:
        print("\nStopped and saved; the same command goes on from here.", file=sys.stderr)
        sys.exit(SAVED)
    except (ValueError, FloatingPointError) as error:
        print(f"python -m spr_jax.main: {error}", file=sys.stderr)
        sys.exit(2)


def start(config, workdir: Path) -> dict | None:
    """Check, then run in `workdir`; the summary."""
    settings.resolve(config)
    keep_freed_memory()
    shared = math.gcd(config.batch_size, config.eval_batch_size)
    one_device_per_core(batch_size=shared // (NUM_PROCESSES.value or 1))
    settings.check(config)
    if DRY_RUN.value:
        print(config)
        print(describe(config))
        return None
    cache = os.path.expanduser(config.compilation_cache)
    if cache:
        jax.config.update("jax_compilation_cache_dir", cache)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    workdir, writes = workdir.expanduser(), jax.process_index() == 0
    with settings.claim(workdir, config, writes=writes):
        if writes:
            print(f"Writing to {workdir}.")
        return run(config, workdir, should_stop=watch_signals())


def watch_signals() -> Callable[[int], bool]:
    """Asked after every step: whether SIGTERM or Ctrl-C has come, in whichever process."""
    stop, together = [], jax.process_count() > 1
    if together:  # JAX listens to SIGTERM, and finds a step after which all can stop
        signal.signal(signal.SIGINT, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    else:
        for number in (signal.SIGTERM, signal.SIGINT):
            usual = signal.getsignal(number)
            signal.signal(number, partial(_ask_to_stop, stop=stop, usual=usual))

    def should_stop(step):
        if together and multihost_utils.reached_preemption_sync_point(step):
            stop.append(True)
        return bool(stop)

    return should_stop


def _ask_to_stop(number, _, *, stop, usual):
    """Once; a second time the signal does what it usually does."""
    print("\nStopping after this step; once more to stop at once.", file=sys.stderr)
    stop.append(True)
    signal.signal(number, usual)


def demonstrate() -> None:
    """The embedded digits, 40 % of their labels made wrong: plain training, then SPR."""
    from configs import digits_sym

    home, found = Path(WORKDIR.value or "runs/digits"), {}
    for method in ("ce", "spr"):
        print(f"\n{'Plain training' if method == 'ce' else 'SPR'}:")
        found[method] = start(digits_sym.get_config(method), home / method)
    if all(found.values()):
        plain, ours = (100 * found[method]["last"]["test_top1"] for method in ("ce", "spr"))
        print(
            "\nTest accuracy after the last epoch, with 40 % of the training labels wrong: "
            f"{plain:.1f} % with plain training, {ours:.1f} % with SPR."
        )


def parse_flags(argv):
    """A misspelt or impossible override is one sentence."""
    try:
        rest = flags.FLAGS(argv)
        getattr(CONFIG.value, "method", None)  # fails if the config file could not be read
        return rest
    except (*MISTAKES, flags.Error) as error:
        said = str(error)
        if said[0] == said[-1] and said[0] in "'\"":  # the repr of another error's text
            said = said[1:-1].encode().decode("unicode_escape")
        said = re.sub(r".*(\w+Error: |\[Errno \d+\] )", "", said, flags=re.DOTALL)  # of a traceback
        said = " ".join(said.split())
        if re.fullmatch(r"'\w+'", said):
            said = f"Unknown field {said}; --dry_run shows those that there are."
        print(f"python -m spr_jax.main: {said}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    app.run(main, flags_parser=parse_flags)
