"""`peakmem predict jax:`: XLA's own figures, for a card that is not there where JAX has its CUDA plugin."""

from __future__ import annotations

import importlib.util

import pytest

from tests.e2e.conftest import EXAMPLES, run_peakmem

pytestmark = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs jax")
HAS_CUDA = importlib.util.find_spec("jax_plugins") is not None

FUNCTIONS = """
import jax, jax.numpy as jnp

S = jax.ShapeDtypeStruct

def gradient():
    function = jax.grad(lambda w1, w2, x: jnp.sum((jnp.tanh(x @ w1) @ w2) ** 2), argnums=(0, 1))
    return function, (S((1024, 4096), "float32"), S((4096, 1024), "float32"), S((256, 1024), "float32"))

def donated():
    update = lambda w, d: w - 0.1 * d
    return update, (S((2048, 2048), "float32"), S((2048, 2048), "float32")), {"donate_argnums": (0,)}

def large():
    return (lambda x: x @ x), (S((131072, 131072), "float32"),)

def nothing():
    return 3
"""


def predict(script, name, *words):
    path = script(FUNCTIONS, "steps.py")
    return run_peakmem("predict", f"jax:{path}:{name}", *words, "--json", "-")


def test_arguments_outputs_and_temporaries(script):
    done = predict(script, "gradient")
    assert done.code == 0, done.err
    told = done.json
    assert told["arguments"] == 4 * (1024 * 4096 + 4096 * 1024 + 256 * 1024)
    # Two gradients, and a table of two pointers.
    assert told["outputs"] == 4 * (1024 * 4096 + 4096 * 1024) + 16
    # tanh(x w1) and the result: 4 MiB and 1 MiB.
    assert told["temporary"] == 5 * 2**20
    assert told["in_use"] == told["arguments"] + told["outputs"] + told["temporary"]
    assert told["compiled_for"] == ("GPU" if HAS_CUDA else "CPU")


def test_donated_arguments_are_reused(script):
    told = predict(script, "donated").json
    size = 4 * 2048 * 2048
    assert (told["arguments"], told["outputs"], told["aliased"]) == (2 * size, size, size)
    assert told["in_use"] == 2 * size + told["temporary"]
    assert told["allocator"]["in_use"] >= told["in_use"]


def test_what_does_not_fit(script):
    done = predict(script, "large", "--gpu", "4090")
    assert done.code == 1
    assert done.json["verdict"] == "does_not_fit"


def test_another_return_value_is_explained(script):
    done = predict(script, "nothing")
    assert done.code == 2
    assert "nothing returned int where (function, arguments)" in done.err


def test_the_example_in_words():
    done = run_peakmem("predict", f"jax:{EXAMPLES / 'jax_dense.py'}:step", "--batch", "256", "--gpu", "4090")
    assert done.code == 0, done.err
    text = " ".join(done.out.split())
    assert "JAX takes 17.64 GiB of this card at its first operation" in text
    assert "XLA_PYTHON_CLIENT_PREALLOCATE=false" in text
