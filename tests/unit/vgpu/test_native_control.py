"""The control interface, and the calls that are not about memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Native = Callable[..., Any]

_REPORT = """
class Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int8), ("index", ctypes.c_int8)]

hook = getattr(gpu, "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE")
hook.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_size_t, ctypes.c_size_t, Device]
hook.restype = None

class Event(ctypes.Structure):
    _fields_ = [
        ("address", ctypes.c_uint64), ("size", ctypes.c_int64), ("allocated", ctypes.c_uint64),
        ("reserved", ctypes.c_uint64), ("context", ctypes.c_uint32), ("device", ctypes.c_uint16),
        ("thread", ctypes.c_uint16),
    ]

gpu.peakmem_events.restype = ctypes.POINTER(Event)

def events():
    log = gpu.peakmem_events()
    return [[getattr(log[i], name) for name, _ in Event._fields_] for i in range(gpu.peakmem_event_count())]

def peaks(device=0):
    out = (ctypes.c_uint64 * 2)()
    gpu.peakmem_peaks(device, out)
    return list(out)
"""


def test_the_log_has_blocks_of_the_gpu_only_with_the_threads_context(native: Native) -> None:
    code = """
import threading
hook(4096, 512, 512, 2097152, Device(1, 0))
gpu.peakmem_set_context(7)
hook(8192, 100, 100, 100, Device(0, -1))
hook(4096, -512, 0, 2097152, Device(1, 1))
thread = threading.Thread(target=lambda: hook(1, 1, 1, 1, Device(1, 0)))
thread.start()
thread.join()
result = [events(), gpu.peakmem_context(), ctypes.sizeof(Event)]
"""
    events, context, size = native(_REPORT + code)
    assert events == [
        [4096, 512, 512, 2097152, 0, 0, 0],
        [4096, -512, 0, 2097152, 7, 1, 0],
        [1, 1, 1, 1, 0, 0, 1],
    ]
    assert context == 7
    assert size == 40


def test_peaks_start_anew_at_what_is_held(native: Native) -> None:
    code = """
hook(1, 500, 500, 1000, Device(1, 0))
hook(1, -400, 100, 1000, Device(1, 0))
before = peaks()
gpu.peakmem_reset_peaks(0)
after = peaks()
hook(1, 50, 150, 900, Device(1, 0))
result = [before, after, peaks(), peaks(1), peaks(-1), peaks(1000)]
"""
    assert native(_REPORT + code) == [[500, 1000], [100, 1000], [150, 1000], [0, 0], [0, 0], [0, 0]]


def test_many_events_keep_their_place(native: Native) -> None:
    code = """
log = gpu.peakmem_events()
device = Device(1, 0)
for i in range(300_000):
    hook(i, 1, i, i, device)
result = [gpu.peakmem_event_count(), log[0].address, log[299_999].address]
"""
    assert native(_REPORT + code) == [300_000, 0, 299_999]


def test_a_report_that_does_not_fit_says_how_long_it_is(native: Native) -> None:
    code = (
        "b = ctypes.create_string_buffer(b'x', 8); n = gpu.peakmem_report(b, 8); result = [n > 8, b.raw[:1].decode()]"
    )
    assert native(code) == [True, "x"]


def test_calls_that_are_not_supported_are_named(native: Native) -> None:
    code = """
gpu.cudaIpcGetMemHandle(None, None)
gpu.cudaGraphClone()
result = [gpu.cudaGetLastError(), report()['unsupported']]
"""
    error, names = native(code, stderr="not supported on the virtual GPU: cudaGraphClone", debug=1)
    assert error == 801
    assert names == {"cudaGraphClone": 1, "cudaIpcGetMemHandle (sharing GPU memory between processes)": 1}


def test_a_capture_is_active_until_it_ends_and_takes_in_streams_that_wait_for_it(native: Native) -> None:
    code = """
def new(call, *args):
    out = ctypes.c_void_p()
    assert call(ctypes.byref(out), *args) == 0
    return out

def status(stream):
    out = ctypes.c_int()
    gpu.cudaStreamIsCapturing(stream, ctypes.byref(out))
    return out.value

a, b = new(gpu.cudaStreamCreate), new(gpu.cudaStreamCreate)
event = new(gpu.cudaEventCreate)
gpu.cudaStreamBeginCapture(a, 0)
during = [status(a), status(b)]
gpu.cudaEventRecord(event, a)
gpu.cudaStreamWaitEvent(b, event, 0)
joined = status(b)
graph = new(lambda out: gpu.cudaStreamEndCapture(a, out))
after = [status(a), status(b)]
executable = new(gpu.cudaGraphInstantiate, graph, 0)
launched = gpu.cudaGraphLaunch(executable, a)
gpu.cudaStreamBeginCapture(a, 0)
refused = gpu.cudaStreamSynchronize(a)
gone = status(a)
out = ctypes.c_void_p()
ended = gpu.cudaStreamEndCapture(a, ctypes.byref(out))
result = [during, joined, after, launched, refused, gone, ended, out.value]
"""
    assert native(code) == [[1, 0], 1, [0, 0], 0, 900, 2, 901, None]


def test_an_event_takes_time_the_same_in_every_run(native: Native) -> None:
    code = """
events = [ctypes.c_void_p(), ctypes.c_void_p()]
for event in events:
    gpu.cudaEventCreate(ctypes.byref(event))
a = malloc(64)
gpu.cudaEventRecord(events[0], None)
read(a, 4)
gpu.cudaEventRecord(events[1], None)
ms = ctypes.c_float()
result = [gpu.cudaEventElapsedTime(ctypes.byref(ms), *events), ms.value]
"""
    first, second = native(code), native(code)
    assert first == second
    assert first[0] == 0
    assert first[1] == 0.006000000052154064


def test_properties_have_the_layout_of_the_callers_cuda(native: Native) -> None:
    code = """
import struct
out = ctypes.create_string_buffer(b"\\xee" * 1100, 1100)
call = gpu.cudaGetDeviceProperties if VERSION >= 13000 else gpu.cudaGetDeviceProperties_v2
assert call(out, 0) == 0
at = (288, 360, 364, 384, 604) if VERSION >= 13000 else (288, 360, 364, 388, 624)
end = 1008 if VERSION >= 13000 else 1032
numbers = [struct.unpack_from("<i", out.raw, i)[0] for i in at[1:]]
total = struct.unpack_from("<Q", out.raw, at[0])[0]
result = [out.value.decode(), total, *numbers, out.raw[end] == 0xee, out.raw[end - 1] == 0]
"""
    for version in (12040, 13000):
        found = native(
            f"VERSION = {version}\n" + code,
            cuda=version,
            name="Card",
            total_memory=12345,
            compute_capability="8.9",
            multiprocessors=46,
            threads_per_multiprocessor=1536,
        )
        assert found == ["Card", 12345, 8, 9, 46, 1536, True, True]


def test_nvml_counts_what_the_driver_keeps_back(native: Native) -> None:
    code = """
malloc(100 * MIB)
handle = ctypes.c_void_p()
gpu.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle))
first = (ctypes.c_ulonglong * 3)()
gpu.nvmlDeviceGetMemoryInfo(handle, first)
second = (ctypes.c_ulonglong * 5)(2 << 24 | 40)
gpu.nvmlDeviceGetMemoryInfo_v2(handle, second)
result = [list(first), list(second)[1:], memory()]
"""
    kept = 24 * 2**20
    first, second, (_, free, total) = native(code, total_memory=2**30, smi_memory=2**30 + kept)
    used = 100 * 2**20
    assert (free, total) == (2**30 - used, 2**30)  # CUDA's own figures leave it out
    assert first == [total + kept, free, used + kept]
    assert second == [total + kept, kept, free, used]


def test_nvml_and_the_runtime_agree_on_memory_and_identity(native: Native) -> None:
    code = """
import struct
a = malloc(100 * MIB)
handle = ctypes.c_void_p()
gpu.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle))
figures = (ctypes.c_ulonglong * 3)()
gpu.nvmlDeviceGetMemoryInfo(handle, figures)
uuid = ctypes.create_string_buffer(80)
gpu.nvmlDeviceGetUUID(handle, uuid, 80)
again = ctypes.c_void_p()
found = gpu.nvmlDeviceGetHandleByUUID(uuid, ctypes.byref(again))
properties = ctypes.create_string_buffer(1100)
gpu.cudaGetDeviceProperties(properties, 0)
same_uuid = uuid.value.decode()[4:].replace("-", "") == properties.raw[256:272].hex()
result = [list(figures), memory(), same_uuid, found, again.value == handle.value]
"""
    (total, left, used), (_, free, shown), same_uuid, found, same = native(
        code, total_memory=2**30, context=2**20, cuda=13000
    )
    assert (total, left) == (shown, free) == (2**30, 2**30 - 101 * 2**20)
    assert used == 101 * 2**20
    assert same_uuid
    assert found == 0
    assert same


def test_a_program_that_names_its_devices_gets_as_many(native: Native) -> None:
    code = """
n = ctypes.c_int()
error = gpu.cudaGetDeviceCount(ctypes.byref(n))
machine = ctypes.c_uint()
gpu.nvmlDeviceGetCount_v2(ctypes.byref(machine))
result = [error, n.value, machine.value]
"""
    assert native(code) == [0, 1, 1]
    assert native(code, CUDA_VISIBLE_DEVICES="3") == [0, 1, 4]
    assert native(code, CUDA_VISIBLE_DEVICES="0,1") == [0, 2, 2]
    assert native(code, CUDA_VISIBLE_DEVICES="") == [100, 0, 1]
    assert native(code, CUDA_VISIBLE_DEVICES="-1") == [100, 0, 1]
