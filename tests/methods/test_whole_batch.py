"""A step is the same for any number of devices: ranks, partners, boxes are of the whole batch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fakes import make_batch, make_linear, take_step

from spr_jax.devices import AXIS
from spr_jax.methods import METHODS, Method
from spr_jax.methods.whole_batch import common_key, own_part, whole

N, B, C = 30, 16, 4
CLEAN = np.random.default_rng(5).random(N) < 0.6
CASES = {  # title -> method, options, stage, kind of step
    "co_teaching": ("co_teaching", {"forget_rate": 0.3, "ramp": 0}, 0, 0),
    "co_teaching_plus": ("co_teaching_plus", {"forget_rate": 0.3, "ramp": 0, "warmup": 0}, 0, 0),
    "decoupling": ("decoupling", {"warmup": 0}, 0, 0),
    "mentornet": ("mentornet", {"forget_rate": 0.45, "ramp": 0}, 0, 0),
    "selfie": ("selfie", {"noise_rate": 0.3}, 0, 0),
    "nct, teaching": ("nct", {"sigma": 2.0, "forget_rate": 0.3}, 1, 0),
    "iter_nld": ("iter_nld", {}, 0, 0),
    "topofilter": ("topofilter", {}, 0, 0),
    "spr, CutMix": ("spr", {}, 0, 1),
    "spr, CutMix, clean with noisy": ("spr", {"pairing": "clean_noisy"}, 0, 1),
    "spr, mixup": ("spr", {"mixing": "mixup"}, 0, 1),
    "divide_mix": ("divide_mix", {}, 1, 0),
    "incv, teaching": ("incv", {"add_from": 0}, -1, 0),
    "elr": ("elr", {}, 0, 0),
    "sop": ("sop", {}, 0, 0),
    "ssr": ("ssr", {"consistency": 0.0}, 0, 0),
    "spr, supervised": ("spr", {"divide_by_clean": True}, 0, 0),
}


@pytest.mark.parametrize("case", CASES)
def test_the_number_of_devices_changes_no_step(case):
    name, options, stage, kind = CASES[case]
    made = METHODS[name](**options)
    method = made if isinstance(made, Method) else made[stage].method
    generator = np.random.default_rng(0)
    first, second = generator.standard_normal((2, B, 6, 6, 1))
    index, labels = generator.permutation(N)[:B], generator.integers(0, C, N)
    batch = make_batch(first, labels[index], second, index=index, epoch=30)
    networks = tuple(make_linear(C, first, seed, width=6) for seed in range(method.num_networks))
    memory = jax.device_get(method.init(labels, C))
    if "clean" in memory:
        memory["clean"] = CLEAN
    if "role" in memory:
        memory["role"] = np.arange(N, dtype=np.int32) % 3
    for key in (7, 8, 9):  # a box may be empty
        alone, shared = (
            take_step(method, networks, batch, memory, kind=kind, devices=devices, key=key)
            for devices in (1, 2)
        )
        assert shared.loss == pytest.approx(alone.loss, rel=1e-6)
        for part, expected in ((shared.slopes, alone.slopes), (shared.record, alone.record)):
            jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6), part, expected)


def test_parts_make_up_the_whole_and_a_key_is_common():
    values = jnp.arange(12).reshape(4, 3)

    def on_device(part):
        key = jax.random.fold_in(jax.random.key(0), jax.lax.axis_index(AXIS))
        every = whole(part)
        return every, own_part(every), jax.random.uniform(common_key(key))

    every, own, draws = jax.vmap(on_device, axis_name=AXIS)(values)
    np.testing.assert_array_equal(every, [range(12)] * 4)
    np.testing.assert_array_equal(own, values)
    first = jax.random.uniform(jax.random.fold_in(jax.random.key(0), 0))
    np.testing.assert_array_equal(draws, [first] * 4)
