"""What a process on the virtual GPU has pinned, read from outside while it runs."""

from __future__ import annotations

import os
import struct
from pathlib import Path

_PAGE = struct.Struct("=5QqQ")
"""`struct peakmem_pinned` of vgpu/native/control.h."""
_BLOCK = 512
"""Bytes of a block of `st_blocks`, whatever the file system's own blocks are (man 2 stat)."""


class PinnedPages:
    """How much more memory a process would have resident on a real GPU, for `Tape`.

    Every page of pinned memory is resident there; here only those that were written are, and some that peakmem
    keeps for itself. A process whose page was put aside (`inside/host_memory.py` renames it at the script's end) has
    nothing more to show but our own work.
    """

    def __init__(self, folder: Path) -> None:
        """`folder` is that of the session."""
        self._folder = str(folder)
        self._ended: set[int] = set()

    def __call__(self, pid: int) -> int | None:
        """Bytes to add to what is resident; None once the script has ended in this process."""
        if pid in self._ended:
            return None
        path = f"{self._folder}/pinned-{pid}"
        try:
            with open(path, "rb") as file:  # noqa: PTH123 - called many times a second
                content = file.read(_PAGE.size)
        except OSError:
            if os.path.exists(path + ".end"):  # noqa: PTH110
                self._ended.add(pid)
                return None
            return 0
        if len(content) < _PAGE.size:
            return 0
        pinned, _, _, _, absent, descriptor, own = _PAGE.unpack(content)
        return int(pinned) - _written(pid, descriptor) + int(absent) - int(own)


def _written(pid: int, descriptor: int) -> int:
    """Bytes of pinned memory that were written, so that they are resident here too."""
    if descriptor < 0:
        return 0
    try:
        return os.stat(f"/proc/{pid}/fd/{descriptor}").st_blocks * _BLOCK  # noqa: PTH116
    except OSError:
        return 0
