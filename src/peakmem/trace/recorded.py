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
