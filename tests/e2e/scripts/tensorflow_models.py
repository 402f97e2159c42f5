"""Trains a model of `keras_models.py` or a transformer with TensorFlow, without XLA; prints what TensorFlow says."""

import os
import sys

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import keras_models
import numpy as np
import tensorflow as tf
from keras import layers

BATCH, BATCHES = 16, 4


def written_transformer():
    """Two blocks as in BERT, for where keras_hub is not installed."""
    inputs = keras.Input((128,), dtype="int32", name="token_ids")
    positions = layers.Embedding(128, 128)(keras.ops.arange(128))
    x = layers.Embedding(1000, 128)(inputs) + positions
    for number in range(2):
        attended = layers.MultiHeadAttention(4, 32, name=f"block_{number}_attention")(x, x)
        x = layers.LayerNormalization()(x + layers.Dropout(0.1)(attended))
        wide = layers.Dense(512, activation="gelu", name=f"block_{number}_wide")(x)
        x = layers.LayerNormalization()(x + layers.Dense(128, name=f"block_{number}_narrow")(wide))
    model = keras.Model(inputs, layers.Dense(2)(x[:, 0]))
    model.compile(keras.optimizers.AdamW(5e-5), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def inputs_of(model):
    rows = BATCH * BATCHES
    made = [np.ones((rows, *(size or 128 for size in one.shape[1:])), one.dtype) for one in model.inputs]
    return made[0] if len(made) == 1 else {one.name: data for one, data in zip(model.inputs, made, strict=True)}


name = sys.argv[1]
if name == "transformer":
    try:
        model = keras_models.transformer()
    except ImportError:
        model = written_transformer()
elif name == "written_transformer":
    model = written_transformer()
else:
    model = getattr(keras_models, name)()
model.jit_compile = False
shape = model.output_shape[1:]
labels = np.zeros(
    (BATCH * BATCHES, *(shape if name in ("cnn", "lstm") else ())), "float32" if name == "cnn" else "int64"
)
model.fit(inputs_of(model), labels, batch_size=BATCH, epochs=1, verbose=0)
print("peak", tf.config.experimental.get_memory_info("GPU:0")["peak"])
