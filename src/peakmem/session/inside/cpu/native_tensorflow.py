"""The control interface of the library that follows TensorFlow (`host/native_tensorflow/control.h`)."""

import ctypes
from dataclasses import dataclass

_FIELDS = ("live", "events", "highest", "highest_live", "regions", "resident", "shared", "pool")


class _State(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in _FIELDS)


class _Row(ctypes.Structure):
    _fields_ = (("event", ctypes.c_uint64), ("live", ctypes.c_uint64), ("resident", ctypes.c_uint64))


@dataclass(frozen=True)
class State:
    """What is known of large tensors, bytes: see `struct peakmem_tensorflow_state`."""

    live: int
    events: int
    highest: int
    highest_live: int
    regions: int
    resident: int
    shared: int
    pool: int


class Native:
    """Calls into the preloaded library.

    Raises:
        OSError: the library is not in this process.
    """

    def __init__(self):
        library = ctypes.CDLL(None)
        try:
            library.peakmem_tensorflow_read.restype = None
            library.peakmem_tensorflow_read.argtypes = [ctypes.POINTER(_State)]
            library.peakmem_tensorflow_reset_peak.restype = None
            library.peakmem_tensorflow_course.restype = ctypes.c_uint64
            library.peakmem_tensorflow_course.argtypes = [ctypes.POINTER(ctypes.POINTER(_Row))]
        except AttributeError as error:
            raise OSError(f"the library is not loaded in this process ({error})") from None
        self._library = library
        self.reset_peak = library.peakmem_tensorflow_reset_peak

    def read(self):
        """What is known now; counts the pages of all regions (about 5 ms for 1 GB)."""
        state = _State()
        self._library.peakmem_tensorflow_read(ctypes.byref(state))
        return State(*(getattr(state, name) for name in _FIELDS))

    def course(self):
        """Rows (event, live, resident), thinned out."""
        rows = ctypes.POINTER(_Row)()
        n = self._library.peakmem_tensorflow_course(ctypes.byref(rows))
        return [(rows[i].event, rows[i].live, rows[i].resident) for i in range(n)]
