"""Storages that hold one value throughout, whatever their size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .handlers import constant_of, handles
from .operators import Operator

if TYPE_CHECKING:
    from .mode import ValueMode


REDUCTIONS = ("any", "all", "max", "min", "amax", "amin", "mean", "sum", "count_nonzero", "prod")


def follow(mode: ValueMode, op: Operator, args: Any, kwargs: Any, fresh: list[Tensor]) -> None:
    """Follow an element-wise operator on storages that hold one value throughout."""
    if op.mutated or op.out or len(fresh) != 1 or not op.pointwise:
        return
    reasons: list[str] = []
    scalars = []
    for arg in args:
        if isinstance(arg, Tensor) and arg.is_cuda:
            value = constant_of(mode, arg, reasons)
            if value is None:
                return
            scalars.append(
                torch.full((1,), value, dtype=arg.dtype) if arg.dim() else torch.tensor(value, dtype=arg.dtype)
            )
        else:
            scalars.append(arg)
    value = op.call(*scalars, **kwargs)
    mode.known.learn_fill(fresh[0], value.item(), assumed=reasons[0] if reasons else None, watch=True)


@handles(*REDUCTIONS)
def reduce(mode: ValueMode, op: Operator, args: Any, kwargs: Any) -> Any:
    """Reduce a large storage of one value without going through its elements."""
    tensor = args[0]
    reasons: list[str] = []
    value = constant_of(mode, tensor, reasons) if isinstance(tensor, Tensor) else None
    if value is None or tensor.numel() == 0 or tensor.numel() <= mode.assume.limit:
        return mode.follow(op, args, kwargs)
    out = op.call(*args, **kwargs)
    if isinstance(out, Tensor):
        count = tensor.numel() // max(out.numel(), 1)
        result: Any = value
        if op.name == "sum":
            result = value * count
        elif op.name == "count_nonzero":
            result = count if value else 0
        elif op.name == "prod":
            result = value if value in (0, 1) else None
        elif op.name in ("any", "all"):
            result = bool(value)
        if result is not None:
            mode.known.learn_fill(out, result, assumed=reasons[0] if reasons else None, watch=True)
    return out
