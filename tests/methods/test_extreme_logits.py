"""Losses, slopes and records stay finite where a network is as sure as numbers allow."""

import numpy as np
import pytest
from fakes import draw_logits, step_on_logits

from spr_jax.methods.dimensionality import d2l
from spr_jax.methods.early_learning import elr
from spr_jax.methods.iterative_detection import iter_nld
from spr_jax.methods.noisy_cross_validation import incv
from spr_jax.methods.peers import co_teaching, co_teaching_plus, decoupling, mentornet
from spr_jax.methods.pencil import pencil
from spr_jax.methods.plc import plc
from spr_jax.methods.selfie import selfie
from spr_jax.methods.sop import sop

METHODS = {
    "mentornet": mentornet(0.4, 0),
    "co_teaching": co_teaching(0.4, 0),
    "decoupling": decoupling(0),
    "co_teaching_plus": co_teaching_plus(0.4, 0, 0),
    "pencil, labels learned": pencil()[1].method,
    "pencil, labels final": pencil()[2].method,
    "plc": plc(),
    "selfie": selfie(),
    "sop": sop(consistency=0.0),
    "elr": elr(),
    "incv, teaching": incv()[-1].method,
    "d2l": d2l(),
    "iter_nld": iter_nld(),
}


@pytest.mark.filterwarnings("ignore:The classes", "ignore:Dimension is measured")  # of few
@pytest.mark.parametrize("name", METHODS)
def test_step_is_finite_for_extreme_logits(name):
    method = METHODS[name]
    logits, labels = draw_logits(method.num_networks, scale=1e4)
    step = step_on_logits(method, np.float32(logits), labels, epoch=30)
    assert np.isfinite(step.loss)
    assert all(np.isfinite(leaf).all() for leaf in (*step.slopes, *step.record.values()))
