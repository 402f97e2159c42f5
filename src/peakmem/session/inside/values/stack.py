"""PyTorch's stack of dispatch modes, one for each thread: put a mode in below all others, and take it out."""

from __future__ import annotations

from typing import Any

import torch

_length = torch._C._len_torch_dispatch_stack
_at = torch._C._get_dispatch_stack_at
_pop = torch._C._pop_torch_dispatch_stack
_push = torch._C._push_on_torch_dispatch_stack


def present(mode: Any) -> bool:
    """Whether `mode` is in this thread's stack."""
    return any(_at(index) is mode for index in range(_length()))


def insert_below(mode: Any) -> None:
    """Put `mode` below the modes of the script."""
    above = [_pop(None) for _ in range(_length())]
    _push(mode)
    for other in reversed(above):
        _push(other)


def remove(mode: Any) -> bool:
    """Take `mode` out of this thread's stack; whether it was there."""
    if not present(mode):
        return False
    above = []
    while (top := _pop(None)) is not mode:
        above.append(top)
    for other in reversed(above):
        _push(other)
    return True
