"""What the next small copies from the device give: the control interface of the virtual GPU."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_COPIES = 8  # more than any operator of PyTorch reads


class Reads(threading.local):
    """Lets the operators of PyTorch read true sizes from a device that computes none."""

    def __init__(self) -> None:
        self._standing: Sequence[int] = ()
        library = ctypes.CDLL(None)
        try:
            self._queue = library.peakmem_queue_reads
            self._clear = library.peakmem_clear_reads
        except AttributeError:  # not on the virtual GPU
            self.available = False
            return
        self.available = True
        self._queue.argtypes = [ctypes.POINTER(ctypes.c_int64), ctypes.c_int]
        self._queue.restype = None
        self._clear.restype = None

    def stand(self, values: Sequence[int]) -> None:
        """Until told otherwise the copies of 1 to 8 bytes in this thread give `values`, the last one repeated."""
        self._standing = values
        self._give(values)

    @contextmanager
    def giving(self, values: Sequence[int]) -> Iterator[None]:
        """The same for the time of this context."""
        self._give(values)
        try:
            yield
        finally:
            self._give(self._standing)

    def _give(self, values: Sequence[int]) -> None:
        if not self.available:
            return
        self._clear()
        if values:
            padded = [*values, *([values[-1]] * (_COPIES - len(values)))]
            self._queue((ctypes.c_int64 * len(padded))(*padded), len(padded))
