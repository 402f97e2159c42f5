"""Operators that need more than being repeated on the host: reads, sizes that depend on data, and what is assumed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .knowledge import HOST, covers_storage, storage_key
from .operators import Operator

if TYPE_CHECKING:
    from .mode import ValueMode

Handler = Callable[["ValueMode", Operator, Any, Any], Any]
_HANDLERS: dict[str, Handler] = {}
FINITE = "values are finite"
BALANCED = "spread evenly"


def find(func: Any) -> Handler | None:
    """The handler for this overload, if it needs one."""
    name = func._schema.name
    overload = func._schema.overload_name
    if overload.endswith("out") or any(a.kwarg_only and a.alias_info for a in func._schema.arguments):
        return None
    return _HANDLERS.get(f"{name}.{overload}") or _HANDLERS.get(name)


def handles(*names: str) -> Callable[[Handler], Handler]:
    """Register a handler for operators, or for single overloads of them."""

    def register(handler: Handler) -> Handler:
        for name in names:
            _HANDLERS[name if "::" in name else f"aten::{name}"] = handler
        return handler

    return register


# -- reads: from the device to the host ------------------------------------------------------------------------------


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
    entry = _entry(mode, tensor)
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
    entry = _entry(mode, source)
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


# -- values are finite -----------------------------------------------------------------------------------------------


def _assume_fill(mode: ValueMode, op: Operator, args: Any, kwargs: Any, value: Any, why: str = FINITE) -> Any:
    out = op.call(*args, **kwargs)
    if out.is_cuda:
        mode.known.learn_fill(out, value, assumed=why, watch=True)
    return out


def _is_known(mode: ValueMode, arg: Any) -> bool:
    return (
        isinstance(arg, Tensor)
        and not (arg.requires_grad or type(arg) is not Tensor)
        and (not arg.is_cuda or mode.known.find(arg) is not None)
    )


@handles("isnan", "isinf", "isposinf", "isneginf")
def _not_finite(mode: ValueMode, op: Operator, args: Any, kwargs: Any) -> Any:
    if _is_known(mode, args[0]):
        return mode.follow(op, args, kwargs)
    return _assume_fill(mode, op, args, kwargs, False)


@handles("isfinite", "isreal")
def _finite(mode: ValueMode, op: Operator, args: Any, kwargs: Any) -> Any:
    if _is_known(mode, args[0]):
        return mode.follow(op, args, kwargs)
    return _assume_fill(mode, op, args, kwargs, True)


@handles("eq.Tensor", "ne.Tensor")
def _compare(mode: ValueMode, op: Operator, args: Any, kwargs: Any) -> Any:
    one, other = args[:2]
    if one is other and not _is_known(mode, one):
        return _assume_fill(mode, op, args, kwargs, op.name == "eq")
    return mode.follow(op, args, kwargs)


@handles("eq.Scalar", "ne.Scalar")
def _compare_infinity(mode: ValueMode, op: Operator, args: Any, kwargs: Any) -> Any:
    limit = args[1]
    if isinstance(limit, float) and math.isinf(limit) and not _is_known(mode, args[0]):
        return _assume_fill(mode, op, args, kwargs, op.name == "ne")
    return mode.follow(op, args, kwargs)


@handles("_amp_foreach_non_finite_check_and_unscale_")
def _unscale(mode: ValueMode, op: Operator, args: Any, kwargs: Any) -> Any:
    out = op.call(*args, **kwargs)
    found = args[1]
    entry = _entry(mode, found)
    if entry is None:
        mode.known.learn_fill(found, 0.0, assumed="gradients are finite", watch=True)
        entry = mode.known.entries[storage_key(found)]
    entry.slack += 1
    entry.assumed = "gradients are finite"
    return out


# -- one value throughout: large masks -------------------------------------------------------------------------------

REDUCTIONS = ("any", "all", "max", "min", "amax", "amin", "mean", "sum", "count_nonzero", "prod")


def constants(mode: ValueMode, op: Operator, args: Any, kwargs: Any, fresh: list[Tensor]) -> None:
    """Follow an element-wise operator on storages that hold one value throughout."""
    if op.mutated or op.out or len(fresh) != 1 or not op.pointwise:
        return
    reasons: list[str] = []
    scalars = []
    for arg in args:
        if isinstance(arg, Tensor) and arg.is_cuda:
            value = _constant(mode, arg, reasons)
            if value is None:
                return
            scalars.append(
                torch.full((1,), value, dtype=arg.dtype) if arg.dim() else torch.tensor(value, dtype=arg.dtype)
            )
        else:
            scalars.append(arg)
    value = op.call(*scalars, **kwargs)
    mode.known.learn_fill(fresh[0], value.item(), assumed=reasons[0] if reasons else None, watch=True)


def _entry(mode: ValueMode, tensor: Tensor) -> Any:
    if tensor.requires_grad or type(tensor) is not Tensor or not tensor.is_cuda:
        return None
    try:
        return mode.known.find(tensor)
    except RuntimeError:  # layouts without a storage
        return None


def _constant(mode: ValueMode, tensor: Tensor, reasons: list[str]) -> Any:
    entry = _entry(mode, tensor)
    if entry is None or entry.fill is None or entry.dtype != tensor.dtype:
        return None
    if entry.assumed:
        reasons.append(entry.assumed)
    return entry.fill


@handles(*REDUCTIONS)
def _reduce(mode: ValueMode, op: Operator, args: Any, kwargs: Any) -> Any:
    tensor = args[0]
    reasons: list[str] = []
    value = _constant(mode, tensor, reasons) if isinstance(tensor, Tensor) else None
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


# -- sizes that depend on data ---------------------------------------------------------------------------------------


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
    constant = _constant(mode, mask, reasons)
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


# -- others ----------------------------------------------------------------------------------------------------------


@handles("set_", "resize_", "record_stream", "_resize_output_")
def _no_contents(mode: ValueMode, op: Operator, args: Any, kwargs: Any) -> Any:
    return op.call(*args, **kwargs)


@handles("histc")
def _histc(mode: ValueMode, op: Operator, args: Any, kwargs: Any) -> Any:
    tensor = args[0]
    if not tensor.is_cuda or tensor.is_floating_point() or not _is_known(mode, tensor):
        return mode.follow(op, args, kwargs)
    out = op.call(*args, **kwargs)  # integers: on the device alone
    taints: list[str] = []
    value = mode.values_of(tensor, taints)
    if value is not None:
        counted = op.call(value.double(), *args[1:], **kwargs).to(out.dtype)
        mode.known.learn(out, counted, assumed=taints[0] if taints else None, watch=True)
    return out


# -- choices among unknown values ------------------------------------------------------------------------------------


@handles("topk", "sort", "sort.stable", "argsort", "max.dim", "min.dim", "argmax", "argmin", "multinomial")
def _choice(mode: ValueMode, op: Operator, args: Any, kwargs: Any) -> Any:
    tensor = args[0]
    if not tensor.is_cuda or _is_known(mode, tensor):
        return _reduce(mode, op, args, kwargs) if op.name in ("max", "min") else mode.follow(op, args, kwargs)
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
