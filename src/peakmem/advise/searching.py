"""The largest value that fits, found by measuring: no law of growth is assumed.

Straight lines through what was measured only say where to look next. The answer is a value that was seen to fit whose
next value was seen not to fit; values a little beyond are looked at as well, since memory does not always grow with a
number (convolution plans, rounding to a power of two).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

ROUND = 8
"""Kernels and plans like multiples of this; the first one beyond a value that does not fit is tried as well."""

_FIRST_PART = 64
_NEAR_PART = 16
_FARTHEST = 32
"""No guess goes beyond this multiple of what was seen to fit: the script's own host memory grows too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """What was measured at one value.

    Attributes:
        fits: whether it ran within the memory.
        allocated: peak of bytes handed out; None where it did not fit.
        reserved: peak of bytes reserved; None likewise.
    """

    fits: bool
    allocated: int | None = None
    reserved: int | None = None


Measure = Callable[[Sequence[int]], Sequence[Point]]
"""Measures a few values at a time."""


@dataclass(slots=True)
class Search:
    """A search in progress; it can be read at any time, also after an interruption.

    Args:
        values: the values, rising.
        measure: measures values; called with at most two at a time.
        usable: bytes that can be reserved (asked anew each time, since it may become known better).
    """

    values: Sequence[int]
    measure: Measure
    usable: Callable[[], int]
    known: dict[int, Point] = field(default_factory=dict)
    _stuck: int = 0

    def largest(self) -> int | None:
        """The largest value that was seen to fit; None if none was."""
        fitting = self._fitting()
        return self.values[fitting[-1]] if fitting else None

    def following(self) -> int | None:
        """The value after `largest()`; None at the end of the values."""
        fitting = self._fitting()
        after = fitting[-1] + 1 if fitting else 0
        return self.values[after] if after < len(self.values) else None

    def run(self) -> None:
        """Measure until the largest value that fits is known."""
        last = len(self.values) - 1
        self._look((0, min(last, max(1, len(self.values) // _FIRST_PART))))
        while self._fitting():
            low, high = self._bracket()
            if high - low > 1:
                self._narrow(low, high)
            elif not self._look(self._beyond(high)):
                break

    def _fitting(self) -> list[int]:
        return sorted(index for index, point in self.known.items() if point.fits)

    def _bracket(self) -> tuple[int, int]:
        """The last index that fits, and the first known one above that does not (or the end)."""
        low = self._fitting()[-1]
        return low, min((i for i, p in self.known.items() if i > low and not p.fits), default=len(self.values))

    def _look(self, indices: Sequence[int]) -> bool:
        """Measure what is not known yet; whether there was anything."""
        new = [i for i in dict.fromkeys(indices) if 0 <= i < len(self.values) and i not in self.known]
        for first in range(0, len(new), 2):
            part = new[first : first + 2]
            self.known |= dict(zip(part, self.measure([self.values[i] for i in part]), strict=True))
        return bool(new)

    def _narrow(self, low: int, high: int) -> None:
        gap = high - low - 1
        self._look(self._picks(low, high))
        low, high = self._bracket()
        self._stuck = self._stuck + 1 if high - low - 1 > gap // 2 else 0

    def _picks(self, low: int, high: int) -> Sequence[int]:
        gap = high - low - 1
        if gap <= 2:
            return range(low + 1, high)
        open_end = high == len(self.values)
        if self._stuck == 0 or (self._stuck < 3 and open_end):
            last = high - 1 if open_end else high
            guesses = sorted({max(min(guess, last), low + 1) for guess in self._guesses() if open_end or guess < high})
            if len(guesses) == 1:
                guesses.append(guesses[0] + 1 if guesses[0] + 1 < high else guesses[0] - 1)
            if guesses:
                return guesses
        if self._stuck <= 1 and not open_end:
            return (low + high) // 2, high - max(gap // _NEAR_PART, 1)
        return low + max(gap // 3, 1), low + max(2 * gap // 3, 2)

    def _guesses(self) -> list[int]:
        """Where straight lines through the last two points that fit reach the usable memory.

        That of `reserved` is met first; the allocator gives cached segments back when it must, so the run still fits
        until about where that of `allocated` meets it.
        """
        fitting = self._fitting()
        if len(fitting) < 2:
            return []
        a, b = fitting[-2], fitting[-1]
        guesses = []
        for name in ("reserved", "allocated"):
            before, after = getattr(self.known[a], name), getattr(self.known[b], name)
            slope = (after - before) / (self.values[b] - self.values[a])
            farthest = _FARTHEST * max(self.values[b], 1)
            reached = self.values[b] + (self.usable() - after) / slope if slope > 0 else farthest
            guesses.append(self._index_of(min(reached, farthest)))
        return guesses

    def _index_of(self, value: float) -> int:
        """The index of the last value that is no larger."""
        low, high = 0, len(self.values)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.values[middle] <= value else (low, middle)
        return low

    def _beyond(self, high: int) -> tuple[int, ...]:
        """Indices of values beyond one that does not fit that are worth a look."""
        if high >= len(self.values):
            return ()
        near = range(high + 1, min(high + 1 + ROUND, len(self.values)))
        rounded = [index for index in near if self.values[index] % ROUND == 0]
        return (high + 1, *rounded[:1])
