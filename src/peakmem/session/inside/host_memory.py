"""The host's side of the watched process: its resident memory, what it pins, its DataLoaders."""

import gc
import os

from . import initial, late
from .loaders import Loaders

_KINDS = {"VmHWM": "peak", "RssAnon": "anonymous", "RssFile": "file", "RssShmem": "shared"}
SMALLEST_PINNED = 1 << 20
"""Below this many bytes pinned nobody asks how they were rounded."""
MOST_STEPS = 10_000
LOOKED_AT = (2, 3, 4)
"""After these steps the tensors are looked at; it takes some hundredths of a second."""
MOST_NODES = 50_000


class HostMemory:
    """Notes what the other side can't see from outside; written with the recording."""

    def __init__(self, torch, native, settings):
        folder = settings.folder
        self._late_sizes = settings.late_sizes
        self._torch = torch
        self._native = native
        self._folder = folder
        self._page = ""
        self._loaders = Loaders()
        self._own = None
        self._base = resident()
        self._at_cuda = None
        self._requested = 0
        self._nodes = []
        self._closed = None
        self._steps = []

    def install(self):
        """Begin."""
        self._loaders.install()
        self.publish()

    def leave_out(self, own):
        """What `own` (`values.own.OwnMemory`) holds is not the script's."""
        self._own = own
        own.tell = self._native.tell_own

    def publish(self):
        """Tell the other side from now on what this process has pinned; a forked process does so anew."""
        self._page = os.path.join(self._folder, f"pinned-{os.getpid()}")
        self._native.publish_pinned(self._page)

    def cuda_started(self):
        """CUDA is used for the first time."""
        self._at_cuda = resident()

    def step_done(self):
        """An optimizer has stepped: note what is resident, and in some of the first steps look at the tensors."""
        if len(self._steps) < MOST_STEPS:
            now = resident()
            self._steps.append(now.get("anonymous", 0) + now.get("file", 0) + now.get("shared", 0))
        if len(self._steps) in LOOKED_AT:
            self._look_at_tensors(graphs=True)

    def close(self):
        """The script has ended, and what comes is ours: nobody may count it as the script's."""
        if self._closed is None:
            self._closed = resident()
            self._look_at_tensors(graphs=False)
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
            "own_highest": self._own.highest if self._own is not None else 0,
            "steps": self._steps,
            "graph_nodes": self._nodes,
            "pinned_requested": self._requested,
            "loaders": self._loaders.rows(),
            "spared": self._spared(),
        }

    def _spared(self):
        """What is not resident since peakmem left it out; sizes in bytes."""
        found = late.left_out(self._torch, self._late_sizes)
        return {
            "late": found[1] if found else 0,
            "late_with": found[0] if found else "",
            "initial_values": initial.spared(),
        }

    def _look_at_tensors(self, *, graphs):
        """How much of what is pinned is asked for, and how many nodes of the autograd graph are kept between steps."""
        pins = self._native.pinned() >= SMALLEST_PINNED
        if not (pins or graphs):
            return
        tensor_class = self._torch.Tensor
        storages, roots = {}, []
        for thing in gc.get_objects():
            # Not isinstance: it asks things for their __class__, which some answer with a warning.
            if not issubclass(type(thing), tensor_class):
                continue
            try:
                if pins and thing.device.type == "cpu" and thing.is_pinned():
                    storage = thing.untyped_storage()
                    storages[storage.data_ptr()] = storage.nbytes()
                if graphs and thing.grad_fn is not None:
                    roots.append(thing.grad_fn)
            except Exception:
                continue
        self._requested = max(self._requested, sum(storages.values()))
        if graphs:
            self._nodes.append(_count_nodes(roots))


def _count_nodes(roots):
    """Nodes of the autograd graph that hang on some, each counted once; at most `MOST_NODES`."""
    seen: set = set()
    waiting = list(roots)
    while waiting and len(seen) < MOST_NODES:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        waiting += [following for following, _ in node.next_functions if following is not None]
    return len(seen)


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
