"""From the recording of a watched process to a `Trace`: every block with its role, name, module, line, phase and step.

The allocator's own history (PyTorch's snapshot) gives segments, requested sizes and stacks; the virtual GPU's log gives
exact block sizes and the context of each event. Both tell of the same blocks in the same order, for each device.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from typing import Any

import numpy as np

from peakmem.trace.attribution import Attribution
from peakmem.trace.model import DeviceInfo, Trace
from peakmem.trace.operators import Operation, operations
from peakmem.trace.recording_log import Log
from peakmem.trace.roles import Action, ContextKind
from peakmem.trace.snapshot_read import SnapshotBuilder
from peakmem.trace.tables import Array, Events, Owners, Spans

_OURS = "/peakmem/session/inside/"  # frames of the watching side say nothing of the program


def read_recording(
    recording: dict[str, Any], *, capacity: int = 0, context: int = 0, alloc_conf: str = ""
) -> Trace | None:
    """Make the trace of one process.

    Args:
        recording: what `session/inside/recording.py` wrote.
        capacity: bytes that the process could take of a device, `context` included.
        context: bytes that it held outside the allocator.
        alloc_conf: the allocator settings in force.

    Returns:
        The trace; None if the process kept no history.
    """
    if not recording.get("snapshot"):
        return None
    return _Reader(recording).trace(capacity=capacity, context=context, alloc_conf=alloc_conf)


class _Stacks(SnapshotBuilder):
    """A snapshot whose frames and stacks are shared objects, as unpickling one written by PyTorch gives them."""

    def __init__(self) -> None:
        super().__init__()
        self._frames: dict[int, int] = {}
        self._known: dict[tuple[int, ...], int] = {}

    def add_stack(self, frames: Any) -> int:
        if not frames:
            return 0
        key = tuple(map(id, frames))
        found = self._known.get(key)
        if found is None:
            frames = [frame for frame in frames if _OURS not in frame["filename"]]
            found = self._known[key] = self.interner.stack([self._frame(frame) for frame in frames])
        return found

    def _frame(self, frame: Any) -> int:
        found = self._frames.get(id(frame))
        if found is None:
            found = self._frames[id(frame)] = self.add_frame(frame)
        return found


class _Reader:
    def __init__(self, recording: dict[str, Any]) -> None:
        self._recording = recording
        self._log = Log(recording)
        self._builder = _Stacks()
        self._interner = self._builder.interner
        self._ran = operations(self._log)
        self._contexts: list[tuple[int, str, str]] = [tuple(row) for row in recording["contexts"]]
        self._step_ends: list[int] = [step["end"] for step in recording["steps"]]
        self._chains: dict[int, tuple[str, tuple[str, ...], str]] = {}

    def trace(self, *, capacity: int, context: int, alloc_conf: str) -> Trace:
        trace = self._builder.build(self._recording["snapshot"], name="the recording")
        row_of, notes = self._match(trace.events)
        log_of = _log_positions(row_of, len(trace.events))
        events = self._events(trace.events, row_of, log_of)
        owners = self._owners(trace, row_of)
        spans = self._spans(row_of, len(events))
        devices = tuple(
            DeviceInfo(index=index, name=device["name"], capacity=capacity, context=context)
            for index, device in enumerate(self._recording["devices"])
        )
        meta = replace(
            trace.meta,
            source="recording",
            torch=self._recording["torch"],
            command=tuple(self._recording["command"]),
            alloc_conf=alloc_conf,
            devices=devices,
            notes=(*trace.meta.notes, *notes),
        )
        interner = self._interner
        return replace(
            trace,
            meta=meta,
            events=events,
            owners=owners,
            spans=spans,
            contexts=interner.contexts,
            strings=interner.strings,
            shapes=interner.shapes,
        )

    # ------------------------------------------------------------- two histories

    def _match(self, events: Events) -> tuple[Array, list[str]]:
        """For each event of the log the row of the same event in the trace, -1 if there is none; and what is odd."""
        log = self._log.events
        row_of = np.full(len(log), -1, dtype="i8")
        odd = 0
        told = np.isin(events.action, (Action.ALLOC, Action.FREE_REQUESTED))
        for device in np.unique(log["device"]).tolist():
            rows = np.flatnonzero(told & (events.device == device))
            mine = np.flatnonzero(log["device"] == device)
            count = min(len(rows), len(mine))
            odd += max(len(rows), len(mine)) - count
            rows, mine = rows[:count], mine[:count]
            odd += int(np.count_nonzero(events.address[rows] != log["address"][mine]))
            row_of[mine] = rows
        notes = [f"{odd:,} events of PyTorch's history and of the virtual GPU's log don't agree"] if odd else []
        if failure := self._recording.get("owners_failure"):
            notes.append(f"roles are incomplete, since looking at tensors failed in {failure}")
        return row_of, notes

    def _events(self, events: Events, row_of: Array, log_of: Array) -> Events:
        log = self._log.events
        block_size = events.block_size.copy()
        known = row_of >= 0
        block_size[row_of[known]] = np.abs(log["size"][known])
        self._size_releases(events, block_size)
        contexts = np.zeros(len(log) + 1, dtype="i4")
        contexts[: len(log)] = self._event_contexts()
        return replace(events, block_size=block_size, context=contexts[log_of])

    @staticmethod
    def _size_releases(events: Events, block_size: Array) -> None:
        """A block that returns to its pool has the size that it was handed out with."""
        rows = np.flatnonzero(np.isin(events.action, (Action.ALLOC, Action.FREE_COMPLETED)))
        live: dict[tuple[int, int], int] = {}
        for row, action, address, device in zip(
            rows.tolist(), events.action[rows].tolist(), events.address[rows].tolist(),
            events.device[rows].tolist(), strict=True,
        ):  # fmt: skip
            if action == Action.ALLOC:
                live[address, device] = int(block_size[row])
            else:
                block_size[row] = live.pop((address, device), int(block_size[row]))

    # ------------------------------------------------------------------ contexts

    def _event_contexts(self) -> list[int]:
        """For each event of the log its context in the trace: step, phase, modules, operator."""
        phases = _phases(self._recording["marks"], self._in_module(), len(self._log.events))
        made: dict[tuple[int, str, int, str], int] = {}
        result = []
        step = 0
        ends = self._step_ends
        for event, number in enumerate(self._log.events["context"].tolist()):
            while step < len(ends) and event >= ends[step]:
                step += 1
            operator = _operator(self._ran[event], self._chain(number)[2])
            key = (step, phases[event], number, operator)
            context = made.get(key)
            if context is None:
                context = made[key] = self._context(*key)
            result.append(context)
        return result

    def _context(self, step: int, phase: str, number: int, operator: str) -> int:
        interner = self._interner
        context = interner.context(0, ContextKind.STEP, "step", step)
        _, modules, _ = self._chain(number)
        context = interner.context(context, ContextKind.PHASE, phase)
        for module in modules:
            context = interner.context(context, ContextKind.MODULE, module)
        return interner.context(context, ContextKind.OP, operator) if operator else context

    def _chain(self, number: int) -> tuple[str, tuple[str, ...], str]:
        """Phase, modules from the outermost on, and node of a context of the recording."""
        found = self._chains.get(number)
        if found is None:
            parent, kind, name = self._contexts[number]
            phase, modules, node = self._chain(parent) if number else ("", (), "")
            if kind == "module":
                modules = (*modules, name)
            elif kind == "phase":
                phase = name
            elif kind in ("node", "op"):
                node = name
            found = self._chains[number] = (phase, modules, node)
        return found

    def _in_module(self) -> list[bool]:
        return [bool(self._chain(number)[1]) for number in self._log.events["context"].tolist()]

    # -------------------------------------------------------------------- owners

    def _owners(self, trace: Trace, row_of: Array) -> Owners:
        attribution = Attribution(self._recording, self._log, self._ran, self._in_module())
        interner = self._interner
        births = np.flatnonzero(trace.events.action == Action.ALLOC)
        number_of = np.full(len(trace.events) + 1, -1, dtype="i8")
        number_of[births] = np.arange(len(births)) + len(trace.initial)
        columns: dict[str, list[int]] = {name: [] for name in Owners.DTYPES}
        rows = []
        for life in self._log.lives:
            row = int(row_of[life.born])
            if row < 0:
                continue
            for owner in attribution.of(life):
                if owner.since >= len(row_of):  # nothing has happened since
                    continue
                since = int(row_of[owner.since]) if owner.since else 0
                title, dtype = interner.string(owner.name or owner.owner), interner.string(owner.dtype)
                rows.append((int(number_of[row]), since, int(owner.role), title, interner.shape(owner.shape), dtype))
        rows.sort()
        for values in rows:
            for name, value in zip(columns, values, strict=True):
                columns[name].append(value)
        return Owners.of(columns)

    # --------------------------------------------------------------------- spans

    def _spans(self, row_of: Array, count: int) -> Spans:
        def row_after(event: int) -> int:
            """The row from which on `event` events of the log have happened."""
            known = row_of[:event]
            return int(known[-1]) + 1 if len(known) else 0

        rows: list[dict[str, int]] = []
        start = 0
        for number, end in enumerate(self._step_ends):
            name = self._interner.string("step")
            rows.append(
                {
                    "kind": ContextKind.STEP,
                    "name": name,
                    "number": number,
                    "first": row_after(start),
                    "end": row_after(end),
                }
            )
            start = end
        phases = _phases(self._recording["marks"], self._in_module(), len(self._log.events))
        ends = set(self._step_ends)
        first = 0
        for event in range(1, len(phases) + 1):
            if event < len(phases) and phases[event] == phases[first] and event not in ends:
                continue
            if phases[first] != "other":
                step = bisect_right(self._step_ends, first)
                rows.append(
                    {
                        "kind": ContextKind.PHASE, "name": self._interner.string(phases[first]),
                        "number": step if step < len(self._step_ends) else -1,
                        "first": row_after(first), "end": min(row_after(event), count),
                    }
                )  # fmt: skip
            first = event
        return Spans.from_rows(sorted(rows, key=lambda row: (row["first"], -row["end"])))


def _operator(ran: Operation, node: str) -> str:
    return node or ran.node or ran.outer


def _log_positions(row_of: Array, rows: int) -> Array:
    """For each row of the trace the event of the log that it belongs to: segments belong to the next block."""
    known = np.flatnonzero(row_of >= 0)
    order = known[np.argsort(row_of[known], kind="stable")]
    following = np.searchsorted(row_of[order], np.arange(rows), side="left")
    return np.append(order, len(row_of))[following]


def _phases(marks: list[Any], in_module: list[bool], count: int) -> list[str]:
    """For each event of the log the phase: marks tell of two of them, the first module begins a forward pass."""
    phases: list[str] = []
    position, forward = 0, False
    inside: list[str] = []  # an optimizer's closure may hold a whole step
    for event in range(count):
        while position < len(marks) and marks[position][0] <= event:
            kind = marks[position][1]
            position += 1
            if kind in ("backward", "optimizer"):
                inside.append(kind)
            elif kind in ("backward_end", "optimizer_end"):
                forward = False
                if inside:
                    inside.pop()
        if inside == ["optimizer"] and in_module[event]:
            phases.append("forward")
        elif inside:
            phases.append(inside[-1])
        else:
            forward = forward or in_module[event]
            phases.append("forward" if forward else "other")
    return phases
