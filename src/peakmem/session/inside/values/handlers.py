"""The register of operators that need more than being repeated on the host, and what their handlers share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import Tensor

from .operators import Operator

if TYPE_CHECKING:
    from .mode import ValueMode

Handler = Callable[["ValueMode", Operator, Any, Any], Any]
_HANDLERS: dict[str, Handler] = {}


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


def is_known(mode: ValueMode, arg: Any) -> bool:
    """Whether the value of this operand is known."""
    return (
        isinstance(arg, Tensor)
        and not (arg.requires_grad or type(arg) is not Tensor)
        and (not arg.is_cuda or mode.known.find(arg) is not None)
    )


def entry_of(mode: ValueMode, tensor: Tensor) -> Any:
    """What is known of the storage of this tensor, or None."""
    if tensor.requires_grad or type(tensor) is not Tensor or not tensor.is_cuda:
        return None
    try:
        return mode.known.find(tensor)
    except RuntimeError:  # layouts without a storage
        return None


def constant_of(mode: ValueMode, tensor: Tensor, reasons: list[str]) -> Any:
    """The one value that every element has, or None; what it hangs on is added to `reasons`."""
    entry = entry_of(mode, tensor)
    if entry is None or entry.fill is None or entry.dtype != tensor.dtype:
        return None
    if entry.assumed:
        reasons.append(entry.assumed)
    return entry.fill
