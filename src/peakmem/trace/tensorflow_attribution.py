"""What each chunk of a TensorFlow run is for.

Taken from what is known, in this order:

1. variables, by the addresses of their buffers between steps: parameter, buffer (not trained), optimizer state;
2. what a function compiled by XLA takes: one block for all it needs inside, so no more than that can be told;
3. what an operator took and gave back while it ran: workspace;
4. what was copied from the host: input;
5. by the names of the operators that took it and that used it last (TensorFlow lets go of a tensor right after its
   last use): taken in the forward pass and last used in the backward pass: activation; taken in the backward pass and
   last used by the optimizer: gradient; else temporary, or unattributed if it outlives its step.

Operators called outside of functions have no such names; there the tape holds what was alive when gradients were taken.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Any

from peakmem.trace.attribution import Owner
from peakmem.trace.recording_log import Life, Log, Note
from peakmem.trace.roles import Role
from peakmem.trace.tensorflow_log import DYNAMIC, TEMP, Operator, TensorflowLog

COMPILED = "in a function compiled by XLA"
COPIED = "copied from the host"
TRIED_OUT = "plans tried out"
_ORDER = ("parameter", "optimizer_state", "gradient", "buffer")
_CONVOLUTION = re.compile(r"Conv|Fused")


class TensorflowAttribution:
    """Works out the owners of all chunks of a log."""

    def __init__(self, recording: dict[str, Any], log: Log, told: TensorflowLog, phases: list[str]) -> None:
        """`phases` has for each event its phase, empty where it is not known."""
        self._log = log
        self._told = told
        self._phases = phases
        self._step_ends: list[int] = [step["end"] for step in recording["steps"]]
        self._backward_starts = self._first_backwards()
        self._runs = self._number_runs()
        self._notes: dict[int, Note] = {}
        self._parameters: dict[tuple[str, tuple[int, ...]], list[str]] = {}
        self._read_notes(recording["tensorflow"]["notes"])

    def of(self, life: Life) -> list[Owner]:
        """The owners of a chunk, one after the other."""
        note = self._notes.get(life.number)
        if note is not None:
            return [Owner(role=Role[note.role.upper()], name=note.name, shape=note.shape, dtype=note.dtype)]
        first = self._from_its_life(life)
        step = bisect_right(self._step_ends, life.born)
        end = self._step_ends[step] if step < len(self._step_ends) else None
        if first.role is Role.TEMPORARY and end is not None and life.freed > end:
            return [first, Owner(since=end, role=Role.UNATTRIBUTED, name=first.name)]
        return [first]

    def _from_its_life(self, life: Life) -> Owner:
        told, born = self._told, life.born
        made = told.operator(born)
        shape, dtype = told.shape(born), told.dtype(born)
        gone = life.freed < len(self._log.events)
        if made.is_compiled and told.runs(born):
            return Owner(role=Role.TEMPORARY, name=COMPILED)
        if gone and told.runs(born) and self._runs[born] == self._runs[life.freed]:
            return Owner(role=Role.WORKSPACE, name=_scratch(made, told.region(born)), shape=shape, dtype=dtype)
        if made.is_copy and told.region(born) == DYNAMIC:
            return Owner(role=Role.INPUT, name=COPIED, shape=shape, dtype=dtype)
        phase = self._phases[born]
        if phase == "backward":
            if gone and self._phases[life.freed] == "optimizer":
                return Owner(role=Role.GRADIENT, name=self._gradient(made, shape), shape=shape, dtype=dtype)
        elif phase != "optimizer" and self._is_saved(life):
            return Owner(role=Role.ACTIVATION, name="", shape=shape, dtype=dtype)
        return Owner(role=Role.TEMPORARY, name="", shape=shape, dtype=dtype)

    def _is_saved(self, life: Life) -> bool:
        """Whether what a forward pass made is needed for the backward pass."""
        made = self._told.operator(life.born)
        last = self._phases[life.freed] if life.freed < len(self._log.events) else ""
        if last:
            return last in ("backward", "optimizer")
        step = bisect_right(self._step_ends, life.born)
        start = self._backward_starts.get(step)
        if start is None or not (life.born < start < life.freed):
            return False
        end = self._step_ends[step] if step < len(self._step_ends) else len(self._log.events)
        return bool(made.phase == "forward" or life.freed <= end)

    def _gradient(self, made: Operator, shape: tuple[int, ...]) -> str:
        """The name of the parameter, if the layer has but one of this shape."""
        found = self._parameters.get((made.module, shape), ())
        return found[0] if len(found) == 1 else made.name

    # ------------------------------------------------------------------ tables

    def _read_notes(self, table: dict[str, Any]) -> None:
        keys = [Note(role, name, "", tuple(shape), dtype) for role, name, shape, dtype in table["keys"]]
        for event, address, number in table["rows"]:
            life = self._log.alive_at(address, event)
            note = keys[number]
            if life is None:
                continue
            known = self._notes.get(life.number)
            if known is None or _ORDER.index(note.role) <= _ORDER.index(known.role):
                self._notes[life.number] = note
        for note in keys:
            if note.role == "parameter":
                self._parameters.setdefault((note.name.rpartition("/")[0], note.shape), []).append(note.name)

    def _first_backwards(self) -> dict[int, int]:
        """For each step the first event of its backward pass."""
        found: dict[int, int] = {}
        for event, phase in enumerate(self._phases):
            if phase == "backward":
                found.setdefault(bisect_right(self._step_ends, event), event)
        return found

    def _number_runs(self) -> list[int]:
        """For each event the run of an operator that it lies in: a number for each stretch of one on one thread."""
        runs = []
        current: dict[int, tuple[tuple[int, int], int]] = {}
        count = 0
        threads = self._log.events["thread"].tolist()
        rows = zip(self._told.chunks["op"].tolist(), self._told.chunks["running"].tolist(), threads, strict=True)
        for op, running, thread in rows:
            known = current.get(thread)
            if known is None or known[0] != (op, running):
                count += 1
                known = current[thread] = ((op, running), count)
            runs.append(known[1])
        return runs


def _scratch(made: Operator, region: int) -> str:
    if region != TEMP and _CONVOLUTION.search(made.type):
        return f"{TRIED_OUT} by {made.type}"
    return f"scratch of {made.type}"
