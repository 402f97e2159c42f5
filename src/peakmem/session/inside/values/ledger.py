"""Which assumptions were met, how often, and where first."""

from __future__ import annotations

import os
import sys
from typing import Any

import torch

_OWN = (os.path.dirname(torch.__file__) + os.sep, os.path.dirname(os.path.dirname(__file__)) + os.sep)
_INSTALLED = (
    os.sep + "site-packages" + os.sep,
    os.sep + "dist-packages" + os.sep,
    os.path.dirname(os.__file__) + os.sep,
)


def source_line() -> str:
    """`file:line` of the innermost frame of the script's own code, and of the library it called, if any."""
    library = ""
    frame: Any = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((*_OWN, "<")):
            line = f"{name}:{frame.f_lineno}"
            if not any(part in name for part in _INSTALLED):
                return f"{line} ({_short(library)})" if library else line
            library = library or line
        frame = frame.f_back
    return library


def _short(path: str) -> str:
    for part in _INSTALLED:
        if part in path:
            return path.split(part)[-1]
    return path


class Ledger:
    """Counts of assumptions by kind."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], list[Any]] = {}

    def note(self, what: str, assumed: str) -> None:
        """Count one more decision that hangs on an assumption."""
        row = self._rows.get((what, assumed))
        if row is None:
            self._rows[what, assumed] = [1, source_line()]
        else:
            row[0] += 1

    def rows(self) -> list[dict[str, Any]]:
        """The assumptions met, most frequent first."""
        rows = [
            {"what": what, "count": count, "assumed": assumed, "where": where}
            for (what, assumed), (count, where) in self._rows.items()
        ]
        return sorted(rows, key=lambda row: (-row["count"], row["what"]))
