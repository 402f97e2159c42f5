"""Which framework a command trains with: PyTorch or TensorFlow."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from peakmem.errors import PeakmemError
from peakmem.vgpu.probe import TorchFacts, probe
from peakmem.vgpu.tensorflow import find_tensorflow

_TENSORFLOW = re.compile(r"^\s*(?:import|from)\s+(?:tensorflow|tf_keras)\b", re.MULTILINE)
_TORCH = re.compile(
    r"^\s*(?:import|from)\s+(?:torch|lightning|pytorch_lightning|transformers|accelerate)\b", re.MULTILINE
)
_KERAS = re.compile(r"^\s*(?:import|from)\s+(?:keras|keras_hub|keras_cv)\b", re.MULTILINE)
_BACKEND = re.compile(r"""KERAS_BACKEND["']?\]?\s*[,=]\s*["'](\w+)["']""")
MOST_BYTES_OF_SCRIPT = 4 * 2**20


def facts_for(command: tuple[str, ...], python: str, variables: Mapping[str, str] | None = None) -> TorchFacts:
    """The PyTorch of an interpreter, or its TensorFlow (`TensorflowFacts`) if the command looks like training with it.

    The script's own imports decide; where they don't tell, PyTorch is taken if it is there.

    Args:
        command: the command.
        python: the interpreter that it uses.
        variables: its environment; None: the present one.

    Raises:
        PeakmemError: there is neither, or the one that is meant can't use a GPU.
    """
    wanted = framework_of_command(command, variables)
    if wanted == "tensorflow":
        found = find_tensorflow(python)
        if found is None:
            raise PeakmemError(f"{python} has no tensorflow", hint="pip install 'tensorflow[and-cuda]'")
        return found
    try:
        return probe(python)
    except PeakmemError:
        found = find_tensorflow(python) if wanted is None else None
        if found is None:
            raise
        return found


def framework_of_command(command: tuple[str, ...], variables: Mapping[str, str] | None = None) -> str | None:
    """The framework of a command by the text of its script, as `framework_of` has it."""
    return framework_of(_script_of(command), os.environ if variables is None else variables)


def framework_of(text: str, variables: Mapping[str, str]) -> str | None:
    """`torch`, `tensorflow` or another backend of Keras, by the text of a script; None if it does not tell."""
    if _KERAS.search(text):
        said = _BACKEND.search(text)
        backend = said[1] if said else variables.get("KERAS_BACKEND")
        if backend:
            return backend
        if not _TORCH.search(text):
            return "tensorflow"  # what Keras takes where nothing is said (keras/src/backend/config.py)
    if _TENSORFLOW.search(text):
        return "tensorflow"
    return "torch" if _TORCH.search(text) else None


def _script_of(command: tuple[str, ...]) -> str:
    for word in command[:8]:
        if word.endswith(".py"):
            try:
                with Path(word).open(encoding="utf-8", errors="replace") as file:
                    return file.read(MOST_BYTES_OF_SCRIPT)
            except OSError:
                return ""
    return ""
