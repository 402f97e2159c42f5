"""The header of a GGUF file (ggml's docs/gguf.md): names, shapes and quantized types of its tensors."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import IO, Any

from peakmem.errors import PeakmemError
from peakmem.workload.checkpoints.model import StoredTensor

_TYPES = {
    0: ("float32", 1, 4), 1: ("float16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 36), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136),
    24: ("int8", 1, 1), 25: ("int16", 1, 2), 26: ("int32", 1, 4), 27: ("int64", 1, 8), 28: ("float64", 1, 8),
    29: ("IQ1_M", 256, 56), 30: ("bfloat16", 1, 2),
}  # fmt: skip
"""Number of a type -> its name, elements and bytes of one block (ggml.c's type traits)."""

_FIXED = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_STRING, _ARRAY = 8, 9
_LONGEST_STRING = 2**26
_MOST_DIMENSIONS = 8  # ggml itself has 4


def read_gguf(path: Path) -> list[StoredTensor]:
    """The tensors of a file.

    Raises:
        PeakmemError: it is damaged, or no such file.
    """
    try:
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise ValueError("it is no GGUF file")
            (version,) = _read(file, "<I")
            if version not in (2, 3):
                raise ValueError(f"version {version}; 2 and 3 are read")
            tensors, pairs = _read(file, "<QQ")
            for _ in range(pairs):
                _string(file)
                (kind,) = _read(file, "<I")
                _skip(file, kind)
            return [_tensor(file) for _ in range(tensors)]
    except (struct.error, KeyError, ValueError, OverflowError, RecursionError) as error:
        raise PeakmemError(f"the header of {path} is damaged or of an unknown kind: {error}") from error


def _read(file: IO[bytes], form: str) -> tuple[Any, ...]:
    return struct.unpack(form, file.read(struct.calcsize(form)))


def _string(file: IO[bytes]) -> str:
    (length,) = _read(file, "<Q")
    if length > _LONGEST_STRING:
        raise ValueError(f"a text of {length:,} bytes")
    return file.read(length).decode("utf-8")


def _skip(file: IO[bytes], kind: int) -> None:
    if kind == _STRING:
        _string(file)
    elif kind == _ARRAY:
        inner, count = _read(file, "<IQ")
        if inner in _FIXED:
            file.seek(_FIXED[inner] * count, 1)
            return
        for _ in range(count):
            _skip(file, inner)
    else:
        file.seek(_FIXED[kind], 1)


def _tensor(file: IO[bytes]) -> StoredTensor:
    name = _string(file)
    (dimensions,) = _read(file, "<I")
    if dimensions > _MOST_DIMENSIONS:
        raise ValueError(f"a tensor of {dimensions} dimensions")
    shape = tuple(reversed(_read(file, f"<{dimensions}Q")))
    kind, _ = _read(file, "<IQ")
    dtype, elements, size = _TYPES[kind]
    return StoredTensor(name=name, dtype=dtype, shape=shape, size=math.prod(shape) // elements * size)
