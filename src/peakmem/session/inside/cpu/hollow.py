"""Puts hollow libraries in the place of those that `import torch` would load for a GPU that is not there.

The loader gives a library that is there already to whoever asks for it by its name. PyTorch asks for some of them by
their paths first (2.14.1, `torch/__init__.py`, `_preload_cuda_deps`), through `ctypes`.
"""

import ctypes
import os
import sys


def install(libraries):
    """Load the hollow libraries, unless a real one is there, or the process is none whose memory is told by them.

    Args:
        libraries: {name: path of the hollow library}.
    """
    if not libraries or _is_worker() or _real_ones(libraries):
        return
    try:
        for path in libraries.values():
            ctypes.CDLL(path)
    except OSError:
        return
    load = getattr(ctypes, "_dlopen", None)
    if load is None:
        return

    def _dlopen(name, *mode):
        if isinstance(name, str):
            name = libraries.get(os.path.basename(name), name)
        return load(name, *mode)

    vars(ctypes)["_dlopen"] = _dlopen


def stand_in(libraries):
    """Whether they are in the place of all the real ones."""
    mapped = _mapped()
    return bool(libraries) and set(libraries.values()) <= mapped and not _real_ones(libraries)


def _is_worker():
    """Whether Python was begun anew for a worker, whose memory is measured, not forecast."""
    return any(word.startswith("from multiprocessing.") for word in sys.orig_argv)


def _real_ones(libraries):
    return [path for path in _mapped() - set(libraries.values()) if os.path.basename(path) in libraries]


def _mapped():
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        return {line.split(maxsplit=5)[5].rstrip("\n") for line in file if line.count("/")}
