"""Leaves unloaded what a script's libraries import and the script does not use, and counts its memory all the same."""

import contextlib
import sys

from .compiler import Compiler
from .late_modules import ATTENTION, DISTRIBUTED, SCIPY, LateModules
from .resident import resident_bytes

_BESIDE = ("timm", "torchvision", "transformers", "sympy")
"""Who has loaded a part of what is left out."""


class _Late:
    """What stands in for libraries in this process, and what they take.

    Args:
        torch: the package.
    """

    def __init__(self, torch):
        self._torch = torch
        self._loading = False
        self._key = ""
        self.counted = None
        """Bytes that somebody counts for what is not loaded, less what has been loaded since; None: nobody does."""
        self._groups: list = [
            Compiler(torch, self._load),
            LateModules(ATTENTION, "torch", self._load),
            LateModules(SCIPY, "scipy", self._load),
        ]
        if torch.distributed.is_available():
            self._groups.append(LateModules(DISTRIBUTED, "torch", self._load))
        for group in self._groups:
            group.install()

    @contextlib.contextmanager
    def _load(self):
        """While the real libraries are loaded, which may load more of them."""
        if self._loading or self.counted is None:
            yield
            return
        self._loading = True
        before = resident_bytes()
        try:
            yield
        finally:
            self._loading = False
            self.counted = max(self.counted - max(resident_bytes() - before, 0), 0)

    @property
    def left_out(self):
        """The groups that are not loaded, though somebody imported something of them."""
        return [group for group in self._groups if group.left_out]

    def key(self):
        if not self._key:
            self._key = _key(self._torch, [name for group in self._groups for name in group.left_out])
        return self._key


def _key(torch, left_out):
    found = ((name, sys.modules.get(name)) for name in _BESIDE)
    beside = ",".join(f"{name} {getattr(module, '__version__', '')}" for name, module in found if module)
    return f"{torch.__version__} {sys.version_info[0]}.{sys.version_info[1]} {beside}; {','.join(left_out)}"


_here: list = []


def load_late(torch):
    """Put the stand-ins in place for what is not imported yet."""
    _here.append(_Late(torch))


def key_of(torch):
    """What sizes hang on that are kept from run to run: the versions, what else is loaded, and what is left out.

    It stays as it was first asked for: a run that finds out a size and one that knows it have the same.
    """
    return _here[0].key() if _here else _key(torch, [])


def left_out(torch, known):
    """By how much more would be resident with everything loaded, which the script would have loaded for real.

    Args:
        torch: the package.
        known: bytes by `key_of`, from earlier runs; where it is not known, all is loaded to see. None: nobody asks.

    Returns:
        What it hangs on, and bytes; None where nothing was left out, or it can't be loaded.
    """
    if known is None or not _here or not _here[0].left_out:
        return None
    here = _here[0]
    key = here.key()
    if key not in known:
        before = resident_bytes()
        try:
            for group in here.left_out:
                group.load()
        except Exception:
            return None
        return key, max(resident_bytes() - before, 0)
    here.counted = known[key]
    return key, known[key]


def not_loaded():
    """Bytes that `left_out` told of and that are not resident now, since nothing has loaded them for real."""
    return (_here[0].counted or 0) if _here else 0
