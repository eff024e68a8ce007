"""Number of devices of a machine without accelerators."""

import contextlib
import json
import subprocess
import sys

import jax
import pytest
from jax.experimental import multihost_utils

from spr_jax.devices import first_process_first, one_device_per_core

COUNT = """
import json, sys
from spr_jax import devices
devices.num_cores = lambda: 12
devices.one_device_per_core(**json.loads(sys.argv[1]))
import jax
print(jax.local_device_count())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "count"),
    [({}, 8), ({"limit": 3}, 3), ({"batch_size": 100}, 5), ({"batch_size": 7}, 7)],
)
def test_a_device_for_each_core_that_divides_the_batch(asked, count):
    command = [sys.executable, "-c", COUNT, json.dumps(asked)]
    assert int(subprocess.check_output(command, text=True)) == count


def test_devices_in_use_stay():
    before = jax.local_device_count()
    one_device_per_core(limit=1)
    assert jax.local_device_count() == before == 2


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("fails", [False, True])
def test_the_first_process_goes_first(number, fails, monkeypatch):
    """The others wait for it; it lets them go also if it fails."""
    happened = []
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(jax, "process_index", lambda: number)
    monkeypatch.setattr(multihost_utils, "sync_global_devices", lambda what: happened.append(what))
    with contextlib.suppress(OSError), first_process_first("meeting"):
        happened.append("work")
        if fails:
            raise OSError
    assert happened == [["work", "meeting"], ["meeting", "work"]][number]


def test_a_process_alone_waits_for_nobody(monkeypatch):
    happened = []
    monkeypatch.setattr(multihost_utils, "sync_global_devices", happened.append)
    with first_process_first("meeting"):
        happened.append("work")
    assert happened == ["work"]
