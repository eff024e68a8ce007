"""How many cores this process may use."""

import os


def num_cores() -> int:
    """Of those that the machine has, which a container or a job may not be given all."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
