"""Keras models, compiled as their users would."""

import gc
import os

import keras
from keras import layers

if os.environ.get("KEEP_GARBAGE"):
    # Tensors in reference cycles end when Python collects garbage, after so many objects were made: not the same in
    # each run of one script. Without that, every figure is the same to the byte.
    gc.disable()


def dense():
    model = keras.Sequential(
        [
            keras.Input((1000,)),
            *(layers.Dense(100, activation="relu") for _ in range(4)),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def cnn():
    model = keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dropout(0.5),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(optimizer=keras.optimizers.SGD(momentum=0.9), loss="categorical_crossentropy")
    return model


def resnet50():
    model = keras.applications.ResNet50(weights=None, input_shape=(96, 96, 3))
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")
    return model


def efficientnet():
    model = keras.applications.EfficientNetB0(weights=None, input_shape=(96, 96, 3))
    model.compile(optimizer="adamw", loss="sparse_categorical_crossentropy")
    return model


def lstm():
    model = keras.Sequential(
        [
            keras.Input((50,), dtype="int32"),
            layers.Embedding(5000, 64),
            layers.LSTM(64, return_sequences=True),
            layers.LSTM(32),
            layers.Dense(1, activation="sigmoid"),
        ]
    )
    model.compile(optimizer="rmsprop", loss="binary_crossentropy", metrics=["accuracy"])
    return model


def transformer():
    import keras_hub

    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=1000, num_layers=2, num_heads=4, hidden_dim=128, intermediate_dim=512, max_sequence_length=128
    )
    model = keras.Model(backbone.inputs, layers.Dense(2)(backbone.output["pooled_output"]))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.AdamW(5e-5), loss=loss)
    return model


def uncompiled():
    return keras.Sequential([keras.Input((64,)), layers.Dense(32), layers.Dense(1)])


def two_ends():
    inputs = {"a": keras.Input((16,), name="a"), "b": keras.Input((8,), name="b")}
    joined = layers.Concatenate()([inputs["a"], inputs["b"]])
    outputs = {"kind": layers.Dense(4, name="kind")(joined), "size": layers.Dense(1, name="size")(joined)}
    model = keras.Model(inputs, outputs)
    model.compile("adam", {"kind": keras.losses.SparseCategoricalCrossentropy(from_logits=True), "size": "mse"})
    return model


def with_data():
    import numpy as np

    rows = int(os.environ.get("ROWS", "512"))
    return dense(), np.zeros((rows, 1000), "float32"), np.zeros(rows, "int64")


def no_model():
    return 3
