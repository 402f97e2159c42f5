"""What the next small copies from the device give: the control interface of the virtual GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_COPIES = 8  # more than any operator of PyTorch reads


class Reads:
    """Lets the operators of PyTorch read true sizes from a device that computes none."""

    def __init__(self) -> None:
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

    @contextmanager
    def giving(self, values: Sequence[int]) -> Iterator[None]:
        """Within this context the copies of 1 to 8 bytes give `values` in order, the last one repeated."""
        if not self.available or not values:
            yield
            return
        padded = [*values, *([values[-1]] * (_COPIES - len(values)))]
        self._queue((ctypes.c_int64 * len(padded))(*padded), len(padded))
        try:
            yield
        finally:
            self._clear()
