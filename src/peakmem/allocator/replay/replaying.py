"""Replay a trace under allocator settings, and find its floor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from peakmem.allocator.replay.machine import Answer, Engine, Machine, Start
from peakmem.allocator.replay.model import POINTS, Curve, Floor, RanOut, Replayed
from peakmem.allocator.replay.requests import FREE, requests_of
from peakmem.allocator.settings import TorchVersion, parse
from peakmem.errors import PeakmemError
from peakmem.trace.roles import ContextKind
from peakmem.trace.tables import Array
from peakmem.trace.where import explain_stack

if TYPE_CHECKING:
    from peakmem.allocator.settings import Settings
    from peakmem.trace.model import Trace
    from peakmem.vgpu.launch import DeviceFacts
    from peakmem.vgpu.probe import TorchFacts


class Replayer:
    """Replays one device of a trace. Use as a context manager.

    Args:
        trace: the trace.
        facts: the PyTorch that replays.
        card: the card that it is told of; its memory is a limit only where a capacity says so.
        device: index of the device in the trace; by default the one that held most.
        engine: a process to use, which the caller ends; by default one of its own.

    Raises:
        PeakmemError: there is nothing to replay, or the virtual GPU can't be started.
    """

    def __init__(
        self,
        trace: Trace,
        *,
        facts: TorchFacts,
        card: DeviceFacts,
        device: int | None = None,
        engine: Engine | None = None,
    ) -> None:
        self.trace = trace
        self.requests = requests_of(trace, device=device)
        self.version = TorchVersion.parse(facts.version)
        self.facts = facts
        self._card = card
        self._engines: list[Engine] = []
        self._machines = {"native": Machine(self.requests, engine or self._engine())}

    def _engine(self, backend: str = "") -> Engine:
        self._engines.append(Engine(facts=self.facts, card=self._card, backend=backend))
        return self._engines[-1]

    def __enter__(self) -> Replayer:
        return self

    def __exit__(self, *error: object) -> None:
        for engine in self._engines:
            engine.close()

    def settings(self, alloc_conf: str) -> Settings:
        """The settings that a string means to this PyTorch.

        Raises:
            PeakmemError: PyTorch refuses the string.
        """
        return parse(alloc_conf, version=self.version).require()

    def replay(self, alloc_conf: str, *, capacity: int | None = None, exact_start: bool | None = None) -> Replayed:
        """Replay once.

        Args:
            alloc_conf: the settings.
            capacity: bytes that the allocator can get (the card's memory without the context); None: no limit.
            exact_start: whether the memory at the start is put as it was recorded; by default if the settings are those
                of the trace.

        Raises:
            PeakmemError: PyTorch refuses the settings.
        """
        settings = self.settings(alloc_conf)
        start = self._start(settings, exact_start=exact_start)
        answer = self._for(settings).replay(alloc_conf, start=start, capacity=capacity)
        return self._replayed(alloc_conf, answer, capacity=capacity, start=start)

    def floor(self, alloc_conf: str, *, exact_start: bool | None = None) -> Floor:
        """Find the smallest capacity that works, on a grid of 2 MiB.

        Raises:
            PeakmemError: PyTorch refuses the settings.
        """
        settings = self.settings(alloc_conf)
        share = settings.per_process_memory_fraction
        fields = self._for(settings).floor(
            alloc_conf, start=self._start(settings, exact_start=exact_start), fraction=share if 0 < share < 1 else None
        )
        return Floor(
            alloc_conf=alloc_conf,
            size=fields["floor"],
            reserved=fields.get("reserved", 0),
            active=fields.get("active", 0),
            runs=fields["runs"],
            seconds=fields["seconds"],
        )

    def is_as_recorded(self, alloc_conf: str) -> bool:
        """Whether a string means the settings of the trace."""
        return self._recorded_settings() == self.settings(alloc_conf)

    def _recorded_settings(self) -> Settings | None:
        result = parse(self.trace.meta.alloc_conf, version=self.version)
        return result.settings if result.accepted else None

    def _start(self, settings: Settings, *, exact_start: bool | None) -> Start:
        if exact_start is None:
            exact_start = self._recorded_settings() == settings
        expandable = bool(np.any(self.trace.initial_segments.expandable))
        return Start(exact=exact_start and settings.backend == "native", expandable=expandable)

    def _for(self, settings: Settings) -> Machine:
        if settings.backend not in self._machines:
            self._machines[settings.backend] = Machine(self.requests, self._engine(settings.backend))
        return self._machines[settings.backend]

    def _replayed(self, alloc_conf: str, answer: Answer, *, capacity: int | None, start: Start) -> Replayed:
        fields, log = answer.fields, answer.log
        assert log is not None
        done = self._rows_done(fields)
        # The log has one entry for each block handed out or taken back, in the order of the rows; blocks that gave way
        # for want of memory come before their row, so the two can be out of step by those few.
        reserved = log["reserved"].astype("i8")
        active = log["allocated"].astype("i8")
        events = self.requests.event[done][: len(log)]
        stranded = reserved - active
        at = int(np.argmax(reserved)) if len(log) else 0
        return Replayed(
            alloc_conf=alloc_conf,
            torch=fields["torch"],
            capacity=capacity,
            exact_start=start.exact and bool(len(self.requests.layout)),
            reserved=fields["peak"]["reserved_bytes"],
            active=fields["peak"]["active_bytes"],
            stranded=int(stranded[at]) if len(log) else 0,
            at=int(events[min(at, len(events) - 1)]) if len(events) else -1,
            most_stranded=int(stranded.max()) if len(log) else 0,
            end_reserved=fields["end"]["reserved_bytes"],
            segments=fields["peak"]["segment"],
            device_allocs=fields["device_allocs"],
            retries=fields["retries"],
            ran_out=self._ran_out(fields),
            curve=self._curve(reserved, active, events),
            requests=len(self.requests),
            seconds=fields["seconds"],
        )

    def _rows_done(self, fields: dict[str, object]) -> Array:
        """The rows that have an entry in the log."""
        rows = np.arange(self.requests.prologue, len(self.requests.slot))
        refused = fields["refused"]
        if isinstance(refused, dict):
            rows = rows[: max(int(refused["row"]) - self.requests.prologue, 0)]
        return rows[self.requests.size[rows] >= FREE]

    def _curve(self, reserved: Array, active: Array, events: Array) -> Curve:
        last = max(len(self.trace.events), 1)
        count = min(len(reserved), len(events))
        bins = np.minimum(events[:count] * POINTS // last, POINTS - 1)
        curves = []
        for values in (reserved[:count], active[:count]):
            highest = np.full(POINTS, -1, dtype="i8")
            np.maximum.at(highest, bins, values)
            # A stretch without a request is as it was before; after the end of a replay there is nothing.
            known = np.maximum.accumulate(np.where(highest >= 0, np.arange(POINTS), 0))
            curve = np.where(highest[known] >= 0, highest[known], 0)
            curves.append(curve[: int(bins[-1]) + 1] if count else curve[:0])
        return Curve(reserved=curves[0], active=curves[1])

    def _ran_out(self, fields: dict[str, object]) -> RanOut | None:
        refused, end = fields["refused"], fields["end"]
        if not isinstance(refused, dict):
            return None
        assert isinstance(end, dict)
        found = RanOut(
            event=-1,
            requested=int(refused["size"]),
            reserved=int(end["reserved_bytes"]),
            active=int(end["active_bytes"]),
            text=str(refused["text"]),
        )
        if refused["row"] < self.requests.prologue:
            return found
        event = int(self.requests.event[refused["row"]])
        return place(self.trace, found, event)


def place(trace: Trace, found: RanOut, event: int) -> RanOut:
    """Say where in the program an event of the trace happened."""
    from dataclasses import replace

    context = int(trace.events.context[event])
    where = explain_stack(trace.stack(int(trace.events.stack[event])))
    return replace(
        found,
        event=event,
        step=trace.context_step(context),
        module=trace.context_name(context, ContextKind.MODULE),
        op=where.node or where.op or trace.context_name(context, ContextKind.OP),
        where=where.short,
    )


def floor(
    trace: Trace,
    *,
    alloc_conf: str,
    facts: TorchFacts,
    card: DeviceFacts,
    device: int | None = None,
) -> int:
    """The smallest capacity at which a trace ends without an out-of-memory error.

    Args:
        trace: the trace.
        alloc_conf: the allocator's settings.
        facts: the PyTorch that replays.
        card: the card that PyTorch is told of; its memory is no limit.
        device: index of the device in the trace; by default the one that held most.

    Returns:
        Bytes that the allocator must be able to get, a multiple of 2 MiB; the CUDA context comes on top.

    Raises:
        PeakmemError: there is nothing to replay, PyTorch refuses the settings, or no capacity is enough.
    """
    with Replayer(trace, facts=facts, card=card, device=device) as replayer:
        found = replayer.floor(alloc_conf)
    if found.size is None:
        raise PeakmemError("the trace has a request that no device can serve", hint="look for a size that overflowed")
    return found.size
