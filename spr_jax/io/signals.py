"""Stop a run by SIGTERM or Ctrl-C, for commands; libraries leave signals alone."""

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial

STOPPED = "Stopped and saved; the same command resumes from here."
SAVED = 75  # exit status of a run that was stopped and can resume: try again


class Stopped(Exception):
    """The run was asked to stop; it has saved what it needs to resume."""


@contextlib.contextmanager
def stop_on_signals() -> Iterator[Callable[[int], bool]]:
    """Give a `should_stop` that tells whether a signal has come, in whichever process.

    Afterwards signals do what they did before.
    """
    import jax
    from jax.experimental import multihost_utils

    requests: list[bool] = []
    together = jax.process_count() > 1
    # JAX listens to SIGTERM where there are several processes, and finds a step after which all
    # can stop; Python does not see its handler and could not put it back.
    numbers = (signal.SIGINT,) if together else (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.getsignal(number) for number in numbers}
    for number, usual in before.items():
        ask = partial(_ask_to_stop, requests=requests, usual=usual)
        signal.signal(number, _terminate if together else ask)

    def should_stop(step: int) -> bool:
        if together and multihost_utils.reached_preemption_sync_point(step):
            requests.append(True)
        return bool(requests)

    try:
        yield should_stop
    finally:
        for number, usual in before.items():
            signal.signal(number, usual)


def _terminate(*_):
    os.kill(os.getpid(), signal.SIGTERM)


def _ask_to_stop(number, _, *, requests, usual):
    """Ask once; a second time the signal does what it usually does."""
    print("\nStopping after this step; once more to stop at once.", file=sys.stderr)
    requests.append(True)
    signal.signal(number, usual)
