"""Keras models: from a function, a file or a live model to a script that trains it with `model.fit`."""
