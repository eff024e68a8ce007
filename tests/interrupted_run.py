"""The command `spr_jax.main` as a program to which something happens (`MOMENTS`).

python tests/interrupted_run.py MOMENT DEVICES --config=...
"""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import jax
from absl import app
from fakes import Small

from spr_jax import main
from spr_jax.backbones import BACKBONES
from spr_jax.io.signals import SAVED
from spr_jax.methods import selection_rules
from spr_jax.training import loop

KILLED = -signal.SIGKILL  # status of a process
STEP = 15  # of 22: in the second epoch


def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)


def interrupt():
    os.kill(os.getpid(), signal.SIGTERM)


def at_step(number, act):
    usual = main.stop_on_signals

    @contextlib.contextmanager
    def stop_or_act():
        with usual() as should_stop:
            yield lambda step: (step == number and act(), should_stop(step))[1]

    main.stop_on_signals = stop_or_act


def at_checkpoint(event, act):
    """Act when a file is renamed, or a folder removed, in the folder of checkpoints."""

    def hook(name, arguments):
        if name == event and Path(arguments[0]).parent.name == "checkpoints":
            act(Path(arguments[0]).name)

    sys.addaudithook(hook)


BREAKS = {  # in this order, in one folder: what is done to the process, and its status
    "killed between a row of metrics and its checkpoint": (
        lambda: setattr(loop, "save", die),
        KILLED,
    ),
    "killed in a step": (lambda: at_step(STEP, lambda: (time.sleep(1), die())), KILLED),
    "killed in the selection": (lambda: setattr(selection_rules, "clean_set", die), KILLED),
    "stopped by SIGTERM": (lambda: at_step(STEP, interrupt), SAVED),
    "killed in the write of a checkpoint": (lambda: at_checkpoint("os.rename", die), KILLED),
    "killed in the removal of the checkpoint before": (
        lambda: at_checkpoint("shutil.rmtree", lambda name: name.isdigit() and die()),
        KILLED,
    ),
    "left alone": (lambda: None, 0),
}
MOMENTS = {moment: act for moment, (act, _) in BREAKS.items()} | {
    # The other process waits for this one's step; JAX looks for signals every second.
    "SIGTERM for one of two": lambda: at_step(3, lambda: (interrupt(), time.sleep(3))),
}


def begin(moment: str, devices: str) -> None:
    def use_devices(**_):
        jax.config.update("jax_num_cpu_devices", int(devices))

    main.one_device_per_core = use_devices
    BACKBONES["c2f2"] = Small
    MOMENTS[moment]()
    app.run(main.main, flags_parser=main.parse_flags)


if __name__ == "__main__":
    begin(sys.argv.pop(1), sys.argv.pop(1))
