"""How much room the allocator has on the card that a trace is replayed for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from peakmem.errors import PeakmemError
from peakmem.trace.roles import Action
from peakmem.units import format_size, parse_size
from peakmem.vgpu.catalogue import DEFAULT_LIKE, Device, custom_device, find_device
from peakmem.vgpu.context import estimate_context

if TYPE_CHECKING:
    from peakmem.trace.model import Trace

_NO_ROOM = "give more --memory"


@dataclass(frozen=True, kw_only=True, slots=True)
class Room:
    """A card and what the allocator can get of it.

    Attributes:
        card: the card that PyTorch is told of.
        capacity: bytes that the allocator can get; None: no limit is known.
        why: where the capacity comes from, one sentence without its end; empty if there is none.
    """

    card: Device
    capacity: int | None
    why: str = ""


def room_of(gpu: str | None, memory: str | None, *, cuda: str) -> Room:
    """The room on the card that the user names.

    Args:
        gpu: name of a card.
        memory: its total memory instead of its own.
        cuda: CUDA version of the PyTorch in question.

    Raises:
        PeakmemError: no such card, no such size, or nothing is left beside the CUDA context.
    """
    if gpu is None and memory is None:
        return Room(card=find_device(DEFAULT_LIKE), capacity=None)
    card = find_device(gpu or DEFAULT_LIKE)
    if memory is not None:
        card = custom_device(memory=parse_size(memory), like=card if gpu else None)
    context = estimate_context(card, cuda_version=cuda).size
    if context >= card.total_memory:
        raise PeakmemError(f"a card of {memory} has no room beside the CUDA context ({context:,} bytes)", hint=_NO_ROOM)
    return Room(
        card=card,
        capacity=card.total_memory - context,
        why=less_context(card.total_memory, context),
    )


def less_context(total: int, context: int) -> str:
    """Where a capacity comes from, in words; both in bytes."""
    return f"{format_size(total)} less the CUDA context (estimated: {format_size(context, digits=0)})"


def recorded_room(trace: Trace, device: int, *, reserved: int) -> Room | None:
    """The room that the trace itself tells of; None if it tells nothing.

    Args:
        trace: the trace.
        device: index of the device.
        reserved: bytes reserved when the trace ended in an out-of-memory error.
    """
    card = find_device(DEFAULT_LIKE)
    events = trace.events
    refused = (events.device == device) & (events.action == Action.OOM)
    if refused.any():
        free = int(events.address[refused][-1])  # PyTorch puts the device's free bytes there
        return Room(
            card=card, capacity=reserved + free, why="what the card had when the recorded run ran out of memory"
        )
    info = trace.device_info(device)
    if info.capacity > info.context:
        return Room(
            card=card,
            capacity=info.capacity - info.context,
            why=f"what {info.name or 'the card'} of the recorded run had for the allocator",
        )
    return None
