"""Operators whose sizes depend on data: the device is told the true size, or an assumed one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .handlers import constant_of, handles
from .knowledge import covers_storage
from .operators import Operator

if TYPE_CHECKING:
    from .mode import ValueMode


def _spread(size: int, fraction: float) -> Tensor:
    """A mask of `size` elements of which `fraction` are true, spread evenly."""
    steps = torch.arange(size + 1, dtype=torch.float64).mul_(fraction).add_(1e-9).floor_()
    return steps[1:] > steps[:-1]


def _count(mode: ValueMode, op: Operator, mask: Tensor) -> int:
    """How many elements of `mask` are not zero; where unknown, what is assumed from now on."""
    taints: list[str] = []
    value = mode.values_of(mask, taints)
    if value is not None:
        for taint in taints[:1]:
            mode.ledger.note(f"size of the result of {op.name}", taint)
        return int(torch.count_nonzero(value))
    reasons: list[str] = []
    constant = constant_of(mode, mask, reasons)
    if constant is not None:
        for reason in reasons[:1]:
            mode.ledger.note(f"size of the result of {op.name}", reason)
        return mask.numel() if constant else 0
    fraction = mode.assume.nonzero
    why = f"{fraction:g} of the elements are true"
    mode.ledger.note(f"size of the result of {op.name}", why)
    followed = (
        mask.dtype is torch.bool
        and mask.numel() <= mode.assume.limit
        and not mask.requires_grad
        and type(mask) is Tensor
        and covers_storage(mask)
    )
    if followed:
        mode.known.learn(mask, _spread(mask.numel(), fraction).view(mask.shape), assumed=why, watch=True)
    return int(mask.numel() * fraction + 1e-9)


@handles("nonzero", "argwhere")
def _nonzero(mode: ValueMode, op: Operator, args: Any, kwargs: Any) -> Any:
    if not args[0].is_cuda:
        return op.call(*args, **kwargs)
    return mode.follow(op, args, kwargs, reads=[_count(mode, op, args[0])])


@handles("masked_select")
def _masked_select(mode: ValueMode, op: Operator, args: Any, kwargs: Any) -> Any:
    tensor, mask = args
    if not tensor.is_cuda:
        return op.call(*args, **kwargs)
    count = _count(mode, op, mask)
    if mask.shape != tensor.shape and mask.numel():  # either is broadcast to the other
        count *= math.prod(torch.broadcast_shapes(mask.shape, tensor.shape)) // mask.numel()
    mode.backward.expect((tensor,), [count])
    return mode.follow(op, args, kwargs, reads=[count])


@handles("masked_scatter", "masked_scatter_")
def _masked_scatter(mode: ValueMode, op: Operator, args: Any, kwargs: Any) -> Any:
    tensor, mask, source = args
    if tensor.is_cuda and source.requires_grad:
        count = _count(mode, op, mask) * (tensor.numel() // max(mask.numel(), 1))
        mode.backward.expect((source,), [count])
    return mode.follow(op, args, kwargs)


@handles("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put")
def _index(mode: ValueMode, op: Operator, args: Any, kwargs: Any) -> Any:
    masks = [index for index in args[1] if isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8)]
    if not masks or not args[0].is_cuda:
        return mode.follow(op, args, kwargs)
    single = len(masks) == 1 == sum(isinstance(index, Tensor) for index in args[1])
    if len(args) > 2 and single and args[2].numel() == 1 and not (len(args) > 3 and args[3]):
        return mode.follow(op, args, kwargs)  # becomes masked_fill: no size is asked
    counts = [_count(mode, op, mask) if mask.is_cuda else int(torch.count_nonzero(mask)) for mask in masks]
    if op.name != "index" and len(args) > 2:
        counts = _match_values(mode, op, counts, masks, args)
    mode.backward.expect((args[0], *args[2:3]), counts)
    return mode.follow(op, args, kwargs, reads=counts)


def _match_values(mode: ValueMode, op: Operator, counts: list[int], masks: list[Tensor], args: Any) -> list[int]:
    """An assumed count gives way to the size of the values that are written there."""
    values = args[2]
    known = all(mode.values_of(mask, []) is not None for mask in masks if mask.is_cuda)
    free = args[0].dim() - sum(max(mask.dim(), 1) for mask in masks)
    if not known and len(masks) == 1 and values.dim() > free >= 0:
        return [values.shape[0]]
    return counts


@handles("_unique2", "unique_dim", "unique_consecutive", "unique_dim_consecutive", "_unique")
def _unique(mode: ValueMode, op: Operator, args: Any, kwargs: Any) -> Any:
    tensor = args[0]
    if not tensor.is_cuda:
        return op.call(*args, **kwargs)
    taints: list[str] = []
    value = mode.values_of(tensor, taints)
    size = tensor.numel()
    if op.name.startswith("unique_dim"):
        size = tensor.shape[args[1]]
    elif op.name == "unique_consecutive":
        dim = args[3] if len(args) > 3 else kwargs.get("dim")
        size = size if dim is None else tensor.shape[dim]
    if value is None:
        fraction = mode.assume.unique
        count = max(int(size * fraction), min(size, 1))
        mode.ledger.note(f"size of the result of {op.name}", f"{fraction:g} of the elements are distinct")
    elif tensor.dtype is torch.bool and op.name.startswith("_unique"):
        count = int(torch.count_nonzero(value))  # what its kernel counts are the true elements
    else:
        found = op.call(value, *args[1:], **kwargs)[0]
        count = (
            found.shape[args[1]] if op.name.startswith("unique_dim") else found.shape[_unique_axis(op, args, kwargs)]
        )
    for taint in taints[:1]:
        mode.ledger.note(f"size of the result of {op.name}", taint)
    return mode.follow(op, args, kwargs, reads=[count])


def _unique_axis(op: Operator, args: Any, kwargs: Any) -> int:
    dim = (args[3] if len(args) > 3 else kwargs.get("dim")) if op.name == "unique_consecutive" else None
    return 0 if dim is None else int(dim)


@handles("repeat_interleave.Tensor")
def _repeat_interleave(mode: ValueMode, op: Operator, args: Any, kwargs: Any) -> Any:
    repeats = args[0]
    if not repeats.is_cuda or kwargs.get("output_size") is not None:
        return mode.follow(op, args, kwargs)
    taints: list[str] = []
    value = mode.values_of(repeats, taints)
    if value is None:
        mode.ledger.note("size of the result of repeat_interleave", "each element once")
        total = repeats.numel()
    else:
        for taint in taints[:1]:
            mode.ledger.note("size of the result of repeat_interleave", taint)
        total = int(value.sum())
    return mode.follow(op, args, kwargs, reads=[total, 1])


@handles("bincount")
def _bincount(mode: ValueMode, op: Operator, args: Any, kwargs: Any) -> Any:
    tensor = args[0]
    if not tensor.is_cuda or tensor.numel() == 0:
        return mode.follow(op, args, kwargs)
    taints: list[str] = []
    value = mode.values_of(tensor, taints)
    if value is None:
        mode.ledger.note("size of the result of bincount", "no more bins than minlength")
        return mode.follow(op, args, kwargs, reads=[0])
    for taint in taints[:1]:
        mode.ledger.note("size of the result of bincount", taint)
    return mode.follow(op, args, kwargs, reads=[max(int(value.max()), 0)])


@handles("torchvision::nms")
def _nms(mode: ValueMode, op: Operator, args: Any, kwargs: Any) -> Any:
    boxes = args[0]
    if not boxes.is_cuda:
        return op.call(*args, **kwargs)
    taints: list[str] = []
    values = [mode.values_of(arg, taints) for arg in args[:2]]
    if None not in [None if value is None else 1 for value in values]:
        for taint in taints[:1]:
            mode.ledger.note("boxes kept by nms", taint)
        count = op.call(*values, *args[2:]).numel()
    else:
        fraction = mode.assume.nms
        mode.ledger.note("boxes kept by nms", f"{fraction:g} of the boxes")
        count = int(boxes.shape[0] * fraction)
    return mode.follow(op, args, kwargs, reads=[count])
