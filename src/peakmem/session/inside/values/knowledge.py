"""What is known about the contents of device memory: one entry for each storage.

A known storage has a twin in host memory, byte for byte the same size; a tensor on it is followed by a view of the twin
with the same offset, size and stride.  Views and in-place operations are then right by construction.  A storage that
holds one value throughout (`torch.zeros`) is known by that value alone, whatever its size.

Entries do not keep device memory alive: they hold a weak reference to the storage.  To notice writes that this module
was not told of (in the backward pass, in an optimizer, in compiled code), an entry also holds an empty tensor that
shares the version counter of the tensor on the storage; when the counter has moved further than the writes that were
seen, the entry is dropped.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from .own import SMALLEST, OwnMemory

_KEY = torch._C.DispatchKey
_exclude = torch._C._dispatch_tls_set_dispatch_key_excluded
_excluded = torch._C._dispatch_tls_is_dispatch_key_excluded
_empty: dict[torch.dtype, Tensor] = {}
HOST = torch.device("cpu")
BUDGET = 64 << 20
"""Bytes of host memory that all twins may take together, but for small ones, which are made in any case."""


def _storage_address(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


_address = getattr(torch._C, "_storage_id", _storage_address)


def storage_key(tensor: Tensor) -> int:
    """The address of the storage of `tensor`; 0 for layouts that have none."""
    try:
        return int(_address(tensor))
    except (RuntimeError, NotImplementedError):
        return 0


def version_witness(tensor: Tensor) -> Tensor | None:
    """An empty tensor with the version counter of `tensor`; None for inference tensors, which have none.

    `detach` shares the counter only above the autograd dispatch keys, which are masked inside a dispatch mode;
    assigning `.data` swaps the storage and keeps the counter (PyTorch 2.14.1, c10/core/TensorImpl.h).
    """
    if tensor.is_inference() or torch.is_inference_mode_enabled():
        return None
    blank = _empty.get(tensor.dtype)
    if blank is None:
        blank = _empty[tensor.dtype] = torch.empty(0, dtype=tensor.dtype)
    masked = [key for key in (_KEY.AutogradFunctionality, _KEY.ADInplaceOrView) if _excluded(key)]
    for key in masked:
        _exclude(key, False)
    try:
        witness = tensor.detach()
        witness.data = blank
    finally:
        for key in masked:
            _exclude(key, True)
    return witness


class Entry:
    """What is known of one storage."""

    __slots__ = ("assumed", "dtype", "expected", "fill", "nbytes", "slack", "tensor", "twin", "weak", "witness")

    def __init__(self, storage: Any, dtype: torch.dtype) -> None:
        self.weak = StorageWeakRef(storage)
        self.nbytes: int = storage.nbytes()
        self.dtype = dtype
        self.twin: Any = None  # an UntypedStorage of nbytes, or
        self.fill: Any = None  # the one value of every element
        self.witness: Tensor | None = None
        self.tensor: Any = None  # a weak reference, while there is no witness
        self.expected = 0
        self.slack = 0
        self.assumed: str | None = None


class Knowledge:
    """All entries, by storage.

    Twins are host memory that the script itself would not take, so all together may hold `BUDGET` bytes; beyond that
    large data is not followed. Masks, lengths and labels are small.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.memory = OwnMemory()
        self.entries: dict[int, Entry] = {}
        self._sweep_at = 4096

    # -- reading -----------------------------------------------------------------------------------------------------

    def find(self, tensor: Tensor) -> Entry | None:
        """The entry of the storage of `tensor`, if it can still be believed."""
        key = storage_key(tensor)
        entry = self.entries.get(key)
        if entry is None:
            return None
        witness = entry.witness
        if witness is None:
            self._watch(entry, tensor)
        else:
            moved = witness._version - entry.expected
            if moved:
                if not 0 < moved <= entry.slack:
                    del self.entries[key]
                    return None
                entry.expected += moved
            entry.slack = 0
        return entry

    def view(self, entry: Entry, tensor: Tensor) -> Tensor | None:
        """The twin of `tensor`; None where only the one value of a large storage is known."""
        twin = entry.twin
        if twin is None:
            size = entry.nbytes // entry.dtype.itemsize
            if size > self.limit:
                return None
            twin = entry.twin = self.memory.empty(entry.nbytes)
            torch.empty(0, dtype=entry.dtype).set_(twin, 0, (size,), (1,)).fill_(entry.fill)
        return torch.empty(0, dtype=tensor.dtype).set_(twin, tensor.storage_offset(), tensor.size(), tensor.stride())

    # -- writing -----------------------------------------------------------------------------------------------------

    def learn(self, tensor: Tensor, values: Tensor, *, assumed: str | None, watch: bool) -> None:
        """`tensor`, which has a storage of its own, has the contents of `values` (on the host).

        `watch`: not for what a factory made, since PyTorch copies a result whose version counter is shared by then.
        """
        storage = tensor.untyped_storage()
        entry = Entry(storage, tensor.dtype)
        if (
            values.dtype == tensor.dtype
            and values.storage_offset() == tensor.storage_offset() == 0
            and values.stride() == tensor.stride()
            and values.untyped_storage().nbytes() == entry.nbytes
        ):
            entry.twin = self.memory.copy(values)
        else:
            entry.twin = self.memory.empty(entry.nbytes)
            self_view = self.view(entry, tensor)
            assert self_view is not None
            self_view.copy_(values)
        self._enter(tensor, entry, assumed=assumed, watch=watch)

    def learn_copy(self, tensor: Tensor, source: Tensor) -> None:
        """`tensor`, new on the device, was copied from `source` on the host; nothing is made on the script's heap."""
        entry = Entry(tensor.untyped_storage(), tensor.dtype)
        if tensor.numel() > self.limit or not self.room_for(entry.nbytes):
            return
        entry.twin = self.memory.empty(entry.nbytes)
        view = self.view(entry, tensor)
        assert view is not None
        view.copy_(source)
        self._enter(tensor, entry, assumed=None, watch=True)

    def learn_fill(self, tensor: Tensor, value: Any, *, assumed: str | None = None, watch: bool = False) -> None:
        """Every element of the storage of `tensor` is `value`."""
        entry = Entry(tensor.untyped_storage(), tensor.dtype)
        entry.fill = value
        self._enter(tensor, entry, assumed=assumed, watch=watch)

    def _enter(self, tensor: Tensor, entry: Entry, *, assumed: str | None, watch: bool) -> None:
        entry.assumed = assumed
        if watch:
            self._watch(entry, tensor)
        else:
            entry.tensor = weakref.ref(tensor)
        self.entries[storage_key(tensor)] = entry
        if len(self.entries) > self._sweep_at:
            self.sweep()

    def forget(self, tensor: Tensor) -> None:
        """Nothing is known of the storage of `tensor` any more."""
        self.entries.pop(storage_key(tensor), None)

    def watch_all(self) -> None:
        """Called before writes may happen that nobody tells of: drop what could be overwritten without notice."""
        for key in [key for key, entry in self.entries.items() if entry.witness is None]:
            entry = self.entries[key]
            tensor = entry.tensor() if entry.tensor is not None else None
            if tensor is not None and storage_key(tensor) == key:
                self._watch(entry, tensor)
            if entry.witness is None:
                del self.entries[key]

    def sweep(self) -> None:
        """Drop the entries of storages that are gone."""
        for key in [key for key, entry in self.entries.items() if entry.weak.expired()]:
            del self.entries[key]
        self._sweep_at = max(4096, 2 * len(self.entries))

    def room_for(self, size: int) -> bool:
        """Whether a twin of `size` bytes more is within the budget; larger ones make room for it."""
        memory = self.memory
        if size < SMALLEST or memory.held + size <= BUDGET:
            return True
        self.sweep()
        larger = {key: entry.nbytes for key, entry in self.entries.items() if entry.twin is not None}
        for key in sorted(larger, key=lambda key: -larger[key]):
            if memory.held + size <= BUDGET or larger[key] <= size:
                break
            del self.entries[key]
        return memory.held + size <= BUDGET

    @staticmethod
    def _watch(entry: Entry, tensor: Tensor) -> None:
        witness = version_witness(tensor)
        entry.witness = witness
        if witness is not None:
            entry.expected = witness._version
            entry.slack = 0


def covers_storage(tensor: Tensor) -> bool:
    """Whether a write to all of `tensor` writes all of its storage."""
    return (
        tensor.storage_offset() == 0
        and tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()
        and (tensor.is_contiguous() or 0 not in tensor.stride())
    )
