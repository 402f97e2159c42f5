"""The end of what a script printed: what tells why it failed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

_INSIDE = str(Path(__file__).parent / "inside")
MOST_LINES = 15


def last_words(lines: Iterable[str], *, most: int = MOST_LINES) -> tuple[str, ...]:
    """The last lines that a script printed, without the frames of what peakmem put into its process.

    Args:
        lines: as they were printed.
        most: how many are given at most.
    """
    return without_frames(lines, lambda line: _INSIDE in line)[-most:]


def without_frames(lines: Iterable[str], unwanted: Callable[[str], bool]) -> tuple[str, ...]:
    """What was printed, without some frames of Python's tracebacks.

    Args:
        lines: as they were printed.
        unwanted: whether a frame with this line (`  File "train.py", line 3, in <module>`) is to be left out.
    """
    kept, leaving = [], False
    for line in lines:
        if not line.startswith("    "):  # below a frame's line stand its source and marks
            leaving = line.startswith('  File "') and unwanted(line)
        if not leaving:
            kept.append(line)
    return tuple(kept)
