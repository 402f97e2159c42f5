"""The control interface of the virtual GPU (`vgpu/native/control.h`), found in this very process."""

import ctypes
import os


class Native:
    """Calls into the preloaded library. All sizes are bytes.

    Raises:
        OSError: the virtual GPU is not in this process.
    """

    def __init__(self):
        library = ctypes.CDLL(None)
        try:
            library.peakmem_event_count.restype = ctypes.c_uint64
            library.peakmem_events.restype = ctypes.c_void_p
            library.peakmem_set_context.argtypes = [ctypes.c_uint32]
            library.peakmem_set_context.restype = None
            library.peakmem_context.restype = ctypes.c_uint32
            library.peakmem_peaks.argtypes = [ctypes.c_int, ctypes.POINTER(ctypes.c_uint64)]
            library.peakmem_peaks.restype = None
            library.peakmem_reset_peaks.argtypes = [ctypes.c_int]
            library.peakmem_reset_peaks.restype = None
            library.peakmem_refused.restype = ctypes.c_uint64
            library.peakmem_requested_peak.argtypes = [ctypes.c_int]
            library.peakmem_requested_peak.restype = ctypes.c_uint64
            library.peakmem_chunk_names.restype = ctypes.c_char_p
            library.peakmem_own_bytes.restype = ctypes.c_uint64
            library.peakmem_forget_last_operator.restype = None
            for name in ("chunk", "region"):
                getattr(library, f"peakmem_{name}_count").restype = ctypes.c_uint64
                getattr(library, f"peakmem_{name}s").restype = ctypes.c_void_p
            for name in ("uses", "operators"):
                getattr(library, f"peakmem_{name}").restype = ctypes.c_void_p
            library.peakmem_use_count.restype = ctypes.c_uint64
            library.peakmem_operator_count.restype = ctypes.c_uint64
            library.peakmem_operator_names.restype = ctypes.c_char_p
            library.peakmem_running_operators.argtypes = [ctypes.c_char_p, ctypes.c_int]
            library.peakmem_report.argtypes = [ctypes.c_char_p, ctypes.c_int]
            library.peakmem_publish_pinned.argtypes = [ctypes.c_char_p]
            library.peakmem_tell_own.restype = None
            library.peakmem_tell_own.argtypes = [ctypes.c_uint64]
            library.peakmem_pinned_now.restype = ctypes.c_uint64
        except AttributeError as error:
            raise OSError(f"the virtual GPU is not loaded in this process ({error})") from None
        self._library = library
        self.event_count = library.peakmem_event_count
        self.set_context = library.peakmem_set_context
        self.context = library.peakmem_context
        self.forget_last_operator = library.peakmem_forget_last_operator
        self.own_bytes = library.peakmem_own_bytes

    def peaks(self, device):
        """The highest (allocated, reserved) of a device since the last `reset_peaks`."""
        out = (ctypes.c_uint64 * 2)()
        self._library.peakmem_peaks(device, out)
        return out[0], out[1]

    def reset_peaks(self, device):
        """Start the peaks of a device anew from what is held now."""
        self._library.peakmem_reset_peaks(device)

    def refused(self):
        """The last request that TensorFlow's allocator refused; 0: none."""
        return self._library.peakmem_refused()

    def requested_peak(self, device):
        """The most that was requested of TensorFlow's allocator."""
        return self._library.peakmem_requested_peak(device)

    def events(self):
        """The event log so far, as bytes of `struct peakmem_event` in a row."""
        count = self.event_count()
        return ctypes.string_at(self._library.peakmem_events(), count * EVENT_SIZE) if count else b""

    def chunks(self):
        """What TensorFlow said of each event, as bytes of `struct peakmem_chunk` in a row, and the names in it."""
        count = self._library.peakmem_chunk_count()
        rows = ctypes.string_at(self._library.peakmem_chunks(), count * CHUNK_SIZE) if count else b""
        return rows, self._library.peakmem_chunk_names().decode("utf-8", "replace").split("\n")[:-1]

    def regions(self):
        """The regions of TensorFlow's allocator, as bytes of `struct peakmem_region` in a row."""
        count = self._library.peakmem_region_count()
        return ctypes.string_at(self._library.peakmem_regions(), count * REGION_SIZE) if count else b""

    def watch_operators(self):
        """Log from now on which operators take blocks."""
        return bool(self._library.peakmem_watch_operators())

    def uses(self):
        """What calls of the CUDA libraries showed of blocks, as bytes of `struct peakmem_use` in a row."""
        count = self._library.peakmem_use_count()
        return ctypes.string_at(self._library.peakmem_uses(), count * USE_SIZE) if count else b""

    def operators(self):
        """The operators that had events, as bytes of `struct peakmem_operator` in a row, and their names."""
        count = self._library.peakmem_operator_count()
        rows = ctypes.string_at(self._library.peakmem_operators(), count * OPERATOR_SIZE) if count else b""
        return rows, self._library.peakmem_operator_names().decode("utf-8", "replace").splitlines()

    def running(self):
        """The names of the operators that run on this thread now, outermost first."""
        text = ctypes.create_string_buffer(1 << 14)
        self._library.peakmem_running_operators(text, len(text))
        return text.value.decode("utf-8", "replace").splitlines()

    def publish_pinned(self, path):
        """Keep the file `path` up to date about pinned memory (`struct peakmem_pinned`), for others to read."""
        return bool(self._library.peakmem_publish_pinned(os.fsencode(path)))

    def tell_own(self, size):
        """So many bytes of resident memory are not the script's."""
        self._library.peakmem_tell_own(size)

    def pinned(self):
        """Bytes of pinned host memory now."""
        return self._library.peakmem_pinned_now()

    def report(self):
        """What the library answered by a substitute, an estimate or not at all: JSON text."""
        size = 1 << 16
        while True:
            text = ctypes.create_string_buffer(size)
            if self._library.peakmem_report(text, size) < size:
                return text.value.decode("utf-8", "replace")
            size *= 4


EVENT_SIZE = 40
USE_SIZE = 24
OPERATOR_SIZE = 24
CHUNK_SIZE = 24
REGION_SIZE = 32
