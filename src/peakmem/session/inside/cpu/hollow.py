"""Puts hollow libraries in the place of those that `import torch` would load for a GPU that is not there.

The loader gives a library that is there already to whoever asks for it by its name. PyTorch asks for some of them by
their paths first (2.14.1, `torch/__init__.py`, `_preload_cuda_deps`), through `ctypes`.
"""

import _ctypes
import ctypes
import os
import sys

_installed = False


def install(stands_for):
    """Load the hollow libraries, right before torch is imported.

    Not where a real one is there already, where the torch is not the one that loads them, nor in processes whose
    memory is measured, not forecast.

    Args:
        stands_for: as `host/hollow.py` describes it.
    """
    global _installed
    libraries = stands_for["libraries"]
    if not libraries or _installed or _is_worker() or not _is_torch(stands_for["torch"]) or _real_ones(libraries):
        return
    load = getattr(ctypes, "_dlopen", None)
    if load is None or not _load_all(libraries.values()):
        return

    def _dlopen(name, *mode):
        if isinstance(name, str):
            name = libraries.get(os.path.basename(name), name)
        return load(name, *mode)

    vars(ctypes)["_dlopen"] = _dlopen
    _installed = True


def stand_in(libraries):
    """Whether they are in the place of all the real ones."""
    return _installed and not _real_ones(libraries)


def _load_all(paths):
    """Load them all, or none: what some of them stand for is not known."""
    loaded = []
    try:
        for path in paths:
            loaded.append(ctypes.CDLL(path))
    except OSError:
        for library in loaded:
            _ctypes.dlclose(library._handle)
        return False
    return True


def _is_worker():
    """Whether Python was begun anew for a worker, whose memory is measured, not forecast."""
    return any(word.startswith("from multiprocessing.") for word in sys.orig_argv)


def _is_torch(folder):
    """Whether the torch that is being imported is the one of that folder: a command may use another environment."""
    try:
        return os.path.samefile(os.path.dirname(sys.modules["torch"].__file__ or ""), folder)
    except (KeyError, AttributeError, TypeError, OSError):
        return False


def _real_ones(libraries):
    """Mapped libraries of these names, of whatever version: a name may be a link to a file with a longer one."""
    stems = {name.partition(".so")[0] for name in libraries}
    ours = set(libraries.values())
    return [path for path in _mapped() if os.path.basename(path).partition(".so")[0] in stems and path not in ours]


def _mapped():
    """Paths of all mapped files; without those that are no longer there under the name they were opened by."""
    with open("/proc/self/maps", encoding=sys.getfilesystemencoding(), errors="surrogateescape") as file:
        paths = {line.split(maxsplit=5)[5].rstrip("\n") for line in file if line.count("/")}
    return {path for path in paths if not path.endswith(" (deleted)")}
