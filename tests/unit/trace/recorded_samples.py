"""Recordings made by hand: a small program's events, notes and operators, in the form the watching side writes."""

from __future__ import annotations

from typing import Any

import numpy as np

from peakmem.trace.recorded import EVENT

USE = np.dtype([("event", "<u8"), ("address", "<u8"), ("use", "<u4"), ("unused", "<u4")])
OPERATOR = np.dtype([("first", "<u8"), ("end", "<u8"), ("name", "<u4"), ("thread", "<u2"), ("depth", "<u2")])
SEGMENT = 0x10_0000


class Program:
    """Builds a recording from what a program does, block by block."""

    def __init__(self) -> None:
        self._events: list[tuple[int, ...]] = []
        self._history: list[dict[str, Any]] = []
        self._live: dict[str, tuple[int, int, int]] = {}
        self._contexts: list[tuple[int, str, str]] = [(0, "", "")]
        self._notes: list[tuple[int, int, tuple[Any, ...]]] = []
        self._uses: list[tuple[int, int, int, int]] = []
        self._operators: list[tuple[int, ...]] = []
        self._names: list[str] = []
        self._running: list[tuple[str, int]] = []
        self._steps: list[dict[str, int]] = []
        self._allocated = 0
        self.marks: list[tuple[int, str, dict[str, Any]]] = []
        self.autocast: list[tuple[int, int]] = []
        self.context = 0
        self.thread = 0
        self._history.append(
            {"action": "segment_alloc", "addr": SEGMENT, "size": 1 << 24, "stream": 0, "frames": [], "time_us": 0}
        )

    @property
    def now(self) -> int:
        return len(self._events)

    def take(self, name: str, size: int = 1024, *, line: int = 0) -> None:
        """Take a block of a name; `size` is what is asked for."""
        block = -(-size // 512) * 512
        at = SEGMENT
        for start, _, length in sorted(self._live.values()):
            if start - at >= block:
                break
            at = start + length
        self._live[name] = (at, size, block)
        self._allocated += block
        self._event(at, block)
        frames = [
            {"filename": "/env/peakmem/session/inside/modules.py", "line": 30, "name": "__call__"},
            {"filename": "/home/me/train.py", "line": line, "name": "<module>"},
        ]
        self._history.append(
            {
                "action": "alloc",
                "addr": at,
                "size": size,
                "stream": 0,
                "frames": frames if line else [],
                "time_us": self.now,
            }
        )

    def give(self, *names: str) -> None:
        """Give blocks back."""
        for name in names:
            at, size, block = self._live.pop(name)
            self._allocated -= block
            self._event(at, -block)
            for action in ("free_requested", "free_completed"):
                self._history.append(
                    {"action": action, "addr": at, "size": size, "stream": 0, "frames": [], "time_us": self.now}
                )

    def _event(self, at: int, size: int) -> None:
        self._events.append((at, size, self._allocated, 1 << 24, self.context, 0, self.thread))

    def note(self, block: str, role: str, name: str = "", owner: str = "", shape: tuple[int, ...] = ()) -> None:
        """Say what a block is."""
        self._notes.append((self.now, self._live[block][0], (role, name, owner, shape, "float32")))

    def use(self, block: str, use: int) -> None:
        """A library call names a block."""
        self._uses.append((self.now, self._live[block][0], use, 0))

    def mark(self, kind: str, **fields: Any) -> None:
        """Something begins or ends."""
        self.marks.append((self.now, kind, fields))

    def begin(self, operator: str) -> None:
        """An operator begins."""
        self._running.append((operator, self.now))

    def end(self) -> None:
        """The innermost operator ends."""
        name, first = self._running.pop()
        if name not in self._names:
            self._names.append(name)
        if self.now > first:
            self._operators.append((first, self.now, self._names.index(name), self.thread, len(self._running)))

    def module(self, path: str) -> int:
        """Go into a module; gives the context to go back to."""
        before = self.context
        self._contexts.append((before, "module", path))
        self.context = len(self._contexts) - 1
        return before

    def step(self, *, backwards: int = 1) -> None:
        """A training step is over."""
        self._steps.append({"end": self.now, "allocated": 0, "reserved": 0, "optimizers": 1, "backwards": backwards})

    def recording(self) -> dict[str, Any]:
        """The recording as it is now."""
        keys = list(dict.fromkeys(key for _, _, key in self._notes))
        blocks, at = [], SEGMENT
        for start, size, block in sorted(self._live.values()):
            if start > at:
                blocks.append({"size": start - at, "requested_size": 0, "state": "inactive", "address": at})
            blocks.append({"size": block, "requested_size": size, "state": "active_allocated", "address": start})
            at = start + block
        blocks.append({"size": SEGMENT + (1 << 24) - at, "requested_size": 0, "state": "inactive", "address": at})
        segment = {"address": SEGMENT, "total_size": 1 << 24, "device": 0, "segment_type": "large", "blocks": blocks}
        return {
            "torch": "2.14.1",
            "command": ["python", "train.py"],
            "reason": "end",
            "devices": [{"name": "Card"}],
            "steps": self._steps,
            "marks": self.marks,
            "contexts": self._contexts,
            "events": np.array(self._events, dtype=EVENT).tobytes(),
            "snapshot": {"segments": [segment], "device_traces": [self._history]},
            "owners": {
                "keys": keys,
                "events": np.array([event for event, _, _ in self._notes], dtype="<u8").tobytes(),
                "addresses": np.array([address for _, address, _ in self._notes], dtype="<u8").tobytes(),
                "says": np.array([keys.index(key) for _, _, key in self._notes], dtype="<u4").tobytes(),
            },
            "autocast": self.autocast,
            "uses": np.array(self._uses, dtype=USE).tobytes(),
            "operators": np.array(self._operators, dtype=OPERATOR).tobytes(),
            "operator_names": self._names,
        }
