"""The host's side of the watched process: its resident memory, what it pins, its DataLoaders."""

import gc
import os

from .loaders import Loaders

_KINDS = {"VmHWM": "peak", "RssAnon": "anonymous", "RssFile": "file", "RssShmem": "shared"}
SMALLEST_PINNED = 1 << 20
"""Below this many bytes pinned nobody asks how they were rounded."""
MOST_LOOKS = 4


class HostMemory:
    """Notes what the other side can't see from outside; written with the recording."""

    def __init__(self, torch, native, folder):
        self._torch = torch
        self._native = native
        self._folder = folder
        self._page = ""
        self._loaders = Loaders()
        self._base = resident()
        self._at_cuda = None
        self._requested = 0
        self._looks = 0
        self._closed = None

    def install(self):
        """Begin."""
        self._loaders.install()
        self.publish()

    def publish(self):
        """Tell the other side from now on what this process has pinned; a forked process does so anew."""
        self._page = os.path.join(self._folder, f"pinned-{os.getpid()}")
        self._native.publish_pinned(self._page)

    def cuda_started(self):
        """CUDA is used for the first time."""
        self._at_cuda = resident()

    def step_done(self):
        """An optimizer has stepped: in the first steps, look how much of what is pinned is asked for."""
        if self._looks < MOST_LOOKS:
            self._looks += 1
            self._look_at_pinned()

    def close(self):
        """The script has ended, and what comes is ours: nobody may count it as the script's."""
        if self._closed is None:
            self._closed = resident()
            self._look_at_pinned()
            try:
                os.rename(self._page, self._page + ".end")
            except OSError:
                return

    def describe(self):
        """All that is known, as plain values; sizes in bytes."""
        return {
            "base": self._base,
            "at_cuda": self._at_cuda,
            "end": self._closed,
            "pinned_requested": self._requested,
            "loaders": self._loaders.rows(),
        }

    def _look_at_pinned(self):
        if self._native.pinned() < SMALLEST_PINNED:
            return
        torch = self._torch
        storages = {}
        for thing in gc.get_objects():
            try:
                # Not isinstance: it asks things for their __class__, which some answer with a warning.
                if issubclass(type(thing), torch.Tensor) and thing.device.type == "cpu" and thing.is_pinned():
                    storage = thing.untyped_storage()
                    storages[storage.data_ptr()] = storage.nbytes()
            except Exception:
                continue
        self._requested = max(self._requested, sum(storages.values()))


def resident():
    """Resident memory of this process by kind, and its highest so far, bytes; empty where the system does not tell."""
    found = {}
    try:
        with open("/proc/self/status", "rb") as file:
            for line in file:
                name, _, rest = line.partition(b":")
                kind = _KINDS.get(name.decode())
                if kind is not None:
                    found[kind] = int(rest.split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        return {}
    return found
