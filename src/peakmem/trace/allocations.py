"""Every block of a trace over its life. All work over events is vectorised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from peakmem.trace.roles import Action
from peakmem.trace.tables import Array, Table

if TYPE_CHECKING:
    from peakmem.trace.model import Trace


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Allocations(Table):
    """Every block of a trace over its life, numbered as `Owners.allocation` counts (all devices).

    Attributes:
        address: of the block.
        size: bytes after rounding and splitting.
        requested: bytes that the program asked for.
        stream: handle of the stream.
        device: index of the device.
        stack: where it was allocated, index in `Trace.stacks`.
        context: where in the program it was allocated, index in `Trace.contexts`.
        born: the event that handed it out, -1 if it was there before the first event.
        freed: the event by which the program gave it back, the number of events if it never did.
        released: the event from which it could be used again, the number of events if there was none.
    """

    DTYPES: ClassVar[dict[str, str]] = {
        "address": "u8", "size": "i8", "requested": "i8", "stream": "i8", "device": "i2", "stack": "i4",
        "context": "i4", "born": "i8", "freed": "i8", "released": "i8",
    }  # fmt: skip
    address: Array
    size: Array
    requested: Array
    stream: Array
    device: Array
    stack: Array
    context: Array
    born: Array
    freed: Array
    released: Array


def allocations(trace: Trace) -> Allocations:
    """Follow every block from its allocation to its release."""
    events, initial = trace.events, trace.initial
    count, before = len(events), len(initial)
    births = np.flatnonzero(events.action == Action.ALLOC)
    born = np.concatenate([np.full(before, -1, dtype="i8"), births])
    address = np.concatenate([initial.address, events.address[births]])
    device = np.concatenate([initial.device, events.device[births]])
    key_of, keys = _keys(address, device, events.address, events.device)
    # Places in the history of one address are ordered by (address, event): the next birth there ends a life.
    span = count + 2
    places = key_of * span + born + 1
    order = np.argsort(places, kind="stable")
    ends = np.empty(len(places), dtype="i8")
    ends[order] = np.append(places[order][1:], np.iinfo("i8").max)
    same = np.minimum(ends, (key_of + 1) * span)

    def first_after(action: Action) -> Array:
        rows = np.flatnonzero(events.action == action)
        marks = np.sort(keys[rows] * span + rows + 1)
        found = np.searchsorted(marks, places, side="right")
        place = np.append(marks, np.iinfo("i8").max)[found]
        at: Array = np.where(place < same, place - key_of * span - 1, count)
        return at

    released = first_after(Action.FREE_COMPLETED)
    freed = np.minimum(first_after(Action.FREE_REQUESTED), released)
    freed[:before][initial.pending == 1] = -1
    return Allocations.of(
        {
            "address": address,
            "size": np.concatenate([initial.size, events.block_size[births]]),
            "requested": np.concatenate([initial.requested, events.size[births]]),
            "stream": np.concatenate([initial.stream, events.stream[births]]),
            "device": device,
            "stack": np.concatenate([initial.stack, events.stack[births]]),
            "context": np.concatenate([np.zeros(before, dtype="i4"), events.context[births]]),
            "born": born,
            "freed": freed,
            "released": released,
        }
    )


def _keys(address: Array, device: Array, all_addresses: Array, all_devices: Array) -> tuple[Array, Array]:
    """Small numbers for pairs of address and device: of the first two arrays, and of the second two."""
    pairs = np.concatenate([address, all_addresses]).astype("u8")
    devices = np.concatenate([device, all_devices])
    if len(devices) and devices.min() != devices.max():  # user addresses use 47 to 57 bits, so 7 bits are free
        pairs = pairs ^ (devices.astype("u8") << np.uint64(57))
    numbers = np.unique(pairs, return_inverse=True)[1].reshape(-1).astype("i8")
    return numbers[: len(address)], numbers[len(address) :]
