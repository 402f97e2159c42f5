"""Follow small values through the operators of PyTorch, beside the virtual device."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from . import choices, constants, copies, finite, handlers, sizes  # noqa: F401 - they register their handlers
from .backward import BackwardReads
from .config import Assume
from .knowledge import HOST, Entry, Knowledge, covers_storage, storage_key
from .ledger import Ledger
from .operators import Operator
from .reads import Reads
from .stack import insert_below, remove

_DEBUG = "PEAKMEM_VALUES_DEBUG" in os.environ
_NO_DISPATCH = torch._C._disabled_torch_dispatch_impl


class Unknown(Exception):  # noqa: N818 - not an error
    """An operand is not known."""


class ValueMode(TorchDispatchMode):
    """Runs each operator on the device, then once more on what is known of its operands on the host."""

    def __init__(self, assume: Assume) -> None:
        super().__init__()
        self.assume = assume
        self.known = Knowledge(assume.limit)
        self.ledger = Ledger()
        self.reads = Reads()
        self.backward = BackwardReads(self.reads)
        self.told = 0  # copies that the library takes for unknown, and that were answered or counted here
        self._operators: dict[int, Operator] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Without this PyTorch wraps `__torch_dispatch__`, and imports its compiler for it."""
        return False

    def operator(self, func: Any) -> Operator:
        """What is known of this overload."""
        found = self._operators[id(func)] = Operator(func, handlers.find(func))
        return found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for kind in types:
            # Subclasses without a dispatch of their own (lazy parameters, images with a kind) are plain tensors here.
            if kind.__torch_dispatch__ is not _NO_DISPATCH:
                if hasattr(kind, "_mode_key"):
                    # Tensors of modes that PyTorch keeps below all others (FakeTensorMode): that mode comes next.
                    return func(*args, **(kwargs or {}))
                return NotImplemented  # the subclass unwraps itself, and its parts come here
        op = self._operators.get(id(func))
        if op is None:
            op = self.operator(func)
        if op.plain:
            # Most operators of a forward pass have an operand that nobody knows: find that out cheaply.
            for arg in args:
                if isinstance(arg, Tensor):
                    if arg.requires_grad or type(arg) is not Tensor:
                        entries = self.known.entries
                        if entries:  # what a weight was initialised with is not known any more
                            entries.pop(storage_key(arg), None)
                        return op.call(*args, **kwargs) if kwargs else op.call(*args)
                    if arg.is_cuda and storage_key(arg) not in self.known.entries and not op.fill:
                        return op.call(*args, **kwargs) if kwargs else op.call(*args)
                    break
                if type(arg) is list and arg:
                    first = arg[0]
                    if isinstance(first, Tensor) and (first.requires_grad or type(first) is not Tensor):
                        return op.call(*args, **kwargs) if kwargs else op.call(*args)
                    break
            return self.follow(op, args, kwargs or {})
        if op.composite:
            return self._decompose(op, args, kwargs or {})
        if op.special is not None:
            return op.special(self, op, args, kwargs or {})
        return self.follow(op, args, kwargs or {})

    def _decompose(self, op: Operator, args: Any, kwargs: Any) -> Any:
        """Composite operators come whole in inference mode only: let their parts come here instead."""
        insert_below(self)
        try:
            return op.func.decompose(*args, **kwargs)
        finally:
            remove(self)

    # -- the general case --------------------------------------------------------------------------------------------

    def follow(self, op: Operator, args: Any, kwargs: Any, *, reads: Any = None, assumed: str | None = None) -> Any:
        """Run `op` on the device, and on the host if everything it takes is known.

        `reads` is what its own copies from the device give.
        """
        seed = self._seed(op, args, kwargs) if op.seeded else None
        if op.mutated and type(args[0]) is list:
            self._expect_list_writes(args[0])
        if reads is None:
            out = op.call(*args, **kwargs)
        else:
            with self.reads.giving(reads):
                out = op.call(*args, **kwargs)
        for index in op.hidden:
            if len(args) > index and isinstance(args[index], Tensor):
                self.known.forget(args[index])
        try:
            self._beside(op, args, kwargs, out, seed, assumed)
        except Unknown:
            self._lose(op, args, kwargs)
        except Exception:  # the host can't do it: then nobody knows, which is no error of the user's
            if _DEBUG:
                import traceback

                traceback.print_exc()
            self._lose(op, args, kwargs)
        return out

    def _beside(self, op: Operator, args: Any, kwargs: Any, out: Any, seed: int | None, assumed: str | None) -> None:
        outs = _tensors(out)
        given = () if op.out else args
        fresh = [t for t in outs if t.is_cuda and not any(t is arg for arg in given)]
        if not fresh and not self._writes_device(op, args, kwargs):
            return  # host only
        if op.fill is not None and not (op.mutated and not covers_storage(args[0])):
            value = _fill_value(op, args)
            if not isinstance(value, Tensor):
                for tensor in [args[0]] if op.mutated else fresh:
                    if tensor.is_cuda and not tensor.requires_grad and type(tensor) is Tensor:
                        self.known.learn_fill(tensor, value, watch=bool(args) and isinstance(args[0], Tensor))
                        if op.mutated:
                            self.known.entries[storage_key(tensor)].slack = 1
                    elif op.mutated:
                        self.known.forget(tensor)
                return
        if any(t.numel() > self.assume.limit for t in fresh if storage_key(t) not in self.known.entries):
            if op.pointwise or op.name in constants.REDUCTIONS:
                constants.follow(self, op, args, kwargs, fresh)
                return
            raise Unknown
        if fresh and not self.known.room_for(sum(t.numel() * t.element_size() for t in fresh)):
            raise Unknown
        taints: list[str] = [assumed] if assumed else []
        written: list[Entry] = []
        host_args = [
            self._written(op, arg, written, taints) if index in op.mutated else self.twin(arg, taints)
            for index, arg in enumerate(args)
        ]
        host_kwargs = {
            name: torch.empty(0, dtype=value.dtype) if name in op.out and value.is_cuda else self.twin(value, taints)
            for name, value in kwargs.items()
            if not isinstance(value, torch.Generator)
        }
        if op.device and "device" not in host_kwargs and fresh:
            host_kwargs["device"] = HOST  # a default device may be set
        if host_kwargs.get("pin_memory"):
            host_kwargs["pin_memory"] = False
        if op.costly and not op.affordable(sum(t.numel() for t in _tensors([*host_args, *host_kwargs.values()]))):
            raise Unknown
        if seed is None:
            values = op.call(*host_args, **host_kwargs)
        else:
            with _seeded(seed):
                values = op.call(*host_args, **host_kwargs)
        reason = taints[0] if taints else None
        for entry in written:
            entry.slack += 1
            entry.assumed = entry.assumed or reason
        twins = {t.untyped_storage()._cdata for t in _tensors(host_args)}
        for tensor, value in zip(outs, _tensors(values), strict=True):
            if tensor.is_cuda:
                if any(tensor is arg for arg in given):
                    continue
                if tensor.shape != value.shape or tensor.dtype != value.dtype:
                    self.ledger.note(f"size of {op.name} not reached on the device", str(tuple(tensor.shape)))
                    raise Unknown
                if storage_key(tensor) in self.known.entries and not op.out:
                    continue  # a view of something known
                if op.out and not covers_storage(tensor):
                    raise Unknown
                if value.untyped_storage()._cdata in twins:
                    value = value.clone()
                watch = op.out != [] or any(isinstance(arg, Tensor) or type(arg) is list for arg in args)
                self.known.learn(tensor, value, assumed=reason, watch=watch)
                if op.out:
                    self.known.entries[storage_key(tensor)].slack = 1
            elif tensor.device == HOST and not any(tensor is arg for arg in args) and value.shape == tensor.shape:
                tensor.copy_(value)

    def _expect_list_writes(self, tensors: list[Any]) -> None:
        # The kernels of in-place foreach operators count a write of their own (PyTorch 2.14.1, ForeachUtils.h).
        for tensor in tensors:
            if not isinstance(tensor, Tensor) or tensor.requires_grad or not tensor.is_cuda:
                return
            entry = self.known.find(tensor)
            if entry is None:
                return
            entry.slack = 1

    @staticmethod
    def _writes_device(op: Operator, args: Any, kwargs: Any) -> bool:
        return any(t.is_cuda for index in op.mutated if index < len(args) for t in _tensors(args[index])) or any(
            t.is_cuda for name in op.out for t in _tensors(kwargs.get(name))
        )

    def twin(self, arg: Any, taints: list[str]) -> Any:
        """`arg` with host tensors for device tensors; raises Unknown."""
        if isinstance(arg, Tensor):
            if not arg.is_cuda:
                if arg.device != HOST:
                    raise Unknown
                return arg
            if arg.requires_grad or type(arg) is not Tensor:
                raise Unknown
            entry = self.known.find(arg)
            if entry is None or arg.is_conj() or arg.is_neg():
                raise Unknown
            view = self.known.view(entry, arg)
            if view is None:
                raise Unknown
            if entry.assumed:
                taints.append(entry.assumed)
            return view
        if type(arg) in (list, tuple):
            return [self.twin(item, taints) for item in arg]
        if isinstance(arg, torch.device):
            return HOST
        return arg

    def values_of(self, tensor: Any, taints: list[str]) -> Tensor | None:
        """The twin of `tensor`, or None."""
        try:
            value = self.twin(tensor, taints)
        except Unknown:
            return None
        except Exception:  # layouts without a storage
            return None
        return value if isinstance(value, Tensor) else None

    def _written(self, op: Operator, arg: Any, written: list[Entry], taints: list[str]) -> Any:
        if type(arg) is list:
            return [self._written(op, item, written, taints) for item in arg]
        if not isinstance(arg, Tensor) or not arg.is_cuda:
            if isinstance(arg, Tensor):
                return arg
            raise Unknown
        if op.overwrites and not arg.requires_grad and type(arg) is Tensor and covers_storage(arg):
            if arg.numel() > self.assume.limit or not self.known.room_for(arg.numel() * arg.element_size()):
                raise Unknown
            self.known.learn_fill(arg, 0, watch=True)
        own: list[str] = []
        view = self.twin(arg, own)
        taints.extend(own)
        entry = self.known.entries[storage_key(arg)]
        entry.fill = None
        written.append(entry)
        return view

    def _lose(self, op: Operator, args: Any, kwargs: Any) -> None:
        if not self.known.entries:
            return
        for index in op.mutated:
            for tensor in _tensors(args[index]) if index < len(args) else ():
                if tensor.is_cuda:
                    self.known.forget(tensor)
        for name in op.out:
            for tensor in _tensors(kwargs.get(name)):
                if tensor.is_cuda:
                    self.known.forget(tensor)

    # -- random numbers ----------------------------------------------------------------------------------------------

    @staticmethod
    def _seed(op: Operator, args: Any, kwargs: Any) -> int | None:
        """A seed for the host, from the state of the device's generator, so that recomputation agrees."""
        generator = kwargs.get("generator")
        if generator is None:
            generator = next((arg for arg in args if isinstance(arg, torch.Generator)), None)
        if generator is None:
            if not torch.cuda.is_initialized():
                return 0
            generator = torch.cuda.default_generators[torch.cuda.current_device()]
        if generator.device.type != "cuda":
            return 0
        return int((generator.initial_seed() * 0x9E3779B1 + generator.get_offset()) & 0x7FFFFFFFFFFFFFFF)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Run with another state of the host's generator, and leave no trace in it."""
    state = torch.default_generator.get_state()
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.default_generator.set_state(state)


def _fill_value(op: Operator, args: Any) -> Any:
    assert op.fill is not None
    return op.fill(args)


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if type(value) in (list, tuple):
        return [tensor for item in value for tensor in _tensors(item)]
    return []
