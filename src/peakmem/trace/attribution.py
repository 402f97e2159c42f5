"""What each block of a recording is for: from notes, uses and operators to roles, as a second pass over the events.

A block is what somebody was seen holding it as; its size says nothing. Where several things are true of one block (a
weight is saved for the backward pass), the one that lasts longest wins, in the order of `_ORDER`.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from peakmem.trace.operators import Operation
from peakmem.trace.recording_log import COMMUNICATED, FROM_HOST, WORKSPACES, Life, Log, Note, notes_of
from peakmem.trace.roles import Role

_ORDER = {
    "parameter": 0,
    "buffer": 1,
    "optimizer_state": 2,
    "gradient": 3,
    "input": 4,
    "autocast_copy": 5,
    "activation": 6,
    "loaded": 7,
    "output": 8,
}
_LASTING = ("parameter", "buffer", "optimizer_state", "gradient")
_LIBRARY_STATES = {"aten::_cudnn_init_dropout_state": "cuDNN dropout state"}
KEPT = "kept after the backward pass"
OUTPUT = "output"
LOADED = "state dict being loaded"
COPIED = "copied from the host"


@dataclass(frozen=True, kw_only=True, slots=True)
class Owner:
    """What a block is for, from an event on.

    Attributes:
        since: number of the event with which it begins to hold; 0 for the first one of a block.
        role: the role.
        name: of the tensor, or what it is.
        owner: class of the outermost module or of the optimizer, empty if there is none.
        shape: empty if unknown.
        dtype: empty if unknown.
    """

    since: int = 0
    role: Role
    name: str
    owner: str = ""
    shape: tuple[int, ...] = ()
    dtype: str = ""


class Attribution:
    """Works out the owners of all blocks of a log.

    Args:
        recording: the recording.
        log: its log.
        ran: for each event what ran (`operators.operations`).
        in_module: for each event whether a module was running.
    """

    def __init__(self, recording: dict[str, Any], log: Log, ran: list[Operation], in_module: list[bool]) -> None:
        self._log = log
        self._ran = ran
        self._in_module = in_module
        self._step_ends = [step["end"] for step in recording["steps"]]
        self._backwards = _backwards(recording["marks"])
        self._notes: dict[int, list[tuple[int, Note]]] = {}
        for event, address, note in notes_of(recording):
            life = log.alive_at(address, event)
            if life is not None:
                self._notes.setdefault(life.number, []).append((event, note))
        self._workspaces: dict[int, str] = {}
        self._communicated: set[int] = set()
        self._from_host: set[int] = set()
        for event, address, use, _ in log.uses.tolist():
            life = log.alive_at(address, event)
            if life is None:
                continue
            if use == FROM_HOST:
                self._from_host.add(life.number)
            elif use == COMMUNICATED:
                self._communicated.add(life.number)
            else:
                self._workspaces.setdefault(life.number, WORKSPACES[use])
        self._autocast: set[int] = set()
        for first, end in recording["autocast"]:
            self._autocast.update(life.number for life in log.ending_between(first, end))

    def of(self, life: Life) -> list[Owner]:
        """The owners of a block, one after the other."""
        noted = self._from_notes(life)
        if noted:
            return noted
        first = self._from_its_life(life)
        step = bisect_right(self._step_ends, life.born)
        end = self._step_ends[step] if step < len(self._step_ends) else None
        if first.role is Role.TEMPORARY and end is not None and life.freed >= end:
            # Whoever still holds it once the step is over was not seen.
            return [first, Owner(since=end, role=Role.UNATTRIBUTED, name="")]
        return [first]

    def _from_notes(self, life: Life) -> list[Owner]:
        notes = self._notes.get(life.number, [])
        best: tuple[int, Note] | None = None
        for event, note in notes:
            if note.role == "input" and self._in_module[life.born]:
                continue
            # What lasts is known best at its end, what passes as it is first seen.
            if (
                best is None
                or _rank(note) < _rank(best[1])
                or (note.role in _LASTING and _rank(note) == _rank(best[1]))
            ):
                best = (event, note)
        if best is None:
            return []
        event, note = best

        def owner(role: Role, name: str, since: int = 0) -> Owner:
            return Owner(since=since, role=role, name=name, owner=note.owner, shape=note.shape, dtype=note.dtype)

        if note.role == "loaded":
            return [owner(Role.TEMPORARY, f"{LOADED}: {note.name}")]
        if note.role == "output":
            of = f" of {note.owner}" if note.owner else ""
            return [owner(Role.TEMPORARY, f"{OUTPUT} {note.name}".rstrip() + of)]
        if note.role == "activation" and life.number in self._from_host and not self._in_module[life.born]:
            return [owner(Role.INPUT, COPIED)]
        if note.role == "activation" and (life.number in self._workspaces or self._library_state(life)):
            return []
        if note.role in _LASTING:
            names = {other.name for at, other in notes if at == event and other.role == note.role}
            if len(names) > 1:
                return [Owner(role=Role[note.role.upper()], name=_together(names), owner=note.owner, dtype=note.dtype)]
        if note.role == "input":
            return [owner(Role.INPUT, f"{note.name} of {note.owner}")]
        first = owner(Role[note.role.upper()], note.name)
        if first.role is Role.ACTIVATION:
            ended = self._backwards.get(event)
            if ended is not None and ended < life.freed:
                return [first, owner(Role.TEMPORARY, f"{KEPT}: {first.name}", ended)]
        return [first]

    def _from_its_life(self, life: Life) -> Owner:
        ran = self._ran[life.born]
        if life.number in self._workspaces:
            return Owner(role=Role.WORKSPACE, name=self._workspaces[life.number])
        if self._library_state(life):
            return Owner(role=Role.WORKSPACE, name=_LIBRARY_STATES[ran.inner])
        if life.number in self._communicated:
            return Owner(role=Role.COMMUNICATION, name="given to NCCL")
        if ran.inner and life.freed < ran.inner_end:
            return Owner(role=Role.WORKSPACE, name=f"scratch of {ran.inner}")
        if life.number in self._autocast:
            return Owner(role=Role.AUTOCAST_COPY, name="kept by autocast")
        if life.number in self._from_host and not self._in_module[life.born] and not ran.node:
            return Owner(role=Role.INPUT, name=COPIED)
        return Owner(role=Role.TEMPORARY, name="")

    def _library_state(self, life: Life) -> bool:
        return self._ran[life.born].inner in _LIBRARY_STATES


def _together(names: set[str]) -> str:
    """A name for tensors that share one block: what their names begin with, up to a point."""
    first, last = min(names).split("."), max(names).split(".")
    common = [part for part, _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))]
    where = ".".join([*common, "*"])
    return f"{where} ({len(names)} in one block)"


def _rank(note: Note) -> tuple[int, bool]:
    # A leaf without a name that was passed to a model is an input that wants a gradient, not a parameter of anything.
    if note.role == "parameter" and not note.name and not note.owner:
        return (_ORDER["input"], True)
    return (_ORDER[note.role], False)


def _backwards(marks: list[Any]) -> dict[int, int]:
    """For the number of events at which a backward pass began the number at which its graph was let go."""
    found: dict[int, int] = {}
    began = None
    for event, kind, fields in marks:
        if kind == "backward":
            began = None if fields.get("retained") else event
        elif kind == "backward_end" and began is not None:
            found[began] = event
            began = None
    return found
