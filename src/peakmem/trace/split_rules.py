"""The allocator's rules for the sizes of blocks (PyTorch 2.14.1, c10/cuda/CUDACachingAllocator.cpp)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_MIN_BLOCK = 512
SMALL = 1 << 20
"""Bytes; requests up to this size come from small segments."""
_UNLIMITED = 1 << 62


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitRules:
    """The options that decide how large a block is.

    Attributes:
        max_split_size: bytes; blocks for requests of at least this size are not split.
        expandable: whether `expandable_segments` is on.
        divisions: `roundup_power2_divisions`, one entry for each power of two from 1 MiB to 32 GiB; 0 or 1 is off.
    """

    max_split_size: int = _UNLIMITED
    expandable: bool = False
    divisions: tuple[int, ...] = field(default=(0,) * 16)

    @classmethod
    def from_settings(cls, settings: Mapping[str, object]) -> SplitRules:
        """Read the `allocator_settings` of a snapshot; what is missing or odd takes its default."""
        limit = settings.get("max_split_size")
        table = settings.get("roundup_power2_divisions")
        divisions = [0] * 16
        if isinstance(table, dict):
            for index in range(16):
                value = table.get(str(1 << index), 0)
                divisions[index] = value if isinstance(value, int) else 0
        return cls(
            max_split_size=limit if isinstance(limit, int) and 0 <= limit < _UNLIMITED else _UNLIMITED,
            expandable=bool(settings.get("expandable_segments", False)),
            divisions=tuple(divisions),
        )

    def round_size(self, requested: int) -> int:
        """Bytes that a request takes when the block is cut to measure."""
        if requested < _MIN_BLOCK:
            return _MIN_BLOCK
        division = self.divisions[min(max(requested.bit_length() - 21, 0), 15)]
        if division > 1 and requested > _MIN_BLOCK * division:
            power = 1 << (requested.bit_length() - 1)
            if power == requested:
                return requested
            step = max(power // division, 1)
            return -(-requested // step) * step
        return -(-requested // _MIN_BLOCK) * _MIN_BLOCK

    def taken(self, rounded: int, room: int) -> int:
        """Bytes that a block takes in a free stretch of `room` bytes: `rounded`, or all if the rest is too small."""
        rest = room - rounded
        if rounded <= SMALL or self.expandable:
            return rounded if rest >= _MIN_BLOCK else room
        return rounded if rounded < self.max_split_size and rest > SMALL else room
