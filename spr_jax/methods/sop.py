"""SOP (Liu et al., 2022): wrong labels are explained by sparse terms, learned with the network.

https://arxiv.org/abs/2202.14026. Each example has a number u and a vector v, at first tiny. With
its given label y, one-hot e, they stand for U = u^2 e and V = v^2 (1 - e), both cut at 1. The
network descends

    -log q_y,  q ~ max(p + U - V, 1e-4),  V constant,

of its prediction p, which raises u where p denies y, and so teaches the network less and less;
u and v also descend  ||onehot(argmax p) + U - V - e||^2.  SOP+ adds two terms that use no label:

    balance CE(1/c, mean of p over the batch)  +  consistency KL(p of a weak || p of a strong view)
"""

import jax
import jax.numpy as jnp
from jax import lax, random

from spr_jax import augment
from spr_jax.devices import AXIS
from spr_jax.losses import kl_divergence, overparameterized
from spr_jax.methods.method import Method, expect, weighted_mean
from spr_jax.registry import lookup

START = 1e-8  # of u and v; released as the deviation of a normal draw


def sop(
    u_rate: float = 0.078,
    v_rate: float = 0.078,
    balance: float = 0.1,
    consistency: float = 0.9,
    strong: str = "rand_augment",
) -> Method:
    """SOP+: model the wrong part of each label by over-parameterized sparse terms.

    Args:
      u_rate: step size of u, down the slope of its example's own loss; the released 10 for
        CIFAR-10, for a mean over 128 examples, is 0.078.
      v_rate: that of v.
      balance: weight of the term that keeps classes equally frequent in a batch; 0: none.
      consistency: weight of the agreement of views; 0: none, which is SOP without the plus.
      strong: augmentation of the strong view, on top of the data set's own.
    """
    numbers = {"u_rate": u_rate, "v_rate": v_rate, "balance": balance, "consistency": consistency}
    for name, value in numbers.items():
        expect(value >= 0, name, value, "0 or more")
    lookup(augment.AUGMENTATIONS, strong)

    def init(labels, num_classes):
        return {
            "u": jnp.full(len(labels), START, jnp.float32),
            "v": jnp.full((len(labels), num_classes), START, jnp.float32),
            "clean": jnp.ones(len(labels), bool),
            "suspicion": jnp.zeros(len(labels), jnp.float32),
        }

    def loss(networks, batch, memory, key):
        first_key, second_key = random.split(key)
        output, network = networks[0].forward(batch.images, first_key)
        u, v = memory["u"][batch.index], memory["v"][batch.index]
        each, _ = overparameterized(output.logits, batch.labels, u, v)
        slopes = jax.grad(own_loss)((u, v), output.logits, batch.labels)
        if consistency:
            seen, network = network.forward(batch.views[1], second_key)
            each += consistency * kl_divergence(lax.stop_gradient(output.logits), seen.logits)
        value = weighted_mean(each, batch.weights)
        if balance:
            share = jnp.mean(batch.weights[:, None] * jax.nn.softmax(output.logits), axis=0)
            value -= balance * jnp.mean(jnp.log(jnp.maximum(lax.pmean(share, AXIS), 1e-4)))
        return value, ((network,), {"u_slope": slopes[0], "v_slope": slopes[1]})

    def own_loss(terms, logits, labels):  # of u and v; those of two examples do not meet
        return sum(map(jnp.sum, overparameterized(logits, labels, *terms)))

    def revise(memory, epoch, key):
        """Descend; an example is visited once per epoch, so its step can wait for the end of it."""
        u = memory["u"] - u_rate * jnp.asarray(epoch.record["u_slope"])
        v = memory["v"] - v_rate * jnp.asarray(epoch.record["v_slope"])
        return {"u": u, "v": v, "clean": u**2 < 0.5, "suspicion": jnp.minimum(u**2, 1)}

    on_top = ("none", strong) if consistency else ()
    return Method(init, (loss,), revise, num_views=max(len(on_top), 1), on_top=on_top)
