"""The logs of a recording as arrays: what the virtual GPU and the watching side wrote down, nothing concluded yet."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from peakmem.trace.recorded import EVENT
from peakmem.trace.tables import Array

_USE = np.dtype([("event", "<u8"), ("address", "<u8"), ("use", "<u4"), ("unused", "<u4")])
_OPERATOR = np.dtype([("first", "<u8"), ("end", "<u8"), ("name", "<u4"), ("thread", "<u2"), ("depth", "<u2")])

WORKSPACES = {1: "cuBLAS workspace", 2: "cuBLASLt workspace"}
FROM_HOST = 3
COMMUNICATED = 4


class Note(NamedTuple):
    """What the watching side said of the block at an address.

    Attributes:
        role: a role's word, or `output` or `loaded` (see `session/inside/notes.py`).
        name: of the tensor in its owner.
        owner: class of the outermost module or of the optimizer.
        shape: of the tensor.
        dtype: of the tensor, for instance `float32`.
    """

    role: str
    name: str
    owner: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Life:
    """A block's life in events of the log.

    Attributes:
        number: which allocation of the log it is, from 0.
        address: of the block.
        size: bytes.
        born: number of the event that handed it out.
        freed: number of the event that took it back, the number of events if none did.
    """

    number: int
    address: int
    size: int
    born: int
    freed: int


class Log:
    """The event log of a recording, with the lives of its blocks."""

    def __init__(self, recording: dict[str, Any]) -> None:
        self.events: Array = np.frombuffer(recording["events"], dtype=EVENT)
        self.operators: Array = np.frombuffer(recording["operators"], dtype=_OPERATOR)
        self.operator_names: list[str] = list(recording["operator_names"])
        self.uses: Array = np.frombuffer(recording["uses"], dtype=_USE)
        self.lives: list[Life] = []
        self._at: dict[int, tuple[list[int], list[int]]] = {}  # address -> births, numbers of lives
        self._follow()

    def _follow(self) -> None:
        count = len(self.events)
        open_lives: dict[tuple[int, int], int] = {}
        freed: list[int] = []
        born: list[tuple[int, int, int]] = []
        rows = zip(
            self.events["address"].tolist(),
            self.events["size"].tolist(),
            self.events["device"].tolist(),
            strict=True,
        )
        for event, (address, size, device) in enumerate(rows):
            if size >= 0:
                open_lives[address, device] = len(born)
                births, numbers = self._at.setdefault(address, ([], []))
                births.append(event)
                numbers.append(len(born))
                born.append((address, size, event))
                freed.append(count)
            else:
                number = open_lives.pop((address, device), None)
                if number is not None:
                    freed[number] = event
        self.lives = [
            Life(number=number, address=address, size=size, born=event, freed=freed[number])
            for number, (address, size, event) in enumerate(born)
        ]

    def alive_at(self, address: int, moment: int) -> Life | None:
        """The block that begins at an address after so many events; None if there is none."""
        known = self._at.get(address)
        if known is None:
            return None
        births, numbers = known
        index = bisect_left(births, moment) - 1
        if index < 0:
            return None
        life = self.lives[numbers[index]]
        return life if life.freed >= moment else None

    def ending_between(self, first: int, end: int) -> list[Life]:
        """The blocks taken back by the events from `first` to `end - 1`."""
        found = []
        for event in range(first, min(end, len(self.events))):
            row = self.events[event]
            if row["size"] < 0:
                life = self.alive_at(int(row["address"]), event)
                if life is not None:
                    found.append(life)
        return found


def notes_of(recording: dict[str, Any]) -> list[tuple[int, int, Note]]:
    """(events so far, address, what was said), in order."""
    table = recording["owners"]
    keys = [Note(*key) for key in table["keys"]]
    events = np.frombuffer(table["events"], dtype="<u8").tolist()
    addresses = np.frombuffer(table["addresses"], dtype="<u8").tolist()
    says = np.frombuffer(table["says"], dtype="<u4").tolist()
    return [(event, address, keys[say]) for event, address, say in zip(events, addresses, says, strict=True)]
