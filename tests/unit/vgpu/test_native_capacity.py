"""What a replay needs of the library: another capacity, and an empty log, in the same process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Native = Callable[..., Any]


def test_the_capacity_can_be_changed_while_memory_is_handed_out(native: Native) -> None:
    code = """
gpu.peakmem_set_capacity.argtypes = [ctypes.c_uint64]
first = malloc(30 * MIB)
gpu.peakmem_set_capacity(40 * MIB)
refused = malloc(20 * MIB)
fits = malloc(10 * MIB)
gpu.peakmem_set_capacity(20 * MIB)
held = malloc(2 * MIB)
gpu.cudaFree(ctypes.c_void_p(first))
again = malloc(10 * MIB)
result = [first > 0, refused, fits > 0, held, again > 0]
"""
    assert native(code, capacity=100 << 20) == [True, -2, True, -2, True]


def test_the_log_can_be_started_anew(native: Native) -> None:
    code = """
class Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int8), ("index", ctypes.c_int8)]

hook = getattr(gpu, "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE")
hook.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_size_t, ctypes.c_size_t, Device]
hook.restype = None
hook(4096, 512, 512, 2097152, Device(1, 0))
before = gpu.peakmem_event_count()
gpu.peakmem_clear_events()
between = gpu.peakmem_event_count()
hook(4096, 512, 512, 2097152, Device(1, 0))
result = [before, between, gpu.peakmem_event_count()]
"""
    assert native(code) == [1, 0, 1]
