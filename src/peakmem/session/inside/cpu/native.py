"""The control interface of the host library (`host/native/control.h`), found in this very process."""

import contextlib
import ctypes
import os
from dataclasses import dataclass


class _State(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in ("live", "mapped", "heap", "outside", "peak", "peak_live", "peak_outside", "events")
    )


class _Row(ctypes.Structure):
    _fields_ = (("event", ctypes.c_uint64), ("live", ctypes.c_uint64), ("resident", ctypes.c_uint64))


class _Block(ctypes.Structure):
    _fields_ = (("address", ctypes.c_uint64), ("size", ctypes.c_uint64))


@contextlib.contextmanager
def _set(flag):
    before, flag.value = flag.value, 1
    try:
        yield
    finally:
        flag.value = before


@dataclass(frozen=True)
class State:
    """What the books say, bytes: see `struct peakmem_host_state`."""

    live: int
    mapped: int
    heap: int
    outside: int
    peak: int
    peak_live: int
    peak_outside: int
    events: int

    @property
    def resident(self):
        """What would be resident now."""
        return self.mapped + self.heap + self.outside


class Native:
    """Calls into the preloaded library. All sizes are bytes.

    Raises:
        OSError: the library is not in this process.
    """

    def __init__(self):
        library = ctypes.CDLL(None)
        try:
            library.peakmem_host_watch_operators.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p]
            library.peakmem_host_skip_operators.argtypes = [ctypes.c_int]
            library.peakmem_host_skipped.restype = ctypes.c_uint64
            library.peakmem_host_own.restype = ctypes.POINTER(ctypes.c_int)
            library.peakmem_host_compute.restype = ctypes.POINTER(ctypes.c_int)
            library.peakmem_host_look.restype = None
            library.peakmem_host_read.restype = None
            library.peakmem_host_read.argtypes = [ctypes.POINTER(_State)]
            library.peakmem_host_reset_peak.restype = None
            library.peakmem_host_peak_blocks.restype = ctypes.c_uint64
            library.peakmem_host_peak_blocks.argtypes = [ctypes.POINTER(_Block), ctypes.c_uint64]
            library.peakmem_host_partly.restype = None
            library.peakmem_host_partly.argtypes = [ctypes.c_uint64] * 3
            library.peakmem_host_resident.restype = ctypes.c_uint64
            library.peakmem_host_resident.argtypes = [ctypes.c_uint64, ctypes.c_uint64]
            library.peakmem_host_tell_at_end.restype = None
            library.peakmem_host_tell_at_end.argtypes = [ctypes.c_char_p, ctypes.c_int]
            library.peakmem_host_course.restype = ctypes.c_uint64
            library.peakmem_host_course.argtypes = [ctypes.POINTER(ctypes.POINTER(_Row))]
        except AttributeError as error:
            raise OSError(f"the host library is not loaded in this process ({error})") from None
        self._library = library
        self.look = library.peakmem_host_look
        self.reset_peak = library.peakmem_host_reset_peak
        self.partly = library.peakmem_host_partly
        self.redirect_onednn = library.peakmem_host_redirect_onednn
        self.skipped = library.peakmem_host_skipped
        self.resident_of = library.peakmem_host_resident

    def watch_operators(self, computed, first, second):
        """Follow operators; `control.h` says what must be called then. Whether it can be."""
        names = " ".join(computed).encode()
        return bool(self._library.peakmem_host_watch_operators(names, first._cdata, second._cdata))

    def skip_operators(self, on):
        """Skip operators, or no longer; gives whether they are."""
        return bool(self._library.peakmem_host_skip_operators(on))

    def computing(self):
        """While it is entered this thread computes everything."""
        return _set(self._library.peakmem_host_compute().contents)

    def looking_on(self):
        """While it is entered what this thread allocates is peakmem's own, and leaves the program's heap as it is."""
        return _set(self._library.peakmem_host_own().contents)

    def tell_at_end(self, path, *, leave):
        """Have what is left of the blocks when Python is gone written to a file; `leave`: end the process with that."""
        self._library.peakmem_host_tell_at_end(os.fsencode(path), leave)

    def read(self):
        """What the books say now."""
        state = _State()
        self._library.peakmem_host_read(ctypes.byref(state))
        return State(*(getattr(state, field[0]) for field in _State._fields_))

    def peak_blocks(self):
        """Address and size of the blocks that were live at the highest peak."""
        n = self._library.peakmem_host_peak_blocks(None, 0)
        blocks = (_Block * n)()
        n = min(n, self._library.peakmem_host_peak_blocks(blocks, n))
        return [(block.address, block.size) for block in blocks[:n]]

    def course(self):
        """Rows (event, live, resident), thinned out."""
        rows = ctypes.POINTER(_Row)()
        n = self._library.peakmem_host_course(ctypes.byref(rows))
        return [(rows[i].event, rows[i].live, rows[i].resident) for i in range(n)]
