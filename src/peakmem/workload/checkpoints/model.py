"""What a checkpoint holds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

WIDTHS = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1,
    "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1, "float4_e2m1fn_x2": 1,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint64": 8, "uint32": 4, "uint16": 2, "uint8": 1, "bool": 1,
    "complex64": 8, "complex128": 16, "complex32": 4,
}  # fmt: skip
"""Bytes of one element of PyTorch's types."""

_BUFFERS = (
    "running_mean", "running_var", "num_batches_tracked", "position_ids", "inv_freq", "relative_position_index",
    "masked_bias", "attn.bias", "attention.bias_mask", "token_type_ids_buffer",
)  # fmt: skip
"""How names of buffers end that models commonly save. A state dict does not tell them from parameters."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredTensor:
    """One tensor of a checkpoint.

    Attributes:
        name: its path, joined by dots.
        dtype: PyTorch's name of its type, or the file format's for quantized ones.
        shape: its shape.
        size: bytes that it takes in the file.
        storage: tensors with the same storage share it; None: it has one of its own.
        parameter: True or False where the file tells parameters from buffers, else None.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int
    storage: str | None = None
    parameter: bool | None = None

    @property
    def count(self) -> int:
        """Number of its elements."""
        return math.prod(self.shape)

    @property
    def group(self) -> str:
        """`model`, `optimizer` or `average`, by its name."""
        first = self.name.partition(".")[0].lower()
        if "optim" in first:
            return "optimizer"
        return "average" if "ema" in first.split("_") else "model"

    @property
    def trained(self) -> bool:
        """Whether it is a parameter, as far as its type and name tell."""
        if self.parameter is not None:
            return self.parameter and self.group == "model"
        number = self.dtype.startswith(("float", "bfloat")) or self.dtype.upper() == self.dtype
        return self.group == "model" and number and bool(self.shape) and not self.name.endswith(_BUFFERS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """A checkpoint.

    Attributes:
        path: the file or folder.
        format: its format in words.
        files: the files that were read.
        file_size: bytes of these files together.
        tensors: all tensors.
        notes: what else was seen.
    """

    path: Path
    format: str
    files: tuple[Path, ...]
    file_size: int
    tensors: tuple[StoredTensor, ...]
    notes: tuple[str, ...] = ()

    def unique(self) -> tuple[StoredTensor, ...]:
        """The tensors, each storage once: the largest tensor of those that share one."""
        kept: dict[str, StoredTensor] = {}
        for tensor in self.tensors:
            key = tensor.storage or f"name {tensor.name}"
            if key not in kept or kept[key].count < tensor.count:
                kept[key] = tensor
        return tuple(kept.values())

    @property
    def parameters(self) -> tuple[StoredTensor, ...]:
        """The parameters, each storage once."""
        return tuple(tensor for tensor in self.unique() if tensor.trained)

    @property
    def size(self) -> int:
        """Bytes of all tensors, each storage once."""
        return sum(tensor.size for tensor in self.unique())
