"""From a `Trace` to a PyTorch memory snapshot, as `torch.cuda.memory._dump_snapshot` writes it (PyTorch 2.14.1).

The page https://pytorch.org/memory_viz opens it. A snapshot has no place for roles, modules and shapes; they go as a
text into an event's `user_metadata`, a field that newer versions of PyTorch keep for a user's own notes.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from peakmem.files import atomic_write
from peakmem.trace.model import Trace
from peakmem.trace.replay import Replay
from peakmem.trace.roles import Action, ContextKind, Role
from peakmem.trace.tables import Array

_DEFAULTS: dict[str, object] = {
    "PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "garbage_collection_threshold": 0.0,
    "expandable_segments": False, "roundup_power2_divisions": {str(1 << power): 0 for power in range(16)},
}  # fmt: skip


def write_snapshot(trace: Trace, path: str | Path, *, force: bool = False) -> Path:
    """Write a trace as a PyTorch memory snapshot (pickle).

    Raises:
        PeakmemError: the file exists and `force` is false, or it can't be written.
    """
    path = Path(path)
    with atomic_write(path, force=force) as stream:
        pickle.dump(to_snapshot(trace), stream, protocol=4)
    return path


def to_snapshot(trace: Trace) -> dict[str, Any]:
    """The snapshot as plain dicts and lists. Equal stacks are one list, so the pickle stays small."""
    stacks = _stacks(trace)
    replays = [Replay(trace, device) for device in trace.device_indices]
    count = max(trace.device_indices) + 1
    events = _events(trace, replays[0], stacks)
    return {
        "segments": [segment for replay in replays for segment in _segments(replay, stacks)],
        "device_traces": [
            [events[row] for row in np.flatnonzero(trace.events.device == device).tolist()] for device in range(count)
        ],
        "allocator_settings": {**_DEFAULTS, "PYTORCH_CUDA_ALLOC_CONF": trace.meta.alloc_conf, **trace.meta.settings},
        "external_annotations": _annotations(trace),
    }


def _stacks(trace: Trace) -> list[list[dict[str, Any]]]:
    frames = [
        {"filename": frame.filename, "line": frame.line, "name": frame.function}
        for frame in map(trace.frame, range(len(trace.frames)))
    ]
    return [[frames[frame] for frame in trace.stacks[index].tolist()] for index in range(len(trace.stacks))]


def _metadata(replay: Replay) -> list[str]:
    """What each allocation is for, in words; empty if nothing is known."""
    trace = replay.trace
    rows = replay.owner_rows(len(replay) - 1).tolist()
    owners = trace.owners
    texts = []
    for row, context in zip(rows, replay.allocations.context.tolist(), strict=True):
        parts = []
        if row >= 0:
            parts.append(Role(int(owners.role[row])).title)
            parts.append(trace.strings[int(owners.name[row])])
            shape = trace.shapes[int(owners.shape[row])]
            if shape:
                parts.append(f"{trace.strings[int(owners.dtype[row])]}{list(shape)}")
        if context:
            parts.append(trace.context_name(context, ContextKind.MODULE))
        texts.append(" ".join(part for part in parts if part))
    return texts


def _events(trace: Trace, replay: Replay, stacks: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    events = trace.events
    metadata: dict[int, str] = {}
    for born, text in zip(replay.allocations.born.tolist(), _metadata(replay), strict=True):
        if text:
            metadata[born] = text
    words = [action.word for action in Action]
    made = []
    for row, (action, address, size, stream, time_us, stack) in enumerate(
        zip(
            events.action.tolist(), events.address.tolist(), events.size.tolist(), events.stream.tolist(),
            events.time_us.tolist(), events.stack.tolist(), strict=True,
        )
    ):  # fmt: skip
        event: dict[str, Any] = {"action": words[action]}
        event["device_free" if action == Action.OOM else "addr"] = address
        event |= {"size": size, "stream": stream, "time_us": time_us, "frames": stacks[stack]}
        if row in metadata:
            event["user_metadata"] = metadata[row]
        made.append(event)
    return made


def _segments(replay: Replay, stacks: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    trace, end = replay.trace, len(replay) - 1
    held = replay.segments(end)
    blocks = replay.allocations
    alive = replay.alive(end, include_pending=True)
    alive = alive[np.argsort(blocks.address[alive])]
    start = blocks.address[alive].astype("i8")
    made = []
    for row in range(len(held)):
        address, size = int(held.address[row]), int(held.size[row])
        first, last = np.searchsorted(start, [address, address + size]).tolist()
        mine = alive[first:last]
        pending = blocks.freed[mine] < end
        made.append(
            {
                "device": replay.device,
                "address": address,
                "total_size": size,
                "allocated_size": int(blocks.size[mine][~pending].sum()),
                "active_size": int(blocks.size[mine].sum()),
                "requested_size": int(blocks.requested[mine].sum()),
                "stream": int(held.stream[row]),
                "segment_type": "small" if held.small[row] else "large",
                "segment_pool_id": trace.meta.pools[int(held.pool[row])],
                "is_expandable": bool(held.expandable[row]),
                "blocks": _blocks(replay, mine, pending, address, address + size, stacks),
                "frames": stacks[int(held.stack[row])],
            }
        )
    return made


def _blocks(
    replay: Replay, rows: Array, pending: Array, start: int, end: int, stacks: list[list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    blocks = replay.allocations
    made: list[dict[str, Any]] = []
    at = start

    def free(until: int) -> None:
        if until > at:
            made.append({"address": at, "size": until - at, "requested_size": 0, "state": "inactive", "frames": []})

    for row, waits in zip(rows.tolist(), pending.tolist(), strict=True):
        address = int(blocks.address[row])
        free(address)
        made.append(
            {
                "address": address,
                "size": int(blocks.size[row]),
                "requested_size": int(blocks.requested[row]),
                "state": "active_pending_free" if waits else "active_allocated",
                "frames": stacks[int(blocks.stack[row])],
            }
        )
        at = address + int(blocks.size[row])
    free(end)
    return made


def _annotations(trace: Trace) -> list[dict[str, Any]]:
    spans, times = trace.spans, trace.events.time_us
    made = []
    for row in range(len(spans)):
        first, end = int(spans.first[row]), int(spans.end[row])
        start_us = int(spans.start_us[row]) or (int(times[min(first, len(times) - 1)]) if len(times) else 0)
        end_us = int(spans.end_us[row]) or (int(times[min(end, len(times) - 1)]) if len(times) else 0)
        name = trace.strings[int(spans.name[row])]
        if spans.kind[row] == ContextKind.STEP:
            name = f"step {int(spans.number[row]) + 1}"
        for stage, time_us in (("START", start_us), ("END", end_us)):
            made.append({"stage": stage, "name": name, "device": trace.device_indices[0], "time_us": time_us})
    return sorted(made, key=lambda mark: int(mark["time_us"]))
