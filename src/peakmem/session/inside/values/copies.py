"""Copies between host and device, and what else a script reads from the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .handlers import entry_of, handles
from .knowledge import HOST
from .operators import Operator

if TYPE_CHECKING:
    from .mode import ValueMode


def _assumed_value(mode: ValueMode, dtype: torch.dtype, what: str) -> Any:
    if dtype is torch.bool:
        mode.ledger.note(f"truth value {what}", str(mode.assume.bool))
        return mode.assume.bool
    number = mode.assume.number
    if not dtype.is_floating_point and not dtype.is_complex:
        number = int(number)
    mode.ledger.note(f"number {what}", f"{number:g}")
    return number


@handles("_local_scalar_dense")
def _scalar(mode: ValueMode, op: Operator, args: Any, kwargs: Any) -> Any:
    tensor = args[0]
    if not tensor.is_cuda:
        return op.call(*args)
    taints: list[str] = []
    value = mode.values_of(tensor, taints)
    if value is not None:
        with mode.reads.giving([_bits(value)]):
            op.call(*args)  # for what it does besides
        for taint in taints[:1]:
            mode.ledger.note("value read on the host", taint)
        return value.item()
    op.call(*args)
    mode.told += 1
    entry = entry_of(mode, tensor)
    if entry is not None and entry.twin is None:
        if entry.assumed:
            mode.ledger.note("value read on the host", entry.assumed)
        return torch.full((), entry.fill, dtype=tensor.dtype).item()
    return _assumed_value(mode, tensor.dtype, "read on the host")


@handles("_to_copy")
def _to_copy(mode: ValueMode, op: Operator, args: Any, kwargs: Any) -> Any:
    source = args[0]
    target = kwargs.get("device")
    if source.is_cuda and target is not None and target.type == "cpu":
        out = op.call(*args, **kwargs)
        _to_host(mode, source, out)
        return out
    if (source.requires_grad or type(source) is not Tensor) or (not source.is_cuda and target is None):
        return op.call(*args, **kwargs)
    if source.device == HOST and type(source) is Tensor and target is not None and target.type == "cuda":
        out = op.call(*args, **kwargs)
        if out.layout is torch.strided:
            mode.known.learn_copy(out, source)
        return out
    return mode.follow(op, args, kwargs)


@handles("copy_")
def _copy(mode: ValueMode, op: Operator, args: Any, kwargs: Any) -> Any:
    target, source = args[0], args[1]
    if source.is_cuda and target.device == HOST:
        out = op.call(*args, **kwargs)
        _to_host(mode, source, target)
        return out
    return mode.follow(op, args, kwargs)


def _bits(value: Tensor) -> int:
    """The first eight bytes of a tensor of one element, as a number."""
    raw = bytes(value.reshape(1).view(torch.uint8)[:8].tolist())
    return int.from_bytes(raw, "little", signed=len(raw) == 8)


def _to_host(mode: ValueMode, source: Tensor, target: Tensor) -> None:
    mode.told += source.numel() > 0
    taints: list[str] = []
    value = mode.values_of(source, taints)
    if value is not None:
        for taint in taints[:1]:
            mode.ledger.note("values copied to the host", taint)
        target.copy_(value)
        return
    entry = entry_of(mode, source)
    if entry is not None and entry.twin is None and entry.dtype == source.dtype:
        if entry.assumed:
            mode.ledger.note("values copied to the host", entry.assumed)
        target.fill_(entry.fill)
        return
    value = _assumed_value(mode, source.dtype, "copied to the host")
    if value or source.numel() == 1:
        target.fill_(value)


@handles("equal", "allclose")
def _equal(mode: ValueMode, op: Operator, args: Any, kwargs: Any) -> Any:
    if not args[0].is_cuda:
        return op.call(*args)
    taints: list[str] = []
    one, other = (mode.values_of(arg, taints) for arg in args[:2])
    if one is not None and other is not None:
        for taint in taints[:1]:
            mode.ledger.note(f"torch.{op.name}", taint)
        answer = op.call(one, other, *args[2:], **kwargs)
    else:
        answer = op.name == "allclose" or args[0].shape == args[1].shape
        if answer:
            mode.ledger.note(f"torch.{op.name}", "equal")
    with mode.reads.giving([int(answer)]):
        op.call(*args, **kwargs)
    return answer


@handles("_linalg_check_errors")
def _no_errors(mode: ValueMode, op: Operator, args: Any, kwargs: Any) -> Any:
    """Decompositions on the virtual GPU succeed: their `info`, which the library would write, reads as zero."""
    if not args[0].is_cuda:
        return op.call(*args, **kwargs)
    with mode.reads.giving([0]):
        return op.call(*args, **kwargs)


@handles("linalg_eig", "_linalg_eigvals")
def _finite_matrix(mode: ValueMode, op: Operator, args: Any, kwargs: Any) -> Any:
    """The operator asks first whether its input is finite (ATen/native/BatchLinearAlgebra.cpp)."""
    if not args[0].is_cuda:
        return op.call(*args, **kwargs)
    mode.ledger.note("value read on the host", "values are finite")
    with mode.reads.giving([1]):
        return op.call(*args, **kwargs)
