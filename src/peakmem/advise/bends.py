"""Where measured memory leaves a straight line, and which role makes it so."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from peakmem.advise.model import Attempt, Bend

WORTH_A_WORD = 0.03
"""A point is off the line if it differs by more than this share of what was expected (blocks are rounded) ..."""
LEAST = 32 * 2**20
"""... and by more than this many bytes (segments are rounded to 2 and 20 MiB)."""


def bends(attempts: Sequence[Attempt]) -> tuple[Bend, ...]:
    """The bends between runs, each compared with the line through the two values before.

    Runs in which the allocator had to give memory back, or which failed, are left out: their peaks are not their own.
    """
    known = [a for a in sorted(attempts, key=lambda a: a.value) if a.fits and a.retries == 0 and a.peak is not None]
    found = []
    for (first, second), third in zip(pairwise(known), known[2:], strict=False):
        expected = _line(first, second, third.value, None)
        value = _allocated(third)
        if abs(value - expected) <= max(WORTH_A_WORD * abs(expected), LEAST):
            continue
        role, change = _role(first, second, third)
        found.append(
            Bend(after=second.value, at=third.value, expected=expected, found=value, role=role, role_change=change)
        )
    return tuple(found)


def _allocated(attempt: Attempt, role: str | None = None) -> int:
    if role is not None:
        return attempt.roles_at_peak.get(role, 0)
    assert attempt.peak is not None
    return attempt.peak.allocated


def _line(first: Attempt, second: Attempt, value: int, role: str | None) -> int:
    a, b = _allocated(first, role), _allocated(second, role)
    return b + (b - a) * (value - second.value) // (second.value - first.value)


def _role(first: Attempt, second: Attempt, third: Attempt) -> tuple[str, int]:
    off = {
        role: third.roles_at_peak.get(role, 0) - _line(first, second, third.value, role)
        for role in third.roles_at_peak
        if first.roles_at_peak and second.roles_at_peak
    }
    whole = _allocated(third) - _line(first, second, third.value, None)
    sign = 1 if whole > 0 else -1
    return max(off.items(), key=lambda item: sign * item[1], default=("", 0))
