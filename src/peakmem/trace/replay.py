"""Replay of a trace: how much was held at every moment, when it was most, and what was alive then.

A *moment* is a number of events that have happened: moment 0 is before the first event, moment `n` after the n-th. All
work over events is vectorised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from peakmem.trace.allocations import allocations
from peakmem.trace.roles import Action, Role
from peakmem.trace.segment_runs import add_pages, remove_pages, segment_runs, segment_table
from peakmem.trace.tables import Array, Segments

if TYPE_CHECKING:
    from peakmem.trace.model import Trace


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Timeline:
    """What a device held at every moment, in bytes; one entry more than there are events.

    Attributes:
        requested: bytes that the program asked for.
        allocated: bytes in blocks handed out.
        active: allocated, and freed blocks that wait for another stream.
        reserved: bytes in segments held from the driver.
    """

    requested: Array
    allocated: Array
    active: Array
    reserved: Array

    @property
    def stranded(self) -> Array:
        """Reserved minus active."""
        stranded: Array = self.reserved - self.active
        return stranded


@dataclass(frozen=True, kw_only=True, slots=True)
class Moment:
    """The sums at one moment, in bytes. They close: `reserved == active + stranded`, `used == context + reserved`.

    Attributes:
        index: number of events that have happened.
        requested: bytes that the program asked for.
        allocated: bytes in blocks handed out.
        active: allocated, and freed blocks that wait for another stream.
        reserved: bytes in segments held from the driver.
        context: bytes held outside the allocator, 0 if unknown.
    """

    index: int
    requested: int
    allocated: int
    active: int
    reserved: int
    context: int

    @property
    def rounding(self) -> int:
        """Allocated minus requested: what rounding up and blocks that aren't split cost."""
        return self.allocated - self.requested

    @property
    def pending(self) -> int:
        """Active minus allocated: freed, but waiting for another stream."""
        return self.active - self.allocated

    @property
    def stranded(self) -> int:
        """Reserved minus active."""
        return self.reserved - self.active

    @property
    def used(self) -> int:
        """Context plus reserved: what nvidia-smi shows for the process."""
        return self.context + self.reserved


class Replay:
    """One device of a trace over time.

    Args:
        trace: the trace.
        device: which device; by default the one that held most.
    """

    def __init__(self, trace: Trace, device: int | None = None) -> None:
        self.trace = trace
        self.allocations = allocations(trace)
        self._owner_order = np.lexsort((trace.owners.since, trace.owners.allocation))
        self.device = _busiest(trace) if device is None else device
        self.timeline = self._timeline()

    def __len__(self) -> int:
        """The number of moments."""
        return len(self.trace.events) + 1

    def _timeline(self) -> Timeline:
        events, initial, held = self.trace.events, self.trace.initial, self.trace.initial_segments
        mine = initial.take(initial.device == self.device)
        here = events.device == self.device
        given = mine.pending == 0

        def running(start: int, rises: tuple[Action, ...], falls: tuple[Action, ...], size: Array) -> Array:
            sign = np.zeros(len(Action), dtype="i8")
            sign[list(rises)] = 1
            sign[list(falls)] = -1
            change = np.concatenate([[start], size * sign[events.action] * here])
            total: Array = np.cumsum(change)
            return total

        alloc, asked, done = (Action.ALLOC,), (Action.FREE_REQUESTED,), (Action.FREE_COMPLETED,)
        return Timeline(
            requested=running(int(mine.requested[given].sum()), alloc, asked, events.size),
            allocated=running(int(mine.size[given].sum()), alloc, asked, events.block_size),
            active=running(int(mine.size.sum()), alloc, done, events.block_size),
            reserved=running(
                int(held.size[held.device == self.device].sum()),
                (Action.SEGMENT_ALLOC, Action.SEGMENT_MAP),
                (Action.SEGMENT_FREE, Action.SEGMENT_UNMAP),
                events.size,
            ),
        )

    def peak_moment(self, of: str = "allocated") -> int:
        """The first moment at which `requested`, `allocated`, `active` or `reserved` is highest."""
        return int(np.argmax(getattr(self.timeline, of)))

    def at(self, moment: int) -> Moment:
        """The sums at a moment."""
        line = self.timeline
        return Moment(
            index=moment,
            requested=int(line.requested[moment]),
            allocated=int(line.allocated[moment]),
            active=int(line.active[moment]),
            reserved=int(line.reserved[moment]),
            context=self.trace.device_info(self.device).context,
        )

    def peak(self, of: str = "allocated") -> Moment:
        """The sums at the first moment at which `of` is highest."""
        return self.at(self.peak_moment(of))

    def alive(self, moment: int, *, include_pending: bool = False) -> Array:
        """Numbers of the allocations of this device that are handed out at a moment.

        Args:
            moment: number of events that have happened.
            include_pending: whether freed blocks that wait for another stream count too.
        """
        blocks = self.allocations
        end = blocks.released if include_pending else blocks.freed
        return np.flatnonzero((blocks.born < moment) & (end >= moment) & (blocks.device == self.device))

    def owner_rows(self, moment: int) -> Array:
        """For each allocation the row of `Trace.owners` that holds at a moment, -1 if there is none."""
        owners = self.trace.owners
        order = self._owner_order
        allocation, since = owners.allocation[order], owners.since[order]
        first = np.ones(len(order), dtype=bool)
        first[1:] = allocation[1:] != allocation[:-1]
        valid = first | (since < moment)
        rows = np.full(len(self.allocations), -1, dtype="i8")
        ordered, picked = allocation[valid], order[valid]
        last = np.ones(len(ordered), dtype=bool)
        last[:-1] = ordered[1:] != ordered[:-1]
        rows[ordered[last]] = picked[last]
        return rows

    def roles(self, moment: int) -> Array:
        """For each allocation its role at a moment."""
        rows = self.owner_rows(moment)
        if not len(self.trace.owners):
            return np.zeros(len(rows), dtype="u1")
        roles: Array = np.where(rows >= 0, self.trace.owners.role[rows], np.uint8(Role.UNATTRIBUTED))
        return roles

    def by_group(self, group: Array, count: int) -> Array:
        """Allocated bytes over time for groups of allocations.

        Args:
            group: for each allocation the number of its group.
            count: how many groups there are.

        Returns:
            An array of shape (count, moments); its columns add up to `timeline.allocated`.
        """
        blocks = self.allocations
        change = np.zeros((count, len(self) + 1), dtype="i8")
        mine = blocks.device == self.device
        np.add.at(change, (group[mine], blocks.born[mine] + 1), blocks.size[mine])
        np.add.at(change, (group[mine], blocks.freed[mine] + 1), -blocks.size[mine])
        return np.cumsum(change[:, : len(self)], axis=1)

    def by_role(self) -> Array:
        """Allocated bytes over time for each `Role`; the columns add up to `timeline.allocated`."""
        series = self.by_group(self.roles(0), len(Role))
        owners, blocks, order = self.trace.owners, self.allocations, self._owner_order
        if len(order) < 2:
            return series
        allocation, since, role = owners.allocation[order], owners.since[order], owners.role[order]
        later = np.flatnonzero(allocation[1:] == allocation[:-1]) + 1
        change = np.zeros((len(Role), len(self) + 1), dtype="i8")
        which = allocation[later]
        moves = (since[later] >= blocks.born[which]) & (since[later] < blocks.freed[which])
        moves &= blocks.device[which] == self.device
        later, which = later[moves], which[moves]
        start, end = since[later] + 1, blocks.freed[which] + 1
        for rows, sign in ((role[later - 1], -1), (role[later], 1)):
            np.add.at(change, (rows, start), sign * blocks.size[which])
            np.add.at(change, (rows, end), -sign * blocks.size[which])
        series += np.cumsum(change[:, : len(self)], axis=1)
        return series

    def segments(self, moment: int) -> Segments:
        """The segments held at a moment, by address."""
        trace = self.trace
        held = trace.initial_segments
        runs = segment_runs(held.take(held.device == self.device))
        events = trace.events
        kinds = (Action.SEGMENT_ALLOC, Action.SEGMENT_FREE, Action.SEGMENT_MAP, Action.SEGMENT_UNMAP)
        rows = np.flatnonzero(np.isin(events.action[:moment], kinds) & (events.device[:moment] == self.device))
        for action, address, size, stream, stack in zip(
            events.action[rows].tolist(), events.address[rows].tolist(), events.size[rows].tolist(),
            events.stream[rows].tolist(), events.stack[rows].tolist(), strict=True,
        ):  # fmt: skip
            if action == Action.SEGMENT_ALLOC:
                add_pages(runs, address, size, stream=stream, stack=stack, expandable=0)
            elif action == Action.SEGMENT_FREE:
                runs.pop(address, None)
            elif action == Action.SEGMENT_MAP:
                add_pages(runs, address, size, stream=stream, stack=stack, expandable=1)
            else:
                remove_pages(runs, address, size)
        return segment_table(runs, self.device)


def _busiest(trace: Trace) -> int:
    """The device whose reserved memory goes highest; it is the one a reader wants to see first."""
    devices = trace.device_indices
    if len(devices) == 1:
        return devices[0]
    events, held = trace.events, trace.initial_segments
    sign = np.zeros(len(Action), dtype="i8")
    sign[[Action.SEGMENT_ALLOC, Action.SEGMENT_MAP]] = 1
    sign[[Action.SEGMENT_FREE, Action.SEGMENT_UNMAP]] = -1
    change = events.size * sign[events.action]

    def highest(device: int) -> int:
        start = int(held.size[held.device == device].sum())
        running = start + np.cumsum(change * (events.device == device))
        return max(start, int(running.max()) if len(running) else 0)

    return max(devices, key=highest)
