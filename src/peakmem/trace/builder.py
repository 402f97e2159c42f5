"""Tables of distinct things while a trace is being built: strings, shapes, frames, stacks, contexts."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import numpy as np

from peakmem.trace.tables import Contexts, Frames, Stacks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from peakmem.trace.roles import ContextKind


class Interner:
    """Gives equal things one index each. Fill it, then take the tables."""

    def __init__(self) -> None:
        self._strings: dict[str, int] = {"": 0}
        self._shapes: dict[tuple[int, ...], int] = {(): 0}
        self._frames: dict[tuple[int, int, int], int] = {}
        self._stacks: dict[bytes, int] = {b"": 0}  # as bytes of int32: a tenth of a tuple of ints
        self._contexts: dict[tuple[int, int, int, int], int] = {(0, 0, 0, 0): 0}

    def string(self, text: str) -> int:
        """Index of a string."""
        if not text.isascii():  # names of files need not be Unicode, and a trace is
            text = text.encode("utf-8", "replace").decode()
        return self._strings.setdefault(text, len(self._strings))

    def shape(self, shape: Iterable[int]) -> int:
        """Index of a shape."""
        return self._shapes.setdefault(tuple(shape), len(self._shapes))

    def frame(self, filename: str, line: int, function: str) -> int:
        """Index of a line of code."""
        key = (self.string(filename), self.string(function), line)
        return self._frames.setdefault(key, len(self._frames))

    def stack(self, frames: Iterable[int]) -> int:
        """Index of a stack of frame indices, innermost first; the empty stack has index 0."""
        return self._stacks.setdefault(array("i", frames).tobytes(), len(self._stacks))

    def context(self, parent: int, kind: ContextKind, name: str, number: int = 0) -> int:
        """Index of a context below `parent` (0: the root)."""
        key = (parent, int(kind), self.string(name), number)
        return self._contexts.setdefault(key, len(self._contexts))

    @property
    def strings(self) -> tuple[str, ...]:
        """For `Trace.strings`."""
        return tuple(self._strings)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """For `Trace.shapes`."""
        return tuple(self._shapes)

    @property
    def frames(self) -> Frames:
        """For `Trace.frames`."""
        columns = list(zip(*self._frames, strict=True)) or [(), (), ()]
        return Frames.of({"filename": columns[0], "function": columns[1], "line": columns[2]})

    @property
    def stacks(self) -> Stacks:
        """For `Trace.stacks`."""
        offsets = np.zeros(len(self._stacks) + 1, dtype="i8")
        np.cumsum([len(stack) // 4 for stack in self._stacks], out=offsets[1:])
        return Stacks(offsets=offsets, frames=np.frombuffer(b"".join(self._stacks), dtype="i4").copy())

    @property
    def contexts(self) -> Contexts:
        """For `Trace.contexts`."""
        columns = list(zip(*self._contexts, strict=True))
        return Contexts.of({"parent": columns[0], "kind": columns[1], "name": columns[2], "number": columns[3]})
