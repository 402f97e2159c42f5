"""The dispatch mode that switches kernels off where they would only compute numbers."""

import math

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .policy import LARGE, Way, way_of

_NO_DISPATCH = torch._C._disabled_torch_dispatch_impl
_length = torch._C._len_torch_dispatch_stack
_at = torch._C._get_dispatch_stack_at
_pop = torch._C._pop_torch_dispatch_stack
_push = torch._C._push_on_torch_dispatch_stack

SMALL_RESULT = 4096
"""Elements up to which the result of a skipped operator is filled with zeros: what a script reads is no accident."""
MAPPED_ZEROS = 1 << 16
"""Bytes from which on integers of a result are made zero by giving their pages back: it costs no memory."""


class SkipMode(TorchDispatchMode):
    """Lets operators allocate and decide as ever, with the inner loops of large ones left out.

    Args:
        native: the host library.
        special: {name of an operator: function(call, func, args, kwargs)} for those that need more than that.
    """

    def __init__(self, native, special):
        super().__init__()
        self._native = native
        self._special = special
        self._ways = {}
        self.flag = native.skip_flag()
        self.skipped = 0

    @classmethod
    def _should_skip_dynamo(cls):
        """Without this PyTorch wraps `__torch_dispatch__`, and imports its compiler for it."""
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        for kind in types:
            if kind.__torch_dispatch__ is not _NO_DISPATCH:
                if hasattr(kind, "_mode_key"):
                    return func(*args, **kwargs)
                return NotImplemented
        way = self._ways.get(func)
        if way is None:
            way = self._ways[func] = way_of(func)
        if way is Way.RUN:
            return func(*args, **kwargs)
        if way is Way.SKIP:
            if not _takes_large(args) or _must_be_true(func, args):
                return func(*args, **kwargs)
            special = self._special.get(func._opname)
            if special is not None:
                return special(self.skip, func, args, kwargs)
            return self.skip(func, args, kwargs)
        return self._make(way, func, args, kwargs)

    def _make(self, way, func, args, kwargs):
        first = args[0] if args else None
        if way is Way.RANDOM:
            if _is_large(first):
                return first
            return func(*args, **kwargs)
        if way is Way.FILL:
            size = args[1] if isinstance(first, torch.Tensor) else first
            like = first.dtype if isinstance(first, torch.Tensor) else None
        else:
            size, like = _size_of_random(args)
        dtype = kwargs.get("dtype") or like or torch.get_default_dtype()
        device = kwargs.get("device")
        if size is None or math.prod(size) < LARGE or not (dtype.is_floating_point or dtype.is_complex):
            return func(*args, **kwargs)
        if device is not None and torch.device(device).type != "cpu":
            return func(*args, **kwargs)
        if way is Way.FILL:
            return self.skip(func, args, kwargs)
        self.skipped += 1
        if like is not None and isinstance(first, torch.Tensor):
            return torch.empty_like(first, dtype=kwargs.get("dtype"))
        return torch.empty(size, dtype=dtype)

    def skip(self, func, args, kwargs, *, settle=True):
        """Call an operator with its inner loops left out; `settle` gives its small results values."""
        flag = self.flag
        before = flag.value
        flag.value = 1
        try:
            out = func(*args, **kwargs)
        finally:
            flag.value = before
        self.skipped += 1
        if settle and not func._schema.is_mutable:
            self._settle(out)
        return out

    def _settle(self, out):
        """Indices must be valid, and numbers that a script may read must be numbers."""
        if isinstance(out, torch.Tensor):
            if out.is_floating_point() and out.numel() > SMALL_RESULT:
                return
            if out.layout is not torch.strided or out.device.type != "cpu":
                return
            size = out.numel() * out.element_size()
            if size >= MAPPED_ZEROS and out.is_contiguous():
                self._native.zero(out.data_ptr(), size)
            else:
                out.zero_()
        elif isinstance(out, (tuple, list)):
            for item in out:
                self._settle(item)

    # -- the stack of modes, of this thread --------------------------------------------------------------------------

    def put_on(self):
        """Put this mode below all others of this thread."""
        above = [_pop(None) for _ in range(_length())]
        _push(self)
        for other in reversed(above):
            _push(other)

    def take_off(self):
        """Take this mode out of this thread's stack."""
        above = []
        if not any(_at(index) is self for index in range(_length())):
            return
        while (top := _pop(None)) is not self:
            above.append(top)
        for other in reversed(above):
            _push(other)


def _is_large(value):
    return (
        isinstance(value, torch.Tensor)
        and (value.is_floating_point() or value.is_complex())
        and value.numel() >= LARGE
        and value.device.type == "cpu"
    )


def _takes_large(args):
    for arg in args:
        if isinstance(arg, torch.Tensor):
            if _is_large(arg):
                return True
        elif type(arg) in (list, tuple):
            for item in arg:
                if _is_large(item):
                    return True
    return False


def _must_be_true(func, args):
    """Whether an operator that takes large floats gives numbers that sizes may hang on."""
    name = func._opname
    if name in ("index", "index_put_", "index_put", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put"):
        return any(t is not None and t.dtype in (torch.bool, torch.uint8) for t in args[1])
    first = args[0]
    # Written in place, a tensor of integers: copied from floats, for instance.
    return func._schema.is_mutable and isinstance(first, torch.Tensor) and not first.is_floating_point()


def _size_of_random(args):
    if not args:
        return None, None
    if isinstance(args[0], torch.Tensor):
        return tuple(args[0].shape), args[0].dtype
    if isinstance(args[0], (list, tuple, torch.Size)):
        return tuple(args[0]), None
    return next(((tuple(a), None) for a in args if isinstance(a, (list, tuple, torch.Size))), (None, None))
