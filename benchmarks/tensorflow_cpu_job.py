"""Trains one model with TensorFlow on the CPU for a few steps, with random data.

python benchmarks/tensorflow_cpu_job.py ResNet50 --batch 16
"""

import argparse

import keras
import numpy as np
import tensorflow as tf

layers = keras.layers


def dense():
    """A dense network."""
    return keras.Sequential([keras.Input((1000,)), *(layers.Dense(100, "relu") for _ in range(4)), layers.Dense(10)])


def cnn():
    """A small convolutional network."""
    return keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(128, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(128, "relu"),
            layers.Dropout(0.5),
            layers.Dense(10),
        ]
    )


def lstm():
    """Two recurrent layers."""
    return keras.Sequential(
        [
            keras.Input((100, 64)),
            layers.LSTM(256, return_sequences=True),
            layers.LSTM(256),
            layers.Dense(10),
        ]
    )


def text():
    """An embedding of words, and a convolution over them."""
    return keras.Sequential(
        [
            keras.Input((256,), dtype="int32"),
            layers.Embedding(50_000, 256),
            layers.Conv1D(256, 5, activation="relu"),
            layers.GlobalMaxPooling1D(),
            layers.Dense(10),
        ]
    )


def mlp():
    """Wide dense layers."""
    return keras.Sequential([keras.Input((2048,)), *(layers.Dense(2048, "relu") for _ in range(6)), layers.Dense(10)])


def application(name):
    """A network of keras.applications."""
    return getattr(keras.applications, name)(weights=None, classifier_activation=None)


def loop(model, x, y, batch):
    """A plain loop over batches."""
    optimizer = keras.optimizers.SGD(0.001, momentum=0.9)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def step(images, labels):
        with tf.GradientTape() as tape:
            value = loss(labels, model(images, training=True))
        weights = model.trainable_variables
        optimizer.apply(tape.gradient(value, weights), weights)
        return value

    for images, labels in tf.data.Dataset.from_tensor_slices((x, y)).batch(batch):
        step(images, labels)


def main():
    """Build it, make data, train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--steps", type=int, default=4)
    chosen = parser.parse_args()
    own = {"dense": dense, "cnn": cnn, "lstm": lstm, "text": text, "mlp": mlp}
    model = own[chosen.model]() if chosen.model in own else application(chosen.model)
    rows = chosen.batch * chosen.steps
    generator = np.random.default_rng(0)
    if chosen.model == "text":
        x = generator.integers(0, 50_000, (rows, *model.input_shape[1:]), dtype="int32")
    else:
        x = generator.random((rows, *model.input_shape[1:]), dtype="float32")
    y = generator.integers(0, model.output_shape[-1], rows)
    if chosen.model == "mlp":
        loop(model, x, y, chosen.batch)
        return
    model.compile(optimizer="adam", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(x, y, batch_size=chosen.batch, verbose=0)


if __name__ == "__main__":
    main()
