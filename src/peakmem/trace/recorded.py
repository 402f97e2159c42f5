"""The recording of one watched process, seen through its event log: where in the program each block was taken.

The recording is what `session/inside/recording.py` wrote; the events are `struct peakmem_event` of the virtual GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

EVENT = np.dtype(
    [
        ("address", "<u8"),
        ("size", "<i8"),
        ("allocated", "<u8"),
        ("reserved", "<u8"),
        ("context", "<u4"),
        ("device", "<u2"),
        ("thread", "<u2"),
    ]
)
"""`struct peakmem_event` (vgpu/native/control.h)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where in the program something happened.

    Attributes:
        step: number of the training step, from 0; None after the last.
        phase: "forward", "backward", "optimizer" or "other".
        op: name of the autograd node or operator, if known.
        module: path of the module, if known.
    """

    step: int | None
    phase: str
    op: str | None
    module: str | None


class Recorded:
    """A recording with its event log as an array."""

    def __init__(self, recording: dict[str, Any]) -> None:
        self.recording = recording
        self.events: npt.NDArray[Any] = np.frombuffer(recording["events"], dtype=EVENT)
        self._contexts: list[tuple[int, str, str]] = [tuple(row) for row in recording["contexts"]]
        self._step_ends = [step["end"] for step in recording["steps"]]

    def peak_event(self, device: int = 0) -> int | None:
        """Index of the event after which the most was allocated on a device; None without a log."""
        mine = np.flatnonzero(self.events["device"] == device)
        if not len(mine):
            return None
        return int(mine[np.argmax(self.events["allocated"][mine])])

    def step_of(self, event: int) -> int | None:
        """The training step in which an event happened; None after the last, or where there are none."""
        step = int(np.searchsorted(self._step_ends, event, side="right"))
        # A script that failed did so within a step that never ended.
        return step if step < len(self._step_ends) or self.recording["error"] is not None else None

    def place(self, event: int) -> Place:
        """Where the program was when an event happened."""
        return self.place_of(event, context=int(self.events[event]["context"]))

    def place_of(self, event: int, *, context: int) -> Place:
        """Where the program was, from an event's number and the context that it carries."""
        phase = op = module = None
        while context:
            context, kind, name = self._contexts[context]
            if kind == "module":
                module = module or name
            elif kind == "phase":
                phase = phase or name
            elif kind == "node":
                op, phase = op or name, phase or "backward"
            elif kind == "op":
                op = op or name
        phase = phase or ("forward" if module is not None else "other")
        return Place(step=self.step_of(event), phase=phase, op=op, module=module)


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryPeaks:
    """Peaks of requested and active bytes within each step, from PyTorch's own memory history."""

    requested: tuple[int, ...]
    active: tuple[int, ...]


def history_peaks(recorded: Recorded, device: int = 0) -> HistoryPeaks | None:
    """The peaks of requested and active bytes within each training step; None without a history.

    Both fall when a block really returns to its pool (`free_completed`), not when the program lets it go, as PyTorch
    counts them (c10/cuda/CUDACachingAllocator.cpp).
    """
    snapshot = recorded.recording.get("snapshot")
    if not snapshot or device >= len(snapshot["device_traces"]):
        return None
    ends = [step["end"] for step in recorded.recording["steps"]]
    sizes = recorded.events["size"][recorded.events["device"] == device]
    requested = active = index = step = 0
    live: dict[int, tuple[int, int]] = {}
    peaks_requested = [0] * len(ends)
    peaks_active = [0] * len(ends)
    numbers = np.flatnonzero(recorded.events["device"] == device)
    for entry in snapshot["device_traces"][device]:
        action = entry["action"]
        if action == "alloc":
            if index >= len(sizes):
                return None
            while step < len(ends) and numbers[index] >= ends[step]:
                step += 1
            if step == len(ends):
                break
            block = int(sizes[index])
            live[entry["addr"]] = (entry["size"], block)
            requested += entry["size"]
            active += block
            index += 1
            peaks_requested[step] = max(peaks_requested[step], requested)
            peaks_active[step] = max(peaks_active[step], active)
        elif action == "free_requested":
            index += 1
        elif action == "free_completed":
            asked, block = live.pop(entry["addr"], (0, 0))
            requested -= asked
            active -= block
            if step + 1 < len(ends) and index and index < len(numbers) and numbers[index - 1] >= ends[step]:
                step += 1
    return HistoryPeaks(requested=tuple(peaks_requested), active=tuple(peaks_active))
