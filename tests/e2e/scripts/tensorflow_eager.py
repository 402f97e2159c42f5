"""Trains with TensorFlow outside of functions: gradient tape, Keras' optimizer, variables made by hand."""

import keras
import tensorflow as tf

first = tf.Variable(tf.random.normal((1000, 500)), name="first")
second = tf.Variable(tf.random.normal((500, 10)), name="second")
batch = tf.random.normal((64, 1000))
optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
for _ in range(3):
    with tf.GradientTape() as tape:
        hidden = tf.nn.relu(batch @ first)
        loss = tf.reduce_mean((hidden @ second) ** 2)
    gradients = tape.gradient(loss, [first, second])
    optimizer.apply_gradients(zip(gradients, [first, second], strict=True))
