"""Choices among unknown values are spread evenly; and some operators with rules of their own."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .constants import reduce
from .handlers import handles, is_known
from .operators import Operator

if TYPE_CHECKING:
    from .mode import ValueMode


BALANCED = "spread evenly"


@handles("topk", "sort", "sort.stable", "argsort", "max.dim", "min.dim", "argmax", "argmin", "multinomial")
def _choice(mode: ValueMode, op: Operator, args: Any, kwargs: Any) -> Any:
    tensor = args[0]
    if not tensor.is_cuda or is_known(mode, tensor):
        return reduce(mode, op, args, kwargs) if op.name in ("max", "min") else mode.follow(op, args, kwargs)
    out = op.call(*args, **kwargs)
    indices = out[1] if isinstance(out, tuple) else out
    if indices.numel() and indices.numel() <= mode.assume.limit and indices.dtype is torch.int64 and tensor.dim():
        dim = _dimension(op, args, kwargs)
        if dim is not None:
            values = _balanced(
                tuple(indices.shape), tensor.shape[dim], dim % tensor.dim(), kept=indices.dim() == tensor.dim()
            )
            mode.known.learn(indices, values, assumed=f"indices from {op.name} {BALANCED}", watch=True)
    return out


def _dimension(op: Operator, args: Any, kwargs: Any) -> int | None:
    if op.name == "multinomial":
        return -1
    position = {"topk": 2}.get(op.name, 1)
    default = None if op.name in ("argmax", "argmin") else -1
    found = args[position] if len(args) > position else kwargs.get("dim", default)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _balanced(shape: tuple[int, ...], size: int, dim: int, *, kept: bool) -> Tensor:
    """Indices below `size` along `dim`: distinct along it, and each as frequent as any other."""
    if not kept:
        return torch.arange(math.prod(shape)).remainder_(size).view(shape)
    chosen = shape[dim]
    others = [length for axis, length in enumerate(shape) if axis != dim]
    rows = torch.arange(math.prod(others)).mul_(chosen % size if chosen < size else 0).view(*others, 1)
    return (rows + torch.arange(chosen)).remainder_(size).movedim(-1, dim)


@handles("set_", "resize_", "record_stream", "_resize_output_")
def _no_contents(mode: ValueMode, op: Operator, args: Any, kwargs: Any) -> Any:
    return op.call(*args, **kwargs)


@handles("histc")
def _histc(mode: ValueMode, op: Operator, args: Any, kwargs: Any) -> Any:
    tensor = args[0]
    if not tensor.is_cuda or tensor.is_floating_point() or not is_known(mode, tensor):
        return mode.follow(op, args, kwargs)
    out = op.call(*args, **kwargs)  # integers: on the device alone
    taints: list[str] = []
    value = mode.values_of(tensor, taints)
    if value is not None:
        counted = op.call(value.double(), *args[1:], **kwargs).to(out.dtype)
        mode.known.learn(out, counted, assumed=taints[0] if taints else None, watch=True)
    return out
