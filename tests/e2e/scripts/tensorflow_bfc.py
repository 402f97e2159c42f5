"""Puts random requests to TensorFlow's allocator and to the simulator; prints how often they differ."""

import ctypes
import json
import random
import sys

sys.path.insert(0, sys.argv[3])
import tensorflow as tf

from peakmem.allocator.bfc import BfcAllocator, BfcOptions


def taken() -> int:
    text = ctypes.create_string_buffer(1 << 16)
    ctypes.CDLL(None).peakmem_report(text, len(text))
    return json.loads(text.value)["devices"][0]["used"]


growth, rng = sys.argv[1] == "growth", random.Random(int(sys.argv[2]))
if growth:
    tf.config.experimental.set_memory_growth(tf.config.list_physical_devices("GPU")[0], True)
info = tf.config.experimental.get_memory_info
differences = 0
with tf.device("GPU:0"):
    first = tf.raw_ops.Empty(shape=tf.constant([256]), dtype=tf.int8)
    limit = 2**40 if growth else taken()
    bfc = BfcAllocator(BfcOptions(limit=limit, growth=growth))
    bfc.allocate(info("GPU:0")["current"] - 256)  # TensorFlow's own
    bfc.allocate(256)
    held = []
    for _ in range(300):
        if held and rng.random() < 0.45:
            tensor, address = held.pop(rng.randrange(len(held)))
            del tensor
            bfc.free(address)
        else:
            size = rng.choice(
                [rng.randrange(1, 5000), rng.randrange(1, 2**20), rng.randrange(1, 2**24), rng.randrange(2**28)]
            )
            with tf.device("CPU:0"):
                shape = tf.constant([size])
            held.append((tf.raw_ops.Empty(shape=shape, dtype=tf.int8), bfc.allocate(size)))
        figures = bfc.statistics
        real = info("GPU:0")
        differences += (real["current"], real["peak"], taken()) != (figures.in_use, figures.peak_in_use, figures.pool)
print("differences", differences)
