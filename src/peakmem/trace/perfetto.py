"""From a `Trace` to a Chrome trace (JSON), which https://ui.perfetto.dev and chrome://tracing open.

Counter tracks: allocated, active, reserved, and allocated by role. Slices: steps, phases, annotations. Times are in
microseconds from the first event; events without times are one microsecond apart.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from peakmem.files import atomic_write
from peakmem.trace.model import Trace
from peakmem.trace.replay import Replay
from peakmem.trace.roles import Action, ContextKind, Role
from peakmem.trace.tables import Array

_TRACKS = {ContextKind.STEP: (1, "steps"), ContextKind.PHASE: (2, "phases"), ContextKind.ANNOTATION: (3, "annotations")}


def write_perfetto(trace: Trace, path: str | Path, *, force: bool = False) -> Path:
    """Write a trace as Chrome trace JSON.

    Raises:
        PeakmemError: the file exists and `force` is false, or it can't be written.
    """
    path = Path(path)
    with atomic_write(path, force=force) as stream:
        stream.write(msgspec.json.encode(to_perfetto(trace)))
    return path


def to_perfetto(trace: Trace) -> dict[str, Any]:
    """The trace as the Chrome trace format's JSON object."""
    times = event_times(trace)
    made: list[dict[str, Any]] = []
    for device in trace.device_indices:
        info = trace.device_info(device)
        made.append(_name("process_name", device, 0, f"cuda:{device} {info.name}".strip()))
        for number, title in _TRACKS.values():
            made.append(_name("thread_name", device, number, title))
        made.extend(_counters(Replay(trace, device), times))
        made.extend(_slices(trace, device, times))
        made.extend(_marks(trace, device, times))
    return {
        "traceEvents": made,
        "displayTimeUnit": "ms",
        "otherData": {"source": "peakmem", "torch": trace.meta.torch, "command": " ".join(trace.meta.command)},
    }


def event_times(trace: Trace) -> Array:
    """Microseconds from the first event for each moment, never falling; one apart where the trace has no times."""
    known = trace.events.time_us
    if not len(known) or not known.any():
        return np.arange(len(known) + 1, dtype="i8")
    rising = np.maximum.accumulate(known)
    return np.concatenate([[0], rising - rising[0]])


def _name(kind: str, process: int, thread: int, title: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": title}}


def _counters(replay: Replay, times: Array) -> list[dict[str, Any]]:
    """Counter samples, one wherever a value changed and the clock moved on."""
    line, device = replay.timeline, replay.device
    last = np.append(times[1:] != times[:-1], [True])  # of several moments at one time the last one is drawn
    tracks: list[tuple[str, dict[str, Array]]] = [
        (name, {"bytes": getattr(line, name)}) for name in ("allocated", "active", "reserved")
    ]
    if replay.trace.has_roles:
        series = replay.by_role()
        tracks.append(("by role", {role.word: series[role] for role in Role if series[role].any()}))
    made = []
    for name, values in tracks:
        stacked = np.stack([column[last] for column in values.values()])
        at = times[last]
        changed = np.ones(len(at), dtype=bool)
        changed[1:] = np.any(stacked[:, 1:] != stacked[:, :-1], axis=0)
        rows = stacked[:, changed].T.tolist()
        for time, row in zip(at[changed].tolist(), rows, strict=True):
            made.append(
                {
                    "ph": "C",
                    "name": name,
                    "pid": device,
                    "tid": 0,
                    "ts": time,
                    "args": dict(zip(values, row, strict=True)),
                }
            )
    return made


def _slices(trace: Trace, device: int, times: Array) -> list[dict[str, Any]]:
    spans = trace.spans
    made = []
    for row in range(len(spans)):
        kind = ContextKind(int(spans.kind[row]))
        first, end = int(spans.first[row]), int(spans.end[row])
        name = trace.strings[int(spans.name[row])]
        if kind is ContextKind.STEP:
            name = f"step {int(spans.number[row]) + 1}"
        start, stop = int(times[min(first + 1, len(times) - 1)]), int(times[min(max(end, first), len(times) - 1)])
        made.append(
            {
                "ph": "X", "name": name, "cat": kind.name.lower(), "pid": device, "tid": _TRACKS[kind][0], "ts": start,
                "dur": max(stop - start, 0), "args": {"first_event": first, "end_event": end},
            }
        )  # fmt: skip
    return made


def _marks(trace: Trace, device: int, times: Array) -> list[dict[str, Any]]:
    """Out-of-memory errors as instants."""
    events = trace.events
    rows = np.flatnonzero((events.action == Action.OOM) & (events.device == device))
    return [
        {
            "ph": "i", "s": "p", "name": "out of memory", "pid": device, "tid": 0, "ts": int(times[row + 1]),
            "args": {"requested": int(events.size[row]), "device_free": int(events.address[row])},
        }
        for row in rows.tolist()
    ]  # fmt: skip
