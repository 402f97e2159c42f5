"""What TensorFlow said of each chunk: the operator that took or gave it back, how, its shape; and the regions.

An operator of a `tf.function` has a name of many parts, which tells what it is part of:
`StatefulPartitionedCall/gradient_tape/sequential_1/dense_1/MatMul/MatMul_1` is the backward pass of the product in the
layer `dense_1`. TensorFlow puts functions into one another (the first part) and rewrites graphs (ends such as
`-0-TransposeNHWCToNCHW-LayoutOptimizer`); both are left out here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from peakmem.trace.tables import Array

CHUNK = np.dtype(
    [("requested", "<u8"), ("op", "<u4"), ("shape", "<u4"), ("type", "<i4"), ("region", "<u2"), ("running", "<u2")]
)
"""`struct peakmem_chunk` (vgpu/native/control.h)."""
REGION = np.dtype([("event", "<u8"), ("address", "<u8"), ("size", "<i8"), ("device", "<u4"), ("unused", "<u4")])
"""`struct peakmem_region`."""
OUTPUT, TEMP, PERSISTENT, DYNAMIC = 1, 2, 3, 4
"""Kinds of requests, as TensorFlow's memory profiler names them."""
XLA = "XLA"
"""The operator that runs what XLA has compiled."""

_DTYPES = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 8: "complex64", 9: "int64", 10: "bool",
    14: "bfloat16", 17: "uint16", 18: "complex128", 19: "float16", 22: "uint32", 23: "uint64",
}  # fmt: skip
"""`tensorflow::DataType` (tensorflow/core/framework/types.proto)."""
_AROUND = re.compile(r"^(?:(?:(?:Stateful)?PartitionedCall|while|cond|cluster|body|then|else)(?:_\w+)?|_\d+)/(?=.)")
_REWRITTEN = re.compile(r"(?:-\d+)+-\w+-LayoutOptimizer$|/_\d+$")
_REWRITES = re.compile(r"^(?:ArithmeticOptimizer/\w+?_(?=[A-Za-z])|ConstantFolding/|Func/)")
_CALLS = ("StatefulPartitionedCall", "PartitionedCall", "XlaLaunch", "XlaLaunchV2", "_XlaRun")
"""Calls of functions take no chunks by themselves unless the function was compiled."""
_COPIES = ("_Recv", "_HostRecv", "_ParallelConcat")


@dataclass(frozen=True, kw_only=True, slots=True)
class Operator:
    """An operator by its name and type.

    Attributes:
        name: without what TensorFlow put around it.
        type: its type, such as `Conv2DBackpropFilter`; empty for what no operator asked for.
        phase: "forward", "backward" or "optimizer"; empty if the name does not tell.
        module: path of the layer, as far as the name has it.
        is_copy: whether it brings something to the device.
    """

    name: str = ""
    type: str = ""
    phase: str = ""
    module: str = ""
    is_copy: bool = False

    @property
    def is_compiled(self) -> bool:
        """Whether it runs what XLA has compiled."""
        return self.type == XLA


NO_OPERATOR = Operator()


class TensorflowLog:
    """What was told of each event, by the event's number."""

    def __init__(self, told: dict[str, Any]) -> None:
        """`told` is what `session/inside/tensorflow.py` wrote under the name of TensorFlow."""
        self.chunks: Array = np.frombuffer(told["chunks"], dtype=CHUNK)
        self.regions: Array = np.frombuffer(told["regions"], dtype=REGION)
        self._names: list[str] = told["chunk_names"]
        phases = told["phases"]
        self._backward, self._optimizer = frozenset(phases["backward"]), frozenset(phases["optimizer"])
        self._layers: dict[str, str] = told["layers"]
        self._known: dict[int, Operator] = {}

    def operator(self, event: int) -> Operator:
        """What ran when an event happened, or ran last on its thread."""
        number = int(self.chunks["op"][event])
        found = self._known.get(number)
        if found is None:
            found = read_operator(self._names[number], self._backward, self._optimizer, self._layers)
            self._known[number] = found
        return found

    def runs(self, event: int) -> bool:
        """Whether the operator was running, and not the last one before."""
        return bool(self.chunks["running"][event])

    def region(self, event: int) -> int:
        """How the chunk was asked for."""
        return int(self.chunks["region"][event])

    def shape(self, event: int) -> tuple[int, ...]:
        """Shape of the tensor; empty if unknown."""
        return read_shape(self._names[int(self.chunks["shape"][event])])

    def dtype(self, event: int) -> str:
        """Type of the tensor's numbers; empty if unknown."""
        return _DTYPES.get(int(self.chunks["type"][event]), "") if self.shape(event) else ""


@cache
def read_shape(text: str) -> tuple[int, ...]:
    """`[64,10]` as numbers; empty for what is none."""
    parts = text.strip("[]").split(",")
    if not all(part.isdecimal() for part in parts):
        return ()
    shape = tuple(map(int, parts))
    return shape if all(shape) else ()  # copies say [0] of whatever they copy


def read_operator(
    text: str, backward: frozenset[str], optimizer: frozenset[str], layers: Mapping[str, str]
) -> Operator:
    """Read "name:type".

    Args:
        text: as the virtual GPU has it from TensorFlow.
        backward: names of operators that were made while gradients were taken.
        optimizer: names of operators that were made while an optimizer was applied.
        layers: paths of layers by the scopes in which their operators were made.
    """
    name, colon, kind = text.rpartition(":")
    if not colon:
        return Operator(name=text, is_copy=bool(text))
    if kind in _CALLS:
        return Operator(name=name, type=XLA)
    own, in_function = plain_name(name)
    if kind in _COPIES:
        return Operator(name=own, type=kind, is_copy=True)
    phase = _phase(own, kind, backward, optimizer)
    if not phase and (in_function or "/" in own):
        phase = "forward"
    return Operator(name=own, type=kind, phase=phase, module=_module(own, phase, layers))


def plain_name(name: str) -> tuple[str, bool]:
    """A name without what TensorFlow put around it, and whether it is of an operator in a called function."""
    own = name
    while True:
        shorter = _AROUND.sub("", own)
        if shorter == own:
            break
        own = shorter
    in_function = own != name
    own = _REWRITES.sub("", own)
    while True:
        shorter = _REWRITTEN.sub("", own)
        if shorter == own:
            return own, in_function
        own = shorter


def _phase(name: str, kind: str, backward: frozenset[str], optimizer: frozenset[str]) -> str:
    if name in optimizer or kind.startswith(("ResourceApply", "ResourceSparseApply")):
        return "optimizer"
    if name in backward or "gradient_tape/" in name or name.startswith("gradients/") or "/gradients/" in name:
        return "backward"
    return ""


def _module(name: str, phase: str, layers: Mapping[str, str]) -> str:
    """The layer; where none tells of its names: all but the last part, and of a gradient the one before it as well."""
    parts = name.split("/")
    if phase == "optimizer":
        return parts[0] if len(parts) > 1 else ""
    taken = phase == "backward" and parts[0] in ("gradient_tape", "gradients")
    if taken:
        parts = parts[1:]
    for count in range(len(parts) - 1, 0, -1):
        known = layers.get("/".join(parts[:count]))
        if known is not None:
            return known
    return "/".join(parts[:-2] if taken and len(parts) > 2 else parts[:-1])
