"""From the recording of a TensorFlow process to a `Trace`: every chunk with its role, name, layer, phase and step."""

from __future__ import annotations

from typing import Any

import numpy as np

from peakmem.trace.builder import Interner
from peakmem.trace.model import DeviceInfo, Trace, TraceMeta
from peakmem.trace.recording_log import Log
from peakmem.trace.roles import Action, ContextKind
from peakmem.trace.tables import Array, Events, Owners, Spans
from peakmem.trace.tensorflow_attribution import TensorflowAttribution
from peakmem.trace.tensorflow_log import TensorflowLog

PHASES = ("forward", "backward", "optimizer")


def read_tensorflow_recording(recording: dict[str, Any], *, capacity: int = 0, context: int = 0) -> Trace | None:
    """Make the trace of one process.

    Args:
        recording: what `session/inside/tensorflow.py` wrote.
        capacity: bytes that the process could take of a device, `context` included.
        context: bytes that it held outside the allocator.

    Returns:
        The trace; None if the process kept no history (or used another allocator than TensorFlow's own).
    """
    if not recording["events"] or not recording["tensorflow"]["chunks"]:
        return None
    return _Reader(recording).trace(capacity=capacity, context=context)


class _Reader:
    def __init__(self, recording: dict[str, Any]) -> None:
        self._recording = recording
        self._log = Log(recording)
        self._told = TensorflowLog(recording["tensorflow"])
        self._step_ends: list[int] = [step["end"] for step in recording["steps"]]
        self._eager = [kind_name(recording["contexts"], number) for number in range(len(recording["contexts"]))]
        self._phases = self._event_phases()
        self._interner = Interner()

    def trace(self, *, capacity: int, context: int) -> Trace:
        recording, interner = self._recording, self._interner
        events, row_of = self._events()
        owners = self._owners(row_of)
        spans = self._spans(row_of)
        failure = recording["tensorflow"]["failure"]
        meta = TraceMeta(
            source="recording",
            framework=recording["framework"],
            command=tuple(recording["command"]),
            devices=tuple(
                DeviceInfo(index=index, name=device["name"], capacity=capacity, context=context)
                for index, device in enumerate(recording["devices"])
            ),
            notes=(f"roles are incomplete, since looking at variables failed: {failure}",) if failure else (),
        )
        return Trace(
            meta=meta,
            events=events,
            owners=owners,
            spans=spans,
            contexts=interner.contexts,
            strings=interner.strings,
            shapes=interner.shapes,
        )

    def _event_phases(self) -> list[str]:
        """For each event its phase: of the function that was running, or by the operator's name; else empty."""
        contexts = self._log.events["context"].tolist()
        return [self._eager[context] or self._told.operator(event).phase for event, context in enumerate(contexts)]

    def _events(self) -> tuple[Events, Array]:
        """The events of the trace, and for each event of the log the row of the same event."""
        log, told = self._log.events, self._told
        columns: dict[str, list[int]] = {
            name: [] for name in ("action", "address", "size", "block_size", "device", "context")
        }
        row_of = np.zeros(len(log), dtype="i8")
        regions = told.regions.tolist()
        position, step = 0, 0

        def add(*values: int) -> None:
            for column, value in zip(columns.values(), values, strict=True):
                column.append(value)

        rows = zip(
            log["address"].tolist(), log["size"].tolist(), log["device"].tolist(), told.chunks["requested"].tolist(),
            strict=True,
        )  # fmt: skip
        for event, (address, size, device, requested) in enumerate(rows):
            while step < len(self._step_ends) and event >= self._step_ends[step]:
                step += 1
            context = self._context(step, event)
            while position < len(regions) and regions[position][0] <= event:
                _, start, length, where, _ = regions[position]
                position += 1
                add(Action.SEGMENT_ALLOC if length > 0 else Action.SEGMENT_FREE, start, abs(length), 0, where, context)
            row_of[event] = len(columns["action"])
            if size > 0:
                add(Action.ALLOC, address, requested, size, device, context)
            else:
                add(Action.FREE_REQUESTED, address, requested, -size, device, context)
                add(Action.FREE_COMPLETED, address, requested, -size, device, context)
        for _, start, length, where, _ in regions[position:]:
            add(Action.SEGMENT_ALLOC if length > 0 else Action.SEGMENT_FREE, start, abs(length), 0, where, 0)
        return Events.of(columns), row_of

    def _context(self, step: int, event: int) -> int:
        interner, operator = self._interner, self._told.operator(event)
        context = interner.context(0, ContextKind.STEP, "step", step)
        context = interner.context(context, ContextKind.PHASE, self._phases[event] or "other")
        if operator.module:
            context = interner.context(context, ContextKind.MODULE, operator.module)
        name = operator.type or operator.name
        return interner.context(context, ContextKind.OP, name) if name else context

    def _owners(self, row_of: Array) -> Owners:
        attribution = TensorflowAttribution(self._recording, self._log, self._told, self._phases)
        interner = self._interner
        columns: dict[str, list[int]] = {name: [] for name in Owners.DTYPES}
        for life in self._log.lives:  # in the order of their birth, as `Owners.allocation` counts
            for owner in attribution.of(life):
                if owner.since >= len(row_of):
                    continue
                values = (
                    life.number,
                    int(row_of[owner.since]) if owner.since else 0,
                    int(owner.role),
                    interner.string(owner.name),
                    interner.shape(owner.shape),
                    interner.string(owner.dtype),
                )
                for name, value in zip(columns, values, strict=True):
                    columns[name].append(value)
        return Owners.of(columns)

    def _spans(self, row_of: Array) -> Spans:
        """Steps, and in each step its phases from the first event of one to the first of the next.

        Operators run as soon as they can: in a function that updates each weight once its gradient is there, the last
        phase begins when the backward pass has come to its end.
        """
        interner = self._interner

        def row_after(event: int) -> int:
            return int(row_of[event - 1]) + 1 if event else 0

        def row(kind: ContextKind, name: str, number: int, first: int, end: int) -> dict[str, int]:
            return {
                "kind": kind, "name": interner.string(name), "number": number, "first": row_after(first),
                "end": row_after(end),
            }  # fmt: skip

        rows = []
        start = 0
        for number, end in enumerate(self._step_ends):
            rows.append(row(ContextKind.STEP, "step", number, start, end))
            rows += [row(ContextKind.PHASE, name, number, first, last) for name, first, last in
                     phases_between(self._phases, start, end)]  # fmt: skip
            start = end
        return Spans.from_rows(sorted(rows, key=lambda one: (one["first"], -one["end"])))


def kind_name(contexts: list[Any], number: int) -> str:
    """The phase of a context of the recording; empty if it has none."""
    while number:
        number, kind, name = contexts[number]
        if kind == "phase":
            return str(name)
    return ""


def phases_between(phases: list[str], start: int, end: int) -> list[tuple[str, int, int]]:
    """(name, first event, event after the last) of the phases of a step."""
    first = {name: next((e for e in range(start, end) if phases[e] == name), None) for name in PHASES}
    backward = [e for e in range(start, end) if phases[e] == "backward"]
    found = []
    if first["forward"] is not None:
        found.append(("forward", first["forward"], backward[0] if backward else end))
    if backward:
        found.append(("backward", backward[0], backward[-1] + 1))
    later = backward[-1] + 1 if backward else first["optimizer"]
    if first["optimizer"] is not None and later is not None and later < end:
        found.append(("optimizer", later, end))
    return [(name, begin, last) for name, begin, last in found if begin < last]
