"""Trains with TensorFlow on the CPU: `fit`, a plain loop, or one variable of so many GiB."""

import os
import sys

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf

layers = keras.layers


def cnn():
    """A network of which large tensors are most of the memory."""
    return keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            layers.Conv2D(64, 3, activation="relu"),
            layers.Conv2D(64, 3, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(10),
        ]
    )


def fit():
    """`model.fit` on arrays."""
    model = cnn()
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(np.random.rand(1024, 32, 32, 3).astype("float32"), np.zeros(1024, "int64"), batch_size=256, verbose=0)


def words():
    """A plain loop, with token ids as floats: those that no embedding has would fail, and so would their sum."""
    model = keras.Sequential(
        [keras.Input((512,)), layers.Embedding(1000, 256), layers.GlobalMaxPooling1D(), layers.Dense(10)]
    )
    optimizer = keras.optimizers.SGD(momentum=0.9)
    tokens = np.random.default_rng(0).integers(0, 1000, (2048, 512)).astype("float32")

    @tf.function
    def step(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(ids, training=True) ** 2)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return tf.reduce_sum(tf.cast(ids, tf.int64))

    total = sum(int(step(batch)) for batch in tf.data.Dataset.from_tensor_slices(tokens).batch(512))
    assert total == int(tokens.sum(dtype="int64"))


def large(gib):
    """A variable, and one step with it."""
    variable = tf.Variable(tf.zeros([int(gib) * 2**28]))
    keras.optimizers.SGD(0.1).apply_gradients([(tf.ones_like(variable), variable)])


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
