"""A training step in JAX: peakmem predict jax:examples/jax_dense.py:step --batch 256."""

from itertools import pairwise

import jax
import jax.numpy as jnp

WIDTHS = (1000, 100, 100, 100, 100, 10)


def step(batch):
    """The function, what it is called with, and options of jax.jit."""

    def loss(parameters, inputs, labels):
        for weights, biases in parameters[:-1]:
            inputs = jax.nn.relu(inputs @ weights + biases)
        weights, biases = parameters[-1]
        logits = jax.nn.log_softmax(inputs @ weights + biases)
        return -jnp.mean(jnp.take_along_axis(logits, labels[:, None], axis=1))

    def train(parameters, inputs, labels):
        gradients = jax.grad(loss)(parameters, inputs, labels)
        return jax.tree.map(lambda p, g: p - 0.01 * g, parameters, gradients)

    shape = jax.ShapeDtypeStruct
    parameters = [(shape((a, b), "float32"), shape((b,), "float32")) for a, b in pairwise(WIDTHS)]
    inputs, labels = shape((batch, WIDTHS[0]), "float32"), shape((batch,), "int32")
    return train, (parameters, inputs, labels), {"donate_argnums": (0,)}
