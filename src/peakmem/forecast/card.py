"""The card that a forecast is made for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peakmem.vgpu.catalogue import Device


@dataclass(frozen=True, kw_only=True, slots=True)
class Card:
    """The card a run was made for: its total memory and what the context takes of it, both in bytes."""

    name: str
    total: int
    compute_capability: str
    context: int
    context_error: int

    @classmethod
    def of(cls, device: Device, *, context: int, context_error: int) -> Card:
        """A device of the catalogue, with what the context takes of it and how far that may be off, in bytes."""
        return cls(
            name=device.name,
            total=device.total_memory,
            compute_capability=device.capability,
            context=context,
            context_error=context_error,
        )

    @property
    def usable(self) -> int:
        """What the allocator may reserve."""
        return max(self.total - self.context, 0)
