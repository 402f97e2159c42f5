"""What a request becomes: the block size and the segment that it needs on an empty cache."""

from __future__ import annotations

from peakmem.allocator.settings.model import INTERVALS, Settings
from peakmem.allocator.settings.version import REFERENCE, TorchVersion
from peakmem.units import MIB

SMALL = MIB
"""Rounded sizes up to this are served from 2 MiB segments (PyTorch 2.14.1, c10/core/AllocatorConfig.h, kSmallSize)."""
LARGE = 10 * MIB
"""Rounded sizes from this on get a segment of their own (kMinLargeAlloc)."""
GRANULE = 512
"""Every block is a multiple of this (kMinBlockSize)."""


def _up(size: int, quantum: int) -> int:
    return -(-size // quantum) * quantum


def divisions_for(size: int, settings: Settings) -> int:
    """The entry of the table of divisions that a size falls under."""
    return settings.roundup_power2_divisions[min(max(size.bit_length() - 1 - 20, 0), INTERVALS - 1)]


def one_division_rounds(version: TorchVersion) -> bool:
    """Whether 1 division means "to the next power of two" (up to 1.13) or "off" (since 2.0).

    Source: the test in round_size, c10/cuda/CUDACachingAllocator.cpp: divisions > 0 in 1.13, > 1 in 2.0 and 2.14.1.
    """
    return not version.at_least("2.0")


def block_size(request: int, settings: Settings, *, version: TorchVersion = REFERENCE) -> int:
    """The block that serves a request, in bytes (0 for an empty one), before any unsplit rest is added."""
    if request <= 0:
        return 0
    if request < GRANULE:
        return GRANULE
    bypass = settings.roundup_bypass_threshold
    divisions = 0 if bypass is not None and request > bypass else divisions_for(request, settings)
    least = 1 if one_division_rounds(version) else 2
    if divisions >= least and request > GRANULE * divisions:
        power = 1 << (request.bit_length() - 1)
        step = power // divisions
        return power * 2 if step == 0 else _up(request, step)
    return _up(request, GRANULE)


def segment_size(block: int, settings: Settings) -> int:
    """What is asked of the driver when no cached block fits, in bytes (without expandable segments)."""
    if block == 0:
        return 0
    if block <= SMALL:
        return 2 * MIB
    if block < LARGE:
        return settings.large_segment_size
    return _up(block, 2 * MIB)
