"""Texts that name a Keras model."""

from __future__ import annotations

from pathlib import Path

from peakmem.errors import PeakmemError

FILES = (".keras", ".h5", ".hdf5")
PREFIX = "keras:"


def is_keras(what: str) -> bool:
    """Whether a text names a Keras model: `keras:module:function`, `keras:file.py:function`, or a file of Keras."""
    return what.startswith(PREFIX) or what.endswith(FILES)


def is_live_keras(model: object) -> bool:
    """Whether an object is a Keras 3 model; Keras is not imported for it."""
    return any(kind.__name__ == "Model" and kind.__module__.startswith("keras.") for kind in type(model).__mro__)


def is_file(what: str) -> bool:
    """Whether what stands behind `keras:`, if anything does, is a saved model."""
    return what.endswith(FILES)


def existing(what: str) -> Path:
    """The file of a saved model.

    Raises:
        PeakmemError: there is none.
    """
    path = Path(what.removeprefix(PREFIX))
    if not path.is_file():
        raise PeakmemError(f"there is no file {path}")
    return path
