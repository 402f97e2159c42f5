"""Looks into a saved Keras model before anything loads it: code in it is refused, and nothing is executed.

A `.keras` file is a zip with `config.json` (and is read with the standard library); an `.h5` file holds the same in its
attribute `model_config`. A lambda travels as marshalled bytecode, which Keras refuses with `safe_mode=True` in `.keras`
files; for `.h5` files releases before Keras 3.11.3 took no notice of it (CVE-2025-9905), so it is looked for here.
"""

from __future__ import annotations

import importlib.util
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from peakmem.errors import PeakmemError

MOST_BYTES_OF_CONFIG = 64 * 2**20
_TRUSTED = ("keras", "keras_hub", "keras_nlp", "keras_cv", "tensorflow.keras", "tf_keras", "builtins")


def check_file(path: Path) -> None:
    """Raise a PeakmemError if a file is no saved model, or needs code that comes with it or from elsewhere."""
    config = _config_of_h5(path) if path.suffix != ".keras" else _config_of_zip(path)
    code = sorted({text for text in _code_in(config) if text})
    if code:
        raise PeakmemError(
            f"{path} contains code ({', '.join(code)}), which is not executed",
            hint="give a function that builds the model instead: keras:file.py:function",
        )
    foreign = sorted(set(_foreign_in(config)))
    if foreign:
        raise PeakmemError(
            f"{path} needs classes that are not Keras' own: {', '.join(foreign)}",
            hint="give a function that builds the model, or loads it with custom_objects: keras:file.py:function",
        )


def _config_of_zip(path: Path) -> Any:
    try:
        with zipfile.ZipFile(path) as archive, archive.open("config.json") as file:
            text = file.read(MOST_BYTES_OF_CONFIG + 1)
    except (zipfile.BadZipFile, KeyError, OSError, NotImplementedError) as error:
        raise PeakmemError(f"{path} is no saved Keras model: {error}") from error
    return _parsed(path, text)


def _config_of_h5(path: Path) -> Any:
    if importlib.util.find_spec("h5py") is None:
        raise PeakmemError(f"{path} can't be read without h5py", hint="pip install h5py, which comes with keras")
    import h5py

    try:
        with h5py.File(path, "r") as file:
            text = file.attrs.get("model_config")
    except OSError as error:
        raise PeakmemError(f"{path} is no saved Keras model: {error}") from error
    if text is None:
        raise PeakmemError(
            f"{path} holds weights without a model",
            hint="save the whole model (model.save), or give the function that builds it: keras:file.py:function",
        )
    return _parsed(path, text.encode() if isinstance(text, str) else bytes(text))


def _parsed(path: Path, text: bytes) -> Any:
    if len(text) > MOST_BYTES_OF_CONFIG:
        raise PeakmemError(f"{path}: its configuration is larger than {MOST_BYTES_OF_CONFIG >> 20} MiB")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PeakmemError(f"{path} is no saved Keras model: its configuration can't be read") from error


def _objects(config: Any) -> Iterator[dict[str, Any]]:
    waiting = [config]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield value
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)


def _code_in(config: Any) -> Iterator[str]:
    for value in _objects(config):
        kind = value.get("class_name")
        if kind in ("Lambda", "__lambda__", "TorchModuleWrapper", "JaxLayer", "FlaxLayer"):
            inner = value.get("config")
            name = inner.get("name") if isinstance(inner, dict) else None
            yield f"{kind} {name}" if name else str(kind)


def _foreign_in(config: Any) -> Iterator[str]:
    for value in _objects(config):
        module = value.get("module")
        if "class_name" not in value or not isinstance(module, str):
            continue
        if not any(module == name or module.startswith(f"{name}.") for name in _TRUSTED):
            yield f"{module}.{value['class_name']}"
        elif value.get("registered_name") and ">" in str(value["registered_name"]):
            package = str(value["registered_name"]).partition(">")[0]
            if not package.startswith("keras"):
                yield str(value["registered_name"])
