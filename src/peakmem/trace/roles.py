"""The words of a trace: what an event does, what a block is for, what a context is."""

from __future__ import annotations

from enum import IntEnum


class Action(IntEnum):
    """What the allocator did. Names and order of meaning as in PyTorch's memory history (`TraceEntry::Action`).

    The values are part of the file format: they are never reused.
    """

    ALLOC = 0
    FREE_REQUESTED = 1
    FREE_COMPLETED = 2
    SEGMENT_ALLOC = 3
    SEGMENT_FREE = 4
    SEGMENT_MAP = 5
    SEGMENT_UNMAP = 6
    SNAPSHOT = 7
    OOM = 8
    OTHER = 9

    @property
    def word(self) -> str:
        """The name that PyTorch's snapshots use, for instance `free_requested`."""
        return self.name.lower()


class Role(IntEnum):
    """What a block is for. The values are part of the file format: they are never reused."""

    UNATTRIBUTED = 0
    PARAMETER = 1
    BUFFER = 2
    GRADIENT = 3
    OPTIMIZER_STATE = 4
    ACTIVATION = 5
    AUTOCAST_COPY = 6
    INPUT = 7
    WORKSPACE = 8
    COMMUNICATION = 9
    TEMPORARY = 10

    @property
    def word(self) -> str:
        """The name in JSON, for instance `optimizer_state`."""
        return self.name.lower()

    @property
    def title(self) -> str:
        """The name in print, for instance `optimizer state`."""
        return _TITLES.get(self, self.name.lower().replace("_", " "))


_TITLES = {Role.COMMUNICATION: "communication buffer"}


class ContextKind(IntEnum):
    """What a context stands for. The values are part of the file format: they are never reused."""

    NONE = 0
    STEP = 1
    PHASE = 2
    MODULE = 3
    OP = 4
    ANNOTATION = 5
