"""`Trace`: everything that is known about the device memory of one process, from its first event to its last."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from peakmem.trace.roles import ContextKind, Role
from peakmem.trace.tables import Blocks, Contexts, Events, Frames, Owners, Segments, Spans, Stacks


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceInfo:
    """A device as the process saw it.

    Attributes:
        index: number of the device in the process.
        name: as the driver gives it; empty if unknown.
        capacity: bytes that the process may take, `context` included; 0 if unknown.
        context: bytes that the process holds outside the allocator (see "context" in the vocabulary), 0 if unknown.
    """

    index: int = 0
    name: str = ""
    capacity: int = 0
    context: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class HostLine:
    """A line of what the host held: a sum, or a part of the sum before it.

    Attributes:
        name: what it is.
        bytes: how much.
        remark: what it consists of, or how it is known, in words.
        is_sum: whether it is a sum.
    """

    name: str
    bytes: int
    remark: str
    is_sum: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceMeta:
    """What is known about a trace as a whole.

    Attributes:
        source: `recording` (a run on the virtual GPU) or `snapshot` (imported from PyTorch's own).
        torch: version of PyTorch, empty if unknown.
        framework: the framework with its version, if it is not PyTorch.
        command: what was run, one word each; empty if unknown.
        rank: rank of the process in a distributed job, -1 if it was none.
        alloc_conf: the allocator's options as the user wrote them.
        settings: PyTorch's `allocator_settings` of a snapshot, as found (plain values), or empty.
        devices: one for each device that was seen.
        pools: ids of the allocator's pools; entry 0 is the default one.
        lost_events: whether the history began before the trace does (the ring was full), as far as can be told.
        notes: what a reader should know, one sentence each (books that do not close, parts that are not understood).
        created_us: microseconds since the epoch, 0 if unknown.
        host: what the run took of the host; empty if unknown.
    """

    source: str = "recording"
    torch: str = ""
    command: tuple[str, ...] = ()
    rank: int = -1
    alloc_conf: str = ""
    settings: dict[str, object] = field(default_factory=dict)
    devices: tuple[DeviceInfo, ...] = ()
    pools: tuple[tuple[int, int], ...] = ((0, 0),)
    lost_events: bool = False
    notes: tuple[str, ...] = ()
    created_us: int = 0
    host: tuple[HostLine, ...] = ()
    framework: str = ""


class Frame(NamedTuple):
    """A line of code: `filename:line` in `function`."""

    filename: str
    line: int
    function: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """The device memory of one process over time. Immutable; all tables are described in `peakmem.trace.tables`.

    Attributes:
        meta: what is known about the trace as a whole.
        events: what the allocator did, all devices, in order.
        initial: blocks that were handed out before the first event.
        initial_segments: segments that were held before the first event.
        frames: lines of code.
        stacks: stacks of them.
        contexts: steps, phases, modules and ops as a tree.
        owners: roles, names, shapes of allocations.
        spans: stretches of the run: steps, phases, annotations.
        strings: names; entry 0 is the empty one.
        shapes: shapes; entry 0 is the empty one and means "unknown".
    """

    meta: TraceMeta = field(default_factory=TraceMeta)
    events: Events = field(default_factory=Events.empty)
    initial: Blocks = field(default_factory=Blocks.empty)
    initial_segments: Segments = field(default_factory=Segments.empty)
    frames: Frames = field(default_factory=Frames.empty)
    stacks: Stacks = field(default_factory=Stacks.empty)
    contexts: Contexts = field(default_factory=lambda: Contexts.of({}, count=1))
    owners: Owners = field(default_factory=Owners.empty)
    spans: Spans = field(default_factory=Spans.empty)
    strings: tuple[str, ...] = ("",)
    shapes: tuple[tuple[int, ...], ...] = ((),)

    @property
    def device_indices(self) -> tuple[int, ...]:
        """The devices that have events, blocks or segments; `(0,)` if none has."""
        seen = np.unique(np.concatenate([self.events.device, self.initial.device, self.initial_segments.device]))
        return tuple(int(device) for device in seen) or (0,)

    @property
    def has_roles(self) -> bool:
        """Whether anything is attributed (a PyTorch snapshot has no roles)."""
        return bool(np.any(self.owners.role != Role.UNATTRIBUTED))

    def device_info(self, index: int) -> DeviceInfo:
        """What is known about a device; an empty description if nothing is."""
        return next((device for device in self.meta.devices if device.index == index), DeviceInfo(index=index))

    def frame(self, index: int) -> Frame:
        """One line of code by its index."""
        frames = self.frames
        filename, function = int(frames.filename[index]), int(frames.function[index])
        return Frame(self.strings[filename], int(frames.line[index]), self.strings[function])

    def stack(self, index: int) -> tuple[Frame, ...]:
        """A stack by its index, innermost frame first."""
        return tuple(self.frame(int(frame)) for frame in self.stacks[index])

    def context_chain(self, index: int) -> tuple[int, ...]:
        """A context and those around it, innermost first, without the root."""
        chain = []
        while index > 0:
            chain.append(index)
            index = int(self.contexts.parent[index])
        return tuple(chain)

    def context_name(self, index: int, kind: ContextKind) -> str:
        """Name of the innermost context of a kind at or around `index`; empty if there is none."""
        for context in self.context_chain(index):
            if self.contexts.kind[context] == kind:
                return self.strings[int(self.contexts.name[context])]
        return ""

    def context_step(self, index: int) -> int:
        """Number of the step around a context, -1 outside of steps."""
        for context in self.context_chain(index):
            if self.contexts.kind[context] == ContextKind.STEP:
                return int(self.contexts.number[context])
        return -1
