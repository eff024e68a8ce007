"""Number of devices of a machine without accelerators."""

import json
import subprocess
import sys

import jax
import pytest

from spr_jax.devices import one_device_per_core

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
