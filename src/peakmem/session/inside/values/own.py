"""Memory for what is followed: peakmem's, not the script's, so it lies apart from the script's heap and is counted."""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

SMALLEST = 1 << 16
"""Storages of fewer bytes come from the heap, as everything small does."""


class OwnMemory:
    """Storages on pages of their own, which forked processes share; how much they hold can be told to others.

    In the script's heap they would be taken for the script's tensors, and leave holes when they go.
    """

    def __init__(self) -> None:
        self.tell: Callable[[int], object] = lambda held: None
        self.held = 0
        self.highest = 0

    def copy(self, values: Tensor) -> Any:
        """The storage of `values`, whole, as one of our own."""
        storage = values.untyped_storage()
        if storage.nbytes() < SMALLEST:
            return storage
        copied = self.empty(storage.nbytes())
        copied.copy_(storage)
        return copied

    def empty(self, size: int) -> Any:
        """A storage of `size` bytes, all zero."""
        if size < SMALLEST:
            return torch.UntypedStorage(size).fill_(0)
        pages = mmap.mmap(-1, size)
        self._count(size, os.getpid())
        weakref.finalize(pages, self._count, -size, os.getpid()).atexit = False
        return torch.frombuffer(pages, dtype=torch.uint8).untyped_storage()

    def forked(self) -> None:
        """This process has none of the pages resident that its parent filled."""
        self.held = self.highest = 0
        self.tell(0)

    def _count(self, change: int, process: int) -> None:
        if process == os.getpid():
            self.held += change
            self.highest = max(self.highest, self.held)
            self.tell(self.held)
