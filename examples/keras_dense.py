"""A dense network in Keras 3, on whichever backend KERAS_BACKEND names.

peakmem predict keras:examples/keras_dense.py:build --batch 256
KERAS_BACKEND=torch peakmem run examples/keras_dense.py
"""

import keras
import numpy as np


def build():
    """The model, compiled."""
    model = keras.Sequential(
        [
            keras.Input((1000,)),
            *(keras.layers.Dense(100, activation="relu") for _ in range(4)),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


if __name__ == "__main__":
    inputs = np.random.default_rng(0).random((2560, 1000), dtype="float32")
    labels = np.random.default_rng(1).integers(10, size=2560)
    build().fit(inputs, labels, batch_size=256, epochs=2)
