"""Lengths of sequences, from a file or a distribution, and the longest of each batch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from peakmem.errors import PeakmemError

_NORMAL = re.compile(r"normal:(\d+(?:\.\d+)?),(\d+(?:\.\d+)?):(\d+)")
_SAMPLES = 10_000
_HINT = "--lengths lengths.csv (a column of numbers), or --lengths normal:350,120:512 (mean, deviation, longest)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Lengths:
    """The lengths of a data set's sequences, in tokens."""

    values: tuple[int, ...]

    @property
    def longest(self) -> int:
        """The longest sequence."""
        return max(self.values)

    def batches(self, size: int, count: int) -> tuple[int, ...]:
        """The longest sequence in each of some batches, drawn always in the same way."""
        rng = np.random.default_rng(0)
        return tuple(int(rng.choice(self.values, size).max()) for _ in range(count))


def read_lengths(text: str) -> Lengths:
    """Read what stands after `--lengths`.

    A normal distribution is cut off at 1 and at the longest length, as tokenizers truncate.

    Raises:
        PeakmemError: it is neither a distribution nor a file of lengths.
    """
    match = _NORMAL.fullmatch(text)
    if match is not None:
        mean, deviation, longest = float(match[1]), float(match[2]), int(match[3])
        drawn = np.random.default_rng(0).normal(mean, deviation, _SAMPLES)
        return Lengths(values=tuple(int(value) for value in np.clip(np.rint(drawn), 1, max(longest, 1))))
    if text.startswith("normal:"):
        raise PeakmemError(f"--lengths {text} can't be read", hint=_HINT)
    try:
        lines = Path(text).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise PeakmemError(f"the lengths {text} can't be read: {reason}", hint=_HINT) from error
    cells = [line.split(",")[0].strip() for line in lines if line.strip()]
    if cells and not cells[0].isdigit():
        cells = cells[1:]  # a header
    wrong = next((cell for cell in cells if not cell.isdigit() or int(cell) < 1), None)
    if wrong is not None or not cells:
        found = f"{wrong!r} is no length" if wrong is not None else "there are no lengths in it"
        raise PeakmemError(f"{text}: {found}", hint=_HINT)
    return Lengths(values=tuple(int(cell) for cell in cells))
