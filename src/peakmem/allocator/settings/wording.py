"""Each option of a string in plain words, with its own numbers."""

from __future__ import annotations

from collections.abc import Callable

from peakmem.allocator.settings import options
from peakmem.allocator.settings.model import Named, ParseResult, Settings
from peakmem.allocator.settings.rounding import block_size
from peakmem.allocator.settings.version import TorchVersion
from peakmem.units import MIB, format_size


def effect(named: Named, result: ParseResult) -> str:
    """What an option does to this user."""
    words = _WORDS.get(named.option)
    if words is not None:
        return words(result.settings, result.version)
    option = options.find_ever(named.option)
    assert option is not None
    value = getattr(result.settings, option.field)
    if value is False:
        return "Off, as by default."
    return f"{option.effect[0].upper()}{option.effect[1:]}."


def _size(size: int | None) -> str:
    return "unlimited" if size is None else format_size(size, digits=0)


def _max_split(settings: Settings, version: TorchVersion) -> str:
    if settings.max_split_size is None:
        return "No limit."
    limit = _size(settings.max_split_size)
    if settings.expandable_segments:
        return (
            f"With expandable segments it no longer keeps blocks of {limit} or more whole; it only "
            "withholds free ranges of "
            "that size from smaller requests."
        )
    room = _size(settings.max_non_split_rounding)
    return (
        f"Cached blocks of {limit} or more are never split and never serve a smaller request. A request of {limit} or "
        f"more reuses one only if it is less than {room} larger. Before running out, such blocks are given back to the "
        "driver first. Larger segments are still made; this is not an upper limit."
    )


def _non_split(settings: Settings, version: TorchVersion) -> str:
    return (
        "An unsplittable cached block is reused if it is less than "
        f"{_size(settings.max_non_split_rounding)} larger than "
        "the request; what is too much of it is wasted meanwhile."
    )


def _large_segment(settings: Settings, version: TorchVersion) -> str:
    return (
        f"Requests between 1 and 10 MiB take segments of {_size(settings.large_segment_size)} from the driver "
        "(20 MiB by default); it is also the page of expandable segments."
    )


def _garbage_collection(settings: Settings, version: TorchVersion) -> str:
    return (
        "On a cache miss, unused whole segments are given back, the longest unused first, once the "
        "allocator holds more "
        f"than {settings.garbage_collection_threshold:g} of its memory limit."
    )


def _divisions(settings: Settings, version: TorchVersion) -> str:
    examples = []
    for request in (1100 * 1024, 70 * MIB, 514 * MIB, 1300 * MIB):
        block = block_size(request, settings, version=version)
        # Without the option a block is a multiple of 512 bytes, as these requests are.
        if block != request:
            examples.append(f"{format_size(request, digits=1)} becomes {format_size(block, digits=1)}")
    if not examples:
        return "Rounds none of the usual sizes."
    return f"Requests are rounded up, so that similar sizes share cached blocks: {', '.join(examples)}."


def _expandable(settings: Settings, version: TorchVersion) -> str:
    if not settings.expandable_segments:
        return "Off, as by default."
    page = _size(settings.large_segment_size)
    return (
        f"Memory is mapped page by page (2 MiB for small blocks, {page} for large ones) into one growing segment per "
        "stream, and whole free pages go back to the driver when memory is short. Freed memory serves any later size, "
        "which removes most of what is stranded when sizes vary from step to step."
    )


def _fraction(settings: Settings, version: TorchVersion) -> str:
    return (
        f"The allocator may hold at most {settings.per_process_memory_fraction:.1%} of the device's "
        "total memory (not of "
        "what is free); the CUDA context is not counted. Read once, when CUDA is initialised."
    )


def _backend(settings: Settings, version: TorchVersion) -> str:
    if settings.backend == "native":
        return "PyTorch's own caching allocator, as by default."
    return (
        "The driver's memory pool does the caching, per device: no segments, no memory snapshots, no MemPool. "
        "Fixed when torch is imported."
    )


def _threads(settings: Settings, version: TorchVersion) -> str:
    return f"{settings.pinned_num_register_threads} threads touch the pages of pinned memory before it is registered."


def _pinned_reserve(settings: Settings, version: TorchVersion) -> str:
    return (
        f"One pinned host block of {_size(settings.pinned_reserve_segment_size)} is taken at the first pinned request; "
        "later ones are carved from it. It is never given back."
    )


def _pinned_round(settings: Settings, version: TorchVersion) -> str:
    limit = _size(settings.pinned_max_round_threshold)
    return (
        f"Pinned requests above {limit} take exactly their size; up to it the next power of two (up to twice as much)."
    )


def _pinned_cached(settings: Settings, version: TorchVersion) -> str:
    limit = _size(settings.pinned_max_cached_size)
    return f"Pinned blocks above {limit} are not rounded up and go back to the system when freed."


_WORDS: dict[str, Callable[[Settings, TorchVersion], str]] = {
    "max_split_size_mb": _max_split,
    "max_non_split_rounding_mb": _non_split,
    "large_segment_size_mb": _large_segment,
    "garbage_collection_threshold": _garbage_collection,
    "roundup_power2_divisions": _divisions,
    "expandable_segments": _expandable,
    "per_process_memory_fraction": _fraction,
    "backend": _backend,
    "pinned_num_register_threads": _threads,
    "pinned_reserve_segment_size_mb": _pinned_reserve,
    "pinned_max_round_threshold_mb": _pinned_round,
    "pinned_max_cached_size_mb": _pinned_cached,
}
