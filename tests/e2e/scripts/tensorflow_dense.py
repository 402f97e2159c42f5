"""Trains a dense network with TensorFlow on arrays of so many rows; prints what TensorFlow itself says."""

import os
import sys

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf

rows = int(sys.argv[1])
model = keras.Sequential([keras.Input((1024,)), keras.layers.Dense(1024, activation="relu"), keras.layers.Dense(10)])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile("adam", loss, jit_compile="jit" in sys.argv)
inputs, labels = np.zeros((rows, 1024), "float32"), np.zeros(rows, "int64")
model.fit(inputs, labels, batch_size=64, epochs=1, verbose=0)
print("peak", tf.config.experimental.get_memory_info("GPU:0")["peak"])
if "host" in sys.argv:
    with open("/proc/self/status") as status:
        (line,) = (line for line in status if line.startswith("VmHWM"))
    print("highest", line.split()[1])
