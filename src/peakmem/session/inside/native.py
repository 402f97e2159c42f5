"""The control interface of the virtual GPU (`vgpu/native/control.h`), found in this very process."""

import ctypes


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
            library.peakmem_report.argtypes = [ctypes.c_char_p, ctypes.c_int]
        except AttributeError as error:
            raise OSError(f"the virtual GPU is not loaded in this process ({error})") from None
        self._library = library
        self.event_count = library.peakmem_event_count
        self.set_context = library.peakmem_set_context
        self.context = library.peakmem_context

    def peaks(self, device):
        """The highest (allocated, reserved) of a device since the last `reset_peaks`."""
        out = (ctypes.c_uint64 * 2)()
        self._library.peakmem_peaks(device, out)
        return out[0], out[1]

    def reset_peaks(self, device):
        """Start the peaks of a device anew from what is held now."""
        self._library.peakmem_reset_peaks(device)

    def events(self):
        """The event log so far, as bytes of `struct peakmem_event` in a row."""
        count = self.event_count()
        return ctypes.string_at(self._library.peakmem_events(), count * EVENT_SIZE) if count else b""

    def report(self):
        """What the library answered by a substitute, an estimate or not at all: JSON text."""
        size = 1 << 16
        while True:
            text = ctypes.create_string_buffer(size)
            if self._library.peakmem_report(text, size) < size:
                return text.value.decode("utf-8", "replace")
            size *= 4


EVENT_SIZE = 40
