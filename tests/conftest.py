"""Two CPU devices and double precision, set before JAX is first used; data shared by tests."""

import os
import signal
import tempfile
from pathlib import Path

# A shell that starts the tests in the background has them, and the runs they start, ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Small programs are compiled more often than they are run: compile them quickly.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true",
)

# Programs are compiled once: for all modules, processes, and runs of the tests.
PROGRAMS = Path(tempfile.gettempdir(), f"spr_jax-test-programs-{os.getuid()}")
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(PROGRAMS)
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.2"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

import jax  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402

jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_enable_x64", True)


def make_data(n=400, d=20, num_classes=4, rate=0.3, separation=1.5, seed=0, dtype=np.float64):
    """Features around class centres, given labels with symmetric noise, true labels."""
    generator = np.random.default_rng(seed)
    centres = separation * generator.standard_normal((num_classes, d))
    true = generator.integers(0, num_classes, n)
    true[:num_classes] = np.arange(num_classes)
    features = np.maximum(centres[true] + generator.standard_normal((n, d)), 0).astype(dtype)
    wrong = generator.random(n) < rate
    other = (true + generator.integers(1, num_classes, n)) % num_classes
    return features, np.where(wrong, other, true).astype(np.int32), true


def make_piece(n=60, p=6, c=5, seed=0):
    """Scores [n, p] with zero mean and one-hot targets [n, c], a third of them wrong."""
    features, given, _ = make_data(n, p + 3, c, 0.33, seed=seed)
    centred = features - features.mean(axis=0)
    left, values, _ = np.linalg.svd(centred, full_matrices=False)
    return left[:, :p] * values[:p], np.eye(c)[given]


@pytest.fixture(autouse=True, scope="module")
def forget_programs():
    """XLA maps every program it compiles into memory, and a process has only so many maps."""
    yield
    jax.clear_caches()


@pytest.fixture
def data():
    return make_data()


@pytest.fixture
def piece():
    return make_piece()
